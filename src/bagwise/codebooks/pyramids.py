"""Spatial pyramids: grids laid over the unit square, and the cells that positions fall into."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError

__all__ = ["PYRAMIDS", "cell_names", "cell_numbers", "n_cells", "resolve_pyramid"]

Grids = tuple[tuple[int, int], ...]

# By their number of cells; grids are (rows, columns), so that (3, 1) are three horizontal bands.
PYRAMIDS: dict[int, Grids] = {
    5: ((1, 1), (2, 2)),
    8: ((1, 1), (2, 2), (3, 1)),
    21: ((1, 1), (2, 2), (4, 4)),
}
# Each cell has a histogram of all words. The same number as in the runtime.
MOST_CELLS = 1 << 10


def resolve_pyramid(pyramid: Any) -> Grids:
    """Turn the `pyramid` parameter into grids of (rows, columns).

    Parameters
    ----------
    pyramid : None, 5, 8, 21, or iterable of pairs of int
        None is one cell, the whole.

    Returns
    -------
    grids : tuple of (rows, columns)

    Examples
    --------
    >>> from bagwise.codebooks import resolve_pyramid
    >>> resolve_pyramid(8)
    ((1, 1), (2, 2), (3, 1))
    >>> resolve_pyramid([(1, 2)])
    ((1, 2),)
    """
    if pyramid is None:
        return ((1, 1),)
    if isinstance(pyramid, Integral) and not isinstance(pyramid, bool) and int(pyramid) in PYRAMIDS:
        return PYRAMIDS[int(pyramid)]
    if not isinstance(pyramid, str) and isinstance(pyramid, Iterable):
        grids = tuple(tuple(grid) if isinstance(grid, Iterable) else grid for grid in pyramid)
        if grids and all(_is_grid(grid) for grid in grids):
            if n_cells(grids) > MOST_CELLS:
                raise BagwiseError(f"A pyramid has at most {MOST_CELLS} cells, this one has {n_cells(grids)}.")
            return tuple((int(rows), int(columns)) for rows, columns in grids)
    raise BagwiseError(
        f"pyramid={pyramid!r} is not a pyramid. Accepted: None, one of {sorted(PYRAMIDS)} (their numbers of cells), "
        "or a list of grids (rows, columns) such as [(1, 1), (3, 1)]."
    )


def _is_grid(grid: Any) -> bool:
    return (
        isinstance(grid, tuple)
        and len(grid) == 2
        and all(isinstance(n, Integral) and not isinstance(n, bool) and int(n) >= 1 for n in grid)
    )


def n_cells(grids: Grids) -> int:
    """Count the cells of all grids."""
    return sum(rows * columns for rows, columns in grids)


def cell_numbers(positions: NDArray[Any] | None, n_vectors: int, grids: Grids, xp: Any = np) -> NDArray[np.intp]:
    """Find the cell of each vector in each grid: shape (n_vectors, n_grids), an array of the module `xp`.

    Positions are x and y in [0, 1]; None is accepted if all grids are (1, 1) or there are no vectors. Cells are
    numbered through all grids, row by row. A point on a border belongs to the cell with the larger index, a point at 1
    to the last cell.
    """
    cells = xp.zeros((n_vectors, len(grids)), np.intp)
    if positions is None and n_vectors and any(grid != (1, 1) for grid in grids):
        raise BagwiseError(
            "A spatial pyramid needs the positions of the vectors, but these bags have none. "
            "Give them when the bags are made (Bags(..., positions=...)), or use pyramid=None."
        )
    if positions is not None and not ((positions >= 0) & (positions <= 1)).all():  # compiled code counts on it
        raise BagwiseError(
            "Positions must lie in [0, 1] x [0, 1], but some do not: the file that these bags are mapped from is "
            "damaged. Check it by: bagwise info FILE --verify"
        )
    first = 0
    for level, (rows, columns) in enumerate(grids):
        if positions is not None:
            x, y = positions[:, 0], positions[:, 1]
            column = np.minimum((x * x.dtype.type(columns)).astype(np.intp), columns - 1)
            row = np.minimum((y * y.dtype.type(rows)).astype(np.intp), rows - 1)
            cells[:, level] = row * columns + column
        cells[:, level] += first
        first += rows * columns
    return cells


def cell_names(grids: Grids) -> list[str]:
    """Name the cells, in the order of `cell_numbers`; one cell alone has the empty name.

    >>> cell_names(((1, 1), (1, 2)))
    ['1x1_r0c0_', '1x2_r0c0_', '1x2_r0c1_']
    """
    if grids == ((1, 1),):
        return [""]
    return [
        f"{rows}x{columns}_r{row}c{column}_"
        for rows, columns in grids
        for row in range(rows)
        for column in range(columns)
    ]
