"""Compiled code of the search for sums over words: costs of pairs, lower bounds of them, scans of rows, merges.

A cost is what a merge takes from the score. It is computed by terms of one sign wherever there is such a form, so that
its rounding errors are small beside those of the bounds, for which margins are left.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bagwise.merging.scoring import EVIDENCE, FIT, INFORMATION, NORMAL_GAMMA, WEIGHTS
from bagwise.merging.searches._kernels import DEAD

# Slots that are compared at a time.
BLOCK = 512
# Partners that a row keeps.
KEPT = 4
# Bounds are computed from points of norm 1 in single precision, and lowered by this fraction and by this much.
_SHARE, _ABSOLUTE = 1e-3, 1e-9
# Rounding of one product and one addition in single precision.
_ROUNDING = 1.2e-7
# Stirling's series for the logarithm of the gamma function is exact from here on.
_LARGE = 30.0
_LOG_2, _ROOT_2 = math.log(2.0), math.sqrt(2.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
# The search returns to be packed once less than this fraction of the slots is live.
_LIVE_FRACTION = 0.7

# positions in `counts`; LEVEL begins at the number of words, above all orders
SIZE, LIVE, LEVEL, SCANS, EVALUATED, KIND, BOUNDED, SPARSE = range(8)
# rows of `parts`: counts and mass of all classes, those of each class and its mass, mass in units of that of a word,
# inverse geometric mean of the latter, rest of Stirling's formula, and all that a bound needs of a word alone
_TOTAL, _WHOLE, _UNITS, _MEAN, _REST, _ALONE = range(6)
N_PARTS = 6


class SumState(NamedTuple):
    """Groups in slots, and the best partners of each."""

    states: np.ndarray  # (d, m)
    sums: np.ndarray  # (d, q) total of a state, or the means of classes and the term for Gaussians
    points: np.ndarray  # (c, d) single precision: cost >= distance² of points / (inverse + inverse)
    inverse: np.ndarray  # (d,) of the mass in that bound
    parts: np.ndarray  # (N_PARTS, d) what a bound for EVIDENCE needs; empty for others
    log_gammas: np.ndarray  # (d + 1,) of so many units of mass, for EVIDENCE
    eldest: np.ndarray  # (blocks,) at most the lowest order in each block of slots
    classes: np.ndarray  # (C,) where the samples of each class end
    floor: np.ndarray  # (1,) smallest variance; for WEIGHTS the largest square of weights, the unit of points
    word: np.ndarray  # (d,) smallest word of the group in a slot
    order: np.ndarray  # (d,) pairs belong to the slot of higher order; DEAD once the group is gone
    alike: np.ndarray  # (d,) number shared by slots of equal states
    costs: np.ndarray  # (d, KEPT) ascending
    partners: np.ndarray  # (d, KEPT) slots
    tree: np.ndarray  # (2 * 2^k,) winners of a tournament of all rows, from the root at 1 to the rows
    score: np.ndarray  # (1,)
    counts: np.ndarray  # (8,)


@njit(cache=True, nogil=True, error_model="numpy")
def _join(x, y):
    """``(x + y) log(x + y) - x log x - y log y``, without cancellation."""
    small, large = min(x, y), max(x, y)
    ratio = small / large
    if not ratio > 0.0:
        return 0.0
    return (x + y) * math.log1p(ratio) - small * math.log(ratio)


@njit(cache=True, nogil=True, error_model="numpy")
def _rest(x):
    """What Stirling's formula ``(x - 1/2) log x - x + log(2 pi) / 2`` lacks of lgamma(x); positive, and falls."""
    if x < _LARGE:
        return math.lgamma(x) - ((x - 0.5) * math.log(x) - x + _HALF_LOG_2PI)
    inverse = 1.0 / x
    square = inverse * inverse
    return inverse * (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680)))


@njit(cache=True, nogil=True, error_model="numpy")
def _log_beta(x, y):
    """Logarithm of the beta function, without cancellation where x and y are large."""
    halves = 0.5 * math.log(1.0 / x + 1.0 / y) + _HALF_LOG_2PI
    return halves - _join(x, y) + (_rest(x) + _rest(y) - _rest(x + y))


