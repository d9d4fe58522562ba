"""k-means: seeding, assignment and Lloyd's iterations, for codebooks and for grouping features."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.backends import backend
from bagwise._utils.checks import check_integer, generator
from bagwise._utils.threads import number_of_threads, one_blas_thread, run_over_ranges
from bagwise.codebooks import _kernels as kernels
from bagwise.codebooks.batches import sample_vectors
from bagwise.codebooks.centre_search import CentreSearch
from bagwise.codebooks.distances import WordDistances, assign, check_norms
from bagwise.errors import BagwiseError, argument, in_python

__all__ = ["Clustering", "KMeansWords", "Problem", "distinct_rows", "kmeans", "kmeans_words", "learn_codebook"]

# Rows of one task. Fixed, so that results do not depend on the number of threads.
_TASK_ROWS = 1 << 12
# Rows whose distances are computed at a time, in float64.
_BLOCK_ROWS = 1 << 9
# Seeds drawn before the distances of all points are updated.
_DRAWS = 64
# Mini-batch iterations end when this many in a row bring no improvement.
_PATIENCE = 10
_SMOOTHING = 0.3
# Iterations that drawing seeds counts as, where progress is reported: what it takes for 1000 words.
_SEEDING = 2


def no_report(done: int, total: int) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class KMeansWords:
    """Result of `kmeans_words`.

    Attributes
    ----------
    words : ndarray of shape (n_words, D)
    inertia : float
        Sum of squared distances from the vectors to the words they had when iterations ended, the means of them.
    n_iter : int
        Iterations of the best run.
    """

    words: NDArray[Any]
    inertia: float
    n_iter: int


def learn_codebook(
    bags: Any,
    n_words: int = 1000,
    *,
    n_samples: int = 100_000,
    n_init: int = 1,
    max_iter: int = 25,
    tol: float = 1e-3,
    random_state: Any = None,
    n_jobs: int | None = None,
    device: str | None = None,
) -> NDArray[Any]:
    """Learn words from bags by k-means.

    1. At most `n_samples` vectors are drawn uniformly from all bags. Vectors of zeros are left out.
    2. k-means++ draws seeds among them; Lloyd's iterations move words to the means of their vectors.
    3. With `n_init` above 1, this is repeated with other seeds, and the smallest sum of squared distances kept.

    Parameters
    ----------
    bags : Bags, iterable of Bags, or list of matrices
        Read once, so that an iterator over batches is accepted; only the sample is kept.
    n_words : int, default=1000
    n_samples : int, default=100_000
    n_init : int, default=1
        Number of runs with different seeds.
    max_iter : int, default=25
        Largest number of iterations of one run.
    tol : float, default=1e-3
        A run ends when an iteration lowers the sum of squared distances by no more than this fraction of it. 0: when
        it does not fall.
    random_state : int, Generator, RandomState or None, default=None
    n_jobs : int, default=None
    device : {"cpu", "cuda"}, default=None
        Where k-means runs. None: where the vectors are.

    Returns
    -------
    codebook : ndarray of shape (n_words, D)
        float64 if the vectors are (or are large integers), otherwise float32.

    Notes
    -----
    O(n_samples n_words D) time per iteration, and about as much for seeding as for one or two iterations. The defaults
    end after some 10 iterations; ``n_init=5, max_iter=100, tol=1e-5``, which papers take, lowers the sum of squares by
    about half a percent. What it does to errors of classifiers is in ``benchmarks/kmeans.py``.

    References
    ----------
    D. Arthur, S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import Bags
    >>> from bagwise.codebooks import learn_codebook
    >>> bags = Bags.from_list([[[0, 1], [5, 5]], [[1, 0], [6, 6], [0, 0]]])
    >>> words = learn_codebook(bags, n_words=2, random_state=0)
    >>> words[np.argsort(words[:, 0])]
    array([[0.5, 0.5],
           [5.5, 5.5]], dtype=float32)
    """
    random = generator(random_state)
    vectors = sample_vectors(bags, n_samples, random)[0]
    return kmeans_words(
        vectors, n_words, n_init=n_init, max_iter=max_iter, tol=tol, random_state=random, n_jobs=n_jobs, device=device
    ).words


def kmeans_words(
    vectors: Any,
    n_words: int,
    *,
    n_init: int = 1,
    max_iter: int = 25,
    tol: float = 1e-3,
    random_state: Any = None,
    n_jobs: int | None = None,
    progress: Callable[[int, int], None] = no_report,
    fewer: bool = False,
    device: str | None = None,
) -> KMeansWords:
    """Learn words from a matrix of vectors, as `learn_codebook` does from its sample.

    Parameters
    ----------
    vectors : array-like of shape (n, D)
        At least `n_words` of them must differ. Those on a CUDA device stay there, and so do the words.
    n_words, n_init, max_iter, tol, random_state, n_jobs, device
        As in `learn_codebook`.
    progress
        As in `kmeans`.
    fewer : bool, default=False
        Where fewer vectors differ, learn as many words as that, instead of raising an error.

    Returns
    -------
    found : KMeansWords
    """
    n_words, n_init = check_integer(n_words, "n_words", 1), check_integer(n_init, "n_init", 1)
    max_iter = check_integer(max_iter, "max_iter", 1)
    module = backend("codebooks", device, vectors)
    if len(vectors) < (1 if fewer else n_words):
        few = in_python(f"n_samples={len(vectors)}", str(len(vectors)))
        raise BagwiseError(
            f"{argument('n_words', n_words)}, but there are only {few} vectors to learn words from "
            "(vectors of zeros do not count). Use fewer words or more items."
        )
    values = module.points(vectors)
    first, which = module.distinct_rows(values)
    n_words = min(n_words, len(first)) if fewer else n_words
    if len(first) < n_words:
        raise BagwiseError(
            f"{argument('n_words', n_words)}, but only {len(first)} of the {len(values)} vectors differ. "
            "Use fewer words."
        )
    points = values[first]
    points -= values.mean(axis=0, dtype=np.float64).astype(values.dtype)  # far from the origin, products lose digits
    clustering = kmeans(
        points,
        n_words,
        weights=np.bincount(which).astype(np.float64),
        n_init=n_init,
        max_iter=max_iter,
        tol=tol,
        random_state=random_state,
        n_threads=number_of_threads(n_jobs),
        progress=progress,
    )
    every = clustering.labels[which]
    signs = np.ones_like(every, dtype=np.int8)
    sums, masses = module.Problem.sums(values, np.ones_like(every, dtype=np.float64), every, signs, n_words)
    words = (sums / masses[:, np.newaxis]).astype(values.dtype)
    inertia = float(module.Problem.squared_distances(values, words, every, signs).sum())
    return KMeansWords(module.where_given(words, vectors), inertia, clustering.n_iter)


def distinct_rows(values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find equal rows of a float matrix in C order, 0 and -0 being equal.

    Returns `first`, the index of the first row of each value, ascending, and `which`: row i equals
    ``values[first[which[i]]]``.
    """
    hashes = np.empty(len(values), np.uint64)
    kernels.hash_rows(values, values.view(np.uint32 if values.dtype == np.float32 else np.uint64), hashes)
    _, first, same_hash = np.unique(hashes, return_index=True, return_inverse=True)
    like = first[same_hash]
    equal = kernels.equal_rows(values, like)
    return np.unique(np.where(equal, like, np.arange(len(values))), return_inverse=True)


