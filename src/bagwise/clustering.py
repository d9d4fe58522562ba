"""Clustering of histograms and of bags."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, mutual_info_score
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import N_JOBS, Interval, StrOptions, _fit_context
from bagwise._utils.arrays import unit_rows
from bagwise._utils.checks import check_integer
from bagwise._utils.matrices import check_non_negative
from bagwise._utils.text import agree
from bagwise._utils.threads import number_of_threads, one_blas_thread
from bagwise._utils.validation import check_array, validate_data
from bagwise.bags import Bags
from bagwise.bags.bags import offsets_of
from bagwise.codebooks.bag_of_features import BagNormalizer
from bagwise.codebooks.batches import as_batches
from bagwise.codebooks.distances import WordDistances, assign
from bagwise.codebooks.kmeans import distinct_rows, kmeans, kmeans_words
from bagwise.codebooks.manifold.target import (
    LAPLACIANS,
    eigenvectors,
    joined_neighbors,
    parts_of,
    typical_of,
)
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.errors import BagwiseError, argument, unknown_name
from bagwise.retrieval.bag_index import BagIndex

__all__ = ["ClusterNumbers", "ClusteredRows", "SpectralClusterer", "cluster_bags", "cluster_rows", "steadier"]
__all__ += ["suggest_n_clusters"]

METHODS = ("spectral", "kmeans")
# Times that features are divided to choose a method.
_N_HALVINGS = 3
METRICS = ("hellinger", "chi2", "cosine", "euclidean")
_OF_FREQUENCIES = ("hellinger", "chi2")
# What is smaller than this part of the mean cluster is none; the largest number of eigenvectors that are passed over.
_SMALLEST, _MOST_SKIPPED = 20, 60
# k-means of an embedding.
_MOST_STEPS, _TOLERANCE = 100, 1e-4


class SpectralClusterer(ClusterMixin, BaseEstimator):
    """Spectral clustering of histograms, with `predict` by the nearest cluster mean.

    1. Divide each histogram by its sum, or its length ("cosine"), and connect it with its nearest neighbours.
    2. Embed the graph by the eigenvectors of its Laplacian with the smallest eigenvalues.
    3. Cluster the embedding by k-means.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters and of eigenvectors.
    n_neighbors : int, default=10
    metric : {"hellinger", "chi2", "cosine", "euclidean"}, default="hellinger"
        Distance between histograms a and b: ``√(½ Σ (√a - √b)²)`` or ``½ Σ (a - b)² / (a + b)`` of frequencies,
        which need non-negative values; ``1 - cos(a, b)``, as for TF-IDF weights; ``√(Σ (a - b)²)`` of rows as they are.
        `ManifoldBagOfFeatures` and `bagwise.nn` take the square of "hellinger".
    sigma : float or "auto", default="auto"
        Bandwidth of the edge weights ``exp(-distance / sigma)``. "auto": the median distance to the neighbours.
    laplacian : {"symmetric", "random_walk", "unnormalized"}, default="symmetric"
    n_init : int, default=10
        Number of initialisations of k-means.
    random_state : int, RandomState or None, default=None
    n_jobs : int, default=None

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
        Clusters are numbered in the order of their first samples.
    embedding_ : ndarray of shape (n_samples, n_clusters)
        Zeros for samples that have no neighbours, or only a few around them.
    cluster_centers_ : ndarray of shape (n_clusters, n_features_in_)
        Mean of each cluster, of rows divided as for the distance. There may be fewer than `n_clusters` if histograms
        coincide.
    sigma_ : float
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    sklearn.cluster.SpectralClustering : Normalised cuts of other graphs, without `predict`.

    Notes
    -----
    Neighbours are those of `BagIndex`, which holds values as float32: O(n² d) time for n dense histograms, less for
    sparse ones, and O(n d + n n_neighbors) memory. The eigenvectors of more than 2000 samples are found by products
    with the graph (Lanczos), for "unnormalized" by factorising it, which takes much more memory.

    Samples without values have no neighbours, except by "euclidean"; they get the cluster of the nearest mean. So do
    parts of the graph with less than a twentieth of the mean size of a cluster, and eigenvectors that spread over fewer
    samples than that are passed over: a few near copies of one text are an eigenvector of their own, and of many texts
    such come before those of topics.

    Examples
    --------
    >>> from bagwise import SpectralClusterer
    >>> X = [[0.9, 0.1, 0], [0.8, 0.2, 0], [0.1, 0.1, 0.8], [0, 0.2, 0.8]]
    >>> clusterer = SpectralClusterer(2, n_neighbors=1, random_state=0).fit(X)
    >>> clusterer.labels_[0] == clusterer.labels_[1] != clusterer.labels_[2]
    np.True_
    >>> clusterer.predict([[1, 0, 0]])[0] == clusterer.labels_[0]
    np.True_
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_clusters": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "metric": [str],
        "sigma": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "laplacian": [str],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": list(N_JOBS),
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_neighbors: int = 10,
        metric: str = "hellinger",
        sigma: float | str = "auto",
        laplacian: str = "symmetric",
        n_init: int = 10,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.sigma = sigma
        self.laplacian = laplacian
        self.n_init = n_init
        self.random_state = random_state
        self.n_jobs = n_jobs

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster histograms.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Histograms.
        y : ignored

        Returns
        -------
        self : SpectralClusterer
        """
        if self.metric not in METRICS:
            raise unknown_name("metric", self.metric, METRICS)
        if self.laplacian not in LAPLACIANS:
            raise unknown_name("laplacian", self.laplacian, LAPLACIANS)
        X = self._checked(X, reset=True)
        n = X.shape[0]
        if self.n_clusters > n:
            raise BagwiseError(f"n_clusters={self.n_clusters}, but there are only {n} samples (n_samples={n}).")
        seed = check_random_state(self.random_state).randint(2**31)
        rows = self._divided(X)
        joined = np.arange(n) if self.metric == "euclidean" else np.flatnonzero(_row_sums(rows) > 0)
        k, n_least = min(self.n_clusters, len(joined)), len(joined) / (_SMALLEST * self.n_clusters)
        self.embedding_, self.labels_ = np.zeros((n, self.n_clusters)), np.zeros(n, dtype=np.int64)
        if len(joined) > 1:
            nearest, distances = self._neighbors(rows if len(joined) == n else rows[joined])
            self.sigma_ = typical_of(distances) if self.sigma == "auto" else float(self.sigma)
            graph = joined_neighbors(nearest, distances, self.sigma_)
            n_parts, part = parts_of(graph)
            large = np.flatnonzero(np.bincount(part)[part] >= n_least)
            if n_parts > 1 and 0 < len(large) < len(joined):
                joined, graph = joined[large], sp.csr_array(graph[large][:, large])
                k = min(k, len(joined))
            self.embedding_[joined, :k] = self._embedded(graph, k, n_least)
            self.labels_[joined] = self._kmeans(self.embedding_[joined], seed)
        else:
            self.sigma_ = 1.0 if self.sigma == "auto" else float(self.sigma)
            self.embedding_[joined, :k] = 1.0
        labels = self.labels_[joined] if len(joined) else self.labels_
        among = rows[joined] if len(joined) else rows
        n_found = int(labels.max()) + 1
        self.cluster_centers_ = np.stack([np.ravel(among[labels == c].mean(axis=0)) for c in range(n_found)])
        alone = np.setdiff1d(np.arange(n), joined)
        if len(alone) and len(joined):
            self.labels_[alone] = self._nearest_mean(rows[alone])
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Predict the cluster with the nearest mean, by Euclidean distance, or by that of square roots ("hellinger").

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        return self._nearest_mean(self._divided(self._checked(X, reset=False)))

    def _nearest_mean(self, rows: Any) -> NDArray[np.int64]:
        centers = self.cluster_centers_
        if self.metric == "hellinger":
            rows, centers = np.sqrt(rows), np.sqrt(centers)
        elif self.metric == "cosine":
            centers = normalize_rows(centers, "l2")
        return np.argmin(euclidean_distances(rows, centers), axis=1)

    def _divided(self, X: Any) -> Any:
        """Rows divided by their sums or lengths."""
        return X if self.metric == "euclidean" else normalize_rows(X, "l2" if self.metric == "cosine" else "l1")

    def _neighbors(self, rows: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The nearest other rows of each row, and their distances."""
        n = rows.shape[0]
        k = min(self.n_neighbors, n - 1)
        index = BagIndex("chi2" if self.metric == "chi2" else "euclidean", n_jobs=self.n_jobs)
        points = np.sqrt(rows) if self.metric == "hellinger" else rows
        distances, nearest = index.add(points, ids=np.arange(n)).search(points, k + 1)
        # of many copies of a row, it may not be among its own nearest
        itself = nearest == np.arange(n)[:, np.newaxis]
        itself[~itself.any(axis=1), -1] = True
        distances, nearest = distances[~itself].reshape(n, k), nearest[~itself].reshape(n, k).astype(np.int64)
        if self.metric == "chi2":
            return nearest, 0.5 * distances
        if self.metric == "cosine":
            return nearest, 0.5 * distances**2
        return nearest, distances / np.sqrt(2.0) if self.metric == "hellinger" else distances

    def _embedded(self, graph: sp.csr_array, k: int, n_least: float) -> NDArray[np.float64]:
        """Eigenvectors that spread over enough samples; if there are too few, the first of the others as well.

        A unit vector v spreads over about ``1 / Σ v⁴`` samples.
        """
        for n_found in sorted({k, min(k + _MOST_SKIPPED, graph.shape[0])}):
            with one_blas_thread():
                vectors = eigenvectors(graph, n_found, self.laplacian)
            spread = 1 / np.power(vectors, 4).sum(axis=0) >= n_least
            if spread.sum() >= k:
                break
        chosen = np.sort(np.argsort(~spread, kind="stable")[:k])
        return unit_rows(vectors[:, chosen]) if self.laplacian == "symmetric" else vectors[:, chosen]

    def _kmeans(self, points: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
        """Clusters of rows, numbered in the order of their first ones."""
        how: dict[str, Any] = {"max_iter": _MOST_STEPS, "tol": _TOLERANCE, "random_state": seed, "n_jobs": self.n_jobs}
        words = kmeans_words(points, self.n_clusters, n_init=self.n_init, fewer=True, **how).words
        if len(words) < self.n_clusters:
            warnings.warn(
                f"Only {len(words)} of the embedded histograms differ, so there are as many clusters, fewer than "
                f"n_clusters={self.n_clusters}.",
                ConvergenceWarning,
                stacklevel=3,
            )
        labels = assign(np.ascontiguousarray(points), WordDistances(words), number_of_threads(self.n_jobs))[0]
        _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[numbers.reshape(-1)].astype(np.int64)

    def _checked(self, X: Any, reset: bool) -> Any:
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64)
        if self.metric in _OF_FREQUENCIES:
            check_non_negative(X, f"metric='{self.metric}'", "Use metric='euclidean' or 'cosine', or histograms.")
        return X

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = self.metric in _OF_FREQUENCIES
        return tags


