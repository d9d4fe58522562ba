"""Compiled code of stores that compute rows of A and B when they are needed.

Columns of the data are gathered into groups by linked lists: a group in slot i has the columns ``first[i]``,
``following[first[i]]`` and so on until -1. ``slot_of`` gives the slot of each column.
"""

import numpy as np
from numba import njit

# If a group occurs in more than this fraction of the samples, all samples are scanned.
_CROWDED = 0.125


@njit(cache=True, nogil=True)
def weighted_dot(left, right, weight):
    """The entry that `add_low_rank_row` adds, to the last bit."""
    total = 0.0
    for c in range(left.shape[0]):
        total += weight * (left[c] * right[c])
    return total


@njit(cache=True, nogil=True)
def gather(slot, first, following, starts, samples, values, sums, seen, found_samples, found_values):
    """Compute the sum of the columns of a group as its non-zeros, sorted by sample; returns their number.

    `sums` and `seen` are scratch of one entry per sample, zero before and after.
    """
    n = 0
    column = first[slot]
    while column >= 0:
        for p in range(starts[column], starts[column + 1]):
            sample = samples[p]
            sums[sample] += values[p]
            if not seen[sample]:
                seen[sample] = True
                found_samples[n] = sample
                n += 1
        column = following[column]
    if n > _CROWDED * seen.shape[0]:
        n = 0
        for sample in range(seen.shape[0]):
            if seen[sample]:
                found_samples[n] = sample
                n += 1
    else:
        found_samples[:n].sort()
    for k in range(n):
        sample = found_samples[k]
        found_values[k] = sums[sample]
        sums[sample] = 0.0
        seen[sample] = False
    return n


@njit(cache=True, nogil=True)
def add_sparse_row(out, samples, factors, starts, columns, values, slot_of, weight):
    """Add ``weight * factors @ right[samples]`` to `out`, a column at its slot.

    Cost: one addition for each non-zero in these samples.
    """
    for k in range(samples.shape[0]):
        sample = samples[k]
        factor = weight * factors[k]
        for q in range(starts[sample], starts[sample + 1]):
            out[np.uint32(slot_of[np.uint32(columns[q])])] += factor * values[q]


@njit(cache=True, nogil=True)
def sparse_dot(samples, values, other_samples, other_values, sums):
    """``Σ_i x_i y_i`` of two sparse vectors; `sums` is scratch of one entry per sample, zero before and after."""
    for k in range(samples.shape[0]):
        sums[samples[k]] = values[k]
    total = 0.0
    for k in range(other_samples.shape[0]):
        total += sums[other_samples[k]] * other_values[k]
    for k in range(samples.shape[0]):
        sums[samples[k]] = 0.0
    return total


@njit(cache=True, nogil=True)
def join_groups(s, t, first, last, following, slot_of):
    """Put the columns of slot t after those of slot s. Cost: the columns of t."""
    column = first[t]
    while column >= 0:
        slot_of[column] = s
        column = following[column]
    following[last[s]] = first[t]
    last[s] = last[t]
    first[t] = -1
    last[t] = -1


@njit(cache=True, nogil=True)
def replay(row, merges):
    """Apply later merges of other slots to a row: ``row[s] += row[t]`` for each."""
    for k in range(merges.shape[0]):
        row[merges[k, 0]] += row[merges[k, 1]]
