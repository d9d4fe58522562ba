"""Compiled code for descriptors on a grid: SIFT (smoothing, orientations of gradients, sums over cells), colours."""

import numpy as np
from numba import njit

N_ORIENTATIONS = 8
N_CELLS = 4  # in each direction
N_NUMBERS = N_CELLS * N_CELLS * N_ORIENTATIONS

_EIGHTH = np.float32(N_ORIENTATIONS / (2 * np.pi))
_ZERO, _ONE = np.float32(0), np.float32(1)
_TWO, _FOUR, _EIGHT = np.float32(2), np.float32(4), np.float32(8)
# The arctangent on [0, 1] to 2e-8 by a polynomial in the square (Abramowitz and Stegun, 4.4.49): loops over it can be
# vectorised, those over a library call cannot.
_T0, _T1, _T2 = np.float32(1.0), np.float32(-0.3333314528), np.float32(0.1999355085)
_T3, _T4, _T5 = np.float32(-0.1420889944), np.float32(0.1065626393), np.float32(-0.0752896400)
_T6, _T7, _T8 = np.float32(0.0429096138), np.float32(-0.0161657367), np.float32(0.0028662257)


@njit(cache=True, nogil=True)
def _mirrored(i, n):
    """The pixel that stands for pixel i of a row of n, mirrored at the middle of its first and last pixel."""
    if n == 1:
        return 0
    i = abs(i) % (2 * n - 2)
    return i if i < n else 2 * n - 2 - i


@njit(cache=True, nogil=True)
def smooth(image, weights, out):
    """``out = scipy.ndimage.correlate1d(...)`` over columns, then rows, with ``mode="mirror"`` and the symmetric filter
    whose middle and right half is `weights`. Cost O(H W len(weights)).
    """
    height, width = image.shape
    radius = weights.shape[0] - 1
    line = np.empty(width + 2 * radius, np.float32)
    for y in range(height):
        inner = line[radius : radius + width]
        for x in range(width):
            inner[x] = weights[0] * image[y, x]
        for k in range(1, radius + 1):
            above, below = image[_mirrored(y - k, height)], image[_mirrored(y + k, height)]
            weight = weights[k]
            for x in range(width):
                inner[x] += weight * (above[x] + below[x])
        for k in range(radius):
            line[radius - 1 - k] = inner[_mirrored(-1 - k, width)]
            line[radius + width + k] = inner[_mirrored(width + k, width)]
        row = out[y]
        for x in range(width):
            row[x] = weights[0] * inner[x]
        for k in range(1, radius + 1):
            left, right = line[radius - k : radius - k + width], line[radius + k : radius + k + width]
            weight = weights[k]
            for x in range(width):
                row[x] += weight * (left[x] + right[x])


@njit(cache=True, nogil=True)
def _polar(row, above, below, norms, turns):
    """Norm and direction of the gradient along a row; directions in eighths of a turn, 0 to 8, from right to up."""
    for x in range(1, row.shape[0] - 1):
        right = row[x + 1] - row[x - 1]
        up = above[x] - below[x]
        across, along = abs(right), abs(up)
        small = along if along < across else across
        large = across if along < across else along
        slope = small / (large if large > _ZERO else _ONE)
        s = slope * slope
        angle = slope * (
            _T0 + s * (_T1 + s * (_T2 + s * (_T3 + s * (_T4 + s * (_T5 + s * (_T6 + s * (_T7 + s * _T8)))))))
        )
        turn = angle * _EIGHTH
        turn = turn if along < across else _TWO - turn
        turn = turn if right >= _ZERO else _FOUR - turn
        turn = turn if up >= _ZERO else _EIGHT - turn
        turns[x] = turn
        norms[x] = np.sqrt(right * right + up * up)


