"""Compiled code of a linear support vector machine that starts from where it was."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def solve_svm(X, y, C, alpha, w, tolerance, max_passes, seed):
    """Minimise ``|w|²/2 + C Σ max(0, 1 - y_i w·x_i)`` by coordinate ascent on the dual, from the given `alpha`.

    On entry and exit ``w = X.T @ (alpha * y)``. Stops when the projected gradients of a pass lie within
    `tolerance`; returns the number of passes and how far they lay apart in the last. Cost O(n d) a pass.
    """
    n, d = X.shape
    square = np.empty(n)
    for i in range(n):
        square[i] = 0.0
        for j in range(d):
            square[i] += X[i, j] * X[i, j]
    order = np.arange(n)
    state = np.uint64(seed)
    largest = 0.0
    smallest = 0.0
    for passes in range(max_passes):
        for i in range(n - 1, 0, -1):  # shuffle
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            k = np.int64((state >> np.uint64(33)) % np.uint64(i + 1))
            order[i], order[k] = order[k], order[i]
        largest = -np.inf
        smallest = np.inf
        for i in order:
            if square[i] == 0.0:
                continue
            gradient = -1.0
            for j in range(d):
                gradient += y[i] * w[j] * X[i, j]
            projected = gradient
            if alpha[i] == 0.0:
                projected = min(gradient, 0.0)
            elif alpha[i] == C:
                projected = max(gradient, 0.0)
            largest = max(largest, projected)
            smallest = min(smallest, projected)
            if projected != 0.0:
                new = min(max(alpha[i] - gradient / square[i], 0.0), C)
                step = (new - alpha[i]) * y[i]
                alpha[i] = new
                for j in range(d):
                    w[j] += step * X[i, j]
        if largest - smallest <= tolerance:
            return passes + 1, largest - smallest
    return max_passes, largest - smallest
