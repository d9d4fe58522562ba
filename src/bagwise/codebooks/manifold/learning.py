"""Soft histograms of bags, and how they change when words or features move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.progress import ProgressBar
from bagwise._utils.threads import map_in_order, one_blas_thread, run_over_ranges
from bagwise.codebooks._kernels import pool_dense
from bagwise.codebooks.manifold import _kernels as kernels

__all__ = ["METRICS", "Adam", "Learning", "Objective", "SoftHistograms", "chi2_distances", "hellinger_distances",
           "learn_words", "pair_objective"]  # fmt: skip


# Features whose distances to all words are held at a time: few enough to stay in the cache.
_ROWS = 512
# Features that one thread takes in one go. Fixed, so that sums do not depend on the number of threads.
_TASK_ROWS = 16 * _ROWS


class SoftHistograms:
    """Histograms ``t_i = mean_j softmax_k(-|v_k - x_ij| / g)`` of fixed bags for changing words V.

    `values` and `offsets` are those of `Bags`; no bag may be empty. `bandwidth` is g. Features are multiplied by
    `scale`; words are given in units of the scaled features. Results do not depend on `n_threads`.

    Features are processed in blocks; no matrix of features by words is kept. Features and words are centred at the mean
    feature, so that data far from the origin lose no digits.
    """

    def __init__(
        self,
        values: NDArray[np.floating],
        offsets: NDArray[np.int64],
        bandwidth: float,
        n_threads: int = 1,
        *,
        scale: float = 1.0,
    ) -> None:
        self._values = values
        self._scale = float(scale)
        self._centre = self._scale * values.mean(axis=0, dtype=np.float64) if len(values) else 0.0
        self._offsets = np.asarray(offsets, dtype=np.int64)
        self._bandwidth = float(bandwidth)
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
        """Rows of a task, their centred features, distances to all words, and soft assignments, block by block."""
        V = V - self._centre
        word_squares = np.einsum("kd,kd->k", V, V)
        doubled = np.ascontiguousarray(-2.0 * V.T)
        stop = min((task + 1) * _TASK_ROWS, len(self._values))
        for start in range(task * _TASK_ROWS, stop, _ROWS):
            rows = slice(start, min(start + _ROWS, stop))
            x = self._scale * self._values[rows].astype(np.float64) - self._centre
            distances = x @ doubled
            U = np.empty_like(distances)
            kernels.finish_distances(distances, np.einsum("nd,nd->n", x, x), word_squares, self._bandwidth, U)
            np.exp(U, out=U)
            kernels.finish_softmax(U)
            yield rows, x, distances, U

    def _run(self, work: Callable[[int], Any]) -> list[Any]:
        """Run all tasks on several threads; results are in the order of tasks."""
        n_tasks = -(-len(self._values) // _TASK_ROWS)
        with one_blas_thread():
            return list(map_in_order(work, range(n_tasks), min(self._n_threads, n_tasks)))

    def histograms(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """One histogram per bag: bags x words, rows that sum to 1."""

        def work(task: int) -> tuple[int, NDArray[np.float64]]:
            first, last = task * _TASK_ROWS, min((task + 1) * _TASK_ROWS, len(self._values))
            first_bag, last_bag = self._bag_of[first], self._bag_of[last - 1]
            sums = np.zeros((last_bag - first_bag + 1, len(V)))
            for rows, _, _, U in self._blocks(V, task):
                pool_dense(U, self._bag_of[rows, np.newaxis] - first_bag, False, sums)
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
        word lies on a feature. With `features`, the gradient with respect to the (scaled) features is returned as well.
        """
        by_feature = np.empty(self._values.shape) if features else None
        centred = V - self._centre
        scale = -1.0 / (self._bandwidth * self._lengths)

        def work(task: int) -> NDArray[np.float64]:
            gradient = np.zeros_like(V)
            for rows, x, distances, U in self._blocks(V, task):
                q = np.empty_like(U)
                kernels.pull_back_rows(U, distances, G, self._bag_of[rows], scale, q)
                gradient += q.sum(axis=0)[:, np.newaxis] * centred
                gradient -= q.T @ x
                if by_feature is not None:
                    by_feature[rows] = q.sum(axis=1)[:, np.newaxis] * x - q @ centred
            return gradient

        return np.sum(self._run(work), axis=0), by_feature


