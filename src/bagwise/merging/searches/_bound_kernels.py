"""Compiled code of the lazy bound search: upper bounds per row, and the search over A and B in memory.

Notation. At one level the traces are ``a`` and ``b``; merging words s and t gives the ratio
``(a + 2 A[s, t]) / (b + 2 B[s, t])``. A pair is thus a point ``(2 B[s, t], 2 A[s, t])`` and its
ratio is the slope of the line from ``(-b, -a)`` to that point.

Ownership. Every pair belongs to one row: that of the word which changed last, among unchanged words
that of the lower index. ``order`` holds this as one number per slot: row i owns the pair (i, j) if
``order[j] < order[i]``, and dead slots have an order above all others. Only the owner's entry of a pair is up to
date in A and B, so a merge writes one row and never a column.

Upper bounds. A row remembers its top, the point of its best pair when it was last scanned, and two slopes: no other
point of the row lies above the line of slope ``right`` to the right of the top, nor above the line of slope ``left``
to its left. Points only ever leave a row, so this stays true until the row itself is merged. It bounds how far any
pair of the row can exceed a given ratio (`excess`) without scanning the row, and shows when the top is certainly
still the best pair. Where rows are costly the second best point is remembered as well, for when the pair of the top
goes to a newer row: then no point lies above the line of the ratio it had.

A refused pair has the entry -inf in A, so that its ratio is -inf; adding rows keeps it refused.

A level is searched in turns: `open_level`, then as long as `next_wanted` names a row, `take_row` with its entries.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from bagwise.merging.searches._kernels import (
    DEAD,
    FLOOR_B,
    RESUM_EVERY,
    SCALE,
    TRACE_A,
    TRACE_B,
    WIDTH,
    clear_partial,
    current_score,
    find_best,
    first_live_pair,
    pack,
    pair_ratio,
    precedes,
    reduce_partial,
    resum_traces,
    scan_block,
    scan_row,
    update_traces,
)

# Rows are watched in groups of this many.
WATCH = 64
EPS = 2.0**-52
# Points closer to the top than this many times the rounding error are not separated from it by the slopes.
NEAR = 128
# Stands for an infinite slope where a product with zero must be zero.
STEEP = 1e300

# positions in `counts`; COSTLY is 1 where rows are costly to compute, the last six belong to the level being searched
SIZE, LIVE, LEVEL, NEWEST, RUNNER_UP, SCANS, COSTLY = range(7)
BEST_S, BEST_T, OWNER, SECOND_OWNER, N_CANDIDATES, CURSOR = range(7, 13)
N_COUNTS = 13
# positions in `bests`: the best ratio found at this level, that of another row, and the error bound of entries
BEST, SECOND, ROUNDING = range(3)
N_BESTS = 3
# rows of `watch`: largest excess in a group of rows over a ratio at given traces, and its range of 2 B
EXCESS, RATIO, AT_A, AT_B, LOW, HIGH = range(6)


class RowBounds(NamedTuple):
    """What a bound search remembers of its rows; one entry per slot unless stated otherwise."""

    word: np.ndarray  # name of the group in a slot: its smallest word
    order: np.ndarray
    own_a: np.ndarray  # diagonals of A and B
    own_b: np.ndarray
    top_a: np.ndarray  # 2 A of the top; -inf: no pair; +inf: nothing known, scan when asked
    top_b: np.ndarray  # 2 B of the top
    partner: np.ndarray  # the other slot of the top's pair
    right: np.ndarray  # slopes of the bound
    left: np.ndarray
    next_a: np.ndarray  # the second best point; -inf: not known
    next_b: np.ndarray
    next_ratio: np.ndarray  # its ratio at the time
    low: np.ndarray  # range of 2 B over the row's pairs
    high: np.ndarray
    watch: np.ndarray  # (6, groups of rows): see `_list_candidates`
    candidates: np.ndarray  # scratch
    partial: np.ndarray  # (3 * WIDTH,), scratch
    traces: np.ndarray
    bests: np.ndarray
    counts: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def _forget(bounds, i):
    """Row i has no pair."""
    bounds.partner[i] = -1
    bounds.top_a[i] = bounds.next_a[i] = -np.inf
    bounds.top_b[i] = bounds.low[i] = bounds.high[i] = bounds.right[i] = bounds.left[i] = 0.0
    bounds.watch[EXCESS, i // WATCH] = np.inf
    return -np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def remember(bounds, i, row_a, row_b, start, best, low, high):
    """Store what a scan of row i found, with the loosest bound: the half-plane below the line of the best ratio.

    The partial results must still be those of the scan.
    """
    if low == np.inf or best == -np.inf:
        return _forget(bounds, i)
    a, b = bounds.traces[TRACE_A], bounds.traces[TRACE_B]
    if b + low <= bounds.traces[FLOOR_B]:
        return _scan_degenerate(bounds, i, row_a, row_b)
    partner = find_best(
        row_a, row_b, bounds.order, bounds.partial, start, bounds.counts[SIZE], bounds.order[i], a, b, best
    )  # fmt: skip
    bounds.partner[i] = partner
    bounds.next_a[i] = -np.inf
    bounds.low[i], bounds.high[i] = low, high
    bounds.right[i] = bounds.left[i] = best
    bounds.top_a[i] = 2.0 * row_a[partner]
    bounds.top_b[i] = 2.0 * row_b[partner]
    bounds.traces[SCALE] = max(bounds.traces[SCALE], abs(bounds.top_a[i]))
    bounds.watch[EXCESS, i // WATCH] = np.inf
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _scan_degenerate(bounds, i, row_a, row_b):
    """Scan a row that has a pair with a vanishing denominator, pair by pair.

    Such a pair can become an ordinary one when the traces grow, so nothing about the row is relied on later.
    """
    best, partner = -np.inf, -1
    for j in range(bounds.counts[SIZE]):
        if bounds.order[j] < bounds.order[i]:
            value = pair_ratio(bounds.traces, row_a[j], row_b[j])
            if value > best:
                best = value
                partner = j
    _forget(bounds, i)
    bounds.top_a[i] = np.inf
    bounds.partner[i] = partner
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def scan(bounds, i, row_a, row_b, start):
    """Find the best pair of row i among the slots from `start` on, and remember it. Cost O(size - start)."""
    best, low, high = scan_row(
        row_a, row_b, bounds.order, bounds.partial, start, bounds.counts[SIZE], bounds.order[i],
        bounds.traces[TRACE_A], bounds.traces[TRACE_B],
    )  # fmt: skip
    return remember(bounds, i, row_a, row_b, start, best, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def _remember_next(bounds, i, row_a, row_b, start):
    """After a scan of row i, remember its best pair without the top's partner as well. Cost: one more scan."""
    if not np.isfinite(bounds.top_a[i]):
        return
    a, b = bounds.traces[TRACE_A], bounds.traces[TRACE_B]
    size = bounds.counts[SIZE]
    partner = bounds.partner[i]
    best = -np.inf
    # on both sides of the partner
    for part in range(2):
        low, high = (start, partner) if part == 0 else (partner + 1, size)
        ratio, _, _ = scan_row(row_a, row_b, bounds.order, bounds.partial, low, high, bounds.order[i], a, b)
        if ratio > best:
            best = ratio
            j = find_best(row_a, row_b, bounds.order, bounds.partial, low, high, bounds.order[i], a, b, ratio)
            bounds.next_a[i] = 2.0 * row_a[j]
            bounds.next_b[i] = 2.0 * row_b[j]
            bounds.next_ratio[i] = ratio


