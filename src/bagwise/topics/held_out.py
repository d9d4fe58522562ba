"""Words that are held out of documents, and how well they are predicted."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.topics.counts import check_whole, to_counts

__all__ = ["completion_perplexity", "split_tokens"]


def completion_perplexity(hidden: sp.csr_array, shares: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """``exp(-Σ n_dv log Σ_i shares_di weights_vi / Σ n_dv)`` over the hidden words. Cost O(nnz K)."""
    total = 0.0
    for d in range(hidden.shape[0]):
        begin, end = hidden.indptr[d : d + 2]
        total += hidden.data[begin:end] @ np.log(weights[hidden.indices[begin:end]] @ shares[d])
    return float(np.exp(-total / hidden.data.sum()))


def split_tokens(X: sp.csr_array, rng: np.random.RandomState) -> tuple[sp.csr_array, sp.csr_array]:
    """Deal the tokens of each document into two halves at random; the first has the odd one."""
    check_whole(X, "Holding out words")
    tokens = np.repeat(X.indices, X.data.astype(np.int64))
    lengths = np.asarray(X.sum(axis=1)).ravel().astype(np.int64)
    documents = np.repeat(np.arange(X.shape[0]), lengths)
    order = np.lexsort((rng.random_sample(len(tokens)), documents))  # shuffled within each document
    starts = np.cumsum(lengths) - lengths
    rank = np.arange(len(tokens)) - starts[documents]
    hidden = rank >= (lengths[documents] + 1) // 2
    tokens = tokens[order]
    halves = []
    for half in (~hidden, hidden):
        counts = sp.coo_array((np.ones(half.sum()), (documents[half], tokens[half])), shape=X.shape)
        halves.append(to_counts(counts, "split_tokens"))
    return halves[0], halves[1]
