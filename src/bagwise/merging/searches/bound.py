"""The lazy bound search: exact, and about one row looked at per level."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise._threads import run_over_ranges
from bagwise.merging.searches import _bound_kernels as kernels
from bagwise.merging.searches._common_kernels import LANES, N_TRACES, SCALE, current_score, start_traces
from bagwise.merging.searches.base import RowSearch
from bagwise.merging.stores import DenseStore


class BoundSearch(RowSearch):
    """Remember each row's best pair with a bound on what the row can offer later; rescan a row only if that wins.

    Every pair belongs to one row, that of the word changed last, so that rows only lose pairs and their bounds
    stay true. Time O(d²) on ordinary data, the order of forming A and B; memory O(d) beyond them.
    """

    _kernels = kernels

    def __init__(self, store: DenseStore, n_threads: int = 1) -> None:
        super().__init__(store.n_words)
        d = store.n_words

        def per_slot(dtype: type = np.float64) -> NDArray:
            return np.zeros(d, dtype=dtype)

        self._state = kernels.BoundState(
            A=store.A,
            B=store.B,
            word=np.arange(d, dtype=np.int64),
            order=np.arange(d, 0, -1, dtype=np.int64),
            peak_a=per_slot(),
            peak_b=per_slot(),
            partner=per_slot(np.int64),
            right=per_slot(),
            left=per_slot(),
            low=per_slot(),
            high=per_slot(),
            changed=np.zeros(d + 1, dtype=np.int64),
            watch=np.full((6, d // kernels.WATCH + 1), np.inf),
            candidates=per_slot(np.int64),
            lanes=np.zeros(3 * LANES),
            traces=np.zeros(N_TRACES),
            counts=np.zeros(kernels.N_COUNTS, dtype=np.int64),
        )
        counts = self._state.counts
        counts[kernels.SIZE] = counts[kernels.LIVE] = d
        counts[kernels.NEWEST] = counts[kernels.RUNNER_UP] = -1
        start_traces(self._state.traces, store.A, store.B)
        self.start_score = float(current_score(self._state.traces))

        def scan(start: int, stop: int) -> None:
            own_lanes = self._state._replace(lanes=np.zeros(3 * LANES), traces=self._state.traces.copy())
            kernels.scan_fresh_rows(own_lanes, start, stop)

        run_over_ranges(scan, d, n_threads)
        peaks = self._state.peak_a[np.isfinite(self._state.peak_a)]
        self._state.traces[SCALE] = np.abs(peaks).max(initial=0.0)

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first look at each; the row of a merged word is scanned as it is formed."""
        return {"row_scans": int(self._state.counts[kernels.SCANS])}
