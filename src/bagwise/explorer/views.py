"""What the pages of the explorer show, as JSON values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError
from bagwise.explorer.items import Items
from bagwise.explorer.workspace import Cut, Workspace
from bagwise.merging.sizes import path_sizes
from bagwise.report.explained import marked_text, spread_weights
from bagwise.report.texts import clean
from bagwise.sources.collection import Collection
from bagwise.sources.items import Item, ItemError
from bagwise.training.seen import SeenItems

if TYPE_CHECKING:
    from bagwise.training.item_index import Found

__all__ = [
    "GroupQuery",
    "ItemQuery",
    "group",
    "groups",
    "hierarchy",
    "item",
    "items",
    "joined",
    "overview",
    "search",
    "similar",
    "words",
]

_SHOWN_WORDS = 12
_SHOWN_CLASSES = 3
_SHOWN_TERMS = 12
_EXCERPT = 300
_MOST_TEXT = 100_000
_MOST_MARKED = 1_000_000  # characters of texts with marks; about 1 s and 50 MB per million
_MOST_FOUND = 50
_MOST_ROW = 2000  # groups of the lowest row of the hierarchy above the words
_LONGEST_NUMBER = 10  # characters
_HEAT_CELLS = 48  # along the longer side of an image
SORTS = ("number", "margin", "-margin", "score", "id")


def overview(space: Workspace, n: int | None) -> dict[str, Any]:
    """Return the facts of the model, its errors along the path of merging, and the confusion matrix of the items."""
    cut, model = space.cut(n), space.model
    path = model.path
    least, most = space.sizes
    return {
        "title": clean(space.title),
        "modality": model.modality,
        "n_words": model.hierarchy.n_words,
        "n_groups": cut.model.n_groups,
        "default_groups": model.n_groups,
        "least_groups": least,
        "most_groups": most,
        "classes": list(map(clean, model.classes)),
        "classifiers": list(model.heads),
        "facts": _facts(space),
        "path": None if path is None else {**path.to_dict(), "one_se": path.one_se},
        "items": None
        if space.items is None
        else {
            "n": len(space.items),
            "n_labelled": int((space.items.codes >= 0).sum()),
            "place": clean(space.items.place),
        },
        "error": cut.error,
        "answered_at": cut.answered_at,
        "held_out": _held_out(cut),
        "seen": None if space.items is None or space.items.seen is None else _seen(cut, space.items.seen),
        "confusion": None if cut.confusion is None else cut.confusion.tolist(),
        "searchable": space.searchable,
    }


def _held_out(cut: Cut) -> dict[str, Any] | None:
    """Return how many items have answers of cross-validation, and the error of those."""
    if cut.items is None or cut.items.held_out is None or not cut.has_answers:
        return None
    chosen = cut.items.held_out
    return {"n": int(chosen.sum()), "error": cut.error_of(chosen), "protocol": clean(cut.items.protocol)}


def _seen(cut: Cut, seen: SeenItems) -> dict[str, Any]:
    """Return how many items the model was learned from, and the errors of those and of others."""
    new = ~seen.seen if seen.exact else seen.compared & ~seen.seen
    return {
        "n_seen": seen.n_seen,
        "n_new": int(new.sum()),
        "exact": seen.exact,
        "error_seen": cut.error_of(seen.seen),
        "error_new": cut.error_of(new),
    }


def _facts(space: Workspace) -> list[tuple[str, str]]:
    model, made = space.model, space.model.provenance
    facts = [("Modality", model.modality)]
    if "source" in made:
        facts.append(("Learned from", f"{made['source']}, {how_many(made.get('n_items', 0), model.modality)}"))
    facts.append(("Words", f"{model.hierarchy.n_words:,}"))
    reason = made.get("criterion_reason")
    facts.append(("Merged by", str(model.hierarchy.criterion) + (f" ({reason})" if reason else "")))
    facts += [("Descriptor", record.name) for record in model.descriptor_records]
    if model.heads:
        facts.append(("Classifiers", f"at {', '.join(map(str, model.heads))} groups"))
    if made.get("seconds"):
        facts.append(("Time of the fit", f"{sum(made['seconds'].values()):.1f} s"))
    if made.get("created"):
        facts.append(("Created", str(made["created"])))
    versions = made.get("versions", {})
    if versions:
        facts.append(("Versions", ", ".join(f"{name} {number}" for name, number in versions.items())))
    return [(name, clean(value)) for name, value in facts]


@dataclass(frozen=True)
class GroupQuery:
    """Which groups to show.

    Attributes
    ----------
    find : str
        Only groups with a word that contains this text.
    label : int or None
        Only groups whose strongest class this is, by its number.
    sort : {"decides", "size", "number"}
        By how much they decide, by the share of all occurrences, or by number.
    first, most : int
        Part of the list.
    """

    find: str = ""
    label: int | None = None
    sort: str = "decides"
    first: int = 0
    most: int = 60


def groups(space: Workspace, n: int | None, query: GroupQuery) -> dict[str, Any]:
    """Return groups of a cut: names, words, and the classes that they speak for."""
    cut = space.cut(n)
    model, weights = cut.model, cut.class_weights
    chosen = np.arange(model.n_groups)
    if query.find:
        found = set(np.atleast_2d(model.lookup)[:, _matching(space, query.find)].ravel().tolist())
        chosen = chosen[[k in found for k in chosen.tolist()]]
    if query.label is not None:
        _check_class(cut, query.label)
        chosen = chosen[[]] if weights is None else chosen[weights.argmax(axis=0)[chosen] == query.label]
    if query.sort == "decides":
        chosen = chosen[np.argsort(-cut.deciding[chosen], kind="stable")]
    elif query.sort == "size":
        chosen = chosen[np.argsort(-cut.occurrences[chosen], kind="stable")]
    elif query.sort != "number":
        raise BagwiseError(f"Groups are sorted by decides, size or number, not by {query.sort!r}.")
    shown = chosen[query.first : query.first + query.most].tolist()
    return {"n_groups": model.n_groups, "total": len(chosen), "groups": [_group(cut, k, _SHOWN_WORDS) for k in shown]}


def group(space: Workspace, n: int | None, number: int) -> dict[str, Any]:
    """Return one group with all of its words."""
    cut = space.cut(n)
    if not 0 <= number < cut.model.n_groups:
        raise BagwiseError(f"Groups are numbered from 0 to {cut.model.n_groups - 1}, got {number}.")
    return _group(cut, number, None)


def _group(cut: Cut, number: int, most: int | None) -> dict[str, Any]:
    members, weights, totals = cut.words(number), cut.class_weights, cut.word_totals
    classes: list[dict[str, Any]] = []
    if weights is not None:
        strongest = np.argsort(-np.abs(weights[:, number]), kind="stable")[:_SHOWN_CLASSES]
        classes = [{"name": clean(cut.model.classes[c]), "weight": float(weights[c, number])} for c in strongest]
    return {
        "number": number,
        "name": clean(cut.name(number)),
        "n_words": len(members),
        "share": float(cut.occurrences[number] / cut.total),
        "classes": classes,
        "has_patches": bool(cut.items is not None and cut.items.has_samples and number in cut.shown_first),
        "words": [
            {"word": int(k), "name": _word_name(cut, int(k)), "total": float(totals[k])}
            for k in members[:most].tolist()
        ],
    }


def _check_class(cut: Cut, number: int) -> None:
    if not 0 <= number < len(cut.model.classes):
        raise BagwiseError(f"There is no class {number}: there are {len(cut.model.classes)}, numbered from 0.")


def _word_name(cut: Cut, word: int) -> str:
    names = cut.model.word_names
    return f"word {word}" if names is None else clean(names[word])


def _matching(space: Workspace, text: str) -> NDArray[np.int64]:
    """Return the words whose names contain a text, whatever the case."""
    wanted = text.casefold()
    if space.model.word_names is None:
        number = int(text) if text.isdecimal() and len(text) < _LONGEST_NUMBER else space.model.hierarchy.n_words
        return np.array([number] if number < space.model.hierarchy.n_words else [], np.int64)
    return np.array([k for k, name in enumerate(space.folded_names) if wanted in name], dtype=np.int64)


def words(space: Workspace, n: int | None, find: str) -> dict[str, Any]:
    """Find words by a part of their name; those that begin with it and are frequent come first."""
    cut, found = space.cut(n), _matching(space, find)
    names = [_word_name(cut, k) for k in found.tolist()]
    begins = np.array([not name.casefold().startswith(find.casefold()) for name in names], dtype=np.bool_)
    order = np.lexsort((-cut.word_totals[found], begins))[:_MOST_FOUND].tolist()
    lookup = np.atleast_2d(cut.model.lookup)
    return {
        "total": len(found),
        "words": [
            {
                "word": int(found[k]),
                "name": names[k],
                "total": float(cut.word_totals[found[k]]),
                "group": int(lookup[0, found[k]]),
                "group_name": clean(cut.name(int(lookup[0, found[k]]))),
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

    Each row has the number of groups, and for each group in the order of its words: its number, its part of all
    occurrences, its strongest class (-1: none) and its name.
    """
    least, most = space.sizes[0], min(space.sizes[1], _MOST_ROW)
    order = space.leaf_order
    sizes = {size for size in (1, *path_sizes(most), most) if least <= size <= most} or {least}
    if space.model.tables is not None:  # groups of tables are no cut
        sizes.discard(space.model.n_groups)
    rows = []
    for size in sorted(sizes):
        cut = space.new_cut(size)
        labels = space.model.hierarchy.cut(size)[order]
        starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
        shares = np.add.reduceat(cut.word_totals[order], starts) / cut.total
        numbers = labels[starts]
        strongest = np.full(size, -1) if cut.class_weights is None else cut.class_weights.argmax(axis=0)
        rows.append(
            {
                "n_groups": size,
                "groups": numbers.tolist(),
                "shares": [float(f"{share:.6g}") for share in shares.tolist()],
                "classes": strongest[numbers].tolist(),
                "names": [clean(cut.name(k)) for k in numbers.tolist()],
            }
        )
    totals = cut.word_totals[order] / cut.total
    names = space.model.word_names
    return {
        "rows": rows,
        "words": order.tolist(),
        "shares": [float(f"{share:.6g}") for share in totals.tolist()],
        "names": None if names is None else [clean(names[k]) for k in order.tolist()],
        "classes": list(map(clean, space.model.classes)),
    }


