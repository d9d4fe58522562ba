"""How well a model does on items it has not seen."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.model import Model
from bagwise.sources.collection import Collection
from bagwise.training.counting import histograms_of, open_items
from bagwise.training.options import FitOptions
from bagwise.training.words import Progress

__all__ = ["Evaluation", "confusion_matrix", "evaluate_model"]


@dataclass(frozen=True)
class Evaluation:
    """Errors of a model along its path of merging.

    Attributes
    ----------
    collection : Collection
        The items that were classified.
    n_skipped : int
        Items that could not be read, or have no label.
    histograms : CSR array or ndarray of shape (n_items, n_cells * d)
        Their words, over the full vocabulary.
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
    n_skipped: int
    histograms: Any
    classes: tuple[str, ...]
    sizes: tuple[int, ...]
    errors: tuple[float, ...]
    codes: NDArray[np.int64]
    predicted: NDArray[np.int64]

    def at(self, size: int) -> NDArray[np.int64]:
        """Classes given at one of the sizes, as numbers into `classes`."""
        if size not in self.sizes:
            raise BagwiseError(f"There is no classifier for {size} words. Sizes: {', '.join(map(str, self.sizes))}.")
        return self.predicted[self.sizes.index(size)]

    def confusion(self, size: int) -> NDArray[np.int64]:
        """Count items by true class (rows) and class given (columns) at one of the sizes."""
        return confusion_matrix(self.codes, self.at(size), len(self.classes))


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
    r"""Classify labelled items at every size for which the model has a classifier.

    Parameters
    ----------
    model : Model
    source : Collection or path
        With labels the model knows; items without a label are left out. Of a source with parts, the part test is taken.
    options : FitOptions, default=None
        `kind`, `text`, `label` and `encoding` say how the source is read, `on_error` what to do with items that cannot
        be; `jobs` and `cache` are used as well.
    progress : callable, default=None
        See `fit_model`.

    Returns
    -------
    evaluation : Evaluation

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> from bagwise.training import evaluate_model
    >>> from bagwise.model import Head
    >>> from bagwise.sources import TableCollection
    >>> head = Head([[1, -1], [-1, 1]], [0, 0])
    >>> model = Model(modality="table", hierarchy=Hierarchy(2, [[0, 1]], [0.0]), n_groups=2, classes=["a", "b"],
    ...               heads={2: head})
    >>> X = np.array([[3.0, 1.0], [0.0, 1.0], [2.0, 1.0]])
    >>> evaluate_model(model, TableCollection(X, ["1", "2", "3"], [("a",), ("b",), ("b",)])).confusion(2)
    array([[1, 0],
           [1, 1]])
    """
    options = FitOptions() if options is None else options
    if not model.heads:
        raise BagwiseError(
            "This model was learned without classes and has no classifier, so there is no error to find. "
            "Fit a model to items with labels: one folder per class, or a column of labels."
        )
    if options.label is None and not isinstance(source, Collection) and os.path.isfile(source):
        options = options.with_changes(label=model.options.get("label"))
    collection = open_items(model, source, options)
    if "test" in collection.splits:
        collection = collection.split("test")[0]
    n_items, collection = len(collection), _labelled(collection, model)
    histograms, kept = histograms_of(model, collection, options, progress=progress)
    collection = collection[kept]
    number = {name: k for k, name in enumerate(model.classes)}
    codes = np.array([number[str(item.label)] for item in collection], dtype=np.int64)
    sizes = tuple(sorted(model.heads))
    scores = (model.heads[size].scores(model.group(histograms, size)) for size in sizes)
    predicted = np.stack([np.argmax(some, axis=1) for some in scores])
    return Evaluation(
        collection=collection,
        n_skipped=n_items - len(collection),
        histograms=histograms,
        classes=model.classes,
        sizes=sizes,
        errors=tuple((predicted != codes).mean(axis=1).tolist()),
        codes=codes,
        predicted=predicted,
    )


def _labelled(collection: Collection, model: Model) -> Collection:
    """The items with a label; a label that the model does not know is an error."""
    has = np.array([bool(item.labels) for item in collection], dtype=np.bool_)
    if not has.any():
        raise BagwiseError(
            f"The {len(collection)} items of {collection.source} have no labels, so there is no error to find. "
            "Put items into one folder per class, or say which column has labels."
        )
    labelled = collection if has.all() else collection[has]
    unknown = sorted({str(item.label) for item in labelled} - set(model.classes))
    if unknown:
        raise BagwiseError(
            f"{collection.source} has items labelled {', '.join(map(repr, unknown[:3]))}, which the model does not "
            f"know. It knows: {', '.join(map(repr, model.classes[:20]))}."
        )
    return labelled
