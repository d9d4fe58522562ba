"""From the signature of features to groups of features: clusters, and what becomes of constant and equal features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from bagwise.codebooks.kmeans import distinct_rows, kmeans

__all__ = ["FeatureGroups", "group_features"]

# Beyond this many features clustering goes by mini-batches, unless told otherwise.
MANY_FEATURES = 200_000
_BATCH = 16_384


@dataclass(frozen=True)
class FeatureGroups:
    """Groups of features.

    Parameters
    ----------
    labels : ndarray of int64, shape (n_features,)
        Group of each feature.
    signs : ndarray of int8, shape (n_features,)
        1 or -1; the first feature of each group has 1.
    sizes : ndarray of int64, shape (n_groups,)
        Number of features in each group, without those that were constant, unless it has no others.
    inertia : float
        Sum of squared distances of the rows of the signature to the means of their groups.
    n_iter : int
        Iterations of the best start; 1 where there was nothing to search for.
    """

    labels: NDArray[np.int64]
    signs: NDArray[np.int8]
    sizes: NDArray[np.int64]
    inertia: float
    n_iter: int


def group_features(
    signature: NDArray[Any],
    n_groups: int,
    *,
    bipolar: bool = False,
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-4,
    batch_size: int | None = None,
    random_state: Any = None,
    progress: Callable[[int], None] = lambda done: None,
) -> FeatureGroups:
    """Cluster the rows of a signature into exactly `n_groups` groups, or one for each feature if there are no more.

    Equal rows are one point with their number for a weight, so they are in the same group; with `bipolar` also rows
    that are each other's negative. Rows of zeros, from constant features, say nothing: they join group 0. Only if
    there are fewer different rows than groups must the groups left over be filled: by rows of zeros, one each, then by
    taking equal rows apart; the cost is zero then in any case. Groups are numbered by their first feature that is
    not constant.

    Parameters
    ----------
    signature : ndarray of shape (n_features, size)
        Is overwritten.
    n_groups : int
    bipolar, n_init, max_iter, tol, random_state, progress
        See `bagwise.codebooks.kmeans.kmeans`.
    batch_size : int, default=None
        See `bagwise.codebooks.kmeans.kmeans`. None: all points up to 200,000 features; 16,384 points, or four for
        each group, beyond.

    Returns
    -------
    groups : FeatureGroups
    """
    n_features = len(signature)
    if n_groups >= n_features:
        ones = np.ones(n_features, dtype=np.int64)
        return FeatureGroups(np.arange(n_features), ones.astype(np.int8), ones, 0.0, 1)
    if batch_size is None and n_features > MANY_FEATURES:
        batch_size = max(_BATCH, 4 * n_groups)

    first_signs, point_of, points, unit = _distinct_rows(signature, bipolar)
    varies = first_signs != 0
    labels, signs = np.zeros(n_features, dtype=np.int64), np.ones(n_features, dtype=np.int8)
    inertia, n_iter = 0.0, 1
    if len(points) > n_groups:
        libraries = ThreadpoolController().select(user_api="blas").info()
        found = kmeans(
            points,
            n_groups,
            weights=np.bincount(point_of[varies]).astype(np.float64),
            bipolar=bipolar,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            batch_size=batch_size,
            random_state=random_state,
            n_threads=max((library["num_threads"] for library in libraries), default=1),
            progress=progress,
        )
        labels[varies] = found.labels[point_of[varies]]
        signs[varies] = first_signs[varies] * found.signs[point_of[varies]]
        inertia, n_iter = found.cost * unit**2, found.n_iter
    else:
        labels = _alone(point_of, varies, n_groups)
        signs[varies] = first_signs[varies]
    labels = _number(labels, varies)
    _, first = np.unique(labels, return_index=True)
    first_varying = np.full(len(first), n_features)
    np.minimum.at(first_varying, labels[varies], np.flatnonzero(varies))
    first = np.where(first_varying < n_features, first_varying, first)
    signs[varies] *= signs[first][labels[varies]]
    sizes = np.bincount(labels[varies], minlength=n_groups)
    sizes = np.where(sizes > 0, sizes, np.bincount(labels, minlength=n_groups))
    return FeatureGroups(labels, signs, sizes, inertia, n_iter)


def _distinct_rows(
    signature: NDArray[Any], bipolar: bool
) -> tuple[NDArray[np.int8], NDArray[np.int64], NDArray[Any], float]:
    """Find the different rows that are not zero, at a scale where products neither overflow nor vanish.

    Returns
    -------
    first_signs : ndarray of int8
        0 for rows of zeros; else what the row was multiplied by, always 1 unless `bipolar`.
    point_of : ndarray of int64
        Which point each row is; -1 for rows of zeros.
    points : ndarray
        Different rows in the order in which they come first.
    unit : float
        What points are to be multiplied by to have their old size.
    """
    peak = max(float(signature.max()), -float(signature.min()))
    unit = 2.0 ** np.floor(np.log2(peak)) if peak > 0 else 1.0  # a power of two: nothing is rounded
    unit = max(unit, 4.0 * float(np.finfo(signature.dtype).tiny))  # whose inverse is finite
    leading = np.take_along_axis(signature, (signature != 0).argmax(axis=1)[:, np.newaxis], axis=1)
    signs = np.sign(leading) if bipolar else (leading != 0)
    signature *= np.where(signs < 0, -1.0 / unit, 1.0 / unit).astype(signature.dtype)
    first, which = distinct_rows(signature)
    first_signs = signs[:, 0].astype(np.int8)
    varies = first_signs[first] != 0
    point_of = np.where(varies, np.cumsum(varies) - 1, -1)[which]
    points = signature if len(first) == len(signature) and varies.all() else signature[first[varies]]
    return first_signs, point_of, points, float(unit)


def _alone(point_of: NDArray[np.int64], varies: NDArray[np.bool_], n_groups: int) -> NDArray[np.int64]:
    """Give each point a group, and fill the others: by rows of zeros, then by rows that are equal to an earlier one."""
    labels = np.where(varies, point_of, 0)
    n_points = int(point_of.max(initial=-1)) + 1
    _, first = np.unique(point_of[varies], return_index=True)
    repeated = np.delete(np.flatnonzero(varies), first)
    fillers = np.concatenate([np.flatnonzero(~varies), repeated])[: n_groups - n_points]
    labels[fillers] = np.arange(n_points, n_points + len(fillers))
    return labels


def _number(labels: NDArray[np.int64], varies: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number groups by their first feature that varies, those without any behind, by their first feature.

    Rows of zeros that were put into group 0 only because they must be somewhere stay in group 0.
    """
    order = np.concatenate([np.flatnonzero(varies), np.flatnonzero(~varies)])
    _, first = np.unique(labels[order], return_index=True)
    place = np.empty(len(first), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(first))
    numbered = place[labels]
    if varies.any():
        idle = ~varies & (labels == 0)
        numbered[idle] = 0
    return numbered
