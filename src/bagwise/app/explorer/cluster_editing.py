"""`ClusterEditing`: what the editor of an explorer needs to edit the clusters of items, and to measure them."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise.app.explorer.items import Items
from bagwise.app.index.cluster_edits import ClusterMeasured, edit_clusters, measure_clusters, undo_cluster_edit
from bagwise.app.index.cluster_history import CLUSTER_EDITS
from bagwise.app.index.index_words import IndexedWords
from bagwise.app.index.item_clusters import ItemClusters
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.index.item_map import MOST_CLUSTERS
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.index.clustering import ClusterData

__all__ = ["ClusterEditing", "clusters_of"]

_KEPT = 8  # clusters whose measures are kept


def clusters_of(index: ItemIndex | None, items: Items | None) -> ItemClusters | None:
    """Return the clusters of an index, if they are of the items that are shown."""
    if index is None or items is None or tuple(items.ids) != index.ids:
        return None
    return index.clusters


class ClusterEditing:
    """Edits the clusters of an index; what they are made of is computed once for each grouping of words.

    Parameters
    ----------
    items : Items or None
        The items that are shown: their counts are used where the index does not hold their words.
    """

    def __init__(self, items: Items | None) -> None:
        self.items = items
        self._data: tuple[bytes, ClusterData] | None = None
        self._measured: OrderedDict[bytes, ClusterMeasured] = OrderedDict()
        self._lock = threading.RLock()

    @property
    def _counts(self) -> Any:
        """Counts of the words of the items; None if only the index knows them."""
        return None if self.items is None else self.items.histograms

    def of_all(self, index: ItemIndex) -> bool:
        """Whether the items that are shown are those of the index."""
        return self.items is not None and tuple(self.items.ids) == index.ids

    def why_not(self, index: ItemIndex | None) -> str:
        """Say why clusters cannot be made or divided; "" if they can."""
        if index is None:
            return "Clusters are kept in an index. Make one by: bagwise cluster SOURCE"
        if not self.of_all(index):
            return "The items that are shown are not those of the index, whose clusters are left alone."
        indexed = index.model.column_shift is None and (IndexedWords.of(index) is not None or index.by == "groups")
        if not indexed and self._counts is None:
            return f"This index of items compared by {index.described} does not hold what they are clustered by."
        return ""

    def kinds(self, index: ItemIndex | None) -> tuple[str, ...]:
        """Return the kinds of edits that are not refused."""
        if clusters_of(index, self.items) is None:
            return ()
        return ("rename_cluster",) if self.why_not(index) else tuple(CLUSTER_EDITS)

    def data(self, index: ItemIndex) -> ClusterData:
        """Return what the items of an index are clustered by."""
        from bagwise.app.index.clustering import cluster_data

        if problem := self.why_not(index):
            raise BagwiseError(problem)
        key = hashlib.blake2b(index.model.lookup.tobytes(), digest_size=16).digest()
        with self._lock:
            if self._data is None or self._data[0] != key:
                self._data = key, cluster_data(index, self._counts)
            return self._data[1]

    def edited(self, index: ItemIndex, edit: Mapping[str, Any]) -> ItemClusters:
        """Return the clusters after an edit."""
        named = edit.get("edit") == "rename_cluster"
        return edit_clusters(index, edit, None if named else self.data(index))

    def undone(self, index: ItemIndex) -> ItemClusters:
        """Return the clusters before their last edit, of an earlier session."""
        assert index.clusters is not None
        named = index.clusters.edits[-1].edit["edit"] == "rename_cluster"
        return undo_cluster_edit(index, None if named else self.data(index))

    def found(self, index: ItemIndex, n_clusters: int | None) -> ItemClusters:
        """Cluster the items anew; None: into the most stable number of clusters."""
        data = self.data(index)  # raises an error where that is not possible
        most = min(int(data.known.sum()), MOST_CLUSTERS)
        if n_clusters is not None and n_clusters > most:
            raise BagwiseError(f"At most {most:,} clusters can be made of these items; got {n_clusters:,}.")
        made = index.with_clusters(n_clusters, histograms=self._counts).clusters
        assert made is not None
        return made.compared_with(index.labels)

    def measured(self, index: ItemIndex, clusters: ItemClusters) -> ClusterMeasured | None:
        """Return how well clusters can be told from words; None where that is not known."""
        if self.why_not(index):
            return None
        key = hashlib.blake2b(index.model.lookup.tobytes() + np.asarray(clusters.labels).tobytes(), digest_size=16)
        name = key.digest()
        with self._lock:
            if name not in self._measured:
                self._measured[name] = measure_clusters(replace(index, clusters=clusters), self.data(index))
                while len(self._measured) > _KEPT:
                    self._measured.popitem(last=False)
            self._measured.move_to_end(name)
            return self._measured[name]
