"""Bytes to text, with errors that say where and what to do."""

from __future__ import annotations

import codecs

from bagwise.errors import BagwiseError

__all__ = ["check_encoding", "decode_text"]

_OTHER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def check_encoding(encoding: str | None) -> None:
    """Check that Python knows an encoding."""
    try:
        codecs.lookup(encoding or "utf-8")
    except (LookupError, TypeError) as error:
        raise BagwiseError(f"encoding={encoding!r} is not known. Use a name such as 'latin-1' or 'cp1252'.") from error


def decode_text(content: bytes, encoding: str | None, start: int = 0) -> str:
    """Decode text: UTF-8, with or without a byte-order mark, unless another encoding is named. Never guesses.

    `start` is where the bytes begin in their file: the mark is one only at its beginning, and errors name the byte.
    """
    likely = next((name for mark, name in _OTHER_MARKS if content.startswith(mark)), None)
    if encoding is None and start == 0 and likely:
        raise BagwiseError(f"it begins with the mark of {likely}. Pass encoding={likely!r}.")
    try:
        return content.decode(encoding or ("utf-8-sig" if start == 0 else "utf-8"))
    except UnicodeDecodeError as error:
        byte = error.object[error.start : error.start + 1].hex()
        # utf-8-sig counts from behind the mark
        skipped = len(content) - len(error.object)
        used = f"encoding={encoding!r}" if encoding else "UTF-8"
        raise BagwiseError(
            f"byte {start + skipped + error.start} (0x{byte}) is not {used}. "
            "Pass the right encoding=, such as 'cp1252', or 'latin-1', which takes any byte."
        ) from error
