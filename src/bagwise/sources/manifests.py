"""Manifests: files that list items by URL, with labels and splits, so that large stores are not listed again."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from bagwise._io.storage import STORES, Url, as_place, is_url, open_for_writing, same_system
from bagwise._utils.extras import require
from bagwise._utils.text import quote_formula
from bagwise.errors import BagwiseError
from bagwise.sources.archives import FilePart
from bagwise.sources.collection import Collection, Root
from bagwise.sources.contents import File, FileContent, UrlContent, as_file
from bagwise.sources.item_tables import arrow, item_table, to_bytes, to_strings
from bagwise.sources.items import Content, Decoder, Item
from bagwise.sources.limits import Limits
from bagwise.sources.places import annotated, ending, is_file
from bagwise.sources.read_table import JSON_ENDINGS, TAB_ENDINGS, Layout, Table, read_table, table_names
from bagwise.sources.roles import (
    assign_roles,
    like_labels,
    likely_note,
    shortened,
    split_name,
    taken_note,
    unused_note,
)

__all__ = ["ManifestFile", "ManifestRoot", "as_manifest", "open_manifest", "write_manifest"]

_ENDINGS = (".csv", ".parquet", *TAB_ENDINGS, *JSON_ENDINGS)
_ROLES = ("url", "id", "label", "split", "size", "offset")
_GROUP = 1 << 16  # rows of a group of Parquet
# What a manifest that comes by URL may not name: paths of this machine and those that lead out of its folder; and URLs,
# unless they are of stores and servers, or of files in archives there. (Others, such as caches, open local files.)
_LOCAL = r"^(file:|local:|[/\\]|[A-Za-z]:[/\\])|(^|[/\\])\.\.([/\\]|$)"
_ABSOLUTE = r"^[A-Za-z][A-Za-z0-9+.-]*:(//|:)|::"
_SERVERS = (STORES - {"memory"}) | {"http", "https", "ftp"}
_WHOLE = r"^[0-9]{1,18}$"


@dataclass(frozen=True)
class ManifestFile(os.PathLike[str]):
    """A file that is a manifest, and how it is read: it is, once, when its table is asked for."""

    location: Any
    limits: Limits
    label: str | None = None
    id: str | None = None
    split: str | None = None
    sep: str | None = None
    options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)  # of the file systems of its URLs

    def __fspath__(self) -> str:
        return os.fspath(self.location)

    @property
    def table(self) -> Any:
        """The table of a collection."""
        return self.read.table

    @cached_property
    def read(self) -> _Read:
        """The table of a collection and what is to be told."""
        try:
            return _read(self)
        except (BagwiseError, OSError) as error:
            reason = str(error).rstrip(".")
            raise BagwiseError(f"{os.fspath(self)} cannot be used as a manifest: {reason}.") from error

    def sample(self, n: int = 1000) -> list[str]:
        """Return names of the first items, whose endings tell what they are."""
        rows = self.table.slice(0, n)
        ids, urls = to_strings(rows.column("id")), to_strings(rows.column("url"))
        parts = rows.column("offset").is_valid().to_pylist() if "offset" in rows.column_names else [False] * len(ids)
        return [
            id if part else Url(url).name if is_url(url) else url
            for id, url, part in zip(ids, urls, parts, strict=True)
        ]


class _Read(NamedTuple):
    """What a manifest holds: the table of a collection, notes, and those about its labels."""

    table: Any
    notes: list[str]
    label_notes: list[str]


def as_manifest(path: Any, limits: Limits, **options: Any) -> ManifestFile | None:
    """Return a file as a manifest, None unless it is one: it has a column url (or uri), and none of texts."""
    if isinstance(path, ManifestFile):
        return path
    location = as_place(path)
    if ending(os.fspath(location)) not in _ENDINGS or not is_file(location):
        return None
    try:
        names = table_names(
            as_file(location), os.path.basename(os.fspath(location)), Layout(options.get("sep")), limits
        )
    except BagwiseError:
        return None  # told by the reader of what it is
    roles = assign_roles(names, {"url": None, "text": None})
    return None if roles["url"] is None or roles["text"] is not None else ManifestFile(location, limits, **options)


def open_manifest(
    file: ManifestFile, modality: str, decoder: Decoder, *, labels: Any = "folders", splits: Any = "folders"
) -> Collection:
    """Open the items that a manifest lists. `labels` and `splits` are those of its columns unless they are given."""
    columns = {name: file.table.column(name) for name in file.table.column_names}
    known = [columns.pop(name) for name in ("id", "label", "split")]
    table = item_table(known[0], None if labels is None else known[1], None if splits is None else known[2], columns)
    notes = [*(file.read.label_notes if labels == "folders" else ()), *file.read.notes]
    about: dict[str, Any] = {"source": os.fspath(file), "notes": notes, "limits": file.limits}
    collection = Collection(table, modality, decoder, ManifestRoot.of(file), **about)
    return annotated(collection, labels, splits)


def _read(file: ManifestFile) -> _Read:
    """Read a manifest."""
    name, content = os.path.basename(os.fspath(file)), as_file(file.location)
    chosen = dict.fromkeys(_ROLES) | {"label": file.label, "id": file.id, "split": file.split}
    layout = Layout(file.sep)
    if ending(name) == ".parquet":
        roles = assign_roles(table_names(content, name, layout, file.limits), chosen)
        if roles["label"] is not None:  # otherwise values of others are looked at
            layout = replace(layout, columns=tuple(one for some in roles.columns.values() for one in some))
    raw = read_table(content, name, layout, file.limits)
    if raw.bad:
        raise BagwiseError(f"row {raw.bad[0][0]}: {raw.bad[0][1]}")
    roles = assign_roles([*raw.names, *raw.left_out], chosen, unread=raw.unread)
    if roles["url"] is None:
        raise BagwiseError(f"none of its columns is named url; there are {shortened(raw.names)}")
    if roles["offset"] is not None and (roles["size"] is None or roles["id"] is None):
        raise BagwiseError("it has a column offset, of parts of files, which needs columns size and id as well")
    if not raw.columns.num_rows:
        raise BagwiseError("it has no rows, only names of columns")
    urls = _names(raw, roles["url"], "url")
    _check_urls(urls, file.location)
    ids = urls if roles["id"] is None else _names(raw, roles["id"], "id")
    labels = None if roles["label"] is None else raw.codes(roles["label"])
    splits = None if roles["split"] is None else raw.codes(roles["split"], split_name)
    numbers = {role: _numbers(raw, str(roles[role])) for role in ("size", "offset") if roles[role] is not None}
    # many items are in one file where there are offsets
    table = item_table(
        ids, labels, splits, {"url": urls.dictionary_encode() if "offset" in numbers else urls, **numbers}
    )
    about_labels = taken_note(roles["label"], raw.names, file.label)
    if roles["label"] is None:
        about_labels = likely_note(like_labels(roles.unused, raw.values))
    return _Read(table, [*raw.notes, *unused_note([*roles.unused, *raw.unread])], about_labels)


def _names(raw: Table, name: str, role: str) -> Any:
    """Return a column of names as bytes; raise an error if one is missing."""
    names, compute = raw.encoded(name), require("pyarrow.compute", "app", "Reading manifests")
    if names.null_count or compute.min(compute.binary_length(names)).as_py() == 0:
        raise BagwiseError(f"some of its rows have no {role}. Remove them")
    return names


def _numbers(raw: Table, name: str) -> Any:
    """Return a column of whole numbers from 0."""
    pa, column = arrow(), raw.columns.column(name)
    compute = require("pyarrow.compute", "app", "Reading manifests")
    if not pa.types.is_integer(column.type):
        texts = pa.chunked_array([[one or None for one in raw.strings(name)]], pa.string())
        wrong = compute.index(compute.match_substring_regex(texts, _WHOLE), pa.scalar(False)).as_py()
        if wrong >= 0:
            raise BagwiseError(f"row {wrong + 1}: {name!r} is {texts[wrong].as_py()!r:.50}, expected a whole number")
        column = texts
    numbers = column.cast(pa.int64())
    if (compute.min(numbers).as_py() or 0) < 0:
        raise BagwiseError(f"column {name!r} has negative numbers")
    return numbers


def _check_urls(urls: Any, manifest: Any) -> None:
    """Raise an error for URLs that no file has, and for those that a manifest which comes by URL may not name."""
    compute = require("pyarrow.compute", "app", "Reading manifests")
    if compute.any(compute.match_substring(urls, "\0")).as_py():
        raise BagwiseError("some of its urls have characters of code 0. Remove them")
    if not isinstance(manifest, Url):
        return
    protocols = {part.split("://", 1)[0] for part in manifest.url.split("::") if "://" in part} - {"file", "local"}
    known = "|".join(map(re.escape, sorted(_SERVERS | protocols)))
    allowed = rf"^((zip|tar)://[^:]*::)?({known})://([^:]|:[^:])*:?$"
    absolute, local, fine = (compute.match_substring_regex(urls, one) for one in (_ABSOLUTE, _LOCAL, allowed))
    if compute.any(compute.or_(local, compute.and_not(absolute, fine))).as_py():
        raise BagwiseError(
            "it comes by URL, but some of its rows name files of this machine, lead out of its folder, or are URLs of "
            "protocols other than those of stores and servers. Copy it to this machine first if you trust it"
        )


@dataclass(frozen=True)
class ManifestRoot(Root):
    """What relative URLs of a manifest are relative to, and the options of file systems."""

    folder: Any
    options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

    @classmethod
    def of(cls, file: ManifestFile) -> ManifestRoot:
        """Return that of a manifest."""
        if isinstance(file.location, Url):
            return cls(Url(file.location.url, file.location.options), file.options)
        return cls(os.path.dirname(os.path.abspath(file.location)), file.options)

    def content(self, id: str, url: Any = None, offset: Any = None, size: Any = None, version: Any = None) -> Content:
        """Return the bytes of a row."""
        whole = self._file(url, size if offset is None else None)
        return whole if offset is None else FilePart(whole, id.rsplit("/", 1)[-1], offset, size or 0)

    def _file(self, url: str, size: int | None) -> File:
        if is_url(url):
            return UrlContent(Url(url, dict(self._options_of(url) or {})), None, size)
        if isinstance(self.folder, Url):
            return UrlContent(self.folder.beside(url), None, size)
        return FileContent(os.path.join(self.folder, as_place(url)))

    def _options_of(self, url: str) -> Mapping[str, Any] | None:
        """Return the options for a URL: a manifest that comes by URL does not decide who else gets credentials."""
        if not isinstance(self.folder, Url):
            return self.options
        return self.folder.options if same_system(self.folder.url, url) else None


def write_manifest(
    collection: Collection,
    path: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    raw: bool = False,
) -> Any:
    """Write where the items of a collection are, with labels and splits, so that they need not be listed again.

    The columns are id, url, label and split, if there are splits, size where it is known, and offset for items in tar
    files. URLs of files in the folder of the manifest, or below it, are relative to it.

    Parameters
    ----------
    collection : Collection
        Of images, texts or videos: in folders, in tar files that are not compressed, or from another manifest.
    path : path or URL
        Ends in ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``, which is the best for many items.
    storage_options : mapping, default=None
        See `bagwise.open_collection`.
    raw : bool, default=False
        CSV and TSV: write no apostrophe before names such as ``=x``, which are formulas for other programs.

    Returns
    -------
    path : path or URL
        As given.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bagwise import open_collection
    >>> from bagwise.sources import write_manifest
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("cat/1.txt", "dog/2.txt"):
    ...         Path(folder, name).parent.mkdir()
    ...         _ = Path(folder, name).write_text("a text")
    ...     manifest = write_manifest(open_collection(folder), Path(folder, "manifest.csv"))
    ...     print(manifest.read_text())
    ...     open_collection(manifest).labels
    id,url,label,size
    cat/1.txt,cat/1.txt,cat,6
    dog/2.txt,dog/2.txt,dog,6
    <BLANKLINE>
    array(['cat', 'dog'], dtype='<U3')
    """
    location = as_place(path, storage_options)
    end = ending(os.fspath(location))
    if end not in _ENDINGS:
        raise BagwiseError(
            f"The name of a manifest must end in {', '.join(sorted(_ENDINGS))}; got {os.fspath(location)}."
        )
    if end == ".parquet":
        require("pyarrow.parquet", "app", "Writing Parquet files")
    several = collection.several()
    if several is not None:
        raise BagwiseError(f"Manifests have one label per item, but {several.id!r} has {len(several.labels)}.")
    home = _Home(location)
    rows = list(zip(*map(home.row, collection), strict=True))
    columns = dict(zip(("id", "url", "label", "split", "size", "offset"), rows, strict=True))
    for name in ("split", "offset"):
        if all(value is None for value in columns[name]):
            del columns[name]
    with open_for_writing(location) as file:
        if end == ".parquet":
            require("pyarrow.parquet", "app", "Writing Parquet files").write_table(
                arrow().table({name: _column(values) for name, values in columns.items()}),
                file, compression="zstd", row_group_size=_GROUP,
            )  # fmt: skip
        else:
            _write_lines(file, columns, end, raw)
    return path


def _column(values: Sequence[Any]) -> Any:
    """Return a column: numbers, or strings, as bytes if some of them are no UTF-8."""
    pa = arrow()
    if all(value is None or isinstance(value, int) for value in values):
        return pa.array(values, pa.int64())
    column = to_bytes(values)
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return column


class _Home:
    """The folder of a manifest that is written, which URLs in it are relative to."""

    def __init__(self, location: Any) -> None:
        self._remote = isinstance(location, Url)
        folder = location.beside("").url if isinstance(location, Url) else os.path.dirname(os.path.abspath(location))
        self._folder = folder if self._remote else folder.rstrip(os.sep) + os.sep

    def row(self, item: Item) -> tuple[Any, ...]:
        """Return id, url, label, split, size and offset of an item."""
        content, size, offset = item.content, None, None
        if isinstance(content, FilePart) and content.packed is None:
            size, offset, content = content.size, content.offset, content.file
        elif isinstance(content, FileContent):
            size = os.path.getsize(content.path)
        elif isinstance(content, UrlContent):
            size = content.size
        if not isinstance(content, (FileContent, UrlContent)):
            raise BagwiseError(
                f"A manifest lists files and parts of tar files that are not compressed, but {item.id!r} is "
                f"{content.source}. Unpack what it is in first."
            )
        if self._remote and isinstance(content, FileContent):
            raise BagwiseError(f"A manifest by URL cannot list files of this machine, such as {content.path}.")
        label = item.labels[0] if item.labels else None
        return item.id, self._url(content), label, item.split, size, offset

    def _url(self, file: File) -> str:
        full = file.path if isinstance(file, FileContent) else file.url
        if not full.startswith(self._folder) or "::" in full:
            return full
        name = full[len(self._folder) :].replace(os.sep, "/")
        return f"./{name}" if is_url(name) else name


def _write_lines(file: Any, columns: Mapping[str, Sequence[Any]], end: str, raw: bool) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True)
    rows = zip(*columns.values(), strict=True)
    if end in JSON_ENDINGS:
        text.writelines(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
    else:
        writer = csv.writer(text, delimiter="\t" if end in TAB_ENDINGS else ",", lineterminator="\n")
        writer.writerow(columns)
        plain = (int, type(None)) if not raw else object
        writer.writerows([one if isinstance(one, plain) else quote_formula(one) for one in row] for row in rows)
    text.detach()
