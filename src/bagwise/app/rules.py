"""What an option accepts: small objects that check values, and say in help and docstrings what is accepted."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from bagwise.errors import BagwiseError, unknown_name

__all__ = ["Checked", "Choice", "Integer", "Number", "Rule", "Text"]


@dataclass(frozen=True)
class Rule:
    """Accepts everything; the base of the other rules.

    Parameters
    ----------
    also : mapping
        Values that are accepted besides those of the rule, and what they mean; "" where that needs no words.
    """

    also: Mapping[Any, str] = field(default_factory=dict, kw_only=True)

    @property
    def type(self) -> Any:
        """The type that the command line reads: int, float, str or list[str]."""
        return str

    @property
    def described(self) -> str:
        """The accepted values, as the type of a parameter in a docstring."""
        return "str"

    @property
    def schema(self) -> dict[str, Any]:
        """The accepted values as JSON Schema."""
        return {"type": {int: "integer", float: "number"}.get(self.type, "string")}

    def checked(self, name: str, value: Any) -> Any:
        """Return a value as it is kept; raise a BagwiseError, which calls it `name`, if it is not accepted."""
        return value if self._is_also(value) else self._checked(name, value)

    def parsed(self, text: Any) -> Any:
        """Return the value that is meant by an argument of the command line."""
        return text

    def _checked(self, name: str, value: Any) -> Any:
        return value

    def _is_also(self, value: Any) -> bool:
        plain = isinstance(value, (str, Integral)) and not isinstance(value, bool)
        return plain and value in self.also

    def _also_words(self) -> str:
        """The other values, for the end of a sentence on what is accepted."""
        said = [f"{_quoted(one)} ({meaning})" if meaning else _quoted(one) for one, meaning in self.also.items()]
        return f", or {', '.join(said)}" if said else ""


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


@dataclass(frozen=True)
class Integer(Rule):
    """Accepts integers of at least `least`, and at most `most`."""

    least: int
    most: int | None = None

    @property
    def type(self) -> Any:
        """The type that the command line reads."""
        return str if any(isinstance(one, str) for one in self.also) else int

    @property
    def described(self) -> str:
        """The accepted values, in words."""
        return " or ".join(["int", *(_quoted(one) for one in self.also if isinstance(one, str))])

    @property
    def schema(self) -> dict[str, Any]:
        """The accepted values as JSON Schema."""
        return {"type": "integer"} if self.type is int else {"type": ["integer", "string"]}

    def parsed(self, text: Any) -> Any:
        """Return a number, or the text if it is none."""
        is_number = isinstance(text, str) and text.removeprefix("-").isdecimal()
        return int(text) if is_number else text

    def _checked(self, name: str, value: Any) -> int:
        from bagwise._utils.checks import check_integer  # deferred: it imports NumPy, which help does without

        return check_integer(value, name, self.least, self.most, also=self._also_words())


@dataclass(frozen=True)
class Number(Rule):
    """Accepts finite numbers above a bound."""

    above: float

    @property
    def type(self) -> Any:
        """The type that the command line reads."""
        return float

    @property
    def described(self) -> str:
        """The accepted values, in words."""
        return "float"

    def _checked(self, name: str, value: Any) -> Any:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not self.above < value <= sys.float_info.max:
            raise BagwiseError(f"{name} must be a finite number above {self.above:g}, got {value!r:.100}.")
        return value


@dataclass(frozen=True)
class Choice(Rule):
    """Accepts some names; a function returns them where their list takes long to import."""

    names: tuple[str, ...] | Callable[[], tuple[str, ...]]

    @property
    def described(self) -> str:
        """The accepted values, in words."""
        if callable(self.names):
            return "str"
        return f"{{{', '.join(map(_quoted, [*self.also, *self.names]))}}}"

    def _checked(self, name: str, value: Any) -> Any:
        names = self.names() if callable(self.names) else self.names
        if value not in names:
            raise unknown_name(name, value, (*(one for one in self.also if one is not None), *names))
        return value


@dataclass(frozen=True)
class Text(Rule):
    """Accepts texts and paths; a list of them is joined by `sep`, if that is given."""

    sep: str | None = None

    @property
    def described(self) -> str:
        """The accepted values, in words."""
        return "str" if self.sep is None else "str or list of str"

    def _checked(self, name: str, value: Any) -> Any:
        if self.sep is not None and isinstance(value, (list, tuple)):
            return self.sep.join(map(str, value))
        return os.fspath(value) if isinstance(value, os.PathLike) else value


@dataclass(frozen=True)
class Checked(Rule):
    """Accepts what a function accepts: it returns the value to keep, or raises a BagwiseError."""

    function: Callable[[Any], Any]
    accepted: str
    read_as: Any = str

    @property
    def type(self) -> Any:
        """The type that the command line reads."""
        return self.read_as

    @property
    def described(self) -> str:
        """The accepted values, in words."""
        return self.accepted

    def _checked(self, name: str, value: Any) -> Any:
        return self.function(value)
