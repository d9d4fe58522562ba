"""What would change the answer for an item: the fewest words, groups or moved columns that give it another class."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.checks import check_integer
from bagwise.app.modalities import MODALITIES
from bagwise.errors import BagwiseError, unknown_name

if TYPE_CHECKING:
    from bagwise.app.model.explanation import Explanation

__all__ = ["Change", "Move", "Removed", "change_by_removing", "changing_moves"]

# Classes that the answer could become, of those with the highest scores, that are tried.
_TARGETS = 3
# Moves of a column that are tried, in units of its scale, and how often the interval of the smallest is halved.
_STEPS = 2.0 ** np.arange(-6, 4)
_HALVINGS = 12
_MOST_COLUMNS, _MOST_VALUES = 50, 2_000_000
_SHOWN_MOVES = 3


class Removed(NamedTuple):
    """A word or group that is removed, and its contribution to the score of the class above that of the new class."""

    number: int
    name: str
    contribution: float


@dataclass(frozen=True)
class Change:
    """Words or groups without which an item gets another class.

    Attributes
    ----------
    by : {"words", "groups"}
    removed : tuple of Removed
        The largest contribution first.
    becomes : str
        The class that the model predicts for the item without them.
    score, score_before : float
        The scores of that class and of the former one, without them.
    """

    by: str
    removed: tuple[Removed, ...]
    becomes: str
    score: float
    score_before: float

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self) | {"removed": [one._asdict() for one in self.removed]}


class Move(NamedTuple):
    """A column of a table whose change from `value` to `to` alone gives a row another class."""

    column: int
    name: str
    value: float
    to: float
    becomes: str


def change_by_removing(why: Explanation, by: str = "words", most: int = 64) -> Change | None:
    """Find few words or groups without which an item gets another class; see `Explanation.changes`."""
    if by not in ("words", "groups"):
        raise unknown_name("by", by, ("words", "groups"))
    most = check_integer(most, "most", 1)
    item = _Item.of(why)
    units, names = item.units(by)
    if not len(units.numbers):
        return None
    order = np.argsort(-why.scores, kind="stable")
    first, best = int(order[0]), None
    for target in order[1 : 1 + _TARGETS].tolist():
        gains = units.sums(item.contributions(first) - item.contributions(target))
        ranked = np.argsort(-gains, kind="stable")
        ranked = ranked[gains[ranked] > 0][:most]
        removed_units = _fewest(item, units, ranked, first)
        if removed_units is not None and (best is None or len(removed_units) < len(best)):
            best = removed_units
    if best is None:
        return None
    scores = item.scores_without(units, [best])[0]
    new = int(scores.argmax())
    gains = units.sums(item.contributions(first) - item.contributions(new))
    shown = sorted(best.tolist(), key=lambda k: -gains[k])
    removed = tuple(Removed(int(units.numbers[k]), names(int(units.numbers[k])), float(gains[k])) for k in shown)
    return Change(by, removed, why.classes[new], float(scores[new]), float(scores[first]))


def _fewest(item: _Item, units: _Units, ranked: NDArray[np.intp], first: int) -> NDArray[np.intp] | None:
    """Return the shortest beginning of a ranking whose removal changes the answer, less what is not needed for it."""
    if not len(ranked):
        return None
    changed = _differs(item.scores_without(units, [ranked[: k + 1] for k in range(len(ranked))]), first)
    if not changed.any():
        return None
    chosen = ranked[: int(np.argmax(changed)) + 1]
    while len(chosen) > 1:
        without = [np.delete(chosen, k) for k in range(len(chosen))]
        still = np.flatnonzero(_differs(item.scores_without(units, without), first))
        if not len(still):
            break
        chosen = without[still[-1]]
    return chosen


def _differs(scores: NDArray[np.float64], first: int) -> NDArray[np.bool_]:
    """Tell for which scores another class is above the first; where both are equal it is not."""
    return scores.max(axis=1) > scores[:, first]


def changing_moves(why: Explanation) -> list[Move]:
    """Find columns of a table that alone can give a row another class; see `Explanation.moves`."""
    item = _Item.of(why)
    if not MODALITIES[item.model.modality].rows:
        return []
    model, values, first = item.model, item.dense(), int(why.scores.argmax())
    scale = _scales(model, values)
    lowest = np.full(len(values), -np.inf if (values < 0).any() else 0.0)  # counts stay counts
    highest = np.full(len(values), np.inf)
    if model.column_shift is not None:
        lowest = np.minimum(model.column_shift, values)
        if model.word_weights is not None:  # measurements stay where they were when the model was learned
            highest = np.maximum(model.column_shift + scale, values)
    second = int(np.argsort(-why.scores, kind="stable")[1])
    pull = np.abs(why.coef[first].astype(np.float64) - why.coef[second])[model.lookup]
    n_columns = min(_MOST_COLUMNS, max(1, _MOST_VALUES // (2 * len(_STEPS) * len(values))))
    deltas = np.concatenate([-_STEPS, _STEPS])
    moves: list[tuple[float, Move]] = []
    for column in np.argsort(-pull * (scale > 0), kind="stable")[:n_columns].tolist():

        def scores(tried: Any, column: int = column) -> NDArray[np.float64]:
            rows = np.tile(values, (len(tried), 1))
            rows[:, column] = tried
            return item.scores(rows)

        tried = np.clip(values[column] + deltas * scale[column], lowest[column], highest[column])
        changed = _differs(scores(tried), first)
        sizes = np.abs(tried - values[column])
        if not changed.any():
            continue
        nearest = int(np.argmin(np.where(changed, sizes, np.inf)))
        inner, outer = values[column], tried[nearest]  # the answer changes between them
        for _ in range(_HALVINGS):
            middle = (inner + outer) / 2
            inner, outer = (inner, middle) if _differs(scores([middle]), first)[0] else (middle, outer)
        new = why.classes[int(scores([outer]).argmax())]
        name = f"x{column}" if why.word_names is None else str(why.word_names[column])
        move = Move(column, name, float(values[column]), float(outer), new)
        moves.append((abs(outer - values[column]) / scale[column], move))
    return [move for _, move in sorted(moves, key=lambda one: one[0])[:_SHOWN_MOVES]]


def _scales(model: Any, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much a column usually differs: one over its weight for measurements; for counts, their mean."""
    if model.column_shift is not None and model.word_weights is not None:
        weights = model.word_weights.astype(np.float64)
        return np.divide(1.0, weights, out=np.zeros(len(weights)), where=weights > 0)
    some = np.abs(values[values != 0])
    return np.full(len(values), some.mean() if len(some) else 1.0)


