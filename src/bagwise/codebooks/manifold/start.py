"""What is settled before words are moved: no two of them equal, and the unit of length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

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
    """The inverse of the median distance between two words; 1 if there is none above 0.

    Words that are equal do not count. Features whose words lie about 1 apart are what the usual softness of 0.05 and
    learning rate of 0.01 were found for.
    """
    words = np.asarray(words, dtype=np.float64)
    distances = pdist(words)
    distances = distances[distances > _JITTER * np.sqrt(np.einsum("kd,kd->k", words, words).max(initial=0.0))]
    return 1.0 / float(np.median(distances)) if len(distances) else 1.0
