"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def open_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open `path` for writing: at any time, also after a crash, the old file or the whole new one is there.

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
