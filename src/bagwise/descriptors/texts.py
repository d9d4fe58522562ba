"""`WordCounts`: texts to counts of words."""

from __future__ import annotations

from typing import Any, Self

from sklearn.feature_extraction.text import CountVectorizer

from bagwise.sources.collection import load_texts

__all__ = ["WordCounts"]


class WordCounts(CountVectorizer):
    """Count the words of texts: scikit-learn's `CountVectorizer`, which takes collections as well.

    Parameters
    ----------
    **options
        All parameters of `sklearn.feature_extraction.text.CountVectorizer`, with the same defaults: `stop_words`,
        `ngram_range`, `min_df`, `max_df`, `max_features`, `vocabulary` and others. `input`, `encoding` and
        `decode_error` are not used: texts are str, and collections know their encoding.

    Attributes
    ----------
    vocabulary_ : dict
        From words to columns.

    See Also
    --------
    SentenceVectors : Bags of vectors, one for each sentence.
    WordMerger : Merges the words into a few groups.

    Examples
    --------
    >>> from bagwise.descriptors import WordCounts
    >>> words = WordCounts(stop_words=["the", "and"])
    >>> counts = words.fit_transform(["The cat and the hat", "", "Cat!"])
    >>> words.get_feature_names_out()
    array(['cat', 'hat'], dtype=object)
    >>> counts.toarray()
    array([[1, 1],
           [0, 0],
           [1, 0]])
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the words.

        Parameters
        ----------
        X : Collection of texts, or iterable of str
        y : ignored

        Returns
        -------
        self : WordCounts
        """
        self.fit_transform(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Learn the words and count them in one pass over the texts.

        Parameters
        ----------
        X : Collection of texts, or iterable of str
        y : ignored

        Returns
        -------
        counts : CSR matrix of shape (n_texts, n_words)
        """
        return super().fit_transform(load_texts(X))

    def transform(self, X: Any) -> Any:
        """Count the words that were learned.

        Parameters
        ----------
        X : Collection of texts, or iterable of str

        Returns
        -------
        counts : CSR matrix of shape (n_texts, n_words)
        """
        return super().transform(load_texts(X))
