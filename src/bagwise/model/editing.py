"""Edits of a model: groups that people rename, split, join or lock, and words that they move, as a list to replay.

The hierarchy itself is edited (`bagwise.merging.regrouping`), so that whatever reads a model needs to know nothing of
edits. `Unedited` holds what the model was before, from which any part of the list can be replayed.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import as_count
from bagwise.errors import BagwiseError, unknown_name
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.regrouping import regroup, same_cuts
from bagwise.model.compact import groups_of
from bagwise.model.cutting import with_derived_head
from bagwise.model.groups import checked_group_names, passed_names, same_names
from bagwise.model.parts import Head, PathErrors, json_copy

if TYPE_CHECKING:
    from bagwise.model.model import Model

__all__ = [
    "EDITS",
    "Unedited",
    "apply_edits",
    "check_edits",
    "locked_groups",
    "rename_edits",
    "undo_edits",
    "unedited_model",
]

Words = NDArray[np.int64]

# Members of each kind of edit, beside "edit" and "n_groups".
EDITS: dict[str, tuple[str, ...]] = {
    "rename": ("group", "name"),
    "move": ("words", "to"),
    "split": ("group",),
    "join": ("groups",),
    "lock": ("group",),
    "unlock": ("group",),
}
MOST_EDITS, MOST_BYTES = 10_000, 1 << 23
_MOST_STATES = 16  # that are kept to go on from, and to go back to


@dataclass(frozen=True, eq=False)
class Unedited:
    """What a model was before its first edit, as far as edits change it.

    Attributes
    ----------
    hierarchy, n_groups, heads, calibration, path, given_names
        Those of the model.
    derived_head : dict or None
        ``provenance["derived_head"]``.
    """

    hierarchy: Hierarchy
    n_groups: int
    heads: Mapping[int, Head] = field(default_factory=dict)
    calibration: Mapping[int, float] = field(default_factory=dict)
    path: PathErrors | None = None
    given_names: Mapping[int, str] = field(default_factory=dict)
    derived_head: Mapping[str, Any] | None = None
    states: OrderedDict[bytes, _State] = field(default_factory=OrderedDict, init=False, repr=False)

    @classmethod
    def of(cls, model: Model) -> Unedited:
        """Return the record of a model that has no edits."""
        parts = (model.hierarchy, model.n_groups, model.heads, model.calibration, model.path, model.given_names)
        return cls(*parts, model.provenance.get("derived_head"))

    @property
    def trained(self) -> dict[int, Head]:
        """The heads that were not derived from others."""
        return trained_heads(self.heads, self.derived_head)


@dataclass(frozen=True, eq=False)
class _State:
    """What the edits so far have made.

    Attributes
    ----------
    free, hierarchy : Hierarchy
        Without, and with what is locked.
    n_groups : int
        Number of groups after the last edit.
    names : mapping
        Names that people gave to these groups.
    locked : tuple of arrays
        Words of the locked groups.
    """

    free: Hierarchy
    hierarchy: Hierarchy
    n_groups: int
    names: Mapping[int, str]
    locked: tuple[Words, ...] = ()


def apply_edits(model: Model, edits: Iterable[Mapping[str, Any]]) -> Model:
    """Return an edited model; see `Model.apply`."""
    added = checked_edits(edits)
    record = model.unedited or Unedited.of(model)
    return _edited(model, record, (*model.edits, *added)) if added else model


def undo_edits(model: Model, k: int = 1) -> Model:
    """Return a model without its last edits; see `Model.undo`."""
    n = len(model.edits)
    k = as_count(k, "k, the number of edits to undo,", least=1)
    if k > n:
        raise BagwiseError(f"This model has {n} edit{'' if n == 1 else 's'}, of which {k} cannot be undone.")
    assert model.unedited is not None  # it has edits
    return _edited(model, model.unedited, model.edits[: n - k])


def unedited_model(model: Model) -> Model:
    """Return the model before its first edit; arrays that edits do not change are shared."""
    record = model.unedited
    if record is None:
        return model
    other = copy.copy(model)
    other.__dict__.pop("lookup", None)
    told = {name: value for name, value in model.provenance.items() if name != "derived_head"}
    told |= {} if record.derived_head is None else {"derived_head": record.derived_head}
    other._set(edits=(), unedited=None, hierarchy=record.hierarchy, n_groups=record.n_groups, path=record.path)
    other._set(heads=record.heads, calibration=record.calibration, given_names=record.given_names, provenance=told)
    return other


def rename_edits(model: Model, names: Mapping[int, str | None]) -> list[dict[str, Any]]:
    """Return edits that give groups of a model other names; names that are taken back make room for the others."""
    kept = {number: name for number, name in {**model.given_names, **names}.items() if name is not None}
    checked_group_names(kept, model.n_groups)
    changed = {number: name for number, name in names.items() if model.given_names.get(number) != name}
    taken = {number for number, name in model.given_names.items() if name in kept.values()}
    renamed: list[tuple[int, str | None]] = [(k, None) for k, name in changed.items() if name is None or k in taken]
    renamed += [(number, name) for number, name in changed.items() if name is not None]
    return [{"edit": "rename", "n_groups": model.n_groups, "group": number, "name": name} for number, name in renamed]


def check_edits(model: Model) -> None:
    """Check the edits of a model, and what it was before: anything that a file may say."""
    model._set(edits=checked_edits(model.edits))
    record = model.unedited
    if (record is None) != (not model.edits) or not isinstance(record, Unedited | None):
        raise BagwiseError(f"A model has `unedited` if it has edits; got {record!r:.100} and {len(model.edits)} edits.")
    if record is None:
        return
    if not isinstance(record.hierarchy, Hierarchy) or record.hierarchy.n_words != model.hierarchy.n_words:
        d = model.hierarchy.n_words
        raise BagwiseError(f"The hierarchy before edits must have the same {d} words; got {record.hierarchy!r:.100}.")
    original = unedited_model(model)
    original._checked_size(record.n_groups)
    original._check_classes()
    checked_group_names(record.given_names, record.n_groups)


def locked_groups(model: Model) -> list[int]:
    """Return the numbers of the locked groups of a model.

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> model = Model(modality="table", hierarchy=Hierarchy(3, [[0, 2], [0, 1]], [0.5, 0.1]), n_groups=2)
    >>> locked_groups(model.apply([{"edit": "lock", "n_groups": 2, "group": 1}]))
    [1]
    """
    if model.unedited is None:
        return []
    state = _state_after(unedited_model(model), model.unedited, model.edits)
    return sorted({int(number) for words in state.locked for number in model.lookup[words]})


def _edited(model: Model, record: Unedited, edits: tuple[dict[str, Any], ...]) -> Model:
    """Return the model with these edits of what it was at first, and those of its heads that suit them."""
    original = unedited_model(model)
    if not edits:
        return original
    state = _state_after(original, record, edits)
    if model.hierarchy == state.hierarchy:
        other = model.cut(state.n_groups)
    else:
        other = copy.copy(model)
        other.__dict__.pop("lookup", None)
        other._set(hierarchy=state.hierarchy, n_groups=state.n_groups)
        for name, value in _unchanged(model, original, state.hierarchy).items():
            other._set(**{name: value})
    other._set(given_names=dict(state.names), edits=edits, unedited=record)
    with_derived_head(other)
    return other


def _unchanged(model: Model, original: Model, hierarchy: Hierarchy) -> dict[str, Any]:
    """Return heads, calibration and errors of sizes at which a hierarchy has the groups that they were learned for."""
    heads: dict[int, Head] = {}
    calibration: dict[int, float] = {}
    for one in (original, model):
        trained = trained_heads(one.heads, one.provenance.get("derived_head"))
        sizes = trained.keys() & _common_sizes(one.hierarchy, hierarchy)
        heads |= {size: trained[size] for size in sizes}
        calibration = {size: value for size, value in calibration.items() if size not in sizes}
        calibration |= {size: value for size, value in one.calibration.items() if size in sizes}
    path = original.path and original.path.only(_common_sizes(original.hierarchy, hierarchy))
    told = {name: value for name, value in model.provenance.items() if name != "derived_head"}
    heads, calibration = dict(sorted(heads.items())), dict(sorted(calibration.items()))
    return {"heads": heads, "calibration": calibration, "path": path, "provenance": told}


def trained_heads(heads: Mapping[int, Head], derived: Any) -> dict[int, Head]:
    """Return heads without the one that was derived from a larger one, as ``provenance["derived_head"]`` says."""
    size = derived.get("n_groups") if isinstance(derived, dict) else None
    return {n: head for n, head in heads.items() if n != size}


def _common_sizes(one: Hierarchy, other: Hierarchy) -> set[int]:
    """Return the numbers of groups at which two hierarchies of the same words have the same groups."""
    return {one.n_words, *(one.n_words - 1 - np.flatnonzero(same_cuts(one, other))).tolist()}


def checked_edits(edits: Any) -> tuple[dict[str, Any], ...]:
    """Check that edits are a list of JSON objects of known kinds with their members; groups and words come later."""
    if isinstance(edits, (Mapping, str, bytes)) or not isinstance(edits, Iterable):
        raise BagwiseError(f"Edits must be a list of objects such as {_EXAMPLE}; got {edits!r:.100}.")
    given = json_copy(list(edits), "edits")
    size = len(json.dumps(given))
    if len(given) > MOST_EDITS or size > MOST_BYTES:
        most = f"{MOST_EDITS:,} edits in {MOST_BYTES:,} bytes"
        raise BagwiseError(f"A model has at most {most}; got {len(given):,} in {size:,}.")
    for edit in given:
        kind = edit.get("edit") if isinstance(edit, dict) else None
        if not isinstance(kind, str):
            raise BagwiseError(f"An edit must be an object such as {_EXAMPLE}; got {edit!r:.200}.")
        if kind not in EDITS:
            raise unknown_name("edit", kind, EDITS)
        wanted = {"edit", "n_groups", *EDITS[kind]}
        if edit.keys() != wanted:
            members = ", ".join(("n_groups", *EDITS[kind]))
            raise BagwiseError(f"The edit {kind!r} must have {members}; got {edit!r:.200}.")
    return tuple(given)


_EXAMPLE = '{"edit": "join", "n_groups": 37, "groups": [3, 7]}'


def _state_after(original: Model, record: Unedited, edits: Sequence[dict[str, Any]]) -> _State:
    """Replay edits, from the latest state that is known."""
    digest, keys = hashlib.blake2b(digest_size=16), [b""]
    for edit in edits:
        digest.update(json.dumps(edit, sort_keys=True).encode() + b"\n")
        keys.append(digest.digest())
    known = next((k for k in range(len(edits), 0, -1) if keys[k] in record.states), 0)
    first = _State(record.hierarchy, record.hierarchy, record.n_groups, record.given_names)
    state = record.states[keys[known]] if known else first
    editor = _Editor(original)
    for k in range(known, len(edits)):
        try:
            state = editor.advance(state, edits[k])
        except BagwiseError as error:
            raise BagwiseError(f"Edit {k + 1}, {json.dumps(edits[k])!s:.200}: {error}") from error
        record.states[keys[k + 1]] = state
        if len(record.states) > _MOST_STATES:
            record.states.popitem(last=False)
    return state


class _Editor:
    """Makes edits, one after the other, of the model that they began with."""

    def __init__(self, original: Model) -> None:
        self._original = original
        self._numbers: dict[str, int] | None = None

    def advance(self, state: _State, edit: Mapping[str, Any]) -> _State:
        """Return the state after one more edit."""
        model, kind = self._original, edit["edit"]
        n = self._size(state, edit["n_groups"])
        fixed = model.tables is not None or model.flattened is not None or groups_of(model.hierarchy) is not None
        if fixed and (kind != "rename" or n != model.n_groups):
            what = "has several tables" if model.tables is not None else "is compact or was trimmed"
            raise BagwiseError(
                f"This model {what}: its {model.n_groups} groups can be renamed, nothing else. Edit a model with its "
                "whole hierarchy, and trim it after that."
            )
        labels = model.lookup if model.tables is not None else state.hierarchy.cut(n)
        if n != state.n_groups:
            state = replace(state, names=same_names(state.names, state.hierarchy.cut(state.n_groups), labels))
        make: Callable[[_State, Words, Mapping[str, Any]], _State] = getattr(self, f"_{kind}")
        return make(replace(state, n_groups=n), labels, edit)

    def _size(self, state: _State, n: Any) -> int:
        least, most = state.hierarchy.min_groups, self._original.flattened or state.hierarchy.n_words
        most -= sum(len(words) - 1 for words in state.locked)  # at which locked groups are whole
        if isinstance(n, bool) or not isinstance(n, int) or not least <= n <= most:
            raise BagwiseError(f"n_groups must be an integer from {least} to {most}; got {n!r:.100}.")
        return n

    def _group(self, state: _State, number: Any, labels: Words | None = None) -> int:
        """Check the number of a group, and that it is not locked if the group of each word is given."""
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < state.n_groups:
            accepted = f"a number from 0 to {state.n_groups - 1}"
            raise BagwiseError(f"A group must be {accepted}; got {number!r:.100}.")
        if labels is not None and any((labels[words] == number).any() for words in state.locked):
            raise BagwiseError(f"Group {number} is locked. Unlock it first.")
        return number

    def _words(self, given: Any, least: int = 1) -> Words:
        """Return the numbers of words that an edit names."""
        d, names = self._original.hierarchy.n_words, self._original.word_names
        if not isinstance(given, list) or len(given) < least:
            raise BagwiseError(f"words must be a list of at least {least}; got {given!r:.100}.")
        if self._numbers is None and any(isinstance(word, str) for word in given):
            self._numbers = {} if names is None else {name: number for number, name in enumerate(names)}
            if names is not None and len(self._numbers) < len(names):  # columns of a table may share a name
                repeated = {name for number, name in enumerate(names) if self._numbers[name] != number}
                self._numbers = {name: number for name, number in self._numbers.items() if name not in repeated}
        found = []
        for word in given:
            number = self._numbers.get(word) if isinstance(word, str) and self._numbers is not None else word
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < d:
                one_of = "" if names is None else ", or one of their names if no other has it"
                raise BagwiseError(f"A word must be a number from 0 to {d - 1}{one_of}; got {word!r:.100}.")
            found.append(number)
        if len(set(found)) < len(found):
            raise BagwiseError(f"A word is named twice in {given!r:.100}.")
        return np.array(found, dtype=np.int64)

    def _regrouped(self, state: _State, labels: Words, before: Words, first: Sequence[int] = ()) -> _State:
        """Return the state with other groups; of joined groups that have names, the one in `first` gives its own."""
        labels, n = _numbered(labels)
        free = state.free
        if n != state.n_groups or not np.array_equal(free.cut(n), labels):
            free = regroup(free, labels, before)
        names = passed_names(state.names, before, labels, first)
        return _with_locks(replace(state, free=free, n_groups=n, names=names), labels)

    def _rename(self, state: _State, labels: Words, edit: Mapping[str, Any]) -> _State:
        number, name = self._group(state, edit["group"]), edit["name"]
        names = {key: held for key, held in state.names.items() if key != number}
        names |= {} if name is None else {number: name}
        return replace(state, names=checked_group_names(names, state.n_groups))

    def _move(self, state: _State, labels: Words, edit: Mapping[str, Any]) -> _State:
        words = self._words(edit["words"])
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

    def _split(self, state: _State, labels: Words, edit: Mapping[str, Any]) -> _State:
        number, hierarchy = self._group(state, edit["group"], labels), state.hierarchy
        done = hierarchy.merges[: hierarchy.n_words - state.n_groups]
        own = np.flatnonzero(labels[done[:, 0]] == number)
        if len(own) == 0:
            raise BagwiseError(f"Group {number} has one word, which cannot be split.")
        finer = hierarchy.cut(hierarchy.n_words - int(own[-1]))
        parts = labels.copy()
        parts[finer == finer[done[own[-1], 1]]] = state.n_groups
        return self._regrouped(state, parts, labels)

    def _join(self, state: _State, labels: Words, edit: Mapping[str, Any]) -> _State:
        given = edit["groups"]
        if not isinstance(given, list) or len(given) < 2:
            raise BagwiseError(f"groups must be a list of at least two groups; got {given!r:.100}.")
        numbers = [self._group(state, number, labels) for number in given]
        if len(set(numbers)) < len(numbers):
            raise BagwiseError(f"Groups to join must differ; got {numbers!r:.100}.")
        return self._regrouped(state, np.where(np.isin(labels, numbers), numbers[0], labels), labels, numbers)

    def _lock(self, state: _State, labels: Words, edit: Mapping[str, Any]) -> _State:
        number = self._group(state, edit["group"], labels)
        locked = (*state.locked, np.flatnonzero(labels == number))
        return self._regrouped(replace(state, locked=locked), labels, labels)

    def _unlock(self, state: _State, labels: Words, edit: Mapping[str, Any]) -> _State:
        number = self._group(state, edit["group"])
        locked = tuple(words for words in state.locked if not (labels[words] == number).any())
        if len(locked) == len(state.locked):
            raise BagwiseError(f"Group {number} is not locked.")
        return self._regrouped(replace(state, locked=locked), labels, labels)


def _numbered(labels: Words) -> tuple[Words, int]:
    """Number groups by their first words; also returns how many there are."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64), len(first)


def _with_locks(state: _State, labels: Words) -> _State:
    """Return the state with its hierarchy: locked groups are joined first, and take no part in larger ones."""
    if not state.locked:
        return replace(state, hierarchy=state.free)
    closed = {int(labels[words[0]]) for words in state.locked}
    return replace(state, hierarchy=regroup(state.free, labels, labels, whole=state.locked, closed=closed))
