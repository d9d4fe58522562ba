"""Items: a list with filters, and one item with why it gets its class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bagwise.app.explorer.comparison import ModelComparison, compare
from bagwise.app.explorer.explaining import ItemEdits, changed_why, explained
from bagwise.app.explorer.items import Items
from bagwise.app.explorer.python_lines import item_lines, items_lines
from bagwise.app.explorer.requests import (
    MOST_ROWS,
    answer_json,
    maybe_number,
    maybe_value,
    number_or,
    posting,
    reading,
    safe,
    size_of,
)
from bagwise.app.explorer.workspace import Cut, Workspace
from bagwise.app.modalities import MODALITIES
from bagwise.app.model.groups import names_differ
from bagwise.app.training.seen import SeenItems
from bagwise.display.pictures import photograph
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError
from bagwise.sources.items import ItemError
from bagwise.sources.media import in_color

__all__ = ["ItemQuery", "check_number", "excerpt", "explains", "item", "items", "problem_of", "python", "routes"]
__all__ += ["rows_of", "what_if"]

_SIDES = (160, 640)  # of pictures, in pixels
_EXCERPT = 300
SORTS = ("number", "margin", "-margin", "score", "id", "certainty", "-certainty")


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""
    n = size_of

    def picture(request: Request) -> Response:
        side = number_or(request.query_params, "side", _SIDES[0])
        if side not in _SIDES:
            raise BagwiseError(f"Pictures have a side of {' or '.join(map(str, _SIDES))} pixels, not of {side}.")
        number = int(request.path_params["number"])
        if space.items is None or not MODALITIES[space.model.modality].pictured or number >= len(space.items):
            return answer_json({"error": f"There is no picture of item {number}."}, 404)
        content = in_color(space.items.item(number)).load(side)
        return Response(photograph(content, side), media_type="image/jpeg")

    return [
        Route("/api/items", reading(lambda q, _: items(space, n(q), _query(q)))),
        Route(
            "/api/items/{number:int}",
            reading(lambda q, p: item(space, n(q), p["number"], maybe_number(q, "of"), _than(q))),
        ),
        Route("/api/items/{number:int}/picture", safe(picture)),
        Route(
            "/api/items/{number:int}/what-if",
            posting(lambda q, p, content: what_if(space, n(q), p["number"], q, content)),
            methods=["POST"],
        ),
        Route("/api/python/items", reading(lambda q, _: {"lines": python(space, q)})),
    ]


def _query(query: QueryParams) -> ItemQuery:
    return ItemQuery(
        label=maybe_number(query, "label"),
        predicted=maybe_number(query, "predicted"),
        cluster=maybe_number(query, "cluster"),
        right=query.get("right", ""),
        seen=query.get("seen", ""),
        group=maybe_number(query, "group"),
        selection=query.get("selection", ""),
        at_least=maybe_value(query, "at_least"),
        at_most=maybe_value(query, "at_most"),
        which=query.get("which", ""),
        second=maybe_number(query, "second"),
        m=maybe_number(query, "m"),
        against=query.get("against", ""),
        find=query.get("find", ""),
        sort=query.get("sort") or "number",
        first=number_or(query, "first", 0),
        most=min(number_or(query, "most", 60), MOST_ROWS),
    )


def _than(query: QueryParams) -> int | str:
    """Return the class that another one is compared with, "none", or "" if nothing was said."""
    if query.get("than", "") in ("", "none"):
        return query.get("than", "")
    return number_or(query, "than", 0)


def python(space: Workspace, query: QueryParams) -> str:
    """Return the Python lines of the page."""
    n, asked, number = size_of(query), _query(query), maybe_number(query, "item")
    cut = space.cut(n)
    if space.items is None:
        raise BagwiseError("There are no items.")
    if number is not None:
        label, than = maybe_number(query, "of"), _than(query)
        check_number(space, number)
        for one in (label, than):
            if isinstance(one, int):
                cut.check_class(one)
        return item_lines(space, n, number, label, than)
    with cut.lock:
        _chosen(space, cut, space.items, asked)  # checks what is asked for
    return items_lines(space, n, asked, compare(space, n, asked.m, asked.against) if asked.compares else None)


def check_number(space: Workspace, number: int) -> None:
    """Raise an error if there is no item of this number."""
    if space.items is None or not 0 <= number < len(space.items):
        raise BagwiseError(f"There is no item {number}.")


@dataclass(frozen=True)
class ItemQuery:
    """Which items to show.

    Attributes
    ----------
    label, predicted : int or None
        Only items of this class, or predicted to be of it, by its number.
    cluster : int or None
        Only items of this cluster, by its number.
    right : {"", "right", "wrong"}
    seen : {"", "new", "training"}
        Only items that the model was learned from, or others.
    group : int or None
        Only items with a word of this group.
    selection : str
        Only items of a selection on the map, see `bagwise.app.explorer.pages.map.select`.
    at_least, at_most : float or None
        Only items whose answers are so certain, see `Cut.confidence`.
    which : str
        Only items by the answers of the model and of another one, see `bagwise.app.explorer.comparison.WHICH`.
    second : int or None
        Only items for which the other one predicts this class, by its number among the classes of both.
    m, against : int or None, str
        The other model, see `bagwise.app.explorer.comparison.compare`.
    find : str
        Only items whose id contains this text.
    sort : {"number", "margin", "-margin", "score", "id", "certainty", "-certainty"}
        "certainty": of their clusters.
    first, most : int
        Part of the list.
    """

    label: int | None = None
    predicted: int | None = None
    cluster: int | None = None
    right: str = ""
    seen: str = ""
    group: int | None = None
    selection: str = ""
    at_least: float | None = None
    at_most: float | None = None
    which: str = ""
    second: int | None = None
    m: int | None = None
    against: str = ""
    find: str = ""
    sort: str = "number"
    first: int = 0
    most: int = 60

    @property
    def compares(self) -> bool:
        """Whether another model is asked for."""
        return bool(self.which or self.against or self.second is not None or self.m is not None)


def items(space: Workspace, n: int | None, query: ItemQuery) -> dict[str, Any]:
    """Return a part of the items, filtered and sorted; without texts while their source is being opened."""
    cut, all_items = space.cut(n), space.items
    if all_items is None:
        raise BagwiseError("There are no items: start bagwise explore with their location, or with an index.")
    with cut.lock:
        numbers = _chosen(space, cut, all_items, query)
        shown = numbers[query.first : query.first + query.most].tolist()
        rows = [_row(space, cut, number) for number in shown]
        if query.compares:
            other = compare(space, n, query.m, query.against)
            rows = [row | _second(other, row["number"]) for row in rows]
    told: dict[str, Any] = {"total": len(numbers)}
    rows, opening = _with_texts(all_items, cut, rows)
    return told | {"items": rows} | ({"opening": True} if opening else {})


def rows_of(space: Workspace, n: int | None, numbers: Sequence[int]) -> tuple[list[dict[str, Any]], bool]:
    """Return some items, and whether their source is being opened, so that there are no texts yet."""
    cut, all_items = space.cut(n), space.items
    assert all_items is not None
    with cut.lock:
        rows = [_row(space, cut, number) for number in numbers]
    return _with_texts(all_items, cut, rows)


def _with_texts(all_items: Items, cut: Cut, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
    if not MODALITIES[cut.model.modality].readable:
        return rows, False
    if not all_items.ready:
        return [row | {"opening": True} for row in rows], True
    return [row | excerpt(all_items, row["number"]) for row in rows], False


def _chosen(space: Workspace, cut: Cut, all_items: Items, query: ItemQuery) -> NDArray[np.int64]:
    chosen = np.ones(len(all_items), dtype=np.bool_)
    for codes, wanted in (
        (all_items.codes, query.label),
        (None if query.predicted is None else cut.answers.predicted, query.predicted),
    ):
        if wanted is not None:
            cut.check_class(wanted)
            chosen &= codes == wanted
    if query.cluster is not None:
        if space.clusters is None or not query.cluster < len(space.clusters):
            raise BagwiseError(f"There is no cluster {query.cluster}.")
        chosen &= space.clusters.labels == query.cluster
    if query.right:
        if query.right not in ("right", "wrong"):
            raise BagwiseError(f"Items are right or wrong, not {query.right!r}.")
        agree = cut.answers.predicted == all_items.codes
        chosen &= (all_items.codes >= 0) & (agree if query.right == "right" else ~agree)
    if query.seen:
        if query.seen not in ("new", "training"):
            raise BagwiseError(f"Items are new or training, not {query.seen!r}.")
        known = np.zeros(len(all_items), np.bool_) if all_items.seen is None else all_items.seen.seen
        chosen &= known if query.seen == "training" else ~known
    if query.group is not None:
        cut.check_group(query.group)
        assert cut.of_items is not None
        chosen &= cut.of_items.with_group(query.group)
    if query.selection:
        inside = np.zeros(len(all_items), dtype=np.bool_)
        inside[all_items.mapped.selected(query.selection)] = True
        chosen &= inside
    if query.at_least is not None:
        chosen &= cut.confidence >= query.at_least
    if query.at_most is not None:
        chosen &= cut.confidence <= query.at_most
    if query.compares:
        other = compare(space, cut.model.n_groups, query.m, query.against)
        chosen &= other.chosen(query.which)
        if query.second is not None:
            if not query.second < len(other.classes):
                raise BagwiseError(f"There is no class {query.second}: there are {len(other.classes)} from 0.")
            chosen &= other.answers[1] == query.second
    if query.find:
        part = query.find.casefold()
        chosen &= np.array([part in id for id in space.folded_ids], dtype=np.bool_)
    numbers = np.flatnonzero(chosen)
    if query.sort not in SORTS:
        raise BagwiseError(f"Items are sorted by {', '.join(SORTS)}, not by {query.sort!r}.")
    if query.sort == "id":
        numbers = numbers[np.argsort(space.id_ranks[numbers])]
    elif query.sort in ("certainty", "-certainty"):
        if space.clusters is None:
            raise BagwiseError("The items have no clusters, so that they cannot be sorted by their certainty.")
        certain = space.clusters.certainty[numbers]
        numbers = numbers[np.argsort(-certain if query.sort == "-certainty" else certain, kind="stable")]
    elif query.sort != "number":
        keys = cut.answers.score if query.sort == "score" else cut.answers.margin
        numbers = numbers[np.argsort(-keys[numbers] if query.sort == "-margin" else keys[numbers], kind="stable")]
    return numbers


def _row(space: Workspace, cut: Cut, number: int) -> dict[str, Any]:
    assert space.items is not None
    code, classes = int(space.items.codes[number]), cut.model.classes
    row: dict[str, Any] = {
        "number": number,
        "id": clean(space.ids[number]),
        "label": None if code < 0 else clean(classes[code]),
        "training": None if space.items.seen is None else bool(space.items.seen.seen[number]),
        "held_out": bool(space.items.held_out is not None and space.items.held_out[number]),
    }
    if space.clusters is not None:
        cluster = int(space.clusters.labels[number])
        name, certainty = (
            clean(space.clusters.name(cluster)) if cluster >= 0 else "",
            float(space.clusters.certainty[number]),
        )
        row["cluster"] = None if cluster < 0 else {"number": cluster, "name": name, "certainty": certainty}
    if cut.has_answers:
        answers = cut.answers
        row |= {
            "predicted": clean(classes[answers.predicted[number]]),
            "score": float(answers.score[number]),
            "runner_up": clean(classes[answers.runner_up[number]]),
            "answered_at": cut.answered_at,
            "margin": float(answers.margin[number]),
            "probability": float(cut.confidence[number]) if cut.confidence_name == "probability" else None,
            "right": None if code < 0 else bool(answers.predicted[number] == code),
        }
    return row


def _second(other: ModelComparison, number: int) -> dict[str, Any]:
    """Return the answer of the other model for an item."""
    return {"second": clean(other.classes[other.answers[1][number]]), "second_title": clean(other.second_title)}


def excerpt(items: Items, number: int) -> dict[str, str]:
    """Return the beginning of a text, or why it cannot be read."""
    try:
        text = " ".join(items.item(number).load()[: 4 * _EXCERPT].split())
    except BagwiseError as error:
        return problem_of(error)
    return {"excerpt": clean(text[:_EXCERPT])}


def problem_of(error: BagwiseError) -> dict[str, str]:
    """Return why an item cannot be read."""
    return {"problem": clean(error.reason if isinstance(error, ItemError) else str(error))}


def item(
    space: Workspace, n: int | None, number: int, label: int | None = None, than: int | str = ""
) -> dict[str, Any]:
    """Return one item with its content and why it gets its class.

    `label` is the class to explain, None the answer, and `than` another one from whose score its differs, "none" for
    the score itself; of a wrong answer it is the true class unless something else is asked for.
    """
    cut, items = space.cut(n), space.items
    check_number(space, number)
    assert items is not None
    with cut.lock:
        told = _row(space, cut, number) | {"protocol": clean(items.protocol)}
        fold = items.answered_by(cut.model, number) if cut.has_answers else None
    for one in (label, than):
        if isinstance(one, int):
            cut.check_class(one)
    if label is None and than == "" and told.get("right") is False:
        than = int(items.codes[number])
    shown = cut if fold is None else Cut(fold, None, names_differ(fold))
    told["explains"] = explains(cut, items.seen, number, shown)
    told["by_fold"] = fold is not None
    try:
        return told | explained(shown, items.item(number), label, than if isinstance(than, int) else None, named=cut)
    except BagwiseError as error:
        return told | problem_of(error)


def what_if(
    space: Workspace, n: int | None, number: int, query: QueryParams, content: dict[str, Any]
) -> dict[str, Any]:
    """Return why an item would get its class with other words or values, by the model that gave the answer."""
    cut, items, label, than = space.cut(n), space.items, maybe_number(query, "of"), _than(query)
    check_number(space, number)
    assert items is not None
    for one in (label, than):
        if isinstance(one, int):
            cut.check_class(one)
    with cut.lock:
        fold = items.answered_by(cut.model, number) if cut.has_answers else None
    edits = ItemEdits.of(content, cut)
    return changed_why(
        cut, fold or cut.model, items.item(number), edits, label, than if isinstance(than, int) else None
    )


def explains(cut: Cut, seen: SeenItems | None, number: int, shown: Cut | None = None) -> str:
    """Say which model explanations are of, and whether it was trained on an item."""
    n = cut.model.n_groups if shown is None else shown.model.n_groups
    at = f"{n:,} group{'' if n == 1 else 's'}"
    if shown is not None and shown is not cut:
        return f"the held-out answer, by a model that has not seen this item, at {at}"
    known = "; whether it was trained on this item is not known"
    if seen is not None and seen.seen[number]:
        known = ", which was trained on this item"
    elif seen is not None and seen.new[number]:
        known = ", which has not seen this item"
    return f"the final model at {at}{known}"
