"""Searches for trace ratios: the pair that maximises ``(tr A + 2 A_st) / (tr B + 2 B_st)``, level by level.

All of them merge the same pairs and differ in how many they evaluate. Equally good pairs are merged in the order of
their indices: the lowest s, then the lowest t.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.progress import ProgressBar
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.searches import _bound_kernels as bound_kernels
from bagwise.merging.searches import _kernels as exhaustive_kernels
from bagwise.merging.searches import _polar_kernels as polar_kernels
from bagwise.merging.searches._kernels import DEAD, N_TRACES, SCALE, WIDTH, current_score, start_traces
from bagwise.merging.searches.base import GivenMerges, Search
from bagwise.merging.stores.dense import DenseStore
from bagwise.merging.stores.device import DeviceStore
from bagwise.merging.stores.factored import FactoredStore

__all__ = ["SEARCHES", "DenseSearch", "FactoredSearch", "equal_merges"]

# Entries that are only ever added are this many units in the last place of the traces away from the truth.
_ROUNDING_OF_SUMS = 8
# Slots are packed once less than this fraction of them is live: rows get shorter, and sparse data have fewer non-zeros.
_LIVE_FRACTION = 0.8
# Rows that one thread scans at a time.
_ROWS = 8
_MOST_POLAR_WORDS = 46_340  # pairs are stored as 32-bit numbers
# Differences below this fraction of the trace are rounding.
_ROUNDING = 1e-14
# Beside B, an A below this is rounding: class means are exact to about 1e-16, and A is their square.
_NOTHING = 1e-26
_VANISHED = 1e-12


class DenseSearch(Search):
    """A search over a `DenseStore`, which can also be led merge by merge (`find`, `merge_given`)."""

    _kernels: Any
    _state: Any

    def _begin(self, state: Any) -> None:
        """Start from a state that has A and B itself."""
        self._state = state
        start_traces(state.traces, np.diagonal(state.A), np.diagonal(state.B), state.order)
        self.start_score = float(current_score(state.traces))

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        self._kernels.advance(self._state, pairs, scores)

    def find(self) -> tuple[int, int]:
        """Slots of the pair to merge next."""
        return self._kernels.find(self._state)

    def merge_given(self, s: int, t: int, row_a: NDArray[np.float64], row_b: NDArray[np.float64]) -> float:
        """Merge slot t into slot s, whose new entries with all slots are given; returns the criterion after it."""
        return float(self._kernels.merge_given(self._state, s, t, row_a, row_b))

    def words(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The words in all slots, and the slots that are live."""
        slots = self._slots
        size = slots.counts[0]
        return slots.word[:size], np.flatnonzero(slots.order[:size] != DEAD)

    @property
    def _slots(self) -> Any:
        """The part of the state that describes the slots: `counts`, which begins with their number, `word`, `order`."""
        return self._state

    @property
    def work(self) -> dict[str, int]:  # noqa: D102
        return {"pairs_evaluated": int(self._state.counts[exhaustive_kernels.EVALUATED])}


