"""`PLSA`: probabilistic latent semantic analysis."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from bagwise._utils.threads import run_over_ranges
from bagwise.topics._kernels import add_expected_counts, update_shares
from bagwise.topics.inference import Corpus, CountReader
from bagwise.topics.tables import TopicTables

__all__ = ["PLSA"]

_DOCUMENTS_AT_ONCE = 64
_WORDS_AT_ONCE = 256


class _Expectation:
    """One E-step, and what both M-steps take from it."""

    def __init__(
        self,
        X: sp.csr_array,
        shares: NDArray[np.float64],
        topics: NDArray[np.float64],
        temperature: float,
        n_threads: int,
    ) -> None:
        self._powers = shares**temperature if temperature != 1 else shares
        self._weights = topics**temperature if temperature != 1 else topics
        self._ratios = np.empty(X.nnz)
        self._n_threads = n_threads
        self.shares = np.empty_like(shares)
        logs = np.empty(X.shape[0])

        def work(first: int, last: int) -> None:
            update_shares(
                X.indptr, X.indices, X.data, self._weights, self._powers,
                self.shares, self._ratios, logs, first, last,
            )  # fmt: skip

        run_over_ranges(work, X.shape[0], n_threads, _DOCUMENTS_AT_ONCE)
        self.objective = float(logs.sum()) / temperature

    def topics(self, corpus: Corpus) -> NDArray[np.float64]:
        """New topics, words x topics; one that emitted nothing stays as it was."""
        sums = np.zeros_like(self._weights)

        def work(first: int, last: int) -> None:
            add_expected_counts(
                corpus.starts, corpus.documents, corpus.places, self._ratios, self._powers, sums, first, last
            )
            sums[first:last] *= self._weights[first:last]

        run_over_ranges(work, len(sums), self._n_threads, _WORDS_AT_ONCE)
        totals = sums.sum(axis=0)
        kept = self._weights / self._weights.sum(axis=0)
        return np.where(totals > 0, sums / np.where(totals > 0, totals, 1.0), kept)


class PLSA(TopicTables, CountReader, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Find topics by maximum likelihood, each document with free shares (probabilistic latent semantic analysis).

    ``p(w | d) = Σ_i p(i | d) p(w | i)``; both factors are learned by EM on the log-likelihood
    ``Σ n_dw log p(w | d)``. New documents are folded in: topics stay, their shares are iterated.

    Parameters
    ----------
    n_topics : int, default=10
    max_iter : int, default=100
        Most EM iterations, in `fit` and in `transform`.
    tol : float, default=1e-5
        Stops when an iteration raises the log-likelihood by less than this part of it.
    temperature : float, default=1.0
        At most 1. Responsibilities are ``∝ (p(i | d) p(w | i)) ** temperature``; below 1 they are softer, which guards
        against overfitting.
    n_jobs : int, default=None
        Threads. Results do not depend on it.
    random_state : int, RandomState or None, default=None
        For the topics to start from.

    Attributes
    ----------
    topics_ : ndarray of shape (n_topics, n_features_in_)
        Probability of each word in each topic; rows sum to 1.
    objectives_ : ndarray of shape (n_iter_,)
        Log-likelihood of the training documents, in nats, before each iteration; never falls. With a temperature t
        below 1, ``1/t Σ n_dw log Σ_i (p(i | d) p(w | i)) ** t``.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    LatentDirichlet : With priors for shares and topics, which generalises better.
    sklearn.decomposition.NMF : With ``beta_loss="kullback-leibler"`` the same likelihood, other normalisation.

    Notes
    -----
    An iteration takes O(nnz K) time; the array documents x words x topics is never made. Empty documents have even
    shares. Words that no topic emits, such as those that never occurred in training, are ignored.

    References
    ----------
    T. Hofmann, "Unsupervised learning by probabilistic latent semantic analysis", Machine Learning 42, 2001.

    Examples
    --------
    >>> from bagwise.topics import PLSA
    >>> X = [[4, 3, 0, 0], [5, 4, 0, 0], [0, 0, 4, 5], [0, 0, 5, 4]]
    >>> plsa = PLSA(2, random_state=0).fit(X)
    >>> plsa.transform(X).round(2)
    array([[1., 0.],
           [1., 0.],
           [0., 1.],
           [0., 1.]])
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_topics": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "temperature": [Interval(Real, 0, 1, closed="right")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_topics: int = 10,
        *,
        max_iter: int = 100,
        tol: float = 1e-5,
        temperature: float = 1.0,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_topics = n_topics
        self.max_iter = max_iter
        self.tol = tol
        self.temperature = temperature
        self.n_jobs = n_jobs
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> PLSA:
        """Find the topics.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
            Counts of words, or other non-negative weights.
        y : ignored

        Returns
        -------
        self : PLSA
        """
        counts = self._counts(X, reset=True)
        corpus = Corpus.of(counts)
        start = check_random_state(self.random_state).random_sample((self.n_topics, counts.shape[1])) + 0.5
        topics = np.ascontiguousarray((start / start.sum(axis=1, keepdims=True)).T)
        shares = np.full((counts.shape[0], self.n_topics), 1 / self.n_topics)
        objectives: list[float] = []
        for _ in range(self.max_iter):
            step = self._expect(counts, shares, topics)
            objectives.append(step.objective)
            if self._settled(objectives):
                break
            shares, topics = step.shares, step.topics(corpus)
        self.topics_ = np.ascontiguousarray(topics.T)
        self.objectives_ = np.array(objectives)
        self.n_iter_ = len(objectives)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Fold documents in: the shares of topics that make them likeliest.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        shares : ndarray of shape (n_documents, n_topics)
            Rows sum to 1.
        """
        check_is_fitted(self)
        counts = self._counts(X, reset=False)
        topics = np.ascontiguousarray(self.topics_.T)
        shares = np.full((counts.shape[0], topics.shape[1]), 1 / topics.shape[1])
        # a fixed number of iterations: when a document stops must not depend on those beside it
        for _ in range(self.max_iter):
            shares = self._expect(counts, shares, topics).shares
        return shares

    def _expect(self, counts: sp.csr_array, shares: NDArray[np.float64], topics: NDArray[np.float64]) -> _Expectation:
        return _Expectation(counts, shares, topics, float(self.temperature), effective_n_jobs(self.n_jobs))

    def _settled(self, objectives: list[float]) -> bool:
        return len(objectives) > 1 and objectives[-1] - objectives[-2] <= self.tol * abs(objectives[-1])

    def score(self, X: Any, y: Any = None) -> float:
        """Log-likelihood of documents with the shares that `transform` gives them, in nats.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : ignored

        Returns
        -------
        score : float
        """
        shares = self.transform(X)
        counts = self._counts(X, reset=False)
        step = _Expectation(counts, shares, np.ascontiguousarray(self.topics_.T), 1.0, effective_n_jobs(self.n_jobs))
        return step.objective

    @property
    def _n_features_out(self) -> int:
        return len(self.topics_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "topics_")
