"""Writing files so that a reader never sees half of one."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], content: bytes) -> Path:
    """Write `content` to `path`: the old file or the whole new one is there at any time, also after a crash."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return target
