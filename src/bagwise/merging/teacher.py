"""Linear classifiers on all words, and weights of groups of words that give the same answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import solve
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from bagwise.errors import BagwiseError

__all__ = ["RIDGE", "ScoreMoments", "Teacher", "group_weights", "mean_weights"]

Values = NDArray[np.float64]
# Penalty of the change from the mean weights, relative to the mean variance of a group's sums.
RIDGE = 1e-2


@dataclass(frozen=True, eq=False)
class Teacher:
    """The weights of a linear classifier on all words, and how much each word counts.

    Attributes
    ----------
    coef : ndarray of shape (n_outputs, n_words)
        One row per class, or a single row for two classes.
    intercept : ndarray of shape (n_outputs,)
    classes : ndarray of shape (n_classes,)
    mass : ndarray of shape (n_words,)
        Mean square of each word over the data. 0 for words that never occur.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.svm import LinearSVC
    >>> from bagwise.merging.teacher import Teacher
    >>> X, y = np.array([[4.0, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]), ["a", "a", "b", "b"]
    >>> svm = LinearSVC().fit(X, y)
    >>> teacher = Teacher.of(svm, X)
    >>> teacher.mass
    array([10.5,  6.5, 10.5, 10.5])
    >>> bool(np.allclose(teacher.scores(X)[:, 0], svm.decision_function(X)))
    True
    """

    coef: Values
    intercept: Values
    classes: NDArray[Any]
    mass: Values

    @classmethod
    def of(cls, estimator: Any, X: Any = None, sample_weight: Values | None = None) -> Self:
        """Read the weights of a fitted classifier.

        Parameters
        ----------
        estimator : fitted linear classifier
            With `coef_`, `intercept_` and `classes_`; also inside a `FrozenEstimator`.
        X : ndarray or CSR matrix of shape (n_samples, n_words), default=None
            Data from which masses are computed. None: all words have mass 1.
        sample_weight : ndarray of shape (n_samples,), default=None

        Raises
        ------
        BagwiseError
            If the classifier is not linear.
        """
        name = type(estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator).__name__
        check_is_fitted(estimator)
        coef = getattr(estimator, "coef_", None)
        classes = getattr(estimator, "classes_", None)
        if coef is None or classes is None or not hasattr(estimator, "decision_function"):
            raise BagwiseError(
                f"{name} is not a linear classifier: it has no coef_, classes_ or decision_function. Use one that has, "
                "such as LinearSVC, LogisticRegression, SGDClassifier or RidgeClassifier."
            )
        coef = np.atleast_2d(np.asarray(coef.toarray() if sp.issparse(coef) else coef, dtype=np.float64))
        intercept = np.broadcast_to(np.asarray(estimator.intercept_, dtype=np.float64), len(coef)).copy()
        n_words = coef.shape[1]
        mass = np.ones(n_words) if X is None else mean_squares(X, sample_weight)
        if len(mass) != n_words:
            raise BagwiseError(f"X has {len(mass)} words, but {name} was fitted with {n_words}.")
        teacher = cls(coef, intercept, np.asarray(classes), mass)
        # coef_ of an SVC, for one, belongs to pairs of classes, not to classes
        probe = np.random.default_rng(0).normal(size=(4, n_words))
        given = np.asarray(estimator.decision_function(probe)).reshape(len(probe), -1)
        expected = teacher.scores(probe)
        if given.shape != expected.shape or not np.allclose(given, expected, rtol=1e-4, atol=1e-6):
            raise BagwiseError(
                f"The scores of {name} are not X @ coef_.T + intercept_, one column for each class or a single one, so "
                "groups cannot follow them. Use a linear classifier such as LinearSVC or LogisticRegression."
            )
        return teacher

    def scores(self, X: Any) -> Values:
        """Decision function of X, of shape (n_samples, n_outputs)."""
        return np.asarray(X @ self.coef.T) + self.intercept


def mean_squares(X: Any, sample_weight: Values | None = None) -> Values:
    """Mean of the squares of each column, weighted by `sample_weight` if given."""
    squares = X.multiply(X) if sp.issparse(X) else np.square(X, dtype=np.float64)
    weights = np.ones(X.shape[0]) if sample_weight is None else sample_weight
    return np.asarray(squares.T @ weights, dtype=np.float64).ravel() / weights.sum()


def mean_weights(teacher: Teacher, labels: NDArray[np.int64], n_groups: int) -> tuple[Values, Values]:
    """Average the weights of the words of each group, weighted by their mass.

    These minimise ``Σ_j m_j |w_j - v_g(j)|²``. In a group without any mass all words count equally.

    Returns
    -------
    coef : ndarray of shape (n_outputs, n_groups)
    intercept : ndarray of shape (n_outputs,)
    """
    if len(labels) == n_groups:  # each word is its own group; dividing by its mass would round
        order = np.argsort(labels)
        return teacher.coef[:, order], teacher.intercept
    mass = teacher.mass
    without = np.bincount(labels, mass, minlength=n_groups) == 0
    mass = np.where(without[labels], 1.0, mass)
    total = np.bincount(labels, mass, minlength=n_groups)
    sums = np.stack([np.bincount(labels, mass * w, minlength=n_groups) for w in teacher.coef])
    return sums / np.where(total > 0, total, 1.0), teacher.intercept


@dataclass(frozen=True, eq=False)
class ScoreMoments:
    """Sums over items from which the weights of groups are fitted to the scores of a classifier.

    With the group sums Z (items x groups) and the scores F (items x outputs) these are n, ``ZᵀZ``, ``ZᵀF``, ``Zᵀ1``,
    ``Fᵀ1`` and ``|F|²``. They add up over batches of items, and those of merged groups are sums as well (`merged`).
    """

    n_items: int
    gram: Values
    cross: Values
    group_sums: Values
    score_sums: Values
    score_squares: float

    @classmethod
    def of(cls, Z: Any, scores: Values) -> Self:
        """Sum over items; Z is dense or CSR."""
        gram = Z.T @ Z
        return cls(
            Z.shape[0],
            np.asarray(gram.toarray() if sp.issparse(gram) else gram, dtype=np.float64),
            np.asarray(Z.T @ scores, dtype=np.float64),
            np.asarray(Z.sum(axis=0), dtype=np.float64).ravel(),
            np.asarray(scores.sum(axis=0), dtype=np.float64),
            float(np.square(scores).sum()),
        )

    def __add__(self, other: ScoreMoments) -> ScoreMoments:
        return ScoreMoments(
            self.n_items + other.n_items,
            self.gram + other.gram,
            self.cross + other.cross,
            self.group_sums + other.group_sums,
            self.score_sums + other.score_sums,
            self.score_squares + other.score_squares,
        )

    def merged(self, labels: NDArray[np.int64], n_groups: int) -> ScoreMoments:
        """The moments of groups of these groups; with several rows of labels, each group is in several of them."""
        rows = np.atleast_2d(labels)
        columns = np.broadcast_to(np.arange(rows.shape[1]), rows.shape)
        join = sp.csr_array((np.ones(rows.size), (rows.ravel(), columns.ravel())), shape=(n_groups, rows.shape[1]))
        gram, cross = join @ (join @ self.gram).T, join @ self.cross
        return ScoreMoments(self.n_items, gram, cross, join @ self.group_sums, self.score_sums, self.score_squares)

    def weights(self, coef: Values | None = None, ridge: float = RIDGE) -> tuple[Values, Values]:
        """Fit weights and intercepts; see `group_weights`."""
        n, k = self.n_items, len(self.gram)
        mean, score_mean = self.group_sums / n, self.score_sums / n
        start = np.zeros((k, len(score_mean))) if coef is None else coef.T
        gram = self.gram - np.outer(self.group_sums, mean)
        variance = float(np.trace(gram)) / max(k, 1)
        if variance > 0:
            rest = self.cross - np.outer(self.group_sums, score_mean) - gram @ start
            start = start + solve(gram + ridge * variance * np.eye(k), rest, assume_a="pos")
        return start.T, score_mean - mean @ start

    def loss(self, coef: Values, intercept: Values) -> float:
        """Mean squared change of the scores by these weights, as a fraction of the variance of the scores.

        ``|Z V + b - F|² / |F - mean(F)|²``; 0 where the scores do not vary.
        """
        n = self.n_items
        variance = self.score_squares - float(self.score_sums @ self.score_sums) / n
        V = coef.T
        change = (
            float(np.sum(V * (self.gram @ V)))
            - 2.0 * float(np.sum(V * self.cross))
            + self.score_squares
            + n * float(intercept @ intercept)
            + 2.0 * float(intercept @ (V.T @ self.group_sums - self.score_sums))
        )
        return max(change, 0.0) / variance if variance > 0 else 0.0


def group_weights(Z: Any, scores: Values, coef: Values | None = None, *, ridge: float = RIDGE) -> tuple[Values, Values]:
    """Fit the weights of groups to the scores of a classifier on all words, by ridge regression.

    Minimises ``Σ_i |V z_i + b - f_i|² + λ |V - V_0|²`` over the weights V and the intercepts b, with the group sums
    z_i and the scores f_i of item i. λ is `ridge` times the mean over groups of ``Σ_i (z_ig - mean)²``. No labels
    are used: the groups come from them already, and fitting to them again overfits.

    Parameters
    ----------
    Z : ndarray or CSR matrix of shape (n_items, n_groups)
        Group sums. Groups may be empty or constant, and there may be fewer items than groups.
    scores : ndarray of shape (n_items, n_outputs)
        Scores of the same items (`Teacher.scores`).
    coef : ndarray of shape (n_outputs, n_groups), default=None
        The weights V_0 that are kept unless the scores say otherwise, such as those of `mean_weights`. None: 0.
    ridge : float, default=1e-2

    Returns
    -------
    coef : ndarray of shape (n_outputs, n_groups)
    intercept : ndarray of shape (n_outputs,)

    Notes
    -----
    O(n_items n_groups² + n_groups³) time, n_groups² memory.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.merging.teacher import group_weights
    >>> Z = np.array([[1.0, 2], [2, 1], [3, 3], [0, 1]])
    >>> coef, intercept = group_weights(Z, Z @ [[1.0], [-2.0]] + 3, ridge=1e-12)
    >>> coef.round(6), intercept.round(6)
    (array([[ 1., -2.]]), array([3.]))
    """
    return ScoreMoments.of(Z, scores).weights(coef, ridge)
