"""Pages of results: three levels, written from committed figures."""

import csv
import re
from pathlib import Path

import pytest
from experiments.__main__ import DOCS, HERE, write_page
from experiments.pages import Bars, Claim, Curves, Part, Section, Table, write_appendix, write_results
from experiments.papers import PAPERS

TABLE = Table("Errors", ("task", "ours", "plain", "note"), [["a", "1.50 ± 0.2", 2.25, "x|y"], ["b", None, 3.0, "z"]])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The pages of the committed figures, without their plots."""
    docs = tmp_path_factory.mktemp("docs")
    (docs / "results").mkdir()
    (docs / "results" / "defaults.md").write_bytes((DOCS / "results" / "defaults.md").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        for kind in (Bars, Curves):
            patch.setattr(kind, "draw", lambda self, path: None)
        write_page(HERE / "results", docs)
    return docs


def test_committed_pages_are_those_of_the_figures(written):
    pages = sorted(path.relative_to(written) for path in written.rglob("*.*") if path.suffix in (".md", ".csv"))
    assert len(pages) > 60
    stale = [str(page) for page in pages if (DOCS / page).read_text("utf-8") != (written / page).read_text("utf-8")]
    assert not stale, "run `python -m experiments page`"


def test_a_page_of_a_paper_has_few_statements_and_a_plot_that_is_there(written):
    for paper in PAPERS.values():
        text = (written / "results" / f"{paper.page}.md").read_text(encoding="utf-8")
        assert 1 <= len(re.findall(r" — (?:supported|\*\*refuted\*\*|inconclusive)\. ", text)) <= 6
        (plot,) = re.findall(r"!\[.*\]\((.*)\)", text)
        assert (DOCS / "results" / plot).is_file()


def test_counts_of_the_first_page_are_those_of_the_appendices(written):
    first = (written / "results.md").read_text(encoding="utf-8")
    rows = re.findall(r"\]\(results/(.*)\.md\) \| (\d+) \| (\d+) \| (\d+) \|", first)
    assert len(rows) == len(PAPERS)
    for page, *counts in rows:
        names = re.findall(r"\(appendix/(.*)\)", (written / "results" / f"{page}.md").read_text(encoding="utf-8"))
        texts = [(written / "results" / "appendix" / name).read_text(encoding="utf-8") for name in names]
        marks = ("supported", r"\*\*refuted\*\*", "inconclusive")
        assert [int(count) for count in counts] == [
            sum(len(re.findall(rf"^- .* — {mark}\. ", text, re.MULTILINE)) for text in texts) for mark in marks
        ]


def test_tables_as_csv_and_bars(tmp_path: Path):
    section = Section("One", "Text.", [Claim("it works", True, "It did.")], [TABLE])
    page = tmp_path / "below" / "page.md"
    write_appendix([Part("CSM08", "one", "One", "*footer*", [section])], page, "One", "Intro.", tmp_path, csv=True)
    with open(page.parent / "one-0-0.csv", encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            list(TABLE.columns),
            ["a", "1.50 ± 0.2", "2.25", "x|y"],
            ["b", "", "3.0", "z"],
        ]
    assert "| --- | ---: | ---: | --- |" in page.read_text(encoding="utf-8")
    bars = Bars.of(TABLE, ("ours", "plain"), ("a",))
    assert bars.series == {"ours": [1.5], "plain": [2.25]}
    bars.draw(tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 1000


def test_a_chosen_statement_that_is_not_there_is_named(tmp_path: Path):
    names = {choice.experiment for choice in PAPERS["CSM08"].claims}
    sections = [Section("One", "Text.", [Claim("something else", None, "")])] * 4
    parts = [Part("CSM08", name, name, "", sections) for name in names]
    with pytest.raises(ValueError, match=r"no claims begin with 'CSM of counts"):
        write_results(parts, tmp_path, "Intro.", "Defaults.")
