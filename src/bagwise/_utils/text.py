"""Texts for people that several packages write, and stop words."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

__all__ = [
    "agree",
    "count",
    "duration",
    "encodable",
    "english_stop_words",
    "escape_character",
    "how_many",
    "percent",
    "quote_formula",
]
__all__ += ["quoted", "ranges", "shortened", "unquote_formula"]

# Cells that programs for tables take for formulas: some also by full-width signs; numbers may have a sign.
_FORMULA = re.compile(r"'*(?:[=@\t\r\n\uff1d\uff20\uff0b\uff0d]|[+-](?!(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z))")


def count(n: int) -> str:
    """Format an integer.

    >>> count(1200)
    '1,200'
    """
    return f"{n:,}"


def percent(fraction: float) -> str:
    """Format a fraction as a percentage with one decimal; only 0 and 1 themselves round to 0 and 100.

    >>> percent(0.1834), percent(0.99997)
    ('18.3 %', '>99.9 %')
    """
    if 0 < fraction < 0.0005:
        return "<0.1 %"
    return ">99.9 %" if 0.9995 <= fraction < 1 else f"{100 * fraction:.1f} %"


def duration(seconds: float) -> str:
    """Format a time in milliseconds, seconds, minutes or hours.

    >>> duration(0.25), duration(3.2), duration(75), duration(5000)
    ('250 ms', '3.2 s', '1 min 15 s', '1 h 23 min')
    """
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{count(hours)} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def shortened(text: str, length: int) -> str:
    """Truncate a text to `length` characters.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= length else f"{text[: length - 1]}…"


# What modalities are called that are no plural.
_ROWS, _TABLES, _A_TABLE = {"table": "rows"}, {"table": "tables"}, {"table": "a table"}


def sources(modality: str) -> str:
    """Return what sources of a modality are called.

    >>> sources("table"), sources("texts")
    ('tables', 'texts')
    """
    return _TABLES.get(modality, modality)


def one_source(modality: str) -> str:
    """Return what one source of a modality holds.

    >>> one_source("table"), one_source("texts")
    ('a table', 'texts')
    """
    return _A_TABLE.get(modality, modality)


def how_many(n: int, items: str) -> str:
    """Say how many items there are; `items` in the plural.

    >>> how_many(1200, "images"), how_many(3, "table"), how_many(1, "words"), how_many(1, "classes")
    ('1,200 images', '3 rows', '1 word', '1 class')
    """
    things = _ROWS.get(items, items)
    return f"{count(n)} {things}" if n != 1 else f"1 {things.removesuffix('es' if things.endswith('sses') else 's')}"


def agree(n: int, one: str, several: str) -> str:
    """Return the form of a verb that goes with a number.

    >>> agree(1, "has", "have"), agree(2, "has", "have")
    ('has', 'have')
    """
    return one if n == 1 else several


def quoted(names: Sequence[str]) -> str:
    """Quote the first three names, for an error.

    >>> quoted(["a", "b"]), quoted("abcd")
    ("'a', 'b'", "'a', 'b', 'c', …")
    """
    return ", ".join([*map(repr, names[:3]), *(["…"] if len(names) > 3 else [])])


def ranges(numbers: Iterable[int]) -> str:
    """List numbers in ascending order, three or more in a row as a range.

    >>> ranges([2, 3, 4, 5, 10, 20, 21])
    '2 to 5, 10, 20, 21'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [[f"{run[0]} to {run[-1]}"] if len(run) > 2 else list(map(str, run)) for run in runs]
    return ", ".join(part for some in parts for part in some)


def quote_formula(cell: str) -> str:
    """Put an apostrophe before a cell that a program for tables would compute; `unquote_formula` takes it away.

    >>> [quote_formula(cell) for cell in ("=1+1", "-x", "-1.5", "-1+x", "plain", "'=1")]
    ["'=1+1", "'-x", '-1.5', "'-1+x", 'plain', "''=1"]
    """
    return f"'{cell}" if _FORMULA.match(cell) else cell


def unquote_formula(cell: str) -> str:
    """Undo `quote_formula`.

    >>> unquote_formula("'=1+1"), unquote_formula("'tis")
    ('=1+1', "'tis")
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def escape_character(character: str) -> str:
    r"""Escape a character as in Python, and a lone surrogate from `os.fsdecode` as the byte that it stands for.

    >>> print(escape_character("\n"), escape_character("\u202e"), escape_character("\udcff"))
    \n \u202e \xff
    """
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def encodable(text: str) -> str:
    """Escape bytes of names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


@cache
def english_stop_words() -> frozenset[str]:
    """Return scikit-learn's list of English stop words, without importing scikit-learn if its file has the list alone.

    >>> "the" in english_stop_words()
    True
    """
    spec = find_spec("sklearn")
    path = Path((spec and spec.origin) or "").with_name("feature_extraction") / "_stop_words.py"
    if "sklearn" not in sys.modules and path.is_file():
        words = runpy.run_path(str(path)).get("ENGLISH_STOP_WORDS")
        if isinstance(words, frozenset):
            return words
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    return ENGLISH_STOP_WORDS
