"""`LatentDirichlet`: latent Dirichlet allocation as a scikit-learn transformer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import LARGEST_COUNT, N_JOBS, Interval, StrOptions, _fit_context
from bagwise._io.tensors import FileKind, PackedStrings, header_field, tensor
from bagwise._utils.backends import backend
from bagwise._utils.checks import check_stored_parameters, reset_fitted
from bagwise._utils.matrices import is_whole
from bagwise._utils.progress import ProgressBar
from bagwise._utils.validation import as_floats, check_sample_weight
from bagwise.errors import BagwiseError, unknown_name
from bagwise.topics.documents import TopicModel
from bagwise.topics.exchange import read_fitted
from bagwise.topics.inference import SMOOTHINGS, check_topics_fit
from bagwise.topics.sampling import FEWEST_SWEEPS, can_sample, sample_topics, sampled_counts
from bagwise.topics.training import (
    SMALLEST,
    State,
    Training,
    batch_passes,
    online_passes,
    online_step,
    random_counts,
)

__all__ = ["TEMPLATES", "LatentDirichlet", "new_model"]


@dataclass(frozen=True)
class Solver:
    """How `fit` finds topics: by passes over the documents, or by sweeps of `sample_topics`."""

    max_iter: int  # where the parameter is None
    # from documents, the state to start from, parameters, a generator and weights of documents: the state of each pass
    passes: Callable[..., Iterator[State]] | None = None
    is_done: Callable[[Training, float, float], bool] = Training.has_converged  # by the ELBO before and after a pass


# Adding one takes a row.
SOLVERS = {
    "vb": Solver(100, batch_passes),
    "online": Solver(50, online_passes, Training.has_settled),
    "gibbs": Solver(300),
}
PRIORS = ("auto", "fixed", "symmetric", "asymmetric")
STARTS = ("sampled", "random")
_MOST_UPDATES = 100_000  # of the topics of a document in a file, where they do not converge
_COUNT = header_field("integer", low=0, high=(1 << 53) - 1)
_FILE = FileKind(
    "bagwise.LatentDirichlet",
    {
        "parameters": header_field("object"),
        "n_updates": _COUNT,
        "n_iter": _COUNT,
        "n_documents_seen": _COUNT,
        "bound": header_field("number null"),
        "solver": header_field("string null", choices=SOLVERS.keys()),
    },
    {
        "topic_counts": tensor("float32 float64", "n_topics", "n_words", finite=True, low=0),
        "alpha": tensor("float64", "n_topics", finite=True),
        "bounds": tensor("float64", "n_bounds"),
        "names": tensor("uint8", "n_bytes", optional=True),
        "name_offsets": tensor("int64", "n_words + 1", optional=True),
    },
)


class LatentDirichlet(TopicModel):
    """Latent Dirichlet allocation: topics are distributions over words, documents are mixtures of topics.

    Drop-in replacement of `sklearn.decomposition.LatentDirichletAllocation`, with the same parameter names.

    1. Each document draws its topic proportions from a Dirichlet prior.
    2. Each of its tokens draws a topic from these proportions, and a word from that topic.
    3. `fit` learns the topics, `transform` gives the topic proportions of documents, `bound` the ELBO of each
       document, a lower bound of its log-likelihood.

    Parameters
    ----------
    n_components : int, default=10
        Number of topics. It may exceed the number of words or documents.
    solver : {"auto", "vb", "online", "gibbs"}, default="auto"
        "vb": variational EM over all documents. "online": variational EM in mini-batches, for many documents. "gibbs":
        collapsed Gibbs sampling by tomotopy (``pip install "bagwise[topics]"``), for integer counts. "auto": "gibbs" on
        one thread where it is possible, otherwise "vb"; see Notes. `solver_` says which. The topic proportions of
        documents are inferred in the same way for all.
    doc_topic_prior : float or array-like of shape (n_components,), default=None
        Dirichlet prior α of the topic proportions, or its start if it is learned; at least 1e-6. None:
        1 / n_components, or 50 / n_components for "gibbs".
    prior : {"auto", "fixed", "symmetric", "asymmetric"}, default="auto"
        Whether α stays fixed, or is learned as one value or one value per topic. "auto": "fixed" if `doc_topic_prior`
        is given, otherwise "asymmetric"; in `partial_fit` always "fixed", since α learned under topics that are still
        random, from batches in no random order, can grow large. "vb" learns it from the sixth pass on, "online" and
        `partial_fit` from the sixth mini-batch on.
    topic_word_prior : float or None, default=0.03
        Pseudocount η of each word in each topic. Above 0, except for ``smoothing="map"``. None: 1 / n_components.
        Larger values predict unseen documents better, smaller ones give topics of fewer words.
    init : {"sampled", "random"}, default="sampled"
        Topics that `fit` of "vb" and "online" starts from. "sampled": 50 sweeps of Gibbs sampling with one topic per
        word and document; if there are more than two million non-zeros, the first 40 are on a random part of the
        documents. "random": nearly uniform topics, as in scikit-learn and in `partial_fit`.
    smoothing : {"bayes", "map"}, default="bayes"
        Training uses a posterior of the topics ("bayes", prior Dir(η)), or their most likely value ("map", prior
        Dir(1 + η); with ``topic_word_prior=0`` maximum likelihood).
    max_iter : int, default=None
        Maximum number of passes over the documents, or sweeps of "gibbs". None: 100 for "vb", 50 for "online", 300 for
        "gibbs".
    tol : float, default=1e-5
        "vb" stops when a pass increases the ELBO by less than this fraction of it, "online" at ten times the fraction;
        with 0 "online" does not stop before `max_iter`.
    max_doc_update_iter : int, default=100
        Maximum number of updates of one document in a pass.
    mean_change_tol : float, default=1e-3
        The updates of a document stop when one changes its posterior by at most this fraction (L1 norm, relative to
        the length of the document).
    restarts : int, default=None
        Number of passes of "vb" in which documents start from equal proportions. Later passes continue from the last
        posterior, which is faster, but topics that left a document do not come back to it. None: as long as it
        increases the ELBO by `tol`.
    batch_size : int, default=256
        Documents per mini-batch of "online" and `partial_fit`.
    learning_decay, learning_offset : float, default=0.7 and 10
        Mini-batch number t has the weight ``(learning_offset + t) ** -learning_decay``. The decay is above 0.5 and at
        most 1. An offset of about 1024 suits large corpora.
    total_samples : int, default=None
        Total number of documents, for `partial_fit`. None: those seen so far.
    learning_method : {"batch", "online"}, default=None
        scikit-learn's name of the solvers: "batch" is ``solver="vb"``. None: as `solver` says.
    perp_tol : float, default=None
        As in scikit-learn, passes stop where one changes the perplexity of the training documents by less than this.
        None: `tol` decides.
    evaluate_every : int, default=None
        Passes between two comparisons; 0 or less: none stops before `max_iter`, as in scikit-learn by default. None: 1.
    warm_start : bool, default=False
        Whether `fit` continues from the topics of the last fit. "gibbs" cannot, and rejects it.
    n_jobs : int, default=None
        Number of threads. Results do not depend on it, except for ``solver="gibbs"``, where only one thread gives the
        same topics again.
    random_state : int, RandomState or None, default=None
        For the initial topics, the order of documents in "online", and sampling. An integer gives the same topics in
        each fit.
    verbose : int, default=0
    device : {"cpu", "cuda"}, default=None
        Where posteriors of documents are computed. None is "cpu"; "auto" is "vb" on a device. Not saved.

    Attributes
    ----------
    solver_ : {"vb", "online", "gibbs"}
        The solver that was used; "online" after `partial_fit`. Not set by `from_fitted`.
    components_ : ndarray of shape (n_components, n_features_in_)
        Pseudocounts λ of each word in each topic, `topic_word_prior` included. In float32 if X was, although all is
        computed in float64.
    topics_ : ndarray of shape (n_components, n_features_in_)
        Probability of each word in each topic: the rows of `components_`, normalised to sum to 1.
    exp_dirichlet_component_ : ndarray of shape (n_components, n_features_in_)
        Exponential of the expected logarithm of the topics.
    doc_topic_prior_ : ndarray of shape (n_components,)
    topic_word_prior_ : float
    bounds_ : ndarray of shape (n_iter_,)
        ELBO of the corpus after each pass; it never decreases for "vb". Empty for "gibbs" and `partial_fit`.
    bound_ : float
        Perplexity of the training documents by the last of `bounds_`, as in scikit-learn. Only after `fit` by "vb" or
        "online".
    n_iter_ : int
        Number of passes. After Ctrl-C the model is that of the last complete pass.
    n_batch_iter_ : int
        Number of updates of the topics, by all documents or a mini-batch.
    n_samples_seen_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    FreeEnergyScore : The terms of the ELBO of each document as features.
    LatentDirichletNB : Classifier with one topic model per class.
    PLSA : The same mixtures without priors.

    Notes
    -----
    ``solver="auto"`` samples if tomotopy is installed, counts and `sample_weight` are integers with at most ten tokens
    per non-zero in the mean, and no parameter excludes it: "gibbs" has neither ``smoothing="map"`` nor
    ``prior="symmetric"``, does not continue from a fitted model (`warm_start`) or run on a `device`, and needs at least
    100 sweeps, so a smaller `max_iter` means passes of "vb". In ``benchmarks/seed_methods.py --only topics``, its
    topics of newsgroups are more coherent (NPMI) than those of "vb" and predict unseen documents better; those of
    Reuters are not more coherent.

    A pass takes O(nnz K) time at most; less when documents have few topics, as with a small `doc_topic_prior`. Memory:
    about three arrays of words x topics, three of documents x topics, and two numbers per non-zero.

    After fitting, `topics_` count as known: `bound` is at most ``log p(document | topics_, doc_topic_prior_)``. Words
    that no topic emits (there are none if `topic_word_prior` is above 0) have the probability 1e-200. Fractional counts
    are accepted, except for "gibbs". An empty document has the proportions of the prior, and the ELBO 0.

    Differences from `sklearn.decomposition.LatentDirichletAllocation`: other defaults (its own are ``solver="vb"``,
    ``max_iter=10``, ``doc_topic_prior=1 / n_components``, ``topic_word_prior=None``, ``init="random"``), other
    messages, and a progress bar in place of lines where `verbose`. Our tests run those of scikit-learn.

    References
    ----------
    D. Blei, A. Ng, M. Jordan, "Latent Dirichlet allocation", JMLR 3, 2003. M. Hoffman, D. Blei, F. Bach, "Online
    learning for latent Dirichlet allocation", NIPS 2010. T. Griffiths, M. Steyvers, "Finding scientific topics", PNAS
    101, 2004. H. Wallach, D. Mimno, A. McCallum, "Rethinking LDA: why priors matter", NIPS 2009.

    Examples
    --------
    >>> from bagwise import LatentDirichlet
    >>> X = [[4, 3, 0, 0], [5, 4, 0, 0], [0, 0, 4, 5], [0, 1, 5, 4]]
    >>> lda = LatentDirichlet(2, solver="vb", random_state=0).fit(X)
    >>> lda.transform(X).round(1)
    array([[0.1, 0.9],
           [0.1, 0.9],
           [0.9, 0.1],
           [0.9, 0.1]])
    >>> lda.topics_.round(1)
    array([[0. , 0. , 0.5, 0.5],
           [0.5, 0.5, 0. , 0. ]])
    >>> lda.bound(X).shape
    (4,)
    """

    _parameter_constraints: ClassVar[dict] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "solver": [str],
        "doc_topic_prior": [Interval(Real, SMALLEST, None, closed="left"), "array-like", None],
        "prior": [str],
        "topic_word_prior": [Interval(Real, 0, None, closed="left"), None],
        "init": [str],
        "smoothing": [str],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_doc_update_iter": [Interval(Integral, 1, None, closed="left")],
        "mean_change_tol": [Interval(Real, 0, None, closed="left")],
        "restarts": [Interval(Integral, 0, None, closed="left"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_decay": [Interval(Real, 0.5, 1, closed="right")],
        "learning_offset": [Interval(Real, 1, None, closed="left")],
        "total_samples": [Interval(Real, 0, None, closed="neither"), None],
        "learning_method": [StrOptions({"batch", "online"}), None],
        "perp_tol": [Interval(Real, 0, None, closed="left"), None],
        "evaluate_every": [Interval(Integral, -LARGEST_COUNT, None, closed="left"), None],
        "warm_start": ["boolean"],
        "n_jobs": list(N_JOBS),
        "device": [StrOptions({"cpu", "cuda"}), None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        n_components: int = 10,
        *,
        solver: str = "auto",
        doc_topic_prior: float | ArrayLike | None = None,
        prior: str = "auto",
        topic_word_prior: float | None = 0.03,
        init: str = "sampled",
        smoothing: str = "bayes",
        max_iter: int | None = None,
        tol: float = 1e-5,
        max_doc_update_iter: int = 100,
        mean_change_tol: float = 1e-3,
        restarts: int | None = None,
        batch_size: int = 256,
        learning_decay: float = 0.7,
        learning_offset: float = 10.0,
        total_samples: float | None = None,
        learning_method: str | None = None,
        perp_tol: float | None = None,
        evaluate_every: int | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        device: str | None = None,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.doc_topic_prior = doc_topic_prior
        self.prior = prior
        self.topic_word_prior = topic_word_prior
        self.init = init
        self.smoothing = smoothing
        self.max_iter = max_iter
        self.tol = tol
        self.max_doc_update_iter = max_doc_update_iter
        self.mean_change_tol = mean_change_tol
        self.restarts = restarts
        self.batch_size = batch_size
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.total_samples = total_samples
        self.learning_method = learning_method
        self.perp_tol = perp_tol
        self.evaluate_every = evaluate_every
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the topics.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
            Word counts, or other non-negative weights.
        y : ignored
        sample_weight : array-like of shape (n_documents,), default=None
            Weight of each document. For "vb" and "gibbs" an integer weight counts like that many copies; "gibbs"
            accepts no others, and "auto" takes "vb" for them.

        Returns
        -------
        self : LatentDirichlet
        """
        self._check_names()
        backend("topics", self.device)  # raises if there is none
        if self.warm_start and self.solver == "gibbs":
            raise BagwiseError(
                'solver="gibbs" with warm_start=True: sampling starts anew in each fit, it cannot continue from fitted '
                'topics. Use warm_start=False, or another solver: "vb", "online", or "auto", which then takes "vb".'
            )
        if not self.warm_start:
            reset_fitted(self)
        earlier = self._state() if self.warm_start and hasattr(self, "components_") else None
        counts, dtype = self._counts_and_dtype(X, reset=earlier is None)
        dtype = dtype if earlier is None else self.components_.dtype
        weights = None
        if sample_weight is not None:
            weights = check_sample_weight(sample_weight, counts, ensure_non_negative=True)
            counts, weights = counts[weights > 0], weights[weights > 0]
        check_topics_fit(counts, self.n_components)
        rng = check_random_state(self.random_state)
        solver = self._solver(counts, weights)
        training = self._training()
        how = SOLVERS[solver]
        n_passes = how.max_iter if self.max_iter is None else int(self.max_iter)
        n_samples = counts.shape[0] if weights is None else round(weights.sum())
        with ProgressBar("finding topics", n_passes, enabled=bool(self.verbose)) as bar:
            if how.passes is None:
                state = self._sample(counts, weights, training, n_passes, rng, bar)
                self._store(state, [], n_samples, solver, dtype)
                self.n_iter_ = n_passes
                return self
            if earlier is not None:
                state = earlier
            elif self.init == "sampled":
                start = sampled_counts(counts, self.n_components, training.eta, rng, weights)
                state = State(start, self._doc_topic_prior("vb"))
            else:
                state = self._random_start(counts.shape[1], rng)
            bounds: list[float] = []
            lengths = np.asarray(counts.sum(axis=1)).ravel()
            n_tokens = float(lengths.sum() if weights is None else lengths @ weights)
            try:
                passes = how.passes(counts, state, training, rng, weights)
                for state in passes:
                    bounds.append(state.bound)
                    bar.update(len(bounds))
                    if len(bounds) == n_passes:
                        break
                    if self._is_enough(bounds, n_tokens, training, how):
                        break
            finally:  # also after Ctrl-C, if a pass is complete
                if bounds:
                    self._store(state, bounds, n_samples, solver, dtype)
                    self.bound_ = float(np.exp(-bounds[-1] / n_tokens)) if n_tokens > 0 else float("nan")
        return self

    def _is_enough(self, bounds: list[float], n_tokens: float, training: Training, how: Solver) -> bool:
        """Whether passes end, by the ELBO after each of them."""
        every = 1 if self.evaluate_every is None else int(self.evaluate_every)
        if every <= 0 or len(bounds) <= every or len(bounds) % every:
            return False
        before, after = bounds[-1 - every], bounds[-1]
        if self.perp_tol is not None and n_tokens > 0:
            return bool(abs(np.exp(-after / n_tokens) - np.exp(-before / n_tokens)) < self.perp_tol)
        return how.is_done(training, before, after)

    def _solver(self, counts: sp.csr_array, weights: NDArray[np.float64] | None) -> str:
        if self.learning_method is not None:
            return "vb" if self.learning_method == "batch" else "online"
        return self._choose(counts, weights) if self.solver == "auto" else self.solver

    def _choose(self, counts: sp.csr_array, weights: NDArray[np.float64] | None) -> str:
        """The solver of "auto"."""
        possible = (
            self.smoothing == "bayes"
            and self.device != "cuda"
            and self.topic_word_prior != 0
            and self._prior() != "symmetric"
            and not self.warm_start
            and (self.max_iter is None or self.max_iter >= FEWEST_SWEEPS)
            and (weights is None or is_whole(weights))
        )
        return "gibbs" if possible and can_sample(counts) else "vb"

    def _sample(
        self,
        counts: sp.csr_array,
        weights: NDArray[np.float64] | None,
        training: Training,
        n_sweeps: int,
        rng: np.random.RandomState,
        bar: ProgressBar,
    ) -> State:
        if weights is not None:
            if not is_whole(weights):
                raise BagwiseError('solver="gibbs" takes integers as sample_weight. Round them, or use another solver.')
            counts = counts[np.repeat(np.arange(len(weights)), weights.astype(np.int64))]
        return sample_topics(
            counts,
            self._doc_topic_prior("gibbs"),
            training.eta,
            prior=training.prior,
            n_sweeps=n_sweeps,
            seed=int(rng.randint(2**31)),
            n_threads=training.n_threads if self.solver == "gibbs" else 1,
            report=bar.update,
        )

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Update the topics with more documents in mini-batches, as ``solver="online"`` does.

        The first call starts from random topics. The prior of documents stays as it is, unless `prior` is "symmetric"
        or "asymmetric".

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : ignored

        Returns
        -------
        self : LatentDirichlet
        """
        self._check_names()
        training = replace(self._training(), prior="fixed" if self.prior == "auto" else self.prior)
        first = not hasattr(self, "components_")
        counts, dtype = self._counts_and_dtype(X, reset=first)
        dtype = dtype if first else self.components_.dtype
        state = self._random_start(counts.shape[1], check_random_state(self.random_state)) if first else self._state()
        seen = 0 if first else self.n_samples_seen_
        for start in range(0, counts.shape[0], training.batch_size):
            batch = counts[start : start + training.batch_size]
            seen += batch.shape[0]
            state, _ = online_step(batch, state, training, max(seen, self.total_samples or 0))
        self._store(state, [], seen, "online", dtype)
        if hasattr(self, "bound_"):
            del self.bound_  # that of the topics before
        return self

    def _check_names(self) -> None:
        for name, known in (
            ("solver", ("auto", *SOLVERS)),
            ("prior", PRIORS),
            ("init", STARTS),
            ("smoothing", SMOOTHINGS),
        ):
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        if self.learning_method is not None and self.solver != "auto":
            raise BagwiseError(
                f"learning_method={self.learning_method!r} and solver={self.solver!r} name the same thing. Give one of "
                "them: learning_method='batch' is solver='vb'."
            )
        if self.topic_word_prior == 0 and (self.smoothing == "bayes" or self.solver == "gibbs"):
            raise BagwiseError(
                f"topic_word_prior=0 with smoothing={self.smoothing!r} and solver={self.solver!r} is not defined. "
                'Give a value above 0, such as 0.01, or smoothing="map" and another solver than "gibbs".'
            )

    def _training(self) -> Training:
        return Training(
            eta=self._eta(),
            smoothing=self.smoothing,
            prior=self._prior(),
            max_doc_update_iter=int(self.max_doc_update_iter),
            mean_change_tol=float(self.mean_change_tol),
            restarts=None if self.restarts is None else int(self.restarts),
            tol=float(self.tol),
            batch_size=int(self.batch_size),
            decay=float(self.learning_decay),
            offset=float(self.learning_offset),
            n_threads=effective_n_jobs(self.n_jobs),
            device=self.device,
        )

    def _eta(self) -> float:
        return 1 / self.n_components if self.topic_word_prior is None else float(self.topic_word_prior)

    def _prior(self) -> str:
        if self.prior == "auto":
            return "asymmetric" if self.doc_topic_prior is None else "fixed"
        return self.prior

    def _doc_topic_prior(self, solver: str) -> NDArray[np.float64]:
        n = self.n_components
        if self.doc_topic_prior is None:
            return np.full(n, max((50 if solver == "gibbs" else 1) / n, SMALLEST))
        alpha = as_floats(self.doc_topic_prior, "doc_topic_prior")
        if alpha.shape not in ((), (n,)) or not (np.isfinite(alpha) & (alpha >= SMALLEST)).all():
            raise BagwiseError(
                f"doc_topic_prior must be a number of at least {SMALLEST:g}, or one for each of the {n} topics; got an "
                f"array of shape {alpha.shape} with values from {alpha.min():g} to {alpha.max():g}."
            )
        return np.broadcast_to(alpha, (n,)).copy()

    def _random_start(self, n_words: int, rng: np.random.RandomState) -> State:
        return State(random_counts(n_words, self.n_components, rng), self._doc_topic_prior("vb"))

    def _state(self) -> State:
        if len(self.doc_topic_prior_) != self.n_components:
            raise BagwiseError(
                f"n_components={self.n_components}, but the fitted model has {len(self.doc_topic_prior_)} topics. "
                "Restore n_components, or fit a new model."
            )
        counts = np.ascontiguousarray(self.components_.T, dtype=np.float64)
        return State(counts, self.doc_topic_prior_, n_updates=self.n_batch_iter_)

    def _store(
        self, state: State, bounds: list[float], n_samples: int, solver: str | None, dtype: Any = np.float64
    ) -> None:
        if solver is not None:
            self.solver_ = solver
        self.components_ = np.ascontiguousarray(state.counts.T, dtype=dtype)
        self.doc_topic_prior_ = state.alpha
        self.topic_word_prior_ = self._eta()
        self.bounds_ = np.array(bounds)
        self.n_iter_ = max(len(bounds), 1)
        self.n_samples_seen_ = n_samples
        self.n_batch_iter_ = state.n_updates

    @classmethod
    def from_fitted(cls, model: Any, vocabulary: Sequence[str] | None = None) -> Self:
        """Convert a fitted model of another library.

        Parameters
        ----------
        model : LatentDirichletAllocation of scikit-learn, LdaModel of gensim or LDAModel of tomotopy
        vocabulary : sequence of str, default=None
            Words of the columns, for tomotopy, which has an order of its own. None: the order of the model.

        Returns
        -------
        lda : LatentDirichlet
            Fitted, with the topics and the prior of the model.
        """
        counts, alpha, eta = read_fitted(model, vocabulary)
        lda = cls(len(alpha), doc_topic_prior=alpha, topic_word_prior=eta)
        lda.n_features_in_ = len(counts)
        lda._store(State(counts, alpha), [], n_samples=0, solver=None)
        return lda

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the model to a safetensors file, atomically.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        path : Path
        """
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        del parameters["device"]  # that of this machine
        if not isinstance(self.random_state, Integral):
            parameters["random_state"] = None  # the state of a generator is not part of the model
        for name, value in parameters.items():
            if isinstance(value, (np.generic, np.ndarray)):
                parameters[name] = value.tolist()
        header = {
            "parameters": parameters,
            "n_updates": self.n_batch_iter_,
            "n_iter": self.n_iter_,
            "n_documents_seen": self.n_samples_seen_,
            "bound": getattr(self, "bound_", None),
            "solver": getattr(self, "solver_", None),
        }
        state = {"topic_counts": self.components_, "alpha": self.doc_topic_prior_, "bounds": self.bounds_}
        if hasattr(self, "feature_names_in_"):
            words = PackedStrings.of(self.feature_names_in_.tolist())
            state |= {"names": words.text, "name_offsets": words.offsets}
        return _FILE.save(path, header, state)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model from a file of `save`. Loading runs no code of the file.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        lda : LatentDirichlet
        """

        def make(header: dict[str, Any], state: dict[str, NDArray[Any]]) -> Any:
            counts, alpha = state["topic_counts"], state["alpha"]
            if 0 in counts.shape or not (alpha > 0).all():
                raise BagwiseError("it needs a topic and a word, and priors above 0")
            check_stored_parameters(header["parameters"], max_doc_update_iter=_MOST_UPDATES)
            lda = cls(**header["parameters"])
            lda._validate_params()
            lda.n_features_in_ = counts.shape[1]
            if "names" in state:
                words = PackedStrings(state["names"], state["name_offsets"]).tolist()
                if len(words) != counts.shape[1]:
                    raise BagwiseError(f"it has {len(words)} names; expected one of each of {counts.shape[1]} words")
                lda.feature_names_in_ = np.array(words, dtype=object)
            restored = State(counts.T, alpha, n_updates=header["n_updates"])
            lda._store(restored, state["bounds"].tolist(), header["n_documents_seen"], header["solver"], counts.dtype)
            lda.n_iter_ = header["n_iter"]
            if header["bound"] is not None:
                lda.bound_ = header["bound"]
            return lda

        return _FILE.load(path, make)


# what a parameter `model` of other estimators may be
TEMPLATES: list[Any] = [Interval(Integral, 1, None, closed="left"), LatentDirichlet, FrozenEstimator]


def new_model(template: int | LatentDirichlet, seed: int | None = None) -> LatentDirichlet:
    """An unfitted model: a clone of the given one, or one with the given number of topics.

    It has the given seed, unless the template has one of its own; without either, that of a number of topics is 0.
    """
    if not isinstance(template, LatentDirichlet):
        return LatentDirichlet(int(template), random_state=seed or 0)
    model: LatentDirichlet = clone(template)
    return model.set_params(random_state=seed) if model.random_state is None and seed is not None else model
