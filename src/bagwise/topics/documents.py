"""What a fitted topic model says about documents: posteriors, proportions, bounds, perplexity."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_random_state
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

    def transform(self, X: Any, *, normalize: bool = True) -> NDArray[Any]:
        """Compute the expected topic proportions of documents.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        normalize : bool, default=True
            False gives the parameters of the Dirichlet posterior, whose normalised rows are the proportions.

        Returns
        -------
        proportions : ndarray of shape (n_documents, n_components)
            Rows sum to 1 if `normalize`. In float32 if X is.
        """
        check_is_fitted(self)
        counts, dtype = self._counts_and_dtype(X, reset=False)
        posterior = self.infer_counts(counts)
        return (posterior.proportions if normalize else posterior.gamma).astype(dtype, copy=False)

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
        """ELBO of the documents and of the topics, for model selection: the quantity of scikit-learn. Higher is better.

        ``bound(X).sum()`` leaves out the term of the topics, which outweighs documents that are few.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : ignored

        Returns
        -------
        score : float
        """
        check_is_fitted(self)
        return self._bound_of_all(self._counts(X, reset=False), 1.0)

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
        counts = self._counts(X, reset=False)
        n_tokens = float(counts.sum())
        if n_tokens == 0:
            raise BagwiseError("The documents have no tokens, so there is no perplexity. Give documents with words.")
        factor = (self.total_samples or self.n_samples_seen_) / counts.shape[0] if sub_sampling else 1.0
        return float(np.exp(-self._bound_of_all(counts, factor) / (factor * n_tokens)))

    def _bound_of_all(self, counts: sp.csr_array, factor: float) -> float:
        """ELBO of documents, times a factor, and of topics, which are random here."""
        bounds = self._infer(counts, self._random_weights()).bounds
        topics = np.asarray(self.components_, dtype=np.float64).T
        return float(factor * bounds.sum() + topic_bound(topics, self.topic_word_prior_, self.smoothing))

    def _random_weights(self) -> NDArray[np.float64]:
        """β of topics with a posterior, as words x topics; see `topic_weights`."""
        topics = np.ascontiguousarray(self.components_.T, dtype=np.float64)
        return topic_weights(topics, self.smoothing, effective_n_jobs(self.n_jobs))

    @property
    def exp_dirichlet_component_(self) -> NDArray[Any]:
        """Exponential of the expected logarithm of the topics, as in scikit-learn."""
        check_is_fitted(self)
        return np.ascontiguousarray(self._random_weights().T, dtype=self.components_.dtype)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

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
