"""The logistic loss of a diagonal kernel over pairs of samples, and two ways to make it small."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize

from bagwise.kernels._pair_kernels import logistic_losses, pair_gradient, pair_products
from bagwise.kernels.label_similarity import LabelSimilarity

__all__ = ["PairLoss", "minimize_by_batches", "minimize_exactly"]

# Samples in a block of pairs: products of blocks take 2 MB.
_BLOCK = 512
# Passes without progress after which mini-batches stop.
_PATIENCE = 3
_SMALLEST = 1e-12


class PairLoss:
    """``mean over i<j of log(1 + exp(-s_ij K_w(x_i, x_j))) + (penalty / 2) |w - 1|²``, with ``K_w = Σ_d w_d x_d x'_d``.

    Convex in w.

    Parameters
    ----------
    X : ndarray or CSR of shape (n_samples, n_features)
    similarity : LabelSimilarity
        Gives the signs s.
    penalty : float
    """

    def __init__(self, X: Any, similarity: LabelSimilarity, penalty: float) -> None:
        self.X = X
        self.similarity = similarity
        self.penalty = penalty
        self.n_samples, self.n_features = X.shape

    def of_all(self, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient over all pairs, block by block: O(n² d), or the pairs of entries that share a column."""
        blocks = [np.arange(i, min(i + _BLOCK, self.n_samples)) for i in range(0, self.n_samples, _BLOCK)]
        loss, gradient = 0.0, np.zeros(self.n_features)
        for a, rows in enumerate(blocks):
            for columns in blocks[a:]:
                loss += self._add_pairs(weights, rows, columns, gradient)
        return self._with_penalty(loss, gradient, weights, self.n_samples)

    def of_batch(self, weights: NDArray[np.float64], rows: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient over the pairs among some samples. For random samples, right on average."""
        gradient = np.zeros(self.n_features)
        loss = self._add_pairs(weights, rows, rows, gradient)
        return self._with_penalty(loss, gradient, weights, len(rows))

    def _with_penalty(
        self, loss: float, gradient: NDArray[np.float64], weights: NDArray[np.float64], n: int
    ) -> tuple[float, NDArray[np.float64]]:
        n_pairs = n * (n - 1) / 2
        away = weights - 1.0
        return loss / n_pairs + self.penalty / 2 * float(away @ away), gradient / n_pairs + self.penalty * away

    def _add_pairs(
        self,
        weights: NDArray[np.float64],
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        gradient: NDArray[np.float64],
    ) -> float:
        """Add the gradient of the pairs between two blocks, or within one, and give their loss."""
        A, B = self.X[rows], self.X[columns]
        signs = self.similarity.signs_between(rows, columns)
        if not sp.issparse(self.X):
            products = ((A * weights) @ B.T).astype(np.float64, copy=False)
            loss = logistic_losses(signs, products, rows is columns)
            gradient += np.einsum("ij,ij->j", A, products @ B)
            return loss
        A, B = sp.csc_array(A), sp.csc_array(B)
        entries = (A.indptr, A.indices, A.data, B.indptr, B.indices, B.data)
        products = np.zeros(signs.shape)
        pair_products(*entries, weights, products)
        loss = logistic_losses(signs, products, rows is columns)
        pair_gradient(*entries, products, gradient)
        return loss


def minimize_exactly(
    loss: PairLoss, start: NDArray[np.float64], non_negative: bool, max_iter: int, tol: float
) -> tuple[NDArray[np.float64], list[float], bool]:
    """Minimise over all pairs by L-BFGS-B; gives the weights, the loss before and after each iteration, and whether
    the weights had settled.
    """
    curve = [loss.of_all(start)[0]]
    found = minimize(
        loss.of_all,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(0.0, np.inf) if non_negative else None,
        callback=lambda intermediate_result: curve.append(float(intermediate_result.fun)),
        options={"maxiter": max_iter, "ftol": tol, "gtol": tol},
    )
    return found.x, curve, bool(found.success) or found.nit < max_iter


def minimize_by_batches(
    loss: PairLoss,
    start: NDArray[np.float64],
    non_negative: bool,
    max_iter: int,
    tol: float,
    batch_size: int,
    learning_rate: float,
    random: np.random.RandomState,
) -> tuple[NDArray[np.float64], list[float]]:
    """Minimise by AdaGrad over the pairs of random batches; gives the weights, and each pass's mean loss.

    Where weights may not be negative, they are cut to zero after each step. Stops when three passes in a row are no
    better than the best before by `tol` relative to it.
    """
    weights = start.copy()
    squares = np.zeros_like(weights)
    curve: list[float] = []
    best, n_idle = np.inf, 0
    n_batches = max(loss.n_samples // batch_size, 1)
    for _ in range(max_iter):
        losses = []
        for rows in np.array_split(random.permutation(loss.n_samples), n_batches):
            value, gradient = loss.of_batch(weights, rows)
            losses.append(value)
            squares += gradient**2
            weights -= learning_rate * gradient / (np.sqrt(squares) + _SMALLEST)
            if non_negative:
                np.maximum(weights, 0.0, out=weights)
        curve.append(float(np.mean(losses)))
        n_idle = 0 if curve[-1] < (1 - tol) * best else n_idle + 1
        best = min(best, curve[-1])
        if n_idle == _PATIENCE:
            break
    return weights, curve
