"""`FoldModels`: what each fold of cross-validation learned without the items that it tests, as an index keeps it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import tensor
from bagwise._utils.memory import readable_size
from bagwise.app.model.editing import unedited_model
from bagwise.app.model.model import Head, Model
from bagwise.errors import BagwiseError
from bagwise.merging.group_statistics import GroupStatistics
from bagwise.merging.hierarchy import Hierarchy

if TYPE_CHECKING:
    from bagwise.app.model import PathErrors
    from bagwise.app.training.validating import Fold

__all__ = ["FOLD_TENSORS", "NO_FOLD", "FoldModels", "fold_model", "unkept_note"]

NO_FOLD = 255
# Classifiers and statistics that are kept, of all folds together; hierarchies take 4 or 8 bytes a word and fold more.
MOST_BYTES = 1 << 21
FOLD_TENSORS = {
    "fold_of_item": tensor("uint8", "n_items", optional=True),
    "fold_merges": tensor("uint16 int32", "n_fold_merges", 2, low=0, optional=True),
    "fold_weights": tensor("float32", "n_fold_weights", finite=True, optional=True),
    "fold_statistics": tensor("float32", "n_fold_statistics", finite=True, optional=True),
}
_MEMBERS = {"n_items", "n_merges", "sizes", "statistics"}


@dataclass(frozen=True, eq=False)
class FoldModels:
    """Groups and classifiers of each fold of a cross-validation.

    Attributes
    ----------
    hierarchies : tuple of Hierarchy
        Of each fold.
    heads : tuple of dict
        Of each fold, classifiers by numbers of groups: those of the path, as many as `MOST_BYTES` leaves room for.
    statistics : tuple of GroupStatistics
        Of each fold, what groups can be merged again from; () if the criterion keeps none, or one that takes too much.
    of_item : ndarray of uint8, shape (n_items,)
        The fold that tested each item; 255 for items that were not cross-validated.
    n_items : int
        Items that were cross-validated, of which some may have been removed since.
    """

    hierarchies: tuple[Hierarchy, ...]
    heads: tuple[dict[int, Head], ...]
    statistics: tuple[GroupStatistics, ...]
    of_item: NDArray[np.uint8]
    n_items: int

    @classmethod
    def of(cls, folds: Sequence[Fold], n_items: int) -> FoldModels | None:
        """Keep what folds have learned, which tested some of the items; None without folds, or with too many.

        Classifiers of the most groups are left out first, if there is no room for all.
        """
        if not 0 < len(folds) <= NO_FOLD:
            return None
        of_item, learned = np.full(n_items, NO_FOLD, np.uint8), [one.learned for one in folds]
        for number, fold in enumerate(folds):
            of_item[fold.test] = number
        statistics = tuple(one.statistics for one in learned if one.statistics is not None)
        n_bytes = sum(one.values.nbytes for one in statistics)
        if len(statistics) < len(learned) or n_bytes > MOST_BYTES // 2:
            statistics, n_bytes = (), 0
        room, sizes = MOST_BYTES - n_bytes, list[int]()
        for size in sorted(learned[0].heads):
            room -= sum(one.heads[size].coef.nbytes + one.heads[size].intercept.nbytes for one in learned)
            if room < 0:
                break
            sizes.append(size)
        heads = tuple({size: one.heads[size] for size in sizes} for one in learned)
        return cls(tuple(one.hierarchy for one in learned), heads, statistics, of_item, int((of_item != NO_FOLD).sum()))

    def __len__(self) -> int:
        return len(self.hierarchies)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of groups with classifiers."""
        return tuple(self.heads[0])

    @property
    def tested(self) -> NDArray[np.bool_]:
        """Items that were tested by a fold."""
        return self.of_item != NO_FOLD

    @property
    def complete(self) -> bool:
        """Whether all items that were cross-validated are there."""
        return int(self.tested.sum()) == self.n_items

    def model(self, model: Model, item: int, n_groups: int) -> Model | None:
        """Return the model of the fold that tested an item; None if there is none for this number of groups.

        `model` is the one that was cross-validated, before edits.
        """
        fold = int(self.of_item[item])
        if fold == NO_FOLD or n_groups not in self.sizes:
            return None
        return fold_model(model, self.hierarchies[fold], n_groups, self.heads[fold][n_groups])

    def taken(self, numbers: NDArray[np.int64]) -> FoldModels:
        """Return the same for some of the items."""
        return replace(self, of_item=self.of_item[numbers])

    def extended(self, n_new: int) -> FoldModels:
        """Return the same with further items, which were not cross-validated."""
        return replace(self, of_item=np.concatenate([self.of_item, np.full(n_new, NO_FOLD, np.uint8)]))

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the members of a header and the tensors of a file."""
        merges = np.concatenate([one.merges for one in self.hierarchies])
        weights = [
            values.ravel() for one in self.heads for head in one.values() for values in (head.coef, head.intercept)
        ]
        header = {
            "n_items": self.n_items,
            "n_merges": [len(one.merges) for one in self.hierarchies],
            "sizes": list(self.sizes),
            "statistics": [list(one.values.shape) for one in self.statistics],
        }
        tensors: dict[str, NDArray[Any]] = {
            "fold_of_item": self.of_item,
            "fold_merges": merges.astype(np.uint16 if merges.max(initial=0) < 1 << 16 else np.int32),
            "fold_weights": np.concatenate([np.zeros(0, np.float32), *weights]),
        }
        if self.statistics:
            tensors["fold_statistics"] = np.concatenate([one.values.ravel() for one in self.statistics])
        return header, tensors

    @classmethod
    def from_parts(cls, header: Any, tensors: Mapping[str, NDArray[Any]], model: Model) -> FoldModels | None:
        """Undo `to_parts`, for tensors that its table accepts; None without any. Errors begin with "its"."""
        has = {name for name in FOLD_TENSORS if name in tensors}
        if header is None and not has:
            return None
        wanted = {*FOLD_TENSORS} - ({"fold_statistics"} if "fold_statistics" not in has else set())
        if not isinstance(header, Mapping) or header.keys() != _MEMBERS or has != wanted:
            raise BagwiseError(f"its folds are {header!r:.200}, with the tensors {sorted(has)}.")
        original = unedited_model(model)
        n_merges, sizes, shapes = (header[name] for name in ("n_merges", "sizes", "statistics"))
        d, n_classes, folds = original.hierarchy.n_words, len(original.classes), tensors["fold_of_item"]
        sound = _counts(n_merges, d - 1) and 0 < len(n_merges) <= NO_FOLD and _counts(sizes, d) and 0 not in sizes
        sound = sound and sizes == sorted(set(sizes)) and sum(n_merges) == len(tensors["fold_merges"])
        sound = sound and isinstance(shapes, list) and len(shapes) in (0, len(n_merges)) and n_classes > 1
        sound = sound and all(_counts(one, 1 << 31) and len(one) == 2 for one in shapes)
        values = tensors.get("fold_statistics", np.zeros(0, np.float32))
        sound = sound and sum(a * b for a, b in shapes) == len(values)
        n_weights = [n_classes * (original.layout.width(size) + 1) for size in sizes] if sound else []
        sound = sound and len(n_merges) * sum(n_weights) == len(tensors["fold_weights"])
        tested = int((folds != NO_FOLD).sum())
        sound = sound and int(folds[folds != NO_FOLD].max(initial=0)) < len(n_merges)
        sound = sound and type(header["n_items"]) is int and header["n_items"] >= tested
        if not sound:
            raise BagwiseError(f"its folds are {header!r:.200}, which do not fit its model and tensors.")
        hierarchies, first = [], 0
        for n in n_merges:
            merges = tensors["fold_merges"][first : first + n].astype(np.int64)
            hierarchies.append(Hierarchy(d, merges, np.full(n, np.nan), original.hierarchy.criterion))
            first += n
        heads, rest = list[dict[int, Head]](), tensors["fold_weights"]
        for _ in n_merges:
            heads.append({})
            for size, n in zip(sizes, n_weights, strict=True):
                flat, rest = rest[:n], rest[n:]
                heads[-1][size] = Head(flat[:-n_classes].reshape(n_classes, -1), flat[-n_classes:])
        statistics = []
        for hierarchy, (a, b) in zip(hierarchies, shapes, strict=False):  # of all folds or none
            numbers, values = values[: a * b], values[a * b :]
            statistics.append(GroupStatistics.of(hierarchy, numbers.reshape(a, b)))
        return cls(tuple(hierarchies), tuple(heads), tuple(statistics), folds, header["n_items"])


def unkept_note(folds: Sequence[Fold], path: PathErrors | None) -> str | None:
    """Say what of the folds of a fit an index has no room for; None if it keeps all."""
    if not folds or path is None:
        return None
    kept = FoldModels.of(folds, sum(len(one.test) for one in folds))
    if kept is None:
        return (
            f"An index keeps the models of up to {NO_FOLD} folds, not of {len(folds)}: held-out answers are explained "
            "by the final model, which was trained on all items, and edits of groups are measured with such items."
        )
    missing = sorted({*path.sizes} - {*kept.sizes})
    if not missing:
        return None
    return (
        f"Classifiers of the folds at {missing[0]:,} groups and more would take over {readable_size(MOST_BYTES)} "
        "and are not kept: answers there are explained by the final model, which was trained on all items."
    )


def _counts(values: Any, most: int) -> bool:
    """Whether a value of a header is a list of whole numbers from 0."""
    return isinstance(values, list) and all(type(one) is int and 0 <= one <= most for one in values)


def fold_model(model: Model, hierarchy: Hierarchy, n_groups: int, head: Head) -> Model:
    """Return the model that a fold has learned: the words of another one, without edits, and groups of its own."""
    other = copy.copy(unedited_model(model))
    told = {name: value for name, value in other.provenance.items() if name != "derived_head"}
    other._set(hierarchy=hierarchy, n_groups=n_groups, heads={n_groups: head}, provenance=told)
    other._set(calibration={}, path=None, given_names={}, group_statistics=None, fit_=None)
    return other
