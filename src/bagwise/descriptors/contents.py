"""Images as arrays: checks, grey and RGB."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError

__all__ = ["as_grey", "as_image", "as_rgb"]

# Largest number a pixel may be.
LARGEST = 1e15
# Luminance of red, green and blue (ITU-R BT.601), as used by Pillow and OpenCV.
GREY_WEIGHTS = (0.299, 0.587, 0.114)


def as_image(content: Any) -> NDArray[Any]:
    """Check that something is a grey image (height, width) or an RGB image (height, width, 3) of finite numbers."""
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


def as_grey(content: Any) -> NDArray[np.float32]:
    """Give an image in grey, float32, on the scale it came in: ``0.299 R + 0.587 G + 0.114 B`` where it has colours."""
    image = as_image(content)
    if image.ndim == 2:
        return np.ascontiguousarray(image, dtype=np.float32)
    red, green, blue = (image[:, :, channel].astype(np.float32) for channel in range(3))
    return np.float32(GREY_WEIGHTS[0]) * red + np.float32(GREY_WEIGHTS[1]) * green + np.float32(GREY_WEIGHTS[2]) * blue


def as_rgb(content: Any, purpose: str) -> NDArray[np.float32]:
    """Give an RGB image as three planes, float32, on the scale it came in. Grey images are refused."""
    image = as_image(content)
    if image.ndim == 2:
        raise BagwiseError(
            f"{purpose} needs RGB images, got a grey one of shape {image.shape}. "
            'Open the collection with mode="rgb", or use a descriptor of grey images'
        )
    return np.ascontiguousarray(np.moveaxis(image, 2, 0), dtype=np.float32)
