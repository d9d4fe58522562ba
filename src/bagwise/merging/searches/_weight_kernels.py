"""Compiled code of the searches over words with weights: by their order, and by chains of nearest neighbours."""

from typing import NamedTuple

import numpy as np
from numba import njit

# Words that are compared at a time; their costs stay in the innermost cache.
_BLOCK = 512
# Slots are packed once less than this fraction of them is live.
_LIVE_FRACTION = 0.8


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


class ChainState(NamedTuple):
    """Groups in slots, in the order of their smallest words, and a chain of slots, each nearest to the one before."""

    first: np.ndarray  # (few, d) the first few weights; infinite once a group is gone
    others: np.ndarray  # (d, C - few) the other weights
    products: np.ndarray  # (d, C) mass times weights
    mass: np.ndarray  # (d,)
    inverse: np.ndarray  # (d,) of the mass
    word: np.ndarray  # (d,) smallest word of the group in a slot; -1 once it is gone
    chain: np.ndarray  # (d,)
    place: np.ndarray  # (d,) scratch
    counts: np.ndarray  # slots in use, groups, length of the chain, rows scanned


@njit(cache=True, nogil=True)
def _rest_of_distance(state, i, j):
    """Squared distance between the weights in slots i and j, without the first few."""
    total = 0.0
    for c in range(state.others.shape[1]):
        difference = state.others[i, c] - state.others[j, c]
        total += difference * difference
    return total


@njit(cache=True, nogil=True)
def _nearest(state, i, preferred):
    """The slot whose merge with i costs least, and the cost; of equals `preferred`, then the first.

    The first few weights give a lower bound of all costs; the others are added where that is below the least cost so
    far. Cost O(d C) at most.
    """
    best, cost = preferred, np.inf
    squares = np.zeros(_BLOCK)
    if preferred >= 0:
        for c in range(state.first.shape[0]):
            difference = state.first[c, i] - state.first[c, preferred]
            squares[0] += difference * difference
        cost = (squares[0] + _rest_of_distance(state, i, preferred)) / (state.inverse[i] + state.inverse[preferred])
    size = state.counts[0]
    for start in range(0, size, _BLOCK):
        width = min(_BLOCK, size - start)
        squares[:width] = 0.0
        for c in range(state.first.shape[0]):
            own = state.first[c, i]
            row = state.first[c, start : start + width]
            for j in range(width):
                squares[j] += (own - row[j]) * (own - row[j])
        if start <= i < start + width:
            squares[i - start] = np.inf
        inverse = state.inverse[start : start + width]
        for j in range(width):
            if squares[j] < cost * (state.inverse[i] + inverse[j]):
                found = (squares[j] + _rest_of_distance(state, i, start + j)) / (state.inverse[i] + inverse[j])
                if found < cost:
                    best, cost = start + j, found
    state.counts[3] += 1
    return best, cost


@njit(cache=True, nogil=True)
def _pack(state):
    """Close the gaps between the live slots, keeping their order."""
    n = 0
    for slot in range(state.counts[0]):
        if state.word[slot] >= 0:
            state.place[slot] = n
            state.word[n], state.mass[n], state.inverse[n] = state.word[slot], state.mass[slot], state.inverse[slot]
            state.first[:, n] = state.first[:, slot]
            state.others[n] = state.others[slot]
            state.products[n] = state.products[slot]
            n += 1
    state.counts[0] = n
    for k in range(state.counts[2]):
        state.chain[k] = state.place[state.chain[k]]


@njit(cache=True, nogil=True)
def advance_chain(state, pairs, costs):
    """Merge ``len(pairs)`` pairs of mutually nearest groups. Cost O(d C) a row, about three rows a merge."""
    for k in range(pairs.shape[0]):
        if state.counts[1] < _LIVE_FRACTION * state.counts[0]:
            _pack(state)
        if state.counts[2] == 0:
            first = 0
            while state.word[first] < 0:
                first += 1
            state.chain[0] = first
            state.counts[2] = 1
        while True:
            length = state.counts[2]
            last = state.chain[length - 1]
            before = state.chain[length - 2] if length > 1 else -1
            other, cost = _nearest(state, last, before)
            if other == before:
                break
            state.chain[length] = other
            state.counts[2] += 1
        state.counts[2] -= 2
        s, t = min(last, before), max(last, before)
        pairs[k, 0], pairs[k, 1] = state.word[s], state.word[t]
        costs[k] = cost
        state.mass[s] += state.mass[t]
        state.inverse[s] = 1.0 / state.mass[s]
        state.products[s] += state.products[t]
        few = state.first.shape[0]
        state.first[:, s] = state.products[s, :few] * state.inverse[s]
        state.others[s] = state.products[s, few:] * state.inverse[s]
        state.first[:, t] = np.inf
        state.word[t] = -1
        state.counts[1] -= 1
