"""Views of the data: what the templates show of it, how much, in which order, and formatted so that sums add up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bagwise._utils.text import count, how_many
from bagwise.app.report import sentences
from bagwise.app.report.charts import MAX_STOPS, HeatMap, heat_map
from bagwise.app.report.clusters import TABLE_TITLES, about_clusters, clusters_view
from bagwise.app.report.data import Baseline, Comparison, ConfusionMatrix, Example, MergingCurve, ReportData, WordGroup
from bagwise.display import texts
from bagwise.display.svg import thinned
from bagwise.display.texts import one_line, percent, percent_of

__all__ = ["LIMITS", "ScorePart", "by_decision", "examples_by_class", "lowest_errors", "report_view", "score_parts"]
__all__ += ["shown_groups", "table_rows"]


class ShownLimits(NamedTuple):
    """Maximum numbers of what is shown, so that pages stay readable and small."""

    groups: int = 60  # as cards; all others in a list
    listed: int = 1000  # groups in the list
    names: int = 12  # words of a group; the others can be opened
    words: int = 30_000  # words that can be opened, of all groups together: about 300 kB
    patches: int = 24
    classes: int = 5
    contributions: int = 5
    heat_classes: int = 100
    cell_titles: int = 900  # cells of a confusion matrix with a title on hover
    contribution_patch: int = 4096  # bytes of a patch that is repeated beside each example


LIMITS = ShownLimits()


def report_view(data: ReportData) -> dict[str, Any]:
    """Return the variables of the template of a report, apart from its charts."""
    view: dict[str, Any] = {
        "data": data,
        "limits": LIMITS,
        "sections": _sections(data),
        "key_figures": _key_figures(data),
        "summary": _summary(data),
        "examples": _examples_view(data),
        "any_test": any(one.n_test is not None for one in data.classes),
        "largest_class": max((one.n_train for one in data.classes), default=0),
        "model_row": _model_row(data.curve),
        "longest": max(data.timings.values(), default=0.0),
    }
    if data.curve is not None:
        view |= {
            "curve_rows": table_rows(data.curve),
            "n_sizes": len({*data.curve.sizes, *data.curve.test_sizes}),
            "meanings": sentences.what_errors_mean(data.curve),
            "max_stops": MAX_STOPS,
        }
    if data.clusters is not None:
        view |= clusters_view(data.clusters)
    if data.confusion is not None:
        view |= _confusion_view(data.confusion)
    if data.groups:
        view |= _groups_view(data.groups)
    return view


def _model_row(curve: MergingCurve | None) -> Baseline | None:
    """Return the errors of the model as a row beside those of the baselines; None if they are not known."""
    if curve is None or curve.n_groups is None:
        return None
    error, test = curve.error_at(curve.n_groups), curve.test_error_at(curve.n_groups)
    if error is None:
        return None
    return Baseline("this model", error, curve.standard_error_at(curve.n_groups), curve.n_groups, test)


def by_decision(groups: Sequence[WordGroup]) -> list[WordGroup]:
    """Sort groups by what they decide, those that decide most first; equal ones by frequency and number."""
    return sorted(groups, key=lambda group: (-group.decides, -group.frequency, group.number))


def shown_groups(groups: Sequence[WordGroup]) -> list[WordGroup]:
    """Return the groups that are shown as cards: those that decide most."""
    return by_decision(groups)[: LIMITS.groups]


def examples_by_class(data: ReportData) -> list[tuple[str | None, list[Example]]]:
    """Group examples by true class, or by predicted class if the true one is unknown."""
    groups: dict[str | None, list[Example]] = {one.name: [] for one in data.classes}
    for example in data.examples:
        groups.setdefault(example.predicted if example.label is None else example.label, []).append(example)
    return [(name, members) for name, members in groups.items() if members]


def table_rows(curve: MergingCurve) -> list[int]:
    """Return the sizes in the table of errors: all, or those that preserve the shape, and the marked ones."""
    kept = {size for size in (curve.n_groups, curve.auto) if size in curve.sizes or size in curve.test_sizes}
    for sizes, errors in ((curve.sizes, curve.errors), (curve.test_sizes, curve.test_errors)):
        kept |= {sizes[i] for i in thinned([math.log(size) for size in sizes], errors)}
    return sorted(size for size in kept if size is not None)


def lowest_errors(comparison: Comparison) -> list[float]:
    """Return the lowest error at each size."""
    return [min(errors) for errors in zip(*(result.errors for result in comparison.criteria), strict=True)]


def _sections(data: ReportData) -> dict[str, str]:
    """Return ids and titles of the sections that have data."""
    clusters = data.clusters
    sections = {
        "clusters": ("Clusters", clusters),
        "map": ("Map", clusters is not None and len(clusters.points)),
        "terms": (
            TABLE_TITLES[clusters.shares_of] if clusters else "",
            clusters is not None and clusters.table is not None,
        ),
        "setup": ("Data and settings", data.facts or data.classes),
        "curve": ("Error by number of groups" if data.curve and data.curve.measured else "Criterion", data.curve),
        "baselines": ("Simple baselines", data.baselines),
        "confusion": ("Confusion matrix", data.confusion),
        "tree": ("Hierarchy", data.tree),
        "groups": ("Word groups", data.groups),
        "examples": ("Examples", data.examples),
        "timings": ("Timings", data.timings),
        "notes": ("Notes", data.notes),
        "versions": ("Versions", data.versions),
    }
    return {id: title for id, (title, content) in sections.items() if content}


def _summary(data: ReportData) -> dict[str, Any]:
    protocol = "" if data.curve is None else data.curve.protocol
    return {
        "model": () if data.clusters is not None else sentences.about_model(data),
        "clusters": about_clusters(data.clusters) if data.clusters is not None else [],
        "baselines": sentences.about_baselines(data.baselines, protocol),
        "classes": sentences.about_classes(data.classes) if data.classes else [],
        "curve": _about_curve(data.curve) if data.curve else [],
        "confusion": sentences.about_confusion(data.confusion) if data.confusion else (),
        "groups": sentences.about_groups(shown_groups(data.groups), data.groups) if data.groups else [],
        "examples": sentences.about_examples(data.examples),
        "timings": sentences.about_timings(data.timings) if data.timings else (),
    }


def _about_curve(curve: MergingCurve) -> list[sentences.Sentence]:
    return sentences.about_curve(curve) if curve.measured else [sentences.about_criterion(curve)]


def _key_figures(data: ReportData) -> list[tuple[str, str]]:
    """Return the numbers below the title, with their labels."""
    figures: list[tuple[str, str]] = []
    curve, measured = data.curve, False
    if data.clusters is not None:
        n = len(data.clusters.cards)
        figures.append((count(data.clusters.n_items), "items"))
        figures.append((count(n), "cluster" if n == 1 else "clusters"))
    if curve is not None and curve.n_groups is not None:
        words = "" if curve.n_words is None else f" of {how_many(curve.n_words, 'words')}"
        figures.append((count(curve.n_groups), f"groups{words}"))
        error, test = curve.error_at(curve.n_groups), curve.test_error_at(curve.n_groups)
        if test is not None:
            which = "error on training items" if curve.test_is_training else "test error"
            figures.append((percent(test), f"{which}, {how_many(curve.n_test, 'items')}"))
        if error is not None:
            figures.append((percent(error), f"error, {curve.protocol}" if curve.protocol else "error"))
        measured = test is not None or error is not None
    if data.confusion is not None and data.confusion.n_items and not measured:
        items = data.confusion.n_items
        figures.append((percent_of(data.confusion.n_wrong, items), f"of {count(items)} items misclassified"))
    if data.classes:
        figures.append((count(len(data.classes)), "class" if len(data.classes) == 1 else "classes"))
    return figures


def _confusion_view(confusion: ConfusionMatrix) -> dict[str, Any]:
    heat = heat_map(confusion, LIMITS.heat_classes)
    items, right = confusion.counts.sum(axis=1).tolist(), np.diagonal(confusion.counts).tolist()
    return {
        "heat": heat,
        "short_names": max(map(len, heat.classes)) <= 3,
        "heat_rows": _heat_rows(heat),
        "pairs": [sentences.about_pair(pair) for pair in sentences.most_confused(confusion)],
        "class_rows": list(zip(confusion.classes, items, right, strict=True)),
    }


def _heat_rows(heat: HeatMap) -> list[dict[str, Any]]:
    with_titles = heat.counts.size <= LIMITS.cell_titles
    names = [one_line(name) for name in heat.classes]
    rows = []
    for i, name in enumerate(heat.classes):
        cells = []
        others = None if heat.others is None else int(heat.others[i])
        total = int(heat.counts[i].sum()) + (others or 0)
        for k, times in enumerate(heat.counts[i].tolist()):
            kinds = [f"l{heat.levels[i, k]}"] if times else []
            kinds += ["d"] if i == k else []
            title = f"{names[i]} classified as {names[k]}: {times} of {total}, {percent_of(times, total)}"
            shown = {"kind": " ".join(kinds), "title": title if with_titles and times else "", "text": times or ""}
            cells.append(shown)
        rows.append({"name": name, "cells": cells, "others": others})
    return rows


def _groups_view(groups: Sequence[WordGroup]) -> dict[str, Any]:
    shown, rest = shown_groups(groups), by_decision(groups)[LIMITS.groups :]
    weights = [weight for group in groups for _, weight in group.classes[: LIMITS.classes]]
    largest, room = max(map(abs, weights), default=0.0), LIMITS.words
    cards = []
    for group in shown:
        opened = group.names[LIMITS.names : LIMITS.names + room]
        room -= len(opened)
        n_hidden = group.n_words - min(len(group.names), LIMITS.names) - len(opened) if group.names else 0
        cards.append({"group": group, "opened": opened, "n_hidden": n_hidden})
    return {
        "cards": cards,
        "listed": rest[: LIMITS.listed],
        "n_not_listed": len(rest) - len(rest[: LIMITS.listed]),
        "decided": shown[0].decides > 0,
        "with_classes": bool(weights),
        "largest_decision": shown[0].decides,
        "largest_frequency": max(group.frequency for group in shown),
        "with_frequencies": any(group.frequency > 0 for group in groups),
        "largest_weight": largest,
        "weight_digits": texts.digits_for(largest),
        "decision_digits": texts.digits_for(shown[0].decides),
        "signed_weights": min(weights, default=0.0) < 0,
    }


class ScorePart(NamedTuple):
    """A part of a score, of a group or, if `group` is None, of all others or the intercept; and its value as shown."""

    name: str
    group: int | None
    value: float
    shown: str


def score_parts(example: Example) -> tuple[list[ScorePart], str]:
    """Return the parts of the score of an example as they are shown, and the score; the shown numbers add up.

    >>> parts, score = score_parts(Example("x", contributions=[(4, 0.6004), (2, -0.2004)], score=0.5, intercept=0.1))
    >>> [(part.name, part.shown) for part in parts], score
    ([('group 4', '+0.600'), ('group 2', '−0.200'), ('intercept', '+0.100')], '0.500')
    """
    shown, rest = (
        example.contributions[part] for part in (slice(LIMITS.contributions), slice(LIMITS.contributions, None))
    )
    named: list[tuple[str, int | None, float]] = [(f"group {number}", number, value) for number, value in shown]
    if example.score is not None:
        if rest:
            named.append((how_many(len(rest), "other groups"), None, sum(value for _, value in rest)))
        named.append(("intercept", None, example.intercept))
    values = [value for *_, value in named]
    digits = texts.digits_for(max(map(abs, values), default=0.0))
    if example.score is not None:
        values = texts.rounded_to_sum(values, example.score, digits)
    parts = [ScorePart(*of, texts.fixed(value, digits, sign=True)) for of, value in zip(named, values, strict=True)]
    return parts, "" if example.score is None else texts.fixed(example.score, digits)


def _examples_view(data: ReportData) -> list[tuple[str | None, list[dict[str, Any]]]]:
    known = {group.number: group for group in data.groups}
    linked = {group.number for group in shown_groups(data.groups)}

    def row(part: ScorePart) -> dict[str, Any]:
        group = None if part.group is None else known.get(part.group)
        patch = group.patches[0] if group and group.patches else b""
        patch = patch if len(patch) <= LIMITS.contribution_patch else b""
        return {"part": part, "group": group, "linked": part.group in linked, "patch": patch}

    def view(example: Example) -> dict[str, Any]:
        parts, score = score_parts(example)
        largest = max((abs(part.value) for part in parts), default=0.0)
        shown: dict[str, Any] = {"item": example, "parts": [row(part) for part in parts], "largest": largest}
        shown |= {"score": score, "rival": None}
        if example.rival is not None and example.score is not None:
            digits = len(score.partition(".")[2])
            shown |= {"rival": texts.fixed(example.rival[1], digits)}
            shown |= {"rival_is_higher": example.rival[1] > example.score}
        return shown

    return [(name, [view(example) for example in members]) for name, members in examples_by_class(data)]
