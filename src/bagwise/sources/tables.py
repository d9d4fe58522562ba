"""Collections of the rows of a matrix."""

from __future__ import annotations

import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._io.storage import Url, as_place
from bagwise._utils.matrices import first_not_finite
from bagwise._utils.memory import readable_size
from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError, argument
from bagwise.sources.columns import RawTable, Reading
from bagwise.sources.contents import File, FileContent, as_file, local_copy
from bagwise.sources.delimited import SHEET_ENDINGS, TAB_ENDINGS
from bagwise.sources.h5ad import read_h5ad
from bagwise.sources.items import Content, Item
from bagwise.sources.limits import Limits, as_limits
from bagwise.sources.places import annotated, ending, is_file, list_place
from bagwise.sources.row_collection import RowCollection
from bagwise.sources.row_lists import Coded, LazyList, RowIds
from bagwise.sources.table_files import READERS, WITH_COLUMNS, check_shape

__all__ = ["TableCollection", "open_table"]

_OF_ROWS = ("labels", "ids", "splits")


def open_table(
    path: str | os.PathLike[str],
    *,
    data: str | None = None,
    label: str | None = None,
    id: str | None = None,
    split: str | None = None,
    keep: str | Sequence[str] = (),
    words: Sequence[str] | None = None,
    sep: str | None = None,
    sheet: str | None = None,
    encoding: str | None = None,
    layer: str | None = None,
    labels: Any = None,
    splits: Any = None,
    limits: Limits | None = None,
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
    - ``.csv``, ``.tsv``, ``.xlsx`` and ``.parquet`` (need ``bagwise[app]``): all columns but label, id and split are
      numbers. A first line of numbers only is a row, not names.
    - A folder of ``.parquet`` files with the same columns, such as `bagwise.app.model.write_features` writes.
    - ``.h5ad`` of AnnData (needs ``bagwise[anndata]``): the matrix ``X`` or a layer; rows are cells, columns genes.

    Parameters
    ----------
    path : path
    data, label : str, default=None
        ``.npz``: names of the arrays with the matrix and the labels. ``.csv`` and the like: `label` is the column with
        the label, by default ``label``, ``labels``, ``class``, ``category`` or ``target``, in any case.
        Without one, `notes` of the collection name columns that may hold labels: by their names, such as ``digit`` or
        ``species``, or because they have few values and most others have not.
        They also name columns that tell the class: with another value for each label.
    id, split : str, default=None
        Columns with id and split, by default ``id`` and ``split``. Without ids, rows are numbered from 0, also if `id`
        is not given and the column ``id`` has equal values.
    keep : str or sequence of str, default=()
        Columns to use as words although they seem to number the rows. Columns without a name, or named ``Unnamed: 0``,
        ``index``, ``id``, ``row``, ``row_id`` and the like, are left out if their values differ; the first one has the
        ids. `notes` say so.
    words : sequence of str, default=None
        Words of a model that the table is opened for: columns of these names are words, whatever the names, and others
        that seem to number the rows are left out, whatever their values.
    sep, encoding : str, default=None
        ``.csv`` and ``.tsv``: the character between fields and the encoding, see `open_records`. If the character is no
        comma, numbers may have decimal commas.
    sheet : str, default=None
        ``.xlsx``: name of the sheet, or its number from 1; by default the first one.
    layer : str, default=None
        ``.h5ad``: name of a layer, or "raw". `label`, `id` and `split` are columns of ``obs``.
    labels : mapping or path, default=None
        Labels given from outside, see `Collection.with_labels`.
    splits : mapping or path, default=None
        Splits given from outside, see `Collection.with_splits`.
    limits : Limits, default=None
        The numbers of rows and columns, and the memory they may take, among others.

    Returns
    -------
    collection : TableCollection
    """
    place = as_place(path)
    source = os.fspath(place)
    end = ending(source)
    readers = READERS | {".h5ad": read_h5ad}
    parts = parts_of(place, as_limits(limits))
    if parts:
        end = ".parquet"
    elif end not in readers or not is_file(place):
        what = "is not a file" if end in readers else "is not a table"
        raise BagwiseError(f"{source} {what}. Tables are files that end in {', '.join(sorted(readers))}.")
    if end == ".h5ad" and keep:
        raise BagwiseError(f"{argument('keep')} is for columns of CSV, Excel and Parquet files, but this is {end}.")
    if end not in (*WITH_COLUMNS, ".h5ad") and (id is not None or split is not None or keep):
        named = f"{argument('id')}, {argument('split')} and {argument('keep')}"
        raise BagwiseError(f"{named} are columns of CSV, Excel and Parquet files, but this is {end}.")
    if sep is not None and end not in (".csv", *TAB_ENDINGS):
        raise BagwiseError(f"{argument('sep')} is for CSV and TSV files, but this is {end}.")
    if sheet is not None and end not in SHEET_ENDINGS:
        raise BagwiseError(f"{argument('sheet')} is for Excel files, but this is {end}.")
    if layer is not None and end != ".h5ad":
        raise BagwiseError(f"{argument('layer')} is for .h5ad files, but this is {end}.")
    if data is not None and end != ".npz":
        raise BagwiseError(f"data= is the name of an array in an .npz file, but this is {end}.")
    limits = as_limits(limits)
    keep = (keep,) if isinstance(keep, str) else tuple(keep)
    words = None if words is None else tuple(words)
    reading = Reading(data, label, id, split, keep, words, sep, sheet, encoding, layer, limits)
    try:
        stamp = () if parts else as_file(place).stamp()
        table = joined(list(_read_all(parts or [place], readers[end], reading)))
        check_table(table, limits)
    except MemoryError as error:
        raise BagwiseError(f"{source} cannot be read: it declares more numbers than fit in memory.") from error
    except (BagwiseError, OSError) as error:
        raise BagwiseError(f"{source} cannot be read: {error}") from error
    given = {name: getattr(reading, name) for name in ("data", "label", "id", "split", "keep", "words", "sep", "sheet")}
    file = as_file(place)
    if isinstance(file, FileContent):
        file = FileContent(os.path.abspath(file.path))  # so that other processes find it
    collection = collection_of(table, source, limits)
    given |= {"encoding": encoding, "layer": layer}
    if not parts:
        collection._origin = _TableFile(file, stamp, tuple(given.items()), limits, np.arange(len(collection)))
    return annotated(collection, labels, splits)  # type: ignore[return-value]


def collection_of(table: RawTable, source: str, limits: Limits) -> TableCollection:
    """Make a collection of a table that was checked."""
    n = table.X.shape[0]
    labels_of = Coded.same("", n) if table.labels is None else Coded.of(table.labels)
    return TableCollection(
        table.X,
        ids=table.ids if table.ids is not None else RowIds(range(n)),
        label_sets=labels_of.mapped(lambda label: (label,) if label else ()),
        splits=table.splits,
        feature_names=table.feature_names,
        source=source,
        notes=table.notes,
        limits=limits,
    )


def check_table(table: RawTable, limits: Limits) -> None:
    """Raise an error unless a table has as many labels and names as rows and columns, and finite numbers."""
    n, d = table.X.shape
    check_shape((n, d), limits)
    if n == 0 or d == 0:
        raise BagwiseError(f"it has {how_many(n, 'rows')} and {how_many(d, 'columns')} of numbers.")
    for what, values in (("labels", table.labels), ("ids", table.ids), ("splits", table.splits)):
        if values is not None and len(values) != n:
            raise BagwiseError(f"it has {how_many(n, 'rows')} but {how_many(len(values), what)}.")
    if table.feature_names is not None and len(table.feature_names) != d:
        raise BagwiseError(f"it has {how_many(d, 'columns')} but {len(table.feature_names)} feature_names.")
    values = table.X.data if sp.issparse(table.X) else table.X
    if values.dtype.kind not in "fiub":
        raise BagwiseError(f"its numbers are {values.dtype}; expected real numbers.")
    bad = first_not_finite(table.X)
    if bad is not None:
        raise BagwiseError(f"row {bad[0]}, column {bad[1]} is {bad[2]}. Fill in or remove such rows first.")


def _read(place: Any, reader: Callable[[str, Reading], RawTable], reading: Reading) -> RawTable:
    with local_copy(place, reading.limits) as local:
        return reader(local, reading)


def _read_all(
    places: Sequence[Any], reader: Callable[[str, Reading], RawTable], reading: Reading
) -> Iterator[RawTable]:
    """Read files one by one, as long as all together are within the limit; a reader checks each."""
    n_bytes = 0
    for place in places:
        table = _read(place, reader, reading)
        yield table
        n_bytes += table.X.nbytes if len(places) > 1 else 0
        reading.limits.check("table_bytes", n_bytes, f"its files have {readable_size(n_bytes)} and more")


def parts_of(place: Any, limits: Limits) -> list[Any]:
    """Return the files of a folder of Parquet files and nothing else, in order; none if it is something else."""
    if ending(os.fspath(place)) in READERS or (isinstance(place, os.PathLike) and not isinstance(place, (Url, Path))):
        return []
    if is_file(place) or (not isinstance(place, Url) and not os.path.isdir(place)):
        return []
    contents, _ = list_place(place, limits)
    names = [name for name in contents if name != "_SUCCESS"]
    if not names or not all(ending(name) == ".parquet" for name in names):
        return []
    return [place.inside(name) if isinstance(place, Url) else Path(place, name) for name in names]


def joined(tables: Sequence[RawTable]) -> RawTable:
    """Return one table of the rows of several, which have the same columns."""
    first = tables[0]
    if len(tables) == 1:
        return first
    for number, table in enumerate(tables):
        if table.feature_names != first.feature_names:
            raise BagwiseError(f"its file {number + 1} has other columns than the first one.")
        if any((getattr(table, name) is None) != (getattr(first, name) is None) for name in _OF_ROWS):
            raise BagwiseError(f"its file {number + 1} has labels, ids or splits, or the first one has, but not both.")
    others: dict[str, Any] = {
        name: None if getattr(first, name) is None else [one for table in tables for one in getattr(table, name)]
        for name in _OF_ROWS
    }
    return RawTable(np.concatenate([table.X for table in tables]), **others, feature_names=first.feature_names)


class TableCollection(RowCollection):
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
    limits : Limits, default=None
        See `Collection`.

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
        limits: Limits | None = None,
    ) -> None:
        super().__init__(X.shape[0], ids, label_sets, splits, "table", source, notes=notes, limits=limits)
        self.X = X
        self._origin: _TableFile | None = None
        self.feature_names = None if feature_names is None else list(feature_names)
        self._items = _Rows(source, X, self._ids, self._label_sets, self._splits)
        if not isinstance(self._ids, RowIds) or not self._ids.differ:
            self._check(list(self._ids), ())

    def _chosen(self, numbers: NDArray[np.int64]) -> TableCollection:
        others = self.feature_names, self.source, self.notes, self.limits
        made = TableCollection(self.X[numbers], *self._columns(numbers), *others)  # type: ignore[call-arg]
        if self._origin is not None:
            made._origin = replace(self._origin, rows=self._origin.rows[numbers])
        return made

    def _with_columns(self, label_sets: Sequence[tuple[str, ...]], splits: Sequence[str | None]) -> TableCollection:
        others = self.feature_names, self.source, self.notes, self.limits
        made = TableCollection(self.X, self._ids, label_sets, splits, *others)
        made._origin = self._origin
        return made

    def _reference(self, start: int, stop: int) -> Any:
        if self._origin is None:
            return super()._reference(start, stop)
        numbers = np.arange(start, stop)
        origin = replace(self._origin, rows=self._origin.rows[numbers])
        _, labels, splits = self._columns(numbers)
        return _TableRows(origin, labels.compact(), splits.compact())

    def _whole_files(self) -> NDArray[np.bool_] | None:
        return np.ones(max(0, len(self) - 1), bool)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TableCollection):
            return NotImplemented
        if self.X.shape != other.X.shape or sp.issparse(self.X) != sp.issparse(other.X):
            return False
        differ = (self.X != other.X).nnz if sp.issparse(self.X) else not np.array_equal(self.X, other.X)
        columns = (self._ids, other._ids), (self._label_sets, other._label_sets), (self._splits, other._splits)
        return not differ and all(one == two for one, two in columns)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        # the matrix once, not with every item
        columns = self._ids, self._label_sets, self._splits
        given = (self.X, *columns, self.feature_names, self.source, self.notes, self.limits)
        return TableCollection, given, {"_origin": self._origin}


@dataclass(frozen=True)
class _TableFile:
    """The file of a table, how it was read, and the numbers of some of its rows."""

    file: File
    stamp: tuple[Any, ...]
    given: tuple[tuple[str, Any], ...]
    limits: Limits
    rows: NDArray[np.int64] = field(compare=False)


@dataclass(frozen=True)
class _TableRows:
    """A partition of a table: rows of its file, which is read again."""

    origin: _TableFile
    label_sets: Coded[tuple[str, ...]]
    splits: Coded[str | None]

    def open(self) -> TableCollection:
        """Read the file, unless it was the last one that was read, and return the rows."""
        found = _table_of(self.origin)._chosen(self.origin.rows)
        found.notes = ()
        return found._with_columns(self.label_sets, self.splits)

    def key(self) -> str:
        """Describe the file and the rows."""
        rows = hashlib.blake2b(self.origin.rows.tobytes()).hexdigest()
        about = [(list(one.values), hashlib.blake2b(one.codes.tobytes()).hexdigest()) for one in
                 (self.label_sets, self.splits)]  # fmt: skip
        return repr((self.origin.file, self.origin.stamp, self.origin.given, rows, about))


@functools.lru_cache(maxsize=1)
def _table_of(origin: _TableFile) -> TableCollection:
    origin.file.check(origin.stamp)
    path = origin.file.path if isinstance(origin.file, FileContent) else origin.file.place
    return open_table(path, limits=origin.limits, **dict(origin.given))


class _Rows(LazyList[Item]):
    """The items of a table."""

    def __init__(self, source: str, X: Any, *columns: Any) -> None:
        self._source, self._X, self._columns = source, X, columns
        self._decoder = RowDecoder()

    def __len__(self) -> int:
        return int(self._X.shape[0])

    def __iter__(self) -> Iterator[Item]:
        return map(self._item, range(len(self)), *self._columns)

    def _at(self, number: int) -> Item:
        return self._item(number, *(column[number] for column in self._columns))

    def _item(self, number: int, id: str, labels: tuple[str, ...], split: str | None) -> Item:
        return Item(id, RowContent(self._source, self._X, number, number), self._decoder, labels, split)


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
