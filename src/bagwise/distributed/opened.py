"""Shards that a process keeps open: files of this machine are mapped, those by URL are copied first."""

from __future__ import annotations

import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from bagwise._io.storage import Url, storage_errors
from bagwise.distributed.executors import new_file, remove_file
from bagwise.errors import BagwiseError
from bagwise.retrieval.bag_index import BagIndex
from bagwise.sources.contents import as_file

__all__ = ["OpenShards", "labels_to_bytes"]

_MOST_SHARDS = 64
_MOST_BYTES = 8 << 30

Labels = Mapping[str, "str | None"]


class OpenShards:
    """The shards that a process has searched last.

    A shard by URL is copied into a file of this process, once, and again if the object has changed. The file is removed
    when the shard is closed, or when the process ends.

    Parameters
    ----------
    most_shards : int, default=64
    most_bytes : int, default=8 GiB
        Bytes of copies. One shard stays open, however large it is.
    """

    def __init__(self, most_shards: int = _MOST_SHARDS, most_bytes: int = _MOST_BYTES) -> None:
        self._most_shards, self._most_bytes = most_shards, most_bytes
        self._lock = threading.Lock()
        self._held: OrderedDict[Any, _Shard] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, place: Any, labels: Any = None) -> tuple[BagIndex, Labels]:
        """Open a shard, unless it is open and has not changed.

        Parameters
        ----------
        place : str or Url
            File that `BagIndex.save` wrote.
        labels : str or Url, default=None
            File of the labels of its items, which `labels_to_bytes` made.

        Returns
        -------
        index : BagIndex
        labels : mapping
            By ids; empty if there is no file of labels.
        """
        with self._lock:
            shard = self._held.setdefault(place, _Shard())
            self._held.move_to_end(place)
        with shard.lock:  # other threads may open other shards meanwhile
            shard.open(place, labels)
            found = shard.index, shard.labels
        with self._lock:
            while len(self._held) > 1 and self._too_many():
                self._held.popitem(last=False)
        return found

    def _too_many(self) -> bool:
        copied = sum(shard.n_copied for shard in self._held.values())
        return len(self._held) > self._most_shards or copied > self._most_bytes


class _Shard:
    """An index and labels, with the versions of the files that they were read from."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_copied = 0
        self.labels: Labels = {}
        self._versions: list[Any] = [None, None]

    def open(self, place: Any, labels: Any) -> None:
        """Read the files that have changed."""
        version = _version(place)
        if version != self._versions[0]:
            self._versions = [None, None]
            self.index, self.n_copied = _opened(place)
            self._versions[0] = version
        if labels is not None and (version := _version(labels)) != self._versions[1]:
            self.labels = _read_labels(labels, self.index.ids.tolist())
            self._versions[1] = version


def _version(place: Any) -> tuple[Any, ...]:
    """Return what tells versions of a file; raise an error if it is not there."""
    try:
        return as_file(place).stamp()
    except (OSError, BagwiseError) as error:
        missing = isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError)
        reason = "it does not exist" if missing else getattr(error, "strerror", None) or str(error).rstrip(".")
        raise BagwiseError(
            f"The shard {place} cannot be read where it is searched: {reason}. Shards must be in a folder that all "
            "workers share, or in a store that they reach. If a file was lost, build the index again."
        ) from error


def _opened(place: Any) -> tuple[BagIndex, int]:
    """Map a file; return the number of bytes that were copied to do so, too."""
    if not isinstance(place, Url):
        return BagIndex.load(place), 0
    copy, file = new_file()
    file.close()
    try:
        with storage_errors(str(place)):
            system, path = place.opened()
            system.get_file(path, str(copy))
        index = BagIndex.load(copy)
        weakref.finalize(index, remove_file, copy)
    except BaseException as error:
        remove_file(copy)
        if isinstance(error, BagwiseError):
            raise BagwiseError(str(error).replace(str(copy), str(place))) from error
        raise
    return index, copy.stat().st_size


def labels_to_bytes(labels: Sequence[str | None]) -> bytes:
    """Return the content of a file of labels: classes, and the number of that of each item, -1 without one."""
    classes = sorted({label for label in labels if label is not None})
    number: dict[str | None, int] = {None: -1} | {label: k for k, label in enumerate(classes)}
    return json.dumps({"classes": classes, "labels": [number[label] for label in labels]}).encode()


def _read_labels(place: Any, ids: Sequence[str]) -> Labels:
    """Read labels of the items that have these ids."""
    try:
        with as_file(place).open() as file:
            told = json.loads(file.read())
        classes, codes = told["classes"], told["labels"]
        if not all(isinstance(name, str) for name in classes) or len(codes) != len(ids):
            raise ValueError(f"it has {len(codes)} labels for {len(ids)} items")
        if not all(type(code) is int and -1 <= code < len(classes) for code in codes):
            raise ValueError(f"its labels must be numbers below {len(classes)}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"its field {error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise BagwiseError(f"The labels {place} cannot be read: {reason}. Build the index again.") from error
    return {id: classes[code] if code >= 0 else None for id, code in zip(ids, codes, strict=True)}
