"""Edits of a model that are made again in the groups which folds of cross-validation have found by themselves."""

from __future__ import annotations

import copy
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from bagwise.app.model import Model
from bagwise.app.model.cutting import word_mass
from bagwise.app.model.editing import state_after, unedited_model
from bagwise.app.model.editor import EditState, GroupEditor
from bagwise.errors import BagwiseError
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy

__all__ = ["FoldEdits", "like_groups"]

_MOST_STATES = 16  # lists of edits whose results are kept
Words = NDArray[np.int64]


class FoldEdits:
    """Makes the edits of a model again in other hierarchies of the same words.

    Words that an edit names are the same everywhere. A group that it names is, in another hierarchy, the one that has
    most in common with it (`like_groups`). What cannot be done there, since a group is locked that was not, is left out
    and counted.

    Parameters
    ----------
    model : Model
        The model; its edits do not matter.
    folds : sequence of (Hierarchy, GroupStatistics or None)
        What each fold has merged.

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> hierarchy = Hierarchy(5, [[0, 1], [3, 4], [2, 3], [0, 2]], [4, 3, 2, 1])
    >>> model = Model(modality="table", hierarchy=hierarchy, n_groups=3)
    >>> edits = FoldEdits(model, [(Hierarchy(5, [[3, 4], [1, 2], [0, 1], [0, 3]], [4, 3, 2, 1]), None)])
    >>> edited = model.apply([{"edit": "join", "n_groups": 3, "groups": [1, 2]}])
    >>> ((hierarchy, n),), left_out = edits.hierarchies(edited)
    >>> edited.lookup, hierarchy.cut(n), left_out
    (array([0, 0, 1, 1, 1]), array([0, 1, 1, 1, 1]), 0)
    """

    def __init__(self, model: Model, folds: Sequence[tuple[Hierarchy, GroupStatistics | None]]) -> None:
        original = unedited_model(model)
        self._editors, self._first = [], []
        for hierarchy, statistics in folds:
            other = copy.copy(original)
            other._set(hierarchy=hierarchy, group_statistics=statistics)
            self._editors.append(GroupEditor(other))
            self._first.append(EditState(hierarchy, hierarchy, original.n_groups, {}))
        mass = word_mass(original)
        self._mass = mass + (mass.mean() * 1e-6 or 1.0)  # words without any tell groups apart as well
        self._known: OrderedDict[str, tuple[list[EditState], int]] = OrderedDict()

    def hierarchies(self, model: Model) -> tuple[list[tuple[Hierarchy, int]], int]:
        """Return the hierarchy of each fold after the edits of a model, where it is cut, and how many were left out."""
        edits = model.edits
        keys = [json.dumps(edits[:k], sort_keys=True) for k in range(len(edits) + 1)]
        done = next((k for k in range(len(edits), 0, -1) if keys[k] in self._known), 0)
        states, left_out = self._known[keys[done]] if done else (self._first, 0)
        for k in range(done, len(edits)):
            of_model = state_after(model, k)
            before = of_model.hierarchy.cut(edits[k]["n_groups"])
            states, refused = self._advance(self._sized(states, of_model, k, edits[k]["n_groups"]), edits[k], before)
            left_out += refused
            self._known[keys[k + 1]] = states, left_out
            if len(self._known) > _MOST_STATES:
                self._known.popitem(last=False)
        sized = self._sized(states, state_after(model, len(edits)), len(edits), model.n_groups)
        return [(state.hierarchy, state.n_groups) for state in sized], left_out

    def _sized(self, states: Sequence[EditState], of_model: EditState, k: int, n: int) -> list[EditState]:
        """Return the states at n groups of the model: at as many, unless one of k edits has made their number differ.

        `of_model` is the state of the model.
        """
        sized = []
        for editor, state in zip(self._editors, states, strict=True):
            least, most = editor.sizes(state)
            size = state.n_groups if k and n == of_model.n_groups else n
            sized.append(replace(state, n_groups=min(max(size, least), most)))
        return sized

    def _advance(
        self, states: Sequence[EditState], edit: Mapping[str, Any], before: Words
    ) -> tuple[list[EditState], int]:
        """Make one more edit in each fold; `before` are the groups of the model that it was made in."""
        advanced, refused = [], 0
        for editor, state in zip(self._editors, states, strict=True):
            try:
                advanced.append(state if edit["edit"] == "rename" else self._made(editor, state, edit, before))
            except BagwiseError:  # counted, and told beside the error
                advanced.append(state)
                refused += 1
        return advanced, refused

    def _made(self, editor: GroupEditor, state: EditState, edit: Mapping[str, Any], of_model: Words) -> EditState:
        """Make an edit of the groups `of_model` in a fold."""
        labels, to = state.hierarchy.cut(state.n_groups), edit.get("to")
        named = edit.get("groups", [one for one in (edit.get("group"), to) if one is not None])
        if len(named) > state.n_groups:
            raise BagwiseError(f"{len(named)} groups are edited where there are {state.n_groups}.")
        groups, made = like_groups(named, of_model, labels, self._mass), {**edit, "n_groups": state.n_groups}
        if edit["edit"] == "move":
            return _moved(editor, state, labels, editor.words(edit["words"]), None if to is None else groups[0])
        if "groups" in edit:
            made["groups"] = groups
        elif groups:
            made["group"] = groups[0]
        return editor.advance(state, made)


def _moved(editor: GroupEditor, state: EditState, labels: Words, words: Words, to: int | None) -> EditState:
    """Move words to a group; another one that would lose all of its words is joined to it."""
    words = words[labels[words] != to] if to is not None else words
    sizes, moved = np.bincount(labels), np.bincount(labels[words], minlength=state.n_groups)
    emptied = np.flatnonzero((moved == sizes) & (moved > 0)).tolist()
    if to is None and emptied:  # the first of them is the new group
        to, *emptied = emptied
        words = words[labels[words] != to]
    lead = None if to is None else int(np.flatnonzero(labels == to)[0])  # groups are numbered anew by each edit
    rest = words[~np.isin(labels[words], emptied)].tolist()
    if emptied:
        state = editor.advance(state, {"edit": "join", "n_groups": state.n_groups, "groups": [to, *emptied]})
    if rest:
        number = None if lead is None else int(state.hierarchy.cut(state.n_groups)[lead])
        state = editor.advance(state, {"edit": "move", "n_groups": state.n_groups, "words": rest, "to": number})
    return state


def like_groups(named: Sequence[int], labels: Words, other: Words, mass: NDArray[np.float64]) -> list[int]:
    """Return the groups of another partition that are most like some groups, each for one of them.

    The sum of their Jaccard indices is largest; words count by their positive mass. Numbers of groups begin at 0.

    >>> like_groups([2, 0], np.array([0, 0, 1, 2, 2]), np.array([1, 1, 1, 2, 0]), np.array([1.0, 1, 1, 2, 1]))
    [2, 1]
    """
    totals, likeness = np.bincount(other, mass), np.zeros((len(named), int(other.max()) + 1))
    for row, number in zip(likeness, named, strict=True):
        inside = labels == number
        common = np.bincount(other[inside], mass[inside], len(totals))
        row[:] = common / (totals + mass[inside].sum() - common)
    rows, columns = linear_sum_assignment(likeness, maximize=True)
    return [int(column) for _, column in sorted(zip(rows, columns, strict=True))]
