"""The items of an index: blocks of up to 65,536, each an inverted index or dense rows, whichever suits its data.

Both give the same keys to the last bit. Arrays are read-only: they may lie in a mapped file, and compiled code is made
for such arrays alone.
"""

from __future__ import annotations

import copy
import importlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, device_module, to_device
from bagwise._utils.threads import map_in_order, one_blas_thread, run_over_ranges
from bagwise.errors import BagwiseError
from bagwise.retrieval import _plain as plain
from bagwise.retrieval._plain import BLOCK_ITEMS
from bagwise.retrieval.histograms import Metric, Queries
from bagwise.retrieval.screening import possible_items, relative_error

_Keys = NDArray[np.float64]
_Items = NDArray[np.int64]
# Rows with a larger fraction of non-zeros are kept dense: it is then faster to look at all words.
_DENSE_FRACTION = 0.4
# Queries of one task of a thread.
_INVERTED_QUERIES = 16
_DENSE_QUERIES = 256
# Numbers of one task: of products between queries and dense rows, and of the queries as dense rows.
_DENSE_NUMBERS = 1 << 22
# Products that a device computes at a time.
_DEVICE_NUMBERS = 1 << 26
# Results of all blocks that are held at once, and queries that are searched at once.
_RESULTS = 1 << 22
_MOST_QUERIES = 4096
# Words whose lists are gone through without compiled code.
_FEW_WORDS = 8
# So many pieces of fewer rows than this are put together.
_SMALL = 256
# A block is written anew when a larger fraction was removed; neighbours join up to this ratio of their sizes.
_REMOVED, _GROWTH = 0.25, 2


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

    def search(self, queries: Queries, first: int, out_keys: _Keys, out_items: _Items, removed: _Items) -> None:
        """Find the nearest items of the queries from `first` on, in order; as many as the results have columns.

        Those that were removed, given in rising order, are left out; so many others there must be.
        """
        words = queries.words[queries.starts[first] : queries.starts[first + len(out_keys)]]
        if plain.are_few(len(out_keys), int((self.starts[words + 1] - self.starts[words]).sum())):

            def list_of(word: int) -> tuple[Any, NDArray[np.float32]]:
                own = slice(self.starts[word], self.starts[word + 1])
                return self.items[own], self.values[own]

            about = queries.metric.kind, queries.arrays
            plain.search(*about, list_of, self.totals, first, out_keys, out_items, removed)
            return
        _kernels().search_lists(queries.metric.kind, queries.arrays, self._lists, first, out_keys, out_items, removed)

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

    def search(self, queries: Queries, first: int, out_keys: _Keys, out_items: _Items, removed: _Items) -> None:
        """Do what `InvertedBlock.search` does.

        All pairs are compared in float32, by BLAS where the metric is a product. Those that can be among the nearest,
        by a bound on the rounding errors, are compared in float64.
        """
        kind, n_words = queries.metric.kind, queries.starts[first + len(out_keys)] - queries.starts[first]
        if plain.are_few(len(out_keys), int(n_words) * len(self)):

            def list_of(word: int) -> tuple[Any, NDArray[np.float32]]:
                return slice(len(self)), self.values[:, word]

            plain.search(kind, queries.arrays, list_of, self.totals, first, out_keys, out_items, removed)
            return
        kernels, dense = _kernels(), queries.dense(first, first + len(out_keys))
        if queries.metric.power == 2:
            with np.errstate(over="ignore", invalid="ignore"):
                about = dense @ self.values.T  # what is not finite is compared in float64
        else:
            about = np.empty((len(dense), len(self)), dtype=np.float32)
            kernels.screen_rows(kind, dense, self.values, about)
        relative = relative_error(dense.shape[1])
        kernels.search_screened(
            kind, about, relative, queries.arrays, self.values, self.totals, first, out_keys, out_items, removed
        )

    @cached_property
    def _on_device(self) -> tuple[Any, Any]:
        """Values and totals on a CUDA device, as long as the block lives."""
        xp = device_module("cuda")
        return to_device(self.values, xp), to_device(self.totals, xp)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_on_device"}

    def search_by(
        self, xp: Any, queries: Queries, first: int, out_keys: _Keys, out_items: _Items, removed: _Items
    ) -> None:
        """Do what `search` does, with all pairs compared in float32 by an array module; the same to the last bit."""
        last, k = first + len(out_keys), out_keys.shape[1]
        if xp is not np:
            need = 50 * len(out_keys) * len(self) + (0 if "_on_device" in vars(self) else self.n_bytes)
            check_device_memory(need, f"{len(self)} items, and {len(out_keys)} queries")
        rows, totals = (self.values, self.totals) if xp is np else self._on_device
        dense, query_totals = to_device(queries.dense(first, last), xp), to_device(queries.totals[first:last], xp)
        bounds, chosen = possible_items(xp, queries.metric.kind, dense, rows, query_totals, totals, k, removed)
        keys = np.empty(len(chosen))
        self.keys(queries, first, bounds, chosen, keys)
        # of equally near items those added first
        order = np.lexsort((chosen, keys, np.repeat(np.arange(len(bounds)), bounds[:, 1] - bounds[:, 0])))
        nearest = order[bounds[:, :1] + np.arange(k)]
        out_keys[:], out_items[:] = keys[nearest], chosen[nearest]

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
    rows = sp.csr_array(parts[0] if len(parts) == 1 else _stacked(parts))
    words = rows.indices.astype(np.int32, copy=False)
    starts = np.zeros(n_words + 1, dtype=np.int64)
    kernels = _kernels()
    kernels.count_words(words, starts)
    items, values = np.empty(len(words), dtype=np.uint16), np.empty(len(words), dtype=np.float32)
    kernels.transpose(rows.indptr.astype(np.int64), words, rows.data, starts, items, values)
    return InvertedBlock(metric.totals(rows), starts, items, values)


