"""Trace ratios in the feature space of additive kernels, without building that space.

For one word with values v over the samples and its kernel matrix ``K_ij = k(v_i, v_j)``, a structure L has the trace
``tr(L K)``. It is computed for many words at once, in the cheapest exact way the structure and the kernel
allow: sums over all pairs of samples by sorting (intersection), by products (hellinger, linear), by quadrature or
directly (chi², Jensen-Shannon); sums over the edges of a graph edge by edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.kernels.additive import KERNELS
from bagwise.merging.rows import DenseRows, Slots
from bagwise.merging.structures import BetweenClasses, Combination, GraphLaplacian, Residuals, Structure, TotalScatter

__all__ = ["KernelRows", "KernelTraces"]

# Temporary arrays hold about this many numbers.
_BLOCK_NUMBERS = 2**18
# Values of merged words are computed in blocks of this many numbers.
_MERGED_NUMBERS = 2**21
Values = NDArray[np.float64]  # words x samples
Traces = Callable[[Values], Sequence[NDArray[np.float64]]]


class KernelTraces:
    """Compute ``tr(L K)`` for the kernel matrix K of each of several words, for a kernel of `bagwise.kernels.KERNELS`.

    The `smallest` positive value of any word, the `largest` value of a merged word and the relative error `tolerance`
    determine the nodes of the quadrature for chi² and Jensen-Shannon.
    """

    def __init__(self, kernel: str, smallest: float, largest: float, tolerance: float = 1e-12) -> None:
        self._kernel = KERNELS[kernel]
        self._nodes, self._factors = np.empty(0), np.empty(0)
        if self._kernel.quadrature is not None and largest > 0:
            self._nodes, self._factors = self._kernel.quadrature(smallest, largest, tolerance)
        self._edges: dict[int, Any] = {}

    def trace(self, structure: Structure, values: Values) -> NDArray[np.float64]:
        """Compute the trace for each row of values. Rows that are constant up to rounding have none, exactly."""
        traces = self._trace(structure, values)
        if values.shape[1] and not isinstance(structure, Combination):
            largest = values.max(axis=1)
            traces[largest - values.min(axis=1) <= 4 * np.finfo(np.float64).eps * largest] = 0.0
        return traces

    def _trace(self, structure: Structure, values: Values) -> NDArray[np.float64]:
        if isinstance(structure, TotalScatter):
            weights = structure.weights
            return self._kernel.diagonal(values) @ weights - self._pair_sums(values, weights) / weights.sum()
        if isinstance(structure, BetweenClasses):
            return self._between_classes(structure, values)
        if isinstance(structure, Combination):
            parts = (
                weight * self.trace(part, values if samples is None else values[:, samples])
                for weight, part, samples in structure.terms
            )
            return sum(parts, np.zeros(len(values)))
        if isinstance(structure, (GraphLaplacian, Residuals)):
            return self._along_edges(structure, values)
        raise BagwiseError(f"Kernels other than 'linear' are not defined for {type(structure).__name__}.")

    def _between_classes(self, structure: BetweenClasses, values: Values) -> NDArray[np.float64]:
        codes = structure.codes
        weights = np.ones(len(codes)) if structure.weights is None else structure.weights
        total = -self._pair_sums(values, weights) / weights.sum()
        for c in range(int(codes.max()) + 1):
            class_weights = weights[codes == c]
            total += self._pair_sums(values[:, codes == c], class_weights) / class_weights.sum()
        return total

    def _pair_sums(self, values: Values, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """``Σ_ij w_i w_j k(v_i, v_j)``, by quadrature where that is cheaper."""
        if self._kernel.feature_at is None or values.shape[1] <= 2 * len(self._nodes):
            return self._kernel.sums(values, weights)
        return self._quadrature_sums(values, weights)

    def _quadrature_sums(self, values: Values, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum products of features of v and a node at all nodes, O(n) each."""
        assert self._kernel.feature_at is not None
        sums = np.zeros(len(values))
        for node, factor in zip(self._nodes, self._factors, strict=True):
            sums += factor * (self._kernel.feature_at(values, node) @ weights) ** 2
        return sums

    def _along_edges(self, structure: GraphLaplacian | Residuals, values: Values) -> NDArray[np.float64]:
        """``Σ_{i<j} W_ij d²(v_i, v_j)`` with the squared distances of the kernel's feature space."""
        if self._kernel.feature is not None:
            mapped = self._kernel.feature(values)
            if isinstance(structure, Residuals):
                return np.asarray(((structure.rows @ mapped.T) ** 2).sum(axis=0)).ravel()
            return np.einsum("ij,ji->i", mapped, structure.form() @ mapped.T)
        if id(structure) not in self._edges:
            self._edges[id(structure)] = structure, _edges(structure)  # holds the structure, so that its id is unique
        rows, columns, weights = self._edges[id(structure)][1]
        total = np.zeros(len(values))
        width = max(_BLOCK_NUMBERS // max(len(values), 1), 1)
        for start in range(0, len(weights), width):
            part = slice(start, start + width)
            total += self._kernel.distances(values[:, rows[part]], values[:, columns[part]]) @ weights[part]
        return total


def _edges(structure: GraphLaplacian | Residuals) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
    """The edges i < j of a structure and their weights, -L_ij."""
    form: Any = structure.rows.T @ structure.rows if isinstance(structure, Residuals) else structure.form()
    upper = sp.coo_array(sp.triu(sp.coo_array(form), k=1))
    return upper.row, upper.col, -upper.data


class KernelRows(DenseRows):
    """A and B in the feature space of a kernel: the entries of a merged word are computed from its values.

    With ``a_v`` and ``b_v`` the traces of a word with values v, merging s and t changes the numerator by
    ``a_(s+t) - a_s - a_t``. It replaces ``2 A_st`` in all searches. `values` is words x samples; `traces` computes the
    preferred and the undesired trace for each row of values.
    """

    compiled = False

    def __init__(self, values: NDArray[np.float64], traces: Traces) -> None:
        d = len(values)
        self._values = np.array(values, dtype=np.float64, order="C")
        self._empty: NDArray[np.bool_] = np.logical_not(self._values.any(axis=1))
        self._traces = traces
        self._own = np.stack(traces(self._values))
        self._word = np.arange(d)
        self._is_live = np.ones(d, dtype=np.bool_)  # of slots
        A, B = np.zeros((d, d)), np.zeros((d, d))
        for s in range(d - 1):
            later = np.arange(s + 1, d)
            A[s, later], B[s, later] = self._entries(s, later)
        for M, diagonal in ((A, self._own[0]), (B, self._own[1])):
            M += M.T
            np.fill_diagonal(M, diagonal)
        super().__init__(A, B)

    def _entries(self, s: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        """Half of the change of both traces when s is merged with each of the others."""
        step = max(_MERGED_NUMBERS // max(self._values.shape[1], 1), 1)
        blocks = [others[start : start + step] for start in range(0, len(others), step)]
        merged = np.hstack([np.stack(self._traces(self._values[block] + self._values[s])) for block in blocks])
        changes = 0.5 * (merged - self._own[:, others] - self._own[:, s, np.newaxis])
        # Merging a word that never occurs changes nothing, exactly.
        changes[:, self._empty[others] | self._empty[s]] = 0.0
        return changes

    def joined(self, s: int, t: int, words: Slots, is_live: NDArray[np.bool_]) -> Values:
        """Merge slot t into slot s in values; return the rows of s. `words` are those in slots."""
        kept, other = words[s], words[t]
        self._values[kept] += self._values[other]
        self._empty[kept] &= self._empty[other]
        self._own[:, kept] = np.stack(self._traces(self._values[kept : kept + 1]))[:, 0]
        live = np.flatnonzero(is_live)
        live = live[(live != s) & (live != t)]
        rows = np.zeros((2, len(words)))
        if len(live):
            rows[:, live] = self._entries(int(kept), words[live])
        return rows

    def merge(self, s: int, t: int) -> None:  # noqa: D102
        self._write(s, t, *self.joined(s, t, self._word, self._is_live))
        self._is_live[t] = False

    def pack(self, slots: Slots, new_slot: Slots) -> None:  # noqa: D102
        super().pack(slots, new_slot)
        self._word, self._is_live = self._word[slots], self._is_live[slots]
