"""Compiled code for adding up the words of a group."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def pool_dense(X, labels, factors, out):
    """``out[i, g] = factors[g] * X[i, labels == g].sum()``. Cost O(n d)."""
    sums = np.empty(out.shape[1])
    for i in range(X.shape[0]):
        sums[:] = 0.0
        for j in range(X.shape[1]):
            sums[labels[j]] += X[i, j]
        for g in range(out.shape[1]):
            out[i, g] = factors[g] * sums[g]


@njit(cache=True, nogil=True)
def pool_sparse(starts, words, values, labels, factors, out_starts, out_groups, out_values):
    """`pool_dense` from CSR to CSR with sorted groups; the outputs must have room. Cost O(nnz), and at most a few
    times that for ordering the groups of a row.
    """
    n_groups = factors.shape[0]
    sums = np.empty(n_groups)
    last_row = np.full(n_groups, -1, dtype=np.int64)
    touched = np.empty(n_groups, dtype=np.int64)
    filled = 0
    out_starts[0] = 0
    for i in range(starts.shape[0] - 1):
        n_touched = 0
        for p in range(starts[i], starts[i + 1]):
            g = labels[words[p]]
            if last_row[g] == i:
                sums[g] += values[p]
            else:
                last_row[g] = i
                sums[g] = values[p]
                touched[n_touched] = g
                n_touched += 1
        if n_groups <= 8 * n_touched:  # going through all groups is cheaper than sorting
            for g in range(n_groups):
                if last_row[g] == i:
                    out_groups[filled] = g
                    out_values[filled] = factors[g] * sums[g]
                    filled += 1
        else:
            order = touched[:n_touched]
            order.sort()
            for g in order:
                out_groups[filled] = g
                out_values[filled] = factors[g] * sums[g]
                filled += 1
        out_starts[i + 1] = filled