@dataclass(frozen=True)
class Clustering:
    """Result of `kmeans`."""

    labels: NDArray[np.intp]  # of points; no cluster is empty
    signs: NDArray[np.int8]  # factor of each point in its cluster: 1 or -1
    costs: NDArray[np.float64]  # weighted sum of squared distances to the means after each iteration; never grows
    n_iter: int  # of the best run; mini-batch iterations if these were used

    @property
    def cost(self) -> float:
        """The last of the costs."""
        return float(self.costs[-1])


def kmeans(
    points: NDArray[Any],
    n_clusters: int,
    *,
    weights: NDArray[np.float64] | None = None,
    bipolar: bool = False,
    n_init: int = 1,
    max_iter: int = 100,
    tol: float = 1e-4,
    batch_size: int | None = None,
    random_state: Any = None,
    n_threads: int = 1,
    progress: Callable[[int, int], None] = no_report,
) -> Clustering:
    """Minimise the cost ``Σ_i w_i |σ_i x_i - c_{l(i)}|²``, where all signs σ are 1 unless `bipolar`.

    1. Draw centres among the points, each with probability proportional to its squared distance from those drawn
       before (k-means++).
    2. Assign each point to its nearest centre; with `bipolar`, the nearest of all centres and their negatives.
       An empty cluster receives the point that is farthest from its centre.
    3. Replace centres by means, and repeat from 2 while the cost falls by more than the fraction `tol`.

    `points` are distinct float32 or float64 rows whose squares do not overflow; data far from the origin should be
    centred. With `bipolar` the nearest centre is that with the least ``|c|² - 2 |x·c|``, and the sign that of ``x·c``,
    1 if that is 0. This equals clustering points and their negatives with mirrored centres, at half the cost.
    The best of `n_init` runs with different seeds is returned. A `batch_size` below the number of points draws so many
    for each iteration (mini-batches), followed by one iteration with all. The result does not depend on `n_threads`.
    `progress` is called with the number of iterations done and the largest number there may be, over all runs; drawing
    seeds counts as two. A run that ends early is counted as if it had reached its largest number.

    An iteration takes O(n n_clusters size) time; memory for the centres and blocks of distances. Costs are summed in
    float64. Points on a CUDA device are clustered there, and results stay there.
    """
    if not 1 <= n_clusters <= len(points):
        raise BagwiseError(f"n_clusters must be from 1 to the number of points, {len(points)}, got {n_clusters}.")
    random = generator(random_state)
    problem = backend("codebooks", None, points).Problem(points, weights, bipolar, n_threads)
    best: Clustering | None = None
    of_run = _SEEDING + max_iter
    size_of_batches = None if batch_size is None or batch_size >= len(points) else batch_size
    with one_blas_thread():
        if size_of_batches is None:
            problem.expect_iterations(n_clusters)
        for run in range(n_init):

            def report(done: int, before: int = run * of_run) -> None:
                progress(before + done, n_init * of_run)

            report(0)
            if size_of_batches is None:
                clustering = problem.iterate(
                    points[problem.draw_seeds(n_clusters, random, report)], max_iter, tol, report
                )
            else:
                clustering = _mini_batches(problem, n_clusters, size_of_batches, max_iter, tol, random, report)
            if best is None or clustering.cost < best.cost:
                best = clustering
            report(of_run)
    assert best is not None  # n_init is at least 1
    return best


