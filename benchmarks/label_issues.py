"""Label issues: how many of planted wrong labels are among the first that `label_issues` finds, beside cleanlab.

    python benchmarks/label_issues.py --data DIR [--cleanlab PYTHON] [--seeds N] [--out FILE]

In each collection a part of the labels is replaced by other ones, at random. A model is fitted to them, and items are
ranked by its held-out probabilities: precision at k is that of the first k, with k planted labels. cleanlab gets the
same probabilities, in the Python of ``--cleanlab``, which has it installed: `find_label_issues` (what it does not rank
is taken to be found by chance among the rest) and `get_label_quality_scores`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness import machine, print_table

# Collection, file, and items of each class; of newsgroups and Scene-15 those of the training part.
SETS = {
    "corel1k": ("corel1k/corel1k.zip", 50),
    "scene15": ("scene15/scene15.zip", 40),
    "newsgroups": ("newsgroups_3pairs/newsgroups_3pairs.zip", 150),
}
WRONG = 0.06  # of labels
PEER = """
import sys, numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
given = np.load(sys.argv[1])
labels, p = given["labels"], given["probabilities"]
answers = {f"find_label_issues, {by}": find_label_issues(labels, p, return_indices_ranked_by=by)
           for by in ("self_confidence", "normalized_margin")}
for by in ("self_confidence", "normalized_margin"):
    answers[f"quality scores, {by}"] = np.argsort(get_label_quality_scores(labels, p, method=by), kind="stable")
np.savez(sys.argv[2], **answers)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cleanlab", help="a Python that has cleanlab")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results: list[dict[str, Any]] = []
    for name in SETS:
        for seed in range(given.seeds):
            results.append({"data": name, "seed": seed, **measure(given.data, name, seed, given.cleanlab)})
            print(json.dumps(results[-1]), flush=True)
    methods = list(results[0]["precision"])
    rows = []
    for name in SETS:
        runs = [one for one in results if one["data"] == name]
        means = {method: f"{np.mean([one['precision'][method] for one in runs]):.3f}" for method in methods}
        rows.append({"data": name, "k": runs[0]["n_planted"], **means})
    print_table(rows, {name: name for name in rows[0]})
    if given.out:
        given.out.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")


def measure(data: Path, name: str, seed: int, python: str | None) -> dict[str, Any]:
    from bagwise._utils.arrays import softmax
    from bagwise.app import FitOptions, run_fit
    from bagwise.app.index.item_index import index_of_fit
    from bagwise.app.index.item_scores import score_items
    from bagwise.app.index.label_issues import ISSUE_ORDERS, label_issues

    items, planted = plant(data, name, seed)
    encoding = "latin-1" if items.modality == "texts" else None
    options = FitOptions(encoding=encoding, on_error="skip", random_state=seed)
    index = index_of_fit(run_fit(items, options), None, items, options)
    scored = score_items(index, index.model)
    wrong = np.isin(index.ids, list(planted))
    n_planted = int(wrong.sum())
    rankings = {order: label_issues(scored, order).numbers for order in ISSUE_ORDERS}
    if python is not None:
        rankings |= peers(scored.codes, softmax(scored.sharpness * scored.scores), python)
    assert scored.measured is not None
    return {
        "n_items": len(index),
        "n_planted": n_planted,
        "error": round(scored.measured.error, 4),
        "precision": {method: round(precision(ranked, wrong), 4) for method, ranked in rankings.items()},
    }


def plant(data: Path, name: str, seed: int) -> tuple[Any, set[str]]:
    """Return items of which some have a wrong label, and the ids of these."""
    from bagwise import open_collection

    path, n_each = SETS[name]
    texts = {"encoding": "latin-1"} if name == "newsgroups" else {}
    items = open_collection(data / path, **texts)
    if "train" in items.splits:
        items = items.split("train")[0]
    labels, rng = np.array([str(one) for one in items.labels]), np.random.default_rng(seed)
    classes = sorted(set(labels))
    some = [rng.permutation(np.flatnonzero(labels == label))[:n_each] for label in classes]
    chosen = np.sort(np.concatenate(some))
    items, labels = items[chosen], labels[chosen]
    planted = rng.permutation(len(labels))[: round(WRONG * len(labels))]
    for k in planted:
        labels[k] = rng.choice([label for label in classes if label != labels[k]])
    ids = [str(one) for one in items.ids]
    return items.with_labels(dict(zip(ids, labels.tolist(), strict=True))), {ids[k] for k in planted}


def precision(ranked: Sequence[int], wrong: Any) -> float:
    """Precision at the number of wrong labels; what is not ranked is drawn from the rest."""
    k = int(wrong.sum())
    first = np.asarray(ranked)[:k]
    rest = np.setdiff1d(np.arange(len(wrong)), ranked)
    by_chance = (k - len(first)) * wrong[rest].mean() if len(first) < k and len(rest) else 0.0
    return float((wrong[first].sum() + by_chance) / k)


def peers(codes: Any, probabilities: Any, python: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        given, answers = Path(folder, "given.npz"), Path(folder, "answers.npz")
        np.savez(given, labels=codes, probabilities=probabilities)
        subprocess.run([python, "-c", PEER, str(given), str(answers)], check=True)
        with np.load(answers) as loaded:
            return {f"cleanlab {name}": loaded[name] for name in loaded.files}


if __name__ == "__main__":
    main()
