"""Passes over a corpus that learn topics: all documents at once, or batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.topics.counts import Corpus
from bagwise.topics.inference import Posterior, expected_counts, infer, mean_logs, topic_bound, topic_weights
from bagwise.topics.priors import learn_asymmetric, learn_symmetric

__all__ = ["PRIORS", "Learning", "State", "batch_passes", "is_settled", "learn_prior", "online_passes", "online_step"]

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
