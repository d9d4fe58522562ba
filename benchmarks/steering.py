"""Edits in the explorer: seconds until an edit is made, cross-validated and saved, for each kind of edit.

    python benchmarks/steering.py [--quick] [--items N] [--words D] [--groups K] [--criterion NAME] [--noise]

Fits a model to random counts (Zipf's law, 20 classes with words of their own), indexes the items, and edits the model
as the page Steer does. The first edit reads the words of the items from the index; it is a row of its own. ``--noise``
asks instead how far the error of such counts can be trusted: of fits whose C differs by at most 1 %, it prints that of
cross-validation beside that of the models of the folds on 20,000 new items.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from harness import machine, print_table, print_targets

N_CLASSES, WORDS_PER_ITEM, OWN = 20, 100, 0.15
GOAL = 2.0  # seconds for an edit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=5000)
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--criterion", default="classifier")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--noise", action="store_true", help="print errors of cross-validation and of new items")
    parser.add_argument("--quick", action="store_true", help="500 items of 1,000 words")
    given = parser.parse_args()
    if given.quick:
        given.items, given.words, given.repeats = 500, 1000, 2
    print(json.dumps(machine()))
    if given.noise:
        print_table(errors(given), {"C": "C", "held_out": "cross-validation", "new": "new items"})
        return
    with tempfile.TemporaryDirectory() as folder:
        path = make_index(Path(folder), given)
        size = f"{given.items:,} items, {given.words:,} words, {given.groups} groups by {given.criterion}"
        print(f"\n{size}, index of {path.stat().st_size / 1e6:.0f} MB")
        print(f"Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
        rows = measure(path, given.repeats)
    columns = {"kind": "step", "median": "median [s]", "worst": "longest [s]"}
    columns |= {"cpu": "CPU [s]", "error": "error after"}  # CPU: also where others take most of the machine
    print_table(rows, columns)
    slowest = max(row["median"] for row in rows if row["kind"] != FIRST)
    first = next(row["median"] for row in rows if row["kind"] == FIRST)
    print_targets([("slowest kind of edit, seconds", slowest, "<=", GOAL), ("first edit, seconds", first, "<=", GOAL)])


FIRST = "the first edit, a join, and opening the page"


def random_items(n: int, d: int, seed: int) -> Any:
    """Return items with random counts of d words."""
    from bagwise.sources import Collection

    random = np.random.default_rng(seed)
    codes = np.arange(n) % N_CLASSES
    chances = 1 / np.arange(10, d + 10)
    words = random.choice(d, (n, WORDS_PER_ITEM), p=chances / chances.sum())
    own = random.random(words.shape) < OWN
    words[own] = (random.integers(d // N_CLASSES, size=words.shape) * N_CLASSES + codes[:, np.newaxis])[own]
    starts = np.arange(0, words.size + 1, WORDS_PER_ITEM)
    X = sp.csr_array((np.ones(words.size), words.ravel().astype(np.int32), starts.astype(np.int32)), shape=(n, d))
    X.sum_duplicates()
    labels = [(f"class{code:02}",) for code in codes]
    names = [f"word{k}" for k in range(d)]
    return Collection.from_matrix(X, [f"item{k}" for k in range(n)], labels, feature_names=names)


def errors(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return errors of fits with nearly the same C."""
    from bagwise.app import FitOptions, run_fit
    from bagwise.app.training.folds import fold_model

    rows, new = random_items(given.items, given.words, 0), random_items(20_000, given.words, 7)
    listed, n = [], given.groups
    for C in (1.0, 0.999, 1.001, 1.003, 1.01):
        fit = run_fit(rows, FitOptions(n_groups=n, criterion=given.criterion, C=C))
        path, codes, wrong = fit.model.path, new.codes_in(fit.model.classes), []
        for learned in (fold.learned for fold in fit.folds):
            model = fold_model(fit.model, learned.hierarchy, n, learned.heads[n])
            wrong.append(np.mean(model.head.scores(model.group(new.X)).argmax(axis=1) != codes))
        k = path.sizes.index(n)
        held_out = f"{100 * path.errors[k]:.2f} ± {100 * path.standard_errors[k]:.2f} %"
        listed.append({"C": f"{C:g}", "held_out": held_out, "new": f"{100 * np.mean(wrong):.2f} %"})
    return listed


def make_index(folder: Path, given: argparse.Namespace) -> Path:
    """Fit a model, and index its items."""
    from bagwise.app import FitOptions, run_fit
    from bagwise.app.index.item_index import index_of_fit

    rows = random_items(given.items, given.words, 0)
    options = FitOptions(n_groups=given.groups, criterion=given.criterion)
    started = time.perf_counter()
    fit = run_fit(rows, options)
    print(f"Fitted in {time.perf_counter() - started:.1f} s")
    return index_of_fit(fit, None, rows, options).save(folder / "steered.index")


def measure(path: Path, repeats: int) -> list[dict[str, Any]]:
    """Time edits of each kind, each of which is undone."""
    from bagwise.app.explorer import open_workspace

    random = np.random.default_rng(1)
    other = open_workspace(shutil.copy(path, path.with_name("other.index")))
    assert other.editor is not None
    other.editor.edit(random_edit(other.model, "join", random), 0)  # compiled code is loaded
    editor = open_workspace(path).editor
    assert editor is not None
    edit = random_edit(editor.space.model, "join", random)
    started, before = time.perf_counter(), time.process_time()
    editor.start()
    editor.edit(edit, 0)
    rows = [row(FIRST, [time.perf_counter() - started], [time.process_time() - before], editor.current.found)]
    editor.undo(editor.space.revision)
    for kind in ("rename", "lock", "split", "join", "move", "move to a new group", "must_link", "cannot_link"):
        times, processor = [], []
        for repeat in range(repeats + 1):
            edit = random_edit(editor.space.model, kind, random)
            started, before = time.perf_counter(), time.process_time()
            editor.edit(edit, editor.space.revision)
            times.append(time.perf_counter() - started)
            processor.append(time.process_time() - before)
            found = editor.current.found
            editor.undo(editor.space.revision)
            if not repeat:
                times.clear()  # compiled code was loaded
                processor.clear()
        rows.append(row(kind, times, processor, found))
    return rows


def row(kind: str, times: list[float], processor: list[float], found: Any) -> dict[str, Any]:
    error = "" if found is None else f"{100 * found.error:.1f} %"
    median, cpu = float(np.median(times)), float(np.median(processor))
    return {"kind": kind, "median": median, "worst": max(times), "cpu": cpu, "error": error}


def random_edit(model: Any, kind: str, random: np.random.Generator) -> dict[str, Any]:
    """Return an edit of some group that has more than one word."""
    n, sizes = model.n_groups, np.bincount(model.lookup)
    group, other = random.permutation(np.flatnonzero(sizes > 3))[:2].tolist()
    words = random.permutation(np.flatnonzero(model.lookup == group))[:2].tolist()
    apart = [words[0], int(np.flatnonzero(model.lookup == other)[0])]
    edit: dict[str, Any] = {
        "rename": {"group": group, "name": "name"},
        "lock": {"group": group},
        "split": {"group": group},
        "join": {"groups": [group, other]},
        "move": {"words": words, "to": other},
        "move to a new group": {"words": words, "to": None},
        "must_link": {"words": apart},
        "cannot_link": {"words": words},
    }[kind]
    return {"edit": kind.split()[0], "n_groups": n} | edit


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
