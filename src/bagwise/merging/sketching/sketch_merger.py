"""`SketchMerger`: merging very many features without labels, in one pass over the data."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise._compat import Interval, StrOptions, _fit_context
from bagwise._utils.checks import check_integer
from bagwise._utils.matrices import is_lazy
from bagwise._utils.progress import ProgressBar
from bagwise.errors import BagwiseError, unknown_name
from bagwise.merging.grouping import FLOATS, GroupTransformer
from bagwise.merging.pooling import POOLINGS, pool
from bagwise.merging.sketching.feature_groups import FeatureGroups, group_features
from bagwise.merging.sketching.followers import find_followers
from bagwise.merging.sketching.sketch import Sketch
from bagwise.merging.sketching.streams import Chunks, check_can_be_read_again, read_chunks

__all__ = ["SketchMerger"]

_GO_ON = "What came before is kept in sketch_, and partial_fit goes on from there."
_OTHER_NUMBER = "Nothing is kept. Give the true n_samples, or None for any number."


def _settings_of(sketch: Sketch) -> dict[str, Any]:
    """Parameters of `SketchMerger` that a sketch was begun with."""
    return {
        "sketch_size": sketch.size,
        "n_hashes": sketch.n_hashes,
        "dtype": sketch.dtype.name,
        "random_state": sketch.seed,
    }


class SketchMerger(GroupTransformer, BaseEstimator):
    """Merge very many features into groups that keep the scatter of the samples, without labels and in one pass.

    1. A `Sketch` of the stream is kept: for each feature a signature of `sketch_size` numbers.
    2. Signatures are clustered by k-means; features of a cluster become one, ``z_j = Σ_{k in G_j} x_k / √|G_j|``.
       Of all ways to merge, that is to keep as much of the total scatter ``Σ_i |z_i - mean|²`` as possible.
    3. With `n_neighbors`, the sums of each sample and its nearest ones take the place of samples, so that scatter
       between neighbours is given up first. With `bipolar`, features may be merged with opposite signs.

    Parameters
    ----------
    n_groups : int, default=50
        Number of groups. If there are no more features than that, each is its own group. May be set after fitting: the
        sketch is then clustered again when it is needed, without the data.
    sketch_size : int, default=256
        Length of the signature of a feature.
    n_hashes : int, default=30
        How often each sample enters the signatures.
    n_neighbors : int, default=0
        0: merge for the scatter of samples (BSC). Otherwise the number of nearest samples, 10 for example, whose sum
        with the sample is used (PKA). Neighbours are searched for after a first merging to `n_intermediate` groups.
        Takes three passes over the data, and time quadratic in the number of samples.
    bipolar : bool, default=False
        Whether features enter their group with a sign, ``z_j = Σ_{k in G_j} ±x_k / √|G_j|`` (BSCB, PKAB): features that
        go up when others go down can then be merged with them.
    n_intermediate : int, default=200
        Number of groups in which neighbours are searched for.
    n_init : int, default=1
        Number of starts of k-means, of which the best is kept.
    max_iter : int, default=100
        Most iterations of each start.
    tol : float, default=1e-4
        A start ends when the cost falls by less than this share of it.
    batch_size : int, default=None
        Features drawn for each iteration of k-means, instead of all of them. None: all of up to 200,000 features,
        and mini-batches beyond.
    pooling : {"sqrt", "sum", "mean"}, default="sqrt"
        What the sum over a group is divided by: the root of its size, nothing, or its size.
    dtype : {"float32", "float64"}, default="float32"
        Numbers of the sketch, which takes ``n_features * sketch_size`` of them.
    random_state : int, RandomState or None, default=0
        An int is the seed of the sketch. From others a seed is drawn when a sketch is begun. Clustering is seeded by
        the seed of the sketch as well.
    n_jobs : int, default=None
        Threads for the sketch. Products of matrices use those of the BLAS.
    verbose : int, default=0
        1 shows progress bars.

    Attributes
    ----------
    sketch_ : Sketch
        What is known of the data. Can be saved, and taken up again by `from_sketch`.
    labels_ : ndarray of int64, shape (n_features_in_,)
        Group of each feature. Groups are numbered by their first feature that is not constant. Features that were the
        same in all samples are in group 0 and do not count in its size.
    signs_ : ndarray of int8, shape (n_features_in_,)
        1 or -1: the sign of each feature in its group, 1 for the first of a group. All 1 unless `bipolar`.
    sizes_ : ndarray of int64, shape (n_groups,)
        ``|G_j|``, the number of features in each group, without constant ones unless it has no others.
    inertia_ : float
        Scatter lost within groups, as the sketch estimates it.
    n_iter_ : int
        Iterations of the best start of k-means.
    word_totals_ : ndarray of shape (n_features_in_,)
        Sum of each feature over the training data.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    Sketch : The signatures alone; parts of a stream can be sketched apart and added.
    HashMerger : Groups by a hash, without looking at the data.
    WordMerger : Groups found step by step by a criterion, also with labels.

    Notes
    -----
    One pass takes O(nnz(X) sketch_size) time, an iteration of k-means O(n_features n_groups sketch_size). Memory is
    that of the sketch and one or two copies of it while clustering; the samples are never kept. Groups are found when
    `labels_` or anything that depends on it is first asked for after the sketch has changed. Interrupting (Ctrl-C) that
    keeps the sketch.

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
        "n_hashes": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(Integral, 0, None, closed="left")],
        "bipolar": ["boolean"],
        "n_intermediate": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left"), None],
        "pooling": [str],
        "dtype": [StrOptions({"float32", "float64"})],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_groups: int = 50,
        *,
        sketch_size: int = 256,
        n_hashes: int = 30,
        n_neighbors: int = 0,
        bipolar: bool = False,
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
    ) -> None:
        self.n_groups = n_groups
        self.sketch_size = sketch_size
        self.n_hashes = n_hashes
        self.n_neighbors = n_neighbors
        self.bipolar = bipolar
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

    @classmethod
    def from_sketch(cls, sketch: Sketch, n_groups: int = 50, **parameters: Any) -> SketchMerger:
        """Begin with a sketch that was loaded, or added up from parts.

        Parameters
        ----------
        sketch : Sketch
            Is not copied: `partial_fit` updates it, or puts a new one in its place if it gets a Dask array.
        n_groups : int, default=50
        **parameters
            Others of the estimator, but for those that the sketch has.

        Returns
        -------
        merger : SketchMerger
            Fitted, and ready for more data.
        """
        if not isinstance(sketch, Sketch):
            raise BagwiseError(
                f"from_sketch takes a Sketch, got {type(sketch).__name__}. Sketch.load(path) reads one from a file; a "
                "lazy one of bagwise.distributed is computed first, by .compute()."
            )
        given = _settings_of(sketch)
        if taken := sorted(given.keys() & parameters.keys()):
            raise BagwiseError(f"{', '.join(taken)} cannot be chosen: the sketch has {given}. Leave them out.")
        if parameters.get("n_neighbors"):
            raise BagwiseError(
                f"n_neighbors={parameters['n_neighbors']} needs the samples, which a sketch does not hold. "
                "Use fit or fit_chunks."
            )
        if sketch.n_samples == 0:
            raise BagwiseError("The sketch has no samples yet. Add some by sketch.update(X), or use partial_fit.")
        merger = cls(n_groups, **given, **parameters)
        merger._check_parameters()
        merger.sketch_, merger.n_features_in_ = sketch, sketch.n_features
        return merger

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> SketchMerger:
        """Sketch the data and find the groups.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask array of shape (n_samples, n_features)
            Dask arrays are sketched chunk by chunk (`bagwise.distributed.sketch`), without `n_neighbors`.
        y : ignored

        Returns
        -------
        self : SketchMerger
        """
        self._check_parameters()
        self._forget()
        if is_lazy(X):
            return self._fit_collection(X)
        X = self._checked(X, reset=True)
        self._take(X)
        if self.n_neighbors > 0:
            self._sketch_neighbors([X])
        self._groups()
        return self

    def _fit_collection(self, X: Any) -> SketchMerger:
        """Fit to a Dask array, by sketches of its chunks."""
        if self.n_neighbors > 0:
            raise BagwiseError(
                f"n_neighbors={self.n_neighbors} needs the samples themselves, but X is a Dask collection, of which "
                "only sums are made. Use n_neighbors=0, or fit_chunks, which reads chunks one after the other."
            )
        self._take_collection(X)
        self._groups()
        return self

    def _take_collection(self, X: Any) -> None:
        """Add a Dask array to the sketch, as a new one of its chunks that begins where the stream has got to."""
        from bagwise.distributed import sketch  # a step up the house, taken only with Dask data

        earlier: Sketch | None = getattr(self, "sketch_", None)
        how: dict[str, Any] = {"size": self.sketch_size, "n_hashes": self.n_hashes, "dtype": self.dtype}
        if earlier is None:
            lazy = sketch(X, seed=self._seed(), **how)
        else:
            earlier._check_takes_samples()  # before anything is read
            lazy = sketch(X, seed=earlier.seed, first_sample=earlier.first_sample + earlier.n_samples, **how)
        validate_data(self, X, reset=earlier is None, skip_check_array=True)
        later = lazy.compute()
        self.sketch_ = later if earlier is None else earlier + later

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> SketchMerger:
        """Add samples to the sketch. Groups are found when they are first asked for.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask array of shape (n_samples, n_features)
            The next samples of the stream. How a stream is cut makes no difference. Of a Dask array a sketch is made
            chunk by chunk and added to what there is: the same for whole numbers, up to rounding for others.
        y : ignored

        Returns
        -------
        self : SketchMerger
        """
        self._check_parameters()
        if self.n_neighbors > 0:
            raise BagwiseError(
                f"partial_fit sees samples once, but n_neighbors={self.n_neighbors} needs all of them to find "
                "neighbours, and then once more. Use fit, or fit_chunks with chunks that can be read again, or "
                "n_neighbors=0."
            )
        self._check_settings_are_kept()
        if is_lazy(X):
            self._take_collection(X)
        else:
            self._take(self._checked(X, reset=not hasattr(self, "sketch_")))
        return self

    def _check_settings_are_kept(self) -> None:
        """Raise where settings of the sketch were changed after it was begun: more data cannot be added to it then."""
        if not hasattr(self, "sketch_"):
            return
        had = _settings_of(self.sketch_)
        if not isinstance(self.random_state, Integral):  # a seed was drawn, which the sketch has
            del had["random_state"]
        changed = {name: value for name, value in had.items() if getattr(self, name) != value}
        if changed:
            now = ", ".join(f"{name}={getattr(self, name)!r}" for name in changed)
            before = ", ".join(f"{name}={value!r}" for name, value in changed.items())
            raise BagwiseError(
                f"The sketch that partial_fit is to add to was begun with {before}, but now there is {now}. "
                f"Call set_params({before}) to go on, or begin anew by fit, fit_chunks or a new SketchMerger."
            )

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_chunks(self, chunks: Chunks, n_samples: int | None = None) -> SketchMerger:
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
                self._forget()  # a sketch of samples must not be taken for one of neighbours, nor of what was announced
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
        """The seed of a new sketch."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))

    def _new_sketch(self, n_features: int, seed: int) -> Sketch:
        return Sketch(n_features, self.sketch_size, self.n_hashes, seed=seed, dtype=self.dtype)

    def _sketch_neighbors(self, chunks: Chunks) -> None:
        """Replace the sketch of the samples by that of the sums of each sample and its neighbours."""
        plain: Sketch = self.sketch_
        n_threads = effective_n_jobs(self.n_jobs)
        del self.sketch_  # should anything fail, it is not taken for what was asked for
        seed, n_samples = plain.seed, plain.n_samples
        groups = self._cluster(plain, self.n_intermediate, bipolar=False)
        sketch = self._new_sketch(plain.n_features, seed)
        del plain  # two of them would be much memory
        advice = "The stream must give the same samples each time."
        again: dict[str, Any] = {
            "n_samples": n_samples, "after_failure": advice, "after_excess": advice, "verbose": self.verbose,
        }  # fmt: skip
        reduced: list[Any] = []

        def reduce(chunk: Any) -> int:
            chunk = self._checked(chunk, ensure_min_samples=0)
            reduced.append(pool(chunk, groups.labels, len(groups.sizes), "sqrt", sizes=groups.sizes))
            return int(chunk.shape[0])

        def take(chunk: Any) -> int:
            chunk = self._checked(chunk, ensure_min_samples=0)
            sketch._update_neighbors(chunk, followers, n_threads)
            return int(chunk.shape[0])

        read_chunks(chunks, reduce, task="reducing", **again)
        followers = find_followers(reduced, self.n_neighbors, n_threads)
        reduced.clear()
        read_chunks(chunks, take, task="sketching neighbours", **again)
        self.sketch_ = sketch

    def _groups(self) -> FeatureGroups:
        """Groups of the sketch as it is, found now unless they are known."""
        check_is_fitted(self)
        asked = (self.sketch_.n_samples, self.n_groups, self.bipolar, self.n_init, self.max_iter, self.tol,
                 self.batch_size)  # fmt: skip
        known = getattr(self, "_found", None)
        # the sketch may have grown, and another one may have been put in its place
        if known is None or known[0] is not self.sketch_ or known[1] != asked:
            self._check_parameters()
            self._found = self.sketch_, asked, self._cluster(self.sketch_, self.n_groups, self.bipolar)
        found: FeatureGroups = self._found[2]
        return found

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
            )

    def _checked(self, X: Any, reset: bool = False, ensure_min_samples: int = 1) -> Any:
        # whether numbers are finite is checked by the sketch, which knows their place in the stream
        return validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=FLOATS, ensure_all_finite=False,
            ensure_min_samples=ensure_min_samples,
        )  # fmt: skip

    def _check_parameters(self) -> None:
        """Check what can be wrong before any data are read."""
        self._validate_params()
        if self.pooling not in POOLINGS:
            raise unknown_name("pooling", self.pooling, POOLINGS)

    def _forget(self) -> None:
        """Leave nothing of an earlier fit, should this one fail."""
        for name in ("sketch_", "_found"):
            if hasattr(self, name):
                delattr(self, name)

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
        """Number of features in each group that count."""
        return self._groups().sizes

    @property
    def inertia_(self) -> float:
        """Scatter lost within groups, as the sketch estimates it."""
        return self._groups().inertia / self.sketch_.n_hashes

    @property
    def n_iter_(self) -> int:
        """Iterations of the best start of k-means."""
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
        return {"signs": groups.signs if self.bipolar else None, "sizes": groups.sizes}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "sketch_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
