"""Gibbs sampling of the topics of tokens in documents, under topics that stay as they are."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from bagwise._utils.threads import run_over_ranges
from bagwise.topics.inference import check_whole

__all__ = ["sample_topic_fractions"]

_DOCUMENT_CHUNK = 16
# splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = (np.uint64(shift) for shift in (30, 27, 31, 11))


@njit(cache=True, nogil=True)
def _mix(z):
    """The output function of splitmix64: scrambles 64 bits."""
    z = (z ^ (z >> _S30)) * _FIRST
    z = (z ^ (z >> _S27)) * _SECOND
    return z ^ (z >> _S31)


@njit(cache=True, nogil=True)
def _draw(sums, uniform):
    """The first k with ``sums[k] > uniform * sums[-1]``, where `sums` are cumulative."""
    limit = uniform * sums[-1]
    for k in range(sums.shape[0] - 1):
        if sums[k] > limit:
            return k
    return sums.shape[0] - 1


@njit(cache=True, nogil=True, error_model="numpy")
def sample_documents(starts, words, counts, weights, alpha, seed, n_discarded, n_kept, fractions, first, last):
    """Sample the topics of all tokens of the documents first..last of a CSR matrix of integer counts.

    In each sweep a token of word v moves to topic i with probability proportional to ``(n_i + alpha_i) weights[v, i]``,
    with n_i the other tokens of the document in topic i. ``fractions[p, i]`` becomes the fraction of (kept sweeps,
    tokens of entry p) with topic i. The random numbers of a document depend on its words, counts and `seed` alone.
    O(tokens K sweeps).
    """
    n_topics = alpha.shape[0]
    longest = 0
    for d in range(first, last):
        length = 0
        for p in range(starts[d], starts[d + 1]):
            length += counts[p]
        longest = max(longest, length)
    topics = np.empty(longest, dtype=np.int64)
    totals, sums = np.empty(n_topics), np.empty(n_topics)
    for d in range(first, last):
        begin, end = starts[d], starts[d + 1]
        state = seed
        for p in range(begin, end):
            state = _mix(state ^ _mix(np.uint64(words[p]) + _STEP))
            state = _mix(state ^ _mix(np.uint64(counts[p]) + _STEP))
        totals[:] = alpha
        fractions[begin:end] = 0.0
        for sweep in range(-1, n_discarded + n_kept):  # sweep -1 places the tokens one after another
            token = 0
            for p in range(begin, end):
                row = weights[words[p]]
                for _ in range(counts[p]):
                    if sweep >= 0:
                        totals[topics[token]] -= 1.0
                    total = 0.0
                    for k in range(n_topics):
                        total += totals[k] * row[k]
                        sums[k] = total
                    state += _STEP
                    chosen = _draw(sums, (_mix(state) >> _S11) * 2.0**-53)
                    topics[token] = chosen
                    totals[chosen] += 1.0
                    if sweep >= n_discarded:
                        fractions[p, chosen] += 1.0
                    token += 1
        for p in range(begin, end):
            fractions[p] /= n_kept * counts[p]


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
    given = (weights, alpha, np.uint64(seed), n_discarded, n_sweeps - n_discarded)

    def work(first: int, last: int) -> None:
        sample_documents(*entries, *given, fractions, first, last)

    run_over_ranges(work, X.shape[0], n_threads, _DOCUMENT_CHUNK)
    return fractions
