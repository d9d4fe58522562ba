"""Features and histograms of many items as Parquet, written while items are read."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise._io.storage import Storage, as_place, open_for_writing, with_options_of
from bagwise._utils.checks import check_integer
from bagwise._utils.extras import require
from bagwise._utils.text import encodable
from bagwise.app.modalities.vectorizers import Progress, no_progress
from bagwise.errors import BagwiseError, in_python
from bagwise.sources.collection import Collection
from bagwise.sources.items import NothingReadError, Skipped
from bagwise.sources.partitions import Partition

__all__ = ["SUCCESS", "WrittenFeatures", "feature_table", "single_labels", "unique_names", "write_features"]

# Items of a row group, and of a part of a data set.
ROWS_PER_PART = 4096
# The last file of a data set: if it is there, all others are.
SUCCESS = "_SUCCESS"
# Columns that are not features.
_RESERVED = ("id", "label", "split")
_ABOUT = b"bagwise"


@dataclass(frozen=True)
class WrittenFeatures:
    """What was written: numbers of rows and features, and items that could not be read."""

    n_items: int
    n_features: int
    skipped: tuple[Skipped, ...]


def write_features(
    model: Any,
    collection: Collection,
    out: str | os.PathLike[str],
    *,
    histograms: bool = False,
    rows_per_part: int = ROWS_PER_PART,
    force: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on_error: str = "raise",
    n_jobs: int | None = None,
    cache: Any = None,
    client: Any = None,
    progress: Progress | None = None,
) -> WrittenFeatures:
    """Write the features of items as Parquet while they are read, so that all of them are never in memory.

    Columns are id, label and split, if there are splits, and one of float32 for each feature. Histograms over the full
    vocabulary are sparse: columns ``indices`` and ``values`` are lists, and the number of words is in the file's
    metadata.

    Parameters
    ----------
    model : Model
    collection : Collection
        Items of the model's modality.
    out : path or URL
        - Ends in ``.parquet``: one file, with a row group for each `rows_per_part` items. It takes its name, or is
          uploaded, when it is complete. What the end of the file says about its row groups is held until then: for
          millions of items, a folder is better.
        - Otherwise a folder: a data set of parts ``part-00000.parquet``, … of `rows_per_part` items each. A part takes
          its name when it is complete (an object of a store is visible only then); ``_SUCCESS`` comes last. If the run
          ends with an error, its parts are removed.
    histograms : bool, default=False
        Write histograms over the full vocabulary, not features of groups.
    rows_per_part : int, default=4096
    force : bool, default=False
        Replace the parts of a folder that has some, which is an error otherwise.
    storage_options : mapping, default=None
        For URLs, see `bagwise.open_collection`; also for `cache`, if it is on the same store or server.
    on_error, n_jobs, cache
        See `bagwise.fit_model`.
    client : distributed.Client, default=None
        Whose workers read the items and write the parts of a folder, each of them whole parts. The folder must be one
        that they share, or a URL. The parts are the same.
    progress : callable, default=None
        See `bagwise.fit_model`.

    Returns
    -------
    written : WrittenFeatures
    """
    require("pyarrow.parquet", "app", "Writing Parquet files")
    size = check_integer(rows_per_part, "rows_per_part", 1)
    cache = with_options_of(cache, out, storage_options)
    target = as_place(out, storage_options)
    one_file = os.fspath(target).endswith(".parquet")
    if one_file and client is not None:
        raise BagwiseError(
            f"Workers write the parts of a folder, but {os.fspath(target)} is one file. Give a folder, which is a data "
            "set of Parquet as well."
        )
    reading = {"on_error": on_error, "n_jobs": n_jobs if client is None else 1, "cache": cache}
    job = _Job(model, collection, histograms, size, reading, progress or no_progress)
    written = _write_file(job, target) if one_file else _write_parts(job, Storage.of(target), force, client)
    if not written.n_items:
        raise NothingReadError(written.skipped, collection.source)
    return written


class _Maker:
    """Computes the table of some items. Picklable."""

    def __init__(self, model: Any, histograms: bool, with_splits: bool, reading: dict[str, Any]) -> None:
        self.model, self.histograms, self.with_splits, self.reading = model, histograms, with_splits, reading
        self.names = [] if histograms else unique_names(model.feature_names().tolist())
        self.n_features = model.layout.n_columns if histograms else len(self.names)

    def table(self, items: Collection, progress: Progress = no_progress) -> tuple[Any, list[Skipped]]:
        """Return the table of items, None if none can be read, and those that cannot."""
        try:
            counted = self.model.vectorizer.transform(items, **self.reading, progress=progress)
        except NothingReadError as error:  # of these items; others may be readable
            return None, list(error.skipped)
        kept = items if len(counted.kept) == len(items) else items[counted.kept]
        matrix = counted.matrix if self.histograms else self.model.group(counted.matrix)
        return feature_table(matrix, kept, self.names, self.with_splits), list(counted.skipped)


class _Job:
    """The items in ranges, of which each is a part or a row group."""

    def __init__(
        self, model: Any, collection: Collection, histograms: bool, size: int, reading: dict[str, Any], report: Progress
    ) -> None:
        self.collection, self.report = collection, report
        self.maker = _Maker(model, histograms, any(split is not None for split in collection.splits), reading)
        self.bounds = [(start, min(start + size, len(collection))) for start in range(0, len(collection), size)]

    def table(self, number: int) -> tuple[Any, list[Skipped]]:
        """Return the table of a range, and the items that cannot be read."""
        start, stop = self.bounds[number]

        def follow(step: str, done: int, total: int) -> None:
            self.report(step, start + done, len(self.collection))

        return self.maker.table(self.collection[start:stop], follow)


def feature_table(matrix: Any, items: Collection, names: Sequence[str], with_splits: bool = False) -> Any:
    """Return a table of pyarrow: of features, if they have names, otherwise of sparse rows."""
    arrow = require("pyarrow", "app", "Writing Parquet files")
    columns: dict[str, Any] = {"id": items.ids, "label": single_labels(items)}
    if with_splits:
        columns["split"] = [split or "" for split in items.splits]
    columns = {name: arrow.array(list(map(encodable, values)), arrow.string()) for name, values in columns.items()}
    if names:
        dense = matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)
        dense = np.asfortranarray(dense, dtype=np.float32)
        return arrow.table(columns | {name: dense[:, k] for k, name in enumerate(names)})
    rows = sp.csr_array(matrix)
    starts = arrow.array(rows.indptr.astype(np.int64))
    columns["indices"] = arrow.LargeListArray.from_arrays(starts, arrow.array(rows.indices.astype(np.int32)))
    columns["values"] = arrow.LargeListArray.from_arrays(starts, arrow.array(rows.data.astype(np.float32)))
    return arrow.table(columns).replace_schema_metadata({_ABOUT: json.dumps({"n_words": rows.shape[1]})})


def single_labels(items: Collection) -> list[str]:
    """Return the label of each item, "" without one; raise an error if an item has several."""
    several = items.several()
    if several is not None:
        raise BagwiseError(f"Feature files have one label per item, but item {several.id!r} has {len(several.labels)}.")
    return [labels[0] if labels else "" for labels in items.label_sets]


def unique_names(names: Sequence[str]) -> list[str]:
    """Make names of features unique and different from those of other columns."""
    taken = set(_RESERVED)
    unique = []
    for name in map(str, names):
        while name in taken:
            name += "_"
        taken.add(name)
        unique.append(name)
    return unique


def _write_file(job: _Job, target: Any) -> WrittenFeatures:
    """Write one file, a row group at a time."""
    parquet = require("pyarrow.parquet", "app", "Writing Parquet files")
    n, skipped, writer = 0, [], None
    with open_for_writing(target) as file, ExitStack() as stack:
        for number in range(len(job.bounds)):
            table, without = job.table(number)
            skipped += without
            if table is None:
                continue
            if writer is None:
                # minima and maxima of features serve nobody, and a file with many groups holds them to its end
                writer = stack.enter_context(parquet.ParquetWriter(file, table.schema, write_statistics=False))
            writer.write_table(table)
            n += table.num_rows
        if writer is None:
            raise NothingReadError(skipped, job.collection.source)
    return WrittenFeatures(n, job.maker.n_features, tuple(skipped))


def _write_parts(job: _Job, storage: Storage, force: bool, client: Any) -> WrittenFeatures:
    """Write a part for each range of items."""
    from bagwise.distributed.executors import executor_of

    names = [f"part-{number:05}.parquet" for number in range(len(job.bounds))]
    _empty(storage, force)
    storage.check_writable()
    executor, n = executor_of(client, job.report), len(names)
    references = [Partition.of(job.collection, *bound) for bound in job.bounds]
    shared, sizes = executor.share((job.maker, storage)), [stop - start for start, stop in job.bounds]
    try:
        parts = executor.map(_write_part, [shared] * n, references, names, step="Counting words", sizes=sizes)
        made = executor.gather(parts)
        there = set(storage.names())
        lost = next((name for name, (n_rows, _) in zip(names, made, strict=True) if n_rows and name not in there), None)
        if lost is not None:
            raise BagwiseError(
                f"A worker has written {lost}, but {storage} does not have it here. Give a folder that all machines "
                "share, or a URL such as s3://bucket/folder."
            )
        n_rows = sum(one for one, _ in made)
        if n_rows:
            storage.write(SUCCESS, b"")
    except BaseException:
        for name in names:
            storage.remove(name)
        raise
    return WrittenFeatures(n_rows, job.maker.n_features, tuple(one for _, skipped in made for one in skipped))


def _write_part(shared: tuple[_Maker, Storage], reference: Any, name: str) -> tuple[int, list[Skipped]]:
    """Write the features of some items, and return their number, with the items that could not be read."""
    maker, storage = shared
    table, skipped = maker.table(reference.open())
    if table is None:
        return 0, skipped
    parquet = require("pyarrow.parquet", "app", "Writing Parquet files")
    content = io.BytesIO()
    parquet.write_table(table, content, write_statistics=False)
    storage.write(name, content.getvalue())
    return table.num_rows, skipped


def _empty(storage: Storage, force: bool) -> None:
    """Remove the parts of an earlier data set, or raise an error if there are some, or something else."""
    names = storage.names()
    other = next((name for name in names if name != SUCCESS and not _is_part(name)), None)
    if other is not None:
        raise BagwiseError(f"{storage} is not a folder of features: it holds {other}. Give a new folder.")
    if names and not force:
        how = in_python("force=True", "--force")
        raise BagwiseError(f"{storage} holds features already. Give a new folder, or replace them by {how}.")
    for name in sorted(names, key=lambda one: one != SUCCESS):  # which says that all others are there
        storage.remove(name)


def _is_part(name: str) -> bool:
    return name.startswith("part-") and name.endswith(".parquet") and "/" not in name
