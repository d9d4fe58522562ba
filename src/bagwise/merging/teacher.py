"""Linear classifiers on all words, and weights of groups of words that give the same answers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import solve
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from bagwise.errors import BagwiseError

__all__ = ["RIDGE", "ScoreMoments", "Teacher", "answers", "balanced_weights", "group_weights", "mean_weights"]

Values = NDArray[np.float64]
# Penalty of the change from the mean weights, relative to the mean variance of a group's sums.
RIDGE = 1e-2
# Classes much rarer than this fraction of the mean size of a class count less than others.
_RARE = 0.1
_BATCH = 8192  # items that are summed at a time


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
        Mean square of each word over the data, in which all classes count the same (`balanced_weights`). 0 for words
        that never occur.

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
        if X is not None and X.shape[1] != n_words:
            raise BagwiseError(f"X has {X.shape[1]} words, but {name} was fitted with {n_words}.")
        teacher = cls(coef, intercept, np.asarray(classes), np.ones(n_words))
        # coef_ of an SVC, for one, belongs to pairs of classes, not to classes
        probe = np.random.default_rng(0).normal(size=(4, n_words))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the probe has no names of columns
            answered = np.asarray(estimator.decision_function(probe)).reshape(len(probe), -1)
        expected = teacher.scores(probe)
        if answered.shape != expected.shape or not np.allclose(answered, expected, rtol=1e-4, atol=1e-6):
            raise BagwiseError(
                f"The scores of {name} are not X @ coef_.T + intercept_, one column for each class or a single one, so "
                "groups cannot follow them. Use a linear classifier such as LinearSVC or LogisticRegression."
            )
        if X is None:
            return teacher
        return replace(teacher, mass=mean_squares(X, balanced_weights(teacher.scores(X), sample_weight)))

    def scores(self, X: Any) -> Values:
        """Decision function of X, of shape (n_samples, n_outputs)."""
        return np.asarray(X @ self.coef.T) + self.intercept


def answers(scores: Values) -> NDArray[np.intp]:
    """Index of the class that each row of scores stands for."""
    return (scores[:, 0] > 0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)


def balanced_weights(scores: Values, sample_weight: Values | None = None) -> Values:
    """Weights of items such that all classes, as a classifier answers, count the same; very rare ones less.

    An item of a class with c of n items in k classes gets ``1 / (c + 0.1 n / k)``, times its `sample_weight`. Without
    this a few groups follow only the frequent classes. No labels are needed.
    """
    codes, weights = answers(scores), np.ones(len(scores)) if sample_weight is None else sample_weight
    sizes = np.bincount(codes, weights, minlength=max(scores.shape[1], 2))
    return weights / class_sizes(sizes)[codes]


def class_sizes(sizes: NDArray[Any]) -> Values:
    """Return the sizes of classes that the weights of their items are divided by, see `balanced_weights`."""
    return sizes + _RARE * sizes.mean()


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

    With the group sums Z (items x groups), the scores F (items x outputs) and diagonal weights D of items these are the
    total weight, ``ZᵀDZ``, ``ZᵀDF``, ``ZᵀD1`` and ``FᵀD1``. They add up over batches of items, and those of merged
    groups are sums as well (`merged`).
    """

    total: float
    gram: Values
    cross: Values
    group_sums: Values
    score_sums: Values

    @classmethod
    def of(cls, Z: Any, scores: Values, item_weights: Values | None = None) -> Self:
        """Sum over items; Z is dense or CSR. Without `item_weights` all classes count the same (`balanced_weights`)."""
        weights = balanced_weights(scores) if item_weights is None else item_weights
        n_groups = Z.shape[1]
        gram, cross, group_sums = (
            np.zeros((n_groups, n_groups)),
            np.zeros((n_groups, scores.shape[1])),
            np.zeros(n_groups),
        )
        for start in range(0, Z.shape[0], _BATCH):
            batch = slice(start, start + _BATCH)
            part, part_weights = Z[batch], weights[batch, np.newaxis]
            weighted = part.multiply(part_weights).tocsr() if sp.issparse(part) else part * part_weights
            product = weighted.T @ part
            gram += product.toarray() if sp.issparse(product) else product
            cross += weighted.T @ scores[batch]
            group_sums += np.asarray(weighted.sum(axis=0)).ravel()
        return cls(float(weights.sum()), gram, cross, group_sums, weights @ scores)

    def __add__(self, other: ScoreMoments) -> ScoreMoments:
        return ScoreMoments(
            self.total + other.total,
            self.gram + other.gram,
            self.cross + other.cross,
            self.group_sums + other.group_sums,
            self.score_sums + other.score_sums,
        )

    def merged(self, labels: NDArray[np.int64], n_groups: int) -> ScoreMoments:
        """The moments of groups of these groups."""
        n = len(labels)
        join = sp.csr_array((np.ones(n), (labels, np.arange(n))), shape=(n_groups, n))
        gram, cross = join @ (join @ self.gram).T, join @ self.cross
        return ScoreMoments(self.total, gram, cross, join @ self.group_sums, self.score_sums)

    def weights(self, coef: Values | None = None, ridge: float = RIDGE) -> tuple[Values, Values]:
        """Fit weights and intercepts; see `group_weights`."""
        n, k = self.total, len(self.gram)
        mean, score_mean = self.group_sums / n, self.score_sums / n
        start = np.zeros((k, len(score_mean))) if coef is None else coef.T
        gram = self.gram - np.outer(self.group_sums, mean)
        variance = float(np.trace(gram)) / max(k, 1)
        if variance > 0:
            rest = self.cross - np.outer(self.group_sums, score_mean) - gram @ start
            start = start + solve(gram + ridge * variance * np.eye(k), rest, assume_a="pos")
        return start.T, score_mean - mean @ start


def group_weights(Z: Any, scores: Values, coef: Values | None = None, *, ridge: float = RIDGE) -> tuple[Values, Values]:
    """Fit the weights of groups to the scores of a classifier on all words, by ridge regression.

    Minimises ``Σ_i a_i |V z_i + b - f_i|² + λ |V - V_0|²`` over the weights V and the intercepts b, with the group sums
    z_i and the scores f_i of item i; the a_i make all classes count the same (`balanced_weights`). λ is `ridge` times
    the mean over groups of ``Σ_i a_i (z_ig - mean)²``. No labels are used: the groups come from them already, and
    fitting to them again overfits.

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
