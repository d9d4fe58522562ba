"""`ItemClusters`: clusters of the items of an index, with names and reasons, kept in its file."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._io.tensors import tensor
from bagwise._utils.arrays import unit_rows
from bagwise._utils.text import english_stop_words
from bagwise.app.index.cluster_history import (
    HISTORY_TENSORS,
    ClusterEdit,
    check_name,
    history_of_parts,
    history_to_parts,
)
from bagwise.app.index.item_map import MOST_CLUSTERS
from bagwise.app.modalities import MODALITIES
from bagwise.app.model.explanation import sum_cells
from bagwise.app.model.model import Model
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.clustering import ClusteredRows, ClusterNumbers

__all__ = ["CLUSTER_METHODS", "CLUSTER_TENSORS", "Agreement", "Cluster", "ClusterTerm", "ItemClusters"]
__all__ += ["cluster_features", "clusters_by_words", "unique_names"]

CLUSTER_METHODS = ("kmeans", "spectral", "manifold")
CLUSTER_TENSORS = {
    "cluster_labels": tensor("int32", "n_items", low=-1, optional=True),
    "cluster_certainty": tensor("float32", "n_items", low=0, high=1, finite=True, optional=True),
    "cluster_distances": tensor("float32", "n_items", low=0, finite=True, optional=True),
    "cluster_centers": tensor("float32", "n_clusters", "n_cluster_features", finite=True, optional=True),
    "cluster_scale": tensor("float32", "n_cluster_features", low=0, finite=True, optional=True),
    "cluster_cohesion": tensor("float32", "n_clusters", low=0, high=1, finite=True, optional=True),
    "cluster_terms": tensor("int32", "n_clusters", "n_cluster_terms", low=-1, optional=True),
    "cluster_shares": tensor("float32", "n_clusters", "n_cluster_terms", 2, finite=True, optional=True),
} | HISTORY_TENSORS
TERMS = ("words", "groups", "columns")
_N_TERMS = 12
_N_TYPICAL = 3
_WORDS_IN_NAME = 3
_LONGEST_NAME = 200
_FEWEST_WITH = 2  # items of a cluster that have a word that names it
# Words that say how a text was sent or quoted, not what it is about.
_HEADER_WORDS = frozenset(
    re.findall(
        r"\w+",
        """subject from lines organization organisation nntp posting host reply path xref newsgroups message date sender
        distribution references summary keywords expires followup originator disclaimer article articles writes wrote
        edu com org net gov mil uucp www http https html cc fw fwd cs don doesn didn isn wasn aren couldn wouldn
        shouldn hasn haven hadn won ain ve ll re amp nbsp quot gt lt br""",
    )
)


class ClusterTerm(NamedTuple):
    """What is frequent in a cluster and rare elsewhere: a word, a group of words, or a column.

    Attributes
    ----------
    name : str
    number : int
        Of the word, group or column in the model.
    inside, outside : float
        For words of texts the fraction of the items that have it, in the cluster and among all others; for other words
        and groups its mean relative frequency; for columns of measurements the mean in standard deviations from the
        mean of all items.
    """

    name: str
    number: int
    inside: float
    outside: float

    @property
    def lift(self) -> float:
        """How many times as frequent it is inside; infinite if it does not occur outside."""
        return self.inside / self.outside if self.outside > 0 else float("inf")


class Agreement(NamedTuple):
    """How clusters agree with labels that were not used: normalised mutual information, adjusted Rand index."""

    nmi: float
    ari: float
    n_items: int
    n_classes: int


@dataclass(frozen=True)
class Cluster:
    """A cluster for people, see `ItemClusters.describe`.

    Attributes
    ----------
    number : int
    name : str
    is_named : bool
        Whether someone gave the name.
    size : int
    cohesion : float
        From 0 to 1: how much nearer its items are to its centre than to the mean of all items, by squared distances.
    terms : tuple of ClusterTerm
        What tells it from the others, the strongest first.
    typical : tuple of int
        Three items near its centre, all different, after the most central one.
    central, outermost : int
        The items nearest to and farthest from its centre, by their numbers.
    certainty : float
        The mean over its items.
    """

    number: int
    name: str
    is_named: bool
    size: int
    cohesion: float
    terms: tuple[ClusterTerm, ...]
    typical: tuple[int, ...]
    central: int
    outermost: int
    certainty: float


@dataclass(frozen=True, eq=False)
class ItemClusters:
    """Clusters of the items of an index. No labels are used.

    Attributes
    ----------
    method : {"kmeans", "spectral", "manifold"}
    labels : ndarray of int32, shape (n_items,)
        Numbers of clusters from 0, the largest first when they were made; -1 for items without words, of which nothing
        is known.
    certainty : ndarray of float32, shape (n_items,)
        See `bagwise.clustering.cluster_rows`; 0 for items without words.
    distances : ndarray of float32, shape (n_items,)
        From the centre of the cluster.
    centers : ndarray of float32, shape (n_clusters, n_features)
        Means of the features that `cluster_features` computes.
    scale : ndarray of float32, shape (n_features,), or None
        What sums of measurements are multiplied by; None for words, whose rows have unit length.
    sharpness : float
    cohesion : ndarray of float32, shape (n_clusters,)
    terms : ndarray of int32, shape (n_clusters, n_terms)
        Numbers of words, groups or columns; -1 behind the last one.
    shares : ndarray of float32, shape (n_clusters, n_terms, 2)
        See `ClusterTerm`.
    terms_of : {"words", "groups", "columns"}
    names : tuple of str
        Made from the terms, all different.
    groups : int
        Checksum of the groups that the features are of, see `fits`.
    given_names : dict of int to str
        Names that people gave.
    numbers : ClusterNumbers or None
        Evidence for the number of clusters, if it was suggested.
    agreement : Agreement or None
        With labels that were not used.
    edits : tuple of ClusterEdit
        What people changed, see `ItemIndex.apply`.
    """

    method: str
    labels: NDArray[np.int32]
    certainty: NDArray[np.float32]
    distances: NDArray[np.float32]
    centers: NDArray[np.float32]
    sharpness: float
    cohesion: NDArray[np.float32]
    terms: NDArray[np.int32]
    shares: NDArray[np.float32]
    terms_of: str
    names: tuple[str, ...]
    groups: int
    scale: NDArray[np.float32] | None = None
    given_names: Mapping[int, str] = field(default_factory=dict)
    numbers: ClusterNumbers | None = None
    agreement: Agreement | None = None
    edits: tuple[ClusterEdit, ...] = ()

    def __len__(self) -> int:
        return len(self.centers)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of items of each cluster."""
        return np.bincount(self.labels[self.labels >= 0], minlength=len(self))

    def fits(self, model: Model) -> bool:
        """Whether the centres are of the groups that a model has now, which may have been edited."""
        return self.groups == _checksum(model) and self.centers.shape[1] == model.layout.width(model.n_groups)

    def name(self, number: int) -> str:
        """Return the name of a cluster: that which someone gave it, or that made from its terms."""
        return self.given_names.get(number, self.names[number])

    @classmethod
    def of(
        cls,
        model: Model,
        features: NDArray[np.float32],
        words: Any,
        clustered: ClusteredRows,
        known: NDArray[np.bool_],
        method: str,
        *,
        scale: NDArray[np.float32] | None = None,
        numbers: ClusterNumbers | None = None,
        ids: Sequence[str] = (),
    ) -> ItemClusters:
        """Describe clusters of items.

        Parameters
        ----------
        model : Model
        features : ndarray of shape (n_items, n_features)
            See `cluster_features`.
        words : CSR array or ndarray of shape (n_items, n_cells * d), or None
            Weighted words of the items, not negative; None: clusters are named by groups.
        clustered : ClusteredRows
            Clusters of ``features[known]``.
        known : ndarray of bool, shape (n_items,)
            Items with words.
        method : str
        scale, numbers
            As in the attributes.
        ids : sequence of str, default=()
            Of the items: clusters of pictures, whose words have no names, are named after the most central item.
        """
        n_items = len(features)
        labels = np.full(n_items, -1, np.int32)
        certainty, distances = np.zeros(n_items, np.float32), np.zeros(n_items, np.float32)
        labels[known], certainty[known] = clustered.labels, clustered.certainty
        rows, centers = features[known], clustered.centers
        distances[known] = np.sqrt(((rows - centers[clustered.labels]) ** 2).sum(axis=1))
        about = _distinctive(model, features, words, labels, len(centers), scale is not None)
        made = cls(
            method=method,
            labels=labels,
            certainty=certainty,
            distances=distances,
            centers=centers.astype(np.float32),
            sharpness=clustered.sharpness,
            cohesion=_cohesion(rows, clustered.labels, centers),
            terms=about[0],
            shares=about[1],
            terms_of=about[2],
            names=("",) * len(centers),
            groups=_checksum(model),
            scale=scale,
            numbers=numbers,
        )
        return replace(made, names=_named(made, model, ids))

    def describe(self, model: Model) -> list[Cluster]:
        """Return all clusters, with what there is to show of them; empty ones too.

        Parameters
        ----------
        model : Model
            Which names words, groups and columns.
        """
        names, described = self.term_names(model), []
        sizes = self.sizes.tolist()
        for number in range(len(self)):
            inside = np.flatnonzero(self.labels == number)
            order = inside[np.argsort(self.distances[inside], kind="stable")]
            different = order[np.unique(self.distances[order], return_index=True)[1]] if len(order) else order
            terms = tuple(
                ClusterTerm(names[term], term, *map(float, self.shares[number, k]))
                for k, term in enumerate(self.terms[number].tolist())
                if term >= 0
            )
            described.append(
                Cluster(
                    number,
                    self.name(number),
                    number in self.given_names,
                    sizes[number],
                    float(self.cohesion[number]),
                    terms,
                    tuple(different[1 : 1 + _N_TYPICAL].tolist()),
                    int(order[0]) if len(order) else -1,
                    int(order[-1]) if len(order) else -1,
                    float(self.certainty[inside].mean()) if len(inside) else 0.0,
                )
            )
        return described

    def shares_of(
        self, model: Model, features: NDArray[np.float32], words: Any, terms: Sequence[int]
    ) -> NDArray[np.float64]:
        """Return how frequent some terms are in each cluster, shape (n_clusters, n_terms); see `ClusterTerm`.

        `features` and `words` are those of `of`.
        """
        known = self.labels >= 0
        rows, _ = _term_rows(model, features, words, known, self.scale is not None)
        sums = _sums_by_cluster(rows[:, list(terms)], self.labels[known], len(self))
        return sums / np.maximum(self.sizes, 1)[:, np.newaxis]

    def term_names(self, model: Model) -> Sequence[str]:
        """Return the names of all terms of a model: words, groups or columns."""
        if self.terms_of == "groups":
            titles = [group.title for group in model.describe_groups()]
            known = int(self.terms.max(initial=-1)) + 1  # of a model with more groups, before it was edited
            return [*titles, *(f"group {number}" for number in range(len(titles), known))]
        return model.word_names or [f"x{k}" for k in range(model.hierarchy.n_words)]

    def assign(self, features: NDArray[np.float32], known: NDArray[np.bool_]) -> ItemClusters:
        """Return the clusters of further items alone: that of the nearest centre; -1 for those that are not `known`."""
        from bagwise.clustering import center_probabilities  # deferred: with scikit-learn

        n = len(features)
        labels, certainty, distances = np.full(n, -1, np.int32), np.zeros(n, np.float32), np.zeros(n, np.float32)
        rows = features[known].astype(np.float64)
        centers = self.centers.astype(np.float64)
        probabilities = center_probabilities(rows, centers, self.sharpness)
        nearest = probabilities.argmax(axis=1)
        labels[known], certainty[known] = nearest, probabilities[np.arange(len(nearest)), nearest]
        distances[known] = np.sqrt(((rows - centers[nearest]) ** 2).sum(axis=1))
        return replace(self, labels=labels, certainty=certainty, distances=distances)

    def joined_with(self, other: ItemClusters) -> ItemClusters:
        """Return the clusters of these items and of others that were assigned to them."""
        return replace(
            self,
            labels=np.concatenate([self.labels, other.labels]),
            certainty=np.concatenate([self.certainty, other.certainty]),
            distances=np.concatenate([self.distances, other.distances]),
        )

    def taken(self, numbers: NDArray[np.int64]) -> ItemClusters:
        """Return the clusters of some of the items."""
        labels, certainty, distances = self.labels[numbers], self.certainty[numbers], self.distances[numbers]
        places = np.full(len(self.labels), -1, np.int64)
        places[numbers] = np.arange(len(numbers))
        edits = tuple(edit.taken(places) for edit in self.edits)
        return replace(self, labels=labels, certainty=certainty, distances=distances, agreement=None, edits=edits)

    def renamed(self, number: int, name: str) -> ItemClusters:
        """Return the clusters with a name for one of them; "" takes a given name back."""
        if not 0 <= number < len(self):
            raise BagwiseError(f"Clusters are numbered from 0 to {len(self) - 1}; there is no cluster {number}.")
        given_names = {k: one for k, one in self.given_names.items() if k != number}
        if name:
            check_name(name, f"cluster {number}")
            if any(name == self.name(k) for k in range(len(self)) if k != number):
                raise BagwiseError(f"Names of clusters must differ, but {name!r} is that of another one.")
            given_names[number] = name
        return replace(self, given_names=dict(sorted(given_names.items())))

    def compared_with(self, labels: Sequence[str | None]) -> ItemClusters:
        """Return the clusters with their agreement with labels that were not used; None for items without one."""
        from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

        both = [k for k, label in enumerate(labels) if label is not None and self.labels[k] >= 0]
        classes = [labels[k] for k in both]
        if len(set(classes)) < 2:
            return replace(self, agreement=None)
        clusters = self.labels[both]
        nmi, ari = (float(score(classes, clusters)) for score in (normalized_mutual_info_score, adjusted_rand_score))
        return replace(self, agreement=Agreement(nmi, ari, len(both), len(set(classes))))

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the members of a header and the tensors of a file."""
        numbers = self.numbers
        header = {
            "method": self.method,
            "sharpness": self.sharpness,
            "terms_of": self.terms_of,
            "groups": self.groups,
            "names": list(self.names),
            "given_names": {str(number): name for number, name in self.given_names.items()},
            "numbers": None
            if numbers is None
            else [list(numbers.sizes), list(numbers.stability), list(numbers.standard_errors)],
            "agreement": None if self.agreement is None else list(self.agreement),
        }
        header["edits"], moved = history_to_parts(self.edits)
        tensors = {
            "cluster_labels": self.labels,
            "cluster_certainty": self.certainty,
            "cluster_distances": self.distances,
            "cluster_centers": self.centers,
            "cluster_cohesion": self.cohesion,
            "cluster_terms": self.terms,
            "cluster_shares": self.shares,
            **moved,
        }
        return header, tensors if self.scale is None else tensors | {"cluster_scale": self.scale}

    @classmethod
    def from_parts(cls, header: Any, tensors: Mapping[str, NDArray[Any]], model: Model) -> ItemClusters | None:
        """Undo `to_parts`, for tensors that `CLUSTER_TENSORS` accepts; None without clusters. Errors begin with its."""
        has = [name for name in CLUSTER_TENSORS if name in tensors]
        if header is None and not has:
            return None
        expected = {
            "method",
            "sharpness",
            "terms_of",
            "groups",
            "names",
            "given_names",
            "numbers",
            "agreement",
            "edits",
        }
        needed = CLUSTER_TENSORS.keys() - {"cluster_scale", *HISTORY_TENSORS}
        if not isinstance(header, Mapping) or header.keys() != expected or needed - set(has):
            raise BagwiseError(f"its clusters are {header!r:.100}, with the tensors {has}.")
        values = {name: tensors[f"cluster_{name}"] for name in ("labels", "certainty", "distances", "centers")}
        values |= {name: tensors[f"cluster_{name}"] for name in ("cohesion", "terms", "shares")}
        n, n_terms = len(values["centers"]), model.hierarchy.n_words
        if not 1 <= n <= MOST_CLUSTERS:
            raise BagwiseError(f"it has {n} clusters; 1 to {MOST_CLUSTERS} are accepted.")
        if values["labels"].max(initial=-1) >= n or values["terms"].max(initial=-1) >= n_terms:
            raise BagwiseError(
                f"its clusters number up to {values['labels'].max(initial=-1)} of {n}, or their words do."
            )
        sharpness = header["sharpness"]
        if header["method"] not in CLUSTER_METHODS or header["terms_of"] not in TERMS:
            raise BagwiseError(f"its clusters have method {header['method']!r:.50}, by {header['terms_of']!r:.50}.")
        if type(sharpness) is not float or not 0 < sharpness < 1e6:
            raise BagwiseError(f"its clusters have sharpness {sharpness!r:.50}.")
        if type(header["groups"]) is not int:
            raise BagwiseError(f"its clusters have groups {header['groups']!r:.50}; expected a checksum.")
        names, given_names = header["names"], _read_given(header["given_names"], n)
        if not isinstance(names, list) or len(names) != n or not all(type(name) is str for name in names):
            raise BagwiseError(f"its clusters have names {names!r:.100}; expected {n}.")
        for name in (*names, *given_names.values()):
            check_name(name, "its clusters")
        return cls(
            method=header["method"],
            sharpness=sharpness,
            terms_of=header["terms_of"],
            names=tuple(names),
            groups=header["groups"],
            scale=tensors.get("cluster_scale"),
            given_names=given_names,
            numbers=_read_numbers(header["numbers"]),
            agreement=_read_agreement(header["agreement"]),
            edits=history_of_parts(header["edits"], tensors, n, len(values["labels"])),
            **values,
        )


def cluster_features(
    model: Model, histograms: Any, scale: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.float32] | None]:
    """Return what items are clustered by, which of them have words, and the scale of measurements.

    Square roots of the relative frequencies of groups of weighted words, rows of unit length; an index that compares
    items by words gives the same. Of measurements, sums of scaled columns of each group, divided by their ranges.

    Parameters
    ----------
    model : Model
    histograms : CSR array or ndarray of shape (n_items, n_cells * d)
        Counts of words.
    scale : ndarray of shape (n_features,), default=None
        That of clusters that new items are assigned to; None: learned from these items.

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> model = Model(modality="table", hierarchy=Hierarchy(2, [], []), n_groups=2)
    >>> cluster_features(model, np.array([[9.0, 16], [0, 0]]))[0].tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    if model.column_shift is None:
        grouped = model.group(histograms, normalize=("l1", "power"))
        features = np.asarray(grouped.toarray() if sp.issparse(grouped) else grouped, np.float32)
        if not model.layout.is_plain:
            features = unit_rows(features)
        return features, np.asarray(features.any(axis=1)), None
    features = model.group(histograms, normalize=())
    features = np.asarray(features.toarray() if sp.issparse(features) else features, np.float32)
    if scale is None:
        ranges = np.ptp(features, axis=0) if len(features) else np.ones(features.shape[1], np.float32)
        scale = np.divide(1, ranges, out=np.zeros_like(ranges), where=ranges > 0).astype(np.float32)
    return features * scale, np.ones(len(features), np.bool_), scale


