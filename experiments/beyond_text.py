"""Does merging words beat choosing some, projecting, hashing, and all words? Texts, at equal size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.feature_selection import chi2
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.naive_bayes import MultinomialNB

from bagwise import merge_words
from bagwise.baselines import DivisiveMerger, HashMerger, MinRedundancyMaxRelevance
from bagwise.criteria import NonparametricDiscriminant
from bagwise.merging.pooling import pool
from experiments import sets
from experiments.classifying import linear_error
from experiments.differences import always
from experiments.merging_errors import LABELS, Errors, claims
from experiments.pages import Claim, Section
from experiments.reducing import Task
from experiments.running import Cell, Options, Results

PAPER = "beyond"
TITLE = "merging against selection and all words, on texts"
DATA = ("newsgroups_3pairs", "reuters21578")

SIZES = (2, 5, 10, 20, 50, 100, 200, 500, 1000)
FEWER = (10, 50, 200, 1000)  # for six classes, where classifiers take longer
MERGING = ("aib", "mlt", "ditc", "csm", "nda_near")
OTHERS = ("chi2", "mrmr", "svd", "hashing")
METHODS = ("all", "tfidf", *MERGING, *OTHERS)
HOW = {"linear": "linear SVM", "bayes": "naive Bayes"}
N_SPLITS = 3
N_TRAIN = 300  # documents of each class
MIN_DOCUMENTS = 3  # training documents that a word must be in
LOWER = ("aib", "mlt", "ditc")

Pair = tuple[Any, Any]


def cells(options: Options) -> list[Cell]:
    pairs = sets.text_pairs(options)
    tasks = [("pairs", *one) for one in pairs] + [("together", "newsgroups", sets.TOGETHER, sets.TOGETHER)]
    if options.quick:
        tasks = [tasks[1]]
    return [
        Cell(f"{kind}/{name}/{split:02d}/{method}", measure,
             {"options": options, "source": source, "pair": pair, "split": split, "method": method})
        for split in range(options.repeats or (1 if options.quick else N_SPLITS))
        for kind, source, name, pair in tasks for method in METHODS
    ]  # fmt: skip


def measure(options: Options, source: str, pair: Any, split: int, method: str) -> dict[str, Any]:
    """Errors of a method at all sizes on one random split."""
    task = task_of(options, source, pair, split)
    sizes = FEWER if pair == sets.TOGETHER else SIZES
    if options.quick:
        sizes = (10, 100)
    lines: dict[str, dict[str, float]] = {}
    for size, features, counts in columns(task, method, [size for size in sizes if size < task.counts.shape[1]]):
        error = linear_error(features[0], task.y, features[1], task.y_test)
        lines.setdefault("linear", {})[str(size)] = round(error, 5)
        if counts is not None:
            lines.setdefault("bayes", {})[str(size)] = round(bayes_error(*counts, task), 5)
    return {method: lines}


@lru_cache(maxsize=1)
def task_of(options: Options, source: str, pair: Any, split: int) -> Task:
    """A random split, with the words that are in several training documents."""
    words = sets.texts(options, source, pair, None)
    n = len(words.y)
    n_train = min((100 if options.quick else N_TRAIN) * len(words.classes), n // 2)
    train, test = train_test_split(np.arange(n), train_size=n_train, stratify=words.y, random_state=split)
    documents = np.bincount(words.X[train].indices, minlength=words.X.shape[1])
    known = replace(words, X=sp.csr_array(words.X[:, np.flatnonzero(documents >= MIN_DOCUMENTS)]))
    return Task.of(known, train, test, seed=split, sparse=True)


def columns(task: Task, method: str, sizes: Sequence[int]) -> Iterator[tuple[int, Pair, Pair | None]]:
    """Sizes, features for a linear SVM, and counts for naive Bayes where there are some; training and test of each."""
    if method == "all":
        yield task.counts.shape[1], task.roots, task.view("counts")
    elif method == "tfidf":
        weighing = TfidfTransformer(sublinear_tf=True).fit(task.counts)
        yield task.counts.shape[1], tuple(weighing.transform(X) for X in task.view("counts")), None
    elif method == "svd":
        model = TruncatedSVD(min(max(sizes), *task.counts.shape), n_iter=4, random_state=task.seed)
        Z, Z_test = model.fit_transform(task.roots[0]), model.transform(task.roots[1])
        for size in sizes:
            if size <= Z.shape[1]:
                yield size, (Z[:, :size], Z_test[:, :size]), None
    elif method == "hashing":
        for size in sizes:
            signed, plain = (
                HashMerger(size, signed=kind, random_state=task.seed).fit(task.counts) for kind in (True, False)
            )
            features, counts = (tuple(model.transform(X) for X in task.view(name))
                                for model, name in ((signed, "roots"), (plain, "counts")))  # fmt: skip
            yield size, features, counts
    elif method in ("chi2", "mrmr"):
        order = _ranking(task, method, max(sizes))
        for size in sizes:
            chosen = order[:size]
            yield size, *(tuple(X[:, chosen] for X in task.view(name)) for name in ("roots", "counts"))
    else:
        for size, labels in _groups(task, method, sizes):
            shares, counts = (tuple(pool(X, labels, size) for X in task.view(name)) for name in ("shares", "counts"))
            yield size, tuple(np.sqrt(Z) for Z in shares), counts


def _ranking(task: Task, method: str, n: int) -> NDArray[Any]:
    """Words, the best first."""
    if method == "mrmr":
        return MinRedundancyMaxRelevance(n).fit(task.roots[0], task.y).ranking_
    return np.argsort(-np.nan_to_num(chi2(task.counts, task.y)[0]), kind="stable")


def _groups(task: Task, method: str, sizes: Sequence[int]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Groups of words at each size."""
    if method == "ditc":
        for size in sizes:
            yield size, DivisiveMerger(size).fit(task.counts, task.y).labels_
        return
    criterion = NonparametricDiscriminant(5, 5) if method == "nda_near" else method
    seen = task.counts if method in ("aib", "mlt") else task.roots[0]
    hierarchy = merge_words(seen, task.y, criterion=criterion, n_groups=min(sizes), n_jobs=1)
    for size in sizes:
        yield size, hierarchy.cut(size)


