"""The logistic loss of a diagonal kernel over pairs of samples, and two ways to make it small."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels._kernels import logistic_losses, pair_gradient, pair_products
from bagwise.kernels.label_similarity import LabelSimilarity, label_similarity

__all__ = [
    "DiagonalKernelLearner",
    "PairLoss",
    "ball_weights",
    "minimize_by_batches",
    "minimize_exactly",
    "proximal_weights",
]


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


_FLOATS = (np.float64, np.float32)
_OBJECTIVES = ("ball", "logistic", "prox")


def ball_weights(gradient: NDArray[np.float64], non_negative: bool = True) -> NDArray[np.float64]:
    """Give the weights w in the unit ball, and not negative, with the largest ``Σ_d g_d w_d``.

    ``w = max(g, 0) / |max(g, 0)|``. If no g is positive, all weights are zero or the same; they are made the same, with
    a warning.
    """
    wanted = np.maximum(gradient, 0.0) if non_negative else gradient
    largest = np.abs(wanted).max()
    if largest == 0.0:
        warnings.warn(
            "No feature agrees with the labels: all weights are made the same. Centre or scale the features, or "
            "look at the labels.",
            UserWarning,
            stacklevel=3,
        )
        return np.full(len(gradient), 1 / np.sqrt(len(gradient)))
    wanted = wanted / largest  # squares neither overflow nor vanish
    return wanted / np.linalg.norm(wanted)


def proximal_weights(
    gradient: NDArray[np.float64], start: NDArray[np.float64], step: float, non_negative: bool = True
) -> NDArray[np.float64]:
    """Go from `start` along g, by `step` where g is largest: ``w = max(start + step g / max |g|, 0)``."""
    largest = np.abs(gradient).max()
    weights = start + step * (gradient / largest) if largest > 0 else start.copy()
    return np.maximum(weights, 0.0) if non_negative else weights


class DiagonalKernelLearner(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Learn a weight for each feature, so that the weighted inner product is large for samples with like labels.

    The kernel is ``K(x, x') = Σ_d w_d x_d x'_d``, the similarity of labels s_ij.

    1. With ``objective="ball"`` and ``"prox"``, ``Σ_{i≠j} s_ij K(x_i, x_j)`` should be large. That is linear in w, with
       the gradient ``g_d = Σ_{i≠j} s_ij x_id x_jd``, so w is bounded: "ball" takes the best w ≥ 0 in the unit ball,
       ``max(g, 0)`` scaled to length 1; "prox" goes a step from equal weights, ``w = max(1 + step g / max |g|, 0)``.
    2. With ``objective="logistic"``, the mean of ``log(1 + exp(-s_ij K(x_i, x_j)))`` over pairs, plus
       ``(penalty / 2) |w - 1|²``, should be small, again with w ≥ 0. It is convex, and s is a sign.
    3. `transform` multiplies the features by the roots of the weights: their inner product is the kernel, so a linear
       SVM on them is an SVM with the kernel.

    Features should be scaled to be comparable and, where they may be (dense data), centred: a feature with a large mean
    has a large g whatever the labels, in particular with ``similarity="shared"``.

    Parameters
    ----------
    objective : {"ball", "prox", "logistic"}, default="ball"
    similarity : {"auto", "classes", "shared"} or callable, default="auto"
        "classes": 1 for two samples of a class, -1 for others. "shared": y has a row of zeros and ones for each
        sample, and the similarity is the number of ones they share (for "logistic": 1 if there is one, else -1).
        "auto" is "classes" if y is one-dimensional, else "shared". A callable gets two arrays of labels, a and b,
        and gives the matrix of similarities between them; it should be symmetric.
    non_negative : bool, default=True
        False allows weights below zero. Then there is a `kernel`, which need not be positive, but no `transform`.
    step : float, default=1.0
        Size of the step of "prox", taken by the feature with the largest g. With many features most have a much smaller
        one, and steps of 10 to 100 may be better.
    penalty : float, default=0.001
        How much "logistic" keeps weights near 1.
    batch_size : int or None, default=256
        "logistic" looks at the pairs of random batches of this many samples. None: at all pairs, O(n²), by L-BFGS-B.
    learning_rate : float, default=0.1
        Size of the first step with batches (AdaGrad).
    max_iter : int, default=50
        Most passes over batches, or iterations over all pairs, of "logistic".
    tol : float, default=1e-4
        "logistic" stops when the loss falls by less than this share, over three passes or one iteration.
    pretrain_size : float, int or None, default=None
        Start "prox" or "logistic" from weights learned on this share, or number, of samples, drawn at random; for
        "logistic" from all their pairs. None: start from equal weights. "ball" has no start.
    random_state : int, RandomState or None, default=None
        For batches and for drawing samples.

    Attributes
    ----------
    weights_ : ndarray of shape (n_features_in_,)
        w.
    gradient_ : ndarray of shape (n_features_in_,)
        g; only for "ball" and "prox".
    loss_curve_ : list of float
        Loss in each pass or iteration; only for "logistic".
    n_iter_ : int
        Passes or iterations; 1 for "ball" and "prox".
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    FisherScore : Features of vectors, or bags of them, to learn a kernel on.
    sklearn.neighbors.NeighborhoodComponentsAnalysis : Learns a full matrix, for nearest neighbours.

    Notes
    -----
    With standardised features and C balanced classes, g_d is ``2 n² η_d² / C - n``, where η² is the share of the
    variance that lies between classes: features are weighted by how well they separate the classes.

    "ball" and "prox" take one pass over the data, and sums over classes or labels; nothing of samples by samples is
    formed, unless `similarity` is a callable, which is asked for all pairs, block by block. A batch of b samples
    takes O(b² d) time, or as many multiplications as pairs of non-zeros share a feature. Sparse data stay sparse.

    References
    ----------
    Q. Lv, Y. Pang, X. Li, "Learning probabilistic kernel from latent Dirichlet allocation", KSII Transactions on
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
        "step": [Interval(Real, 0, None, closed="neither")],
        "penalty": [Interval(Real, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 2, None, closed="left"), None],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, 1, closed="left")],
        "pretrain_size": [
            Interval(Real, 0, 1, closed="neither"),
            Interval(Integral, 2, None, closed="left"),
            None,
        ],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        objective: str = "ball",
        *,
        similarity: str | Callable[[Any, Any], Any] = "auto",
        non_negative: bool = True,
        step: float = 1.0,
        penalty: float = 0.001,
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
        self.penalty = penalty
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.tol = tol
        self.pretrain_size = pretrain_size
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any) -> DiagonalKernelLearner:
        """Learn the weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), or array-like or sparse matrix of shape (n_samples, n_labels)
            Class of each sample, or zeros and ones that say which labels it has.

        Returns
        -------
        self : DiagonalKernelLearner
        """
        for name in ("weights_", "gradient_", "loss_curve_", "n_iter_"):  # should fitting fail, nothing old is left
            if hasattr(self, name):
                delattr(self, name)
        if self.objective not in _OBJECTIVES:
            raise unknown_name("objective", self.objective, _OBJECTIVES)
        if self.objective == "ball" and self.pretrain_size is not None:
            raise BagwiseError(
                "objective='ball' has no start, so pretrain_size has nothing to do. Use pretrain_size=None, or another "
                "objective."
            )
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=_FLOATS, multi_output=True, ensure_min_samples=2)
        if sp.issparse(X) and not X.has_canonical_format:
            X = X.copy()  # the caller's matrix stays as it came
            X.sum_duplicates()
        similarity = label_similarity(self.similarity, y)
        random = check_random_state(self.random_state)
        if self.objective == "logistic":
            weights, curve = self._learn_logistic(X, similarity, random)
            self.loss_curve_, self.n_iter_ = curve, max(len(curve) - (self.batch_size is None), 1)
        else:
            self.gradient_ = similarity.gradient(X)
            weights, self.n_iter_ = self._closed_form(X, similarity, random), 1
        if not np.isfinite(weights).all():
            raise BagwiseError(
                "The weights are not finite: values of X are too large to be multiplied and added. Scale X, for "
                "example with sklearn.preprocessing.MaxAbsScaler."
            )
        self.weights_ = weights
        return self

    def _closed_form(self, X: Any, similarity: LabelSimilarity, random: np.random.RandomState) -> NDArray[np.float64]:
        if self.objective == "ball":
            return ball_weights(self.gradient_, self.non_negative)
        start = np.ones(X.shape[1])
        if self.pretrain_size is not None:
            rows = self._pretraining_rows(X.shape[0], random)
            gradient = similarity.take(rows).gradient(X[rows])
            start = proximal_weights(gradient, start, self.step, self.non_negative)
        return proximal_weights(self.gradient_, start, self.step, self.non_negative)

    def _learn_logistic(
        self, X: Any, similarity: LabelSimilarity, random: np.random.RandomState
    ) -> tuple[NDArray[np.float64], list[float]]:
        start = np.ones(X.shape[1])
        how = (self.non_negative, self.max_iter, self.tol)
        if self.pretrain_size is not None:
            rows = self._pretraining_rows(X.shape[0], random)
            start, _, _ = minimize_exactly(PairLoss(X[rows], similarity.take(rows), self.penalty), start, *how)
        loss = PairLoss(X, similarity, self.penalty)
        if self.batch_size is not None:
            return minimize_by_batches(loss, start, *how, self.batch_size, self.learning_rate, random)
        weights, curve, settled = minimize_exactly(loss, start, *how)
        if not settled:
            warnings.warn(
                f"The weights had not settled after max_iter={self.max_iter} iterations. Take more, or a larger tol.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return weights, curve

    def _pretraining_rows(self, n_samples: int, random: np.random.RandomState) -> NDArray[np.int64]:
        wanted = self.pretrain_size
        n_rows = int(wanted) if isinstance(wanted, Integral) else max(round(n_samples * float(wanted)), 2)  # type: ignore[arg-type]
        return np.sort(random.permutation(n_samples)[:n_rows])

    def transform(self, X: Any) -> Any:
        """Multiply each feature by the root of its weight.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        Z : ndarray or CSR of shape (n_samples, n_features)
            ``Z @ Z.T`` is the kernel. Features with weight 0 stay, as zeros.
        """
        check_is_fitted(self)
        if (self.weights_ < 0).any():
            raise BagwiseError(
                f"{int((self.weights_ < 0).sum())} weights are negative, so there are no features whose inner product "
                "is the kernel. Use kernel(X, Y), or non_negative=True."
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
    """Multiply the columns of a dense or CSR matrix by factors, in the type of the matrix."""
    factors = factors.astype(X.dtype, copy=False)
    if not sp.issparse(X):
        return X * factors
    scaled = X.copy()
    scaled.data *= factors[scaled.indices]
    scaled.eliminate_zeros()
    return scaled
