"""Merging words of texts: pairs of newsgroups and of Reuters topics, for every method, against all words as well."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from experiments import sets
from experiments.classifying import CLASSIFIERS
from experiments.merging_claims import ahead, better_than_all, lowest, worst
from experiments.merging_errors import CRITERIA, OTHERS, Errors, claims, measured
from experiments.pages import Claim, Section
from experiments.reducing import Task
from experiments.running import Cell, Options, Results

PAPER = "beyond"
TITLE = "merging words of texts"
DATA = ("newsgroups_3pairs", "reuters21578")

# Methods whose time goes together make one cell.
GROUPS = {
    "distances": ("csm", "nda", "mfa", "lde", "csm_late"),
    "local": ("nda_local",),
    "counts": ("aib", "mlt", "ditc", "aib_late", "mlt_late"),
    "others": ("all", "linkage", "mrmr", "pca", "hashing"),
    "topics": ("plsa",),
    "uvd": ("uvd",),
    "every": ("every",),
}
N_SPLITS = 5
N_TRAIN = 600
SMALL = (2, 5, 10, 20, 50, 100, 200)
RIVALS = ("aib", "mlt", "uvd", "ditc", "linkage", "mrmr", "plsa")


def cells(options: Options) -> list[Cell]:
    tasks = sets.text_pairs(options)
    if options.quick:
        tasks = [tasks[1], tasks[3]]
    return [
        Cell(f"{source}/{name}/{split:02d}/{group}", measure,
             {"options": options, "source": source, "pair": pair, "split": split, "group": group})
        for split in range(options.repeats or (1 if options.quick else N_SPLITS))
        for source, name, pair in tasks for group in GROUPS
    ]  # fmt: skip


@lru_cache(maxsize=2)
def words_of(options: Options, source: str, pair: Any, every: bool) -> sets.Words:
    return sets.texts(options, source, pair, None) if every else sets.texts(options, source, pair)


def measure(options: Options, source: str, pair: Any, split: int, group: str) -> dict[str, Any]:
    """Errors of a group of methods on one random split."""
    words = words_of(options, source, pair, group == "every")
    n = len(words.y)
    n_train = min(200 if options.quick else N_TRAIN, n // 2)
    train, test = train_test_split(np.arange(n), train_size=n_train, stratify=words.y, random_state=split)
    task = Task.of(words, train, test, seed=split, sparse=True)
    if group == "every":
        return {"every": measured(task, ("all",))["all"]}
    return measured(task, GROUPS[group])


def sections(results: Results) -> list[Section]:
    found = []
    for source, title, of in (
        ("newsgroups", "Newsgroups", "Comp, Sci and Talk, without the lines of the header that name groups"),
        ("reuters", "Reuters", "pairs of the ten largest topics of the ModApte split whose documents are most alike"),
    ):
        errors = Errors(results, f"{source}/")
        if not errors.methods:
            continue
        names = sorted({key.split("/")[1] for key, _ in results.items(f"{source}/")})
        rule = ("" if source == "newsgroups" else " Alike: the largest cosine between mean frequencies; at least "
                "200 documents that have one topic and not the other on either side; no topic twice.")  # fmt: skip
        text = f"""
{title}: {of} ({", ".join(names)}).{rule} {N_TRAIN} documents to learn from, or half if there are fewer, and the others
to test; {N_SPLITS} random splits of each pair, over which means and standard deviations are taken together. "All words"
are the 1000 most frequent without stop words, from which merging starts; "every word" are those in at least 3
documents. Features, criteria and classifiers as for Scene-15. MME is left out for its time."""
        tables = errors.tables(title, CLASSIFIERS, (*CRITERIA, *OTHERS))
        curves = [
            *errors.plots(title, CLASSIFIERS, CRITERIA),
            *errors.plots(f"{title}, others", CLASSIFIERS, OTHERS),
        ]
        found.append(Section(f"Text: {title}", text, _claims(errors), tables, curves))
    return found


def _claims(errors: Errors) -> list[Claim]:
    return claims(
        *(lowest(errors, f"As stated for images: CSM has the lowest error, 2 to 200 words ({CLASSIFIERS[how]})",
                 "csm", RIVALS, how, SMALL) for how in ("linear", "neighbors")),
        better_than_all(errors, "nda", ("csm", *RIVALS), "linear", (*SMALL, 500)),
        ahead(errors, "nda", "csm", "linear", SMALL),
        ahead(errors, "nda_local", "nda", "linear", SMALL),
        ahead(errors, "aib_late", "aib", "linear", SMALL),
        ahead(errors, "mlt_late", "csm", "linear", SMALL),
        ahead(errors, "aib_late", "mrmr", "linear", SMALL),
        worst(errors, ("linkage", "mrmr"), ("csm", "nda", "aib", "mlt", "ditc"), "linear", (5, 10, 20, 50)),
    )  # fmt: skip
