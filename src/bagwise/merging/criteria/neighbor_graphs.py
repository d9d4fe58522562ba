"""Trace ratios from graphs of nearest neighbours: NDA, MFA, LDE and LPP."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._compat import Interval, StrOptions
from bagwise.errors import BagwiseError
from bagwise.merging.criteria.base import TraceRatio, class_codes
from bagwise.merging.neighbors import METRICS, find_neighbors, heat_weights
from bagwise.merging.structures import GraphLaplacian, Residuals, Structure, TotalScatter

__all__ = ["LocalDiscriminant", "LocalityPreserving", "MarginalFisher", "NonparametricDiscriminant"]


class NonparametricDiscriminant(TraceRatio):
    """Nonparametric discriminant analysis (NDA): distances to neighbours in other classes over those to all neighbours.

    1. The `n_neighbors` nearest samples of other classes are found for each sample, once, before merging.
    2. Preferred: the squared distance of each sample to the mean of these.
    3. Undesired: the mean squared distance of each sample to its `n_total_neighbors` nearest of any class.

    Parameters
    ----------
    n_neighbors : int, default=40
        Neighbours in other classes. All candidates are used if there are fewer.
    n_total_neighbors : int, default=40
        Neighbours in any class, likewise.
    mode : {"rest", "per_class"}, default="rest"
        With more than two classes: one local mean over all other classes, or one for each other class.
    metric : {"intersection", "euclidean"}, default="intersection"
        How neighbours are found. Histogram intersection needs non-negative data.
    approximate : bool or "auto", default="auto"
        Whether neighbours are found by faiss (``pip install "bagwise[ann]"``), which misses a few. "auto": beyond
        20,000 samples where faiss is installed, unless less than 5 % of the counts are not 0.

    Notes
    -----
    With two classes and numbers of neighbours that include all candidates, the hierarchy is that of
    `ClassSeparability`; this is the case in published settings. Choose numbers well below the class sizes for a local
    criterion. O(n² d) time to find neighbours exactly, O(d² n) to compute A and B.

    References
    ----------
    L. Wang, L. Liu, L. Zhou, "A graph-embedding approach to hierarchical visual word mergence", IEEE TNNLS 28(2), 2017.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> from bagwise.criteria import NonparametricDiscriminant
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion=NonparametricDiscriminant(n_neighbors=1, n_total_neighbors=2)).groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "nda"
    _parameter_constraints: ClassVar[dict] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "n_total_neighbors": [Interval(Integral, 1, None, closed="left")],
        "mode": [StrOptions({"rest", "per_class"})],
        "metric": [StrOptions(set(METRICS))],
        "approximate": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        n_neighbors: int = 40,
        n_total_neighbors: int = 40,
        *,
        mode: str = "rest",
        metric: str = "intersection",
        approximate: bool | str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_total_neighbors = n_total_neighbors
        self.mode = mode
        self.metric = metric
        self.approximate = approximate

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        codes = class_codes(y, self.name)
        neighbors = find_neighbors(X, self.metric, self.approximate, n_threads)
        if self.mode == "rest":
            others = _unit_rows(neighbors.graph(self.n_neighbors, codes, "other"))
            contrasts = sp.csr_array(sp.eye_array(len(codes)) - others)
        else:
            contrasts = sp.csr_array(
                sp.vstack(
                    [
                        _indicators(samples, len(codes)) - _unit_rows(local)
                        for samples, local in neighbors.class_graphs(self.n_neighbors, codes)
                    ]
                )
            )
        around = _unit_rows(neighbors.graph(self.n_total_neighbors))
        return Residuals(contrasts), GraphLaplacian(sp.csr_array(around + around.T))


def _indicators(samples: NDArray[np.intp], n_samples: int) -> sp.csr_array:
    """Return a row for each of the samples, 1 at its own column."""
    return sp.csr_array((np.ones(len(samples)), samples, np.arange(len(samples) + 1)), shape=(len(samples), n_samples))


