"""`CompactClassifier`: a linear classifier whose words are merged into groups, with the same answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import HasMethods, Interval, StrOptions, _check_feature_names_in, _fit_context
from bagwise._utils.checks import check_integer, reset_fitted
from bagwise._utils.validation import validate_data
from bagwise.errors import BagwiseError
from bagwise.merging.criteria.base import class_codes
from bagwise.merging.display import FittedView
from bagwise.merging.engine import merge
from bagwise.merging.grouping import FLOATS, copy_fitted
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.naming import name_groups
from bagwise.merging.pooling import pool
from bagwise.merging.refining import nearest_means
from bagwise.merging.scoring import WeightLoss
from bagwise.merging.sizes import path_sizes
from bagwise.merging.teacher import ScoreMoments, Teacher, answers, mean_weights

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

    Attributes
    ----------
    estimator_ : fitted classifier
        The teacher.
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
    }

    def __init__(self, estimator: Any = None, *, n_groups: int = 20, weights: str = "scores") -> None:
        self.estimator = estimator
        self.n_groups = n_groups
        self.weights = weights

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Learn the teacher, merge its words and fit the weights of the groups.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Word weights such as TF-IDF, or histograms, one sample a row.
        y : array-like of shape (n_samples,), default=None
            Labels, one per sample. Not needed if the estimator is a `FrozenEstimator`.

        Returns
        -------
        self : CompactClassifier
        """
        reset_fitted(self)
        checks: dict[str, Any] = {"accept_sparse": "csr", "dtype": FLOATS, "largest": _LARGEST}
        if y is None and isinstance(self.estimator, FrozenEstimator):
            X = validate_data(self, X, **checks)
        else:
            try:
                shape = getattr(y, "shape", None) or np.asarray(y).shape
                given = f"has shape {shape}: several labels, or indicators of them" if shape[1:] > (1,) else ""
            except ValueError:
                given = "has lists of different lengths: several labels"
            if given:
                raise BagwiseError(
                    f"CompactClassifier takes one label per sample, but y {given}. Fit one classifier for each label, "
                    "or use the labels of a single target."
                )
            X, y = validate_data(self, X, y, **checks)
            class_codes(y, type(self).__name__)  # at least two classes
        self.estimator_ = clone(LinearSVC(random_state=0) if self.estimator is None else self.estimator).fit(X, y)
        self._learn(Teacher.of(self.estimator_, X), X, None if y is None else np.asarray(y))
        return self

    def _learn(self, teacher: Teacher, X: Any = None, y: NDArray[Any] | None = None) -> None:
        """Merge the words of the teacher; without X, weights are means."""
        self.teacher_, self.classes_ = teacher, teacher.classes
        self.hierarchy_: Hierarchy = merge(WeightLoss(teacher.mass, teacher.coef.T), name="classifier")
        self._moments: ScoreMoments | None = None
        self.path_: CompactPath | None = None
        if X is not None:
            n_base = min(len(teacher.mass), MOST_FITTED)
            self._moments = ScoreMoments.of(pool(X, self.hierarchy_.cut(n_base), n_base), teacher.scores(X))
        self._group(self.n_groups)
        if X is not None:
            self.path_ = self._path(X, y)

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
        """Add up the words of each group.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray or CSR matrix of shape (n_samples, n_groups)
            Sparse if X is.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS)
        return pool(X, self.labels_, self.coef_.shape[1])

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
        check_is_fitted(self)
        scores = self._scores(validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS))
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
        check_is_fitted(self)
        return self._answers(self._scores(validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS)))

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
        check_is_fitted(self)
        return self._path(validate_data(self, X, reset=False, accept_sparse="csr", dtype=FLOATS), y, sizes)

    def _path(self, X: Any, y: ArrayLike | None, sizes: ArrayLike | None = None) -> CompactPath:
        n_words = len(self.teacher_.mass)
        if sizes is None:
            n_groups = min(int(self.n_groups), n_words)
            sizes = [size for size in path_sizes(n_words, n_groups) if size <= max(MOST_FITTED, n_groups)]
        chosen = np.unique([check_integer(size, "sizes", 1, n_words) for size in np.ravel(sizes).tolist()])
        expected = self.teacher_.scores(X)
        theirs = self._answers(expected)
        variance = float(np.square(expected - expected.mean(axis=0)).sum()) or 1.0
        agreement, losses, errors = [], [], []
        for size in chosen.tolist():
            scores = self.cut(size)._scores(X)
            found = self._answers(scores)
            agreement.append(np.mean(found == theirs))
            losses.append(np.square(scores - expected).sum() / variance)
            errors.append(np.nan if y is None else np.mean(found != np.asarray(y)))
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
    found = nearest_means(mass, weights, merged, size)
    return found if len(np.unique(found)) == size else merged


def compress(pipeline: Any, n_groups: int = 20, X: Any = None) -> Any:
    """Make a fitted linear classifier, or a pipeline that ends in one, compact.

    Parameters
    ----------
    pipeline : fitted Pipeline or classifier
        The last step is a linear classifier such as `LinearSVC`; the steps before it give the words.
    n_groups : int, default=20
        Number of groups.
    X : array-like, default=None
        Input of the pipeline, such as texts; no labels are needed. The weights of groups are fitted to the classifier's
        scores on it. None: they are means of the weights of words, and how much a word counts is estimated from
        the idf of a `TfidfVectorizer` or `TfidfTransformer` of the pipeline; without one all words count equally.

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
    >>> compact = compress(pipeline, n_groups=4, X=texts)
    >>> compact.predict(["meow", "bark bark"])
    array(['cat', 'dog'], dtype='<U3')
    >>> compact[-1].coef_.shape
    (1, 4)
    """
    check_integer(n_groups, "n_groups", 1)
    steps = list(pipeline.steps) if isinstance(pipeline, Pipeline) else [("classifier", pipeline)]
    name, estimator = steps[-1]
    if isinstance(estimator, CompactClassifier):
        raise BagwiseError("The classifier is compact already. Use its cut(n_groups) for another number of groups.")
    check_is_fitted(estimator)
    compact = CompactClassifier(FrozenEstimator(estimator), n_groups=n_groups)
    before = Pipeline(steps[:-1]) if len(steps) > 1 else None
    if X is not None:
        compact.fit(X if before is None else before.transform(X))
    else:
        compact.estimator_ = compact.estimator
        teacher = Teacher.of(estimator)
        compact.n_features_in_ = len(teacher.mass)
        if hasattr(estimator, "feature_names_in_"):
            compact.feature_names_in_ = estimator.feature_names_in_
        mass = _mass_by_idf([step for _, step in steps[:-1]])
        compact._learn(teacher if mass is None else replace(teacher, mass=mass))
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