def _row_sums(X: Any) -> NDArray[np.float64]:
    """Sum of the absolute values of each row."""
    return np.ravel(abs(X).sum(axis=1))


def cluster_bags(
    bags: Any,
    n_clusters: int,
    *,
    encoder: Any = None,
    method: str = "auto",
    random_state: Any = None,
    n_jobs: int | None = None,
) -> tuple[NDArray[np.int64], Pipeline]:
    """Cluster bags by their histograms of learned words.

    Parameters
    ----------
    bags : Bags or list of arrays
    n_clusters : int
    encoder : estimator, default=None
        Transformer from bags to histograms. None: `ManifoldBagOfFeatures` with one component per cluster.
    method : {"auto", "spectral", "kmeans"}, default="auto"
        `SpectralClusterer` with Hellinger distances and the unnormalised Laplacian, or k-means of the square roots of
        the histograms; both of histograms that are divided by their sums, so that the sizes of bags do not matter.
        "auto": the one that depends less on which features of a bag are seen. Each is given one half of the features of
        each bag, then the other, several times; the method is taken whose two clusterings share more information. No
        labels are used.
    random_state : int, RandomState or None, default=None
    n_jobs : int, default=None

    Returns
    -------
    labels : ndarray of shape (n_bags,)
    model : Pipeline
        ``model.predict(new_bags)`` gives the clusters of new bags, ``model["encoder"].transform(bags)`` the histograms.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.clustering import cluster_bags
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(centre, 1.0, (40, 2)) for centre in (0, 5, 0, 5, 0, 5, 0, 5)]
    >>> labels, model = cluster_bags(bags, 2, random_state=0)
    >>> [bool(label == labels[0]) for label in labels]
    [True, False, True, False, True, False, True, False]
    >>> bool(model.predict(bags[:1])[0] == labels[0])
    True
    """
    if method not in ("auto", *METHODS):
        raise unknown_name("method", method, ("auto", *METHODS))
    seeds = check_random_state(random_state).randint(2**31, size=2).tolist()
    if not isinstance(bags, Bags):
        bags = Bags.concatenate(as_batches(bags))
    if encoder is None:
        from bagwise.codebooks.manifold.manifold_bag_of_features import ManifoldBagOfFeatures

        n_components = min(n_clusters, max(len(bags) - 1, 1))
        encoder = ManifoldBagOfFeatures(n_components=n_components, random_state=seeds[0], n_jobs=n_jobs)
    encoder = encoder.fit(bags)
    if method == "auto":
        makers = {name: partial(_clusterer, name, n_clusters, seeds[1], n_jobs) for name in METHODS}
        method = steadier(lambda random: [encoder.transform(half) for half in _halves(bags, random)], makers, seeds[1])
    clusterer = _clusterer(method, n_clusters, seeds[1], n_jobs)
    labels = clusterer.fit_predict(encoder.transform(bags))
    return np.asarray(labels), Pipeline([("encoder", encoder), *clusterer.steps])


