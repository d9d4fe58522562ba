"""JSON of files: parsed only if the values that it becomes take little memory."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

__all__ = ["MOST_PARTS", "check_depth", "parse_json"]

# Parts of a JSON text that are accepted: with 64 to 100 bytes each, 200 MB at most.
MOST_PARTS = 1 << 21
_DEEPEST = 64  # lists and objects inside each other
_PART = re.compile(r'[,\[{]|"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # a string to the end if it has none: linear time


def parse_json(text: str | bytes, most_parts: int = MOST_PARTS) -> Any:
    """Parse JSON of at most so many parts: strings, commas and openings of lists and objects.

    They are counted before a value is made: ``[],`` of 3 bytes becomes 64 in memory. Raises ValueError, or
    RecursionError for values that are nested too deep to be parsed.

    >>> parse_json('{"a": [1, "x, y"]}', most_parts=5)
    {'a': [1, 'x, y']}
    """
    # from UTF-8 alone: json would guess other encodings, in which bytes may look like quotes
    whole = text if isinstance(text, str) else str(text, "utf-8", "surrogatepass")
    # at once for nearly all texts, with what is in strings
    if sum(map(whole.count, ',[{"')) > most_parts:
        n_parts = sum(1 for _ in islice(_PART.finditer(whole), most_parts + 1))
        if n_parts > most_parts:
            raise ValueError(f"it has more than {most_parts:,} strings, lists, objects and commas")
    return json.loads(whole)


def check_depth(value: Any) -> None:
    """Raise ValueError for a JSON value that is nested in more than 64 lists and objects."""
    level = [value]
    for _ in range(_DEEPEST):
        inside = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for children in inside for one in children if isinstance(one, (dict, list, tuple))]
        if not level:
            return
    raise ValueError(f"it is nested in more than {_DEEPEST} lists and objects")
