"""Encoders: how a vector is assigned to words. One class per method, and functions of arrays."""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.checks import as_count
from bagwise._utils.threads import one_blas_thread
from bagwise.codebooks import _cuda
from bagwise.codebooks import _kernels as kernels
from bagwise.codebooks.distances import as_codebook, distances_to, working_values
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["ASSIGNMENTS", "Assigned", "Encoder", "FewEncoder", "localized_codes", "make_encoder", "soft_codes"]
__all__ += ["sparse_codes", "unit_vectors"]

# Coordinate descent stops when no code changes by more than this, or after this many steps.
_LASSO_TOLERANCE = 1e-6
_LASSO_STEPS = 10_000


class Encoder(ABC):
    """Codes of vectors, block by block. `blocks` may run in several threads.

    Words on a device are compared with vectors there; encoders of few words then give their codes by `few`.
    """

    pooling: ClassVar[str]  # by default
    n_entries: int | None = None  # largest number of non-zeros in the code of a vector; None if it is dense

    def __init__(self, codebook: NDArray[Any]) -> None:
        self.distances = distances_to(codebook)

    @property
    def codebook(self) -> NDArray[Any]:
        """The words."""
        return self.distances.codebook

    @abstractmethod
    def blocks(self, values: NDArray[Any]) -> Iterator[tuple[slice, Any]]:
        """Yield rows (a slice) and their codes, dense or CSR, none negative."""


class Assigned(NamedTuple):
    """The words of some vectors, the nearest first: numbers and weights of shape (n, k), and distances to the first."""

    words: NDArray[np.intp]
    weights: NDArray[Any]
    distances: NDArray[np.float32]


class FewEncoder(Encoder):
    """An encoder that assigns each vector to few words."""

    @abstractmethod
    def assign(self, values: NDArray[Any]) -> Iterator[tuple[slice, Assigned]]:
        """Yield rows and the words they are assigned to."""

    def blocks(self, values: NDArray[Any]) -> Iterator[tuple[slice, Any]]:
        """Yield rows and their codes."""
        for rows, found in self.assign(values):
            yield rows, _few_codes(found.words, found.weights, len(self.codebook))


class HardEncoder(FewEncoder):
    """1 for the nearest word, 0 for all others."""

    pooling = "sum"
    n_entries = 1

    def assign(self, values: NDArray[Any]) -> Iterator[tuple[slice, Assigned]]:
        """Yield all rows and their words."""
        words, weights = self._nearest(values)
        distances = np.linalg.norm(values - self.codebook[words[:, 0]], axis=1)
        yield slice(0, len(values)), Assigned(words, weights, distances)

    def blocks(self, values: NDArray[Any]) -> Iterator[tuple[slice, Any]]:
        words, weights = self._nearest(values)  # codes need no distances
        yield slice(0, len(values)), _few_codes(words, weights, len(self.codebook))

    def _nearest(self, values: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[Any]]:
        words = np.empty((len(values), 1), np.intp)
        self.distances.nearest(values, words[:, 0])
        return words, np.ones(words.shape, self.codebook.dtype)

    def few(self, values: Any) -> Iterator[tuple[slice, Any, Any]]:
        """Yield rows, their words and weights, by functions of the array module of the words."""
        xp = self.distances.xp
        words = xp.empty((len(values), 1), np.intp)
        self.distances.nearest(values, words[:, 0])
        yield slice(0, len(values)), words, xp.ones(words.shape, self.codebook.dtype)


class SoftEncoder(Encoder):
    """``exp(-|x - b| / bandwidth)``, divided by its sum over words."""

    pooling = "mean"

    def __init__(self, codebook: NDArray[Any], bandwidth: float = 0.05) -> None:
        super().__init__(codebook)
        self._bandwidth = codebook.dtype.type(_positive(bandwidth, "bandwidth"))
        if not self._bandwidth > 0:
            raise BagwiseError(f"bandwidth={bandwidth!r} is too small for {codebook.dtype}. Use hard assignment.")

    def blocks(self, values: NDArray[Any]) -> Iterator[tuple[slice, Any]]:
        for rows, codes in self.distances.blocks(values):
            np.sqrt(codes, out=codes)
            codes -= codes.min(axis=1, keepdims=True)  # the largest code is 1: no underflow of all
            with np.errstate(over="ignore"):  # an infinite exponent gives 0, as it should
                codes /= -self._bandwidth
            np.exp(codes, out=codes)
            codes /= codes.sum(axis=1, keepdims=True)
            yield rows, codes


