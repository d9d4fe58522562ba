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
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, ClassVar, NamedTuple

from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError
from bagwise.sources.contents import File, UrlContent, as_file
from bagwise.sources.limits import Limits

__all__ = ["Packed", "TarMember", "check_name", "check_zip", "is_archive", "is_tar", "list_archive", "tar_members"]

_TAR_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
# Ratios of small members say nothing: a short run of equal bytes may shrink a thousandfold.
_RATIO_MATTERS_FROM = 1 << 20
_COPIED_BYTES = 1 << 20
_MOST_UNPACKED = 64  # archives that a process holds unpacked
# Memory for the decompression of xz; the files themselves say what it needs. 65 MiB do for those of `xz -9`.
_XZ_MEMORY = 1 << 28
# What the standard library raises for files that are not what they should be.
_DAMAGES: tuple[type[Exception], ...] = (zipfile.BadZipFile, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
_DAMAGES += (struct.error, EOFError, NotImplementedError, ValueError, OverflowError)
_BLOCK = 512  # of tar archives
# Bytes of the header of a file of a zip archive, with its name and attributes, that are read with the file itself.
_ZIP_HEADER = 256
# Headers before that of a file of a tar archive, which give its name and attributes.
_MOST_BEFORE = 16


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the ending of a zip or tar archive."""
    return os.fspath(path).lower().endswith((".zip", *_TAR_ENDINGS))


def is_tar(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the ending of a tar archive."""
    return os.fspath(path).lower().endswith(_TAR_ENDINGS)


def list_archive(
    archive: File | str | os.PathLike[str], limits: Limits, copy: bool = False
) -> dict[str, ZipMember | TarMember]:
    """List the files of an archive by name.

    Raises an error for absolute paths and ``..``, links, devices, encrypted and sparse members, repeated names, and
    members beyond the limits. With `copy`, a tar archive is read once, from its beginning to its end, into a temporary
    file, which members are read from.
    """
    file = as_file(archive)
    name = file.source
    try:
        members: list[ZipMember | TarMember] = list(
            _list_tar(file, limits, copy) if is_tar(name) else _list_zip(file, limits)
        )
    except BagwiseError:
        raise
    except _DAMAGES as error:
        raise BagwiseError(f"{name} is damaged or not an archive of the kind its name says: {error}.") from error
    found: dict[str, ZipMember | TarMember] = {}
    total = 0
    for member in members:
        check_name(member.name, name)
        if member.name in found:
            raise BagwiseError(f"{name} is refused: it holds {member.name!r} twice.")
        found[member.name] = member
        total += member.size
        _check_sizes(name, member.name, member.size, total, limits)
    return found


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
        """Decompress the file into memory; raise an error if size or checksum are not those of the list of members."""
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
    try:
        total = 0
        for info in _zip_members(file, name, limits):
            total += info.file_size
            _check_sizes(name, info.filename, info.file_size, total, limits)
    except BagwiseError:
        raise
    except _DAMAGES as error:
        raise BagwiseError(f"{name} is damaged or not an archive of the kind its name says: {error}.") from error


def _list_zip(archive: File, limits: Limits) -> Iterator[ZipMember]:
    stamp = archive.stamp()
    with archive.open() as file:
        members = _zip_members(file, archive.source, limits)
    for info in members:
        if not info.is_dir():
            sizes = info.compress_size, info.file_size
            yield ZipMember(archive, info.filename, info.header_offset, *sizes, info.compress_type, info.CRC, stamp)


def _zip_members(file: BinaryIO, path: str, limits: Limits) -> list[zipfile.ZipInfo]:
    """List the files and folders of a zip archive; raise an error for the first that is refused."""
    n_bytes = file.seek(0, os.SEEK_END)
    _check_number(file, n_bytes, path, limits)
    with zipfile.ZipFile(file) as archive:
        members, end = archive.infolist(), archive.start_dir
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


def _check_number(file: BinaryIO, n_bytes: int, path: str, limits: Limits) -> None:
    """Count the files of a zip archive, before each of them takes memory; what is no archive has none."""
    start = max(0, n_bytes - 22 - 0xFFFF)
    file.seek(start)
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) < at + 22:
        return
    size, end = int.from_bytes(tail[at + 12 : at + 16], "little"), start + at
    if end >= 76:
        file.seek(end - 76)
        wide = file.read(76)  # of archives with sizes of 64 bits
        if wide[:4] == b"PK\6\6" and wide[56:60] == b"PK\6\7":
            size, end = int.from_bytes(wide[40:48], "little"), end - 76
    if size // 46 <= limits.members or size > end:
        return
    file.seek(end - size)
    directory, number, place = file.read(size), 0, 0
    while place + 46 <= size:
        place += 46 + sum(struct.unpack_from("<3H", directory, place + 28))
        number += 1
        limits.check("members", number, f"{path} is refused: it holds more than {limits.members:,} files")


