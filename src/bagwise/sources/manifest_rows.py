"""Rows of manifests: read when they are asked for, or packed in memory."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._io.storage import STORES, Url
from bagwise._utils.extras import require
from bagwise._utils.text import unquote_formula
from bagwise.errors import BagwiseError, argument
from bagwise.sources.columns import USUAL_LABEL, chosen_column, shortened, split_name, usual_column
from bagwise.sources.contents import File, FileContent, as_file
from bagwise.sources.delimited import head_of
from bagwise.sources.limits import Limits
from bagwise.sources.parquet import opened_parquet
from bagwise.sources.places import ending
from bagwise.sources.records import JSON_ENDINGS, RecordFormat
from bagwise.sources.row_lists import Coded, LazyList

__all__ = ["USUAL_URL", "Found", "ManifestFile", "Row", "first_rows", "read_rows"]

USUAL_URL = ("url", "uri")
_EMPTY = "it has no rows, only names of columns"
# Rows that are decoded at a time, and groups of rows that are kept.
_ROWS, _GROUPS = 1 << 16, 4
# What a manifest that comes by URL may not name: paths of this machine and those that lead out of its folder; and URLs,
# unless they are of stores and servers, or of files in archives there. (Others, such as caches, open local files.)
_LOCAL = r"^(file:|local:|[/\\]|[A-Za-z]:[/\\])|(^|[/\\])\.\.([/\\]|$)"
_ABSOLUTE = r"^[A-Za-z][A-Za-z0-9+.-]*:(//|:)|::"
_SERVERS = (STORES - {"memory"}) | {"http", "https", "ftp"}


@dataclass(frozen=True)
class ManifestFile(os.PathLike[str]):
    """A file that is a manifest, and how it is read."""

    place: Any
    label: str | None = None
    id: str | None = None
    split: str | None = None
    sep: str | None = None
    options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)  # of the file systems of its URLs

    def __fspath__(self) -> str:
        return os.fspath(self.place)


class Row(NamedTuple):
    """What a manifest says about the bytes of an item; `offset` and `size` are of a part of a file."""

    id: str
    url: str
    size: int | None
    offset: int | None


class _Columns(NamedTuple):
    """Names of the columns of a manifest; None for those that are not there."""

    url: str
    id: str | None
    label: str | None
    split: str | None
    size: str | None
    offset: str | None

    @classmethod
    def found_in(cls, names: Sequence[str], file: ManifestFile) -> _Columns:
        """Find columns as told, or by their usual names."""

        def column(wanted: str | None, *usual: str) -> str | None:
            name = usual_column(usual, names) if wanted is None else chosen_column(wanted, names)
            if name is None and wanted is not None:
                raise BagwiseError(f"there is no column {wanted!r}; there are {shortened(names)}")
            return name

        label, split, id = column(file.label, *USUAL_LABEL), column(file.split, "split"), column(file.id, "id")
        url = column(None, *USUAL_URL)
        if url is None:
            raise BagwiseError(f"none of its columns is named url; there are {shortened(names)}")
        offset, size = column(None, "offset"), column(None, "size")
        if offset is not None and (size is None or id is None):
            raise BagwiseError("it has a column offset, of parts of files, which needs columns size and id as well")
        return cls(url, id, label, split, size, offset)

    @property
    def of_rows(self) -> list[str]:
        """The columns that `Row` is made of, each once."""
        return list(dict.fromkeys(name for name in (self.id, self.url, self.size, self.offset) if name is not None))


def first_rows(file: ManifestFile, limits: Limits, n: int) -> list[Row]:
    """Return the first rows of a manifest."""
    if ending(os.fspath(file)) != ".parquet":
        return _some([row for (row, _, _), _ in zip(_text_rows(file, limits), range(n), strict=False)])
    with opened_parquet(as_file(file.place), limits) as opened:
        columns = _Columns.found_in(opened.schema_arrow.names, file)
        _check_types(opened.schema_arrow, columns)
        batch = next(opened.iter_batches(n, columns=columns.of_rows), None)
        if batch is None:
            return _some([])
        _check_batch(batch, columns, file.place)
        return list(_rows_of(batch, columns))


def _some(rows: list[Row]) -> list[Row]:
    if not rows:
        raise BagwiseError(_EMPTY)
    return rows


def read_rows(file: ManifestFile, limits: Limits) -> Found:
    """Read a manifest: labels and splits of all rows; the rows of a Parquet file themselves later."""
    return _read_parquet(file, limits) if ending(os.fspath(file)) == ".parquet" else _read_text(file, limits)


class Found(NamedTuple):
    """What was read of a manifest; `files` numbers the files that parts are in, None if items are whole files."""

    rows: LazyList[Row]
    labels: Coded[str]
    splits: Coded[str | None]
    files: NDArray[np.int32] | None


class _Coding:
    """Numbers the different values of a column while it is read."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._parts: list[NDArray[np.int32]] = []

    def add(self, values: Iterable[str]) -> None:
        known = self._known
        self._parts.append(np.fromiter((known.setdefault(one, len(known)) for one in values), np.int32))

    def add_coded(self, values: Sequence[str], codes: NDArray[Any]) -> None:
        """Add values by their numbers in a list."""
        numbers = np.fromiter((self._known.setdefault(one, len(self._known)) for one in values), np.int32)
        self._parts.append(numbers[codes])

    def coded(self, change: Callable[[str], Any] = str) -> Coded[Any]:
        codes = np.concatenate(self._parts) if self._parts else np.empty(0, np.int32)
        return Coded([change(value) for value in self._known], codes)


