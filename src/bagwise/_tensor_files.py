"""Arrays in files: written whole or not at all, and read without trusting the file."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from bagwise._files import write_atomically
from bagwise.errors import BagwiseError

__all__ = ["read_tensors", "write_tensors"]


def write_tensors(
    path: str | os.PathLike[str], kind: str, schema: int, header: dict[str, Any], tensors: dict[str, NDArray[Any]]
) -> Path:
    """Write contiguous arrays to a safetensors file, atomically, with what they are in its metadata."""
    metadata = {"bagwise": json.dumps({"kind": kind, "schema": schema} | header)}
    return write_atomically(path, save_tensors(tensors, metadata=metadata))


def read_tensors(
    path: str | os.PathLike[str], kind: str, schema: int, names: Iterable[str]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read the header and the arrays that `write_tensors` wrote; what they hold is for the caller to check."""
    content = Path(path).read_bytes()
    shown, names = os.fspath(path), sorted(names)
    try:
        header = _read_header(content)
        tensors = load_tensors(content)
    except (SafetensorError, ValueError, KeyError, TypeError, struct.error) as error:
        writer = f"{kind.removeprefix('bagwise.')}.save"
        raise BagwiseError(f"{shown} is not a file written by {writer}: {error}") from error
    if header.get("kind") != kind:
        raise BagwiseError(f"{shown} holds {header.get('kind')!r}, not {kind!r}.")
    if header.get("schema") != schema:
        raise BagwiseError(
            f"{shown} has schema {header.get('schema')!r}, this version of bagwise reads {schema}. "
            "Upgrade bagwise to read it."
        )
    if sorted(tensors) != names:
        raise BagwiseError(f"{shown} holds the arrays {sorted(tensors)}, expected {names}.")
    return header, tensors


def _read_header(content: bytes) -> dict[str, Any]:
    """Read the metadata of a safetensors file without trusting the sizes it declares."""
    (length,) = struct.unpack("<Q", content[:8])
    if length > len(content) - 8:
        raise ValueError(f"its header declares {length} bytes, the file has {len(content)}")
    header = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["bagwise"])
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    return header
