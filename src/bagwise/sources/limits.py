"""Limits of what readers accept. Files may be damaged or made to do harm: what is beyond a limit is refused."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, BinaryIO

from bagwise._utils.memory import parse_size, readable_size, resolve_limit
from bagwise.errors import BagwiseError, in_python, parameter_name, unknown_name

__all__ = ["Deadline", "Limits", "as_limits"]

# Bytes that are read before the clock is looked at again.
_PART = 1 << 20
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Limits:
    """Limits of what is read from a source; whatever exceeds one is refused. The defaults accept ordinary data sets.

    All readers of `open_collection` obey them. Where possible, what a file says about itself is compared with the
    limits, and with its size, before memory is taken.

    Parameters
    ----------
    members : int, default=1_000_000
        Number of files of an archive.
    member_bytes : int, default=1 GiB
        Size of one file of an archive, or of a sheet of an Excel file, after decompression.
    total_bytes : int, default=64 GiB
        Size of all files of an archive after decompression.
    ratio : float, default=200
        Decompressed over compressed size, of files of archives above 1 MiB and of whole archives.
    header_bytes : int, default=1 MiB
        Size of the name and the attributes of one file of a tar archive.
    rows : int, default=10_000_000
        Number of rows of a table or of a file of labels, and of records of a source.
    columns : int, default=10_000_000
        Number of columns of a table or of a file of records.
    table_bytes : int, default=None
        Memory of the numbers and strings of a table or of a file of labels, and the size of their files. None: 80 % of
        the free memory.
    text_bytes : int, default=64 MiB
        Size of a text, or of a record of a file, whose lines count for 64 bytes each at least if they are many.
    label_length : int, default=1000
        Number of characters of a label.
    pixels : int, default=64_000_000
        Number of pixels of an image. Larger images are refused before they are decoded. (Pillow has a limit of its own
        at 178 million.)
    decode_bytes : int, default=2 GiB
        Memory of the images that a process decodes at a time, as their headers say: further ones wait, and one that
        takes more by itself is refused. At most 80 % of the free memory unless it is changed.
    video_bytes : int, default=2 GiB
        Memory of the frames of a video that are used.
    seconds : float, default=300
        Time to read and decode one item, or an ``.h5ad`` file. Videos and ``.h5ad`` files are given up when it is over.
        For other files it is checked whenever a decoder reads the next part of a file: what it does with a part that it
        has is not interrupted.

    Examples
    --------
    >>> from bagwise.sources import Limits
    >>> Limits(pixels=200_000_000).pixels
    200000000
    """

    members: int = 1_000_000
    member_bytes: int = 1 << 30
    total_bytes: int = 1 << 36
    ratio: float = 200.0
    header_bytes: int = 1 << 20
    rows: int = 10_000_000
    columns: int = 10_000_000
    table_bytes: int | None = None
    text_bytes: int = 1 << 26
    label_length: int = 1000
    pixels: int = 64_000_000
    decode_bytes: int = 1 << 31
    video_bytes: int = 1 << 31
    seconds: float = 300.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if isinstance(value, str):
                value = _number(field.name, value)
                object.__setattr__(self, field.name, value)
            whole = field.name not in ("ratio", "seconds")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST:
                raise BagwiseError(f"The limit {field.name} must be a number above 0, up to 2^62, got {value!r:.50}.")
            if whole and value != int(value):
                raise BagwiseError(f"The limit {field.name} must be a whole number, got {value!r}.")
            if whole:
                object.__setattr__(self, field.name, int(value))

    def changed(self) -> dict[str, Any]:
        """Return the limits that are not the defaults, by name."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    def check(self, name: str, value: float, what: str) -> None:
        """Raise an error if what was found exceeds a limit; `what` says what it is: "it claims 10 rows"."""
        most = self.most(name)
        if most is not None and value > most:
            raise self.exceeded(name, what)

    def most(self, name: str) -> float | None:
        """Return the value of a limit; that of `table_bytes` may depend on the free memory, or be unknown (None)."""
        if name == "decode_bytes" and self.decode_bytes == Limits.decode_bytes:
            return min(self.decode_bytes, resolve_limit(None) or self.decode_bytes)
        return resolve_limit(self.table_bytes) if name == "table_bytes" else getattr(self, name)

    def exceeded(self, name: str, what: str) -> BagwiseError:
        """Build the error for what exceeds a limit."""
        most = self.most(name)
        assert most is not None
        shown = readable_size(most) if name.endswith("bytes") else f"{most:,.15g}"
        if (name == "table_bytes" and self.table_bytes is None) or (
            name == "decode_bytes" and most < self.decode_bytes
        ):
            shown += " (80 % of the free memory)"
        advice = in_python(f"limits=Limits({name}=...)", f"{parameter_name('limits')} {name}=NUMBER")
        return BagwiseError(f"{what}, the limit {name} is {shown}. If you trust it, raise the limit by {advice}.")


