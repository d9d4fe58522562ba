"""`WordMergerCV`: choosing the number of words by cross-validation, one hierarchy per fold."""

from __future__ import annotations

import time
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, TransformerMixin, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import LinearSVC
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise._compat import HasMethods, Interval, _check_feature_names_in, _fit_context
from bagwise._utils.matrices import is_lazy
from bagwise._utils.memory import resolve_limit
from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels import AdditiveKernel
from bagwise.merging.criteria import GraphPair, resolve_criterion
from bagwise.merging.criteria.base import Criterion
from bagwise.merging.criteria.separability import is_labelled
from bagwise.merging.grouping import FLOATS
from bagwise.merging.word_merger import WordMerger

__all__ = ["WordMergerCV"]

RULES = ("best", "1se")


class WordMergerCV(MetaEstimatorMixin, TransformerMixin, BaseEstimator):
    """Merge words down to the number that cross-validation finds best.

    1. In each fold one hierarchy is found on the training part and cut at every size asked for.
    2. At each size an estimator is fitted on the merged training part and scored on the merged test part.
    3. A size is chosen by `rule`, and the hierarchy found anew on all data.

    Parameters
    ----------
    n_groups : sequence of int or None, default=None
        Sizes to try; those above the number of words count as that number. None: 2, 5, 10, 20, 50, … and all words.
    estimator : estimator object, default=None
        What the merged words are for. None: a linear SVM on columns scaled to a largest value of 1.
    cv : int, splitter or iterable, default=None
        As in scikit-learn; None is 5 folds.
    rule : {"best", "1se"}, default="best"
        The size with the highest mean score (the smallest one of equals), or the smallest size that is within one
        standard error of it.
    scoring : str or callable, default=None
        As in scikit-learn; None is the estimator's own score.
    criterion, kernel, search, pooling, store, memory_limit
        As in `WordMerger`.
    n_jobs : int, default=None
        Folds worked on at the same time; each needs the memory of one `WordMerger`.
    verbose : int, default=0
        1 shows the progress of merging.

    Attributes
    ----------
    n_groups_ : int
        The size chosen.
    best_score_ : float
        Mean score over the folds at that size.
    best_index_ : int
        Its place in `cv_results_`.
    cv_results_ : dict of ndarrays
        ``n_groups``, ``mean_test_score``, ``std_test_score``, ``rank_test_score``, ``split<k>_test_score``,
        and ``merge_time`` (seconds per fold).
    merger_ : WordMerger
        Fitted on all data; its `n_groups` can be changed without fitting again.
    hierarchy_, labels_, scores_
        Those of `merger_`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    WordMerger : Merging to a given number of words.

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

    _parameter_constraints: ClassVar[dict] = {
        "n_groups": ["array-like", None],
        "estimator": [HasMethods(["fit"]), None],
        "cv": ["cv_object"],
        "rule": [str],
        "scoring": [str, callable, None],
        "criterion": [str, Criterion],
        "kernel": [str, AdditiveKernel],
        "search": [str],
        "pooling": [str],
        "store": [str],
        "memory_limit": [Interval(Real, 0, None, closed="neither"), str, None],
        "n_jobs": [Integral, None],
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
        criterion: str | Criterion = "csm",
        kernel: str | AdditiveKernel = "linear",
        search: str = "bound",
        pooling: str = "sum",
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
        self.pooling = pooling
        self.store = store
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike) -> WordMergerCV:
        """Score all sizes, choose one, and merge all data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Labels, or whatever the estimator predicts if the criterion needs none.

        Returns
        -------
        self : WordMergerCV
        """
        if self.rule not in RULES:
            raise unknown_name("rule", self.rule, RULES)
        if hasattr(self, "merger_"):  # should fitting fail, nothing of an earlier fit is left
            delattr(self, "merger_")
        if is_lazy(X):
            raise BagwiseError(
                "Cross-validation needs the samples themselves, in memory, but X is a Dask collection. Choose the "
                "number of words on X.compute(), or on a part of it that fits, such as X[:100_000].compute(); then fit "
                "WordMerger with that number to X."
            )
        criterion = resolve_criterion(self.criterion)
        if isinstance(criterion, GraphPair):
            raise BagwiseError(
                "WordMergerCV splits the samples into folds; the graphs of a GraphPair cannot follow. Use WordMerger."
            )
        checks = {"accept_sparse": "csr", "dtype": FLOATS, "ensure_min_samples": 2}
        if criterion.takes_missing_labels:
            X, y = validate_data(self, X, **checks), np.asarray(y)
            check_consistent_length(X, y)
            labelled = is_labelled(y)
            # what the folds are balanced by: the classes, and having none
            classes: NDArray[Any] = np.full(len(y), -1)
            classes[labelled] = np.unique(y[labelled].tolist(), return_inverse=True)[1]
        else:
            X, y = validate_data(self, X, y, **checks)
            labelled, classes = np.ones(X.shape[0], dtype=np.bool_), np.asarray(y)
        sizes = self._sizes(X.shape[1])
        estimator = make_pipeline(MaxAbsScaler(), LinearSVC()) if self.estimator is None else self.estimator
        scorer = check_scoring(estimator, scoring=self.scoring)
        splitter = check_cv(self.cv, classes, classifier=is_classifier(estimator))
        merger = self._merger().set_params(memory_limit=self._limit_of_a_fold())
        folds = Parallel(n_jobs=self.n_jobs)(
            delayed(_score_fold)(merger, estimator, scorer, X, y, labelled, train, test, sizes)
            for train, test in splitter.split(X, classes)
        )
        self.cv_results_ = _results(sizes, folds)
        self.best_index_ = self._choose(self.cv_results_, len(folds))
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.n_groups_ = int(sizes[self.best_index_])
        self.merger_ = self._merger().set_params(n_groups=self.n_groups_, n_jobs=self.n_jobs).fit(X, y)
        return self

    def _limit_of_a_fold(self) -> int | float | str | None:
        """Folds that run at the same time share the memory that is free."""
        if self.memory_limit is not None:
            return self.memory_limit
        limit = resolve_limit(None)
        return None if limit is None else max(limit // effective_n_jobs(self.n_jobs), 1)

    def _sizes(self, n_words: int) -> NDArray[np.int64]:
        """Read `n_groups`: the sizes to try, ascending."""
        if self.n_groups is None:
            steps = (step * 10**power for power in range(len(str(n_words))) for step in (1, 2, 5))
            return np.array([*(size for size in steps if 1 < size < n_words), n_words])
        given = np.asarray(self.n_groups)
        if given.ndim != 1 or given.size == 0 or not np.issubdtype(given.dtype, np.integer) or given.min() < 1:
            raise BagwiseError(f"n_groups must be a sequence of integers of at least 1, got {self.n_groups!r}.")
        return np.unique(np.minimum(given, n_words))

    def _merger(self) -> WordMerger:
        return WordMerger(
            criterion=self.criterion,
            kernel=self.kernel,
            search=self.search,
            pooling=self.pooling,
            store=self.store,
            memory_limit=self.memory_limit,
            verbose=self.verbose,
        )

    def _choose(self, results: dict[str, NDArray[Any]], n_folds: int) -> int:
        mean = results["mean_test_score"]
        best = int(np.argmax(mean))  # the smallest size among equals, since sizes ascend
        if self.rule == "best" or n_folds < 2:
            return best
        # std_test_score is the population's, as in scikit-learn; the standard error takes the sample's
        error = results["std_test_score"][best] / np.sqrt(n_folds - 1)
        return int(np.argmax(mean >= mean[best] - error))

    def transform(self, X: Any) -> Any:
        """Add up the words of each group; see `WordMerger.transform`."""
        check_is_fitted(self)
        if is_lazy(X):
            return self.merger_.transform(X)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS)
        return self.merger_.transform(X)

    def inverse_transform(self, Z: Any) -> Any:
        """Spread the values of groups evenly over their words; see `WordMerger.inverse_transform`."""
        check_is_fitted(self)
        return self.merger_.inverse_transform(Z)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Name each group after its heaviest words; see `WordMerger.get_feature_names_out`."""
        check_is_fitted(self)
        return self.merger_.get_feature_names_out(_check_feature_names_in(self, input_features))

    @property
    def hierarchy_(self) -> Any:
        """The hierarchy on all data."""
        check_is_fitted(self)
        return self.merger_.hierarchy_

    @property
    def labels_(self) -> NDArray[np.int64]:
        """Group of each word at the chosen size."""
        check_is_fitted(self)
        return self.merger_.labels_

    @property
    def scores_(self) -> NDArray[np.float64]:
        """Criterion after each merge of the hierarchy on all data."""
        check_is_fitted(self)
        return self.merger_.scores_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "merger_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _score_fold(
    merger: WordMerger,
    estimator: Any,
    scorer: Any,
    X: Any,
    y: NDArray[Any],
    labelled: NDArray[np.bool_],
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    sizes: NDArray[np.int64],
) -> tuple[list[float], float]:
    """One hierarchy, all sizes: the score at each, and the time that merging took."""
    started = time.perf_counter()
    merger = clone(merger).fit(X[train], y[train])
    elapsed = time.perf_counter() - started
    scores = []
    train, test = train[labelled[train]], test[labelled[test]]
    # known labels among missing ones come as objects
    y_train, y_test = (y[part] if y.dtype.kind != "O" else np.array(y[part].tolist()) for part in (train, test))
    for size in sizes:
        merger.set_params(n_groups=int(size))
        model = clone(estimator).fit(merger.transform(X[train]), y_train)
        scores.append(float(scorer(model, merger.transform(X[test]), y_test)))
    return scores, elapsed


def _results(sizes: NDArray[np.int64], folds: list[tuple[list[float], float]]) -> dict[str, NDArray[Any]]:
    scores = np.array([fold_scores for fold_scores, _ in folds])
    mean = scores.mean(axis=0)
    results = {
        "n_groups": sizes,
        "mean_test_score": mean,
        "std_test_score": scores.std(axis=0),
        # 1 for the best; equal scores share the better rank
        "rank_test_score": np.array([1 + int(np.sum(mean > value)) for value in mean]),
        "merge_time": np.array([elapsed for _, elapsed in folds]),
    }
    return results | {f"split{k}_test_score": fold for k, fold in enumerate(scores)}
