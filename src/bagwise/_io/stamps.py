"""Telling whether a file is still what it was."""

from __future__ import annotations

import hashlib
import os

from bagwise.errors import BagwiseError

__all__ = ["content_stamp"]


def content_stamp(path: str | os.PathLike[str]) -> tuple[int, bytes] | None:
    """Return the size and a hash of all bytes of a file; None if there is none. Of a folder, they say nothing.

    Times and numbers of files do not tell: of two writers within a tick of the clock both have the same time, and a
    number is given again to the next file. A file that got other rights, or was copied back, is the same.

    Examples
    --------
    >>> content_stamp("there is no such file") is None
    True
    """
    try:
        if os.path.isdir(path):
            return 0, b""
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).digest()
            return file.tell(), digest
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BagwiseError(f"{os.fspath(path)} cannot be read: {error.strerror or error}.") from error
