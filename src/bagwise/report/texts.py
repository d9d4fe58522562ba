"""Texts and numbers as a page shows them: nothing in them can hide, reorder or break what stands around them."""

from __future__ import annotations

import re

__all__ = ["clean", "count", "number", "one_line", "percent", "plain", "plural", "seconds", "share_of", "shortened"]

_UNSEEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what changes the direction of text
    "\xad\u200b\u2028\u2029\u2060-\u2064\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # what has no width, or ends lines
    "\ud800-\udfff\ufffe\uffff"  # lone surrogates, which stand for bytes that are not UTF-8, and what is no character
    "]"
)
_THIN_SPACE = "\u202f"  # does not break
_MINUS = "\u2212"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def clean(text: str) -> str:
    r"""Write characters that cannot be seen, or not be encoded, as escapes.

    Names of files that are not UTF-8 come with lone surrogates (``os.fsdecode``); the byte is shown.

    Examples
    --------
    >>> from bagwise.report.texts import clean
    >>> print(clean("caf\udce9"), clean("exe.\u202egpj"), clean("a\x00b"))
    caf\xe9 exe.\u202egpj a\x00b
    """
    return _UNSEEN.sub(_escape, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Clean a name, and show the ends of lines in it as signs, and a name that is blank as ``(empty)``."""
    return clean(text).replace("\n", "⏎").replace("\t", "⇥") if text.strip() else "(empty)"


def shortened(text: str, length: int) -> str:
    """Show the beginning of a name that is too long for its place."""
    shown = one_line(text)
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte, see os.fsdecode
        code -= 0xDC00
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def percent(share: float) -> str:
    """Show a share of 1 as a percentage with one decimal; what is not quite 0 or 1 is not shown as if it were."""
    if 0 < share < 0.0005:
        return f"<0.1{_THIN_SPACE}%"
    if 0.9995 <= share < 1:
        return f">99.9{_THIN_SPACE}%"
    return f"{100 * share:.1f}{_THIN_SPACE}%"


def share_of(part: float, whole: float) -> str:
    """Show a part of a whole as a percentage; nothing of nothing is a dash."""
    return percent(part / whole) if whole else "–"


def count(value: int) -> str:
    """Show a whole number; from 10,000 on with commas."""
    return f"{value:,}" if abs(value) >= 10_000 else str(value)


def plural(value: int, thing: str) -> str:
    """Show a number of things: ``plural(1, "word")`` is ``"1 word"``."""
    if value == 1:
        return f"1 {thing}"
    ending = "es" if thing.endswith("s") else "s"
    return f"{count(value)} {thing}{ending}"


def number(value: float, digits: int = 4) -> str:
    """Show a number with some significant digits, a true minus sign, and powers of ten as people write them.

    Examples
    --------
    >>> from bagwise.report.texts import number
    >>> number(-0.25), number(1234567)
    ('−0.25', '1.235×10⁶')
    """
    shown, _, power = f"{value:.{digits}g}".partition("e")
    if power:
        shown += f"×10{str(int(power)).translate(_RAISED)}"
    return shown.replace("-", _MINUS)


def plain(value: str | int | float | bool) -> str:
    """Show the value of a fact."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return count(value).replace("-", _MINUS)
    return number(value, 6) if isinstance(value, float) else value


def seconds(value: float) -> str:
    """Show a time: milliseconds, seconds, minutes or hours."""
    space = _THIN_SPACE
    if value < 0.9995:
        return f"{1000 * value:.3g}{space}ms"
    if value < 59.95:
        return f"{value:.3g}{space}s"
    whole = round(value)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{count(hours)}{space}h {minutes:02d}{space}min"
    return f"{minutes}{space}min {rest:02d}{space}s"
