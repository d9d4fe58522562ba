"""Candidates for approximate search: the nearest vectors by faiss, whose distances resemble the metric.

============= ============================ =============
metric        vector of an item            distance
============= ============================ =============
chi2          square roots                 Euclidean
hellinger     square roots                 inner product
intersection  the item, and M - Σx         L1
euclidean     the item                     Euclidean
inner         the item                     inner product
============= ============================ =============

Square roots are the feature map of the chi² kernel with one sample; a map with three samples is closer, but gives the
same candidates. A query has 0 in place of M - Σx, so that its L1 distance to an item is ``Σq + M - 2 Σ min(q, x)``:
exactly the order of the intersection, also for histograms of different sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise._utils.memory import free_memory, readable_size
from bagwise.errors import BagwiseError
from bagwise.retrieval.histograms import CHI2, INNER, INTERSECTION, Metric
from bagwise.retrieval.store import Store

STRUCTURES = ("auto", "flat", "ivf", "hnsw")
# "auto" is "flat" up to this many items, and "ivf" beyond.
_FLAT_ITEMS = 10_000
# Cells per square root of the number of items; training vectors per cell; iterations of k-means.
_CELLS = 2.0
_TRAINING = 50
_PASSES = 10
# "hnsw": links per item, and candidates that are looked at when it is inserted.
_LINKS, _BUILD_WIDTH = 32, 80
# The faiss index is built again when the number of items grew by this factor, or this fraction of vectors was removed.
_GROWTH = 4
_REMOVED = 0.25
# Rows that become vectors at a time.
_ROWS = 4096


@dataclass(frozen=True)
class Cells:
    """Cells of structure="ivf", enough to build the faiss index again without learning."""

    centres: NDArray[np.float32]  # cells x features
    cell_of: NDArray[np.int32]  # cell of each item


class Candidates:
    """A faiss index of the items of a store, updated when it is searched. `cells` are those of a file."""

    def __init__(self, metric: Metric, structure: str, random_state: int, cells: Cells | None = None) -> None:
        self._faiss = require("faiss", "ann", "Approximate search")
        self._metric = metric
        self._structure = structure
        self._random_state = random_state
        self._restored = cells
        self._index: Any = None
        self._items = np.empty(0, dtype=np.int64)  # the number of the item of each vector, rising; -1 for removed ones
        self._cell_of = np.empty(0, dtype=np.int32)  # of each vector
        self._n_known = 0  # items that have a vector: the first ones
        self._built_for = 0  # items when cells were learned
        self._largest_total = 0.0

    @property
    def n_bytes(self) -> int:
        """Bytes of the vectors."""
        return 0 if self._index is None else 4 * self._index.d * self._index.ntotal

    def renumber(self, kept: NDArray[np.bool_]) -> None:
        """Follow a store that has lost the items that are not `kept`."""
        numbers = np.where(kept, np.cumsum(kept) - 1, -1)
        self._items = np.where(self._items < 0, -1, numbers[self._items])
        self._n_known = int(kept[: self._n_known].sum())
        if self._restored is not None:
            centres, cell_of = self._restored.centres, self._restored.cell_of
            self._restored = Cells(centres, cell_of[kept[: len(cell_of)]])

    def search(
        self,
        rows: Any,
        n: int,
        n_probe: int,
        n_threads: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Find up to n items for each prepared query, in rising order; -1 comes first where there are fewer.

        `allowed` restricts them to some of the items. Call `update` first.
        """
        n_removed = len(self._items) - self._n_known
        n_asked = min(n + min(n_removed, n), len(self._items))
        numbers = np.empty((rows.shape[0], n_asked), dtype=np.int64)
        selector = self._select(allowed)
        with self._threads(n_threads):
            for first in range(0, rows.shape[0], _ROWS):
                part = slice(first, first + _ROWS)
                numbers[part] = self._search_vectors(rows[part], n_asked, n_probe, selector)
        items = np.where(numbers < 0, -1, self._items[numbers])
        if n_removed:
            # the nearest n that were not removed, in the order of faiss
            order = np.argsort(items < 0, axis=1, kind="stable")
            items = np.take_along_axis(items, order, axis=1)[:, :n]
        return np.sort(items, axis=1)

    def _select(self, allowed: NDArray[np.bool_] | None) -> dict[str, Any]:
        """Give faiss the vectors of allowed items."""
        if allowed is None:
            return {}
        known = allowed[self._items] & (self._items >= 0)
        return {"sel": self._faiss.IDSelectorBitmap(np.packbits(known, bitorder="little"))}

    def _search_vectors(self, rows: Any, n: int, n_probe: int, selector: dict[str, Any]) -> NDArray[np.int64]:
        faiss, index = self._faiss, self._index
        vectors = self._vectors(rows, None)
        if isinstance(index, faiss.IndexIVFFlat):
            n_probe = min(n_probe, index.nlist)
            near, cells = index.quantizer.search(self._cell_vectors(vectors), n_probe)
            parameters = faiss.SearchParametersIVF(nprobe=n_probe, **selector)
            distances, numbers = (
                np.empty((len(vectors), n), dtype=np.float32),
                np.empty((len(vectors), n), dtype=np.int64),
            )
            # faiss's own wrapper takes no parameters
            index.search_preassigned_c(
                len(vectors),
                faiss.swig_ptr(vectors),
                n,
                *(faiss.swig_ptr(array) for array in (cells, near, distances, numbers)),
                False,
                parameters,
            )
            return numbers
        if isinstance(index, faiss.IndexHNSWFlat):
            parameters = faiss.SearchParametersHNSW(efSearch=max(n, _BUILD_WIDTH), **selector)
            return index.search(vectors, n, params=parameters)[1]
        return index.search(vectors, n, params=faiss.SearchParameters(**selector))[1]

    def update(self, store: Store, n_threads: int) -> None:
        """Add new items, or build the faiss index again if much has changed."""
        n_items = len(store)
        with self._threads(n_threads):
            if (
                self._index is None
                or n_items > _GROWTH * self._built_for
                or self._n_known < (1 - _REMOVED) * len(self._items)
                or (self._pads and self._largest(store, self._n_known) > self._largest_total)
            ):
                self._build(store)
            elif n_items > self._n_known:
                self._add(store)

    def cells(self) -> Cells | None:
        """Return the cells, if there are any."""
        if not isinstance(self._index, self._faiss.IndexIVFFlat):
            return None
        centres = self._index.quantizer.reconstruct_n(0, self._index.nlist)
        return Cells(centres, self._cell_of[self._items >= 0])

    def _largest(self, store: Store, first: int) -> float:
        """Return the largest total of the items from number `first` on; intersections are padded to that."""
        every = (self._metric.totals(rows).max() for rows in store.chunks(first, _ROWS))
        return max(map(float, every), default=0.0)

    @property
    def _pads(self) -> bool:
        return self._metric.kind == INTERSECTION

    def _build(self, store: Store) -> None:
        faiss, n_items = self._faiss, len(store)
        n_features = store.n_words + self._pads
        need, free = 4 * n_items * n_features, free_memory()
        if free is not None and need > free:
            raise BagwiseError(
                f"Approximate search holds {n_items} vectors of {n_features} numbers, {readable_size(need)}; "
                f"{readable_size(free)} are free. Use method='exact', which holds the non-zeros alone, or fewer words."
            )
        metric = faiss.METRIC_INNER_PRODUCT if self._metric.kind == INNER else faiss.METRIC_L2
        metric = faiss.METRIC_L1 if self._pads else metric
        structure = self._structure
        if structure == "auto":
            structure = "flat" if n_items <= _FLAT_ITEMS else "ivf"
        self._index, self._items, self._cell_of = None, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
        self._n_known, self._largest_total = 0, self._largest(store, 0) if self._pads else 0.0
        cell_of = None
        if structure == "ivf":
            restored, self._restored = self._restored, None
            if restored is not None and restored.centres.shape[1] == n_features:
                centres, cell_of = restored.centres, restored.cell_of
            else:
                centres = self._learn_cells(store, n_features)
            # intersections as well look for cells by inner products, of square roots: L1 distances take far longer
            product = metric != faiss.METRIC_L2
            quantizer = faiss.IndexFlat(n_features, faiss.METRIC_INNER_PRODUCT if product else metric)
            quantizer.add(centres)
            index = faiss.IndexIVFFlat(quantizer, n_features, len(centres), metric)
            index.is_trained = True
        elif structure == "hnsw":
            index = faiss.IndexHNSWFlat(n_features, _LINKS, metric)
            index.hnsw.efConstruction = _BUILD_WIDTH
        else:
            index = faiss.IndexFlat(n_features, metric)
        self._index, self._built_for = index, n_items
        self._add(store, cell_of)

    def _learn_cells(self, store: Store, n_features: int) -> NDArray[np.float32]:
        """Learn centres by k-means on a random sample of the items."""
        faiss, n_items = self._faiss, len(store)
        n_cells = int(np.clip(round(_CELLS * np.sqrt(n_items)), 1, n_items))
        rng = np.random.default_rng(self._random_state)
        chosen = np.sort(rng.choice(n_items, size=min(_TRAINING * n_cells, n_items), replace=False))
        sample = np.empty((len(chosen), n_features), dtype=np.float32)
        first = 0
        for rows in store.chunks(0, _ROWS):
            low, high = np.searchsorted(chosen, (first, first + rows.shape[0]))
            sample[low:high] = self._cell_vectors(self._vectors(rows[chosen[low:high] - first], None))
            first += rows.shape[0]
        learning = faiss.Kmeans(
            n_features,
            n_cells,
            niter=_PASSES,
            seed=self._random_state,
            spherical=self._metric.larger_is_nearer,
            min_points_per_centroid=1,
            max_points_per_centroid=_TRAINING,
        )
        learning.train(sample)
        return learning.centroids

    def _add(self, store: Store, cell_of: NDArray[np.int32] | None = None) -> None:
        """Add the items that have no vector; the cells of the first ones may be known."""
        faiss, index = self._faiss, self._index
        for rows in store.chunks(self._n_known, _ROWS):
            vectors = self._vectors(rows, self._metric.totals(rows) if self._pads else None)
            n = len(vectors)
            if isinstance(index, faiss.IndexIVFFlat):
                known: Any = [] if cell_of is None else cell_of[self._n_known : self._n_known + n]
                cells = np.array(known, dtype=np.int64)
                if len(cells) < n:
                    nearest = index.quantizer.search(self._cell_vectors(vectors[len(cells) :]), 1)[1]
                    cells = np.concatenate([cells, nearest.ravel()])
                numbers = np.arange(index.ntotal, index.ntotal + n)
                index.add_core(n, faiss.swig_ptr(vectors), faiss.swig_ptr(numbers), faiss.swig_ptr(cells))
                self._cell_of = np.concatenate([self._cell_of, cells.astype(np.int32)])
            else:
                index.add(vectors)
            self._items = np.concatenate([self._items, np.arange(self._n_known, self._n_known + n)])
            self._n_known += n

    def _vectors(self, rows: Any, totals: NDArray[np.float64] | None) -> NDArray[np.float32]:
        """Turn rows into vectors; items have totals, queries have none."""
        dense = rows.toarray() if sp.issparse(rows) else np.array(rows)
        if self._metric.kind == CHI2:
            np.sqrt(dense, out=dense)
        if not self._pads:
            return np.ascontiguousarray(dense)
        padding = np.zeros(len(dense)) if totals is None else self._largest_total - totals
        return np.ascontiguousarray(np.column_stack([dense, padding.astype(np.float32)]))

    def _cell_vectors(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Turn vectors into those that cells are found by: for the intersection square roots without the padding."""
        if not self._pads:
            return vectors
        roots = np.sqrt(vectors)
        roots[:, -1] = 0
        return roots

    @contextmanager
    def _threads(self, n_threads: int) -> Iterator[None]:
        """Set the number of threads of faiss."""
        before = self._faiss.omp_get_max_threads()
        self._faiss.omp_set_num_threads(n_threads)
        try:
            yield
        finally:
            self._faiss.omp_set_num_threads(before)
