"""HTML pages: the report of a model, the comparison of criteria, the results of a search.

Each page is one file that loads nothing. Three measures make hostile texts harmless: the template environment cleans
(`bagwise.display.texts.clean`) and escapes every text; a Content-Security-Policy permits only pictures inside the file,
and the style sheet and the script with the given hashes; and the only script, which draws the hierarchy of a report,
sets texts as texts. Hovering, the choice of colours and folding are done by CSS and HTML, and without scripts the
hierarchy is a picture.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from bagwise._io.atomic import write_atomically
from bagwise._utils.extras import require
from bagwise._utils.text import count, how_many
from bagwise.app.report import sentences, views
from bagwise.app.report.charts import NARROW, WIDE, comparison_chart, level_from, merging_chart
from bagwise.app.report.clusters import map_chart
from bagwise.app.report.data import Comparison, ReportData, SearchResults
from bagwise.app.report.sentences import Name, Phrase, Sentence, Strong
from bagwise.display import texts
from bagwise.display.icicle import N_TONES, icicle_chart, script_data, tree_script
from bagwise.display.svg import DARK, LIGHT, N_LEVELS, bar, shades
from bagwise.display.texts import one_line, percent, percent_of
from bagwise.errors import BagwiseError

__all__ = ["chart_file", "render_comparison", "render_page", "render_report", "render_results", "write_comparison"]
__all__ += ["write_report", "write_results"]

_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
_PARTS = re.compile(r"(?<=[/._+\\-])(?=[^/._+\\-])")
_UNBROKEN = 12  # characters
_MARGIN = 12  # of a chart in a file of its own, in pixels


def render_report(data: ReportData) -> str:
    """Render the report of a model as an HTML page. Needs ``bagwise[app]``.

    The page is one file that loads nothing. Its only script draws the hierarchy, which is a picture without scripts. It
    supports light and dark colours and printing.
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
    >>> from bagwise.app.report import MergingCurve, ReportData, render_report
    >>> curve = MergingCurve([10, 50, 1000], [0.3, 0.182, 0.176], [0.01, 0.008, 0.008], auto=50, n_groups=50)
    >>> page = render_report(ReportData("Photos", facts={"items": 200}, curve=curve))
    >>> "The error with 50 groups is about as low as the lowest" in page
    True
    """
    charts = []
    if data.curve is not None:
        charts = [_markup(merging_chart(data.curve, layout=layout)) for layout in (WIDE, NARROW)]
    mapped = None if data.clusters is None or not len(data.clusters.points) else data.clusters
    tree, script = {}, ""
    if data.tree is not None:
        tree = {
            "tree_chart": _markup(icicle_chart(data.tree)),
            "tree_data": _markup(script_data(data.tree)),
        }
        script = tree_script()
    drawn: dict[str, Any] = {
        "merging_charts": charts,
        "map_chart": "" if mapped is None else _markup(map_chart(mapped)),
        "n_tones": N_TONES,
        **tree,
    }
    return render_page("report.html.j2", script, **drawn, **views.report_view(data))


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
    >>> from bagwise.app.report import ReportData, write_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(ReportData("Photos"), f"{folder}/report.html").read_text()[:15]
    '<!doctype html>'
    """
    return write_atomically(path, render_report(data).encode(), private=True)


