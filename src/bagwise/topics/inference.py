"""Variational inference for latent Dirichlet allocation, and the document-term counts it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import digamma, gammaln
from sklearn.utils import Tags

from bagwise._utils.matrices import canonical, check_non_negative, is_whole
from bagwise._utils.memory import check_memory
from bagwise._utils.threads import run_over_ranges
from bagwise._utils.validation import validate_data
from bagwise.errors import BagwiseError
from bagwise.topics._kernels import add_expected_counts, expect_topics, expected_logs, infer_documents

SMOOTHINGS = ("bayes", "map")
# Probability of a word that no topic emits: its logarithm is finite, and counts divided by it do not overflow.
FLOOR = 1e-200
# The largest count of a word in a document: larger ones are not exact in float64.
LARGEST_COUNT = 2.0**53
_DOCUMENT_CHUNK = 64
_WORD_CHUNK = 256


def to_counts(X: Any, caller: str) -> sp.csr_array:
    """Convert X to a canonical CSR matrix of float64 without stored zeros. X is not modified."""
    check_non_negative(X, caller, "Give counts, or other weights such as TF-IDF.")
    counts = canonical(sp.csr_array(X, dtype=np.float64))
    return with_small_indices(counts)  # always the same types, so that kernels are compiled once


def with_small_indices(X: sp.csr_array) -> sp.csr_array:
    """Return X with writable arrays and, where possible, 32-bit indices.

    Linear models of scikit-learn reject 64-bit indices, which products and stacks of SciPy often have.
    """
    index = np.int32 if max(X.nnz, *X.shape) < 2**31 else np.int64
    indices = np.require(X.indices, dtype=index, requirements=["C", "W"])
    starts = np.require(X.indptr, dtype=index, requirements=["C", "W"])
    return sp.csr_array((np.require(X.data, requirements=["C", "W"]), indices, starts), shape=X.shape)


class CountReader:
    """Mixin of estimators that read a dense or sparse document-term matrix without negative values."""

    def _counts(self, X: Any, reset: bool) -> sp.csr_array:
        return self._counts_and_dtype(X, reset)[0]

    def _counts_and_dtype(self, X: Any, reset: bool) -> tuple[sp.csr_array, np.dtype[Any]]:
        """Counts in float64, and the type, float64 or float32, that X has."""
        X = validate_data(
            self, X, reset=reset, largest=LARGEST_COUNT, accept_sparse="csr", dtype=[np.float64, np.float32]
        )
        return to_counts(X, type(self).__name__), X.dtype

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        tags.input_tags.positive_only = True
        return tags


def check_topics_fit(counts: sp.csr_array, n_components: int) -> None:
    """Raise an error if topics and their proportions in documents take more than the free memory."""
    check_memory(
        8 * int(n_components) * 3 * sum(counts.shape),
        None,
        f"n_components={n_components}: topics of {counts.shape[1]} words, in {counts.shape[0]} documents",
        "choose fewer topics",
    )


def check_whole(X: sp.csr_array, caller: str) -> None:
    """Raise BagwiseError unless all counts are integers."""
    if not is_whole(X):
        first = X.data[X.data != np.rint(X.data)][0]
        raise BagwiseError(
            f"{caller} works on single tokens and needs integer counts, got a count of {first:g}. "
            "Give raw counts, neither weighted nor normalised."
        )


@dataclass(frozen=True)
class Posterior:
    """Variational posterior of the topic proportions of documents.

    Topic i is expected to emit word v ``ratios[v] * weights[v, i] * expected[d, i]`` times in document d.
    """

    gamma: NDArray[np.float64]  # documents x topics, of Dirichlet distributions: rows sum to sum of prior plus length
    bounds: NDArray[np.float64]  # ELBO of each document, in nats
    expected: NDArray[np.float64]  # ``exp(E[log proportion])`` up to a factor per document, documents x topics
    ratios: NDArray[np.float64]  # in the order of the entries of X

    @property
    def proportions(self) -> NDArray[np.float64]:
        """Expected topic proportions of each document; rows sum to 1."""
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
    """Compute the variational posterior of documents under fixed topics.

    With ``e_i = ψ(γ_i) - ψ(Σγ)``, the updates ``φ_vi ∝ β_vi exp(e_i)`` and ``γ = α + Σ_v n_v φ_v`` alternate. They
    increase the ELBO::

        L = lgamma(Σα) - lgamma(Σγ) + Σ_i [lgamma(γ_i) - lgamma(α_i) + (α_i - γ_i) e_i]
            + Σ_v n_v Σ_i φ_vi (e_i - log φ_vi + log β_vi)   ≤   log p(document)

    X comes from `to_counts`. `weights`, words x topics, are β, positive; ``exp(E[log β])`` for topics with a posterior
    of their own. `gamma` is the initial γ, documents x topics; None: equal proportions. A document takes at most
    `max_iter` updates, and stops when one changes γ by at most the fraction `tol` of its sum (L1 norm). The result does
    not depend on `n_threads`.

    The first updates take O(nnz K). When at least half of the topics are negligible in a document, only the others are
    updated; all topics are checked again before the document is done.
    """
    shape = (X.shape[0], len(alpha))
    warm = gamma is not None
    posterior = Posterior(
        np.array(gamma, dtype=np.float64) if gamma is not None else np.empty(shape),
        np.empty(shape[0]),
        np.empty(shape),
        np.empty(X.nnz),
    )

    def work(first: int, last: int) -> None:
        infer_documents(
            X.indptr, X.indices, X.data, weights, alpha, warm,
            posterior.gamma, posterior.expected, posterior.ratios, posterior.bounds, first, last, max_iter, tol,
        )  # fmt: skip

    run_over_ranges(work, shape[0], n_threads, _DOCUMENT_CHUNK)
    return posterior


class Corpus:
    """Documents of a fit, from `to_counts`, with an index from words to documents for sums over those of each word."""

    def __init__(self, X: sp.csr_array) -> None:
        self._counts = X
        numbered = sp.csr_array((np.arange(X.nnz, dtype=X.indices.dtype), X.indices, X.indptr), shape=X.shape)
        self._by_word = numbered.tocsc()  # its data: where an entry is in X.data

    def infer(
        self,
        weights: NDArray[np.float64],
        alpha: NDArray[np.float64],
        gamma: NDArray[np.float64] | None,
        max_iter: int,
        tol: float,
        n_threads: int,
    ) -> Posterior:
        """Do what the function `infer` does, for these documents."""
        return infer(self._counts, weights, alpha, gamma=gamma, max_iter=max_iter, tol=tol, n_threads=n_threads)

    def weighted_ratios(self, posterior: Posterior, sample_weight: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """Ratios of a posterior, those of each document times its weight."""
        if sample_weight is None:
            return posterior.ratios
        return posterior.ratios * np.repeat(sample_weight, np.diff(self._counts.indptr))

    def expected_counts(
        self,
        ratios: NDArray[np.float64],
        expected: NDArray[np.float64],
        weights: NDArray[np.float64],
        n_threads: int = 1,
    ) -> NDArray[np.float64]:
        """Expected number of times each topic emits each word, words x topics: ``Σ_d n_dv φ_dvi``. O(nnz K).

        `ratios` and `expected` are those of `Posterior`.
        """
        index = self._by_word
        sums = np.zeros_like(weights)

        def work(first: int, last: int) -> None:
            add_expected_counts(index.indptr, index.indices, index.data, ratios, expected, sums, first, last)
            sums[first:last] *= weights[first:last]

        run_over_ranges(work, len(sums), n_threads, _WORD_CHUNK)
        return sums


def topic_weights(counts: NDArray[np.float64], smoothing: str, n_threads: int = 1) -> NDArray[np.float64]:
    """β as inference uses it, from pseudocounts λ (words x topics).

    ``exp(E[log β])`` under Dir(λ) for "bayes"; λ divided by its column sums for "map".
    """
    totals = counts.sum(axis=0)
    if smoothing == "map":
        return np.maximum(counts / np.where(totals > 0, totals, 1.0), FLOOR)
    weights = np.empty_like(counts)
    run_over_ranges(
        lambda first, last: expect_topics(counts, totals, FLOOR, weights, first, last),
        len(counts),
        n_threads,
        _WORD_CHUNK,
    )
    return weights


def topic_bound(counts: NDArray[np.float64], eta: float, smoothing: str) -> float:
    """The ELBO term of the topics, which is added to those of the documents.

    ``E[log p(β) - log q(β)]`` for "bayes"; ``η Σ log β`` for "map", log p(β) under Dir(1 + η) up to a constant.
    """
    totals = counts.sum(axis=0)
    if smoothing == "map":
        return float(eta * np.log(topic_weights(counts, "map")).sum()) if eta > 0 else 0.0
    n_words = len(counts)
    logs = digamma(counts) - digamma(totals)
    of_words = ((eta - counts) * logs + gammaln(counts) - gammaln(eta)).sum()
    return float(of_words + (gammaln(n_words * eta) - gammaln(totals)).sum())


def mean_logs(
    gamma: NDArray[np.float64], document_weights: NDArray[np.float64] | None = None, n_threads: int = 1
) -> NDArray[np.float64]:
    """Weighted mean over documents of E[log proportion], the sufficient statistic of the document-topic prior."""
    logs = np.empty_like(gamma)
    run_over_ranges(lambda first, last: expected_logs(gamma, logs, first, last), len(gamma), n_threads)
    return logs.mean(axis=0) if document_weights is None else np.average(logs, axis=0, weights=document_weights)


def completion_perplexity(
    hidden: sp.csr_array, proportions: NDArray[np.float64], weights: NDArray[np.float64]
) -> float:
    """``exp(-Σ n_dv log Σ_i proportion_di weight_vi / Σ n_dv)`` over the held-out words. O(nnz K)."""
    total = 0.0
    for d in range(hidden.shape[0]):
        begin, end = hidden.indptr[d : d + 2]
        total += hidden.data[begin:end] @ np.log(weights[hidden.indices[begin:end]] @ proportions[d])
    return float(np.exp(-total / hidden.data.sum()))


def split_tokens(X: sp.csr_array, rng: np.random.RandomState) -> tuple[sp.csr_array, sp.csr_array]:
    """Split the tokens of each document into two random halves; the first half takes an odd token."""
    check_whole(X, "Holding out tokens")
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
