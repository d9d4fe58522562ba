"""Nonparametric discriminant analysis (NDA)."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from bagwise.merging.criteria.base import TraceRatio, class_codes
from bagwise.merging.neighbors import METRICS, Nearness, nearest, neighbor_graph
from bagwise.merging.structures import GraphLaplacian, Residuals, Structure

__all__ = ["NonparametricDiscriminant"]


class NonparametricDiscriminant(TraceRatio):
    """Distance to the nearest samples of other classes over the distance to the nearest samples at all (NDA).

    1. The `n_neighbors` nearest samples of other classes are found for each sample, once, before merging.
    2. Preferred: the squared distance of each sample to the mean of these.
    3. Undesired: the mean squared distance of each sample to its `n_total_neighbors` nearest of any class.

    Parameters
    ----------
    n_neighbors : int, default=40
        Neighbours in other classes. All candidates are taken where there are fewer.
    n_total_neighbors : int, default=40
        Neighbours in any class, likewise.
    mode : {"rest", "per_class"}, default="rest"
        With more than two classes: one local mean over all other classes, or one for each other class.
    metric : {"intersection", "euclidean"}, default="intersection"
        How neighbours are found. Histogram intersection needs non-negative data.

    Notes
    -----
    With two classes and neighbour counts that take in all candidates, the hierarchy is that of
    `ClassSeparability`; published settings often do that. Choose counts well below the class sizes for a criterion
    that is really local. O(n² d) time to find neighbours, O(d² n) to form the statistics.

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
    }

    def __init__(
        self, n_neighbors: int = 40, n_total_neighbors: int = 40, *, mode: str = "rest", metric: str = "intersection"
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_total_neighbors = n_total_neighbors
        self.mode = mode
        self.metric = metric

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        self._validate_params()
        codes = class_codes(y, self.name)
        nearness = Nearness(X, self.metric, n_threads)
        if self.mode == "rest":
            others = _unit_rows(neighbor_graph(nearness, self.n_neighbors, codes, "other"))
            contrasts = sp.csr_array(sp.eye_array(len(codes)) - others)
        else:
            contrasts = self._contrasts_per_class(nearness, codes)
        around = _unit_rows(neighbor_graph(nearness, self.n_total_neighbors))
        return Residuals(contrasts), GraphLaplacian(sp.csr_array(around + around.T))

    def _contrasts_per_class(self, nearness: Nearness, codes: NDArray[np.intp]) -> sp.csr_array:
        """Each sample less the mean of its neighbours in each class but its own."""
        contrasts = []
        for samples, near in nearness.blocks():
            for c in range(int(codes.max()) + 1):
                outside = codes[samples] != c
                if not outside.any():
                    continue
                allowed = np.broadcast_to(codes == c, near[outside].shape)
                local = _unit_rows(sp.csr_array(nearest(near[outside], self.n_neighbors, allowed).astype(np.float64)))
                own = sp.csr_array(
                    (np.ones(local.shape[0]), (np.arange(local.shape[0]), samples[outside])), shape=local.shape
                )
                contrasts.append(own - local)
        return sp.csr_array(sp.vstack(contrasts))


def _unit_rows(graph: sp.csr_array) -> sp.csr_array:
    """Divide each row by its sum; empty rows stay empty."""
    sums = np.asarray(graph.sum(axis=1)).ravel()
    return sp.csr_array(sp.diags_array(1.0 / np.where(sums > 0, sums, 1.0)) @ graph)
