"""Columns of collections as Arrow arrays: ids as bytes, labels and splits as codes.

Strings are stored as UTF-8; bytes of names that are no UTF-8, which Python holds as surrogates, as they are. Arrays are
made of buffers: `pyarrow.array` imports pandas, which takes as long as everything else, where it is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise._utils.hashing import STEP

__all__ = [
    "all_differ",
    "arrow",
    "as_array",
    "coded",
    "codes_of",
    "from_bytes",
    "item_table",
    "joined",
    "label_column",
    "label_sets_of",
    "mapped_codes",
    "numbers",
    "packed",
    "to_bytes",
]
__all__ += ["to_codes", "to_floats", "to_strings", "unpacked"]

# Strings that are hashed at a time; hashes are polynomials modulo 2⁶⁴ of this number, whose inverse it is.
_HASHED, _INVERSE = 1 << 12, pow(STEP, -1, 1 << 64)


def arrow() -> Any:
    """Import pyarrow; it is not imported before a collection is made."""
    return require("pyarrow", "app", "Opening collections")


def item_table(ids: Any, labels: Any = None, splits: Any = None, columns: Mapping[str, Any] | None = None) -> Any:
    """Make the table of a collection: columns id (bytes), label and split, and others, such as url, offset and size.

    Labels are tuples of strings or as of `label_column`, splits strings or as of `to_codes`; None: no item has one.
    """
    pa = arrow()
    ids = ids if hasattr(ids, "type") else to_bytes(ids)
    nothing = pa.DictionaryArray.from_arrays(pa.nulls(len(ids), pa.int32()), to_bytes([]))
    labels = nothing if labels is None else labels if hasattr(labels, "type") else label_column(labels)
    splits = nothing if splits is None else splits if hasattr(splits, "type") else to_codes(splits)
    return joined([pa.table({"id": ids, "label": labels, "split": splits, **(columns or {})})])


def joined(tables: Sequence[Any]) -> Any:
    """Return one table of the rows of several, which have the same columns; those of codes in one piece each."""
    table = arrow().concat_tables(tables).unify_dictionaries()
    for number, field in enumerate(table.schema):
        if arrow().types.is_dictionary(field.type):
            table = table.set_column(number, field.name, as_array(table.column(number)))
    return table


def all_differ(column: Any) -> bool:
    """Whether all values of a column of bytes differ for certain: hashes of 64 bits do, which take less memory."""
    hashes, n_hashed = np.empty(len(column), np.uint64), 0
    powers = inverses = hashes[:0]
    for chunk in column.chunks:
        width = np.int64 if arrow().types.is_large_binary(chunk.type) else np.int32
        ends = np.frombuffer(chunk.buffers()[1], width)[chunk.offset : chunk.offset + len(chunk) + 1]
        content = np.frombuffer(chunk.buffers()[2] or b"", np.uint8)
        for start in range(0, len(chunk), _HASHED):
            bounds = ends[start : start + _HASHED + 1]
            some, starts = content[bounds[0] : bounds[-1]], bounds - bounds[0]
            if len(some) >= len(powers):
                bases = (np.full(2 * len(some) + 1, base, np.uint64) for base in (STEP, _INVERSE))
                powers, inverses = map(np.multiply.accumulate, bases)
            sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(some * powers[: len(some)])])
            hashes[n_hashed : n_hashed + len(bounds) - 1] = np.diff(sums[starts]) * inverses[starts[:-1]]
            n_hashed += len(bounds) - 1
    hashes.sort()
    return bool((hashes[1:] != hashes[:-1]).all())


def to_bytes(values: Iterable[str | None]) -> Any:
    """Return strings as an Arrow array of bytes; None is null."""
    pa, values = arrow(), list(values)
    encoded = [b"" if one is None else _encoded(one) for one in values]
    ends = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), out=ends[1:])
    there = np.fromiter((one is not None for one in values), bool, len(values))
    buffers = [_validity(there), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_binary(), len(values), buffers)


def _validity(there: NDArray[np.bool_]) -> Any:
    return None if there.all() else arrow().py_buffer(np.packbits(there, bitorder="little"))


def _encoded(value: str) -> bytes:
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a pair of surrogates, as in broken JSON
        return value.encode("utf-8", "replace")


def from_bytes(value: bytes) -> str:
    """Return a string that was stored as bytes."""
    return value.decode("utf-8", "surrogateescape")


def to_strings(column: Any) -> list[Any]:
    """Return a column of bytes, strings or codes as a list of strings; null is None."""
    pa = arrow()
    if pa.types.is_dictionary(column.type):
        codes, values = codes_of(column)
        known = [*values, None]
        return [known[code] for code in codes.tolist()]
    try:
        return column.cast(pa.large_string()).to_pylist()
    except pa.ArrowInvalid:
        return [None if one is None else from_bytes(one) for one in column.to_pylist()]


def to_codes(values: Iterable[str | None]) -> Any:
    """Return strings as an Arrow array of codes and the different values; None is null."""
    code_of: dict[str | None, int] = {None: -1}
    codes = np.fromiter((code_of.setdefault(one, len(code_of) - 1) for one in values), np.int32)
    return coded(codes, list(code_of)[1:])  # type: ignore[arg-type]


def coded(codes: NDArray[np.int32], values: Sequence[str]) -> Any:
    """Return an Arrow array of codes, -1 is null, and their values."""
    return arrow().DictionaryArray.from_arrays(numbers(codes), to_bytes(values))


def numbers(values: NDArray[Any]) -> Any:
    """Return whole numbers as an Arrow array, below 0 is null."""
    pa = arrow()
    buffers = [_validity(values >= 0), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def mapped_codes(column: Any, values: Sequence[str | None]) -> Any:
    """Return an array of codes as that of other values, one for each of its own; None is null."""
    code_of: dict[str | None, int] = {None: -1}
    codes = np.array([*(code_of.setdefault(one, len(code_of) - 1) for one in values), -1], np.int32)
    return coded(codes[_codes(column.indices)], list(code_of)[1:])  # type: ignore[arg-type]


def codes_of(column: Any) -> tuple[NDArray[np.int32], list[str]]:
    """Return the codes of a column, -1 is null, and their values."""
    one = as_array(column)
    return _codes(one.indices), to_strings(one.dictionary)


def _codes(indices: Any) -> NDArray[np.int32]:
    buffer = np.frombuffer(indices.buffers()[1], str(indices.type))
    codes = buffer[indices.offset : indices.offset + len(indices)].astype(np.int32, copy=False)
    return np.where(_there(indices), codes, -1).astype(np.int32) if indices.null_count else codes


def _there(array: Any) -> NDArray[np.uint8]:
    """Return 1 where an array that has nulls has a value; `is_valid().to_numpy()` would import pandas."""
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)]


def to_floats(column: Any) -> NDArray[np.float64]:
    """Return a column of float64, NaN where it is null."""
    parts = [np.empty(0)]
    for chunk in column.chunks:
        buffer = np.frombuffer(chunk.buffers()[1], np.float64) if len(chunk) else parts[0]
        values = buffer[chunk.offset : chunk.offset + len(chunk)]
        parts.append(np.where(_there(chunk), values, np.nan) if chunk.null_count else values)
    return np.concatenate(parts)


def label_column(label_sets: Iterable[Sequence[str]]) -> Any:
    """Return the labels of items: codes, where items have at most one label, otherwise lists of codes."""
    pa, label_sets = arrow(), list(label_sets)
    if all(len(labels) < 2 for labels in label_sets):
        return to_codes(labels[0] if labels else None for labels in label_sets)
    starts = np.cumsum([0, *map(len, label_sets)])
    return pa.LargeListArray.from_arrays(numbers(starts), to_codes(one for labels in label_sets for one in labels))


def label_sets_of(column: Any) -> tuple[NDArray[np.int32], list[tuple[str, ...]]]:
    """Return a code for each item, and the labels that each code stands for; the last ones are none, code -1."""
    one = as_array(column)
    if arrow().types.is_dictionary(one.type):
        codes, values = codes_of(one)
        return codes, [*((value,) for value in values), ()]
    flat, values = codes_of(one.flatten())
    starts = one.offsets.to_numpy() - one.offsets[0].as_py()
    code_of: dict[tuple[str, ...], int] = {(): -1}
    labels = (tuple(values[code] for code in flat[a:b].tolist()) for a, b in pairwise(starts.tolist()))
    codes = np.fromiter((code_of.setdefault(some, len(code_of) - 1) for some in labels), np.int32)
    return codes, [*list(code_of)[1:], ()]


def as_array(column: Any) -> Any:
    """Return a column of a table as an array."""
    if not hasattr(column, "chunks"):
        return column
    if column.num_chunks == 0:  # codes of nothing cannot be combined
        return arrow().nulls(0, column.type)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def packed(table: Any) -> bytes:
    """Return a table as bytes, with no other values of codes than those of its rows."""
    pa = arrow()
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            codes, _ = codes_of(table.column(number))
            used, new_codes = np.unique(codes, return_inverse=True)
            values = as_array(table.column(number)).dictionary.take(numbers(used[used >= 0]))
            new_codes = (new_codes - (used[:1] < 0).sum()).astype(np.int32)
            column = pa.DictionaryArray.from_arrays(numbers(new_codes), values)
            table = table.set_column(number, field.name, column)
    sink = pa.BufferOutputStream()
    codec = next((name for name in ("zstd", "lz4") if pa.Codec.is_available(name)), None)
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def unpacked(content: bytes) -> Any:
    """Return the table of bytes that `packed` gave."""
    return arrow().ipc.open_stream(content).read_all().combine_chunks()
