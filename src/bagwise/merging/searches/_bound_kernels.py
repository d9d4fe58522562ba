"""Compiled code of the bound search over A and B in memory; `_cone_kernels` has what it remembers and why.

Only the owner's entry of a pair is up to date in A and B, so a merge writes one row and never a column.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from bagwise.merging.searches._common_kernels import (
    LANES,
    TRACE_A,
    TRACE_B,
    clear_lanes,
    current_score,
    join_lanes,
    pack,
    scan_block,
)
from bagwise.merging.searches._cone_kernels import (
    LIVE,
    SIZE,
    Cones,
    best_pair,
    join,
    next_wanted,
    open_level,
    pack_cones,
    remember,
    scan,
    take_row,
)

# Repack once fewer than this share of the slots is live.
SPARSE = 0.35


class BoundState(NamedTuple):
    """All the memory of a bound search over matrices."""

    A: np.ndarray  # (d, d), the first `size` rows and columns in use
    B: np.ndarray
    cones: Cones
    changed: np.ndarray  # live slots that were merged, in the first n_changed[0]
    n_changed: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def scan_fresh_rows(state, start, stop):
    """First scan of rows that were never merged: they own exactly the pairs to their right."""
    for i in range(start, stop):
        scan(state.cones, i, state.A[i], state.B[i], i + 1)


@njit(cache=True, nogil=True, error_model="numpy")
def _add(row, other):
    """``row += other``."""
    for k in range(row.shape[0]):
        row[k] += other[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _bring_up_to_date(state, s, t):
    """Fetch into rows s and t the entries that newer rows own, and put s on the list of merged slots."""
    A, B, order, changed = state.A, state.B, state.cones.order, state.changed
    kept = 0
    for c in range(state.n_changed[0]):
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
    state.n_changed[0] = kept + 1


@njit(cache=True, nogil=True, error_model="numpy")
def _join(state, s, t):
    """Account for merging slot t into slot s, all but the row of s."""
    order = state.cones.order
    _bring_up_to_date(state, s, t)
    owner, other = (s, t) if order[t] < order[s] else (t, s)
    join(state.cones, s, t, state.A[owner, other], state.B[owner, other])


@njit(cache=True, nogil=True, error_model="numpy")
def _merge(state, s, t):
    """Merge slot t into slot s: one row is written, and scanned on the way. Cost O(size)."""
    A, B, cones = state.A, state.B, state.cones
    _join(state, s, t)
    size = cones.counts[SIZE]
    clear_lanes(cones.lanes)
    for j in range(0, size, LANES):  # in blocks, so that what was added is scanned while it is in the cache
        end = min(j + LANES, size)
        _add(A[s, j:end], A[t, j:end])
        _add(B[s, j:end], B[t, j:end])
        scan_block(
            A[s, j:end], B[s, j:end], cones.order[j:end], cones.lanes, cones.order[s],
            cones.traces[TRACE_A], cones.traces[TRACE_B],
        )  # fmt: skip
    best, low, high = join_lanes(cones.lanes)
    remember(cones, s, A[s], B[s], 0, best, low, high)


@njit(cache=True, nogil=True, error_model="numpy")
def merge_given(state, s, t, row_a, row_b):
    """Merge slot t into slot s, whose new entries are given; returns the criterion after it."""
    _join(state, s, t)
    size = state.cones.counts[SIZE]
    state.A[s, :size] = row_a
    state.B[s, :size] = row_b
    scan(state.cones, s, state.A[s], state.B[s], 0)
    return current_score(state.cones.traces)


@njit(cache=True, nogil=True, error_model="numpy")
def _pack(state):
    """Close the gaps that dead slots left, keeping the order of the slots."""
    slots = state.cones.candidates
    place = np.empty(state.cones.counts[SIZE], dtype=np.int64)
    n = pack_cones(state.cones, slots, place)
    pack(state.A, slots, n)
    pack(state.B, slots, n)
    for c in range(state.n_changed[0]):
        state.changed[c] = place[state.changed[c]]


@njit(cache=True, nogil=True, error_model="numpy")
def find(state):
    """Slots (s, t), s < t, of the pair to merge next."""
    cones = state.cones
    if cones.counts[LIVE] < SPARSE * cones.counts[SIZE]:
        _pack(state)
    open_level(cones)
    i = next_wanted(cones)
    while i >= 0:
        take_row(cones, i, state.A[i], state.B[i])
        i = next_wanted(cones)
    return best_pair(cones)


@njit(cache=True, nogil=True, error_model="numpy")
def advance(state, pairs, scores):
    """Merge ``len(pairs)`` times; write the names of the merged groups and the criterion after each merge."""
    for k in range(pairs.shape[0]):
        s, t = find(state)
        pairs[k, 0] = state.cones.word[s]
        pairs[k, 1] = state.cones.word[t]
        _merge(state, s, t)
        scores[k] = current_score(state.cones.traces)
