"""Speed of the confidence-weighted classifier, beside scikit-learn's linear classifiers that learn from streams.

    python benchmarks/linear.py            # about a minute on 2 cores
    python benchmarks/linear.py --quick    # small sizes, to see that it works

Synthetic texts: each class draws its words from a Zipf distribution of its own, mixed with one that all share. The
classifiers see the same training data in the same number of passes, without stopping early, on one thread; the errors
are those on as many texts that were not trained on. A rate counts every non-zero once per pass and binary problem.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from harness import in_fresh_process, machine, median_time, print_table, print_targets

PASSES = 5


def make_texts(n: int, d: int, n_classes: int, length: int = 100, share: float = 0.9) -> tuple[Any, Any]:
    """Make (X, y): n texts of `length` words, of which about `share` tell nothing of the class."""
    import numpy as np
    import scipy.sparse as sp

    random = np.random.default_rng(0)
    zipf = 1 / np.arange(1, d + 1)
    y = random.integers(n_classes, size=n)
    words = random.choice(d, size=(n, length), p=zipf / zipf.sum())
    of_class = np.array([random.permutation(d) for _ in range(n_classes)])
    words = np.where(random.random((n, length)) < share, words, of_class[y[:, None], words])
    indptr = np.arange(0, words.size + 1, length, dtype=np.int32)  # scikit-learn's classifiers take no 64-bit indices
    X = sp.csr_array((np.ones(words.size), words.ravel().astype(np.int32), indptr), shape=(n, d))
    X.sum_duplicates()
    return X, y


def measure(n: int, d: int, n_classes: int, repeats: int) -> list[dict[str, Any]]:
    """Seconds, rate and test error of each classifier on the same texts."""
    from sklearn.linear_model import SGDClassifier

    from bagwise.baselines import ConfidenceWeightedClassifier

    X, y = make_texts(2 * n, d, n_classes)
    train, test = slice(0, n), slice(n, 2 * n)
    passes = {"max_iter": PASSES, "tol": None, "random_state": 0}
    classifiers = {
        "ConfidenceWeightedClassifier": ConfidenceWeightedClassifier(max_iter=PASSES, random_state=0),
        "  average=True": ConfidenceWeightedClassifier(max_iter=PASSES, random_state=0, average=True),
        "SGDClassifier, hinge loss": SGDClassifier(loss="hinge", **passes),
        "SGDClassifier, passive-aggressive": SGDClassifier(
            loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0, **passes
        ),
    }
    n_problems = 1 if n_classes == 2 else n_classes
    rows = []
    for name, classifier in classifiers.items():
        classifier.fit(X[:50], y[:50])  # compiles
        seconds = median_time(lambda: classifier.fit(X[train], y[train]), repeats)  # noqa: B023
        rows.append({
            "texts": n, "words": d, "classes": n_classes, "classifier": name, "seconds": seconds,
            "rate": X[train].nnz * PASSES * n_problems / seconds / 1e6,
            "error": 100 * (1 - classifier.score(X[test], y[test])),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    options = parser.parse_args()
    results: dict[str, Any] = {"machine": machine()}
    print(" · ".join(f"{key} {value}" for key, value in results["machine"].items()), "\n")
    sizes = [(500, 2000, 2), (500, 2000, 5)] if options.quick else [(20_000, 50_000, 2), (20_000, 50_000, 20)]
    repeats = 1 if options.quick else 5
    results["linear"] = [
        row
        for n, d, n_classes in sizes
        for row in in_fresh_process(__file__, "measure", n=n, d=d, n_classes=n_classes, repeats=repeats)
    ]
    print(f"Fitting in {PASSES} passes, one thread; median of {repeats}\n")
    print_table(results["linear"], {
        "texts": "texts", "words": "words", "classes": "classes", "classifier": "classifier", "seconds": "seconds",
        "rate": "million non-zeros/s", "error": "test error, %",
    })  # fmt: skip
    if not options.quick:
        slowest = min(row["rate"] for row in results["linear"] if not row["classifier"].startswith("SGD"))
        print_targets([("confidence-weighted, slowest, million non-zeros/s", slowest, ">=", 1.0)])
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
