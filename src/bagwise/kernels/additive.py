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
    "additive_kernel",
    "chi2",
    "hellinger",
    "intersection",
    "jensen_shannon",
    "jensen_shannon_words",
    "linear",
]

KERNELS = {
    "intersection": loops.INTERSECTION,
    "hellinger": loops.HELLINGER,
    "chi2": loops.CHI2,
    "jensen_shannon": loops.JENSEN_SHANNON,
    "linear": loops.LINEAR,
}
# Numbers per block of temporary arrays.
_BLOCK_NUMBERS = 2**18


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
        Number of threads.
    device : {"cpu", "cuda"}, default=None
        Where to compute (``pip install "bagwise[gpu]"``); sparse matrices only on the CPU. None: where X is. Results
        differ by rounding, relative 1e-6 if the inputs are float32, otherwise 1e-13.

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
    dtype = common_type(X, Y)
    if kernel in ("hellinger", "linear"):
        product = (_root(X) @ _root(Y).T) if kernel == "hellinger" else X @ Y.T
        return (product.toarray() if sp.issparse(product) else product).astype(dtype, copy=False)
    if sp.issparse(X) != sp.issparse(Y):
        raise BagwiseError(
            "Only one of X and Y is sparse. Convert both to sparse, or the sparse one to dense "
            f"(.toarray(), {8 * max(X.shape[0], Y.shape[0]) * X.shape[1]} bytes)."
        )
    K = np.zeros((X.shape[0], Y.shape[0]))
    if sp.issparse(X):
        by_word = sp.csc_array(Y)
        lists = (X.indptr, X.indices, X.data, by_word.indptr, by_word.indices, by_word.data)

        def fill(start: int, stop: int) -> None:
            loops.sparse_kernel_rows(KERNELS[kernel], *lists, start, stop, K[start:stop])

    elif kernel == "jensen_shannon":
        X, Y = X.astype(np.float64), Y.astype(np.float64)
        width = max(_BLOCK_NUMBERS // max(X.shape[1], 1), 1)

        def fill(start: int, stop: int) -> None:
            for i in range(start, stop):
                for j in range(0, len(Y), width):
                    K[i, j : j + width] = jensen_shannon_words(X[i], Y[j : j + width]).sum(axis=1)

    else:

        def fill(start: int, stop: int) -> None:
            loops.dense_kernel_rows(KERNELS[kernel], X, Y, start, stop, K[start:stop])

    run_over_ranges(fill, len(K), effective_n_jobs(check_n_jobs(n_jobs)), size=16)
    return K.astype(dtype, copy=False)


def common_type(X: Any, Y: Any) -> type[np.floating]:
    """Return the type of the kernel of two matrices, which must have as many words."""
    if X.shape[1] != Y.shape[1]:
        raise BagwiseError(f"X has {X.shape[1]} words and Y {Y.shape[1]}; the vocabularies must be the same.")
    return np.float32 if X.dtype == Y.dtype == np.float32 else np.float64


def _check(X: Any, name: str, kernel: str) -> Any:
    X = check_array(X, largest=None, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", input_name=name)
    if sp.issparse(X):
        X = sp.csr_array(X)
    if kernel != "linear":
        check_non_negative(X, f"The {kernel} kernel", "Use kernel='linear', or counts.")
    return X


def jensen_shannon_words(x: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Elementwise Jensen-Shannon kernel of two arrays, without cancellation.

    With ``r = min / max``, it is ``((min + max) log2(1 + r) - min log2 r) / 2``.
    """
    low, high = np.minimum(x, z), np.maximum(x, z)
    ratio = low / np.where(high > 0, high, 1.0)
    logs = np.log(np.where(ratio > 0, ratio, 1.0))
    return ((low + high) * np.log1p(ratio) - low * logs) / (2 * np.log(2))


def _root(X: Any) -> Any:
    return X.sqrt() if sp.issparse(X) else np.sqrt(X)


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
