"""Two models on the same items: which answers differ, for the page Compare and for filters of items."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.app.training.comparing import PairedErrors, compare_answers
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.explorer.items import Items
    from bagwise.app.explorer.workspace import Cut, Workspace
    from bagwise.app.model import Model

__all__ = ["WHICH", "ModelComparison", "Other", "compare", "default_size", "others_of"]

# Items by the answers that they get.
WHICH = ("disagree", "agree", "first_wrong", "second_wrong", "both_wrong", "both_right")
_HELD = 4  # numbers of groups whose answers are kept


class Other:
    """A model that the one of a workspace is compared with.

    Parameters
    ----------
    title : str
    space : Workspace
        Of the other model, with its own items, or without.
    recounts : bool, default=False
        Whether answers of both models are computed from the words of the items of the first, which must have the same
        vocabulary. Otherwise the other workspace has items of its own, which are matched by their ids.
    """

    def __init__(self, title: str, space: Workspace, recounts: bool = False) -> None:
        self.title, self.space, self.recounts = title, space, recounts
        # by what they depend on, which is held so that nothing else can have its identity
        self._answers: OrderedDict[tuple[int, int], tuple[Any, NDArray[np.intp]]] = OrderedDict()
        self._lock = threading.Lock()
        self._places: NDArray[np.int64] | None = None

    def places(self, first: Workspace) -> NDArray[np.int64]:
        """Return the number of each item of the first workspace in the other one; -1: it is not there."""
        if self.recounts or self.space is first:
            return np.arange(len(first.ids))
        if self._places is None:
            numbers = self.space.numbers
            self._places = np.array([numbers.get(id, -1) for id in first.ids], dtype=np.int64)
        return self._places

    def predicted(self, items: Items, model: Model) -> NDArray[np.intp]:
        """Return the answers of a model, cut at a number of groups, for items whose words are known."""
        needs = (model.hierarchy, model.head)
        key = (id(needs[0]), id(needs[1]))
        with self._lock:
            if key not in self._answers:
                self._answers[key] = needs, items.cut(model).scored().argmax(axis=1)
                if len(self._answers) > 2 * _HELD:
                    self._answers.popitem(last=False)
            self._answers.move_to_end(key)
            return self._answers[key][1]


def others_of(space: Workspace) -> dict[str, Other]:
    """Return what a model can be compared with: another model, itself before its edits, itself at another size."""
    others = {} if space.other is None else {"other": space.other}
    if space.model.edits:
        others["unedited"] = space.once("before the edits", lambda: _unedited(space))
    return others | {"size": space.once("at another size", lambda: Other(space.title, space))}


def _unedited(space: Workspace) -> Other:
    from bagwise.app.explorer.workspace import Workspace

    model = space.model.undo(len(space.model.edits))
    return Other("before the edits", Workspace(model, title=space.title), recounts=True)


def default_size(space: Workspace, other: Other, n: int) -> int:
    """Return the number of groups of the other model that is shown first."""
    if other.space is not space:
        return other.space.model.n_groups
    if n != space.model.n_groups:
        return space.model.n_groups
    sizes = [size for size in (space.model.path.sizes if space.model.path else space.model.heads) if size != n]
    return max(sizes, default=space.sizes[1])


def compare(space: Workspace, n: int | None, m: int | None = None, against: str = "") -> ModelComparison:
    """Compare the model at n groups with another at m groups.

    Parameters
    ----------
    space : Workspace
    n, m : int or None
        None: as fitted, and `default_size`.
    against : str, default=""
        A key of `others_of`; "": the first.
    """
    others = others_of(space)
    name = against or next(iter(others))
    if name not in others:
        raise BagwiseError(f"The model is compared with {', '.join(others)}, not with {against!r:.40}.")
    other, first = others[name], space.cut(n)
    second = other.space.cut(default_size(space, other, first.model.n_groups) if m is None else m)
    return ModelComparison(space, name, other, first, second)


@dataclass(frozen=True, eq=False)
class ModelComparison:
    """A model at a number of groups beside another one.

    Attributes
    ----------
    space : Workspace
        Of the first.
    against : str
        Its key in `others_of`.
    other : Other
    first, second : Cut
    """

    space: Workspace
    against: str
    other: Other
    first: Cut
    second: Cut

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The classes of both models, those of the first in their order."""
        return tuple(dict.fromkeys([*self.first.model.classes, *self.second.model.classes]))

    @property
    def second_title(self) -> str:
        """The name of the other model; of one model at two sizes, the number of groups."""
        return f"{self.second.model.n_groups:,} groups" if self.other.space is self.space else self.other.title

    @property
    def has_answers(self) -> bool:
        """Whether there are items, and both models answer for them."""
        if self.space.items is None or not self.first.has_answers:
            return False
        return self._has_head if self.other.recounts else self.second.has_answers

    @property
    def _has_head(self) -> bool:
        return self.second.model.n_groups in self.second.model.heads

    @cached_property
    def answers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The answers of both for the items of the first, as indices into `classes`; -1 for items without one."""
        items = self.space.items
        if not self.has_answers or items is None:
            raise BagwiseError("There are no items that both models answer for.")
        number = {name: k for k, name in enumerate(self.classes)}
        of_second = np.array([number[name] for name in self.second.model.classes], dtype=np.int64)
        if self.other.recounts:
            model = self.first.model
            one = self.other.predicted(items, model) if model.n_groups in model.heads else self.first.answers.predicted
            return one.astype(np.int64), of_second[self.other.predicted(items, self.second.model)]
        places = self.other.places(self.space)
        second_answers = of_second[self.second.answers.predicted[np.maximum(places, 0)]]
        return self.first.answers.predicted.astype(np.int64), np.where(places >= 0, second_answers, -1)

    @cached_property
    def matched(self) -> NDArray[np.bool_]:
        """Items of the first model that the second has too."""
        return self.other.places(self.space) >= 0

    @cached_property
    def fair(self) -> NDArray[np.bool_]:
        """Items that neither of the answers was learned from, as far as that is known."""
        first, second = self.space.items, self.other.space.items
        assert first is not None
        if self.other.recounts or self.other.space is self.space or second is None:
            return _not_trained_on(first, stored=not self.other.recounts)
        return _not_trained_on(first) & _not_trained_on(second)[np.maximum(self.other.places(self.space), 0)]

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """Labelled items that errors are compared on: those of `fair`, or all where there are none."""
        assert self.space.items is not None
        known = self.matched & (self.space.items.codes >= 0)
        return known & self.fair if (known & self.fair).any() else known

    @cached_property
    def paired(self) -> PairedErrors | None:
        """Errors of both; None without labelled items or answers."""
        if not self.has_answers or self.space.items is None or not self.counted.any():
            return None
        chosen = self.counted
        return compare_answers(self.space.items.codes[chosen], *(answers[chosen] for answers in self.answers))

    def chosen(self, which: str) -> NDArray[np.bool_]:
        """Tell which items get answers of a kind, see `WHICH`; "" for all that both have."""
        first, second = self.answers
        items = self.space.items
        assert items is not None
        if not which:
            return self.matched
        if which in ("agree", "disagree"):
            return self.matched & ((first == second) == (which == "agree"))
        if which not in WHICH:
            raise BagwiseError(f"Items are compared as {', '.join(WHICH)}, not as {which!r:.40}.")
        wrong, others = first != items.codes, second != items.codes
        wanted = (which in ("first_wrong", "both_wrong"), which in ("second_wrong", "both_wrong"))
        return self.counted & (wrong == wanted[0]) & (others == wanted[1])

    @cached_property
    def crossed(self) -> NDArray[np.int64]:
        """How often each pair of answers occurs, those of the first model in rows."""
        first, second = (answers[self.matched] for answers in self.answers)
        n = len(self.classes)
        return np.bincount(n * first + second, minlength=n * n).reshape(n, n)


def _not_trained_on(items: Items, stored: bool = True) -> NDArray[np.bool_]:
    """Tell which items answers were not learned from: others than the training items, and held-out ones if stored."""
    if items.seen is None:
        return np.ones(len(items), np.bool_)
    return items.seen.new | items.held_out if stored and items.held_out is not None else items.seen.new
