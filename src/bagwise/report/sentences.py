"""What one sees in the data, in words. Every sentence is made of figures that are in the data, and holds for them."""

from __future__ import annotations

from collections.abc import Sequence

from bagwise.report.confusions import Confused
from bagwise.report.data import ClassCount, Confusion, MergingCurve, WordGroup
from bagwise.report.page_data import Comparison
from bagwise.report.texts import count, percent, plural, seconds, share_of

__all__ = ["Name", "Sentence", "about_classes", "about_comparison", "about_confusion", "about_curve", "about_groups"]
__all__ += ["about_pair", "about_timings"]


class Name(str):
    """A text of the user's inside a sentence; pages set it apart, so that it cannot change the words around it."""

    __slots__ = ()


Sentence = tuple[str | Name, ...]


def about_classes(classes: Sequence[ClassCount]) -> list[Sentence]:
    """Say how many items there were of how many classes."""
    learned = sum(of_class.n_learned for of_class in classes)
    tested = sum(of_class.n_tested or 0 for of_class in classes)
    what = plural(len(classes), "class")
    text = f"Learned from {plural(learned, 'item')} of {what}"
    text += f" and tested on {plural(tested, 'item')}." if tested else "."
    sentences: list[Sentence] = [(text,)]
    few = min(classes, key=lambda of_class: of_class.n_learned)
    many = max(classes, key=lambda of_class: of_class.n_learned)
    if few.n_learned != many.n_learned:
        fewest, most = f", has {count(few.n_learned)} of them, the largest, ", f", {count(many.n_learned)}."
        sentences.append(("The smallest class, ", Name(few.name), fewest, Name(many.name), most))
    return sentences


def about_curve(curve: MergingCurve) -> list[Sentence]:
    """Say what merging costs: the choice of one standard error, the model's own size, the lowest error."""
    best, lowest = curve.best, curve.error_at(curve.best)
    if best is None or lowest is None:
        return []
    sentences = [_about_one_se(curve, best, lowest)]
    if curve.chosen is not None and curve.chosen not in (curve.one_se, best):
        error = curve.error_at(curve.chosen)
        told = "at this size the error was not measured" if error is None else f"its error is {percent(error)}"
        sentences.append((f"The model has {plural(curve.chosen, 'word')}; {told}.",))
    ends = {"the fewest": 0, "the most": len(curve.sizes) - 1}
    for which, place in ends.items():
        size, error = curve.sizes[place], curve.errors[place]
        if size not in (best, curve.one_se, curve.chosen):
            sentences.append((f"With {plural(size, 'word')}, {which} that were tried, the error is {percent(error)}.",))
    return sentences


def _about_one_se(curve: MergingCurve, best: int, lowest: float) -> Sentence:
    size, spread = curve.one_se, curve.standard_error_at(best)
    error = curve.error_at(size)
    if size is not None and size != best and error is not None and spread is not None and error <= lowest + spread:
        kept = "keeps" if size == 1 else "keep"
        return (
            f"{plural(size, 'word')} {kept} the error within one standard error of {plural(best, 'word')}: "
            f"{percent(error)} against {percent(lowest)}.",
        )
    more = "" if spread is None else f", with a standard error of {percent(spread)}"
    return (f"The error is lowest with {plural(best, 'word')}: {percent(lowest)}{more}.",)


def about_confusion(confusion: Confusion) -> Sentence:
    """Say how many answers were wrong."""
    wrong, items = confusion.n_wrong, confusion.n_items
    if items == 0:
        return ("Nothing was tested.",)
    if wrong == 0:
        return (f"All {plural(items, 'answer')} were right." if items > 1 else "The one answer was right.",)
    return (f"{count(wrong)} of {plural(items, 'answer')} {_were(wrong)} wrong: {share_of(wrong, items)}.",)


def about_pair(pair: Confused) -> Sentence:
    """Say that a class was taken for another."""
    of_class = f" in {count(pair.times)} of {plural(pair.of, 'case')}, {share_of(pair.times, pair.of)}."
    return (Name(pair.true), " was taken for ", Name(pair.answer), of_class)


def about_groups(shown: Sequence[WordGroup], groups: Sequence[WordGroup]) -> Sentence:
    """Say how much of the data the groups that are shown hold."""
    held = min(1.0, sum(group.share for group in shown))
    words = plural(sum(group.n_words for group in shown), "word")
    which = plural(len(groups), "group")
    if len(shown) < len(groups):
        which = f"The {len(shown)} largest of {which}"
    return (f"{which}: {words}, {percent(held)} of all occurrences.",)


def about_timings(timings: Sequence[tuple[str, float]]) -> Sentence:
    """Say how long the steps took together, and which took longest."""
    total = seconds(sum(time for _, time in timings))
    if len(timings) == 1:
        return (Name(timings[0][0]), f" took {total}.")
    step, longest = max(timings, key=lambda timing: timing[1])
    return (f"{len(timings)} steps took {total} together, the longest, ", Name(step), f", {seconds(longest)}.")


def about_comparison(comparison: Comparison) -> list[Sentence]:
    """Say which criterion has the lowest error at the smallest and the largest size, and which was fastest."""
    sentences: list[Sentence] = []
    for place, size in {0: comparison.sizes[0], len(comparison.sizes) - 1: comparison.sizes[-1]}.items():
        lowest = min(result.errors[place] for result in comparison.criteria)
        first = [Name(result.name) for result in comparison.criteria if result.errors[place] == lowest]
        have = "has" if len(first) == 1 else "have"
        sentences.append(
            (f"With {plural(size, 'word')}, ", *_listed(first), f" {have} the lowest error, {percent(lowest)}.")
        )
    if len(comparison.criteria) > 1:
        fastest = min(comparison.criteria, key=lambda result: result.seconds)
        slowest = max(comparison.criteria, key=lambda result: result.seconds)
        times = f" took {seconds(fastest.seconds)}, ", f" {seconds(slowest.seconds)}."
        if fastest.seconds < slowest.seconds:
            sentences.append((Name(fastest.name), times[0], Name(slowest.name), times[1]))
    return sentences


def _listed(names: Sequence[Name]) -> Sentence:
    """Join names with commas and an and."""
    parts: list[str | Name] = [names[0]]
    for i, name in enumerate(names[1:], start=2):
        parts += [" and " if i == len(names) else ", ", name]
    return tuple(parts)


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
