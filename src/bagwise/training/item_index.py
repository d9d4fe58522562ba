"""`ItemIndex`: a search index with its model and the names of its items, in one file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bagwise._io.tensors import PackedStrings, kind_of, read_tensors, tensor, write_tensors
from bagwise.errors import BagwiseError
from bagwise.model import Model
from bagwise.model.files import model_bytes, read_model
from bagwise.retrieval.bag_index import BagIndex
from bagwise.retrieval.files import TENSORS as INDEX_TENSORS
from bagwise.sources.collection import Collection
from bagwise.training.evaluate import Evaluation
from bagwise.training.fit import Fit
from bagwise.training.options import FitOptions

__all__ = ["Found", "ItemIndex", "index_of_fit", "is_item_index"]

_KIND, _SCHEMA = "bagwise.ItemIndex", 2
_PREFIX = "index."
_TENSORS = {f"{_PREFIX}{name}": spec for name, spec in INDEX_TENSORS.items()} | {
    "labels": tensor("int64", "n_items", low=-1),
    "ids": tensor("uint8", "n_id_bytes"),
    "id_offsets": tensor("int64", "n_items + 1"),
    "model": tensor("uint8", "n_model_bytes", mapped=True),  # a file as `Model.save` writes it
}
# In schema 1 an index was a folder, with this file.
_ITEMS = "items.json"
_METRIC = "hellinger"
_READING = ("modality", "text", "label", "encoding")


class Found(NamedTuple):
    """An item that a search found: its id, its score, and its label if it has one."""

    id: str
    score: float
    label: str | None


@dataclass(frozen=True)
class ItemIndex:
    """A search index of items, with the model that computes their features and those of queries.

    Its file holds the model, the features (a `BagIndex`) and the ids of the items, not the items themselves.

    Attributes
    ----------
    model : Model
    index : BagIndex
        Relative frequencies of the groups in each item; items are numbered from 0.
    ids : tuple of str
    labels : tuple of str or None
    source : str
        Path of the items when they were indexed.
    reading : dict
        How they were read: `modality`, `text`, `label`, `encoding`.

    Examples
    --------
    >>> from bagwise.sources import TableCollection
    >>> from bagwise.training import ItemIndex, fit_model
    >>> rows = TableCollection(np.array([[4, 1, 0], [1, 0, 5]]), ["a", "b"], [("cat",), ("dog",)])
    >>> model = fit_model(rows, n_groups=2, folds=0)
    >>> ItemIndex.build(model, rows, model.histograms(rows)).search([[9.0, 1.0, 0.0]], k=1)[0][0].label
    'cat'
    """

    model: Model
    index: BagIndex
    ids: tuple[str, ...]
    labels: tuple[str | None, ...]
    source: str
    reading: Mapping[str, Any]

    @classmethod
    def build(
        cls,
        model: Model,
        collection: Collection,
        histograms: Any,
        *,
        source: str | os.PathLike[str] = "",
        options: FitOptions | None = None,
        metric: str = _METRIC,
    ) -> ItemIndex:
        """Index items.

        Parameters
        ----------
        model : Model
        collection : Collection
        histograms : CSR array or ndarray of shape (n_items, n_cells * d)
            Counts of their words, see `count_words`.
        source : path, default=""
            Path of the items.
        options : FitOptions, default=None
            Options the items were read with.
        metric : str, default="hellinger"
            See `BagIndex`.

        Returns
        -------
        index : ItemIndex
        """
        options = FitOptions() if options is None else options
        index = BagIndex(metric=metric)
        index.add(_frequencies(model, histograms))
        reading = {name: getattr(options, name) for name in _READING}
        labels = tuple(item.labels[0] if item.labels else None for item in collection)
        return cls(model, index, tuple(collection.ids), labels, os.fspath(source), reading)

    def __len__(self) -> int:
        return len(self.ids)

    def search(self, histograms: Any, k: int = 10) -> list[list[Found]]:
        """Find the items that are most like each query, best first.

        Parameters
        ----------
        histograms : CSR array or ndarray of shape (n_queries, n_cells * d)
            Counts of the words of queries, see `count_words`.
        k : int, default=10

        Returns
        -------
        found : list of lists of Found
        """
        scores, numbers = self.index.search(_frequencies(self.model, histograms), min(k, len(self)))
        return [
            [Found(self.ids[i], float(score), self.labels[i]) for i, score in zip(row, of_row, strict=True)]
            for row, of_row in zip(np.asarray(numbers).tolist(), scores, strict=True)
        ]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the index to one file, atomically. An existing file is replaced."""
        classes = sorted({label for label in self.labels if label is not None})
        number = {label: k for k, label in enumerate(classes)}
        index_header, index_tensors = self.index.to_tensors()
        header = {"source": self.source, "reading": dict(self.reading), "classes": classes, "index": index_header}
        ids = PackedStrings.of(self.ids)
        tensors = {f"{_PREFIX}{name}": content for name, content in index_tensors.items()} | {
            "labels": np.array([-1 if label is None else number[label] for label in self.labels], dtype=np.int64),
            "ids": ids.text,
            "id_offsets": ids.offsets,
            "model": np.frombuffer(model_bytes(self.model), dtype=np.uint8),
        }
        return write_tensors(path, _KIND, _SCHEMA, header, tensors)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ItemIndex:
        """Open a file that `save` wrote, memory-mapped, or a folder of an earlier version."""
        place = Path(path)
        if not place.exists():
            raise BagwiseError(f"{place} does not exist. Create an index by: bagwise index MODEL SOURCE")
        if not is_item_index(place):
            raise BagwiseError(f"{place} is not an index. Create one by: bagwise index MODEL SOURCE")
        try:
            model, index, header, ids, codes = (_read_folder if place.is_dir() else _read_file)(place)
            return cls(model, index, *_check_items(header, ids, codes, len(index)))
        except _Damaged as error:
            raise BagwiseError(f"{place} is damaged: {error}") from error


