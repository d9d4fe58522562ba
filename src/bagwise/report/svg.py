"""Pieces of SVG. Colours are classes of the page's style sheet, so that charts follow light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bagwise.report.texts import clean, one_line

__all__ = ["bar", "element", "line", "path", "text"]


def element(name: str, *children: str, **attributes: str | float | None) -> str:
    """Write an element. Children are markup; attributes are escaped, and left out where they are None.

    Underscores in names of attributes stand for hyphens, and one at the end for nothing: ``class_``.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>{''.join(children)}</{name}>" if children else f"<{name}{shown}/>"


def _value(value: str | float) -> str:
    return escape(clean(value)) if isinstance(value, str) else _short(value)


def _short(value: float) -> str:
    """Write a place in pixels with one decimal at most."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # adding zero takes the sign from minus zero


def text(content: str, x: float, y: float, class_: str, anchor: str | None = None) -> str:
    """Write a line of text."""
    return element("text", escape(one_line(content)), x=x, y=y, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """Draw a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Sequence[tuple[float, float]], class_: str, closed: bool = False, dash: str | None = None) -> str:
    """Draw a line through points."""
    steps = "L".join(f"{_short(x)},{_short(y)}" for x, y in points)
    return element("path", d=f"M{steps}{'Z' if closed else ''}", class_=class_, stroke_dasharray=dash)


def bar(value: float, largest: float, signed: bool = False) -> str:
    """Draw a small bar of a value beside the number it stands for; hidden from readers of screens, who have the number.

    Signed bars grow from the middle, to the right if positive and to the left, in grey, if negative.
    """
    part = min(1.0, abs(value) / largest) if largest else 0.0
    if not signed:
        drawn = element("rect", x=0, y=0, width=100 * part, height=8, class_="bar")
    else:
        start = 50.0 if value >= 0 else 50 - 50 * part
        kind = "bar" if value >= 0 else "bar against"
        drawn = element("rect", x=start, y=0, width=50 * part, height=8, class_=kind)
        drawn += line(50, 0, 50, 8, "middle")
    return element("svg", drawn, class_="bars", viewBox="0 0 100 8", preserveAspectRatio="none", aria_hidden="true")