@njit(cache=True, nogil=True, error_model="numpy")
def _slope_block(row_a, row_b, order, partial, own_order, a, b, top_a, top_b):
    """Update the partial results with up to `WIDTH` points: the largest slope from the top to points right of it, the
    smallest to points left of it, and the best ratio among the points that differ from the top.
    """
    for k in range(row_a.shape[0]):
        owned = order[k] < own_order
        x = 2.0 * row_a[k]
        y = 2.0 * row_b[k]
        dx = x - top_a
        dy = y - top_b
        slope = dx / dy
        right = slope if owned and dy > 0.0 else -np.inf
        left = slope if owned and dy < 0.0 else np.inf
        ratio = (a + x) / (b + y) if owned and (dx != 0.0 or dy != 0.0) else -np.inf
        partial[k] = right if right > partial[k] else partial[k]
        partial[WIDTH + k] = left if left < partial[WIDTH + k] else partial[WIDTH + k]
        partial[2 * WIDTH + k] = ratio if ratio > partial[2 * WIDTH + k] else partial[2 * WIDTH + k]


@njit(cache=True, nogil=True, error_model="numpy")
def scan_tight(bounds, i, row_a, row_b, start):
    """`scan`, then tighten the bound to what the points allow, in a second pass: for rows that are scanned again.

    Where rows are costly to compute, the second best point is remembered as well, in a third pass.
    """
    best = scan(bounds, i, row_a, row_b, start)
    if not np.isfinite(bounds.top_a[i]):
        return best
    a, b = bounds.traces[TRACE_A], bounds.traces[TRACE_B]
    size = bounds.counts[SIZE]
    clear_partial(bounds.partial)
    for j in range(start, size, WIDTH):
        end = min(j + WIDTH, size)
        _slope_block(
            row_a[j:end], row_b[j:end], bounds.order[j:end], bounds.partial, bounds.order[i],
            a, b, bounds.top_a[i], bounds.top_b[i],
        )  # fmt: skip
    right, left, second = reduce_partial(bounds.partial)
    if bounds.counts[COSTLY]:
        _remember_next(bounds, i, row_a, row_b, start)
    # Slopes half-way to the line: where such a bound says that the top is best, it leads every other point
    # by about half of today's lead or more, and that lead is well above rounding. Rows with a closer second
    # keep the half-plane.
    doubt = NEAR * bounds.bests[ROUNDING] * max(abs(best), bounds.traces[SCALE] / (b + bounds.top_b[i]))
    if second < best - doubt:
        bounds.right[i] = 0.5 * (best + max(right, -STEEP))
        bounds.left[i] = 0.5 * (best + min(left, STEEP))
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def scan_block_rows(bounds, block_a, block_b, start, first, last):
    """First scan of the rows ``start + first..start + last``, which a block of rows from `start` on holds.

    Rows that were never merged own exactly the pairs to their right.
    """
    for k in range(first, last):
        if bounds.counts[COSTLY]:
            scan_tight(bounds, start + k, block_a[k], block_b[k], start + k + 1)
        else:
            scan(bounds, start + k, block_a[k], block_b[k], start + k + 1)


