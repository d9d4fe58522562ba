"""`KeypointSIFT`: SIFT at interest points, by OpenCV."""

from __future__ import annotations

from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from bagwise._utils.extras import require
from bagwise.descriptors.base import Descriptor, ItemTransformer
from bagwise.descriptors.contents import as_grey
from bagwise.errors import BagwiseError

__all__ = ["KeypointSIFT"]


class KeypointSIFT(Descriptor):
    """Find interest points and describe them by SIFT, at their own scale and rotation. Needs ``bagwise[image]``.

    Parameters
    ----------
    n_keypoints : int, default=None
        Keep at most about this many, those of the strongest contrast. (Points as strong as the last one are kept as
        well.) None keeps all.
    contrast_threshold : float, default=0.04
        Points of less contrast are dropped.
    edge_threshold : float, default=10
        Points that look like edges are dropped; a larger number keeps more.
    sigma : float, default=1.6
        Blur of the first image of the pyramid, in pixels.
    n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    DenseSIFT : The same descriptors on a grid, usually better for recognising scenes.

    Notes
    -----
    Detection and description are OpenCV's; its numbers are scaled to length 1. Images must be of uint8, because
    thresholds mean something on that scale only; RGB images are converted to grey. An image without interest points, or
    without pixels, gives an empty bag. The cache does not know which version of OpenCV wrote it.

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

    _parameter_constraints: ClassVar[dict] = {
        **ItemTransformer._parameter_constraints,
        "n_keypoints": [Interval(Integral, 1, None, closed="left"), None],
        "contrast_threshold": [Interval(Real, 0, None, closed="left")],
        "edge_threshold": [Interval(Real, 0, None, closed="neither")],
        "sigma": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_keypoints: int | None = None,
        *,
        contrast_threshold: float = 0.04,
        edge_threshold: float = 10.0,
        sigma: float = 1.6,
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.n_keypoints = n_keypoints
        self.contrast_threshold = contrast_threshold
        self.edge_threshold = edge_threshold
        self.sigma = sigma
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require("cv2", "image", "KeypointSIFT")

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        cv2 = require("cv2", "image", "KeypointSIFT")
        kind = np.asarray(content).dtype
        grey = as_grey(content)
        if kind != np.uint8:
            raise BagwiseError(
                f"KeypointSIFT takes images of uint8, 0 to 255, got {kind}. Scale and convert them first"
            )
        nothing = np.empty((0, 128), np.float32), np.empty((0, 2), np.float32)
        if grey.size == 0:
            return nothing
        # made anew each time: it keeps buffers, which threads must not share
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
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        return values / np.maximum(lengths, np.finfo(np.float32).tiny), np.clip(places, 0, 1)