def _checksum(model: Model) -> int:
    """Return a checksum of the groups of a model."""
    return zlib.crc32(np.ascontiguousarray(model.lookup, dtype="<i8").tobytes())


def _cohesion(rows: NDArray[Any], labels: NDArray[np.intp], centers: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return, for each cluster, 1 - the squared distances from its centre by those from the mean of all items."""
    n = len(centers)
    within = np.bincount(labels, ((rows - centers[labels]) ** 2).sum(axis=1), minlength=n)
    whole = np.bincount(labels, ((rows - rows.mean(axis=0)) ** 2).sum(axis=1), minlength=n)
    return np.clip(1 - np.divide(within, whole, out=np.ones(n), where=whole > 0), 0, 1).astype(np.float32)


def clusters_by_words(model: Model) -> bool:
    """Whether clusters of a model's items are named by words, or columns, and not by groups of words without names."""
    return not MODALITIES[model.modality].learns_words and model.word_hashes is None


def _term_rows(
    model: Model, features: NDArray[np.float32], words: Any, known: NDArray[np.bool_], measured: bool
) -> tuple[Any, str]:
    """Return what the items have of each term, and the kind of terms, see `ClusterTerm`."""
    if words is None or not clusters_by_words(model):
        return sum_cells(np.square(features[known].astype(np.float64)), model.n_groups), "groups"
    rows = words[known]
    if measured:
        rows = np.asarray(rows.toarray() if sp.issparse(rows) else rows, np.float64)
        deviations = rows.std(axis=0)
        return np.divide(rows - rows.mean(axis=0), deviations, out=np.zeros_like(rows), where=deviations > 0), "columns"
    if MODALITIES[model.modality].terms_by_presence:
        rows = sp.csr_array(rows)
        rows = sp.csr_array(((rows.data != 0).astype(np.float64), rows.indices, rows.indptr), rows.shape)
    return rows, "words"


def _distinctive(
    model: Model, features: NDArray[np.float32], words: Any, labels: NDArray[np.int32], n: int, measured: bool
) -> tuple[NDArray[np.int32], NDArray[np.float32], str]:
    """Return what tells each cluster from the others: numbers of terms, their shares inside and outside, their kind."""
    known = labels >= 0
    rows, of = _term_rows(model, features, words, known, measured)
    texts = of == "words" and MODALITIES[model.modality].terms_by_presence and model.word_names is not None
    sums, sizes = _sums_by_cluster(rows, labels[known], n), np.bincount(labels[known], minlength=n)[:, np.newaxis]
    others = max(int(known.sum()), 1) - sizes
    inside = np.divide(sums, sizes, out=np.zeros_like(sums), where=sizes > 0)
    outside = np.divide(sums.sum(axis=0) - sums, others, out=np.zeros_like(sums), where=others > 0)
    if of == "columns":
        strength = np.abs(inside - outside)
    else:
        smooth = 0.5 / np.maximum(sizes + others, 1) if texts else 1e-12 + inside.max(axis=1, keepdims=True) * 1e-3
        strength = inside * np.log((inside + smooth) / (outside + smooth))
    if texts:
        strength[sums < np.minimum(sizes, _FEWEST_WITH)] = 0
        strength[:, ~_may_name(model.word_names or ())] = 0
    terms = np.full((n, _N_TERMS), -1, np.int32)
    shares = np.zeros((n, _N_TERMS, 2), np.float32)
    for k in range(n):
        best = np.argsort(-strength[k], kind="stable")[: 4 * _N_TERMS]
        best = best[strength[k, best] > 0]
        if texts:
            best = _without_forms(best, model.word_names or ())
        best = best[:_N_TERMS]
        terms[k, : len(best)] = best
        shares[k, : len(best)] = np.stack([inside[k, best], outside[k, best]], axis=1)
    return terms, shares, of


def _sums_by_cluster(rows: Any, labels: NDArray[np.int32], n: int) -> NDArray[np.float64]:
    indicator = sp.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))), shape=(n, len(labels)))
    sums = indicator @ rows
    return np.asarray(sums.toarray() if sp.issparse(sums) else sums, np.float64)


