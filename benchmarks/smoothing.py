"""What smoothing does to AIB on texts: the evidence behind the default of `InformationLoss`.

    python benchmarks/smoothing.py --data DIR     # or BAGWISE_DATA=DIR

Reads the three pairs of 20 Newsgroups from DIR/newsgroups_3pairs/newsgroups_3pairs.zip (date split), merges the words
of the training posts, and prints the error of a linear SVM on the test posts for several sizes and smoothings.
"""

from __future__ import annotations

import argparse
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from bagwise import WordMerger
from bagwise.criteria import InformationLoss
from harness import machine, print_table

PAIRS = {
    "Comp": ("comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    "Sci": ("sci.electronics", "sci.med"),
    "Talk": ("talk.politics.guns", "talk.politics.mideast"),
}
SMOOTHINGS = (0.0, 0.1, 0.5, 1.0, 2.0, 5.0)
SIZES = (5, 10, 20, 50, 100)


def read_pair(archive: zipfile.ZipFile, groups: tuple[str, str]) -> dict[str, tuple[list[str], Any]]:
    """Posts without their headers, and labels, of both splits."""
    parts: dict[str, tuple[list[str], Any]] = {}
    for split in ("train", "test"):
        texts, labels = [], []
        for label, group in enumerate(groups):
            for name in sorted(
                n for n in archive.namelist() if n.startswith(f"{split}/{group}/") and n.endswith(".txt")
            ):
                texts.append(archive.read(name).decode("latin-1").partition("\n\n")[2])
                labels.append(label)
        parts[split] = texts, np.array(labels)
    return parts


def svm_error(X_train: Any, y_train: Any, X_test: Any, y_test: Any) -> float:
    def shares(X: Any) -> Any:
        return normalize(np.sqrt(X) if not hasattr(X, "sqrt") else X.sqrt())

    model = LinearSVC(random_state=0, max_iter=20_000).fit(shares(X_train), y_train)
    return 1 - model.score(shares(X_test), y_test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder of data sets")
    options = parser.parse_args()
    if options.data is None:
        sys.exit("Say where the data sets are: --data DIR or BAGWISE_DATA=DIR.")
    path = Path(options.data) / "newsgroups_3pairs" / "newsgroups_3pairs.zip"
    if not path.exists():
        sys.exit(f"{path} does not exist.")
    print(" · ".join(f"{key} {value}" for key, value in machine().items()), "\n")
    for pair, groups in PAIRS.items():
        with zipfile.ZipFile(path) as archive:
            parts = read_pair(archive, groups)
        vectorizer = CountVectorizer(min_df=3, stop_words="english", dtype=np.float64)
        X_train = vectorizer.fit_transform(parts["train"][0])
        X_test = vectorizer.transform(parts["test"][0])
        y_train, y_test = parts["train"][1], parts["test"][1]
        everything = svm_error(X_train, y_train, X_test, y_test)
        print(f"{pair}: {X_train.shape[1]} words, error with all of them {everything:.1%}; with groups:\n")
        rows = []
        mergers = {f"AIB, smoothing {s:g}": WordMerger(criterion=InformationLoss(s)) for s in SMOOTHINGS}
        for name, merger in (mergers | {"CSM": WordMerger(criterion="csm")}).items():
            merger.fit(X_train, y_train)
            row: dict[str, Any] = {"criterion": name}
            for size in SIZES:
                merger.set_params(n_groups=size)
                error = svm_error(merger.transform(X_train), y_train, merger.transform(X_test), y_test)
                row[str(size)] = f"{error:.1%}"
            rows.append(row)
        print_table(rows, {"criterion": "criterion"} | {str(size): f"{size} groups" for size in SIZES})


if __name__ == "__main__":
    main()
