"""The images of the demo: scikit-learn's handwritten digits, enlarged, in an archive like anyone's own."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from bagwise._io.atomic import open_atomically
from bagwise.errors import BagwiseError

__all__ = ["prepare_folder", "write_digits"]

_ENLARGED = 4
_EVERY_TEST = 4  # one image in four is kept apart
_NAME = "digits.zip"
# the oldest date that zip files know: the same images give the same bytes
_DATE = (1980, 1, 1, 0, 0, 0)


def prepare_folder(folder: Path) -> None:
    """Make the folder of the demo; refuse one with other things in it."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / _NAME).exists())):
        raise BagwiseError(f"{folder} exists and is not from an earlier demo. Give another folder by --out.")
    folder.mkdir(parents=True, exist_ok=True)


def write_digits(path: Path) -> Path:
    """Write 1,797 digits as PNG files of 32 x 32 pixels into an archive with parts train and test, a folder a digit."""
    import numpy as np
    from sklearn.datasets import load_digits

    from bagwise._utils.extras import require

    image_module = require("PIL.Image", "image", "The demo")
    digits = load_digits()
    side = digits.images.shape[1] * _ENLARGED
    with open_atomically(path) as file, zipfile.ZipFile(file, "w") as archive:
        for number, (pixels, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
            picture = image_module.fromarray(np.round(pixels * (255 / 16)).astype(np.uint8))
            png = io.BytesIO()
            picture.resize((side, side), image_module.Resampling.BICUBIC).save(png, "PNG")
            part = "test" if number % _EVERY_TEST == 0 else "train"
            archive.writestr(zipfile.ZipInfo(f"{part}/{digit}/{number:04}.png", _DATE), png.getvalue())
    return path
