"""`WordMerger`: merging words as a scikit-learn transformer."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import N_JOBS, Interval, StrOptions, _fit_context
from bagwise._utils.checks import reset_fitted
from bagwise.errors import BagwiseError
from bagwise.kernels import AdditiveKernel
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion
from bagwise.merging.criteria.base import Criterion
from bagwise.merging.criteria.separability import is_labelled
from bagwise.merging.data import RawSamples
from bagwise.merging.engine import Engine, MergingInterrupted
from bagwise.merging.grouping import GroupTransformer, copy_fitted
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.scaling import resolve_word_weights

__all__ = ["WordMerger"]


def needs_non_negative(merger: Any) -> bool:
    """Whether fitting with a merger's criterion and kernel needs non-negative data; unknown names raise in `fit`."""
    criterion, kernel = merger.criterion, merger.kernel
    kernel = kernel.name if isinstance(kernel, AdditiveKernel) else kernel
    if isinstance(criterion, str) and criterion.lower() in ("auto", *NAMED_CRITERIA):
        criterion = resolve_criterion(criterion, of_ratios=merger.search != "bound" or merger.store != "auto")
    scaled = merger.scaling is not None and getattr(criterion, "scales_measurements", False)
    by_criterion = getattr(criterion, "non_negative", False) and not scaled
    by_criterion = by_criterion or getattr(criterion, "metric", None) == "intersection"
    return bool(by_criterion) or kernel != "linear"


