"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from bagwise.errors import BagwiseError, argument

# Characters of a file's name that the name of its unfinished successor begins with: names are at most 255 bytes long.
_LONGEST_NAME = 40
_PART = re.compile(r"\.(?P<host>[0-9a-f]{8})-(?P<process>\d+)-[0-9a-f]{16}\.part\Z")


class UnwritableError(BagwiseError, OSError):
    """Raised if a file cannot be written; names the file that was to be written, and the reason."""


@contextmanager
def open_atomically(path: str | os.PathLike[str], *, lasting: bool = True) -> Iterator[BinaryIO]:
    """Open `path` for writing: at any time, also after a crash, the old file or the whole new one is there.

    The new file takes its name when the block ends without an exception; otherwise it is removed. It has the rights of
    the file that it replaces; a link is followed, a device or a pipe is not replaced. What processes that died left
    unfinished is removed. Files of a cache need not last: without `lasting`, the new name may be lost with the power,
    and nothing is removed; see `sweep`.
    """
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(os.fspath(path))):
        raise UnwritableError(
            f"A URL ({scheme[0]}/…) cannot be saved to here. Give the name of a file of this machine, and copy it then."
        )
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise UnwritableError(f"{os.fspath(path)} cannot be saved: it is a pipe or a device. Give the name of a file.")
    temporary = target.with_name(f".{_short(target.name)}.{_host()}-{os.getpid()}-{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            if hasattr(os, "fchmod") and target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        if lasting:
            _sync_folder(target.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            raise _named(error, path) from error
        raise
    if lasting:
        sweep(target.parent, target.name)


def write_atomically(path: str | os.PathLike[str], content: bytes, *, lasting: bool = True) -> Path:
    """Write `content` to `path`, wholly or not at all; see `open_atomically`."""
    with open_atomically(path, lasting=lasting) as file:
        file.write(content)
    return Path(path)


def check_folder(folder: str | os.PathLike[str], force: bool) -> Path:
    """Return the path of a folder to write; raise an error if it is a file, or not empty, unless `force`."""
    target = Path(folder)
    if os.path.lexists(target) and not target.is_dir():
        raise BagwiseError(f"{os.fspath(folder)} is no folder, and is not replaced. Give another name.")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise BagwiseError(
            f"{os.fspath(folder)} is not empty. Give another folder, or {argument('force')} to replace the files in it "
            "that have the same names."
        )
    if not target.parent.is_dir():
        raise BagwiseError(f"{os.fspath(folder)} cannot be written: there is no folder {target.parent}. Create it.")
    return target


def write_folder(folder: str | os.PathLike[str], files: Mapping[str, bytes]) -> Path:
    """Write files, by their names, into a folder: one that is new or empty is there with all of them, or not at all.

    In a folder that is not empty each file is written wholly or not at all, and others stay.
    """
    target = Path(os.path.realpath(folder))
    if target.is_dir() and any(target.iterdir()):
        for name, content in files.items():
            write_atomically(target / name, content)
        return Path(folder)
    temporary = target.with_name(f".{_short(target.name)}.{_host()}-{os.getpid()}-{secrets.token_hex(8)}.part")
    try:
        temporary.mkdir()
        for name, content in files.items():
            write_atomically(temporary / name, content)
        if target.is_dir():
            target.rmdir()
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            raise _named(error, folder) from error
        raise
    sweep(target.parent, target.name)
    return Path(folder)


def _named(error: OSError, path: str | os.PathLike[str]) -> UnwritableError:
    """Make the error of a file under its own name, whatever was written first."""
    if isinstance(error, UnwritableError):
        return error
    reason, rest = error.strerror or str(error), "An existing file was not changed."
    if error.errno == errno.ENOENT:
        reason, rest = f"there is no folder {Path(path).parent}", "Create it first."
    elif error.errno == errno.ENOSPC:
        rest += " Free some space, or write elsewhere."
    named = UnwritableError(f"{os.fspath(path)} cannot be saved: {reason}. {rest}")
    named.errno = error.errno
    return named


def _short(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])


def _host() -> str:
    """Name this machine: processes of others, with which it shares a folder, are not known here."""
    return hashlib.blake2b(platform.node().encode("utf-8", "replace"), digest_size=4).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make the new name of a file last, where a folder can be opened."""
    if os.name != "posix":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # file systems that cannot
            raise
    finally:
        os.close(opened)


def sweep(folder: str | os.PathLike[str], name: str | None = None) -> None:
    """Remove what processes of this machine that died while they wrote have left; None: anything in a folder."""
    start, host = "." if name is None else f".{_short(name)}.", _host()
    with suppress(OSError):  # others may sweep at the same time
        for entry in os.scandir(folder):
            found = _PART.search(entry.name, len(start) - 1) if entry.name.startswith(start) else None
            if found and name is not None and found.start() != len(start) - 1:
                continue  # of a longer name
            if found and found["host"] == host and not _runs(int(found["process"])):
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)


def _runs(process: int) -> bool:
    if os.name != "posix":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
