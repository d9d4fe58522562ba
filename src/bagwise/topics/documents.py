"""What a fitted topic model says about documents: posteriors, proportions, bounds, perplexity."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise._utils.backends import backend
from bagwise.errors import BagwiseError
from bagwise.topics.inference import (
    FLOOR,
    CountReader,
    Posterior,
    completion_perplexity,
    split_tokens,
    topic_bound,
    topic_weights,
)
from bagwise.topics.tables import TopicTables


class TopicModel(TopicTables, CountReader, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of `LatentDirichlet`: everything that needs fitted topics only."""

    doc_topic_prior_: NDArray[np.float64]
    topic_word_prior_: float
    n_samples_seen_: int
    total_samples: float | None
    smoothing: str
    max_doc_update_iter: int
    mean_change_tol: float
    n_jobs: int | None
    device: str | None

    def posterior(self, X: Any) -> Posterior:
        """Compute the variational posterior of documents: Dirichlet parameters, ELBO, expected emissions.

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
        """`posterior` of validated counts."""
        return self._infer(counts, self.word_weights())

    def _infer(self, counts: sp.csr_array, weights: NDArray[np.float64]) -> Posterior:
        posterior: Posterior = backend("topics", self.device).infer(
            counts,
            weights,
            self.doc_topic_prior_.copy(),  # arrays unpickled from mapped memory are read-only
            max_iter=int(self.max_doc_update_iter),
            tol=float(self.mean_change_tol),
            n_threads=effective_n_jobs(self.n_jobs),
        )
        return posterior

    def word_weights(self) -> NDArray[np.float64]:
        """`topics_` as words x topics, with positive values."""
        return np.maximum(np.ascontiguousarray(self.topics_.T), FLOOR)

    def transform(self, X: Any, *, normalize: bool = True) -> NDArray[np.float64]:
        """Compute the expected topic proportions of documents.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        normalize : bool, default=True
            False gives the parameters of the Dirichlet posterior, whose normalised rows are the proportions.

        Returns
        -------
        proportions : ndarray of shape (n_documents, n_components)
            Rows sum to 1 if `normalize`.
        """
        posterior = self.posterior(X)
        return posterior.proportions if normalize else posterior.gamma

    def bound(self, X: Any) -> NDArray[np.float64]:
        """Compute the ELBO of each document, a lower bound of its log-likelihood in nats.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        bounds : ndarray of shape (n_documents,)
        """
        return self.posterior(X).bounds

    def score(self, X: Any, y: Any = None) -> float:
        """Sum of `bound` over documents, for model selection. Higher is better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : ignored

        Returns
        -------
        score : float
        """
        return float(self.bound(X).sum())

    def perplexity(self, X: Any, sub_sampling: bool = False) -> float:
        """Perplexity of documents by the ELBO with the term of the topics: the quantity of scikit-learn.

        ``exp(-ELBO / number of tokens)``. Lower is better. See `held_out_perplexity` for one that is comparable
        between models of different numbers of topics.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        sub_sampling : bool, default=False
            Whether X is a sample of `total_samples` documents (None: of those that were seen).

        Returns
        -------
        perplexity : float
        """
        check_is_fitted(self)
        counts, topics = self._counts(X, reset=False), np.ascontiguousarray(self.components_.T)
        n_tokens, n_threads = float(counts.sum()), effective_n_jobs(self.n_jobs)
        if n_tokens == 0:
            raise BagwiseError("The documents have no tokens, so there is no perplexity. Give documents with words.")
        bounds = self._infer(counts, topic_weights(topics, self.smoothing, n_threads)).bounds
        factor = (self.total_samples or self.n_samples_seen_) / counts.shape[0] if sub_sampling else 1.0
        bound = factor * bounds.sum() + topic_bound(topics, self.topic_word_prior_, self.smoothing)
        return float(np.exp(-bound / (factor * n_tokens)))

    def held_out_perplexity(self, X: Any, held_out: Any = None, random_state: Any = 0) -> float:
        """Perplexity of held-out tokens given the other tokens of their documents (document completion).

        ``exp(-Σ n_dv log Σ_i proportion_di topics_iv / Σ n_dv)`` over the held-out tokens, with proportions inferred
        from the other tokens. Lower is better; a uniform guess has the number of words.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
            Proportions are inferred from it. Without `held_out`, integer counts: a random half of the tokens of each
            document is predicted from the other half.
        held_out : array-like or sparse matrix of shape (n_documents, n_words), default=None
            Tokens to predict.
        random_state : int, RandomState or None, default=0

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
                    f"X has {seen.shape[0]} documents, held_out {hidden.shape[0]}: give two parts of the same ones."
                )
        if hidden.nnz == 0:
            raise BagwiseError("No tokens are held out, so there is nothing to predict. Documents need two tokens.")
        return completion_perplexity(hidden, self.infer_counts(seen).proportions, self.word_weights())
