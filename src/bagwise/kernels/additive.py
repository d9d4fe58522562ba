"""Additive kernels between histograms, dense or sparse.

An additive kernel is a sum over words, ``k(x, z) = Σ_w k(x_w, z_w)``:

================ ==========================================
intersection     ``min(x, z)``
hellinger        ``sqrt(x z)``
chi2             ``2 x z / (x + z)``
jensen_shannon   ``x/2 log2((x+z)/x) + z/2 log2((x+z)/z)``
linear           ``x z``
================ ==========================================

Each is a function of one or two matrices, suitable for ``SVC(kernel=...)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray

from bagwise._utils.backends import backend
from bagwise._utils.checks import check_n_jobs
from bagwise._utils.matrices import check_non_negative
from bagwise._utils.threads import run_over_ranges
from bagwise._utils.validation import check_array
from bagwise.errors import BagwiseError, unknown_name
from bagwise.kernels import _kernels as loops

__all__ = [
    "KERNELS",
    "AdditiveKernel",
    "Kernel",
    "additive_kernel",
    "chi2",
    "hellinger",
    "intersection",
    "jensen_shannon",
    "jensen_shannon_words",
    "linear",
]

# Numbers per block of temporary arrays.
_BLOCK_NUMBERS = 2**18
Values = NDArray[np.float64]  # words x samples
Quadrature = tuple[NDArray[np.float64], NDArray[np.float64]]  # nodes and factors


@dataclass(frozen=True)
class Kernel:
    """An additive kernel: `words` defines it, the rest is faster or more exact.

    The kernel of a number with itself is the number, unless `diagonal` says otherwise.
    """

    words: Callable[[Any, Any], Any]  # k(x, z) of arrays of numbers; 0 if one of the numbers is
    diagonal: Callable[[Any], Any] = np.asarray  # k(x, x)
    feature: Callable[[Any], Any] | None = None  # k(x, z) is the product of the features of x and z
    squared_distances: Callable[[Any, Any], Any] | None = None  # k(x, x) + k(z, z) - 2 k(x, z)
    pair_sums: Callable[[Values, NDArray[np.float64]], NDArray[np.float64]] | None = None
    # from the smallest and the largest number and the tolerance; the kernel is the sum over the nodes of the products
    # of the features of both numbers there
    quadrature: Callable[[float, float, float], Quadrature] | None = None
    feature_at: Callable[[Values, float], Values] | None = None
    non_negative: bool = True  # numbers must not be negative
    kind: int | None = None  # of compiled code

    def distances(self, x: Any, z: Any) -> Any:
        """Squared distances ``k(x, x) + k(z, z) - 2 k(x, z)`` of arrays of numbers."""
        if self.squared_distances is not None:
            return self.squared_distances(x, z)
        return self.diagonal(x) + self.diagonal(z) - 2 * self.words(x, z)

    def sums(self, values: Values, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """``Σ_ij w_i w_j k(v_i, v_j)`` for each row v of values."""
        if self.feature is not None:
            return (self.feature(values) @ weights) ** 2
        if self.pair_sums is not None:
            return self.pair_sums(values, weights)
        sums = self.diagonal(values) @ weights**2
        for i in range(1, values.shape[1]):
            sums += 2 * weights[i] * (self.words(values[:, :i], values[:, i : i + 1]) @ weights[:i])
        return sums


def _chi2_words(x: Any, z: Any) -> Any:
    return 2.0 * x * (z / np.where(x + z > 0, x + z, 1.0))


def _chi2_distances(x: Any, z: Any) -> Any:
    total, difference = x + z, np.abs(x - z)
    return difference * (difference / np.where(total > 0, total, 1.0))


def _chi2_sums(values: Values, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    sums = np.empty(len(values))
    loops.chi2_pair_sums(np.ascontiguousarray(values), weights, sums)
    return sums


def _chi2_quadrature(smallest: float, largest: float, tolerance: float) -> Quadrature:
    step, cut, smallest = _precision(smallest, largest, tolerance)
    first, last = np.log(cut / 2) - np.log(largest), np.log(-np.log(cut) / 2) - np.log(smallest) + 1
    nodes = np.exp(np.arange(first, last + step, step))
    return nodes, 2 * step * nodes


def jensen_shannon_words(x: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Elementwise Jensen-Shannon kernel of two arrays, without cancellation.

    With ``r = min / max``, it is ``((min + max) log2(1 + r) - min log2 r) / 2``.
    """
    low, high = np.minimum(x, z), np.maximum(x, z)
    ratio = low / np.where(high > 0, high, 1.0)
    logs = np.log(np.where(ratio > 0, ratio, 1.0))
    return ((low + high) * np.log1p(ratio) - low * logs) / (2 * np.log(2))


def _jensen_shannon_distances(x: Any, z: Any) -> Any:
    return x + z - 2 * jensen_shannon_words(x, z)


