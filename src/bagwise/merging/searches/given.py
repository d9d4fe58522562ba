"""A search whose result is known beforehand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.searches.base import Search


class GivenMerges(Search):
    """Play back a hierarchy that another library has found."""

    def __init__(self, hierarchy: Hierarchy, start_score: float) -> None:
        super().__init__(hierarchy.n_words)
        self._hierarchy = hierarchy
        self._done = 0
        self.start_score = start_score

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        part = slice(self._done, self._done + len(pairs))
        pairs[:] = self._hierarchy.merges[part]
        scores[:] = self._hierarchy.scores[part]
        self._done += len(pairs)

    @property
    def work(self) -> dict[str, int]:  # noqa: D102
        return {}
