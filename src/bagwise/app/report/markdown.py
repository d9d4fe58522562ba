"""Reports and comparisons as Markdown with SVG charts and PNG pictures beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from bagwise._io.atomic import write_atomically
from bagwise._utils.text import count, how_many
from bagwise.app.report import sentences
from bagwise.app.report.charts import comparison_chart, heat_map, merging_chart
from bagwise.app.report.data import Comparison, Example, ReportData, WordGroup
from bagwise.app.report.html import chart_file
from bagwise.app.report.views import LIMITS, examples_by_class, lowest_errors, score_parts, shown_groups, table_rows
from bagwise.display.pictures import mosaic, thumbnail
from bagwise.display.texts import digits_for, fixed, one_line, percent, plain, seconds
from bagwise.errors import BagwiseError

__all__ = ["comparison_table", "escaped", "write_comparison_markdown", "write_markdown"]

# Characters with a meaning in Markdown, in mathematics inside it, or in HTML.
_SPECIAL = re.compile(r"[\\`*_{}\[\]()#+!|~$>:@-]")
_MATRIX_CLASSES = 20


def write_markdown(data: ReportData, folder: str | os.PathLike[str]) -> Path:
    """Write the report of a model as Markdown with SVG and PNG files. Needs ``bagwise[app]``.

    Parameters
    ----------
    data : ReportData
    folder : path
        Created if it does not exist. ``report.md`` is written last, after all pictures; files with the same names are
        replaced, others are kept.

    Returns
    -------
    path : Path
        The Markdown file, ``report.md``.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.app.report import ReportData, write_markdown
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_markdown(ReportData("Photos", facts={"items": 200}), folder).read_text())
    # Photos
    <BLANKLINE>
    ## Data and settings
    <BLANKLINE>
    |  |  |
    | :-- | :-- |
    | items | 200 |
    <BLANKLINE>
    """
    directory = _make_folder(folder)
    about = sentences.about_model(data)
    parts = [f"# {escaped(data.title)}", *([_say(about)] if about else [])]
    for section in (_setup, _curve, _baselines, _confusion, _groups, _examples, _end):
        parts += section(data, directory)
    return write_atomically(directory / "report.md", ("\n\n".join(parts) + "\n").encode(), private=True)


def write_comparison_markdown(comparison: Comparison, folder: str | os.PathLike[str]) -> Path:
    """Write a comparison as ``comparison.md`` and ``comparison.svg``. Needs ``bagwise[app]``.

    Parameters
    ----------
    comparison : Comparison
    folder : path
        Created if it does not exist; files with the same names are replaced, others are kept.

    Returns
    -------
    path : Path
        The Markdown file.
    """
    chart = chart_file(comparison_chart(comparison))
    directory = _make_folder(folder)
    write_atomically(directory / "comparison.svg", chart)
    summary = _say(*sentences.about_comparison(comparison))
    parts = [f"# {escaped(comparison.title)}", summary, comparison_table(comparison)]
    parts.append("![Error of each criterion against the number of groups](comparison.svg)")
    if comparison.protocol:
        parts.append(f"Measured by {escaped(comparison.protocol)}.")
    if comparison.facts:
        parts.append(_pairs_table((name, plain(value)) for name, value in comparison.facts.items()))
    return write_atomically(directory / "comparison.md", ("\n\n".join(parts) + "\n").encode())


def comparison_table(comparison: Comparison) -> str:
    r"""Return a comparison as a Markdown table, the lowest errors in bold.

    Parameters
    ----------
    comparison : Comparison

    Returns
    -------
    markdown : str

    Examples
    --------
    >>> from bagwise.app.report import Comparison, CriterionResult, comparison_table
    >>> results = [CriterionResult("csm", [0.2, 0.1], seconds=1.5), CriterionResult("aib", [0.3, 0.1], seconds=0.5)]
    >>> print(comparison_table(Comparison("Digits", [10, 50], results)).replace("\u202f", " "))
    | criterion | 10 groups | 50 groups | time |
    | :-- | --: | --: | --: |
    | csm | **20.0 %** | **10.0 %** | 1.5 s |
    | aib | 30.0 % | **10.0 %** | 500 ms |
    """
    lowest = lowest_errors(comparison)
    rows = []
    for result in comparison.criteria:
        cells = [f"**{percent(e)}**" if e == lowest[i] else percent(e) for i, e in enumerate(result.errors)]
        if result.standard_errors:
            cells = [f"{cell} ± {percent(s)}" for cell, s in zip(cells, result.standard_errors, strict=True)]
        rows.append([escaped(result.name), *cells, seconds(result.seconds)])
    return _table(["criterion", *(f"{count(size)} groups" for size in comparison.sizes), "time"], rows)


def escaped(text: str) -> str:
    r"""Escape a text so that Markdown shows it literally, on one line.

    >>> print(escaped("a|b <script> *c*"))
    a\|b &lt;script&gt; \*c\*
    """
    shown = _SPECIAL.sub(r"\\\g<0>", one_line(text).replace("&", "\0"))
    return shown.replace("\\>", "&gt;").replace("<", "&lt;").replace("\0", "&amp;")


def _make_folder(folder: str | os.PathLike[str]) -> Path:
    directory = Path(folder)
    if directory.exists() and not directory.is_dir():
        raise BagwiseError(f"{directory} is a file. Give a folder for the Markdown file and its pictures.")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> str:
    """Return a table with columns `left` aligned left and the others right. Cells are Markdown."""
    rule = [":--" if k in left else "--:" for k in range(len(head))]
    lines = [" | ".join(row) for row in (head, rule, *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _pairs_table(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a table without a head."""
    return "|  |  |\n| :-- | :-- |\n" + "\n".join(f"| {escaped(a)} | {escaped(b)} |" for a, b in pairs)


