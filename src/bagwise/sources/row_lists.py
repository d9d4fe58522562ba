"""Lists of what is known of the rows of a table, that take little memory for many rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

__all__ = ["Coded", "LazyList", "RowIds"]

_AT_A_TIME = 1 << 16

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


class LazyList(Sequence[T]):
    """A list whose entries are made when they are asked for. Equal to any list, or other such, with equal entries.

    Adding another list gives an ordinary one.
    """

    def chosen(self, numbers: NDArray[np.int64]) -> LazyList[T]:
        """Return the entries of these numbers, which are not negative."""
        raise NotImplementedError

    def _at(self, number: int) -> T:
        raise NotImplementedError

    @overload
    def __getitem__(self, key: int) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> LazyList[T]: ...

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self.chosen(np.arange(*key.indices(len(self))))
        try:
            return self._at(range(len(self))[key])
        except IndexError:
            raise IndexError(f"there is no {key} in a list of {len(self)}") from None

    def __add__(self, other: Sequence[Any]) -> list[Any]:
        return [*self, *other] if isinstance(other, (list, LazyList)) else NotImplemented

    def __radd__(self, other: Sequence[Any]) -> list[Any]:
        return [*other, *self] if isinstance(other, list) else NotImplemented

    def __iter__(self) -> Iterator[T]:
        return map(self._at, range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, LazyList)):
            return NotImplemented
        return len(self) == len(other) and all(one == two for one, two in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, islice(self, 5) if len(self) > 10 else self))
        return f"[{shown}, ... {len(self)} in all]" if len(self) > 10 else f"[{shown}]"


class RowIds(LazyList[str]):
    """Ids that number the rows of a table, from 0.

    Parameters
    ----------
    rows : range or ndarray of shape (N,)
        Numbers of the rows.
    prefixes, starts : sequences, default=("",) and (0,)
        Rows from each of the `starts` on have ids that begin with this prefix, and are numbered anew.

    Examples
    --------
    >>> RowIds(range(10**9))[17], RowIds.of_parts([("train:", 2), ("test:", 1)])
    ('17', ['train:0', 'train:1', 'test:0'])
    """

    def __init__(
        self, rows: range | NDArray[np.int64], prefixes: Sequence[str] = ("",), starts: Sequence[int] = (0,)
    ) -> None:
        self._rows, self._prefixes, self._starts = rows, tuple(prefixes), tuple(starts)

    @classmethod
    def of_parts(cls, parts: Sequence[tuple[str, int]]) -> RowIds:
        """Make the ids of rows that come in several parts, each with a prefix and a number of rows."""
        starts = [0, *accumulate(n for _, n in parts)]
        return cls(range(starts[-1]), [prefix for prefix, _ in parts], starts[:-1])

    def chosen(self, numbers: NDArray[np.int64]) -> RowIds:
        """Return the ids of some rows."""
        rows = numbers if isinstance(self._rows, range) else self._rows[numbers]
        return RowIds(rows, self._prefixes, self._starts)

    @property
    def differ(self) -> bool:
        """Whether no row is there twice."""
        return isinstance(self._rows, range) or len(np.unique(self._rows)) == len(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def _at(self, number: int) -> str:
        row = int(self._rows[number])
        part = bisect_right(self._starts, row) - 1
        return f"{self._prefixes[part]}{row - self._starts[part]}"


class Coded(LazyList[H], Generic[H]):
    """A list of few different values, such as labels: each value once, and a code of 4 bytes for each entry.

    Examples
    --------
    >>> Coded.of(["a", "b", "a"]).values, Coded.of(["a", "b", "a"])
    (['a', 'b'], ['a', 'b', 'a'])
    """

    def __init__(self, values: Sequence[H], codes: NDArray[np.int32]) -> None:
        self.values, self.codes = list(values), codes

    @classmethod
    def of(cls, entries: Iterable[H]) -> Coded[H]:
        """Make the list of some entries."""
        if isinstance(entries, Coded):
            return entries
        found: dict[H, int] = {}
        codes = np.fromiter((found.setdefault(entry, len(found)) for entry in entries), dtype=np.int32)
        return cls(list(found), codes)

    @classmethod
    def joined(cls, parts: Sequence[Coded[H]]) -> Coded[H]:
        """Make one list of several.

        >>> Coded.joined([Coded.of(["a", "b"]), Coded.of(["b", "c"])])
        ['a', 'b', 'b', 'c']
        """
        found: dict[H, int] = {}
        codes = [np.empty(0, np.int32)]
        for part in parts:
            new = [found.setdefault(value, len(found)) for value in part.values]
            codes.append(np.array(new, np.int32)[part.codes])
        return cls(list(found), np.concatenate(codes))

    @classmethod
    def same(cls, value: H, n: int) -> Coded[H]:
        """Make a list of equal entries."""
        return cls([value], np.zeros(n, np.int32))

    def mapped(self, function: Callable[[H], Any]) -> Coded[Any]:
        """Return the list of what a function gives for each entry; it is called once for each value."""
        return Coded([function(value) for value in self.values], self.codes)

    def chosen(self, numbers: NDArray[np.int64]) -> Coded[H]:
        """Return some entries."""
        return Coded(self.values, self.codes[numbers])

    def compact(self) -> Coded[H]:
        """Return the same list with no other values than those of its entries."""
        used, codes = np.unique(self.codes, return_inverse=True)
        return Coded([self.values[code] for code in used.tolist()], codes.astype(np.int32))

    def used(self) -> list[H]:
        """Return the values that entries have."""
        return [self.values[code] for code in np.unique(self.codes).tolist()]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[H]:
        for start in range(0, len(self.codes), _AT_A_TIME):
            yield from map(self.values.__getitem__, self.codes[start : start + _AT_A_TIME].tolist())

    def _at(self, number: int) -> H:
        return self.values[self.codes[number]]
