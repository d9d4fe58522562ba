"""The ELBO of documents, split into terms of topics and terms of words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from bagwise._utils.memory import check_memory
from bagwise._utils.threads import run_over_ranges
from bagwise.topics._kernels import count_emissions, list_emissions, split_bound_of_words
from bagwise.topics.latent_dirichlet import LatentDirichlet
from bagwise.topics.sampling import sample_topic_fractions

__all__ = ["elbo_terms", "sampled_elbo_terms"]

# The sparse block "full" leaves out emissions of fewer tokens than this.
_SMALLEST = 1e-12
# Numbers in a block of topic fractions of entries.
_BLOCK_NUMBERS = 2**22


def elbo_terms(
    lda: LatentDirichlet, counts: sp.csr_array, word_block: str = "topic"
) -> tuple[NDArray[np.float64], NDArray[np.float64] | sp.csr_array]:
    """Split the ELBO of documents, counts from `to_counts`, into terms of topics and terms of words.

    - Topics, documents x (1 + 3 K): ``lgamma(Σα) - lgamma(Σγ)``; ``lgamma(γ_i) - lgamma(α_i)``; ``(α_i - γ_i) e_i``;
      ``Σ_v n_v φ_vi (e_i - log φ_vi)``.
    - Words: ``n_v φ_vi log β_vi`` for each topic and word ("full", sparse, topic by topic), summed over words ("topic",
      dense), or summed over topics ("word", sparse).

    All terms of a document sum to its ELBO.
    """
    posterior = lda.infer_counts(counts)
    gamma, alpha = posterior.gamma, lda.doc_topic_prior_
    n_documents, n_components = gamma.shape
    n_threads = effective_n_jobs(lda.n_jobs)
    weights = lda.word_weights()
    logs = np.log(weights)
    expected_logs = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
    per_topic, in_words = np.empty((n_documents, n_components)), np.empty((n_documents, n_components))
    per_word = np.empty(counts.nnz)
    largest = gamma.argmax(axis=1)[:, None]  # where `expected` is not 0
    factors = np.take_along_axis(expected_logs, largest, 1) - np.log(np.take_along_axis(posterior.expected, largest, 1))
    shifts = factors.ravel()
    entries = (counts.indptr, counts.indices)
    arrays = (weights, logs, posterior.expected, posterior.ratios)

    def split(first: int, last: int) -> None:
        split_bound_of_words(*entries, counts.data, *arrays, shifts, per_topic, in_words, per_word, first, last)

    run_over_ranges(split, n_documents, n_threads)
    topics = _topic_terms(alpha, gamma, expected_logs, per_topic)
    if word_block == "topic":
        return topics, in_words
    if word_block == "word":
        return topics, sp.csr_array((per_word, counts.indices.copy(), counts.indptr.copy()), shape=counts.shape)
    sizes = np.empty(n_documents, dtype=np.int64)

    def count(first: int, last: int) -> None:
        count_emissions(*entries, weights, posterior.expected, posterior.ratios, _SMALLEST, sizes, first, last)

    run_over_ranges(count, n_documents, n_threads)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    check_memory(
        int(starts[-1]) * 16,
        None,
        f"The scores of {n_documents} documents have {starts[-1]} emissions of words by topics",
        'use word_block="topic" or "word", or fewer documents at once',
    )
    columns, values = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1])
    n_words = counts.shape[1]

    def fill(first: int, last: int) -> None:
        list_emissions(*entries, *arrays, _SMALLEST, n_words, starts, columns, values, first, last)

    run_over_ranges(fill, n_documents, n_threads)
    return topics, sp.csr_array((values, columns, starts), shape=(n_documents, n_components * n_words))


def _topic_terms(alpha: Any, gamma: Any, expected_logs: Any, per_topic: Any) -> NDArray[np.float64]:
    """The terms of topics of `elbo_terms`; `per_topic` are the last of them."""
    prior = gammaln(alpha.sum()) - gammaln(gamma.sum(axis=1))
    return np.hstack([prior[:, None], gammaln(gamma) - gammaln(alpha), (alpha - gamma) * expected_logs, per_topic])


def sampled_elbo_terms(
    lda: LatentDirichlet,
    counts: sp.csr_array,
    values: NDArray[np.float64],
    word_block: str = "topic",
    *,
    n_sweeps: int = 100,
    seed: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64] | sp.csr_array]:
    """`elbo_terms` with φ from a Gibbs sampler: the fraction of samples in which tokens of a word have a topic.

    The sampler reads `counts`, integers from `to_counts`; `values` stand for them in the terms (the same, or damped).
    With ``γ = α + Σ_v n_v φ_v`` and ``0 log 0 = 0``, all terms of a document sum to the ELBO at (γ, φ), which is
    usually below that of variational inference. O(tokens K n_sweeps).
    """
    weights, alpha = lda.word_weights(), lda.doc_topic_prior_.copy()
    logs = np.log(weights)
    n_threads = effective_n_jobs(lda.n_jobs)
    parts = []
    for rows in _document_blocks(counts, len(alpha)):
        part = counts[rows]
        fractions = sample_topic_fractions(part, weights, alpha, n_sweeps=n_sweeps, seed=seed, n_threads=n_threads)
        emitted = fractions * values[counts.indptr[rows.start] : counts.indptr[rows.stop], None]
        members = sp.csr_array((np.ones(part.nnz), np.arange(part.nnz), part.indptr), shape=(part.shape[0], part.nnz))
        gamma = alpha + members @ emitted
        expected_logs = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
        entropies = -np.log(fractions, out=np.zeros_like(fractions), where=fractions > 0) * emitted
        topics = _topic_terms(alpha, gamma, expected_logs, (gamma - alpha) * expected_logs + members @ entropies)
        in_words = emitted * logs[part.indices]
        if word_block == "topic":
            parts.append((topics, members @ in_words))
        elif word_block == "word":
            parts.append((topics, sp.csr_array((in_words.sum(axis=1), part.indices, part.indptr), shape=part.shape)))
        else:
            entries, of_topics = np.nonzero(emitted >= _SMALLEST)
            columns = of_topics * counts.shape[1] + part.indices[entries]
            starts = np.searchsorted(entries, part.indptr)
            shape = (part.shape[0], len(alpha) * counts.shape[1])
            words = sp.csr_array((in_words[entries, of_topics], columns, starts), shape=shape)
            words.sort_indices()
            parts.append((topics, words))
    blocks = [words for _, words in parts]
    words = sp.vstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks)
    return np.concatenate([topics for topics, _ in parts]), words


def _document_blocks(counts: sp.csr_array, n_topics: int) -> Iterator[slice]:
    """Blocks of documents with about `_BLOCK_NUMBERS` numbers for all entries and topics."""
    size = max(_BLOCK_NUMBERS // n_topics, 1)
    start = 0
    while start < counts.shape[0]:
        stop = int(np.searchsorted(counts.indptr, counts.indptr[start] + size, side="right")) - 1
        stop = min(max(stop, start + 1), counts.shape[0])
        yield slice(start, stop)
        start = stop
