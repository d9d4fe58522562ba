"""Answers for the items of an index, at several numbers of groups: by cross-validation where items were trained on."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import tensor
from bagwise.app.model.editing import unedited_model
from bagwise.app.model.model import Head, Model
from bagwise.app.training.seen import SeenItems, seen_items
from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy
from bagwise.merging.sizes import path_sizes
from bagwise.sources.collection import Collection

__all__ = ["ANSWER_TENSORS", "HELD_OUT", "NEW", "TRAINING", "UNKNOWN", "ItemAnswers", "Measured", "Steered"]
__all__ += ["UNEDITED_TENSORS", "TopClasses"]

# What is known of an item: nothing; the model was not learned from it; it was, and the answer is that of the model;
# it was, and the answer is that of a fold of cross-validation which was not.
UNKNOWN, NEW, TRAINING, HELD_OUT = range(4)
ANSWER_TENSORS = {
    "answer_classes": tensor("uint8 uint16 int32", "n_answer_sizes", "n_items", low=0),
    "answer_runners_up": tensor("uint8 uint16 int32", "n_answer_sizes", "n_items", low=0),
    "answer_scores": tensor("float16", "n_answer_sizes", "n_items", finite=True),
    "answer_margins": tensor("float16", "n_answer_sizes", "n_items", low=0, finite=True),
    "item_origins": tensor("uint8", "n_items", high=HELD_OUT),
}
_TOP = list(ANSWER_TENSORS)[:4]  # the arrays of `TopClasses`
# Answers of an edited model before its edits.
UNEDITED_TENSORS = {
    f"unedited_{name}": replace(ANSWER_TENSORS[name], shape=("n_unedited_sizes", "n_items"), optional=True)
    for name in _TOP
}
_LARGEST = float(np.finfo(np.float16).max)
_BATCH = 4096  # items whose features are in memory at a time
_MOST_PROTOCOL = 200


@dataclass(frozen=True, eq=False)
class TopClasses:
    """The class with the highest score of each item, that with the second highest, and the distance between both.

    Attributes
    ----------
    predicted, runner_up : ndarray of integers, shape (..., n_items)
    score, margin : ndarray of floats, shape (..., n_items)

    Examples
    --------
    >>> top = TopClasses.of(np.array([[0.5, 2.0, 1.0]]))
    >>> top.predicted, top.runner_up, top.score, top.margin
    (array([1]), array([2]), array([2.]), array([1.]))
    """

    predicted: NDArray[Any]
    runner_up: NDArray[Any]
    score: NDArray[Any]
    margin: NDArray[Any]

    @classmethod
    def of(cls, scores: NDArray[np.floating]) -> TopClasses:
        """Read the classes off the scores of all of them, shape (n_items, n_classes)."""
        rows = np.arange(len(scores))
        predicted = scores.argmax(axis=1)
        others = scores.copy()
        others[rows, predicted] = -np.inf
        second = others.argmax(axis=1)
        best = scores[rows, predicted]
        return cls(predicted, second, best, best - scores[rows, second])

    @classmethod
    def empty(cls, n_sizes: int, n_items: int, n_classes: int) -> TopClasses:
        """Make arrays of shape (n_sizes, n_items), in the types of files."""
        shape, kind = (n_sizes, n_items), _class_type(n_classes)
        return cls(
            np.zeros(shape, kind), np.zeros(shape, kind), np.zeros(shape, np.float16), np.zeros(shape, np.float16)
        )

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """All arrays."""
        return self.predicted, self.runner_up, self.score, self.margin

    def put(self, size: int, items: Any, scores: NDArray[np.floating]) -> None:
        """Write the top classes of items at one size; scores of float16 are at most 65,504."""
        top = TopClasses.of(scores)
        for target, values in zip(self.arrays, top.arrays, strict=True):
            target[size, items] = np.clip(values, -_LARGEST, _LARGEST) if target.dtype.kind == "f" else values

    def taken(self, numbers: NDArray[np.int64]) -> TopClasses:
        """Return the arrays of some of the items."""
        return TopClasses(*(array[..., numbers] for array in self.arrays))

    def joined(self, *others: TopClasses) -> TopClasses:
        """Return the arrays of further items behind these, in the types of these."""
        arrays = zip(self.arrays, *(other.arrays for other in others), strict=True)
        return TopClasses(*(np.concatenate(some, axis=-1, dtype=some[0].dtype, casting="unsafe") for some in arrays))

    def at(self, size: int) -> TopClasses:
        """Return the arrays of one size."""
        return TopClasses(*(array[size] for array in self.arrays))


def _class_type(n_classes: int) -> Any:
    return np.uint8 if n_classes <= 1 << 8 else np.uint16 if n_classes <= 1 << 16 else np.int32


@dataclass(frozen=True, eq=False)
class ItemAnswers:
    """What is answered for items, and which of them the model was learned from.

    Attributes
    ----------
    sizes : tuple of int
        Numbers of groups, ascending; none without a classifier.
    top : TopClasses
        Arrays of shape (n_sizes, n_items).
    origins : ndarray of uint8, shape (n_items,)
        `UNKNOWN`, `NEW`, `TRAINING` or `HELD_OUT`.
    exact : bool
        Whether all items that the model was learned from are known as such; otherwise those in a sample.
    protocol : str
        How answers for `HELD_OUT` were found, such as "5-fold cross-validation"; "" if there are none.
    unedited : ItemAnswers or None
        Those of the model before its edits, which come back when these are undone.
    """

    sizes: tuple[int, ...]
    top: TopClasses
    origins: NDArray[np.uint8]
    exact: bool
    protocol: str = ""
    unedited: ItemAnswers | None = None

    @classmethod
    def of(
        cls,
        model: Model,
        collection: Collection,
        histograms: Any,
        held_out: TopClasses | None = None,
        sizes: tuple[int, ...] | None = None,
        seen: SeenItems | None = None,
    ) -> ItemAnswers:
        """Answer for items, at the sizes of cross-validation, or else at 2, 5, 10, 20, 50 and so on groups.

        Parameters
        ----------
        model : Model
        collection : Collection
        histograms : CSR array or ndarray of shape (n_items, n_cells * d)
            Counts of their words.
        held_out : TopClasses, default=None
            Answers of cross-validation for the first items, at each size of ``model.path``.
        sizes : tuple of int, default=None
            Other numbers of groups, for which the model has classifiers.
        seen : SeenItems, default=None
            Which items the model was learned from, if it is known already.
        """
        n_items, seen = len(collection), seen or seen_items(model, collection, histograms)
        origins = np.zeros(n_items, np.uint8)
        if seen is not None:
            origins[seen.compared] = NEW
            origins[seen.seen] = TRAINING
        n_held_out = 0 if held_out is None else held_out.predicted.shape[1]
        origins[:n_held_out] = HELD_OUT
        sizes = _sizes(model) if sizes is None else sizes
        top = TopClasses.empty(len(sizes), n_items, len(model.classes))
        for k, size in enumerate(sizes):
            if held_out is not None and model.path is not None:
                row = held_out.at(model.path.sizes.index(size))
                for target, values in zip(top.arrays, row.arrays, strict=True):
                    target[k, :n_held_out] = values
            for first in range(n_held_out, n_items, _BATCH):
                part = slice(first, min(first + _BATCH, n_items))
                top.put(k, part, model.heads[size].scores(model.group(histograms[part], size)))
        protocol = model.path.protocol_of_answers if held_out is not None and model.path is not None else ""
        return cls(sizes, top, origins, seen is not None and seen.exact, protocol)

    @classmethod
    def joined(cls, parts: Sequence[ItemAnswers]) -> ItemAnswers:
        """Return the answers for the items of all parts, at the same sizes, of one model that was not edited."""
        top = parts[0].top.joined(*(part.top for part in parts[1:]))
        origins = np.concatenate([part.origins for part in parts])
        return cls(parts[0].sizes, top, origins, all(part.exact for part in parts))

    def with_held_out(self, numbers: NDArray[np.intp], held_out: TopClasses, model: Model) -> ItemAnswers:
        """Return answers of which those for some items are of cross-validation, at each size of ``model.path``."""
        assert model.path is not None
        top, origins = self.top.taken(np.arange(len(self.origins))), self.origins.copy()
        origins[numbers] = HELD_OUT
        for k, size in enumerate(self.sizes):
            row = held_out.at(model.path.sizes.index(size))
            for target, values in zip(top.arrays, row.arrays, strict=True):
                target[k, numbers] = values
        return replace(self, top=top, origins=origins, protocol=model.path.protocol_of_answers)

    def with_items(self, model: Model, collection: Collection, histograms: Any) -> ItemAnswers:
        """Return answers for further items too: by the model, which may have been learned from some of them."""
        seen = seen_items(model, collection, histograms)
        new = ItemAnswers.of(model, collection, histograms, sizes=self.sizes, seen=seen)
        top, origins = self.top.joined(new.top), np.concatenate([self.origins, new.origins])
        exact, unedited = self.exact and new.exact, None
        if self.unedited is not None:
            before = ItemAnswers.of(unedited_model(model), collection, histograms, sizes=self.unedited.sizes, seen=seen)
            joined = self.unedited.top.joined(before.top)
            unedited = replace(self.unedited, top=joined, origins=origins, exact=exact)
        return ItemAnswers(self.sizes, top, origins, exact, self.protocol, unedited)

    def taken(self, numbers: NDArray[np.int64]) -> ItemAnswers:
        """Return the answers for some of the items."""
        origins, unedited = self.origins[numbers], None if self.unedited is None else self.unedited.taken(numbers)
        protocol = self.protocol if HELD_OUT in origins else ""
        return ItemAnswers(self.sizes, self.top.taken(numbers), origins, self.exact, protocol, unedited)

    def nearest(self, n_groups: int) -> int | None:
        """Return the place of the size with the smallest ratio to a number of groups; None if there are none."""
        if not self.sizes:
            return None
        return int(np.argmin(np.abs(np.log(np.array(self.sizes) / n_groups))))

    @property
    def rows(self) -> dict[int, TopClasses]:
        """The answers at each size."""
        return {size: self.top.at(k) for k, size in enumerate(self.sizes)}

    def replaced(
        self, rows: Mapping[int, TopClasses], protocol: str, unedited: ItemAnswers | None = None
    ) -> ItemAnswers:
        """Return other answers for the same items: `TopClasses` of shape (n_items,) by numbers of groups."""
        sizes, n_classes = sorted(rows), int(np.iinfo(self.top.predicted.dtype).max) + 1
        top = TopClasses.empty(len(sizes), len(self.origins), n_classes)
        for k, size in enumerate(sizes):
            for target, values in zip(top.arrays, rows[size].arrays, strict=True):
                target[k] = values
        protocol = protocol if HELD_OUT in self.origins else ""
        return ItemAnswers(tuple(sizes), top, self.origins, self.exact, protocol, unedited)

    def seen(self, ids: Any) -> SeenItems:
        """Return which items the model was learned from."""
        seen = self.origins >= TRAINING
        every = bool(len(seen)) and bool(seen.all())
        return SeenItems(ids, seen, self.origins != UNKNOWN, exact=self.exact or every, all_of_them=every)

    def fair(self, ids: Any) -> NDArray[np.bool_]:
        """Tell which answers come from a model that was not trained on the item, as far as that is known."""
        return self.seen(ids).new | (self.origins == HELD_OUT)

    def to_parts(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Give the members of a header and the tensors of a file."""
        header: dict[str, Any] = {"sizes": list(self.sizes), "exact": self.exact, "protocol": self.protocol}
        tensors = dict(zip(ANSWER_TENSORS, (*self.top.arrays, self.origins), strict=True))
        if self.unedited is not None:
            header["unedited"] = {"sizes": list(self.unedited.sizes), "protocol": self.unedited.protocol}
            tensors |= dict(zip(UNEDITED_TENSORS, self.unedited.top.arrays, strict=True))
        return header, tensors

    @classmethod
    def from_parts(cls, header: Any, tensors: Mapping[str, NDArray[Any]], model: Model) -> ItemAnswers | None:
        """Undo `to_parts`, for tensors that its tables accept; None without any. Errors begin with "its"."""
        has = [name for name in ANSWER_TENSORS if name in tensors]
        if header is None and not has:
            return None
        if len(has) < len(ANSWER_TENSORS):
            raise BagwiseError(f"of the tensors of its answers it has {has}; all or none belong to it.")
        expected = {"exact", "protocol", "sizes"}
        if not isinstance(header, Mapping) or header.keys() - {"unedited"} != expected:
            raise BagwiseError(f"its answers are {header!r:.100}; expected exact, protocol and sizes.")
        if type(header["exact"]) is not bool:
            raise BagwiseError(f"its answers have exact {header['exact']!r:.50}.")
        about = tensors["item_origins"], header["exact"]
        answers = cls(*_named_top(header, [tensors[name] for name in _TOP], model), *about, header["protocol"])
        has = [name for name in UNEDITED_TENSORS if name in tensors]
        before: Any = header.get("unedited")
        if before is None and not has:
            return answers
        sound = isinstance(before, Mapping) and before.keys() == {"protocol", "sizes"} and len(has) == len(_TOP)
        if not sound or not model.edits:
            raise BagwiseError(
                f"its answers before edits are {before!r:.100}, with the tensors {has} and {len(model.edits)} edits; "
                "expected protocol and sizes, all of the tensors, and edits."
            )
        unedited = _named_top(before, [tensors[name] for name in UNEDITED_TENSORS], unedited_model(model))
        return replace(answers, unedited=cls(*unedited, *about, before["protocol"]))