def _clusterer(method: str, n_clusters: int, seed: int, n_jobs: int | None) -> Pipeline:
    """Clustering of histograms, whatever their sums."""
    if method == "spectral":
        spectral = SpectralClusterer(n_clusters, laplacian="unnormalized", random_state=seed, n_jobs=n_jobs)
        return Pipeline([("frequencies", BagNormalizer("l1")), ("clusterer", spectral)])
    return Pipeline([("roots", BagNormalizer()), ("clusterer", KMeans(n_clusters, n_init=10, random_state=seed))])


def steadier(
    halves: Callable[[np.random.RandomState], Sequence[Any]], clusterers: Mapping[str, Callable[[], Any]], seed: int
) -> str:
    """Choose the clusterer whose clusters of one half of the evidence tell most of its clusters of the other half.

    Parameters
    ----------
    halves : callable
        Gives two matrices of the same objects, each from another half of what is known of them, divided at random.
    clusterers : dict of str to callable
        Make clusterers that have not been fitted.
    seed : int

    Returns
    -------
    name : str
        Of the largest mutual information, summed over several divisions. Clusters that are found again but tell little,
        such as a few objects apart from all others, share little information.
    """
    random = np.random.RandomState(seed)
    shared = dict.fromkeys(clusterers, 0.0)
    for _ in range(_N_HALVINGS):
        parts = halves(random)
        for name, make in clusterers.items():
            with warnings.catch_warnings():  # fewer clusters than asked for, in halves that nobody sees
                warnings.simplefilter("ignore", ConvergenceWarning)
                labels = [make().fit_predict(X) for X in parts]
            shared[name] += float(mutual_info_score(*labels))
    return max(shared, key=lambda name: shared[name])


