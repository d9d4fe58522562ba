"""Sentences that summarise the data; every number in them is in the data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bagwise._utils.text import count, how_many
from bagwise.app.report.data import (
    Baseline,
    ClassCount,
    Comparison,
    ConfusionMatrix,
    Example,
    MergingCurve,
    ReportData,
    WordGroup,
)
from bagwise.display.texts import percent, percent_of, seconds

__all__ = ["Confused", "Meaning", "Name", "Phrase", "Sentence", "Strong", "about_baselines", "about_classes"]
__all__ += [
    "about_comparison",
    "about_confusion",
    "about_curve",
    "about_examples",
    "about_groups",
    "about_model",
    "about_pair",
    "about_timings",
    "interval",
]
__all__ += ["most_confused", "what_errors_mean"]


class Name(str):
    """A text from the data inside a sentence; pages quote it, so that it cannot change the words around it."""

    __slots__ = ()


class Phrase(str):
    """A text from the data inside a sentence that is shown without quotes, such as "5-fold cross-validation"."""

    __slots__ = ()


class Strong(str):
    """A part of a sentence that is emphasised."""

    __slots__ = ()


Sentence = tuple[str | Name | Phrase | Strong, ...]


def about_model(data: ReportData) -> Sentence:
    """Say what the model is good for and where it fails, beside the strongest simple baseline."""
    curve, confusion = data.curve, data.confusion
    if not data.classes:
        n_groups = None if curve is None else curve.n_groups
        if n_groups is None:
            return ()
        return (
            f"The model describes items by {how_many(n_groups, 'groups')} of words, for search and clusters; it was "
            "learned without classes, so nothing is known about its errors.",
        )
    if curve is None or not curve.measured or curve.n_groups is None:
        return ()
    error, compared, how = _compared(curve, data.baselines)
    if error is None:
        return ()
    known = how_many(len(data.classes), "classes")
    said: list[str] = [f"The model tells {known} apart with ", Strong(f"an error of {percent(error)}"), f" {how}"]
    if compared is not None:
        baseline, its = compared
        said += [", against ", Strong(percent(its)), " of the strongest simple baseline (", Phrase(baseline.name), ")"]
    if confusion is not None and confusion.n_items:
        said += _best_and_worst(confusion)
    return (*said, ".")


def _compared(
    curve: MergingCurve, baselines: Sequence[Baseline]
) -> tuple[float | None, tuple[Baseline, float] | None, str]:
    """Return the error of the model, the strongest baseline with its error, both of the test or both not, and which."""
    strongest = min(baselines, key=lambda one: one.error, default=None)
    test, error = curve.test_error_at(curve.n_groups), curve.error_at(curve.n_groups)
    if test is not None and not curve.test_is_training and (strongest is None or strongest.test_error is not None):
        reference = None if strongest is None or strongest.test_error is None else (strongest, strongest.test_error)
        return test, reference, f"on {how_many(curve.n_test, 'test items')}"
    if error is None:
        return (None if curve.test_is_training else test), None, f"on {how_many(curve.n_test, 'test items')}"
    reference = None if strongest is None else (strongest, strongest.error)
    return error, reference, f"in {curve.protocol or 'cross-validation'}"


def _best_and_worst(confusion: ConfusionMatrix) -> Sentence:
    """Name the classes with the lowest and the highest fraction of wrong items, and what the latter is taken for."""
    totals, right = confusion.counts.sum(axis=1), np.diagonal(confusion.counts)
    known = np.flatnonzero(totals)
    wrong = (totals - right)[known] / totals[known]
    best, worst = known[int(wrong.argmin())], known[int(wrong.argmax())]
    if not wrong.any():
        return ("; no item of any class is wrong",)
    if wrong.min() == wrong.max():
        return (f"; {percent(float(wrong.max()))} of each class are wrong",)
    others = confusion.counts[worst].copy()
    others[worst] = 0
    return (
        "; it is best at ",
        Name(confusion.classes[best]),
        f" ({percent(float(wrong.min()))} wrong) and fails most at ",
        Name(confusion.classes[worst]),
        f" ({percent(float(wrong.max()))} wrong, most often taken for ",
        Name(confusion.classes[int(others.argmax())]),
        ")",
    )


def about_baselines(baselines: Sequence[Baseline], protocol: str) -> Sentence:
    """Say how the baselines were measured."""
    what = "Simple methods, measured in the same folds as the model" if protocol else "Simple methods"
    shown = (f"{what}, by ", Phrase(protocol), ".") if protocol else (f"{what}.",)
    if any("TF-IDF" in one.name for one in baselines):
        return (*shown, " All words with TF-IDF weights are what a linear classifier of texts usually gets.")
    return shown


def about_classes(classes: Sequence[ClassCount]) -> list[Sentence]:
    """Give the numbers of items and classes, and the smallest and largest class."""
    n_train = sum(one.n_train for one in classes)
    n_test = sum(one.n_test or 0 for one in classes)
    text = f"Trained on {how_many(n_train, 'items')} of {how_many(len(classes), 'classes')}"
    text += f", tested on {how_many(n_test, 'items')}." if n_test else "."
    sentences: list[Sentence] = [(text,)]
    smallest, largest = (choose(classes, key=lambda one: one.n_train) for choose in (min, max))
    if smallest.n_train != largest.n_train:
        ends = f" ({how_many(smallest.n_train, 'items')}), the largest ", f" ({how_many(largest.n_train, 'items')})."
        sentences.append(("The smallest class is ", Name(smallest.name), ends[0], Name(largest.name), ends[1]))
    return sentences


def about_curve(curve: MergingCurve) -> list[Sentence]:
    """Compare the errors at the size that is about as good as the best, that of the model, the best and both ends."""
    best, lowest = curve.best, curve.error_at(curve.best)
    if best is None or lowest is None:
        return []
    sentences = [_about_lowest(curve, best, lowest)]
    if curve.n_groups is not None and curve.n_groups not in (curve.auto, best):
        error = curve.error_at(curve.n_groups)
        shown = "the error was not measured at this size" if error is None else f"its error is {percent(error)}"
        sentences.append((f"The model has {how_many(curve.n_groups, 'groups')}; {shown}.",))
    for which, position in {"smallest": 0, "largest": len(curve.sizes) - 1}.items():
        size, error = curve.sizes[position], curve.errors[position]
        if size not in (best, curve.auto, curve.n_groups):
            sentences.append(
                (f"With {how_many(size, 'groups')}, the {which} size tried, the error is {percent(error)}.",)
            )
    return sentences


def _about_lowest(curve: MergingCurve, best: int, lowest: float) -> Sentence:
    size, spread = curve.auto, curve.standard_error_at(best)
    error, name = curve.error_at(size), "error by cross-validation" if curve.test_sizes else "error"
    if size is not None and size != best and error is not None:
        return (
            f"The {name} with {how_many(size, 'groups')} is about as low as the lowest: {percent(error)}, against "
            f"{percent(lowest)} with {count(best)}.",
        )
    more = "" if spread is None else f", with a standard error of {percent(spread)}"
    return (f"The {name} is lowest with {how_many(best, 'groups')}: {percent(lowest)}{more}.",)


class Meaning(NamedTuple):
    """A term with the sentences that say what it means."""

    term: str
    sentences: list[Sentence]


def what_errors_mean(curve: MergingCurve) -> list[Meaning]:
    """Say what the errors of cross-validation and of the test mean, and which one to quote."""
    error = curve.error_at(curve.n_groups)
    spread = curve.standard_error_at(curve.n_groups)
    of_model = "" if curve.n_groups is None else f" with {how_many(curve.n_groups, 'groups')}"
    meanings = []
    if curve.sizes:
        said: list[Sentence] = [
            (
                "In ",
                Phrase(curve.protocol or "cross-validation"),
                ", each training item is classified by groups and a classifier that were learned without it. "
                "It needs no further items, and serves to compare numbers of groups.",
            )
        ]
        if (not curve.test_sizes or curve.test_is_training) and error is not None:
            plus = "" if spread is None else f" ± {percent(spread)}"
            said.append(
                (
                    Strong(f"This is the error to quote: {percent(error)}{plus}{of_model}."),
                    " It is slightly too low if the number of groups was chosen by it, and says nothing about items "
                    "from another source; a split named “test” would.",
                )
            )
        meanings.append(Meaning("Cross-validation", said))
    if curve.test_sizes:
        meanings.append(_about_test(curve, of_model))
    return meanings


def _about_test(curve: MergingCurve, of_model: str) -> Meaning:
    test, error = curve.test_error_at(curve.n_groups), curve.error_at(curve.n_groups)
    items, seen = how_many(curve.n_test, "items"), curve.test_seen
    if curve.test_is_training and seen is not None:
        known = "these items" if seen > 0.995 else f"{percent(seen)} of these {items}"
        shown = "" if test is None else f", {percent(test)}{of_model},"
        what = (f"The model was learned from {known}. ", Strong("Their error is not to be quoted"))
        return Meaning("Training items", [(*what, f": it{shown} is that of answers the model has seen.")])
    more = f"{items} that took no part in training"
    if seen is None:
        more = f"{items}; whether the model was learned from some of them is not known"
    elif seen:
        more = f"{items}; {percent(seen)} of them are training items or copies of such, the others took no part in it"
    said: list[Sentence] = [(f"The test error is that of the model on {more}.",)]
    if test is not None:
        low, high = interval(test, curve.n_test)
        said.append(
            (
                Strong(f"This is the error to quote: {percent(test)}{of_model}"),
                f", with a 95\u202f% confidence interval from {percent(low)} to {percent(high)}. Quote it at the size "
                "of the model, not where it is lowest: the lowest of several errors is too low by chance.",
            )
        )
    if test is not None and error is not None:
        said.append(_difference(error, curve.standard_error_at(curve.n_groups) or 0.0, test, curve.n_test))
    return Meaning("Test", said)


def about_criterion(curve: MergingCurve) -> Sentence:
    """Say what a chart without errors shows."""
    if not curve.criterion_sizes:
        return ()
    name = (" by ", Name(curve.criterion_name)) if curve.criterion_name else ()
    of_model = (
        "" if curve.n_groups is None else f" The dashed line is the model, with {how_many(curve.n_groups, 'groups')}."
    )
    return ("What is left of the criterion after merging", *name, f" to each number of groups.{of_model}")


def _difference(error: float, spread: float, test: float, n_test: int) -> Sentence:
    """Say whether the errors of cross-validation and test differ by more than chance explains."""
    half = math.hypot(spread, math.sqrt(max(test * (1 - test), error * (1 - error)) / max(n_test, 1)))
    if abs(test - error) <= 2 * half:
        return ("Cross-validation and test agree within what chance explains.",)
    if test > error:
        return (
            f"It is higher than by cross-validation, {percent(error)}, by more than chance explains: the test items "
            "differ from the training items, for instance in their time or source, or the training items have "
            "near-duplicates among them.",
        )
    return (
        f"It is lower than by cross-validation, {percent(error)}, by more than chance explains: the test items are "
        "easier, or have near-duplicates among the training items.",
    )


def interval(error: float, n: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of an error rate of `n` items, by Wilson's method.

    >>> low, high = interval(0.0, 90)
    >>> low, round(high, 3)
    (0.0, 0.041)
    """
    z = 1.959964
    centre = (error + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(error * (1 - error) / n + z * z / (4 * n * n))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    return (0.0 if error == 0 else low), (1.0 if error == 1 else high)


def about_confusion(confusion: ConfusionMatrix) -> Sentence:
    """Give the number of wrong predictions."""
    wrong, items = confusion.n_wrong, confusion.n_items
    if items == 0:
        return ("No items were classified.",)
    were = "was" if wrong == 1 else "were"
    return (f"{count(wrong)} of {how_many(items, 'items')} {were} misclassified: {percent_of(wrong, items)}.",)


class Confused(NamedTuple):
    """A class and the class that `times` of its `of` items were mistaken for."""

    true: str
    predicted: str
    times: int
    of: int


def most_confused(confusion: ConfusionMatrix, n: int = 8) -> list[Confused]:
    """Return the most frequent confusions.

    Sorted by count, then by the fraction of the true class, then by the order of classes.

    >>> most_confused(ConfusionMatrix(["cat", "dog", "fox"], np.array([[8, 0, 2], [0, 9, 1], [0, 0, 9]])), n=1)
    [Confused(true='cat', predicted='fox', times=2, of=10)]
    """
    counts = np.array(confusion.counts)
    totals = counts.sum(axis=1)
    np.fill_diagonal(counts, 0)
    rows, columns = np.nonzero(counts)
    order = np.lexsort((totals[rows], -counts[rows, columns]))[:n]
    pairs = zip(rows[order].tolist(), columns[order].tolist(), strict=True)
    names = confusion.classes
    return [Confused(names[i], names[k], int(counts[i, k]), int(totals[i])) for i, k in pairs]


def about_pair(pair: Confused) -> Sentence:
    """Give how often a class was mistaken for another."""
    times = f": {count(pair.times)} of {how_many(pair.of, 'items')}, {percent_of(pair.times, pair.of)}."
    return (Name(pair.true), " classified as ", Name(pair.predicted), times)


def about_groups(shown: Sequence[WordGroup], groups: Sequence[WordGroup]) -> list[Sentence]:
    """Give the numbers of groups and words, how groups are sorted, and what the measure is."""
    words = how_many(sum(group.n_words for group in groups), "words")
    decided = any(group.decides > 0 for group in groups)
    with_classes = any(group.classes for group in groups)
    whole = f"{how_many(len(groups), 'groups')} of {words}"
    sorted_by = "those that decide most" if decided else "the most frequent"
    whole += f", {sorted_by} first"
    if len(shown) < len(groups):
        whole += f"; after {len(shown)} of them, the others are only listed"
    if not decided:
        return [(f"{whole}.",)]
    what = (
        "What a group decides is measured by how far it moves scores: the standard deviation, over items, of its "
        "contribution to the score of a class, for the class where that is largest."
        if with_classes
        else "Without classes, what a group decides is how far it tells items apart: the standard deviation of its "
        "feature over items."
    )
    return [(f"{whole}.",), (what,)]


def about_examples(examples: Sequence[Example]) -> Sentence:
    """Say what the parts of the scores are."""
    if not any(example.score is not None for example in examples):
        return ("Items, and the groups that contribute most to the score of the predicted class.",)
    return (
        "The score of a class is its intercept plus the contributions of all groups; the class with the highest score "
        "is predicted. Each list adds up to its score.",
    )


def about_timings(timings: Mapping[str, float]) -> Sentence:
    """Give the total time and the slowest step."""
    total = seconds(sum(timings.values()))
    step, longest = max(timings.items(), key=lambda timing: timing[1])
    if len(timings) == 1:
        return (Name(step), f" took {total}.")
    return (f"{len(timings)} steps took {total} in total; the slowest was ", Name(step), f" ({seconds(longest)}).")


def about_comparison(comparison: Comparison) -> list[Sentence]:
    """Give the best criteria at the smallest and the largest size, and the fastest and slowest criterion.

    With references, give the lowest error of merging and that of the references instead.
    """
    sentences: list[Sentence] = []
    kinds = [[result for result in comparison.criteria if result.reference == kind] for kind in (False, True)]
    if all(kinds):
        for results, who in zip(kinds, ("merging", "the references"), strict=True):
            lowest, position, name = min(
                (error, position, result.name) for result in results for position, error in enumerate(result.errors)
            )
            features = how_many(comparison.sizes[position], "groups" if who == "merging" else "features")
            where = "" if name.startswith("all words") else f" with {features}"
            sentences.append((f"The lowest error of {who} is {percent(lowest)}, by ", Name(name), f"{where}."))
        return sentences
    for position, size in {0: comparison.sizes[0], len(comparison.sizes) - 1: comparison.sizes[-1]}.items():
        lowest = min(result.errors[position] for result in comparison.criteria)
        best = [Name(result.name) for result in comparison.criteria if result.errors[position] == lowest]
        have = "has" if len(best) == 1 else "have"
        sentences.append(
            (f"With {how_many(size, 'groups')}, ", *_listed(best), f" {have} the lowest error, {percent(lowest)}.")
        )
    fastest, slowest = (choose(comparison.criteria, key=lambda result: result.seconds) for choose in (min, max))
    if fastest.seconds < slowest.seconds:
        times = f" was fastest ({seconds(fastest.seconds)}), ", f" slowest ({seconds(slowest.seconds)})."
        sentences.append((Name(fastest.name), times[0], Name(slowest.name), times[1]))
    return sentences


def _listed(names: Sequence[Name]) -> Sentence:
    """Join names by commas and "and"."""
    parts: list[str | Name] = [names[0]]
    for i, name in enumerate(names[1:], start=2):
        parts += [" and " if i == len(names) else ", ", name]
    return tuple(parts)
