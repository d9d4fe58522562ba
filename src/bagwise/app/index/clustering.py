"""Clusters of items: from a source to an index with clusters, features, the method, items that come later."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.arrays import unit_rows
from bagwise._utils.checks import check_integer
from bagwise.app.index.index_words import IndexedWords
from bagwise.app.index.item_clusters import CLUSTER_METHODS, ItemClusters, cluster_features
from bagwise.app.index.item_index import ItemIndex, index_of_fit
from bagwise.app.index.item_map import MOST_CLUSTERS
from bagwise.app.modalities.vectorizers import Progress, no_progress
from bagwise.app.options import FitOptions
from bagwise.app.training.fit import Fit, run_fit
from bagwise.clustering import ClusteredRows, SpectralClusterer, cluster_rows, suggest_n_clusters
from bagwise.errors import BagwiseError, argument, parameter_name, unknown_name
from bagwise.sources.collection import Collection

__all__ = ["ClusterData", "ClusteredFit", "assigned", "cluster_data", "cluster_source", "compared_with_labels"]
__all__ += ["with_assigned", "with_clusters"]


@dataclass(frozen=True)
class ClusteredFit:
    """A fit without classes, and the index of its items with their clusters."""

    fit: Fit
    index: ItemIndex


def cluster_source(
    source: Any,
    options: FitOptions | None = None,
    n_clusters: int | None = None,
    *,
    method: str = "auto",
    progress: Progress | None = None,
    client: Any = None,
) -> ClusteredFit:
    """Learn words and groups from the items of a source without using labels, and cluster the items.

    Parameters
    ----------
    source : Collection or path
        See `open_collection`. Splits are not used either: all items are clustered.
    options : FitOptions, default=None
    n_clusters : int, default=None
        None: the most stable number, see `bagwise.clustering.suggest_n_clusters`.
    method : {"auto", "kmeans", "spectral", "manifold"}, default="auto"
        See `ItemIndex.with_clusters`. "manifold", for images and videos and a given number of clusters: words are
        learned by `ManifoldBagOfFeatures`, 128 unless the options say how many, and not merged unless the options give
        a number of groups.
    progress : callable, default=None
        See `fit_model`.
    client : distributed.Client, default=None
        Workers of this Dask cluster read the items and count their words; they are clustered in this process.

    Returns
    -------
    found : ClusteredFit
        ``found.index.clusters`` are the clusters, with their agreement with labels unless items have several.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import FitOptions, cluster_source
    >>> counts = np.array([[4, 1, 0, 0], [5, 2, 0, 1], [1, 0, 5, 2], [0, 0, 4, 3]])
    >>> rows = Collection.from_matrix(counts, list("abcd"), [()] * 4, feature_names=["bean", "pea", "nut", "bolt"])
    >>> index = cluster_source(rows, FitOptions(n_groups=3), 2).index
    >>> [(cluster.size, cluster.terms[0].name) for cluster in index.clusters.describe(index.model)]
    [(2, 'bean'), (2, 'nut')]
    """
    options = FitOptions() if options is None else options
    if method == "manifold" and n_clusters is None:
        raise BagwiseError(
            f"{argument('method', 'manifold')} learns words for a number of clusters: give it by "
            f"{argument('n_clusters')}. Without it, use {argument('method', 'kmeans')}."
        )
    n_components = n_clusters if method == "manifold" else None
    fit = run_fit(source, options, use_classes=False, n_components=n_components, progress=progress, client=client)
    started = time.perf_counter()
    index = index_of_fit(fit, None, source, options).with_clusters(
        n_clusters,
        method=method,
        histograms=fit.data.histograms,
        random_state=options.random_state,
        n_jobs=options.n_jobs,
        progress=progress,
    )
    assert index.clusters is not None
    index = compared_with_labels(index, fit.data.collection)
    fit.timings["clustering"] = time.perf_counter() - started
    return ClusteredFit(fit, index)


def compared_with_labels(index: ItemIndex, collection: Collection) -> ItemIndex:
    """Return an index with the agreement of its clusters with the labels of its items; none if items have several."""
    if index.clusters is None or any(len(labels) > 1 for labels in collection.label_sets):
        return index
    return replace(index, clusters=index.clusters.compared_with(index.labels))


@dataclass(frozen=True, eq=False)
class ClusterData:
    """What the items of an index are clustered by.

    Attributes
    ----------
    features : ndarray of float32, shape (n_items, n_features)
        See `cluster_features`.
    known : ndarray of bool, shape (n_items,)
        Items with words.
    scale : ndarray of float32, shape (n_features,), or None
        Of measurements.
    words : CSR array or ndarray of shape (n_items, n_cells * d), or None
        Weighted words, scaled columns of measurements; None if the index does not hold them.
    """

    features: NDArray[np.float32]
    known: NDArray[np.bool_]
    scale: NDArray[np.float32] | None
    words: Any


def cluster_data(index: ItemIndex, histograms: Any = None) -> ClusterData:
    """Return what the items of an index are clustered by; see `ItemIndex.with_clusters`.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import fit_model
    >>> rows = Collection.from_matrix(np.array([[4, 0, 0], [0, 0, 9]]), list("ab"), [()] * 2)
    >>> index = ItemIndex.build(fit_model(rows, n_groups=3), rows, rows.X)
    >>> cluster_data(index).features.tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    model = index.model
    if histograms is not None:
        features, known, scale = cluster_features(model, histograms)
        return ClusterData(features, known, scale, _weighted(index, histograms))
    indexed = IndexedWords.of(index)
    if indexed is not None:
        features = _dense(indexed.features(model, ("l1", "power")))
        words: Any = indexed.words(np.ones(len(index), np.bool_))
    elif index.by == "groups" and model.column_shift is None and index.metric == "hellinger":
        blocks = [_dense(block.rows()) for block in index.index.blocks()]
        features, words = np.concatenate([np.zeros((0, model.layout.width(model.n_groups)), np.float32), *blocks]), None
    else:
        what = "measurements" if model.column_shift is not None else f"words compared by {index.described}"
        raise BagwiseError(
            f"This index of {what} does not hold what items are clustered by. Give the items too: bagwise cluster "
            "MODEL SOURCE."
        )
    features = unit_rows(features)
    return ClusterData(features, np.asarray(features.any(axis=1)), None, words)


