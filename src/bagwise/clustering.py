"""Clustering of histograms and of bags."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import mutual_info_score
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import N_JOBS, Interval, StrOptions, _fit_context
from bagwise._utils.matrices import check_non_negative
from bagwise._utils.memory import check_memory
from bagwise._utils.validation import validate_data
from bagwise.bags import Bags
from bagwise.bags.bags import offsets_of
from bagwise.codebooks.bag_of_features import BagNormalizer
from bagwise.codebooks.batches import as_batches
from bagwise.codebooks.manifold.learning import chi2_distances
from bagwise.codebooks.manifold.target import LAPLACIANS, embed, neighbor_graph, typical_distance
from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels.additive import additive_kernel

__all__ = ["SpectralClusterer", "cluster_bags", "steadier"]

METHODS = ("spectral", "kmeans")
# Times that features are divided to choose a method.
_N_HALVINGS = 3
METRICS = ("chi2", "hellinger", "euclidean")


class SpectralClusterer(ClusterMixin, BaseEstimator):
    """Spectral clustering of histograms, with `predict` by the nearest cluster mean.

    1. Connect each histogram with its nearest neighbours.
    2. Embed the graph by the eigenvectors of its Laplacian with the smallest eigenvalues.
    3. Cluster the embedding by k-means.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters and of eigenvectors.
    n_neighbors : int, default=10
    metric : {"chi2", "hellinger", "euclidean"}, default="chi2"
        Distance between histograms: ``½ Σ (a - b)² / (a + b)``, ``√(½ Σ (√a - √b)²)`` or ``√(Σ (a - b)²)``. The first
        two need non-negative values. `ManifoldBagOfFeatures` and `bagwise.nn` take the square of "hellinger".
    sigma : float or "auto", default="auto"
        Bandwidth of the edge weights ``exp(-distance / sigma)``. "auto": the median distance to the neighbours.
    laplacian : {"unnormalized", "random_walk", "symmetric"}, default="unnormalized"
    n_init : int, default=10
        Number of initialisations of k-means.
    memory_limit : int or str, default=None
        Memory limit of the pairwise distances. None: 80 % of the free memory.
    random_state : int, RandomState or None, default=None
    n_jobs : int, default=None
        Number of threads for the distances.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,)
    embedding_ : ndarray of shape (n_samples, n_clusters)
    cluster_centers_ : ndarray of shape (n_clusters, n_features_in_)
        Mean histogram of each cluster. There may be fewer than `n_clusters` if histograms coincide.
    sigma_ : float
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    sklearn.cluster.SpectralClustering : Normalised cuts of other graphs, without `predict`.

    Notes
    -----
    O(n² d) time for n dense histograms, O(n²) memory. Sparse histograms stay sparse.

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
        "memory_limit": [Interval(Real, 0, None, closed="neither"), str, None],
        "random_state": ["random_state"],
        "n_jobs": list(N_JOBS),
    }

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_neighbors: int = 10,
        metric: str = "chi2",
        sigma: float | str = "auto",
        laplacian: str = "unnormalized",
        n_init: int = 10,
        memory_limit: int | float | str | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.sigma = sigma
        self.laplacian = laplacian
        self.n_init = n_init
        self.memory_limit = memory_limit
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
        check_memory(
            3 * 8 * n**2,
            self.memory_limit,
            f"Spectral clustering stores the distances of all pairs of {n} histograms",
            "cluster a sample and use predict for the others",
        )
        distances = self._distances(X)
        self.sigma_ = self._sigma(distances)
        if n == 1:
            self.embedding_ = np.ones((1, 1))
        else:
            graph = neighbor_graph(distances, self.n_neighbors, self.sigma_)
            self.embedding_ = embed(graph, self.n_clusters, self.laplacian)
        seed = check_random_state(self.random_state).randint(2**31)
        labels = KMeans(self.n_clusters, n_init=self.n_init, random_state=seed).fit(self.embedding_).labels_
        _, self.labels_ = np.unique(labels, return_inverse=True)
        n_found = int(self.labels_.max()) + 1
        self.cluster_centers_ = np.stack([np.ravel(X[self.labels_ == c].mean(axis=0)) for c in range(n_found)])
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
        X = self._checked(X, reset=False)
        if self.metric == "hellinger":
            return np.argmin(euclidean_distances(np.sqrt(X), np.sqrt(self.cluster_centers_)), axis=1)
        return np.argmin(euclidean_distances(X, self.cluster_centers_), axis=1)

    def _distances(self, X: Any) -> NDArray[np.float64]:
        if self.metric == "euclidean":
            return euclidean_distances(X)
        if self.metric == "hellinger":
            return euclidean_distances(np.sqrt(X)) / np.sqrt(2.0)
        if not sp.issparse(X):
            return chi2_distances(X, n_threads=effective_n_jobs(self.n_jobs))
        # ½ Σ (a - b)² / (a + b) is ½ Σ (a + b) minus the kernel Σ 2ab / (a + b)
        halves = 0.5 * np.ravel(X.sum(axis=1))
        distances = halves[:, np.newaxis] + halves - additive_kernel(X, kernel="chi2", n_jobs=self.n_jobs)
        np.fill_diagonal(distances, 0.0)
        return np.maximum(distances, 0.0, out=distances)

    def _checked(self, X: Any, reset: bool) -> Any:
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=np.float64)
        if self.metric != "euclidean":
            check_non_negative(X, f"metric='{self.metric}'", "Use metric='euclidean', or histograms.")
        return X

    def _sigma(self, distances: NDArray[np.float64]) -> float:
        if self.sigma != "auto":
            return float(self.sigma)
        return typical_distance(distances, self.n_neighbors)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = self.metric != "euclidean"
        return tags


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
        `SpectralClusterer` with Hellinger distances, or k-means of the square roots of the histograms; both of
        histograms that are divided by their sums, so that the sizes of bags do not matter. "auto": the one
        that depends less on which features of a bag are seen. Each is given one half of the features of each bag, then
        the other, several times; the method is taken whose two clusterings share more information. No labels are used.
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
        spectral = SpectralClusterer(n_clusters, metric="hellinger", random_state=seed, n_jobs=n_jobs)
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
                found = [make().fit_predict(X) for X in parts]
            shared[name] += float(mutual_info_score(*found))
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
