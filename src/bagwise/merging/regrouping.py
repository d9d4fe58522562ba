"""Hierarchies with other groups at one of their cuts, and as much of the order of merges as these groups leave."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.hierarchy import Hierarchy

__all__ = ["Joins", "joined_sets", "joins_of", "named_merges", "regroup", "same_cuts"]

Words = NDArray[np.int64]


class Joins:
    """Which merge of a hierarchy joins two words: all pairs of two arrays at once, after O(d log d) preparations.

    In the order of a dendrogram's leaves, the merge that joins two words is the latest of those between neighbours from
    the one to the other.

    Examples
    --------
    >>> from bagwise import Hierarchy
    >>> Joins(Hierarchy(4, [[1, 3], [0, 1]], [0.5, 0.25])).levels(np.array([1, 0, 0]), np.array([3, 3, 2]))
    array([0, 1, 2])
    """

    def __init__(self, hierarchy: Hierarchy) -> None:
        d, n_merges = hierarchy.n_words, len(hierarchy.merges)
        self.order = hierarchy.leaf_order()
        self.position = np.empty(d, dtype=np.int64)
        self.position[self.order] = np.arange(d)
        after = np.full(d, n_merges)  # of each leaf: the merge that joins it to the next one, the first of a group
        after[self.position[hierarchy.merges[:, 1]] - 1] = np.arange(n_merges)
        self._latest = [after]  # the latest of 1, 2, 4, … neighbours
        while (step := 1 << len(self._latest)) <= d:
            latest = self._latest[-1]
            self._latest.append(np.maximum(latest[: d - step + 1], latest[step // 2 :][: d - step + 1]))

    def levels(self, first: Words, second: Words) -> NDArray[np.int64]:
        """Return the numbers of the merges that join words to others; the number of all merges if none does."""
        start = np.minimum(self.position[first], self.position[second])
        length = np.maximum(self.position[first], self.position[second]) - start
        levels = np.full(len(start), -1, dtype=np.int64)
        power = np.frexp(length)[1] - 1  # the largest power of two that is not above the length
        for k, latest in enumerate(self._latest):
            at = np.flatnonzero((power == k) & (length > 0))
            levels[at] = np.maximum(latest[start[at]], latest[start[at] + length[at] - (1 << k)])
        return levels


_RECENT: deque[tuple[Hierarchy, Joins]] = deque(maxlen=4)  # a hierarchy is edited, and compared, more than once


def joins_of(hierarchy: Hierarchy) -> Joins:
    """Return the `Joins` of a hierarchy, which are kept for some time."""
    for known, joins in tuple(_RECENT):
        if known is hierarchy:
            return joins
    joins = Joins(hierarchy)
    _RECENT.append((hierarchy, joins))
    return joins


def same_cuts(one: Hierarchy, other: Hierarchy) -> NDArray[np.bool_]:
    """Whether two hierarchies of the same words have the same groups after each merge, as far as both have merges.

    If all pairs that the other has merged so far are joined in the one, its groups are parts of those of the one, and
    there are as many of them.

    Examples
    --------
    >>> from bagwise import Hierarchy
    >>> one = Hierarchy(4, [[0, 1], [2, 3], [0, 2]], [3, 2, 1])
    >>> same_cuts(one, Hierarchy(4, [[2, 3], [0, 1], [0, 2]], [3, 2, 1]))
    array([False,  True,  True])
    """
    n = min(len(one.merges), len(other.merges))
    joined = joins_of(one).levels(*other.merges[:n].T)
    return np.maximum.accumulate(joined) <= np.arange(n)


def regroup(
    hierarchy: Hierarchy,
    labels: Words,
    before: Words,
    *,
    whole: Sequence[Words] = (),
    closed: Collection[int] = (),
) -> Hierarchy:
    """Return a hierarchy that has given groups as one of its cuts, and otherwise merges as another hierarchy does.

    1. Words of `whole` are joined.
    2. The words of each group are joined in the order of the hierarchy: where it joins two groups, those of their words
       that share a new group are joined. Words that it never joins follow at last.
    3. A new group takes the place of the old one that has most of its words, of equal ones the first, and groups are
       merged where the hierarchy joins these places; new groups in one place, as the parts of one that was split, are
       merged first. Groups that it does not join stay apart.

    Parameters
    ----------
    hierarchy : Hierarchy
    labels : ndarray of shape (n_words,)
        The new group of each word, numbered from 0.
    before : ndarray of shape (n_words,)
        The old groups, numbered from 0: those of which the new ones take the place.
    whole : sequence of arrays of words
        Words that are joined before all others, each within a new group.
    closed : collection of int
        New groups that are not merged any further.

    Returns
    -------
    hierarchy : Hierarchy
        A score is kept where the groups after a merge are those of the given hierarchy; others are NaN.

    Examples
    --------
    >>> from bagwise import Hierarchy
    >>> hierarchy = Hierarchy(5, [[0, 1], [2, 3], [0, 2], [0, 4]], [4, 3, 2, 1])
    >>> edited = regroup(hierarchy, np.array([0, 0, 0, 1, 2]), before=hierarchy.cut(3))
    >>> edited.merges.tolist(), edited.scores.tolist()
    ([[0, 1], [0, 2], [0, 3], [0, 4]], [4.0, nan, 2.0, 1.0])
    """
    joins, n_merges = joins_of(hierarchy), len(hierarchy.merges)
    stays = np.ones(hierarchy.n_words, dtype=np.bool_)
    first, second, levels = [], [], []

    def add(words: Words, groups: Words, latest: int) -> None:
        """Add the pairs that join the words of each group, in their order."""
        order = np.lexsort((joins.position[words], groups))
        words, groups = words[order], groups[order]
        inside = np.flatnonzero(groups[1:] == groups[:-1])
        pairs = words[inside], words[inside + 1]
        joined_at = joins.levels(*pairs)
        by_level = np.lexsort((joins.position[pairs[0]], groups[inside], joined_at))
        by_level = by_level[joined_at[by_level] <= latest]
        first.append(pairs[0][by_level])
        second.append(pairs[1][by_level])
        levels.append(joined_at[by_level])

    for words in whole:
        stays[words] = False
        stays[words.min()] = True  # stands for all of them from now on
    if len(whole):
        add(np.concatenate(list(whole)), np.repeat(np.arange(len(whole)), [len(words) for words in whole]), n_merges)
    left = np.flatnonzero(stays)
    add(left, labels[left], n_merges)
    places = _places(labels, before)
    open_places = np.delete(places, sorted(closed))
    add(open_places, np.zeros(len(open_places), dtype=np.int64), n_merges - 1)
    merges = named_merges(hierarchy.n_words, np.concatenate(first), np.concatenate(second))
    joined, scores = np.concatenate(levels), np.full(len(merges), np.nan)
    n = min(len(merges), n_merges)
    kept = np.maximum.accumulate(joined[:n]) <= np.arange(n)
    scores[:n][kept] = hierarchy.scores[:n][kept]
    return Hierarchy(hierarchy.n_words, merges, scores, hierarchy.criterion)


def _places(labels: Words, before: Words) -> Words:
    """Return a word of each new group, the first of those in the old group that has most of its words."""
    n_old = int(before.max()) + 1
    pairs, first, counts = np.unique(labels * n_old + before, return_index=True, return_counts=True)
    order = np.lexsort((pairs % n_old, -counts, pairs // n_old))
    leads = np.unique(pairs[order] // n_old, return_index=True)[1]
    return first[order][leads].astype(np.int64)


def named_merges(n_words: int, first: Words, second: Words) -> Words:
    """Return merges of the groups that hold pairs of words, in this order; groups are named by their first words."""
    parent = list(range(n_words))
    lower, upper = [], []  # numbers alone: tuples would be searched for garbage
    for s, t in zip(first.tolist(), second.tolist(), strict=True):
        while (above := parent[s]) != s:
            parent[s] = s = parent[above]
        while (above := parent[t]) != t:
            parent[t] = t = parent[above]
        if s > t:
            s, t = t, s
        parent[t] = s
        lower.append(s)
        upper.append(t)
    return np.column_stack([lower, upper]).astype(np.int64)


def joined_sets(sets: Iterable[Iterable[int]]) -> list[list[int]]:
    """Join sets that share a word; each is sorted, and they are in the order of their first words.

    >>> joined_sets([[5, 7], [1, 2], [7, 3]])
    [[1, 2], [3, 5, 7]]
    """
    joined: list[set[int]] = []
    for one in map(set, sets):
        shared = [other for other in joined if other & one]
        joined = [other for other in joined if not other & one] + [one.union(*shared)]
    return sorted(map(sorted, joined))