def _named_top(header: Any, arrays: list[NDArray[Any]], model: Model) -> tuple[tuple[int, ...], TopClasses]:
    """Return the numbers of groups that answers of a file are for, and the answers; check both, and the protocol."""
    sizes, protocol, top = header["sizes"], header["protocol"], TopClasses(*arrays)
    if not isinstance(sizes, list) or not all(type(size) is int for size in sizes) or sizes != sorted(set(sizes)):
        raise BagwiseError(f"its answers have the sizes {sizes!r:.100}; expected ascending numbers of groups.")
    if not set(sizes) <= set(model.heads):
        known = ", ".join(map(str, model.heads))
        raise BagwiseError(f"its answers are at {sizes!s:.100} groups; its model has classifiers at {known}.")
    if type(protocol) is not str or len(protocol) > _MOST_PROTOCOL:
        raise BagwiseError(f"its answers have the protocol {protocol!r:.100}.")
    if len(top.predicted) != len(sizes):
        raise BagwiseError(f"it has answers at {len(top.predicted)} sizes, named are {len(sizes)}.")
    for name, codes in zip(_TOP[:2], top.arrays[:2], strict=True):
        if codes.size and int(codes.max()) >= len(model.classes):
            raise BagwiseError(f"its {name} hold class {codes.max()}; the model has {len(model.classes)}.")
    return tuple(sizes), top


