"""The same charts as PNG files, for papers and plain text: by matplotlib, without its global state."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from bagwise._utils.extras import require
from bagwise.report.charts import series_style
from bagwise.report.confusions import N_LEVELS, heat_map
from bagwise.report.data import Confusion, MergingCurve
from bagwise.report.page_data import Comparison
from bagwise.report.palette import LIGHT, shades
from bagwise.report.scales import linear_axis, log_axis
from bagwise.report.texts import count, plural, shortened

__all__ = ["comparison_figure", "confusion_figure", "merging_figure"]

_DPI = 200
_SETTINGS = {
    "axes.edgecolor": LIGHT["muted"],
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": LIGHT["ink"],
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "font.size": 9,
    "grid.color": LIGHT["rule"],
    "text.color": LIGHT["ink"],
    "xtick.color": LIGHT["muted"],
    "ytick.color": LIGHT["muted"],
}


@contextmanager
def _drawing() -> Iterator[Any]:
    """Give matplotlib with our settings, quiet about characters its font does not have: they are drawn as boxes."""
    matplotlib = require("matplotlib", "plot", "Drawing PNG files")
    with matplotlib.rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield require("matplotlib.figure", "plot", "Drawing PNG files").Figure


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})  # the same figure, the same bytes
    return file.getvalue()


def _words_axis(axes: Any, sizes: list[int]) -> None:
    """Make the axis of words logarithmic, with ticks as the page has them."""
    ticks = log_axis(sizes, 0, 684).ticks
    axes.set_xscale("log")
    axes.set_xticks(ticks, [count(round(tick)) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("words, on a logarithmic scale")


def _error_axis(axes: Any, ends: Sequence[float]) -> None:
    """Make the axis of errors as the page has it; `ends` are the lowest and the highest error, with their spread."""
    axis = linear_axis([min(1.0, max(0.0, end)) for end in ends], 0, 1, zero=True)
    axes.set_ylim(axis.low, axis.high)
    axes.set_yticks(axis.ticks)
    axes.yaxis.set_major_formatter(require("matplotlib.ticker", "plot", "Drawing").PercentFormatter(1.0))


def merging_figure(curve: MergingCurve) -> bytes:
    """Draw the error, and the criterion, against the number of words as a PNG file.

    Parameters
    ----------
    curve : MergingCurve

    Returns
    -------
    png : bytes

    Examples
    --------
    >>> from bagwise.report import MergingCurve
    >>> from bagwise.report.figures import merging_figure
    >>> merging_figure(MergingCurve([10, 50], [0.3, 0.2]))[1:4]
    b'PNG'
    """
    marked = [size for size in (curve.chosen, curve.one_se) if size is not None]
    heights = [3.0] * bool(curve.sizes) + [1.4] * bool(curve.criterion_sizes)
    with _drawing() as Figure:
        figure = Figure(figsize=(6.4, 0.9 + sum(heights)), layout="constrained")
        rows = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        if curve.sizes:
            _draw_errors(rows[0], curve)
        if curve.criterion_sizes:
            axes = rows[-1]
            axes.plot(curve.criterion_sizes, curve.criterion_values, color=LIGHT["accent"], linewidth=1.2)
            named = f"Criterion: {shortened(curve.criterion_name, 60)}" if curve.criterion_name else "Criterion"
            axes.set_title(named, parse_math=False)
            if curve.chosen is not None:
                axes.axvline(curve.chosen, color=LIGHT["accent"], linestyle=":", linewidth=1)
        _words_axis(rows[-1], [*curve.sizes, *curve.criterion_sizes, *marked])
        return _png(figure)


def _draw_errors(axes: Any, curve: MergingCurve) -> None:
    sizes, errors = np.array(curve.sizes), np.array(curve.errors)
    axes.set_title("Error, with one standard error" if curve.standard_errors else "Error")
    spread = np.array(curve.standard_errors or [0.0] * len(errors))
    if curve.standard_errors:
        axes.fill_between(sizes, errors - spread, errors + spread, color=LIGHT["wash"], linewidth=0)
    marker = "o" if len(sizes) <= 40 else ""
    axes.plot(sizes, errors, color=LIGHT["accent"], marker=marker, markersize=3, linewidth=1.6)
    names = {curve.one_se: "1-SE choice", curve.chosen: "chosen"}
    if curve.chosen == curve.one_se:
        names[curve.chosen] = "chosen, 1-SE"
    for size, name in names.items():
        if size is not None:
            face = LIGHT["accent"] if size == curve.chosen else "white"
            label = f"{name}: {plural(size, 'word')}"
            axes.axvline(size, color=LIGHT["accent"], linestyle=":", linewidth=1)
            place = curve.error_at(size)
            style = {"marker": "o", "color": LIGHT["accent"], "markerfacecolor": face, "linestyle": ""}
            # what was not measured is in the legend, but nowhere on the curve
            axes.plot([size] if place is not None else [], [place] if place is not None else [], label=label, **style)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    _error_axis(axes, [float((errors - spread).min()), float((errors + spread).max())])


def confusion_figure(confusion: Confusion, limit: int = 40) -> bytes:
    """Draw a confusion matrix, or the part with most confusions, as a PNG file.

    Parameters
    ----------
    confusion : Confusion
    limit : int, default=40
        Most classes that are drawn.

    Returns
    -------
    png : bytes

    Examples
    --------
    >>> from bagwise.report import Confusion
    >>> from bagwise.report.figures import confusion_figure
    >>> confusion_figure(Confusion(["cat", "dog"], [[8, 2], [1, 9]]))[1:4]
    b'PNG'
    """
    heat = heat_map(confusion, limit)
    n = len(heat.classes)
    colours = shades(LIGHT)
    with _drawing() as Figure:
        size = 1.6 + max(1.4, 0.32 * n if n <= 20 else 0.2 * n)
        figure = Figure(figsize=(size, size), layout="constrained")
        axes = figure.subplots()
        listed = require("matplotlib.colors", "plot", "Drawing").ListedColormap(["white", *(c for c, _ in colours)])
        axes.imshow(heat.levels, cmap=listed, vmin=-0.5, vmax=N_LEVELS + 0.5)
        for i, k in np.argwhere(heat.counts > 0).tolist():
            text = colours[heat.levels[i, k] - 1][1]
            small = {"fontsize": 8 if n <= 20 else 4.5, "ha": "center", "va": "center"}
            axes.text(k, i, str(heat.counts[i, k]), color=text, **small)
        names = [shortened(name, 24) for name in heat.classes]
        labels = {"parse_math": False, "fontsize": 9 if n <= 20 else 6}
        axes.set_xticks(range(n), names, rotation=90 if max(map(len, names)) > 2 else 0, **labels)
        axes.set_yticks(range(n), names, **labels)
        axes.set(xlabel="answer", ylabel="true class")
        axes.grid(False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        return _png(figure)


def comparison_figure(comparison: Comparison) -> bytes:
    """Draw the errors of several criteria against the number of words as a PNG file.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    png : bytes

    Examples
    --------
    >>> from bagwise.report import Comparison
    >>> from bagwise.report.figures import comparison_figure
    >>> comparison_figure(Comparison("Digits", [10, 50], [("csm", [0.2, 0.1], [], 1.5)]))[1:4]
    b'PNG'
    """
    with _drawing() as Figure:
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.subplots()
        for place, result in enumerate(comparison.criteria):
            colour, dashes = series_style(place)
            pattern = (0, tuple(map(float, dashes.split()))) if dashes else "-"
            style = {"color": LIGHT[colour], "linestyle": pattern, "linewidth": 1.6, "marker": "o", "markersize": 3}
            spread = result.standard_errors or None
            axes.errorbar(comparison.sizes, result.errors, spread, label=shortened(result.name, 30), capsize=2, **style)
        spread_known = any(result.standard_errors for result in comparison.criteria)
        axes.set_title("Error, with one standard error" if spread_known else "Error")
        for shown in axes.legend(frameon=False).get_texts():
            shown.set_parse_math(False)
        _error_axis(axes, axes.get_ylim())
        _words_axis(axes, list(comparison.sizes))
        return _png(figure)
