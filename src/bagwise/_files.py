"""Writing files so that a reader never sees half of one, and reading what they say of themselves."""

from __future__ import annotations

import json
import os
import secrets
import struct
from pathlib import Path
from typing import Any


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


def read_header(content: bytes) -> dict[str, Any]:
    """Read the metadata of a safetensors file without trusting the sizes it declares."""
    (length,) = struct.unpack("<Q", content[:8])
    if length > len(content) - 8:
        raise ValueError(f"its header declares {length} bytes, the file has {len(content)}")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["bagwise"])
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    return header
