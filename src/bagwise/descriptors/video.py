"""`VideoHogHof`: histograms of gradients and of optical flow at space-time interest points of videos."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from math import ceil, prod, sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.arrays import unit_rows
from bagwise._utils.checks import as_numpy
from bagwise._utils.extras import require
from bagwise._utils.records import Integer, Number, Numbers, OneOf, parameter
from bagwise.descriptors.base import MOST_POINTS, Descriptor
from bagwise.descriptors.images import GREY_WEIGHTS
from bagwise.descriptors.registry import SIDE
from bagwise.errors import BagwiseError

__all__ = ["GreyFrames", "SpaceTimePoints", "VideoHogHof", "describe_points", "find_points"]


class GreyFrames:
    """Grey frames in [0, 1] of a video of shape (frames, height, width) or (frames, height, width, 3), block by block.

    Frames with a side longer than `max_side` are shrunk by area averaging (OpenCV, needs ``bagwise[app]``); `height`
    and `width` are the sizes after that.
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
            self._shrink = require("cv2", "app", "Shrinking frames")
            self.height = max(1, round(self.height * max_side / longest))
            self.width = max(1, round(self.width * max_side / longest))

    def block(self, start: int, stop: int) -> NDArray[np.float32]:
        """Convert frames ``start..stop`` to float32, shape (frames, height, width)."""
        part = self._video[start:stop]
        frames = part.astype(np.float32)
        if part.dtype.kind == "u":
            frames /= np.iinfo(part.dtype).max
        elif part.size and not (frames.min() >= 0 and frames.max() <= 1):  # NaN fails as well
            raise BagwiseError(
                f"A video of floats must have values in [0, 1]; frames {start} to {start + len(part) - 1} go from "
                f"{frames.min()} to {frames.max()}. Divide by the largest possible value, or convert to uint8."
            )
        if frames.ndim == 4:
            frames = frames @ np.array(GREY_WEIGHTS, dtype=np.float32)
        if self._shrink is not None and len(frames):
            size, area = (self.width, self.height), self._shrink.INTER_AREA
            frames = np.stack([self._shrink.resize(frame, size, interpolation=area) for frame in frames])
        return np.ascontiguousarray(frames)


# Gaussians are truncated at this many standard deviations.
_REACH = 3.0
# Products of derivatives are averaged over a window that is this much wider than that of the derivatives.
_WIDER = sqrt(2.0)
# The factor k of the corner measure, which penalises variation in one direction only; at most 1/27.
_ONE_WAY = 0.005
# Pixels in a block of frames, which takes about twelve float32 arrays.
_BLOCK = 1 << 21
_LEAST_FRAMES = 16


@dataclass(frozen=True)
class SpaceTimePoints:
    """Points in a video, in order of frame, row, column and scale."""

    places: NDArray[np.int64]  # frame, row and column, shape (n, 3)
    scales: NDArray[np.float64]  # σ in space (pixels) and τ in time (frames), shape (n, 2)
    strengths: NDArray[np.float64]  # corner measure

    def __len__(self) -> int:
        return len(self.places)

    def strongest(self, n: int) -> SpaceTimePoints:
        """Keep the n strongest points; of equal ones, the first."""
        kept = np.sort(np.argsort(-self.strengths, kind="stable")[:n])
        return SpaceTimePoints(self.places[kept], self.scales[kept], self.strengths[kept])


