"""Going through texts, of a collection or a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bagwise.descriptors.contents import things_of
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Skipped, check_on_error, report_skipped
from bagwise.sources.items import ItemError

__all__ = ["as_text", "load_texts"]


def as_text(content: Any) -> str:
    """Check that something is a text."""
    if isinstance(content, str):
        return content
    hint = " Decode it first: text.decode('utf-8')." if isinstance(content, (bytes, bytearray)) else ""
    raise BagwiseError(f"A text must be a str, got {type(content).__name__}.{hint}")


def load_texts(given: Any, on_error: str = "raise") -> Iterator[str]:
    """Give one text after the other.

    Parameters
    ----------
    given : Collection of texts, or iterable of str
        At least one.
    on_error : {"raise", "skip"}, default="raise"
        What to do with what cannot be read or is no text: stop with an `ItemError`, or leave it out and warn.
    """
    things, source = things_of(given, "texts")
    return _load(things, source, check_on_error(on_error) == "skip")


def _load(things: Any, source: str, skip: bool) -> Iterator[str]:
    skipped = []
    for thing in things:
        try:
            text = as_text(thing.load())
        except BagwiseError as error:
            wrong = error if isinstance(error, ItemError) else ItemError(thing.id, str(error))
            if not skip:
                raise wrong from error.__cause__
            skipped.append(Skipped(wrong.id, wrong.reason))
        else:
            yield text
    report_skipped(skipped, len(things), source, stacklevel=4)
