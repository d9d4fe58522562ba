"""`FreeEnergyScore`, the ELBO terms of documents as features, and `FreeEnergyKernel`, which weights them by labels."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import normalize as normalize_rows
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import Interval, StrOptions, _check_feature_names_in, _fit_context
from bagwise._utils.checks import reset_fitted
from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels.diagonal_kernel import DiagonalKernelLearner
from bagwise.topics.elbo import elbo_terms, sampled_elbo_terms
from bagwise.topics.inference import CountReader, check_whole, with_small_indices
from bagwise.topics.latent_dirichlet import TEMPLATES, LatentDirichlet, new_model

__all__ = ["FreeEnergyKernel", "FreeEnergyScore"]

WORD_BLOCKS = ("full", "topic", "word")
INFERENCES = ("gibbs", "variational")
# Features with a smaller standard deviation count as constant.
_CONSTANT = 1e-12


def _fitted_model(
    template: int | LatentDirichlet | FrozenEstimator, counts: sp.csr_array, seed: int | None
) -> LatentDirichlet:
    """A new model fitted to the counts, or the frozen one if it has the same number of words."""
    if not isinstance(template, FrozenEstimator):
        return new_model(template, seed).fit(counts)
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
    standardize : bool or "sqrt", default=False
        Whether to scale features to mean 0 and variance 1 over the training documents; the sparse blocks are scaled to
        variance 1 without centring. "sqrt" divides the sparse blocks by the square roots of their standard deviations
        (Pareto scaling): scores of rare words grow, but stay below those of frequent words. Constant features become 0.
        Rarely useful with "full", where the terms of very improbable emissions would be scaled up.
    damping : {"log", None}, default=None
        "log": counts n above 1 become ``1 + log n``, for the topic model and the scores. Repeated words say little
        about a class.
    inference : {"variational", "gibbs"}, default="variational"
        How the topics of words are found. "gibbs": by samples of the topics of single tokens, for integer counts, under
        topics that stay as they are. `damping` then changes the weights of words in the scores, not the tokens.
    n_sweeps : int, default=100
        Sweeps of "gibbs", of which the first fifth is discarded.
    random_state : int, RandomState or None, default=None
        Of the topic model, unless that is frozen or has a seed of its own, and of "gibbs". A document has the same
        scores in each `transform` after a `fit`, whatever else is in X.

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
    Without `per_token` and `standardize` the features of a document sum to ``model_.bound`` (of damped counts, if they
    are) for each block, and those of an empty document are 0. With "gibbs" they sum to the ELBO at the sampled topics,
    usually lower. "full" leaves out terms of less than 1e-12 tokens. Time is O(nnz K), for "gibbs" O(tokens K) per
    sweep. A change of parameters takes effect at the next `fit`.

    References
    ----------
    A. Perina, M. Cristani, U. Castellani, V. Murino, N. Jojic, "Free energy score space", NIPS 2009. Q. Lv, L. Pang, X.
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
        "standardize": ["boolean", StrOptions({"sqrt"})],
        "damping": [StrOptions({"log"}), None],
        "inference": [str],
        "n_sweeps": [Interval(Integral, 2, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        model: int | LatentDirichlet | FrozenEstimator = 10,
        *,
        word_block: str = "topic",
        per_token: bool = False,
        standardize: bool | str = False,
        damping: str | None = None,
        inference: str = "variational",
        n_sweeps: int = 100,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.word_block = word_block
        self.per_token = per_token
        self.standardize = standardize
        self.damping = damping
        self.inference = inference
        self.n_sweeps = n_sweeps
        self.random_state = random_state

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
        for name, known in (("word_block", WORD_BLOCKS), ("inference", INFERENCES)):
            if getattr(self, name) not in known:
                raise unknown_name(name, getattr(self, name), known)
        counts = self._counts(X, reset=True)
        if self.inference == "gibbs":
            check_whole(counts, 'inference="gibbs"')
        self._seed = int(check_random_state(self.random_state).randint(2**31))
        seed = None if self.random_state is None else self._seed
        self.model_ = _fitted_model(self.model, _damped(counts, self.damping), seed)
        # transform uses the parameters of this fit: means and scales belong to them
        self._word_block, self._per_token, self._standardize = self.word_block, self.per_token, self.standardize
        self._damping, self._inference, self._n_sweeps = self.damping, self.inference, int(self.n_sweeps)
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
            of_words = np.sqrt(np.maximum(squares - of_words**2, 0))
            of_words[of_words < _CONSTANT] = 0.0
            deviation = np.concatenate([deviation, np.sqrt(of_words) if self.standardize == "sqrt" else of_words])
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
        damped = _damped(counts, self._damping)
        if self._inference == "gibbs":
            topics, words = sampled_elbo_terms(
                self.model_, counts, damped.data, self._word_block, n_sweeps=self._n_sweeps, seed=self._seed
            )
        else:
            topics, words = elbo_terms(self.model_, damped, self._word_block)
        if self._per_token:
            lengths = np.asarray(damped.sum(axis=1)).ravel()
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


def _damped(counts: sp.csr_array, damping: str | None) -> sp.csr_array:
    """Counts n above 1 as ``1 + log n`` if damping is "log"."""
    if damping is None:
        return counts
    values = np.where(counts.data > 1, 1 + np.log(np.maximum(counts.data, 1)), counts.data)
    return sp.csr_array((values, counts.indices, counts.indptr), shape=counts.shape)


class FreeEnergyKernel(CountReader, TransformerMixin, BaseEstimator):
    """Learn a kernel between documents from the ELBO terms of a topic model and from labels.

    1. `FreeEnergyScore` describes a document by the terms of its ELBO.
    2. `DiagonalKernelLearner` learns a weight for each term, so that the weighted inner product is large for documents
       with similar labels.
    3. `transform` gives features whose inner product is the kernel, for a linear SVM; `kernel` gives the kernel matrix,
       for retrieval.

    Parameters
    ----------
    model : int, LatentDirichlet or FrozenEstimator, default=10
        See `FreeEnergyScore`. Scores per word hardly depend on the number of topics.
    word_block : {"word", "topic", "full"}, default="word"
        See `FreeEnergyScore`: one score per word, per topic, or for each topic and word.
    per_token, inference, n_sweeps, random_state
        See `FreeEnergyScore`.
    standardize : bool or "sqrt", default="sqrt"
        How scores are scaled; see `FreeEnergyScore`. "sqrt" lets rare words count more, as inverse document frequencies
        do, but not less those that nearly all documents have: leave these out (``CountVectorizer(max_df=0.9)``) if they
        are many. True overrates rare words. Without scaling the largest terms dominate.
    damping : {"log", None}, default="log"
        "log" replaces counts n by ``1 + log n``. Give raw counts.
    normalize : {"l2", None}, default="l2"
        Whether to scale features to unit norm, so that the kernel is a cosine.
    learner : DiagonalKernelLearner, default=None
        Learner of the weights; a clone is fitted. None: ``DiagonalKernelLearner("correlation")``, whose step depends
        neither on the scale of the scores nor on their number.

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

    The defaults suit linear SVMs on texts: ``make_pipeline(CountVectorizer(), FreeEnergyKernel(), LinearSVC())``.
    Damped counts, one score per word and unit norm were known to suit the tasks of the paper; scaling, objective and
    step were chosen by cross-validation on movie reviews and pairs of Reuters topics. TF-IDF may stand beside it, with
    `sklearn.preprocessing.Normalizer` after both, so that the kernel is the mean of two cosines (see Examples).

    The form of the paper, to the letter: ``model=LatentDirichlet(K, solver="gibbs", prior="fixed",
    topic_word_prior=0.01)``, ``inference="gibbs"``, ``word_block="full"``, ``standardize=False``, ``damping=None``,
    ``normalize=None``, ``learner=DiagonalKernelLearner("prox")``: one step from equal weights, which is what all its
    steps come to. Errors of both are in docs/results.

    Scores per word are scaled but not centred, since they are sparse. Where most documents have most words, as images
    do, centred scores are better: `FreeEnergyScore` as dense array, `sklearn.preprocessing.StandardScaler`,
    `DiagonalKernelLearner`.

    References
    ----------
    Q. Lv, L. Pang, X. Li, "Learning probabilistic kernel from latent Dirichlet allocation", KSII Transactions on
    Internet and Information Systems 10(6), 2016.

    Examples
    --------
    >>> from bagwise import FreeEnergyKernel, LatentDirichlet
    >>> X = [[4, 3, 0, 0], [5, 4, 0, 0], [0, 0, 4, 5], [0, 1, 5, 4]]
    >>> y = ["cat", "cat", "dog", "dog"]
    >>> learned = FreeEnergyKernel(LatentDirichlet(2, random_state=0)).fit(X, y)
    >>> learned.transform(X).shape
    (4, 11)
    >>> K = learned.kernel(X)
    >>> bool(K[0, 1] > K[0, 2])
    True

    As features of texts, beside TF-IDF:

    >>> from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
    >>> from sklearn.pipeline import make_pipeline, make_union
    >>> from sklearn.preprocessing import Normalizer
    >>> from sklearn.svm import LinearSVC
    >>> both = make_union(TfidfTransformer(sublinear_tf=True), FreeEnergyKernel())
    >>> classifier = make_pipeline(CountVectorizer(), both, Normalizer(), LinearSVC())
    >>> texts = ["a cat and a cat", "the cat purrs", "a dog and a bone", "the dog barks"]
    >>> classifier.fit(texts, y).predict(["my cat", "my dog"]).tolist()
    ['cat', 'dog']
    """

    _parameter_constraints: ClassVar[dict] = {
        **FreeEnergyScore._parameter_constraints,
        "normalize": [StrOptions({"l2"}), None],
        "learner": [DiagonalKernelLearner, None],
    }

    def __init__(
        self,
        model: int | LatentDirichlet | FrozenEstimator = 10,
        *,
        word_block: str = "word",
        per_token: bool = False,
        standardize: bool | str = "sqrt",
        damping: str | None = "log",
        normalize: str | None = "l2",
        learner: DiagonalKernelLearner | None = None,
        inference: str = "variational",
        n_sweeps: int = 100,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.word_block = word_block
        self.per_token = per_token
        self.standardize = standardize
        self.damping = damping
        self.normalize = normalize
        self.learner = learner
        self.inference = inference
        self.n_sweeps = n_sweeps
        self.random_state = random_state

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
        shared = self.get_params(deep=False)
        normalize = shared.pop("normalize")
        learner = shared.pop("learner")
        learner = DiagonalKernelLearner("correlation") if learner is None else clone(learner)
        if normalize is not None and not learner.non_negative:
            raise BagwiseError(
                f"normalize={normalize!r} with learner.non_negative=False: with negative weights a document may have a "
                "negative kernel with itself. Use normalize=None, or weights that are not negative."
            )
        score = FreeEnergyScore(**shared)
        scores = score.fit_transform(X)
        self.learner_ = learner.fit(scores, y)
        self.score_ = score
        self._normalize = normalize
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
        Z = self.learner_.transform(self.score_.transform(X))
        return Z if self._normalize is None else normalize_rows(Z, norm=self._normalize, copy=False)

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
        if self._normalize is None:
            return self.learner_.kernel(self.score_.transform(X), None if Y is None else self.score_.transform(Y))
        A = self.transform(X)
        product = A @ (A if Y is None else self.transform(Y)).T
        return product.toarray() if sp.issparse(product) else product

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
