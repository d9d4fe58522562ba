"""Compare: two models on the same items, where they disagree, and how their groups differ."""

from __future__ import annotations

from typing import Any

import numpy as np
from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute, Route

from bagwise.app.explorer.comparison import ModelComparison, compare, others_of
from bagwise.app.explorer.python_lines import compare_lines
from bagwise.app.explorer.requests import maybe_number, reading, size_of
from bagwise.app.explorer.workspace import Cut, Workspace
from bagwise.app.training.comparing import overlap_of_groups
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError

__all__ = ["compared", "python", "routes"]

_MOST_CLASSES = 60  # of the table of answers
_SHOWN_PAIRS = 12
_SHOWN_GROUPS, _SHOWN_PARTS = 60, 4
_SHOWN_MOVED = 200


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""

    def answer(query: QueryParams, path: dict[str, Any]) -> Any:
        return compared(space, size_of(query), maybe_number(query, "m"), query.get("against", ""))

    return [
        Route("/api/compare", reading(answer)),
        Route("/api/python/compare", reading(lambda q, _: {"lines": python(space, q)})),
    ]


def python(space: Workspace, query: QueryParams) -> str:
    """Return the Python lines of the page."""
    return compare_lines(compare(space, size_of(query), maybe_number(query, "m"), query.get("against", "")))


def compared(space: Workspace, n: int | None, m: int | None = None, against: str = "") -> dict[str, Any]:
    """Return errors of both models, their answers against each other, and their groups against each other."""
    comparison = compare(space, n, m, against)
    with comparison.first.lock:
        return {
            "against": comparison.against,
            "choices": [{"name": name, "title": clean(one.title)} for name, one in others_of(space).items()],
            "first": _side(comparison.first, space, comparison.other.recounts),
            "second": _side(comparison.second, comparison.other.space, comparison.other.recounts)
            | {"title": clean(comparison.other.title)},
            "recounted": comparison.other.recounts,
            "items": _items(comparison),
            "groups": _groups(comparison),
        }


def _side(cut: Cut, space: Workspace, recounted: bool) -> dict[str, Any]:
    n = cut.model.n_groups
    return {
        "title": clean(space.title),
        "n_groups": n,
        "n_words": cut.model.hierarchy.n_words,
        "least_groups": space.sizes[0],
        "most_groups": space.sizes[1],
        "answered_at": (n if n in cut.model.heads else None) if recounted else cut.answered_at,
        "n_classes": len(cut.model.classes),
    }


def _items(comparison: ModelComparison) -> dict[str, Any] | None:
    """Return how both answer for the items."""
    items = comparison.space.items
    if items is None or not comparison.has_answers:
        return None
    crossed, paired = comparison.crossed, comparison.paired
    labelled = int((comparison.matched & (items.codes >= 0)).sum())
    apart = crossed.copy()
    np.fill_diagonal(apart, 0)
    most = np.argsort(-apart, axis=None, kind="stable")[:_SHOWN_PAIRS]
    return {
        "n_first": len(items),
        "n_matched": int(comparison.matched.sum()),
        "n_labelled": labelled,
        "n_disagree": int(apart.sum()),
        "n_counted": 0 if paired is None else paired.n_items,
        "known": all(one is None or one.seen is not None for one in (items, comparison.other.space.items)),
        "fair": bool((comparison.fair & comparison.matched & (items.codes >= 0)).any()),
        "paired": None if paired is None else paired.to_dict(),
        "classes": list(map(clean, comparison.classes)),
        "crossed": crossed.tolist() if len(comparison.classes) <= _MOST_CLASSES else None,
        "pairs": [[*map(int, divmod(k, len(comparison.classes))), int(apart.flat[k])] for k in most if apart.flat[k]],
    }


def _groups(comparison: ModelComparison) -> dict[str, Any]:
    """Return how the groups of both overlap; why not, if they cannot be compared."""
    try:
        overlap = overlap_of_groups(comparison.first.model, comparison.second.model)
    except BagwiseError as error:
        return {"problem": str(error)}
    first, second = comparison.first, comparison.second
    names = [_Names(first), _Names(second)]
    of_first = np.bincount(overlap.pairs[:, 0], minlength=first.model.n_groups)  # parts of each group
    side = int(
        comparison.against == "size" and second.model.n_groups < first.model.n_groups
    )  # larger groups are divided
    parts: dict[int, list[dict[str, Any]]] = {}
    totals = np.bincount(overlap.pairs[:, side], overlap.shares, (first, second)[side].model.n_groups)
    for pair, n_words, share in zip(
        overlap.pairs.tolist(), overlap.n_shared.tolist(), overlap.shares.tolist(), strict=True
    ):
        whole, part = pair[side], pair[1 - side]
        parts.setdefault(whole, []).append({"group": part, "n_words": n_words, "share": share / (totals[whole] or 1)})
    changed = [k for k in np.argsort(-totals, kind="stable").tolist() if len(parts.get(k, ())) > 1][:_SHOWN_GROUPS]
    moved = np.flatnonzero(overlap.moved)
    return {
        "n_common": len(overlap.words),
        "n_only_first": overlap.n_only_first,
        "n_only_second": overlap.n_only_second,
        "n_moved": len(moved),
        "adjusted_rand": overlap.adjusted_rand,
        "n_same": int((of_first == 1).sum()),
        "divided": side,
        "n_changed": sum(len(some) > 1 for some in parts.values()),
        "changed": [
            {
                "group": k,
                "name": names[side](k),
                "share": float(totals[k]),
                "n_parts": len(parts[k]),
                "parts": [part | {"name": names[1 - side](part["group"])} for part in parts[k][:_SHOWN_PARTS]],
            }
            for k in changed
        ],
        "moved": [
            {
                "word": int(overlap.words[k, 0]),
                "name": _word(first, int(overlap.words[k, 0])),
                "from": int(overlap.groups[k, 0]),
                "from_name": names[0](int(overlap.groups[k, 0])),
                "to": int(overlap.groups[k, 1]),
                "to_name": names[1](int(overlap.groups[k, 1])),
            }
            for k in moved[:_SHOWN_MOVED].tolist()
        ],
    }


def _word(cut: Cut, word: int) -> str:
    names = cut.model.word_names
    return f"word {word}" if names is None else clean(names[word])


class _Names(dict[int, str]):
    """Names of groups, each made once."""

    def __init__(self, cut: Cut) -> None:
        self.cut = cut

    def __call__(self, group: int) -> str:
        if group not in self:
            self[group] = clean(self.cut.title(group))
        return self[group]
