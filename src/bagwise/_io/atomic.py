"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def open_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open `path` for writing: the old file or the whole new one is there at any time, also after a crash.

    The new file takes its name when the block ends without an exception; otherwise it is removed.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write `content` to `path`, wholly or not at all."""
    with open_atomically(path) as file:
        file.write(content)
    return Path(path)


@contextmanager
def make_folder_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a new folder to be filled, which takes the name `path` when the block ends without an exception.

    A folder of that name is replaced, whatever is in it. Where the system can exchange two names (Linux), the old or
    the whole new one is there at any time; elsewhere there is a moment between the two. After an exception the old one
    is as it was, and nothing of the new one is left.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    temporary.mkdir()
    try:
        yield temporary
        _put_in_place(temporary, target)
    finally:
        # what was not put in place, or what was there before
        shutil.rmtree(temporary, ignore_errors=True)


def _put_in_place(folder: Path, target: Path) -> None:
    """Give `folder` the name `target`. Afterwards the name `folder` may hold what was there before."""
    while True:
        with _if_free():
            os.rename(folder, target)
            return
        try:
            if _exchange(folder, target):
                return
            old = target.with_name(f".{target.name}.{secrets.token_hex(8)}.old")
            os.rename(target, old)
        except FileNotFoundError:  # another process is replacing it at this moment
            continue
        try:
            with _if_free():
                os.rename(folder, target)
                return
        except OSError:
            os.rename(old, target)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _if_free() -> Iterator[None]:
    """Do nothing about a name that is taken."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two folders in one step, and say whether this system can."""
    import ctypes

    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if renameat2 is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE
    if renameat2(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):  # an old kernel, or a file system without it
        return False
    raise OSError(number, os.strerror(number), os.fspath(other))
