"""Checks of numbers, alone and in matrices, that several parts of the library share."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise.errors import BagwiseError

__all__ = ["check_integer", "first_not_finite"]


def check_integer(value: Any, name: str, lowest: int, highest: int | None = None) -> int:
    """Give `value` as an int, or say what `name` must be."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise BagwiseError(f"{name} must be an integer, got {value!r}.")
    value = int(value)
    if value < lowest or (highest is not None and value > highest):
        accepted = f"at least {lowest}" if highest is None else f"from {lowest} to {highest}"
        raise BagwiseError(f"{name} must be {accepted}, got {value}.")
    return value


def first_not_finite(X: Any) -> tuple[int, int, float] | None:
    """Find the row, column and value of the first NaN or infinity in a dense or CSR matrix; None if there is none."""
    values = X.data if sp.issparse(X) else X
    # extremes are NaN if there is one, and need no array of truth values
    if values.size == 0 or (np.isfinite(values.min()) and np.isfinite(values.max())):
        return None
    place = int(np.argmin(np.isfinite(values)))
    if sp.issparse(X):
        row, column = int(np.searchsorted(X.indptr, place, side="right")) - 1, int(X.indices[place])
    else:
        row, column = divmod(place, X.shape[1])
    return row, column, float(values.flat[place])
