"""Edits of clusters of items: named, joined and split clusters, items moved between them; measured, and undone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.text import quoted
from bagwise.app.index.cluster_history import CLUSTER_EDITS, ClusterEdit, numbers_after_join
from bagwise.app.index.item_clusters import Agreement, ItemClusters, unique_names
from bagwise.app.training.item_answers import Measured
from bagwise.errors import BagwiseError, unknown_name

if TYPE_CHECKING:
    from bagwise.app.index.clustering import ClusterData
    from bagwise.app.index.item_index import ItemIndex

__all__ = ["ClusterMeasured", "described_edit", "edit_clusters", "measure_clusters", "undo_cluster_edit"]
__all__ += ["with_edited"]

_FOLDS = 5
_NAMED = 3  # clusters that are told


@dataclass(frozen=True, eq=False)
class ClusterMeasured(Measured):
    """How well clusters can be told from the words of items.

    Attributes
    ----------
    error, standard_error : float
        Fraction of items that the nearest centre, of clusters without a fifth of the items that these are in, puts into
        another cluster, and its standard error: as new items would be. A single cluster has 0; one of several kinds,
        whose centre lies between them, loses items to others.
    protocol : str
    n_clusters : int
        Those with items.
    cohesion : float
        1 - the squared distances of items from their centres by those from the mean of all; more clusters have larger
        ones.
    agreement : Agreement or None
        With labels that were not used, if there are any.
    """

    n_clusters: int
    cohesion: float
    agreement: Agreement | None


def edit_clusters(index: ItemIndex, edit: Mapping[str, Any], data: ClusterData | None = None) -> ItemClusters:
    """Return the clusters of an index after an edit; see `ItemIndex.apply`.

    `data` is what items are clustered by; it must be given for indexes that do not hold it, but for names.
    """
    clusters = _clusters(index)
    made = _checked(edit)
    kind = made["edit"]
    if kind == "rename_cluster":
        number = _number(clusters, made["cluster"])
        renamed = clusters.renamed(number, "" if made["name"] is None else made["name"])
        return replace(renamed, edits=_with(index, clusters, made, np.zeros((0, 2), np.int32)))
    data = _data(index, data)
    labels, given_names, n = clusters.labels.copy(), dict(clusters.given_names), len(clusters)
    if kind == "join_clusters":
        made["clusters"] = numbers = sorted({_number(clusters, one) for one in _listed(made, "clusters")})
        if len(numbers) < 2:
            raise BagwiseError(f"At least two different clusters are joined, got {made['clusters']}.")
        sizes = clusters.sizes
        named = sorted((number for number in numbers if number in given_names), key=lambda one: -sizes[one])
        name = given_names[named[0]] if named else None  # that of the largest cluster that has one
        shifted = numbers_after_join(n, numbers)
        n -= len(numbers) - 1
        labels = np.where(labels >= 0, shifted[labels], -1).astype(np.int32)
        given_names = {int(shifted[k]): one for k, one in given_names.items() if k not in numbers}
        given_names |= {} if name is None else {numbers[0]: name}
        moved = np.flatnonzero(np.isin(clusters.labels, numbers[1:]))
    elif kind == "split_cluster":
        from bagwise.clustering import cluster_rows  # deferred: with scikit-learn

        number = _number(clusters, made["cluster"])
        inside = np.flatnonzero(labels == number)
        if len(np.unique(data.features[inside], axis=0)) < 2:
            raise BagwiseError(f"“{clusters.name(number)}” cannot be split: all of its items have the same words.")
        parts = cluster_rows(data.features[inside], 2, random_state=0).labels  # the larger one keeps its number
        moved = inside[parts == 1]
        labels[moved], n = n, n + 1
    else:
        moved = _moved(index, clusters, made)
        del made["items"]
        labels[moved] = n if made["to"] is None else made["to"]
        n += made["to"] is None
    before = np.stack([moved, clusters.labels[moved]], axis=1).astype(np.int32)
    return _described(index, labels, n, given_names, data, _with(index, clusters, made, before))


def undo_cluster_edit(index: ItemIndex, data: ClusterData | None = None) -> ItemClusters:
    """Return the clusters of an index before their last edit; see `ItemIndex.undo`.

    Items that were added to the index after the edit stay in the cluster that they are in; those of one that the edit
    made go to the one that most of its items came from.
    """
    clusters = _clusters(index)
    if not clusters.edits:
        raise BagwiseError("There is no edit of the clusters to undo.")
    last, edits = clusters.edits[-1], clusters.edits[:-1]
    kind, n = last.edit["edit"], len(clusters)
    if kind == "rename_cluster":
        return replace(clusters, given_names=dict(last.given_names), edits=edits)
    labels = clusters.labels.copy()
    if kind == "join_clusters":
        numbers = last.edit["clusters"]
        shifted = numbers_after_join(last.n_before(n), numbers)
        former = np.array([np.flatnonzero(shifted == number)[0] for number in range(n)], np.int32)
        labels = np.where(labels >= 0, former[labels], -1).astype(np.int32)
    elif kind == "split_cluster" or last.edit["to"] is None:
        from_ = last.moved[:, 1]
        labels[labels == n - 1] = int(np.bincount(from_).argmax()) if len(from_) else 0
    labels[last.moved[:, 0]] = last.moved[:, 1]
    return _described(index, labels, last.n_before(n), last.given_names, _data(index, data), edits)


def with_edited(index: ItemIndex, clusters: ItemClusters | None) -> ItemIndex:
    """Return an index with other clusters of its items, also on its map."""
    places = index.map
    if places is not None and clusters is not None:
        places = replace(places, clusters=np.where(places.clusters < 0, -1, clusters.labels).astype(np.int16))
    return replace(index, clusters=clusters, map=places)


def described_edit(edit: Mapping[str, Any], clusters: ItemClusters | None = None) -> str:
    """Say in words what an edit of clusters does; `clusters` are those before it, without which they have numbers.

    >>> described_edit({"edit": "join_clusters", "clusters": [3, 7]})
    'Joined cluster 3 and cluster 7'
    """

    def named(number: int) -> str:
        return f"cluster {number}" if clusters is None else f"“{clusters.name(number)}”"

    kind = edit["edit"]
    if kind == "rename_cluster":
        name = edit["name"]
        told = named(edit["cluster"])
        return f"Took back the name of {told}" if name is None else f"Named {told} “{name}”"
    if kind == "join_clusters":
        first = [named(number) for number in edit["clusters"][:_NAMED]]
        rest = len(edit["clusters"]) - len(first)
        names = [*first, f"{rest} more"] if rest else first
        return f"Joined {', '.join(names[:-1])} and {names[-1]}"
    if kind == "split_cluster":
        return f"Split {named(edit['cluster'])}"
    n = f"{len(edit['items']):,} item{'' if len(edit['items']) == 1 else 's'}" if "items" in edit else "items"
    return f"Moved {n} to {'a new cluster' if edit['to'] is None else named(edit['to'])}"


def measure_clusters(index: ItemIndex, data: ClusterData | None = None) -> ClusterMeasured:
    """Measure how well the clusters of an index can be told from the words of its items, by cross-validation.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import ItemIndex, fit_model
    >>> counts = np.array([[9, 1, 0], [8, 2, 0], [0, 1, 9], [0, 2, 8]] * 5)
    >>> rows = Collection.from_matrix(counts, [str(k) for k in range(20)], [()] * 20)
    >>> index = ItemIndex.build(fit_model(rows, n_groups=3), rows, counts).with_clusters(2)
    >>> measure_clusters(index).error
    0.0
    """
    clusters, data = _clusters(index), _data(index, data)
    known = clusters.labels >= 0
    rows, labels = data.features[known].astype(np.float64), clusters.labels[known]
    folds = np.random.default_rng(0).permutation(np.arange(len(rows)) % _FOLDS)
    sums, sizes = _sums(rows, labels, len(clusters)), np.bincount(labels, minlength=len(clusters))
    wrong = np.zeros(len(rows), np.bool_)
    for fold in range(_FOLDS):
        tested = folds == fold
        left = sizes - np.bincount(labels[tested], minlength=len(clusters))
        centers = (sums - _sums(rows[tested], labels[tested], len(clusters))) / np.maximum(left, 1)[:, np.newaxis]
        scores = rows[tested] @ centers.T - 0.5 * (centers**2).sum(axis=1)
        scores[:, left == 0] = -np.inf
        wrong[tested] = scores.argmax(axis=1) != labels[tested]
    error = float(wrong.mean()) if len(wrong) else 0.0
    centers = sums / np.maximum(sizes, 1)[:, np.newaxis]
    whole = float(((rows - rows.mean(axis=0)) ** 2).sum()) if len(rows) else 0.0
    within = float(((rows - centers[labels]) ** 2).sum())
    return ClusterMeasured(
        error=error,
        standard_error=float(np.sqrt(error * (1 - error) / max(len(wrong), 1))),
        protocol=f"{_FOLDS}-fold cross-validation of the nearest centre",
        n_clusters=int((sizes > 0).sum()),
        cohesion=1 - within / whole if whole > 0 else 1.0,
        agreement=clusters.compared_with(index.labels).agreement,
    )


def _clusters(index: ItemIndex) -> ItemClusters:
    if index.clusters is None:
        raise BagwiseError("The index has no clusters. Make them by: bagwise cluster INDEX")
    return index.clusters


def _data(index: ItemIndex, data: ClusterData | None) -> ClusterData:
    from bagwise.app.index.clustering import cluster_data

    return cluster_data(index) if data is None else data


def _checked(edit: Mapping[str, Any]) -> dict[str, Any]:
    kind = edit.get("edit") if isinstance(edit, Mapping) else None
    if not isinstance(kind, str):
        example = '{"edit": "join_clusters", "clusters": [3, 7]}'
        raise BagwiseError(f"An edit of clusters must be an object such as {example}; got {edit!r:.200}.")
    if kind not in CLUSTER_EDITS:
        raise unknown_name("edit", kind, CLUSTER_EDITS)
    if edit.keys() != {"edit", *CLUSTER_EDITS[kind]}:
        members = ", ".join(CLUSTER_EDITS[kind])
        raise BagwiseError(f"The edit {kind!r} must have {members}; got {edit!r:.200}.")
    return dict(edit)


def _number(clusters: ItemClusters, number: Any) -> int:
    if type(number) is not int or not 0 <= number < len(clusters):
        raise BagwiseError(f"Clusters are numbered from 0 to {len(clusters) - 1}; got {number!r:.50}.")
    return number


def _listed(edit: Mapping[str, Any], name: str) -> Sequence[Any]:
    values = edit[name]
    if not isinstance(values, list):
        raise BagwiseError(f"{name} must be a list; got {values!r:.100}.")
    return values


def _moved(index: ItemIndex, clusters: ItemClusters, edit: dict[str, Any]) -> NDArray[np.intp]:
    """Return the items that an edit moves, by their numbers; check that they can be."""
    ids = _listed(edit, "items")
    if not ids or not all(isinstance(one, str) for one in ids):
        raise BagwiseError(f"items must be a list of ids; got {ids!r:.100}.")
    if edit["to"] is not None:
        edit["to"] = _number(clusters, edit["to"])
    wanted = set(ids)
    moved = np.array([number for number, id in enumerate(index.ids) if id in wanted], np.intp)
    if len(moved) < len(wanted):
        there = {index.ids[number] for number in moved.tolist()}
        missing = [id for id in dict.fromkeys(ids) if id not in there]
        raise BagwiseError(f"{len(missing):,} of {len(wanted):,} items are not in the index: {quoted(missing)}.")
    unknown = [index.ids[number] for number in moved.tolist() if clusters.labels[number] < 0]
    if unknown:
        raise BagwiseError(
            f"Items without words of the vocabulary are in no cluster: {quoted(unknown)}. Leave them out."
        )
    moved = moved[clusters.labels[moved] != edit["to"]] if edit["to"] is not None else moved
    left = clusters.sizes - np.bincount(clusters.labels[moved], minlength=len(clusters))
    emptied = np.flatnonzero((left == 0) & (clusters.sizes > 0)).tolist()
    if not len(moved):
        raise BagwiseError(f"These items are in “{clusters.name(edit['to'])}” already.")
    if emptied:
        whole = f"These are all items of “{clusters.name(emptied[0])}”"
        raise BagwiseError(f"{whole}. {'It is a cluster' if edit['to'] is None else 'Join it with the other'} instead.")
    return moved


def _with(
    index: ItemIndex, clusters: ItemClusters, edit: Mapping[str, Any], moved: NDArray[np.int32]
) -> tuple[ClusterEdit, ...]:
    return (*clusters.edits, ClusterEdit(edit, dict(clusters.given_names), moved, len(index.model.edits)))


def _sums(rows: NDArray[np.float64], labels: NDArray[Any], n: int) -> NDArray[np.float64]:
    indicator = sp.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(n, len(labels)))
    return np.asarray(indicator @ rows)


def _described(
    index: ItemIndex,
    labels: NDArray[np.int32],
    n: int,
    given_names: Mapping[int, str],
    data: ClusterData,
    edits: tuple[ClusterEdit, ...],
) -> ItemClusters:
    """Return clusters of other items: their centres, terms, names and certainties are computed anew."""
    from bagwise.clustering import ClusteredRows, center_probabilities  # deferred: with scikit-learn

    clusters = _clusters(index)
    known = labels >= 0
    known_labels, rows = labels[known].astype(np.intp), data.features[known].astype(np.float64)
    centers = _sums(rows, known_labels, n) / np.maximum(np.bincount(known_labels, minlength=n), 1)[:, np.newaxis]
    certainty = center_probabilities(rows, centers, clusters.sharpness)[np.arange(len(known_labels)), known_labels]
    made = ItemClusters.of(
        index.model,
        data.features,
        data.words,
        ClusteredRows(known_labels, certainty, centers, clusters.sharpness),
        known,
        clusters.method,
        scale=data.scale,
        numbers=clusters.numbers,
        ids=index.ids,
    )
    names = unique_names(made.names, given_names)
    made = replace(made, names=names, given_names=dict(sorted(given_names.items())), edits=edits)
    return made if clusters.agreement is None else made.compared_with(index.labels)
