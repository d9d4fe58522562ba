"""Frames of a video as grey images of a bounded size, some at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import as_numpy
from bagwise._utils.extras import require
from bagwise.errors import BagwiseError

__all__ = ["GreyFrames"]

# Shares of red, green and blue in grey, as in ITU-R BT.601 and OpenCV.
_GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)


class GreyFrames:
    """A video, seen as grey frames in [0, 1] of at most a given size. Only what is asked for is converted.

    Parameters
    ----------
    video : array-like of shape (frames, height, width) or (frames, height, width, 3)
        Grey or RGB; uint8, uint16, bool, or floats in [0, 1].
    max_side : int, default=None
        Frames with a longer side are shrunk to it by averaging over areas (OpenCV), which needs ``bagwise[image]``.

    Attributes
    ----------
    n_frames, height, width : int
        Number and size of the frames that are given out.
    """

    def __init__(self, video: Any, max_side: int | None = None) -> None:
        try:
            self._video = as_numpy(video)
        except ValueError as error:
            raise BagwiseError(f"A video must be an array, got what is not an array: {error}.") from error
        shape = self._video.shape
        if len(shape) not in (3, 4) or shape[3:] not in ((), (3,)):
            raise BagwiseError(
                "A video must be an array of shape (frames, height, width), or (frames, height, width, 3) in RGB; "
                f"got shape {shape}. For one video pass [video]."
            )
        if self._video.dtype not in (np.uint8, np.uint16, bool) and self._video.dtype.kind != "f":
            raise BagwiseError(f"A video must be uint8, uint16, bool or floats in [0, 1]; got {self._video.dtype}.")
        self.n_frames, self.height, self.width = shape[:3]
        self._shrink = None
        longest = max(self.height, self.width)
        if max_side is not None and longest > max_side:
            self._shrink = require("cv2", "image", "Shrinking frames")
            self.height = max(1, round(self.height * max_side / longest))
            self.width = max(1, round(self.width * max_side / longest))

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """Give frames ``start..stop`` as float32 of shape (frames, height, width)."""
        given = self._video[start:stop]
        frames = given.astype(np.float32)
        if given.dtype.kind == "u":
            frames /= np.iinfo(given.dtype).max
        elif given.size and not (frames.min() >= 0 and frames.max() <= 1):  # NaN fails as well
            raise BagwiseError(
                f"A video of floats must have values in [0, 1]; frames {start} to {start + len(given) - 1} go from "
                f"{frames.min()} to {frames.max()}. Divide by the largest possible value, or convert to uint8."
            )
        if frames.ndim == 4:
            frames = frames @ _GREY
        if self._shrink is not None and len(frames):
            size = (self.width, self.height)
            area = self._shrink.INTER_AREA
            frames = np.stack([self._shrink.resize(frame, size, interpolation=area) for frame in frames])
        return np.ascontiguousarray(frames)
