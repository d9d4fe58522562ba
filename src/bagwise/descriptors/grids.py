"""Where patches lie in an image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["centres_in_unit_square", "starts_of"]


def starts_of(length: int, size: float, step: int) -> NDArray[np.int64]:
    """First pixels of patches along a side of an image: as many as fit, with the same margin at both ends.

    An odd pixel of margin is put at the far end. Nothing fits into a side shorter than a patch.
    """
    spare = length - math.ceil(size)
    if spare < 0:
        return np.empty(0, np.int64)
    return np.arange(spare % step // 2, spare + 1, step)


def centres_in_unit_square(rows: NDArray[Any], columns: NDArray[Any], height: int, width: int) -> NDArray[np.float32]:
    """Positions (x, y) of all points of a grid, row after row.

    Rows and columns are in pixels from the image's edge: the middle of its first pixel is at 0.5.
    """
    x, y = np.meshgrid(columns / max(width, 1), rows / max(height, 1))
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)