def _split(value: str) -> str | None:
    return split_name(value) if value else None


class _Ids:
    """Finds out whether ids differ, by a hash of 8 bytes for each."""

    def __init__(self) -> None:
        self._hashes: list[NDArray[np.int64]] = []

    def add(self, ids: Iterable[str]) -> None:
        self._hashes.append(np.fromiter(map(hash, ids), np.int64))

    def check(self, rows: Sequence[Row], what: str) -> None:
        """Raise an error if two ids are equal."""
        hashes = np.sort(np.concatenate(self._hashes)) if self._hashes else np.empty(0, np.int64)
        twice = set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())
        if not twice:
            return
        seen: dict[str, int] = {}
        for number, row in enumerate(rows):
            if hash(row.id) in twice and seen.setdefault(row.id, number) != number:
                first = seen[row.id]
                raise BagwiseError(
                    f"rows {first + 1} and {number + 1} have the same {what}, {row.id!r:.100}. Remove one, or give a "
                    f"column of ids by {argument('id')}"
                )


def _read_parquet(file: ManifestFile, limits: Limits) -> Found:
    content = as_file(file.place)
    if isinstance(content, FileContent):
        content = FileContent(os.path.abspath(content.path))  # so that other processes find it
    stamp = content.stamp()
    labels, splits, ids = _Coding(), _Coding(), _Ids()
    last: str | None = None
    n_files, files = 0, []
    with opened_parquet(content, limits) as opened:
        columns = _Columns.found_in(opened.schema_arrow.names, file)
        _check_types(opened.schema_arrow, columns)
        about = opened.metadata
        starts = np.cumsum([0, *(about.row_group(k).num_rows for k in range(about.num_row_groups))])
        wanted = [*columns.of_rows, *(name for name in (columns.label, columns.split) if name is not None)]
        for batch in opened.iter_batches(_ROWS, columns=list(dict.fromkeys(wanted))):
            urls = batch.column(columns.url)
            _check_batch(batch, columns, file.place)
            ids.add(batch.column(columns.id or columns.url).to_pylist())
            for name, coding in ((columns.label, labels), (columns.split, splits)):
                _add_column(batch, name, coding)
            if columns.offset is not None:
                known = urls.dictionary_encode()
                codes = known.indices.to_numpy()
                new = np.diff(codes, prepend=codes[:1]) != 0
                new[:1] = urls[0].as_py() != last
                files.append((n_files + np.cumsum(new)).astype(np.int32))
                n_files, last = int(files[-1][-1]), urls[-1].as_py()
    rows = _ParquetRows(content, stamp, columns, limits, tuple(starts.tolist()), range(int(starts[-1])))
    _check_rows(rows, ids, columns)
    return Found(rows, labels.coded(), splits.coded(_split), np.concatenate(files) if files else None)


