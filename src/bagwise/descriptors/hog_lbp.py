"""`HogLbp`: gradients and local binary patterns of cells."""

from __future__ import annotations

import itertools
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.arrays import unit_rows
from bagwise._utils.records import Integer, OneOf, parameter
from bagwise.descriptors.base import Descriptor
from bagwise.descriptors.images import as_comparable, as_grey, centres_in_unit_square, starts_of
from bagwise.descriptors.lbp import cell_histograms, uniform_bins
from bagwise.descriptors.registry import MOST_PIXELS

__all__ = ["HogLbp", "hog_features"]

N_HOG, N_LBP = 31, 58
CLIP = 0.2
# Blocks whose gradients are shorter than this count as flat.
FLAT = 1e-8


@dataclass(eq=False, repr=False)
class HogLbp(Descriptor):
    """Describe adjacent square cells by gradients (31 numbers) and uniform local binary patterns (58 numbers).

    1. HOG: gradients of a cell vote for 18 directions. The histogram is divided by the norms of the four blocks of
       2 x 2 cells that contain the cell, and clipped at 0.2. Sums over the four blocks give 18 signed and 9 unsigned
       directions. Four more numbers are the sums over directions for each block, a measure of texture.
    2. LBP: counts of the 58 uniform patterns of the cell's pixels; other patterns are not counted.
    3. Each of the two parts is scaled to unit L2 norm. Zero parts (flat, or without a uniform pattern) stay zero.

    `form` changes the last two steps.

    Parameters
    ----------
    cell : int, default=8
        Side of a cell in pixels. Cells are centred in the image.
    form : {"unit", "root"}, default="unit"
        "unit": as above. "root": similar to VLFeat. The gradients are not scaled again, so that a cell with weaker
        gradients than its neighbours has a shorter vector. The patterns are Hellinger normalised (L1, then square
        root), which damps frequent patterns. The two patterns without a transition (a bright or a dark spot) share
        one of the 58 numbers, and all that are not uniform share another.
    max_side, n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    LocalBinaryPatterns : Patterns alone, with other options.

    Notes
    -----
    Votes are divided linearly between the two nearest directions and the up to four nearest cells. At the border of the
    grid, a missing cell of a block is replaced by the cell itself. Pixels on the border of the image have neither
    gradient nor pattern. Colour images are converted to grey. Images smaller than a cell give an empty bag. Time
    O(H W).

    References
    ----------
    P. Felzenszwalb, R. Girshick, D. McAllester, D. Ramanan, "Object detection with discriminatively trained part-based
    models", TPAMI 32(9), 2010 (the 31 numbers). X. Wang, T. Han, S. Yan, "An HOG-LBP human detector with partial
    occlusion handling", ICCV 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import HogLbp
    >>> image = np.random.default_rng(0).integers(0, 256, (32, 45), dtype=np.uint8)
    >>> HogLbp(cell=8).transform([image])
    <Bags: 1 bags, 20 rows x 89 features of float32, with positions>
    """

    cell: int = parameter(8, Integer(2, MOST_PIXELS))
    _: KW_ONLY
    form: str = parameter("unit", OneOf("unit", "root"))

    @property
    def patch_side(self) -> int:
        """Side in pixels of a cell and its neighbours, whose gradients count."""
        return 3 * int(self.cell)

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        from bagwise.descriptors._kernels import N_DIRECTIONS, gradient_histograms

        grey = as_grey(content)
        height, width = grey.shape
        cell = int(self.cell)
        rows, columns = starts_of(height, cell, cell), starts_of(width, cell, cell)
        if not (len(rows) and len(columns)):
            return np.empty((0, N_HOG + N_LBP), np.float32), np.empty((0, 2), np.float32)
        histograms = np.empty((len(rows), len(columns), N_DIRECTIONS))
        gradient_histograms(grey, rows[0], columns[0], cell, histograms)
        hog = hog_features(histograms).reshape(-1, N_HOG)
        bins = uniform_bins(-1) if self.form == "unit" else _shared_bins()
        lbp = cell_histograms(as_comparable(content), bins, N_LBP, rows, columns, cell, cell)
        positions = centres_in_unit_square(rows + cell / 2, columns + cell / 2, height, width)
        if self.form == "unit":
            return np.hstack([unit_rows(hog), unit_rows(lbp)]), positions
        return np.hstack([hog.astype(np.float32), unit_rows(lbp**0.5)]), positions


def hog_features(histograms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Normalise histograms of shape (rows, columns, 18) by their neighbourhoods, to shape (rows, columns, 31).

    18 directions, 9 without sign, and 4 energies: blocks up left, up right, down left and down right.
    """
    unsigned = histograms[..., :9] + histograms[..., 9:]
    energy = np.pad((unsigned**2).sum(axis=2), 1, mode="edge")
    n_rows, n_columns = histograms.shape[:2]
    features = np.zeros((n_rows, n_columns, N_HOG))
    for k, (down, right) in enumerate(itertools.product((0, 1), (0, 1))):
        corner = energy[down : down + n_rows + 1, right : right + n_columns + 1]
        norm = np.sqrt(corner[:-1, :-1] + corner[1:, :-1] + corner[:-1, 1:] + corner[1:, 1:])[..., np.newaxis]
        factor = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > FLAT)
        signed = np.minimum(histograms * factor, CLIP)
        features[..., :18] += 0.5 * signed
        features[..., 18:27] += 0.5 * np.minimum(unsigned * factor, CLIP)
        features[..., 27 + k] = signed.sum(axis=2) / np.sqrt(18)
    return features


def _shared_bins() -> NDArray[np.int64]:
    """Bins of the 256 patterns: 56 for those with two changes, one for those without, one for all others."""
    bins = uniform_bins(N_LBP) - 1  # the pattern without bright pixels came first, that with bright ones only last
    bins[[0, 255]] = N_LBP - 2
    return bins
