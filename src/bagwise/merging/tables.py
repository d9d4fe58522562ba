"""Several groupings of the same words at once, whose weights add up to those of a classifier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.engine import merge_scoring
from bagwise.merging.refining import nearest_means
from bagwise.merging.scoring import WeightLoss

__all__ = ["split_weights", "table_sizes"]

Values = NDArray[np.float64]
_ROUNDS = 20  # over all tables
_SMALLEST = np.finfo(np.float64).tiny


def table_sizes(n_groups: int, n_tables: int) -> list[int]:
    """Divide groups evenly among tables; the first ones get what is left over.

    >>> table_sizes(50, 4)
    [13, 13, 12, 12]
    """
    return [n_groups // n_tables + (table < n_groups % n_tables) for table in range(n_tables)]


def split_weights(mass: Values, weights: Values, sizes: Sequence[int]) -> tuple[list[NDArray[np.int64]], list[Values]]:
    """Write the weights of each word as a sum of weights of groups, one group from each table.

    Lowers ``Σ_j m_j |w_j - Σ_q V_q[g_q(j)]|²``. The first table groups the weights w, by merging and then k-means from
    the groups that this gives; the second one what is left of them, and so on. Then each table in turn is improved with
    the others fixed, which never raises the sum. At the end all tables but the first are centred: the mean of their
    weights over words is 0, weighted by mass.

    Parameters
    ----------
    mass : ndarray of shape (n_words,)
    weights : ndarray of shape (n_words, n_outputs)
    sizes : sequence of int
        Number of groups of each table.

    Returns
    -------
    labels : list of ndarray of shape (n_words,)
        For each table, the group of each word.
    values : list of ndarray of shape (n_groups, n_outputs)
        For each table, the weights of its groups.
    """
    labels: list[NDArray[np.int64]] = []
    values: list[Values] = []
    rest = weights
    for size in sizes:
        start = merge_scoring(WeightLoss(mass, rest), "classifier", size).cut(size)
        labels.append(_improve(mass, rest, start, size))
        values.append(_means(mass, rest, labels[-1], size))
        rest = rest - values[-1][labels[-1]]
    for _ in range(_ROUNDS if len(sizes) > 1 else 0):
        moved = False
        for table, size in enumerate(sizes):
            own = rest + values[table][labels[table]]
            found = _improve(mass, own, labels[table], size)
            moved = moved or not np.array_equal(found, labels[table])
            labels[table], values[table] = found, _means(mass, own, found, size)
            rest = own - values[table][found]
        if not moved:
            break
    for table in range(1, len(sizes)):
        mean = mass @ values[table][labels[table]] / max(float(mass.sum()), _SMALLEST)
        values[table] = values[table] - mean
        values[0] = values[0] + mean
    return labels, values


def _means(mass: Values, weights: Values, labels: NDArray[np.int64], size: int) -> Values:
    """The mean weights of each group; groups without mass have weights 0."""
    total = np.bincount(labels, mass, minlength=size)
    sums = np.stack([np.bincount(labels, mass * w, minlength=size) for w in weights.T], axis=1)
    return sums / np.maximum(total, _SMALLEST)[:, np.newaxis]


def _improve(mass: Values, weights: Values, labels: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Improve groups by k-means; the given ones, if some would become empty."""
    found = nearest_means(mass, weights, labels, size)
    return found if len(np.unique(found)) == size else labels
