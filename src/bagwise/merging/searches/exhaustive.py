"""The exhaustive search: every pair at every level, O(d³)."""

from __future__ import annotations

import numpy as np

from bagwise.merging.searches import _exhaustive_kernels as kernels
from bagwise.merging.searches._common_kernels import LANES, N_TRACES, current_score, start_traces
from bagwise.merging.searches.base import RowSearch
from bagwise.merging.stores import DenseStore


class ExhaustiveSearch(RowSearch):
    """Evaluate all pairs at each level: the yardstick for the other searches."""

    _kernels = kernels

    def __init__(self, store: DenseStore) -> None:
        super().__init__(store.n_words)
        d = store.n_words
        self._state = kernels.ExhaustiveState(
            A=store.A,
            B=store.B,
            word=np.arange(d, dtype=np.int64),
            order=np.zeros(d, dtype=np.int64),
            slots=np.zeros(d, dtype=np.int64),
            lanes=np.zeros(3 * LANES),
            traces=np.zeros(N_TRACES),
            counts=np.array([d, d, 0, 0], dtype=np.int64),
        )
        start_traces(self._state.traces, np.diagonal(store.A), np.diagonal(store.B))
        self.start_score = float(current_score(self._state.traces))

    @property
    def work(self) -> dict[str, int]:  # noqa: D102
        return {"pairs_evaluated": int(self._state.counts[kernels.EVALUATED])}
