"""Compiled code of the lazy bound search.

Notation. At one level the traces are ``a`` and ``b``; merging words s and t gives the ratio
``(a + 2 A[s, t]) / (b + 2 B[s, t])``. A pair is thus a point ``(2 B[s, t], 2 A[s, t])`` and its
ratio is the slope under which it is seen from ``(-b, -a)``.

Ownership. Every pair belongs to one row: that of the word which changed last, among unchanged words
that of the lower index. ``order`` holds this as one number per slot: row i owns the pair (i, j) if
``order[j] < order[i]``, and dead slots have an order above all others. Only the owner's entry
of A and B is up to date, so a merge writes one row and never a column.

Cones. A row remembers its peak, the point of its best pair when it was last scanned, and two slopes:
no other point of the row lies above the line of slope ``right`` to the right of the peak, nor above the
line of slope ``left`` to its left. Points only ever leave a row, so this stays true until the
row itself is merged. From it follows, without looking at the row, how far any of its pairs can exceed a
given ratio (`_excess`), and when the peak is certainly still the best pair (`_is_peak_best`).
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from bagwise.merging.searches._common_kernels import (
    DEAD,
    FLOOR_B,
    LANES,
    RESUM_EVERY,
    SCALE,
    TRACE_A,
    TRACE_B,
    clear_lanes,
    current_score,
    find_best,
    first_live_pair,
    join_lanes,
    pack,
    pair_ratio,
    precedes,
    resum_traces,
    scan_block,
    scan_row,
    update_traces,
)

# Rows are watched in groups of this many.
WATCH = 64
EPS = 2.0**-52
# Points this close to a peak, relative to the ratio, are not told apart from it by a cone.
NEAR = 1024 * EPS
# Stands for an infinite slope where a product with zero must be zero.
STEEP = 1e300
# Repack once fewer than this share of the slots is live.
SPARSE = 0.35

# positions in `counts`
SIZE, LIVE, LEVEL, CHANGED, NEWEST, RUNNER_UP, SCANS = range(7)
N_COUNTS = 7
# rows of `watch`: largest excess in a group of rows over a ratio at given traces, and its range of 2 B
EXCESS, RATIO, AT_A, AT_B, LOW, HIGH = range(6)


class BoundState(NamedTuple):
    """All the memory of a bound search; arrays have one entry per slot where not said otherwise."""

    A: np.ndarray  # (d, d), the first `size` rows and columns in use
    B: np.ndarray
    word: np.ndarray  # name of the group in a slot: its smallest word
    order: np.ndarray
    peak_a: np.ndarray  # 2 A of the peak; -inf: no pair; +inf: nothing known, scan when asked
    peak_b: np.ndarray  # 2 B of the peak
    partner: np.ndarray  # the other slot of the peak's pair
    right: np.ndarray  # slopes of the cone
    left: np.ndarray
    low: np.ndarray  # range of 2 B over the row's pairs
    high: np.ndarray
    changed: np.ndarray  # live slots that were merged, in the first counts[CHANGED]
    watch: np.ndarray  # (6, groups of rows): see `_list_candidates`
    candidates: np.ndarray  # scratch
    lanes: np.ndarray  # (3 * LANES,), scratch
    traces: np.ndarray
    counts: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def _forget(state, i):
    """Row i has no pair."""
    state.partner[i] = -1
    state.peak_a[i] = -np.inf
    state.peak_b[i] = 0.0
    state.low[i] = 0.0
    state.high[i] = 0.0
    state.right[i] = 0.0
    state.left[i] = 0.0
    state.watch[EXCESS, i // WATCH] = np.inf
    return -np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def _remember(state, i, start, best, low, high):
    """Store what a scan of row i found, with the widest cone: the half-plane below the line of the best ratio."""
    if low == np.inf:
        return _forget(state, i)
    a = state.traces[TRACE_A]
    b = state.traces[TRACE_B]
    if b + low <= state.traces[FLOOR_B]:
        return _scan_degenerate(state, i)
    partner = find_best(
        state.A[i], state.B[i], state.order, state.lanes, start, state.counts[SIZE], state.order[i], a, b, best
    )  # fmt: skip
    state.partner[i] = partner
    state.low[i] = low
    state.high[i] = high
    state.right[i] = best
    state.left[i] = best
    state.peak_a[i] = 2.0 * state.A[i, partner]
    state.peak_b[i] = 2.0 * state.B[i, partner]
    state.traces[SCALE] = max(state.traces[SCALE], abs(state.peak_a[i]))
    state.watch[EXCESS, i // WATCH] = np.inf
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _scan_degenerate(state, i):
    """Scan a row that has a pair with a vanishing denominator, pair by pair.

    Such a pair can become an ordinary one when the traces grow, so nothing about the row is relied on later.
    """
    best = -np.inf
    partner = -1
    for j in range(state.counts[SIZE]):
        if state.order[j] < state.order[i]:
            value = pair_ratio(state.traces, state.A[i, j], state.B[i, j])
            if value > best:
                best = value
                partner = j
    _forget(state, i)
    state.peak_a[i] = np.inf
    state.partner[i] = partner
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _scan(state, i, start):
    """Find the best pair of row i among the slots from `start` on, and remember it. Cost O(size - start)."""
    best, low, high = scan_row(
        state.A[i], state.B[i], state.order, state.lanes, start, state.counts[SIZE], state.order[i],
        state.traces[TRACE_A], state.traces[TRACE_B],
    )  # fmt: skip
    return _remember(state, i, start, best, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def scan_fresh_rows(state, start, stop):
    """First scan of rows that were never merged: they own exactly the pairs to their right."""
    for i in range(start, stop):
        _scan(state, i, i + 1)


@njit(cache=True, nogil=True, error_model="numpy")
def _cone_block(row_a, row_b, order, lanes, own_order, a, b, peak_a, peak_b):
    """Take up to `LANES` points into the lanes: the largest slope from the peak to points right of it, the smallest
    to points left of it, and the best ratio among the points that differ from the peak.
    """
    for k in range(row_a.shape[0]):
        own = order[k] < own_order
        x = 2.0 * row_a[k]
        y = 2.0 * row_b[k]
        dx = x - peak_a
        dy = y - peak_b
        slope = dx / dy
        right = slope if own and dy > 0.0 else -np.inf
        left = slope if own and dy < 0.0 else np.inf
        ratio = (a + x) / (b + y) if own and (dx != 0.0 or dy != 0.0) else -np.inf
        lanes[k] = right if right > lanes[k] else lanes[k]
        lanes[LANES + k] = left if left < lanes[LANES + k] else lanes[LANES + k]
        lanes[2 * LANES + k] = ratio if ratio > lanes[2 * LANES + k] else lanes[2 * LANES + k]


@njit(cache=True, nogil=True, error_model="numpy")
def _scan_with_cone(state, i):
    """Scan row i, then narrow its cone to what its points allow: worth a second pass on rows asked for again."""
    best = _scan(state, i, 0)
    state.counts[SCANS] += 1
    if not np.isfinite(state.peak_a[i]):
        return best
    a = state.traces[TRACE_A]
    b = state.traces[TRACE_B]
    size = state.counts[SIZE]
    clear_lanes(state.lanes)
    for j in range(0, size, LANES):
        end = min(j + LANES, size)
        _cone_block(
            state.A[i, j:end], state.B[i, j:end], state.order[j:end], state.lanes, state.order[i],
            a, b, state.peak_a[i], state.peak_b[i],
        )  # fmt: skip
    right, left, second = join_lanes(state.lanes)
    # Slopes half-way to the line: where such a cone says that the peak is best, the peak leads every other point
    # by about half of today's lead or more, and that lead is well above rounding. Rows with a closer second
    # keep the half-plane.
    doubt = NEAR * max(abs(best), state.traces[SCALE] / (b + state.peak_b[i]))
    if second < best - doubt:
        state.right[i] = 0.5 * (best + max(right, -STEEP))
        state.left[i] = 0.5 * (best + min(left, STEEP))
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _excess(state, i, ratio):
    """Upper bound of ``(a + 2A) - ratio (b + 2B)`` over the pairs of row i. Below zero, none reaches the ratio."""
    a = state.traces[TRACE_A]
    b = state.traces[TRACE_B]
    if b + state.low[i] <= state.traces[FLOOR_B]:
        return np.inf
    at_peak = (a + state.peak_a[i]) - ratio * (b + state.peak_b[i])
    right_of_it = (state.right[i] - ratio) * (state.high[i] - state.peak_b[i])
    left_of_it = (ratio - state.left[i]) * (state.peak_b[i] - state.low[i])
    return at_peak + max(max(right_of_it, left_of_it), 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _owns_peak(state, i):
    """Whether the pair of row i's peak is still a pair of row i."""
    return state.partner[i] >= 0 and state.order[state.partner[i]] < state.order[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _peak_ratio(state, i):
    """Ratio of the pair at row i's peak, which the row must still own."""
    if state.peak_a[i] == np.inf or state.traces[TRACE_B] + state.peak_b[i] <= state.traces[FLOOR_B]:
        j = state.partner[i]
        return pair_ratio(state.traces, state.A[i, j], state.B[i, j])
    return (state.traces[TRACE_A] + state.peak_a[i]) / (state.traces[TRACE_B] + state.peak_b[i])


@njit(cache=True, nogil=True, error_model="numpy")
def _slack(state, ratio):
    """How far rounding can move an excess."""
    traces = state.traces
    return 8 * EPS * (abs(traces[TRACE_A]) + abs(ratio) * traces[TRACE_B] + traces[SCALE])


@njit(cache=True, nogil=True, error_model="numpy")
def _group_may_reach(state, group, ratio, slack):
    """Whether a group of rows may hold a pair at least as good as `ratio`, from its last look. Cost O(1).

    A point whose excess was e over ratio r0 at traces a0, b0 has ``e + (a - a0) - r0 (b - b0) - (r - r0)(b + 2B)``
    over ratio r at traces a, b.
    """
    watch = state.watch
    a = state.traces[TRACE_A]
    b = state.traces[TRACE_B]
    if b + watch[LOW, group] <= state.traces[FLOOR_B]:
        return True
    rise = ratio - watch[RATIO, group]
    denominator = b + (watch[LOW, group] if rise > 0.0 else watch[HIGH, group])
    drift = (a - watch[AT_A, group]) - watch[RATIO, group] * (b - watch[AT_B, group]) - rise * denominator
    return watch[EXCESS, group] + drift >= -slack


@njit(cache=True, nogil=True, error_model="numpy")
def _list_candidates(state, ratio):
    """List the rows that may hold a pair at least as good as `ratio`, looking only into groups that may have one."""
    n = 0
    size = state.counts[SIZE]
    watch = state.watch
    everything = not np.isfinite(ratio)
    slack = 0.0 if everything else _slack(state, ratio)
    for group in range((size + WATCH - 1) // WATCH):
        if not everything and not _group_may_reach(state, group, ratio, slack):
            continue
        largest = -np.inf
        low = np.inf
        high = -np.inf
        for i in range(group * WATCH, min((group + 1) * WATCH, size)):
            if state.order[i] == DEAD:
                continue
            excess = np.inf if everything else _excess(state, i, ratio)
            if excess >= -slack:
                state.candidates[n] = i
                n += 1
            largest = max(largest, excess)
            low = min(low, state.low[i])
            high = max(high, state.high[i])
        watch[EXCESS, group] = largest
        watch[LOW, group] = low
        watch[HIGH, group] = high
        watch[RATIO, group] = 0.0 if everything else ratio
        watch[AT_A, group] = state.traces[TRACE_A]
        watch[AT_B, group] = state.traces[TRACE_B]
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def _search(state):
    """Best pair of the level as slots (s, t), s < t, lowest pair first among equals; s = -1 if all are 0/0."""
    best = -np.inf
    s = -1
    t = -1
    owner = -1
    # A good pair to start from, so that few rows remain to be looked at.
    for i in (state.counts[NEWEST], state.counts[RUNNER_UP]):
        if i >= 0 and _owns_peak(state, i):
            j = state.partner[i]
            value = _peak_ratio(state, i)
            if value > best:
                best, s, t, owner = value, min(i, j), max(i, j), i
    n_candidates = _list_candidates(state, best)

    # The remembered peaks raise the bar before any row is scanned.
    for c in range(n_candidates):
        i = state.candidates[c]
        if _owns_peak(state, i):
            j = state.partner[i]
            value = _peak_ratio(state, i)
            if value > best or (value == best and s >= 0 and precedes(i, j, s, t)):
                best, s, t, owner = value, min(i, j), max(i, j), i

    runner_up = -1
    second = -np.inf
    a = state.traces[TRACE_A]
    b = state.traces[TRACE_B]
    for c in range(n_candidates):
        i = state.candidates[c]
        if i == owner and i == state.counts[NEWEST]:
            continue  # scanned at these very traces
        if np.isfinite(state.peak_a[i]) and b + state.low[i] > state.traces[FLOOR_B] and best > -np.inf:
            if best == np.inf or _excess(state, i, best) < -_slack(state, best):
                continue
            value = (a + state.peak_a[i]) / (b + state.peak_b[i])
            if state.right[i] < value < state.left[i]:
                # Nothing in this row exceeds its peak, and what equals it comes after it.
                j = state.partner[i]
                if _owns_peak(state, i) or value < best or (value == best and j >= 0 and not precedes(i, j, s, t)):
                    if value > second and i != owner:
                        second = value
                        runner_up = i
                    continue
        value = _scan_with_cone(state, i)
        if value == -np.inf:
            continue
        j = state.partner[i]
        if value > best or (value == best and precedes(i, j, s, t)):
            if i != owner:
                second = best
                runner_up = owner
            best, s, t, owner = value, min(i, j), max(i, j), i
        elif value > second and i != owner:
            second = value
            runner_up = i
    state.counts[RUNNER_UP] = runner_up
    return s, t


@njit(cache=True, nogil=True, error_model="numpy")
def _add(row, other):
    """``row += other``."""
    for k in range(row.shape[0]):
        row[k] += other[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _bring_up_to_date(state, s, t):
    """Fetch into rows s and t the entries that newer rows own, and put s on the list of merged slots."""
    A, B, order, changed = state.A, state.B, state.order, state.changed
    kept = 0
    for c in range(state.counts[CHANGED]):
        j = changed[c]
        if order[j] > order[s]:
            A[s, j] = A[j, s]
            B[s, j] = B[j, s]
        if order[j] > order[t]:
            A[t, j] = A[j, t]
            B[t, j] = B[j, t]
        if j != s and j != t:
            changed[kept] = j
            kept += 1
    changed[kept] = s
    state.counts[CHANGED] = kept + 1


@njit(cache=True, nogil=True, error_model="numpy")
def _join(state, s, t):
    """Account for merging slot t into slot s, all but the row of s; returns the new diagonal entries."""
    A, B, order, counts, traces = state.A, state.B, state.order, state.counts, state.traces
    _bring_up_to_date(state, s, t)
    owner, other = (s, t) if order[t] < order[s] else (t, s)
    pair_a = A[owner, other]
    pair_b = B[owner, other]
    own_a = A[s, s] + A[t, t] + 2.0 * pair_a
    own_b = B[s, s] + B[t, t] + 2.0 * pair_b
    update_traces(traces, pair_a, pair_b)
    counts[LIVE] -= 1
    counts[LEVEL] += 1
    _forget(state, t)
    order[t] = DEAD
    order[s] = order.shape[0] + counts[LEVEL]
    counts[NEWEST] = s
    if counts[LEVEL] % RESUM_EVERY == 0:
        A[s, s] = own_a
        B[s, s] = own_b
        resum_traces(traces, A, B, order, counts[SIZE])
    return own_a, own_b


@njit(cache=True, nogil=True, error_model="numpy")
def _merge(state, s, t):
    """Merge slot t into slot s: one row is written, and scanned on the way. Cost O(size)."""
    A, B, order, traces = state.A, state.B, state.order, state.traces
    own_a, own_b = _join(state, s, t)
    size = state.counts[SIZE]
    clear_lanes(state.lanes)
    for j in range(0, size, LANES):  # in blocks, so that what was added is scanned while it is in the cache
        end = min(j + LANES, size)
        _add(A[s, j:end], A[t, j:end])
        _add(B[s, j:end], B[t, j:end])
        scan_block(
            A[s, j:end], B[s, j:end], order[j:end], state.lanes, order[s], traces[TRACE_A], traces[TRACE_B]
        )  # fmt: skip
    A[s, s] = own_a
    B[s, s] = own_b
    best, low, high = join_lanes(state.lanes)
    _remember(state, s, 0, best, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def merge_given(state, s, t, row_a, row_b):
    """Merge slot t into slot s, whose new entries are given; returns the criterion after it."""
    own_a, own_b = _join(state, s, t)
    size = state.counts[SIZE]
    state.A[s, :size] = row_a
    state.B[s, :size] = row_b
    state.A[s, s] = own_a
    state.B[s, s] = own_b
    _scan(state, s, 0)
    return current_score(state.traces)


@njit(cache=True, nogil=True, error_model="numpy")
def _pack(state):
    """Close the gaps that dead slots left, keeping the order of the slots."""
    counts = state.counts
    slots = state.candidates
    n = 0
    place = np.full(counts[SIZE], -1, dtype=np.int64)
    for i in range(counts[SIZE]):
        if state.order[i] != DEAD:
            place[i] = n
            slots[n] = i
            n += 1
    pack(state.A, slots, n)
    pack(state.B, slots, n)
    for i in range(n):
        old = slots[i]
        state.word[i] = state.word[old]
        state.order[i] = state.order[old]
        state.peak_a[i] = state.peak_a[old]
        state.peak_b[i] = state.peak_b[old]
        state.right[i] = state.right[old]
        state.left[i] = state.left[old]
        state.low[i] = state.low[old]
        state.high[i] = state.high[old]
        state.partner[i] = place[state.partner[old]] if state.partner[old] >= 0 else -1
    for c in range(counts[CHANGED]):
        state.changed[c] = place[state.changed[c]]
    for hint in (NEWEST, RUNNER_UP):
        if counts[hint] >= 0:
            counts[hint] = place[counts[hint]]
    counts[SIZE] = n
    state.watch[EXCESS] = np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def find(state):
    """Slots (s, t), s < t, of the pair to merge next."""
    if state.counts[LIVE] < SPARSE * state.counts[SIZE]:
        _pack(state)
    s, t = _search(state)
    if s < 0:
        return first_live_pair(state.order, state.counts[SIZE])
    return s, t


@njit(cache=True, nogil=True, error_model="numpy")
def advance(state, pairs, scores):
    """Merge ``len(pairs)`` times; write the names of the merged groups and the criterion after each merge."""
    for k in range(pairs.shape[0]):
        s, t = find(state)
        pairs[k, 0] = state.word[s]
        pairs[k, 1] = state.word[t]
        _merge(state, s, t)
        scores[k] = current_score(state.traces)