def _dense(rows: Any) -> NDArray[np.float32]:
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, np.float32)


def _weighted(index: ItemIndex, histograms: Any) -> Any:
    """Return weighted words: those that `IndexedWords` gives, or scaled measurements."""
    from bagwise.app.index.index_features import weighted_words, word_frequencies

    model = index.model
    if model.column_shift is not None:
        return model.weighting.apply(histograms)
    return weighted_words(model, histograms) if model.norm == "l2" else word_frequencies(model, histograms)


def with_clusters(
    index: ItemIndex,
    n_clusters: int | None,
    *,
    method: str = "auto",
    histograms: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> ItemIndex:
    """See `ItemIndex.with_clusters`."""
    if method not in ("auto", *CLUSTER_METHODS):
        raise unknown_name(parameter_name("method"), method, ("auto", *CLUSTER_METHODS))
    progress = no_progress if progress is None else progress
    progress("Clustering items", 0, 0)
    data = cluster_data(index, histograms)
    rows = data.features[data.known]
    if not len(rows):
        raise BagwiseError("No item has words of the vocabulary, so that there is nothing to cluster.")
    numbers = None
    if n_clusters is None:
        how: dict[str, Any] = {"random_state": random_state, "n_jobs": n_jobs}
        numbers = suggest_n_clusters(rows, progress=partial(progress, "Comparing numbers of clusters"), **how)
        n_clusters = numbers.suggested
    elif check_integer(n_clusters, parameter_name("n_clusters"), 1) > len(rows):
        few = f"{argument('n_clusters', n_clusters)}, but there are only {len(rows)} items with words"
        raise BagwiseError(f"{few}. Set at most {len(rows)}.")
    if n_clusters > MOST_CLUSTERS:
        raise BagwiseError(f"{argument('n_clusters', n_clusters)}, but at most {MOST_CLUSTERS:,} clusters are made.")
    made = partial(_clustered, data, n_clusters, random_state=random_state, n_jobs=n_jobs)
    method = "kmeans" if method == "auto" else method
    clustered = made(method)
    clusters = ItemClusters.of(
        index.model, data.features, data.words, clustered, data.known, method,
        scale=data.scale, numbers=numbers, ids=index.ids,
    )  # fmt: skip
    return replace(index, clusters=clusters)


def _clustered(
    data: ClusterData, n_clusters: int, method: str, *, random_state: int, n_jobs: int | None
) -> ClusteredRows:
    rows, labels = data.features[data.known], None
    if method == "spectral":
        labels = _spectral(rows, n_clusters, random_state, n_jobs).labels_
    return cluster_rows(rows, n_clusters, labels=labels, random_state=random_state, n_jobs=n_jobs)


def _spectral(rows: NDArray[np.float32], n_clusters: int, random_state: int, n_jobs: int | None) -> SpectralClusterer:
    metric = "hellinger" if (rows >= 0).all() else "euclidean"
    clusterer = SpectralClusterer(n_clusters, metric=metric, random_state=random_state, n_jobs=n_jobs)
    return clusterer.fit(rows**2 if metric == "hellinger" else rows)


def with_assigned(index: ItemIndex, histograms: Any) -> ItemClusters | None:
    """Return the clusters of an index with those of further items, which have the nearest centre; None without any."""
    clusters = index.clusters
    if clusters is None:
        return None
    return clusters.joined_with(assigned(index, histograms))


def assigned(index: ItemIndex, histograms: Any) -> ItemClusters:
    """Return the clusters of an index for other items alone: those of the nearest centres.

    Where groups have been edited since the clusters were made, centres are the means of the items' features now.
    """
    clusters = index.clusters
    if clusters is None:
        raise BagwiseError("The index has no clusters. Make them by: bagwise cluster INDEX")
    if not clusters.fits(index.model):
        data = cluster_data(index)
        rows = data.features.astype(np.float64)
        sizes = clusters.sizes
        indicator = sp.csr_array(
            (np.ones(int(sizes.sum())), (clusters.labels[clusters.labels >= 0], np.flatnonzero(clusters.labels >= 0))),
            shape=(len(clusters), len(rows)),
        )
        centers = np.asarray(indicator @ rows) / np.maximum(sizes, 1)[:, np.newaxis]
        clusters = replace(clusters, centers=centers.astype(np.float32))
    features, known, _ = cluster_features(index.model, histograms, clusters.scale)
    return clusters.assign(features, known)
