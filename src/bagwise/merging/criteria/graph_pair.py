"""A criterion from two graphs of the user's own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from bagwise.errors import BagwiseError
from bagwise.merging.criteria.base import TraceRatio
from bagwise.merging.structures import GraphLaplacian, Structure

__all__ = ["GraphPair"]

_ASYMMETRY = 1e-8
_INDEFINITE = 1e-8
_DENSE_EIGENVALUES = 1000  # samples up to which all eigenvalues are computed


class GraphPair(TraceRatio):
    """Distances along a preferred graph over distances along an undesired graph, both given by their weights.

    Maximises ``Σ P_ij |y_i - y_j|² / Σ U_ij |y_i - y_j|²`` over the merged samples y. Pairs that must stay apart
    (cannot-link) go into `preferred`, pairs that belong together (must-link) into `undesired`.

    Parameters
    ----------
    preferred, undesired : array-like or sparse matrix of shape (n_samples, n_samples)
        Symmetric weights; the diagonal does not matter. Weights may be negative as long as the graph's Laplacian has no
        negative eigenvalue.
    symmetrize : bool, default=False
        Use ``(W + Wᵀ) / 2`` for weights that are not symmetric, such as directed neighbour graphs, instead of
        raising an error.
    allow_indefinite : bool, default=False
        Accept a preferred graph whose Laplacian has negative eigenvalues. The searches "bound" and "exhaustive"
        remain exact; "polar" then raises an error. The undesired graph's must have none in any case, since ratios
        of negative denominators cannot be compared.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise import merge_words
    >>> from bagwise.criteria import GraphPair
    >>> X = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]]
    >>> together = np.array([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    >>> merge_words(X, criterion=GraphPair(1 - together, together)).groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "graphs"
    supervised = False
    _parameter_constraints: ClassVar[dict] = {
        "preferred": ["array-like", "sparse matrix"],
        "undesired": ["array-like", "sparse matrix"],
        "symmetrize": ["boolean"],
        "allow_indefinite": ["boolean"],
    }

    def __init__(
        self, preferred: Any, undesired: Any, *, symmetrize: bool = False, allow_indefinite: bool = False
    ) -> None:
        self.preferred = preferred
        self.undesired = undesired
        self.symmetrize = symmetrize
        self.allow_indefinite = allow_indefinite

    @property
    def may_be_indefinite(self) -> bool:  # noqa: D102
        return self.allow_indefinite

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        self._validate_params()
        preferred = _read_graph(self.preferred, "preferred", X.shape[0], self.symmetrize)
        undesired = _read_graph(self.undesired, "undesired", X.shape[0], self.symmetrize)
        if not self.allow_indefinite:
            _check_definite(preferred, "preferred", "Pass allow_indefinite=True to use it all the same.")
        _check_definite(undesired, "undesired", "Make its weights non-negative.")
        return preferred, undesired


def _read_graph(weights: Any, which: str, n_samples: int, symmetrize: bool) -> GraphLaplacian:
    if sp.issparse(weights):
        graph = sp.csr_array(weights, dtype=np.float64, copy=True)
        graph.sum_duplicates()
    else:
        try:
            graph = np.array(weights, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise BagwiseError(f"The {which} graph must be a matrix of numbers: {error}") from error
    if graph.shape != (n_samples, n_samples):
        raise BagwiseError(
            f"The {which} graph must have one row and column per sample, shape ({n_samples}, {n_samples}); "
            f"got {graph.shape}."
        )
    values = graph.data if sp.issparse(graph) else graph
    if not np.isfinite(values).all():
        raise BagwiseError(f"The {which} graph contains NaN or infinite weights; all weights must be finite.")
    asymmetry = abs(graph - graph.T).max() if n_samples else 0.0
    if asymmetry > _ASYMMETRY * max(abs(graph).max(), 1e-300) and not symmetrize:
        raise BagwiseError(
            f"The {which} graph is not symmetric: weights differ from their mirror images by up to {asymmetry:g}. "
            "Pass symmetrize=True to use (W + W.T) / 2."
        )
    graph = (graph + graph.T) / 2
    if sp.issparse(graph):
        graph = sp.csr_array(graph - sp.diags_array(graph.diagonal()))
    else:
        np.fill_diagonal(graph, 0.0)
    if abs(graph).max() == 0:
        raise BagwiseError(f"The {which} graph joins no two different samples; there is nothing to compare.")
    return GraphLaplacian(graph)


def _check_definite(graph: GraphLaplacian, which: str, advice: str) -> None:
    """Raise if the Laplacian has a negative eigenvalue; without negative weights it has none."""
    weights = graph.weights
    n = weights.shape[0]
    values = weights.data if sp.issparse(weights) else weights
    if n == 0 or values.size == 0 or values.min() >= 0:
        return
    if n <= _DENSE_EIGENVALUES:
        laplacian = graph.laplacian()
        smallest = float(np.linalg.eigvalsh(laplacian)[0])
    else:
        laplacian = graph.form()
        try:
            smallest = float(
                eigsh(laplacian, k=1, which="SA", return_eigenvectors=False, v0=np.ones(n) + np.arange(n))[0]
            )
        except ArpackNoConvergence as error:
            raise BagwiseError(
                f"Could not find out whether the {which} graph, which has negative weights, is positive "
                f"semi-definite. {advice}"
            ) from error
    scale = float(laplacian.trace()) / n
    if smallest < -_INDEFINITE * abs(scale):
        raise BagwiseError(
            f"The {which} graph has negative weights and its Laplacian a negative eigenvalue, {smallest:g}: distances "
            f"along it can be negative. {advice}"
        )
