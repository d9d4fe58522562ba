"""HTML pages: the report of a model, the comparison of criteria, the results of a search.

Each page is one file without scripts that loads nothing. Three measures make hostile texts harmless: the template
environment cleans (`bagwise.report.texts.clean`) and escapes every text; a Content-Security-Policy permits only
pictures inside the file and the style sheet with the given hash; and there is no script: hovering, the choice of
colours and folding are done by CSS and HTML.
"""

from __future__ import annotations

import base64
import hashlib
import math
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bagwise._io.atomic import write_atomically
from bagwise._utils.extras import require
from bagwise.errors import BagwiseError
from bagwise.report import sentences, texts
from bagwise.report.charts import (
    MAX_STOPS,
    NARROW,
    WIDE,
    HeatMap,
    comparison_chart,
    heat_map,
    level_from,
    merging_chart,
)
from bagwise.report.data import Comparison, ConfusionMatrix, Example, MergingCurve, ReportData, SearchResults, WordGroup
from bagwise.report.sentences import Name, Phrase, Sentence, Strong
from bagwise.report.svg import DARK, LIGHT, N_LEVELS, bar, shades, thinned
from bagwise.report.texts import count, one_line, percent, percent_of

__all__ = ["LIMITS", "chart_file", "examples_by_class", "lowest_errors", "render_comparison", "render_report"]
__all__ += [
    "render_page",
    "render_results",
    "shown_groups",
    "table_rows",
    "write_comparison",
    "write_report",
    "write_results",
]

_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
_MARGIN = 12  # of a chart in a file of its own, in pixels


class Limits(NamedTuple):
    """Maximum numbers of what is shown, so that pages stay readable and small."""

    groups: int = 48
    names: int = 30
    patches: int = 24
    classes: int = 5
    contributions: int = 6
    heat_classes: int = 100
    cell_titles: int = 900  # cells of a confusion matrix with a title on hover
    contribution_patch: int = 4096  # bytes of a patch that is repeated beside each example


LIMITS = Limits()


def render_report(data: ReportData) -> str:
    """Render the report of a model as an HTML page. Needs ``bagwise[report]``.

    The page is one file that loads nothing and runs no script. It supports light and dark colours and printing.
    Sections without data are left out. Large data are shown in part; the page says so. Equal data give equal pages.

    Parameters
    ----------
    data : ReportData

    Returns
    -------
    html : str
        Can be encoded as UTF-8.

    Examples
    --------
    >>> from bagwise.report import MergingCurve, ReportData, render_report
    >>> curve = MergingCurve([10, 50, 1000], [0.3, 0.182, 0.176], [0.01, 0.008, 0.008], one_se=50, n_groups=50)
    >>> page = render_report(ReportData("Photos", facts={"items": 200}, curve=curve))
    >>> "The error with 50 groups is within one standard error of the lowest" in page
    True
    """
    context: dict[str, Any] = {
        "data": data,
        "limits": LIMITS,
        "sections": _sections(data),
        "key_figures": _key_figures(data),
        "summary": _summary(data),
        "examples": _examples_view(data),
        "any_test": any(one.n_test is not None for one in data.classes),
        "largest_class": max((one.n_train for one in data.classes), default=0),
        "longest": max(data.timings.values(), default=0.0),
    }
    if data.curve is not None:
        context |= {
            "merging_charts": [_markup(merging_chart(data.curve, layout=layout)) for layout in (WIDE, NARROW)],
            "curve_rows": table_rows(data.curve),
            "n_sizes": len({*data.curve.sizes, *data.curve.test_sizes}),
            "meanings": sentences.what_errors_mean(data.curve),
            "max_stops": MAX_STOPS,
        }
    if data.confusion is not None:
        context |= _confusion_view(data.confusion)
    if data.groups:
        context |= _groups_view(data.groups)
    return render_page("report.html.j2", **context)


def write_report(data: ReportData, path: str | os.PathLike[str]) -> Path:
    """Write the report of a model to an HTML file atomically; see `render_report`.

    Parameters
    ----------
    data : ReportData
    path : path
        An existing file is replaced.

    Returns
    -------
    path : Path

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.report import ReportData, write_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(ReportData("Photos"), f"{folder}/report.html").read_text()[:15]
    '<!doctype html>'
    """
    return write_atomically(path, render_report(data).encode())


