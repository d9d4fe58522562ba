"""A search whose result is known beforehand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.searches.base import Search

# Differences below this share of the trace are taken for rounding.
_ROUNDING = 1e-14
# Beside B, an A below this is nothing but rounding: class means are exact to about 1e-16, A is their square.
_NOTHING = 1e-26
_VANISHED = 1e-12


class GivenMerges(Search):
    """Play back a hierarchy that needs no search: found by another library, or the same whatever is merged."""

    def __init__(self, hierarchy: Hierarchy, start_score: float) -> None:
        super().__init__(hierarchy.n_words)
        self._hierarchy = hierarchy
        self._done = 0
        self.start_score = start_score

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        part = slice(self._done, self._done + len(pairs))
        pairs[:] = self._hierarchy.merges[part]
        scores[:] = self._hierarchy.scores[part]
        self._done += len(pairs)

    @property
    def work(self) -> dict[str, int]:  # noqa: D102
        return {}


def merges_of_equals(A: NDArray[np.float64], B: NDArray[np.float64]) -> GivenMerges | None:
    """Merge words in their order if no merge is better than any other; None if some are.

    That is so where A is a multiple of B up to rounding (two samples, one sample per class) or vanishes beside it
    (equal class means). Merging keeps it so, and a search would compare nothing but rounding, at full cost.
    """
    trace_a, trace_b = float(np.trace(A)), float(np.trace(B))
    if not trace_b > 0 or len(A) < 3:
        return None
    factor = trace_a / trace_b
    if np.any(np.diagonal(A) > _NOTHING * np.diagonal(B)):
        if np.any(np.abs(np.diagonal(A) - factor * np.diagonal(B)) > _ROUNDING * trace_a):
            return None
        if any(np.abs(A[i] - factor * B[i]).max() > _ROUNDING * trace_a for i in range(len(A))):
            return None
    # word t joins all those before it
    d = len(A)
    traces_a, traces_b = (
        np.cumsum([trace, *(2.0 * M[:t, t].sum() for t in range(1, d))]) for trace, M in ((trace_a, A), (trace_b, B))
    )
    defined = traces_b > _VANISHED * np.maximum.accumulate(traces_b)
    scores = np.where(defined, traces_a / np.where(defined, traces_b, 1.0), np.nan)
    merges = np.stack([np.zeros(d - 1, dtype=np.int64), np.arange(1, d)], axis=1)
    return GivenMerges(Hierarchy(d, merges, scores[1:]), float(scores[0]))
