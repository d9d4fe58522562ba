"""Collections of texts in CSV, TSV and JSONL files, one record per item."""

from __future__ import annotations

import csv
import functools
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from bagwise._utils.json_text import parse_json
from bagwise._utils.memory import readable_size
from bagwise._utils.text import agree, unquote_formula
from bagwise.errors import BagwiseError, argument, in_python, unknown_name
from bagwise.sources.collection import Collection
from bagwise.sources.columns import (
    USUAL_LABEL,
    USUAL_TEXT,
    FewValues,
    chosen_column,
    likely_note,
    shortened,
    split_name,
    taken_note,
    usual_column,
)
from bagwise.sources.contents import FileContent, UrlContent
from bagwise.sources.delimited import (
    SHEET_ENDINGS,
    TAB_ENDINGS,
    NoEndError,
    SheetContent,
    as_separator,
    head_of,
    parsed_rows,
    separator_of,
    wrong_row,
)
from bagwise.sources.items import Content, Item, Skipped, check_encoding, check_on_error, decode_text, warn_skipped
from bagwise.sources.limits import Limits, as_limits
from bagwise.sources.places import (
    annotated,
    arrange,
    chosen_endings,
    ending,
    linked_notes,
    list_place,
    nothing_found,
)

__all__ = ["RECORD_ENDINGS", "RecordContent", "RecordDecoder", "RecordFormat", "has_text_column", "open_records"]

JSON_ENDINGS = frozenset([".jsonl", ".ndjson"])
RECORD_ENDINGS = JSON_ENDINGS | TAB_ENDINGS | SHEET_ENDINGS | {".csv"}
# A line of a record counts for so many bytes at least, from some number on: short lines take as long as long ones.
_LINE_BYTES, _FEW_LINES = 64, 1000


class Scanned(NamedTuple):
    """A record of a file: its bytes from `start` to `end`, and what is in it or what is wrong with it."""

    start: int
    end: int
    fields: dict[str, Any] | BagwiseError


