"""Statements of the papers about errors of merging, asked of our figures.

"Lower" means significantly lower by `differences.Difference`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from experiments.classifying import CLASSIFIERS
from experiments.differences import always, difference, paired
from experiments.merging_errors import LABELS, Errors
from experiments.pages import Claim

__all__ = [
    "ahead",
    "better_than_all",
    "few_and_simple",
    "fewer_do",
    "lowest",
    "mostly",
    "pronounced",
    "rise_and_fall",
    "worst",
]


def lowest(
    errors: Errors, text: str, method: str, others: Sequence[str], how: str, sizes: Sequence[int]
) -> Claim | None:
    """A method has the lowest error of all at all sizes."""
    rivals = errors.rivals(method, others, how, sizes)
    if not rivals:
        return None
    answer = always(gap.below for _, _, gap in rivals)
    lower = sorted(((gap.mean, other, size, gap) for other, size, gap in rivals if gap.below is False), reverse=True)
    even = sum(gap.below is None for _, _, gap in rivals)
    if lower:
        shown = "; ".join(f"{LABELS[other]} at {size} words by {gap.mean:.2f} ± {gap.error:.2f}"
                          for _, other, size, gap in lower[:3])  # fmt: skip
        evidence = f"Of {len(rivals)} comparisons {len(lower)} go to another, most of all {shown} points."
    else:
        evidence = f"Of {len(rivals)} comparisons none goes to another; differences that are not significant: {even}."
    return Claim(text, answer, evidence)


def mostly(
    errors: Errors, text: str, method: str, others: Sequence[str], how: str, sizes: Sequence[int]
) -> Claim | None:
    """A method has a lower error than each of some others at most sizes, and is not higher at the smallest."""
    answers, shown = [], []
    for other in others:
        gaps = [gap for _, _, gap in errors.rivals(method, (other,), how, sizes)]
        if not gaps:
            continue
        lower, higher = (sum(gap.below is answer for gap in gaps) for answer in (True, False))
        most = True if lower > len(gaps) / 2 else (False if higher >= len(gaps) / 2 else None)
        answers.append(always((most, gaps[0].below is not False)))
        shown.append(f"{LABELS[other]}: lower at {lower}, higher at {higher} of {len(gaps)} sizes, {gaps[0]} points at "
                     f"{sizes[0]} words")  # fmt: skip
    return Claim(text, always(answers), "; ".join(shown) + ".") if shown else None


def worst(
    errors: Errors, methods: Sequence[str], others: Sequence[str], how: str, sizes: Sequence[int]
) -> Claim | None:
    """Some methods have higher errors than all others."""
    rivals = [rival for method in methods for rival in errors.rivals(method, others, how, sizes)]
    if not rivals:
        return None
    names = " and ".join(LABELS[method] for method in methods)
    means = {method: [errors.mean(method, how, size) for size in sizes] for method in (*methods, *others)}
    shown = ", ".join(f"{LABELS[method]} {np.mean([m for m in line if m is not None]):.1f} %"
                      for method, line in means.items() if any(m is not None for m in line))  # fmt: skip
    return Claim(
        f"{names} give the worst results ({CLASSIFIERS[how]}, {sizes[0]} to {sizes[-1]} words)",
        always(gap.above for _, _, gap in rivals),
        f"Mean errors: {shown}.",
    )


def pronounced(errors: Errors, method: str, others: Sequence[str], how: str, many: int, few: int) -> Claim | None:
    """A method's advantage over others is larger with few words than with many."""
    gaps = {size: errors.mean_lead(method, others, how, size) for size in (many, few)}
    if not all(gaps.values()):
        return None
    grown = paired(gaps[few], gaps[many])
    at = {size: difference(list(lead.values())) for size, lead in gaps.items()}
    names = ", ".join(LABELS[other] for other in others)
    return grown and Claim(
        f"{LABELS[method]} is the further ahead of {names} the fewer words there are ({CLASSIFIERS[how]})",
        always((grown.below, at[few].below)),
        f"Mean difference {at[many]} points at {many} words, {at[few]} at {few}.",
    )


def better_than_all(errors: Errors, method: str, others: Sequence[str], how: str, sizes: Sequence[int]) -> Claim | None:
    """Only one method gets better than all words."""
    found = {}
    for name in (method, *others):
        gaps = [(gap.mean, size, gap) for size in sizes
                if (gap := errors.difference((name, how, size), ("all", how, None))) is not None]  # fmt: skip
        if gaps:
            found[name] = min(gaps)
    if method not in found:
        return None
    lower = [name for name, (_, _, gap) in found.items() if gap.below]
    shown = ", ".join(f"{LABELS[name]} {gap} at {size}" for name, (_, size, gap) in found.items())
    return Claim(
        f"{LABELS[method]} is the only one that gets better than all words ({CLASSIFIERS[how]})",
        lower == [method],
        f"All words {errors.text('all', how)} %. At the best size of each, against all words: {shown}.",
    )


def ahead(errors: Errors, method: str, other: str, how: str, sizes: Sequence[int], published: str = "") -> Claim | None:
    """A method has a lower error than another, in the mean over sizes."""
    gap = errors.mean_difference((method, how), (other, how), sizes)
    if gap is None:
        return None
    each = ", ".join(f"{one} at {size}" for _, size, one in errors.rivals(method, (other,), how, sizes))
    return Claim(
        f"{LABELS[method]} is ahead of {LABELS[other]} ({CLASSIFIERS[how]}{', ' + published if published else ''})",
        gap.below,
        f"Mean over {sizes[0]} to {sizes[-1]} words {gap} points: {each}.",
    )


def few_and_simple(errors: Errors, method: str, size: int) -> Claim | None:
    """5-NN with a few merged words is better than a linear SVM with all."""
    gap = errors.difference((method, "neighbors", size), ("all", "linear", None))
    if gap is None:
        return None
    return Claim(
        f"5-NN with {size} words by {LABELS[method]} is better than a linear SVM with all words",
        gap.below,
        f"{errors.text(method, 'neighbors', size)} % against {errors.text('all', 'linear')} %, {gap} points "
        f"(5-NN with all words: {errors.text('all', 'neighbors')} %).",
    )


def rise_and_fall(errors: Errors, method: str, start: str = "all", early: int = 800, later: int = 100) -> Claim | None:
    """The error goes up at first and comes down later."""
    up = errors.difference((method, "linear", early), (start, "linear", None))
    down = errors.difference((method, "linear", later), (method, "linear", early))
    if up is None or down is None:
        return None
    return Claim(
        f"{LABELS[method]}: the error first goes up, then drops (linear SVM)",
        always((up.above, down.below)),
        f"From all words to {early} {up} points, from {early} to {later} words {down}.",
    )


def fewer_do(errors: Errors, method: str, start: str, how: str, sizes: Sequence[int]) -> Claim | None:
    """Few merged words do as well as all."""
    known = [(size, gap) for size in sizes
             if (gap := errors.difference((method, how, size), (start, how, None))) is not None]  # fmt: skip
    if not known:
        return None
    return Claim(
        f"{LABELS[method]}: {sizes[0]} to {sizes[-1]} words do as well as all, within 1 point ({CLASSIFIERS[how]})",
        always(gap.less_than(1) for _, gap in known),
        f"All words {errors.text(start, how)} %; " + ", ".join(f"{gap} at {size}" for size, gap in known) + ".",
    )