class Problem:
    """Weighted points to be clustered."""

    xp: Any = np  # array module
    block_rows = _BLOCK_ROWS

    def __init__(
        self, points: NDArray[Any], weights: NDArray[np.float64] | None, bipolar: bool, n_threads: int = 1
    ) -> None:
        self.points, self.bipolar, self.n_threads = points, bipolar, n_threads
        self.weights = self.xp.ones(len(points)) if weights is None else weights
        self.squares = self._squares()
        check_norms(self.squares, points.dtype, "A vector")
        self._search: CentreSearch | None = None

    @staticmethod
    def host(array: Any) -> Any:
        """Return an array on the host."""
        return array

    @staticmethod
    def sums(
        points: NDArray[Any],
        weights: NDArray[np.float64],
        labels: NDArray[np.intp],
        signs: NDArray[np.int8],
        n_clusters: int,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Sum of the weighted points of each cluster, and of their weights."""
        sums, masses = np.zeros((n_clusters, points.shape[1])), np.zeros(n_clusters)
        kernels.cluster_sums(points, weights, labels, signs, sums, masses)
        return sums, masses

    @classmethod
    def squared_distances(
        cls, points: NDArray[Any], centres: NDArray[Any], labels: NDArray[np.intp], signs: NDArray[np.int8]
    ) -> NDArray[np.float64]:
        """Squared distance of each point, times its sign, to its centre."""
        squares = np.empty_like(points, dtype=np.float64, shape=len(points))
        for start in range(0, len(points), cls.block_rows):
            rows = slice(start, start + cls.block_rows)
            apart = signs[rows, np.newaxis] * points[rows].astype(np.float64) - centres[labels[rows]]
            squares[rows] = np.einsum("ij,ij->i", apart, apart)
        return squares

    def expect_iterations(self, n_clusters: int) -> None:
        """Prepare for several iterations with all points, where that saves time."""
        if not self.bipolar:
            self._search = CentreSearch.of(self.points, self.squares, n_clusters, self.n_threads)

    def _squares(self) -> NDArray[np.float64]:
        return np.einsum("ij,ij->i", self.points, self.points, dtype=np.float64)

    def part(self, chosen: NDArray[np.int64]) -> Problem:
        """Some of the points."""
        chosen = self.xp.asarray(chosen)
        return type(self)(self.points[chosen], self.weights[chosen], self.bipolar, self.n_threads)

    def assign(
        self, centres: NDArray[Any], before: NDArray[np.intp] | None = None
    ) -> tuple[NDArray[np.intp], NDArray[np.int8]]:
        """Labels and signs of the points for given centres; `before` are the last labels, which save time."""
        if self._search is not None:
            return self._search.nearest(centres, before), np.ones(len(self.points), np.int8)
        return assign(self.points, WordDistances(centres, bipolar=self.bipolar), self.n_threads)

    def draw_seeds(
        self, n_clusters: int, random: np.random.Generator, report: Callable[[int], None] = lambda done: None
    ) -> NDArray[np.int64]:
        """Draw numbers of points by the rule of k-means++.

        The distances of all points are updated for many seeds at once, by one matrix product. In between, points are
        drawn by the old distances and accepted with probability new over old distance, which is the same rule.
        """
        weights = self.host(self.weights)
        chosen = [int(random.choice(len(self.points), p=weights / weights.sum()))]
        distances = self.xp.full(len(self.points), np.inf)
        fresh = chosen.copy()
        while len(chosen) < n_clusters:
            distances = self._nearer(distances, fresh)
            distances[self.xp.asarray(chosen)] = 0.0
            reach = np.cumsum(self.weights * distances)
            wanted = min(len(chosen), _DRAWS, n_clusters - len(chosen))
            fresh = []
            if not reach[-1] > 0:  # the others differ from those chosen by less than rounding
                fresh = np.setdiff1d(np.arange(len(self.points)), chosen)[:wanted].tolist()
            tries, draws = 0, self._draws(reach, distances, random)
            while len(fresh) < wanted and not (fresh and tries > 4 * wanted):
                tries += 1
                drawn, distance, keep = next(draws)
                if (
                    drawn < len(distances)
                    and drawn not in fresh
                    and (not fresh or keep * distance < self._distance(drawn, fresh))
                ):
                    fresh.append(drawn)
            draws.close()
            chosen += fresh
            report(_SEEDING * len(chosen) // n_clusters)
        return self.xp.asarray(chosen, dtype=np.int64)

    def _draws(self, reach: Any, distances: Any, random: np.random.Generator) -> Generator[tuple[int, float, float]]:
        """Draw points by their distances: number, distance, and a random number that decides whether to keep it.

        The number is beyond the last point if sums were rounded up.
        """
        while True:
            drawn = int(np.searchsorted(reach, random.random() * reach[-1], side="right"))
            yield drawn, distances[drawn] if drawn < len(distances) else 0.0, random.random()

    def _distance(self, point: int, others: list[int]) -> float:
        """Squared distance of a point to the nearest of a few others."""
        products = self.points[others] @ self.points[point]
        if self.bipolar:
            products = abs(products)
        return float((self.squares[others] + self.squares[point] - 2.0 * products).min())

    def _nearer(self, distances: Any, chosen: list[int]) -> Any:
        """Squared distances of the points to the nearest of the chosen ones, where these are below `distances`."""
        if self._search is not None:
            return self._search.nearer(self.points[chosen], distances)
        return np.minimum(distances, self._distances_to(chosen))

    def _distances_to(self, chosen: list[int]) -> NDArray[np.float64]:
        """Squared distance of each point to the nearest of the chosen ones."""
        others = np.ascontiguousarray(self.points[chosen].T)
        distances = np.empty(len(self.points))

        def fill(start: int, stop: int) -> None:
            for first in range(start, stop, _BLOCK_ROWS):
                part = slice(first, min(first + _BLOCK_ROWS, stop))
                products = self.points[part] @ others
                if self.bipolar:
                    np.abs(products, out=products)
                distances[part] = self.squares[part] + (self.squares[chosen] - 2.0 * products).min(axis=1)

        run_over_ranges(fill, len(self.points), self.n_threads, size=_TASK_ROWS)
        return np.maximum(distances, 0.0)

    def iterate(
        self, centres: NDArray[Any], max_iter: int, tol: float, report: Callable[[int], None] = lambda done: None
    ) -> Clustering:
        """Lloyd's iterations from given centres."""
        total = float(self.weights @ self.squares)
        costs: list[float] = []
        best: tuple[NDArray[np.intp], NDArray[np.int8]] | None = None
        n_iter = 0
        for n_iter in range(1, max_iter + 1):
            labels, signs = self.assign(centres, None if best is None else best[0])
            if self.xp.bincount(labels, minlength=len(centres)).min() == 0:
                apart = self.host(self.squared_distances(self.points, centres, labels, signs))
                labels, signs = self.host(labels), self.host(signs)
                _fill_empty(labels, signs, apart, len(centres))
                labels, signs = self.xp.asarray(labels), self.xp.asarray(signs)
            sums, masses = self.sums(self.points, self.weights, labels, signs, len(centres))
            cost = max(total - float((np.einsum("ij,ij->i", sums, sums) / masses).sum()), 0.0)
            report(_SEEDING + n_iter)
            if costs and cost >= costs[-1]:  # converged up to rounding
                break
            best = labels, signs
            costs.append(cost)
            if len(costs) > 1 and costs[-2] - cost <= tol * costs[-2]:
                break
            centres = (sums / masses[:, np.newaxis]).astype(self.points.dtype)
        assert best is not None  # max_iter is at least 1
        return Clustering(*best, np.array(costs), n_iter)


def _mini_batches(
    problem: Problem,
    n_clusters: int,
    batch_size: int,
    max_iter: int,
    tol: float,
    random: np.random.Generator,
    report: Callable[[int], None],
) -> Clustering:
    """Move centres to the running means of the points that random batches assign to them; end with all points."""
    n = len(problem.points)
    sample = problem.part(random.choice(n, size=min(n, max(3 * batch_size, 8 * n_clusters)), replace=False))
    centres = sample.points[sample.draw_seeds(n_clusters, random, report)].astype(np.float64)
    all_masses = problem.xp.zeros(n_clusters)
    smooth = lowest = np.inf
    waited, n_iter = 0, 0
    while n_iter < max_iter and waited < _PATIENCE:
        n_iter += 1
        batch = problem.part(random.integers(0, n, size=batch_size))
        labels, signs = batch.assign(centres.astype(problem.points.dtype))
        sums, masses = problem.sums(batch.points, batch.weights, labels, signs, n_clusters)
        # Σ w |σx - c|² for the centres before they move
        cost = float(batch.weights @ batch.squares - 2.0 * np.vdot(sums, centres) + masses @ (centres**2).sum(axis=1))
        cost /= float(batch.weights.sum())
        all_masses += masses
        got = masses > 0
        centres[got] += (sums[got] - masses[got, np.newaxis] * centres[got]) / all_masses[got, np.newaxis]
        smooth = cost if smooth == np.inf else smooth + _SMOOTHING * (cost - smooth)
        if smooth < (1.0 - tol) * lowest:
            lowest, waited = smooth, 0
        else:
            waited += 1
        report(_SEEDING + n_iter)
    clustering = problem.iterate(centres.astype(problem.points.dtype), 1, tol)
    return Clustering(clustering.labels, clustering.signs, clustering.costs, n_iter)


def _fill_empty(
    labels: NDArray[np.intp], signs: NDArray[np.int8], distances: NDArray[np.float64], n_clusters: int
) -> None:
    """Give each empty cluster the point farthest from its centre, but never a cluster's only point. In place."""
    sizes = np.bincount(labels, minlength=n_clusters)
    empty = np.flatnonzero(sizes == 0).tolist()
    for point in np.argsort(-distances, kind="stable"):
        if not empty:
            return
        if sizes[labels[point]] > 1:
            sizes[labels[point]] -= 1
            labels[point], signs[point] = empty.pop(0), 1
            sizes[labels[point]] = 1
