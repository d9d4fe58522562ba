"""Nearest neighbours between samples, as the graph criteria need them: exact, or by faiss for many samples.

A sample is never its own neighbour. Ties are broken by the lowest index, among the candidates of faiss. If there are
fewer candidates than neighbours asked for, all of them are taken.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from functools import partial
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances

from bagwise._utils.matrices import centre_full_words, check_non_negative
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError, in_python, unknown_name
from bagwise.kernels._kernels import INTERSECTION, dense_kernel_rows, sparse_kernel_rows

__all__ = ["METRICS", "ApproximateNeighbors", "ExactNeighbors", "Neighbors", "find_neighbors"]

METRICS = ("intersection", "euclidean")
# approximate="auto": more samples than this, and sparse data only if they have at least this fraction of non-zeros.
_EXACT_SAMPLES = 20_000
_LEAST_DENSITY = 0.05
# Similarities are computed for this many samples at a time, or fewer if there are very many samples.
_BLOCK = 256
_BLOCK_BYTES = 64 * 2**20
# All of them are cached up to this size.
_KEPT_BYTES = 128 * 2**20
# Approximate: fraction of the cells that is searched, a larger one where the own class may fill the nearest; candidates
# of each sample, at least; samples at a time. Recall of 40 neighbours is 95 to 100 % (`benchmarks/criteria.py`).
_PROBED, _PROBED_OF_CLASSES = 1 / 4, 2 / 3
_CANDIDATES = 50
_QUERIES = 4096
# Differences of nearness below this fraction of the largest are rounding.
_ROUNDING = 1e-12


class Neighbors(Protocol):
    """What the criteria ask of neighbours. `codes` are classes, numbered from 0."""

    def graph(self, k: int, codes: NDArray[np.intp] | None = None, who: str = "all") -> sp.csr_array:
        """Connect every sample with its k nearest: a 0/1 matrix, sample i's neighbours in row i.

        `who` restricts them by classes: "all", "same" class or "other" classes.
        """

    def class_graphs(self, k: int, codes: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], sp.csr_array]]:
        """Yield samples outside a class, and their graph with the k nearest samples in it, until all have occurred."""

    def closest_pairs(self, codes: NDArray[np.intp], n_pairs: int) -> sp.csr_array:
        """Link the `n_pairs` nearest pairs (sample of the class, sample of another) of each class."""

    def squared_distances(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """Squared Euclidean distances of the pairs of samples ``rows[k], columns[k]``."""


def find_neighbors(X: Any, metric: str, approximate: bool | str = "auto", n_threads: int = 1) -> Neighbors:
    """Prepare to find neighbours among the rows of X, dense or sparse.

    With "auto" they are exact up to 20,000 samples, without faiss, and in sparse data with less than 5 % non-zeros,
    whose inverted lists are faster than the dense vectors of faiss.
    """
    if approximate == "auto":
        n_samples, n_words = X.shape
        filled = X.nnz / max(n_samples * n_words, 1) if sp.issparse(X) else 1.0
        large = n_samples > _EXACT_SAMPLES and filled >= _LEAST_DENSITY
        approximate = large and importlib.util.find_spec("faiss") is not None
    return (ApproximateNeighbors if approximate else ExactNeighbors)(X, metric, n_threads)


class ExactNeighbors:
    """Nearness of samples to each other, computed in blocks of samples. Larger is nearer.

    The metric "intersection" is the sum of the smaller counts, for non-negative data; "euclidean" the squared distance,
    negated. X is dense or sparse, samples x words.
    """

    def __init__(self, X: Any, metric: str, n_threads: int = 1) -> None:
        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS)
        self.n_samples = X.shape[0]
        self._X: Any = sp.csr_array(X) if sp.issparse(X) else np.ascontiguousarray(X)
        self._metric = metric
        self._kept: list[tuple[NDArray[np.intp], NDArray[np.float64]]] = []
        self._n_threads = n_threads
        if metric == "intersection":
            _check_for_intersection(self._X)
            if sp.issparse(X):
                self._by_word = sp.csc_array(self._X)
        else:
            # does not change distances, reduces their rounding errors
            self._X = centre_full_words(self._X) if sp.issparse(X) else self._X - self._X.mean(axis=0)
        self._quantum = self._smallest_difference()

    def blocks(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]:
        """Yield blocks of samples with their nearness to all samples: larger is nearer, -inf to themselves."""
        if self._kept:
            yield from self._kept
            return
        kept = []
        for block in self._new_blocks():
            if 8 * self.n_samples**2 <= _KEPT_BYTES:
                kept.append(block)
            yield block
        self._kept = kept

    def _new_blocks(self) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]:
        step = min(_BLOCK, max(_BLOCK_BYTES // max(8 * self.n_samples, 1), 1))
        for start in range(0, self.n_samples, step):
            samples = np.arange(start, min(start + step, self.n_samples))
            near = self._intersections(samples) if self._metric == "intersection" else -self._distances(samples)
            if self._quantum > 0:
                near = np.rint(near / self._quantum) * self._quantum
            near[np.arange(len(samples)), samples] = -np.inf
            yield samples, near

    def _smallest_difference(self) -> float:
        """A power of two well above rounding errors, to which nearness is rounded.

        So ties depend neither on the order of additions nor on whether the data are sparse.
        """
        if self._metric == "intersection":
            sizes = np.asarray(self._X.sum(axis=1)).ravel()
        elif sp.issparse(self._X):
            sizes = np.asarray(self._X.multiply(self._X).sum(axis=1)).ravel()
        else:
            sizes = np.einsum("ij,ij->i", self._X, self._X)
        largest = float(sizes.max(initial=0.0))
        return 2.0 ** np.floor(np.log2(largest * _ROUNDING)) if largest > 0 else 0.0

    def _distances(self, samples: NDArray[np.intp]) -> NDArray[np.float64]:
        return euclidean_distances(self._X[samples], self._X, squared=True)

    def _intersections(self, samples: NDArray[np.intp]) -> NDArray[np.float64]:
        first = int(samples[0])
        near = np.zeros((len(samples), self.n_samples))
        if sp.issparse(self._X):
            X, by_word = self._X, self._by_word
            lists = (X.indptr, X.indices, X.data, by_word.indptr, by_word.indices, by_word.data)
            kernel_rows = partial(sparse_kernel_rows, INTERSECTION, *lists)
        else:
            kernel_rows = partial(dense_kernel_rows, INTERSECTION, self._X, self._X)

        def fill(start: int, stop: int) -> None:
            kernel_rows(first + start, first + stop, near[start:stop])

        run_over_ranges(fill, len(samples), self._n_threads, size=16)
        return near

    def graph(self, k: int, codes: NDArray[np.intp] | None = None, who: str = "all") -> sp.csr_array:
        """See `Neighbors.graph`."""
        blocks = []
        for samples, near in self.blocks():
            allowed = np.ones(near.shape, dtype=bool)
            if who != "all":
                assert codes is not None
                allowed = codes[samples][:, np.newaxis] == codes
                if who == "other":
                    allowed = ~allowed
            blocks.append(sp.csr_array(nearest(near, k, allowed).astype(np.float64)))
        return sp.csr_array(sp.vstack(blocks))

    def class_graphs(self, k: int, codes: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], sp.csr_array]]:
        """See `Neighbors.class_graphs`."""
        for samples, near in self.blocks():
            for c in range(int(codes.max()) + 1):
                outside = codes[samples] != c
                if outside.any():
                    allowed = np.broadcast_to(codes == c, near[outside].shape)
                    yield samples[outside], sp.csr_array(nearest(near[outside], k, allowed).astype(np.float64))

    def closest_pairs(self, codes: NDArray[np.intp], n_pairs: int) -> sp.csr_array:
        """See `Neighbors.closest_pairs`. Ties are broken by the lowest indices."""
        closest = _ClosestPairs(codes, n_pairs)
        for samples, near in self.blocks():
            for c in range(closest.n_classes):
                inside, outside = samples[codes[samples] == c], np.flatnonzero(codes != c)
                values = near[np.ix_(codes[samples] == c, codes != c)].ravel()
                closest.add(c, values, np.repeat(inside, len(outside)), np.tile(outside, len(inside)))
        return closest.graph()

    def squared_distances(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """See `Neighbors.squared_distances`."""
        return _squared_distances(self._X, rows, columns)


class ApproximateNeighbors:
    """Nearest neighbours of many samples: candidates from the cells of faiss, compared by their exact nearness.

    X is dense or sparse, samples x words; it is held as float32.
    """

    def __init__(self, X: Any, metric: str, n_threads: int = 1) -> None:
        from bagwise.retrieval.candidates import Candidates
        from bagwise.retrieval.histograms import METRICS as INDEXED
        from bagwise.retrieval.store import Store

        if metric not in METRICS:
            raise unknown_name("metric", metric, METRICS)
        self.n_samples = X.shape[0]
        self._X: Any = sp.csr_array(X) if sp.issparse(X) else np.ascontiguousarray(X)
        if metric == "intersection":
            _check_for_intersection(self._X)
        self._metric, self._n_threads = INDEXED[metric], n_threads
        self._candidates = Candidates(self._metric, "ivf", 0)
        rows = [self._prepared(samples) for samples in self._chunks(np.arange(self.n_samples))]
        self._store = Store(self._metric, X.shape[1]).changed(rows, n_threads=n_threads)

    def _prepared(self, samples: NDArray[np.intp]) -> Any:
        from bagwise.retrieval.histograms import prepare

        return prepare(self._X[samples], self._metric, None)

    def _chunks(self, samples: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
        for first in range(0, len(samples), _QUERIES):
            yield samples[first : first + _QUERIES]

    def _nearest(
        self, samples: NDArray[np.intp], k: int, allowed: NDArray[np.bool_] | None = None
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]]:
        """Yield some of the samples, and for their up to k nearest the row in them, the number and the nearness.

        Samples that have fewer candidates in their cells than there are to find are searched in all cells.
        """
        from bagwise.retrieval.histograms import Queries

        most = self.n_samples if allowed is None else int(allowed.sum())
        n_candidates = min(max(_CANDIDATES, 2 * k), self.n_samples)
        for some in self._chunks(samples):
            rows = self._prepared(some)
            self._candidates.update(self._store, self._n_threads)

            def search(part: Any, probed: float, rows: Any = rows) -> NDArray[np.int64]:
                n_probe = max(int(probed * 2 * self.n_samples**0.5), 1)  # of about 2 sqrt(n) cells
                return self._candidates.search(rows[part], n_candidates, n_probe, self._n_threads, allowed)

            items = search(slice(None), _PROBED if allowed is None else _PROBED_OF_CLASSES)
            few = np.flatnonzero((items >= 0).sum(axis=1) < min(k + 1, most))
            if len(few):
                items[few] = search(few, 2.0)  # all cells
            keys = self._store.keys(Queries.of(rows, self._metric), items, self._n_threads)
            keys[items == some[:, np.newaxis]] = np.inf
            order = np.argsort(keys, axis=1, kind="stable")[:, :k]
            keys, items = np.take_along_axis(keys, order, axis=1), np.take_along_axis(items, order, axis=1)
            row, column = np.nonzero(keys < np.inf)
            yield some, row, items[row, column], -keys[row, column]

    def graph(self, k: int, codes: NDArray[np.intp] | None = None, who: str = "all") -> sp.csr_array:
        """See `Neighbors.graph`."""
        everyone = np.arange(self.n_samples)
        if who == "all":
            searches: Any = [self._nearest(everyone, k)]
        else:
            assert codes is not None
            members = [codes == c for c in range(int(codes.max()) + 1)]
            searches = (self._nearest(everyone[of], k, of if who == "same" else ~of) for of in members)
        links = [(some[row], nearest) for search in searches for some, row, nearest, _ in search]
        rows, columns = (np.concatenate(part) for part in zip(*links, strict=True))
        return _zero_one(rows, columns, (self.n_samples, self.n_samples))

    def class_graphs(self, k: int, codes: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], sp.csr_array]]:
        """See `Neighbors.class_graphs`."""
        for c in range(int(codes.max()) + 1):
            for some, row, nearest, _ in self._nearest(np.flatnonzero(codes != c), k, codes == c):
                yield some, _zero_one(row, nearest, (len(some), self.n_samples))

    def closest_pairs(self, codes: NDArray[np.intp], n_pairs: int) -> sp.csr_array:
        """See `Neighbors.closest_pairs`."""
        closest = _ClosestPairs(codes, n_pairs)
        for c in range(closest.n_classes):
            for some, row, nearest, near in self._nearest(np.flatnonzero(codes == c), n_pairs, codes != c):
                closest.add(c, near, some[row], nearest)
        return closest.graph()

    def squared_distances(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """See `Neighbors.squared_distances`."""
        return _squared_distances(self._X, rows, columns)


class _ClosestPairs:
    """The `n_pairs` nearest pairs of each class (a sample of it, a sample of another) among those added."""

    def __init__(self, codes: NDArray[np.intp], n_pairs: int) -> None:
        self.n_classes = int(codes.max()) + 1
        self._n_samples, self._n_pairs = len(codes), n_pairs
        empty = np.empty(0, dtype=np.intp)
        self._best = [(np.empty(0), empty, empty)] * self.n_classes

    def add(self, c: int, new: NDArray[np.float64], rows: NDArray[np.intp], columns: NDArray[np.intp]) -> None:
        """Keep the nearest pairs of a class; ties are broken by the lowest indices."""
        n_pairs = self._n_pairs
        bar = np.partition(new, len(new) - n_pairs)[len(new) - n_pairs] if len(new) > n_pairs else -np.inf
        kept = np.flatnonzero(new >= bar)
        old = self._best[c]
        values = np.concatenate([old[0], new[kept]])
        rows = np.concatenate([old[1], rows[kept]])
        columns = np.concatenate([old[2], columns[kept]])
        first = np.lexsort((columns, rows, -values))[:n_pairs]
        self._best[c] = values[first], rows[first], columns[first]

    def graph(self) -> sp.csr_array:
        """The pairs of all classes as a 0/1 matrix; a pair can be among the closest of two classes."""
        rows = np.concatenate([rows for _, rows, _ in self._best])
        columns = np.concatenate([columns for _, _, columns in self._best])
        return _zero_one(rows, columns, (self._n_samples, self._n_samples))


def _check_for_intersection(X: Any) -> None:
    check_non_negative(
        X, "Histogram intersection", in_python("Use metric='euclidean', or shift the data.", "Shift the data.")
    )


def _zero_one(rows: NDArray[np.intp], columns: NDArray[np.intp], shape: tuple[int, int]) -> sp.csr_array:
    graph = sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)
    graph.data[:] = 1.0
    return graph


def _squared_distances(X: Any, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.float64]:
    distances = np.empty(len(rows))
    for start in range(0, len(rows), 1024):
        part = slice(start, start + 1024)
        difference = X[rows[part]] - X[columns[part]]
        square = difference.multiply(difference) if sp.issparse(difference) else difference * difference
        distances[part] = np.asarray(square.sum(axis=1)).ravel()
    return distances


def nearest(near: NDArray[np.float64], k: int, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark in each row the k nearest allowed samples; all of them where there are fewer.

    Larger is nearer; -inf marks a sample itself, which is never taken.
    """
    near = np.where(allowed, near, -np.inf)
    k = min(k, near.shape[1])
    threshold = -np.partition(-near, k - 1, axis=1)[:, k - 1 : k]
    chosen = near > threshold
    ties = (near == threshold) & (threshold > -np.inf)
    missing = k - chosen.sum(axis=1, keepdims=True)
    chosen |= ties & (np.cumsum(ties, axis=1) <= missing)
    return chosen


def heat_weights(neighbors: Neighbors, graphs: list[sp.csr_array], width: float | None, who: str) -> list[sp.csr_array]:
    """Weight the edges of symmetric graphs by ``exp(-|x_i - x_j|² / width)``.

    A width of None is the mean squared distance over the edges of all the graphs.
    """
    edges = [graph.tocoo() for graph in graphs]
    distances = [neighbors.squared_distances(edge.row, edge.col) for edge in edges]
    everything = np.concatenate(distances)
    if width is None:
        width = float(everything.mean()) if len(everything) else 1.0
    heat = [np.exp(-distance / width) if width > 0 else np.ones(len(distance)) for distance in distances]
    if not all(weights.any() for weights in heat if len(weights)):
        raise BagwiseError(
            f"All heat-kernel weights of a graph of the criterion {who!r} vanish at width={width:g}, since squared "
            f"distances between its neighbours reach {everything.max():g}. Use a larger width, or None."
        )
    return [
        sp.csr_array((weights, (edge.row, edge.col)), shape=edge.shape)
        for weights, edge in zip(heat, edges, strict=True)
    ]
