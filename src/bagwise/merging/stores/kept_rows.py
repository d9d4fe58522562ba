"""Rows that are worth keeping, because computing them again takes long."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.stores._factor_kernels import replay

__all__ = ["KeptRows"]


class KeptRows:
    """A store of rows within a number of bytes, of those that cost most to compute and were used last.

    A row that is to be given up is the one with the lowest credit: what it costs, plus the credit of the last row
    given up when it was used last (the GreedyDual rule). Rows have one entry per slot. When other slots are merged,
    kept rows follow only when they are asked for.
    """

    def __init__(self, n_bytes: float) -> None:
        self.n_bytes = n_bytes
        self._rows: dict[int, NDArray[np.float64]] = {}
        self._cost: dict[int, float] = {}
        self._credit: dict[int, float] = {}
        self._seen: dict[int, int] = {}  # merges that a row has followed
        self._by_credit: list[tuple[float, int]] = []  # a heap, in which only current credits count
        self._paid = 0.0
        self._used = 0
        self._merges = np.empty((1024, 2), dtype=np.int64)
        self._n_merges = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, slot: int) -> bool:
        return slot in self._rows

    def get(self, slot: int) -> NDArray[np.float64] | None:
        """The row of a slot as it is now, to be read or taken over; None if it is not kept."""
        row = self._rows.get(slot)
        if row is not None:
            self._bring_up_to_date(slot)
            self._set_credit(slot)
        return row

    def put(self, slot: int, row: NDArray[np.float64], cost: float) -> None:
        """Keep a row, giving up others that are worth less; or do not, if it is worth least."""
        self.drop(slot)
        while self._used + row.nbytes > self.n_bytes:
            least = self._least()
            if least is None or self._credit[least] >= self._paid + cost:
                return
            self._paid = self._credit[least]
            self.drop(least)
        self._rows[slot] = row
        self._cost[slot] = cost
        self._seen[slot] = self._n_merges
        self._used += row.nbytes
        self._set_credit(slot)

    def drop(self, slot: int) -> None:
        """Forget the row of a slot, if it is kept."""
        row = self._rows.pop(slot, None)
        if row is not None:
            self._used -= row.nbytes
            del self._cost[slot], self._credit[slot], self._seen[slot]

    def merge(self, s: int, t: int) -> None:
        """Slot t was merged into slot s: their rows are gone, all others will follow."""
        self.drop(s)
        self.drop(t)
        if self._n_merges == len(self._merges):
            self._merges = np.concatenate([self._merges, np.empty_like(self._merges)])
        self._merges[self._n_merges] = s, t
        self._n_merges += 1

    def pack(self, slots: NDArray[np.int64], place: NDArray[np.int64]) -> None:
        """Slots are renumbered: `slots` lists the old numbers of those that are left, `place` gives the new ones."""
        rows, costs, credits = {}, {}, {}
        for old in self._rows:
            self._bring_up_to_date(old)
            new = int(place[old])
            rows[new] = self._rows[old][slots]
            costs[new], credits[new] = self._cost[old], self._credit[old]
        self._rows, self._cost, self._credit = rows, costs, credits
        self._n_merges = 0
        self._seen = dict.fromkeys(rows, 0)
        self._used = sum(row.nbytes for row in rows.values())
        self._sort_by_credit()

    def _set_credit(self, slot: int) -> None:
        self._credit[slot] = self._paid + self._cost[slot]
        heapq.heappush(self._by_credit, (self._credit[slot], slot))
        if len(self._by_credit) > 4 * len(self._rows) + 1024:  # mostly credits of the past
            self._sort_by_credit()

    def _sort_by_credit(self) -> None:
        self._by_credit = [(credit, slot) for slot, credit in self._credit.items()]
        heapq.heapify(self._by_credit)

    def _least(self) -> int | None:
        """The slot whose row has the lowest credit."""
        while self._by_credit:
            credit, slot = self._by_credit[0]
            if self._credit.get(slot) == credit:
                return slot
            heapq.heappop(self._by_credit)
        return None

    def _bring_up_to_date(self, slot: int) -> None:
        replay(self._rows[slot], self._merges[self._seen[slot] : self._n_merges])
        self._seen[slot] = self._n_merges
