"""Merging again under constraints, from statistics of the groups of a cut that are kept without the data.

Links of words say what must be, and what must not be in one group; other groups are held as they are. Additive criteria
keep the states of groups, which add up; trace ratios keep A and B over groups, whose rows and columns add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.merging import _constrained_kernels as kernels
from bagwise.merging.engine import Engine
from bagwise.merging.group_statistics import MOST_GROUPS, PAIRS, SUMS, GroupStatistics, base_groups
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.refining import nearest_means
from bagwise.merging.regrouping import joined_sets, joins_of
from bagwise.merging.scoring import Information, MultinomialEvidence, Scoring, WeightLoss

__all__ = ["MergedPairs", "MergedSums", "linked_groups", "merge_allowed", "pooled", "statistics_of"]

Words = NDArray[np.int64]


def _weight_loss(states: NDArray[np.float64]) -> Scoring:
    mass = states[:, 0]
    return WeightLoss(mass, states[:, 1:] / np.where(mass > 0, mass, 1.0)[:, np.newaxis])


_SCORINGS: dict[str, Any] = {
    "aib": Information,
    "classifier": _weight_loss,
    "clusters": Information,
    "mlt": MultinomialEvidence,
}


def statistics_of(engine: Engine, hierarchy: Hierarchy) -> GroupStatistics | None:
    """Compute the statistics of groups after a run of merging, from its data; None for criteria that keep none."""
    name = engine.criterion.name
    if name in SUMS:
        return GroupStatistics.of_states(name, engine.scoring().states, hierarchy)
    if name not in PAIRS or hierarchy.min_groups > MOST_GROUPS:
        return None
    labels = base_groups(hierarchy)
    upper = np.triu_indices(labels.max() + 1)
    return GroupStatistics(name, np.stack([matrix[upper] for matrix in engine.matrices_of(labels)]))


def pooled(
    statistics: GroupStatistics, base: Words, labels: Words, mass: NDArray[np.float64]
) -> MergedSums | MergedPairs:
    """Return the statistics of other groups; parts of a group have shares of it by the mass of their words.

    Parameters
    ----------
    statistics : GroupStatistics
    base, labels : ndarray of shape (n_words,)
        The group of each word that the statistics are of, and the other one.
    mass : ndarray of shape (n_words,)
        In a group without mass all words count the same.
    """
    n, values = statistics.n_groups, statistics.values.astype(np.float64)
    totals, sizes = np.bincount(base, mass, n), np.bincount(base, minlength=n)
    weights = np.where(totals[base] > 0, mass / np.where(totals > 0, totals, 1.0)[base], 1 / sizes[base])
    shares = sp.csr_array((weights, (labels, base)), shape=(labels.max() + 1, n))
    if not statistics.of_pairs:
        return MergedSums(_SCORINGS[statistics.criterion](values), shares @ values)
    matrices = np.zeros((2, n, n))
    rows, columns = np.triu_indices(n)
    matrices[:, rows, columns] = matrices[:, columns, rows] = values
    return MergedPairs(*(np.ascontiguousarray(shares @ (shares @ matrix).T) for matrix in matrices))


class MergedSums:
    """Greedy merging of groups with states, some of whose pairs are not allowed.

    Gains of pairs do not depend on other merges: all of them are kept, with the best of each row.
    """

    def __init__(self, scoring: Scoring, states: NDArray[np.float64], gains: NDArray[np.float64] | None = None) -> None:
        self._scoring, self._states = scoring, np.array(states)
        self._terms = scoring.terms(self._states)
        self._live = np.ones(len(states), dtype=np.bool_)
        self._gains = self._all_gains() if gains is None else gains  # before any merge

    def _all_gains(self) -> NDArray[np.float64]:
        """Compute the gains of all pairs s < t of groups that are left, at [s, t]; others are -inf."""
        gains, live = np.full((len(self._live), len(self._live)), -np.inf), np.flatnonzero(self._live)
        if self.is_refined:
            kernels.all_weight_gains(self._states, self._live, gains)
            return gains
        for k, s in enumerate(live[:-1].tolist()):
            gains[s, live[k + 1 :]] = self._gains_of(s, live[k + 1 :])
        return gains

    def _gains_of(self, s: int, others: NDArray[np.intp]) -> NDArray[np.float64]:
        return self._scoring.gains(self._states[s], self._terms[s], self._states[others], self._terms[others])

    @property
    def n_groups(self) -> int:
        """Number of groups before merging."""
        return len(self._live)

    def copy(self) -> Self:
        """Return the same groups, to merge them once more."""
        return type(self)(self._scoring, self._states, self._gains)

    @property
    def is_refined(self) -> bool:
        """Whether parts have weights, by which they may move between groups."""
        return isinstance(self._scoring, WeightLoss)

    def refined(self, labels: Words, held: NDArray[np.bool_], fixed: NDArray[np.bool_]) -> Words:
        """Move parts to the group with the nearest mean weights, but for those that are held in groups of their own, to
        which none is moved either, and those that are fixed.
        """
        parts = np.flatnonzero(~held)
        _, own = np.unique(labels[parts], return_inverse=True)
        mass = self._states[parts, 0]
        weights = self._states[parts, 1:] / np.where(mass > 0, mass, 1.0)[:, np.newaxis]
        found = labels.copy()
        found[parts] = len(labels) + nearest_means(mass, weights, own, int(own.max()) + 1, fixed[parts])
        return found

    def advance(
        self, refused: NDArray[np.bool_], open_: NDArray[np.bool_], n_groups: int
    ) -> list[tuple[int, int, float]]:
        """Merge the best allowed pair of open groups until `n_groups` are left or none is allowed.

        `refused` says which pairs may not be in one group; a merged group inherits from both of its parts.
        """
        used = self._live & open_
        gains = self._gains if self._live.all() else self._all_gains()
        gains = np.where(refused | ~used | ~used[:, np.newaxis], -np.inf, gains)
        partner = gains.argmax(axis=1)
        best = gains[np.arange(len(gains)), partner]
        left, score = int(self._live.sum()), self._scoring.offset + float(self._terms[self._live].sum())
        n_merges = max(left - n_groups, 0)
        if self.is_refined:
            pairs, scores = np.empty((n_merges, 2), dtype=np.int64), np.empty(n_merges)
            arrays = (self._states, self._terms, gains, best, partner, refused, used, self._live)
            done = kernels.merge_weights(*arrays, score, pairs, scores)
            return _as_list(pairs[:done], scores[:done])
        found: list[tuple[int, int, float]] = []
        others = np.empty(len(used), dtype=np.intp)
        while len(found) < n_merges and best.max(initial=-np.inf) > -np.inf:
            s = int(best.argmax())
            t = int(partner[s])
            before = self._terms[s] + self._terms[t]
            self._states[s] += self._states[t]
            self._terms[s] = self._scoring.terms(self._states[s : s + 1])[0]
            self._live[t] = False
            allowed = others[: kernels.join_groups(s, t, refused, used, others)]
            kernels.set_gains(s, t, allowed, self._gains_of(s, allowed), gains, best, partner)
            score += float(self._terms[s] - before)
            found.append((s, t, score))
        return found


class MergedPairs:
    """The same for trace ratios, from A and B over groups. All pairs are compared at each level."""

    def __init__(self, A: NDArray[np.float64], B: NDArray[np.float64]) -> None:
        self._A, self._B = A, B
        self._traces = np.array([np.trace(A), np.trace(B)])
        self._live = np.ones(len(A), dtype=np.bool_)

    @property
    def n_groups(self) -> int:
        """Number of groups before merging."""
        return len(self._live)

    def advance(
        self, refused: NDArray[np.bool_], open_: NDArray[np.bool_], n_groups: int
    ) -> list[tuple[int, int, float]]:
        """Do what `MergedSums.advance` does."""
        n_merges = max(int(self._live.sum()) - n_groups, 0)
        pairs, scores = np.empty((n_merges, 2), dtype=np.int64), np.empty(n_merges)
        done = kernels.merge_ratios(self._A, self._B, self._traces, refused, open_, self._live, pairs, scores)
        return _as_list(pairs[:done], scores[:done])


def _as_list(pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> list[tuple[int, int, float]]:
    return list(zip(*pairs.T.tolist(), scores.tolist(), strict=True))


def merge_allowed(
    groups: MergedSums | MergedPairs,
    refused: NDArray[np.int64],
    held: Iterable[int] = (),
    closed: Iterable[int] = (),
    n_groups: int = 1,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Merge groups greedily, at each level the best pair that is allowed; of equally good ones the first.

    By the criterion "classifier" groups at `n_groups` are refined as in `merge_refined`: parts without links move to
    the group with the nearest weights, and are merged again inside of these groups.

    Parameters
    ----------
    groups : MergedSums or MergedPairs
        What `pooled` returns; it is used up.
    refused : ndarray of shape (k, 2)
        Pairs of groups that may not become parts of one.
    held, closed : iterables of int
        Groups that are not merged before there are `n_groups`, and those that never are.
    n_groups : int

    Returns
    -------
    merges : ndarray of shape (m, 2)
        Pairs s < t; the result is s. As many as are allowed, which may be fewer than lead to one group.
    scores : ndarray of shape (m,)
    """
    n, closed = groups.n_groups, list(closed)
    apart = np.zeros((n, n), dtype=np.bool_)
    apart[refused[:, 0], refused[:, 1]] = apart[refused[:, 1], refused[:, 0]] = True
    kept = np.zeros(n, dtype=np.bool_)
    kept[[*held, *closed]] = True
    again = groups.copy() if isinstance(groups, MergedSums) and groups.is_refined else None
    never = apart.copy()
    found = groups.advance(never, ~kept, min(n_groups, n))
    left = n - len(found)
    if left > n_groups:
        raise BagwiseError(
            f"Links, locked groups and groups made by hand leave {left} groups, not {n_groups}. Make the edit at "
            f"n_groups={left} or more, or take some of them back."
        )
    if found and again is not None:
        fixed = np.zeros(n, dtype=np.bool_)
        fixed[refused] = True
        groups, labels = again, again.refined(_labels_of(n, found), kept, fixed)
        found = groups.advance(labels[:, np.newaxis] != labels, ~kept, n_groups)
        parts = sp.csr_array((np.ones(n), (_labels_of(n, found), np.arange(n))), shape=(n, n))
        never = (parts @ (parts @ apart.astype(np.float64)).T) > 0
    kept[:] = False
    kept[closed] = True
    found += groups.advance(never, ~kept, 1)
    merges = np.array([pair[:2] for pair in found], dtype=np.int64).reshape(-1, 2)
    return merges, np.array([score for *_, score in found])


