"""Tables whose columns have scales of their own, and photographs of several sizes."""

import csv

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter
from sklearn.datasets import load_wine
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from commands import as_json


@pytest.mark.parametrize("change", ["as they are", "negative", "other units"])
def test_measurements_are_not_treated_as_counts(change, tmp_path):
    """The wines had 29 to 33 % error as counts, where a scaler and an SVM have 2 %."""
    wines = load_wine()
    X = wines.data.copy()
    if change == "negative":
        X -= X.mean(axis=0)
    elif change == "other units":
        X *= 10.0 ** np.arange(-6, 7)
    with open(tmp_path / "wine.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*wines.feature_names, "class"])
        writer.writerows(
            [*map(repr, row.tolist()), wines.target_names[k]] for row, k in zip(X, wines.target, strict=True)
        )
    told = as_json("fit", tmp_path / "wine.csv", "--out", tmp_path / "wine.bagwise", "--no-page", "--no-index")
    assert any("measurements" in note for note in told["notes"])
    svm = make_pipeline(StandardScaler(), LinearSVC(random_state=0))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    plain = 1 - cross_val_score(svm, X, wines.target, cv=folds).mean()
    assert min(told["model"]["path"]["errors"]) <= plain + 0.03


def test_a_photograph_is_found_by_a_copy_three_times_as_large(tmp_path):
    """The copy of a photograph at three times its size came back at rank 31."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    folder.mkdir()
    for k in range(40):
        pixels = np.stack([gaussian_filter(rng.normal(0, 1, (72, 96)), 1 + k % 4) for _ in range(3)], axis=2)
        pixels = (255 * (pixels - pixels.min()) / np.ptp(pixels)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{k:02}.png")
    options = ["--words", "60", "--max-side", "96", "--step", "6", "--no-page"]
    as_json("fit", folder, "--out", tmp_path / "photos.bagwise", *options)
    for k in (0, 7, 21, 39):
        small = Image.open(folder / f"{k:02}.png")
        small.resize((288, 216), Image.Resampling.LANCZOS).save(tmp_path / "large.png")
        (query,) = as_json("search", tmp_path / "photos.index", tmp_path / "large.png")["queries"]
        assert query["hits"][0]["id"] == f"{k:02}.png"
