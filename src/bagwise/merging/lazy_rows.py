"""A and B as products of factors: rows are computed when they are needed, in memory O(d r) or O(non-zeros)."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.memory import Limit, check_memory, readable_size, resolve_limit
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import in_python
from bagwise.merging import _kernels as kernels
from bagwise.merging.pooling import pool
from bagwise.merging.rows import bytes_of_pairs
from bagwise.merging.structures import Factor, Structure

__all__ = ["KeptRows", "LazyRows", "make_product"]


# Up to this rank a product is summed term by term, so that equal words get equal entries; beyond, by BLAS.
_LOW_RANK = 64
# Rows that one thread computes at a time when all rows are computed.
_ROWS = 8
# Rows that take more additions than this are computed in parts by several threads. There are as many parts whatever
# the number of threads, so that the result does not depend on it.
_HEAVY = 500_000
_PARTS = 4
# A row is cached if computing it takes this many times the additions of a pass over it.
_WORTH_KEEPING = 2
# Size in bytes of the blocks of rows of A, and of B, in which all rows are scanned; at least this many rows.
_BLOCK_BYTES = 2**25
_BLOCK_ROWS = 8
# Sums of r products have errors of about √r units in the last place; the tolerance is this many times that.
_SAFETY = 8
# Of each non-zero: its value and its index, by rows and by columns.
_BYTES_A_NON_ZERO = 2 * (8 + 4)
# Dense data with a smaller fraction of non-zeros than this are made sparse: they take less memory then, and computing
# a row takes the square of the fraction in additions. BLAS is about 7 times as fast on data that are filled.
_FILLED = 1 / 3


class KeptRows:
    """A cache of rows within a memory budget of `n_bytes`, by the GreedyDual rule.

    The row with the lowest credit is evicted. The credit of a row is its cost plus, at its last use, the credit of the
    row that was evicted last. Rows have one entry per slot. Merges of other slots are applied to a cached row only
    when it is used.
    """

    def __init__(self, n_bytes: float) -> None:
        self.n_bytes = n_bytes
        self._rows: dict[int, NDArray[np.float64]] = {}
        self._cost: dict[int, float] = {}
        self._credit: dict[int, float] = {}
        self._seen: dict[int, int] = {}  # number of merges that were applied to a row
        self._by_credit: list[tuple[float, int]] = []  # a heap; outdated credits are skipped
        self._paid = 0.0
        self._used = 0
        self._merges = np.empty((1024, 2), dtype=np.int64)
        self._n_merges = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, slot: int) -> bool:
        return slot in self._rows

    def get(self, slot: int) -> NDArray[np.float64] | None:
        """The current row of a slot, to be read or taken over; None if it is not cached."""
        row = self._rows.get(slot)
        if row is not None:
            self._bring_up_to_date(slot)
            self._set_credit(slot)
        return row

    def put(self, slot: int, row: NDArray[np.float64], cost: float) -> None:
        """Cache a row, evicting others with less credit, unless its own is the lowest."""
        self.drop(slot)
        while self._used + row.nbytes > self.n_bytes:
            least = self._least()
            if least is None or self._credit[least] >= self._paid + cost:
                return
            self._paid = self._credit[least]
            self.drop(least)
        self._rows[slot] = row
        self._cost[slot] = cost
        self._seen[slot] = self._n_merges
        self._used += row.nbytes
        self._set_credit(slot)

    def drop(self, slot: int) -> None:
        """Remove the row of a slot, if it is cached."""
        row = self._rows.pop(slot, None)
        if row is not None:
            self._used -= row.nbytes
            del self._cost[slot], self._credit[slot], self._seen[slot]

    def merge(self, s: int, t: int) -> None:
        """Record that slot t was merged into slot s: remove their rows; the others are updated when used."""
        self.drop(s)
        self.drop(t)
        if self._n_merges == len(self._merges):
            self._merges = np.concatenate([self._merges, np.empty_like(self._merges)])
        self._merges[self._n_merges] = s, t
        self._n_merges += 1

    def pack(self, slots: NDArray[np.int64], new_slot: NDArray[np.int64]) -> None:
        """Renumber slots: `slots` has the old numbers of those that are left, `new_slot` the new number of each."""
        rows, costs, credits = {}, {}, {}
        for old in self._rows:
            self._bring_up_to_date(old)
            new = int(new_slot[old])
            rows[new] = self._rows[old][slots]
            costs[new], credits[new] = self._cost[old], self._credit[old]
        self._rows, self._cost, self._credit = rows, costs, credits
        self._n_merges = 0
        self._seen = dict.fromkeys(rows, 0)
        self._used = sum(row.nbytes for row in rows.values())
        self._sort_by_credit()

    def _set_credit(self, slot: int) -> None:
        self._credit[slot] = self._paid + self._cost[slot]
        heapq.heappush(self._by_credit, (self._credit[slot], slot))
        if len(self._by_credit) > 4 * len(self._rows) + 1024:  # mostly outdated credits
            self._sort_by_credit()

    def _sort_by_credit(self) -> None:
        self._by_credit = [(credit, slot) for slot, credit in self._credit.items()]
        heapq.heapify(self._by_credit)

    def _least(self) -> int | None:
        """The slot whose row has the lowest credit."""
        while self._by_credit:
            credit, slot = self._by_credit[0]
            if self._credit.get(slot) == credit:
                return slot
            heapq.heappop(self._by_credit)
        return None

    def _bring_up_to_date(self, slot: int) -> None:
        kernels.replay(self._rows[slot], self._merges[self._seen[slot] : self._n_merges])
        self._seen[slot] = self._n_merges


class DenseProduct:
    """A symmetric matrix ``weight * leftᵀ right`` of slots by slots, from dense factors, rows x slots.

    Slot t can be merged into slot s, which overwrites the factors. A row takes O(rank x slots) time; `rank` is the
    largest number of terms in the sum of an entry.
    """

    def __init__(self, factor: Factor) -> None:
        shared = factor.right is factor.left
        self._right = np.ascontiguousarray(factor.right, dtype=np.float64)
        self._left = self._right if shared else np.ascontiguousarray(factor.left, dtype=np.float64)
        self._weight = float(factor.weight)
        self.rank, self._size = self._right.shape

    def add_diagonal(self, out: NDArray[np.float64]) -> None:
        """Add the diagonal, before any merge."""
        out += self._weight * np.einsum("ij,ij->j", self._left, self._right)

    def add_block(self, out: NDArray[np.float64], start: int, stop: int, n_threads: int) -> None:
        """Add rows ``start..stop`` to `out`, at least the part right of the diagonal, before any merge."""
        if self.rank > _LOW_RANK:
            block = self._left[:, start:stop].T @ self._right[:, start:]
            block *= self._weight
            out[:, start:] += block
            return

        def add(first: int, last: int) -> None:
            kernels.add_low_rank_block(out, self._left, self._right, self._weight, start, start + first, start + last)

        run_over_ranges(add, stop - start, n_threads, _ROWS)

    def add_row(self, out: NDArray[np.float64], slot: int) -> None:
        """Add the row of a slot: its entries with all slots, valid for those that are live."""
        right = self._right[:, : self._size]
        if self.rank > _LOW_RANK:
            row = np.ascontiguousarray(self._left[:, slot]) @ right
            row *= self._weight
            out += row
        else:
            kernels.add_low_rank_row(out, np.ascontiguousarray(self._left[:, slot]), right, self._weight)

    def entry(self, s: int, t: int) -> float:
        """One entry of the matrix."""
        return kernels.weighted_dot(self._left[:, s], self._right[:, t], self._weight)

    def merge(self, s: int, t: int) -> None:
        """Add row and column t to row and column s."""
        self._right[:, s] += self._right[:, t]
        if self._left is not self._right:
            self._left[:, s] += self._left[:, t]

    def pack(self, slots: NDArray[np.int64], new_slot: NDArray[np.int64]) -> None:
        """Renumber slots: `slots` has the old numbers of those that are left, `new_slot` the new number of each."""
        self._size = len(slots)
        for matrix in (self._right,) if self._left is self._right else (self._left, self._right):
            for row in matrix:
                row[: self._size] = row[slots]

    @property
    def n_bytes(self) -> int:
        """Memory that the factors take."""
        return self._right.nbytes + (0 if self._left is self._right else self._left.nbytes)


class SparseProduct:
    """`DenseProduct` with sparse factors: a row of the product sums over the samples in which a group occurs.

    The columns of merged slots are linked, not added, until slots are packed. Costly rows are kept: the row of two
    merged slots is the sum of their rows. The cache `kept` has no memory budget to begin with; set ``kept.n_bytes``.
    """

    def __init__(self, factor: Factor, n_threads: int = 1) -> None:
        self._weight = float(factor.weight)
        self._n_threads = n_threads
        self.kept = KeptRows(0)
        shared = factor.left is factor.right
        self._set_data(sp.csr_array(factor.right), None if shared else sp.csr_array(factor.left))
        self.rank = int(np.diff(self._columns.indptr).max(initial=1))

    def _set_data(self, right: sp.csr_array, left: sp.csr_array | None) -> None:
        """Set the data, one column per slot."""
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
        # additions to compute the row of a slot
        lengths = np.diff(right.indptr)[self._columns.indices]
        reached = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._cost = np.diff(reached[self._columns.indptr]).astype(np.float64)

    def _vector(self, slot: int, scratch: int = 0) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The sorted samples in which a group occurs, and its values there."""
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

    def add_diagonal(self, out: NDArray[np.float64]) -> None:
        left = self._rows if self._left is None else self._left
        out += self._weight * np.asarray(left.multiply(self._rows).sum(axis=0)).ravel()

    def add_block(self, out: NDArray[np.float64], start: int, stop: int, n_threads: int) -> None:
        columns, rows = self._columns, self._rows

        def add(first: int, last: int) -> None:
            kernels.add_sparse_block(
                out, columns.indptr, columns.indices, columns.data, rows.indptr, rows.indices, rows.data,
                self._weight, start, start + first, start + last,
            )  # fmt: skip

        run_over_ranges(add, stop - start, n_threads, _ROWS)

    def add_row(self, out: NDArray[np.float64], slot: int) -> None:
        row = self.kept.get(slot)
        if row is None:
            if self._cost[slot] < _WORTH_KEEPING * self._size:
                self._compute(out, slot)
                return
            row = np.zeros(self._size)
            self._compute(row, slot)
            self.kept.put(slot, row, self._cost[slot])
        out += row

    def entry(self, s: int, t: int) -> float:
        for slot, other in ((s, t), (t, s)):
            row = self.kept.get(slot)
            if row is not None:
                return float(row[other])
        if self._left is None:
            return self._weight * kernels.sparse_dot(*self._vector(s, 0), *self._vector(t, 1), self._sums)
        row = np.zeros(self._size)
        self._compute(row, s)
        return float(row[t])

    def merge(self, s: int, t: int) -> None:
        row, other_row, other = self.kept.get(s), self.kept.get(t), t
        if row is None:
            row, other_row, other = other_row, row, s
        if row is not None:  # taken over: removed from `kept` below
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

    def pack(self, slots: NDArray[np.int64], new_slot: NDArray[np.int64]) -> None:
        labels = new_slot[self._slot_of]
        left = None if self._left is None else pool(self._left, labels, len(slots), "sum")
        self._set_data(pool(self._rows, labels, len(slots), "sum"), left)
        self.kept.pack(slots, new_slot)

    @property
    def n_bytes(self) -> int:
        matrices = [self._rows, self._columns] + ([] if self._left is None else [self._left])
        return sum(M.data.nbytes + M.indices.nbytes + M.indptr.nbytes for M in matrices) + 40 * self._size


