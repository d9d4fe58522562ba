"""Learning the Dirichlet prior of the shares of topics by Newton's method."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

__all__ = ["SMALLEST", "learn_asymmetric", "learn_symmetric", "prior_objective"]

SMALLEST = 1e-6  # below it digamma is beyond -10⁶
_LARGEST = 1e6  # documents that all have the same shares would like an infinite prior


def prior_objective(alpha: NDArray[np.float64], mean_logs: NDArray[np.float64]) -> float:
    """``lgamma(Σα) - Σ lgamma(α_i) + Σ (α_i - 1) s_i`` with s the mean of E[log share] over documents."""
    return float(gammaln(alpha.sum()) - gammaln(alpha).sum() + (alpha - 1) @ mean_logs)


def _climb(
    alpha: NDArray[np.float64], step: NDArray[np.float64], mean_logs: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Take the step, halved until it does not lead down or out of bounds; None where none is left."""
    before = prior_objective(alpha, mean_logs)
    for _ in range(40):
        after = alpha + step
        if after.min() >= SMALLEST and after.max() <= _LARGEST and prior_objective(after, mean_logs) >= before:
            return after
        step = step / 2
    return None


def learn_asymmetric(
    alpha: NDArray[np.float64], mean_logs: NDArray[np.float64], max_iter: int = 100, tol: float = 1e-8
) -> NDArray[np.float64]:
    """Maximise `prior_objective` over α, each topic with its own.

    The Hessian is diagonal plus rank one, so a Newton step costs O(K). The objective never falls.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import digamma
    >>> from bagwise.topics.priors import learn_asymmetric
    >>> truth = np.array([0.2, 1.0, 3.0])
    >>> learn_asymmetric(np.ones(3), digamma(truth) - digamma(truth.sum())).round(6)
    array([0.2, 1. , 3. ])
    """
    for _ in range(max_iter):
        gradient = digamma(alpha.sum()) - digamma(alpha) + mean_logs
        if np.abs(gradient).max() <= tol:
            break
        diagonal = -polygamma(1, alpha)
        rank_one = polygamma(1, alpha.sum())
        shift = (gradient / diagonal).sum() / (1 / rank_one + (1 / diagonal).sum())
        after = _climb(alpha, -(gradient - shift) / diagonal, mean_logs)
        if after is None:
            # Newton leads out of the positive numbers; multiplying does not: up where the gradient is, by up to 2.
            after = _climb(alpha, alpha * np.clip(gradient / -(diagonal * alpha), -0.5, 1.0), mean_logs)
        if after is None:
            break
        alpha = after
    return alpha


def learn_symmetric(alpha: float, mean_logs: NDArray[np.float64], max_iter: int = 100, tol: float = 1e-8) -> float:
    """Maximise `prior_objective` over one α for all topics, by Newton in log α.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import digamma
    >>> from bagwise.topics.priors import learn_symmetric
    >>> round(learn_symmetric(1.0, np.full(4, digamma(0.3) - digamma(1.2))), 6)
    0.3
    """
    n_topics, total = len(mean_logs), float(mean_logs.sum())

    def value(a: float) -> float:
        return prior_objective(np.full(n_topics, a), mean_logs)

    for _ in range(max_iter):
        slope = n_topics * (digamma(n_topics * alpha) - digamma(alpha)) + total
        if abs(slope) * alpha <= tol:
            break
        curve = n_topics * (n_topics * polygamma(1, n_topics * alpha) - polygamma(1, alpha))
        in_log = curve * alpha**2 + slope * alpha
        step = -slope * alpha / in_log if in_log < 0 else np.sign(slope)
        step = float(np.clip(step, -2.0, 2.0))
        before = value(alpha)
        for _ in range(40):
            after = float(np.clip(alpha * np.exp(step), SMALLEST, _LARGEST))
            if value(after) >= before:
                break
            step /= 2
        else:
            break
        if after == alpha:
            break
        alpha = after
    return alpha
