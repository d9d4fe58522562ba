"""Partitions: parts of a collection that another process opens by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import check_integer
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection
from bagwise.sources.item_tables import codes_of

__all__ = ["Partition", "divide"]

# Items of a partition, if nothing is said.
_ITEMS = 1000


@dataclass(frozen=True)
class Partition:
    """Consecutive items of a collection: where they are, not their bytes. See `Collection.partitions`.

    Partitions can be pickled: a worker of a cluster opens one by itself, if it has access to the files.

    Attributes
    ----------
    number : int
        Number among the partitions of the collection, from 0.
    start : int
        Number of its first item in the collection.
    n_items : int
        Number of items.
    source : str
        Origin of the items, for messages.

    Examples
    --------
    >>> import pickle, tempfile
    >>> from pathlib import Path
    >>> from bagwise import open_collection
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for k in range(5):
    ...         _ = Path(folder, f"{k}.txt").write_text(f"text {k}")
    ...     sent = [pickle.dumps(part) for part in open_collection(folder).partitions(2)]
    ...     [[item.load() for item in pickle.loads(one).open()] for one in sent]
    [['text 0', 'text 1', 'text 2'], ['text 3', 'text 4']]
    """

    number: int
    start: int
    n_items: int
    source: str
    _items: Collection = field(repr=False)

    @classmethod
    def of(cls, collection: Collection, start: int, stop: int, number: int = 0) -> Partition:
        """Make a partition of the items from `start` to `stop`: a slice of the table of the collection."""
        items = collection[start:stop]
        items.ignored, items.notes, items.skipped = (), (), ()  # of the whole, and long
        return cls(number, start, stop - start, collection.source, items)

    def open(self) -> Collection:
        """Open the items: ids, labels, splits and order are those of the whole collection."""
        return self._items


def divide(collection: Collection, n: int | None = None, items_per_partition: int | None = None) -> list[Partition]:
    """Divide a collection; see `Collection.partitions`."""
    bounds = _bounds(len(collection), _cuts(collection), n, items_per_partition)
    return [Partition.of(collection, start, stop, number) for number, (start, stop) in enumerate(bounds)]


def _cuts(collection: Collection) -> NDArray[np.intp] | None:
    """Return where a collection of several tar files may be divided: between them. None: anywhere."""
    if not {"url", "offset"} <= set(collection.table.column_names):
        return None
    files, _ = codes_of(collection.table.column("url"))
    cuts = np.flatnonzero(np.diff(files)) + 1
    return cuts if 0 < len(cuts) < len(files) - 1 else None


def _bounds(
    total: int, cuts: NDArray[np.intp] | None, n: int | None, items_per_partition: int | None
) -> list[tuple[int, int]]:
    """Return start and end of each partition.

    >>> _bounds(10, None, 3, None), _bounds(5, None, None, 2), _bounds(10, np.array([3, 4, 8]), 2, None)
    ([(0, 4), (4, 7), (7, 10)], [(0, 2), (2, 4), (4, 5)], [(0, 4), (4, 10)])
    """
    if n is not None and items_per_partition is not None:
        raise BagwiseError(f"Give n or items_per_partition, not both; got {n} and {items_per_partition}.")
    if n is not None:
        n = min(check_integer(n, "n", 1), total)
        ends = [-(-total * (k + 1) // n) for k in range(n)]
    else:
        size = check_integer(_ITEMS if items_per_partition is None else items_per_partition, "items_per_partition", 1)
        ends = [min(start + size, total) for start in range(0, total, size)]
    if cuts is not None:
        ends = _nearest(ends, cuts, total)
    return list(zip([0, *ends[:-1]], ends, strict=True))


def _nearest(ends: Sequence[int], cuts: NDArray[np.intp], total: int) -> list[int]:
    """Move each end to the nearest cut; partitions that are left empty are none."""
    places = np.concatenate([cuts, [total]])
    at = np.searchsorted(places, ends)
    before, after = places[np.maximum(at - 1, 0)], places[np.minimum(at, len(places) - 1)]
    moved = np.where(np.abs(np.asarray(ends) - before) < np.abs(after - np.asarray(ends)), before, after)
    return sorted({*moved.tolist(), total})
