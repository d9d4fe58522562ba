"""Histograms of bags by functions of an array module, on a CUDA device or anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise._utils.devices import check_device_memory, to_device, to_host
from bagwise.bags import Bags
from bagwise.codebooks import _cuda
from bagwise.codebooks.encoders import Encoder, HardEncoder, LocalizedEncoder, ResidualEncoder
from bagwise.codebooks.pyramids import Grids, cell_numbers, n_cells

__all__ = ["array_histograms", "histogram_width", "pooled_on_device"]

# Vectors, and numbers of histograms, that are on the device at a time.
_ROWS, _NUMBERS = 1 << 18, 1 << 25


def pooled_on_device(bags: Bags, encoder: Encoder, pooling: str, grids: Grids, sparse_output: bool) -> Any:
    """Do what `bagwise.codebooks.encoding.pooled` does, with an encoder whose words are on a device."""
    xp, width = encoder.distances.xp, histogram_width(encoder, grids)
    most_bags = max(1, _NUMBERS // width)
    parts = []
    for task, _ in bags.blocks(_ROWS):
        for first in range(task.start, task.stop, most_bags):
            part = bags[first : min(first + most_bags, task.stop)]
            if xp is not np:
                need = 2 * part.values.nbytes + 20 * width * len(part)
                check_device_memory(need, f"{part.n_rows} vectors and {len(part)} histograms", "give smaller bags")
            positions = None if part.positions is None else to_device(part.positions, xp)
            values, lengths = to_device(part.values, xp), to_device(part.lengths, xp)
            parts.append(array_histograms(values, lengths, positions, encoder, pooling, grids, sparse_output))
    if sparse_output:
        return sp.vstack(parts, format="csr") if parts else sp.csr_array((0, width), dtype=encoder.codebook.dtype)
    return np.concatenate([to_host(part) for part in parts]) if parts else np.zeros((0, width), encoder.codebook.dtype)


def histogram_width(encoder: Encoder, grids: Grids) -> int:
    """Numbers in a histogram of all cells."""
    n_words, n_features = encoder.codebook.shape
    return n_cells(grids) * n_words * (n_features if isinstance(encoder, ResidualEncoder) else 1)


def array_histograms(
    values: Any, lengths: Any, positions: Any, encoder: Encoder, pooling: str, grids: Grids, sparse_output: bool
) -> Any:
    """Encode bags of `lengths` vectors each: a dense array of the module of the words, or a CSR array on the host.

    Codes are added in float64, in the order of the vectors.
    """
    xp, n_words = encoder.distances.xp, len(encoder.codebook)
    n_rows, width, maximum = len(lengths) * n_cells(grids), histogram_width(encoder, grids), pooling == "max"
    bag_of = xp.searchsorted(xp.cumsum(lengths), xp.arange(len(values)), side="right")
    groups = cell_numbers(positions, len(values), grids, xp) + (bag_of * n_cells(grids))[:, np.newaxis]
    if isinstance(encoder, (HardEncoder, LocalizedEncoder)):
        keys, found = _few(xp, values, groups, encoder, maximum)
        if pooling == "mean":
            found = found / xp.maximum(lengths, 1)[keys // width]
        if sparse_output:
            return _csr(xp, keys, found.astype(encoder.codebook.dtype), (len(lengths), width))
        out = xp.zeros(n_rows * n_words)
        out[keys] = found
    else:
        dense = _residuals if isinstance(encoder, ResidualEncoder) else _dense
        out = dense(xp, values, groups, n_rows, encoder, maximum)
    out = out.reshape(len(lengths), width)
    if pooling == "mean" and not isinstance(encoder, (HardEncoder, LocalizedEncoder)):
        out /= xp.maximum(lengths, 1)[:, np.newaxis]
    out = out.astype(encoder.codebook.dtype)
    return sp.csr_array(to_host(out)) if sparse_output else out


def _few(xp: Any, values: Any, groups: Any, encoder: Any, maximum: bool) -> tuple[Any, Any]:
    """Codes of few words: numbers of the entries of histograms that are not zero, rising, and these entries."""
    parts = []
    for rows, words, weights in encoder.few(values):
        numbers = groups[rows, :, np.newaxis] * len(encoder.codebook) + words[:, np.newaxis]
        parts.append((numbers.ravel(), xp.broadcast_to(weights[:, np.newaxis], numbers.shape).ravel()))
    if not parts:
        return xp.zeros(0, np.int64), xp.zeros(0)
    keys, weights = (xp.concatenate(some) for some in zip(*parts, strict=True))
    order, distinct, starts = _cuda.segments(xp, keys)
    ones = xp.ones(len(weights))
    return distinct, _cuda.sums_of_segments(xp, weights[:, np.newaxis], ones, order, starts, maximum)[:, 0]


def _dense(xp: Any, values: Any, groups: Any, n_rows: int, encoder: Encoder, maximum: bool) -> Any:
    out = xp.zeros((n_rows, len(encoder.codebook)))
    for rows, codes in encoder.blocks(values):
        for level in range(groups.shape[1]):
            order, distinct, starts = _cuda.segments(xp, groups[rows, level])
            found = _cuda.sums_of_segments(xp, codes, xp.ones(len(codes)), order, starts, maximum)
            out[distinct] = xp.maximum(out[distinct], found) if maximum else out[distinct] + found
    return out


def _residuals(xp: Any, values: Any, groups: Any, n_rows: int, encoder: Encoder, maximum: bool) -> Any:
    n_words, n_features = encoder.codebook.shape
    out = xp.zeros((n_rows * n_words, n_features))
    words = xp.empty(len(values), np.intp)
    encoder.distances.nearest(values, words)
    held = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    for level in range(groups.shape[1]):
        order, distinct, starts = _cuda.segments(xp, groups[:, level] * n_words + words)
        sums = _cuda.sums_of_segments(xp, held, xp.ones(len(held)), order, starts)
        out[distinct] = sums - xp.diff(starts)[:, np.newaxis] * encoder.codebook[distinct % n_words].astype(np.float64)
    return out


def _csr(xp: Any, keys: Any, found: Any, shape: tuple[int, int]) -> sp.csr_array:
    starts = xp.searchsorted(keys, xp.arange(shape[0] + 1) * shape[1])
    kind = np.int32 if max(shape[1], len(keys)) < 2**31 else np.int64
    columns, starts = to_host((keys % shape[1]).astype(kind)), to_host(starts.astype(kind))
    return sp.csr_array((to_host(found), columns, starts), shape=shape)
