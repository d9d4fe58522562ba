"""How each edit changes the groups of a model: renamed, split, joined, locked and linked groups, moved words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.app.model.compact import groups_of
from bagwise.app.model.cutting import word_mass
from bagwise.app.model.groups import checked_group_names, like_names, passed_names, same_names
from bagwise.errors import BagwiseError
from bagwise.merging.group_statistics import MOST_GROUPS, GroupStatistics, base_groups, base_size
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.regrouping import joined_sets, regroup

if TYPE_CHECKING:
    from bagwise.app.model.model import Model

__all__ = ["EDITS", "EditState", "GroupEditor", "has_fixed_groups"]

Words = NDArray[np.int64]
_TOLD_WORDS = 6  # in messages

# Members of each kind of edit, beside "edit" and "n_groups".
EDITS: dict[str, tuple[str, ...]] = {
    "rename": ("group", "name"),
    "move": ("words", "to"),
    "split": ("group",),
    "join": ("groups",),
    "lock": ("group",),
    "unlock": ("group",),
    "must_link": ("words",),
    "cannot_link": ("words",),
    "unlink": ("words",),
}


@dataclass(frozen=True, eq=False)
class EditState:
    """What the edits so far have made.

    Attributes
    ----------
    free, hierarchy : Hierarchy
        Without, and with what is locked.
    n_groups : int
        Number of groups after the last edit.
    names : mapping
        Names that people gave to these groups.
    locked, by_hand : tuple of arrays
        Words of the locked groups, and of those that edits have made.
    must, cannot : tuple of tuples of words
        Links: words that must be in one group, and words of which no two may be.
    """

    free: Hierarchy
    hierarchy: Hierarchy
    n_groups: int
    names: Mapping[int, str]
    locked: tuple[Words, ...] = ()
    by_hand: tuple[Words, ...] = ()
    must: tuple[tuple[int, ...], ...] = ()
    cannot: tuple[tuple[int, ...], ...] = ()

    @property
    def whole(self) -> list[list[int]]:
        """Words that are joined before all others: locked groups, and words that must be in one group."""
        return joined_sets([*(words.tolist() for words in self.locked), *self.must])


class GroupEditor:
    """Makes edits, one after the other, of the model that they began with."""

    def __init__(self, original: Model) -> None:
        self._original = original
        self._numbers: dict[str, int] | None = None

    def advance(self, state: EditState, edit: Mapping[str, Any]) -> EditState:
        """Return the state after one more edit."""
        model, kind = self._original, edit["edit"]
        n = self._size(state, edit["n_groups"])
        fixed = has_fixed_groups(model)
        if (fixed and n != model.n_groups) or ((fixed or model.flattened is not None) and kind != "rename"):
            raise BagwiseError(
                f"This model is compact or was trimmed: its {model.n_groups} groups can be renamed, nothing else. Edit "
                "a model with its whole hierarchy, and trim it after that."
            )
        labels = state.hierarchy.cut(n)
        if n != state.n_groups:
            state = replace(state, names=same_names(state.names, state.hierarchy.cut(state.n_groups), labels))
        make: Callable[[EditState, Words, Mapping[str, Any]], EditState] = getattr(self, f"_{kind}")
        return make(replace(state, n_groups=n), labels, edit)

    def sizes(self, state: EditState) -> tuple[int, int]:
        """Return the least and the largest number of groups that can be edited."""
        least, most = state.hierarchy.min_groups, self._original.flattened or state.hierarchy.n_words
        most -= sum(len(words) - 1 for words in state.whole)  # at which locked groups and linked words are whole
        return least, min(most, MOST_GROUPS) if state.must or state.cannot else most

    def _size(self, state: EditState, n: Any) -> int:
        least, most = self.sizes(state)
        if isinstance(n, bool) or not isinstance(n, int) or not least <= n <= most:
            raise BagwiseError(f"n_groups must be an integer from {least} to {most}; got {n!r:.100}.")
        return n

    def _group(self, state: EditState, number: Any, labels: Words | None = None) -> int:
        """Check the number of a group, and that it is not locked if the group of each word is given."""
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < state.n_groups:
            accepted = f"a number from 0 to {state.n_groups - 1}"
            raise BagwiseError(f"A group must be {accepted}; got {number!r:.100}.")
        if labels is not None and any((labels[words] == number).any() for words in state.locked):
            raise BagwiseError(f"Group {number} is locked. Unlock it first.")
        return number

    def words(self, named: Any, least: int = 1) -> Words:
        """Return the numbers of words that an edit names."""
        d, names = self._original.hierarchy.n_words, self._original.word_names
        if not isinstance(named, list) or len(named) < least:
            raise BagwiseError(f"words must be a list of at least {least}; got {named!r:.100}.")
        if self._numbers is None and any(isinstance(word, str) for word in named):
            self._numbers = {} if names is None else {name: number for number, name in enumerate(names)}
            if names is not None and len(self._numbers) < len(names):  # columns of a table may share a name
                repeated = {name for number, name in enumerate(names) if self._numbers[name] != number}
                self._numbers = {name: number for name, number in self._numbers.items() if name not in repeated}
        numbers = []
        for word in named:
            number = self._numbers.get(word) if isinstance(word, str) and self._numbers is not None else word
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < d:
                one_of = "" if names is None else ", or one of their names if no other has it"
                raise BagwiseError(f"A word must be a number from 0 to {d - 1}{one_of}; got {word!r:.100}.")
            numbers.append(number)
        if len(set(numbers)) < len(numbers):
            raise BagwiseError(f"A word is named twice in {named!r:.100}.")
        return np.array(numbers, dtype=np.int64)

    def _regrouped(self, state: EditState, labels: Words, before: Words, first: Sequence[int] = ()) -> EditState:
        """Return the state with other groups; of joined groups that have names, the one in `first` gives its own."""
        labels, n = _numbered(labels)
        self._check_links(state, labels)
        free = state.free
        if n != state.n_groups or not np.array_equal(free.cut(n), labels):
            free = regroup(free, labels, before)
        changed = _changed(labels, before)
        unchanged = [words for words in state.by_hand if not np.isin(labels[words], changed).any()]
        by_hand = (*unchanged, *(np.flatnonzero(labels == number) for number in changed))
        names = passed_names(state.names, before, labels, first)
        return self._with_hierarchy(replace(state, free=free, n_groups=n, names=names, by_hand=by_hand), labels)

    def _with_hierarchy(self, state: EditState, labels: Words) -> EditState:
        """Return the state with its hierarchy: locked groups are joined first, and take no part in larger ones.

        With links, larger groups are merged again, so that these hold at every size.
        """
        closed = sorted({int(labels[words[0]]) for words in state.locked})
        whole = [np.array(words) for words in state.whole]
        if not state.must and not state.cannot:
            if not state.locked:
                return replace(state, hierarchy=state.free)
            return replace(state, hierarchy=regroup(state.free, labels, labels, whole=whole, closed=closed))
        finer = regroup(state.free, labels, labels, whole=whole, closed=range(state.n_groups))
        return replace(state, hierarchy=self._merged(state, finer, labels, (), closed))

    def _merged(
        self, state: EditState, finer: Hierarchy, labels: Words, kept: Sequence[int], closed: Sequence[int]
    ) -> Hierarchy:
        """Merge the groups that a hierarchy ends with under the links, from the statistics that the model keeps."""
        from bagwise.merging.edits import merge_allowed, pooled  # deferred: they load compiled code
        from bagwise.merging.scoring import WeightLoss

        model = self._original
        groups = pooled(self._statistics(), base_groups(model.hierarchy), labels, word_mass(model))
        pairs = [labels[list(pair)] for words in state.cannot for pair in combinations(words, 2)]
        refused = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        merged = merge_allowed(groups, refused, kept, closed, state.n_groups)
        scores = merged.scores
        if isinstance(groups, WeightLoss):  # its score begins at 0, without what the groups have lost
            before = model.hierarchy.n_words - base_size(model.hierarchy)
            scores = scores + (model.hierarchy.scores[before - 1] if before else 0.0)
        firsts = np.unique(labels, return_index=True)[1]
        merges = np.concatenate([finer.merges, firsts[merged.merges]])
        return Hierarchy(len(labels), merges, np.concatenate([finer.scores, scores]), finer.criterion)

    def _linked(self, state: EditState, labels: Words) -> EditState:
        """Return the state after its links have changed: all groups are merged again."""
        from bagwise.merging.edits import linked_groups

        self._statistics()
        original = self._original.hierarchy
        base, units = base_groups(original), self._units(state)
        start, sets = linked_groups(original, base, units, state.must, state.cannot)
        n_start, whole = int(start.max()) + 1, [np.array(words) for words in sets]
        most = original.n_words - sum(len(words) - 1 for words in whole)
        if state.n_groups > min(most, MOST_GROUPS):
            least = min(most, MOST_GROUPS)
            raise BagwiseError(f"n_groups must be at most {least} for links; got {state.n_groups}.")
        first = state.whole  # at all sizes, before the rest of groups made by hand
        finer = regroup(original, start, base, whole=list(map(np.array, first)), closed=range(n_start))
        if sets != first:
            finer = regroup(finer, start, start, whole=whole, closed=range(n_start))
        kept, closed = (sorted({int(start[words[0]]) for words in some}) for some in (units, state.locked))
        free = hierarchy = self._merged(state, finer, start, kept, ())
        if closed:
            hierarchy = self._merged(state, finer, start, kept, closed)
        names = like_names(state.names, labels, hierarchy.cut(state.n_groups))
        return replace(state, free=free, hierarchy=hierarchy, names=names)

    def _statistics(self) -> GroupStatistics:
        if self._original.group_statistics is None:
            from bagwise.merging.criteria import NAMED_CRITERIA  # deferred: it loads compiled code

            names = ", ".join(name for name, criterion in NAMED_CRITERIA.items() if criterion.edits_from is not None)
            raise BagwiseError(
                f"This model keeps no statistics to merge groups again from: only models by the criteria {names} with "
                "one vocabulary do, unless they were trimmed. Use join, move and split, or fit it again."
            )
        return self._original.group_statistics

    def _units(self, state: EditState) -> list[Words]:
        """Return the groups that stay as they are: those that are locked, and those made by hand."""
        locked = set(np.concatenate([np.empty(0, np.int64), *state.locked]).tolist())
        return [*state.locked, *(words for words in state.by_hand if locked.isdisjoint(words.tolist()))]

    def _check_links(self, state: EditState, labels: Words) -> None:
        """Raise an error if groups break a link."""
        for words in state.must:
            if len({*labels[list(words)].tolist()}) > 1:
                raise BagwiseError(f"The words {self._told(words)} must be in one group. Unlink them first.")
        for words in state.cannot:
            if len({*labels[list(words)].tolist()}) < len(words):
                raise BagwiseError(f"No two of the words {self._told(words)} may be in one group. Unlink them first.")

    def _told(self, words: Sequence[int]) -> str:
        """Name words in a message, the first few if there are many."""
        names = self._original.word_names
        told = [str(word) if names is None else f"{names[word]!r:.50}" for word in words[:_TOLD_WORDS]]
        return ", ".join(told) + (f" and {len(words) - _TOLD_WORDS} more" if len(words) > _TOLD_WORDS else "")

    def _rename(self, state: EditState, labels: Words, edit: Mapping[str, Any]) -> EditState:
        number, name = self._group(state, edit["group"]), edit["name"]
        names = {key: former for key, former in state.names.items() if key != number}
        names |= {} if name is None else {number: name}
        return replace(state, names=checked_group_names(names, state.n_groups))

    def _move(self, state: EditState, labels: Words, edit: Mapping[str, Any]) -> EditState:
        words = self.words(edit["words"])
        to = state.n_groups if edit["to"] is None else self._group(state, edit["to"], labels)
        words = words[labels[words] != to]
        if len(words) == 0:
            raise BagwiseError(f"All of these words are in group {to} already.")
        moved = labels.copy()
        moved[words] = to
        for number in np.unique(labels[words]).tolist():
            self._group(state, number, labels)
            if not (moved == number).any():
                raise BagwiseError(
                    f"Group {number} would be left without words. Join groups, or leave it a word or more."
                )
        return self._regrouped(state, moved, labels)

    def _split(self, state: EditState, labels: Words, edit: Mapping[str, Any]) -> EditState:
        number, hierarchy = self._group(state, edit["group"], labels), state.hierarchy
        done = hierarchy.merges[: hierarchy.n_words - state.n_groups]
        merges = np.flatnonzero(labels[done[:, 0]] == number)
        if len(merges) == 0:
            raise BagwiseError(f"Group {number} has one word, which cannot be split.")
        finer = hierarchy.cut(hierarchy.n_words - int(merges[-1]))
        parts = labels.copy()
        parts[finer == finer[done[merges[-1], 1]]] = state.n_groups
        return self._regrouped(state, parts, labels)

    def _join(self, state: EditState, labels: Words, edit: Mapping[str, Any]) -> EditState:
        groups = edit["groups"]
        if not isinstance(groups, list) or len(groups) < 2:
            raise BagwiseError(f"groups must be a list of at least two groups; got {groups!r:.100}.")
        numbers = [self._group(state, number, labels) for number in groups]
        if len(set(numbers)) < len(numbers):
            raise BagwiseError(f"Groups to join must differ; got {numbers!r:.100}.")
        return self._regrouped(state, np.where(np.isin(labels, numbers), numbers[0], labels), labels, numbers)

    def _lock(self, state: EditState, labels: Words, edit: Mapping[str, Any]) -> EditState:
        number = self._group(state, edit["group"], labels)
        locked = (*state.locked, np.flatnonzero(labels == number))
        return self._regrouped(replace(state, locked=locked), labels, labels)

    def _unlock(self, state: EditState, labels: Words, edit: Mapping[str, Any]) -> EditState:
        number = self._group(state, edit["group"])
        locked = tuple(words for words in state.locked if not (labels[words] == number).any())
        if len(locked) == len(state.locked):
            raise BagwiseError(f"Group {number} is not locked.")
        return self._regrouped(replace(state, locked=locked), labels, labels)

    def _must_link(self, state: EditState, labels: Words, edit: Mapping[str, Any]) -> EditState:
        words = self._new_link(state, edit)
        for locked in state.locked:
            if 0 < np.isin(words, locked).sum() < len(words):
                number = int(labels[locked[0]])
                raise BagwiseError(f"Group {number} is locked and has only some of these words. Unlock it first.")
        return self._linked(replace(state, must=(*state.must, words)), labels)

    def _cannot_link(self, state: EditState, labels: Words, edit: Mapping[str, Any]) -> EditState:
        words = self._new_link(state, edit)
        if len(words) > state.n_groups:
            raise BagwiseError(f"{len(words)} words cannot be in different ones of {state.n_groups} groups.")
        for unit in self._units(state):
            if np.isin(words, unit).sum() > 1:
                number = int(labels[unit[0]])
                raise BagwiseError(
                    f"Group {number}, which is locked or was made by hand, has several of these words. Move them to "
                    "other groups, or unlock it first."
                )
        return self._linked(replace(state, cannot=(*state.cannot, words)), labels)

    def _new_link(self, state: EditState, edit: Mapping[str, Any]) -> tuple[int, ...]:
        words = tuple(sorted(self.words(edit["words"], least=2).tolist()))
        if words in (*state.must, *state.cannot):
            raise BagwiseError(f"The words {self._told(words)} are linked already. Unlink them first.")
        return words

    def _unlink(self, state: EditState, labels: Words, edit: Mapping[str, Any]) -> EditState:
        words = tuple(sorted(self.words(edit["words"], least=2).tolist()))
        if words not in (*state.must, *state.cannot):
            links = [list(link) for link in (*state.must, *state.cannot)]
            raise BagwiseError(f"Words to unlink must be those of a link, {links!r:.200}; got {list(words)!r:.100}.")
        must, cannot = (tuple(link for link in links if link != words) for links in (state.must, state.cannot))
        return self._linked(replace(state, must=must, cannot=cannot), labels)


def has_fixed_groups(model: Model) -> bool:
    """Whether a model, without edits, is compact, so that it has no other number of groups."""
    return groups_of(model.hierarchy) is not None


def _numbered(labels: Words) -> tuple[Words, int]:
    """Number groups by their first words; also returns how many there are."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64), len(first)


def _changed(labels: Words, before: Words) -> Words:
    """Return the numbers of the groups that are not among those before."""
    pairs = np.unique(labels * (int(before.max()) + 1) + before)
    new, old = pairs // (int(before.max()) + 1), pairs % (int(before.max()) + 1)
    same = np.bincount(new)[new] == 1
    same &= np.bincount(labels)[new] == np.bincount(before)[old]
    return np.unique(new[~same])
