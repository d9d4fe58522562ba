"""`CompactClassifier`: a linear classifier whose words are merged into groups, with the same answers."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC
from sklearn.utils import Tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from bagwise._compat import (
    HasMethods,
    Interval,
    StrOptions,
    _check_feature_names_in,
    _fit_context,
    _raise_for_params,
    _routing_enabled,
    metadata_request,
)
from bagwise._utils.checks import check_integer, reset_fitted
from bagwise._utils.matrices import is_whole
from bagwise._utils.validation import check_sample_weight, check_single_labels, validate_data
from bagwise.codebooks.normalizing import WordWeighting, inverse_document_frequencies
from bagwise.errors import BagwiseError
from bagwise.merging.display import FittedView
from bagwise.merging.engine import merge
from bagwise.merging.grouping import FLOATS, copy_fitted, in_container
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.naming import name_groups
from bagwise.merging.pooling import pool
from bagwise.merging.refining import nearest_means
from bagwise.merging.scoring import WeightLoss
from bagwise.merging.sizes import path_sizes
from bagwise.merging.teacher import ScoreMoments, Teacher, answers, balanced_weights, mean_weights

__all__ = ["CompactClassifier", "CompactPath", "compress"]

# Weights of up to this many groups are fitted to scores; the sums that this takes are kept, 8 MB.
MOST_FITTED = 1000
# The largest value of X: liblinear, behind LinearSVC, never ends for much larger ones.
_LARGEST = 1e30


@dataclass(frozen=True, eq=False)
class CompactPath:
    """How a compact classifier does at several numbers of groups.

    Attributes
    ----------
    sizes : ndarray of int
        Numbers of groups, ascending.
    agreement : ndarray of float
        Fraction of items for which the answer is that of the classifier on all words.
    losses : ndarray of float
        Mean squared change of the scores, as a fraction of their variance. On training data it tells more than the
        agreement, which is near 1 for most sizes.
    errors : ndarray of float or None
        Error rate, where labels were given.
    """

    sizes: NDArray[np.int64]
    agreement: NDArray[np.float64]
    losses: NDArray[np.float64]
    errors: NDArray[np.float64] | None = None


def _has_probabilities(compact: CompactClassifier) -> bool:
    estimator = _unfrozen(getattr(compact, "estimator_", compact.estimator))
    # those of SVC do not come from its weights, which are computed
    return hasattr(estimator, "predict_proba") and not isinstance(getattr(type(estimator), "coef_", None), property)


class CompactClassifier(FittedView, ClassifierMixin, TransformerMixin, BaseEstimator):
    """A linear classifier whose words are merged into a few groups, so that its answers stay the same.

    1. `fit` learns a linear classifier on all words, the teacher.
    2. It merges words whose weights in the teacher are alike (`bagwise.criteria.ClassifierLoss`), which gives a
       hierarchy of groups of all sizes. The groups of the cut at `n_groups` are improved by k-means.
    3. It fits the weights of `n_groups` groups to the *scores* of the teacher. Labels are not used again: the groups
       were made from them, and fitting to them a second time overfits. Rare classes count as much as frequent ones.

    What is left is a table with one group number for each word, and a few weights.

    Parameters
    ----------
    estimator : linear classifier, default=None
        The teacher: any scikit-learn classifier whose scores are ``X @ coef_.T + intercept_``. It is cloned and fitted,
        unless it is inside a `FrozenEstimator`. None: ``LinearSVC(random_state=0)``.
    n_groups : int, default=20
        Number of groups. If there are no more words than that, each is its own group, and the answers are those of the
        teacher. Take at least the number of classes.
    weights : {"scores", "mean"}, default="scores"
        Weights of groups: fitted to the teacher's scores by ridge regression, or the means of the weights of their
        words. More than 1000 groups always have the means.
    weighting : {"auto", "tfidf"} or None, default="auto"
        How words are weighted before all else. "tfidf": by sublinear TF-IDF with rows of length 1, as `bagwise fit`
        weights the words of texts. None: X is used as it is. "auto": "tfidf" if X has raw counts, otherwise, and for
        a `FrozenEstimator`, None; see Notes.

    Attributes
    ----------
    estimator_ : fitted classifier
        The teacher, fitted to weighted words.
    weighting_ : WordWeighting or None
        How words are weighted.
    teacher_ : Teacher
        Its weights, and the mean square of each word.
    hierarchy_ : Hierarchy
        All merges.
    labels_ : ndarray of shape (n_features_in_,)
        The column of `transform` that each word is added to.
    coef_ : ndarray of shape (n_classes, n_groups) or (1, n_groups)
    intercept_ : ndarray of shape (n_classes,) or (1,)
    classes_ : ndarray of shape (n_classes,)
    path_ : CompactPath or None
        Agreement with the teacher and errors on the training data, for several numbers of groups. None for a classifier
        that was compressed without data.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    compress : The same for a fitted pipeline.
    WordMerger : Merges words by any criterion, for any classifier.

    Notes
    -----
    The training data are not kept. For `cut`, the sums from which weights are fitted are kept for the finest 1000
    groups, 8 MB; smaller groups than these are not taken apart when the groups of a cut are improved.

    X has raw counts if its numbers are whole, none negative, some above 1, and at least half of them 0. Sums of raw
    counts tell classes apart badly: a few long samples and frequent words outweigh all others. Chosen by
    cross-validation on texts (``benchmarks/compact.py``).

    Two classes take O(d log d) time for d words after the teacher is fitted, C classes O(C d²).

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from bagwise import CompactClassifier
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> y = ["cat", "cat", "dog", "dog"]
    >>> compact = CompactClassifier(LinearSVC(), n_groups=2).fit(X, y)
    >>> compact.predict([[3, 3, 0, 0], [0, 0, 1, 1]])
    array(['cat', 'dog'], dtype='<U3')
    >>> compact.transform(X)
    array([[7., 1.],
           [9., 1.],
           [1., 9.],
           [1., 9.]])
    >>> compact.get_feature_names_out(["paw", "meow", "bark", "bone"])
    array(['paw+meow', 'bark+bone'], dtype=object)
    >>> compact.cut(3).transform(X).shape
    (4, 3)
    """

    _parameter_constraints: ClassVar[dict] = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "n_groups": [Interval(Integral, 1, None, closed="left")],
        "weights": [StrOptions({"scores", "mean"})],
        "weighting": [StrOptions({"auto", "tfidf"}), None],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_groups: int = 20,
        weights: str = "scores",
        weighting: str | None = "auto",
    ) -> None:
        self.estimator = estimator
        self.n_groups = n_groups
        self.weights = weights
        self.weighting = weighting

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None, **params: Any) -> Self:
        """Learn the teacher, merge its words and fit the weights of the groups.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Counts of words, word weights such as TF-IDF, or histograms, one sample a row.
        y : array-like of shape (n_samples,), default=None
            Labels, one per sample. Not needed if the estimator is a `FrozenEstimator`.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights, for the groups and, without metadata routing, for the estimator. With it, the
            estimator gets what it requests, and ``set_fit_request(sample_weight=False)`` keeps weights from the groups.
        **params : dict
            Metadata that is routed to the estimator. Only with ``sklearn.set_config(enable_metadata_routing=True)``.

        Returns
        -------
        self : CompactClassifier
        """
        _raise_for_params(params, self, "fit")
        reset_fitted(self)
        checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": FLOATS, "largest": _LARGEST}
        if y is None and isinstance(self.estimator, FrozenEstimator):
            X = validate_data(self, X, **checks)
        else:
            check_single_labels(y)
            X, y = validate_data(self, X, y, **checks)
            _check_classes(np.asarray(y))
        routed = self._route(sample_weight, params)
        weights = None
        if sample_weight is not None and metadata_request(self, "fit", "sample_weight") is not False:
            weights = check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.weighting_ = self._find_weighting(X, weights)
        X = self._weighted(X)
        self.estimator_ = clone(self._estimator()).fit(X, y, **routed)
        self._learn(Teacher.of(self.estimator_, X, weights), X, None if y is None else np.asarray(y), weights)
        return self

    def _estimator(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        default = LinearSVC(random_state=0)
        return default.set_fit_request(sample_weight=True) if _routing_enabled() else default

    def _route(self, sample_weight: Any, params: dict[str, Any]) -> dict[str, Any]:
        """Metadata for the estimator."""
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        if _routing_enabled():
            routed: dict[str, Any] = process_routing(self, "fit", **params, **weights).estimator.fit
            return routed
        estimator = self._estimator()
        if isinstance(estimator, FrozenEstimator):
            return {}
        if weights and not has_fit_parameter(estimator, "sample_weight"):
            raise BagwiseError(
                f"{type(estimator).__name__}.fit takes no sample_weight. Use another estimator, or "
                "sklearn.set_config(enable_metadata_routing=True) and request sample_weight where it is needed."
            )
        return weights

    def _find_weighting(self, X: Any, sample_weight: NDArray[np.float64] | None) -> WordWeighting | None:
        frozen = isinstance(self.estimator, FrozenEstimator)
        if frozen and self.weighting == "tfidf":
            raise BagwiseError(
                "weighting='tfidf' with a FrozenEstimator: it was fitted to other columns than weighted ones. Use "
                "weighting=None, and give what it was fitted to, or an estimator that is not fitted."
            )
        counted = X if sample_weight is None else X[sample_weight > 0]
        if self.weighting == "tfidf" or (self.weighting == "auto" and not frozen and _has_counts(counted)):
            return WordWeighting("log", inverse_document_frequencies(X, sample_weight), "l2")
        return None

    def _weighted(self, X: Any) -> Any:
        """Weight words of checked data, which keep their type."""
        return X if self.weighting_ is None else self.weighting_.apply(X).astype(X.dtype, copy=False)

    def _checked(self, X: Any) -> Any:
        """Check data and weight their words."""
        check_is_fitted(self)
        return self._weighted(validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS))

    def _learn(
        self,
        teacher: Teacher,
        X: Any = None,
        y: NDArray[Any] | None = None,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> None:
        """Merge the words of the teacher; without X, weights are means."""
        self.teacher_, self.classes_ = teacher, teacher.classes
        self.hierarchy_: Hierarchy = merge(WeightLoss(teacher.mass, teacher.coef.T), name="classifier")
        self._moments: ScoreMoments | None = None
        self.path_: CompactPath | None = None
        if X is not None:
            n_base, scores = min(len(teacher.mass), MOST_FITTED), teacher.scores(X)
            balanced = balanced_weights(scores, sample_weight)
            self._moments = ScoreMoments.of(pool(X, self.hierarchy_.cut(n_base), n_base), scores, balanced)
        self._group(self.n_groups)
        if X is not None:
            self.path_ = self._path(X, y, sample_weight=sample_weight)

    def _group(self, n_groups: int) -> None:
        """Set `labels_`, `coef_` and `intercept_` for a number of groups."""
        teacher, n_words = self.teacher_, len(self.teacher_.mass)
        n_groups, n_base = min(int(n_groups), n_words), min(n_words, MOST_FITTED)
        base = self.hierarchy_.cut(n_base)
        if n_groups >= n_base:
            self.labels_ = self.hierarchy_.cut(n_groups)
        else:
            mass = np.bincount(base, teacher.mass, minlength=n_base).astype(np.float64)
            self.labels_ = alike_weights(mass, mean_weights(teacher, base, n_base)[0].T, n_groups)[base]
        self.coef_, self.intercept_ = mean_weights(teacher, self.labels_, n_groups)
        if self.weights == "scores" and self._moments is not None and n_groups <= n_base and n_groups < n_words:
            first = np.unique(base, return_index=True)[1]  # a word of each of the finest groups
            self.coef_, self.intercept_ = self._moments.merged(self.labels_[first], n_groups).weights(self.coef_)

    def cut(self, n_groups: int) -> Self:
        """Return a fitted classifier of another size, without fitting the teacher again.

        Parameters
        ----------
        n_groups : int
            Number of groups.

        Returns
        -------
        compact : CompactClassifier
            Shares teacher and hierarchy; this classifier is not changed. Its weights are those that fitting with this
            number of groups would give.
        """
        check_is_fitted(self)
        other = copy_fitted(self, n_groups=check_integer(n_groups, "n_groups", 1))
        other._group(n_groups)
        return other

    @property
    def groups_(self) -> list[NDArray[np.int64]]:
        """The words of each group, in the order of the columns of `transform`."""
        check_is_fitted(self)
        return [np.flatnonzero(self.labels_ == group) for group in range(self.coef_.shape[1])]

    def transform(self, X: Any) -> Any:
        """Add up the weighted words of each group.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray or CSR matrix of shape (n_samples, n_groups)
            Sparse if X is; by ``set_output(transform="pandas")`` a frame of sparse columns.
        """
        return in_container(self, pool(self._checked(X), self.labels_, self.coef_.shape[1]))

    def _scores(self, X: Any) -> NDArray[np.float64]:
        return np.asarray(pool(X, self.labels_, self.coef_.shape[1]) @ self.coef_.T) + self.intercept_

    def _answers(self, scores: NDArray[np.float64]) -> NDArray[Any]:
        return self.classes_[answers(scores)]

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores of each class, or of the second one of two.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes) or (n_samples,)
        """
        scores = self._scores(self._checked(X))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of each sample.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        return self._answers(self._scores(self._checked(X)))

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict probabilities of classes, as the estimator makes them of its scores; only where it does.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        X = self._checked(X)
        of_groups = copy.copy(_unfrozen(self.estimator_))
        vars(of_groups).pop("feature_names_in_", None)
        of_groups.coef_, of_groups.intercept_ = self.coef_, self.intercept_
        of_groups.n_features_in_ = self.coef_.shape[1]
        probabilities: NDArray[np.float64] = of_groups.predict_proba(pool(X, self.labels_, self.coef_.shape[1]))
        return probabilities

    def path(self, X: Any, y: ArrayLike | None = None, sizes: ArrayLike | None = None) -> CompactPath:
        """Compare the answers at several numbers of groups with those of the teacher, and with labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
        sizes : array-like of int, default=None
            Numbers of groups. None: 2, 5, 10, 20, 50 and so on up to 1000, and `n_groups`.

        Returns
        -------
        path : CompactPath
        """
        return self._path(self._checked(X), y, sizes)

    def _path(
        self,
        X: Any,
        y: ArrayLike | None,
        sizes: ArrayLike | None = None,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> CompactPath:
        """`path` for weighted words."""
        n_words = len(self.teacher_.mass)
        if sizes is None:
            n_groups = min(int(self.n_groups), n_words)
            sizes = [size for size in path_sizes(n_words, n_groups) if size <= max(MOST_FITTED, n_groups)]
        chosen = np.unique([check_integer(size, "sizes", 1, n_words) for size in np.ravel(sizes).tolist()])
        expected = self.teacher_.scores(X)
        theirs = self._answers(expected)
        mean = np.average(expected, axis=0, weights=sample_weight)
        variance = float(np.average(np.square(expected - mean).sum(axis=1), weights=sample_weight)) or 1.0
        agreement, losses, errors = [], [], []
        for size in chosen.tolist():
            scores = self.cut(size)._scores(X)
            answers = self._answers(scores)
            agreement.append(np.average(answers == theirs, weights=sample_weight))
            changes = np.square(scores - expected).sum(axis=1)
            losses.append(np.average(changes, weights=sample_weight) / variance)
            errors.append(np.nan if y is None else np.average(answers != np.asarray(y), weights=sample_weight))
        return CompactPath(chosen, np.array(agreement), np.array(losses), None if y is None else np.array(errors))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Name the groups after their words of the largest mean square.

        Parameters
        ----------
        input_features : array-like of str, default=None
            The words. None: the column names seen in `fit`, or x0, x1, …

        Returns
        -------
        names : ndarray of str objects, shape (n_groups,)
            Unique names.
        """
        check_is_fitted(self)
        words = _check_feature_names_in(self, input_features)
        return name_groups(words, self.teacher_.mass, self.labels_, self.coef_.shape[1])

    def get_metadata_routing(self) -> MetadataRouter:
        """Get the metadata routing of this object.

        Returns
        -------
        routing : MetadataRouter
            `sample_weight` for the groups is requested by ``set_fit_request(sample_weight=True)``.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return (
            MetadataRouter(owner=self).add_self_request(self).add(estimator=self._estimator(), method_mapping=mapping)
        )

    @property
    def _n_features_out(self) -> int:
        return self.coef_.shape[1]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = not isinstance(self.estimator, FrozenEstimator)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _unfrozen(estimator: Any) -> Any:
    return estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator


def _check_classes(y: NDArray[Any]) -> None:
    check_classification_targets(y)
    classes = np.unique(y)
    if len(classes) < 2:
        raise BagwiseError(
            f"CompactClassifier needs at least two classes in y; got only one class, {classes.tolist()}. Give samples "
            "of other classes too. Without classes, WordMerger(criterion='clusters') groups words."
        )


def _has_counts(X: Any) -> bool:
    """Whether X has raw counts: whole numbers, none negative, some above 1, and at least half of them 0."""
    values = X.data if sp.issparse(X) else X
    n_filled = np.count_nonzero(values)
    few = 0 < 2 * n_filled <= X.shape[0] * X.shape[1]
    return bool(few and values.min() >= 0 and values.max() > 1 and is_whole(X))


def alike_weights(mass: NDArray[np.float64], weights: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Group words whose weights are alike: by merging, then by k-means from the groups that this gives.

    Lowers ``Σ_j m_j |w_j - V_g(j)|²`` for the mean weights V of groups.

    Parameters
    ----------
    mass : ndarray of shape (n_words,)
    weights : ndarray of shape (n_words, n_outputs)
    size : int
        Number of groups.

    Returns
    -------
    labels : ndarray of shape (n_words,)
        Those of merging, if k-means leaves a group without words.
    """
    merged = merge(WeightLoss(mass, weights), size).cut(size)
    labels = nearest_means(mass, weights, merged, size)
    return labels if len(np.unique(labels)) == size else merged


def compress(model: Any, X: Any = None, *, n_groups: int = 20) -> Any:
    """Make a fitted linear classifier, or a pipeline that ends in one, compact.

    Parameters
    ----------
    model : fitted Pipeline or classifier
        The last step is a linear classifier such as `LinearSVC`; the steps before it give the words.
    X : array-like, default=None
        Input of the model, such as texts; no labels are needed. The weights of groups are fitted to the classifier's
        scores on it. None: they are means of the weights of words, and how much a word counts is estimated from
        the idf of a `TfidfVectorizer` or `TfidfTransformer` of the pipeline; without one all words count equally. A
        warning says so, since with X fewer answers change: 2.1 % instead of 2.4 or 2.5 % at 20 groups, in the mean
        of 16 tasks of texts and digits (``benchmarks/compact.py``).
    n_groups : int, default=20
        Number of groups.

    Returns
    -------
    compact : Pipeline or CompactClassifier
        The same steps, not copied, with a fitted `CompactClassifier` at the end; or that alone, for a classifier.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import LinearSVC
    >>> from bagwise import compress
    >>> texts = ["cats purr and meow", "a cat may purr", "dogs bark", "the dog will bark"]
    >>> pipeline = make_pipeline(TfidfVectorizer(), LinearSVC()).fit(texts, ["cat", "cat", "dog", "dog"])
    >>> compact = compress(pipeline, texts, n_groups=4)
    >>> compact.predict(["meow", "bark bark"])
    array(['cat', 'dog'], dtype='<U3')
    >>> compact[-1].coef_.shape
    (1, 4)
    """
    check_integer(n_groups, "n_groups", 1)
    steps = list(model.steps) if isinstance(model, Pipeline) else [("classifier", model)]
    name, estimator = steps[-1]
    if isinstance(estimator, CompactClassifier):
        raise BagwiseError("The classifier is compact already. Use its cut(n_groups) for another number of groups.")
    check_is_fitted(estimator)
    compact = CompactClassifier(FrozenEstimator(estimator), n_groups=n_groups)
    before = Pipeline(steps[:-1]) if len(steps) > 1 else None
    if X is not None:
        compact.fit(X if before is None else before.transform(X))
    else:
        compact.estimator_, compact.weighting_ = compact.estimator, None
        teacher = Teacher.of(estimator)
        compact.n_features_in_ = len(teacher.mass)
        if hasattr(estimator, "feature_names_in_"):
            compact.feature_names_in_ = estimator.feature_names_in_
        mass = _mass_by_idf([step for _, step in steps[:-1]])
        compact._learn(teacher if mass is None else replace(teacher, mass=mass))
        known = "all words count equally" if mass is None else "how much a word counts is estimated from its idf"
        warnings.warn(
            f"compress without X: weights of groups are means of the weights of their words, and {known}. With X, such "
            "as the training data without labels, they are fitted to the model's scores, and on average fewer "
            "answers change: compress(model, X).",
            UserWarning,
            stacklevel=2,
        )
    return compact if before is None else Pipeline([*steps[:-1], (name, compact)])


def _mass_by_idf(steps: list[Any]) -> NDArray[np.float64] | None:
    """Estimate the mean square of each word, up to a factor, from the idf weights of a pipeline; None without them.

    With the smoothed ``idf = log((1 + n) / (1 + df)) + 1`` a word occurs in the fraction ``exp(1 - idf)`` of all texts,
    with about its idf as its value.
    """
    mass = None
    for step in steps:
        if isinstance(step, (TfidfVectorizer, TfidfTransformer)) and step.use_idf:
            mass = np.exp(1.0 - step.idf_) * step.idf_**2
        elif mass is not None and hasattr(step, "get_support"):
            mass = mass[step.get_support()]
        elif mass is not None and getattr(step, "n_features_in_", None) is not None:
            return None  # other columns than words
    return mass
