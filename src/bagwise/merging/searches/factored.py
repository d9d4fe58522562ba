"""The bound search over rows that are computed when they are needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.progress import ProgressBar
from bagwise._utils.threads import run_over_ranges
from bagwise.merging.searches import _cone_kernels as kernels
from bagwise.merging.searches._common_kernels import current_score
from bagwise.merging.searches.base import Search
from bagwise.merging.searches.bound import end_first_scan, new_cones, own_scratch
from bagwise.merging.stores.factored import FactoredStore

__all__ = ["FactoredSearch"]

# Pack once fewer than this share of the slots is live: rows get shorter, and sparse data get fewer non-zeros.
_SPARSE = 0.8
# Rows that one thread looks at in one go.
_ROWS = 8


class FactoredSearch(Search):
    """`BoundSearch` for a store that computes rows: the same pairs, in O(d) memory beyond the store.

    All rows are looked at once, block by block. After that a level takes the row of the merged word and the few rows
    whose bound reaches the best pair.
    """

    def __init__(self, store: FactoredStore, n_threads: int = 1, show_progress: bool = False) -> None:
        super().__init__(store.size)
        self._store = store
        self._cones = new_cones(*store.diagonals(), store.rounding, costly=True)
        self.start_score = float(current_score(self._cones.traces))
        with ProgressBar("looking at all pairs", store.size, enabled=show_progress) as bar:
            for blocks, start, stop in store.blocks(n_threads):

                def scan(first: int, last: int, blocks: tuple = blocks, start: int = start) -> None:
                    kernels.scan_block_rows(own_scratch(self._cones), blocks[0], blocks[1], start, first, last)

                run_over_ranges(scan, stop - start, n_threads, _ROWS)
                bar.update(stop)
        end_first_scan(self._cones)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        store, cones = self._store, self._cones
        for k in range(len(pairs)):
            if cones.counts[kernels.LIVE] < _SPARSE * cones.counts[kernels.SIZE]:
                self._pack()
            s, t = self._find()
            pairs[k] = cones.word[s], cones.word[t]
            kernels.join(cones, s, t, *store.entry(s, t))
            store.merge(s, t)
            if cones.counts[kernels.LIVE] > 1:
                kernels.scan_with_cone(cones, s, *store.row(s), 0)
            scores[k] = current_score(cones.traces)

    def _find(self) -> tuple[int, int]:
        """Slots of the pair to merge next."""
        kernels.open_level(self._cones)
        while (wanted := kernels.next_wanted(self._cones)) >= 0:
            kernels.take_row(self._cones, wanted, *self._store.row(wanted))
        return kernels.best_pair(self._cones)

    def _pack(self) -> None:
        place = np.empty(self._cones.counts[kernels.SIZE], dtype=np.int64)
        n = kernels.pack_cones(self._cones, self._cones.candidates, place)
        self._store.pack(self._cones.candidates[:n].copy(), place)

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first look at each, and what the store did for it."""
        return {"row_scans": int(self._cones.counts[kernels.SCANS]), **self._store.work}
