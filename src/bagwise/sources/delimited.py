"""Files of rows: what is between the fields of CSV files, and Excel sheets as CSV."""

from __future__ import annotations

import csv
import functools
import io
import os
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import chain
from typing import Any, BinaryIO

from bagwise._io.storage import as_place
from bagwise._utils.extras import require
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError, argument
from bagwise.sources.archives import check_zip
from bagwise.sources.columns import shortened
from bagwise.sources.contents import FileContent, UrlContent, as_file, local_copy
from bagwise.sources.items import Content, decode_text
from bagwise.sources.limits import Limits, check_size
from bagwise.sources.parquet import ParquetTable, opened_parquet
from bagwise.sources.places import ending, is_file

__all__ = ["SHEET_ENDINGS", "TAB_ENDINGS", "NoEndError", "SheetContent", "as_separator", "column_names", "is_number"]
__all__ += ["read_rows", "separator_of", "wrong_row"]

TAB_ENDINGS = frozenset([".tsv", ".tab"])
SHEET_ENDINGS = frozenset([".xlsx", ".xlsm"])
_NAMES = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " "}
_OTHERS = (",", ";", "\t", "|")
_EXCEL_ROWS = 1 << 20
# Rows and bytes of a file that are looked at for what is between fields.
_ROWS, _HEAD = 20, 1 << 16


def as_separator(sep: str | None) -> str | None:
    r"""Check the parameter `sep`: one character, or its name, such as "tab"; None: by the file.

    >>> as_separator("tab"), as_separator(";")
    ('\t', ';')
    """
    if sep is None:
        return None
    found = _NAMES.get(sep, sep) if isinstance(sep, str) else sep
    if not isinstance(found, str) or len(found) != 1 or found in '\r\n"':
        raise BagwiseError(f"{argument('sep', sep)} is not one character. Give one such as ';', or tab.")
    return found


def separator_of(name: str, head: str, quote: str | None = '"') -> str:
    r"""Return what is between the fields of a file: the usual character of its ending, or another that plainly is.

    Another one plainly is if the usual one is not in the first line, or all is numbers with decimal commas, and it
    divides all of the first rows into the same number of fields, and no other does. `head` is the beginning of the
    file.

    >>> separator_of("a.csv", "title;stars\ngood, but long;4\n"), separator_of("a.csv", "title\na;b\n")
    (';', ',')
    >>> separator_of("a.csv", "1,5;2,5\n3;4,5\n")
    ';'
    """
    usual = "\t" if ending(name) in TAB_ENDINGS else ","
    is_usual = len(_first_rows(head, usual, quote, 1)[0]) > 1
    found = []
    for other in _OTHERS:
        rows = _first_rows(head, other, quote, _ROWS)
        alike = len(rows[0]) > 1 and {len(row) for row in rows} == {len(rows[0])}
        numbers = other != "," and all(is_number(cell, True) for cell in chain(*rows))
        if alike and (numbers or not is_usual):
            found.append(other)
    return found[0] if len(found) == 1 else usual


def is_number(cell: str, decimal_comma: bool = False) -> bool:
    """Whether a cell is a number, where `decimal_comma` also one such as 1,5.

    >>> is_number("1.5"), is_number("1,5"), is_number("1,5", decimal_comma=True)
    (True, False, True)
    """
    try:
        float(cell.replace(",", ".", 1) if decimal_comma else cell)
    except ValueError:
        return False
    return True


def parsed_rows(lines: Iterable[str], **layout: Any) -> Any:
    """Return ``csv.reader(lines, **layout)`` that takes long fields; how much text there is was checked before."""
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))  # one for the whole process, and too low for texts
    return csv.reader(lines, **layout)


class NoEndError(BagwiseError):
    """Raised for a row that is too long, or has all that is left of a file: where the next one begins is unknown."""


