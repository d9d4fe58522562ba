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
    """Unique integers or strings, all of one kind, in the order of adding, each with the number of its item.

    `values` are those of a file, of the items 0, 1, …; None before the first is added. `next_number` is the first
    number that no item ever had, for items that are added without an identifier.
    """

    def __init__(self, values: NDArray[Any] | PackedStrings | None = None, next_number: int = 0) -> None:
        self.kind = None if values is None else "str" if isinstance(values, PackedStrings) else "int"
        self.next_number = next_number
        self._array: NDArray[Any] | PackedStrings | None = np.empty(0, np.int64) if values is None else values
        self._numbers: dict[Any, int] | None = None  # made at the first change; in the order of adding

    def __len__(self) -> int:
        ids = self._array if self._numbers is None else self._numbers
        assert ids is not None
        return len(ids)

    @property
    def values(self) -> NDArray[Any]:
        """All identifiers: int64, or strings as objects."""
        array = self.stored()
        return array.take(np.arange(len(array))) if isinstance(array, PackedStrings) else array

    def stored(self) -> NDArray[Any] | PackedStrings:
        """Return all identifiers; those of a file that did not change as they are there."""
        if self._array is None:
            self._array = np.array(list(self.lookup()), dtype=object if self.kind == "str" else np.int64)
        return self._array

    def take(self, items: NDArray[np.int64]) -> NDArray[Any]:
        """Return the identifiers of some items; strings in a mapped file are read for these alone."""
        array = self.stored()
        return array.take(items) if isinstance(array, PackedStrings) else array[items]

    def copy(self) -> Identifiers:
        """Return a copy, which changes on its own."""
        other = Identifiers(None, self.next_number)
        other.kind, other._array = self.kind, self._array
        other._numbers = None if self._numbers is None else self._numbers.copy()
        return other

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
        new = check_ids(ids, "ids")
        if len(new) != n:
            raise BagwiseError(f"ids must have one entry per row, {n}; got {len(new)}.")
        if n and len(self) and _kind(new) != self.kind:
            raise BagwiseError(
                f"The ids of this index are of type {self.kind}, but {new.tolist()[0]!r} is of type {_kind(new)}. "
                "Use one type for all items."
            )
        if n and len(self) and (_kind(new) == "str" or new.min() < self.next_number):
            known = self.lookup()
            taken = next((identifier for identifier in new.tolist() if identifier in known), None)
            if taken is not None:
                raise BagwiseError(
                    f"ids must be unique, but {taken!r} is in the index. To replace an item, remove it first."
                )
        return new

    def add(self, ids: NDArray[Any], first: int) -> None:
        """Append what `new` returned, for the items from number `first` on."""
        if not len(ids):
            return
        self.lookup().update(zip(ids.tolist(), range(first, first + len(ids)), strict=True))
        self._array, self.kind = None, _kind(ids)
        if self.kind == "int":
            self.next_number = max(self.next_number, int(ids.max()) + 1)

    def remove(self, ids: Any) -> list[int]:
        """Remove identifiers, or none if one is not there; return the numbers of their items."""
        removed, numbers = check_ids(ids, "ids to remove").tolist(), self.lookup()
        missing = [identifier for identifier in removed if identifier not in numbers]
        if missing:
            others = f", and {len(missing) - 1} more," if len(missing) > 1 else ""
            raise BagwiseError(
                f"There is no item {missing[0]!r}{others} in this index of {len(self)}; none was removed."
            )
        self._array = self._array if not removed else None
        return [numbers.pop(identifier) for identifier in removed]

    def renumber(self) -> None:
        """Number the items from 0 in their order, after some were removed."""
        self._numbers = {identifier: number for number, identifier in enumerate(self.lookup())}

    def lookup(self) -> dict[Any, int]:
        """Return the numbers of the items by their identifiers."""
        if self._numbers is None:
            values = self.values.tolist()
            self._numbers = dict(zip(values, range(len(values)), strict=True))
            if len(self._numbers) < len(values):
                raise BagwiseError("The index is damaged: it holds the same identifier twice.")
        return self._numbers


def check_ids(ids: Any, what: str) -> NDArray[Any]:
    """Return unique integers as int64 and unique strings as objects, in a new array."""
    array = _as_ids(ids, what)
    listed = array.tolist()
    if len(set(listed)) < len(listed):
        twice, count = Counter(listed).most_common(1)[0]
        raise BagwiseError(f"{what} must be unique, but {twice!r} is given {count} times.")
    return array


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
