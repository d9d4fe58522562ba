"""`VideoHogHof`: histograms of gradients and of motion at space-time interest points."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from numbers import Integral, Real
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from bagwise._utils.extras import require
from bagwise.descriptors.base import Descriptor, ItemTransformer
from bagwise.descriptors.dense_sift import checked_scales
from bagwise.descriptors.rows import unit_rows
from bagwise.descriptors.space_time_points import SpaceTimePoints, find_points
from bagwise.descriptors.video_frames import GreyFrames

__all__ = ["VideoHogHof", "describe_points"]

# Which histograms there are, with their numbers of orientations; the fifth of motion is for what does not move.
_PARTS = {"hog": ("hog",), "hof": ("hof",), "hog+hof": ("hog", "hof")}
_BINS = {"hog": 4, "hof": 5}
_TIME_CELLS, _SIDE_CELLS = 2, 3
# Half the side of a patch in deviations in space, and half its duration in deviations in time.
_HALF_SIDE, _HALF_TIME = 9.0, 4.0


class VideoHogHof(Descriptor):
    """Describe videos by histograms of gradients (HOG) and of optical flow (HOF) at space-time interest points.

    1. Frames are made grey, and shrunk where they are larger than `max_side`.
    2. Points are found where brightness varies along both axes and time at once: where motion begins, ends or turns
       (`bagwise.descriptors.space_time_points.find_points`).
    3. Around each point, a patch of 18 σ x 18 σ pixels and 8 τ frames is divided into 3 x 3 cells in space and 2 in
       time; what reaches beyond the video is cut off.
    4. HOG: in each cell, gradients vote with their length for 4 orientations (0, 45, 90 and 135 degrees), linearly
       shared between the two nearest; 72 numbers. HOF: the optical flow to the next frame votes in the same way for 4
       directions (right, down, left, up); pixels that move less than `still` vote with 1 for a fifth bin; 90 numbers.
    5. Each of the two is scaled to length 1.

    Numbers are in the order of time, row, column, orientation. Points are in the order of frames. Their positions are
    those in the frame; the time is not kept. Videos with fewer than 3 frames, or frames with a side below 3 pixels,
    give an empty bag, and so do videos in which nothing happens.

    Parameters
    ----------
    features : {"hog+hof", "hog", "hof"}, default="hog+hof"
        Which histograms: 162, 72 or 90 numbers a point.
    sigmas : sequence of float, default=(2.0, 4.0)
        Scales in space: deviations of Gaussians, in pixels.
    taus : sequence of float, default=(1.414, 2.0)
        Scales in time, in frames. Every pair of scales is used.
    threshold : float, default=1e-10
        Least corner measure of a point, for brightness in [0, 1]. It goes with the sixth power of contrast.
    max_points : int, default=None
        Keep only so many points of a video, the strongest. None keeps all.
    max_side : int, default=320
        Frames with a longer side, in pixels, are shrunk to it. None leaves them as they are.
    still : float, default=0.4
        Pixels that move less than this from frame to frame, in pixels, do not move.
    n_jobs : int, default=None
        Threads. None is one; -1 all cores. Results do not depend on it.
    verbose : int, default=0
        If not 0, a bar shows the progress.
    cache : path, default=None
        Folder in which descriptors are kept for the next run. They are found again by the content of videos and by the
        parameters.

    Notes
    -----
    `transform` takes a collection of videos, or a list of arrays of shape (frames, height, width) or (frames, height,
    width, 3): uint8, uint16, bool, or floats in [0, 1].

    Optical flow is OpenCV's (Farnebäck); it and the shrinking of frames need ``bagwise[image]``. It is computed only
    for frames within the reach of a point. The last frame has none.

    Videos are converted in blocks of frames; results do not depend on their size. Memory beyond the video is about
    twelve float32 copies of a block.

    References
    ----------
    I. Laptev, M. Marszałek, C. Schmid, B. Rozenfeld, "Learning realistic human actions from movies", CVPR 2008.
    G. Farnebäck, "Two-frame motion estimation based on polynomial expansion", SCIA 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import VideoHogHof
    >>> video = np.full((30, 48, 64), 50, np.uint8)              # a square moves to the right and back
    >>> for t, frame in enumerate(video):
    ...     x = 30 - abs(15 - t)
    ...     frame[18:30, x : x + 12] = 200
    >>> bags = VideoHogHof(sigmas=[2], taus=[2]).transform([video, video[:1]])
    >>> bags.lengths > 0, bags.n_features
    (array([ True, False]), 162)
    """

    modality: ClassVar[str] = "videos"
    _parameter_constraints: ClassVar[dict] = {
        **ItemTransformer._parameter_constraints,
        "features": [StrOptions(set(_PARTS))],
        "sigmas": ["array-like"],
        "taus": ["array-like"],
        "threshold": [Interval(Real, 0, None, closed="left")],
        "max_points": [Interval(Integral, 1, None, closed="left"), None],
        "max_side": [Interval(Integral, 3, None, closed="left"), None],
        "still": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        features: str = "hog+hof",
        *,
        sigmas: Any = (2.0, 4.0),
        taus: Any = (1.414, 2.0),
        threshold: float = 1e-10,
        max_points: int | None = None,
        max_side: int | None = 320,
        still: float = 0.4,
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.features = features
        self.sigmas = sigmas
        self.taus = taus
        self.threshold = threshold
        self.max_points = max_points
        self.max_side = max_side
        self.still = still
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def _check_parameters(self) -> None:
        super()._check_parameters()
        checked_scales(self.sigmas, "sigmas")
        checked_scales(self.taus, "taus")
        if "hof" in self.features:
            require("cv2", "image", "Optical flow")

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        frames = GreyFrames(content, self.max_side)
        sigmas, taus = checked_scales(self.sigmas, "sigmas"), checked_scales(self.taus, "taus")
        points = find_points(frames, sigmas, taus, threshold=self.threshold)
        if self.max_points is not None:
            points = points.strongest(self.max_points)
        return describe_points(frames, points, self.features, self.still), _positions(frames, points)


def describe_points(
    frames: GreyFrames, points: SpaceTimePoints, features: str = "hog+hof", still: float = 0.4
) -> NDArray[np.float32]:
    """Give the histograms around points of a video; see `VideoHogHof`.

    Parameters
    ----------
    frames : GreyFrames
    points : SpaceTimePoints
    features : {"hog+hof", "hog", "hof"}, default="hog+hof"
    still : float, default=0.4
        Pixels that move less than this do not move.

    Returns
    -------
    values : ndarray of float32, shape (n points, 72, 90 or 162)
        Each part of length 1, or 0 where nothing was counted.
    """
    from bagwise.descriptors import _video_kernels as kernels

    patches = _Patches(frames, points)
    sums, votes = {}, {}
    for part in _PARTS[features]:
        sums[part] = np.zeros((len(points), _TIME_CELLS * _SIDE_CELLS**2 * _BINS[part]))
        votes[part] = np.empty((_BINS[part], frames.height, frames.width), np.float32)
    for t, reached, vectors in _vectors(frames, patches, _PARTS[features]):
        time_cells = (t >= points.places[reached, 0]).astype(np.int64)
        for part, (along_x, along_y) in vectors.items():
            kernels.orientation_votes(along_x, along_y, part == "hof", still, votes[part])
            cells = sums[part].reshape(len(points), _TIME_CELLS, _SIDE_CELLS, _SIDE_CELLS, _BINS[part])
            kernels.add_cells(votes[part], reached, time_cells, patches.rows, patches.columns, cells)
    return np.concatenate([unit_rows(part) for part in sums.values()], axis=1)


class _Patches:
    """Where the cells of patches lie, cut at the borders of the video.

    Attributes
    ----------
    firsts, ends : ndarray of int64, shape (n,)
        First frame, and the one behind the last.
    rows, columns : ndarray of int64, shape (n, 4)
        Where the three cells of a side begin and end.
    """

    def __init__(self, frames: GreyFrames, points: SpaceTimePoints) -> None:
        t, y, x = points.places.T
        sigma, tau = points.scales.T
        self.firsts = np.maximum(np.ceil(t - _HALF_TIME * tau), 0).astype(np.int64)
        self.ends = np.minimum(np.ceil(t + _HALF_TIME * tau), frames.n_frames).astype(np.int64)
        edges = np.linspace(-_HALF_SIDE, _HALF_SIDE, _SIDE_CELLS + 1) * sigma[:, None]
        self.rows = np.clip(np.ceil(y[:, None] + edges), 0, frames.height).astype(np.int64)
        self.columns = np.clip(np.ceil(x[:, None] + edges), 0, frames.width).astype(np.int64)


def _vectors(
    frames: GreyFrames, patches: _Patches, parts: tuple[str, ...]
) -> Iterator[tuple[int, NDArray[np.int64], dict[str, tuple[NDArray[np.float32], NDArray[np.float32]]]]]:
    """Go through the frames that some point reaches: number, these points, gradients and flow of the frame."""
    from bagwise.descriptors import _video_kernels as kernels

    cv2 = require("cv2", "image", "Optical flow") if "hof" in parts else None
    frame_at = functools.lru_cache(maxsize=2)(lambda t: frames.block(t, t + 1)[0])
    for t in range(frames.n_frames):
        reached = np.flatnonzero((patches.firsts <= t) & (t < patches.ends))
        if len(reached) == 0:
            continue
        vectors = {}
        if "hog" in parts:
            vectors["hog"] = np.empty_like(frame_at(t)), np.empty_like(frame_at(t))
            kernels.differences(frame_at(t), *vectors["hog"])
        if cv2 is not None and t + 1 < frames.n_frames:
            now, then = (np.rint(frame_at(number) * 255).astype(np.uint8) for number in (t, t + 1))
            flow = cv2.calcOpticalFlowFarneback(now, then, None, 0.5, 3, 15, 3, 5, 1.2, 0)
            vectors["hof"] = flow[..., 0], flow[..., 1]
        yield t, reached, vectors


def _positions(frames: GreyFrames, points: SpaceTimePoints) -> NDArray[np.float32]:
    """Middles of the points' pixels, (x, y) in the unit square."""
    x, y = points.places[:, 2], points.places[:, 1]
    return np.stack([(x + 0.5) / frames.width, (y + 0.5) / frames.height], axis=1).astype(np.float32)
