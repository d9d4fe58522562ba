"""An index in shards: one file for each partition of a collection, built and searched by workers."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.storage import Storage, Url, absolute, as_place, is_url, with_options_of
from bagwise._utils.json_text import parse_json
from bagwise._utils.text import agree
from bagwise.app.index.index_features import SIMILARITIES, features
from bagwise.app.index.item_index import Found, ItemIndex
from bagwise.app.model.files import SHARDS_FILE, is_sharded, model_bytes
from bagwise.app.model.model import Model
from bagwise.app.model.vectorizers import Part, Progress
from bagwise.app.options import FitOptions
from bagwise.app.training.items import READING, first_labels, open_items, reading_of
from bagwise.app.training.parts import Reading, partitions_of, transform_rows
from bagwise.distributed.executors import Executor, executor_of
from bagwise.distributed.opened import labels_to_bytes
from bagwise.distributed.searching import search, search_labelled
from bagwise.errors import BagwiseError, argument, parameter_name, unknown_name
from bagwise.retrieval.bag_index import BagIndex
from bagwise.sources.collection import Collection
from bagwise.sources.items import NothingReadError, SkippedItemsWarning
from bagwise.sources.limits import as_limits
from bagwise.sources.manifests import as_manifest

if TYPE_CHECKING:
    from bagwise.app.training.fit import Fit

__all__ = ["ShardedIndex", "build_shards", "open_index", "shards_of_fit"]

# Names of files have a token of their own in each build, so that none writes to the files of another: a worker may
# still write a shard of a build that was interrupted.
_MODEL, _SHARD = re.compile(r"model-[0-9a-f]{8}\.bagwise"), re.compile(r"\d{6,}-[0-9a-f]{8}\.index")
_OURS = re.compile(rf"{SHARDS_FILE}|{_MODEL.pattern}|\d{{6,}}-[0-9a-f]{{8}}\.(index|labels\.json)")
_MOST_BYTES = 64 << 20  # of the file that lists the shards
_METRICS = {"words": "inner", "groups": "hellinger"}
_SCHEMA = 1


@dataclass(frozen=True)
class ShardedIndex:
    """A folder with one index file for each partition of a collection, and the model that counts the words of queries.

    Attributes
    ----------
    folder : Path or Url
    model : Model
    shards : tuple of str
        Names of the files, in the order of the collection.
    by : {"words", "groups"}
        What items are compared by, see `ItemIndex`.
    n_items : int
    labelled : bool
        Whether there are labels of the items, in a file beside each shard.
    source : str
        Path of the items when they were indexed, "" if they were not in files.
    reading : mapping
        How they were read, see `ItemIndex`.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import build_shards, fit_model
    >>> X = np.array([[4, 1, 0], [1, 0, 5], [0, 1, 6]])
    >>> rows = Collection.from_matrix(X, list("abc"), [("x",), ("y",), ("y",)])
    >>> model = fit_model(rows, n_groups=2, folds=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     index = build_shards(model, rows, folder, partition=2)
    ...     len(index.shards), index.search(rows[2:], k=2)[1].tolist()
    (2, [['c', 'b']])
    """

    folder: Path | Url
    model: Model
    shards: tuple[str, ...]
    by: str
    n_items: int
    labelled: bool
    source: str
    reading: Mapping[str, Any]

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, Any] | None = None,
        network: Any = None,
    ) -> ShardedIndex:
        """Open a folder that `build_shards` has written, a path or URL.

        `storage_options` are for URLs, see `bagwise.open_collection`; `network` as in `Model.load`.
        """
        place = _folder(folder, storage_options)
        storage = Storage.of(place)
        try:
            content = storage.read(SHARDS_FILE, _MOST_BYTES)
        except BagwiseError as error:
            if not isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
                raise
            one_file = " An index in one file is opened on this machine, not by URL." if isinstance(place, Url) else ""
            raise BagwiseError(
                f"{place} is no finished index in shards: it has no {SHARDS_FILE}.{one_file} Give the folder of a "
                "finished one, or build it again by: bagwise index MODEL SOURCE --workers N"
            ) from error
        try:
            about = _read_about(content)
        except _NotShards as error:
            raise BagwiseError(f"{storage.file(SHARDS_FILE)} {error}") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise BagwiseError(f"{storage.file(SHARDS_FILE)} is damaged ({error}). Build the index again.") from error
        model = Model.load(storage.file(about.pop("model")), network=network)
        return cls(folder=place, model=model, **about)

    def __len__(self) -> int:
        return self.n_items

    @property
    def metric(self) -> str:
        """Metric of the shards, see `BagIndex`."""
        return _METRICS[self.by]

    @property
    def described(self) -> str:
        """What items are compared by, in words."""
        return self.by

    @property
    def score_name(self) -> str:
        """Name of the scores, as that of an `ItemIndex`."""
        return "similarity" if self.metric == "inner" else self.metric

    def search(self, items: Any, k: int = 10, *, client: Any = None, **options: Any) -> tuple[Any, Any]:
        """Find the items that are most like each query.

        Parameters
        ----------
        items : Collection, or what `Model.histograms` takes
        k : int, default=10
        client : distributed.Client, default=None
            Whose workers search; they must be able to read the folder.
        **options
            Parameters of `Model.histograms`.

        Returns
        -------
        scores : ndarray of float64, shape (n_queries, min(k, n_items))
        ids : ndarray of str objects, same shape
            The same as those of one index of all items.
        """
        return search(self._files(self.shards), self._rows(self.model.histograms(items, **options)), k, client=client)

    def find(self, histograms: Any, k: int = 10, *, by: str | None = None, client: Any = None) -> list[list[Found]]:
        """Find the items that are most like each query, with their labels, as `ItemIndex.search` does.

        Parameters
        ----------
        histograms : CSR array or ndarray of shape (n_queries, n_cells * d)
            Counts of the words of queries, see `count_words`.
        k : int, default=10
        by : str, default=None
            What to compare by, which must be `by` of the index. None: that.
        client : distributed.Client, default=None
            Whose workers search; they must be able to read the folder.

        Returns
        -------
        found : list of lists of Found
        """
        self.wanted(by)
        names = [_labels_of(name) if self.labelled else None for name in self.shards]
        found = search_labelled(self._files(self.shards), self._files(names), self._rows(histograms), k, client)
        scores, ids, labels = found
        scores = np.clip(scores, 0, 1)  # rounding errors of float32
        rows = zip(ids.tolist(), scores.tolist(), labels.tolist(), strict=True)
        return [[Found(*one) for one in zip(*row, strict=True)] for row in rows]

    def class_weights(self, histograms: Any, *, by: str | None = None) -> NDArray[np.float64]:
        """Return how much classes count in a search for each query: not at all, see `ItemIndex.class_weights`."""
        self.wanted(by)
        return np.zeros(np.shape(histograms)[0])

    def _rows(self, histograms: Any) -> Any:
        return features(self.model, histograms, self.by, self.metric)

    def _files(self, names: Sequence[str | None]) -> list[Any]:
        storage = Storage.of(self.folder)
        return [None if name is None else storage.file(name) for name in names]

    def wanted(self, by: str | None) -> str:
        """Return what to compare by; raise an error if the shards are not for it."""
        if by is None or by == self.by:
            return self.by
        if by not in SIMILARITIES:
            raise unknown_name(parameter_name("by"), by, (self.by,))
        other = f"--by {by} --workers N" if by in _METRICS else f"--by {by}, without --workers and --scheduler"
        raise BagwiseError(
            f"The shards in {self.folder} compare items by {self.by}, so they cannot be searched by {by!r}. Build "
            f"another index by: bagwise index MODEL SOURCE {other}"
        )


def open_index(path: str | os.PathLike[str], *, network: Any = None) -> ItemIndex | ShardedIndex:
    """Open an index: a file, or a folder of shards, which may be a URL; for `network` see `Model.load`."""
    place = as_place(path)
    if isinstance(place, Url) or is_sharded(place):
        return ShardedIndex.load(place, network=network)
    return ItemIndex.load(place, network=network)


def build_shards(
    model: Model,
    source: Any,
    folder: str | os.PathLike[str],
    *,
    by: str = "words",
    client: Any = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> ShardedIndex:
    """Index a collection partition by partition.

    Parameters
    ----------
    model : Model
    source : Collection or path
    folder : path or URL
        Where to write; an index in shards that is there is replaced. Workers write to a URL themselves; to a folder of
        this machine this process writes, shard by shard.
    by : {"words", "groups"}, default="words"
        What items are compared by, see `ItemIndex`.
    client : distributed.Client, default=None
        Whose workers read the items and build the shards.
    progress : callable, default=None
        See `fit_model`.
    storage_options : mapping, default=None
        For URLs, see `bagwise.open_collection`: of the source, and of the folder and `cache` if they are on the same
        store or server, or the source is no URL.
    **options
        Parameters of `FitOptions`: those that say how a source is read, `on_error`, `cache` and `partition` are used.

    Returns
    -------
    index : ShardedIndex

    Warns
    -----
    SkippedItemsWarning
        If items could not be read.
    """
    chosen = FitOptions(**options, storage_options=storage_options).for_source(source)
    place = _checked_place(with_options_of(folder, source, storage_options), None, by)
    of_files = isinstance(source, Collection) or not is_url(source)
    if isinstance(place, Url) and of_files and not _is_manifest(source, chosen):  # options are for the folder
        chosen = chosen.with_changes(storage_options=None)
    executor = executor_of(client, progress)
    collection = open_items(model, source, chosen, executor)
    partitions = partitions_of(collection, chosen.partition)
    rows, heads = transform_rows(model.vectorizer, partitions, Reading.of(chosen), executor)
    skipped = [one for _, some, _ in heads for one in some]
    skipped += [] if isinstance(source, Collection) else collection.skipped
    kept = [one.start + read for one, (read, *_) in zip(partitions, heads, strict=True)]
    if not sum(map(len, kept)):
        raise NothingReadError(skipped, collection.source)
    ids, labels = (np.array(some, dtype=object) for some in (collection.ids, first_labels(collection)))
    parts = [(ids[some].tolist(), labels[some].tolist()) for some in kept]
    index = _write(model, executor, rows, parts, place, by, _origin(collection, chosen))
    if skipped:
        n_items = len(collection) + len(collection.skipped)
        told = f"{len(skipped)} of {n_items} items could not be read and "
        told += f"{agree(len(skipped), 'was', 'were')} skipped. {skipped[0].id}: "
        warnings.warn(SkippedItemsWarning(f"{told}{skipped[0].reason}", skipped), stacklevel=2)
    return index


def shards_of_fit(
    fit: Fit,
    folder: str | os.PathLike[str],
    *,
    by: str = "words",
    options: FitOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ShardedIndex:
    """Index the items of a fit on a cluster whose histograms did not fit into one process.

    Parameters
    ----------
    fit : Fit
    folder, by, storage_options
        See `build_shards`.
    options : FitOptions, default=None
        Options the items were read with.

    Returns
    -------
    index : ShardedIndex
    """
    place, rows = _checked_place(folder, storage_options, by), fit.data.rows
    if rows is None:
        raise BagwiseError("The histograms of this fit are in this process. Use ItemIndex.build, or build_shards.")
    ends = np.cumsum(rows.counted.n_rows)[:-1]
    ids, labels = (np.split(np.array(some, dtype=object), ends) for some in (rows.ids, rows.labels))
    parts = [(some.tolist(), own.tolist()) for some, own in zip(ids, labels, strict=True)]
    origin = _origin(fit.data.collection, FitOptions() if options is None else options)
    return _write(fit.model, rows.executor, rows.counted.rows, parts, place, by, origin)


def _folder(folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None) -> Path | Url:
    place = as_place(folder, storage_options)
    return place if isinstance(place, Url) else Path(place)


def _checked_place(folder: str | os.PathLike[str], storage_options: Mapping[str, Any] | None, by: str) -> Path | Url:
    """Return where to write; raise an error if it holds something else, or items cannot be compared so in shards."""
    if by not in _METRICS:
        raise BagwiseError(
            f"{argument('by', by)} is not for shards, whose items are compared by 'words' or 'groups': classes are "
            "calibrated over all items. Use one of these, or an index in one file."
        )
    place = _folder(folder, storage_options)
    other = next((name for name in Storage.of(place).names() if not _OURS.fullmatch(name)), None)
    if other is not None:
        raise BagwiseError(f"{place} is not a folder of shards: it holds {other}. Give a new folder.")
    return place


def _is_manifest(source: Any, options: FitOptions) -> bool:
    local = isinstance(source, (str, os.PathLike))
    return local and as_manifest(source, as_limits(options.limits)) is not None


def _origin(collection: Collection, options: FitOptions) -> dict[str, Any]:
    """Return where items are, and how they were read."""
    place = as_place(collection.source)
    there = isinstance(place, Url) or os.path.exists(place)
    return {"source": absolute(place) if there else "", "reading": reading_of(options)}


def _labels_of(shard: str) -> str:
    """Return the name of the file with the labels of a shard."""
    return f"{shard.removesuffix('.index')}.labels.json"


class _NotShards(BagwiseError):
    """The file is not one of this version; begins with a verb."""


def _read_about(content: bytes) -> dict[str, Any]:
    """Return attributes of an index from its JSON file."""
    about = parse_json(content)
    schema = about["schema"]
    if schema != _SCHEMA:
        raise _NotShards(f"has schema {schema!r:.100}, this version of bagwise reads {_SCHEMA}. Upgrade bagwise.")
    names, by, n_items = tuple(map(str, about["shards"])), str(about["by"]), about["n_items"]
    sound = type(n_items) is int and 0 <= n_items <= sys.maxsize and 0 < len(set(names)) == len(names)
    if by not in _METRICS or not sound or not all(map(_SHARD.fullmatch, names)):
        raise ValueError(f"it has {len(names)} shards of {n_items!r:.100} items, compared by {by!r:.100}")
    model = str(about["model"])
    if not _MODEL.fullmatch(model):
        raise ValueError(f"its model is {model!r:.100}")
    labelled, source, reading = about["labelled"], about["source"], dict(about["reading"])
    texts = all(value is None or type(value) is str for value in reading.values())
    if type(labelled) is not bool or type(source) is not str or not texts or not reading.keys() <= set(READING):
        raise ValueError(f"its source is {source!r:.100}, read by {reading!r:.100}")
    origin = {"labelled": labelled, "source": source, "reading": reading}
    return {"shards": names, "by": by, "n_items": n_items, "model": model} | origin


def _write(
    model: Model,
    executor: Executor,
    rows: Sequence[Any],
    parts: Sequence[tuple[list[str], list[str | None]]],
    folder: Path | Url,
    by: str,
    origin: Mapping[str, Any],
) -> ShardedIndex:
    """Build an index of each partition and write it; `parts` are ids and labels. What is not finished is removed.

    An index that is there is replaced, and stays as it is until the new one is whole.
    """
    storage, n, sizes = Storage.of(folder), len(rows), [len(ids) for ids, _ in parts]
    is_new = isinstance(folder, Path) and not folder.exists()
    token = secrets.token_hex(4)
    names = tuple(f"{number:06d}-{token}.index" for number in range(n))
    labelled = any(label is not None for _, labels in parts for label in labels)
    about = {"by": by, "n_items": sum(sizes), "shards": names, "labelled": labelled, **origin}
    model_name = f"model-{token}.bagwise"
    ours = {model_name, *names, *map(_labels_of, names)}
    try:
        storage.write(model_name, model_bytes(model))
        # a worker may not have a folder of this machine, but it has stores
        build = partial(_build, by, labelled, storage if isinstance(folder, Url) else None, type(executor).keep)
        shared = executor.share(model)
        built = executor.map(build, [shared] * n, names, rows, parts, step="Building the index", sizes=sizes)
        for handle in built:
            for name, content in executor.gather([handle])[0]:
                storage.write(name, content, private=True)
        written = {"schema": _SCHEMA, "model": model_name, **about}
        storage.write(SHARDS_FILE, json.dumps(written, indent=1).encode())
    except BaseException:
        with suppress(BagwiseError, OSError):  # the first error is what counts
            if not _is_stored(storage, names):
                for name in sorted(ours):
                    storage.remove(name)
                if is_new and isinstance(folder, Path):
                    folder.rmdir()
        raise
    with suppress(BagwiseError, OSError):  # the index is whole; the next build removes what is left of others
        for name in set(filter(_OURS.fullmatch, storage.names())) - ours - {SHARDS_FILE}:
            storage.remove(name)
    return ShardedIndex(folder=folder, model=model, **about)


def _is_stored(storage: Storage, names: Sequence[str]) -> bool:
    """Whether a finished index of these shards is there, or may be: an error may come after it was written."""
    if not storage.exists(SHARDS_FILE):
        return False
    try:
        return _read_about(storage.read(SHARDS_FILE, _MOST_BYTES))["shards"] == tuple(names)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return isinstance(error, BagwiseError) and not isinstance(error, _NotShards)  # it could not be read


def _build(
    by: str,
    labelled: bool,
    storage: Storage | None,
    keep: Any,
    model: Model,
    name: str,
    part: Part,
    items: tuple[list[str], list[str | None]],
) -> Any:
    """Index a partition; write its files to the storage, or return their names and contents without one."""
    ids, labels = items
    ((matrix, _),) = part.content
    index = BagIndex(metric=_METRICS[by])
    if len(ids):
        index.add(features(model, matrix, by, index.metric), ids)
    files = {_labels_of(name): labels_to_bytes(labels)} if labelled else {}
    with tempfile.TemporaryDirectory(prefix="bagwise-") as folder:
        file = index.save(Path(folder, name))
        if storage is None:
            return keep([*files.items(), (name, file.read_bytes())])
        for other, content in files.items():
            storage.write(other, content)
        storage.upload(name, str(file))
        return keep([])