# Pairs are summed in this many parts, which several threads share; their order does not depend on how many there are.
_PARTS = 8


class Objective(NamedTuple):
    """Result of `pair_objective`."""

    value: float
    held_out: float  # the same for the pairs held out; NaN if there are none
    gradient: NDArray[np.float64]


def chi2_distances(
    left: NDArray[np.float64], right: NDArray[np.float64] | None = None, n_threads: int = 1
) -> NDArray[np.float64]:
    """Distances ``½ Σ_k (a_k - b_k)² / (a_k + b_k)`` between histograms, 0/0 = 0: in [0, 1] if they sum to 1."""
    left = np.ascontiguousarray(left, dtype=np.float64)
    right = left if right is None else np.ascontiguousarray(right, dtype=np.float64)
    out = np.empty((len(left), len(right)))
    run_over_ranges(lambda start, stop: kernels.fill_chi2_rows(left, right, start, stop, out), len(left), n_threads, 64)
    return out


def hellinger_distances(
    left: NDArray[np.float64], right: NDArray[np.float64] | None = None, n_threads: int = 1
) -> NDArray[np.float64]:
    """Squared Hellinger distances ``½ Σ_k (√a_k - √b_k)²`` between histograms: in [0, 1] if they sum to 1.

    They are between half of the chi² distances and these. Computed as a matrix product, so much faster.
    """
    left = np.asarray(left, dtype=np.float64)
    symmetric = right is None
    right = left if right is None else np.asarray(right, dtype=np.float64)
    roots, other = np.sqrt(left), np.sqrt(right).T
    out = np.empty((len(left), len(right)))
    halves = 0.5 * left.sum(axis=1)[:, np.newaxis], 0.5 * right.sum(axis=1)

    def fill(start: int, stop: int) -> None:
        np.matmul(roots[start:stop], other, out=out[start:stop])
        np.subtract(halves[0][start:stop] + halves[1], out[start:stop], out=out[start:stop])

    with one_blas_thread():
        run_over_ranges(fill, len(left), n_threads)
    if symmetric:
        np.fill_diagonal(out, 0.0)
    return np.maximum(out, 0.0, out=out)


METRICS = {"chi2": chi2_distances, "hellinger": hellinger_distances}


def pair_objective(
    T: NDArray[np.float64],
    target: NDArray[np.floating],
    sigma: float,
    *,
    metric: str = "chi2",
    held_out: float = 0.0,
    n_threads: int = 1,
) -> Objective:
    """Sum ``½ (exp(-distance(t_i, t_j) / sigma) - target_ij)²`` over all ordered pairs, with its gradient.

    T holds histograms in rows, `target` their symmetric similarities; the distance is that of `METRICS`. A fraction
    `held_out` of the pairs, always the same ones, enters neither the value nor the gradient and is summed separately.
    O(n² n_words) time, and memory for a few gradients; never anything of the order n² n_words.
    """
    T = np.ascontiguousarray(T, dtype=np.float64)
    threshold = np.uint64(round(held_out * 2**53))
    add = _hellinger_objective if metric == "hellinger" else _chi2_objective
    (value, apart), gradient = add(T, target, sigma, threshold, n_threads)
    return Objective(value, apart if threshold else float("nan"), gradient)


