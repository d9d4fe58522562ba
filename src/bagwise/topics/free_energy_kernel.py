"""`FreeEnergyKernel`: a similarity of documents that uses topics and labels."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, _fit_context, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise.kernels.diagonal_kernel import DiagonalKernelLearner
from bagwise.topics.counts import CountReader
from bagwise.topics.free_energy import FreeEnergyScore
from bagwise.topics.latent_dirichlet import LatentDirichlet
from bagwise.topics.templates import TEMPLATES

__all__ = ["FreeEnergyKernel"]


class FreeEnergyKernel(CountReader, TransformerMixin, BaseEstimator):
    """Learn a kernel between documents: the parts of their bounds under a topic model, weighted to follow the labels.

    1. `FreeEnergyScore` describes a document by the parts of its bound, which tell how the topics explain it.
    2. `DiagonalKernelLearner` gives each part a weight, so that the weighted inner product is large for documents with
       like labels.
    3. `transform` gives features whose inner product is the kernel, for a linear SVM; `kernel` the kernel itself, for
       ranking documents by their likeness to a query.

    Parameters
    ----------
    model : int, LatentDirichlet or FrozenEstimator, default=10
        Number of topics, a model to be fitted (a copy is), or a fitted one that stays as it is:
        ``FrozenEstimator(lda)`` of `sklearn.frozen`.
    word_block : {"full", "topic", "word"}, default="topic"
        How finely the part of the words is split: for each topic and word (sparse), per topic, or per word (sparse).
    per_token : bool, default=False
        Whether scores are divided by the length of the document.
    standardize : bool, default=True
        Whether scores are brought to mean 0 and variance 1 (sparse ones to variance 1 only). Without it the largest
        scores outweigh all others.
    learner : DiagonalKernelLearner, default=None
        How weights are learned; a copy is fitted. None: ``DiagonalKernelLearner()``.

    Attributes
    ----------
    score_ : FreeEnergyScore
    learner_ : DiagonalKernelLearner
    weights_ : ndarray of shape (n_features_out,)
        Weight of each score, named by `get_feature_names_out`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    FreeEnergyScore : The scores, all of the same weight.
    DiagonalKernelLearner : Learns such weights for any features.

    Notes
    -----
    Time is that of the topic model and the scores, O(nnz K), and of the learner: one pass over the scores, unless it is
    told to do otherwise.

    To classify texts with a linear SVM, ``python -m experiments free_energy_text`` takes counts damped to
    ``1 + log n``, ``word_block="word"``, the objective "ball" or "prox" with a `step` of 10 to 100, and features scaled
    to length 1 (`sklearn.preprocessing.Normalizer`); plain counts and the block "full" were mostly worse in trials.

    Scores per word are scaled but not centred, since they are sparse. Where most documents have most words, as images
    do, learning on scores that are centred is better: `FreeEnergyScore`, made dense,
    `sklearn.preprocessing.StandardScaler`, `DiagonalKernelLearner`.

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
    >>> alike = learned.kernel(X)
    >>> bool(alike[0, 1] > alike[0, 2])
    True
    """

    _parameter_constraints: ClassVar[dict] = {
        "model": TEMPLATES,
        "word_block": [str],
        "per_token": ["boolean"],
        "standardize": ["boolean"],
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
    def fit(self, X: Any, y: Any) -> FreeEnergyKernel:
        """Fit the topic model, if it is not fitted, and learn the weights of the scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
            Counts.
        y : array-like of shape (n_documents,), or array-like or sparse matrix of shape (n_documents, n_labels)
            Class of each document, or zeros and ones that say which labels it has.

        Returns
        -------
        self : FreeEnergyKernel
        """
        for name in ("score_", "learner_", "n_features_in_", "feature_names_in_"):  # should fitting fail, all is gone
            if hasattr(self, name):
                delattr(self, name)
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
        """Give features whose inner product is the kernel.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        Z : ndarray or CSR of shape (n_documents, n_features_out)
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
        """Names of the scores, as `FreeEnergyScore` gives them.

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
