"""Soft histograms, and their gradient, by functions of an array module: on a CUDA device, or anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, to_device, to_host
from bagwise.codebooks import _cuda
from bagwise.codebooks.manifold.learning import SoftHistograms

__all__ = ["ArraySoftHistograms"]

# Distances of a block.
_NUMBERS = 1 << 24


class ArraySoftHistograms(SoftHistograms):
    """`SoftHistograms` of features that are copied to a device once; words and results are on the host."""

    def __init__(
        self,
        values: NDArray[np.floating],
        offsets: NDArray[np.int64],
        bandwidth: float,
        xp: Any,
        *,
        scale: float = 1.0,
    ) -> None:
        super().__init__(values, offsets, bandwidth, scale=scale)
        self._xp = xp
        if xp is not np:
            need = 16 * len(values) + 40 * _NUMBERS
            check_device_memory(need, f"{len(values)} features", "give fewer bags", [values])
        self._there, self._bags = to_device(values, xp), to_device(self._bag_of, xp)

    def _parts(self, V: Any) -> Iterator[tuple[slice, Any, Any, Any]]:
        """Rows, their centred features, distances to all words, and soft assignments, block by block."""
        xp = self._xp
        squares = (V * V).sum(axis=1)
        step = max(_NUMBERS // len(V), 1)
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
            order, bags, starts = _cuda.segments(xp, self._bags[rows])
            T[bags] += _cuda.sums_of_segments(xp, U, xp.ones(len(U)), order, starts)
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
            own = slopes[self._bags[rows]]
            own -= (U * own).sum(axis=1, keepdims=True)
            q = U * own * scale[self._bags[rows], np.newaxis]
            q = xp.where(distances > 1e-12, q / xp.where(distances > 1e-12, distances, 1.0), 0.0)
            gradient += q.sum(axis=0)[:, np.newaxis] * centred - q.T @ x
            if by_feature is not None:
                by_feature[rows] = to_host(q.sum(axis=1)[:, np.newaxis] * x - q @ centred)
        return to_host(gradient), by_feature
