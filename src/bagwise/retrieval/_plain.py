"""A search for a few queries in NumPy, and the constants that it shares with `bagwise.retrieval._kernels`.

Loading compiled code takes 0.3 s, far longer than such a search: ``bagwise search`` does without.
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


def search(
    kind: int,
    queries: tuple[NDArray[Any], ...],
    list_of: Callable[[int], tuple[Any, NDArray[Any]]],
    totals: NDArray[np.float64],
    first: int,
    out_keys: NDArray[np.float64],
    out_items: NDArray[np.int64],
) -> None:
    """Do what `search_lists` does; `list_of` returns the items that have a word, and its values in them."""
    starts, words, values, query_totals = queries
    for i in range(len(out_keys)):
        shared = np.zeros(BLOCK_ITEMS)
        own = slice(starts[first + i], starts[first + i + 1])
        for word, x in zip(words[own].tolist(), values[own].astype(np.float64), strict=True):
            items, z = list_of(word)
            shared[items] += shared_terms(kind, x, z.astype(np.float64))
        keys = keys_of(kind, shared[: len(totals)], query_totals[first + i] + totals)
        nearest = np.argsort(keys, kind="stable")[: out_keys.shape[1]]
        out_keys[i], out_items[i] = keys[nearest], nearest


def shared_terms(kind: int, x: Any, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what words add to `shared` of a query and items that have them, see `bagwise.retrieval._kernels`."""
    if kind == INTERSECTION:
        return np.minimum(z, x)
    return x * z / (x + z) if kind == CHI2 else x * z


def keys_of(kind: int, shared: Any, totals: Any) -> Any:
    """Return keys, for the sums of the totals of query and item; arrays of any module."""
    if kind in (EUCLIDEAN, CHI2):
        return np.maximum(totals - (2.0 if kind == EUCLIDEAN else 4.0) * shared, 0.0)
    return -shared
