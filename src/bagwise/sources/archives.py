"""Zip and tar archives, read in place. Nothing that an archive says about itself is trusted.

The list of members is read once. A member is a small value (archive, offset, size); reading it opens the archive anew,
so that threads and processes never share a file position.
"""

from __future__ import annotations

import bz2
import functools
import gzip
import io
import lzma
import os
import re
import stat
import struct
import tarfile
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError, in_python

__all__ = ["ArchiveLimits", "check_stamp", "is_archive", "list_archive", "stamp_of"]

_TAR_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_DECOMPRESSORS = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ\x00", lzma.open))
# Ratios of small members say nothing: a short run of equal bytes may shrink a thousandfold.
_RATIO_MATTERS_FROM = 1 << 20
_COPIED_BYTES = 1 << 20
# What the standard library raises for files that are not what they should be.
_DAMAGES: tuple[type[Exception], ...] = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, lzma.LZMAError)
_DAMAGES += (zlib.error, struct.error, EOFError, NotImplementedError, ValueError, OverflowError, RecursionError)


@dataclass(frozen=True)
class ArchiveLimits:
    """Limits of archives; larger ones are refused. The defaults accept ordinary data sets.

    Parameters
    ----------
    max_members : int, default=1_000_000
        Number of files.
    max_member_bytes : int, default=1 GiB
        Size of one file after decompression.
    max_total_bytes : int, default=64 GiB
        Size of all files after decompression.
    max_ratio : float, default=200
        Decompressed over compressed size, of files above 1 MiB and of whole compressed tar archives.
    """

    max_members: int = 1_000_000
    max_member_bytes: int = 1 << 30
    max_total_bytes: int = 1 << 36
    max_ratio: float = 200.0


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the ending of a zip or tar archive."""
    return os.fspath(path).lower().endswith((".zip", *_TAR_ENDINGS))


def list_archive(path: str | os.PathLike[str], limits: ArchiveLimits) -> dict[str, ZipMember | TarMember]:
    """List the files of an archive by name.

    Raises an error for absolute paths and ``..``, links, devices, encrypted and sparse members, repeated names, and
    members beyond the limits.
    """
    name = os.fspath(path)
    is_tar = name.lower().endswith(_TAR_ENDINGS)
    try:
        members: list[ZipMember | TarMember] = list(_list_tar(name, limits) if is_tar else _list_zip(name, limits))
    except BagwiseError:
        raise
    except _DAMAGES as error:
        raise BagwiseError(f"{name} is damaged or not an archive of the kind its name says: {error}.") from error
    found: dict[str, ZipMember | TarMember] = {}
    total = 0
    for member in members:
        _check_name(member.name, name)
        if member.name in found:
            raise BagwiseError(f"{name} is refused: it holds {member.name!r} twice.")
        if member.size > limits.max_member_bytes:
            raise _too_much(name, f"{member.name!r} has {readable_size(member.size)}", "max_member_bytes", limits)
        found[member.name] = member
        total += member.size
        if total > limits.max_total_bytes:
            raise _too_much(name, f"its files have more than {readable_size(total)}", "max_total_bytes", limits)
    return found


def _too_much(archive: str, what: str, limit: str, limits: ArchiveLimits) -> BagwiseError:
    return BagwiseError(
        f"{archive} is refused: {what}, the limit{in_python(f' {limit}')} is {getattr(limits, limit)}. "
        f"If you trust it, {in_python(f'pass limits=ArchiveLimits({limit}=...)', 'unpack it')}."
    )


def _check_name(member: str, archive: str) -> None:
    parts = re.split(r"[/\\]", member)
    if parts[0] == "" or re.match(r"[A-Za-z]:", member) or ".." in parts or "\0" in member:
        raise BagwiseError(
            f"{archive} is refused: the path {member!r} leads out of the archive. "
            "Pack it again, with relative paths without '..'."
        )


def stamp_of(path: str) -> tuple[int, int]:
    """Return size and modification time of a file, to notice that it was changed."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def check_stamp(path: str, stamp: tuple[int, int] | None) -> None:
    """Raise an error if a file was changed."""
    if stamp_of(path) != stamp:
        raise BagwiseError(f"{path} was changed after it was opened. Open the collection again.")


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file in a zip archive, stored or deflated."""

    archive: str
    name: str
    header_offset: int
    compressed_size: int
    size: int
    method: int
    checksum: int
    stamp: tuple[int, int]

    @property
    def source(self) -> str:
        """The archive and the name in it."""
        return f"{self.archive}!{self.name}"

    def open(self) -> BinaryIO:
        """Decompress the file into memory; raise an error if size or checksum are not those of the list of members."""
        with open(self.archive, "rb") as file:
            check_stamp(self.archive, self.stamp)
            file.seek(self.header_offset)
            header = file.read(30)
            if header[:4] != b"PK\x03\x04" or len(header) < 30:
                raise BagwiseError("the archive is damaged: there is no file where its list of members says")
            extra = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            file.seek(extra, os.SEEK_CUR)
            content = file.read(self.compressed_size)
        if self.method == zipfile.ZIP_DEFLATED:
            try:
                # no byte more than announced is ever produced
                content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, self.size + 1)
            except zlib.error as error:
                raise BagwiseError(f"its compressed bytes are damaged: {error}") from error
        if len(content) != self.size or zlib.crc32(content) != self.checksum:
            raise BagwiseError("its bytes are damaged: size or checksum are not those the archive says")
        return io.BytesIO(content)


def _list_zip(path: str, limits: ArchiveLimits) -> Iterator[ZipMember]:
    stamp = n_bytes, _ = stamp_of(path)
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
    if len(members) > limits.max_members:
        raise _too_much(path, f"it holds {len(members)} files", "max_members", limits)
    for info in members:
        if not info.filename:
            raise BagwiseError(f"{path} is damaged: one of its files has no name.")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise BagwiseError(f"{path} is refused: {info.filename!r} is a link. Pack the file itself.")
        if info.is_dir():
            _check_name(info.filename, path)
            continue
        if info.flag_bits & 1:
            raise BagwiseError(f"{path} is refused: {info.filename!r} is encrypted. Pack it without a password.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BagwiseError(
                f"{path} is refused: {info.filename!r} is compressed by method {info.compress_type}. "
                "Only stored and deflated files are read; pack it again."
            )
        if not 0 <= info.header_offset <= n_bytes - info.compress_size:
            raise BagwiseError(f"{path} is damaged: {info.filename!r} should lie beyond its end.")
        if info.file_size > _RATIO_MATTERS_FROM and info.file_size > limits.max_ratio * info.compress_size:
            ratio = info.file_size / max(1, info.compress_size)
            raise _too_much(path, f"{info.filename!r} was compressed {ratio:.0f}-fold", "max_ratio", limits)
        sizes = info.compress_size, info.file_size
        yield ZipMember(path, info.filename, info.header_offset, *sizes, info.compress_type, info.CRC, stamp)


class Unpacked:
    """A decompressed tar archive, in a temporary file without a name.

    A compressed tar archive can only be read from its beginning, so it is decompressed once in each process.
    """

    def __init__(self, path: str, limits: ArchiveLimits, opener: Any) -> None:
        self.path = path
        self._limits = limits
        self._lock = threading.Lock()
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as anyone may read from it
        weakref.finalize(self, self._file.close)
        with opener(path, "rb") as stream:
            try:
                self._copy(stream)
            except OSError as error:  # of bz2; those of the operating system have a number
                if error.errno is not None:
                    raise
                raise BagwiseError(f"{path} is damaged: {error}.") from error

    def _copy(self, stream: BinaryIO) -> None:
        compressed = os.path.getsize(self.path)
        n_bytes = 0
        while piece := stream.read(_COPIED_BYTES):
            n_bytes += len(piece)
            if n_bytes > max(_RATIO_MATTERS_FROM, self._limits.max_ratio * compressed):
                what = f"it was compressed more than {n_bytes / max(1, compressed):.0f}-fold"
                raise _too_much(self.path, what, "max_ratio", self._limits)
            if n_bytes > self._limits.max_total_bytes:
                raise _too_much(self.path, f"it holds {readable_size(n_bytes)}", "max_total_bytes", self._limits)
            self._file.write(piece)
        self._file.flush()

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes at an offset, without a file position that threads or forked processes would share."""
        if hasattr(os, "pread"):
            pieces = []
            while size and (piece := os.pread(self._file.fileno(), size, offset)):
                pieces.append(piece)
                size, offset = size - len(piece), offset + len(piece)
            return b"".join(pieces)
        with self._lock:
            self._file.seek(offset)
            return self._file.read(size)

    def members(self) -> list[tarfile.TarInfo]:
        """List what is in it."""
        with self._lock:
            self._file.seek(0)
            with tarfile.open(fileobj=self._file, mode="r:", tarinfo=_TarHeader) as archive:
                return _tar_members(archive, self.path, self._limits)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (self.path, self._limits, stamp_of(self.path))


