"""Identifiers of items: integers or strings."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import PackedStrings
from bagwise._utils.checks import as_numpy
from bagwise.errors import BagwiseError


class Identifiers:
    """Unique integers or strings, all of one kind, in the order of adding.

    Each has the serial of its item, see `bagwise.retrieval.store.Store`. `values` are those of a file, with the serials
    0, 1, …; None before the first is added. `next_number` is the first number that no item ever had, for items that are
    added without an identifier.
    """

    def __init__(self, values: NDArray[np.int64] | PackedStrings | None = None, next_number: int = 0) -> None:
        self._packed = values if isinstance(values, PackedStrings) else None
        self._kind = None if values is None else "int" if self._packed is None else "str"
        self.next_number = next_number
        # with removed ones, and with room for more: the first `_n_held` count
        self._values: NDArray[Any] = values if isinstance(values, np.ndarray) else np.empty(0, dtype=np.int64)
        self._n_held, self._n_removed = len(self._values), 0
        self._serials: NDArray[np.int64] | None = None  # None: the value with serial i is at place i
        self._kept: NDArray[np.bool_] | None = None  # made at the first removal
        self._serial_of: dict[Any, int] | None = None  # made when it is needed

    @property
    def kind(self) -> str | None:
        """Their type: "int", "str", or None while nothing was added."""
        return self._kind

    def __len__(self) -> int:
        return len(self._packed) if self._packed is not None else self._n_held - self._n_removed

    @property
    def values(self) -> NDArray[Any]:
        """All identifiers: int64, or strings as objects."""
        self._unpack()
        self._compact()
        return self._values[: self._n_held]

    def take(self, serials: NDArray[np.int64]) -> NDArray[Any]:
        """Give the identifiers of some items; strings in a mapped file are read for these alone."""
        return self._packed.take(serials) if self._packed is not None else self._values[self._places(serials)]

    def packed(self) -> NDArray[np.int64] | PackedStrings:
        """Give them as files hold them."""
        if self.kind != "str":
            return self.values
        return self._packed if self._packed is not None else PackedStrings.of(self.values)

    def copy(self) -> Identifiers:
        """Give a copy, which changes on its own."""
        other = copy.copy(self)
        other._values = self._values.copy() if self._n_held else self._values
        other._kept = None if self._kept is None else self._kept.copy()
        other._serials = None if self._serials is None else self._serials.copy()
        other._serial_of = None if self._serial_of is None else self._serial_of.copy()
        return other

    def _unpack(self) -> None:
        if self._packed is not None:
            self._values = self._packed.take(np.arange(len(self._packed)))
            self._n_held, self._packed = len(self._values), None

    def _places(self, serials: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._serials is None:
            return serials
        return np.minimum(np.searchsorted(self._serials[: self._n_held], serials), self._n_held - 1)

    def _compact(self) -> None:
        """Leave out the removed ones."""
        if self._n_removed and self._kept is not None:
            left = np.flatnonzero(self._kept[: self._n_held])
            self._serials = left if self._serials is None else self._serials[left]
            self._values, self._kept = self._values[left], None
            self._n_held, self._n_removed = len(left), 0

    def new(self, ids: Any, n: int) -> NDArray[Any]:
        """Check identifiers for n items that are to be added; None numbers them."""
        if ids is None:
            if self.kind == "str" and len(self):
                raise BagwiseError(f"The items of this index have names; give ids for the {n} new ones as well.")
            if self.next_number + n > 2**63:
                raise BagwiseError(
                    f"There are no numbers left above {self.next_number - 1}; give ids for the {n} rows."
                )
            return np.arange(self.next_number, self.next_number + n, dtype=np.int64)
        given = check_ids(ids, "ids")
        if len(given) != n:
            raise BagwiseError(f"ids must have one entry per row, {n}; got {len(given)}.")
        if n and len(self) and _kind(given) != self.kind:
            raise BagwiseError(
                f"The ids of this index are of type {self.kind}, but {given.tolist()[0]!r} is of type {_kind(given)}. "
                "Use one type for all items."
            )
        if n and len(self) and (_kind(given) == "str" or given.min() < self.next_number):
            known = self._lookup()
            taken = next((identifier for identifier in given.tolist() if identifier in known), None)
            if taken is not None:
                raise BagwiseError(
                    f"ids must be unique, but {taken!r} is in the index. To replace an item, remove it first."
                )
        return given

    def add(self, ids: NDArray[Any], serial: int) -> None:
        """Append what `new` gave; the first has this serial."""
        if len(ids) == 0:
            return
        self._unpack()
        serials = np.arange(serial, serial + len(ids))
        if len(self) == 0:  # the kind may change
            self._values, self._n_held, self._n_removed, self._kept = np.empty(0, dtype=ids.dtype), 0, 0, None
            self._serials, self._serial_of = None if serial == 0 else serials[:0], None
        if self._serial_of is not None:
            self._serial_of.update(zip(ids.tolist(), serials.tolist(), strict=True))
        end = self._n_held + len(ids)
        self._values = _with_room(self._values, self._n_held, end)
        self._values[self._n_held : end] = ids
        if self._serials is not None:
            self._serials = _with_room(self._serials, self._n_held, end)
            self._serials[self._n_held : end] = serials
        if self._kept is not None:
            self._kept = _with_room(self._kept, self._n_held, end)
            self._kept[self._n_held : end] = True
        self._n_held, self._kind = end, _kind(ids)
        if self._kind == "int":
            self.next_number = max(self.next_number, int(ids.max()) + 1)

    def find(self, ids: Any) -> NDArray[np.int64]:
        """Give the serials of items, in rising order; raise an error if one is not there."""
        given = check_ids(ids, "ids to remove").tolist()
        known = self._lookup()
        missing = [identifier for identifier in given if identifier not in known]
        if missing:
            others = f", and {len(missing) - 1} more," if len(missing) > 1 else ""
            raise BagwiseError(
                f"There is no item {missing[0]!r}{others} in this index of {len(self)}; none was removed."
            )
        return np.sort(np.array([known[identifier] for identifier in given], dtype=np.int64))

    def remove(self, serials: NDArray[np.int64]) -> None:
        """Remove what `find` gave."""
        lookup, places = self._lookup(), self._places(serials)
        for identifier in self._values[places].tolist():
            del lookup[identifier]
        if self._kept is None:
            self._kept = np.ones(self._n_held, dtype=bool)
        self._kept[places] = False
        self._n_removed += len(places)
        if self._n_removed > self._n_held // 2:
            self._compact()

    def _lookup(self) -> dict[Any, int]:
        if self._serial_of is None:
            values = self.values  # without removed ones
            serials = range(len(values)) if self._serials is None else self._serials[: self._n_held].tolist()
            self._serial_of = dict(zip(values.tolist(), serials, strict=True))
            if len(self._serial_of) < len(values):
                raise BagwiseError("The index is damaged: it holds the same identifier twice.")
        return self._serial_of


def _with_room(array: NDArray[Any], n_held: int, end: int) -> NDArray[Any]:
    """Give an array that can be written up to `end`: this one, or one twice as long with what it holds."""
    if end <= len(array) and array.flags.writeable:
        return array
    longer = np.empty(max(end, 2 * n_held), dtype=array.dtype)
    longer[:n_held] = array[:n_held]
    return longer


def check_ids(ids: Any, what: str) -> NDArray[Any]:
    """Give unique integers as int64 and unique strings as objects, in a new array."""
    given = _as_ids(ids, what)
    listed = given.tolist()
    if len(set(listed)) < len(listed):
        twice, count = Counter(listed).most_common(1)[0]
        raise BagwiseError(f"{what} must be unique, but {twice!r} is given {count} times.")
    return given


def _as_ids(ids: Any, what: str) -> NDArray[Any]:
    if isinstance(ids, (str, bytes, int, np.integer)) or not hasattr(ids, "__len__"):
        raise BagwiseError(
            f"{what} must be a list of integers or strings, got {ids!r}. Give a single one as [{ids!r}]."
        )
    if len(ids) == 0:
        return np.empty(0, dtype=np.int64)
    array = as_numpy(ids) if hasattr(ids, "dtype") or hasattr(ids, "detach") else np.array(ids, dtype=object)
    if array.ndim != 1:
        raise BagwiseError(f"{what} must be a list of integers or strings, got shape {array.shape}.")
    if array.dtype.kind in "iu" and (array.dtype.kind == "i" or array.max() < 2**63):
        return array.astype(np.int64)
    listed = array.tolist()
    if all(isinstance(identifier, str) for identifier in listed):
        return np.array([str(identifier) for identifier in listed], dtype=object)
    if all(isinstance(identifier, (int, np.integer)) and not isinstance(identifier, bool) for identifier in listed):
        if all(-(2**63) <= identifier < 2**63 for identifier in listed):
            return np.array(listed, dtype=np.int64)
        raise BagwiseError(f"{what} that are integers must fit into 64 bits.")
    wrong = next((x for x in listed if isinstance(x, bool) or not isinstance(x, (int, str, np.integer))), None)
    if wrong is None:
        raise BagwiseError(f"{what} must be all integers or all strings, got both. Use strings for all, for example.")
    raise BagwiseError(f"{what} must be integers or strings, got {wrong!r} of type {type(wrong).__name__}.")


def _kind(ids: NDArray[Any]) -> str:
    return "str" if ids.dtype == object else "int"
