"""From images to histograms of words in one go, with descriptors that never leave the device."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise._utils.backends import backend
from bagwise._utils.threads import number_of_threads
from bagwise.codebooks.encoders import Encoder, as_encoder
from bagwise.codebooks.encoding import pooled, resolve_pooling
from bagwise.codebooks.pyramids import Grids, resolve_pyramid
from bagwise.descriptors.sift import DenseSIFT
from bagwise.errors import BagwiseError

__all__ = ["BATCH", "check_features", "encode_images", "pooled_images"]

# Images whose descriptors are held at a time.
BATCH = 128


def encode_images(
    images: Any,
    codebook: Any,
    *,
    descriptor: DenseSIFT | None = None,
    assignment: str | Encoder = "hard",
    pooling: str = "auto",
    pyramid: Any = None,
    sparse_output: bool = False,
    n_jobs: int | None = None,
    device: str | None = None,
) -> Any:
    """Turn images into histograms of words: dense SIFT, then `encode_bags`, some images at a time.

    Parameters
    ----------
    images : Collection of images, or iterable of arrays
    codebook : array-like of shape (K, D)
        Words, such as ``BagOfFeatures.codebook_``.
    descriptor : DenseSIFT or ColorSIFT, default=None
        None is ``DenseSIFT()``. Its cache is not used.
    assignment, pooling, pyramid, sparse_output
        As in `encode_bags`.
    n_jobs : int, default=None
        Number of threads that read images, and describe and encode them if that is done on the CPU.
    device : {"cpu", "cuda"}, default=None
        Where images are described and encoded. None: where the codebook is.

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
    module = backend("codebooks", device, codebook)
    encoder = as_encoder(assignment).on(module.codebook(codebook), module.Distances)
    how = resolve_pooling(pooling, encoder), resolve_pyramid(pyramid), sparse_output
    return module.pooled_images(images, descriptor, encoder, *how, n_jobs)


def pooled_images(
    images: Any, descriptor: DenseSIFT, encoder: Encoder, pooling: str, grids: Grids, sparse_output: bool, n_jobs: Any
) -> Any:
    """`encode_images` with an encoder that is bound to words, and parameters that are known to be sound."""
    parts: list[Any] = []
    described = copy.copy(descriptor).set_params(n_jobs=n_jobs, cache=None)
    for bags in described.iter_transform(images, BATCH):
        check_features(bags.n_features, encoder)
        parts.append(pooled(bags, encoder, pooling, grids, sparse_output, number_of_threads(n_jobs)))
    return sp.vstack(parts, format="csr") if sparse_output else np.concatenate(parts)


def check_features(n_features: int, encoder: Encoder) -> None:
    """Raise BagwiseError unless descriptors are as wide as words."""
    expected = encoder.codebook.shape[1]
    if n_features != expected:
        raise BagwiseError(f"The descriptors have {n_features} features, but the words of the codebook {expected}.")
