"""Files of `BagIndex`: blocks, identifiers and cells, mapped rather than read, and checked.

Blocks lie one after the other: inverted lists in ``starts``, ``items`` and ``values``, dense rows in ``dense``. Tensors
that are mapped are not looked at. Whatever they hold, compiled code stays inside its arrays: an entry of a list has 16
bits, and there is space for all items that these can name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import Chunks, PackedStrings, tensor
from bagwise.errors import BagwiseError
from bagwise.retrieval._plain import BLOCK_ITEMS
from bagwise.retrieval.blocks import Block, DenseBlock, InvertedBlock
from bagwise.retrieval.candidates import Cells
from bagwise.retrieval.identifiers import Identifiers

KIND, SCHEMA = "bagwise.BagIndex", 1
TENSORS = {
    "sizes": tensor("int64", "n_blocks", low=1, high=BLOCK_ITEMS),  # items of each block
    "is_dense": tensor("uint8", "n_blocks", high=1),
    "starts": tensor("int64", "n_inverted_blocks", "n_words + 1"),
    "totals": tensor("float64", "n_items", finite=True, mapped=True),
    "items": tensor("uint16", "n_values", mapped=True),
    "values": tensor("float32", "n_values", finite=True, mapped=True),
    "dense": tensor("float32", "n_dense", "n_words", finite=True, mapped=True),
    "id_numbers": tensor("int64", "n_numbers", mapped=True),
    "id_offsets": tensor("int64", "n_strings + 1", mapped=True),
    "id_text": tensor("uint8", "n_bytes", mapped=True),
    "centres": tensor("float32", "n_cells", "n_features", finite=True),
    "cell_of": tensor("int32", "n_cell_items", low=0),
}
_MAX_METADATA = 1 << 16


class SavedIndex(NamedTuple):
    """What a file holds of an index."""

    parameters: dict[str, Any]  # of the constructor, as JSON holds them
    metadata: dict[str, Any]
    n_words: int | None
    blocks: list[Block]
    identifiers: Identifiers
    cells: Cells | None


def index_to_tensors(saved: SavedIndex) -> tuple[dict[str, Any], dict[str, NDArray[Any] | Chunks]]:
    """Give header and tensors of an index. Blocks that are mapped are written piece by piece."""
    inverted = [block for block in saved.blocks if isinstance(block, InvertedBlock)]
    dense = [block for block in saved.blocks if isinstance(block, DenseBlock)]
    n_words, n_values = saved.n_words or 0, sum(len(block.values) for block in inverted)
    ids = saved.identifiers.stored()
    if saved.identifiers.kind == "str" and not isinstance(ids, PackedStrings):
        ids = PackedStrings.of(ids)
    strings = ids if isinstance(ids, PackedStrings) else PackedStrings.of([])
    cells = saved.cells or Cells(np.empty((0, 0), dtype=np.float32), np.empty(0, dtype=np.int32))

    def chunks(name: str, shape: tuple[int, ...], parts: list[NDArray[Any]]) -> Chunks:
        return Chunks(TENSORS[name].dtypes[0], shape, parts)

    tensors: dict[str, NDArray[Any] | Chunks] = {
        "sizes": np.array([len(block) for block in saved.blocks], dtype=np.int64),
        "is_dense": np.array([isinstance(block, DenseBlock) for block in saved.blocks], dtype=np.uint8),
        "starts": chunks("starts", (len(inverted), n_words + 1), [block.starts[np.newaxis] for block in inverted]),
        "totals": chunks("totals", (sum(map(len, saved.blocks)),), [block.totals for block in saved.blocks]),
        "items": chunks("items", (n_values,), [block.items for block in inverted]),
        "values": chunks("values", (n_values,), [block.values for block in inverted]),
        "dense": chunks("dense", (sum(map(len, dense)), n_words), [block.values for block in dense]),
        "id_numbers": np.empty(0, dtype=np.int64) if isinstance(ids, PackedStrings) else ids,
        "id_offsets": strings.offsets,
        "id_text": strings.text,
        "centres": cells.centres,
        "cell_of": cells.cell_of,
    }
    header = {
        "parameters": saved.parameters,
        "metadata": _plain_metadata(saved.metadata),
        "n_words": saved.n_words,
        "ids": saved.identifiers.kind,
        "next_number": saved.identifiers.next_number,
    }
    return header, tensors


def index_from_tensors(header: Mapping[str, Any], tensors: dict[str, NDArray[Any]], verify: bool) -> SavedIndex:
    """Undo `index_to_tensors`, for tensors that `TENSORS` accepts; parameters are for the caller to check.

    With `verify`, all entries of inverted lists are looked at.
    """
    try:
        if not all(array.flags.aligned for array in tensors.values()):
            raise BagwiseError("its tensors are not aligned to their item sizes")
        n_words = _integer(header, "n_words", 1, 2**31 - 1) if header["n_words"] is not None else None
        blocks = _read_blocks(tensors, n_words or 0)
        for block in blocks:
            if verify and isinstance(block, InvertedBlock) and len(block.items):
                _check_items(block)
        identifiers = _read_identifiers(header, tensors)
        if verify:
            for first in range(0, len(identifiers), BLOCK_ITEMS):  # are they text
                identifiers.take(np.arange(first, min(first + BLOCK_ITEMS, len(identifiers))))
        parameters, metadata = dict(header["parameters"]), dict(header["metadata"])
        for name, value in parameters.items():
            if type(value) is int and abs(value) >= 2**63:
                raise BagwiseError(f"its {name!s:.40} is {value!r:.40}; expected an integer of 64 bits")
        return SavedIndex(parameters, metadata, n_words, blocks, identifiers, _read_cells(tensors))
    except (KeyError, TypeError, ValueError) as error:
        raise BagwiseError(f"is damaged: {error}") from error


def _plain_metadata(metadata: Any) -> dict[str, Any]:
    if not isinstance(metadata, dict):
        raise BagwiseError(f"metadata must be a dict, got {type(metadata).__name__}.")
    try:
        text = json.dumps(metadata, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BagwiseError(
            f"metadata must hold what JSON can hold: strings, finite numbers, lists and dicts of these; {error}."
        ) from error
    if len(text) > _MAX_METADATA:
        raise BagwiseError(f"metadata takes {len(text)} bytes as JSON, at most {_MAX_METADATA} are accepted.")
    return metadata


def _integer(header: Mapping[str, Any], name: str, lowest: int, highest: int) -> int:
    value = header[name]
    if type(value) is not int or not lowest <= value <= highest:
        raise BagwiseError(f"its {name} is {value!r}; expected an integer from {lowest} to {highest}")
    return value


def _read_blocks(tensors: dict[str, NDArray[Any]], n_words: int) -> list[Block]:
    """Cut the tensors into blocks; all places where inverted lists begin lie inside of them."""
    sizes, is_dense, starts = tensors["sizes"], tensors["is_dense"], tensors["starts"]
    n_inverted, n_dense = int((is_dense == 0).sum()), int(sizes[is_dense == 1].sum())
    n_values, ends = len(tensors["values"]), starts[:, -1] if starts.size else np.empty(0, dtype=np.int64)
    found = (int(sizes.sum()), *starts.shape, *tensors["dense"].shape)
    expected = (len(tensors["totals"]), n_inverted, n_words + 1, n_dense, n_words)
    if found != expected:
        raise BagwiseError(f"its items, inverted lists and dense rows number {found}; expected {expected}")
    if starts.size and ((starts[:, 0] != 0).any() or (starts < 0).any() or (np.diff(starts, axis=1) < 0).any()):
        raise BagwiseError("its starts of inverted lists must rise from 0")
    if (ends > n_values).any() or ends.sum() != n_values:
        raise BagwiseError(f"its inverted lists end at {ends.tolist()[:5]}; expected a sum of {n_values} values")
    blocks: list[Block] = []
    item = value = row = number = 0
    for size, dense in zip(sizes.tolist(), is_dense.tolist(), strict=True):
        totals = tensors["totals"][item : item + size]
        item += size
        if dense:
            blocks.append(DenseBlock(totals, tensors["dense"][row : row + size]))
            row += size
        else:
            places = slice(value, value + int(ends[number]))
            blocks.append(InvertedBlock(totals, starts[number], tensors["items"][places], tensors["values"][places]))
            value, number = places.stop, number + 1
    return blocks


def _check_items(block: InvertedBlock) -> None:
    """Check the inverted lists of a block that was read."""
    if block.items.max() >= len(block):
        raise BagwiseError(f"its items name item {block.items.max()} of {len(block)} in a block")
    begins = np.zeros(len(block.items) + 1, dtype=bool)
    begins[block.starts] = True
    if not (begins[1:-1] | (block.items[1:] > block.items[:-1])).all():
        raise BagwiseError("its items must rise in each inverted list")


def _read_identifiers(header: Mapping[str, Any], tensors: dict[str, NDArray[Any]]) -> Identifiers:
    kind, next_number = header["ids"], _integer(header, "next_number", 0, 2**63)
    if kind not in ("int", "str", None):
        raise BagwiseError(f"its identifiers are {kind!r}; expected 'int' or 'str'")
    strings = PackedStrings(tensors["id_text"], tensors["id_offsets"])
    values = strings if kind == "str" else tensors["id_numbers"]
    if len(values) != len(tensors["totals"]):
        raise BagwiseError(f"it has {len(values)} identifiers; expected {len(tensors['totals'])}, one for each item")
    return Identifiers(values if kind is not None else None, next_number)


def _read_cells(tensors: dict[str, NDArray[Any]]) -> Cells | None:
    centres, cell_of = tensors["centres"], tensors["cell_of"]
    if centres.size == 0:
        return None
    if len(cell_of) != len(tensors["totals"]):
        raise BagwiseError(f"it has cells of {len(cell_of)} items; expected {len(tensors['totals'])}, or none")
    if cell_of.max() >= len(centres):
        raise BagwiseError(f"its items are in cell {cell_of.max()}; expected at most {len(centres) - 1}")
    return Cells(centres, cell_of)