def _jensen_shannon_sums(values: Values, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """With ``h(x) = x log2 x`` it is h(x + z) - h(x) - h(z), halved, and h(x + x) = 2 x + 2 h(x): one logarithm a pair.

    Exact relative to the whole sum, not to each of its terms.
    """
    alone = _x_log2_x(values)
    sums = values @ weights**2 + alone @ weights**2 - weights.sum() * (alone @ weights)
    step = max(_BLOCK_NUMBERS // max(values.shape[1], 1), 1)
    for start in range(0, len(values), step):
        rows = values[start : start + step]
        for i in range(1, values.shape[1]):
            pairs = _x_log2_x(rows[:, :i] + rows[:, i : i + 1]) @ weights[:i]
            sums[start : start + step] += weights[i] * pairs
    return sums


def _x_log2_x(x: Values) -> Values:
    return x * np.log2(np.maximum(x, np.finfo(np.float64).tiny))


def _jensen_shannon_quadrature(smallest: float, largest: float, tolerance: float) -> Quadrature:
    step, cut, smallest = _precision(smallest, largest, tolerance)
    step, first, last = 0.9 * step, np.log(cut) - np.log(largest), -np.log(cut) - np.log(smallest)
    nodes = np.exp(np.arange(first, last + step, step))
    return nodes, step / (2 * np.log(2) * nodes)


def _precision(smallest: float, largest: float, tolerance: float) -> tuple[float, float, float]:
    """Step of the trapezoid rule in log t, what is negligible, and the smallest number that is not."""
    cut = tolerance / 100
    # The error decreases as a power of exp(-1 / step): 0.45 gives about 1e-8, 0.3 about 1e-12.
    return min(4.3 / (1.5 - np.log10(tolerance)), 0.5), cut, max(smallest, 1e-4 * cut * largest)


def _intersection_sums(values: Values, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """By sorting: the r-th smallest is the minimum of all pairs with larger ones."""
    if np.all(weights == weights[0]):
        n = len(weights)
        return weights[0] ** 2 * (np.sort(values, axis=1) @ (2.0 * np.arange(n, 0, -1) - 1.0))
    order = np.argsort(values, axis=1)
    sorted_weights = weights[order]
    above = weights.sum() - np.cumsum(sorted_weights, axis=1)
    return (np.take_along_axis(values, order, axis=1) * sorted_weights * (sorted_weights + 2 * above)).sum(axis=1)


def _absolute_difference(x: Any, z: Any) -> Any:
    return np.abs(x - z)


def _root(X: Any) -> Any:
    return X.sqrt() if sp.issparse(X) else np.sqrt(X)


def _root_of_product(x: Any, z: Any) -> Any:
    return np.sqrt(x * z)


def _same(X: Any) -> Any:
    return X


# Adding one takes a row.
KERNELS = {
    "intersection": Kernel(
        np.minimum,
        squared_distances=_absolute_difference,
        pair_sums=_intersection_sums,
        kind=loops.INTERSECTION,
    ),
    "hellinger": Kernel(_root_of_product, feature=_root),
    "chi2": Kernel(
        _chi2_words,
        squared_distances=_chi2_distances,
        pair_sums=_chi2_sums,
        quadrature=_chi2_quadrature,
        feature_at=lambda values, node: values * np.exp(-values * node),
        kind=loops.CHI2,
    ),
    "jensen_shannon": Kernel(
        jensen_shannon_words,
        squared_distances=_jensen_shannon_distances,
        pair_sums=_jensen_shannon_sums,
        quadrature=_jensen_shannon_quadrature,
        feature_at=lambda values, node: -np.expm1(-values * node),
        kind=loops.JENSEN_SHANNON,
    ),
    "linear": Kernel(np.multiply, diagonal=np.square, feature=_same, non_negative=False),
}


@dataclass(frozen=True)
class AdditiveKernel:
    """An additive kernel for merging, with the accuracy of its quadrature.

    Parameters
    ----------
    name : {"intersection", "hellinger", "chi2", "jensen_shannon", "linear"}
    tolerance : float, default=1e-12
        Relative error of the quadrature that sums the chi² and Jensen-Shannon kernels over many samples; the other
        kernels are exact.

    Examples
    --------
    >>> from bagwise import WordMerger
    >>> from bagwise.kernels import AdditiveKernel
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], ["a", "a", "b", "b"]
    >>> WordMerger(n_groups=2, kernel=AdditiveKernel("chi2", tolerance=1e-9)).fit(X, y).labels_
    array([0, 0, 1, 1])
    """

    name: str
    tolerance: float = 1e-12

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name not in KERNELS:
            raise unknown_name("kernel", self.name, KERNELS)
        if not 1e-14 <= self.tolerance < 0.1:
            raise BagwiseError(f"tolerance must be from 1e-14 to 0.1, got {self.tolerance!r}.")


def additive_kernel(
    X: Any, Y: Any = None, kernel: str = "intersection", *, n_jobs: int | None = None, device: str | None = None
) -> NDArray[Any]:
    """Compute the kernel matrix between the rows of X and of Y.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, n_words)
        Non-negative, except for the linear kernel.
    Y : array-like or sparse matrix of shape (m, n_words), default=None
        None is X. Sparse matrices stay sparse.
    kernel : {"intersection", "hellinger", "chi2", "jensen_shannon", "linear"}, default="intersection"
    n_jobs : int, default=None
    device : {"cpu", "cuda"}, default=None
        None: where X is. Sparse matrices are on the CPU alone.

    Returns
    -------
    K : ndarray of shape (n, m)
        float32 if both inputs are. An array of CuPy if X is on a device.

    Notes
    -----
    Dense: O(n m d). Sparse: one evaluation per pair of entries of the same word. Sparse products and float32 input,
    which is summed in float64, take temporary memory of about twice the size of the result.

    Examples
    --------
    >>> from bagwise.kernels import additive_kernel
    >>> additive_kernel([[1.0, 2.0], [0.0, 4.0]])
    array([[3., 2.],
           [2., 4.]])
    """
    if kernel not in KERNELS:
        raise unknown_name("kernel", kernel, KERNELS)
    matrix: NDArray[Any] = backend("kernels", device, X).kernel_matrix(X, Y, kernel, n_jobs)
    return matrix


def kernel_matrix(X: Any, Y: Any, kernel: str, n_jobs: int | None) -> NDArray[Any]:
    """`additive_kernel` on the host."""
    X = _check(X, "X", kernel)
    Y = X if Y is None else _check(Y, "Y", kernel)
    dtype, known = common_type(X, Y), KERNELS[kernel]
    if known.feature is not None:
        product = known.feature(X) @ known.feature(Y).T
        return (product.toarray() if sp.issparse(product) else product).astype(dtype, copy=False)
    if sp.issparse(X) != sp.issparse(Y):
        raise BagwiseError(
            "Only one of X and Y is sparse. Convert both to sparse, or the sparse one to dense "
            f"(.toarray(), {8 * max(X.shape[0], Y.shape[0]) * X.shape[1]} bytes)."
        )
    K = np.zeros((X.shape[0], Y.shape[0]))
    if sp.issparse(X) and known.kind is not None:
        by_word = sp.csc_array(Y)
        lists = (X.indptr, X.indices, X.data, by_word.indptr, by_word.indices, by_word.data)

        def fill(start: int, stop: int) -> None:
            loops.sparse_kernel_rows(known.kind, *lists, start, stop, K[start:stop])

    elif known.kind in loops.DENSE:

        def fill(start: int, stop: int) -> None:
            loops.dense_kernel_rows(known.kind, X, Y, start, stop, K[start:stop])

    else:
        width = max(_BLOCK_NUMBERS // max(X.shape[1], 1), 1)

        def fill(start: int, stop: int) -> None:
            for i in range(start, stop):
                for j in range(0, Y.shape[0], width):
                    x, rows = _as_dense(X[i : i + 1]), _as_dense(Y[j : j + width])
                    K[i, j : j + width] = known.words(x, rows).sum(axis=1)

    run_over_ranges(fill, len(K), effective_n_jobs(check_n_jobs(n_jobs)), size=16)
    return K.astype(dtype, copy=False)


def _as_dense(X: Any) -> NDArray[np.float64]:
    return (X.toarray() if sp.issparse(X) else X).astype(np.float64, copy=False)


def common_type(X: Any, Y: Any) -> type[np.floating]:
    """Return the type of the kernel of two matrices, which must have as many words."""
    if X.shape[1] != Y.shape[1]:
        raise BagwiseError(f"X has {X.shape[1]} words and Y {Y.shape[1]}; the vocabularies must be the same.")
    return np.float32 if X.dtype == Y.dtype == np.float32 else np.float64


def _check(X: Any, name: str, kernel: str) -> Any:
    X = check_array(X, largest=None, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", input_name=name)
    if sp.issparse(X):
        X = sp.csr_array(X)
    if KERNELS[kernel].non_negative:
        check_non_negative(X, f"The {kernel} kernel", "Use kernel='linear', or counts.")
    return X


def intersection(X: Any, Y: Any = None) -> NDArray[Any]:
    """Histogram intersection, ``Σ min(x, z)``; see `additive_kernel`."""
    return additive_kernel(X, Y, "intersection")


def hellinger(X: Any, Y: Any = None) -> NDArray[Any]:
    """Hellinger (Bhattacharyya) kernel, ``Σ sqrt(x z)``; see `additive_kernel`."""
    return additive_kernel(X, Y, "hellinger")


def chi2(X: Any, Y: Any = None) -> NDArray[Any]:
    """Additive chi² kernel, ``Σ 2 x z / (x + z)``; see `additive_kernel`."""
    return additive_kernel(X, Y, "chi2")


def jensen_shannon(X: Any, Y: Any = None) -> NDArray[Any]:
    """Jensen-Shannon kernel; see `additive_kernel`."""
    return additive_kernel(X, Y, "jensen_shannon")


def linear(X: Any, Y: Any = None) -> NDArray[Any]:
    """Linear kernel, ``Σ x z``; see `additive_kernel`."""
    return additive_kernel(X, Y, "linear")
