"""From histograms of words to histograms of groups, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import device_module, is_on_device
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["POOLINGS", "pool", "spread"]

POOLINGS = ("sum", "mean", "sqrt")
# Up to this many groups, compiled code goes through all of them for each row.
FEW_GROUPS = 256
# Rows that are pooled in NumPy.
_FEW_ROWS = 4


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
) -> Any:
    """Add up the words of each group: dense to dense, CSR to CSR, float32 stays float32; on a device if X is there.

    The result, of shape (n_samples, n_groups), holds sums, or with "mean" and "sqrt" the sums divided by the
    size of the group or its square root. `labels` is the group of each word, `weights` its factor, `shift` what is
    subtracted from its values before, `sizes` what counts as the size of each group; by default its number of words.
    """
    if X.shape[1] != len(labels):
        raise BagwiseError(f"X has {X.shape[1]} words, but there are groups for {len(labels)}.")
    if is_on_device(X):
        xp = device_module(None, X)
        counted = np.maximum(np.bincount(labels, minlength=n_groups), 1) if sizes is None else sizes
        in_group = xp.zeros((len(labels), n_groups), dtype=X.dtype)
        in_group[xp.arange(len(labels)), xp.asarray(labels)] = 1.0 if weights is None else xp.asarray(weights)
        moved = X if shift is None else X - xp.asarray(shift, dtype=X.dtype)
        return (moved @ in_group) * xp.asarray(pool_factors(counted, pooling), dtype=X.dtype)
    if shift is not None and shift.any():
        if sp.issparse(X):  # zeros become shifts: the sums of groups are dense, the words need not be
            moved = pool(shift[np.newaxis], labels, n_groups, pooling, weights=weights, sizes=sizes)
            pooled = pool(X, labels, n_groups, pooling, weights=weights, sizes=sizes)
            return type(pooled)((pooled.toarray() - moved).astype(X.dtype))
        X = (X - shift).astype(X.dtype, copy=False)
    factors = pool_factors(np.maximum(np.bincount(labels, minlength=n_groups), 1) if sizes is None else sizes, pooling)
    if weights is None and X.shape[0] <= _FEW_ROWS:
        return _pool_rows(X, labels, factors)
    from bagwise.merging._kernels import pool_dense, pool_sparse  # deferred: compiled code takes long to load

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
    return _as_rows(X, values[:filled], groups[:filled], starts, n_groups)


def _as_rows(X: Any, values: NDArray[Any], groups: NDArray[Any], starts: NDArray[Any], n_groups: int) -> Any:
    """Return groups, rising in each row, and their values as CSR of the form of X."""
    form = sp.csr_array if isinstance(X, sp.sparray) else sp.csr_matrix
    pooled = form((values, groups, starts), shape=(X.shape[0], n_groups), copy=False)
    pooled.has_sorted_indices = True
    pooled.has_canonical_format = True
    return pooled


def _pool_rows(X: Any, labels: NDArray[np.int64], factors: NDArray[np.float64]) -> Any:
    """Do what `pool_dense` and `pool_sparse` do with a few rows, in the same order of sums, so to the last bit."""
    n_groups = len(factors)
    if not sp.issparse(X):
        out = np.empty((X.shape[0], n_groups), dtype=X.dtype)
        for i in range(len(out)):
            out[i] = factors * np.bincount(labels, X[i], n_groups)
        return out
    values, groups, starts = [], [], [0]
    for i in range(X.shape[0]):
        row = slice(X.indptr[i], X.indptr[i + 1])
        group, n_sums = labels[X.indices[row]], 4 if n_groups <= FEW_GROUPS else 1
        turns = np.arange(len(group)) % n_sums
        turns[len(group) - len(group) % n_sums :] = 0  # compiled code has four sums for each of a few groups
        parts = np.bincount(turns * n_groups + group, X.data[row], n_sums * n_groups).reshape(n_sums, n_groups)
        sums = (parts[0] + parts[1]) + (parts[2] + parts[3]) if n_sums == 4 else parts[0]
        groups.append(np.flatnonzero(sums))
        values.append((factors * sums)[groups[-1]].astype(X.dtype))
        starts.append(starts[-1] + len(groups[-1]))
    joined = np.concatenate(groups).astype(X.indices.dtype) if groups else np.empty(0, X.indices.dtype)
    joined_values = np.concatenate(values) if values else np.empty(0, X.dtype)
    return _as_rows(X, joined_values, joined, np.array(starts, X.indptr.dtype), n_groups)


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
    if shift is not None and shift.any():
        dense = Z.toarray() if sp.issparse(Z) else Z
        words = (dense[:, labels] * shares + shift).astype(Z.dtype)
        return type(Z)(words) if sp.issparse(Z) else words
    shares = shares.astype(Z.dtype)
    if not sp.issparse(Z):
        return Z[:, labels] * shares
    n_words = len(labels)
    to_words = sp.csr_array((shares, (labels, np.arange(n_words))), shape=(len(n_members), n_words))
    form = sp.csr_array if isinstance(Z, sp.sparray) else sp.csr_matrix
    return form(sp.csr_array(Z) @ to_words)
