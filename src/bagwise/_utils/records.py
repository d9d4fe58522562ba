"""Records of parameters, such as descriptors and encoders: declared once with the rules of their values.

A record has the methods of scikit-learn's estimators that tell and set parameters, without importing scikit-learn:
models that answer one question have no use for it.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Self

from bagwise.errors import BagwiseError, unknown_name

__all__ = ["Integer", "Number", "Numbers", "OneOf", "Record", "Such", "parameter", "plain"]

# Limits, so that a hostile file cannot ask for all memory: numbers, and lengths of lists.
LARGEST = 1000
LONGEST = 64
_LARGEST_COUNT = 2**31 - 1


@dataclass(frozen=True)
class Integer:
    """An integer from `least` to `most`, or None where that is `optional`."""

    least: int
    most: int = _LARGEST_COUNT
    optional: bool = False

    def accepts(self, value: Any) -> bool:
        """Whether a plain value obeys the rule; see `plain`."""
        return (value is None and self.optional) or (
            isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most
        )

    def __str__(self) -> str:
        return f"an integer from {self.least} to {self.most}" + (" or None" if self.optional else "")


@dataclass(frozen=True)
class Number:
    """A finite number of at least 0 (or above), up to `most`."""

    above_zero: bool = False
    most: float = LARGEST

    def accepts(self, value: Any) -> bool:
        """Whether a plain value obeys the rule."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        return (value > 0 if self.above_zero else value >= 0) and value <= self.most and math.isfinite(value)

    def __str__(self) -> str:
        return f"a number {'above' if self.above_zero else 'of at least'} 0, up to {self.most:g}"


@dataclass(frozen=True)
class Numbers:
    """A list of 1 to 64 numbers above 0."""

    def accepts(self, value: Any) -> bool:
        """Whether a plain value obeys the rule."""
        return isinstance(value, list) and 0 < len(value) <= LONGEST and all(Number(True).accepts(x) for x in value)

    def __str__(self) -> str:
        return f"a list of 1 to {LONGEST} numbers above 0, up to {LARGEST}"


class OneOf:
    """One of some values."""

    def __init__(self, *choices: Any) -> None:
        self.choices = choices

    def accepts(self, value: Any) -> bool:
        """Whether a plain value obeys the rule."""
        # 1 == True, so the types must agree as well
        return any(value == choice and type(value) is type(choice) for choice in self.choices)

    def __str__(self) -> str:
        return "one of " + ", ".join(map(repr, self.choices))


@dataclass(frozen=True)
class Such:
    """What a function accepts, which `text` says in words."""

    accepts: Callable[[Any], bool]
    text: str

    def __str__(self) -> str:
        return self.text


def parameter(default: Any, rule: Any) -> Any:
    """Declare a parameter of a `Record`: its default and the rule of its values."""
    return dataclasses.field(default=default, metadata={"rule": rule})


def plain(value: Any) -> Any:
    """Return a parameter as a JSON value, if it is one: numbers and arrays of NumPy, tuples. Others stay as they are.

    >>> plain((1, 2.5)), plain(range(2))
    ([1, 2.5], [0, 1])
    """
    if isinstance(value, (bool, str)) or value is None:
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    return [plain(entry) for entry in value] if isinstance(value, Sequence) else value


class Record:
    """Base of dataclasses whose fields are parameters. A subclass with an ``__init__`` of its own has no rules."""

    @classmethod
    def rules(cls) -> Mapping[str, Any]:
        """Return the rule of each parameter that has one."""
        fields = cls.__dataclass_fields__.values() if hasattr(cls, "__dataclass_fields__") else ()
        return {field.name: field.metadata["rule"] for field in fields if "rule" in field.metadata}

    def check(self) -> None:
        """Raise BagwiseError unless all parameters obey their rules."""
        values = self.get_params(deep=False)
        for name, rule in self.rules().items():
            if name in values and not rule.accepts(plain(values[name])):
                raise BagwiseError(f"{name} of {type(self).__name__} must be {rule}; got {values[name]!r:.100}.")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool, default=True
            Whether to return those of parameters that have some as well, as ``name__parameter``.

        Returns
        -------
        parameters : dict
        """
        values = {name: getattr(self, name) for name in list(inspect.signature(type(self).__init__).parameters)[1:]}
        parts = ((name, value) for name, value in values.items() if deep and hasattr(value, "get_params"))
        return values | {f"{name}__{part}": value for name, one in parts for part, value in one.get_params().items()}

    def set_params(self, **parameters: Any) -> Self:
        """Change parameters.

        Parameters
        ----------
        **parameters
            Those of parameters as ``name__parameter``.

        Returns
        -------
        self
        """
        known = self.get_params(deep=False)
        for name, value in parameters.items():
            first, _, inner = name.partition("__")
            if first not in known:
                raise unknown_name(f"parameter of {type(self).__name__}", first, known)
            if inner:
                getattr(self, first).set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        changed = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if repr(value) != repr(defaults[name].default)
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"
