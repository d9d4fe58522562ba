"""Local binary patterns: which neighbours of a pixel are at least as bright as it is."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.descriptors.contents import GREY_WEIGHTS, as_image

__all__ = ["as_comparable", "pattern_codes", "uniform_bins"]


def as_comparable(content: Any) -> NDArray[Any]:
    """Give an image in grey, so that comparing pixels is exact: uint8 stays, all others become float64."""
    image = as_image(content)
    if image.ndim == 3:
        # Not by a matrix product: that may round equal pixels differently, and then they are not equal any more.
        red, green, blue = (image[:, :, channel].astype(np.float64) for channel in range(3))
        return GREY_WEIGHTS[0] * red + GREY_WEIGHTS[1] * green + GREY_WEIGHTS[2] * blue
    return np.ascontiguousarray(image, dtype=np.uint8 if image.dtype == np.uint8 else np.float64)


def pattern_codes(image: NDArray[Any], radius: int) -> NDArray[np.uint16]:
    """Code of each pixel: bit b is 1 if neighbour b is at least as bright.

    The neighbours are the ``8 radius`` pixels on the border of the square window around the pixel, from top left
    clockwise: 8 for radius 1 (256 patterns), 16 for radius 2 (65,536 patterns). Codes do not change if all grey values
    are changed by the same strictly increasing function.

    Parameters
    ----------
    image : ndarray of uint8 or float64, shape (H, W)
    radius : {1, 2}

    Returns
    -------
    codes : ndarray of uint16, shape (max(0, H - 2 radius), max(0, W - 2 radius))
        Pixels whose window is not in the image have none: entry (y, x) is of pixel (y + radius, x + radius).

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors.patterns import pattern_codes
    >>> pattern_codes(np.array([[5.0, 1, 1], [1, 3, 1], [1, 1, 4]]), radius=1)
    array([[17]], dtype=uint16)
    """
    from bagwise.descriptors._pattern_kernels import ring_codes

    height, width = (max(0, side - 2 * radius) for side in image.shape)
    codes = np.empty((height, width), np.uint16)
    if codes.size:
        downs, rights = _ring(radius)
        ring_codes(image, downs, rights, radius, codes)
    return codes


@functools.cache
def _ring(radius: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Steps down and to the right to the border of a square window, from top left clockwise."""
    side = range(-radius, radius)
    top, right = [(-radius, k) for k in side], [(k, radius) for k in side]
    bottom, left = [(radius, -k) for k in side], [(-k, -radius) for k in side]
    steps = np.array(top + right + bottom + left, dtype=np.int64)
    return np.ascontiguousarray(steps[:, 0]), np.ascontiguousarray(steps[:, 1])


@functools.cache
def uniform_bins(others: int) -> NDArray[np.int64]:
    """The bin of each of the 256 patterns of 8 neighbours: 0 to 57 for uniform ones in the order of their codes.

    Uniform patterns have at most two changes between 0 and 1 around the ring. All others get the bin `others`.
    """
    codes = np.arange(256)
    bits = codes[:, np.newaxis] >> np.arange(8) & 1
    uniform = (bits != np.roll(bits, 1, axis=1)).sum(axis=1) <= 2
    return np.where(uniform, np.cumsum(uniform) - 1, others)
