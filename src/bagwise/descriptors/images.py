"""Images as arrays: checks, grey and RGB, grids of patches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.sources.media import resize_by_area, shrunk_size

__all__ = ["as_grey", "as_image", "as_rgb", "centres_in_unit_square", "shrink", "starts_of"]


# Largest number a pixel may be.
LARGEST = 1e15
# Luminance of red, green and blue (ITU-R BT.601), as used by Pillow and OpenCV.
GREY_WEIGHTS = (0.299, 0.587, 0.114)
_INTEGER_WEIGHTS = (19595, 38470, 7471)  # times 1 / 65536


def as_image(content: Any) -> NDArray[Any]:
    """Raise unless `content` is a grey image (height, width) or an RGB image (height, width, 3) of finite numbers."""
    image = np.asarray(content)
    if image.dtype.kind not in "buif":
        raise BagwiseError(f"an image must be an array of real numbers, got {image.dtype} of shape {image.shape}")
    if image.ndim != 2 and not (image.ndim == 3 and image.shape[2] == 3):
        raise BagwiseError(f"an image must have shape (height, width), or (height, width, 3) in RGB; got {image.shape}")
    # Squares of gradients must fit float32; written so that NaN is caught as well.
    if image.size:
        least, most = float(image.min()), float(image.max())
        if not (least >= -LARGEST and most <= LARGEST):
            raise BagwiseError(
                f"pixels must be numbers between -{LARGEST:g} and {LARGEST:g}; these go from {least:g} to {most:g}"
            )
    return image


def shrink(content: Any, max_side: int) -> NDArray[Any]:
    """Shrink an image by area averaging if its longer side is longer than `max_side`; see `shrunk_size`."""
    image = as_image(content)
    height, width = image.shape[:2]
    return resize_by_area(image, *shrunk_size(height, width, max_side))


def as_grey(content: Any) -> NDArray[np.float32]:
    """Convert an image to grey float32 without scaling: ``0.299 R + 0.587 G + 0.114 B`` if it is RGB.

    RGB images of uint8 are rounded as Pillow does it, so that a file gives the same whether it is read as grey or RGB.
    """
    image = as_image(content)
    if image.ndim == 2:
        return np.ascontiguousarray(image, dtype=np.float32)
    if image.dtype != np.uint8:
        return _weighted_grey(image, np.float32)
    red, green, blue = (weight * image[:, :, c].astype(np.uint32) for c, weight in enumerate(_INTEGER_WEIGHTS))
    return (red + green + blue + (1 << 15) >> 16).astype(np.float32)


def as_comparable(content: Any) -> NDArray[Any]:
    """Convert an image to grey such that comparing pixels is exact: uint8 stays, all others become float64."""
    image = as_image(content)
    if image.ndim == 3:
        return _weighted_grey(image, np.float64)
    return np.ascontiguousarray(image, dtype=np.uint8 if image.dtype == np.uint8 else np.float64)


def _weighted_grey(image: NDArray[Any], dtype: Any) -> NDArray[Any]:
    # Not a matrix product: it may round equal pixels differently.
    red, green, blue = (dtype(weight) * image[:, :, c].astype(dtype) for c, weight in enumerate(GREY_WEIGHTS))
    return red + green + blue


def as_rgb(content: Any, purpose: str) -> NDArray[np.float32]:
    """Convert an RGB image to three float32 planes without scaling. Grey images raise."""
    image = as_image(content)
    if image.ndim == 2:
        raise BagwiseError(
            f"{purpose} needs RGB images, got a grey one of shape {image.shape}. "
            'Open the collection with mode="rgb", or use a descriptor of grey images'
        )
    return np.ascontiguousarray(np.moveaxis(image, 2, 0), dtype=np.float32)


def starts_of(length: int, size: float, step: int) -> NDArray[np.int64]:
    """First pixels of patches along a side of an image: as many as fit, with the same margin at both ends.

    An odd pixel of margin is put at the far end. Empty if the side is shorter than a patch.
    """
    spare = length - math.ceil(size)
    return np.arange(spare % step // 2, spare + 1, step) if spare >= 0 else np.empty(0, np.int64)


def centres_in_unit_square(rows: NDArray[Any], columns: NDArray[Any], height: int, width: int) -> NDArray[np.float32]:
    """Positions (x, y) of all points of a grid, row by row. The centre of the first pixel is at (0.5, 0.5)."""
    x, y = np.meshgrid(columns / max(width, 1), rows / max(height, 1))
    return np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float32)
