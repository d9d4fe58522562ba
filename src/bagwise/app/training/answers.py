"""Answers: the class of each item with its score, the runner-up and the margin, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bagwise._utils.text import ranges
from bagwise.app.modalities import MODALITIES
from bagwise.app.model import Model
from bagwise.app.training.seen import compare_hashes, item_hashes
from bagwise.errors import BagwiseError, parameter_name
from bagwise.sources.collection import Collection
from bagwise.sources.items import NothingReadError, Skipped

__all__ = ["Answer", "Answers", "answers_of", "with_classifier"]

_BATCH_SIZE = 256  # items whose histograms are held at a time


class Answer(NamedTuple):
    """The predicted class of an item, with its score, and the class with the second highest score.

    `margin` is the difference of both scores, `probability` the calibrated one of the class if the model has such,
    `text` that of the item if it is asked for.
    """

    id: str
    predicted: str
    score: float
    runner_up: str
    margin: float
    probability: float | None = None
    text: str | None = None


def with_classifier(model: Model, n_groups: int | None = None) -> Model:
    """Return a model with a classifier: as it is, or cut at another number of groups."""
    if not model.heads:
        raise BagwiseError(
            f"This model {'' if model.classes else 'was fitted without classes and '}has no classifier, so it predicts "
            "no class. Fit a model to items with labels: one folder per class, or a column of labels."
        )
    chosen = model if n_groups is None or n_groups == model.n_groups else model.cut(n_groups)
    if chosen.n_groups not in chosen.heads:
        sizes = ranges(model.heads)
        name = parameter_name("n_groups")
        raise BagwiseError(f"{name} must be one of {sizes}, for which there are classifiers; got {chosen.n_groups}.")
    return chosen


def answers_of(model: Model, ids: list[str], histograms: Any) -> list[Answer]:
    """Return the answers for items with these ids and histograms over the full vocabulary.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import fit_model
    >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]] * 3), list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> model = fit_model(rows, n_groups=2, folds=0)
    >>> [(one.id, one.predicted, one.runner_up) for one in answers_of(model, rows.ids[:2], rows.X[:2])]
    [('a', 'cat', 'dog'), ('b', 'dog', 'cat')]
    """
    scores = model.head.scores(model.group(histograms))
    order = np.argsort(-scores, axis=1, kind="stable")[:, :2]
    best = np.take_along_axis(scores, order, axis=1)
    margins = (best[:, 0] - best[:, 1]).tolist()
    probable: list[Any] = [None] * len(ids)
    if model.n_groups in model.calibration:
        probable = model.probabilities(scores).max(axis=1).tolist()
    names = model.classes
    return [
        Answer(id, names[first], score, names[second], margin, probability)
        for id, (first, second), score, margin, probability in zip(
            ids, order.tolist(), best[:, 0].tolist(), margins, probable, strict=True
        )
    ]


@dataclass
class Answers:
    """Iterates over the answers for the items of a collection, in batches: few items are held at a time.

    Attributes
    ----------
    skipped : list of Skipped
        Items so far that could not be read.
    with_text : bool
        Whether answers have the texts of their items.
    without_words : list of str
        Ids of items so far that have no word of the vocabulary: their answers are those of an empty item.
    n_seen, n_compared : int
        Number of items so far that are exactly in the training data, and of those for which that is known.
    """

    model: Model
    collection: Collection
    options: Any = None
    progress: Any = None
    with_text: bool = False
    skipped: list[Skipped] = field(default_factory=list)
    without_words: list[str] = field(default_factory=list)
    n_seen: int = 0
    n_compared: int = 0

    def __iter__(self) -> Iterator[list[Answer]]:
        from bagwise.app.training.items import count_words

        n_items = len(self.collection)
        for first in range(0, n_items, _BATCH_SIZE):
            batch = self.collection[first : first + _BATCH_SIZE]

            def follow(step: str, done: int, total: int, before: int = first) -> None:
                if self.progress is not None:
                    self.progress(step, before + done, n_items)

            try:
                counted = count_words(self.model, batch, self.options, progress=follow)
            except NothingReadError as error:
                self.skipped.extend(error.skipped)
                continue
            self.skipped.extend(counted.skipped)
            ids = batch[counted.kept].ids
            if not MODALITIES[self.model.modality].rows:
                words = np.asarray(abs(counted.matrix).sum(axis=1)).ravel()
                self.without_words.extend(id for id, n in zip(ids, words.tolist(), strict=True) if n == 0)
            if self.model.item_hashes is not None:
                seen, compared, _ = compare_hashes(self.model, item_hashes(counted.matrix))
                self.n_seen += int(seen.sum())
                self.n_compared += int(compared.sum())
            answers = answers_of(self.model, ids, counted.matrix)
            if self.with_text:
                texts = [item.load() for item in batch[counted.kept]]
                answers = [answer._replace(text=text) for answer, text in zip(answers, texts, strict=True)]
            yield answers
        if len(self.skipped) == n_items:
            raise NothingReadError(self.skipped, self.collection.source)
