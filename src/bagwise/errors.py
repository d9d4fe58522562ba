"""The library's exceptions, and the sentences they share."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["BagwiseError", "OptionError", "argument", "in_python", "named_by", "parameter_name"]
__all__ += ["unknown_name"]


class BagwiseError(ValueError):
    """Raised for input the library cannot use; says what came, what is accepted and what to do."""


class OptionError(BagwiseError):
    """Raised for a wrong parameter of `bagwise.fit_model` and its like.

    Attributes
    ----------
    parameter : str
        Name of the parameter. The command line replaces it in the message by the name of its option.
    """

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return OptionError, (self.parameter, str(self))


def unknown_name(kind: str, name: object, known: Iterable[str], also: str = "") -> BagwiseError:
    """Build the error for a name that is not in a table, suggesting the nearest one that is."""
    choices = sorted(known)
    nearest = difflib.get_close_matches(str(name).lower(), choices, n=1, cutoff=0.5)
    hint = f" Did you mean {nearest[0]!r}?" if nearest else ""
    also = f", or {also}" if also else ""
    return BagwiseError(f"Unknown {kind}: {name!r}.{hint} Accepted: {', '.join(map(repr, choices))}{also}.")


# Names a parameter in messages as something else than an argument of Python; set by `named_by`.
_named: Callable[[str], str] | None = None
_NO_VALUE: Any = object()


def argument(name: str, value: object = _NO_VALUE) -> str:
    """Write a parameter, with or without a value, into a message: as an argument, or as `named_by` says.

    Only for parameters that the command line has an option for; see `in_python` for others.

    >>> f"Choose a column by {argument('label')}, such as {argument('label', 'kind')}."
    "Choose a column by label=, such as label='kind'."
    >>> with named_by("--{}".format):
    ...     f"Choose a column by {argument('label')}, such as {argument('label', 'kind')}."
    "Choose a column by --label, such as --label 'kind'."
    """
    shown = "" if value is _NO_VALUE else repr(value)
    if _named is None:
        return f"{name}={shown}"
    return f"{_named(name)} {shown}".rstrip()


def parameter_name(name: str) -> str:
    """Return the name of a parameter for a message: as it is, or as `named_by` says.

    >>> f"{parameter_name('n_groups')} must be at least 1."
    'n_groups must be at least 1.'
    """
    return name if _named is None else _named(name)


def in_python(text: str, otherwise: str = "") -> str:
    """Write advice that only helps callers in Python into a message: `otherwise` where `named_by` is in effect.

    >>> in_python("Pass a larger limit.")
    'Pass a larger limit.'
    """
    return text if _named is None else otherwise


@contextmanager
def named_by(option: Callable[[str], str]) -> Iterator[None]:
    """Let all messages of this process name parameters by `option`, such as ``--label`` for ``label``.

    For the command line. Not for one thread alone: items are read by several.
    """
    global _named
    before, _named = _named, option
    try:
        yield
    finally:
        _named = before
