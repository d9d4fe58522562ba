"""Zip and tar archives, read in place by the standard library. Nothing that an archive says about itself is trusted.

The list of members is read once. A member is a small value (archive, offset, size); reading it opens the archive anew,
so that threads and processes never share a file position.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import mmap
import os
import re
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

from bagwise._utils.memory import readable_size
from bagwise._utils.threads import cached_once
from bagwise.errors import BagwiseError
from bagwise.sources.contents import File, FileContent, as_file
from bagwise.sources.limits import Limits

__all__ = ["FilePart", "Packed", "check_name", "check_zip", "is_archive", "is_tar", "list_archive", "tar_members"]

_TAR_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# Ratios of small members say nothing: a short run of equal bytes may shrink a thousandfold.
_RATIO_MATTERS_FROM = 1 << 20
_COPIED_BYTES = 1 << 20
_MOST_UNPACKED = 64  # archives that a process keeps unpacked
# Memory for the decompression of xz; the files themselves say what it needs. 65 MiB do for those of `xz -9`.
_XZ_MEMORY = 1 << 28
# What the standard library raises for files that are not what they should be.
_DAMAGES: tuple[type[Exception], ...] = (zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, lzma.LZMAError)
_DAMAGES += (zlib.error, struct.error, EOFError, NotImplementedError, ValueError, OverflowError)
# Bytes of the header of a file of a zip archive, with its name and attributes, that are read with the file itself.
_ZIP_HEADER = 256
# Lists of files of zip archives of more bytes than this are counted before they take memory.
_FEW_BYTES = 1 << 17
_PAX_HEADERS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_MOST_BEFORE = 16  # headers before that of a file of a tar archive
_ENCODING, _ERRORS = "utf-8", "surrogateescape"  # of names in tar archives
_ATTRIBUTE = re.compile(rb"(\d{1,19}) ([^=]+)=")  # the beginning of one of a PAX header

Read = Callable[[int, int], bytes]  # by offset and size


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the ending of a zip or tar archive."""
    return os.fspath(path).lower().endswith((".zip", *_TAR_ENDINGS))


