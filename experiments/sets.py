"""Data sets as histograms of words, learned once and kept in files of the cache folder."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise import BagOfFeatures, Bags, open_collection
from bagwise._io.atomic import open_atomically
from bagwise.codebooks import encode_bags, learn_codebook
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.descriptors import DenseSIFT, KeypointSIFT, WordCounts
from bagwise.sources import Collection
from experiments.caching import kept
from experiments.running import Options

__all__ = [
    "NEWSGROUPS",
    "SIZES",
    "TOGETHER",
    "Words",
    "alike_topics",
    "caltech",
    "few",
    "newsgroup_texts",
    "newsgroups",
    "reuters",
    "reuters_texts",
    "scene15",
    "text_pairs",
    "texts",
]

# Sizes of the tables, and of vocabularies learned directly at each (k-means with fewer words).
SIZES = (2, 5, 10, 20, 50, 100, 200, 500)
N_WORDS = 1000
SAMPLED = 100_000
ITERATIONS: dict[str, Any] = {"max_iter": 100, "tol": 1e-5}  # of k-means: to its end
NEWSGROUPS = {
    "Comp": ("comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    "Sci": ("sci.electronics", "sci.med"),
    "Talk": ("talk.politics.guns", "talk.politics.mideast"),
}
TOPICS = ("earn", "acq", "money-fx", "grain", "crude", "trade", "interest", "wheat", "ship", "corn")
N_REUTERS = 3  # pairs of topics
TOGETHER = "Six"  # all three pairs of newsgroups at once
HEADERS = ("newsgroups:", "path:", "xref:")


@dataclass(frozen=True)
class Words:
    """Counts of words.

    Attributes
    ----------
    X : CSR array of shape (n, d), or (n, 21 d) with a pyramid
    y : ndarray of shape (n,)
        Classes as numbers.
    classes : tuple of str
    train : ndarray of bool, shape (n,)
        The fixed training part, where the data set has one; all otherwise.
    fewer : dict
        Counts of vocabularies with fewer words, learned by k-means from the same vectors; empty for texts.
    """

    X: sp.csr_array
    y: NDArray[np.int64]
    classes: tuple[str, ...]
    train: NDArray[np.bool_]
    fewer: dict[int, sp.csr_array]


def scene15(options: Options, pyramid: bool = False) -> Words:
    """Scene-15: dense SIFT, words from the training part; with a pyramid of 21 cells if asked for."""

    def make() -> Words:
        scenes = open_collection(options.data / "scene15" / "scene15.zip")
        if options.quick:
            scenes = few(scenes, 40)
        return _visual(scenes, np.array(scenes.splits) == "train", 21 if pyramid else None, options)

    return _kept(options, f"scene15{'-pyramid' if pyramid else ''}", make)


def caltech(options: Options, pair: Sequence[str], points: bool = False) -> Words:
    """Two classes of Caltech-101; words from all their images, without looking at classes.

    SIFT on a grid, or at interest points.
    """

    def make() -> Words:
        images = open_collection(options.data / "caltech101_4" / "caltech101_4.zip")
        images = images[np.isin(images.labels, list(pair))]
        if options.quick:
            images = few(images, 60)
        return _visual(images, np.ones(len(images), np.bool_), None, options, points)

    return _kept(options, f"caltech-{'points-' if points else ''}{'-'.join(pair)}", make)


def newsgroups(options: Options, pair: str, n_words: int | None = N_WORDS) -> Words:
    """One pair of newsgroups without the lines of the header that name groups; the most frequent words, or all.

    All six at once where the pair is `TOGETHER`.
    """
    groups = tuple(group for two in NEWSGROUPS.values() for group in two) if pair == TOGETHER else NEWSGROUPS[pair]

    def make() -> Words:
        texts, labels, train = newsgroup_texts(options.data, groups)
        return _textual(texts, labels, groups, train, n_words, options)

    return _kept(options, f"newsgroups-{pair}-{n_words}", make)


def newsgroup_texts(
    data: Path, groups: Sequence[str], telling: tuple[str, ...] = HEADERS
) -> tuple[list[str], list[int], list[bool]]:
    """Posts of newsgroups without the lines that begin as one of `telling`, their groups, and whether to train on."""
    texts, labels, train = [], [], []
    with zipfile.ZipFile(data / "newsgroups_3pairs" / "newsgroups_3pairs.zip") as archive:
        for name in sorted(archive.namelist()):
            part, _, rest = name.partition("/")
            group = rest.split("/")[0]
            if group in groups and name.endswith(".txt"):
                lines = archive.read(name).decode("latin-1").splitlines()
                texts.append("\n".join(line for line in lines if not line.lower().startswith(telling)))
                labels.append(groups.index(group))
                train.append(part == "train")
    return texts, labels, train


def reuters(options: Options, pair: Sequence[str], n_words: int | None = N_WORDS) -> Words:
    """Two topics of Reuters-21578 (ModApte): documents that have exactly one of the two."""

    def make() -> Words:
        texts, labels, train = reuters_texts(options, pair)
        return _textual(texts, labels, tuple(pair), train, n_words, options)

    return _kept(options, f"reuters-{'-'.join(pair)}-{n_words}", make)


def reuters_texts(options: Options, pair: Sequence[str]) -> tuple[list[str], list[int], list[bool]]:
    """Documents of the ModApte split with exactly one of two topics, which it is, and whether to train on."""
    texts, labels, train = [], [], []
    for text, topics, in_train in reuters_documents(options.data):
        mine = [topic for topic in pair if topic in topics]
        if len(mine) == 1:
            texts.append(text)
            labels.append(list(pair).index(mine[0]))
            train.append(in_train)
    return texts, labels, train


def texts(options: Options, source: str, pair: Any, n_words: int | None = N_WORDS) -> Words:
    """A pair of newsgroups or of Reuters topics, as `text_pairs` names them."""
    return (newsgroups if source == "newsgroups" else reuters)(options, pair, n_words)


def text_pairs(options: Options) -> list[tuple[str, str, Any]]:
    """Pairs of texts that experiments share: source, name, and what to read."""
    found: list[tuple[str, str, Any]] = [("newsgroups", pair, pair) for pair in NEWSGROUPS]
    return found + [("reuters", "-".join(pair), pair) for pair in alike_topics(options, N_REUTERS)]


def alike_topics(options: Options, n_pairs: int, at_least: int = 200) -> list[tuple[str, str]]:
    """The pairs of the ten largest topics of Reuters-21578 whose documents are most alike.

    Of pairs with at least so many documents that have one topic and not the other, on either side, those with the
    largest cosine between the mean relative frequencies of words (without stop words) of both sides; no topic twice.
    """
    texts, topics, _ = zip(*reuters_documents(options.data), strict=True)
    X = WordCounts(stop_words="english", min_df=3).fit_transform(texts)
    shares = normalize_rows(sp.csr_array(X, dtype=np.float64), "l1")
    has = {topic: np.array([topic in mine for mine in topics]) for topic in TOPICS}
    found = []
    for first, second in combinations(TOPICS, 2):
        sides = has[first] & ~has[second], has[second] & ~has[first]
        if min(side.sum() for side in sides) >= at_least:
            a, b = (np.asarray(shares[np.flatnonzero(side)].mean(axis=0)).ravel() for side in sides)
            found.append((float(a @ b / np.sqrt((a @ a) * (b @ b))), first, second))
    chosen: list[tuple[str, str]] = []
    for _, first, second in sorted(found, reverse=True):
        if not {first, second} & {topic for pair in chosen for topic in pair}:
            chosen.append((first, second))
    return chosen[:n_pairs]


def reuters_documents(data: Path) -> Iterator[tuple[str, list[str], bool]]:
    """Text, topics and whether it is for training, of the documents of the ModApte split."""
    archive = zipfile.ZipFile(data / "reuters21578" / "reuters21578.zip")
    with archive, archive.open("reuters21578.jsonl") as lines:
        for line in io.TextIOWrapper(lines, encoding="utf-8"):
            document = json.loads(line)
            if document["has_topics"] == "YES" and document["lewis"] in ("TRAIN", "TEST"):
                text = f"{document['title']}\n{document['body']}"
                yield text, document["topics"], document["lewis"] == "TRAIN"


def _visual(
    images: Collection, train: NDArray[np.bool_], pyramid: int | None, options: Options, points: bool = False
) -> Words:
    sift = KeypointSIFT(n_jobs=options.jobs) if points else DenseSIFT(n_jobs=options.jobs)
    n_words = 100 if options.quick else N_WORDS
    bags = sift.transform(images)
    model = BagOfFeatures(
        n_words, pyramid=pyramid, sparse_output=True, random_state=0, n_jobs=options.jobs, **ITERATIONS
    )
    chosen = np.flatnonzero(train)
    X = model.fit(bags[chosen]).transform(bags)
    fewer = {}
    if pyramid is None:
        sample = _sample(bags[chosen])
        for size in SIZES:
            if size < n_words:
                words = learn_codebook(sample, size, n_init=3, random_state=0, n_jobs=options.jobs, **ITERATIONS)
                fewer[size] = sp.csr_array(encode_bags(bags, words, n_jobs=options.jobs))
    classes, y = np.unique(images.labels, return_inverse=True)
    return Words(sp.csr_array(X), y.astype(np.int64), tuple(map(str, classes)), train, fewer)


def _sample(bags: Bags) -> NDArray[Any]:
    rows = np.random.default_rng(0).permutation(bags.n_rows)[:SAMPLED]
    return bags.values[np.sort(rows)]


def _textual(
    texts: list[str],
    labels: list[int],
    classes: Sequence[str],
    train: list[bool],
    n_words: int | None,
    options: Options,
) -> Words:
    counter = WordCounts(stop_words="english", min_df=3, max_features=100 if options.quick and n_words else n_words)
    X = sp.csr_array(counter.fit_transform(texts), dtype=np.float32)
    return Words(X, np.array(labels), tuple(classes), np.array(train), {})


def few(collection: Collection, n: int) -> Collection:
    """The first n of each class and part."""
    seen: dict[Any, int] = {}
    chosen = []
    for i, item in enumerate(collection):
        place = (item.label, item.split)
        seen[place] = seen.get(place, 0) + 1
        if seen[place] <= n:
            chosen.append(i)
    return collection[np.array(chosen)]


def _kept(options: Options, name: str, make: Callable[[], Words]) -> Words:
    """Read what was made before, or make it and keep it."""

    def write(path: Path) -> None:
        words = make()
        arrays: dict[str, Any] = {"y": words.y, "classes": np.array(words.classes), "train": words.train}
        for size, X in {0: words.X, **words.fewer}.items():
            arrays |= {f"data{size}": X.data, f"indices{size}": X.indices, f"indptr{size}": X.indptr,
                       f"shape{size}": np.array(X.shape)}  # fmt: skip
        with open_atomically(path) as file:
            np.savez_compressed(file, **arrays)

    with np.load(kept(options, f"{name}.npz", write), allow_pickle=False) as file:
        matrices = {
            int(key[4:]): sp.csr_array((file[key], file[f"indices{key[4:]}"], file[f"indptr{key[4:]}"]),
                                       shape=tuple(file[f"shape{key[4:]}"]))
            for key in file.files if key.startswith("data")
        }  # fmt: skip
        X = matrices.pop(0)
        return Words(X, file["y"], tuple(file["classes"].tolist()), file["train"], matrices)
