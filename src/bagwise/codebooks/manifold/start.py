"""What is settled before words are moved: no two of them equal, and the unit of length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["set_apart", "typical_scale"]

_JITTER = 1e-6


def set_apart(words: NDArray[np.floating], rng: np.random.RandomState) -> NDArray[np.float64]:
    """Move words that are equal a little apart: they would get the same gradient for ever."""
    words = np.array(words, dtype=np.float64)
    _, first = np.unique(words, axis=0, return_index=True)
    equal = np.setdiff1d(np.arange(len(words)), first)
    size = float(np.abs(words).max(initial=0.0)) or 1.0
    words[equal] += _JITTER * size * rng.normal(size=(len(equal), words.shape[1]))
    return words


def typical_scale(words: NDArray[np.float64]) -> float:
    """The inverse of the median distance between two words; 1 if there is none above 0."""
    squares = np.einsum("kd,kd->k", words, words)
    distances = squares[:, np.newaxis] + squares - 2.0 * (words @ words.T)
    distances = np.sqrt(np.maximum(distances[np.triu_indices(len(words), k=1)], 0.0))
    distances = distances[distances > _JITTER * np.sqrt(squares.max(initial=0.0))]
    return 1.0 / float(np.median(distances)) if len(distances) else 1.0
