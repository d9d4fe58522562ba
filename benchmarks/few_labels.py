"""Few labels: words beside groups made without labels, and items suggested to label, against what people would write.

    python benchmarks/few_labels.py --data DIR                        # or BAGWISE_DATA=DIR; about half an hour
    python benchmarks/few_labels.py --data DIR --only corel1k rt2k    # some tasks; `--list` names them
    python benchmarks/few_labels.py --data DIR --json FOLDER          # a file per task; what is there is kept

The labels of a data set are the person: a method asks for the label of an item, and gets it.

- At most 2000 items of a task, drawn once; a random half of them, once per seed, is for test and asks for nothing. Test
  items are in the collection without labels, as are all others; "new" means that they are not: words, weights and
  groups were made without them.
- "words" is a linear SVM (C = 1) on weighted words: TF-IDF for texts, roots of relative frequencies for words of a
  network. "words and groups" is the classifier that a fit with few labels learns: groups made from all items help to
  train it, see `train_with_groups`; its weights are those of words alone. Pooled features of the network have a
  logistic regression, standardised.
- Suggested items are those of `ItemSuggester`: centres of 15 clusters, then small margins, five at a time. "uncertain"
  are 15 random items, then the five smallest margins. "random" draws all. With one class among the labels, that is the
  answer.
- "labels a class" draws so many of each class at random, without suggestions, up to all labels.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bagwise import fit_model
from bagwise._utils.validation import narrow_indices
from bagwise.app import FitOptions
from bagwise.app.index.index_features import weighted_words
from bagwise.app.index.suggesting import ItemSuggester
from bagwise.app.training.few_labels import Unlabelled, groups_help, scores_beside_groups, train_with_groups
from bagwise.app.training.method import fitting_svms, make_svm
from harness import machine, print_table, print_targets
from unlabelled import PAIRS, TASKS, write_items

MOST_ITEMS, HANDFUL, FIRST, SEEDS = 2000, 5, 15, 3
COUNTS, PER_CLASS = (15, 20, 30, 50, 80, 100, 120), (3, 10, 30, 100)
RANDOM, UNCERTAIN, SUGGESTED = "random items", "uncertain items", "suggested items"
WORDS, POOLED, N_GROUPS = "words", "pooled network features", 50
GROUPS = "words and groups"
HOWS = {WORDS: (RANDOM, UNCERTAIN), GROUPS: (RANDOM, SUGGESTED), POOLED: (RANDOM, SUGGESTED)}
OPTIONS = FitOptions()
TOPICS = (*PAIRS, "six_newsgroups", "domains", "four_domains", "reuters")
SENTIMENT = ("movies",)
PHOTOGRAPHS = ("corel1k", "caltech101_4", "scene15")


@dataclass
class Results:
    """Errors in % of a task: by method, way of choosing and number of labels, one for each seed."""

    name: str
    errors: dict[str, list[float]] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    n_items: int = 0
    n_classes: int = 0

    def mean(self, method: str, how: str, n: int | str) -> float:
        """Return the mean over seeds."""
        return statistics.mean(self.errors[key(method, how, n)])


def key(method: str, how: str, n: int | str) -> str:
    """Name a cell."""
    return f"{method} | {how} | {n}"


@dataclass(frozen=True)
class Features:
    """What is known of the items of a task."""

    words: Any
    groups: NDArray[np.float64]
    pooled: Any


def unit(rows: Any) -> Any:
    """Bring rows to length 1."""
    from sklearn.preprocessing import normalize

    return narrow_indices(normalize(sp.csr_array(rows)))


def describe(contents: Any, modality: str, train: NDArray[np.bool_] | None = None) -> Features:
    """Fit a model without labels, to all items or to those of `train`, and return the features of all."""
    rows = np.arange(len(contents)) if train is None else np.flatnonzero(train)
    with tempfile.TemporaryDirectory() as folder:
        model = fit_model(write_items([contents[row] for row in rows], modality, Path(folder)), n_groups=N_GROUPS)
        histograms = model.fit_.data.histograms
        if train is not None:
            histograms = model.histograms(contents if modality == "texts" else list(images(contents)))
    pooled = None
    if modality == "images":
        from bagwise.descriptors import NetworkFeatures

        network = NetworkFeatures()
        pooled = np.array([network.describe_pooled(image)[2] for image in images(contents)])
    groups = model.group(histograms, normalize=("l1", "power"))
    return Features(unit(weighted_words(model, histograms)), unit(groups).toarray(), pooled)


def images(contents: Any) -> Any:
    """Decode images in colour."""
    import cv2

    for _, content in contents:
        yield cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]


class Answers:
    """The scores of a classifier that learned from some labels; one class alone is always the answer."""

    def __init__(self, method: str, features: Features, labelled: NDArray[np.intp], y: NDArray[Any]) -> None:
        self.method, self.features, self.labelled = method, features, labelled
        self.classes, self.codes = np.unique(y[labelled], return_inverse=True)

    def scores(self, others: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """Return the scores of all items. The final classifier learns from `others`; without, groups stand beside."""
        features, labelled = self.features, self.labelled
        with fitting_svms():
            if self.method == POOLED:
                model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
                found = model.fit(features.pooled[labelled], self.codes).decision_function(features.pooled)
            elif self.method == WORDS:
                found = make_svm(OPTIONS).fit(features.words[labelled], self.codes).decision_function(features.words)
            elif others is None or not groups_help(len(labelled), len(labelled) + len(others)):
                return scores_beside_groups(features.words, features.groups, labelled, self.codes, OPTIONS)
            else:
                words, groups = features.words, features.groups
                unlabelled = Unlabelled(words[others], words[others], groups[others], groups[labelled])
                made = train_with_groups(words[labelled], words[others], unlabelled, self.codes, OPTIONS)
                found = words @ made.coef.T + made.intercept
        found = found.reshape(len(found), -1)
        return np.hstack([-found, found]) if found.shape[1] == 1 else found

    def error(self, rows: NDArray[np.intp], y: NDArray[Any], others: NDArray[np.intp]) -> float:
        """Return the error of some items, in %; `others` are in the collection without a label."""
        answers = self.classes[0]
        if len(self.classes) > 1:
            answers = self.classes[self.scores(others)[rows].argmax(axis=1)]
        return float(100 * np.mean(answers != y[rows]))

    def margins(self) -> NDArray[np.float64] | None:
        """Return how far the two highest scores of each item are from each other."""
        if len(self.classes) == 1:
            return None
        two = np.sort(self.scores(), axis=1)[:, -2:]
        return two[:, 1] - two[:, 0]


def label(method: str, how: str, features: Features, y: NDArray[Any], test: NDArray[np.bool_], seed: int) -> Any:
    """Ask for labels, and yield their number and the error of the test items at each of `COUNTS`."""
    rng = np.random.default_rng(1000 + seed)
    order, pool = rng.permutation(np.flatnonzero(~test)), np.flatnonzero(test)
    suggester = None
    if how == SUGGESTED:
        rows = unit(features.pooled).toarray() if method == POOLED else features.groups
        may = np.flatnonzero(~test)
        suggester = ItemSuggester.of(rows[may], FIRST, random_state=seed)
    labelled: list[int] = []
    while len(labelled) < min(max(COUNTS), len(order)):
        answers = Answers(method, features, np.array(labelled), y) if labelled else None
        margins = None if answers is None or how == RANDOM else answers.margins()
        known = test.copy()
        known[labelled] = True
        if suggester is not None:
            of_may = None if margins is None else margins[may]
            labelled += may[suggester.suggest(HANDFUL, known[may], of_may)].tolist()
        else:
            left = np.array([row for row in order if not known[row]])
            ranked = (
                left if margins is None or len(labelled) < FIRST else left[np.argsort(margins[left], kind="stable")]
            )
            labelled += ranked[:HANDFUL].tolist()
        if len(labelled) in COUNTS:
            others = np.setdiff1d(np.arange(len(y)), labelled)
            yield len(labelled), Answers(method, features, np.array(labelled), y).error(pool, y, others)


def per_class(
    method: str, features: Features, y: NDArray[Any], test: NDArray[np.bool_], seed: int, new: bool = False
) -> Any:
    """Yield the error with so many labels of each class, and with all labels; `new`: test items are not there yet."""
    rng, pool = np.random.default_rng(2000 + seed), np.flatnonzero(test)
    rows = [rng.permutation(np.flatnonzero(~test & (y == name))) for name in np.unique(y)]
    drawn = {f"{n} a class": np.concatenate([some[:n] for some in rows]) for n in PER_CLASS if n <= min(map(len, rows))}
    for name, labelled in (drawn | {"all": np.flatnonzero(~test)}).items():
        others = np.setdiff1d(np.flatnonzero(~test) if new else np.arange(len(y)), labelled)
        yield name, Answers(method, features, labelled, y).error(pool, y, others)


def run_task(name: str, data: Path) -> Results:
    """Measure a task with all seeds."""
    task = TASKS[name]
    contents, labels = task.read(data)
    rows = np.random.default_rng(0).permutation(len(labels))[:MOST_ITEMS]
    contents, y = [contents[row] for row in rows], np.array(labels)[rows]
    results = Results(name, machine=machine(), n_items=len(y), n_classes=len(np.unique(y)))
    features = describe(contents, task.modality)
    methods = [WORDS, GROUPS, *([POOLED] if features.pooled is not None else [])]
    for seed in range(SEEDS):
        test = np.zeros(len(y), bool)
        test[np.random.default_rng(seed).permutation(len(y))[: len(y) // 2]] = True
        for method in methods:
            for how in HOWS[method]:
                for n, error in label(method, how, features, y, test, seed):
                    results.errors.setdefault(key(method, how, n), []).append(error)
            for n, error in per_class(method, features, y, test, seed):
                results.errors.setdefault(key(method, "each class", n), []).append(error)
        if task.modality == "texts" and seed == 0:
            apart = describe(contents, task.modality, ~test)
            for method in methods:
                for n, error in per_class(method, apart, y, test, seed, new=True):
                    results.errors.setdefault(key(method, "each class, new", n), []).append(error)
    return results


def means(results: dict[str, Results], names: tuple[str, ...], method: str, how: str, n: int | str) -> float | None:
    """Mean over those of some tasks that are measured and have the cell; None without any."""
    cells = [
        results[name].mean(method, how, n)
        for name in names
        if name in results and key(method, how, n) in results[name].errors
    ]
    return statistics.mean(cells) if cells else None


def print_results(results: dict[str, Results]) -> None:
    """Print a table for each kind of task, then what was to be reached."""
    for title, names in (("topics", TOPICS), ("sentiment", SENTIMENT), ("photographs", PHOTOGRAPHS)):
        names = tuple(name for name in names if name in results)
        if not names:
            continue
        print(f"\n## {title}: {', '.join(TASKS[name].title for name in names)}\n")
        methods = [WORDS, GROUPS, *([POOLED] if names[0] in PHOTOGRAPHS else [])]
        for hows, columns in (
            ((RANDOM, UNCERTAIN, SUGGESTED), COUNTS),
            (("each class", "each class, new"), (*(f"{n} a class" for n in PER_CLASS), "all")),
        ):
            rows = []
            for method in methods:
                for how in hows:
                    cells = [means(results, names, method, how, n) for n in columns]
                    if any(cell is not None for cell in cells):
                        shown = ["" if cell is None else f"{cell:.1f}" for cell in cells]
                        rows.append({"method": f"{method}, {how}"} | dict(zip(map(str, columns), shown, strict=True)))
            print_table(rows, {"method": "errors in %, labels in all"} | {str(n): str(n) for n in columns})
            print()
    print_goals(results)


def print_goals(results: dict[str, Results]) -> None:
    """Print what was to be reached."""
    targets: list[tuple[str, float, str, float]] = []
    texts = tuple(name for name in (*TOPICS, *SENTIMENT) if name in results)
    if texts:
        ours, theirs = means(results, texts, GROUPS, SUGGESTED, 30), means(results, texts, WORDS, RANDOM, 100)
        targets.append(("all texts, 30 suggested labels, against 100 random ones by words", ours, "<=", theirs))
        topics = tuple(name for name in TOPICS if name in results)
        if topics:
            ours, theirs = means(results, topics, GROUPS, SUGGESTED, 30), means(results, topics, WORDS, RANDOM, 100)
            targets.append(("topics, the same", ours, "<=", theirs))
        for name in texts:
            ours, theirs = (results[name].mean(method, "each class", "all") for method in (GROUPS, WORDS))
            targets.append((f"{TASKS[name].title}, all labels, against words", ours, "<=", theirs + 0.3))
    for name in SENTIMENT:
        if name in results:
            for n in PER_CLASS[1:]:
                ours = results[name].mean(GROUPS, "each class", f"{n} a class")
                theirs = results[name].mean(WORDS, "each class", f"{n} a class")
                targets.append((f"{TASKS[name].title}, {n} a class, against words", ours, "<=", theirs + 0.5))
    photographs = tuple(name for name in PHOTOGRAPHS if name in results)
    if photographs:
        for n in COUNTS:
            ours, theirs = (
                means(results, photographs, GROUPS, SUGGESTED, n),
                means(results, photographs, POOLED, RANDOM, n),
            )
            targets.append((f"photographs, {n} labels, against pooled features", ours, "<=", theirs + 0.5))
    print_targets(targets)


def main() -> None:
    """Run the tasks that are not kept yet, and print all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"))
    parser.add_argument("--only", nargs="+", choices=(*TOPICS, *SENTIMENT, *PHOTOGRAPHS))
    parser.add_argument("--json", type=Path, default=Path(__file__).resolve().parent / "results" / "few_labels")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    names = options.only or (*TOPICS, *SENTIMENT, *PHOTOGRAPHS)
    if options.list:
        print("\n".join(names))
        return
    results = {}
    for name in names:
        path = options.json / f"{name}.json"
        if path.exists():
            results[name] = Results(**json.loads(path.read_text(encoding="utf-8")))
        elif options.data is not None:
            print(name, file=sys.stderr, flush=True)
            results[name] = run_task(name, Path(options.data))
            options.json.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_text(json.dumps(results[name].__dict__, indent=1), encoding="utf-8")
            part.replace(path)
    if not results:
        parser.error("Nothing is measured yet: give --data, the folder of data sets.")
    print_results(results)


if __name__ == "__main__":
    main()
