"""The search for sums over words whose costs are compiled: those of all additive criteria of the library."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from bagwise._utils.progress import ProgressBar
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError
from bagwise.merging.scoring import EVIDENCE, INFORMATION, WEIGHTS, Scoring
from bagwise.merging.searches import _sum_kernels as kernels
from bagwise.merging.searches._kernels import DEAD
from bagwise.merging.searches.base import Search

__all__ = ["SumSearch", "join_early"]

# Words are compared by products of coordinates if they have less than this fraction of them.
_FILLED = 1 / 3
# With lighter words all costs are computed: inverses of their masses would overflow.
_LIGHTEST = 1e-280
# Rows scanned between two looks at progress and Ctrl-C.
_ROWS = 1024


class SumSearch(Search):
    """Merge, at each level, the pair of the lowest cost, without computing the costs of most pairs.

    As in the bound search, a pair belongs to the row of the word changed last, at first to that of the lighter word, so
    rows only lose pairs. Costs of words that were not merged do not change: what a row recorded as its best pair is
    exact while the partner exists, and comes before all of its pairs afterwards. A tournament of all rows gives the
    first one; it is scanned only if all partners that it kept are gone.

    A scan computes lower bounds of the costs of a row, then the costs of the pairs with the lowest bounds, and of those
    whose bounds are not above these. With masses m and points x, ``cost >= |x_s - x_t|² / (1 / m_s + 1 / m_t)``:

    - for information the points are roots of the probabilities of classes given the word. As
      ``KL(p | q) >= |√p - √q|²``, the loss is at least Ward's cost of the roots. A second bound, of the order of the
      distance to the fourth power away from the loss, is computed where the first one does not decide;
    - for weights this is the cost itself;
    - for the evidence of multinomials it bounds the information in the counts with the prior's mass added, beside what
      Stirling's formula leaves. Gaussians have no bound: all costs are computed.

    Pairs that are `refused`, a symmetric matrix of booleans which is written to, are not merged, and a merged word
    inherits them from both of its parts. Of equal costs the pair with the lowest s, then the lowest t, is merged. The
    states of the scoring may be merged in place. Memory O(d) beyond the states and points in single precision; time
    O(C d²) on ordinary data.
    """

    def __init__(
        self,
        scoring: Scoring,
        n_threads: int = 1,
        show_progress: bool = False,
        refused: NDArray[np.bool_] | None = None,
    ) -> None:
        self._scoring, kind = scoring, scoring.kind
        assert kind is not None
        states = np.ascontiguousarray(scoring.states, dtype=np.float64)
        super().__init__(len(states))
        d, m = states.shape
        if kind in (INFORMATION, EVIDENCE) and states.min(initial=0) < 0:
            raise BagwiseError(
                f"The states of {type(scoring).__name__} are counts, but the smallest is {states.min():g}. Counts must "
                "not be negative."
            )
        self.start_score = float(scoring.offset + scoring.terms(states).sum())
        mass, n_columns, floor = scoring.measures()
        bounded = float(mass.min()) > _LIGHTEST
        sparse = bounded and kind == INFORMATION and np.count_nonzero(states) < _FILLED * states.size
        words, order = np.arange(d), np.empty(d, dtype=np.int64)
        alike = _equal_rows(states) if kind == EVIDENCE else words
        # A row owns the pairs with heavier words, and with later ones of those that are equal to it.
        by_mass = np.lexsort((-words, alike, -mass))
        order[by_mass] = words
        refused = np.zeros((0, 0), dtype=np.bool_) if refused is None else refused
        if bounded and not sparse:
            refused = np.ascontiguousarray(refused[np.ix_(by_mass, by_mass)]) if len(refused) else refused
            words, states, alike, order = by_mass, states[by_mass], alike[by_mass], words
        with_parts = bounded and kind == EVIDENCE
        n_points = -(-(m - (kind != INFORMATION)) // 4) * 4 if bounded else 0
        self._refused = refused
        self._state = kernels.SumState(
            states=states,
            sums=np.zeros((d, n_columns)),
            points=np.empty((n_points, d), dtype=np.float32),
            inverse=np.ones(d),
            parts=np.empty((kernels.N_PARTS, d if with_parts else 0)),
            log_gammas=gammaln(floor * np.arange(2 * d + 1)) if with_parts else np.empty(0),
            eldest=np.empty(-(-d // kernels.BLOCK), dtype=np.int64),
            classes=np.array([samples.stop for samples in scoring.classes], dtype=np.int64),
            floor=np.array([floor]),
            word=words.copy(),
            order=order.copy(),
            alike=alike.copy(),
            costs=np.full((d, kernels.KEPT), np.inf),
            partners=np.full((d, kernels.KEPT), -1, dtype=np.int64),
            tree=np.empty(2 << max(d - 1, 1).bit_length(), dtype=np.int64),
            score=np.array([self.start_score]),
            counts=np.array([d, d, d, 0, 0, kind, bounded, sparse]),
        )
        run_over_ranges(lambda start, stop: kernels.describe_rows(self._state, start, stop), d, n_threads)
        self._find_eldest()
        self._scan_all(n_threads, show_progress)
        kernels.play(self._state)

    def _find_eldest(self) -> None:
        state, size = self._state, int(self._state.counts[kernels.SIZE])
        starts = np.arange(0, size, kernels.BLOCK)
        state.eldest[: len(starts)] = np.minimum.reduceat(state.order[:size], starts)

    def _scan_all(self, n_threads: int, show_progress: bool) -> None:
        evaluated: list[int] = []
        with ProgressBar("scanning all pairs", self.n_words, enabled=show_progress) as bar:
            for first in range(0, self.n_words, _ROWS):
                last = min(first + _ROWS, self.n_words)

                def scan(start: int, stop: int, first: int = first) -> None:
                    evaluated.append(kernels.scan_rows(self._state, self._refused, first + start, first + stop))

                run_over_ranges(scan, last - first, n_threads, -(-_ROWS // (4 * n_threads)))
                bar.update(last)
        self._state.counts[kernels.EVALUATED] += sum(evaluated)

    def _pack(self) -> None:
        """Close the gaps that groups left which are gone, keeping the order."""
        state, size = self._state, int(self._state.counts[kernels.SIZE])
        live = np.flatnonzero(state.order[:size] != DEAD)
        n = len(live)
        new_slot = np.full(size + 1, -1)  # the last one is for partners that were gone already
        new_slot[live] = np.arange(n)
        for part in (state.states, state.sums, state.inverse, state.word, state.order, state.alike, state.costs):
            part[:n] = part[live]
        if len(self._refused):
            self._refused[:n, :n] = self._refused[np.ix_(live, live)]
        for rows in (state.points, state.parts):
            if rows.size:
                rows[:, :n] = rows[:, live]
        state.partners[:n] = new_slot[state.partners[live]]
        state.counts[kernels.SIZE] = n
        self._find_eldest()
        kernels.play(state)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        done = kernels.advance_sums(self._state, self._refused, pairs, scores)
        while done < len(pairs) and not kernels.no_pair_is_left(self._state):
            self._pack()
            done += kernels.advance_sums(self._state, self._refused, pairs[done:], scores[done:])

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first scan of each and that of merged words, and costs computed."""
        counts = self._state.counts
        return {"row_scans": int(counts[kernels.SCANS]), "pairs_evaluated": int(counts[kernels.EVALUATED])}


def join_early(scoring: Scoring, pairs: NDArray[np.int64]) -> NDArray[np.float64]:
    """Add the states of the second words of pairs to the first ones, in place; return what each merge loses.

    For information and weights only.
    """
    lost = np.empty(len(pairs))
    kernels.join_pairs(scoring.states, scoring.states.sum(axis=1), pairs, lost, scoring.kind == WEIGHTS)
    return lost


def _equal_rows(states: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number the rows, equal ones by the same number."""
    return np.unique(states, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
