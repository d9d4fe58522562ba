"""Clusterings of the items of a collection at several scales, to merge words by where there are no classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.extmath import randomized_svd

from bagwise._utils.arrays import unit_rows
from bagwise._utils.matrices import is_whole
from bagwise.codebooks.kmeans import kmeans_words, no_report
from bagwise.codebooks.normalizing import WordWeighting, inverse_document_frequencies
from bagwise.errors import BagwiseError

__all__ = ["MOST_CLUSTERED", "WEIGHTINGS", "Clusterings", "sampled_rows"]

WEIGHTINGS = ("auto", "tfidf", "hellinger")
# Items that clusterings are learned from; of more, as many are drawn.
MOST_CLUSTERED = 20_000
# Directions that items are projected to.
_DIRECTIONS = 50
# Steps of the power method: more change nothing but the time.
_STEPS = 5
# A clustering has at most one cluster for so many items.
_LEAST_SIZE = 5
# Whole counts of which at most this fraction are not zero are those of words in texts.
_MOSTLY_ZEROS = 1 / 3
# k-means of a clustering: one start, to convergence.
_MOST_STEPS, _TOLERANCE = 100, 1e-4
# Items that are assigned at a time.
_BLOCK = 1 << 13

Values = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Clusterings:
    """Clusterings of items by k-means in few dimensions, which give any item its clusters.

    1. Words are weighted, by TF-IDF or as square roots of relative frequencies.
    2. Items are projected to the first 50 singular vectors of the weighted words, and brought to length 1.
    3. k-means groups them into so many clusters, once for each scale.

    Attributes
    ----------
    weighting : WordWeighting
    directions : ndarray of shape (n_words, n_directions), or None
        None: there are no more words than directions.
    centres : tuple of ndarray, each of shape (n_clusters, n_directions)
        Of each clustering.
    """

    weighting: WordWeighting
    directions: Values | None
    centres: tuple[Values, ...]

    @classmethod
    def fit(
        cls,
        X: Any,
        scales: Sequence[int],
        *,
        weighting: str | WordWeighting = "auto",
        random_state: Any = 0,
        n_threads: int = 1,
        progress: Callable[[int, int], Any] = no_report,
    ) -> Clusterings:
        """Cluster the distinct items of X that have words, dense or CSR, at each scale.

        Copies of an item count once, and the order of items and of words does not matter, but for rounding. Scales of
        more than a fifth of the items are left out. If none is left there is one clustering, of a fifth as many
        clusters as items, at least two.
        """
        progress(0, len(scales) + 1)
        rows = distinct_items(X)
        X = X[rows]
        how = weighting if isinstance(weighting, WordWeighting) else _weighting(weighting, X)
        weighted = how.apply(X.astype(np.float64))
        # An order that comes from the items themselves: seeds are drawn by position.
        order = np.argsort(weighted @ np.asarray(weighted.sum(axis=0)).ravel(), kind="stable")
        weighted = weighted[order]
        seed = int(check_random_state(random_state).randint(2**31))
        directions = None
        n_items, n_words = weighted.shape
        if n_words > _DIRECTIONS:
            # Random numbers are drawn for items, whose order is known, not for words.
            few = min(_DIRECTIONS, n_items)
            factors = randomized_svd(weighted, few, n_iter=_STEPS, transpose=True, random_state=seed)
            directions = np.ascontiguousarray(factors[2].T)
        points = unit_rows(_projected(weighted, directions))
        points = points[np.square(points).sum(axis=1) > 0]
        n = len(points)
        if n == 0:
            raise BagwiseError("Items can be clustered only if some have words, but all of X is zero.")
        used = [scale for scale in scales if scale * _LEAST_SIZE <= n] or [min(max(n // _LEAST_SIZE, 2), n)]
        how_far: dict[str, Any] = {"max_iter": _MOST_STEPS, "tol": _TOLERANCE, "n_jobs": n_threads, "fewer": True}
        centres = []
        for k, scale in enumerate(used):
            progress(k + 1, len(used) + 1)
            centres.append(np.asarray(kmeans_words(points, scale, random_state=seed + scale, **how_far).words))
        progress(len(used) + 1, len(used) + 1)
        return cls(how, directions, tuple(centres))

    @property
    def n_clusters(self) -> int:
        """Number of clusters of all clusterings together."""
        return sum(map(len, self.centres))

    def codes(self, X: Any) -> NDArray[np.int64]:
        """Return the nearest cluster of each item in each clustering, shape (n_items, n_clusterings).

        Clusters of all clusterings are numbered one after the other.
        """
        firsts = np.cumsum([0, *map(len, self.centres)])
        labels = np.empty((X.shape[0], len(self.centres)), dtype=np.int64)
        halves = [0.5 * np.square(centres).sum(axis=1) for centres in self.centres]
        for start in range(0, X.shape[0], _BLOCK):
            rows = slice(start, start + _BLOCK)
            points = unit_rows(_projected(self.weighting.apply(X[rows].astype(np.float64)), self.directions))
            for k, (centres, half) in enumerate(zip(self.centres, halves, strict=True)):
                labels[rows, k] = firsts[k] + np.argmin(half - points @ centres.T, axis=1)
        return labels


def sampled_rows(n_items: int, random_state: Any = 0) -> NDArray[np.int64]:
    """Draw the items that clusterings are learned from, ascending; all of them if there are not many."""
    if n_items <= MOST_CLUSTERED:
        return np.arange(n_items)
    random = check_random_state(random_state)
    return np.sort(random.choice(n_items, MOST_CLUSTERED, replace=False)).astype(np.int64)


def distinct_items(X: Any) -> NDArray[np.int64]:
    """Return the first row of each distinct one of X, a dense or canonical CSR matrix."""
    if sp.issparse(X):
        parts = pairwise(X.indptr.tolist())
        keys = (blake2b(X.indices[a:b].tobytes() + X.data[a:b].tobytes(), digest_size=16).digest() for a, b in parts)
    else:
        keys = (blake2b(row.tobytes(), digest_size=16).digest() for row in X)
    first: dict[bytes, int] = {}
    for number, key in enumerate(keys):
        first.setdefault(key, number)
    return np.fromiter(first.values(), dtype=np.int64, count=len(first))


def _weighting(name: str, X: Any) -> WordWeighting:
    if name == "auto":
        n_filled = X.nnz if sp.issparse(X) else np.count_nonzero(X)
        words = n_filled <= _MOSTLY_ZEROS * X.shape[0] * X.shape[1] and is_whole(X)
        name = "tfidf" if words else "hellinger"
    if name == "hellinger":
        return WordWeighting("sqrt", None, "l2")
    return WordWeighting("log", inverse_document_frequencies(X), "l2")


def _projected(weighted: Any, directions: Values | None) -> Values:
    if directions is not None:
        return np.asarray(weighted @ directions)
    return weighted.toarray() if sp.issparse(weighted) else weighted
