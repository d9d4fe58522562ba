"""Rows of CSV and TSV files: what is between and around their fields, parsed at once or row by row."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bagwise._utils.extras import require
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError, argument, in_python
from bagwise.sources.encodings import undecodable
from bagwise.sources.limits import Limits
from bagwise.sources.roles import USUAL

__all__ = ["HEAD", "MISSING", "as_separator", "first_rows", "has_names", "is_number", "parsed_at_once", "parsed_rows"]
__all__ += ["quote_of", "separator_of"]

_SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " "}
_OTHERS = (",", ";", "\t", "|")
# Spaces in a text that is no name of the only column.
_WORDS = 4
# Times that a column has its first cell again, if that is a class and not a usual name.
_TIMES = 2
# Bytes and rows of a file that are looked at, and bytes that are parsed at a time.
HEAD, _ROWS, _BLOCK = 1 << 16, 20, 1 << 24
# Cells that say that a number is missing.
MISSING = ("", "NA", "N/A", "#N/A", "na", "n/a", "NaN", "nan", "NAN", "null", "NULL", "Null", "None", "none", "?", "-")
_SURROGATE = re.compile("[\udc80-\udcff]")
# Names of columns in files of any use, in lower case.
_USUAL = {name for names in USUAL.values() for name in names} | {"filename", "file", "path"}


def as_separator(sep: str | None) -> str | None:
    r"""Check the parameter `sep`: one character, or its name, such as "tab"; None: by the file.

    >>> as_separator("tab"), as_separator(";")
    ('\t', ';')
    """
    if sep is None:
        return None
    separator = _SEPARATORS.get(sep, sep) if isinstance(sep, str) else sep
    if not isinstance(separator, str) or len(separator) != 1 or separator in '\r\n"' or not separator.isascii():
        raise BagwiseError(f"{argument('sep', sep)} is not one character. Give one such as ';', or tab.")
    return separator


def quote_of(head: str, quote: str | None, has_tabs: bool) -> str | None:
    """Return what is around fields: in a TSV file nothing, unless all fields of the first line have quotes around."""
    if quote == "auto":
        if not has_tabs:
            return '"'
        first = head.lstrip("\r\n").splitlines()[:1]
        fields = first[0].split("\t") if first else []
        return '"' if fields and all(re.fullmatch('"[^"]*"', one) for one in fields) else None
    if quote is not None and (not isinstance(quote, str) or len(quote) != 1 or quote in "\r\n" or not quote.isascii()):
        raise BagwiseError(f"quote must be one character and no line end, got {quote!r}.")
    return quote


def separator_of(head: str, quote: str | None = '"', usual: str = ",") -> str:
    r"""Return what is between the fields of a file: the usual character, or another that plainly is.

    Another one plainly is if the usual one is not in the first line, or all is numbers with decimal commas, and it
    divides all of the first rows into the same number of fields, and no other does. `head` is the beginning of the
    file.

    >>> separator_of("title;stars\ngood, but long;4\n"), separator_of("title\na;b\n")
    (';', ',')
    >>> separator_of("1,5;2,5\n3;4,5\n")
    ';'
    """
    is_usual = len(first_rows(head, usual, quote, 1)[0]) > 1
    dividing = []
    for other in _OTHERS:
        rows = first_rows(head, other, quote, _ROWS)
        alike = len(rows[0]) > 1 and {len(row) for row in rows} == {len(rows[0])}
        numbers = other != "," and all(is_number(cell, True) for row in rows for cell in row)
        if alike and (numbers or not is_usual):
            dividing.append(other)
    return dividing[0] if len(dividing) == 1 else usual


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


def first_rows(head: str, separator: str, quote: str | None, n: int) -> list[list[str]]:
    """Return the first rows; the last one of a long beginning may be cut off, so it is left out."""
    try:
        rows = [row for row in _reader(io.StringIO(head, newline=""), separator, quote, strict=False) if row]
    except csv.Error:
        return [[]]
    return rows[: min(n, max(1, len(rows) - (len(head) >= HEAD)))] or [[]]


def _reader(lines: Iterable[str], separator: str, quote: str | None, strict: bool = True) -> Any:
    """Return a reader of rows that takes long fields; how much text there is was checked before."""
    csv.field_size_limit(max(csv.field_size_limit(), 2**31 - 1))  # one for the whole process, and too low for texts
    quoting: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if quote is None else {"quotechar": quote}
    return csv.reader(lines, delimiter=separator, strict=strict, **quoting)


def _regular(separator: str, quote: str) -> re.Pattern[bytes]:
    """Return what matches text in which every quoted field ends before a separator or the end of a line."""
    s, q = re.escape(separator.encode()), re.escape(quote.encode())
    quoted = rb"%b(?:[^%b]++|%b%b)*+%b(?=[%b\r\n]|\Z)" % (q, q, q, q, q, s)
    return re.compile(rb"(?:%b|[^%b%b\r\n][^%b\r\n]*+|[%b\r\n])*+" % (quoted, q, s, s, s))


def parsed_at_once(text: bytes, separator: str, quote: str | None, limits: Limits) -> Any | None:
    """Parse a regular file by pyarrow to columns of strings f0, f1, …; None if it is not regular."""
    arrow = require("pyarrow", "app", "Reading tables")
    from pyarrow import compute
    from pyarrow import csv as arrow_csv

    if quote is not None and quote.encode() in text and not _regular(separator, quote).fullmatch(text):
        return None
    if quote is None and b"\n" in text and text.count(b"\r") > text.count(b"\r\n"):
        return None  # within fields; pyarrow takes them for ends of lines
    lines = io.TextIOWrapper(io.BytesIO(text), encoding="utf-8", errors="replace", newline="")
    first: list[str] = next((row for row in _reader(lines, separator, quote, strict=False) if row), [])
    limits.check("columns", len(first), f"it has {len(first):,} columns")
    if not first:
        return None
    n_bytes = len(text) + 4 * (text.count(separator.encode()) + text.count(b"\n"))
    limits.check("table_bytes", n_bytes, f"its cells take {readable_size(n_bytes)}")
    names = [f"f{k}" for k in range(len(first))]
    try:
        table = arrow_csv.read_csv(
            arrow.BufferReader(text),
            arrow_csv.ReadOptions(use_threads=False, block_size=_BLOCK, column_names=names),
            arrow_csv.ParseOptions(
                delimiter=separator, quote_char=quote or False, double_quote=True, newlines_in_values=quote is not None
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, arrow.string()), strings_can_be_null=False, check_utf8=True
            ),
        )
    except arrow.ArrowException:
        return None
    longest = max((compute.max(compute.binary_length(one)).as_py() or 0 for one in table.columns), default=0)
    return table if longest <= limits.text_bytes else None


def parsed_rows(
    text: bytes, encoding: str, separator: str, quote: str | None, limits: Limits
) -> Iterator[list[str] | BagwiseError]:
    """Yield the rows of a file one by one, or what is wrong with them; empty lines are none."""
    decoded = io.StringIO(text.decode("utf-8", "surrogateescape"), newline="" if quote is not None else "\n")
    lines = _Lines(decoded)
    rows = _reader(lines, separator, quote) if quote is not None else _divided(lines, separator)
    while True:
        lines.begin_row()
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield _wrong_row("".join(lines.of_row), separator, error, lines.first, quote or '"')
            continue
        if not row:
            continue
        if _SURROGATE.search("".join(row)):
            yield undecodable("".join(row), encoding)
        elif (n_bytes := sum(len(line.encode(errors="replace")) for line in lines.of_row)) > limits.text_bytes:
            yield limits.exceeded("text_bytes", f"it has {readable_size(n_bytes)}")
        else:
            yield row


def _divided(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    for line in lines:
        bare = line.rstrip("\r\n")
        yield bare.split(separator) if bare else []


class _Lines(Iterator[str]):
    """Lines of a file, and those of the last row."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self.first, self.of_row = 1, list[str]()

    def begin_row(self) -> None:
        """Say that the next line is the first of a row."""
        self.first += len(self.of_row)
        self.of_row = []

    def __next__(self) -> str:
        self.of_row.append(next(self._lines))
        return self.of_row[-1]


