"""Images that are drawn or come with scikit-learn: photographs of places, handwritten digits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch

from bagwise._utils.checks import check_integer, generator
from bagwise._utils.extras import require
from bagwise.errors import BagwiseError

__all__ = ["even_classes", "load_digit_images", "make_photos"]

Image = NDArray[np.float64]

_TEST_DIGITS = 4  # one digit in four is a test image
_LONGEST = 1 << 12  # pixels of a side


def make_photos(
    n_samples: int = 180,
    *,
    size: tuple[int, int] = (120, 160),
    mixed: float = 0.5,
    random_state: Any = 0,
    return_X_y: bool = False,
) -> Any:
    """Draw colour photographs of five places: beach, bricks, forest, meadow and sunset.

    Each place has its colours and textures, which vary from photo to photo, as does the light. A part of the photos
    shows another place beside the one it is named after, sometimes as the larger part: the classes overlap.

    Parameters
    ----------
    n_samples : int, default=180
        Number of photos, as many of each place.
    size : tuple of two int, default=(120, 160)
        Height and width in pixels, from 32 to 4096.
    mixed : float, default=0.5
        Part of the photos that show a second place.
    random_state : int, Generator, RandomState or None, default=0
    return_X_y : bool, default=False
        Return ``(images, target)`` instead of a Bunch.

    Returns
    -------
    photos : Bunch
        - images : uint8 array of shape (n_samples, height, width, 3), in RGB
        - target : int array of shape (n_samples,)
        - target_names : list of str
        - DESCR : str

    See Also
    --------
    write_dataset : Writes them as files, for ``bagwise fit``.

    Examples
    --------
    >>> from bagwise.datasets import make_photos
    >>> photos = make_photos(10, size=(48, 64))
    >>> photos.images.shape, photos.target_names[photos.target[0]]
    ((10, 48, 64, 3), 'beach')
    """
    n_samples = check_integer(n_samples, "n_samples", 1)
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise BagwiseError(f"size must be height and width, such as (120, 160); got {size!r:.60}.")
    height, width = (check_integer(side, "size", 32, _LONGEST) for side in size)
    if isinstance(mixed, bool) or not isinstance(mixed, (int, float)) or not 0 <= mixed <= 1:
        raise BagwiseError(f"mixed must be a number from 0 to 1, got {mixed!r:.60}.")
    rng = generator(random_state)
    target, images = even_classes(n_samples, len(_PLACES)), np.empty((n_samples, height, width, 3), np.uint8)
    draws = list(_PLACES.values())
    for number, scene in enumerate(target.tolist()):
        picture = draws[scene](rng, height, width)
        if rng.random() < mixed:
            other = draws[rng.integers(len(draws))](rng, height, width)
            start = int(rng.uniform(0.3, 0.9) * width)
            picture[:, start:] = other[:, start:]
        picture = picture * rng.uniform(0.7, 1.1) + rng.normal(0, 8, (height, width, 3))
        images[number] = np.clip(picture, 0, 255)
    if return_X_y:
        return images, target
    names = list(_PLACES)
    about = f"{n_samples} drawn photographs of {', '.join(names[:-1])} and {names[-1]}; synthetic, made by bagwise."
    return Bunch(images=images, target=target, target_names=names, DESCR=about)


def even_classes(n_samples: int, n_classes: int) -> NDArray[np.int64]:
    """Return the class of each sample, in order, as many of each as can be.

    >>> even_classes(5, 3)
    array([0, 0, 1, 1, 2])
    """
    return np.sort(np.arange(n_samples) % n_classes)


def _blend(top: Any, bottom: Any, part: Image) -> Image:
    """Go from one colour to another where `part` goes from 0 to 1."""
    mixed: Image = np.asarray(top) * (1 - part[..., None]) + np.asarray(bottom) * part[..., None]
    return mixed


def _grid(height: int, width: int) -> tuple[Image, Image]:
    """Return how far each pixel is from the top and from the left, from 0 to 1."""
    rows, columns = np.mgrid[:height, :width]
    return rows / height, columns / width


def _beach(rng: Any, height: int, width: int) -> Image:
    y, x = _grid(height, width)
    shore = rng.uniform(0.5, 0.75) + 0.03 * np.sin(8 * x + rng.uniform(0, 6))
    sea = _blend([120, 180, 220], [30, 110, 160], y + 0.04 * np.sin(60 * y + 9 * x))
    sand = np.array([220, 195, 150]) + rng.normal(0, 14, (height, width, 1))
    return np.where((y > shore)[..., None], sand, sea)


def _bricks(rng: Any, height: int, width: int) -> Image:
    high, wide = rng.integers(10, 18), rng.integers(24, 40)
    rows, columns = np.mgrid[:height, :width]
    shifted = columns + (rows // high % 2) * wide // 2
    mortar = (rows % high < 2) | (shifted % wide < 2)
    shade = rng.normal(0, 18, (height // high + 2, width // wide + 3))[rows // high, shifted // wide]
    return np.where(mortar[..., None], 190.0, np.array([160, 75, 55]) + shade[..., None])


def _forest(rng: Any, height: int, width: int) -> Image:
    y, x = _grid(height, width)
    picture = _blend([50, 90, 50], [25, 55, 25], y) + rng.normal(0, 16, (height, width, 1))
    for _ in range(rng.integers(6, 12)):
        trunk = np.abs(x - rng.uniform(0, 1)) < rng.uniform(0.01, 0.03)
        picture[trunk] = np.array([70, 50, 35]) + rng.normal(0, 8, (int(trunk.sum()), 1))
    return picture


def _meadow(rng: Any, height: int, width: int) -> Image:
    y, x = _grid(height, width)
    picture = _blend([120, 170, 80], [70, 130, 50], y) + rng.normal(0, 12, (height, width, 1))
    colors = np.array([[235, 210, 60], [230, 90, 120], [240, 240, 240], [150, 90, 200]])
    for _ in range(rng.integers(15, 40)):
        far = (y - rng.uniform(0.1, 1)) ** 2 + (0.75 * (x - rng.uniform(0, 1))) ** 2
        picture[far < rng.uniform(0.0002, 0.0015)] = colors[rng.integers(4)]
    return picture


def _sunset(rng: Any, height: int, width: int) -> Image:
    y, x = _grid(height, width)
    horizon = rng.uniform(0.6, 0.8)
    sky = _blend([90, 60, 120], [250, 140, 60], np.clip(y / horizon, 0, 1))
    sun = (y - horizon + 0.12) ** 2 + (0.75 * (x - rng.uniform(0.2, 0.8))) ** 2 < 0.004
    sky[sun] = [255, 225, 140]
    sea = _blend([120, 60, 60], [40, 30, 60], y) + 25 * np.sin(90 * y + 6 * x)[..., None]
    return np.where((y > horizon)[..., None], sea, sky)


_PLACES: dict[str, Callable[[Any, int, int], Image]] = {
    "beach": _beach,
    "bricks": _bricks,
    "forest": _forest,
    "meadow": _meadow,
    "sunset": _sunset,
}


def load_digit_images(*, scale: int = 4, return_X_y: bool = False) -> Any:
    """Load scikit-learn's 1,797 handwritten digits as grey images, enlarged. Needs ``bagwise[app]``.

    Parameters
    ----------
    scale : int, default=4
        Factor of the sides, which are 8 pixels; 4 gives 32 x 32 pixels.
    return_X_y : bool, default=False
        Return ``(images, target)`` instead of a Bunch.

    Returns
    -------
    digits : Bunch
        - images : uint8 array of shape (1797, 8 scale, 8 scale)
        - target : int array of shape (1797,)
        - target_names : list of str
        - splits : list of str; every fourth digit is in "test", others are in "train"
        - DESCR : str

    Examples
    --------
    >>> from bagwise.datasets import load_digit_images
    >>> digits = load_digit_images()
    >>> digits.images.shape, digits.splits.count("test")
    ((1797, 32, 32), 450)
    """
    from sklearn.datasets import load_digits

    pillow = require("PIL.Image", "app", "Enlarging digits")
    digits = load_digits()
    side = digits.images.shape[1] * check_integer(scale, "scale", 1, _LONGEST // digits.images.shape[1])
    pictures = (pillow.fromarray(np.round(pixels * (255 / 16)).astype(np.uint8)) for pixels in digits.images)
    images = np.stack([np.asarray(picture.resize((side, side), pillow.Resampling.BICUBIC)) for picture in pictures])
    if return_X_y:
        return images, digits.target
    splits = ["test" if number % _TEST_DIGITS == 0 else "train" for number in range(len(images))]
    names = list(map(str, digits.target_names))
    return Bunch(images=images, target=digits.target, target_names=names, splits=splits, DESCR=digits.DESCR)
