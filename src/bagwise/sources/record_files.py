"""How records are written in CSV, TSV and JSONL files, and where in the file each one is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from bagwise.errors import BagwiseError
from bagwise.sources.decoding import check_encoding, decode_text
from bagwise.sources.places import ending

__all__ = ["JSON_ENDINGS", "RECORD_ENDINGS", "RecordFormat", "Scanned"]

JSON_ENDINGS = frozenset([".jsonl", ".ndjson"])
TAB_ENDINGS = frozenset([".tsv", ".tab"])
RECORD_ENDINGS = JSON_ENDINGS | TAB_ENDINGS | {".csv"}


class Scanned(NamedTuple):
    """A record of a file: its bytes from `start` to `end`, and what is in it or what is wrong with it."""

    start: int
    end: int
    fields: dict[str, Any] | BagwiseError


@dataclass(frozen=True)
class RecordFormat:
    """How records are written in a file; can parse it, and one record of it alone.

    Parameters
    ----------
    names : tuple of str or None
        The columns. None in JSONL, where every record names its own.
    delimiter : str or None
        Character between fields. None in JSONL.
    quote : str or None
        Character around fields that may hold delimiters and line ends. None if there is none.
    encoding : str or None
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
        delimiter: str | None = None,
        quote: str | None = "auto",
        encoding: str | None = None,
    ) -> RecordFormat:
        """Choose the format by the ending of a file's name, and by parameters as `open_records` takes them."""
        check_encoding(encoding)
        if encoding is not None and "\n".encode(encoding) != b"\n":
            raise BagwiseError(
                f"Records are found by lines, which encoding={encoding!r} hides. Convert {name} to UTF-8."
            )
        for what, given in (("delimiter", delimiter), ("quote", None if quote == "auto" else quote)):
            if given is not None and (not isinstance(given, str) or len(given) != 1 or given in "\r\n"):
                raise BagwiseError(f"{what} must be one character and no line end, got {given!r}.")
        if ending(name) in JSON_ENDINGS:
            if columns is not None or delimiter is not None:
                raise BagwiseError(f"columns= and delimiter= are for CSV and TSV files, but {name} is JSONL.")
            return cls(encoding=encoding)
        tabs = ending(name) in TAB_ENDINGS
        return cls(
            None if columns is None else tuple(columns),
            delimiter if delimiter is not None else ("\t" if tabs else ","),
            (None if tabs else '"') if quote == "auto" else quote,
            encoding,
        )

    def with_header(self, file: BinaryIO) -> tuple[RecordFormat, int]:
        """Read the names of the columns from the file's first row if they are not known, and say where it ends."""
        if self.delimiter is None or self.names is not None:
            return self, 0
        lines = _Lines(file, 0, self.encoding)
        try:
            names = next(self._rows(lines), None)
        except csv.Error as error:
            raise BagwiseError(f"its first line cannot be parsed: {error}") from error
        if not names:
            raise BagwiseError("it is empty, or its first line is: there are no names of columns")
        if len(set(names)) < len(names):
            raise BagwiseError(f"it has columns of the same name: {shortened(names)}")
        return RecordFormat(tuple(names), self.delimiter, self.quote, self.encoding), lines.position

    def scan(self, file: BinaryIO, start: int) -> Iterator[Scanned]:
        """Go through all records from a place in a file on. Empty lines are not records."""
        lines = _Lines(file, start, self.encoding)
        records: Iterator[dict[str, Any] | None]
        if self.delimiter is None:
            records = map(_parse_json, lines)
        else:
            records = map(self._named, self._rows(lines))
        while True:
            begin = lines.position
            found: dict[str, Any] | BagwiseError | None
            try:
                found = next(records)
            except StopIteration:
                return
            except csv.Error as error:
                found = BagwiseError(f"it cannot be parsed: {error}")
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
        # The limit is one for the whole process, and too low for texts; sizes are bounded by the file's.
        csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))
        return csv.reader(lines, delimiter=self.delimiter, quotechar=self.quote, strict=True)

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
    """The decoded lines of a file. Goes on after a line that cannot be decoded, which a generator would not."""

    def __init__(self, file: BinaryIO, position: int, encoding: str | None) -> None:
        file.seek(position)
        self.position = position
        self._file = file
        self._encoding = encoding

    def __next__(self) -> str:
        line = self._file.readline()
        if not line:
            raise StopIteration
        start, self.position = self.position, self.position + len(line)
        return decode_text(line, self._encoding, start)


def _parse_json(line: str) -> dict[str, Any] | None:
    if not line.strip():
        return None
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BagwiseError(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BagwiseError(f"it is a JSON {type(fields).__name__}, expected an object with named fields")
    return fields


def shortened(names: Sequence[str]) -> str:
    """List names of columns, which may be whole texts if there is no line with names."""
    return ", ".join(repr(name if len(name) <= 30 else name[:27] + "...") for name in names[:20])