class Unpacked:
    """A decompressed tar archive, or the copy of one by URL, in a temporary file without a name."""

    def __init__(self, archive: File, limits: Limits, stamp: tuple[Any, ...], pieces: Iterator[bytes]) -> None:
        self.n_bytes = 0
        self._limits = limits
        self._lock = threading.Lock()
        self._file: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as anyone may read from it
        weakref.finalize(self, self._file.close)
        try:
            self._copy(pieces, archive.source, stamp[0])
        except OSError as error:  # of bz2; those of the operating system have a number
            if error.errno is not None:
                raise
            raise BagwiseError(f"{archive.source} is damaged: {error}.") from error

    def _copy(self, pieces: Iterator[bytes], path: str, compressed: int) -> None:
        for piece in pieces:
            self.n_bytes += len(piece)
            if self.n_bytes > _RATIO_MATTERS_FROM:
                ratio = self.n_bytes / max(1, compressed)
                what = f"{path} is refused: it was compressed more than {ratio:.0f}-fold"
                self._limits.check("ratio", ratio, what)
            what = f"{path} is refused: it holds {readable_size(self.n_bytes)}"
            self._limits.check("total_bytes", self.n_bytes, what)
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


class Packed:
    """A tar archive that is read from its `Unpacked` form: a compressed one can only be read from its beginning.

    It is unpacked in each process when it is first read; a pickle has no bytes of it. A process holds those that it has
    read last, and unpacks others again, so that it does not run out of files.
    """

    _last: ClassVar[OrderedDict[int, weakref.ref[Packed]]] = OrderedDict()
    _last_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self, archive: File, limits: Limits, stamp: tuple[Any, ...], copy: bool, unpacked: Unpacked | None = None
    ) -> None:
        self._given = (archive, limits, stamp, copy)
        self._unpacked = unpacked
        self._lock = threading.Lock()
        if unpacked is not None:
            self._hold()

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes at an offset of the unpacked archive."""
        with self._lock:
            unpacked = self._unpacked
            if unpacked is None:
                archive, _, stamp, _ = self._given
                archive.check(stamp)
                unpacked = self._unpacked = _unpacked(*self._given)
        if unpacked is None:
            raise BagwiseError("the archive was compressed, and is no longer. Open the collection again.")
        self._hold()
        return unpacked.read(offset, size)

    def _hold(self) -> None:
        """Note that this archive was read last, and give up what was unpacked of the one read longest ago."""
        with self._last_lock:
            self._last.pop(id(self), None)
            self._last[id(self)] = weakref.ref(self)
            while len(self._last) > _MOST_UNPACKED:
                other = self._last.popitem(last=False)[1]()
                if other is not None:
                    other._unpacked = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Packed, self._given


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
    (b"\x1f\x8b", functools.partial(_pieces, gzip.open)),
    (b"BZh", functools.partial(_pieces, bz2.open)),
    (b"\xfd7zXZ\x00", _xz_pieces),
)


# Items sent to another process one by one find the archive here; two, because each may take its size on disk.
@functools.lru_cache(maxsize=2)
def _unpacked(archive: File, limits: Limits, stamp: tuple[Any, ...], copy: bool) -> Unpacked | None:
    """Unpack a compressed tar archive; None if it is neither compressed nor to be copied."""
    magic = archive.read(0, 6)  # by URL, of the block that the list of members begins with
    decompress = next((one for start, one in _DECOMPRESSORS if magic.startswith(start)), None)
    if decompress is None and copy:
        decompress = _plain_pieces
    return None if decompress is None else Unpacked(archive, limits, stamp, decompress(archive))


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file in a tar archive."""

    archive: File
    name: str
    offset: int
    size: int
    stamp: tuple[Any, ...]
    packed: Packed | None = field(compare=False, repr=False)  # None: members are read from the archive itself

    @property
    def source(self) -> str:
        """The archive and the name in it."""
        return f"{self.archive.source}!{self.name}"

    def open(self) -> BinaryIO:
        """Read the file into memory."""
        if self.packed is not None:
            content = self.packed.read(self.offset, self.size)
        else:
            self.archive.check(self.stamp)
            content = self.archive.read(self.offset, self.size)
        if len(content) != self.size:
            raise BagwiseError("the archive is damaged: it ends before this file does")
        return io.BytesIO(content)