@dataclass(frozen=True)
class RecordFormat:
    """Format of a file of records; parses the file, or a single record of it.

    `names` are the columns, and `delimiter` is the character between fields; both are None in JSONL, where every record
    names its fields. `quote` is the character around fields that may hold delimiters and line ends, or None. `encoding`
    None is UTF-8.
    """

    names: tuple[str, ...] | None = None
    delimiter: str | None = None
    quote: str | None = None
    encoding: str | None = None

    @classmethod
    def of(
        cls,
        name: str,
        columns: Sequence[str] | None = None,
        sep: str | None = None,
        quote: str | None = "auto",
        encoding: str | None = None,
        head: str = "",
    ) -> RecordFormat:
        """Choose the format by a file's name, the parameters of `open_records`, and the beginning of the file."""
        check_encoding(encoding)
        if encoding is not None and "\n".encode(encoding) != b"\n":
            raise BagwiseError(
                f"Records are found by lines, which {argument('encoding', encoding)} hides. Convert {name} to UTF-8."
            )
        given = None if quote == "auto" else quote
        if given is not None and (not isinstance(given, str) or len(given) != 1 or given in "\r\n"):
            raise BagwiseError(f"quote must be one character and no line end, got {given!r}.")
        if ending(name) in JSON_ENDINGS:
            if columns is not None or sep is not None:
                named = in_python("columns= and ") + argument("sep")
                raise BagwiseError(f"{named} are for CSV and TSV files, but {name} is JSONL.")
            return cls(encoding=encoding)
        if quote == "auto":
            quote = None if ending(name) in TAB_ENDINGS else '"'
        separator = as_separator(sep) or separator_of(name, head, quote)
        return cls(None if columns is None else tuple(columns), separator, quote, encoding)

    def with_header(self, file: BinaryIO, limits: Limits) -> tuple[RecordFormat, int]:
        """Read the names of columns from the first row if they are unknown; also return where records begin."""
        if self.delimiter is None or self.names is not None:
            return self, 0
        names, start = self.first_row(file, limits)
        named = [name for name in names if name]  # commas at the end of all lines make columns without a name
        if len(set(named)) < len(named):
            raise BagwiseError(f"it has columns of the same name: {shortened(names)}")
        return RecordFormat(tuple(names), self.delimiter, self.quote, self.encoding), start

    def first_row(self, file: BinaryIO, limits: Limits) -> tuple[list[str], int]:
        """Read the first row of a file that is not JSONL; also return where the next one begins."""
        lines = _Lines(file, 0, self, limits)
        try:
            names = next(self._rows(lines), None)
        except csv.Error as error:
            raise self._wrong_row(lines, error) from error
        if not names:
            raise BagwiseError("it is empty, or its first line is: there are no names of columns")
        limits.check("columns", len(names), f"it has {len(names):,} columns")
        return names, lines.position

    def scan(self, file: BinaryIO, start: int, limits: Limits) -> Iterator[Scanned]:
        """Yield all records from the byte `start` on. Empty lines are not records."""
        lines = _Lines(file, start, self, limits)
        records: Iterator[dict[str, Any] | None]
        if self.delimiter is None:
            records = map(_parse_json, lines)
        else:
            records = map(self._named, self._rows(lines))
        while True:
            begin = lines.begin_record()
            found: dict[str, Any] | BagwiseError | None
            try:
                found = next(records)
            except StopIteration:
                return
            except csv.Error as error:
                found = self._wrong_row(lines, error)
                if isinstance(found, NoEndError):
                    raise found from error
            except NoEndError:
                raise
            except BagwiseError as error:
                found = error
            if found is not None:
                yield Scanned(begin, lines.position, found)

    def parse(self, record: bytes, start: int) -> dict[str, Any]:
        """Parse the bytes of one record, which begin at `start` in their file."""
        text = decode_text(record, self.encoding, start)
        if self.delimiter is None:
            fields = _parse_json(text)
        else:
            (row,) = self._rows(io.StringIO(text, newline="\n"))
            fields = self._named(row)
        assert fields is not None  # empty lines were not taken for records
        return fields

    def _rows(self, lines: Iterator[str]) -> Iterator[list[str]]:
        assert self.delimiter is not None
        if self.quote is None:
            return map(self._divide, lines)
        return parsed_rows(lines, delimiter=self.delimiter, quotechar=self.quote, strict=True)

    def _wrong_row(self, lines: _Lines, error: csv.Error) -> BagwiseError:
        assert self.delimiter is not None
        assert self.quote is not None  # other files are not parsed by csv
        advice = in_python("; if quotes are plain characters, pass quote=None", "; or save it as .tsv, without quotes")
        return wrong_row("".join(lines.of_record), self.delimiter, error, lines.number, self.quote, advice)

    def _divide(self, line: str) -> list[str]:
        bare = line.rstrip("\r\n")
        return bare.split(self.delimiter) if bare else []

    def _named(self, row: list[str]) -> dict[str, Any] | None:
        assert self.names is not None
        if not row:
            return None
        if len(row) != len(self.names):
            raise BagwiseError(f"it has {len(row)} fields, expected {len(self.names)}: {shortened(self.names)}")
        return dict(zip(self.names, row, strict=True))


