"""Collections of the rows of a matrix, and the readers of its files."""

from __future__ import annotations

import csv
import io
import math
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise._utils.matrices import first_not_finite
from bagwise.errors import BagwiseError
from bagwise.sources.archives import ArchiveLimits, list_archive
from bagwise.sources.collection import Collection
from bagwise.sources.items import Content, Item, decode_text
from bagwise.sources.places import annotated, ending
from bagwise.sources.records import TAB_ENDINGS, shortened

__all__ = ["TableCollection", "open_table"]

# Names of columns, in lower case: labels that are taken; labels that are proposed; numbers and names of rows.
USUAL_LABEL = ("label", "labels", "class", "category", "target")
_LIKELY_LABEL = re.compile(
    r"(.*[_ .-])?(labels?|class(es)?|category|target|digit|group|species|type|kind|outcome|diagnosis|response|result|"
    r"sentiment|topic|genre|y)"
)
_ROW_NUMBER = re.compile(r"|unnamed: \d+|index|ids?|row|row[_ ]?(id|names?|number)|__index_level_\d+__")
# A proposed label has at most this many values, and each of them this many times in the mean.
_MOST_VALUES, _TIMES = 50, 5
_NPZ_DATA = ("X", "x", "data")
_NPZ_LABELS = ("y", "labels", "label", "target")


@dataclass
class RawTable:
    """Content of a file. `labels`, `ids` and `splits` have one string per row, if they are there.

    `notes` say what was not obvious about its columns.
    """

    X: Any
    labels: list[str] | None = None
    ids: list[str] | None = None
    splits: list[str | None] | None = None
    feature_names: list[str] | None = None
    notes: tuple[str, ...] = ()


def read_npz(path: str, *, data: str | None, label: str | None, limits: ArchiveLimits | None, **_: Any) -> RawTable:
    """Read arrays saved by NumPy, or a sparse matrix saved by SciPy."""
    list_archive(path, limits or ArchiveLimits(max_member_bytes=1 << 36))
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = list(arrays.files)
            if "format" in names and "shape" in names and data is None:
                return RawTable(_as_csr(sp.load_npz(path)), **_npz_others(arrays, label))
            splits = _npz_splits(names) if data is None and label is None else []
            if splits:
                return _join([(split, _matrix(arrays[x], x), _strings(arrays[y])) for split, x, y in splits])
            x = data or next((name for name in _NPZ_DATA if name in names), None)
            if x is None:
                raise BagwiseError(f"none of its arrays is named X; there are {shortened(names)}. Choose one by data=.")
            return RawTable(_matrix(_array(arrays, x), x), **_npz_others(arrays, label))
    except BagwiseError:
        raise
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise BagwiseError(f"it is damaged, or holds Python objects, which are never loaded: {error}") from error


def _npz_others(arrays: Any, label: str | None) -> dict[str, Any]:
    """Read what is stored beside the matrix: labels, and arrays ids, splits and feature_names."""
    label = label or next((name for name in _NPZ_LABELS if name in arrays.files), None)
    found = {name: _strings(arrays[name]) for name in ("ids", "splits", "feature_names") if name in arrays.files}
    return _optional(found) | {"labels": None if label is None else _strings(_array(arrays, label))}


def _array(arrays: Any, name: str) -> Any:
    if name not in arrays.files:
        raise BagwiseError(f"there is no array {name!r}; there are {shortened(list(arrays.files))}.")
    return arrays[name]