def wrong_row(
    text: str, separator: str, error: csv.Error, line: int = 1, quote: str = '"', advice: str = ""
) -> BagwiseError:
    r"""Build the error for rows that cannot be parsed, which begin in a line: say where the quote in question opens.

    It is a `NoEndError` if a quote is not closed, and there are more lines.

    >>> print(str(wrong_row('a,b\n"c,d\ne,f\n', ",", csv.Error("unexpected end of data"), line=5))[:68])
    the quote " that opens in line 6 is not closed up to the end, line 7
    """
    opens, closes = _open_quote(text, separator, quote)
    if opens is None:
        return BagwiseError(f"line {line} cannot be parsed: {error}")
    first = last = line + text.count("\n", 0, opens)
    if closes is None:
        last = line + text.rstrip("\r\n").count("\n")
        what = "is not closed" if first == last else f"is not closed up to the end, line {last}"
    else:
        what = f"closes within a field, in line {line + text.count(chr(10), 0, closes)}"
    kind = NoEndError if closes is None and first != last else BagwiseError
    return kind(
        f"the quote {quote} that opens in line {first} {what}. Close it, or write {2 * quote} for a quote in a text "
        f"that has {quote} around it{advice}"
    )


def _open_quote(text: str, separator: str, quote: str) -> tuple[int | None, int | None]:
    """Return where the first field opens whose quote is not closed, or not before a separator; and where it closes."""
    field_end = re.compile(f"[{re.escape(separator)}\r\n]")
    at = 0
    while at < len(text):
        if text[at] != quote:
            found = field_end.search(text, at)
            if found is None:
                break
            at = found.end()
            continue
        closes = text.find(quote, at + 1)
        while closes >= 0 and text[closes + 1 : closes + 2] == quote:
            closes = text.find(quote, closes + 2)
        if closes < 0:
            return at, None
        if text[closes + 1 : closes + 2] not in ("", separator, "\r", "\n"):
            return at, closes
        at = closes + 2
    return None, None


def _first_rows(head: str, separator: str, quote: str | None, n: int) -> list[list[str]]:
    """Return the first rows; the last one of a long beginning may be cut off, so it is left out."""
    quoting: dict[str, Any] = {"quotechar": quote} if quote is not None else {"quoting": csv.QUOTE_NONE}
    try:
        rows = [row for row in parsed_rows(io.StringIO(head, newline=""), delimiter=separator, **quoting) if row]
    except csv.Error:
        return [[]]
    return rows[: min(n, max(1, len(rows) - (len(head) >= _HEAD)))] or [[]]


def head_of(content: Content, encoding: str | None) -> str:
    """Return the beginning of a file as text; what cannot be decoded is replaced."""
    with content.open() as file:
        return file.read(_HEAD).decode(encoding or "utf-8-sig", "replace")


@dataclass(frozen=True)
class SheetContent:
    """A sheet of an Excel workbook, as the bytes of a CSV file. Needs ``bagwise[excel]``.

    `sheet` is a name, or a number from 1; None is the first sheet.
    """

    file: Content
    sheet: str | None
    stamp: tuple[Any, ...] | None
    limits: Limits

    @classmethod
    def of(cls, file: Content, sheet: str | None, limits: Limits) -> SheetContent:
        """Make the content of a sheet; changes of the file are noticed later."""
        if isinstance(file, FileContent):
            file = FileContent(os.path.realpath(file.path))  # a sheet is read once, by whatever path
        elif not isinstance(file, UrlContent):
            return cls(file, sheet, None, limits)
        return cls(file, sheet, file.stamp(), limits)

    @property
    def source(self) -> str:
        """The workbook."""
        return self.file.source

    @property
    def notes(self) -> tuple[str, ...]:
        """Which sheet was taken, if there are several and none was chosen."""
        return _as_csv(self)[1]

    def open(self) -> BinaryIO:
        """Open the sheet as CSV."""
        if isinstance(self.file, (FileContent, UrlContent)):
            self.file.check(self.stamp)
        return io.BytesIO(_as_csv(self)[0])


