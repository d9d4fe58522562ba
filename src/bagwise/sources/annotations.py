"""Labels and splits from a file beside the items, and how its names are matched with theirs."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bagwise._io.storage import Url, as_place
from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError, argument, in_python
from bagwise.sources.limits import Limits
from bagwise.sources.roles import USUAL, assign_roles, shortened, split_name, taken_note, unused_note

if TYPE_CHECKING:
    from bagwise.sources.read_table import Table

__all__ = ["Annotations", "LabelFile", "annotations_of"]

# Names of columns with the names of items, in lower case; the first that is there is taken.
_USUAL_ID = ("id", "filename", "file_name", "file", "filepath", "path", "image", "image_id", "item", "name")


@dataclass(frozen=True)
class LabelFile:
    """A file of labels: its path, and the columns and the layout that its reader was told."""

    path: str | os.PathLike[str]
    label: str | None = None
    id: str | None = None
    split: str | None = None
    sep: str | None = None
    sheet: str | None = None
    header: bool | None = None


@dataclass(frozen=True)
class Annotations:
    """Labels and splits by id, each None where nothing was said about them, and what is to be told about them."""

    labels: Mapping[str, tuple[str, ...]] | None = None
    splits: Mapping[str, str | None] | None = None
    notes: tuple[str, ...] = ()


def annotations_of(annotations: Any, what: str, ids: Sequence[str], source: str, limits: Limits) -> Annotations:
    """Return the labels or splits (`what`) of a mapping with exactly these ids, or all that a file says about items."""
    if isinstance(annotations, Mapping):
        by_id = {str(id): _as_tuple(value) for id, value in annotations.items()}
        _check_ids(ids, by_id, what, source)
        if what == "label":
            return Annotations(labels=by_id)
        several = [id for id, names in by_id.items() if len(names) != 1]
        if several:
            raise BagwiseError(f"Item {several[0]!r} is in the splits {by_id[several[0]]}; an item is in exactly one.")
        return Annotations(splits={id: names[0] for id, names in by_id.items()})
    if isinstance(annotations, (str, os.PathLike)):
        annotations = LabelFile(annotations)
    if not isinstance(annotations, LabelFile):
        raise BagwiseError(
            f"{what}s must be a mapping from ids, or the path of a table with columns id and {what}; "
            f"got {type(annotations).__name__}."
        )
    location = as_place(annotations.path)
    if not isinstance(location, Url) and not Path(location).is_file():
        raise BagwiseError(
            f"There is no file {os.fspath(annotations.path)}. {what.capitalize()}s come from a CSV, TSV, JSON lines, "
            f"Excel, Parquet or SQLite file with columns filename and {what}."
        )
    try:
        return _read_file(annotations, what, ids, source, limits)
    except BagwiseError as error:
        reason = str(error).rstrip(".")
        raise BagwiseError(f"{os.fspath(annotations.path)} cannot be used for {what}s: {reason}.") from error


def _as_tuple(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, (list, tuple, set, frozenset)) else (str(value),)


def _check_ids(ids: Sequence[str], by_id: Mapping[str, Any], what: str, source: str) -> None:
    missing, strange = [id for id in ids if id not in by_id], sorted(set(by_id) - set(ids))
    about = []
    if missing:
        about.append(f"{len(missing)} of {len(ids)} items have no {what} there, the first is {missing[0]!r}")
    if strange:
        about.append(f"{len(strange)} ids there are not in {source}, the first is {strange[0]!r}")
    if about:
        raise BagwiseError(
            f"The {what}s do not match the items: {'; '.join(about)}. "
            "Ids are paths below the folder or in the archive, with their endings; see collection.ids."
        )


def _read_file(file: LabelFile, what: str, ids: Sequence[str], source: str, limits: Limits) -> Annotations:
    from bagwise.sources.contents import as_file  # deferred: these read collections
    from bagwise.sources.read_table import TABLE_ENDINGS, Layout, read_table, table_ending

    name = os.path.basename(os.fspath(file.path))
    end = table_ending(name)
    if end not in (*TABLE_ENDINGS, ".txt", ""):
        raise BagwiseError(
            f"give a CSV, TSV, JSON lines, .xlsx, Parquet or SQLite file with columns filename and {what}, not {end}"
        )
    table = read_table(as_file(file.path), name, Layout(file.sep, file.sheet, header=file.header), limits)
    if table.bad:
        raise BagwiseError(f"row {table.bad[0][0]}: {table.bad[0][1]}")
    id_column, label_column, split_column, column_notes = _columns(file, table, what)
    n = table.columns.num_rows
    names = table.strings(id_column)
    label_sets = [()] * n if label_column is None else table.string_sets(label_column)
    parts = [""] * n if split_column is None else table.strings(split_column)
    match = _Matching(ids)
    labels: dict[str, list[str]] = {}
    splits: dict[str, str | None] = {}
    named: dict[str, str] = {}
    strange: list[str] = []
    for name, of, part in zip(names, label_sets, parts, strict=True):
        id = match.find(name)
        if id is None:
            strange.append(name)
            continue
        item_labels = [label for one in of if (label := one.strip())]
        split = split_name(part.strip()) or None
        if id in named and named[id] != name and item_labels != labels[id]:
            raise BagwiseError(f"item {id!r} is there twice, as {named[id]!r} and {name!r}, with different labels")
        if splits.get(id, split) != split:
            raise BagwiseError(f"item {id!r} is in two splits there, {splits[id]!r} and {split!r}")
        named[id], splits[id] = name, split
        known = labels.setdefault(id, [])
        known += [label for label in item_labels if label not in known]
    if not named:
        first = f", the first is {strange[0]!r}" if strange else ""
        raise BagwiseError(
            f"none of its {how_many(n, 'rows')} names an item of {source}{first}; items are named like {ids[0]!r}"
        )
    notes = [*table.notes, *column_notes]
    shown, missing = os.fspath(file.path), [id for id in ids if id not in named]
    if missing:
        are, have = ("is", "has") if len(missing) == 1 else ("are", "have")
        left = f"{len(missing)} of {len(ids)} items {are} not in {shown} and {have} no {what}"
        notes.append(f"{left}; first: {missing[0]}")
    if strange:
        notes.append(f"{len(strange)} of {n} rows of {shown} name no item of {source}; first: {strange[0]}")
    return Annotations(
        {id: tuple(labels.get(id, ())) for id in ids} if label_column is not None else None,
        {id: splits.get(id) for id in ids} if split_column is not None else None,
        tuple(notes),
    )


def _columns(file: LabelFile, table: Table, what: str) -> tuple[str, str | None, str | None, list[str]]:
    """Find the columns of names, labels and splits, as told, by their usual names, or the only one left; and notes."""
    names = table.names
    chosen = {"id": file.id, "label": file.label, "split": file.split}
    roles = assign_roles(names, chosen, usual=USUAL | {"id": _USUAL_ID}, unread=table.unread)
    id, label, split = roles["id"], roles["label"], roles["split"]
    there = f"there are {shortened(names)}"
    if id is None:
        raise BagwiseError(
            f"none of its columns is named {', '.join(_USUAL_ID)}; {there}. Choose the one with the names of items by "
            f"{argument('id')}, or write a first line such as filename,{what}"
        )
    if label is None and len(roles.unused) == 1:
        (label,) = roles.unused
    missing = label is None if what == "label" else split is None
    if missing and (what == "split" or split is None):
        raise BagwiseError(
            f"none of its columns is named {', '.join(USUAL[what])}; {there}. Choose one by {argument(what)}"
        )
    unused = [name for name in (*roles.unused, *table.unread) if name != label]
    return id, label, split, [*taken_note(label, names, file.label), *unused_note(unused)]


class _Matching:
    """Finds the item of a name: its id, or the only one whose id ends like it, with or without the file's ending."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = set(ids)
        self._by_name: dict[str, list[str]] = defaultdict(list)
        for id in ids:
            base = id.rsplit("/", 1)[-1]
            for key in dict.fromkeys((base, os.path.splitext(base)[0])):
                self._by_name[key].append(id)

    def find(self, name: str) -> str | None:
        """Return the id; None if there is none, an error if there are several."""
        name = name.strip().replace("\\", "/").removeprefix("./")
        if name in self._ids:
            return name
        *folders, base = name.split("/")
        ids = [id for id in self._by_name.get(base, ()) if _same_end(folders, id.split("/")[:-1])]
        if len(ids) > 1:
            exact = [id for id in ids if id.rsplit("/", 1)[-1] == base]
            ids = exact or ids
        if len(ids) > 1:
            raise BagwiseError(
                f"{name!r} may be {ids[0]!r} or {ids[1]!r}. Write paths"
                + in_python(", as in collection.ids", " below the folder or in the archive")
            )
        return ids[0] if ids else None


def _same_end(some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether one list of folders ends like the other, as far as both go."""
    n = min(len(some), len(others))
    return n == 0 or list(some[-n:]) == list(others[-n:])