def _say(*content: sentences.Sentence) -> str:
    """Return sentences with quoted names."""
    return " ".join("".join(map(_part, sentence)) for sentence in content)


def _part(part: str) -> str:
    if isinstance(part, sentences.Name):
        return f"“{escaped(part)}”"
    if isinstance(part, sentences.Phrase):
        return escaped(part)
    return f"**{part}**" if isinstance(part, sentences.Strong) else part


def _setup(data: ReportData, folder: Path) -> list[str]:
    if not (data.facts or data.classes):
        return []
    parts = ["## Data and settings"]
    if data.classes:
        parts.append(_say(*sentences.about_classes(data.classes)))
    if data.facts:
        parts.append(_pairs_table((name, plain(value)) for name, value in data.facts.items()))
    return parts


def _curve(data: ReportData, folder: Path) -> list[str]:
    curve = data.curve
    if curve is None:
        return []
    write_atomically(folder / "merging-curve.svg", chart_file(merging_chart(curve, readouts=False)))
    parts = ["## Error by number of groups"] if curve.measured else ["## Criterion"]
    if curve.sizes or not curve.measured:
        about = sentences.about_curve(curve) if curve.sizes else [sentences.about_criterion(curve)]
        parts.append(_say(*about))
    parts.append("![Error and criterion against the number of groups](merging-curve.svg)")
    meanings = [f"- **{one.term}.** {_say(*one.sentences)}" for one in sentences.what_errors_mean(curve)]
    if meanings:
        parts.append("\n".join(meanings))
    columns = [("cross-validation", curve.error_at)] if curve.sizes else []
    columns += [("standard error", curve.standard_error_at)] if curve.standard_errors else []
    columns += [("test", curve.test_error_at)] if curve.test_sizes else []
    if columns:
        rows = []
        for size in table_rows(curve):
            values = [error_at(size) for _, error_at in columns]
            rows.append([count(size), *("" if value is None else percent(value) for value in values)])
        parts.append(_table(["groups", *(name for name, _ in columns)], rows))
    return parts


def _baselines(data: ReportData, folder: Path) -> list[str]:
    if not data.baselines:
        return []
    rows = []
    for one in data.baselines:
        features, test = "" if one.n_features is None else count(one.n_features), one.test_error
        rows.append([escaped(one.name), features, percent(one.error), "" if test is None else percent(test)])
    about = _say(sentences.about_baselines(data.baselines, "" if data.curve is None else data.curve.protocol))
    return ["## Simple baselines", about, _table(["method", "features", "error", "test"], rows)]


def _confusion(data: ReportData, folder: Path) -> list[str]:
    if data.confusion is None:
        return []
    parts = ["## Confusion matrix", _say(sentences.about_confusion(data.confusion))]
    pairs = [f"- {_say(sentences.about_pair(pair))}" for pair in sentences.most_confused(data.confusion)]
    if pairs:
        parts.append("\n".join(pairs))
    heat = heat_map(data.confusion, _MATRIX_CLASSES)
    names = [escaped(name) for name in heat.classes]
    rows = [[name, *(str(n or "") for n in row)] for name, row in zip(names, heat.counts.tolist(), strict=True)]
    head, about = ["true class", *names], "Rows are true classes, columns predicted classes."
    if heat.others is not None:
        head.append("others")
        rows = [[*row, str(n or "")] for row, n in zip(rows, heat.others.tolist(), strict=True)]
        about += f" Shown are the {len(names)} classes with the most confusions."
    return [*parts, about, _table(head, rows)]


