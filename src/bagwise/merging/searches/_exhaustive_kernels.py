"""Compiled code of the exhaustive search, and the plain way to merge that it shares with the polar search."""

from typing import NamedTuple

import numpy as np
from numba import njit

from bagwise.merging.searches._kernels import (
    DEAD,
    FLOOR_B,
    RESUM_EVERY,
    TRACE_A,
    TRACE_B,
    current_score,
    find_best,
    first_live_pair,
    pack,
    pair_ratio,
    resum_traces,
    scan_row,
    update_traces,
)

# Repack once less than this fraction of the slots is live.
SPARSE = 0.9

# positions in `counts`
SIZE, LIVE, LEVEL, EVALUATED = range(4)
N_COUNTS = 4


class ExhaustiveState(NamedTuple):
    """The memory of an exhaustive search. A and B are kept symmetric; `order` is 0 or DEAD."""

    A: np.ndarray
    B: np.ndarray
    word: np.ndarray
    order: np.ndarray
    slots: np.ndarray  # scratch
    partial: np.ndarray  # scratch
    traces: np.ndarray
    counts: np.ndarray


@njit(cache=True, nogil=True, error_model="numpy")
def add_rows(A, B, size, s, t, row_a, row_b):
    """Entries of the merged word s + t where merging adds rows."""
    for j in range(size):
        row_a[j] = A[s, j] + A[t, j]
        row_b[j] = B[s, j] + B[t, j]


@njit(cache=True, nogil=True, error_model="numpy")
def merge_symmetric(A, B, order, traces, counts, s, t, row_a, row_b):
    """Merge slot t into slot s, whose new entries are given, in rows and columns. Cost O(size)."""
    size = counts[SIZE]
    pair_a = A[s, t]
    pair_b = B[s, t]
    own_a = A[s, s] + A[t, t] + 2.0 * pair_a
    own_b = B[s, s] + B[t, t] + 2.0 * pair_b
    for j in range(size):
        A[s, j] = row_a[j]
        B[s, j] = row_b[j]
        A[j, s] = row_a[j]
        B[j, s] = row_b[j]
    A[s, s] = own_a
    B[s, s] = own_b
    order[t] = DEAD
    counts[LIVE] -= 1
    counts[LEVEL] += 1
    update_traces(traces, pair_a, pair_b)
    if counts[LEVEL] % RESUM_EVERY == 0:
        resum_traces(traces, np.diag(A), np.diag(B), order, size)


@njit(cache=True, nogil=True, error_model="numpy")
def _search(state):
    """Evaluate every pair; the first of the best ones, s = -1 if all are 0/0."""
    A, B, order, traces = state.A, state.B, state.order, state.traces
    size = state.counts[SIZE]
    a = traces[TRACE_A]
    b = traces[TRACE_B]
    best = -np.inf
    s = -1
    t = -1
    for i in range(size):
        if order[i] == DEAD:
            continue
        value, low, _ = scan_row(A[i], B[i], order, state.partial, i + 1, size, 1, a, b)
        if b + low <= traces[FLOOR_B]:
            for j in range(i + 1, size):
                if order[j] != DEAD:
                    value = pair_ratio(traces, A[i, j], B[i, j])
                    if value > best:
                        best, s, t = value, i, j
        elif value > best:
            best = value
            s = i
            t = find_best(A[i], B[i], order, state.partial, i + 1, size, 1, a, b, best)
    state.counts[EVALUATED] += state.counts[LIVE] * (state.counts[LIVE] - 1) // 2
    return s, t


@njit(cache=True, nogil=True, error_model="numpy")
def _pack(state):
    """Close the gaps that dead slots left."""
    n = 0
    for i in range(state.counts[SIZE]):
        if state.order[i] != DEAD:
            state.slots[n] = i
            n += 1
    pack(state.A, state.slots, n)
    pack(state.B, state.slots, n)
    for i in range(n):
        state.word[i] = state.word[state.slots[i]]
        state.order[i] = 0
    state.counts[SIZE] = n


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
def merge_given(state, s, t, row_a, row_b):
    """Merge slot t into slot s, whose new entries are given; returns the criterion after it."""
    merge_symmetric(state.A, state.B, state.order, state.traces, state.counts, s, t, row_a, row_b)
    return current_score(state.traces)


@njit(cache=True, nogil=True, error_model="numpy")
def advance(state, pairs, scores):
    """Merge ``len(pairs)`` times; write the names of the merged groups and the criterion after each merge."""
    row_a = np.empty(state.A.shape[0])
    row_b = np.empty(state.A.shape[0])
    for k in range(pairs.shape[0]):
        s, t = find(state)
        pairs[k, 0] = state.word[s]
        pairs[k, 1] = state.word[t]
        add_rows(state.A, state.B, state.counts[SIZE], s, t, row_a, row_b)
        scores[k] = merge_given(state, s, t, row_a, row_b)
