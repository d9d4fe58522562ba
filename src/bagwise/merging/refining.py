"""Groups of weights that lose less than greedy merging does, by moving words between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.merging.engine import merge
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.scoring import WeightLoss

__all__ = ["merge_refined", "nearest_means"]

_KEPT = 5000  # words that are merged pair by pair, of several outputs; rarer ones join one of them first
_MOST_MOVES = 100  # rounds of moving words between groups
_REPORTED = 256  # merges between two reports
_MOST_DISTANCES = 1 << 22  # between words and groups that are computed at a time, 32 MB


def merge_refined(
    mass: NDArray[np.float64],
    weights: NDArray[np.float64],
    name: str,
    n_groups: int,
    progress: Callable[[int, int], Any] | None = None,
) -> Hierarchy:
    """Merge words by their weights (`WeightLoss`) so that the cut at `n_groups` loses less than the greedy one.

    1. Merge greedily down to `n_groups`; of several outputs and many words, the rarer ones first join others
       (`WeightLoss`).
    2. Move each word to the group with the nearest mean and recompute means, until no word moves (Lloyd's algorithm).
    3. Merge greedily inside each group, all groups together in the order of costs; then merge the groups.

    `weights` has shape (n_words, n_outputs). The score at `n_groups` is at least that of `merge`; those of
    other sizes may be lower. `progress` is called with the number of merges found so far and in all: each word is
    merged twice.
    """
    d = len(mass)
    refined = 1 < n_groups < d
    n_merges = (d - 1) * (2 if refined else 1)

    def report(left: int, *_: Any) -> None:
        done = d - left
        if progress is not None and (done % _REPORTED == 0 or left == 1):
            progress(done, n_merges)

    report(d)
    greedy = merge(WeightLoss(mass, weights, _KEPT), callback=None if progress is None else report, name=name)
    if not refined:
        return greedy
    labels = nearest_means(mass, weights, greedy.cut(n_groups), n_groups)
    split = np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
    members = sorted((words for words in split if len(words)), key=lambda words: int(words[0]))
    inside = [merge(WeightLoss(mass[words], weights[words], _KEPT)) for words in members]
    lost = [-np.diff(one.scores, prepend=0.0) for one in inside]
    costs = np.concatenate([np.maximum.accumulate(losses) for losses in lost])
    merges = np.concatenate([words[one.merges] for words, one in zip(members, inside, strict=True)])
    order = np.argsort(costs, kind="stable")
    sums = [mass[words] @ np.column_stack([np.ones(len(words)), weights[words]]) for words in members]
    totals = np.array([one[0] for one in sums])
    means = np.array([one[1:] for one in sums]) / np.where(totals > 0, totals, 1.0)[:, np.newaxis]
    above = merge(WeightLoss(totals, means))
    if progress is not None:
        progress(n_merges, n_merges)
    firsts = np.array([words[0] for words in members])
    scores = -np.cumsum(np.concatenate(lost)[order])
    last = scores[-1] if len(scores) else 0.0
    merges = np.concatenate([merges[order], firsts[above.merges].reshape(-1, 2)])
    return Hierarchy(d, merges, np.concatenate([scores, last + above.scores]), name)


def nearest_means(
    mass: NDArray[np.float64],
    weights: NDArray[np.float64],
    labels: NDArray[np.int64],
    n_groups: int,
    fixed: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Improve a partition by Lloyd's algorithm with masses; a group that has lost its words keeps its mean.

    Words that are `fixed` stay where they are.
    """
    means = np.zeros((n_groups, weights.shape[1]))
    for _ in range(_MOST_MOVES):
        totals = np.bincount(labels, mass, minlength=n_groups)
        sums = np.stack([np.bincount(labels, mass * column, minlength=n_groups) for column in weights.T], axis=1)
        means = np.where(totals[:, np.newaxis] > 0, sums / np.where(totals > 0, totals, 1.0)[:, np.newaxis], means)
        moved, squares = labels.copy(), np.square(means).sum(axis=1)
        n_rows = max(1, _MOST_DISTANCES // n_groups)
        for start in range(0, len(labels), n_rows):
            part = slice(start, start + n_rows)
            distances = squares - 2.0 * weights[part] @ means.T
            nearest, at = distances.argmin(axis=1), np.arange(len(distances))
            # words move only where that is nearer, so that rounding moves none back and forth
            current = distances[at, labels[part]]
            moves = distances[at, nearest] < current - 1e-12 * np.abs(current)
            if fixed is not None:
                moves &= ~fixed[part]
            moved[part] = np.where(moves, nearest, labels[part])
        if np.array_equal(moved, labels):
            break
        labels = moved
    return labels
