"""What is settled before words are moved: no two of them equal, and the unit of length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["set_apart", "typical_scale"]

_JITTER = 1e-6


def set_apart(words: NDArray[np.floating], rng: np.random.RandomState) -> NDArray[np.float64]:
    """Move words that are equal a little apart: they would get the same gradient for ever."""
    apart: NDArray[np.float64] = np.array(words, dtype=np.float64)
    _, first = np.unique(apart, axis=0, return_index=True)
    equal = np.setdiff1d(np.arange(len(apart)), first)
    size = float(np.abs(apart).max(initial=0.0)) or 1.0
    apart[equal] += _JITTER * size * rng.normal(size=(len(equal), apart.shape[1]))
    return apart


def typical_scale(words: NDArray[np.floating]) -> float:
    """The inverse of the median distance from a word to the nearest other one; 1 if there is none above 0.

    Nearest ones, since a feature is shared out among the few words around it: in many dimensions the distance of any
    two words is far larger than that, and says little about how soft an assignment is.
    """
    words = np.asarray(words, dtype=np.float64)
    squares = np.einsum("kd,kd->k", words, words)
    distances = np.sqrt(np.maximum(squares[:, np.newaxis] + squares - 2.0 * (words @ words.T), 0.0))
    distances[distances <= _JITTER * np.sqrt(squares.max(initial=0.0))] = np.inf  # itself, and words equal to it
    nearest = distances.min(axis=1)
    nearest = nearest[np.isfinite(nearest)]
    return 1.0 / float(np.median(nearest)) if len(nearest) else 1.0
