"""Local binary patterns of images: counted once, in the four quarters of each image, and kept in files of the cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise import open_collection
from bagwise._io.atomic import open_atomically
from bagwise.descriptors.images import as_comparable
from bagwise.descriptors.lbp import pattern_codes
from experiments.caching import kept
from experiments.running import Options
from experiments.sets import few

__all__ = ["N_QUARTERS", "Patterns", "in_images", "learning_images", "scenes"]

N_QUARTERS = 4
N_PATTERNS = {1: 256, 2: 65_536}  # by the radius of the ring of neighbours
QUICK = 12  # images of each class and part, to see that it works


@dataclass(frozen=True)
class Patterns:
    """Counts of patterns in quarters of images.

    Attributes
    ----------
    counts : CSR array of float32, shape (4 n, patterns)
        The quarters of an image are four rows, one after the other.
    y : ndarray of shape (n,)
        Classes as numbers.
    train : ndarray of bool, shape (n,)
        The fixed training part.
    """

    counts: sp.csr_array
    y: NDArray[np.int64]
    train: NDArray[np.bool_]

    @property
    def whole(self) -> sp.csr_array:
        """Counts in whole images, shape (n, patterns)."""
        return in_images(self.counts)


def in_images(quarters: Any) -> Any:
    """Add up four rows at a time."""
    n = quarters.shape[0] // N_QUARTERS
    ones = np.ones(N_QUARTERS * n, np.float32)
    member = sp.csr_array((ones, np.arange(N_QUARTERS * n), np.arange(0, N_QUARTERS * n + 1, N_QUARTERS)))
    return member @ quarters


@lru_cache(maxsize=2)
def scenes(options: Options, radius: int) -> Patterns:
    """Scene-15: patterns of 8 neighbours (radius 1), or of the 16 of LBP-D5 (radius 2)."""
    return _kept(options, f"patterns-scene15-{radius}", options.data / "scene15" / "scene15.zip", radius)


@lru_cache(maxsize=1)
def learning_images(options: Options) -> sp.csr_array:
    """LBP-D5 of 1467 whole images of other things: Corel-1k and the background images of Caltech-101."""
    corel = _kept(options, "patterns-corel1k-2", options.data / "corel1k" / "corel1k.zip", 2)
    background = _kept(options, "patterns-background-2", options.data / "caltech101_4" / "caltech101_4.zip", 2)
    return sp.csr_array(sp.vstack([corel.whole, background.whole]))


def _kept(options: Options, name: str, place: Path, radius: int) -> Patterns:
    def write(path: Path) -> None:
        arrays = _counted(options, place, radius)
        with open_atomically(path) as file:
            np.savez(file, **arrays)

    with np.load(kept(options, f"{name}.npz", write), allow_pickle=False) as file:
        starts = np.concatenate([[0], np.cumsum(file["lengths"], dtype=np.int64)])
        shape = (len(starts) - 1, N_PATTERNS[radius])
        rows = (file["counts"].astype(np.float32), file["patterns"].astype(np.int32), starts)
        return Patterns(sp.csr_array(rows, shape=shape), file["y"], file["train"])


def _counted(options: Options, place: Path, radius: int) -> dict[str, NDArray[Any]]:
    """Patterns that occur and how often, row after row, in as few bytes as they need."""
    images = open_collection(place)
    if place.stem == "caltech101_4":
        images = images[np.flatnonzero(np.array(images.labels) == "BACKGROUND_Google")]
    if options.quick:
        images = few(images, QUICK)
    patterns, counts, lengths = [], [], []
    for item in images:
        codes = pattern_codes(as_comparable(item.load()), radius)
        half, middle = (side // 2 for side in codes.shape)
        for quarter in (codes[:half, :middle], codes[:half, middle:], codes[half:, :middle], codes[half:, middle:]):
            times = np.bincount(quarter.ravel(), minlength=N_PATTERNS[radius])
            seen = np.flatnonzero(times)
            patterns.append(seen.astype(np.uint16))
            counts.append(times[seen].astype(np.uint16))
            lengths.append(len(seen))
    return {
        "patterns": np.concatenate(patterns),
        "counts": np.concatenate(counts),
        "lengths": np.array(lengths),
        "y": np.unique(images.labels, return_inverse=True)[1].astype(np.int64),
        "train": np.array([item.split == "train" for item in images]),
    }
