"""Words by k-means: seeding, Lloyd's iterations, restarts, and other libraries that do the iterations."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from bagwise._utils.checks import as_count, generator
from bagwise._utils.extras import require
from bagwise._utils.threads import one_blas_thread, run_over_ranges
from bagwise.codebooks import _kernels as kernels
from bagwise.codebooks.batches import Reservoir, as_batches
from bagwise.codebooks.distances import WordDistances, as_codebook, nearest_words
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["BACKENDS", "KMeansWords", "kmeans_words", "learn_codebook"]

BACKENDS = ("auto", "blocked", "sklearn", "faiss")
# Rows of one task while seeding. Fixed, so that results do not depend on the number of threads.
_SEEDING_ROWS = 1 << 14


@dataclass(frozen=True)
class KMeansWords:
    """What k-means found.

    Attributes
    ----------
    words : ndarray of shape (n_words, D)
    inertia : float
        Sum of squared distances from the vectors to their nearest words.
    n_iter : int
        Iterations of the restart that won.
    """

    words: NDArray[Any]
    inertia: float
    n_iter: int


def learn_codebook(
    bags: Any,
    n_words: int = 1000,
    *,
    n_samples: int = 100_000,
    n_init: int = 5,
    max_iter: int = 100,
    tol: float = 1e-4,
    backend: str = "auto",
    random_state: Any = None,
    n_jobs: int | None = None,
) -> NDArray[Any]:
    """Learn words from bags by k-means.

    1. At most `n_samples` vectors are drawn from all bags, uniformly. Vectors that are zero throughout are left out.
    2. k-means++ chooses vectors far from each other as first words; Lloyd's iterations move words to the means of
       their vectors.
    3. That is done `n_init` times; the words with the smallest sum of squared distances win.

    Parameters
    ----------
    bags : Bags, iterable of Bags, or list of matrices
        They are gone through once, so an iterator over batches will do; only the sample is kept.
    n_words : int, default=1000
    n_samples : int, default=100_000
    n_init : int, default=5
        Restarts.
    max_iter : int, default=100
        Most iterations of each.
    tol : float, default=1e-4
        Iterations end when the words together move by no more than this, squared and relative to the mean variance of
        the features; or when no vector changes its word.
    backend : {"auto", "blocked", "sklearn", "faiss"}, default="auto"
        Who does the iterations. "auto" is "blocked", our own: ``benchmarks/encoding.py`` finds it no slower than the
        others, and its words do not depend on the number of threads. All start from the same seeds. faiss has no
        `tol`, and computes in float32.
    random_state : int, Generator, RandomState or None, default=None
        The same seed gives the same words, however the bags are cut into batches.
    n_jobs : int, default=None
        Threads.

    Returns
    -------
    codebook : ndarray of shape (n_words, D)
        float64 if the vectors are (or are large integers), otherwise float32.

    Notes
    -----
    O(n_samples n_words D) time an iteration, and as much for seeding as for one iteration or a few.

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
    reservoir = Reservoir(n_samples, random)
    for i, batch in enumerate(as_batches(bags)):
        check_width(batch.n_features, reservoir.n_features, f"Batch {i}", "batch 0")
        reservoir.add(batch.values)
    vectors = reservoir.vectors()
    return kmeans_words(
        vectors, n_words, n_init=n_init, max_iter=max_iter, tol=tol, backend=backend, random_state=random, n_jobs=n_jobs
    ).words


def check_width(n_features: int, expected: int | None, what: str, other: str) -> None:
    """Raise an error if bags have another number of features than those before."""
    if expected is not None and n_features != expected:
        raise BagwiseError(f"{what} has {n_features} features, but {other} has {expected}. All need the same number.")


def kmeans_words(
    vectors: Any,
    n_words: int,
    *,
    n_init: int = 5,
    max_iter: int = 100,
    tol: float = 1e-4,
    backend: str = "auto",
    random_state: Any = None,
    n_jobs: int | None = None,
) -> KMeansWords:
    """Find words by k-means, as `learn_codebook` does for its sample.

    Parameters
    ----------
    vectors : array-like of shape (n, D)
        At least `n_words` of them must differ.
    n_words, n_init, max_iter, tol, backend, random_state, n_jobs
        As in `learn_codebook`.

    Returns
    -------
    found : KMeansWords
    """
    if backend not in BACKENDS:
        raise unknown_name("backend", backend, BACKENDS)
    n_words, n_init = as_count(n_words, "n_words", least=1), as_count(n_init, "n_init", least=1)
    max_iter = as_count(max_iter, "max_iter", least=1)
    values = np.asarray(vectors)
    if len(values) < n_words:
        raise BagwiseError(
            f"n_words={n_words}, but there are only n_samples={len(values)} vectors to learn words from "
            "(vectors that are all zero do not count). Use fewer words or more bags."
        )
    values = as_codebook(values)
    distinct, counts = _distinct_rows(values)
    if len(distinct) < n_words:
        raise BagwiseError(
            f"n_words={n_words}, but only {len(distinct)} of the {len(values)} vectors differ. Use fewer words."
        )
    iterate = {"sklearn": _sklearn_words, "faiss": _faiss_words}.get(backend, _blocked_words)
    random, n_threads = generator(random_state), effective_n_jobs(n_jobs)
    best: KMeansWords | None = None
    for _ in range(n_init):
        seeds = seed_words(distinct, counts, n_words, random, n_threads)
        found = iterate(values, seeds, max_iter, tol, n_threads)
        if best is None or found.inertia < best.inertia:
            best = found
    assert best is not None  # n_init is at least 1
    return best


