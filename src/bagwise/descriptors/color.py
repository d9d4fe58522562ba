"""`ColorCells`: means and standard deviations of colours in the cells of a grid."""

from __future__ import annotations

from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise.descriptors.base import Descriptor
from bagwise.descriptors.functions import color_cells
from bagwise.descriptors.registry import parameter_constraints

__all__ = ["ColorCells"]


class ColorCells(Descriptor):
    """Describe the cells of a regular grid by the mean and the standard deviation of red, green and blue, 6 numbers.

    Words of such descriptors are colours, plain or textured. Beside words of `DenseSIFT`, which knows grey values only,
    they are a cheap second vocabulary: ``--descriptor sift+color`` of the command line.

    Parameters
    ----------
    cell : int, default=8
        Side of a cell in pixels.
    step : int, default=8
        Pixels between neighbouring cells. The grid is centred in the image.
    max_side, n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    ColorSIFT : SIFT in several colour channels.
    Patches : The pixels themselves, grey or RGB.

    Notes
    -----
    The numbers are the means of red, green and blue, then their standard deviations (of all pixels of the cell, not an
    estimate from a sample), on the scale of the image: 0 to 255 for uint8. Grey images count as RGB images with three
    equal channels. Images smaller than a cell give an empty bag. Time O(n cell²) for n cells.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import ColorCells
    >>> image = np.zeros((2, 4, 3))
    >>> image[:, :2, 0] = 6
    >>> image[:, 2:, 1] = [[1, 3], [1, 3]]
    >>> values, positions = ColorCells(cell=2, step=2).describe(image)
    >>> values
    array([[6., 0., 0., 0., 0., 0.],
           [0., 2., 0., 0., 1., 0.]], dtype=float32)
    >>> positions
    array([[0.25, 0.5 ],
           [0.75, 0.5 ]], dtype=float32)
    """

    _parameter_constraints: ClassVar[dict] = parameter_constraints("ColorCells")

    def __init__(
        self,
        cell: int = 8,
        step: int = 8,
        *,
        max_side: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.cell = cell
        self.step = step
        self.max_side = max_side
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return color_cells(content, self.cell, self.step)
