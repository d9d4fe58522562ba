"""`ManifoldBagOfFeatures`: soft histograms over words that are learned so that bags cluster well; and its files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import N_JOBS, Interval, StrOptions, _fit_context
from bagwise._io.tensors import FileKind, header_field, tensor
from bagwise._utils.backends import backend
from bagwise._utils.checks import check_stored_parameters
from bagwise._utils.matrices import check_size
from bagwise._utils.memory import check_memory
from bagwise.bags import Bags
from bagwise.codebooks.batches import as_batches
from bagwise.codebooks.kmeans import learn_codebook
from bagwise.codebooks.manifold.learning import METRICS, SoftHistograms, learn_words
from bagwise.codebooks.manifold.target import (
    LAPLACIANS,
    TARGETS,
    fisher_vectors,
    given_target,
    learn_target,
    mixed_distances,
    set_apart,
    typical_scale,
    use_labels,
)
from bagwise.errors import BagwiseError

__all__ = ["ManifoldBagOfFeatures"]

_FLOATS = "float32 float64"
_ABOVE_ZERO = header_field("number", low=sys.float_info.min)
_FILE = FileKind(
    "bagwise.ManifoldBagOfFeatures",
    {
        "parameters": header_field("object"),
        "scale_": _ABOVE_ZERO,
        "sigma_histogram_": _ABOVE_ZERO,
        "n_iter_": header_field("integer", low=0),
        "n_features_in_": header_field("integer", low=1),
    },
    {
        "codebook_": tensor(_FLOATS, "n_words", "n_features_in_", finite=True),
        "initial_codebook_": tensor(_FLOATS, "n_words", "n_features_in_", finite=True),
        "objective_": tensor(_FLOATS, "n_values", finite=True),
        "held_out_objective_": tensor(_FLOATS, "n_held_out", finite=True),
        "embedding_": tensor(_FLOATS, "n_objects", "n_components", finite=True, optional=True),
        "target": tensor("float64", "n_rows", "n_columns", optional=True),
    },
)
_NOT_SAVED = ("callback", "device")
INITS = ("k-means", "random")
SOURCES = ("fisher", "words")
# Cells of the Fisher vectors that the target is learned from.
_N_CELLS = 16


class ManifoldBagOfFeatures(TransformerMixin, BaseEstimator):
    """Histograms of bags over words that are moved until similar objects have similar histograms (MO-BoF).

    1. Words are learned by k-means, and bags become soft histograms over them.
    2. The neighbour graph of the bags, by these histograms and by Fisher vectors, is embedded; objects that are near
       each other along the manifold of the data are near in the embedding. That gives a target similarity for each
       pair.
    3. Words are moved by a few gradient steps so that the similarities of histograms come closer to the target.

    No labels are needed; known ones help (`fit` takes -1 for those not known).

    The published form is ``ManifoldBagOfFeatures(target="spectral", target_from="words", laplacian="unnormalized",
    metric="chi2", sigma_histogram=10, bandwidth=0.05, max_iter=10, n_init=5)``. With it, all similarities of histograms
    are above 0.9, whatever the words, and the objective hardly falls. The defaults were chosen by how well
    clusters from one half of the features of each bag agree with clusters from the other half, on Corel-1k and MNIST;
    NMI with the classes was visible while settings were explored.

    Parameters
    ----------
    n_words : int, default=128
    n_components : int, default=10
        Coordinates of the embedding: about the number of clusters to be found.
    n_neighbors : int, default=10
        Neighbours in the graph.
    max_iter : int, default=40
        Gradient steps. More of them bring histograms closer to the target, and to its errors.
    learning_rate : float, default=0.01
        Of Adam, in units of `scale`.
    sigma_spectral : float, default=0.1
        Distance in the embedding at which the target falls to 1/e; for "spectral" and "isomap".
    sigma_histogram : float or "auto", default="auto"
        Distance of histograms at which their similarity falls to 1/e. "auto": the median of the distances above 0.
    bandwidth : float, default=0.02
        g in ``softmax(-|x - v| / g)``, in units of `scale`. Small values approach hard assignment.
    metric : {"hellinger", "chi2"}, default="hellinger"
        Distance of histograms, in the graph and in the objective: ``½ Σ (√a - √b)²`` (squared,
        unlike in `SpectralClusterer`) or ``½ Σ (a - b)² / (a + b)``.
    scale : float or "auto", default="auto"
        What features are multiplied by first. "auto": so that the median distance between two words is 1 at the
        start, which is what the defaults of `bandwidth` and `learning_rate` are for.
    target : {"cosine", "spectral", "isomap"} or array of shape (n_bags, n_bags), default="cosine"
        Embedding by the graph's Laplacian, compared by angles or ("spectral") by distances, or by path lengths; or
        similarities between 0 and 1 of your own.
    target_from : {"fisher", "words"}, default="fisher"
        What the neighbours in the graph are found by. "words": histograms over the words. "fisher": the mean of their
        distances and of the distances of Fisher vectors, which hold counts, means and variances of the features in 16
        cells. So a few words learn to show neighbours that a much longer description finds.
    laplacian : {"symmetric", "random_walk", "unnormalized"}, default="symmetric"
    retarget_every : int or None, default=None
        Compute the target again from the current histograms after every so many steps. None: only before the first.
        A `target` that is an array allows None only.
    init : {"k-means", "random"}, default="k-means"
        Words to begin with: those of k-means, or features drawn at random.
    bag_sample : int or None, default=200
        Features of each bag that are used while learning. None: all.
    max_objects : int or None, default=None
        Learn on this many bags, drawn at random. None: on all; memory grows with the square of their number.
    held_out : float, default=0.0
        Fraction of the pairs kept out of learning. If above 0, learning ends when their error has not fallen for
        `patience` steps.
    patience : int, default=2
    n_init : int, default=1
        Starts of k-means.
    callback : callable or None, default=None
        Called with the number of steps taken and the objective; ends learning by returning True.
    memory_limit : int or str, default=None
    random_state : int, RandomState or None, default=None
    n_jobs : int, default=None
    verbose : int, default=0
    device : {"cpu", "cuda"}, default=None
        Where features are compared with words. None is "cpu". Not saved.

    Attributes
    ----------
    codebook_ : ndarray of shape (n_words, n_features_in_)
        The words, in the units of the features.
    initial_codebook_ : ndarray of shape (n_words, n_features_in_)
        The words before the first step.
    scale_, sigma_histogram_ : float
        As chosen.
    objective_ : ndarray of shape (steps + 1,)
        Mean of ``(similarity - target)²`` over pairs, before the first step and after each.
    held_out_objective_ : ndarray
        The same for the pairs held out; empty without them.
    embedding_ : ndarray of shape (n_learned, n_components) or None
        Of the bags that were learned on; None for a given target.
    n_iter_ : int
        Steps that led to `codebook_`.
    n_features_in_ : int

    Notes
    -----
    A step takes O(n² n_words) time for the pairs of n bags and ``O(rows n_words n_features_in_)`` for their features;
    memory is a few n x n matrices. The gradient is analytic; `bagwise.nn` has the same for features that are learned
    as well.

    References
    ----------
    N. Passalis, A. Tefas, "Information clustering using manifold-based optimization of the bag-of-features
    representation", IEEE Transactions on Cybernetics, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import ManifoldBagOfFeatures
    >>> rng = np.random.default_rng(0)
    >>> bags = [rng.normal(centre, 1.0, (30, 2)) for centre in (0, 0, 0, 3, 3, 3)]
    >>> model = ManifoldBagOfFeatures(4, n_components=2, n_neighbors=2, random_state=0).fit(bags)
    >>> model.transform(bags).shape
    (6, 4)
    >>> bool(model.objective_[-1] < model.objective_[0])
    True
    """

    embedding_: NDArray[np.float64] | None

    _parameter_constraints: ClassVar[dict] = {
        "n_words": [Interval(Integral, 1, None, closed="left")],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "sigma_spectral": [Interval(Real, 0, None, closed="neither")],
        "sigma_histogram": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "bandwidth": [Interval(Real, 0, None, closed="neither")],
        "metric": [StrOptions(set(METRICS))],
        "scale": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "target": [StrOptions(set(TARGETS)), "array-like"],
        "target_from": [StrOptions(set(SOURCES))],
        "laplacian": [StrOptions(set(LAPLACIANS))],
        "retarget_every": [Interval(Integral, 1, None, closed="left"), None],
        "init": [StrOptions(set(INITS))],
        "bag_sample": [Interval(Integral, 1, None, closed="left"), None],
        "max_objects": [Interval(Integral, 2, None, closed="left"), None],
        "held_out": [Interval(Real, 0, 1, closed="left")],
        "patience": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "callback": [callable, None],
        "memory_limit": [Interval(Real, 0, None, closed="neither"), str, None],
        "random_state": ["random_state"],
        "n_jobs": list(N_JOBS),
        "verbose": ["verbose"],
        "device": [StrOptions({"cpu", "cuda"}), None],
    }

    def __init__(
        self,
        n_words: int = 128,
        *,
        n_components: int = 10,
        n_neighbors: int = 10,
        max_iter: int = 40,
        learning_rate: float = 0.01,
        sigma_spectral: float = 0.1,
        sigma_histogram: float | str = "auto",
        bandwidth: float = 0.02,
        metric: str = "hellinger",
        scale: float | str = "auto",
        target: str | ArrayLike = "cosine",
        target_from: str = "fisher",
        laplacian: str = "symmetric",
        retarget_every: int | None = None,
        init: str = "k-means",
        bag_sample: int | None = 200,
        max_objects: int | None = None,
        held_out: float = 0.0,
        patience: int = 2,
        n_init: int = 1,
        callback: Callable[[int, float], Any] | None = None,
        memory_limit: int | float | str | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        device: str | None = None,
    ) -> None:
        self.n_words = n_words
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.sigma_spectral = sigma_spectral
        self.sigma_histogram = sigma_histogram
        self.bandwidth = bandwidth
        self.metric = metric
        self.scale = scale
        self.target = target
        self.target_from = target_from
        self.laplacian = laplacian
        self.retarget_every = retarget_every
        self.init = init
        self.bag_sample = bag_sample
        self.max_objects = max_objects
        self.held_out = held_out
        self.patience = patience
        self.n_init = n_init
        self.callback = callback
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.device = device

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, bags: Bags | list, y: ArrayLike | None = None) -> Self:
        """Learn the words.

        Parameters
        ----------
        bags : Bags or list of arrays
            Features of each object; at least one each, and at least two objects.
        y : array-like of int, default=None
            Labels of some objects, -1 for those not known: pairs of known ones become 1 or 0 in the target.

        Returns
        -------
        self : ManifoldBagOfFeatures
        """
        if self.retarget_every is not None and not isinstance(self.target, str):
            raise BagwiseError(
                f"retarget_every={self.retarget_every}, but target is an array, which is not computed again. Use "
                f"retarget_every=None, or a target that is learned: {', '.join(map(repr, TARGETS))}."
            )
        bags = _as_one(bags)
        rng = check_random_state(self.random_state)
        chosen = self._choose(bags, rng)
        labels = None if y is None else _check_labels(y, len(bags))[chosen]
        n_bags = len(bags)
        bags = bags[chosen]
        if self.bag_sample is not None:
            bags = bags.subsample(self.bag_sample, rng)
        initial = self._start(bags, rng)
        words = set_apart(initial, rng)
        scale = typical_scale(words) if self.scale == "auto" else float(self.scale)
        n_threads = effective_n_jobs(self.n_jobs)
        soft = self._soft(bags, self.bandwidth, scale)
        words *= scale
        distances = METRICS[self.metric](soft.histograms(words), n_threads=n_threads)
        sigma = self._sigma(distances)
        learned = isinstance(self.target, str)
        other = self._other_distances(bags, rng) if learned else None
        if learned:
            target, embedding = self._learn_target(distances, other, sigma, labels)
        else:
            target, embedding = given_target(self.target, n_bags)[np.ix_(chosen, chosen)], None
            if labels is not None:
                use_labels(target, labels)
        del distances

        def retarget(T: NDArray[np.float64]) -> NDArray[np.float64]:
            return self._learn_target(METRICS[self.metric](T, n_threads=n_threads), other, sigma, labels)[0]

        learning = learn_words(
            soft,
            words,
            target,
            sigma=sigma,
            max_iter=self.max_iter,
            learning_rate=self.learning_rate,
            metric=self.metric,
            held_out=self.held_out,
            patience=self.patience,
            retarget=retarget if learned else None,
            retarget_every=self.retarget_every,
            callback=self.callback,
            n_threads=n_threads,
            verbose=self.verbose,
        )
        # all at once, so that a fit that fails or is interrupted leaves no mixture of two
        self.n_features_in_ = bags.n_features
        self.initial_codebook_, self.codebook_ = initial, learning.words / scale
        self.scale_, self.sigma_histogram_, self.embedding_ = scale, sigma, embedding
        self.objective_, self.held_out_objective_ = np.array(learning.objective), np.array(learning.held_out)
        self.n_iter_ = learning.n_iter
        return self

    def _choose(self, bags: Bags, rng: np.random.RandomState) -> NDArray[np.int64]:
        """Bags to learn on; errors about their number and about empty ones."""
        empty = np.flatnonzero(bags.lengths == 0)
        if len(empty):
            raise BagwiseError(
                f"{len(empty)} of {len(bags)} bags have no features, the first is bag {empty[0]}. Learning needs at "
                "least one each: leave them out, for example by bags[bags.lengths > 0]."
            )
        n = len(bags) if self.max_objects is None else min(self.max_objects, len(bags))
        if n < 2:
            raise BagwiseError(f"Learning compares pairs of bags, so it needs at least 2; got n_samples={n}.")
        if self.n_components > n - 1:
            raise BagwiseError(
                f"n_components={self.n_components}, but {n} bags can be embedded in at most {n - 1} coordinates."
            )
        check_memory(
            6 * 8 * n**2,
            self.memory_limit,
            f"Learning keeps similarities of all pairs of {n} bags",
            "set max_objects to learn on some of the bags",
        )
        if n == len(bags):
            return np.arange(n)
        return np.sort(rng.choice(len(bags), n, replace=False))

    def _start(self, bags: Bags, rng: np.random.RandomState) -> NDArray[Any]:
        """Words to begin with."""
        if self.init == "random":
            rows = rng.choice(bags.n_rows, self.n_words, replace=bags.n_rows < self.n_words)
            return np.array(bags.values[np.sort(rows)])
        return learn_codebook(
            bags, self.n_words, n_init=self.n_init, random_state=rng, n_jobs=self.n_jobs, device=self.device
        )

    def _other_distances(self, bags: Bags, rng: np.random.RandomState) -> NDArray[np.float64] | None:
        """Squared distances of Fisher vectors."""
        if self.target_from == "words":
            return None
        F = fisher_vectors(bags, _N_CELLS, rng, self.n_jobs)
        return euclidean_distances(F, squared=True)

    def _learn_target(
        self,
        distances: NDArray[np.float64],
        other: NDArray[np.float64] | None,
        sigma: float,
        labels: NDArray[np.int64] | None,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Similarities to be reached, from distances of histograms and others, and from the labels that are known."""
        target, embedding = learn_target(
            distances if other is None else mixed_distances(distances, other),
            kind=str(self.target),
            n_components=self.n_components,
            n_neighbors=self.n_neighbors,
            sigma_histogram=sigma,
            sigma_spectral=self.sigma_spectral,
            laplacian=self.laplacian,
        )
        if labels is not None:
            use_labels(target, labels)
        return target, embedding

    def _sigma(self, distances: NDArray[np.float64]) -> float:
        if self.sigma_histogram != "auto":
            return float(self.sigma_histogram)
        apart = distances[np.triu_indices(len(distances), k=1)]
        apart = apart[apart > 1e-12]  # equal histograms differ by rounding
        return float(np.median(apart)) if len(apart) else 1.0

    def transform(self, bags: Bags | list) -> NDArray[np.float64]:
        """Histograms over the learned words.

        Parameters
        ----------
        bags : Bags or list of arrays

        Returns
        -------
        T : ndarray of shape (n_bags, n_words)
            Rows sum to 1; a bag without features gives zeros.
        """
        check_is_fitted(self)
        bags = _as_one(bags)
        check_size(bags.values, "the vectors of bags")
        if bags.n_features != self.n_features_in_ and bags.n_rows:
            raise BagwiseError(
                f"X has {bags.n_features} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        T = np.zeros((len(bags), len(self.codebook_)))
        full = np.flatnonzero(bags.lengths)
        some = bags if len(full) == len(bags) else bags[full]
        bandwidth = float(self.bandwidth) / self.scale_
        T[full] = self._soft(some, bandwidth).histograms(np.asarray(self.codebook_, dtype=np.float64))
        return T

    def _soft(self, bags: Bags, bandwidth: float, scale: float = 1.0) -> SoftHistograms:
        module, n_threads = backend("codebooks", self.device), effective_n_jobs(self.n_jobs)
        soft: SoftHistograms = module.SoftHistograms(bags.values, bags.offsets, bandwidth, n_threads, scale=scale)
        return soft

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """Name the columns word0, word1 and so on."""
        check_is_fitted(self)
        return np.array([f"word{k}" for k in range(len(self.codebook_))], dtype=object)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the fitted model to a safetensors file, atomically. `load` reads it back; no code is run by that.

        A `callback`, and a `random_state` that is an object, cannot be written: they are None in the model read back.
        """
        check_is_fitted(self)
        parameters = {
            name: _plain(value) for name, value in self.get_params(deep=False).items() if name not in _NOT_SAVED
        }
        header = {"parameters": parameters, "scale_": float(self.scale_), "n_iter_": int(self.n_iter_)}
        header |= {"sigma_histogram_": float(self.sigma_histogram_), "n_features_in_": int(self.n_features_in_)}
        arrays = {name: getattr(self, name) for name in _FILE.tensors or ()}
        arrays["target"] = None if isinstance(self.target, str) else np.asarray(self.target, dtype=np.float64)
        arrays = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
        return _FILE.save(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ManifoldBagOfFeatures:
        """Read a model that `save` wrote."""

        def make(header: dict[str, Any], learned: dict[str, NDArray[Any]]) -> ManifoldBagOfFeatures:
            parameters = header.pop("parameters")
            if len(learned["codebook_"]) < 1:
                raise BagwiseError("it has no words")
            check_stored_parameters(parameters)
            if not isinstance(parameters.get("target"), str | None):
                raise BagwiseError(f"its target is {parameters['target']!r:.40}; expected a name")
            if "target" in learned:
                parameters["target"] = learned.pop("target")
            model = cls(**parameters)
            model._validate_params()
            for name, value in {"embedding_": None, **learned, **header}.items():
                setattr(model, name, value)
            return model

        return _FILE.load(path, make)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_iter_")


def _check_labels(y: ArrayLike, n: int) -> NDArray[np.int64]:
    labels = np.asarray(y)
    whole = labels.dtype.kind in "iub" or (labels.dtype.kind == "f" and bool((labels == np.rint(labels)).all()))
    if labels.shape != (n,) or not whole:
        raise BagwiseError(
            f"Unknown label type: y must hold one whole number for each of the {n} bags, -1 where the label is not "
            f"known; got an array of shape {labels.shape} and type {labels.dtype}. sklearn.preprocessing.LabelEncoder "
            "makes numbers of names."
        )
    return labels.astype(np.int64)


def _plain(value: Any) -> Any:
    """A parameter as JSON can hold it; None for objects and arrays."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


def _as_one(bags: Any) -> Bags:
    """All bags, in any form that `as_batches` accepts, as one `Bags`."""
    if isinstance(bags, Bags):
        return bags
    parts = list(as_batches(bags))
    return Bags.concatenate(parts) if parts else Bags.from_list([])