def _may_name(names: Sequence[str]) -> NDArray[np.bool_]:
    """Whether words may name a cluster: no stop words, words of mail headers, or words that begin with a digit."""
    stop = english_stop_words() | _HEADER_WORDS
    told = ((name.lower(), name) for name in names)
    return np.array(
        [low not in stop and not any(letter.isdigit() for letter in name[:2]) for low, name in told], np.bool_
    )


def _without_forms(terms: NDArray[np.intp], names: Sequence[str]) -> NDArray[np.intp]:
    """Leave out words of which another form, one or two letters longer or shorter, comes first: keys after key."""
    kept: list[int] = []
    for term in terms.tolist():
        word = names[term]
        forms = (names[other] for other in kept)
        if not any(
            abs(len(word) - len(form)) <= 2
            and min(len(word), len(form)) >= 3
            and (word[: len(form)] == form[: len(word)])
            for form in forms
        ):
            kept.append(term)
    return np.array(kept, np.intp)


def _named(clusters: ItemClusters, model: Model, ids: Sequence[str]) -> tuple[str, ...]:
    """Name clusters by their first terms; those of pictures after the most central item. All names differ."""
    stems = []
    for one in clusters.describe(model):
        first = one.terms[:_WORDS_IN_NAME]
        if clusters.terms_of == "columns":
            stem = ", ".join(f"{'high' if term.inside > term.outside else 'low'} {term.name}" for term in first[:2])
        elif clusters.terms_of == "groups" and ids and one.central >= 0:
            stem = f"like {ids[one.central]}"
        else:
            stem = ", ".join(term.name for term in first)
        stem = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in stem)
        stem = stem[: _LONGEST_NAME - 10].strip() or f"cluster {one.number}"
        stems.append(stem)
    return unique_names(stems)