def _list_tar(archive: File, limits: Limits, copy: bool) -> Iterator[TarMember]:
    stamp = archive.stamp()
    unpacked = _unpacked(archive, limits, stamp, copy)
    if unpacked is not None:
        found = list(_tar_files(unpacked.read, unpacked.n_bytes, archive.source, limits))
    elif isinstance(archive, UrlContent):  # by blocks that are kept, in which members are read as well
        found = list(_tar_files(archive.read, stamp[0], archive.source, limits))
    else:
        with archive.open() as file:

            def read(offset: int, size: int) -> bytes:
                file.seek(offset)
                return file.read(size)

            found = list(_tar_files(read, stamp[0], archive.source, limits))
    packed = None if unpacked is None else Packed(archive, limits, stamp, copy, unpacked)
    for name, offset, size in found:
        # "./a/b" is how `tar -c .` writes a/b
        yield TarMember(archive, name.removeprefix("./"), offset, size, stamp, packed)


def tar_members(archive: File, limits: Limits) -> Iterator[TarMember]:
    """Yield the first members of a tar archive, as long as they are asked for; a compressed one is read as a whole."""
    stamp = archive.stamp()
    unpacked = _unpacked(archive, limits, stamp, False)
    packed = None if unpacked is None else Packed(archive, limits, stamp, False, unpacked)
    read, n_bytes = (archive.read, stamp[0]) if unpacked is None else (unpacked.read, unpacked.n_bytes)
    for name, offset, size in _tar_files(read, n_bytes, archive.source, limits):
        yield TarMember(archive, name.removeprefix("./"), offset, size, stamp, packed)


class _Header(NamedTuple):
    """What the block before a file of a tar archive says of it."""

    name: str
    kind: bytes
    size: int


