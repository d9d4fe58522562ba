"""A block of up to 65,536 items of an index: inverted lists or dense rows, whichever suits its data.

Arrays are read-only: they may lie in a mapped file, and compiled code is made for such arrays alone.
"""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.backends import Retrieval
from bagwise.errors import BagwiseError
from bagwise.retrieval.histograms import BLOCK_ITEMS, Metric, Queries

__all__ = ["Block", "DenseBlock", "InvertedBlock", "make_block", "stacked"]

_Keys = NDArray[np.float64]
_Items = NDArray[np.int64]
# Rows with a larger fraction of non-zeros are kept dense: it is then faster to look at all words.
_DENSE_FRACTION = 0.4
# Queries of one task of a thread; numbers of rows that are computed at a time.
_INVERTED_QUERIES = 16
_DENSE_NUMBERS = 1 << 22
# Queries, and terms of their sums, that are few.
_FEW_QUERIES, _FEW_TERMS = 4, 1 << 20


def _kernels() -> ModuleType:
    """Import compiled code, which takes 0.3 s: far longer than a search for a few queries, which does without."""
    return importlib.import_module("bagwise.retrieval._kernels")


def _by_definition(metric: Metric, n_queries: int, n_terms: int) -> bool:
    """Whether to search by the definition of the metric rather than by compiled code."""
    return metric.kind is None or (n_queries <= _FEW_QUERIES and n_terms <= _FEW_TERMS)


def _search(
    queries: Queries,
    list_of: Callable[[int], tuple[Any, NDArray[Any]]],
    totals: NDArray[np.float64],
    first: int,
    out_keys: _Keys,
    out_items: _Items,
) -> None:
    """Do what `search_lists` does by the definition; `list_of` returns the items with a word, and its values."""
    metric = queries.metric
    for i in range(len(out_keys)):
        shared = np.zeros(BLOCK_ITEMS)
        span = slice(queries.starts[first + i], queries.starts[first + i + 1])
        for word, x in zip(queries.words[span].tolist(), queries.values[span].astype(np.float64), strict=True):
            items, z = list_of(word)
            shared[items] += metric.term(x, z.astype(np.float64))
        keys = metric.key(shared[: len(totals)], queries.totals[first + i] + totals)
        nearest = np.argsort(keys, kind="stable")[: out_keys.shape[1]]
        out_keys[i], out_items[i] = keys[nearest], nearest


def _compare(block: Block, queries: Queries, first: int, bounds: _Items, chosen: _Items, out: _Keys) -> None:
    """Do what `keys_from_lists` does by the definition."""
    for i, (low, high) in enumerate(bounds.tolist(), first):
        part, items = slice(queries.starts[i], queries.starts[i + 1]), chosen[low:high]
        x, z = queries.values[part].astype(np.float64), block.values_of(queries.words[part], items)
        terms = queries.metric.term(x, z)
        out[low:high] = queries.metric.key(terms.sum(axis=1), queries.totals[i] + block.totals[items])


@dataclass(frozen=True, eq=False)
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

    def mapped(self, folder: Path) -> Self:
        """Return the same block with arrays in files of a folder; this one if they are in files already."""
        arrays = {}
        for field in fields(self):
            array = getattr(self, field.name)
            if isinstance(array.base, np.memmap):
                return self
            path = folder / f"{secrets.token_hex(8)}.npy"
            np.save(path, array)
            arrays[field.name] = np.load(path, mmap_mode="r").view(np.ndarray)
        return type(self)(**arrays)

    @property
    def n_bytes(self) -> int:
        """Bytes in memory, or in a file."""
        return sum(array.nbytes for array in self._arrays())


