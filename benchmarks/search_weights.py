r"""Search without a classifier: words, groups, and both at several weights.

    python benchmarks/search_weights.py --data DIR                  # or BAGWISE_DATA=DIR
    python benchmarks/search_weights.py --data DIR --only corel1k
    python benchmarks/search_weights.py --data DIR --groups 100

Models are those of ``fit_model`` without labels. Each item is a query against all others of its part; items of its
class are relevant; labels are used for figures only. Figures are precision at 10 and mean average precision, for words
alone (weight 1), groups alone (0), and weights of words in `GroupBlend` between them. The default of `GroupBlend` has
the largest sum of both, in the mean of the parts called "chosen by": of the training parts of six newsgroups and of
seven kinds of reviews, and half of Corel-1k. The other parts, of other items, and the other data sets are a check, with
words and groups of their own.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import Model, open_collection
from bagwise.app import FitOptions, ItemIndex, run_fit
from bagwise.retrieval.blends import GroupBlend
from bagwise.sources import Collection
from harness import machine, print_table
from main_job_data import Items, data_sets, write_split

WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
MOST = 1800  # items of a part
CHOSEN_BY = ("six_newsgroups", "amazon7_domains", "corel1k")
CHECKED_ON = ("scene15", "caltech101_4", "digits", "reuters_topics")
N_TOPICS = 10  # the largest of Reuters


@dataclass(frozen=True)
class Part:
    """Items of a data set that are searched among each other."""

    data: str
    role: str
    modality: str
    items: Items


def parts(data: Path, only: list[str]) -> Iterator[Part]:
    """Yield two parts of the data sets that the default was chosen by, and one of each other."""
    for name in [*CHOSEN_BY, *CHECKED_ON]:
        if only and name not in only:
            continue
        modality, items = _read(data, name)
        random = np.random.default_rng(0)
        train = items.train if items.train is not None else random.random(len(items.labels)) < 0.5
        drawn = {"chosen by": random.permutation(np.flatnonzero(train)), "checked": np.flatnonzero(~train)}
        if name in CHECKED_ON:
            drawn = {"checked": np.arange(len(items.labels))}
        for role, rows in drawn.items():
            kept = np.sort(random.permutation(rows)[:MOST])
            yield Part(name, role, modality, items.take(kept))


def _read(data: Path, name: str) -> tuple[str, Items]:
    if name != "reuters_topics":
        task = data_sets()[name][0]
        return task.modality, task.read(data)
    found = open_collection(data / "reuters21578" / "reuters21578.zip", text=["title", "body"], label="topics")
    alone = np.array([item.labels[0] if len(item.labels) == 1 else "" for item in found])
    names, sizes = np.unique(alone[alone != ""], return_counts=True)
    kept = np.flatnonzero(np.isin(alone, names[np.argsort(-sizes, kind="stable")[:N_TOPICS]]))
    texts = [text for _, text in found[kept].load()]
    return "texts", Items(texts, alone[kept])


def searched(part: Part, n_groups: int, criterion: str, folder: Path) -> tuple[Any, Any, Model]:
    """Fit a model without labels; return unit vectors of words and of groups of the items, in their order."""
    hidden = Items(part.items.contents, np.full(len(part.items.labels), "x"))
    options = FitOptions(n_groups=n_groups, criterion=criterion, folds=0)
    if part.modality == "table":
        options = options.with_changes(n_groups=min(n_groups, part.items.contents.shape[1] // 4))
        ids = [str(row) for row in range(len(hidden.labels))]
        source: Any = Collection.from_matrix(part.items.contents, ids, [()] * len(ids))
    else:
        source = open_collection(write_split(hidden, np.ones(len(hidden.labels), np.bool_), part.modality, folder))
    fit = run_fit(source, options)
    index = ItemIndex.build(fit.model, fit.data.collection, fit.data.histograms)
    words, groups = index.blended_parts(fit.data.histograms)
    assert isinstance(index.blend, GroupBlend)
    return words, groups, fit.model


def precisions(similarity: NDArray[np.float64], labels: NDArray[np.str_]) -> tuple[float, float]:
    """Return precision at 10 and mean average precision, each item against all others; items alone are left out."""
    first, averages = [], []
    for row in range(len(labels)):
        scores = similarity[row].copy()
        scores[row] = -np.inf
        relevant = (labels == labels[row])[np.argsort(-scores, kind="stable")[:-1]]
        if relevant.any():
            first.append(relevant[:10].mean())
            averages.append((np.cumsum(relevant) / np.arange(1, len(relevant) + 1))[relevant].mean())
    return float(np.mean(first)), float(np.mean(averages))


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"))
    parser.add_argument("--only", nargs="*", default=[], choices=[*CHOSEN_BY, *CHECKED_ON])
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--criterion", default="auto")
    given = parser.parse_args()
    if given.data is None:
        parser.error("give the folder of the data sets by --data, or by BAGWISE_DATA")
    print(machine())
    sums: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for part in parts(given.data, given.only):
        with tempfile.TemporaryDirectory() as folder:
            words, groups, model = searched(part, given.groups, given.criterion, Path(folder))
        by_words, by_groups = (_products(one) for one in (words, groups))
        rows = []
        for weight in WEIGHTS:
            found = precisions(weight * by_words + (1 - weight) * by_groups, part.items.labels)
            sums.setdefault((part.role, weight), []).append(found)
            rows.append({"weight": weight, "P@10": found[0], "mAP": found[1]})
        n, criterion = len(part.items.labels), model.hierarchy.criterion
        print(f"\n{part.data}, {part.role}: {n:,} items, {model.hierarchy.n_words:,} words, {criterion}", flush=True)
        print_table(rows, {"weight": "weight of words", "P@10": "P@10", "mAP": "mAP"})
    for role in dict.fromkeys(role for role, _ in sums):
        print(f"Mean over parts, {role} (the default is {GroupBlend().word_weight}):")
        means = [(weight, np.mean(found, axis=0)) for (of, weight), found in sums.items() if of == role]
        rows = [{"weight": weight, "P@10": float(mean[0]), "mAP": float(mean[1])} for weight, mean in means]
        print_table(rows, {"weight": "weight of words", "P@10": "P@10", "mAP": "mAP"})


def _products(rows: Any) -> NDArray[np.float64]:
    found = rows @ rows.T
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found, np.float64)


if __name__ == "__main__":
    main()
