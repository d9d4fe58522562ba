"""One thing of a collection: where its bytes are, and how they become an array or a text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from bagwise.errors import BagwiseError

__all__ = ["Content", "Decoder", "Item", "ItemError"]

_HASHED_BYTES = 1 << 20


class ItemError(BagwiseError):
    """Raised when one item cannot be read.

    Attributes
    ----------
    id : str
        The item's id.
    reason : str
        What is wrong with it.
    """

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(f"Cannot read {id!r}: {reason}")
        self.id = id
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return ItemError, (self.id, self.reason)


class Content(Protocol):
    """Where the bytes of an item are. Can be hashed and pickled, and used by several threads at once."""

    def __hash__(self) -> int: ...

    @property
    def source(self) -> str:
        """The place, for people: a path, or ``archive.zip!member``."""

    def open(self) -> BinaryIO:
        """Open the bytes for reading."""


class Decoder(Protocol):
    """How the bytes of an item become what `Item.load` gives. A frozen dataclass: its repr says all its options."""

    def decode(self, content: Content) -> Any:
        """Give the array, the text or the frames, or raise BagwiseError or OSError."""


@dataclass(frozen=True, repr=False, slots=True)
class Item:
    """One image, text, video or row of a collection, read when it is asked for.

    Items are made by `open_collection`. They are small, cannot be changed, can be sent to other processes, and can be
    loaded by several threads at once.

    Attributes
    ----------
    id : str
        Unique in its collection: the path below the folder or in the archive, with ``/`` between folders; for records
        of a file its id column, or the file's name and the record's number.
    labels : tuple of str
        The classes of the item: none, one, or several.
    split : str or None
        The part of the collection it belongs to, such as ``"train"``.
    content : Content
        Where the bytes are.
    decoder : Decoder
        How the bytes are read.
    """

    id: str
    content: Content
    decoder: Decoder
    labels: tuple[str, ...] = ()
    split: str | None = None

    @property
    def label(self) -> str | None:
        """The class of the item, or None if it has no label. An error if it has several: use `labels` then."""
        if len(self.labels) > 1:
            raise BagwiseError(f"Item {self.id!r} has {len(self.labels)} labels, {self.labels}. Use .labels for all.")
        return self.labels[0] if self.labels else None

    @property
    def source(self) -> str:
        """The place it is read from, for people: a path, or ``archive.zip!member``."""
        return self.content.source

    def load(self) -> Any:
        """Read the item.

        Returns
        -------
        content : ndarray or str
            An image: uint8 of shape (height, width), or (height, width, 3) in RGB. A text: str. A video: uint8 of shape
            (frames, height, width) or (frames, height, width, 3). A row of a table: that row.

        Raises
        ------
        ItemError
            If it cannot be read; it tells the id and the reason.
        """
        try:
            return self.decoder.decode(self.content)
        except ItemError:
            raise
        except (BagwiseError, OSError) as error:
            raise ItemError(self.id, _reason(error)) from error

    def fingerprint(self) -> str:
        """Hash the item's bytes and the options they are read with, for caches of what was computed from it.

        Two items have the same fingerprint if and only if (up to chance, 2⁻¹²⁸) `load` gives the same. It does not
        matter where they are: a file and its copy in an archive have the same one. The bytes are read (but not
        decoded) each time, so that a file that was changed is noticed.

        Returns
        -------
        fingerprint : str
            32 hexadecimal digits.
        """
        digest = hashlib.blake2b(repr(self.decoder).encode(), digest_size=16)
        try:
            with self.content.open() as file:
                while piece := file.read(_HASHED_BYTES):
                    digest.update(piece)
        except (BagwiseError, OSError) as error:
            raise ItemError(self.id, _reason(error)) from error
        return digest.hexdigest()

    def __repr__(self) -> str:
        labels = f" labelled {', '.join(self.labels)}" if self.labels else ""
        split = f" in {self.split}" if self.split else ""
        return f"<Item {self.id!r}{labels}{split}>"


def _reason(error: Exception) -> str:
    # the text of system errors repeats the path, which the reader knows already
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
