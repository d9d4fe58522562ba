"""`ItemIndex`: a search index that knows its items, in one folder that can be moved."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bagwise._io.atomic import make_folder_atomically
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.errors import BagwiseError
from bagwise.merging.pooling import pool
from bagwise.model import Model
from bagwise.model.inputs import as_histograms
from bagwise.retrieval.bag_index import BagIndex
from bagwise.sources.collection import Collection
from bagwise.training.evaluate import Evaluation
from bagwise.training.fit import Fit
from bagwise.training.options import FitOptions

__all__ = ["Found", "ItemIndex", "index_of_fit", "is_item_index"]

_KIND = "bagwise.ItemIndex"
_SCHEMA = 1
_MODEL, _ROWS, _ITEMS = "model.bagwise", "items.index", "items.json"
_METRIC = "hellinger"
_READING = ("kind", "text", "label", "encoding")


class Found(NamedTuple):
    """An item that a search found: its id, its score, and its class where it has one."""

    id: str
    score: float
    label: str | None


@dataclass(frozen=True)
class ItemIndex:
    """Items as histograms of few words, with the model that makes the same of queries.

    Saved as a folder with the model, the histograms (a `BagIndex`) and the items' ids, which needs nothing else: items
    themselves are only read to show them.

    Attributes
    ----------
    model : Model
    index : BagIndex
        Shares of the model's groups of words in each item; items are numbered from 0.
    ids : tuple of str
    labels : tuple of str or None
    source : str
        Where the items were, when they were indexed.
    reading : dict
        How they were read: `kind`, `text`, `label`, `encoding`.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.sources import TableCollection
    >>> X = np.array([[4, 1, 0], [5, 0, 1], [3, 2, 0], [0, 1, 5], [1, 0, 4], [0, 2, 3]])
    >>> rows = TableCollection(X, list("abcdef"), [("cat",)] * 3 + [("dog",)] * 3)
    >>> from bagwise.training import FitOptions, ItemIndex, fit_model
    >>> model = fit_model(rows, FitOptions(to=2, folds=0)).model
    >>> index = ItemIndex.build(model, rows, model.histograms(rows))
    >>> [(hit.id, hit.label) for hit in index.search([[9.0, 1.0, 0.0]], k=2)[0]]
    [('a', 'cat'), ('c', 'cat')]
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
            Their words, see `histograms_of`.
        source : path, default=""
            Where the items are.
        options : FitOptions, default=None
            How they were read.
        metric : str, default="hellinger"
            See `BagIndex`.

        Returns
        -------
        index : ItemIndex
        """
        options = FitOptions() if options is None else options
        index = BagIndex(metric=metric)
        index.add(shares_of(model, histograms))
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
            Words of queries, see `histograms_of`.
        k : int, default=10

        Returns
        -------
        found : list of lists of Found
        """
        scores, numbers = self.index.search(shares_of(self.model, histograms), min(k, len(self)))
        return [
            [Found(self.ids[i], float(score), self.labels[i]) for i, score in zip(row, of_row, strict=True)]
            for row, of_row in zip(np.asarray(numbers).tolist(), scores, strict=True)
        ]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the folder, wholly or not at all; an index that is there is replaced."""
        classes = sorted({label for label in self.labels if label is not None})
        number = {label: k for k, label in enumerate(classes)}
        items = {
            "kind": _KIND,
            "schema": _SCHEMA,
            "source": self.source,
            "reading": dict(self.reading),
            "ids": list(self.ids),
            "classes": classes,
            "labels": [-1 if label is None else number[label] for label in self.labels],
        }
        target = Path(path)
        _check_replaceable(target)
        with make_folder_atomically(target) as folder:
            self.model.save(folder / _MODEL)
            self.index.save(folder / _ROWS)
            (folder / _ITEMS).write_text(json.dumps(items), encoding="utf-8")
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ItemIndex:
        """Open a folder that `save` wrote; histograms stay on the disk until they are searched."""
        folder = Path(path)
        if not folder.exists():
            raise BagwiseError(f"{folder} does not exist. Make an index by: bagwise index MODEL SOURCE")
        if not is_item_index(folder):
            raise BagwiseError(f"{folder} is not an index: it is no folder with {_ITEMS}.")
        items = _read_items(folder / _ITEMS)
        index = BagIndex.load(folder / _ROWS)
        if len(index) != len(items["ids"]):
            raise BagwiseError(f"{folder} is damaged: {len(index)} histograms, but {len(items['ids'])} ids.")
        classes = items["classes"]
        labels = tuple(None if code < 0 else classes[code] for code in items["labels"])
        return cls(Model.load(folder / _MODEL), index, tuple(items["ids"]), labels, items["source"], items["reading"])


def index_of_fit(fit: Fit, evaluation: Evaluation | None, source: Any, options: FitOptions) -> ItemIndex:
    """Index the items that a model was learned from, and those it was tested on.

    Parameters
    ----------
    fit : Fit
    evaluation : Evaluation or None
    source : path
    options : FitOptions

    Returns
    -------
    index : ItemIndex
    """
    collection, histograms = fit.data.collection, fit.data.histograms
    if evaluation is not None:
        joined = [*collection, *evaluation.collection]
        collection = Collection(joined, collection.modality, collection.source)
        both = [histograms, evaluation.histograms]
        histograms = sp.vstack(both, format="csr") if sp.issparse(histograms) else np.concatenate(both)
    place = "" if isinstance(source, Collection) else os.path.abspath(source)
    return ItemIndex.build(fit.model, collection, histograms, source=place, options=options)


def is_item_index(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder as `ItemIndex.save` writes it, by its looks."""
    return Path(path, _ITEMS).is_file()