def find_points(
    frames: GreyFrames,
    sigmas: Sequence[float],
    taus: Sequence[float],
    *,
    threshold: float = 1e-10,
    block_frames: int | None = None,
) -> SpaceTimePoints:
    r"""Find the maxima of the space-time corner measure (the Harris detector in three dimensions).

    For each pair of scales σ (pixels), τ (frames), L is the video smoothed by a Gaussian, and

    .. math:: μ = G_{√2σ, √2τ} * (∇L ∇L^T), \quad ∇L = (σ L_x, σ L_y, τ L_t)
    .. math:: H = \det μ - k (\operatorname{tr} μ)^3

    Points are the maxima of H over their 26 neighbours, if H is above the threshold. Uniform motion has ``det μ = 0``:
    points are where motion begins, ends or turns. H is proportional to the sixth power of contrast, and k is 0.005.

    Gaussians are truncated at three standard deviations, and borders are repeated, so that motion in the first or last
    frame begins or ends there. Videos with fewer than 3 frames, rows or columns have no points. Time O(pixels x taps)
    for a pair of scales. Memory: about twelve float32 copies of a block of `block_frames` frames, on which the result
    does not depend.
    """
    parts = [_NONE]
    if min(frames.n_frames, frames.height, frames.width) >= 3:
        size = block_frames or max(_LEAST_FRAMES, _BLOCK // (frames.height * frames.width))
        for start in range(0, frames.n_frames, size):
            parts += _points_of_block(frames, start, min(start + size, frames.n_frames), sigmas, taus, threshold)
    places = np.concatenate([part.places for part in parts])
    scales = np.concatenate([part.scales for part in parts])
    order = np.lexsort((scales[:, 1], scales[:, 0], places[:, 2], places[:, 1], places[:, 0]))
    strengths = np.concatenate([part.strengths for part in parts])
    return SpaceTimePoints(places[order], scales[order], strengths[order])


_NONE = SpaceTimePoints(np.empty((0, 3), np.int64), np.empty((0, 2)), np.empty(0))


def _points_of_block(
    frames: GreyFrames,
    start: int,
    stop: int,
    sigmas: Sequence[float],
    taus: Sequence[float],
    threshold: float,
) -> list[SpaceTimePoints]:
    """Find the points in the frames ``start..stop``; frames beyond are read as far as filters reach."""
    from bagwise.descriptors import _video_kernels as kernels

    halo = max(len(_gaussian(tau)) // 2 + len(_gaussian(_WIDER * tau)) // 2 for tau in taus) + 2
    low = max(start - halo, 0)
    grey = frames.block(low, min(stop + halo, frames.n_frames))
    spare = np.empty_like(grey)
    moments = np.empty((6, *grey.shape), dtype=np.float32)
    measure = np.empty(grey.shape, dtype=np.float64)
    parts = []
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
            kernels.corner_measure(moments, _ONE_WAY, measure)
            places = kernels.local_maxima(measure, start - low, stop - low, threshold)
            strengths = measure[tuple(places.T)]
            places[:, 0] += low
            parts.append(SpaceTimePoints(places, np.tile([float(sigma), float(tau)], (len(places), 1)), strengths))
    return parts


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
    """Weights of a Gaussian at integers, truncated at three standard deviations, with sum 1."""
    reach = ceil(_REACH * deviation)
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / deviation) ** 2)
    return (weights / weights.sum()).astype(np.float32)


# Bins of the histograms; the fifth of optical flow is for pixels that do not move.
_BINS = {"hog": 4, "hof": 5}
_TIME_CELLS, _SIDE_CELLS = 2, 3
# Half the side of a patch as a multiple of σ, and half its duration as a multiple of τ.
_HALF_SIDE, _HALF_TIME = 9.0, 4.0


