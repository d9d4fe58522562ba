"""Files that several processes change: locks, and replacing a file only while it is what was read."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bagwise._utils.extras import require
from bagwise.errors import BagwiseError, in_python

__all__ = ["EditedFile", "FileChanged", "locked"]

_LONGEST_NAME = 200  # bytes of a file's name in the name of its lock
_locked = threading.local()  # files that a thread has locked


@contextmanager
def locked(path: str | os.PathLike[str], *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Keep other processes and threads that lock a file out until the block ends; readers and `save` do not ask.

    What is locked is a hidden empty file beside it, ``.NAME.lock``, which stays: a process that is killed leaves no
    lock behind. Blocks for the same file may be nested. A file that does not exist is not locked. `waiting` is called
    once if another process or thread has the lock, before waiting for it.
    """
    filelock = require("filelock", "app", "Changing a file that other programs may change")
    target = Path(os.path.realpath(path))
    by_thread = _locked.__dict__.setdefault("files", set())
    if target in by_thread or not target.exists():
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
    by_thread.add(target)
    try:
        yield
    finally:
        by_thread.discard(target)
        lock.release()


class FileChanged(BagwiseError):
    """A file was changed or removed by another program since it was read, and is not replaced."""

    def __init__(self, path: Path, removed: bool) -> None:
        super().__init__(
            f"{path} was {'removed' if removed else 'changed'} by another program since it was read, and is left as it "
            "is. Open it again, and repeat the change."
        )
        self.removed = removed


class EditedFile:
    """A file that is read after this and then changed; what another program writes in between is never replaced."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._stamp = _content_stamp(self.path)

    @classmethod
    @contextmanager
    def changing(
        cls, path: str | os.PathLike[str], *, waiting: Callable[[], None] | None = None
    ) -> Iterator[EditedFile]:
        """Open a file that is read, changed and saved in this block, while others that change it wait; see `locked`."""
        with locked(path, waiting=waiting):
            yield cls(path)

    def save(self, changed: Any) -> None:
        """Replace the file by a changed model or index; raise `FileChanged` if it is not what was read or saved."""
        with locked(self.path):  # nobody changes it between the look at it and the new file
            stamp = _content_stamp(self.path)
            if stamp != self._stamp:
                raise FileChanged(self.path, removed=stamp is None)
            changed.save(self.path)
            self._stamp = _content_stamp(self.path)


def _content_stamp(path: Path) -> tuple[int, bytes] | None:
    """Return the size and a hash of all bytes of a file; None if there is none. Of a folder, they say nothing.

    Times and numbers of files do not tell: of two writers within a tick of the clock both have the same time, and a
    number is given again to the next file. A file that got other rights, or was copied back, is the same.
    """
    try:
        if path.is_dir():
            return 0, b""
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).digest()
            return file.tell(), digest
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BagwiseError(f"{path} cannot be read: {error.strerror or error}.") from error
