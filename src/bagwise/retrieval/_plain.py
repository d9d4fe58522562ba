"""A search for a few queries in NumPy: loading compiled code takes longer than such a search.

Sums are taken in float64 and in the order of the words, as in `bagwise.retrieval._kernels`, so that keys are the same
to the last bit. Here are also the constants that both share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

INNER, EUCLIDEAN, INTERSECTION, CHI2 = range(4)
# Items of a block: as many as the 16 bits of a list's entries can name, so that no entry points outside.
BLOCK_ITEMS = 1 << 16
# Queries, and terms of their sums, that are few.
_FEW_QUERIES, _FEW_TERMS = 4, 1 << 20


def are_few(n_queries: int, n_terms: int) -> bool:
    """Whether a search is better done here than by compiled code."""
    return n_queries <= _FEW_QUERIES and n_terms <= _FEW_TERMS


def row_totals(starts: NDArray[np.int64], values: NDArray[Any], power: int) -> NDArray[np.float64]:
    """Sum the absolute values (1) or the squares (2) of rows, one after the other.

    >>> row_totals(np.array([0, 2, 2]), np.array([3.0, -4.0]), 2)
    array([25.,  0.])
    """
    totals = np.zeros(len(starts) - 1)
    for i in range(len(totals)):
        sizes = np.abs(values[starts[i] : starts[i + 1]].astype(np.float64)) ** power
        if len(sizes):
            totals[i] = np.add.accumulate(sizes)[-1]
    return totals


def search(
    kind: int,
    queries: tuple[NDArray[Any], ...],
    list_of: Callable[[int], tuple[Any, NDArray[Any]]],
    totals: NDArray[np.float64],
    first: int,
    out_keys: NDArray[np.float64],
    out_items: NDArray[np.int64],
    removed: NDArray[np.int64],
) -> None:
    """Do what `search_lists` does; `list_of` gives the items that have a word, and its values in them."""
    starts, words, values, query_totals = queries
    n_items, k = len(totals), out_keys.shape[1]
    for i in range(len(out_keys)):
        sums = np.zeros(BLOCK_ITEMS)
        own = slice(starts[first + i], starts[first + i + 1])
        for word, x in zip(words[own].tolist(), values[own].astype(np.float64), strict=True):
            items, z = list_of(word)
            sums[items] += _shared_terms(kind, x, z.astype(np.float64))
        sums[removed] = -np.inf  # infinitely far, whatever the metric
        keys = _keys(kind, sums[:n_items], query_totals[first + i], totals)
        nearest = np.argsort(keys, kind="stable")[:k]
        out_keys[i], out_items[i] = keys[nearest], nearest


def _shared_terms(kind: int, x: np.float64, z: NDArray[np.float64]) -> NDArray[np.float64]:
    if kind == INTERSECTION:
        return np.minimum(z, x)
    return x * z / (x + z) if kind == CHI2 else x * z


def _keys(
    kind: int, shared: NDArray[np.float64], query_total: np.float64, totals: NDArray[np.float64]
) -> NDArray[np.float64]:
    if kind in (EUCLIDEAN, CHI2):
        return np.maximum(query_total + totals - (2.0 if kind == EUCLIDEAN else 4.0) * shared, 0.0)
    return -shared