def bayes_error(counts: Any, counts_test: Any, task: Task) -> float:
    """Of multinomial naive Bayes, smoothed as 5 folds of the training documents have it."""
    model = GridSearchCV(MultinomialNB(), {"alpha": [0.01, 0.1, 1.0]}, cv=5).fit(counts, task.y)
    return float(np.mean(model.predict(counts_test) != task.y_test))


def sections(results: Results) -> list[Section]:
    found = []
    for kind, title, sizes in (("pairs", "Pairs of newsgroups and of Reuters topics", SIZES),
                               ("together", "Six newsgroups at once", FEWER)):  # fmt: skip
        errors = Errors(results, f"{kind}/")
        if not errors.methods:
            continue
        names = ", ".join(sorted({key.split("/")[1] for key, _ in results.items(f"{kind}/")}))
        text = f"""
{names if kind == "pairs" else "The groups of Comp, Sci and Talk"}.
{N_TRAIN} training documents a class, or half of all if there are fewer, the others to test; up to {N_SPLITS} random
splits, as far as they are finished.
Words are all that are in at least {MIN_DOCUMENTS} training documents, without stop words and
without the lines of the header that name groups: some thousand. AIB (smoothed), MLT and DITC look at counts, CSM and
NDA (5 neighbours) at Hellinger-normalised histograms; words of a group are summed. A linear SVM gets
Hellinger-normalised
histograms, naive Bayes counts. Selected words keep their relative frequency in the whole document. SVD is of
Hellinger-normalised histograms; TF-IDF is of all words."""
        tables = errors.tables(title, HOW, METHODS, sizes)
        plots = errors.plots(title, HOW, METHODS)
        heading = f"Merging or feature selection: {title[0].lower()}{title[1:]}"
        found.append(Section(heading, text, _claims(errors, sizes), tables, plots))
    return found


def _claims(errors: Errors, sizes: Sequence[int]) -> list[Claim]:
    return claims(
        *(_against_others(errors, method, how, sizes) for how in HOW for method in LOWER),
        *(_against_all(errors, method, how, sizes) for how in HOW for method in (*LOWER, "csm", "nda_near", *OTHERS)),
    )  # fmt: skip


def _against_others(errors: Errors, method: str, how: str, sizes: Sequence[int]) -> Claim | None:
    rivals = errors.rivals(method, OTHERS, how, sizes)
    if not rivals:
        return None
    lower, higher = (sum(gap.below is side for _, _, gap in rivals) for side in (True, False))
    closest = max(rivals, key=lambda rival: rival[2].mean)
    return Claim(
        f"At equal size {LABELS[method]} has a lower error than selected, projected and hashed words ({HOW[how]})",
        always(gap.below for _, _, gap in rivals),
        f"Of {len(rivals)} comparisons lower in {lower}, higher in {higher}; closest to it or furthest ahead is "
        f"{LABELS[closest[0]]} at {closest[1]}, {closest[2]} points.",
    )


def _against_all(errors: Errors, method: str, how: str, sizes: Sequence[int]) -> Claim | None:
    gaps = {size: gap for size in sizes if (gap := errors.difference((method, how, size), ("all", how, None)))}
    if not gaps:
        return None
    lower = [str(size) for size, gap in gaps.items() if gap.below]
    best = min(gaps, key=lambda size: gaps[size].mean)
    return Claim(
        f"{LABELS[method]} has a lower error than all words at some size ({HOW[how]})",
        True if lower else False if all(gap.below is False for gap in gaps.values()) else None,
        f"All words {errors.text('all', how)} %; best at {best} words, {gaps[best]} points"
        + (f"; lower at {', '.join(lower)}." if lower else "."),
    )
