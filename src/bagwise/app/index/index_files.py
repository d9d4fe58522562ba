"""The file of an `ItemIndex`: the model, what items are compared by, ids, labels, answers, the map and clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import FileKind, PackedStrings, header_field, tensor
from bagwise.app.index.index_features import SIMILARITIES
from bagwise.app.index.item_clusters import CLUSTER_TENSORS, ItemClusters
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.index.item_map import MAP_TENSORS, ItemMap
from bagwise.app.model.files import INDEX_KIND, model_bytes, read_model
from bagwise.app.model.model import Model
from bagwise.app.training.folds import FOLD_TENSORS, FoldModels
from bagwise.app.training.item_answers import ANSWER_TENSORS, UNEDITED_TENSORS, ItemAnswers
from bagwise.app.training.items import READING
from bagwise.errors import BagwiseError
from bagwise.retrieval.bag_index import BagIndex
from bagwise.retrieval.blends import BlendSettings, ClassBlend, GroupBlend
from bagwise.retrieval.files import FILE as FEATURES_FILE

__all__ = ["FILE", "index_from_parts", "index_to_parts", "load_features"]

_PREFIX = "index."  # of the parts of the file of a `BagIndex`
assert FEATURES_FILE.fields is not None
assert FEATURES_FILE.tensors is not None
FILE = FileKind(
    INDEX_KIND,
    {
        "source": header_field("string"),
        "reading": header_field("object"),
        "classes": header_field("list"),
        "by": header_field("string", choices=SIMILARITIES),
        "blend": header_field("object", optional=True),
        "answers": header_field("object", optional=True),
        "map": header_field("object", optional=True),
        "clusters": header_field("object", optional=True),
        "folds": header_field("object", optional=True),
    }
    | {f"{_PREFIX}{name}": spec for name, spec in FEATURES_FILE.fields.items()},
    {
        "labels": tensor("int64", "n_items", low=-1),
        "ids": tensor("uint8", "n_id_bytes"),
        "id_offsets": tensor("int64", "n_items + 1"),
        "model": tensor("uint8", "n_model_bytes", mapped=True),  # a file as `Model.save` writes it
        "certainty": tensor("float32", "n_items", low=0, high=1, finite=True, optional=True),
        "typical": tensor("float32", "n_classes", low=0, high=1, finite=True, optional=True),
    }
    | {name: replace(spec, optional=True) for name, spec in (ANSWER_TENSORS | MAP_TENSORS).items()}
    | UNEDITED_TENSORS
    | CLUSTER_TENSORS
    | FOLD_TENSORS
    | {f"{_PREFIX}{name}": spec for name, spec in FEATURES_FILE.tensors.items()},
)


def index_to_parts(index: ItemIndex) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and tensors of the file of an index."""
    classes = sorted({label for label in index.labels if label is not None})
    number = {label: k for k, label in enumerate(classes)}
    index_header, index_tensors = index.index.to_parts()
    header = {
        "source": index.source,
        "reading": dict(index.reading),
        "classes": classes,
        "by": index.by,
    } | {f"{_PREFIX}{name}": value for name, value in index_header.items()}
    ids = PackedStrings.of(index.ids)
    tensors = {f"{_PREFIX}{name}": content for name, content in index_tensors.items()} | {
        "labels": np.array([-1 if label is None else number[label] for label in index.labels], dtype=np.int64),
        "ids": ids.text,
        "id_offsets": ids.offsets,
        "model": np.frombuffer(model_bytes(index.model), dtype=np.uint8),
    }
    if isinstance(index.blend, GroupBlend):
        header["blend"] = index.blend.to_header()
    elif index.blend is not None:
        header["blend"] = index.blend.settings.to_header()
        tensors |= {"certainty": index.blend.certainty, "typical": index.blend.typical}
    if index.answers is not None:
        header["answers"], answers = index.answers.to_parts()
        tensors |= answers
    if index.map is not None:
        header["map"], places = index.map.to_parts()
        tensors |= places
    if index.clusters is not None:
        header["clusters"], clusters = index.clusters.to_parts()
        tensors |= clusters
    if index.folds is not None:
        header["folds"], folds = index.folds.to_parts()
        tensors |= folds
    return header, tensors


