"""Which dense rows can be among the nearest, on the host: the functions of `bagwise._utils.backends.Retrieval`.

All pairs are compared in float32, and those whose key can be among the k smallest, by a bound on rounding errors, are
to be compared in float64. That takes a tenth of the time of float64 for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.retrieval.blocks import DenseBlock
from bagwise.retrieval.histograms import CHI2, EUCLIDEAN, INNER, Metric, Queries

__all__ = ["bounds_of", "kth_smallest", "n_queries", "n_threads", "possible", "possible_items"]

# Rounding of float32, and one percent more for rounding of the bounds themselves.
_ROUNDING = 1.01 * 2.0**-24
# Queries of one task of a thread, and numbers: pairs of queries and dense rows, or queries as dense rows.
_QUERIES, _NUMBERS = 256, 1 << 22


def n_queries(n_items: int, n_words: int) -> int:
    """Return how many queries are compared with a dense block together."""
    return int(np.clip(_NUMBERS // max(n_items, n_words), 1, _QUERIES))


def n_threads(wanted: int) -> int:
    """Return how many threads search."""
    return wanted


def possible_items(
    block: DenseBlock, queries: Queries, first: int, last: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the items of a block that can be among the k nearest of the queries from `first` up to `last`.

    Returns `bounds` and `chosen`, as `keys_from_rows` takes them: the items of query i are
    ``chosen[bounds[i, 0]:bounds[i, 1]]``, rising.
    """
    dense, kind = queries.dense(first, last), queries.metric.kind
    with np.errstate(over="ignore", invalid="ignore"):  # rows of a damaged file may be anything
        if kind in (INNER, EUCLIDEAN):
            shared = dense @ block.values.T
        else:
            from bagwise.retrieval import _kernels as kernels  # deferred: compiled code takes long to load

            shared = np.empty((len(dense), len(block)), dtype=np.float32)
            kernels.screen_rows(kind, dense, block.values, shared)
        chosen = possible(np, queries.metric, shared, queries.totals[first:last], block.totals, dense.shape[1], k)
    return bounds_of(chosen.sum(axis=1)), np.nonzero(chosen)[1]


def bounds_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where so many items of each query begin and end, one query after the other."""
    ends = np.cumsum(counts)
    return np.stack([ends - counts, ends], axis=1)


def kth_smallest(values: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """``np.sort(values, axis=1)[:, k - 1]``."""
    return np.partition(values, k - 1, axis=1)[:, k - 1]


def possible(
    xp: Any, metric: Metric, shared: Any, query_totals: Any, totals: Any, n_words: int, k: int, kth: Any = kth_smallest
) -> Any:
    """Tell which pairs can be among the k nearest of a query, from their sums of terms in float32."""
    shared, sums = shared.astype(np.float64), query_totals[:, np.newaxis] + totals
    # bound of the error of a float32 sum of products, in any order, relative to the sum of their sizes
    error = (n_words + 8) * _ROUNDING
    relative = error / (1 - error) if error < 0.5 else float("inf")
    if metric.kind in (INNER, EUCLIDEAN):  # totals are squared norms
        error = relative * xp.sqrt(query_totals[:, np.newaxis] * totals) + n_words * 2.0**-120
    else:
        error = relative * xp.abs(shared) + (n_words + sums) * 2.0**-120
    error *= 4.0 if metric.kind == CHI2 else 2.0
    error += sums * ((n_words + 8) * 2.0**-51)
    keys = metric.key(shared, sums)
    known = xp.isfinite(shared) & xp.isfinite(error)  # what is not finite is compared in float64
    upper, lower = xp.where(known, keys + error, np.inf), xp.where(known, keys - error, -np.inf)
    return lower <= kth(upper, k)[:, np.newaxis]
