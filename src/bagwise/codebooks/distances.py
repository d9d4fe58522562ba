"""Distances between vectors and words, and nearest words, a block of vectors at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.backends import backend
from bagwise._utils.checks import as_values
from bagwise._utils.threads import number_of_threads, one_blas_thread, run_over_ranges
from bagwise.errors import BagwiseError

__all__ = ["WordDistances", "as_codebook", "assign", "assign_words", "check_norms", "working_values"]

# Distances of a block: small enough for a core's cache, many enough rows for the matrix product to be fast.
_BLOCK_NUMBERS = 1 << 18
# Vectors of one task of a thread.
_TASK_ROWS = 1 << 13


def as_codebook(codebook: Any, xp: Any = np) -> NDArray[Any]:
    """Check a codebook: at least one word. Returns a C-contiguous matrix of float32 or float64 of the module `xp`."""
    words = as_values(codebook, None, "codebook", xp)
    if 0 in words.shape:
        raise BagwiseError(
            f"A codebook needs at least one word and one feature, got {words.shape[0]} words of {words.shape[1]}."
        )
    if words.dtype not in (np.float32, np.float64):
        words = words.astype(np.float32 if words.dtype in (np.float16, np.uint8) else np.float64)
    return words


def working_values(values: Any, n_features: int, xp: Any = np) -> NDArray[Any]:
    """Check vectors: a finite matrix with as many columns as the codebook. Their type stays."""
    checked = as_values(values, None, xp=xp)
    if checked.shape[1] != n_features:
        raise BagwiseError(f"The vectors have {checked.shape[1]} features, but the words of the codebook {n_features}.")
    return checked


class WordDistances:
    """Squared Euclidean distances from vectors to all words of a codebook, in the type of the codebook.

    Vectors and words are shifted by the mean word first, so that data far from the origin lose no digits. With
    `bipolar`, `nearest` compares vectors with the words and their negatives, and nothing is shifted.
    """

    xp: Any = np  # array module

    def __init__(self, codebook: NDArray[Any], *, bipolar: bool = False) -> None:
        self.codebook = codebook
        self.bipolar = bipolar
        xp = self.xp
        mean = xp.zeros(1) if bipolar else codebook.mean(axis=0, dtype=np.float64)
        self._mean = mean.astype(codebook.dtype)
        shifted = codebook - self._mean
        with np.errstate(over="ignore"):
            self._norms = xp.einsum("ij,ij->i", shifted, shifted)
        check_norms(self._norms, codebook.dtype, "The codebook")
        self._factors = xp.ascontiguousarray(-2 * shifted.T)
        rows = max(_BLOCK_NUMBERS // len(codebook), 16)
        self.n_rows = 1 << min(rows.bit_length() - 1, 10)

    def _products(self, values: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any], NDArray[Any]]]:
        """Yield rows, ``-2 x·b`` for all words, and ``|x|²``, block by block."""
        dtype = self.codebook.dtype
        most = min(self.n_rows, len(values))
        shifted, products = np.empty((most, values.shape[1]), dtype), np.empty((most, len(self.codebook)), dtype)
        for start in range(0, len(values), self.n_rows):
            rows = slice(start, min(start + self.n_rows, len(values)))
            block, block_products = shifted[: rows.stop - start], products[: rows.stop - start]
            with np.errstate(over="ignore", invalid="ignore"):
                np.subtract(values[rows], self._mean, out=block, casting="same_kind")
                norms = np.einsum("ij,ij->i", block, block)
            check_norms(norms, dtype, "A vector")
            yield rows, np.matmul(block, self._factors, out=block_products), norms

    def blocks(self, values: NDArray[Any]) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Yield a slice of rows and their distances to all words, never negative; overwritten by the next block."""
        for rows, distances, norms in self._products(values):
            distances += self._norms
            distances += norms[:, np.newaxis]
            yield rows, np.maximum(distances, 0, out=distances)

    def nearest_few(self, values: NDArray[Any], k: int) -> Iterator[tuple[slice, NDArray[np.intp], NDArray[Any]]]:
        """Yield rows, their k nearest words, nearest first and the lowest of equals, and their squared distances.

        The product says which words are near; distances are those of the vectors themselves, in float64.
        """
        from bagwise.codebooks import _kernels as kernels  # deferred: models of texts do without numba

        for rows, shifted, _ in self._products(values):
            words = np.empty((len(shifted), k), np.intp)
            distances, exact = np.empty(words.shape, shifted.dtype), np.empty(words.shape)
            kernels.nearest_few(shifted, self._norms, words, distances)
            kernels.exact_few(values[rows], self.codebook, words, exact)
            yield rows, words, exact

    def nearest(self, values: NDArray[Any], out: NDArray[np.intp], signs: NDArray[np.int8] | None = None) -> None:
        """Write the number of the nearest word of each vector, the lowest of equals, and with `bipolar` its sign."""
        for rows, scores, _ in self._products(values):
            if not self.bipolar:
                scores += self._norms
                scores.argmin(axis=1, out=out[rows])
                continue
            np.subtract(self._norms, np.abs(scores)).argmin(axis=1, out=out[rows])
            if signs is not None:
                signs[rows] = np.where(np.take_along_axis(scores, out[rows, np.newaxis], 1)[:, 0] > 0, -1, 1)


def check_norms(norms: NDArray[Any], dtype: Any, what: str) -> None:
    """Raise BagwiseError if squared norms overflow `dtype`, or are so near that sums of them would."""
    if len(norms) and not norms.max() < np.finfo(dtype).max / 8:
        raise BagwiseError(
            f"{what} is so large that its square does not fit {np.dtype(dtype)}. Scale the vectors down, "
            "or give them (and the codebook) as float64."
        )


def assign(values: NDArray[Any], table: WordDistances, n_threads: int) -> tuple[NDArray[np.intp], NDArray[np.int8]]:
    """Nearest word of each vector, and its sign: 1, or -1 where `table` is bipolar and the negative is nearer."""
    words, signs = np.empty(len(values), np.intp), np.ones(len(values), np.int8)

    def fill(start: int, stop: int) -> None:
        table.nearest(values[start:stop], words[start:stop], signs[start:stop])

    with one_blas_thread():
        run_over_ranges(fill, len(values), n_threads, size=_TASK_ROWS)
    return words, signs


def assign_words(
    values: Any, codebook: Any, *, n_jobs: int | None = None, device: str | None = None
) -> NDArray[np.intp]:
    """Find the nearest word of each vector.

    Parameters
    ----------
    values : array-like of shape (M, D)
    codebook : array-like of shape (K, D)
    n_jobs : int, default=None
    device : {"cpu", "cuda"}, default=None
        None: where the vectors are.

    Returns
    -------
    words : ndarray of shape (M,)
        Of equally near words the first, up to rounding in the type of the codebook. An array of CuPy if the vectors
        are on a device.

    Notes
    -----
    O(M K D) time, as a matrix product; memory of about 1 MB a thread beside the result, 0.5 GB on a device.

    Examples
    --------
    >>> from bagwise.codebooks import assign_words
    >>> assign_words([[0.1, 0], [4, 5], [0, 0.2]], [[0.0, 0.0], [4.0, 4.0]])
    array([0, 1, 0])
    """
    module = backend("codebooks", device, values)
    table = module.Distances(module.codebook(codebook))
    vectors = working_values(values, table.codebook.shape[1], table.xp)
    return module.where_given(module.assign(vectors, table, number_of_threads(n_jobs))[0], values)