class _Units(NamedTuple):
    """What can be removed: the columns of a histogram that belong to each word or group of an item."""

    numbers: NDArray[np.intp]  # of words or groups
    owner: NDArray[np.intp]  # of each pair, its place in `numbers`
    places: NDArray[np.intp]  # of each pair, the place of a column among those of the item

    def sums(self, of_columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Sum contributions of columns for each unit."""
        return np.bincount(self.owner, of_columns[self.places], len(self.numbers)).astype(np.float64)


class _Item(NamedTuple):
    why: Explanation
    model: Any
    histogram: Any
    columns: NDArray[np.intp]  # that have a word

    @classmethod
    def of(cls, why: Explanation) -> _Item:
        if why.model is None:
            raise BagwiseError("Only explanations of Model.explain know the model that could change its answer.")
        d = why.model.hierarchy.n_words
        return cls(why, why.model, why.histogram, np.unique(why.terms.cells * d + why.terms.words))

    def units(self, by: str) -> tuple[_Units, Any]:
        d, places = self.model.hierarchy.n_words, np.arange(len(self.columns))
        words = self.columns % d
        if by == "words":
            numbers, owner = np.unique(words, return_inverse=True)
            names = self.why.word_names
            return _Units(numbers, owner, places), lambda k: f"word {k}" if names is None else str(names[k])
        numbers, owner = np.unique(self.model.lookup[words], return_inverse=True)
        groups = self.why.group_names
        return _Units(numbers, owner, places), lambda k: str(groups[k])

    def contributions(self, label: int) -> NDArray[np.float64]:
        """Return the contribution of each column to the score of a class."""
        terms, d = self.why.terms, self.model.hierarchy.n_words
        places = np.searchsorted(self.columns, terms.cells * d + terms.words)
        return np.bincount(places, self.why._shares(label), len(self.columns)).astype(np.float64)

    def dense(self) -> NDArray[np.float64]:
        row = self.histogram.toarray() if sp.issparse(self.histogram) else np.asarray(self.histogram)
        return row.astype(np.float64)[0]

    def scores(self, rows: Any) -> NDArray[np.float64]:
        return self.model.head.scores(self.model.group(rows))

    def scores_without(self, units: _Units, sets: list[NDArray[np.intp]]) -> NDArray[np.float64]:
        """Return scores of the item without the units of each set; measurements go to what is subtracted from them."""
        kept = np.ones((len(sets), len(self.columns)), dtype=np.bool_)
        for row, chosen in enumerate(sets):
            kept[row, units.places[np.isin(units.owner, chosen)]] = False
        shift = self.model.column_shift
        if sp.issparse(self.histogram) and shift is None:
            counts = np.asarray(self.histogram[:, self.columns].toarray())[0]
            row_of, column_of = np.nonzero(kept)
            entries = (counts[column_of], (row_of, self.columns[column_of]))
            return self.scores(sp.csr_array(entries, shape=(len(sets), self.histogram.shape[1])))
        rows = np.tile(self.dense(), (len(sets), 1))
        least = np.zeros(len(self.columns)) if shift is None else shift[self.columns % len(shift)]
        rows[:, self.columns] = np.where(kept, rows[:, self.columns], least)
        return self.scores(rows)
