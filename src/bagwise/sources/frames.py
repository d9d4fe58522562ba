"""Tables in memory as collections: pandas, Polars, Arrow, data sets of Hugging Face, AnnData, mappings of columns.

Nothing is imported that the caller has not, but pyarrow: columns become those of an Arrow table, as in files.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO

import numpy as np

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, argument, unknown_name
from bagwise.sources.collection import Collection, Contents
from bagwise.sources.columns import (
    RawTable,
    Reading,
    check_missing,
    number_table,
    obs_roles,
    optional_columns,
    without_missing,
)
from bagwise.sources.item_tables import arrow, item_table
from bagwise.sources.limits import Limits, as_limits
from bagwise.sources.media import ImageDecoder, TextDecoder, check_mode
from bagwise.sources.places import annotated
from bagwise.sources.read_table import Table, column_of_values, is_nested
from bagwise.sources.records import columns_of_texts, has_texts, texts_of
from bagwise.sources.roles import Roles, assign_roles, is_missing, shortened, split_name, taken_note, unused_note

__all__ = ["frame_columns", "is_frame", "modality_of_frame", "open_frame"]

_MODALITIES = ("images", "texts", "table")
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
    return _Frame(source.obs if _is_anndata(source) else source).names


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
    return "texts" if has_texts(frame.table(), options) else "table"


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
    missing: str | None = None,
    layer: str | None = None,
    mode: str = "grey",
    labels: Any = None,
    splits: Any = None,
    limits: Limits | None = None,
) -> Collection:
    """Open a table in memory, see `open_collection`."""
    limits = as_limits(limits)
    if modality == "auto":
        roles = {"image": image, "text": text, "label": label, "id": id, "split": split, "labels": labels}
        modality = modality_of_frame(source, roles)
    modality = "texts" if modality == "records" else modality
    if modality not in _MODALITIES:
        raise unknown_name("modality of a table in memory", modality, ("auto", *_MODALITIES))
    for name, column, used in (("image", image, modality == "images"), ("text", text, modality == "texts")):
        if column is not None and not used:
            raise BagwiseError(f"{argument(name)} is not for {modality}. Leave it out.")
    if layer is not None and not _is_anndata(source):
        raise BagwiseError(f"{argument('layer')} is for AnnData, got {type(source).__name__}. Leave it out.")
    check_missing(missing)
    where = f"the {type(source).__name__}"
    if modality == "table":
        from bagwise.sources.tables import check_table, collection_of  # deferred: loads SciPy

        keep = (keep,) if isinstance(keep, str) else tuple(keep)
        reading = Reading(label=label, id=id, split=split, keep=keep, words=words, layer=layer, limits=limits)
        try:
            read = _anndata_table if _is_anndata(source) else _frame_table
            table = without_missing(read(source, reading), missing)
            check_table(table, limits)
        except BagwiseError as error:
            raise BagwiseError(f"{where} cannot be read: {error}") from error
        collection: Collection = collection_of(table, where, limits)
    else:
        frame = _Frame(source)
        limits.check("rows", frame.n_rows, f"{where} has {frame.n_rows:,} rows")
        chosen: dict[str, Any] = {"label": label, "id": id, "split": split}
        try:
            if modality == "images":
                collection = _images(frame, image, chosen, labels is not None, check_mode(mode), limits)
            else:
                collection = _texts(frame, {"text": text, **chosen}, labels is not None, limits)
        except BagwiseError as error:
            raise BagwiseError(f"{where} cannot be used: {str(error).rstrip('.')}.") from error
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
        features = next((getattr(part, "features", None) for _, part in self.parts), None)  # of Hugging Face
        self.features: Mapping[str, Any] = features if isinstance(features, Mapping) else {}
        self.parts = [(name, _as_arrow(part)) for name, part in self.parts]
        names = [list(_names(part)) for _, part in self.parts]
        if not names or any(sorted(one) != sorted(names[0]) for one in names):
            raise BagwiseError(f"The splits of the {self.kind} have different columns, or there are none.")
        self.names = names[0]
        if len(set(self.names)) < len(self.names):
            raise BagwiseError(f"The {self.kind} has columns of the same name: {shortened(self.names)}.")
        self.sizes = [_n_rows(part) for _, part in self.parts]
        self.n_rows = sum(self.sizes)
        if not self.n_rows or not self.names:
            raise BagwiseError(f"The {self.kind} has {self.n_rows} rows and {len(self.names)} columns. Give some.")

    def table(self, without: str | None = None) -> Table:
        """Return the columns as an Arrow table; without one that has images."""
        pa = arrow()
        columns: dict[str, Any] = {}
        unread: dict[str, str] = {}
        for name in self.names:
            if name == without:
                continue
            chunks = [_column(part, name) for _, part in self.parts]
            if any(one is None for one in chunks):
                unread[name] = "values that are no strings or numbers"
                continue
            column: Any = chunks[0]
            if len(chunks) > 1:
                column = pa.concat_tables(
                    [pa.table({name: one}) for one in chunks], promote_options="permissive"
                ).column(name)
            classes = _class_names(self.features.get(name))
            columns[name] = column if classes is None else _named(column, classes, name)
        return Table(pa.table(columns), range(self.n_rows), unread=unread)

    def image(self) -> str | None:
        """Return the column of images, if there is one: by its type, or by its name and first value."""
        typed = [name for name in self.names if type(self.features.get(name)).__name__ == "Image"]
        if typed:
            return typed[0]
        name = assign_roles(self.names, {"image": None})["image"]
        if name is None:
            return None
        first = next((one for one in islice(self.cells(name), 100) if not is_missing(one)), None)
        return name if _is_image(first) else None

    def cells(self, name: str) -> Any:
        """Yield the cells of a column, images as their files."""
        for _, part in self.parts:
            values = part[_names(part)[name]]
            yield from (one.as_py() if hasattr(one, "as_py") else one for one in values)

    def typed_label(self) -> str | None:
        """Return the only column with names of classes."""
        typed = [name for name in self.names if _class_names(self.features.get(name)) is not None]
        return typed[0] if len(typed) == 1 else None

    def splits(self) -> list[str | None] | None:
        """Return the split of each row, if there are several tables."""
        parts = zip(self.parts, self.sizes, strict=True)
        return [name for (name, _), n in parts for _ in range(n)] if len(self.parts) > 1 else None

    def ids(self, table: Table, roles: Roles, chosen: str | None) -> list[str]:
        """Return the id of each row: of a column, if all differ or it was chosen, of pandas, or its number."""
        column = roles["id"]
        if column is not None:
            ids = table.strings(column)
            if chosen is not None or (len(set(ids)) == len(ids) and all(ids)):
                return ids
        names = self.index()
        if names is not None:
            return names
        parts = zip(self.parts, self.sizes, strict=True)
        return [f"{name}:{row}" if name else str(row) for (name, _), n in parts for row in range(n)]

    def index(self) -> list[str] | None:
        """Return the names of rows in the index of pandas, if they differ."""
        index: Any = getattr(self.parts[0][1], "index", None)
        if len(self.parts) > 1 or not hasattr(index, "tolist") or type(index).__name__ == "RangeIndex":
            return None
        names = [str(name) for name in index.tolist()]
        return names if len(set(names)) == len(names) else None


def _names(part: Any) -> dict[str, Any]:
    """Return the columns of a table, as its library calls them, by their names."""
    names = part if isinstance(part, Mapping) else getattr(part, "column_names", None)
    columns: list[Any] = list(names if names is not None else part.columns)
    strings = [str(name) for name in columns]
    if len(set(strings)) < len(strings):
        raise BagwiseError(f"The {type(part).__name__} has columns of the same name: {shortened(strings)}.")
    return dict(zip(strings, columns, strict=True))


def _n_rows(part: Any) -> int:
    if not isinstance(part, Mapping):
        return len(part)
    sizes = {len(column) for column in part.values()}
    if len(sizes) > 1:
        raise BagwiseError(f"Columns have {' and '.join(map(str, sorted(sizes)))} rows. Give as many of each.")
    return sizes.pop() if sizes else 0


def _as_arrow(part: Any) -> Any:
    """Return a table as Arrow has it, where its library gives all of it so; images are not decoded."""
    if hasattr(part, "with_format"):  # of Hugging Face
        return part.with_format("arrow")[:]
    # pandas may hold objects, which only those columns refuse that have them
    by_column = hasattr(part, "iloc") or not hasattr(part, "__arrow_c_stream__")
    return part if by_column else arrow().table(part)


def _column(part: Any, name: str) -> Any | None:
    """Return a column as Arrow has it; None if it holds other things than strings, numbers and lists of them."""
    pa, values = arrow(), part[_names(part)[name]]
    try:
        stream = hasattr(values, "__arrow_c_stream__")
        column = pa.chunked_array(values if stream else [pa.array(values, from_pandas=True)])
        if is_nested(column.type):
            return None
        return column.cast(pa.large_string()) if str(column.type) == "string_view" else column
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        cells = [one.item() if isinstance(one, np.generic) else None if is_missing(one) else one for one in values]
        other = {type(one) for one in cells} - {type(None), str, int, float, bool, list}
        column = None if other else column_of_values(cells)
        return None if column is None else pa.chunked_array([column])


def _class_names(feature: Any) -> list[str] | None:
    """Return the names of the classes of `datasets.ClassLabel`, or of a list of such."""
    names = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    return None if names is None else list(names)


def _named(column: Any, names: Sequence[str], column_name: str) -> Any:
    """Return a column of numbers of classes with their names; -1 is none."""
    pa = arrow()
    cells = column.to_pylist()
    known: dict[Any, str | None] = {None: None, -1: None, **dict(enumerate(names))}
    wrong = next((one for cell in cells for one in (cell if isinstance(cell, list) else [cell])
                  if one not in known and not isinstance(one, str)), None)  # fmt: skip
    if wrong is not None:
        raise BagwiseError(f"column {column_name!r} has the class {wrong}, but there are {len(names)} names.")
    if any(isinstance(cell, list) for cell in cells):
        return pa.chunked_array(
            [[[known.get(one, one) for one in cell or ()] for cell in cells]], pa.list_(pa.string())
        )
    return pa.chunked_array([pa.array([known.get(cell, cell) for cell in cells], pa.string())])


def _is_image(value: Any) -> bool:
    """Whether a value is an image of Pillow, an array of pixels, or the bytes of a file."""
    of_bytes = isinstance(value, bytes) or (isinstance(value, Mapping) and bool({"bytes", "path"} & set(value)))
    return of_bytes or (hasattr(value, "getbands") and hasattr(value, "tobytes")) or np.ndim(value) in (2, 3)


def _typed(frame: _Frame, chosen: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Choose the column whose type says that it has the labels, if no name does; return a note as well."""
    typed = frame.typed_label()
    if typed is None or chosen["label"] is not None or assign_roles(frame.names, {"label": None})["label"]:
        return dict(chosen), []
    return {**chosen, "label": typed}, taken_note(typed, frame.names, None)


