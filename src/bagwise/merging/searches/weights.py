"""The searches over words with weights (`WeightLoss`), which compare few pairs of words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.scoring import WeightLoss
from bagwise.merging.searches import _weight_kernels as kernels
from bagwise.merging.searches.base import GivenMerges, Search

__all__ = ["ChainSearch", "SortedSearch"]

# Merges between which Ctrl-C is handled.
_CHUNK = 64
# Weights by which words are compared first.
_FEW = 4


class SortedSearch(Search):
    """Merge, at each level, the pair that `WeightLoss` with one weight per word loses least by.

    With ``v_i <= v_j <= v_k``, ``min(cost(i, j), cost(j, k)) <= cost(i, k)``: if both were larger, then
    ``v_j - v_i > √p (v_k - v_i)`` and ``v_k - v_j > √(1 - p) (v_k - v_i)`` with ``p = m_k / (m_i + m_k)``, whose sum
    is a contradiction. So the best pair is one of neighbours, and merging neighbours keeps the order. The pairs are
    those of `PartnerSearch`, unless there are equally good ones that are not neighbours. Time O(d log d), memory O(d).
    """

    def __init__(self, scoring: WeightLoss) -> None:
        states = scoring.states
        super().__init__(len(states))
        d = self.n_words
        self.start_score = float(scoring.offset + scoring.terms(states).sum())
        mass, product = states[:, 0], states[:, 1]
        order = np.argsort(product / np.where(mass > 0, mass, 1.0), kind="stable")
        self._state = kernels.SortedState(
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
        kernels.start_heap(self._state)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        kernels.advance_sorted(self._state, pairs, scores)

    @property
    def work(self) -> dict[str, int]:
        """Pairs evaluated so far."""
        return {"pairs_evaluated": int(self._state.counts[1])}


class ChainSearch(Search):
    """Merge, at each level, the pair that `WeightLoss` loses least by, found by chains of nearest neighbours.

    A merged group is not nearer to any other than the nearer one of its two parts was (Ward's criterion is
    reducible). So a pair of mutually nearest groups can be merged at once, whatever pairs are nearer elsewhere, and all
    merges are sorted by their costs afterwards. From any group, going to the nearest one again and again ends at such
    a pair, and what was gone through remains valid. The pairs are those of `PartnerSearch`, unless some are equally
    good. Words without mass must have been folded. About 3 d rows are compared, O(C d²) time; memory O(C d).
    `report` is called with the number of merges found.
    """

    def __init__(self, scoring: WeightLoss, report: Callable[[int], None] = lambda done: None) -> None:
        states = scoring.states
        super().__init__(len(states))
        d = self.n_words
        self.start_score = float(scoring.offset + scoring.terms(states).sum())
        self._report = report
        self._given: GivenMerges | None = None
        inverse = 1.0 / np.where(states[:, 0] > 0, states[:, 0], 1.0)
        # Rotating the weights keeps distances; the first few, which give bounds, then vary most.
        directions = np.linalg.eigh(states[:, 1:].T @ (states[:, 1:] * inverse[:, np.newaxis]))[1][:, ::-1]
        products = np.ascontiguousarray(states[:, 1:] @ directions)
        weights = products * inverse[:, np.newaxis]
        self._state = kernels.ChainState(
            first=np.ascontiguousarray(weights[:, :_FEW].T),
            others=np.ascontiguousarray(weights[:, _FEW:]),
            products=products,
            mass=states[:, 0].copy(),
            inverse=inverse,
            word=np.arange(d),
            chain=np.empty(d, dtype=np.int64),
            place=np.empty(d, dtype=np.int64),
            counts=np.array([d, d, 0, 0]),
        )

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        if self._given is None:
            d = self.n_words
            merges, costs = np.empty((d - 1, 2), dtype=np.int64), np.empty(d - 1)
            for start in range(0, d - 1, _CHUNK):
                part = slice(start, start + _CHUNK)
                kernels.advance_chain(self._state, merges[part], costs[part])
                self._report(min(start + _CHUNK, d - 1))
            order = _by_cost(merges, costs)
            totals = self.start_score - np.cumsum(costs[order])
            self._given = GivenMerges(Hierarchy(d, merges[order], totals), self.start_score)
        self._given.advance(pairs, scores)

    @property
    def work(self) -> dict[str, int]:
        """Rows compared so far."""
        return {"row_scans": int(self._state.counts[3])}


def _by_cost(merges: NDArray[np.int64], costs: NDArray[np.float64]) -> NDArray[np.intp]:
    """Sort merges by cost, none before those of its own parts, which rounding might put behind it."""
    highest: dict[int, float] = {}
    costs = costs.copy()
    for k, (s, t) in enumerate(merges.tolist()):
        costs[k] = highest[s] = max(costs[k], highest.get(s, 0.0), highest.get(t, 0.0))
    return np.argsort(costs, kind="stable")
