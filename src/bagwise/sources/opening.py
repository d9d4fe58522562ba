"""`open_collection`: open a folder, an archive, a file of records or a table."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from bagwise.errors import BagwiseError, unknown_name
from bagwise.sources.collection import Collection
from bagwise.sources.media import IMAGE_ENDINGS, TEXT_ENDINGS, VIDEO_ENDINGS, open_images, open_texts, open_videos
from bagwise.sources.places import ending, list_place, nothing_found
from bagwise.sources.records import RECORD_ENDINGS, has_text_column, open_records

__all__ = ["modality_of", "open_collection"]

_ENDINGS = {"images": IMAGE_ENDINGS, "texts": TEXT_ENDINGS, "records": RECORD_ENDINGS, "videos": VIDEO_ENDINGS}
# Files that are tables for certain; .csv and .tsv may be texts as well.
_TABLES = frozenset([".npz", ".mtx", ".svm", ".svmlight", ".libsvm", ".parquet"])


def open_collection(path: str | os.PathLike[str], modality: str = "auto", **options: Any) -> Collection:
    r"""Open a collection: a folder or archive of images, texts or videos, a file of records, or a table.

    Parameters
    ----------
    path : path
        - A folder, or a zip or tar archive (read in place, also compressed), of images, texts or videos: the class of
          an item is its folder; outermost folders named train and test are splits.
        - A CSV, TSV or JSONL file with a text in every record; or a folder or an archive of them.
        - A table of numbers: ``.npz``, ``.mtx``, ``.svmlight``, ``.csv``, ``.tsv``, ``.parquet``.
    modality : {"auto", "images", "texts", "videos", "records", "table"}, default="auto"
        Items to open. "auto": the modality of the files, an error if there are several. (Texts in the outermost
        folder beside other files, such as a README.txt, do not count.) A CSV or TSV file is a file of records if it has
        a column named text, body, content or document, or if `text` is given; otherwise it is a table.
    **options
        What the reader of this modality takes, among others:

        - images: ``mode="grey"`` or ``"rgb"``; see `bagwise.sources.open_images`.
        - texts: ``encoding``; see `bagwise.sources.open_texts`.
        - records: columns ``text``, ``label``, ``id``, ``split``; see `bagwise.sources.open_records`.
        - videos: ``mode``, ``every``, ``max_frames``; see `bagwise.sources.open_videos`.
        - table: ``label``; see `bagwise.sources.open_table`.
        - all: ``labels`` and ``splits``, mappings from ids or CSV files; ``limits``, what archives may hold.

    Returns
    -------
    collection : Collection
        Nothing but names is read of images, texts and videos until an item is loaded.

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
    """
    if modality == "auto":
        modality = modality_of(path, options)
    if modality == "table":
        from bagwise.sources.tables import open_table  # deferred: loads SciPy

        reader: Callable[..., Collection] = open_table
    elif modality in _READERS:
        reader = _READERS[modality]
    else:
        raise unknown_name("modality", modality, ("auto", "table", *_READERS))
    _, *accepted = inspect.signature(reader).parameters
    for option in options:
        if option not in accepted:
            raise unknown_name(f"option of {modality}", option, accepted)
    return reader(path, **options)


def modality_of(path: str | os.PathLike[str], options: dict[str, Any]) -> str:
    """Return the modality that `open_collection` opens with these options if it is not told."""
    name = os.path.basename(os.fspath(path))
    if ending(name) in _TABLES and os.path.isfile(path):
        return "table"
    contents, _ = list_place(path, options.get("limits"))
    if list(contents) == [name] and ending(name) in RECORD_ENDINGS:
        if {"text", "columns"} & set(options):
            return "records"
        try:
            return "records" if has_text_column(name, contents[name]) else "table"
        except BagwiseError as error:
            raise BagwiseError(f"{contents[name].source} cannot be used: {error}.") from error
    found = {modality: [name for name in contents if ending(name) in endings] for modality, endings in _ENDINGS.items()}
    there = {modality: names for modality, names in found.items() if names}
    if len(there) > 1 and not any("/" in name for name in there.get("texts", [])):
        there.pop("texts", None)
    if not there:
        endings, others = frozenset().union(*_ENDINGS.values()), "; others by modality= and extensions="
        raise nothing_found(os.fspath(path), "images, texts, records or videos", contents, endings, others)
    if len(there) > 1:
        listed = " and ".join(f"{len(names)} {modality}" for modality, names in there.items())
        raise BagwiseError(f"{os.fspath(path)} holds {listed}. Choose one, for instance by modality={min(there)!r}.")
    return next(iter(there))


_READERS: dict[str, Callable[..., Collection]] = {
    "images": open_images,
    "texts": open_texts,
    "videos": open_videos,
    "records": open_records,
}
