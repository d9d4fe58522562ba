"""`PLSA`: probabilistic latent semantic analysis."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import N_JOBS, Interval, _fit_context
from bagwise._utils.threads import run_over_ranges
from bagwise.topics._kernels import update_proportions
from bagwise.topics.inference import Corpus, CountReader, check_topics_fit
from bagwise.topics.tables import TopicTables

__all__ = ["PLSA"]

_DOCUMENT_CHUNK = 64


class _Expectation:
    """One E-step, and the M-steps of proportions and topics (words x topics) that follow it."""

    def __init__(
        self,
        X: sp.csr_array,
        proportions: NDArray[np.float64],
        topics: NDArray[np.float64],
        temperature: float,
        n_threads: int,
    ) -> None:
        self._powers = proportions**temperature if temperature != 1 else proportions
        self._weights = topics**temperature if temperature != 1 else topics
        self._ratios = np.empty(X.nnz)
        self._n_threads = n_threads
        self.proportions = np.empty_like(proportions)
        logs = np.empty(X.shape[0])

        def work(first: int, last: int) -> None:
            update_proportions(
                X.indptr, X.indices, X.data, self._weights, self._powers,
                self.proportions, self._ratios, logs, first, last,
            )  # fmt: skip

        run_over_ranges(work, X.shape[0], n_threads, _DOCUMENT_CHUNK)
        self.objective = float(logs.sum()) / temperature

    def topics(self, corpus: Corpus) -> NDArray[np.float64]:
        """Updated topics; a topic that emitted nothing stays as it was."""
        sums = corpus.expected_counts(self._ratios, self._powers, self._weights, self._n_threads)
        totals = sums.sum(axis=0)
        kept = self._weights / self._weights.sum(axis=0)
        return np.where(totals > 0, sums / np.where(totals > 0, totals, 1.0), kept)


class PLSA(TopicTables, CountReader, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Probabilistic latent semantic analysis: topics by maximum likelihood.

    ``p(w | d) = Σ_i p(i | d) p(w | i)``. EM maximises the log-likelihood ``Σ n_dw log p(w | d)`` over both factors.
    New documents are folded in: the topics stay fixed, and EM finds their topic proportions.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics.
    max_iter : int, default=100
        Maximum number of EM iterations in `fit`, and their number in `transform`.
    tol : float, default=1e-5
        `fit` stops when an iteration increases the log-likelihood by at most this fraction of it.
    n_init : int, default=1
        Number of random initialisations. The result with the highest log-likelihood is kept.
    temperature : float, default=1.0
        At most 1. Responsibilities are ``∝ (p(i | d) p(w | i)) ** temperature``; smaller values reduce overfitting
        (tempered EM).
    n_jobs : int, default=None
    random_state : int, RandomState or None, default=None

    Attributes
    ----------
    components_, topics_ : ndarray of shape (n_components, n_features_in_)
        Probability of each word in each topic; rows sum to 1.
    objectives_ : ndarray of shape (n_iter_,)
        Log-likelihood of the training documents, in nats, before each iteration; it never decreases. With a
        temperature t below 1, ``1/t Σ n_dw log Σ_i (p(i | d) p(w | i)) ** t``.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    LatentDirichlet : With priors of proportions and topics, which generalises better.
    sklearn.decomposition.NMF : With ``beta_loss="kullback-leibler"`` the same likelihood, other normalisation.

    Notes
    -----
    An iteration takes O(nnz K) time; the array documents x words x topics is never formed. Empty documents have equal
    proportions. Words that no topic emits, such as those absent from the training data, are ignored.

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
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "temperature": [Interval(Real, 0, 1, closed="right")],
        "n_jobs": list(N_JOBS),
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_components: int = 10,
        *,
        max_iter: int = 100,
        tol: float = 1e-5,
        n_init: int = 1,
        temperature: float = 1.0,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.temperature = temperature
        self.n_jobs = n_jobs
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the topics.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
            Word counts, or other non-negative weights.
        y : ignored

        Returns
        -------
        self : PLSA
        """
        counts = self._counts(X, reset=True)
        check_topics_fit(counts, self.n_components)
        corpus = Corpus(counts)
        rng = check_random_state(self.random_state)
        runs = [self._run(counts, corpus, rng) for _ in range(self.n_init)]
        topics, objectives = max(runs, key=lambda run: run[1][-1])
        self.components_ = np.ascontiguousarray(topics.T)
        self.objectives_ = np.array(objectives)
        self.n_iter_ = len(objectives)
        return self

    def _run(
        self, counts: sp.csr_array, corpus: Corpus, rng: np.random.RandomState
    ) -> tuple[NDArray[np.float64], list[float]]:
        """EM from random topics: the topics found, and the objective before each iteration."""
        start = rng.random_sample((self.n_components, counts.shape[1])) + 0.5
        topics = np.ascontiguousarray((start / start.sum(axis=1, keepdims=True)).T)
        proportions = np.full((counts.shape[0], self.n_components), 1 / self.n_components)
        objectives: list[float] = []
        for _ in range(self.max_iter):
            step = self._expect(counts, proportions, topics, self.temperature)
            objectives.append(step.objective)
            if len(objectives) > 1 and objectives[-1] - objectives[-2] <= self.tol * abs(objectives[-1]):
                break
            proportions, topics = step.proportions, step.topics(corpus)
        return topics, objectives

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Fold documents in: find the topic proportions that maximise their likelihood.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        proportions : ndarray of shape (n_documents, n_components)
            Rows sum to 1.
        """
        check_is_fitted(self)
        return self._fold_in(self._counts(X, reset=False))

    def _fold_in(self, counts: sp.csr_array) -> NDArray[np.float64]:
        topics = np.ascontiguousarray(self.components_.T)
        proportions = np.full((counts.shape[0], topics.shape[1]), 1 / topics.shape[1])
        # a fixed number of iterations: when a document stops must not depend on the others
        for _ in range(self.max_iter):
            proportions = self._expect(counts, proportions, topics, self.temperature).proportions
        return proportions

    def _expect(
        self, counts: sp.csr_array, proportions: NDArray[np.float64], topics: NDArray[np.float64], temperature: float
    ) -> _Expectation:
        return _Expectation(counts, proportions, topics, float(temperature), effective_n_jobs(self.n_jobs))

    def score(self, X: Any, y: Any = None) -> float:
        """Log-likelihood of documents with the proportions from `transform`, in nats.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : ignored

        Returns
        -------
        score : float
        """
        check_is_fitted(self)
        counts = self._counts(X, reset=False)
        topics = np.ascontiguousarray(self.components_.T)
        return self._expect(counts, self._fold_in(counts), topics, temperature=1.0).objective
