"""`write_comparison`: how criteria compare, as an HTML page, or as Markdown with a PNG file."""

from __future__ import annotations

import os
from pathlib import Path

from bagwise._io.atomic import write_atomically
from bagwise.errors import BagwiseError
from bagwise.report.charts import comparison_chart, legend_sample
from bagwise.report.figures import comparison_figure
from bagwise.report.markdown import escaped, folder_for, pairs_table, said, table
from bagwise.report.page_data import Comparison
from bagwise.report.pages import markup, render_page
from bagwise.report.sentences import about_comparison
from bagwise.report.texts import count, percent, plain, seconds

__all__ = ["comparison_table", "render_comparison", "write_comparison", "write_comparison_markdown"]


def render_comparison(comparison: Comparison) -> str:
    """Show the errors of several criteria as a chart and a table on one HTML page. Needs ``bagwise[report]``.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    html : str
        One file that fetches nothing, as that of `render_report`.

    Examples
    --------
    >>> from bagwise.report import Comparison, render_comparison
    >>> page = render_comparison(Comparison("Digits", [10, 50], [("csm", [0.2, 0.1], [], 1.5)]))
    >>> "Comparison of criteria" in page
    True
    """
    _check(comparison)
    return render_page(
        "comparison.html.j2",
        comparison=comparison,
        sentences=about_comparison(comparison),
        chart=markup(comparison_chart(comparison)),
        legend=[(result, markup(legend_sample(i))) for i, result in enumerate(comparison.criteria)],
        lowest=_lowest(comparison),
        any_spread=any(result.standard_errors for result in comparison.criteria),
    )


def write_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write a comparison to an HTML file, wholly or not at all; see `render_comparison`.

    Parameters
    ----------
    comparison : Comparison
    path : path
        The file; one that is there is replaced.

    Returns
    -------
    path : Path
        The same path.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.report import Comparison, write_comparison
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_comparison(Comparison("Digits", [10], [("csm", [0.2], [], 1.5)]), f"{folder}/a.html").name
    'a.html'
    """
    return write_atomically(path, render_comparison(comparison).encode())


def comparison_table(comparison: Comparison) -> str:
    r"""Write a comparison as a table of Markdown, the lowest errors in bold.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    markdown : str

    Examples
    --------
    >>> from bagwise.report import Comparison, comparison_table
    >>> results = [("csm", [0.2, 0.1], [], 1.5), ("aib", [0.3, 0.1], [], 0.5)]
    >>> print(comparison_table(Comparison("Digits", [10, 50], results)).replace("\u202f", " "))
    | criterion | 10 words | 50 words | time |
    | :-- | --: | --: | --: |
    | csm | **20.0 %** | **10.0 %** | 1.5 s |
    | aib | 30.0 % | **10.0 %** | 500 ms |
    """
    _check(comparison)
    lowest = _lowest(comparison)
    rows = []
    for result in comparison.criteria:
        cells = [f"**{percent(e)}**" if e == lowest[i] else percent(e) for i, e in enumerate(result.errors)]
        if result.standard_errors:
            cells = [f"{cell} ± {percent(s)}" for cell, s in zip(cells, result.standard_errors, strict=True)]
        rows.append([escaped(result.name), *cells, seconds(result.seconds)])
    return table(["criterion", *(f"{count(size)} words" for size in comparison.sizes), "time"], rows)


def write_comparison_markdown(comparison: Comparison, folder: str | os.PathLike[str]) -> Path:
    """Write a comparison as ``comparison.md`` and ``comparison.png``. Needs ``bagwise[plot]``.

    Parameters
    ----------
    comparison : Comparison
    folder : path
        Made if it is not there; files with the same names are replaced, others are left alone.

    Returns
    -------
    path : Path
        The Markdown file.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.report import Comparison, write_comparison_markdown
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_comparison_markdown(Comparison("Digits", [10], [("csm", [0.2], [], 1.5)]), folder).name
    'comparison.md'
    """
    _check(comparison)
    place = folder_for(folder)
    write_atomically(place / "comparison.png", comparison_figure(comparison))
    parts = [f"# {escaped(comparison.title)}", said(*about_comparison(comparison)), comparison_table(comparison)]
    parts.append("![Error of each criterion against the number of words](comparison.png)")
    if comparison.protocol:
        parts.append(f"Measured by: {escaped(comparison.protocol)}.")
    if comparison.facts:
        parts.append(pairs_table((name, plain(value)) for name, value in comparison.facts))
    return write_atomically(place / "comparison.md", ("\n\n".join(parts) + "\n").encode())


def _lowest(comparison: Comparison) -> list[float]:
    return [min(errors) for errors in zip(*(result.errors for result in comparison.criteria), strict=True)]


def _check(comparison: Comparison) -> None:
    if not isinstance(comparison, Comparison):
        raise BagwiseError(f"Expected a Comparison, got {type(comparison).__name__}.")
