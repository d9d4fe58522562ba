"""Merging without labels on Scene-15: what 5-NN makes of the merged words, for pairs of classes and for all 15."""

from __future__ import annotations

from typing import Any

from experiments.merging_claims import ahead, mostly
from experiments.merging_errors import Errors, claims, measured
from experiments.merging_scene15 import N_CLASSES, pairs, prepare, task_of, words_of
from experiments.pages import Claim, Section
from experiments.running import Cell, Options, Results

__all__ = ["DATA", "PAPER", "TITLE", "cells", "prepare", "sections"]

PAPER = "GE17"
TITLE = "merging without labels on Scene-15"
DATA = ("scene15",)

METHODS = ("all", "lpp", "mmi", "linkage", "bsc", "pka", "pca", "kmeans")
CLASSIFIERS = ("neighbors",)
SMALL = (2, 5, 10, 20, 50, 100, 200, 500)


def cells(options: Options) -> list[Cell]:
    tasks = {f"pairs/{a:02d}-{b:02d}": (a, b) for a, b in pairs()[: options.repeats or (2 if options.quick else None)]}
    tasks["together/all"] = tuple(range(N_CLASSES))
    return [Cell(f"{name}/words", measure, {"options": options, "classes": classes}) for name, classes in tasks.items()]


def measure(options: Options, classes: tuple[int, ...]) -> dict[str, Any]:
    """Errors of all methods on some classes."""
    return measured(task_of(words_of(options), classes), METHODS, classifiers=CLASSIFIERS)


def sections(results: Results) -> list[Section]:
    found = []
    pairwise, together = Errors(results, "pairs/"), Errors(results, "together/")
    if pairwise.methods:
        n = len(pairwise.values("lpp", "neighbors", 20))
        text = f"""
{n} pairs of the 15 classes, 100 + 100 training images (the paper: Caltech-256 against clutter, 30 + 30). Merging sees
no label; 5-NN on the merged words tells whether classes stay together. Features are Hellinger-normalised; LPP (5
neighbours), linkage, BSC and PKA (10 neighbours) look at these, MMI at counts."""
        found.append(_section("Without labels, pairs of Scene-15", text, pairwise, _claims(pairwise)))
    if together.methods:
        text = "All 15 classes at once, 1500 training images and 2985 for test, one draw."
        found.append(_section("Without labels, 15 scenes at once", text, together, []))
    return found


def _section(title: str, text: str, errors: Errors, made: list[Claim]) -> Section:
    how = {"neighbors": "5-NN"}
    return Section(title, text, made, errors.tables(title, how, METHODS), errors.plots(title, how, METHODS))


def _claims(errors: Errors) -> list[Claim]:
    return claims(
        mostly(errors, "LPP has a lower error than MMI and linkage in most of the merging, and until the end",
               "lpp", ("mmi", "linkage"), "neighbors", SMALL),
        *(ahead(errors, "lpp", other, "neighbors", SMALL) for other in ("mmi", "linkage", "bsc", "pka")),
        ahead(errors, "pka", "bsc", "neighbors", SMALL),
    )  # fmt: skip
