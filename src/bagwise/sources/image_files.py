"""Image files: which formats are read, by what they hold and not by their names, and how they become pixels.

The memory that this takes has one account in the process, whoever decodes.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.memory import give_back_memory, readable_size
from bagwise.errors import BagwiseError
from bagwise.sources.limits import Deadline, Limits

__all__ = [
    "DECODING",
    "IMAGE_ENDINGS",
    "IMAGE_FORMATS",
    "ORIENTATION",
    "UNREAD_ENDINGS",
    "DecodingMemory",
    "decoding_bytes",
    "open_image",
    "to_array",
]

IMAGE_ENDINGS = frozenset(
    [".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif"]
)
# All other plugins of Pillow stay unused, such as that of EPS, which runs Ghostscript on what is in the file. By name:
# that of the plugin, its module, and what Pillow may have been built without.
IMAGE_FORMATS = {
    "JPEG": ("JPEG", "JpegImagePlugin", ""),
    "PNG": ("PNG", "PngImagePlugin", ""),
    "WebP": ("WEBP", "WebPImagePlugin", "webp"),
    "GIF": ("GIF", "GifImagePlugin", ""),
    "BMP": ("BMP", "BmpImagePlugin", ""),
    "TIFF": ("TIFF", "TiffImagePlugin", ""),
    "PNM": ("PPM", "PpmImagePlugin", ""),
    "JPEG 2000": ("JPEG2000", "Jpeg2KImagePlugin", "jpg_2000"),
    "AVIF": ("AVIF", "AvifImagePlugin", "avif"),
}
_DRAWING = "It holds drawing commands, not pixels: export it as PNG."
_HEIC = "Save it as JPEG, for instance by heif-convert of libheif; telephones can be set to take JPEG photographs."
_CONVERT = "Convert it to PNG."
# What files of other formats begin with, and what to do with them.
_OTHERS: tuple[tuple[str, bytes, str], ...] = (
    ("EPS (PostScript)", rb"%!PS|\xc5\xd0\xd3\xc6", _DRAWING),
    ("PDF", rb"%PDF-", _DRAWING),
    ("WMF", rb"\xd7\xcd\xc6\x9a|\x01\0\x09\0", _DRAWING),
    ("EMF", rb"\x01\0\0\0.{36} EMF", _DRAWING),
    ("SVG", rb"(?:\xef\xbb\xbf)?\s*<(?=.*<svg[\s>]|svg[\s>])", _DRAWING),
    ("HTML", rb"(?i)(?:\xef\xbb\xbf)?\s*<(?:!doctype )?html", "It may be what a server answered: load it again."),
    ("AVIF", rb".{4}ftyp(?:avif|avis)", ""),
    ("HEIC", rb".{4}ftyp(?:hei[cxms]|hev[cxms]|mif1|msf1)", _HEIC),
    ("JPEG XL", rb"\xff\x0a|\0\0\0\x0cJXL ", _CONVERT),
    ("PSD", rb"8BPS", _CONVERT),
    ("ICO", rb"\0\0[\x01\x02]\0", _CONVERT),
    ("ICNS", rb"icns", _CONVERT),
    ("DDS", rb"DDS ", _CONVERT),
    ("QOI", rb"qoif", _CONVERT),
    ("OpenEXR", rb"v/1\x01", _CONVERT),
    ("Radiance HDR", rb"#\?R(?:ADIANCE|GBE)", _CONVERT),
    ("FITS", rb"SIMPLE  =", _CONVERT),
    ("HDF5", rb"\x89HDF", _CONVERT),
    ("XCF", rb"gimp xcf", _CONVERT),
    ("DjVu", rb"AT&TFORM", _CONVERT),
    ("DICOM", rb".{128}DICM", _CONVERT),
)
# Formats that are read, for files that are damaged or that this Pillow does not know.
_BEGINNINGS = {
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG",
    "WebP": rb"RIFF.{4}WEBP",
    "GIF": rb"GIF8",
    "BMP": rb"BM",
    "TIFF": rb"II[*+]\0|MM\0[*+]",
    "PNM": rb"P[1-6]\s",
    "JPEG 2000": rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  ",
    "AVIF": rb".{4}ftyp(?:avif|avis)",
}
# Endings of images that are not read, which people have beside others.
UNREAD_ENDINGS = dict.fromkeys((".heic", ".heif", ".hif"), _HEIC.replace("it ", "them ", 1))
UNREAD_ENDINGS |= dict.fromkeys((".eps", ".svg", ".svgz", ".wmf", ".emf", ".ai"), "Export them as PNG.")
UNREAD_ENDINGS |= dict.fromkeys((".psd", ".jxl", ".ico", ".tga", ".qoi", ".exr", ".hdr"), "Convert them to PNG.")
UNREAD_ENDINGS |= dict.fromkeys((".dng", ".cr2", ".cr3", ".nef", ".arw"), "Develop them to JPEG or TIFF.")
_HEAD = 4096  # bytes by which a format is told
_STRIP_PIXELS = 1 << 20  # pixels that are converted at a time
# Bytes of a pixel as Pillow holds it, by mode, and what libraries of formats hold beside it.
_MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
_FORMAT_BYTES = {"WEBP": 12, "AVIF": 16, "BMP": 3, "PPM": 4, "GIF": 4, "TIFF": 4}
_COEFFICIENT_BYTES = 6  # of a pixel of a progressive JPEG file, and of a channel of JPEG 2000
_STRIP_BYTES = 24
ORIENTATION, _TILE_WIDTH, _TILE_LENGTH = 274, 322, 323  # numbers of tags
# What the numbers of orientations do to (height, width): whether axes are exchanged, then which are reversed.
_TURNS: dict[Any, tuple[bool, tuple[int, ...]]] = {
    2: (False, (1,)),
    3: (False, (0, 1)),
    4: (False, (0,)),
    5: (True, ()),
    6: (True, (1,)),
    7: (True, (0, 1)),
    8: (True, (0,)),
}

# Bytes that are admitted whatever memory is free, and from which on they are given back: both take time to do.
_FEW, _MUCH = 1 << 26, 1 << 28


@cache
def _readable() -> dict[str, str]:
    """Return the formats that this Pillow reads: their names, and those of the plugins."""
    from PIL import features

    plugins = {}
    for name, (plugin, module, needed) in IMAGE_FORMATS.items():
        try:
            import_module(f"PIL.{module}")
        except ImportError:  # AVIF, before Pillow 11.3
            continue
        if not needed or features.check(needed):
            plugins[name] = plugin
    return plugins


def open_image(file: BinaryIO) -> Any:
    """Open an image of a format that is read; its pixels are not decoded. Others are errors that name them."""
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(file, formats=list(_readable().values()))
    except UnidentifiedImageError as error:
        file.seek(0)
        raise BagwiseError(_refusal(file.read(_HEAD))) from error


def _refusal(head: bytes) -> str:
    """Say why a file that begins so cannot be opened: what it is, and what is read."""
    readable = f"Formats that are read: {', '.join(_readable())}."
    for name, beginning in _BEGINNINGS.items():
        if re.match(beginning, head, re.DOTALL):
            if name in _readable():
                return f"it is damaged or not an image: it begins as {name}, but its header cannot be read. {readable}"
            return f"it is {name}, which this Pillow was built without: upgrade Pillow, or convert it. {readable}"
    for name, beginning, advice in _OTHERS:
        if re.match(beginning, head, re.DOTALL):
            return f"it is {name}, which is not read. {advice} {readable}"
    return f"it is damaged or not an image: it begins with {head[:12]!r}. {readable}"


def decoding_bytes(image: Any, mode: str, size: tuple[int, int]) -> int:
    """Estimate the memory to decode an opened image, by its header; `size` is that of the file, before any draft."""
    n_pixels = image.size[0] * image.size[1]
    pixel_bytes = _MODE_BYTES.get(image.mode, 4)
    beside = _FORMAT_BYTES.get(image.format, 0) * n_pixels
    out = 1 if mode == "grey" else 3
    if image.format in ("JPEG", "MPO") and image.info.get("progressive"):
        beside += _COEFFICIENT_BYTES * size[0] * size[1]
    if image.format == "JPEG2000":
        beside += _COEFFICIENT_BYTES * len(image.getbands()) * n_pixels
    if image.format == "TIFF":
        sides = (image.tag_v2.get(tag, 0) for tag in (_TILE_WIDTH, _TILE_LENGTH))
        width, length = (side if isinstance(side, int) else 0 for side in sides)
        beside += 8 * width * length
    # what it becomes is held beside it, and again if it is turned; to ask for that would load some formats
    after = max(pixel_bytes + out, 2 * out) * n_pixels
    return max(pixel_bytes * n_pixels + beside, after) + _STRIP_BYTES * min(n_pixels, _STRIP_PIXELS)


def to_array(image: Any, mode: str, check: Callable[[], None]) -> NDArray[np.uint8]:
    """Return the pixels of an opened image, which is closed: in rows, some at a time; `check` is called between them.

    Rotated by the EXIF data, 16 bits scaled to 8, transparency on white.
    """
    image.load()
    check()
    if image.mode.startswith("I") or image.mode == "F":
        _check_range(image)
    # after loading: some formats obey it themselves
    exchanged, reversed_axes = _TURNS.get(image.getexif().get(ORIENTATION, 1), (False, ()))
    width, height = image.size
    pixels = np.empty((height, width) if mode == "grey" else (height, width, 3), np.uint8)
    step = max(1, _STRIP_PIXELS // max(1, width))
    for top in range(0, height, step):
        strip = image if step >= height else image.crop((0, top, width, min(top + step, height)))
        pixels[top : top + step] = _converted(strip, "L" if mode == "grey" else "RGB")
        check()
    image.close()
    if not (exchanged or reversed_axes):
        return pixels
    pixels = pixels.swapaxes(0, 1) if exchanged else pixels
    return np.ascontiguousarray(np.flip(pixels, reversed_axes))


def _converted(image: Any, mode: str) -> NDArray[np.uint8]:
    """Convert an image, or a part of it, to "L" or "RGB"."""
    from PIL import Image

    if image.mode.startswith("I"):
        wide = np.asarray(image).astype(np.uint32)
        image = Image.fromarray(((wide + 128) // 257).astype(np.uint8))
    elif image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    elif image.mode not in ("L", "RGB"):
        image = image.convert("RGB")
    return np.asarray(image.convert(mode))


def _check_range(image: Any) -> None:
    """Refuse pixels that are not 8 or 16 bits. Pillow opens 16 bits as ``I;16``, or as ``I``, which may be 32 bits."""
    low, high = image.getextrema() if image.mode in ("I", "F") else (0, 65535)
    if image.mode == "F" or low < 0 or high > 65535:
        kind = "float32" if image.mode == "F" else "int32"
        raise BagwiseError(
            f"its pixels are {kind} from {low:g} to {high:g}; the values of black and white are unknown. Convert it to "
            "8 or 16 bits first."
        )


class DecodingMemory:
    """Admits decoders, in the order in which they come, while the bytes that they take together are within a limit."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin with nothing admitted, and nobody waiting."""
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self.n_bytes = 0

    @contextmanager
    def admit(self, n_bytes: int, limits: Limits, deadline: Deadline) -> Iterator[None]:
        """Take bytes for a block, at most `decode_bytes` with all others; waiting takes no time of the deadline."""
        ticket, began = object(), time.monotonic()
        with self._changed:
            self._waiting.append(ticket)
            try:
                while not (self._waiting[0] is ticket and self._fits(n_bytes, limits)):
                    self._changed.wait()
                self.n_bytes += n_bytes
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            deadline.extend(time.monotonic() - began)
            yield
        finally:
            if n_bytes >= _MUCH:
                give_back_memory()
            with self._changed:
                self.n_bytes -= n_bytes
                self._changed.notify_all()

    def _fits(self, n_bytes: int, limits: Limits) -> bool:
        """Whether the first that waits is admitted now; it is refused if it is too much by itself."""
        if self.n_bytes + n_bytes <= min(_FEW, limits.decode_bytes):
            return True
        if not self.n_bytes:
            limits.check("decode_bytes", n_bytes, f"it takes about {readable_size(n_bytes)} to decode")
            return True
        most = limits.most("decode_bytes")
        return most is None or self.n_bytes + n_bytes <= most


DECODING = DecodingMemory()


if hasattr(os, "register_at_fork"):  # threads of the parent, which have taken some, are not in the child
    os.register_at_fork(after_in_child=DECODING.reset)
