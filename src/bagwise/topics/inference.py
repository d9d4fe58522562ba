"""Counts of words in documents, as topic models read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import digamma, gammaln
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from bagwise._utils.matrices import check_non_negative, is_whole
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError, unknown_name
from bagwise.topics._kernels import add_expected_counts, expect_topics, expected_logs, infer_documents

__all__ = [
    "FLOOR",
    "SMOOTHINGS",
    "Corpus",
    "CountReader",
    "Posterior",
    "check_whole",
    "completion_perplexity",
    "expected_counts",
    "infer",
    "mean_logs",
    "split_tokens",
    "to_counts",
    "topic_bound",
    "topic_weights",
    "with_small_indices",
]


def to_counts(X: Any, who: str) -> sp.csr_array:
    """Documents x words as CSR in float64, words in order, without zeros and repeats; X stays as it came."""
    check_non_negative(
        X, who, "Negative values in data cannot be counts: give counts, or other weights such as TF-IDF."
    )
    counts = sp.csr_array(X, dtype=np.float64)
    if not counts.has_canonical_format or (counts.data == 0).any():
        counts = counts.copy()
        counts.sum_duplicates()
        counts.eliminate_zeros()
    # One kind of arrays, so that kernels are compiled once.
    return with_small_indices(counts)


def with_small_indices(X: sp.csr_array) -> sp.csr_array:
    """The same matrix with 32-bit indices where they suffice, and nothing read-only.

    Linear models of scikit-learn refuse 64-bit indices, which SciPy's products and stacks often give.
    """
    index = np.int32 if max(X.nnz, *X.shape) < 2**31 else np.int64
    indices = np.require(X.indices, dtype=index, requirements=["C", "W"])
    starts = np.require(X.indptr, dtype=index, requirements=["C", "W"])
    return sp.csr_array((np.require(X.data, requirements=["C", "W"]), indices, starts), shape=X.shape)


class CountReader:
    """An estimator of documents x words, sparse or dense, none below 0."""

    def _counts(self, X: Any, reset: bool) -> sp.csr_array:
        X = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        return to_counts(X, type(self).__name__)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


def check_whole(X: Any, who: str) -> None:
    """Raise where counts are not whole numbers."""
    if not is_whole(X):
        values = X.data if sp.issparse(X) else np.ravel(X)
        first = values[values != np.rint(values)][0]
        raise BagwiseError(
            f"{who} goes through single tokens, so it needs whole numbers; there is a count of {first:g}. "
            "Give counts as they are, neither weighted nor normalised."
        )


@dataclass(frozen=True)
class Corpus:
    """Counts listed both ways: the words of each document, and the documents of each word.

    Parameters
    ----------
    X : csr_array of shape (n_documents, n_words)
        As `to_counts` gives it.
    starts : ndarray of shape (n_words + 1,)
        The documents of word v are ``documents[starts[v]:starts[v + 1]]``, in order.
    documents : ndarray of shape (nnz,)
    places : ndarray of shape (nnz,)
        Where each of these entries is in ``X.data``.
    """

    X: sp.csr_array
    starts: NDArray[np.integer]
    documents: NDArray[np.integer]
    places: NDArray[np.integer]

    @classmethod
    def of(cls, X: sp.csr_array) -> Corpus:
        """List the documents of each word. Cost O(nnz)."""
        numbered = sp.csr_array((np.arange(X.nnz, dtype=X.indices.dtype), X.indices, X.indptr), shape=X.shape)
        by_word = numbered.tocsc()
        return cls(X, by_word.indptr, by_word.indices, by_word.data)


SMOOTHINGS = ("bayes", "map")
# What a word counts for that no topic emits: its logarithm is finite, and counts over it do not overflow.
FLOOR = 1e-200
_DOCUMENTS_AT_ONCE = 64
_WORDS_AT_ONCE = 256


@dataclass(frozen=True)
class Posterior:
    """What is known of the topics of each document.

    Parameters
    ----------
    gamma : ndarray of shape (n_documents, n_topics)
        Parameters of the Dirichlet distribution of the document's shares of topics. They sum to the sum of the prior
        plus the length of the document.
    bounds : ndarray of shape (n_documents,)
        Lower bound of the logarithm of the document's probability, in nats.
    expected : ndarray of shape (n_documents, n_topics)
        exp(E[log share]), up to a factor per document.
    ratios : ndarray of shape (nnz,)
        In the order of the entries of X: the expected number of times word v was emitted by topic i is
        ``ratios[v] * weights[v, i] * expected[d, i]``.
    """

    gamma: NDArray[np.float64]
    bounds: NDArray[np.float64]
    expected: NDArray[np.float64]
    ratios: NDArray[np.float64]

    @property
    def shares(self) -> NDArray[np.float64]:
        """Expected share of each topic in each document; rows sum to 1."""
        return self.gamma / self.gamma.sum(axis=1, keepdims=True)


def infer(
    X: sp.csr_array,
    weights: NDArray[np.float64],
    alpha: NDArray[np.float64],
    *,
    gamma: NDArray[np.float64] | None = None,
    max_iter: int = 100,
    tol: float = 1e-3,
    n_threads: int = 1,
) -> Posterior:
    """Find the variational posterior of documents under fixed topics.

    With ``e_i = ψ(γ_i) - ψ(Σγ)`` it alternates ``φ_vi ∝ β_vi exp(e_i)`` and ``γ = α + Σ_v n_v φ_v``, which raises::

        L = lgamma(Σα) - lgamma(Σγ) + Σ_i [lgamma(γ_i) - lgamma(α_i) + (α_i - γ_i) e_i]
            + Σ_v n_v Σ_i φ_vi (e_i - log φ_vi + log β_vi)   ≤   log p(document)

    Parameters
    ----------
    X : csr_array of shape (n_documents, n_words)
        As `to_counts` gives it.
    weights : ndarray of shape (n_words, n_topics)
        β, positive; exp(E[log β]) for topics that are not known exactly.
    alpha : ndarray of shape (n_topics,)
        Prior of the shares of topics.
    gamma : ndarray of shape (n_documents, n_topics), default=None
        Where to start; no bound is below that of its start. None: even shares.
    max_iter : int, default=100
        Most iterations per document.
    tol : float, default=1e-3
        Stops when the entries of γ move by less than this part of their sum, all together.
    n_threads : int, default=1
        The result does not depend on it.

    Returns
    -------
    posterior : Posterior

    Notes
    -----
    Costs O(nnz K) per iteration at first. As soon as half of the topics are negligible in a document, only the others
    are iterated; all are looked at again before a document is done.
    """
    shape = (X.shape[0], len(alpha))
    warm = gamma is not None
    found = Posterior(
        np.array(gamma, dtype=np.float64) if gamma is not None else np.empty(shape),
        np.empty(shape[0]),
        np.empty(shape),
        np.empty(X.nnz),
    )

    def work(first: int, last: int) -> None:
        infer_documents(
            X.indptr, X.indices, X.data, weights, alpha, warm,
            found.gamma, found.expected, found.ratios, found.bounds, first, last, max_iter, tol,
        )  # fmt: skip

    run_over_ranges(work, shape[0], n_threads, _DOCUMENTS_AT_ONCE)
    return found


def expected_counts(
    corpus: Corpus, posterior: Posterior, weights: NDArray[np.float64], n_threads: int = 1
) -> NDArray[np.float64]:
    """How often each topic emitted each word, words x topics: ``Σ_d n_dv φ_dvi``. Cost O(nnz K)."""
    sums = np.zeros_like(weights)

    def work(first: int, last: int) -> None:
        add_expected_counts(
            corpus.starts, corpus.documents, corpus.places, posterior.ratios, posterior.expected, sums, first, last
        )
        sums[first:last] *= weights[first:last]

    run_over_ranges(work, len(sums), n_threads, _WORDS_AT_ONCE)
    return sums


def topic_weights(counts: NDArray[np.float64], smoothing: str, n_threads: int = 1) -> NDArray[np.float64]:
    """What inference takes for β, from smoothed counts λ, words x topics: exp(E[log β]), or λ over its sums."""
    totals = counts.sum(axis=0)
    if smoothing == "map":
        return np.maximum(counts / np.where(totals > 0, totals, 1.0), FLOOR)
    if smoothing != "bayes":
        raise unknown_name("smoothing", smoothing, SMOOTHINGS)
    weights = np.empty_like(counts)
    run_over_ranges(
        lambda first, last: expect_topics(counts, totals, FLOOR, weights, first, last),
        len(counts),
        n_threads,
        _WORDS_AT_ONCE,
    )
    return weights


def topic_bound(counts: NDArray[np.float64], eta: float, smoothing: str) -> float:
    """The part of a corpus's bound that belongs to the topics, added to those of the documents.

    For "bayes" E[log p(β) - log q(β)] of Dirichlet distributions, for "map" ``η Σ log β``, which is log p(β) under
    Dir(1 + η) without its constant.
    """
    totals = counts.sum(axis=0)
    if smoothing == "map":
        return float(eta * np.log(topic_weights(counts, "map")).sum()) if eta > 0 else 0.0
    n_words = len(counts)
    logs = digamma(counts) - digamma(totals)
    of_words = ((eta - counts) * logs + gammaln(counts) - gammaln(eta)).sum()
    return float(of_words + (gammaln(n_words * eta) - gammaln(totals)).sum())


def mean_logs(gamma: NDArray[np.float64], n_threads: int = 1) -> NDArray[np.float64]:
    """Mean over documents of E[log share of topic i]: all that the prior of the shares is learned from."""
    logs = np.empty_like(gamma)
    run_over_ranges(lambda first, last: expected_logs(gamma, logs, first, last), len(gamma), n_threads)
    return logs.mean(axis=0)


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
