"""Tables of numbers: which of their columns are labels, ids, splits and words, and what is missing in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.memory import readable_size
from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError, argument, unknown_name
from bagwise.sources.delimited import MISSING, is_number
from bagwise.sources.item_tables import to_floats
from bagwise.sources.limits import Limits
from bagwise.sources.read_table import Layout, Table
from bagwise.sources.roles import (
    USUAL,
    Roles,
    assign_roles,
    cut_name,
    few_values,
    likely_note,
    named_like_labels,
    numbers_rows,
    shortened,
    split_name,
    taken_note,
)

__all__ = ["RawTable", "Reading", "check_missing", "number_table", "obs_roles", "optional_columns"]
__all__ += ["without_missing"]

_LOOKED_AT, _SAMPLE = 200, 50  # rows that are compared before others, and values of a column of text
# Tables of more columns are words, not measurements.
_MOST_MEASURED = 100
_OPTIONS = ("zero", "median", "drop")


@dataclass(frozen=True)
class Reading:
    """What all readers of tables are told; each takes what applies to its files; see `open_collection`."""

    data: str | None = None
    label: str | None = None
    id: str | None = None
    split: str | None = None
    keep: Sequence[str] = ()
    words: Sequence[str] | None = None
    layout: Layout = field(default_factory=Layout)
    missing: str | None = None
    layer: str | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass
class RawTable:
    """Content of a file: labels, ids and splits have one string per row, if they are there."""

    X: Any
    labels: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    splits: Sequence[str | None] | None = None
    feature_names: list[str] | None = None
    notes: tuple[str, ...] = ()


def optional_columns(others: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return labels, ids and splits as `RawTable` takes them: an empty split is none."""
    if "splits" in others:
        return {**others, "splits": [split_name(part) if part else None for part in others["splits"]]}
    return dict(others)


def obs_roles(names: Sequence[str], chosen: Mapping[str, Any]) -> Roles:
    """Find the columns of labels, splits and ids of `obs` of AnnData, whose index has the ids otherwise."""
    usual = {role: USUAL[role] for role in ("label", "split")}
    try:
        return assign_roles(names, {role: chosen[role] for role in ("label", "split", "id")}, usual=usual)
    except BagwiseError as error:
        raise BagwiseError(f"in obs {error}.") from error


def number_table(table: Table, reading: Reading, typed: str | None = None) -> RawTable:
    """Make a matrix of the columns of a table that are words, with labels, ids and splits of others.

    1. Columns of labels, ids and splits are chosen or have usual names; `typed` has the labels if no name says so.
    2. Columns that number or name the rows are no words. The first one whose values differ has the ids.
    3. Without labels, the only column with text has them if it has few values; without texts, the only one of true and
       false. Others of these are 1 and 0.
    """
    if table.bad:
        raise BagwiseError(f"row {table.bad[0][0]}: {table.bad[0][1].rstrip('.')}.")
    for name in reading.keep:
        if name not in table.names:
            raise BagwiseError(f"there is no column {name!r} to keep; there are {shortened(table.names)}.")
    if not table.columns.num_rows:
        raise BagwiseError("it has no rows, only names of columns.")
    kept = {*reading.keep, *(reading.words or ())}
    chosen = {"label": reading.label, "id": reading.id, "split": reading.split}
    roles = assign_roles(table.names, chosen, words=kept, unread=table.unread)
    columns = {what: roles[role] for role, what in (("label", "labels"), ("id", "ids"), ("split", "splits"))}
    if columns["labels"] is None and typed is not None and typed not in kept:
        columns["labels"] = typed
    others = {what: table.strings(name) for what, name in columns.items() if name is not None}
    notes = list(table.notes)
    words = [name for name in table.names if name not in columns.values()]
    words = _without_row_names(table, words, others, columns, reading, notes)
    truths: list[str] = []
    numbers = {name: _numbers(table, name, truths) for name in words}
    by_commas = _read_decimal_commas(table, numbers) if table.decimal_commas else []
    if by_commas:
        notes.append("Numbers are read with decimal commas: 1,5 is one and a half.")
    texts = [name for name in words if numbers[name] is None and _holds_text(table, name)]
    likely, what = (texts, "text") if texts else ([one for one in truths if one not in kept], "true and false")
    by_text = None
    if len(likely) == 1 and "labels" not in others:
        values = table.strings(likely[0])
        if few_values(n_values := len(set(values)), len(values)):
            by_text, others["labels"] = likely[0], values
            words.remove(by_text)
            if reading.words is None:
                notes.append(
                    f"Column {cut_name(by_text)!r}, the only one with {what}, has {n_values} values, which are taken "
                    f"as the labels; {argument('label')} chooses others."
                )
    wrong = [name for name in words if numbers[name] is None]
    if wrong or table.unread.keys() - columns.values():
        raise _no_numbers(table, wrong)
    n_bytes = 8 * table.columns.num_rows * len(words)
    reading.limits.check("table_bytes", n_bytes, f"its numbers take {readable_size(n_bytes)}")
    X = np.empty((table.columns.num_rows, len(words)))
    for k, name in enumerate(words):
        X[:, k] = numbers.pop(name)
    if table.has_names and reading.words is None:
        notes += _notes_of(table, X, words, others.get("labels", []), columns["labels"], by_text, reading)
    return RawTable(X, **optional_columns(others), feature_names=words if table.has_names else None, notes=tuple(notes))