class LocalizedEncoder(FewEncoder):
    """``exp(-sharpness |x - b|²)`` for the nearest words, divided by its sum; 0 for the others.

    If `weighted`, vectors are scaled to length 1 before they are compared with words, and codes are multiplied by the
    squares of the lengths.
    """

    pooling = "max"

    def __init__(
        self, codebook: NDArray[Any], n_neighbors: int = 5, sharpness: float = 10.0, weighted: bool = False
    ) -> None:
        super().__init__(codebook)
        self._n_neighbors = min(as_count(n_neighbors, "n_neighbors", least=1), len(codebook))
        self.n_entries = self._n_neighbors
        self._sharpness = codebook.dtype.type(_positive(sharpness, "sharpness"))
        self._weighted = bool(weighted)

    def assign(self, values: NDArray[Any]) -> Iterator[tuple[slice, Assigned]]:
        """Yield rows and their words.

        Distances of the matrix product decide which words are near. Weights come from exact distances, so that they do
        not depend on the vectors beside them in the product.
        """
        held, lengths = self._scaled(values)
        for rows, words, _ in self.distances.nearest_few(held, self._n_neighbors):
            exact = np.empty(words.shape)
            kernels.exact_few(held[rows], self.codebook, words, exact)
            nearest = np.sqrt(exact[:, 0]).astype(np.float32)
            weights = self._weights(exact)
            if lengths is not None:
                weights *= lengths[rows, np.newaxis] ** 2
            yield rows, Assigned(words, weights.astype(self.codebook.dtype), nearest)

    def few(self, values: Any) -> Iterator[tuple[slice, Any, Any]]:
        """Do what `HardEncoder.few` does."""
        xp = self.distances.xp
        none = xp.zeros(len(self.codebook), self.codebook.dtype)
        held, lengths = self._scaled(values)
        for rows, distances in self.distances.blocks(held):
            words = xp.empty((len(distances), self._n_neighbors), np.intp)
            weights, every = xp.empty(words.shape, distances.dtype), xp.arange(len(distances))
            for k in range(self._n_neighbors):
                words[:, k] = found = _cuda.nearest(xp, distances, none, False)[0]
                weights[:, k] = distances[every, found]
                distances[every, found] = np.inf
            weights = self._weights(weights)
            yield rows, words, weights if lengths is None else weights * lengths[rows, np.newaxis] ** 2

    def _scaled(self, values: Any) -> tuple[Any, Any]:
        """Return vectors of length 1 in the type of the codebook, and their lengths; or the vectors and None."""
        if not self._weighted:
            return values, None
        return unit_vectors(values, self.codebook.dtype, self.distances.xp)

    def _weights(self, distances: Any) -> Any:
        """Turn squared distances, of which the first in each row is the least, into weights, in place."""
        distances -= distances[:, :1].copy()
        with np.errstate(over="ignore"):
            distances *= -self._sharpness
        np.exp(distances, out=distances)
        distances /= distances.sum(axis=1, keepdims=True)
        return distances


_UNIT_ROWS = 1 << 13  # vectors that are scaled at a time


def unit_vectors(values: Any, dtype: Any, xp: Any = np) -> tuple[Any, Any]:
    """Scale vectors to length 1 and return them with their lengths, of float64; vectors of zeros stay zeros.

    >>> unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]]), np.float32)
    (array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32), array([5., 0.]))
    """
    if len(values) > _UNIT_ROWS:  # in pieces: numbers of float64 take twice the memory
        pieces = range(0, len(values), _UNIT_ROWS)
        units, lengths = xp.empty(values.shape, dtype), xp.empty(len(values))
        for k in pieces:
            piece = slice(k, k + _UNIT_ROWS)
            units[piece], lengths[piece] = unit_vectors(values[piece], dtype, xp)
        return units, lengths
    held = values.astype(np.float64)
    lengths = xp.sqrt((held * held).sum(axis=1))
    return (held / xp.where(lengths > 0, lengths, 1.0)[:, np.newaxis]).astype(dtype), lengths


