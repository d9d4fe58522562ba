"""Items of the explorer: counted from their source, or as an index knows them."""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.app.explorer.item_maps import MapOfItems
from bagwise.app.index.results_data import IndexedItems
from bagwise.app.model import Model
from bagwise.app.model.vectorizers import WordSample
from bagwise.app.training.group_data import class_weights, class_weights_of_spread, deciding
from bagwise.app.training.item_answers import HELD_OUT, TopClasses
from bagwise.app.training.seen import SeenItems
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection
from bagwise.sources.items import Item

if TYPE_CHECKING:
    from bagwise.app.index.index_words import IndexedWords
    from bagwise.app.index.item_index import ItemIndex

__all__ = ["CountedItems", "CutItems", "Items", "StoredItems"]


class CutItems(ABC):
    """Items as a cut of a model sees them: answers, and what groups do in them.

    Attributes
    ----------
    model : Model
        Cut at a number of groups.
    """

    model: Model

    @property
    @abstractmethod
    def answers(self) -> TopClasses | None:
        """Answers for the items; None without a classifier."""

    @property
    @abstractmethod
    def answered_at(self) -> int | None:
        """The number of groups that answers are for; None without a classifier."""

    @property
    def probability(self) -> NDArray[np.float64] | None:
        """Calibrated probabilities of the answers; None if they are not known."""
        return None

    @abstractmethod
    def class_weights(self) -> NDArray[np.float64]:
        """Return what `bagwise.app.training.group_data.class_weights` does."""

    @abstractmethod
    def deciding(self) -> NDArray[np.float64]:
        """Return what `bagwise.app.training.group_data.deciding` does."""

    @abstractmethod
    def with_group(self, group: int) -> NDArray[np.bool_]:
        """Tell which items have a word of a group."""

    @abstractmethod
    def scored(self) -> NDArray[np.float64]:
        """Return the scores that the model gives to the items, shape (n_items, n_classes)."""


class Items(ABC):
    """Items with what is known of them.

    Attributes
    ----------
    ids : sequence of str
    codes : ndarray of shape (n_items,)
        Classes as indices into those of the model; -1 for items without a label that the model knows.
    place : str
        Where they come from, for messages.
    seen : SeenItems or None
        Which of them the model was learned from, if that is known.
    mapped : MapOfItems
        The items in two dimensions.
    """

    ids: Sequence[str]
    codes: NDArray[np.int64]
    place: str
    seen: SeenItems | None
    mapped: MapOfItems

    def __len__(self) -> int:
        return len(self.codes)

    @abstractmethod
    def item(self, number: int) -> Item:
        """Return an item, whose content can be read; raise an error if there is none any more."""

    @property
    def ready(self) -> bool:
        """Whether `item` answers at once."""
        return True

    @property
    def held_out(self) -> NDArray[np.bool_] | None:
        """Items whose answers are those of cross-validation, by models that were not trained on them."""
        return None

    @property
    def protocol(self) -> str:
        """How those answers were found."""
        return ""

    @property
    def has_samples(self) -> bool:
        """Whether there are or will be words of descriptors, for patches."""
        return False

    @property
    def samples(self) -> tuple[Collection | None, Mapping[int, WordSample]]:
        """Images and the words of their descriptors, for patches."""
        return None, {}

    @abstractmethod
    def cut(self, model: Model) -> CutItems:
        """Return the items as a cut of the model sees them."""

    @abstractmethod
    def frequencies(self, model: Model) -> Any:
        """Return relative frequencies of the groups of a cut of the model in all items."""

    @property
    def ways(self) -> str | None:
        """What the index compares items by, see `ItemIndex.by`; None if it has not been built yet."""
        return None

    @property
    @abstractmethod
    def index(self) -> ItemIndex | None:
        """The search index, or None."""

    @property
    @abstractmethod
    def searchable(self) -> bool:
        """Whether there is an index."""

    @abstractmethod
    def weighted_words(self, model: Model, chosen: NDArray[np.bool_]) -> Any:
        """Return the weighted words of some items, see `bagwise.app.training.steering.Steering`."""

    def counts(self, chosen: NDArray[np.bool_]) -> Any:
        """Return the histograms of some items; None if they are not known."""
        return None


