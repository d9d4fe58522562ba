"""Linear classifiers from sums over parts of the data, none of which is held by one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.distributed.executors import Executor

__all__ = ["add_all", "fit_svm"]

Values = NDArray[np.float64]
_MOST_STEPS, _MOST_PRODUCTS = 50, 60  # of Newton's method, and of conjugate gradients in each of its steps
_MOST_HALVINGS = 20
_SUFFICIENT = 1e-4  # of the decrease that the gradient promises


def fit_svm(
    executor: Executor,
    parts: Sequence[Any],
    n_classes: int,
    n_features: int,
    C: float = 1.0,
    *,
    class_weights: Values | None = None,
    tol: float = 1e-6,
    progress: Callable[[int, int], Any] | None = None,
) -> tuple[Values, Values]:
    """Train the linear SVM of `sklearn.svm.LinearSVC`, one class against the others, from sums over parts.

    Minimises ``|w|² / 2 + C Σ_i max(0, 1 - y_i w·x_i)²`` for each class, where x has a last entry of 1 for the
    intercept, by Newton's method: sums over parts are the loss, its gradient and products of its Hessian with a vector,
    by which conjugate gradients find the step. All classes share a pass over the data.

    Parameters
    ----------
    executor : Executor
    parts : sequence of handles
        Of iterables of batches, pairs of a matrix of shape (n, n_features), dense or CSR, and class codes.
    n_classes : int
    n_features : int
    C : float, default=1.0
    class_weights : ndarray of shape (n_classes,), default=None
        Factors of C for items of each class. With more than two classes, as in liblinear, items have their factor where
        their class is told from the others, and C elsewhere.
    tol : float, default=1e-6
        The norm of the gradient at the end, relative to 1 + |w|. The Hessian is at least the identity, so that this
        bounds the distance to the minimum as well.
    progress : callable, default=None
        Called with the number of steps of Newton's method so far, and at most.

    Returns
    -------
    coef : ndarray of shape (n_outputs, n_features)
        One row for two classes, otherwise one row per class.
    intercept : ndarray of shape (n_outputs,)

    Notes
    -----
    A pass takes O(nnz n_outputs) time, and moves ``8 n_outputs (n_features + 1)`` bytes to each worker and from each
    part. Some 10 steps and 50 to 100 passes are usual. Sums have the order of the parts, so that the result does not
    depend on workers.

    References
    ----------
    S. S. Keerthi, D. DeCoste, "A modified finite Newton method for fast solution of large scale linear SVMs", JMLR
    2005. C.-J. Lin, R. C. Weng, S. S. Keerthi, "Trust region Newton method for large-scale logistic regression", 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.svm import LinearSVC
    >>> from bagwise.distributed.executors import LocalExecutor
    >>> X, y = np.array([[4.0, 1], [3, 0], [0, 2], [1, 4]]), np.array([0, 0, 1, 1])
    >>> coef, intercept = fit_svm(LocalExecutor(), [[(X[:3], y[:3])], [(X[3:], y[3:])]], 2, 2)
    >>> bool(np.allclose(coef, LinearSVC(tol=1e-12, max_iter=100_000).fit(X, y).coef_, atol=1e-6))
    True
    """
    n_outputs = 1 if n_classes == 2 else n_classes
    problem = _Problem(executor, parts, n_outputs, n_features + 1, C, class_weights)
    W = np.zeros((n_outputs, n_features + 1))
    loss, gradient, diagonal = problem.at(W, np.arange(n_outputs))
    first = np.linalg.norm(gradient, axis=1)
    for step in range(_MOST_STEPS):
        if progress is not None:
            progress(step, _MOST_STEPS)
        norms = np.linalg.norm(gradient, axis=1)
        rest = np.flatnonzero(norms > tol * (1 + np.linalg.norm(W, axis=1)))
        if not len(rest):
            break
        wanted = norms[rest] * np.minimum(0.1, norms[rest] / np.maximum(first[rest], 1e-300))
        moves = problem.newton_step(W, gradient[rest], diagonal[rest], rest, wanted)
        moved = _line_search(problem, W, loss, gradient, diagonal, rest, moves)
        if not moved:  # rounding: no smaller loss is to be found
            break
    if progress is not None:
        progress(_MOST_STEPS, _MOST_STEPS)
    return W[:, :-1], W[:, -1]


def _line_search(problem: _Problem, W: Any, loss: Any, gradient: Any, diagonal: Any, rest: Any, moves: Any) -> bool:
    """Move each of `rest` as far as its loss decreases, halving steps; changes all arrays in place."""
    steps, left, moved = np.ones(len(rest)), np.arange(len(rest)), False
    slopes = (gradient[rest] * moves).sum(axis=1)
    for _ in range(_MOST_HALVINGS):
        trial = W[rest[left]] + steps[left, np.newaxis] * moves[left]
        losses, slope, curvature = problem.at(trial, rest[left])
        enough = loss[rest[left]] + _SUFFICIENT * steps[left] * slopes[left]
        fine = losses <= enough + 1e-14 * np.abs(loss[rest[left]])
        done = rest[left[fine]]
        W[done], loss[done], gradient[done], diagonal[done] = trial[fine], losses[fine], slope[fine], curvature[fine]
        moved = moved or bool(fine.any())
        left = left[~fine]
        if not len(left):
            return moved
        steps[left] /= 2
    return moved


class _Problem:
    """The loss of all outputs, as sums over parts."""

    def __init__(
        self, executor: Executor, parts: Sequence[Any], n_outputs: int, width: int, C: float, weights: Values | None
    ) -> None:
        self._executor, self._parts = executor, list(parts)
        self._n_outputs, self._width = n_outputs, width
        self._costs = _Costs(C, weights, n_outputs == 1)

    def _sum(self, function: Callable[..., Any], arguments: Any) -> Any:
        shared = self._executor.share(arguments)
        return self._executor.map_reduce(function, add_all, [shared] * len(self._parts), self._parts)

    def at(self, W: Values, outputs: NDArray[np.intp]) -> tuple[Values, Values, Values]:
        """Return the losses of some outputs, their gradients, and the diagonals of their Hessians."""
        losses, gradients, diagonals = self._sum(_at, (W, outputs, self._costs))
        return losses + 0.5 * np.square(W).sum(axis=1), gradients + W, diagonals + 1.0

    def newton_step(self, W: Values, gradients: Values, diagonals: Values, outputs: Any, wanted: Values) -> Values:
        """Solve ``H d = -g`` for some outputs by conjugate gradients, up to residuals of the wanted norms."""
        d, r = np.zeros_like(gradients), -gradients
        z = r / diagonals
        p, product = z.copy(), (r * z).sum(axis=1)
        left = np.arange(len(outputs))
        for _ in range(_MOST_PRODUCTS):
            left = left[np.linalg.norm(r[left], axis=1) > wanted[left]]
            if not len(left):
                break
            (Hp,) = self._sum(_times_hessian, (W[outputs[left]], p[left], outputs[left], self._costs))
            Hp += p[left]
            alpha = product[left] / (p[left] * Hp).sum(axis=1)
            d[left] += alpha[:, np.newaxis] * p[left]
            r[left] -= alpha[:, np.newaxis] * Hp
            z = r[left] / diagonals[left]
            new = (r[left] * z).sum(axis=1)
            p[left] = z + (new / product[left])[:, np.newaxis] * p[left]
            product[left] = new
        return d


class _Costs(NamedTuple):
    """What an error on an item costs: C, times the weight of its class."""

    C: float
    weights: Values | None
    two: bool  # classes, which have one output

    def signs(self, codes: NDArray[Any], outputs: NDArray[np.intp]) -> Values:
        """Return 1 for items of the class of an output, and -1 for others."""
        return np.where(codes[:, np.newaxis] == (np.ones(1) if self.two else outputs), 1.0, -1.0)

    def of(self, codes: NDArray[Any], signs: Values) -> Any:
        """Return the costs of items for each output."""
        if self.weights is None:
            return self.C
        costs = self.C * self.weights[codes][:, np.newaxis]
        return costs if self.two else np.where(signs > 0, costs, self.C)


def _scores(X: Any, W: Values) -> Values:
    return np.asarray(X @ np.ascontiguousarray(W[:, :-1].T)) + W[:, -1]


def _transposed(X: Any, values: Values) -> Values:
    """Return ``[X, 1]ᵀ values``, transposed."""
    return np.hstack([np.asarray(X.T @ values).T, values.sum(axis=0)[:, np.newaxis]])


def _at(arguments: Any, batches: Any) -> tuple[Values, Values, Values]:
    W, outputs, costs = arguments
    losses, gradients, diagonals = np.zeros(len(W)), np.zeros_like(W), np.zeros_like(W)
    for X, codes in batches:
        y = costs.signs(codes, outputs)
        C, slack = costs.of(codes, y), np.maximum(0.0, 1.0 - y * _scores(X, W))
        losses += (C * np.square(slack)).sum(axis=0)
        gradients += _transposed(X, -2.0 * C * y * slack)
        squares = X.multiply(X).tocsr() if sp.issparse(X) else np.square(X)
        diagonals += _transposed(squares, 2.0 * C * (slack > 0))
    return losses, gradients, diagonals


def _times_hessian(arguments: Any, batches: Any) -> tuple[Values]:
    W, V, outputs, costs = arguments
    total = np.zeros_like(W)
    for X, codes in batches:
        both, y = _scores(X, np.vstack([W, V])), costs.signs(codes, outputs)
        inside = y * both[:, : len(W)] < 1.0
        total += _transposed(X, 2.0 * costs.of(codes, y) * inside * both[:, len(W) :])
    return (total,)


def add_all(one: tuple[Values, ...], other: tuple[Values, ...]) -> tuple[Values, ...]:
    """Add sums of parts, one by one."""
    return tuple(a + b for a, b in zip(one, other, strict=True))