def unique_names(names: Sequence[str], given_names: Mapping[int, str] = MappingProxyType({})) -> tuple[str, ...]:
    """Return names that differ from each other and from those that people gave: others get numbers.

    >>> unique_names(["cat", "cat", "dog"], {0: "dog"})
    ('cat', 'cat #2', 'dog #2')
    """
    unique: dict[str, None] = {}
    taken = set(given_names.values())
    for stem in names:
        name, count = stem, 1
        while name in unique or name in taken:
            count += 1
            name = f"{stem} #{count}"
        unique[name] = None
    return tuple(unique)


def _read_given(given_names: Any, n: int) -> dict[int, str]:
    known = {str(number): number for number in range(n)}
    if not isinstance(given_names, Mapping) or not given_names.keys() <= known.keys():
        raise BagwiseError(f"its clusters have the given names {given_names!r:.100}; there are {n} clusters.")
    return {known[number]: name for number, name in given_names.items()}


def _read_numbers(numbers: Any) -> ClusterNumbers | None:
    if numbers is None:
        return None
    from bagwise.clustering import ClusterNumbers  # deferred: with scikit-learn

    sound = isinstance(numbers, list) and len(numbers) == 3 and all(isinstance(row, list) for row in numbers)
    if not sound or not 1 <= len(numbers[0]) == len(numbers[1]) == len(numbers[2]) <= MOST_CLUSTERS:
        raise BagwiseError(f"its clusters have the stability {numbers!r:.100}.")
    sizes, *values = numbers
    if not all(type(size) is int and 1 <= size <= MOST_CLUSTERS for size in sizes) or sizes != sorted(set(sizes)):
        raise BagwiseError(f"its clusters have the stability at {sizes!r:.100} clusters.")
    if not all(type(value) is float and -1 <= value <= 1 for row in values for value in row):
        raise BagwiseError(f"its clusters have the stability {values!r:.100}; expected numbers up to 1.")
    return ClusterNumbers(tuple(sizes), tuple(values[0]), tuple(values[1]))


def _read_agreement(agreement: Any) -> Agreement | None:
    if agreement is None:
        return None
    sound = isinstance(agreement, list) and [type(one) for one in agreement] == [float, float, int, int]
    if not sound or not all(-1 <= one <= 1 for one in agreement[:2]) or min(agreement[2:]) < 0:
        raise BagwiseError(f"its clusters have the agreement {agreement!r:.100}.")
    return Agreement(*agreement)