@dataclass(frozen=True)
class CountedItems(Items):
    """Items whose words were counted.

    Attributes
    ----------
    collection : Collection
    histograms : CSR array or ndarray of shape (n_items, n_cells * d)
    codes, place, seen
        See `Items`.
    word_samples : mapping
        Words of the descriptors of some images.
    make_index : callable or None
        Gives an `ItemIndex`; called once, at the first search.
    """

    collection: Collection
    histograms: Any
    codes: NDArray[np.int64]
    place: str
    seen: SeenItems | None = None
    word_samples: Mapping[int, WordSample] = field(default_factory=dict)
    make_index: Callable[[], ItemIndex] | None = None
    mapped: MapOfItems = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mapped", MapOfItems(self.codes))

    @property
    def ids(self) -> list[str]:  # type: ignore[override]
        """Ids of the items."""
        return list(self.collection.ids)

    def item(self, number: int) -> Item:
        """Return an item."""
        return self.collection[number]

    @property
    def has_samples(self) -> bool:
        """Whether there are words of descriptors."""
        return bool(self.word_samples)

    @property
    def samples(self) -> tuple[Collection, Mapping[int, WordSample]]:
        """Images and the words of their descriptors."""
        return self.collection, self.word_samples

    def cut(self, model: Model) -> CutItems:
        """Return the items as a cut of the model sees them."""
        return _CountedCut(self, model)

    @cached_property
    def index(self) -> ItemIndex | None:
        """The search index."""
        return None if self.make_index is None else self.make_index()

    @property
    def searchable(self) -> bool:
        """Whether there is an index."""
        return self.make_index is not None

    def frequencies(self, model: Model) -> Any:
        """Return relative frequencies of the groups of a cut of the model in all items."""
        assert self.index is not None
        return replace(self.index, model=model, by="groups", blend=None).plain_rows(self.histograms)

    def weighted_words(self, model: Model, chosen: NDArray[np.bool_]) -> Any:
        """Return the weighted words of some items."""
        return model.weighting.apply(self.counts(chosen), model.n_cells)

    def counts(self, chosen: NDArray[np.bool_]) -> Any:
        """Return the histograms of some items."""
        return self.histograms[np.flatnonzero(chosen)]


class _CountedCut(CutItems):
    def __init__(self, items: CountedItems, model: Model) -> None:
        self.items, self.model = items, model

    @cached_property
    def features(self) -> Any:
        return self.model.group(self.items.histograms)

    @cached_property
    def answers(self) -> TopClasses | None:
        return None if self.answered_at is None else TopClasses.of(self.scored())

    @cached_property
    def probability(self) -> NDArray[np.float64] | None:
        if self.model.n_groups not in self.model.calibration:
            return None
        return self.model.probabilities(self.scored()).max(axis=1)

    def scored(self) -> NDArray[np.float64]:
        return self.model.head.scores(self.features)

    @property
    def answered_at(self) -> int | None:
        return self.model.n_groups if self.model.n_groups in self.model.heads else None

    def class_weights(self) -> NDArray[np.float64]:
        return class_weights(self.model, self.features)

    def deciding(self) -> NDArray[np.float64]:
        return deciding(self.model, self.features)

    def with_group(self, group: int) -> NDArray[np.bool_]:
        columns = np.arange(group, self.features.shape[1], self.model.n_groups)
        return np.asarray(abs(self.features[:, columns]).sum(axis=1)).ravel() > 0


