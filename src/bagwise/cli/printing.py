"""Writing for people: names that may hold anything, columns, shares and times."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

__all__ = ["columns", "duration", "percent", "printable", "shortened"]

_NUMBER = re.compile(r"-?[\d,]*\.?\d*( %)?( ± \d+\.?\d*)?")
# Characters that could move the cursor, change the direction of writing, or stand for bytes that are not UTF-8.
_UNSAFE = frozenset(["Cc", "Cf", "Cs", "Zl", "Zp"])


def printable(text: object) -> str:
    r"""Write control characters, and bytes of names that are not UTF-8, as escapes; all else stays.

    >>> printable("two\nlines \udcff")
    'two\\nlines \\xff'
    """
    return "".join(_escaped(c) if unicodedata.category(c) in _UNSAFE else c for c in str(text))


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # how Python stands for a byte of a name that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def columns(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    r"""Lines of a table; columns of which every entry is a number or share are set to the right.

    >>> print("\n".join(columns(["words", "id"], [[5, "a"], [50, "bc"]])))
    words  id
        5  a
       50  bc
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    right = [bool(column) and all(_is_number(cell) for cell in column) for column in zip(*cells, strict=True)]
    right = right or [False] * len(heads)
    lines = []
    for row in (heads, *cells):
        padded = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def _is_number(cell: str) -> bool:
    return _NUMBER.fullmatch(cell) is not None


def percent(share: float) -> str:
    """Write a share of one.

    >>> percent(0.1834)
    '18.3 %'
    """
    return f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    """Write a time, roughly.

    >>> duration(3.2), duration(75), duration(5000)
    ('3.2 s', '75 s', '1.4 h')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def shortened(text: str, width: int) -> str:
    """The beginning of a text that is too long.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= width else text[: width - 1] + "…"
