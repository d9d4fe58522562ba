"""Words for people that several rooms use."""

from __future__ import annotations

__all__ = ["how_many"]


def how_many(n: int, items: str) -> str:
    """Say how many items there are.

    >>> how_many(1200, "images"), how_many(3, "table")
    ('1,200 images', '3 rows')
    """
    return f"{n:,} {'rows' if items == 'table' else items}"