def _texts(frame: _Frame, chosen: Mapping[str, Any], labelled: bool, limits: Limits) -> Collection:
    table = frame.table()
    chosen, notes = _typed(frame, chosen)
    roles = columns_of_texts(table, chosen, labelled)
    ids = frame.ids(table, roles, chosen["id"])
    where = f"the {frame.kind}"
    texts = texts_of(table, roles, where, limits, ids=ids, split=frame.splits())
    notes += [*roles.notes, *unused_note([*roles.unused, *table.unread])]
    return Collection(texts.table, "texts", TextDecoder("utf-8", limits), source=where, notes=notes, limits=limits)


def _images(
    frame: _Frame, image: str | None, chosen: Mapping[str, Any], labelled: bool, mode: str, limits: Limits
) -> Collection:
    require("PIL.Image", "app", "Reading images")
    column = frame.image() if image is None else assign_roles(frame.names, {"image": image})["image"]
    if column is None:
        raise BagwiseError(
            f"none of its columns has images, or is named image, img; there are {shortened(frame.names)}. "
            f"Choose one by {argument('image')}"
        )
    table = frame.table(without=column)
    chosen, notes = _typed(frame, chosen)
    roles = assign_roles(table.names, chosen, values=table.values, labelled=labelled)
    ids = frame.ids(table, roles, chosen["id"])
    where = f"the {frame.kind}"
    labels = None if roles["label"] is None else table.labels(roles["label"])
    splits = frame.splits() if roles["split"] is None else table.codes(roles["split"], split_name)
    contents: dict[str, Any] = {
        id: ImageCell(f"{where}:{row}", value)
        for row, (id, value) in enumerate(zip(ids, frame.cells(column), strict=True))
    }
    notes += [*roles.notes, *unused_note([*roles.unused, *table.unread])]
    rows, decoder = item_table(ids, labels, splits), ImageDecoder(mode, limits)
    return Collection(rows, "images", decoder, Contents(contents), source=where, notes=notes, limits=limits)


