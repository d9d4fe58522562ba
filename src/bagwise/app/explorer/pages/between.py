"""Between two classes: what tells one from the other, the items between them, and answers without some groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute, Route

from bagwise.app.explorer.explaining import heat_of, places_of_words
from bagwise.app.explorer.items import Items
from bagwise.app.explorer.pages.groups import shown_group
from bagwise.app.explorer.pages.items import problem_of, rows_of
from bagwise.app.explorer.python_lines import between_lines
from bagwise.app.explorer.requests import needed_number, numbers_of, reading, size_of
from bagwise.app.explorer.workspace import Cut, Workspace
from bagwise.app.index.item_scores import ItemScores
from bagwise.app.modalities import MODALITIES
from bagwise.app.report.explained import fades
from bagwise.app.training.item_answers import Measured
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError

__all__ = ["between", "python", "routes"]

_SHOWN_GROUPS, _SHOWN_WORDS = 24, 8
_MOST_WRONG, _MOST_RIGHT = 12, 6  # items of each class that are shown
_MOST_ITEMS = 2 * (_MOST_WRONG + _MOST_RIGHT)
_HEAT_CELLS = 24  # along the longer side of an image
_QUOTED, _BEFORE = 240, 60  # characters of a text that are shown with marks, and of those before the first mark


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""
    return [
        Route("/api/between", reading(lambda q, _: between(space, size_of(q), *_asked(q)))),
        Route("/api/between/places", reading(lambda q, _: places(space, q))),
        Route("/api/python/between", reading(lambda q, _: {"lines": python(space, q)})),
    ]


def _asked(query: QueryParams) -> tuple[int, int, list[int]]:
    """Return the two classes, and the groups that are left out."""
    return needed_number(query, "first"), needed_number(query, "second"), numbers_of(query, "without")


def python(space: Workspace, query: QueryParams) -> str:
    """Return the Python lines of the page."""
    first, second, without = _asked(query)
    cut, _ = _checked(space, size_of(query), first, second, without)
    return between_lines(space, cut.model.n_groups, first, second, without)


def _checked(space: Workspace, n: int | None, first: int, second: int, without: Sequence[int]) -> tuple[Cut, Items]:
    cut = space.cut(n)
    for number in (first, second):
        cut.check_class(number)
    for number in without:
        cut.check_group(number)
    if first == second:
        raise BagwiseError(f"Two different classes are needed, got {cut.model.classes[first]!r} twice.")
    if space.items is None:
        raise BagwiseError("There are no items: start bagwise explore with their location, or with an index.")
    return cut, space.items


def between(space: Workspace, n: int | None, first: int, second: int, without: Sequence[int] = ()) -> dict[str, Any]:
    """Return what tells two classes apart, the items between them, and how answers change without some groups."""
    cut, items = _checked(space, n, first, second, without)
    with cut.lock:
        scored = items.scores(cut.model)
        words = np.flatnonzero(np.isin(cut.model.lookup, without)).tolist()
        changed = items.scores(cut.model, words) if words else scored
        numbers = np.flatnonzero(np.isin(scored.codes, (first, second)) & scored.fair)
        if not len(numbers):
            numbers = np.flatnonzero(np.isin(scored.codes, (first, second)))
        added = items.separate(cut.model, first, second, numbers)
        groups = _groups(cut, added, scored.codes[numbers] == first)
    shown = _items_between(scored, numbers, first, second)
    listed, opening = rows_of(space, n, [number for some in shown.values() for number in some])
    rows = {row["number"]: row | _answers(cut, scored, changed, row["number"]) for row in listed}
    predicted, after, codes = scored.top.predicted, changed.top.predicted, scored.codes
    wrong = [_n_wrong(codes, predicted, *pair) for pair in ((first, second), (second, first))]
    return {
        "classes": [clean(cut.model.classes[k]) for k in (first, second)],
        "n_items": [int((codes[numbers] == k).sum()) for k in (first, second)],
        "held_out": bool(scored.fair[numbers].all()),
        "n_wrong": wrong,
        "groups": groups,
        "items": [{"kind": kind, "rows": [rows[number] for number in some]} for kind, some in shown.items()],
        "before": _measured(scored.measured),
        "after": _measured(changed.measured),
        "without": list(without),
        "n_wrong_after": [_n_wrong(codes, after, *pair) for pair in ((first, second), (second, first))],
        "changed": {
            "n": int((after != predicted).sum()),
            "righted": int(((after == codes) & (predicted != codes)).sum()),
            "wronged": int(((after != codes) & (predicted == codes)).sum()),
        },
    } | ({"opening": True} if opening else {})


def _n_wrong(codes: NDArray[np.int64], predicted: NDArray[np.int64], label: int, answer: int) -> int:
    return int(((codes == label) & (predicted == answer)).sum())


def _measured(measured: Measured | None) -> dict[str, Any] | None:
    if measured is None:
        return None
    return {"error": measured.error, "standard_error": measured.standard_error, "protocol": measured.protocol}


def _groups(cut: Cut, added: NDArray[np.float64], of_first: NDArray[np.bool_]) -> dict[str, Any]:
    """Return how far each group moves the two classes apart: its mean in items of the one, less that in the other."""
    means = [
        added[chosen].mean(axis=0) if chosen.any() else np.zeros(added.shape[1]) for chosen in (of_first, ~of_first)
    ]
    apart = means[0] - means[1]
    order = np.argsort(-np.abs(apart), kind="stable").tolist()
    return {
        "distance": float(apart.sum()),
        "rest": float(apart[order[_SHOWN_GROUPS:]].sum()),
        "n_rest": max(len(order) - _SHOWN_GROUPS, 0),
        "rows": [
            shown_group(cut, k, _SHOWN_WORDS)
            | {
                "apart": float(apart[k]),
                "means": [float(mean[k]) for mean in means],
                "side": int(means[0][k] + means[1][k] < 0),  # the class that it speaks for
            }
            for k in order[:_SHOWN_GROUPS]
        ],
    }


def _items_between(scored: ItemScores, numbers: NDArray[np.int64], first: int, second: int) -> dict[str, list[int]]:
    """Return wrong items, the most certain first, and those right ones that are nearest to the other class."""
    codes, difference = scored.codes[numbers], scored.scores[numbers, first] - scored.scores[numbers, second]
    predicted = scored.top.predicted[numbers]
    shown = {}
    for name, label, answer, sign in (("first", first, second, 1), ("second", second, first, -1)):
        for kind, most, wanted in (("wrong", _MOST_WRONG, answer), ("right", _MOST_RIGHT, label)):
            chosen = np.flatnonzero((codes == label) & (predicted == wanted))
            order = np.argsort(sign * difference[chosen], kind="stable")
            shown[f"{kind}_{name}"] = numbers[chosen[order][:most]].tolist()
    return shown


def _answers(cut: Cut, scored: ItemScores, changed: ItemScores, number: int) -> dict[str, Any]:
    """Return the answer for an item, and that without the groups that are left out."""
    before, after = (clean(cut.model.classes[one.top.predicted[number]]) for one in (scored, changed))
    label = int(scored.codes[number])
    return {"predicted": before, "right": before == clean(cut.model.classes[label]), "after": after}


def places(space: Workspace, query: QueryParams) -> dict[str, Any]:
    """Return where the words of a group are in some items: marks in a text, weights over an image, columns."""
    cut, group, numbers = space.cut(size_of(query)), needed_number(query, "group"), numbers_of(query, "items")
    cut.check_group(group)
    if space.items is None or len(numbers) > _MOST_ITEMS or any(number >= len(space.items) for number in numbers):
        raise BagwiseError(f"items must be the numbers of at most {_MOST_ITEMS} items that are shown.")
    with cut.lock:
        return {"places": {number: _places(cut, number, group) for number in numbers}}


def _places(cut: Cut, number: int, group: int) -> dict[str, Any]:
    modality = MODALITIES[cut.model.modality]
    assert cut.items is not None
    try:
        why = cut.explain(number)
        spread = places_of_words(why, cut.model.lookup == group)
        if modality.readable:
            return {
                "text": _quoted(cut.items.item(number).load(), [(one.start, one.end) for one in spread if one.weight])
            }
        if modality.pictured:
            shape = cut.items.item(number).load().shape[:2]
            return {"heat": heat_of(spread, shape, _HEAT_CELLS, fades(cut.model))}
    except BagwiseError as error:
        return problem_of(error)
    return {"columns": [[clean(one.name), one.value] for one in spread if one.weight]}


def _quoted(text: str, spans: Sequence[tuple[int, int]]) -> list[list[Any]]:
    """Return the part of a text that begins with its first marks, in pieces with and without them."""
    start = max(min((begin for begin, _ in spans), default=0) - _BEFORE, 0)
    pieces: list[list[Any]] = [["…" if start else "", 0]]
    end = start
    for begin, stop in spans:
        if begin < end or stop > start + _QUOTED:
            continue
        pieces += [[text[end:begin], 0], [text[begin:stop], 1]]
        end = stop
    pieces.append([text[end : start + _QUOTED], 0])
    return [[clean(piece), mark] for piece, mark in pieces if piece]
