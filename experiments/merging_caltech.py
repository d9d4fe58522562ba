"""Two pairs of Caltech-101 classes: as in 2008, and with every method, along 1000 to 2 words."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from experiments import sets
from experiments.classifying import CLASSIFIERS
from experiments.differences import always
from experiments.merging_claims import ahead, fewer_do, lowest, rise_and_fall
from experiments.merging_errors import CRITERIA, LABELS, OTHERS, Errors, claims, measured
from experiments.pages import Claim, Section
from experiments.reducing import Task
from experiments.running import Cell, Options, Results

PAPER = "CSM08"
TITLE = "merging on Caltech-101"
DATA = ("caltech101_4",)

# pair: title, classes, training images; the rest is for test
PAIRS = {
    "motorbikes": ("Motorbikes or airplanes", ("Motorbikes", "airplanes"), 959),
    "faces": ("Faces or background", ("Faces_easy", "BACKGROUND_Google"), 100),
}
# The paper's protocol: counts of words at interest points.
PUBLISHED = ("all_counts", "csm_counts", "uvd_counts", "kmeans_counts")
# Methods whose time goes together make one cell.
GROUPS = {
    "points": PUBLISHED,
    "distances": ("csm", "nda", "mfa", "lde"),
    "local": ("nda_local",),
    "counts": ("aib", "mlt", "ditc", "aib_late", "mlt_late"),
    "others": ("all", "linkage", "mrmr", "kmeans", "pca", "hashing"),
    "topics": ("plsa",),
    "histograms": ("all_histograms", "csm_histograms", "kmeans_histograms", "csm_late"),
    "uvd": ("uvd",),
}
REPEATS = 10
RATIO_IN_QUICK = 0.5
SMALL = (2, 5, 10, 20, 50, 100, 200)
EARLY = 800


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
        sets.caltech(options, classes, points=True)


@lru_cache(maxsize=2)
def words_of(options: Options, pair: str, points: bool = False) -> sets.Words:
    return sets.caltech(options, PAIRS[pair][1], points)


def measure(options: Options, pair: str, split: int, group: str) -> dict[str, Any]:
    """Errors of a group of methods on one random split."""
    return measured(task_of(options, pair, split, points=group == "points"), GROUPS[group])


def task_of(options: Options, pair: str, split: int, points: bool = False) -> Task:
    """A random split, with the same proportions of classes on both sides."""
    words = words_of(options, pair, points)
    n = len(words.y)
    n_train = int(RATIO_IN_QUICK * n) if options.quick else PAIRS[pair][2]
    train, test = train_test_split(np.arange(n), train_size=n_train, stratify=words.y, random_state=split)
    return Task.of(words, train, test, seed=split)


def sections(results: Results) -> list[Section]:
    found = []
    for pair, (title, classes, n_train) in PAIRS.items():
        errors = Errors(results, f"{pair}/")
        if any(method in errors.methods for method in PUBLISHED):
            found.append(_published(errors, pair, title, classes, n_train))
        if any(method not in PUBLISHED for method in errors.methods):
            found.append(_every(errors, pair, title))
    return found


def _published(errors: Errors, pair: str, title: str, classes: tuple[str, str], n_train: int) -> Section:
    text = f"""
{classes[0]} against {classes[1]}, {n_train} images to learn from and the others to test, random splits
({len(errors.values("csm_counts", "linear", 20))}). 1000 words of SIFT at interest points (here differences
of Gaussians, in the paper Harris-affine regions), learned from all images without their labels (in the paper from
the training images of each split). As in the paper, counts are neither divided by their sum nor rooted; merging adds
them up. UVD (PRO in the paper) is taken in its evidence form, a sum over words; its posterior form scores all pairs at
all levels, which took the paper 6164 s a split. Beside a linear SVM, the paper has one with an RBF
kernel, we have the intersection kernel and 5-NN."""
    made = claims(*_motorbikes(errors)) if pair == "motorbikes" else claims(*_faces(errors))
    return Section(
        f"{title}, the paper's three methods",
        text,
        made,
        errors.tables(f"{title}, counts at interest points", CLASSIFIERS, PUBLISHED),
        errors.plots(f"{title}, counts at interest points", CLASSIFIERS, PUBLISHED),
    )


def _motorbikes(errors: Errors) -> list[Claim | None]:
    found = [
        _increase(errors, method, "all_counts", how)
        for how in ("linear", "intersection")
        for method in ("csm_counts", "uvd_counts")
    ]
    for method in ("csm_counts", "uvd_counts"):
        found.append(ahead(errors, method, "kmeans_counts", "linear", SMALL))
    return [*found, _early(errors)]


def _faces(errors: Errors) -> list[Claim | None]:
    return [
        lowest(errors, "CSM has the lowest error of the three (linear SVM, 2 to 200 words)", "csm_counts",
               ("uvd_counts", "kmeans_counts"), "linear", SMALL),
        *(ahead(errors, "csm_counts", other, "linear", SMALL) for other in ("uvd_counts", "kmeans_counts")),
        fewer_do(errors, "csm_counts", "all_counts", "linear", (5, 10, 20, 50)),
        rise_and_fall(errors, "csm_counts", "all_counts", EARLY, 50),
    ]  # fmt: skip


def _every(errors: Errors, pair: str, title: str) -> Section:
    text = """
The same splits with dense SIFT (1000 words, or fewer from the start for k-means), and features as in the paper of 2017:
Hellinger-normalised histograms, summed over merged words. "L1": without square roots; "roots of sums": relative
frequencies are merged first, and square roots taken then. Methods and classifiers as for Scene-15."""
    made = claims(
        _increase(errors, "csm", "all", "linear"),
        _increase(errors, "csm", "all", "intersection"),
        fewer_do(errors, "csm", "all", "linear", (5, 10, 20, 50)),
        fewer_do(errors, "csm_histograms", "all_histograms", "linear", (5, 10, 20, 50)),
        lowest(errors, "CSM has the lowest error of all methods (Hellinger, linear SVM, 2 to 200 words)", "csm",
               ("nda", "nda_local", "mfa", "lde", "aib", "mlt", "uvd", "ditc", "linkage", "mrmr", "plsa", "kmeans",
                "pca", "hashing"), "linear", SMALL),
    )  # fmt: skip
    named = f"{title}, dense SIFT"
    return Section(
        f"{title}, every method",
        text,
        made,
        errors.tables(named, CLASSIFIERS, (*CRITERIA, *OTHERS)),
        [*errors.plots(named, CLASSIFIERS, CRITERIA), *errors.plots(f"{named}, others", CLASSIFIERS, OTHERS)],
    )


def _increase(errors: Errors, method: str, start: str, how: str) -> Claim | None:
    gap = errors.difference((method, how, 20), (start, how, None))
    if gap is None:
        return None
    return Claim(
        f"{LABELS[method]}: from 1000 to 20 words the error rises by less than 1 point ({CLASSIFIERS[how]})",
        gap.less_than(1),
        f"From {errors.text(start, how)} % to {errors.text(method, how, 20)} %: {gap} points.",
    )


def _early(errors: Errors) -> Claim | None:
    gap = errors.difference(("csm_counts", "linear", EARLY), ("uvd_counts", "linear", EARLY))
    late = errors.difference(("csm_counts", "linear", 20), ("uvd_counts", "linear", 20))
    if gap is None or late is None:
        return None
    return Claim(
        "At first CSM is about 1.5 points worse than UVD, later it is comparable (linear SVM)",
        always((gap.above, late.below is not False)),
        f"At {EARLY} words {gap} points, at 20 words {late}.",
    )
