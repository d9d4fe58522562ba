"""`write_report`: what was fitted, as one HTML file that people look at."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bagwise._io.atomic import write_atomically
from bagwise.errors import BagwiseError
from bagwise.report import sentences
from bagwise.report.charts import MOST_STOPS, merging_chart
from bagwise.report.confusions import HeatMap, heat_map, most_confused
from bagwise.report.data import Confusion, Example, MergingCurve, ReportData, WordGroup
from bagwise.report.pages import markup, render_page
from bagwise.report.scales import thinned
from bagwise.report.texts import count, one_line, percent, share_of

__all__ = ["render_report", "write_report"]


class Limits(NamedTuple):
    """How much of each kind is shown, so that pages stay readable and small."""

    groups: int = 48
    names: int = 30
    patches: int = 24
    classes: int = 5
    evidence: int = 6
    heat_classes: int = 100
    told_cells: int = 900  # cells of a confusion matrix that say on hover what they are
    evidence_patch: int = 4096  # bytes of a patch that is shown again beside each example


LIMITS = Limits()


class Seen(NamedTuple):
    """A group of words that took part in a decision."""

    number: int
    value: float
    group: WordGroup | None
    linked: bool
    patch: bytes | None


def render_report(data: ReportData) -> str:
    """Draw the report of a model as one HTML page. Needs ``bagwise[report]``.

    The page is one file: it fetches nothing, runs no script, follows light and dark, and can be printed. Sections that
    have no data are left out. Of very much data the most important part is shown, and the page says so. The same data
    give the same text.

    Parameters
    ----------
    data : ReportData

    Returns
    -------
    html : str
        Can always be encoded as UTF-8.

    Examples
    --------
    >>> from bagwise.report import MergingCurve, ReportData, render_report
    >>> curve = MergingCurve([10, 50, 1000], [0.3, 0.182, 0.176], [0.01, 0.008, 0.008], one_se=50, chosen=50)
    >>> page = render_report(ReportData("Photos", facts={"items": 200}, curve=curve))
    >>> "50 words keep the error within one standard error of 1000 words: 18.2\u202f% against 17.6\u202f%." in page
    True
    """
    if not isinstance(data, ReportData):
        raise BagwiseError(f"render_report takes a ReportData, got {type(data).__name__}.")
    context: dict[str, Any] = {"data": data, "limits": LIMITS, "said": _said(data), "sections": _sections(data)}
    context["key_figures"] = _key_figures(data)
    context["any_tested"] = any(of_class.n_tested is not None for of_class in data.classes)
    context["most_learned"] = max((of_class.n_learned for of_class in data.classes), default=0)
    context["longest"] = max((time for _, time in data.timings), default=0.0)
    if data.curve is not None:
        context |= {"merging_chart": markup(merging_chart(data.curve)), "curve_rows": rows_of(data.curve)}
        context["most_stops"] = MOST_STOPS
    if data.confusion is not None:
        context |= _confusion_view(data.confusion)
    if data.groups:
        context |= _groups_view(data.groups)
    context["examples"] = _examples_view(data)
    return render_page("report.html.j2", **context)


def write_report(data: ReportData, path: str | os.PathLike[str]) -> Path:
    """Write the report of a model to an HTML file, wholly or not at all; see `render_report`.

    Parameters
    ----------
    data : ReportData
    path : path
        The file; one that is there is replaced.

    Returns
    -------
    path : Path
        The same path.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.report import ReportData, write_report
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(ReportData("Photos"), f"{folder}/report.html").read_text()[:15]
    '<!doctype html>'
    """
    return write_atomically(path, render_report(data).encode())


def shown_groups(groups: Sequence[WordGroup]) -> list[WordGroup]:
    """Choose the groups with the largest shares of occurrences, largest first."""
    return sorted(groups, key=lambda group: (-group.share, group.number))[: LIMITS.groups]


def examples_by_class(data: ReportData) -> list[tuple[str | None, list[Example]]]:
    """Sort examples by their class, or by the answer where the class is not known, classes as in the data."""
    found: dict[str | None, list[Example]] = {of_class.name: [] for of_class in data.classes}
    for example in data.examples:
        found.setdefault(example.predicted if example.label is None else example.label, []).append(example)
    return [(name, members) for name, members in found.items() if members]


def _sections(data: ReportData) -> dict[str, str]:
    """Give the ids and titles of the sections that have data."""
    sections = {
        "done": ("What was done", data.facts or data.classes),
        "curve": ("How many words it takes", data.curve),
        "confusion": ("What is taken for what", data.confusion),
        "groups": ("Groups of words, the largest first", data.groups),
        "examples": ("Examples and the words that decided", data.examples),
        "timings": ("Time", data.timings),
        "notes": ("Notes", data.notes),
        "versions": ("Versions", data.versions),
    }
    return {id: title for id, (title, content) in sections.items() if content}


def _said(data: ReportData) -> dict[str, Any]:
    return {
        "classes": sentences.about_classes(data.classes) if data.classes else [],
        "curve": sentences.about_curve(data.curve) if data.curve else [],
        "confusion": sentences.about_confusion(data.confusion) if data.confusion else (),
        "groups": sentences.about_groups(shown_groups(data.groups), data.groups) if data.groups else (),
        "timings": sentences.about_timings(data.timings) if data.timings else (),
    }


def _key_figures(data: ReportData) -> list[dict[str, str]]:
    """Choose the few figures that stand below the title."""
    found = []
    curve = data.curve
    if curve is not None and curve.chosen is not None:
        before = "" if curve.n_before is None else f", of {count(curve.n_before)}"
        found.append((count(curve.chosen), f"words of the model{before}"))
        error = curve.error_at(curve.chosen)
        if error is not None:
            found.append((percent(error), "error along the merging curve"))
    if data.confusion is not None and data.confusion.n_items:
        wrong = share_of(data.confusion.n_wrong, data.confusion.n_items)
        found.append((wrong, f"of {count(data.confusion.n_items)} answers wrong"))
    if data.classes:
        found.append((count(len(data.classes)), "class" if len(data.classes) == 1 else "classes"))
    return [{"value": value, "label": label} for value, label in found]


def rows_of(curve: MergingCurve) -> list[int]:
    """Choose the errors of the table: all, or those that shape the curve most; and those of marked sizes."""
    marked = {curve.sizes.index(size) for size in (curve.chosen, curve.one_se) if size in curve.sizes}
    places = [math.log(size) for size in curve.sizes]
    return sorted(marked | set(thinned(places, curve.errors)))


def _confusion_view(confusion: Confusion) -> dict[str, Any]:
    heat = heat_map(confusion, LIMITS.heat_classes)
    items, right = confusion.counts.sum(axis=1).tolist(), np.diagonal(confusion.counts).tolist()
    rows = zip(confusion.classes, items, right, strict=True)
    return {
        "heat": heat,
        "short_names": max(map(len, heat.classes)) <= 3,
        "heat_rows": _heat_rows(heat),
        "pairs": [sentences.about_pair(pair) for pair in most_confused(confusion)],
        "class_rows": [{"name": name, "n_items": n, "n_right": correct} for name, n, correct in rows],
    }


def _heat_rows(heat: HeatMap) -> list[dict[str, Any]]:
    tell = heat.counts.size <= LIMITS.told_cells
    names = [one_line(name) for name in heat.classes]
    rows = []
    for i, name in enumerate(heat.classes):
        cells = []
        total = int(heat.counts[i].sum()) + (0 if heat.others is None else int(heat.others[i]))
        for k, times in enumerate(heat.counts[i].tolist()):
            kinds = [f"l{heat.levels[i, k]}"] if times else []
            kinds += ["d"] if i == k else []
            what = f"{names[i]}: right" if i == k else f"{names[i]} taken for {names[k]}:"
            told = f"{what} {times} of {total}, {share_of(times, total)}"
            cells.append({"kind": " ".join(kinds), "told": told if tell and times else "", "shown": times or ""})
        rows.append({"name": name, "cells": cells, "others": None if heat.others is None else int(heat.others[i])})
    return rows


def _groups_view(groups: Sequence[WordGroup]) -> dict[str, Any]:
    shown = shown_groups(groups)
    weights = [weight for group in shown for _, weight in group.classes[: LIMITS.classes]]
    return {
        "groups": shown,
        "largest_share": shown[0].share,
        "largest_weight": max(map(abs, weights), default=0.0),
        "signed_weights": min(weights, default=0.0) < 0,
    }


def _examples_view(data: ReportData) -> list[tuple[str | None, list[dict[str, Any]]]]:
    known = {group.number: group for group in data.groups}
    linked = {group.number for group in shown_groups(data.groups)}

    def seen(number: int, value: float) -> Seen:
        group = known.get(number)
        patch = group.patches[0] if group and group.patches else None
        small = patch is not None and len(patch) <= LIMITS.evidence_patch
        return Seen(number, value, group, number in linked, patch if small else None)

    def view(example: Example) -> dict[str, Any]:
        evidence = [seen(number, value) for number, value in example.evidence[: LIMITS.evidence]]
        return {"item": example, "evidence": evidence, "largest": max((abs(e.value) for e in evidence), default=0.0)}

    return [(name, [view(example) for example in members]) for name, members in examples_by_class(data)]
