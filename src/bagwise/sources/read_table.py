"""The one reader of tables: CSV, TSV, JSON lines, Excel, Parquet and SQLite files become Arrow tables."""

from __future__ import annotations

import functools
import io
import os
import re
import sqlite3
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np

from bagwise._io.storage import names_table
from bagwise._utils.extras import require
from bagwise._utils.json_text import parse_json
from bagwise._utils.memory import give_back_memory, readable_size
from bagwise._utils.text import how_many, unquote_formula
from bagwise.errors import BagwiseError, argument, in_python
from bagwise.sources.archives import check_zip
from bagwise.sources.contents import File, FileContent, UrlContent
from bagwise.sources.delimited import (
    HEAD,
    as_separator,
    first_rows,
    has_names,
    parsed_at_once,
    parsed_rows,
    quote_of,
    separator_of,
)
from bagwise.sources.encodings import as_utf8, check_encoding, undecodable
from bagwise.sources.item_tables import arrow, as_array, from_bytes, mapped_codes, to_bytes, to_codes, to_strings
from bagwise.sources.items import Content
from bagwise.sources.limits import Deadline, Limits, check_size
from bagwise.sources.places import ending
from bagwise.sources.roles import cut_name, shortened

__all__ = [
    "FOLDER_ENDINGS",
    "JSON_ENDINGS",
    "SHEET_ENDINGS",
    "SQL_ENDINGS",
    "TABLE_ENDINGS",
    "TAB_ENDINGS",
    "TEXT_TABLE_ENDINGS",
]
__all__ += [
    "Layout",
    "Table",
    "check_layout",
    "column_of_values",
    "is_nested",
    "looked_at",
    "read_table",
    "split_table",
    "table_ending",
    "table_names",
]

TAB_ENDINGS = frozenset([".tsv", ".tab"])
JSON_ENDINGS = frozenset([".jsonl", ".ndjson"])
SHEET_ENDINGS = frozenset([".xlsx", ".xlsm"])
SQL_ENDINGS = frozenset([".sqlite", ".sqlite3", ".db"])
TEXT_TABLE_ENDINGS = TAB_ENDINGS | {".csv"}
TABLE_ENDINGS = TEXT_TABLE_ENDINGS | JSON_ENDINGS | SHEET_ENDINGS | SQL_ENDINGS | {".parquet"}
# Of single files, and of folders, where others are rather something else, such as Thumbs.db.
FOLDER_ENDINGS = TEXT_TABLE_ENDINGS | JSON_ENDINGS | SHEET_ENDINGS
# Endings and first bytes of compressed files.
_PACKED = {".gz": ("gzip", b"\x1f\x8b"), ".zst": ("zstd", b"\x28\xb5\x2f\xfd")}

# Rows that are looked at for a line of names.
_SAMPLE = 1000
# Bytes that are read and decompressed at a time, and rows of Parquet files and of data bases.
_PART, _UNPACKED, _BATCH, _LARGE_BATCH, _LONG_BATCH = 1 << 20, 1 << 16, 1 << 14, 1 << 16, 1 << 28
_EXCEL_ROWS = 1 << 20
_LINES = ".txt"
# Steps of SQLite between looks at the clock.
_STEPS = 100_000
# The first bytes of a journal of SQLite by which changes that were not finished are taken back.
_JOURNAL = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
_OBJECT = re.compile(rb"\s*\{\s*[\"}]")
_LIST = re.compile(rb"\s*\[\s*\{")
_SURROGATE = re.compile("[\udc80-\udcff]")
# Cells of columns of numbers, and what whole ones among fractions and missing ones end in.
_NUMBERS, _POINT = r"^(-?[0-9]+(\.[0-9]+)?)?$", r"\.0$"
# What openpyxl raises for files that are not what they should be.
_EXCEL_DAMAGES = (zipfile.BadZipFile, zlib.error, NotImplementedError, LookupError, ValueError, OSError, EOFError)
_EXCEL_DAMAGES += (SyntaxError, TypeError, AttributeError, ArithmeticError)  # type: ignore[assignment]


