"""Searches for trace ratios: the pair that maximises ``(tr A + 2 A_st) / (tr B + 2 B_st)``, level by level.

All of them merge the same pairs and differ in how many they evaluate. Equally good pairs are merged in the order of
their indices: the lowest s, then the lowest t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.devices import to_host
from bagwise._utils.progress import ProgressBar
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.kernel_rows import KernelRows
from bagwise.merging.rows import DenseRows, RatioRows
from bagwise.merging.searches import _bound_kernels as bound_kernels
from bagwise.merging.searches import _kernels as exhaustive_kernels
from bagwise.merging.searches import _polar_kernels as polar_kernels
from bagwise.merging.searches._kernels import DEAD, N_TRACES, SCALE, WIDTH, current_score, start_traces
from bagwise.merging.searches.base import GivenMerges, Search

__all__ = ["SEARCHES", "BoundSearch", "equal_merges"]

# Slots are packed once less than this fraction of them is live: rows get shorter, and sparse data have fewer non-zeros.
_LIVE_FRACTION = 0.8
# Rows that one thread scans at a time.
_ROWS, _COSTLY_ROWS = 256, 8
_MOST_POLAR_WORDS = 46_340  # pairs are stored as 32-bit numbers
# Differences below this fraction of the trace are rounding.
_ROUNDING = 1e-14
# Beside B, an A below this is rounding: class means are exact to about 1e-16, and A is their square.
_NOTHING = 1e-26
_VANISHED = 1e-12


class BoundSearch(Search):
    """Keep an upper bound of the best ratio of each row; rescan a row only if its bound reaches the best pair.

    Every pair belongs to one row, that of the word changed last, so that rows only lose pairs and their bounds
    stay valid. All rows are scanned once, block by block; after that a level takes the row of the merged word and the
    few rows whose bound reaches the best pair. Time O(d²) on ordinary data, the order of forming A and B; memory O(d)
    beyond the rows. Matrices are merged by compiled code, other rows by a loop over the same kernels.
    """

    def __init__(self, rows: RatioRows, n_threads: int = 1, show_progress: bool = False) -> None:
        super().__init__(rows.size)
        self._rows = rows
        self._bounds = bounds = _new_bounds(rows)
        self.start_score = float(current_score(bounds.traces))
        with ProgressBar("scanning all pairs", rows.size, enabled=show_progress) as bar:
            for blocks, start, stop in rows.blocks(n_threads):

                def scan(first: int, last: int, blocks: tuple = blocks, start: int = start) -> None:
                    scratch = bounds._replace(partial=np.zeros(3 * WIDTH), traces=bounds.traces.copy())
                    bound_kernels.scan_block_rows(scratch, blocks[0], blocks[1], start, first, last)

                run_over_ranges(scan, stop - start, n_threads, _COSTLY_ROWS if rows.costly else _ROWS)
                bar.update(stop)
        bounds.traces[SCALE] = np.abs(bounds.top_a[np.isfinite(bounds.top_a)]).max(initial=0.0)
        self._state: Any = None
        if rows.compiled:
            assert isinstance(rows, DenseRows)
            self._state = bound_kernels.BoundState(
                A=rows.A,
                B=rows.B,
                bounds=bounds,
                changed=np.zeros(rows.size + 1, dtype=np.int64),
                n_changed=np.zeros(1, dtype=np.int64),
            )

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        if self._state is not None:
            bound_kernels.advance(self._state, pairs, scores)
            return
        rows, bounds = self._rows, self._bounds
        for k in range(len(pairs)):
            if bounds.counts[bound_kernels.LIVE] < _LIVE_FRACTION * bounds.counts[bound_kernels.SIZE]:
                self._pack()
            s, t = self._find()
            pairs[k] = bounds.word[s], bounds.word[t]
            bound_kernels.join(bounds, s, t, *rows.entry(s, t))
            rows.merge(s, t)
            if bounds.counts[bound_kernels.LIVE] > 1:
                bound_kernels.scan_tight(bounds, s, *rows.row(s), 0)
            scores[k] = current_score(bounds.traces)

    def _find(self) -> tuple[int, int]:
        """Slots of the pair to merge next."""
        bound_kernels.open_level(self._bounds)
        while (wanted := bound_kernels.next_wanted(self._bounds)) >= 0:
            bound_kernels.take_row(self._bounds, wanted, *self._rows.row(wanted))
        return bound_kernels.best_pair(self._bounds)

    def _pack(self) -> None:
        new_slot = np.empty(self._bounds.counts[bound_kernels.SIZE], dtype=np.int64)
        n = bound_kernels.pack_bounds(self._bounds, self._bounds.candidates, new_slot)
        self._rows.pack(self._bounds.candidates[:n].copy(), new_slot)

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first scan of each; the row of a merged word is scanned as it is formed."""
        return {"row_scans": int(self._bounds.counts[bound_kernels.SCANS])}


