"""Checks of what is put into a report: each gives the value in its plain form, or says what was wrong with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from bagwise.errors import BagwiseError

_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
T = TypeVar("T")
# mappings are taken as well, and kept as tuples
Pairs = Sequence[tuple[str, Any]]


class Frozen:
    """Lets `__post_init__` of a frozen dataclass put values into their plain form."""

    def _keep(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)


def text(value: Any, name: str) -> str:
    """Take a text; names of classes that are numbers become texts."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Integral | Real):
        return str(value)
    raise BagwiseError(f"{name} must be a text, got {_shown(value)}. Convert it with str().")


def optional_text(value: Any, name: str) -> str | None:
    """Take a text or None."""
    return None if value is None else text(value, name)


def finite(value: Any, name: str, lowest: float | None = None) -> float:
    """Take a number that is neither NaN nor infinite, and not below `lowest`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise BagwiseError(f"{name} must be a number, got {_shown(value)}.")
    if not math.isfinite(value):
        raise BagwiseError(f"{name} must be finite, got {value}. Leave out what was not measured.")
    if lowest is not None and value < lowest:
        raise BagwiseError(f"{name} must be at least {lowest:g}, got {value}.")
    return float(value)


def fraction(value: Any, name: str) -> float:
    """Take a number from 0 to 1."""
    number = finite(value, name)
    if not 0 <= number <= 1:
        raise BagwiseError(f"{name} must be from 0 to 1, got {number:g}. Percentages are to be divided by 100.")
    return number


def numbers(values: Any, name: str, length: int | None = None, lowest: float | None = None) -> tuple[float, ...]:
    """Take a sequence of finite numbers, `length` of them if that is given."""
    found = tuple(finite(value, f"{name}[{i}]", lowest) for i, value in enumerate(_items(values, name)))
    if length is not None and len(found) != length:
        raise BagwiseError(f"{name} must have {length} values, one for each size; got {len(found)}.")
    return found


def increasing(values: Any, name: str) -> tuple[int, ...]:
    """Take whole numbers from 1 on, each larger than the one before."""
    found: list[int] = []
    for i, value in enumerate(_items(values, name)):
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise BagwiseError(f"{name}[{i}] must be an integer of at least 1, got {_shown(value)}.")
        if found and value <= found[-1]:
            raise BagwiseError(f"{name} must increase, but {value} follows {found[-1]}. Sort them, each size once.")
        found.append(int(value))
    return tuple(found)


def entries(values: Any, name: str, kinds: Sequence[str]) -> tuple[tuple[Any, ...], ...]:
    """Take a sequence of tuples with as many members as `kinds` has names; a mapping gives its pairs."""
    found = []
    for i, entry in enumerate(_items(values.items() if hasattr(values, "items") else values, name)):
        if isinstance(entry, str | bytes) or not isinstance(entry, Sequence) or len(entry) != len(kinds):
            raise BagwiseError(f"{name}[{i}] must be ({', '.join(kinds)}), got {_shown(entry)}.")
        found.append(tuple(entry))
    return tuple(found)


def objects(values: Any, name: str, kind: type[T]) -> tuple[T, ...]:
    """Take a sequence of objects of one class."""
    found = tuple(_items(values, name))
    for i, value in enumerate(found):
        if not isinstance(value, kind):
            raise BagwiseError(f"{name}[{i}] must be a {kind.__name__}, got {_shown(value)}.")
    return found


def picture(value: Any, name: str) -> bytes:
    """Take the bytes of a PNG or JPEG file."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise BagwiseError(f"{name} must be the bytes of a PNG or JPEG file, got {_shown(value)}. See thumbnail().")
    content = bytes(value)
    picture_type(content, name)
    return content


def pictures(values: Any, name: str) -> tuple[bytes, ...]:
    """Take a sequence of PNG or JPEG files."""
    return tuple(picture(value, f"{name}[{i}]") for i, value in enumerate(_items(values, name)))


def picture_type(content: bytes, name: str) -> str:
    """Media type of a picture, by its first bytes."""
    for start, media_type in _PICTURES.items():
        if content.startswith(start):
            return media_type
    raise BagwiseError(
        f"{name} must be a PNG or JPEG file, but begins with {content[:8]!r}. Make one of arrays and other files with "
        "bagwise.report.thumbnail()."
    )


def texts(values: Any, name: str) -> tuple[str, ...]:
    """Take a sequence of texts."""
    return tuple(text(value, f"{name}[{i}]") for i, value in enumerate(_items(values, name)))


def names(values: Any, name: str) -> tuple[str, ...]:
    """Take texts that are all different."""
    found = texts(values, name)
    if len(set(found)) < len(found):
        twice = Counter(found).most_common(1)[0][0]
        raise BagwiseError(f"{name} must have different names, but {twice!r} is there twice. Add up what is the same.")
    return found


def facts(values: Any) -> tuple[tuple[str, str | int | float | bool], ...]:
    """Take names with texts, numbers or truth values."""
    found = []
    for i, (name, value) in enumerate(entries(values, "facts", ("name", "value"))):
        plain = value.item() if isinstance(value, np.generic) else value
        if not isinstance(plain, str | bool | int | float) or (isinstance(plain, float) and not math.isfinite(plain)):
            raise BagwiseError(
                f"The fact {name!r} must be a text or a finite number, got {_shown(value)}. Write it out as a text, or "
                "leave it out."
            )
        found.append((text(name, f"facts[{i}][0]"), plain))
    return tuple(found)


def pairs_of_numbers(
    values: Any, name: str, kinds: tuple[str, str], lowest: float | None = None
) -> tuple[tuple[str, float], ...]:
    """Take texts with numbers."""
    return tuple(
        (text(first, f"{name}[{i}][0]"), finite(second, f"{name}[{i}][1]", lowest))
        for i, (first, second) in enumerate(entries(values, name, kinds))
    )


def pairs_of_texts(values: Any, name: str) -> tuple[tuple[str, str], ...]:
    """Take texts with texts."""
    return tuple(
        (text(first, f"{name}[{i}][0]"), text(second, f"{name}[{i}][1]"))
        for i, (first, second) in enumerate(entries(values, name, ("name", "text")))
    )


def errors_at(sizes: Sequence[int], errors: Any, standard_errors: Any, place: str = "") -> tuple[Any, Any]:
    """Take shares of wrong answers, one for each size, and their standard errors, as many or none."""
    shares = numbers(errors, f"{place}errors", len(sizes))
    for i, share in enumerate(shares):
        fraction(share, f"{place}errors[{i}]")
    spreads = numbers(standard_errors, f"{place}standard_errors", lowest=0)
    if spreads and len(spreads) != len(sizes):
        raise BagwiseError(f"{place}standard_errors must be empty or have {len(sizes)} values, got {len(spreads)}.")
    return shares, spreads


def _items(values: Any, name: str) -> Iterable[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise BagwiseError(f"{name} must be a sequence, got {_shown(values)}.")
    return values


def _shown(value: Any) -> str:
    shown = repr(value)
    return f"{shown[:60]}… of type {type(value).__name__}" if len(shown) > 60 else shown
