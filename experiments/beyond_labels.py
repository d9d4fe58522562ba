"""How many labelled samples does a criterion need? Errors at a few words, for 5 to 100 training samples a class."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from experiments import sets
from experiments.classifying import linear_error
from experiments.merging_errors import LABELS, Errors, claims
from experiments.pages import Claim, Curves, Section, Table
from experiments.reducing import Task, reduced
from experiments.running import Cell, Options, Results

PAPER = "beyond"
TITLE = "how many labels a criterion needs"
DATA = ("newsgroups_3pairs", "scene15")

# Training samples of each class; they take the place of sizes in tables and plots.
LABELLED = (5, 10, 20, 50, 100)
N_WORDS = 20
METHODS = ("all", "csm", "nda", "aib_late", "mlt_late", "ditc", "mrmr", "mmi", "pca")
SUPERVISED = ("csm", "nda", "aib_late", "mlt_late", "ditc", "mrmr")
N_DRAWS = 5
SCENES = (("Coast", "OpenCountry"), ("Bedroom", "LivingRoom"), ("TallBuilding", "InsideCity"))


def cells(options: Options) -> list[Cell]:
    tasks: list[tuple[str, Any]] = [("texts", pair) for pair in sets.NEWSGROUPS]
    tasks += [("scenes", pair) for pair in SCENES]
    if options.quick:
        tasks = tasks[1:2]
    return [
        Cell(f"{source}/{pair if source == 'texts' else '-'.join(pair)}/{draw:02d}/{n}", measure,
             {"options": options, "source": source, "pair": pair, "draw": draw, "n": n})
        for draw in range(options.repeats or (1 if options.quick else N_DRAWS))
        for source, pair in tasks for n in LABELLED
    ]  # fmt: skip


def prepare(options: Options) -> None:
    if not options.quick:
        sets.scene15(options)


@lru_cache(maxsize=2)
def words_of(options: Options, source: str, pair: Any) -> sets.Words:
    return sets.newsgroups(options, pair) if source == "texts" else sets.scene15(options)


def measure(options: Options, source: str, pair: Any, draw: int, n: int) -> dict[str, Any]:
    """Errors of a linear SVM with all methods at one number of labelled samples, the same rows for all of them."""
    words = words_of(options, source, pair)
    classes = range(2) if source == "texts" else [words.classes.index(name) for name in pair]
    rng = np.random.default_rng(draw)
    train, test = [], []
    for label in classes:
        members = rng.permutation(np.flatnonzero(words.y == label))
        train.append(members[:n])
        test.append(members[max(LABELLED) :])  # the same for all n
    task = Task.of(words, np.concatenate(train), np.concatenate(test), seed=draw)
    found: dict[str, Any] = {}
    for method in METHODS:
        for _, Z, Z_test in reduced(task, method, [N_WORDS]):
            found[method] = {"linear": {str(n): round(linear_error(Z, task.y, Z_test, task.y_test), 5)}}
    return found


def sections(results: Results) -> list[Section]:
    found = []
    for source, title in (("texts", "Pairs of newsgroups"), ("scenes", "Pairs of scenes")):
        errors = Errors(results, f"{source}/")
        if not errors.methods:
            continue
        names = sorted({key.split("/")[1] for key, _ in results.items(f"{source}/")})
        text = f"""
{", ".join(names)}. 1000 words, merged to {N_WORDS} with so many labelled samples of each class, from which the linear
SVM is taught as well; up to {N_DRAWS} draws, as far as they are finished.
Criteria and features as for merging on texts and on Scene-15: AIB and MLT with
roots of sums. MMI and PCA see the same samples without labels, all words are not merged."""
        rows = [[LABELS[m], *(errors.text(m, "linear", n) for n in LABELLED)] for m in METHODS if m in errors.methods]
        table = Table(f"{title}: error at {N_WORDS} words, %", ("labelled samples a class", *map(str, LABELLED)), rows)
        series = {}
        for method in errors.methods:
            sizes = errors.sizes(method, "linear")
            series[LABELS[method]] = (sizes, [errors.mean(method, "linear", n) for n in sizes], None)
        plot = Curves(f"{title}, {N_WORDS} words", "labelled samples a class", "test error, %", series)
        found.append(Section(f"Labels: {title[0].lower()}{title[1:]}", text, _claims(errors), [table], [plot]))
    return found


def _claims(errors: Errors) -> list[Claim]:
    return claims(*(_needed(errors, method) for method in SUPERVISED))


def _needed(errors: Errors, method: str) -> Claim | None:
    """From how many labels on a criterion costs at most a point."""
    gaps = {n: gap for n in LABELLED if (gap := errors.difference((method, "linear", n), ("all", "linear", n)))}
    if len(gaps) < len(LABELLED):
        return None
    enough = [n for n in LABELLED if all(gaps[m].less_than(1) for m in LABELLED if m >= n)]
    shown = ", ".join(f"{gap} at {n}" for n, gap in gaps.items())
    return Claim(
        f"{LABELS[method]}: {N_WORDS} words cost at most a point, from some number of labels on",
        True if enough else gaps[max(LABELLED)].less_than(1),
        (f"From {enough[0]} samples a class on. " if enough else "") + f"Points against all words: {shown}.",
    )