def _without_row_names(
    table: Table,
    words: list[str],
    others: dict[str, list[str]],
    columns: dict[str, str | None],
    reading: Reading,
    notes: list[str],
) -> list[str]:
    """Return the words without columns that number or name the rows; the first one with other values has the ids."""
    ids = others.get("ids", [])
    if reading.id is None and len(set(ids)) < len(ids):
        del others["ids"]
        name, columns["ids"] = columns["ids"], None
        assert name is not None
        if reading.words is None:
            notes.append(
                f"Column {name!r} has equal values, so rows are named by their numbers. It is not used as a word; "
                f"{argument('keep', name)} does that."
            )
    left = []
    for name in words:
        if name in reading.keep or name in (reading.words or ()) or not numbers_rows(name):
            left.append(name)
            continue
        values = table.strings(name)
        differ = len(set(values)) == len(values)
        if reading.words is None and (len(values) < 2 or not differ):
            left.append(name)
            continue
        used = "only numbers the rows and"
        if differ and "ids" not in others:
            others["ids"], used = values, "is the id of rows and"
        if reading.words is None:
            notes.append(f"Column {name!r} {used} is not used as a word; {argument('keep', name)} does that.")
    return left


def _numbers(table: Table, name: str, truths: list[str], decimal_commas: bool = False) -> NDArray[np.float64] | None:
    """Return a column as numbers, NaN where one is missing; None if there is something else than numbers.

    Columns of true and false are 1 and 0, and join `truths`.
    """
    import pyarrow as arrow
    from pyarrow import compute

    column, types = table.columns.column(name), arrow.types
    kind = column.type.value_type if types.is_dictionary(column.type) else column.type
    if types.is_boolean(kind):
        truths.append(name)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        values = column.cast(kind) if kind != column.type else column
        return to_floats(values.cast(arrow.float64(), safe=False))
    if types.is_null(kind):
        return np.full(len(column), np.nan)
    if not (types.is_string(kind) or types.is_large_string(kind)):
        return None
    cells = compute.utf8_trim_whitespace(column.cast(kind))
    if decimal_commas:
        cells = compute.replace_substring(cells, ",", ".", max_replacements=1)
    try:
        return to_floats(cells.cast(arrow.float64()))
    except arrow.ArrowInvalid:
        pass
    cells = compute.if_else(compute.is_in(cells, arrow.array(MISSING, cells.type)), None, cells)
    try:
        return to_floats(cells.cast(arrow.float64()))
    except arrow.ArrowInvalid:
        pass
    try:
        values = to_floats(cells.cast(arrow.bool_()).cast(arrow.float64()))
    except arrow.ArrowInvalid:
        return None
    truths.append(name)
    return values


def _read_decimal_commas(table: Table, numbers: dict[str, Any]) -> list[str]:
    """Read columns of numbers with commas for points, unless some cell has a point; return their names."""
    from pyarrow import compute

    wrong = [name for name, column in numbers.items() if column is None]
    by_commas = {name: _numbers(table, name, [], decimal_commas=True) for name in wrong}
    there = [name for name, column in by_commas.items() if column is not None]
    if there and not any(
        compute.any(compute.match_substring(table.columns.column(name), ".")).as_py() for name in numbers
    ):
        numbers |= {name: by_commas[name] for name in there}
        return there
    return []


