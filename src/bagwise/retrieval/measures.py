"""How near two histograms are: what the index knows of each metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.retrieval import _index_kernels as kernels

__all__ = ["MEASURES", "Measure"]


@dataclass(frozen=True)
class Measure:
    """A metric: the code of its compiled form, and how its keys become scores.

    Parameters
    ----------
    name : str
    kind : int
        Constant of `bagwise.retrieval._index_kernels`.
    larger_is_nearer : bool
        Scores are similarities rather than distances.
    non_negative : bool
        It has no meaning for negative numbers.
    roots : bool
        It is taken of the square roots of histograms.
    """

    name: str
    kind: int
    larger_is_nearer: bool
    non_negative: bool
    roots: bool = False

    @property
    def power(self) -> int:
        """The totals of rows that keys are made of: sums (1) or squared norms (2)."""
        return 2 if self.kind in (kernels.INNER, kernels.EUCLIDEAN) else 1

    def scores(self, keys: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn keys, of which the smaller is nearer, into what users see."""
        if self.larger_is_nearer:
            return 0.0 - keys  # without negative zeros
        return np.sqrt(keys) if self.kind == kernels.EUCLIDEAN else keys

    def totals(self, rows: Any) -> NDArray[np.float64]:
        """Totals of the rows of a CSR or dense matrix."""
        return row_totals(rows, self.power)


MEASURES = {
    measure.name: measure
    for measure in [
        Measure("chi2", kernels.CHI2, larger_is_nearer=False, non_negative=True),
        Measure("intersection", kernels.INTERSECTION, larger_is_nearer=True, non_negative=True),
        Measure("hellinger", kernels.INNER, larger_is_nearer=True, non_negative=True, roots=True),
        Measure("euclidean", kernels.EUCLIDEAN, larger_is_nearer=False, non_negative=False),
        Measure("inner", kernels.INNER, larger_is_nearer=True, non_negative=False),
    ]
}


def row_totals(rows: Any, power: int) -> NDArray[np.float64]:
    """Sums of the absolute values (1) or squares (2) of rows, the same bits for dense and CSR."""
    totals = np.empty(rows.shape[0])
    if isinstance(rows, np.ndarray):
        kernels.dense_totals(rows, power, totals)
    else:
        kernels.row_totals(rows.indptr.astype(np.int64), rows.data, power, totals)
    return totals
