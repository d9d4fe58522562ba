"""Manifests: files that list items by URL, with labels and splits, so that large stores are not listed again."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from bagwise._io.storage import Url, as_place, is_url, open_for_writing, same_system
from bagwise._utils.extras import require
from bagwise._utils.text import quote_formula
from bagwise.errors import BagwiseError
from bagwise.sources.archives import TarMember
from bagwise.sources.collection import Collection
from bagwise.sources.contents import File, FileContent, PartContent, UrlContent, as_file
from bagwise.sources.item_tables import item_table
from bagwise.sources.items import Content, Decoder, Item
from bagwise.sources.limits import Limits
from bagwise.sources.manifest_rows import ManifestFile, first_rows, manifest_table
from bagwise.sources.places import annotated, ending, is_file
from bagwise.sources.read_table import JSON_ENDINGS, TAB_ENDINGS, Layout, table_names
from bagwise.sources.roles import assign_roles

__all__ = ["ManifestFile", "ManifestRoot", "as_manifest", "open_manifest", "sample_names"]
__all__ += ["write_manifest"]

_ENDINGS = (".csv", ".parquet", *TAB_ENDINGS, *JSON_ENDINGS)
_SAMPLE = 1000  # rows that are looked at for the modality
_GROUP = 1 << 16  # rows of a group of Parquet


def as_manifest(path: Any, limits: Limits, **given: Any) -> ManifestFile | None:
    """Return a file as a manifest, None unless it is one: it has a column url (or uri), and none of texts."""
    if isinstance(path, ManifestFile):
        return path
    place = as_place(path)
    end = ending(os.fspath(place))
    if end not in _ENDINGS or not is_file(place):
        return None
    try:
        names = table_names(as_file(place), os.path.basename(os.fspath(place)), Layout(given.get("sep")), limits)
    except BagwiseError:
        return None  # told by the reader of what it is
    roles = assign_roles(names, {"url": None, "text": None})
    return None if roles["url"] is None or roles["text"] is not None else ManifestFile(place, **given)


def open_manifest(
    file: ManifestFile, modality: str, decoder: Decoder, *, labels: Any = "folders", splits: Any = "folders",
    limits: Limits
) -> Collection:  # fmt: skip
    """Open the items that a manifest lists. `labels` and `splits` are those of its columns unless they are given.

    A CSV, TSV or JSONL file is held in memory, about 100 bytes for an item. Of a Parquet file, only labels and splits
    are, 8 bytes for an item; rows are read, a group at a time, when items are asked for.
    """
    source = os.fspath(file)
    with _naming(source):
        table = manifest_table(file, limits)
    if labels is None:
        table = item_table(table.column("id"), None, table.column("split"), _others(table))
    if splits is None:
        table = item_table(table.column("id"), table.column("label"), None, _others(table))
    collection = Collection(table, modality, decoder, ManifestRoot.of(file), source=source, limits=limits)
    return annotated(collection, labels, splits)


def _others(table: Any) -> dict[str, Any]:
    return {name: table.column(name) for name in table.column_names[3:]}


def sample_names(file: ManifestFile, limits: Limits) -> list[str]:
    """Return the names of the first items, whose endings tell their modality."""
    with _naming(os.fspath(file)):
        return [_name(*row) for row in first_rows(file, limits, _SAMPLE)]


@contextmanager
def _naming(source: str) -> Iterator[None]:
    try:
        yield
    except (BagwiseError, OSError) as error:
        raise BagwiseError(f"{source} cannot be used as a manifest: {str(error).rstrip('.')}.") from error


def _name(id: str, url: str, size: int | None, offset: int | None) -> str:
    """Return the name whose ending tells what an item is."""
    return id if offset is not None else (Url(url).name if is_url(url) else url)


@dataclass(frozen=True)
class ManifestRoot:
    """What relative URLs of a manifest are relative to, and the options of file systems."""

    folder: Any
    options: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)

    @classmethod
    def of(cls, file: ManifestFile) -> ManifestRoot:
        """Return that of a manifest."""
        if isinstance(file.place, Url):
            return cls(Url(file.place.url, file.place.options), file.options)
        return cls(os.path.dirname(os.path.abspath(file.place)), file.options)

    def content(
        self, id: str, url: str | None, offset: int | None = None, size: int | None = None, version: str | None = None
    ) -> Content:
        """Return the bytes of a row."""
        assert url is not None
        whole = self._file(url, size if offset is None else None)
        return whole if offset is None else PartContent(whole, id.rsplit("/", 1)[-1], offset, size or 0)

    def part(self, ids: Sequence[str], urls: Sequence[str | None]) -> ManifestRoot:
        """Return the same."""
        return self

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
        Ends in ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet``, which needs ``bagwise[app]`` and is the best for many
        items: its rows are read when they are asked for.
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
    place = as_place(path, storage_options)
    end = ending(os.fspath(place))
    if end not in _ENDINGS:
        raise BagwiseError(f"The name of a manifest must end in {', '.join(sorted(_ENDINGS))}; got {os.fspath(place)}.")
    if end == ".parquet":
        require("pyarrow.parquet", "app", "Writing Parquet files")
    if (collection.n_labels > 1).any():
        several = collection[int(np.argmax(collection.n_labels > 1))]
        raise BagwiseError(f"Manifests have one label per item, but {several.id!r} has {len(several.labels)}.")
    names = ["id", "url", "label", *(["split"] if any(one is not None for one in collection.splits) else []), "size"]
    if any(isinstance(item.content, (TarMember, PartContent)) for item in collection):
        names.append("offset")
    home = _Home(place)
    rows = ([row[name] for name in names] for row in map(home.row, collection))
    with open_for_writing(place) as file:
        _WRITERS.get(end, _write_lines)(file, names, rows, end, raw)
    return path


class _Home:
    """The folder of a manifest that is written, which URLs in it are relative to."""

    def __init__(self, place: Any) -> None:
        self._remote = isinstance(place, Url)
        folder = place.beside("").url if isinstance(place, Url) else os.path.dirname(os.path.abspath(place))
        self._folder = folder if self._remote else folder.rstrip(os.sep) + os.sep

    def row(self, item: Item) -> dict[str, Any]:
        """Return what the manifest says about an item."""
        content, size, offset = item.content, None, None
        if isinstance(content, (TarMember, PartContent)) and getattr(content, "packed", None) is None:
            size, offset = content.size, content.offset
            content = content.archive if isinstance(content, TarMember) else content.file
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
        return {"id": item.id, "url": self._url(content), "label": label, "split": item.split, "size": size,
                "offset": offset}  # fmt: skip

    def _url(self, file: File) -> str:
        full = file.path if isinstance(file, FileContent) else file.url
        if not full.startswith(self._folder) or "::" in full:
            return full
        name = full[len(self._folder) :].replace(os.sep, "/")
        return f"./{name}" if is_url(name) else name


def _write_lines(file: Any, names: list[str], rows: Iterable[list[Any]], end: str, raw: bool) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="", write_through=True)
    if end in JSON_ENDINGS:
        for row in rows:
            text.write(json.dumps(dict(zip(names, row, strict=True))) + "\n")
    else:
        writer = csv.writer(text, delimiter="\t" if end in TAB_ENDINGS else ",", lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            cells = (
                "" if one is None else one if raw or not isinstance(one, str) else quote_formula(one) for one in row
            )
            writer.writerow(cells)
    text.detach()


def _write_groups(file: Any, names: list[str], rows: Iterable[list[Any]], end: str, raw: bool) -> None:
    arrow, parquet = (require(name, "app", "Writing Parquet files") for name in ("pyarrow", "pyarrow.parquet"))
    kinds = {"size": arrow.int64(), "offset": arrow.int64()}
    schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in names])
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        rest = iter(rows)
        while some := list(islice(rest, _GROUP)):
            arrays = [
                arrow.array(column, field.type) for column, field in zip(zip(*some, strict=True), schema, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


_WRITERS: dict[str, Callable[..., None]] = {".parquet": _write_groups}