def _holds_text(table: Table, name: str) -> bool:
    """Whether a column that is not all numbers holds text: its first value has letters, or divides dates and times."""
    first = next((value for value in table.values(name) if value not in (None, *MISSING)), None)
    return isinstance(first, (str, bytes)) and _like_text_or_date(str(first))


def _like_text_or_date(cell: str) -> bool:
    return not is_number(cell) and (any(c.isalpha() or c in "/:" for c in cell) or "-" in cell[1:])


def _no_numbers(table: Table, wrong: Sequence[str]) -> BagwiseError:
    """Build the error for columns that are no numbers: of text, of other types, or with a cell that is none."""
    if not wrong:
        nested = shortened(list(table.unread))
        return BagwiseError(f"columns {nested} hold {next(iter(table.unread.values()))}, not numbers. Remove them.")
    texts = [name for name in wrong if _holds_text(table, name)]
    if len(texts) == 1:
        return _text_column(texts[0], table.strings(texts[0])[:_SAMPLE])
    if texts:
        values = {name: table.strings(name)[:_SAMPLE] for name in texts}
        likely = [name for name in texts if _like_texts(values[name])]
        advice = f"Choose columns by {argument('label')}, {argument('id')} and {argument('split')}, and remove others."
        if likely:
            others = sorted((name for name in texts if name not in likely), key=lambda name: len(set(values[name])))
            label = f", with {argument('label', cut_name(others[0]))}" if others else ""
            joined = f", or {argument('text', cut_name(','.join(likely)))} for all joined" if len(likely) > 1 else ""
            advice = f"To learn from texts: {argument('text', cut_name(likely[0]))}{joined}{label}."
        return BagwiseError(f"columns {shortened(texts)} hold text, but the words of a table are numbers. {advice}")
    name = wrong[0]
    if len(table.names) == 1 and " " in name.strip():
        return BagwiseError(f"it has one column, {cut_name(name)!r}. If spaces divide it: {argument('sep', 'space')}")
    for number, value in zip(table.numbers, table.values(name), strict=True):
        if isinstance(value, str) and value.strip() not in MISSING and not is_number(value):
            what = f"row {number}, column {cut_name(name)!r} is {value!r:.50}, not a number"
            return BagwiseError(f"{what}. Correct it, or remove the row or the column.")
    kind = table.columns.schema.field(name).type
    return BagwiseError(
        f"column {cut_name(name)!r} is {kind}, not numbers. Remove it, or choose it by {argument('label')}, "
        f"{argument('id')} or {argument('split')}."
    )


def _like_texts(values: Sequence[str]) -> bool:
    """Whether values are texts rather than names of classes: most of them differ, and some have several words."""
    return len(set(values)) * 2 > len(values) and any(" " in value.strip() for value in values)


def _text_column(name: str, values: Sequence[str]) -> BagwiseError:
    """Build the error for a column of text, with advice by its values."""
    label, text = argument("label", cut_name(name)), argument("text", cut_name(name))
    if _like_texts(values):
        advice = f"If these are the texts to learn from, choose them by {text}; if it is the label, by {label}"
    else:
        advice = f"If it is the label, choose it by {label}; if these are the texts to learn from, by {text}"
    return BagwiseError(f"column {cut_name(name)!r} holds text. {advice}; otherwise remove it.")


def _notes_of(
    table: Table,
    X: NDArray[np.float64],
    words: Sequence[str],
    labels: Sequence[str],
    label: str | None,
    by_text: str | None,
    reading: Reading,
) -> list[str]:
    """Say which column the labels are, which may hold them if none is named so, and which columns tell the class."""
    notes: list[str] = []
    likely, why = [], None
    if by_text is not None:
        likely, why = _likely_labels(words, X, by_name=True), ""
    else:
        notes += taken_note(label, table.names, reading.label)
    if reading.label is None and len(set(labels) - {""}) < 2:
        likely = _likely_labels(words, X)
        why = None if label is None else f"Column {label!r} has less than two classes. "
    notes += likely_note(likely, why)
    for name in _telling(words, X, labels):
        notes.append(
            f"Column {name!r} has another value for each label, so it tells the class. Remove it if new items do not "
            "have it."
        )
    return notes