class BoundSearch(DenseSearch):
    """Keep an upper bound of the best ratio of each row; rescan a row only if its bound reaches the best pair.

    Every pair belongs to one row, that of the word changed last, so that rows only lose pairs and their bounds
    stay valid. Time O(d²) on ordinary data, the order of forming A and B; memory O(d) beyond them.
    """

    _kernels = bound_kernels

    def __init__(self, store: DenseStore, n_threads: int = 1) -> None:
        super().__init__(store.n_words)
        bounds = _new_bounds(np.diagonal(store.A), np.diagonal(store.B), _ROUNDING_OF_SUMS)
        self._state = bound_kernels.BoundState(
            A=store.A,
            B=store.B,
            bounds=bounds,
            changed=np.zeros(store.n_words + 1, dtype=np.int64),
            n_changed=np.zeros(1, dtype=np.int64),
        )
        self.start_score = float(current_score(bounds.traces))

        def scan(start: int, stop: int) -> None:
            bound_kernels.scan_fresh_rows(self._state._replace(bounds=_own_scratch(bounds)), start, stop)

        run_over_ranges(scan, store.n_words, n_threads)
        _end_first_scan(bounds)

    @property
    def _slots(self) -> bound_kernels.RowBounds:
        return self._state.bounds

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first scan of each; the row of a merged word is scanned as it is formed."""
        return {"row_scans": int(self._slots.counts[bound_kernels.SCANS])}


class FactoredSearch(Search):
    """`BoundSearch` for a store that computes rows: the same pairs, in O(d) memory beyond the store.

    All rows are scanned once, block by block. After that a level takes the row of the merged word and the few rows
    whose bound reaches the best pair.
    """

    def __init__(self, store: FactoredStore, n_threads: int = 1, show_progress: bool = False) -> None:
        super().__init__(store.size)
        self._store = store
        self._bounds = _new_bounds(*store.diagonals(), store.rounding, costly=True)
        self.start_score = float(current_score(self._bounds.traces))
        with ProgressBar("scanning all pairs", store.size, enabled=show_progress) as bar:
            for blocks, start, stop in store.blocks(n_threads):

                def scan(first: int, last: int, blocks: tuple = blocks, start: int = start) -> None:
                    bound_kernels.scan_block_rows(_own_scratch(self._bounds), blocks[0], blocks[1], start, first, last)

                run_over_ranges(scan, stop - start, n_threads, _ROWS)
                bar.update(stop)
        _end_first_scan(self._bounds)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        store, bounds = self._store, self._bounds
        for k in range(len(pairs)):
            if bounds.counts[bound_kernels.LIVE] < _LIVE_FRACTION * bounds.counts[bound_kernels.SIZE]:
                self._pack()
            s, t = self._find()
            pairs[k] = bounds.word[s], bounds.word[t]
            bound_kernels.join(bounds, s, t, *store.entry(s, t))
            store.merge(s, t)
            if bounds.counts[bound_kernels.LIVE] > 1:
                bound_kernels.scan_tight(bounds, s, *store.row(s), 0)
            scores[k] = current_score(bounds.traces)

    def _find(self) -> tuple[int, int]:
        """Slots of the pair to merge next."""
        bound_kernels.open_level(self._bounds)
        while (wanted := bound_kernels.next_wanted(self._bounds)) >= 0:
            bound_kernels.take_row(self._bounds, wanted, *self._store.row(wanted))
        return bound_kernels.best_pair(self._bounds)

    def _pack(self) -> None:
        place = np.empty(self._bounds.counts[bound_kernels.SIZE], dtype=np.int64)
        n = bound_kernels.pack_bounds(self._bounds, self._bounds.candidates, place)
        self._store.pack(self._bounds.candidates[:n].copy(), place)

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first scan of each, and the work of the store."""
        return {"row_scans": int(self._bounds.counts[bound_kernels.SCANS]), **self._store.work}


class ExhaustiveSearch(DenseSearch):
    """Evaluate all pairs at each level, O(d³): the oracle for the other searches."""

    _kernels = exhaustive_kernels

    def __init__(self, store: DenseStore, n_threads: int = 1) -> None:
        super().__init__(store.n_words)
        d = store.n_words
        state = exhaustive_kernels.ExhaustiveState(
            A=store.A,
            B=store.B,
            word=np.arange(d, dtype=np.int64),
            order=np.zeros(d, dtype=np.int64),
            slots=np.zeros(d, dtype=np.int64),
            partial=np.zeros(3 * WIDTH),
            traces=np.zeros(N_TRACES),
            counts=np.array([d, d, 0, 0], dtype=np.int64),
        )
        self._begin(state)