class WordMerger(GroupTransformer, BaseEstimator):
    """Merge words into a few groups, at each step the pair that keeps the criterion highest.

    1. `fit` finds the hierarchy of all merges, from single words to one group, exactly.
    2. `transform` cuts it at `n_groups` and adds up the words of each group.
    3. `cut` and ``set_params(n_groups=...)`` give any other size without fitting again.

    Parameters
    ----------
    n_groups : int, default=50
        Number of groups. If there are no more words than that, each is its own group.
    criterion : str or object from `bagwise.criteria`, default="auto"
        Criterion to maximise: "csm", "nda", "mfa", "lde", "lpp", "semi_supervised", "aib", "classifier", "clusters",
        "mmi", "mlt", "gml", "uvd", "mme", "linkage" or an object. "auto" is "aib" with labels and "clusters" without;
        with a `kernel`, `search` or `store` that only trace ratios have, "csm" and "lpp". Grid searches over its
        parameters, such as ``criterion__n_neighbors``, need the object.
    kernel : {"linear", "intersection", "hellinger", "chi2", "jensen_shannon"} or AdditiveKernel, default="linear"
        Kernel whose feature space distances are computed in, for trace ratio criteria.
    search : {"bound", "polar", "exhaustive"}, default="bound"
        How the best pair is found. All are exact; "bound" is the fastest.
    word_weights : {"idf", "log_odds"} or array-like of shape (n_features,), default=None
        Factor of each word in the sums of `transform`; merging itself uses X as it is. "idf" is the smooth inverse
        document frequency of scikit-learn, "log_odds" the largest absolute log odds of a word between a class and the
        others, which helps at a handful of groups. None: 1 for all words.
    pooling : {"sum", "mean", "sqrt"}, default="sum"
        How the words of a group are combined: their sum, their mean, or their sum divided by the square root of the
        group's size.
    scaling : {"auto", "shift", "range"} or None, default="auto"
        For "aib", "clusters" and "mmi": whether columns are measurements, which are shifted to a minimum of 0, or also
        divided by their ranges. "auto" finds out, see Notes; None leaves data as they are.
    store : {"auto", "dense", "sparse"}, default="auto"
        How the statistics of a trace ratio criterion are stored: as two d x d matrices, or as the non-zeros of the
        data. "auto" uses "dense" if it fits in memory; see `merge_words`.
    memory_limit : int or str, default=None
    n_jobs : int, default=None
        Number of threads for forming the statistics.
    device : {"cpu", "cuda"}, default=None
        Where to form the statistics and to merge; None: where X is. See `merge_words`.
    verbose : int, default=0

    Attributes
    ----------
    criterion_ : str
        Name of the criterion that was used.
    hierarchy_ : Hierarchy
        All merges. If fitting was interrupted (Ctrl-C), those done so far.
    labels_ : ndarray of shape (n_features_in_,)
        Group of each word at the current `n_groups`.
    scores_ : ndarray of shape (n_features_in_ - 1,)
        Criterion after each merge.
    word_totals_ : ndarray of shape (n_features_in_,)
        Sum of each word over the training data; names of groups begin with the most frequent words.
    word_weights_ : ndarray of shape (n_features_in_,) or None
        Factor of each word; None if there are no weights.
    shift_, scale_ : ndarray of shape (n_features_in_,) or None
        What is subtracted from each column, and its factor after that, before the columns of a group are summed. None
        for counts and frequencies, and for criteria that take data as they are; see Notes.
    store_ : {"dense", "sparse"} or None
        The store that was used; None for criteria that are not trace ratios.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    merge_words : The same as a function that returns the hierarchy.
    WordMergerCV : Chooses `n_groups` by cross-validation.
    sklearn.cluster.FeatureAgglomeration : Unsupervised merging of columns by their similarity.

    Notes
    -----
    Choosing a criterion: "aib" and "mlt" are best for texts, for few groups and for many classes. Trace ratios such as
    "csm" and "nda" are dominated by a few directions of high variance, which do not separate many classes; "csm" and
    "lde" are best for two classes of images. Without labels "clusters" is best.

    "aib", "clusters" and "mmi" are for counts and frequencies. Measurements are brought to a common scale first, in
    `fit` and `transform`, as `scaling` says. By "auto" each column is shifted to a minimum of 0, and divided by its
    range where the largest range is more than 100 times the median. Data are measurements then if they have
    negative values, or if at least 20 samples have fractions, different sums, and columns that are far from zero or
    whose ranges differ by more than a factor of 100. Counts that were divided, such as by sizes of samples or numbers
    of annotators, are told by their rows, half of which are multiples of their smallest value. A warning is given where
    "auto" shifts negative values, or divides columns of which most have zeros: give None for counts that were weighted,
    and "range" for measurements that are whole numbers, such as ages and incomes. New values below the minimum give
    negative numbers; they are not clipped. ``verbose=1`` says what was done.

    Fitting takes O(d²) time for d words, once the statistics are formed, and O(d²) memory; for wide data less, with
    ``store="sparse"`` of the order of the non-zeros. Transforming takes one pass over the data; the model is one
    integer per word.

    References
    ----------
    L. Wang, L. Liu, L. Zhou, "A graph-embedding approach to hierarchical visual word mergence", IEEE TNNLS 28(2), 2017.

    Examples
    --------
    >>> from bagwise import WordMerger
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> y = ["cat", "cat", "dog", "dog"]
    >>> merger = WordMerger(n_groups=2).fit(X, y)
    >>> merger.transform(X)
    array([[7., 1.],
           [9., 1.],
           [1., 9.],
           [1., 9.]])
    >>> merger.get_feature_names_out(["paw", "meow", "bark", "bone"])
    array(['paw+meow', 'bark+bone'], dtype=object)
    >>> merger.cut(3).transform(X).shape
    (4, 3)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_groups": [Interval(Integral, 1, None, closed="left")],
        "criterion": [str, Criterion],
        "kernel": [str, AdditiveKernel],
        "search": [str],
        "store": [str],
        "word_weights": [str, "array-like", None],
        "pooling": [str],
        "scaling": [str, None],
        "memory_limit": [Interval(Real, 0, None, closed="neither"), str, None],
        "n_jobs": list(N_JOBS),
        "device": [StrOptions({"cpu", "cuda"}), None],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_groups: int = 50,
        *,
        criterion: str | Criterion = "auto",
        kernel: str | AdditiveKernel = "linear",
        search: str = "bound",
        word_weights: str | ArrayLike | None = None,
        pooling: str = "sum",
        scaling: str | None = "auto",
        store: str = "auto",
        memory_limit: int | float | str | None = None,
        n_jobs: int | None = None,
        device: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_groups = n_groups
        self.criterion = criterion
        self.kernel = kernel
        self.search = search
        self.word_weights = word_weights
        self.pooling = pooling
        self.scaling = scaling
        self.store = store
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.device = device
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the hierarchy of merges.

        Parameters
        ----------
        X : array-like, sparse matrix or Dask array of shape (n_samples, n_features)
            Histograms or counts, one sample a row. Dask arrays are for the criteria "csm", "aib", "clusters" and "mlt".
            Arrays of CuPy, and tensors of PyTorch on a CUDA device, are used where they are.
        y : array-like of shape (n_samples,), default=None
            Labels; unsupervised criteria do not use them.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights, for the criteria "csm", "aib", "classifier", "clusters" and "mlt". A weight of 2
            counts as the sample twice, of 0 as no sample.

        Returns
        -------
        self : WordMerger
        """
        reset_fitted(self)
        self._check_pooling()
        engine = Engine(
            self.criterion,
            has_labels=y is not None,
            kernel=self.kernel,
            search=self.search,
            scaling=self.scaling,
            store=self.store,
            memory_limit=self.memory_limit,
            n_jobs=self.n_jobs,
            device=self.device,
            verbose=self.verbose,
        )
        data = engine.load(X, y, sample_weight, estimator=self).data
        self.word_weights_ = self._find_weights(data.raw, engine.criterion)
        self.criterion_ = engine.criterion.name
        self.shift_ = None if data.scaling is None else data.scaling.shift
        self.scale_ = None if data.scaling is None else data.scaling.scale
        self.word_totals_ = data.word_totals
        if self.verbose and data.scaling is not None:
            print(data.scaling)
        try:
            self.hierarchy_ = engine.run()
        except MergingInterrupted as interrupt:
            self.hierarchy_ = interrupt.hierarchy
            raise
        finally:
            self.store_ = engine.store
        return self

    def _find_weights(self, samples: RawSamples | None, criterion: Criterion) -> NDArray[np.float64] | None:
        """Weights of words from the samples that count and, for log odds, have a label."""
        if not isinstance(self.word_weights, str):
            return resolve_word_weights(self.word_weights, None, None, None, self.n_features_in_)
        if samples is None:
            raise BagwiseError(
                f"word_weights={self.word_weights!r} needs the samples in memory, but X is a Dask collection. Pass "
                "one number per word, or None."
            )
        X, y, sample_weight = samples.on_host()
        counts = np.ones(X.shape[0], dtype=np.bool_) if sample_weight is None else sample_weight > 0
        if y is not None and criterion.takes_missing_labels and self.word_weights == "log_odds":
            counts &= is_labelled(np.asarray(y))
        if not counts.all():
            X, y = X[counts], None if y is None else np.asarray(y)[counts]
            sample_weight = None if sample_weight is None else sample_weight[counts]
        return resolve_word_weights(self.word_weights, X, y, sample_weight, self.n_features_in_)

    def _weights(self) -> dict[str, Any]:
        factors = [values for values in (self.scale_, self.word_weights_) if values is not None]
        weights = None if not factors else np.prod(factors, axis=0)
        return {"weights": weights, "shift": self.shift_}

    def cut(self, n_groups: int) -> Self:
        """Return a fitted merger of another size, without fitting again.

        Parameters
        ----------
        n_groups : int
            Number of groups.

        Returns
        -------
        merger : WordMerger
            Shares the hierarchy. This merger is not changed; ``set_params(n_groups=...)`` does that.
        """
        check_is_fitted(self)
        other = copy_fitted(self, n_groups=n_groups)
        other._n_groups()  # raises where the hierarchy does not go down to it
        return other

    @property
    def labels_(self) -> NDArray[np.int64]:
        """Group of each word at the current `n_groups`."""
        check_is_fitted(self, "hierarchy_")
        return self.hierarchy_.cut(self._n_groups())

    @property
    def scores_(self) -> NDArray[np.float64]:
        """Criterion after each merge."""
        check_is_fitted(self, "hierarchy_")
        return self.hierarchy_.scores

    def _n_groups(self) -> int:
        hierarchy: Hierarchy = self.hierarchy_
        if isinstance(self.n_groups, bool) or not isinstance(self.n_groups, Integral) or self.n_groups < 1:
            raise BagwiseError(f"n_groups must be an integer of at least 1, got {self.n_groups!r}.")
        n_groups = min(self.n_groups, hierarchy.n_words)
        if n_groups < hierarchy.min_groups:
            raise BagwiseError(
                f"n_groups={self.n_groups}, but merging was interrupted with {hierarchy.min_groups} groups left. "
                f"Use set_params(n_groups={hierarchy.min_groups}) or more, or fit again."
            )
        return n_groups

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "hierarchy_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = needs_non_negative(self)
        name = self.criterion.lower() if isinstance(self.criterion, str) else None
        known = self.criterion if name is None else NAMED_CRITERIA.get(name)
        tags.target_tags.required = name != "auto" and getattr(known, "supervised", True)  # unknown ones raise in fit
        return tags
