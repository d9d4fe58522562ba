"""Formatting of texts and numbers on pages; texts are cleaned of characters that hide or reorder others."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from bagwise._utils import text
from bagwise._utils.text import count, escape_character

__all__ = ["clean", "digits_for", "fixed", "number", "one_line", "percent", "percent_of", "plain", "rounded_sums"]
__all__ += ["rounded_to_sum", "seconds", "shortened"]

_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions of text
    "\xad\u200b\u2028\u2029\u2060-\u2064\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # zero width, line separators
    "\ud800-\udfff\ufffe\uffff"  # lone surrogates (bytes that are not UTF-8), noncharacters
    "]"
)
_THIN_SPACE = "\u202f"  # does not break
_MINUS = "\u2212"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def clean(content: str) -> str:
    r"""Escape characters that are invisible or cannot be encoded.

    >>> print(clean("caf\udce9"), clean("exe.\u202egpj"), clean("a\x00b"))
    caf\xe9 exe.\u202egpj a\x00b
    """
    return _UNSEEN.sub(lambda match: escape_character(match[0]), content.replace("\r\n", "\n"))


def one_line(name: str) -> str:
    """Clean a name; show line breaks and tabs as symbols, and a blank name as ``(empty)``."""
    return clean(name).replace("\n", "⏎").replace("\t", "⇥") if name.strip() else "(empty)"


def shortened(name: str, length: int) -> str:
    """Clean a name and truncate it to `length` characters."""
    return text.shortened(one_line(name), length)


def percent(fraction: float) -> str:
    """Format a fraction as `bagwise._utils.text.percent` does, with a space that does not break."""
    return text.percent(fraction).replace(" ", _THIN_SPACE)


def percent_of(part: float, whole: float) -> str:
    """Format a part of a whole as a percentage; a dash if the whole is 0."""
    return percent(part / whole) if whole else "–"


def number(value: float, digits: int = 4) -> str:
    """Format a number with `digits` significant digits, a minus sign, and powers of ten as superscripts.

    >>> number(-0.25), number(1234567)
    ('−0.25', '1.235×10⁶')
    """
    shown, _, power = f"{value:.{digits}g}".partition("e")
    if power:
        shown += f"×10{str(int(power)).translate(_RAISED)}"
    return shown.replace("-", _MINUS)


def digits_for(largest: float) -> int:
    """Return the number of decimals that shows three significant digits of a number, at most 8.

    >>> digits_for(0.385), digits_for(12.3), digits_for(0.0)
    (3, 1, 3)
    """
    return 3 if not 0 < largest < math.inf else min(8, max(0, 2 - math.floor(math.log10(largest))))


def fixed(value: float, digits: int, sign: bool = False) -> str:
    """Format a number with `digits` decimals and a minus sign, or with a sign in any case.

    >>> fixed(-0.25, 3), fixed(0.25, 1, sign=True), fixed(-0.0001, 2)
    ('−0.250', '+0.2', '0.00')
    """
    shown = f"{value:.{digits}f}"
    if float(shown) == 0:
        return shown.removeprefix("-")
    return f"{value:{'+' if sign else ''}.{digits}f}".replace("-", _MINUS)


def rounded_to_sum(values: Sequence[float], total: float, digits: int) -> list[float]:
    """Round values down or up to `digits` decimals so that they add up to the rounded total, if they do before.

    >>> rounded_to_sum([0.14, 0.14, 0.72], 1.0, 1)
    [0.2, 0.1, 0.7]
    """
    unit = 10.0**-digits
    lower = [math.floor(value / unit + 1e-9) for value in values]
    missing = round(total / unit) - sum(lower)
    order = sorted(range(len(values)), key=lambda i: lower[i] - values[i] / unit)  # the largest remainders first
    for i in order[: max(missing, 0)]:
        lower[i] += 1
    return [round(number * unit, digits) for number in lower]


def rounded_sums(
    explanation: Any, n_groups: int, label: str, against: str | None = None
) -> list[tuple[str, float, float]]:
    """Return the rows of `Explanation.sums`, rounded to three digits so that they add up to the rounded scores."""
    names, *columns = zip(*explanation.sums(n_groups, label, against), strict=True)
    other = against or (explanation.runner_up if label == explanation.predicted else explanation.predicted)
    rounded = [
        rounded_to_sum(column, explanation.score_of(name), 3)
        for column, name in zip(columns, (label, other), strict=True)
    ]
    return list(zip(names, *rounded, strict=True))


def plain(value: str | int | float | bool) -> str:
    """Format a text, number or truth value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value).replace("-", _MINUS)
    return number(value, 6) if isinstance(value, float) else value


def seconds(value: float) -> str:
    """Format a time as `bagwise._utils.text.duration` does, with spaces that do not break."""
    return text.duration(value).replace(" ", _THIN_SPACE)