class StoredItems(Items):
    """The items of an index, with the answers and words that it holds. Their source is opened when content is shown.

    Parameters
    ----------
    index : ItemIndex
        With answers.
    words : IndexedWords
        Of the index.
    collection : Collection, default=None
        The items, if they are there already.
    """

    def __init__(self, index: ItemIndex, words: IndexedWords, collection: Collection | None = None) -> None:
        assert index.answers is not None
        self._index, self._words, self._answers = index, words, index.answers
        self.ids = index.ids
        number = {name: k for k, name in enumerate(index.model.classes)}
        self.codes = np.array([-1 if name is None else number.get(name, -1) for name in index.labels], np.int64)
        self._content = IndexedItems(index, collection=collection)
        path = self._content.path
        self.place = "an unknown place" if path is None else path.name or str(path)
        self.seen = index.answers.seen(index.ids)
        self.mapped = MapOfItems(self.codes)
        if index.map is not None:
            self.mapped.give(index.map)
        self._opening = threading.Lock()

    @property
    def index(self) -> ItemIndex:
        """The index."""
        return self._index

    @property
    def ways(self) -> str:
        """What the index compares items by."""
        return self._index.by

    @property
    def searchable(self) -> bool:
        """Items of an index can be searched."""
        return True

    @property
    def ready(self) -> bool:
        """Whether the source is open, or there is none."""
        return "by_id" in self._content.__dict__ or not self._content.exist

    def open(self) -> dict[str, Item]:
        """Open the source, once; return its items by their ids."""
        with self._opening:
            return self._content.by_id

    def item(self, number: int) -> Item:
        """Return an item of the source."""
        path, id = self._content.path, self.ids[number]
        if path is None:
            raise BagwiseError("The index does not say where its items are, so their content cannot be shown.")
        if not self._content.exist:
            raise BagwiseError(f"{path} does not exist any more, so the content of its items cannot be shown.")
        found = self.open().get(id)
        if found is None:
            raise BagwiseError(f"{id} is not in {path} any more, so its content cannot be shown.")
        return found

    @cached_property
    def held_out(self) -> NDArray[np.bool_] | None:
        """Items whose answers are those of cross-validation."""
        found = self._answers.origins == HELD_OUT
        return found if found.any() else None

    @property
    def protocol(self) -> str:
        """How those answers were found."""
        return self._answers.protocol

    @property
    def has_samples(self) -> bool:
        """Whether these are images that are still there."""
        return self._index.model.modality == "images" and self._content.exist

    @cached_property
    def samples(self) -> tuple[Collection | None, Mapping[int, WordSample]]:
        """Some images, and the words of their descriptors; they are read for it."""
        from bagwise.app.options import FitOptions
        from bagwise.app.training.items import N_SAMPLED_ITEMS, count_words

        found, model = self.open(), self._index.model
        chosen = np.unique(np.linspace(0, len(self) - 1, min(len(self), N_SAMPLED_ITEMS)).astype(np.intp))
        some = [found[self.ids[k]] for k in chosen.tolist() if self.ids[k] in found]
        if not self.has_samples or not some:
            return None, {}
        collection = Collection.of(some, model.modality, self.place)
        counted = count_words(model, collection, FitOptions(on_error="skip"), n_samples=len(some))
        return (collection[counted.kept] if counted.skipped else collection), counted.samples

    def cut(self, model: Model) -> CutItems:
        """Return the items as a cut of the model sees them."""
        return _StoredCut(self, model)

    def frequencies(self, model: Model) -> Any:
        """Return relative frequencies of the groups of a cut of the model in all items."""
        return self._words.features(model, ("l1",))

    def weighted_words(self, model: Model, chosen: NDArray[np.bool_]) -> Any:
        """Return the weighted words of some items, up to a factor where groups are normalised."""
        return self._words.words(chosen)

    def edited(self, index: ItemIndex) -> StoredItems:
        """Return the same items as an index with another model and other answers knows them."""
        assert index.answers is not None
        other = copy.copy(self)
        other._index, other._answers, other._words = index, index.answers, self._words.of_model(index)
        return other


class _StoredCut(CutItems):
    def __init__(self, items: StoredItems, model: Model) -> None:
        self.items, self.model = items, model
        self._size = items._answers.nearest(model.n_groups)

    @cached_property
    def answers(self) -> TopClasses | None:
        return None if self._size is None else self.items._answers.top.at(self._size)

    @property
    def answered_at(self) -> int | None:
        return None if self._size is None else self.items._answers.sizes[self._size]

    @cached_property
    def _spread(self) -> NDArray[np.float64]:
        return self.items._words.spread(self.model)

    def scored(self) -> NDArray[np.float64]:
        return self.model.head.scores(self.items._words.features(self.model))

    def class_weights(self) -> NDArray[np.float64]:
        return class_weights_of_spread(self.model, self._spread)

    def deciding(self) -> NDArray[np.float64]:
        if self.model.n_cells > 1:
            return deciding(self.model, self.items._words.features(self.model))
        return np.abs(self.class_weights()).max(axis=0) if self.model.n_groups in self.model.heads else self._spread

    def with_group(self, group: int) -> NDArray[np.bool_]:
        words = np.flatnonzero(self.model.lookup == group)
        return self.items._words.items_with(words)
