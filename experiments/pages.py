"""What results say, for people: tables, curves, and verdicts on the papers' statements; as Markdown with plots."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bagwise._io.atomic import write_atomically
from experiments.papers import PAPERS, Choice, Paper

__all__ = ["Bars", "Claim", "Curves", "Part", "Section", "Table", "mean_and_sd", "write_appendix", "write_results"]

VERDICTS = """\
A statement that one method is better than another is *supported*, or *refuted*, if the 99 % interval of their
difference over tasks, splits or draws says so (paired, Student's t; ± is a standard error); otherwise it is
*inconclusive*. Statements about levels, such as a published accuracy, compare means."""
N_COLOURS = 256


@dataclass(frozen=True)
class Table:
    """Rows under headings; None is a dash, numbers are shown with three digits unless they are given as text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def markdown(self) -> str:
        """The table as Markdown."""
        numbers = [all(_is_number(line[k]) for line in self.rows) for k in range(len(self.columns))]
        lines = [self.columns, ["---:" if right else "---" for right in numbers], *self.rows]
        body = "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)
        return f"**{self.title}**\n\n{body}\n"

    def csv(self) -> str:
        """The table as CSV."""
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows([self.columns, *self.rows])
        return out.getvalue()


@dataclass(frozen=True)
class Bars:
    """Groups of bars: names of the groups, and one value for each of them by series."""

    title: str
    names: Sequence[str]
    series: dict[str, Sequence[float]]

    @classmethod
    def of(cls, table: Table, columns: Sequence[str], rows: Sequence[str]) -> Bars:
        """Columns and rows of a table, by the first number of each cell."""
        at = [list(table.columns).index(column) for column in columns]
        lines = [next(line for line in table.rows if line[0] == name) for name in rows]
        return cls(table.title, rows, {columns[k]: [_number(line[at[k]]) for line in lines] for k in range(len(at))})

    def draw(self, path: Path) -> None:
        """Draw them into a PNG file."""
        figure, axes = _figure()
        width = 0.8 / len(self.series)
        for k, (name, values) in enumerate(self.series.items()):
            axes.barh(np.arange(len(values)) + (k - (len(self.series) - 1) / 2) * width, values, width, label=name)
        axes.set_yticks(range(len(self.names)), self.names)
        axes.invert_yaxis()
        axes.set_title(self.title, fontsize=9)
        axes.grid(axis="x", alpha=0.25)
        axes.legend(fontsize=7)
        _save(figure, path)


@dataclass(frozen=True)
class Curves:
    """Lines with bands: name to (x, mean, spread)."""

    title: str
    x: str
    y: str
    series: dict[str, tuple[Sequence[float], Sequence[float], Sequence[float] | None]]
    log: bool = True

    def draw(self, path: Path) -> None:
        """Draw them into a PNG file."""
        figure, axes = _figure()
        marks = "osD^vP*X<>hp"
        for k, (name, (x, mean, spread)) in enumerate(self.series.items()):
            (line,) = axes.plot(
                x,
                mean,
                label=name,
                marker=marks[k % len(marks)],
                markersize=3.5,
                linewidth=1.2,
                color=f"C{k % 10}",
                linestyle="-" if k < 10 else "--",
            )
            if spread is not None:
                low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
                axes.fill_between(x, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
        if self.log:
            axes.set_xscale("log")
        axes.set(xlabel=self.x, ylabel=self.y, title=self.title)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7, ncols=2)
        _save(figure, path)


@dataclass(frozen=True)
class Claim:
    """A statement of a paper or a goal of ours, whether it is supported here, and the evidence. None: inconclusive."""

    text: str
    supported: bool | None
    evidence: str

    def markdown(self) -> str:
        """One item of a list."""
        mark = {True: "supported", False: "**refuted**", None: "inconclusive"}[self.supported]
        return f"- {self.text} — {mark}. {self.evidence}"


@dataclass(frozen=True)
class Section:
    """A part of the page: what was done, and where data and protocol differ from the paper; then what came out."""

    title: str
    text: str
    claims: Sequence[Claim] = ()
    tables: Sequence[Table] = ()
    curves: Sequence[Curves] = ()


@dataclass(frozen=True)
class Part:
    """What came out of an experiment: the key of its paper, its name and title, where it was run, and the sections."""

    paper: str
    name: str
    title: str
    footer: str
    sections: Sequence[Section]


def write_appendix(
    parts: Sequence[Part], page: Path, title: str, intro: str, pictures: Path, *, csv: bool = False
) -> None:
    """Write all sections of experiments on one Markdown page, and their plots into a folder beside or below it.

    Parameters
    ----------
    parts : sequence of Part
    page : Path
    title, intro : str
    pictures : Path
        Folder for the plots.
    csv : bool
        Write each table into a CSV file beside the page as well, and link it.
    """
    page.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"# {title}", "", intro, ""]
    for part in parts:
        for number, section in enumerate(part.sections):
            lines += [f"## {section.title}", "", section.text.strip(), ""]
            lines += [claim.markdown() for claim in section.claims] + [""] * bool(section.claims)
            for k, table in enumerate(section.tables):
                lines += [table.markdown()]
                if csv:
                    file = page.parent / f"{part.name}-{number}-{k}.csv"
                    write_atomically(file, table.csv().encode())
                    lines += [f"[This table as CSV]({file.name})", ""]
            for k, curves in enumerate(section.curves):
                file = pictures / f"{part.name}-{number}-{k}.png"
                curves.draw(file)
                lines += [f"![{curves.title}]({_relative(file, page)})", ""]
        lines += [part.footer, ""]
    _write(page, lines)