def _npz_splits(names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Find x_train, y_train, x_test, y_test."""
    by_lower = {name.lower(): name for name in names}
    splits = {"train": "train", "validation": "validation", "val": "validation", "test": "test"}
    found = [(split, by_lower.get(f"x_{name}"), by_lower.get(f"y_{name}")) for name, split in splits.items()]
    return [(split, x, y) for split, x, y in found if x and y]


def _join(tables: list[tuple[str, Any, list[str]]]) -> RawTable:
    for split, X, labels in tables:
        if len(X) != len(labels) or X.shape[1] != tables[0][1].shape[1]:
            shapes = f"of shape {X.shape} and with {len(labels)} labels"
            raise BagwiseError(f"the arrays of the split {split!r}, {shapes}, do not fit the others.")
    return RawTable(
        np.concatenate([X for _, X, _ in tables]),
        [label for _, _, labels in tables for label in labels],
        [f"{split}:{i}" for split, X, _ in tables for i in range(len(X))],
        [split for split, X, _ in tables for _ in range(len(X))],
    )


def _matrix(array: Any, name: str) -> Any:
    if not isinstance(array, np.ndarray):
        raise BagwiseError(f"it is damaged: {name!r} is not an array.")
    if array.ndim < 2:
        raise BagwiseError(f"array {name!r} has shape {array.shape}; a table has a row per item.")
    return array.reshape(len(array), math.prod(array.shape[1:]))


def _strings(values: Any) -> list[str]:
    """Write labels as strings; whole numbers without a point."""
    array = np.asarray(values)
    if array.ndim != 1:
        raise BagwiseError(f"labels have shape {array.shape}; expected one per row.")
    if array.dtype.kind == "f":
        return [f"{value:.17g}" if value != int(value) else str(int(value)) for value in array.tolist()]
    return [str(value) for value in array.tolist()]


def _as_csr(matrix: Any) -> Any:
    """Return a sparse matrix as CSR, after checking that its indices are within its shape."""
    rows = sp.csr_array(matrix)
    rows.check_format(full_check=True)
    rows.sum_duplicates()
    return rows


def read_mtx(path: str, **_: Any) -> RawTable:
    """Read a Matrix Market file."""
    from scipy.io import mmread

    try:
        matrix = mmread(path)
        return RawTable(_as_csr(matrix) if sp.issparse(matrix) else np.asarray(matrix))
    except (ValueError, OverflowError, IndexError, TypeError) as error:
        raise BagwiseError(f"it is not a Matrix Market file, or damaged: {error}") from error


def read_svmlight(path: str, **_: Any) -> RawTable:
    """Read an svmlight file. Lines with several labels are refused by scikit-learn."""
    from sklearn.datasets import load_svmlight_file

    try:
        X, y = load_svmlight_file(path)
    except (ValueError, OverflowError) as error:
        raise BagwiseError(f"it is not an svmlight file, or damaged: {error}") from error
    return RawTable(_as_csr(X), _strings(y))


def read_csv(
    path: str,
    *,
    label: str | None,
    id: str | None,
    split: str | None,
    keep: Sequence[str],
    words: Sequence[str] | None,
    **_: Any,
) -> RawTable:
    """Read numbers between commas or tabs."""
    delimiter = "\t" if ending(os.path.basename(path)) in TAB_ENDINGS else ","
    with open(path, "rb") as file:
        text = decode_text(file.read(), None)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    first, second = next(rows, []), next(rows, None)
    if not first:
        raise BagwiseError("it is empty.")
    has_names = not all(_is_number(cell) for cell in first)
    names = first if has_names else [str(i) for i in range(len(first))]
    if has_names and second is None:
        raise BagwiseError("it has no rows, only names of columns.")
    reading: dict[str, Any] = {"delimiter": delimiter, "comments": None, "quotechar": '"', "ndmin": 2}
    reading["skiprows"] = int(has_names)

    def strings(i: int) -> list[str]:
        return np.loadtxt(io.StringIO(text), dtype=str, usecols=[i], **reading).ravel().tolist()

    columns = _Columns(names, label, id, split, keep, words)
    try:
        others = columns.read(strings)
        X = np.loadtxt(io.StringIO(text), dtype=np.float64, usecols=columns.numbers, **reading)
    except ValueError as error:
        texts = [i for i in columns.numbers if second is not None and i < len(second) and not _is_number(second[i])]
        if len(texts) == 1:
            raise _text_column(texts[0], names[texts[0]]) from error
        raise BagwiseError(
            f"{error} Columns are {shortened(names)}; those of text are chosen by label=, id= and split=, "
            "and a table of texts is opened by modality='records'."
        ) from error
    return columns.table(X, others, has_names)


def _text_column(number: int, name: str) -> BagwiseError:
    if not name:
        return BagwiseError(f"column {number} has no name and no numbers (a comma at the end of lines?). Remove it.")
    return BagwiseError(
        f"column {name!r} holds text. If it is the label, choose it by label={name!r}; otherwise remove it. "
        "A table of texts is opened by modality='records'."
    )


def read_parquet(
    path: str,
    *,
    label: str | None,
    id: str | None,
    split: str | None,
    keep: Sequence[str],
    words: Sequence[str] | None,
    **_: Any,
) -> RawTable:
    """Read a Parquet file by pyarrow."""
    parquet = require("pyarrow.parquet", "io", "Reading Parquet files")
    arrow = require("pyarrow", "io", "Reading Parquet files")
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise BagwiseError(f"it is not a Parquet file, or damaged: {error}") from error

    def strings(i: int) -> list[str]:
        return ["" if value is None else str(value) for value in table.column(i).to_pylist()]

    columns = _Columns(table.column_names, label, id, split, keep, words)
    others = columns.read(strings)
    types = arrow.types
    for i in columns.numbers:
        kind = table.schema.field(i).type
        if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
            raise _text_column(i, columns.names[i])
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise BagwiseError(
                f"column {columns.names[i]!r} is {kind}, not numbers. Choose columns by label=, id=, split=."
            )
    numbers = [np.asarray(table.column(i).to_numpy(), dtype=np.float64) for i in columns.numbers]
    X = np.stack(numbers, axis=1) if numbers else np.empty((table.num_rows, 0))
    return columns.table(X, others, True)


class _Columns:
    """Which columns of a file are labels, ids, splits, numbers of its rows, and words."""

    def __init__(
        self,
        names: Sequence[str],
        label: str | None,
        id: str | None,
        split: str | None,
        keep: Sequence[str],
        words: Sequence[str] | None,
    ) -> None:
        self.names = list(names)
        self._shown = [name or f"Unnamed: {i}" for i, name in enumerate(names)]  # as pandas calls them
        for name in keep:
            if name not in (*self.names, *self._shown):
                raise BagwiseError(f"there is no column {name!r} to keep; there are {shortened(self._shown)}.")
        self._keep, self._words = {*keep, *(words or ())}, words
        self._special = _special_columns(names, label, id, split, [*self._keep])
        self._notes: list[str] = []
        self._left_out: list[int] = []

    @property
    def numbers(self) -> list[int]:
        """Columns of words."""
        return [i for i in range(len(self.names)) if i not in (*self._special.values(), *self._left_out)]

    def read(self, strings: Callable[[int], list[str]]) -> dict[str, list[str]]:
        """Read labels, ids and splits, and leave out columns that number or name the rows.

        A column does so if it has no name, or such a name, and its values differ, or it is no word of the model. The
        first one whose values differ becomes the ids.
        """
        others = {what: strings(i) for what, i in self._special.items()}
        for i in self.numbers:
            name, shown = self.names[i], self._shown[i]
            if not numbers_rows(name) or {name, shown} & self._keep:
                continue
            values = strings(i)
            differ = len(set(values)) == len(values)
            if self._words is None and (len(values) < 2 or not differ):
                continue
            self._left_out.append(i)
            used = "only numbers the rows and"
            if differ and "ids" not in others:
                others["ids"], used = values, "is the id of rows and"
            self._notes.append(f"Column {shown!r} {used} is not used as a word; keep={shown!r} does that.")
        return others

    def table(self, X: Any, others: dict[str, list[str]], has_names: bool) -> RawTable:
        """Put the table together; without labels, say which column may hold them."""
        names = [self.names[i] for i in self.numbers]
        likely = (
            []
            if "labels" in others or not has_names
            else [n for n, x in zip(names, X.T, strict=True) if _may_label(n, x)]
        )
        if len(likely) == 1:
            self._notes.append(
                f"No column is named {', '.join(USUAL_LABEL[:-1])} or {USUAL_LABEL[-1]}. "
                f"If {likely[0]!r} holds the labels: label={likely[0]!r}"
            )
        return RawTable(X, **_optional(others), feature_names=names if has_names else None, notes=tuple(self._notes))


def numbers_rows(name: str) -> bool:
    """Whether a column is named as those that number or name the rows, such as the index of a data frame."""
    return _ROW_NUMBER.fullmatch(name.lower()) is not None


def _may_label(name: str, values: NDArray[np.float64]) -> bool:
    if not _LIKELY_LABEL.fullmatch(name.lower()):
        return False
    n_values = len(np.unique(values))
    return 2 <= n_values <= min(_MOST_VALUES, len(values) // _TIMES) and bool((values == np.rint(values)).all())


def _special_columns(
    names: Sequence[str], label: str | None, id: str | None, split: str | None, keep: Sequence[str]
) -> dict[str, int]:
    """Find the columns that are not numbers of the matrix; names of labels in any case, but the exact one first."""
    labels = [*USUAL_LABEL, *(name for usual in USUAL_LABEL for name in names if name.lower() == usual)]
    found = {}
    for what, wanted, usual in (("labels", label, labels), ("ids", id, ["id"]), ("splits", split, ["split"])):
        if wanted is not None and wanted not in names:
            raise BagwiseError(f"there is no column {wanted!r}; there are {shortened(names)}.")
        name = wanted or next((name for name in usual if name in names and name not in keep), None)
        if name is not None:
            found[what] = list(names).index(name)
    return found


def _optional(others: dict[str, list[str]]) -> dict[str, Any]:
    if "splits" in others:
        return {**others, "splits": [part or None for part in others["splits"]]}
    return dict(others)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


READERS: dict[str, Callable[..., RawTable]] = {".npz": read_npz, ".mtx": read_mtx, ".parquet": read_parquet}
READERS |= dict.fromkeys((".csv", ".tsv", ".tab"), read_csv)
READERS |= dict.fromkeys((".svm", ".svmlight", ".libsvm"), read_svmlight)
_WITH_COLUMNS = (".csv", ".tsv", ".tab", ".parquet")


def open_table(
    path: str | os.PathLike[str],
    *,
    data: str | None = None,
    label: str | None = None,
    id: str | None = None,
    split: str | None = None,
    keep: str | Sequence[str] = (),
    words: Sequence[str] | None = None,
    labels: Any = None,
    splits: Any = None,
    limits: ArchiveLimits | None = None,
) -> TableCollection:
    """Open a table of numbers.

    The matrix is read at once and is in ``.X`` of the collection. Sparse files give CSR matrices. Nothing in a file is
    executed: arrays of Python objects are refused.

    - ``.npz``: a matrix saved by SciPy, or an array named ``X`` (or ``x``, ``data``); beside it arrays ``y`` (or
      ``labels``, ``label``, ``target``), ``ids``, ``splits`` and ``feature_names``, if there are any. Or ``x_train``,
      ``y_train``, ``x_test``, ``y_test``, which become splits. Arrays of more than two dimensions are flattened to one
      row per item.
    - ``.mtx``: a Matrix Market file, without labels.
    - ``.svmlight``, ``.svm``, ``.libsvm``: the file has labels.
    - ``.csv``, ``.tsv``, ``.parquet`` (needs ``bagwise[io]``): all columns but label, id and split are numbers.
      A first line of numbers only is a row, not names.

    Parameters
    ----------
    path : path
    data, label : str, default=None
        ``.npz``: names of the arrays with the matrix and the labels. ``.csv`` and the like: `label` is the column with
        the label, by default ``label``, ``labels``, ``class``, ``category`` or ``target``, in lower or upper case.
        Without one, `notes` of the collection name a column that may hold labels, such as ``digit`` or ``species``.
    id, split : str, default=None
        Columns with id and split, by default ``id`` and ``split``. Without ids, rows are numbered from 0.
    keep : str or sequence of str, default=()
        Columns to use as words although they seem to number the rows. Columns without a name, or named ``Unnamed: 0``,
        ``index``, ``id``, ``row``, ``row_id`` and the like, are left out if their values differ; the first one has the
        ids. `notes` say so.
    words : sequence of str, default=None
        Words of a model that the table is opened for: columns of these names are words, whatever the names, and others
        that seem to number the rows are left out, whatever their values.
    labels : mapping or path, default=None
        Labels given from outside, see `Collection.with_labels`.
    splits : mapping or path, default=None
        Splits given from outside, see `Collection.with_splits`.
    limits : ArchiveLimits, default=None
        What ``.npz`` files may hold. By default files of up to 64 GiB.

    Returns
    -------
    collection : TableCollection
    """
    source = os.fspath(path)
    end = ending(source)
    if end not in READERS or not os.path.isfile(path):
        what = "is not a file" if end in READERS else "is not a table"
        raise BagwiseError(f"{source} {what}. Tables are files that end in {', '.join(sorted(READERS))}.")
    if end not in _WITH_COLUMNS and (id is not None or split is not None or keep):
        raise BagwiseError(f"id=, split= and keep= are columns of CSV and Parquet files, but this is {end}.")
    if data is not None and end != ".npz":
        raise BagwiseError(f"data= is the name of an array in an .npz file, but this is {end}.")
    keep = (keep,) if isinstance(keep, str) else tuple(keep)
    options: dict[str, Any] = {"data": data, "label": label, "id": id, "split": split, "limits": limits}
    options |= {"keep": keep, "words": words}
    try:
        table = READERS[end](source, **options)
        _check(table)
    except MemoryError as error:
        raise BagwiseError(f"{source} cannot be read: it declares more numbers than fit in memory.") from error
    except (BagwiseError, OSError) as error:
        raise BagwiseError(f"{source} cannot be read: {error}") from error
    n = table.X.shape[0]
    collection = TableCollection(
        table.X,
        ids=table.ids if table.ids is not None else [str(i) for i in range(n)],
        label_sets=[()] * n if table.labels is None else [() if label == "" else (label,) for label in table.labels],
        splits=table.splits,
        feature_names=table.feature_names,
        source=source,
        notes=table.notes,
    )
    return annotated(collection, labels, splits)  # type: ignore[return-value]


def _check(table: RawTable) -> None:
    n, d = table.X.shape
    if n == 0 or d == 0:
        raise BagwiseError(f"it has {n} rows and {d} columns of numbers.")
    for what, values in (("labels", table.labels), ("ids", table.ids), ("splits", table.splits)):
        if values is not None and len(values) != n:
            raise BagwiseError(f"it has {n} rows but {len(values)} {what}.")
    if table.feature_names is not None and len(table.feature_names) != d:
        raise BagwiseError(f"it has {d} columns but {len(table.feature_names)} feature_names.")
    values = table.X.data if sp.issparse(table.X) else table.X
    if values.dtype.kind not in "fiub":
        raise BagwiseError(f"its numbers are {values.dtype}; expected real numbers.")
    bad = first_not_finite(table.X)
    if bad is not None:
        raise BagwiseError(f"row {bad[0]}, column {bad[1]} is {bad[2]}. Fill in or remove such rows first.")


class TableCollection(Collection):
    """A collection of the rows of a matrix: ``collection[mask].X`` is ``collection.X[mask]``.

    Parameters
    ----------
    X : ndarray or CSR array of shape (N, d)
    ids : sequence of str
    label_sets : sequence of tuples of str
    splits : sequence of str or None, or None
    feature_names : sequence of str, default=None
        Names of the columns.
    source : str, default="a table"
        Origin, for messages.
    notes : sequence of str, default=()
        What was not obvious about the columns of a file.

    Attributes
    ----------
    X : ndarray or CSR array of shape (N, d)
        The matrix, one row per item.
    feature_names : list of str, or None
    """

    def __init__(
        self,
        X: Any,
        ids: Sequence[str],
        label_sets: Sequence[tuple[str, ...]],
        splits: Sequence[str | None] | None = None,
        feature_names: Sequence[str] | None = None,
        source: str = "a table",
        notes: Sequence[str] = (),
    ) -> None:
        decoder = RowDecoder()
        rows = enumerate(zip(ids, label_sets, [None] * len(ids) if splits is None else splits, strict=True))
        items = (Item(id, RowContent(source, X, i, i), decoder, labels, split) for i, (id, labels, split) in rows)
        super().__init__(items, "table", source)
        self.X = X
        self.feature_names = None if feature_names is None else list(feature_names)
        self.notes = tuple(notes)

    def _chosen(self, numbers: NDArray[np.int64]) -> TableCollection:
        columns = _columns([self._items[i] for i in numbers.tolist()])
        return TableCollection(self.X[numbers], *columns, self.feature_names, self.source, self.notes)

    def _replaced(self, items: Sequence[Item]) -> TableCollection:
        return TableCollection(self.X, *_columns(items), self.feature_names, self.source, self.notes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableCollection):
            return NotImplemented
        if self.X.shape != other.X.shape or sp.issparse(self.X) != sp.issparse(other.X):
            return False
        differ = (self.X != other.X).nnz if sp.issparse(self.X) else not np.array_equal(self.X, other.X)
        return not differ and _columns(self._items) == _columns(other._items)

    __hash__ = None

    def __reduce__(self) -> tuple[Any, ...]:
        # the matrix once, not with every item
        return TableCollection, (self.X, *_columns(self._items), self.feature_names, self.source, self.notes)


def _columns(items: Sequence[Item]) -> tuple[list[str], list[tuple[str, ...]], list[str | None]]:
    return [item.id for item in items], [item.labels for item in items], [item.split for item in items]


@dataclass(frozen=True, eq=False, slots=True)
class RowContent:
    """Row `place` of a matrix, which has a `number` in its table. Is sent to other processes without the matrix."""

    table: str
    X: Any
    number: int
    place: int

    @property
    def source(self) -> str:
        """The table and the row's number."""
        return f"{self.table}:{self.number}"

    def row(self) -> Any:
        """Return the row: an array of shape (d,), or a sparse one of shape (1, d)."""
        return self.X[[self.place]] if sp.issparse(self.X) else self.X[self.place]

    def open(self) -> BinaryIO:
        """Open the bytes of the row."""
        row = self.row()
        if not sp.issparse(row):
            return io.BytesIO(row.tobytes())
        return io.BytesIO(row.indices.astype(np.int64).tobytes() + row.data.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return RowContent, (self.table, self.X[[self.place]], self.number, 0)


@dataclass(frozen=True)
class RowDecoder:
    """Returns rows as they are."""

    def decode(self, content: Content) -> Any:
        """Return the row."""
        assert isinstance(content, RowContent)
        return content.row()