def _check_replaceable(target: Path) -> None:
    """Refuse to replace anything but an index: the whole folder would go, whatever else is in it."""
    if not os.path.lexists(target):
        return
    names = {entry.name for entry in target.iterdir()} if target.is_dir() else set()
    if names != {_MODEL, _ROWS, _ITEMS}:
        others = sorted(names - {_MODEL, _ROWS, _ITEMS})
        seen = f" (there is {others[0]!r} in it)" if others else ""
        raise BagwiseError(f"{target} is there and is not an index; it is not replaced{seen}. Give another name.")


def shares_of(model: Model, histograms: Any) -> Any:
    """The share that each group of words has in each item, cell by cell: rows sum to 1."""
    cells = np.arange(model.n_cells)[:, None]
    everywhere = (cells * model.n_groups + model.lookup).ravel()
    checked = as_histograms(histograms, model.n_cells * model.hierarchy.n_words)
    grouped = pool(checked, everywhere, model.n_cells * model.n_groups)
    return normalize_rows(grouped.astype(np.float64), "l1").astype(np.float32)


def _read_items(path: Path) -> dict[str, Any]:
    try:
        items = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise BagwiseError(f"{path} is damaged: {error}") from error
    if not isinstance(items, dict) or items.get("kind") != _KIND:
        raise BagwiseError(f"{path} does not belong to an index.")
    schema = items.get("schema")
    if not isinstance(schema, int) or schema > _SCHEMA:
        raise BagwiseError(
            f"{path} was written by a newer bagwise (schema {schema!r}); this one reads up to {_SCHEMA}. "
            "Upgrade bagwise."
        )
    fine = (
        _are(items.get("ids"), str)
        and _are(items.get("classes"), str)
        and _are(items.get("labels"), int)
        and isinstance(items.get("source"), str)
        and _is_reading(items.get("reading"))
        and len(items["labels"]) == len(items["ids"])
        and max(items["labels"], default=-1) < len(items["classes"])
    )
    if not fine:
        raise BagwiseError(f"{path} is damaged: ids, classes and labels do not fit together.")
    return items


def _is_reading(value: Any) -> bool:
    """Whether it says how items are read, and nothing more: these become options."""
    return (
        isinstance(value, dict)
        and value.keys() <= set(_READING)
        and all(held is None or isinstance(held, str) for held in value.values())
    )


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and all(isinstance(v, kind) for v in values)
