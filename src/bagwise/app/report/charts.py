"""Charts as SVG: no script, values on hover and focus, colours from the style sheet ``chart.css.j2``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.text import count, how_many
from bagwise.app.report.data import Comparison, ConfusionMatrix, MergingCurve
from bagwise.display.svg import LIGHT, N_LEVELS, Axis, element, line, linear_axis, log_axis, path, text, thinned
from bagwise.display.texts import number, one_line, percent, shortened

__all__ = ["MAX_STOPS", "NARROW", "WIDE", "ChartLayout", "HeatMap", "comparison_chart", "heat_map", "level_from"]
__all__ += ["merging_chart", "series_style"]

_TOP = 58  # title of the panel and labels of marks
_N_COLORS = sum(name.startswith("series-") for name in LIGHT)
_DASHES = (None, "6 3", "2 3")  # when the colours are used up, lines differ by their dashes
# More points than this are not reachable by the tab key; the table on the page has them all.
MAX_STOPS = 40
_LETTER = 7.6  # pixels of a bold letter, more than most take
_MAX_READOUTS = 160
_MAX_DRAWN = 1200


@dataclass(frozen=True)
class ChartLayout:
    """Pixels of a chart: its width, where lines begin and end, and whether what is pointed at has a row of its own."""

    name: str
    width: float
    left: float
    right: float
    readout_row: float = 0


WIDE = ChartLayout("wide", 760, 58, 742)
NARROW = ChartLayout("narrow", 350, 46, 344, readout_row=20)  # of phones


@dataclass(frozen=True)
class _Panel:
    """A part of a chart with its own axes: numbers of groups on x, values on y."""

    layout: ChartLayout
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

    @property
    def title_at(self) -> float:
        return self.top - self.head - self.layout.readout_row

    def frame(self, labels: Sequence[str]) -> str:
        """Draw the title, and grid lines with their labels."""
        parts = [text(self.title, 0, self.title_at, "panel-title")]
        left, right = self.layout.left, self.layout.right
        for tick, label in zip(self.y.ticks, labels, strict=True):
            kind = "rule base" if tick == self.y.ticks[0] else "rule"
            parts += [line(left, self.y(tick), right, self.y(tick), kind)]
            parts += [text(label, left - 8, self.y(tick) + 4, "tick", "end")]
        return "".join(parts)

    def x_axis(self) -> str:
        """Draw ticks and title of the x axis."""
        middle = (self.layout.left + self.layout.right) / 2
        parts = [text("number of groups (log scale)", middle, self.bottom + 40, "axis-title", "middle")]
        for tick in self.x.ticks:
            parts += [line(self.x(tick), self.bottom, self.x(tick), self.bottom + 5, "rule base")]
            parts += [text(count(round(tick)), self.x(tick), self.bottom + 19, "tick", "middle")]
        return "".join(parts)

    def readouts(
        self, sizes: Sequence[int], values: Sequence[Sequence[float]], labels: Sequence[str], stops: bool
    ) -> str:
        """Draw areas that show points at a size and their label on hover and, with `stops`, on focus."""
        places = [self.x(size) for size in sizes]
        parts = []
        for i, x in enumerate(places):
            start = self.layout.left if i == 0 else (places[i - 1] + x) / 2
            end = self.layout.right if i == len(places) - 1 else (places[i + 1] + x) / 2
            area = element("rect", x=start, y=self.top, width=end - start, height=self.bottom - self.top, class_="area")
            shown = line(x, self.top, x, self.bottom, "guide")
            shown += "".join(element("circle", cx=x, cy=self.y(value), r=4.5, class_="dot") for value in values[i])
            shown += text(labels[i], self.layout.right, self.top - self.head, "readout", "end")
            focus = {"role": "img", "aria_label": labels[i], "tabindex": 0} if stops else {"aria_hidden": "true"}
            parts.append(element("g", area, element("g", shown, class_="tip"), class_="point", **focus))
        return "".join(parts)


def merging_chart(curve: MergingCurve, readouts: bool = True, layout: ChartLayout = WIDE) -> str:
    """Draw the errors against the number of groups, and below them the criterion, as an ``svg`` element.

    With `readouts`, labels of the values appear on hover and focus. Needs the style sheet of the page.

    >>> chart = merging_chart(MergingCurve([10, 50], [0.3, 0.2], [0.01, 0.01], n_groups=50))
    >>> "50 groups: error 20.0\u202f% ± 1.0\u202f%" in chart
    True
    """
    marked = [size for size in (curve.n_groups, curve.auto) if size is not None]
    sizes = [*curve.sizes, *curve.test_sizes, *curve.criterion_sizes, *marked]
    x = log_axis(sizes, layout.left + 10, layout.right - 10)
    parts, bottom, shown = [], 0.0, []
    if curve.measured:
        shown.append("error")
        spread = curve.standard_errors or [0.0] * len(curve.errors)
        ends = [e + sign * s for e, s in zip(curve.errors, spread, strict=True) for sign in (-1, 1)]
        ends = [min(1.0, max(0.0, end)) for end in (*ends, *curve.test_errors)]
        top = _TOP + layout.readout_row
        title = "Error" if curve.sizes else "Test error"
        title += " ± one standard error" if curve.standard_errors and not curve.test_sizes else ""
        panel = _Panel(layout, x, linear_axis(ends, top + 230, top, zero=True), title)
        bottom = panel.bottom
        parts.append(panel.frame(_percentages(panel.y)) + _error_curves(curve, panel, readouts))
        if not curve.criterion_sizes:
            parts.append(panel.x_axis())
    if curve.criterion_sizes:
        shown.append("criterion")
        top = (bottom + 56 if bottom else _TOP) + layout.readout_row
        name = shortened(curve.criterion_name, 50 if layout is WIDE else 30)
        title = f"Criterion: {name}" if curve.criterion_name else "Criterion"
        panel = _Panel(layout, x, linear_axis(curve.criterion_values, top + 100, top, n_ticks=3), title, head=18)
        bottom = panel.bottom
        parts.append(panel.frame([number(tick) for tick in panel.y.ticks]) + panel.x_axis())
        parts.append(_criterion_curve(curve, panel, readouts))
    label = f"Chart: {' and '.join(shown)} against the number of groups"
    return _chart(parts, bottom + 52, label, layout)


def _error_curves(curve: MergingCurve, panel: _Panel, readouts: bool) -> str:
    """Draw the curves of cross-validation, with a band of one standard error, and of the test, and their legend."""
    parts: list[str] = []
    legend: list[tuple[str, str]] = []
    places = [panel.x(size) for size in curve.sizes]
    if curve.standard_errors:
        upper = [min(panel.y.high, e + s) for e, s in zip(curve.errors, curve.standard_errors, strict=True)]
        lower = [max(panel.y.low, e - s) for e, s in zip(curve.errors, curve.standard_errors, strict=True)]
        above = [(places[i], panel.y(upper[i])) for i in thinned(places, upper, _MAX_DRAWN)]
        below = [(places[i], panel.y(lower[i])) for i in thinned(places, lower, _MAX_DRAWN)]
        if len(places) == 1:
            parts.append(line(*above[0], *below[0], "curve"))
        parts.append(path(above + below[::-1], "band", closed=True))
    for sizes, errors, kind, name in (
        (curve.test_sizes, curve.test_errors, "curve test", "training items" if curve.test_is_training else "test"),
        (curve.sizes, curve.errors, "curve", "cross-validation" + (" ± 1 SE" if curve.standard_errors else "")),
    ):
        if sizes:
            across = [panel.x(size) for size in sizes]
            points = [(across[i], panel.y(errors[i])) for i in thinned(across, errors, _MAX_DRAWN)]
            parts += [path(points, kind), _knots(points, "knot test" if kind == "curve test" else "knot")]
            legend.insert(0, (kind, name))
    start = 52.0
    for kind, name in legend if len(legend) > 1 else ():
        parts.append(line(start, panel.title_at - 4, start + 22, panel.title_at - 4, kind))
        parts.append(text(name, start + 28, panel.title_at, "legend"))
        start += 46 + 6.6 * len(name)
    parts.append(_marks(curve, panel))
    if readouts:
        sizes = sorted({*curve.sizes, *curve.test_sizes})
        read = _spread_out(thinned([panel.x(size) for size in sizes], _highest(curve, sizes)), _MAX_READOUTS)
        chosen = [sizes[i] for i in read]
        values = [[e for e in (curve.error_at(n), curve.test_error_at(n)) if e is not None] for n in chosen]
        labels = [f"{how_many(n, 'groups')}: {_errors_at(curve, n)}" for n in chosen]
        parts.append(panel.readouts(chosen, values, labels, stops=len(sizes) <= MAX_STOPS))
    return "".join(parts)


def _highest(curve: MergingCurve, sizes: Sequence[int]) -> list[float]:
    """Return the larger of the two errors at each size."""
    cross, test = (dict(zip(*pair, strict=True)) for pair in _pairs(curve))
    return [max(cross.get(size, 0.0), test.get(size, 0.0)) for size in sizes]


def _pairs(curve: MergingCurve) -> tuple[tuple[Sequence[int], Sequence[float]], ...]:
    return (curve.sizes, curve.errors), (curve.test_sizes, curve.test_errors)


def _errors_at(curve: MergingCurve, size: int) -> str:
    """Give the errors at a size, such as "error 20.0 % ± 1.0 %, test 21.2 %"."""
    error, test, spread = curve.error_at(size), curve.test_error_at(size), curve.standard_error_at(size)
    parts = []
    if error is not None:
        parts.append(f"error {percent(error)}" + ("" if spread is None else f" ± {percent(spread)}"))
    if test is not None:
        parts.append(f"{'test' if parts else 'test error'} {percent(test)}")
    return ", ".join(parts)


def _knots(points: Sequence[tuple[float, float]], kind: str = "knot") -> str:
    """Draw a dot at each point, unless there are many."""
    if len(points) > MAX_STOPS:
        return ""
    return "".join(element("circle", cx=x, cy=y, r=2.5, class_=kind) for x, y in points)


def _marks(curve: MergingCurve, panel: _Panel) -> str:
    """Mark the size of the model and the smallest that is about as good as the best, by one mark if they are equal."""
    marks: dict[int, str] = {}
    if curve.auto is not None:
        marks[curve.auto] = "auto"
    if curve.n_groups is not None:
        marks[curve.n_groups] = "model, auto" if curve.n_groups == curve.auto else "model"
    parts = []
    for row, (size, name) in enumerate(sorted(marks.items())):
        x, error, test = panel.x(size), curve.error_at(size), curve.test_error_at(size)
        height = panel.top - 22 + 15 * row
        parts.append(line(x, height - 8, x, panel.bottom, "mark"))
        label = f"{name}: {how_many(size, 'groups')}"
        space, right = _LETTER * len(label) + 6, panel.layout.right
        start = x + 6 if x + space <= right else max(0.0, min(x, right) - space)
        parts.append(text(label, start, height, "mark-label"))
        if test is not None and size == curve.n_groups:
            parts.append(element("circle", cx=x, cy=panel.y(test), r=6, class_="chosen test"))
        if error is not None:
            kind = "chosen" if size == curve.n_groups else "one-se"
            parts.append(element("circle", cx=x, cy=panel.y(error), r=6, class_=kind))
    return "".join(parts)


def _criterion_curve(curve: MergingCurve, panel: _Panel, readouts: bool) -> str:
    places = [panel.x(size) for size in curve.criterion_sizes]
    kept = thinned(places, curve.criterion_values, _MAX_DRAWN)
    parts = [path([(places[i], panel.y(curve.criterion_values[i])) for i in kept], "curve thin")]
    if curve.n_groups is not None:
        parts.append(line(panel.x(curve.n_groups), panel.top, panel.x(curve.n_groups), panel.bottom, "mark"))
    read = _spread_out(kept, _MAX_READOUTS) if readouts else []
    sizes, values = [curve.criterion_sizes[i] for i in read], [[curve.criterion_values[i]] for i in read]
    labels = [f"{how_many(size, 'groups')}: {number(value)}" for size, (value,) in zip(sizes, values, strict=True)]
    parts.append(panel.readouts(sizes, values, labels, stops=False))
    return "".join(parts)


_REFERENCE = "1 4"  # dots


def series_style(number: int) -> tuple[str, str | None]:
    """Return the class and the dash pattern of the line of a criterion."""
    return f"series-{number % _N_COLORS + 1}", _DASHES[number // _N_COLORS % len(_DASHES)]


def comparison_chart(comparison: Comparison, layout: ChartLayout = WIDE) -> str:
    """Draw the errors of several criteria against the number of groups, with a legend; hover highlights a line."""
    x = log_axis(comparison.sizes, layout.left + 10, layout.right - 10)
    errors = [error for result in comparison.criteria for error in result.errors]
    top = _TOP + layout.readout_row
    panel = _Panel(layout, x, linear_axis(errors, top + 290, top, zero=True), "Error", head=26)
    parts = [panel.frame(_percentages(panel.y)), panel.x_axis()]
    legend_top, n_columns = panel.bottom + 68, 3 if layout is WIDE else 1
    for series, result in enumerate(comparison.criteria):
        kind, dash = series_style(series)
        dash = _REFERENCE if result.reference else dash
        whole = [(panel.x(size), panel.y(error)) for size, error in zip(comparison.sizes, result.errors, strict=True)]
        points = [whole[i] for i in thinned([point[0] for point in whole], result.errors, _MAX_DRAWN)]
        drawn = path(points, f"reach {kind}") + path(points, "line", dash=dash) + _knots(points)
        ends = {comparison.sizes[0]: result.errors[0], comparison.sizes[-1]: result.errors[-1]}
        label = f"{shortened(result.name, 40)}: " + ", ".join(
            f"{percent(error)} with {how_many(size, 'groups')}" for size, error in ends.items()
        )
        left = layout.left + series % n_columns * (layout.right - layout.left) / n_columns
        top = legend_top + 18 * (series // n_columns)
        drawn += path([(left, top - 4), (left + 28, top - 4)], "line", dash=dash)
        drawn += text(shortened(result.name, 28), left + 36, top, "legend")
        if layout is WIDE:
            drawn += element("g", text(label, layout.right, panel.title_at, "readout", "end"), class_="tip")
        named = element("title", escape(one_line(result.name)))  # in full
        parts.append(element("g", named, drawn, class_=f"series {kind}", tabindex=0, role="img", aria_label=label))
    n_rows = math.ceil(len(comparison.criteria) / n_columns)
    label = "Chart: error of each criterion against the number of groups"
    return _chart(parts, legend_top + 18 * n_rows, label, layout)


def _chart(parts: Sequence[str], height: float, label: str, layout: ChartLayout) -> str:
    box, kind = f"0 0 {layout.width:g} {height:.0f}", f"chart {layout.name}"
    return element("svg", *parts, class_=kind, viewBox=box, role="group", aria_label=label)


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
