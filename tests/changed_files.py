"""Change the tensors or the header of a file, as another program or a damaged disk would."""

import json
import zlib

import numpy as np
from safetensors.numpy import save_file

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "U16": "<u2", "U8": "|u1"}
TYPES |= {"BOOL": "|b1"}


def read_parts(path):
    """The entries of tensors with their metadata, and the bytes of all tensors."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])


def write_parts(path, entries, data):
    text = json.dumps(entries).encode()
    text = text.ljust(-(-(8 + len(text)) // 64) * 64 - 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def checksums(entries, data):
    """The members of the metadata that tensors of these places need, also where these are absurd."""
    places = {name: entry.get("data_offsets") if isinstance(entry, dict) else None for name, entry in entries.items()}
    sound = {
        name: place if isinstance(place, list) and len(place) == 2 and all(type(n) is int for n in place) else (0, 0)
        for name, place in places.items()
    }
    return {f"crc32.{name}": f"{zlib.crc32(bytes(data[slice(*place)])):08x}" for name, place in sound.items()}


def write_arrays(path, arrays, about):
    """Write a file of arrays with this header, laid out by safetensors."""
    save_file(arrays, path, metadata={"bagwise": json.dumps(about)})
    entries, data = read_parts(path)
    metadata = entries.pop("__metadata__")
    write_parts(path, {"__metadata__": metadata | checksums(entries, data), **entries}, data)


def change_header(path, change):
    """Let `change` change the header."""
    entries, data = read_parts(path)
    about = json.loads(entries["__metadata__"]["bagwise"])
    change(about)
    entries["__metadata__"]["bagwise"] = json.dumps(about)
    write_parts(path, entries, data)


def change_tensor(path, name, change, *, checksum="right"):
    """Let `change` change a tensor in place.

    Its checksum becomes that of the new bytes ("right"), or stays as it is ("old").
    """
    entries, data = read_parts(path)
    first, last = entries[name]["data_offsets"]
    array = np.frombuffer(bytes(data[first:last]), TYPES[entries[name]["dtype"]]).reshape(entries[name]["shape"]).copy()
    change(array)
    data[first:last] = array.tobytes()
    if checksum == "right":
        entries["__metadata__"][f"crc32.{name}"] = f"{zlib.crc32(array.tobytes()):08x}"
    write_parts(path, entries, data)
    return path