@dataclass(frozen=True)
class Layout:
    """How a file is read; None: as its content says. See `open_collection`.

    `quote` is "auto" for ``"``, in TSV files only if the first line has it around all names. Of Parquet files, only
    `columns` are read if these are given.
    """

    sep: str | None = None
    sheet: str | None = None
    encoding: str | None = None
    header: bool | None = None
    quote: str | None = "auto"
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Table:
    """What a file holds: rows that could be read, and their numbers among all, from 1.

    `bad` has the numbers of rows that cannot be used, and the reasons; `unread` nested columns, and their types;
    `left_out` columns that were not asked for.
    Columns of CSV, TSV and Excel files are strings. Without `has_names`, names are numbers. If `quoted`, an apostrophe
    may be before names and labels such as ``=x``, see `quote_formula`. `decimal_commas` says whether commas may be
    decimal points: no comma is between fields.
    """

    columns: Any
    numbers: Sequence[int]
    bad: tuple[tuple[int, str], ...] = ()
    has_names: bool = True
    quoted: bool = False
    decimal_commas: bool = False
    unread: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return list(self.columns.column_names)

    def values(self, name: str) -> Iterator[Any]:
        """Yield the values of a column, a part at a time; None is missing."""
        for chunk in self.columns.column(name).chunks:
            for start in range(0, len(chunk), _BATCH):
                with _readable(name):
                    values = chunk.slice(start, _BATCH).to_pylist()
                yield from values

    def strings(self, name: str) -> list[str]:
        """Return a column as strings, equal ones as one object where the file has them once; missing ones are empty."""
        strings: list[str] = []
        for chunk in self._names(name).chunks:
            with _readable(name):
                if hasattr(chunk, "dictionary"):
                    values = [*map(self._string, chunk.dictionary.to_pylist()), ""]
                    strings += [values[-1 if code is None else code] for code in chunk.indices.to_pylist()]
                else:
                    strings += map(self._string, chunk.to_pylist())
        return strings

    def texts(self, name: str) -> Any:
        """Return a column of strings as they are in the file; null is missing."""
        large, column = arrow().large_string(), _decoded(self._single(name))
        if _is_text(column.type):
            try:
                return column.cast(large)
            except arrow().ArrowInvalid:  # bytes that are no UTF-8
                pass
        return arrow().chunked_array([[*map(_clean, replace(self, quoted=False).strings(name))]], large)

    def encoded(self, name: str) -> Any:
        """Return a column of names as bytes; null is missing."""
        column = _decoded(self._names(name))
        names = column if _is_text(column.type) else self.texts(name)
        is_large = str(names.type).startswith("large")  # others are not copied
        names = names.cast(arrow().large_binary() if is_large else arrow().binary())
        compute = require("pyarrow.compute", "app", "Reading tables")
        if self.quoted and compute.any(compute.starts_with(names, "'")).as_py():
            values = to_bytes(None if one is None else unquote_formula(one) for one in to_strings(names))
            return arrow().chunked_array([values])
        return names

    def codes(self, name: str, change: Callable[[str], str] = str) -> Any:
        """Return a column as codes of its strings, each changed; missing and empty ones are null."""
        column = as_array(self._names(name))
        try:
            column = column if hasattr(column, "dictionary") else column.dictionary_encode()
        except arrow().ArrowNotImplementedError:  # types of extensions, such as UUID, and runs of equal values
            return to_codes(change(one) if one else None for one in self.strings(name))
        known = replace(self, columns=arrow().table({name: column.dictionary})).strings(name)
        return mapped_codes(column, [change(one) if one else None for one in known])

    def labels(self, name: str) -> Any:
        """Return the labels of rows, one or several each, as `item_table` takes them."""
        return self.string_sets(name) if self._has_lists(name) else self.codes(name)

    def string_sets(self, name: str) -> list[tuple[str, ...]]:
        """Return all strings in each row of a column, which may have lists; missing and empty ones are none."""
        if not self._has_lists(name):
            return [(one,) if one else () for one in self.strings(name)]
        return [tuple(filter(None, map(self._string, row or ()))) for row in self.values(name)]

    def _has_lists(self, name: str) -> bool:
        types, kind = arrow().types, self.columns.schema.field(name).type
        return bool(types.is_list(kind) or types.is_large_list(kind))

    def _names(self, name: str) -> Any:
        """Return a column; of CSV files whole numbers are written as in other files, where pandas wrote them as 1.0."""
        return _without_points(self._single(name)) if self.quoted else self._single(name)

    def _single(self, name: str) -> Any:
        """Return a column; an error if it has lists."""
        if self._has_lists(name):
            raise BagwiseError(f"column {cut_name(name)!r} has lists, but a row has one label, id and split")
        return self.columns.column(name)

    def _string(self, value: Any) -> str:
        """Write a value: whole numbers without a point, bytes as UTF-8; what is missing is an empty one."""
        if isinstance(value, str):
            return unquote_formula(value) if self.quoted else value
        if value is None or value != value:
            return ""
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            return str(int(value))
        return from_bytes(value) if isinstance(value, bytes) else str(value)


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Make what Arrow and Python raise for values of a column, such as dates that Python lacks, an error of ours."""
    try:
        yield
    except (ValueError, OverflowError, arrow().ArrowException) as error:
        raise BagwiseError(f"column {cut_name(name)!r} cannot be read: {error}. Leave it out") from error


def _decoded(column: Any) -> Any:
    return column.cast(column.type.value_type) if arrow().types.is_dictionary(column.type) else column


def _without_points(column: Any) -> Any:
    """Return strings; if all are numbers or empty, whole ones without their point, as of columns with missing ones."""
    from pyarrow import compute

    for some in (column.slice(0, _SAMPLE), column):
        if not compute.all(compute.match_substring_regex(some, _NUMBERS)).as_py():
            return column
    return compute.replace_substring_regex(column, _POINT, "")


def _is_text(kind: Any) -> bool:
    types = arrow().types
    return any(of(kind) for of in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary))


def table_ending(name: str) -> str:
    """Return the ending of a table's name, without that of its compression.

    >>> table_ending("a.CSV"), table_ending("a.csv.gz"), table_ending("a.tar.gz")
    ('.csv', '.csv', '.tar')
    """
    end = ending(name)
    return ending(name[: -len(end)]) if end in _PACKED else end


def split_table(path: Any) -> tuple[Any, str | None]:
    """Return the path of an SQLite file and the name of its table that is behind ``::``; None without one.

    >>> split_table("a/data.sqlite::reviews"), split_table("a/data.sqlite")
    (('a/data.sqlite', 'reviews'), ('a/data.sqlite', None))
    """
    if not isinstance(path, (str, Path)) or not names_table(os.fspath(path)):
        return path, None
    file, _, table = os.fspath(path).rpartition("::")
    return file, table


def check_layout(names: Sequence[str], layout: Layout) -> None:
    """Raise an error if the layout says something that applies to none of the files of these names."""
    ends = {table_ending(name) for name in names}
    checks = (
        ("sep", layout.sep, TEXT_TABLE_ENDINGS, "CSV and TSV files"),
        ("sheet", layout.sheet, SHEET_ENDINGS | SQL_ENDINGS, "Excel and SQLite files"),
        ("header", layout.header, TEXT_TABLE_ENDINGS | SHEET_ENDINGS, "CSV, TSV and Excel files"),
    )
    for option, value, accepted, what in checks:
        if value is not None and not ends & accepted:
            raise BagwiseError(f"{argument(option)} is for {what}, but {names[0]} is none. Leave it out.")


def read_table(file: Content, name: str, layout: Layout, limits: Limits) -> Table:
    """Read a table within limits; its name says which format it has, otherwise its content.

    An error, the second half of a sentence, if rows cannot be told apart.
    """
    try:
        return looked_at(file, name, layout, limits)
    finally:
        _kept.cache_clear()


def _read(file: Content, name: str, layout: Layout, limits: Limits) -> Table:
    check_encoding(layout.encoding)
    as_separator(layout.sep)
    end = table_ending(name)
    if end == ".parquet":
        return _read_parquet(file, layout.columns, limits)
    if end in SQL_ENDINGS:
        return _read_sqlite(file, layout.sheet, limits)
    content = _content_of(file, limits)
    end = end if end in TABLE_ENDINGS else _format_of(content)
    if end in SHEET_ENDINGS:
        rows, notes = _sheet_rows(content, layout.sheet, limits)
        return _from_rows(rows, name, layout, limits, notes)
    text, encoding, notes = as_utf8(content, layout.encoding, name)
    del content
    if end in JSON_ENDINGS:
        return _read_json(text, encoding, notes, limits)
    head = text[:HEAD].decode(errors="replace")
    if end == _LINES and layout.sep is None:
        return _lines(text, encoding, notes, limits)
    quote, separator = _layout_of(head, end, layout)
    columns = parsed_at_once(text, separator, quote, limits)
    if columns is None:
        table = _from_rows(parsed_rows(text, encoding, separator, quote, limits), name, layout, limits, notes)
    else:
        table = _with_names(columns, range(columns.num_rows), (), name, layout, notes, limits)
    return replace(table, quoted=True, decimal_commas=separator != ",")


def looked_at(file: Content, name: str, layout: Layout, limits: Limits) -> Table:
    """Read a table to see what it is; `read_table` of the same file, unless it changes, returns it and forgets it."""
    return _kept(file, name, layout, limits, file.stamp() if isinstance(file, FileContent) else None)


@functools.lru_cache(maxsize=1)
def _kept(file: Content, name: str, layout: Layout, limits: Limits, stamp: tuple[Any, ...] | None) -> Table:
    return _read(file, name, layout, limits)


def _layout_of(head: str, end: str, layout: Layout) -> tuple[str | None, str]:
    """Return what is around and between the fields of a file that begins like this."""
    has_tabs = end in TAB_ENDINGS
    quote = quote_of(head, layout.quote, has_tabs)
    return quote, as_separator(layout.sep) or separator_of(head, quote, "\t" if has_tabs else ",")


def table_names(file: Content, name: str, layout: Layout, limits: Limits) -> list[str]:
    """Return the names of the columns of a table; of CSV, TSV and JSON files by their beginning alone."""
    end = table_ending(name)
    if end == ".parquet" and isinstance(file, (FileContent, UrlContent)) and ending(name) not in _PACKED:
        with _opened_parquet(file, limits) as opened:
            return list(opened.schema_arrow.names)
    if end not in TEXT_TABLE_ENDINGS | JSON_ENDINGS:
        return read_table(file, name, layout, limits).names
    text, encoding, _ = as_utf8(_content_of(file, limits, HEAD), layout.encoding, name)
    if end in JSON_ENDINGS:
        lines = (line for line in text.splitlines() if line.strip())
        return list(_json_fields(next(lines, b"{}"), encoding, limits))
    head = text.decode(errors="replace")
    quote, separator = _layout_of(head, end, layout)
    rows = first_rows(head, separator, quote, _SAMPLE)
    named = has_names(rows) if layout.header is None else layout.header
    return rows[0] if named else [str(k + 1) for k in range(len(rows[0]))]


def _content_of(file: Content, limits: Limits, most: int | None = None) -> bytes:
    """Read a file, decompressed, as long as it is within the limits; at most so many bytes."""
    pieces: list[bytes] = []
    n_bytes = n_packed = 0
    with file.open() as opened:
        codec = _codec_of(opened)
        if codec is not None:
            n_packed = opened.seek(0, os.SEEK_END)
            opened.seek(0)
        for piece in _pieces(opened) if codec is None else _decompressed(opened, codec):
            pieces.append(piece)
            n_bytes += len(piece)
            limits.check("table_bytes", n_bytes, f"it has {readable_size(n_bytes)} and more")
            if codec is not None and n_bytes > _PART:
                limits.check("ratio", n_bytes / n_packed, f"it becomes {n_bytes / n_packed:.0f} times larger")
            if most is not None and n_bytes >= most:
                break
    return b"".join(pieces)[:most]


def _format_of(content: bytes) -> str:
    """Return the ending of files with this content: objects of JSON, a sheet, fields between separators, or lines."""
    if content.startswith(b"PK\3\4"):
        return ".xlsx"
    if _OBJECT.match(content):
        return ".jsonl"
    if _LIST.match(content):
        raise BagwiseError("it is a list of JSON objects. Write one object in each line of a .jsonl file")
    head = content[:HEAD].decode("utf-8-sig", errors="replace")
    for separator, end in (("\t", ".tsv"), (separator_of(head), ".csv")):
        rows = first_rows(head, separator, '"', _SAMPLE)
        if len(rows[0]) > 1 and {len(row) for row in rows} == {len(rows[0])}:
            return end
    return _LINES


def _lines(text: bytes, encoding: str, notes: Sequence[str], limits: Limits) -> Table:
    """Return the lines of a file that are not empty as the column text."""
    whole = text.decode("utf-8", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")
    lines = [line for line in whole.split("\n") if line.strip()]  # splitlines() would end them elsewhere, too
    limits.check("rows", len(lines), f"it has {len(lines):,} lines")
    wrong = {k: str(undecodable(line, encoding)) for k, line in enumerate(lines) if _SURROGATE.search(line)}
    good = [k for k in range(len(lines)) if k not in wrong]
    columns = arrow().table({"text": arrow().array([lines[k] for k in good], arrow().large_string())})
    bad = tuple((k + 1, reason) for k, reason in wrong.items())
    return Table(columns, [k + 1 for k in good], bad, has_names=False, notes=tuple(notes))


def _pieces(file: Any, n_bytes: int = _PART) -> Iterator[bytes]:
    while piece := file.read(n_bytes):
        yield piece


def _codec_of(file: Any) -> str | None:
    head = file.read(4)
    file.seek(0)
    return next((name for name, mark in _PACKED.values() if head.startswith(mark)), None)


def _decompressed(file: Any, codec: str) -> Iterator[bytes]:
    try:
        with arrow().CompressedInputStream(arrow().PythonFile(file, "r"), codec) as stream:
            yield from _pieces(stream, _UNPACKED)  # pyarrow does not free a piece that it cannot decompress
    except (arrow().ArrowException, OSError) as error:
        raise BagwiseError(f"its compression ({codec}) is damaged, or cannot be read: {error}") from error


def _from_rows(
    rows: Iterable[list[str] | BagwiseError], name: str, layout: Layout, limits: Limits, notes: Sequence[str]
) -> Table:
    """Make a table of rows of strings; those that are not as wide as the first one are bad."""
    first: list[str] | None = None
    good: list[list[str]] = []
    places: list[int] = []
    bad: list[tuple[int, str]] = []
    for number, row in enumerate(rows):
        limits.check("rows", number, f"it has more than {limits.rows:,} rows")
        if isinstance(row, BagwiseError):
            if first is None:
                raise row
            bad.append((number, str(row)))
            continue
        if first is None:
            first = row
            limits.check("columns", len(first), f"it has {len(first):,} columns")
        if len(row) != len(first):
            bad.append((number, f"it has {how_many(len(row), 'fields')}, expected {len(first)}: {shortened(first)}"))
            continue
        good.append(row)
        places.append(number)
        n_bytes = 64 * len(good) * len(first)  # of strings of Python
        limits.check("table_bytes", n_bytes, f"its first rows take {readable_size(n_bytes)}")
    if first is None:
        raise BagwiseError("it is empty")
    columns = [arrow().array(column, arrow().large_string()) for column in zip(*good, strict=True)]
    table = arrow().table(columns, [f"f{k}" for k in range(len(first))])
    return _with_names(table, places, bad, name, layout, notes, limits)


def _with_names(
    table: Any,
    places: Sequence[int],
    bad: Sequence[tuple[int, str]],
    name: str,
    layout: Layout,
    notes: Sequence[str],
    limits: Limits,
) -> Table:
    """Take the names of columns from the first row if it has any, or number the columns."""
    first = [column[0].as_py() for column in table.columns]
    named = layout.header
    if named is None:
        sample = [column.to_pylist() for column in table.slice(0, _SAMPLE).columns]
        named = has_names(list(zip(*sample, strict=True)))
    if named:
        table, places = table.slice(1), places[1:]
        names = _names_of(first, table)
        table = table.select([k for k, one in enumerate(names) if one]).rename_columns([one for one in names if one])
    else:
        table, places = table.rename_columns([str(k + 1) for k in range(len(first))]), [one + 1 for one in places]
        bad = [(number + 1, reason) for number, reason in bad]
        if layout.header is None:
            say = in_python("header=True", "--header")
            what = f"The first line of {name} has no names of columns, which are numbered from 1"
            notes = (*notes, f"{what}; {say} takes it for names.")
    limits.check("rows", table.num_rows, f"it has {table.num_rows:,} rows")
    return Table(table, places, tuple(bad), named, notes=tuple(notes))


def _names_of(cells: Sequence[str], table: Any) -> list[str]:
    """Return names of columns: those without one are called as pandas does, or "" if they have nothing in any row."""
    from pyarrow import compute

    again = [name for name, n in Counter(cells).items() if n > 1 and name]
    if again:
        raise BagwiseError(f"it has columns of the same name: {shortened(cells)}")
    empty = [not compute.max(compute.binary_length(column)).as_py() for column in table.columns]
    return [cell or ("" if none else f"Unnamed: {k}") for k, (cell, none) in enumerate(zip(cells, empty, strict=True))]


def _sheet_rows(content: bytes, wanted: str | None, limits: Limits) -> tuple[list[list[str]], tuple[str, ...]]:
    """Read the rows of a sheet of an Excel file as strings, and say which sheet if there are several."""
    excel = require("openpyxl", "excel", "Reading Excel files")
    n_characters = 0
    rows: list[list[str]] = []
    try:
        file = io.BytesIO(content)
        check_zip(file, "it", limits)  # a workbook is a zip file
        file.seek(0)
        book = excel.load_workbook(file, read_only=True, data_only=True)
        sheet, notes = _chosen_sheet(book, wanted)
        sheet.reset_dimensions()  # what a file says about its size may be wrong
        for row in _filled_rows(sheet.iter_rows(values_only=True), limits):
            rows.append(row)
            # cells may repeat a long text of the workbook
            n_characters += sum(map(len, row))
            what = f"its cells have more than {readable_size(limits.member_bytes)}"
            limits.check("member_bytes", n_characters, what)
    except BagwiseError:
        raise
    except _EXCEL_DAMAGES as error:
        raise BagwiseError(f"it is not an Excel file (.xlsx), or damaged: {error}") from error
    return rows, notes


def _chosen_sheet(book: Any, wanted: str | None) -> tuple[Any, tuple[str, ...]]:
    sheets = list(book.worksheets)
    names = [sheet.title for sheet in sheets]
    if not sheets:
        raise BagwiseError("it has no sheets of cells")
    if wanted is not None:
        if wanted in names:
            return sheets[names.index(wanted)], ()
        if wanted.isdecimal() and 1 <= int(wanted) <= len(sheets):
            return sheets[int(wanted) - 1], ()
        raise BagwiseError(f"there is no sheet {wanted!r}; there are {shortened(names)}")
    first = next((sheet for sheet in sheets if sheet.sheet_state == "visible"), sheets[0])
    if len(sheets) == 1:
        return first, ()
    others = shortened([name for name in names if name != first.title])
    return first, (f"The sheet {first.title!r} was read; {argument('sheet')} chooses another: {others}.",)


def _filled_rows(rows: Iterable[Sequence[Any]], limits: Limits) -> Iterator[list[str]]:
    """Yield the rows that are not empty, as wide as the first of them: names of columns are there."""
    width, n_cells = None, 0
    for number, row in enumerate(rows):
        # a file may claim any number of a row, and all before it would be empty ones
        if number >= _EXCEL_ROWS:
            raise BagwiseError(f"it has rows beyond {_EXCEL_ROWS:,}, the last one of Excel")
        limits.check("rows", number, f"it has more than {limits.rows:,} rows")
        n_cells += len(row)
        limits.check("member_bytes", 8 * n_cells, f"it has {n_cells:,} cells and more, of 8 bytes at least")
        cells = ["" if value is None else _cell(value) for value in row]
        while cells and cells[-1] == "" and (width is None or len(cells) > width):
            cells.pop()
        if not any(cells):
            continue
        width = len(cells) if width is None else width
        yield cells + [""] * (width - len(cells))


def _cell(value: Any) -> str:
    """Write a cell: dates as in ISO 8601, whole numbers without a point."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, datetime):
        return str(value.date()) if value.time() == time(0) else value.isoformat(" ")
    text = value.isoformat() if isinstance(value, (date, time)) else str(value)
    return text.encode("utf-8", "replace").decode()


