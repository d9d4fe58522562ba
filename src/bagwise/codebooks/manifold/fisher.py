"""Fisher vectors: what bags are like beyond their histogram, so that their neighbours can be found better."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from bagwise._utils.threads import one_blas_thread
from bagwise.bags import Bags
from bagwise.codebooks.distances import assign_words
from bagwise.codebooks.kmeans import distinct_rows, kmeans_words

__all__ = ["fisher_vectors"]

# Axes of the features that are kept, and features that cells are learned from.
_N_AXES = 32
_N_SAMPLES = 20_000
_BLOCK_ROWS = 1 << 14
# Variances below this fraction of the mean variance, and axes below it, are rounding.
_FLOOR = 1e-6


def fisher_vectors(
    bags: Bags, n_cells: int, random_state: Any = None, n_jobs: int | None = None
) -> NDArray[np.float64]:
    """Counts, means and variances of the features of each bag in the cells of a small codebook, in rows of length 1.

    1. Features are turned to their principal axes, of which the first 32 are kept, and `n_cells` cells are found by
       k-means.
    2. By how much the relative frequency of a cell, and the mean and variance of the features in it, differ from those
       of all bags is the gradient of the likelihood of a mixture of Gaussians, one a cell.
    3. Signed square roots, divided by their length.

    Bags must not be empty. O(n_rows (n_cells + 32) 32) time.
    """
    with one_blas_thread():
        x = _principal(bags.values)
    if not x.any():  # all features are equal
        return np.zeros((len(bags), 1))
    random = check_random_state(random_state)
    some = x if len(x) <= _N_SAMPLES else x[np.sort(random.choice(len(x), _N_SAMPLES, replace=False))]
    n_cells = min(n_cells, len(distinct_rows(some)[0]))
    words = kmeans_words(some, n_cells, random_state=random, n_jobs=n_jobs).words
    cells = assign_words(x, words, n_jobs=n_jobs)
    n, k, d = len(bags), len(words), x.shape[1]
    bag_of = np.repeat(np.arange(n), bags.lengths)
    pool = sp.csr_array((np.ones(len(x)), (bag_of * k + cells, np.arange(len(x)))), shape=(n * k, len(x)))
    counts = np.bincount(bag_of * k + cells, minlength=n * k).reshape(n, k)
    sums, squares = (pool @ x).reshape(n, k, d), (pool @ x**2).reshape(n, k, d)
    total = np.maximum(counts.sum(axis=0), 1)[:, np.newaxis]
    means = sums.sum(axis=0) / total
    variances = np.maximum(squares.sum(axis=0) / total - means**2, _FLOOR)
    frequencies = total / len(x)
    lengths = bags.lengths[:, np.newaxis]
    n_assigned = counts[:, :, np.newaxis]
    parts = (
        (counts / lengths - frequencies[:, 0]) / np.sqrt(frequencies[:, 0]),
        (sums - n_assigned * means) / np.sqrt(frequencies * variances) / lengths[:, np.newaxis],
        (squares - 2.0 * sums * means + n_assigned * (means**2 - variances))
        / (variances * np.sqrt(2.0 * frequencies) * lengths[:, np.newaxis]),
    )
    F = np.concatenate([part.reshape(n, -1) for part in parts], axis=1)
    F = np.sign(F) * np.sqrt(np.abs(F))
    size = np.linalg.norm(F, axis=1, keepdims=True)
    return np.divide(F, size, out=np.zeros_like(F), where=size > 0)


def _principal(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Coordinates on the principal axes, of variance 1 in the mean over the axes that are kept."""
    mean = values.mean(axis=0, dtype=np.float64)
    starts = range(0, len(values), _BLOCK_ROWS)  # blocks, so that no copy of all values is made
    products = np.zeros((len(mean), len(mean)))
    for start in starts:
        block = values[start : start + _BLOCK_ROWS] - mean
        products += block.T @ block
    variances, axes = np.linalg.eigh(products / len(values))
    kept = np.flatnonzero(variances > _FLOOR * max(variances[-1], np.finfo(np.float64).tiny))[::-1][:_N_AXES]
    if not len(kept):
        return np.zeros((len(values), 1))
    turn = axes[:, kept] / np.sqrt(variances[kept].mean())
    x = np.empty((len(values), len(kept)))
    for start in starts:
        x[start : start + _BLOCK_ROWS] = (values[start : start + _BLOCK_ROWS] - mean) @ turn
    return x
