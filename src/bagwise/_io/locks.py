"""Locks of files that several processes change."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, in_python

__all__ = ["locked"]

_LONGEST_NAME = 200  # bytes of a file's name in the name of its lock
_held = threading.local()  # files that a thread has locked


@contextmanager
def locked(path: str | os.PathLike[str], *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep other processes and threads that lock a file out until the block ends; readers and `save` do not ask.

    What is locked is a hidden empty file beside it, ``.NAME.lock``, which stays: a process that is killed leaves no
    lock behind. Blocks for the same file may be nested. A file that does not exist is not locked.

    Parameters
    ----------
    path : path
    waiting : callable, default=None
        Called once if another process or thread has the lock, before waiting for it.
    """
    filelock = require("filelock", "app", "Changing a file that other programs may change")
    target = Path(os.path.realpath(path))
    held = _held.__dict__.setdefault("files", set())
    if target in held or not target.exists():
        yield
        return
    name = os.fsdecode(os.fsencode(target.name)[:_LONGEST_NAME])
    lock = filelock.FileLock(target.with_name(f".{name}.lock"))
    try:
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            if waiting is not None:
                waiting()
            lock.acquire()
    except (OSError, NotImplementedError) as error:  # of filelock, where a file system has no locks
        reason = getattr(error, "strerror", None) or error
        other = in_python("save the changed one to another file", "write to another file by --out")
        raise BagwiseError(
            f"{target} cannot be locked: {reason}. Two programs that change it at the same time could "
            f"undo each other's changes. Copy it to a folder that you may write to, or {other}."
        ) from error
    held.add(target)
    try:
        yield
    finally:
        held.discard(target)
        lock.release()