def _unit_rows(graph: sp.csr_array) -> sp.csr_array:
    """Divide each row by its sum; empty rows stay empty."""
    sums = np.asarray(graph.sum(axis=1)).ravel()
    return sp.csr_array(sp.diags_array(1.0 / np.where(sums > 0, sums, 1.0)) @ graph)


class MarginalFisher(TraceRatio):
    """Marginal Fisher analysis (MFA): closest pairs between classes apart, neighbours within classes together.

    Parameters
    ----------
    n_neighbors : int, default=5
        Undesired: pairs of which one is among the `n_neighbors` nearest of its class to the other.
    n_pairs : int or None, default=None
        Preferred: the `n_pairs` closest pairs between a class and the rest, for each class. None: 20 times the number
        of classes.
    margin : {"per_class", "per_sample"}, default="per_class"
        What `n_pairs` counts: pairs of each class, as published, or neighbours in other classes of each sample, as in
        many implementations (None is then `n_neighbors`).
    metric : {"euclidean", "intersection"}, default="euclidean"
    approximate : bool or "auto", default="auto"
        See `NonparametricDiscriminant`.

    References
    ----------
    S. Yan et al., "Graph embedding and extensions: a general framework for dimensionality reduction", IEEE TPAMI
    29(1), 2007.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion="mfa").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "mfa"
    _parameter_constraints: ClassVar[dict] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "n_pairs": [Interval(Integral, 1, None, closed="left"), None],
        "margin": [StrOptions({"per_class", "per_sample"})],
        "metric": [StrOptions(set(METRICS))],
        "approximate": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        n_pairs: int | None = None,
        *,
        margin: str = "per_class",
        metric: str = "euclidean",
        approximate: bool | str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_pairs = n_pairs
        self.margin = margin
        self.metric = metric
        self.approximate = approximate

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        codes = class_codes(y, self.name)
        neighbors = find_neighbors(X, self.metric, self.approximate, n_threads)
        within = neighbors.graph(self.n_neighbors, codes, "same")
        _check_not_empty(within, self.name)
        if self.margin == "per_sample":
            between = neighbors.graph(self.n_pairs or self.n_neighbors, codes, "other")
        else:
            between = neighbors.closest_pairs(codes, self.n_pairs or 20 * (int(codes.max()) + 1))
        return GraphLaplacian(_union(between)), GraphLaplacian(_union(within))


class LocalDiscriminant(TraceRatio):
    """Local discriminant embedding (LDE): neighbours in other classes over neighbours in the same class.

    Both graphs weight a pair by ``exp(-|x_i - x_j|² / width)``.

    Parameters
    ----------
    n_neighbors : int, default=5
        Neighbours in the same class.
    n_other_neighbors : int, default=5
        Neighbours in other classes.
    width : float or None, default=None
        Width of the heat kernel. None: the mean squared distance over the edges of both graphs.
    neighbors : {"within", "global"}, default="within"
        "within": the nearest among the samples of the same class, and among those of other classes.
        "global": the nearest among all samples, split by class. Raises an error if no pair is of different classes.
    metric : {"euclidean", "intersection"}, default="euclidean"
        How neighbours are found; the weights use the Euclidean distance.
    approximate : bool or "auto", default="auto"
        See `NonparametricDiscriminant`.

    References
    ----------
    H.-T. Chen, H.-W. Chang, T.-L. Liu, "Local discriminant embedding and its variants", CVPR 2005.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion="lde").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "lde"
    _parameter_constraints: ClassVar[dict] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "n_other_neighbors": [Interval(Integral, 1, None, closed="left")],
        "width": [Interval(Real, 0, None, closed="neither"), None],
        "neighbors": [StrOptions({"within", "global"})],
        "metric": [StrOptions(set(METRICS))],
        "approximate": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        n_other_neighbors: int = 5,
        *,
        width: float | None = None,
        neighbors: str = "within",
        metric: str = "euclidean",
        approximate: bool | str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_other_neighbors = n_other_neighbors
        self.width = width
        self.neighbors = neighbors
        self.metric = metric
        self.approximate = approximate

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        codes = class_codes(y, self.name)
        neighbors = find_neighbors(X, self.metric, self.approximate, n_threads)
        if self.neighbors == "within":
            same = _union(neighbors.graph(self.n_neighbors, codes, "same"))
            other = _union(neighbors.graph(self.n_other_neighbors, codes, "other"))
        else:
            same = _union(_of_class(neighbors.graph(self.n_neighbors), codes, same=True))
            other = _union(_of_class(neighbors.graph(self.n_other_neighbors), codes, same=False))
            if other.nnz == 0:
                raise BagwiseError(
                    f"The criterion 'lde' found no neighbours of different classes among the "
                    f"{self.n_other_neighbors} nearest of any sample. Raise n_other_neighbors or use "
                    "neighbors='within'."
                )
        _check_not_empty(same, self.name)
        other, same = heat_weights(neighbors, [other, same], self.width, self.name)
        return GraphLaplacian(other), GraphLaplacian(same)