@dataclass(frozen=True, eq=False)
class InvertedBlock(_Arrays):
    """An inverted index: for every word the items that have it."""

    starts: NDArray[np.int64]  # where the list of each word begins, and where the last ends
    items: NDArray[np.uint16]  # of one list after the other, rising in each
    values: NDArray[np.float32]

    def n_queries(self, module: Retrieval) -> int:
        """Return how many queries should be searched together."""
        return _INVERTED_QUERIES

    @property
    def _lists(self) -> tuple[NDArray[Any], ...]:
        return self.starts, self.items, self.values, self.totals

    def _list(self, word: int) -> tuple[NDArray[np.uint16], NDArray[np.float32]]:
        part = slice(self.starts[word], self.starts[word + 1])
        return self.items[part], self.values[part]

    def search(self, module: Retrieval, queries: Queries, first: int, out_keys: _Keys, out_items: _Items) -> None:
        """Find the nearest items of the queries from `first` on, in order; as many as the results have columns."""
        words, metric = queries.words[queries.starts[first] : queries.starts[first + len(out_keys)]], queries.metric
        if _by_definition(metric, len(out_keys), int((self.starts[words + 1] - self.starts[words]).sum())):
            _search(queries, self._list, self.totals, first, out_keys, out_items)
        else:
            _kernels().search_lists(metric.kind, queries.arrays, self._lists, first, out_keys, out_items)

    def keys(self, queries: Queries, first: int, bounds: _Items, chosen: _Items, out: _Keys) -> None:
        """Compare each query from `first` on with items chosen for it, ``chosen[bounds[i, 0]:bounds[i, 1]]``."""
        if queries.metric.kind is None:
            _compare(self, queries, first, bounds, chosen, out)
            return
        _kernels().keys_from_lists(queries.metric.kind, queries.arrays, self._lists, first, bounds, chosen, out)

    def row(self, item: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the words of one item and their values; all lists are looked through."""
        places = np.flatnonzero(self.items == item)
        return np.searchsorted(self.starts, places, side="right") - 1, self.values[places]

    def values_of(self, words: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the values of some words in some items, shape (n_items, n_words)."""
        columns = np.zeros((len(words), len(items)))
        for column, word in zip(columns, words.tolist(), strict=True):
            having, values = self._list(word)
            if len(having):
                places = np.minimum(np.searchsorted(having, items), len(having) - 1)
                column[:] = np.where(having[places] == items, values[places], 0)
        return columns.T

    def items_with(self, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which items have at least one of these words."""
        having = np.zeros(BLOCK_ITEMS, np.bool_)
        for word in words.tolist():
            having[self._list(word)[0]] = True
        return having[: len(self)]

    def _checked(self) -> NDArray[np.uint16]:
        """Return `items`; raise an error if one is not there: in a file that was mapped, not read."""
        if len(self.items) and int(self.items.max()) >= len(self):
            raise BagwiseError(f"The index is damaged: an inverted list names item {self.items.max()} of {len(self)}.")
        return self.items

    def columns(self) -> sp.csc_array:
        """Return the items as rows of a CSC matrix."""
        shape = (len(self), len(self.starts) - 1)
        return sp.csc_array((self.values, self._checked().astype(np.int32), self.starts), shape=shape)

    def rows(self) -> sp.csr_array:
        """Return the items as CSR rows."""
        return sp.csr_array(self.columns().tocsr())

    def taken(self, kept: NDArray[np.bool_]) -> InvertedBlock:
        """Return a block of some of the items."""
        entries, numbers = kept[self._checked()], (np.cumsum(kept) - 1).astype(np.uint16)
        starts = np.concatenate([[0], np.cumsum(entries)])[self.starts]
        return InvertedBlock(self.totals[kept], starts, numbers[self.items[entries]], self.values[entries])

    def add_group_moments(self, *arguments: Any) -> None:
        """Add up features of groups, see `bagwise.retrieval._kernels.group_moments`."""
        _kernels().group_moments((self.starts, self.items, self.values), *arguments)


@dataclass(frozen=True, eq=False)
class DenseBlock(_Arrays):
    """Items as rows of a dense matrix."""

    values: NDArray[np.float32]

    def n_queries(self, module: Retrieval) -> int:
        """Return how many queries should be searched together."""
        return module.n_queries(*self.values.shape)

    def search(self, module: Retrieval, queries: Queries, first: int, out_keys: _Keys, out_items: _Items) -> None:
        """Do what `InvertedBlock.search` does.

        All pairs are compared in float32. Those that can be among the nearest, by a bound on the rounding errors, are
        compared in float64.
        """
        last, k = first + len(out_keys), out_keys.shape[1]
        n_words = int(queries.starts[last] - queries.starts[first])
        if _by_definition(queries.metric, len(out_keys), n_words * len(self)):

            def list_of(word: int) -> tuple[Any, NDArray[np.float32]]:
                return slice(len(self)), self.values[:, word]

            _search(queries, list_of, self.totals, first, out_keys, out_items)
            return
        bounds, chosen = module.possible_items(self, queries, first, last, k)
        keys = np.empty(len(chosen))
        self.keys(queries, first, bounds, chosen, keys)
        # of equally near items those added first
        order = np.lexsort((chosen, keys, np.repeat(np.arange(len(bounds)), bounds[:, 1] - bounds[:, 0])))
        nearest = order[bounds[:, :1] + np.arange(k)]
        out_keys[:], out_items[:] = keys[nearest], chosen[nearest]

    def keys(self, queries: Queries, first: int, bounds: _Items, chosen: _Items, out: _Keys) -> None:
        """Do what `InvertedBlock.keys` does."""
        kind = queries.metric.kind
        if kind is None:
            _compare(self, queries, first, bounds, chosen, out)
            return
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

    def add_group_moments(
        self,
        members: NDArray[np.int64],
        ends: NDArray[np.int64],
        squared: bool,
        scale: NDArray[np.float64],
        rooted: bool,
        sums: NDArray[np.float64],
        squares: NDArray[np.float64],
    ) -> None:
        """Do what `InvertedBlock.add_group_moments` does."""
        n_words = self.values.shape[1]
        membership = sp.csc_array((np.ones(len(members)), members, np.concatenate([[0], ends])), (n_words, len(ends)))
        step = max(_DENSE_NUMBERS // n_words, 1)
        for first in range(0, len(self), step):
            rows = self.values[first : first + step].astype(np.float64)
            features = ((rows**2 if squared else rows) @ membership) * scale[first : first + len(rows), np.newaxis]
            features = np.sqrt(features) if rooted else features
            sums += features.sum(axis=0)
            squares += (features**2).sum(axis=0)

    def rows(self) -> NDArray[np.float32]:
        """Return the items as they are."""
        return self.values

    def taken(self, kept: NDArray[np.bool_]) -> DenseBlock:
        """Do what `InvertedBlock.taken` does."""
        return DenseBlock(self.totals[kept], self.values[kept])


Block = InvertedBlock | DenseBlock


def make_block(parts: list[Any], metric: Metric) -> Block:
    """Put prepared rows, dense or CSR, into one block."""
    n_items, n_words = sum(part.shape[0] for part in parts), parts[0].shape[1]
    n_values = sum(part.nnz if sp.issparse(part) else np.count_nonzero(part) for part in parts)
    if n_values > _DENSE_FRACTION * n_items * n_words:
        values = np.concatenate([part.toarray() if sp.issparse(part) else part for part in parts])
        return DenseBlock(metric.totals(values), values)
    rows = sp.csr_array(parts[0] if len(parts) == 1 else stacked(parts))
    columns = rows.tocsc()
    starts, items = columns.indptr.astype(np.int64), columns.indices.astype(np.uint16)
    return InvertedBlock(metric.totals(rows), starts, items, columns.data)


def stacked(parts: list[Any]) -> Any:
    """Put rows below each other: dense if all are, else CSR."""
    if not any(sp.issparse(part) for part in parts):
        return np.concatenate(parts)
    return sp.vstack([sp.csr_array(part) for part in parts], format="csr")