class _Damaged(BagwiseError):
    """The parts of a file are inconsistent; the caller adds the name of the file."""


def index_of_fit(fit: Fit, evaluation: Evaluation | None, source: Any, options: FitOptions) -> ItemIndex:
    """Index the items that a model was fitted to, and those it was evaluated on."""
    collection, histograms = fit.data.collection, fit.data.histograms
    if evaluation is not None:
        joined = [*collection, *evaluation.collection]
        collection = Collection(joined, collection.modality, collection.source)
        both = [histograms, evaluation.histograms]
        histograms = sp.vstack(both, format="csr") if sp.issparse(histograms) else np.concatenate(both)
    place = "" if isinstance(source, Collection) else os.path.abspath(source)
    return ItemIndex.build(fit.model, collection, histograms, source=place, options=options)


def is_item_index(path: str | os.PathLike[str]) -> bool:
    """Whether a path holds an index, by the header of a file or the names in a folder."""
    return kind_of(path) == _KIND or Path(path, _ITEMS).is_file()


def _read_file(path: Path) -> tuple[Model, BagIndex, dict[str, Any], list[str], list[int]]:
    header, tensors = read_tensors(path, _KIND, {_SCHEMA: _TENSORS}, mmap=True)
    arrays = {name: tensors[f"{_PREFIX}{name}"] for name in INDEX_TENSORS}
    try:
        index = BagIndex.from_tensors(_object(header, "index"), arrays, mmap=True)
        ids = PackedStrings(tensors["ids"], tensors["id_offsets"]).tolist()
        return read_model(tensors["model"], Model), index, header, ids, tensors["labels"].tolist()
    except BagwiseError as error:
        raise _Damaged(str(error)) from error


def _read_folder(path: Path) -> tuple[Model, BagIndex, dict[str, Any], Any, Any]:
    """Read a folder that an earlier version wrote."""
    try:
        header = json.loads((path / _ITEMS).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise _Damaged(str(error)) from error
    if not isinstance(header, dict) or (header.get("kind"), header.get("schema")) != (_KIND, 1):
        raise _Damaged(f"its {_ITEMS} does not belong to an index that this version of bagwise reads.")
    index, model = BagIndex.load(path / "items.index"), Model.load(path / "model.bagwise")
    return model, index, header, header.get("ids"), header.get("labels")


def _object(header: Mapping[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(header.get(name), dict):
        raise _Damaged(f"its {name} is {header.get(name)!r:.100}; expected a JSON object.")
    return header[name]


def _check_items(
    header: Mapping[str, Any], ids: Any, codes: Any, n_items: int
) -> tuple[tuple[str, ...], tuple[str | None, ...], str, dict[str, Any]]:
    """Check that the parts of an index are consistent; return its ids, labels, source and reading options."""
    classes: Any = header.get("classes")
    reading = _object(header, "reading")
    if "kind" in reading:  # its name in files of earlier versions
        reading = {"modality": reading["kind"]} | {name: value for name, value in reading.items() if name != "kind"}
    for name, values, kind in (("ids", ids, str), ("labels", codes, int), ("classes", classes, str)):
        if not isinstance(values, list) or not all(type(value) is kind for value in values):
            raise _Damaged(f"its {name} must be a list of {kind.__name__}, got {values!r:.100}.")
    if not len(ids) == len(codes) == n_items or max(codes, default=-1) >= len(classes):
        raise _Damaged(
            f"it has {n_items} histograms, {len(ids)} ids, and {len(codes)} labels that number up to "
            f"{max(codes, default=-1)} of {len(classes)} classes."
        )
    # they become options of opening a source; no others are accepted
    texts = all(value is None or type(value) is str for value in reading.values())
    if not texts or not reading.keys() <= set(_READING):
        raise _Damaged(f"its reading is {reading!r:.100}; expected texts for {', '.join(_READING)}.")
    if not isinstance(header.get("source"), str):
        raise _Damaged(f"its source is {header.get('source')!r:.100}; expected a path.")
    return tuple(ids), tuple(None if code < 0 else classes[code] for code in codes), header["source"], reading


def _frequencies(model: Model, histograms: Any) -> Any:
    """Return relative frequencies of groups; measurements below what the model was fitted to count as the least."""
    if model.column_shift is not None:
        dense = histograms.toarray() if hasattr(histograms, "toarray") else histograms
        histograms = np.maximum(dense, model.column_shift)
    return model.group(histograms, normalize=("l1",))
