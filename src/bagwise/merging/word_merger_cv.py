"""`WordMergerCV`: choosing the number of groups by cross-validation, one hierarchy per fold."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC
from sklearn.utils import Bunch, Tags, check_consistent_length
from sklearn.utils.metadata_routing import UNUSED, MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from bagwise._compat import (
    N_JOBS,
    HasMethods,
    Interval,
    _fit_context,
    _raise_for_params,
    _routing_enabled,
    metadata_request,
)
from bagwise._utils.checks import reset_fitted
from bagwise._utils.matrices import is_lazy
from bagwise._utils.memory import resolve_limit
from bagwise._utils.validation import check_single_labels, validate_data
from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels import AdditiveKernel
from bagwise.merging.criteria import GraphPair, resolve_criterion
from bagwise.merging.criteria.base import Criterion
from bagwise.merging.criteria.separability import is_labelled
from bagwise.merging.grouping import FLOATS, GroupTransformer
from bagwise.merging.path import PathScores, score_path
from bagwise.merging.sizes import RULES, path_sizes
from bagwise.merging.word_merger import WordMerger, needs_non_negative

__all__ = ["WordMergerCV"]

_MERGING = ("criterion", "kernel", "search", "word_weights", "pooling", "scaling", "store", "memory_limit", "verbose")


def _of_merger(name: str, doc: str) -> property:
    """Property that reads an attribute of `merger_`."""

    def read(self: WordMergerCV) -> Any:
        check_is_fitted(self)
        return getattr(self.merger_, name)

    return property(read, doc=doc)


class WordMergerCV(MetaEstimatorMixin, GroupTransformer, BaseEstimator):
    """Merge words into the number of groups that cross-validation finds best.

    1. In each fold one hierarchy is found on the training samples and cut at every size.
    2. At each size the estimator is fitted to the merged training samples and scored on the merged test samples.
    3. `rule` chooses a size, and the hierarchy of all samples is found.

    Parameters
    ----------
    n_groups : sequence of int or None, default=None
        Sizes to try; those above the number of words count as that number. None: 2, 5, 10, 20, 50, … and all words.
    estimator : estimator object, default=None
        What the merged words are for. It is cloned, and fitted in every fold at every size. None: a linear SVM on
        columns scaled to a largest value of 1. `bagwise fit` uses a linear SVM on Hellinger-normalised rows:
        ``make_pipeline(BagNormalizer(("l1", "power")), LinearSVC())``.
    cv : int, splitter or iterable, default=None
        As in scikit-learn; None is 5 folds.
    rule : {"best", "1se", "paired"}, default="best"
        - "best": the size with the highest mean score, the smallest of equals.
        - "1se": the smallest size whose mean score is within one standard error, over folds, of it.
        - "paired": the smallest size whose difference to it is within half a standard error of that difference: over
          samples where the score is the accuracy of a classifier, otherwise over folds. `bagwise fit` takes this one.
    scoring : str or callable, default=None
        As in scikit-learn; None is the estimator's own score.
    criterion, kernel, search, word_weights, pooling, scaling, store, memory_limit
        As in `WordMerger`.
    n_jobs : int, default=None
        Number of threads. Each takes whole folds and needs the memory of one `WordMerger`.
    verbose : int, default=0

    Attributes
    ----------
    n_groups_ : int
        The chosen size.
    best_score_ : float
        Mean score over the folds at that size.
    best_index_ : int
        Its index in `cv_results_`.
    cv_results_ : dict of ndarrays
        ``n_groups``, ``mean_test_score``, ``std_test_score``, ``rank_test_score``, ``split<k>_test_score``,
        and ``merge_time`` (seconds per fold).
    merger_ : WordMerger
        Fitted on all samples; its `n_groups` can be changed without fitting again.
    criterion_, hierarchy_, labels_, scores_, word_totals_, word_weights_, shift_, scale_
        Those of `merger_`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    WordMerger : Merges into a given number of groups.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from bagwise import WordMergerCV
    >>> X, y = load_digits(n_class=2, return_X_y=True)
    >>> search = WordMergerCV([2, 4, 8, 16], rule="1se", cv=3).fit(X, y)
    >>> search.n_groups_ in (2, 4, 8, 16)
    True
    >>> search.transform(X).shape == (len(X), search.n_groups_)
    True
    """

    # groups are for the splitter
    __metadata_request__fit: ClassVar[dict] = {"groups": UNUSED}

    _parameter_constraints: ClassVar[dict] = {
        "n_groups": ["array-like", None],
        "estimator": [HasMethods(["fit"]), None],
        "cv": ["cv_object"],
        "rule": [str],
        "scoring": [str, callable, None],
        "criterion": [str, Criterion],
        "kernel": [str, AdditiveKernel],
        "search": [str],
        "word_weights": [str, "array-like", None],
        "pooling": [str],
        "scaling": [str, None],
        "store": [str],
        "memory_limit": [Interval(Real, 0, None, closed="neither"), str, None],
        "n_jobs": list(N_JOBS),
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_groups: Sequence[int] | None = None,
        *,
        estimator: Any = None,
        cv: Any = None,
        rule: str = "best",
        scoring: Any = None,
        criterion: str | Criterion = "auto",
        kernel: str | AdditiveKernel = "linear",
        search: str = "bound",
        word_weights: str | ArrayLike | None = None,
        pooling: str = "sum",
        scaling: str | None = "auto",
        store: str = "auto",
        memory_limit: int | float | str | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_groups = n_groups
        self.estimator = estimator
        self.cv = cv
        self.rule = rule
        self.scoring = scoring
        self.criterion = criterion
        self.kernel = kernel
        self.search = search
        self.word_weights = word_weights
        self.pooling = pooling
        self.scaling = scaling
        self.store = store
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        **params: Any,
    ) -> Self:
        """Score all sizes, choose one, and merge on all samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels, or what the estimator predicts if the criterion needs none.
        groups : array-like of shape (n_samples,), default=None
            For splitters that keep groups of samples together, such as `sklearn.model_selection.GroupKFold`. Not the
            groups of words.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights for merging, for criteria that take them (see `WordMerger.fit`). Without metadata routing, also
            for the estimator's `fit` and the scorer. With it, these get what they request, and
            ``set_fit_request(sample_weight=False)`` keeps weights from merging.
        **params : dict
            Metadata that is routed to the estimator, the splitter and the scorer. Only with
            ``sklearn.set_config(enable_metadata_routing=True)``.

        Returns
        -------
        self : WordMergerCV
        """
        _raise_for_params(params, self, "fit")
        if self.rule not in RULES:
            raise unknown_name("rule", self.rule, RULES)
        reset_fitted(self)
        if is_lazy(X):
            raise BagwiseError(
                "Cross-validation needs the samples in memory, but X is a Dask collection. Choose the number of groups "
                "on X.compute(), or on a part of it that fits, such as X[:100_000].compute(); then fit WordMerger with "
                "that number to X."
            )
        criterion = resolve_criterion(self.criterion)
        if isinstance(criterion, GraphPair):
            raise BagwiseError(
                "WordMergerCV splits the samples into folds, but the graphs of a GraphPair are over all samples. Use "
                "WordMerger."
            )
        X, y, labelled, classes = self._check_data(X, y, criterion)
        sizes = self._sizes(X.shape[1])
        estimator = self._estimator()
        splitter = check_cv(self.cv, classes, classifier=is_classifier(estimator))
        routed = self._route(groups, sample_weight, params)
        weighted = sample_weight is not None and metadata_request(self, "fit", "sample_weight") is not False
        merging = {"sample_weight": np.asarray(sample_weight)} if weighted else {}
        path = score_path(
            X,
            y,
            sizes,
            merger=self._merger(memory_limit=self._memory_per_fold()),
            estimator=estimator,
            splits=list(splitter.split(X, classes, **routed.splitter.split)),
            scorer=self._scorer(),
            predict=self.rule == "paired" and is_classifier(estimator),
            labelled=labelled,
            merge_params=merging,
            fit_params=routed.estimator.fit,
            score_params=routed.scorer.score,
            n_jobs=self.n_jobs,
        )
        self.cv_results_ = _results(path)
        self.best_index_ = path.choose(self.rule)
        self.best_score_ = float(path.means[self.best_index_])
        self.n_groups_ = int(sizes[self.best_index_])
        self.merger_ = self._merger(n_groups=self.n_groups_, n_jobs=self.n_jobs).fit(X, y, **merging)
        return self

    def _check_data(
        self, X: Any, y: Any, criterion: Criterion
    ) -> tuple[Any, NDArray[Any], NDArray[np.bool_] | None, NDArray[Any]]:
        """Check X and y; find which samples have labels, and the classes that folds are stratified by."""
        checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": FLOATS, "ensure_min_samples": 2}
        check_single_labels(y)
        if not criterion.takes_missing_labels:
            X, y = validate_data(self, X, y, **checks)
            return X, y, None, y
        X, y = validate_data(self, X, **checks), np.asarray(y).reshape(-1)
        check_consistent_length(X, y)
        labelled = is_labelled(y)
        classes: NDArray[Any] = np.full(len(y), -1)  # samples without a label are a class of their own
        classes[labelled] = np.unique(y[labelled].tolist(), return_inverse=True)[1]
        return X, y, labelled, classes

    def _route(self, groups: Any, sample_weight: Any, params: dict[str, Any]) -> Bunch:
        """Say which metadata go to the estimator, the splitter and the scorer."""
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        if _routing_enabled():
            metadata = params | weights | ({} if groups is None else {"groups": groups})
            return process_routing(self, "fit", **metadata)
        fit = weights
        if sample_weight is not None and self.estimator is None:
            fit = {"linearsvc__sample_weight": sample_weight}
        elif sample_weight is not None and not has_fit_parameter(self.estimator, "sample_weight"):
            raise BagwiseError(
                f"{type(self.estimator).__name__}.fit takes no sample_weight. Use another estimator, or "
                "sklearn.set_config(enable_metadata_routing=True) and request sample_weight where it is needed."
            )
        return Bunch(
            estimator=Bunch(fit=fit), splitter=Bunch(split={"groups": groups}), scorer=Bunch(score=dict(weights))
        )

    def _estimator(self) -> Any:
        return make_pipeline(MaxAbsScaler(), LinearSVC()) if self.estimator is None else self.estimator

    def _scorer(self) -> Any:
        return check_scoring(self._estimator(), scoring=self.scoring)

    def _memory_per_fold(self) -> int | float | str | None:
        """Divide the free memory between the folds that run at the same time."""
        if self.memory_limit is not None:
            return self.memory_limit
        limit = resolve_limit(None)
        return None if limit is None else max(limit // effective_n_jobs(self.n_jobs), 1)

    def _sizes(self, n_words: int) -> NDArray[np.int64]:
        """Sizes to try, ascending."""
        if self.n_groups is None:
            return np.array(path_sizes(n_words))
        sizes = np.asarray(self.n_groups)
        if sizes.ndim != 1 or sizes.size == 0 or not np.issubdtype(sizes.dtype, np.integer) or sizes.min() < 1:
            raise BagwiseError(f"n_groups must be a sequence of integers of at least 1, got {self.n_groups!r}.")
        return np.unique(np.minimum(sizes, n_words))

    def _merger(self, **changes: Any) -> WordMerger:
        return WordMerger(**({name: getattr(self, name) for name in _MERGING} | changes))

    def _n_groups(self) -> int:
        return self.merger_._n_groups()

    def _weights(self) -> dict[str, Any]:
        return self.merger_._weights()

    def cut(self, n_groups: int) -> WordMerger:
        """Return a fitted merger of another size; see `WordMerger.cut`."""
        check_is_fitted(self)
        return self.merger_.cut(n_groups)

    criterion_ = _of_merger("criterion_", "Name of the criterion that was used.")
    hierarchy_ = _of_merger("hierarchy_", "The hierarchy of all samples.")
    labels_ = _of_merger("labels_", "Group of each word at the chosen size.")
    scores_ = _of_merger("scores_", "Criterion after each merge of `hierarchy_`.")
    word_totals_ = _of_merger("word_totals_", "Sum of each word over the training samples.")
    word_weights_ = _of_merger("word_weights_", "Factor of each word, or None.")
    shift_ = _of_merger("shift_", "What is subtracted from each column, or None.")
    scale_ = _of_merger("scale_", "Factor of each column after that, or None.")

    def get_metadata_routing(self) -> MetadataRouter:
        """Get the metadata routing of this object.

        Returns
        -------
        routing : MetadataRouter
            `sample_weight` for merging is requested by ``set_fit_request(sample_weight=True)``.
        """
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(estimator=self._estimator(), method_mapping=MethodMapping().add(caller="fit", callee="fit"))
            .add(splitter=check_cv(self.cv), method_mapping=MethodMapping().add(caller="fit", callee="split"))
            .add(scorer=self._scorer(), method_mapping=MethodMapping().add(caller="fit", callee="score"))
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "merger_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.positive_only = needs_non_negative(self)
        return tags


def _results(path: PathScores) -> dict[str, NDArray[Any]]:
    means = path.means
    results = {
        "n_groups": path.sizes,
        "mean_test_score": means,
        "std_test_score": path.scores.std(axis=0),
        # 1 for the best; equal scores share the better rank
        "rank_test_score": np.array([1 + int(np.sum(means > mean)) for mean in means]),
        "merge_time": path.merge_times,
    }
    return results | {f"split{k}_test_score": fold for k, fold in enumerate(path.scores)}
