"""Compiled code of the polar search: the papers' index of all pairs by annulus and sector.

A pair is the point ``(2 B[s, t], 2 A[s, t])``; the ratio it would give is the slope of the line from
``P0 = (-b, -a)`` to it. The index is centred on the origin, so it does not change when P0 moves. Its bins are
`N_RINGS` annuli, each of twice the radius of the one inside it, cut into `N_SECTORS` sectors.

Each bin is a list of blocks of pairs; the place of each pair is stored, so inserting and removing one cost O(1).
"""

from math import acos, atan2, cos, floor, hypot, log2, pi, sin
from typing import NamedTuple

import numpy as np
from numba import njit

from bagwise.merging.searches._kernels import (
    DEAD,
    EVALUATED,
    LIVE,
    SIZE,
    TRACE_A,
    TRACE_B,
    first_live_pair,
    pair_ratio,
    precedes,
)
from bagwise.merging.searches._kernels import merge_given as merge_rows

N_RINGS = 40
N_SECTORS = 36
N_BINS = N_RINGS * N_SECTORS
BLOCK = 64
# Angles are widened and tangents moved by this much, so that rounding never hides a point.
MARGIN = 1e-10
# Points this near to each other, relative to the distance of P0, may have the same slope after rounding.
TIE = 8 * 2.0**-52

# positions in `best`
RATIO, POINT_X, POINT_Y = range(3)
# positions in `radii`: the largest radius seen, then those of the circles 0 .. N_RINGS
OUTERMOST = 0


class PolarState(NamedTuple):
    """The memory of a polar search. A and B are kept symmetric; `order` is 0 or DEAD; slots are words."""

    A: np.ndarray
    B: np.ndarray
    word: np.ndarray
    order: np.ndarray
    radii: np.ndarray  # (N_RINGS + 2,)
    position: np.ndarray  # (pairs,), where in `pool` a pair is
    pool: np.ndarray  # (blocks * BLOCK,), pairs as s * d + t
    next_block: np.ndarray  # (blocks,), also links the free blocks
    block_bin: np.ndarray  # (blocks,)
    head: np.ndarray  # (N_BINS + 1,), first block of a bin; the last entry: of the free blocks
    fill: np.ndarray  # (N_BINS,), pairs in the first block; the others are full
    seen: np.ndarray  # (N_BINS,), level at which a bin was last evaluated
    best: np.ndarray  # (3,)
    winner: np.ndarray  # (2,)
    traces: np.ndarray
    counts: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def _bin_of(radii, x, y):
    """Annulus and sector of a point, as one number."""
    radius = hypot(x, y)
    ring = 0
    if radius > 0.0:
        ring = N_RINGS - 1 - np.int64(floor(max(min(log2(radii[N_RINGS + 1] / radius), 1e6), 0.0)))
        ring = max(ring, 0)
    sector = np.int64(floor((atan2(y, x) % (2 * pi)) * (N_SECTORS / (2 * pi))))
    return ring * N_SECTORS + min(max(sector, 0), N_SECTORS - 1)


@njit(cache=True, nogil=True, error_model="numpy")
def _pair_number(s, t):
    """Number of the pair {s, t} in a list of all pairs."""
    return max(s, t) * (max(s, t) - 1) // 2 + min(s, t)


@njit(cache=True, nogil=True, error_model="numpy")
def _put(state, s, t):
    """Put the pair {s, t} into its bin."""
    x = 2.0 * state.B[s, t]
    y = 2.0 * state.A[s, t]
    state.radii[OUTERMOST] = max(state.radii[OUTERMOST], hypot(x, y))
    bin_ = _bin_of(state.radii, x, y)
    if state.head[bin_] < 0 or state.fill[bin_] == BLOCK:
        block = state.head[N_BINS]
        state.head[N_BINS] = state.next_block[block]
        state.next_block[block] = state.head[bin_]
        state.block_bin[block] = bin_
        state.head[bin_] = block
        state.fill[bin_] = 0
    where = state.head[bin_] * BLOCK + state.fill[bin_]
    state.pool[where] = min(s, t) * state.A.shape[0] + max(s, t)
    state.position[_pair_number(s, t)] = where
    state.fill[bin_] += 1


