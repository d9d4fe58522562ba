"""Finding images of the same class by topics of colour-SIFT words: the learned free-energy kernel and its rivals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from bagwise import open_collection
from experiments.differences import difference
from experiments.image_rankings import CUTOFF, Description, Learning, choose, grids, mean_precision
from experiments.pages import Claim, Section, Table, mean_and_sd
from experiments.running import Cell, Options, Results

PAPER = "FEK16"
TITLE = "finding images"
DATA = ("corel1k",)

REPEATS = 5
SHARES = (20, 40, 60, 80)
NOISE = (20, 30, 40)
ALL = "all labels"
CONDITIONS = (ALL, *(f"{share} % of labels" for share in SHARES), *(f"noise {sigma}" for sigma in NOISE))
METHODS = tuple(grids(quick=False))
LEARNERS = ("NCA", "FKL", "FEK", "FEK default")
QUICK_IMAGES = 300
# MAP on Corel-5k: Table 1 of the paper and its text.
PUBLISHED = {
    ALL: {"FESS": 0.320, "FKL": 0.327, "FEK": 0.338},
    "noise 20": {"FEK": 0.301},
    "noise 30": {"FEK": 0.287},
    "noise 40": {"FEK": 0.236},
}
TEXT = """
Corel-1k, 70 % of the images for training, as in the paper, the others each a query for the remaining ones. Figures are
the mean average precision over the nearest 20 images, over the relevant ones among them. A repetition is another draw
of the training images. Words, Gaussian mixtures and topics are learned from the training images without their labels.

Rows: all training labels; shares of them (only for the methods that use labels, and only labels are missing); queries
with Gaussian noise on each pixel, images to be found without. Settings are chosen on training images.

The paper used Corel-5k (50 classes, chance 0.02) with four kinds of colour SIFT in a spatial pyramid; here it is
Corel-1k (10 classes, chance 0.1) with one kind and no pyramid. Published figures stand beside ours for the order of
methods and for what noise does, not for the level. FKL describes images by Fisher scores of the descriptors
themselves, all other methods by the 1000 words they are assigned to.

"FEK default" is `FreeEnergyKernel` with nothing set, fitted to the counts of the labelled images; its defaults are for
texts, and its scores are not centred as those of FEK are."""


def cells(options: Options) -> list[Cell]:
    """A cell for each draw of training images: all that follows needs its words and topics."""
    return [
        Cell(f"{draw:02d}", measure, {"options": options, "draw": draw})
        for draw in range(options.repeats or (1 if options.quick else REPEATS))
    ]


def measure(options: Options, draw: int) -> dict[str, dict[str, dict[str, Any]]]:
    """MAP of each method with the setting chosen for it, by condition."""
    images = open_collection(options.data / "corel1k" / "corel1k.zip", mode="rgb")
    y = np.unique(images.labels, return_inverse=True)[1]
    kept = np.arange(len(y))
    if options.quick and len(kept) > QUICK_IMAGES:
        kept, _ = train_test_split(kept, train_size=QUICK_IMAGES, stratify=y, random_state=0)
    train, test = train_test_split(kept, test_size=0.3, stratify=y[kept], random_state=draw)
    size = (50, 4) if options.quick else (1000, 16)
    description = Description(*size, draw).learn(images[train])
    gallery = description.of(images[test])
    learning = Learning(description.of(images[train]), y[train], np.arange(len(train)), draw)
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for condition in CONDITIONS:
        queries, known = gallery, learning
        if condition.startswith("noise"):
            queries = description.of(noisy(images[test], float(condition.split()[1]), draw))
        elif condition != ALL:
            share = int(condition.split()[0]) / 100
            labelled, _ = train_test_split(learning.labelled, train_size=share, stratify=learning.y, random_state=draw)
            known = learning.with_labels(labelled)
        found[condition] = {}
        for name, (method, settings) in grids(options.quick).items():
            if "%" in condition and name not in LEARNERS:
                continue  # labels make no difference
            setting = choose(method, settings, known)
            value = mean_precision(method(known, setting, queries, gallery), y[test], y[test])
            found[condition][name] = {"map": value, "chosen": setting}
    return found


def noisy(images: Any, sigma: float, seed: int) -> list[NDArray[np.uint8]]:
    """Images as arrays, with Gaussian noise on each value."""
    rng = np.random.default_rng([seed, int(sigma)])
    loaded = (np.asarray(image, dtype=np.float64) for _, image in images.load())
    return [np.clip(np.rint(image + rng.normal(0, sigma, image.shape)), 0, 255).astype(np.uint8) for image in loaded]


def sections(results: Results) -> list[Section]:
    """MAP by condition and method, with the published ones in brackets."""
    found: dict[tuple[str, str], dict[str, float]] = {}  # by draw
    for draw, result in results.items():
        for condition, methods in result.items():
            for method, one in methods.items():
                found.setdefault((condition, method), {})[draw] = one["map"]
    if not found:
        return []
    rows = [
        [condition, *(_shown(found.get((condition, method)), PUBLISHED.get(condition, {}).get(method))
                      for method in METHODS)]
        for condition in CONDITIONS
    ]  # fmt: skip
    caption = f"MAP of the first {CUTOFF}, mean ± sd of {len(results)} draws; in parentheses as published for Corel-5k"
    claims = [_above(found, "FEK", "FKL"), _above(found, "FEK", "FESS")]
    return [Section("Finding images", TEXT, claims, [Table(caption, ("condition", *METHODS), rows)])]


def _shown(values: dict[str, float] | None, published: float | None) -> str | None:
    if values is None:
        return None
    return f"{mean_and_sd(values.values(), '.3f')}" + (f" ({published:g})" if published is not None else "")


def _above(found: dict[tuple[str, str], dict[str, float]], first: str, second: str) -> Claim:
    """Whether a method has the higher MAP with all labels, by draws; a cell has all methods."""
    values = np.array([[found[ALL, method][draw] for draw in found[ALL, first]] for method in (first, second)])
    gap = difference(100 * (values[0] - values[1]))
    levels = " and ".join(f"{mean:.3f}" for mean in values.mean(axis=1))
    return Claim(f"{first} above {second}", gap.above, f"{levels}, {gap} points, draws: {values.shape[1]}.")
