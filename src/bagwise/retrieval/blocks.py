"""Blocks of up to 65,536 items: lists of items by word, or dense rows, whichever suits the data.

Both give the same keys to the last bit. Arrays are read-only: they may lie in a mapped file, and compiled code is made
for such arrays alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.retrieval import _index_kernels as kernels
from bagwise.retrieval.histograms import Queries
from bagwise.retrieval.measures import Measure

__all__ = ["Block", "DenseBlock", "ListBlock", "make_block"]

# Rows with more non-zeros than this share are kept dense: it is then faster to look at all words than at lists.
_DENSE_SHARE = 0.4
# Queries of one task of a thread.
_LIST_QUERIES = 16
_DENSE_QUERIES = 256
# Numbers of one task: of products between queries and dense rows, and of the queries as dense rows.
_DENSE_NUMBERS = 1 << 22
# Rounding of float32, and one percent more for rounding of the bounds themselves.
_ROUNDING = 1.01 * 2.0**-24


@dataclass(frozen=True)
class ListBlock:
    """For every word the items that have it.

    Parameters
    ----------
    starts : ndarray of int64, shape (n_words + 1,)
        Where the list of each word begins.
    items : ndarray of uint16
        Items of one list after the other, rising in each.
    values : ndarray of float32
    totals : ndarray of float64, shape (n_items,)
    """

    starts: NDArray[np.int64]
    items: NDArray[np.uint16]
    values: NDArray[np.float32]
    totals: NDArray[np.float64]

    def __post_init__(self) -> None:
        _freeze(self.starts, self.items, self.values, self.totals)

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def n_bytes(self) -> int:
        """Memory, or place in a file."""
        return self.starts.nbytes + self.items.nbytes + self.values.nbytes + self.totals.nbytes

    @property
    def n_queries(self) -> int:
        """Queries that should be searched together."""
        return _LIST_QUERIES

    @property
    def _lists(self) -> tuple[NDArray[Any], ...]:
        return self.starts, self.items, self.values, self.totals

    def search(
        self,
        measure: Measure,
        queries: Queries,
        first: int,
        out_keys: NDArray[np.float64],
        out_items: NDArray[np.int64],
    ) -> None:
        """Find the nearest items of some queries, in order; as many as the results have columns."""
        kernels.search_lists(measure.kind, queries.arrays, self._lists, first, out_keys, out_items)

    def keys(
        self,
        measure: Measure,
        queries: Queries,
        first: int,
        bounds: NDArray[np.int64],
        chosen: NDArray[np.int64],
        out: NDArray[np.float64],
    ) -> None:
        """Compare each of some queries with items that were chosen for it, ``chosen[bounds[i, 0]:bounds[i, 1]]``."""
        kernels.keys_from_lists(measure.kind, queries.arrays, self._lists, first, bounds, chosen, out)

    def rows(self) -> sp.csr_array:
        """The items as CSR rows."""
        n_words = np.bincount(self.items, minlength=len(self))
        if len(n_words) > len(self):  # from a file that was mapped, not read
            raise BagwiseError(f"The index is damaged: a list names item {len(n_words) - 1} of {len(self)}.")
        row_starts = np.concatenate([[0], np.cumsum(n_words)])
        words, values = np.empty(len(self.items), dtype=np.int32), np.empty(len(self.items), dtype=np.float32)
        kernels.fill_rows(self.starts, self.items, self.values, row_starts, words, values)
        return sp.csr_array((values, words, row_starts), shape=(len(self), len(self.starts) - 1))


@dataclass(frozen=True)
class DenseBlock:
    """Items as rows of a dense matrix.

    Parameters
    ----------
    values : ndarray of float32, shape (n_items, n_words)
    totals : ndarray of float64, shape (n_items,)
    """

    values: NDArray[np.float32]
    totals: NDArray[np.float64]

    def __post_init__(self) -> None:
        _freeze(self.values, self.totals)

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def n_bytes(self) -> int:
        """Memory, or place in a file."""
        return self.values.nbytes + self.totals.nbytes

    @property
    def n_queries(self) -> int:
        """Queries that should be searched together."""
        return int(np.clip(_DENSE_NUMBERS // max(self.values.shape), 1, _DENSE_QUERIES))

    def search(
        self,
        measure: Measure,
        queries: Queries,
        first: int,
        out_keys: NDArray[np.float64],
        out_items: NDArray[np.int64],
    ) -> None:
        """Find the nearest items of some queries, in order; as many as the results have columns.

        All pairs are compared in float32, by BLAS where the metric is a product. What may be among the nearest, by a
        bound on the rounding of that, is compared in float64.
        """
        dense = queries.dense(first, first + len(out_keys))
        if measure.power == 2:
            with np.errstate(over="ignore", invalid="ignore"):
                about = dense @ self.values.T  # what is not finite is compared in float64
        else:
            about = np.empty((len(dense), len(self)), dtype=np.float32)
            kernels.screen_rows(measure.kind, dense, self.values, about)
        relative = _relative_error(dense.shape[1])
        kernels.search_screened(
            measure.kind, about, relative, queries.arrays, self.values, self.totals, first, out_keys, out_items
        )

    def keys(
        self,
        measure: Measure,
        queries: Queries,
        first: int,
        bounds: NDArray[np.int64],
        chosen: NDArray[np.int64],
        out: NDArray[np.float64],
    ) -> None:
        """Compare each of some queries with items that were chosen for it, ``chosen[bounds[i, 0]:bounds[i, 1]]``."""
        kernels.keys_from_rows(measure.kind, queries.arrays, self.values, self.totals, first, bounds, chosen, out)

    def rows(self) -> NDArray[np.float32]:
        """The items as they are."""
        return self.values


Block = ListBlock | DenseBlock


def make_block(parts: list[Any], measure: Measure) -> Block:
    """Put prepared rows, dense or CSR, into one block."""
    n_items, n_words = sum(part.shape[0] for part in parts), parts[0].shape[1]
    n_values = sum(part.nnz if sp.issparse(part) else np.count_nonzero(part) for part in parts)
    if n_values > _DENSE_SHARE * n_items * n_words:
        values = np.concatenate([part.toarray() if sp.issparse(part) else part for part in parts])
        return DenseBlock(values, measure.totals(values))
    rows = sp.csr_array(parts[0] if len(parts) == 1 else sp.vstack([sp.csr_array(part) for part in parts]))
    words = rows.indices.astype(np.int32, copy=False)
    starts = np.zeros(n_words + 1, dtype=np.int64)
    kernels.count_words(words, starts)
    items, values = np.empty(len(words), dtype=np.uint16), np.empty(len(words), dtype=np.float32)
    kernels.fill_lists(rows.indptr.astype(np.int64), words, rows.data, starts, items, values)
    return ListBlock(starts, items, values, measure.totals(rows))


def _relative_error(n_words: int) -> float:
    """Bound of the error of a sum of n_words products in float32, in any order, relative to that of their sizes."""
    error = (n_words + 8) * _ROUNDING
    return error / (1 - error) if error < 0.5 else float("inf")


def _freeze(*arrays: NDArray[Any]) -> None:
    for array in arrays:
        array.flags.writeable = False
