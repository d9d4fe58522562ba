"""What descriptors are given: collections, or lists of arrays, seen alike."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection

__all__ = ["Thing", "as_grey", "as_image", "as_rgb", "things_of"]

# Largest number a pixel may be.
LARGEST = 1e15
# Luminance of red, green and blue (ITU-R BT.601), as used by Pillow and OpenCV.
GREY_WEIGHTS = (0.299, 0.587, 0.114)


class Thing(Protocol):
    """Something to describe: an `Item` of a collection, or one array of a list."""

    @property
    def id(self) -> str:
        """Its name, for people."""

    def load(self) -> Any:
        """Give the array."""

    def fingerprint(self) -> str:
        """Hash what `load` gives."""


class GivenArray:
    """One array of a list."""

    def __init__(self, id: str, array: Any) -> None:
        self.id = id
        self._array = array

    def load(self) -> Any:
        """Give the array."""
        return self._array

    def fingerprint(self) -> str:
        """Hash type, shape and bytes."""
        if isinstance(self._array, str):  # NumPy's strings do not tell "" from a character zero
            return hashlib.blake2b(self._array.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        array = np.asarray(self._array)
        if array.dtype == object:
            raise BagwiseError(f"it is not an array of numbers but {type(self._array).__name__}")
        digest = hashlib.blake2b(f"{array.dtype.str} {array.shape}".encode(), digest_size=16)
        digest.update(array.tobytes())
        return digest.hexdigest()


def things_of(given: Any, modality: str) -> tuple[Sequence[Thing], str]:
    """Check what a descriptor was given: things to describe, and where they come from, for people.

    Parameters
    ----------
    given : Collection, or iterable of arrays
        A collection must be of the right modality. An array is taken as a list along its first axis.
    modality : str
        ``"images"``, ``"videos"`` or ``"texts"``.
    """
    if isinstance(given, Collection):
        if given.modality != modality:
            raise BagwiseError(
                f"This descriptor takes {modality}, got a collection of {given.modality} from {given.source}."
            )
        things: Sequence[Any] = given
        source = given.source
    else:
        if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
            raise BagwiseError(
                f"Expected a list of {modality} or a collection, got {type(given).__name__}. "
                "Open folders and archives by bagwise.open_collection(path)."
            )
        # an array of shape (n, height, 3) could be n grey images, but is one in RGB
        if modality == "images" and isinstance(given, np.ndarray) and (given.ndim < 3 or given.shape[2:] == (3,)):
            raise BagwiseError(
                f"Expected a list of images, got one array of shape {given.shape}. For one image pass [image]."
            )
        things = [GivenArray(f"{modality[:-1]} {number}", array) for number, array in enumerate(given)]
        source = "the list"
    if len(things) == 0:
        raise BagwiseError(f"There is nothing to describe: got no {modality}. Pass at least one.")
    return things, source


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