@functools.lru_cache(maxsize=2)
def _as_csv(content: SheetContent) -> tuple[bytes, tuple[str, ...]]:
    excel = require("openpyxl", "excel", "Reading Excel files")
    try:
        with content.file.open() as file:
            check_zip(file, "it", content.limits)  # a workbook is a zip file
            file.seek(0)
            book = excel.load_workbook(file, read_only=True, data_only=True)
            sheet, notes = _chosen_sheet(book, content.sheet)
            sheet.reset_dimensions()  # what a file says about its size may be wrong
            text = io.StringIO(newline="")
            writer = csv.writer(text)
            for row in _filled_rows(sheet.iter_rows(values_only=True), content.limits):
                writer.writerow(row)
                # cells may repeat a long text of the workbook
                what = f"its cells have more than {readable_size(content.limits.member_bytes)}"
                content.limits.check("member_bytes", text.tell(), what)
    except BagwiseError:
        raise
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, LookupError, ValueError, OSError, EOFError,
            SyntaxError, TypeError, AttributeError, ArithmeticError) as error:  # fmt: skip
        raise BagwiseError(f"it is not an Excel file (.xlsx), or damaged: {error}") from error
    return text.getvalue().encode("utf-8", "replace"), notes


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
    """Write a cell: dates as in ISO 8601, whole numbers without a point, true and false as 1 and 0."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, datetime):
        return str(value.date()) if value.time() == time(0) else value.isoformat(" ")
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


def read_rows(
    path: str, limits: Limits, *, sep: str | None = None, sheet: str | None = None, encoding: str | None = None
) -> tuple[list[str], list[list[str]]]:
    """Read a small table, such as a file of labels: CSV, TSV, Excel or Parquet. Returns names of columns, and rows."""
    end = ending(path)
    if end == ".parquet":
        table = ParquetTable.read(path, limits)
        columns = [table.column(i, _cell) for i in range(len(table.names))]
        return table.names, [list(row) for row in zip(*columns, strict=True)]
    check_size(path, limits)
    content: Content = FileContent(path)
    content = SheetContent.of(content, sheet, limits) if end in SHEET_ENDINGS else content
    with content.open() as file:
        text = decode_text(file.read(), encoding if end not in SHEET_ENDINGS else None)
    separator = as_separator(sep) or separator_of(path, text[:_HEAD])
    rows = parsed_rows(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    found: list[list[str]] = []
    try:
        header: list[str] = next(rows, [])
        for row in rows:
            if row and len(row) != len(header):
                raise BagwiseError(f"line {rows.line_num} has {len(row)} fields, the first line has {len(header)}")
            if row:
                found.append(row)
                limits.check("rows", len(found), f"it has more than {limits.rows:,} rows")
    except csv.Error as error:
        raise wrong_row(text, separator, error) from error
    return header, found


def column_names(
    path: Any, limits: Limits, *, sep: str | None = None, sheet: str | None = None, encoding: str | None = None
) -> list[str]:
    """Return the names in the first line of a CSV, TSV or Excel file, or the columns of a Parquet or AnnData file.

    None for others, such as folders.
    """
    path = as_place(path)
    end = ending(os.fspath(path))
    if end == ".h5ad" and is_file(path):
        from bagwise.sources.h5ad import obs_columns  # deferred: it reads tables by this module

        with local_copy(path, limits) as local:
            return obs_columns(local, limits)
    if end not in (".csv", ".parquet", *TAB_ENDINGS, *SHEET_ENDINGS) or not is_file(path):
        return []
    content: Content = as_file(path)
    if end == ".parquet":
        with opened_parquet(as_file(path), limits) as file:
            return list(file.schema_arrow.names)
    if end in SHEET_ENDINGS:
        content, sep, encoding = SheetContent.of(content, sheet, limits), ",", None
    head = head_of(content, encoding)
    separator = as_separator(sep) or separator_of(os.fspath(path), head)
    return _first_rows(head, separator, '"', 1)[0]
