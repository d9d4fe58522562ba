"""Products ``weight * leftᵀ right`` whose rows are computed when they are asked for, while columns are merged."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.threads import run_over_ranges
from bagwise.merging.pooling import pool
from bagwise.merging.stores import _factor_kernels as kernels
from bagwise.merging.stores.kept_rows import KeptRows
from bagwise.merging.structures import Factor

__all__ = ["DenseProduct", "Product", "SparseProduct", "make_product"]

# Up to this rank a product is summed term by term, so that equal words get equal entries; beyond, a BLAS does it.
_LOW_RANK = 64
# Rows that one thread takes at a time when all rows are computed.
_ROWS = 8
# Rows that take more additions than this are computed in parts by several threads. There are as many parts whatever
# the number of threads, so that the result does not depend on it.
_HEAVY = 500_000
_PARTS = 4
# A row is worth keeping if computing it takes this many times the additions of going through it once.
_WORTH_KEEPING = 2


class Product(ABC):
    """A symmetric matrix of slots by slots, ``weight * leftᵀ right``; slot t can be merged into slot s.

    Attributes
    ----------
    rank : int
        Terms of the sum that makes an entry, at most.
    """

    rank: int

    @abstractmethod
    def add_diagonal(self, out: NDArray[np.float64]) -> None:
        """Add the diagonal, before any merge."""

    @abstractmethod
    def add_block(self, out: NDArray[np.float64], start: int, stop: int, n_threads: int) -> None:
        """Add rows ``start..stop`` to `out`, at least the part right of the diagonal, before any merge."""

    @abstractmethod
    def add_row(self, out: NDArray[np.float64], slot: int) -> None:
        """Add the row of a slot: its entries with all slots, right for those that are live."""

    @abstractmethod
    def entry(self, s: int, t: int) -> float:
        """One entry of the matrix."""

    @abstractmethod
    def merge(self, s: int, t: int) -> None:
        """Add row and column t to row and column s."""

    @abstractmethod
    def pack(self, slots: NDArray[np.int64], place: NDArray[np.int64]) -> None:
        """Renumber slots: `slots` lists the old numbers of those that are left, `place` gives the new ones."""

    @property
    @abstractmethod
    def n_bytes(self) -> int:
        """Memory that it holds."""


class DenseProduct(Product):
    """Both factors are dense: rows x slots, and are written to. A row of the product takes O(rank x slots)."""

    def __init__(self, factor: Factor) -> None:
        shared = factor.right is factor.left
        self._right = np.ascontiguousarray(factor.right, dtype=np.float64)
        self._left = self._right if shared else np.ascontiguousarray(factor.left, dtype=np.float64)
        self._weight = float(factor.weight)
        self.rank, self._size = self._right.shape

    def add_diagonal(self, out: NDArray[np.float64]) -> None:  # noqa: D102
        out += self._weight * np.einsum("ij,ij->j", self._left, self._right)

    def add_block(self, out: NDArray[np.float64], start: int, stop: int, n_threads: int) -> None:  # noqa: D102
        if self.rank > _LOW_RANK:
            block = self._left[:, start:stop].T @ self._right[:, start:]
            block *= self._weight
            out[:, start:] += block
            return

        def add(first: int, last: int) -> None:
            kernels.add_low_rank_block(
                out, self._left, self._right, self._weight, start, start + first, start + last
            )  # fmt: skip

        run_over_ranges(add, stop - start, n_threads, _ROWS)

    def add_row(self, out: NDArray[np.float64], slot: int) -> None:  # noqa: D102
        right = self._right[:, : self._size]
        if self.rank > _LOW_RANK:
            row = np.ascontiguousarray(self._left[:, slot]) @ right
            row *= self._weight
            out += row
        else:
            kernels.add_low_rank_row(out, np.ascontiguousarray(self._left[:, slot]), right, self._weight)

    def entry(self, s: int, t: int) -> float:  # noqa: D102
        return kernels.weighted_dot(self._left[:, s], self._right[:, t], self._weight)

    def merge(self, s: int, t: int) -> None:  # noqa: D102
        self._right[:, s] += self._right[:, t]
        if self._left is not self._right:
            self._left[:, s] += self._left[:, t]

    def pack(self, slots: NDArray[np.int64], place: NDArray[np.int64]) -> None:  # noqa: D102
        self._size = len(slots)
        for matrix in (self._right,) if self._left is self._right else (self._left, self._right):
            for row in matrix:
                row[: self._size] = row[slots]

    @property
    def n_bytes(self) -> int:  # noqa: D102
        return self._right.nbytes + (0 if self._left is self._right else self._left.nbytes)


class SparseProduct(Product):
    """Both factors are sparse: a row of the product adds up the samples in which a group occurs.

    The columns of merged slots are linked, not added, until slots are packed. Rows of heavy groups are kept: the row of
    two merged slots is the sum of their rows.

    Parameters
    ----------
    factor : Factor

    Attributes
    ----------
    kept : KeptRows
        Has no room to begin with; set ``kept.n_bytes``.
    """

    def __init__(self, factor: Factor, n_threads: int = 1) -> None:
        self._weight = float(factor.weight)
        self._n_threads = n_threads
        self.kept = KeptRows(0)
        self.n_computed = 0
        shared = factor.left is factor.right
        self._set_data(sp.csr_array(factor.right), None if shared else sp.csr_array(factor.left))
        self.rank = int(np.diff(self._columns.indptr).max(initial=1))

    def _set_data(self, right: sp.csr_array, left: sp.csr_array | None) -> None:
        """Take data with one column a slot."""
        right.sort_indices()
        n, d = right.shape
        self._left = left  # None: the same as `right`
        self._rows = right
        self._columns = (right if left is None else left).tocsc()
        self._first = np.arange(d)
        self._last = np.arange(d)
        self._following = np.full(d, -1)
        self._slot_of = np.arange(d, dtype=np.int32)
        self._size = d
        self._sums = np.zeros(n)
        self._seen = np.zeros(n, dtype=np.bool_)
        self._scratch = [(np.empty(n, dtype=np.int32), np.empty(n)) for _ in range(2)]
        # additions that the row of a slot takes
        lengths = np.diff(right.indptr)[self._columns.indices]
        reached = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._cost = np.diff(reached[self._columns.indptr]).astype(np.float64)

    def _vector(self, slot: int, scratch: int = 0) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Samples in which a group occurs, in their order, and its values there."""
        columns = self._columns
        only = self._first[slot]
        if self._following[only] < 0:
            part = slice(columns.indptr[only], columns.indptr[only + 1])
            return columns.indices[part], columns.data[part]
        samples, values = self._scratch[scratch]
        n = kernels.gather(
            slot, self._first, self._following, columns.indptr, columns.indices, columns.data,
            self._sums, self._seen, samples, values,
        )  # fmt: skip
        return samples[:n], values[:n]

    def _compute(self, out: NDArray[np.float64], slot: int) -> None:
        """Add the row of a slot, from the samples in which it occurs."""
        rows = self._rows
        samples, values = self._vector(slot)
        self.n_computed += 1

        def add(sums: NDArray[np.float64], part: slice) -> None:
            kernels.add_sparse_row(
                sums, samples[part], values[part], rows.indptr, rows.indices, rows.data, self._slot_of, self._weight
            )  # fmt: skip

        if self._cost[slot] < _HEAVY:
            add(out, slice(None))
            return
        sums = np.zeros((_PARTS, self._size))
        ends = np.linspace(0, len(samples), _PARTS + 1).astype(int)

        def add_parts(first: int, last: int) -> None:
            for k in range(first, last):
                add(sums[k], slice(ends[k], ends[k + 1]))

        run_over_ranges(add_parts, _PARTS, self._n_threads, size=1)
        for part_sums in sums:
            out += part_sums

    def add_diagonal(self, out: NDArray[np.float64]) -> None:  # noqa: D102
        left = self._rows if self._left is None else self._left
        out += self._weight * np.asarray(left.multiply(self._rows).sum(axis=0)).ravel()

    def add_block(self, out: NDArray[np.float64], start: int, stop: int, n_threads: int) -> None:  # noqa: D102
        columns, rows = self._columns, self._rows

        def add(first: int, last: int) -> None:
            kernels.add_sparse_block(
                out, columns.indptr, columns.indices, columns.data, rows.indptr, rows.indices, rows.data,
                self._weight, start, start + first, start + last,
            )  # fmt: skip

        run_over_ranges(add, stop - start, n_threads, _ROWS)

    def add_row(self, out: NDArray[np.float64], slot: int) -> None:  # noqa: D102
        row = self.kept.get(slot)
        if row is None:
            if self._cost[slot] < _WORTH_KEEPING * self._size:
                self._compute(out, slot)
                return
            row = np.zeros(self._size)
            self._compute(row, slot)
            self.kept.put(slot, row, self._cost[slot])
        out += row

    def entry(self, s: int, t: int) -> float:  # noqa: D102
        for slot, other in ((s, t), (t, s)):
            row = self.kept.get(slot)
            if row is not None:
                return float(row[other])
        if self._left is None:
            return self._weight * kernels.sparse_dot(*self._vector(s, 0), *self._vector(t, 1), self._sums)
        row = np.zeros(self._size)
        self._compute(row, s)
        return float(row[t])

    def merge(self, s: int, t: int) -> None:  # noqa: D102
        row, other_row, other = self.kept.get(s), self.kept.get(t), t
        if row is None:
            row, other_row, other = other_row, row, s
        if row is not None:  # taken over: `kept` forgets it below
            if other_row is None:
                self._compute(row, other)
            else:
                row += other_row
            row[s] += row[t]
        kernels.join_groups(s, t, self._first, self._last, self._following, self._slot_of)
        self._cost[s] = min(self._cost[s] + self._cost[t], self._rows.nnz)
        self.kept.merge(s, t)
        if row is not None:
            self.kept.put(s, row, self._cost[s])

    def pack(self, slots: NDArray[np.int64], place: NDArray[np.int64]) -> None:  # noqa: D102
        labels = place[self._slot_of]
        left = None if self._left is None else pool(self._left, labels, len(slots), "sum")
        self._set_data(pool(self._rows, labels, len(slots), "sum"), left)
        self.kept.pack(slots, place)

    @property
    def n_bytes(self) -> int:  # noqa: D102
        matrices = [self._rows, self._columns] + ([] if self._left is None else [self._left])
        return sum(M.data.nbytes + M.indices.nbytes + M.indptr.nbytes for M in matrices) + 40 * self._size


def make_product(factor: Factor, n_threads: int = 1) -> Product:
    """Choose the product for dense or for sparse factors."""
    return SparseProduct(factor, n_threads) if sp.issparse(factor.right) else DenseProduct(factor)