def render_comparison(comparison: Comparison) -> str:
    """Render the errors of several criteria as an HTML page with a chart and a table. Needs ``bagwise[app]``.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    html : str
        See `render_report`.

    Examples
    --------
    >>> from bagwise.app.report import Comparison, CriterionResult, render_comparison
    >>> page = render_comparison(Comparison("Digits", [10, 50], [CriterionResult("csm", [0.2, 0.1])]))
    >>> "Comparison of criteria" in page
    True
    """
    return render_page(
        "comparison.html.j2",
        comparison=comparison,
        summary=sentences.about_comparison(comparison),
        charts=[_markup(comparison_chart(comparison, layout)) for layout in (WIDE, NARROW)],
        lowest=views.lowest_errors(comparison),
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
    """Render a query and the results of its search as an HTML page. Needs ``bagwise[app]``.

    Parameters
    ----------
    results : SearchResults

    Returns
    -------
    html : str
        See `render_report`.

    Examples
    --------
    >>> from bagwise.app.report import Hit, SearchResults, render_results
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
    return write_atomically(path, render_results(results).encode(), private=True)


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


def render_page(template: str, script: str = "", **context: Any) -> str:
    """Render a template with the style sheet and the policy of all pages; the only script that runs is the given."""
    environment = _environment()
    colours = {"light": LIGHT, "dark": DARK, "light_shades": shades(LIGHT), "dark_shades": shades(DARK)}
    style = environment.get_template("style.css.j2").render(series=_series(), n_tones=N_TONES, **colours)
    policy = f"default-src 'none'; img-src data:; style-src {_digest(style)}; "
    policy += f"script-src {_digest(script)}; " if script else ""
    policy += "base-uri 'none'; form-action 'none'"
    inside = {"style": _markup(style), "script": _markup(script), "policy": policy}
    return environment.get_template(template).render(**inside, **context)


def _digest(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def _series() -> list[str]:
    return [name for name in LIGHT if name.startswith("series-")]


@lru_cache(maxsize=1)
def _environment() -> Any:
    jinja2 = require("jinja2", "app", "Writing reports")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bagwise.app.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            texts.clean(value) if isinstance(value, str) and not hasattr(value, "__html__") else value
        ),
    )
    environment.filters |= {
        "breakable": _breakable,
        "count": count,
        "fixed": texts.fixed,
        "number": texts.number,
        "one_line": one_line,
        "percent": percent,
        "percent_or_dash": lambda fraction: "–" if fraction is None else percent(fraction),
        "plain": texts.plain,
        "how_many": how_many,
        "say": _say,
        "safe_link": _safe_link,
        "seconds": texts.seconds,
        "short_name": _short_name,
        "shortened": texts.shortened,
        "similarity": lambda value: f"{value:.4f}".replace("-", "\u2212"),
        "uri": _picture_uri,
        "words": _words,
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
    return require("markupsafe", "app", "Writing reports").Markup(content)


def _say(content: list[Sentence] | Sentence) -> Any:
    """Render sentences as HTML, with texts from the data isolated and names quoted."""
    whole = content if isinstance(content, list) else [content]
    return _markup(" ").join(_markup("").join(map(_part, sentence)) for sentence in whole)


def _part(part: str) -> Any:
    if isinstance(part, Name):
        return _markup('<span class="quoted">“{}”</span>').format(_short_name(part))
    if isinstance(part, Phrase):
        return _markup("<bdi>{}</bdi>").format(one_line(part))
    return _markup("<strong>{}</strong>").format(part) if isinstance(part, Strong) else part


def _breakable(name: str) -> Any:
    """Render a name; a long one may be broken after signs that separate its parts."""
    shown = one_line(name)
    if len(shown) <= _UNBROKEN:
        return shown
    return _markup("<wbr>").join(part for part in _PARTS.split(shown) if part)


def _short_name(name: str) -> Any:
    """Render the name of a class or a group on one line; what does not fit is cut off, and shown on hover."""
    shown = one_line(name)
    if len(shown) <= _UNBROKEN:
        return _markup("<bdi>{}</bdi>").format(shown)
    return _markup('<bdi class="short" title="{0}">{0}</bdi>').format(shown)


def _words(names: Sequence[str]) -> Any:
    """Render words as a list; those that could change the direction of others are isolated."""
    isolated = _markup("<bdi>{}</bdi>")
    shown = (one_line(name) for name in names)
    return _markup(", ").join(name if name.isascii() else isolated.format(name) for name in shown)


def _picture_uri(content: bytes) -> str:
    """Return a PNG or JPEG file as a data URI."""
    for start, media_type in _PICTURES.items():
        if content.startswith(start):
            return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
    raise BagwiseError(
        f"Pictures must be PNG or JPEG files; this one begins with {content[:8]!r}. Convert it with "
        "bagwise.display.thumbnail()."
    )


def _safe_link(address: str) -> str:
    """Return the address of a file as it is; raise an error if it leads elsewhere."""
    if not address.startswith(("./", "../", "file:///")):
        raise BagwiseError(f"Links must begin with ./, ../ or file:///; got {address!r:.100}.")
    return address
