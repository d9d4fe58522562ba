"""What a topic model can tell of documents once it has topics, wherever these come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise.errors import BagwiseError
from bagwise.topics.inference import FLOOR, CountReader, Posterior, completion_perplexity, infer, split_tokens
from bagwise.topics.training import State

__all__ = ["FittedTopics"]


class FittedTopics(CountReader, ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Shares of topics, bounds and perplexity of documents, for an estimator that has topics and a prior."""

    topics_: NDArray[np.float64]
    topic_counts_: NDArray[np.float64]
    alpha_: NDArray[np.float64]
    bounds_: NDArray[np.float64]
    n_iter_: int
    n_documents_seen_: int
    _n_updates: int
    document_iter: int
    document_tol: float
    n_jobs: int | None

    def _store(self, state: State, bounds: list[float], n_documents: int) -> None:
        self.topic_counts_ = np.ascontiguousarray(state.counts.T)
        totals = self.topic_counts_.sum(axis=1, keepdims=True)
        # a topic that emits nothing, which eta=0 allows, is even
        self.topics_ = np.where(totals > 0, self.topic_counts_, 1.0)
        self.topics_ /= self.topics_.sum(axis=1, keepdims=True)
        self.alpha_ = state.alpha
        self.bounds_ = np.array(bounds)
        self.n_iter_ = max(len(bounds), 1)
        self.n_documents_seen_ = n_documents
        self._n_updates = state.n_updates

    def posterior(self, X: Any) -> Posterior:
        """All that is inferred of documents: Dirichlet parameters, bounds, and expected emissions.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        posterior : Posterior
        """
        check_is_fitted(self)
        return self.infer_counts(self._counts(X, reset=False))

    def infer_counts(self, counts: sp.csr_array) -> Posterior:
        """`posterior` of counts that were checked."""
        return infer(
            counts,
            self.word_weights(),
            self.alpha_.copy(),  # what was unpickled from mapped memory is read-only
            max_iter=int(self.document_iter),
            tol=float(self.document_tol),
            n_threads=effective_n_jobs(self.n_jobs),
        )

    def word_weights(self) -> NDArray[np.float64]:
        """`topics_` as words x topics, positive: what documents are inferred with."""
        return np.maximum(np.ascontiguousarray(self.topics_.T), FLOOR)

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Expected shares of the topics in each document.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        shares : ndarray of shape (n_documents, n_topics)
            Rows sum to 1.
        """
        return self.posterior(X).shares

    def bound(self, X: Any) -> NDArray[np.float64]:
        """Lower bound of the logarithm of each document's probability, in nats.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        bounds : ndarray of shape (n_documents,)
        """
        return self.posterior(X).bounds

    def score(self, X: Any, y: Any = None) -> float:
        """Sum of `bound` over documents: higher is better, for choosing parameters by cross-validation.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : ignored

        Returns
        -------
        score : float
        """
        return float(self.bound(X).sum())

    def perplexity(self, X: Any, held_out: Any = None, random_state: Any = 0) -> float:
        """How surprising words are given the other words of their documents (document completion).

        ``exp(-Σ n_dv log Σ_i share_di topics_iv / Σ n_dv)`` over the words held out, with the shares of a document
        inferred from the rest of it. Lower is better; the number of words is that of an even guess.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
            What shares are inferred from. If nothing is held out, whole numbers; half of the tokens of each document,
            chosen at random, are then predicted from the others.
        held_out : array-like or sparse matrix of shape (n_documents, n_words), default=None
            What is predicted.
        random_state : int, RandomState or None, default=0
            For choosing tokens.

        Returns
        -------
        perplexity : float
        """
        check_is_fitted(self)
        seen = self._counts(X, reset=False)
        if held_out is None:
            seen, hidden = split_tokens(seen, check_random_state(random_state))
        else:
            hidden = self._counts(held_out, reset=False)
            if hidden.shape[0] != seen.shape[0]:
                raise BagwiseError(
                    f"X has {seen.shape[0]} documents, held_out {hidden.shape[0]}: give two parts of the same."
                )
        if hidden.nnz == 0:
            raise BagwiseError("No words are held out, so there is nothing to predict. Documents need two tokens.")
        return completion_perplexity(hidden, self.infer_counts(seen).shares, self.word_weights())

    @property
    def _n_features_out(self) -> int:
        return len(self.alpha_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "topic_counts_")