@dataclass(frozen=True, eq=False, slots=True)
class ImageCell:
    """An image in memory: of Pillow, an array, bytes of a file, or its path."""

    source: str
    value: Any

    def open(self) -> BinaryIO:
        """Open the bytes of the file; images and arrays as those of a PNG file."""
        value = self.value
        if isinstance(value, Mapping):  # of datasets.Image
            value = value.get("bytes") or value.get("path")
        if isinstance(value, (bytes, bytearray, memoryview)):
            return io.BytesIO(value)
        if isinstance(value, (str, os.PathLike)):
            return open(value, "rb")
        if is_missing(value):
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


def _frame_table(source: Any, reading: Reading) -> RawTable:
    """Read a table of numbers; columns of labels and the like are found as in files."""
    frame = _Frame(source)
    limits = reading.limits
    limits.check("rows", frame.n_rows, f"the {frame.kind} has {frame.n_rows:,} rows")
    limits.check("columns", len(frame.names), f"the {frame.kind} has {len(frame.names):,} columns")
    raw = number_table(frame.table(), reading, frame.typed_label())
    raw.ids = frame.index() if raw.ids is None else raw.ids
    raw.splits = frame.splits() if raw.splits is None else raw.splits
    return raw


def _anndata_table(source: Any, reading: Reading) -> RawTable:
    """Read the matrix or a layer of AnnData, with columns of `obs`."""
    from bagwise.sources.h5ad import different_names, label_notes

    if reading.keep:
        raise BagwiseError(f"{argument('keep')} is for columns of tables, but this is AnnData. Leave it out.")
    names = list(_names(source.obs))
    roles = obs_roles(names, {role: getattr(reading, role) for role in ("label", "split", "id")})
    chosen = {what: roles[role] for role, what in (("label", "labels"), ("split", "splits"), ("id", "ids"))}
    obs = _Frame(source.obs).table() if names else None
    others = {what: obs.strings(name) for what, name in chosen.items() if obs is not None and name is not None}
    ids = [str(name) for name in source.obs_names]
    if len(set(ids)) == len(ids):
        others.setdefault("ids", ids)
    X, genes = anndata_matrix(source, reading.layer)
    coded = [name for name in names if type(source.obs[name].dtype).__name__ == "CategoricalDtype"]
    n_values = {name: len(source.obs[name].cat.categories) for name in coded}
    notes = taken_note(roles["label"], names, reading.label) + label_notes(n_values, len(ids), roles["label"])
    return RawTable(X, **optional_columns(others), feature_names=different_names(genes), notes=tuple(notes))


def anndata_matrix(source: Any, layer: str | None) -> tuple[Any, list[str]]:
    """Return the matrix X of AnnData, or a layer, in memory, as CSR if it is sparse; and the names of its columns."""
    import scipy.sparse as sp

    layers = [*source.layers, *(["raw"] if getattr(source, "raw", None) is not None else [])]
    if layer is not None and layer not in layers:
        raise BagwiseError(f"there is no layer {layer!r}; there are {shortened(layers) or 'none'}.")
    matrix = source if layer is None else source.raw if layer == "raw" else source.layers[layer]
    X = matrix.X if layer in (None, "raw") else matrix
    names = [str(name) for name in (matrix if layer == "raw" else source).var_names]
    if X is None:
        raise BagwiseError(f"it has no matrix X. Choose a layer by {argument('layer')}: {shortened(layers)}.")
    if hasattr(X, "to_memory"):  # backed by a file
        X = X.to_memory()
    return (sp.csr_array(X) if sp.issparse(X) else np.asarray(X[...])), names
