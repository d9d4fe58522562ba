"""`LatentDirichlet`: topics of documents as a scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval

from bagwise._utils.progress import ProgressBar
from bagwise.errors import BagwiseError, unknown_name
from bagwise.topics.exchange import ExchangedTopics
from bagwise.topics.inference import SMOOTHINGS
from bagwise.topics.tables import TopicTables
from bagwise.topics.training import (
    PRIORS,
    SMALLEST,
    Learning,
    State,
    batch_passes,
    is_settled,
    online_passes,
    online_step,
    sample_topics,
)

__all__ = ["LatentDirichlet"]

# solver: passes (for "gibbs" sweeps) where max_iter is None
SOLVERS = {"vb": 100, "online": 10, "gibbs": 500}


class LatentDirichlet(TopicTables, ExchangedTopics, BaseEstimator):
    """Find topics, distributions over words of which each document is a mixture (latent Dirichlet allocation).

    1. A document draws its shares of topics from a Dirichlet distribution with parameters α.
    2. For each of its tokens it draws a topic by these shares, and the topic draws a word.
    3. `fit` finds topics under which the documents are likely, `transform` the shares of documents, `bound` a lower
       bound of the logarithm of each document's probability.

    Parameters
    ----------
    n_topics : int, default=10
        Number of topics; there may be more than words or documents.
    solver : {"vb", "online", "gibbs"}, default="vb"
        "vb": variational EM over all documents. "online": the same batch by batch, for many documents. "gibbs":
        collapsed Gibbs sampling by tomotopy (``pip install "bagwise[topics]"``), for whole numbers; with one thread.
        The topics of documents are inferred in the same way whichever is used.
    alpha : float or array-like of shape (n_topics,), default=None
        Prior of the shares, to start from if it is learned; at least 1e-6. None: 1 / n_topics, for "gibbs"
        50 / n_topics.
    prior : {"fixed", "symmetric", "asymmetric"}, default="fixed"
        Whether α is learned, as one number or as one per topic.
    eta : float, default=0.01
        Added to how often a topic emitted a word. Above 0, but for ``smoothing="map"``.
    smoothing : {"bayes", "map"}, default="bayes"
        While fitting, topics are known as well as the data tell ("bayes", Dir(η) prior), or taken to be the likeliest
        ("map", Dir(1 + η) prior; with ``eta=0`` plain maximum likelihood).
    max_iter : int, default=None
        Most passes over the documents, or sweeps of "gibbs". None: 100 for "vb", 10 for "online", 500 for "gibbs".
    tol : float, default=1e-5
        "vb" stops when a pass raises the bound by less than this part of it.
    document_iter : int, default=100
        Most iterations on one document in a pass.
    document_tol : float, default=1e-3
        A document is done when an iteration moves less than this part of its tokens between topics.
    restarts : int, default=None
        Passes of "vb" in which documents start afresh. Later they go on from where they were: such passes are faster,
        but topics that left a document do not come back to it. None: as long as this raises the bound by `tol`.
    batch_size : int, default=256
        Documents in a batch of "online" and `partial_fit`.
    decay, offset : float, default=0.7 and 10
        Batch number t has the weight ``(offset + t) ** -decay``. Use about 1024 as `offset` for large corpora.
    total_documents : int, default=None
        Documents there will be, for `partial_fit`. None: those seen so far.
    warm_start : bool, default=False
        Whether `fit` goes on from the topics of an earlier fit.
    n_jobs : int, default=None
        Threads. Results do not depend on it, but for "gibbs".
    random_state : int, RandomState or None, default=None
        For the topics to start from, and the order of documents in "online".
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    topics_ : ndarray of shape (n_topics, n_features_in_)
        Probability of each word in each topic; rows sum to 1.
    alpha_ : ndarray of shape (n_topics,)
    topic_counts_ : ndarray of shape (n_topics, n_features_in_)
        λ: how often each topic emitted each word, `eta` included. `topics_` are these as parts of their sums.
    bounds_ : ndarray of shape (n_iter_,)
        Bound of the corpus after each pass; for "vb" it never falls. Empty for "gibbs" and `partial_fit`.
    n_iter_ : int
        Passes that were made. After Ctrl-C, those that were finished; the model is as they left it.
    n_documents_seen_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    FreeEnergyScore : What each part of the bound of a document is, as features.
    LatentDirichletNB : A classifier that has topics for each class.
    PLSA : The same mixtures without priors.
    sklearn.decomposition.LatentDirichletAllocation : Gives shares of topics, but no bound per document.

    Notes
    -----
    A pass takes O(nnz K) time at most; less when documents have few of the topics, as small α makes them. Memory: about
    three arrays of words x topics, three of documents x topics, and two numbers per non-zero.

    After fitting, `transform`, `bound` and `perplexity` take `topics_` for known: a bound is at most log p(document |
    topics_, alpha_). Words that no topic emits (there are none with `eta` above 0) have the probability 1e-200.
    Fractional counts are accepted, but for "gibbs". An empty document has the shares of the prior, and the bound 0.

    References
    ----------
    D. Blei, A. Ng, M. Jordan, "Latent Dirichlet allocation", JMLR 3, 2003. M. Hoffman, D. Blei, F. Bach, "Online
    learning for latent Dirichlet allocation", NIPS 2010. T. Griffiths, M. Steyvers, "Finding scientific topics", PNAS
    101, 2004. H. Wallach, D. Mimno, A. McCallum, "Rethinking LDA: why priors matter", NIPS 2009.

    Examples
    --------
    >>> from bagwise import LatentDirichlet
    >>> X = [[4, 3, 0, 0], [5, 4, 0, 0], [0, 0, 4, 5], [0, 1, 5, 4]]
    >>> lda = LatentDirichlet(2, random_state=0).fit(X)
    >>> lda.transform(X).round(1)
    array([[0.9, 0.1],
           [0.9, 0.1],
           [0.1, 0.9],
           [0.1, 0.9]])
    >>> lda.topics_.round(1)
    array([[0.5, 0.5, 0. , 0. ],
           [0. , 0. , 0.5, 0.5]])
    >>> lda.bound(X).shape
    (4,)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_topics": [Interval(Integral, 1, None, closed="left")],
        "solver": [str],
        "alpha": [Interval(Real, SMALLEST, None, closed="left"), "array-like", None],
        "prior": [str],
        "eta": [Interval(Real, 0, None, closed="left")],
        "smoothing": [str],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "document_iter": [Interval(Integral, 1, None, closed="left")],
        "document_tol": [Interval(Real, 0, None, closed="left")],
        "restarts": [Interval(Integral, 0, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "decay": [Interval(Real, 0.5, 1, closed="right")],
        "offset": [Interval(Real, 1, None, closed="left")],
        "total_documents": [Interval(Integral, 1, None, closed="left"), None],
        "warm_start": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_topics: int = 10,
        *,
        solver: str = "vb",
        alpha: float | ArrayLike | None = None,
        prior: str = "fixed",
        eta: float = 0.01,
        smoothing: str = "bayes",
        max_iter: int | None = None,
        tol: float = 1e-5,
        document_iter: int = 100,
        document_tol: float = 1e-3,
        restarts: int | None = None,
        batch_size: int = 256,
        decay: float = 0.7,
        offset: float = 10.0,
        total_documents: int | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_topics = n_topics
        self.solver = solver
        self.alpha = alpha
        self.prior = prior
        self.eta = eta
        self.smoothing = smoothing
        self.max_iter = max_iter
        self.tol = tol
        self.document_iter = document_iter
        self.document_tol = document_tol
        self.restarts = restarts
        self.batch_size = batch_size
        self.decay = decay
        self.offset = offset
        self.total_documents = total_documents
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None) -> LatentDirichlet:
        """Find the topics.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
            Counts of words, or other non-negative weights.
        y : ignored

        Returns
        -------
        self : LatentDirichlet
        """
        learning = self._learning()
        if not self.warm_start:
            for name in ("topic_counts_", "topics_", "alpha_", "bounds_"):  # should fitting fail, nothing old is left
                if hasattr(self, name):
                    delattr(self, name)
        earlier = self._state() if self.warm_start and hasattr(self, "topic_counts_") else None
        counts = self._counts(X, reset=earlier is None)
        rng = check_random_state(self.random_state)
        state = self._start(counts.shape[1], rng) if earlier is None else earlier
        n_passes = SOLVERS[self.solver] if self.max_iter is None else int(self.max_iter)
        if self.solver == "gibbs":
            self._sample(counts, n_passes, rng)
            return self
        passes: Iterator[State]
        if self.solver == "vb":
            passes = batch_passes(counts, state, learning)
        else:
            passes = online_passes(counts, state, learning, rng)
        bounds: list[float] = []
        try:
            with ProgressBar("finding topics", n_passes, enabled=bool(self.verbose)) as bar:
                for state in passes:
                    bounds.append(state.bound)
                    bar.update(len(bounds))
                    if len(bounds) == n_passes or (self.solver == "vb" and self._settled(bounds)):
                        break
        finally:  # after Ctrl-C as well, if there is something to keep
            if bounds:
                self._store(state, bounds, n_documents=counts.shape[0])
        return self

    def _settled(self, bounds: list[float]) -> bool:
        return len(bounds) > 1 and is_settled(bounds[-2], bounds[-1], float(self.tol))

    def _sample(self, counts: sp.csr_array, n_sweeps: int, rng: np.random.RandomState) -> None:
        state = sample_topics(
            counts,
            self._alpha(),
            float(self.eta),
            prior=self.prior,
            n_sweeps=n_sweeps,
            seed=int(rng.randint(2**31)),
            n_threads=effective_n_jobs(self.n_jobs),
        )
        self._store(state, [], n_documents=counts.shape[0])
        self.n_iter_ = n_sweeps

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> LatentDirichlet:
        """Go on learning from more documents, batch by batch, by the rule of ``solver="online"``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : ignored

        Returns
        -------
        self : LatentDirichlet
        """
        learning = self._learning()
        first = not hasattr(self, "topic_counts_")
        counts = self._counts(X, reset=first)
        state = self._start(counts.shape[1], check_random_state(self.random_state)) if first else self._state()
        seen = 0 if first else self.n_documents_seen_
        for start in range(0, counts.shape[0], learning.batch_size):
            batch = counts[start : start + learning.batch_size]
            seen += batch.shape[0]
            state, _ = online_step(batch, state, learning, max(seen, int(self.total_documents or 0)))
        self._store(state, [], n_documents=seen)
        return self

    def _learning(self) -> Learning:
        if self.solver not in SOLVERS:
            raise unknown_name("solver", self.solver, SOLVERS)
        if self.prior not in PRIORS:
            raise unknown_name("prior", self.prior, PRIORS)
        if self.smoothing not in SMOOTHINGS:
            raise unknown_name("smoothing", self.smoothing, SMOOTHINGS)
        if self.eta == 0 and (self.smoothing == "bayes" or self.solver == "gibbs"):
            raise BagwiseError(
                f"eta=0 with smoothing={self.smoothing!r} and solver={self.solver!r}: a word would have no prior. "
                'Give eta above 0, such as 0.01, or smoothing="map" and another solver than "gibbs".'
            )
        return Learning(
            eta=float(self.eta),
            smoothing=self.smoothing,
            prior=self.prior,
            document_iter=int(self.document_iter),
            document_tol=float(self.document_tol),
            restarts=None if self.restarts is None else int(self.restarts),
            tol=float(self.tol),
            batch_size=int(self.batch_size),
            decay=float(self.decay),
            offset=float(self.offset),
            n_threads=effective_n_jobs(self.n_jobs),
        )

    def _alpha(self) -> NDArray[np.float64]:
        if self.alpha is None:
            return np.full(self.n_topics, max((50 if self.solver == "gibbs" else 1) / self.n_topics, SMALLEST))
        alpha = np.asarray(self.alpha, dtype=np.float64)
        if alpha.shape not in ((), (self.n_topics,)) or not (np.isfinite(alpha) & (alpha >= SMALLEST)).all():
            raise BagwiseError(
                f"alpha must be a number of at least {SMALLEST:g}, or one for each of the {self.n_topics} topics; got "
                f"an array of shape {alpha.shape}, from {alpha.min():g} to {alpha.max():g}."
            )
        return np.broadcast_to(alpha, (self.n_topics,)).copy()

    def _start(self, n_words: int, rng: np.random.RandomState) -> State:
        """Topics that are nearly even, those of scikit-learn: documents tell them apart in the first passes."""
        counts = rng.gamma(100.0, 0.01, (self.n_topics, n_words))
        return State(np.ascontiguousarray(counts.T), self._alpha())

    def _state(self) -> State:
        if len(self.alpha_) != self.n_topics:
            raise BagwiseError(
                f"n_topics={self.n_topics}, but the model to go on from has {len(self.alpha_)} topics. "
                "Set n_topics back, or fit a new model."
            )
        return State(np.ascontiguousarray(self.topic_counts_.T), self.alpha_, n_updates=self._n_updates)
