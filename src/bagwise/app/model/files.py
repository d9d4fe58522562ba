"""Files of models. ``docs/model-file.md`` has the format."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import bagwise
from bagwise._io.tensors import FileKind, PackedStrings, kind_of
from bagwise._utils.json_text import check_depth, parse_json
from bagwise.app.model.compact import encoded_rows, encoded_weights, groups_of
from bagwise.app.model.editing import MOST_BYTES, Unedited
from bagwise.app.model.parts import Head, PathErrors
from bagwise.codebooks.pyramids import n_cells
from bagwise.descriptors.registry import descriptor_class
from bagwise.errors import BagwiseError
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy
from bagwise.runtime import (
    HASH_BITS,
    KIND,
    LARGEST,
    LOW_BITS,
    OPTIONAL,
    PATTERN,
    ModelFileError,
    check_classes,
    check_pattern,
    check_sizes,
    codebook_names,
    decoded_rows,
    decoded_weights,
    is_accepted_pattern,
    name_of,
    read_model_file,
    scale_name,
)
from bagwise.runtime_network import joined, split

__all__ = ["INDEX_KIND", "is_item_index", "model_bytes"]
__all__ += ["parts_of", "read_model", "write_model"]

_FILE = FileKind(KIND, None, None)  # `bagwise.runtime` describes and checks it
INDEX_KIND = "bagwise.ItemIndex"  # of files that hold a model

# The part of a file that hashes of training items may take; bytes of their entry in its header.
_MOST_HASHED, _ENTRY = 0.01, 80

# Members of "unedited" that are objects or null.
_OBJECTS = ("calibration", "group_names", "derived_head")

_M = TypeVar("_M")


def write_model(path: str | os.PathLike[str], model: Any) -> Path:
    """Write a model to one file. See `Model.save`."""
    header, tensors = _parts_to_write(model)
    return _FILE.save(path, header, tensors)


def is_item_index(path: str | os.PathLike[str]) -> bool:
    """Whether a path holds an index, by its header."""
    return kind_of(path) == INDEX_KIND


def model_bytes(model: Any) -> bytes:
    """Return the bytes of a model's file, for other files that hold a model."""
    header, tensors = _parts_to_write(model)
    return _FILE.to_bytes(header, tensors)