@njit(cache=True, nogil=True)
def orient(image, planes):
    """Divide each pixel's gradient norm between the two nearest of eight directions, into ``planes[y, x, :]``.

    Direction o is ``o / 8`` of a turn from right to up. The gradient is ``image[y, x + 1] - image[y, x - 1]`` to the
    right and ``image[y - 1, x] - image[y + 1, x]`` up; pixels on the border of the image have none. Cost O(H W).
    """
    height, width = image.shape
    planes[:] = _ZERO
    norms, turns = np.empty(width, np.float32), np.empty(width, np.float32)
    for y in range(1, height - 1):
        _polar(image[y], image[y - 1], image[y + 1], norms, turns)
        for x in range(1, width - 1):
            whole = np.int64(turns[x])
            share = norms[x] * (turns[x] - np.float32(whole))
            planes[y, x, whole & 7] = norms[x] - share
            planes[y, x, (whole + 1) & 7] = share


@njit(cache=True, nogil=True)
def _sum_rows(planes, middle, first, weights, out):
    """``out = Σ_t weights[t] planes[middle + first + t]`` over the rows that exist."""
    height = planes.shape[0]
    out[:] = _ZERO
    for t in range(weights.shape[0]):
        y = middle + first + t
        if 0 <= y < height:
            weight, row = weights[t], planes[y]
            for k in range(out.shape[0]):
                out[k] += weight * row[k]


@njit(cache=True, nogil=True)
def describe_grid(planes, rows, columns, firsts, weights, out):
    """Sum oriented gradients over the 4 x 4 cells around each point of a grid.

    ``out[i * len(columns) + j]`` is, for cells a (down) and b (right) and direction o in this order,
    ``Σ_s Σ_t weights[a, s] weights[b, t] planes[rows[i] + firsts[a] + s, columns[j] + firsts[b] + t, o]``, pixels
    outside the image counting as zero. Cost O(len(rows) taps (W + 4 len(columns))), times 32.
    """
    height, width, _ = planes.shape
    flat = planes.reshape(height, width * N_ORIENTATIONS)
    line = np.empty(width * N_ORIENTATIONS, np.float32)
    n_taps = weights.shape[1]
    for i in range(rows.shape[0]):
        for a in range(N_CELLS):
            _sum_rows(flat, rows[i], firsts[a], weights[a], line)
            for j in range(columns.shape[0]):
                vector = out[i * columns.shape[0] + j]
                for b in range(N_CELLS):
                    start = columns[j] + firsts[b]
                    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = _ZERO
                    for t in range(max(0, -start), min(n_taps, width - start)):
                        weight = weights[b, t]
                        p = (start + t) * N_ORIENTATIONS
                        s0 += weight * line[p]
                        s1 += weight * line[p + 1]
                        s2 += weight * line[p + 2]
                        s3 += weight * line[p + 3]
                        s4 += weight * line[p + 4]
                        s5 += weight * line[p + 5]
                        s6 += weight * line[p + 6]
                        s7 += weight * line[p + 7]
                    q = (a * N_CELLS + b) * N_ORIENTATIONS
                    vector[q], vector[q + 1], vector[q + 2], vector[q + 3] = s0, s1, s2, s3
                    vector[q + 4], vector[q + 5], vector[q + 6], vector[q + 7] = s4, s5, s6, s7


@njit(cache=True, nogil=True)
def normalize(vectors, clip, flat):
    """Scale each row to length 1, cut its numbers at `clip`, scale to length 1 again; in place.

    Rows shorter than `flat` become zero. Cost O(size).
    """
    for i in range(vectors.shape[0]):
        vector = vectors[i]
        total = 0.0
        for k in range(vector.shape[0]):
            total += np.float64(vector[k]) * np.float64(vector[k])
        if np.sqrt(total) < flat:
            vector[:] = _ZERO
            continue
        largest = np.float32(clip * np.sqrt(total))
        total = 0.0
        for k in range(vector.shape[0]):
            vector[k] = min(vector[k], largest)
            total += np.float64(vector[k]) * np.float64(vector[k])
        factor = np.float32(1.0 / np.sqrt(total))
        for k in range(vector.shape[0]):
            vector[k] *= factor


N_DIRECTIONS = 18


