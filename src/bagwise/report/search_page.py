"""`write_results`: what a search found, as one HTML file."""

from __future__ import annotations

import os
from pathlib import Path

from bagwise._io.atomic import write_atomically
from bagwise.errors import BagwiseError
from bagwise.report.page_data import SearchResults
from bagwise.report.pages import render_page

__all__ = ["render_results", "write_results"]


def render_results(results: SearchResults) -> str:
    """Show a query and its hits, with pictures or excerpts, as one HTML page. Needs ``bagwise[report]``.

    Parameters
    ----------
    results : SearchResults

    Returns
    -------
    html : str
        One file that fetches nothing, as that of `render_report`.

    Examples
    --------
    >>> from bagwise.report import Hit, SearchResults, render_results
    >>> page = render_results(SearchResults("beach.jpg", [Hit("sea.jpg", 0.125)]))
    >>> "1 hit, best first" in page
    True
    """
    if not isinstance(results, SearchResults):
        raise BagwiseError(f"render_results takes SearchResults, got {type(results).__name__}.")
    return render_page("results.html.j2", results=results)


def write_results(results: SearchResults, path: str | os.PathLike[str]) -> Path:
    """Write what a search found to an HTML file, wholly or not at all; see `render_results`.

    Parameters
    ----------
    results : SearchResults
    path : path
        The file; one that is there is replaced.

    Returns
    -------
    path : Path
        The same path.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.report import SearchResults, write_results
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_results(SearchResults("beach.jpg"), f"{folder}/results.html").name
    'results.html'
    """
    return write_atomically(path, render_results(results).encode())
