"""Topics for readers: top words, relevance and coherence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from bagwise._utils.validation import check_array
from bagwise.errors import BagwiseError
from bagwise.topics.inference import LARGEST_COUNT, to_counts

__all__ = ["TopicTables", "coherence", "top_words", "word_relevance"]


def word_relevance(
    topics: ArrayLike, relevance: float = 1.0, word_frequencies: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Relevance of each word to each topic: ``λ log p(w | topic) + (1 - λ) log(p(w | topic) / p(w))``.

    Parameters
    ----------
    topics : array-like of shape (n_components, n_words)
        Rows sum to 1.
    relevance : float, default=1.0
        λ, from 0 to 1. 1 ranks by probability. Smaller values prefer words that are rare elsewhere; 0.6 is common.
    word_frequencies : array-like of shape (n_words,), default=None
        p(w), positive where a topic has the word. None: the mean of the topics.

    Returns
    -------
    values : ndarray of shape (n_components, n_words)
        -inf for words that a topic does not have.
    """
    if not 0 <= relevance <= 1:
        raise BagwiseError(f"relevance must be from 0 to 1, got {relevance!r}. 1 ranks by probability, 0 by lift.")
    probabilities = np.asarray(topics, dtype=np.float64)
    overall = probabilities.mean(axis=0) if word_frequencies is None else np.asarray(word_frequencies, dtype=np.float64)
    if overall.shape != probabilities.shape[1:]:
        raise BagwiseError(
            f"word_frequencies has shape {overall.shape}; expected one per word: {probabilities.shape[1:]}."
        )
    with np.errstate(divide="ignore"):
        logs, lift = np.log(probabilities), np.log(overall)
    return np.where(probabilities > 0, logs - (1 - relevance) * np.where(overall > 0, lift, 0.0), -np.inf)


def top_words(
    topics: ArrayLike,
    n: int = 10,
    *,
    words: Sequence[str] | None = None,
    relevance: float = 1.0,
    word_frequencies: ArrayLike | None = None,
) -> list[list[Any]]:
    """List the most relevant words of each topic, the best first; ties in the order of the columns.

    Parameters
    ----------
    topics : array-like of shape (n_components, n_words)
        Rows sum to 1, such as ``LatentDirichlet.topics_`` or ``PLSA.topics_``.
    n : int, default=10
        Words per topic.
    words : sequence of str, default=None
        Names of the words. None: their column numbers.
    relevance, word_frequencies
        See `word_relevance`.

    Returns
    -------
    words : list of lists

    Examples
    --------
    >>> from bagwise.topics.tables import top_words
    >>> topics = [[0.5, 0.4, 0.1, 0.0], [0.5, 0.0, 0.2, 0.3]]
    >>> top_words(topics, 2, words=["the", "cat", "and", "dog"])
    [['the', 'cat'], ['the', 'dog']]
    >>> top_words(topics, 2, words=["the", "cat", "and", "dog"], relevance=0.2)
    [['cat', 'the'], ['dog', 'and']]
    """
    values = word_relevance(topics, relevance, word_frequencies)
    if n < 1:
        raise BagwiseError(f"n must be at least 1, got {n!r}.")
    if words is not None and len(words) != values.shape[1]:
        raise BagwiseError(f"There are {len(words)} names in words, but the topics have {values.shape[1]} words.")
    order = np.argsort(-values, axis=1, kind="stable")[:, :n]
    return [[int(v) if words is None else words[v] for v in row] for row in order]


class TopicTables:
    """Mixin of estimators whose fit sets `components_`: normalised topics and their top words."""

    components_: NDArray[Any]

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    @property
    def topics_(self) -> NDArray[np.float64]:
        """Probability of each word in each topic; uniform for a topic that emits nothing."""
        check_is_fitted(self)
        components = np.asarray(self.components_, dtype=np.float64)
        topics = np.where(components.sum(axis=1, keepdims=True) > 0, components, 1.0)
        return topics / topics.sum(axis=1, keepdims=True)

    def top_words(
        self,
        n: int = 10,
        *,
        words: Sequence[str] | None = None,
        relevance: float = 1.0,
        word_frequencies: ArrayLike | None = None,
    ) -> list[list[Any]]:
        """List the most relevant words of each topic; see `bagwise.topics.tables.top_words`.

        Parameters
        ----------
        n : int, default=10
            Words per topic.
        words : sequence of str, default=None
            Names of the words. None: those of the training data, or their column numbers.
        relevance : float, default=1.0
            1 ranks by probability. Smaller values prefer words that are rare in other topics.
        word_frequencies : array-like of shape (n_words,), default=None
            Probability of each word in all documents. None: the mean of the topics.

        Returns
        -------
        words : list of lists
        """
        if words is None:
            words = getattr(self, "feature_names_in_", None)
        return top_words(self.topics_, n, words=words, relevance=relevance, word_frequencies=word_frequencies)


def coherence(topics: ArrayLike, X: Any, n: int = 10, relevance: float = 1.0) -> NDArray[np.float64]:
    """Coherence of topics: mean normalised pointwise mutual information (NPMI) of pairs of their top words.

    ``log(p(v, w) / (p(v) p(w))) / -log p(v, w)`` with p the fraction of documents that contain the words. -1: never
    together, 0: independent, 1: always together.

    Parameters
    ----------
    topics : array-like of shape (n_components, n_words)
    X : array-like or sparse matrix of shape (n_documents, n_words)
        Reference documents, preferably not those the topics were fitted to.
    n : int, default=10
        Top words per topic, at least 2.
    relevance : float, default=1.0
        See `word_relevance`.

    Returns
    -------
    values : ndarray of shape (n_components,)

    Notes
    -----
    Pairs that never occur together count as -1, pairs that occur in every document as 0.

    Examples
    --------
    >>> from bagwise.topics.tables import coherence
    >>> X = [[1, 1, 0, 0], [2, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 3]]
    >>> coherence([[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]], X, n=2)
    array([ 1., -1.])
    """
    if n < 2:
        raise BagwiseError(f"Coherence needs pairs of words, so n must be at least 2, got {n!r}.")
    chosen = np.array(top_words(topics, n, relevance=relevance))
    counts = to_counts(check_array(X, largest=LARGEST_COUNT, accept_sparse="csr"), "coherence")
    if counts.shape[1] != np.shape(topics)[1]:
        raise BagwiseError(f"X has {counts.shape[1]} words, the topics {np.shape(topics)[1]}. Use the same vocabulary.")
    if chosen.shape[1] < 2:
        raise BagwiseError("Coherence needs pairs of words, but there is only one word.")
    occurs = sp.csr_array((np.ones(counts.nnz), counts.indices, counts.indptr), shape=counts.shape).tocsc()
    upper = np.triu_indices(chosen.shape[1], 1)
    values = np.empty(len(chosen))
    for topic, words in enumerate(chosen):
        columns = occurs[:, words]
        frequencies = (columns.T @ columns).toarray() / counts.shape[0]
        alone, together = np.diag(frequencies), frequencies[upper]
        information = np.where(together == 0, -1.0, 0.0)
        some = (together > 0) & (together < 1)
        independent = (alone[upper[0]] * alone[upper[1]])[some]
        information[some] = np.log(together[some] / independent) / -np.log(together[some])
        values[topic] = information.mean()
    return values
