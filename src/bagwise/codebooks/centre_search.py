"""Nearest centres of points that are compared with many centres in turn, by lower bounds from a few directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.threads import run_over_ranges
from bagwise.codebooks import _kernels as kernels

__all__ = ["CentreSearch"]

# Fewest and most features, fewest centres, and fewest points times centres, for which bounds are worth their cost.
_FEWEST_FEATURES, _MOST_FEATURES = 64, 512
_FEWEST_CENTRES = 64
_FEWEST_DISTANCES = 1 << 22
# One direction for so many features, and the share of the variance that they need to hold.
_FEATURES_OF_DIRECTION = 4
_NEEDED_SHARE = 0.55
# Rows that the directions are learned from.
_LEARNED_FROM = 1 << 13
# Rows of one task of a thread, and numbers of a block of bounds: they stay in the cache of a core.
_TASK_ROWS = 1 << 12
_BLOCK_NUMBERS = 1 << 18


class CentreSearch:
    """Finds the nearest of given centres for each of the points, the lowest number of equals.

    Let P be the projection on the directions of largest variance. By the inequality of Cauchy and Schwarz
    ``x·c <= Px·Pc + |x - Px| |c - Pc|``, hence ``|x - c|² - |x|² >= |c|² - 2 Px·Pc - 2 |x - Px| |c - Pc|``. All these
    bounds are one product of narrow matrices. Distances are computed only to centres whose bound, less an allowance for
    rounding, is below the least distance found so far: the result is that of computing all of them, as sums of squared
    differences in the type of the points.

    Bounds of the points are kept: memory for a quarter of the points.
    """

    def __init__(self, points: NDArray[Any], squares: NDArray[np.float64], n_threads: int) -> None:
        self._points, self._squares, self._n_threads = points, squares, n_threads
        some = points[:: -(-len(points) // _LEARNED_FROM)].astype(np.float64)
        variances, directions = np.linalg.eigh(some.T @ some)
        n_directions = points.shape[1] // _FEATURES_OF_DIRECTION - 2  # with the two further columns a multiple of 16
        self._directions = np.ascontiguousarray(directions[:, : -n_directions - 1 : -1])
        self.share = float(variances[-n_directions:].sum() / max(variances.sum(), np.finfo(np.float64).tiny))

    @classmethod
    def of(
        cls, points: NDArray[Any], squares: NDArray[np.float64], n_clusters: int, n_threads: int
    ) -> CentreSearch | None:
        """Make the search; None where it would not pay: few distances, or no directions with most of the variance."""
        n, width = points.shape
        if (
            not _FEWEST_FEATURES <= width <= _MOST_FEATURES
            or n_clusters < _FEWEST_CENTRES
            or n * n_clusters < _FEWEST_DISTANCES
        ):
            return None
        search = cls(points, squares, n_threads)
        if search.share < _NEEDED_SHARE:
            return None
        search._project()
        return search

    def nearest(self, centres: NDArray[Any], before: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
        """Return the number of the nearest centre of each point.

        The nearer the centres `before`, which may be any, the fewer distances are computed.
        """
        labels = np.full(len(self._points), -1) if before is None else before.copy()
        self._run(kernels.nearest_by_bounds, centres, labels)
        return labels

    def nearer(self, centres: NDArray[Any], distances: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the squared distance of each point to its nearest centre, where that is below the given one."""
        distances = distances.copy()
        self._run(kernels.nearer_by_bounds, centres, distances)
        return distances

    def _run(self, kernel: Callable[..., None], centres: NDArray[Any], results: NDArray[Any]) -> None:
        """Compute bounds, and let the kernel write what it finds by them, block by block."""
        wide = centres.astype(np.float64)
        norms = np.einsum("ij,ij->i", wide, wide)
        inside = wide @ self._directions
        factors = np.column_stack([-2.0 * inside, -2.0 * _rest(norms, inside), norms])
        right = np.ascontiguousarray(factors.T.astype(self._points.dtype))
        # rounding of as many terms, and of those of the distances, twice over
        epsilon = 4.0 * (len(right) + 8) * float(np.finfo(right.dtype).eps)
        largest = float(norms.max())
        n_rows = min(max(_BLOCK_NUMBERS // len(centres), 16), 1 << 10)

        def fill(start: int, stop: int) -> None:
            bounds = np.empty((min(n_rows, stop - start), len(centres)), right.dtype)
            for first in range(start, stop, n_rows):
                rows = slice(first, min(first + n_rows, stop))
                block = np.matmul(self._left[rows], right, out=bounds[: rows.stop - first])
                kernel(self._points[rows], self._squares[rows], centres, block, epsilon, largest, results[rows])

        run_over_ranges(fill, len(self._points), self._n_threads, size=_TASK_ROWS)

    def _project(self) -> None:
        """Make the left factor of the bounds: the projections of points, the lengths of what is left, and ones."""
        self._left = np.empty((len(self._points), self._directions.shape[1] + 2), self._points.dtype)

        def fill(start: int, stop: int) -> None:
            for first in range(start, stop, _TASK_ROWS):
                rows = slice(first, min(first + _TASK_ROWS, stop))
                inside = self._points[rows].astype(np.float64) @ self._directions
                self._left[rows, :-2] = inside
                self._left[rows, -2] = _rest(self._squares[rows], inside)
                self._left[rows, -1] = 1.0

        run_over_ranges(fill, len(self._points), self._n_threads, size=_TASK_ROWS)


def _rest(squares: NDArray[np.float64], inside: NDArray[np.float64]) -> NDArray[np.float64]:
    """Length of the part of each vector that is not in its projection."""
    return np.sqrt(np.maximum(squares - np.einsum("ij,ij->i", inside, inside), 0.0))
