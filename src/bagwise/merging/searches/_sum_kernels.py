"""Compiled code of the search for sums over words: costs of pairs, lower bounds of them, scans of rows, merges.

A cost is what a merge takes from the score. It is computed by terms of one sign wherever there is such a form, so that
its rounding errors are small beside those of the bounds, for which margins are left.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from bagwise.merging.searches._kernels import DEAD

# What the states of words are: those of the scorings in `bagwise.merging.searches.sums.COMPILED`.
INFORMATION, EVIDENCE, WEIGHTS, FIT, NORMAL_GAMMA = range(5)
# Slots that are compared at a time.
BLOCK = 128
# Partners that a row keeps.
KEPT = 4
# Bounds are computed from points of norm 1 in single precision, and lowered by this fraction and by this much.
_SHARE, _ABSOLUTE = 1e-3, 1e-9
# Rounding of one product and one addition in single precision.
_ROUNDING = 1.2e-7
# Stirling's series for the logarithm of the gamma function is exact from here on.
_LARGE = 30.0
_LOG_2 = math.log(2.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
# The search returns to be packed once less than this fraction of the slots is live.
_LIVE_FRACTION = 0.7

# positions in `counts`; LEVEL begins at the number of words, above all orders
SIZE, LIVE, LEVEL, SCANS, EVALUATED, KIND, BOUNDED, SPARSE = range(8)
N_COUNTS = 8
# columns of `sums` for EVIDENCE: count and mass, count and mass of all classes, mass, inverse geometric mean of the
# counts, rest of Stirling's formula, and all that a bound needs of a word alone
_TOTAL, _WHOLE, _MASS, _MEAN, _REST, _ALONE = range(6)


class SumState(NamedTuple):
    """Groups in slots, and the best partners of each."""

    states: np.ndarray  # (d, m)
    sums: np.ndarray  # (d, q) what follows from a state; its columns depend on the kind
    points: np.ndarray  # (c, d) single precision: cost >= distance² of points / (inverse + inverse)
    inverse: np.ndarray  # (d,) of the mass in that bound
    boxes: np.ndarray  # (blocks, 2, few) smallest and largest of the first coordinates in each block of slots
    lightest: np.ndarray  # (blocks,) largest inverse in each block
    rotation: np.ndarray  # (c, c) from roots or weights to coordinates of points, or empty
    classes: np.ndarray  # (C,) where the samples of each class end
    floor: np.ndarray  # (1,) smallest variance
    word: np.ndarray  # (d,) smallest word of the group in a slot
    order: np.ndarray  # (d,) pairs belong to the slot of higher order; DEAD once the group is gone
    alike: np.ndarray  # (d,) number shared by slots of equal states
    costs: np.ndarray  # (d, KEPT) ascending
    partners: np.ndarray  # (d, KEPT) slots
    tree: np.ndarray  # (2 * 2^k,) winners of a tournament of all rows, from the root at 1 to the rows
    score: np.ndarray  # (1,)
    counts: np.ndarray  # (N_COUNTS,)


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
def _x_log_x(x):
    return x * math.log(x)


@njit(cache=True, nogil=True, error_model="numpy")
def _information_cost(a, b, total_a, total_b):
    """Information lost by joining words with these joint probabilities; only classes common to both matter."""
    cost = _join(total_a, total_b)
    for c in range(a.shape[0]):
        if a[c] > 0.0 and b[c] > 0.0:
            cost -= _join(a[c], b[c])
    return cost


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
        own = sums_a[c] + sums_b[c]
        square = 0.0
        for k in range(start, classes[c]):
            difference = (a[k] + b[k]) - own
            square += difference * difference
        within[c] = square
        total += square + (classes[c] - start) * (own - mean) * (own - mean)
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
        own = sums_a[c] + sums_b[c] - mean
        term += _log_evidence(size, within[c] + size * own * own / (1.0 + size), prior)
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
        return _evidence_cost(a, b, sums_a[_TOTAL], sums_b[_TOTAL])
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


@njit(cache=True, nogil=True, error_model="numpy")
def _evidence_floor(sums_a, sums_b, n_classes):
    """A lower bound of what `MultinomialEvidence` loses beyond the information lost about classes.

    Stirling's formula, with ``Σ_c log(1 / x_c + 1 / y_c) >= C log(1 / x + 1 / y)`` of geometric means.
    """
    total, whole, mass = sums_a[0] + sums_b[0], sums_a[1] + sums_b[1], sums_a[2] + sums_b[2]
    log_total = math.log(total)
    if mass < 2.0:
        of_mass = math.lgamma(mass)
    else:
        inverse = 1.0 / mass
        of_mass = (mass - 0.5) * math.log(mass) - mass + _HALF_LOG_2PI + inverse * (1 / 12 - inverse * inverse / 360)
    bound = (total - 0.5) * log_total - whole * math.log(whole) + (n_classes - 1) * (_HALF_LOG_2PI + of_mass)
    bound += 0.5 * n_classes * math.log(sums_a[3] + sums_b[3]) + max(sums_a[4], sums_b[4]) + sums_a[5] + sums_b[5]
    return bound - 1e-14 * (abs(whole * log_total) + abs(sums_a[5]) + abs(sums_b[5]))


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
        sums[_TOTAL], sums[_WHOLE], sums[_MASS] = mass, n_classes * mass, mass
        sums[_MEAN] = sums[_REST] = 0.0
        for c in range(n_classes):
            sums[_TOTAL] += row[c]
            sums[_WHOLE] += row[c]
            sums[_MEAN] -= math.log(row[c] + mass) / n_classes
            sums[_REST] += _rest(row[c] + mass)
        sums[_MEAN] = math.exp(sums[_MEAN])
        total, whole = sums[_TOTAL], sums[_WHOLE]
        sums[_ALONE] = _x_log_x(whole) - (total - 0.5) * math.log(total) - _rest(total)
        sums[_ALONE] -= (n_classes - 1) * math.lgamma(mass)
        state.inverse[i] = 1.0 / whole
        for c in range(n_classes):
            values[c] = math.sqrt((row[c] + mass) / whole)
    if state.rotation.shape[0] == 0:
        for c in range(state.points.shape[0]):
            state.points[c, i] = values[c]
    else:
        for k in range(state.points.shape[0]):
            total = 0.0
            for c in range(state.points.shape[0]):
                total += values[c] * state.rotation[c, k]
            state.points[k, i] = total


@njit(cache=True, nogil=True, error_model="numpy")
def describe_rows(state, start, stop):
    """`describe` the slots from `start` to `stop`. Cost O(m) each, and the square of the coordinates of points."""
    values = np.zeros(state.states.shape[1] + 1)
    for i in range(start, stop):
        describe(state, i, values)


@njit(cache=True, nogil=True, error_model="numpy")
def bound_blocks(state):
    """Set the boxes of all blocks of slots, and their largest inverse masses."""
    size = state.counts[SIZE]
    state.boxes[:, 0] = np.inf
    state.boxes[:, 1] = -np.inf
    state.lightest[:] = 0.0
    for i in range(size):
        _widen(state, i)


@njit(cache=True, nogil=True, error_model="numpy")
def _widen(state, i):
    """Extend the box of slot i's block to its point."""
    block = i // BLOCK
    state.lightest[block] = max(state.lightest[block], state.inverse[i])
    for c in range(state.boxes.shape[2]):
        state.boxes[block, 0, c] = min(state.boxes[block, 0, c], state.points[c, i])
        state.boxes[block, 1, c] = max(state.boxes[block, 1, c], state.points[c, i])


