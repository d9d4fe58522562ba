"""An index in shards: one file for each partition of a collection, built and searched by workers."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise._io.atomic import write_atomically
from bagwise._io.storage import Url, as_place
from bagwise.distributed.executors import Executor, executor_of
from bagwise.distributed.searching import search
from bagwise.errors import BagwiseError, argument
from bagwise.model.model import Model
from bagwise.model.vectorizers import Part, Progress
from bagwise.retrieval.bag_index import BagIndex
from bagwise.training.index_features import features
from bagwise.training.items import open_items
from bagwise.training.options import FitOptions
from bagwise.training.parts import Reading, partitions_of, transform_rows

if TYPE_CHECKING:
    from bagwise.training.fit import Fit

__all__ = ["ShardedIndex", "build_shards", "shards_of_fit"]

_ABOUT, _MODEL = "shards.json", "model.bagwise"
_METRICS = {"words": "inner", "groups": "hellinger"}
_SCHEMA = 1


@dataclass(frozen=True)
class ShardedIndex:
    """A folder with one index file for each partition of a collection, and the model that counts the words of queries.

    Attributes
    ----------
    folder : Path
    model : Model
    shards : tuple of str
        Names of the files, in the order of the collection.
    by : {"words", "groups"}
        What items are compared by, see `ItemIndex`.
    n_items : int

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.sources import TableCollection
    >>> from bagwise.training import build_shards, fit_model
    >>> rows = TableCollection(np.array([[4, 1, 0], [1, 0, 5], [0, 1, 6]]), list("abc"), [("x",), ("y",), ("y",)])
    >>> model = fit_model(rows, n_groups=2, folds=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     index = build_shards(model, rows, folder, partition=2)
    ...     len(index.shards), index.search(rows[2:], k=2)[1].tolist()
    (2, [['c', 'b']])
    """

    folder: Path
    model: Model
    shards: tuple[str, ...]
    by: str
    n_items: int

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> ShardedIndex:
        """Open a folder that `build_shards` has written."""
        place = _local(folder)
        try:
            about = json.loads((place / _ABOUT).read_bytes())
            if about["schema"] != _SCHEMA:
                raise BagwiseError(f"{place} was written by a later version of bagwise. Update bagwise.")
            names, by, n_items = tuple(map(str, about["shards"])), str(about["by"]), int(about["n_items"])
        except FileNotFoundError as error:
            raise BagwiseError(
                f"{place} is no finished index in shards: it has no {_ABOUT}. Build it again."
            ) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, BagwiseError):
                raise
            raise BagwiseError(f"{place / _ABOUT} cannot be read: {error}") from error
        if by not in _METRICS or any(Path(name).name != name for name in names):
            raise BagwiseError(f"{place / _ABOUT} is damaged. Build the index again.")
        return cls(place, Model.load(place / _MODEL), names, by, n_items)

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
        rows = features(self.model, self.model.histograms(items, **options), self.by, _METRICS[self.by])
        return search([self.folder / name for name in self.shards], rows, k, client=client)


def build_shards(
    model: Model,
    source: Any,
    folder: str | os.PathLike[str],
    *,
    by: str = "words",
    client: Any = None,
    progress: Progress | None = None,
    **options: Any,
) -> ShardedIndex:
    """Index a collection partition by partition.

    Parameters
    ----------
    model : Model
    source : Collection or path
    folder : path
        Where to write; this process writes, shard by shard.
    by : {"words", "groups"}, default="words"
        What items are compared by, see `ItemIndex`.
    client : distributed.Client, default=None
        Whose workers read the items and build the shards.
    progress : callable, default=None
        See `fit_model`.
    **options
        Parameters of `FitOptions`: those that say how a source is read, `on_error`, `cache` and `partition` are used.

    Returns
    -------
    index : ShardedIndex
    """
    _check_by(by)
    place = _local(folder)
    chosen, executor = FitOptions(**options).for_source(source), executor_of(client, progress)
    collection = open_items(model, source, chosen, executor)
    partitions = partitions_of(collection, chosen.partition)
    rows, heads = transform_rows(model.vectorizer, partitions, Reading.of(chosen), executor)
    ids = [
        np.array(partition.open().ids, dtype=object)[kept].tolist()
        for partition, (kept, *_) in zip(partitions, heads, strict=True)
    ]
    return _write(model, executor, rows, ids, place, by)


def shards_of_fit(fit: Fit, folder: str | os.PathLike[str], *, by: str = "words") -> ShardedIndex:
    """Index the items of a fit on a cluster whose histograms did not fit into one process."""
    _check_by(by)
    place, rows = _local(folder), fit.data.rows
    if rows is None:
        raise BagwiseError("The histograms of this fit are in this process. Use ItemIndex.build, or build_shards.")
    ends = np.cumsum(rows.counted.n_rows)[:-1]
    ids = [part.tolist() for part in np.split(np.array(rows.ids, dtype=object), ends)]
    return _write(fit.model, rows.executor, rows.counted.rows, ids, place, by)


def _local(folder: str | os.PathLike[str]) -> Path:
    """Return the path of a folder; raise an error for URLs."""
    place = as_place(folder)
    if isinstance(place, Url):
        raise BagwiseError(f"An index is mapped into memory, and {place} is a URL. Give a folder that workers share.")
    return Path(place)


def _check_by(by: str) -> None:
    if by not in _METRICS:
        raise BagwiseError(
            f"{argument('by', by)} is not for shards, whose items are compared by 'words' or 'groups': classes are "
            "calibrated over all items. Use one of these, or ItemIndex."
        )


def _write(
    model: Model, executor: Executor, rows: Sequence[Any], ids: Sequence[list[str]], folder: Path, by: str
) -> ShardedIndex:
    """Build an index of each partition, and write them one at a time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BagwiseError(f"{folder} cannot be written as a folder: {error.strerror}.") from error
    (folder / _ABOUT).unlink(missing_ok=True)  # an index is whole once this is there
    model.save(folder / _MODEL)
    shared = executor.share(model)
    n, sizes = len(rows), [len(part) for part in ids]
    built = executor.map(
        partial(_built, by, type(executor).keep), [shared] * n, rows, ids, step="Building the index", sizes=sizes
    )
    names = []
    for number, handle in enumerate(built):
        (content,) = executor.gather([handle])[0]
        names.append(f"{number:06d}.index")
        write_atomically(folder / names[-1], content)
    about = {"schema": _SCHEMA, "by": by, "n_items": sum(sizes), "shards": names}
    write_atomically(folder / _ABOUT, json.dumps(about, indent=1).encode())
    return ShardedIndex(folder, model, tuple(names), by, sum(sizes))


def _built(by: str, keep: Any, model: Model, part: Part, ids: list[str]) -> Any:
    ((matrix, _),) = part.content
    index = BagIndex(metric=_METRICS[by])
    if len(ids):
        index.add(features(model, matrix, by, index.metric), ids)
    with tempfile.TemporaryDirectory(prefix="bagwise-") as folder:
        return keep([index.save(Path(folder, "shard.index")).read_bytes()])