def _halves(bags: Bags, random: np.random.RandomState) -> tuple[Bags, Bags]:
    """Divide the features of each bag at random; the one of odd number is in both halves."""
    lengths = bags.lengths
    bag_of = np.repeat(np.arange(len(bags)), lengths)
    shuffled = np.lexsort((random.random_sample(bags.n_rows), bag_of))
    rank = np.arange(bags.n_rows) - bags.offsets[bag_of]
    halves = []
    for inside in (rank < (lengths[bag_of] + 1) // 2, rank >= lengths[bag_of] // 2):
        rows = np.sort(shuffled[inside])
        positions = None if bags.positions is None else bags.positions[rows]
        halves.append(Bags(bags.values[rows], offsets_of((lengths + 1) // 2), positions, dtype=None))
    return halves[0], halves[1]


# Numbers of clusters that are tried, each for at least so many rows.
_SIZES = (*range(2, 13), 14, 16, 18, 20, 24, 28, 32, 36, 40)
_ROWS_EACH = 5
# Rows of a half; of more rows, others are drawn each time.
_HALF = 2500
_N_DRAWS = 3
_N_STARTS = 3  # of k-means
_SHARPNESS = (1e-2, 1e4)


@dataclass(frozen=True)
class ClusterNumbers:
    """How stable clusters are at several numbers of clusters, see `suggest_n_clusters`.

    Attributes
    ----------
    sizes : tuple of int
        Numbers of clusters, ascending.
    stability : tuple of float
        Mean agreement (adjusted Rand index) of the clusters of two halves, at each size: 1 for the same clusters, 0 for
        clusters that agree by chance.
    standard_errors : tuple of float

    Examples
    --------
    >>> from bagwise.clustering import ClusterNumbers
    >>> numbers = ClusterNumbers((2, 3, 4, 5, 6), (0.5, 0.4, 0.6, 0.9, 0.7), (0.01,) * 5)
    >>> numbers.suggested, numbers.others
    (5, (2,))
    """

    sizes: tuple[int, ...]
    stability: tuple[float, ...]
    standard_errors: tuple[float, ...]

    @property
    def suggested(self) -> int:
        """The most stable number; of equal ones the smallest."""
        return self.sizes[int(np.argmax(self.stability))]

    @property
    def others(self) -> tuple[int, ...]:
        """The other local maxima, the most stable first: numbers more stable than both of their neighbours."""
        padded = np.concatenate([[-np.inf], self.stability, [-np.inf]])
        peaks = np.flatnonzero((padded[1:-1] > padded[:-2]) & (padded[1:-1] > padded[2:]))
        ranked = sorted(peaks.tolist(), key=lambda k: -self.stability[k])
        return tuple(self.sizes[k] for k in ranked if self.sizes[k] != self.suggested)

    def stability_of(self, size: int) -> float | None:
        """Return the stability of a number of clusters; None if it was not tried."""
        return self.stability[self.sizes.index(size)] if size in self.sizes else None


@dataclass(frozen=True, eq=False)
class ClusteredRows:
    """Clusters of the rows of a matrix, see `cluster_rows`.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Numbers of clusters from 0, the largest cluster first.
    certainty : ndarray of shape (n,)
        From 0 to 1: the estimated probability that clusters of another half of the rows put this one into the same
        cluster.
    centers : ndarray of shape (n_clusters, n_features)
    sharpness : float
        What scores are multiplied by to give certainty, see `assign`.
    """

    labels: NDArray[np.intp]
    certainty: NDArray[np.float64]
    centers: NDArray[np.float64]
    sharpness: float

    def assign(self, X: Any) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Return the cluster with the nearest centre, and the certainty, of further rows."""
        probabilities = center_probabilities(X, self.centers, self.sharpness)
        labels = probabilities.argmax(axis=1)
        return labels, probabilities[np.arange(len(labels)), labels]


def suggest_n_clusters(
    X: Any,
    sizes: Sequence[int] | None = None,
    *,
    n_draws: int = _N_DRAWS,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> ClusterNumbers:
    """Suggest a number of clusters by stability: clusters that another half of the data gives as well.

    The rows are divided into two halves at random, each half is clustered by k-means, and all rows are given to the
    nearest centre of either. The agreement of the two answers is the adjusted Rand index; its mean over several draws
    is the stability [1]_. Equal rows count once. Of more than 5000 different rows, so many are drawn each time.

    Stability is evidence, not proof: coarse clusters of fine ones may be as stable as these, so that the other local
    maxima deserve a look, and data without any clusters have a most stable number too.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
        Features in which Euclidean distances mean something, such as rows of unit length.
    sizes : sequence of int, default=None
        Numbers of clusters to try. None: from 2 to 40, at most one for 5 different rows.
    n_draws : int, default=3
    random_state : int, default=0
    n_jobs : int, default=None
    progress : callable, default=None
        Called with what is done and what there is to do.

    Returns
    -------
    numbers : ClusterNumbers

    References
    ----------
    .. [1] U. von Luxburg. Clustering stability: an overview. Foundations and Trends in Machine Learning 2, 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.clustering import suggest_n_clusters
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(centre, 0.1, (20, 2)) for centre in ((0, 0), (4, 0), (0, 4))])
    >>> suggest_n_clusters(X).suggested
    3
    """
    rows = _distinct(X)[0]
    n = len(rows)
    most = max(n // _ROWS_EACH, 2)
    check_integer(n_draws, "n_draws", 1)
    tried = tuple(sorted({check_integer(size, "sizes", 2) for size in (_SIZES if sizes is None else sizes)}))
    if not tried:
        raise BagwiseError("sizes must have at least one number of clusters; got none. Leave sizes=None.")
    wanted = tried if sizes is not None else tuple(size for size in tried if size <= most)
    if n < 4 or wanted[-1] > n // 2:
        raise BagwiseError(
            f"The stability of {wanted[-1]} clusters needs at least {max(4, 2 * wanted[-1])} different items; there "
            f"are {n}. Give the number of clusters."
        )
    random = np.random.default_rng(random_state)
    agreement = np.empty((n_draws, len(wanted)))
    for draw in range(n_draws):
        chosen, halves = _draw(n, random)
        points = rows[chosen]
        for k, size in enumerate(wanted):
            answers = [_nearest(points, _means(points[half], size, random, n_jobs)) for half in halves]
            agreement[draw, k] = adjusted_rand_score(*answers)
            if progress is not None:
                progress(draw * len(wanted) + k + 1, n_draws * len(wanted))
    errors = agreement.std(axis=0, ddof=1) / np.sqrt(n_draws) if n_draws > 1 else np.zeros(len(wanted))
    return ClusterNumbers(wanted, tuple(agreement.mean(axis=0).tolist()), tuple(errors.tolist()))


def cluster_rows(
    X: Any,
    n_clusters: int,
    *,
    labels: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> ClusteredRows:
    """Cluster the rows of a matrix by k-means, and say how certain each row's cluster is.

    1. Different rows are clustered; equal rows count once, and are in one cluster.
    2. The clusters of random halves of the rows are matched with these. The certainty of a row is
       ``softmax(sharpness * (x·c - |c|² / 2))`` over the centres c, for its cluster; the sharpness is that which makes
       the clusters of the halves most likely. So 0.7 means that clusters of half of the rows put about 7 of 10 such
       rows into the same cluster.

    Parameters
    ----------
    X : array-like of shape (n, n_features)
    n_clusters : int
    labels : array-like of shape (n,), default=None
        Clusters by another method, numbered from 0, whose centres are their means. None: those of k-means.
    random_state : int, default=0
    n_jobs : int, default=None

    Returns
    -------
    found : ClusteredRows

    Examples
    --------
    >>> from bagwise.clustering import cluster_rows
    >>> found = cluster_rows([[0.0, 1], [0, 0.9], [0, 1], [1, 0], [0.9, 0], [0.5, 0.45]], 2)
    >>> found.labels.tolist(), bool(found.certainty[5] < found.certainty[3])
    ([0, 0, 0, 1, 1, 1], True)
    >>> found.assign([[0.1, 1]])[0].tolist()
    [0]
    """
    rows, which = _distinct(X)
    n_clusters, random = check_integer(n_clusters, "n_clusters", 1), np.random.default_rng(random_state)
    if n_clusters > len(rows):
        few = f"there {agree(len(rows), 'is', 'are')} only {len(rows)} different {agree(len(rows), 'item', 'items')}"
        raise BagwiseError(f"{argument('n_clusters', n_clusters)}, but {few}. Set at most {len(rows)}.")
    if labels is None:
        numbers = kmeans(
            rows,
            n_clusters,
            n_init=_N_STARTS,
            random_state=int(random.integers(2**31)),
            n_threads=number_of_threads(n_jobs),
        ).labels[which]
    else:
        numbers = np.asarray(labels, dtype=np.intp)
        if numbers.shape != (len(which),) or numbers.min(initial=0) < 0:
            raise BagwiseError(f"labels must be {len(which)} numbers of clusters from 0, got shape {numbers.shape}.")
    _, first, numbers, sizes = np.unique(numbers, return_index=True, return_inverse=True, return_counts=True)
    rank = np.empty(len(sizes), np.intp)
    rank[np.lexsort((first, -sizes))] = np.arange(len(sizes))
    numbers = rank[numbers]
    of_rows = np.empty(len(rows), np.intp)
    of_rows[which] = numbers
    centers = _centers_of(rows, of_rows, len(sizes))
    sharpness = _sharpness(rows, of_rows, centers, random, n_jobs)
    certainty = center_probabilities(rows, centers, sharpness)[np.arange(len(rows)), of_rows]
    if labels is not None:  # equal rows may be in several clusters
        certainty = center_probabilities(rows, centers, sharpness)[which, numbers]
        return ClusteredRows(numbers, certainty, centers, sharpness)
    return ClusteredRows(numbers, certainty[which], centers, sharpness)


def center_probabilities(X: Any, centers: NDArray[np.float64], sharpness: float) -> NDArray[np.float64]:
    """Return the probability of each cluster for rows, shape (n, n_clusters), see `cluster_rows`."""
    return softmax(sharpness * _scores(np.asarray(X, dtype=np.float64), centers), axis=1)


def _scores(X: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half of the negative squared distances from centres, up to a constant for each row."""
    return X @ centers.T - 0.5 * (centers**2).sum(axis=1)


def _distinct(X: Any) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Return the different rows of a matrix, and which of them each row is."""
    values = check_array(X, dtype=np.float64, order="C")
    first, which = distinct_rows(values)
    return values[first], which


def _draw(n: int, random: np.random.Generator) -> tuple[NDArray[np.intp], tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Draw rows, and divide them into two halves."""
    size = min(n, 2 * _HALF)
    chosen = random.permutation(n)[:size]
    return chosen, (np.arange(size // 2), np.arange(size // 2, size))


def _means(
    points: NDArray[np.float64], size: int, random: np.random.Generator, n_jobs: int | None
) -> NDArray[np.float64]:
    """Return the centres of k-means, fewer if there are fewer points."""
    seed, size = int(random.integers(2**31)), min(size, len(points))
    labels = kmeans(points, size, random_state=seed, n_threads=number_of_threads(n_jobs)).labels
    return _centers_of(points, labels, size)


def _centers_of(points: NDArray[np.float64], labels: NDArray[np.intp], n: int) -> NDArray[np.float64]:
    indicator = sp.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(n, len(labels)))
    return np.asarray(indicator @ points) / np.bincount(labels, minlength=n)[:, np.newaxis]


def _nearest(points: NDArray[np.float64], centers: NDArray[np.float64]) -> NDArray[np.intp]:
    return _scores(points, centers).argmax(axis=1)


def _sharpness(
    rows: NDArray[np.float64],
    labels: NDArray[np.intp],
    centers: NDArray[np.float64],
    random: np.random.Generator,
    n_jobs: int | None,
) -> float:
    """Return the sharpness that makes the clusters of random halves most likely, matched with the clusters of all."""
    n_clusters = len(centers)
    if n_clusters == 1 or len(rows) < 4:
        return _SHARPNESS[0]  # nothing speaks for certainty
    scores, answers = [], []
    for _ in range(_N_DRAWS):
        chosen, halves = _draw(len(rows), random)
        points = rows[chosen]
        scores_of_points = _scores(points, centers)
        for half in halves:
            nearest = _nearest(points, _means(points[half], n_clusters, random, n_jobs))
            shared = np.zeros((n_clusters, n_clusters))
            np.add.at(shared, (nearest, labels[chosen]), 1)
            scores.append(scores_of_points)
            answers.append(linear_sum_assignment(-shared)[1][nearest])
    every, which = np.concatenate(scores), np.concatenate(answers)

    def loss(log_sharpness: float) -> float:
        return -float(log_softmax(np.exp(log_sharpness) * every, axis=1)[np.arange(len(which)), which].mean())

    low, high = np.log(_SHARPNESS)
    return float(np.exp(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-3}).x))
