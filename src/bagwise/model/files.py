"""Files of models: safetensors with a JSON header, in one file or a folder. ``docs/model-file.md`` has the format."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

import bagwise
from bagwise._io.atomic import make_folder_atomically, write_atomically
from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy
from bagwise.model.descriptor_records import DescriptorRecord
from bagwise.model.parts import Head, PathErrors
from bagwise.runtime import KIND, MOST_HEADER, SCHEMA, ModelFileError, read_model_file

__all__ = ["parts_of", "read_model", "write_model"]

ENDING = ".bagwise"
_TENSORS, _READABLE = "model.safetensors", "model.json"
_M = TypeVar("_M")


def write_model(path: str | os.PathLike[str], model: Any) -> Path:
    """Write a model: one file if the name ends in ``.bagwise``, otherwise a folder. See `Model.save`."""
    from safetensors.numpy import save

    target = Path(path)
    header, tensors = parts_of(model)
    content = save(tensors, metadata={"bagwise": json.dumps(header)})
    if int.from_bytes(content[:8], "little") > MOST_HEADER:
        raise BagwiseError(
            f"What is told about this model is too long: a header has at most {MOST_HEADER} bytes. "
            "Shorten its options, provenance, or names of classes."
        )
    if not target.parent.is_dir():
        raise BagwiseError(f"{target} cannot be saved: there is no folder {target.parent}. Make it first.")
    try:
        if target.name.endswith(ENDING):
            if target.is_dir():
                raise BagwiseError(f"{target} is a folder; names of model files end in {ENDING}. Choose another name.")
            return write_atomically(target, content)
        _check_replaceable(target)
        with make_folder_atomically(target) as folder:
            write_atomically(folder / _TENSORS, content)
            write_atomically(folder / _READABLE, _for_people(header))
    except OSError as error:
        raise BagwiseError(
            f"{target} cannot be saved: {error.strerror or error}. What was there before is as it was."
        ) from error
    return target


def read_model(path: str | os.PathLike[str], make: Callable[..., _M]) -> _M:
    """Read a model; `make` takes the parameters of `Model` and checks them."""
    try:
        header, tensors = read_model_file(path)
    except ModelFileError as error:
        raise BagwiseError(str(error)) from error
    try:
        return make(**_parameters(header, tensors))
    except BagwiseError as error:
        raise BagwiseError(f"{os.fspath(path)} cannot be read as a model: {error}") from error


def _check_replaceable(target: Path) -> None:
    """Refuse to replace anything but a folder with a model, or nothing, in it."""
    if not os.path.lexists(target):
        return
    if not target.is_dir():
        raise BagwiseError(
            f"{target} is a file. A model whose name does not end in {ENDING} is a folder; choose another name."
        )
    others = sorted({entry.name for entry in target.iterdir()} - {_TENSORS, _READABLE})
    if others:
        raise BagwiseError(
            f"{target} is a folder with other things in it, such as {others[0]!r}, which a model would replace. "
            "Choose a new name, or empty the folder."
        )


def _for_people(header: dict[str, Any]) -> bytes:
    try:
        return (json.dumps(header, indent=2, ensure_ascii=False) + "\n").encode()
    except UnicodeEncodeError:  # names of files that are no text
        return (json.dumps(header, indent=2) + "\n").encode()


def parts_of(model: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Give the header and the arrays of a model, as its file holds them."""
    path, record = model.path, model.descriptor_record
    header = {
        "kind": KIND,
        "schema": SCHEMA,
        "library": f"bagwise {bagwise.__version__}",
        "items": model.modality,
        "vocabulary_size": model.hierarchy.n_words,
        "n_words": model.n_groups,
        "criterion": model.hierarchy.criterion,
        "descriptor": None if record is None else {"name": record.name, "parameters": record.parameters},
        "tokenizer": model.tokenizer,
        "pyramid": [list(grid) for grid in model.pyramid],
        "normalize": list(model.normalize),
        "classes": list(model.classes),
        "heads": list(model.heads),
        "path": None
        if path is None
        else {
            "sizes": list(path.sizes),
            "errors": list(path.errors),
            "standard_errors": list(path.standard_errors),
            "protocol": path.protocol,
        },
        "options": model.options,
        "provenance": model.provenance,
    }
    merges: NDArray[np.int64] = model.hierarchy.merges
    tensors: dict[str, NDArray[Any]] = {"merges": merges.astype(np.int32), "scores": model.hierarchy.scores}
    if model.codebook is not None:
        tensors["codebook"] = model.codebook
    if model.word_totals is not None:
        tensors["word_totals"] = model.word_totals
    if model.word_names is not None:
        names = [name.encode("utf-8", "surrogatepass") for name in model.word_names]
        tensors["names"] = np.frombuffer(b"".join(names), np.uint8)
        tensors["name_offsets"] = np.cumsum([0, *map(len, names)], dtype=np.int64)
    for size, head in model.heads.items():
        tensors[f"head_{size}_coef"], tensors[f"head_{size}_intercept"] = head.coef, head.intercept
    return header, tensors


def _parameters(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Turn what `parts_of` gave into parameters of `Model`. Types and shapes of the arrays were checked before."""
    if not isinstance(header["criterion"], str) or not isinstance(header["library"], str):
        raise BagwiseError("Criterion and library must be texts.")
    descriptor, path = header["descriptor"], header["path"]
    if descriptor is not None:
        descriptor = DescriptorRecord(**_fields(descriptor, "descriptor", ("name", "parameters")))
    if path is not None:
        path = PathErrors(**_fields(path, "path", ("sizes", "errors", "standard_errors", "protocol")))
    return {
        "modality": header["items"],
        "hierarchy": Hierarchy(header["vocabulary_size"], tensors["merges"], tensors["scores"], header["criterion"]),
        "n_groups": header["n_words"],
        "descriptor": descriptor,
        "codebook": tensors.get("codebook"),
        "word_names": _names(tensors),
        "word_totals": tensors.get("word_totals"),
        "tokenizer": header["tokenizer"],
        "pyramid": header["pyramid"],
        "normalize": header["normalize"],
        "classes": header["classes"],
        "heads": {n: Head(tensors[f"head_{n}_coef"], tensors[f"head_{n}_intercept"]) for n in header["heads"]},
        "path": path,
        "options": header["options"],
        "provenance": header["provenance"],
    }


def _fields(entry: Any, what: str, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(entry, dict) or set(entry) != set(names):
        raise BagwiseError(f"Its {what} must have {', '.join(names)}; got {entry!r:.100}.")
    return entry


def _names(tensors: dict[str, NDArray[Any]]) -> list[str] | None:
    if "names" not in tensors:
        return None
    text, offsets = tensors["names"].tobytes(), tensors["name_offsets"]
    if offsets[0] != 0 or offsets[-1] != len(text) or (np.diff(offsets) < 0).any():
        raise BagwiseError(f"Its name_offsets must rise from 0 to {len(text)}, the bytes of its names.")
    ends = offsets.tolist()
    try:
        return [text[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(ends)]
    except UnicodeDecodeError as error:
        raise BagwiseError(f"Its names are not UTF-8: {error}.") from error
