"""Does an installed bagwise work? For wheels in empty environments: `python smoke.py`, outside of the clone.

Without extras the library is tried, with the extra `app` the command line as well.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import bagwise
from bagwise import CompactClassifier, Hierarchy, SketchMerger, WordMerger


def library(folder: Path) -> None:
    """Merge the pixels of digits, classify by groups, save and load."""
    X, y = load_digits(return_X_y=True)
    pipeline = make_pipeline(WordMerger(n_groups=32), LogisticRegression(max_iter=200)).fit(X[::2] / 16, y[::2])
    error = 1 - pipeline.score(X[1::2] / 16, y[1::2])
    assert error < 0.15, error
    hierarchy = pipeline[0].hierarchy_
    hierarchy.save(folder / "words.safetensors")
    assert Hierarchy.load(folder / "words.safetensors") == hierarchy
    assert SketchMerger(n_groups=8).fit_transform(X).shape == (len(X), 8)
    assert CompactClassifier(n_groups=32).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.8
    print(f"library: digits by 32 groups of 64 pixels, error {error:.3f}")


def command_line(folder: Path) -> None:
    """Fit a table by the command line and predict with its model."""
    X, y = load_digits(return_X_y=True)
    rows = np.column_stack([X[:400], y[:400]]).astype(int)
    names = ",".join([f"p{k}" for k in range(X.shape[1])] + ["digit"])
    np.savetxt(folder / "digits.csv", rows, fmt="%d", delimiter=",", header=names, comments="")
    bagwise_ = [sys.executable, "-m", "bagwise"]
    for arguments in (
        ["fit", "digits.csv", "--label", "digit", "--groups", "20", "--out", "digits.bagwise"],
        ["info", "digits.bagwise", "--verify"],
        ["predict", "digits.bagwise", "digits.csv", "--out", "answers.csv"],
    ):
        done = subprocess.run([*bagwise_, *arguments], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    assert len((folder / "answers.csv").read_text(encoding="utf-8").splitlines()) >= 400
    print("command line: fit, info --verify, predict")


def main() -> None:
    """Try what is installed."""
    source = Path(bagwise.__file__).resolve()
    print(f"bagwise {bagwise.__version__} on Python {sys.version.split()[0]}, {source.parent}")
    with tempfile.TemporaryDirectory() as folder:
        library(Path(folder))
        if all(importlib.util.find_spec(name) for name in ("typer", "rich", "jinja2", "cv2")):
            command_line(Path(folder))
        else:
            print("command line: skipped, it needs the extra app")


if __name__ == "__main__":
    main()
