"""Quality measures of clusterings and rankings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn import metrics as sklearn_metrics
from sklearn.metrics import pairwise
from sklearn.metrics.cluster import contingency_matrix
from sklearn.utils import check_consistent_length

from bagwise._utils.text import how_many
from bagwise._utils.validation import check_array
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["average_precision", "clustering_report", "mean_average_precision", "precision_recall_curve", "purity"]

LEVELS = np.linspace(0.0, 1.0, 11)
_BLOCK_NUMBERS = 2**22
_DENOMINATORS = ("all", "returned", "min")
Distance = Callable[[Any, Any], NDArray[np.float64]]


def purity(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Fraction of samples that belong to the most frequent class of their cluster.

    Examples
    --------
    >>> from bagwise.metrics import purity
    >>> purity([0, 0, 1, 1], [5, 5, 5, 7])
    0.75
    """
    table = contingency_matrix(labels_true, labels_pred)
    return float(table.max(axis=0).sum() / table.sum())


def clustering_report(
    X: Any, labels_pred: ArrayLike, labels_true: ArrayLike | None = None, *, average_method: str = "arithmetic"
) -> dict[str, float]:
    """Compute several quality measures of a clustering.

    Parameters
    ----------
    X : array of shape (n, d)
        Features of the samples.
    labels_pred : array-like of shape (n,)
        Cluster of each sample.
    labels_true : array-like of shape (n,), default=None
        Class of each sample, for the measures that need it.
    average_method : {"arithmetic", "geometric", "min", "max"}, default="arithmetic"
        Mean of the two entropies in the normalised mutual information.

    Returns
    -------
    report : dict
        "calinski_harabasz" (larger is better), "silhouette" (larger), "davies_bouldin" (smaller), NaN if there is one
        cluster or every sample is a cluster; with classes also "rand", "adjusted_rand", "nmi" and "purity" (larger).

    Examples
    --------
    >>> from bagwise.metrics import clustering_report
    >>> report = clustering_report([[0.0], [0.1], [5.0], [5.1]], [0, 0, 1, 1], ["a", "a", "b", "b"])
    >>> report["purity"], report["adjusted_rand"]
    (1.0, 1.0)
    """
    X = check_array(X, accept_sparse="csr")
    labels = np.asarray(labels_pred)
    check_consistent_length(X, labels)
    report = dict.fromkeys(("calinski_harabasz", "silhouette", "davies_bouldin"), float("nan"))
    if 1 < len(np.unique(labels)) < len(labels):
        dense = X.toarray() if sp.issparse(X) else X
        report["calinski_harabasz"] = float(sklearn_metrics.calinski_harabasz_score(dense, labels))
        report["silhouette"] = float(sklearn_metrics.silhouette_score(X, labels))
        report["davies_bouldin"] = float(sklearn_metrics.davies_bouldin_score(dense, labels))
    if labels_true is not None:
        truth = np.asarray(labels_true)
        check_consistent_length(truth, labels)
        report["rand"] = float(sklearn_metrics.rand_score(truth, labels))
        report["adjusted_rand"] = float(sklearn_metrics.adjusted_rand_score(truth, labels))
        nmi = sklearn_metrics.normalized_mutual_info_score(truth, labels, average_method=average_method)
        report["nmi"] = float(nmi)
        report["purity"] = purity(truth, labels)
    return report


def average_precision(
    relevant: ArrayLike,
    n_relevant: int | None = None,
    *,
    interpolated: bool = True,
    cutoff: int | None = None,
    denominator: str = "all",
) -> float:
    """Average precision of one ranking.

    Parameters
    ----------
    relevant : array-like of bool
        Whether the item at each rank is relevant, best rank first.
    n_relevant : int, default=None
        Total number of relevant items. None: those in the ranking.
    interpolated : bool, default=True
        True: the mean over the recall levels 0, 0.1, …, 1 of the highest precision at any rank of at least that recall,
        0 if no rank reaches it. False: ``Σ_k precision(k) relevant(k) / R``.
    cutoff : int, default=None
        Number of ranks that count.
    denominator : {"all", "returned", "min"}, default="all"
        R without interpolation: all relevant items, those within the cutoff, or all up to the cutoff.

    Returns
    -------
    average : float
        0 if no relevant item is in the ranking; NaN if there is none at all.

    Examples
    --------
    >>> from bagwise.metrics import average_precision
    >>> average_precision([True, False, True], interpolated=False)
    0.8333333333333333
    """
    ranks = np.asarray(relevant, dtype=bool)
    if ranks.ndim != 1:
        raise BagwiseError(f"relevant must be one-dimensional, one ranking; got shape {ranks.shape}.")
    total = int(ranks.sum()) if n_relevant is None else n_relevant
    if total < ranks.sum():
        raise BagwiseError(f"n_relevant={n_relevant}, but the ranking has {int(ranks.sum())} relevant items.")
    return float(_average_precisions(ranks[np.newaxis], np.array([total]), interpolated, cutoff, denominator)[0])


