"""Learning the Dirichlet prior of the shares of topics by Newton's method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, polygamma

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError
from bagwise.topics.inference import (
    Corpus,
    Posterior,
    check_whole,
    expected_counts,
    infer,
    mean_logs,
    topic_bound,
    topic_weights,
)

__all__ = [
    "PRIORS",
    "SMALLEST",
    "Learning",
    "State",
    "batch_passes",
    "is_settled",
    "learn_asymmetric",
    "learn_prior",
    "learn_symmetric",
    "online_passes",
    "online_step",
    "prior_objective",
    "sample_topics",
]


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
    >>> from bagwise.topics.training import learn_symmetric
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


PRIORS = ("fixed", "symmetric", "asymmetric")
# Topics that are still random make all documents look alike, which would blow up the prior.
_PASSES_BEFORE_PRIOR = 5


@dataclass(frozen=True)
class State:
    """A topic model between two passes.

    Parameters
    ----------
    counts : ndarray of shape (n_words, n_topics)
        λ: how often each topic emitted each word, with η added.
    alpha : ndarray of shape (n_topics,)
    bound : float
        Of the corpus, as of the last pass. Online: documents and topics as they were met during the pass.
    n_updates : int
        Batches that were seen, which says how much the next one weighs.
    """

    counts: NDArray[np.float64]
    alpha: NDArray[np.float64]
    bound: float = -np.inf
    n_updates: int = 0


@dataclass(frozen=True)
class Learning:
    """How topics are learned; see `LatentDirichlet` for what each of these is."""

    eta: float
    smoothing: str = "bayes"
    prior: str = "fixed"
    document_iter: int = 100
    document_tol: float = 1e-3
    restarts: int | None = None
    tol: float = 1e-5
    batch_size: int = 256
    decay: float = 0.7
    offset: float = 10.0
    n_threads: int = 1

    def infer(
        self, X: sp.csr_array, state: State, gamma: NDArray[np.float64] | None = None
    ) -> tuple[Posterior, NDArray[np.float64]]:
        """Posterior of documents, and the weights of the topics it was made with."""
        weights = topic_weights(state.counts, self.smoothing, self.n_threads)
        how = {"max_iter": self.document_iter, "tol": self.document_tol, "n_threads": self.n_threads}
        return infer(X, weights, state.alpha, gamma=gamma, **how), weights  # type: ignore[arg-type]

    def topic_bound(self, state: State) -> float:
        """The part of the bound that belongs to the topics."""
        return topic_bound(state.counts, self.eta, self.smoothing)


def learn_prior(
    alpha: NDArray[np.float64], gamma: NDArray[np.float64], prior: str, n_threads: int = 1
) -> NDArray[np.float64]:
    """The prior of the shares that suits the posterior of documents best."""
    if prior == "fixed":
        return alpha
    logs = mean_logs(gamma, n_threads)
    if prior == "symmetric":
        return np.full_like(alpha, learn_symmetric(float(alpha.mean()), logs))
    return learn_asymmetric(alpha, logs)


def batch_passes(X: sp.csr_array, state: State, learning: Learning) -> Iterator[State]:
    """Variational EM: yield the state after each pass; its bound never falls.

    A pass learns topics and prior from the posterior of all documents, and then that posterior. At first documents
    start afresh in each pass. One that went on from where it was would keep its topics: those that left it do not come
    back, and all topics stay near what they were when little was known. Going on only where it is better for a document
    is no way out: what is best for each of them with the topics of today leads to worse topics. As soon as starting
    afresh no longer raises the bound of the corpus by `Learning.tol` of it, or after `Learning.restarts` passes,
    documents go on, which never lowers it.
    """
    corpus = Corpus.of(X)
    posterior, weights = learning.infer(X, state)
    afresh = True
    done = 0
    while True:
        done += 1
        counts = expected_counts(corpus, posterior, weights, learning.n_threads)
        counts += learning.eta
        alpha = state.alpha
        gamma = posterior.gamma
        del posterior, weights  # before there are others
        if done > _PASSES_BEFORE_PRIOR:
            alpha = learn_prior(alpha, gamma, learning.prior, learning.n_threads)
        before = state.bound
        state = replace(state, counts=counts, alpha=alpha, n_updates=state.n_updates + 1)
        of_topics = learning.topic_bound(state)
        afresh = afresh and (learning.restarts is None or done <= learning.restarts)
        if afresh:
            posterior, weights = learning.infer(X, state)
            bound = float(posterior.bounds.sum()) + of_topics
            afresh = not is_settled(before, bound, learning.tol)
        if not afresh:
            posterior, weights = learning.infer(X, state, gamma)
            bound = float(posterior.bounds.sum()) + of_topics
        state = replace(state, bound=bound)
        yield state


def is_settled(before: float, after: float, tol: float) -> bool:
    """Whether a pass raised the bound by no more than `tol` of it."""
    return after - before <= tol * abs(after)


def online_step(X: sp.csr_array, state: State, learning: Learning, n_documents: int) -> tuple[State, float]:
    """Blend what one batch says, as if all `n_documents` were like it, into the model.

    ``λ = (1 - ρ) λ + ρ (η + (n_documents / batch) Σ n φ)`` with ``ρ = (offset + updates)^-decay``. Also returns the sum
    of the bounds of the documents, before the blending.
    """
    rate = (learning.offset + state.n_updates) ** -learning.decay
    posterior, weights = learning.infer(X, state)
    counts = expected_counts(Corpus.of(X), posterior, weights, learning.n_threads)
    counts *= rate * n_documents / X.shape[0]
    counts += rate * learning.eta
    counts += (1 - rate) * state.counts
    alpha = state.alpha
    if state.n_updates >= _PASSES_BEFORE_PRIOR:
        learned = learn_prior(alpha, posterior.gamma, learning.prior, learning.n_threads)
        alpha = (1 - rate) * alpha + rate * learned
    state = replace(state, counts=counts, alpha=alpha, n_updates=state.n_updates + 1)
    return state, float(posterior.bounds.sum())


def online_passes(X: sp.csr_array, state: State, learning: Learning, rng: np.random.RandomState) -> Iterator[State]:
    """Online variational Bayes: yield the state after each pass over the documents, which are shuffled anew."""
    n_documents = X.shape[0]
    while True:
        order = rng.permutation(n_documents)
        total = 0.0
        for start in range(0, n_documents, learning.batch_size):
            batch = X[np.sort(order[start : start + learning.batch_size])]
            state, bound = online_step(batch, state, learning, n_documents)
            total += bound
        state = replace(state, bound=total + learning.topic_bound(state))
        yield state


_SWEEPS_BETWEEN_PRIORS = 10


def sample_topics(
    X: sp.csr_array,
    alpha: NDArray[np.float64],
    eta: float,
    *,
    prior: str = "fixed",
    n_sweeps: int = 500,
    seed: int = 0,
    n_threads: int = 1,
) -> State:
    """Sample a topic for every token, again and again, and count what each topic emitted at the end.

    A sweep draws ``p(z = i) ∝ (n_di + α_i) (n_iv + η) / (n_i + V η)`` for each token, counts without the token itself.
    With one thread the same seed gives the same topics; with more, tomotopy's threads work on copies that are put
    together after each sweep, and results differ.
    """
    tomotopy = require("tomotopy", "topics", 'solver="gibbs"')
    if prior == "symmetric":
        raise BagwiseError(
            'solver="gibbs" learns a prior for each topic or none, not prior="symmetric". '
            'Use prior="asymmetric" or "fixed", or another solver.'
        )
    if eta <= 0:
        raise BagwiseError(f'solver="gibbs" needs eta above 0, got {eta:g}. 0.01 is usual.')
    check_whole(X, 'solver="gibbs"')
    n_words, n_topics = X.shape[1], len(alpha)
    if X.nnz == 0:
        raise BagwiseError('All documents are empty: solver="gibbs" has no token to sample. Give counts above 0.')
    model = tomotopy.LDAModel(k=n_topics, alpha=alpha.tolist(), eta=eta, seed=seed, min_cf=0, rm_top=0)
    model.optim_interval = _SWEEPS_BETWEEN_PRIORS if prior == "asymmetric" else 0
    names = np.arange(n_words).astype(str).astype(object)
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        if begin < end:
            tokens = np.repeat(X.indices[begin:end], X.data[begin:end].astype(np.int64))
            model.add_doc(names[tokens].tolist())
    model.train(n_sweeps, workers=n_threads)
    order = np.array([int(name) for name in model.used_vocabs])
    counts = np.full((n_words, n_topics), eta)
    for topic in range(n_topics):
        counts[order, topic] = model.get_topic_word_dist(topic, normalize=False)
    learned = np.array(model.alpha, dtype=np.float64) if prior == "asymmetric" else alpha
    return State(np.maximum(counts, eta), learned)
