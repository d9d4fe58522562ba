"""Similarity by words and by more in one inner product: by scores of classes, or by groups without a classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.arrays import softmax
from bagwise.errors import BagwiseError

__all__ = ["BlendSettings", "ClassBlend", "GroupBlend"]

# Probabilities below this are left out of an index.
_LEAST = 1e-6
# Items whose similarity by words is 1 up to this, a rounding error of float32, have the same words.
_EQUAL = 1e-6
_QUANTILE = 0.75
_LARGEST = 1e9  # of a setting in a file


@dataclass(frozen=True)
class BlendSettings:
    """Constants of `ClassBlend`.

    The defaults were chosen on one draw of training items of Corel-1k, Scene-15, six newsgroups, ten topics of Reuters,
    seven kinds of Amazon reviews and digits, by mean average precision over folds that leave whole classes out of the
    classifier. Some of these items are test items in the draws of ``benchmarks/seed_methods_search.py``. After figures
    of the first of those draws had been seen, `threshold` was moved from 0.80 to 0.82, and the classifier on all words
    taken, whose scores `ItemIndex` gives. `own_certainty` was chosen on three more draws, which share items with the
    test draws too: it costs at most 0.004 of mean average precision there if all classes are known, 0.006 if not.

    Attributes
    ----------
    soft, sharp : float
        Factors of the scores of classes, before softmax: of profiles, and of probabilities.
    n_neighbors : int
        Number of items nearest by words that tell whether the classes of the model fit a query.
    threshold, slope : float
        The classes fit by half where the neighbours are `threshold` times as certain as others of the class; the
        larger the slope, the faster that changes.
    own_certainty : float
        A query less certain than this counts as one that the classes fit less, and not at all where it is as certain
        as by chance. 0 means by chance, 1 as certain as others of its class.
    profile_weight : float
        Weight of profiles where no class fits; words have the rest.
    word_weight : float
        Weight of words where a class fits, so that items of one class are ranked by them.
    """

    soft: float = 3.0
    sharp: float = 8.0
    n_neighbors: int = 10
    threshold: float = 0.82
    slope: float = 50.0
    own_certainty: float = 0.25
    profile_weight: float = 0.2
    word_weight: float = 0.005

    @classmethod
    def from_header(cls, header: Any) -> BlendSettings:
        """Read settings from the header of a file, and check them."""
        names = [one.name for one in fields(cls)]
        if not isinstance(header, Mapping) or sorted(header) != sorted(names):
            raise BagwiseError(f"its blend is {header!r:.100}; expected numbers for {', '.join(names)}.")
        sound = all(type(value) in (int, float) and 0 <= value < _LARGEST for value in header.values())  # not NaN
        if not sound or type(header["n_neighbors"]) is not int or header["n_neighbors"] < 1:
            raise BagwiseError(f"its blend is {header!r:.300}; expected finite numbers from 0, and n_neighbors from 1.")
        if max(header["profile_weight"], header["word_weight"]) > 1:
            raise BagwiseError(f"its blend is {header!r:.300}; expected weights from 0 to 1.")
        return cls(**header)

    def to_header(self) -> dict[str, Any]:
        """Give the settings as numbers by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class ClassBlend:
    """Similarity of items by words and by the scores of a classifier.

    An item has a unit vector of words w, and scores f of classes. Its profile is ``s = sqrt(softmax(soft f))``, its
    probabilities of classes ``p = softmax(sharp f)``, and its certainty the largest of ``softmax(soft f)``.
    The score of an item x for a query q is

    ``g (v w_q·w_x + (1 - v) p_q·p_x) + (1 - g) ((1 - u) w_q·w_x + u s_q·s_x)``

    with the constants u (`profile_weight`) and v (`word_weight`). So where the classes fit the query (g near 1), items
    are ranked by the probability that they are of the same class, then by words. Where they do not (g near 0), by
    words, and by how similar their class scores are, which also separates classes that the classifier does not know.

    How well the classes fit, g, is learned from the items nearest to the query by words: their mean certainty, weighted
    by the squares of their similarities, relative to a typical certainty of items of the query's class (the upper
    quartile, averaged by the query's probabilities). Near an unknown class items are less certain than that. A query
    may also say nothing about classes, such as a text of common words. So g is at most ``c / own_certainty``, where c
    is the certainty of the query itself on a scale from 0, that of equal scores of all classes, to 1, the typical one.

    All terms are inner products, so `BagIndex` with the metric "inner" finds the best items exactly: rows of items are
    ``[w, s, p]``, and a query scales its three blocks. Scores are from 0 to 1. Items with
    the words of the query have the score 1; others come near it where a class is certain.

    Attributes
    ----------
    certainty : ndarray of float32, shape (n_items,)
    typical : ndarray of float32, shape (n_classes,)
        Upper quartile of the certainties of the items of each class.
    settings : BlendSettings

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import BagIndex
    >>> from bagwise.retrieval.blends import ClassBlend
    >>> words, scores = np.eye(3), np.array([[1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])
    >>> blend = ClassBlend.of(scores)
    >>> index = BagIndex("inner").add(blend.rows(words, scores))
    >>> blend.search(index, words[:1], scores[:1], k=3)[0].round(3)
    array([[1.   , 0.995, 0.   ]])
    """

    certainty: NDArray[np.float32]
    typical: NDArray[np.float32]
    settings: BlendSettings = BlendSettings()

    @classmethod
    def of(cls, scores: NDArray[np.float64], settings: BlendSettings | None = None) -> ClassBlend:
        """Learn typical certainties from the scores of the items of an index, of shape (n_items, n_classes)."""
        settings = BlendSettings() if settings is None else settings
        chances = softmax(settings.soft * scores)
        certainty = chances.max(axis=1, initial=0).astype(np.float32)
        return cls.from_items(certainty, chances.argmax(axis=1), scores.shape[1], settings)

    @classmethod
    def from_items(
        cls, certainty: NDArray[np.float32], classes: NDArray[np.int64], n_classes: int, settings: BlendSettings
    ) -> ClassBlend:
        """Learn typical certainties from those of the items of an index, and their most likely classes."""
        every = float(np.quantile(certainty, _QUANTILE)) if len(certainty) else 1.0
        by_class = [certainty[classes == k] for k in range(n_classes)]
        typical = [np.quantile(certainties, _QUANTILE) if len(certainties) else every for certainties in by_class]
        return cls(certainty, np.array(typical, dtype=np.float32), settings)

    def rows(self, words: Any, scores: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> Any:
        """Return words, profiles and probabilities side by side; for queries, scaled by their weights of classes.

        Items without words have zeros in all columns. Sparse if words are.
        """
        if weights is None:
            return self._beside(words, scores, 1.0, 1.0, 1.0)
        g, u, v = weights[:, np.newaxis], self.settings.profile_weight, self.settings.word_weight
        return self._beside(words, scores, g * v + (1 - g) * (1 - u), (1 - g) * u, g * (1 - v))

    def rows_alone(self, words: Any, scores: NDArray[np.float64], by: str) -> Any:
        """Return rows of queries that search an index of `rows` by "words" or by "classes" alone."""
        return self._beside(words, scores, float(by == "words"), 0.0, float(by == "classes"))

    def _beside(self, words: Any, scores: NDArray[np.float64], by_words: Any, by_profile: Any, by_class: Any) -> Any:
        some = np.asarray(abs(words).sum(axis=1)).reshape(-1, 1) > 0
        profiles = np.sqrt(softmax(self.settings.soft * scores)) * by_profile * some
        chances = self.probabilities(scores) * by_class * some
        scaled = words.multiply(by_words) if sp.issparse(words) else words * by_words
        return _beside(scaled, profiles, chances)

    def probabilities(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return probabilities of classes; those next to nothing are 0."""
        chances = softmax(self.settings.sharp * scores)
        return np.where(chances < _LEAST, 0.0, chances)

    def search(
        self, index: Any, words: Any, scores: NDArray[np.float64], k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Find the k best items for each query, see `BagIndex.search`.

        Items with the words of the query, at most `n_neighbors` of them, come first and have the score 1.
        """
        return self.weighed_search(index, words, scores, k)[:2]

    def weighed_search(
        self, index: Any, words: Any, scores: NDArray[np.float64], k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
        """Return what `search` does, and the `class_weights` of the queries, which it needs."""
        near, neighbors = self._nearest(index, words, scores)
        weights = self._fit(near, neighbors, scores)
        values, items = index.search(self.rows(words, scores, weights), k)
        for row in np.flatnonzero(near[:, 0] >= 1 - _EQUAL):
            equal = np.sort(neighbors[row][near[row] >= 1 - _EQUAL])
            others = ~np.isin(items[row], equal)
            items[row] = np.concatenate([equal, items[row][others]])[: items.shape[1]]
            values[row] = np.concatenate([np.ones(len(equal)), values[row][others]])[: items.shape[1]]
        return values, items, weights

    @staticmethod
    def are_equal(similarity: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether items of these similarities by words have the same words, so that `search` gives them the score 1."""
        return similarity >= 1 - _EQUAL

    def class_weights(self, index: Any, words: Any, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how well the classes fit each query, from 0 to 1, by an index of the rows of all items."""
        return self._fit(*self._nearest(index, words, scores), scores)

    def _nearest(
        self, index: Any, words: Any, scores: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        return index.search(self.rows_alone(words, scores, "words"), self.settings.n_neighbors)

    def _fit(
        self, near: NDArray[np.float64], neighbors: NDArray[np.int64], scores: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return how well the classes fit, by the certainties of the items nearest by words and of the query."""
        squares = near**2
        totals = squares.sum(axis=1)
        certainty = (squares * self.certainty[neighbors]).sum(axis=1) / np.where(totals > 0, totals, 1)
        chances = softmax(self.settings.soft * scores)
        typical = chances @ self.typical.astype(np.float64)
        excess = self.settings.slope * (certainty / typical - self.settings.threshold)
        fit = (1 + np.tanh(excess / 2)) / 2  # the logistic function, which cannot overflow so
        return np.minimum(fit, self._most(chances, typical))

    def _most(self, chances: NDArray[np.float64], typical: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how well the classes can fit at most, by the certainty of the query above that of equal chances."""
        ones, by_chance = np.ones(len(chances)), 1 / chances.shape[1]
        above, room = np.maximum(chances.max(axis=1) - by_chance, 0), typical - by_chance
        ratio = np.divide(above, room, out=ones.copy(), where=room > 0)  # no room: no item is more certain
        limit = self.settings.own_certainty
        return np.divide(ratio, limit, out=ones, where=ratio < limit)


@dataclass(frozen=True)
class GroupBlend:
    """Similarity of items by words and by groups of words.

    An item has a unit vector of words w, and a unit vector g of the square roots of the relative frequencies of its
    groups. The score of an item x for a query q is

    ``v w_q·w_x + (1 - v) g_q·g_x``

    with the constant v (`word_weight`). Words find near duplicates; groups find more of the kind, also where two items
    have few words in common. Scores are from 0 to 1; items with the words of the query have the score 1.

    Rows of items are ``[w, g]``, and a query scales its two blocks, so that an index of the metric "inner" is searched
    by both, by words or by groups.

    Parameters
    ----------
    word_weight : float, default=0.5
        Of ten weights the one with the largest sum of precision at 10 and mean average precision on training parts of
        six newsgroups and of seven kinds of reviews, and on half of Corel-1k; ``benchmarks/search_weights.py`` prints
        the figures there, on the other halves, and on other data. From 0.3 to 0.6 they differ by about 0.01.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import BagIndex
    >>> from bagwise.retrieval.blends import GroupBlend
    >>> words, groups = np.eye(3), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> blend = GroupBlend(word_weight=0.25)
    >>> index = BagIndex("inner").add(blend.rows(words, groups))
    >>> blend.search(index, words[:1], groups[:1], k=3)[0]
    array([[1.  , 0.75, 0.  ]])
    """

    word_weight: float = 0.5

    def __post_init__(self) -> None:
        value = self.word_weight
        if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= 1:
            raise BagwiseError(f"word_weight must be a number from 0 to 1; got {value!r:.50}.")

    @classmethod
    def from_header(cls, header: Any) -> GroupBlend:
        """Read the blend from the header of a file, and check it."""
        if not isinstance(header, Mapping) or list(header) != ["word_weight"]:
            raise BagwiseError(f"its blend is {header!r:.100}; expected a number for word_weight.")
        try:
            return cls(**header)
        except BagwiseError as error:
            raise BagwiseError(f"its blend is damaged: {error}") from error

    def to_header(self) -> dict[str, Any]:
        """Give the constants by name."""
        return {"word_weight": self.word_weight}

    def rows(self, words: Any, groups: Any) -> Any:
        """Return words and groups of items side by side; sparse if words are."""
        return _beside(words, groups)

    def query_rows(self, words: Any, groups: Any, by: str = "both") -> Any:
        """Return rows of queries that search an index of `rows` by "both", by "words" or by "groups" alone."""
        of_words = {"both": self.word_weight, "words": 1.0, "groups": 0.0}[by]
        return _beside(words * of_words, groups * (1 - of_words))

    def search(
        self, index: Any, words: Any, groups: Any, k: int, by: str = "both"
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Find the k best items for each query, see `BagIndex.search`."""
        best: tuple[NDArray[np.float64], NDArray[np.int64]] = index.search(self.query_rows(words, groups, by), k)
        return best


def _beside(words: Any, *others: Any) -> Any:
    """Return matrices side by side: CSR if the first is sparse."""
    if not sp.issparse(words):
        return np.concatenate([words, *(one.toarray() if sp.issparse(one) else one for one in others)], axis=1)
    return sp.hstack([sp.csr_array(one) for one in (words, *others)], format="csr")