class PolarSearch(DenseSearch):
    """Evaluate only the pairs in the bins of a polar index that can hold the best one, as in the papers.

    The index takes 8 bytes a pair on top of A and B. Both A and B must be positive semi-definite.
    """

    _kernels = polar_kernels

    def __init__(self, store: DenseStore, n_threads: int = 1) -> None:
        super().__init__(store.n_words)
        d = store.n_words
        if d > _MOST_POLAR_WORDS:
            raise BagwiseError(f"search='polar' handles up to {_MOST_POLAR_WORDS} words, got {d}. Use search='bound'.")
        n_pairs = d * (d - 1) // 2
        n_bins, block = polar_kernels.N_BINS, polar_kernels.BLOCK
        n_blocks = n_pairs // block + n_bins + 1  # each bin may leave one block partly empty
        state = polar_kernels.PolarState(
            A=store.A,
            B=store.B,
            word=np.arange(d, dtype=np.int64),
            order=np.zeros(d, dtype=np.int64),
            radii=np.zeros(polar_kernels.N_RINGS + 2),
            place=np.empty(n_pairs, dtype=np.int32),
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
        self._begin(state)
        halvings = np.arange(polar_kernels.N_RINGS, -1, -1)
        state.radii[1:] = polar_kernels.largest_radius(store.A, store.B) * 0.5**halvings
        polar_kernels.build_index(state)


# Called with a store, whose matrices the search takes over, and a number of threads.
SEARCHES: dict[str, Any] = {"bound": BoundSearch, "polar": PolarSearch, "exhaustive": ExhaustiveSearch}


def _new_bounds(
    own_a: NDArray[np.float64], own_b: NDArray[np.float64], rounding: float, costly: bool = False
) -> bound_kernels.RowBounds:
    """Start the memory of a bound search over words with these diagonals of A and B.

    `rounding` says how far entries may be from the truth, in units of the last place of the traces. `costly` says
    that rows are costly to compute, so that more is remembered of them.
    """
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
    bounds.bests[bound_kernels.ROUNDING] = rounding * bound_kernels.EPS
    bounds.counts[bound_kernels.SIZE] = bounds.counts[bound_kernels.LIVE] = d
    bounds.counts[bound_kernels.COSTLY] = costly
    bounds.counts[bound_kernels.NEWEST] = bounds.counts[bound_kernels.RUNNER_UP] = -1
    start_traces(bounds.traces, bounds.own_a, bounds.own_b, bounds.order)
    return bounds


def _own_scratch(bounds: bound_kernels.RowBounds) -> bound_kernels.RowBounds:
    """The same memory with scratch of its own, for scanning rows in another thread."""
    return bounds._replace(partial=np.zeros(3 * WIDTH), traces=bounds.traces.copy())


def _end_first_scan(bounds: bound_kernels.RowBounds) -> None:
    """Collect what the threads that scanned all rows found."""
    bounds.traces[SCALE] = np.abs(bounds.top_a[np.isfinite(bounds.top_a)]).max(initial=0.0)


def equal_merges(store: DenseStore | DeviceStore | FactoredStore, n_threads: int = 1) -> GivenMerges | None:
    """Merge words in their order if no merge is better than any other; None if some are.

    That is so where A is a multiple of B up to rounding (two samples, one sample per class) or vanishes beside it
    (equal class means). Merging keeps it so, and a search would compare rounding errors, at full cost. One pass over
    the rows of A and B.
    """
    rounding = _ROUNDING
    if isinstance(store, DenseStore):
        own_a, own_b = np.diagonal(store.A), np.diagonal(store.B)
    else:
        own_a, own_b = store.diagonals()
    if isinstance(store, FactoredStore):
        rounding = max(rounding, store.rounding * np.finfo(np.float64).eps)
    trace_a, trace_b = float(own_a.sum()), float(own_b.sum())
    if not trace_b > 0 or len(own_a) <= 2:
        return None
    vanishes = bool(np.all(own_a <= _NOTHING * own_b))

    def proportional(entries_a: NDArray[np.float64], entries_b: NDArray[np.float64]) -> bool:
        """Whether these entries of A are those of B times the ratio of the traces."""
        return vanishes or bool(
            np.abs(entries_a - trace_a / trace_b * entries_b).max(initial=0.0) <= rounding * trace_a
        )

    if not proportional(own_a, own_b):
        return None
    if isinstance(store, DenseStore):
        if not all(proportional(store.A[i], store.B[i]) for i in range(len(own_a))):
            return None
        changes = np.array([[M[:t, t].sum() for t in range(1, len(own_a))] for M in (store.A, store.B)])
    elif isinstance(store, DeviceStore):
        if not vanishes and store.largest_deviation(trace_a / trace_b) > rounding * trace_a:
            return None
        changes = store.sums_above_diagonal()[:, 1:]
    else:
        sums = np.zeros((2, store.size))
        for blocks, start, stop in store.blocks(n_threads):
            for i in range(start, stop):  # right of the diagonal, where blocks are filled
                rows = [block[i - start, i + 1 :] for block in blocks]
                if not proportional(*rows):
                    return None
                sums[:, i + 1 :] += rows
        changes = sums[:, 1:]
    # Merge word 1 into word 0, then word 2 and so on.
    traces_a, traces_b = (
        np.cumsum(np.concatenate([[trace], 2.0 * change]))
        for trace, change in zip((trace_a, trace_b), changes, strict=True)
    )
    defined = traces_b > _VANISHED * np.maximum.accumulate(traces_b)
    if not defined[:-1].all():  # all words become constant while there are pairs to choose from
        return None
    values = np.where(defined, traces_a / np.where(defined, traces_b, 1.0), np.nan)
    d = len(values)
    merges = np.stack([np.zeros(d - 1, dtype=np.int64), np.arange(1, d)], axis=1)
    return GivenMerges(Hierarchy(d, merges, values[1:]), float(values[0]))