def _wrong_row(text: str, separator: str, error: csv.Error, line: int, quote: str) -> BagwiseError:
    """Return the error for a row that cannot be parsed, which begins in a line: say where the quote in question opens.

    Raise it if a quote is not closed, and there are more lines: then it is unknown where the next row begins.
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
    advice = in_python("; if quotes are plain characters, pass quote=None", "; or save it as .tsv, without quotes")
    wrong = BagwiseError(
        f"the quote {quote} that opens in line {first} {what}. Close it, or write {2 * quote} for a quote in a text "
        f"that has {quote} around it{advice}"
    )
    if closes is None and first != last:
        raise wrong from error
    return wrong


def _open_quote(text: str, separator: str, quote: str) -> tuple[int | None, int | None]:
    """Return where the first field opens whose quote is not closed, or not before a separator; and where it closes."""
    field_end = re.compile(f"[{re.escape(separator)}\r\n]")
    at = 0
    while at < len(text):
        if text[at] != quote:
            end = field_end.search(text, at)
            if end is None:
                break
            at = end.end()
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


def _goes_on(cell: str, below: Sequence[str]) -> bool:
    """Whether a number is the first of its column rather than a name, such as a year: a fraction, or counted on."""
    if not below or not all(is_number(one, decimal_comma=True) for one in below):
        return False
    whole = re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", cell)
    return whole is None or below[0].strip() == str(int(cell) + 1)


def has_names(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has names of columns, by its cells and those of the next rows.

    1. A row of numbers has none; unless they count the columns, from 0 or 1.
    2. A usual name, such as text or label, is one, unless its column has it often, as classes are.
    3. Nor has a row whose only number is above numbers, and has a fraction or is followed by the next one.
    4. A string above numbers is a name.
    5. A cell that is in its column again is none, nor is one of several words in the only column.

    >>> has_names([["ham", "see you"], ["spam", "win"], ["ham", "ok"]]), has_names([["a", "b"], ["1", "2"]])
    (False, True)
    """
    first = rows[0]
    filled = [cell.strip() for cell in first if cell.strip()]
    numbers = [cell for cell in filled if is_number(cell, decimal_comma=True)]
    counts = ([str(k) for k in range(start, len(numbers) + start)] for start in (0, 1))
    if len(numbers) > 3 and numbers in counts:
        return True
    if len(numbers) == len(filled):
        return not filled
    columns = [(cell, below) for cell, *below in zip(*[row for row in rows if len(row) == len(first)], strict=True)]
    if any(cell.strip().casefold() in _USUAL and below.count(cell) < _TIMES for cell, below in columns):
        return True
    if len(numbers) == 1 and any(_goes_on(cell, below) for cell, below in columns if cell.strip() in numbers):
        return False
    again = len(first) == 1 and first[0].count(" ") >= _WORDS and not first[0].rstrip().endswith((":", "?"))
    for cell, below in columns:
        there = {one for one in below if one not in MISSING}
        if cell.strip() and there and not is_number(cell, True) and all(is_number(one, True) for one in there):
            return True
        again = again or (bool(cell.strip()) and cell in there)
    return not again
