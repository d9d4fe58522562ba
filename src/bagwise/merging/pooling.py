"""Turning histograms of words into histograms of groups, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError, unknown_name

__all__ = ["POOLINGS", "pool", "spread"]

POOLINGS = ("sum", "mean", "sqrt")


def pool_factors(sizes: NDArray[np.int64], pooling: str) -> NDArray[np.float64]:
    """What the sum over a group of each size is multiplied by."""
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
    signs: NDArray[np.int8] | None = None,
    sizes: NDArray[np.int64] | None = None,
) -> Any:
    """Add up the words of each group: dense to dense, CSR to CSR, float32 stays float32.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_words)
    labels : ndarray of shape (n_words,)
        Group of each word.
    n_groups : int
    pooling : {"sum", "mean", "sqrt"}
        "sum", the sum divided by the size of the group, or by the root of the size.
    signs : ndarray of shape (n_words,), default=None
        1 or -1 for each word: what it is multiplied by before. None: 1 for all.
    sizes : ndarray of shape (n_groups,), default=None
        What counts as the size of each group. None: its number of words.
    """
    from bagwise.merging._pooling_kernels import pool_dense, pool_sparse

    if X.shape[1] != len(labels):
        raise BagwiseError(f"X has {X.shape[1]} words, but there are groups for {len(labels)}.")
    factors = pool_factors(np.bincount(labels, minlength=n_groups) if sizes is None else sizes, pooling)
    if not sp.issparse(X):
        out = np.empty((X.shape[0], n_groups), dtype=X.dtype)
        pool_dense(X, labels, factors, out, signs)
        return out
    if n_groups <= 2**16:
        labels = labels.astype(np.uint16)  # a table that stays in the innermost cache
    room = min(X.nnz, X.shape[0] * n_groups) + 1
    starts = np.empty(X.shape[0] + 1, dtype=X.indptr.dtype)
    groups = np.empty(room, dtype=X.indices.dtype)
    values = np.empty(room, dtype=X.dtype)
    pool_sparse(X.indptr, X.indices, X.data, labels, factors, starts, groups, values, signs)
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
    signs: NDArray[np.int8] | None = None,
    sizes: NDArray[np.int64] | None = None,
) -> Any:
    """Spread the values of groups evenly over their words, so that pooling again gives the same values."""
    n_members = np.bincount(labels)
    shares = 1.0 / (pool_factors(n_members if sizes is None else sizes, pooling) * n_members)
    if not sp.issparse(Z):
        words = (Z * shares.astype(Z.dtype))[:, labels]
        if signs is not None:
            words *= signs
        return words
    n_words = len(labels)
    weights = (shares[labels] if signs is None else shares[labels] * signs).astype(Z.dtype)
    to_words = sp.csr_array((weights, (labels, np.arange(n_words))), shape=(len(n_members), n_words))
    form = sp.csr_array if isinstance(Z, sp.sparray) else sp.csr_matrix
    return form(sp.csr_array(Z) @ to_words)
