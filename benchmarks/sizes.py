r"""Rules that choose the number of groups: their sizes, and the errors at these on items that took no part.

    python benchmarks/sizes.py --data DIR                       # or BAGWISE_DATA=DIR; about 15 minutes on one core
    python benchmarks/sizes.py --data DIR --only corel1k movies # some collections; `--list` names them
    python benchmarks/sizes.py --json FOLDER                    # a file per collection; what is there is not run again
    python benchmarks/sizes.py --table                          # print what is there, run nothing

Each collection is drawn down to the items in its title, as many of each class as all have of it, and split at random
into training items and test items, three times. Words are those of all of them (their labels take no part in words);
weights, groups, classifiers and errors of cross-validation are those of `bagwise fit` on the training items alone.

- "best" is the size of the lowest error; "1se" the smallest size within one standard error (over folds) of it; "paired
  F" the smallest size whose difference to the best is within F standard errors of that difference over held-out items.
  "folds F" takes the standard error of the difference over folds. The least error of all sizes on the test items, which
  no rule can know, stands beside them.
- The factor is chosen on training items: a third of them is set aside, all is done with the others, and errors are
  those on that third ("training" in the first table). Test items are used once, for the second table.
- Points are percentage points above the error of the best size on the same items; the interval is of 95 % (Student)
  over collections. Sizes are geometric means.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import machine, print_table
from main_job import Difference

KEPT = Path(__file__).resolve().parent / "results" / "sizes"
SPLITS, INNER = 3, 2 / 3
FACTORS = (0.5, 1.0, 1.5, 2.0)
SIFT = "sift+color"
LEAST = 50  # texts of a topic
Cell = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A collection: its title, how its items are read, how many of them train and test, and options of the fit."""

    title: str
    read: Callable[[Path], Any]
    n_train: int
    n_test: int
    options: tuple[tuple[str, Any], ...] = ()


def _of_main_job(data: Path, name: str, place: int) -> Any:
    from main_job_data import data_sets

    return data_sets()[name][place].read(data)


def _topics(data: Path) -> Any:
    from main_job_data import Items
    from unlabelled import _reuters

    texts, topics = _reuters(data)
    names, counts = np.unique(topics, return_counts=True)
    items = Items(texts, np.array(topics))
    return items.take(np.flatnonzero(np.isin(items.labels, names[counts >= LEAST])))  # two have a few texts


def _corpus(data: Path) -> Any:
    from bagwise.datasets import make_corpus
    from main_job_data import Items

    made = make_corpus(1400, n_sentences=(2, 5), noise=0.6)
    return Items(made.data, np.array(made.target_names)[made.target])


def _photos(data: Path) -> Any:
    import cv2

    from bagwise.datasets import make_photos
    from main_job_data import Items

    made = make_photos(900, mixed=0.9)
    pictures = [cv2.imencode(".png", image[..., ::-1])[1].tobytes() for image in made.images]
    named = [(f"{number:04}.png", picture) for number, picture in enumerate(pictures)]
    return Items(named, np.array(made.target_names)[made.target])


def _texts(name: str, place: int = 0) -> Callable[[Path], Any]:
    return partial(_of_main_job, name=name, place=place)


_corel, _scenes, _objects = _texts("corel1k"), _texts("scene15"), _texts("caltech101_4")
_BY_HAND = (("descriptor", SIFT),)
TASKS = {
    "movies_few": Task("movie reviews", _texts("rt2k"), 300, 600),
    "movies": Task("movie reviews", _texts("rt2k"), 1400, 600),
    "hardware": Task("two newsgroups, hardware", _texts("newsgroups", 0), 300, 600),
    "politics": Task("two newsgroups, politics", _texts("newsgroups", 2), 300, 600),
    "six_newsgroups": Task("six newsgroups", _texts("six_newsgroups"), 900, 900),
    "reuters": Task("Reuters, large topics", _topics, 500, 900),
    "books": Task("reviews of books", _texts("amazon7", 0), 400, 600),
    "kitchen": Task("reviews of kitchenware", _texts("amazon_blitzer4", 3), 1400, 600),
    "domains": Task("reviews of seven domains", _texts("amazon7_domains"), 700, 1400),
    "corel1k": Task("Corel-1k, network words", _corel, 400, 600),
    "corel1k_sift": Task("Corel-1k, SIFT and colours", _corel, 400, 600, _BY_HAND),
    "scene15": Task("Scene-15, network words", _scenes, 450, 900),
    "caltech101_4_sift": Task("Caltech-101, SIFT and colours", _objects, 400, 600, _BY_HAND),
    "made_texts": Task("texts by make_corpus", _corpus, 400, 1000),
    "made_photos": Task("photographs by make_photos, SIFT and colours", _photos, 300, 600, _BY_HAND),
}


