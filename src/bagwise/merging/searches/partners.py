"""The search for additive scores: the best partner of every word is cached."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.merging.scoring import Scoring
from bagwise.merging.searches.base import Search

_DEAD = np.iinfo(np.int64).max
# Repack once less than this fraction of the slots is live.
_SPARSE = 0.7
_RESUM_EVERY = 256
# Partners that a row caches beside the best one.
_REMEMBERED = 5


class PartnerSearch(Search):
    """Merge, at each level, the pair that gains most under an additive score.

    As in the bound search, a pair belongs to the row of the word changed last, so a row only loses pairs. Gains of
    words that were not merged do not change; so a row's best gain is exact while its partner exists, and an upper
    bound afterwards. A row caches its few best partners, and is rescanned only when it leads and all of them are gone.
    Of equal gains the pair with the lowest s, then the lowest t, is merged. Memory O(d) beyond the states; time O(d²)
    gains on ordinary data.
    """

    def __init__(self, scoring: Scoring) -> None:
        states = np.array(scoring.states, dtype=np.float64, order="F")  # a copy: merging writes to it
        super().__init__(len(states))
        d = self.n_words
        self._scoring = scoring
        self._states = states
        self._terms = np.asarray(scoring.terms(states), dtype=np.float64)
        if self._terms.shape != (d,) or not np.isfinite(self._terms).all():
            raise BagwiseError(
                f"{type(scoring).__name__}.terms must give one finite number for each of {d} states; got "
                + (f"shape {self._terms.shape}." if self._terms.shape != (d,) else "NaN or infinity among them.")
            )
        self._word = np.arange(d, dtype=np.int64)
        self._order = np.arange(d, 0, -1, dtype=np.int64)
        self._gain = np.full(d, -np.inf)  # of the best partner when the row was scanned
        self._partner = np.full(d, -1, dtype=np.int64)
        self._next_gains = np.full((d, _REMEMBERED), -np.inf)  # in descending order, without the best
        self._next_partners = np.zeros((d, _REMEMBERED), dtype=np.int64)
        self._level = 0
        self._scans = 0
        self.start_score = self._score = float(scoring.offset + self._terms.sum())
        self._scanned = 0  # rows scanned for the first time; see `advance`

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        for i in range(self._scanned, self.n_words - 1 if self._level == 0 else 0):
            self._scan(i, first=i + 1)
        self._scanned = self.n_words
        for k in range(len(pairs)):
            if len(self._word) > 64 and self.n_words - self._level < _SPARSE * len(self._word):
                self._pack()
            s, t = self._search()
            pairs[k] = self._word[s], self._word[t]
            self._merge(s, t)
            scores[k] = self._score

    def _search(self) -> tuple[int, int]:
        """Find the pair that gains most; of equals the one with the lowest indices."""
        while True:
            leading = np.flatnonzero(self._gain == self._gain.max())
            partners = self._partner[leading]
            stale = leading[self._order[partners] >= self._order[leading]]
            if len(stale) == 0:
                s, t = np.minimum(leading, partners), np.maximum(leading, partners)
                first = np.lexsort((t, s))[0]
                return int(s[first]), int(t[first])
            for i in stale.tolist():
                if not self._take_next(i):
                    self._scan(i)
                    self._scans += 1

    def _take_next(self, i: int) -> bool:
        """Replace a partner that is gone by the best cached one that exists; False if there is none."""
        there = self._order[self._next_partners[i]] < self._order[i]
        there &= self._next_gains[i] > -np.inf
        if not there.any():
            return False
        k = int(np.argmax(there))
        self._gain[i], self._partner[i] = self._next_gains[i, k], self._next_partners[i, k]
        self._next_gains[i, : k + 1] = -np.inf
        return True

    def _scan(self, i: int, first: int = 0) -> None:
        """Find the best partners of row i among the slots from `first` on whose pairs it owns."""
        others = self._states[first:]
        gains = np.array(
            self._scoring.gains(self._states[i], self._terms[i], others, self._terms[first:]), dtype=np.float64
        )
        if gains.shape != (len(others),) or np.isnan(gains).any():
            got = f"shape {gains.shape}" if gains.shape != (len(others),) else "NaN among them"
            raise BagwiseError(
                f"{type(self._scoring).__name__} must give one gain for each of {len(others)} other words; got {got}."
            )
        gains[self._order[first:] >= self._order[i]] = -np.inf
        best = int(np.argmax(gains))
        self._gain[i], self._partner[i] = gains[best], first + best
        for k in range(_REMEMBERED):  # cheaper than sorting
            gains[best] = -np.inf
            best = int(np.argmax(gains))
            self._next_gains[i, k], self._next_partners[i, k] = gains[best], first + best

    def _merge(self, s: int, t: int) -> None:
        self._level += 1
        before = self._terms[s] + self._terms[t]
        self._states[s] += self._states[t]
        self._terms[s] = self._scoring.terms(self._states[s : s + 1])[0]
        self._score += self._terms[s] - before
        self._order[t] = _DEAD
        self._order[s] = self.n_words + self._level
        self._gain[t] = -np.inf
        if self._level % _RESUM_EVERY == 0:
            self._score = float(self._scoring.offset + self._terms[self._order != _DEAD].sum())
        self._scan(s)

    def _pack(self) -> None:
        """Close the gaps that dead slots left, keeping the order."""
        live = np.flatnonzero(self._order != _DEAD)
        new_slot = np.full(len(self._order), 0)
        new_slot[live] = np.arange(len(live))
        # A partner that is gone stays gone: such a row points at itself, which it does not own.
        gone = self._order[self._partner] == _DEAD
        partner = np.where(gone, np.arange(len(new_slot)), self._partner)
        self._partner = new_slot[partner[live]]
        # the same for the other cached ones
        self._next_gains[self._order[self._next_partners] == _DEAD] = -np.inf
        self._next_gains = self._next_gains[live]
        self._next_partners = new_slot[self._next_partners[live]]
        self._states = np.asfortranarray(self._states[live])
        self._terms, self._gain = self._terms[live], self._gain[live]
        self._word, self._order = self._word[live], self._order[live]

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first scan of each; the row of a merged word is scanned as it is formed."""
        return {"row_scans": self._scans}
