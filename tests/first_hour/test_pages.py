"""Pages that people show to others: reports, comparisons, results of searches."""

import re

import pytest

from commands import as_json
from report_helpers import Page
from small_sources import write_text_folder


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A folder of texts of three classes with training and test items, what a fit to it printed, and its files."""
    folder = tmp_path_factory.mktemp("texts")
    write_text_folder(folder / "texts" / "train", n_each=20)
    write_text_folder(folder / "texts" / "test", n_each=8, seed=1)
    told = as_json(
        "fit", folder / "texts", "--out", folder / "m.bagwise", "--groups", "3", "--min-count", "1",
        "--markdown", folder / "markdown",
    )  # fmt: skip
    return folder, told


def page_of(path):
    """The text of a page with ordinary spaces, and its markup."""
    html = path.read_text(encoding="utf-8")
    return Page(html).text.replace("\u202f", " "), html


def test_a_report_draws_both_curves_and_says_which_error_to_quote(texts):
    folder, told = texts
    text, html = page_of(folder / "m.report.html")
    charts = re.findall(r'<svg class="chart (\w+)".*?</svg>', html, re.S)
    assert charts == ["wide", "narrow"]
    for chart in re.findall(r'<svg class="chart .*?</svg>', html, re.S):
        assert chart.count('class="curve"') == chart.count('class="curve test"') == 2  # each with its legend
    markdown = (folder / "markdown" / "report.md").read_text(encoding="utf-8").replace("\u202f", " ")
    error = 100 * told["test"]["errors"][told["test"]["sizes"].index(3)]
    for shown in (text, markdown):
        assert f"error to quote: {error:.1f} % with 3 groups" in shown
        assert shown.count("to quote") == 1
        assert "24 items that took no part in training" in shown
        assert "each training item is classified by groups and a classifier that were learned without it" in shown
