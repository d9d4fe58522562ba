"""Ways to make some hundred columns of many thousand: sketches and their rivals, with what they cost.

A reduction is learned from rows of a sparse matrix, and is linear, so that it may be applied to counts or to
relative frequencies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from bagwise import SketchMerger
from bagwise.baselines import HashMerger
from bagwise.merging.pooling import pool

__all__ = ["LABELS", "Reduction", "pattern_groups", "reductions"]

LABELS = {
    "lbp": "LBP",
    "pca": "PCA",
    "vq": "VQ",
    "hashing": "hashing",
    "columns": "k-means of columns",
    "bsc": "BSC",
    "pka": "PKA",
    "bscb": "BSCB",
    "pkab": "PKAB",
}
N_NEIGHBORS = 10  # of PKA, as in the paper


@dataclass(frozen=True)
class Reduction:
    """A way to make few columns.

    Attributes
    ----------
    apply : callable
        From a CSR array with all columns to a dense array with few.
    n_bytes : int
        What has to be stored for it.
    seconds : float
        Processor time of learning it; what serves several sizes counts in full for each.
    """

    apply: Callable[[sp.csr_array], NDArray[np.float32]]
    n_bytes: int
    seconds: float


def reductions(method: str, X: sp.csr_array, sizes: Sequence[int], pooling: str = "sqrt") -> dict[int, Reduction]:
    """Learn a reduction to each size from the rows of X.

    Parameters
    ----------
    method : str
        A name in `LABELS`.
    X : CSR array of float32, shape (n, D)
    sizes : sequence of int
    pooling : {"sqrt", "sum"}
        Whether sums over merged columns are divided by the root of their number, as in the paper, or not.
    """
    if method == "pca":
        return _components(X, sizes)
    learn = {"hashing": _hashed, "vq": _patterns, "columns": _columns}.get(method)
    if learn is not None:
        return {size: learn(X, size, pooling) for size in sizes}
    return _sketched(X, sizes, pooling, N_NEIGHBORS if method.startswith("pka") else 0, method.endswith("b"))


def _merging(labels: NDArray[Any], size: int, pooling: str, seconds: float, signs: Any = None,
             counted: Any = None) -> Reduction:  # fmt: skip
    """A table of groups: two bytes a column, and a bit for its sign."""
    n_groups = int(labels.max()) + 1 if counted is None else len(counted)
    n_bytes = 2 * len(labels) + (0 if signs is None else len(labels) // 8)
    return Reduction(
        lambda A: _dense(pool(A, labels, n_groups, pooling, weights=signs, sizes=counted)), n_bytes, seconds
    )


def _sketched(
    X: sp.csr_array, sizes: Sequence[int], pooling: str, n_neighbors: int, bipolar: bool
) -> dict[int, Reduction]:
    started = time.process_time()
    merger = SketchMerger(min(sizes), n_neighbors=n_neighbors, bipolar=bipolar, n_jobs=1).fit(X)
    shared = time.process_time() - started
    found = {}
    for size in sizes:
        started = time.process_time()
        merger.set_params(n_groups=size)
        labels, signs, counted = merger.labels_, merger.signs_ if bipolar else None, merger.sizes_
        seconds = time.process_time() - started + shared
        found[size] = _merging(labels, size, pooling, seconds, signs, counted)
    return found


def _patterns(X: sp.csr_array, size: int, pooling: str) -> Reduction:
    started = time.process_time()
    labels = pattern_groups(np.asarray(X.sum(axis=0)).ravel(), size)
    return _merging(labels, size, pooling, time.process_time() - started)


def pattern_groups(totals: NDArray[Any], n_groups: int) -> NDArray[np.int64]:
    """Group binary patterns by k-means over their bits, each weighted by how often it occurs (VQ-LBP).

    Pattern p has the bits of the number p. Squared distances count the bits that differ; patterns that never occur go
    to the nearest centre. One thread, because the sums of several differ in their last bits.

    Parameters
    ----------
    totals : array of shape (n_patterns,)
    n_groups : int
        If no more patterns occur than that, each of them is a group.

    Returns
    -------
    labels : ndarray of int, shape (n_patterns,)
        Groups are numbered by their first pattern.
    """
    n_bits = max(1, (len(totals) - 1).bit_length())
    bits = (np.arange(len(totals))[:, np.newaxis] >> np.arange(n_bits) & 1).astype(np.float64)
    seen = np.flatnonzero(totals)
    centers = bits[seen]
    if len(seen) > n_groups:
        means = KMeans(n_groups, n_init=1, max_iter=100, random_state=0)
        with threadpool_limits(1):
            centers = means.fit(bits[seen], sample_weight=totals[seen].astype(np.float64)).cluster_centers_
    labels = np.argmin((centers**2).sum(axis=1) - 2 * (bits @ centers.T), axis=1)
    _, firsts, numbers = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(firsts))[numbers]


def _columns(X: sp.csr_array, size: int, pooling: str) -> Reduction:
    """k-means of the columns themselves, centred: what a sketch stands for."""
    started = time.process_time()
    columns = X.T.toarray() - X.mean(axis=0)[:, np.newaxis]
    means = KMeans(size, init="random", n_init=1, max_iter=20, random_state=0).fit(columns)
    return _merging(means.labels_.astype(np.int64), size, pooling, time.process_time() - started)


def _hashed(X: sp.csr_array, size: int, pooling: str) -> Reduction:
    """Nothing is learned, and nothing but the seed stored."""
    hashing = HashMerger(size).fit(X[:1])
    return Reduction(lambda A: _dense(hashing.transform(A)), 8, 0.0)


def _components(X: sp.csr_array, sizes: Sequence[int]) -> dict[int, Reduction]:
    """All principal components by inner products of samples, exactly; no more than there are samples less one."""
    started = time.process_time()
    n = X.shape[0]
    mean = np.asarray(X.mean(axis=0)).ravel()
    gram = (X @ X.T).toarray().astype(np.float64)
    rows = gram.mean(axis=0)
    values, vectors = np.linalg.eigh(gram - rows - rows[:, np.newaxis] + rows.mean())
    kept = np.argsort(values)[::-1][: min(max(sizes), n - 1)]
    vectors = vectors[:, kept] / np.sqrt(np.maximum(values[kept], 1e-12 * values.max()))
    axes = (X.T @ vectors.astype(np.float32)) - np.outer(mean, vectors.sum(axis=0)).astype(np.float32)
    offset = (mean @ axes).astype(np.float32)
    seconds = time.process_time() - started

    def to(size: int) -> Reduction:
        few = np.ascontiguousarray(axes[:, :size])
        return Reduction(lambda A: _dense(A @ few) - offset[:size], 4 * (few.size + size), seconds)

    return {size: to(size) for size in sizes}


def _dense(Z: Any) -> NDArray[np.float32]:
    return np.asarray(Z.toarray() if sp.issparse(Z) else Z, dtype=np.float32)
