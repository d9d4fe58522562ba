"""Clustering of the signatures of features, with rules for constant and equal features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from bagwise._utils.devices import check_device_memory, device_module, to_device, to_host
from bagwise.codebooks.kmeans import distinct_rows, kmeans, no_report

__all__ = ["FeatureGroups", "group_features"]

# Above this many features, k-means uses mini-batches by default.
MANY_FEATURES = 200_000
_BATCH = 16_384


@dataclass(frozen=True)
class FeatureGroups:
    """Groups of features."""

    labels: NDArray[np.int64]  # group of each feature
    signs: NDArray[np.int8]  # 1 or -1; the first feature of each group has 1
    sizes: NDArray[np.int64]  # features in each group, without constant ones unless it has no others
    inertia: float  # sum of squared distances of the rows of the signature to the means of their groups
    n_iter: int  # iterations of the best run of k-means; 1 if none was needed


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
    progress: Callable[[int, int], None] = no_report,
    device: str | None = None,
) -> FeatureGroups:
    """Cluster the rows of a signature, which is overwritten, into ``min(n_groups, n_features)`` non-empty groups.

    Equal rows are one point, weighted by their number, so that they are in the same group; with `bipolar` also rows
    that are each other's negative. Zero rows, from constant features, join group 0. If there are fewer distinct rows
    than groups, the remaining groups take one zero row each, then one of several equal rows each; the inertia is then
    zero. Groups are numbered by their first feature that is not constant.

    The other parameters are those of `bagwise.codebooks.kmeans.kmeans`. ``batch_size=None`` uses all points up to
    200,000 features, and mini-batches of 16,384 points (at least four per group) above. `device` "cuda" runs k-means
    on a CUDA device.
    """
    xp = device_module(device)
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
        if xp is not np:
            need = 2 * points.nbytes + 100 * len(points)
            check_device_memory(need, f"k-means of the signatures of {n_features} features", "use device='cpu'")
        clusters = kmeans(
            to_device(points, xp),
            n_groups,
            weights=to_device(np.bincount(point_of[varies]), xp, np.float64),
            bipolar=bipolar,
            n_init=n_init,
            max_iter=max_iter,
            tol=tol,
            batch_size=batch_size,
            random_state=random_state,
            n_threads=max((library["num_threads"] for library in libraries), default=1),
            progress=progress,
        )
        labels[varies] = to_host(clusters.labels)[point_of[varies]]
        signs[varies] = first_signs[varies] * to_host(clusters.signs)[point_of[varies]]
        inertia, n_iter = clusters.cost * unit**2, clusters.n_iter
    else:
        labels = _alone(point_of, varies, n_groups)
        signs[varies] = first_signs[varies]
    labels = _number(labels, varies)
    _, first, group = np.unique(labels[varies], return_index=True, return_inverse=True)
    signs[varies] *= signs[varies][first[group]]  # the first feature of each group gets 1
    sizes = np.bincount(labels[varies], minlength=n_groups)
    sizes = np.where(sizes > 0, sizes, np.bincount(labels, minlength=n_groups))
    return FeatureGroups(labels, signs, sizes, inertia, n_iter)


def _distinct_rows(
    signature: NDArray[Any], bipolar: bool
) -> tuple[NDArray[np.int8], NDArray[np.int64], NDArray[Any], float]:
    """Find the distinct non-zero rows, scaled such that products neither overflow nor underflow.

    Returns the sign each row was multiplied by (0 for zero rows; 1 for the others unless `bipolar`), the point of each
    row (-1 for zero rows), the points in order of first occurrence, and the unit they were divided by.
    """
    largest = max(float(signature.max()), -float(signature.min()))
    unit = 2.0 ** np.floor(np.log2(largest)) if largest > 0 else 1.0  # a power of two: nothing is rounded
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
    """Give each point its own group, and fill the others: by zero rows, then by rows equal to an earlier one."""
    labels = np.where(varies, point_of, 0)
    n_points = int(point_of.max(initial=-1)) + 1
    _, first = np.unique(point_of[varies], return_index=True)
    repeated = np.delete(np.flatnonzero(varies), first)
    fillers = np.concatenate([np.flatnonzero(~varies), repeated])[: n_groups - n_points]
    labels[fillers] = np.arange(n_points, n_points + len(fillers))
    return labels


def _number(labels: NDArray[np.int64], varies: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number groups by their first feature that varies; groups without any come last, by their first feature.

    Zero rows that joined group 0 by default stay in group 0.
    """
    order = np.concatenate([np.flatnonzero(varies), np.flatnonzero(~varies)])
    _, first = np.unique(labels[order], return_index=True)
    numbered = np.argsort(np.argsort(first))[labels]
    if varies.any():
        numbered[~varies & (labels == 0)] = 0
    return numbered
