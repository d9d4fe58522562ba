"""Why an item gets its class, as pages show it, by the groups of a cut; and with other words or values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.app.explorer.workspace import Cut
from bagwise.app.modalities import MODALITIES
from bagwise.app.model import Model
from bagwise.app.model.changes import Change
from bagwise.app.model.explanation import Explanation
from bagwise.app.report.explained import fades, marked_text, spread_weights
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError
from bagwise.sources.items import Item

__all__ = ["ItemEdits", "changed_why", "explained", "heat_of", "places_of_words"]

_SHOWN_TERMS = 12
_MOST_TEXT = 100_000
_MOST_MARKED = 1_000_000  # characters of texts with marks; about 1 s and 50 MB per million
_HEAT_CELLS = 48  # along the longer side of an image
_GROUP_CELLS = 24  # the same, for the words of one group
_MOST_CHANGES = 200  # groups, words and values
_MOST_ADDED = 10_000  # characters


def places_of_words(why: Explanation, inside: NDArray[np.bool_]) -> Any:
    """Return the places of some words of an item, a mask over the vocabulary, see `Explanation.places`."""
    if why.content is None:
        return []
    return why.content.places(why.terms, np.where(inside[why.terms.words], why.terms.shares, 0.0))


def explained(
    cut: Cut,
    one: Item,
    label: int | None = None,
    than: int | None = None,
    *,
    changes: bool = True,
    named: Cut | None = None,
) -> dict[str, Any]:
    """Return the content of an item and why it gets its class: contributions of groups and words, and places.

    Contributions are by the groups of `named`, None for those of the model that answers: a fold has groups of its own,
    whose contributions are divided among their words, and words are summed by the groups that are shown.
    """
    model, told, modality = cut.model, dict[str, Any](), MODALITIES[cut.model.modality]
    if label is not None:
        cut.check_class(label)
    if model.n_groups not in model.heads:
        return {"text": _pieces(one.load(), [])} if modality.readable else {}
    why, named = model.explain(one), named or cut
    wanted = model.classes.index(why.predicted) if label is None else label
    than = None if than == wanted else than
    told["why"] = _why(named, why, wanted, than)
    shown = [term["group"] for term in told["why"]["groups"]]
    text = one.load() if modality.readable else ""
    located = len(text) <= _MOST_MARKED
    places: Any = why.places(wanted, than) if located else []
    group_of = {} if modality.pictured or not located else _groups_of_places(why, named, shown)
    if modality.readable:
        told["text"] = _pieces(text, places, group_of)
    elif modality.pictured:
        height, width = one.load().shape[:2]
        told |= {"width": width, "height": height}
        told["heat"] = heat_of(places, (height, width), _HEAT_CELLS, fades(model))
        told["heats"] = {
            group: heat_of(
                places_of_words(why, named.model.lookup == group), (height, width), _GROUP_CELLS, fades(model)
            )
            for group in shown
        }
    elif modality.rows:
        told["columns"] = [[clean(spot.name), spot.value, spot.weight, group_of.get((spot.name,))] for spot in places]
    if changes:
        change = why.changes()
        told["changes"] = None if change is None else _change(change)
        if modality.rows:
            told["moves"] = [
                {"name": clean(move.name), "value": move.value, "to": move.to, "becomes": clean(move.becomes)}
                for move in why.moves()
            ]
    return told


def _why(named: Cut, why: Explanation, wanted: int, than: int | None) -> dict[str, Any]:
    """Return the terms of a score, which add up to it."""
    words, lookup = why.words(wanted, than), named.model.lookup
    numbers, added = np.array([term.word for term in words], np.int64), [term.contribution for term in words]
    sums = np.bincount(lookup[numbers], added, named.model.n_groups)
    order = np.argsort(-np.abs(sums), kind="stable")
    shown, rest = order[:_SHOWN_TERMS], order[_SHOWN_TERMS:]
    return {
        "predicted": clean(why.predicted),
        "score": why.score,
        "runner_up": clean(why.runner_up),
        "runner_up_score": why.runner_up_score,
        "margin": why.margin,
        "of": wanted,
        "than": than,
        "of_score": why.score_of(wanted, than),
        "intercept": why.intercept_of(wanted, than),
        "groups": [
            {
                "group": group,
                "name": clean(named.title(group)),
                "contribution": float(sums[group]),
                "has_patches": bool(named.items is not None and named.items.has_samples and group in named.shown_first),
            }
            for group in shown.tolist()
            if sums[group]
        ],
        "rest": float(sums[rest].sum()),
        "n_rest": int((sums[rest] != 0).sum()),
        "words": [
            {
                "word": term.word,
                "name": f"word {term.word}" if term.name is None else clean(term.name),
                "contribution": term.contribution,
            }
            for term in words[:_SHOWN_TERMS]
        ],
    }


def _groups_of_places(why: Explanation, named: Cut, groups: Sequence[int]) -> dict[Any, int]:
    """Return the group of each place, spans of a text or columns of a row, that has words of one of some groups."""
    return {
        tuple(spot)[: -1 if len(spot) == 3 and isinstance(spot[0], int) else 1]: group
        for group in groups
        for spot in places_of_words(why, named.model.lookup == group)
        if spot.weight
    }


@dataclass(frozen=True)
class ItemEdits:
    """What of an item is taken to be different.

    Attributes
    ----------
    without : ndarray of int
        Words that it does not have; measurements go to their least value.
    added : str
        A text whose words are added.
    values : dict
        Values by the numbers of columns of a table.
    """

    without: NDArray[np.int64]
    added: str
    values: dict[int, float]

    @classmethod
    def of(cls, content: Mapping[str, Any], cut: Cut) -> ItemEdits:
        """Read and check a request: `groups`, `words` (their numbers), `added`, and `values` by names of columns."""
        model, d = cut.model, cut.model.hierarchy.n_words
        groups, words, added, values = (
            content.get(name, default)
            for name, default in (("groups", []), ("words", []), ("added", ""), ("values", {}))
        )
        for name, numbers, most in (("groups", groups, model.n_groups), ("words", words, d)):
            if not _whole_numbers(numbers, most):
                raise BagwiseError(f"{name} must be a list of numbers from 0 to {most - 1}, got {numbers!r:.60}.")
        if type(added) is not str or len(added) > _MOST_ADDED:
            raise BagwiseError(f"added must be a text of at most {_MOST_ADDED:,} characters, got {added!r:.60}.")
        if added and not MODALITIES[model.modality].readable:
            raise BagwiseError(f"Words are added to texts, but these are {model.modality}.")
        if not isinstance(values, dict) or len(values) > _MOST_CHANGES or not all(map(_is_finite, values.values())):
            raise BagwiseError(f"values must be finite numbers by names of columns, got {values!r:.60}.")
        names = {name: number for number, name in enumerate(model.word_names or [f"x{k}" for k in range(d)])}
        shown = {clean(name): number for name, number in names.items()}
        unknown = [name for name in values if name not in shown]
        if unknown or (values and not MODALITIES[model.modality].rows):
            raise BagwiseError(f"There is no column {(unknown or list(values))[0]!r:.60}.")
        left_out = np.isin(model.lookup, groups)
        left_out[words] = True
        return cls(np.flatnonzero(left_out), added, {shown[name]: float(value) for name, value in values.items()})


def _whole_numbers(numbers: Any, most: int) -> bool:
    sound = isinstance(numbers, list) and len(numbers) <= _MOST_CHANGES
    return sound and all(type(one) is int and 0 <= one < most for one in numbers)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and bool(np.isfinite(float(value)))


def changed_why(
    named: Cut, model: Model, one: Item, edits: ItemEdits, label: int | None, than: int | None
) -> dict[str, Any]:
    """Return why an item with edits would get its class: the model is asked again, so that the sum still adds up."""
    if model.n_groups not in model.heads:
        raise BagwiseError("There is no classifier that could be asked.")
    before = model.explain(one).histogram
    row = np.array(before.toarray() if sp.issparse(before) else before, np.float64)
    if edits.added:
        row += model.histograms([edits.added]).toarray()
    d, n_cells = model.hierarchy.n_words, model.layout.n_cells
    row[0, model.layout.over_cells(edits.without, d)] = (
        0.0 if model.column_shift is None else np.tile(model.column_shift[edits.without], n_cells)
    )
    for column, value in edits.values.items():
        row[0, column] = value
    (why,) = model.explain(sp.csr_array(row) if sp.issparse(before) else row)
    wanted = model.classes.index(why.predicted) if label is None else label
    return {"why": _why(named, why, wanted, None if than == wanted else than)}


def _change(change: Change) -> dict[str, Any]:
    """Return the words without which an item gets another class."""
    return {
        "becomes": clean(change.becomes),
        "words": [clean(one.name) for one in change.removed[:_SHOWN_TERMS]],
        "n_words": len(change.removed),
    }


def _pieces(text: str, spans: Any, group_of: Mapping[Any, int] | None = None) -> list[list[Any]]:
    """Return a text in pieces with their marks and groups; very long texts are cut off."""
    whole = [span for span in spans if span.end <= _MOST_TEXT]
    pieces, start, groups = list[list[Any]](), 0, group_of or {}
    for piece, mark in marked_text(text[:_MOST_TEXT], whole):
        pieces.append([clean(piece), mark, groups.get((start, start + len(piece)))])
        start += len(piece)
    return pieces + ([["…", 0, None]] if len(text) > _MOST_TEXT else [])


def heat_of(patches: Any, shape: tuple[int, int], cells: int, smooth: bool) -> list[list[float]]:
    """Return the weights of patches of an image, spread over the cells of a grid."""
    height, width = shape
    scale = cells / max(height, width)
    sides = max(round(height * scale), 1), max(round(width * scale), 1)
    heat = spread_weights(*sides, patches, scale, smooth=smooth)
    return [[float(f"{cell:.4g}") for cell in row] for row in heat.tolist()]
