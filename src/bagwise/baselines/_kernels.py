"""Compiled loops of the baselines: partitions and mutual information of features; confidence-weighted updates."""

from math import floor, log, sqrt

import numpy as np
from numba import njit

# Values this near a border, relative to it, lie on it: rounding of mean and deviation must not decide the state of
# constant features and of balanced 0/1 features, which lie exactly on both borders.
_BORDER = 1e-13


@njit(cache=True, nogil=True)
def three_states(values, n_samples, width):
    """State 0, 1 or 2 of each value by mean -+ width * deviation; the last entry is the state of zero.

    `values` are the non-zero entries of a feature, so that sparse and dense data give the same bits.
    """
    n_zeros = n_samples - len(values)
    total = 0.0
    for value in values:
        total += value
    mean = total / n_samples
    squares = n_zeros * mean * mean
    for value in values:
        squares += (value - mean) ** 2
    reach = width * sqrt(squares / n_samples)
    slack = _BORDER * (abs(mean) + reach)
    lower = mean - reach - slack
    upper = mean + reach + slack
    states = np.ones(len(values) + 1, np.int32)
    for i in range(len(states)):
        value = values[i] if i < len(values) else 0.0
        if value < lower:
            states[i] = 0
        elif value > upper:
            states[i] = 2
    return states


@njit(cache=True, nogil=True)
def distinct_states(values):
    """Number each distinct value by its rank; the last entry is the state of zero. Empty unless all are integers."""
    for value in values:
        if value != floor(value):
            return np.empty(0, np.int32)
    with_zero = np.append(values, 0.0)
    order = np.argsort(with_zero)
    states = np.empty(len(with_zero), np.int32)
    state = 0
    for i in range(len(order)):
        if i > 0 and with_zero[order[i]] != with_zero[order[i - 1]]:
            state += 1
        states[order[i]] = state
    return states


@njit(cache=True, nogil=True)
def partition(states, rows, n_samples):
    """List the samples of every state except the most frequent, state by state, and the number in each.

    `rows` are the samples of the non-zero entries, ascending; ``states[-1]`` is the state of the others.
    """
    n_states = states.max() + 1
    sizes = np.zeros(n_states, np.int64)
    for i in range(len(rows)):
        sizes[states[i]] += 1
    zero_state = states[len(rows)]
    sizes[zero_state] += n_samples - len(rows)
    most_frequent = np.argmax(sizes)
    ends = np.zeros(n_states, np.int64)  # where the next sample of each state goes
    n_listed = 0
    for state in range(n_states):
        ends[state] = n_listed
        if state != most_frequent:
            n_listed += sizes[state]
    samples = np.empty(n_listed, np.int32)
    for i in range(len(rows)):
        state = states[i]
        if state != most_frequent:
            samples[ends[state]] = rows[i]
            ends[state] += 1
    if zero_state != most_frequent:
        i = 0
        for row in range(n_samples):
            if i < len(rows) and rows[i] == row:
                i += 1
            else:
                samples[ends[zero_state]] = row
                ends[zero_state] += 1
    sizes[most_frequent] = 0
    return samples, sizes[sizes > 0]


@njit(cache=True, nogil=True)
def expand(feature, samples, group_starts, feature_starts, n_samples):
    """State of every sample under one feature, 0 for the most frequent."""
    states = np.zeros(n_samples, np.int32)
    first = feature_starts[feature]
    for group in range(first, feature_starts[feature + 1]):
        for i in range(group_starts[group], group_starts[group + 1]):
            states[samples[i]] = group - first + 1
    return states


@njit(cache=True, nogil=True)
def information(states, samples, group_starts, feature_starts):
    """Mutual information, in nats, of one variable given as states with every feature.

    The terms are logarithms of n * n_ab / (n_a * n_b), not differences of entropies: independent variables get
    exactly zero. Only listed samples are visited; the counts of the most frequent state are the remainder.
    """
    n = len(states)
    n_features = len(feature_starts) - 1
    sizes = np.bincount(states)
    n_states = len(sizes)
    counts = np.zeros(n_states, np.int64)
    rest = np.empty(n_states, np.int64)
    result = np.empty(n_features)
    for feature in range(n_features):
        rest[:] = sizes
        n_rest = n
        total = 0.0
        for group in range(feature_starts[feature], feature_starts[feature + 1]):
            start, stop = group_starts[group], group_starts[group + 1]
            size = stop - start
            n_rest -= size
            for i in range(start, stop):
                counts[states[samples[i]]] += 1
            # with many states a list has few of them; following its samples keeps the cost at O(n) per feature
            follow = n_states > size
            for i in range(size if follow else n_states):
                state = states[samples[start + i]] if follow else i
                count = counts[state]
                if count > 0:
                    total += count * log(float(n) * count / (float(size) * sizes[state]))
                    rest[state] -= count
                    counts[state] = 0
        for state in range(n_states):
            count = rest[state]
            if count > 0:
                total += count * log(float(n) * count / (float(n_rest) * sizes[state]))
        result[feature] = max(total / n, 0.0)
    return result


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
    indptr, indices, data, dense, order, codes, weights, positive, phi, intercept, mean, variance, drift, n_before
):
    """Go through the samples once, in the given order, and update one class's weights in place.

    A dense row is a sparse row that has all columns: ``indices`` is then ``arange(d)``, for every row the same.
    ``mean`` and ``variance`` have one number more than there are columns, for the intercept. ``drift`` adds up
    ``t * (change of the mean at step t)``, from which the mean over all steps follows; it may be empty.

    NumPy equivalent of a step, for a dense row x with label s = 1 or -1: ``a = weight * step_size(s * mean @ x,
    variance @ x**2, phi); mean += a * s * variance * x; variance = 1 / (1 / variance + 2 * a * phi * x**2)``.
    O(non-zeros).
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
        size = weights[i] * step_size(sign * margin, spread, phi)
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
