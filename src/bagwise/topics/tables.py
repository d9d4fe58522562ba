"""Topics for readers: top words, coherence, and the data that pyLDAvis draws."""

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

__all__ = ["TopicTables", "coherence", "prepare_view", "top_words", "word_relevance"]

_STEP = 0.01  # of the relevance slider of pyLDAvis


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

    components_: NDArray[np.float64]

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "components_")

    @property
    def topics_(self) -> NDArray[np.float64]:
        """Probability of each word in each topic; uniform for a topic that emits nothing."""
        check_is_fitted(self)
        totals = self.components_.sum(axis=1, keepdims=True)
        topics = np.where(totals > 0, self.components_, 1.0)
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


def prepare_view(
    topics: ArrayLike, proportions: ArrayLike, X: Any, words: Sequence[str], n: int = 30
) -> dict[str, Any]:
    """Prepare the data of pyLDAvis, as the dictionary behind its JSON.

    Parameters
    ----------
    topics : array-like of shape (n_components, n_words)
    proportions : array-like of shape (n_documents, n_components)
        Topic proportions of the documents, from `transform`.
    X : array-like or sparse matrix of shape (n_documents, n_words)
        Their counts.
    words : sequence of str
        Names of the words.
    n : int, default=30
        Words shown per topic.

    Returns
    -------
    view : dict
        Lists under the keys "mdsDat", "tinfo", "token.table", "R", "lambda.step", "plot.opts" and "topic.order", ready
        for ``json.dumps``. Topics are numbered from 1, the most frequent first.

    Notes
    -----
    The positions of the topics come from classical multidimensional scaling of their Jensen-Shannon divergences.
    """
    topics, proportions = np.asarray(topics, dtype=np.float64), np.asarray(proportions, dtype=np.float64)
    counts = to_counts(check_array(X, largest=LARGEST_COUNT, accept_sparse="csr"), "prepare_view")
    n_documents, n_words = counts.shape
    if not topics.shape[1] == n_words == len(words) or proportions.shape != (n_documents, len(topics)):
        raise BagwiseError(
            f"Shapes do not match: topics {topics.shape}, proportions {proportions.shape}, X {counts.shape} and "
            f"{len(words)} words. Expected topics x words, documents x topics, documents x words, and a name per word."
        )
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    sizes = lengths @ proportions
    if not sizes.sum() > 0:
        raise BagwiseError("All documents are empty, so topics have no size. Give documents with words.")
    order = np.argsort(-sizes, kind="stable")
    topics, sizes = topics[order], sizes[order]
    emitted = topics * sizes[:, None]  # expected counts, topics x words
    totals = emitted.sum(axis=0)
    seen = np.flatnonzero(totals > 0)
    overall = totals / totals.sum()
    shown = _shown_words(topics, overall, n)
    positions = _positions(topics)
    numbers = np.arange(1, len(topics) + 1)
    listed = np.unique(np.concatenate(shown))
    saliency = _saliency(emitted, overall)
    most_salient = seen[np.argsort(-saliency[seen], kind="stable")][:n]

    info: dict[str, list[Any]] = {key: [] for key in ("Term", "Freq", "Total", "Category", "logprob", "loglift")}

    def add(column: NDArray[np.intp], freq: Any, category: str, logprob: Any, loglift: Any) -> None:
        info["Term"] += [words[v] for v in column]
        info["Freq"] += np.asarray(freq, dtype=float).tolist()
        info["Total"] += totals[column].tolist()
        info["Category"] += [category] * len(column)
        info["logprob"] += np.asarray(logprob, dtype=float).tolist()
        info["loglift"] += np.asarray(loglift, dtype=float).tolist()

    ranks = np.arange(len(most_salient), 0, -1)  # pyLDAvis expects ranks, not values, in the first list
    add(most_salient, totals[most_salient], "Default", ranks, ranks)
    for number, topic, column in zip(numbers, topics, shown, strict=True):
        logs = np.log(topic[column])
        add(column, emitted[number - 1, column], f"Topic{number}", logs, logs - np.log(overall[column]))
    rows, columns = np.nonzero(emitted[:, listed] >= 0.5)
    by_word = np.lexsort((rows, columns))
    rows, columns = rows[by_word], listed[columns[by_word]]
    return {
        "mdsDat": {
            "x": positions[:, 0].tolist(),
            "y": positions[:, 1].tolist(),
            "topics": numbers.tolist(),
            "cluster": [1] * len(topics),
            "Freq": (100 * sizes / sizes.sum()).tolist(),
        },
        "tinfo": info,
        "token.table": {
            "Topic": (rows + 1).tolist(),
            "Freq": (emitted[rows, columns] / totals[columns]).tolist(),
            "Term": [words[v] for v in columns.tolist()],
        },
        "R": min(n, n_words),
        "lambda.step": _STEP,
        "plot.opts": {"xlab": "PC1", "ylab": "PC2"},
        "topic.order": (order + 1).tolist(),
    }


def _shown_words(topics: NDArray[np.float64], overall: NDArray[np.float64], n: int) -> list[NDArray[np.intp]]:
    """Words of each topic that are among its top n for some position of the relevance slider."""
    shown: list[set[int]] = [set() for _ in topics]
    at_once = min(n, topics.shape[1])
    for relevance in np.arange(0, 1 + _STEP / 2, _STEP):
        values = word_relevance(topics, min(float(relevance), 1.0), overall)
        best = np.argpartition(-values, at_once - 1, axis=1)[:, :at_once]
        for row, found, topic in zip(best, shown, topics, strict=True):
            found.update(row[topic[row] > 0].tolist())
    return [np.array(sorted(found), dtype=np.intp) for found in shown]


def _saliency(emitted: NDArray[np.float64], overall: NDArray[np.float64]) -> NDArray[np.float64]:
    """p(w) times the divergence of p(topic | w) from p(topic)."""
    of_topics = emitted.sum(axis=1) / emitted.sum()
    totals = emitted.sum(axis=0)
    given_word = emitted / np.where(totals > 0, totals, 1.0)
    ratio = np.where(given_word > 0, given_word / np.where(of_topics > 0, of_topics, 1.0)[:, None], 1.0)
    return overall * (given_word * np.log(ratio)).sum(axis=0)


def _positions(topics: NDArray[np.float64]) -> NDArray[np.float64]:
    """Classical multidimensional scaling of the Jensen-Shannon divergences of topics to two dimensions."""
    n = len(topics)

    def entropies(p: NDArray[np.float64]) -> NDArray[np.float64]:
        return -(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=-1)

    own = entropies(topics)
    distances = np.stack([entropies((topics + topic) / 2) - (own + entropies(topic)) / 2 for topic in topics])
    centre = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centre @ distances**2 @ centre)
    first = np.argsort(-values)[:2]
    positions = np.zeros((n, 2))
    positions[:, : len(first)] = vectors[:, first] * np.sqrt(np.maximum(values[first], 0))
    signs = np.where(positions[np.abs(positions).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)  # eigenvectors have no sign
    return positions * signs
