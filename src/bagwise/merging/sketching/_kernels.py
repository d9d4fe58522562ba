"""Compiled code of sketches: hashed coefficients of samples, and adding samples to the rows of features.

Values are added to an entry of a sketch in the order of the samples, whatever the chunks, blocks and threads, so that
results are the same to the last bit.
"""

import numpy as np
from numba import njit

from bagwise._utils.hashing import FOR_SIGNS, PER_HASH, STEP

_STEP = np.uint64(STEP)
_PER_HASH = np.uint64(PER_HASH)
_FOR_SIGNS = np.uint64(FOR_SIGNS)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _63 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(63)


@njit(cache=True, nogil=True)
def mix(state):
    """``bagwise._utils.hashing.hashes(1, state)[0]``."""
    z = state + _STEP
    z = (z ^ (z >> _30)) * _MULTIPLIER_1
    z = (z ^ (z >> _27)) * _MULTIPLIER_2
    return z ^ (z >> _31)


@njit(cache=True, nogil=True)
def _add_hashes(state, n_hashes, out):
    """Add the signs of one sample at its hashes: ``out[row(m)] += sign(m)`` for every hash m."""
    size = np.uint64(out.shape[0])
    for _ in range(n_hashes):
        row = mix(state) % size
        if mix(state + _FOR_SIGNS) >> _63:
            out[row] -= 1
        else:
            out[row] += 1
        state += _PER_HASH


@njit(cache=True, nogil=True)
def hashed_coefficients(first_state, n_hashes, out):
    """Fill ``out[i]`` with the coefficients of the sample whose hashes begin at ``first_state + i``.

    `first_state` is a uint64; `out` is samples x size. Cost O(size + n_hashes) a sample.
    """
    out[:] = 0
    for i in range(out.shape[0]):
        _add_hashes(first_state + np.uint64(i), n_hashes, out[i])


@njit(cache=True, nogil=True)
def neighbor_coefficients(first_state, n_hashes, starts, neighbors, first_row, out):
    """Fill ``out[j]`` with the sum of the coefficients of the samples listed in row ``first_row + j`` of a CSR graph.

    NumPy: ``out = graph[first_row : first_row + len(out)] @ all_coefficients``. Cost O(size) a row and
    O(n_hashes) an edge; the coefficients of all samples are never kept.
    """
    out[:] = 0
    for j in range(out.shape[0]):
        for p in range(starts[first_row + j], starts[first_row + j + 1]):
            _add_hashes(first_state + np.uint64(neighbors[p]), n_hashes, out[j])


@njit(cache=True, nogil=True)
def sort_by_feature(starts, features, values, first, last, ends, samples, sorted_values):
    """Sort the entries of the CSR rows ``first..last`` by feature, in each feature by sample.

    Afterwards the entries of feature f lie before ``ends[f]`` and from ``ends[f - 1]`` on; `samples` count from
    `first`. A counting sort, as SciPy's conversion to CSC. Cost O(n_features + entries).
    """
    ends[:] = 0
    for p in range(starts[first], starts[last]):
        ends[features[p]] += 1
    total = 0
    for f in range(ends.shape[0]):
        count = ends[f]
        ends[f] = total  # for now the place of the next entry
        total += count
    for i in range(first, last):
        for p in range(starts[i], starts[i + 1]):
            end = ends[features[p]]
            samples[end] = i - first
            sorted_values[end] = values[p]
            ends[features[p]] = end + 1


@njit(cache=True, nogil=True)
def _add_scaled(row, coefficients, value):
    """``row += value * coefficients``; vectorised, which is faster than updating a few entries."""
    for k in range(row.shape[0]):
        row[k] += value * coefficients[k]


@njit(cache=True, nogil=True)
def add_sorted(ends, samples, values, coefficients, sums, totals, n_active, smallest, largest, start, stop):
    """Add sorted entries (see `sort_by_feature`) to the features ``start..stop``.

    NumPy: ``sums += X.T @ coefficients``, ``totals += X.sum(axis=0)``, ``n_active += (X != 0).sum(axis=0)``, and the
    extremes of the entries that are not zero. Values are rounded to the type of `sums` for these alone. Cost O(size) an
    entry; each row of `sums` is fetched once a block.
    """
    p = ends[start - 1] if start > 0 else 0
    for f in range(start, stop):
        row = sums[f]
        while p < ends[f]:
            value = values[p]
            if value != 0:
                _add_scaled(row, coefficients[samples[p]], row.dtype.type(value))
                totals[f] += value
                n_active[f] += 1
                smallest[f] = min(smallest[f], value)
                largest[f] = max(largest[f], value)
            p += 1


@njit(cache=True, nogil=True)
def add_dense(X, coefficients, sums, totals, n_active, smallest, largest, start, stop):
    """`add_sorted` for a dense block of samples, with the same additions in the same order."""
    for f in range(start, stop):
        row = sums[f]
        for i in range(X.shape[0]):
            value = X[i, f]
            if value != 0:
                _add_scaled(row, coefficients[i], row.dtype.type(value))
                totals[f] += value
                n_active[f] += 1
                smallest[f] = min(smallest[f], value)
                largest[f] = max(largest[f], value)


@njit(cache=True, nogil=True)
def centre_rows(sums, coefficient_sums, means, constant, out):
    """``out = np.where(constant[:, None], 0, sums - means[:, None] * coefficient_sums)``, computed in float64.

    Cost O(n_features size).
    """
    for f in range(sums.shape[0]):
        if constant[f]:
            out[f] = 0
        else:
            for k in range(sums.shape[1]):
                out[f, k] = np.float64(sums[f, k]) - means[f] * coefficient_sums[k]
