"""Clusters of features, for the command line."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from bagwise._io.atomic import write_atomically
from bagwise.cli.printing import printable
from bagwise.clustering import METHODS, SpectralClusterer
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["cluster_features", "describe_clusters", "write_clusters"]

_EXAMPLES = 3


def cluster_features(features: Any, n_clusters: int, method: str, seed: int) -> NDArray[np.int64]:
    """Cluster rows by k-means or spectral clustering; clusters are numbered from 0, the largest first."""
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    n = features.shape[0]
    if n_clusters > n:
        raise BagwiseError(f"There are only {n} items, too few for {n_clusters} clusters. Give at most {n}.")
    if method == "kmeans":
        found = KMeans(n_clusters, n_init=10, random_state=seed).fit(features).labels_
    else:
        dense = features.toarray() if hasattr(features, "toarray") else features
        found = SpectralClusterer(n_clusters, random_state=seed, n_jobs=-1).fit(dense).labels_
    sizes = np.bincount(found, minlength=n_clusters)
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[found]


def describe_clusters(labels: NDArray[np.int64], collection: Any) -> list[tuple[int, int, str]]:
    """Number, size and a few ids of each cluster."""
    ids = collection.ids
    rows = []
    for k in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == k)
        rows.append((k, len(members), ", ".join(printable(ids[i]) for i in members[:_EXAMPLES])))
    return rows


def write_clusters(path: Path, labels: NDArray[np.int64], collection: Any) -> None:
    """Write a CSV file with id, cluster and label."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["id", "cluster", "label"])
    for item, k in zip(collection, labels.tolist(), strict=True):
        writer.writerow([item.id, k, "|".join(item.labels)])
    write_atomically(path, text.getvalue().encode("utf-8", "backslashreplace"))
