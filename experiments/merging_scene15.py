"""The 105 pairs of Scene-15 classes: error of classifiers along 1000 to 2 words, for every method."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from experiments import sets
from experiments.classifying import CLASSIFIERS
from experiments.differences import always
from experiments.merging_claims import (
    ahead,
    better_than_all,
    few_and_simple,
    lowest,
    pronounced,
    rise_and_fall,
    worst,
)
from experiments.merging_errors import CRITERIA, LABELS, OTHERS, Errors, claims, measured
from experiments.pages import Claim, Section
from experiments.reducing import Task
from experiments.running import Cell, Options, Results

PAPER = "GE17"
TITLE = "merging on Scene-15"
DATA = ("scene15",)

N_CLASSES = 15
# Methods whose time goes together make one cell.
GROUPS = {
    "distances": ("csm", "nda", "mfa", "lde", "csm_late"),
    "local": ("nda_local",),
    "counts": ("aib", "mlt", "ditc", "aib_late"),
    "others": ("all", "linkage", "mrmr", "kmeans", "pca", "hashing"),
    "topics": ("plsa",),
    "uvd": ("uvd",),
    "margin": ("mme",),
}
N_MARGIN = 10  # pairs for MME, which solves an SVM a level
# What the paper compares with.
RIVALS = ("aib", "mlt", "uvd", "ditc", "linkage", "mrmr", "plsa")
MERGING_RIVALS = ("aib", "mlt", "uvd", "ditc")
SMALL = (2, 5, 10, 20, 50, 100, 200)


def pairs() -> list[tuple[int, int]]:
    """All pairs of classes, in an order that mixes them, so that the first ones stand for all."""
    every = list(combinations(range(N_CLASSES), 2))
    return [every[k] for k in np.random.default_rng(0).permutation(len(every))]


def cells(options: Options) -> list[Cell]:
    chosen = pairs()[: options.repeats or (2 if options.quick else None)]
    found = [
        Cell(f"{pair[0]:02d}-{pair[1]:02d}/{group}", measure, {"options": options, "pair": pair, "group": group})
        for k, pair in enumerate(chosen) for group in GROUPS if group != "margin" or k < N_MARGIN
    ]  # fmt: skip
    return sorted(found, key=lambda cell: cell.arguments["group"] == "margin")  # the slowest come last


def prepare(options: Options) -> None:
    sets.scene15(options)


@lru_cache(maxsize=1)
def words_of(options: Options) -> sets.Words:
    return sets.scene15(options)


def task_of(words: sets.Words, classes: tuple[int, ...]) -> Task:
    """The fixed training and test images of some classes."""
    mine = np.isin(words.y, classes)
    return Task.of(words, np.flatnonzero(mine & words.train), np.flatnonzero(mine & ~words.train))


def measure(options: Options, pair: tuple[int, int], group: str) -> dict[str, Any]:
    """Errors of a group of methods on one pair."""
    return measured(task_of(words_of(options), pair), GROUPS[group])


def sections(results: Results) -> list[Section]:
    errors = Errors(results)
    if not errors.methods:
        return []
    n = max(len(errors.values(method, "linear", 20)) for method in errors.methods)
    n_margin = len(errors.values("mme", "linear", 20))
    text = f"""
