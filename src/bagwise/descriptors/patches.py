"""`Patches`: pixels themselves as descriptors."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.records import Integer, OneOf, parameter
from bagwise.descriptors.base import Descriptor
from bagwise.descriptors.images import as_grey, as_rgb, centres_in_unit_square, starts_of
from bagwise.descriptors.registry import MOST_PIXELS

__all__ = ["Patches"]

# Lengths and deviations below this count as zero.
FLAT = 1e-8


@dataclass(eq=False, repr=False)
class Patches(Descriptor):
    """Take the pixels of square patches on a regular grid as descriptors.

    Parameters
    ----------
    patch : int, default=8
        Side of a patch in pixels.
    step : int, default=4
        Pixels between neighbouring patches. The grid is centred in the image.
    mode : {"grey", "rgb"}, default="grey"
        Grey patches have ``patch²`` numbers, row by row; colour images are converted. RGB patches have ``3 patch²``:
        all red values, then green, then blue; grey images raise an error.
    normalize : {"mean", "standard", "l2"} or None, default="standard"
        "mean" subtracts the mean of each patch, "standard" also divides by its standard deviation, "l2" scales the
        patch to unit norm. None leaves the pixels as they are. "mean" and "standard" make flat patches zero.
    max_side, n_jobs, verbose, cache
        As in `DenseSIFT`.

    Notes
    -----
    Without normalisation, numbers are on the scale of the image: 0 to 255 for uint8. Mean and standard deviation are
    over all channels of a patch together. Images smaller than a patch give an empty bag.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import Patches
    >>> image = np.arange(12.0).reshape(3, 4)
    >>> values, positions = Patches(patch=2, step=2, normalize=None).describe(image)
    >>> values
    array([[0., 1., 4., 5.],
           [2., 3., 6., 7.]], dtype=float32)
    >>> positions
    array([[0.25      , 0.33333334],
           [0.75      , 0.33333334]], dtype=float32)
    """

    patch: int = parameter(8, Integer(1, MOST_PIXELS))
    _: KW_ONLY
    step: int = parameter(4, Integer(1, MOST_PIXELS))
    mode: str = parameter("grey", OneOf("grey", "rgb"))
    normalize: str | None = parameter("standard", OneOf("mean", "standard", "l2", None))

    @property
    def color(self) -> bool:  # type: ignore[override]
        """Whether images are opened in colour."""
        return self.mode == "rgb"

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        channels = as_rgb(content, 'Patches(mode="rgb")') if self.mode == "rgb" else as_grey(content)[np.newaxis]
        n_channels, height, width = channels.shape
        rows, columns = starts_of(height, self.patch, self.step), starts_of(width, self.patch, self.step)
        n_numbers = n_channels * self.patch**2
        if not (len(rows) and len(columns)):
            return np.empty((0, n_numbers), np.float32), np.empty((0, 2), np.float32)
        windows = np.lib.stride_tricks.sliding_window_view(channels, (self.patch, self.patch), axis=(1, 2))
        chosen = windows[:, rows[:, np.newaxis], columns]  # channels, rows, columns, patch, patch
        values = np.moveaxis(chosen, 0, 2).reshape(-1, n_numbers)
        positions = centres_in_unit_square(rows + self.patch / 2, columns + self.patch / 2, height, width)
        return _normalized(values, self.normalize), positions


def _normalized(values: NDArray[np.float32], how: str | None) -> NDArray[np.float32]:
    if how is None:
        return values
    numbers = values.astype(np.float64)
    if how != "l2":
        numbers -= numbers.mean(axis=1, keepdims=True)
    if how != "mean":
        size = np.linalg.norm(numbers, axis=1, keepdims=True)
        if how == "standard":
            size /= np.sqrt(numbers.shape[1])
        # relative to the pixels: what is left of a flat patch after taking the mean away is rounding
        flat = size <= FLAT * np.maximum(1.0, np.abs(values).max(axis=1, keepdims=True))
        numbers = np.where(flat, 0.0, numbers / np.where(flat, 1.0, size))
    return numbers.astype(np.float32)
