"""`Workspace`: a model with items, and all that the explorer shows of them, as JSON values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.app.explorer.items import CutItems, Items
from bagwise.app.explorer.label_changes import LabelChanges
from bagwise.app.explorer.worth import GroupWorth
from bagwise.app.model import Model
from bagwise.app.model.compact import groups_of
from bagwise.app.model.editing import linked_words, locked_groups
from bagwise.app.model.explanation import Explanation, sum_cells
from bagwise.app.model.groups import name_model_group, names_differ, title_model_group, typicality, word_shares
from bagwise.app.training.group_data import typical_patches
from bagwise.app.training.item_answers import TopClasses
from bagwise.errors import BagwiseError
from bagwise.merging.regrouping import joined_sets

if TYPE_CHECKING:
    from bagwise.app.explorer.comparison import Other
    from bagwise.app.explorer.editor import Editor
    from bagwise.app.index.item_clusters import ItemClusters
    from bagwise.app.index.item_index import ItemIndex

__all__ = ["Cut", "Origin", "Workspace"]

_HELD_CUTS = 8
_KEPT_EXPLANATIONS = 100  # of a cut
# Groups of a cut that have pictures of patches.
_WITH_PATCHES = 60


class Cut:
    """A model at one number of groups, with features of items and answers, computed when they are asked for.

    Parameters
    ----------
    model : Model
        Cut at the number of groups.
    items : Items or None
    names_differ : bool, default=False
        See `bagwise.app.model.groups.names_differ`.
    """

    def __init__(self, model: Model, items: Items | None, names_differ: bool = False) -> None:
        self.model = model
        self.items = items
        self.names_differ = names_differ
        self.lock = threading.RLock()
        self._explained: OrderedDict[int, Explanation] = OrderedDict()
        self._balanced: tuple[float, NDArray[np.float64]] | None = None

    @cached_property
    def of_items(self) -> CutItems | None:
        """The items as this cut sees them, or None."""
        return None if self.items is None else self.items.cut(self.model)

    @property
    def answered_at(self) -> int | None:
        """The number of groups that answers are for: this one, or the nearest that is stored; None without answers."""
        return None if self.of_items is None else self.of_items.answered_at

    @property
    def has_answers(self) -> bool:
        """Whether there are items, and a classifier."""
        return self.answered_at is not None

    @cached_property
    def answers(self) -> TopClasses:
        """Answers for the items."""
        top = None if self.of_items is None else self.of_items.answers
        if top is None:
            raise BagwiseError(f"There is no classifier for {self.model.n_groups} groups, or there are no items.")
        return top

    @property
    def confidence(self) -> NDArray[Any]:
        """How certain answers are: calibrated probabilities where they are known, otherwise margins."""
        known = None if self.of_items is None else self.of_items.probability
        return self.answers.margin if known is None else known

    @property
    def confidence_name(self) -> str | None:
        """What `confidence` is: "probability" or "margin"; None without answers."""
        if self.of_items is None or not self.has_answers:
            return None
        return "margin" if self.of_items.probability is None else "probability"

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
        pairs = n * self.items.codes[known] + self.answers.predicted[known].astype(np.int64)
        return np.bincount(pairs, minlength=n * n).reshape(n, n)

    def explain(self, number: int) -> Explanation:
        """Return the explanation of an item by this model; the last ones are kept, for the places of its words."""
        assert self.items is not None
        if number not in self._explained:
            self._explained[number] = self.model.explain(self.items.item(number))
            if len(self._explained) > _KEPT_EXPLANATIONS:
                self._explained.popitem(last=False)
        self._explained.move_to_end(number)
        return self._explained[number]

    def check_group(self, number: int) -> None:
        """Raise an error unless there is a group of this number."""
        if not 0 <= number < self.model.n_groups:
            raise BagwiseError(f"Groups are numbered from 0 to {self.model.n_groups - 1}, got {number}.")

    def check_class(self, number: int) -> None:
        """Raise an error if there is no class of this number."""
        if not 0 <= number < len(self.model.classes):
            raise BagwiseError(f"There is no class {number}: there are {len(self.model.classes)}, numbered from 0.")

    @cached_property
    def _ordered(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The words of all groups, one group after the other, the most typical first; where each group ends."""
        lookup = self.model.lookup
        order = np.lexsort((-typicality(self.model), lookup))
        return order, np.cumsum(np.bincount(lookup, minlength=self.model.n_groups))

    def words(self, group: int, balance: float | None = None) -> NDArray[np.int64]:
        """Return the words of a group, the most typical first, see `bagwise.app.model.groups.typicality`."""
        words, ends = self._ordered
        inside = words[ends[group - 1] if group else 0 : ends[group]]
        if balance is None:
            return inside
        return inside[np.argsort(-self._typical(balance)[inside], kind="stable")]

    def _typical(self, balance: float) -> NDArray[np.float64]:
        if self._balanced is None or self._balanced[0] != balance:
            self._balanced = balance, typicality(self.model, balance=balance)
        return self._balanced[1]

    def name(self, group: int) -> str:
        """Return the name of a group; those that are not shown are not named."""
        return name_model_group(self.model, group, self.words(group)) if self.names_differ else str(self._names[group])

    def title(self, group: int) -> str:
        """Return the name of a group as it is shown, see `bagwise.app.model.Group.title`; numbers tell groups apart."""
        return title_model_group(self.model, self.name(group), self.words(group))

    @cached_property
    def _names(self) -> NDArray[Any]:
        return self.model.group_names()

    @cached_property
    def shares(self) -> NDArray[np.float64]:
        """The part of each group in what `word_shares` says."""
        words, ends = self._ordered
        groups = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        return np.bincount(groups, word_shares(self.model)[0][words], len(ends)).astype(np.float64)

    @cached_property
    def locked(self) -> frozenset[int]:
        """The groups that are locked."""
        return frozenset(locked_groups(self.model))

    @cached_property
    def class_weights(self) -> NDArray[np.float64] | None:
        """What each group adds to the score of each class, shape (n_classes, n_groups), or None.

        With items, see `bagwise.app.training.group_data.class_weights`; without, the weight of the classifier.
        """
        if self.model.n_groups not in self.model.heads:
            return None
        if self.of_items is not None:
            return self.of_items.class_weights()
        return sum_cells(self.model.head.coef, self.model.n_groups)

    @cached_property
    def deciding(self) -> NDArray[np.float64]:
        """How much each group decides; by how often it occurs if there are no items."""
        return self.shares if self.of_items is None else self.of_items.deciding()

    @cached_property
    def worth(self) -> GroupWorth:
        """What groups are worth, if there are items."""
        if self.items is None:
            raise BagwiseError("There are no items: start bagwise explore with their location, or with an index.")
        return GroupWorth(self)

    @cached_property
    def shown_first(self) -> NDArray[np.int64]:
        """The groups that decide most, which have patches."""
        return np.argsort(-self.deciding, kind="stable")[:_WITH_PATCHES]

    @cached_property
    def patches(self) -> dict[int, list[bytes]]:
        """Pictures of typical patches of the groups that decide most, for images."""
        collection, samples = (None, None) if self.items is None else self.items.samples
        if collection is None or not samples:
            return {}
        return typical_patches(self.model, collection, samples, self.shown_first)


