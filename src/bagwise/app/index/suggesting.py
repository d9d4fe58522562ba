"""Which items to label next: centres of clusters first, then items that a classifier is unsure of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.arrays import unit_rows
from bagwise._utils.checks import check_integer
from bagwise.app.options import FitOptions
from bagwise.app.training.few_labels import scores_beside_groups
from bagwise.app.training.method import fitting_svms
from bagwise.codebooks.kmeans import kmeans
from bagwise.errors import BagwiseError, argument

if TYPE_CHECKING:
    from bagwise.app.index.item_index import ItemIndex

__all__ = ["N_CENTRES", "ItemSuggester", "Suggestion", "suggest_items"]

# Clusters whose centres are labelled first.
N_CENTRES = 15
# Groups by which items are clustered, and that help a classifier of few labels.
_N_GROUPS = 50
# Different items of a cluster, on average.
_LEAST_OF_CLUSTER = 3
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
        """Cluster items by k-means, into fewer clusters if there would be fewer than three different items in each.

        Rows of zeros are items without words.
        """
        n_distinct = len(np.unique(rows, axis=0))
        n_clusters = min(check_integer(n_clusters, "n_clusters", 1), max(1, n_distinct // _LEAST_OF_CLUSTER))
        clustered = kmeans(rows, n_clusters, n_init=3, random_state=random_state)
        sums = np.zeros((n_clusters, rows.shape[1]))
        np.add.at(sums, clustered.labels, rows)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
        return cls(rows, clustered.labels, np.einsum("ij,ij->i", rows, centres[clustered.labels]))

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


class Suggestion(NamedTuple):
    """An item to label next: its id, the class that it would get, and the one it may be instead; None: no class yet."""

    id: str
    predicted: str | None
    runner_up: str | None


def suggest_items(index: ItemIndex, n: int, labels: Mapping[str, str | None] | None = None) -> list[Suggestion]:
    """Suggest items of an index to label next; see `ItemIndex.suggest`."""
    from bagwise.app.index.index_words import IndexedWords

    n = check_integer(n, "n", 1)
    words = IndexedWords.of(index)
    if words is None:
        what = "words" if index.index.metric == "inner" else f"the metric {index.index.metric!r}"
        raise BagwiseError(
            f"Items to label are found by weighted words, but this index compares items by {index.by} with {what}. "
            f"Index them anew, by {argument('by', 'both')}."
        )
    model, number = index.model, {id: k for k, id in enumerate(index.ids)}
    if labels is None:
        labels = {id: label for id, label in zip(index.ids, index.labels, strict=True) if label is not None}
    strange = [id for id in labels if id not in number]
    if strange:
        raise BagwiseError(
            f"{len(strange)} labels are of items that the index does not have, the first of {strange[0]!r}."
        )
    size = min(_N_GROUPS, model.flattened or model.hierarchy.n_words)
    cut = model if model.n_groups == size or size < model.hierarchy.min_groups else model.cut(size)
    groups = words.features(cut, ("l1", "power"))
    groups = unit_rows(np.asarray(groups.toarray() if sp.issparse(groups) else groups, np.float64))
    known = np.zeros(len(index), bool)
    known[[number[id] for id in labels]] = True
    label_of = {number[id]: label for id, label in labels.items() if label}
    classes = sorted(set(label_of.values()))
    scores = None
    if len(classes) > 1:
        rows = words.words(np.ones(len(index), bool))
        norms = sp.linalg.norm(rows, axis=1)
        rows = sp.csr_array(sp.diags_array(np.divide(1, norms, out=np.zeros_like(norms), where=norms > 0)) @ rows)
        labelled = np.array(sorted(label_of), np.intp)
        codes = np.array([classes.index(label_of[k]) for k in labelled.tolist()])
        with fitting_svms():
            scores = scores_beside_groups(rows, groups, labelled, codes, FitOptions())
    two = None if scores is None else np.sort(scores, axis=1)[:, -2:]
    chosen = ItemSuggester.of(groups).suggest(n, known, None if two is None else two[:, 1] - two[:, 0])
    if scores is None:
        return [Suggestion(index.ids[k], classes[0] if classes else None, None) for k in chosen.tolist()]
    order = np.argsort(-scores[chosen], axis=1, kind="stable")
    return [
        Suggestion(index.ids[k], classes[first], classes[second])
        for k, (first, second) in zip(chosen.tolist(), order[:, :2].tolist(), strict=True)
    ]
