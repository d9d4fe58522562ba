"""Rows of manifests: read when they are asked for, or packed in memory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bagwise._io.storage import STORES, Url
from bagwise._utils.extras import require
from bagwise._utils.text import unquote_formula
from bagwise.errors import BagwiseError, argument
from bagwise.sources.contents import as_file
from bagwise.sources.item_tables import arrow, item_table, to_bytes, to_codes
from bagwise.sources.limits import Limits
from bagwise.sources.parquet import opened_parquet
from bagwise.sources.places import ending
from bagwise.sources.read_table import Layout, Table, read_table
from bagwise.sources.roles import assign_roles, shortened, split_name

__all__ = ["ManifestFile", "Row", "first_rows", "manifest_table"]

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
        sought = dict.fromkeys(("url", "id", "label", "split", "size", "offset"))
        roles = assign_roles(names, sought | {"id": file.id, "label": file.label, "split": file.split})
        url, id, label, split, size, offset = (roles[role] for role in sought)
        if url is None:
            raise BagwiseError(f"none of its columns is named url; there are {shortened(names)}")
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
        (ids, urls, sizes, offsets, *_), _ = _read_text(file, limits)
        nothing = [None] * len(ids)
        return _some([Row(*row) for row in zip(ids, urls, sizes or nothing, offsets or nothing, strict=True)][:n])
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


def manifest_table(file: ManifestFile, limits: Limits) -> Any:
    """Read a manifest as the table of a collection."""
    rows, same = _parquet_rows(file, limits) if ending(os.fspath(file)) == ".parquet" else _read_text(file, limits)
    ids, urls, sizes, offsets, labels, splits = rows
    if not len(urls):
        raise BagwiseError(_EMPTY)
    _check_ids(ids, "url" if same else "id")
    numbers = {name: arrow().array(one, arrow().int64()) for name, one in (("size", sizes), ("offset", offsets)) if one}
    urls = to_codes(urls) if offsets else to_bytes(urls)
    splits = to_codes(split_name(one) if one else None for one in splits) if splits else None
    labels = to_codes(one or None for one in labels) if labels else None
    return item_table(to_bytes(ids), labels, splits, {"url": urls, **numbers})


def _check_ids(ids: Sequence[str], what: str) -> None:
    if len(set(ids)) == len(ids):
        return
    seen: dict[str, int] = {}
    for number, id in enumerate(ids, start=1):
        if seen.setdefault(id, number) != number:
            raise BagwiseError(
                f"rows {seen[id]} and {number} have the same {what}, {id!r:.100}. Remove one, or give a column of ids "
                f"by {argument('id')}"
            )


def _parquet_rows(file: ManifestFile, limits: Limits) -> tuple[list[Any], bool]:
    with opened_parquet(as_file(file.place), limits) as opened:
        columns = _Columns.found_in(opened.schema_arrow.names, file)
        _check_types(opened.schema_arrow, columns)
        wanted = [*columns.of_rows, *(name for name in (columns.label, columns.split) if name is not None)]
        found: dict[str, list[Any]] = {name: [] for name in wanted}
        for batch in opened.iter_batches(_ROWS, columns=list(dict.fromkeys(wanted))):
            _check_batch(batch, columns, file.place)
            for name in found:
                found[name] += batch.column(name).to_pylist()
    rows = [[] if name is None else found[name] for name in (columns.id or columns.url, *columns[0:1], *columns[4:])]
    for other in (columns.label, columns.split):
        rows.append([] if other is None else ["" if one is None else str(one) for one in found[other]])
    return rows, columns.id is None


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


def _rows_of(batch: Any, columns: _Columns) -> Iterator[Row]:
    """Make the rows of a batch of pyarrow."""
    held = {name: batch.column(name).to_pylist() for name in columns.of_rows}
    nothing = [None] * batch.num_rows
    urls = held[columns.url]
    sizes = nothing if columns.size is None else held[columns.size]
    offsets = nothing if columns.offset is None else held[columns.offset]
    return map(Row, urls if columns.id is None else held[columns.id], urls, sizes, offsets)


def _read_text(file: ManifestFile, limits: Limits) -> tuple[list[Any], bool]:
    """Read a CSV, TSV or JSON lines file."""
    table = read_table(as_file(file.place), os.path.basename(os.fspath(file)), Layout(file.sep), limits)
    if table.bad:
        raise BagwiseError(f"row {table.bad[0][0]}: {table.bad[0][1]}")
    columns = _Columns.found_in(table.names, file)
    urls = _texts(table, columns.url)
    local, absolute = re.compile(_LOCAL), re.compile(_ABSOLUTE)
    allowed = re.compile(_allowed(file.place)) if isinstance(file.place, Url) else None
    for url in urls:
        _check_urls(0, len(url), "\0" in url)
        if allowed is not None:
            foreign = absolute.search(url) is not None and allowed.search(url) is None
            _check_remote(foreign or local.search(url) is not None)
    ids = _texts(table, columns.id) if columns.id else urls
    numbers = [
        [] if name is None else [_whole(one, name, number) for number, one in enumerate(table.strings(name), start=1)]
        for name in (columns.size, columns.offset)
    ]
    others = [_texts(table, name) if name else [] for name in (columns.label, columns.split)]
    return [ids, urls, *numbers, *others], columns.id is None


def _texts(table: Table, name: str) -> list[str]:
    return [unquote_formula(one) for one in table.strings(name)]


def _whole(value: str, name: str, number: int) -> int | None:
    if not value:
        return None
    if not value.isdecimal() or len(value) > 18:
        raise BagwiseError(f"row {number}: {name!r} is {value!r:.50}, expected a whole number")
    return int(value)
