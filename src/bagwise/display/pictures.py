"""Thumbnails of images as PNG or JPEG files, and mosaics of patches."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise._utils.checks import check_integer
from bagwise._utils.extras import require
from bagwise.errors import BagwiseError

__all__ = ["mosaic", "photograph", "thumbnail"]

# Images smaller than this fraction of the requested size are enlarged without interpolation.
_SHARP_BELOW = 0.5


def thumbnail(image: ArrayLike | bytes, size: int = 96) -> bytes:
    """Return an image as a small PNG file. Needs ``bagwise[app]``.

    Parameters
    ----------
    image : array-like of shape (height, width) or (height, width, 3), or bytes
        Grey or RGB: uint8, or real numbers from 0 (black) to 1 (white). Or the bytes of an image file.
    size : int, default=96
        Length of the longer side in pixels. Larger images are reduced; small ones, such as patches of 8 by 8 pixels,
        are enlarged by an integer factor without interpolation.

    Returns
    -------
    png : bytes
        Equal images give equal bytes. Reduced to 256 colours if that makes the file smaller.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.display import thumbnail
    >>> thumbnail(np.eye(8), size=32)[1:4]
    b'PNG'
    """
    size = check_integer(size, "size", 1, 4096)
    pixels = _decoded(bytes(image)) if isinstance(image, bytes | bytearray | memoryview) else _checked(image)
    return _png(_scaled(pixels, size))


def photograph(image: ArrayLike | bytes, size: int = 320) -> bytes:
    r"""Return an image as a small JPEG file, grey if it has no colours. Needs ``bagwise[app]``.

    Smaller than the PNG files of `thumbnail`, in all colours, and not exact.

    Parameters
    ----------
    image : array-like of shape (height, width) or (height, width, 3), or bytes
        As for `thumbnail`.
    size : int, default=320
        Length of the longer side in pixels; see `thumbnail`.

    Returns
    -------
    jpeg : bytes
        Equal images give equal bytes.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.display import photograph
    >>> photograph(np.eye(8), size=32)[:2]
    b'\xff\xd8'
    """
    size = check_integer(size, "size", 1, 4096)
    pixels = _decoded(bytes(image)) if isinstance(image, bytes | bytearray | memoryview) else _checked(image)
    if pixels.ndim == 3 and not (pixels.max(axis=2) - pixels.min(axis=2)).any():
        pixels = pixels[:, :, 0]
    file = io.BytesIO()
    _scaled(pixels, size).save(file, format="JPEG", quality=85, optimize=True)
    return file.getvalue()


def mosaic(patches: Sequence[ArrayLike | bytes], size: int = 32, columns: int | None = None, gap: int = 2) -> bytes:
    """Combine patches into one PNG file. Needs ``bagwise[app]``.

    Parameters
    ----------
    patches : sequence of images
        As for `thumbnail`.
    size : int, default=32
        Length of the longer side of each patch in pixels.
    columns : int or None, default=None
        Patches per row; None: about as many as there are rows.
    gap : int, default=2
        Width of the transparent gaps in pixels.

    Returns
    -------
    png : bytes

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.display import mosaic
    >>> mosaic([np.eye(8), np.ones((8, 8))], size=16)[1:4]
    b'PNG'
    """
    Image = require("PIL.Image", "app", "Making mosaics")
    if isinstance(patches, bytes) or len(patches) == 0:
        raise BagwiseError("mosaic needs a sequence of at least one patch.")
    size, gap = check_integer(size, "size", 1, 4096), check_integer(gap, "gap", 0, 4096)
    across = math.ceil(math.sqrt(len(patches))) if columns is None else check_integer(columns, "columns", 1)
    across = min(across, len(patches))
    down = math.ceil(len(patches) / across)
    whole = Image.new("RGBA", (across * (size + gap) - gap, down * (size + gap) - gap), (0, 0, 0, 0))
    for i, patch in enumerate(patches):
        with Image.open(io.BytesIO(thumbnail(patch, size)), formats=["PNG"]) as small:
            corner = [cell * (size + gap) for cell in (i % across, i // across)]
            middle = [(size - side) // 2 for side in small.size]
            whole.paste(small.convert("RGBA"), (corner[0] + middle[0], corner[1] + middle[1]))
    return _saved(whole)


def _decoded(content: bytes) -> NDArray[np.uint8]:
    from bagwise.sources.media import ImageDecoder

    require("PIL.Image", "app", "Making thumbnails")
    file: Any = SimpleNamespace(open=lambda: io.BytesIO(content))
    try:
        return ImageDecoder("rgb").decode(file)
    except BagwiseError as error:
        raise BagwiseError(f"Cannot make a thumbnail of this file: {error}") from error


def _checked(image: Any) -> NDArray[np.uint8]:
    pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.size == 0 or (pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[2] == 3)):
        raise BagwiseError(
            f"Images must have shape (height, width) or (height, width, 3) and must not be empty; got {pixels.shape}."
        )
    if pixels.dtype == np.uint8:
        return pixels
    if pixels.dtype.kind not in "bf" or not (pixels.min() >= 0 and pixels.max() <= 1):
        raise BagwiseError(
            f"Pixels must be uint8, or floats from 0 to 1; got {pixels.dtype} from {pixels.min()} to "
            f"{pixels.max()}. Divide them by the value of white, or convert them with .astype('uint8')."
        )
    return np.rint(255 * pixels.astype(np.float64)).astype(np.uint8)


def _scaled(pixels: NDArray[np.uint8], size: int) -> Any:
    Image = require("PIL.Image", "app", "Making thumbnails")
    picture = Image.fromarray(np.ascontiguousarray(pixels))
    longer = max(picture.size)
    if longer > size:
        small = tuple(max(1, round(side * size / longer)) for side in picture.size)
        return picture.resize(small, Image.Resampling.LANCZOS, reducing_gap=3.0)
    factor = size // longer if longer <= _SHARP_BELOW * size else 1
    return picture.resize(tuple(side * factor for side in picture.size), Image.Resampling.NEAREST)


def _png(picture: Any) -> bytes:
    whole = _saved(picture)
    if picture.mode != "RGB":
        return whole
    # a palette needs a third of the bytes, and at this size other colours are not missed
    return min(whole, _saved(picture.quantize(256)), key=len)


def _saved(picture: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, format="PNG", optimize=True)
    return file.getvalue()
