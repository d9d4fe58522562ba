"""The items of an index in immutable blocks: how they come and go, and how searches go over all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.backends import Retrieval
from bagwise._utils.threads import map_in_order, one_blas_thread, run_over_ranges
from bagwise.retrieval.blocks import Block, DenseBlock, InvertedBlock, make_block, stacked
from bagwise.retrieval.histograms import BLOCK_ITEMS, Metric, Queries

# Queries whose chosen items are compared in one task of a thread.
_CHOSEN_QUERIES = 16
# Results of all blocks that are held at once, and queries that are searched at once.
_RESULTS = 1 << 22
_MOST_QUERIES = 4096
# Neighbours become one block if they fit into one, and the earlier is at most so many times as large.
_GROWTH = 2


@dataclass(frozen=True, eq=False)
class Store:
    """Items in the order of adding, numbered from 0, in blocks that never change: copies share them."""

    metric: Metric
    n_words: int
    blocks: tuple[Block, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.blocks))

    def changed(self, new: list[Any], kept: NDArray[np.bool_] | None = None, n_threads: int = 1) -> Store:
        """Return a store with further items, given as prepared rows, and without some.

        `kept` tells which of the items there are, and of the new ones after them, stay. Blocks that lose items are
        written anew. New rows fill the last block that is not full, or become blocks; two neighbours become one if
        both fit and the earlier is at most twice as large. So of items that come one by one each is written O(log n)
        times, and blocks are few.
        """
        blocks, rows = self.blocks, stacked(new) if new else None
        if kept is not None:
            ends = np.cumsum([len(block) for block in blocks], dtype=np.int64)
            parts = zip(blocks, np.split(kept, ends), strict=False)
            blocks = tuple(block if part.all() else block.taken(part) for block, part in parts if part.any())
            rows = None if rows is None else rows[np.flatnonzero(kept[len(self) :])]
        contents = [*blocks, *_slices(rows, len(blocks[-1]) if blocks else 0)]
        groups: list[list[Any]] = []
        for content in contents:
            group = [content]
            while groups and _join(_total(groups[-1]), _total(group)):
                group = groups.pop() + group
            groups.append(group)

        def write(group: list[Any]) -> Block:
            if len(group) == 1 and _is_block(group[0]):
                return group[0]
            return make_block([one.rows() if _is_block(one) else one for one in group], self.metric)

        return replace(self, blocks=tuple(map_in_order(write, groups, n_threads)))

    def spilled(self, folder: Path) -> Store:
        """Return a store whose full blocks are mapped from files of a folder."""
        return replace(self, blocks=tuple(one if len(one) < BLOCK_ITEMS else one.mapped(folder) for one in self.blocks))

    def search(
        self, queries: Queries, k: int, n_threads: int, module: Retrieval
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Find the k nearest items of each query: their keys and numbers, nearest first, then in order of adding.

        There must be at least k items. Rows of dense blocks are compared by `module`.
        """
        step = int(np.clip(_RESULTS // max(sum(min(k, len(block)) for block in self.blocks), 1), 1, _MOST_QUERIES))
        keys = np.empty((len(queries), k))
        items = np.empty((len(queries), k), dtype=np.int64)
        with one_blas_thread():
            for first in range(0, len(queries), step):
                part = slice(first, min(first + step, len(queries)))
                keys[part], items[part] = self._search_some(queries, part, k, n_threads, module)
        return keys, items

    def _search_some(
        self, queries: Queries, part: slice, k: int, n_threads: int, module: Retrieval
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        n_queries, n_found = part.stop - part.start, [min(k, len(block)) for block in self.blocks]
        keys = [np.empty((n_queries, n)) for n in n_found]
        items = [np.empty((n_queries, n), dtype=np.int64) for n in n_found]
        steps = [block.n_queries(module) for block in self.blocks]
        tasks = [(b, low, low + step) for b, step in enumerate(steps) for low in range(0, n_queries, step)]

        def run(start: int, stop: int) -> None:
            for b, low, high in tasks[start:stop]:
                self.blocks[b].search(module, queries, part.start + low, keys[b][low:high], items[b][low:high])

        run_over_ranges(run, len(tasks), module.n_threads(n_threads), size=1)
        firsts = accumulate(map(len, self.blocks[:-1]), initial=0)
        every, numbers = np.hstack(keys), np.hstack([one + first for one, first in zip(items, firsts, strict=True)])
        # blocks come in the order of adding, and so do equally near items in each of them
        order = np.argsort(every, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(every, order, axis=1), np.take_along_axis(numbers, order, axis=1)

    def keys(self, queries: Queries, items: NDArray[np.int64], n_threads: int) -> NDArray[np.float64]:
        """Compare each query with the items in its row, rising numbers; -1, for none, is infinitely far."""
        n_queries, width = items.shape
        keys = np.full(items.shape, np.inf)
        # the items of block b in row i are those from edges[i, b] to edges[i, b + 1]
        firsts = list(accumulate(map(len, self.blocks), initial=0))
        edges = np.array([np.searchsorted(row, firsts) for row in items]).reshape(n_queries, len(firsts))
        tasks = [(b, low) for low in range(0, n_queries, _CHOSEN_QUERIES) for b in range(len(self.blocks))]

        def run(start: int, stop: int) -> None:
            for b, low in tasks[start:stop]:
                rows = slice(low, low + _CHOSEN_QUERIES)
                chosen = items[rows].ravel() - firsts[b]
                bounds = edges[rows, b : b + 2] + width * np.arange(len(items[rows]))[:, np.newaxis]
                self.blocks[b].keys(queries, low, bounds, chosen, keys[rows].reshape(-1))

        run_over_ranges(run, len(tasks), n_threads, size=1)
        return keys

    def chunks(self, first: int, n_rows: int) -> Iterator[Any]:
        """Yield dense or CSR rows of the items from number `first` on, up to `n_rows` at a time."""
        for block in self.blocks:
            if first < len(block):
                rows = block.rows()
                for low in range(first, len(block), n_rows):
                    yield rows[low : low + n_rows]
            first = max(first - len(block), 0)


def _slices(rows: Any, n_last: int) -> list[Any]:
    """Cut rows into blocks; the first of them fill a block of `n_last` items, if it is to be joined with them."""
    if rows is None or not rows.shape[0]:
        return []
    n = rows.shape[0]
    first = BLOCK_ITEMS - n_last if n_last <= _GROWTH * min(n, BLOCK_ITEMS - n_last) else BLOCK_ITEMS
    cuts = [0, *range(min(first, n), n, BLOCK_ITEMS), n]
    return [rows[low:high] for low, high in pairwise(cuts) if low < high]


def _join(earlier: int, later: int) -> bool:
    return earlier <= _GROWTH * later and earlier + later <= BLOCK_ITEMS


def _total(group: list[Any]) -> int:
    return sum(len(one) if _is_block(one) else one.shape[0] for one in group)


def _is_block(content: Any) -> bool:
    return isinstance(content, (InvertedBlock, DenseBlock))