def write_results(parts: Sequence[Part], docs: Path, intro: str, defaults: str) -> None:
    """Write the results in three levels: one screen, a page for each paper, and all tables as appendices.

    Parameters
    ----------
    parts : sequence of Part
    docs : Path
        Gets results.md, results/PAPER.md and results/appendix/EXPERIMENT.md, with plots and CSV files.
    intro : str
        Opens results.md.
    defaults : str
        The part of results.md on the defaults of the library, Markdown.
    """
    folder = docs / "results"
    papers = {key: [part for part in parts if part.paper == key] for key in PAPERS}
    lines = ["# Results", "", intro, "", "## Which method for my data", "", defaults.strip(), ""]
    lines += ["## The five papers", "", _scoreboard(papers).markdown()]
    lines += [VERDICTS, "", "- [What the defaults give](results/defaults.md): all methods and sizes"]
    lines += ["- [Collections without classes](results/unlabelled.md): clusters and search, with peers"]
    lines += ["- [The papers' methods with their defaults](results/methods.md): search, clusters, topics, free energy"]
    lines += ["- [What of the papers is missing, and why](results/missing.md)", ""]
    pages = [
        "results/defaults",
        "results/unlabelled",
        "results/methods",
        *(f"results/{PAPERS[key].page}" for key, mine in papers.items() if mine),
        "results/missing",
    ]
    lines += ["```{toctree}", ":hidden:", ":maxdepth: 1", "", *pages, "```", ""]
    _write(docs / "results.md", lines)
    for key, mine in papers.items():
        if mine:
            _write_paper(PAPERS[key], mine, folder)
            for part in mine:
                intro = (
                    f"All figures of `python -m experiments {part.name}`; the page of the paper is "
                    f"[{PAPERS[key].title}](../{PAPERS[key].page}.md)."
                )
                write_appendix(
                    [part], folder / "appendix" / f"{part.name}.md", part.title, intro, folder / "appendix", csv=True
                )


