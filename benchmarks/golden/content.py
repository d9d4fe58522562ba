"""What is kept of an output: short values as they are, of long ones a digest and, of real numbers, some sums.

Two outputs are compared by their paths and values. Integers and strings must be equal; real numbers are equal if they
differ by at most 1e-10 of the norm of the array, whose random sums with signs are kept.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np

TOLERANCE = 1e-10
_N_SUMS = 2
_KINDS = {"f": "real", "b": "int", "i": "int", "u": "int"}
_LONG = 100
# Members of headers and of JSON that say nothing about results, depend on the size of files (a model keeps as many
# hashes of its training items as take 1 % of it), or are known to go.
DROPPED = {"versions", "library", "schema", "kind", "created", "n_tables", "tables"}
DROPPED |= {"seconds", "timings", "memory", "free", "warm_up", "low", "high", "steps"}
DROPPED |= {"bytes", "bytes_before", "bytes_after", "n_bytes", "n_compared", "n_training_items", "training_items"}
DROPPED_TENSORS = {"item_hashes"}
_DTYPES = {"BOOL": "?", "U8": "u1", "I8": "i1", "U16": "u2", "I16": "i2", "F16": "f2", "U32": "u4", "I32": "i4"}
_DTYPES |= {"F32": "f4", "U64": "u8", "I64": "i8", "F64": "f8"}


def plain(text: str) -> str:
    """Return a text without the name of the folder that all is in."""
    return text.replace(os.getcwd(), "HERE")


def digest(content: bytes) -> str:
    """Return a short hash."""
    return f"#{hashlib.blake2b(content, digest_size=6).hexdigest()}"


def described(values: Any) -> Any:
    """Return the entry of an array: integers and strings with a digest; real numbers with norm and sums."""
    array = np.asarray(values)
    name = f"{_KINDS.get(array.dtype.kind, 'text')}{list(array.shape)}"
    if array.dtype.kind not in "biuf":
        members = array.ravel().tolist()
        texts = [plain(member) if isinstance(member, str) else json.dumps(member, default=repr) for member in members]
        content = "\0".join(texts).encode("utf-8", "surrogatepass")
        shown = json.dumps(", ".join(texts[:3])[:50], ensure_ascii=True)[1:-1]
        return f"{name} {shown}{'…' if len(content) > 50 else ''} {digest(content)}"
    if array.dtype.kind in "biu":
        flat = np.ascontiguousarray(array, np.int64).ravel()
        shown = " ".join(map(str, flat[:5].tolist()))
        return f"{name} {shown}{'…' if len(flat) > 5 else ''} {digest(flat.tobytes())}"
    flat = np.ascontiguousarray(array, np.float64).ravel()
    finite = np.isfinite(flat)
    if not finite.all():
        odd = np.where(np.isnan(flat), 2, np.sign(flat)).astype(np.int8)
        name += f" {np.count_nonzero(~finite)} not finite {digest(np.where(finite, 0, odd).tobytes())}"
    kept = np.where(finite, flat, 0.0) + 0.0  # no -0.0
    signs = np.random.default_rng([7, kept.size]).integers(0, 2, (_N_SUMS, kept.size)) * 2.0 - 1
    numbers = [float(f"{value:.14g}") for value in (np.linalg.norm(kept), *(signs @ kept))]
    return [name, digest(kept.tobytes()), *numbers]


def _short(value: Any) -> Any:
    """Return a value as it is, but for long texts."""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"{text[:_LONG]}… {digest(text.encode('utf-8', 'surrogatepass'))}" if len(text) > 4 * _LONG else text


def flattened(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield paths and entries of a JSON value; what is null or empty counts as not there."""
    if isinstance(value, Mapping):
        for name, member in value.items():
            if name not in DROPPED:
                yield from flattened(member, f"{path}/{name}")
    elif isinstance(value, (list, tuple)):
        yield from _column(list(value), path)
    elif isinstance(value, np.ndarray):
        yield path, described(value)
    elif value is not None:
        yield path, _short(value)