def _check_not_empty(within: sp.csr_array, who: str) -> None:
    if within.nnz == 0:
        raise BagwiseError(
            f"The criterion {who!r} compares neighbours of the same class, but found no such pair: every class has a "
            "single sample, or no sample has a neighbour of its class. Use 'csm', or raise n_neighbors."
        )


def _union(graph: sp.csr_array) -> sp.csr_array:
    """Make a 0/1 graph symmetric: i and j are joined if either is linked to the other."""
    return sp.csr_array(graph.maximum(graph.T))


def _of_class(graph: sp.csr_array, codes: NDArray[np.intp], *, same: bool) -> sp.csr_array:
    """Keep the edges between samples of the same class, or of different classes."""
    edges = graph.tocoo()
    keep = (codes[edges.row] == codes[edges.col]) == same
    return sp.csr_array((edges.data[keep], (edges.row[keep], edges.col[keep])), shape=graph.shape)


class LocalityPreserving(TraceRatio):
    """Locality preserving projection (LPP): scatter of all samples over the scatter between neighbours. Unsupervised.

    Parameters
    ----------
    n_neighbors : int, default=5
        Two samples are joined if one is among the `n_neighbors` nearest of the other.
    weights : {"heat", "binary"}, default="heat"
        Weight of an edge: ``exp(-|x_i - x_j|² / width)``, or 1.
    width : float or None, default=None
        Width of the heat kernel. None: the mean squared distance over the edges.
    metric : {"euclidean", "intersection"}, default="euclidean"
        How neighbours are found; the weights use the Euclidean distance.
    approximate : bool or "auto", default="auto"
        See `NonparametricDiscriminant`.

    Notes
    -----
    With edge weights U and degrees δ = U 1, the preferred structure is the total scatter weighted by δ.

    References
    ----------
    L. Wang, L. Liu, L. Zhou, "A graph-embedding approach to hierarchical visual word mergence", IEEE TNNLS 28(2), 2017.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> merge_words(X, criterion="lpp").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "lpp"
    supervised = False
    _parameter_constraints: ClassVar[dict] = {
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "weights": [StrOptions({"heat", "binary"})],
        "width": [Interval(Real, 0, None, closed="neither"), None],
        "metric": [StrOptions(set(METRICS))],
        "approximate": ["boolean", StrOptions({"auto"})],
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: str = "heat",
        width: float | None = None,
        metric: str = "euclidean",
        approximate: bool | str = "auto",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.width = width
        self.metric = metric
        self.approximate = approximate

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        neighbors = find_neighbors(X, self.metric, self.approximate, n_threads)
        graph = _union(neighbors.graph(self.n_neighbors))
        if self.weights == "heat":
            (graph,) = heat_weights(neighbors, [graph], self.width, self.name)
        degrees = np.asarray(graph.sum(axis=1)).ravel()
        return TotalScatter(degrees), GraphLaplacian(graph)