def _number(name: str, value: str) -> float:
    """Return the number that a text says; sizes may have units."""
    try:
        return parse_size(value) if name.endswith("bytes") else float(value)
    except ValueError as error:
        accepted = "a number, or a size such as 2GB" if name.endswith("bytes") else "a number"
        raise BagwiseError(f"The limit {name} must be {accepted}, got {value!r}.") from error


def as_limits(limits: Limits | Mapping[str, Any] | Iterable[str] | None) -> Limits:
    """Return limits that are given as such, by a mapping, or by texts ``name=value``; None: the defaults.

    >>> as_limits(["rows=100", "table_bytes=2GB"]).table_bytes
    2000000000
    """
    if isinstance(limits, Limits):
        return limits
    if limits is None:
        return Limits()
    known = [field.name for field in fields(Limits)]
    if not isinstance(limits, Mapping):
        texts = list(limits) if isinstance(limits, Iterable) and not isinstance(limits, str) else [limits]
        wrong = next((text for text in texts if not isinstance(text, str) or "=" not in text), None)
        if wrong is not None:
            raise BagwiseError(f"A limit is given as name=value, such as rows={Limits.rows}; got {wrong!r}.")
        limits = dict(text.split("=", 1) for text in texts)
    named: dict[str, Any] = {str(name).strip().replace("-", "_"): value for name, value in limits.items()}
    for name in named:
        if name not in known:
            raise unknown_name(parameter_name("limits"), name, known)
    return Limits(**named)


class Deadline:
    """The time that an item may take: begins when it is made."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._end = time.monotonic() + limits.seconds

    def extend(self, seconds: float) -> None:
        """Add time that was spent in waiting for others."""
        self._end += seconds

    def check(self) -> None:
        """Raise an error if the time is over."""
        if time.monotonic() > self._end:
            raise self._limits.exceeded("seconds", "it takes longer to read")


class _TimedFile(io.RawIOBase):
    """A file that is read until a deadline."""

    def __init__(self, file: BinaryIO, deadline: Deadline) -> None:
        super().__init__()
        self._file, self._deadline = file, deadline

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._file.seekable()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any, /) -> int:
        """Read at most 1 MiB, or raise an error if the time is over."""
        self._deadline.check()
        part = self._file.read(min(len(buffer), _PART))
        buffer[: len(part)] = part
        return len(part)


class _TimedReader(io.BufferedReader):
    """Reads in parts what decoders ask for, which takes as much memory as there is to read, whatever a file claims."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size <= _PART:
            return super().read(size)
        pieces = []
        while size and (piece := super().read(min(size, _PART))):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def timed(file: BinaryIO, deadline: Deadline) -> BinaryIO:
    """Return a file for decoders, which may be read until a deadline."""
    return _TimedReader(_TimedFile(file, deadline))


def read_timed(file: BinaryIO, deadline: Deadline, most: int) -> bytes:
    """Read a file to its end, or to this number of bytes, or raise an error if the time is over."""
    pieces = []
    while most and (piece := file.read(min(_PART, most))):
        deadline.check()
        pieces.append(piece)
        most -= len(piece)
    return b"".join(pieces)


def check_size(path: str | os.PathLike[str], limits: Limits) -> None:
    """Raise an error if a file that is read as a whole is larger than the limit."""
    n_bytes = os.path.getsize(path)
    limits.check("table_bytes", n_bytes, f"it has {readable_size(n_bytes)}")
