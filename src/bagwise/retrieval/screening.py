"""Which dense rows can be among the nearest, by functions of an array module: in NumPy, or on a CUDA device.

All pairs are compared in float32, and those whose key can be among the k smallest, by a bound on rounding errors, are
to be compared in float64. That takes a tenth of the time of float64 for all.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.devices import to_host
from bagwise.retrieval._plain import CHI2, EUCLIDEAN, INNER, INTERSECTION, keys_of

__all__ = ["kth_smallest", "possible_items"]

# Rounding of float32, and one percent more for rounding of the bounds themselves.
_ROUNDING = 1.01 * 2.0**-24

_SOURCE = r"""
// a block for each row; numbers as integers of the same order, of which eight bits are found at a time
extern "C" __global__ void kth_smallest(const double* values, long long n, long long k, double* out) {
    __shared__ unsigned int counts[256];
    __shared__ unsigned long long found, seen;
    __shared__ long long left;
    const double* row = values + (long long)blockIdx.x * n;
    if (threadIdx.x == 0) { found = 0; seen = 0; left = k; }
    for (int shift = 56; shift >= 0; shift -= 8) {
        counts[threadIdx.x] = 0;
        __syncthreads();
        for (long long i = threadIdx.x; i < n; i += blockDim.x) {
            unsigned long long bits = __double_as_longlong(row[i]);
            bits = bits >> 63 ? ~bits : bits | 0x8000000000000000ull;
            if ((bits & seen) == found) atomicAdd(&counts[(bits >> shift) & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 0;
            while (digit < 255 && left > counts[digit]) left -= counts[digit++];
            found |= (unsigned long long)digit << shift;
            seen |= 255ull << shift;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = __longlong_as_double(found >> 63 ? found & 0x7fffffffffffffffull : ~found);
}
"""


@cache
def _function() -> Any:
    import cupy

    return cupy.RawModule(code=_SOURCE).get_function("kth_smallest")


def kth_smallest(xp: Any, values: Any, k: int) -> Any:
    """``np.sort(values, axis=1)[:, k - 1]`` of float64 numbers, none of them NaN. Eight passes over the values."""
    if xp is np:
        return np.partition(values, k - 1, axis=1)[:, k - 1]
    out = xp.empty(len(values))
    if len(values):
        _function()((len(values),), (256,), (values, np.int64(values.shape[1]), np.int64(k), out))
    return out


def _relative_error(n_words: int) -> float:
    """Bound of the error of a float32 sum of products, in any order, relative to the sum of their sizes."""
    error = (n_words + 8) * _ROUNDING
    return error / (1 - error) if error < 0.5 else float("inf")


def possible_items(
    xp: Any, kind: int, queries: Any, rows: Any, query_totals: Any, totals: Any, k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the items that can be among the k nearest of each query, given as dense float32 rows.

    Returns `bounds` and `chosen`, as `keys_from_rows` takes them: the items of query i are
    ``chosen[bounds[i, 0]:bounds[i, 1]]``, rising.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # rows of a damaged file may be anything
        shared = _shared(xp, kind, queries, rows).astype(np.float64)
        n_words, sums = rows.shape[1], query_totals[:, np.newaxis] + totals
        relative = _relative_error(n_words)
        if kind in (INNER, EUCLIDEAN):  # totals are squared norms
            error = relative * xp.sqrt(query_totals[:, np.newaxis] * totals) + n_words * 2.0**-120
        else:
            error = relative * xp.abs(shared) + (n_words + sums) * 2.0**-120
        error *= 4.0 if kind == CHI2 else 2.0
        error += sums * ((n_words + 8) * 2.0**-51)
        keys = keys_of(kind, shared, sums)
        known = xp.isfinite(shared) & xp.isfinite(error)  # what is not finite is compared in float64
        upper, lower = xp.where(known, keys + error, np.inf), xp.where(known, keys - error, -np.inf)
    possible = lower <= kth_smallest(xp, upper, k)[:, np.newaxis]
    ends = np.cumsum(to_host(possible.sum(axis=1)))
    return np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1), to_host(xp.nonzero(possible)[1])


def _shared(xp: Any, kind: int, queries: Any, rows: Any) -> Any:
    """Return about `shared` of all pairs of dense rows, see `bagwise.retrieval._kernels`, in float32."""
    if kind in (INNER, EUCLIDEAN):
        return queries @ rows.T
    if xp is not np:
        from bagwise.gpu.kernels import pair_sums  # deferred: searches on the host do without it

        half = np.float32(0.5 if kind == CHI2 else 1.0)  # the chi² kernel is twice that
        return pair_sums(xp, "intersection" if kind == INTERSECTION else "chi2", queries, rows) * half
    from bagwise.retrieval import _kernels as kernels  # deferred: compiled code takes long to load

    shared = np.empty((len(queries), len(rows)), dtype=np.float32)
    kernels.screen_rows(kind, queries, rows, shared)
    return shared