def _sizes(model: Model) -> tuple[int, ...]:
    """Return the numbers of groups that have answers: usual ones that have a classifier."""
    usual = path_sizes(model.hierarchy.n_words, model.n_groups) if model.path is None else model.path.sizes
    return tuple(size for size in usual if size in model.heads)


@dataclass(frozen=True, eq=False)
class Measured:
    """The error of a model on some items.

    Attributes
    ----------
    error, standard_error : float
        Fraction of wrongly classified items, and its standard error.
    protocol : str
        How the error was estimated, in words.

    Examples
    --------
    >>> Measured.of(np.array([[1.0, 0.0], [2.0, 0.5], [0.0, 1.0]]), np.array([0, 1, -1]), "two items").error
    0.5
    """

    error: float
    standard_error: float
    protocol: str

    @classmethod
    def of(cls, scores: NDArray[np.float64], codes: NDArray[np.int64], protocol: str) -> Measured:
        """Measure the error of items with these scores and classes; -1 for items without one, which do not count."""
        known = codes >= 0
        wrong = scores[known].argmax(axis=1) != codes[known]
        error = float(wrong.mean())
        return cls(error, float(np.sqrt(error * (1 - error) / len(wrong))), protocol)


@dataclass(frozen=True, eq=False)
class Steered(Measured):
    """What the groups of a model are worth, with the classifier that belongs to them.

    Attributes
    ----------
    error, standard_error : float
        The mean over folds, and its standard error.
    protocol : str
    head : Head
        The classifier of the groups, trained on all items.
    sharpness : float
        See `Model.calibration`.
    held_out : TopClasses
        Answers for the items by the folds that did not train on them, arrays of shape (n_items,).
    models : tuple of (Hierarchy, int, Head)
        Of each fold: its edited hierarchy, where it is cut, and the classifier of these groups.
    """

    head: Head
    sharpness: float
    held_out: TopClasses
    models: tuple[tuple[Hierarchy, int, Head], ...] = ()

    def put_into(self, model: Model) -> Model:
        """Return the model with this classifier and its calibration at its number of groups."""
        n, other = model.n_groups, copy.copy(model)
        told = {name: value for name, value in model.provenance.items() if name != "derived_head"}
        heads, calibration = {**model.heads, n: self.head}, {**model.calibration, n: self.sharpness}
        other._set(heads=dict(sorted(heads.items())), calibration=dict(sorted(calibration.items())), provenance=told)
        return other
