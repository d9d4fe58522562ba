"""`Editor`: edits of the model of an explorer, measured and saved one after the other, with undo and redo."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from bagwise._io.locks import EditedFile, FileChanged
from bagwise.app.explorer.cluster_editing import ClusterEditing, clusters_of
from bagwise.app.explorer.refused import Refused
from bagwise.app.explorer.workspace import Cut, Workspace
from bagwise.app.index.cluster_edits import ClusterMeasured, described_edit, with_edited
from bagwise.app.index.cluster_history import CLUSTER_EDITS
from bagwise.app.index.editing import check_groups, last_is_of_clusters, with_edited_model, with_head_of
from bagwise.app.index.index_changes import takes_other_groups, with_model
from bagwise.app.index.item_clusters import ItemClusters
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.index.item_map import ItemMap
from bagwise.app.model import Model
from bagwise.app.model.editing import possible_edits
from bagwise.app.training.item_answers import ItemAnswers, Measured
from bagwise.errors import BagwiseError

__all__ = ["Editor", "Shown", "Step", "described"]

_NAMED = 6  # words or groups
_ON_GROUPS = {"split": "Split", "lock": "Locked", "unlock": "Unlocked"}
_ON_WORDS = {
    "must_link": "Put {} into one group",
    "cannot_link": "Kept {} in different groups",
    "unlink": "Took back what was said of {}",
}


@dataclass(eq=False)
class Step:
    """A state of the model and of the clusters of items, and the edit that led to it.

    Attributes
    ----------
    model : Model
    edit : mapping or None
        None for the state in which the model was opened, or to which edits of an earlier session were undone.
    before : Model or None
        The model before the edit, cut where it was edited.
    when : datetime or None
    text : str
        The edit in words.
    found_before, measured : Measured or None
        The errors before and after it; None while they are not known, or if there are no items to measure with.
    clusters : ItemClusters or None
        The clusters of the items.
    clusters_before, clusters_found : ClusterMeasured or None
        What an edit of clusters did to them; None for other edits.
    of_clusters : bool
        Whether it is an edit of clusters.
    answers : ItemAnswers or None
        Those of the index in this state, once it was shown.
    """

    model: Model
    edit: Mapping[str, Any] | None = None
    before: Model | None = None
    when: datetime | None = None
    text: str = ""
    found_before: Measured | None = None
    measured: Measured | None = None
    clusters: ItemClusters | None = None
    clusters_before: ClusterMeasured | None = None
    clusters_found: ClusterMeasured | None = None
    of_clusters: bool = False
    answers: ItemAnswers | None = None


@dataclass(frozen=True, eq=False)
class Shown:
    """All that pages tell of edits, of one moment.

    Attributes
    ----------
    space : Workspace
    steps : tuple of Step
        The state in which the model was opened, and the edits since, oldest first.
    undone : tuple of Step
        Edits that can be made again, the last one first.
    problem : str or None
        Why this state could not be saved.
    """

    space: Workspace
    steps: tuple[Step, ...]
    undone: tuple[Step, ...] = ()
    problem: str | None = None


class Editor:
    """Edits the model of a workspace, and the clusters of its items; each edit makes another workspace.

    Requests hold the workspace that they began with, so that all of an answer is about one model.

    1. The edit is made by `Model.apply`.
    2. Its error is measured beside that of the groups before: by the folds of the fit if their index has them
       (`Steering`: each fold has groups of its own, in which edits are made again), and a classifier trained on all of
       their items takes the place of the derived one; otherwise by the items that are shown.
    3. The file is written: the model, or the index with replaced answers.

    Edits of clusters are in the same sequence, and undone in it: `bagwise.app.index.cluster_edits` makes and measures
    them.

    Parameters
    ----------
    space : Workspace
    file : EditedFile, default=None
        That of the model or the index. None: nothing is saved.
    index : ItemIndex, default=None
        The index, if that is the file.
    read_only : bool, default=False

    Attributes
    ----------
    space : Workspace
        The current one.
    shown : Shown
        What pages tell, once it is saved.
    n_saved : int
        Number of edits in the file.
    why_not : str
        Why errors cannot be measured; "" if they can.
    changed : callable
        Called with each new workspace.
    clustering : ClusterEditing
    """

    def __init__(
        self,
        space: Workspace,
        file: EditedFile | None = None,
        index: ItemIndex | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.space, self.file, self.read_only = space, file, read_only
        self.lock = threading.RLock()
        self.changed: Callable[[Workspace], None] = lambda space: None
        if index is None and space.items is not None and space.items.stored:
            index = space.items.index
        self._index = index
        self.clustering = ClusterEditing(space.items)
        space.clusters = clusters_of(index, space.items)
        answers = None if index is None else index.answers
        self._steps = [Step(space.model, clusters=space.clusters, answers=answers)]
        self._undone: list[Step] = []
        self._measures, self.why_not = self._what_measures()
        self.n_saved = 0 if file is None else len(space.model.edits)
        self.shown = Shown(space, tuple(self._steps))
        space.editor = self

    def _what_measures(self) -> tuple[str, str]:
        """Return how errors are measured, "folds", "items" or "", and in that case why not."""
        model, items = self.space.model, self.space.items
        if not model.heads:
            return "", "The model has no classifier, so that there are no errors to compare."
        if items is None:
            return "", "No items are shown, so that errors cannot be measured: start the explorer with them."
        if items.folds is not None:
            return "folds", ""
        if (items.codes >= 0).any():
            return "items", ""
        return "", "The items that are shown have no classes, so that errors cannot be measured."

    @property
    def of_index(self) -> bool:
        """Whether the file is an index."""
        return self._index is not None and self.file is not None

    @property
    def path(self) -> Path | None:
        """The file that is saved to, if any."""
        return None if self.file is None else self.file.path

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of edits that are not refused."""
        fixed = self._index is not None and not takes_other_groups(self._index)
        return ("rename",) if fixed else possible_edits(self.space.model)

    @property
    def cluster_kinds(self) -> tuple[str, ...]:
        """Kinds of edits of clusters that are not refused."""
        return self.clustering.kinds(self._index)

    @property
    def why_no_clusters(self) -> str:
        """Why the items cannot be clustered; "" if they can."""
        return self.clustering.why_not(self._index)

    # Measuring

    def start(self) -> None:
        """Measure what was opened, once."""
        with self.lock:
            if self.current.measured is None:
                self._measure(self.current)
                self.shown = replace(self.shown, steps=tuple(self._steps))

    def _measured(self, model: Model) -> Measured | None:
        """Return the error of the groups of a model, and what was learned with it; None if that is not possible."""
        items, path, n = self.space.items, model.path, model.n_groups
        if not self._measures or (self._measures == "items" and n not in model.heads):
            return None
        assert items is not None
        if items.folds is not None:
            if path is None or n not in path.sizes:
                return items.steering.measure(model)
            k = path.sizes.index(n)
            return Measured(path.errors[k], path.standard_errors[k], path.protocol)
        codes, what = items.codes, "items with labels"
        if items.seen is not None and items.seen.exact and items.seen.n_seen:
            every = bool(items.seen.seen[codes >= 0].all())
            codes, what = (codes, "training items") if every else (np.where(items.seen.seen, -1, codes), "new items")
        n = int((codes >= 0).sum())
        how = f"{n:,} {what}, by a classifier that is derived, not trained anew, where groups have changed"
        return Measured.of(items.cut(model).scored(), codes, how)

    def _measure(self, step: Step) -> None:
        """Measure a step, and give its model the classifier that was trained for it."""
        if step.before is not None and step.found_before is None:
            step.found_before = self._measured(step.before)
        step.measured = step.measured or self._measured(step.model)
        if step.model.edits:
            step.model = with_head_of(step.measured, step.model)

    # Editing

    @property
    def current(self) -> Step:
        """The state that is shown."""
        return self._steps[-1]

    def edit(self, edit: Mapping[str, Any], revision: int) -> None:
        """Make an edit, measure it, show and save it."""
        if edit.get("edit") in CLUSTER_EDITS:
            self._edit_clusters(edit, revision)
            return
        with self.lock:
            self._check(revision)
            self.start()
            before = self.current.model
            model = _applied(before, _with_names(before, edit))
            made = model.edits[-1]
            if self._index is not None:
                check_groups(self._index, made)
            cut, now = self.space.cut(made["n_groups"]), datetime.now().astimezone()
            step = Step(model, made, cut.model, now, described(made, cut), clusters=self.current.clusters)
            self._measure(step)
            self._make(step)

    def _edit_clusters(self, edit: Mapping[str, Any], revision: int) -> None:
        """Make an edit of the clusters, measure it, show and save it."""
        with self.lock:
            self._check(revision)
            before = self.current.clusters
            if before is None or self._index is None:
                raise BagwiseError(self.why_no_clusters or "The items have no clusters yet.")
            clusters = self.clustering.edited(self._index, edit)
            self._make(self._cluster_step(clusters, edit, described_edit(edit, before)))

    def cluster(self, n_clusters: int | None, revision: int) -> None:
        """Cluster the items anew, and save the clusters; None: into the most stable number of clusters."""
        with self.lock:
            self._check(revision)
            if problem := self.why_no_clusters:
                raise BagwiseError(problem)
            assert self._index is not None
            clusters = self.clustering.found(self._index, n_clusters)
            text = f"Clustered the items into {len(clusters):,} cluster{'' if len(clusters) == 1 else 's'}"
            self._make(self._cluster_step(clusters, {"edit": "cluster_items", "n_clusters": n_clusters}, text))

    def clusters_measured(self) -> ClusterMeasured | None:
        """Return how well the clusters that are shown can be told from words; None if that is not known."""
        with self.lock:
            clusters, index = self.current.clusters, self._index
        return None if clusters is None or index is None else self.clustering.measured(index, clusters)

    def _cluster_step(self, clusters: ItemClusters, edit: Mapping[str, Any], text: str) -> Step:
        last, index = self.current, self._index
        assert index is not None
        before = None if last.clusters is None else self.clustering.measured(index, last.clusters)
        after = self.clustering.measured(index, clusters)
        return Step(
            last.model,
            edit,
            last.model,
            datetime.now().astimezone(),
            text,
            measured=last.measured,
            clusters=clusters,
            clusters_before=before,
            clusters_found=after,
            of_clusters=True,
            answers=last.answers,
        )

    def _make(self, step: Step) -> None:
        with self._whole():
            self._undone.clear()
            self._steps.append(step)
            self._change()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Make a change or none: if it fails, keep the edits of the model that is still shown."""
        steps, undone, index, space = self._steps.copy(), self._undone.copy(), self._index, self.space
        try:
            yield
        except BaseException:
            if self.space is space:
                self._steps, self._undone, self._index = steps, undone, index
            raise

    def undo(self, revision: int) -> None:
        """Go back to the state before the last edit, also of an earlier session."""
        with self.lock, self._whole():
            self._check(revision)
            last = self.current
            if last.edit is not None:
                self._undone.append(self._steps.pop())
            else:
                step, undone = self._before(last)
                self._steps = [step]
                self._measure(self.current)
                self._undone.append(undone)
            self._change()

    def _before(self, last: Step) -> tuple[Step, Step]:
        """Return the state before the last edit of an earlier session, and the step that makes the edit again."""
        clusters, n_edits = last.clusters, len(last.model.edits)
        if last_is_of_clusters(last.model, clusters):
            assert self._index is not None
            assert clusters is not None
            before = self.clustering.undone(self._index)
            edit = clusters.edits[-1].whole(self._index.ids)
            again = replace(last, edit=edit, text=described_edit(edit, before), before=last.model, of_clusters=True)
            return replace(last, clusters=before), again
        if not n_edits:
            raise BagwiseError("There is no edit to undo.")
        return Step(last.model.undo(), clusters=clusters), replace(last, edit=last.model.edits[-1])

    def redo(self, revision: int) -> None:
        """Make the edit again that was undone last."""
        with self.lock, self._whole():
            self._check(revision)
            if not self._undone:
                raise BagwiseError("There is no edit to make again.")
            self._steps.append(self._undone.pop())
            self._measure(self.current)
            self._change()

    def save(self) -> None:
        """Try to save the current state again."""
        with self.lock:
            self._check(self.space.revision)
            self._save_and_tell()

    def _check(self, revision: int) -> None:
        if self.read_only:
            raise Refused(403, "The explorer was started with --read-only, so that nothing can be changed.")
        if revision != self.space.revision:
            raise Refused(409, "The model was changed in another window since this page was loaded. Reload the page.")

    def _change(self) -> None:
        self._show(self.current, self.space.revision + 1)
        self._save_and_tell()

    def _save_and_tell(self) -> None:
        problem = self._save()
        self.shown = Shown(self.space, tuple(self._steps), tuple(reversed(self._undone)), problem)

    def _show(self, step: Step, revision: int) -> None:
        """Replace the workspace by one with the model of a step."""
        items = self.space.items
        if self._index is not None:
            self._index = self._edited_index(step)
            if items is not None and items.stored:
                items = items.edited(self._index)
        self.space = self.space.edited(step.model, items, revision)
        self.space.clusters = step.clusters
        self.changed(self.space)

    def _edited_index(self, step: Step) -> ItemIndex:
        assert self._index is not None
        items = self.space.items
        if step.answers is None:
            words = items.words if items is not None and items.stored else None
            changed = with_edited_model(self._index, step.model, words, step.measured)
            step.answers = changed.answers
        else:
            changed = replace(with_model(self._index, step.model), answers=step.answers)
        same = step.clusters is self._index.clusters or not self.clustering.of_all(self._index)
        return changed if same else with_edited(changed, step.clusters)

    # Saving

    def keep_map(self, new_map: ItemMap) -> str:
        """Give the index a map and save it; return in words where the map is kept."""
        with self.lock:
            if self._index is None or self.file is None or self.space.items is None or not self.space.items.stored:
                return "It is kept until the explorer ends."
            self._index = replace(self._index, map=new_map)
            if self.read_only:
                return "It is kept until the explorer ends, which was started with --read-only."
            problem = self._save()
        return "It is kept in the index." if problem is None else f"It is kept until the explorer ends: {problem}"

    def _save(self) -> str | None:
        """Write the file, unless another program changed it; return why that could not be done."""
        if self.file is None or self.read_only:
            return None
        try:
            self.file.save(self.current.model if self._index is None else self._index)
            self.n_saved = len(self.current.model.edits)
        except FileChanged as error:
            return _refusal(self.file.path, error.removed)
        except (BagwiseError, OSError) as error:
            return str(error)
        return None


def _refusal(path: Path, removed: bool) -> str:
    """Say why a file is not replaced, and what to do."""
    since = "by another program since the explorer loaded or saved it"
    stay = "The edits made here stay until the explorer ends, and the page Steer lists them."
    if removed:
        return f"{path} was removed {since}. {stay} Put the file back, or start the explorer with another one."
    return (
        f"{path} was changed {since}, and is left as it is. {stay} Start the explorer again to see what is there now, "
        "and make them again."
    )


def _applied(model: Model, edit: Mapping[str, Any]) -> Model:
    """Apply an edit; its error is told without the place in the list."""
    try:
        return model.apply([edit])
    except BagwiseError as error:
        raise error.__cause__ if isinstance(error.__cause__, BagwiseError) else error from None


def _with_names(model: Model, edit: Mapping[str, Any]) -> dict[str, Any]:
    """Name words by their names where these differ, so that people can read the edit."""
    names, words = model.word_names, edit.get("words")
    if names is None or not isinstance(words, list):
        return dict(edit)
    inside = [word for word in words if type(word) is int and 0 <= word < len(names)]
    chosen = {names[word] for word in inside}
    if len(inside) < len(words) or sum(name in chosen for name in names) > len(chosen):
        return dict(edit)
    return {**edit, "words": [names[word] for word in inside]}


def described(edit: Mapping[str, Any], cut: Cut | None = None) -> str:
    """Say in words what an edit does; `cut` is the model before it, without which groups have numbers.

    >>> described({"edit": "join", "n_groups": 9, "groups": [3, 7]})
    'Joined group 3 and group 7'
    >>> described({"edit": "must_link", "n_groups": 9, "words": ["cat", "dog"]})
    'Put cat and dog into one group'
    """

    def group(number: int) -> str:
        return f"group {number}" if cut is None else f"“{cut.title(number)}”"

    def listed(names: list[str]) -> str:
        first = names if len(names) <= _NAMED else [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
        return " and ".join([", ".join(first[:-1]), first[-1]] if len(first) > 1 else first)

    words = listed([word if isinstance(word, str) else f"word {word}" for word in edit.get("words", ())])
    kind = edit["edit"]
    if kind == "rename":
        name = edit["name"]
        return (
            f"Took back the name of {group(edit['group'])}"
            if name is None
            else f"Named {group(edit['group'])} “{name}”"
        )
    if kind == "move":
        return f"Moved {words} to {'a new group' if edit['to'] is None else group(edit['to'])}"
    if kind == "join":
        return f"Joined {listed([group(number) for number in edit['groups']])}"
    if kind in _ON_GROUPS:
        return f"{_ON_GROUPS[kind]} {group(edit['group'])}"
    return _ON_WORDS[kind].format(words)