def _distinct_rows(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Give the rows that differ, and how often each occurs."""
    whole = (values + 0).view(np.dtype((np.void, values.dtype.itemsize * values.shape[1]))).ravel()  # -0 becomes 0
    _, first, counts = np.unique(whole, return_index=True, return_counts=True)
    order = np.argsort(first)
    return values[first[order]], counts[order]


def seed_words(
    distinct: NDArray[Any], counts: NDArray[Any], n_words: int, random: np.random.Generator, n_threads: int
) -> NDArray[Any]:
    """Choose first words by k-means++: each with a probability proportional to its squared distance to those chosen.

    Parameters
    ----------
    distinct : ndarray of shape (n, D)
        Vectors, no two of them equal, at least `n_words`.
    counts : ndarray of int, shape (n,)
        How often each of them occurs.
    n_words : int
    random : Generator
    n_threads : int

    Returns
    -------
    words : ndarray of shape (n_words, D)
        Different rows of `distinct`.
    """
    shifted = distinct - distinct.mean(axis=0, dtype=np.float64).astype(distinct.dtype)
    norms = np.einsum("ij,ij->i", shifted, shifted)
    nearest = np.full(len(distinct), np.inf, distinct.dtype)
    left = counts.astype(np.float64)  # 0 for those chosen
    chosen = np.empty(n_words, np.intp)

    def lower(start: int, stop: int) -> None:
        rows, word = slice(start, stop), chosen[number]
        squared = shifted[rows] @ shifted[word]
        squared *= -2
        squared += norms[rows] + norms[word]
        np.maximum(squared, 0, out=squared)
        np.minimum(nearest[rows], squared, out=nearest[rows])

    with one_blas_thread():
        for number in range(n_words):
            weights = left if number == 0 else left * nearest
            if not weights.any():  # distances that vanish by rounding: any vector that is left will do
                weights = left
            upto = np.cumsum(weights)
            drawn = int(np.searchsorted(upto, random.random() * upto[-1], side="right"))
            chosen[number] = min(drawn, int(np.flatnonzero(weights)[-1]))
            left[chosen[number]] = 0.0
            for_all_ranges(lower, len(distinct), n_threads)
    return distinct[chosen]


def for_all_ranges(function: Any, total: int, n_threads: int) -> None:
    """Call ``function(start, stop)`` for ranges of a fixed size, on one thread as on many."""
    if n_threads <= 1:
        for start in range(0, total, _SEEDING_ROWS):
            function(start, min(start + _SEEDING_ROWS, total))
    else:
        run_over_ranges(function, total, n_threads, size=_SEEDING_ROWS)


def _blocked_words(values: NDArray[Any], seeds: NDArray[Any], max_iter: int, tol: float, n_threads: int) -> KMeansWords:
    """Lloyd's iterations with the blocks of `WordDistances`; sums in float64, in the order of the vectors."""
    least_move = tol * float(values.var(axis=0, dtype=np.float64).mean())
    words, before, n_iter = seeds, None, 0
    while n_iter < max_iter:
        n_iter += 1
        nearest = nearest_words(values, WordDistances(words), n_threads)
        sums, counts = np.zeros(words.shape), np.zeros(len(words), np.int64)
        kernels.sum_by_word(values, nearest, sums, counts)
        means = (sums / np.maximum(counts, 1)[:, None]).astype(words.dtype)
        empty = np.flatnonzero(counts == 0)
        if len(empty):  # such a word moves to a vector that is far from its own
            squares = _squared_distances(values, words, nearest)
            means[empty] = values[np.argsort(-squares, kind="stable")[: len(empty)]]
        moved = float(np.sum((means.astype(np.float64) - words) ** 2))
        words = means
        if moved <= least_move or (before is not None and np.array_equal(nearest, before)):
            break
        before = nearest
    return KMeansWords(words, _inertia(values, words, n_threads), n_iter)


def _sklearn_words(values: NDArray[Any], seeds: NDArray[Any], max_iter: int, tol: float, n_threads: int) -> KMeansWords:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    model = KMeans(len(seeds), init=seeds, n_init=1, max_iter=max_iter, tol=tol)
    with threadpool_limits(n_threads), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it counts distinct words, as we did before
        model.fit(values)
    return KMeansWords(model.cluster_centers_, _inertia(values, model.cluster_centers_, n_threads), model.n_iter_)


def _faiss_words(values: NDArray[Any], seeds: NDArray[Any], max_iter: int, tol: float, n_threads: int) -> KMeansWords:
    faiss = require("faiss", "ann", "backend='faiss'")
    model = faiss.Kmeans(
        values.shape[1],
        len(seeds),
        niter=max_iter,
        min_points_per_centroid=1,
        max_points_per_centroid=len(values),
    )
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        model.train(values.astype(np.float32), init_centroids=seeds.astype(np.float32))
    finally:
        faiss.omp_set_num_threads(threads)
    words = model.centroids.astype(values.dtype)
    return KMeansWords(words, _inertia(values, words, n_threads), max_iter)


def _squared_distances(values: NDArray[Any], words: NDArray[Any], nearest: NDArray[np.intp]) -> NDArray[np.float64]:
    """Squared distance of each vector to its word."""
    squares = np.empty(len(values))
    for start in range(0, len(values), _SEEDING_ROWS):
        rows = slice(start, start + _SEEDING_ROWS)
        apart = values[rows].astype(np.float64) - words[nearest[rows]]
        squares[rows] = np.einsum("ij,ij->i", apart, apart)
    return squares


def _inertia(values: NDArray[Any], words: NDArray[Any], n_threads: int) -> float:
    return float(_squared_distances(values, words, nearest_words(values, WordDistances(words), n_threads)).sum())
