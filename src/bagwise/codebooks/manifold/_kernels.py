"""Compiled code of manifold-optimised words: pairs of histograms, and rows of soft assignments.

``chi2(a, b) = ½ Σ_k (a_k - b_k)² / (a_k + b_k)`` with 0/0 = 0; ``hellinger(a, b) = ½ Σ_k (√a_k - √b_k)²``.
"""

import numpy as np
from numba import njit

# Sums over bins are kept as this many partial sums, so that they become vector instructions.
_N_PARTIAL = 16
# The inverse of anything smaller overflows.
_TINY = np.finfo(np.float64).tiny


@njit(cache=True, nogil=True)
def _fill_inverse_sums(a, b, inverse):
    """``inverse = 1 / (a + b)``, 0 for two bins that are empty or nearly so."""
    for k in range(a.shape[0]):
        total = a[k] + b[k]
        inverse[k] = 1.0 / total if total >= _TINY else 0.0


@njit(cache=True, nogil=True)
def _chi2_from_inverse(a, b, inverse, partial):
    """The chi² distance of two histograms, given ``1 / (a + b)``."""
    partial[:] = 0.0
    whole = a.shape[0] - a.shape[0] % _N_PARTIAL
    for start in range(0, whole, _N_PARTIAL):
        part_a = a[start : start + _N_PARTIAL]
        part_b = b[start : start + _N_PARTIAL]
        part = inverse[start : start + _N_PARTIAL]
        for k in range(_N_PARTIAL):
            difference = part_a[k] - part_b[k]
            partial[k] += difference * difference * part[k]
    total = 0.0
    for k in range(whole, a.shape[0]):
        difference = a[k] - b[k]
        total += difference * difference * inverse[k]
    for k in range(_N_PARTIAL):
        total += partial[k]
    return 0.5 * total


@njit(cache=True, nogil=True)
def fill_chi2_rows(left, right, start, stop, out):
    """``out[i, j] = chi2(left[i], right[j])`` for the rows ``start..stop``. Cost O(K) an entry."""
    inverse = np.empty(left.shape[1])
    partial = np.empty(_N_PARTIAL)
    for i in range(start, stop):
        for j in range(right.shape[0]):
            _fill_inverse_sums(left[i], right[j], inverse)
            out[i, j] = _chi2_from_inverse(left[i], right[j], inverse, partial)


@njit(cache=True, nogil=True)
def _is_held_out(pair, threshold):
    """Whether a pair is kept for validation: a hash of its number (SplitMix64) below a threshold."""
    z = np.uint64(pair) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)) < threshold


@njit(cache=True, nogil=True)
def _add_pair_gradient(a, b, inverse, slope, out_a, out_b):
    """Add ``slope * ∂(2 chi2)/∂a`` to `out_a`, and the same for b."""
    for k in range(a.shape[0]):
        common = slope * (a[k] - b[k]) * inverse[k] * inverse[k]
        out_a[k] += common * (a[k] + 3.0 * b[k])
        out_b[k] -= common * (b[k] + 3.0 * a[k])


@njit(cache=True, nogil=True)
def add_pairs(T, target, sigma, threshold, start, stop, gradient, sums):
    """Objective and gradient over the pairs (l, i), l in ``start..stop``, i < l.

    With ``w = exp(-chi2(T[l], T[i]) / sigma)`` adds ``(w - target[l, i])²`` to ``sums[0]``, or to ``sums[1]`` for pairs
    held out, which do not enter the gradient; that is ``∂/∂T`` of the first sum. Cost O(K) a pair, one division a bin.
    """
    inverse = np.empty(T.shape[1])
    partial = np.empty(_N_PARTIAL)
    for l in range(start, stop):
        for i in range(l):
            _fill_inverse_sums(T[l], T[i], inverse)
            similarity = np.exp(-_chi2_from_inverse(T[l], T[i], inverse, partial) / sigma)
            error = similarity - target[l, i]
            if threshold > 0 and _is_held_out(l * T.shape[0] + i, threshold):
                sums[1] += error * error
            else:
                sums[0] += error * error
                slope = -error * similarity / sigma
                _add_pair_gradient(T[l], T[i], inverse, slope, gradient[l], gradient[i])


