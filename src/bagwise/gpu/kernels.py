"""Additive kernels on a CUDA device, and the same in NumPy: the functions of `Kernels`."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise._utils.checks import as_values
from bagwise._utils.devices import check_device_memory, device_module, where_given
from bagwise._utils.matrices import check_non_negative
from bagwise.errors import BagwiseError
from bagwise.gpu.compiling import Source
from bagwise.kernels.additive import KERNELS, common_type

__all__ = ["array_kernel", "kernel_matrix", "pair_sums"]

# Rows of both matrices of a block of threads, as in the source. Numbers of a temporary array in NumPy.
_TILE = 64
_BLOCK_NUMBERS = 1 << 18
_WORDS = ("intersection", "chi2", "jensen_shannon")
_SOURCE = Source("kernels", *(f"pair_sums<{kind}, {word}<{kind}>>" for kind in ("float", "double") for word in _WORDS))


def kernel_matrix(X: Any, Y: Any, kernel: str, n_jobs: int | None) -> Any:
    """Compute the kernel between the rows of X and of Y (None: X) on the device; the result is where X is."""
    return where_given(array_kernel(device_module("cuda"), X, Y, kernel), X)


def array_kernel(xp: Any, X: Any, Y: Any, kernel: str) -> Any:
    """`additive_kernel` of dense matrices by functions of an array module."""
    X = _check_array(xp, X, "X", kernel)
    Y = X if Y is None else _check_array(xp, Y, "Y", kernel)
    dtype = common_type(X, Y)
    if xp is not np:
        need = np.dtype(dtype).itemsize * (X.shape[0] * Y.shape[0] + X.size + Y.size)
        check_device_memory(need, f"The kernels of {X.shape[0]} x {Y.shape[0]} histograms", "give fewer rows at a time")
    X, Y = X.astype(dtype, copy=False), Y.astype(dtype, copy=False)
    feature = KERNELS[kernel].feature
    return pair_sums(xp, kernel, X, Y) if feature is None else feature(X) @ feature(Y).T


def _check_array(xp: Any, X: Any, name: str, kernel: str) -> Any:
    if sp.issparse(X):
        raise BagwiseError(
            f"{name} is sparse; kernels of sparse matrices are not computed on a device. Use device='cpu', or "
            f"convert it to dense (.toarray(), {8 * X.shape[0] * X.shape[1]} bytes)."
        )
    X = as_values(X, None, name, xp)
    if KERNELS[kernel].non_negative:
        check_non_negative(X, f"The {kernel} kernel", "Use kernel='linear', or counts.")
    return X


def pair_sums(xp: Any, kernel: str, X: Any, Z: Any) -> Any:
    """``Σ_w k(X[i, w], Z[j, w])`` for all pairs of rows, in their type.

    Words are zero beyond the last, which adds nothing. On a device, O(n m d) with 16 words of a row read once for 64
    pairs; float32 is added in float32 for 16 words at a time, so that relative errors are about 1e-7.
    """
    out = xp.empty((len(X), len(Z)), X.dtype)
    if xp is np or kernel not in _WORDS:
        words = KERNELS[kernel].words
        width = max(_BLOCK_NUMBERS // max(X.shape[1], 1), 1)
        for i in range(len(X)):
            for j in range(0, len(Z), width):
                out[i, j : j + width] = words(X[i].astype(np.float64), Z[j : j + width]).sum(axis=1)
        return out
    if out.size:
        kind = "float" if X.dtype == np.float32 else "double"
        grid = -(-len(Z) // _TILE), -(-len(X) // _TILE)
        sizes = (np.int64(size) for size in (len(X), len(Z), X.shape[1]))
        _SOURCE.function(f"pair_sums<{kind}, {kernel}<{kind}>>")(grid, (16, 16), (X, Z, *sizes, out))
    return out