@dataclass(frozen=True)
class ItemQuery:
    """Which items to show.

    Attributes
    ----------
    label, predicted : int or None
        Only items of this class, or predicted to be of it, by its number.
    right : {"", "right", "wrong"}
    seen : {"", "new", "training"}
        Only items that the model was learned from, or others.
    group : int or None
        Only items with a word of this group.
    find : str
        Only items whose id contains this text.
    sort : {"number", "margin", "-margin", "score", "id"}
    first, most : int
        Part of the list.
    """

    label: int | None = None
    predicted: int | None = None
    right: str = ""
    seen: str = ""
    group: int | None = None
    find: str = ""
    sort: str = "number"
    first: int = 0
    most: int = 60


def items(space: Workspace, n: int | None, query: ItemQuery) -> dict[str, Any]:
    """Return a part of the items, filtered and sorted; without texts while their source is being opened."""
    cut, held = space.cut(n), space.items
    if held is None:
        raise BagwiseError("There are no items: start bagwise explore with their location, or with an index.")
    with cut.lock:
        numbers = _chosen(space, cut, held, query)
        shown = numbers[query.first : query.first + query.most].tolist()
        rows = [_row(space, cut, number) for number in shown]
    told = {"total": len(numbers), "items": rows}
    if cut.model.modality != "texts":
        return told
    if not held.ready:
        return told | {"opening": True, "items": [row | {"opening": True} for row in rows]}
    return told | {"items": [row | _excerpt(held, row["number"]) for row in rows]}


