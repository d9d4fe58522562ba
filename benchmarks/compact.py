"""Errors of `CompactClassifier` on raw counts, weighted and not: the evidence behind its default.

    python benchmarks/compact.py --data DIR      # or BAGWISE_DATA=DIR

The most frequent 3000 words of the training parts of text tasks, and digits as counts of ink, by cross-validation on
these parts; at 20 groups. Beside it what people would use instead, and what `compress` keeps of the answers of a
TF-IDF pipeline, with its training texts and without.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from bagwise import CompactClassifier, WordMerger, compress
from bagwise.codebooks import BagNormalizer
from harness import machine, print_table
from main_job_data import data_sets, few, training_part

N_WORDS, N_GROUPS = 3000, 20
TASKS = ("six_newsgroups", "newsgroups", "reuters_modapte", "amazon7_domains", "amazon7", "rt2k")
TEACHERS = {"svm": lambda: LinearSVC(random_state=0), "logistic": lambda: LogisticRegression(max_iter=300)}


def counts_of(data: Path, names: list[str], quick: bool) -> Iterator[tuple[str, Any, Any]]:
    """Counts of words and classes of the training part of each task."""
    for name in names:
        for task in data_sets()[name]:
            if not (data / str(task.folder)).exists():
                sys.exit(f"{data / str(task.folder)} does not exist.")
            items = task.read(data)
            items = items.take(np.flatnonzero(training_part(items, task, 0)))
            items = few(items) if quick else items
            counts = CountVectorizer(max_features=N_WORDS, dtype=np.float64).fit_transform(items.contents)
            yield f"{name}, {task.name}", sp.csr_array(counts), items.labels
    digits = load_digits()
    yield "digits", sp.csr_array(digits.data), digits.target


def errors(X: Any, y: Any, X_test: Any, y_test: Any, teacher: Any) -> dict[str, float]:
    """Errors of each method in %, and changed answers in % after `compress`."""
    tfidf, hellinger = TfidfTransformer(sublinear_tf=True), BagNormalizer(("l1", "power"))
    methods = {
        "teacher": teacher(),
        "merger": make_pipeline(WordMerger(N_GROUPS), teacher()),
        "none": CompactClassifier(teacher(), n_groups=N_GROUPS, weighting=None),
        "hellinger": make_pipeline(hellinger, CompactClassifier(teacher(), n_groups=N_GROUPS)),
        "auto": CompactClassifier(teacher(), n_groups=N_GROUPS),
    }
    found = {name: 100 * (1 - one.fit(X, y).score(X_test, y_test)) for name, one in methods.items()}
    whole = make_pipeline(tfidf, teacher()).fit(X, y)
    found["tfidf"] = 100 * (1 - whole.score(X_test, y_test))
    compressed = {
        "with": compress(whole, X, n_groups=N_GROUPS),
        "without": compress(whole, n_groups=N_GROUPS),
        "alone": make_pipeline(tfidf, compress(whole[-1], n_groups=N_GROUPS)),  # which knows no idf
    }
    for name, compact in compressed.items():
        found[name] = 100 * float(np.mean(compact.predict(X_test) != whole.predict(X_test)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder of data sets")
    parser.add_argument("--only", nargs="*", choices=TASKS, default=TASKS)
    parser.add_argument("--teacher", choices=TEACHERS, default="svm")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="few texts, to see that it runs")
    options = parser.parse_args()
    if options.data is None:
        sys.exit("Say where the data sets are: --data DIR or BAGWISE_DATA=DIR.")
    warnings.simplefilter("ignore")  # compress without X, and solvers that stop early
    rows = []
    for name, X, y in counts_of(Path(options.data), options.only, options.quick):
        folds = StratifiedKFold(options.folds, shuffle=True, random_state=0).split(X, y)
        found = [errors(X[train], y[train], X[test], y[test], TEACHERS[options.teacher]) for train, test in folds]
        rows.append({"data": name} | {key: float(np.mean([one[key] for one in found])) for key in found[0]})
        print(name, file=sys.stderr, flush=True)
    keys = [key for key in rows[0] if key != "data"]
    rows.append({"data": "mean"} | {key: float(np.mean([row[key] for row in rows])) for key in keys})
    shown = [{"data": row["data"]} | {key: f"{row[key]:.1f}" for key in keys} for row in rows]
    print(" ".join(f"{key}={value}" for key, value in machine().items()), end="\n\n")
    heads = {"data": "data", "teacher": "all words", "merger": "WordMerger", "none": "weighting=None"}
    heads |= {"hellinger": "Hellinger", "auto": "default", "tfidf": "all words, TF-IDF"}
    print_table(
        shown, heads | {"with": "changed by compress with X", "without": "without X", "alone": "without X or idf"}
    )


if __name__ == "__main__":
    main()
