"""Compiled code for histograms of oriented gradients in cells."""

import numpy as np
from numba import njit

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
