"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from bagwise.errors import BagwiseError, argument

_LONGEST_NAME = 40  # bytes of a file's name in the name of its unfinished successor
_PART = re.compile(r"\.[0-9a-f]{16}\.part\Z")
_OLD = 86_400.0  # seconds after which what nobody wrote to is taken for what a process that died has left


class UnwritableError(BagwiseError, OSError):
    """Raised if a file cannot be written; names the file that was to be written, and the reason."""


@contextmanager
def open_atomically(path: str | os.PathLike[str], *, lasting: bool = True, private: bool = False) -> Iterator[BinaryIO]:
    """Open `path` for writing: at any time, also after a crash, the old file or the whole new one is there.

    The new file takes its name when the block ends without an exception; otherwise it is removed. It has the rights of
    the file that it replaces; a link is followed, a device or a pipe is not replaced. What processes that died left
    unfinished is removed by the next writer of the file after a day, see `sweep`.

    Files of a cache need not be `lasting`: the new name may be lost with the power, and nothing is removed. Only the
    user may read a new `private` file: one that shows items, such as an index or a report.
    """
    target = _target(path)
    try:
        temporary, file = _new_part(target, private)
    except OSError as error:
        raise _named(error, path) from error
    try:
        with file:
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


def write_atomically(
    path: str | os.PathLike[str], content: bytes, *, lasting: bool = True, private: bool = False
) -> Path:
    """Write `content` to `path`, wholly or not at all; see `open_atomically`."""
    with open_atomically(path, lasting=lasting, private=private) as file:
        file.write(content)
    return Path(path)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise an error unless a new file can be written beside `path`, or into it if it is a folder.

    A file is made there and removed: what a system says of rights does not hold for all users and file systems.
    """
    target = Path(os.path.realpath(path))
    try:
        temporary, file = _new_part(target / "file" if target.is_dir() else target)
        file.close()
        temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _named(error, path) from error


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
    check_writable(target)
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
    temporary = _part_name(target)
    try:
        temporary.mkdir()
        for name, content in files.items():
            with open(temporary / name, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        _sync_folder(temporary)
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


def _target(path: str | os.PathLike[str]) -> Path:
    """Return the file that is written for `path`, or raise an error for a URL, a device or a pipe."""
    if scheme := re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(os.fspath(path))):
        raise UnwritableError(
            f"A URL ({scheme[0]}/…) cannot be saved to here. Give the name of a file of this machine, and copy it then."
        )
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise UnwritableError(f"{os.fspath(path)} cannot be saved: it is a pipe or a device. Give the name of a file.")
    return target


def _new_part(target: Path, private: bool = False) -> tuple[Path, BinaryIO]:
    """Open a new file beside `target`."""
    mode, temporary = 0o600 if private else 0o666, _part_name(target)
    return temporary, open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode))


def _part_name(target: Path) -> Path:
    return target.with_name(f".{_short(target.name)}.{secrets.token_hex(8)}.part")


def _named(error: OSError, path: str | os.PathLike[str]) -> UnwritableError:
    """Make the error of a file under its own name, whatever was written first."""
    if isinstance(error, UnwritableError):
        return error
    reason, rest = error.strerror or str(error), "An existing file was not changed."
    folder = Path(path).parent
    if folder.is_dir():  # that of a link may be another
        folder = Path(os.path.realpath(path)).parent
    if error.errno == errno.ENOENT and not folder.is_dir():
        reason, rest = f"there is no folder {folder}", "Create it first."
    elif error.errno == errno.ENOENT:
        reason = f"its unfinished file in {folder} cannot be made, or was removed by another program"
    elif error.errno == errno.ENOSPC:
        rest += " Free some space, or write elsewhere."
    named = UnwritableError(f"{os.fspath(path)} cannot be saved: {reason}. {rest}")
    named.errno = error.errno
    return named


def _short(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])


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
    """Remove unfinished files of a name, or of all names, that nobody has written to for a day."""
    start = "." if name is None else f".{_short(name)}."
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _PART.search(entry.name, len(start) - 1) if entry.name.startswith(start) else None
            if match is None or (name is not None and match.start() != len(start) - 1):  # of a longer name
                continue
            with suppress(OSError):  # others may sweep at the same time, or it may not be removed by this user
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _OLD:
                    shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
