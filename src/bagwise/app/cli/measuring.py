"""How well a model separates classes: precision, recall and F1 of each, and which are confused most."""

from __future__ import annotations

from typing import Any

from bagwise._utils.text import count, how_many, percent, shortened
from bagwise.app.cli.printing import printable
from bagwise.app.cli.session import Session
from bagwise.app.report.data import ClassMeasures, ConfusionMatrix
from bagwise.app.report.sentences import most_confused

__all__ = ["measures_of", "say_confusion", "say_measures", "say_pairs"]

_MOST_OF_MATRIX = 12  # classes of a confusion matrix
_MOST_CLASSES = 20  # of a table
_MOST_PAIRS = 10
_NAME = 24  # characters of a class


def measures_of(confusion: ConfusionMatrix, n_groups: int) -> dict[str, Any]:
    """Return precision, recall and F1 of each class and their means, and the most frequent confusions, as JSON."""
    means = {
        name: {"precision": one.precision, "recall": one.recall, "f1": one.f1}
        for name, one in confusion.means().items()
    }
    return {
        "n_groups": n_groups,
        "classes": [
            {"class": one.name} | {name: value for name, value in one._asdict().items() if name != "name"}
            for one in confusion.by_class()
        ],
        **means,
        "confused": [
            {"class": pair.true, "predicted": pair.predicted, "times": pair.times, "n_items": pair.of}
            for pair in most_confused(confusion, _MOST_PAIRS)
        ],
    }


def say_measures(session: Session, confusion: ConfusionMatrix, errors: bool = False) -> None:
    """Print precision, recall and F1 of each class, and their means; with `errors` those too, the largest first."""
    classes = confusion.by_class()
    if errors or len(classes) > _MOST_CLASSES:
        classes.sort(key=lambda one: 1.0 if one.recall is None else one.recall)
    shown, means = classes[:_MOST_CLASSES], confusion.means()
    left = len(classes) - len(shown)
    rows = [[shortened(one.name, _NAME), *_cells(one, errors)] for one in shown]
    if left:
        rows.append([f"({how_many(left, 'classes')} more: --json)"])
    rows += [[f"{name} mean", *_cells(one, errors)] for name, one in means.items()]
    heads = ["class", "items", *(["error"] if errors else []), "precision", "recall", "F1"]
    session.table(heads, [[*row, *[""] * (len(heads) - len(row))] for row in rows])


def _cells(one: ClassMeasures, errors: bool) -> list[str]:
    values = (one.precision, one.recall, one.f1)
    error = [] if not errors else ["" if one.recall is None else percent(1 - one.recall)]
    return [count(one.n_items), *error, *("" if value is None else percent(value) for value in values)]


def say_confusion(session: Session, confusion: ConfusionMatrix, n_groups: int) -> None:
    """Print the confusion matrix; of many classes the most frequent confusions."""
    groups = how_many(n_groups, "groups")
    if len(confusion.classes) > _MOST_OF_MATRIX:
        say_pairs(session, confusion, f"Most often confused with {groups}", _MOST_PAIRS)
        return
    session.say(f"Confusion matrix with {groups}: rows are true classes, columns predicted classes")
    names = [shortened(printable(name), 12) for name in confusion.classes]
    session.table(["", *names], [[name, *row] for name, row in zip(names, confusion.counts.tolist(), strict=True)])


def say_pairs(session: Session, confusion: ConfusionMatrix, title: str, n: int) -> None:
    """Print the pairs of classes that are confused most, under a title."""
    session.say(title)
    pairs = most_confused(confusion, n)
    rows = [[pair.times, shortened(pair.true, _NAME), shortened(pair.predicted, _NAME)] for pair in pairs]
    session.table(["items", "true class", "predicted class"], rows)
