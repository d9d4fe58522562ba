"""Collections of the rows of a matrix."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._io.storage import Url, as_place
from bagwise._utils.matrices import first_not_finite
from bagwise._utils.memory import readable_size
from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError, argument
from bagwise.sources.collection import Collection
from bagwise.sources.columns import RawTable, Reading
from bagwise.sources.contents import File, FileContent, as_file, local_copy
from bagwise.sources.delimited import SHEET_ENDINGS, TAB_ENDINGS
from bagwise.sources.h5ad import read_h5ad
from bagwise.sources.item_tables import packed, to_codes, unpacked
from bagwise.sources.limits import Limits, as_limits
from bagwise.sources.places import Listing, annotated, ending, is_file, list_place
from bagwise.sources.table_files import READERS, WITH_COLUMNS, check_shape

__all__ = ["open_table"]

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
) -> Collection:
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
    collection : Collection
    """
    found = path if isinstance(path, Listing) else None
    place = as_place(path) if found is None else found.place
    source = os.fspath(place)
    end = ending(source)
    readers = READERS | {".h5ad": read_h5ad}
    parts = parts_of(place, as_limits(limits), found)
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
        collection._file = TableFile(file, stamp, tuple(given.items()), limits, np.arange(len(collection)))
    return annotated(collection, labels, splits)


def collection_of(table: RawTable, source: str, limits: Limits) -> Collection:
    """Make a collection of a table that was checked."""
    labels = None if table.labels is None else to_codes(label or None for label in table.labels)
    about: dict[str, Any] = {"source": source, "notes": table.notes, "limits": limits}
    return Collection.from_matrix(table.X, table.ids, labels, table.splits, table.feature_names, **about)


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


def parts_of(place: Any, limits: Limits, found: Listing | None = None) -> list[Any]:
    """Return the files of a folder of Parquet files and nothing else, in order; none if it is something else."""
    if ending(os.fspath(place)) in READERS or (isinstance(place, os.PathLike) and not isinstance(place, (Url, Path))):
        return []
    if found is None and (is_file(place) or (not isinstance(place, Url) and not os.path.isdir(place))):
        return []
    contents = found or list_place(place, limits)
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


@dataclass(frozen=True)
class TableFile:
    """The file of a table, how it was read, and the numbers of some of its rows."""

    file: File
    stamp: tuple[Any, ...]
    given: tuple[tuple[str, Any], ...]
    limits: Limits
    rows: NDArray[np.int64] = field(compare=False)

    def chosen(self, rows: Any) -> TableFile:
        """Return that of some of the rows."""
        return replace(self, rows=self.rows[rows])

    def of(self, items: Collection) -> TableRows:
        """Return what opens items of these rows in another process."""
        return TableRows(self, packed(items.table))


@dataclass(frozen=True)
class TableRows:
    """Rows of a file, which is read again, and their ids, labels and splits."""

    file: TableFile
    table: bytes = field(repr=False)

    def open(self) -> Collection:
        """Read the file, unless it was the last one that was read, and return the rows."""
        whole = _table_of(self.file)
        about: dict[str, Any] = {"source": whole.source, "feature_names": whole.feature_names, "limits": whole.limits}
        items = Collection(unpacked(self.table), "table", whole.decoder, X=whole.X[self.file.rows], **about)
        items._file = self.file
        return items

    def key(self) -> str:
        """Describe the file and the rows."""
        hashes = (hashlib.blake2b(part).hexdigest() for part in (self.file.rows.tobytes(), self.table))
        return repr((self.file.file, self.file.stamp, self.file.given, *hashes))


@functools.lru_cache(maxsize=1)
def _table_of(file: TableFile) -> Collection:
    file.file.check(file.stamp)
    path = file.file.path if isinstance(file.file, FileContent) else file.file.place
    return open_table(path, limits=file.limits, **dict(file.given))
