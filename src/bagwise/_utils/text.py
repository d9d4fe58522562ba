"""Texts for people that several packages write."""

from __future__ import annotations

__all__ = ["escape_character", "how_many"]


def how_many(n: int, items: str) -> str:
    """Say how many items there are.

    >>> how_many(1200, "images"), how_many(3, "table")
    ('1,200 images', '3 rows')
    """
    return f"{n:,} {'rows' if items == 'table' else items}"


def escape_character(character: str) -> str:
    r"""Escape a character as in Python, and a lone surrogate from `os.fsdecode` as the byte that it stands for.

    >>> print(escape_character("\n"), escape_character("\u202e"), escape_character("\udcff"))
    \n \u202e \xff
    """
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
