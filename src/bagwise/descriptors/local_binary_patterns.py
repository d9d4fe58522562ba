"""`LocalBinaryPatterns`: histograms of the patterns of 8 neighbours."""

from __future__ import annotations

from numbers import Integral
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from bagwise.descriptors.base import Descriptor, ItemTransformer
from bagwise.descriptors.grids import centres_in_unit_square, starts_of
from bagwise.descriptors.patterns import as_comparable, pattern_codes, uniform_bins

__all__ = ["LocalBinaryPatterns", "cell_histograms"]


class LocalBinaryPatterns(Descriptor):
    """Count local binary patterns of 3 x 3 pixels, in the whole image or in cells.

    Bit b of a pixel's pattern is 1 if neighbour b is at least as bright as the pixel; the 8 neighbours are taken from
    top left clockwise, the first one being the lowest bit. Pixels on the border of the image have no pattern.

    Parameters
    ----------
    uniform : bool, default=False
        Count all 256 patterns; or 59 bins: the 58 patterns with at most two changes between 0 and 1 around the ring, in
        the order of their codes, and one bin for all others.
    cell : int, default=None
        Side of the cells in pixels, which lie side by side, centred in the image. None: one histogram per image.
    norm : {"l1", "l2"} or None, default="l1"
        Scale each histogram to sum 1 or length 1. None gives counts.
    n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    LBPD5 : Patterns of 16 neighbours.
    HogLbp : Uniform patterns beside gradients.

    Notes
    -----
    Nothing changes if all grey values are changed by the same strictly increasing function. Colour images are converted
    to grey. Images smaller than 3 x 3 pixels, or than a cell, give an empty bag; the histogram of a cell without any
    pattern (one pixel, at the border) is zero. Time O(H W).

    References
    ----------
    T. Ojala, M. Pietikäinen, T. Mäenpää, "Multiresolution gray-scale and rotation invariant texture classification with
    local binary patterns", TPAMI 24(7), 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import LocalBinaryPatterns
    >>> image = np.random.default_rng(0).integers(0, 256, (40, 50), dtype=np.uint8)
    >>> LocalBinaryPatterns(uniform=True).transform([image])
    <Bags: 1 bags, 1 rows x 59 features of float32, with positions>
    >>> LocalBinaryPatterns(cell=16, norm=None).transform([image]).values.sum(axis=1)
    array([256., 256., 256., 256., 256., 256.], dtype=float32)
    """

    _parameter_constraints: ClassVar[dict] = {
        **ItemTransformer._parameter_constraints,
        "uniform": ["boolean"],
        "cell": [Interval(Integral, 1, None, closed="left"), None],
        "norm": [StrOptions({"l1", "l2"}), None],
    }

    def __init__(
        self,
        uniform: bool = False,
        *,
        cell: int | None = None,
        norm: str | None = "l1",
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.uniform = uniform
        self.cell = cell
        self.norm = norm
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        image = as_comparable(content)
        height, width = image.shape
        bins, n_bins = (uniform_bins(58), 59) if self.uniform else (np.arange(256), 256)
        if min(height, width) < 3:
            return np.empty((0, n_bins), np.float32), np.empty((0, 2), np.float32)
        cell_height, cell_width = (height, width) if self.cell is None else (self.cell, self.cell)
        rows, columns = starts_of(height, cell_height, cell_height), starts_of(width, cell_width, cell_width)
        counts = cell_histograms(image, bins, n_bins, rows, columns, cell_height, cell_width)
        positions = centres_in_unit_square(rows + cell_height / 2, columns + cell_width / 2, height, width)
        values = counts.astype(np.float32)
        if self.norm is not None:
            sizes = np.linalg.norm(counts, ord=1 if self.norm == "l1" else 2, axis=1, keepdims=True)
            values = (counts / np.maximum(sizes, 1.0)).astype(np.float32)
        return values, positions


def cell_histograms(
    image: NDArray[Any],
    bins: NDArray[np.int64],
    n_bins: int,
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    cell_height: int,
    cell_width: int,
) -> NDArray[np.int64]:
    """Count the patterns of 8 neighbours in cells.

    Parameters
    ----------
    image : ndarray of uint8 or float64, shape (H, W)
    bins : ndarray of int, shape (256,)
        Bin of each pattern; patterns with a negative one are not counted.
    n_bins : int
    rows, columns : ndarrays of int
        First pixels of cells.
    cell_height, cell_width : int

    Returns
    -------
    counts : ndarray of int, shape (len(rows) len(columns), n_bins)
    """
    from bagwise.descriptors._pattern_kernels import count_in_cells

    counts = np.empty((len(rows), len(columns), n_bins), np.int64)
    # codes begin at the second pixel
    count_in_cells(pattern_codes(image, 1), bins, rows - 1, columns - 1, cell_height, cell_width, counts)
    return counts.reshape(-1, n_bins)
