"""`SketchMerger`: merging very many features in one pass over the data."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from bagwise._compat import N_JOBS, Interval, StrOptions, _fit_context
from bagwise._utils.checks import check_integer, reset_fitted
from bagwise._utils.matrices import is_lazy
from bagwise._utils.progress import ProgressBar
from bagwise._utils.validation import check_single_labels, validate_data
from bagwise.errors import BagwiseError
from bagwise.merging.grouping import FLOATS, GroupTransformer, copy_fitted
from bagwise.merging.pooling import pool
from bagwise.merging.sketching.feature_groups import FeatureGroups, group_features
from bagwise.merging.sketching.sketch import MOST_HASHES, Sketch, reverse_neighbors
from bagwise.merging.sketching.streams import Chunks, check_can_be_read_again, read_chunks

__all__ = ["SketchMerger"]

_GO_ON = "The samples before that are kept in sketch_, and partial_fit goes on from there."
_OTHER_NUMBER = "Nothing is kept. Give the true n_samples, or None for any number."


def _can_stream(merger: SketchMerger) -> bool:
    if merger.use_labels:
        raise AttributeError("partial_fit takes no labels, which use_labels=True needs. Use fit, or use_labels=False.")
    if merger.n_neighbors > 0:
        raise AttributeError(
            f"partial_fit reads samples once, but n_neighbors={merger.n_neighbors} needs all of them to find "
            "neighbours. Use fit, or fit_chunks with chunks that can be read again, or n_neighbors=0."
        )
    return True


def _settings_of(sketch: Sketch) -> dict[str, Any]:
    """Parameters of `SketchMerger` that belong to a sketch."""
    return {
        "sketch_size": sketch.size,
        "n_hashes": sketch.n_hashes,
        "dtype": sketch.dtype.name,
        "random_state": sketch.seed,
    }


class SketchMerger(GroupTransformer, BaseEstimator):
    """Merge very many features in one pass, into groups that keep the variance of the samples.

    1. A `Sketch` of the stream keeps a signature of `sketch_size` numbers for each feature.
    2. The signatures are clustered by k-means. Clusters are merged, ``z_j = Σ_{k in G_j} x_k / √|G_j|``.
       This maximises the total variance ``Σ_i |z_i - mean|²`` of the merged samples (BSC).
    3. With `use_labels` or `n_neighbors`, sums over the samples of a class, or over each sample and its nearest
       neighbours, take the place of the samples: the linear kernel of the merged samples is aligned with the labels
       (equation 7 of the paper), or with the neighbourhoods as pseudo-labels (PKA). With `bipolar`, features may be
       merged with opposite signs.

    Parameters
    ----------
    n_groups : int, default=50
        Number of groups. If there are no more features than that, each is its own group. May be set after fitting: the
        sketch is then clustered again when needed, without the data.
    sketch_size : int, default=256
        Length of the signature of a feature.
    n_hashes : int, default=30
        Number of times each sample enters the signatures.
    n_neighbors : int, default=0
        0: keep the variance of the samples (BSC). Otherwise the number of nearest samples, 10 for example, for PKA;
        fewer than the other samples, of which the sum over all is the same for each. Neighbours are searched for after
        merging to `n_intermediate` groups. Takes three passes over the data, and time quadratic in the number of
        samples.
    bipolar : bool, default=False
        Whether features enter their group with a sign, ``z_j = Σ_{k in G_j} ±x_k / √|G_j|`` (BSCB, PKAB), so that
        negatively correlated features can be merged.
    use_labels : bool, default=False
        Whether `fit` aligns the merged samples with the classes y. Otherwise y is not used, whatever it holds.
    n_intermediate : int, default=200
        Number of groups in which neighbours are searched for.
    n_init : int, default=1
        Number of initialisations of k-means; the best result is kept.
    max_iter : int, default=100
        Maximum number of iterations of k-means.
    tol : float, default=1e-4
        Relative decrease of the inertia below which k-means stops.
    batch_size : int, default=None
        Features drawn for each iteration of k-means, instead of all of them. None: all of up to 200,000 features,
        and mini-batches beyond.
    pooling : {"sqrt", "sum", "mean"}, default="sqrt"
        What the sum over a group is divided by: the square root of its size, 1, or its size.
    dtype : {"float32", "float64"}, default="float32"
        Type of the ``n_features * sketch_size`` numbers of the sketch.
    random_state : int, RandomState or None, default=0
        Seed of the hashes and of k-means. Unless it is an int, a seed is drawn when a sketch is started.
    n_jobs : int, default=None
        Number of threads for the sketch. Matrix products use those of the BLAS.
    verbose : int, default=0
    device : {"cpu", "cuda"}, default=None
        Where signatures are clustered. None is "cpu".

    Attributes
    ----------
    sketch_ : Sketch
        The signatures. Can be saved, and used by `from_sketch`. With `use_labels`, the exact sums over classes.
    labels_ : ndarray of int64, shape (n_features_in_,)
        Group of each feature. Groups are numbered by their first feature that is not constant. Constant features are
        in group 0 and do not count in its size.
    signs_ : ndarray of int8, shape (n_features_in_,)
        1 or -1: the sign of each feature in its group, 1 for the first of a group. All 1 unless `bipolar`.
    sizes_ : ndarray of int64, shape (n_groups,)
        ``|G_j|``, the number of features in each group, without constant ones unless it has no others.
    inertia_ : float
        Variance lost within groups, as estimated by the sketch.
    n_iter_ : int
        Iterations of the best run of k-means.
    word_totals_ : ndarray of shape (n_features_in_,)
        Sum of each feature over the training data.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    Sketch : The signatures alone; parts of a stream can be sketched separately and added.
    HashMerger : Groups by a hash, independent of the data.
    WordMerger : Greedy merging by a criterion.

    Notes
    -----
    One pass takes O(nnz(X) sketch_size) time, an iteration of k-means O(n_features n_groups sketch_size). Memory is
    that of the sketch and one or two copies of it while clustering; the samples are never kept. Groups are found when
    `labels_`, or anything that depends on it, is first needed after the sketch has changed. The sketch is kept if that
    is interrupted (Ctrl-C).

    Alignment with labels maximises ``⟨Zᵀ Z, Lᵀ L⟩`` for the centred merged samples Z and the class indicators L. That
    is k-means on the sums of the centred features over each class: C numbers per feature for C classes.

    References
    ----------
    L. Liu, L. Wang, "A scalable unsupervised feature merging approach to efficient dimensionality reduction of
    high-dimensional visual data", ICCV 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import SketchMerger
    >>> topics = np.random.default_rng(0).poisson(5, (200, 2))
    >>> X = topics[:, [0, 1, 1, 0, 0, 1]].astype(float)     # six features, two of them different
    >>> merger = SketchMerger(n_groups=2)
    >>> for start in range(0, 200, 50):
    ...     merger = merger.partial_fit(X[start : start + 50])
    >>> merger.labels_
    array([0, 1, 1, 0, 0, 1])
    >>> Z = merger.transform(X)
    >>> np.allclose(Z @ Z.T, X @ X.T)
    True
    """

    sketch_: Sketch

    _parameter_constraints: ClassVar[dict] = {
        "n_groups": [Interval(Integral, 1, None, closed="left")],
        "sketch_size": [Interval(Integral, 1, None, closed="left")],
        "n_hashes": [Interval(Integral, 1, MOST_HASHES, closed="both")],
        "n_neighbors": [Interval(Integral, 0, None, closed="left")],
        "bipolar": ["boolean"],
        "use_labels": ["boolean"],
        "n_intermediate": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "pooling": [str],
        "dtype": [StrOptions({"float32", "float64"})],
        "random_state": ["random_state"],
        "n_jobs": list(N_JOBS),
        "verbose": ["verbose"],
        "device": [StrOptions({"cpu", "cuda"}), None],
    }

    def __init__(
        self,
        n_groups: int = 50,
        *,
        sketch_size: int = 256,
        n_hashes: int = 30,
        n_neighbors: int = 0,
        bipolar: bool = False,
        use_labels: bool = False,
        n_intermediate: int = 200,
        n_init: int = 1,
        max_iter: int = 100,
        tol: float = 1e-4,
        batch_size: int | None = None,
        pooling: str = "sqrt",
        dtype: str = "float32",
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
        device: str | None = None,
    ) -> None:
        self.n_groups = n_groups
        self.sketch_size = sketch_size
        self.n_hashes = n_hashes
        self.n_neighbors = n_neighbors
        self.bipolar = bipolar
        self.use_labels = use_labels
        self.n_intermediate = n_intermediate
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.pooling = pooling
        self.dtype = dtype
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.device = device

    @classmethod
    def from_sketch(cls, sketch: Sketch, n_groups: int = 50, **parameters: Any) -> SketchMerger:
        """Create a fitted merger from a sketch that was loaded, or is the sum of several.

        Parameters
        ----------
        sketch : Sketch
            Not copied: `partial_fit` updates it, or replaces it if it gets a Dask array.
        n_groups : int, default=50
        **parameters
            Other parameters of the estimator, except those of the sketch.

        Returns
        -------
        merger : SketchMerger
        """
        if not isinstance(sketch, Sketch):
            raise BagwiseError(
                f"from_sketch takes a Sketch, got {type(sketch).__name__}. Sketch.load(path) reads one from a file; a "
                "lazy one of bagwise.distributed is computed first, by .compute()."
            )
        settings = _settings_of(sketch)
        if taken := sorted(settings.keys() & parameters.keys()):
            raise BagwiseError(f"{', '.join(taken)} cannot be chosen: the sketch has {settings}. Leave them out.")
        for name in ("n_neighbors", "use_labels"):
            if parameters.get(name):
                raise BagwiseError(
                    f"{name}={parameters[name]} needs the samples, which a sketch does not hold. Use fit."
                )
        if sketch.n_samples == 0:
            raise BagwiseError("The sketch has no samples yet. Add some by sketch.update(X), or use partial_fit.")
        merger = cls(n_groups, **settings, **parameters)
        merger._check_parameters()
        merger.sketch_, merger.n_features_in_ = sketch, sketch.n_features
        return merger

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Sketch the data and find the groups.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask array of shape (n_samples, n_features)
            Dask arrays are sketched chunk by chunk (`bagwise.distributed.sketch`), without `n_neighbors` and
            `use_labels`.
        y : array-like of shape (n_samples,), default=None
            Class labels to align the merged samples with, if `use_labels`; otherwise not used.

        Returns
        -------
        self : SketchMerger
        """
        self._check_parameters()
        self._forget()
        if is_lazy(X):
            if self.n_neighbors > 0:
                raise BagwiseError(
                    f"n_neighbors={self.n_neighbors} needs the samples, but X is a Dask collection, which is only "
                    "summed. Use n_neighbors=0, or fit_chunks, which reads chunks one after the other."
                )
            if self.use_labels:
                raise BagwiseError(
                    "use_labels=True needs X in memory, but it is a Dask collection. Use use_labels=False."
                )
            self._take_collection(X)
        else:
            X = self._checked(X, reset=True)
            if self.use_labels:
                self._sketch_classes(X, y)
            else:
                self._take(X)
                if self.n_neighbors > 0:
                    self._sketch_neighbors([X])
        self._groups()
        return self

    def _sketch_classes(self, X: Any, y: ArrayLike | None) -> None:
        """Sum up the samples of each class."""
        if y is None:
            raise BagwiseError(
                "use_labels=True requires y to be passed, but the target y is None. Pass labels, or use_labels=False."
            )
        check_single_labels(y)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise BagwiseError(
                f"use_labels=True needs at least two classes in y; got only one class, {classes.tolist()}. "
                "Use use_labels=False."
            )
        self.sketch_ = Sketch._of_classes(
            X, codes, seed=self._seed(), dtype=self.dtype, n_threads=effective_n_jobs(self.n_jobs)
        )

    def _take_collection(self, X: Any) -> None:
        """Add the sketch of a Dask array, which follows the samples so far."""
        from bagwise.distributed import sketch  # deferred: needs Dask

        earlier: Sketch | None = getattr(self, "sketch_", None)
        first_sample = 0 if earlier is None else earlier.first_sample + earlier.n_samples
        lazy = sketch(
            X, size=self.sketch_size, n_hashes=self.n_hashes, dtype=self.dtype, first_sample=first_sample,
            seed=self._seed() if earlier is None else earlier.seed,
        )  # fmt: skip
        validate_data(self, X, reset=earlier is None, skip_check_array=True)
        later = lazy.compute()
        self.sketch_ = later if earlier is None else earlier + later

    @available_if(_can_stream)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Add samples to the sketch. Groups are found when they are first needed. Not available with `n_neighbors`.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask array of shape (n_samples, n_features)
            The next samples of the stream. The result does not depend on how a stream is split. A Dask array is
            sketched chunk by chunk and added: the same result for integers, equal up to rounding otherwise.
        y : ignored
            Only `fit` uses labels, with `use_labels`.

        Returns
        -------
        self : SketchMerger
        """
        self._check_parameters()
        self._check_settings_are_kept()
        if is_lazy(X):
            self._take_collection(X)
        else:
            self._take(self._checked(X, reset=not hasattr(self, "sketch_")))
        return self

    def _check_settings_are_kept(self) -> None:
        """Raise if the sketch takes no more samples, or if its settings were changed."""
        if not hasattr(self, "sketch_"):
            return
        self.sketch_._check_takes_samples()
        had = _settings_of(self.sketch_)
        if not isinstance(self.random_state, Integral):  # a seed was drawn, which the sketch has
            del had["random_state"]
        changed = {name: value for name, value in had.items() if getattr(self, name) != value}
        if changed:
            now = ", ".join(f"{name}={getattr(self, name)!r}" for name in changed)
            before = ", ".join(f"{name}={value!r}" for name, value in changed.items())
            raise BagwiseError(
                f"The sketch was started with {before}, but the parameters are now {now}. "
                f"Call set_params({before}) to go on, or start again with fit, fit_chunks or a new SketchMerger."
            )

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_chunks(self, chunks: Chunks, n_samples: int | None = None) -> Self:
        """Fit to matrices that come one after the other, such as parts of data too large for memory.

        Parameters
        ----------
        chunks : iterable of matrices, or function that returns one
            With `n_neighbors` it is read three times: give a list, or a function.
        n_samples : int, default=None
            How many samples there are in all: an error is raised if fewer come, or as soon as there are more.

        Returns
        -------
        self : SketchMerger
            If the stream fails or ends early, `sketch_` has what came before, and `partial_fit` can go on. If there
            are too many samples, nothing is kept.
        """
        self._check_parameters()
        if n_samples is not None:
            n_samples = check_integer(n_samples, "n_samples", 1)
        if self.use_labels:
            raise BagwiseError("fit_chunks takes no labels, which use_labels=True needs. Use fit, or use_labels=False.")
        if self.n_neighbors > 0:
            check_can_be_read_again(chunks, f"n_neighbors={self.n_neighbors} needs three passes over the data")
        self._forget()

        def take(chunk: Any) -> int:
            chunk = self._checked(chunk, reset=not hasattr(self, "sketch_"), ensure_min_samples=0)
            self._take(chunk)
            return int(chunk.shape[0])

        advice = _GO_ON if self.n_neighbors == 0 else "Mend the stream and fit again."
        try:
            read_chunks(
                chunks, take, n_samples=n_samples, after_failure=advice, after_excess=_OTHER_NUMBER, task="sketching",
                verbose=self.verbose,
            )  # fmt: skip
        except BaseException:
            too_many = n_samples is not None and hasattr(self, "sketch_") and self.sketch_.n_samples > n_samples
            if self.n_neighbors > 0 or too_many:
                self._forget()  # the sketch is not that of neighbours, or of `n_samples` samples
            raise
        if self.n_neighbors > 0:
            self._sketch_neighbors(chunks)
        self._groups()
        return self

    def _take(self, X: Any) -> None:
        """Add checked data to the sketch, a new one if there is none."""
        n_threads = effective_n_jobs(self.n_jobs)
        if hasattr(self, "sketch_"):
            self.sketch_.update(X, n_threads=n_threads)
        else:
            self.sketch_ = self._new_sketch(X.shape[1], self._seed()).update(X, n_threads=n_threads)

    def _seed(self) -> int:
        """Seed of a new sketch."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _new_sketch(self, n_features: int, seed: int) -> Sketch:
        return Sketch(n_features, self.sketch_size, self.n_hashes, seed=seed, dtype=self.dtype)

    def _sketch_neighbors(self, chunks: Chunks) -> None:
        """Replace the sketch of the samples with that of the sums over each sample and its neighbours."""
        plain: Sketch = self.sketch_
        n_threads = effective_n_jobs(self.n_jobs)
        del self.sketch_  # not fitted, should anything fail
        if self.n_neighbors >= plain.n_samples - 1:
            raise BagwiseError(
                f"With n_neighbors={self.n_neighbors} of {plain.n_samples} samples, the sum over a sample and its "
                "neighbours is that of all samples, and what is left of it without the mean is rounding. Use a small "
                "number such as 10, or 0 for the variance of the samples."
            )
        groups = self._cluster(plain, self.n_intermediate, bipolar=False)
        advice = "The stream must give the same samples each time."
        again: dict[str, Any] = {
            "n_samples": plain.n_samples, "after_failure": advice, "after_excess": advice, "verbose": self.verbose,
        }  # fmt: skip
        n_features, seed = plain.n_features, plain.seed
        del plain  # memory for one sketch only
        sketch = self._new_sketch(n_features, seed)
        reduced: list[Any] = []

        def reduce(chunk: Any) -> int:
            chunk = self._checked(chunk, ensure_min_samples=0)
            reduced.append(pool(chunk, groups.labels, len(groups.sizes), "sqrt", sizes=groups.sizes))
            return int(chunk.shape[0])

        def take(chunk: Any) -> int:
            chunk = self._checked(chunk, ensure_min_samples=0)
            sketch._update_neighbors(chunk, reverse, n_threads)
            return int(chunk.shape[0])

        read_chunks(chunks, reduce, task="reducing", **again)
        reverse = reverse_neighbors(reduced, self.n_neighbors, n_threads)
        reduced.clear()
        read_chunks(chunks, take, task="sketching neighbours", **again)
        self.sketch_ = sketch

    def _groups(self) -> FeatureGroups:
        """Groups of the current sketch, computed unless they are known."""
        check_is_fitted(self)
        asked = (self.sketch_.n_samples, self.n_groups, self.bipolar, self.n_init, self.max_iter, self.tol,
                 self.batch_size)  # fmt: skip
        known = getattr(self, "_found", None)
        # the sketch may have been updated or replaced
        if known is None or known[0] is not self.sketch_ or known[1] != asked:
            self._check_parameters()
            self._found = self.sketch_, asked, self._cluster(self.sketch_, self.n_groups, self.bipolar)
        groups: FeatureGroups = self._found[2]
        return groups

    def _cluster(self, sketch: Sketch, n_groups: int, bipolar: bool) -> FeatureGroups:
        with ProgressBar("clustering", self.n_init * self.max_iter, enabled=bool(self.verbose)) as bar:
            return group_features(
                sketch.signature(),
                int(n_groups),
                bipolar=bipolar,
                n_init=self.n_init,
                max_iter=self.max_iter,
                tol=self.tol,
                batch_size=self.batch_size,
                random_state=sketch.seed,
                progress=bar.update,
                device=self.device,
            )

    def _checked(self, X: Any, reset: bool = False, ensure_min_samples: int = 1) -> Any:
        # the sketch checks that numbers are finite, and knows their place in the stream
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=FLOATS, ensure_all_finite=False,
            ensure_min_samples=ensure_min_samples,
        )  # fmt: skip

    def _check_parameters(self) -> None:
        """Check the parameters before any data are read."""
        self._validate_params()
        self._check_pooling()
        if self.use_labels and self.n_neighbors > 0:
            raise BagwiseError(
                f"use_labels=True sums over classes and n_neighbors={self.n_neighbors} over neighbours. Use one of "
                "them, with n_neighbors=0 or use_labels=False."
            )

    def _forget(self) -> None:
        """Remove fitted attributes, in case this fit fails."""
        reset_fitted(self)
        self.__dict__.pop("_found", None)

    def cut(self, n_groups: int) -> Self:
        """Return a fitted merger of another size, without reading data again.

        Parameters
        ----------
        n_groups : int
            Number of groups.

        Returns
        -------
        merger : SketchMerger
            Shares the sketch with this merger, which is not changed.
        """
        check_is_fitted(self)
        other = copy_fitted(self, n_groups=n_groups)
        other._groups()
        return other

    @property
    def labels_(self) -> NDArray[np.int64]:
        """Group of each feature."""
        return self._groups().labels

    @property
    def signs_(self) -> NDArray[np.int8]:
        """Sign of each feature in its group."""
        return self._groups().signs

    @property
    def sizes_(self) -> NDArray[np.int64]:
        """Number of features in each group, without constant ones."""
        return self._groups().sizes

    @property
    def inertia_(self) -> float:
        """Variance lost within groups, as estimated by the sketch."""
        return self._groups().inertia / self.sketch_.n_hashes

    @property
    def n_iter_(self) -> int:
        """Iterations of the best run of k-means."""
        return self._groups().n_iter

    @property
    def word_totals_(self) -> NDArray[np.float64]:
        """Sum of each feature over the training data."""
        check_is_fitted(self)
        return self.sketch_.totals

    def _n_groups(self) -> int:
        return len(self._groups().sizes)

    def _weights(self) -> dict[str, Any]:
        groups = self._groups()
        return {"weights": groups.signs if self.bipolar else None, "sizes": groups.sizes}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "sketch_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.use_labels
        return tags
