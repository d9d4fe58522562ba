"""The search for sums over words whose costs are compiled: those of all additive criteria of the library."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.progress import ProgressBar
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError
from bagwise.merging.scoring import (
    GaussianEvidence,
    GaussianFit,
    Information,
    MultinomialEvidence,
    Scoring,
    WeightLoss,
)
from bagwise.merging.searches import _sum_kernels as kernels
from bagwise.merging.searches._kernels import DEAD
from bagwise.merging.searches.base import Search

__all__ = ["COMPILED", "SumSearch"]

COMPILED = {
    Information: kernels.INFORMATION,
    MultinomialEvidence: kernels.EVIDENCE,
    WeightLoss: kernels.WEIGHTS,
    GaussianFit: kernels.FIT,
    GaussianEvidence: kernels.NORMAL_GAMMA,
}
# Coordinates by which blocks of words are bounded.
_FEW = 8
# Weight of the logarithm of mass beside coordinates, where words are put into blocks of similar ones.
_OF_MASS = 0.1
# Points of more coordinates are not rotated, nor sorted into blocks.
_MOST_ROTATED = 128
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

    A scan computes the cost of a pair only where a lower bound is not above those of the partners kept so far. With
    masses m and points x, ``cost >= |x_s - x_t|² / (1 / m_s + 1 / m_t)``:

    - for information the points are roots of the probabilities of classes given the word. As
      ``KL(p | q) >= |√p - √q|²``, the loss is at least Ward's cost of the roots;
    - for weights this is the cost itself;
    - for the evidence of multinomials it bounds the information in the counts with the prior's mass added, beside what
      Stirling's formula leaves. Gaussians have no bound: all costs are computed.

    Words lie in blocks of near points and similar masses, whose boxes bound all costs of a block at once. Of equal
    costs the pair with the lowest s, then the lowest t, is merged. The states of the
    scoring may be merged in place. Memory O(d) beyond the states and points in single precision; time O(C d²) at
    most on ordinary data.
    """

    def __init__(self, scoring: Scoring, n_threads: int = 1, show_progress: bool = False) -> None:
        self._scoring, kind = scoring, COMPILED[type(scoring)]
        states = np.ascontiguousarray(scoring.states, dtype=np.float64)
        super().__init__(len(states))
        d, m = states.shape
        if kind in (kernels.INFORMATION, kernels.EVIDENCE) and states.min(initial=0) < 0:
            raise BagwiseError(
                f"The states of {type(scoring).__name__} are counts, but the smallest is {states.min():g}. Counts must "
                "not be negative."
            )
        self.start_score = float(scoring.offset + scoring.terms(states).sum())
        mass, n_columns, floor = _measures(kind, scoring, states)
        bounded = kind <= kernels.WEIGHTS and float(mass.min()) > _LIGHTEST
        classes = scoring.classes if isinstance(scoring, (GaussianFit, GaussianEvidence)) else []
        sparse = bounded and kind == kernels.INFORMATION and np.count_nonzero(states) < _FILLED * states.size
        n_points = 0 if not bounded else m - (kind != kernels.INFORMATION)
        rotated = bounded and not sparse and n_points <= _MOST_ROTATED
        states = states.copy() if rotated else states  # which are sorted
        rotation = _directions(_points(kind, states, mass)) if rotated else np.empty((0, 0))
        few = min(_FEW, n_points) if rotated and kind != kernels.EVIDENCE else 0
        size = 1 << max(d - 1, 1).bit_length()
        n_blocks = -(-d // kernels.BLOCK)
        counts = np.zeros(kernels.N_COUNTS, dtype=np.int64)
        counts[:] = d, d, d, 0, 0, kind, bounded, sparse
        # Row i owns the pairs with heavier words, and of equally heavy ones those with later words.
        order = np.empty(d, dtype=np.int64)
        order[np.lexsort((-np.arange(d), -mass))] = np.arange(d)
        self._state = kernels.SumState(
            states=states,
            sums=np.zeros((d, n_columns)),
            points=np.empty((n_points, d), dtype=np.float32),
            inverse=np.ones(d),
            boxes=np.empty((n_blocks, 2, few), dtype=np.float32),
            lightest=np.empty(n_blocks),
            rotation=rotation,
            classes=np.array([samples.stop for samples in classes], dtype=np.int64),
            floor=np.array([floor]),
            word=np.arange(d),
            order=order,
            alike=_equal_rows(states) if kind == kernels.EVIDENCE else np.arange(d),
            costs=np.full((d, kernels.KEPT), np.inf),
            partners=np.full((d, kernels.KEPT), -1, dtype=np.int64),
            tree=np.empty(2 * size, dtype=np.int64),
            score=np.array([self.start_score]),
            counts=counts,
        )
        run_over_ranges(lambda start, stop: kernels.describe_rows(self._state, start, stop), d, n_threads)
        self._arrange(np.arange(d))
        self._scan_all(n_threads, show_progress)
        kernels.play(self._state)

    def _scan_all(self, n_threads: int, show_progress: bool) -> None:
        evaluated: list[int] = []
        with ProgressBar("scanning all pairs", self.n_words, enabled=show_progress) as bar:
            for first in range(0, self.n_words, _ROWS):
                last = min(first + _ROWS, self.n_words)

                def scan(start: int, stop: int, first: int = first) -> None:
                    evaluated.append(kernels.scan_rows(self._state, first + start, first + stop))

                run_over_ranges(scan, last - first, n_threads, -(-_ROWS // (4 * n_threads)))
                bar.update(last)
        self._state.counts[kernels.EVALUATED] += sum(evaluated)

    def _arrange(self, live: NDArray[np.int64]) -> None:
        """Move the given slots to the front, in blocks of similar words."""
        state = self._state
        old_size = int(state.counts[kernels.SIZE])
        some = state.points[: _FEW if len(state.rotation) else 0, live]
        slots = live[_similar(some, state.inverse[live], state.alike[live])]
        n = len(slots)
        if n < old_size or not np.array_equal(slots, np.arange(n)):
            place = np.full(old_size + 1, -1)  # the last one is for partners that are gone already
            place[slots] = np.arange(n)
            for part in (state.states, state.sums, state.inverse, state.word, state.order, state.alike, state.costs):
                part[:n] = part[slots]
            state.points[:, :n] = state.points[:, slots]
            state.partners[:n] = place[state.partners[slots]]
            state.order[n:] = DEAD
            state.counts[kernels.SIZE] = n
        if state.counts[kernels.BOUNDED]:
            kernels.bound_blocks(state)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        done = kernels.advance_sums(self._state, pairs, scores)
        while done < len(pairs):
            self._arrange(np.flatnonzero(self._state.order[: self._state.counts[kernels.SIZE]] != DEAD))
            kernels.play(self._state)
            done += kernels.advance_sums(self._state, pairs[done:], scores[done:])

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first scan of each and that of merged words, and costs computed."""
        counts = self._state.counts
        return {"row_scans": int(counts[kernels.SCANS]), "pairs_evaluated": int(counts[kernels.EVALUATED])}


def _measures(kind: int, scoring: Scoring, states: NDArray[np.float64]) -> tuple[NDArray[np.float64], int, float]:
    """The mass of each word, the number of sums that are kept of it, and the floor or unit of the kind."""
    if kind == kernels.INFORMATION:
        return states.sum(axis=1), 1, 0.0
    if kind == kernels.EVIDENCE:
        return states[:, :-1].sum(axis=1) + (states.shape[1] - 1) * states[:, -1], 6, 0.0
    if kind == kernels.WEIGHTS:
        largest = float((_points(kind, states, states[:, 0]) ** 2).sum(axis=1).max())
        return states[:, 0].copy(), 0, largest if largest > 0 else 1.0
    assert isinstance(scoring, (GaussianFit, GaussianEvidence))
    return np.ones(len(states)), len(scoring.classes) + 1, scoring.floor


def _points(kind: int, states: NDArray[np.float64], mass: NDArray[np.float64]) -> NDArray[np.float64]:
    """The points that bound costs, before they are rotated."""
    if kind == kernels.WEIGHTS:
        return states[:, 1:] / np.where(mass > 0, mass, 1.0)[:, np.newaxis]
    counts = states if kind == kernels.INFORMATION else states[:, :-1] + states[:, -1:]
    return np.sqrt(counts / mass[:, np.newaxis])


def _directions(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Axes of coordinates in which the first vary most. Rotations keep distances."""
    centred = points - points.mean(axis=0)
    return np.ascontiguousarray(np.linalg.eigh(centred.T @ centred)[1][:, ::-1])


def _equal_rows(states: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number the rows, equal ones by the same number."""
    return np.unique(states, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _similar(points: NDArray[np.float32], inverse: NDArray[np.float64], alike: NDArray[np.int64]) -> NDArray[np.intp]:
    """Sort words so that those of each block are near each other, by halving sets at the coordinate of most spread.

    Words of equal states are neighbours in their block.
    """
    values = np.concatenate([points, _OF_MASS * np.log(inverse)[np.newaxis]])
    order = np.argsort(alike, kind="stable")
    todo = [(0, len(order))] if len(points) else []
    while todo:
        start, stop = todo.pop()
        n_blocks = -(-(stop - start) // kernels.BLOCK)
        own = order[start:stop]
        if n_blocks <= 1:
            own.sort()
            order[start:stop] = own[np.argsort(alike[own], kind="stable")]
            continue
        here = values[:, own]
        axis = int(np.argmax(here.var(axis=1)))
        middle = start + n_blocks // 2 * kernels.BLOCK
        order[start:stop] = own[np.argsort(here[axis], kind="stable")]
        todo += [(start, middle), (middle, stop)]
    return order
