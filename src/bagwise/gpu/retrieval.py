"""Dense rows of an index compared on a CUDA device, and the same in NumPy: the functions of `Retrieval`."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, device_module, to_device, to_host
from bagwise.gpu.compiling import Source
from bagwise.gpu.kernels import pair_sums
from bagwise.retrieval import screening
from bagwise.retrieval.blocks import DenseBlock
from bagwise.retrieval.histograms import CHI2, EUCLIDEAN, INNER, INTERSECTION, Queries

__all__ = ["array_possible_items", "kth_smallest", "n_queries", "n_threads", "possible_items"]

_SOURCE = Source("retrieval")
# Pairs of queries and rows that are compared at a time.
_PAIRS = 1 << 26
# Values and totals of blocks on the device, as long as these live.
_HELD: WeakKeyDictionary[DenseBlock, tuple[Any, Any]] = WeakKeyDictionary()


def n_queries(n_items: int, n_words: int) -> int:
    """Return how many queries are compared with a dense block together."""
    return max(_PAIRS // n_items, 1)


def n_threads(wanted: int) -> int:
    """Return how many threads search: one, which waits for the device."""
    return 1


def possible_items(
    block: DenseBlock, queries: Queries, first: int, last: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the items of a block that can be among the k nearest of the queries from `first` up to `last`."""
    need = 50 * (last - first) * len(block) + (0 if block in _HELD else block.n_bytes)
    check_device_memory(need, f"{len(block)} items, and {last - first} queries")
    return array_possible_items(device_module("cuda"), block, queries, first, last, k)


def array_possible_items(
    xp: Any, block: DenseBlock, queries: Queries, first: int, last: int, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`possible_items` by functions of an array module."""
    if xp is np:
        rows, totals = block.values, block.totals
    elif block in _HELD:
        rows, totals = _HELD[block]
    else:
        rows, totals = _HELD[block] = to_device(block.values, xp), to_device(block.totals, xp)
    dense, query_totals = to_device(queries.dense(first, last), xp), to_device(queries.totals[first:last], xp)
    metric = queries.metric
    with np.errstate(over="ignore", invalid="ignore"):
        if metric.kind in (INNER, EUCLIDEAN):
            shared = dense @ rows.T
        else:
            half = np.float32(0.5 if metric.kind == CHI2 else 1.0)  # the chi² kernel is twice that
            kernel = "intersection" if metric.kind == INTERSECTION else "chi2"
            shared = pair_sums(xp, kernel, dense, rows) * half
        n_words = dense.shape[1]
        possible = screening.possible(
            xp, metric, shared, query_totals, totals, n_words, k, lambda upper, k: kth_smallest(xp, upper, k)
        )
    return screening.bounds_of(to_host(possible.sum(axis=1))), to_host(xp.nonzero(possible)[1])


def kth_smallest(xp: Any, values: Any, k: int) -> Any:
    """``np.sort(values, axis=1)[:, k - 1]`` of float64 numbers, none of them NaN. Eight passes over the values."""
    if xp is np:
        return screening.kth_smallest(values, k)
    out = xp.empty(len(values))
    if len(values):
        sizes = np.int64(values.shape[1]), np.int64(k)
        _SOURCE.function("kth_smallest")((len(values),), (256,), (values, *sizes, out))
    return out
