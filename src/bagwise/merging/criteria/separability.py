"""Trace ratios of classes (CSM), of two given graphs, and of partly labelled data."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from bagwise._compat import Interval, is_pandas_na, is_scalar_nan
from bagwise.errors import BagwiseError
from bagwise.merging.criteria.base import TraceRatio, class_codes
from bagwise.merging.statistics import Statistics
from bagwise.merging.structures import BetweenClasses, Combination, GraphLaplacian, Structure, TotalScatter

__all__ = ["ClassSeparability", "GraphPair", "SemiSupervised"]


class ClassSeparability(TraceRatio):
    """Class separability (CSM): between-class scatter over total scatter, from 0 to 1.

    Maximises ``tr(S_b) / tr(S_t)`` with ``S_b = Σ_c n_c (m_c - m)(m_c - m)ᵀ`` and ``S_t = Σ_i (x_i - m)(x_i - m)ᵀ``.
    No parameters.

    Notes
    -----
    Computing A and B takes O(d² (n + C)) time, for sparse data one addition for each pair of non-zeros that share a
    sample. No n x n matrix is formed.

    If words differ much in scale, those with the largest differences of class means are merged first, into one that
    dominates the ratio, so the error of a classifier can rise before it falls. With many classes only a few directions
    of large scatter are preserved; "aib" and "mlt" score each word separately, and preserve more.

    References
    ----------
    L. Wang, L. Zhou, C. Shen, "A fast algorithm for creating a compact and discriminative visual codebook",
    ECCV 2008.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> from bagwise.criteria import ClassSeparability
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> merge_words(X, y, criterion=ClassSeparability()).groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "csm"
    looks_at_values = False
    takes_sample_weight = True
    sums_needed = ("gram",)

    def structures(  # noqa: D102
        self, X: Any, y: NDArray[Any] | None, n_threads: int = 1, sample_weight: NDArray[np.float64] | None = None
    ) -> tuple[Structure, Structure]:
        codes = class_codes(y, self.name)
        weights = np.ones(len(codes)) if sample_weight is None else sample_weight
        return BetweenClasses(codes, sample_weight), TotalScatter(weights)

    def matrices_from_sums(  # noqa: D102
        self, statistics: Statistics, words: NDArray[np.int64], n_threads: int = 1
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        statistics.require("gram", self.name)
        return statistics.between_classes(words, n_threads), statistics.total_scatter(words, n_threads)


_ASYMMETRY = 1e-8
_INDEFINITE = 1e-8
_DENSE_EIGENVALUES = 1000  # samples up to which all eigenvalues are computed


class GraphPair(TraceRatio):
    """Trace ratio of two given graphs: distances along the preferred over distances along the undesired graph.

    Maximises ``Σ P_ij |y_i - y_j|² / Σ U_ij |y_i - y_j|²`` over the merged samples y. Pairs that must stay apart
    (cannot-link) go into `preferred`, pairs that belong together (must-link) into `undesired`.

    Parameters
    ----------
    preferred, undesired : array-like or sparse matrix of shape (n_samples, n_samples)
        Symmetric weights; the diagonal is ignored. Weights may be negative if the graph's Laplacian has no negative
        eigenvalue.
    symmetrize : bool, default=False
        Use ``(W + Wᵀ) / 2`` for weights that are not symmetric, such as directed neighbour graphs, instead of
        raising an error.
    allow_indefinite : bool, default=False
        Accept a preferred graph whose Laplacian has negative eigenvalues. The searches "bound" and "exhaustive"
        remain exact; "polar" raises an error. The undesired graph must be positive semi-definite in any case, since
        ratios of negative denominators cannot be compared.

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
    looks_at_values = False
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
        preferred = _read_graph(self.preferred, "preferred", X.shape[0], self.symmetrize)
        undesired = _read_graph(self.undesired, "undesired", X.shape[0], self.symmetrize)
        if not self.allow_indefinite:
            _check_definite(preferred, "preferred", "Pass allow_indefinite=True to use it anyway.")
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
        raise BagwiseError(f"The {which} graph has no edge between different samples.")
    return GraphLaplacian(graph)


def _check_definite(graph: GraphLaplacian, which: str, advice: str) -> None:
    """Raise if the Laplacian has a negative eigenvalue. Without negative weights it has none."""
    weights = graph.weights
    n = weights.shape[0]
    values = weights.data if sp.issparse(weights) else weights
    if n == 0 or values.size == 0 or values.min() >= 0:
        return
    laplacian = graph.form()
    if n <= _DENSE_EIGENVALUES:
        smallest = float(np.linalg.eigvalsh(laplacian.toarray() if sp.issparse(laplacian) else laplacian)[0])
    else:
        try:
            smallest = float(
                eigsh(laplacian, k=1, which="SA", return_eigenvectors=False, v0=np.ones(n) + np.arange(n))[0]
            )
        except ArpackNoConvergence as error:
            raise BagwiseError(
                f"Could not determine whether the {which} graph, which has negative weights, is positive "
                f"semi-definite. {advice}"
            ) from error
    scale = float(laplacian.trace()) / n
    if smallest < -_INDEFINITE * abs(scale):
        raise BagwiseError(
            f"The {which} graph has negative weights and its Laplacian a negative eigenvalue, {smallest:g}: distances "
            f"along it can be negative. {advice}"
        )


class SemiSupervised(TraceRatio):
    """A supervised criterion on the labelled samples plus an unsupervised one on all samples.

    Each of the four structures is divided by its trace on the unmerged data, then the unsupervised ones are added with
    the weight `gamma`.

    Parameters
    ----------
    criterion : str or TraceRatio, default="csm"
        Supervised criterion for the labelled samples.
    unsupervised : TraceRatio or None, default=None
        Criterion for all samples; None is ``LocalityPreserving()``.
    gamma : float, default=0.1
        Weight of the unsupervised part. 0 gives the supervised criterion on the labelled samples alone.

    Notes
    -----
    The label -1, None or NaN marks a sample without a label. Without any labels the result is that of the unsupervised
    criterion.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], [0, -1, 1, -1]
    >>> merge_words(X, y, criterion="semi_supervised").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "semi_supervised"
    takes_missing_labels = True
    _parameter_constraints: ClassVar[dict] = {
        "criterion": [str, TraceRatio],
        "unsupervised": [TraceRatio, None],
        "gamma": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self, criterion: str | TraceRatio = "csm", unsupervised: TraceRatio | None = None, *, gamma: float = 0.1
    ) -> None:
        self.criterion = criterion
        self.unsupervised = unsupervised
        self.gamma = gamma

    @property
    def may_be_indefinite(self) -> bool:  # noqa: D102
        parts = (self.criterion, self.unsupervised)
        return any(isinstance(part, TraceRatio) and part.may_be_indefinite for part in parts)

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion

        labelled = np.flatnonzero(is_labelled(y))
        if len(labelled) == 0 and self.gamma == 0:
            raise BagwiseError(
                "The criterion 'semi_supervised' has no labelled sample and gamma=0. Pass some labels, or gamma > 0."
            )
        parts: list[tuple[float, tuple[Structure, Structure], NDArray[np.intp] | None]] = []
        if len(labelled):
            supervised = resolve_criterion(self.criterion)
            if not isinstance(supervised, TraceRatio):
                others = (kind for kind in NAMED_CRITERIA.values() if issubclass(kind, TraceRatio) and kind.supervised)
                names = ", ".join(repr(kind.name) for kind in others if kind is not type(self))
                raise BagwiseError(
                    f"The criterion 'semi_supervised' combines trace ratios, and {supervised.name!r} is not one. Use "
                    f"one of {names}."
                )
            labels = np.array(np.asarray(y)[labelled].tolist())  # as known labels without missing ones
            parts.append((1.0, supervised.structures(X[labelled], labels, n_threads), labelled))
        if self.gamma > 0:
            unsupervised: Any = resolve_criterion("lpp" if self.unsupervised is None else self.unsupervised)
            parts.append((float(self.gamma), unsupervised.structures(X, None, n_threads), None))
        return self._combine(X, parts, 0), self._combine(X, parts, 1)

    @staticmethod
    def _combine(X: Any, parts: list, which: int) -> Structure:
        terms = []
        for weight, structures, samples in parts:
            trace = structures[which].trace(X if samples is None else X[samples])
            if trace > 0:  # a structure without scatter adds nothing
                terms.append((weight / trace, structures[which], samples))
        return Combination(terms, X.shape[0])


def is_labelled(y: NDArray[Any] | None) -> NDArray[np.bool_]:
    """Mark the samples whose label is known: neither -1 nor missing."""
    labels = np.asarray(y)
    if labels.dtype.kind in "OUS":
        return np.array([not _is_missing(label) for label in labels.tolist()], dtype=bool)
    return (labels != -1) & ~np.isnan(labels)


def _is_missing(label: Any) -> bool:
    return label is None or is_pandas_na(label) or is_scalar_nan(label) or str(label) == "-1"
