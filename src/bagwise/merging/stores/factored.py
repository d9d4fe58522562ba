"""A and B as products of factors: rows are computed when they are needed, in memory O(d r) or O(non-zeros)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.stores.factors import Product, SparseProduct

__all__ = ["FactoredStore", "bytes_of_blocks"]

# Bytes that a block of rows of A, and one of B, take while all rows are looked at; at least this many rows.
_BLOCK_BYTES = 2**25
_BLOCK_ROWS = 8
# Sums of r products are wrong by about √r units in the last place; this many times that is allowed for.
_SAFETY = 8


class FactoredStore:
    """A = Σ leftᵀ right over one list of products, B over another; rows on demand.

    Parameters
    ----------
    preferred, undesired : sequences of products
    n_words : int
    room : float
        Bytes that `blocks` may take; they take some rows of A and B in any case.

    Attributes
    ----------
    size : int
        Number of slots, live or not.
    rounding : float
        How far entries may be from the truth, in units of the last place of the traces.
    """

    def __init__(
        self, preferred: Sequence[Product], undesired: Sequence[Product], n_words: int, room: float = np.inf
    ) -> None:
        self._room = room
        self._products = (tuple(preferred), tuple(undesired))
        self.size = n_words
        self._rows = (np.empty(n_words), np.empty(n_words))
        rank = max((product.rank for side in self._products for product in side), default=1)
        self.rounding = _SAFETY * max(float(np.sqrt(rank)), 1.0)

    def diagonals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Diagonals of A and B, before any merge."""
        diagonals = np.zeros(self.size), np.zeros(self.size)
        for out, side in zip(diagonals, self._products, strict=True):
            for product in side:
                product.add_diagonal(out)
        return diagonals

    def blocks(self, n_threads: int = 1) -> Iterator[tuple[tuple[NDArray[np.float64], NDArray[np.float64]], int, int]]:
        """All rows of A and B before any merge, as (blocks, start, stop); right of the diagonal at least.

        A block has all columns, but those below `start` are not filled. It is overwritten by the next one.
        """
        n_rows = bytes_of_blocks(self.size, self._room) // (2 * 8 * self.size)
        memory = np.empty((n_rows, self.size)), np.empty((n_rows, self.size))
        for start in range(0, self.size, n_rows):
            stop = min(start + n_rows, self.size)
            blocks = memory[0][: stop - start], memory[1][: stop - start]
            for out, side in zip(blocks, self._products, strict=True):
                out[:, start:] = 0.0
                for product in side:
                    product.add_block(out, start, stop, n_threads)
            yield blocks, start, stop

    def row(self, slot: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rows of A and B for a slot: entries with all slots. They are overwritten by the next call."""
        rows = self._rows[0][: self.size], self._rows[1][: self.size]
        for out, side in zip(rows, self._products, strict=True):
            out[:] = 0.0
            for product in side:
                product.add_row(out, slot)
        return rows

    def entry(self, s: int, t: int) -> tuple[float, float]:
        """Entries of A and B for a pair of slots."""
        entries = [sum(product.entry(s, t) for product in side) for side in self._products]
        return float(entries[0]), float(entries[1])

    def merge(self, s: int, t: int) -> None:
        """Merge slot t into slot s."""
        for side in self._products:
            for product in side:
                product.merge(s, t)

    def pack(self, slots: NDArray[np.int64], place: NDArray[np.int64]) -> None:
        """Close the gaps between live slots."""
        for side in self._products:
            for product in side:
                product.pack(slots, place)
        self.size = len(slots)

    @property
    def n_bytes(self) -> int:
        """Memory that the factors take, without kept rows."""
        return sum(product.n_bytes for side in self._products for product in side)

    @property
    def work(self) -> dict[str, int]:
        """Rows computed from sparse data, and rows kept now."""
        sparse = [product for side in self._products for product in side if isinstance(product, SparseProduct)]
        return {
            "sparse_rows": sum(product.n_computed for product in sparse),
            "kept_rows": sum(len(product.kept) for product in sparse),
        }


def bytes_of_blocks(n_words: int, room: float = np.inf) -> int:
    """Memory for rows of A and B that are computed at a time when all are looked at."""
    rows = min(_BLOCK_BYTES, room // 2) // (8 * n_words)
    return int(2 * 8 * n_words * min(max(rows, _BLOCK_ROWS), n_words))