def _labels_of(n: int, merges: Iterable[tuple[int, int, float]]) -> Words:
    """Return the first part of each part's group."""
    labels = np.arange(n)
    for s, t, _ in merges:
        labels[labels == t] = s
    return labels


def linked_groups(
    hierarchy: Hierarchy,
    base: Words,
    units: Sequence[Words],
    must: Sequence[Iterable[int]],
    cannot: Sequence[Iterable[int]],
) -> tuple[Words, list[list[int]]]:
    """Return groups to begin with that satisfy all links: those of a cut, changed as little as need be.

    1. Units are groups of their own. Sets of `must` that share words or units are joined.
    2. A group that holds a word of such a set goes with it. If it holds words that may not be together, those joined to
       the later word by the hierarchy, before it joins them to the earlier one, become a group of their own.

    Parameters
    ----------
    hierarchy : Hierarchy
    base : ndarray of shape (n_words,)
        Groups of a cut of the hierarchy.
    units : sequence of arrays of words
        Groups that stay whole.
    must, cannot : sequences of sets of words
        Words that must be in one group; words of which no two may be.

    Returns
    -------
    labels : ndarray of shape (n_words,)
        Groups, numbered by their first words.
    whole : list of lists of words
        Units and sets of `must`, joined.
    """
    whole = joined_sets([*(words.tolist() for words in units), *must])
    of = {word: k for k, words in enumerate(whole) for word in words}
    for word in {word for words in cannot for word in words} - of.keys():
        of[word] = len(whole) + word
    apart = {k: set[int]() for k in of.values()}
    for one, other in (pair for words in cannot for pair in combinations(sorted(words), 2)):
        if of[one] == of[other]:
            raise BagwiseError(
                f"Words {one} and {other} must not be in one group, but other links, locked groups or groups made by "
                "hand require it."
            )
        apart[of[one]].add(of[other])
        apart[of[other]].add(of[one])
    joins, linked = joins_of(hierarchy), sorted(of)
    pieces = base.copy()
    for k, words in enumerate(units):
        pieces[words] = base.max() + 1 + k
    cluster = {k: k for k in apart}  # of sets that groups have brought together
    home: dict[int, int] = {}  # the cluster that a group goes with
    queue = list(dict.fromkeys(pieces[linked].tolist()))
    for piece in queue:
        inside = [word for word in linked if pieces[word] == piece]
        target = cluster[of[inside[0]]]
        kept = [inside[0]]
        for word in inside[1:]:
            if pieces[word] != piece:  # gone with another one
                continue
            own = cluster[of[word]]
            if own != target and own in apart[target]:
                level = joins.levels(np.full(len(kept), word), np.array(kept)).min()
                words = np.flatnonzero(pieces == piece)
                away = words[joins.levels(np.full(len(words), word), words) < level]
                pieces[away] = pieces.max() + 1
                queue.append(int(pieces[word]))
                continue
            kept.append(word)
            if own != target:
                apart[target] |= apart.pop(own)
                for others in apart.values():
                    if own in others:
                        others.remove(own)
                        others.add(target)
                cluster = {k: target if held == own else held for k, held in cluster.items()}
        home[piece] = target
    groups, place = pieces.copy(), {k: -1 - number for number, k in enumerate(cluster)}
    for piece, target in home.items():
        groups[pieces == piece] = place[cluster[target]]
    _, first, labels = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[labels].astype(np.int64), whole
