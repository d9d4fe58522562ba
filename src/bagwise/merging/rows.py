"""A and B of a trace ratio over groups of words, by rows: what the searches for ratios work on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.matrices import first_not_finite
from bagwise._utils.memory import Limit, check_memory, resolve_limit
from bagwise.errors import BagwiseError, in_python
from bagwise.merging.structures import Structure

__all__ = ["DenseRows", "RatioRows", "bytes_of_pairs", "check_fits", "choose_store"]

Values = NDArray[np.float64]
Slots = NDArray[np.int64]


class RatioRows(Protocol):
    """Rows of A and B, one slot for each group of words; the search says which groups are merged, and packs slots."""

    store: str  # its name for users
    size: int  # number of slots, live or not
    rounding: float  # error bound of entries, in units of the last place of the traces
    compiled: bool  # whether compiled code merges within the matrices `A` and `B`
    costly: bool  # whether rows are costly to compute, so that a search remembers more of them

    def diagonals(self) -> tuple[Values, Values]:
        """Diagonals of A and B, before any merge."""

    def blocks(self, n_threads: int = 1) -> Iterator[tuple[tuple[Values, Values], int, int]]:
        """All rows before any merge, as (blocks of A and B, start, stop); right of the diagonal at least.

        A block has all columns, but those below `start` need not be filled. The next one may overwrite it.
        """

    def row(self, slot: int) -> tuple[Values, Values]:
        """Rows of A and B for a slot: entries with all slots, valid for those that are live."""

    def entry(self, s: int, t: int) -> tuple[float, float]:
        """Entries of A and B for a pair of slots."""

    def merge(self, s: int, t: int) -> None:
        """Merge slot t into slot s."""

    def pack(self, slots: Slots, new_slot: Slots) -> None:
        """Renumber slots: `slots` has the old numbers of those that are left, `new_slot` the new number of each."""


class DenseRows:
    """A = Xᵀ L_P X and B = Xᵀ L_U X as full symmetric matrices. A search may write to them."""

    store = "dense"
    rounding = 8.0  # entries are only ever added
    compiled = True
    costly = False

    def __init__(self, A: Values, B: Values) -> None:
        self.A, self.B = A, B
        self.size = len(A)

    @classmethod
    def of(cls, X: Any, preferred: Structure, undesired: Structure, n_threads: int = 1) -> DenseRows:
        """Compute A and B from the data (samples x words)."""
        return cls(preferred.scatter(X, n_threads), undesired.scatter(X, n_threads))

    def checked(self, who: str) -> DenseRows:
        """Return the rows, or raise an error if a number in them is not finite: searches would not end well.

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

    def diagonals(self) -> tuple[Values, Values]:  # noqa: D102
        return np.diagonal(self.A), np.diagonal(self.B)

    def blocks(self, n_threads: int = 1) -> Iterator[tuple[tuple[Values, Values], int, int]]:  # noqa: D102
        yield (self.A, self.B), 0, self.size

    def row(self, slot: int) -> tuple[Values, Values]:  # noqa: D102
        return self.A[slot, : self.size], self.B[slot, : self.size]

    def entry(self, s: int, t: int) -> tuple[float, float]:  # noqa: D102
        return float(self.A[s, t]), float(self.B[s, t])

    def merge(self, s: int, t: int) -> None:  # noqa: D102
        self._write(s, t, self.A[s] + self.A[t], self.B[s] + self.B[t])

    def _write(self, s: int, t: int, row_a: Values, row_b: Values) -> None:
        for M, row in ((self.A, row_a), (self.B, row_b)):
            diagonal = M[s, s] + M[t, t] + 2.0 * M[s, t]
            M[s] = M[:, s] = row
            M[s, s] = diagonal

    def pack(self, slots: Slots, new_slot: Slots) -> None:  # noqa: D102
        self.A, self.B = (np.ascontiguousarray(M[np.ix_(slots, slots)]) for M in (self.A, self.B))
        self.size = len(slots)


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


def choose_store(store: str, n_words: int, search: str, memory_limit: Limit) -> str:
    """Choose between "dense" and "sparse" for data of which `n_words` columns vary: "auto" is dense if that fits."""
    if store == "auto" and search == "bound":
        limit = resolve_limit(memory_limit)
        return "dense" if limit is None or bytes_of_pairs(n_words, search) <= limit else "sparse"
    if store in ("auto", "dense"):
        others = "use store='sparse', or " if search == "bound" else "use search='bound', or "
        check_fits(n_words, memory_limit, search, in_python(others))
        return "dense"
    return store
