"""Shards that a process keeps open: files of this machine are mapped, those by URL are copied first."""

from __future__ import annotations

import json
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bagwise._io.storage import Url, storage_errors
from bagwise._utils.json_text import MOST_PARTS, parse_json
from bagwise.distributed.executors import new_file, remove_file
from bagwise.errors import BagwiseError
from bagwise.retrieval.bag_index import BagIndex
from bagwise.sources.contents import as_file

__all__ = ["OpenShards", "labels_to_bytes", "naming"]

_MOST_SHARDS = 64
_MOST_BYTES = 8 << 30
_LABELS_BYTES, _LABEL_BYTES = 1 << 20, 1000  # of a file of labels: in any case, and for each item

Labels = Mapping[str, "str | None"]


class OpenShards:
    """The shards that a process has searched last.

    A shard by URL is copied into a file of this process, once, and again if the object has changed. The file is removed
    when there are too many, or when the process ends.

    Parameters
    ----------
    most_shards : int, default=64
        Shards that are open; a copy stays when its shard is closed.
    most_bytes : int, default=8 GiB
        Bytes of copies. The last one stays, however large it is.
    """

    def __init__(self, most_shards: int = _MOST_SHARDS, most_bytes: int = _MOST_BYTES) -> None:
        self._most_shards, self._most_bytes = most_shards, most_bytes
        self._lock = threading.Lock()
        self._open: OrderedDict[Any, _Shard] = OrderedDict()
        self._copies: OrderedDict[Any, _Copy] = OrderedDict()

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
            shard = self._open.setdefault(place, _Shard())
            self._open.move_to_end(place)
            while len(self._open) > self._most_shards:
                self._open.popitem(last=False)
        with shard.lock:  # other threads may open other shards meanwhile
            version = _version(place)
            if version != shard.version:
                shard.version = shard.labels_version = None
                copy = self._copied(place, version) if isinstance(place, Url) else None
                shard.index, shard.copy = _loaded(place, copy), copy
                self._keep(place, copy)
                shard.version = version
            if labels is not None and (version := _version(labels)) != shard.labels_version:
                with naming(place):
                    ids = shard.index.ids.tolist()
                shard.labels = _read_labels(labels, ids)
                shard.labels_version = version
            return shard.index, shard.labels

    def _copied(self, place: Url, version: Any) -> _Copy:
        """Return a copy of this version of a file."""
        with self._lock:
            copy = self._copies.get(place)
        return copy if copy is not None and copy.version == version else _Copy(place, version)

    def _keep(self, place: Any, copy: _Copy | None) -> None:
        """Keep a copy that is sound, and remove those used longest ago if there are too many."""
        if copy is None:
            return
        with self._lock:
            self._copies[place] = copy
            self._copies.move_to_end(place)
            while len(self._copies) > 1 and sum(one.n_bytes for one in self._copies.values()) > self._most_bytes:
                self._copies.popitem(last=False)


class _Shard:
    """An index and labels, with the versions of the files that they were read from."""

    index: BagIndex

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.copy: _Copy | None = None
        self.labels: Labels = {}
        self.version: tuple[Any, ...] | None = None
        self.labels_version: tuple[Any, ...] | None = None


class _Copy:
    """A file by URL in a file of this process, which is removed with the object."""

    def __init__(self, place: Url, version: Any) -> None:
        self.version = version
        self.path, file = new_file()
        self._remove = weakref.finalize(self, remove_file, self.path)
        file.close()
        with storage_errors(str(place)):
            system, path = place.opened()
            system.get_file(path, str(self.path))
        self.n_bytes = self.path.stat().st_size


def _version(place: Any) -> tuple[Any, ...]:
    """Return what tells versions of a file; raise an error if it is not there."""
    try:
        return as_file(place).stamp()
    except (OSError, BagwiseError) as error:
        missing = isinstance(error, FileNotFoundError) or isinstance(error.__cause__, FileNotFoundError)
        reason = "it does not exist" if missing else getattr(error, "strerror", None) or str(error).rstrip(".")
        raise BagwiseError(
            f"The shard {place} cannot be read where it is searched: {reason}. Shards must be in a folder that all "
            "workers share, or in a store that they reach. If the index was built again, load it again; if a file was "
            "lost, build it again."
        ) from error


def _loaded(place: Any, copy: _Copy | None) -> BagIndex:
    """Map a file, or the copy of one; errors name the file."""
    path = str(place) if copy is None else str(copy.path)
    with naming(place, path):
        return BagIndex.load(path)


@contextmanager
def naming(place: Any, path: str = "") -> Iterator[None]:
    """Let errors of a shard name its place, instead of the path of a copy."""
    try:
        yield
    except BagwiseError as error:
        told = str(error).replace(path, str(place)) if path else str(error)
        raise BagwiseError(told if str(place) in told else f"{place}: {told}") from error


def labels_to_bytes(labels: Sequence[str | None]) -> bytes:
    """Return the content of a file of labels: classes, and the number of that of each item, -1 without one."""
    classes = sorted({label for label in labels if label is not None})
    number: dict[str | None, int] = {None: -1} | {label: k for k, label in enumerate(classes)}
    told = {"classes": classes, "labels": [number[label] for label in labels]}
    content = json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if len(content) > _most_bytes(len(labels)):
        raise BagwiseError(
            f"The labels of {len(labels):,} items take {len(content):,} bytes; an index in shards has at most "
            f"{_LABEL_BYTES:,} for each. Give items short labels."
        )
    return content


def _most_bytes(n_items: int) -> int:
    """Return how large a file of labels may be."""
    return _LABELS_BYTES + _LABEL_BYTES * n_items


def _read_labels(place: Any, ids: Sequence[str]) -> Labels:
    """Read labels of the items that have these ids."""
    try:
        most = _most_bytes(len(ids))
        with as_file(place).open() as file:
            content = file.read(most + 1)
        if len(content) > most:
            raise ValueError(f"it has more than {most:,} bytes for {len(ids):,} items")
        told = parse_json(content.decode("utf-8", "surrogatepass"), MOST_PARTS + 2 * len(ids))
        classes, codes = told["classes"], told["labels"]
        if type(classes) is not list or type(codes) is not list or not all(isinstance(name, str) for name in classes):
            raise ValueError("its classes must be a list of names, and its labels a list of numbers")
        if len(codes) != len(ids):
            raise ValueError(f"it has {len(codes)} labels for {len(ids)} items")
        if not all(type(code) is int and -1 <= code < len(classes) for code in codes):
            raise ValueError(f"its labels must be numbers below {len(classes)}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"its field {error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise BagwiseError(f"The labels {place} cannot be read: {reason}. Build the index again.") from error
    return {id: classes[code] if code >= 0 else None for id, code in zip(ids, codes, strict=True)}
