"""Building blocks of charts: SVG elements, axes, and the colours of light and dark pages.

Colours are classes of the style sheet ``chart.css.j2``, so that charts follow light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from bagwise._utils.text import count
from bagwise.display.texts import clean, one_line

__all__ = ["DARK", "LIGHT", "N_LEVELS", "Axis", "bar", "contrast", "element", "line", "linear_axis", "log_axis"]
__all__ += ["path", "shades", "text", "thinned"]

_COLOURS = {  # on light and on dark pages
    "paper": ("#fbfaf7", "#14171a"),
    "surface": ("#ffffff", "#1b1f23"),
    "ink": ("#1c1f22", "#e8e6e1"),
    "muted": ("#5a6066", "#a4a9ae"),
    "rule": ("#dedbd3", "#343a40"),
    "track": ("#edeae3", "#2a2f34"),
    "shade": ("#cfcac0", "#000000"),
    "accent": ("#0b6a73", "#62c3c9"),
    "wash": ("#cfe3e4", "#24484c"),
    "series-1": ("#0b6a73", "#62c3c9"),
    "series-2": ("#b0432b", "#ee8e73"),
    "series-3": ("#4a55a8", "#9aa5f0"),
    "series-4": ("#8a6a00", "#d6b24a"),
    "series-5": ("#9c3a78", "#df8fc0"),
    "series-6": ("#4d6b2f", "#a3c47f"),
    "series-7": ("#1f5fae", "#7fb2f0"),
    "series-8": ("#7a3fa0", "#c397e6"),
    "series-9": ("#a8324a", "#f08aa0"),
    "series-10": ("#1d7d3d", "#74cf8a"),
    "series-11": ("#a05a10", "#eda860"),
    "series-12": ("#3d6f8e", "#93bfdb"),
    "series-13": ("#6b5b3e", "#c4b28f"),
    "series-14": ("#b0286b", "#f27db6"),
    "series-15": ("#2f3b66", "#c3cbef"),
    "series-16": ("#5d7a00", "#c0d860"),
    "series-17": ("#8c2f12", "#ffb199"),
    "series-18": ("#00755a", "#5fdcb4"),
    "series-19": ("#7d4a5f", "#d3a3b8"),
    "series-20": ("#4f4f4f", "#c0c0c0"),
}
LIGHT, DARK = ({name: pair[k] for name, pair in _COLOURS.items()} for k in (0, 1))
# Shades of a heat map besides the empty one.
N_LEVELS = 8
_TINY = 1e-200


def element(name: str, *children: str, **attributes: str | float | None) -> str:
    """Write an element. Children are markup; attributes are escaped, and omitted if None.

    Underscores in attribute names become hyphens; a trailing one is dropped: ``class_``.
    """
    shown = ""
    for key, value in attributes.items():
        if value is not None:
            content = escape(clean(value)) if isinstance(value, str) else _pixels(value)
            shown += f' {key.rstrip("_").replace("_", "-")}="{content}"'
    return f"<{name}{shown}>{''.join(children)}</{name}>" if children else f"<{name}{shown}/>"


def _pixels(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")  # adding zero turns minus zero into zero


def text(content: str, x: float, y: float, class_: str, anchor: str | None = None) -> str:
    """Write a line of text."""
    return element("text", escape(one_line(content)), x=x, y=y, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """Draw a straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def path(points: Sequence[tuple[float, float]], class_: str, closed: bool = False, dash: str | None = None) -> str:
    """Draw a line through points."""
    steps = "L".join(f"{_pixels(x)},{_pixels(y)}" for x, y in points)
    return element("path", d=f"M{steps}{'Z' if closed else ''}", class_=class_, stroke_dasharray=dash)


def bar(value: float, largest: float, signed: bool = False) -> str:
    """Draw a small bar beside its number; hidden from screen readers, which read the number.

    Signed bars start in the middle: positive ones extend to the right, negative ones, in grey, to the left.
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


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` to pixels from `start` to `end`, on a linear or logarithmic scale."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; the middle if `low` equals `high`."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        part = (value - low) / (high - low) if high > low else 0.5
        return self.start + part * (self.end - self.start)


def log_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """Make a logarithmic axis of positive numbers with ticks at 1, 2 and 5 times powers of ten.

    Ticks whose labels would overlap are dropped; powers of ten have priority.
    """
    low, high = min(values), max(values)
    axis = Axis(low, high, start, end, (), logarithmic=True)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for factor in (1, 2, 5):
        for tick in (factor * 10.0**power for power in powers):
            if low <= tick <= high and all(abs(axis(tick) - axis(other)) >= _distance(tick, other) for other in ticks):
                ticks.append(tick)
    return Axis(low, high, start, end, tuple(sorted(ticks)) or (low,), logarithmic=True)


def _distance(*ticks: float) -> float:
    """Return the distance in pixels that the labels of two adjacent ticks need."""
    return max(44.0, 4.5 * sum(len(count(round(tick))) for tick in ticks) + 8)


def linear_axis(values: Sequence[float], start: float, end: float, n_ticks: int = 5, zero: bool = False) -> Axis:
    """Make a linear axis with about `n_ticks` ticks, one at each end.

    With `zero` it starts at zero, unless that would leave more than half of it empty.
    """
    low, high = min(values), max(values)
    if zero and 0 <= low <= 0.6 * high:
        low = 0.0
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, _TINY):  # numerically a single value
        margin = 0.1 * size if size > _TINY else 0.5
        low, high = low - margin if low < 0 or not zero else max(0.0, low - margin), high + margin
    step = _round_step((high - low) / n_ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))


def thinned(places: Sequence[float], values: Sequence[float], limit: int = 400) -> list[int]:
    """Return the indices of at most `limit` points of a curve that preserve its shape; `places` increase.

    The range is divided into `limit` / 4 columns of equal width; each keeps its first, last, lowest and highest point.

    >>> values = [0.0] * 1000
    >>> values[617] = 1.0
    >>> kept = thinned(range(1000), values, limit=40)
    >>> len(kept) <= 40, 617 in kept
    (True, True)
    """
    if len(places) <= limit:
        return list(range(len(places)))
    width = (places[-1] - places[0]) / (limit // 4)
    columns: dict[int, list[int]] = {}
    for i, x in enumerate(places):
        columns.setdefault(min(int((x - places[0]) / width), limit // 4 - 1), []).append(i)
    kept = set()
    for inside in columns.values():
        kept |= {inside[0], inside[-1], min(inside, key=values.__getitem__), max(inside, key=values.__getitem__)}
    return sorted(kept)


def shades(palette: dict[str, str]) -> list[tuple[str, str]]:
    """Return the background and text colour of each level of a heat map, lightest first."""
    pairs = []
    for level in range(1, N_LEVELS + 1):
        background = _mixed(palette["surface"], palette["accent"], 0.06 + 0.94 * level / N_LEVELS)
        # black or white always has a contrast of at least 4.5
        ink = max("#000000", "#ffffff", key=lambda colour: contrast(colour, background))
        pairs.append((background, ink))
    return pairs


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21, as defined by WCAG 2."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [channel / 255 for channel in _channels(colour)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _mixed(first: str, second: str, part: float) -> str:
    channels = zip(_channels(first), _channels(second), strict=True)
    return "#" + "".join(f"{round((1 - part) * a + part * b):02x}" for a, b in channels)


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
