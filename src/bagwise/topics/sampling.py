"""Gibbs sampling: of topics by tomotopy, of topics to start from, and of tokens under topics that stay as they are."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise._utils.matrices import is_whole
from bagwise._utils.memory import check_memory
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError
from bagwise.topics._kernels import sample_documents, sample_entries
from bagwise.topics.inference import check_whole
from bagwise.topics.training import SMALLEST, State, random_counts

__all__ = ["FEWEST_SWEEPS", "can_sample", "sample_topic_fractions", "sample_topics", "sampled_counts"]

# A sampler that starts from random topics needs some sweeps to leave them.
FEWEST_SWEEPS = 100
# Sampling takes time for each token, variational inference for each non-zero.
_MOST_TOKENS = 10  # per non-zero
_SWEEPS_BETWEEN_PRIORS = 10
_SWEEPS_BETWEEN_SAMPLES = 10
# Sampling that finds topics to start from: its priors, its sweeps over a part of the documents with at most so many
# non-zeros, and then over all of them.
_START_PRIOR = 0.1
_START_NNZ = 2_000_000
_ENTRY_BYTES = 24  # of a non-zero that is copied, and put into another order
_PART_SWEEPS = 40
_FULL_SWEEPS = 10
_LEAST_START = 0.01  # of each word, also where η is 0: a word that a topic starts without would not come back
_DOCUMENT_CHUNK = 16


def can_sample(X: sp.csr_array) -> bool:
    """Whether tomotopy is installed, and X has integer counts that are few enough to draw a topic for each token."""
    return (
        X.nnz > 0
        and is_whole(X)
        and X.data.sum() <= _MOST_TOKENS * X.nnz
        and importlib.util.find_spec("tomotopy") is not None
    )


def sample_topics(
    X: sp.csr_array,
    alpha: NDArray[np.float64],
    eta: float,
    *,
    prior: str = "fixed",
    n_sweeps: int = 300,
    seed: int = 0,
    n_threads: int = 1,
    report: Callable[[int], None] = lambda done: None,
) -> State:
    """Collapsed Gibbs sampling by tomotopy; λ are counts of each topic plus η, averaged over the last third of sweeps.

    A sweep draws ``p(z = i) ∝ (n_di + α_i) (n_iv + η) / (n_i + V η)`` for each token, with counts that leave the token
    out. A prior that is learned stays as it is for the first third of the sweeps. The average is over every tenth
    sweep. With one thread the same seed gives the same topics, in whatever order the documents come. With more, the
    threads of tomotopy work on copies that are merged after each sweep, and results differ. `report` is called with the
    number of sweeps so far.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its extension modules cannot be loaded where a warning is an error
        tomotopy = require("tomotopy", "topics", 'solver="gibbs"')
    if prior == "symmetric":
        raise BagwiseError(
            'solver="gibbs" does not support prior="symmetric". Use prior="asymmetric" or "fixed", or another solver.'
        )
    check_whole(X, 'solver="gibbs"')
    n_words, n_components = X.shape[1], len(alpha)
    if X.nnz == 0:
        raise BagwiseError('All documents are empty: solver="gibbs" has no token to sample. Give counts above 0.')
    model = tomotopy.LDAModel(k=n_components, alpha=alpha.tolist(), eta=eta, seed=seed, min_cf=0, rm_top=0)
    model.optim_interval = _SWEEPS_BETWEEN_PRIORS if prior == "asymmetric" else 0
    model.burn_in = n_sweeps // 3
    names = np.arange(n_words).astype(str).astype(object)
    X = X[order_by_words(X, np.random.RandomState(seed))]
    for begin, end in zip(X.indptr[:-1], X.indptr[1:], strict=True):
        if begin < end:
            tokens = np.repeat(X.indices[begin:end], X.data[begin:end].astype(np.int64))
            model.add_doc(names[tokens].tolist())
    # Backwards from the last sweep, so that it is a sample.
    sampled = np.arange(n_sweeps, n_sweeps - n_sweeps // 3 - 1, -_SWEEPS_BETWEEN_SAMPLES)[::-1]
    steps = np.unique(np.append(sampled, np.arange(0, sampled[0], _SWEEPS_BETWEEN_SAMPLES)[1:]))
    counts = np.zeros((n_words, n_components))
    done = 0
    for step in steps.tolist():
        model.train(step - done, workers=n_threads)
        done = step
        report(done)
        if done >= sampled[0]:
            order = np.array([int(name) for name in model.used_vocabs])
            for topic in range(n_components):
                counts[order, topic] += np.rint(model.get_topic_word_dist(topic, normalize=False) - eta)
    learned = np.maximum(model.alpha, SMALLEST) if prior == "asymmetric" else alpha
    return State(counts / len(sampled) + eta, np.asarray(learned, dtype=np.float64))


def order_by_words(X: sp.csr_array, rng: np.random.RandomState) -> NDArray[np.intp]:
    """An order of documents that does not depend on the one they come in; short ones first, equal ones together."""
    return np.argsort(X @ rng.random_sample(X.shape[1]), kind="stable")


def shuffle_by_words(X: sp.csr_array, rng: np.random.RandomState) -> NDArray[np.intp]:
    """The same, with documents of all lengths anywhere: by fractions of sums that differ by much more than 1."""
    return np.argsort((X @ (2.0**20 * rng.random_sample(X.shape[1]))) % 1.0, kind="stable")


def draw_topics(
    words: NDArray[np.integer], counts: NDArray[np.float64], rng: np.random.RandomState
) -> NDArray[np.int64]:
    """A topic for each word, with probabilities proportional to its row of `counts`, which are above 0."""
    n_words, n_components = counts.shape
    sums = np.cumsum(counts, axis=1)
    sums /= sums[:, -1:]
    sums += np.arange(n_words)[:, np.newaxis]  # ascending as a whole: one search for all
    drawn = np.searchsorted(sums.ravel(), words + rng.random_sample(len(words)), side="right")
    return np.minimum(drawn - words.astype(np.int64) * n_components, n_components - 1)


def sampled_counts(
    X: sp.csr_array,
    n_components: int,
    eta: float,
    rng: np.random.RandomState,
    sample_weight: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Topics to start from, words x topics: counts after some sweeps of collapsed Gibbs sampling, and about η more.

    All tokens of a word in a document have one topic, so counts need not be integers, and a sweep is O(nnz K). The
    priors are broad, α = 0.1 and pseudocounts of 0.1, as topics find their words sooner with them. Of a large corpus
    the first sweeps take a random part of the documents. The topics of that part alone would keep out words that it
    lacks, so the last sweeps take all documents, where the others begin with topics of their words. The result depends
    neither on the order of documents nor on whether copies are weights.
    """
    weights = None
    if sample_weight is not None and is_whole(sample_weight):
        copies = sample_weight.astype(np.int64)
        needed = int(_ENTRY_BYTES * (np.diff(X.indptr) @ copies))
        check_memory(needed, None, "Topics to start from are drawn for each copy of a document", "give smaller weights")
        X = X[np.repeat(np.arange(X.shape[0]), copies)]
    elif sample_weight is not None:
        weights = sample_weight
    order = order_by_words(X, rng) if X.nnz <= _START_NNZ else shuffle_by_words(X, rng)
    X = X[order]
    data = X.data if weights is None else X.data * np.repeat(weights[order], np.diff(X.indptr))
    alpha = np.full(n_components, _START_PRIOR)
    n_part = min(int(np.searchsorted(X.indptr[1:], _START_NNZ)) + 1, X.shape[0])
    topics = rng.randint(n_components, size=X.indptr[n_part])
    counts = np.zeros((X.shape[1], n_components))
    np.add.at(counts, (X.indices[: len(topics)], topics), data[: len(topics)])
    for n_documents, n_sweeps in ((n_part, _PART_SWEEPS), (X.shape[0], _FULL_SWEEPS)):
        if n_documents > n_part:
            others = X.indices[len(topics) :]
            of_others = draw_topics(others, np.maximum(counts, 0.0) + _START_PRIOR, rng)
            np.add.at(counts, (others, of_others), data[len(topics) :])
            topics = np.concatenate([topics, of_others])
        totals = counts.sum(axis=0)
        for _ in range(n_sweeps):
            draws = rng.random_sample(len(topics))
            starts = X.indptr[: n_documents + 1]
            sample_entries(starts, X.indices, data, alpha, _START_PRIOR, topics, counts, totals, draws)
    np.maximum(counts, 0.0, out=counts)  # differences of fractional counts are rounded
    # noise, as topics that got nothing would stay equal to each other
    return counts + max(eta, _LEAST_START) * random_counts(len(counts), n_components, rng)


def sample_topic_fractions(
    X: sp.csr_array,
    weights: NDArray[np.float64],
    alpha: NDArray[np.float64],
    *,
    n_sweeps: int,
    seed: int,
    n_threads: int = 1,
) -> NDArray[np.float64]:
    """Fractions of the tokens of each entry of X in each topic, over the sweeps of a Gibbs sampler, entries x topics.

    X comes from `to_counts` and has integer counts; `weights` are words x topics, positive. The first fifth of the
    sweeps is discarded. The result for a document depends neither on other documents nor on `n_threads`.
    """
    check_whole(X, "Gibbs sampling")
    fractions = np.empty((X.nnz, len(alpha)))
    n_discarded = n_sweeps // 5
    entries = (X.indptr, X.indices, X.data.astype(np.int64))
    settings = (weights, alpha, np.uint64(seed), n_discarded, n_sweeps - n_discarded)

    def work(first: int, last: int) -> None:
        sample_documents(*entries, *settings, fractions, first, last)

    run_over_ranges(work, X.shape[0], n_threads, _DOCUMENT_CHUNK)
    return fractions
