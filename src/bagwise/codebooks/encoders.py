"""Encoders: how a vector is assigned to words. Records of parameters, one class per method, in one table."""

from __future__ import annotations

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.records import Integer, Number, OneOf, Record, parameter, plain
from bagwise._utils.threads import one_blas_thread
from bagwise.codebooks.distances import WordDistances, as_codebook, working_values
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["ENCODERS", "Assigned", "Encoder", "FewEncoder", "HardEncoder", "LocalizedEncoder", "ResidualEncoder"]
__all__ += ["SoftEncoder", "SparseEncoder", "as_encoder", "unit_vectors"]

# Coordinate descent stops when no code changes by more than this, or after this many steps.
_LASSO_TOLERANCE = 1e-6
_LASSO_STEPS = 10_000
_UNIT_ROWS = 1 << 13  # vectors that are scaled at a time
_MOST_NEIGHBORS, _LARGEST = 1000, 1e16


@dataclass(repr=False, unsafe_hash=True)
class Encoder(Record, ABC):
    """Base of encoders. A subclass is a dataclass with its parameters as fields, and a row of the table `ENCODERS`.

    `on` gives the same encoder bound to words, as which it has `codebook` and `distances` and computes codes by
    `blocks`, which may run in several threads.

    Attributes
    ----------
    name : str
        In files and for `BagOfFeatures`.
    pooling, normalize
        Those of `BagOfFeatures` where it is told "auto".
    adds_only : bool
        Whether codes have no maximum, only sums.
    on_device : bool
        Whether `blocks` computes by functions of the array module of the words.
    """

    name: ClassVar[str]
    pooling: ClassVar[str]
    normalize: ClassVar[tuple[str, ...]] = ()
    adds_only: ClassVar[bool] = False
    on_device: ClassVar[bool] = True

    @property
    def n_entries(self) -> int | None:
        """Largest number of non-zeros in the code of a vector; None if it is dense."""
        return None

    def on(self, codebook: Any, distances: type[WordDistances] = WordDistances) -> Self:
        """Return a copy that is bound to the words of a checked codebook."""
        self.check()
        if not self.on_device and distances is not WordDistances:
            raise BagwiseError(
                f"{self.name.capitalize()} codes are not computed on a device. Use device='cpu', or another assignment."
            )
        bound = copy.copy(self)
        bound._bind(codebook, distances)
        return bound

    def _bind(self, codebook: Any, distances: type[WordDistances]) -> None:
        self.distances = distances(codebook)

    @property
    def codebook(self) -> Any:
        """The words."""
        return self.distances.codebook

    def compared(self, values: Any, dtype: Any = None) -> Any:
        """Return vectors as they are compared with words."""
        return values

    @property
    def by_length(self) -> bool:
        """Whether vectors count by their lengths."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """Return name and parameters as JSON values, from which `as_encoder` makes the encoder again."""
        return {"name": self.name, **{name: plain(value) for name, value in self.get_params().items()}}

    def numbers_of_word(self, n_features: int) -> int:
        """Return how many numbers of a histogram each word has."""
        return 1

    @abstractmethod
    def blocks(self, values: Any) -> Iterator[tuple[slice, Any]]:
        """Yield rows (a slice) and their codes, dense or CSR, none negative."""

    def codes(self, values: Any, codebook: Any, **options: Any) -> Any:
        """Return the codes of vectors.

        Parameters
        ----------
        values : array-like of shape (M, D)
        codebook : array-like of shape (K, D)
        **options
            Those of `blocks`: ``signed=True`` gives codes of `SparseEncoder` with their signs.

        Returns
        -------
        codes : ndarray or CSR array of shape (M, K)
            CSR where most of them are zeros. `encode_bags` pools codes without holding them all.
        """
        import scipy.sparse as sp  # deferred: reading a model does without it

        words = as_codebook(codebook)
        bound, vectors = self.on(words), working_values(values, words.shape[1])
        some = vectors if len(vectors) else np.zeros((1, words.shape[1]), words.dtype)  # says whether codes are sparse
        with one_blas_thread():
            parts = [codes.copy() for _, codes in bound.blocks(some, **options)]
        if not sp.issparse(parts[0]):
            return np.concatenate(parts)[: len(vectors)]
        return sp.csr_array(sp.vstack(parts, format="csr")[: len(vectors)]).astype(words.dtype)

    def pool(self, values: Any, groups: NDArray[np.intp], maximum: bool, out: NDArray[np.float64]) -> None:
        """Add the codes of vectors to the rows `groups` of histograms, or take their maximum; on the host."""
        from bagwise.codebooks import _kernels as kernels  # deferred: models of texts do without numba

        for rows, codes in self.blocks(values):
            if hasattr(codes, "indptr"):
                kernels.pool_sparse(codes.indptr, codes.indices, codes.data, groups[rows], maximum, out)
            else:
                kernels.pool_dense(codes, groups[rows], maximum, out)


class Assigned(NamedTuple):
    """The words of some vectors, the nearest first: numbers and weights of shape (n, k), and distances to the first."""

    words: NDArray[np.intp]
    weights: NDArray[Any]
    distances: NDArray[np.float32]


class FewEncoder(Encoder):
    """An encoder that assigns each vector to few words."""

    @abstractmethod
    def assign(self, values: Any) -> Iterator[tuple[slice, Assigned]]:
        """Yield rows and the words they are assigned to."""

    def few(self, values: Any) -> Iterator[tuple[slice, Any, Any]]:
        """Yield rows, their words and weights."""
        for rows, assigned in self.assign(values):
            yield rows, assigned.words, assigned.weights

    def blocks(self, values: Any) -> Iterator[tuple[slice, Any]]:
        """Yield rows and their codes."""
        import scipy.sparse as sp

        for rows, words, weights in self.few(values):
            n, k = words.shape
            order = np.argsort(words, axis=1)
            entries = np.take_along_axis(weights, order, 1).ravel(), np.take_along_axis(words, order, 1).ravel()
            yield rows, sp.csr_array((*entries, np.arange(0, n * k + 1, k)), shape=(n, len(self.codebook)))


@dataclass(repr=False, unsafe_hash=True)
class HardEncoder(FewEncoder):
    """1 for the nearest word, 0 for all others.

    Examples
    --------
    >>> from bagwise.codebooks import HardEncoder
    >>> HardEncoder().codes([[0.0], [1.5]], [[0.0], [2.0]]).toarray()
    array([[1., 0.],
           [0., 1.]])
    """

    name: ClassVar[str] = "hard"
    pooling: ClassVar[str] = "sum"

    @property
    def n_entries(self) -> int:
        """1."""
        return 1

    def assign(self, values: Any) -> Iterator[tuple[slice, Assigned]]:
        """Yield all rows and their words."""
        for rows, words, weights in self.few(values):
            distances = np.linalg.norm(values - self.codebook[words[:, 0]], axis=1)
            yield rows, Assigned(words, weights, distances)

    def few(self, values: Any) -> Iterator[tuple[slice, Any, Any]]:
        """Yield all rows, their words and weights: codes need no distances."""
        xp = self.distances.xp
        words = xp.empty((len(values), 1), np.intp)
        self.distances.nearest(values, words[:, 0])
        yield slice(0, len(values)), words, xp.ones(words.shape, self.codebook.dtype)


@dataclass(repr=False, unsafe_hash=True)
class SoftEncoder(Encoder):
    """``exp(-|x - b| / bandwidth)`` for each word b, divided by its sum over words. Codes are dense.

    Parameters
    ----------
    bandwidth : float, default=0.05
        The smaller, the closer to hard assignment. The norm in the exponent is not squared. The default suits vectors
        of length 1.

    References
    ----------
    N. Passalis, A. Tefas, "Information clustering using manifold-based optimization of the bag-of-features
    representation", IEEE Transactions on Cybernetics, 2017.

    Examples
    --------
    >>> from bagwise.codebooks import SoftEncoder
    >>> SoftEncoder(bandwidth=1.0).codes([[0.0], [1.0]], [[0.0], [2.0]]).round(2)
    array([[0.88, 0.12],
           [0.5 , 0.5 ]])
    """

    name: ClassVar[str] = "soft"
    pooling: ClassVar[str] = "mean"

    bandwidth: float = parameter(0.05, Number(above_zero=True, most=_LARGEST))

    def _bind(self, codebook: Any, distances: type[WordDistances]) -> None:
        super()._bind(codebook, distances)
        self._g = codebook.dtype.type(self.bandwidth)
        if not self._g > 0:
            raise BagwiseError(f"bandwidth={self.bandwidth!r} is too small for {codebook.dtype}. Use hard assignment.")

    def blocks(self, values: Any) -> Iterator[tuple[slice, Any]]:
        """Yield rows and their codes."""
        for rows, codes in self.distances.blocks(values):
            np.sqrt(codes, out=codes)
            codes -= codes.min(axis=1, keepdims=True)  # the largest code is 1: no underflow of all
            with np.errstate(over="ignore"):  # an infinite exponent gives 0, as it should
                codes /= -self._g
            np.exp(codes, out=codes)
            codes /= codes.sum(axis=1, keepdims=True)
            yield rows, codes


@dataclass(repr=False, unsafe_hash=True)
class LocalizedEncoder(FewEncoder):
    """``exp(-sharpness |x - b|²)`` for the nearest words b, divided by its sum over them; 0 for the others.

    Parameters
    ----------
    n_neighbors : int, default=5
        Number of words a vector is assigned to; ties go to the lowest index.
    sharpness : float, default=10.0
        The default suits vectors of length 1.
    weighted : bool, default=False
        Whether vectors count as much as the squares of their lengths. Words are learned from vectors of length 1,
        ``x / |x|`` is assigned to them, and its codes are multiplied by ``|x|²``. For activations of networks, see
        `NetworkFeatures`.

    Notes
    -----
    Distances of a matrix product decide which words are near. On the CPU, weights come from exact distances, so that
    they do not depend on the vectors beside them in the product.

    References
    ----------
    L. Liu, L. Wang, X. Liu, "In defense of soft-assignment coding", ICCV 2011.

    Examples
    --------
    >>> from bagwise.codebooks import LocalizedEncoder
    >>> LocalizedEncoder(n_neighbors=2, sharpness=4.0).codes([[0.0]], [[0.0], [9.0], [0.5]]).toarray().round(2)
    array([[0.73, 0.  , 0.27]])
    """

    name: ClassVar[str] = "localized"
    pooling: ClassVar[str] = "max"

    n_neighbors: int = parameter(5, Integer(1, _MOST_NEIGHBORS))
    sharpness: float = parameter(10.0, Number(above_zero=True, most=_LARGEST))
    weighted: bool = parameter(False, OneOf(True, False))

    @property
    def n_entries(self) -> int:
        """The neighbours; once it is bound, at most as many as there are words."""
        return min(self.n_neighbors, len(self.codebook)) if hasattr(self, "distances") else self.n_neighbors

    @property
    def by_length(self) -> bool:
        """Whether they are `weighted`."""
        return bool(self.weighted)

    def compared(self, values: Any, dtype: Any = None) -> Any:
        """Return vectors as they are compared with words: at length 1 if they are `weighted`."""
        if not self.weighted:
            return values
        return unit_vectors(values, dtype or (values.dtype if values.dtype == np.float64 else np.float32))[0]

    def assign(self, values: Any) -> Iterator[tuple[slice, Assigned]]:
        """Yield rows and their words."""
        xp, dtype, lengths = self.distances.xp, self.codebook.dtype, None
        if self.weighted:
            values, lengths = unit_vectors(values, dtype, xp)
        for rows, words, squares in self.distances.nearest_few(values, self.n_entries):
            nearest = xp.sqrt(squares[:, 0]).astype(np.float32)
            weights = self._weights(squares)
            if lengths is not None:
                weights = weights * lengths[rows, np.newaxis] ** 2
            yield rows, Assigned(words, weights.astype(dtype), nearest)

    def _weights(self, squares: Any) -> Any:
        """Turn squared distances, of which the first in each row is the least, into weights, in place."""
        squares -= squares[:, :1].copy()
        with np.errstate(over="ignore"):
            squares *= -self.codebook.dtype.type(self.sharpness)
        np.exp(squares, out=squares)
        squares /= squares.sum(axis=1, keepdims=True)
        return squares


def unit_vectors(values: Any, dtype: Any, xp: Any = np) -> tuple[Any, Any]:
    """Scale vectors to length 1 and return them with their lengths, of float64; vectors of zeros stay zeros.

    >>> unit_vectors(np.array([[3.0, 4.0], [0.0, 0.0]]), np.float32)
    (array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32), array([5., 0.]))
    """
    units, lengths = xp.empty(values.shape, dtype), xp.empty(len(values))
    for k in range(0, len(values), _UNIT_ROWS):  # in pieces: numbers of float64 take twice the memory
        block = values[k : k + _UNIT_ROWS].astype(np.float64)
        lengths[k : k + _UNIT_ROWS] = norms = xp.sqrt((block * block).sum(axis=1))
        units[k : k + _UNIT_ROWS] = block / xp.where(norms > 0, norms, 1.0)[:, np.newaxis]
    return units, lengths


@dataclass(repr=False, unsafe_hash=True)
class SparseEncoder(Encoder):
    """Absolute values of the u that minimises ``|x - u D|² + penalty |u|_1``; the rows of D are unit-norm words.

    Parameters
    ----------
    penalty : float, default=0.15
        The default suits vectors of length 1.

    Notes
    -----
    Coordinate descent on the words that change most. Memory for K x K inner products of words, float64.

    References
    ----------
    J. Yang, K. Yu, Y. Gong, T. Huang, "Linear spatial pyramid matching using sparse coding for image classification",
    CVPR 2009.

    Examples
    --------
    >>> from bagwise.codebooks import SparseEncoder
    >>> SparseEncoder(penalty=0.5).codes([[1.0, -2.0]], [[3.0, 0.0], [0.0, 1.0]], signed=True).toarray()
    array([[ 0.75, -1.75]])
    """

    name: ClassVar[str] = "sparse"
    pooling: ClassVar[str] = "max"
    on_device: ClassVar[bool] = False

    penalty: float = parameter(0.15, Number(above_zero=True, most=_LARGEST))

    def _bind(self, codebook: Any, distances: type[WordDistances]) -> None:
        super()._bind(codebook, distances)
        lengths = np.linalg.norm(codebook.astype(np.float64), axis=1, keepdims=True)
        self._atoms = codebook / np.where(lengths > 0, lengths, 1.0)
        self._gram = self._atoms @ self._atoms.T

    def blocks(self, values: Any, signed: bool = False) -> Iterator[tuple[slice, Any]]:
        """Yield rows and their codes."""
        import scipy.sparse as sp

        from bagwise.codebooks import _kernels as kernels

        n_rows, factors = self.distances.n_rows, np.ascontiguousarray(self._atoms.T)
        for start in range(0, len(values), n_rows):
            rows = slice(start, min(start + n_rows, len(values)))
            products = values[rows].astype(np.float64) @ factors
            codes = np.empty_like(products)
            unsolved = kernels.lasso_codes(
                self._gram, products, float(self.penalty) / 2, _LASSO_TOLERANCE, _LASSO_STEPS, codes
            )
            if unsolved:
                from sklearn.exceptions import ConvergenceWarning  # deferred: scikit-learn takes long to import

                warnings.warn(
                    f"Sparse codes of {unsolved} vectors have not converged after {_LASSO_STEPS} steps. "
                    "Scale the vectors to length 1, or raise the penalty.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            signed_codes = sp.csr_array(codes)
            yield rows, signed_codes if signed else abs(signed_codes)


@dataclass(repr=False, unsafe_hash=True)
class ResidualEncoder(Encoder):
    """The difference to the nearest word (VLAD): D numbers per word. `blocks` yields words; `pool` adds differences.

    References
    ----------
    H. Jégou, M. Douze, C. Schmid, P. Pérez, "Aggregating local descriptors into a compact image representation",
    CVPR 2010.
    """

    name: ClassVar[str] = "vlad"
    pooling: ClassVar[str] = "sum"
    normalize: ClassVar[tuple[str, ...]] = ("power", "l2")
    adds_only: ClassVar[bool] = True

    def numbers_of_word(self, n_features: int) -> int:
        """Return D."""
        return n_features

    def blocks(self, values: Any) -> Iterator[tuple[slice, Any]]:
        """Yield all rows and their words."""
        words = self.distances.xp.empty(len(values), np.intp)
        self.distances.nearest(values, words)
        yield slice(0, len(values)), words

    def pool(self, values: Any, groups: NDArray[np.intp], maximum: bool, out: NDArray[np.float64]) -> None:
        """Add the differences to the rows `groups` of histograms."""
        from bagwise.codebooks import _kernels as kernels

        sums = out.reshape(len(out), *self.codebook.shape)
        for rows, words in self.blocks(values):
            kernels.add_residuals(values[rows], words, self.codebook, groups[rows], sums)


# Adding one takes its class and a row.
ENCODERS: dict[str, type[Encoder]] = {
    one.name: one for one in (HardEncoder, SoftEncoder, LocalizedEncoder, SparseEncoder, ResidualEncoder)
}


def as_encoder(assignment: Any) -> Encoder:
    """Return the encoder of a name or of a mapping as files have it; an encoder as it is.

    >>> as_encoder("soft"), as_encoder({"name": "localized", "n_neighbors": 3})
    (SoftEncoder(), LocalizedEncoder(n_neighbors=3))
    """
    if isinstance(assignment, Encoder):
        return assignment
    parameters = dict(assignment) if isinstance(assignment, Mapping) else {"name": assignment}
    name = parameters.pop("name", None)
    if not isinstance(name, str) or name not in ENCODERS:
        raise unknown_name("assignment", name, ENCODERS, "an encoder of bagwise.codebooks")
    unknown = set(parameters) - set(ENCODERS[name].rules())
    if unknown:
        raise unknown_name(f"parameter of {name} assignment", min(unknown, key=str), ENCODERS[name].rules())
    made = ENCODERS[name](**parameters)
    made.check()
    return made
