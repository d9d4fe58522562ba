"""Files of `BagIndex`: blocks, identifiers and cells, mapped rather than read, and checked.

Blocks lie one after the other: inverted lists in ``starts``, ``items`` and ``values``, dense rows in ``dense``. Tensors
that are mapped are not looked at. Whatever they hold, compiled code stays inside its arrays: an entry of a list has 16
bits, and there is space for all items that these can name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import FileKind, PackedStrings, Pieces, header_field, tensor
from bagwise.errors import BagwiseError
from bagwise.retrieval.blocks import Block, DenseBlock, InvertedBlock
from bagwise.retrieval.candidates import Cells
from bagwise.retrieval.histograms import BLOCK_ITEMS
from bagwise.retrieval.identifiers import Identifiers

FILE = FileKind(
    "bagwise.BagIndex",
    {
        "parameters": header_field("object"),  # of the constructor
        "metadata": header_field("object"),
        "n_words": header_field("integer null", low=1, high=2**31 - 1),
        "ids": header_field("string null", choices=("int", "str")),
        "next_number": header_field("integer", low=0, high=2**63),
    },
    {
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
    },
)
_MAX_METADATA = 1 << 16


def blocks_to_tensors(blocks: list[Block], n_words: int) -> dict[str, NDArray[Any] | Pieces]:
    """Return the tensors of blocks. Those that are mapped are written piece by piece."""
    inverted = [block for block in blocks if isinstance(block, InvertedBlock)]
    dense = [block for block in blocks if isinstance(block, DenseBlock)]
    n_values = sum(len(block.values) for block in inverted)

    return {
        "sizes": np.array([len(block) for block in blocks], dtype=np.int64),
        "is_dense": np.array([isinstance(block, DenseBlock) for block in blocks], dtype=np.uint8),
        "starts": Pieces(
            np.dtype("i8"), (len(inverted), n_words + 1), [block.starts[np.newaxis] for block in inverted]
        ),
        "totals": Pieces(np.dtype("f8"), (sum(map(len, blocks)),), [block.totals for block in blocks]),
        "items": Pieces(np.dtype("u2"), (n_values,), [block.items for block in inverted]),
        "values": Pieces(np.dtype("f4"), (n_values,), [block.values for block in inverted]),
        "dense": Pieces(np.dtype("f4"), (sum(map(len, dense)), n_words), [block.values for block in dense]),
    }


def blocks_from_tensors(tensors: Mapping[str, NDArray[Any]], n_words: int, verify: bool) -> list[Block]:
    """Undo `blocks_to_tensors`, for tensors that `FILE` accepts; `verify` looks at all entries of inverted lists."""
    if not all(array.flags.aligned for array in tensors.values()):
        raise BagwiseError("its tensors are not aligned to their item sizes")
    blocks = _read_blocks(tensors, n_words)
    for block in blocks:
        if verify and isinstance(block, InvertedBlock) and len(block.items):
            _check_items(block)
    return blocks


def ids_to_tensors(identifiers: Identifiers) -> dict[str, NDArray[Any]]:
    """Return the tensors of identifiers."""
    ids = identifiers.stored()
    strings = ids if isinstance(ids, PackedStrings) else PackedStrings.of(ids if identifiers.kind == "str" else [])
    numbers = np.empty(0, np.int64) if isinstance(ids, PackedStrings) or identifiers.kind == "str" else ids
    return {"id_numbers": numbers, "id_offsets": strings.offsets, "id_text": strings.text}


def ids_from_tensors(header: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]], verify: bool) -> Identifiers:
    """Undo `ids_to_tensors`; `verify` reads all strings."""
    kind, strings = header["ids"], PackedStrings(tensors["id_text"], tensors["id_offsets"])
    values = strings if kind == "str" else tensors["id_numbers"]
    if len(values) != len(tensors["totals"]):
        raise BagwiseError(f"it has {len(values)} identifiers; expected {len(tensors['totals'])}, one for each item")
    if verify:
        strings.tolist()
    return Identifiers(values if kind is not None else None, header["next_number"])


def cells_to_tensors(cells: Cells | None) -> dict[str, NDArray[Any]]:
    """Return the tensors of the cells of an approximate search, empty without any."""
    if cells is None:
        return {"centres": np.empty((0, 0), dtype=np.float32), "cell_of": np.empty(0, dtype=np.int32)}
    return {"centres": cells.centres, "cell_of": cells.cell_of}


def cells_from_tensors(tensors: Mapping[str, NDArray[Any]]) -> Cells | None:
    """Undo `cells_to_tensors`."""
    centres, cell_of = tensors["centres"], tensors["cell_of"]
    if centres.size == 0:
        return None
    if len(cell_of) != len(tensors["totals"]):
        raise BagwiseError(f"it has cells of {len(cell_of)} items; expected {len(tensors['totals'])}, or none")
    if cell_of.max() >= len(centres):
        raise BagwiseError(f"its items are in cell {cell_of.max()}; expected at most {len(centres) - 1}")
    return Cells(centres, cell_of)


def plain_metadata(metadata: Any) -> dict[str, Any]:
    """Return metadata; raise an error if JSON cannot hold them, or they are long."""
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


def _read_blocks(tensors: Mapping[str, NDArray[Any]], n_words: int) -> list[Block]:
    """Cut the tensors into blocks; all places where inverted lists begin lie inside of them."""
    sizes, is_dense, starts = tensors["sizes"], tensors["is_dense"], tensors["starts"]
    n_inverted, n_dense = int((is_dense == 0).sum()), int(sizes[is_dense == 1].sum())
    n_values, ends = len(tensors["values"]), starts[:, -1] if starts.size else np.empty(0, dtype=np.int64)
    sizes_read = (int(sizes.sum()), *starts.shape, *tensors["dense"].shape)
    expected = (len(tensors["totals"]), n_inverted, n_words + 1, n_dense, n_words)
    if sizes_read != expected:
        raise BagwiseError(f"its items, inverted lists and dense rows number {sizes_read}; expected {expected}")
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
