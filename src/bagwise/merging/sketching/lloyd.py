"""k-means of the rows of a matrix by blocked products, also where a row may join a cluster with its sign turned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["BACKENDS", "Clustering", "assigner", "cluster_rows", "nearest_centres"]

BACKENDS = ("auto", "numpy", "faiss")
# Points whose products with all centres are held at a time.
_BLOCK = 512
# Centres of a start that are drawn before all distances are brought up to date.
_DRAWS = 64
# Mini-batches end when this many in a row bring nothing.
_PATIENCE = 10
_SMOOTHING = 0.3

Assignment = tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.float64]]
Assigner = Callable[[NDArray[Any], NDArray[Any], bool, int], Assignment]


@dataclass(frozen=True)
class Clustering:
    """Clusters of points.

    Parameters
    ----------
    labels : ndarray of int64, shape (n,)
        Cluster of each point; every cluster has one at least.
    signs : ndarray of int8, shape (n,)
        1 or -1: what each point is multiplied by in its cluster.
    costs : ndarray of shape (n_iter,)
        Weighted sum of squared distances to the means of clusters, after each iteration. Never grows.
    n_iter : int
        Iterations of the best start, of mini-batches where these were used.
    """

    labels: NDArray[np.int64]
    signs: NDArray[np.int8]
    costs: NDArray[np.float64]
    n_iter: int

    @property
    def cost(self) -> float:
        """The last of the costs."""
        return float(self.costs[-1])


def cluster_rows(
    points: NDArray[Any],
    n_clusters: int,
    *,
    weights: NDArray[np.float64] | None = None,
    bipolar: bool = False,
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-4,
    batch_size: int | None = None,
    backend: str = "auto",
    seed: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> Clustering:
    """Find clusters of small cost ``Σ_i w_i |σ_i x_i - c_{l(i)}|²``, where all σ are 1 unless `bipolar`.

    1. Draw centres among the points, each with probability proportional to its squared distance from those drawn
       before (k-means++).
    2. Give each point to its nearest centre; with `bipolar`, the nearest of all centres and their negatives.
       A cluster left without points gets the point that is farthest from its centre.
    3. Replace centres by means, and go on at 2 while the cost falls by more than the share `tol`.

    Parameters
    ----------
    points : ndarray of shape (n, size), float32 or float64
        Distinct points of moderate size: no products overflow.
    n_clusters : int
        At most n.
    weights : ndarray of shape (n,), default=None
        How often each point counts. None: once.
    bipolar : bool, default=False
        Whether points may be turned: nearest is then the centre with the least ``|c|² - 2 |x·c|``, and the sign that
        of ``x·c``, 1 if that is 0. The same as clustering points and their negatives with mirrored centres, at half
        the cost.
    n_init : int, default=1
        Number of starts, of which the best result is kept.
    max_iter : int, default=100
    tol : float, default=1e-4
    batch_size : int, default=None
        Points drawn for each iteration instead of all (mini-batches); then one iteration with all points ends it.
        None, or at least n: all points.
    backend : {"auto", "numpy", "faiss"}, default="auto"
        How the nearest centres are found: by products of blocks of points with all centres, or by faiss' exact search
        in float32. "auto" is "numpy": faiss was not faster where we measured both (``benchmarks/sketch.py``), since
        both spend their time in the same product, and with `bipolar` faiss needs twice as many centres.
    seed : int, default=0
    progress : callable, default=doing nothing
        Called with the number of iterations done, over all starts.

    Returns
    -------
    clustering : Clustering

    Notes
    -----
    An iteration takes O(n n_clusters size) time; beyond the points, memory for 512 rows of distances and the centres.
    Costs are summed in float64.
    """
    if not 1 <= n_clusters <= len(points):
        raise BagwiseError(f"n_clusters must be from 1 to the number of points, {len(points)}, got {n_clusters}.")
    assign = assigner(backend)
    weights = np.ones(len(points)) if weights is None else weights
    rng = np.random.default_rng(seed)
    best: Clustering | None = None
    with _threads_for_blocks(enabled=backend != "faiss") as n_threads:
        problem = _Problem(points, weights, _squares(points), bipolar, assign, n_threads)
        for start in range(n_init):

            def report(done: int, before: int = start * max_iter) -> None:
                progress(before + done)

            if batch_size is None or batch_size >= len(points):
                centres = points[problem.draw_centres(n_clusters, rng)]
                found = problem.iterate(centres, max_iter, tol, report)
            else:
                found = _mini_batches(problem, n_clusters, batch_size, max_iter, tol, rng, report)
            if best is None or found.cost < best.cost:
                best = found
            progress((start + 1) * max_iter)
    assert best is not None
    return best


@contextmanager
def _threads_for_blocks(enabled: bool) -> Iterator[int]:
    """Let the BLAS use one thread, and give the number that it had, for blocks that go on at the same time.

    Threads inside the BLAS wait for each other in every product; where others use the machine too, that takes several
    times as long.
    """
    controller = ThreadpoolController().select(user_api="blas")
    n_threads = max((library["num_threads"] for library in controller.info()), default=1)
    if not enabled or n_threads == 1:
        yield 1
        return
    with controller.limit(limits=1):
        yield n_threads


@dataclass(frozen=True)
class _Problem:
    """Points to be clustered, and how."""

    points: NDArray[Any]
    weights: NDArray[np.float64]
    squares: NDArray[np.float64]
    bipolar: bool
    assign: Assigner
    n_threads: int = 1

    def part(self, chosen: NDArray[np.int64]) -> _Problem:
        """Some of the points."""
        arrays = self.points[chosen], self.weights[chosen], self.squares[chosen]
        return _Problem(*arrays, self.bipolar, self.assign, self.n_threads)

    def draw_centres(self, n_clusters: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw points far from each other, by the rule of k-means++.

        Distances to all points are brought up to date for many centres at once, by one product. In between points are
        drawn by the old distances, and kept with probability new over old distance, which is the same rule.
        """
        chosen = [int(rng.choice(len(self.points), p=self.weights / self.weights.sum()))]
        distances = np.full(len(self.points), np.inf)
        fresh = chosen.copy()
        while len(chosen) < n_clusters:
            distances = np.minimum(distances, self._distances_to(fresh))
            distances[chosen] = 0.0
            reach = np.cumsum(self.weights * distances)
            wanted = min(len(chosen), _DRAWS, n_clusters - len(chosen))
            fresh = []
            if not reach[-1] > 0:  # the others differ from those chosen by less than rounding
                fresh = np.setdiff1d(np.arange(len(self.points)), chosen)[:wanted].tolist()
            tries = 0
            while len(fresh) < wanted and not (fresh and tries > 4 * wanted):
                tries += 1
                drawn = int(np.searchsorted(reach, rng.random() * reach[-1], side="right"))
                keep = rng.random()
                if drawn < len(distances) and drawn not in fresh and keep * distances[drawn] < self._now(drawn, fresh):
                    fresh.append(drawn)
            chosen += fresh
        return np.array(chosen, dtype=np.int64)

    def _now(self, point: int, fresh: list[int]) -> float:
        """Squared distance of a point to the nearest of a few others; infinite if there are none."""
        if not fresh:
            return np.inf
        products = self.points[fresh] @ self.points[point]
        if self.bipolar:
            products = abs(products)
        return float((self.squares[fresh] + self.squares[point] - 2.0 * products).min())

    def _distances_to(self, chosen: list[int]) -> NDArray[np.float64]:
        """Squared distance of each point to the nearest of the chosen ones."""
        others = np.ascontiguousarray(self.points[chosen].T)
        distances = np.empty(len(self.points))

        def fill(start: int, stop: int) -> None:
            for first in range(start, stop, 8 * _BLOCK):
                part = slice(first, min(first + 8 * _BLOCK, stop))
                products = self.points[part] @ others
                if self.bipolar:
                    np.abs(products, out=products)
                distances[part] = self.squares[part] + (self.squares[chosen] - 2.0 * products).min(axis=1)

        run_over_ranges(fill, len(self.points), self.n_threads, size=8 * _BLOCK)
        return np.maximum(distances, 0.0)

    def iterate(
        self, centres: NDArray[Any], max_iter: int, tol: float, report: Callable[[int], None] = lambda done: None
    ) -> Clustering:
        """Lloyd's iterations from given centres."""
        total = float(self.weights @ self.squares)
        costs: list[float] = []
        best: tuple[NDArray[np.int64], NDArray[np.int8]] | None = None
        for n_iter in range(1, max_iter + 1):
            labels, signs, scores = self.assign(self.points, centres, self.bipolar, self.n_threads)
            _fill_empty(labels, signs, self.squares - 2.0 * scores, len(centres))
            sums, masses = self.sums(labels, signs, len(centres))
            cost = max(total - float((np.einsum("ij,ij->i", sums, sums) / masses).sum()), 0.0)
            report(n_iter)
            if costs and cost >= costs[-1]:  # nothing gained, or only rounding
                break
            best = labels, signs
            costs.append(cost)
            if len(costs) > 1 and costs[-2] - cost <= tol * costs[-2]:
                break
            centres = (sums / masses[:, np.newaxis]).astype(self.points.dtype)
        assert best is not None
        return Clustering(*best, np.array(costs), n_iter)

    def sums(
        self, labels: NDArray[np.int64], signs: NDArray[np.int8], n_clusters: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum of the points of each cluster, and of their weights."""
        from bagwise.merging.sketching._lloyd_kernels import cluster_sums

        sums, masses = np.zeros((n_clusters, self.points.shape[1])), np.zeros(n_clusters)
        cluster_sums(self.points, self.weights, labels, signs, sums, masses)
        return sums, masses


def _mini_batches(
    problem: _Problem,
    n_clusters: int,
    batch_size: int,
    max_iter: int,
    tol: float,
    rng: np.random.Generator,
    report: Callable[[int], None],
) -> Clustering:
    """Move centres to the running means of what batches of random points give them; then one iteration with all."""
    n = len(problem.points)
    some = rng.choice(n, size=min(n, max(3 * batch_size, 8 * n_clusters)), replace=False)
    start = problem.part(some)
    centres = start.points[start.draw_centres(n_clusters, rng)].astype(np.float64)
    all_masses = np.zeros(n_clusters)
    smooth = lowest = np.inf
    waited, n_iter = 0, 0
    while n_iter < max_iter and waited < _PATIENCE:
        n_iter += 1
        batch = problem.part(rng.integers(0, n, size=batch_size))
        labels, signs, scores = batch.assign(
            batch.points, centres.astype(batch.points.dtype), batch.bipolar, batch.n_threads
        )
        sums, masses = batch.sums(labels, signs, n_clusters)
        all_masses += masses
        got = masses > 0
        centres[got] += (sums[got] - masses[got, np.newaxis] * centres[got]) / all_masses[got, np.newaxis]
        cost = float(batch.weights @ (batch.squares - 2.0 * scores) / batch.weights.sum())
        smooth = cost if smooth == np.inf else smooth + _SMOOTHING * (cost - smooth)
        if smooth < (1.0 - tol) * lowest:
            lowest, waited = smooth, 0
        else:
            waited += 1
        report(n_iter)
    found = problem.iterate(centres.astype(problem.points.dtype), 1, tol)
    return Clustering(found.labels, found.signs, found.costs, n_iter)


def _fill_empty(
    labels: NDArray[np.int64], signs: NDArray[np.int8], residuals: NDArray[np.float64], n_clusters: int
) -> None:
    """Give each empty cluster the point with the largest residual, out of a cluster that keeps another. In place."""
    sizes = np.bincount(labels, minlength=n_clusters)
    empty = np.flatnonzero(sizes == 0).tolist()
    if not empty:
        return
    for point in np.argsort(-residuals, kind="stable"):
        if sizes[labels[point]] > 1:
            sizes[labels[point]] -= 1
            labels[point], signs[point] = empty.pop(0), 1
            sizes[labels[point]] = 1
            if not empty:
                return


def _squares(points: NDArray[Any]) -> NDArray[np.float64]:
    """Squared length of each row, in float64."""
    squares = np.empty(len(points))
    for start in range(0, len(points), _BLOCK):
        block = points[start : start + _BLOCK].astype(np.float64)
        squares[start : start + _BLOCK] = np.einsum("ij,ij->i", block, block)
    return squares


def assigner(backend: str) -> Assigner:
    """Give the function that finds nearest centres; an error if there is none of that name, or it is not installed."""
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    if backend == "faiss":
        _faiss()
        return _nearest_by_faiss
    return nearest_centres


def nearest_centres(
    points: NDArray[Any], centres: NDArray[Any], bipolar: bool = False, n_threads: int = 1
) -> Assignment:
    """Find the nearest centre of each point, the lowest of equals; with `bipolar` among centres and negatives.

    Returns
    -------
    labels : ndarray of int64, shape (n,)
    signs : ndarray of int8, shape (n,)
    scores : ndarray of shape (n,)
        ``σ x·c - |c|² / 2``: the squared distance is ``|x|² - 2 score``.
    """
    halves = (0.5 * _squares(centres)).astype(points.dtype)
    across = np.ascontiguousarray(centres.T)
    labels = np.empty(len(points), dtype=np.int64)
    signs = np.ones(len(points), dtype=np.int8)
    scores = np.empty(len(points))

    def fill(start: int, stop: int) -> None:
        room = np.empty((min(_BLOCK, stop - start), len(centres)), dtype=points.dtype)
        for first in range(start, stop, _BLOCK):
            part = slice(first, min(first + _BLOCK, stop))
            products = np.matmul(points[part], across, out=room[: part.stop - first])
            values = np.abs(products) if bipolar else products
            values -= halves
            labels[part] = values.argmax(axis=1)
            at = np.arange(part.stop - first), labels[part]
            scores[part] = values[at]
            if bipolar:
                signs[part][products[at] < 0] = -1

    run_over_ranges(fill, len(points), n_threads, size=4 * _BLOCK)
    return labels, signs, scores


def _nearest_by_faiss(
    points: NDArray[Any], centres: NDArray[Any], bipolar: bool = False, n_threads: int = 1
) -> Assignment:
    """`nearest_centres` by faiss, in float32, with faiss' own threads."""
    index = _faiss().IndexFlatL2(centres.shape[1])
    index.add(np.ascontiguousarray(centres, dtype=np.float32))
    if bipolar:
        index.add(np.ascontiguousarray(-centres, dtype=np.float32))
    halves = 0.5 * _squares(centres)
    labels = np.empty(len(points), dtype=np.int64)
    signs = np.ones(len(points), dtype=np.int8)
    scores = np.empty(len(points))
    for start in range(0, len(points), 16 * _BLOCK):
        part = slice(start, start + 16 * _BLOCK)
        found = index.search(np.ascontiguousarray(points[part], dtype=np.float32), 1)[1][:, 0]
        labels[part] = found % len(centres)
        signs[part][found >= len(centres)] = -1
        products = np.einsum("ij,ij->i", points[part], centres[labels[part]])
        scores[part] = signs[part] * products - halves[labels[part]]
    return labels, signs, scores


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise BagwiseError(
            "backend='faiss' needs faiss, which cannot be imported. "
            'Install it by pip install "bagwise[ann]", or use backend="numpy".'
        ) from error
    return faiss
