"""Space-time interest points: places in a video where brightness varies along both axes and time at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from bagwise.descriptors.video_frames import GreyFrames

__all__ = ["SpaceTimePoints", "find_points"]

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
