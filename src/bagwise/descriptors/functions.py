"""Descriptors as functions of an image: SIFT and colours on a regular grid. It does not import scikit-learn.

Each returns values of shape (n, D), and positions of shape (n, 2) in the unit square; the classes document them.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.descriptors.images import as_grey, as_image, as_rgb, centres_in_unit_square, starts_of
from bagwise.descriptors.registry import LARGEST, LONGEST
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["checked_scales", "color_cells", "color_sift", "dense_sift", "sift_on_grid", "to_space"]

Described = tuple[NDArray[np.float32], NDArray[np.float32]]

N_CELLS = 4
N_NUMBERS = 128
# Descriptors with a smaller norm before normalisation are zero.
FLAT = 1e-8
CLIP = 0.2


def dense_sift(image: Any, step: int, patch: int, scales: Any, smoothing: float) -> Described:
    """Describe a grey image, or an RGB image in grey; see `DenseSIFT`."""
    return sift_on_grid(as_grey(image)[np.newaxis], step, patch, scales, smoothing)


def color_sift(image: Any, space: str, step: int, patch: int, scales: Any, smoothing: float) -> Described:
    """Describe the channels of a colour image; see `ColorSIFT`."""
    return sift_on_grid(to_space(as_rgb(image, "ColorSIFT"), space), step, patch, scales, smoothing)


def sift_on_grid(channels: NDArray[np.float32], step: int, patch: int, scales: Any, smoothing: float) -> Described:
    """Describe channels of shape (C, H, W), side by side."""
    from bagwise.descriptors import _kernels as kernels

    factors = checked_scales(scales)
    n_channels, height, width = channels.shape
    grids = []
    for size in (patch * factor for factor in factors):
        grids.append([starts_of(side, size, step) + int(size) // 2 for side in (height, width)])
    n_points = sum(len(rows) * len(columns) for rows, columns in grids)
    values = np.empty((n_points, n_channels * N_NUMBERS), np.float32)
    smoothed = np.empty((height, width), np.float32)
    planes = np.empty((height, width, kernels.N_ORIENTATIONS), np.float32)
    start = 0
    for factor, (rows, columns) in zip(factors, grids, strict=True):
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


def color_cells(content: Any, cell: int, step: int) -> Described:
    """Describe the cells of an image; see `ColorCells`."""
    from bagwise.descriptors._kernels import describe_cells

    image = as_image(content)
    planes = image[:, :, np.newaxis] if image.ndim == 2 else image
    pixels = np.ascontiguousarray(planes, dtype=None if image.dtype == np.uint8 else np.float64)
    height, width, n_planes = pixels.shape
    rows, columns = (starts_of(side, cell, step) for side in (height, width))
    values = np.empty((len(rows) * len(columns), 2 * n_planes), np.float32)
    describe_cells(pixels, rows, columns, cell, values)
    if n_planes == 1:
        values = np.repeat(values, 3, axis=1)
    middle = cell / 2
    return values, centres_in_unit_square(rows + middle, columns + middle, height, width)


def checked_scales(scales: Any, name: str = "scales") -> list[float]:
    """Convert a parameter that lists scales, or raise unless it has at least one positive number and no others."""
    try:
        factors = [float(scale) for scale in scales]
    except (TypeError, ValueError, OverflowError) as error:
        raise BagwiseError(f"{name} must be a list of positive numbers, got {scales!r:.100}.") from error
    if not 0 < len(factors) <= LONGEST or not all(0 < factor <= LARGEST for factor in factors):
        raise BagwiseError(
            f"{name} must be a list of 1 to {LONGEST} numbers above 0, up to {LARGEST}; got {scales!r:.100}."
        )
    return factors


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
    if space not in ("opponent", "c"):
        raise unknown_name("space", space, ("opponent", "rg", "c", "rgb"))
    first, second = (red - green) / np.sqrt(2), (red + green - 2 * blue) / np.sqrt(6)
    third = (red + green + blue) / np.sqrt(3)
    if space == "c":
        first, second = _quotient(first, third), _quotient(second, third)
    return np.stack([first, second, third]).astype(np.float32)


def _quotient(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(a, b, out=np.zeros_like(a), where=b != 0)
