"""Files of `BagIndex`: blocks, identifiers and cells, mapped rather than read, and nothing believed.

Blocks lie one after the other: lists in ``starts``, ``items`` and ``values``, dense rows in ``dense``. What is mapped
is not gone through. Whatever it holds, compiled code stays inside its arrays, for an entry of a list has 16 bits and
there is place for all of them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import ArraySource, file_of, open_arrays, write_arrays
from bagwise.errors import BagwiseError
from bagwise.retrieval._index_kernels import BLOCK_ITEMS
from bagwise.retrieval.blocks import Block, DenseBlock, ListBlock
from bagwise.retrieval.candidates import Cells
from bagwise.retrieval.identifiers import Identifiers, PackedStrings

__all__ = ["SavedIndex", "read_index", "write_index"]

_KIND = "bagwise.BagIndex"
_SCHEMA = 1
_LAYOUT: dict[str, tuple[np.dtype[Any] | None, int]] = {
    name: (np.dtype(code), ndim)
    for name, code, ndim in [
        ("sizes", "<i8", 1),  # items of each block
        ("is_dense", "|u1", 1),
        ("starts", "<i8", 2),  # one row for each block of lists
        ("totals", "<f8", 1),
        ("items", "<u2", 1),
        ("values", "<f4", 1),
        ("dense", "<f4", 2),
        ("id_numbers", "<i8", 1),
        ("id_offsets", "<i8", 1),
        ("id_text", "|u1", 1),
        ("centres", "<f4", 2),
        ("cell_of", "<i4", 1),
    ]
}
_MAPPED = ("totals", "items", "values", "dense", "id_numbers", "id_offsets", "id_text")
_LONGEST_METADATA = 1 << 16


@dataclass(frozen=True)
class SavedIndex:
    """What a file holds of an index.

    Parameters
    ----------
    parameters : dict
        Of the constructor, as JSON holds them.
    metadata : dict
    n_words : int or None
    blocks : list of Block
    identifiers : Identifiers
    cells : Cells or None
    """

    parameters: dict[str, Any]
    metadata: dict[str, Any]
    n_words: int | None
    blocks: list[Block]
    identifiers: Identifiers
    cells: Cells | None


def write_index(path: str | os.PathLike[str], saved: SavedIndex) -> Path:
    """Write an index to a file, wholly or not at all."""
    target = file_of(path, "an index is")
    lists = [block for block in saved.blocks if isinstance(block, ListBlock)]
    dense = [block for block in saved.blocks if isinstance(block, DenseBlock)]
    n_words, n_values = saved.n_words or 0, sum(len(block.values) for block in lists)
    ids = saved.identifiers.packed()
    texts = ids if isinstance(ids, PackedStrings) else PackedStrings.of(np.empty(0, dtype=object))
    numbers = np.empty(0, dtype=np.int64) if isinstance(ids, PackedStrings) else ids
    cells = saved.cells or Cells(np.empty((0, 0), dtype=np.float32), np.empty(0, dtype=np.int32))
    n_dense = sum(len(block) for block in dense)
    n_items = sum(len(block) for block in saved.blocks)
    arrays = {
        "sizes": ArraySource.of(np.array([len(block) for block in saved.blocks], dtype=np.int64)),
        "is_dense": ArraySource.of(np.array([isinstance(b, DenseBlock) for b in saved.blocks], dtype=np.uint8)),
        "starts": _source("starts", (len(lists), n_words + 1), [block.starts[np.newaxis] for block in lists]),
        "totals": _source("totals", (n_items,), [block.totals for block in saved.blocks]),
        "items": _source("items", (n_values,), [block.items for block in lists]),
        "values": _source("values", (n_values,), [block.values for block in lists]),
        "dense": _source("dense", (n_dense, n_words), [block.values for block in dense]),
        "id_numbers": ArraySource.of(numbers),
        "id_offsets": ArraySource.of(texts.offsets),
        "id_text": ArraySource.of(texts.text),
        "centres": ArraySource.of(cells.centres),
        "cell_of": ArraySource.of(cells.cell_of),
    }
    header = {
        "parameters": saved.parameters,
        "metadata": _plain_metadata(saved.metadata),
        "n_words": saved.n_words,
        "ids": saved.identifiers.kind,
        "next_number": saved.identifiers.next_number,
    }
    return write_arrays(target, _KIND, _SCHEMA, header, arrays)


def read_index(path: str | os.PathLike[str], mmap: bool) -> SavedIndex:
    """Open a file that `write_index` wrote; parameters are for the caller to check."""
    header, arrays = open_arrays(file_of(path, "an index is"), _KIND, _SCHEMA, _LAYOUT, _MAPPED if mmap else ())
    try:
        if not all(array.flags.aligned for array in arrays.values()):
            raise BagwiseError("its arrays do not lie where they can be used")
        n_words = _whole(header, "n_words", 1, 2**31 - 1) if header["n_words"] is not None else None
        blocks = _blocks(arrays, n_words or 0)
        if not mmap:
            for block in blocks:
                _check_contents(block)
        identifiers = _identifiers(header, arrays, len(arrays["totals"]))
        parameters, metadata = dict(header["parameters"]), dict(header["metadata"])
        return SavedIndex(parameters, metadata, n_words, blocks, identifiers, _cells(arrays))
    except (BagwiseError, KeyError, TypeError, ValueError) as error:
        raise BagwiseError(f"{os.fspath(path)} is damaged: {error}") from error


def _source(name: str, shape: tuple[int, ...], parts: list[NDArray[Any]]) -> ArraySource:
    dtype = _LAYOUT[name][0]
    assert dtype is not None
    return ArraySource(dtype, shape, parts)


def _plain_metadata(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, dict):
        raise BagwiseError(f"metadata must be a dict, got {type(metadata).__name__}.")
    try:
        text = json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BagwiseError(
            f"metadata must hold what JSON can hold: strings, finite numbers, lists and dicts of these; {error}."
        ) from error
    if len(text) > _LONGEST_METADATA:
        raise BagwiseError(f"metadata takes {len(text)} bytes as JSON, at most {_LONGEST_METADATA} are kept.")
    return metadata


def _whole(header: dict[str, Any], name: str, lowest: int, highest: int) -> int:
    value = header[name]
    if type(value) is not int or not lowest <= value <= highest:
        raise BagwiseError(f"its {name} is {value!r}, expected an integer from {lowest} to {highest}")
    return value


def _blocks(arrays: dict[str, NDArray[Any]], n_words: int) -> list[Block]:
    """Cut the arrays into blocks; all places that lists begin at lie inside of them."""
    sizes, is_dense, starts = arrays["sizes"], arrays["is_dense"], arrays["starts"]
    if len(is_dense) != len(sizes) or (is_dense > 1).any():
        raise BagwiseError(f"it says of {len(is_dense)} blocks how they are kept, and has {len(sizes)}")
    if len(sizes) and (sizes.min() < 1 or sizes.max() > BLOCK_ITEMS):
        raise BagwiseError(f"its blocks hold {sizes.min()} to {sizes.max()} items, expected 1 to {BLOCK_ITEMS}")
    if sizes.sum() != len(arrays["totals"]):
        raise BagwiseError(f"its blocks hold {sizes.sum()} items, but it has totals of {len(arrays['totals'])}")
    n_lists, n_dense = int((is_dense == 0).sum()), int(sizes[is_dense == 1].sum())
    if starts.shape != (n_lists, n_words + 1) or arrays["dense"].shape != (n_dense, n_words):
        raise BagwiseError(
            f"its lists have shape {starts.shape} and its dense rows {arrays['dense'].shape}, "
            f"expected ({n_lists}, {n_words + 1}) and ({n_dense}, {n_words})"
        )
    n_values = len(arrays["values"])
    if starts.size and ((starts[:, 0] != 0).any() or (starts < 0).any() or (np.diff(starts, axis=1) < 0).any()):
        raise BagwiseError("its lists do not follow each other")
    ends = starts[:, -1] if starts.size else np.empty(0, dtype=np.int64)
    if (ends > n_values).any() or ends.sum() != n_values or len(arrays["items"]) != n_values:
        raise BagwiseError(
            f"its lists have {n_values} values and {len(arrays['items'])} items, which is not where they end"
        )
    blocks: list[Block] = []
    item = value = row = number = 0
    for size, dense in zip(sizes.tolist(), is_dense.tolist(), strict=True):
        totals = arrays["totals"][item : item + size]
        item += size
        if dense:
            blocks.append(DenseBlock(arrays["dense"][row : row + size], totals))
            row += size
        else:
            places = slice(value, value + int(ends[number]))
            blocks.append(ListBlock(starts[number], arrays["items"][places], arrays["values"][places], totals))
            value, number = places.stop, number + 1
    return blocks


def _check_contents(block: Block) -> None:
    """Go through a block that was read."""
    if not (np.isfinite(block.values).all() and np.isfinite(block.totals).all()):
        raise BagwiseError("it holds numbers that are not finite")
    if isinstance(block, ListBlock) and len(block.items):
        if block.items.max() >= len(block):
            raise BagwiseError(f"a list names item {block.items.max()} of {len(block)}")
        begins = np.zeros(len(block.items), dtype=bool)
        begins[block.starts[:-1][block.starts[:-1] < len(begins)]] = True
        if not (begins[1:] | (block.items[1:] > block.items[:-1])).all():
            raise BagwiseError("the items of a list do not rise")


def _identifiers(header: dict[str, Any], arrays: dict[str, NDArray[Any]], n_items: int) -> Identifiers:
    kind, next_number = header["ids"], _whole(header, "next_number", 0, 2**63)
    if kind not in ("int", "str", None):
        raise BagwiseError(f"its identifiers are {kind!r}, expected 'int' or 'str'")
    texts = PackedStrings(arrays["id_text"], arrays["id_offsets"])
    offsets = texts.offsets
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != len(texts.text) or (offsets[1:] < offsets[:-1]).any():
        raise BagwiseError("the places of its identifiers do not rise to their end")
    values = texts if kind == "str" else arrays["id_numbers"]
    if len(values) != n_items:
        raise BagwiseError(f"it has {len(values)} identifiers of {n_items} items")
    return Identifiers(values if kind is not None else None, next_number)


def _cells(arrays: dict[str, NDArray[Any]]) -> Cells | None:
    centres, cell_of = arrays["centres"], arrays["cell_of"]
    if centres.size == 0:
        return None
    if len(cell_of) != len(arrays["totals"]) or not np.isfinite(centres).all():
        raise BagwiseError(f"it has cells of {len(cell_of)} items, expected {len(arrays['totals'])}, or none")
    if cell_of.min() < 0 or cell_of.max() >= len(centres):
        raise BagwiseError(f"its items are in cells {cell_of.min()} to {cell_of.max()} of {len(centres)}")
    return Cells(centres, cell_of)
