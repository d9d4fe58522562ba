"""Collections of texts, one file each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bagwise.sources.archives import ArchiveLimits
from bagwise.sources.collection import Collection
from bagwise.sources.decoding import check_encoding, decode_text
from bagwise.sources.items import Content
from bagwise.sources.places import chosen_endings, collect

__all__ = ["TEXT_ENDINGS", "TextDecoder", "open_texts"]

TEXT_ENDINGS = frozenset([".txt", ".text"])


def open_texts(
    path: str | os.PathLike[str],
    *,
    encoding: str | None = None,
    labels: Any = "folders",
    splits: Any = "folders",
    extensions: Iterable[str] | str | None = None,
    limits: ArchiveLimits | None = None,
) -> Collection:
    """Open the texts of a folder or an archive, one file a text. Empty texts are fine.

    Parameters
    ----------
    path : path
        Folder, zip or tar archive, or one text.
    encoding : str, default=None
        Encoding of the texts. None is UTF-8, with or without a byte-order mark; a text that is not is an error which
        names the byte. Nothing is guessed: for older texts pass ``"cp1252"``, or ``"latin-1"``, which takes any byte.
    labels : "folders", None, mapping or path, default="folders"
        The class of a text is the name of its folder; or there are no labels; or they are given, see
        `Collection.with_labels`.
    splits : "folders", None, mapping or path, default="folders"
        The same for parts of the collection: outermost folders named train and test, or see `Collection.with_splits`.
    extensions : iterable of str or "*", default=None
        Endings of the files that are texts, by default ``.txt`` and ``.text``. ``"*"``: all files.
    limits : ArchiveLimits, default=None
        What archives may hold.

    Returns
    -------
    collection : Collection
        Its items' `load` gives str, with line ends as in the file.
    """
    check_encoding(encoding)
    endings = chosen_endings(extensions, TEXT_ENDINGS)
    return collect(path, "texts", TextDecoder(encoding), endings, labels=labels, splits=splits, limits=limits)


@dataclass(frozen=True)
class TextDecoder:
    """Decodes a whole file to text."""

    encoding: str | None = None

    def decode(self, content: Content) -> str:
        """Give the text."""
        with content.open() as file:
            return decode_text(file.read(), self.encoding)