def _likely_labels(names: Sequence[str], X: NDArray[np.float64], by_name: bool = False) -> list[str]:
    """Return the columns of few whole numbers that may be labels: by their names, or because most others have more."""
    likely = [i for i, name in enumerate(names) if named_like_labels(name) and _has_few(X[:, i])]
    if not by_name and len(names) <= _MOST_MEASURED:
        few = [i for i in range(len(names)) if i in likely or _has_few(X[:, i])]
        likely += [i for i in few if i not in likely and 2 * len(few) < len(names)]
    return [names[i] for i in likely]


def _has_few(values: NDArray[np.float64]) -> bool:
    some = values[:: max(1, len(values) // _LOOKED_AT)]
    if not few_values(len(np.unique(some)), 5 * len(some)) or (some != np.rint(some)).any():
        return False
    return few_values(len(np.unique(values)), len(values)) and bool((values == np.rint(values)).all())


def _telling(names: Sequence[str], X: NDArray[np.float64], labels: Sequence[str]) -> list[str]:
    """Return the names of columns with one value for each label, and a different one for each."""
    known: dict[str, int] = {"": -1}
    codes = np.array([known.setdefault(label, len(known) - 1) for label in labels], np.intp)
    rows = np.flatnonzero(codes >= 0)
    classes, codes = np.unique(codes[rows], return_inverse=True)
    if not few_values(len(classes), len(rows)):
        return []
    first = rows[np.unique(codes, return_index=True)[1]]
    likely = np.arange(X.shape[1])
    for some in (slice(0, None, max(1, len(rows) // _LOOKED_AT)), slice(None)):  # a few rows exclude most columns
        part = X[np.ix_(rows[some], likely)]
        likely = likely[(part == X[np.ix_(first[codes[some]], likely)]).all(axis=0)]
    return [names[i] for i in likely.tolist() if len(np.unique(X[first, i])) == len(classes)]


def check_missing(missing: str | None) -> None:
    """Check the parameter `missing`."""
    if missing is not None and missing not in _OPTIONS:
        raise unknown_name(argument("missing").rstrip("="), missing, _OPTIONS)


def without_missing(table: RawTable, missing: str | None) -> RawTable:
    """Return a table without missing numbers: set to 0 or the median of their column, or without rows; or an error."""
    import scipy.sparse as sp

    values = table.X.data if sp.issparse(table.X) else table.X
    if values.dtype.kind != "f" or not np.isnan(values).any():
        return table
    holes = np.isnan(values)
    if sp.issparse(table.X):
        rows = np.repeat(np.arange(table.X.shape[0]), np.diff(table.X.indptr))[holes]
        columns = table.X.indices[holes]
    else:
        rows, columns = np.nonzero(holes)
    names = table.feature_names or [str(k) for k in range(table.X.shape[1])]
    which = [names[k] for k in np.unique(columns).tolist()]
    n_rows = len(np.unique(rows))
    what = (
        f"{how_many(len(rows), 'numbers')} {'is' if len(rows) == 1 else 'are'} missing, in {how_many(n_rows, 'rows')} "
        f"and {'the column' if len(which) == 1 else 'the columns'} {shortened(which)}"
    )
    if missing is None:
        raise BagwiseError(
            f"{what}; the first is in row {rows.min() + 1}, counted from 1. Fill them in, or choose "
            f"{argument('missing', 'median')} (of the column), 'zero', or 'drop' (leaves such rows out)."
        )
    if missing == "drop":
        kept = np.setdiff1d(np.arange(table.X.shape[0]), rows)
        note = f"{what}: these rows were left out."
        ids = table.ids if table.ids is not None else list(map(str, range(table.X.shape[0])))
        chosen = {"labels": table.labels, "splits": table.splits, "ids": ids}
        others = {name: None if all is None else [all[k] for k in kept.tolist()] for name, all in chosen.items()}
        return replace(table, X=table.X[kept], **others, notes=(*table.notes, note))
    X = table.X.copy()
    filled = X.data if sp.issparse(X) else X
    if missing == "zero":
        filled[holes] = 0
    elif sp.issparse(X):
        raise BagwiseError(f"{what}. The median is for dense tables; choose {argument('missing', 'zero')} or 'drop'.")
    else:
        empty = [names[k] for k in np.flatnonzero(np.isnan(X).all(axis=0)).tolist()]
        if empty:
            raise BagwiseError(f"the columns {shortened(empty)} have no numbers. Remove them.")
        filled[holes] = np.nanmedian(X, axis=0)[columns]
    return replace(
        table, X=X, notes=(*table.notes, f"{what}: set to {'0' if missing == 'zero' else 'the median of the column'}.")
    )