def _column(values: list[Any], path: str) -> Iterator[tuple[str, Any]]:
    """Yield the entries of a list; of objects, each member is one column."""
    if not values:
        return
    if any(isinstance(value, Mapping) for value in values):
        rows = [value if isinstance(value, Mapping) else {"": value} for value in values]
        yield f"{path}/n", len(rows)
        for name in dict.fromkeys(chain.from_iterable(rows)):
            if name not in DROPPED:
                yield from _column([row.get(name) for row in rows], f"{path}/*/{name}")
    elif any(isinstance(value, (list, tuple)) for value in values):
        if "." not in json.dumps(values) and len(json.dumps(values)) <= _LONG:
            yield path, values
            return
        lists = [value if isinstance(value, (list, tuple)) else [value] for value in values]
        yield f"{path}/lengths", described([len(value) for value in lists])
        yield from _column(list(chain.from_iterable(lists)), f"{path}/*")
    elif any(value is not None for value in values):
        numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
        real = any(isinstance(value, float) for value in values)  # kept by their number: their lengths are rounding
        if len(values) <= 6 if real else len(values) <= 2 or len(json.dumps(values)) <= _LONG:
            yield path, [_short(value) for value in values]
        else:
            yield path, described(np.array(values, dtype=None if numbers else object))


def read_tensors(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the header and the tensors of a safetensors file."""
    size = struct.unpack("<Q", content[:8])[0]
    entries, data = json.loads(content[8 : 8 + size]), memoryview(content)[8 + size :]
    header: dict[str, Any] = {}
    for name, text in entries.pop("__metadata__").items():
        if not name.startswith("crc32"):
            value = json.loads(text) if text[:1] in "{[" else text
            header |= value if isinstance(value, dict) else {name: value}
    tensors = {}
    for name, entry in entries.items():
        first, last = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[first:last], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return header, tensors


def file_entries(content: bytes) -> dict[str, Any]:
    """Return the entries of a file of the library; a file in a tensor of its own is one below its name."""
    header, tensors = read_tensors(content)
    found = dict(flattened(header, "header"))
    for name, array in tensors.items():
        if name in DROPPED_TENSORS:
            continue
        if array.dtype == np.uint8 and array.ndim == 1 and array[8:10].tobytes() == b'{"':
            found |= {f"{name}/{path}": value for path, value in file_entries(array.tobytes()).items()}
        elif array.dtype == np.uint8 and array.ndim == 1 and _is_text(array):
            text = array.tobytes().decode()
            found[f"tensor/{name}"] = f"text[{len(text)}] {text[:40]}… {digest(array.tobytes())}"
        elif array.size:
            found[f"tensor/{name}"] = described(array)
    return found


def _is_text(array: np.ndarray) -> bool:
    try:
        return len(array) > 0 and array.tobytes().decode().isprintable()
    except UnicodeDecodeError:
        return False


def without(entries: Mapping[str, Any], known: Mapping[str, Any], as_in: str) -> dict[str, Any]:
    """Return the entries that are not known already, and one that says that the others are."""
    different = {path: value for path, value in entries.items() if path not in known or not equal(value, known[path])}
    missing = sorted(known.keys() - entries.keys())
    said = f"{as_in}, but without {', '.join(missing)}" if missing else as_in
    return different | ({"as": said} if len(different) < len(entries) else {})


def difference(one: Any, other: Any) -> float:
    """Return 0 for the same, up to `TOLERANCE` for equal ones, and infinity for what cannot be compared."""
    if _is_number(one) and _is_number(other):
        return abs(one - other) / max(abs(one), abs(other), 1e-3) if one != other else 0.0
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        if str(one[:1]).startswith("['real[") and str(other[:1]).startswith("['real["):
            if one[0] != other[0]:
                return math.inf
            if one[1] == other[1]:
                return 0.0
            far = max(abs(a - b) for a, b in zip(one[2:], other[2:], strict=True))
            return max(far / max(one[2], other[2], 1e-300), 1e-17)  # other bytes
        return max((difference(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
    return 0.0 if one == other else math.inf


def equal(one: Any, other: Any) -> bool:
    """Return whether two entries are equal up to rounding."""
    return difference(one, other) <= TOLERANCE


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
