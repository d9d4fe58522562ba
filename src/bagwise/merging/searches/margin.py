"""The search of the max-margin criterion (MME): one linear SVM a level, started from the last."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.searches._margin_kernels import solve_svm
from bagwise.merging.searches.base import Search

_TOLERANCE = 1e-4
_MAX_PASSES = 1000


class MarginSearch(Search):
    """Merge, at each level, the pair whose weights in a linear SVM agree most, then solve the SVM again.

    With the dual variables of the SVM fixed, merging s and t adds their weights and lowers the dual value by
    ``w_s w_t`` (summed over the one-against-rest machines); the pair with the largest product is merged, or, if
    `n_exact` is positive, the best of that many pairs after solving for each.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_words)
    codes : ndarray of shape (n_samples,)
    C : float
    n_exact : int
    """

    def __init__(self, X: NDArray[np.float64], codes: NDArray[np.intp], C: float, n_exact: int) -> None:
        super().__init__(X.shape[1])
        n_classes = int(codes.max()) + 1
        targets = range(1, 2) if n_classes == 2 else range(n_classes)
        self._y = np.array([np.where(codes == c, 1.0, -1.0) for c in targets])
        # The last column is the intercept, which is never merged.
        self._X = np.ascontiguousarray(np.column_stack([X, np.ones(len(X))]))
        self._C = float(C)
        self._n_exact = n_exact
        self._word = np.arange(self.n_words, dtype=np.int64)
        self._passes = 0
        self._alpha = np.zeros((len(self._y), len(X)))
        self._weights = np.zeros((len(self._y), self._X.shape[1]))
        self.start_score = self._solve(self._X, self._alpha, self._weights)

    def _solve(self, X: NDArray[np.float64], alpha: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
        """Solve all machines from where they are; returns the sum of their dual values."""
        value = 0.0
        for y, a, w in zip(self._y, alpha, weights, strict=True):
            w[:] = X.T @ (a * y)
            self._passes += solve_svm(X, y, self._C, a, w, _TOLERANCE, _MAX_PASSES, 1)
            value += float(a.sum() - w @ w / 2)
        return value

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        for k in range(len(pairs)):
            s, t = self._search()
            pairs[k] = self._word[s], self._word[t]
            self._word = np.delete(self._word, t)
            self._X = self._merged(s, t)
            self._weights = np.ascontiguousarray(np.delete(self._weights, t, axis=1))
            scores[k] = self._solve(self._X, self._alpha, self._weights)

    def _merged(self, s: int, t: int) -> NDArray[np.float64]:
        X = np.delete(self._X, t, axis=1)
        X[:, s] = self._X[:, s] + self._X[:, t]
        return X

    def _search(self) -> tuple[int, int]:
        words = self._weights[:, :-1]
        agreement = words.T @ words
        s, t = np.triu_indices(len(agreement), k=1)
        value = agreement[s, t]
        if self._n_exact == 0 or len(value) <= 1:
            first = int(np.argmax(value))
            return int(s[first]), int(t[first])
        best = (-np.inf, 0)
        for pair in np.sort(np.argsort(-value, kind="stable")[: self._n_exact]):
            X = self._merged(int(s[pair]), int(t[pair]))
            weights = np.ascontiguousarray(np.delete(self._weights, t[pair], axis=1))
            best = max(best, (self._solve(X, self._alpha.copy(), weights), -int(pair)))
        return int(s[-best[1]]), int(t[-best[1]])

    @property
    def work(self) -> dict[str, int]:  # noqa: D102
        return {"passes": self._passes}
