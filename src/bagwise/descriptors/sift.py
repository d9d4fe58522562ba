"""SIFT descriptors: `DenseSIFT` and `ColorSIFT` on a regular grid, `KeypointSIFT` at interest points."""

from __future__ import annotations

from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise.descriptors.base import Descriptor
from bagwise.descriptors.describing import unit_rows
from bagwise.descriptors.functions import checked_scales, sift_on_grid, to_space
from bagwise.descriptors.images import as_grey, as_rgb
from bagwise.descriptors.registry import parameter_constraints
from bagwise.errors import BagwiseError

__all__ = ["ColorSIFT", "DenseSIFT", "KeypointSIFT"]


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
        Number of threads. None: 1; -1: all cores. Results do not depend on it.
    verbose : int, default=0
        If not 0, show a progress bar.
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

    _parameter_constraints: ClassVar[dict] = parameter_constraints("DenseSIFT")

    def __init__(
        self,
        step: int = 8,
        patch: int = 16,
        scales: Any = (1.0,),
        *,
        smoothing: float = 0.0,
        max_side: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.step = step
        self.patch = patch
        self.scales = scales
        self.smoothing = smoothing
        self.max_side = max_side
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def _check_parameters(self) -> None:
        super()._check_parameters()
        checked_scales(self.scales)

    def _channels(self, content: Any) -> NDArray[np.float32]:
        """Channels of an image, shape (C, H, W)."""
        return as_grey(content)[np.newaxis]

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return sift_on_grid(self._channels(content), self.step, self.patch, self.scales, self.smoothing)


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

    _parameter_constraints: ClassVar[dict] = parameter_constraints("ColorSIFT")

    def __init__(
        self,
        space: str = "opponent",
        *,
        step: int = 8,
        patch: int = 16,
        scales: Any = (1.0,),
        smoothing: float = 0.0,
        max_side: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.space = space
        self.step = step
        self.patch = patch
        self.scales = scales
        self.smoothing = smoothing
        self.max_side = max_side
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def _channels(self, content: Any) -> NDArray[np.float32]:
        return to_space(as_rgb(content, "ColorSIFT"), self.space)


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

    _parameter_constraints: ClassVar[dict] = parameter_constraints("KeypointSIFT")

    def __init__(
        self,
        n_keypoints: int | None = None,
        *,
        contrast_threshold: float = 0.04,
        edge_threshold: float = 10.0,
        sigma: float = 1.6,
        max_side: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.n_keypoints = n_keypoints
        self.contrast_threshold = contrast_threshold
        self.edge_threshold = edge_threshold
        self.sigma = sigma
        self.max_side = max_side
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def _check_parameters(self) -> None:
        super()._check_parameters()
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