@dataclass(eq=False, repr=False)
class VideoHogHof(Descriptor):
    """Describe videos by histograms of gradients (HOG) and of optical flow (HOF) at space-time interest points.

    1. Frames are converted to grey, and shrunk if they are larger than `max_side`.
    2. Points are the maxima of a space-time corner measure. They lie where motion begins, ends or turns.
    3. A patch of 18 σ x 18 σ pixels and 8 τ frames around each point is divided into 3 x 3 cells in space and 2 in
       time. It is clipped at the borders of the video.
    4. HOG: in each cell, gradients vote with their norm for 4 orientations (0, 45, 90 and 135 degrees), divided
       linearly between the two nearest; 72 numbers. HOF: the optical flow to the next frame votes in the same way for
       4 directions (right, down, left, up); pixels that move less than `still` vote with 1 for a fifth bin; 90 numbers.
    5. Each of the two histograms is scaled to unit L2 norm.

    Numbers are in the order of time, row, column, orientation. Points are in the order of frames. Their positions are
    those in the frame; the time is not kept. Videos with fewer than 3 frames, frames with a side below 3 pixels, and
    videos without motion give an empty bag.

    Parameters
    ----------
    features : {"hog+hof", "hog", "hof"}, default="hog+hof"
        Which histograms: 162, 72 or 90 numbers per point.
    sigmas : sequence of float, default=(2.0, 4.0)
        Scales in space: standard deviations of Gaussians, in pixels.
    taus : sequence of float, default=(1.414, 2.0)
        Scales in time, in frames. Every pair of scales is used.
    threshold : float, default=1e-10
        Minimum of the corner measure, for brightness in [0, 1]. The measure is proportional to the sixth power of
        contrast.
    max_points : int, default=None
        Maximum number of points per video; the strongest are kept. None keeps all.
    max_side : int, default=320
        Frames with a longer side are shrunk to this many pixels. None does not shrink.
    still : float, default=0.4
        Pixels whose optical flow is shorter than this, in pixels per frame, count as not moving.
    n_jobs, verbose, cache
        As in `DenseSIFT`.

    Notes
    -----
    `transform` takes a collection of videos, or a list of arrays of shape (frames, height, width) or (frames, height,
    width, 3): uint8, uint16, bool, or floats in [0, 1].

    Optical flow is OpenCV's (Farnebäck); it and shrinking need ``bagwise[app]``. It is computed only for frames
    within the patch of a point. The last frame has none. Videos are processed in blocks of frames; memory beyond the
    video is about twelve float32 copies of a block.

    References
    ----------
    I. Laptev, M. Marszałek, C. Schmid, B. Rozenfeld, "Learning realistic human actions from movies", CVPR 2008.
    I. Laptev, "On space-time interest points", IJCV 64, 2005. G. Farnebäck, "Two-frame motion estimation based on
    polynomial expansion", SCIA 2003.

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

    features: str = parameter("hog+hof", OneOf("hog+hof", "hog", "hof"))
    _: KW_ONLY
    sigmas: Any = parameter((2.0, 4.0), Numbers())
    taus: Any = parameter((1.414, 2.0), Numbers())
    threshold: float = parameter(1e-10, Number())
    max_points: int | None = parameter(None, Integer(1, MOST_POINTS, optional=True))
    max_side: int | None = parameter(320, SIDE)
    still: float = parameter(0.4, Number())

    def _prepare(self) -> None:
        super()._prepare()
        if "hof" in self.features:
            require("cv2", "app", "Optical flow")

    def _describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[Any]]:
        frames = GreyFrames(content, self.max_side)
        points = find_points(
            frames, list(map(float, self.sigmas)), list(map(float, self.taus)), threshold=self.threshold
        )
        if self.max_points is not None:
            points = points.strongest(self.max_points)
        positions = (points.places[:, [2, 1]] + 0.5) / (frames.width, frames.height)
        return describe_points(frames, points, self.features, self.still), positions


def describe_points(
    frames: GreyFrames, points: SpaceTimePoints, features: str = "hog+hof", still: float = 0.4
) -> NDArray[np.float32]:
    """Compute the histograms around points, shape (n_points, 72, 90 or 162); see `VideoHogHof`."""
    from bagwise.descriptors import _video_kernels as kernels

    t, y, x = points.places.T
    sigma, tau = points.scales.T
    # patches, clipped at the borders of the video: first frame, the one after the last, and the edges of the cells
    first = np.maximum(np.ceil(t - _HALF_TIME * tau), 0)
    end = np.minimum(np.ceil(t + _HALF_TIME * tau), frames.n_frames)
    edges = np.linspace(-_HALF_SIDE, _HALF_SIDE, _SIDE_CELLS + 1) * sigma[:, None]
    rows = np.clip(np.ceil(y[:, None] + edges), 0, frames.height).astype(np.int64)
    columns = np.clip(np.ceil(x[:, None] + edges), 0, frames.width).astype(np.int64)
    sums, votes = {}, {}
    for part in features.split("+"):
        sums[part] = np.zeros((len(points), _TIME_CELLS, _SIDE_CELLS, _SIDE_CELLS, _BINS[part]))
        votes[part] = np.empty((_BINS[part], frames.height, frames.width), np.float32)
    frame_at = functools.lru_cache(maxsize=2)(lambda number: frames.block(number, number + 1)[0])
    for number in range(frames.n_frames):
        reached = np.flatnonzero((first <= number) & (number < end))
        if len(reached) == 0:
            continue
        vectors = {}
        if "hog" in sums:
            vectors["hog"] = _gradient(frame_at(number))
        if "hof" in sums and number + 1 < frames.n_frames:
            vectors["hof"] = _optical_flow(frame_at(number), frame_at(number + 1))
        time_cells = (number >= t[reached]).astype(np.int64)
        for part, (along_x, along_y) in vectors.items():
            kernels.orientation_votes(along_x, along_y, part == "hof", still, votes[part])
            kernels.add_cells(votes[part], reached, time_cells, rows, columns, sums[part])
    return np.concatenate(
        [unit_rows(part.reshape(len(points), prod(part.shape[1:]))) for part in sums.values()], axis=1
    )


def _gradient(frame: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Half the differences of the neighbours of each pixel along x and y, borders repeated."""
    padded = np.pad(frame, 1, mode="edge")
    return (padded[1:-1, 2:] - padded[1:-1, :-2]) / 2, (padded[2:, 1:-1] - padded[:-2, 1:-1]) / 2


def _optical_flow(frame: NDArray[np.float32], following: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
    cv2 = require("cv2", "app", "Optical flow")
    now, then = (np.rint(grey * 255).astype(np.uint8) for grey in (frame, following))
    flow = cv2.calcOpticalFlowFarneback(now, then, None, 0.5, 3, 15, 3, 5, 1.2, 0)
    return flow[..., 0], flow[..., 1]
