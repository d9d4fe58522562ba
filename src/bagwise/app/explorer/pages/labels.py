"""Labels: items whose held-out answer contradicts their label, decisions about them, and a fit with these."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute, Route

from bagwise.app.explorer.items import Items
from bagwise.app.explorer.label_changes import LabelChanges
from bagwise.app.explorer.pages.items import check_number, rows_of
from bagwise.app.explorer.python_lines import label_lines
from bagwise.app.explorer.requests import MOST_ROWS, changing, maybe_number, number_or, reading, size_of
from bagwise.app.explorer.workspace import Workspace
from bagwise.app.index.label_issues import ISSUE_ORDERS, label_issues
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError

__all__ = ["labels", "nearest", "python", "routes"]

_NEAREST, _LOOKED_AT = 4, 200  # similar items of each class, and among how many they are looked for


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""

    def decide(content: dict[str, Any]) -> None:
        number, label = content.get("number"), content.get("label")
        if type(number) is not int:
            raise BagwiseError(f"A decision needs the number of an item, got {number!r:.40}.")
        check_number(space, number)
        if label not in (None, "", *space.model.classes):
            raise BagwiseError(f"A label must be a class, empty to leave the item out, or null; got {label!r:.40}.")
        space.labels.decide(space.ids[number], label)

    def refit(content: dict[str, Any]) -> None:
        items = _items(space)
        space.labels.refit(items.index, items.scores(space.cut().model))

    changes = {"decide": decide, "undo": lambda content: space.labels.undo(), "refit": refit}
    return [
        Route("/api/labels", reading(lambda q, _: labels(space, q))),
        Route("/api/labels/state", reading(lambda q, _: _state(space.labels))),
        Route("/api/labels/{number:int}/nearest", reading(lambda q, p: nearest(space, size_of(q), p["number"], q))),
        Route("/api/python/labels", reading(lambda q, _: {"lines": python(space, q)})),
        *(
            Route(f"/api/labels/{name}", changing(change, lambda: _state(space.labels)), methods=["POST"])
            for name, change in changes.items()
        ),
    ]


def python(space: Workspace, query: QueryParams) -> str:
    """Return the Python lines of the page."""
    return label_lines(space, size_of(query), query.get("sort") or ISSUE_ORDERS[0], maybe_number(query, "label"))


def _items(space: Workspace) -> Items:
    if space.items is None:
        raise BagwiseError("There are no items: start bagwise explore with their location, or with an index.")
    return space.items


def _state(changes: LabelChanges) -> dict[str, Any]:
    """Return what was decided, where it is kept, and what a fit with it gave."""
    return {
        "n_decided": len(changes.labels),
        "n_left": sum(not label for label in changes.labels.values()),
        "n_undoable": changes.n_undoable,
        "read_only": changes.read_only,
        "path": None if changes.path is None else clean(str(changes.path)),
        "problem": None if changes.problem is None else clean(changes.problem),
        "running": changes.running,
        "refitted": changes.refitted,
    }


def labels(space: Workspace, query: QueryParams) -> dict[str, Any]:
    """Return a part of the items whose label is contradicted, with what was decided about them."""
    n, items = size_of(query), _items(space)
    cut, label = space.cut(n), maybe_number(query, "label")
    first, most = number_or(query, "first", 0), min(number_or(query, "most", 60), MOST_ROWS)
    if label is not None:
        cut.check_class(label)
    with cut.lock:
        scored = items.scores(cut.model)
        issues = label_issues(scored, query.get("sort") or ISSUE_ORDERS[0])
    chosen = np.arange(len(issues.numbers))
    if label is not None:
        chosen = chosen[scored.codes[issues.numbers] == label]
    shown = chosen[first : first + most]
    rows, opening = rows_of(space, n, issues.numbers[shown].tolist())
    classes, decided = list(map(clean, cut.model.classes)), space.labels.labels
    for row, k in zip(rows, shown.tolist(), strict=True):
        row |= {
            "predicted": classes[issues.suggested[k]],
            "suggested": int(issues.suggested[k]),
            "right": False,
            "self_confidence": float(issues.self_confidence[k]),
            "margin": float(issues.margin[k]),
            "decided": decided.get(space.ids[row["number"]]),
        }
    told: dict[str, Any] = {"total": len(chosen), "n_fair": int((scored.fair & (scored.codes >= 0)).sum())}
    return told | {"items": rows, "state": _state(space.labels)} | ({"opening": True} if opening else {})


def nearest(space: Workspace, n: int | None, number: int, query: QueryParams) -> dict[str, Any]:
    """Return the most similar items that have the label of an item, and those that have the class `other`."""
    items = _items(space)
    check_number(space, number)
    other = number_or(query, "other", 0)
    space.cut(n).check_class(other)
    with space.search_lock:
        hits = items.index.similar(number, _LOOKED_AT, by="words" if items.index.by == "both" else None)
    near = np.array([space.numbers[hit.id] for hit in hits], np.int64)
    near = near[near != number]
    some = [near[items.codes[near] == code][:_NEAREST].tolist() for code in (int(items.codes[number]), other)]
    return {"nearest": [rows_of(space, n, one)[0] for one in some]}
