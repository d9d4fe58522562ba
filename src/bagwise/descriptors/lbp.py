"""Local binary patterns: `LocalBinaryPatterns` of 8 neighbours, `LBPD5` of 16."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.records import Integer, OneOf, parameter
from bagwise.bags.bags import offsets_of
from bagwise.descriptors.base import Arrays, Descriptor
from bagwise.descriptors.images import as_comparable, centres_in_unit_square, starts_of
from bagwise.descriptors.registry import MOST_PIXELS

__all__ = ["LBPD5", "LocalBinaryPatterns", "cell_histograms", "pattern_codes", "uniform_bins"]


def pattern_codes(image: NDArray[Any], radius: int) -> NDArray[np.uint16]:
    """Code of each pixel of a uint8 or float64 image: bit b is 1 if neighbour b is at least as bright.

    The neighbours are the ``8 radius`` pixels on the border of the square window around the pixel, clockwise from the
    top left: 8 for radius 1 (256 patterns), 16 for radius 2 (65,536 patterns). Entry (y, x) is the code of pixel
    (y + radius, x + radius); pixels whose window is not inside the image have none.

    >>> pattern_codes(np.array([[5.0, 1, 1], [1, 3, 1], [1, 1, 4]]), radius=1)
    array([[17]], dtype=uint16)
    """
    from bagwise.descriptors._kernels import ring_codes

    height, width = (max(0, side - 2 * radius) for side in image.shape)
    codes = np.empty((height, width), np.uint16)
    if codes.size:
        downs, rights = _ring(radius)
        ring_codes(image, downs, rights, radius, codes)
    return codes


@functools.cache
def _ring(radius: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Steps down and to the right to the border of a square window, clockwise from the top left."""
    side = range(-radius, radius)
    top, right = [(-radius, k) for k in side], [(k, radius) for k in side]
    bottom, left = [(radius, -k) for k in side], [(-k, -radius) for k in side]
    steps = np.array(top + right + bottom + left, dtype=np.int64)
    return np.ascontiguousarray(steps[:, 0]), np.ascontiguousarray(steps[:, 1])


@functools.cache
def uniform_bins(others: int) -> NDArray[np.int64]:
    """Bin of each of the 256 patterns of 8 neighbours: 0 to 57 for uniform ones in the order of their codes.

    Uniform patterns have at most two transitions between 0 and 1 around the ring. All others get the bin `others`.
    """
    codes = np.arange(256)
    bits = codes[:, np.newaxis] >> np.arange(8) & 1
    uniform = (bits != np.roll(bits, 1, axis=1)).sum(axis=1) <= 2
    return np.where(uniform, np.cumsum(uniform) - 1, others)


@dataclass(eq=False, repr=False)
class LocalBinaryPatterns(Descriptor):
    """Count local binary patterns of 3 x 3 pixels, in the whole image or in cells.

    Bit b of a pixel's pattern is 1 if neighbour b is at least as bright as the pixel. The 8 neighbours are numbered
    clockwise from the top left, lowest bit first. Pixels on the border of the image have no pattern.

    Parameters
    ----------
    uniform : bool, default=False
        If False, count all 256 patterns. If True, count in 59 bins: the 58 patterns with at most two transitions
        between 0 and 1 around the ring, in the order of their codes, and one bin for all others.
    cell : int, default=None
        Side of the cells in pixels. Cells are adjacent and centred in the image. None: one histogram per image.
    normalize : {"l1", "l2"} or None, default="l1"
        Norm that each histogram is divided by. None returns counts.
    max_side, n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    LBPD5 : Patterns of 16 neighbours.
    HogLbp : Uniform patterns and gradients.

    Notes
    -----
    Patterns are invariant to strictly increasing transformations of the grey values. Colour images are converted to
    grey. Images smaller than 3 x 3 pixels, or than a cell, give an empty bag; the histogram of a cell without any
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
    >>> LocalBinaryPatterns(cell=16, normalize=None).transform([image]).values.sum(axis=1)
    array([256., 256., 256., 256., 256., 256.], dtype=float32)
    """

    uniform: bool = parameter(False, OneOf(True, False))
    _: KW_ONLY
    cell: int | None = parameter(None, Integer(1, MOST_PIXELS, optional=True))
    normalize: str | None = parameter("l1", OneOf("l1", "l2", None))

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
        if self.normalize is not None:
            sizes = np.linalg.norm(counts, ord=1 if self.normalize == "l1" else 2, axis=1, keepdims=True)
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
    """Count the patterns of 8 neighbours in cells that begin at `rows` and `columns`, shape (n_cells, n_bins).

    `bins` has the bin of each of the 256 patterns; patterns with a negative bin are not counted.
    """
    from bagwise.descriptors._kernels import count_in_cells

    counts = np.empty((len(rows), len(columns), n_bins), np.int64)
    # the first code is that of the second pixel
    count_in_cells(pattern_codes(image, 1), bins, rows - 1, columns - 1, cell_height, cell_width, counts)
    return counts.reshape(-1, n_bins)


N_PATTERNS = 1 << 16
RADIUS = 2


@dataclass(eq=False, repr=False)
class LBPD5(Descriptor):
    """Count the 65,536 local binary patterns of 5 x 5 pixels, as sparse histograms of images.

    Bit b of a pixel's pattern is 1 if neighbour b is at least as bright as the pixel. The neighbours are the 16 pixels
    on the border of the 5 x 5 window around it, numbered clockwise from the top left, lowest bit first.

    Parameters
    ----------
    max_side, n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    LocalBinaryPatterns : 256 patterns of 8 neighbours.

    Notes
    -----
    Patterns are invariant to strictly increasing transformations of the grey values. Colour images are converted to
    grey. An image smaller than 5 x 5 pixels has a zero histogram. Time O(H W) per image.

    References
    ----------
    T. Ojala, M. Pietikäinen, T. Mäenpää, "Multiresolution gray-scale and rotation invariant texture classification with
    local binary patterns", TPAMI 24(7), 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import LBPD5
    >>> image = np.random.default_rng(0).integers(0, 256, (24, 36), dtype=np.uint8)
    >>> X = LBPD5().transform([image, image[:20], np.ones((9, 9))])
    >>> X.shape, X.sum(axis=1)
    ((3, 65536), array([640, 512,  25]))
    """

    n_words: ClassVar[int | None] = N_PATTERNS

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], None]:
        row = np.zeros((1, N_PATTERNS), np.float32)
        arrays = self._compute(content)
        row[0, arrays["patterns"]] = arrays["counts"]
        return row, None

    def _compute(self, content: Any) -> Arrays:
        codes = pattern_codes(as_comparable(content), RADIUS)
        counts = np.bincount(codes.ravel(), minlength=N_PATTERNS).astype(np.int32)
        patterns = np.flatnonzero(counts)
        return {"patterns": patterns.astype(np.int32), "counts": counts[patterns]}

    def _join(self, items: Iterable[Arrays]) -> sp.csr_array:
        """Stack the rows of all items."""
        items = list(items)
        starts = offsets_of([len(arrays["patterns"]) for arrays in items])
        counts, patterns = (np.concatenate([arrays[name] for arrays in items]) for name in ("counts", "patterns"))
        return sp.csr_array((counts, patterns, starts), shape=(len(items), N_PATTERNS))
