"""`open_collection`: open a folder, an archive, a file of records or a table."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bagwise._io.storage import Url, as_place, is_url, same_system
from bagwise._utils.text import how_many, one_source, sources
from bagwise.errors import BagwiseError, argument, parameter_name, unknown_name
from bagwise.sources.annotations import LabelFile
from bagwise.sources.collection import Collection
from bagwise.sources.contents import as_file, local_copy
from bagwise.sources.frames import is_frame, modality_of_frame, open_frame
from bagwise.sources.image_files import IMAGE_ENDINGS, UNREAD_ENDINGS
from bagwise.sources.items import Content
from bagwise.sources.limits import Limits, as_limits
from bagwise.sources.manifests import ManifestFile, as_manifest
from bagwise.sources.media import VIDEO_ENDINGS, open_images, open_texts, open_videos
from bagwise.sources.places import (
    Listing,
    chosen_endings,
    ending,
    is_file,
    list_place,
    nothing_found,
    with_endings,
)
from bagwise.sources.plain_texts import TEXT_ENDINGS, likely_texts, look_like_texts
from bagwise.sources.read_table import (
    FOLDER_ENDINGS,
    TABLE_ENDINGS,
    Layout,
    looked_at,
    split_table,
    table_ending,
    table_names,
)
from bagwise.sources.records import has_texts, open_records
from bagwise.sources.shards import Mapper, Shards, shards_of_listing, shards_of_pattern

__all__ = ["SeveralModalities", "column_names", "found_source", "has_endings", "located"]
__all__ += ["open_collection"]

_Source = ManifestFile | Shards | Listing

_ENDINGS = {"images": IMAGE_ENDINGS, "texts": TEXT_ENDINGS, "records": FOLDER_ENDINGS, "videos": VIDEO_ENDINGS}
# Modalities of which each file is an item, and the options that are about columns and layout of a table.
_FILES = ("images", "texts", "videos")
_OF_COLUMNS = ("label", "id", "split", "sep", "sheet", "header")
_BY_ENDING = {end: [one for one in _ENDINGS if end in _ENDINGS[one]] for end in set().union(*_ENDINGS.values())}
# What to do with common files that are not read.
_ADVICE = {".xls": "Save it as .xlsx or .csv.", ".ods": "Save it as .xlsx or .csv."}
_ADVICE |= {".json": "Write one object per line into a .jsonl file.", ".pkl": "Save it as .csv, .npz or .parquet."}
_ADVICE |= dict.fromkeys((".arrow", ".feather"), "Save it as .parquet.")
_ADVICE |= UNREAD_ENDINGS
_ADVICE |= dict.fromkeys((".pdf", ".doc", ".docx", ".rtf", ".html", ".htm"), "Convert such files to .txt.")
# Named in the message on a source without items.
_SOME_ENDINGS = frozenset([".csv", ".jpg", ".jsonl", ".mp4", ".npz", ".png", ".tsv", ".txt", ".xlsx"])
# Files that are tables of numbers for certain; others may have texts in their rows.
_MATRICES = frozenset([".npz", ".mtx", ".svm", ".svmlight", ".libsvm", ".h5ad"])


def open_collection(
    path: Any,
    modality: str = "auto",
    *,
    storage_options: Mapping[str, Any] | None = None,
    mapping: Mapper | None = None,
    **options: Any,
) -> Collection:
    r"""Open a collection: a folder or archive of images, texts or videos, a file of records, or a table.

    Parameters
    ----------
    path : path, URL, or table in memory
        Of this machine, or any URL that fsspec opens (``s3://…``, ``gs://…``, ``hf://…``, ``https://…``, chains such as
        ``zip://a.jpg::s3://…``), which needs ``bagwise[dask]`` and the package of the protocol:

        - A folder, or a zip or tar archive (read in place, also compressed), of images, texts or videos: the class of
          an item is its folder; outermost folders named train and test are splits.
        - A CSV, TSV, JSON lines, Excel, Parquet or SQLite file (``data.sqlite::table``) with a text in every row, also
          ``.csv.gz``, ``.csv.zst`` and the like; or a folder or an archive of them.
        - A table of numbers: the same files, ``.npz``, ``.mtx``, ``.svmlight``, ``.h5ad``.
        - In memory: a DataFrame of pandas or Polars, a pyarrow.Table, a Dataset or DatasetDict of Hugging Face, an
          AnnData, or a mapping of columns. The splits of a DatasetDict are those of the collection.
    modality : {"auto", "images", "texts", "videos", "records", "table"}, default="auto"
        Items to open. "auto": the modality of the files, an error if there are several. (Texts and tables in the
        outermost folder beside at least as many other files, such as a README.txt, do not count.) Files without an
        ending are texts if they look so and there is nothing else. Rows of a table are texts ("records") if there is a
        column named text, body, content or document, or only one of long strings, or if `text` is given; otherwise they
        are numbers ("table"). "records" and "table" also read files with other endings, by their content.
    storage_options : mapping, default=None
        What fsspec opens the file system of a URL with, such as credentials. None: by environment variables and
        fsspec's configuration files.
    mapping : callable, default=None
        What lists the members of shards: called as the built-in `map`, with a function and parts of the shards, it
        returns what the function gives for each, in order. For instance ``ProcessPoolExecutor(8).map``. None: this
        process lists them.
    **options
        What the reader of this modality takes; see the notes.

    Returns
    -------
    collection : Collection
        Nothing but names is read of images, texts and videos until an item is loaded. Texts of tables and numbers are
        read at once. `notes` say what was not obvious, `skipped` has the rows that were skipped.

    Notes
    -----
    Options of all sources:

    - ``labels``, ``splits``: mappings from ids, or CSV, TSV, JSON lines, Excel, Parquet or SQLite files with a column
      of names, such as filename, and a column label or split; see `Collection.with_labels`. Of images, texts and videos
      also "folders" (default: the class of an item is its folder) and None.
    - ``limits``: a `bagwise.sources.Limits`; larger sources and items are refused.
    - ``extensions``, of folders and archives: endings of the files that are items, in a list or a string with commas;
      ``"*"``: all files.

    Options of tables, in files and in memory:

    - ``label``, ``id``, ``split``: columns, by name in any case, or by number from 1 where the file has no names. By
      default ``label``, ``labels``, ``class``, ``category`` or ``target``; ``id``; ``split``. `notes` say which column
      was taken if its name does not, which others may hold the labels, and which are not used. For images, texts and
      videos they are about the file that `labels` is. Of ``.h5ad`` they are columns of ``obs``, of ``.npz`` `label` is
      an array.
    - ``sep``: character between fields of CSV and TSV files, or its name: "tab", "semicolon". By default a tab in
      ``.tsv`` and ``.tab``, a comma in ``.csv``; or another one, if that one is not in the first line and the other
      divides all rows alike. In tables of numbers where it is no comma, numbers may have decimal commas.
    - ``sheet``: sheet of an Excel file (needs ``bagwise[excel]``), by name or number from 1, by default the first one;
      table of an SQLite file.
    - ``header``: whether the first row of a CSV, TSV or Excel file has the names of columns. None: detected.
    - ``encoding``: of CSV, TSV and JSON files. None: UTF-8, or what a byte-order mark says; if most of a file is not
      UTF-8 it is guessed, and `notes` say so.

    Options of one modality:

    - Images (Pillow; JPEG, PNG, WebP, GIF, BMP, TIFF, PNM, JPEG 2000, and AVIF where Pillow has it; what a file holds
      decides, not its ending): ``mode="grey"`` (default) gives arrays of uint8 of shape (height, width), ``"rgb"``
      (height, width, 3): rotated by the EXIF data, 16 bits scaled to 8, transparency on white, palettes and CMYK
      converted, the first frame of animations. In memory: ``image``, the column of images of Pillow, arrays of uint8,
      bytes of image files, or paths; by default the one of the type `datasets.Image`, or named ``image`` or ``img``.
    - Videos (need ``bagwise[video]``): ``mode`` as above, with frames as the first axis; ``every``, the distance
      between the frames used, by default 1; ``max_frames``, their maximum number. Marks that tell players to rotate
      frames are not followed.
    - Texts, one a file: ``encoding``. None: UTF-8, or what a byte-order mark says; a text that is not is an error which
      names the byte. If many of a sample are not, such texts are read in an encoding that is guessed; `notes` say so.
      Where no file of a folder ends in ``.txt`` or ``.text``, files without an ending, or with a number in its place
      (``00001.7c53336b37``), are texts if their bytes look so.
    - Records, texts in rows: ``text``, the column of texts, or several, in a list or with commas between them, which
      are joined by a line end; by default ``text``, ``body``, ``content`` or ``document``, or the only long strings.
      The only other column of few values is the label. Without ids, the id is the file's name and the row's number,
      from 1; of several files the name comes first in any case, as in ``books.csv:17``. Without a column of labels, the
      label is the folder. ``quote``: character around fields, None for none; by default ``"``, in TSV files only if it
      is around all names. ``on_error="skip"`` skips rows that cannot be read, with a `SkippedItemsWarning`.
    - Table, of numbers: all columns but label, id and split are words, but for those that number or name the rows
      (without a name, or ``Unnamed: 0``, ``index``, ``id``, ``row`` and the like, whose values differ); ``keep`` lists
      such columns that are words, ``words`` those of a model. `notes` name columns that tell the class. Without labels,
      the only column with text has them, or, without texts, the only one of true and false; others of these are 1 and
      0. Without ids, rows are numbered from 0, or have the names of the index of pandas. ``missing``: what becomes of
      missing numbers, such as empty cells, ``NA`` and ``?``: "zero", "median" (of the column in this file) or "drop"
      (leaves such rows out); None: an error. ``.npz``: a matrix saved by SciPy, or an array ``X`` (``x``, ``data``, or
      the option ``data``), beside it ``y`` (``labels``, ``label``, ``target``), ``ids``, ``splits``, ``feature_names``;
      or ``x_train``, ``y_train``, ``x_test``, ``y_test``; names in any case; arrays of Python objects are refused.
      ``.h5ad`` and AnnData (files need ``bagwise[anndata]``): ``layer``, by default the matrix X. A folder of Parquet
      files with the same columns is one table.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bagwise import open_collection
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "reviews.csv")
    ...     _ = path.write_text("text,label\nvery good,pos\nboring,neg\n")
    ...     reviews = open_collection(path)
    ...     reviews.labels, [text for _, text in reviews.load()]
    (array(['pos', 'neg'], dtype='<U3'), ['very good', 'boring'])
    >>> open_collection({"text": ["very good", "boring"], "label": ["pos", "neg"]})
    <Collection: 2 texts, 2 classes, from the dict>
    """
    if is_frame(path):
        accepted = _options_of(open_frame)[1:]
        for option in options:
            if option not in accepted:
                raise unknown_name("option of a table in memory", option, accepted)
        return open_frame(path, modality, **options)
    if not isinstance(path, (str, os.PathLike)):
        raise BagwiseError(
            f"A collection is opened from a path, a URL or a table in memory, got {type(path).__name__}. Lists of "
            'texts and images are one by name: {"text": texts, "label": labels}.'
        )
    source, options = _found(path, storage_options, modality, options)
    if isinstance(source, Shards) and mapping is not None:
        source = replace(source, mapping=mapping)
    if modality == "auto":
        modality = _modality_of(source, options)
    if modality not in _MODALITIES:
        raise unknown_name(parameter_name("modality"), modality, ("auto", *_MODALITIES))
    options = _columns_of_labels(source, modality, options)
    reader = _reader(modality)
    accepted = _options_of(reader)
    for option in options:
        if option in accepted:
            continue
        others = [known for known in _MODALITIES if option in _options_of(_reader(known))]
        if not others:
            raise unknown_name(f"option of {modality}", option, accepted)
        others = [sources(known) for known in others]
        listed = " and ".join(filter(None, (", ".join(others[:-1]), others[-1])))
        raise BagwiseError(
            f"{argument(option)} is for {listed}, but {os.fspath(source)} holds {one_source(modality)}. Leave it out."
        )
    return reader(source, **options)


def found_source(path: Any, limits: Limits, storage_options: Any = None, **columns: Any) -> _Source:
    """Find out what a path or URL is: a manifest, shards, or a place with files, which is listed; each is done once.

    `columns` are those of a manifest by their roles; `label` may be an ending of members of shards.
    """
    if isinstance(path, (ManifestFile, Shards, Listing)):
        return path
    location = as_place(path, storage_options if is_url(path) else None)
    label = columns.get("label")
    manifest = as_manifest(location, limits, **columns, options=storage_options)
    if manifest is not None:
        return manifest
    shards = shards_of_pattern(location, limits, label)
    if shards is not None:
        return shards
    listing = list_place(location, limits)
    return shards_of_listing(listing, label) or listing


def _found(path: Any, storage_options: Any, modality: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the source that is opened, see `found_source`, and the options that are left for the reader."""
    path, sheet = split_table(path)
    options = options if sheet is None else {"sheet": sheet} | options
    location = as_place(path, storage_options) if storage_options is not None and is_url(path) else as_place(path)
    origin = getattr(location, "location", location)  # of what is listed already
    options = options | _annotation_urls(origin, options)
    if modality not in ("auto", *_FILES):
        as_place(origin, None if isinstance(origin, Url) else storage_options)  # an error: they are for URLs
        return location, options
    of_table = options.get("labels") is None  # otherwise columns are those of the file of labels
    columns = {name: options[name] for name in _OF_COLUMNS if of_table and options.get(name) is not None}
    limits = as_limits(options.get("limits"))
    of_rows = {name: value for name, value in columns.items() if name not in ("sheet", "header")}
    source: _Source = (
        list_place(location, limits)
        if "text" in options
        else (found_source(location, limits, storage_options, **of_rows))
    )
    if isinstance(source, Listing):
        as_place(origin, None if isinstance(origin, Url) else storage_options)
        return source, options
    unused = next((name for name in columns if name != "label"), None)
    if isinstance(source, Shards) and unused is not None:
        raise BagwiseError(f"{argument(unused)} is for columns, but {source.source} has shards. Leave it out.")
    return source, {name: value for name, value in options.items() if not of_table or name not in _OF_COLUMNS}


