"""Compiled code for videos: smoothing, the space-time corner measure and its maxima, histograms of orientations."""

from math import atan2, floor, pi, sqrt

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def smooth_middle(volume, weights, out):
    """``out[i, j] = Σ_k weights[k] * volume[i, j + k - r]`` with r = len(weights) // 2, borders repeated.

    The same as ``scipy.ndimage.correlate1d(volume, weights, axis=1, mode="nearest")``. Cost O(taps) an entry. Sums are
    over k in order, so an entry does not depend on how much of the volume is there beyond its reach.
    """
    reach = len(weights) // 2
    last = volume.shape[1] - 1
    for i in range(volume.shape[0]):
        for j in range(volume.shape[1]):
            row = out[i, j]
            row[:] = 0.0
            for k in range(len(weights)):
                source = volume[i, min(max(j + k - reach, 0), last)]
                weight = weights[k]
                for x in range(row.shape[0]):
                    row[x] += weight * source[x]


@njit(cache=True, nogil=True)
def smooth_last(volume, weights, out):
    """`smooth_middle` along the last axis of a matrix: ``out[i, x] = Σ_k weights[k] * volume[i, x + k - r]``."""
    reach = len(weights) // 2
    width = volume.shape[1]
    padded = np.empty(width + 2 * reach, volume.dtype)
    for i in range(volume.shape[0]):
        padded[:reach] = volume[i, 0]
        padded[reach : reach + width] = volume[i]
        padded[reach + width :] = volume[i, width - 1]
        row = out[i]
        row[:] = 0.0
        for k in range(len(weights)):
            weight = weights[k]
            source = padded[k : k + width]
            for x in range(width):
                row[x] += weight * source[x]


@njit(cache=True, nogil=True)
def gradient_products(volume, in_space, in_time, out):
    """Products of the derivatives of a (time, row, column) volume: xx, xy, xt, yy, yt and tt.

    Derivatives are half the differences of the two neighbours, borders repeated, times `in_space` for x and y and times
    `in_time` for t. Cost O(1) an entry.
    """
    n, height, width = volume.shape
    in_space, in_time = np.float32(in_space / 2), np.float32(in_time / 2)
    for t in range(n):
        before, after = volume[max(t - 1, 0)], volume[min(t + 1, n - 1)]
        for y in range(height):
            above, below = volume[t, max(y - 1, 0)], volume[t, min(y + 1, height - 1)]
            for x in range(width):
                along_x = (volume[t, y, min(x + 1, width - 1)] - volume[t, y, max(x - 1, 0)]) * in_space
                along_y = (below[x] - above[x]) * in_space
                along_t = (after[y, x] - before[y, x]) * in_time
                out[0, t, y, x] = along_x * along_x
                out[1, t, y, x] = along_x * along_y
                out[2, t, y, x] = along_x * along_t
                out[3, t, y, x] = along_y * along_y
                out[4, t, y, x] = along_y * along_t
                out[5, t, y, x] = along_t * along_t


@njit(cache=True, nogil=True)
def corner_measure(moments, k, out):
    """``det(μ) - k trace(μ)³`` of the symmetric 3 x 3 matrices whose entries are xx, xy, xt, yy, yt, tt."""
    for t in range(out.shape[0]):
        for y in range(out.shape[1]):
            for x in range(out.shape[2]):
                xx, xy, xt = np.float64(moments[0, t, y, x]), np.float64(moments[1, t, y, x]), moments[2, t, y, x]
                yy, yt, tt = np.float64(moments[3, t, y, x]), np.float64(moments[4, t, y, x]), moments[5, t, y, x]
                det = xx * (yy * tt - yt * yt) - xy * (xy * tt - yt * xt) + xt * (xy * yt - yy * xt)
                trace = xx + yy + tt
                out[t, y, x] = det - k * trace * trace * trace


@njit(cache=True, nogil=True)
def _is_maximum(volume, t, y, x):
    """Whether an entry is larger than its 26 neighbours; of equal ones the first in memory counts as larger."""
    value = volume[t, y, x]
    for dt in range(-1, 2):
        for dy in range(-1, 2):
            for dx in range(-1, 2):
                other = volume[t + dt, y + dy, x + dx]
                earlier = dt < 0 or (dt == 0 and (dy < 0 or (dy == 0 and dx < 0)))
                if other > value or (earlier and other == value):
                    return False
    return True


@njit(cache=True, nogil=True)
def local_maxima(volume, first, last, threshold):
    """List (t, y, x) of the maxima above a threshold with t in ``first..last``, away from the volume's borders."""
    n = 0
    maxima = np.empty((0, 3), np.int64)
    for fill in (False, True):  # count, then write
        if fill:
            maxima = np.empty((n, 3), np.int64)
        n = 0
        for t in range(max(first, 1), min(last, volume.shape[0] - 1)):
            for y in range(1, volume.shape[1] - 1):
                for x in range(1, volume.shape[2] - 1):
                    if volume[t, y, x] > threshold and _is_maximum(volume, t, y, x):
                        if fill:
                            maxima[n, 0], maxima[n, 1], maxima[n, 2] = t, y, x
                        n += 1
    return maxima


@njit(cache=True, nogil=True)
def orientation_votes(along_x, along_y, signed, still, votes):
    """Divide the length of each pixel's vector between the two nearest of 4 orientations, linearly in the angle.

    Bin b is at the angle ``b * π / 2`` if `signed` (right, down, left, up) and ``b * π / 4`` otherwise. If there is a
    fifth bin, pixels whose vectors are shorter than `still` vote with 1 for it and for no other. `votes` has shape
    (bins, height, width). Cost O(1) a pixel.
    """
    period = 2 * pi if signed else pi
    votes[:] = 0.0
    for y in range(along_x.shape[0]):
        for x in range(along_x.shape[1]):
            u, v = np.float64(along_x[y, x]), np.float64(along_y[y, x])
            length = sqrt(u * u + v * v)
            if votes.shape[0] == 5 and length < still:
                votes[4, y, x] = 1.0
                continue
            angle = atan2(v, u) / period * 4
            lower = floor(angle)
            share = angle - lower
            b = int(lower) % 4
            votes[b, y, x] += length * (1 - share)
            votes[(b + 1) % 4, y, x] += length * share


@njit(cache=True, nogil=True)
def add_cells(votes, points, time_cells, row_edges, column_edges, histograms):
    """Add the votes of one frame to the 3 x 3 cells of some points.

    ``histograms[p, c, i, j, b] += votes[b, row_edges[p, i]:row_edges[p, i + 1], column_edges[p, j]:...].sum()`` for
    each p of `points` and its time cell c. Cost O(pixels x bins) a point.
    """
    for n in range(len(points)):
        p = points[n]
        for i in range(3):
            for j in range(3):
                for b in range(votes.shape[0]):
                    total = 0.0
                    for y in range(row_edges[p, i], row_edges[p, i + 1]):
                        for x in range(column_edges[p, j], column_edges[p, j + 1]):
                            total += votes[b, y, x]
                    histograms[p, time_cells[n], i, j, b] += total