def _tar_files(
    read: Callable[[int, int], bytes], n_bytes: int, path: str, limits: Limits
) -> Iterator[tuple[str, int, int]]:
    """Yield name, offset and size of the files of a tar archive; raise an error at the first that is refused.

    All formats of GNU tar are read: v7, ustar, GNU and PAX. (The module tarfile is not used: its time is quadratic in
    the size of headers, its recursion as deep as there are headers before a file, and it ends quietly at a cut.)
    """
    place = n_files = n_before = 0
    attributes: dict[str, str] = {}
    of_all: dict[str, str] = {}
    while (block := read(place, _BLOCK)) != bytes(_BLOCK) or n_before:
        after = f"after {n_files} files"
        if len(block) < _BLOCK:
            raise BagwiseError(f"{path} is damaged: it was cut short {after}, or what follows is no tar.")
        header = _tar_header(block)
        if header is None:
            raise BagwiseError(f"{path} is damaged: what follows {after} is no header of a file.")
        start = place + _BLOCK
        if header.kind in (b"x", b"X", b"g", b"L", b"K"):
            n_before += 1
            if n_before > _MOST_BEFORE:
                raise BagwiseError(f"{path} is damaged: {after} there are more than {_MOST_BEFORE} headers for one.")
            what = f"{path} is refused: {after} there is a header of {readable_size(header.size)}"
            limits.check("header_bytes", header.size, what)
            content = read(start, header.size)
            if len(content) < header.size:
                raise BagwiseError(f"{path} is damaged: it was cut short {after}.")
            if header.kind == b"L":
                attributes["path"] = _tar_text(content)
            elif header.kind != b"K":  # of links, which are refused
                (of_all if header.kind == b"g" else attributes).update(_pax_attributes(content, path))
            place = start + -(-header.size // _BLOCK) * _BLOCK
            continue
        known = {**of_all, **attributes}
        attributes, n_before, n_files = {}, 0, n_files + 1
        limits.check("members", n_files, f"{path} is refused: it holds more than {limits.members:,} files")
        name = known.get("path", header.name)
        check_name(name, path)
        if header.kind == b"5" or (header.kind == b"\0" and header.name.endswith("/")):
            place = start
            continue
        if header.kind in (b"1", b"2"):
            raise BagwiseError(f"{path} is refused: {name!r} is a link. Pack the file itself.")
        if header.kind not in (b"0", b"\0", b"7") or any(key.startswith("GNU.sparse.") for key in known):
            raise BagwiseError(f"{path} is refused: {name!r} is not an ordinary file.")
        size = int(known["size"]) if known.get("size", "").isdecimal() else header.size
        if size > n_bytes - start:
            raise BagwiseError(f"{path} is damaged: it ends before {name!r} does, {after}.")
        yield name.rstrip("/"), start, size
        place = start + -(-size // _BLOCK) * _BLOCK


def _tar_header(block: bytes) -> _Header | None:
    """Parse a header of a tar archive; None if it is none."""
    size, said, others = _tar_number(block[124:136]), _tar_number(block[148:156]), block[:148] + block[156:]
    found = 256 + sum(others)
    signed = found - 256 * sum(byte > 127 for byte in others) if said != found else found  # of old programs
    if said != signed or size is None:
        return None
    name, prefix, kind = _tar_text(block[:100]), _tar_text(block[345:500]), block[156:157]
    return _Header(f"{prefix}/{name}" if prefix and kind not in (b"L", b"K", b"S") else name, kind, size)


def _tar_number(field: bytes) -> int | None:
    """Return a number of a header, octal digits or binary; None if it is none, or negative."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big") if field[0] == 0x80 else None
    digits = field.split(b"\0", 1)[0].strip()
    return int(digits or b"0", 8) if re.fullmatch(rb"[0-7]*", digits) else None


def _tar_text(content: bytes) -> str:
    return content.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")


def _pax_attributes(content: bytes, path: str) -> dict[str, str]:
    """Parse the attributes of a PAX header, each of them "length key=value", that matter here."""
    found = {}
    place = 0
    while place < len(content) and content[place]:
        space = content.find(b" ", place, place + 20)
        length = content[place : max(space, place)]
        end = place + int(length) if length.isdigit() else 0
        key, equals, value = content[space + 1 : end].partition(b"=")
        if not equals or not value.endswith(b"\n") or end > len(content):
            raise BagwiseError(f"{path} is damaged: the attributes of one of its files cannot be parsed.")
        name = key.decode("utf-8", "surrogateescape")
        if name in ("path", "size") or name.startswith("GNU.sparse."):
            found[name] = value[:-1].decode("utf-8", "surrogateescape")
        place = end
    return found