@njit(cache=True, nogil=True, error_model="numpy")
def _information_cost(a, b, total_a, total_b):
    """Information lost by joining words with these joint probabilities; only classes common to both matter."""
    cost = _join(total_a, total_b)
    for c in range(a.shape[0]):
        if a[c] > 0.0 and b[c] > 0.0:
            cost -= _join(a[c], b[c])
    return cost


@njit(cache=True, nogil=True, error_model="numpy")
def _weights_cost(a, b):
    """``m_s m_t / (m_s + m_t) |v_s - v_t|²``; the first number is the mass, the others are mass times weights."""
    if a[0] == 0.0 or b[0] == 0.0:
        return 0.0
    inverse_a, inverse_b = 1.0 / a[0], 1.0 / b[0]
    square = 0.0
    for c in range(1, a.shape[0]):
        difference = a[c] * inverse_a - b[c] * inverse_b
        square += difference * difference
    return square / (inverse_a + inverse_b)


@njit(cache=True, nogil=True, error_model="numpy")
def join_pairs(states, totals, pairs, lost, of_weights):
    """Join words in order; `lost` gets what each merge takes from the score: of weights, or of information."""
    for k in range(pairs.shape[0]):
        s, t = pairs[k]
        if of_weights:
            lost[k] = _weights_cost(states[s], states[t])
        else:
            lost[k] = _information_cost(states[s], states[t], totals[s], totals[t])
        totals[s] += totals[t]
        for c in range(states.shape[1]):
            states[s, c] += states[t, c]


@njit(cache=True, nogil=True, error_model="numpy")
def _evidence_cost(a, b, total_a, total_b):
    """What `MultinomialEvidence` loses, ``Σ_c log B(x_c, y_c) - log B(X, Y) - (C - 1) log B(a, b)``.

    The last number of a row is its mass, which the x_c and X contain.
    """
    n_classes = a.shape[0] - 1
    mass_a, mass_b = a[n_classes], b[n_classes]
    cost = -_log_beta(total_a, total_b) - (n_classes - 1) * _log_beta(mass_a, mass_b)
    for c in range(n_classes):
        cost += _log_beta(a[c] + mass_a, b[c] + mass_b)
    return cost


@njit(cache=True, nogil=True, error_model="numpy")
def _gaussian_term(a, b, sums_a, sums_b, classes, floor, evidence):
    """Term of the word a + b: `GaussianFit` or `GaussianEvidence` from values sorted by class and their class means."""
    n_classes = classes.shape[0]
    n = a.shape[0]
    mean = 0.0
    start = 0
    for c in range(n_classes):
        mean += (classes[c] - start) * (sums_a[c] + sums_b[c])
        start = classes[c]
    mean /= n
    within = np.empty(n_classes)
    total = 0.0
    start = 0
    for c in range(n_classes):
        class_mean = sums_a[c] + sums_b[c]
        square = 0.0
        for k in range(start, classes[c]):
            difference = (a[k] + b[k]) - class_mean
            square += difference * difference
        within[c] = square
        total += square + (classes[c] - start) * (class_mean - mean) * (class_mean - mean)
        start = classes[c]
    if not evidence:
        term = 0.5 * n * math.log(max(total / n, floor))
        start = 0
        for c in range(n_classes):
            size = classes[c] - start
            term -= 0.5 * size * math.log(max(within[c] / size, floor))
            start = classes[c]
        return term
    prior = max(total / n, floor)
    term = -_log_evidence(n, total, prior)
    start = 0
    for c in range(n_classes):
        size = classes[c] - start
        class_mean = sums_a[c] + sums_b[c] - mean
        term += _log_evidence(size, within[c] + size * class_mean * class_mean / (1.0 + size), prior)
        start = classes[c]
    return term