# --------------------------------------------------------------------------------------------------------------------
# JSON lines
# --------------------------------------------------------------------------------------------------------------------


def _read_json(text: bytes, encoding: str, notes: Sequence[str], limits: Limits) -> Table:
    """Read objects, one a line. In columns of strings null is an empty one; a field that a record lacks is missing."""
    columns: dict[str, tuple[list[int], list[Any]]] = {}
    bad: list[tuple[int, str]] = []
    numbers: list[int] = []
    number = 0
    for line in io.BytesIO(text):
        if not line.strip():
            continue
        number += 1
        limits.check("rows", number, f"it has more than {limits.rows:,} records")
        try:
            fields = _json_fields(line, encoding, limits)
        except BagwiseError as error:
            bad.append((number, str(error)))
            continue
        for name, value in fields.items():
            rows, values = columns.setdefault(name, ([], []))
            rows.append(len(numbers))
            values.append(value)
        numbers.append(number)
        limits.check("columns", len(columns), f"its records have {len(columns):,} different fields")
        n_bytes = 8 * len(columns) * len(numbers)
        limits.check("table_bytes", n_bytes, f"its fields take {readable_size(n_bytes)} and more")
    if not numbers:
        raise BagwiseError(f"none of its lines is an object; the first: {bad[0][1]}" if bad else "it is empty")
    arrays = {name: column_of_values(values) for name, (_, values) in columns.items()}
    unread = {name: "objects or lists of lists" for name, column in arrays.items() if column is None}
    filled = {
        name: _spread(column, columns[name][0], len(numbers)) for name, column in arrays.items() if column is not None
    }
    return Table(arrow().table(filled), numbers, tuple(bad), unread=unread, notes=tuple(notes))


