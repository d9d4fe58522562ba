"""Compiled code for local binary patterns: codes of pixels, and counting them in cells and patches."""

import numpy as np
from numba import njit


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
def count_in_patches(codes, rows, columns, side, starts, patterns, counts):
    """Count the codes of overlapping square patches as sparse rows; returns how many entries there are.

    Patch ``i * len(columns) + j`` holds ``codes[rows[i] : rows[i] + side, columns[j] : columns[j] + side]``; its row is
    ``np.unique(patch, return_counts=True)``. `patterns` and `counts` need room for `side`² entries per patch. Cost
    O(side² log side) for each patch.
    """
    filled = 0
    starts[0] = 0
    found = np.empty(side * side, np.uint16)
    for i in range(rows.shape[0]):
        for j in range(columns.shape[0]):
            for y in range(side):
                for x in range(side):
                    found[y * side + x] = codes[rows[i] + y, columns[j] + x]
            found.sort()
            for k in range(found.shape[0]):
                if k > 0 and found[k] == found[k - 1]:
                    counts[filled - 1] += 1
                else:
                    patterns[filled] = found[k]
                    counts[filled] = 1
                    filled += 1
            starts[i * columns.shape[0] + j + 1] = filled
    return filled
