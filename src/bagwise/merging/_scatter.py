"""Forming the symmetric words-by-words matrices of a criterion in place, from dense or sparse data.

Functions here fill the upper triangle of `out`; `mirror` completes it once, so that results are symmetric to the
last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.blas import dsyr2k, dsyrk

from bagwise._utils.threads import run_over_ranges
from bagwise.merging._scatter_kernels import add_low_rank_rows, add_sparse_product_rows, mirror_rows

# Temporary copies of dense data are made for this many bytes at a time.
_BLOCK_BYTES = 32 * 2**20
# Up to this rank a plain loop is as fast as a BLAS, and keeps equal words equal.
_LOW_RANK = 16


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Cut the rows of a dense matrix into blocks of limited size."""
    step = max(_BLOCK_BYTES // max(8 * n_columns, 1), 1)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def add_gram(out: NDArray[np.float64], F: NDArray[np.float64], scale: float = 1.0, n_threads: int = 1) -> None:
    """``out += scale * F.T @ F`` (upper triangle), F dense with one row a component."""
    F = np.ascontiguousarray(F, dtype=np.float64)
    if len(F) <= _LOW_RANK:
        run_over_ranges(lambda start, stop: add_low_rank_rows(out, F, scale, start, stop), len(out), n_threads)
    elif F.size:
        dsyrk(scale, F.T, beta=1.0, c=out.T, lower=1, overwrite_c=1)


def add_symmetric_product(
    out: NDArray[np.float64], F: NDArray[np.float64], G: NDArray[np.float64], scale: float = 1.0
) -> None:
    """``out += scale * (F.T @ G + G.T @ F) / 2`` (upper triangle), both dense."""
    if F.size:
        F, G = np.ascontiguousarray(F, dtype=np.float64), np.ascontiguousarray(G, dtype=np.float64)
        dsyr2k(0.5 * scale, F.T, G.T, beta=1.0, c=out.T, lower=1, overwrite_c=1)


def add_sparse_product(out: NDArray[np.float64], left: Any, right: Any, scale: float = 1.0, n_threads: int = 1) -> None:
    """``out += scale * left.T @ right`` (upper triangle) for sparse matrices with one row a sample.

    The product must be a symmetric matrix.
    """
    left = sp.csr_array(sp.csc_array(left).T)
    if scale != 1.0:
        left = left * scale
    right = sp.csr_array(right)
    left.sort_indices()
    right.sort_indices()
    lists = (left.indptr, left.indices, left.data, right.indptr, right.indices, right.data)

    def fill(start: int, stop: int) -> None:
        add_sparse_product_rows(out, *lists, start, stop)

    run_over_ranges(fill, len(out), n_threads)


def mirror(out: NDArray[np.float64], n_threads: int = 1) -> None:
    """Copy the upper triangle to the lower one."""
    run_over_ranges(lambda start, stop: mirror_rows(out, start, stop), len(out), n_threads)


def is_integer_valued(X: NDArray[np.float64]) -> bool:
    """Whether all sums of products of two columns are whole numbers that float64 holds exactly."""
    if X.size == 0:
        return True
    largest = max(abs(float(X.max())), abs(float(X.min())))
    if not largest**2 * len(X) < 2.0**53:
        return False
    return all(np.array_equal(X[rows], np.rint(X[rows])) for rows in row_blocks(*X.shape))
