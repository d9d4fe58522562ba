"""Variational training of latent Dirichlet allocation: all documents at once, in mini-batches, learned priors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

from bagwise._utils.backends import backend
from bagwise.topics.inference import Corpus, Posterior, mean_logs, topic_bound, topic_weights

SMALLEST = 1e-6  # lower bound of the prior: below it digamma falls under -10⁶
_LARGEST = 1e6  # upper bound: documents with identical proportions have an infinite optimum
# The first passes (online: mini-batches, as `fit` starts from sampled topics) keep the prior: under topics that are
# still random all documents look alike, and it would diverge.
_PASSES_BEFORE_PRIOR = 5
_MAX_HALVINGS = 40


def prior_objective(alpha: NDArray[np.float64], mean_logs: NDArray[np.float64]) -> float:
    """``lgamma(Σα) - Σ lgamma(α_i) + Σ (α_i - 1) s_i``, with s the mean over documents of E[log proportion]."""
    return float(gammaln(alpha.sum()) - gammaln(alpha).sum() + (alpha - 1) @ mean_logs)


def _line_search(
    alpha: NDArray[np.float64], step: NDArray[np.float64], mean_logs: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Halve the step until α stays within its bounds and the objective does not decrease; None if it never does."""
    before = prior_objective(alpha, mean_logs)
    for _ in range(_MAX_HALVINGS):
        after = alpha + step
        if after.min() >= SMALLEST and after.max() <= _LARGEST and prior_objective(after, mean_logs) >= before:
            return after
        step = step / 2
    return None


