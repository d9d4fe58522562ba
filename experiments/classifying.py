"""How well features tell classes apart: test errors of the papers' classifiers.

Features are centred and scaled as a whole to a mean squared norm of 1, so that a penalty C means the same for two words
and for a thousand. C is chosen by 5 folds on the training samples, the smallest of the best.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC, LinearSVC

from bagwise.kernels import additive_kernel

__all__ = [
    "CLASSIFIERS",
    "chosen_penalty",
    "errors",
    "fixed_linear_error",
    "kernel_error",
    "linear_error",
    "linear_prediction",
    "neighbors_error",
]

PENALTIES = (0.1, 1.0, 10.0, 100.0)
N_FOLDS = 5
N_NEIGHBORS = 5
CLASSIFIERS = {"linear": "linear SVM", "neighbors": "5-NN", "intersection": "intersection SVM"}
Labels = NDArray[np.int64]


def errors(
    Z: Any, y: Labels, Z_test: Any, y_test: Labels, classifiers: Sequence[str] = tuple(CLASSIFIERS)
) -> dict[str, float]:
    """Test error of each classifier; without the intersection kernel where features have signs."""
    found = {}
    with config_context(assume_finite=True, skip_parameter_validation=True):
        for name in classifiers:
            if name == "linear":
                found[name] = linear_error(Z, y, Z_test, y_test)
            elif name == "neighbors":
                found[name] = neighbors_error(Z, y, Z_test, y_test)
            elif min(Z.min(), Z_test.min()) >= 0:
                found[name] = kernel_error(Z, y, Z_test, y_test, name)
    return {name: round(value, 5) for name, value in found.items()}


def linear_error(Z: Any, y: Labels, Z_test: Any, y_test: Labels, *, penalties: Sequence[float] = PENALTIES) -> float:
    """Of a linear SVM with squared hinge loss, one class against all others; C by 5 folds of the training samples."""
    return float(np.mean(linear_prediction(Z, y, Z_test, penalties=penalties) != y_test))


def linear_prediction(Z: Any, y: Labels, Z_test: Any, *, penalties: Sequence[float] = PENALTIES) -> Labels:
    """What that SVM says of test samples."""
    train, test = _coordinates(Z, Z_test)
    best = _penalty(lambda C: LinearSVC(C=C, dual=False), train, y, penalties)
    return LinearSVC(C=best, dual=False).fit(train, y).predict(test)


def chosen_penalty(Z: Any, y: Labels, penalties: Sequence[float] = PENALTIES) -> float:
    """The C of that SVM that does best in 5 folds of the training samples."""
    return _penalty(lambda C: LinearSVC(C=C, dual=False), _coordinates(Z, Z[:1])[0], y, penalties)


def fixed_linear_error(Z: Any, y: Labels, Z_test: Any, y_test: Labels, C: float = 1.0) -> float:
    """Of the same with C given."""
    train, test = _coordinates(Z, Z_test)
    return _error(LinearSVC(C=C, dual=False).fit(train, y), test, y_test)


def neighbors_error(Z: Any, y: Labels, Z_test: Any, y_test: Labels) -> float:
    """Of the 5 nearest neighbours, Euclidean, on features as they are."""
    return _error(KNeighborsClassifier(min(N_NEIGHBORS, len(y)), algorithm="brute").fit(Z, y), Z_test, y_test)


def kernel_error(Z: Any, y: Labels, Z_test: Any, y_test: Labels, kernel: str) -> float:
    """Of an SVM with an additive kernel."""
    train, test = additive_kernel(Z, kernel=kernel, n_jobs=1), additive_kernel(Z_test, Z, kernel=kernel, n_jobs=1)
    scatter = float(np.trace(train) / len(train) - train.mean())
    if scatter > 0:
        train, test = train / scatter, test / scatter
    best = _penalty(lambda C: SVC(C=C, kernel="precomputed"), train, y, PENALTIES, pairwise=True)
    return _error(SVC(C=best, kernel="precomputed").fit(train, y), test, y_test)


def _penalty(
    machine: Any,
    train: NDArray[Any],
    y: Labels,
    penalties: Sequence[float],
    *,
    pairwise: bool = False,
) -> float:
    wrong = np.zeros(len(penalties))
    for rows, held in StratifiedKFold(N_FOLDS, shuffle=True, random_state=0).split(y, y):
        seen, asked = (train[np.ix_(a, rows)] for a in (rows, held)) if pairwise else (train[rows], train[held])
        for k, C in enumerate(penalties):
            wrong[k] += np.count_nonzero(machine(C).fit(seen, y[rows]).predict(asked) != y[held])
    return penalties[int(np.argmin(wrong))]


def _error(model: Any, X: Any, y: Labels) -> float:
    return float(np.mean(model.predict(X) != y))


def _coordinates(Z: Any, Z_test: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Centre and scale; where features outnumber samples, rotate into the space of the training samples.

    The rotation keeps all inner products with training samples, so the SVM is the same.
    """
    n, d = Z.shape
    if d > n:
        gram, cross = (np.asarray((A @ Z.T).toarray() if sp.issparse(A) else A @ Z.T) for A in (Z, Z_test))
        means = gram.mean(axis=0)
        cross = cross - means - cross.mean(axis=1, keepdims=True) + means.mean()
        gram = gram - means - means[:, None] + means.mean()
        values, vectors = np.linalg.eigh(gram)
        noise = max(1e-10, n * float(np.finfo(gram.dtype).eps))
        kept = values > noise * max(values[-1], 1e-300)
        axes = vectors[:, kept] / np.sqrt(values[kept])
        train, test = gram @ axes, cross @ axes
    else:
        train, test = (A.toarray() if sp.issparse(A) else A for A in (Z, Z_test))
        means = train.mean(axis=0)
        train, test = train - means, test - means
    scale = np.sqrt(np.mean(np.sum(train**2, axis=1)))
    return (train / scale, test / scale) if scale > 0 else (train, test)