@njit(cache=True, nogil=True, error_model="numpy")
def _log_evidence(n, squares, prior):
    """`bagwise.merging.scoring.log_evidence` with kappa0 = a0 = 1, but for the term that sums to zero over classes."""
    a = 1.0 + 0.5 * n
    return math.lgamma(a) + math.log(prior) - a * math.log(prior + 0.5 * squares) - 0.5 * math.log(1.0 + n)


@njit(cache=True, nogil=True, error_model="numpy")
def cost_of(state, i, j):
    """What merging the groups in slots i and j takes from the score; the same number for (j, i)."""
    kind = state.counts[KIND]
    a, b = state.states[i], state.states[j]
    sums_a, sums_b = state.sums[i], state.sums[j]
    if kind == INFORMATION:
        return _information_cost(a, b, sums_a[0], sums_b[0])
    if kind == EVIDENCE:
        return _evidence_cost(a, b, sums_a[0], sums_b[0])
    if kind == WEIGHTS:
        return _weights_cost(a, b)
    term = _gaussian_term(a, b, sums_a, sums_b, state.classes, state.floor[0], kind == NORMAL_GAMMA)
    last = sums_a.shape[0] - 1
    return (sums_a[last] + sums_b[last]) - term


@njit(cache=True, nogil=True, fastmath=True)
def _divergence_bound(a, b, total_a, total_b, added_a, added_b, n_classes):
    """A lower bound of the information lost by joining ``a + added_a`` and ``b + added_b``, and near it for near words.

    From ``u log u - u + 1 >= 3 (u - 1)² / (2 (u + 2))``, whose terms are equal up to the third order.
    """
    inverse_a, inverse_b, inverse = 1.0 / total_a, 1.0 / total_b, 1.0 / (total_a + total_b)
    total = 0.0
    for c in range(n_classes):
        x, y = a[c] + added_a, b[c] + added_b
        p, q, m = x * inverse_a, y * inverse_b, 2.0 * ((x + y) * inverse) + 1e-300
        total += (p - q) * (p - q) * (total_b / (p + m) + total_a / (q + m))
    return 1.5 * total * (total_a * inverse) * (total_b * inverse)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _take_logs(values):
    """Replace up to `BLOCK` normal positive numbers by their logarithms, to 1e-14, in vector instructions.

    With mantissas m and ``z = (m - √2) / (m + √2)``, ``log m = log √2 + 2 atanh z``, |z| < 0.172.
    """
    bits = values.view(np.int64)
    exponents = np.empty(BLOCK)
    for k in range(values.shape[0]):
        exponents[k] = (bits[k] >> 52) - 1023
        bits[k] = (bits[k] & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000
    for k in range(values.shape[0]):
        z = (values[k] - _ROOT_2) / (values[k] + _ROOT_2)
        square = z * z
        series = 1 / 11 + square * (1 / 13 + square * (1 / 15))
        series = 1 / 5 + square * (1 / 7 + square * (1 / 9 + square * series))
        values[k] = _LOG_2 * (exponents[k] + 0.5) + 2.0 * z * (1.0 + square * (1 / 3 + square * series))


@njit(cache=True, nogil=True, fastmath={"contract"})
def _evidence_floors(parts, log_gammas, i, start, stop, n_classes, floors):
    """Lower bounds of what `MultinomialEvidence` loses beyond the information lost about classes, with a block.

    Stirling's formula, with ``Σ_c log(1 / x_c + 1 / y_c) >= C log(1 / x + 1 / y)`` of geometric means.
    """
    width = stop - start
    logs = np.empty((3, BLOCK))
    total, whole, mean = parts[_TOTAL, i], parts[_WHOLE, i], parts[_MEAN, i]
    units, rest, alone = parts[_UNITS, i], parts[_REST, i], parts[_ALONE, i]
    totals, wholes, means = parts[_TOTAL, start:stop], parts[_WHOLE, start:stop], parts[_MEAN, start:stop]
    others, rests, alones = parts[_UNITS, start:stop], parts[_REST, start:stop], parts[_ALONE, start:stop]
    for k in range(width):
        logs[0, k] = total + totals[k]
        logs[1, k] = whole + wholes[k]
        logs[2, k] = mean + means[k]
    for row in range(3):
        _take_logs(logs[row, :width])
    for k in range(width):
        of_total, of_whole = (total + totals[k] - 0.5) * logs[0, k], (whole + wholes[k]) * logs[1, k]
        added = 0.5 * n_classes * logs[2, k] + max(rest, rests[k]) + (alone + alones[k])
        of_mass = (n_classes - 1) * (_HALF_LOG_2PI + log_gammas[int(units + others[k])])
        rounding = 1e-13 * (abs(of_total) + abs(of_whole) + abs(of_mass) + abs(alone) + abs(alones[k]))
        floors[k] = of_total - of_whole + added + of_mass - rounding


@njit(cache=True, nogil=True, error_model="numpy")
def describe(state, i, values):
    """Set what follows from the state in slot i: its sums, its point and the inverse mass. `values` is scratch."""
    kind = state.counts[KIND]
    row, sums = state.states[i], state.sums[i]
    if kind in (FIT, NORMAL_GAMMA):
        start = 0
        for c in range(state.classes.shape[0]):
            sums[c] = 0.0
            for k in range(start, state.classes[c]):
                sums[c] += row[k]
            sums[c] /= state.classes[c] - start
            start = state.classes[c]
        values[: row.shape[0]] = 0.0
        nothing = values[: row.shape[0]]
        evidence = kind == NORMAL_GAMMA
        sums[sums.shape[0] - 1] = _gaussian_term(row, nothing, sums, nothing, state.classes, state.floor[0], evidence)
        return
    if kind == INFORMATION:
        sums[0] = row.sum()
        state.inverse[i] = 1.0 / sums[0]
        for c in range(row.shape[0]):
            values[c] = math.sqrt(row[c] / sums[0])
    elif kind == WEIGHTS:
        # Distances are in units of the largest norm, which `floor` has the square of.
        inverse, unit = 1.0 / row[0], 1.0 / math.sqrt(state.floor[0])
        state.inverse[i] = inverse / state.floor[0]
        for c in range(row.shape[0] - 1):
            values[c] = row[c + 1] * inverse * unit
    else:
        n_classes = row.shape[0] - 1
        mass = row[n_classes]
        total, logs, rest = mass, 0.0, 0.0
        for c in range(n_classes):
            total += row[c]
            logs += math.log(row[c] + mass)
            rest += _rest(row[c] + mass)
        whole = total + (n_classes - 1) * mass
        sums[0] = total
        state.inverse[i] = 1.0 / whole
        if state.counts[BOUNDED]:
            parts = state.parts
            parts[_TOTAL, i], parts[_WHOLE, i], parts[_UNITS, i] = total, whole, np.rint(mass / state.floor[0])
            parts[_MEAN, i], parts[_REST, i] = math.exp(-logs / n_classes), rest
            alone = whole * math.log(whole) - (total - 0.5) * math.log(total) - _rest(total)
            parts[_ALONE, i] = alone - (n_classes - 1) * math.lgamma(mass)
        for c in range(n_classes):
            values[c] = math.sqrt((row[c] + mass) / whole)
    for c in range(state.points.shape[0]):
        state.points[c, i] = values[c]


@njit(cache=True, nogil=True, error_model="numpy")
def describe_rows(state, start, stop):
    """`describe` the slots from `start` to `stop`. Cost O(m) each."""
    values = np.zeros(state.states.shape[1] + 4)
    for i in range(start, stop):
        describe(state, i, values)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_squares(value0, value1, value2, value3, row0, row1, row2, row3, squares):
    """``squares += Σ (value - row)²``, with one pass over the squares."""
    for k in range(row0.shape[0]):
        first, second, third, fourth = value0 - row0[k], value1 - row1[k], value2 - row2[k], value3 - row3[k]
        squares[k] += (first * first + second * second) + (third * third + fourth * fourth)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _add_products(value, row, squares):
    """``squares -= value * row``."""
    for k in range(row.shape[0]):
        squares[k] -= value * row[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _costs_at_least(squares, inverse, order, own_inverse, own_order, share, absolute, low):
    """Turn squared distances into lower bounds of costs; infinite for pairs that the row does not own."""
    for k in range(inverse.shape[0]):
        bound = (squares[k] * share - absolute) / (own_inverse + inverse[k])
        low[k] = bound if order[k] < own_order else np.inf


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _lowest(low):
    """``low.min()``, in vector instructions."""
    lowest = np.inf
    for k in range(low.shape[0]):
        lowest = low[k] if low[k] < lowest else lowest
    return lowest


@njit(cache=True, nogil=True, error_model="numpy")
def _bound_block(state, i, start, stop, used, squares, low, floors):
    """Set lower bounds of the costs of slot i with those of a block; `used` are its coordinates, where few are."""
    own_order = state.order[i]
    if not state.counts[BOUNDED]:
        for k in range(stop - start):
            low[k] = -np.inf if state.order[start + k] < own_order else np.inf
        return
    points = state.points
    if state.counts[SPARSE]:
        squares[:] = 1.0
        for c in used:
            _add_products(points[c, i], points[c, start:stop], squares)
        share, absolute = 2.0, _ABSOLUTE + 2.0 * _ROUNDING * (used.shape[0] + 8)
    else:
        squares[:] = 0.0
        for c in range(0, points.shape[0], 4):  # whose number is a multiple of four
            _add_squares(
                points[c, i], points[c + 1, i], points[c + 2, i], points[c + 3, i], points[c, start:stop],
                points[c + 1, start:stop], points[c + 2, start:stop], points[c + 3, start:stop], squares,
            )  # fmt: skip
        share, absolute = 1.0 - _SHARE, _ABSOLUTE
    _costs_at_least(
        squares, state.inverse[start:stop], state.order[start:stop], state.inverse[i], own_order, share, absolute, low
    )
    if state.counts[KIND] == EVIDENCE:
        _evidence_floors(state.parts, state.log_gammas, i, start, stop, state.states.shape[1] - 1, floors)
        for k in range(stop - start):
            low[k] += floors[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _insert(state, i, j, cost):
    """Put slot j among the best partners of slot i; of equal costs the lower word comes first."""
    k = KEPT - 1
    costs, partners = state.costs[i], state.partners[i]
    if cost > costs[k] or (cost == costs[k] and partners[k] >= 0 and state.word[partners[k]] < state.word[j]):
        return
    while k > 0 and (
        cost < costs[k - 1]
        or (cost == costs[k - 1] and (partners[k - 1] < 0 or state.word[j] < state.word[partners[k - 1]]))
    ):
        costs[k], partners[k] = costs[k - 1], partners[k - 1]
        k -= 1
    costs[k], partners[k] = cost, j


@njit(cache=True, nogil=True, error_model="numpy")
def _compare(state, i, j, low, floor, memory):
    """Put slot j among the best partners of slot i if it is one.

    `memory` has the last cost, the number of those states, and how many costs were computed.
    """
    if memory[1] == state.alike[j]:
        _insert(state, i, j, memory[0])
        return
    kind, worst = state.counts[KIND], state.costs[i, KEPT - 1]
    if state.counts[BOUNDED] and kind != WEIGHTS and worst < np.inf:
        inverse_i, inverse_j = state.inverse[i], state.inverse[j]
        if state.counts[SPARSE]:
            # The entropy of two parts p and 1 - p is at most 2 log 2 √(p (1 - p)).
            total_i, total_j = state.sums[i, 0], state.sums[j, 0]
            products = 1.0 - 0.5 * (low * (inverse_i + inverse_j))
            common = 2.0 * _LOG_2 * math.sqrt(total_i) * math.sqrt(total_j) * products
            if _join(total_i, total_j) * (1.0 - 1e-9) - common > worst:
                return
        else:
            n_classes = state.states.shape[1] - (kind == EVIDENCE)
            mass_i = state.states[i, n_classes] if kind == EVIDENCE else 0.0
            mass_j = state.states[j, n_classes] if kind == EVIDENCE else 0.0
            divergence = _divergence_bound(
                state.states[i], state.states[j], 1.0 / inverse_i, 1.0 / inverse_j, mass_i, mass_j, n_classes
            )
            if divergence * (1.0 - 1e-9) - 1e-10 / (inverse_i + inverse_j) + floor > worst:
                return
    cost = cost_of(state, i, j)
    memory[0], memory[1] = cost, state.alike[j]
    memory[2] += 1.0
    _insert(state, i, j, cost)


@njit(cache=True, nogil=True, error_model="numpy")
def _scan(state, refused, i, low, floors, lowest, squares, used, memory):
    """Find the best partners of slot i among the slots whose pairs it owns and that are not refused.

    `refused` says which slots may not be merged, (0, 0) if all may; all after i but `memory` is scratch.

    First lower bounds of all costs; then the costs of the lowest bounds, and of all that are not above these.
    Cost O(d) times the coordinates of points.
    """
    state.costs[i] = np.inf
    state.partners[i] = -1
    memory[1] = -1.0
    n_used = 0
    if state.counts[SPARSE]:
        for c in range(state.points.shape[0]):
            if state.points[c, i] != 0.0:
                used[n_used] = c
                n_used += 1
    size = state.counts[SIZE]
    n_blocks = (size + BLOCK - 1) // BLOCK
    for block in range(n_blocks):
        lowest[block] = np.inf
        if state.eldest[block] < state.order[i]:
            start, stop = block * BLOCK, min((block + 1) * BLOCK, size)
            _bound_block(state, i, start, stop, used[:n_used], squares, low[start:stop], floors[start:stop])
            if refused.shape[0] > 0:
                for j in range(start, stop):
                    if refused[i, j]:
                        low[j] = np.inf
            lowest[block] = _lowest(low[start:stop])
    for _ in range(KEPT):
        first = int(np.argmin(lowest[:n_blocks]))
        if lowest[first] == np.inf:
            return
        start, stop = first * BLOCK, min((first + 1) * BLOCK, size)
        best = start + int(np.argmin(low[start:stop]))
        _compare(state, i, best, low[best], floors[best], memory)
        low[best] = np.inf
        lowest[first] = _lowest(low[start:stop])
    for block in range(n_blocks):
        if lowest[block] <= state.costs[i, KEPT - 1] and lowest[block] < np.inf:
            for j in range(block * BLOCK, min((block + 1) * BLOCK, size)):
                if low[j] <= state.costs[i, KEPT - 1] and low[j] < np.inf:
                    _compare(state, i, j, low[j], floors[j], memory)


@njit(cache=True, nogil=True, error_model="numpy")
def _scratch(state):
    """What `_scan` needs."""
    size = state.word.shape[0]
    squares, used = np.empty(BLOCK, dtype=np.float32), np.empty(state.points.shape[0], dtype=np.int64)
    return np.empty(size), np.zeros(size), np.empty(state.eldest.shape[0]), squares, used, np.zeros(3)


@njit(cache=True, nogil=True, error_model="numpy")
def scan_rows(state, refused, start, stop):
    """Find the best partners of the slots from `start` to `stop`; returns the number of costs computed."""
    low, floors, lowest, squares, used, memory = _scratch(state)
    for i in range(start, stop):
        _scan(state, refused, i, low, floors, lowest, squares, used, memory)
    return int(memory[2])


@njit(cache=True, nogil=True, error_model="numpy")
def _leads(state, i, j):
    """Whether the best pair of slot i is merged before that of slot j: by cost, then the lowest words."""
    if j < 0:
        return True
    if i < 0:
        return False
    if state.costs[i, 0] != state.costs[j, 0]:
        return state.costs[i, 0] < state.costs[j, 0]
    if state.partners[i, 0] < 0 or state.partners[j, 0] < 0:
        # A partner that is gone, with a cost that may be that of another pair: look first. Without a cost: last.
        return (state.partners[i, 0] < 0) == (state.costs[i, 0] < np.inf)
    word_i, other_i = state.word[i], state.word[state.partners[i, 0]]
    word_j, other_j = state.word[j], state.word[state.partners[j, 0]]
    if min(word_i, other_i) != min(word_j, other_j):
        return min(word_i, other_i) < min(word_j, other_j)
    return max(word_i, other_i) <= max(word_j, other_j)


@njit(cache=True, nogil=True, error_model="numpy")
def _replay(state, i):
    """Play the matches of slot i again, up to the root. Cost O(log d)."""
    tree = state.tree
    node = (tree.shape[0] // 2 + i) // 2
    while node > 0:
        left, right = tree[2 * node], tree[2 * node + 1]
        tree[node] = left if _leads(state, left, right) else right
        node //= 2


@njit(cache=True, nogil=True, error_model="numpy")
def play(state):
    """Play the whole tournament. Cost O(d)."""
    tree = state.tree
    half = tree.shape[0] // 2
    for i in range(half):
        tree[half + i] = i if i < state.counts[SIZE] else -1
    for node in range(half - 1, 0, -1):
        left, right = tree[2 * node], tree[2 * node + 1]
        tree[node] = left if _leads(state, left, right) else right


@njit(cache=True, nogil=True, error_model="numpy")
def _is_partner(state, i, j):
    """Whether the group in slot j, recorded as a partner of slot i, is there and has not changed."""
    return j >= 0 and state.order[j] < state.order[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _has_partner(state, i):
    """Drop partners of slot i that are gone from the front of its list; False if none is left."""
    for k in range(KEPT):
        j = state.partners[i, k]
        if _is_partner(state, i, j):
            if k > 0:
                for m in range(KEPT):
                    there = m + k < KEPT
                    state.costs[i, m] = state.costs[i, m + k] if there else np.inf
                    state.partners[i, m] = state.partners[i, m + k] if there else -1
            return True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def no_pair_is_left(state):
    """Whether no row has a pair: all are refused. A row that lost its pairs has its old cost until it is scanned."""
    return state.costs[state.tree[1], 0] == np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def advance_sums(state, refused, pairs, scores):
    """Merge ``len(pairs)`` times the pair of the lowest cost; returns how many.

    Fewer where slots should be packed, or where `no_pair_is_left`.
    """
    low, floors, lowest, squares, used, memory = _scratch(state)
    values = np.zeros(state.states.shape[1] + 4)
    counts = state.counts
    done = 0
    while done < pairs.shape[0]:
        if counts[SIZE] > BLOCK and counts[LIVE] < _LIVE_FRACTION * counts[SIZE]:
            break
        # What a row had recorded comes before all that it has: its costs, and words of equal costs, only rise.
        i = state.tree[1]
        while not _is_partner(state, i, state.partners[i, 0]) and state.costs[i, 0] < np.inf:
            if not _has_partner(state, i):
                _scan(state, refused, i, low, floors, lowest, squares, used, memory)
                counts[SCANS] += 1
            _replay(state, i)
            i = state.tree[1]
        if state.costs[i, 0] == np.inf:  # all pairs that are left are refused
            break
        j = state.partners[i, 0]
        s, t = (i, j) if state.word[i] < state.word[j] else (j, i)
        pairs[done, 0], pairs[done, 1] = state.word[s], state.word[t]
        state.score[0] -= state.costs[i, 0]
        scores[done] = state.score[0]
        counts[LIVE] -= 1
        counts[LEVEL] += 1
        for k in range(state.states.shape[1]):
            state.states[s, k] += state.states[t, k]
        describe(state, s, values)
        for k in range(refused.shape[0]):
            refused[s, k] |= refused[t, k]
            refused[k, s] = refused[s, k]
        state.order[t] = DEAD
        state.order[s] = state.alike[s] = counts[LEVEL]
        state.costs[t] = np.inf
        state.partners[t] = -1
        _scan(state, refused, s, low, floors, lowest, squares, used, memory)
        _replay(state, t)
        _replay(state, s)
        done += 1
    counts[EVALUATED] += int(memory[2])
    return done