def is_tar(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the ending of a tar archive."""
    return os.fspath(path).lower().endswith(_TAR_ENDINGS)


def list_archive(archive: File | str | os.PathLike[str], limits: Limits) -> dict[str, ZipMember | FilePart]:
    """List the files of an archive by name; what leads out of it, is no file, or is beyond the limits is an error."""
    file = as_file(archive)
    name = file.source
    members: dict[str, ZipMember | FilePart] = {}
    total = 0
    with _damages(name):
        for member in tar_members(file, limits) if is_tar(name) else _list_zip(file, limits):
            check_name(member.name, name)
            if member.name in members:
                raise BagwiseError(f"{name} is refused: it holds {member.name!r} twice.")
            members[member.name] = member
            total += member.size
            _check_sizes(name, member.name, member.size, total, limits)
    return members


@contextmanager
def _damages(name: str) -> Iterator[None]:
    """Turn what the standard library raises for a damaged archive into an error that names it."""
    try:
        yield
    except BagwiseError:
        raise
    except _DAMAGES as error:
        raise BagwiseError(f"{name} is damaged or not an archive of the kind its name says: {error}.") from error


def _check_sizes(archive: str, member: str, size: int, total: int, limits: Limits) -> None:
    limits.check("total_bytes", total, f"{archive} is refused: its files have {readable_size(total)} and more")
    limits.check("member_bytes", size, f"{archive} is refused: {member!r} has {readable_size(size)}")


def check_name(member: str, archive: str) -> None:
    """Raise an error if the name of a file leads out of the archive or folder that says it holds it."""
    parts = re.split(r"[/\\]", member)
    if parts[0] == "" or re.match(r"[A-Za-z]:", member) or ".." in parts or "\0" in member:
        raise BagwiseError(
            f"{archive} is refused: the path {member!r} leads out of the archive. "
            "Pack it again, with relative paths without '..'."
        )


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file in a zip archive, stored or deflated."""

    archive: File
    name: str
    header_offset: int
    compressed_size: int
    size: int
    method: int
    checksum: int
    stamp: tuple[Any, ...]

    @property
    def source(self) -> str:
        """The archive and the name in it."""
        return f"{self.archive.source}!{self.name}"

    def open(self) -> BinaryIO:
        """Decompress the file into memory; raise an error if size or checksum are not those of the list of members.

        A `ZipFile` would read the list again in each process; where the file is, is known.
        """
        self.archive.check(self.stamp)
        start = self.header_offset
        # most often, header, name and attributes are in the first part
        part = self.archive.read(start, _ZIP_HEADER + self.compressed_size)
        if part[:4] != b"PK\x03\x04" or len(part) < 30:
            raise BagwiseError("the archive is damaged: there is no file where its list of members says")
        start = 30 + int.from_bytes(part[26:28], "little") + int.from_bytes(part[28:30], "little")
        content = part[start : start + self.compressed_size]
        if len(content) < self.compressed_size:
            content = self.archive.read(self.header_offset + start, self.compressed_size)
        if self.method == zipfile.ZIP_DEFLATED:
            try:
                # no byte more than announced is ever produced
                content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(content, self.size + 1)
            except zlib.error as error:
                raise BagwiseError(f"its compressed bytes are damaged: {error}") from error
        if len(content) != self.size or zlib.crc32(content) != self.checksum:
            raise BagwiseError("its bytes are damaged: size or checksum are not those the archive says")
        return io.BytesIO(content)


def check_zip(file: BinaryIO, name: str, limits: Limits) -> None:
    """Raise an error unless a file that others unpack, such as a workbook, is a zip file within the limits."""
    total = 0
    with _damages(name):
        for info in _zip_members(file, name, limits):
            total += info.file_size
            _check_sizes(name, info.filename, info.file_size, total, limits)


def _list_zip(archive: File, limits: Limits) -> Iterator[ZipMember]:
    stamp = archive.stamp()
    with archive.open() as file:
        members = _zip_members(file, archive.source, limits)
    for info in members:
        if not info.is_dir():
            sizes = info.compress_size, info.file_size
            yield ZipMember(archive, info.filename, info.header_offset, *sizes, info.compress_type, info.CRC, stamp)


class _Counted:
    """A zip archive of which a list of too many files is refused before each of them takes memory."""

    def __init__(self, file: BinaryIO, check_number: Callable[[int], None]) -> None:
        self.seek, self.tell = file.seek, file.tell
        self._file, self._check_number = file, check_number

    def read(self, size: int = -1) -> bytes:
        """Read bytes."""
        content = self._file.read(size)
        if len(content) > _FEW_BYTES:
            self._check_number(content.count(b"PK\1\2"))
        return content


def _zip_members(file: BinaryIO, path: str, limits: Limits) -> list[zipfile.ZipInfo]:
    """List the files and folders of a zip archive; raise an error for the first that is refused."""

    def check_number(number: int) -> None:
        limits.check("members", number, f"{path} is refused: it holds more than {limits.members:,} files")

    n_bytes = file.seek(0, os.SEEK_END)
    counted: Any = _Counted(file, check_number)
    with zipfile.ZipFile(counted) as archive:
        members, end = archive.infolist(), archive.start_dir
    check_number(len(members))
    total = 0
    for info in members:
        if not info.filename:
            raise BagwiseError(f"{path} is damaged: one of its files has no name.")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise BagwiseError(f"{path} is refused: {info.filename!r} is a link. Pack the file itself.")
        if info.is_dir():
            check_name(info.filename, path)
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
        total += info.file_size
        if info.file_size > _RATIO_MATTERS_FROM:
            ratio = info.file_size / max(1, info.compress_size)
            what = f"{path} is refused: {info.filename!r} was compressed {ratio:.0f}-fold"
            limits.check("ratio", ratio, what)
    # files that share their bytes expand to any size
    members = sorted(members, key=lambda info: info.header_offset)
    for info, start in zip(members, [*(other.header_offset for other in members[1:]), end], strict=True):
        if info.header_offset + 30 + info.compress_size > start:
            raise BagwiseError(f"{path} is damaged: {info.filename!r} shares its bytes with what follows.")
    if total > _RATIO_MATTERS_FROM:
        limits.check("ratio", total / n_bytes, f"{path} is refused: it was compressed {total / n_bytes:.0f}-fold")
    return members


@dataclass(frozen=True, slots=True)
class Packed:
    """A tar archive that is read from its beginning alone: unpacked into a temporary file in each process."""

    archive: File
    limits: Limits
    stamp: tuple[Any, ...]

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes at an offset of the unpacked archive."""
        return _unpacked(self)[offset : offset + size]


@cached_once(maxsize=_MOST_UNPACKED)
def _unpacked(packed: Packed) -> mmap.mmap:
    """Decompress a tar archive, or copy one by URL, into a temporary file without a name, which is mapped."""
    archive, limits, stamp = packed.archive, packed.limits, packed.stamp
    archive.check(stamp)
    pieces, n_bytes = _decompressor(archive) or _plain_pieces, 0
    with tempfile.TemporaryFile() as file:
        try:
            for piece in pieces(archive):
                n_bytes += len(piece)
                if n_bytes > _RATIO_MATTERS_FROM and stamp[0] is not None:
                    ratio = n_bytes / max(1, stamp[0])
                    what = f"{archive.source} is refused: it was compressed more than {ratio:.0f}-fold"
                    limits.check("ratio", ratio, what)
                limits.check("total_bytes", n_bytes, f"{archive.source} is refused: it holds {readable_size(n_bytes)}")
                file.write(piece)
        except OSError as error:  # of bz2; those of the operating system have a number
            if error.errno is not None:
                raise
            raise BagwiseError(f"{archive.source} is damaged: {error}.") from error
        if not n_bytes:
            raise BagwiseError(f"{archive.source} is damaged: it is empty.")
        file.flush()
        return mmap.mmap(file.fileno(), n_bytes, access=mmap.ACCESS_READ)


def _pieces(opener: Any, archive: File) -> Iterator[bytes]:
    with archive.open() as file, opener(file, "rb") as stream:
        while piece := stream.read(_COPIED_BYTES):
            yield piece


def _plain_pieces(archive: File) -> Iterator[bytes]:
    with archive.open() as file:
        while piece := file.read(_COPIED_BYTES):
            yield piece


def _xz_pieces(archive: File) -> Iterator[bytes]:
    """Decompress xz with a limit of memory: one stream after the other, with zeros between them."""
    with archive.open() as file:
        content = file.read(_COPIED_BYTES)
        while content:
            stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, _XZ_MEMORY)
            while not stream.eof:
                if stream.needs_input and not content:
                    raise EOFError("it was cut short")
                if piece := stream.decompress(content, _COPIED_BYTES):
                    yield piece
                content = file.read(_COPIED_BYTES) if stream.needs_input and not stream.eof else b""
            content = stream.unused_data.lstrip(b"\0")
            while not content and (more := file.read(_COPIED_BYTES)):
                content = more.lstrip(b"\0")


_DECOMPRESSORS: tuple[tuple[bytes, Callable[[File], Iterator[bytes]]], ...] = (
    (b"\x1f\x8b", partial(_pieces, gzip.open)),
    (b"BZh", partial(_pieces, bz2.open)),
    (b"\xfd7zXZ\x00", _xz_pieces),
)


def _decompressor(archive: File) -> Callable[[File], Iterator[bytes]] | None:
    magic = archive.read(0, 6)  # by URL, of the block that the list of members begins with
    return next((pieces for start, pieces in _DECOMPRESSORS if magic.startswith(start)), None)


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a file: a file in a tar archive, listed here (with a stamp) or by a manifest."""

    file: File
    name: str
    offset: int
    size: int
    stamp: tuple[Any, ...] | None = None
    packed: Packed | None = field(default=None, compare=False, repr=False)  # None: read from the file itself

    @property
    def source(self) -> str:
        """The file and the name of the part."""
        return f"{self.file.source}!{self.name}"

    def open(self) -> BinaryIO:
        """Read the part into memory."""
        if self.packed is not None:
            content = self.packed.read(self.offset, self.size)
        else:
            if self.stamp is not None:
                self.file.check(self.stamp)
            content = self.file.read(self.offset, self.size)
        if len(content) != self.size:
            raise BagwiseError("the file ends before this part of it does")
        return io.BytesIO(content)


def tar_members(archive: File, limits: Limits) -> Iterator[FilePart]:
    """Yield the members of a tar archive, as long as they are asked for; a compressed one is read as a whole."""
    stamp = archive.stamp()
    copied = stamp[0] is None or _decompressor(archive) is not None
    packed = Packed(archive, limits, stamp) if copied else None
    with _damages(archive.source), ExitStack() as stack:
        if packed is not None:
            read, n_bytes = packed.read, len(_unpacked(packed))
        elif isinstance(archive, FileContent):
            file = stack.enter_context(archive.open())
            read, n_bytes = partial(_read_at, file), stamp[0]
        else:  # by blocks that are kept, in which members are read as well
            read, n_bytes = archive.read, stamp[0]
        for name, offset, size in _tar_files(read, n_bytes, archive.source, limits):
            # "./a/b" is how `tar -c .` writes a/b
            yield FilePart(archive, name.removeprefix("./"), offset, size, stamp, packed)


def _read_at(file: BinaryIO, offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def _tar_files(read: Read, n_bytes: int, path: str, limits: Limits) -> Iterator[tuple[str, int, int]]:
    """Yield name, offset and size of the files of a tar archive; raise an error at the first that is refused.

    All formats of GNU tar are read: v7, ustar, GNU and PAX. (`TarInfo` parses headers, but `TarFile` does not walk over
    them: in Pythons before 3.11.10 and 3.12.6 its time and memory are quadratic in the size of attributes; its
    recursion is as deep as there are headers before a file, and it ends quietly at a cut.)
    """
    position = n_files = n_before = 0
    attributes: dict[str, str] = {}
    of_all: dict[str, str] = {}
    while (block := read(position, tarfile.BLOCKSIZE)) != bytes(tarfile.BLOCKSIZE) or n_before:
        after = f"after {n_files} files"
        try:
            header = tarfile.TarInfo.frombuf(block, _ENCODING, _ERRORS)
        except tarfile.HeaderError as error:
            if len(block) < tarfile.BLOCKSIZE:
                raise BagwiseError(
                    f"{path} is damaged: it was cut short {after}, or what follows is no tar."
                ) from error
            raise BagwiseError(f"{path} is damaged: what follows {after} is no header of a file: {error}.") from error
        if header.size < 0:
            raise BagwiseError(f"{path} is damaged: {after} there is a header of the size {header.size}.")
        start = position + tarfile.BLOCKSIZE
        if header.type in (*_PAX_HEADERS, *_LONG_NAMES):
            n_before += 1
            if n_before > _MOST_BEFORE:
                raise BagwiseError(f"{path} is damaged: {after} there are more than {_MOST_BEFORE} headers for one.")
            what = f"{path} is refused: {after} there is a header of {readable_size(header.size)}"
            limits.check("header_bytes", header.size, what)
            content = read(start, header.size)
            if len(content) < header.size:
                raise BagwiseError(f"{path} is damaged: it was cut short {after}.")
            if header.type == tarfile.GNUTYPE_LONGNAME:
                attributes["path"] = content.split(b"\0", 1)[0].decode(_ENCODING, _ERRORS)
            elif header.type in _PAX_HEADERS:
                target = of_all if header.type == tarfile.XGLTYPE else attributes
                target.update(_pax_attributes(content, path))
            position = start + -(-header.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
            continue
        known = {**of_all, **attributes}
        attributes, n_before, n_files = {}, 0, n_files + 1
        limits.check("members", n_files, f"{path} is refused: it holds more than {limits.members:,} files")
        name = known.get("path", header.name)
        check_name(name, path)
        if header.isdir():
            position = start
            continue
        if header.issym() or header.islnk():
            raise BagwiseError(f"{path} is refused: {name!r} is a link. Pack the file itself.")
        if not header.isreg() or header.issparse() or any(key.startswith("GNU.sparse.") for key in known):
            raise BagwiseError(f"{path} is refused: {name!r} is not an ordinary file.")
        size = int(known["size"]) if known.get("size", "").isdecimal() else header.size
        if size > n_bytes - start:
            raise BagwiseError(f"{path} is damaged: it ends before {name!r} does, {after}.")
        yield name.rstrip("/"), start, size
        position = start + -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _pax_attributes(content: bytes, path: str) -> dict[str, str]:
    """Parse the attributes of a PAX header, each of them "length key=value", that matter here."""
    attributes = {}
    start = 0
    while start < len(content) and content[start]:
        attribute = _ATTRIBUTE.match(content, start)
        end = start + int(attribute[1]) if attribute else 0
        if attribute is None or not attribute.end() < end <= len(content) or content[end - 1] != ord("\n"):
            raise BagwiseError(f"{path} is damaged: the attributes of one of its files cannot be parsed.")
        name = attribute[2].decode(_ENCODING, _ERRORS)
        if name in ("path", "size") or name.startswith("GNU.sparse."):
            attributes[name] = content[attribute.end() : end - 1].decode(_ENCODING, _ERRORS)
        start = end
    return attributes
