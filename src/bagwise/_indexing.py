"""Choosing from a sequence the way NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError


def chosen_numbers(key: Any, n: int, what: str) -> NDArray[np.int64]:
    """Turn an index array or a boolean mask over n things, each called `what`, into numbers from 0 to n - 1."""
    chosen = np.asarray(key)
    if chosen.ndim == 1 and chosen.dtype == bool:
        if len(chosen) != n:
            raise BagwiseError(f"A mask needs one entry per {what}, {n}; got {len(chosen)}.")
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise BagwiseError(
            f"A {what} is chosen by its number, several by a slice, a list of numbers or a boolean mask; "
            f"got {type(key).__name__} of shape {chosen.shape} and type {chosen.dtype}."
        )
    numbers = chosen.astype(np.int64)
    outside = (numbers < -n) | (numbers >= n)
    if outside.any():
        raise IndexError(f"There is no {what} {numbers[outside][0]}: there are {n}, numbered from 0.")
    return np.where(numbers < 0, numbers + n, numbers)
