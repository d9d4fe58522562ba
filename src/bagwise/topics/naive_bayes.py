"""`LatentDirichletNB`: naive Bayes with a topic model for each class."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from bagwise.errors import BagwiseError
from bagwise.topics.inference import CountReader, to_counts
from bagwise.topics.latent_dirichlet import LatentDirichlet
from bagwise.topics.templates import TEMPLATES, new_model

__all__ = ["LatentDirichletNB"]


class LatentDirichletNB(CountReader, ClassifierMixin, BaseEstimator):
    """Classify documents by the topic model under which they are likeliest.

    Each class gets a `LatentDirichlet` of its own; a document w goes to ``argmax_c log(n_c / n) + L_c(w)``, with n_c of
    n training documents in class c, and L_c the lower bound of log p(w) under its model.

    Parameters
    ----------
    model : int or LatentDirichlet, default=10
        Number of topics per class, or a model of which each class fits a copy.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    models_ : list of LatentDirichlet
        In the order of `classes_`.
    class_log_prior_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had column names.

    See Also
    --------
    FreeEnergyScore : The parts of the bounds as features for other classifiers.
    sklearn.naive_bayes.MultinomialNB : One distribution over words per class.

    Notes
    -----
    As with all naive Bayes, probabilities are too sure of themselves. Words that a class never has weigh by the model's
    `eta`. A bound may be further from log p(w) in one class than in another.

    References
    ----------
    D. Blei, A. Ng, M. Jordan, "Latent Dirichlet allocation", JMLR 3, 2003.

    Examples
    --------
    >>> from bagwise.topics import LatentDirichletNB
    >>> X = [[4, 3, 0, 0], [5, 4, 0, 1], [0, 0, 4, 5], [0, 1, 5, 4]]
    >>> y = ["cat", "cat", "dog", "dog"]
    >>> LatentDirichletNB(1).fit(X, y).predict([[2, 1, 1, 0], [0, 1, 0, 3]])
    array(['cat', 'dog'], dtype='<U3')
    """

    _parameter_constraints: ClassVar[dict] = {"model": TEMPLATES[:2]}

    def __init__(self, model: int | LatentDirichlet = 10) -> None:
        self.model = model

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Any, y: ArrayLike) -> LatentDirichletNB:
        """Fit a topic model to the documents of each class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : array-like of shape (n_documents,)

        Returns
        -------
        self : LatentDirichletNB
        """
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        counts = to_counts(X, type(self).__name__)
        classes, codes = np.unique(np.asarray(y), return_inverse=True)
        if len(classes) < 2:
            raise BagwiseError(f"y has one class, {classes[0]!s}: there is nothing to tell apart. Give at least two.")
        self.classes_ = classes
        self.class_log_prior_ = np.log(np.bincount(codes) / len(codes))
        self.models_ = [new_model(self.model).fit(counts[codes == code]) for code in range(len(classes))]
        return self

    def predict_joint_log_proba(self, X: Any) -> NDArray[np.float64]:
        """``log(n_c / n) + L_c(w)`` of each document and class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        scores : ndarray of shape (n_documents, n_classes)
        """
        check_is_fitted(self)
        counts = self._counts(X, reset=False)
        return self.class_log_prior_ + np.stack([lda.infer_counts(counts).bounds for lda in self.models_], axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each document; the first of several.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        labels : ndarray of shape (n_documents,)
        """
        scores = self.predict_joint_log_proba(X)
        return self.classes_[scores.argmax(axis=1)]

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithms of `predict_proba`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        logs : ndarray of shape (n_documents, n_classes)
        """
        scores = self.predict_joint_log_proba(X)
        return scores - logsumexp(scores, axis=1, keepdims=True)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes, bounds taken for log-probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)

        Returns
        -------
        probabilities : ndarray of shape (n_documents, n_classes)
        """
        return np.exp(self.predict_log_proba(X))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on data that are no counts, as the common checks have them
        return tags