@njit(cache=True, nogil=True, error_model="numpy")
def _bounds_of_blocks(state, i, bounds):
    """Lower bounds of the costs of slot i with any slot of each block; returns the block with the lowest."""
    first, lowest = 0, np.inf
    few = state.boxes.shape[2]
    own = state.inverse[i]
    for block in range((state.counts[SIZE] + BLOCK - 1) // BLOCK):
        square = np.float32(0.0)
        for c in range(few):
            value = state.points[c, i]
            gap = max(max(state.boxes[block, 0, c] - value, value - state.boxes[block, 1, c]), np.float32(0.0))
            square += gap * gap
        bounds[block] = (square * (1.0 - _SHARE) - _ABSOLUTE) / (own + state.lightest[block])
        if bounds[block] < lowest:
            first, lowest = block, bounds[block]
    return first


@njit(cache=True, nogil=True, error_model="numpy")
def _add_squares(value, row, squares):
    for k in range(row.shape[0]):
        squares[k] += (value - row[k]) * (value - row[k])


@njit(cache=True, nogil=True, error_model="numpy")
def _add_products(value, row, squares):
    for k in range(row.shape[0]):
        squares[k] -= value * row[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _count_candidates(squares, inverse, order, own_inverse, own_order, worst, share, absolute, candidates):
    """Mark the slots whose cost may be at most `worst`, and count them."""
    count = 0
    for k in range(inverse.shape[0]):
        within = squares[k] * share - absolute <= worst * (own_inverse + inverse[k])
        candidates[k] = within & (order[k] < own_order)
        count += candidates[k]
    return count


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
def _scan_block(state, i, block, squares, candidates, used, memory):
    """Compare slot i with those of a block. `memory`: the last cost, for which states, how many."""
    start = block * BLOCK
    stop = min(start + BLOCK, state.counts[SIZE])
    width = stop - start
    kind = state.counts[KIND]
    own_order = state.order[i]
    costs = state.costs[i]
    if state.counts[BOUNDED]:
        share, absolute = 1.0 - _SHARE, _ABSOLUTE
        squares[:] = 0.0
        if state.counts[SPARSE]:
            squares[:] = 1.0
            for c in used:
                _add_products(state.points[c, i], state.points[c, start:stop], squares)
            share, absolute = 2.0, _ABSOLUTE + 2.0 * _ROUNDING * (used.shape[0] + 8)
        else:
            for c in range(state.points.shape[0]):
                _add_squares(state.points[c, i], state.points[c, start:stop], squares)
        worst = np.inf if kind == EVIDENCE else costs[KEPT - 1]
        count = _count_candidates(
            squares, state.inverse[start:stop], state.order[start:stop],
            state.inverse[i], own_order, worst, share, absolute, candidates,
        )  # fmt: skip
        if count == 0:
            return
    else:
        share, absolute = 0.0, 0.0
        for k in range(width):
            candidates[k] = state.order[start + k] < own_order
    n_classes = state.states.shape[1] - (kind == EVIDENCE)
    for k in range(width):
        if not candidates[k]:
            continue
        j = start + k
        if memory[1] == state.alike[j]:
            _insert(state, i, j, memory[0])
            continue
        worst = costs[KEPT - 1]
        if state.counts[BOUNDED] and worst < np.inf:
            low = (squares[k] * share - absolute) / (state.inverse[i] + state.inverse[j])
            added = 0.0
            if kind == EVIDENCE:
                added = _evidence_floor(state.sums[i], state.sums[j], n_classes)
                if low + added > worst:
                    continue
            elif low > worst:
                continue
            if state.counts[SPARSE]:
                # Entropies of two parts of a whole 1 are at most 2 log 2 √(p (1 - p)).
                total_i, total_j = state.sums[i, 0], state.sums[j, 0]
                common = 2.0 * _LOG_2 * math.sqrt(total_i) * math.sqrt(total_j) * (1.0 - squares[k] + 0.5 * absolute)
                if _join(total_i, total_j) * (1.0 - 1e-9) - common > worst:
                    continue
            elif kind != WEIGHTS:
                column = _WHOLE if kind == EVIDENCE else 0
                mass_i = state.states[i, n_classes] if kind == EVIDENCE else 0.0
                mass_j = state.states[j, n_classes] if kind == EVIDENCE else 0.0
                total_i, total_j = state.sums[i, column], state.sums[j, column]
                low = _divergence_bound(state.states[i], state.states[j], total_i, total_j, mass_i, mass_j, n_classes)
                if low * (1.0 - 1e-9) - 1e-10 / (state.inverse[i] + state.inverse[j]) + added > worst:
                    continue
        cost = cost_of(state, i, j)
        memory[0], memory[1] = cost, state.alike[j]
        memory[2] += 1.0
        _insert(state, i, j, cost)


@njit(cache=True, nogil=True, error_model="numpy")
def _scan(state, i, squares, candidates, used, bounds, memory):
    """Find the best partners of slot i among the slots whose pairs it owns. Cost O(d) times the coordinates at most."""
    state.costs[i] = np.inf
    state.partners[i] = -1
    memory[1] = -1.0
    n_used = 0
    if state.counts[SPARSE]:
        for c in range(state.points.shape[0]):
            if state.points[c, i] != 0.0:
                used[n_used] = c
                n_used += 1
    n_blocks = (state.counts[SIZE] + BLOCK - 1) // BLOCK
    first = -1
    if state.boxes.shape[2] > 0:
        first = _bounds_of_blocks(state, i, bounds)
        _scan_block(state, i, first, squares, candidates, used[:n_used], memory)
    for block in range(n_blocks):
        if block != first and not bounds[block] > state.costs[i, KEPT - 1]:
            _scan_block(state, i, block, squares, candidates, used[:n_used], memory)


@njit(cache=True, nogil=True, error_model="numpy")
def scan_rows(state, start, stop):
    """Find the best partners of the slots from `start` to `stop`; returns the number of costs computed."""
    squares, candidates = np.empty(BLOCK, dtype=np.float32), np.empty(BLOCK, dtype=np.bool_)
    used, bounds = np.empty(state.points.shape[0], dtype=np.int64), np.full(state.lightest.shape[0], -np.inf)
    memory = np.zeros(3)
    for i in range(start, stop):
        _scan(state, i, squares, candidates, used, bounds, memory)
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
        return state.partners[j, 0] < 0
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
def _has_partner(state, i):
    """Drop partners of slot i that are gone from the front of its list; False if none is left."""
    for k in range(KEPT):
        j = state.partners[i, k]
        if j >= 0 and state.order[j] < state.order[i]:
            if k > 0:
                for m in range(KEPT):
                    there = m + k < KEPT
                    state.costs[i, m] = state.costs[i, m + k] if there else np.inf
                    state.partners[i, m] = state.partners[i, m + k] if there else -1
            return True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def advance_sums(state, pairs, scores):
    """Merge ``len(pairs)`` times the pair of the lowest cost; returns how many, fewer where slots should be packed."""
    squares, candidates = np.empty(BLOCK, dtype=np.float32), np.empty(BLOCK, dtype=np.bool_)
    used, bounds = np.empty(state.points.shape[0], dtype=np.int64), np.full(state.lightest.shape[0], -np.inf)
    memory = np.zeros(3)
    values = np.zeros(state.states.shape[1] + 1)
    counts = state.counts
    done = 0
    while done < pairs.shape[0]:
        if counts[SIZE] > BLOCK and counts[LIVE] < _LIVE_FRACTION * counts[SIZE]:
            break
        # What a row had recorded comes before all that it has: its costs, and words of equal costs, only rise.
        i = state.tree[1]
        while not state.order[state.partners[i, 0]] < state.order[i]:
            if not _has_partner(state, i):
                _scan(state, i, squares, candidates, used, bounds, memory)
                counts[SCANS] += 1
            _replay(state, i)
            i = state.tree[1]
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
        if counts[BOUNDED]:
            _widen(state, s)
        state.order[t] = DEAD
        state.order[s] = state.alike[s] = counts[LEVEL]
        state.costs[t] = np.inf
        state.partners[t] = -1
        _scan(state, s, squares, candidates, used, bounds, memory)
        _replay(state, t)
        _replay(state, s)
        done += 1
    counts[EVALUATED] += int(memory[2])
    return done
