"""`ConfidenceWeightedClassifier`: a linear classifier with a variance for each weight."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from bagwise._compat import N_JOBS, Interval, _fit_context
from bagwise._utils.checks import reset_fitted
from bagwise._utils.threads import run_over_ranges
from bagwise._utils.validation import check_sample_weight, validate_data
from bagwise.baselines._kernels import confidence_weighted_pass
from bagwise.errors import BagwiseError

__all__ = ["ConfidenceWeightedClassifier", "GaussianWeights"]

_FLOATS = (np.float64, np.float32)


class GaussianWeights:
    """Weights of linear classifiers as independent Gaussians, learned one sample after the other.

    A sample x with label s = 1 or -1 has the margin ``M = s μ·x``, with the variance ``V = Σ_d σ²_d x_d²``, and should
    have ``M ≥ φ V``. Asking for ``M ≥ φ sqrt(V)`` would make it right with probability Φ(φ); with the variance for its
    root the problem is convex. A sample that falls short moves the weights as little as that takes, in
    Kullback-Leibler divergence:

        ``α = max(0, (sqrt((1 + 2φM)² - 8φ(M - φV)) - (1 + 2φM)) / 4φV)``
        ``μ += α s σ² x``,  ``1/σ²_d += 2αφ x_d²``

    Binary problem k has the samples with code ``positives[k]`` as positives, all others as negatives. The last weight
    of each row is that of a feature that is 1 in all samples, used with `intercept`. With `averaged`, the mean of μ
    over all steps is kept.
    """

    def __init__(
        self, n_features: int, positives: NDArray[np.int64], initial_variance: float, intercept: bool, averaged: bool
    ) -> None:
        shape = (len(positives), n_features + 1)
        self.positives = positives
        self.intercept = intercept
        self.mean = np.zeros(shape)
        self.variance = np.full(shape, float(initial_variance))
        self.drift = np.zeros(shape if averaged else (len(positives), 0))
        self.n_seen = 0

    def learn(
        self,
        X: Any,
        codes: NDArray[np.int64],
        order: NDArray[np.int64],
        phi: float,
        n_threads: int = 1,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> int:
        """Update the weights with rows of X in the given order; returns the number of updates.

        X is C-contiguous, or CSR with each column at most once in a row. Each thread takes whole problems.
        """
        weights = np.ones(X.shape[0]) if sample_weight is None else sample_weight
        dense = not sp.issparse(X)
        if dense:
            indptr, indices = np.arange(X.shape[0] + 1) * X.shape[1], np.arange(X.shape[1])
            data = X.reshape(-1)
        else:
            indptr, indices, data = X.indptr, X.indices, X.data
        updates = np.zeros(len(self.positives), dtype=np.int64)

        def learn_problems(start: int, stop: int) -> None:
            for k in range(start, stop):
                updates[k] = confidence_weighted_pass(
                    indptr, indices, data, dense, order, codes, weights, self.positives[k], phi, self.intercept,
                    self.mean[k], self.variance[k], self.drift[k], self.n_seen,
                )  # fmt: skip

        run_over_ranges(learn_problems, len(self.positives), n_threads, size=1)
        self.n_seen += len(order)
        if not (np.isfinite(self.mean).all() and np.isfinite(self.variance).all()):
            raise BagwiseError(
                "The weights are no longer finite: values of X are too large to be squared and added. "
                "Scale X, for example with sklearn.preprocessing.MaxAbsScaler or Normalizer."
            )
        return int(updates.sum())

    def averaged_mean(self) -> NDArray[np.float64]:
        """Mean of μ after each of the samples seen so far."""
        return self.mean - self.drift / max(self.n_seen, 1)


class ConfidenceWeightedClassifier(ClassifierMixin, BaseEstimator):
    """Linear classifier with a variance for each weight: weights of rare words change more than those of frequent ones.

    1. Each weight is a Gaussian, initially with mean 0 and the same variance.
    2. A sample that is not classified correctly with enough `confidence` changes the means of its features, most where
       the variance is largest, and reduces their variances.
    3. Several classes are learned one versus rest.

    There is no learning rate to tune, one to ten passes suffice, and `partial_fit` learns from a stream.

    Parameters
    ----------
    confidence : float, default=0.9
        Probability, between 0.5 and 1, with which a training sample should be classified correctly: φ is its quantile
        under the normal distribution. Lower it for noisy labels.
    initial_variance : float, default=1.0
        Variance of all weights before the first sample. Without an intercept, multiplying it by c² is the same as
        multiplying X by c.
    max_iter : int, default=5
        Number of passes of `fit` over the data.
    shuffle : bool, default=True
        Whether `fit` shuffles the samples in each pass. `partial_fit` keeps their order.
    average : bool, default=False
        Whether to use the mean of the weights over all steps rather than the last weights; more robust to noise.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    n_jobs : int, default=None
        Number of threads, if there are more than two classes.
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1 or n_classes, n_features_in_)
        Means of the weights. One row for two classes.
    intercept_ : ndarray of shape (1 or n_classes,)
    variance_ : ndarray of shape (1 or n_classes, n_features_in_)
        Variances of the weights.
    n_updates_ : int
        Number of updates, over all passes and problems.
    n_iter_ : int
        Passes over the data in the last call of `fit` or `partial_fit`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    sklearn.linear_model.SGDClassifier : One learning rate for all weights.
    sklearn.svm.LinearSVC : Batch learning; slower.

    Notes
    -----
    A pass takes O(non-zeros × problems) time; the model two numbers a weight (three with `average`). Sparse data stay
    sparse, and give the same bits as dense ones. The order of the samples matters.

    References
    ----------
    M. Dredze, K. Crammer, F. Pereira, "Confidence-weighted linear classification", ICML 2008.

    Examples
    --------
    >>> from bagwise.baselines import ConfidenceWeightedClassifier
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> y = ["cat", "cat", "dog", "dog"]
    >>> classifier = ConfidenceWeightedClassifier(random_state=0).fit(X, y)
    >>> classifier.predict([[3, 2, 1, 0], [0, 0, 1, 2]])
    array(['cat', 'dog'], dtype='<U3')
    """

    _parameter_constraints: ClassVar[dict] = {
        "confidence": [Interval(Real, 0.5, 1, closed="neither")],
        "initial_variance": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "shuffle": ["boolean"],
        "average": ["boolean"],
        "fit_intercept": ["boolean"],
        "n_jobs": list(N_JOBS),
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        confidence: float = 0.9,
        *,
        initial_variance: float = 1.0,
        max_iter: int = 5,
        shuffle: bool = True,
        average: bool = False,
        fit_intercept: bool = True,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.confidence = confidence
        self.initial_variance = initial_variance
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.average = average
        self.fit_intercept = fit_intercept
        self.n_jobs = n_jobs
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the classifier in `max_iter` passes over the data.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Class of each sample.
        sample_weight : array-like of shape (n_samples,), default=None
            Non-negative weights. The step size α of a sample is multiplied by its weight relative to the largest.
            Samples of weight 0 do not count. As for `sklearn.linear_model.SGDClassifier`, weighting a sample is not the
            same as repeating it.

        Returns
        -------
        self : ConfidenceWeightedClassifier
        """
        self._forget()
        X, y, factors = self._check(X, y, sample_weight, reset=True)
        if factors is not None:
            factors = factors / factors.max()
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise BagwiseError(f"y has one class, {classes[0]!s}: a classifier needs at least two.")
        weights = self._start(len(classes))
        random = check_random_state(self.random_state)
        order = np.arange(X.shape[0])
        n_updates = 0
        for _ in range(self.max_iter):
            if self.shuffle:
                order = random.permutation(X.shape[0])
            n_updates += self._learn(weights, X, codes, order, factors)
        self._store(classes, weights, n_updates)
        self.n_iter_ = int(self.max_iter)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from more samples, in one pass in the given order. The result does not depend on how a stream is split.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        classes : array-like, default=None
            All classes that can occur. Required in the first call.
        sample_weight : array-like of shape (n_samples,), default=None
            Factors of the step sizes, from 0 to 1: the largest of a stream is not known in advance.

        Returns
        -------
        self : ConfidenceWeightedClassifier
        """
        first = not hasattr(self, "_weights")
        if first and classes is None:
            raise BagwiseError("The first call of partial_fit needs classes=, a list of all classes.")
        X, y, factors = self._check(X, y, sample_weight, reset=first)
        if factors is not None and factors.max() > 1:
            raise BagwiseError(
                f"sample_weight of partial_fit must be from 0 to 1, got {factors.max():g}. Divide the weights by "
                "the largest of the stream."
            )
        known = self.classes_ if classes is None else np.unique(column_or_1d(classes))
        if not first and not np.array_equal(known, self.classes_):
            raise BagwiseError(
                f"classes={known.tolist()} differ from those of the first call, {self.classes_.tolist()}. "
                "Leave classes out, or make a new classifier."
            )
        if len(known) < 2:
            raise BagwiseError(f"classes has one class, {known.tolist()}. Give at least two.")
        new = np.setdiff1d(y, known)
        if len(new):
            raise BagwiseError(f"y has labels that are not among classes={known.tolist()}: {new.tolist()}.")
        weights = self._start(len(known)) if first else self._weights
        if not first and (weights.intercept, weights.drift.size > 0) != (self.fit_intercept, self.average):
            raise BagwiseError("fit_intercept and average cannot be changed between calls of partial_fit; use fit.")
        n_updates = 0 if first else self.n_updates_
        try:
            order = np.arange(X.shape[0])
            n_updates += self._learn(weights, X, np.searchsorted(known, y), order, factors)
        except BaseException:
            self._forget()  # weights that are half changed are of no use
            raise
        self._store(known, weights, n_updates)
        self.n_iter_ = 1
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Compute the mean margins.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        margins : ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes, above 0 for the second.
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=_FLOATS, reset=False)
        margins = np.asarray(X @ self.coef_.T) + self.intercept_
        return margins.ravel() if len(self.classes_) == 2 else margins

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class with the largest margin.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        margins = self.decision_function(X)
        best = (margins > 0).astype(np.intp) if margins.ndim == 1 else margins.argmax(axis=1)
        return self.classes_[best]

    def _check(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Any, NDArray[Any], Any]:
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=_FLOATS, order="C", reset=reset)
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X, ensure_non_negative=True)
            if not sample_weight.any():
                raise BagwiseError("sample_weight is 0 for all samples. At least one weight must be positive.")
            if not sample_weight.all():
                kept = np.flatnonzero(sample_weight)
                X, y, sample_weight = X[kept], y[kept], sample_weight[kept]
        return X, y, sample_weight

    def _start(self, n_classes: int) -> GaussianWeights:
        positives = np.array([1]) if n_classes == 2 else np.arange(n_classes)
        return GaussianWeights(self.n_features_in_, positives, self.initial_variance, self.fit_intercept, self.average)

    def _learn(self, weights: GaussianWeights, X: Any, codes: Any, order: Any, sample_weight: Any) -> int:
        phi = float(ndtri(self.confidence))
        return weights.learn(X, codes, order, phi, effective_n_jobs(self.n_jobs), sample_weight)

    def _store(self, classes: NDArray[Any], weights: GaussianWeights, n_updates: int) -> None:
        means = weights.averaged_mean() if self.average else weights.mean
        self.classes_ = classes
        self.coef_ = means[:, :-1].copy()
        self.intercept_ = means[:, -1].copy()
        self.variance_ = weights.variance[:, :-1].copy()
        self.n_updates_ = n_updates
        self._weights = weights

    def _forget(self) -> None:
        """Remove what was fitted, should this fit fail."""
        reset_fitted(self)
        self.__dict__.pop("_weights", None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
