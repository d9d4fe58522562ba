"""The items of an index: blocks of up to 65,536, each an inverted index or dense rows, whichever suits its data.

Both give the same keys to the last bit. Arrays are read-only: they may lie in a mapped file, and compiled code is made
for such arrays alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.threads import map_in_order, one_blas_thread, run_over_ranges
from bagwise.errors import BagwiseError
from bagwise.retrieval import _plain as plain
from bagwise.retrieval._plain import BLOCK_ITEMS
from bagwise.retrieval.histograms import Metric, Queries

_Keys = NDArray[np.float64]
_Items = NDArray[np.int64]
# Rows with a larger fraction of non-zeros are kept dense: it is then faster to look at all words.
_DENSE_FRACTION = 0.4
# Queries of one task of a thread.
_INVERTED_QUERIES = 16
_DENSE_QUERIES = 256
# Numbers of one task: of products between queries and dense rows, and of the queries as dense rows.
_DENSE_NUMBERS = 1 << 22
# Rounding of float32, and one percent more for rounding of the bounds themselves.
_ROUNDING = 1.01 * 2.0**-24
# Results of all blocks that are held at once, and queries that are searched at once.
_RESULTS = 1 << 22
_MOST_QUERIES = 4096
# Words whose lists are gone through without compiled code.
_FEW_WORDS = 8


def _kernels() -> ModuleType:
    """Import compiled code, which takes long to load and which searches for a few queries do without."""
    return importlib.import_module("bagwise.retrieval._kernels")


@dataclass(frozen=True)
class _Arrays:
    """Read-only arrays of a block, of which `totals` has one number per item."""

    totals: NDArray[np.float64]

    def __post_init__(self) -> None:
        for array in self._arrays():
            array.flags.writeable = False

    def _arrays(self) -> list[NDArray[Any]]:
        return [getattr(self, field.name) for field in fields(self)]

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def n_bytes(self) -> int:
        """Bytes in memory, or in a file."""
        return sum(array.nbytes for array in self._arrays())


@dataclass(frozen=True)
class InvertedBlock(_Arrays):
    """An inverted index: for every word the items that have it."""

    starts: NDArray[np.int64]  # where the list of each word begins, and where the last ends
    items: NDArray[np.uint16]  # of one list after the other, rising in each
    values: NDArray[np.float32]

    @property
    def n_queries(self) -> int:
        """Queries that should be searched together."""
        return _INVERTED_QUERIES

    @property
    def _lists(self) -> tuple[NDArray[Any], ...]:
        return self.starts, self.items, self.values, self.totals

    def search(self, queries: Queries, first: int, out_keys: _Keys, out_items: _Items) -> None:
        """Find the nearest items of the queries from `first` on, in order; as many as the results have columns."""
        words = queries.words[queries.starts[first] : queries.starts[first + len(out_keys)]]
        if plain.are_few(len(out_keys), int((self.starts[words + 1] - self.starts[words]).sum())):

            def list_of(word: int) -> tuple[Any, NDArray[np.float32]]:
                own = slice(self.starts[word], self.starts[word + 1])
                return self.items[own], self.values[own]

            plain.search(queries.metric.kind, queries.arrays, list_of, self.totals, first, out_keys, out_items)
            return
        _kernels().search_lists(queries.metric.kind, queries.arrays, self._lists, first, out_keys, out_items)

    def keys(self, queries: Queries, first: int, bounds: _Items, chosen: _Items, out: _Keys) -> None:
        """Compare each query from `first` on with items chosen for it, ``chosen[bounds[i, 0]:bounds[i, 1]]``."""
        _kernels().keys_from_lists(queries.metric.kind, queries.arrays, self._lists, first, bounds, chosen, out)

    def row(self, item: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Give the words of one item and their values; all lists are looked through."""
        places = np.flatnonzero(self.items == item)
        return np.searchsorted(self.starts, places, side="right") - 1, self.values[places]

    def values_of(self, words: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Give the values of some words in some items, shape (n_items, n_words)."""
        found = np.zeros((len(items), len(words)))
        for column, word in enumerate(words.tolist()):
            own = self.items[self.starts[word] : self.starts[word + 1]]
            places = np.minimum(np.searchsorted(own, items), max(len(own) - 1, 0))
            if len(own):
                values = self.values[self.starts[word] : self.starts[word + 1]]
                found[:, column] = np.where(own[places] == items, values[places], 0)
        return found

    def items_with(self, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which items have at least one of these words."""
        found = np.zeros(BLOCK_ITEMS, np.bool_)
        if len(words) > _FEW_WORDS:
            _kernels().mark_items(self.starts, self.items, words, found)
        else:
            for word in words.tolist():
                found[self.items[self.starts[word] : self.starts[word + 1]]] = True
        return found[: len(self)]

    def group_sums(self, members: NDArray[np.int64], ends: NDArray[np.int64], squared: bool) -> sp.csr_array:
        """Sum the words of each group in every item, see `bagwise.retrieval._kernels.group_sums_from_lists`."""
        lengths = np.concatenate([[0], np.cumsum(np.diff(self.starts)[members])])[ends]
        room = int(np.minimum(np.diff(lengths, prepend=0), len(self)).sum())
        items, values, found = np.empty(room, np.int32), np.empty(room), np.zeros(len(ends) + 1, np.int64)
        if len(self.items) and int(self.items.max()) >= len(self):  # from a file that was mapped, not read
            raise BagwiseError(f"The index is damaged: an inverted list names item {self.items.max()} of {len(self)}.")
        lists = self.starts, self.items, self.values
        _kernels().group_sums_from_lists(lists, members, ends, squared, items, values, found[1:])
        columns = sp.csc_array((values[: found[-1]], items[: found[-1]], found), shape=(len(self), len(ends)))
        return sp.csr_array(columns.tocsr())

    def add_group_moments(self, *arguments: Any) -> None:
        """Add up features of groups, see `bagwise.retrieval._kernels.group_moments_from_lists`."""
        _kernels().group_moments_from_lists((self.starts, self.items, self.values), *arguments)

    def rows(self) -> sp.csr_array:
        """Give the items as CSR rows."""
        n_words = np.bincount(self.items, minlength=len(self))
        if len(n_words) > len(self):  # from a file that was mapped, not read
            raise BagwiseError(f"The index is damaged: an inverted list names item {len(n_words) - 1} of {len(self)}.")
        row_starts = np.concatenate([[0], np.cumsum(n_words)])
        words, values = np.empty(len(self.items), dtype=np.int32), np.empty(len(self.items), dtype=np.float32)
        _kernels().transpose(self.starts, self.items, self.values, row_starts, words, values)
        return sp.csr_array((values, words, row_starts), shape=(len(self), len(self.starts) - 1))


@dataclass(frozen=True)
class DenseBlock(_Arrays):
    """Items as rows of a dense matrix."""

    values: NDArray[np.float32]

    @property
    def n_queries(self) -> int:
        """Queries that should be searched together."""
        return int(np.clip(_DENSE_NUMBERS // max(self.values.shape), 1, _DENSE_QUERIES))

    def search(self, queries: Queries, first: int, out_keys: _Keys, out_items: _Items) -> None:
        """Do what `InvertedBlock.search` does.

        All pairs are compared in float32, by BLAS where the metric is a product. Those that can be among the nearest,
        by a bound on the rounding errors, are compared in float64.
        """
        kind, n_words = queries.metric.kind, queries.starts[first + len(out_keys)] - queries.starts[first]
        if plain.are_few(len(out_keys), int(n_words) * len(self)):

            def list_of(word: int) -> tuple[Any, NDArray[np.float32]]:
                return slice(len(self)), self.values[:, word]

            plain.search(kind, queries.arrays, list_of, self.totals, first, out_keys, out_items)
            return
        kernels, dense = _kernels(), queries.dense(first, first + len(out_keys))
        if queries.metric.power == 2:
            with np.errstate(over="ignore", invalid="ignore"):
                about = dense @ self.values.T  # what is not finite is compared in float64
        else:
            about = np.empty((len(dense), len(self)), dtype=np.float32)
            kernels.screen_rows(kind, dense, self.values, about)
        # bound of the error of a float32 sum of products, in any order, relative to the sum of their sizes
        error = (dense.shape[1] + 8) * _ROUNDING
        relative = error / (1 - error) if error < 0.5 else float("inf")
        kernels.search_screened(
            kind, about, relative, queries.arrays, self.values, self.totals, first, out_keys, out_items
        )

    def keys(self, queries: Queries, first: int, bounds: _Items, chosen: _Items, out: _Keys) -> None:
        """Do what `InvertedBlock.keys` does."""
        kind = queries.metric.kind
        _kernels().keys_from_rows(kind, queries.arrays, self.values, self.totals, first, bounds, chosen, out)

    def row(self, item: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Do what `InvertedBlock.row` does."""
        words = np.flatnonzero(self.values[item])
        return words, self.values[item, words]

    def values_of(self, words: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Do what `InvertedBlock.values_of` does."""
        return self.values[np.ix_(items, words)].astype(np.float64)

    def items_with(self, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Do what `InvertedBlock.items_with` does."""
        return (self.values[:, words] != 0).any(axis=1)

    def add_group_moments(self, *arguments: Any) -> None:
        """Do what `InvertedBlock.add_group_moments` does."""
        _kernels().group_moments_from_rows(self.values, *arguments)

    def rows(self) -> NDArray[np.float32]:
        """Give the items as they are."""
        return self.values


Block = InvertedBlock | DenseBlock


def make_block(parts: list[Any], metric: Metric) -> Block:
    """Put prepared rows, dense or CSR, into one block."""
    n_items, n_words = sum(part.shape[0] for part in parts), parts[0].shape[1]
    n_values = sum(part.nnz if sp.issparse(part) else np.count_nonzero(part) for part in parts)
    if n_values > _DENSE_FRACTION * n_items * n_words:
        values = np.concatenate([part.toarray() if sp.issparse(part) else part for part in parts])
        return DenseBlock(metric.totals(values), values)
    rows = sp.csr_array(parts[0] if len(parts) == 1 else sp.vstack([sp.csr_array(part) for part in parts]))
    words = rows.indices.astype(np.int32, copy=False)
    starts = np.zeros(n_words + 1, dtype=np.int64)
    kernels = _kernels()
    kernels.count_words(words, starts)
    items, values = np.empty(len(words), dtype=np.uint16), np.empty(len(words), dtype=np.float32)
    kernels.transpose(rows.indptr.astype(np.int64), words, rows.data, starts, items, values)
    return InvertedBlock(metric.totals(rows), starts, items, values)


@dataclass(frozen=True)
class _Piece:
    """A block, or rows that are to become one. `kept` marks the items that were not removed; None means all."""

    content: Any
    kept: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return self.content_items if self.kept is None else int(np.count_nonzero(self.kept))

    @property
    def content_items(self) -> int:
        return len(self.content) if self.is_block else self.content.shape[0]

    @property
    def is_block(self) -> bool:
        return isinstance(self.content, (InvertedBlock, DenseBlock))

    @property
    def is_settled(self) -> bool:
        return self.is_block and self.kept is None

    def rows(self) -> Any:
        """Give the items that were not removed, dense or CSR."""
        rows = self.content.rows() if self.is_block else self.content
        return rows if self.kept is None else rows[np.flatnonzero(self.kept)]

    def without(self, items: NDArray[np.int64]) -> _Piece:
        """Remove items, numbered among those that were not removed before."""
        kept = np.ones(self.content_items, dtype=bool) if self.kept is None else self.kept.copy()
        kept[np.flatnonzero(kept)[items]] = False
        return _Piece(self.content, kept)


class Store:
    """Items of an index, numbered in the order of adding.

    Blocks are updated at the next search, and only those that changed, with small ones beside them. The list of pieces
    is replaced, never changed, so that several threads may search.
    """

    def __init__(self, metric: Metric, n_words: int, blocks: Iterable[Block] = ()) -> None:
        self.metric = metric
        self.n_words = n_words
        self._pieces = [_Piece(block) for block in blocks]

    def __len__(self) -> int:
        return sum(len(piece) for piece in self._pieces)

    def add(self, chunks: Iterable[Any], n_threads: int) -> None:
        """Append prepared rows; all of them, or none if an exception is raised."""
        pieces = self._pieces
        for rows in chunks:
            pieces = [*pieces, _Piece(rows)]
            if sum(len(piece) for piece in pieces if not piece.is_block) >= BLOCK_ITEMS:
                pieces = self._regrouped(pieces, n_threads)
        self._pieces = pieces

    def remove(self, items: NDArray[np.int64]) -> None:
        """Remove items by their numbers, given in rising order; later items are renumbered."""
        pieces, first = [], 0
        for piece in self._pieces:
            last = first + len(piece)
            low, high = np.searchsorted(items, (first, last))
            pieces.append(piece.without(items[low:high] - first) if low < high else piece)
            first = last
        self._pieces = pieces

    def blocks(self, n_threads: int = 1) -> list[Block]:
        """Update the blocks and give all of them."""
        if not all(piece.is_settled for piece in self._pieces):
            self._pieces = self._regrouped(self._pieces, n_threads)
        return [piece.content for piece in self._pieces]

    def _regrouped(self, pieces: list[_Piece], n_threads: int) -> list[_Piece]:
        def settle(group: list[_Piece]) -> _Piece:
            if len(group) == 1 and group[0].is_settled:
                return group[0]
            return _Piece(make_block([piece.rows() for piece in group], self.metric))

        return list(map_in_order(settle, _groups(pieces), n_threads))

    def search(self, queries: Queries, k: int, n_threads: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Find the k nearest items of each query: their keys and numbers, nearest first, then in order of adding.

        There must be at least k items.
        """
        blocks = self.blocks(n_threads)
        step = int(np.clip(_RESULTS // max(sum(min(k, len(block)) for block in blocks), 1), 1, _MOST_QUERIES))
        keys = np.empty((len(queries), k))
        items = np.empty((len(queries), k), dtype=np.int64)
        with one_blas_thread():
            for first in range(0, len(queries), step):
                part = slice(first, min(first + step, len(queries)))
                keys[part], items[part] = self._search_some(blocks, queries, part, k, n_threads)
        return keys, items

    def _search_some(
        self, blocks: list[Block], queries: Queries, part: slice, k: int, n_threads: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        n_queries = part.stop - part.start
        found = [
            (np.empty((n_queries, min(k, len(block)))), np.empty((n_queries, min(k, len(block))), dtype=np.int64))
            for block in blocks
        ]
        tasks = [(b, low) for b, block in enumerate(blocks) for low in range(0, n_queries, block.n_queries)]

        def run(start: int, stop: int) -> None:
            for b, low in tasks[start:stop]:
                rows = slice(low, low + blocks[b].n_queries)
                blocks[b].search(queries, part.start + low, found[b][0][rows], found[b][1][rows])

        run_over_ranges(run, len(tasks), n_threads, size=1)
        firsts = np.cumsum([0, *(len(block) for block in blocks)])
        keys = np.concatenate([keys for keys, _ in found], axis=1)
        items = np.concatenate([items + first for (_, items), first in zip(found, firsts, strict=False)], axis=1)
        # blocks come in the order of adding, and so do equally near items in each of them
        order = np.argsort(keys, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(keys, order, axis=1), np.take_along_axis(items, order, axis=1)

    def keys(self, queries: Queries, items: NDArray[np.int64], n_threads: int) -> NDArray[np.float64]:
        """Compare each query with the items in its row, in rising order; -1, for none, is infinitely far."""
        blocks = self.blocks(n_threads)
        firsts = np.cumsum([0, *(len(block) for block in blocks)])
        n_queries, width = items.shape
        keys = np.full(items.shape, np.inf)
        # the items of block b in row i are those from edges[i, b] to edges[i, b + 1]
        edges = np.array([np.searchsorted(row, firsts) for row in items]).reshape(n_queries, len(firsts))
        tasks = [(b, low) for low in range(0, n_queries, _INVERTED_QUERIES) for b in range(len(blocks))]

        def run(start: int, stop: int) -> None:
            for b, low in tasks[start:stop]:
                rows = slice(low, low + _INVERTED_QUERIES)
                chosen = (items[rows] - firsts[b]).ravel()
                bounds = edges[rows, b : b + 2] + width * np.arange(len(items[rows]))[:, np.newaxis]
                blocks[b].keys(queries, low, bounds, chosen, keys[rows].reshape(-1))

        run_over_ranges(run, len(tasks), n_threads, size=1)
        return keys

    def chunks(self, first: int, n_rows: int) -> Iterator[Any]:
        """Yield the items from number `first` on as dense or CSR rows, up to `n_rows` at a time."""
        begin = 0
        for block in self.blocks():
            end = begin + len(block)
            if end > first:
                rows = block.rows()
                for low in range(max(first - begin, 0), len(block), n_rows):
                    yield rows[low : low + n_rows]
            begin = end


def _groups(pieces: list[_Piece]) -> Iterator[list[_Piece]]:
    """Gather pieces that become one block. Rows fill a block to its end; existing blocks are not split."""
    group: list[_Piece] = []
    space = BLOCK_ITEMS
    for piece in pieces:
        if len(piece) == 0:
            continue
        if piece.is_block:
            if len(piece) > space:
                yield group
                group, space = [], BLOCK_ITEMS
            group.append(piece)
            space -= len(piece)
            continue
        rows, low = piece.rows(), 0
        while low < rows.shape[0]:
            if space == 0:
                yield group
                group, space = [], BLOCK_ITEMS
            part = rows[low : low + space]
            group.append(_Piece(part))
            low, space = low + space, space - part.shape[0]
    if group:
        yield group
