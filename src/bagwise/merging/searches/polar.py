"""The polar search: the papers' index of pairs by distance and angle."""

from __future__ import annotations

import numpy as np

from bagwise.errors import BagwiseError
from bagwise.merging.searches import _polar_kernels as kernels
from bagwise.merging.searches._common_kernels import N_TRACES, current_score, start_traces
from bagwise.merging.searches.base import RowSearch
from bagwise.merging.stores import DenseStore

_MOST_WORDS = 46_340  # pairs are stored as 32-bit numbers


class PolarSearch(RowSearch):
    """Evaluate only the pairs in the parts of a polar index that can hold the best one.

    The index takes 8 bytes a pair on top of A and B. Both A and B must be positive semi-definite.
    """

    _kernels = kernels

    def __init__(self, store: DenseStore) -> None:
        super().__init__(store.n_words)
        d = store.n_words
        if d > _MOST_WORDS:
            raise BagwiseError(f"search='polar' handles up to {_MOST_WORDS} words, got {d}. Use search='bound'.")
        n_pairs = d * (d - 1) // 2
        # Each bin may leave one block partly empty.
        n_blocks = n_pairs // kernels.BLOCK + kernels.N_BINS + 1
        self._state = kernels.PolarState(
            A=store.A,
            B=store.B,
            word=np.arange(d, dtype=np.int64),
            order=np.zeros(d, dtype=np.int64),
            radii=np.zeros(kernels.N_RINGS + 2),
            place=np.empty(n_pairs, dtype=np.int32),
            pool=np.empty(n_blocks * kernels.BLOCK, dtype=np.int32),
            next_block=np.empty(n_blocks, dtype=np.int64),
            block_bin=np.empty(n_blocks, dtype=np.int64),
            head=np.empty(kernels.N_BINS + 1, dtype=np.int64),
            fill=np.empty(kernels.N_BINS, dtype=np.int64),
            seen=np.full(kernels.N_BINS, -1, dtype=np.int64),
            best=np.zeros(3),
            winner=np.zeros(2, dtype=np.int64),
            traces=np.zeros(N_TRACES),
            counts=np.array([d, d, 0, 0], dtype=np.int64),
        )
        start_traces(self._state.traces, np.diagonal(store.A), np.diagonal(store.B))
        self.start_score = float(current_score(self._state.traces))
        halvings = np.arange(kernels.N_RINGS, -1, -1)
        self._state.radii[1:] = kernels.largest_radius(store.A, store.B) * 0.5**halvings
        kernels.build_index(self._state)

    @property
    def work(self) -> dict[str, int]:  # noqa: D102
        return {"pairs_evaluated": int(self._state.counts[kernels.EVALUATED])}
