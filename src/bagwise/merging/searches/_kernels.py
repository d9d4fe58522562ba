"""Compiled code shared by the searches: ratios, traces, the tie rule, packing; and the exhaustive search.

All searches add, divide and compare in the same order, so that they agree to the last bit.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

# Order of a slot whose word was merged into another; above that of any live slot.
DEAD = 2**62
# A denominator below this fraction of the largest one seen counts as zero (and numerators likewise).
TINY = 1e-12
# Extremes over a row are kept in this many partial results and reduced at the end: the compiler turns such loops into
# vector instructions without being allowed to reorder arithmetic.
WIDTH = 128
# Traces are summed anew from the diagonal after this many merges, so that rounding does not build up.
RESUM_EVERY = 256

# positions in `traces`
TRACE_A, TRACE_B, FLOOR_A, FLOOR_B, SCALE = range(5)
N_TRACES = 5
# The exhaustive search repacks once less than this fraction of the slots is live.
SPARSE = 0.9
# positions in `counts`
SIZE, LIVE, LEVEL, EVALUATED = range(4)
N_COUNTS = 4


@njit(cache=True, nogil=True, error_model="numpy")
def pair_ratio(traces, entry_a, entry_b):
    """Criterion after merging a pair with these entries of A and B.

    A vanishing denominator gives +inf, or -inf where the numerator vanishes as well (0/0 is never preferred).
    """
    numerator = traces[TRACE_A] + 2.0 * entry_a
    denominator = traces[TRACE_B] + 2.0 * entry_b
    if denominator <= traces[FLOOR_B]:
        return np.inf if numerator > traces[FLOOR_A] else -np.inf
    return numerator / denominator


@njit(cache=True, nogil=True, error_model="numpy")
def precedes(i, j, s, t):
    """Whether the pair {i, j} comes before (s, t), s < t: the lower first word, then the lower second word."""
    first = min(i, j)
    return first < s or (first == s and max(i, j) < t)


@njit(cache=True, nogil=True, error_model="numpy")
def update_traces(traces, entry_a, entry_b):
    """Update the traces for one merge. The floors follow the largest trace, as rounding is relative to it."""
    traces[TRACE_A] += 2.0 * entry_a
    traces[TRACE_B] += 2.0 * entry_b
    traces[FLOOR_A] = max(traces[FLOOR_A], TINY * abs(traces[TRACE_A]))
    traces[FLOOR_B] = max(traces[FLOOR_B], TINY * abs(traces[TRACE_B]))


@njit(cache=True, nogil=True, error_model="numpy")
def resum_traces(traces, own_a, own_b, order, size):
    """Set the traces from the diagonals of A and B at the live slots, in slot order."""
    traces[TRACE_A] = traces[TRACE_B] = 0.0
    for i in range(size):
        if order[i] != DEAD:
            traces[TRACE_A] += own_a[i]
            traces[TRACE_B] += own_b[i]


@njit(cache=True, nogil=True, error_model="numpy")
def start_traces(traces, own_a, own_b, order):
    """Set the traces and their floors, before any merge."""
    resum_traces(traces, own_a, own_b, order, order.shape[0])
    update_traces(traces, 0.0, 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def current_score(traces):
    """The criterion as it stands, NaN where it is 0/0."""
    if traces[TRACE_B] <= traces[FLOOR_B]:
        return np.inf if traces[TRACE_A] > traces[FLOOR_A] else np.nan
    return traces[TRACE_A] / traces[TRACE_B]


@njit(cache=True, nogil=True, error_model="numpy")
def first_live_pair(order, size):
    """The two lowest live slots: what is merged where every pair is 0/0."""
    s = -1
    for i in range(size):
        if order[i] != DEAD:
            if s >= 0:
                return s, i
            s = i
    return s, -1


@njit(cache=True, nogil=True, error_model="numpy")
def clear_partial(partial):
    """Start three rows of partial results: a maximum, a minimum, a maximum."""
    for k in range(WIDTH):
        partial[k] = -np.inf
        partial[WIDTH + k] = np.inf
        partial[2 * WIDTH + k] = -np.inf


@njit(cache=True, nogil=True, error_model="numpy")
def reduce_partial(partial):
    """The maximum, the minimum and the maximum over all partial results."""
    first, low, high = partial[0], partial[WIDTH], partial[2 * WIDTH]
    for k in range(1, WIDTH):
        first = max(first, partial[k])
        low = min(low, partial[WIDTH + k])
        high = max(high, partial[2 * WIDTH + k])
    return first, low, high


@njit(cache=True, nogil=True, error_model="numpy")
def scan_block(row_a, row_b, order, partial, own_order, a, b):
    """Update the partial results with up to `WIDTH` pairs of a row: best ratio, smallest and largest 2 B.

    NumPy: ``owned = order < own_order; y = 2 * row_b; r = (a + 2 * row_a) / (b + y)``, then element by element
    ``partial[0] = max(partial[0], r)`` and so on where owned. The arguments are slices of equal length.
    """
    for k in range(row_a.shape[0]):
        owned = order[k] < own_order
        y = 2.0 * row_b[k]
        ratio = (a + 2.0 * row_a[k]) / (b + y)
        ratio = ratio if owned else -np.inf
        low = y if owned else np.inf
        high = y if owned else -np.inf
        partial[k] = ratio if ratio > partial[k] else partial[k]
        partial[WIDTH + k] = low if low < partial[WIDTH + k] else partial[WIDTH + k]
        partial[2 * WIDTH + k] = high if high > partial[2 * WIDTH + k] else partial[2 * WIDTH + k]


@njit(cache=True, nogil=True, error_model="numpy")
def scan_row(row_a, row_b, order, partial, start, stop, own_order, a, b):
    """Best ratio, smallest and largest 2 B over the slots ``start..stop`` of a row below `own_order` in order."""
    clear_partial(partial)
    for j in range(start, stop, WIDTH):
        end = min(j + WIDTH, stop)
        scan_block(row_a[j:end], row_b[j:end], order[j:end], partial, own_order, a, b)
    return reduce_partial(partial)


@njit(cache=True, nogil=True, error_model="numpy")
def find_best(row_a, row_b, order, partial, start, stop, own_order, a, b, best):
    """First slot whose pair has exactly the best ratio that a scan from `start` left in the partial results."""
    first = stop
    for k in range(WIDTH):
        if partial[k] == best:
            for j in range(start + k, first, WIDTH):
                if order[j] < own_order and (a + 2.0 * row_a[j]) / (b + 2.0 * row_b[j]) == best:
                    first = j
                    break
    return first


@njit(cache=True, nogil=True, error_model="numpy")
def pack(M, slots, n_slots):
    """``M[:n, :n] = M[np.ix_(slots, slots)]`` in place, `slots` ascending. Cost O(n^2)."""
    for i in range(n_slots):
        source = M[slots[i]]
        target = M[i]
        for j in range(n_slots):
            target[j] = source[slots[j]]


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
def merge_given(state, s, t, row_a, row_b):
    """Merge slot t into slot s, whose new entries are given, in rows and columns; returns the criterion after it.

    Cost O(size).
    """
    A, B, order, traces, counts = state.A, state.B, state.order, state.traces, state.counts
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
    return current_score(traces)


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
    """Slots (s, t), s < t, of the pair to merge next: evaluate every pair, take the first of the best."""
    if state.counts[LIVE] < SPARSE * state.counts[SIZE]:
        _pack(state)
    A, B, order, traces = state.A, state.B, state.order, state.traces
    size = state.counts[SIZE]
    a, b = traces[TRACE_A], traces[TRACE_B]
    best, s, t = -np.inf, -1, -1
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
    return (s, t) if s >= 0 else first_live_pair(order, size)


@njit(cache=True, nogil=True, error_model="numpy")
def advance(state, pairs, scores):
    """Merge ``len(pairs)`` times; write the names of the merged groups and the criterion after each merge."""
    for k in range(pairs.shape[0]):
        s, t = find(state)
        pairs[k, 0], pairs[k, 1] = state.word[s], state.word[t]
        scores[k] = merge_given(state, s, t, state.A[s] + state.A[t], state.B[s] + state.B[t])
