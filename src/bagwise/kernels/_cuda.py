"""Additive kernels on a CUDA device, and the same in NumPy."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["jensen_shannon_words", "pair_sums"]

# Rows of both matrices of a block of threads, as in the source. Numbers of a temporary array in NumPy.
_TILE = 64
_BLOCK_NUMBERS = 1 << 18

_SOURCE = r"""
template<typename T> __device__ T intersection(T x, T z) { return x < z ? x : z; }

template<typename T> __device__ T chi2(T x, T z) {
    T total = x + z;
    return 2 * x * (z / (total > 0 ? total : 1));
}

template<typename T> __device__ T jensen_shannon(T x, T z) {
    T low = x < z ? x : z, high = x < z ? z : x;
    T ratio = low / (high > 0 ? high : 1);
    return ((low + high) * log1p(ratio) - (ratio > 0 ? low * log(ratio) : 0)) * (T)0.72134752044448170368;
}

// 64 x 64 pairs of rows by 16 x 16 threads with 4 x 4 pairs each, 16 words at a time in shared memory. Sums of 16 words
// are of type T, all others double.
template<typename T, T word(T, T)>
__global__ void pair_sums(const T* X, const T* Z, long long n, long long m, long long n_words, T* out) {
    __shared__ T x[16][65];
    __shared__ T z[16][65];
    long long first = (long long)blockIdx.y * 64, second = (long long)blockIdx.x * 64;
    int row = threadIdx.y, column = threadIdx.x, thread = threadIdx.y * 16 + threadIdx.x;
    double totals[4][4] = {};
    for (long long w = 0; w < n_words; w += 16) {
        for (int l = thread; l < 1024; l += 256) {
            int k = l % 16, r = l / 16;
            bool inside = w + k < n_words;
            x[k][r] = inside && first + r < n ? X[(first + r) * n_words + w + k] : 0;
            z[k][r] = inside && second + r < m ? Z[(second + r) * n_words + w + k] : 0;
        }
        __syncthreads();
        T sums[4][4] = {};
        #pragma unroll
        for (int k = 0; k < 16; k++) {
            T a[4], b[4];
            #pragma unroll
            for (int i = 0; i < 4; i++) { a[i] = x[k][row + 16 * i]; b[i] = z[k][column + 16 * i]; }
            #pragma unroll
            for (int i = 0; i < 4; i++)
                #pragma unroll
                for (int j = 0; j < 4; j++) sums[i][j] += word(a[i], b[j]);
        }
        for (int i = 0; i < 4; i++) for (int j = 0; j < 4; j++) totals[i][j] += (double)sums[i][j];
        __syncthreads();
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            long long r = first + row + 16 * i, c = second + column + 16 * j;
            if (r < n && c < m) out[r * m + c] = (T)totals[i][j];
        }
}
"""
_WORDS = ("intersection", "chi2", "jensen_shannon")
_NAMES = tuple(f"pair_sums<{kind}, {word}<{kind}>>" for kind in ("float", "double") for word in _WORDS)


@cache
def _function(name: str) -> Any:
    import cupy

    return cupy.RawModule(code=_SOURCE, options=("-std=c++17",), name_expressions=_NAMES).get_function(name)


def pair_sums(xp: Any, kernel: str, X: Any, Z: Any) -> Any:
    """``Σ_w k(X[i, w], Z[j, w])`` for all pairs of rows, in their type: "intersection", "chi2" or "jensen_shannon".

    Words are zero beyond the last, which adds nothing. On a device, O(n m d) with 16 words of a row read once for 64
    pairs; float32 is added in float32 for 16 words at a time, so that relative errors are about 1e-7.
    """
    out = xp.empty((len(X), len(Z)), X.dtype)
    if xp is np:
        width = max(_BLOCK_NUMBERS // max(X.shape[1], 1), 1)
        for i in range(len(X)):
            for j in range(0, len(Z), width):
                out[i, j : j + width] = _words(kernel, X[i].astype(np.float64), Z[j : j + width]).sum(axis=1)
        return out
    if out.size:
        kind = "float" if X.dtype == np.float32 else "double"
        grid = -(-len(Z) // _TILE), -(-len(X) // _TILE)
        sizes = (np.int64(size) for size in (len(X), len(Z), X.shape[1]))
        _function(f"pair_sums<{kind}, {kernel}<{kind}>>")(grid, (16, 16), (X, Z, *sizes, out))
    return out


def _words(kernel: str, x: Any, z: Any) -> Any:
    if kernel == "intersection":
        return np.minimum(x, z)
    if kernel == "chi2":
        return 2.0 * x * (z / np.where(x + z > 0, x + z, 1.0))
    return jensen_shannon_words(x, z)


def jensen_shannon_words(x: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Elementwise Jensen-Shannon kernel of two arrays, without cancellation.

    With ``r = min / max``, it is ``((min + max) log2(1 + r) - min log2 r) / 2``.
    """
    low, high = np.minimum(x, z), np.maximum(x, z)
    ratio = low / np.where(high > 0, high, 1.0)
    logs = np.log(np.where(ratio > 0, ratio, 1.0))
    return ((low + high) * np.log1p(ratio) - low * logs) / (2 * np.log(2))
