"""What a criterion makes of data: merges that cost nothing, and a search for the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.kernels import AdditiveKernel
from bagwise.merging.searches.base import Search

__all__ = ["Options", "Plan", "fold"]


class Options(NamedTuple):
    """How merging is to be done."""

    kernel: AdditiveKernel = AdditiveKernel("linear")
    search: str = "bound"
    n_threads: int = 1
    memory_limit: int | float | str | None = None
    store: str = "auto"
    show_progress: bool = False


@dataclass(frozen=True)
class Plan:
    """Merging about to start: words to be folded first, then a search over the rest."""

    folded: NDArray[np.int64]  # (f, 2), merges that do not change the score
    words: NDArray[np.int64]  # the words that the search knows as 0, 1, …
    search: Search
    store: str | None = None  # where the statistics are kept, for criteria that have a choice

    @classmethod
    def without_folding(cls, search: Search) -> Plan:
        """Plan a search over all words."""
        return cls(np.empty((0, 2), dtype=np.int64), np.arange(search.n_words), search)


def fold(numbers: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """List the merges that join words with equal numbers, and the words that are left.

    Pairs come in the order of their indices, as equally good pairs always do.
    """
    _, first, inverse = np.unique(numbers, return_index=True, return_inverse=True)
    leader = first[inverse.reshape(-1)]
    gone = np.flatnonzero(leader != np.arange(len(numbers)))
    merges = np.stack([leader[gone], gone], axis=1).astype(np.int64)
    return merges[np.lexsort((merges[:, 1], merges[:, 0]))], np.sort(first).astype(np.int64)
