"""Edits of a model: groups that people rename, split, join or lock, and words that they move, as a list to replay.

The hierarchy itself is edited (`bagwise.merging.regrouping`), so that whatever reads a model needs to know nothing of
edits. `Unedited` holds what the model was before, from which any part of the list can be replayed.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise._utils.checks import check_integer, json_copy
from bagwise.app.model.cutting import with_derived_head
from bagwise.app.model.editor import EDITS, EditState, GroupEditor, has_fixed_groups
from bagwise.app.model.groups import checked_group_names
from bagwise.app.model.parts import Head, PathErrors
from bagwise.errors import BagwiseError, unknown_name
from bagwise.merging.group_statistics import GroupStatistics, base_size
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.regrouping import same_cuts

if TYPE_CHECKING:
    from bagwise.app.model.model import Model

__all__ = [
    "Unedited",
    "apply_edits",
    "check_edits",
    "linked_words",
    "locked_groups",
    "possible_edits",
    "rename_edits",
    "state_after",
    "undo_edits",
    "unedited_model",
]

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
    states: OrderedDict[bytes, EditState] = field(default_factory=OrderedDict, init=False, repr=False)

    @classmethod
    def of(cls, model: Model) -> Unedited:
        """Return the record of a model that has no edits."""
        parts = (model.hierarchy, model.n_groups, model.heads, model.calibration, model.path, model.given_names)
        return cls(*parts, model.provenance.get("derived_head"))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "states": OrderedDict()}  # copies in other processes replay edits

    @property
    def trained(self) -> dict[int, Head]:
        """The heads that were not derived from others."""
        return trained_heads(self.heads, self.derived_head)


def apply_edits(model: Model, edits: Iterable[Mapping[str, Any]]) -> Model:
    """Return an edited model; see `Model.apply`."""
    added = checked_edits(edits)
    record = model.unedited or Unedited.of(model)
    return _edited(model, record, (*model.edits, *added)) if added else model


def undo_edits(model: Model, k: int = 1) -> Model:
    """Return a model without its last edits; see `Model.undo`."""
    n = len(model.edits)
    k = check_integer(k, "k, the number of edits to undo,", 1)
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
    record, statistics = model.unedited, model.group_statistics
    if not isinstance(statistics, GroupStatistics | None):
        raise BagwiseError(f"group_statistics must be GroupStatistics or None; got {statistics!r:.100}.")
    if statistics is not None and model.flattened is not None:
        raise BagwiseError("A model that was trimmed keeps no group_statistics.")
    if (record is None) != (not model.edits) or not isinstance(record, Unedited | None):
        raise BagwiseError(f"A model has `unedited` if it has edits; got {record!r:.100} and {len(model.edits)} edits.")
    if record is not None:
        _check_unedited(model, record)
    hierarchy = model.hierarchy if record is None else record.hierarchy
    if statistics is not None:
        wanted, actual = (hierarchy.criterion, base_size(hierarchy)), (statistics.criterion, statistics.n_groups)
        if wanted != actual:
            what = "group_statistics must have the criterion and the number of groups of the hierarchy"
            raise BagwiseError(f"{what}, {wanted}; got {actual}.")


def _check_unedited(model: Model, record: Unedited) -> None:
    if not isinstance(record.hierarchy, Hierarchy) or record.hierarchy.n_words != model.hierarchy.n_words:
        d = model.hierarchy.n_words
        raise BagwiseError(f"The hierarchy before edits must have the same {d} words; got {record.hierarchy!r:.100}.")
    original = unedited_model(model)
    original._checked_size(record.n_groups)
    original._check_classes()
    checked_group_names(record.given_names, record.n_groups)


def state_after(model: Model, k: int) -> EditState:
    """Return what the first k edits of a model have made."""
    return _state_after(unedited_model(model), model.unedited or Unedited.of(model), model.edits[:k])


def locked_groups(model: Model) -> list[int]:
    """Return the numbers of the locked groups of a model.

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> model = Model(modality="table", hierarchy=Hierarchy(3, [[0, 2], [0, 1]], [0.5, 0.1]), n_groups=2)
    >>> locked_groups(model.apply([{"edit": "lock", "n_groups": 2, "group": 1}]))
    [1]
    """
    state = state_after(model, len(model.edits))
    return sorted({int(number) for words in state.locked for number in model.lookup[words]})


def linked_words(model: Model) -> dict[str, list[list[int]]]:
    """Return the links of a model: sets of words that must be in one group, and of which no two may be."""
    state = state_after(model, len(model.edits))
    return {"must_link": [list(words) for words in state.must], "cannot_link": [list(words) for words in state.cannot]}


def possible_edits(model: Model) -> tuple[str, ...]:
    """Return the kinds of edits that a model does not refuse: names alone without a hierarchy, links with statistics.

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> model = Model(modality="table", hierarchy=Hierarchy(3, [[0, 2], [0, 1]], [0.5, 0.1]), n_groups=2)
    >>> possible_edits(model), possible_edits(model.trim())
    (('rename', 'move', 'split', 'join', 'lock', 'unlock'), ('rename',))
    """
    if has_fixed_groups(unedited_model(model)) or model.flattened is not None:
        return ("rename",)
    links = ("must_link", "cannot_link", "unlink")
    return tuple(kind for kind in EDITS if model.group_statistics is not None or kind not in links)


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
    copied = json_copy(list(edits), "edits")
    size = len(json.dumps(copied))
    if len(copied) > MOST_EDITS or size > MOST_BYTES:
        most = f"{MOST_EDITS:,} edits in {MOST_BYTES:,} bytes"
        raise BagwiseError(f"A model has at most {most}; got {len(copied):,} in {size:,}.")
    for edit in copied:
        kind = edit.get("edit") if isinstance(edit, dict) else None
        if not isinstance(kind, str):
            raise BagwiseError(f"An edit must be an object such as {_EXAMPLE}; got {edit!r:.200}.")
        if kind not in EDITS:
            raise unknown_name("edit", kind, EDITS)
        wanted = {"edit", "n_groups", *EDITS[kind]}
        if edit.keys() != wanted:
            members = ", ".join(("n_groups", *EDITS[kind]))
            raise BagwiseError(f"The edit {kind!r} must have {members}; got {edit!r:.200}.")
    return tuple(copied)


_EXAMPLE = '{"edit": "join", "n_groups": 37, "groups": [3, 7]}'


def _state_after(original: Model, record: Unedited, edits: Sequence[dict[str, Any]]) -> EditState:
    """Replay edits, from the latest state that is known."""
    digest, keys = hashlib.blake2b(digest_size=16), [b""]
    for edit in edits:
        digest.update(json.dumps(edit, sort_keys=True).encode() + b"\n")
        keys.append(digest.digest())
    first = EditState(record.hierarchy, record.hierarchy, record.n_groups, record.given_names)
    states = ((k, record.states.get(keys[k])) for k in range(len(edits), 0, -1))
    known, state = next(((k, one) for k, one in states if one is not None), (0, first))
    editor = GroupEditor(original)
    for k in range(known, len(edits)):
        try:
            state = editor.advance(state, edits[k])
        except BagwiseError as error:
            raise BagwiseError(f"Edit {k + 1}, {json.dumps(edits[k])!s:.200}: {error}") from error
        record.states[keys[k + 1]] = state
        if len(record.states) > _MOST_STATES:
            record.states.popitem(last=False)
    return state