Pairs of the 15 classes ({n} of 105), 100 + 100 training images, the rest of the fixed draw for test; 1000 words from
dense SIFT of the training images. Means and standard deviations are over pairs; pairs share classes, so standard
errors of differences (± in the statements) are somewhat too small. As in the paper, features are Hellinger-normalised
(L1, then square root), and merging adds them up; NDA, MFA, LDE, CSM, UVD, MME and linkage look at these, AIB, MLT
and DITC at counts. "Roots
of sums": relative frequencies are merged first, and square roots taken then. The paper's setting for Scene-15 (k =
100, k' = 200) makes NDA the
same as CSM, whose line stands for both; k = k' = 40 is its setting for Caltech-256, and "local k" is chosen from
3, 5, 10, 20, 40 by 5 folds on the training images (linear SVM and 5-NN, at 5, 20 and 100 words). UVD is taken in its
evidence form; its posterior form scores all pairs at all levels. MME solves an SVM a level and was run on {n_margin}
pairs. pLSA has at most 200 topics, PCA at most as many components as there are samples; PCA and hashing have signs, so
that no intersection kernel is defined. C from 0.1, 1, 10, 100 by 5 folds."""
    tables = errors.tables("Scene-15 pairs", CLASSIFIERS, (*CRITERIA, *OTHERS))
    curves = [
        *errors.plots("Scene-15 pairs", CLASSIFIERS, CRITERIA),
        *errors.plots("Scene-15 pairs, others", CLASSIFIERS, OTHERS),
    ]
    return [Section("Scene-15, pairs of classes", text, _claims(errors), tables, curves)]


def _claims(errors: Errors) -> list[Claim]:
    return claims(
        *(lowest(errors, f"CSM (and NDA as published, the same here) has the lowest error of the paper's methods, "
                 f"2 to 200 words ({CLASSIFIERS[how]})", "csm", RIVALS, how, SMALL)
          for how in ("linear", "neighbors")),
        *(_similar(errors, how) for how in ("linear", "neighbors")),
        *(pronounced(errors, "csm", MERGING_RIVALS, how, 200, 5) for how in ("linear", "neighbors")),
        *(worst(errors, ("linkage", "mrmr"), ("csm", "nda", *MERGING_RIVALS), how, (5, 10, 20, 50))
          for how in ("linear", "neighbors")),
        _topics(errors),
        *(lowest(errors, f"On Caltech-256 NDA with k = 40 had the lowest error of all below 700 words; here "
                 f"({CLASSIFIERS[how]})", "nda", ("csm", *RIVALS), how, (*SMALL, 500)) for how in CLASSIFIERS),
        better_than_all(errors, "nda", ("csm", *RIVALS), "linear", (*SMALL, 500)),
        ahead(errors, "nda", "csm", "neighbors", SMALL, "there by 4 points"),
        ahead(errors, "nda", "csm", "linear", SMALL),
        ahead(errors, "nda_local", "nda", "neighbors", SMALL),
        ahead(errors, "nda_local", "nda", "linear", SMALL),
        few_and_simple(errors, "nda", 5),
        rise_and_fall(errors, "csm"),
        rise_and_fall(errors, "nda"),
        _kernels_help(errors),
    )  # fmt: skip


def _similar(errors: Errors, how: str) -> Claim | None:
    gaps = [(size, gap) for _, size, gap in errors.rivals("mme", ("csm",), how, SMALL)]
    if not gaps:
        return None
    return Claim(
        f"MME and CSM are similar, within 1 point at 2 to 200 words ({CLASSIFIERS[how]})",
        always(gap.within(1) for _, gap in gaps),
        f"MME less CSM on {gaps[0][1].n} pairs: " + ", ".join(f"{gap} at {size}" for size, gap in gaps) + ".",
    )


def _topics(errors: Errors) -> Claim | None:
    down = errors.difference(("plsa", "linear", 5), ("plsa", "linear", 50))
    best = errors.difference(("plsa", "linear", 50), ("csm", "linear", 50))
    if down is None or best is None:
        return None
    return Claim(
        "pLSA is competitive with a fitting number of topics, and gets worse quickly with fewer (linear SVM)",
        always((best.less_than(1), down.below is False)),
        f"At 50 topics {best} points against CSM; from 50 to 5 topics {down}.",
    )


def _kernels_help(errors: Errors) -> Claim | None:
    gaps = {
        method: gap for method in ("csm", "nda", *RIVALS)
        if (gap := errors.mean_difference((method, "intersection"), (method, "linear"), SMALL)) is not None
    }  # fmt: skip
    if not gaps:
        return None
    shown = ", ".join(f"{LABELS[method]} {gap}" for method, gap in gaps.items())
    return Claim(
        "With an intersection SVM all methods get slightly better than with a linear one (mean over 2 to 200 words)",
        always(gap.below for gap in gaps.values()),
        f"Points: {shown}.",
    )