def mean_average_precision(
    queries: Any,
    query_labels: ArrayLike,
    gallery: Any,
    gallery_labels: ArrayLike,
    *,
    metric: str | Distance = "euclidean",
    interpolated: bool = True,
    cutoff: int | None = None,
    denominator: str = "all",
) -> float:
    """Mean average precision (mAP) of retrieval by distance; items of the class of the query are relevant.

    Parameters
    ----------
    queries, gallery : arrays of shape (n, d) and (m, d)
        Dense or sparse.
    query_labels, gallery_labels : array-like
    metric : {"euclidean", "chi2", "cosine", "l1"} or callable, default="euclidean"
        Distance that ranks the gallery; ties keep its order. A callable takes two blocks of rows.
    interpolated, cutoff, denominator
        See `average_precision`.

    Returns
    -------
    mean : float
        Over the queries with a relevant item; NaN if there is none.

    Notes
    -----
    Queries are processed in blocks, so the n x m distances are never stored at once.

    Examples
    --------
    >>> from bagwise.metrics import mean_average_precision
    >>> mean_average_precision([[0.0], [1.0]], [0, 1], [[0.1], [0.9], [0.8]], [0, 1, 0])
    1.0
    """
    values = [
        _average_precisions(ranks, totals, interpolated, cutoff, denominator)
        for ranks, totals in _rankings(queries, query_labels, gallery, gallery_labels, metric)
    ]
    averages = np.concatenate(values)
    averages = averages[~np.isnan(averages)]
    return float(averages.mean()) if len(averages) else float("nan")


def precision_recall_curve(
    queries: Any,
    query_labels: ArrayLike,
    gallery: Any,
    gallery_labels: ArrayLike,
    *,
    metric: str | Distance = "euclidean",
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean interpolated precision of queries at recall 0, 0.1, …, 1; see `mean_average_precision`.

    Returns
    -------
    recall, precision : ndarrays of shape (11,)
    """
    total, n = np.zeros(len(LEVELS)), 0
    for ranks, totals in _rankings(queries, query_labels, gallery, gallery_labels, metric):
        some = totals > 0
        total += _interpolated_precisions(ranks[some], totals[some]).sum(axis=0)
        n += int(some.sum())
    return LEVELS.copy(), total / n if n else np.full(len(LEVELS), np.nan)


def _average_precisions(
    ranks: NDArray[np.bool_], totals: NDArray[np.int64], interpolated: bool, cutoff: int | None, denominator: str
) -> NDArray[np.float64]:
    """Average precision of each row of a matrix of rankings; NaN if nothing is relevant."""
    if denominator not in _DENOMINATORS:
        raise unknown_name("denominator", denominator, _DENOMINATORS)
    if cutoff is not None and cutoff < 1:
        raise BagwiseError(f"cutoff must be at least 1, or None; got {cutoff}.")
    ranks = ranks[:, :cutoff]
    if interpolated:
        averages = _interpolated_precisions(ranks, totals).mean(axis=1)
    else:
        hits = np.cumsum(ranks, axis=1)
        precision = hits / np.arange(1, ranks.shape[1] + 1)
        returned = ranks.sum(axis=1)
        R = {"all": totals, "returned": returned, "min": np.minimum(totals, cutoff or ranks.shape[1])}[denominator]
        averages = (precision * ranks).sum(axis=1) / np.maximum(R, 1)
    return np.where(totals > 0, averages, np.nan)


def _interpolated_precisions(ranks: NDArray[np.bool_], totals: NDArray[np.int64]) -> NDArray[np.float64]:
    """Highest precision at any rank of at least the recall of each level; 0 if no rank reaches it."""
    n_ranks = ranks.shape[1]
    if n_ranks == 0:
        return np.zeros((len(ranks), len(LEVELS)))
    hits = np.cumsum(ranks, axis=1)
    precision = hits / np.arange(1, n_ranks + 1)
    best_from = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    out = np.zeros((len(ranks), len(LEVELS)))
    for row in range(len(ranks)):
        # recall r needs ceil(r R) items; the small term allows for rounding
        needed = np.ceil(LEVELS * totals[row] - 1e-9)
        first = np.searchsorted(hits[row], needed, side="left")
        reached = first < n_ranks
        out[row, reached] = best_from[row, first[reached]]
    return out


def _rankings(
    queries: Any, query_labels: ArrayLike, gallery: Any, gallery_labels: ArrayLike, metric: str | Distance
) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.int64]]]:
    """Relevance of the ranked gallery for blocks of queries, and the number of relevant items of each."""
    queries = check_array(queries, accept_sparse="csr", dtype=np.float64, input_name="queries")
    gallery = check_array(gallery, accept_sparse="csr", dtype=np.float64, input_name="gallery")
    query_labels, gallery_labels = np.asarray(query_labels), np.asarray(gallery_labels)
    check_consistent_length(queries, query_labels)
    check_consistent_length(gallery, gallery_labels)
    if queries.shape[1] != gallery.shape[1]:
        raise BagwiseError(f"queries have {how_many(queries.shape[1], 'columns')}, the gallery has {gallery.shape[1]}.")
    if not callable(metric) and metric not in _DISTANCES:
        raise unknown_name("metric", metric, _DISTANCES)
    distance = metric if callable(metric) else _DISTANCES[metric]
    step = max(_BLOCK_NUMBERS // max(gallery.shape[0], 1), 1)
    for start in range(0, queries.shape[0], step):
        rows = slice(start, start + step)
        order = np.argsort(distance(queries[rows], gallery), axis=1, kind="stable")
        relevant = query_labels[rows, np.newaxis] == gallery_labels
        yield np.take_along_axis(relevant, order, axis=1), relevant.sum(axis=1)


def _chi2_distances(X: Any, Y: Any) -> NDArray[np.float64]:
    """½ Σ (a - b)² / (a + b), which is ½ Σ (a + b) minus the kernel Σ 2ab / (a + b)."""
    from bagwise.kernels import chi2

    sums = [np.asarray(M.sum(axis=1)).ravel() for M in (X, Y)]
    return 0.5 * (sums[0][:, np.newaxis] + sums[1]) - chi2(X, Y)


_DISTANCES: dict[str, Distance] = {
    "euclidean": pairwise.euclidean_distances,
    "chi2": _chi2_distances,
    "cosine": pairwise.cosine_distances,
    "l1": pairwise.manhattan_distances,
}