@njit(cache=True, nogil=True, error_model="numpy")
def _take(state, s, t):
    """Take the pair {s, t} out: the last pair of its bin's first block fills the gap."""
    where = state.position[_pair_number(s, t)]
    bin_ = state.block_bin[where // BLOCK]
    block = state.head[bin_]
    last = block * BLOCK + state.fill[bin_] - 1
    code = state.pool[last]
    state.pool[where] = code
    state.position[_pair_number(code // state.A.shape[0], code % state.A.shape[0])] = where
    state.fill[bin_] -= 1
    if state.fill[bin_] == 0:
        state.head[bin_] = state.next_block[block]
        state.next_block[block] = state.head[N_BINS]
        state.head[N_BINS] = block
        state.fill[bin_] = BLOCK


@njit(cache=True, nogil=True, error_model="numpy")
def largest_radius(A, B):
    """Largest distance of a pair's point from the origin."""
    largest = 0.0
    for s in range(A.shape[0]):
        for t in range(s + 1, A.shape[0]):
            largest = max(largest, hypot(2.0 * A[s, t], 2.0 * B[s, t]))
    return largest


@njit(cache=True, nogil=True, error_model="numpy")
def build_index(state):
    """Put all pairs into their bins. Cost O(d^2)."""
    n_blocks = state.next_block.shape[0]
    for block in range(n_blocks):
        state.next_block[block] = block + 1 if block + 1 < n_blocks else -1
    state.head[:] = -1
    state.head[N_BINS] = 0
    state.fill[:] = BLOCK
    for s in range(state.A.shape[0]):
        for t in range(s + 1, state.A.shape[0]):
            _put(state, s, t)


@njit(cache=True, nogil=True, error_model="numpy")
def _evaluate_bin(state, bin_):
    """Evaluate the pairs of a bin, unless that was done at this level, and keep the best."""
    if state.seen[bin_] == state.counts[LIVE]:
        return
    state.seen[bin_] = state.counts[LIVE]
    d = state.A.shape[0]
    best = state.best[RATIO]
    s, t = state.winner[0], state.winner[1]
    block = state.head[bin_]
    n_pairs = state.fill[bin_]
    while block >= 0:
        state.counts[EVALUATED] += n_pairs
        for where in range(block * BLOCK, block * BLOCK + n_pairs):
            i = state.pool[where] // d
            j = state.pool[where] % d
            value = pair_ratio(state.traces, state.A[i, j], state.B[i, j])
            if value > best or (value == best and s >= 0 and precedes(i, j, s, t)):
                best, s, t = value, i, j
        block = state.next_block[block]
        n_pairs = BLOCK
    if s >= 0:
        state.best[RATIO] = best
        state.winner[0] = s
        state.winner[1] = t
        state.best[POINT_X] = 2.0 * state.B[s, t]
        state.best[POINT_Y] = 2.0 * state.A[s, t]


@njit(cache=True, nogil=True, error_model="numpy")
def _evaluate_ring(state, ring):
    for sector in range(N_SECTORS):
        _evaluate_bin(state, ring * N_SECTORS + sector)


@njit(cache=True, nogil=True, error_model="numpy")
def _evaluate_arc(state, ring, middle, half_width):
    """Evaluate the sectors of a ring that meet the angles ``middle - half_width .. middle + half_width``."""
    width = 2 * pi / N_SECTORS
    first = np.int64(floor((middle - half_width - MARGIN) / width))
    last = np.int64(floor((middle + half_width + MARGIN) / width))
    for sector in range(first, min(last, first + N_SECTORS - 1) + 1):
        _evaluate_bin(state, ring * N_SECTORS + sector % N_SECTORS)


@njit(cache=True, nogil=True, error_model="numpy")
def _evaluate_outside_arc(state, ring, middle, half_width):
    """Evaluate the sectors of a ring that are not entirely within ``middle - half_width .. middle + half_width``."""
    width = 2 * pi / N_SECTORS
    # whole sectors inside the arc, which are skipped
    first = np.int64(floor((middle - half_width + MARGIN) / width)) + 1
    after = np.int64(floor((middle + half_width - MARGIN) / width))
    for sector in range(after, first + N_SECTORS):
        _evaluate_bin(state, ring * N_SECTORS + sector % N_SECTORS)


@njit(cache=True, nogil=True, error_model="numpy")
def _outer_radius(state, ring):
    """Radius of the circle around a ring; points beyond the last circle belong to the last ring."""
    return max(state.radii[ring + 2], state.radii[OUTERMOST]) if ring == N_RINGS - 1 else state.radii[ring + 2]


@njit(cache=True, nogil=True, error_model="numpy")
def _search(state):
    """Best pair of the level, in ``state.winner``; -1 if every pair is 0/0.

    1. Upper tangents from P0 to the circles, largest first. What lies above the tangent to circle j meets only the
       rings outside it, within an arc around the point of contact. A pair above the tangent beats all below it.
    2. If no pair is above the line from P0 to the origin, every merge lowers the ratio: lower tangents, smallest
       circle first; now all of the disc is above the line, and outside it all but an arc.
    3. What no tangent settles is evaluated whole.
    """
    a = state.traces[TRACE_A]
    b = state.traces[TRACE_B]
    distance = hypot(a, b)
    towards = atan2(-a, -b)
    blur = TIE * distance
    state.best[RATIO] = -np.inf
    state.winner[:] = -1
    for circle in range(N_RINGS - 1, 0, -1):
        radius = state.radii[circle + 1]
        if radius >= distance or radius <= 0.0:
            continue
        contact = towards - acos(radius / distance)
        for ring in range(circle, N_RINGS):
            outer = _outer_radius(state, ring)
            if outer > radius:
                _evaluate_arc(state, ring, contact, acos(radius / outer))
        if state.winner[0] >= 0:
            height = state.best[POINT_X] * cos(contact) + state.best[POINT_Y] * sin(contact)
            if height > radius * (1 + MARGIN) + blur:
                return
    for circle in range(1, N_RINGS + 1):
        radius = state.radii[circle + 1]
        if radius >= distance:
            break
        contact = towards + acos(radius / distance)
        for ring in range(circle):
            _evaluate_ring(state, ring)
        for ring in range(circle, N_RINGS):
            _evaluate_outside_arc(state, ring, contact, acos(radius / state.radii[ring + 1]))
        if state.winner[0] >= 0:
            height = state.best[POINT_X] * cos(contact) + state.best[POINT_Y] * sin(contact)
            if height < radius * (1 - MARGIN) - blur:
                return
    for ring in range(N_RINGS):
        _evaluate_ring(state, ring)


@njit(cache=True, nogil=True, error_model="numpy")
def find(state):
    """Slots (s, t), s < t, of the pair to merge next."""
    _search(state)
    if state.winner[0] < 0:
        return first_live_pair(state.order, state.counts[SIZE])
    return state.winner[0], state.winner[1]


@njit(cache=True, nogil=True, error_model="numpy")
def merge_given(state, s, t, row_a, row_b):
    """Merge slot t into slot s, whose new entries are given; returns the criterion after it."""
    for j in range(state.counts[SIZE]):
        if state.order[j] != DEAD:
            if j != s:
                _take(state, s, j)
            if j != s and j != t:
                _take(state, t, j)
    score = merge_rows(state, s, t, row_a, row_b)
    for j in range(state.counts[SIZE]):
        if j != s and state.order[j] != DEAD:
            _put(state, s, j)
    return score


@njit(cache=True, nogil=True, error_model="numpy")
def advance(state, pairs, scores):
    """Merge ``len(pairs)`` times; write the names of the merged groups and the criterion after each merge."""
    for k in range(pairs.shape[0]):
        s, t = find(state)
        pairs[k, 0], pairs[k, 1] = state.word[s], state.word[t]
        scores[k] = merge_given(state, s, t, state.A[s] + state.A[t], state.B[s] + state.B[t])
