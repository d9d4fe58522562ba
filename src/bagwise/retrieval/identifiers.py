"""Identifiers of items: integers or strings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import PackedStrings
from bagwise._utils.checks import as_numpy
from bagwise.errors import BagwiseError


class Identifiers:
    """Unique integers or strings, all of one kind, in the order of adding.

    `values` are those of a file, None before the first is added. `next_number` is the first number that no item ever
    had, for items that are added without an identifier.
    """

    def __init__(self, values: NDArray[np.int64] | PackedStrings | None = None, next_number: int = 0) -> None:
        self._packed = values if isinstance(values, PackedStrings) else None
        # parts that are concatenated when all are needed
        self._parts: list[NDArray[Any]] = [values] if isinstance(values, np.ndarray) else []
        self.next_number = next_number
        # the serial of each identifier, made when it is needed, and the serials of all items: removed ones leave gaps
        self._serial_of: dict[Any, int] | None = None
        self._serials = np.empty(0, dtype=np.int64)

    @property
    def kind(self) -> str | None:
        """Their type: "int", "str", or None while nothing was added."""
        if self._packed is not None:
            return "str"
        return _kind(self._parts[0]) if self._parts else None

    def __len__(self) -> int:
        return len(self._packed) if self._packed is not None else sum(len(part) for part in self._parts)

    @property
    def values(self) -> NDArray[Any]:
        """All identifiers: int64, or strings as objects."""
        if self._packed is not None:
            self._parts = [self._packed.take(np.arange(len(self._packed)))]
            self._packed = None
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0] if self._parts else np.empty(0, dtype=np.int64)

    def take(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """Give the identifiers of some items; strings in a mapped file are read for these alone."""
        return self._packed.take(numbers) if self._packed is not None else self.values[numbers]

    def packed(self) -> NDArray[np.int64] | PackedStrings:
        """Give them as files hold them."""
        if self.kind != "str":
            return self.values
        return self._packed if self._packed is not None else PackedStrings.of(self.values)

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

    def add(self, ids: NDArray[Any]) -> None:
        """Append what `new` gave."""
        if len(ids) == 0:
            return
        if len(self) == 0:  # the kind may change
            self._packed, self._parts, self._serial_of = None, [], None
        if self._serial_of is not None:
            serials = self._serials[-1] + 1 + np.arange(len(ids))
            self._serial_of.update(zip(ids.tolist(), serials.tolist(), strict=True))
            self._serials = np.concatenate([self._serials, serials])
        self._parts = [self.values, ids] if self._packed is not None else [*self._parts, ids]
        if _kind(ids) == "int":
            self.next_number = max(self.next_number, int(ids.max()) + 1)

    def find(self, ids: Any) -> NDArray[np.int64]:
        """Give the numbers of items, in rising order; raise an error if one is not there."""
        given = check_ids(ids, "ids to remove").tolist()
        known = self._lookup()
        missing = [identifier for identifier in given if identifier not in known]
        if missing:
            others = f", and {len(missing) - 1} more," if len(missing) > 1 else ""
            raise BagwiseError(
                f"There is no item {missing[0]!r}{others} in this index of {len(self)}; none was removed."
            )
        serials = np.sort(np.array([known[identifier] for identifier in given], dtype=np.int64))
        return np.searchsorted(self._serials, serials)

    def remove(self, numbers: NDArray[np.int64]) -> None:
        """Remove items by the numbers that `find` gave; later items are renumbered."""
        lookup = self._lookup()
        for identifier in self.values[numbers].tolist():
            del lookup[identifier]
        self._parts, self._serials = [np.delete(self.values, numbers)], np.delete(self._serials, numbers)

    def _lookup(self) -> dict[Any, int]:
        if self._serial_of is None:
            values = self.values.tolist()
            self._serial_of = {identifier: serial for serial, identifier in enumerate(values)}
            self._serials = np.arange(len(values))
            if len(self._serial_of) < len(values):
                raise BagwiseError("The index is damaged: it holds the same identifier twice.")
        return self._serial_of


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
