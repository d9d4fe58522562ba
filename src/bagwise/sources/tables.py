"""Collections that are rows of a matrix: histograms and other tables of numbers."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.sources.archives import ArchiveLimits
from bagwise.sources.collection import Collection
from bagwise.sources.items import Content, Item
from bagwise.sources.places import annotated, ending
from bagwise.sources.table_files import READERS, TABLE_ENDINGS, RawTable

__all__ = ["TableCollection", "open_table"]

_ONLY_CSV_OR_PARQUET = (".csv", ".tsv", ".tab", ".parquet")


def open_table(
    path: str | os.PathLike[str],
    *,
    data: str | None = None,
    label: str | None = None,
    id: str | None = None,
    split: str | None = None,
    labels: Any = None,
    splits: Any = None,
    limits: ArchiveLimits | None = None,
) -> TableCollection:
    """Open a table of numbers.

    The matrix is read at once and is in ``.X`` of the collection. Sparse files give CSR matrices. Nothing in a file is
    executed: arrays of Python objects are refused.

    - ``.npz``: a matrix saved by SciPy, or an array named ``X`` (or ``x``, ``data``); beside it arrays ``y`` (or
      ``labels``, ``label``, ``target``), ``ids``, ``splits`` and ``feature_names``, if there are any. Or ``x_train``,
      ``y_train``, ``x_test``, ``y_test``, which become parts. Arrays of more than two dimensions are flattened to one
      row per item.
    - ``.mtx``: a Matrix Market file; labels are to be given by `labels`.
    - ``.svmlight``, ``.svm``, ``.libsvm``: labels are part of the file.
    - ``.csv``, ``.tsv``, ``.parquet`` (needs ``bagwise[io]``): all columns but those of label, id and part are numbers.
      A first line of numbers only is a row, not names.

    Parameters
    ----------
    path : path
    data, label : str, default=None
        ``.npz``: names of the arrays with the matrix and the labels. ``.csv`` and the like: `label` is the column with
        the label, by default ``label``, ``labels``, ``class``, ``category`` or ``target``.
    id, split : str, default=None
        Columns with id and part, by default ``id`` and ``split``. Without it the id is the row's number, from 0.
    labels : mapping or path, default=None
        Labels given from outside, see `Collection.with_labels`.
    splits : mapping or path, default=None
        Parts given from outside, see `Collection.with_splits`.
    limits : ArchiveLimits, default=None
        What ``.npz`` files may hold. By default files of up to 64 GiB.

    Returns
    -------
    collection : TableCollection
    """
    source = os.fspath(path)
    if not os.path.isfile(path):
        raise BagwiseError(f"{source} is not a file. Tables are files that end in {', '.join(sorted(TABLE_ENDINGS))}.")
    end = ending(os.path.basename(source).lower())
    if end not in READERS:
        raise BagwiseError(f"{source} is not a table we know. Accepted: {', '.join(sorted(TABLE_ENDINGS))}.")
    if end not in _ONLY_CSV_OR_PARQUET and (id is not None or split is not None):
        raise BagwiseError(f"id= and split= are columns of CSV and Parquet files, but this is {end}.")
    if data is not None and end != ".npz":
        raise BagwiseError(f"data= is the name of an array in an .npz file, but this is {end}.")
    options: dict[str, Any] = {"data": data, "label": label, "id": id, "split": split, "limits": limits}
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
    )
    return annotated(collection, labels, splits)  # type: ignore[return-value]


def _check(table: RawTable) -> None:
    n, d = table.X.shape
    if n == 0 or d == 0:
        raise BagwiseError(f"it has {n} rows and {d} columns of numbers.")
    for what, values in (("labels", table.labels), ("ids", table.ids), ("parts", table.splits)):
        if values is not None and len(values) != n:
            raise BagwiseError(f"it has {n} rows but {len(values)} {what}.")
    if table.feature_names is not None and len(table.feature_names) != d:
        raise BagwiseError(f"it has {d} columns but {len(table.feature_names)} feature_names.")
    values = table.X.data if sp.issparse(table.X) else table.X
    if values.dtype.kind not in "fiub":
        raise BagwiseError(f"its numbers are {values.dtype}; expected real numbers.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        entries = sp.coo_array(table.X)
        first = int(np.argmin(np.isfinite(entries.data)))
        raise BagwiseError(
            f"row {entries.row[first]}, column {entries.col[first]} is {entries.data[first]}. "
            "Fill in or remove such rows first."
        )


class TableCollection(Collection):
    """A collection of rows of a matrix. Choosing items chooses rows: ``collection[mask].X`` is ``collection.X[mask]``.

    Parameters
    ----------
    X : ndarray or CSR array of shape (N, d)
    ids : sequence of str
    label_sets : sequence of tuples of str
    splits : sequence of str or None, or None
    feature_names : sequence of str, default=None
        Names of the columns.
    source : str, default="a table"
        Where it comes from, for people.

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
    ) -> None:
        parts: Iterable[str | None] = splits if splits is not None else [None] * len(ids)
        decoder = RowDecoder()
        rows = zip(ids, label_sets, parts, strict=True)
        items = (Item(id, RowContent(source, X, i), decoder, labels, part) for i, (id, labels, part) in enumerate(rows))
        super().__init__(items, "table", source)
        self.X = X
        self.feature_names = None if feature_names is None else list(feature_names)

    def _chosen(self, numbers: NDArray[np.int64]) -> TableCollection:
        chosen = [self._items[i] for i in numbers.tolist()]
        return self._with(self.X[numbers], chosen)

    def _replaced(self, items: Sequence[Item]) -> TableCollection:
        return self._with(self.X, items)

    def _with(self, X: Any, items: Sequence[Item]) -> TableCollection:
        return TableCollection(X, *_columns(items), self.feature_names, self.source)

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
        return TableCollection, (self.X, *_columns(self._items), self.feature_names, self.source)


def _columns(items: Sequence[Item]) -> tuple[list[str], list[tuple[str, ...]], list[str | None]]:
    return [item.id for item in items], [item.labels for item in items], [item.split for item in items]


@dataclass(frozen=True, eq=False, slots=True)
class RowContent:
    """A row of a matrix."""

    table: str
    X: Any
    number: int

    @property
    def source(self) -> str:
        """The table and the row's number."""
        return f"{self.table}:{self.number}"

    def row(self) -> Any:
        """Give the row: an array of shape (d,), or a sparse one of shape (1, d)."""
        return self.X[[self.number]] if sp.issparse(self.X) else self.X[self.number]

    def open(self) -> BinaryIO:
        """Give the row's bytes."""
        row = self.row()
        if not sp.issparse(row):
            return io.BytesIO(row.tobytes())
        return io.BytesIO(row.indices.astype(np.int64).tobytes() + row.data.tobytes())

    def __reduce__(self) -> tuple[Any, ...]:
        return _lonely_row, (self.table, self.X[[self.number]], self.number)


@dataclass(frozen=True, eq=False, slots=True)
class _LonelyRow(RowContent):
    """A row that was sent elsewhere without its matrix."""

    def row(self) -> Any:
        return self.X if sp.issparse(self.X) else self.X[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return _lonely_row, (self.table, self.X, self.number)


def _lonely_row(table: str, row: Any, number: int) -> RowContent:
    return _LonelyRow(table, row, number)


@dataclass(frozen=True)
class RowDecoder:
    """Gives rows as they are."""

    def decode(self, content: Content) -> Any:
        """Give the row."""
        assert isinstance(content, RowContent)
        return content.row()