# Items sent to another process one by one find the archive here; two, because each may take its size on disk.
@functools.lru_cache(maxsize=2)
def _unpacked(path: str, limits: ArchiveLimits, stamp: tuple[int, int]) -> Unpacked | None:
    """Unpack a compressed tar archive; None if it is not compressed."""
    with open(path, "rb") as file:
        magic = file.read(6)
    opener = next((opener for start, opener in _DECOMPRESSORS if magic.startswith(start)), None)
    return None if opener is None else Unpacked(path, limits, opener)


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file in a tar archive."""

    archive: str
    name: str
    offset: int
    size: int
    stamp: tuple[int, int]
    unpacked: Unpacked | None = field(compare=False, repr=False)

    @property
    def source(self) -> str:
        """The archive and the name in it."""
        return f"{self.archive}!{self.name}"

    def open(self) -> BinaryIO:
        """Read the file into memory."""
        if self.unpacked is not None:
            content = self.unpacked.read(self.offset, self.size)
        else:
            with open(self.archive, "rb") as file:
                check_stamp(self.archive, self.stamp)
                file.seek(self.offset)
                content = file.read(self.size)
        if len(content) != self.size:
            raise BagwiseError("the archive is damaged: it ends before this file does")
        return io.BytesIO(content)


class _TarHeader(tarfile.TarInfo):
    """The header of a member. Refuses negative sizes, with which older versions of tarfile never end."""

    def _block(self, count: int) -> int:
        if count < 0:
            raise tarfile.ReadError("a header declares a negative size")
        return super()._block(count)  # type: ignore[misc]


def _list_tar(path: str, limits: ArchiveLimits) -> Iterator[TarMember]:
    stamp = stamp_of(path)
    unpacked = _unpacked(path, limits, stamp)
    if unpacked is not None:
        members = unpacked.members()
    else:
        with tarfile.open(path, "r:", tarinfo=_TarHeader) as archive:
            members = _tar_members(archive, path, limits)
    for info in members:
        # "./a/b" is how `tar -c .` writes a/b
        yield TarMember(path, info.name.removeprefix("./"), info.offset_data, info.size, stamp, unpacked)


def _tar_members(archive: tarfile.TarFile, path: str, limits: ArchiveLimits) -> list[tarfile.TarInfo]:
    """List the files of a tar archive; raise an error at the first member that is refused."""
    members: list[tarfile.TarInfo] = []
    for number, info in enumerate(archive):
        if number == limits.max_members:
            raise _too_much(path, f"it holds more than {number} files", "max_members", limits)
        _check_name(info.name, path)
        if info.isdir():
            continue
        if info.issym() or info.islnk():
            raise BagwiseError(f"{path} is refused: {info.name!r} is a link. Pack the file itself.")
        if not info.isreg() or info.issparse():
            raise BagwiseError(f"{path} is refused: {info.name!r} is not an ordinary file.")
        members.append(info)
    # tarfile ends quietly at a header that is cut; whole archives end in blocks of zeros
    archive.fileobj.seek(archive.offset)
    if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise BagwiseError(
            f"{path} is damaged: it was cut short after {len(members)} files, or what follows is no tar."
        )
    return members
