"""The library's exceptions, and the sentences they share."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["BagwiseError", "OptionError", "unknown_name"]


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
