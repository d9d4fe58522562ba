"""`LatentDirichletNB`: naive Bayes with one topic model per class."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import _fit_context
from bagwise._utils.validation import check_sample_weight, validate_data
from bagwise.errors import BagwiseError
from bagwise.topics.inference import LARGEST_COUNT, CountReader, to_counts
from bagwise.topics.latent_dirichlet import TEMPLATES, LatentDirichlet, new_model

__all__ = ["LatentDirichletNB"]


class LatentDirichletNB(CountReader, ClassifierMixin, BaseEstimator):
    """Naive Bayes classifier with a `LatentDirichlet` per class.

    A document w gets the class ``argmax_c log(n_c / n) + L_c(w)``, where n_c of the n training documents have class c
    and L_c is the ELBO, the lower bound of log p(w), under the model of class c.

    Parameters
    ----------
    model : int or LatentDirichlet, default=10
        Number of topics per class, or a model that is cloned and fitted for each class.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    models_ : list of LatentDirichlet
        In the order of `classes_`.
    class_log_prior_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X has column names.

    See Also
    --------
    FreeEnergyScore : The terms of the ELBO as features for other classifiers.
    sklearn.naive_bayes.MultinomialNB : One distribution over words per class.

    Notes
    -----
    As with all naive Bayes classifiers, probabilities are too extreme. Words that a class never has are weighted by
    `topic_word_prior` of the model. The gap between ELBO and log p(w) may differ between classes.

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
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a topic model to the documents of each class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_words)
        y : array-like of shape (n_documents,)
        sample_weight : array-like of shape (n_documents,), default=None
            Weight of each document. An integer weight counts like that many copies, unless the model has
            ``solver="online"``, whose mini-batches would differ.

        Returns
        -------
        self : LatentDirichletNB
        """
        X, y = validate_data(self, X, y, largest=LARGEST_COUNT, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        counts, y = to_counts(X, type(self).__name__), np.asarray(y)
        weights = None
        if sample_weight is not None:
            weights = check_sample_weight(sample_weight, counts, ensure_non_negative=True)
            counts, y, weights = counts[weights > 0], y[weights > 0], weights[weights > 0]
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise BagwiseError(
                f"y has one class, {classes[0]!s}. Give documents of at least two classes with positive weights."
            )
        totals = np.bincount(codes, weights)
        self.classes_ = classes
        self.class_log_prior_ = np.log(totals / totals.sum())
        self.models_ = []
        for code in range(len(classes)):
            inside = codes == code
            of_class = None if weights is None else weights[inside]
            self.models_.append(new_model(self.model).fit(counts[inside], sample_weight=of_class))
        return self

    def predict_joint_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Compute ``log(n_c / n) + L_c(w)`` for each document and class.

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
        """Predict the most likely class of each document; ties go to the first class.

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
        """Compute the logarithms of `predict_proba`.

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
        """Compute class probabilities, with the ELBO in place of log p(w).

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
        tags.classifier_tags.poor_score = True  # on the data of the common checks, which are not counts
        return tags
