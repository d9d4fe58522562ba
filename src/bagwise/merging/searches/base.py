"""What every search offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Order of a slot whose word was merged into another; above that of any live slot.
DEAD = 2**62


class Search(ABC):
    """A search under way: each call of `advance` merges some more words inside compiled code.

    Attributes
    ----------
    start_score : float
        The criterion before any merge.
    """

    def __init__(self, n_words: int) -> None:
        self.n_words = n_words
        self.start_score = float("nan")

    @abstractmethod
    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        """Merge ``len(pairs)`` times, writing the merged words and the criterion after each merge."""

    @property
    @abstractmethod
    def work(self) -> dict[str, int]:
        """What was looked at so far, for benchmarks and tests: row scans or pairs evaluated."""


class RowSearch(Search):
    """A search over statistics in a dense store, which can also be led merge by merge."""

    _kernels: Any
    _state: Any

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        self._kernels.advance(self._state, pairs, scores)

    def find(self) -> tuple[int, int]:
        """Slots of the pair to merge next."""
        return self._kernels.find(self._state)

    def merge_given(self, s: int, t: int, row_a: NDArray[np.float64], row_b: NDArray[np.float64]) -> float:
        """Merge slot t into slot s, whose new entries with all slots are given; returns the criterion after it."""
        return float(self._kernels.merge_given(self._state, s, t, row_a, row_b))

    def words(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The words in all slots, and the slots that are live."""
        slots = self._slots
        size = slots.counts[0]
        return slots.word[:size], np.flatnonzero(slots.order[:size] != DEAD)

    @property
    def _slots(self) -> Any:
        """The part of the state that knows the slots: `counts`, which begins with their number, `word`, `order`."""
        return self._state