def _chosen(space: Workspace, cut: Cut, held: Items, query: ItemQuery) -> NDArray[np.int64]:
    chosen = np.ones(len(held), dtype=np.bool_)
    for codes, wanted in (
        (held.codes, query.label),
        (None if query.predicted is None else cut.answers.predicted, query.predicted),
    ):
        if wanted is not None:
            _check_class(cut, wanted)
            chosen &= codes == wanted
    if query.right:
        if query.right not in ("right", "wrong"):
            raise BagwiseError(f"Items are right or wrong, not {query.right!r}.")
        agree = cut.answers.predicted == held.codes
        chosen &= (held.codes >= 0) & (agree if query.right == "right" else ~agree)
    if query.seen:
        if query.seen not in ("new", "training"):
            raise BagwiseError(f"Items are new or training, not {query.seen!r}.")
        known = np.zeros(len(held), np.bool_) if held.seen is None else held.seen.seen
        chosen &= known if query.seen == "training" else ~known
    if query.group is not None:
        if not 0 <= query.group < cut.model.n_groups:
            raise BagwiseError(f"Groups are numbered from 0 to {cut.model.n_groups - 1}, got {query.group}.")
        assert cut.of_items is not None
        chosen &= cut.of_items.with_group(query.group)
    if query.find:
        part = query.find.casefold()
        chosen &= np.array([part in id for id in space.folded_ids], dtype=np.bool_)
    numbers = np.flatnonzero(chosen)
    if query.sort not in SORTS:
        raise BagwiseError(f"Items are sorted by {', '.join(SORTS)}, not by {query.sort!r}.")
    if query.sort == "id":
        numbers = numbers[np.argsort(space.id_ranks[numbers])]
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
    if cut.has_answers:
        answers = cut.answers
        row |= {
            "predicted": clean(classes[answers.predicted[number]]),
            "score": float(answers.score[number]),
            "runner_up": clean(classes[answers.runner_up[number]]),
            "answered_at": cut.answered_at,
            "margin": float(answers.margin[number]),
            "right": None if code < 0 else bool(answers.predicted[number] == code),
        }
    return row


def _excerpt(items: Items, number: int) -> dict[str, str]:
    """Return the beginning of a text, or why it cannot be read."""
    try:
        text = " ".join(items.item(number).load()[: 4 * _EXCERPT].split())
    except BagwiseError as error:
        return _problem(error)
    return {"excerpt": clean(text[:_EXCERPT])}


