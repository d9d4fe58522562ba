"""Rows of numbers: unit length, and probabilities. NumPy alone, so that reading a model loads no more for it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["softmax", "unit_rows"]


def unit_rows(rows: NDArray[Any]) -> NDArray[Any]:
    """Divide rows by their length; rows of zeros stay. Unlike scikit-learn's normalize, takes matrices without rows.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros(rows.shape, lengths.dtype), where=lengths > 0)


def softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``exp(scores)`` of each row divided by their sum; `scipy.special` takes long to import.

    >>> softmax(np.log([[1.0, 3.0]])).round(9)
    array([[0.25, 0.75]])
    """
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