def _annotation_urls(location: Any, options: Mapping[str, Any]) -> dict[str, Url]:
    """Return files of labels and splits by URL with the storage options of the source, if they are on its store."""
    if not isinstance(location, Url):
        return {}
    files = {name: options[name] for name in ("labels", "splits") if isinstance(options.get(name), str)}
    there = {name: url for name, url in files.items() if is_url(url) and same_system(url, location.url)}
    return {name: as_place(url, location.options) for name, url in there.items()}


def _reader(modality: str) -> Callable[..., Collection]:
    if modality != "table":
        return _READERS[modality]
    from bagwise.sources.tables import open_table  # deferred: loads SciPy

    return open_table


def _options_of(reader: Callable[..., Collection]) -> list[str]:
    _, *accepted = inspect.signature(reader).parameters
    return accepted


def _columns_of_labels(path: str | os.PathLike[str], modality: str, options: dict[str, Any]) -> dict[str, Any]:
    """Where items are files, columns are those of the file of labels: return options with both in one."""
    columns = {name: options[name] for name in _OF_COLUMNS if options.get(name) is not None}
    if modality not in _FILES or not columns:
        return options
    labels = options.get("labels")
    if isinstance(labels, Mapping) or labels is None or labels == "folders":
        name = next(iter(columns))
        raise BagwiseError(
            f"{argument(name)} is for tables, files of records and files of labels, but {os.fspath(path)} holds "
            f"{modality}, whose classes are their folders. Give a file of labels by {argument('labels')}, or leave "
            f"{argument(name)} out."
        )
    return {k: v for k, v in options.items() if k not in _OF_COLUMNS} | {"labels": LabelFile(labels, **columns)}


