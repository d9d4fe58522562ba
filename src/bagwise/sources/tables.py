"""Collections of the rows of a matrix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import scipy.sparse as sp

from bagwise._io.storage import Url, as_place
from bagwise._utils.matrices import first_not_finite
from bagwise._utils.memory import readable_size
from bagwise._utils.text import how_many
from bagwise.errors import BagwiseError, argument
from bagwise.sources.collection import Collection
from bagwise.sources.columns import RawTable, Reading, check_missing, number_table, without_missing
from bagwise.sources.contents import as_file, local_copy
from bagwise.sources.h5ad import read_h5ad
from bagwise.sources.item_tables import arrow, to_codes
from bagwise.sources.limits import Limits, as_limits
from bagwise.sources.matrix_files import READERS, check_shape
from bagwise.sources.places import Listing, annotated, ending, is_file, list_place
from bagwise.sources.read_table import TABLE_ENDINGS, Layout, Table, check_layout, read_table, table_ending

__all__ = ["open_table"]

_ENDINGS = TABLE_ENDINGS | READERS.keys() | {".h5ad"}


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
    header: bool | None = None,
    encoding: str | None = None,
    missing: str | None = None,
    layer: str | None = None,
    labels: Any = None,
    splits: Any = None,
    limits: Limits | None = None,
) -> Collection:
    """Open a table of numbers, see `open_collection`; the matrix is read at once."""
    location = as_place(path) if not isinstance(path, Listing) else path.location
    source, limits = os.fspath(location), as_limits(limits)
    layout = Layout(sep, sheet, encoding, header)
    check_missing(missing)
    parts = _parts_of(path, limits)
    end = table_ending(source) if not parts else ".parquet"
    if end not in _ENDINGS or not (parts or is_file(location)):
        what = "is not a file" if end in _ENDINGS else "is not a table"
        raise BagwiseError(f"{source} {what}. Tables are files that end in {', '.join(sorted(_ENDINGS))}.")
    _check_options(end, layout, {"id": id, "split": split, "keep": keep, "layer": layer, "data": data})
    reading = Reading(
        data, label, id, split, (keep,) if isinstance(keep, str) else tuple(keep),
        None if words is None else tuple(words), layout, missing, layer, limits,
    )  # fmt: skip
    try:
        table = without_missing(_read(location, end, parts, reading), missing)
        check_table(table, limits)
    except MemoryError as error:
        raise BagwiseError(f"{source} cannot be read: it declares more numbers than fit in memory.") from error
    except (BagwiseError, OSError) as error:
        raise BagwiseError(f"{source} cannot be read: {error}") from error
    return annotated(collection_of(table, source, limits), labels, splits)


def _check_options(end: str, layout: Layout, options: dict[str, Any]) -> None:
    """Raise an error if an option is not for files of this ending."""
    check_layout([f"this {end}"], layout)
    with_columns = end in TABLE_ENDINGS
    for name, accepted, what in (
        ("keep", with_columns, "columns of CSV, Excel, Parquet and SQLite files"),
        ("id", with_columns or end == ".h5ad", "columns of CSV, Excel, Parquet, SQLite and .h5ad files"),
        ("split", with_columns or end == ".h5ad", "columns of CSV, Excel, Parquet, SQLite and .h5ad files"),
        ("layer", end == ".h5ad", ".h5ad files"),
    ):
        if options[name] and not accepted:
            raise BagwiseError(f"{argument(name)} is for {what}, but this is {end}. Leave it out.")
    if options["data"] is not None and end != ".npz":
        raise BagwiseError(f"data= is the name of an array in an .npz file, but this is {end}.")


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


def _read(location: Any, end: str, parts: Sequence[tuple[str, Any]], reading: Reading) -> RawTable:
    """Read a file, or the Parquet files of a folder, which have the same columns."""
    if end not in TABLE_ENDINGS:
        with local_copy(location, reading.limits) as local:
            return read_h5ad(local, reading) if end == ".h5ad" else READERS[end](local, reading)
    files = parts or [(os.path.basename(os.fspath(location)), as_file(location))]
    tables: list[Table] = []
    n_bytes = n_rows = 0
    for number, (name, content) in enumerate(files, start=1):
        tables.append(read_table(content, name, reading.layout, reading.limits))
        n_bytes, n_rows = n_bytes + tables[-1].columns.nbytes, n_rows + tables[-1].columns.num_rows
        reading.limits.check("table_bytes", n_bytes, f"its files have {readable_size(n_bytes)} and more")
        reading.limits.check("rows", n_rows, f"it has {n_rows:,} rows and more")
        if tables[-1].columns.schema.names != tables[0].columns.schema.names:
            raise BagwiseError(f"its file {number} has other columns than the first one.")
    table = tables[0]
    if len(tables) > 1:
        columns = _joined([one.columns for one in tables])
        table = replace(table, columns=columns, numbers=range(1, n_rows + 1))
    return number_table(table, reading)


def _joined(parts: Sequence[Any]) -> Any:
    """Return one table of those of several files; columns of strings are codes only where few values differ."""
    types = arrow().types
    if any(one.schema != parts[0].schema for one in parts):
        kinds = [[kind.value_type if types.is_dictionary(kind) else kind for kind in one.schema.types] for one in parts]
        parts = [
            one.cast(arrow().schema(zip(one.column_names, some, strict=True)))
            for one, some in zip(parts, kinds, strict=True)
        ]
    try:
        return arrow().concat_tables(parts, promote_options="permissive")
    except arrow().ArrowException as error:
        raise BagwiseError(
            f"its files have other types in the same column: {error}. Write them with the same"
        ) from error


def _parts_of(path: Any, limits: Limits) -> list[tuple[str, Any]]:
    """Return the files of a folder of Parquet files and nothing else, in order; none if it is something else."""
    location = path.location if isinstance(path, Listing) else as_place(path)
    if table_ending(os.fspath(location)) in _ENDINGS or (not isinstance(path, Listing) and is_file(location)):
        return []
    if not isinstance(location, Url) and not os.path.isdir(location):
        return []
    listing = list_place(path, limits)
    names = [name for name in listing if name != "_SUCCESS"]
    return [(name, listing[name]) for name in names] if all(ending(name) == ".parquet" for name in names) else []
