"""Edits of an index, in one sequence: those of the groups of its model, and those of the clusters of its items.

`Model.apply` makes edits of groups, `cluster_edits` those of clusters. What follows for the file is the same however an
edit is made: in Python, on the command line, or in the explorer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise._utils.checks import check_integer
from bagwise.app.index.cluster_edits import edit_clusters, undo_cluster_edit, with_edited
from bagwise.app.index.cluster_history import CLUSTER_EDITS
from bagwise.app.index.index_changes import takes_other_groups, with_model
from bagwise.app.index.index_words import CountedWords, IndexedWords
from bagwise.app.model.editing import unedited_model
from bagwise.app.training.item_answers import HELD_OUT, ItemAnswers, Measured, Steered, TopClasses
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.index.item_clusters import ItemClusters
    from bagwise.app.index.item_index import ItemIndex
    from bagwise.app.model import Model

__all__ = ["apply_edits", "check_groups", "last_is_of_clusters", "undo_edits", "with_edited_model", "with_head_of"]


def apply_edits(index: ItemIndex, edits: Iterable[Mapping[str, Any]], histograms: Any = None) -> ItemIndex:
    """Return an edited index; see `ItemIndex.apply`."""
    for of_clusters, some in groupby(edits, _is_of_clusters):
        if of_clusters:
            data = _cluster_data(index, histograms)
            for edit in some:
                index = with_edited(index, edit_clusters(index, edit, data))
        else:
            model = index.model.apply(some)
            for edit in model.edits[len(index.model.edits) :]:
                check_groups(index, edit)
            index = _measured(index, model, histograms)
    return index


def undo_edits(index: ItemIndex, k: int = 1, histograms: Any = None) -> ItemIndex:
    """Return an index without its last edits; see `ItemIndex.undo`."""
    n = len(index.model.edits) + (0 if index.clusters is None else len(index.clusters.edits))
    if check_integer(k, "k, the number of edits to undo,", 1) > n:
        raise BagwiseError(f"This index has {n} edit{'' if n == 1 else 's'}, of which {k} cannot be undone.")
    n_groups = 0  # edits of groups that are undone together
    for _ in range(k):
        model = index.model.undo(n_groups) if n_groups else index.model
        if last_is_of_clusters(model, index.clusters):
            index, n_groups = _measured(index, model, histograms) if n_groups else index, 0
            index = with_edited(index, undo_cluster_edit(index, _cluster_data(index, histograms)))
        else:
            n_groups += 1
    return _measured(index, index.model.undo(n_groups), histograms) if n_groups else index


def last_is_of_clusters(model: Model, clusters: ItemClusters | None) -> bool:
    """Whether the last edit is one of clusters; an edit of clusters knows how many of groups were made before."""
    return clusters is not None and bool(clusters.edits) and clusters.edits[-1].after >= len(model.edits)


def check_groups(index: ItemIndex, edit: Mapping[str, Any]) -> None:
    """Raise an error if an index cannot follow an edit of groups."""
    if edit["edit"] != "rename" and not takes_other_groups(index):
        raise BagwiseError(
            "The items of this index are compared by the groups of its model, which can only be renamed. Edit the "
            "model's own file, and build the index from it by: bagwise index MODEL SOURCE"
        )


def with_edited_model(
    index: ItemIndex,
    model: Model,
    words: IndexedWords | CountedWords | None = None,
    measured: Measured | None = None,
) -> ItemIndex:
    """Return an index with an edited model, and answers where they are known.

    Answers stay where groups are as before all edits, and as now if folds do not make the edits in groups of their own.
    At the number of groups of the model they are those of its classifier; of items that were cross-validated, those of
    the folds.

    Parameters
    ----------
    index : ItemIndex
    model : Model
        That of the index, with more edits or fewer.
    words : IndexedWords or CountedWords, default=None
        Of the items. None: there are answers only where there are some already.
    measured : Measured, default=None
        What `Steering.measure` returned for the model, if it has measured it.
    """
    answers = index.answers
    changed = with_model(index, model)
    if answers is None:
        return changed
    original = answers.unedited if index.model.edits else answers
    if not model.edits and original is not None:
        return replace(changed, answers=original)
    before = {} if original is None else _same_groups(unedited_model(model), model, original)
    n, held_out = model.n_groups, answers.origins == HELD_OUT
    steered = measured if isinstance(measured, Steered) and index.folds is not None else None
    rows = before.copy()
    if index.folds is None or not index.folds.complete or _made_in_folds(index.model) == _made_in_folds(model):
        rows = before | _same_groups(index.model, model, answers)
    if n not in rows and n in model.heads and words is not None and (steered is not None or not held_out.any()):
        row = TopClasses.empty(1, len(index), len(model.classes))
        row.put(0, slice(len(index)), model.head.scores(words.features(model)))
        if steered is not None and index.folds is not None:
            for target, values in zip(row.arrays, steered.held_out.arrays, strict=True):
                target[0, index.folds.tested] = values
        rows[n] = row.at(0)
    protocol = answers.protocol if original is None else original.protocol
    if protocol and original is not None and rows.keys() - before.keys():
        protocol = f"{protocol}; edited groups as on the page Steer"
    return replace(changed, answers=answers.replaced(rows, protocol, original))


def with_head_of(measured: Measured | None, model: Model) -> Model:
    """Return a model with the classifier that was trained for its groups in place of a derived one, if there is one.

    One that was trained on labels of a sample only does not take the place of one derived from that of all items.
    """
    told, follows = model.provenance, model.options.get("criterion") == "classifier"
    derived, of_sample = told.get("derived_head"), told.get("n_sampled", told.get("n_items")) != told.get("n_items")
    if of_sample and not follows:
        return model
    if isinstance(measured, Steered) and derived is not None and derived["n_groups"] == model.n_groups:
        return measured.put_into(model)
    return model


def _made_in_folds(model: Model) -> list[Mapping[str, Any]]:
    """Return the edits that folds make in groups of their own, which may differ where those of the model do not."""
    return [edit for edit in model.edits if edit["edit"] != "rename"]


def _is_of_clusters(edit: Any) -> bool:
    return isinstance(edit, Mapping) and edit.get("edit") in CLUSTER_EDITS


def _measured(index: ItemIndex, model: Model, histograms: Any) -> ItemIndex:
    """Return an index with an edited model that has the classifier which its folds give it, if it has folds."""
    words = IndexedWords.of(index) if histograms is None else CountedWords(index.model, histograms)
    steering = index.steering(words) if any(edit["edit"] != "rename" for edit in model.edits) else None
    measured = None if steering is None else steering.measure(model)
    return with_edited_model(index, with_head_of(measured, model), words, measured)


def _cluster_data(index: ItemIndex, histograms: Any) -> Any:
    from bagwise.app.index.clustering import cluster_data  # deferred: with scikit-learn

    return None if histograms is None else cluster_data(index, histograms)


def _same_groups(before: Model, after: Model, answers: ItemAnswers) -> dict[int, TopClasses]:
    """Return the answers at those numbers of groups at which another model has the same groups and classifiers."""
    return {
        size: row
        for size, row in answers.rows.items()
        if size in after.heads
        and size in before.heads
        and size >= after.hierarchy.min_groups
        and np.array_equal(before.hierarchy.cut(size), after.hierarchy.cut(size))
    }