@njit(cache=True, nogil=True, error_model="numpy")
def _excess_bound(a, b, floor, ratio, top_a, top_b, right, left, low, high):
    """Upper bound of ``(a + 2A) - ratio (b + 2B)`` over the pairs of a row, from its slopes.

    Takes numbers, since handing over all of the memory for each row would cost more than the bound.
    """
    if b + low <= floor:
        return np.inf
    at_top = (a + top_a) - ratio * (b + top_b)
    right_of_it = (right - ratio) * (high - top_b)
    left_of_it = (ratio - left) * (top_b - low)
    return at_top + max(max(right_of_it, left_of_it), 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _excess_without_top(bounds, i, ratio):
    """The same bound for a row that has lost the pair of its top, from the second best point; else infinity."""
    partner = bounds.partner[i]
    if bounds.next_a[i] == -np.inf or (partner >= 0 and bounds.order[partner] < bounds.order[i]):
        return np.inf
    at_next = (bounds.traces[TRACE_A] + bounds.next_a[i]) - ratio * (bounds.traces[TRACE_B] + bounds.next_b[i])
    steeper = bounds.next_ratio[i] - ratio
    return at_next + steeper * ((bounds.high[i] if steeper > 0.0 else bounds.low[i]) - bounds.next_b[i])


@njit(cache=True, nogil=True, error_model="numpy")
def excess(bounds, i, ratio, slack):
    """How far pairs of row i can exceed a ratio, at most. Below `-slack`, none reaches it."""
    over = _excess_bound(
        bounds.traces[TRACE_A], bounds.traces[TRACE_B], bounds.traces[FLOOR_B], ratio, bounds.top_a[i], bounds.top_b[i],
        bounds.right[i], bounds.left[i], bounds.low[i], bounds.high[i],
    )  # fmt: skip
    if bounds.counts[COSTLY] and -slack <= over < np.inf:
        return min(over, _excess_without_top(bounds, i, ratio))
    return over


@njit(cache=True, nogil=True, error_model="numpy")
def _owns_top(bounds, i):
    """Whether row i has a top whose pair is still a pair of row i."""
    partner = bounds.partner[i]
    return partner >= 0 and np.isfinite(bounds.top_a[i]) and bounds.order[partner] < bounds.order[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _slack(bounds, ratio):
    """How far rounding can move an excess."""
    traces = bounds.traces
    return bounds.bests[ROUNDING] * (abs(traces[TRACE_A]) + abs(ratio) * traces[TRACE_B] + traces[SCALE])


@njit(cache=True, nogil=True, error_model="numpy")
def _group_may_reach(watch, group, a, b, floor, ratio, slack):
    """Whether a group of rows may hold a pair at least as good as `ratio`, from its last look. Cost O(1).

    A point whose excess was e over ratio r0 at traces a0, b0 has ``e + (a - a0) - r0 (b - b0) - (r - r0)(b + 2B)``
    over ratio r at traces a, b.
    """
    if b + watch[LOW, group] <= floor:
        return True
    rise = ratio - watch[RATIO, group]
    denominator = b + (watch[LOW, group] if rise > 0.0 else watch[HIGH, group])
    drift = (a - watch[AT_A, group]) - watch[RATIO, group] * (b - watch[AT_B, group]) - rise * denominator
    return watch[EXCESS, group] + drift >= -slack


@njit(cache=True, nogil=True, error_model="numpy")
def _list_candidates(bounds, ratio):
    """List the rows that may hold a pair at least as good as `ratio`, looking only into groups that may have one."""
    n = 0
    size = bounds.counts[SIZE]
    costly = bounds.counts[COSTLY]
    watch, order, candidates = bounds.watch, bounds.order, bounds.candidates
    top_a, top_b, right, left, low, high = (
        bounds.top_a, bounds.top_b, bounds.right, bounds.left, bounds.low, bounds.high
    )  # fmt: skip
    a, b = bounds.traces[TRACE_A], bounds.traces[TRACE_B]
    floor = bounds.traces[FLOOR_B]
    everything = not np.isfinite(ratio)
    slack = 0.0 if everything else _slack(bounds, ratio)
    for group in range((size + WATCH - 1) // WATCH):
        if not everything and not _group_may_reach(watch, group, a, b, floor, ratio, slack):
            continue
        largest, lowest, highest = -np.inf, np.inf, -np.inf
        for i in range(group * WATCH, min((group + 1) * WATCH, size)):
            if order[i] == DEAD:
                continue
            over = np.inf
            if not everything:
                over = _excess_bound(
                    a, b, floor, ratio, top_a[i], top_b[i], right[i], left[i], low[i], high[i]
                )  # fmt: skip
                if costly and -slack <= over < np.inf:
                    over = min(over, _excess_without_top(bounds, i, ratio))
            if over >= -slack:
                candidates[n] = i
                n += 1
            largest = max(largest, over)
            lowest = min(lowest, low[i])
            highest = max(highest, high[i])
        watch[EXCESS, group], watch[LOW, group], watch[HIGH, group] = largest, lowest, highest
        watch[RATIO, group] = 0.0 if everything else ratio
        watch[AT_A, group], watch[AT_B, group] = a, b
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def _offer(bounds, i, value):
    """Take the top pair of row i, which has this ratio, if it is the best so far; the lowest pair among equals."""
    bests, counts = bounds.bests, bounds.counts
    j = bounds.partner[i]
    if value > bests[BEST] or (
        value == bests[BEST] and counts[BEST_S] >= 0 and precedes(i, j, counts[BEST_S], counts[BEST_T])
    ):
        bests[BEST] = value
        counts[BEST_S], counts[BEST_T] = min(i, j), max(i, j)
        counts[OWNER] = i
        return True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def open_level(bounds):
    """Begin the search of a level: list the rows that may hold its best pair, after what is remembered of them."""
    bests, counts, traces = bounds.bests, bounds.counts, bounds.traces
    bests[BEST] = bests[SECOND] = -np.inf
    counts[BEST_S] = counts[BEST_T] = counts[OWNER] = counts[SECOND_OWNER] = -1
    counts[CURSOR] = 0
    # Start from a good pair, so that few rows remain.
    for i in (counts[NEWEST], counts[RUNNER_UP]):
        if i >= 0 and _owns_top(bounds, i):
            value = pair_ratio(traces, 0.5 * bounds.top_a[i], 0.5 * bounds.top_b[i])
            if value > bests[BEST]:
                _offer(bounds, i, value)
    counts[N_CANDIDATES] = _list_candidates(bounds, bests[BEST])
    # The remembered tops raise the best ratio before any row is scanned.
    for c in range(counts[N_CANDIDATES]):
        i = bounds.candidates[c]
        if _owns_top(bounds, i):
            _offer(bounds, i, pair_ratio(traces, 0.5 * bounds.top_a[i], 0.5 * bounds.top_b[i]))


@njit(cache=True, nogil=True, error_model="numpy")
def next_wanted(bounds):
    """The next row that must be scanned to know the best pair of the level; -1: it is known."""
    bests, counts, traces = bounds.bests, bounds.counts, bounds.traces
    a, b = traces[TRACE_A], traces[TRACE_B]
    while counts[CURSOR] < counts[N_CANDIDATES]:
        i = bounds.candidates[counts[CURSOR]]
        counts[CURSOR] += 1
        best = bests[BEST]
        if i == counts[OWNER] and i == counts[NEWEST]:
            continue  # scanned at these very traces
        if np.isfinite(bounds.top_a[i]) and b + bounds.low[i] > traces[FLOOR_B] and best > -np.inf:
            slack = _slack(bounds, best)
            if best == np.inf or excess(bounds, i, best, slack) < -slack:
                continue
            value = (a + bounds.top_a[i]) / (b + bounds.top_b[i])
            if bounds.right[i] < value < bounds.left[i]:
                # Nothing in this row exceeds its top, and what equals it comes after it.
                j = bounds.partner[i]
                behind = value == best and j >= 0 and not precedes(i, j, counts[BEST_S], counts[BEST_T])
                if value < best or behind or _owns_top(bounds, i):
                    if value > bests[SECOND] and i != counts[OWNER]:
                        bests[SECOND] = value
                        counts[SECOND_OWNER] = i
                    continue
        return i
    counts[RUNNER_UP] = counts[SECOND_OWNER]
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def take_row(bounds, i, row_a, row_b):
    """Scan a wanted row, whose entries with all slots are given, for the best pair of the level."""
    bests, counts = bounds.bests, bounds.counts
    counts[SCANS] += 1
    value = scan_tight(bounds, i, row_a, row_b, 0)
    if value == -np.inf:
        return
    best, owner = bests[BEST], counts[OWNER]
    if _offer(bounds, i, value):
        if i != owner:
            bests[SECOND] = best
            counts[SECOND_OWNER] = owner
    elif value > bests[SECOND] and i != counts[OWNER]:
        bests[SECOND] = value
        counts[SECOND_OWNER] = i


@njit(cache=True, nogil=True, error_model="numpy")
def best_pair(bounds):
    """Slots (s, t), s < t, of the pair found at this level; the first two live ones where all pairs are 0/0."""
    if bounds.counts[BEST_S] < 0:
        return first_live_pair(bounds.order, bounds.counts[SIZE])
    return bounds.counts[BEST_S], bounds.counts[BEST_T]


@njit(cache=True, nogil=True, error_model="numpy")
def join(bounds, s, t, pair_a, pair_b):
    """Update all but the row of s for merging slot t into slot s, whose entries of A and B are given."""
    own_a, own_b, counts, order = bounds.own_a, bounds.own_b, bounds.counts, bounds.order
    own_a[s] = own_a[s] + own_a[t] + 2.0 * pair_a
    own_b[s] = own_b[s] + own_b[t] + 2.0 * pair_b
    update_traces(bounds.traces, pair_a, pair_b)
    counts[LIVE] -= 1
    counts[LEVEL] += 1
    _forget(bounds, t)
    order[t] = DEAD
    order[s] = order.shape[0] + counts[LEVEL]
    counts[NEWEST] = s
    if counts[LEVEL] % RESUM_EVERY == 0:
        resum_traces(bounds.traces, own_a, own_b, order, counts[SIZE])


@njit(cache=True, nogil=True, error_model="numpy")
def pack_bounds(bounds, slots, new_slot):
    """Close the gaps that dead slots left, keeping the order of the slots; returns how many are left.

    Writes the old number of each slot that is left to `slots`, and to `new_slot` the new number of each old one or -1.
    """
    counts = bounds.counts
    n = 0
    for i in range(counts[SIZE]):
        new_slot[i] = -1
        if bounds.order[i] != DEAD:
            new_slot[i] = n
            slots[n] = i
            n += 1
    for i in range(n):
        old = slots[i]
        bounds.word[i], bounds.order[i] = bounds.word[old], bounds.order[old]
        bounds.partner[i] = new_slot[bounds.partner[old]] if bounds.partner[old] >= 0 else -1
        for values in (
            bounds.own_a, bounds.own_b, bounds.top_a, bounds.top_b, bounds.right, bounds.left,
            bounds.next_a, bounds.next_b, bounds.next_ratio, bounds.low, bounds.high,
        ):  # fmt: skip
            values[i] = values[old]
    for hint in (NEWEST, RUNNER_UP):
        if counts[hint] >= 0:
            counts[hint] = new_slot[counts[hint]]
    counts[SIZE] = n
    bounds.watch[EXCESS] = np.inf
    return n


# Repack once less than this fraction of the slots is live.
SPARSE = 0.35


class BoundState(NamedTuple):
    """All the memory of a bound search over matrices."""

    A: np.ndarray  # (d, d), the first `size` rows and columns in use
    B: np.ndarray
    bounds: RowBounds
    changed: np.ndarray  # live slots that were merged, in the first n_changed[0]
    n_changed: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def _add(row, other):
    """``row += other``."""
    for k in range(row.shape[0]):
        row[k] += other[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _bring_up_to_date(state, s, t):
    """Fetch into rows s and t the entries that newer rows own, and put s on the list of merged slots."""
    A, B, order, changed = state.A, state.B, state.bounds.order, state.changed
    kept = 0
    for c in range(state.n_changed[0]):
        j = changed[c]
        if order[j] > order[s]:
            A[s, j], B[s, j] = A[j, s], B[j, s]
        if order[j] > order[t]:
            A[t, j], B[t, j] = A[j, t], B[j, t]
        if j != s and j != t:
            changed[kept] = j
            kept += 1
    changed[kept] = s
    state.n_changed[0] = kept + 1


@njit(cache=True, nogil=True, error_model="numpy")
def _join(state, s, t):
    """Merge slot t into slot s, all but the row of s."""
    order = state.bounds.order
    _bring_up_to_date(state, s, t)
    owner, other = (s, t) if order[t] < order[s] else (t, s)
    join(state.bounds, s, t, state.A[owner, other], state.B[owner, other])


@njit(cache=True, nogil=True, error_model="numpy")
def _merge(state, s, t):
    """Merge slot t into slot s: one row is written, and scanned on the way. Cost O(size)."""
    A, B, bounds = state.A, state.B, state.bounds
    _join(state, s, t)
    size = bounds.counts[SIZE]
    clear_partial(bounds.partial)
    for j in range(0, size, WIDTH):  # in blocks, so that what was added is scanned while it is in the cache
        end = min(j + WIDTH, size)
        _add(A[s, j:end], A[t, j:end])
        _add(B[s, j:end], B[t, j:end])
        scan_block(
            A[s, j:end], B[s, j:end], bounds.order[j:end], bounds.partial, bounds.order[s],
            bounds.traces[TRACE_A], bounds.traces[TRACE_B],
        )  # fmt: skip
    best, low, high = reduce_partial(bounds.partial)
    remember(bounds, s, A[s], B[s], 0, best, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def _pack(state):
    """Close the gaps that dead slots left, keeping the order of the slots."""
    slots = state.bounds.candidates
    new_slot = np.empty(state.bounds.counts[SIZE], dtype=np.int64)
    n = pack_bounds(state.bounds, slots, new_slot)
    pack(state.A, slots, n)
    pack(state.B, slots, n)
    for c in range(state.n_changed[0]):
        state.changed[c] = new_slot[state.changed[c]]


@njit(cache=True, nogil=True, error_model="numpy")
def _first_pair(state):
    """The first two live slots whose pair is not refused; (-1, -1) if there are none."""
    order, size = state.bounds.order, state.bounds.counts[SIZE]
    for s in range(size):
        for t in range(s + 1, size):
            if order[s] != DEAD and order[t] != DEAD:
                owner, other = (s, t) if order[t] < order[s] else (t, s)
                if state.A[owner, other] > -np.inf:
                    return s, t
    return -1, -1


@njit(cache=True, nogil=True, error_model="numpy")
def find(state):
    """Slots (s, t), s < t, of the pair to merge next; (-1, -1) if all are refused."""
    bounds = state.bounds
    if bounds.counts[LIVE] < SPARSE * bounds.counts[SIZE]:
        _pack(state)
    open_level(bounds)
    i = next_wanted(bounds)
    while i >= 0:
        take_row(bounds, i, state.A[i], state.B[i])
        i = next_wanted(bounds)
    return best_pair(bounds) if bounds.counts[BEST_S] >= 0 else _first_pair(state)


@njit(cache=True, nogil=True, error_model="numpy")
def advance(state, pairs, scores):
    """Merge ``len(pairs)`` times; write the names of the merged groups and the criterion after each merge.

    Ends before that if all pairs that are left are refused.
    """
    for k in range(pairs.shape[0]):
        s, t = find(state)
        if s < 0:
            return
        pairs[k, 0], pairs[k, 1] = state.bounds.word[s], state.bounds.word[t]
        _merge(state, s, t)
        scores[k] = current_score(state.bounds.traces)
