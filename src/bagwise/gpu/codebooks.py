"""Words and histograms on a CUDA device, by functions of an array module: the functions of `Codebooks`.

With arrays of NumPy, everything here runs on the host: so it is tested where there is no device.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, device_module, to_device, to_host, where_given
from bagwise.bags import Bags
from bagwise.codebooks.distances import WordDistances, as_codebook, check_norms
from bagwise.codebooks.encoders import Encoder, FewEncoder, ResidualEncoder
from bagwise.codebooks.encoding import histogram_width
from bagwise.codebooks.kmeans import Problem as HostProblem
from bagwise.codebooks.manifold.learning import SoftHistograms as HostSoftHistograms
from bagwise.codebooks.pyramids import Grids, cell_numbers, n_cells
from bagwise.gpu import codebook_kernels as kernels
from bagwise.gpu.sift import pooled_images

__all__ = ["Distances", "Problem", "SoftHistograms", "array", "array_histograms", "assign", "codebook"]
__all__ += ["distinct_rows", "points", "pooled", "pooled_images", "to_host", "where_given"]

# Rows, and numbers of distances, that are computed at a time.
_ROWS, _DISTANCES = 1 << 18, 1 << 26
# Points that are looked at together to draw seeds.
_LOOKED_AT = 96
# Vectors, and numbers of histograms, that are on the device at a time.
_VECTORS, _NUMBERS = 1 << 18, 1 << 25
# Distances of a block of soft histograms.
_SOFT_NUMBERS = 1 << 24


def array(values: Any) -> Any:
    """Return a C-contiguous array on the device."""
    return to_device(values, device_module("cuda"))


def codebook(words: Any) -> Any:
    """Check words and return them on the device."""
    return as_codebook(words, device_module("cuda"))


def points(vectors: Any) -> Any:
    """Check vectors that k-means is to cluster, and the memory of the device, and return them there."""
    values = vectors if hasattr(vectors, "dtype") else np.asarray(vectors)
    if values.ndim == 2:
        size = 4 if values.dtype == np.float32 else 8
        need = 2 * size * values.shape[0] * values.shape[1] + 100 * len(values)
        check_device_memory(need, f"k-means of {len(values)} vectors", "learn words from fewer", [values])
    return as_codebook(values, device_module("cuda"))


class Distances(WordDistances):
    """`WordDistances` for a codebook on a device, by functions of its array module alone; larger blocks."""

    @property
    def xp(self) -> Any:
        """Module of the codebook's arrays: looked up, as modules cannot be pickled with models."""
        return device_module(None, self.codebook)

    def __init__(self, codebook: Any, *, bipolar: bool = False) -> None:
        super().__init__(codebook, bipolar=bipolar)
        self.n_rows = min(max(_DISTANCES // len(codebook), 16), _ROWS)

    def _products(self, values: Any) -> Iterator[tuple[slice, Any, Any]]:
        xp, dtype = self.xp, self.codebook.dtype
        shape = min(self.n_rows, len(values)), len(self.codebook)
        if xp is not np:
            need = (shape[1] + 3 * values.shape[1]) * shape[0] * dtype.itemsize
            check_device_memory(need, f"The distances of {shape[0]} vectors to {shape[1]} words")
        products, largest = xp.empty(shape, dtype), xp.zeros(1, dtype)
        for start in range(0, len(values), self.n_rows):
            rows = slice(start, min(start + self.n_rows, len(values)))
            with np.errstate(over="ignore", invalid="ignore"):
                block = (values[rows] - self._mean).astype(dtype, copy=False)
                norms = (block * block).sum(axis=1)
                largest = xp.maximum(largest, norms.max())
                block_products = xp.matmul(block, self._factors, out=products[: rows.stop - start])
            yield rows, block_products, norms
        check_norms(largest, dtype, "A vector")  # once: each check waits for the device

    def nearest(self, values: Any, out: Any, signs: Any = None) -> None:
        """Do what `WordDistances.nearest` does."""
        for rows, scores, _ in self._products(values):
            out[rows], turned = kernels.nearest(self.xp, scores, self._norms, self.bipolar)
            if signs is not None:
                signs[rows] = turned

    def nearest_few(self, values: Any, k: int) -> Iterator[tuple[slice, Any, Any]]:
        """Do what `WordDistances.nearest_few` does, by the distances of the product, in the type of the codebook."""
        xp = self.xp
        none = xp.zeros(len(self.codebook), self.codebook.dtype)
        for rows, distances in self.blocks(values):
            words = xp.empty((len(distances), k), np.intp)
            squares, every = xp.empty(words.shape, distances.dtype), xp.arange(len(distances))
            for position in range(k):
                words[:, position] = nearest = kernels.nearest(xp, distances, none, False)[0]
                squares[:, position] = distances[every, nearest]
                distances[every, nearest] = np.inf
            yield rows, words, squares


def assign(values: Any, table: Distances, n_threads: int) -> tuple[Any, Any]:
    """Nearest word of each vector, and its sign."""
    words, signs = table.xp.empty(len(values), np.intp), table.xp.ones(len(values), np.int8)
    table.nearest(values, words, signs)
    return words, signs


def distinct_rows(values: Any) -> tuple[Any, Any]:
    """Do what `distinct_rows` of the host does."""
    xp = device_module(None, values)
    _, first, same_hash = xp.unique(kernels.row_hashes(xp, values), return_index=True, return_inverse=True)
    like = first[same_hash]
    equal = xp.concatenate([(values[rows] == values[like[rows]]).all(axis=1) for rows in _parts(values)])
    return xp.unique(xp.where(equal, like, xp.arange(len(values))), return_inverse=True)


class DeviceProblem(HostProblem):
    """Points on a device, or anywhere, clustered by functions of their array module alone."""

    block_rows = _ROWS

    @property
    def xp(self) -> Any:
        """Module of the points' arrays."""
        return device_module(None, self.points)

    @staticmethod
    def host(array: Any) -> Any:
        """Return an array on the host."""
        return to_host(array)

    @staticmethod
    def sums(points: Any, weights: Any, labels: Any, signs: Any, n_clusters: int) -> tuple[Any, Any]:
        """Do what `Problem.sums` of the host does."""
        xp = device_module(None, points)
        order = xp.argsort(labels, kind="stable")
        starts = xp.searchsorted(labels[order], xp.arange(n_clusters + 1))
        sums = kernels.sums_of_segments(xp, points, weights * signs, order, starts)
        return sums, kernels.sums_of_segments(xp, weights[:, np.newaxis], xp.ones(len(weights)), order, starts)[:, 0]

    def _squares(self) -> Any:
        parts = [self.points[rows].astype(np.float64) for rows in _parts(self.points)]
        return self.xp.concatenate([(part * part).sum(axis=1) for part in parts])

    def expect_iterations(self, n_clusters: int) -> None:
        """Do nothing: distances to all centres are computed each time."""

    def assign(self, centres: Any, before: Any = None) -> tuple[Any, Any]:
        """Labels and signs of the points for given centres."""
        return assign(self.points, Distances(centres, bipolar=self.bipolar), 1)

    def _draws(self, reach: Any, distances: Any, random: np.random.Generator) -> Generator[tuple[int, float, float]]:
        """Look at many points at once; the random numbers of those that were not asked for are drawn again."""
        self._looked_at: dict[int, tuple[Any, float]] = {}
        total = float(reach[-1])
        while True:
            before, used = random.bit_generator.state, 0
            try:
                numbers, keeps = random.random((_LOOKED_AT, 2)).T
                drawn = self.xp.searchsorted(reach, self.xp.asarray(numbers * total), side="right")
                clipped = self.xp.minimum(drawn, len(distances) - 1)
                drawn, *known = (
                    to_host(part) for part in (drawn, distances[clipped], self.points[clipped], self.squares[clipped])
                )
                self._looked_at.update(zip(drawn.tolist(), zip(*known[1:], strict=True), strict=True))
                for one in zip(drawn.tolist(), known[0].tolist(), keeps.tolist(), strict=True):
                    used += 1
                    yield one
            finally:
                random.bit_generator.state = before
                random.random((used, 2))

    def _distance(self, point: int, others: list[int]) -> float:
        rows, squares = (np.stack(parts) for parts in zip(*map(self._looked_at.get, [point, *others]), strict=True))
        products = rows[1:] @ rows[0]
        if self.bipolar:
            products = abs(products)
        return float((squares[1:] + squares[0] - 2.0 * products).min())

    def _distances_to(self, chosen: list[int]) -> Any:
        numbers = self.xp.asarray(chosen)
        others, squares = self.points[numbers].T, self.squares[numbers]
        distances = self.xp.empty(len(self.points))
        for rows in _parts(self.points):
            products = self.xp.ascontiguousarray(self.points[rows] @ others)
            distances[rows] = kernels.least_distances(self.xp, products, squares, self.squares[rows], self.bipolar)
        return distances


def _parts(points: Any) -> list[slice]:
    """Slices of as many rows as are taken together on a device."""
    return [slice(start, start + _ROWS) for start in range(0, len(points), _ROWS)]


def pooled(bags: Bags, encoder: Encoder, pooling: str, grids: Grids, sparse_output: bool, n_threads: int) -> Any:
    """Encode bags by an encoder that is bound to words on a device; histograms come back to the host."""
    xp, width = encoder.distances.xp, histogram_width(encoder, grids)
    most_bags = max(1, _NUMBERS // width)
    parts = []
    for task, _ in bags.blocks(_VECTORS):
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
    if isinstance(encoder, FewEncoder):
        keys, pooled = _few(xp, values, groups, encoder, maximum)
        if pooling == "mean":
            pooled = pooled / xp.maximum(lengths, 1)[keys // width]
        if sparse_output:
            return _csr(xp, keys, pooled.astype(encoder.codebook.dtype), (len(lengths), width))
        out = xp.zeros(n_rows * n_words)
        out[keys] = pooled
    else:
        dense = _residuals if isinstance(encoder, ResidualEncoder) else _dense
        out = dense(xp, values, groups, n_rows, encoder, maximum)
    out = out.reshape(len(lengths), width)
    if pooling == "mean" and not isinstance(encoder, FewEncoder):
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
    order, distinct, starts = kernels.segments(xp, keys)
    ones = xp.ones(len(weights))
    return distinct, kernels.sums_of_segments(xp, weights[:, np.newaxis], ones, order, starts, maximum)[:, 0]


def _dense(xp: Any, values: Any, groups: Any, n_rows: int, encoder: Encoder, maximum: bool) -> Any:
    out = xp.zeros((n_rows, len(encoder.codebook)))
    for rows, codes in encoder.blocks(values):
        for level in range(groups.shape[1]):
            order, distinct, starts = kernels.segments(xp, groups[rows, level])
            segment_sums = kernels.sums_of_segments(xp, codes, xp.ones(len(codes)), order, starts, maximum)
            out[distinct] = xp.maximum(out[distinct], segment_sums) if maximum else out[distinct] + segment_sums
    return out


def _residuals(xp: Any, values: Any, groups: Any, n_rows: int, encoder: Encoder, maximum: bool) -> Any:
    n_words, n_features = encoder.codebook.shape
    out = xp.zeros((n_rows * n_words, n_features))
    words = xp.empty(len(values), np.intp)
    encoder.distances.nearest(values, words)
    floats = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
    for level in range(groups.shape[1]):
        order, distinct, starts = kernels.segments(xp, groups[:, level] * n_words + words)
        sums = kernels.sums_of_segments(xp, floats, xp.ones(len(floats)), order, starts)
        out[distinct] = sums - xp.diff(starts)[:, np.newaxis] * encoder.codebook[distinct % n_words].astype(np.float64)
    return out


def _csr(xp: Any, keys: Any, pooled: Any, shape: tuple[int, int]) -> sp.csr_array:
    starts = xp.searchsorted(keys, xp.arange(shape[0] + 1) * shape[1])
    kind = np.int32 if max(shape[1], len(keys)) < 2**31 else np.int64
    columns, starts = to_host((keys % shape[1]).astype(kind)), to_host(starts.astype(kind))
    return sp.csr_array((to_host(pooled), columns, starts), shape=shape)


class DeviceSoftHistograms(HostSoftHistograms):
    """`SoftHistograms` of features that are copied to a device once; words and results are on the host."""

    def __init__(
        self,
        values: NDArray[np.floating],
        offsets: NDArray[np.int64],
        bandwidth: float,
        n_threads: int = 1,
        *,
        scale: float = 1.0,
        xp: Any = None,
    ) -> None:
        xp = device_module("cuda") if xp is None else xp
        super().__init__(values, offsets, bandwidth, scale=scale)
        self._xp = xp
        if xp is not np:
            need = 16 * len(values) + 40 * _SOFT_NUMBERS
            check_device_memory(need, f"{len(values)} features", "give fewer bags", [values])
        self._there, self._bags = to_device(values, xp), to_device(self._bag_of, xp)

    def _parts(self, V: Any) -> Iterator[tuple[slice, Any, Any, Any]]:
        """Rows, their centred features, distances to all words, and soft assignments, block by block."""
        xp = self._xp
        squares = (V * V).sum(axis=1)
        step = max(_SOFT_NUMBERS // len(V), 1)
        for start in range(0, len(self._there), step):
            rows = slice(start, min(start + step, len(self._there)))
            x = self._scale * self._there[rows].astype(np.float64) - xp.asarray(self._centre)
            distances = xp.sqrt(xp.maximum((x * x).sum(axis=1)[:, np.newaxis] + squares - 2.0 * (x @ V.T), 0.0))
            U = xp.exp((distances.min(axis=1, keepdims=True) - distances) / self._bandwidth)
            U /= U.sum(axis=1, keepdims=True)
            yield rows, x, distances, U

    def histograms(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """Do what `SoftHistograms.histograms` does."""
        xp = self._xp
        T = xp.zeros((self.n_bags, len(V)))
        for rows, _, _, U in self._parts(to_device(V - self._centre, xp)):
            order, bags, starts = kernels.segments(xp, self._bags[rows])
            T[bags] += kernels.sums_of_segments(xp, U, xp.ones(len(U)), order, starts)
        return to_host(T) / self._lengths[:, np.newaxis]

    def pull_back(
        self, V: NDArray[np.float64], G: NDArray[np.float64], *, features: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Do what `SoftHistograms.pull_back` does."""
        xp = self._xp
        centred, slopes = to_device(V - self._centre, xp), to_device(G, xp)
        scale = to_device(-1.0 / (self._bandwidth * self._lengths), xp)
        by_feature = np.empty(self._values.shape) if features else None
        gradient = xp.zeros(centred.shape)
        for rows, x, distances, U in self._parts(centred):
            slopes_here = slopes[self._bags[rows]]
            slopes_here -= (U * slopes_here).sum(axis=1, keepdims=True)
            q = U * slopes_here * scale[self._bags[rows], np.newaxis]
            q = xp.where(distances > 1e-12, q / xp.where(distances > 1e-12, distances, 1.0), 0.0)
            gradient += q.sum(axis=0)[:, np.newaxis] * centred - q.T @ x
            if by_feature is not None:
                by_feature[rows] = to_host(q.sum(axis=1)[:, np.newaxis] * x - q @ centred)
        return to_host(gradient), by_feature


# as the protocol `Codebooks` of `bagwise._utils.backends` has them
Problem, SoftHistograms = DeviceProblem, DeviceSoftHistograms
