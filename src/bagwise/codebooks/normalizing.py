"""Normalisation of histograms: L1, L2, and powers, one row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError, unknown_name

__all__ = ["STEPS", "normalize_rows", "resolve_steps"]

STEPS = ("l1", "power", "l2")
_BLOCK = 1 << 15  # values processed at a time, so that temporary arrays stay in the cache


def resolve_steps(steps: Any) -> tuple[str, ...]:
    """Turn the name of a step, a sequence of names, or None into a tuple of names."""
    given = () if steps is None else (steps,) if isinstance(steps, str) else steps
    if not isinstance(given, (Sequence, np.ndarray)):
        raise BagwiseError(f"steps must be a name or a list of names out of {', '.join(STEPS)}; got {steps!r}.")
    for step in given:
        if step not in STEPS:
            raise unknown_name("step", step, STEPS)
    return tuple(given)


def normalize_rows(X: Any, steps: Any = ("l1", "power"), power: float = 0.5) -> Any:
    """Apply normalisation steps to each row of a copy of X, a float matrix, dense or CSR.

    Steps are applied in this order: "l1" and "l2" divide a row by its norm, "power" is ``sign(x) |x|^power``. Rows of
    zeros stay zero.
    """
    result = X.copy()
    if hasattr(result, "indptr"):
        values, starts = result.data, result.indptr.astype(np.int64, copy=False)
    else:
        values, starts = result.reshape(-1), result.shape[1] * np.arange(result.shape[0] + 1)  # copies are in C order
    names = resolve_steps(steps)
    for low, high in _blocks(starts):
        begin, end = starts[low], starts[high]
        _normalize_block(names, power, values[begin:end], starts[low : high + 1] - begin)
    return result


def _blocks(starts: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most `_BLOCK` values, or a single row with more."""
    low, n = 0, len(starts) - 1
    while low < n:
        high = max(int(np.searchsorted(starts, starts[low] + _BLOCK, side="right")) - 1, low + 1)
        yield low, high
        low = high


def _normalize_block(names: Sequence[str], power: float, values: NDArray[Any], starts: NDArray[Any]) -> None:
    """Normalise rows in place: row i is ``values[starts[i] : starts[i + 1]]``. Norms are computed in float64."""
    lengths = np.diff(starts)
    filled = lengths > 0
    if not filled.any():
        return
    firsts, lengths = starts[:-1][filled], lengths[filled]
    for name in names:
        if name == "power":
            sizes = np.abs(values)
            powers = np.sqrt(sizes) if power == 0.5 else sizes ** values.dtype.type(power)
            np.copysign(powers, values, out=values)
            continue
        # Divide by the largest value first: neither squares nor the norm itself can overflow or vanish.
        largest = np.maximum.reduceat(np.abs(values), firsts)
        scaled = values / np.repeat(np.where(largest > 0, largest, 1).astype(np.float64), lengths)
        if name == "l1":
            norms = np.add.reduceat(np.abs(scaled), firsts)
        else:
            norms = np.sqrt(np.add.reduceat(np.square(scaled), firsts))
        np.divide(scaled, np.repeat(np.where(largest > 0, norms, 1.0), lengths), out=values, casting="same_kind")
