"""Bytes of files: of this machine, or by URL."""

from __future__ import annotations

import functools
import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

from bagwise._io.storage import Url, as_place, redacted, storage_errors
from bagwise._utils.memory import readable_size
from bagwise._utils.threads import cached_once
from bagwise.errors import BagwiseError
from bagwise.sources.limits import Limits

__all__ = ["File", "FileContent", "UrlContent", "as_file", "local_copy", "version_of"]

# Files by URL of at most this size are read by one request.
_AT_ONCE = 1 << 25
# Parts of larger files that are read, and kept, at a time: records and files of archives that follow each other are in
# one of them.
_BLOCK, _KEPT = 1 << 22, 16
# Attributes by which file systems tell versions of a file.
_VERSIONS = ("ETag", "etag", "md5Hash", "version_id", "LastModified", "mtime", "last_modified", "created")


@dataclass(frozen=True, slots=True)
class FileContent:
    """The bytes of a file."""

    path: str

    @property
    def source(self) -> str:
        """The path."""
        return self.path

    def open(self) -> BinaryIO:
        """Open the file."""
        return open(self.path, "rb")

    def read(self, offset: int, size: int) -> bytes:
        """Read a part of the file; fewer bytes at its end."""
        with self.open() as file:
            file.seek(offset)
            return file.read(min(size, max(0, os.fstat(file.fileno()).st_size - offset)))  # takes memory for `size`

    def stamp(self) -> tuple[Any, ...]:
        """Return size and modification time, to notice that the file was changed."""
        status = os.stat(self.path)
        return status.st_size, status.st_mtime_ns

    def check(self, stamp: tuple[Any, ...] | None) -> None:
        """Raise an error if the file was changed."""
        if self.stamp() != stamp:
            raise changed(self.path)


@dataclass(frozen=True, slots=True)
class UrlContent:
    """The bytes of a file by URL: `path` is that in the file system of `place`, None if it is that of the URL."""

    base: Url
    path: str | None = None
    size: int | None = None
    version: str | None = None

    @classmethod
    def listed(cls, base: Url, path: str, about: dict[str, Any]) -> UrlContent:
        """Make the content of a file from what the file system says of it."""
        return cls(base, path, about.get("size"), version_of(about))

    @property
    def url(self) -> str:
        """The URL, as it is opened."""
        if self.path is None:
            return self.base.url
        outer, *rest = self.base.url.split("::", 1)
        first = self.path if "://" in self.path else f"{outer.split('://', 1)[0]}://{self.path.removeprefix('/')}"
        return "::".join([first, *rest])

    @property
    def source(self) -> str:
        """The URL, for messages."""
        return redacted(self.url)

    def _opened(self) -> tuple[Any, str]:
        system, path = self.base.opened()
        return system, path if self.path is None else self.path

    def open(self) -> BinaryIO:
        """Read a file of known size into memory if it is not large; otherwise open it."""
        with storage_errors("it"):
            if self.size is None or self.size > _AT_ONCE:
                system, path = self._opened()
                return io.BufferedReader(_RemoteFile(system, system.open(path, "rb")), 1 << 16)
            content = self._request(0, self.size + 1) if self.size else b""
        if len(content) != self.size:
            raise changed("it")
        return io.BytesIO(content)

    def read(self, offset: int, size: int) -> bytes:
        """Read a part of the file; fewer bytes at its end. Small parts come from blocks that are kept in memory."""
        if size > _BLOCK:
            return self._request(offset, offset + size)
        first, last = offset // _BLOCK, max(offset, offset + size - 1) // _BLOCK
        parts = [_block(self, number) for number in range(first, last + 1)]
        start = offset - first * _BLOCK
        return b"".join(parts)[start : start + size]

    def _request(self, start: int, end: int) -> bytes:
        with storage_errors("it"):
            size = self.size
            end = end if size is None else min(end, size + 1)  # one more byte tells a file that has grown
            if start >= end:
                return b""
            system, path = self._opened()
            content = system.cat_file(path, start=start, end=end)
            # servers that do not know ranges send the whole file
            return content[start:end] if len(content) > end - start else content

    def stamp(self) -> tuple[Any, ...]:
        """Return size, and what the file system tells versions of the file by."""
        with storage_errors(self.source):
            system, path = self._opened()
            system.invalidate_cache()
            about = system.info(path)
        return about.get("size"), *(str(about[name]) for name in _VERSIONS if about.get(name) is not None)

    def check(self, stamp: tuple[Any, ...] | None) -> None:
        """Raise an error if the file was changed; it is asked for once in a process."""
        if not _unchanged(self, stamp):
            raise changed(self.source)


File = FileContent | UrlContent


def version_of(about: dict[str, Any]) -> str | None:
    """Return what tells versions of a file, by what its file system says of it."""
    return next((str(about[name]) for name in _VERSIONS if about.get(name) is not None), None)


def as_file(path: File | str | os.PathLike[str]) -> File:
    """Return the content of a path or URL, or what is one already."""
    if isinstance(path, (FileContent, UrlContent)):
        return path
    location = as_place(path)
    return UrlContent(location) if isinstance(location, Url) else FileContent(os.fspath(location))


@contextmanager
def local_copy(path: str | os.PathLike[str], limits: Limits) -> Iterator[str]:
    """Give a local path for a file: its own, or that of a copy if it is a URL, within the limit `table_bytes`."""
    location = as_place(path)
    if not isinstance(location, Url):
        yield os.fspath(location)
        return
    with tempfile.TemporaryDirectory(prefix="bagwise-") as folder:
        target = os.path.join(folder, f"copy{os.path.splitext(location.name)[1]}")
        n_bytes = 0
        with storage_errors(str(location)), as_file(location).open() as file, open(target, "wb") as copy:
            while piece := file.read(_BLOCK):
                n_bytes += len(piece)
                limits.check("table_bytes", n_bytes, f"{location} has {readable_size(n_bytes)} and more")
                copy.write(piece)
        try:
            yield target
        except BagwiseError as error:  # names the file
            if target not in str(error):
                raise
            raise BagwiseError(str(error).replace(target, os.fspath(location))) from error


def changed(what: str) -> BagwiseError:
    """Build the error for a file that is not what it was."""
    return BagwiseError(f"{what} was changed after it was opened. Open the collection again.")


@functools.lru_cache(maxsize=1024)
def _unchanged(content: UrlContent, stamp: tuple[Any, ...] | None) -> bool:
    return content.stamp() == stamp


@cached_once(maxsize=_KEPT)
def _block(content: UrlContent, number: int) -> bytes:
    """Return a block of a file, shorter at its end."""
    return content._request(number * _BLOCK, (number + 1) * _BLOCK)


class _RemoteFile(io.RawIOBase):
    """A file of fsspec, whose errors are ours. The file system is kept: without it, that of an archive closes."""

    def __init__(self, system: Any, file: Any) -> None:
        super().__init__()
        self._system, self._file = system, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        with storage_errors("it"):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any, /) -> int:
        """Read some bytes."""
        with storage_errors("it"):
            part = self._file.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
