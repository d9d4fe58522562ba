"""Merging again after edits, from statistics of the groups of a cut that are kept without the data.

Links of words say what must be, and what must not be in one group; other groups are held as they are. Additive criteria
keep the states of groups, which add up; trace ratios keep A and B over groups, whose rows and columns add up. Both are
merged by the searches that merge words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.merging.criteria import NAMED_CRITERIA
from bagwise.merging.engine import Engine, merge
from bagwise.merging.group_statistics import MOST_GROUPS, GroupStatistics, base_groups
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.refining import nearest_means
from bagwise.merging.regrouping import joined_sets, joins_of
from bagwise.merging.rows import DenseRows
from bagwise.merging.scoring import Scoring, WeightLoss

__all__ = ["linked_groups", "merge_allowed", "pooled", "statistics_of"]

Words = NDArray[np.int64]
Groups = Scoring | DenseRows  # states of groups, or A and B over them


def statistics_of(engine: Engine, hierarchy: Hierarchy) -> GroupStatistics | None:
    """Compute the statistics of groups after a run of merging, from its data; None for criteria that keep none."""
    name, kept = engine.criterion.name, engine.criterion.edits_from
    if name not in NAMED_CRITERIA or kept is None or hierarchy.min_groups > MOST_GROUPS:
        return None
    if kept == "states":
        return GroupStatistics.of_states(hierarchy, engine.data.scoring().states)
    labels = base_groups(hierarchy)
    n = int(labels.max()) + 1
    if n == 2:
        return None
    upper = np.triu_indices(n)
    return GroupStatistics.of(hierarchy, np.stack([matrix[upper] for matrix in engine.data.matrices_of(labels)]))


def pooled(statistics: GroupStatistics, base: Words, labels: Words, mass: NDArray[np.float64]) -> Groups:
    """Return what is known of other groups; parts of a group have shares of its statistics by the mass of their words.

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
    criterion: Any = NAMED_CRITERIA.get(statistics.criterion)
    if criterion is None or criterion.edits_from != ("pairs" if statistics.of_pairs else "states"):
        raise BagwiseError(
            f"Groups by the criterion {statistics.criterion!r:.50} cannot be merged again from statistics of shape "
            f"{values.shape}. Use join, move and split, or fit the model again."
        )
    if not statistics.of_pairs:
        return _joined(criterion.scoring_of(values), shares)
    matrices = np.zeros((2, n, n))
    rows, columns = np.triu_indices(n)
    matrices[:, rows, columns] = matrices[:, columns, rows] = values
    return _joined(DenseRows(*matrices), shares)


def _joined(groups: Groups, shares: sp.csr_array) -> Groups:
    """Return other groups, which have these shares of the given ones: rows by columns."""
    if isinstance(groups, DenseRows):
        return DenseRows(*(np.ascontiguousarray(shares @ (shares @ matrix).T) for matrix in (groups.A, groups.B)))
    joined = copy(groups)
    joined.states = shares @ groups.states
    return joined


def merge_allowed(
    groups: Groups,
    refused: NDArray[np.int64],
    waiting: Iterable[int] = (),
    closed: Iterable[int] = (),
    n_groups: int = 1,
) -> Hierarchy:
    """Merge groups greedily, at each level the best pair that is allowed; of equally good ones the first.

    By `WeightLoss` groups at `n_groups` are refined as in `merge_refined`: parts without links move to the group with
    the nearest weights, and are merged again inside of these groups.

    Parameters
    ----------
    groups : Scoring or DenseRows
        What `pooled` returns.
    refused : ndarray of shape (k, 2)
        Pairs of groups that may not become parts of one.
    waiting, closed : iterables of int
        Groups that are not merged before there are `n_groups`, and those that never are.
    n_groups : int

    Returns
    -------
    hierarchy : Hierarchy
        Of the groups. As many merges as are allowed, which may be fewer than lead to one group.
    """
    n = groups.size
    apart = np.zeros((n, n), dtype=np.bool_)
    apart[refused[:, 0], refused[:, 1]] = apart[refused[:, 1], refused[:, 0]] = True
    never = np.isin(np.arange(n), [*closed])
    kept = never | np.isin(np.arange(n), [*waiting])
    below = merge(groups, n_groups, refused=apart, unmerged=kept)
    left = below.min_groups
    if left > n_groups:
        raise BagwiseError(
            f"Links, locked groups and groups made by hand leave {left} groups, not {n_groups}. Make the edit at "
            f"n_groups={left} or more, or take some of them back."
        )
    if len(below.merges) and isinstance(groups, WeightLoss):
        linked = np.isin(np.arange(n), refused)
        labels = _refined(groups, below.cut(left), kept, linked)
        below = merge(groups, n_groups, refused=labels[:, np.newaxis] != labels, unmerged=kept)
    labels = below.cut(below.min_groups)
    firsts = np.unique(labels, return_index=True)[1]
    parts = sp.csr_array((np.ones(n), (labels, np.arange(n))))
    above = merge(_joined(groups, parts), refused=parts @ (parts @ apart).T > 0, unmerged=parts @ never > 0)
    merges = np.concatenate([below.merges, firsts[above.merges]])
    return Hierarchy(n, merges, np.concatenate([below.scores, above.scores]))


def _refined(groups: WeightLoss, labels: Words, kept: NDArray[np.bool_], fixed: NDArray[np.bool_]) -> Words:
    """Move parts to the group with the nearest mean weights, but for those that are kept as groups of their own, to
    which none is moved either, and those that are fixed.
    """
    parts = np.flatnonzero(~kept)
    _, number = np.unique(labels[parts], return_inverse=True)
    mass = groups.states[parts, 0]
    weights = groups.states[parts, 1:] / np.where(mass > 0, mass, 1.0)[:, np.newaxis]
    refined = labels.copy()
    refined[parts] = len(labels) + nearest_means(mass, weights, number, int(number.max()) + 1, fixed[parts])
    return refined


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
            other = cluster[of[word]]
            if other != target and other in apart[target]:
                level = joins.levels(np.full(len(kept), word), np.array(kept)).min()
                words = np.flatnonzero(pieces == piece)
                away = words[joins.levels(np.full(len(words), word), words) < level]
                pieces[away] = pieces.max() + 1
                queue.append(int(pieces[word]))
                continue
            kept.append(word)
            if other != target:
                apart[target] |= apart.pop(other)
                for others in apart.values():
                    if other in others:
                        others.remove(other)
                        others.add(target)
                cluster = {k: target if now == other else now for k, now in cluster.items()}
        home[piece] = target
    groups, name = pieces.copy(), {k: -1 - number for number, k in enumerate(cluster)}
    for piece, target in home.items():
        groups[pieces == piece] = name[cluster[target]]
    _, first, labels = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[labels].astype(np.int64), whole