def parts(labels: NDArray[Any], first: int, second: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Draw two parts of so many items with the classes of all, as near as may be."""
    from sklearn.model_selection import train_test_split

    rows = np.arange(len(labels))
    if first + second < len(rows):
        rows, _ = train_test_split(rows, train_size=first + second, stratify=labels, random_state=seed)
    one, other = train_test_split(rows, train_size=first, stratify=labels[rows], random_state=seed)
    return np.sort(one), np.sort(other)


def learn(prepared: Any, train: NDArray[np.intp], test: NDArray[np.intp]) -> Cell:
    """Do what a fit does with some items; errors of cross-validation at each size, and those on other items."""
    from bagwise.app.modalities.vectorizers import group_features, no_progress
    from bagwise.app.training.learning import learn_groups
    from bagwise.app.training.method import adapt_to_table, choose_method, choose_weighting, sizes_of
    from bagwise.app.training.rows import Rows
    from bagwise.app.training.validating import validate
    from bagwise.distributed.executors import LocalExecutor

    all_data, options, codes = prepared.data, prepared.options, prepared.codes[train]
    data = replace(
        all_data, collection=all_data.collection[train], histograms=all_data.histograms[train], samples={}, pooled=None
    )
    n_classes, modality = len(prepared.classes), data.collection.modality
    method = choose_method(options, modality, n_classes, data.vocabularies)
    method = adapt_to_table(method, data.whole(), modality, options)
    weighting = choose_weighting(method, data.whole())
    sizes = sizes_of(data.n_words, options, method, n_classes)
    rows = Rows.of(data, codes, method, weighting)
    learned = learn_groups(rows, sizes, method, options, no_progress, None)
    found = validate(LocalExecutor(no_progress), rows, sizes, method, options)
    held = weighting.apply(all_data.histograms[test], data.n_cells)
    tested = []
    for size in sizes:
        features = group_features(held, learned.hierarchy.cut(size), size, data.n_cells, method.normalize)
        answers = learned.heads[size].scores(features).argmax(axis=1)
        tested.append(float(np.mean(answers != prepared.codes[test])))
    wrong = (found.predicted != codes).astype(np.float64)
    folds = np.array([wrong[:, fold.test].mean(axis=1) for fold in found.folds])
    best = found.path.errors.index(min(found.path.errors))
    return {
        "sizes": list(sizes),
        "errors": list(found.path.errors),
        "standard_errors": list(found.path.standard_errors),
        "paired": _deviations(wrong.T - wrong[best][:, np.newaxis]),
        "paired_folds": _deviations(folds - folds[:, [best]]),
        "tested": tested,
    }


def _deviations(differences: NDArray[np.float64]) -> list[float]:
    """Standard errors of the means of columns."""
    return [float(one) for one in differences.std(axis=0, ddof=1) / np.sqrt(len(differences))]


def run_task(name: str, options: argparse.Namespace) -> None:
    """Measure the cells that are not kept yet."""
    path = options.json / f"{name}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cells": {}, "machines": []}
    wanted = [(split, stage) for split in range(SPLITS) for stage in ("training", "test")]
    wanted = [(split, stage) for split, stage in wanted if f"{split}/{stage}" not in kept["cells"]]
    if not wanted:
        return
    task, started = TASKS[name], time.process_time()
    prepared = _prepared(name, options.data)
    labels = np.array(prepared.data.collection.labels)
    for split, stage in wanted:
        train, test = parts(labels, task.n_train, task.n_test, split)
        if stage == "training":
            inner, outer = parts(labels[train], round(INNER * len(train)), len(train) - round(INNER * len(train)), 0)
            train, test = train[inner], train[outer]
        kept["cells"][f"{split}/{stage}"] = learn(prepared, train, test)
    if (here := machine()) not in kept["machines"]:
        kept["machines"].append(here)
    kept["seconds"] = time.process_time() - started
    options.json.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(kept), encoding="utf-8")
    print(f"{name}: {kept['seconds']:.0f} s of CPU", file=sys.stderr, flush=True)


@cache
def _prepared(name: str, data: Path) -> Any:
    """Read and count the items of a collection."""
    from bagwise.app.modalities.vectorizers import no_progress
    from bagwise.app.options import FitOptions
    from bagwise.app.training.preparing import prepare
    from bagwise.distributed.executors import LocalExecutor
    from main_job_data import write_split

    task = TASKS[name]
    items = task.read(data)
    rows = np.concatenate(parts(items.labels, task.n_train, task.n_test, 0))
    items = items.take(np.sort(rows))
    modality = "images" if isinstance(items.contents[0], tuple) else "texts"
    with tempfile.TemporaryDirectory() as folder:
        path = write_split(items, np.ones(len(items.labels), np.bool_), modality, Path(folder))
        return prepare(path, FitOptions(**dict(task.options), n_jobs=1), LocalExecutor(no_progress))


def choice(cell: Cell, rule: str) -> int:
    """Place of the size that a rule chooses."""
    errors = np.array(cell["errors"])
    best, (name, _, factor) = int(errors.argmin()), rule.partition(" ")
    if name == "least":
        return int(np.argmin(cell["tested"]))
    margins = {
        "best": 0.0,
        "1se": cell["standard_errors"][best],
        "paired": float(factor or 0) * np.array(cell["paired"]),
        "folds": float(factor or 0) * np.array(cell["paired_folds"]),
    }
    return int(np.argmax(errors <= errors[best] + margins[name] + 1e-12))


def cells_of(kept: dict[str, Any], stage: str) -> list[Cell]:
    """Cells of a stage, "training" or "test"."""
    return [cell for key, cell in kept["cells"].items() if key.endswith(stage)]


def figures(cells: list[Cell], rule: str) -> tuple[float, float]:
    """Geometric mean of the sizes that a rule chooses, and the mean error there on other items, in %."""
    places = [choice(cell, rule) for cell in cells]
    sizes = [cell["sizes"][place] for cell, place in zip(cells, places, strict=True)]
    errors = [100 * cell["tested"][place] for cell, place in zip(cells, places, strict=True)]
    return float(np.exp(np.mean(np.log(sizes)))), statistics.mean(errors)


def print_results(folder: Path, names: list[str]) -> None:
    """Print both tables from what is kept."""
    kept = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}
    rules = ["1se", *(f"{kind} {factor:g}" for kind in ("paired", "folds") for factor in FACTORS), "best"]
    print(f"## All rules: means over {len(names)} collections\n")
    lines = []
    for rule in rules:
        line: dict[str, Any] = {"rule": rule}
        for stage in ("training", "test"):
            of = {
                name: [cell for key, cell in one["cells"].items() if key.endswith(stage)] for name, one in kept.items()
            }
            found = {name: figures(cells, rule) for name, cells in of.items()}
            gaps = [error - figures(of[name], "best")[1] for name, (_, error) in found.items()]
            line[f"{stage} size"] = round(float(np.exp(np.mean([np.log(size) for size, _ in found.values()]))))
            line[f"{stage} error"] = f"{statistics.mean(error for _, error in found.values()):.2f}"
            line[f"{stage} gap"] = str(Difference.of(gaps)) if rule != "best" else None
        lines.append(line)
    print_table(lines, {"rule": "rule"} | {
        f"{stage} {what}": f"{where}: {said}" for stage, where in (("training", "third of training"), ("test", "test"))
        for what, said in (("size", "groups"), ("error", "error, %"), ("gap", "above best"))
    })  # fmt: skip
    shown = ("1se", "paired 0.5", "paired 1", "paired 2", "best", "least")
    print("## Test items: groups and error in %, means of three splits\n")
    lines = []
    for name, one in kept.items():
        cells = cells_of(one, "test")
        found = {rule: figures(cells, rule) for rule in shown}
        lines.append({"data": f"{TASKS[name].title}, {TASKS[name].n_train}"} | {
            rule: f"{size:.0f}: {error:.1f}" for rule, (size, error) in found.items()
        })  # fmt: skip
    print_table(lines, {"data": "collection, training items"} | {rule: rule for rule in shown})
    seconds = sum(one["seconds"] for one in kept.values())
    print(f"{seconds:.0f} s of CPU in all.")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = os.environ.get("BAGWISE_DATA")
    parser.add_argument("--data", type=Path, default=None if given is None else Path(given))
    parser.add_argument("--only", nargs="+", choices=sorted(TASKS), metavar="NAME", help="some collections")
    parser.add_argument("--json", type=Path, default=KEPT, help="folder of results; what is there is not run again")
    parser.add_argument("--table", action="store_true", help="print what is there; run nothing")
    parser.add_argument("--list", action="store_true", help="name the collections")
    options = parser.parse_args()
    if options.list:
        for name, task in TASKS.items():
            print(f"{name:18} {task.n_train:5} training items  {task.title}")
        return
    if not options.table:
        if options.data is None:
            parser.error("say where the data are: --data DIR")
        for name in options.only or TASKS:
            run_task(name, options)
    print_results(options.json, [name for name in options.only or TASKS if (options.json / f"{name}.json").exists()])


if __name__ == "__main__":
    main()
