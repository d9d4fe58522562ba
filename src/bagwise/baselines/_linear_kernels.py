"""Compiled loops of the confidence-weighted classifier."""

from math import sqrt

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def step_size(margin, variance, phi):
    """How far to move so that the margin is phi times its variance; 0 if it is at least that already.

    The positive root of ``2 phi V a² + (1 + 2 phi M) a + M - phi V``, for phi and V above 0:
    ``(sqrt((1 + 2 phi M)² - 8 phi (M - phi V)) - (1 + 2 phi M)) / (4 phi V)``. What is under the root is a sum of
    squares, and where both terms of the difference are alike the other form of the root is taken.
    """
    if margin >= phi * variance:
        return 0.0
    linear = 1.0 + 2.0 * phi * margin
    root = sqrt((1.0 - 2.0 * phi * margin) ** 2 + 8.0 * phi * phi * variance)
    if linear > 0.0:
        return 2.0 * (phi * variance - margin) / (variance * (linear + root))
    return (root - linear) / (4.0 * phi * variance)


@njit(cache=True, nogil=True)
def confidence_weighted_pass(
    indptr, indices, data, dense, order, codes, positive, phi, intercept, mean, variance, drift, n_before
):
    """Go through the samples once, in the given order, and update one class's weights in place.

    A dense row is a sparse row that has all columns: ``indices`` is then ``arange(d)``, for every row the same.
    ``mean`` and ``variance`` have one number more than there are columns, for the intercept. ``drift`` adds up
    ``t * (change of the mean at step t)``, from which the mean over all steps follows; it may be empty.

    NumPy equivalent of a step, for a dense row x with label s = 1 or -1: ``a = step_size(s * mean @ x, variance @ x**2,
    phi); mean += a * s * variance * x; variance = 1 / (1 / variance + 2 * a * phi * x**2)``. O(non-zeros).
    """
    last = len(mean) - 1
    averaging = len(drift) > 0
    n_updates = 0
    for t in range(len(order)):
        i = order[t]
        start, stop = indptr[i], indptr[i + 1]
        shift = start if dense else 0
        margin = mean[last] if intercept else 0.0
        spread = variance[last] if intercept else 0.0
        for k in range(start, stop):
            column = indices[k - shift]
            value = np.float64(data[k])
            margin += mean[column] * value
            spread += variance[column] * value * value
        if not spread > 0.0:  # an empty sample says nothing
            continue
        sign = 1.0 if codes[i] == positive else -1.0
        size = step_size(sign * margin, spread, phi)
        if size == 0.0:
            continue
        n_updates += 1
        move = sign * size
        shrink = 2.0 * size * phi
        moment = np.float64(n_before + t)
        for k in range(start, stop):
            column = indices[k - shift]
            value = np.float64(data[k])
            old = variance[column]
            change = move * old * value
            mean[column] += change
            variance[column] = old / (1.0 + shrink * value * value * old)
            if averaging:
                drift[column] += moment * change
        if intercept:
            old = variance[last]
            change = move * old
            mean[last] += change
            variance[last] = old / (1.0 + shrink * old)
            if averaging:
                drift[last] += moment * change
    return n_updates
