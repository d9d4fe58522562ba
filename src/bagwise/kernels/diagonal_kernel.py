"""`DiagonalKernelLearner`: feature weights whose kernel follows the similarity of labels."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import Interval, _fit_context
from bagwise._utils.checks import reset_fitted
from bagwise._utils.validation import validate_data
from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels._kernels import logistic_losses, pair_gradient, pair_products
from bagwise.kernels.label_similarity import LabelSimilarity, label_similarity

__all__ = ["DiagonalKernelLearner", "PairLoss", "ball_weights", "proximal_weights"]

_FLOATS = (np.float64, np.float32)
_OBJECTIVES = ("ball", "correlation", "logistic", "prox")
# Step sizes where step is None.
_STEPS = {"correlation": 0.2, "prox": 1.0}
# Samples in a block of pairs: products of two blocks take 2 MB.
_BLOCK = 512
# Mini-batch training stops after this many passes without progress.
_PATIENCE = 3
_SMALLEST = 1e-12


def ball_weights(gradient: NDArray[np.float64], non_negative: bool = True) -> NDArray[np.float64]:
    """Maximise ``Σ_d g_d w_d`` over the (non-negative) unit ball: ``w = max(g, 0) / |max(g, 0)|``.

    If no g is positive, all weights are equal, with a warning.
    """
    wanted = np.maximum(gradient, 0.0) if non_negative else gradient
    largest = np.abs(wanted).max()
    if largest == 0.0:
        warnings.warn(
            "No feature agrees with the labels: all weights are equal. Centre or scale the features, or check the "
            "labels.",
            UserWarning,
            stacklevel=3,
        )
        return np.full(len(gradient), 1 / np.sqrt(len(gradient)))
    wanted = wanted / largest  # squares neither overflow nor vanish
    return wanted / np.linalg.norm(wanted)


def proximal_weights(
    gradient: NDArray[np.float64], start: NDArray[np.float64], step: float, non_negative: bool = True
) -> NDArray[np.float64]:
    """Take one gradient step: ``w = max(start + step g, 0)``."""
    weights = start + step * gradient
    return np.maximum(weights, 0.0) if non_negative else weights


def _relative(gradient: NDArray[np.float64]) -> NDArray[np.float64]:
    """The gradient divided by its largest absolute value, if that is not 0."""
    largest = np.abs(gradient).max()
    return gradient / largest if largest > 0 else gradient


class PairLoss:
    """``mean over i<j of log(1 + exp(-s_ij K_w(x_i, x_j))) + (penalty / 2) |w - 1|²``, with ``K_w = Σ_d w_d x_d x'_d``.

    Convex in w. X is dense or CSR; `similarity` gives the signs s.
    """

    def __init__(self, X: Any, similarity: LabelSimilarity, penalty: float) -> None:
        self.X = X
        self.similarity = similarity
        self.penalty = penalty
        self.n_samples, self.n_features = X.shape

    def of_all(self, weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient over all pairs, block by block: O(n² d), or O(pairs of entries of a column) if sparse."""
        edges = range(0, self.n_samples, _BLOCK)
        return self._of_pairs(weights, [np.arange(i, min(i + _BLOCK, self.n_samples)) for i in edges])

    def of_batch(self, weights: NDArray[np.float64], rows: NDArray[np.int64]) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient over the pairs among some samples; unbiased for random samples."""
        return self._of_pairs(weights, [rows])

    def _of_pairs(
        self, weights: NDArray[np.float64], blocks: list[NDArray[np.int64]]
    ) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient over the pairs within and between blocks of samples."""
        loss, gradient = 0.0, np.zeros(self.n_features)
        for rows, columns in itertools.combinations_with_replacement(blocks, 2):
            A, B = self.X[rows], self.X[columns]
            signs = self.similarity.signs_between(rows, columns)
            if sp.issparse(self.X):
                A, B = sp.csc_array(A), sp.csc_array(B)
                entries = (A.indptr, A.indices, A.data, B.indptr, B.indices, B.data)
                products = np.zeros(signs.shape)
                pair_products(*entries, weights, products)
                loss += logistic_losses(signs, products, rows is columns)
                pair_gradient(*entries, products, gradient)
            else:
                products = ((A * weights) @ B.T).astype(np.float64, copy=False)
                loss += logistic_losses(signs, products, rows is columns)
                gradient += np.einsum("ij,ij->j", A, products @ B)
        n, away = sum(map(len, blocks)), weights - 1.0
        n_pairs = n * (n - 1) / 2
        return loss / n_pairs + self.penalty / 2 * float(away @ away), gradient / n_pairs + self.penalty * away

    def minimize(
        self, start: NDArray[np.float64], non_negative: bool, max_iter: int, tol: float
    ) -> tuple[NDArray[np.float64], list[float], bool]:
        """Minimise over all pairs by L-BFGS-B: weights, loss before and after each iteration, whether it converged."""
        curve = [self.of_all(start)[0]]
        result = minimize(
            self.of_all,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(0.0, np.inf) if non_negative else None,
            callback=lambda intermediate_result: curve.append(float(intermediate_result.fun)),
            options={"maxiter": max_iter, "ftol": tol, "gtol": tol},
        )
        return result.x, curve, bool(result.success) or result.nit < max_iter

    def minimize_in_batches(
        self,
        start: NDArray[np.float64],
        non_negative: bool,
        max_iter: int,
        tol: float,
        batch_size: int,
        learning_rate: float,
        random: np.random.RandomState,
    ) -> tuple[NDArray[np.float64], list[float]]:
        """Minimise by projected AdaGrad over the pairs of random mini-batches: weights, mean loss of each pass.

        Stops when the best loss has not decreased by `tol` (relative) in three passes.
        """
        weights = start.copy()
        squares = np.zeros_like(weights)
        curve: list[float] = []
        best, n_idle = np.inf, 0
        n_batches = max(self.n_samples // batch_size, 1)
        for _ in range(max_iter):
            losses = []
            for rows in np.array_split(random.permutation(self.n_samples), n_batches):
                value, gradient = self.of_batch(weights, rows)
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


class DiagonalKernelLearner(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Learn a weight per feature, so that the weighted inner product is large for samples with similar labels.

    The kernel is ``K(x, x') = Σ_d w_d x_d x'_d``; s_ij is the similarity of the labels of samples i and j.

    1. ``objective="ball"`` and ``"prox"`` maximise ``Σ_{i≠j} s_ij K(x_i, x_j)``. It is linear in w with the gradient
       ``g_d = Σ_{i≠j} s_ij x_id x_jd``, so w must be bounded: "ball" takes the best w ≥ 0 in the unit ball,
       ``max(g, 0)`` scaled to length 1; "prox" takes one step from equal weights, ``w = max(1 + step g / max |g|, 0)``.
    2. ``objective="correlation"`` takes such a step with centred features and labels, in units of what labels drawn at
       random would give: ``w = max(1 + step (n η_d² / (c - 1) - 1), 0)``, where η² is the fraction of the variance
       between the c classes. It does not depend on the scale or mean of the features.
    3. ``objective="logistic"`` minimises ``½ |w - 1|² + C mean_{i<j} log(1 + exp(-s_ij K(x_i, x_j)))`` over w ≥ 0, with
       s_ij = ±1. It is convex.
    4. `transform` multiplies the features by the square roots of the weights. Their inner product is the kernel, so a
       linear SVM on them is an SVM with the kernel.

    Except for "correlation", features should have comparable scales and, if dense, be centred: a feature with a large
    mean has a large g for any labels, in particular with ``similarity="shared"``.

    Parameters
    ----------
    objective : {"ball", "prox", "correlation", "logistic"}, default="ball"
    similarity : {"auto", "classes", "shared"} or callable, default="auto"
        "classes": 1 for two samples of the same class, -1 for others. "shared": y is a 0/1 indicator matrix, and the
        similarity is the number of shared labels ("logistic": 1 if there is one, else -1). "auto" is "classes" if y is
        one-dimensional, else "shared". A callable takes two arrays of labels, a and b, and returns the matrix of
        similarities between them; it should be symmetric; "correlation" accepts none.
    non_negative : bool, default=True
        False allows negative weights. The `kernel` may then be indefinite, and there is no `transform`.
    step : float, default=None
        Step size of "prox", for the feature with the largest g (None: 1), or of "correlation", in multiples of
        chance (None: 0.2). The step of "prox" hangs on one feature: the more separable the best one is, the less all
        others move, so that steps of 10 to 100 may be better with many features.
    C : float, default=1000.0
        Inverse regularisation strength of "logistic", which keeps weights near 1. ``np.inf``: no regularisation.
    batch_size : int or None, default=256
        "logistic" uses the pairs of random mini-batches of this many samples. None: all pairs, O(n²), by L-BFGS-B.
    learning_rate : float, default=0.1
        Initial step size with mini-batches (AdaGrad).
    max_iter : int, default=50
        Maximum number of passes over mini-batches, or of iterations over all pairs, of "logistic".
    tol : float, default=1e-4
        "logistic" stops when the loss decreases by less than this fraction in three passes or one iteration.
    pretrain_size : float, int or None, default=None
        Start from weights learned on this fraction or number of samples, drawn at random; for "logistic" from all their
        pairs. None: start from equal weights. "ball" has no start.
    random_state : int, RandomState or None, default=None
        For mini-batches and the samples of `pretrain_size`.

    Attributes
    ----------
    weights_ : ndarray of shape (n_features_in_,)
        w.
    gradient_ : ndarray of shape (n_features_in_,)
        g of "ball" and "prox", ``n η² / (c - 1) - 1`` of "correlation".
    loss_curve_ : list of float
        Loss in each pass or iteration; only for "logistic".
    n_iter_ : int
        Number of passes or iterations; 1 for all but "logistic".
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    FisherScore : Features of vectors, or bags of them, to learn a kernel on.
    sklearn.neighbors.NeighborhoodComponentsAnalysis : Learns a full matrix, for nearest neighbours.

    Notes
    -----
    With standardised features and c balanced classes, g_d is ``2 n² η_d² / c - n``, where η² is the between-class
    fraction of the variance: features are weighted by class separability.

    All but "logistic" take one pass over the data and sums over classes or labels; no n x n matrix is formed, unless
    `similarity` is a callable, which is evaluated for all pairs, block by block. A mini-batch of b samples takes
    O(b² d) time, or one multiplication per pair of non-zeros of a feature. Sparse data stay sparse.

    References
    ----------
    Q. Lv, L. Pang, X. Li, "Learning probabilistic kernel from latent Dirichlet allocation", KSII Transactions on
    Internet and Information Systems 10(6), 2016.

    Examples
    --------
    The first feature follows the labels, the second does not.

    >>> from bagwise.kernels import DiagonalKernelLearner
    >>> X = [[1.0, 1.0], [2.0, -1.0], [-1.0, 1.0], [-2.0, -1.0]]
    >>> y = ["cat", "cat", "dog", "dog"]
    >>> learner = DiagonalKernelLearner().fit(X, y)
    >>> learner.weights_
    array([1., 0.])
    >>> learner.kernel(X)[0]
    array([ 1.,  2., -1., -2.])
    >>> learner.set_params(objective="prox").fit(X, y).weights_.round(2)
    array([2.  , 0.85])
    """

    _parameter_constraints: ClassVar[dict] = {
        "objective": [str],
        "similarity": [str, callable],
        "non_negative": ["boolean"],
        "step": [Interval(Real, 0, None, closed="neither"), None],
        "C": [Interval(Real, 0, None, closed="right")],
        "batch_size": [Interval(Integral, 2, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, 1, closed="left")],
        "pretrain_size": [Interval(Real, 0, 1, closed="neither"), Interval(Integral, 2, None, closed="left"), None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        objective: str = "ball",
        *,
        similarity: str | Callable[[Any, Any], Any] = "auto",
        non_negative: bool = True,
        step: float | None = None,
        C: float = 1000.0,
        batch_size: int | None = 256,
        learning_rate: float = 0.1,
        max_iter: int = 50,
        tol: float = 1e-4,
        pretrain_size: float | int | None = None,
        random_state: Any = None,
    ) -> None:
        self.objective = objective
        self.similarity = similarity
        self.non_negative = non_negative
        self.step = step
        self.C = C
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.pretrain_size = pretrain_size
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> Self:
        """Learn the weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), or array-like or sparse matrix of shape (n_samples, n_labels)
            Class of each sample, or a 0/1 indicator matrix of its labels.

        Returns
        -------
        self : DiagonalKernelLearner
        """
        reset_fitted(self)
        if self.objective not in _OBJECTIVES:
            raise unknown_name("objective", self.objective, _OBJECTIVES)
        if self.objective == "ball" and self.pretrain_size is not None:
            raise BagwiseError(
                "objective='ball' has no start, so pretrain_size has no effect. Use pretrain_size=None, or another "
                "objective."
            )
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=_FLOATS, multi_output=True, ensure_min_samples=2)
        similarity = label_similarity(self.similarity, y)
        random = check_random_state(self.random_state)
        if self.objective == "logistic":
            weights, curve = self._learn_logistic(X, similarity, random)
            self.loss_curve_, self.n_iter_ = curve, max(len(curve) - (self.batch_size is None), 1)
        else:
            self.gradient_ = self._gradient(X, similarity)
            weights, self.n_iter_ = self._closed_form(X, similarity, random), 1
            if not weights.any():
                warnings.warn(
                    f"All weights are 0, and so is the kernel: a step of {self._step():g} leaves no feature that "
                    "agrees with the labels. Take a smaller step, another objective, or check the labels.",
                    UserWarning,
                    stacklevel=2,
                )
        if not np.isfinite(weights).all():
            raise BagwiseError(
                "The weights are not finite: products of values of X overflow. Scale X, for example with "
                "sklearn.preprocessing.MaxAbsScaler."
            )
        self.weights_ = weights
        return self

    def _gradient(self, X: Any, similarity: LabelSimilarity) -> NDArray[np.float64]:
        return similarity.separability(X) if self.objective == "correlation" else similarity.gradient(X)

    def _closed_form(self, X: Any, similarity: LabelSimilarity, random: np.random.RandomState) -> NDArray[np.float64]:
        if self.objective == "ball":
            return ball_weights(self.gradient_, self.non_negative)
        gradients = [self.gradient_]
        if self.pretrain_size is not None:
            rows = self._pretraining_rows(X.shape[0], random)
            gradients.insert(0, self._gradient(X[rows], similarity.take(rows)))
        weights = np.ones(X.shape[1])
        for gradient in gradients:
            if self.objective == "prox":
                gradient = _relative(gradient)
            weights = proximal_weights(gradient, weights, self._step(), self.non_negative)
        return weights

    def _step(self) -> float:
        return _STEPS[self.objective] if self.step is None else float(self.step)

    def _learn_logistic(
        self, X: Any, similarity: LabelSimilarity, random: np.random.RandomState
    ) -> tuple[NDArray[np.float64], list[float]]:
        start = np.ones(X.shape[1])
        stopping = (self.non_negative, self.max_iter, self.tol)
        if self.pretrain_size is not None:
            rows = self._pretraining_rows(X.shape[0], random)
            start, _, _ = PairLoss(X[rows], similarity.take(rows), 1 / self.C).minimize(start, *stopping)
        loss = PairLoss(X, similarity, 1 / self.C)
        if self.batch_size is not None:
            return loss.minimize_in_batches(start, *stopping, self.batch_size, self.learning_rate, random)
        weights, curve, converged = loss.minimize(start, *stopping)
        if not converged:
            warnings.warn(
                f"The weights did not converge in max_iter={self.max_iter} iterations. Increase max_iter or tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return weights, curve

    def _pretraining_rows(self, n_samples: int, random: np.random.RandomState) -> NDArray[np.int64]:
        size = self.pretrain_size
        n_rows = int(size) if isinstance(size, Integral) else max(round(n_samples * float(size)), 2)  # type: ignore[arg-type]
        return np.sort(random.permutation(n_samples)[:n_rows])

    def transform(self, X: Any) -> Any:
        """Multiply each feature by the square root of its weight.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray or CSR of shape (n_samples, n_features)
            ``Z @ Z.T`` is the kernel. Features of weight 0 become zeros.
        """
        check_is_fitted(self)
        if (self.weights_ < 0).any():
            raise BagwiseError(
                f"{int((self.weights_ < 0).sum())} weights are negative, so no real features have the kernel as inner "
                "product. Use kernel(X, Y), or non_negative=True."
            )
        return _times_columns(self._check(X), np.sqrt(self.weights_))

    def kernel(self, X: Any, Y: Any = None) -> NDArray[Any]:
        """Compute the learned kernel between the rows of X and of Y.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
        Y : array-like or sparse matrix of shape (m, n_features), default=None
            None is X.

        Returns
        -------
        K : ndarray of shape (n, m)
        """
        check_is_fitted(self)
        X = self._check(X)
        Y = X if Y is None else self._check(Y)
        product = _times_columns(X, self.weights_) @ Y.T
        return product.toarray() if sp.issparse(product) else np.asarray(product)

    def _check(self, X: Any) -> Any:
        return validate_data(self, X, accept_sparse="csr", dtype=_FLOATS, reset=False)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "weights_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _times_columns(X: Any, factors: NDArray[np.float64]) -> Any:
    """Multiply the columns of a dense or CSR matrix by factors, in the dtype of the matrix."""
    factors = factors.astype(X.dtype, copy=False)
    if not sp.issparse(X):
        return X * factors
    scaled = X.copy()
    scaled.data *= factors[scaled.indices]
    scaled.eliminate_zeros()
    return scaled
