"""`SparseBags`: bags of sparse vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from bagwise._utils.checks import as_offsets, as_positions
from bagwise.errors import BagwiseError

__all__ = ["SparseBags"]


class SparseBags:
    """Bags of sparse vectors, the rows of one CSR matrix. The counterpart of `Bags` for dense vectors.

    Bag i is ``rows[offsets[i]:offsets[i + 1]]`` and may be empty. To make dense bags, reduce the rows first (merge
    words, project): ``Bags(reduce(bags.rows), bags.offsets, bags.positions)``.

    Parameters
    ----------
    rows : CSR matrix of shape (M, D)
    offsets : array-like of int, shape (N + 1,)
        Boundaries of the bags: non-decreasing, from 0 to M.
    positions : array-like of shape (M, 2), default=None
        x and y of each row, in [0, 1].

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from bagwise.descriptors import SparseBags
    >>> bags = SparseBags(sp.csr_array([[0, 2, 0], [1, 0, 0], [0, 0, 3]]), [0, 2, 2, 3])
    >>> bags
    <SparseBags: 3 bags, 3 rows x 3 features of int64, 3 stored>
    >>> bags[0].toarray()
    array([[0, 2, 0],
           [1, 0, 0]])
    >>> bags.sums().toarray()
    array([[1, 2, 0],
           [0, 0, 0],
           [0, 0, 3]])
    """

    def __init__(self, rows: Any, offsets: ArrayLike, positions: ArrayLike | None = None) -> None:
        if not sp.issparse(rows):
            raise BagwiseError(f"SparseBags holds a CSR matrix, got {type(rows).__name__}. For dense rows use Bags.")
        self.rows = sp.csr_array(rows)
        self.offsets: NDArray[np.int64] = as_offsets(offsets, self.rows.shape[0])
        self.positions = None if positions is None else as_positions(positions, self.rows.shape[0])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of rows in each bag."""
        return np.diff(self.offsets)

    @property
    def n_features(self) -> int:
        """Number of columns, D."""
        return self.rows.shape[1]

    @property
    def n_rows(self) -> int:
        """Number of rows in all bags, M."""
        return self.rows.shape[0]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> sp.csr_array:
        if isinstance(i, bool) or not isinstance(i, (int, np.integer)):
            raise BagwiseError(
                f"A bag is chosen by its number, got {type(i).__name__}. Use .rows for rows of all bags."
            )
        if not -len(self) <= i < len(self):
            raise IndexError(f"There is no bag {i}: there are {len(self)}, numbered from 0.")
        return self.rows[self.offsets[i % len(self)] : self.offsets[i % len(self) + 1]]

    def __iter__(self) -> Iterator[sp.csr_array]:
        return (self[i] for i in range(len(self)))

    def sums(self) -> sp.csr_array:
        """Sum of the rows of each bag, a CSR matrix of shape (N, D)."""
        ones, shape = np.ones(self.n_rows, self.rows.dtype), (len(self), self.n_rows)
        return sp.csr_array((ones, np.arange(self.n_rows), self.offsets), shape=shape) @ self.rows

    def __repr__(self) -> str:
        places = ", with positions" if self.positions is not None else ""
        return (
            f"<SparseBags: {len(self)} bags, {self.n_rows} rows x {self.n_features} features of {self.rows.dtype}, "
            f"{self.rows.nnz} stored{places}>"
        )
