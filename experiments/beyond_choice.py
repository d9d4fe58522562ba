"""What the one-standard-error rule of `WordMergerCV` chooses, and what it costs against all words."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bagwise import WordMergerCV
from bagwise.codebooks import BagNormalizer
from experiments import sets
from experiments.differences import difference
from experiments.merging_errors import LABELS
from experiments.pages import Claim, Section, Table
from experiments.running import Cell, Options, Results

PAPER = "beyond"
TITLE = "the number of words chosen by cross-validation"
DATA = ("newsgroups_3pairs", "reuters21578")

SIZES = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
CRITERIA = ("aib", "mlt", "csm")
RULES = {"1se": "one standard error", "best": "best score"}
N_TRAIN = 600
N_SPLITS = 5
PENALTY = 1.0


def cells(options: Options) -> list[Cell]:
    tasks = sets.text_pairs(options)
    if options.quick:
        tasks = tasks[1:2]
    return [
        Cell(f"{source}/{name}/{split:02d}/{criterion}", measure,
             {"options": options, "source": source, "pair": pair, "split": split, "criterion": criterion})
        for split in range(options.repeats or (1 if options.quick else N_SPLITS))
        for source, name, pair in tasks for criterion in CRITERIA
    ]  # fmt: skip


@lru_cache(maxsize=1)
def words_of(options: Options, source: str, pair: Any) -> sets.Words:
    return sets.texts(options, source, pair)


def measure(options: Options, source: str, pair: Any, split: int, criterion: str) -> dict[str, Any]:
    """Sizes chosen by both rules, and test errors at these and with all words, by the same classifier."""
    words = words_of(options, source, pair)
    n = len(words.y)
    n_train = min(200 if options.quick else N_TRAIN, n // 2)
    train, test = train_test_split(np.arange(n), train_size=n_train, stratify=words.y, random_state=split)
    X, y = words.X.astype(np.float64), words.y
    # counts of merged words, Hellinger-normalised
    machine = make_pipeline(BagNormalizer(), LinearSVC(C=PENALTY, dual=False))
    search = WordMergerCV(SIZES, estimator=machine, rule="1se", criterion=criterion, cv=5).fit(X[train], y[train])
    scores = search.cv_results_["mean_test_score"]
    sizes = {"1se": search.n_groups_, "best": int(search.cv_results_["n_groups"][int(np.argmax(scores))])}
    found: dict[str, Any] = {"all": _error(machine, X[train], y[train], X[test], y[test])}
    for rule, size in sizes.items():
        merger = search.merger_.set_params(n_groups=size)
        error = _error(machine, merger.transform(X[train]), y[train], merger.transform(X[test]), y[test])
        found[rule] = {"words": size, "error": error}
    return found


def _error(machine: Any, X: Any, y: Any, X_test: Any, y_test: Any) -> float:
    return round(float(np.mean(machine.fit(X, y).predict(X_test) != y_test)), 5)


def sections(results: Results) -> list[Section]:
    found: dict[str, list[dict[str, Any]]] = {}
    for key, result in results.items():
        found.setdefault(key.rsplit("/", 1)[1], []).append(result)
    if not found:
        return []
    rows, made = [], []
    for criterion in CRITERIA:
        for rule, label in RULES.items():
            if criterion not in found:
                continue
            words = [one[rule]["words"] for one in found[criterion]]
            all_words, error = (
                np.array([100 * value for value in values])
                for values in zip(*((one["all"], one[rule]["error"]) for one in found[criterion]), strict=True)
            )
            gap = difference(error - all_words)
            rows.append([f"{LABELS[criterion]}, {label}", f"{np.median(words):.0f} ({min(words)} to {max(words)})",
                         f"{error.mean():.2f}", f"{all_words.mean():.2f}", str(gap)])  # fmt: skip
            if rule == "1se":
                made.append(Claim(
                    f"{LABELS[criterion]}: the size by one standard error costs no more than half a point",
                    gap.less_than(0.5),
                    f"{np.median(words):.0f} of 1000 words in the median, {gap} points against all words, "
                    f"{gap.n} splits.",
                ))  # fmt: skip
    text = f"""
Pairs of newsgroups and of Reuters topics, the 1000 most frequent words, {N_TRAIN} training documents or half of all,
up to {N_SPLITS} random splits, as far as they are finished.
WordMergerCV tries {", ".join(map(str, SIZES))} words by 5 folds of the training documents,
with a linear SVM (C = {PENALTY:g}) on Hellinger-normalised merged counts, and takes the size with the best mean
score, or
the smallest within one standard error of it. The test error at that size is compared with that of all words, with the
same classifier. All criteria look at counts."""
    columns = ("criterion, rule", "words, median (range)", "error, %", "all words, %", "difference, points")
    title = "Error at the size chosen"
    return [Section("The number of words chosen", text, made, [Table(title, columns, rows)])]
