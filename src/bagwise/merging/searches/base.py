"""What every search offers."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.stores import DenseStore


class Search(ABC):
    """A search under way: each call of `advance` merges some more words inside compiled code.

    Attributes
    ----------
    start_score : float
        The criterion before any merge.
    """

    def __init__(self, store: DenseStore) -> None:
        self.n_words = store.n_words
        self.start_score = float("nan")

    @abstractmethod
    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        """Merge ``len(pairs)`` times, writing the merged words and the criterion after each merge."""

    @property
    @abstractmethod
    def work(self) -> dict[str, int]:
        """What was looked at so far, for benchmarks and tests: row scans or pairs evaluated."""
