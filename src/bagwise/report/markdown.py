"""`write_markdown`: the report as Markdown with PNG files, for papers and for reading as plain text."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bagwise._io.atomic import write_atomically
from bagwise.errors import BagwiseError
from bagwise.report import sentences
from bagwise.report.confusions import most_confused
from bagwise.report.data import Example, ReportData, WordGroup
from bagwise.report.figures import confusion_figure, merging_figure
from bagwise.report.html import LIMITS, examples_by_class, rows_of, shown_groups
from bagwise.report.pictures import mosaic, thumbnail
from bagwise.report.texts import count, number, one_line, percent, plain, seconds

__all__ = ["escaped", "folder_for", "pairs_table", "said", "table", "write_markdown"]

# What Markdown, mathematics in it, or HTML would take as more than text.
_SPECIAL = re.compile(r"[\\`*_{}\[\]()#+!|~$>:@-]")


def write_markdown(data: ReportData, folder: str | os.PathLike[str]) -> Path:
    """Write the report of a model as Markdown and PNG files. Needs ``bagwise[plot,image]``.

    Parameters
    ----------
    data : ReportData
    folder : path
        Made if it is not there. ``report.md`` is written last, when all pictures are there; files with the same names
        are replaced, others are left alone.

    Returns
    -------
    path : Path
        The Markdown file, ``report.md``.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.report import ReportData, write_markdown
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_markdown(ReportData("Photos", facts={"items": 200}), folder).read_text())
    # Photos
    <BLANKLINE>
    ## What was done
    <BLANKLINE>
    |  |  |
    | :-- | :-- |
    | items | 200 |
    <BLANKLINE>
    """
    if not isinstance(data, ReportData):
        raise BagwiseError(f"write_markdown takes a ReportData, got {type(data).__name__}.")
    place = folder_for(folder)
    parts = [f"# {escaped(data.title)}"]
    for section in (_done, _curve, _confusion, _groups, _examples, _end):
        parts += section(data, place)
    return write_atomically(place / "report.md", ("\n\n".join(parts) + "\n").encode())


def folder_for(folder: str | os.PathLike[str]) -> Path:
    """Make the folder that Markdown and its pictures go to."""
    place = Path(folder)
    if place.exists() and not place.is_dir():
        raise BagwiseError(f"{place} is not a folder. Name a folder for the Markdown file and its pictures.")
    place.mkdir(parents=True, exist_ok=True)
    return place


def escaped(text: str) -> str:
    r"""Write a text so that Markdown shows it as it is, on one line.

    Examples
    --------
    >>> from bagwise.report.markdown import escaped
    >>> print(escaped("a|b <script> *c*"))
    a\|b &lt;script&gt; \*c\*
    """
    shown = _SPECIAL.sub(r"\\\g<0>", one_line(text).replace("&", "\0"))
    return shown.replace("\\>", "&gt;").replace("<", "&lt;").replace("\0", "&amp;")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table: the first column to the left, the others to the right. Cells are Markdown."""
    lines = [" | ".join(head), " | ".join([":--"] + ["--:"] * (len(head) - 1)), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def said(*sentence: sentences.Sentence) -> str:
    """Write sentences, names in quotation marks."""
    return " ".join(
        "".join(f"“{escaped(part)}”" if isinstance(part, sentences.Name) else part for part in parts)
        for parts in sentence
    )


def pairs_table(pairs: Iterable[tuple[str, str]]) -> str:
    """Write names and values as a table without a head."""
    return "|  |  |\n| :-- | :-- |\n" + "\n".join(f"| {escaped(a)} | {escaped(b)} |" for a, b in pairs)


def _done(data: ReportData, folder: Path) -> list[str]:
    if not (data.facts or data.classes):
        return []
    parts = ["## What was done"]
    if data.classes:
        parts.append(said(*sentences.about_classes(data.classes)))
    if data.facts:
        parts.append(pairs_table((name, plain(value)) for name, value in data.facts))
    return parts


def _curve(data: ReportData, folder: Path) -> list[str]:
    curve = data.curve
    if curve is None:
        return []
    write_atomically(folder / "merging-curve.png", merging_figure(curve))
    parts = ["## How many words it takes", said(*sentences.about_curve(curve))] if curve.sizes else ["## The criterion"]
    parts.append("![Error and criterion against the number of words](merging-curve.png)")
    if curve.protocol:
        parts.append(f"Measured by: {escaped(curve.protocol)}.")
    if curve.sizes:
        spread = curve.standard_errors
        head = ["words", "error", "standard error"] if spread else ["words", "error"]
        rows = [
            [count(curve.sizes[i]), percent(curve.errors[i])] + ([percent(spread[i])] if spread else [])
            for i in rows_of(curve)
        ]
        parts.append(table(head, rows))
    return parts


def _confusion(data: ReportData, folder: Path) -> list[str]:
    if data.confusion is None:
        return []
    write_atomically(folder / "confusion.png", confusion_figure(data.confusion))
    parts = ["## What is taken for what", said(sentences.about_confusion(data.confusion))]
    pairs = [f"- {said(sentences.about_pair(pair))}" for pair in most_confused(data.confusion)]
    if pairs:
        parts.append("\n".join(pairs))
    parts.append("![Confusion matrix: rows are true classes, columns answers](confusion.png)")
    return parts


def _groups(data: ReportData, folder: Path) -> list[str]:
    if not data.groups:
        return []
    shown = shown_groups(data.groups)
    parts = ["## Groups of words, the largest first", said(sentences.about_groups(shown, data.groups))]
    rows = []
    for group in shown:
        classes = ", ".join(f"{escaped(name)} {number(weight, 3)}" for name, weight in group.classes[: LIMITS.classes])
        rows.append([str(group.number), count(group.n_words), percent(group.share), _seen(group, folder), classes])
    return [*parts, table(["group", "words", "share", "what it holds", "speaks for"], rows)]


def _seen(group: WordGroup, folder: Path) -> str:
    """Show the patches of a group as one picture, and its words."""
    shown = []
    if group.patches:
        name = f"group-{group.number}.png"
        write_atomically(folder / name, mosaic(group.patches[: LIMITS.patches], 32, columns=8))
        shown.append(f"![Patches of group {group.number}]({name})")
    shown += [", ".join(escaped(word) for word in group.names[: LIMITS.names])]
    return " ".join(part for part in shown if part)


def _examples(data: ReportData, folder: Path) -> list[str]:
    parts = ["## Examples and the words that decided"] if data.examples else []
    place = 0
    for name, members in examples_by_class(data):
        rows = []
        for example in members:
            place += 1
            rows.append(_example(example, f"example-{place}.png", folder))
        parts += [f"### {escaped(name)}"] if name is not None else []
        parts.append(table(["item", "answer", "what the words added"], rows))
    return parts


def _example(example: Example, file: str, folder: Path) -> list[str]:
    item = escaped(example.id)
    if example.picture is not None:
        write_atomically(folder / file, thumbnail(example.picture))
        item = f"![{item}]({file}) {item}"
    if example.excerpt:
        item += f": {escaped(example.excerpt)}"
    answer = "" if example.predicted is None else escaped(example.predicted)
    if example.correct is not None:
        answer += " (right)" if example.correct else " (wrong)"
    shown = example.evidence[: LIMITS.evidence]
    return [item, answer, ", ".join(f"group {group}: {number(value, 3)}" for group, value in shown)]


def _end(data: ReportData, folder: Path) -> list[str]:
    parts = []
    if data.timings:
        parts += ["## Time", said(sentences.about_timings(data.timings))]
        parts.append(table(["step", "time"], ([escaped(step), seconds(time)] for step, time in data.timings)))
    if data.notes:
        parts += ["## Notes", "\n".join(f"- {escaped(note)}" for note in data.notes)]
    if data.versions:
        parts += ["## Versions", pairs_table(data.versions)]
    return parts