class SparseEncoder(Encoder):
    """The absolute values of the u that minimises ``|x - u D|² + penalty |u|_1``; the rows of D are unit-norm words."""

    pooling = "max"

    def __init__(self, codebook: NDArray[Any], penalty: float = 0.15) -> None:
        super().__init__(codebook)
        if self.distances.xp is not np:
            raise BagwiseError("Sparse codes are not computed on a device. Use device='cpu', or another assignment.")
        self._threshold = _positive(penalty, "penalty") / 2
        lengths = np.linalg.norm(codebook.astype(np.float64), axis=1, keepdims=True)
        self._atoms = codebook / np.where(lengths > 0, lengths, 1.0)
        self._gram = self._atoms @ self._atoms.T

    def blocks(self, values: NDArray[Any], signed: bool = False) -> Iterator[tuple[slice, Any]]:
        n_rows, factors = self.distances.n_rows, np.ascontiguousarray(self._atoms.T)
        for start in range(0, len(values), n_rows):
            rows = slice(start, min(start + n_rows, len(values)))
            products = values[rows].astype(np.float64) @ factors
            codes = np.empty_like(products)
            unsolved = kernels.lasso_codes(self._gram, products, self._threshold, _LASSO_TOLERANCE, _LASSO_STEPS, codes)
            if unsolved:
                from sklearn.exceptions import ConvergenceWarning  # deferred: scikit-learn takes long to import

                warnings.warn(
                    f"Sparse codes of {unsolved} vectors have not converged after {_LASSO_STEPS} steps. "
                    "Scale the vectors to length 1, or raise the penalty.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            found = sp.csr_array(codes)
            yield rows, found if signed else abs(found)


class ResidualEncoder(Encoder):
    """The difference to the nearest word (VLAD). Yields words; residuals are summed while pooling."""

    pooling = "sum"

    def blocks(self, values: NDArray[Any]) -> Iterator[tuple[slice, Any]]:
        words = np.empty(len(values), np.intp)
        self.distances.nearest(values, words)
        yield slice(0, len(values)), words


ENCODERS: dict[str, type[Encoder]] = {
    "hard": HardEncoder,
    "soft": SoftEncoder,
    "localized": LocalizedEncoder,
    "sparse": SparseEncoder,
    "vlad": ResidualEncoder,
}
ASSIGNMENTS = tuple(ENCODERS)


def make_encoder(assignment: str, codebook: NDArray[Any], **options: Any) -> Encoder:
    """Make the encoder of this name, with those of the options that it takes."""
    if assignment not in ENCODERS:
        raise unknown_name("assignment", assignment, ASSIGNMENTS)
    known = {name: tuple(inspect.signature(encoder).parameters)[1:] for name, encoder in ENCODERS.items()}
    for name in options:
        if not any(name in names for names in known.values()):
            raise unknown_name("option", name, {option for names in known.values() for option in names})
    return ENCODERS[assignment](codebook, **{name: options[name] for name in known[assignment] if name in options})


def soft_codes(values: Any, codebook: Any, bandwidth: float = 0.05) -> NDArray[Any]:
    """Assign each vector to all words: ``u_k = exp(-|x - b_k| / bandwidth)``, divided by its sum over words.

    Parameters
    ----------
    values : array-like of shape (M, D)
    codebook : array-like of shape (K, D)
    bandwidth : float, default=0.05
        The smaller, the closer to hard assignment. The norm in the exponent is not squared.

    Returns
    -------
    codes : ndarray of shape (M, K)
        Rows sum to 1. Dense: `encode_bags` pools codes without holding them all.

    References
    ----------
    N. Passalis, A. Tefas, "Information clustering using manifold-based optimization of the bag-of-features
    representation", IEEE Transactions on Cybernetics, 2017.

    Examples
    --------
    >>> from bagwise.codebooks import soft_codes
    >>> soft_codes([[0.0], [1.0]], [[0.0], [2.0]], bandwidth=1.0).round(2)
    array([[0.88, 0.12],
           [0.5 , 0.5 ]])
    """
    encoder = SoftEncoder(as_codebook(codebook), bandwidth)
    held = working_values(values, encoder.codebook.shape[1])
    codes = np.empty((len(held), len(encoder.codebook)), encoder.codebook.dtype)
    with one_blas_thread():
        for rows, found in encoder.blocks(held):
            codes[rows] = found
    return codes


def localized_codes(
    values: Any, codebook: Any, n_neighbors: int = 5, sharpness: float = 10.0, weighted: bool = False
) -> sp.csr_array:
    """Assign each vector to its nearest words: ``u_k = exp(-sharpness |x - b_k|²)``, divided by its sum over them.

    Parameters
    ----------
    values : array-like of shape (M, D)
    codebook : array-like of shape (K, D)
    n_neighbors : int, default=5
        Number of words a vector is assigned to; ties go to the lowest index.
    sharpness : float, default=10.0
        The default suits vectors of length 1.
    weighted : bool, default=False
        Whether each vector counts as much as the square of its length: ``x / |x|`` is assigned, and its codes are
        multiplied by ``|x|²``. For activations of networks, see `NetworkFeatures`.

    Returns
    -------
    codes : CSR array of shape (M, K)
        Rows sum to 1, or to ``|x|²``.

    References
    ----------
    L. Liu, L. Wang, X. Liu, "In defense of soft-assignment coding", ICCV 2011.

    Examples
    --------
    >>> from bagwise.codebooks import localized_codes
    >>> localized_codes([[0.0]], [[0.0], [9.0], [0.5]], n_neighbors=2, sharpness=4.0).toarray().round(2)
    array([[0.73, 0.  , 0.27]])
    """
    encoder = LocalizedEncoder(as_codebook(codebook), n_neighbors, sharpness, weighted)
    return _stacked(encoder.blocks(working_values(values, encoder.codebook.shape[1])), encoder.codebook)


def sparse_codes(values: Any, codebook: Any, penalty: float = 0.15) -> sp.csr_array:
    """Encode each vector by a sparse combination of words: the u that minimises ``|x - u D|² + penalty |u|_1``.

    Parameters
    ----------
    values : array-like of shape (M, D)
        The default penalty suits vectors of length 1.
    codebook : array-like of shape (K, D)
        Words are scaled to length 1 first, as the rows of D.
    penalty : float, default=0.15

    Returns
    -------
    codes : CSR array of shape (M, K)
        Signed. `encode_bags` pools absolute values.

    Notes
    -----
    Coordinate descent on the words that change most. Memory for K x K inner products of words, float64.

    References
    ----------
    J. Yang, K. Yu, Y. Gong, T. Huang, "Linear spatial pyramid matching using sparse coding for image classification",
    CVPR 2009.

    Examples
    --------
    >>> from bagwise.codebooks import sparse_codes
    >>> sparse_codes([[1.0, -2.0]], [[3.0, 0.0], [0.0, 1.0]], penalty=0.5).toarray()
    array([[ 0.75, -1.75]])
    """
    encoder = SparseEncoder(as_codebook(codebook), penalty)
    return _stacked(encoder.blocks(working_values(values, encoder.codebook.shape[1]), signed=True), encoder.codebook)


def _stacked(blocks: Iterator[tuple[slice, Any]], codebook: NDArray[Any]) -> sp.csr_array:
    with one_blas_thread():
        parts = [codes for _, codes in blocks]
    empty = sp.csr_array((0, len(codebook)), dtype=codebook.dtype)
    return sp.csr_array(sp.vstack(parts or [empty], format="csr")).astype(codebook.dtype)


def _few_codes(words: NDArray[np.intp], weights: NDArray[Any], n_words: int) -> sp.csr_array:
    """CSR rows with the same number of entries each."""
    n, k = words.shape
    order = np.argsort(words, axis=1)
    entries = np.take_along_axis(weights, order, 1).ravel(), np.take_along_axis(words, order, 1).ravel()
    return sp.csr_array((*entries, np.arange(0, n * k + 1, k)), shape=(n, n_words))


def _positive(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, (bool, str)) or not 0 < number < float("inf"):
        raise BagwiseError(f"{name} must be a number above 0, got {value!r}.")
    return number
