"""The search over words with one weight each (`WeightLoss`), which compares neighbours only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.scoring import WeightLoss
from bagwise.merging.searches import _weight_kernels as kernels
from bagwise.merging.searches.base import Search

__all__ = ["SortedSearch"]


class SortedSearch(Search):
    """Merge, at each level, the pair that `WeightLoss` with one weight per word loses least by.

    With ``v_i <= v_j <= v_k``, ``min(cost(i, j), cost(j, k)) <= cost(i, k)``: if both were larger, then
    ``v_j - v_i > √p (v_k - v_i)`` and ``v_k - v_j > √(1 - p) (v_k - v_i)`` with ``p = m_k / (m_i + m_k)``, whose sum
    is a contradiction. So the best pair is one of neighbours, and merging neighbours keeps the order. The pairs are
    those of `SumSearch`, unless there are equally good ones that are not neighbours. Time O(d log d), memory O(d).
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
