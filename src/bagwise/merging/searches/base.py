"""What every search offers, and a search whose result is known beforehand."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.hierarchy import Hierarchy

__all__ = ["GivenMerges", "Search"]


class Search(ABC):
    """A search under way: each call of `advance` merges some more words inside compiled code.

    Equally good pairs are merged in the order of their indices: the lowest s, then the lowest t.

    Attributes
    ----------
    n_words : int
    start_score : float
        The criterion before any merge.
    """

    def __init__(self, n_words: int) -> None:
        self.n_words = n_words
        self.start_score = float("nan")

    @abstractmethod
    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        """Merge ``len(pairs)`` times, writing the merged words and the criterion after each merge.

        Searches that were given refused pairs end where only these are left; later rows stay as they are.
        """

    @property
    def work(self) -> dict[str, int]:
        """Work done so far, for benchmarks and tests: row scans or pairs evaluated."""
        return {}


class GivenMerges(Search):
    """Play back a hierarchy that needs no search: found by another library, or the same whatever is merged."""

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
