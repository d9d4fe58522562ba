"""Texts of a collection or a list."""

from __future__ import annotations

from typing import Any

from bagwise.errors import BagwiseError
from bagwise.sources.collection import as_items
from bagwise.sources.items import ItemIterator, item_errors

__all__ = ["as_text", "load_texts"]


def as_text(content: Any) -> str:
    """Raise an error unless `content` is a str."""
    if isinstance(content, str):
        return content
    hint = " Decode it first: text.decode('utf-8')." if isinstance(content, (bytes, bytearray)) else ""
    raise BagwiseError(f"A text must be a str, got {type(content).__name__}.{hint}")


def load_texts(given: Any, on_error: str = "raise") -> ItemIterator:
    """Iterate over texts.

    Parameters
    ----------
    given : Collection of texts, or iterable of str
        At least one.
    on_error : {"raise", "skip"}, default="raise"
        Whether an item that cannot be read or is not a text raises an `ItemError`, or is skipped with a warning.

    Returns
    -------
    iterator : ItemIterator
        Over str.
    """
    items, source = as_items(given, "texts")
    return ItemIterator(items, _text_of, source, on_error=on_error)


def _text_of(item: Any) -> str:
    with item_errors(item.id):
        return as_text(item.load())
