"""Compiled code of codebooks: sums by word, codes of few words, and pooling into histograms."""

import numpy as np
from numba import njit

# Steps of coordinate descent between two exact ones.
_POLISH_EVERY = 16
# Bounds that are looked at together.
_TOGETHER = 64
# Terms of a sum in any order, so that processors add many at once: the same for the same machine.
_ANY_ORDER = {"reassoc", "contract", "nsz"}


@njit(cache=True, nogil=True)
def cluster_sums(points, weights, labels, signs, sums, masses):
    """Add weighted points to the sums of their clusters, and weights to their masses, in float64.

    NumPy: ``np.add.at(sums, labels, (weights * signs)[:, None] * points)``, ``np.add.at(masses, labels, weights)``.
    Cost O(n D).
    """
    for i in range(points.shape[0]):
        weight = weights[i] * signs[i]
        total = sums[labels[i]]
        for k in range(points.shape[1]):
            total[k] += weight * points[i, k]
        masses[labels[i]] += weights[i]


@njit(cache=True, nogil=True, fastmath=_ANY_ORDER)
def _squared_distance(point, centre):
    total = point.dtype.type(0)
    for k in range(point.shape[0]):
        apart = point[k] - centre[k]
        total += apart * apart
    return total


@njit(cache=True, nogil=True)
def _some_below(bounds, limit):
    below = 0
    for k in range(bounds.shape[0]):
        below += bounds[k] < limit
    return below > 0


@njit(cache=True, nogil=True)
def nearest_by_bounds(points, squares, centres, bounds, epsilon, largest, labels):
    """``labels = ((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)``, the lowest number of equals.

    `bounds` are, up to ``epsilon * (|x|² + largest)``, at most ``|x - c|² - |x|²``; `labels` the centres to begin with,
    or -1. Cost O(n K), and O(D) for each centre whose bound is below the least distance found.
    """
    n_centres = centres.shape[0]
    for i in range(points.shape[0]):
        row, best = bounds[i], labels[i]
        if best < 0:
            best = np.argmin(row)
        distance = _squared_distance(points[i], centres[best])
        allowance = epsilon * (squares[i] + largest) - squares[i]
        limit = row.dtype.type(distance + allowance)
        for first in range(0, n_centres, _TOGETHER):
            last = min(first + _TOGETHER, n_centres)
            if not _some_below(row[first:last], limit):
                continue
            for k in range(first, last):
                if row[k] < limit and k != best:
                    other = _squared_distance(points[i], centres[k])
                    if other < distance or (other == distance and k < best):
                        distance, best = other, k
                        limit = row.dtype.type(distance + allowance)
        labels[i] = best


@njit(cache=True, nogil=True)
def nearer_by_bounds(points, squares, centres, bounds, epsilon, largest, distances):
    """``distances = minimum(distances, ((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1))``.

    `bounds` and the cost are as for `nearest_by_bounds`.
    """
    n_centres = centres.shape[0]
    for i in range(points.shape[0]):
        row, allowance = bounds[i], epsilon * (squares[i] + largest) - squares[i]
        limit = row.dtype.type(distances[i] + allowance)
        for first in range(0, n_centres, _TOGETHER):
            last = min(first + _TOGETHER, n_centres)
            if not _some_below(row[first:last], limit):
                continue
            for k in range(first, last):
                if row[k] < limit:
                    other = _squared_distance(points[i], centres[k])
                    if other < distances[i]:
                        distances[i] = other
                        limit = row.dtype.type(distances[i] + allowance)


@njit(cache=True, nogil=True)
def hash_rows(values, bits, hashes):
    """Hash rows, 0 as -0. `bits` is `values` seen as unsigned integers. Cost O(n D)."""
    for i in range(values.shape[0]):
        state = np.uint64(0x9E3779B97F4A7C15)
        for k in range(values.shape[1]):
            if values[i, k] != 0:
                state ^= np.uint64(bits[i, k])
            state *= np.uint64(0xBF58476D1CE4E5B9)
            state ^= state >> np.uint64(29)
        hashes[i] = state


@njit(cache=True, nogil=True)
def equal_rows(values, others):
    """``(values == values[others]).all(axis=1)`` without the copy. Cost O(n D)."""
    equal = np.ones(values.shape[0], dtype=np.bool_)
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            if values[i, k] != values[others[i], k]:
                equal[i] = False
                break
    return equal


@njit(cache=True, nogil=True)
def add_residuals(values, words, codebook, groups, out):
    """``np.add.at(out, (groups[:, g], words), values - codebook[words])`` for each column g. Cost O(n D) a column.

    `out` has shape (groups, words, D).
    """
    for i in range(values.shape[0]):
        word = words[i]
        for g in range(groups.shape[1]):
            target = out[groups[i, g], word]
            for k in range(values.shape[1]):
                target[k] += np.float64(values[i, k]) - np.float64(codebook[word, k])


@njit(cache=True, nogil=True)
def pool_dense(codes, groups, maximum, out):
    """``np.add.at(out, groups[:, g], codes)`` for each column g, or ``np.maximum.at``. Cost O(n K) a column."""
    for i in range(codes.shape[0]):
        for g in range(groups.shape[1]):
            target = out[groups[i, g]]
            if maximum:
                for k in range(codes.shape[1]):
                    target[k] = max(target[k], codes[i, k])
            else:
                for k in range(codes.shape[1]):
                    target[k] += codes[i, k]


