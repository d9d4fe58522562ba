"""Files of models: safetensors with a JSON header, in one file or a folder. ``docs/model-file.md`` has the format."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import bagwise

__all__ = ["KIND", "SCHEMA", "parts_of"]

KIND = "bagwise.Model"
SCHEMA = 1


def parts_of(model: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Give the header and the arrays of a model, as its file holds them."""
    path, record = model.path, model.descriptor_record
    header = {
        "kind": KIND,
        "schema": SCHEMA,
        "library": f"bagwise {bagwise.__version__}",
        "items": model.items,
        "vocabulary_size": model.hierarchy.n_words,
        "n_words": model.n_words,
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
