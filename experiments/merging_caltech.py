"""Two pairs of Caltech-101 classes, as in 2008: error of classifiers along 1000 to 2 words, for every method."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from experiments import sets
from experiments.classifying import CLASSIFIERS
from experiments.merging_claims import lowest, rise_and_fall
from experiments.merging_errors import Errors, always, claims, measured
from experiments.pages import Claim, Section
from experiments.reducing import Task
from experiments.running import Cell, Options, Results

PAPER = "CSM08"
TITLE = "merging on Caltech-101"

# pair: title, classes, training images; the rest is for test
PAIRS = {
    "motorbikes": ("Motorbikes or airplanes", ("Motorbikes", "airplanes"), 959),
    "faces": ("Faces or background", ("Faces_easy", "BACKGROUND_Google"), 100),
}
# Methods whose time goes together make one cell.
GROUPS = {
    "distances": ("csm", "nda", "mfa", "lde"),
    "local": ("nda_local",),
    "counts": ("aib", "mlt", "ditc", "aib_late", "mlt_late"),
    "others": ("all", "linkage", "mrmr", "kmeans", "pca", "hashing"),
    "topics": ("plsa",),
    "histograms": ("all_histograms", "csm_histograms", "kmeans_histograms", "csm_late"),
    "uvd": ("uvd", "uvd_histograms"),
}
REPEATS = 10
RATIO_IN_QUICK = 0.5
EARLY = 500


def cells(options: Options) -> list[Cell]:
    repeats = options.repeats or (1 if options.quick else REPEATS)
    return [
        Cell(f"{pair}/{split:02d}/{group}", measure,
             {"options": options, "pair": pair, "split": split, "group": group})
        for split in range(repeats) for pair in PAIRS for group in GROUPS
    ]  # fmt: skip


def prepare(options: Options) -> None:
    for _, classes, _ in PAIRS.values():
        sets.caltech(options, classes)


@lru_cache(maxsize=1)
def words_of(options: Options, pair: str) -> sets.Words:
    return sets.caltech(options, PAIRS[pair][1])


def measure(options: Options, pair: str, split: int, group: str) -> dict[str, Any]:
    """Errors of a group of methods on one random split."""
    return measured(task_of(options, pair, split), GROUPS[group])


def task_of(options: Options, pair: str, split: int) -> Task:
    """A random split, with as many images of each class as the class has its share of all."""
    words = words_of(options, pair)
    n = len(words.y)
    n_train = int(RATIO_IN_QUICK * n) if options.quick else PAIRS[pair][2]
    train, test = train_test_split(np.arange(n), train_size=n_train, stratify=words.y, random_state=split)
    return Task.of(words, train, test, seed=split)


def sections(results: Results) -> list[Section]:
    found = []
    for pair, (title, classes, n_train) in PAIRS.items():
        errors = Errors(results, f"{pair}/")
        if not errors.methods:
            continue
        text = f"""
{classes[0]} against {classes[1]}, {n_train} images to learn from and the others to test, random splits. 1000 words
from dense SIFT (the paper: Harris-affine regions) of all images without their labels (the paper: of the training
images of each split). Features are roots of shares, summed over merged words; "of histograms" is the paper's
protocol, without roots, but with shares in place of counts, since the number of patches is that of pixels here. UVD
(called PRO in the paper) is taken in its evidence form, a sum over words; its posterior form scores all pairs at all
levels, which for 1000 words takes the better part of an hour a split. Intersection SVMs stand for the paper's RBF."""
        tables = [errors.table(f"{title}: {label}", name) for name, label in CLASSIFIERS.items()]
        curves = [errors.curves(f"{title}: {label}", name) for name, label in CLASSIFIERS.items()]
        found.append(Section(title, text, _claims(errors, pair), [t for t in tables if t.rows], curves))
    return found


def _claims(errors: Errors, pair: str) -> list[Claim]:
    if pair == "motorbikes":
        return claims(
            *(_increase(errors, method, start, how) for how in ("linear", "intersection") for method, start in
              (("csm_histograms", "all_histograms"), ("csm", "all"), ("uvd_histograms", "all_histograms"))),
            _early(errors),
            _k_means(errors, "CSM and UVD have lower errors than k-means with as many words (linear SVM, 2 to 200)"),
        )  # fmt: skip
    return claims(
        lowest(
            errors,
            "CSM has the lowest error of the paper's three methods (linear SVM, 2 to 200 words)",
            "csm_histograms", ("uvd_histograms", "kmeans_histograms"), "linear", (2, 5, 10, 20, 50, 100, 200),
        ),
        _comparable(errors, "csm_histograms", "all_histograms", "without roots"),
        _comparable(errors, "csm", "all", "on roots of shares"),
        rise_and_fall(errors, "csm_histograms", "all_histograms", later=50),
    )  # fmt: skip


def _increase(errors: Errors, method: str, start: str, how: str) -> Claim | None:
    gap = errors.difference((method, how, 20), (start, how, None))
    if gap is None:
        return None
    names = {"csm_histograms": "CSM of histograms", "csm": "CSM of roots", "uvd_histograms": "UVD of histograms"}
    return Claim(
        f"{names[method]}: from 1000 to 20 words the error rises by less than 1 point ({CLASSIFIERS[how]})",
        gap.at_most(1),
        f"From {errors.text(start, how)} % to {errors.text(method, how, 20)} %: {gap} points.",
    )


def _early(errors: Errors) -> Claim | None:
    gap = errors.difference(("csm_histograms", "linear", EARLY), ("uvd_histograms", "linear", EARLY))
    late = errors.difference(("csm_histograms", "linear", 20), ("uvd_histograms", "linear", 20))
    if gap is None or late is None:
        return None
    return Claim(
        "At first CSM is about 1.5 points worse than UVD, later it is comparable",
        always((gap.below is False, late.below is not False)),
        f"At {EARLY} words {gap} points, at 20 words {late}.",
    )


def _k_means(errors: Errors, text: str) -> Claim | None:
    sizes = (2, 5, 10, 20, 50, 100, 200)
    gaps = [
        (method, size, gap)
        for method in ("csm_histograms", "uvd_histograms")
        for _, size, gap in errors.rivals(method, ("kmeans_histograms",), "linear", sizes)
    ]
    if not gaps:
        return None
    at = {size: errors.text("kmeans_histograms", "linear", size) for size in (5, 20)}
    csm = {size: errors.text("csm_histograms", "linear", size) for size in (5, 20)}
    return Claim(
        text,
        always(gap.below for _, _, gap in gaps),
        f"At 5 words k-means {at[5]} %, CSM {csm[5]} %; at 20 words {at[20]} % and {csm[20]} %.",
    )


def _comparable(errors: Errors, method: str, start: str, how: str) -> Claim | None:
    sizes = (5, 10, 20, 50)
    gaps = [errors.difference((method, "linear", size), (start, "linear", None)) for size in sizes]
    known = [(size, gap) for size, gap in zip(sizes, gaps, strict=True) if gap is not None]
    if not known:
        return None
    return Claim(
        f"CSM: few words do as well as all, within 1 point (linear SVM, {how}, 5 to 50 words)",
        always(gap.at_most(1) for _, gap in known),
        f"All words {errors.text(start, 'linear')} %; " + ", ".join(f"{size} words {gap}" for size, gap in known) + ".",
    )
