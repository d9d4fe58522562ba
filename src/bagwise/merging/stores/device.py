"""A and B on a CUDA device, for searches that run there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, device_module, is_on_device, to_device, to_host
from bagwise.errors import BagwiseError
from bagwise.merging.structures import Structure

__all__ = ["DeviceStore", "check_on_device"]

# Rows are formed in blocks of this many bytes.
_BLOCK_BYTES = 2**28


def check_on_device(X: Any, least_samples: int = 1) -> Any:
    """Return data that live on a device as an array of CuPy, C-contiguous: samples x words, finite, float64 or float32.

    A tensor of PyTorch is not copied.
    """
    xp = device_module(None, X)
    X = to_device(X, xp)
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    if X.ndim != 2 or X.shape[0] < least_samples or X.shape[1] < 1:
        raise BagwiseError(f"X must be a matrix of at least {least_samples} samples by words; got shape {X.shape}.")
    if not bool(xp.isfinite(X).all()):
        raise BagwiseError("X must hold finite numbers, but some are NaN or infinite.")
    return X


class DeviceStore:
    """A = Xᵀ L_P X and B = Xᵀ L_U X side by side: ``matrix[i, j]`` is (A_ij, B_ij), for j >= i.

    A search may write to it. Both numbers of a pair are read at once, and what is below the diagonal is never read
    before it is written.
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix

    @property
    def n_words(self) -> int:
        """Number of words."""
        return len(self.matrix)

    @classmethod
    def from_structures(
        cls, X: Any, preferred: Structure, undesired: Structure, *, xp: Any, who: str | None = None
    ) -> DeviceStore:
        """Compute A and B from the data (samples x words) with an array module, that of a device.

        Sparse data are copied to the device as a dense array, if it fits. `who` is the name of a criterion whose
        matrices may hold numbers that are not finite, which is an error.
        """
        n, d = X.shape
        n_rows = preferred.n_factor_rows() + undesired.n_factor_rows()
        cls._check_fits(xp, d, 8 * n_rows * d + (0 if is_on_device(X) else 8 * n * d))
        X = _dense_on_device(X, xp) if sp.issparse(X) else to_device(X, xp, np.float64)
        factors = [structure.scatter_factors(X) for structure in (preferred, undesired)]
        store = cls(xp.empty((d, d, 2)))
        for rows, columns in store._blocks():
            for which, parts in enumerate(factors):
                out = store.matrix[rows, columns, which]
                out[...] = 0.0
                for part in parts:
                    out += part.weight * (part.left[:, rows].T @ part.right[:, columns])
                if who is not None and not bool(xp.isfinite(out).all()):
                    raise BagwiseError(
                        f"The {'undesired' if which else 'preferred'} matrix of {who} holds numbers that are not "
                        "finite. Check the weights of graphs that it is made of."
                    )
        return store

    @classmethod
    def from_matrices(cls, A: NDArray[np.float64], B: NDArray[np.float64], *, xp: Any) -> DeviceStore:
        """Copy matrices to the device of an array module."""
        cls._check_fits(xp, len(A))
        store = cls(xp.empty((len(A), len(A), 2)))
        for rows, columns in store._blocks():
            for which, matrix in enumerate((A, B)):
                store.matrix[rows, columns, which] = xp.asarray(matrix[rows, columns])
        return store

    @staticmethod
    def _check_fits(xp: Any, d: int, more: int = 0) -> None:
        if xp is not np:
            check_device_memory(
                16 * d**2 + 2 * min(_BLOCK_BYTES, 8 * d**2) + more,
                f"Merging {d} words: two matrices of {d} x {d} and what they are formed from",
                "merge fewer words, for example after dropping the rarest ones, or use device='cpu', which keeps A and "
                "B in other ways if they do not fit",
            )

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Blocks of rows, with the columns from their diagonal on."""
        step = max(_BLOCK_BYTES // (8 * max(self.n_words, 1)), 1)
        for start in range(0, self.n_words, step):
            yield slice(start, min(start + step, self.n_words)), slice(start, None)

    def diagonals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the diagonals of A and B, on the host."""
        xp = device_module(None, self.matrix)
        both = to_host(xp.ascontiguousarray(xp.diagonal(self.matrix, axis1=0, axis2=1)))
        return both[0], both[1]

    def largest_deviation(self, ratio: float) -> float:
        """Return the largest absolute ``A_ij - ratio * B_ij`` with j >= i."""
        xp = device_module(None, self.matrix)
        largest = 0.0
        for rows, columns in self._blocks():
            block = self.matrix[rows, columns]
            largest = max(largest, float(abs(xp.triu(block[..., 0] - ratio * block[..., 1])).max()))
        return largest

    def sums_above_diagonal(self) -> NDArray[np.float64]:
        """Return ``Σ_i<j`` of A_ij and B_ij for each column j, 2 x words, on the host."""
        xp = device_module(None, self.matrix)
        sums = xp.zeros((2, self.n_words))
        for rows, columns in self._blocks():
            for which in range(2):
                sums[which, columns] += xp.triu(self.matrix[rows, columns, which], k=1).sum(axis=0)
        return to_host(sums)


def _dense_on_device(X: sp.csr_array, xp: Any) -> Any:
    """Copy a sparse matrix to a device as a dense array, without a dense copy on the host."""
    if xp is np:
        return X.toarray()
    dense = xp.zeros(X.shape)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    dense[xp.asarray(rows), xp.asarray(X.indices)] = xp.asarray(X.data)
    return dense
