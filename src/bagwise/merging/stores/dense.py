"""A and B as matrices, and the check that they fit into memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.matrices import first_not_finite
from bagwise._utils.memory import Limit, check_memory, resolve_limit
from bagwise.errors import BagwiseError
from bagwise.merging.structures import Structure

__all__ = ["DenseStore", "bytes_of_pairs", "check_fits"]


@dataclass(frozen=True)
class DenseStore:
    """A = Xᵀ L_P X and B = Xᵀ L_U X as full symmetric matrices. A search may write to them."""

    A: NDArray[np.float64]
    B: NDArray[np.float64]

    @classmethod
    def from_structures(cls, X: Any, preferred: Structure, undesired: Structure, n_threads: int = 1) -> DenseStore:
        """Compute A and B from the data (samples x words)."""
        return cls(preferred.scatter(X, n_threads), undesired.scatter(X, n_threads))

    @property
    def n_words(self) -> int:
        """Number of words, the side of both matrices."""
        return len(self.A)

    def checked(self, who: str) -> DenseStore:
        """Return the store, or raise an error if a number in it is not finite: searches would not end well.

        Matrices that are formed from finite samples by structures of this library need no check.
        """
        for name, matrix in (("preferred", self.A), ("undesired", self.B)):
            bad = first_not_finite(matrix)
            if bad is not None:
                row, column, value = bad
                raise BagwiseError(
                    f"The {name} matrix of {who} holds {value} for the words {row} and {column}; all of its numbers "
                    "must be finite. Check the weights of graphs, or the statistics, that it is made of."
                )
        return self


# Numbers of 8 bytes per pair of words: A, B, and the index of the polar search.
_NUMBERS_A_PAIR = {"bound": 2.0, "exhaustive": 2.0, "polar": 2.55}


def bytes_of_pairs(n_words: int, search: str = "bound") -> int:
    """Memory that A and B take, and what a search adds to them."""
    return int(8 * _NUMBERS_A_PAIR[search] * n_words**2)


def check_fits(n_words: int, memory_limit: Limit, search: str = "bound", other_ways: str = "") -> None:
    """Raise before allocating if A and B would exceed the limit."""
    limit = resolve_limit(memory_limit)
    fitting = int(((limit or 0) / bytes_of_pairs(1, search)) ** 0.5)
    check_memory(
        bytes_of_pairs(n_words, search),
        memory_limit,
        f"Merging {n_words} words needs two matrices of {n_words} x {n_words}"
        + (" and an index of all pairs" if search == "polar" else ""),
        f"{other_ways}merge fewer words (up to {fitting} fit), for example after dropping the rarest ones",
    )
