"""Criteria of neither family, with searches of their own: linkage by SciPy, and the max-margin criterion (MME)."""

from __future__ import annotations

import warnings
from itertools import combinations
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import euclidean_distances

from bagwise._compat import Interval, StrOptions
from bagwise._utils.matrices import centre_full_words
from bagwise._utils.memory import Limit
from bagwise.merging.criteria.base import Criterion, check_values_fit, class_codes
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.rows import check_fits
from bagwise.merging.searches.base import GivenMerges, Search

__all__ = ["Linkage", "Margin"]

Values = NDArray[np.float64]


class Linkage(Criterion):
    """Merge the nearest words, as vectors of their values in all samples. Unsupervised.

    Parameters
    ----------
    method : {"single", "average", "complete", "ward"}, default="single"
        Distance between groups, as in SciPy.

    Notes
    -----
    Calls `scipy.cluster.hierarchy.linkage` with Euclidean distances; scores are its heights. O(n d²) time, O(d²)
    memory.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> from bagwise.criteria import Linkage
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> merge_words(X, criterion=Linkage("average")).groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "linkage"
    supervised = False
    _parameter_constraints: ClassVar[dict] = {"method": [StrOptions({"single", "average", "complete", "ward"})]}

    def __init__(self, method: str = "single") -> None:
        self.method = method

    def search(self, X: Any, y: NDArray[Any] | None, memory_limit: Limit = None) -> Search:  # noqa: D102
        check_fits(X.shape[1], memory_limit)
        if sp.issparse(X):
            distances = euclidean_distances(centre_full_words(sp.csr_array(X.T)))  # samples that all words have
            heights = linkage(distances[np.triu_indices(len(distances), k=1)], self.method)
        else:
            heights = linkage(np.ascontiguousarray(X.T), self.method)
        return GivenMerges(Hierarchy.from_linkage(heights), 0.0)


# The SVM is solved more and more closely where the best pair is not certain.
_TOLERANCES = (1e-4, 1e-6, 1e-8)
_MAX_PASSES = 1000
# Violations of the optimality conditions that are worth a warning.
_FAR = 0.1


@njit(cache=True, nogil=True)
def solve_svm(X, y, C, alpha, w, tolerance, max_passes, seed):
    """Minimise ``|w|²/2 + C Σ max(0, 1 - y_i w·x_i)`` by coordinate ascent on the dual, from the given `alpha`.

    On entry and exit ``w = X.T @ (alpha * y)``. Stops when the projected gradients of a pass lie within
    `tolerance`; returns the number of passes and how far they lay apart in the last. Cost O(n d) a pass.
    """
    n, d = X.shape
    square = np.empty(n)
    for i in range(n):
        square[i] = 0.0
        for j in range(d):
            square[i] += X[i, j] * X[i, j]
    order = np.arange(n)
    state = np.uint64(seed)
    largest = 0.0
    smallest = 0.0
    for passes in range(max_passes):
        for i in range(n - 1, 0, -1):  # shuffle
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            k = np.int64((state >> np.uint64(33)) % np.uint64(i + 1))
            order[i], order[k] = order[k], order[i]
        largest = -np.inf
        smallest = np.inf
        for i in order:
            if square[i] == 0.0:
                continue
            gradient = -1.0
            for j in range(d):
                gradient += y[i] * w[j] * X[i, j]
            projected = gradient
            if alpha[i] == 0.0:
                projected = min(gradient, 0.0)
            elif alpha[i] == C:
                projected = max(gradient, 0.0)
            largest = max(largest, projected)
            smallest = min(smallest, projected)
            if projected != 0.0:
                new = min(max(alpha[i] - gradient / square[i], 0.0), C)
                step = (new - alpha[i]) * y[i]
                alpha[i] = new
                for j in range(d):
                    w[j] += step * X[i, j]
        if largest - smallest <= tolerance:
            return passes + 1, largest - smallest
    return max_passes, largest - smallest


class MarginSearch(Search):
    """Merge, at each level, the pair whose weights in a linear SVM agree most, then solve the SVM again.

    With the dual variables of the SVM fixed, merging s and t adds their weights and lowers the dual value by
    ``w_s w_t`` (summed over the one-against-rest machines); the pair with the largest product is merged, or, if
    `n_exact` is positive, the best of that many pairs after solving for each. X is samples x words.
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
        self._warned = False
        self._alpha = np.zeros((len(self._y), len(X)))
        self._weights = np.zeros((len(self._y), self._X.shape[1]))
        self.start_score, self._gap = self._solve(self._X, self._alpha, self._weights)

    def _solve(
        self, X: Values, alpha: Values, weights: Values, tolerance: float = _TOLERANCES[0]
    ) -> tuple[float, float]:
        """Solve all machines from their current solutions.

        Returns the sum of their dual values, and the duality gap: how far below the optimum that sum is at most.
        """
        value = gap = 0.0
        for y, a, w in zip(self._y, alpha, weights, strict=True):
            w[:] = X.T @ (a * y)
            passes, violation = solve_svm(X, y, self._C, a, w, tolerance, _MAX_PASSES, 1)
            self._passes += passes
            if violation > _FAR and not self._warned:
                self._warned = True
                warnings.warn(
                    f"An SVM of the criterion 'mme' did not converge in {_MAX_PASSES} passes, so its score is too low. "
                    f"Use a smaller C than {self._C:g}.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            dual = float(a.sum() - w @ w / 2)
            value += dual
            gap += float(w @ w / 2 + self._C * np.maximum(1 - y * (X @ w), 0.0).sum()) - dual
        return value, max(gap, 0.0)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        for k in range(len(pairs)):
            s, t = self._search()
            pairs[k] = self._word[s], self._word[t]
            self._word = np.delete(self._word, t)
            self._X = self._merged(s, t)
            self._weights = np.ascontiguousarray(np.delete(self._weights, t, axis=1))
            scores[k], self._gap = self._solve(self._X, self._alpha, self._weights)

    def _merged(self, s: int, t: int) -> NDArray[np.float64]:
        X = np.delete(self._X, t, axis=1)
        X[:, s] = self._X[:, s] + self._X[:, t]
        return X

    def _search(self) -> tuple[int, int]:
        if self._n_exact > 0:
            return self._search_exactly([pair for _, *pair in self._candidates(self._n_exact)])
        for tolerance in _TOLERANCES[1:]:
            best = self._candidates(2)
            if len(best) == 1 or best[0][0] - best[1][0] > self._doubt():
                break
            self._gap = self._solve(self._X, self._alpha, self._weights, tolerance)[1]
        _, s, t = self._candidates(1)[0]
        return s, t

    def _doubt(self) -> float:
        """How far the difference of two products of weights may be from that at the optimum.

        The objective is strongly convex: the squared distance of all weights to the optimum is at most twice the gap.
        """
        distance = np.sqrt(2 * self._gap)
        longest = np.sqrt(np.square(self._weights[:, :-1]).sum(axis=0).max())
        return float(2 * distance * (np.sqrt(2) * longest + distance / 2))

    def _search_exactly(self, candidates: list[list[int]]) -> tuple[int, int]:
        """Find the best of some pairs by solving for each, more closely while others may be as good."""
        solutions = [
            (self._merged(s, t), self._alpha.copy(), np.ascontiguousarray(np.delete(self._weights, t, axis=1)))
            for s, t in candidates
        ]
        margins = [self._solve(*solution) for solution in solutions]
        for tolerance in _TOLERANCES[1:]:
            best = max(value for value, _ in margins)
            close = [k for k, (value, gap) in enumerate(margins) if value + gap >= best]
            if len(close) == 1:
                break
            for k in close:
                margins[k] = self._solve(*solutions[k], tolerance)
        best = max(value for value, _ in margins)
        s, t = min(pair for pair, (value, _) in zip(candidates, margins, strict=True) if value == best)
        return s, t

    def _candidates(self, n: int) -> list[tuple[float, int, int]]:
        """The n pairs whose weights agree most, best first, with the products; a row of products at a time."""
        words = self._weights[:, :-1]
        if len(words) == 1:
            # One machine: the best pairs are among the largest and among the smallest weights.
            w = words[0]
            ends = np.unique([np.argsort(signed, kind="stable")[: n + 1] for signed in (-w, w)])
            pairs = [(float(w[s] * w[t]), int(s), int(t)) for s, t in combinations(ends, 2)]
            return sorted(pairs, key=lambda pair: (-pair[0], *pair[1:]))[:n]
        best: list[tuple[float, int, int]] = []
        for s in range(words.shape[1] - 1):
            agreement = words[:, s] @ words[:, s + 1 :]
            first = np.argsort(-agreement, kind="stable")[:n]
            best += [(-float(agreement[k]), s, s + 1 + int(k)) for k in first]
            best = sorted(best)[:n]
        return [(-product, s, t) for product, s, t in best]

    @property
    def work(self) -> dict[str, int]:
        return {"passes": self._passes}


class Margin(Criterion):
    """Merge words whose weights in a linear SVM agree, solving the SVM after each merge (MME).

    Merging two words ties their weights. The pair with the smallest estimated decrease of the SVM's objective, from its
    dual variables, is merged; scores are the dual objective, summed over one-vs-rest machines, after each merge.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the SVM's hinge loss.
    n_exact : int, default=0
        Solve the SVM for this many of the best pairs by the estimate and merge the best; 0 uses the estimate alone.

    Notes
    -----
    Samples are L1-normalised first. One SVM per level, started from the previous solution: O(n d) a pass; it is solved
    more closely where its duality gap leaves open which pair is best. Pairs are compared in O(d) for two classes, in
    O(d²) for more. A ``ConvergenceWarning`` is raised if the solver does not converge, as can happen with a large C.

    References
    ----------
    L. Liu, L. Wang, C. Shen, "A generalized probabilistic framework for compact codebook creation", CVPR 2011.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion="mme").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "mme"
    non_negative = True
    _parameter_constraints: ClassVar[dict] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "n_exact": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(self, C: float = 1.0, *, n_exact: int = 0) -> None:
        self.C = C
        self.n_exact = n_exact

    def search(self, X: Any, y: NDArray[Any] | None, memory_limit: Limit = None) -> Search:  # noqa: D102
        codes = class_codes(y, self.name)
        check_values_fit(X, memory_limit, self.name)
        dense = X.toarray() if sp.issparse(X) else X
        totals = dense.sum(axis=1, keepdims=True)
        dense = dense / np.where(totals > 0, totals, 1.0)
        return MarginSearch(dense, codes, self.C, self.n_exact)
