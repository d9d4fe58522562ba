"""Which items to label next: centres of clusters first, then items that a classifier is unsure of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import check_integer
from bagwise.codebooks.kmeans import kmeans
from bagwise.errors import BagwiseError

__all__ = ["N_CENTRES", "ItemSuggester"]

# Clusters whose centres are labelled first.
N_CENTRES = 15
# An item is not suggested beside another one of at least this cosine.
_DUPLICATE = 0.98


@dataclass(frozen=True, eq=False)
class ItemSuggester:
    """Suggest items to label, a handful at a time.

    1. Items are clustered once, without labels. While a cluster has no item that is known, its most central item comes
       first, that of the largest cluster before others.
    2. Then come the items between whose two highest scores the least lies, each from another cluster as long as there
       are any. Without scores, as with labels of one class only, the next most central items of the clusters with the
       fewest known ones come.

    Near duplicates of an item that is suggested at the same time, or is known, are left out where there are others.

    Attributes
    ----------
    rows : ndarray of shape (n_items, n_features)
        Features of unit length.
    clusters : ndarray of shape (n_items,)
        Numbers of clusters from 0.
    closeness : ndarray of shape (n_items,)
        Cosine of each item and the centre of its cluster.

    Examples
    --------
    >>> import numpy as np
    >>> angles = np.array([0.0, 0.1, 0.2, 1.3, 1.4, 1.5])
    >>> suggester = ItemSuggester.of(np.column_stack([np.cos(angles), np.sin(angles)]), 2)
    >>> known = np.zeros(6, bool)
    >>> suggester.suggest(2, known).tolist()  # the middle of each cluster
    [1, 4]
    >>> known[[1, 4]] = True
    >>> suggester.suggest(1, known, margins=np.array([2.0, 1.9, 0.3, 0.4, 1.8, 2.0])).tolist()
    [2]
    """

    rows: NDArray[Any]
    clusters: NDArray[np.intp]
    closeness: NDArray[np.float64]

    @classmethod
    def of(cls, rows: NDArray[Any], n_clusters: int = N_CENTRES, random_state: int = 0) -> Self:
        """Cluster items by k-means; rows of zeros are items without words."""
        n_clusters = min(check_integer(n_clusters, "n_clusters", 1), len(np.unique(rows, axis=0)))
        found = kmeans(rows, n_clusters, n_init=3, random_state=random_state)
        sums = np.zeros((n_clusters, rows.shape[1]))
        np.add.at(sums, found.labels, rows)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
        return cls(rows, found.labels, np.einsum("ij,ij->i", rows, centres[found.labels]))

    def suggest(self, n: int, known: NDArray[np.bool_], margins: NDArray[np.float64] | None = None) -> NDArray[np.intp]:
        """Return the numbers of items to label next, in this order; fewer if fewer are left.

        Parameters
        ----------
        n : int
        known : ndarray of bool, shape (n_items,)
            Items that have a label, or were skipped.
        margins : ndarray of shape (n_items,), default=None
            Difference between the two highest scores of a classifier. None: there is none yet.
        """
        check_integer(n, "n", 1)
        for name, values in (("known", known), ("margins", margins)):
            if values is not None and np.shape(values) != (len(self.rows),):
                what = f"{name} must have one entry for each of {len(self.rows)} items"
                raise BagwiseError(f"{what}; got shape {np.shape(values)}.")
        sizes = np.bincount(self.clusters)
        n_known = np.bincount(self.clusters[known], minlength=len(sizes))
        left = np.flatnonzero(~known)
        order = left[np.argsort(-self.closeness[left], kind="stable")]
        new = order[(n_known[self.clusters[order]] == 0) & (_turns(self.clusters[order]) == 0)]
        new = new[np.argsort(-sizes[self.clusters[new]], kind="stable")]
        if margins is None:
            turns = _turns(self.clusters[order]) + n_known[self.clusters[order]]
        else:
            order = left[np.argsort(margins[left], kind="stable")]
            turns = _turns(self.clusters[order])
        return self._different(np.concatenate([new, order[np.argsort(turns, kind="stable")]]), n, known)

    def _different(self, candidates: NDArray[np.intp], n: int, known: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Take the first n candidates, near duplicates of known or taken ones only where there are no others."""
        seen, chosen, duplicates = self.rows[known], dict[int, None](), dict[int, None]()
        for item in candidates.tolist():
            if len(chosen) == n:
                break
            row = self.rows[item]
            others = (seen @ row, self.rows[list(chosen)] @ row)
            into = duplicates if max(map(np.max, filter(len, others)), default=0.0) >= _DUPLICATE else chosen
            if item not in chosen:
                into[item] = None
        return np.array([*chosen, *(item for item in duplicates if item not in chosen)][:n], np.intp)


def _turns(clusters: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return how many items of the same cluster come before each.

    >>> _turns(np.array([4, 7, 4, 4, 7])).tolist()
    [0, 0, 1, 2, 1]
    """
    order = np.argsort(clusters, kind="stable")
    _, first, sizes = np.unique(clusters[order], return_index=True, return_counts=True)
    turns = np.empty(len(clusters), np.intp)
    turns[order] = np.arange(len(clusters)) - np.repeat(first, sizes)
    return turns
