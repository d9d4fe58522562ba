"""Partitions: parts of a collection that another process opens by itself."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import as_count
from bagwise.errors import BagwiseError
from bagwise.sources.archives import TarMember
from bagwise.sources.collection import Collection
from bagwise.sources.contents import FileContent

__all__ = ["Partition", "divide"]

# Items of a partition, if nothing is said.
_ITEMS = 1000


class Opener(Protocol):
    """Opens the items of a partition. Picklable and small."""

    def open(self) -> Collection:
        """Open the items."""

    def key(self) -> str | None:
        """Describe the items, and the versions of their files; None if they are not known yet."""


@dataclass(frozen=True)
class Partition:
    """Consecutive items of a collection: where they are, not their bytes. See `Collection.partitions`.

    Partitions are small and can be pickled: a worker of a cluster opens one by itself, if it has access to the files.

    Attributes
    ----------
    number : int
        Number among the partitions of the collection, from 0.
    start : int or None
        Number of its first item in the collection; None for a shard that was not read yet.
    n_items : int or None
        Number of items; None for a shard that was not read yet.
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
    start: int | None
    n_items: int | None
    source: str
    _opener: Opener = field(repr=False)

    def open(self) -> Collection:
        """Open the items: ids, labels, splits and order are those of the whole collection."""
        return self._opener.open()

    @property
    def key(self) -> str | None:
        """Hash of ids, labels, splits, options, and of the versions of files as far as their lists tell.

        32 hexadecimal digits, the same in every process; None for a shard that was not read yet.
        """
        about = self._opener.key()
        return None if about is None else hashlib.blake2b(about.encode("utf-8", "replace"), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Held:
    """A partition that carries its items, which are references: paths, offsets in files, URLs."""

    items: Collection

    def open(self) -> Collection:
        """Return the items."""
        return self.items

    def key(self) -> str:
        """Describe the items."""
        found = [(item.id, item.labels, item.split, repr(item.decoder), _version(item.content)) for item in self.items]
        return repr((self.items.modality, found))


def _version(content: Any) -> str:
    """Describe content, with the version of a file."""
    if not isinstance(content, FileContent):
        return repr(content)
    try:
        return repr((content, content.stamp()))
    except OSError:  # told, or raised, when it is read
        return repr((content, None))


def divide(collection: Collection, n: int | None = None, items_per_partition: int | None = None) -> list[Partition]:
    """Divide a collection; see `Collection.partitions`."""
    bounds = _bounds(len(collection), _cuts(collection), n, items_per_partition)
    return [
        Partition(number, start, stop - start, collection.source, collection._reference(start, stop))
        for number, (start, stop) in enumerate(bounds)
    ]


def _cuts(collection: Collection) -> NDArray[np.intp] | None:
    """Return where a collection of several tar files may be divided: between them. None: anywhere."""
    own = collection._whole_files()
    if own is None:
        archives = [item.content.archive if isinstance(item.content, TarMember) else None for item in collection]
        own = np.array([one is None or one != before for one, before in zip(archives[1:], archives, strict=False)])
    if own.all() or not own.any():  # no tar files, or only one
        return None
    return np.flatnonzero(own) + 1


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
        n = min(as_count(n, "n", least=1), total)
        ends = [-(-total * (k + 1) // n) for k in range(n)]
    else:
        size = as_count(_ITEMS if items_per_partition is None else items_per_partition, "items_per_partition", least=1)
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