class Origin(NamedTuple):
    """Where a workspace comes from.

    `path` is a model, or an index with `is_index`. `source` are items whose words were counted, None for those that the
    index knows; `reading` are the options that they were read with.
    """

    path: str
    is_index: bool
    source: str | None = None
    reading: Mapping[str, Any] = {}


class Workspace:
    """A model with items, at any number of groups.

    Parameters
    ----------
    model : Model
    items : Items, default=None
        Without items there are no answers, no examples and no search.
    title : str, default=""
        Name of the model.

    Attributes
    ----------
    model, items, title
        As given.
    lock, picture_lock, search_lock : threading.RLock
        Held while something of no cut is computed, patches are read, or a search index is built, so that threads do not
        do the same work.
    visited : threading.Event
        Set when a page has asked for the overview.
    origin : Origin or None
        The files that were opened.
    other : Other or None
        The model that this one is compared with, see `bagwise.app.explorer.comparison`.
    grouped : tuple or None
        The index by groups that was searched last, after its number of groups and metric.
    editor : Editor or None
        What edits the model, see `bagwise.app.explorer.editor`.
    clusters : ItemClusters or None
        The clusters of the items, if their index has some.
    labels : LabelChanges
        What was decided about labels.
    revision : int
        How many times people have changed the model, or the clusters, since it was opened.
    """

    def __init__(self, model: Model, items: Items | None = None, *, title: str = "") -> None:
        self.model = model
        self.items = items
        self.title = title
        self.origin: Origin | None = None
        self.other: Other | None = None
        self.grouped: tuple[tuple[int, str], ItemIndex] | None = None
        self.lock = threading.RLock()
        self.picture_lock = threading.RLock()
        self.search_lock = threading.RLock()
        self.visited = threading.Event()
        self.editor: Editor | None = None
        self.clusters: ItemClusters | None = None
        self.revision = 0
        self.labels = LabelChanges(None)
        self._cuts: OrderedDict[int, Cut] = OrderedDict()
        self._hold_cuts = threading.Lock()
        self._kept: dict[str, Any] = {}

    def edited(self, model: Model, items: Items | None, revision: int) -> Workspace:
        """Return the workspace of an edited model with the same items; what does not depend on groups is shared."""
        other = Workspace(model, items, title=self.title)
        other.visited, other.editor, other.revision = self.visited, self.editor, revision
        other.origin, other.other, other.labels = self.origin, self.other, self.labels
        shared = ("ids", "folded_names", "folded_ids", "id_ranks", "numbers")
        other.__dict__.update({name: self.__dict__[name] for name in shared if name in self.__dict__})
        return other

    @cached_property
    def ids(self) -> list[str]:
        """Ids of the items."""
        return [] if self.items is None else list(self.items.ids)

    @cached_property
    def folded_names(self) -> list[str]:
        """Names of words without their case, for finding."""
        return [name.casefold() for name in self.model.word_names or ()]

    @cached_property
    def folded_ids(self) -> list[str]:
        """Ids without their case, for finding."""
        return [id.casefold() for id in self.ids]

    @cached_property
    def id_ranks(self) -> NDArray[np.int64]:
        """The place of each item if they are sorted by id."""
        ranks = np.empty(len(self.ids), np.int64)
        ranks[sorted(range(len(self.ids)), key=self.ids.__getitem__)] = np.arange(len(self.ids))
        return ranks

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Numbers of the items by their ids."""
        return {id: number for number, id in enumerate(self.ids)}

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what `make` gave when it was first called for this name."""
        with self.lock:
            if name not in self._kept:
                self._kept[name] = make()
            return self._kept[name]

    @cached_property
    def names_differ(self) -> bool:
        """See `bagwise.app.model.groups.names_differ`."""
        return names_differ(self.model)

    @cached_property
    def leaf_order(self) -> NDArray[np.int64]:
        """The words in the order of the hierarchy."""
        return self.model.hierarchy.leaf_order()

    @property
    def sizes(self) -> tuple[int, int]:
        """Least and largest number of groups that the model can be cut at."""
        model = self.model
        if groups_of(model.hierarchy) is not None:  # compact
            return model.n_groups, model.n_groups
        return model.hierarchy.min_groups, (model.flattened or model.hierarchy.n_words) - self._n_joined

    @cached_property
    def _n_joined(self) -> int:
        """How many fewer groups than words there are at most, since edits keep some words together."""
        locked = [np.flatnonzero(self.model.lookup == number).tolist() for number in locked_groups(self.model)]
        together = joined_sets([*locked, *linked_words(self.model)["must_link"]])
        return sum(len(words) - 1 for words in together)

    def cut(self, n: int | None = None) -> Cut:
        """Return the model at a number of groups; the last few cuts are kept."""
        n = self.model.n_groups if n is None else n
        low, high = self.sizes
        if not low <= n <= high:
            raise BagwiseError(f"The number of groups must be from {low} to {high}, got {n}.")
        with self._hold_cuts:
            if n not in self._cuts:
                self._cuts[n] = self.new_cut(n)
                while len(self._cuts) > _HELD_CUTS:
                    self._cuts.popitem(last=False)
            self._cuts.move_to_end(n)
            return self._cuts[n]

    def new_cut(self, n: int) -> Cut:
        """Return the model at a number of groups, which is not kept."""
        return Cut(self.model.cut(n), self.items, self.names_differ)