def _hellinger_objective(
    T: NDArray[np.float64], target: NDArray[np.floating], sigma: float, threshold: np.uint64, n_threads: int
) -> tuple[list[float], NDArray[np.float64]]:
    """Sums over the pairs learned from and over those held out; and the gradient of the first.

    ``∂hellinger(a, b)/∂a_k = ½ (1 - √b_k / √a_k)``, taken to be 0 where a_k is 0.
    """
    n = len(T)
    roots, halves = np.sqrt(T), 0.5 * T.sum(axis=1)
    inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=np.finfo(np.float64).tiny <= T)
    gradient, sums = np.empty_like(T), np.zeros((-(-n // _ROWS), 2))

    def add(first: int, last: int) -> None:
        for part in range(first, last):
            rows = slice(part * _ROWS, min((part + 1) * _ROWS, n))
            slopes = roots[rows] @ roots.T
            kernels.turn_into_slopes(slopes, halves, target, sigma, threshold, rows.start, sums[part])
            gradient[rows] = slopes.sum(axis=1)[:, np.newaxis] - (slopes @ roots) * inverse[rows]

    with one_blas_thread():
        run_over_ranges(add, len(sums), n_threads, 1)
    gradient *= inverse > 0
    return sums.sum(axis=0).tolist(), gradient


def _chi2_objective(
    T: NDArray[np.float64], target: NDArray[np.floating], sigma: float, threshold: np.uint64, n_threads: int
) -> tuple[list[float], NDArray[np.float64]]:
    """Sums over the pairs learned from and over those held out; and the gradient of the first."""
    n = len(T)
    # equal numbers of pairs: row l has l of them
    ends = np.rint(n * np.sqrt(np.linspace(0.0, 1.0, _PARTS + 1))).astype(np.int64)
    gradients = np.zeros((_PARTS, *T.shape))
    sums = np.zeros((_PARTS, 2))

    def add(first: int, last: int) -> None:
        for part in range(first, last):
            kernels.add_pairs(T, target, sigma, threshold, ends[part], ends[part + 1], gradients[part], sums[part])

    run_over_ranges(add, _PARTS, n_threads, 1)
    return sums.sum(axis=0).tolist(), gradients.sum(axis=0)


class Adam:
    """Adam's steps with bias correction, for one array."""

    def __init__(self, rate: float, shape: tuple[int, ...]) -> None:
        self._rate = rate
        self._mean = np.zeros(shape)
        self._square = np.zeros(shape)
        self._n = 0

    def step(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """The change of the array."""
        self._n += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient**2 - self._square)
        mean = self._mean / (1 - 0.9**self._n)
        square = self._square / (1 - 0.999**self._n)
        return -self._rate * mean / (np.sqrt(square) + 1e-8)


@dataclass
class Learning:
    """Result of `learn_words`. Objectives are per pair, before the first step and after each."""

    words: NDArray[np.float64]
    objective: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)  # empty unless pairs are held out
    n_iter: int = 0  # steps that led to the words


def learn_words(
    soft: SoftHistograms,
    words: NDArray[np.float64],
    target: NDArray[np.float64],
    *,
    sigma: float,
    max_iter: int,
    learning_rate: float,
    metric: str = "chi2",
    held_out: float = 0.0,
    patience: int = 2,
    retarget: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    retarget_every: int | None = None,
    callback: Callable[[int, float], Any] | None = None,
    n_threads: int = 1,
    verbose: int = 0,
) -> Learning:
    """Move words so that the similarities of histograms come close to a target.

    With `held_out` pairs, learning ends once their error has not fallen for `patience` steps, and the words with the
    lowest error are kept. After every `retarget_every` steps `retarget` gives a new target for the current histograms;
    errors before and after that are not compared. A callback gets the number of steps and the objective, and ends
    learning by returning True.
    """
    n = soft.n_bags
    n_pairs = n * (n - 1) / 2
    learning = Learning(words.copy())
    adam = Adam(learning_rate, words.shape)
    words = words.copy()
    waited, since = 0, 0
    with ProgressBar("moving words", max_iter + 1, enabled=verbose > 0) as bar:
        for step in range(max_iter + 1):
            T = soft.histograms(words)
            if retarget is not None and retarget_every is not None and step and step % retarget_every == 0:
                target, since = retarget(T), step
            result = pair_objective(T, target, sigma, metric=metric, held_out=held_out, n_threads=n_threads)
            learning.objective.append(result.value / (n_pairs * (1.0 - held_out)))
            improved = True
            if held_out > 0:
                error = result.held_out / (n_pairs * held_out)
                improved = error < min(learning.held_out[since:], default=np.inf)
                learning.held_out.append(error)
            if improved:
                learning.words, learning.n_iter, waited = words.copy(), step, 0
            else:
                waited += 1
            bar.update(step + 1)
            answer = None if callback is None else callback(step, learning.objective[-1])
            if (isinstance(answer, (bool, np.bool_)) and answer) or waited >= patience or step == max_iter:
                break
            words += adam.step(soft.pull_back(words, result.gradient)[0])
    return learning