@njit(cache=True, nogil=True)
def pool_sparse(starts, words, weights, groups, maximum, out):
    """`pool_dense` of codes in CSR form. Cost O(non-zeros) a column of groups."""
    for i in range(starts.shape[0] - 1):
        for g in range(groups.shape[1]):
            target = out[groups[i, g]]
            for p in range(starts[i], starts[i + 1]):
                if maximum:
                    target[words[p]] = max(target[words[p]], weights[p])
                else:
                    target[words[p]] += weights[p]


@njit(cache=True, nogil=True)
def nearest_few(products, norms, words, distances):
    """``d = products + norms; words = argsort(d, kind="stable")[:, :k]; distances = take_along_axis(d, words, 1)``.

    k is the width of `words`; `products` are overwritten by d. Cost O(n K) and O(k) for each word that enters the list.
    """
    k, n_words = words.shape[1], products.shape[1]
    for i in range(products.shape[0]):
        row, filled = products[i], 0
        for j in range(n_words):
            row[j] += norms[j]
        for first in range(0, n_words, _TOGETHER):
            last = min(first + _TOGETHER, n_words)
            if filled == k and not _some_below(row[first:last], distances[i, k - 1]):
                continue
            for j in range(first, last):
                distance = row[j]
                if filled == k and not distance < distances[i, k - 1]:
                    continue
                position = filled if filled < k else k - 1
                while position > 0 and distance < distances[i, position - 1]:
                    distances[i, position], words[i, position] = distances[i, position - 1], words[i, position - 1]
                    position -= 1
                distances[i, position], words[i, position] = distance, j
                filled = min(filled + 1, k)


@njit(cache=True, nogil=True)
def exact_few(values, codebook, words, distances):
    """``distances = ((values[:, None] - codebook[words]) ** 2).sum(axis=2)`` in float64, in the order of the numbers.

    Cost O(n k D).
    """
    for i in range(words.shape[0]):
        for p in range(words.shape[1]):
            word = words[i, p]
            total = 0.0
            for j in range(values.shape[1]):
                difference = np.float64(values[i, j]) - np.float64(codebook[word, j])
                total += difference * difference
            distances[i, p] = total


@njit(cache=True, nogil=True)
def _soft_threshold(value, threshold):
    if value > threshold:
        return value - threshold
    if value < -threshold:
        return value + threshold
    return 0.0


@njit(cache=True, nogil=True)
def _polish(gram, products, threshold, code, slopes):
    """Go towards the minimum with the signs of `code` kept, until it is reached or a code becomes 0.

    ``u_A = solve(G_AA, q_A - threshold sign(u_A))`` for the words A that are used. Coordinate descent alone is slow
    where words are alike; this is exact, and never raises the objective.
    """
    used = np.flatnonzero(code)
    block = np.empty((used.shape[0], used.shape[0]))
    goal = np.empty(used.shape[0])
    for a in range(used.shape[0]):
        for b in range(used.shape[0]):
            block[a, b] = gram[used[a], used[b]]
        block[a, a] *= 1.0 + 1e-10  # more words than dimensions: any of the minima will do
        goal[a] = products[used[a]] - threshold * np.sign(code[used[a]])
    goal = np.linalg.solve(block, goal)
    share, first = 1.0, -1
    for a in range(used.shape[0]):
        old = code[used[a]]
        if old * goal[a] <= 0.0 and old / (old - goal[a]) <= share:
            share, first = old / (old - goal[a]), a
    for a in range(used.shape[0]):
        code[used[a]] += share * (goal[a] - code[used[a]])
    if first >= 0:
        code[used[first]] = 0.0
    slopes[:] = products
    for a in range(used.shape[0]):
        if code[used[a]] != 0.0:
            for j in range(slopes.shape[0]):
                slopes[j] -= code[used[a]] * gram[used[a], j]


@njit(cache=True, nogil=True)
def lasso_codes(gram, products, threshold, tolerance, max_steps, codes):
    """Minimise ``u G u / 2 - q u + threshold |u|_1`` for each row q of `products`; returns rows that did not converge.

    Coordinate descent that always moves the coordinate which changes most, with an exact step for the coordinates in
    use now and then. NumPy equivalent: repeat
    ``new = soft(u + (q - G u) / diag(G)); j = argmax(|new - u|); u[j] = new[j]``. Only few coordinates are ever other
    than 0, so that is a few tens of steps of O(K) each.
    """
    n_words = gram.shape[0]
    slopes = np.empty(n_words)
    unsolved = 0
    for i in range(products.shape[0]):
        code = codes[i]
        code[:] = 0.0
        slopes[:] = products[i]
        converged = False
        for step_number in range(1, max_steps + 1):
            best, change = -1, tolerance
            for j in range(n_words):
                curvature = gram[j, j]
                if curvature > 0.0 and (code[j] != 0.0 or abs(slopes[j]) > threshold):
                    step = _soft_threshold(slopes[j] + curvature * code[j], threshold) / curvature - code[j]
                    if abs(step) > abs(change):
                        best, change = j, step
            if best < 0:
                converged = True
                break
            code[best] += change
            for j in range(n_words):
                slopes[j] -= change * gram[best, j]
            if step_number % _POLISH_EVERY == 0:
                _polish(gram, products[i], threshold, code, slopes)
        unsolved += not converged
    return unsolved