def _write_paper(paper: Paper, parts: Sequence[Part], folder: Path) -> None:
    """Write the page of a paper."""
    sections = {part.name: part.sections for part in parts}
    page = folder / f"{paper.page}.md"
    lines = [f"# {paper.title}", ""] + ([paper.reference, ""] if paper.reference else [])
    lines += [
        f"In the library: {paper.methods}.",
        "",
        f"**{paper.sentence}**",
        "",
        "## What was done",
        "",
        paper.setup,
        "",
    ]
    lines += ["## Statements", ""]
    for choice in paper.claims:
        claim = _chosen(sections, choice, "claims")
        title = sections[choice.experiment][choice.section].title
        lines += [replace(claim, text=f"*{title}*: {claim.text}").markdown()]
    lines += [""]
    n_claims = sum(len(section.claims) for some in sections.values() for section in some)
    lines += [f"These are {len(paper.claims)} of {n_claims} statements; all are in the appendices.", ""]
    if paper.plot is not None:
        drawn = _chosen(sections, paper.plot, "tables" if paper.plot.columns else "curves")
        if isinstance(drawn, Table):
            drawn = Bars.of(drawn, paper.plot.columns, paper.plot.rows)
        file = folder / f"{paper.page}.png"
        drawn.draw(file)
        lines += [f"![{drawn.title}]({file.name})", ""]
    lines += ["## Where we deviate", "", paper.deviations, "", "## Appendices", ""]
    lines += [f"- [{part.title}](appendix/{part.name}.md)" for part in parts] + [""]
    lines += ["```{toctree}", ":hidden:", "", *(f"appendix/{part.name}" for part in parts), "```", ""]
    _write(page, lines)


def _chosen(sections: dict[str, Sequence[Section]], choice: Choice, what: str) -> Any:
    """The claim, plot or table that a choice names: the first that begins so."""
    found = getattr(sections[choice.experiment][choice.section], what)
    titles = [one.text if what == "claims" else one.title for one in found]
    for one, title in zip(found, titles, strict=True):
        if title.startswith(choice.beginning):
            return one
    raise ValueError(
        f"{choice.experiment}, section {choice.section}: no {what} begin with {choice.beginning!r}: {titles}"
    )


def mean_and_sd(values: Iterable[float], form: str = ".2f", sd_form: str | None = None) -> str | None:
    """Mean and standard deviation as text; the only value if there is one, None if there is none."""
    numbers = np.array(list(values))
    if len(numbers) < 2:
        return format(numbers[0], form) if len(numbers) else None
    return f"{numbers.mean():{form}} ± {numbers.std(ddof=1):{sd_form or form}}"


def _scoreboard(papers: dict[str, Sequence[Part]]) -> Table:
    """Count the verdicts, paper by paper."""
    rows = []
    for key, parts in papers.items():
        if parts:
            verdicts = [claim.supported for part in parts for section in part.sections for claim in section.claims]
            counts = [str(sum(one is verdict for one in verdicts)) for verdict in (True, False, None)]
            rows.append([f"[{PAPERS[key].title}](results/{PAPERS[key].page}.md)", *counts, PAPERS[key].sentence])
    columns = ("", "supported", "refuted", "inconclusive", "in one sentence")
    return Table("Statements of the papers, and goals of ours, on the data sets that we have", columns, rows)


def _figure() -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _save(figure: Any, path: Path) -> None:
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=100, metadata={"Software": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    # few colours do; by coverage, since thin lines are few pixels and must keep theirs
    Image.open(drawn).convert("RGB").quantize(
        N_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    ).save(path, optimize=True)


def _relative(file: Path, page: Path) -> str:
    return Path(os.path.relpath(file, page.parent)).as_posix()


def _write(page: Path, lines: Sequence[str]) -> None:
    write_atomically(page, ("\n".join(lines).rstrip() + "\n").encode())


def _is_number(cell: Any) -> bool:
    return cell is None or re.match(r"[+-]?\d", str(cell)) is not None or str(cell) == ""


def _number(cell: Any) -> float:
    """The first number of a cell: 14.4 of "14.40 ± 1.37 (13.92)"."""
    match = re.search(r"[+-]?\d+(?:\.\d+)?", str(cell))
    return float(match[0]) if match else np.nan


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value).replace("|", "\\|")
