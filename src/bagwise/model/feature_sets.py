"""Features and histograms of many items as Parquet, written while items are read."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise._io.storage import Storage, as_place, open_for_writing, with_options_of
from bagwise._utils.checks import as_count
from bagwise._utils.extras import require
from bagwise._utils.json_text import parse_json
from bagwise.errors import BagwiseError, in_python
from bagwise.model.files import model_bytes
from bagwise.model.vectorizers import Progress, no_progress
from bagwise.sources.collection import Collection
from bagwise.sources.contents import as_file
from bagwise.sources.items import NothingReadError, Skipped

__all__ = ["SUCCESS", "WrittenFeatures", "feature_table", "unique_names", "write_features"]

# Items of a row group, and of a part of a data set.
ROWS_PER_PART = 4096
# The last file of a data set: if it is there, all others are.
SUCCESS = "_SUCCESS"
# Columns that are not features.
_RESERVED = ("id", "label", "split")
_ABOUT = b"bagwise"


@dataclass(frozen=True)
class WrittenFeatures:
    """What was written: numbers of rows and features, items that could not be read, parts of an earlier run."""

    n_items: int
    n_features: int
    skipped: tuple[Skipped, ...]
    n_resumed: int


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
          its name when it is complete (an object of a store is visible only then); ``_SUCCESS`` comes last. If a run
          was interrupted, the same call goes on: parts of the same model, items and options stay.
    histograms : bool, default=False
        Write histograms over the full vocabulary, not features of groups.
    rows_per_part : int, default=4096
    force : bool, default=False
        Replace a complete data set of another model, other items or options, which is an error otherwise.
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
    require("pyarrow.parquet", "io", "Writing Parquet files")
    size = as_count(rows_per_part, "rows_per_part", least=1)
    cache = with_options_of(cache, out, storage_options)
    place = as_place(out, storage_options)
    one_file = os.fspath(place).endswith(".parquet")
    if one_file and client is not None:
        raise BagwiseError(
            f"Workers write the parts of a folder, but {os.fspath(place)} is one file. Give a folder, which is a data "
            "set of Parquet as well."
        )
    reading = {"on_error": on_error, "n_jobs": n_jobs if client is None else 1, "cache": cache}
    job = _Job(model, collection, histograms, size, reading, progress or no_progress)
    written = _write_file(job, place) if one_file else _write_parts(job, Storage.of(place), force, client)
    if not written.n_items:
        raise NothingReadError(written.skipped, collection.source)
    return written


class _Maker:
    """Computes the table of some items. Picklable."""

    def __init__(self, model: Any, histograms: bool, with_splits: bool, reading: dict[str, Any]) -> None:
        self.model, self.histograms, self.with_splits, self.reading = model, histograms, with_splits, reading
        self.names = [] if histograms else unique_names(model.feature_names().tolist())
        self.n_features = model.n_cells * model.hierarchy.n_words if histograms else len(self.names)

    def table(self, items: Collection, progress: Progress = no_progress) -> tuple[Any, list[Skipped]]:
        """Return the table of items, None if none can be read, and those that cannot."""
        try:
            found = self.model.vectorizer.transform(items, **self.reading, progress=progress)
        except NothingReadError as error:  # of these items; others may be readable
            return None, list(error.skipped)
        kept = items if len(found.kept) == len(items) else items[found.kept]
        matrix = found.matrix if self.histograms else self.model.group(found.matrix)
        return feature_table(matrix, kept, self.names, self.with_splits), list(found.skipped)


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

    def key(self, number: int, of_model: str) -> str:
        """Return a key of the content of a part: model, items, options."""
        about, maker = self.collection._reference(*self.bounds[number]).key(), self.maker
        told = [of_model, about, maker.histograms, maker.names, maker.with_splits, maker.reading["on_error"]]
        return hashlib.blake2b(repr(told).encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def feature_table(matrix: Any, items: Collection, names: Sequence[str], with_splits: bool = False) -> Any:
    """Return a table of pyarrow: of features, if they have names, otherwise of sparse rows."""
    arrow = require("pyarrow", "io", "Writing Parquet files")
    columns: dict[str, Any] = {"id": list(map(_encodable, items.ids)), "label": [_label(item) for item in items]}
    if with_splits:
        columns["split"] = [_encodable(split or "") for split in items.splits]
    columns = {name: arrow.array(values, arrow.string()) for name, values in columns.items()}
    if names:
        dense = matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)
        dense = np.asfortranarray(dense, dtype=np.float32)
        return arrow.table(columns | {name: dense[:, k] for k, name in enumerate(names)})
    rows = sp.csr_array(matrix)
    starts = arrow.array(rows.indptr.astype(np.int64))
    columns["indices"] = arrow.LargeListArray.from_arrays(starts, arrow.array(rows.indices.astype(np.int32)))
    columns["values"] = arrow.LargeListArray.from_arrays(starts, arrow.array(rows.data.astype(np.float32)))
    return arrow.table(columns).replace_schema_metadata({_ABOUT: json.dumps({"n_words": rows.shape[1]})})


def _label(item: Any) -> str:
    if len(item.labels) > 1:
        raise BagwiseError(f"Feature files have one label per item, but item {item.id!r} has {len(item.labels)}.")
    return _encodable(item.labels[0] if item.labels else "")


def _encodable(text: str) -> str:
    """Escape bytes of names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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