@njit(cache=True, nogil=True)
def gradient_histograms(image, top, left, cell, out):
    """Histograms of 18 gradient directions in the cells of a grid that begins at pixel (top, left).

    Each pixel's gradient norm is divided between the two nearest directions and the up to four nearest cells, linearly:
    ``out[i, j, o]`` is the sum over pixels of ``norm(p) tri(y_p - i) tri(x_p - j) tri(direction(p) - o)``, where
    ``tri(t) = max(0, 1 - |t|)``, x_p and y_p count cells from the middle of the first, and directions go around, from
    right to up. Pixels on the border of the image have no gradient. Cost O(H W).
    """
    height, width = image.shape
    n_rows, n_columns, _ = out.shape
    out[:] = 0.0
    for y in range(1, height - 1):
        across_y = (y + 0.5 - top) / cell - 0.5
        i = np.int64(np.floor(across_y))
        below = across_y - i
        for x in range(1, width - 1):
            right = np.float64(image[y, x + 1]) - np.float64(image[y, x - 1])
            up = np.float64(image[y - 1, x]) - np.float64(image[y + 1, x])
            norm = np.sqrt(right * right + up * up)
            if norm == 0.0:
                continue
            turn = np.arctan2(up, right) * (N_DIRECTIONS / (2 * np.pi)) + N_DIRECTIONS
            whole = np.int64(turn)
            share = turn - whole
            first, second = whole % N_DIRECTIONS, (whole + 1) % N_DIRECTIONS
            across_x = (x + 0.5 - left) / cell - 0.5
            j = np.int64(np.floor(across_x))
            beside = across_x - j
            for a in range(2):
                if 0 <= i + a < n_rows:
                    by_row = norm * (below if a else 1.0 - below)
                    for b in range(2):
                        if 0 <= j + b < n_columns:
                            weight = by_row * (beside if b else 1.0 - beside)
                            out[i + a, j + b, first] += weight * (1.0 - share)
                            out[i + a, j + b, second] += weight * share


@njit(cache=True, nogil=True)
def ring_codes(image, downs, rights, radius, codes):
    """``codes[y, x] = Σ_k 2^k [image[v + downs[k], u + rights[k]] >= image[v, u]]``; v = y + radius, u = x + radius.

    `codes` is of uint16 and smaller than the image by `radius` at every side. Cost O(H W len(downs)).
    """
    height, width = codes.shape
    for y in range(height):
        row = codes[y]
        row[:] = 0
        middle = image[y + radius, radius : radius + width]
        for k in range(downs.shape[0]):
            first = radius + rights[k]
            neighbour = image[y + radius + downs[k], first : first + width]
            bit = np.uint16(1 << k)
            for x in range(width):
                row[x] |= bit if neighbour[x] >= middle[x] else np.uint16(0)


@njit(cache=True, nogil=True)
def count_in_cells(codes, bins, rows, columns, cell_height, cell_width, out):
    """``out[i, j, b]``: how many codes with ``bins[code] == b`` are in the cell that begins at (rows[i], columns[j]).

    Parts of cells where there are no codes are left out, as are codes whose bin is negative. Cost O(pixels in cells).
    """
    height, width = codes.shape
    out[:] = 0
    for i in range(rows.shape[0]):
        for j in range(columns.shape[0]):
            counts = out[i, j]
            for y in range(max(rows[i], 0), min(rows[i] + cell_height, height)):
                for x in range(max(columns[j], 0), min(columns[j] + cell_width, width)):
                    b = bins[codes[y, x]]
                    if b >= 0:
                        counts[b] += 1


@njit(cache=True, nogil=True)
def describe_cells(pixels, rows, columns, cell, out):
    """``out[k] = [*patch.mean(axis=(0, 1)), *patch.std(axis=(0, 1))]``, where patch k of side `cell` begins at pixel k
    of the grid, taken row by row. Cost O(n cell²).
    """
    n_planes = pixels.shape[2]
    n = cell * cell
    k = 0
    for y in rows:
        for x in columns:
            for c in range(n_planes):
                # sums relative to the first pixel, so that flat cells have no deviation and digits are kept
                first = np.float64(pixels[y, x, c])
                total, squares = 0.0, 0.0
                for i in range(y, y + cell):
                    for j in range(x, x + cell):
                        value = pixels[i, j, c] - first
                        total += value
                        squares += value * value
                mean = total / n
                out[k, c] = first + mean
                out[k, n_planes + c] = np.sqrt(max(squares / n - mean * mean, 0.0))
            k += 1