class SeveralModalities(BagwiseError):
    """Raised if a source holds items of several modalities, which are the keys of `found`; values are their numbers."""

    def __init__(self, source: str, counts: Mapping[str, int]) -> None:
        listed = " and ".join(how_many(n, modality) for modality, n in counts.items())
        choice = argument("modality", min(counts))
        super().__init__(f"{source} holds {listed}. Choose one, for instance by {choice}.")
        self.source, self.found = source, dict(counts)

    def __reduce__(self) -> tuple[Any, ...]:
        return SeveralModalities, (self.source, self.found)


def located(path: Any, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return a source that is listed already, and its modality; both go to `open_collection` instead of the path."""
    if is_frame(path):
        return path, modality_of_frame(path, options)
    others = dict(options)
    source, others = _found(path, others.pop("storage_options", None), "auto", others)
    return source, _modality_of(source, others)


def _modality_of(listed: _Source, options: Mapping[str, Any]) -> str:
    limits = as_limits(options.get("limits"))
    if isinstance(listed, ManifestFile):
        return _modality_of_names(os.fspath(listed), listed.sample())
    if isinstance(listed, Shards):
        names = listed.sample(limits)
        # a text beside an image or a video is its caption
        items = [name for name in names if ending(name) in IMAGE_ENDINGS | VIDEO_ENDINGS] or names
        return _modality_of_names(os.fspath(listed), items)
    source, contents = os.fspath(listed), listed
    if listed.is_file and ending(next(iter(contents))) in _MATRICES:
        return "table"
    parquet = bool(contents) and all(ending(name) == ".parquet" or name == "_SUCCESS" for name in contents)
    first = next((name for name in contents if name != "_SUCCESS"), "")
    if parquet or (listed.is_file and table_ending(first) in TABLE_ENDINGS and options.get("extensions") is None):
        return "records" if _has_texts(first, contents[first], limits, options) else "table"
    contents = contents.without(options.get("labels"))
    if options.get("extensions") is not None:
        return _modality_of_endings(source, contents, options["extensions"])
    there: dict[str, list[str]] = {}
    for name in contents:
        for modality in _BY_ENDING.get(table_ending(name), ()):
            there.setdefault(modality, []).append(name)
    there = {modality: there[modality] for modality in _ENDINGS if modality in there}
    # a README.txt or a table beside the items is none of them
    for modality in ("texts", "records"):
        others = sum(len(names) for other, names in there.items() if other != modality)
        outside = not any("/" in name for name in there.get(modality, ()))
        if modality in there and outside and len(there[modality]) <= others:
            del there[modality]
    known = len(contents) == 1 and ending(next(iter(contents))) in _ADVICE
    if not there.keys() - {"texts"} and not known and likely_texts(contents):
        return "texts"
    if not there:
        raise _nothing_found(source, contents)
    if len(there) > 1:
        raise SeveralModalities(source, {modality: len(names) for modality, names in there.items()})
    return next(iter(there))


def _has_texts(name: str, content: Content, limits: Limits, options: Mapping[str, Any]) -> bool:
    """Whether the rows of a table are texts, see `has_texts`."""
    if options.get("text") is not None:
        return True
    layout = {option: options.get(option) for option in ("sep", "sheet", "encoding", "header")}
    try:
        table = looked_at(content, name, Layout(**layout), limits)
        return has_texts(table, options)
    except BagwiseError as error:
        raise BagwiseError(f"{content.source} cannot be used: {str(error).rstrip('.')}.") from error


def _modality_of_names(source: str, names: Sequence[str]) -> str:
    """Return the modality of the items of a manifest, by the endings of some."""
    counts = Counter(modality for name in names for modality in _FILES if ending(name) in _ENDINGS[modality])
    if len(counts) > 1:
        raise SeveralModalities(source, counts)
    if not counts:
        some = f"; the first is {names[0]!r:.100}" if names else ""
        raise BagwiseError(
            f"{source} lists no images, texts or videos by the endings of its urls{some}. Say what they are, for "
            f"instance by {argument('modality', 'images')}."
        )
    return next(iter(counts))


def _nothing_found(path: str, contents: Mapping[str, Content]) -> BagwiseError:
    """Build the error for a place without items, with advice by what is there."""
    usual = Counter(ending(name) for name in contents).most_common(1)
    if usual and usual[0][0] in _ADVICE:
        error = nothing_found(path, "images, texts, records or videos", contents, None)
        return BagwiseError(f"{error} {_ADVICE[usual[0][0]]}")
    by_ending: dict[str, list[str]] = {}
    for name in contents:
        by_ending.setdefault(ending(name), []).append(name)
    texts = [end for end, names in by_ending.items() if end not in ("", *_ADVICE) and look_like_texts(contents, names)]
    if usual and usual[0][0] in texts:
        which = "They look like texts" if len(texts) == len(by_ending) else f"Files {', '.join(texts)} look like texts"
        others = f"{which}, which {argument('extensions', ','.join(texts))} opens"
        error = nothing_found(path, "images, texts, records or videos", contents, None)
        return BagwiseError(f"{error} {others}.")
    others = f" and others; more by {argument('modality')} and {argument('extensions')}"
    return nothing_found(path, "images, texts, records or videos", contents, _SOME_ENDINGS, others)


def column_names(path: Any, limits: Limits, **layout: Any) -> list[str]:
    """Return the names of the columns of a table, see `Layout`, or of `obs` of AnnData; none for other sources."""
    path, sheet = split_table(path)
    location = as_place(path)
    end = table_ending(os.fspath(location))
    if end not in (*TABLE_ENDINGS, ".h5ad") or not is_file(location):
        return []
    if end == ".h5ad":
        from bagwise.sources.h5ad import obs_columns  # deferred: loads SciPy

        with local_copy(location, limits) as local:
            return obs_columns(local, limits)
    layout = {"sheet": sheet, **{name: value for name, value in layout.items() if value is not None}}
    return table_names(as_file(location), os.path.basename(os.fspath(location)), Layout(**layout), limits)


def has_endings(path: str | os.PathLike[str], extensions: str, limits: Limits | None = None) -> bool:
    """Whether a source has files with these endings, see `chosen_endings`."""
    return bool(with_endings(chosen_endings(extensions, frozenset()))(list_place(path, as_limits(limits))))


def _modality_of_endings(path: str, contents: Mapping[str, Content], extensions: Any) -> str:
    """Return the modality of files with chosen endings: that of the endings, otherwise texts if they look so."""
    endings = chosen_endings(extensions, frozenset())
    names = with_endings(endings)(contents)
    if not names:
        raise nothing_found(path, "files with these endings", contents, endings)
    known = {modality for name in names for modality, usual in _ENDINGS.items() if ending(name) in usual}
    unknown = [name for name in names if not any(ending(name) in usual for usual in _ENDINGS.values())]
    if len(known) == 1 and not unknown:
        return known.pop()
    if look_like_texts(contents, names):
        return "texts"
    what = f"{names[0]!r} is no text. " if not known else ""
    raise BagwiseError(f"{what}Say what the files are, for instance by {argument('modality', 'images')}.")


_READERS: dict[str, Callable[..., Collection]] = {
    "images": open_images,
    "texts": open_texts,
    "videos": open_videos,
    "records": open_records,
}
_MODALITIES = (*_READERS, "table")