def _write_file(job: _Job, place: Any) -> WrittenFeatures:
    """Write one file, a row group at a time."""
    parquet = require("pyarrow.parquet", "io", "Writing Parquet files")
    n, skipped, writer = 0, [], None
    with open_for_writing(place) as file, ExitStack() as stack:
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
    return WrittenFeatures(n, job.maker.n_features, tuple(skipped), 0)


def _write_parts(job: _Job, storage: Storage, force: bool, client: Any) -> WrittenFeatures:
    """Write a part for each range of items, but those that an earlier run has written."""
    of_model = hashlib.blake2b(model_bytes(job.maker.model), digest_size=16).hexdigest()
    keys = [job.key(number, of_model) for number in range(len(job.bounds))]
    names = [f"part-{number:05}.parquet" for number in range(len(job.bounds))]
    held: dict[int, dict[str, Any]] = {}
    there = storage.names()
    _check_folder(storage, there)
    storage.check_writable()
    for number, name in enumerate(names):
        about = _about(storage, name) if name in there else None
        if about is not None and about.get("key") == keys[number]:
            held[number] = about
    others = set(there) - {SUCCESS, *(names[number] for number in held)}
    if SUCCESS in there and others and not force:
        raise BagwiseError(
            f"{storage} holds features of another model, of other items or by other options. Give a new folder, or "
            f"replace them by {in_python('force=True', '--force')}."
        )
    storage.remove(SUCCESS)
    for name in others:
        storage.remove(name)
    told = {number: about["skipped"] for number, about in held.items()}
    n = sum(about["n_rows"] for about in held.values())
    left = [number for number in range(len(names)) if number not in held]
    some = [names[number] for number in left], [keys[number] for number in left]
    made = _made_here(job, storage, left, *some) if client is None else _made_there(job, storage, left, *some, client)
    for number, (n_rows, skipped) in zip(left, made, strict=True):
        told[number] = skipped
        n += n_rows
    all_skipped = tuple(Skipped(*one) for number in sorted(told) for one in told[number])
    if n:
        about = {"n_rows": n, "n_features": job.maker.n_features, "n_skipped": len(all_skipped), "model": of_model}
        storage.write(SUCCESS, json.dumps(about).encode())
    return WrittenFeatures(n, job.maker.n_features, all_skipped, len(held))


# Rows of a part that was written, and items that could not be read.
_Made = tuple[int, list[Skipped]]


def _made_here(job: _Job, storage: Storage, numbers: list[int], names: list[str], keys: list[str]) -> Iterator[_Made]:
    """Write parts one after the other."""
    for number, name, key in zip(numbers, names, keys, strict=True):
        yield _write_part(storage, name, key, *job.table(number))


def _made_there(
    job: _Job, storage: Storage, numbers: list[int], names: list[str], keys: list[str], client: Any
) -> list[_Made]:
    """Let workers write parts."""
    from bagwise.distributed.executors import executor_of

    executor, n = executor_of(client, job.report), len(numbers)
    bounds = [job.bounds[number] for number in numbers]
    references = [job.collection._reference(*bound) for bound in bounds]
    shared = executor.share((job.maker, storage))
    sizes = [stop - start for start, stop in bounds]
    parts = executor.map(_make_part, [shared] * n, references, names, keys, step="Counting words", sizes=sizes)
    made = executor.gather(parts)
    there = set(storage.names())
    lost = next((name for name, (n_rows, _) in zip(names, made, strict=True) if n_rows and name not in there), None)
    if lost is not None:
        raise BagwiseError(
            f"A worker has written {lost}, but {storage} does not have it here. Give a folder that all machines share, "
            "or a URL such as s3://bucket/folder."
        )
    return made


def _make_part(shared: tuple[_Maker, Storage], reference: Any, name: str, key: str) -> _Made:
    maker, storage = shared
    return _write_part(storage, name, key, *maker.table(reference.open()))


def _write_part(storage: Storage, name: str, key: str, table: Any, skipped: list[Skipped]) -> _Made:
    """Write a table, unless it is None, with its key."""
    if table is None:
        return 0, skipped
    parquet = require("pyarrow.parquet", "io", "Writing Parquet files")
    about = json.loads((table.schema.metadata or {}).get(_ABOUT, b"{}"))
    about |= {"key": key, "n_rows": table.num_rows, "skipped": skipped}
    content = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata({_ABOUT: json.dumps(about)}), content, write_statistics=False)
    storage.write(name, content.getvalue())
    return table.num_rows, skipped


def _check_folder(storage: Storage, names: Sequence[str]) -> None:
    """Raise an error if a folder holds something else than parts."""
    other = next((name for name in names if name != SUCCESS and not _is_part(name)), None)
    if other is not None:
        raise BagwiseError(f"{storage} is not a folder of features: it holds {other}. Give a new folder.")


def _is_part(name: str) -> bool:
    return name.startswith("part-") and name.endswith(".parquet") and "/" not in name


def _about(storage: Storage, name: str) -> dict[str, Any] | None:
    """Return what a part says of itself; None if it is damaged, or of another program."""
    arrow, parquet = (require(one, "io", "Writing Parquet files") for one in ("pyarrow", "pyarrow.parquet"))
    try:
        with as_file(storage.file(name)).open() as file:  # of which the end is read
            about = parse_json((parquet.read_schema(file).metadata or {}).get(_ABOUT, b"null"))
    except (arrow.ArrowException, OSError, ValueError, RecursionError):
        return None
    complete = (
        isinstance(about, dict) and isinstance(about.get("n_rows"), int) and isinstance(about.get("skipped"), list)
    )
    return about if complete else None
