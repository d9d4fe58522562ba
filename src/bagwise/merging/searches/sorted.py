"""The search over words with one weight each (`WeightLoss`), which compares neighbours only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from bagwise.merging.scoring import Scoring
from bagwise.merging.searches.base import Search

__all__ = ["SortedSearch"]


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
    position = state.counts[0]
    state.counts[0] += 1
    while position > 0:
        parent = (position - 1) // 2
        if not _comes_first(state, candidate, state.heap[parent]):
            break
        state.heap[position] = state.heap[parent]
        position = parent
    state.heap[position] = candidate


@njit(cache=True, nogil=True)
def _pop(state):
    """Take the first candidate from the heap. Cost O(log d)."""
    top = state.heap[0]
    state.counts[0] -= 1
    size = state.counts[0]
    last = state.heap[size]
    position = 0
    while 2 * position + 1 < size:
        child = 2 * position + 1
        if child + 1 < size and _comes_first(state, state.heap[child + 1], state.heap[child]):
            child += 1
        if not _comes_first(state, state.heap[child], last):
            break
        state.heap[position] = state.heap[child]
        position = child
    state.heap[position] = last
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


class SortedSearch(Search):
    """Merge, at each level, the pair that `WeightLoss` with one weight per word loses least by.

    With ``v_i <= v_j <= v_k``, ``min(cost(i, j), cost(j, k)) <= cost(i, k)``: if both were larger, then
    ``v_j - v_i > √p (v_k - v_i)`` and ``v_k - v_j > √(1 - p) (v_k - v_i)`` with ``p = m_k / (m_i + m_k)``, whose sum
    is a contradiction. So the best pair is one of neighbours, and merging neighbours keeps the order. The pairs are
    those of `SumSearch`, unless there are equally good ones that are not neighbours. Time O(d log d), memory O(d).
    """

    def __init__(self, scoring: Scoring) -> None:
        states = scoring.states
        super().__init__(len(states))
        d = self.n_words
        self.start_score = float(scoring.offset + scoring.terms(states).sum())
        mass, product = states[:, 0], states[:, 1]
        order = np.argsort(product / np.where(mass > 0, mass, 1.0), kind="stable")
        self._state = SortedState(
            mass=mass[order],
            product=product[order],
            word=order.astype(np.int64),
            before=np.arange(-1, d - 1),
            after=np.append(np.arange(1, d), -1),
            version=np.zeros(d, dtype=np.int64),
            cost=np.empty(3 * d),
            left=np.empty(3 * d, dtype=np.int64),
            right=np.empty(3 * d, dtype=np.int64),
            versions=np.empty((3 * d, 2), dtype=np.int64),
            words=np.empty((3 * d, 2), dtype=np.int64),
            heap=np.empty(3 * d, dtype=np.int64),
            counts=np.zeros(2, dtype=np.int64),
            total=np.array([self.start_score]),
        )
        start_heap(self._state)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        advance_sorted(self._state, pairs, scores)

    @property
    def work(self) -> dict[str, int]:
        """Pairs evaluated so far."""
        return {"pairs_evaluated": int(self._state.counts[1])}
