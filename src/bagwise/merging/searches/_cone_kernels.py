"""Compiled code of the lazy bound search that does not depend on where rows come from.

Notation. At one level the traces are ``a`` and ``b``; merging words s and t gives the ratio
``(a + 2 A[s, t]) / (b + 2 B[s, t])``. A pair is thus a point ``(2 B[s, t], 2 A[s, t])`` and its
ratio is the slope under which it is seen from ``(-b, -a)``.

Ownership. Every pair belongs to one row: that of the word which changed last, among unchanged words
that of the lower index. ``order`` holds this as one number per slot: row i owns the pair (i, j) if
``order[j] < order[i]``, and dead slots have an order above all others.

Cones. A row remembers its peak, the point of its best pair when it was last scanned, and two slopes:
no other point of the row lies above the line of slope ``right`` to the right of the peak, nor above the
line of slope ``left`` to its left. Points only ever leave a row, so this stays true until the
row itself is merged. From it follows, without looking at the row, how far any of its pairs can exceed a
given ratio (`excess`), and when the peak is certainly still the best pair. Where rows are costly the best point
beside the peak is remembered as well, for when the peak's pair goes to a newer row: then no point lies above the
line on which it was seen.

A level is searched in turns: `open_level`, then as long as `next_wanted` names a row, `take_row` with its entries.
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
    find_best,
    first_live_pair,
    join_lanes,
    pair_ratio,
    precedes,
    resum_traces,
    scan_row,
    update_traces,
)

# Rows are watched in groups of this many.
WATCH = 64
EPS = 2.0**-52
# Points closer to a peak than this many times what rounding can do are not told apart from it by a cone.
NEAR = 128
# Stands for an infinite slope where a product with zero must be zero.
STEEP = 1e300

# positions in `counts`; COSTLY is 1 where rows are costly to compute, the last six belong to the level being searched
SIZE, LIVE, LEVEL, NEWEST, RUNNER_UP, SCANS, COSTLY = range(7)
BEST_S, BEST_T, OWNER, SECOND_OWNER, N_CANDIDATES, CURSOR = range(7, 13)
N_COUNTS = 13
# positions in `bests`: the best ratio found at this level, that of another row, and how exact entries are
BEST, SECOND, ROUNDING = range(3)
N_BESTS = 3
# rows of `watch`: largest excess in a group of rows over a ratio at given traces, and its range of 2 B
EXCESS, RATIO, AT_A, AT_B, LOW, HIGH = range(6)


class Cones(NamedTuple):
    """What a bound search remembers of its rows; arrays have one entry per slot where not said otherwise."""

    word: np.ndarray  # name of the group in a slot: its smallest word
    order: np.ndarray
    own_a: np.ndarray  # diagonals of A and B
    own_b: np.ndarray
    peak_a: np.ndarray  # 2 A of the peak; -inf: no pair; +inf: nothing known, scan when asked
    peak_b: np.ndarray  # 2 B of the peak
    partner: np.ndarray  # the other slot of the peak's pair
    right: np.ndarray  # slopes of the cone
    left: np.ndarray
    next_a: np.ndarray  # the best point beside the peak; -inf: not known
    next_b: np.ndarray
    next_ratio: np.ndarray  # its ratio at the time
    low: np.ndarray  # range of 2 B over the row's pairs
    high: np.ndarray
    watch: np.ndarray  # (6, groups of rows): see `_list_candidates`
    candidates: np.ndarray  # scratch
    lanes: np.ndarray  # (3 * LANES,), scratch
    traces: np.ndarray
    bests: np.ndarray
    counts: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def _forget(cones, i):
    """Row i has no pair."""
    cones.partner[i] = -1
    cones.peak_a[i] = -np.inf
    cones.peak_b[i] = 0.0
    cones.next_a[i] = -np.inf
    cones.low[i] = 0.0
    cones.high[i] = 0.0
    cones.right[i] = 0.0
    cones.left[i] = 0.0
    cones.watch[EXCESS, i // WATCH] = np.inf
    return -np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def remember(cones, i, row_a, row_b, start, best, low, high):
    """Store what a scan of row i found, with the widest cone: the half-plane below the line of the best ratio.

    The lanes must still be as the scan left them.
    """
    if low == np.inf:
        return _forget(cones, i)
    a = cones.traces[TRACE_A]
    b = cones.traces[TRACE_B]
    if b + low <= cones.traces[FLOOR_B]:
        return _scan_degenerate(cones, i, row_a, row_b)
    partner = find_best(
        row_a, row_b, cones.order, cones.lanes, start, cones.counts[SIZE], cones.order[i], a, b, best
    )  # fmt: skip
    cones.partner[i] = partner
    cones.next_a[i] = -np.inf
    cones.low[i] = low
    cones.high[i] = high
    cones.right[i] = best
    cones.left[i] = best
    cones.peak_a[i] = 2.0 * row_a[partner]
    cones.peak_b[i] = 2.0 * row_b[partner]
    cones.traces[SCALE] = max(cones.traces[SCALE], abs(cones.peak_a[i]))
    cones.watch[EXCESS, i // WATCH] = np.inf
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def _scan_degenerate(cones, i, row_a, row_b):
    """Scan a row that has a pair with a vanishing denominator, pair by pair.

    Such a pair can become an ordinary one when the traces grow, so nothing about the row is relied on later.
    """
    best = -np.inf
    partner = -1
    for j in range(cones.counts[SIZE]):
        if cones.order[j] < cones.order[i]:
            value = pair_ratio(cones.traces, row_a[j], row_b[j])
            if value > best:
                best = value
                partner = j
    _forget(cones, i)
    cones.peak_a[i] = np.inf
    cones.partner[i] = partner
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def scan(cones, i, row_a, row_b, start):
    """Find the best pair of row i among the slots from `start` on, and remember it. Cost O(size - start)."""
    best, low, high = scan_row(
        row_a, row_b, cones.order, cones.lanes, start, cones.counts[SIZE], cones.order[i],
        cones.traces[TRACE_A], cones.traces[TRACE_B],
    )  # fmt: skip
    return remember(cones, i, row_a, row_b, start, best, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def _remember_next(cones, i, row_a, row_b, start):
    """After a scan of row i, remember its best pair without the peak's partner as well. Cost: one more scan."""
    if not np.isfinite(cones.peak_a[i]):
        return
    a = cones.traces[TRACE_A]
    b = cones.traces[TRACE_B]
    size = cones.counts[SIZE]
    partner = cones.partner[i]
    best = -np.inf
    # on both sides of the partner
    for part in range(2):
        low, high = (start, partner) if part == 0 else (partner + 1, size)
        ratio, _, _ = scan_row(row_a, row_b, cones.order, cones.lanes, low, high, cones.order[i], a, b)
        if ratio > best:
            best = ratio
            j = find_best(row_a, row_b, cones.order, cones.lanes, low, high, cones.order[i], a, b, ratio)
            cones.next_a[i] = 2.0 * row_a[j]
            cones.next_b[i] = 2.0 * row_b[j]
            cones.next_ratio[i] = ratio


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
def scan_with_cone(cones, i, row_a, row_b, start):
    """`scan`, then narrow the cone to what the points allow: worth a second pass on rows that are asked for again.

    Where rows are costly to compute, the best point beside the peak is remembered as well, in a third pass.
    """
    best = scan(cones, i, row_a, row_b, start)
    if not np.isfinite(cones.peak_a[i]):
        return best
    a = cones.traces[TRACE_A]
    b = cones.traces[TRACE_B]
    size = cones.counts[SIZE]
    clear_lanes(cones.lanes)
    for j in range(start, size, LANES):
        end = min(j + LANES, size)
        _cone_block(
            row_a[j:end], row_b[j:end], cones.order[j:end], cones.lanes, cones.order[i],
            a, b, cones.peak_a[i], cones.peak_b[i],
        )  # fmt: skip
    right, left, second = join_lanes(cones.lanes)
    if cones.counts[COSTLY]:
        _remember_next(cones, i, row_a, row_b, start)
    # Slopes half-way to the line: where such a cone says that the peak is best, the peak leads every other point
    # by about half of today's lead or more, and that lead is well above rounding. Rows with a closer second
    # keep the half-plane.
    doubt = NEAR * cones.bests[ROUNDING] * max(abs(best), cones.traces[SCALE] / (b + cones.peak_b[i]))
    if second < best - doubt:
        cones.right[i] = 0.5 * (best + max(right, -STEEP))
        cones.left[i] = 0.5 * (best + min(left, STEEP))
    return best


