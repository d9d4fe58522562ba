"""Compiled code for clustering signatures: bringing rows into a common form, and sums over clusters."""

import numpy as np
from numba import njit

from bagwise.merging.sketching._sketch_kernels import mix


@njit(cache=True, nogil=True)
def normalise_rows(points, factor, mirror, signs, words, hashes):
    """Multiply all rows by `factor`, if `mirror` also by the sign of their first value, and hash them. In place.

    Rows that are equal, or with `mirror` each other's negative, have equal bytes afterwards. `signs` receives 1 or -1,
    and 0 for rows of zeros alone. `words` is `points` seen as unsigned integers. Cost O(n size).
    """
    for i in range(points.shape[0]):
        row = points[i]
        sign = 0
        for k in range(row.shape[0]):
            if row[k] != 0:
                sign = -1 if mirror and row[k] < 0 else 1
                break
        signs[i] = sign
        scale = -factor if sign < 0 else factor
        state = np.uint64(0)
        for k in range(row.shape[0]):
            row[k] = scale * row[k] + 0.0  # -0 becomes 0
            state = mix(state ^ np.uint64(words[i, k]))
        hashes[i] = state


@njit(cache=True, nogil=True)
def equal_rows(points, others):
    """``(points == points[others]).all(axis=1)`` without the copy. Cost O(n size)."""
    equal = np.ones(points.shape[0], dtype=np.bool_)
    for i in range(points.shape[0]):
        for k in range(points.shape[1]):
            if points[i, k] != points[others[i], k]:
                equal[i] = False
                break
    return equal


@njit(cache=True, nogil=True)
def cluster_sums(points, weights, labels, signs, sums, masses):
    """Add weighted points to the sums of their clusters, and weights to their masses, in float64.

    NumPy: ``np.add.at(sums, labels, (weights * signs)[:, None] * points)``, ``np.add.at(masses, labels, weights)``.
    Cost O(n size).
    """
    for i in range(points.shape[0]):
        weight = weights[i] * signs[i]
        total = sums[labels[i]]
        for k in range(points.shape[1]):
            total[k] += weight * points[i, k]
        masses[labels[i]] += weights[i]
