"""Charts of pages as inline SVG: no script, no library, values on hover and focus, colours by the page's style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bagwise.report.data import MergingCurve
from bagwise.report.page_data import Comparison
from bagwise.report.palette import LIGHT, SERIES_DASHES
from bagwise.report.scales import Axis, linear_axis, log_axis, thinned
from bagwise.report.svg import element, line, path, text
from bagwise.report.texts import count, number, percent, plural, shortened

__all__ = ["MOST_STOPS", "comparison_chart", "legend_sample", "merging_chart", "series_style"]

_WIDTH = 760
_LEFT, _RIGHT = 58, 742
_TOP = 58  # room for the title of a panel and the labels of marks
_N_COLORS = sum(name.startswith("series-") for name in LIGHT)
# More points than that cannot be reached one by one by the tab key in reasonable time; the table beside has them all.
MOST_STOPS = 40
_MOST_READOUTS = 160
_MOST_DRAWN = 1200


@dataclass(frozen=True)
class _Panel:
    """A part of a chart with axes of its own: words across, values up."""

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
        """Draw rules and labels of the values, and the title."""
        parts = [text(self.title, 0, self.top - self.head, "panel-title")]
        for tick, label in zip(self.y.ticks, labels, strict=True):
            kind = "rule base" if tick == self.y.ticks[0] else "rule"
            parts += [line(_LEFT, self.y(tick), _RIGHT, self.y(tick), kind)]
            parts += [text(label, _LEFT - 8, self.y(tick) + 4, "tick", "end")]
        return "".join(parts)

    def words(self, title: str = "words, on a logarithmic scale") -> str:
        """Draw ticks and the title of the words."""
        parts = [text(title, (_LEFT + _RIGHT) / 2, self.bottom + 40, "axis-title", "middle")]
        for tick in self.x.ticks:
            parts += [line(self.x(tick), self.bottom, self.x(tick), self.bottom + 5, "rule base")]
            parts += [text(count(round(tick)), self.x(tick), self.bottom + 19, "tick", "middle")]
        return "".join(parts)

    def readouts(self, sizes: Sequence[int], values: Sequence[float], told: Sequence[str], stops: bool) -> str:
        """Draw areas that show a point and what is told of it while the pointer is over them, or while in focus."""
        places = [self.x(size) for size in sizes]
        parts = []
        for i, (place, value) in enumerate(zip(places, values, strict=True)):
            start = _LEFT if i == 0 else (places[i - 1] + place) / 2
            end = _RIGHT if i == len(places) - 1 else (places[i + 1] + place) / 2
            area = element("rect", x=start, y=self.top, width=end - start, height=self.bottom - self.top, class_="area")
            shown = line(place, self.top, place, self.bottom, "guide")
            shown += element("circle", cx=place, cy=self.y(value), r=4.5, class_="dot")
            shown += text(told[i], _RIGHT, self.top - self.head, "readout", "end")
            parts.append(
                element(
                    "g",
                    area,
                    element("g", shown, class_="tip"),
                    class_="point",
                    role="img" if stops else None,
                    aria_label=told[i] if stops else None,
                    aria_hidden=None if stops else "true",
                    tabindex=0 if stops else None,
                )
            )
        return "".join(parts)


def merging_chart(curve: MergingCurve) -> str:
    """Draw the error against the number of words, and below it the criterion.

    Parameters
    ----------
    curve : MergingCurve

    Returns
    -------
    svg : str
        An ``svg`` element. Needs the page's style sheet.

    Examples
    --------
    >>> from bagwise.report import MergingCurve
    >>> from bagwise.report.charts import merging_chart
    >>> chart = merging_chart(MergingCurve([10, 50], [0.3, 0.2], [0.01, 0.01], chosen=50))
    >>> "50 words: error 20.0\u202f% ± 1.0\u202f%" in chart
    True
    """
    marked = [size for size in (curve.chosen, curve.one_se) if size is not None]
    x = log_axis([*curve.sizes, *curve.criterion_sizes, *marked], _LEFT + 10, _RIGHT - 10)
    parts, bottom, told = [], 0.0, []
    if curve.sizes:
        told.append("error")
        panel = _error_panel(curve, x)
        bottom = panel.bottom
        parts.append(panel.frame(_percentages(panel.y)) + _error_curve(curve, panel))
        if not curve.criterion_sizes:
            parts.append(panel.words())
    if curve.criterion_sizes:
        told.append("criterion")
        panel = _criterion_panel(curve, x, bottom)
        bottom = panel.bottom
        parts.append(panel.frame([number(tick) for tick in panel.y.ticks]) + panel.words())
        parts.append(_criterion_curve(curve, panel))
    label = f"Chart: {' and '.join(told)} against the number of words"
    return _chart(parts, bottom + 52, label)


def _error_panel(curve: MergingCurve, x: Axis) -> _Panel:
    spread = curve.standard_errors or [0.0] * len(curve.errors)
    ends = [e + sign * s for e, s in zip(curve.errors, spread, strict=True) for sign in (-1, 1)]
    ends = [min(1.0, max(0.0, end)) for end in ends]
    title = "Error, with one standard error" if curve.standard_errors else "Error"
    return _Panel(x, linear_axis(ends, _TOP + 230, _TOP, zero=True), title)


def _error_curve(curve: MergingCurve, panel: _Panel) -> str:
    places = [panel.x(size) for size in curve.sizes]
    kept = thinned(places, curve.errors, _MOST_DRAWN)
    parts = []
    if curve.standard_errors:
        upper = [min(panel.y.high, e + s) for e, s in zip(curve.errors, curve.standard_errors, strict=True)]
        lower = [max(panel.y.low, e - s) for e, s in zip(curve.errors, curve.standard_errors, strict=True)]
        above = [(places[i], panel.y(upper[i])) for i in thinned(places, upper, _MOST_DRAWN)]
        below = [(places[i], panel.y(lower[i])) for i in thinned(places, lower, _MOST_DRAWN)]
        if len(places) == 1:
            parts.append(line(*above[0], *below[0], "curve"))
        parts.append(path(above + below[::-1], "band", closed=True))
    parts.append(path([(places[i], panel.y(curve.errors[i])) for i in kept], "curve"))
    if len(places) <= MOST_STOPS:
        parts += [element("circle", cx=places[i], cy=panel.y(curve.errors[i]), r=2.5, class_="knot") for i in kept]
    parts.append(_marks(curve, panel))
    read = _spread_out(kept, _MOST_READOUTS)
    parts.append(
        panel.readouts(
            [curve.sizes[i] for i in read],
            [curve.errors[i] for i in read],
            [_told_of_error(curve, i) for i in read],
            stops=len(places) <= MOST_STOPS,
        )
    )
    return "".join(parts)


def _told_of_error(curve: MergingCurve, i: int) -> str:
    spread = f" ± {percent(curve.standard_errors[i])}" if curve.standard_errors else ""
    return f"{plural(curve.sizes[i], 'word')}: error {percent(curve.errors[i])}{spread}"


def _marks(curve: MergingCurve, panel: _Panel) -> str:
    """Mark the size of the model and the choice of one standard error, by one mark if they are the same."""
    marks: dict[int, str] = {}
    if curve.one_se is not None:
        marks[curve.one_se] = "1-SE choice"
    if curve.chosen is not None:
        marks[curve.chosen] = "chosen, 1-SE" if curve.chosen == curve.one_se else "chosen"
    parts = []
    for row, (size, name) in enumerate(sorted(marks.items())):
        place, error = panel.x(size), curve.error_at(size)
        height = panel.top - 22 + 15 * row
        parts.append(line(place, height - 8, place, panel.bottom, "mark"))
        side, anchor = (6, "start") if place < (_LEFT + _RIGHT) / 2 else (-6, "end")
        parts.append(text(f"{name}: {plural(size, 'word')}", place + side, height, "mark-label", anchor))
        if error is not None:
            kind = "chosen" if size == curve.chosen else "one-se"
            parts.append(element("circle", cx=place, cy=panel.y(error), r=6, class_=kind))
    return "".join(parts)


def _criterion_panel(curve: MergingCurve, x: Axis, bottom: float) -> _Panel:
    top = bottom + 56 if bottom else _TOP
    named = f"Criterion: {shortened(curve.criterion_name, 50)}" if curve.criterion_name else "Criterion"
    return _Panel(x, linear_axis(curve.criterion_values, top + 100, top, n_ticks=3), named, head=18)


def _criterion_curve(curve: MergingCurve, panel: _Panel) -> str:
    places = [panel.x(size) for size in curve.criterion_sizes]
    kept = thinned(places, curve.criterion_values, _MOST_DRAWN)
    parts = [path([(places[i], panel.y(curve.criterion_values[i])) for i in kept], "curve thin")]
    if curve.chosen is not None:
        parts.append(line(panel.x(curve.chosen), panel.top, panel.x(curve.chosen), panel.bottom, "mark"))
    read = _spread_out(kept, _MOST_READOUTS)
    sizes, values = [curve.criterion_sizes[i] for i in read], [curve.criterion_values[i] for i in read]
    told = [f"{plural(size, 'word')}: {number(value)}" for size, value in zip(sizes, values, strict=True)]
    parts.append(panel.readouts(sizes, values, told, stops=False))
    return "".join(parts)


def series_style(place: int) -> tuple[str, str | None]:
    """Give the class and the dashes of the lines of a criterion."""
    return f"series-{place % _N_COLORS + 1}", SERIES_DASHES[place // _N_COLORS % len(SERIES_DASHES)] or None


def legend_sample(place: int) -> str:
    """Draw a short line as the chart has it, for a legend."""
    kind, dash = series_style(place)
    drawn = path([(0, 5), (28, 5)], f"series {kind}", dash=dash)
    return element("svg", drawn, class_="sample", viewBox="0 0 28 10", aria_hidden="true", focusable="false")


def comparison_chart(comparison: Comparison) -> str:
    """Draw the errors of several criteria against the number of words; a line comes forward when pointed at.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    svg : str
        An ``svg`` element. Needs the page's style sheet.
    """
    x = log_axis(comparison.sizes, _LEFT + 10, _RIGHT - 10)
    errors = [error for result in comparison.criteria for error in result.errors]
    panel = _Panel(x, linear_axis(errors, _TOP + 290, _TOP, zero=True), "Error")
    parts = [panel.frame(_percentages(panel.y)), panel.words()]
    for place, result in enumerate(comparison.criteria):
        kind, dash = series_style(place)
        points = [(panel.x(size), panel.y(error)) for size, error in zip(comparison.sizes, result.errors, strict=True)]
        kept = thinned([point[0] for point in points], result.errors, _MOST_DRAWN)
        drawn = path([points[i] for i in kept], f"reach {kind}") + path([points[i] for i in kept], "line", dash=dash)
        if len(points) <= MOST_STOPS:
            drawn += "".join(element("circle", cx=points[i][0], cy=points[i][1], r=2.5, class_="knot") for i in kept)
        ends = {comparison.sizes[0]: result.errors[0], comparison.sizes[-1]: result.errors[-1]}
        told = f"{shortened(result.name, 40)}: " + ", ".join(
            f"{percent(error)} with {plural(size, 'word')}" for size, error in ends.items()
        )
        drawn += element("g", text(told, _RIGHT, panel.top - panel.head, "readout", "end"), class_="tip")
        parts.append(element("g", drawn, class_=f"series {kind}", tabindex=0, role="img", aria_label=told))
    return _chart(parts, panel.bottom + 52, "Chart: error of each criterion against the number of words")


def _chart(parts: Sequence[str], height: float, label: str) -> str:
    return element("svg", *parts, class_="chart", viewBox=f"0 0 {_WIDTH} {height:.0f}", role="group", aria_label=label)


def _percentages(axis: Axis) -> list[str]:
    """Show ticks as percentages with as many decimals as their distance needs."""
    step = 100 * (axis.ticks[1] - axis.ticks[0])
    decimals = next(d for d in range(8) if abs(step * 10**d - round(step * 10**d)) < 1e-6 or d == 7)
    return [f"{100 * tick:.{decimals}f}\u202f%" for tick in axis.ticks]


def _spread_out(indices: Sequence[int], limit: int) -> list[int]:
    """Choose at most `limit` of some indices, evenly, with the first and the last."""
    if len(indices) <= limit:
        return list(indices)
    return [indices[round(i * (len(indices) - 1) / (limit - 1))] for i in range(limit)]