def _spread(column: Any, rows: list[int], n_rows: int) -> Any:
    """Return a column of some rows as one of all; strings that are null become empty, others are missing."""
    if arrow().types.is_large_string(column.type):
        column = column.fill_null("")
    if len(rows) == n_rows:
        return column
    places = np.full(n_rows, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return column.take(arrow().array(places, mask=places < 0))


def _json_fields(line: bytes, encoding: str, limits: Limits) -> dict[str, Any]:
    if len(line) > limits.text_bytes:
        raise limits.exceeded("text_bytes", f"it has {readable_size(len(line))}")
    text = line.decode("utf-8", "surrogateescape")
    if _SURROGATE.search(text):
        raise undecodable(text, encoding)
    try:
        fields = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise BagwiseError(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BagwiseError(f"it is a JSON {type(fields).__name__}, expected an object with named fields")
    return {_clean(name): value for name, value in fields.items()}


def _clean(text: str) -> str:
    """Replace halves of pairs of surrogates, which are no characters."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text


def column_of_values(values: list[Any]) -> Any | None:
    """Make a column of values of JSON or of a data base: strings if kinds differ, lists if some are; None if nested."""
    kinds = {type(value) for value in values} - {type(None)}
    if list in kinds:
        lists = [value if isinstance(value, list) else [] if value is None else [value] for value in values]
        if dict in kinds or any(isinstance(one, (list, dict)) for some in lists for one in some):
            return None
        texts = [[_clean(str(one)) for one in some if one is not None] for some in lists]
        return arrow().array(texts, arrow().large_list(arrow().large_string()))
    if kinds & {dict, bytes}:
        return None
    if kinds <= {float, int} or kinds == {bool}:
        try:
            return arrow().array(values)
        except (OverflowError, arrow().ArrowException):  # whole numbers of more than 64 bits
            pass
    strings = [None if value is None else _clean(value if isinstance(value, str) else str(value)) for value in values]
    return arrow().array(strings, arrow().large_string())


# --------------------------------------------------------------------------------------------------------------------
# Parquet and SQLite
# --------------------------------------------------------------------------------------------------------------------


@contextmanager
def _opened_parquet(path: str | File, limits: Limits, **options: Any) -> Iterator[Any]:
    """Open a file, and check what it says of its rows and columns; all that pyarrow raises is an error of ours."""
    if isinstance(path, UrlContent):
        with path.open() as remote, _opened_parquet(remote, limits, **options) as file:  # type: ignore[arg-type]
            yield file
        return
    path = path.path if isinstance(path, FileContent) else path
    parquet = require("pyarrow.parquet", "app", "Reading Parquet files")
    pool = arrow().default_memory_pool()
    try:
        arrow().set_memory_pool(arrow().system_memory_pool())  # Arrow's own keeps half as much again
        try:
            opened = parquet.ParquetFile(path, pre_buffer=False, **options)
        finally:
            arrow().set_memory_pool(pool)
        with opened as file:
            about = file.metadata
            n_rows, groups = about.num_rows, [about.row_group(k) for k in range(about.num_row_groups)]
            if sum(group.num_rows for group in groups) != n_rows or any(group.num_rows < 0 for group in groups):
                raise BagwiseError(f"it is damaged: it claims {n_rows} rows, which its parts do not have.")
            limits.check("columns", about.num_columns, f"it has {about.num_columns:,} columns")
            limits.check("rows", n_rows, f"it claims {n_rows:,} rows")
            n_bytes = max(8 * n_rows * about.num_columns, sum(group.total_byte_size for group in groups))
            limits.check("table_bytes", n_bytes, f"it claims {readable_size(n_bytes)}")
            yield file
    except (arrow().ArrowException, OSError, UnicodeDecodeError) as error:
        raise BagwiseError(f"it is not a Parquet file, or damaged: {error}") from error


def _read_parquet(file: Content, chosen: Sequence[str] | None, limits: Limits) -> Table:
    """Read columns of values and of lists of them, by default all; strings that few values repeat are held once each.

    Strings that mostly differ are read as they are: codes of them take a hundred times as long. Of others a batch would
    take the memory of all, which may repeat a long one in each row; it may not take more than 256 MiB of the first.
    """
    content: Any = file
    if not isinstance(file, (FileContent, UrlContent)) or ending(file.source) in _PACKED:
        content = arrow().BufferReader(_content_of(file, limits))
    with _opened_parquet(content, limits) as opened:
        fields = list(opened.schema_arrow)
    unread = {one.name: str(one.type) for one in fields if is_nested(one.type)}
    fields = [one for one in fields if one.name not in unread]
    names = [one.name for one in fields]
    if len(set(names)) < len(names):
        raise BagwiseError(f"it has columns of the same name: {shortened(names)}")
    left_out = tuple(name for name in names if chosen is not None and name not in chosen)
    fields = [one for one in fields if one.name not in left_out]
    names = [one.name for one in fields]
    texts = [one.name for one in fields if _is_text(one.type)]
    many, n_rows = _many_values(content, texts, limits)
    few = [name for name in names if name not in many]
    parts: dict[str, list[Any]] = {name: [] for name in names}
    n_bytes = 0
    _rewind(content)
    with _opened_parquet(content, limits, read_dictionary=[*{*few} & {*texts}]) as opened:
        for group in range(opened.num_row_groups):
            for size, some in ((_BATCH, few), (n_rows, many)):
                for batch in opened.iter_batches(size, [group], columns=some) if some else ():
                    batch.validate(full=True)
                    n_bytes += batch.nbytes
                    limits.check("table_bytes", n_bytes, f"its first rows take {readable_size(n_bytes)}")
                    for name in some:
                        parts[name].append(batch.column(name))
        columns = {
            one.name: arrow().chunked_array(parts[one.name], None if parts[one.name] else one.type) for one in fields
        }
        table = arrow().table(columns)  # damaged columns may have different lengths
    give_back_memory()
    return Table(table, range(1, table.num_rows + 1), unread=unread, left_out=left_out)


def _many_values(content: Any, texts: list[str], limits: Limits) -> tuple[list[str], int]:
    """Return the columns of strings that mostly differ, and rows of them to read at a time."""
    from pyarrow import compute

    many, longest = texts, 1
    _rewind(content)
    with _opened_parquet(content, limits, read_dictionary=texts) as opened:
        for group in range(opened.num_row_groups):
            first = next(opened.iter_batches(_BATCH, [group], columns=many), None) if many else None
            if first is not None:
                many = [name for name in many if 2 * len(first.column(name).dictionary) > first.num_rows]
                lengths = (compute.max(compute.binary_length(first.column(name).dictionary)).as_py() for name in many)
                longest = max([longest, *(length or 0 for length in lengths)])
    return many, max(1, min(_LARGE_BATCH, _LONG_BATCH // longest))


def _rewind(content: Any) -> None:
    if hasattr(content, "seek"):
        content.seek(0)


def is_nested(kind: Any) -> bool:
    """Whether a type is nested otherwise than as lists of values."""
    types = arrow().types
    is_list = types.is_list(kind) or types.is_large_list(kind)
    return types.is_nested(kind.value_type if is_list else kind)


def _read_sqlite(file: Content, wanted: str | None, limits: Limits) -> Table:
    """Read a table of a data base. SQL of the file is not run: no views, virtual tables, triggers, computed columns."""
    deadline = Deadline(limits)
    with _as_local(file, limits) as path:
        try:
            with closing(_connected(path, deadline, limits)) as base:
                name, notes = _chosen_table(base, wanted)
                about = base.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
                names = [str(column[1]) for column in about if not column[6]]
                unread = {str(column[1]): "computed by SQL" for column in about if column[6]}
                cursor = base.execute(f"SELECT {', '.join(map(_quoted, names))} FROM {_quoted(name)}")
                rows = _sqlite_rows(cursor, len(names), limits)
        except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:
            deadline.check()
            raise BagwiseError(f"it is not an SQLite file, or damaged: {error}") from error
    numbers = [number for number, row in enumerate(rows, start=1) if row is not None]
    bad = [(number, "it has bytes that are not UTF-8") for number, row in enumerate(rows, start=1) if row is None]
    good = [row for row in rows if row is not None]
    arrays = {one: column_of_values([row[k] for row in good]) for k, one in enumerate(names)}
    unread |= {one: "bytes" for one, column in arrays.items() if column is None}
    table = arrow().table({one: column for one, column in arrays.items() if column is not None})
    return Table(table, numbers, tuple(bad), unread=unread, notes=notes)


def _is_pending(log: str) -> bool:
    """Whether a log of SQLite has changes: rows to write (-wal), or by its first bytes those to take back."""
    if not os.path.isfile(log):
        return False
    with open(log, "rb") as file:
        head = file.read(len(_JOURNAL))
    return bool(head) if log.endswith("-wal") else head == _JOURNAL


@contextmanager
def _as_local(file: Content, limits: Limits) -> Iterator[str]:
    """Give the path of a file, or that of a copy if it is in an archive, by URL or compressed."""
    if isinstance(file, FileContent) and ending(file.path) not in _PACKED:
        log = next(filter(_is_pending, (f"{file.path}-wal", f"{file.path}-journal")), None)
        if log is not None:
            what = "some of its rows are" if log.endswith("-wal") else "what some of its rows were before is"
            raise BagwiseError(
                f"{what} in {os.path.basename(log)} still. Close the program that writes it, or open it in SQLite once "
                "if that program broke off"
            )
        check_size(file.path, limits)
        yield file.path
        return
    with tempfile.NamedTemporaryFile(prefix="bagwise-", suffix=".sqlite") as copy:
        copy.write(_content_of(file, limits))
        copy.flush()
        yield copy.name


def _connected(path: str, deadline: Deadline, limits: Limits) -> sqlite3.Connection:
    """Open a data base for reading alone: no file beside it is read or written, no function is called."""
    with open(path, "rb") as file:
        if file.read(16) != b"SQLite format 3\0":
            raise BagwiseError("it is not an SQLite file")
    base = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)
    try:
        base.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limits.text_bytes, 2**31 - 1))
        base.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        base.execute("PRAGMA trusted_schema=OFF")
        base.execute("PRAGMA cell_size_check=ON")
        base.set_progress_handler(deadline.check, _STEPS)
        allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA)
        base.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY)
    except BaseException:
        base.close()
        raise
    return base


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _chosen_table(base: sqlite3.Connection, wanted: str | None) -> tuple[str, tuple[str, ...]]:
    entries = base.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    names = [
        str(name)
        for kind, name, sql in entries
        if kind == "table" and not str(name).startswith("sqlite_") and re.match(r"\s*CREATE\s+TABLE\b", str(sql), re.I)
    ]
    if wanted is not None and wanted not in names:
        views = wanted in [name for kind, name, _ in entries if kind == "view"]
        why = "is a view, which is not read" if views else "is none of its tables"
        raise BagwiseError(f"{wanted!r} {why}; there are {shortened(names) or 'none'}")
    if wanted is None and len(names) != 1:
        choice = f"Choose one by {argument('sheet', names[0])}: {shortened(names)}" if names else "There are none"
        raise BagwiseError(f"it has {len(names)} tables. {choice}")
    return wanted or names[0], ()


def _sqlite_rows(cursor: sqlite3.Cursor, width: int, limits: Limits) -> list[tuple[Any, ...] | None]:
    """Fetch all rows; None for those with bytes of no character."""
    limits.check("columns", width, f"it has {width:,} columns")
    rows: list[tuple[Any, ...] | None] = []
    n_bytes = 0
    while some := cursor.fetchmany(_BATCH):
        for row in some:
            texts = [value for value in row if isinstance(value, str)]
            n_bytes += 64 * width + sum(len(value) for value in row if isinstance(value, (str, bytes)))
            rows.append(None if any(map(_SURROGATE.search, texts)) else row)
        limits.check("rows", len(rows), f"it has more than {limits.rows:,} rows")
        limits.check("table_bytes", n_bytes, f"its first rows take {readable_size(n_bytes)}")
    return rows
