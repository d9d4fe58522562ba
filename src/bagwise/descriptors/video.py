"""Frames of a video as grey images of a bounded size, some at a time."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import as_numpy
from bagwise._utils.extras import require
from bagwise.descriptors.base import Descriptor, ItemTransformer, unit_rows
from bagwise.descriptors.registry import parameter_constraints
from bagwise.descriptors.sift import checked_scales
from bagwise.errors import BagwiseError

__all__ = ["GreyFrames", "SpaceTimePoints", "VideoHogHof", "describe_points", "find_points"]


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


# Gaussians are cut at this many deviations.
_REACH = 3.0
# The window that products of derivatives are averaged over is this much wider than that of the derivatives.
_WIDER = sqrt(2.0)
# Frames are taken in blocks of about this many pixels, in about twelve arrays of four bytes each.
_BLOCK = 1 << 21
_LEAST_FRAMES = 16


@dataclass(frozen=True)
class SpaceTimePoints:
    """Points in a video, in order of frame, row, column and scale.

    Attributes
    ----------
    places : ndarray of int64, shape (n, 3)
        Frame, row and column.
    scales : ndarray of float64, shape (n, 2)
        Deviations in space (pixels) and in time (frames) of the Gaussian the point was found with.
    strengths : ndarray of float64, shape (n,)
        Corner measure, above the threshold.
    """

    places: NDArray[np.int64]
    scales: NDArray[np.float64]
    strengths: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.places)

    def strongest(self, n: int) -> SpaceTimePoints:
        """Keep the n strongest, of equal ones those that come first."""
        kept = np.sort(np.argsort(-self.strengths, kind="stable")[:n])
        return SpaceTimePoints(self.places[kept], self.scales[kept], self.strengths[kept])


def find_points(
    frames: GreyFrames,
    sigmas: Sequence[float],
    taus: Sequence[float],
    *,
    k: float = 0.005,
    threshold: float = 1e-10,
    block_frames: int | None = None,
) -> SpaceTimePoints:
    r"""Find the maxima of the space-time corner measure (Harris in three dimensions).

    For each pair of scales σ, τ the video is smoothed by a Gaussian, L, and the products of its derivatives by a wider
    one,

    .. math:: μ = G_{√2σ, √2τ} * (∇L ∇L^T), \quad ∇L = (σ L_x, σ L_y, τ L_t)
    .. math:: H = \det μ - k (\operatorname{tr} μ)^3

    and the points are the maxima of H over their 26 neighbours, where it is above the threshold. What moves evenly has
    ``det μ = 0``, however fast and textured it is: points are where motion begins, ends or turns.

    Parameters
    ----------
    frames : GreyFrames
        With fewer than 3 frames, rows or columns there are no points.
    sigmas, taus : sequence of float
        Scales in space (pixels) and time (frames); every pair is used.
    k : float, default=0.005
        How much H counts against places that vary in one direction only; at 1/27 nothing is left.
    threshold : float, default=1e-10
        For brightness in [0, 1]; H goes with its sixth power.
    block_frames : int, default=None
        Frames that are worked on at a time. The result does not depend on it.

    Returns
    -------
    points : SpaceTimePoints

    Notes
    -----
    Gaussians are cut at three deviations. Beyond its borders a video goes on as at the border, so that what moves in
    the first or last frame begins or ends there. Time is O(pixels x taps) a pair of scales; memory is that of about
    twelve float32 copies of one block of frames.

    References
    ----------
    I. Laptev, "On space-time interest points", IJCV 64, 2005.
    """
    found = [_NONE]
    if min(frames.n_frames, frames.height, frames.width) >= 3:
        size = block_frames or max(_LEAST_FRAMES, _BLOCK // (frames.height * frames.width))
        for start in range(0, frames.n_frames, size):
            found += _points_of_block(frames, start, min(start + size, frames.n_frames), sigmas, taus, k, threshold)
    places = np.concatenate([part.places for part in found])
    scales = np.concatenate([part.scales for part in found])
    order = np.lexsort((scales[:, 1], scales[:, 0], places[:, 2], places[:, 1], places[:, 0]))
    strengths = np.concatenate([part.strengths for part in found])
    return SpaceTimePoints(places[order], scales[order], strengths[order])


_NONE = SpaceTimePoints(np.empty((0, 3), np.int64), np.empty((0, 2)), np.empty(0))


def _points_of_block(
    frames: GreyFrames,
    start: int,
    stop: int,
    sigmas: Sequence[float],
    taus: Sequence[float],
    k: float,
    threshold: float,
) -> list[SpaceTimePoints]:
    """Find the points of the frames ``start..stop``, looking as far beyond them as any filter reaches."""
    from bagwise.descriptors import _video_kernels as kernels

    halo = max(len(_gaussian(tau)) // 2 + len(_gaussian(_WIDER * tau)) // 2 for tau in taus) + 2
    low = max(start - halo, 0)
    grey = frames.block(low, min(stop + halo, frames.n_frames))
    spare = np.empty_like(grey)
    moments = np.empty((6, *grey.shape), dtype=np.float32)
    measure = np.empty(grey.shape, dtype=np.float64)
    found = []
    for sigma in sigmas:
        in_space = grey.copy()
        _smooth_space(in_space, sigma, spare)
        for tau in taus:
            smooth = in_space.copy()
            _smooth_time(smooth, tau, spare)
            kernels.gradient_products(smooth, sigma, tau, moments)
            for moment in moments:
                _smooth_space(moment, _WIDER * sigma, spare)
                _smooth_time(moment, _WIDER * tau, spare)
            kernels.corner_measure(moments, k, measure)
            places = kernels.local_maxima(measure, start - low, stop - low, threshold)
            strengths = measure[tuple(places.T)]
            places[:, 0] += low
            found.append(SpaceTimePoints(places, np.tile([float(sigma), float(tau)], (len(places), 1)), strengths))
    return found


def _smooth_space(volume: NDArray[np.float32], sigma: float, spare: NDArray[np.float32]) -> None:
    """Smooth each frame, in place."""
    from bagwise.descriptors import _video_kernels as kernels

    weights = _gaussian(sigma)
    kernels.smooth_middle(volume, weights, spare)
    flat = (-1, volume.shape[2])
    kernels.smooth_last(spare.reshape(flat), weights, volume.reshape(flat))


def _smooth_time(volume: NDArray[np.float32], tau: float, spare: NDArray[np.float32]) -> None:
    """Smooth each pixel over time, in place."""
    from bagwise.descriptors import _video_kernels as kernels

    flat = (1, len(volume), -1)
    kernels.smooth_middle(volume.reshape(flat), _gaussian(tau), spare.reshape(flat))
    volume[:] = spare


def _gaussian(deviation: float) -> NDArray[np.float32]:
    """Weights of a Gaussian at whole numbers, cut at three deviations, with sum 1."""
    reach = ceil(_REACH * deviation)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    return (weights / weights.sum()).astype(np.float32)


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
       (`bagwise.descriptors.video.find_points`).
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
        **parameter_constraints("VideoHogHof"),
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
