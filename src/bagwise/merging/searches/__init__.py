"""Searches for the best pair of words, level by level. All searches of a family find the same pairs.

The functions here are those that a device has as well (`bagwise.gpu.merging`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bagwise._utils.memory import Limit
from bagwise.merging.lazy_rows import LazyRows
from bagwise.merging.rows import DenseRows, RatioRows, Values
from bagwise.merging.scoring import WEIGHTS, Scoring
from bagwise.merging.searches.base import Search
from bagwise.merging.searches.partners import PartnerSearch
from bagwise.merging.searches.ratios import SEARCHES
from bagwise.merging.searches.sorted import SortedSearch
from bagwise.merging.searches.sums import SumSearch
from bagwise.merging.structures import Structure

__all__ = ["SEARCHES", "ratio_search", "rows_of_matrices", "rows_of_samples", "sum_search"]

ON_DEVICE = False


def rows_of_samples(
    X: Any, structures: Sequence[Structure], store: str, memory_limit: Limit, n_threads: int, who: str | None
) -> RatioRows:
    """Form A and B of data; `who` is the name of a criterion whose matrices may hold numbers that are not finite."""
    if store == "sparse":
        return LazyRows.of(X, structures, memory_limit, n_threads)
    rows = DenseRows.of(X, structures[0], structures[1], n_threads)
    return rows if who is None else rows.checked(who)


def rows_of_matrices(A: Values, B: Values) -> RatioRows:
    """Take A and B of a criterion, which the search may write to."""
    return DenseRows(A, B)


def ratio_search(rows: Any, name: str, n_threads: int, show_progress: bool) -> Search:
    """Start a search for trace ratios."""
    return SEARCHES[name](rows, n_threads, show_progress)


def sum_search(scoring: Scoring, n_threads: int = 1, show_progress: bool = False) -> Search:
    """Start a search for an additive score."""
    if scoring.kind is None:
        return PartnerSearch(scoring)
    if scoring.kind == WEIGHTS and scoring.states.shape[1] == 2:
        return SortedSearch(scoring)
    return SumSearch(scoring, n_threads, show_progress)
