"""Confusion matrices for people: the pairs that are confused most, and a heat map that stays readable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.report.data import Confusion

__all__ = ["N_LEVELS", "Confused", "HeatMap", "heat_map", "level_from", "most_confused"]

# Shades of a heat map besides the empty one.
N_LEVELS = 8


class Confused(NamedTuple):
    """A class that was taken for another `times` times, of `of` items it has."""

    true: str
    answer: str
    times: int
    of: int


def most_confused(confusion: Confusion, n: int = 8) -> list[Confused]:
    """Find the pairs of classes that were confused most often.

    By count; among equals, by the share of the true class; among equals of that, in the order of classes.

    Examples
    --------
    >>> from bagwise.report import Confusion
    >>> from bagwise.report.confusions import most_confused
    >>> most_confused(Confusion(["cat", "dog", "fox"], [[8, 0, 2], [0, 9, 1], [0, 0, 9]]), n=1)
    [Confused(true='cat', answer='fox', times=2, of=10)]
    """
    counts = np.array(confusion.matrix)
    totals = counts.sum(axis=1)
    np.fill_diagonal(counts, 0)
    rows, columns = np.nonzero(counts)
    found = counts[rows, columns]
    order = np.lexsort((totals[rows], -found))[:n]
    pairs = zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    names = confusion.classes
    return [Confused(names[i], names[k], int(counts[i, k]), int(totals[i])) for i, k in pairs]


@dataclass(frozen=True)
class HeatMap:
    """A confusion matrix, or the part of it where most confusions are.

    `counts` has a row and a column for each of `classes`; `others`, if some classes are left out, the answers in each
    row that are not among `classes`. `levels` shade the counts by their share of the row: 0 where there are none, up to
    `N_LEVELS`; by the root of the share, so that rare confusions can be seen.
    """

    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    levels: NDArray[np.intp]
    others: NDArray[np.int64] | None
    n_left_out: int


def heat_map(confusion: Confusion, limit: int = 100) -> HeatMap:
    """Choose what a heat map shows: all classes, or the `limit` that take part in most confusions, in their order."""
    counts = np.asarray(confusion.matrix)
    totals = counts.sum(axis=1)
    n = len(confusion.classes)
    kept = np.arange(n)
    if n > limit:
        wrong = totals + counts.sum(axis=0) - 2 * np.diagonal(counts)
        kept = np.sort(np.argsort(-wrong, kind="stable")[:limit])
    shown = counts[np.ix_(kept, kept)]
    shares = shown / np.maximum(totals[kept], 1)[:, None]
    levels = np.where(shown > 0, np.maximum(1, np.ceil(N_LEVELS * np.sqrt(shares))), 0).astype(np.intp)
    others = totals[kept] - shown.sum(axis=1) if n > limit else None
    classes = tuple(confusion.classes[i] for i in kept.tolist())
    return HeatMap(classes, shown, levels, others, n - len(kept))


def level_from(level: int) -> float:
    """Smallest share of a row that has a level."""
    return math.pow((level - 1) / N_LEVELS, 2)
