"""Spatial pyramids: grids laid over the unit square, and the cells that positions fall into."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError

__all__ = ["PYRAMIDS", "WordLayout", "cell_names", "cell_numbers", "n_cells", "resolve_pyramid"]

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


@dataclass(frozen=True)
class WordLayout:
    """Columns of histograms: words of several vocabularies side by side, all of them once for each cell of a pyramid.

    Parameters
    ----------
    vocabularies : tuple of int
        Numbers of words.
    pyramid : tuple of (rows, columns), default=((1, 1),)

    Examples
    --------
    >>> layout = WordLayout((2, 1), ((1, 1), (1, 2)))
    >>> layout.n_words, layout.n_cells, layout.n_columns, layout.slices
    (3, 3, 9, (slice(0, 2, None), slice(2, 3, None)))
    >>> layout.over_cells(np.array([0, 1, 0]), 2)
    array([0, 1, 0, 2, 3, 2, 4, 5, 4])
    >>> layout.whole(np.arange(9).reshape(1, 9))
    array([[0, 1, 2]])
    """

    vocabularies: tuple[int, ...]
    pyramid: Grids = ((1, 1),)

    @cached_property
    def n_words(self) -> int:
        """Number of words of all vocabularies."""
        return sum(self.vocabularies)

    @cached_property
    def n_cells(self) -> int:
        """Number of cells of all grids."""
        return n_cells(self.pyramid)

    @property
    def n_columns(self) -> int:
        """Columns of histograms of words."""
        return self.width(self.n_words)

    @property
    def is_plain(self) -> bool:
        """Whether there are one vocabulary and one cell."""
        return len(self.vocabularies) == 1 and self.n_cells == 1

    @property
    def slices(self) -> tuple[slice, ...]:
        """The words of each vocabulary."""
        ends = np.cumsum(self.vocabularies).tolist()
        return tuple(slice(end - size, end) for end, size in zip(ends, self.vocabularies, strict=True))

    @property
    def vocabulary_of(self) -> NDArray[np.intp]:
        """The vocabulary of each word."""
        return np.repeat(np.arange(len(self.vocabularies)), self.vocabularies)

    def width(self, n_groups: int) -> int:
        """Return the number of columns of histograms of groups."""
        return self.n_cells * n_groups

    def over_cells(self, labels: NDArray[Any], n_groups: int) -> NDArray[np.int64]:
        """Return the columns of the groups of some words in each cell, cell by cell."""
        return (np.arange(self.n_cells)[:, np.newaxis] * n_groups + labels).ravel()

    def tiled(self, values: NDArray[Any]) -> NDArray[Any]:
        """Repeat numbers of words, or of their groups, for each cell."""
        return np.tile(values, self.n_cells)

    def by_cell(self, coef: NDArray[Any]) -> NDArray[Any]:
        """Return weights of features, one row for each class, as an array of shape (n_classes, n_cells, n_groups)."""
        return coef.reshape(len(coef), self.n_cells, -1)

    def whole(self, X: Any) -> Any:
        """Return histograms of whole items: the sum over the cells of the first grid. One cell: those there are."""
        if self.n_cells == 1:
            return X
        (rows, columns), n = self.pyramid[0], X.shape[1] // self.n_cells
        cells = [X[:, k * n : (k + 1) * n] for k in range(rows * columns)]
        return sum(cells[1:], start=cells[0])
