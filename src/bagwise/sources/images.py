"""Collections of images."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, unknown_name
from bagwise.sources.archives import ArchiveLimits
from bagwise.sources.collection import Collection
from bagwise.sources.items import Content
from bagwise.sources.places import chosen_endings, collect

__all__ = ["IMAGE_ENDINGS", "ImageDecoder", "open_images"]

IMAGE_ENDINGS = frozenset(
    [".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2"]
)
# Below the size from which Pillow warns (89 million), so that our message comes first.
DEFAULT_MAX_PIXELS = 64_000_000


def open_images(
    path: str | os.PathLike[str],
    *,
    mode: str = "grey",
    labels: Any = "folders",
    splits: Any = "folders",
    extensions: Iterable[str] | str | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    limits: ArchiveLimits | None = None,
) -> Collection:
    """Open the images of a folder or an archive. Needs ``bagwise[image]``.

    Images are decoded by Pillow to uint8: rotated as their EXIF data say, 16 bits scaled to 8, transparency put on
    white, palettes and CMYK converted; of animations the first frame.

    Parameters
    ----------
    path : path
        Folder, zip or tar archive, or one image.
    mode : {"grey", "rgb"}, default="grey"
        Arrays of shape (height, width), or (height, width, 3).
    labels : "folders", None, mapping or path, default="folders"
        The class of an image is the name of its folder; or there are no labels; or they are given, see
        `Collection.with_labels`.
    splits : "folders", None, mapping or path, default="folders"
        The same for parts of the collection: outermost folders named train and test, or see `Collection.with_splits`.
    extensions : iterable of str or "*", default=None
        Endings of the files that are images, by default the usual ones. ``"*"``: all files.
    max_pixels : int, default=64_000_000
        Larger images are refused before they are decoded. (Pillow has a limit of its own at 178 million.)
    limits : ArchiveLimits, default=None
        What archives may hold.

    Returns
    -------
    collection : Collection
        Its items' `load` gives arrays of uint8.
    """
    require("PIL.Image", "image", "Reading images")
    if isinstance(max_pixels, bool) or not isinstance(max_pixels, (int, np.integer)) or max_pixels < 1:
        raise BagwiseError(f"max_pixels must be a positive integer, got {max_pixels!r}.")
    decoder = ImageDecoder(check_mode(mode), int(max_pixels))
    endings = chosen_endings(extensions, IMAGE_ENDINGS)
    return collect(path, "images", decoder, endings, labels=labels, splits=splits, limits=limits)


def check_mode(mode: str) -> str:
    """Check the `mode` parameter of images and videos."""
    if mode not in ("grey", "rgb"):
        raise unknown_name("mode", mode, ("grey", "rgb"))
    return mode


@dataclass(frozen=True)
class ImageDecoder:
    """Decodes images to uint8 by Pillow."""

    mode: str
    max_pixels: int = DEFAULT_MAX_PIXELS

    def decode(self, content: Content) -> NDArray[np.uint8]:
        """Give the image as an array; whatever stops Pillow is an error with its reason."""
        from PIL import Image, ImageOps

        with content.open() as file:
            if not file.read(1):
                raise BagwiseError("the file is empty")
            file.seek(0)
            try:
                with Image.open(file) as image:
                    width, height = image.size
                    if width * height > self.max_pixels:
                        raise BagwiseError(
                            f"it has {width} x {height} pixels, the limit max_pixels is {self.max_pixels}. "
                            "If you trust it, pass a larger one."
                        )
                    return self._to_array(ImageOps.exif_transpose(image))
            except (BagwiseError, MemoryError):
                raise
            except Exception as error:
                # A damaged file can make a decoder fail in any way: struct.error, SyntaxError, IndexError, ...
                raise BagwiseError(f"it is damaged or not an image: {error or type(error).__name__}") from error

    def _to_array(self, image: Any) -> NDArray[np.uint8]:
        from PIL import Image

        mode = "L" if self.mode == "grey" else "RGB"
        if image.mode.startswith("I") or image.mode == "F":
            image = Image.fromarray(_to_8_bits(np.asarray(image), image.mode))
        elif image.has_transparency_data:
            rgba = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
        elif image.mode not in ("L", "RGB"):
            image = image.convert("RGB")
        return np.array(image.convert(mode))


def _to_8_bits(pixels: NDArray[Any], mode: str) -> NDArray[np.uint8]:
    """Scale 16 bits to 8, rounding. Pillow opens them as ``I;16``, or as ``I``, which may be 32 bits as well."""
    if mode == "F" or (pixels.size and (pixels.min() < 0 or pixels.max() > 65535)):
        raise BagwiseError(
            f"its pixels are {pixels.dtype} from {pixels.min():g} to {pixels.max():g}, and which mean black and white "
            "is not known. Convert it to 8 or 16 bits first."
        )
    return ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
