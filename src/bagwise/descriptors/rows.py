"""Scaling the rows of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["unit_rows"]


def unit_rows(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Scale rows to length 1; zero rows stay zero. There may be no rows, which scikit-learn's normalize refuses.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros(rows.shape), where=lengths > 0).astype(np.float32)
