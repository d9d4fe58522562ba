"""Files of corrected labels: a few items with other labels than their source gives them, and items to leave out."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from bagwise._io.atomic import write_atomically
from bagwise._utils.text import how_many, quote_formula
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection
from bagwise.sources.contents import as_file
from bagwise.sources.limits import Limits
from bagwise.sources.read_table import Layout, read_table

__all__ = ["read_relabelling", "relabelled", "write_relabelling"]

_COLUMNS = ("id", "label")


def read_relabelling(path: str | os.PathLike[str], limits: Limits | None = None) -> dict[str, str]:
    """Read new labels by the ids of items; "" for items to leave out."""
    shown = os.fspath(path)
    if not os.path.isfile(path):
        raise BagwiseError(f"There is no file {shown}. Corrected labels are in a CSV file with columns id and label.")
    try:
        table = read_table(as_file(path), os.path.basename(shown), Layout(), limits or Limits())
        if table.bad:
            raise BagwiseError(f"row {table.bad[0][0]}: {table.bad[0][1]}")
        if not set(_COLUMNS) <= set(table.names):
            raise BagwiseError(f"its columns are {', '.join(table.names)}; expected id and label")
        ids, labels = ([one.strip() for one in table.strings(name)] for name in _COLUMNS)
    except BagwiseError as error:
        raise BagwiseError(f"{shown} cannot be used as corrected labels: {str(error).rstrip('.')}.") from error
    new: dict[str, str] = {}
    for id, label in zip(ids, labels, strict=True):
        if new.setdefault(id, label) != label:
            raise BagwiseError(f"{shown} gives {id!r} two labels, {new[id]!r} and {label!r}. Remove a row.")
    return new


def write_relabelling(path: str | os.PathLike[str], labels: Mapping[str, str]) -> None:
    """Write new labels by the ids of items; "" for items to leave out."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([quote_formula(id), quote_formula(label)] for id, label in labels.items())
    write_atomically(path, text.getvalue().encode("utf-8", "surrogateescape"))


def relabelled(collection: Collection, labels: Mapping[str, str], origin: Any) -> tuple[Collection, str]:
    """Return a collection with some labels changed and some items left out, and a note about that.

    `origin` is where the labels come from, for messages.

    Examples
    --------
    >>> rows = Collection.from_matrix(np.eye(3), ["a", "b", "c"], [("cat",), ("cat",), ("dog",)])
    >>> changed, note = relabelled(rows, {"a": "dog", "b": ""}, "file")
    >>> changed.ids, changed.labels.tolist(), note
    (['a', 'c'], ['dog', 'dog'], '1 label was changed and 1 item left out, as file says')
    """
    ids = list(collection.ids)
    strange = sorted(set(labels) - set(ids))
    if strange:
        raise BagwiseError(
            f"{len(strange)} of {how_many(len(labels), 'items')} in {origin} are not in {collection.source}, such as "
            f"{strange[0]!r}. Remove their rows, or give the source that they are of."
        )
    before = collection.label_sets
    changed = [(labels[id],) if labels.get(id) else old for id, old in zip(ids, before, strict=True)]
    n_changed = sum(one != old for one, old in zip(changed, before, strict=True))
    kept = np.array([labels.get(id) != "" for id in ids], np.bool_)
    new = collection.with_labels(dict(zip(ids, changed, strict=True)))
    were, n_left = "was" if n_changed == 1 else "were", int((~kept).sum())
    note = f"{how_many(n_changed, 'labels')} {were} changed and {how_many(n_left, 'items')} left out, as {origin} says"
    return (new if kept.all() else new[kept]), note
