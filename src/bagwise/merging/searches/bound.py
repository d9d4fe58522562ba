"""The lazy bound search: exact, and about one row looked at per level."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.threads import run_over_ranges
from bagwise.merging.searches import _bound_kernels as kernels
from bagwise.merging.searches import _cone_kernels as cone_kernels
from bagwise.merging.searches._common_kernels import LANES, N_TRACES, SCALE, current_score, start_traces
from bagwise.merging.searches.base import RowSearch
from bagwise.merging.stores import DenseStore

__all__ = ["BoundSearch", "new_cones"]

# Entries that are only ever added are this many units in the last place of the traces away from the truth.
_ROUNDING_OF_SUMS = 8


class BoundSearch(RowSearch):
    """Remember each row's best pair with a bound on what the row can offer later; rescan a row only if that wins.

    Every pair belongs to one row, that of the word changed last, so that rows only lose pairs and their bounds
    stay true. Time O(d²) on ordinary data, the order of forming A and B; memory O(d) beyond them.
    """

    _kernels = kernels

    def __init__(self, store: DenseStore, n_threads: int = 1) -> None:
        super().__init__(store.n_words)
        cones = new_cones(np.diagonal(store.A), np.diagonal(store.B), _ROUNDING_OF_SUMS)
        self._state = kernels.BoundState(
            A=store.A,
            B=store.B,
            cones=cones,
            changed=np.zeros(store.n_words + 1, dtype=np.int64),
            n_changed=np.zeros(1, dtype=np.int64),
        )
        self.start_score = float(current_score(cones.traces))

        def scan(start: int, stop: int) -> None:
            kernels.scan_fresh_rows(self._state._replace(cones=own_scratch(cones)), start, stop)

        run_over_ranges(scan, store.n_words, n_threads)
        end_first_scan(cones)

    @property
    def _slots(self) -> cone_kernels.Cones:
        return self._state.cones

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first look at each; the row of a merged word is scanned as it is formed."""
        return {"row_scans": int(self._slots.counts[cone_kernels.SCANS])}


def new_cones(
    own_a: NDArray[np.float64], own_b: NDArray[np.float64], rounding: float, costly: bool = False
) -> cone_kernels.Cones:
    """Start the memory of a bound search over words with these diagonals of A and B.

    `rounding` says how far entries may be from the truth, in units of the last place of the traces, and `costly`
    whether rows are worth remembering more of.
    """
    d = len(own_a)

    def per_slot(dtype: type = np.float64) -> NDArray:
        return np.zeros(d, dtype=dtype)

    cones = cone_kernels.Cones(
        word=np.arange(d, dtype=np.int64),
        order=np.arange(d, 0, -1, dtype=np.int64),
        own_a=np.array(own_a),
        own_b=np.array(own_b),
        peak_a=per_slot(),
        peak_b=per_slot(),
        partner=per_slot(np.int64),
        right=per_slot(),
        left=per_slot(),
        next_a=np.full(d, -np.inf),
        next_b=per_slot(),
        next_ratio=per_slot(),
        low=per_slot(),
        high=per_slot(),
        watch=np.full((6, d // cone_kernels.WATCH + 1), np.inf),
        candidates=per_slot(np.int64),
        lanes=np.zeros(3 * LANES),
        traces=np.zeros(N_TRACES),
        bests=np.zeros(cone_kernels.N_BESTS),
        counts=np.zeros(cone_kernels.N_COUNTS, dtype=np.int64),
    )
    cones.bests[cone_kernels.ROUNDING] = rounding * cone_kernels.EPS
    cones.counts[cone_kernels.SIZE] = cones.counts[cone_kernels.LIVE] = d
    cones.counts[cone_kernels.COSTLY] = costly
    cones.counts[cone_kernels.NEWEST] = cones.counts[cone_kernels.RUNNER_UP] = -1
    start_traces(cones.traces, cones.own_a, cones.own_b)
    return cones


def own_scratch(cones: cone_kernels.Cones) -> cone_kernels.Cones:
    """The same memory with scratch of its own, for scanning rows in another thread."""
    return cones._replace(lanes=np.zeros(3 * LANES), traces=cones.traces.copy())


def end_first_scan(cones: cone_kernels.Cones) -> None:
    """Collect what threads that scanned all rows found."""
    cones.traces[SCALE] = np.abs(cones.peak_a[np.isfinite(cones.peak_a)]).max(initial=0.0)
