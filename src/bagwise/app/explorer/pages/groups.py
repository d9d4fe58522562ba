"""Words and groups: the hierarchy, groups of a cut, words by their names, patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bagwise.app.explorer.python_lines import group_lines
from bagwise.app.explorer.requests import (
    MOST_ROWS,
    answer_json,
    answer_text,
    as_json,
    locked,
    maybe_number,
    maybe_value,
    needed_number,
    number_or,
    safe,
    size_of,
)
from bagwise.app.explorer.workspace import Cut, Workspace
from bagwise.app.model.groups import word_shares
from bagwise.app.report.explained import fades
from bagwise.display.icicle import TreeRow
from bagwise.display.pictures import mosaic
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError
from bagwise.merging.sizes import path_sizes

__all__ = ["GroupQuery", "group", "groups", "hierarchy", "hierarchy_text", "joined", "python", "routes", "shown_group"]
__all__ += ["words"]

SORTS = ("decides", "size", "coherence", "suspicious", "cost", "number")
_SHOWN_WORDS = 12
_SHOWN_CLASSES = 3
_MOST_FOUND = 50
_MOST_ROW = 2000  # groups of the lowest row of the hierarchy above the words
_LONGEST_NUMBER = 10  # characters
_PATCHES_ACROSS, _PATCH_SIDE = 6, 40
_REGIONS_ACROSS, _REGION_SIDE = 4, 62


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""
    n = size_of

    def patches(request: Request) -> Response:
        cut = space.cut(n(request.query_params))
        with space.picture_lock:
            pictures = cut.patches.get(int(request.path_params["number"]))
        if not pictures:
            return answer_json({"error": "This group has no patches."}, 404)
        side, across = (_REGION_SIDE, _REGIONS_ACROSS) if fades(cut.model) else (_PATCH_SIDE, _PATCHES_ACROSS)
        whole = len(pictures) - len(pictures) % across  # no row with one or two patches
        return Response(mosaic(pictures[: whole or None], side, columns=across), media_type="image/png")

    return [
        Route("/api/groups", locked(space, lambda q, _: groups(space, n(q), _query(q)))),
        Route("/api/groups/{number:int}", locked(space, lambda q, p: group(space, n(q), p["number"], _balance(q)))),
        Route("/api/groups/{number:int}/patches", safe(patches)),
        Route("/api/words", locked(space, lambda q, _: words(space, n(q), q.get("find", "")))),
        Route(
            "/api/joined",
            locked(space, lambda q, _: joined(space, needed_number(q, "first"), needed_number(q, "second"))),
        ),
        Route("/api/python/groups", locked(space, lambda q, _: {"lines": python(space, q)})),
        Route("/api/hierarchy", safe(lambda request: answer_text(hierarchy_text(space)))),
    ]


def python(space: Workspace, query: QueryParams) -> str:
    """Return the Python lines of the page."""
    asked, number, cut = _query(query), maybe_number(query, "group"), space.cut(size_of(query))
    if asked.label is not None:
        cut.check_class(asked.label)
    if number is not None:
        cut.check_group(number)
    return group_lines(space, size_of(query), asked, number)


def hierarchy_text(space: Workspace) -> str:
    """Return the hierarchy as JSON, which is the same in all pages."""
    return space.once("hierarchy", lambda: as_json(hierarchy(space)))


def _query(query: QueryParams) -> GroupQuery:
    return GroupQuery(
        find=query.get("find", ""),
        label=maybe_number(query, "label"),
        sort=query.get("sort") or "decides",
        balance=_balance(query),
        first=number_or(query, "first", 0),
        most=min(number_or(query, "most", 60), MOST_ROWS),
    )


def _balance(query: QueryParams) -> float | None:
    balance = maybe_value(query, "balance")
    if balance is not None and not 0 <= balance <= 1:
        raise BagwiseError(f"balance must be from 0 to 1, got {balance:g}.")
    return balance


@dataclass(frozen=True)
class GroupQuery:
    """Which groups to show.

    Attributes
    ----------
    find : str
        Only groups with a word that contains this text.
    label : int or None
        Only groups whose strongest class this is, by its number.
    sort : {"decides", "size", "coherence", "suspicious", "cost", "number"}
        By how much they decide, by their part of all occurrences (of measurements, of all columns), by number, or by
        what they are worth, see `bagwise.app.explorer.worth.GroupWorth`.
    balance : float or None
        Of frequency and lift in the order of words, see `bagwise.app.model.groups.typicality`; None: as in names.
    first, most : int
        Part of the list.
    """

    find: str = ""
    label: int | None = None
    sort: str = "decides"
    balance: float | None = None
    first: int = 0
    most: int = 60


def groups(space: Workspace, n: int | None, query: GroupQuery) -> dict[str, Any]:
    """Return groups of a cut: names, words, and the classes that they speak for."""
    cut = space.cut(n)
    model, weights = cut.model, cut.class_weights
    chosen = np.arange(model.n_groups)
    if query.find:
        matching = set(model.lookup[_matching(space, query.find)].tolist())
        chosen = chosen[[k in matching for k in chosen.tolist()]]
    if query.label is not None:
        cut.check_class(query.label)
        chosen = chosen[[]] if weights is None else chosen[weights.argmax(axis=0)[chosen] == query.label]
    told: dict[str, Any] = {}
    if query.sort == "cost":
        cut.worth.measure_costs()
        told["measured"] = cut.worth.progress
    if query.sort != "number":
        chosen = chosen[np.argsort(-_keys(cut, query.sort)[chosen], kind="stable")]
    shown = chosen[query.first : query.first + query.most].tolist()
    groups = [shown_group(cut, k, _SHOWN_WORDS, query.balance) for k in shown]
    if query.sort in ("coherence", "suspicious", "cost"):
        groups = [one | {"coherence": float(cut.worth.coherence[k])} for one, k in zip(groups, shown, strict=True)]
        groups = [one | {"cost": cut.worth.cost(k)} for one, k in zip(groups, shown, strict=True)]
    return told | {"n_groups": model.n_groups, "total": len(chosen), "groups": groups}


def _keys(cut: Cut, sort: str) -> NDArray[np.float64]:
    """Return what groups are sorted by, the largest first."""
    if sort == "decides":
        return cut.deciding
    if sort == "size":
        return cut.shares
    if sort == "coherence":
        return -cut.worth.coherence  # the least first
    if sort == "suspicious":
        return cut.worth.suspicious
    if sort == "cost":
        costs = [cut.worth.cost(k) for k in range(cut.model.n_groups)]
        return np.array([-np.inf if cost is None else cost for cost in costs])
    raise BagwiseError(f"Groups are sorted by {', '.join(SORTS)}, not by {sort!r:.40}.")


def group(space: Workspace, n: int | None, number: int, balance: float | None = None) -> dict[str, Any]:
    """Return one group with all of its words."""
    cut = space.cut(n)
    cut.check_group(number)
    return shown_group(cut, number, None, balance)


def shown_group(cut: Cut, number: int, most: int | None, balance: float | None = None) -> dict[str, Any]:
    """Return one group with its first words, None for all of them."""
    members, weights = cut.words(number, balance), cut.class_weights
    classes: list[dict[str, Any]] = []
    if weights is not None:
        of_group = weights[:, number]  # first the class that the group speaks for, then by how far scores move
        strongest = np.lexsort((-np.abs(of_group), np.arange(len(of_group)) != of_group.argmax()))[:_SHOWN_CLASSES]
        classes = [{"name": clean(cut.model.classes[c]), "weight": float(of_group[c])} for c in strongest]
    return {
        "number": number,
        "name": clean(cut.title(number)),
        "n_words": len(members),
        "locked": number in cut.locked,
        "given": number in cut.model.given_names,
        "share": float(cut.shares[number]),
        "classes": classes,
        "has_patches": bool(cut.items is not None and cut.items.has_samples and number in cut.shown_first),
        "words": [
            {"word": int(k), "name": _word_name(cut, int(k)), "total": _word_total(cut, k)}
            for k in members[:most].tolist()
        ],
    }


def _word_name(cut: Cut, word: int) -> str:
    names = cut.model.word_names
    return f"word {word}" if names is None else clean(names[word])


def _word_total(cut: Cut, word: int) -> float | None:
    """Return how often a word occurs; None if that is not known, and for columns of measurements."""
    totals = cut.model.word_totals
    return None if totals is None or cut.model.column_shift is not None else float(totals[word])


def _matching(space: Workspace, text: str) -> NDArray[np.int64]:
    """Return the words whose names contain a text, whatever the case."""
    wanted = text.casefold()
    if space.model.word_names is None:
        number = int(text) if text.isdecimal() and len(text) < _LONGEST_NUMBER else space.model.hierarchy.n_words
        return np.array([number] if number < space.model.hierarchy.n_words else [], np.int64)
    return np.array([k for k, name in enumerate(space.folded_names) if wanted in name], dtype=np.int64)


def words(space: Workspace, n: int | None, find: str) -> dict[str, Any]:
    """Find words by a part of their name; those that begin with it and are frequent come first."""
    cut, numbers = space.cut(n), _matching(space, find)
    names = [_word_name(cut, k) for k in numbers.tolist()]
    begins = np.array([not name.casefold().startswith(find.casefold()) for name in names], dtype=np.bool_)
    order = np.lexsort((-word_shares(cut.model)[0][numbers], begins))[:_MOST_FOUND].tolist()
    lookup = cut.model.lookup
    return {
        "total": len(numbers),
        "words": [
            {
                "word": int(numbers[k]),
                "name": names[k],
                "total": _word_total(cut, int(numbers[k])),
                "group": int(lookup[numbers[k]]),
                "group_name": clean(cut.title(int(lookup[numbers[k]]))),
            }
            for k in order
        ],
    }


def joined(space: Workspace, first: int, second: int) -> dict[str, Any]:
    """Return the number of groups at which two words join: at most the largest that the model can be cut at."""
    n_groups = space.model.hierarchy.joined_at(first, second)
    most = n_groups if n_groups is None else min(n_groups, space.sizes[1])
    return {"first": first, "second": second, "n_groups": most}


def hierarchy(space: Workspace) -> dict[str, Any]:
    """Return nested cuts of the hierarchy as rows of segments, and the words in their order below them.

    Each row has the number of groups, and for each group in the order of its words: its number, its part of what `of`
    says, its strongest class (-1: none) and its name.
    """
    least, most = space.sizes[0], min(space.sizes[1], _MOST_ROW)
    order = space.leaf_order
    sizes = {size for size in (1, *path_sizes(most), most) if least <= size <= most} or {least}
    shares, of = word_shares(space.model)
    rows = []
    for size in sorted(sizes):
        cut = space.new_cut(size)
        labels = space.model.hierarchy.cut(size)[order]
        strongest = None if cut.class_weights is None else cut.class_weights.argmax(axis=0)
        rows.append(TreeRow.of(labels, shares[order], strongest, cut.title).to_dict())
    names = space.model.word_names
    return {
        "rows": rows,
        "words": order.tolist(),
        "shares": [float(f"{share:.6g}") for share in shares[order].tolist()],
        "of": of,
        "names": None if names is None else [clean(names[k]) for k in order.tolist()],
        "classes": list(map(clean, space.model.classes)),
    }
