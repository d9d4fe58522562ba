"""`FreeEnergyScore`, the ELBO terms of documents as features, and `FreeEnergyKernel`, which weights them by labels."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, gammaln
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import _check_feature_names_in, _fit_context
from bagwise._utils.checks import reset_fitted
from bagwise._utils.memory import check_memory
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels.diagonal_kernel import DiagonalKernelLearner
from bagwise.topics._kernels import count_emissions, list_emissions, split_bound_of_words
from bagwise.topics.inference import CountReader, with_small_indices
from bagwise.topics.latent_dirichlet import TEMPLATES, LatentDirichlet, new_model

__all__ = ["FreeEnergyKernel", "FreeEnergyScore", "elbo_terms"]

WORD_BLOCKS = ("full", "topic", "word")
# The sparse block "full" leaves out emissions of fewer tokens than this.
_SMALLEST = 1e-12
# Features with a smaller standard deviation count as constant.
_CONSTANT = 1e-12


def _fitted_model(template: int | LatentDirichlet | FrozenEstimator, counts: sp.csr_array) -> LatentDirichlet:
    """A new model fitted to the counts, or the frozen one if it has the same number of words."""
    if not isinstance(template, FrozenEstimator):
        return new_model(template).fit(counts)
    lda = template.estimator
    if not isinstance(lda, LatentDirichlet):
        raise BagwiseError(
            f"model is a frozen {type(lda).__name__}. Accepted: LatentDirichlet, FrozenEstimator(LatentDirichlet) or "
            "a number of topics. LatentDirichlet.from_fitted converts models of other libraries."
        )
    check_is_fitted(lda)
    if lda.n_features_in_ != counts.shape[1]:
        raise BagwiseError(
            f"X has {counts.shape[1]} words, the frozen model {lda.n_features_in_}. Use the vocabulary of the model."
        )
    return lda


def elbo_terms(
    lda: LatentDirichlet, counts: sp.csr_array, word_block: str = "topic"
) -> tuple[NDArray[np.float64], NDArray[np.float64] | sp.csr_array]:
    """Split the ELBO of documents, counts from `to_counts`, into terms of topics and terms of words.

    - Topics, documents x (1 + 3 K): ``lgamma(Σα) - lgamma(Σγ)``; ``lgamma(γ_i) - lgamma(α_i)``; ``(α_i - γ_i) e_i``;
      ``Σ_v n_v φ_vi (e_i - log φ_vi)``.
    - Words: ``n_v φ_vi log β_vi`` for each topic and word ("full", sparse, topic by topic), summed over words ("topic",
      dense), or summed over topics ("word", sparse).

    All terms of a document sum to its ELBO.
    """
    posterior = lda.infer_counts(counts)
    gamma, alpha = posterior.gamma, lda.doc_topic_prior_
    n_documents, n_components = gamma.shape
    n_threads = effective_n_jobs(lda.n_jobs)
    weights = lda.word_weights()
    logs = np.log(weights)
    expected_logs = digamma(gamma) - digamma(gamma.sum(axis=1, keepdims=True))
    per_topic, in_words = np.empty((n_documents, n_components)), np.empty((n_documents, n_components))
    per_word = np.empty(counts.nnz)
    largest = gamma.argmax(axis=1)[:, None]  # where `expected` is not 0
    factors = np.take_along_axis(expected_logs, largest, 1) - np.log(np.take_along_axis(posterior.expected, largest, 1))
    shifts = factors.ravel()
    entries = (counts.indptr, counts.indices)
    given = (weights, logs, posterior.expected, posterior.ratios)

    def split(first: int, last: int) -> None:
        split_bound_of_words(*entries, counts.data, *given, shifts, per_topic, in_words, per_word, first, last)

    run_over_ranges(split, n_documents, n_threads)
    topics = np.hstack(
        [
            (gammaln(alpha.sum()) - gammaln(gamma.sum(axis=1)))[:, None],
            gammaln(gamma) - gammaln(alpha),
            (alpha - gamma) * expected_logs,
            per_topic,
        ]
    )
    if word_block == "topic":
        return topics, in_words
    if word_block == "word":
        return topics, sp.csr_array((per_word, counts.indices.copy(), counts.indptr.copy()), shape=counts.shape)
    sizes = np.empty(n_documents, dtype=np.int64)

    def count(first: int, last: int) -> None:
        count_emissions(*entries, weights, posterior.expected, posterior.ratios, _SMALLEST, sizes, first, last)

    run_over_ranges(count, n_documents, n_threads)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    check_memory(
        int(starts[-1]) * 16,
        None,
        f"The scores of {n_documents} documents have {starts[-1]} emissions of words by topics",
        'use word_block="topic" or "word", or fewer documents at once',
    )
    columns, values = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1])
    n_words = counts.shape[1]

    def fill(first: int, last: int) -> None:
        list_emissions(*entries, *given, _SMALLEST, n_words, starts, columns, values, first, last)

    run_over_ranges(fill, n_documents, n_threads)
    return topics, sp.csr_array((values, columns, starts), shape=(n_documents, n_components * n_words))


class FreeEnergyScore(CountReader, TransformerMixin, BaseEstimator):
    """Describe documents by the terms of their ELBO under a topic model (free-energy score space).

    1. Fit a topic model, or take a fitted one.
    2. The ELBO of a document, the lower bound of its log-likelihood, is a sum of terms per topic and word. They are the
       features: they show how the model explains the document, not only by which topics.
    3. Optionally divide them by the length of the document, and standardise them, as kernels and linear models require.

    Parameters
    ----------
    model : int, LatentDirichlet or FrozenEstimator, default=10
        Number of topics; a model to clone and fit; or a fitted model that stays as it is,
        ``sklearn.frozen.FrozenEstimator(lda)``.
    word_block : {"full", "topic", "word"}, default="topic"
        Features of the words: one for each topic and word (sparse, up to K V features), one per topic, or one per word
        (sparse).
    per_token : bool, default=False
        Whether to divide scores by the length of the document.
    standardize : bool, default=False
        Whether to scale features to mean 0 and variance 1 over the training documents; the sparse blocks are scaled to
        variance 1 without centring. Constant features become 0. Rarely useful with "full", where the terms of very
        improbable emissions would be scaled up.

    Attributes
    ----------
    model_ : LatentDirichlet
    mean_, scale_ : ndarray of shape (n_features_out,)
        Only if `standardize`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    LatentDirichlet : The topic model.
    FreeEnergyKernel : Weights the scores by labels.
    LatentDirichletNB : Classifies by the ELBO itself.

    Notes
    -----
    Without `per_token` and `standardize` the features of a document sum to ``model_.bound`` for each block, and those
    of an empty document are 0. "full" leaves out terms of less than 1e-12 tokens. Time is O(nnz K). A change of
    parameters takes effect at the next `fit`.

    References
    ----------
    A. Perina, M. Cristani, U. Castellani, V. Murino, N. Jojic, "Free energy score space", NIPS 2009. Q. Lv, Y. Pang, X.
    Li, "Learning probabilistic kernel from latent Dirichlet allocation", KSII TIIS 10(6), 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import LatentDirichlet
    >>> from bagwise.topics import FreeEnergyScore
    >>> X = [[4, 3, 0, 0], [5, 4, 0, 0], [0, 0, 4, 5], [0, 1, 5, 4]]
    >>> scores = FreeEnergyScore(LatentDirichlet(2, random_state=0)).fit(X)
    >>> Z = scores.transform(X)
    >>> Z.shape
    (4, 9)
    >>> np.allclose(Z.sum(axis=1), scores.model_.bound(X))
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "model": TEMPLATES,
        "word_block": [str],
        "per_token": ["boolean"],
        "standardize": ["boolean"],
    }

    def __init__(
        self,
        model: int | LatentDirichlet | FrozenEstimator = 10,
        *,
        word_block: str = "topic",
        per_token: bool = False,
        standardize: bool = False,
    ) -> None:
        self.model = model
        self.word_block = word_block
        self.per_token = per_token
        self.standardize = standardize

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the topic model unless it is frozen, and compute means and scales if `standardize`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : ignored

        Returns
        -------
        self : FreeEnergyScore
        """
        if self.word_block not in WORD_BLOCKS:
            raise unknown_name("word_block", self.word_block, WORD_BLOCKS)
        counts = self._counts(X, reset=True)
        self.model_ = _fitted_model(self.model, counts)
        # transform uses the parameters of this fit: means and scales belong to them
        self._word_block, self._per_token, self._standardize = self.word_block, self.per_token, self.standardize
        if self.standardize:
            self._find_scales(*self._terms(counts))
        return self

    def _find_scales(self, topics: NDArray[np.float64], words: Any) -> None:
        dense = topics if sp.issparse(words) else np.hstack([topics, words])
        mean, deviation = dense.mean(axis=0), dense.std(axis=0)
        if sp.issparse(words):
            of_words = np.asarray(words.mean(axis=0)).ravel()
            squares = np.asarray(words.multiply(words).mean(axis=0)).ravel()
            mean = np.concatenate([mean, np.zeros(words.shape[1])])
            deviation = np.concatenate([deviation, np.sqrt(np.maximum(squares - of_words**2, 0))])
        self.mean_ = mean
        self.scale_ = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation >= _CONSTANT)

    def transform(self, X: Any) -> Any:
        """Compute the ELBO terms of documents.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        scores : ndarray or csr_array of shape (n_documents, n_features_out)
            Sparse for the blocks "full" and "word".
        """
        check_is_fitted(self)
        topics, words = self._terms(self._counts(X, reset=False))
        n_dense = topics.shape[1]
        if self._standardize:
            topics = (topics - self.mean_[:n_dense]) * self.scale_[:n_dense]
            if sp.issparse(words):
                words = words @ sp.diags_array(self.scale_[n_dense:])
            else:
                words = (words - self.mean_[n_dense:]) * self.scale_[n_dense:]
        if sp.issparse(words):
            return with_small_indices(sp.hstack([sp.csr_array(topics), words], format="csr"))
        return np.hstack([topics, words])

    def _terms(self, counts: sp.csr_array) -> tuple[NDArray[np.float64], Any]:
        topics, words = elbo_terms(self.model_, counts, self._word_block)
        if self._per_token:
            lengths = np.asarray(counts.sum(axis=1)).ravel()
            factors = 1 / np.where(lengths > 0, lengths, 1.0)
            topics *= factors[:, None]
            words = sp.csr_array(sp.diags_array(factors) @ words) if sp.issparse(words) else words * factors[:, None]
        return topics, words

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names such as ``prior``, ``norm_topic0``, ``mean_topic0``, ``entropy_topic0``, then those of the word block.

        Parameters
        ----------
        input_features : array-like of str of shape (n_features_in_,), default=None
            Names of the words.

        Returns
        -------
        names : ndarray of str objects
        """
        check_is_fitted(self)
        words = _check_feature_names_in(self, input_features)
        topics = [f"topic{i}" for i in range(len(self.model_.components_))]
        names = ["prior"] + [f"{term}_{topic}" for term in ("norm", "mean", "entropy") for topic in topics]
        if self._word_block == "topic":
            names += [f"words_{topic}" for topic in topics]
        elif self._word_block == "word":
            names += [f"word_{word}" for word in words]
        else:
            names += [f"{topic}_{word}" for topic in topics for word in words]
        return np.array(names, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


class FreeEnergyKernel(CountReader, TransformerMixin, BaseEstimator):
    """Learn a kernel between documents from the ELBO terms of a topic model and from labels.

    1. `FreeEnergyScore` describes a document by the terms of its ELBO.
    2. `DiagonalKernelLearner` learns a weight for each term, so that the weighted inner product is large for documents
       with similar labels.
    3. `transform` gives features whose inner product is the kernel, for a linear SVM; `kernel` gives the kernel matrix,
       for retrieval.

    Parameters
    ----------
    model, word_block, per_token
        See `FreeEnergyScore`.
    standardize : bool, default=True
        Whether to scale scores to mean 0 and variance 1 (sparse scores to variance 1). Without it the largest terms
        dominate.
    learner : DiagonalKernelLearner, default=None
        Learner of the weights; a clone is fitted. None: ``DiagonalKernelLearner()``.

    Attributes
    ----------
    score_ : FreeEnergyScore
    learner_ : DiagonalKernelLearner
    weights_ : ndarray of shape (n_features_out,)
        Weight of each score, in the order of `get_feature_names_out`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    FreeEnergyScore : The scores without weights.
    DiagonalKernelLearner : Learns such weights for any features.

    Notes
    -----
    Time is that of the topic model and the scores, O(nnz K), and of the learner: one pass over the scores by default.

    To classify texts with a linear SVM, ``python -m experiments free_energy_text`` uses counts damped to ``1 + log n``,
    ``word_block="word"``, the objective "ball" or "prox" with a `step` of 10 to 100, and features scaled to unit norm
    (`sklearn.preprocessing.Normalizer`); raw counts and the block "full" were mostly worse.

    Scores per word are scaled but not centred, since they are sparse. Where most documents have most words, as images
    do, centred scores are better: `FreeEnergyScore` as dense array, `sklearn.preprocessing.StandardScaler`,
    `DiagonalKernelLearner`.

    References
    ----------
    Q. Lv, Y. Pang, X. Li, "Learning probabilistic kernel from latent Dirichlet allocation", KSII Transactions on
    Internet and Information Systems 10(6), 2016.

    Examples
    --------
    >>> from bagwise import FreeEnergyKernel, LatentDirichlet
    >>> X = [[4, 3, 0, 0], [5, 4, 0, 0], [0, 0, 4, 5], [0, 1, 5, 4]]
    >>> y = ["cat", "cat", "dog", "dog"]
    >>> learned = FreeEnergyKernel(LatentDirichlet(2, random_state=0)).fit(X, y)
    >>> learned.transform(X).shape
    (4, 9)
    >>> K = learned.kernel(X)
    >>> bool(K[0, 1] > K[0, 2])
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        **FreeEnergyScore._parameter_constraints,
        "learner": [DiagonalKernelLearner, None],
    }

    def __init__(
        self,
        model: int | LatentDirichlet | FrozenEstimator = 10,
        *,
        word_block: str = "topic",
        per_token: bool = False,
        standardize: bool = True,
        learner: DiagonalKernelLearner | None = None,
    ) -> None:
        self.model = model
        self.word_block = word_block
        self.per_token = per_token
        self.standardize = standardize
        self.learner = learner

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: Any) -> Self:
        """Fit the topic model unless it is frozen, and learn the weights of the scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
            Word counts.
        y : array-like of shape (n_documents,), or array-like or sparse matrix of shape (n_documents, n_labels)
            Class of each document, or a 0/1 indicator matrix of its labels.

        Returns
        -------
        self : FreeEnergyKernel
        """
        reset_fitted(self)
        score = FreeEnergyScore(
            self.model, word_block=self.word_block, per_token=self.per_token, standardize=self.standardize
        )
        learner = DiagonalKernelLearner() if self.learner is None else clone(self.learner)
        scores = score.fit_transform(X)
        self.learner_ = learner.fit(scores, y)
        self.score_ = score
        self.n_features_in_ = score.n_features_in_
        if hasattr(score, "feature_names_in_"):
            self.feature_names_in_ = score.feature_names_in_
        return self

    @property
    def weights_(self) -> NDArray[np.float64]:
        """Weight of each score."""
        check_is_fitted(self)
        return self.learner_.weights_

    def transform(self, X: Any) -> Any:
        """Compute features whose inner product is the kernel.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        Z : ndarray or csr_array of shape (n_documents, n_features_out)
            Sparse for the word blocks "full" and "word".
        """
        check_is_fitted(self)
        return self.learner_.transform(self.score_.transform(X))

    def kernel(self, X: Any, Y: Any = None) -> NDArray[np.float64]:
        """Compute the kernel between the documents of X and of Y.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_words)
        Y : array-like or sparse matrix of shape (m, n_words), default=None
            None is X.

        Returns
        -------
        K : ndarray of shape (n, m)
        """
        check_is_fitted(self)
        return self.learner_.kernel(self.score_.transform(X), None if Y is None else self.score_.transform(Y))

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[np.object_]:
        """Names of the scores; see `FreeEnergyScore.get_feature_names_out`.

        Parameters
        ----------
        input_features : array-like of str of shape (n_features_in_,), default=None
            Names of the words.

        Returns
        -------
        names : ndarray of str objects
        """
        check_is_fitted(self)
        return self.score_.get_feature_names_out(input_features)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "score_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
