"""Collections of texts in tables: one row of a CSV, TSV, JSON lines, Excel, Parquet or SQLite file per item."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bagwise._utils.text import agree
from bagwise.errors import BagwiseError, argument
from bagwise.sources.collection import Collection
from bagwise.sources.item_tables import arrow, item_table, label_column, label_sets_of, to_codes
from bagwise.sources.items import Skipped, check_on_error, warn_skipped
from bagwise.sources.limits import Limits, as_limits
from bagwise.sources.media import TextDecoder
from bagwise.sources.places import annotated, arrange, chosen_endings, ending, linked_notes, list_place, nothing_found
from bagwise.sources.read_table import (
    FOLDER_ENDINGS,
    JSON_ENDINGS,
    Layout,
    Table,
    check_layout,
    read_table,
    table_ending,
)
from bagwise.sources.roles import USUAL, Roles, assign_roles, columns_of, cut_name, shortened, split_name, unused_note

__all__ = ["columns_of_texts", "has_texts", "open_records", "texts_of"]


def open_records(
    path: str | os.PathLike[str],
    *,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    id: str | None = None,
    split: str | None = None,
    sep: str | None = None,
    sheet: str | None = None,
    header: bool | None = None,
    quote: str | None = "auto",
    encoding: str | None = None,
    extensions: Iterable[str] | str | None = None,
    labels: Any = None,
    splits: Any = None,
    on_error: str = "raise",
    limits: Limits | None = None,
) -> Collection:
    """Open the rows of a table, or of all tables of a folder, as texts, see `open_collection`."""
    check_on_error(on_error)
    limits = as_limits(limits)
    listing = list_place(path, limits)
    source, contents = os.fspath(listing), listing.without(labels)
    endings = chosen_endings(extensions, FOLDER_ENDINGS)
    names = [name for name in contents if endings is None or table_ending(name) in endings]
    if listing.is_file or all(ending(name) == ".parquet" for name in set(contents) - {"_SUCCESS"}):
        names = [name for name in contents if name != "_SUCCESS"]
    if not names:
        raise nothing_found(source, "records", contents, FOLDER_ENDINGS)
    layout = Layout(sep, sheet, encoding, header, quote)
    check_layout(names, layout)
    chosen = {"text": text, "label": label, "id": id, "split": split}
    by_folder = dict(zip(names, zip(*arrange(names), strict=True), strict=True))
    parts: list[Texts] = []
    skipped: list[Skipped] = []
    notes = dict.fromkeys(linked_notes(listing))
    n_rows = 0
    for name in names:
        folder, split_of_folder = by_folder[name]
        try:
            table = read_table(contents[name], name, layout, limits)
            roles = columns_of_texts(table, chosen, labels is not None or folder is not None)
            prefix = name if len(names) > 1 else None
            texts = texts_of(table, roles, name, limits, label=folder, split=split_of_folder, prefix=prefix)
        except BagwiseError as error:
            raise BagwiseError(f"{contents[name].source} cannot be used: {str(error).rstrip('.')}.") from error
        parts.append(texts)
        skipped += texts.bad
        notes |= dict.fromkeys((*table.notes, *roles.notes, *unused_note([*roles.unused, *table.unread])))
        n_rows += texts.table.num_rows + len(texts.bad)
        limits.check("rows", n_rows, f"{source} has more than {limits.rows:,} records")
        if on_error == "raise" and texts.bad:
            raise BagwiseError(
                f"{source} has a record that cannot be used, {texts.bad[0].id}: {texts.bad[0].reason.rstrip('.')}. "
                f"Correct it, or skip such records by {argument('on_error', 'skip')}."
            )
    warn_skipped(skipped, n_rows, source, stacklevel=3)
    joined = _joined([part.table for part in parts])
    if not joined.num_rows:
        has = agree(len(names), "has", "have")
        raise BagwiseError(f"{source} holds no records: {', '.join(names[:3])} {has} no line beyond names of columns.")
    others = sorted([*listing.ignored, *(set(contents) - set(names))])
    about: dict[str, Any] = {"ignored": others, "notes": tuple(notes), "skipped": skipped, "limits": limits}
    collection = Collection(joined, "texts", TextDecoder("utf-8", limits), source=source, **about)
    return annotated(collection, labels, splits)


def _joined(tables: Sequence[Any]) -> Any:
    """Return one table of those of several files, of which some may have lists of labels."""
    labels = [table.column("label") for table in tables]
    if len({column.type for column in labels}) == 1:
        return arrow().concat_tables(tables, promote_options="permissive")
    sets = label_column(known[code] for codes, known in map(label_sets_of, labels) for code in codes.tolist())
    others = [table.drop_columns(["label"]) for table in tables]
    return arrow().concat_tables(others, promote_options="permissive").append_column("label", sets)


def has_texts(table: Table, options: Mapping[str, Any]) -> bool:
    """Whether the rows of a table are texts: a column was chosen, is named so, or is the only one of long strings."""
    chosen = {role: options.get(role) for role in ("text", "label", "id", "split")}
    labelled = options.get("labels") is not None
    return bool(assign_roles(table.names, chosen, values=table.values, labelled=labelled, unread=table.unread)["text"])


def columns_of_texts(table: Table, chosen: Mapping[str, Any], labelled: bool) -> Roles:
    """Find the columns of texts, labels, ids and splits; raise an error if none has texts."""
    text = chosen["text"]
    if isinstance(text, str):
        chosen = {**chosen, "text": columns_of(text, table.names) or text}
    roles = assign_roles(table.names, chosen, values=table.values, labelled=labelled, unread=table.unread)
    if not roles["text"]:
        raise BagwiseError(
            f"none of the columns is named {', '.join(USUAL['text'])}, or is the only one with long strings; there are "
            f"{shortened(table.names)}. Choose by {argument('text')}"
        )
    return roles


class Texts(NamedTuple):
    """The texts of a table, as `Collection` takes them, and its rows that cannot be used."""

    table: Any
    bad: list[Skipped]


def texts_of(
    table: Table,
    roles: Roles,
    name: str,
    limits: Limits,
    *,
    ids: Any = None,
    label: str | None = None,
    split: str | Sequence[str | None] | None = None,
    prefix: str | None = None,
) -> Texts:
    """Return the texts of a table with ids, labels and splits, by columns or as given, such as those of its folder."""
    pa = arrow()
    from pyarrow import compute

    bad = [Skipped(f"{name}:{number}", reason) for number, reason in table.bad]
    cells = [table.texts(column) for column in roles.columns["text"]]
    wrong: dict[int, str] = {}
    for column, strings in zip(roles.columns["text"], cells, strict=True):
        if table_ending(name) in JSON_ENDINGS and strings.null_count:
            places = compute.indices_nonzero(compute.is_null(strings)).to_pylist()
            wrong |= dict.fromkeys(places, f"it has no field {cut_name(column)!r}")
    filled = [strings.fill_null("") for strings in cells]
    texts = (
        filled[0] if len(filled) == 1 else compute.binary_join_element_wise(*filled, pa.scalar("\n", pa.large_string()))
    )
    if (compute.max(compute.binary_length(texts)).as_py() or 0) > limits.text_bytes:
        long = compute.greater(compute.binary_length(texts), limits.text_bytes)
        reason = str(limits.exceeded("text_bytes", f"its text has more than {limits.text_bytes:,} bytes"))
        wrong |= dict.fromkeys(compute.indices_nonzero(long).to_pylist(), reason)
    if ids is None:
        ids, lost = _ids(table, roles["id"], name, prefix)
        wrong |= dict.fromkeys(lost, f"it has no {roles['id']!r}")
    if roles["label"] is None:
        labels: Any = _same(label, table.columns.num_rows)
    else:
        labels = table.labels(roles["label"])
    if roles["split"] is None:
        splits: Any = _same(split, table.columns.num_rows)
    else:
        splits = table.codes(roles["split"], split_name)
    items = item_table(ids, labels, splits, {"text": texts})
    if wrong:
        numbers = table.numbers
        bad += [Skipped(f"{name}:{numbers[row]}", reason) for row, reason in sorted(wrong.items())]
        mask = pa.array([row not in wrong for row in range(table.columns.num_rows)], pa.bool_())
        items = items.filter(mask)
    return Texts(items, sorted(bad, key=lambda one: int(one.id.rpartition(":")[2])))


def _same(value: str | Sequence[str | None] | None, n: int) -> Any:
    return None if value is None else to_codes([value] * n if isinstance(value, str) else value)


def _ids(table: Table, column: str | None, name: str, prefix: str | None) -> tuple[Any, list[int]]:
    """Return the ids of rows as bytes, and the places of those without one."""
    pa = arrow()
    from pyarrow import compute

    def joined(before: str, ids: Any) -> Any:
        start, nothing = (pa.scalar(one.encode(), pa.large_binary()) for one in (before, ""))
        return compute.binary_join_element_wise(start, ids, nothing)

    if column is None:
        numbers = pa.array(table.numbers, pa.int64()).cast(pa.large_string())
        return joined(f"{name}:", numbers.cast(pa.large_binary())), []
    ids = table.encoded(column).cast(pa.large_binary()).fill_null(b"")
    lost = compute.indices_nonzero(compute.equal(ids, b"")).to_pylist()
    return (joined(f"{prefix}:", ids) if prefix else ids), lost
