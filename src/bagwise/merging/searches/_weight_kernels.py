"""Compiled code of the search over words with one weight each, by their order."""

from typing import NamedTuple

import numpy as np
from numba import njit


class SortedState(NamedTuple):
    """Groups in slots, sorted by weight, as a linked list; a heap of candidate pairs of neighbours.

    Candidates are numbered in the order in which they were found; `heap` has their numbers.
    """

    mass: np.ndarray  # (d,)
    product: np.ndarray  # (d,) mass times weight
    word: np.ndarray  # (d,) smallest word of the group in a slot
    before: np.ndarray  # (d,) slot of the next lighter group, -1 if there is none
    after: np.ndarray  # (d,) slot of the next heavier one, -1 if there is none
    version: np.ndarray  # (d,) how often the group in a slot has changed; -1 once it is gone
    cost: np.ndarray  # (3d,) of each candidate
    left: np.ndarray  # (3d,) slots of each candidate
    right: np.ndarray
    versions: np.ndarray  # (3d, 2) of the slots when the candidate was found
    words: np.ndarray  # (3d, 2) of the groups when the candidate was found, the lower one first
    heap: np.ndarray  # (3d,)
    counts: np.ndarray  # length of the heap, number of candidates so far
    total: np.ndarray  # (1,) the score


@njit(cache=True, nogil=True)
def join_cost(mass_s, product_s, mass_t, product_t):
    """``m_s m_t / (m_s + m_t) (v_s - v_t)²`` with ``v = product / m``; 0 if a mass is 0."""
    if mass_s == 0.0 or mass_t == 0.0:
        return 0.0
    inverse_s, inverse_t = 1.0 / mass_s, 1.0 / mass_t
    difference = product_s * inverse_s - product_t * inverse_t
    return difference * difference / (inverse_s + inverse_t)


@njit(cache=True, nogil=True)
def _comes_first(state, a, b):
    """Whether candidate a is merged before b: by cost, then the lowest word, then the lowest other word."""
    if state.cost[a] != state.cost[b]:
        return state.cost[a] < state.cost[b]
    if state.words[a, 0] != state.words[b, 0]:
        return state.words[a, 0] < state.words[b, 0]
    return state.words[a, 1] < state.words[b, 1]


@njit(cache=True, nogil=True)
def _push(state, left, right):
    """Add the pair of neighbours (left, right) to the heap. Cost O(log d)."""
    candidate = state.counts[1]
    state.counts[1] += 1
    state.cost[candidate] = join_cost(state.mass[left], state.product[left], state.mass[right], state.product[right])
    state.left[candidate], state.right[candidate] = left, right
    state.versions[candidate, 0], state.versions[candidate, 1] = state.version[left], state.version[right]
    state.words[candidate, 0] = min(state.word[left], state.word[right])
    state.words[candidate, 1] = max(state.word[left], state.word[right])
    place = state.counts[0]
    state.counts[0] += 1
    while place > 0:
        parent = (place - 1) // 2
        if not _comes_first(state, candidate, state.heap[parent]):
            break
        state.heap[place] = state.heap[parent]
        place = parent
    state.heap[place] = candidate


@njit(cache=True, nogil=True)
def _pop(state):
    """Take the first candidate from the heap. Cost O(log d)."""
    top = state.heap[0]
    state.counts[0] -= 1
    size = state.counts[0]
    last = state.heap[size]
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _comes_first(state, state.heap[child + 1], state.heap[child]):
            child += 1
        if not _comes_first(state, state.heap[child], last):
            break
        state.heap[place] = state.heap[child]
        place = child
    state.heap[place] = last
    return top


@njit(cache=True, nogil=True)
def start_heap(state):
    """Add all pairs of neighbours. Cost O(d log d)."""
    for slot in range(state.mass.shape[0] - 1):
        _push(state, slot, slot + 1)


@njit(cache=True, nogil=True)
def advance_sorted(state, pairs, scores):
    """Merge ``len(pairs)`` times the cheapest pair of neighbours. Cost O(log d) a merge."""
    for k in range(pairs.shape[0]):
        while True:
            top = _pop(state)
            left, right = state.left[top], state.right[top]
            if state.version[left] == state.versions[top, 0] and state.version[right] == state.versions[top, 1]:
                break
        pairs[k] = state.words[top]
        state.total[0] -= state.cost[top]
        scores[k] = state.total[0]
        state.word[left] = state.words[top, 0]
        state.mass[left] += state.mass[right]
        state.product[left] += state.product[right]
        state.version[left] += 1
        state.version[right] = -1
        state.after[left] = state.after[right]
        if state.after[left] >= 0:
            state.before[state.after[left]] = left
            _push(state, left, state.after[left])
        if state.before[left] >= 0:
            _push(state, state.before[left], left)