@dataclass(frozen=True, eq=False)
class _Piece:
    """A block, or rows that are to become one, with the serials of its items and marks of those that were removed."""

    content: Any
    first: int  # serial of the first item
    serials: NDArray[np.int64] | None = None  # of all items, rising; None: they follow each other
    kept: NDArray[np.bool_] | None = None  # items that were not removed; None: all
    n_removed: int = 0

    @classmethod
    def of(cls, content: Any, serials: NDArray[np.int64]) -> _Piece:
        """Make a piece of at least one item, all of them kept."""
        first = int(serials[0])
        return cls(content, first, None if int(serials[-1]) - first == len(serials) - 1 else serials)

    def __len__(self) -> int:
        return self.n_held - self.n_removed

    @property
    def n_held(self) -> int:
        """Number of items, with removed ones."""
        return len(self.content) if self.is_block else self.content.shape[0]

    @property
    def last(self) -> int:
        """Serial of the last item, which may have been removed."""
        return self.first + self.n_held - 1 if self.serials is None else int(self.serials[-1])

    @property
    def is_block(self) -> bool:
        return isinstance(self.content, (InvertedBlock, DenseBlock))

    @cached_property
    def removed(self) -> NDArray[np.int64]:
        """The places of removed items, rising."""
        places = np.empty(0, dtype=np.int64) if self.kept is None else np.flatnonzero(~self.kept)
        places.flags.writeable = False
        return places

    def serials_at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the serials of the items at some places."""
        return places + self.first if self.serials is None else self.serials[places]

    def places_of(self, serials: NDArray[np.int64]) -> NDArray[np.int64]:
        """Give the places of items by their serials."""
        return serials - self.first if self.serials is None else np.searchsorted(self.serials, serials)

    def kept_serials(self) -> NDArray[np.int64]:
        """Give the serials of the items that were not removed."""
        return self.serials_at(np.arange(self.n_held) if self.kept is None else np.flatnonzero(self.kept))

    def rows(self) -> Any:
        """Give the items that were not removed, dense or CSR."""
        rows = self.content.rows() if self.is_block else self.content
        return rows if self.kept is None else rows[np.flatnonzero(self.kept)]

    def without(self, serials: NDArray[np.int64]) -> _Piece:
        """Mark items as removed."""
        kept = np.ones(self.n_held, dtype=bool) if self.kept is None else self.kept.copy()
        kept[self.places_of(serials)] = False
        return replace(self, kept=kept, n_removed=self.n_removed + len(serials))


class _Pieces(NamedTuple):
    """All pieces in the order of adding; replaced as a whole, never changed."""

    blocks: list[_Piece]
    loose: list[_Piece]  # rows that no block has yet
    n_loose: int = 0  # these rows, with removed ones
    n_small: int = 0  # pieces of few rows, at the end


class Store:
    """Items of an index in the order of adding. Each has a serial: 0, 1, … in this order, never given again.

    Rows that are added stay as they are until they fill a block or a search comes. Removed items are marked, and
    searches leave them out. A block is written anew when more than a quarter of it was removed, and two neighbours
    become one if they fit into a block and the earlier is at most twice as large. So of n items that come and go one by
    one each is written O(log n) times, and blocks are few: from one to the next sizes fall by half, or both would not
    fit into one.

    Pieces are replaced, never changed, so that several threads may search, and copies share them.
    """

    def __init__(self, metric: Metric, n_words: int, blocks: Iterable[Block] = ()) -> None:
        self.metric = metric
        self.n_words = n_words
        held: list[_Piece] = []
        self.next_serial = 0  # of the next item that is added
        for block in blocks:
            held.append(_Piece(block, self.next_serial))
            self.next_serial += len(block)
        self._pieces = _Pieces(held, [])

    def __len__(self) -> int:
        return sum(len(piece) for piece in self._all())

    def _all(self) -> list[_Piece]:
        pieces = self._pieces
        return [*pieces.blocks, *pieces.loose]

    @property
    def n_pieces(self) -> int:
        """Number of blocks, and of sets of rows that no block has yet."""
        return len(self._all())

    def copy(self) -> Store:
        """Give a store of the same items, which shares their memory."""
        return copy.copy(self)

    def add(self, chunks: Iterable[Any], n_threads: int) -> None:
        """Append prepared rows; all of them, or none if an exception is raised."""
        pieces, serial = self._pieces, self.next_serial
        for rows in chunks:
            if rows.shape[0]:
                pieces = self._appended(pieces, _Piece(rows, serial), n_threads)
                serial += rows.shape[0]
        self._pieces, self.next_serial = pieces, serial

    def _appended(self, pieces: _Pieces, new: _Piece, n_threads: int) -> _Pieces:
        loose, n_loose = [*pieces.loose, new], pieces.n_loose + len(new)
        n_small = pieces.n_small + 1 if len(new) < _SMALL else 0
        if n_loose >= BLOCK_ITEMS:
            groups = list(_groups(loose))
            rest = groups.pop() if groups and _total(groups[-1]) < BLOCK_ITEMS else []
            return _Pieces([*pieces.blocks, *self._written(groups, n_threads)], rest, _total(rest))
        if n_small >= _SMALL:
            small = [piece for piece in loose[-n_small:] if len(piece)]
            packed = [_Piece.of(_stacked([piece.rows() for piece in small]), _serials(small))] if small else []
            loose, n_small = [*loose[:-n_small], *packed], 0
        return _Pieces(pieces.blocks, loose, n_loose, n_small)

    def remove(self, serials: NDArray[np.int64]) -> None:
        """Remove items by their serials, given in rising order; all of them, or none if an exception is raised."""
        blocks, loose, n_loose, n_small = self._pieces
        cut = int(np.searchsorted(serials, loose[0].first if loose else self.next_serial))
        blocks, touched = _without(blocks, serials[:cut])
        for number in reversed(touched):
            # later blocks may have become one with it
            if number < len(blocks) and blocks[number].n_removed > _REMOVED * blocks[number].n_held:
                blocks = self._rewritten(blocks, number, [blocks[number]])
        self._pieces = _Pieces(blocks, _without(loose, serials[cut:])[0], n_loose, n_small)

    def _rewritten(self, blocks: list[_Piece], number: int, group: list[_Piece]) -> list[_Piece]:
        """Write pieces in place of a block, or after the last, as one block with neighbours that are to join it."""
        total, low, high = _total(group), number, number + 1
        while total:
            if low and _join(len(blocks[low - 1]), total):
                low -= 1
                total += len(blocks[low])
            elif high < len(blocks) and _join(total, len(blocks[high])):
                total += len(blocks[high])
                high += 1
            else:
                break
        group = [*blocks[low:number], *group, *blocks[number + 1 : high]]
        return [*blocks[:low], *self._written([group] if total else [], 1), *blocks[high:]]

    def _written(self, groups: Iterable[list[_Piece]], n_threads: int) -> list[_Piece]:
        """Make a block of the items of each group that were not removed."""

        def write(group: list[_Piece]) -> _Piece:
            if len(group) == 1 and group[0].is_block and not group[0].n_removed:
                return group[0]
            group = [piece for piece in group if len(piece)]
            return _Piece.of(make_block([piece.rows() for piece in group], self.metric), _serials(group))

        return list(map_in_order(write, groups, n_threads))

    def _blocks(self, n_threads: int) -> list[_Piece]:
        """Put all rows into blocks, and give these; items in them may be marked as removed."""
        pieces = self._pieces
        if pieces.loose:
            groups = list(_groups(pieces.loose))
            blocks = [*pieces.blocks, *self._written(groups[:-1], n_threads)]
            for group in groups[-1:]:
                blocks = self._rewritten(blocks, len(blocks), group)
            self._pieces = pieces = _Pieces(blocks, [])
        return pieces.blocks

    def blocks(self, n_threads: int = 1) -> list[Block]:
        """Write blocks without removed items, as few as there can be without splitting one, and give all."""
        pieces = self._written(_groups(self._all()), n_threads)
        self._pieces = _Pieces(pieces, [])
        return [piece.content for piece in pieces]

    def search(
        self, queries: Queries, k: int, n_threads: int, xp: Any = np
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Find the k nearest items of each query: their keys and serials, nearest first, then in order of adding.

        There must be at least k items. Dense blocks are searched by the array module `xp`.
        """
        blocks = self._blocks(n_threads)
        step = int(np.clip(_RESULTS // max(sum(min(k, len(block)) for block in blocks), 1), 1, _MOST_QUERIES))
        keys = np.empty((len(queries), k))
        items = np.empty((len(queries), k), dtype=np.int64)
        with one_blas_thread():
            for first in range(0, len(queries), step):
                part = slice(first, min(first + step, len(queries)))
                keys[part], items[part] = self._search_some(blocks, queries, part, k, n_threads, xp)
        return keys, items

    def _search_some(
        self, pieces: list[_Piece], queries: Queries, part: slice, k: int, n_threads: int, xp: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        n_queries = part.stop - part.start
        found = [
            (np.empty((n_queries, min(k, len(piece)))), np.empty((n_queries, min(k, len(piece))), dtype=np.int64))
            for piece in pieces
        ]
        there = {b for b, piece in enumerate(pieces) if xp is not np and isinstance(piece.content, DenseBlock)}
        for b in sorted(there):
            block, step = pieces[b].content, max(_DEVICE_NUMBERS // pieces[b].n_held, 1)
            for low in range(0, n_queries, step):
                out = (array[low : low + step] for array in found[b])
                block.search_by(xp, queries, part.start + low, *out, pieces[b].removed)
        steps = {b: piece.content.n_queries for b, piece in enumerate(pieces) if b not in there}
        tasks = [(b, low) for b, step in steps.items() for low in range(0, n_queries, step)]

        def run(start: int, stop: int) -> None:
            for b, low in tasks[start:stop]:
                block, rows = pieces[b].content, slice(low, low + pieces[b].content.n_queries)
                block.search(queries, part.start + low, found[b][0][rows], found[b][1][rows], pieces[b].removed)

        run_over_ranges(run, len(tasks), n_threads, size=1)
        keys = np.concatenate([keys for keys, _ in found], axis=1)
        items = np.concatenate([piece.serials_at(held) for (_, held), piece in zip(found, pieces, strict=True)], axis=1)
        # blocks come in the order of adding, and so do equally near items in each of them
        order = np.argsort(keys, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(keys, order, axis=1), np.take_along_axis(items, order, axis=1)

    def keys(self, queries: Queries, items: NDArray[np.int64], n_threads: int) -> NDArray[np.float64]:
        """Compare each query with the items in its row, serials in rising order; -1, for none, is infinitely far."""
        pieces = self._blocks(n_threads)
        n_queries, width = items.shape
        keys = np.full(items.shape, np.inf)
        # the items of block b in row i are those from edges[i, b] to edges[i, b + 1]
        firsts = [*(piece.first for piece in pieces), self.next_serial]
        edges = np.array([np.searchsorted(row, firsts) for row in items]).reshape(n_queries, len(firsts))
        tasks = [(b, low) for low in range(0, n_queries, _INVERTED_QUERIES) for b in range(len(pieces))]

        def run(start: int, stop: int) -> None:
            for b, low in tasks[start:stop]:
                rows = slice(low, low + _INVERTED_QUERIES)
                chosen = pieces[b].places_of(items[rows].ravel())
                bounds = edges[rows, b : b + 2] + width * np.arange(len(items[rows]))[:, np.newaxis]
                pieces[b].content.keys(queries, low, bounds, chosen, keys[rows].reshape(-1))

        run_over_ranges(run, len(tasks), n_threads, size=1)
        return keys

    def chunks(self, after: int, n_rows: int) -> Iterator[tuple[Any, NDArray[np.int64]]]:
        """Yield dense or CSR rows and serials of the items with later serials, up to `n_rows` at a time."""
        for piece in self._all():
            if len(piece) and piece.last > after:
                rows, serials = piece.rows(), piece.kept_serials()
                for low in range(int(np.searchsorted(serials, after, side="right")), len(serials), n_rows):
                    yield rows[low : low + n_rows], serials[low : low + n_rows]


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
        rows, serials, low = piece.rows(), piece.kept_serials(), 0
        while low < len(serials):
            if space == 0:
                yield group
                group, space = [], BLOCK_ITEMS
            whole = low == 0 and len(serials) <= space
            part = slice(low, low + space)
            group.append(_Piece.of(rows if whole else rows[part], serials[part]))
            low, space = low + space, space - len(group[-1])
    if group:
        yield group


def _without(pieces: list[_Piece], serials: NDArray[np.int64]) -> tuple[list[_Piece], list[int]]:
    """Mark items as removed; give all pieces, and the numbers of those that had one of these items."""
    left, touched, low = pieces.copy(), [], 0
    while low < len(serials):
        number = bisect_right(left, serials[low], key=lambda piece: piece.first) - 1
        last = number == len(left) - 1
        high = len(serials) if last else int(np.searchsorted(serials, left[number + 1].first))
        left[number] = left[number].without(serials[low:high])
        touched.append(number)
        low = high
    return left, touched


def _total(pieces: list[_Piece]) -> int:
    return sum(len(piece) for piece in pieces)


def _serials(pieces: list[_Piece]) -> NDArray[np.int64]:
    return np.concatenate([piece.kept_serials() for piece in pieces])


def _stacked(parts: list[Any]) -> Any:
    """Put rows below each other: dense if all are, else CSR."""
    if not any(sp.issparse(part) for part in parts):
        return np.concatenate(parts)
    return sp.vstack([sp.csr_array(part) for part in parts], format="csr")


def _join(earlier: int, later: int) -> bool:
    """Whether two neighbours of these sizes are to become one block."""
    return earlier <= _GROWTH * later and earlier + later <= BLOCK_ITEMS
