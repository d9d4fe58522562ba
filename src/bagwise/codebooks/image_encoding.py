"""From images to histograms of words in one go, with descriptors that never leave the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import device_module, to_host
from bagwise._utils.threads import number_of_threads
from bagwise.codebooks.array_encoding import array_histograms
from bagwise.codebooks.distances import as_codebook
from bagwise.codebooks.encoders import Encoder, make_encoder
from bagwise.codebooks.encoding import pooled, resolve_pooling
from bagwise.codebooks.pyramids import resolve_pyramid
from bagwise.descriptors.array_sift import sift_arrays
from bagwise.descriptors.images import shrink
from bagwise.descriptors.sift import DenseSIFT
from bagwise.errors import BagwiseError
from bagwise.sources.collection import as_items
from bagwise.sources.items import ItemIterator, item_errors

__all__ = ["encode_images"]

# Images whose descriptors are held at a time.
_BATCH = 128


def encode_images(
    images: Any,
    codebook: Any,
    *,
    descriptor: DenseSIFT | None = None,
    assignment: str = "hard",
    pooling: str = "auto",
    pyramid: Any = None,
    sparse_output: bool = False,
    n_jobs: int | None = None,
    device: str | None = None,
    **options: Any,
) -> Any:
    """Turn images into histograms of words: dense SIFT, then `encode_bags`, some images at a time.

    Parameters
    ----------
    images : Collection of images, or iterable of arrays
    codebook : array-like of shape (K, D)
        Words, such as ``BagOfFeatures.codebook_``.
    descriptor : DenseSIFT or ColorSIFT, default=None
        None is ``DenseSIFT()``. Its cache is not used.
    assignment, pooling, pyramid, sparse_output, **options
        As in `encode_bags`.
    n_jobs : int, default=None
        Number of threads that read images, and describe and encode them if that is done on the CPU.
    device : {"cpu", "cuda"}, default=None
        Where images are described and encoded (``pip install "bagwise[gpu]"``); they are read on the CPU. None: where
        the codebook is. Descriptors differ by rounding in float32, about 1e-6, which may decide between two words that
        are equally near.

    Returns
    -------
    histograms : ndarray or CSR array
        On the host, as `encode_bags` gives them.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.codebooks import encode_images
    >>> rng = np.random.default_rng(0)
    >>> images = rng.integers(0, 256, (3, 40, 56), dtype=np.uint8)
    >>> encode_images(images, rng.random((5, 128))).sum(axis=1)
    array([24., 24., 24.])
    """
    descriptor = DenseSIFT() if descriptor is None else descriptor
    if not isinstance(descriptor, DenseSIFT):
        raise BagwiseError(
            f"encode_images describes by DenseSIFT or ColorSIFT, got {type(descriptor).__name__}. "
            "Use descriptor.transform and encode_bags for others."
        )
    descriptor.fit(images)  # checks its parameters
    xp = device_module(device, codebook)
    encoder = make_encoder(assignment, as_codebook(codebook, xp), **options)
    pooling, grids = resolve_pooling(pooling, encoder), resolve_pyramid(pyramid)
    parts: list[Any] = []
    if xp is np:
        described = descriptor.__class__(**{**descriptor.get_params(), "n_jobs": n_jobs, "cache": None})
        for bags in described.iter_transform(images, _BATCH):
            _check_features(bags.n_features, encoder)
            parts.append(pooled(bags, encoder, pooling, grids, sparse_output, number_of_threads(n_jobs)))
    else:
        size = descriptor.step, descriptor.patch, descriptor.scales, descriptor.smoothing
        for batch in _channels(images, descriptor, n_jobs):
            arrays = sift_arrays(xp, batch, *size)
            _check_features(arrays[0].shape[1], encoder)
            parts.append(to_host(array_histograms(*arrays, encoder, pooling, grids, sparse_output)))
    return sp.vstack(parts, format="csr") if sparse_output else np.concatenate(parts)


def _check_features(n_features: int, encoder: Encoder) -> None:
    expected = encoder.codebook.shape[1]
    if n_features != expected:
        raise BagwiseError(f"The descriptors have {n_features} features, but the words of the codebook {expected}.")


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
        items, read, source, n_jobs=n_jobs, size=lambda image: image.nbytes, batch_size=_BATCH, join=list
    )
