"""Data sets of ``benchmarks/main_job.py``: tasks, their training and test parts, and the files that all methods read.

A split is one file, as a user would have it: texts are a JSONL file (text, label, split), images an archive of folders
(train/class/name), tables an .npz file (X, y, splits). Whoever fits, fits to this file.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import open_collection
from harness import ROOT

sys.path.insert(0, str(ROOT))
from experiments.running import Options

from experiments import sets, text_tasks

FEW = 40  # items of each class and part in a quick run
MNIST = (200, 100)  # training and test images of each digit


@dataclass(frozen=True)
class Items:
    """What a task is about, in memory.

    Attributes
    ----------
    contents : list of str (texts) or of (name, bytes) (images), or ndarray (tables)
    labels : ndarray of str
    train : ndarray of bool, or None
        The training part that comes with the data.
    folds : ndarray of int, or None
        The folds that come with the data.
    """

    contents: Any
    labels: NDArray[np.str_]
    train: NDArray[np.bool_] | None = None
    folds: NDArray[np.int64] | None = None

    def take(self, rows: NDArray[Any]) -> Items:
        """Keep some items."""
        chosen = self.contents[rows] if isinstance(self.contents, np.ndarray) else [self.contents[i] for i in rows]
        train, folds = (None if one is None else one[rows] for one in (self.train, self.folds))
        return Items(chosen, self.labels[rows], train, folds)


@dataclass(frozen=True)
class Task:
    """A classification task.

    Attributes
    ----------
    name : str
    modality : {"texts", "images", "table"}
    folder : str, or None
        Folder of the data; None: they come with scikit-learn.
    read : callable
        From the folder of data sets to `Items`.
    draw : float, int or None
        Training items of each class that a split draws, a fraction or a number; None: the part, or the folds, that
        come with the data.
    splits : int
        Splits by default.
    """

    name: str
    modality: str
    folder: str | None
    read: Callable[[Path], Items]
    draw: float | int | None = None
    splits: int = 1

    def n_splits(self, asked: int | None, quick: bool) -> int:
        """Number of splits: as many as asked for, where they are drawn or folds; quick runs have at most two."""
        n = asked if asked is not None and self.splits > 1 else self.splits
        return min(n, 2) if quick else n


def training_part(items: Items, task: Task, split: int) -> NDArray[np.bool_]:
    """Which items a split trains on; the same for the same number."""
    if task.draw is None:
        given = items.train if items.folds is None else items.folds != split
        assert given is not None, f"{task.name} has no split of its own"
        return given
    rng = np.random.default_rng(split)
    train = np.zeros(len(items.labels), np.bool_)
    for label in np.unique(items.labels):
        rows = rng.permutation(np.flatnonzero(items.labels == label))
        n = min(task.draw, len(rows) // 2) if isinstance(task.draw, int) else round(task.draw * len(rows))
        train[rows[:n]] = True
    return train


def few(items: Items) -> Items:
    """Keep the first items of each class and part."""
    part = np.zeros(len(items.labels), np.int64) if items.train is None else items.train.astype(np.int64)
    part = part if items.folds is None else items.folds
    places = list(zip(items.labels.tolist(), part.tolist(), strict=True))
    most = FEW if items.folds is None else FEW // 10
    rows = [i for place in sorted(set(places)) for i in [k for k, one in enumerate(places) if one == place][:most]]
    return items.take(np.array(sorted(rows)))


def write_split(items: Items, train: NDArray[np.bool_], modality: str, folder: Path) -> Path:
    """Write the file of a split."""
    parts = np.where(train, "train", "test")
    if modality == "table":
        path = folder / "table.npz"
        np.savez(path, X=items.contents, y=items.labels, splits=parts)
    elif modality == "texts":
        path = folder / "texts.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for text, label, part in zip(items.contents, items.labels.tolist(), parts.tolist(), strict=True):
                file.write(json.dumps({"text": text, "label": label, "split": part}) + "\n")
    else:
        path = folder / "images.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for (name, content), label, part in zip(items.contents, items.labels.tolist(), parts, strict=True):
                archive.writestr(f"{part}/{label}/{name}", content)
    return path


def _newsgroups(data: Path, groups: tuple[str, ...], telling: tuple[str, ...]) -> Items:
    texts, labels, train = sets.newsgroup_texts(data, groups, telling)
    return Items(texts, np.array(groups)[labels], np.array(train))


def _topics(data: Path, place: int) -> Items:
    """Two topics of Reuters that are alike; both sides have the same number of documents."""
    pair, _, texts, y = text_tasks.alike_news(data)[place]
    return Items(texts, np.array(pair)[y])


@cache
def _modapte_pairs(data: Path) -> list[tuple[str, str]]:
    return sets.alike_topics(Options(data, data), sets.N_REUTERS)


def _modapte(data: Path, place: int) -> Items:
    """Two topics of Reuters that are alike, by the ModApte split."""
    pair = _modapte_pairs(data)[place]
    texts, labels, train = sets.reuters_texts(Options(data, data), pair)
    return Items(texts, np.array(pair)[labels], np.array(train))


@cache
def _products(data: Path) -> tuple[list[str], list[str], list[str], list[bool]]:
    """Texts, sentiments, domains, and whether to train on, of the reviews of amazon7."""
    found = open_collection(
        data / "amazon7" / "amazon7.zip", header=False, text="2", label="1"
    )  # "train/books.tsv:12" is an id
    domains = [item.id.split("/")[1].split(".")[0] for item in found]
    texts = [text for _, text in found.load()]
    return texts, list(found.labels), domains, [item.split == "train" for item in found]


def _reviews(data: Path, domain: str) -> Items:
    texts, labels, domains, train = _products(data)
    rows = np.flatnonzero(np.array(domains) == domain)
    return Items(texts, np.array(labels), np.array(train)).take(rows)


def _domains(data: Path) -> Items:
    texts, _, domains, train = _products(data)
    return Items(texts, np.array(domains), np.array(train))


def _blitzer(data: Path, domain: str) -> Items:
    archive = data / "amazon_blitzer4" / "amazon_blitzer4.zip"
    found = open_collection(archive, text=["title", "text"])
    found = found[[item.id.startswith(f"{domain}/") for item in found]]
    found = found.with_labels({id: Path(id.rpartition(":")[0]).stem for id in found.ids})
    return Items([text for _, text in found.load()], found.labels)


def _movies(data: Path) -> Items:
    found = open_collection(data / "rt2k" / "rt2k.zip")
    folds = [int(item.id.split("/")[1][2]) for item in found]  # neg/cv712_24217.txt is of fold 7
    return Items([text for _, text in found.load()], found.labels, folds=np.array(folds))


def _images(data: Path, name: str) -> Items:
    """Images as bytes. Those of a split that is drawn anew are taken from all parts."""
    contents, labels = [], []
    with zipfile.ZipFile(data / name / f"{name}.zip") as archive:
        for member in sorted(archive.namelist()):
            if member.lower().endswith(".jpg"):
                *_, label, _ = member.split("/")
                contents.append((member.replace("/", "_"), archive.read(member)))
                labels.append(label)
    return Items(contents, np.array(labels))


def _digits(data: Path) -> Items:
    """The first images of each digit of both parts of MNIST, as PNG."""
    import cv2

    contents, labels, train = [], [], []
    with np.load(data / "mnist" / "mnist.npz", allow_pickle=False) as file:
        for part, n in zip(("train", "test"), MNIST, strict=True):
            x, y = file[f"x_{part}"], file[f"y_{part}"]
            for row in np.sort(np.concatenate([np.flatnonzero(y == digit)[:n] for digit in range(10)])):
                contents.append((f"{part}{row}.png", cv2.imencode(".png", x[row])[1].tobytes()))
                labels.append(str(y[row]))
                train.append(part == "train")
    return Items(contents, np.array(labels), np.array(train))


def _table(data: Path, name: str) -> Items:
    """A table that comes with scikit-learn."""
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    return Items(np.asarray(found.data, np.float64), np.asarray(found.target_names)[found.target].astype(str))


def data_sets() -> dict[str, list[Task]]:
    """Tasks of each data set, by the name that ``--only`` takes. Tasks of a data set have as many classes."""
    six = tuple(group for pair in sets.NEWSGROUPS.values() for group in pair)
    pairs, all_six = sets.NEWSGROUPS, {"six groups": six}

    def texts(folder: str, read: Callable[..., Items], tasks: dict[str, tuple[Any, ...]], **how: Any) -> list[Task]:
        return [
            Task(name, "texts", folder, lambda data, given=given: read(data, *given), **how)
            for name, given in tasks.items()
        ]

    def news(groups: dict[str, tuple[str, ...]], telling: tuple[str, ...] = sets.HEADERS, **how: Any) -> list[Task]:
        return texts("newsgroups_3pairs", _newsgroups, {name: (of, telling) for name, of in groups.items()}, **how)

    def images(name: str, archive: str, draw: float | int, splits: int) -> list[Task]:
        return [Task(name, "images", archive, partial(_images, name=archive), draw, splits)]

    def table(name: str) -> list[Task]:
        return [Task(name, "table", None, partial(_table, name=name), 0.5, 10)]

    places = {f"pair {k + 1}": (k,) for k in range(sets.N_REUTERS)}
    reviews = {domain: (domain,) for domain in text_tasks.DOMAINS.values()}
    titled = {domain: (domain,) for domain in ("books", "dvd", "electronics", "kitchen")}
    return {
        "newsgroups": news(pairs),
        "newsgroups_raw": news(pairs, ()),
        "newsgroups_drawn": news(pairs, draw=0.6, splits=5),
        "six_newsgroups": news(all_six),
        "six_newsgroups_raw": news(all_six, ()),
        "six_newsgroups_drawn": news(all_six, draw=0.6, splits=5),
        "reuters": texts("reuters21578", _topics, places, draw=0.8, splits=5),
        "reuters_modapte": texts("reuters21578", _modapte, places),
        "amazon7": texts("amazon7", _reviews, reviews, draw=0.8, splits=5),
        "amazon7_domains": texts("amazon7", _domains, {"seven domains": ()}),
        "amazon_blitzer4": texts("amazon_blitzer4", _blitzer, titled, draw=0.8, splits=5),
        "rt2k": texts("rt2k", _movies, {"movie reviews": ()}, splits=5),
        "scene15": images("Scene-15", "scene15", 100, 5),
        "corel1k": images("Corel-1k", "corel1k", 0.5, 5),
        "caltech101_4": images("Caltech-101, 4 classes", "caltech101_4", 0.5, 5),
        "mnist": [Task(f"MNIST, {MNIST[0]} + {MNIST[1]} of each digit", "images", "mnist", _digits)],
        "wine": table("wine"),
        "breast_cancer": table("breast_cancer"),
        "digits": table("digits"),
    }
