"""From histograms of words to histograms of groups, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError, unknown_name

__all__ = ["POOLINGS", "pool", "spread"]

POOLINGS = ("sum", "mean", "sqrt")


def pool_factors(sizes: NDArray[np.int64], pooling: str) -> NDArray[np.float64]:
    """Factor by which the sum over a group of each size is multiplied."""
    if pooling not in POOLINGS:
        raise unknown_name("pooling", pooling, POOLINGS)
    exponent = {"sum": 0.0, "mean": 1.0, "sqrt": 0.5}[pooling]
    return np.asarray(1.0 / sizes**exponent, dtype=np.float64)


def pool(
    X: Any,
    labels: NDArray[np.int64],
    n_groups: int,
    pooling: str = "sum",
    *,
    weights: NDArray[Any] | None = None,
    shift: NDArray[np.float64] | None = None,
    sizes: NDArray[np.int64] | None = None,
    n_cells: int = 1,
) -> Any:
    """Add up the words of each group: dense to dense, CSR to CSR, float32 stays float32.

    The result, of shape (n_samples, n_cells * n_groups), holds sums, or with "mean" and "sqrt" the sums divided by the
    size of the group or its square root. `labels` is the group of each word, `weights` its factor, `shift` what is
    subtracted from its values before, `sizes` what counts as the size of each group; by default its number of words.
    Columns of X are the words of the first cell of a spatial pyramid, of the second and so on, grouped in the same way
    in each of the `n_cells` cells.
    """
    from bagwise.merging._kernels import pool_dense, pool_sparse

    if n_cells > 1:
        labels = (np.arange(n_cells)[:, np.newaxis] * n_groups + labels).ravel()
        n_groups *= n_cells
        weights = None if weights is None else np.tile(weights, n_cells)
        shift = None if shift is None else np.tile(shift, n_cells)
        sizes = None if sizes is None else np.tile(sizes, n_cells)
    if X.shape[1] != len(labels):
        raise BagwiseError(f"X has {X.shape[1]} words, but there are groups for {len(labels)}.")
    if shift is not None:
        if sp.issparse(X):  # zeros become shifts: the sums of groups are dense, the words need not be
            moved = pool(shift[np.newaxis], labels, n_groups, pooling, weights=weights, sizes=sizes)
            pooled = pool(X, labels, n_groups, pooling, weights=weights, sizes=sizes)
            return type(pooled)((pooled.toarray() - moved).astype(X.dtype))
        X = (X - shift).astype(X.dtype, copy=False)
    factors = pool_factors(np.maximum(np.bincount(labels, minlength=n_groups), 1) if sizes is None else sizes, pooling)
    if not sp.issparse(X):
        out = np.empty((X.shape[0], n_groups), dtype=X.dtype)
        pool_dense(X, labels, factors, out, weights)
        return out
    if n_groups <= 2**16:
        labels = labels.astype(np.uint16)  # a table that stays in the innermost cache
    room = min(X.nnz, X.shape[0] * n_groups) + 1
    starts = np.empty(X.shape[0] + 1, dtype=X.indptr.dtype)
    groups = np.empty(room, dtype=X.indices.dtype)
    values = np.empty(room, dtype=X.dtype)
    pool_sparse(X.indptr, X.indices, X.data, labels, factors, starts, groups, values, weights)
    filled = int(starts[-1])
    form = sp.csr_array if isinstance(X, sp.sparray) else sp.csr_matrix
    pooled = form((values[:filled], groups[:filled], starts), shape=(X.shape[0], n_groups), copy=False)
    pooled.has_sorted_indices = True
    pooled.has_canonical_format = True
    return pooled


def spread(
    Z: Any,
    labels: NDArray[np.int64],
    pooling: str = "sum",
    *,
    weights: NDArray[Any] | None = None,
    shift: NDArray[np.float64] | None = None,
    sizes: NDArray[np.int64] | None = None,
) -> Any:
    """Distribute the values of groups evenly over their words, so that pooling again gives the same values.

    Words of weight zero get nothing. The parameters are those of `pool`.
    """
    n_members = np.bincount(labels, minlength=Z.shape[1])
    factors = pool_factors(np.maximum(n_members if sizes is None else sizes, 1), pooling)
    if weights is not None:
        n_members = np.bincount(labels[weights != 0], minlength=Z.shape[1])
    shares = (1.0 / (factors * np.maximum(n_members, 1)))[labels]
    if weights is not None:
        shares = np.divide(shares, weights, out=np.zeros_like(shares), where=weights != 0)
    if shift is not None:
        given = Z.toarray() if sp.issparse(Z) else Z
        words = (given[:, labels] * shares + shift).astype(Z.dtype)
        return type(Z)(words) if sp.issparse(Z) else words
    shares = shares.astype(Z.dtype)
    if not sp.issparse(Z):
        return Z[:, labels] * shares
    n_words = len(labels)
    to_words = sp.csr_array((shares, (labels, np.arange(n_words))), shape=(len(n_members), n_words))
    form = sp.csr_array if isinstance(Z, sp.sparray) else sp.csr_matrix
    return form(sp.csr_array(Z) @ to_words)