def _add_column(batch: Any, name: str | None, coding: _Coding) -> None:
    """Add the values of a column, or as many empty ones; nothing and numbers become strings."""
    if name is None:
        coding.add_coded([""], np.zeros(batch.num_rows, np.intp))
        return
    column = batch.column(name)
    coded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    values = ["" if value is None else str(value) for value in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(len(values)).to_numpy()
    coding.add_coded([*values, ""], codes)


def _check_types(schema: Any, columns: _Columns) -> None:
    types = require("pyarrow", "app", "Reading Parquet files").types
    for name in (columns.url, columns.id):
        kind = None if name is None else schema.field(name).type
        if kind is not None and not (types.is_string(kind) or types.is_large_string(kind)):
            raise BagwiseError(f"column {name!r} is {kind}; it must hold strings")
    for name in (columns.size, columns.offset):
        if name is not None and not types.is_integer(schema.field(name).type):
            raise BagwiseError(f"column {name!r} is {schema.field(name).type}; it must hold whole numbers")


def _check_batch(batch: Any, columns: _Columns, place: Any) -> None:
    """Check what rows of a Parquet file say, at once."""
    compute = require("pyarrow.compute", "app", "Reading Parquet files")
    batch.validate(full=True)
    urls = batch.column(columns.url)
    with_zeros = compute.any(compute.match_substring(urls, "\0")).as_py()
    _check_urls(urls.null_count, compute.min(compute.utf8_length(urls)).as_py(), with_zeros)
    if columns.id is not None and batch.column(columns.id).null_count:
        raise BagwiseError("some of its rows have no id. Remove them")
    for name in (columns.size, columns.offset):
        if name is not None and (compute.min(batch.column(name)).as_py() or 0) < 0:
            raise BagwiseError(f"column {name!r} has negative numbers")
    if isinstance(place, Url):
        matches = compute.match_substring_regex
        foreign = compute.and_not(matches(urls, _ABSOLUTE), matches(urls, _allowed(place)))
        _check_remote(compute.any(compute.or_(matches(urls, _LOCAL), foreign)).as_py())


def _check_urls(n_without: int, shortest: int | None, with_zeros: bool) -> None:
    if n_without or shortest == 0:
        raise BagwiseError("some of its rows have no url. Remove them")
    if with_zeros:
        raise BagwiseError("some of its urls have characters of code 0. Remove them")


def _allowed(place: Url) -> str:
    """Return a pattern of the URLs that a manifest at this place may name."""
    own = {part.split("://", 1)[0] for part in place.url.split("::") if "://" in part} - {"file", "local"}
    known = "|".join(map(re.escape, sorted(_SERVERS | own)))
    return rf"^((zip|tar)://[^:]*::)?({known})://([^:]|:[^:])*:?$"


def _check_remote(names_others: bool) -> None:
    if names_others:
        raise BagwiseError(
            "it comes by URL, but some of its rows name files of this machine, lead out of its folder, or are URLs of "
            "protocols other than those of stores and servers. Copy it to this machine first if you trust it"
        )


def _check_rows(rows: LazyList[Row], ids: _Ids, columns: _Columns) -> None:
    if not len(rows):
        raise BagwiseError(_EMPTY)
    ids.check(rows, "id" if columns.id is not None else "url")


def _rows_of(batch: Any, columns: _Columns) -> Iterator[Row]:
    """Make the rows of a batch of pyarrow."""
    held = {name: batch.column(name).to_pylist() for name in columns.of_rows}
    nothing = [None] * batch.num_rows
    urls = held[columns.url]
    sizes = nothing if columns.size is None else held[columns.size]
    offsets = nothing if columns.offset is None else held[columns.offset]
    return map(Row, urls if columns.id is None else held[columns.id], urls, sizes, offsets)


class _ParquetRows(LazyList[Row]):
    """Rows of a Parquet file, read when they are asked for. Is sent to other processes without them."""

    def __init__(
        self,
        file: File,
        stamp: tuple[Any, ...],
        columns: _Columns,
        limits: Limits,
        starts: tuple[int, ...],
        numbers: range | NDArray[np.int64],
    ) -> None:
        self._reference = (file, stamp, columns, limits)
        self._starts, self._numbers = starts, numbers

    def chosen(self, numbers: NDArray[np.int64]) -> _ParquetRows:
        """Return some rows."""
        own: Any = self._numbers
        if len(numbers) and (np.diff(numbers) == 1).all() and isinstance(own, range):
            own = own[int(numbers[0]) : int(numbers[-1]) + 1]
        else:
            own = numbers + own.start if isinstance(own, range) else own[numbers]
        return _ParquetRows(*self._reference, self._starts, own)

    def about(self) -> str:
        """Describe the file and the rows."""
        numbers = self._numbers
        rows = numbers if isinstance(numbers, range) else hashlib.blake2b(numbers.tobytes()).hexdigest()
        return repr((*self._reference[:3], rows))

    def __len__(self) -> int:
        return len(self._numbers)

    def _at(self, number: int) -> Row:
        row = int(self._numbers[number])
        group = int(np.searchsorted(self._starts, row, side="right")) - 1
        batch, columns = _group(*self._reference, group), self._reference[2]
        part = batch.slice(row - self._starts[group], 1)
        return next(iter(_rows_of(part, columns)))

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows; consecutive ones are decoded together."""
        numbers = self._numbers
        if not isinstance(numbers, range):
            yield from super().__iter__()
            return
        row = numbers.start
        while row < numbers.stop:
            group = int(np.searchsorted(self._starts, row, side="right")) - 1
            stop = min(self._starts[group + 1], numbers.stop, row + _ROWS)
            batch = _group(*self._reference, group)
            yield from _rows_of(batch.slice(row - self._starts[group], stop - row), self._reference[2])
            row = stop


@functools.lru_cache(maxsize=_GROUPS)
def _group(file: File, stamp: tuple[Any, ...], columns: _Columns, limits: Limits, number: int) -> Any:
    """Read a group of rows; the last ones are kept."""
    file.check(stamp)
    with opened_parquet(file, limits) as opened:
        return opened.read_row_group(number, columns=columns.of_rows)


class _PackedRows(LazyList[Row]):
    """Rows in memory: strings one after the other, and where they end."""

    def __init__(self, text: bytes, ends: NDArray[np.int64], numbers: NDArray[np.int64], same: bool) -> None:
        self._text, self._ends, self._numbers, self._same = text, ends, numbers, same  # same: ids are the URLs

    @classmethod
    def of(cls, rows: Iterable[Row], same: bool) -> _PackedRows:
        text, ends, numbers = bytearray(), [0], []
        for id, url, size, offset in rows:
            for part in (url,) if same else (url, id):
                text += part.encode("utf-8", "surrogatepass")
                ends.append(len(text))
            numbers += [-1 if size is None else size, -1 if offset is None else offset]
        return cls(bytes(text), np.array(ends), np.array(numbers, np.int64).reshape(-1, 2), same)

    def chosen(self, numbers: NDArray[np.int64]) -> _PackedRows:
        """Return some rows, and no others."""
        return _PackedRows.of((self._at(number) for number in numbers.tolist()), self._same)

    def about(self) -> str:
        """Describe the rows."""
        return repr((hashlib.blake2b(self._text).hexdigest(), self._ends.tolist(), self._numbers.tolist()))

    def __len__(self) -> int:
        return len(self._numbers)

    def _at(self, number: int) -> Row:
        step = 1 if self._same else 2
        ends = self._ends[step * number : step * number + step + 1].tolist()
        texts = [self._text[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(ends)]
        size, offset = (None if value < 0 else value for value in self._numbers[number].tolist())
        return Row(texts[-1], texts[0], size, offset)


def _read_text(file: ManifestFile, limits: Limits) -> Found:
    labels, splits, ids, files = _Coding(), _Coding(), _Ids(), _Coding()
    told: list[_Columns] = []

    def add(kept: list[tuple[Row, str, str]]) -> None:
        ids.add(row.id for row, _, _ in kept)
        files.add(row.url for row, _, _ in kept)
        labels.add(label for _, label, _ in kept)
        splits.add(split for _, _, split in kept)

    def rows() -> Iterator[Row]:
        kept: list[tuple[Row, str, str]] = []
        for found in _text_rows(file, limits, told):
            kept.append(found)
            if len(kept) == _ROWS:
                add(kept)
                kept = []
            yield found[0]
        add(kept)

    all_rows = rows()
    first = next(all_rows, None)
    if first is None:
        raise BagwiseError(_EMPTY)
    packed = _PackedRows.of(chain([first], all_rows), told[0].id is None)
    _check_rows(packed, ids, told[0])
    parts = files.coded().codes if told[0].offset is not None else None
    return Found(packed, labels.coded(), splits.coded(_split), parts)


def _text_rows(
    file: ManifestFile, limits: Limits, told: list[_Columns] | None = None
) -> Iterator[tuple[Row, str, str]]:
    """Yield row, label and split of a CSV, TSV or JSONL file; `told` gets its columns."""
    name, content = os.fspath(file), as_file(file.place)
    head = "" if ending(name) in JSON_ENDINGS else head_of(content, None)
    format = RecordFormat.of(name, sep=file.sep, quote="auto" if ending(name) == ".csv" else None, head=head)
    local, absolute, columns = re.compile(_LOCAL), re.compile(_ABSOLUTE), None
    allowed = re.compile(_allowed(file.place)) if isinstance(file.place, Url) else None
    with content.open() as opened:
        format, start = format.with_header(opened, limits)
        for number, (_, _, fields) in enumerate(format.scan(opened, start, limits), start=1):
            limits.check("rows", number, f"it has more than {limits.rows:,} rows")
            if isinstance(fields, BagwiseError):
                raise BagwiseError(f"row {number}: {fields}")
            if columns is None:
                columns = _Columns.found_in(format.names or list(fields), file)
                if told is not None:
                    told.append(columns)
            url = _text(fields, columns.url, number)
            _check_urls(0, len(url), "\0" in url)
            if allowed is not None:
                foreign = absolute.search(url) is not None and allowed.search(url) is None
                _check_remote(foreign or local.search(url) is not None)
            id = url if columns.id is None else _text(fields, columns.id, number)
            size, offset = (_whole(fields, name, number) for name in (columns.size, columns.offset))
            label, split = (_text(fields, name, number) for name in (columns.label, columns.split))
            yield Row(id, url, size, offset), label, split
        if columns is None and format.names is not None:
            _Columns.found_in(format.names, file)


def _text(fields: Mapping[str, Any], name: str | None, number: int) -> str:
    value = None if name is None else fields.get(name)
    if isinstance(value, (dict, list)):
        raise BagwiseError(f"row {number}: {name!r} is a JSON {type(value).__name__}, expected a string")
    return "" if value is None else unquote_formula(str(value))


def _whole(fields: Mapping[str, Any], name: str | None, number: int) -> int | None:
    value = None if name is None else fields.get(name)
    if value is None or value == "":
        return None
    if not str(value).isdecimal() or len(str(value)) > 18:
        raise BagwiseError(f"row {number}: {name!r} is {value!r:.50}, expected a whole number")
    return int(value)
