"""Collections of videos."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import as_count
from bagwise._utils.extras import require
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError
from bagwise.sources.archives import ArchiveLimits
from bagwise.sources.collection import Collection
from bagwise.sources.images import check_mode
from bagwise.sources.items import Content
from bagwise.sources.places import chosen_endings, collect

__all__ = ["VIDEO_ENDINGS", "VideoDecoder", "open_videos"]

VIDEO_ENDINGS = frozenset([".avi", ".mp4", ".m4v", ".mkv", ".mov", ".mpg", ".mpeg", ".webm", ".wmv", ".ogv", ".flv"])


def open_videos(
    path: str | os.PathLike[str],
    *,
    mode: str = "grey",
    every: int = 1,
    max_frames: int | None = None,
    max_bytes: int = 1 << 31,
    labels: Any = "folders",
    splits: Any = "folders",
    extensions: Iterable[str] | str | None = None,
    limits: ArchiveLimits | None = None,
) -> Collection:
    """Open the videos of a folder or an archive. Needs ``bagwise[video]``. Videos of one frame are fine.

    Frames come as they are stored: marks that tell players to rotate them are not followed.

    Parameters
    ----------
    path : path
        Folder, zip or tar archive, or one video.
    mode : {"grey", "rgb"}, default="grey"
        Arrays of shape (frames, height, width), or (frames, height, width, 3).
    every : int, default=1
        Take every such frame, beginning with the first.
    max_frames : int, default=None
        Stop after so many frames taken. None takes all.
    max_bytes : int, default=2 GiB
        A video whose frames would take more memory is refused.
    labels : "folders", None, mapping or path, default="folders"
        The class of a video is the name of its folder; or there are no labels; or they are given, see
        `Collection.with_labels`.
    splits : "folders", None, mapping or path, default="folders"
        The same for parts of the collection: outermost folders named train and test, or see `Collection.with_splits`.
    extensions : iterable of str or "*", default=None
        Endings of the files that are videos, by default the usual ones. ``"*"``: all files.
    limits : ArchiveLimits, default=None
        What archives may hold.

    Returns
    -------
    collection : Collection
        Its items' `load` gives arrays of uint8.
    """
    require("av", "video", "Reading videos")
    decoder = VideoDecoder(
        check_mode(mode),
        as_count(every, "every", least=1),
        None if max_frames is None else as_count(max_frames, "max_frames", least=1),
        as_count(max_bytes, "max_bytes", least=1),
    )
    endings = chosen_endings(extensions, VIDEO_ENDINGS)
    return collect(path, "videos", decoder, endings, labels=labels, splits=splits, limits=limits)


@dataclass(frozen=True)
class VideoDecoder:
    """Decodes the first video stream of a file to uint8."""

    mode: str
    every: int = 1
    max_frames: int | None = None
    max_bytes: int = 1 << 31

    def decode(self, content: Content) -> NDArray[np.uint8]:
        """Give the frames as one array."""
        import av

        with content.open() as file:
            if not file.read(1):
                raise BagwiseError("the file is empty")
            file.seek(0)
            try:
                with av.open(file, metadata_errors="replace") as container:
                    if not container.streams.video:
                        raise BagwiseError("it holds no video stream")
                    frames = self._frames(container)
            except av.error.FFmpegError as error:
                raise BagwiseError(f"it is damaged or not a video: {error.strerror or error}") from error
        if not frames:
            raise BagwiseError("it holds no frame")
        return np.stack(frames)

    def _frames(self, container: Any) -> list[NDArray[np.uint8]]:
        format = "gray" if self.mode == "grey" else "rgb24"
        frames: list[NDArray[np.uint8]] = []
        n_bytes = 0
        for number, frame in enumerate(container.decode(video=0)):
            if number % self.every:
                continue
            frames.append(frame.to_ndarray(format=format))
            if frames[-1].shape != frames[0].shape:
                raise BagwiseError(f"frame {number} has shape {frames[-1].shape}, the first has {frames[0].shape}")
            n_bytes += frames[-1].nbytes
            if n_bytes > self.max_bytes:
                raise BagwiseError(
                    f"its first {number + 1} frames take {readable_size(n_bytes)}, the limit max_bytes is "
                    f"{readable_size(self.max_bytes)}. Take fewer by every= or max_frames=, or pass a larger limit."
                )
            if len(frames) == self.max_frames:
                break
        return frames
