"""Dense SIFT of many images by functions of an array module, on a CUDA device or anywhere.

Sums over the cells of a grid of patches are two matrix products for each image: weights of its rows, then of its
columns, which `bagwise.descriptors._kernels.describe_grid` adds up pixel by pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, to_device
from bagwise.descriptors.functions import CLIP, FLAT, N_CELLS, N_NUMBERS, cell_weights, checked_scales, gaussian
from bagwise.descriptors.images import centres_in_unit_square, starts_of

__all__ = ["sift_arrays"]

_N_ORIENTATIONS = 8
# Descriptors that are normalised at a time.
_ROWS = 1 << 18

_SOURCE = r"""
extern "C" __global__ void orient(const float* image, int height, int width, float* planes) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float shares[8] = {};
    if (x > 0 && y > 0 && x < width - 1 && y < height - 1) {
        const float* pixel = image + (long long)y * width + x;
        float right = pixel[1] - pixel[-1], up = pixel[-width] - pixel[width];
        float across = fabsf(right), along = fabsf(up);
        float large = fmaxf(across, along), slope = fminf(across, along) / (large > 0 ? large : 1), s = slope * slope;
        float turn = slope * (1.0f + s * (-0.3333314528f + s * (0.1999355085f + s * (-0.1420889944f + s * (0.1065626393f
            + s * (-0.0752896400f + s * (0.0429096138f + s * (-0.0161657367f + s * 0.0028662257f))))))));
        turn *= 1.2732395447351628f;
        turn = along < across ? turn : 2 - turn;
        turn = right >= 0 ? turn : 4 - turn;
        turn = up >= 0 ? turn : 8 - turn;
        float norm = sqrtf(right * right + up * up);
        int whole = (int)turn;
        float share = norm * (turn - whole);
        for (int o = 0; o < 8; o++)
            shares[o] = o == (whole & 7) ? norm - share : o == ((whole + 1) & 7) ? share : 0;
    }
    float* out = planes + ((long long)y * width + x) * 8;
    for (int o = 0; o < 8; o++) out[o] = shares[o];
}
"""


@cache
def _function() -> Any:
    import cupy

    return cupy.RawModule(code=_SOURCE).get_function("orient")


def orient(xp: Any, image: Any) -> Any:
    """Divide each pixel's gradient between eight directions, shape (H, W, 8); see the kernel `orient` of the CPU."""
    height, width = image.shape
    planes = xp.empty((height, width, _N_ORIENTATIONS), np.float32)
    if xp is np:
        from bagwise.descriptors import _kernels as kernels

        kernels.orient(image, planes)
    elif planes.size:
        grid = -(-width // 32), -(-height // 8)
        _function()(grid, (32, 8), (image, np.int32(height), np.int32(width), planes))
    return planes


def sift_arrays(
    xp: Any, images: Sequence[NDArray[np.float32]], step: int, patch: int, scales: Any, smoothing: float
) -> tuple[Any, Any, Any]:
    """Describe images, given as channels of shape (C, H, W) on the host, C the same for all.

    Returns values of shape (n, 128 C), numbers of descriptors of each image, and positions, arrays of the module `xp`:
    those of `sift_on_grid` up to rounding in float32, about 1e-6.
    """
    factors = checked_scales(scales)
    n_channels = len(images[0])
    grids = [
        [[starts_of(side, patch * f, step) + int(patch * f) // 2 for side in image.shape[1:]] for f in factors]
        for image in images
    ]
    lengths = np.array([sum(len(rows) * len(columns) for rows, columns in grid) for grid in grids])
    if xp is not np:
        largest = max(image.size for image in images)
        need = (
            4 * (3 * int(lengths.sum()) * n_channels * N_NUMBERS + sum(image.size for image in images)) + 80 * largest
        )
        check_device_memory(need, f"The descriptors of {len(images)} images", "describe fewer images at a time")
    pixels = to_device(np.concatenate([image.ravel() for image in images]), xp)
    values = xp.empty((int(lengths.sum()), n_channels * N_NUMBERS), np.float32)
    taps: dict[tuple[int, float], Any] = {}
    first = at = 0
    positions = []
    for image, grid in zip(images, grids, strict=True):
        channels = pixels[at : at + image.size].reshape(image.shape)
        at += image.size
        for factor, centres in zip(factors, grid, strict=True):
            for side, middle in zip(image.shape[1:], centres, strict=True):
                if (side, factor) not in taps:
                    taps[side, factor] = to_device(_taps(side, middle, patch * factor), xp)
            last = first + len(centres[0]) * len(centres[1])
            for c in range(n_channels if last > first else 0):
                smoothed = _smooth(xp, channels[c], gaussian(smoothing * factor))
                sums = _cell_sums(orient(xp, smoothed), *(taps[side, factor] for side in image.shape[1:]))
                values[first:last, c * N_NUMBERS : (c + 1) * N_NUMBERS] = sums
            first = last
            rows, columns = centres
            positions.append(centres_in_unit_square(rows + 0.5, columns + 0.5, *image.shape[1:]))
    for c in range(n_channels):
        for start in range(0, len(values), _ROWS):
            _normalize(xp, values[start : start + _ROWS, c * N_NUMBERS : (c + 1) * N_NUMBERS])
    return values, to_device(lengths, xp), to_device(np.concatenate(positions), xp)


def _taps(side: int, middles: NDArray[np.int64], size: float) -> NDArray[np.float32]:
    """Weights of the pixels of one side of an image in the cells of patches: row ``4 i + a`` is cell a of patch i."""
    firsts, weights = cell_weights(size / N_CELLS)
    matrix = np.zeros((len(middles), N_CELLS, side), np.float32)
    at = middles[:, np.newaxis, np.newaxis] + firsts[:, np.newaxis] + np.arange(weights.shape[1])
    i, a, t = np.nonzero((at >= 0) & (at < side))
    matrix[i, a, at[i, a, t]] = weights[a, t]
    return matrix.reshape(-1, side)


def _cell_sums(planes: Any, down: Any, right: Any) -> Any:
    """``out[i, j, a, b, o] = Σ_y Σ_x down[4 i + a, y] right[4 j + b, x] planes[y, x, o]``, a row for each (i, j)."""
    height, width, n = planes.shape
    lines = (down @ planes.reshape(height, width * n)).reshape(-1, width, n)
    sums = right @ lines.transpose(1, 0, 2).reshape(width, -1)
    shape = (len(right) // N_CELLS, N_CELLS, len(down) // N_CELLS, N_CELLS, n)
    return sums.reshape(shape).transpose(2, 0, 3, 1, 4).reshape(-1, N_NUMBERS)


def _smooth(xp: Any, image: Any, weights: NDArray[np.float32]) -> Any:
    """Smooth columns, then rows, by a symmetric filter of which `weights` are the middle and right half; mirrored."""
    radius = len(weights) - 1
    for _ in range(2 if radius else 0):
        n = len(image)
        at = np.abs(np.arange(-radius, n + radius)) % max(2 * n - 2, 1)
        padded = image[xp.asarray(np.where(at < n, at, 2 * n - 2 - at))]
        image = weights[0] * padded[radius : radius + n]
        for k in range(1, radius + 1):
            image = image + weights[k] * (padded[radius - k : radius - k + n] + padded[radius + k : radius + k + n])
        image = xp.ascontiguousarray(image.T)
    return image


def _normalize(xp: Any, vectors: Any) -> None:
    """Scale rows to length 1, cut at `CLIP`, and scale again, in place; rows shorter than `FLAT` become zero."""
    norms = xp.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1))
    cut = xp.minimum(vectors, (CLIP * norms).astype(np.float32)[:, np.newaxis])
    again = xp.sqrt((cut.astype(np.float64) ** 2).sum(axis=1))
    factors = xp.where(norms < FLAT, 0.0, 1.0 / xp.where(again > 0, again, 1.0)).astype(np.float32)
    vectors[:] = cut * factors[:, np.newaxis]
