"""A search whose result is known beforehand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.searches.base import Search
from bagwise.merging.stores.factored import FactoredStore

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
    own_a, own_b = np.diagonal(A), np.diagonal(B)
    test = _Equality(own_a, own_b, _ROUNDING)
    if not test.may_hold or (not test.vanishes and not all(test.holds(A[i], B[i]) for i in range(len(A)))):
        return None
    changes = ((M[:t, t].sum() for t in range(1, len(A))) for M in (A, B))
    return _in_order(test, *(np.fromiter(one, dtype=np.float64) for one in changes))


def factored_merges_of_equals(store: FactoredStore, n_threads: int = 1) -> GivenMerges | None:
    """Do what `merges_of_equals` does with rows that are computed, in one pass over all of them."""
    test = _Equality(*store.diagonals(), max(_ROUNDING, store.rounding * np.finfo(np.float64).eps))
    if not test.may_hold:
        return None
    changes = np.zeros((2, store.size))
    for blocks, start, stop in store.blocks(n_threads):
        for i in range(start, stop):  # right of the diagonal, where blocks are filled
            rows = [block[i - start, i + 1 :] for block in blocks]
            if not test.vanishes and not test.holds(*rows):
                return None
            changes[:, i + 1 :] += rows
    return _in_order(test, changes[0, 1:], changes[1, 1:])


class _Equality:
    """The test whether A is a multiple of B, or nothing beside it."""

    def __init__(self, own_a: NDArray[np.float64], own_b: NDArray[np.float64], rounding: float) -> None:
        self.trace_a, self.trace_b = float(own_a.sum()), float(own_b.sum())
        self._factor = self.trace_a / self.trace_b if self.trace_b > 0 else np.nan
        self._rounding = rounding
        self.vanishes = bool(np.all(own_a <= _NOTHING * own_b))
        self.may_hold = self.trace_b > 0 and len(own_a) > 2 and (self.vanishes or self.holds(own_a, own_b))

    def holds(self, entries_a: NDArray[np.float64], entries_b: NDArray[np.float64]) -> bool:
        """Whether these entries of A are those of B times the ratio of the traces."""
        return bool(np.abs(entries_a - self._factor * entries_b).max(initial=0.0) <= self._rounding * self.trace_a)


def _in_order(test: _Equality, changes_a: NDArray[np.float64], changes_b: NDArray[np.float64]) -> GivenMerges | None:
    """Merge word 1 into word 0, then word 2 and so on; the entries of each such pair are given.

    None where that makes all words constant while there are pairs to choose from: another order may keep them apart.
    """
    traces_a, traces_b = (
        np.cumsum(np.concatenate([[trace], 2.0 * changes]))
        for trace, changes in ((test.trace_a, changes_a), (test.trace_b, changes_b))
    )
    defined = traces_b > _VANISHED * np.maximum.accumulate(traces_b)
    if not defined[:-1].all():
        return None
    scores = np.where(defined, traces_a / np.where(defined, traces_b, 1.0), np.nan)
    d = len(scores)
    merges = np.stack([np.zeros(d - 1, dtype=np.int64), np.arange(1, d)], axis=1)
    return GivenMerges(Hierarchy(d, merges, scores[1:]), float(scores[0]))
