"""Locality preservation (LPP), the unsupervised graph criterion."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from bagwise.errors import BagwiseError
from bagwise.merging.criteria.base import TraceRatio
from bagwise.merging.neighbors import METRICS, Nearness, heat_weights, neighbor_graph
from bagwise.merging.structures import GraphLaplacian, Structure, TotalScatter

__all__ = ["LocalityPreserving"]


class LocalityPreserving(TraceRatio):
    """Scatter of all samples over the scatter between neighbours (LPP). Needs no labels.

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

    Notes
    -----
    With edge weights U and degrees δ = U 1, the preferred structure is the scatter around the mean, both weighted by δ.

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
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: str = "heat",
        width: float | None = None,
        metric: str = "euclidean",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.width = width
        self.metric = metric

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        self._validate_params()
        if X.shape[0] < 2:
            raise BagwiseError(f"The criterion 'lpp' needs at least two samples, got n_samples = {X.shape[0]}.")
        nearness = Nearness(X, self.metric, n_threads)
        graph = neighbor_graph(nearness, self.n_neighbors)
        graph = sp.csr_array(graph.maximum(graph.T))
        if self.weights == "heat":
            (graph,) = heat_weights(nearness, [graph], self.width, self.name)
        degrees = np.asarray(graph.sum(axis=1)).ravel()
        return TotalScatter(degrees), GraphLaplacian(graph)
