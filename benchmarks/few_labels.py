"""Few labels: words beside groups made without labels, and items suggested to label, against what people would write.

    python benchmarks/few_labels.py --data DIR                        # or BAGWISE_DATA=DIR; about half an hour
    python benchmarks/few_labels.py --data DIR --only corel1k rt2k    # some tasks; `--list` names them
    python benchmarks/few_labels.py --data DIR --json FOLDER          # a file per task; what is there is kept

The labels of a data set are the person: a method asks for the label of an item, and gets it.

- At most 2000 items of a task, drawn once; a random half of them is for test, once per seed, and asks for nothing. Its
  items are in the collection, as are all others, without labels; "new" means that they are not, and that words, weights
  and groups were made without them.
- Features are those of ``fit_model(file)`` without labels: words with their weights (TF-IDF of texts, roots of relative
  frequencies for words of a network), and 50 groups by clusters, each block of length 1, groups times ½, 1 or 0.
  Classifiers are linear SVMs with C = 1, for pooled features of the network a logistic regression, standardised.
- Suggested items are those of `ItemSuggester`: centres of 15 clusters, then small margins, five at a time. "uncertain"
  are 15 random items, then the five smallest margins. "random" draws all; with fewer than two classes among the labels
  the answer is the one class there is.
- "labels a class" draws so many of each class at random, without suggestions: what full labels come to.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from bagwise import fit_model
from bagwise.app.index.index_features import weighted_words
from bagwise.app.index.suggesting import ItemSuggester
from harness import machine, print_table, print_targets
from unlabelled import PAIRS, TASKS, write_items

MOST_ITEMS, N_GROUPS, HANDFUL, FIRST, SEEDS = 2000, 50, 5, 15, 5
COUNTS, PER_CLASS = (15, 20, 30, 50, 80, 100, 120), (3, 10, 30, 100)
RANDOM, UNCERTAIN, SUGGESTED = "random items", "uncertain items", "suggested items"
WORDS, POOLED = "words", "pooled network features"
WEIGHTS = {WORDS: 0.0, "words and ½ groups": 0.5, "words and groups": 1.0}
HALF = "words and ½ groups"
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
    groups: Any
    pooled: Any

    def of(self, method: str) -> Any:
        """Return the features of a method."""
        if method == POOLED:
            return self.pooled
        weight = WEIGHTS[method]
        return self.words if not weight else sp.hstack([self.words, weight * self.groups], format="csr")


def unit(rows: Any) -> Any:
    """Bring rows to length 1."""
    from sklearn.preprocessing import normalize

    return normalize(sp.csr_array(rows))


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
    return Features(unit(weighted_words(model, histograms)), unit(groups), pooled)


def images(contents: Any) -> Any:
    """Decode images in colour."""
    import cv2

    for _, content in contents:
        yield cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)[:, :, ::-1]


class Answers:
    """The scores of a classifier that learned from some labels; one class alone is always the answer."""

    def __init__(self, method: str, X: Any, labelled: NDArray[np.intp], y: NDArray[Any]) -> None:
        self.one = y[labelled[0]] if len(set(y[labelled].tolist())) == 1 else None
        if self.one is None:
            if method == POOLED:
                self.model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            else:
                self.model = LinearSVC(C=1.0, dual=True, random_state=0, max_iter=3000)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                self.model.fit(X[labelled], y[labelled])

    def error(self, X: Any, rows: NDArray[np.intp], y: NDArray[Any]) -> float:
        """Return the error of some items, in %."""
        answers = self.one if self.one is not None else self.model.predict(X[rows])
        return float(100 * np.mean(answers != y[rows]))

    def margins(self, X: Any) -> NDArray[np.float64] | None:
        """Return how far the two highest scores of each item are from each other."""
        if self.one is not None:
            return None
        scores = self.model.decision_function(X)
        if scores.ndim == 1:
            return np.abs(scores)
        two = np.partition(scores, -2, axis=1)[:, -2:]
        return two[:, 1] - two[:, 0]


def label(method: str, how: str, features: Features, y: NDArray[Any], test: NDArray[np.bool_], seed: int) -> Any:
    """Ask for labels and yield their number and the error of the test items, at each of `COUNTS`."""
    X, rng = features.of(method), np.random.default_rng(1000 + seed)
    order, pool = rng.permutation(np.flatnonzero(~test)), np.flatnonzero(test)
    suggester = None
    if how == SUGGESTED:
        rows = features.groups.toarray() if features.pooled is None or method != POOLED else unit(X).toarray()
        suggester = ItemSuggester.of(rows, FIRST, random_state=seed)
    labelled: list[int] = [] if suggester is not None else order[:FIRST].tolist()
    counts = [n for n in COUNTS if n <= len(order)]
    while counts:
        if len(labelled) in counts:
            answers = Answers(method, X, np.array(labelled), y)
            yield len(labelled), answers.error(X, pool, y)
            counts.remove(len(labelled))
        elif labelled:
            answers = Answers(method, X, np.array(labelled), y)
        margins = answers.margins(X) if labelled and how != RANDOM else None
        known = test.copy()
        known[labelled] = True
        if suggester is not None:
            labelled += suggester.suggest(HANDFUL, known, margins).tolist()
        else:
            left = np.array([row for row in order if not known[row]])
            ranked = left if margins is None else left[np.argsort(margins[left], kind="stable")]
            labelled += ranked[:HANDFUL].tolist()


def per_class(method: str, features: Features, y: NDArray[Any], test: NDArray[np.bool_], seed: int) -> Any:
    """Yield the error with so many labels of each class, and with all labels."""
    X, rng, pool = features.of(method), np.random.default_rng(2000 + seed), np.flatnonzero(test)
    rows = [rng.permutation(np.flatnonzero(~test & (y == name))) for name in np.unique(y)]
    for n in PER_CLASS:
        if min(map(len, rows)) >= n:
            labelled = np.concatenate([some[:n] for some in rows])
            yield f"{n} a class", Answers(method, X, labelled, y).error(X, pool, y)
    yield "all", Answers(method, X, np.flatnonzero(~test), y).error(X, pool, y)


def run_task(name: str, data: Path) -> Results:
    """Measure a task with all seeds."""
    task = TASKS[name]
    contents, labels = task.read(data)
    rows = np.random.default_rng(0).permutation(len(labels))[:MOST_ITEMS]
    contents, y = [contents[row] for row in rows], np.array(labels)[rows]
    results = Results(name, machine=machine(), n_items=len(y), n_classes=len(np.unique(y)))
    features = describe(contents, task.modality)
    methods = [*WEIGHTS, *([POOLED] if features.pooled is not None else [])]
    for seed in range(SEEDS):
        test = np.zeros(len(y), bool)
        test[np.random.default_rng(seed).permutation(len(y))[: len(y) // 2]] = True
        cells = {(method, how): features for method in methods for how in (RANDOM, UNCERTAIN, SUGGESTED)}
        for (method, how), own in cells.items():
            for n, error in label(method, how, own, y, test, seed):
                results.errors.setdefault(key(method, how, n), []).append(error)
        for method in methods:
            for n, error in per_class(method, features, y, test, seed):
                results.errors.setdefault(key(method, "each class", n), []).append(error)
        if task.modality == "texts":
            apart = describe(contents, task.modality, ~test)
            for method in WEIGHTS:
                for n, error in per_class(method, apart, y, test, seed):
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
        methods = [*WEIGHTS, *([POOLED] if names[0] in PHOTOGRAPHS else [])]
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
        ours, theirs = means(results, texts, HALF, SUGGESTED, 30), means(results, texts, WORDS, RANDOM, 100)
        targets.append(("texts, 30 suggested labels, against 100 random ones by words", ours, "<=", theirs))
    for name in SENTIMENT:
        if name in results:
            for n in PER_CLASS[1:]:
                ours = results[name].mean(HALF, "each class", f"{n} a class")
                theirs = results[name].mean(WORDS, "each class", f"{n} a class")
                targets.append((f"{TASKS[name].title}, {n} a class, against words", ours, "<=", theirs + 0.5))
    photographs = tuple(name for name in PHOTOGRAPHS if name in results)
    if photographs:
        for n in COUNTS:
            ours, theirs = (
                means(results, photographs, HALF, SUGGESTED, n),
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
