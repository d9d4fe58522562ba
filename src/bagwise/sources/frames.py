"""Tables in memory as collections: pandas, Polars, Arrow, data sets of Hugging Face, AnnData, mappings of columns.

Nothing is imported that the caller has not: tables are known by their methods.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, argument, unknown_name
from bagwise.sources.collection import Collection
from bagwise.sources.columns import (
    USUAL_LABEL,
    USUAL_TEXT,
    FewValues,
    RawTable,
    Reading,
    TableColumns,
    chosen_column,
    likely_note,
    optional_columns,
    shortened,
    split_name,
    taken_note,
    usual_column,
)
from bagwise.sources.items import Item
from bagwise.sources.limits import Limits, as_limits
from bagwise.sources.media import ImageDecoder, TextDecoder, check_mode
from bagwise.sources.places import annotated

__all__ = ["frame_columns", "is_frame", "modality_of_frame", "open_frame"]

USUAL_IMAGE = ("image", "img")
_MODALITIES = ("images", "texts", "table")
_OF_LABELS = (str, bool, int, float, np.generic, list)
# Modes of Pillow that PNG files hold.
_PNG_MODES = ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA")


def is_frame(source: Any) -> bool:
    """Whether a source is a table in memory; what it lacks is told when it is opened."""
    kind = type(source)
    if isinstance(source, (str, bytes, os.PathLike, Collection, np.ndarray)):
        return False
    # not asked of the object: a table that is not read yet would be
    named = isinstance(source, Mapping) or hasattr(kind, "column_names") or hasattr(kind, "columns")
    return named or _is_anndata(source)


def _is_anndata(source: Any) -> bool:
    return all(hasattr(source, name) for name in ("obs", "var_names", "layers", "X"))


def frame_columns(source: Any) -> list[str]:
    """Return the names of the columns of a table in memory; of AnnData those of `obs`."""
    if _is_anndata(source):
        source = source.obs
    return _Frame(source).names


def modality_of_frame(source: Any, options: Mapping[str, Any]) -> str:
    """Return what the rows are: images or texts, if there is such a column, otherwise rows of numbers."""
    if _is_anndata(source):
        return "table"
    frame = _Frame(source)
    if options.get("image") is not None:
        return "images"
    if options.get("text") is not None:
        return "texts"
    if frame.image() is not None:
        return "images"
    return "table" if frame.text() is None else "texts"


def open_frame(
    source: Any,
    modality: str = "auto",
    *,
    image: str | None = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    id: str | None = None,
    split: str | None = None,
    keep: str | Sequence[str] = (),
    words: Sequence[str] | None = None,
    layer: str | None = None,
    mode: str = "grey",
    labels: Any = None,
    splits: Any = None,
    limits: Limits | None = None,
) -> Collection:
    """Open a table in memory: each row is an image, a text, or a row of numbers.

    Parameters
    ----------
    source : DataFrame, pyarrow.Table, datasets.Dataset, datasets.DatasetDict, AnnData or mapping
        Of pandas or Polars; a mapping has the columns by name. The splits of a DatasetDict are those of the collection.
    modality : {"auto", "images", "texts", "table"}, default="auto"
        "auto": images or texts if there is such a column, otherwise a table of numbers.
    image : str, default=None
        Column of images: of Pillow, arrays of uint8, bytes of image files, or paths of files. By default the one
        of the type `datasets.Image`, or that is named ``image`` or ``img``.
    text : str or sequence of str, default=None
        Column of texts, by default ``text``, ``body``, ``content`` or ``document``. Several are joined by a line end.
    label : str, default=None
        Column of labels, by default the one that is named ``label`` and the like, or the only one of the type
        `datasets.ClassLabel`, whose names become the labels. A column of ``obs`` of AnnData.
    id, split, keep, words, labels, splits, limits
        See `open_table`. Without ids, names of the index of pandas are the ids, otherwise rows are numbered from 0.
    layer : str, default=None
        Layer of AnnData, or "raw"; None: its matrix X.
    mode : {"grey", "rgb"}, default="grey"
        See `open_images`.

    Returns
    -------
    collection : Collection
    """
    limits = as_limits(limits)
    if modality == "auto":
        modality = modality_of_frame(source, {"image": image, "text": text})
    modality = "texts" if modality == "records" else modality
    if modality not in _MODALITIES:
        raise unknown_name("modality of a table in memory", modality, ("auto", *_MODALITIES))
    for name, given, used in (("image", image, modality == "images"), ("text", text, modality == "texts")):
        if given is not None and not used:
            raise BagwiseError(f"{argument(name)} is not for {modality}. Leave it out.")
    if layer is not None and not _is_anndata(source):
        raise BagwiseError(f"{argument('layer')} is for AnnData, got {type(source).__name__}. Leave it out.")
    where = f"the {type(source).__name__}"
    if modality == "table":
        from bagwise.sources.tables import check_table, collection_of  # deferred: loads SciPy

        keep = (keep,) if isinstance(keep, str) else tuple(keep)
        reading = Reading(label=label, id=id, split=split, keep=keep, words=words, layer=layer, limits=limits)
        frame = None if _is_anndata(source) else _Frame(source)
        try:
            table = _anndata_table(source, reading) if frame is None else _number_table(frame, reading)
            check_table(table, limits)
        except BagwiseError as error:
            raise BagwiseError(f"{where} cannot be read: {error}") from error
        collection: Collection = collection_of(table, where, limits)
    else:
        frame = _Frame(source)
        limits.check("rows", frame.n_rows, f"the {frame.kind} has {frame.n_rows:,} rows")
        collection = _items(frame, modality, image or text, label, id, split, check_mode(mode), limits)
    return annotated(collection, labels, splits)


class _Frame:
    """The columns of a table, or of several of the same columns, which are splits."""

    def __init__(self, source: Any) -> None:
        self.kind = type(source).__name__
        if not hasattr(source, "__getitem__") or not hasattr(source, "__len__") or hasattr(source, "collect"):
            what = "collect()" if hasattr(source, "collect") else "Dataset.from_list(list(dataset.take(1000)))"
            raise BagwiseError(f"The {self.kind} has no rows in memory. Read them first, for instance by {what}.")
        self.parts: list[tuple[str | None, Any]] = [(None, source)]
        if isinstance(source, Mapping) and all(hasattr(part, "column_names") for part in source.values()):
            self.parts = [(split_name(str(name)), part) for name, part in source.items()]
        names = [_names(part) for _, part in self.parts]
        if not names or any(sorted(one) != sorted(names[0]) for one in names):
            raise BagwiseError(f"The splits of the {self.kind} have different columns, or there are none.")
        self.names = names[0]
        if len(set(self.names)) < len(self.names):
            raise BagwiseError(f"The {self.kind} has columns of the same name: {shortened(self.names)}.")
        self.sizes = [_n_rows(part, self.names) for _, part in self.parts]
        self.n_rows = sum(self.sizes)
        if not self.n_rows or not self.names:
            raise BagwiseError(f"The {self.kind} has {self.n_rows} rows and {len(self.names)} columns. Give some.")

    def check(self, name: str) -> str:
        """Return the column of this name; raise an error if there is none."""
        found = chosen_column(name, self.names)
        if found is None:
            raise BagwiseError(f"The {self.kind} has no column {name!r}; there are {shortened(self.names)}.")
        return found

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return [value for _, part in self.parts for value in _values(part, name)]

    def array(self, name: str) -> Any:
        """Return a column as an array, of numbers if it has nothing else."""
        arrays = [_array(part, name) for _, part in self.parts]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def feature(self, name: str) -> Any:
        """Return the type of a column of a data set of Hugging Face, or None."""
        features = getattr(self.parts[0][1], "features", None)
        return features.get(name) if isinstance(features, Mapping) else None

    def image(self) -> str | None:
        """Return the column of images, if there is one."""
        typed = [name for name in self.names if type(self.feature(name)).__name__ == "Image"]
        if typed:
            return typed[0]
        return self._usual(USUAL_IMAGE, _is_image)

    def text(self) -> str | None:
        """Return the column of texts, if there is one."""
        return self._usual(USUAL_TEXT, lambda value: isinstance(value, str))

    def _usual(self, known: Sequence[str], fits: Callable[[Any], bool]) -> str | None:
        """Return the first column with a usual name whose first value fits."""
        found = (usual_column((one,), self.names) for one in known)
        return next((name for name in found if name is not None and fits(_first(self.parts[0][1], name))), None)

    def label(self, given: str | None, others: Sequence[str] = ()) -> str | None:
        """Return the column of labels: the given one, one of a usual name, or the only one with names of classes."""
        if given is not None:
            return self.check(given)
        typed = [name for name in self.names if _class_names(self.feature(name)) is not None]
        return usual_column(USUAL_LABEL, self.names, others) or (typed[0] if len(typed) == 1 else None)

    def likely_labels(self, others: Sequence[str | None]) -> list[str]:
        """Return columns with few values, which may hold the labels; `others` hold something else."""
        beside = FewValues()
        for name in self.names:
            if name in others or not isinstance(_first(self.parts[0][1], name), _OF_LABELS):
                continue
            for value in self.column(name):
                if not _is_missing(value) and not beside.add_value(name, value):
                    break
        return beside.likely

    def strings(self, name: str) -> list[str]:
        """Return a column as strings; what is missing is an empty one."""
        return [labels[0] if labels else "" for labels in self.label_sets(name, several=False)]

    def label_sets(self, name: str, several: bool = True) -> list[tuple[str, ...]]:
        """Return the labels in each row of a column: of lists each entry is one."""
        names = _class_names(self.feature(name))
        return [_labels(value, names, name, several) for value in self.column(name)]

    def ids(self) -> list[str] | None:
        """Return the names of rows in the index of pandas, if they differ."""
        index: Any = getattr(self.parts[0][1], "index", None)
        if len(self.parts) > 1 or not hasattr(index, "tolist") or type(index).__name__ == "RangeIndex":
            return None
        names = [str(name) for name in index.tolist()]
        return names if len(set(names)) == len(names) else None


def _names(part: Any) -> list[str]:
    names = part if isinstance(part, Mapping) else getattr(part, "column_names", None)
    return [str(name) for name in (names if names is not None else part.columns)]


def _raw(part: Any, name: str) -> Any:
    """Return a column as the library of the table gives it; names that are no strings were made strings."""
    if not isinstance(part, Mapping) and hasattr(part, "columns") and not hasattr(part, "column_names"):
        given = next(column for column in part.columns if str(column) == name)
        return part[given]
    return part[name]


def _n_rows(part: Any, names: Sequence[str]) -> int:
    if not isinstance(part, Mapping):
        return int(getattr(part, "num_rows", None) or len(part))
    sizes = {len(column) for column in part.values()}
    if len(sizes) > 1:
        raise BagwiseError(f"Columns have {' and '.join(map(str, sorted(sizes)))} rows. Give as many of each.")
    return sizes.pop() if sizes else 0


def _values(part: Any, name: str) -> Any:
    column = _raw(part, name)
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return getattr(column, method)()
    return list(column)


def _array(part: Any, name: str) -> Any:
    column = _raw(part, name)
    if hasattr(column, "dtype") and getattr(column.dtype, "kind", "O") in "fiub" and hasattr(column, "to_numpy"):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)  # pandas, also numbers with missing ones
    if not hasattr(column, "__array__"):
        column = list(column)
    try:
        return np.asarray(column)
    except ValueError:  # lists of different lengths
        return np.array([None], dtype=object)


def _first(part: Any, name: str) -> Any:
    """Return the first value of a column that is there; of images of Hugging Face, none is decoded."""
    column = _lazy(part, name)
    return next((value for value in (column[i] for i in range(min(len(column), 100))) if value is not None), None)


class _Lazy:
    """A column whose values are read one by one."""

    def __init__(self, n_rows: int, read: Any) -> None:
        self._n_rows, self._read = n_rows, read

    def __len__(self) -> int:
        return self._n_rows

    def __getitem__(self, row: int) -> Any:
        return self._read(row)


def _lazy(part: Any, name: str) -> Any:
    features = getattr(part, "features", None)
    if isinstance(features, Mapping):  # a data set of Hugging Face
        rows = part.select_columns([name]).with_format(None)
        if type(features[name]).__name__ == "Image":
            rows = rows.cast_column(name, type(features[name])(decode=False))
        return _Lazy(len(rows), lambda row: rows[row][name])
    column = _raw(part, name)
    if hasattr(column, "to_pylist"):
        return _Lazy(len(column), lambda row: column[row].as_py())
    return _values(part, name)


def _class_names(feature: Any) -> list[str] | None:
    """Return the names of the classes of `datasets.ClassLabel`, or of a list of such."""
    names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    return None if names is None else list(names)


def _is_missing(value: Any) -> bool:
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def _labels(value: Any, names: Sequence[str] | None, column: str, several: bool) -> tuple[str, ...]:
    if isinstance(value, (list, tuple, set, np.ndarray)):
        if not several:
            raise BagwiseError(f"column {column!r} has lists, but rows of a table have one label, id and split each.")
        return tuple(label for one in value for label in _labels(one, names, column, False))
    if _is_missing(value) or value == "":
        return ()
    if names is not None:
        if not isinstance(value, (int, np.integer)):
            return (str(value),)
        if not -1 <= value < len(names):
            raise BagwiseError(f"column {column!r} has the class {value}, but there are {len(names)} names.")
        return () if value == -1 else (names[int(value)],)
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return (str(int(value)),)
    return (str(value),)


def _is_image(value: Any) -> bool:
    """Whether a value is an image of Pillow, an array of pixels, or the bytes of a file."""
    of_bytes = isinstance(value, bytes) or (isinstance(value, Mapping) and bool({"bytes", "path"} & set(value)))
    return of_bytes or (hasattr(value, "getbands") and hasattr(value, "tobytes")) or np.ndim(value) in (2, 3)


def _items(
    frame: _Frame,
    modality: str,
    given: Any,
    label: str | None,
    id: str | None,
    split: str | None,
    mode: str,
    limits: Limits,
) -> Collection:
    """Make a collection of images or texts."""
    if given is None:
        given = frame.image() if modality == "images" else frame.text()
        if given is None:
            usual, choice = (USUAL_IMAGE, "image") if modality == "images" else (USUAL_TEXT, "text")
            named = f"none of the columns of the {frame.kind} has {modality}, or is named {', '.join(usual)}"
            raise BagwiseError(f"{named}; there are {shortened(frame.names)}. Choose one by {argument(choice)}.")
    columns = [frame.check(name) for name in ((given,) if isinstance(given, str) else given)]
    decoder: Any = ImageDecoder(mode, limits) if modality == "images" else TextDecoder(None, limits)
    if modality == "images":
        require("PIL.Image", "app", "Reading images")
    given_label = label
    label = frame.label(label, columns)
    label_sets = [()] * frame.n_rows if label is None else frame.label_sets(label)
    split = usual_column(("split",), frame.names, columns) if split is None else split
    splits: list[str | None] = [name for (name, _), n in zip(frame.parts, frame.sizes, strict=True) for _ in range(n)]
    if split is not None:
        splits = [split_name(one) if one else None for one in frame.strings(frame.check(split))]
    ids = _ids(frame, id)
    contents = []
    for (_, part), n in zip(frame.parts, frame.sizes, strict=True):
        cells = [_lazy(part, name) for name in columns]
        make = ImageCell if modality == "images" else TextCell
        contents += [make(f"the {frame.kind}", row, tuple(cells), row) for row in range(n)]
    items = [
        Item(name, content, decoder, labels, of)
        for name, content, labels, of in zip(ids, contents, label_sets, splits, strict=True)
    ]
    notes = taken_note(label, frame.names, given_label)
    classes = set(label_sets) - {()}
    if len(classes) < 2 and given_label is None:
        others = (*columns, label, split, usual_column(("id",), frame.names) if id is None else frame.check(id))
        notes += likely_note(frame.likely_labels(others), None if not classes else "All items have the same label. ")
    return Collection.of(items, modality, f"the {frame.kind}", notes=notes, limits=limits)


def _ids(frame: _Frame, given: str | None) -> list[str]:
    usual = usual_column(("id",), frame.names)
    if given is not None or usual is not None:
        ids = frame.strings(frame.check(given or usual or ""))
        if given is not None or (len(set(ids)) == len(ids) and all(ids)):
            return ids
    names = frame.ids()
    if names is not None:
        return names
    parts = zip(frame.parts, frame.sizes, strict=True)
    return [f"{name}:{row}" if name else str(row) for (name, _), n in parts for row in range(n)]


@dataclass(frozen=True, eq=False, slots=True)
class _Cell:
    """What is in one or several columns of a row. Is sent to other processes without the table."""

    table: str
    number: int
    columns: tuple[Any, ...]
    row: int

    @property
    def source(self) -> str:
        """The table and the number of the row."""
        return f"{self.table}:{self.number}"

    def values(self) -> list[Any]:
        """Return the values."""
        return [column[self.row] for column in self.columns]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.table, self.number, tuple([value] for value in self.values()), 0)


class TextCell(_Cell):
    """A text, or several, joined by line ends."""

    def open(self) -> BinaryIO:
        """Open the text as UTF-8; what is missing is an empty text."""
        texts = ["" if _is_missing(value) else value for value in self.values()]
        wrong = next((value for value in texts if not isinstance(value, str)), None)
        if wrong is not None:
            raise BagwiseError(f"its text is not a string but {type(wrong).__name__}: {wrong!r:.60}")
        return io.BytesIO("\n".join(texts).encode("utf-8", "replace"))


class ImageCell(_Cell):
    """An image: of Pillow, an array, bytes of a file, or its path."""

    def open(self) -> BinaryIO:
        """Open the bytes of the file; images and arrays as those of a PNG file."""
        (value,) = self.values()
        if isinstance(value, Mapping):  # of datasets.Image
            value = value.get("bytes") or value.get("path")
        if isinstance(value, (bytes, bytearray, memoryview)):
            return io.BytesIO(value)
        if isinstance(value, (str, os.PathLike)):
            return open(value, "rb")
        if _is_missing(value):
            raise BagwiseError("there is no image")
        return io.BytesIO(_png(value))


def _png(value: Any) -> bytes:
    from PIL import Image, ImageOps

    if not hasattr(value, "getbands"):
        array = np.asarray(value)
        array = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
        if array.dtype not in (np.uint8, np.uint16) or array.ndim not in (2, 3) or not array.size:
            raise BagwiseError(
                f"it is an array of {array.dtype} and shape {array.shape}; expected uint8, of shape (height, width) or "
                "(height, width, 3)"
            )
        try:
            value = Image.fromarray(array)
        except TypeError as error:
            raise BagwiseError(f"it is an array of {array.dtype} and shape {array.shape}, which is no image") from error
    image = ImageOps.exif_transpose(value)
    if image.mode == "F":
        raise BagwiseError("its pixels are fractions; the values of black and white are unknown. Convert it to 8 bits")
    content = io.BytesIO()
    (image if image.mode in _PNG_MODES else image.convert("RGB")).save(content, "PNG", compress_level=1)
    return content.getvalue()


def _number_table(frame: _Frame, reading: Reading) -> RawTable:
    """Read a table of numbers; columns of labels and the like are found as in files."""
    from bagwise.sources.table_files import text_column

    limits = reading.limits
    limits.check("rows", frame.n_rows, f"the {frame.kind} has {frame.n_rows:,} rows")
    limits.check("columns", len(frame.names), f"the {frame.kind} has {len(frame.names):,} columns")
    splits = [name for (name, _), n in zip(frame.parts, frame.sizes, strict=True) for _ in range(n)]
    by_type = frame.label(None)
    columns = TableColumns(frame.names, reading, by_type)
    arrays = {name: frame.array(name) for name in frame.names}
    wrong = [i for i, name in enumerate(frame.names) if arrays[name].dtype.kind not in "fiub"]
    texts = [i for i in wrong if isinstance(_first(frame.parts[0][1], frame.names[i]), str)]
    others: dict[str, Any] = columns.read(lambda i: frame.strings(frame.names[i]), texts)
    for i in columns.numbers:
        name = frame.names[i]
        if i in texts:
            raise text_column(i, name, frame.strings(name)[:50])
        if i in wrong:
            found = type(_first(frame.parts[0][1], name)).__name__
            raise BagwiseError(
                f"column {name!r} has missing values, or is of the type {found}, not numbers. Remove it, or choose it "
                f"by {argument('label')}, {argument('id')} or {argument('split')}."
            )
    chosen = [frame.names[i] for i in columns.numbers]
    X = (
        np.stack([arrays[name].astype(np.float64) for name in chosen], axis=1)
        if chosen
        else np.empty((frame.n_rows, 0))
    )
    ids = frame.ids()
    if ids is not None:
        others.setdefault("ids", ids)
    if len(frame.parts) > 1:
        others.setdefault("splits", [split or "" for split in splits])
    return columns.table(X, others, True)


def _anndata_table(source: Any, reading: Reading) -> RawTable:
    """Read the matrix or a layer of AnnData, with columns of `obs`."""
    from bagwise.sources.h5ad import different_names, label_notes

    if reading.keep:
        raise BagwiseError(f"{argument('keep')} is for columns of tables, but this is AnnData. Leave it out.")
    frame = _Frame(source.obs) if len(source.obs.columns) else None
    names = [] if frame is None else frame.names

    def column(wanted: str | None, *usual: str) -> str | None:
        name = usual_column(usual, names) if wanted is None else chosen_column(wanted, names)
        if name is None and wanted is not None:
            raise BagwiseError(f"obs has no column {wanted!r}; there are {shortened(names)}.")
        return name

    chosen = {"labels": column(reading.label), "splits": column(reading.split, "split"), "ids": column(reading.id)}
    label = None if frame is None else frame.label(chosen["labels"])
    chosen["labels"] = label
    others = {what: frame.strings(name) for what, name in chosen.items() if frame is not None and name is not None}
    ids = [str(name) for name in source.obs_names]
    if len(set(ids)) == len(ids):
        others.setdefault("ids", ids)
    X, genes = anndata_matrix(source, reading.layer)
    coded = [name for name in names if type(source.obs[name].dtype).__name__ == "CategoricalDtype"]
    n_values = {name: len(source.obs[name].cat.categories) for name in coded}
    notes = taken_note(label, names, reading.label) + label_notes(n_values, len(ids), label)
    return RawTable(X, **optional_columns(others), feature_names=different_names(genes), notes=tuple(notes))


def anndata_matrix(source: Any, layer: str | None) -> tuple[Any, list[str]]:
    """Return the matrix X of AnnData, or a layer, in memory, as CSR if it is sparse; and the names of its columns."""
    import scipy.sparse as sp

    layers = [*source.layers, *(["raw"] if getattr(source, "raw", None) is not None else [])]
    if layer is not None and layer not in layers:
        raise BagwiseError(f"there is no layer {layer!r}; there are {shortened(layers) or 'none'}.")
    held = source if layer is None else source.raw if layer == "raw" else source.layers[layer]
    X = held.X if layer in (None, "raw") else held
    names = [str(name) for name in (held if layer == "raw" else source).var_names]
    if X is None:
        raise BagwiseError(f"it has no matrix X. Choose a layer by {argument('layer')}: {shortened(layers)}.")
    if hasattr(X, "to_memory"):  # backed by a file
        X = X.to_memory()
    return (sp.csr_array(X) if sp.issparse(X) else np.asarray(X[...])), names
