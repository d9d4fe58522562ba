"""Locks of files that several processes change."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from bagwise.errors import BagwiseError, in_python

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["give_up", "hand_over", "locked", "take"]

_held = threading.local()


@contextmanager
def locked(
    path: str | os.PathLike[str], *, required: bool = False, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Keep other processes and threads that lock a file from replacing it, until the block ends; readers go on.

    The existing file itself is locked, so a process that is killed leaves nothing behind. If it is replaced in the
    block (`open_atomically`), the new file is locked up to its end as well. A file that does not exist is not locked.
    Blocks for the same file may be nested. Windows has no such locks.

    Parameters
    ----------
    path : path
    required : bool, default=False
        Whether to raise an error if the file system has no locks.
    waiting : callable, default=None
        Called once if another process has the lock, before waiting for it.
    """
    target = os.path.realpath(path)
    held: dict[str, list[int]] = _held.__dict__.setdefault("files", {})
    file = None if fcntl is None or target in held else _lock(target, required, waiting)
    if file is None:
        yield
        return
    held[target] = []  # descriptors of what replaced it
    try:
        yield
    finally:
        for descriptor in held.pop(target):
            give_up(descriptor)
            os.close(descriptor)
        file.close()


def take(descriptor: int, *, wait: bool = False) -> bool:
    """Lock an open file or folder, until `give_up` or until it is closed; whether it is locked now.

    It is not if another process or thread has it locked, unless `wait`, or if the file system has no locks.
    """
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True


def give_up(descriptor: int) -> None:
    """End the lock of an open file or folder, also if a child of this process has it open."""
    if fcntl is not None:
        with suppress(OSError):  # the file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def hand_over(descriptor: int, path: str | os.PathLike[str]) -> None:
    """Leave the lock of an open file, which replaced `path`, to the block of `locked` for it, or end it without one."""
    held: dict[str, list[int]] = _held.__dict__.get("files", {})
    target = os.path.realpath(path)
    if target in held:
        held[target].append(os.dup(descriptor))
    else:
        give_up(descriptor)


def _lock(target: str, required: bool, waiting: Callable[[], None] | None) -> BinaryIO | None:
    """Open and lock a file; None if it is not there, or cannot be locked."""
    while True:
        try:
            file = _opened(target)
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            return None
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting is not None:
                    waiting()
                    waiting = None
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            file.close()
            if required:
                other = in_python("save the changed one to another file", "write to another file by --out")
                raise BagwiseError(
                    f"{target} cannot be locked: {error.strerror}. Two programs that change it at the same time could "
                    f"undo each other's changes. Copy it to a local disk, or {other}."
                ) from error
            return None
        except BaseException:
            file.close()
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), os.stat(target)):
                return file
        file.close()  # it was replaced while this one waited


def _opened(target: str) -> BinaryIO:
    """Open a file for a lock: also for writing where that is allowed, which network file systems want."""
    try:
        return open(target, "rb+")  # it is closed when the lock ends
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return open(target, "rb")