def _groups(data: ReportData, folder: Path) -> list[str]:
    if not data.groups:
        return []
    shown = shown_groups(data.groups)
    largest = max((abs(weight) for group in data.groups for _, weight in group.classes), default=0.0)
    digits, decimals = digits_for(shown[0].decides), digits_for(largest)
    decided, frequent = shown[0].decides > 0, any(group.frequency > 0 for group in data.groups)
    rows = []
    for group in shown:
        weights = [f"{escaped(name)} {fixed(weight, decimals, sign=True)}" for name, weight in group.classes]
        words = count(group.n_words) + (f" {escaped(group.vocabulary)}" if group.vocabulary else "")
        measure = [fixed(group.decides, digits)] if decided else []
        measure += [words, *([percent(group.frequency)] if frequent else [])]
        content = [_words(group, folder), ", ".join(weights)]
        rows.append([str(group.number), escaped(group.title), *measure, *content])
    head = ["group", "name", *(["decides"] if decided else []), "words", *(["frequency"] if frequent else [])]
    head += ["content", "class weights"]
    about = _say(*sentences.about_groups(shown, data.groups))
    parts = ["## Word groups", about, _table(head, rows, left=(1, len(head) - 2, len(head) - 1))]
    if len(shown) < len(data.groups):
        parts.append(f"{how_many(len(data.groups) - len(shown), 'groups')} that decide less are not in this table.")
    return parts


def _words(group: WordGroup, folder: Path) -> str:
    """Return the patches of a group as one picture, and the names of its words."""
    shown = []
    if group.patches:
        name = f"group-{group.number}.png"
        write_atomically(folder / name, mosaic(group.patches[: LIMITS.patches], 32, columns=8), private=True)
        shown.append(f"![Patches of group {group.number}]({name})")
    names = group.names[: LIMITS.names]
    shown.append(", ".join(escaped(word) for word in names))
    if names and group.n_words > len(names):
        shown.append(f"and {count(group.n_words - len(names))} more")
    return " ".join(part for part in shown if part)


def _examples(data: ReportData, folder: Path) -> list[str]:
    parts = ["## Examples", _say(sentences.about_examples(data.examples))] if data.examples else []
    titles = {group.number: group.title for group in data.groups}
    number = 0
    for name, members in examples_by_class(data):
        rows = []
        for example in members:
            number += 1
            rows.append(_example(example, f"example-{number}.png", folder, titles))
        parts += [f"### {escaped(name)}"] if name is not None else []
        parts.append(_table(["item", "predicted class", "parts of the score"], rows, left=(0, 1, 2)))
    return parts


def _example(example: Example, file: str, folder: Path, titles: Mapping[int, str]) -> list[str]:
    item = escaped(example.id)
    if example.picture is not None:
        write_atomically(folder / file, thumbnail(example.picture), private=True)
        item = f"![{item}]({file}) {item}"
    if example.excerpt:
        item += f": {escaped(example.excerpt)}"
    predicted = "" if example.predicted is None else escaped(example.predicted)
    if example.correct is not None:
        predicted += " (correct)" if example.correct else " (wrong)"
    parts, score = score_parts(example)
    names = [part.name if part.group is None else titles.get(part.group, part.name) for part in parts]
    shown = ", ".join(f"{escaped(name)}: {part.shown}" for name, part in zip(names, parts, strict=True))
    if score:
        shown += f"; score {score}"
    if example.rival is not None and score:
        digits = len(score.partition(".")[2])
        shown += f"; next: {escaped(example.rival[0])} {fixed(example.rival[1], digits)}"
    return [item, predicted, shown]


def _end(data: ReportData, folder: Path) -> list[str]:
    parts = []
    if data.timings:
        parts += ["## Timings", _say(sentences.about_timings(data.timings))]
        parts.append(_table(["step", "time"], ([escaped(step), seconds(time)] for step, time in data.timings.items())))
    if data.notes:
        parts += ["## Notes", "\n".join(f"- {escaped(note)}" for note in data.notes)]
    if data.versions:
        parts += ["## Versions", _pairs_table(data.versions.items())]
    return parts
