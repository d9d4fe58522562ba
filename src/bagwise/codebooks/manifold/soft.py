"""Soft histograms of bags, and how they change when words or features move."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from bagwise.codebooks.manifold._manifold_kernels import pull_back_rows

__all__ = ["SoftHistograms"]

# Features whose distances to all words are held at a time.
_ROWS = 4096


class SoftHistograms:
    """Histograms ``t_i = mean_j softmax_k(-|v_k - x_ij| / g)`` of fixed bags for changing words V.

    Parameters
    ----------
    values : ndarray of shape (n_rows, n_features)
        Features of all bags, bag after bag.
    offsets : ndarray of int, shape (n_bags + 1,)
        Where bags begin and end. No bag may be empty.
    softness : float
        g. The exponent is the distance over g, not its square.

    Notes
    -----
    Works through the features in blocks; nothing of features by words is kept.
    """

    def __init__(self, values: NDArray[np.floating], offsets: NDArray[np.int64], softness: float) -> None:
        self._values = values
        self._offsets = np.asarray(offsets, dtype=np.int64)
        self._softness = float(softness)
        self._lengths = np.diff(self._offsets)
        self._bag_of = np.repeat(np.arange(len(self._lengths)), self._lengths)

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return len(self._lengths)

    def _blocks(self, V: NDArray[np.float64]) -> Iterator[tuple[slice, NDArray, NDArray, NDArray]]:
        """Rows, features, distances to all words, and soft assignments, block by block."""
        squares = np.einsum("kd,kd->k", V, V)
        for start in range(0, len(self._values), _ROWS):
            rows = slice(start, min(start + _ROWS, len(self._values)))
            x = np.asarray(self._values[rows], dtype=np.float64)
            distances = x @ V.T
            distances *= -2.0
            distances += squares
            distances += np.einsum("nd,nd->n", x, x)[:, np.newaxis]
            np.maximum(distances, 0.0, out=distances)
            np.sqrt(distances, out=distances)
            U = distances * (-1.0 / self._softness)
            U -= U.max(axis=1, keepdims=True)
            np.exp(U, out=U)
            U /= U.sum(axis=1, keepdims=True)
            yield rows, x, distances, U

    def histograms(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """One histogram a bag: bags x words, rows that sum to 1."""
        T = np.zeros((self.n_bags, len(V)))
        for rows, _, _, U in self._blocks(V):
            bags = self._bag_of[rows]
            first = np.flatnonzero(np.diff(bags, prepend=-1))
            T[bags[first]] += np.add.reduceat(U, first, axis=0)
        return T / self._lengths[:, np.newaxis]

    def pull_back(
        self, V: NDArray[np.float64], G: NDArray[np.float64], *, features: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Turn the gradient G of an objective with respect to the histograms into that with respect to the words.

        With ``c = U (G - Σ_k U G)`` it is ``-1/g Σ (1 / N_l) c (v - x) / |v - x|``, the unit vector being 0 where a
        word lies on a feature. With `features`, the gradient with respect to the features is given as well.
        """
        gradient = np.zeros_like(V)
        by_feature = np.empty(self._values.shape) if features else None
        scale = -1.0 / (self._softness * self._lengths)
        for rows, x, distances, U in self._blocks(V):
            q = np.empty_like(U)
            pull_back_rows(U, distances, G, self._bag_of[rows], scale, q)
            gradient += q.sum(axis=0)[:, np.newaxis] * V
            gradient -= q.T @ x
            if by_feature is not None:
                by_feature[rows] = q.sum(axis=1)[:, np.newaxis] * x - q @ V
        return gradient, by_feature