Product = DenseProduct | SparseProduct


def make_product(factor: Factor, n_threads: int = 1) -> Product:
    """Make the product of dense or of sparse factors."""
    return SparseProduct(factor, n_threads) if sp.issparse(factor.right) else DenseProduct(factor)


class LazyRows:
    """A = Σ leftᵀ right over one list of products, B over another; rows on demand.

    `budget` is the memory budget of `blocks`, in bytes; they take some rows of A and B in any case.
    """

    store = "sparse"
    compiled = False
    costly = True

    def __init__(
        self, preferred: Sequence[Product], undesired: Sequence[Product], n_words: int, budget: float = np.inf
    ) -> None:
        self._budget = budget
        self._products = [(0, product) for product in preferred] + [(1, product) for product in undesired]
        self.size = n_words
        self._rows = (np.empty(n_words), np.empty(n_words))
        rank = max((product.rank for _, product in self._products), default=1)
        self.rounding = _SAFETY * max(float(np.sqrt(rank)), 1.0)

    @classmethod
    def of(cls, X: Any, structures: Sequence[Structure], memory_limit: Limit, n_threads: int = 1) -> LazyRows:
        """Factor the matrices of data (samples x words); raise if that does not fit.

        Rows are cached in half of what a given limit leaves; without one, in as much memory as the factors take.
        """
        n_samples, d = X.shape
        limit = resolve_limit(memory_limit)
        least_beside = bytes_of_blocks(d, budget=0)
        n_filled = int(X.nnz if sp.issparse(X) else np.count_nonzero(X))
        if sp.issparse(X) or n_filled < _FILLED * n_samples * d:
            need, made = _BYTES_A_NON_ZERO * n_filled, sp.csr_array
            what = f"The sparse store keeps the {n_filled} non-zeros of {d} words by rows and by columns"
        else:
            need, made = 8 * d * sum(structure.n_factor_rows() for structure in structures), np.asarray
            what = f"The sparse store keeps the values of {d} words in {n_samples} samples, once more for some criteria"
        check_memory(need + least_beside, memory_limit, f"{what}, and some rows of the statistics", _advice(d, limit))
        X = made(X)
        preferred, undesired = (
            [make_product(factor, n_threads) for factor in structure.factors(X)] for structure in structures
        )
        del X
        need = sum(product.n_bytes for product in (*preferred, *undesired))  # graphs can fill sparse data
        check_memory(
            need + least_beside, memory_limit, f"{what}, and what the criterion makes of them", _advice(d, limit)
        )
        budget = np.inf if limit is None else (limit - need) / 2
        row_budget = budget if memory_limit is not None else min(budget, need)
        sparse = [product for product in (*preferred, *undesired) if isinstance(product, SparseProduct)]
        for product in sparse:
            product.kept.n_bytes = row_budget / len(sparse)
        return cls(preferred, undesired, d, budget)

    def diagonals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # noqa: D102
        diagonals = np.zeros(self.size), np.zeros(self.size)
        for side, product in self._products:
            product.add_diagonal(diagonals[side])
        return diagonals

    def blocks(self, n_threads: int = 1) -> Iterator[tuple[tuple[NDArray[np.float64], NDArray[np.float64]], int, int]]:  # noqa: D102
        n_rows = bytes_of_blocks(self.size, self._budget) // (2 * 8 * self.size)
        memory = np.empty((n_rows, self.size)), np.empty((n_rows, self.size))
        for start in range(0, self.size, n_rows):
            stop = min(start + n_rows, self.size)
            blocks = memory[0][: stop - start], memory[1][: stop - start]
            for block in blocks:
                block[:, start:] = 0.0
            for side, product in self._products:
                product.add_block(blocks[side], start, stop, n_threads)
            yield blocks, start, stop

    def row(self, slot: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # noqa: D102
        rows = self._rows[0][: self.size], self._rows[1][: self.size]
        for row in rows:
            row[:] = 0.0
        for side, product in self._products:
            product.add_row(rows[side], slot)
        return rows

    def entry(self, s: int, t: int) -> tuple[float, float]:  # noqa: D102
        entries = [0.0, 0.0]
        for side, product in self._products:
            entries[side] += product.entry(s, t)
        return entries[0], entries[1]

    def merge(self, s: int, t: int) -> None:  # noqa: D102
        for _, product in self._products:
            product.merge(s, t)

    def pack(self, slots: NDArray[np.int64], new_slot: NDArray[np.int64]) -> None:  # noqa: D102
        for _, product in self._products:
            product.pack(slots, new_slot)
        self.size = len(slots)


def bytes_of_blocks(n_words: int, budget: float = np.inf) -> int:
    """Size of the blocks of rows of A and B in which all rows are scanned."""
    rows = min(_BLOCK_BYTES, budget // 2) // (8 * n_words)
    return int(2 * 8 * n_words * min(max(rows, _BLOCK_ROWS), n_words))


def _advice(n_words: int, limit: int | None) -> str:
    need = bytes_of_pairs(n_words)
    dense = f"use store='dense', which takes {readable_size(need)}, or " if limit is None or need <= limit else ""
    return f"{in_python(dense)}merge fewer words, for example after dropping the rarest ones"