@njit(cache=True, nogil=True, error_model="numpy")
def scan_block_rows(cones, block_a, block_b, start, first, last):
    """First scan of the rows ``start + first..start + last``, which a block of rows from `start` on holds."""
    for k in range(first, last):
        scan_with_cone(cones, start + k, block_a[k], block_b[k], start + k + 1)


@njit(cache=True, nogil=True, error_model="numpy")
def _excess_of_cone(a, b, floor, ratio, peak_a, peak_b, right, left, low, high):
    """Upper bound of ``(a + 2A) - ratio (b + 2B)`` over the pairs of a row, from its cone.

    Takes numbers, since handing over all of the memory for each row would cost more than the bound.
    """
    if b + low <= floor:
        return np.inf
    at_peak = (a + peak_a) - ratio * (b + peak_b)
    right_of_it = (right - ratio) * (high - peak_b)
    left_of_it = (ratio - left) * (peak_b - low)
    return at_peak + max(max(right_of_it, left_of_it), 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def _excess_without_peak(cones, i, ratio):
    """The same bound for a row that has lost the pair of its peak, from the best point beside it; else infinity."""
    partner = cones.partner[i]
    if cones.next_a[i] == -np.inf or (partner >= 0 and cones.order[partner] < cones.order[i]):
        return np.inf
    at_next = (cones.traces[TRACE_A] + cones.next_a[i]) - ratio * (cones.traces[TRACE_B] + cones.next_b[i])
    steeper = cones.next_ratio[i] - ratio
    return at_next + steeper * ((cones.high[i] if steeper > 0.0 else cones.low[i]) - cones.next_b[i])


@njit(cache=True, nogil=True, error_model="numpy")
def excess(cones, i, ratio, slack):
    """How far pairs of row i can exceed a ratio, at most. Below `-slack`, none reaches it."""
    over = _excess_of_cone(
        cones.traces[TRACE_A], cones.traces[TRACE_B], cones.traces[FLOOR_B], ratio, cones.peak_a[i], cones.peak_b[i],
        cones.right[i], cones.left[i], cones.low[i], cones.high[i],
    )  # fmt: skip
    if cones.counts[COSTLY] and -slack <= over < np.inf:
        return min(over, _excess_without_peak(cones, i, ratio))
    return over


@njit(cache=True, nogil=True, error_model="numpy")
def _owns_peak(cones, i):
    """Whether row i has a peak whose pair is still a pair of row i."""
    partner = cones.partner[i]
    return partner >= 0 and np.isfinite(cones.peak_a[i]) and cones.order[partner] < cones.order[i]


@njit(cache=True, nogil=True, error_model="numpy")
def _slack(cones, ratio):
    """How far rounding can move an excess."""
    traces = cones.traces
    return cones.bests[ROUNDING] * (abs(traces[TRACE_A]) + abs(ratio) * traces[TRACE_B] + traces[SCALE])


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
def _list_candidates(cones, ratio):
    """List the rows that may hold a pair at least as good as `ratio`, looking only into groups that may have one."""
    n = 0
    size = cones.counts[SIZE]
    costly = cones.counts[COSTLY]
    watch, order, candidates = cones.watch, cones.order, cones.candidates
    peak_a, peak_b, right, left, low, high = (
        cones.peak_a, cones.peak_b, cones.right, cones.left, cones.low, cones.high
    )  # fmt: skip
    a = cones.traces[TRACE_A]
    b = cones.traces[TRACE_B]
    floor = cones.traces[FLOOR_B]
    everything = not np.isfinite(ratio)
    slack = 0.0 if everything else _slack(cones, ratio)
    for group in range((size + WATCH - 1) // WATCH):
        if not everything and not _group_may_reach(watch, group, a, b, floor, ratio, slack):
            continue
        largest = -np.inf
        lowest = np.inf
        highest = -np.inf
        for i in range(group * WATCH, min((group + 1) * WATCH, size)):
            if order[i] == DEAD:
                continue
            over = np.inf
            if not everything:
                over = _excess_of_cone(
                    a, b, floor, ratio, peak_a[i], peak_b[i], right[i], left[i], low[i], high[i]
                )  # fmt: skip
                if costly and -slack <= over < np.inf:
                    over = min(over, _excess_without_peak(cones, i, ratio))
            if over >= -slack:
                candidates[n] = i
                n += 1
            largest = max(largest, over)
            lowest = min(lowest, low[i])
            highest = max(highest, high[i])
        watch[EXCESS, group] = largest
        watch[LOW, group] = lowest
        watch[HIGH, group] = highest
        watch[RATIO, group] = 0.0 if everything else ratio
        watch[AT_A, group] = a
        watch[AT_B, group] = b
    return n


@njit(cache=True, nogil=True, error_model="numpy")
def _offer(cones, i, value):
    """Take the pair of row i's peak, which has this ratio, if it is the best so far; the lowest pair among equals."""
    bests, counts = cones.bests, cones.counts
    j = cones.partner[i]
    if value > bests[BEST] or (
        value == bests[BEST] and counts[BEST_S] >= 0 and precedes(i, j, counts[BEST_S], counts[BEST_T])
    ):
        bests[BEST] = value
        counts[BEST_S] = min(i, j)
        counts[BEST_T] = max(i, j)
        counts[OWNER] = i
        return True
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def open_level(cones):
    """Begin the search of a level: list the rows that may hold its best pair, after what is remembered of them."""
    bests, counts, traces = cones.bests, cones.counts, cones.traces
    bests[BEST] = -np.inf
    bests[SECOND] = -np.inf
    counts[BEST_S] = counts[BEST_T] = counts[OWNER] = counts[SECOND_OWNER] = -1
    counts[CURSOR] = 0
    # A good pair to start from, so that few rows remain to be looked at.
    for i in (counts[NEWEST], counts[RUNNER_UP]):
        if i >= 0 and _owns_peak(cones, i):
            value = pair_ratio(traces, 0.5 * cones.peak_a[i], 0.5 * cones.peak_b[i])
            if value > bests[BEST]:
                _offer(cones, i, value)
    counts[N_CANDIDATES] = _list_candidates(cones, bests[BEST])
    # The remembered peaks raise the bar before any row is scanned.
    for c in range(counts[N_CANDIDATES]):
        i = cones.candidates[c]
        if _owns_peak(cones, i):
            _offer(cones, i, pair_ratio(traces, 0.5 * cones.peak_a[i], 0.5 * cones.peak_b[i]))


@njit(cache=True, nogil=True, error_model="numpy")
def next_wanted(cones):
    """The next row that must be scanned to know the best pair of the level; -1: it is known."""
    bests, counts, traces = cones.bests, cones.counts, cones.traces
    a = traces[TRACE_A]
    b = traces[TRACE_B]
    while counts[CURSOR] < counts[N_CANDIDATES]:
        i = cones.candidates[counts[CURSOR]]
        counts[CURSOR] += 1
        best = bests[BEST]
        if i == counts[OWNER] and i == counts[NEWEST]:
            continue  # scanned at these very traces
        if np.isfinite(cones.peak_a[i]) and b + cones.low[i] > traces[FLOOR_B] and best > -np.inf:
            slack = _slack(cones, best)
            if best == np.inf or excess(cones, i, best, slack) < -slack:
                continue
            value = (a + cones.peak_a[i]) / (b + cones.peak_b[i])
            if cones.right[i] < value < cones.left[i]:
                # Nothing in this row exceeds its peak, and what equals it comes after it.
                j = cones.partner[i]
                behind = value == best and j >= 0 and not precedes(i, j, counts[BEST_S], counts[BEST_T])
                if value < best or behind or _owns_peak(cones, i):
                    if value > bests[SECOND] and i != counts[OWNER]:
                        bests[SECOND] = value
                        counts[SECOND_OWNER] = i
                    continue
        return i
    counts[RUNNER_UP] = counts[SECOND_OWNER]
    return -1


@njit(cache=True, nogil=True, error_model="numpy")
def take_row(cones, i, row_a, row_b):
    """Scan a wanted row, whose entries with all slots are given, for the best pair of the level."""
    bests, counts = cones.bests, cones.counts
    counts[SCANS] += 1
    value = scan_with_cone(cones, i, row_a, row_b, 0)
    if value == -np.inf:
        return
    best, owner = bests[BEST], counts[OWNER]
    if _offer(cones, i, value):
        if i != owner:
            bests[SECOND] = best
            counts[SECOND_OWNER] = owner
    elif value > bests[SECOND] and i != counts[OWNER]:
        bests[SECOND] = value
        counts[SECOND_OWNER] = i


@njit(cache=True, nogil=True, error_model="numpy")
def best_pair(cones):
    """Slots (s, t), s < t, of the pair found at this level; the first two live ones where all pairs are 0/0."""
    if cones.counts[BEST_S] < 0:
        return first_live_pair(cones.order, cones.counts[SIZE])
    return cones.counts[BEST_S], cones.counts[BEST_T]


@njit(cache=True, nogil=True, error_model="numpy")
def join(cones, s, t, pair_a, pair_b):
    """Account for merging slot t into slot s, whose entries of A and B are given; the row of s is not scanned yet."""
    own_a, own_b, counts, order = cones.own_a, cones.own_b, cones.counts, cones.order
    own_a[s] = own_a[s] + own_a[t] + 2.0 * pair_a
    own_b[s] = own_b[s] + own_b[t] + 2.0 * pair_b
    update_traces(cones.traces, pair_a, pair_b)
    counts[LIVE] -= 1
    counts[LEVEL] += 1
    _forget(cones, t)
    order[t] = DEAD
    order[s] = order.shape[0] + counts[LEVEL]
    counts[NEWEST] = s
    if counts[LEVEL] % RESUM_EVERY == 0:
        resum_traces(cones.traces, own_a, own_b, order, counts[SIZE])


@njit(cache=True, nogil=True, error_model="numpy")
def pack_cones(cones, slots, place):
    """Close the gaps that dead slots left, keeping the order of the slots; returns how many are left.

    Writes the old number of each slot that is left to `slots`, and to `place` the new number of each old one or -1.
    """
    counts = cones.counts
    n = 0
    for i in range(counts[SIZE]):
        place[i] = -1
        if cones.order[i] != DEAD:
            place[i] = n
            slots[n] = i
            n += 1
    for i in range(n):
        old = slots[i]
        cones.word[i] = cones.word[old]
        cones.order[i] = cones.order[old]
        cones.own_a[i] = cones.own_a[old]
        cones.own_b[i] = cones.own_b[old]
        cones.peak_a[i] = cones.peak_a[old]
        cones.peak_b[i] = cones.peak_b[old]
        cones.right[i] = cones.right[old]
        cones.left[i] = cones.left[old]
        cones.next_a[i] = cones.next_a[old]
        cones.next_b[i] = cones.next_b[old]
        cones.next_ratio[i] = cones.next_ratio[old]
        cones.low[i] = cones.low[old]
        cones.high[i] = cones.high[old]
        cones.partner[i] = place[cones.partner[old]] if cones.partner[old] >= 0 else -1
    for hint in (NEWEST, RUNNER_UP):
        if counts[hint] >= 0:
            counts[hint] = place[counts[hint]]
    counts[SIZE] = n
    cones.watch[EXCESS] = np.inf
    return n
