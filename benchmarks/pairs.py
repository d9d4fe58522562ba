r"""Words, or words and pairs of words: errors of labelled texts, and what pairs cost.

    python benchmarks/pairs.py --data DIR                     # or BAGWISE_DATA=DIR; about 12 minutes on one core
    python benchmarks/pairs.py --data DIR --only rt2k amazon7 # some data sets; `--list` names them
    python benchmarks/pairs.py --json FOLDER                  # a file per data set; what is there is not run again
    python benchmarks/pairs.py --table                        # print what is there, run nothing
    python benchmarks/pairs.py --data DIR --merging           # time of merging 50,000 words of 14 classes

- "words" are the 30,000 most frequent words of the training texts, "pairs" the 50,000 most frequent words and pairs of
  words beside each other, pairs in at least two texts: as `bagwise fit` takes them. Sublinear TF-IDF, then 20 groups
  (or as many as classes), or all of them.
- "TF-IDF" is what people write: sublinear TF-IDF of all words, or of all words and pairs, and a linear SVM.
- Tasks and splits are those of ``main_job.py``. "training" errors, which choose the default, are those on a third of
  the training texts, which took no part in anything; test texts are used once.
- Seconds are CPU time of the process: counting all texts once, and learning groups and classifiers of a split.
- Differences are in points, with intervals of 95 % (Student) over tasks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from harness import machine, print_table
from main_job import Difference
from main_job_data import Task, data_sets, training_part

KEPT = Path(__file__).resolve().parent / "results" / "pairs"
SETS = ("newsgroups_drawn", "six_newsgroups_drawn", "reuters", "amazon7", "amazon7_domains", "amazon_blitzer4", "rt2k")
SPLITS, INNER = 5, 2 / 3
N_GROUPS = 20
TIMED_SIZES = (14, 20, 42, 100, 200, 1000)
MOST = {"words": 30_000, "pairs": 50_000}
METHODS = ("words", "pairs", "words, all", "pairs, all", "TF-IDF words", "TF-IDF pairs")
TOKEN = r"(?u)\b\w\w+\b"
Cell = dict[str, float]


class Counts:
    """Counts of all words and pairs of the texts of a task, of which a split takes those of its training texts."""

    def __init__(self, texts: list[str]) -> None:
        from sklearn.feature_extraction.text import CountVectorizer

        self.seconds = {}
        for name, longest in (("words", 1), ("pairs", 2)):
            counter, started = CountVectorizer(token_pattern=TOKEN, ngram_range=(1, longest)), time.process_time()
            self.matrix = counter.fit_transform(texts).tocsc()
            self.seconds[name] = time.process_time() - started
        self.is_pair = np.array([" " in word for word in counter.get_feature_names_out()])

    def take(self, train: NDArray[np.intp], test: NDArray[np.intp], kind: str, most: int | None) -> tuple[Any, Any]:
        """Counts of training and test texts, of the most frequent words, or words and pairs, of the former."""
        rows = self.matrix[train]
        n_texts, occurrences = np.diff(rows.indptr), np.asarray(rows.sum(axis=0)).ravel()
        usable = np.where(self.is_pair, n_texts >= 2 if kind == "pairs" else False, n_texts >= 1)
        columns = np.flatnonzero(usable)
        if most is not None:
            columns = np.sort(columns[np.argsort(-occurrences[columns], kind="stable")[:most]])
        return rows[:, columns].tocsr(), self.matrix[test][:, columns].tocsr()


def learn(counts: Counts, codes: NDArray[np.int64], train: NDArray[np.intp], test: NDArray[np.intp]) -> Cell:
    """Errors in % of all methods on other texts, and seconds of learning."""
    from sklearn.feature_extraction.text import TfidfTransformer
    from sklearn.svm import LinearSVC

    from bagwise.app.modalities.vectorizers import group_features
    from bagwise.app.options import FitOptions
    from bagwise.app.training.learning import learn_rows
    from bagwise.app.training.method import choose_method, choose_weighting, fitting_svms
    from bagwise.app.training.rows import Rows

    cell: Cell = {}
    n_classes = int(codes.max()) + 1
    size, options = max(N_GROUPS, n_classes), FitOptions(n_jobs=1)
    method = choose_method(options, "texts", n_classes)
    for kind, most in MOST.items():
        seen, held = counts.take(train, test, kind, most)
        started = time.process_time()
        weighting = choose_weighting(method, seen.astype(np.float64))
        weighted = weighting.apply(seen.astype(np.float64))
        rows = Rows.here(weighted, weighted, weighted, codes[train], [""] * len(train))
        with fitting_svms():
            learned = learn_rows(rows, [size, seen.shape[1]], method, options)
        cell[f"{kind} seconds"], cell[f"{kind} columns"] = time.process_time() - started, seen.shape[1]
        words = weighting.apply(held.astype(np.float64))
        for name, n in ((kind, size), (f"{kind}, all", seen.shape[1])):
            features = group_features(words, learned.hierarchy.cut(n), n, 1, method.normalize)
            answers = learned.heads[n].scores(features).argmax(axis=1)
            cell[name] = float(100 * np.mean(answers != codes[test]))
        seen, held = counts.take(train, test, kind, None)
        started, tfidf = time.process_time(), TfidfTransformer(sublinear_tf=True)
        svm = LinearSVC(random_state=0).fit(tfidf.fit_transform(seen), codes[train])
        cell[f"TF-IDF {kind} seconds"] = time.process_time() - started
        cell[f"TF-IDF {kind}"] = float(100 * np.mean(svm.predict(tfidf.transform(held)) != codes[test]))
    return cell


def run_data_set(name: str, tasks: list[Task], options: argparse.Namespace) -> None:
    """Measure the cells that are not kept yet."""
    from sklearn.model_selection import train_test_split

    path = options.json / f"{name}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cells": {}, "machines": []}
    for task in tasks:
        n = task.n_splits(options.splits, False)
        wanted = [("test", split) for split in range(n)] + [("training", split) for split in range(n)]
        wanted = [one for one in wanted if f"{task.name}/{one[0]}/{one[1]}" not in kept["cells"]]
        if not wanted:
            continue
        items = task.read(options.data)
        codes, counts = np.unique(items.labels, return_inverse=True)[1].astype(np.int64), Counts(items.contents)
        for stage, split in wanted:
            mask = training_part(items, task, split)
            train, test = np.flatnonzero(mask), np.flatnonzero(~mask)
            if stage == "training":
                train, test = train_test_split(train, train_size=INNER, stratify=codes[train], random_state=0)
            cell = learn(counts, codes, np.sort(train), np.sort(test))
            cell |= {f"{kind} counting": seconds for kind, seconds in counts.seconds.items()}
            kept["cells"][f"{task.name}/{stage}/{split}"] = cell
        if (here := machine()) not in kept["machines"]:
            kept["machines"].append(here)
        options.json.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept), encoding="utf-8")
        print(f"{name}: {task.name}, {time.process_time():.0f} s of CPU so far", file=sys.stderr, flush=True)


def means(cells: dict[str, Cell], stage: str) -> dict[str, Cell]:
    """Means over the splits of each task."""
    tasks: dict[str, list[Cell]] = {}
    for key, cell in cells.items():
        if key.split("/")[1] == stage:
            tasks.setdefault(key.split("/")[0], []).append(cell)
    return {task: {key: statistics.mean(cell[key] for cell in some) for key in some[0]} for task, some in tasks.items()}


def print_results(folder: Path, names: list[str]) -> None:
    """Print the tables from what is kept."""
    kept = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))["cells"] for name in names}
    for stage in ("training", "test"):
        lines: list[dict[str, Any]] = []
        for name, cells in kept.items():
            lines += [{"task": f"{name}: {task}"} | row for task, row in means(cells, stage).items()]
        rows = [{key: f"{row[key]:.1f}" for key in METHODS} | {"task": row["task"]} for row in lines]
        mean = {key: f"{statistics.mean(row[key] for row in lines):.2f}" for key in METHODS}
        gaps = [("words", "pairs"), ("words, all", "pairs, all"), ("TF-IDF words", "TF-IDF pairs")]
        gap = {second: str(Difference.of([row[second] - row[first] for row in lines])) for first, second in gaps}
        rows += [mean | {"task": f"mean of {len(lines)}"}, gap | {"task": "pairs less words"}]
        print(f"## Errors in %, {stage} texts\n")
        print_table(rows, {"task": "task"} | {key: key for key in METHODS})
    print("## Seconds of CPU, and words (and pairs)\n")
    shown = [f"{kind} {what}" for what in ("columns", "counting", "seconds") for kind in MOST]
    shown += [f"TF-IDF {kind} seconds" for kind in MOST]
    rows = [
        {"task": f"{name}: {task}"} | {key: f"{row[key]:.{0 if 'columns' in key else 1}f}" for key in shown}
        for name, cells in kept.items() for task, row in means(cells, "test").items()
    ]  # fmt: skip
    print_table(rows, {"task": "task"} | {key: key.replace(" seconds", ", learning") for key in shown})


def time_merging(data: Path) -> None:
    """Merge words and pairs of reviews of seven domains, good and bad ones: rarer words early, or none."""
    from bagwise.app.modalities.vectorizers import group_features
    from bagwise.app.options import FitOptions
    from bagwise.app.training.method import choose_method, choose_weighting, fitting_svms
    from bagwise.app.training.rows import Rows
    from bagwise.merging import refining
    from bagwise.merging.teacher import mean_weights
    from main_job_data import _products

    texts, labels, domains, is_train = _products(data)
    codes = np.unique([" ".join(one) for one in zip(domains, labels, strict=True)], return_inverse=True)[1]
    train, test = np.flatnonzero(is_train), np.flatnonzero(~np.array(is_train))
    options, n_classes = FitOptions(n_jobs=1), int(codes.max()) + 1
    counts = [one.astype(np.float64) for one in Counts(texts).take(train, test, "pairs", MOST["pairs"])]
    weighting = choose_weighting(choose_method(options, "texts", n_classes), counts[0])
    seen, held = map(weighting.apply, counts)
    rows = Rows.here(seen, seen, seen, codes[train], [""] * len(train))
    with fitting_svms():
        teacher = rows.teacher(False, options, lambda done, total: None)
    lines = []
    for kept in (1000, refining._KEPT, seen.shape[1]):
        refining._KEPT = kept
        for _ in range(2):  # the first one may compile
            started = time.process_time()
            hierarchy = refining.merge_refined(teacher.mass, teacher.coef.T, "classifier", 3 * n_classes)
            seconds = time.process_time() - started
        line = {"kept": f"{kept:,}", "seconds": f"{seconds:.1f}"}
        for size in TIMED_SIZES:
            cut = hierarchy.cut(size)
            coef, intercept = rows.moments(teacher, cut, size).weights(mean_weights(teacher, cut, size)[0])
            answers = (group_features(held, cut, size, 1, ()) @ coef.T + intercept).argmax(axis=1)
            line[str(size)] = f"{100 * np.mean(answers != codes[test]):.1f}"
        lines.append(line)
    print(f"{len(train):,} texts, {n_classes} classes, {seen.shape[1]:,} words and pairs; errors in %\n")
    heads = {"kept": "words that do not join others early", "seconds": "merging, s of CPU"}
    print_table(lines, heads | {str(size): f"{size} groups" for size in TIMED_SIZES})


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = os.environ.get("BAGWISE_DATA")
    parser.add_argument("--data", type=Path, default=None if given is None else Path(given))
    parser.add_argument("--only", nargs="+", choices=SETS, metavar="NAME", help="some data sets")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--json", type=Path, default=KEPT, help="folder of results; what is there is not run again")
    parser.add_argument("--table", action="store_true", help="print what is there; run nothing")
    parser.add_argument("--merging", action="store_true", help="time merging alone")
    parser.add_argument("--list", action="store_true", help="name the data sets")
    options = parser.parse_args()
    if options.list:
        print("\n".join(SETS))
        return
    if options.merging:
        time_merging(options.data)
        return
    names = options.only or SETS
    if not options.table:
        if options.data is None:
            parser.error("say where the data are: --data DIR")
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in names:
            run_data_set(name, data_sets()[name], options)
    print_results(options.json, [name for name in names if (options.json / f"{name}.json").exists()])


if __name__ == "__main__":
    main()
