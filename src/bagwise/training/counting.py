"""Other items in the words of a model: opening them as the model needs them, and counting."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from bagwise._utils.extras import require
from bagwise.bags import Bags
from bagwise.errors import BagwiseError
from bagwise.model import Model
from bagwise.sources.collection import Collection
from bagwise.sources.items import SkippedItemsWarning
from bagwise.sources.tables import TableCollection
from bagwise.training.options import FitOptions
from bagwise.training.words import Progress, no_progress, open_source

__all__ = ["histograms_of", "open_items"]

_BATCH = 64
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


def open_items(model: Model, source: Any, options: FitOptions | None = None) -> Collection:
    """Open a source of the items that a model takes.

    What the options do not say is done as when the model was learned: the encoding of texts, the columns of texts
    and labels in files, colours. In a folder with several kinds of things, the images or videos that the model takes
    are opened; texts among them by ``modality="texts"``.

    Parameters
    ----------
    model : Model
    source : Collection or path
    options : FitOptions, default=None

    Returns
    -------
    collection : Collection
        Of the kind that the model takes, and not empty.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bagwise import Hierarchy, Model
    >>> from bagwise.training import open_items
    >>> model = Model(modality="texts", hierarchy=Hierarchy(2, [[0, 1]], [0.0]), n_groups=1, word_names=["cat", "dog"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.txt").write_text("cat dog cat")
    ...     open_items(model, folder).ids
    ['a.txt']
    """
    options = FitOptions() if options is None else options
    color = type(model.descriptor).__name__ == "ColorSIFT"
    changes: dict[str, Any] = {"descriptor": "color-sift" if color else "auto"}
    is_file = not isinstance(source, Collection) and os.path.isfile(source)
    if options.kind == "auto" and model.modality != "texts" and not is_file:
        changes["kind"] = model.modality
    if model.modality == "texts":
        if options.encoding is None:
            changes["encoding"] = model.options.get("encoding")
        if options.text is None and is_file:
            changes["text"] = model.options.get("text")
    if model.modality == "table" and options.label is None and is_file:
        changes["label"] = _column_of_labels(model, source)
    collection = open_source(source, options.with_changes(**changes))
    if collection.modality != model.modality:
        raise BagwiseError(
            f"The model was learned from {model.modality}, but {collection.source} holds {collection.modality}. "
            f"Give {model.modality}."
            + (" Texts among them are opened by modality='texts'." if model.modality == "texts" else "")
        )
    if not len(collection):
        raise BagwiseError(f"{collection.source} has no items.")
    return collection


def _column_of_labels(model: Model, path: Any) -> str | None:
    """The column of labels that the model was learned with, where this table has it: new data may do without."""
    label, ending = model.options.get("label"), os.path.splitext(path)[1].lower()
    if label is None or ending not in (*_DELIMITERS, ".parquet"):
        return None
    if ending == ".parquet":
        return label if label in require("pyarrow.parquet", "io", "Reading Parquet").read_schema(path).names else None
    with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
        return label if label in next(csv.reader(file, delimiter=_DELIMITERS[ending]), []) else None


def histograms_of(
    model: Model, collection: Collection, options: FitOptions | None = None, *, progress: Progress | None = None
) -> tuple[Any, NDArray[np.intp]]:
    """Histograms over the full vocabulary of the items that can be read, and the numbers of these items.

    Parameters
    ----------
    model : Model
    collection : Collection
        Of the kind that the model was learned from, see `open_items`.
    options : FitOptions, default=None
        `on_error`, `jobs` and `cache` are used.
    progress : callable, default=None
        See `fit_model`.

    Returns
    -------
    histograms : CSR array or ndarray of shape (n_kept, n_cells * d)
    kept : ndarray of shape (n_kept,)

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> from bagwise.training import histograms_of
    >>> from bagwise.sources import TableCollection
    >>> model = Model(modality="table", hierarchy=Hierarchy(2, [[0, 1]], [0.0]), n_groups=1)
    >>> rows = TableCollection(np.array([[1.0, 2.0], [0.0, 1.0]]), ["a", "b"], [(), ()])
    >>> histograms_of(model, rows)[1]
    array([0, 1])
    """
    options = FitOptions() if options is None else options
    report = progress or no_progress
    if isinstance(collection, TableCollection):
        return model.histograms(collection), np.arange(len(collection))
    parts: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedItemsWarning)  # told by which items are kept
        batches = _texts(collection, options) if model.modality == "texts" else _bags(model, collection, options)
        for content, kept in batches:
            parts.append(model.histograms(content, n_jobs=options.jobs))
            report("Counting words", kept[-1] + 1, len(collection))
    return (sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)), np.array(kept)


def _texts(collection: Collection, options: FitOptions) -> Iterator[tuple[list[str], list[int]]]:
    """Texts some at a time, with the numbers of all that were read so far."""
    number_of = {id: number for number, id in enumerate(collection.ids)}
    kept: list[int] = []
    waiting: list[str] = []
    for item, text in collection.load(options.on_error):
        waiting.append(text)
        kept.append(number_of[item.id])
        if len(waiting) == _BATCH:
            yield waiting, kept
            waiting = []
    if waiting:
        yield waiting, kept


def _bags(model: Model, collection: Collection, options: FitOptions) -> Iterator[tuple[Bags, list[int]]]:
    """Descriptors of some items at a time, with the numbers of all that were described so far."""
    descriptor: Any = clone(model.descriptor).set_params(n_jobs=options.jobs, cache=options.cache)
    describing = descriptor.iter_transform(collection, batch_size=_BATCH, on_error=options.on_error)
    for bags in describing:
        yield bags, describing.kept
