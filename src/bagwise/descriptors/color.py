"""`ColorCells`: means and standard deviations of colours in the cells of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.records import Integer, parameter
from bagwise.descriptors.base import Descriptor
from bagwise.descriptors.images import as_image, centres_in_unit_square, starts_of
from bagwise.descriptors.registry import MOST_PIXELS

__all__ = ["ColorCells"]


@dataclass(eq=False, repr=False)
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

    color: ClassVar[bool] = True

    cell: int = parameter(8, Integer(1, MOST_PIXELS))
    step: int = parameter(8, Integer(1, MOST_PIXELS))

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        from bagwise.descriptors._kernels import describe_cells

        image = as_image(content)
        planes = image[:, :, np.newaxis] if image.ndim == 2 else image
        pixels = np.ascontiguousarray(planes, dtype=None if image.dtype == np.uint8 else np.float64)
        height, width, n_planes = pixels.shape
        rows, columns = (starts_of(side, self.cell, self.step) for side in (height, width))
        values = np.empty((len(rows) * len(columns), 2 * n_planes), np.float32)
        describe_cells(pixels, rows, columns, self.cell, values)
        if n_planes == 1:
            values = np.repeat(values, 3, axis=1)
        middle = self.cell / 2
        return values, centres_in_unit_square(rows + middle, columns + middle, height, width)