def _parts_to_write(model: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays; raise an error if they could not be read back.

    Warns of a token pattern that has to be trusted.
    """
    header, tensors = parts_of(model)
    try:
        check_sizes(tensors)
        check_classes(header["classes"])
    except ModelFileError as error:
        raise BagwiseError(f"The model cannot be saved: {error}") from error
    pattern = model.tokenizer.get("token_pattern", PATTERN)
    if not is_accepted_pattern(pattern):
        warnings.warn(
            f"The token_pattern {pattern!r:.200} of this model is not one of those that are loaded from any file. Its "
            "file is loaded by Model.load(path, trust_pattern=True) alone. docs/model-file.md lists the patterns.",
            stacklevel=4,
        )
    return header, tensors


def read_model(
    source: str | os.PathLike[str] | NDArray[np.uint8],
    make: Callable[..., _M],
    *,
    trust_pattern: bool = False,
) -> _M:
    """Read a model from a path or from the bytes of a file; `make` takes the parameters of `Model` and checks them.

    A ``token_pattern`` that is not known to be fast (docs/model-file.md) is refused, unless `trust_pattern` is true.
    """
    try:
        header, tensors = read_model_file(source)
    except ModelFileError as error:
        raise BagwiseError(str(error)) from error
    try:
        check_sizes(tensors)
        model = make(**_parameters(header, tensors))
        if not trust_pattern:
            check_pattern(header["tokenizer"])
        return model
    except (BagwiseError, ModelFileError) as error:
        raise BagwiseError(f"{name_of(source)} cannot be read as a model: {error}") from error


def parts_of(model: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the header and the arrays of a model's file."""
    path = model.path
    records = [{"name": one.name, "parameters": one.parameters} for one in model.descriptors]
    header = {
        "library": f"bagwise {bagwise.__version__}",
        "items": model.modality,
        "vocabulary_size": model.hierarchy.n_words,
        "n_words": model.n_groups,
        "criterion": model.hierarchy.criterion,
        "descriptor": records if len(records) > 1 else records[0] if records else None,
        "tokenizer": model.tokenizer,
        "pyramid": [list(grid) for grid in model.pyramid],
        "normalize": list(model.normalize),
        "classes": list(model.classes),
        "heads": list(model.heads),
        "path": None if path is None else path.to_dict(),
        "options": model.options,
        "provenance": model.provenance,
    }
    weights, span = _weight_tensors(model)
    tensors = _group_tensors(model) | weights | _hash_tensors(model)
    copied = next((one.embedded for one in model.descriptors if one.embedded is not None), None)
    if copied is not None:
        tensors["network"] = joined(copied.tensors())
    if model.column_shift is not None:
        tensors["column_shift"] = model.column_shift
    if model.unedited is not None:
        tensors |= _edit_tensors(model)
    if model.group_statistics is not None:
        tensors["statistics"] = model.group_statistics.values
    header |= {name: value for name, value in (_optional(model) | span).items() if value != OPTIONAL[name]}
    for name, codebook in zip(codebook_names(model.layout.vocabularies), model.codebooks, strict=False):
        tensors |= _matrix_tensors(name, codebook, model.quantized)
    if model.word_totals is not None:
        tensors["word_totals"] = model.word_totals
    if model.word_names is not None:
        names = PackedStrings.of(model.word_names)
        tensors["names"], tensors["name_offsets"] = names.text, names.offsets
    for size, head in model.heads.items():
        tensors |= _matrix_tensors(f"head_{size}_coef", head.coef, model.quantized)
        tensors[f"head_{size}_intercept"] = head.intercept
    if model.item_hashes is not None:
        others = sum(array.nbytes for array in tensors.values()) + len(json.dumps(header))
        kept = model.item_hashes[: max(0, int(_MOST_HASHED * others) - _ENTRY) // 8]
        if len(kept):
            tensors["item_hashes"] = kept
    return header, tensors


def _matrix_tensors(name: str, matrix: NDArray[np.float32], quantized: bool) -> dict[str, NDArray[Any]]:
    """Return words or weights of classes; of a quantised model as 8-bit integers, if that changes none of them."""
    if quantized:
        integers, scales = encoded_rows(matrix)
        if np.array_equal(decoded_rows(integers, scales), matrix):
            return {name: integers, scale_name(name): scales}
    return {name: matrix}


def _group_tensors(model: Any) -> dict[str, NDArray[Any]]:
    """Return merges with their scores, or groups where merges say no more, with the merges of groups."""
    hierarchy = model.hierarchy
    if model.flattened is not None:
        rest = slice(hierarchy.n_words - model.flattened, None)
        dtype = np.uint8 if model.flattened <= 1 << 8 else np.uint16
        merges = {"merges": hierarchy.merges[rest].astype(np.int32), "scores": hierarchy.scores[rest]}
        return {"groups": hierarchy.cut(model.flattened).astype(dtype), **merges}
    one_cut = model.n_groups == hierarchy.min_groups and {*model.heads} <= {model.n_groups}
    edited = model.unedited is not None and model.unedited.hierarchy != hierarchy
    groups = groups_of(hierarchy) if one_cut and not edited else None
    if groups is None:
        return {"merges": hierarchy.merges.astype(np.int32), "scores": hierarchy.scores}
    dtype = np.uint8 if model.n_groups <= 1 << 8 else np.uint16
    return {"groups": groups.astype(dtype)}


def _edit_tensors(model: Any) -> dict[str, NDArray[Any]]:
    """Return the edits, and of what the model was before them what is not the same."""
    before, tensors = model.unedited, {"edits": np.frombuffer(json.dumps(model.edits).encode(), np.uint8)}
    if before.hierarchy != model.hierarchy:
        tensors["unedited_merges"] = before.hierarchy.merges.astype(np.int32)
        tensors["unedited_scores"] = before.hierarchy.scores
    for size, head in before.heads.items():
        if head != model.heads.get(size):
            tensors[f"unedited_head_{size}_coef"] = head.coef
            tensors[f"unedited_head_{size}_intercept"] = head.intercept
    return tensors


def _weight_tensors(model: Any) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the weights of words, as bytes if that changes none of them, and what the header has of them."""
    if model.word_weights is None:
        return {}, {}
    codes, span = encoded_weights(model.word_weights)
    if span[1] < LARGEST and np.array_equal(decoded_weights(codes, span), model.word_weights):
        return {"weight_codes": codes}, {"weight_range": span}
    return {"word_weights": model.word_weights}, {}


def _hash_tensors(model: Any) -> dict[str, NDArray[Any]]:
    """Return the lower bits of hashes of words, and where words with the same upper bits begin."""
    if model.word_hashes is None:
        return {}
    starts = np.searchsorted(model.word_hashes, np.arange((1 << HASH_BITS - LOW_BITS) + 1) << LOW_BITS)
    low = model.word_hashes & ((1 << LOW_BITS) - 1)
    return {"hashes": low.astype(np.uint16), "hash_starts": starts.astype(np.int32)}


def _optional(model: Any) -> dict[str, Any]:
    """Return the members of the header that are left out where they are those of `OPTIONAL`."""
    vocabularies = list(model.layout.vocabularies) if len(model.codebooks) > 1 else None
    before = model.unedited
    unedited = before and {
        "n_words": before.n_groups,
        "heads": list(before.heads),
        "path": None if before.path is None else before.path.to_dict(),
        "calibration": _by_text(before.calibration),
        "group_names": _by_text(before.given_names),
        "derived_head": before.derived_head,
    }
    assignment = [one.to_dict() for one in model.assignment]
    return {
        "term": model.term,
        "norm": model.norm,
        "vocabularies": vocabularies,
        "calibration": _by_text(model.calibration),
        "group_names": _by_text(model.given_names),
        "flattened": model.flattened,
        "unedited": unedited,
        "network": _network_header(model),
        "assignment": None if all(one["name"] == "hard" for one in assignment) else assignment,
    }


def _network_header(model: Any) -> dict[str, str] | None:
    """Return name, notice and licence of the network that the file holds; None if it holds none."""
    if all(one.embedded is None for one in model.descriptors):
        return None
    from bagwise.descriptors import efficientnet

    return {"name": efficientnet.NAME, "notice": efficientnet.notice()}


def _by_text(values: Mapping[int, Any]) -> dict[str, Any] | None:
    """Return a mapping with the texts of its numbers, as JSON has them; None if it is empty."""
    return {str(number): value for number, value in values.items()} or None


def _by_number(values: Mapping[str, Any] | None) -> dict[int, Any]:
    """Return the mapping of `_by_text`."""
    if any(re.fullmatch("[0-9]{1,9}", number) is None for number in values or {}):
        raise BagwiseError(f"Members must be numbers; got {list(values or {})!r:.100}.")
    return {int(number): value for number, value in (values or {}).items()}


def _parameters(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Turn a header and arrays into parameters of `Model`. Types and shapes of the arrays were checked before."""
    if not isinstance(header["criterion"], str) or not isinstance(header["library"], str):
        raise BagwiseError("Criterion and library must be texts.")
    descriptor = header["descriptor"]
    if descriptor is not None:
        entries = descriptor if header["vocabularies"] and isinstance(descriptor, list) else [descriptor]
        fields = [_fields(one, "descriptor", ("name", "parameters")) for one in entries]
        descriptor = [descriptor_class(one["name"]).from_parameters(one["parameters"]) for one in fields]
    if "network" in tensors:
        descriptor = _with_embedded(descriptor or [], tensors["network"])
    path = _path(header["path"])
    hierarchy = Hierarchy(header["vocabulary_size"], tensors["merges"], tensors["scores"], header["criterion"])
    edited = _edits(header, tensors) if header["unedited"] is not None or "edits" in tensors else {}
    return {
        "modality": header["items"],
        "hierarchy": hierarchy,
        "n_groups": header["n_words"],
        "descriptor": descriptor,
        "codebook": [tensors[name] for name in codebook_names(header["vocabularies"]) if name in tensors] or None,
        "assignment": header["assignment"],
        "word_names": PackedStrings(tensors["names"], tensors["name_offsets"]).tolist() if "names" in tensors else None,
        "word_hashes": tensors.get("word_hashes"),
        "word_totals": tensors.get("word_totals"),
        "tokenizer": header["tokenizer"],
        "pyramid": header["pyramid"],
        "term": header["term"],
        "word_weights": tensors.get("word_weights"),
        "column_shift": tensors.get("column_shift"),
        "given_names": _by_number(header["group_names"]),
        "flattened": header["flattened"],
        "norm": header["norm"],
        "normalize": header["normalize"],
        "classes": header["classes"],
        "heads": {n: _head(tensors, n) for n in header["heads"]},
        "calibration": _by_number(header["calibration"]),
        "path": path,
        "item_hashes": tensors.get("item_hashes"),
        "group_statistics": _statistics(edited["unedited"].hierarchy if edited else hierarchy, tensors),
        "quantized": any(name.endswith("_scale") for name in tensors),
        **edited,
        "options": header["options"],
        "provenance": header["provenance"],
    }


def _with_embedded(descriptors: list[Any], numbers: NDArray[np.float16]) -> list[Any]:
    """Give the copy of a network that a file holds to the descriptor that it is of."""
    from bagwise.descriptors.efficientnet import NetworkTensors

    copied = NetworkTensors(split(numbers))
    matching = [k for k, one in enumerate(descriptors) if getattr(one, "network", None) == f"sha256:{copied.sha256}"]
    if not matching:
        raise BagwiseError(f"It holds a network of the SHA-256 {copied.sha256}, which none of its descriptors has.")
    descriptors[matching[0]].set_params(network=copied)
    return descriptors


def _edits(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Return the edits, and what the model was before them. Readers that do not need them have not checked them."""
    before, d, changed = header["unedited"], header["vocabulary_size"], "unedited_merges" in tensors
    before = _fields(before, "unedited", ("n_words", "heads", "path", "calibration", "group_names", "derived_head"))
    sizes, named = before["heads"], all(isinstance(before[name], dict | None) for name in before if name in _OBJECTS)
    counts = isinstance(sizes, list) and all(type(size) is int and 0 < size <= d for size in sizes)
    if not named or not counts or len(set(sizes)) < len(sizes):
        raise BagwiseError(f"Its unedited cannot be {before!r:.200}.")
    text = {"edits": ("|u1", (min(len(tensors.get("edits", ())), MOST_BYTES),))}
    k = min(len(tensors.get("unedited_merges", ())), d - 1)
    merges = {"unedited_merges": ("<i4", (k, 2)), "unedited_scores": ("<f8", (k,))} if changed else {}
    kept = [n for n in sizes if n not in header["heads"] or f"unedited_head_{n}_coef" in tensors]
    coefs = {f"unedited_head_{n}_coef": ("<f4", (len(header["classes"]), n_cells(header["pyramid"]) * n)) for n in kept}
    intercepts = {f"unedited_head_{n}_intercept": ("<f4", (len(header["classes"]),)) for n in kept}
    _check_forms(tensors, text | merges | coefs | intercepts, ("edits", "unedited_"))
    try:
        edits = parse_json(tensors["edits"].tobytes())
        check_depth([edits])
    except (ValueError, RecursionError) as error:
        raise BagwiseError(f"Its edits are no JSON: {error}.") from error
    pairs, scores = (tensors[f"unedited_{name}" if changed else name] for name in ("merges", "scores"))
    unedited = Unedited(
        hierarchy=Hierarchy(d, pairs, scores, header["criterion"]),
        n_groups=before["n_words"],
        heads={n: _head(tensors, n, "unedited_" if n in kept else "") for n in sorted(sizes)},
        calibration=_by_number(before["calibration"]),
        path=_path(before["path"]),
        given_names=_by_number(before["group_names"]),
        derived_head=before["derived_head"],
    )
    return {"edits": edits, "unedited": unedited}


def _statistics(hierarchy: Hierarchy, tensors: dict[str, NDArray[Any]]) -> GroupStatistics | None:
    """Return statistics of groups, if there are any; `GroupStatistics` checks their shape."""
    values = tensors.get("statistics")
    wanted = {} if values is None else {"statistics": ("<f4", (*values.shape, 1, 1)[:2])}
    _check_forms(tensors, wanted, ("statistics",))
    return None if values is None else GroupStatistics.of(hierarchy, values)


def _check_forms(tensors: dict[str, NDArray[Any]], wanted: dict[str, Any], begin: tuple[str, ...]) -> None:
    """Check types and shapes of the arrays whose names begin with given ones."""
    forms = {name: (array.dtype.str, array.shape) for name, array in tensors.items() if name.startswith(begin)}
    for name in sorted(forms.keys() | wanted.keys()):
        if forms.get(name) != wanted.get(name):
            raise BagwiseError(f"Its array {name!r:.50} is {forms.get(name)}, expected {wanted.get(name)}.")


def _head(tensors: dict[str, NDArray[Any]], size: int, before: str = "") -> Head:
    return Head(tensors[f"{before}head_{size}_coef"], tensors[f"{before}head_{size}_intercept"])


def _path(entry: Any) -> PathErrors | None:
    names = ("sizes", "errors", "standard_errors", "protocol", "paired_errors")
    return None if entry is None else PathErrors(**_fields(entry, "path", names))


def _fields(entry: Any, what: str, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(entry, dict) or set(entry) != set(names):
        raise BagwiseError(f"Its {what} must have {', '.join(names)}; got {entry!r:.100}.")
    return entry
