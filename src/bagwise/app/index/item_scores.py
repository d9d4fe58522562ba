"""Scores of the items of an index by models that have not seen them, and what tells two classes apart in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.matrices import without_columns
from bagwise.app.index.index_words import CountedWords, IndexedWords
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.modalities.vectorizers import group_features
from bagwise.app.model.model import Model
from bagwise.app.training.calibration import fit_sharpness
from bagwise.app.training.group_data import contributions
from bagwise.app.training.item_answers import Measured, TopClasses
from bagwise.app.training.seen import SeenItems
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.training.steering import Steering

__all__ = ["ItemScores", "score_items", "separate_classes"]


@dataclass(frozen=True, eq=False)
class ItemScores:
    """Scores of classes for the items of an index.

    Attributes
    ----------
    scores : ndarray of shape (n_items, n_classes)
        Of items that folds of cross-validation have tested, by the model of the fold; of others by the final model.
    codes : ndarray of shape (n_items,)
        Their classes; -1 without one.
    fair : ndarray of bool, shape (n_items,)
        Items whose scores are by a model that was not trained on them, as far as that is known.
    measured : Measured or None
        The error, over folds or over labelled items that are `fair`, or else over all; None without labels.
    sharpness : float
        See `Model.calibration`.
    """

    scores: NDArray[np.float64]
    codes: NDArray[np.int64]
    fair: NDArray[np.bool_]
    measured: Measured | None
    sharpness: float

    @property
    def top(self) -> TopClasses:
        """The answers."""
        return TopClasses.of(self.scores)


def _words_of(index: ItemIndex, words: IndexedWords | CountedWords | None) -> IndexedWords | CountedWords:
    known = IndexedWords.of(index) if words is None else words
    if known is None:
        raise BagwiseError("The index compares items by something else than words. Give CountedWords of its items.")
    return known


def _tested(index: ItemIndex, steering: Steering | None) -> NDArray[np.bool_]:
    assert steering is None or index.folds is not None
    return np.zeros(len(index), np.bool_) if steering is None or index.folds is None else index.folds.tested


def score_items(
    index: ItemIndex,
    model: Model,
    *,
    without: Sequence[int] = (),
    words: IndexedWords | CountedWords | None = None,
    steering: Steering | None = None,
    seen: SeenItems | None = None,
) -> ItemScores:
    """Score the items of an index by models that have not seen them, where its folds are kept.

    Parameters
    ----------
    index : ItemIndex
    model : Model
        That of the index, with its edits, cut at any number of groups with a classifier or kept folds.
    without : sequence of int, default=()
        Words that items are taken not to have. Folds fit classifiers to what is left, see `Steering.measure`; without
        folds the final classifier stays as it is.
    words : IndexedWords or CountedWords, default=None
        Of the items. None: as the index holds them.
    steering : Steering, default=None
        ``index.steering(words)``, if it is there already.
    seen : SeenItems, default=None
        Which items the model was learned from. None: as the answers of the index say, if there are any.

    Examples
    --------
    >>> from bagwise.app import fit_model
    >>> from bagwise.app.index.item_index import index_of_fit
    >>> from bagwise.app.options import FitOptions
    >>> from bagwise.sources import Collection
    >>> counts = np.array([[4, 1, 0], [1, 0, 5]] * 3)
    >>> rows = Collection.from_matrix(counts, list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> index = index_of_fit(fit_model(rows, n_groups=3, folds=3).fit_, None, rows, FitOptions())
    >>> score_items(index, index.model).measured.error
    0.0
    """
    known = _words_of(index, words)
    steering = index.steering(known) if steering is None else steering
    tested, classes = _tested(index, steering), {name: code for code, name in enumerate(model.classes)}
    codes = np.array([classes.get(label or "", -1) for label in index.labels], np.int64)
    scores = np.zeros((len(index), len(model.classes)))
    measured: Measured | None = None
    if steering is None:
        head = model.head
    else:
        steered = steering.measure(model, without)
        head, measured = steered.head, steered
        scores[tested] = steering.scores(model, without)
    if not tested.all():
        rest = known.words(~tested)
        if len(without):
            columns = model.layout.over_cells(np.unique(without), model.hierarchy.n_words)
            rest = without_columns(rest, columns)
        features = group_features(rest, model.lookup, model.n_groups, model.layout, model.normalize)
        scores[~tested] = head.scores(features)
    if seen is None and index.answers is not None:
        seen = index.answers.seen(index.ids)
    fair = tested | (~tested if seen is None else seen.new)
    labelled = codes >= 0
    counted = labelled & fair if (labelled & fair).any() else labelled
    if measured is None and counted.any():
        what = "items that the model was not trained on" if fair[counted].all() else "items that the model has seen"
        measured = Measured.of(scores, np.where(counted, codes, -1), f"{counted.sum():,} {what}, by the final model")
    sharp = fit_sharpness(scores[counted], codes[counted]) if counted.any() and len(model.classes) > 1 else 1.0
    return ItemScores(scores, codes, fair, measured, sharp)


def separate_classes(
    index: ItemIndex,
    model: Model,
    first: int,
    second: int,
    items: NDArray[np.int64],
    *,
    words: IndexedWords | CountedWords | None = None,
    steering: Steering | None = None,
) -> NDArray[np.float64]:
    """Return what each group adds to the score of one class less that of another one, in some items.

    Of items that folds have tested it is said by the model of the fold, whose words are summed by the groups of
    `model`, see `Steering.contributions`; of others by the final model.

    Parameters
    ----------
    index, model, words, steering
        See `score_items`.
    first, second : int
        Classes.
    items : ndarray of int
        Their numbers.

    Returns
    -------
    contributions : ndarray of shape (n_items, n_groups)
    """
    known = _words_of(index, words)
    steering = index.steering(known) if steering is None else steering
    tested = _tested(index, steering)
    added, of_fold = np.zeros((len(items), model.n_groups)), tested[items]
    if steering is not None:
        row_of = np.cumsum(tested) - 1
        added[of_fold] = steering.contributions(model, row_of[items[of_fold]], first, second)
    if not of_fold.all():
        chosen = np.zeros(len(index), np.bool_)
        chosen[items[~of_fold]] = True
        rows = known.words(chosen)[np.argsort(np.argsort(items[~of_fold]))]
        final = model if steering is None else steering.measure(model).put_into(model)
        added[~of_fold] = contributions(final, rows, first, second)
    return added
