"""Items of the explorer: an index, and the words of its items, as the index holds them or counted from their source."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.app.explorer.item_maps import MapOfItems
from bagwise.app.index.index_words import CountedWords, IndexedWords
from bagwise.app.index.item_scores import ItemScores, score_items, separate_classes
from bagwise.app.index.results_data import IndexedItems
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.vectorizers import WordSample
from bagwise.app.model import Model
from bagwise.app.training.folds import FoldModels
from bagwise.app.training.group_data import class_weights_of_spread, deciding
from bagwise.app.training.item_answers import HELD_OUT, TopClasses
from bagwise.app.training.seen import SeenItems
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection
from bagwise.sources.items import Item

if TYPE_CHECKING:
    from bagwise.app.index.item_index import ItemIndex
    from bagwise.app.training.steering import Steering

__all__ = ["CutItems", "Items"]


class Items:
    """The items of an index. Their source is opened when content is shown.

    Parameters
    ----------
    index : ItemIndex
        Its answers are shown; without any, answers are computed at each number of groups.
    words : IndexedWords or CountedWords
        Of the items.
    collection : Collection, default=None
        The items, if they are there already.
    samples : mapping, default=None
        Words of the descriptors of some images; None: they are read when they are needed.
    seen : SeenItems, default=None
        Which of them the model was learned from; None: as the answers of the index say, if there are any.

    Attributes
    ----------
    ids : sequence of str
    codes : ndarray of shape (n_items,)
        Classes as indices into those of the model; -1 for items without a label that the model knows.
    place : str
        Where they come from, for messages.
    mapped : MapOfItems
        The items in two dimensions.
    collection
        As given.
    """

    def __init__(
        self,
        index: ItemIndex,
        words: IndexedWords | CountedWords,
        collection: Collection | None = None,
        samples: Mapping[int, WordSample] | None = None,
        seen: SeenItems | None = None,
    ) -> None:
        self.index, self.words, self._answers = index, words, index.answers
        self.ids = index.ids
        number = {name: k for k, name in enumerate(index.model.classes)}
        self.codes = np.array([-1 if name is None else number.get(name, -1) for name in index.labels], np.int64)
        if collection is not None:  # items of several classes have none
            self.codes = collection.codes_in(index.model.classes)
        self.collection, self._samples = collection, samples
        self._content = IndexedItems(index, collection=collection)
        path = self._content.path
        self.place = "an unknown place" if path is None else path.name or str(path)
        self.seen = index.answers.seen(index.ids) if seen is None and index.answers is not None else seen
        self.mapped = MapOfItems(self.codes)
        if index.map is not None:
            self.mapped.give(index.map)
        self._opening = threading.Lock()

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def stored(self) -> bool:
        """Whether answers are those of the index, which edits change."""
        return self._answers is not None

    @property
    def ready(self) -> bool:
        """Whether `item` answers at once: the source is open, or there is none."""
        return self.collection is not None or "by_id" in self._content.__dict__ or not self._content.exist

    def open(self) -> dict[str, Item]:
        """Open the source, once; return its items by their ids."""
        with self._opening:
            return self._content.by_id

    def item(self, number: int) -> Item:
        """Return an item, whose content can be read; raise an error if there is none any more."""
        if self.collection is not None:
            return self.collection[number]
        path, id = self._content.path, self.ids[number]
        if path is None:
            raise BagwiseError("The index does not say where its items are, so their content cannot be shown.")
        if not self._content.exist:
            raise BagwiseError(f"{path} does not exist any more, so the content of its items cannot be shown.")
        known = self.open().get(id)
        if known is None:
            raise BagwiseError(f"{id} is not in {path} any more, so its content cannot be shown.")
        return known

    @cached_property
    def held_out(self) -> NDArray[np.bool_] | None:
        """Items whose answers are those of cross-validation, by models that were not trained on them."""
        origins = np.zeros(0, np.uint8) if self._answers is None else self._answers.origins
        return origins == HELD_OUT if (origins == HELD_OUT).any() else None

    @property
    def folds(self) -> FoldModels | None:
        """What the folds of the model's cross-validation have learned; None unless all of their items are here."""
        folds = self.index.folds
        return folds if folds is not None and folds.complete and (self.codes[folds.tested] >= 0).all() else None

    @cached_property
    def steering(self) -> Steering:
        """What measures edits, if there are `folds`."""
        measures = self.index.steering(self.words)
        assert measures is not None
        return measures

    def scores(self, model: Model, without: Sequence[int] = ()) -> ItemScores:
        """Return the scores of a cut by models that have not seen the items; see `score_items`."""
        return score_items(self.index, model, without=without, **self._known, seen=self.seen)

    def separate(self, model: Model, first: int, second: int, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what each group adds to the score of one class less that of another; see `separate_classes`."""
        return separate_classes(self.index, model, first, second, numbers, **self._known)

    @property
    def _known(self) -> dict[str, Any]:
        return {"words": self.words, "steering": None if self.folds is None else self.steering}

    def answered_by(self, model: Model, number: int) -> Model | None:
        """Return the model of the fold that gave the held-out answer for an item; see `ItemIndex.answered_by`."""
        if not self.stored:
            return None
        return self.index.answered_by(number, model.n_groups, None if self.folds is None else lambda: self.steering)

    @property
    def protocol(self) -> str:
        """How those answers were found."""
        return "" if self._answers is None else self._answers.protocol

    @property
    def has_samples(self) -> bool:
        """Whether there are or will be words of descriptors, for patches."""
        if self._samples is not None:
            return bool(self._samples)
        return MODALITIES[self.index.model.modality].pictured and self._content.exist

    @cached_property
    def samples(self) -> tuple[Collection | None, Mapping[int, WordSample]]:
        """Some images, and the words of their descriptors, for patches."""
        from bagwise.app.options import FitOptions
        from bagwise.app.training.items import count_words

        if self._samples is not None:
            return self.collection, self._samples
        by_id, model = self.open(), self.index.model
        chosen = np.unique(
            np.linspace(0, len(self) - 1, min(len(self), MODALITIES[self.index.model.modality].n_sampled)).astype(
                np.intp
            )
        )
        some = [by_id[self.ids[k]] for k in chosen.tolist() if self.ids[k] in by_id]
        if not self.has_samples or not some:
            return None, {}
        collection = Collection.of(some, model.modality, self.place)
        counted = count_words(model, collection, FitOptions(on_error="skip"), n_samples=len(some))
        return (collection[counted.kept] if counted.skipped else collection), counted.samples

    def cut(self, model: Model) -> CutItems:
        """Return the items as a cut of the model sees them."""
        return CutItems(self, model)

    @property
    def histograms(self) -> Any:
        """Counts of the words of all items; None if only the index knows them."""
        return self.words.histograms if isinstance(self.words, CountedWords) else None

    def edited(self, index: ItemIndex) -> Items:
        """Return the same items as an index with another model and other answers knows them."""
        other = copy.copy(self)
        other.index, other._answers, other.words = index, index.answers, self.words.of_model(index)
        return other


class CutItems:
    """Items as a cut of a model sees them: answers, and what groups do in them.

    Attributes
    ----------
    model : Model
        Cut at a number of groups.
    """

    def __init__(self, items: Items, model: Model) -> None:
        self.items, self.model = items, model
        self._size = None if items._answers is None else items._answers.nearest(model.n_groups)

    @cached_property
    def answers(self) -> TopClasses | None:
        """Answers for the items; None without a classifier."""
        if self.items._answers is not None:
            return None if self._size is None else self.items._answers.top.at(self._size)
        return None if self.answered_at is None else TopClasses.of(self.scored())

    @property
    def answered_at(self) -> int | None:
        """The number of groups that answers are for; None without a classifier."""
        if self.items._answers is not None:
            return None if self._size is None else self.items._answers.sizes[self._size]
        return self.model.n_groups if self.model.n_groups in self.model.heads else None

    @cached_property
    def probability(self) -> NDArray[np.float64] | None:
        """Calibrated probabilities of the answers; None if they are not known."""
        if self.items.stored or self.model.n_groups not in self.model.calibration:
            return None
        return self.model.probabilities(self.scored()).max(axis=1)

    @cached_property
    def _spread(self) -> NDArray[np.float64]:
        return self.items.words.spread(self.model)

    def scored(self) -> NDArray[np.float64]:
        """Return the scores that the model gives to the items, shape (n_items, n_classes)."""
        return self.model.head.scores(self.items.words.features(self.model))

    def class_weights(self) -> NDArray[np.float64]:
        """Return what `bagwise.app.training.group_data.class_weights` does."""
        return class_weights_of_spread(self.model, self._spread)

    def deciding(self) -> NDArray[np.float64]:
        """Return what `bagwise.app.training.group_data.deciding` does."""
        if self.model.layout.n_cells > 1:
            return deciding(self.model, self.items.words.features(self.model))
        return np.abs(self.class_weights()).max(axis=0) if self.model.n_groups in self.model.heads else self._spread

    def with_group(self, group: int) -> NDArray[np.bool_]:
        """Tell which items have a word of a group."""
        return self.items.words.items_with(np.flatnonzero(self.model.lookup == group))
