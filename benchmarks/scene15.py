"""Scene-15 from images to accuracy: dense SIFT, words, histograms with and without a spatial pyramid, SVMs.

    python benchmarks/scene15.py --data DIR     # or BAGWISE_DATA=DIR

Reads DIR/scene15/scene15.zip with its fixed split (100 training images a class). Words are learned from the training
images only. Patches of 16 x 16 pixels every 8 pixels, without smoothing, as cross-validation on the training images
prefers. The penalty C of each SVM is chosen by 5-fold cross-validation on the training images as well; test images are
scored with what was chosen. Prints accuracies, times, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC, LinearSVC

from bagwise import BagOfFeatures, open_collection
from bagwise.codebooks import BagNormalizer
from bagwise.descriptors import DenseSIFT
from bagwise.kernels import additive_kernel
from harness import machine, print_table, print_targets, timed

LINEAR_PENALTIES = (0.1, 1.0, 10.0)
KERNEL_PENALTIES = (1.0, 10.0, 100.0)
BATCH = 32
GOALS = {"accuracy": 80.0, "minutes": 4.0, "memory": 2.0}


def make_histograms(path: Path, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, float]]:
    """Counts in 21 cells, and labels, of both splits; and the seconds each step took."""
    train, test = open_collection(path).split()
    sift = DenseSIFT(step=options.step, smoothing=options.smoothing, n_jobs=options.n_jobs)
    model = BagOfFeatures(
        options.n_words, pyramid=21, n_init=options.n_init, random_state=options.seed, n_jobs=options.n_jobs
    )
    seconds: dict[str, float] = {}
    seconds["words"], _ = timed(lambda: model.fit(sift.iter_transform(train, BATCH)))
    data: dict[str, Any] = {}
    for name, part in (("train", train), ("test", test)):
        seconds[name], counts = timed(lambda part=part: model.transform(sift.iter_transform(part, BATCH)))
        data[name] = counts.astype(np.float64), part.labels
    return data, seconds


def fitted(model: Any, grid: dict[str, Any], X: Any, y: Any) -> GridSearchCV:
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    return GridSearchCV(model, grid, cv=folds).fit(X, y)


def linear_accuracy(data: dict[str, Any], columns: slice) -> tuple[float, float]:
    """Accuracy on the test images, and the penalty chosen, of a linear SVM on roots of shares."""
    (X, y), (X_test, y_test) = data["train"], data["test"]
    scale = BagNormalizer(("l1", "power")).fit(X[:, columns])
    search = fitted(
        LinearSVC(random_state=0, max_iter=20_000), {"C": LINEAR_PENALTIES}, scale.transform(X[:, columns]), y
    )
    return search.score(scale.transform(X_test[:, columns]), y_test), search.best_params_["C"]


def intersection_accuracy(data: dict[str, Any], columns: slice, n_jobs: int) -> tuple[float, float]:
    """The same for an SVM with the intersection kernel on shares, one class against the others."""
    (X, y), (X_test, y_test) = data["train"], data["test"]
    scale = BagNormalizer("l1").fit(X[:, columns])
    shares, shares_test = scale.transform(X[:, columns]), scale.transform(X_test[:, columns])
    search = fitted(
        OneVsRestClassifier(SVC(kernel="precomputed")),
        {"estimator__C": KERNEL_PENALTIES},
        additive_kernel(shares, n_jobs=n_jobs),
        y,
    )
    kernel = additive_kernel(shares_test, shares, n_jobs=n_jobs)
    return search.score(kernel, y_test), search.best_params_["estimator__C"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder with scene15/")
    parser.add_argument("--n-words", type=int, default=1000)
    parser.add_argument("--step", type=int, default=8, help="pixels between descriptors")
    parser.add_argument("--smoothing", type=float, default=0.0, help="blur before SIFT, in pixels")
    parser.add_argument("--n-init", type=int, default=1, help="restarts of k-means")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    if options.data is None:
        sys.exit("Say where the data sets are: --data DIR or BAGWISE_DATA=DIR.")
    path = Path(options.data) / "scene15" / "scene15.zip"
    if not path.is_file():
        sys.exit(f"{path} does not exist.")

    started = time.perf_counter()
    print(" · ".join(f"{key} {value}" for key, value in machine().items()))
    processor = time.process_time()
    data, seconds = make_histograms(path, options)
    processor = time.process_time() - processor
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    total = sum(seconds.values())
    print(
        f"\nWords (from {len(data['train'][1])} images) {seconds['words']:.0f} s, histograms of train "
        f"{seconds['train']:.0f} s and test {seconds['test']:.0f} s, together {total:.0f} s "
        f"({processor:.0f} s of processor); peak memory {memory:.2f} GB\n"
    )
    rows = []
    for name, columns in (("none", slice(0, options.n_words)), ("21 cells", slice(None))):
        linear, linear_C = linear_accuracy(data, columns)
        kernel, kernel_C = intersection_accuracy(data, columns, options.n_jobs)
        rows.append(
            {
                "pyramid": name,
                "linear": 100 * linear,
                "linear_C": linear_C,
                "intersection": 100 * kernel,
                "intersection_C": kernel_C,
            }
        )
    print("Accuracy on the test images, %\n")
    print_table(rows, {
        "pyramid": "pyramid", "linear": "linear SVM, l1 + root", "linear_C": "its C",
        "intersection": "intersection SVM", "intersection_C": "its C",
    })  # fmt: skip
    print("Goals")
    print_targets([
        ("pyramid and intersection SVM, %", rows[-1]["intersection"], ">=", GOALS["accuracy"]),
        ("words and all histograms, minutes", total / 60, "<=", GOALS["minutes"]),
        ("peak memory until then, GB", memory, "<=", GOALS["memory"]),
    ])  # fmt: skip
    print(f"({time.perf_counter() - started:.0f} s in all)")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(
            json.dumps(
                {**machine(), "rows": rows, "seconds": seconds, "processor": processor, "memory": memory}, indent=1
            )
        )


if __name__ == "__main__":
    main()
