"""Soft histograms of bags, and how they change when words or features move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.threads import one_blas_thread, run_over_ranges
from bagwise.codebooks.manifold import _manifold_kernels as kernels

__all__ = ["SoftHistograms"]

# Features whose distances to all words are held at a time: few enough to stay in the cache.
_ROWS = 512
# Features that one thread takes in one go. Fixed, so that sums do not depend on the number of threads.
_TASK_ROWS = 16 * _ROWS


class SoftHistograms:
    """Histograms ``t_i = mean_j softmax_k(-|v_k - x_ij| / g)`` of fixed bags for changing words V.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_features)
        Features of all bags, bag after bag.
    offsets : ndarray of int, shape (n_bags + 1,)
        Where bags begin and end. No bag may be empty.
    softness : float
        g. The exponent is the distance over g, not its square.
    n_threads : int, default=1
        The result does not depend on it.

    Notes
    -----
    Works through the features in blocks; nothing of features by words is kept.
    """

    def __init__(
        self, values: NDArray[np.floating], offsets: NDArray[np.int64], softness: float, n_threads: int = 1
    ) -> None:
        self._values = values
        self._offsets = np.asarray(offsets, dtype=np.int64)
        self._softness = float(softness)
        self._n_threads = n_threads
        self._lengths = np.diff(self._offsets)
        self._bag_of = np.repeat(np.arange(len(self._lengths)), self._lengths)

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return len(self._lengths)

    def _blocks(
        self, V: NDArray[np.float64], task: int
    ) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any], NDArray[Any]]]:
        """Rows of a task, their features, distances to all words, and soft assignments, block by block."""
        word_squares = np.einsum("kd,kd->k", V, V)
        doubled = np.ascontiguousarray(-2.0 * V.T)
        stop = min((task + 1) * _TASK_ROWS, len(self._values))
        for start in range(task * _TASK_ROWS, stop, _ROWS):
            rows = slice(start, min(start + _ROWS, stop))
            x = np.asarray(self._values[rows], dtype=np.float64)
            distances = x @ doubled
            U = np.empty_like(distances)
            squares = np.einsum("nd,nd->n", x, x)
            kernels.finish_distances(distances, squares, word_squares, self._softness, U)
            np.exp(U, out=U)
            kernels.finish_softmax(U)
            yield rows, x, distances, U

    def _run(self, work: Callable[[int], Any]) -> list[Any]:
        """Do all tasks, on several threads; results in their order."""
        n_tasks = -(-len(self._values) // _TASK_ROWS)
        results: list[Any] = [None] * n_tasks

        def some(first: int, last: int) -> None:
            for task in range(first, last):
                results[task] = work(task)

        with one_blas_thread():
            run_over_ranges(some, n_tasks, self._n_threads, size=1)
        return results

    def histograms(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """One histogram a bag: bags x words, rows that sum to 1."""

        def work(task: int) -> tuple[int, NDArray[np.float64]]:
            first, last = task * _TASK_ROWS, min((task + 1) * _TASK_ROWS, len(self._values))
            first_bag, last_bag = self._bag_of[first], self._bag_of[last - 1]
            sums = np.zeros((last_bag - first_bag + 1, len(V)))
            for rows, _, _, U in self._blocks(V, task):
                kernels.add_by_bag(U, self._bag_of[rows], first_bag, sums)
            return int(first_bag), sums

        T = np.zeros((self.n_bags, len(V)))
        for first_bag, sums in self._run(work):
            T[first_bag : first_bag + len(sums)] += sums
        return T / self._lengths[:, np.newaxis]

    def pull_back(
        self, V: NDArray[np.float64], G: NDArray[np.float64], *, features: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Turn the gradient G of an objective with respect to the histograms into that with respect to the words.

        With ``c = U (G - Σ_k U G)`` it is ``-1/g Σ (1 / N_l) c (v - x) / |v - x|``, the unit vector being 0 where a
        word lies on a feature. With `features`, the gradient with respect to the features is given as well.
        """
        by_feature = np.empty(self._values.shape) if features else None
        scale = -1.0 / (self._softness * self._lengths)

        def work(task: int) -> NDArray[np.float64]:
            gradient = np.zeros_like(V)
            for rows, x, distances, U in self._blocks(V, task):
                q = np.empty_like(U)
                kernels.pull_back_rows(U, distances, G, self._bag_of[rows], scale, q)
                gradient += q.sum(axis=0)[:, np.newaxis] * V
                gradient -= q.T @ x
                if by_feature is not None:
                    by_feature[rows] = q.sum(axis=1)[:, np.newaxis] * x - q @ V
            return gradient

        return np.sum(self._run(work), axis=0), by_feature
