"""Charts as SVG: no script, values on hover and focus, colours from the style sheet ``chart.css.j2``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bagwise.report.data import Comparison, ConfusionMatrix, MergingCurve
from bagwise.report.svg import LIGHT, N_LEVELS, Axis, element, line, linear_axis, log_axis, path, text, thinned
from bagwise.report.texts import count, number, percent, plural, shortened

__all__ = ["MAX_STOPS", "HeatMap", "comparison_chart", "heat_map", "level_from", "merging_chart", "series_style"]

_WIDTH = 760
_LEFT, _RIGHT = 58, 742
_TOP = 58  # title of the panel and labels of marks
_N_COLORS = sum(name.startswith("series-") for name in LIGHT)
_DASHES = (None, "6 3", "2 3")  # when the colours are used up, lines differ by their dashes
_LEGEND_COLUMNS = 3
# More points than this are not reachable by the tab key; the table on the page has them all.
MAX_STOPS = 40
_MAX_READOUTS = 160
_MAX_DRAWN = 1200


@dataclass(frozen=True)
class _Panel:
    """A part of a chart with its own axes: numbers of groups on x, values on y."""

    x: Axis
    y: Axis
    title: str
    head: float = 44  # from the title down to the top

    @property
    def top(self) -> float:
        return self.y.end

    @property
    def bottom(self) -> float:
        return self.y.start

    def frame(self, labels: Sequence[str]) -> str:
        """Draw the title, and grid lines with their labels."""
        parts = [text(self.title, 0, self.top - self.head, "panel-title")]
        for tick, label in zip(self.y.ticks, labels, strict=True):
            kind = "rule base" if tick == self.y.ticks[0] else "rule"
            parts += [line(_LEFT, self.y(tick), _RIGHT, self.y(tick), kind)]
            parts += [text(label, _LEFT - 8, self.y(tick) + 4, "tick", "end")]
        return "".join(parts)

    def x_axis(self) -> str:
        """Draw ticks and title of the x axis."""
        parts = [text("number of groups (log scale)", (_LEFT + _RIGHT) / 2, self.bottom + 40, "axis-title", "middle")]
        for tick in self.x.ticks:
            parts += [line(self.x(tick), self.bottom, self.x(tick), self.bottom + 5, "rule base")]
            parts += [text(count(round(tick)), self.x(tick), self.bottom + 19, "tick", "middle")]
        return "".join(parts)

    def readouts(self, sizes: Sequence[int], values: Sequence[float], labels: Sequence[str], stops: bool) -> str:
        """Draw areas that show a point and its label on hover and, with `stops`, on focus."""
        places = [self.x(size) for size in sizes]
        parts = []
        for i, (place, value) in enumerate(zip(places, values, strict=True)):
            start = _LEFT if i == 0 else (places[i - 1] + place) / 2
            end = _RIGHT if i == len(places) - 1 else (places[i + 1] + place) / 2
            area = element("rect", x=start, y=self.top, width=end - start, height=self.bottom - self.top, class_="area")
            shown = line(place, self.top, place, self.bottom, "guide")
            shown += element("circle", cx=place, cy=self.y(value), r=4.5, class_="dot")
            shown += text(labels[i], _RIGHT, self.top - self.head, "readout", "end")
            focus = {"role": "img", "aria_label": labels[i], "tabindex": 0} if stops else {"aria_hidden": "true"}
            parts.append(element("g", area, element("g", shown, class_="tip"), class_="point", **focus))
        return "".join(parts)


def merging_chart(curve: MergingCurve, readouts: bool = True) -> str:
    """Draw the error against the number of groups, and below it the criterion, as an ``svg`` element.

    With `readouts`, labels of the values appear on hover and focus. Needs the style sheet of the page.

    >>> chart = merging_chart(MergingCurve([10, 50], [0.3, 0.2], [0.01, 0.01], n_groups=50))
    >>> "50 groups: error 20.0\u202f% ± 1.0\u202f%" in chart
    True
    """
    marked = [size for size in (curve.n_groups, curve.one_se) if size is not None]
    x = log_axis([*curve.sizes, *curve.criterion_sizes, *marked], _LEFT + 10, _RIGHT - 10)
    parts, bottom, shown = [], 0.0, []
    if curve.sizes:
        shown.append("error")
        spread = curve.standard_errors or [0.0] * len(curve.errors)
        ends = [e + sign * s for e, s in zip(curve.errors, spread, strict=True) for sign in (-1, 1)]
        title = "Error ± one standard error" if curve.standard_errors else "Error"
        y = linear_axis([min(1.0, max(0.0, end)) for end in ends], _TOP + 230, _TOP, zero=True)
        panel = _Panel(x, y, title)
        bottom = panel.bottom
        parts.append(panel.frame(_percentages(panel.y)) + _error_curve(curve, panel, readouts))
        if not curve.criterion_sizes:
            parts.append(panel.x_axis())
    if curve.criterion_sizes:
        shown.append("criterion")
        top = bottom + 56 if bottom else _TOP
        title = f"Criterion: {shortened(curve.criterion_name, 50)}" if curve.criterion_name else "Criterion"
        panel = _Panel(x, linear_axis(curve.criterion_values, top + 100, top, n_ticks=3), title, head=18)
        bottom = panel.bottom
        parts.append(panel.frame([number(tick) for tick in panel.y.ticks]) + panel.x_axis())
        parts.append(_criterion_curve(curve, panel, readouts))
    return _chart(parts, bottom + 52, f"Chart: {' and '.join(shown)} against the number of groups")


def _error_curve(curve: MergingCurve, panel: _Panel, readouts: bool) -> str:
    places = [panel.x(size) for size in curve.sizes]
    kept = thinned(places, curve.errors, _MAX_DRAWN)
    parts = []
    if curve.standard_errors:
        upper = [min(panel.y.high, e + s) for e, s in zip(curve.errors, curve.standard_errors, strict=True)]
        lower = [max(panel.y.low, e - s) for e, s in zip(curve.errors, curve.standard_errors, strict=True)]
        above = [(places[i], panel.y(upper[i])) for i in thinned(places, upper, _MAX_DRAWN)]
        below = [(places[i], panel.y(lower[i])) for i in thinned(places, lower, _MAX_DRAWN)]
        if len(places) == 1:
            parts.append(line(*above[0], *below[0], "curve"))
        parts.append(path(above + below[::-1], "band", closed=True))
    points = [(places[i], panel.y(curve.errors[i])) for i in kept]
    parts += [path(points, "curve"), _knots(points), _marks(curve, panel)]
    read = _spread_out(kept, _MAX_READOUTS) if readouts else []
    spread = [f" ± {percent(error)}" for error in curve.standard_errors] or [""] * len(places)
    labels = [f"{plural(curve.sizes[i], 'group')}: error {percent(curve.errors[i])}{spread[i]}" for i in read]
    sizes, errors = [curve.sizes[i] for i in read], [curve.errors[i] for i in read]
    parts.append(panel.readouts(sizes, errors, labels, stops=len(places) <= MAX_STOPS))
    return "".join(parts)


def _knots(points: Sequence[tuple[float, float]]) -> str:
    """Draw a dot at each point, unless there are many."""
    if len(points) > MAX_STOPS:
        return ""
    return "".join(element("circle", cx=x, cy=y, r=2.5, class_="knot") for x, y in points)


def _marks(curve: MergingCurve, panel: _Panel) -> str:
    """Mark the size of the model and the 1-SE choice, by one mark if they are equal."""
    marks: dict[int, str] = {}
    if curve.one_se is not None:
        marks[curve.one_se] = "1-SE choice"
    if curve.n_groups is not None:
        marks[curve.n_groups] = "model, 1-SE choice" if curve.n_groups == curve.one_se else "model"
    parts = []
    for row, (size, name) in enumerate(sorted(marks.items())):
        place, error = panel.x(size), curve.error_at(size)
        height = panel.top - 22 + 15 * row
        parts.append(line(place, height - 8, place, panel.bottom, "mark"))
        side, anchor = (6, "start") if place < (_LEFT + _RIGHT) / 2 else (-6, "end")
        parts.append(text(f"{name}: {plural(size, 'group')}", place + side, height, "mark-label", anchor))
        if error is not None:
            kind = "chosen" if size == curve.n_groups else "one-se"
            parts.append(element("circle", cx=place, cy=panel.y(error), r=6, class_=kind))
    return "".join(parts)


def _criterion_curve(curve: MergingCurve, panel: _Panel, readouts: bool) -> str:
    places = [panel.x(size) for size in curve.criterion_sizes]
    kept = thinned(places, curve.criterion_values, _MAX_DRAWN)
    parts = [path([(places[i], panel.y(curve.criterion_values[i])) for i in kept], "curve thin")]
    if curve.n_groups is not None:
        parts.append(line(panel.x(curve.n_groups), panel.top, panel.x(curve.n_groups), panel.bottom, "mark"))
    read = _spread_out(kept, _MAX_READOUTS) if readouts else []
    sizes, values = [curve.criterion_sizes[i] for i in read], [curve.criterion_values[i] for i in read]
    labels = [f"{plural(size, 'group')}: {number(value)}" for size, value in zip(sizes, values, strict=True)]
    parts.append(panel.readouts(sizes, values, labels, stops=False))
    return "".join(parts)


_REFERENCE = "1 4"  # dots


def series_style(place: int) -> tuple[str, str | None]:
    """Return the class and the dash pattern of the line of a criterion."""
    return f"series-{place % _N_COLORS + 1}", _DASHES[place // _N_COLORS % len(_DASHES)]


def comparison_chart(comparison: Comparison) -> str:
    """Draw the errors of several criteria against the number of groups, with a legend; hover highlights a line."""
    x = log_axis(comparison.sizes, _LEFT + 10, _RIGHT - 10)
    errors = [error for result in comparison.criteria for error in result.errors]
    panel = _Panel(x, linear_axis(errors, _TOP + 290, _TOP, zero=True), "Error")
    parts = [panel.frame(_percentages(panel.y)), panel.x_axis()]
    legend_top = panel.bottom + 68
    for place, result in enumerate(comparison.criteria):
        kind, dash = series_style(place)
        dash = _REFERENCE if result.reference else dash
        whole = [(panel.x(size), panel.y(error)) for size, error in zip(comparison.sizes, result.errors, strict=True)]
        points = [whole[i] for i in thinned([point[0] for point in whole], result.errors, _MAX_DRAWN)]
        drawn = path(points, f"reach {kind}") + path(points, "line", dash=dash) + _knots(points)
        ends = {comparison.sizes[0]: result.errors[0], comparison.sizes[-1]: result.errors[-1]}
        label = f"{shortened(result.name, 40)}: " + ", ".join(
            f"{percent(error)} with {plural(size, 'group')}" for size, error in ends.items()
        )
        left = _LEFT + place % _LEGEND_COLUMNS * (_RIGHT - _LEFT) / _LEGEND_COLUMNS
        top = legend_top + 18 * (place // _LEGEND_COLUMNS)
        drawn += path([(left, top - 4), (left + 28, top - 4)], "line", dash=dash)
        drawn += text(shortened(result.name, 28), left + 36, top, "legend")
        drawn += element("g", text(label, _RIGHT, panel.top - panel.head, "readout", "end"), class_="tip")
        parts.append(element("g", drawn, class_=f"series {kind}", tabindex=0, role="img", aria_label=label))
    n_rows = math.ceil(len(comparison.criteria) / _LEGEND_COLUMNS)
    return _chart(parts, legend_top + 18 * n_rows, "Chart: error of each criterion against the number of groups")


def _chart(parts: Sequence[str], height: float, label: str) -> str:
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {_WIDTH} {height:.0f}", role="group", aria_label=label)


def _percentages(axis: Axis) -> list[str]:
    """Format ticks as percentages with as many decimals as their distance needs."""
    step = 100 * (axis.ticks[1] - axis.ticks[0])
    decimals = next(d for d in range(8) if abs(step * 10**d - round(step * 10**d)) < 1e-6 or d == 7)
    return [f"{100 * tick:.{decimals}f}\u202f%" for tick in axis.ticks]


def _spread_out(indices: Sequence[int], limit: int) -> list[int]:
    """Choose at most `limit` indices at even distances, including the first and the last."""
    if len(indices) <= limit:
        return list(indices)
    return [indices[round(i * (len(indices) - 1) / (limit - 1))] for i in range(limit)]


@dataclass(frozen=True)
class HeatMap:
    """A confusion matrix, or the part of it with the most confusions.

    `counts` has a row and a column for each of `classes`. If classes are left out, `others` counts the predictions of
    each row outside of `classes`. `levels` are 0 for empty cells, up to `N_LEVELS`, and grow with the square root of
    the fraction of the row, so that rare confusions are visible.
    """

    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    levels: NDArray[np.intp]
    others: NDArray[np.int64] | None


def heat_map(confusion: ConfusionMatrix, limit: int = 100) -> HeatMap:
    """Return the heat map of all classes, or of the `limit` classes with the most confusions, in their order."""
    counts = np.asarray(confusion.counts)
    totals = counts.sum(axis=1)
    n = len(confusion.classes)
    kept = np.arange(n)
    if n > limit:
        wrong = totals + counts.sum(axis=0) - 2 * np.diagonal(counts)
        kept = np.sort(np.argsort(-wrong, kind="stable")[:limit])
    shown = counts[np.ix_(kept, kept)]
    fractions = shown / np.maximum(totals[kept], 1)[:, None]
    levels = np.where(shown > 0, np.maximum(1, np.ceil(N_LEVELS * np.sqrt(fractions))), 0).astype(np.intp)
    others = totals[kept] - shown.sum(axis=1) if n > limit else None
    return HeatMap(tuple(confusion.classes[i] for i in kept.tolist()), shown, levels, others)


def level_from(level: int) -> float:
    """Return the smallest fraction of a row that has a level."""
    return math.pow((level - 1) / N_LEVELS, 2)