class _PairSearch(Search):
    """A search that looks at pairs of A and B in memory."""

    _kernels: Any

    def __init__(self, rows: DenseRows, state: Any) -> None:
        super().__init__(rows.size)
        self._rows, self._state = rows, state
        start_traces(state.traces, *rows.diagonals(), state.order)
        self.start_score = float(current_score(state.traces))

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:
        state, rows = self._state, self._rows
        if rows.compiled:
            self._kernels.advance(state, pairs, scores)
            return
        assert isinstance(rows, KernelRows)
        for k in range(len(pairs)):
            s, t = self._kernels.find(state)
            size = state.counts[exhaustive_kernels.SIZE]
            pairs[k] = state.word[s], state.word[t]
            row_a, row_b = rows.joined(s, t, state.word[:size], state.order[:size] != DEAD)
            scores[k] = self._kernels.merge_given(state, s, t, row_a, row_b)

    @property
    def work(self) -> dict[str, int]:
        return {"pairs_evaluated": int(self._state.counts[exhaustive_kernels.EVALUATED])}


class ExhaustiveSearch(_PairSearch):
    """Evaluate all pairs at each level, O(d³): the oracle for the other searches."""

    _kernels = exhaustive_kernels

    def __init__(self, rows: DenseRows, n_threads: int = 1, show_progress: bool = False) -> None:
        d = rows.size
        state = exhaustive_kernels.ExhaustiveState(
            A=rows.A,
            B=rows.B,
            word=np.arange(d, dtype=np.int64),
            order=np.zeros(d, dtype=np.int64),
            slots=np.zeros(d, dtype=np.int64),
            partial=np.zeros(3 * WIDTH),
            traces=np.zeros(N_TRACES),
            counts=np.array([d, d, 0, 0], dtype=np.int64),
        )
        super().__init__(rows, state)


class PolarSearch(_PairSearch):
    """Evaluate only the pairs in the bins of a polar index that can hold the best one, as in the papers.

    The index takes 8 bytes a pair on top of A and B. Both A and B must be positive semi-definite.
    """

    _kernels = polar_kernels

    def __init__(self, rows: DenseRows, n_threads: int = 1, show_progress: bool = False) -> None:
        d = rows.size
        if d > _MOST_POLAR_WORDS:
            raise BagwiseError(f"search='polar' handles up to {_MOST_POLAR_WORDS} words, got {d}. Use search='bound'.")
        n_pairs = d * (d - 1) // 2
        n_bins, block = polar_kernels.N_BINS, polar_kernels.BLOCK
        n_blocks = n_pairs // block + n_bins + 1  # each bin may leave one block partly empty
        state = polar_kernels.PolarState(
            A=rows.A,
            B=rows.B,
            word=np.arange(d, dtype=np.int64),
            order=np.zeros(d, dtype=np.int64),
            radii=np.zeros(polar_kernels.N_RINGS + 2),
            position=np.empty(n_pairs, dtype=np.int32),
            pool=np.empty(n_blocks * block, dtype=np.int32),
            next_block=np.empty(n_blocks, dtype=np.int64),
            block_bin=np.empty(n_blocks, dtype=np.int64),
            head=np.empty(n_bins + 1, dtype=np.int64),
            fill=np.empty(n_bins, dtype=np.int64),
            seen=np.full(n_bins, -1, dtype=np.int64),
            best=np.zeros(3),
            winner=np.zeros(2, dtype=np.int64),
            traces=np.zeros(N_TRACES),
            counts=np.array([d, d, 0, 0], dtype=np.int64),
        )
        super().__init__(rows, state)
        halvings = np.arange(polar_kernels.N_RINGS, -1, -1)
        state.radii[1:] = polar_kernels.largest_radius(rows.A, rows.B) * 0.5**halvings
        polar_kernels.build_index(state)


