"""Kernels of codebooks on a CUDA device (cu/codebooks.cu), each beside the same in NumPy.

The first argument of all functions is the array module, `numpy` or `cupy`, of the others. Sums are added in a fixed
order, so that results are the same in each run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.codebooks import _kernels as kernels
from bagwise.gpu.compiling import Source

__all__ = ["least_distances", "nearest", "row_hashes", "segments", "sums_of_segments"]

# Rows that one thread adds up; longer segments are cut into pieces.
_PIECE = 512
_SOURCE = Source(
    "codebooks",
    "nearest<float>",
    "nearest<double>",
    "least_distances<float>",
    "least_distances<double>",
    "row_hashes<float, unsigned int>",
    "row_hashes<double, unsigned long long>",
    "reduce_segments<float>",
    "reduce_segments<double>",
)


def _type(array: Any) -> str:
    return "float" if array.dtype == np.float32 else "double"


def nearest(xp: Any, scores: Any, norms: Any, bipolar: bool) -> tuple[Any, Any]:
    """``values = norms - abs(found) if bipolar else norms + found``: argmin of each row, the first of equals; signs.

    The sign is -1 where `bipolar` and the number found is positive, otherwise 1.
    """
    if xp is np:
        words = (norms - np.abs(scores) if bipolar else norms + scores).argmin(axis=1)
        turned = bipolar & (np.take_along_axis(scores, words[:, np.newaxis], 1)[:, 0] > 0)
        return words, np.where(turned, -1, 1).astype(np.int8)
    words, signs = xp.empty(len(scores), np.int64), xp.empty(len(scores), np.int8)
    arguments = (scores, norms, np.int64(len(scores)), np.int32(scores.shape[1]), np.bool_(bipolar), words, signs)
    _SOURCE.launch(f"nearest<{_type(scores)}>", 32 * len(scores), *arguments)
    return words, signs


def least_distances(xp: Any, products: Any, others: Any, squares: Any, bipolar: bool) -> Any:
    """``maximum(squares + (others - 2 * products).min(axis=1), 0)`` in float64, with absolute products if `bipolar`.

    Squared distances of points to the nearest of others, from their products and the squares of both.
    """
    if xp is np:
        compared = np.abs(products) if bipolar else products
        return np.maximum(squares + (others - 2.0 * compared).min(axis=1), 0.0)
    out = xp.empty(len(products))
    sizes = np.int64(len(products)), np.int32(products.shape[1])
    arguments = (products, *sizes, others, squares, np.bool_(bipolar), out)
    _SOURCE.launch(f"least_distances<{_type(products)}>", len(products), *arguments)
    return out


def row_hashes(xp: Any, values: Any) -> Any:
    """Hash the rows of a matrix, 0 as -0, see `bagwise.codebooks._kernels.hash_rows`."""
    hashes = xp.empty(len(values), np.uint64)
    if xp is np:
        kernels.hash_rows(values, values.view(np.uint32 if values.dtype == np.float32 else np.uint64), hashes)
        return hashes
    bits = "unsigned int" if values.dtype == np.float32 else "unsigned long long"
    sizes = np.int64(len(values)), np.int64(values.shape[1])
    _SOURCE.launch(f"row_hashes<{_type(values)}, {bits}>", len(values), values, *sizes, hashes)
    return hashes


def segments(xp: Any, keys: Any) -> tuple[Any, Any, Any]:
    """Sort keys: their order (stable), the distinct ones, and where the run of each begins, and the last ends."""
    order = xp.argsort(keys, kind="stable")
    ordered = keys[order]
    edges = xp.ones(len(keys) + 1, bool)
    edges[1:-1] = ordered[1:] != ordered[:-1]
    starts = xp.flatnonzero(edges) if len(keys) else xp.zeros(1, np.int64)
    return order, ordered[starts[:-1]], starts


def sums_of_segments(xp: Any, values: Any, factors: Any, order: Any, starts: Any, maximum: bool = False) -> Any:
    """Sum the rows ``factors[i] * values[i]`` with i in ``order[starts[s]:starts[s + 1]]``, for each s, in float64.

    `maximum` takes the largest instead, of numbers that are not negative.
    """
    n, width = len(starts) - 1, values.shape[1]
    if xp is np:
        out = np.zeros((n, width))
        full = starts[:-1] < starts[1:]
        rows = factors[order, np.newaxis] * values[order].astype(np.float64)
        if full.any():
            out[full] = (np.maximum if maximum else np.add).reduceat(rows, starts[:-1][full], axis=0)
        return out
    pieces = xp.zeros(n + 1, np.int64)
    xp.cumsum((xp.diff(starts) + _PIECE - 1) // _PIECE, out=pieces[1:])
    n_pieces = int(pieces[-1])
    numbers = xp.arange(n_pieces)
    of = xp.searchsorted(pieces, numbers, side="right") - 1
    begins = starts[of] + _PIECE * (numbers - pieces[of])
    ends = xp.minimum(begins + _PIECE, starts[of + 1])
    parts = _reduced(xp, values, factors, order, begins, ends, maximum)
    return _reduced(xp, parts, xp.ones(n_pieces), numbers, pieces[:-1], pieces[1:], maximum)


def _reduced(xp: Any, values: Any, factors: Any, order: Any, begins: Any, ends: Any, maximum: bool) -> Any:
    n, width = len(begins), values.shape[1]
    out = xp.empty((n, width))
    sizes = np.int64(n), np.bool_(maximum)
    arrays = (xp.ascontiguousarray(array, dtype=np.int64) for array in (order, begins, ends))
    _SOURCE.launch(
        f"reduce_segments<{_type(values)}>", n * width, values, np.int64(width), factors, *arrays, *sizes, out
    )
    return out
