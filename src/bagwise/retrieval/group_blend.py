"""Similarity by words and by groups in one inner product, for models without a classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError

__all__ = ["GroupBlend"]


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
    >>> from bagwise.retrieval.group_blend import GroupBlend
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
        found: tuple[NDArray[np.float64], NDArray[np.int64]] = index.search(self.query_rows(words, groups, by), k)
        return found


def _beside(words: Any, groups: Any) -> Any:
    """Return two matrices side by side: CSR if the first is sparse."""
    if not sp.issparse(words):
        return np.concatenate([words, groups.toarray() if sp.issparse(groups) else groups], axis=1)
    return sp.hstack([sp.csr_array(words), sp.csr_array(groups)], format="csr")
