"""How well a model does on items it has not seen."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.errors import BagwiseError
from bagwise.fitting.options import FitOptions
from bagwise.fitting.path import decide
from bagwise.fitting.words import Progress, open_source
from bagwise.model import Model
from bagwise.sources.collection import Collection, SkippedItemsWarning
from bagwise.sources.tables import TableCollection

__all__ = ["Evaluation", "confusion_matrix", "evaluate_model", "histograms_of"]

_BATCH = 64


@dataclass(frozen=True)
class Evaluation:
    """Errors of a model along its path of merging.

    Attributes
    ----------
    collection : Collection
        The items that were classified.
    classes : tuple of str
    sizes : tuple of int
        Sizes at which the model has a classifier.
    errors : tuple of float
        Share of items that were given a wrong class, at each size.
    codes : ndarray of shape (n_items,)
        True classes, as numbers into `classes`.
    predicted : ndarray of shape (n_sizes, n_items)
        Classes given.
    """

    collection: Collection
    classes: tuple[str, ...]
    sizes: tuple[int, ...]
    errors: tuple[float, ...]
    codes: NDArray[np.int64]
    predicted: NDArray[np.int64]

    def confusion(self, size: int) -> NDArray[np.int64]:
        """Count items by true class (rows) and class given (columns) at one of the sizes."""
        if size not in self.sizes:
            raise BagwiseError(f"There is no classifier for {size} words. Sizes: {', '.join(map(str, self.sizes))}.")
        return confusion_matrix(self.codes, self.predicted[self.sizes.index(size)], len(self.classes))


def confusion_matrix(codes: NDArray[np.int64], predicted: NDArray[np.int64], n_classes: int) -> NDArray[np.int64]:
    """Count pairs of true class (rows) and class given (columns).

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    array([[1, 1],
           [0, 1]])
    """
    pairs = np.bincount(codes * n_classes + predicted, minlength=n_classes**2)
    return pairs.reshape(n_classes, n_classes)


def evaluate_model(
    model: Model, source: Any, options: FitOptions | None = None, *, progress: Progress | None = None
) -> Evaluation:
    """Classify labelled items at every size for which the model has a classifier.

    Parameters
    ----------
    model : Model
    source : Collection or path
        With labels the model knows. Of a source with parts, the part test is taken.
    options : FitOptions, default=None
        `kind`, `text` and `label` say how the source is read, `on_error` what to do with items that cannot be.
    progress : callable, default=None
        See `fit_model`.

    Returns
    -------
    evaluation : Evaluation
    """
    options = FitOptions() if options is None else options
    if not model.heads:
        raise BagwiseError(
            "This model was learned without classes and has no classifier, so there is no error to find. "
            "Fit a model to items with labels: one folder per class, or a column of labels."
        )
    collection = open_source(source, options.with_changes(descriptor=_color(model)))
    if "test" in collection.splits:
        collection = collection.split("test")[0]
    number = {name: k for k, name in enumerate(model.classes)}
    labels = [item.label for item in collection]
    unknown = sorted({str(label) for label in labels if label not in number})
    if unknown:
        raise BagwiseError(
            f"{collection.source} has items labelled {', '.join(map(repr, unknown[:3]))}, which the model does not "
            f"know. It knows: {', '.join(map(repr, model.classes[:20]))}."
        )
    histograms, kept = histograms_of(model, collection, options.on_error, progress)
    codes = np.array([number[labels[i]] for i in kept], dtype=np.int64)
    sizes = tuple(sorted(model.heads))
    predicted = np.stack([decide(model.group(histograms, size), model.heads[size]) for size in sizes])
    return Evaluation(
        collection=collection[kept],
        classes=model.classes,
        sizes=sizes,
        errors=tuple((predicted != codes).mean(axis=1).tolist()),
        codes=codes,
        predicted=predicted,
    )


def histograms_of(
    model: Model, collection: Collection, on_error: str = "raise", progress: Progress | None = None
) -> tuple[Any, NDArray[np.intp]]:
    """Histograms over the full vocabulary of the items that can be read, and the numbers of these items.

    Parameters
    ----------
    model : Model
    collection : Collection
        Of the kind that the model was learned from.
    on_error : {"raise", "skip"}, default="raise"
    progress : callable, default=None

    Returns
    -------
    histograms : CSR array or ndarray of shape (n_kept, n_cells * d)
    kept : ndarray of shape (n_kept,)
    """
    report: Progress = progress if progress is not None else lambda step, done, total: None
    if collection.kind != model.items:
        raise BagwiseError(
            f"The model was learned from {model.items}, but {collection.source} holds {collection.kind}. "
            f"Give {model.items}."
        )
    if not len(collection):
        raise BagwiseError(f"{collection.source} has no items.")
    if isinstance(collection, TableCollection):
        return model.histograms(collection.X), np.arange(len(collection))
    parts: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedItemsWarning)  # told by which items are kept
        batches = _texts(collection, on_error) if model.items == "texts" else _bags(model, collection, on_error)
        for content, kept in batches:
            parts.append(model.histograms(content))
            report("Counting words", kept[-1] + 1, len(collection))
    return (sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)), np.array(kept)


def _texts(collection: Collection, on_error: str) -> Iterator[tuple[list[str], list[int]]]:
    """Texts some at a time, with the numbers of all that were read so far."""
    number_of = {id: number for number, id in enumerate(collection.ids)}
    kept: list[int] = []
    waiting: list[str] = []
    for item, text in collection.load(on_error):
        waiting.append(text)
        kept.append(number_of[item.id])
        if len(waiting) == _BATCH:
            yield waiting, kept
            waiting = []
    if waiting:
        yield waiting, kept


def _bags(model: Model, collection: Collection, on_error: str) -> Iterator[tuple[Bags, list[int]]]:
    """Descriptors of some items at a time, with the numbers of all that were described so far."""
    describing = model.descriptor.iter_transform(collection, batch=_BATCH, on_error=on_error)
    for bags in describing:
        yield bags, describing.kept


def _color(model: Model) -> str:
    return "color-sift" if type(model.descriptor).__name__ == "ColorSIFT" else "auto"