def render_comparison(comparison: Comparison) -> str:
    """Render the errors of several criteria as an HTML page with a chart and a table. Needs ``bagwise[report]``.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    html : str
        See `render_report`.

    Examples
    --------
    >>> from bagwise.report import Comparison, CriterionResult, render_comparison
    >>> page = render_comparison(Comparison("Digits", [10, 50], [CriterionResult("csm", [0.2, 0.1])]))
    >>> "Comparison of criteria" in page
    True
    """
    return render_page(
        "comparison.html.j2",
        comparison=comparison,
        summary=sentences.about_comparison(comparison),
        charts=[_markup(comparison_chart(comparison, layout)) for layout in (WIDE, NARROW)],
        lowest=lowest_errors(comparison),
        any_spread=any(result.standard_errors for result in comparison.criteria),
    )


def write_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write a comparison to an HTML file atomically; see `render_comparison`.

    Parameters
    ----------
    comparison : Comparison
    path : path
        An existing file is replaced.

    Returns
    -------
    path : Path
    """
    return write_atomically(path, render_comparison(comparison).encode())


def render_results(results: SearchResults) -> str:
    """Render a query and the results of its search as an HTML page. Needs ``bagwise[report]``.

    Parameters
    ----------
    results : SearchResults

    Returns
    -------
    html : str
        See `render_report`.

    Examples
    --------
    >>> from bagwise.report import Hit, SearchResults, render_results
    >>> page = render_results(SearchResults("beach.jpg", [Hit("sea.jpg", 0.125)]))
    >>> "1 result, best first" in page
    True
    """
    any_label = any(hit.label is not None for hit in results.hits)
    return render_page("results.html.j2", results=results, any_label=any_label)


def write_results(results: SearchResults, path: str | os.PathLike[str]) -> Path:
    """Write the results of a search to an HTML file atomically; see `render_results`.

    Parameters
    ----------
    results : SearchResults
    path : path
        An existing file is replaced.

    Returns
    -------
    path : Path
    """
    return write_atomically(path, render_results(results).encode())


def chart_file(chart: str) -> bytes:
    """Return an ``svg`` element of a page as an SVG file, with its style sheet and light colours."""
    box = re.search(r'viewBox="0 0 (\d+) (\d+)"', chart)
    assert box is not None
    width, height = int(box[1]) + 2 * _MARGIN, int(box[2]) + 2 * _MARGIN
    style = _environment().get_template("chart.css.j2").render(series=_series())
    style = re.sub(r"var\(--([\w-]+)\)", lambda name: LIGHT[name[1]], style)  # many viewers do not know var()
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    ground = f'<rect x="{-_MARGIN}" y="{-_MARGIN}" width="{width}" height="{height}" fill="{LIGHT["paper"]}"/>'
    chart = chart.replace(box[0], f'viewBox="{-_MARGIN} {-_MARGIN} {width} {height}"', 1)
    start, _, rest = chart.removeprefix("<svg").partition(">")
    return f"{head}{start}><style>{style}</style>{ground}{rest}\n".encode()


def shown_groups(groups: Sequence[WordGroup]) -> list[WordGroup]:
    """Return the most frequent groups, most frequent first."""
    return sorted(groups, key=lambda group: (-group.frequency, group.number))[: LIMITS.groups]


def examples_by_class(data: ReportData) -> list[tuple[str | None, list[Example]]]:
    """Group examples by true class, or by predicted class if the true one is unknown."""
    found: dict[str | None, list[Example]] = {one.name: [] for one in data.classes}
    for example in data.examples:
        found.setdefault(example.predicted if example.label is None else example.label, []).append(example)
    return [(name, members) for name, members in found.items() if members]


def table_rows(curve: MergingCurve) -> list[int]:
    """Return the sizes in the table of errors: all, or those that preserve the shape, and the marked ones."""
    kept = {size for size in (curve.n_groups, curve.one_se) if size in curve.sizes or size in curve.test_sizes}
    for sizes, errors in ((curve.sizes, curve.errors), (curve.test_sizes, curve.test_errors)):
        kept |= {sizes[i] for i in thinned([math.log(size) for size in sizes], errors)}
    return sorted(size for size in kept if size is not None)


def lowest_errors(comparison: Comparison) -> list[float]:
    """Return the lowest error at each size."""
    return [min(errors) for errors in zip(*(result.errors for result in comparison.criteria), strict=True)]


def render_page(template: str, **context: Any) -> str:
    """Render a template with the style sheet and the policy of all pages."""
    environment = _environment()
    colours = {"light": LIGHT, "dark": DARK, "light_shades": shades(LIGHT), "dark_shades": shades(DARK)}
    style = environment.get_template("style.css.j2").render(series=_series(), **colours)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return environment.get_template(template).render(style=_markup(style), policy=policy, **context)


def _series() -> list[str]:
    return [name for name in LIGHT if name.startswith("series-")]


@lru_cache(maxsize=1)
def _environment() -> Any:
    jinja2 = require("jinja2", "report", "Writing reports")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bagwise.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            texts.clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
        ),
    )
    environment.filters |= {
        "count": count,
        "number": texts.number,
        "one_line": one_line,
        "percent": percent,
        "percent_or_dash": lambda fraction: "–" if fraction is None else percent(fraction),
        "plain": texts.plain,
        "plural": texts.plural,
        "say": _say,
        "safe_link": _safe_link,
        "seconds": texts.seconds,
        "similarity": lambda value: f"{value:.4f}".replace("-", "\u2212"),
        "uri": _picture_uri,
    }
    environment.globals |= {
        "bar": lambda *numbers, **options: _markup(bar(*numbers, **options)),
        "levels": [(level, level_from(level)) for level in range(1, N_LEVELS + 1)],
        "percent_of": percent_of,
        "picture": lambda content, text: _markup('<img class="picture" src="{}" alt="{}">').format(
            _picture_uri(content), one_line(text)
        ),
    }
    return environment


def _markup(content: str) -> Any:
    """Mark a text as HTML or SVG of our own, which is not escaped."""
    return require("markupsafe", "report", "Writing reports").Markup(content)


def _say(content: list[Sentence] | Sentence) -> Any:
    """Render sentences as HTML, with texts from the data isolated and names quoted."""
    whole = content if isinstance(content, list) else [content]
    return _markup(" ").join(_markup("").join(map(_part, sentence)) for sentence in whole)


def _part(part: str) -> Any:
    if isinstance(part, Name):
        return _markup("“<bdi>{}</bdi>”").format(one_line(part))
    if isinstance(part, Phrase):
        return _markup("<bdi>{}</bdi>").format(one_line(part))
    return _markup("<strong>{}</strong>").format(part) if isinstance(part, Strong) else part


def _picture_uri(content: bytes) -> str:
    """Return a PNG or JPEG file as a data URI."""
    for start, media_type in _PICTURES.items():
        if content.startswith(start):
            return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
    raise BagwiseError(
        f"Pictures must be PNG or JPEG files; this one begins with {content[:8]!r}. Convert it with "
        "bagwise.report.thumbnail()."
    )


def _safe_link(address: str) -> str:
    """Return the address of a file as it is; raise an error if it leads elsewhere."""
    if not address.startswith(("./", "../", "file:///")):
        raise BagwiseError(f"Links must begin with ./, ../ or file:///; got {address!r:.100}.")
    return address


def _sections(data: ReportData) -> dict[str, str]:
    """Return ids and titles of the sections that have data."""
    sections = {
        "setup": ("Data and settings", data.facts or data.classes),
        "curve": ("Error by number of groups" if data.curve and data.curve.measured else "Criterion", data.curve),
        "confusion": ("Confusion matrix", data.confusion),
        "groups": ("Word groups", data.groups),
        "examples": ("Examples", data.examples),
        "timings": ("Timings", data.timings),
        "notes": ("Notes", data.notes),
        "versions": ("Versions", data.versions),
    }
    return {id: title for id, (title, content) in sections.items() if content}


def _summary(data: ReportData) -> dict[str, Any]:
    return {
        "classes": sentences.about_classes(data.classes) if data.classes else [],
        "curve": sentences.about_curve(data.curve) if data.curve else [],
        "confusion": sentences.about_confusion(data.confusion) if data.confusion else (),
        "groups": sentences.about_groups(shown_groups(data.groups), data.groups) if data.groups else (),
        "timings": sentences.about_timings(data.timings) if data.timings else (),
    }


def _key_figures(data: ReportData) -> list[tuple[str, str]]:
    """Return the numbers below the title, with their labels."""
    figures: list[tuple[str, str]] = []
    curve, measured = data.curve, False
    if curve is not None and curve.n_groups is not None:
        words = "" if curve.n_words is None else f" of {texts.plural(curve.n_words, 'word')}"
        figures.append((count(curve.n_groups), f"groups{words}"))
        error, test = curve.error_at(curve.n_groups), curve.test_error_at(curve.n_groups)
        if test is not None:
            figures.append((percent(test), f"test error, {texts.plural(curve.n_test, 'item')}"))
        if error is not None:
            figures.append((percent(error), f"error, {curve.protocol}" if curve.protocol else "error"))
        measured = test is not None or error is not None
    if data.confusion is not None and data.confusion.n_items and not measured:
        items = data.confusion.n_items
        figures.append((percent_of(data.confusion.n_wrong, items), f"of {count(items)} items misclassified"))
    if data.classes:
        figures.append((count(len(data.classes)), "class" if len(data.classes) == 1 else "classes"))
    return figures


def _confusion_view(confusion: ConfusionMatrix) -> dict[str, Any]:
    heat = heat_map(confusion, LIMITS.heat_classes)
    items, right = confusion.counts.sum(axis=1).tolist(), np.diagonal(confusion.counts).tolist()
    return {
        "heat": heat,
        "short_names": max(map(len, heat.classes)) <= 3,
        "heat_rows": _heat_rows(heat),
        "pairs": [sentences.about_pair(pair) for pair in sentences.most_confused(confusion)],
        "class_rows": list(zip(confusion.classes, items, right, strict=True)),
    }


def _heat_rows(heat: HeatMap) -> list[dict[str, Any]]:
    with_titles = heat.counts.size <= LIMITS.cell_titles
    names = [one_line(name) for name in heat.classes]
    rows = []
    for i, name in enumerate(heat.classes):
        cells = []
        others = None if heat.others is None else int(heat.others[i])
        total = int(heat.counts[i].sum()) + (others or 0)
        for k, times in enumerate(heat.counts[i].tolist()):
            kinds = [f"l{heat.levels[i, k]}"] if times else []
            kinds += ["d"] if i == k else []
            title = f"{names[i]} classified as {names[k]}: {times} of {total}, {percent_of(times, total)}"
            shown = {"kind": " ".join(kinds), "title": title if with_titles and times else "", "text": times or ""}
            cells.append(shown)
        rows.append({"name": name, "cells": cells, "others": others})
    return rows


def _groups_view(groups: Sequence[WordGroup]) -> dict[str, Any]:
    shown = shown_groups(groups)
    weights = [weight for group in shown for _, weight in group.classes[: LIMITS.classes]]
    return {
        "groups": shown,
        "largest_frequency": shown[0].frequency,
        "largest_weight": max(map(abs, weights), default=0.0),
        "signed_weights": min(weights, default=0.0) < 0,
    }


def _examples_view(data: ReportData) -> list[tuple[str | None, list[dict[str, Any]]]]:
    known = {group.number: group for group in data.groups}
    linked = {group.number for group in shown_groups(data.groups)}

    def contribution(number: int, value: float) -> dict[str, Any]:
        group = known.get(number)
        patch = group.patches[0] if group and group.patches else b""
        patch = patch if len(patch) <= LIMITS.contribution_patch else b""
        return {"number": number, "value": value, "group": group, "linked": number in linked, "patch": patch}

    def view(example: Example) -> dict[str, Any]:
        shown = [contribution(*pair) for pair in example.contributions[: LIMITS.contributions]]
        largest = max((abs(one["value"]) for one in shown), default=0.0)
        return {"item": example, "contributions": shown, "largest": largest}

    return [(name, [view(example) for example in members]) for name, members in examples_by_class(data)]
