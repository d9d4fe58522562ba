"""Items that come to an index and items that go, also while other processes change the same file."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._io.locks import EditedFile
from bagwise._utils.text import quoted
from bagwise.app.index.index_features import add_rows, class_scores
from bagwise.app.index.index_words import IndexedWords
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.index.item_map import PLACED_BY, ItemMap
from bagwise.app.model.model import Model
from bagwise.app.training.items import first_labels
from bagwise.errors import BagwiseError, argument, in_python
from bagwise.retrieval.bag_index import BagIndex
from bagwise.retrieval.blends import ClassBlend, GroupBlend
from bagwise.sources.collection import Collection

__all__ = [
    "change_index",
    "known_ids",
    "likely_classes",
    "takes_other_groups",
    "with_items",
    "with_model",
    "without_items",
]


def change_index(
    path: str | os.PathLike[str],
    change: Callable[[ItemIndex], ItemIndex],
    *,
    waiting: Callable[[], None] | None = None,
    trust_pattern: bool = False,
) -> ItemIndex:
    """Change the file of an index; of several processes that do so at the same time, one waits for the other.

    Others that open the file find the old index or the whole new one. If `change` raises an error, or the process is
    killed, the old one stays.

    Parameters
    ----------
    path : path
        A file that `ItemIndex.save` wrote.
    change : callable
        Takes the index that is in the file now, and returns the one to write.
    waiting : callable, default=None
        Called once if another process is changing the file.
    trust_pattern : bool, default=False
        See `Model.load`.

    Returns
    -------
    index : ItemIndex
        The index that was written.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import ItemIndex, change_index, fit_model
    >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]]), ["a", "b"], [("cat",), ("dog",)])
    >>> model = fit_model(rows, n_groups=2, folds=0)
    >>> path = ItemIndex.build(model, rows, model.histograms(rows)).save(tempfile.mkdtemp() + "/animals.index")
    >>> change_index(path, lambda index: index.remove(["a"])).ids
    ('b',)
    """
    with EditedFile.changing(path, waiting=waiting) as file:
        changed = change(ItemIndex.load(path, trust_pattern=trust_pattern))
        file.save(changed)
    return changed


def with_items(index: ItemIndex, collection: Collection, histograms: Any, replaced: bool = False) -> ItemIndex:
    """See `ItemIndex.add`."""
    n_rows = np.shape(histograms)[0]
    if n_rows != len(collection):
        raise BagwiseError(f"histograms must have a row for each of {len(collection)} items, got {n_rows}.")
    known = known_ids(index, collection.ids, replaced)
    index = without_items(index, known) if known else index
    if not len(collection):
        return index
    model, blend, scores = index.model, index.blend, None
    if isinstance(blend, ClassBlend):
        scores = class_scores(model, histograms)
        new = ClassBlend.of(scores, blend.settings)
        certainty = np.concatenate([blend.certainty, new.certainty])
        classes = np.concatenate([likely_classes(index), scores.argmax(axis=1)])
        blend = ClassBlend.from_items(certainty, classes, scores.shape[1], blend.settings)
    rows = index.index.copy()
    add_rows(rows, model, histograms, index.by, blend, scores)
    labels = first_labels(collection)
    from bagwise.app.index.clustering import with_assigned  # deferred: with scikit-learn

    return replace(
        index,
        index=rows,
        ids=(*index.ids, *collection.ids),
        labels=(*index.labels, *labels),
        blend=blend,
        answers=None if index.answers is None else index.answers.with_items(model, collection, histograms),
        map=_extended(index, histograms),
        clusters=with_assigned(index, histograms),
        folds=None if index.folds is None else index.folds.extended(len(collection)),
    )


def known_ids(index: ItemIndex, ids: Sequence[str], replaced: bool = False) -> list[str]:
    """Return the ids of items to add that are in an index; raise an error if there are any that are not replaced."""
    there = set(index.ids)
    known = [id for id in ids if id in there]
    if known and not replaced:
        numbered = ""
        if all(id == str(number) for number, id in enumerate(ids)):
            numbered = f" They are numbers of rows; if these are others, choose a column of ids by {argument('id')}."
        raise BagwiseError(
            f"{len(known):,} of {len(ids):,} items are in the index already: {quoted(known)}. Use "
            f"{in_python('replace=True', '--replace')} to put the new ones in their place, or give others.{numbered}"
        )
    return known


def without_items(index: ItemIndex, ids: Sequence[str]) -> ItemIndex:
    """See `ItemIndex.remove`."""
    if isinstance(ids, str):
        raise BagwiseError(f"ids must be a list of ids, got {ids!r}. Give a single one as [{ids!r}].")
    gone, there = set(ids), set(index.ids)
    missing = [id for id in dict.fromkeys(ids) if id not in there]
    if missing:
        raise BagwiseError(
            f"{len(missing):,} of {len(gone):,} ids are not in this index of {len(index):,} items: {quoted(missing)}. "
            "None was removed."
        )
    if not gone:
        return index
    kept = np.array([number for number, id in enumerate(index.ids) if id not in gone], dtype=np.int64)
    away = np.setdiff1d(np.arange(len(index)), kept)
    blend = index.blend
    if isinstance(blend, ClassBlend):
        classes = likely_classes(index)[kept]
        blend = ClassBlend.from_items(blend.certainty[kept], classes, len(blend.typical), blend.settings)
    return replace(
        index,
        index=index.index.copy().remove(away).renumber(),
        ids=tuple(index.ids[number] for number in kept.tolist()),
        labels=tuple(index.labels[number] for number in kept.tolist()),
        blend=blend,
        answers=None if index.answers is None else index.answers.taken(kept),
        map=None if index.map is None else index.map.taken(kept),
        clusters=None if index.clusters is None else index.clusters.taken(kept),
        folds=None if index.folds is None else index.folds.taken(kept),
    )


def takes_other_groups(index: ItemIndex) -> bool:
    """Tell whether `with_model` accepts models with other groups: not where groups are all that is known of items."""
    if index.by == "groups":
        return False
    return not isinstance(index.blend, GroupBlend) or IndexedWords.of(index) is not None


def with_model(index: ItemIndex, model: Model) -> ItemIndex:
    """Return an index of the same items with an edited model; groups that items are compared by become those of it.

    Parameters
    ----------
    index : ItemIndex
        See `takes_other_groups`.
    model : Model
        With the same words, which it may group otherwise.
    """
    other = replace(index, model=model)
    if not isinstance(index.blend, GroupBlend) or np.array_equal(model.lookup, index.model.lookup):
        return other
    words = IndexedWords.of(index)
    assert words is not None
    groups, rows, first = words.features(model, ("l1", "power")), BagIndex(metric="inner"), 0
    for block in index.index.blocks():
        part = slice(first, first + len(block))
        rows.add(index.blend.rows(block.rows()[:, : words.n_columns], groups[part]))
        first = part.stop
    return replace(other, index=rows)


def likely_classes(index: ItemIndex) -> NDArray[np.int64]:
    """Return the most likely class of each item, by what the index holds of its classes."""
    model, parts = index.model, [np.empty(0, dtype=np.int64)]
    first = model.layout.n_columns if index.by == "both" else 0
    nothing = class_scores(model, sp.csr_array((1, model.layout.n_columns))).argmax()
    for block in index.index.blocks():
        items = np.arange(len(block))
        best, classes = np.zeros(len(block)), np.full(len(block), nothing)  # no words, no values
        for k in range(len(model.classes)):
            values = block.values_of(np.array([first + k]), items)[:, 0]
            larger = values > best
            best[larger], classes[larger] = values[larger], k
        parts.append(classes)
    return np.concatenate(parts)


def _extended(index: ItemIndex, histograms: Any) -> ItemMap | None:
    """Return the map with further items, placed by their neighbours; None without a map, or if nothing is on it."""
    if index.map is None or not len(index):
        return None
    if isinstance(index.blend, GroupBlend):
        rows = index.blend.query_rows(*index.blended_parts(histograms), "words")
    elif index.by == "both" and index.blend is not None:
        rows = index.blend.rows_alone(*index.blended_parts(histograms), "words")
    else:
        rows = index.plain_rows(histograms)
    scores, numbers = index.index.search(rows, PLACED_BY)
    scores[np.asarray(abs(rows).sum(axis=1)).ravel() == 0] = np.nan  # no words
    return index.map.placed(scores, numbers, index.index.larger_is_nearer)
