"""How options are declared: what they accept, what help and docstrings say of them, and signatures that have them."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral
from typing import Any, TypeVar

from bagwise._utils.text import sources
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["Checked", "Choice", "IntegerRule", "NumberRule", "Option", "Rule", "Switch", "Text", "documented", "joined"]
__all__ += ["meaning_of", "option", "options_of", "takes_options"]

_T = TypeVar("_T")

MODEL, SOURCE, OUTPUT, RUN = "Model", "Source", "Output", "Run"  # headings in the help and in the documentation
_WIDTH = 112  # of docstrings


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
        """The type that the command line reads: bool, int, float, str or list[str]."""
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
class IntegerRule(Rule):
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
class NumberRule(Rule):
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
class Switch(Rule):
    """Accepts True and False; on the command line the names of both, as in ``--header/--no-header``."""

    @property
    def type(self) -> Any:
        """The type that the command line reads."""
        return bool

    @property
    def described(self) -> str:
        """The accepted values, in words."""
        return "bool"

    @property
    def schema(self) -> dict[str, Any]:
        """The accepted values as JSON Schema."""
        return {"type": "boolean"}

    def _checked(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise BagwiseError(f"{name} must be True or False, got {value!r:.100}.")
        return value


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


@dataclass(frozen=True)
class Option:
    """What is known of an option besides its type and default; see `option`."""

    names: tuple[str, ...]
    help: str
    rule: Rule
    unset: str
    details: str
    panel: str
    metavar: str | None
    modalities: tuple[str, ...]
    stage: str | None
    kept: bool
    common: bool
    config: str
    secret: bool


def option(
    default: Any,
    *names: str,
    help: str,
    rule: Rule,
    unset: str = "",
    details: str = "",
    panel: str = MODEL,
    metavar: str | None = None,
    modalities: tuple[str, ...] = (),
    stage: str | None = None,
    kept: bool = True,
    common: bool = False,
    config: str | None = None,
    secret: bool = False,
) -> Any:
    """Declare an option, as a field of a dataclass.

    Parameters
    ----------
    default : object
    *names : str
        Names on the command line, such as "--words" or "--header/--no-header"; none: an option of Python alone.
    help : str
        What the option does; with the other values and the default of the declaration it is the text of the help, of
        docstrings and of the documentation. In lower case it follows the modalities: "Texts: the longest …".
    rule : Rule
        What is accepted. None is accepted where it is the default.
    unset : str
        What the default means, if that is None or "auto".
    details : str
        More for docstrings and documentation.
    panel : str
        Heading in the help and in the documentation.
    metavar : str, default=None
    modalities : tuple of str
        Those that the option applies to; (): all.
    stage : {"read", "words", "groups"}, default=None
        "read": it says how a source is read. "words": how items are described by words. "groups": results of
        merging and cross-validation in a cache have its value in their keys. (Words and histograms have the parameters
        of their vectorizer in theirs.)
    kept : bool
        Whether a model keeps the value: not if it is about one machine or one run.
    common : bool
        Whether the short help of a command lists it.
    config : str, default=None
        Name in configuration files, if it is not that of the command line. Options of Python alone have none.
    secret : bool
        Whether the value may hold credentials, which are not shown, kept or passed on.
    """
    in_config = (names[0].removeprefix("--").partition("/")[0] if names else "") if config is None else config
    known = Option(
        names, help, rule, unset, details, panel, metavar, modalities, stage, kept, common, in_config, secret
    )
    return dataclasses.field(default=default, metadata={"option": known}, repr=not secret, hash=not secret)


def options_of(table: Any) -> dict[str, Option]:
    """Return the options that a table declares, by the names of their parameters."""
    return {one.name: one.metadata["option"] for one in fields(table)}


def joined(names: Sequence[str], last: str = "and") -> str:
    """Join names to a list in words.

    >>> joined(["images"]), joined(["images", "videos", "texts"])
    ('images', 'images, videos and texts')
    """
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def meaning_of(known: Option, default: Any, *, python: bool = False, details: bool = False) -> str:
    """Say what an option does, for help, docstrings and documentation.

    With `python`, as for a parameter of Python, whose default is told beside it.
    """
    about = f"{joined([sources(one) for one in known.modalities])}: " if known.help[0].islower() else ""
    parts = [f"{about[:1].upper()}{about[1:]}{known.help}"]
    parts += [f"{value}: {meaning}." for value, meaning in known.rule.also.items() if meaning]
    if known.unset:
        start = f'"{default}"' if isinstance(default, str) else default
        parts.append(f"{start if python else 'Default'}: {known.unset}.")
    elif default is not None and not python:
        parts.append(f"Default: {default:g}." if isinstance(default, float) else f"Default: {default}.")
    return " ".join([*parts, known.details] if details and known.details else parts)


def parameters_text(table: Any) -> str:
    """Return the section "Parameters" of a docstring, without its heading."""
    lines = []
    for one in fields(table):
        known = one.metadata["option"]
        default = f'"{one.default}"' if isinstance(one.default, str) else one.default
        lines.append(f"{one.name} : {known.rule.described}, default={default}")
        text = meaning_of(known, one.default, python=True, details=True)
        lines += textwrap.wrap(text, _WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join(lines)


def documented(thing: _T, table: Any) -> _T:
    """Put the options of a table into the docstring of a class or function."""
    if thing.__doc__:  # none with python -OO
        thing.__doc__ = inspect.cleandoc(thing.__doc__).replace("%(options)s", parameters_text(table))
    return thing


def takes_options(table: Any) -> Callable[[Callable[..., _T]], Callable[..., _T]]:
    """Show the options of a table in the signature and docstring of a function that takes them as ``**options``."""

    def decorate(function: Callable[..., _T]) -> Callable[..., _T]:
        signature = inspect.signature(function)
        parameters = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        named = [
            inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
            for one in fields(table)
        ]
        positional = [one for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        others = [one for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY]
        function.__signature__ = signature.replace(parameters=[*positional, *named, *others])  # type: ignore[attr-defined]
        return documented(function, table)

    return decorate