def _problem(error: BagwiseError) -> dict[str, str]:
    return {"problem": clean(error.reason if isinstance(error, ItemError) else str(error))}


def item(space: Workspace, n: int | None, number: int, label: int | None = None) -> dict[str, Any]:
    """Return one item with its content and why it gets its class; `label` is the class to explain, None the answer."""
    cut = space.cut(n)
    if space.items is None or not 0 <= number < len(space.items):
        raise BagwiseError(f"There is no item {number}.")
    with cut.lock:
        told = _row(space, cut, number) | {"protocol": clean(space.items.protocol)}
    if label is not None:
        _check_class(cut, label)
    try:
        return told | explained(cut, space.items.item(number), label)
    except BagwiseError as error:
        return told | _problem(error)


def explained(cut: Cut, one: Item, label: int | None = None) -> dict[str, Any]:
    """Return the content of an item and why it gets its class: contributions of groups and words, and places."""
    model, told = cut.model, dict[str, Any]()
    if label is not None:
        _check_class(cut, label)
    if model.n_groups not in model.heads:
        return {"text": _pieces(one.load(), [])} if model.modality == "texts" else {}
    why = model.explain(one)
    wanted = model.classes.index(why.predicted) if label is None else label
    terms = why.groups(wanted)
    text = one.load() if model.modality == "texts" else ""
    places: Any = why.places(wanted) if len(text) <= _MOST_MARKED else []
    if model.modality == "texts":
        told["text"] = _pieces(text, places)
    elif model.modality == "images":
        told |= _heat(places, one.load().shape)
    elif model.modality == "table":
        told["columns"] = [[clean(place.name), place.value, place.weight] for place in places]
    told["why"] = {
        "predicted": clean(why.predicted),
        "score": why.score,
        "runner_up": clean(why.runner_up),
        "runner_up_score": why.runner_up_score,
        "margin": why.margin,
        "of": wanted,
        "of_score": why.score_of(wanted),
        "intercept": why.intercept_of(wanted),
        "groups": [
            {"group": term.group, "name": clean(term.name), "contribution": term.contribution}
            for term in terms[:_SHOWN_TERMS]
        ],
        "rest": float(sum(term.contribution for term in terms[_SHOWN_TERMS:])),
        "n_rest": max(len(terms) - _SHOWN_TERMS, 0),
        "words": [
            {"name": f"word {term.word}" if term.name is None else clean(term.name), "contribution": term.contribution}
            for term in why.words(wanted)[:_SHOWN_TERMS]
        ],
    }
    return told


def _pieces(text: str, spans: Any) -> list[list[Any]]:
    """Return a text in pieces with their marks; very long texts are cut off."""
    held = [span for span in spans if span.end <= _MOST_TEXT]
    pieces = marked_text(text[:_MOST_TEXT], held)
    return [[clean(piece), mark] for piece, mark in [*pieces, *([("…", 0)] if len(text) > _MOST_TEXT else [])]]


def _heat(patches: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the weights of patches, spread over the cells of a grid."""
    height, width = shape[:2]
    scale = _HEAT_CELLS / max(height, width)
    heat = spread_weights(max(round(height * scale), 1), max(round(width * scale), 1), patches, scale)
    return {"width": width, "height": height, "heat": [[float(f"{cell:.4g}") for cell in row] for row in heat.tolist()]}


def similar(space: Workspace, number: int, k: int, by: str | None = None) -> list[dict[str, Any]]:
    """Return the items that are most similar to one of them, which is left out."""
    if space.items is None or not 0 <= number < len(space.items):
        raise BagwiseError(f"There is no item {number}.")
    with space.lock:
        hits = space.items.similar(number, k + 1, by or None)
    return [hit for hit in _hits(space, hits) if hit["number"] != number][:k]


def search(space: Workspace, n: int | None, query: Item, k: int, by: str | None = None) -> dict[str, Any]:
    """Return the items that are most similar to a new item, and what the model says of it."""
    histogram = space.model.histograms(Collection([query], space.model.modality, query.id))
    if space.items is None or not space.searchable:
        raise BagwiseError("There are no items to search: start bagwise explore with their location, or an index.")
    if not abs(histogram).sum() > 0:
        return {"hits": [], "known": False}
    with space.lock:  # the index may be built now
        index = space.items.index
    assert index is not None
    hits = _hits(space, index.search(histogram, k, by=by or None)[0])
    return {"hits": hits, "known": True} | explained(space.cut(n), query)


def _hits(space: Workspace, hits: list[Found]) -> list[dict[str, Any]]:
    return [
        {
            "number": space.numbers[hit.id],
            "id": clean(hit.id),
            "label": None if hit.label is None else clean(hit.label),
            "score": hit.score,
        }
        for hit in hits
    ]