def learn_asymmetric(
    alpha: NDArray[np.float64], mean_logs: NDArray[np.float64], max_iter: int = 100, tol: float = 1e-8
) -> NDArray[np.float64]:
    """Maximise `prior_objective` over α with one value per topic, by Newton's method with line search.

    The Hessian is diagonal plus rank one, so a step takes O(K). The objective never decreases.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import digamma
    >>> from bagwise.topics.training import learn_asymmetric
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
        after = _line_search(alpha, -(gradient - shift) / diagonal, mean_logs)
        if after is None:
            # The Newton step leaves the positive orthant: scale each value along its gradient instead.
            after = _line_search(alpha, alpha * np.clip(gradient / -(diagonal * alpha), -0.5, 1.0), mean_logs)
        if after is None:
            break
        alpha = after
    return alpha


def learn_symmetric(alpha: float, mean_logs: NDArray[np.float64], max_iter: int = 100, tol: float = 1e-8) -> float:
    """Maximise `prior_objective` over one α for all topics, by Newton's method in log α with line search.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.special import digamma
    >>> from bagwise.topics.training import learn_symmetric
    >>> round(learn_symmetric(1.0, np.full(4, digamma(0.3) - digamma(1.2))), 6)
    0.3
    """
    n, total = len(mean_logs), float(mean_logs.sum())

    def objective(a: float) -> float:
        return prior_objective(np.full(n, a), mean_logs)

    for _ in range(max_iter):
        slope = n * (digamma(n * alpha) - digamma(alpha)) + total
        if abs(slope) * alpha <= tol:
            break
        curvature = n * (n * polygamma(1, n * alpha) - polygamma(1, alpha))
        in_log = curvature * alpha**2 + slope * alpha
        step = -slope * alpha / in_log if in_log < 0 else np.sign(slope)
        step = float(np.clip(step, -2.0, 2.0))
        before = objective(alpha)
        for _ in range(_MAX_HALVINGS):
            after = float(np.clip(alpha * np.exp(step), SMALLEST, _LARGEST))
            if objective(after) >= before:
                break
            step /= 2
        else:
            break
        if after == alpha:
            break
        alpha = after
    return alpha


@dataclass(frozen=True)
class State:
    """A topic model between two passes."""

    counts: NDArray[np.float64]  # λ, words x topics: pseudocounts of each word in each topic
    alpha: NDArray[np.float64]
    bound: float = -np.inf  # ELBO of the corpus in the last pass; online: as documents and topics were during it
    n_updates: int = 0  # so far; they set the weight of the next online update


@dataclass(frozen=True)
class Training:
    """Training parameters of `LatentDirichlet`, which documents them."""

    eta: float
    smoothing: str = "bayes"
    prior: str = "fixed"
    max_doc_update_iter: int = 100
    mean_change_tol: float = 1e-3
    restarts: int | None = None
    tol: float = 1e-5
    batch_size: int = 256
    decay: float = 0.7
    offset: float = 10.0
    n_threads: int = 1
    device: str | None = None

    def has_converged(self, before: float, after: float) -> bool:
        """Whether a pass over all documents increased the ELBO by at most `tol` relative to its size."""
        return after - before <= self.tol * abs(after)

    def has_settled(self, before: float, after: float) -> bool:
        """The same for a pass of mini-batches, whose ELBO has some noise: ten times the tolerance; never if it is 0."""
        return self.tol > 0 and after - before <= 10 * self.tol * abs(after)

    def infer(
        self, corpus: Corpus, state: State, gamma: NDArray[np.float64] | None = None
    ) -> tuple[Posterior, NDArray[np.float64]]:
        """Posterior of documents, and the weights of the topics it belongs to."""
        weights = topic_weights(state.counts, self.smoothing, self.n_threads)
        limits = self.max_doc_update_iter, self.mean_change_tol, self.n_threads
        return corpus.infer(weights, state.alpha, gamma, *limits), weights


def random_counts(n_words: int, n_components: int, rng: np.random.RandomState) -> NDArray[np.float64]:
    """Random topics near the uniform distribution, words x topics, with the generator calls of scikit-learn."""
    return np.ascontiguousarray(rng.gamma(100.0, 0.01, (n_components, n_words)).T)


def learn_prior(
    alpha: NDArray[np.float64],
    gamma: NDArray[np.float64],
    prior: str,
    sample_weight: NDArray[np.float64] | None = None,
    n_threads: int = 1,
) -> NDArray[np.float64]:
    """The document-topic prior that maximises the ELBO for the posterior γ of documents."""
    if prior == "fixed":
        return alpha
    return prior_from_logs(alpha, mean_logs(gamma, sample_weight, n_threads), prior)


def prior_from_logs(alpha: NDArray[np.float64], logs: NDArray[np.float64], prior: str) -> NDArray[np.float64]:
    """Do what `learn_prior` does from the mean over documents of E[log proportion]."""
    if prior == "symmetric":
        return np.full_like(alpha, learn_symmetric(float(alpha.mean()), logs))
    return learn_asymmetric(alpha, logs)


def _total(bounds: NDArray[np.float64], sample_weight: NDArray[np.float64] | None) -> float:
    return float(bounds.sum() if sample_weight is None else bounds @ sample_weight)


def batch_passes(
    X: sp.csr_array,
    state: State,
    training: Training,
    rng: np.random.RandomState,
    sample_weight: NDArray[np.float64] | None = None,
) -> Iterator[State]:
    """Variational EM: yield the state after each pass. Its ELBO never decreases.

    A pass updates topics and prior from the posterior of all documents, and then that posterior. In the first passes
    each document starts again from equal proportions. A document that continued from its last posterior would keep its
    topics, since a topic that left it does not come back, and the topics would stay near their random start. As soon as
    a cold start no longer increases the ELBO of the corpus by ``training.tol``, or after ``training.restarts`` passes,
    documents continue from their last posterior, which never decreases the ELBO.
    """
    corpus = backend("topics", training.device).Corpus(X)
    posterior, weights = training.infer(corpus, state)
    cold = True
    done = 0
    while True:
        done += 1
        ratios = corpus.weighted_ratios(posterior, sample_weight)
        counts = corpus.expected_counts(ratios, posterior.expected, weights, training.n_threads)
        counts += training.eta
        alpha = state.alpha
        gamma = posterior.gamma
        del posterior, weights, ratios  # before the next ones are made
        if done > _PASSES_BEFORE_PRIOR:
            alpha = learn_prior(alpha, gamma, training.prior, sample_weight, training.n_threads)
        before = state.bound
        state = replace(state, counts=counts, alpha=alpha, n_updates=state.n_updates + 1)
        of_topics = topic_bound(counts, training.eta, training.smoothing)
        cold = cold and (training.restarts is None or done <= training.restarts)
        if cold:
            posterior, weights = training.infer(corpus, state)
            bound = _total(posterior.bounds, sample_weight) + of_topics
            cold = not training.has_converged(before, bound)
        if not cold:
            posterior, weights = training.infer(corpus, state, gamma)
            bound = _total(posterior.bounds, sample_weight) + of_topics
        state = replace(state, bound=bound)
        yield state


@dataclass(frozen=True)
class Expectation:
    """What a batch of documents says about topics and prior. Those of several batches are added."""

    counts: NDArray[np.float64]  # expected, words x topics
    logs: NDArray[np.float64] | None  # mean of E[log proportion]; None where the prior is not learned
    n_documents: float
    bound: float

    @classmethod
    def of(
        cls, X: sp.csr_array, state: State, training: Training, sample_weight: NDArray[np.float64] | None = None
    ) -> Expectation:
        """Infer the posterior of a batch of documents."""
        corpus = backend("topics", training.device).Corpus(X)
        posterior, weights = training.infer(corpus, state)
        ratios = corpus.weighted_ratios(posterior, sample_weight)
        counts = corpus.expected_counts(ratios, posterior.expected, weights, training.n_threads)
        logs = None
        if training.prior != "fixed" and state.n_updates >= _PASSES_BEFORE_PRIOR:
            logs = mean_logs(posterior.gamma, sample_weight, training.n_threads)
        n_documents = X.shape[0] if sample_weight is None else float(sample_weight.sum())
        return cls(counts, logs, n_documents, _total(posterior.bounds, sample_weight))

    def __add__(self, other: Expectation) -> Expectation:
        n, logs = self.n_documents + other.n_documents, self.logs
        if self.logs is not None and other.logs is not None:
            logs = (self.n_documents * self.logs + other.n_documents * other.logs) / n
        return Expectation(self.counts + other.counts, logs, n, self.bound + other.bound)


def online_update(state: State, expectation: Expectation, training: Training, total_samples: float) -> State:
    """Update the model, weighted as if all `total_samples` documents were like those of the batch.

    ``λ = (1 - ρ) λ + ρ (η + (total_samples / batch) Σ n φ)`` with ``ρ = (offset + n_updates)^-decay``.
    """
    rate = (training.offset + state.n_updates) ** -training.decay
    counts = expectation.counts * (rate * total_samples / expectation.n_documents)
    counts += rate * training.eta
    counts += (1 - rate) * state.counts
    alpha = state.alpha
    if expectation.logs is not None:
        alpha = (1 - rate) * alpha + rate * prior_from_logs(alpha, expectation.logs, training.prior)
    return replace(state, counts=counts, alpha=alpha, n_updates=state.n_updates + 1)


def online_step(
    X: sp.csr_array,
    state: State,
    training: Training,
    total_samples: float,
    sample_weight: NDArray[np.float64] | None = None,
) -> tuple[State, float]:
    """Update the model with one batch, see `online_update`; also returns the ELBO of its documents before that."""
    expectation = Expectation.of(X, state, training, sample_weight)
    return online_update(state, expectation, training, total_samples), expectation.bound


def online_passes(
    X: sp.csr_array,
    state: State,
    training: Training,
    rng: np.random.RandomState,
    sample_weight: NDArray[np.float64] | None = None,
) -> Iterator[State]:
    """Online variational Bayes: yield the state after each pass over the documents, in a new random order."""
    total = float(X.shape[0] if sample_weight is None else sample_weight.sum())
    while True:
        order = rng.permutation(X.shape[0])
        bound = 0.0
        for start in range(0, X.shape[0], training.batch_size):
            rows = np.sort(order[start : start + training.batch_size])
            weights = None if sample_weight is None else sample_weight[rows]
            state, of_batch = online_step(X[rows], state, training, total, weights)
            bound += of_batch
        state = replace(state, bound=bound + topic_bound(state.counts, training.eta, training.smoothing))
        yield state