# Called with rows, which the search takes over, a number of threads, and whether to show progress.
SEARCHES: dict[str, Any] = {"bound": BoundSearch, "polar": PolarSearch, "exhaustive": ExhaustiveSearch}


def _new_bounds(rows: RatioRows) -> bound_kernels.RowBounds:
    """Start the memory of a bound search; its rounding is in units of the last place of the traces."""
    own_a, own_b = rows.diagonals()
    d = len(own_a)
    per_slot = ("top_a", "top_b", "right", "left", "next_b", "next_ratio", "low", "high")
    bounds = bound_kernels.RowBounds(
        word=np.arange(d, dtype=np.int64),
        order=np.arange(d, 0, -1, dtype=np.int64),
        own_a=np.array(own_a),
        own_b=np.array(own_b),
        partner=np.zeros(d, dtype=np.int64),
        next_a=np.full(d, -np.inf),
        watch=np.full((6, d // bound_kernels.WATCH + 1), np.inf),
        candidates=np.zeros(d, dtype=np.int64),
        partial=np.zeros(3 * WIDTH),
        traces=np.zeros(N_TRACES),
        bests=np.zeros(bound_kernels.N_BESTS),
        counts=np.zeros(bound_kernels.N_COUNTS, dtype=np.int64),
        **{name: np.zeros(d) for name in per_slot},
    )
    bounds.bests[bound_kernels.ROUNDING] = rows.rounding * bound_kernels.EPS
    bounds.counts[bound_kernels.SIZE] = bounds.counts[bound_kernels.LIVE] = d
    bounds.counts[bound_kernels.COSTLY] = rows.costly
    bounds.counts[bound_kernels.NEWEST] = bounds.counts[bound_kernels.RUNNER_UP] = -1
    start_traces(bounds.traces, bounds.own_a, bounds.own_b, bounds.order)
    return bounds


def equal_merges(rows: RatioRows, n_threads: int = 1) -> GivenMerges | None:
    """Merge words in their order if no merge is better than any other; None if some are.

    That is so where A is a multiple of B up to rounding (two samples, one sample per class) or vanishes beside it
    (equal class means). Merging keeps it so, and a search would compare rounding errors, at full cost. One pass over
    the rows of A and B.
    """
    own_a, own_b = rows.diagonals()
    d, trace_a, trace_b = len(own_a), float(own_a.sum()), float(own_b.sum())
    if not trace_b > 0 or d <= 2:
        return None
    vanishes = bool(np.all(own_a <= _NOTHING * own_b))
    ratio, nearest = trace_a / trace_b, max(_ROUNDING, rows.rounding * np.finfo(np.float64).eps) * trace_a
    if not (vanishes or np.abs(own_a - ratio * own_b).max() <= nearest):
        return None
    changes = np.zeros((2, d))
    for (block_a, block_b), start, stop in rows.blocks(n_threads):
        for first in range(start, stop, _ROWS):
            part = slice(first - start, min(first + _ROWS, stop) - start)
            above = [np.triu(block[part, first:], k=1) for block in (block_a, block_b)]
            if not (vanishes or float(abs(above[0] - ratio * above[1]).max()) <= nearest):
                return None
            changes[:, first:] += np.stack([to_host(one.sum(axis=0)) for one in above])
    # Merge word 1 into word 0, then word 2 and so on.
    traces_a, traces_b = (
        np.cumsum(np.concatenate([[trace], 2.0 * change[1:]]))
        for trace, change in zip((trace_a, trace_b), changes, strict=True)
    )
    defined = traces_b > _VANISHED * np.maximum.accumulate(traces_b)
    if not defined[:-1].all():  # all words become constant while there are pairs to choose from
        return None
    values = np.where(defined, traces_a / np.where(defined, traces_b, 1.0), np.nan)
    merges = np.stack([np.zeros(d - 1, dtype=np.int64), np.arange(1, d)], axis=1)
    return GivenMerges(Hierarchy(d, merges, values[1:]), float(values[0]))
