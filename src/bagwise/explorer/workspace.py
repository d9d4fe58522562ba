"""`Workspace`: a model with items, and all that the explorer shows of them, as JSON values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.model import Model
from bagwise.model.explanation import sum_cells
from bagwise.model.vectorizers import WordSample
from bagwise.sources.collection import Collection
from bagwise.training.group_data import class_weights, deciding, typical_patches
from bagwise.training.seen import SeenItems

__all__ = ["Answers", "Cut", "Items", "Workspace"]

_HELD_CUTS = 8
# Groups of a cut that have pictures of patches.
_WITH_PATCHES = 60


@dataclass(frozen=True)
class Items:
    """Items as histograms, with what is known of them.

    Attributes
    ----------
    collection : Collection
    histograms : CSR array or ndarray of shape (n_items, n_cells * d)
    codes : ndarray of shape (n_items,)
        Classes as indices into those of the model; -1 for items without a label that the model knows.
    place : str
        Where they come from, for messages.
    seen : SeenItems or None
        Which of them the model was learned from, if that is known.
    samples : mapping
        Words of the descriptors of some images, for patches.
    """

    collection: Collection
    histograms: Any
    codes: NDArray[np.int64]
    place: str
    seen: SeenItems | None = None
    samples: Mapping[int, WordSample] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.collection)


@dataclass(frozen=True)
class Answers:
    """What a model says of items: class, its score, the second best class and the distance between both."""

    predicted: NDArray[np.int64]
    score: NDArray[np.float64]
    second: NDArray[np.int64]
    margin: NDArray[np.float64]

    @classmethod
    def of(cls, scores: NDArray[np.float64]) -> Answers:
        """Read the answers off the scores of all classes, shape (n_items, n_classes)."""
        rows = np.arange(len(scores))
        predicted = scores.argmax(axis=1)
        others = scores.copy()
        others[rows, predicted] = -np.inf
        second = others.argmax(axis=1)
        best = scores[rows, predicted]
        return cls(predicted, best, second, best - scores[rows, second])


class Cut:
    """A model at one number of groups, with features of items and answers, computed when they are asked for.

    Parameters
    ----------
    model : Model
        Cut at the number of groups.
    items : Items or None
    """

    def __init__(self, model: Model, items: Items | None) -> None:
        self.model = model
        self.items = items

    @cached_property
    def features(self) -> Any:
        """Features of the items, or None."""
        return None if self.items is None else self.model.group(self.items.histograms)

    @cached_property
    def has_answers(self) -> bool:
        """Whether there are items, and a classifier at this number of groups."""
        return self.items is not None and self.model.n_groups in self.model.heads

    @cached_property
    def answers(self) -> Answers:
        """Answers of the model on the items."""
        if not self.has_answers:
            raise BagwiseError(f"There is no classifier for {self.model.n_groups} groups, or there are no items.")
        return Answers.of(self.model.head.scores(self.features))

    @cached_property
    def error(self) -> float | None:
        """Fraction of labelled items that are wrong, or None."""
        return self.error_of(None)

    def error_of(self, chosen: NDArray[np.bool_] | None) -> float | None:
        """Return the fraction of labelled items that are wrong among some; None if there are none, or no answers."""
        if self.items is None or not self.has_answers:
            return None
        known = self.items.codes >= 0 if chosen is None else chosen & (self.items.codes >= 0)
        return float((self.answers.predicted[known] != self.items.codes[known]).mean()) if known.any() else None

    @cached_property
    def confusion(self) -> NDArray[np.int64] | None:
        """Confusion matrix, true classes in rows, or None."""
        if self.error is None:
            return None
        assert self.items is not None
        n, known = len(self.model.classes), self.items.codes >= 0
        pairs = n * self.items.codes[known] + self.answers.predicted[known]
        return np.bincount(pairs, minlength=n * n).reshape(n, n)

    @cached_property
    def groups(self) -> list[NDArray[np.int64]]:
        """The words of each group."""
        return self.model.groups()

    @cached_property
    def names(self) -> list[str]:
        """Names of the groups."""
        return [str(name) for name in self.model.group_names()]

    @cached_property
    def occurrences(self) -> NDArray[np.float64]:
        """How often each group occurs in the items, or in those that the model was fitted to."""
        words = self.word_totals
        return np.array([words[members].sum() for members in self.groups])

    @cached_property
    def word_totals(self) -> NDArray[np.float64]:
        """Occurrences of each word, as the model has them; equal if it does not."""
        totals = self.model.word_totals
        return np.ones(self.model.hierarchy.n_words) if totals is None else totals

    @cached_property
    def class_weights(self) -> NDArray[np.float64] | None:
        """What each group adds to the score of each class, shape (n_classes, n_groups), or None.

        With items, see `bagwise.training.group_data.class_weights`; without, the weight of the classifier.
        """
        if self.model.n_groups not in self.model.heads:
            return None
        if self.items is not None:
            return class_weights(self.model, self.features)
        return sum_cells(self.model.head.coef, self.model.n_groups)

    @cached_property
    def deciding(self) -> NDArray[np.float64]:
        """How much each group decides; by how often it occurs if there are no items."""
        return self.occurrences if self.items is None else deciding(self.model, self.features)

    @cached_property
    def shown_first(self) -> NDArray[np.int64]:
        """The groups that decide most, which have patches."""
        return np.argsort(-self.deciding, kind="stable")[:_WITH_PATCHES]

    @cached_property
    def patches(self) -> dict[int, list[bytes]]:
        """Pictures of typical patches of the groups that decide most, for images."""
        if self.items is None or not self.items.samples:
            return {}
        return typical_patches(self.model, self.items.collection, self.items.samples, self.shown_first)


class Workspace:
    """A model with items, at any number of groups.

    Parameters
    ----------
    model : Model
    items : Items, default=None
        Without items there are no answers, no examples and no search.
    index : callable, default=None
        Gives a `bagwise.training.ItemIndex` of the items, for search; called once, at the first search.
    title : str, default=""
        Name of the model.

    Attributes
    ----------
    model, items, title
        As given.
    lock, picture_lock : threading.RLock
        Held while something is computed, or patches are read, so that threads do not do the same work.
    """

    def __init__(
        self, model: Model, items: Items | None = None, *, index: Callable[[], Any] | None = None, title: str = ""
    ) -> None:
        self.model = model
        self.items = items
        self.title = title
        self.lock = threading.RLock()
        self.picture_lock = threading.RLock()
        self._make_index = index
        self._cuts: OrderedDict[int, Cut] = OrderedDict()

    @cached_property
    def index(self) -> Any:
        """The search index of the items, or None."""
        return None if self._make_index is None else self._make_index()

    @property
    def searchable(self) -> bool:
        """Whether items can be searched."""
        return self._make_index is not None

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the items."""
        return [] if self.items is None else self.items.collection.ids

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Numbers of the items by their ids."""
        return {id: number for number, id in enumerate(self.ids)}

    @cached_property
    def leaf_order(self) -> NDArray[np.int64]:
        """The words in the order of the hierarchy."""
        return self.model.hierarchy.leaf_order()

    @property
    def sizes(self) -> tuple[int, int]:
        """Least and largest number of groups that can be shown."""
        return self.model.hierarchy.min_groups, self.model.hierarchy.n_words

    def cut(self, n: int | None = None) -> Cut:
        """Return the model at a number of groups; the last few cuts are kept."""
        n = self.model.n_groups if n is None else n
        low, high = self.sizes
        if not low <= n <= high:
            raise BagwiseError(f"The number of groups must be from {low} to {high}, got {n}.")
        with self.lock:
            if n not in self._cuts:
                self._cuts[n] = Cut(self.model.cut(n), self.items)
                while len(self._cuts) > _HELD_CUTS:
                    self._cuts.popitem(last=False)
            self._cuts.move_to_end(n)
            return self._cuts[n]