class _Lines(Iterator[str]):
    """The decoded lines of a file. Unlike a generator, it continues after a line that cannot be decoded."""

    def __init__(self, file: BinaryIO, position: int, format: RecordFormat, limits: Limits) -> None:
        self._several = format.quote is not None  # a record may have several lines
        file.seek(0 if self._several else position)
        self.number = 1 + file.read(position).count(b"\n") if self._several else 1  # of the first line of a record
        self.position = position
        self.of_record: list[str] = []
        self.begin_record()
        self._file = file
        self._encoding = format.encoding
        self._limits = limits

    def begin_record(self) -> int:
        """Say that the next line is the first of a record; gives where it begins."""
        self.number += len(self.of_record)
        self.of_record = []
        self._begin, self._n_lines = self.position, 0
        return self._begin

    def __next__(self) -> str:
        most = self._limits.text_bytes
        line = self._file.readline(most + 1)
        if not line:
            raise StopIteration
        start, self.position = self.position, self.position + len(line)
        while len(line) > most and not line.endswith(b"\n"):  # what is left of it is no record either
            line = self._file.readline(most + 1)
            self.position += len(line)
        self._n_lines += 1
        n_bytes, most_lines = self.position - self._begin, max(_FEW_LINES, most // _LINE_BYTES)
        if n_bytes > most or (self._several and self._n_lines > most_lines):
            counted = f"{most_lines:,} lines, which count for {_LINE_BYTES} bytes each at least"
            size = readable_size(most) if n_bytes > most else counted
            error = self._limits.exceeded("text_bytes", f"it has more than {size}")
            if self._several:
                where = f"line {self.number}, byte {self._begin}"
                raise NoEndError(f"the record that begins in {where}, is refused, or has no end: {error}")
            raise error
        self.of_record.append("\n")  # a line that cannot be decoded counts as well
        self.of_record[-1] = decode_text(line, self._encoding, start)
        return self.of_record[-1]


def _parse_json(line: str) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        fields = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise BagwiseError(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BagwiseError(f"it is a JSON {type(fields).__name__}, expected an object with named fields")
    return fields


def open_records(
    path: str | os.PathLike[str],
    *,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    id: str | None = None,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    sep: str | None = None,
    sheet: str | None = None,
    quote: str | None = "auto",
    label_from: str = "auto",
    encoding: str | None = None,
    extensions: Iterable[str] | str | None = None,
    labels: Any = None,
    splits: Any = None,
    on_error: str = "raise",
    limits: Limits | None = None,
) -> Collection:
    r"""Open the records of CSV, TSV, JSONL or Excel files as texts: one file, or all those of a folder or an archive.

    Items stay in the order of their file, files in the order of their names. A file in an archive is decompressed as a
    whole when its records are loaded (the last two files are kept in memory).

    Parameters
    ----------
    path : path
        File, folder, or zip or tar archive.
    text : str or sequence of str, default=None
        Column with the text; several are joined by a line end. By default ``text``, ``body``, ``content`` or
        ``document``, the first of them that is there. Names of all columns are found in any case.
    label : str, default=None
        Column with the label, by default ``label``, ``labels``, ``class``, ``category`` or ``target``. In
        JSONL it may hold a list of labels. An empty one is no label. Without labels, `notes` of the collection name
        the columns with few values, which may hold them.
    id : str, default=None
        Column with the id, by default ``id``. Without it the id is the file's name and the record's number, from 1. Of
        several files the name comes first in any case, as in ``books.csv:17``.
    split : str, default=None
        Column with the split, by default ``split``. Without it, outermost folders named train and test are splits.
    columns : sequence of str, default=None
        Names of the columns of a CSV or TSV file that has no line with them.
    sep : str, default=None
        Character between fields, or its name: "tab", "semicolon". By default a tab in ``.tsv`` and ``.tab``, a comma
        in ``.csv``; or another one, if that one is not in the first line and the other divides all rows alike.
    sheet : str, default=None
        Name of the sheet of an Excel file, or its number from 1; by default the first one. Needs ``bagwise[app]``.
    quote : str or None, default="auto"
        Character around fields, None for none. By default ``"`` in ``.csv`` and none in ``.tsv`` and ``.tab``.
    label_from : {"auto", "column", "folder", "file"}, default="auto"
        Source of labels: the column, the folder of the file, or the name of the file without its ending. "auto": the
        column if there is one, otherwise the folder.
    encoding : str, default=None
        Encoding of the files, of the kind in which a line end is one byte. None is UTF-8.
    extensions : iterable of str, default=None
        Endings of the files of a folder that are taken, by default all that hold records.
    labels : mapping or path, default=None
        Labels given from outside, see `Collection.with_labels`.
    splits : mapping or path, default=None
        Splits given from outside, see `Collection.with_splits`.
    on_error : {"raise", "skip"}, default="raise"
        Whether a record that cannot be parsed raises an error, or is skipped with a `SkippedItemsWarning`.
    limits : Limits, default=None
        What archives may hold, the number of records, and the size of one.

    Returns
    -------
    collection : Collection
        Its items' `load` gives str. `skipped` has the records that were skipped.
    """
    check_on_error(on_error)
    limits = as_limits(limits)
    if label_from not in ("auto", "column", "folder", "file"):
        raise unknown_name("label_from", label_from, ("auto", "column", "folder", "file"))
    listing = list_place(path, limits)
    source, ignored = os.fspath(listing), listing.ignored
    contents = listing.without(labels)
    endings = chosen_endings(extensions, RECORD_ENDINGS)
    names = [
        name for name in contents if ending(name) in RECORD_ENDINGS and (endings is None or ending(name) in endings)
    ]
    if not names:
        raise nothing_found(source, "records", contents, RECORD_ENDINGS)
    if sheet is not None and not any(ending(name) in SHEET_ENDINGS for name in names):
        raise BagwiseError(f"{argument('sheet')} is for Excel files, but {names[0]} is none.")
    wanted = Columns(() if text is None else (text,) if isinstance(text, str) else tuple(text), label, id, split)
    by_folder = dict(zip(names, zip(*arrange(names), strict=True), strict=True))
    items: list[Item] = []
    skipped: list[Skipped] = []
    notes: list[str] = linked_notes(listing)
    beside = FewValues()
    for name in names:
        content = contents[name]
        try:
            if ending(name) in SHEET_ENDINGS:
                content = SheetContent.of(content, sheet, limits)
                format = RecordFormat.of(name, columns, ",")
                notes += content.notes
            else:
                check_encoding(encoding)
                format = RecordFormat.of(name, columns, sep, quote, encoding, head_of(content, encoding))
        except BagwiseError as error:
            raise BagwiseError(f"{content.source} cannot be used: {str(error).rstrip('.')}.") from error
        folder, by_split = by_folder[name]
        by_place = PurePosixPath(name).stem if label_from == "file" else folder
        file = _File(name, content, format, wanted, label_from, by_place, by_split, len(names) > 1, limits)
        for found in file.items(beside, notes):
            if isinstance(found, Item):
                items.append(found)
            elif on_error == "skip":
                skipped.append(found)
            else:
                raise BagwiseError(
                    f"{source} has a record that cannot be used, {found.id}: {found.reason}. "
                    f"Correct it, or skip such records by {argument('on_error', 'skip')}."
                )
            if len(items) + len(skipped) > limits.rows:
                raise limits.exceeded("rows", f"{source} has more than {limits.rows:,} records")
    warn_skipped(skipped, len(items) + len(skipped), source, stacklevel=3)
    if not items:
        has = agree(len(names), "has", "have")
        raise BagwiseError(f"{source} holds no records: {', '.join(names[:3])} {has} no line beyond names of columns.")
    others = sorted([*ignored, *(set(contents) - set(names))])
    classes = {item.labels for item in items} - {()}
    if len(classes) < 2 and label is None and labels is None:
        notes += likely_note(beside.likely, None if not classes else "All items have the same label. ")
    about: dict[str, Any] = {"ignored": others, "notes": notes, "skipped": skipped, "limits": limits}
    return annotated(Collection.of(items, "texts", source, **about), labels, splits)


class Columns(NamedTuple):
    """Names of the columns; None (or no text) where they are unknown."""

    text: tuple[str, ...]
    label: str | None
    id: str | None
    split: str | None

    def found_in(self, names: Iterable[str], *, in_line: bool) -> Columns:
        """Fill in usual names; raise an error if a column is missing. `in_line`: whether names are in a first line."""
        there = list(names)

        def chosen(wanted: str) -> str:
            name = chosen_column(wanted, there)
            if name is None:
                raise BagwiseError(f"there is no column {wanted!r}; there are {shortened(there)}")
            return name

        text = tuple(map(chosen, self.text))
        given = [None if name is None else chosen(name) for name in self[1:]]
        taken = {*text, *(name for name in given if name is not None)}
        if not text:
            text = tuple(filter(None, [usual_column(USUAL_TEXT, there, taken)]))
        if not text:
            named = in_python("name its columns by columns=", "write a line with names of columns before it")
            raise BagwiseError(
                f"none of the columns is named {', '.join(USUAL_TEXT)}; there are {shortened(there)}. "
                f"Choose by {argument('text')}"
                + (f". If the first line of the file is a record already, {named}" if in_line else "")
            )
        usual = (usual_column(known, there, taken) for known in (USUAL_LABEL, ("id",), ("split",)))
        label, id, split = (other if name is None else name for name, other in zip(given, usual, strict=True))
        return Columns(text, label, id, split)


@dataclass(frozen=True)
class _File:
    """A file of records, with the label and split given by its folder or name."""

    name: str
    content: Content
    format: RecordFormat
    wanted: Columns
    label_from: str
    label: str | None
    split: str | None
    prefix: bool
    limits: Limits

    def items(self, beside: FewValues, notes: list[str]) -> Iterator[Item | Skipped]:
        """Yield the item of each record, or why it cannot be used.

        Values of columns that are nothing else are added to `beside`, and which column the labels are to `notes`.
        """
        # members of archives notice changes themselves
        stamp = self.content.stamp() if isinstance(self.content, (FileContent, UrlContent)) else None
        columns = decoder = None
        seen: dict[str, None] = {}
        with self.content.open() as file, self._named_errors():
            try:
                format, start = self.format.with_header(file, self.limits)
                if format.names is not None:
                    columns = self._columns_in(format.names)
                    seen = dict.fromkeys(format.names)
            except BagwiseError as error:
                raise BagwiseError(f"{self.content.source} cannot be used: {error}.") from error
            for number, (first, last, fields) in enumerate(format.scan(file, start, self.limits), start=1):
                try:
                    if isinstance(fields, BagwiseError):
                        raise fields
                    if columns is None:
                        columns = self._columns_in(fields)
                    if not fields.keys() <= seen.keys():  # records of JSON may have fields that others lack
                        seen |= dict.fromkeys(fields)
                        columns = self._with_fields(columns, seen)
                    if decoder is None:
                        decoder = RecordDecoder(format, columns.text)
                    decoder.text_of(fields)
                    inner = self._id_of(fields, columns)
                    labels, split = self._labels_of(fields, columns), self._split_of(fields, columns)
                    if self.wanted.label is None:
                        beside.add(fields, (*columns.text, *columns[1:]))
                except BagwiseError as error:
                    yield Skipped(f"{self.name}:{number}", str(error))
                    continue
                id = f"{self.name}:{number if inner is None else inner}" if self.prefix or inner is None else inner
                yield Item(id, RecordContent(self.content, first, last, number, stamp), decoder, labels, split)
        if columns is not None and self.label_from in ("auto", "column"):
            notes += [note for note in taken_note(columns.label, seen, self.wanted.label) if note not in notes]

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except NoEndError as error:
            raise BagwiseError(f"{self.content.source} cannot be used: {str(error).rstrip('.')}.") from error

    def _with_fields(self, columns: Columns, names: Iterable[str]) -> Columns:
        """Fill in columns of labels and splits that the first records did not have."""
        found = self._columns_in(names)
        label = found.label if columns.label is None else columns.label
        return columns._replace(label=label, split=found.split if columns.split is None else columns.split)

    def _columns_in(self, names: Iterable[str]) -> Columns:
        columns = self.wanted.found_in(names, in_line=self.format.delimiter is not None)
        if self.label_from == "column" and columns.label is None:
            raise BagwiseError(
                f"no column is the label; there are {shortened(list(names))}. Choose one by {argument('label')}"
            )
        return columns

    def _labels_of(self, fields: dict[str, Any], columns: Columns) -> tuple[str, ...]:
        value: Any = self.label
        if columns.label is not None and self.label_from in ("auto", "column"):
            value = fields.get(columns.label)
        if value is None or value == "":
            return ()
        return tuple(map(self._name, value)) if isinstance(value, list) else (self._name(value),)

    def _name(self, value: Any) -> str:
        """Return a label or an id as it was before it was written for programs for tables."""
        if isinstance(value, (dict, list)):
            raise BagwiseError(f"a label or an id is a JSON {type(value).__name__}, expected a string or a number")
        return str(value) if self.format.delimiter is None else unquote_formula(str(value))

    def _id_of(self, fields: dict[str, Any], columns: Columns) -> str | None:
        if columns.id is None:
            return None
        if fields.get(columns.id) in (None, ""):
            raise BagwiseError(f"it has no {columns.id!r}")
        return self._name(fields[columns.id])

    def _split_of(self, fields: dict[str, Any], columns: Columns) -> str | None:
        value = self.split if columns.split is None else fields.get(columns.split)
        return None if value is None or value == "" else split_name(str(value))


@dataclass(frozen=True)
class RecordDecoder:
    """Parses a record and joins its fields of text by line ends."""

    format: RecordFormat
    text: tuple[str, ...]

    def decode(self, content: Content) -> str:
        """Return the text."""
        assert isinstance(content, RecordContent)
        with content.open() as file:
            return self.text_of(self.format.parse(file.read(), content.start))

    def text_of(self, fields: dict[str, Any]) -> str:
        """Join the fields that are text. JSON's null is an empty text."""
        missing = [name for name in self.text if name not in fields]
        if missing:
            raise BagwiseError(f"it has no field {missing[0]!r}; it has {shortened(list(fields))}")
        values = [fields[name] for name in self.text]
        if not all(value is None or isinstance(value, str) for value in values):
            raise BagwiseError(f"its text is not a string: {values!r:.60}")
        return "\n".join(value or "" for value in values)


@dataclass(frozen=True, slots=True)
class RecordContent:
    """The bytes of one record in a file."""

    file: Content
    start: int
    end: int
    number: int
    stamp: tuple[Any, ...] | None

    @property
    def source(self) -> str:
        """The file and the record's number."""
        return f"{self.file.source}:{self.number}"

    def open(self) -> BinaryIO:
        """Read the record's bytes."""
        if not isinstance(self.file, (FileContent, UrlContent)):
            return io.BytesIO(_whole(self.file)[self.start : self.end])
        self.file.check(self.stamp)
        return io.BytesIO(self.file.read(self.start, self.end - self.start))


@functools.lru_cache(maxsize=2)
def _whole(content: Content) -> bytes:
    with content.open() as file:
        return file.read()


def has_text_column(
    name: str,
    content: Content,
    limits: Limits,
    *,
    sep: str | None = None,
    sheet: str | None = None,
    encoding: str | None = None,
) -> bool:
    """Whether a file of records has a column of text by its name. JSONL files are assumed to have one."""
    if ending(name) in JSON_ENDINGS:
        return True
    if ending(name) in SHEET_ENDINGS:
        content, sep, encoding = SheetContent.of(content, sheet, limits), ",", None
    check_encoding(encoding)
    format = RecordFormat.of(name, sep=sep, encoding=encoding, head=head_of(content, encoding))
    with content.open() as file:
        names, _ = format.first_row(file, limits)
    return usual_column(USUAL_TEXT, names) is not None