@njit(cache=True, nogil=True)
def turn_into_slopes(products, halves, target, sigma, threshold, start, sums):
    """Turn ``Σ_k √(T[l, k] T[i, k])`` into slopes of the objective, in place: rows l from `start` on, all i.

    `halves` are ½ Σ_k T[i, k]. The slope is ``-(w - target) w / sigma`` with ``w = exp(-hellinger(T[l], T[i]) /
    sigma)``, and 0 for pairs held out. Errors of pairs with i < l are summed as by `add_pairs`. Cost O(1) a pair.
    """
    n = products.shape[1]
    for r in range(products.shape[0]):
        l = start + r
        for i in range(n):
            distance = max(halves[l] + halves[i] - products[r, i], 0.0)
            similarity = np.exp(-distance / sigma)
            error = similarity - target[l, i]
            products[r, i] = -error * similarity / sigma
            if i == l:
                products[r, i] = 0.0
            elif threshold > 0 and _is_held_out(max(l, i) * n + min(l, i), threshold):
                products[r, i] = 0.0
                if i < l:
                    sums[1] += error * error
            elif i < l:
                sums[0] += error * error


@njit(cache=True, nogil=True)
def _lowest(row, partial):
    """The smallest number of a row."""
    partial[:] = np.inf
    whole = row.shape[0] - row.shape[0] % _N_PARTIAL
    for start in range(0, whole, _N_PARTIAL):
        part = row[start : start + _N_PARTIAL]
        for k in range(_N_PARTIAL):
            partial[k] = part[k] if part[k] < partial[k] else partial[k]
    lowest = np.inf
    for k in range(whole, row.shape[0]):
        lowest = min(lowest, row[k])
    for k in range(_N_PARTIAL):
        lowest = min(lowest, partial[k])
    return lowest


@njit(cache=True, nogil=True)
def finish_distances(products, row_squares, word_squares, bandwidth, exponents):
    """Turn ``-2 x·v`` into distances, in place, and write ``(nearest distance - distance) / bandwidth``."""
    partial = np.empty(_N_PARTIAL)
    for r in range(products.shape[0]):
        row = products[r]
        row_square = row_squares[r]
        for k in range(row.shape[0]):
            square = (row_square + word_squares[k]) + row[k]
            row[k] = np.sqrt(square) if square > 0.0 else 0.0
        nearest = _lowest(row, partial)
        out = exponents[r]
        for k in range(row.shape[0]):
            out[k] = (nearest - row[k]) / bandwidth


@njit(cache=True, nogil=True)
def finish_softmax(U):
    """Divide each row by its sum, in place."""
    partial = np.empty(_N_PARTIAL)
    for r in range(U.shape[0]):
        row = U[r]
        partial[:] = 0.0
        whole = row.shape[0] - row.shape[0] % _N_PARTIAL
        for start in range(0, whole, _N_PARTIAL):
            part = row[start : start + _N_PARTIAL]
            for k in range(_N_PARTIAL):
                partial[k] += part[k]
        total = 0.0
        for k in range(whole, row.shape[0]):
            total += row[k]
        for k in range(_N_PARTIAL):
            total += partial[k]
        for k in range(row.shape[0]):
            row[k] /= total


@njit(cache=True, nogil=True)
def pull_back_rows(U, distances, G, bag_of, scale, out):
    """``out = scale[bag] * U * (G - Σ_k U G) / distances`` row by row, G and scale those of the row's bag.

    That is the gradient with respect to the distances, over the distances; 0 where a word lies on a feature.
    """
    for r in range(U.shape[0]):
        weights = G[bag_of[r]]
        mean = 0.0
        for k in range(U.shape[1]):
            mean += U[r, k] * weights[k]
        factor = scale[bag_of[r]]
        for k in range(U.shape[1]):
            distance = distances[r, k]
            slope = U[r, k] * (weights[k] - mean) * factor
            out[r, k] = slope / distance if distance > 1e-12 else 0.0
