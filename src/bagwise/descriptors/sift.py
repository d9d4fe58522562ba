"""SIFT descriptors: `DenseSIFT` and `ColorSIFT` on a regular grid, `KeypointSIFT` at interest points."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.arrays import unit_rows
from bagwise._utils.extras import require
from bagwise._utils.records import Integer, Number, Numbers, OneOf, parameter
from bagwise.descriptors.base import MOST_POINTS, Descriptor
from bagwise.descriptors.images import as_grey, as_rgb, centres_in_unit_square, starts_of
from bagwise.descriptors.registry import MOST_PIXELS
from bagwise.errors import BagwiseError
from bagwise.sources.media import shrunk_size

__all__ = ["ColorSIFT", "DenseSIFT", "KeypointSIFT", "cell_weights", "gaussian", "sift_on_grid", "to_space"]

N_CELLS = 4
N_NUMBERS = 128
# Descriptors with a smaller norm before normalisation are zero.
FLAT = 1e-8
CLIP = 0.2


@dataclass(eq=False, repr=False)
class DenseSIFT(Descriptor):
    """Describe patches on a regular grid by SIFT: histograms of gradient directions in 4 x 4 cells, 128 numbers.

    1. The grey image is smoothed by a Gaussian.
    2. Each pixel's gradient votes for the two nearest of 8 directions and the up to four nearest cells of a patch
       (trilinear interpolation). Votes are weighted by a Gaussian around the centre of the patch, whose standard
       deviation is half the patch.
    3. Each descriptor is scaled to unit L2 norm, clipped at 0.2, and scaled to unit norm again.

    Flat patches (norm below 1e-8) give zero vectors. Numbers and their order are those of OpenCV's SIFT at upright
    keypoints of an image of the same blur, up to its rounding to 8 bits and its factor of 512.

    Parameters
    ----------
    step : int, default=8
        Distance of neighbouring patches in pixels. The grid is centred in the image.
    patch : int, default=16
        Side of a patch in pixels. A cell is a quarter of it.
    scales : sequence of float, default=(1.0,)
        Factors of the patch size. Each scale has its own grid with the same step; patches are ordered by scale. Images
        are smoothed by ``smoothing * scale``.
    smoothing : float, default=0.0
        Standard deviation in pixels of the Gaussian at scale 1. 0 does not smooth, which recognises scenes better. 1.52
        takes an image from a blur of 0.5 to 1.6, as OpenCV does by default.
    max_side : int, default=None
        Images with a longer side are shrunk by area averaging until that is their longer side; files of JPEG images are
        decoded at a reduced scale first. Patches and steps are pixels after that. None: images keep their size.
    n_jobs : int, default=None
    verbose : int, default=0
    cache : path, default=None
        Folder that keeps descriptors for the next run, by the content of images and by the parameters.

    See Also
    --------
    ColorSIFT : The same in several colour channels.
    KeypointSIFT : SIFT at interest points, scaled and rotated.

    Notes
    -----
    By the interpolation, pixels up to half a cell beyond the patch contribute. Pixels on the border of the image have
    no gradient. A patch that begins at pixel x has its centre at pixel ``x + patch // 2``. Its position is that of the
    centre: ``(column + 0.5) / width, (row + 0.5) / height``. Images smaller than a patch give an empty bag.

    Interpolation and Gaussian are separable, so that descriptors are sums over rows, then columns. Time O(H W) for
    gradients and O(n patch) for n descriptors; memory 8 numbers per pixel.

    References
    ----------
    D. G. Lowe, "Distinctive image features from scale-invariant keypoints", IJCV 60(2), 2004. A. Bosch, A. Zisserman,
    X. Muñoz, "Image classification using random forests and ferns", ICCV 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import DenseSIFT
    >>> image = np.random.default_rng(0).integers(0, 256, (40, 56), dtype=np.uint8)
    >>> bags = DenseSIFT(step=8, patch=16).transform([image, image[:, :20], image[:10]])
    >>> bags
    <Bags: 3 bags, 28 rows x 128 features of float32, with positions>
    >>> bags.lengths
    array([24,  4,  0])
    >>> bags.positions_of(1)[:2]
    array([[0.525 , 0.2125],
           [0.525 , 0.4125]], dtype=float32)
    """

    step: int = parameter(8, Integer(1, MOST_PIXELS))
    patch: int = parameter(16, Integer(4, MOST_PIXELS))
    scales: Any = parameter((1.0,), Numbers())
    _: KW_ONLY
    smoothing: float = parameter(0.0, Number())

    @property
    def patch_side(self) -> int:
        """Side in pixels of the patches of the largest scale."""
        return round(self.patch * max(self.scales))

    def sides(self, height: int, width: int, n: int) -> NDArray[np.float64]:
        """Return the sides of the patches of all scales."""
        sizes, shrunk = [self.patch * scale for scale in self.scales], shrunk_size(height, width, self.max_side)
        grids = [[len(starts_of(side, size, self.step)) for side in shrunk] for size in sizes]
        each = np.repeat(sizes, [rows * columns for rows, columns in grids])
        return each * self._shrinking(height, width)

    def _channels(self, content: Any) -> NDArray[np.float32]:
        """Channels of an image, shape (C, H, W)."""
        return as_grey(content)[np.newaxis]

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return sift_on_grid(
            self._channels(content), self.step, self.patch, list(map(float, self.scales)), self.smoothing
        )


@dataclass(eq=False, repr=False)
class ColorSIFT(DenseSIFT):
    """Describe patches of colour images on a regular grid by SIFT in each channel of a colour space.

    Parameters
    ----------
    space : {"opponent", "rg", "c", "rgb"}, default="opponent"
        - ``"opponent"``: ``(R - G) / √2``, ``(R + G - 2B) / √6`` and ``(R + G + B) / √3``; 384 numbers.
        - ``"rg"``: ``R / (R + G + B)`` and ``G / (R + G + B)``; 256 numbers.
        - ``"c"``: the first two opponent channels divided by the third, and the third; 384 numbers.
        - ``"rgb"``: red, green and blue; 384 numbers.

        Quotients with a zero denominator are zero.
    step, patch, scales, smoothing, max_side, n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    DenseSIFT : The same for grey images; documents how descriptors are computed.

    Notes
    -----
    The 128 numbers of each channel have unit norm, or are zero where the channel is flat. Grey images raise an error:
    open collections with ``mode="rgb"``. Images smaller than a patch give an empty bag. Time and memory are those of
    `DenseSIFT` for each channel.

    References
    ----------
    K. van de Sande, T. Gevers, C. Snoek, "Evaluating color descriptors for object and scene recognition", TPAMI 32(9),
    2010.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import ColorSIFT
    >>> image = np.random.default_rng(0).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    >>> ColorSIFT(space="rg").transform([image])
    <Bags: 1 bags, 6 rows x 256 features of float32, with positions>
    """

    color: ClassVar[bool] = True

    space: str = parameter("opponent", OneOf("opponent", "rg", "c", "rgb"))
    _: KW_ONLY
    step: int = parameter(8, Integer(1, MOST_PIXELS))
    patch: int = parameter(16, Integer(4, MOST_PIXELS))
    scales: Any = parameter((1.0,), Numbers())

    def _channels(self, content: Any) -> NDArray[np.float32]:
        return to_space(as_rgb(content, "ColorSIFT"), self.space)


@dataclass(eq=False, repr=False)
class KeypointSIFT(Descriptor):
    """Find interest points and describe them by SIFT, at their own scale and rotation. Needs ``bagwise[app]``.

    Parameters
    ----------
    n_keypoints : int, default=None
        Maximum number of points; those with the highest contrast are kept, and all that tie with the last of them.
        None keeps all.
    contrast_threshold : float, default=0.04
        Points with less contrast are dropped.
    edge_threshold : float, default=10
        Points that resemble edges are dropped. A larger threshold keeps more.
    sigma : float, default=1.6
        Standard deviation of the blur of the first image of the pyramid, in pixels.
    max_side, n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    DenseSIFT : The same descriptors on a grid, usually better for recognising scenes.

    Notes
    -----
    Detection and description are OpenCV's; vectors are scaled to unit L2 norm. Images must be uint8, the scale of the
    thresholds. RGB images are converted to grey. An image without interest points, or without pixels, gives an empty
    bag. The cache does not depend on the version of OpenCV.

    References
    ----------
    D. G. Lowe, "Distinctive image features from scale-invariant keypoints", IJCV 60(2), 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import KeypointSIFT
    >>> y, x = np.mgrid[:64, :64]
    >>> blob = (255 * np.exp(-((x - 40) ** 2 + (y - 24) ** 2) / 50)).astype(np.uint8)
    >>> values, positions = KeypointSIFT().describe(blob)
    >>> values.shape[1], positions.round(1)[0]
    (128, array([0.6, 0.4], dtype=float32))
    """

    n_keypoints: int | None = parameter(None, Integer(1, MOST_POINTS, optional=True))
    _: KW_ONLY
    contrast_threshold: float = parameter(0.04, Number())
    edge_threshold: float = parameter(10.0, Number(above_zero=True))
    sigma: float = parameter(1.6, Number(above_zero=True))

    def _prepare(self) -> None:
        super()._prepare()
        require("cv2", "app", "KeypointSIFT")

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        cv2 = require("cv2", "app", "KeypointSIFT")
        kind = np.asarray(content).dtype
        grey = as_grey(content)
        if kind != np.uint8:
            raise BagwiseError(
                f"KeypointSIFT takes images of uint8, 0 to 255, got {kind}. Scale and convert them first"
            )
        nothing = np.empty((0, 128), np.float32), np.empty((0, 2), np.float32)
        if grey.size == 0:
            return nothing
        # a new one each time: it has buffers, which threads must not share
        sift = cv2.SIFT_create(
            nfeatures=0 if self.n_keypoints is None else int(self.n_keypoints),
            contrastThreshold=float(self.contrast_threshold),
            edgeThreshold=float(self.edge_threshold),
            sigma=float(self.sigma),
        )
        points, values = sift.detectAndCompute(np.rint(grey).astype(np.uint8), None)
        if not points:
            return nothing
        height, width = grey.shape
        places = (np.array([point.pt for point in points]) + 0.5) / (width, height)
        return unit_rows(values), np.clip(places, 0, 1)


def sift_on_grid(
    channels: NDArray[np.float32], step: int, patch: int, scales: Sequence[float], smoothing: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Describe channels of shape (C, H, W), side by side."""
    from bagwise.descriptors import _kernels as kernels

    n_channels, height, width = channels.shape
    grids = []
    for size in (patch * factor for factor in scales):
        grids.append([starts_of(side, size, step) + int(size) // 2 for side in (height, width)])
    n_points = sum(len(rows) * len(columns) for rows, columns in grids)
    values = np.empty((n_points, n_channels * N_NUMBERS), np.float32)
    smoothed = np.empty((height, width), np.float32)
    planes = np.empty((height, width, kernels.N_ORIENTATIONS), np.float32)
    start = 0
    for factor, (rows, columns) in zip(scales, grids, strict=True):
        end = start + len(rows) * len(columns)
        if end == start:
            continue
        firsts, weights = cell_weights(patch * factor / N_CELLS)
        for c in range(n_channels):
            kernels.smooth(channels[c], gaussian(smoothing * factor), smoothed)
            kernels.orient(smoothed, planes)
            part = values[start:end, c * N_NUMBERS : (c + 1) * N_NUMBERS]
            kernels.describe_grid(planes, rows, columns, firsts, weights, part)
            kernels.normalize(part, CLIP, FLAT)
        start = end
    positions = [centres_in_unit_square(rows + 0.5, columns + 0.5, height, width) for rows, columns in grids]
    return values, np.concatenate(positions)


@functools.lru_cache(maxsize=64)
def gaussian(sigma: float) -> NDArray[np.float32]:
    """Middle and right half of a Gaussian filter, truncated at four standard deviations."""
    if sigma == 0:
        return np.ones(1, np.float32)
    half = np.exp(-0.5 * (np.arange(int(4 * sigma + 0.5) + 1) / sigma) ** 2)
    return (half / (half[0] + 2 * half[1:].sum())).astype(np.float32)


@functools.lru_cache(maxsize=64)
def cell_weights(cell: float) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """First pixel of each of four cells, relative to the centre of the patch, and the weights of its pixels.

    A triangle of the cell's width to both sides of its centre, times a Gaussian around the centre of the patch.
    """
    middles = (np.arange(N_CELLS) - (N_CELLS - 1) / 2) * cell
    firsts = np.floor(middles - cell).astype(np.int64) + 1
    at = firsts[:, np.newaxis] + np.arange(math.ceil(2 * cell))
    triangles = np.maximum(0.0, 1.0 - np.abs(at - middles[:, np.newaxis]) / cell)
    return firsts, (triangles * np.exp(-0.5 * (at / (N_CELLS / 2 * cell)) ** 2)).astype(np.float32)


def to_space(rgb: NDArray[Any], space: str) -> NDArray[np.float32]:
    """Convert planes of red, green and blue, shape (3, H, W), to the channels of a colour space.

    Computed in float64: rounding errors of float32 in a colourless area would become texture by normalisation.
    """
    if space == "rgb":
        return rgb.astype(np.float32)
    red, green, blue = rgb.astype(np.float64)
    if space == "rg":
        total = red + green + blue
        return np.stack([_quotient(red, total), _quotient(green, total)]).astype(np.float32)
    first, second = (red - green) / np.sqrt(2), (red + green - 2 * blue) / np.sqrt(6)
    third = (red + green + blue) / np.sqrt(3)
    if space == "c":
        first, second = _quotient(first, third), _quotient(second, third)
    return np.stack([first, second, third]).astype(np.float32)


def _quotient(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)
