"""Dense SIFT of many images by functions of an array module, on a CUDA device or anywhere, and their histograms.

All images are described at once: a kernel for the gradients of all pixels, and one for all descriptors of a scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, to_device, to_host
from bagwise.codebooks.encoders import Encoder
from bagwise.codebooks.image_encoding import BATCH, check_features
from bagwise.codebooks.pyramids import Grids
from bagwise.descriptors import _kernels as kernels
from bagwise.descriptors.images import shrink, starts_of
from bagwise.descriptors.sift import CLIP, FLAT, N_CELLS, N_NUMBERS, DenseSIFT, cell_weights, gaussian
from bagwise.gpu.compiling import Source
from bagwise.sources.collection import as_items
from bagwise.sources.items import ItemIterator, item_errors

__all__ = ["pooled_images", "sift_arrays"]

_N_ORIENTATIONS = 8
_SOURCE = Source("sift", options=())


def pooled_images(
    images: Any, descriptor: DenseSIFT, encoder: Encoder, pooling: str, grids: Grids, sparse_output: bool, n_jobs: Any
) -> Any:
    """Do what `pooled_images` of the host does; descriptors never leave the device."""
    from bagwise.gpu.codebooks import array_histograms

    size = descriptor.step, descriptor.patch, descriptor.scales, descriptor.smoothing
    parts = []
    for batch in _channels(images, descriptor, n_jobs):
        arrays = sift_arrays(encoder.distances.xp, batch, *size)
        check_features(arrays[0].shape[1], encoder)
        parts.append(to_host(array_histograms(*arrays, encoder, pooling, grids, sparse_output)))
    return sp.vstack(parts, format="csr") if sparse_output else np.concatenate(parts)


def _channels(images: Any, descriptor: DenseSIFT, n_jobs: int | None) -> Iterator[list[NDArray[Any]]]:
    """Read images as the channels that are described, some at a time."""
    items, source = as_items(images, descriptor.modality)

    grey = type(descriptor) is DenseSIFT

    def read(item: Any) -> NDArray[Any]:
        with item_errors(item.id):
            content = item.load(descriptor._image_side)
            if descriptor._image_side is not None:
                content = shrink(content, descriptor._image_side)
            if grey and isinstance(content, np.ndarray) and content.dtype == np.uint8 and content.ndim == 2:
                return content[np.newaxis]  # becomes float32 on the device
            return descriptor._channels(content)

    return ItemIterator(
        items, read, source, n_jobs=n_jobs, size=lambda image: image.nbytes, batch_size=BATCH, join=list
    )


def orient(xp: Any, pixels: Any, places: Any, largest: int) -> Any:
    """Divide each pixel's gradient between eight directions, shape (n, 8); see the kernel `orient` of the CPU.

    Rows of `places` are, for each image, its first pixel, height and width; none has more than `largest` pixels.
    """
    planes = xp.empty((len(pixels), _N_ORIENTATIONS), np.float32)
    if xp is np:
        for first, height, width in places.tolist():
            span = slice(first, first + height * width)
            kernels.orient(pixels[span].reshape(height, width), planes[span].reshape(height, width, _N_ORIENTATIONS))
    elif largest:
        _SOURCE.function("orient")((-(-largest // 256), len(places)), (256,), (pixels, places, planes))
    return planes


def describe(xp: Any, planes: Any, places: Any, image_of: Any, rows: Any, columns: Any, size: float, out: Any) -> None:
    """Sum oriented gradients over the cells of patches of a size, around given rows and columns of images."""
    firsts, weights = cell_weights(size / N_CELLS)
    if xp is np:
        for d, (image, row, column) in enumerate(zip(image_of.tolist(), rows, columns, strict=True)):
            first, height, width = places[image].tolist()
            image_planes = planes[first : first + height * width].reshape(height, width, _N_ORIENTATIONS)
            kernels.describe_grid(image_planes, row[np.newaxis], column[np.newaxis], firsts, weights, out[d : d + 1])
    elif len(image_of):
        taps = xp.asarray(firsts), xp.asarray(weights), np.int32(weights.shape[1])
        arguments = (planes, places, image_of, rows, columns, *taps, out)
        _SOURCE.function("describe")((len(image_of),), (N_NUMBERS,), arguments)


def sift_arrays(
    xp: Any, images: Sequence[NDArray[Any]], step: int, patch: int, scales: Any, smoothing: float
) -> tuple[Any, Any, Any]:
    """Describe images, given as channels of shape (C, H, W) on the host, C the same for all.

    Returns values of shape (n, 128 C), numbers of descriptors of each image, and positions, arrays of the module `xp`:
    those of `sift_on_grid` up to rounding in float32, about 1e-6.
    """
    factors = list(map(float, scales))
    n_channels, shapes = len(images[0]), np.array([image.shape[1:] for image in images])
    sizes = shapes.prod(axis=1)
    # for each image and scale: descriptors down and to the right, and the middles of the first
    grids = np.array([[_grid(side, patch * f, step) for side in shape] for shape in shapes for f in factors])
    counts, middles = grids[:, :, 0], grids[:, :, 1]
    n_each = counts.prod(axis=1)
    n = int(n_each.sum())
    if xp is not np:
        need = 4 * (3 * n * n_channels * N_NUMBERS + (n_channels + 9) * int(sizes.sum())) + 100 * n
        check_device_memory(need, f"The descriptors of {len(images)} images", "describe fewer images at a time")
    pixels = to_device(np.concatenate([image.reshape(n_channels, -1) for image in images], axis=1), xp, np.float32)
    places = to_device(np.column_stack([np.cumsum(sizes) - sizes, shapes]), xp)
    of = xp.searchsorted(to_device(np.cumsum(n_each), xp), xp.arange(n), side="right")  # which image and scale
    ranks = xp.arange(n) - to_device(np.cumsum(n_each) - n_each, xp)[of]
    down, right = xp.divmod(ranks, to_device(counts[:, 1], xp)[of])
    starts = to_device(middles, xp)[of]
    rows, columns = starts[:, 0] + step * down, starts[:, 1] + step * right
    image_of = of // len(factors)
    values = xp.empty((n, n_channels * N_NUMBERS), np.float32)
    for k, factor in enumerate(factors):
        chosen = slice(None) if len(factors) == 1 else xp.flatnonzero(of % len(factors) == k)
        for c in range(n_channels):
            smoothed = _smooth(xp, pixels[c], shapes, gaussian(smoothing * factor))
            planes = orient(xp, smoothed, places, int(sizes.max()))
            part = xp.empty((len(rows[chosen]), N_NUMBERS), np.float32)
            describe(xp, planes, places, image_of[chosen], rows[chosen], columns[chosen], patch * factor, part)
            values[chosen, c * N_NUMBERS : (c + 1) * N_NUMBERS] = _normalized(xp, part)
    sides = to_device(np.maximum(shapes, 1), xp)[image_of]
    positions = xp.stack([(columns + 0.5) / sides[:, 1], (rows + 0.5) / sides[:, 0]], axis=1).astype(np.float32)
    return values, to_device(n_each.reshape(len(images), -1).sum(axis=1), xp), positions


def _grid(side: int, size: float, step: int) -> tuple[int, int]:
    """How many patches there are along a side, and the middle of the first."""
    starts = starts_of(side, size, step)
    return len(starts), (int(starts[0]) if len(starts) else 0) + int(size) // 2


def _smooth(xp: Any, pixels: Any, shapes: NDArray[np.int64], weights: NDArray[np.float32]) -> Any:
    """Smooth images by a symmetric filter of which `weights` are the middle and right half; mirrored at their sides."""
    radius = len(weights) - 1
    if radius == 0:
        return xp.ascontiguousarray(pixels)
    parts, start = [], 0
    for height, width in shapes.tolist():
        image = pixels[start : start + height * width].reshape(height, width)
        start += image.size
        for _ in range(2):  # columns, then rows
            n = len(image)
            at = np.abs(np.arange(-radius, n + radius)) % max(2 * n - 2, 1)
            padded = image[xp.asarray(np.where(at < n, at, 2 * n - 2 - at))]
            image = weights[0] * padded[radius : radius + n]
            for k in range(1, radius + 1):
                image = image + weights[k] * (padded[radius - k : radius - k + n] + padded[radius + k : radius + k + n])
            image = image.T
        parts.append(image.ravel())
    return xp.concatenate(parts)


def _normalized(xp: Any, vectors: Any) -> Any:
    """Scale rows to length 1, cut at `CLIP`, and scale again, in place; rows shorter than `FLAT` become zero."""
    norms = xp.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1))
    xp.minimum(vectors, (CLIP * norms).astype(np.float32)[:, np.newaxis], out=vectors)
    again = xp.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1))
    vectors *= xp.where(norms < FLAT, 0.0, 1.0 / xp.where(again > 0, again, 1.0)).astype(np.float32)[:, np.newaxis]
    return vectors
