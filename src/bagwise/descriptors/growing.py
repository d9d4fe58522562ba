"""Rows that come one after the other and become one array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["GrowingRows"]

# Large enough that systems map it apart from the heap and take it back when it is let go.
_BLOCK_BYTES = 1 << 26


class GrowingRows:
    """Collect rows whose number is not known beforehand, in little more memory than they take together.

    Rows are copied to blocks as they come. At the end blocks are copied to the result and let go one by one, so that
    the result and one block is all there ever is. (Many small arrays cannot be let go that way: the memory of those
    that were freed stays with the process.)

    Parameters
    ----------
    width : int
        Numbers in a row.
    dtype : data type
    """

    def __init__(self, width: int, dtype: DTypeLike) -> None:
        self._width = width
        self._dtype = np.dtype(dtype)
        self._capacity = max(1, _BLOCK_BYTES // max(1, width * self._dtype.itemsize))
        self._blocks: list[NDArray[Any]] = []
        self._filled = self._capacity  # rows of the last block

    def append(self, rows: NDArray[Any]) -> None:
        """Copy rows to the end."""
        while len(rows):
            if self._filled == self._capacity:
                self._blocks.append(np.empty((self._capacity, self._width), self._dtype))
                self._filled = 0
            taken = min(len(rows), self._capacity - self._filled)
            self._blocks[-1][self._filled : self._filled + taken] = rows[:taken]
            self._filled += taken
            rows = rows[taken:]

    def joined(self) -> NDArray[Any]:
        """Give all rows as one array, and forget them."""
        if not self._blocks:
            return np.empty((0, self._width), self._dtype)
        self._blocks[-1] = self._blocks[-1][: self._filled]
        result = np.empty((sum(map(len, self._blocks)), self._width), self._dtype)
        end = len(result)
        while self._blocks:
            block = self._blocks.pop()
            result[end - len(block) : end] = block
            end -= len(block)
        self._filled = self._capacity
        return result