def index_from_parts(
    header: dict[str, Any], tensors: dict[str, Any], *, verify: bool, trust_pattern: bool
) -> ItemIndex:
    """Undo `index_to_parts`, for a header and tensors that `FILE` accepts. Errors begin with "its" or "it"."""
    model = read_model(tensors["model"], Model, trust_pattern=trust_pattern)
    features = _features(header, tensors, verify)
    ids, labels = _named_items(header, tensors, features.ids)
    reading = header["reading"]
    # they become options of opening a source; no others are accepted
    if not all(type(value) in (str, type(None)) for value in reading.values()) or not reading.keys() <= set(READING):
        raise BagwiseError(f"its reading is {reading!r:.100}; expected texts for {', '.join(READING)}.")
    return ItemIndex(
        model,
        features,
        ids,
        labels,
        header["source"],
        reading,
        header["by"],
        _blend(header, tensors, model, features),
        ItemAnswers.from_parts(header.get("answers"), tensors, model),
        ItemMap.from_parts(header.get("map"), tensors),
        ItemClusters.from_parts(header.get("clusters"), tensors, model),
        FoldModels.from_parts(header.get("folds"), tensors, model),
    )


def load_features(path: str) -> BagIndex:
    """Open what the items of a file are compared by, without the model."""
    return FILE.load(path, lambda header, tensors: _features(header, tensors, verify=False), mmap=True)


def _features(header: Mapping[str, Any], tensors: Mapping[str, Any], verify: bool) -> BagIndex:
    def own(parts: Mapping[str, Any]) -> dict[str, Any]:
        return {name.removeprefix(_PREFIX): part for name, part in parts.items() if name.startswith(_PREFIX)}

    return BagIndex.from_parts(own(header), own(tensors), verify=verify)


def _named_items(
    header: Mapping[str, Any], tensors: Mapping[str, Any], numbers: NDArray[Any]
) -> tuple[tuple[str, ...], tuple[str | None, ...]]:
    """Return the ids and labels of the items, which the features number from 0."""
    ids = PackedStrings(tensors["ids"], tensors["id_offsets"]).tolist()
    codes, classes = tensors["labels"], header["classes"]
    last = int(codes.max(initial=-1))
    if not all(type(name) is str for name in classes):
        raise BagwiseError(f"its classes must be a list of str, got {classes!r:.100}.")
    if len(ids) != len(numbers) or last >= len(classes):
        raise BagwiseError(
            f"it has {len(numbers)} histograms, {len(ids)} ids, and labels that number up to {last} of {len(classes)} "
            "classes."
        )
    if not np.array_equal(numbers, np.arange(len(ids))):
        raise BagwiseError(f"its items are numbered {numbers[:5].tolist()} …; expected numbers from 0.")
    return tuple(ids), tuple(None if code < 0 else classes[code] for code in codes.tolist())


def _blend(
    header: Mapping[str, Any], tensors: Mapping[str, Any], model: Model, features: BagIndex
) -> ClassBlend | GroupBlend | None:
    """Return what is blended with words, or the classes that items are compared by."""
    by, has = header["by"], [name for name in ("certainty", "typical") if name in tensors]
    by_groups = by == "both" and not model.heads
    if len(has) != (2 if by in ("classes", "both") and not by_groups else 0):
        raise BagwiseError(
            f"its by is {by!r}, its model {model!r}, and it has the tensors {has}; both or none belong to it."
        )
    if by_groups:
        n_columns = model.layout.width(model.hierarchy.n_words + model.n_groups)
        if features.n_words not in (None, n_columns):
            raise BagwiseError(
                f"it has {features.n_words} columns; expected {n_columns} for the words and groups of its model."
            )
        return GroupBlend.from_header(header.get("blend"))
    if not has:
        return None
    if not model.heads or len(tensors["typical"]) != len(model.classes):
        raise BagwiseError(f"it has {len(tensors['typical'])} classes, and its model {model!r} none, or others.")
    return ClassBlend(tensors["certainty"], tensors["typical"], BlendSettings.from_header(header.get("blend")))
