"""The E-step of latent Dirichlet allocation on a CUDA device: the functions of `Topics`.

The same updates as `infer_documents` of `bagwise.topics._kernels`, but for topics that are negligible in a document,
which are updated with the others here, so that γ may differ by as much as `tol` allows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, device_module, to_device, to_host
from bagwise.gpu.compiling import Source
from bagwise.topics.inference import Posterior

__all__ = ["Corpus", "infer"]

_THREADS = 128
_SOURCE = Source("topics", options=())


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
    """Do what `bagwise.topics.inference.infer` does; all arrays come back to the host."""
    posterior = Corpus(X).infer(weights, alpha, gamma, max_iter, tol, n_threads)
    return Posterior(posterior.gamma, posterior.bounds, to_host(posterior.expected), to_host(posterior.ratios))


class DeviceCorpus:
    """Documents of a fit on the device, from `to_counts`; `expected` and `ratios` of their posteriors stay there."""

    def __init__(self, X: sp.csr_array) -> None:
        self._xp = xp = device_module("cuda")
        self._counts_here, self.shape, self.nnz = X, X.shape, X.nnz
        check_device_memory(44 * X.nnz, f"{X.shape[0]} documents with {X.nnz} counts", "fit by solver='online'")
        self._starts = to_device(X.indptr, xp, np.int64)
        self._words, self._counts = to_device(X.indices, xp, np.int32), to_device(X.data, xp, np.float64)
        self._by_word: tuple[Any, ...] = ()

    def infer(
        self,
        weights: NDArray[np.float64],
        alpha: NDArray[np.float64],
        gamma: NDArray[np.float64] | None,
        max_iter: int,
        tol: float,
        n_threads: int,
    ) -> Posterior:
        """Compute the posteriors of the documents."""
        xp, n_topics = self._xp, len(alpha)
        need = 8 * (3 * self.shape[0] * n_topics + weights.size + self.nnz)
        check_device_memory(need, f"The posteriors of {self.shape[0]} documents", "infer fewer documents at a time")
        gammas = xp.empty((self.shape[0], n_topics)) if gamma is None else xp.array(gamma, dtype=np.float64)
        expected, ratios, bounds = xp.empty(gammas.shape), xp.empty(self.nnz), xp.empty(len(gammas))
        topics = to_device(weights, xp), to_device(alpha, xp), np.float64(alpha.sum()), np.int64(n_topics)
        limits = np.bool_(gamma is not None), np.int32(max_iter), np.float64(tol)
        documents = self._starts, self._words, self._counts
        if len(gammas):
            arguments = (*documents, *topics, *limits, gammas, xp.empty_like(gammas), expected, ratios, bounds)
            _SOURCE.function("infer")((len(gammas),), (_THREADS,), arguments)
        return Posterior(to_host(gammas), to_host(bounds), expected, ratios)

    def weighted_ratios(self, posterior: Posterior, sample_weight: NDArray[np.float64] | None) -> Any:
        """Ratios of a posterior, those of each document times its weight."""
        if sample_weight is None:
            return posterior.ratios
        weights = np.repeat(sample_weight, np.diff(self._counts_here.indptr))
        return posterior.ratios * to_device(weights, self._xp)

    def expected_counts(
        self, ratios: Any, expected: Any, weights: NDArray[np.float64], n_threads: int = 1
    ) -> NDArray[np.float64]:
        """Sum ``ratios[d, v] expected[d] weights[v]`` over documents, words x topics."""
        xp = self._xp
        if not self._by_word:
            order = xp.argsort(self._words, kind="stable")
            ends = xp.searchsorted(self._words[order], xp.arange(self.shape[1] + 1))
            documents = (xp.searchsorted(self._starts, order, side="right") - 1).astype(np.int32)
            self._by_word = ends.astype(np.int64), documents, order.astype(np.int64)
        sums, there = xp.empty(weights.shape), to_device(weights, xp)
        arguments = (*self._by_word, ratios, expected, there, np.int64(weights.shape[1]), sums)
        _SOURCE.function("expected_counts")((len(weights),), (32, 8), arguments)
        return np.asarray(to_host(sums))


Corpus = DeviceCorpus  # as the protocol `Topics` of `bagwise._utils.backends` has it
