"""Searches for the best pair of words, level by level.

All of them find the same pairs: they differ in how many they look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bagwise.errors import unknown_name

if TYPE_CHECKING:
    from bagwise.merging.searches.base import RowSearch
    from bagwise.merging.stores import DenseStore

SEARCHES = ("bound", "polar", "exhaustive")


def check_search(name: object) -> None:
    """Raise if there is no search of this name."""
    if name not in SEARCHES:
        raise unknown_name("search", name, SEARCHES)


def make_search(name: str, store: DenseStore, n_threads: int = 1) -> RowSearch:
    """Start the search `name` on a store, whose matrices it takes over."""
    check_search(name)
    if name == "bound":
        from bagwise.merging.searches.bound import BoundSearch

        return BoundSearch(store, n_threads)
    if name == "polar":
        from bagwise.merging.searches.polar import PolarSearch

        return PolarSearch(store)
    from bagwise.merging.searches.exhaustive import ExhaustiveSearch

    return ExhaustiveSearch(store)
