"""The items of an index in blocks: how they come and go, and how searches go over all of them."""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.threads import map_in_order, one_blas_thread, run_over_ranges
from bagwise.retrieval._plain import BLOCK_ITEMS
from bagwise.retrieval.blocks import Block, DenseBlock, InvertedBlock, make_block, stacked
from bagwise.retrieval.histograms import Metric, Queries

# Queries whose chosen items are compared in one task of a thread.
_CHOSEN_QUERIES = 16
# Products that a device computes at a time.
_DEVICE_NUMBERS = 1 << 26
# Results of all blocks that are held at once, and queries that are searched at once.
_RESULTS = 1 << 22
_MOST_QUERIES = 4096
# So many pieces of fewer rows than this are put together.
_SMALL = 256
# A block is written anew when a larger fraction was removed; neighbours join up to this ratio of their sizes.
_REMOVED, _GROWTH = 0.25, 2


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
            packed = [_Piece.of(stacked([piece.rows() for piece in small]), _serials(small))] if small else []
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
        tasks = [(b, low) for low in range(0, n_queries, _CHOSEN_QUERIES) for b in range(len(pieces))]

        def run(start: int, stop: int) -> None:
            for b, low in tasks[start:stop]:
                rows = slice(low, low + _CHOSEN_QUERIES)
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


def _join(earlier: int, later: int) -> bool:
    """Whether two neighbours of these sizes are to become one block."""
    return earlier <= _GROWTH * later and earlier + later <= BLOCK_ITEMS
