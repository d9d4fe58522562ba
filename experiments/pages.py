"""What results say, for people: tables, curves, and verdicts on the papers' statements; as Markdown with plots."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["PAPERS", "Claim", "Curves", "Section", "Table", "mean_and_sd", "write_pages"]

PAPERS = {
    "CSM08": "Class-separability merging (2008)",
    "GE17": "Merging by graph embedding (2017)",
    "BSC13": "Sketches of very wide features (2013)",
    "MOB17": "Manifold-optimised bag-of-features (2017)",
    "FEK16": "LDA free-energy kernel (2016)",
    "beyond": "What the papers did not try",
}
N_COLOURS = 256


@dataclass(frozen=True)
class Table:
    """Rows under headings; None is a dash, numbers are shown with three digits unless they are given as text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def markdown(self) -> str:
        """The table as Markdown."""
        lines = [self.columns, ["---"] + ["---:"] * (len(self.columns) - 1), *self.rows]
        body = "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)
        return f"**{self.title}**\n\n{body}\n"


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
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from PIL import Image

        figure = Figure(figsize=(7.5, 4.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        marks = "osD^vP*X<>hp"
        for k, (name, (x, mean, spread)) in enumerate(self.series.items()):
            (line,) = axes.plot(x, mean, label=name, marker=marks[k % len(marks)], markersize=3.5, linewidth=1.2,
                                color=f"C{k % 10}", linestyle="-" if k < 10 else "--")  # fmt: skip
            if spread is not None:
                low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
                axes.fill_between(x, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
        if self.log:
            axes.set_xscale("log")
        axes.set(xlabel=self.x, ylabel=self.y, title=self.title)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=7, ncols=2)
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=100, metadata={"Software": None})
        path.parent.mkdir(parents=True, exist_ok=True)
        # few colours do; by coverage, since thin lines are few pixels and must keep theirs
        Image.open(drawn).convert("RGB").quantize(
            N_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        ).save(path, optimize=True)


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


def write_pages(
    parts: Sequence[tuple[str, str, str, Sequence[Section]]], page: Path, intro: str, pictures: Path
) -> None:
    """Write one Markdown page from the sections of all experiments, and the plots into a folder beside it.

    Parameters
    ----------
    parts : sequence of (paper, name, footer, sections)
    page : Path
    intro : str
    pictures : Path
        Folder for the plots; below the folder of the page.
    """
    from bagwise._io.atomic import write_atomically

    lines = ["# Results", "", intro, "", _overview(parts).markdown()]
    for paper, title in PAPERS.items():
        mine = [part for part in parts if part[0] == paper]
        if not mine:
            continue
        lines += [f"## {title}", ""]
        for _, name, footer, sections in mine:
            for number, section in enumerate(sections):
                lines += [f"### {section.title}", "", section.text.strip(), ""]
                lines += [claim.markdown() for claim in section.claims] + [""] * bool(section.claims)
                for table in section.tables:
                    lines += [table.markdown()]
                for k, curves in enumerate(section.curves):
                    file = pictures / f"{name}-{number}-{k}.png"
                    curves.draw(file)
                    lines += [f"![{curves.title}]({file.relative_to(page.parent).as_posix()})", ""]
            lines += [footer, ""]
    write_atomically(page, ("\n".join(lines).rstrip() + "\n").encode())


def mean_and_sd(values: Iterable[float], form: str = ".2f", sd_form: str | None = None) -> str | None:
    """Mean and standard deviation as text; the only value if there is one, None if there is none."""
    numbers = np.array(list(values))
    if len(numbers) < 2:
        return format(numbers[0], form) if len(numbers) else None
    return f"{numbers.mean():{form}} ± {numbers.std(ddof=1):{sd_form or form}}"


def _overview(parts: Sequence[tuple[str, str, str, Sequence[Section]]]) -> Table:
    """Count the verdicts, section by section."""
    rows = []
    for paper, title in PAPERS.items():
        for section in (section for part in parts if part[0] == paper for section in part[3] if section.claims):
            verdicts = [claim.supported for claim in section.claims]
            rows.append([f"{title}: {section.title}", *(str(sum(one is verdict for one in verdicts) or "")
                                                        for verdict in (True, False, None))])  # fmt: skip
    return Table("Statements of the papers, and goals of ours", ("", "supported", "refuted", "inconclusive"), rows)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value).replace("|", "\\|")
