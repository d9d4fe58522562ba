"""Compiled code for adding up the words of a group."""

import numpy as np
from numba import njit

# Up to this many groups it pays to go through all of them for each row.
_FEW = 256


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
def _sum_row(words, values, labels, lanes):
    """Add the values of a row to their groups, in four lanes so that additions to a large group need not wait for
    each other; unsigned indices spare the check for counting from the end.
    """
    whole = words.shape[0] - words.shape[0] % 4
    for p in range(0, whole, 4):
        lanes[0, labels[np.uint64(words[p])]] += values[p]
        lanes[1, labels[np.uint64(words[p + 1])]] += values[p + 1]
        lanes[2, labels[np.uint64(words[p + 2])]] += values[p + 2]
        lanes[3, labels[np.uint64(words[p + 3])]] += values[p + 3]
    for p in range(whole, words.shape[0]):
        lanes[0, labels[np.uint64(words[p])]] += values[p]


@njit(cache=True, nogil=True)
def _join_lanes(lane0, lane1, lane2, lane3, sums):
    """``sums = lanes.sum(axis=0)``, and clear the lanes."""
    for g in range(sums.shape[0]):
        sums[g] = (lane0[g] + lane1[g]) + (lane2[g] + lane3[g])
    lane0[:] = 0.0
    lane1[:] = 0.0
    lane2[:] = 0.0
    lane3[:] = 0.0


@njit(cache=True, nogil=True)
def _keep_non_zero(sums, factors, out_groups, out_values, filled):
    """Append all groups whose sum is not zero; returns how many entries there are then.

    Always writes and sometimes keeps, which is cheaper than guessing which groups occur.
    """
    for g in range(sums.shape[0]):
        out_groups[filled] = g
        out_values[filled] = factors[g] * sums[g]
        filled += np.uint64(sums[g] != 0.0)
    return filled


@njit(cache=True, nogil=True)
def _pool_to_few(starts, words, values, labels, factors, out_starts, out_groups, out_values):
    """`pool_sparse` for few groups, most of which occur in a row."""
    lanes = np.zeros((4, factors.shape[0]))
    sums = np.zeros(factors.shape[0])
    filled = np.uint64(0)
    for i in range(starts.shape[0] - 1):
        _sum_row(words[starts[i] : starts[i + 1]], values[starts[i] : starts[i + 1]], labels, lanes)
        _join_lanes(lanes[0], lanes[1], lanes[2], lanes[3], sums)
        filled = _keep_non_zero(sums, factors, out_groups, out_values, filled)
        out_starts[i + 1] = filled


@njit(cache=True, nogil=True)
def _pool_to_many(starts, words, values, labels, factors, out_starts, out_groups, out_values):
    """`pool_sparse` for many groups: those that occur in a row are listed and, unless they are most of all, sorted."""
    n_groups = factors.shape[0]
    sums = np.zeros(n_groups)
    occurs = np.zeros(n_groups, dtype=np.bool_)
    touched = np.empty(n_groups + 1, dtype=np.int64)
    filled = np.uint64(0)
    for i in range(starts.shape[0] - 1):
        n_touched = np.uint64(0)
        for p in range(starts[i], starts[i + 1]):
            g = labels[np.uint64(words[p])]
            touched[n_touched] = g
            n_touched += np.uint64(not occurs[g])
            occurs[g] = True
            sums[g] += values[p]
        order = touched[:n_touched]
        if n_groups <= 8 * n_touched:
            filled = _keep_non_zero(sums, factors, out_groups, out_values, filled)
        else:
            order.sort()
            for g in order:
                out_groups[filled] = g
                out_values[filled] = factors[g] * sums[g]
                filled += np.uint64(sums[g] != 0.0)
        for g in order:
            sums[g] = 0.0
            occurs[g] = False
        out_starts[i + 1] = filled


@njit(cache=True, nogil=True)
def pool_sparse(starts, words, values, labels, factors, out_starts, out_groups, out_values):
    """`pool_dense` from CSR to CSR, groups in order, sums of exactly zero left out.

    The outputs need room for one entry more than there can be. Cost O(nnz) plus, for each row, the number of groups or
    the time to sort those that occur, whichever is less.
    """
    out_starts[0] = 0
    if factors.shape[0] <= _FEW:
        _pool_to_few(starts, words, values, labels, factors, out_starts, out_groups, out_values)
    else:
        _pool_to_many(starts, words, values, labels, factors, out_starts, out_groups, out_values)
