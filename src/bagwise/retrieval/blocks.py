"""A block of up to 65,536 items of an index: inverted lists or dense rows, whichever suits its data.

Both give the same keys to the last bit. Arrays are read-only: they may lie in a mapped file, and compiled code is made
for such arrays alone.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, fields
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, device_module, to_device
from bagwise.errors import BagwiseError
from bagwise.retrieval import _plain as plain
from bagwise.retrieval._plain import BLOCK_ITEMS
from bagwise.retrieval.histograms import Metric, Queries
from bagwise.retrieval.screening import possible_items, relative_error, root_products

__all__ = ["Block", "DenseBlock", "InvertedBlock", "make_block", "stacked"]

_Keys = NDArray[np.float64]
_Items = NDArray[np.int64]
# Rows with a larger fraction of non-zeros are kept dense: it is then faster to look at all words.
_DENSE_FRACTION = 0.4
# Queries of one task of a thread.
_INVERTED_QUERIES = 16
_DENSE_QUERIES = 256
# Numbers of one task: of products between queries and dense rows, and of the queries as dense rows.
_DENSE_NUMBERS = 1 << 22
# Queries by chi² for which square roots of dense rows are taken, to compare most of them by products.
_ROOTED_QUERIES = 8
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

        All pairs are compared in float32, by BLAS where the metric is a product or, for chi², bounded by one. Those
        that can be among the nearest, by a bound on the rounding errors, are compared in float64.
        """
        kind, n_words = queries.metric.kind, queries.starts[first + len(out_keys)] - queries.starts[first]
        if plain.are_few(len(out_keys), int(n_words) * len(self)):

            def list_of(word: int) -> tuple[Any, NDArray[np.float32]]:
                return slice(len(self)), self.values[:, word]

            plain.search(kind, queries.arrays, list_of, self.totals, first, out_keys, out_items, removed)
            return
        kernels, dense = _kernels(), queries.dense(first, first + len(out_keys))
        relative = relative_error(dense.shape[1])
        if queries.metric.power == 2:
            with np.errstate(over="ignore", invalid="ignore"):
                about = dense @ self.values.T  # what is not finite is compared in float64
        elif kind == plain.CHI2 and len(dense) >= _ROOTED_QUERIES:
            about, totals = root_products(dense, self.values), queries.totals[first : first + len(dense)]
            kernels.screen_chi2(relative, dense, totals, self.values, self.totals, out_keys.shape[1], removed, about)
        else:
            about = np.empty((len(dense), len(self)), dtype=np.float32)
            kernels.screen_rows(kind, dense, self.values, about)
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
    rows = sp.csr_array(parts[0] if len(parts) == 1 else stacked(parts))
    words = rows.indices.astype(np.int32, copy=False)
    starts = np.zeros(n_words + 1, dtype=np.int64)
    kernels = _kernels()
    kernels.count_words(words, starts)
    items, values = np.empty(len(words), dtype=np.uint16), np.empty(len(words), dtype=np.float32)
    kernels.transpose(rows.indptr.astype(np.int64), words, rows.data, starts, items, values)
    return InvertedBlock(metric.totals(rows), starts, items, values)


def stacked(parts: list[Any]) -> Any:
    """Put rows below each other: dense if all are, else CSR."""
    if not any(sp.issparse(part) for part in parts):
        return np.concatenate(parts)
    return sp.vstack([sp.csr_array(part) for part in parts], format="csr")
