"""Merging in the feature space of an additive kernel, through the ordinary searches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.searches.base import RowSearch, Search
from bagwise.merging.stores import DenseStore

# Values of merged words that are held at a time.
_BLOCK_NUMBERS = 2**21
Traces = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]


class KernelSearch(Search):
    """Merge words whose statistics are not sums: the entries of a merged word are computed from its values.

    With ``a_v`` and ``b_v`` the traces of a word with values v, merging s and t changes the numerator by
    ``a_(s+t) - a_s - a_t``. That takes the place of ``2 A_st``, and any search does the rest.

    Parameters
    ----------
    values : ndarray of shape (n_words, n_samples)
    traces : callable
        Gives the preferred and the undesired trace for each row of values.
    make_search : callable
        Starts the search over a store.
    """

    def __init__(
        self, values: NDArray[np.float64], traces: Traces, make_search: Callable[[DenseStore], RowSearch]
    ) -> None:
        super().__init__(len(values))
        self._values = np.array(values, dtype=np.float64, order="C")
        self._empty: NDArray[np.bool_] = np.logical_not(self._values.any(axis=1))
        self._traces = traces
        self._own = np.stack(traces(self._values))
        A, B = (np.zeros((self.n_words, self.n_words)) for _ in range(2))
        for s in range(self.n_words - 1):
            later = np.arange(s + 1, self.n_words)
            A[s, later], B[s, later] = self._entries(s, later)
        for M, own in ((A, self._own[0]), (B, self._own[1])):
            M += M.T
            np.fill_diagonal(M, own)
        self._search = make_search(DenseStore(A, B))
        self.start_score = self._search.start_score

    def _entries(self, s: int, others: NDArray[np.int64]) -> NDArray[np.float64]:
        """Half of what merging s with each of the others changes in both traces."""
        step = max(_BLOCK_NUMBERS // max(self._values.shape[1], 1), 1)
        blocks = [others[start : start + step] for start in range(0, len(others), step)]
        merged = np.hstack([np.stack(self._traces(self._values[block] + self._values[s])) for block in blocks])
        changes = 0.5 * (merged - self._own[:, others] - self._own[:, s, np.newaxis])
        # A word that never occurs changes nothing at all; rounding must not say otherwise.
        changes[:, self._empty[others] | self._empty[s]] = 0.0
        return changes

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        for k in range(len(pairs)):
            slot, other = self._search.find()
            words, live = self._search.words()
            s, t = int(words[slot]), int(words[other])
            pairs[k] = s, t
            self._values[s] += self._values[t]
            self._empty[s] &= self._empty[t]
            self._own[:, s] = np.stack(self._traces(self._values[s : s + 1]))[:, 0]
            live = live[(live != slot) & (live != other)]
            rows = np.zeros((2, len(words)))
            if len(live):
                rows[:, live] = self._entries(s, words[live])
            scores[k] = self._search.merge_given(slot, other, rows[0], rows[1])

    @property
    def work(self) -> dict[str, int]:  # noqa: D102
        return self._search.work
