"""Nearest neighbours between samples, as the graph criteria need them.

A sample is never its own neighbour. Ties are broken by the lowest index. If there are fewer candidates than neighbours
asked for, all of them are taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances

from bagwise._utils.matrices import centre_full_words, check_non_negative
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels._kernels import INTERSECTION, dense_kernel_rows, sparse_kernel_rows

__all__ = ["METRICS", "Nearness"]

METRICS = ("intersection", "euclidean")
# Similarities are computed for this many samples at a time, or fewer if there are very many samples.
_BLOCK = 256
_BLOCK_BYTES = 64 * 2**20
# All of them are cached up to this size.
_KEPT_BYTES = 128 * 2**20
# Differences of nearness below this fraction of the largest are rounding.
_ROUNDING = 1e-12


class Nearness:
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
            check_non_negative(self._X, "Histogram intersection", "Use metric='euclidean', or shift the data.")
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

    def squared_distances(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """Squared Euclidean distances of the pairs of samples ``rows[k], columns[k]``."""
        distances = np.empty(len(rows))
        for start in range(0, len(rows), 1024):
            part = slice(start, start + 1024)
            difference = self._X[rows[part]] - self._X[columns[part]]
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


def neighbor_graph(nearness: Nearness, k: int, codes: NDArray[np.intp] | None = None, who: str = "all") -> sp.csr_array:
    """Connect every sample with its k nearest: a 0/1 matrix, sample i's neighbours in row i.

    `who` restricts them by the classes `codes`: "all", "same" class or "other" classes.
    """
    blocks = []
    for samples, near in nearness.blocks():
        allowed = np.ones(near.shape, dtype=bool)
        if who != "all":
            assert codes is not None
            allowed = codes[samples][:, np.newaxis] == codes
            if who == "other":
                allowed = ~allowed
        blocks.append(sp.csr_array(nearest(near, k, allowed).astype(np.float64)))
    return sp.csr_array(sp.vstack(blocks))


def heat_weights(nearness: Nearness, graphs: list[sp.csr_array], width: float | None, who: str) -> list[sp.csr_array]:
    """Weight the edges of symmetric graphs by ``exp(-|x_i - x_j|² / width)``.

    A width of None is the mean squared distance over the edges of all the graphs.
    """
    edges = [graph.tocoo() for graph in graphs]
    distances = [nearness.squared_distances(edge.row, edge.col) for edge in edges]
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
