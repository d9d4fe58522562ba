"""Binary tasks on texts: pairs of newsgroups, sentiment of reviews, pairs of news topics that are alike."""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

NEWSGROUPS = {
    "Comp": ("comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    "Sci": ("sci.electronics", "sci.med"),
    "Talk": ("talk.politics.guns", "talk.politics.mideast"),
}
DOMAINS = {
    "Apparel": "apparel",
    "Books": "books",
    "DVD": "dvd",
    "Electronics": "electronics",
    "Kitchen": "kitchen_housewares",
    "Music": "music",
    "Video": "video",
}
N_REUTERS = 3
# Topics of Reuters and sides of a pair have at least this many documents, and sides keep at most so many.
_FEWEST, _MOST = 100, 1000
_TELLING_LINES = re.compile(r"(newsgroups|path|xref):", re.IGNORECASE)
BODY = ", body"  # what the names of tasks without message headers end in


@dataclass(frozen=True)
class Task:
    """Counts of words in documents, and which of two classes each belongs to.

    Columns are all words of all documents; those that a fold may use depend on its training documents.
    """

    name: str
    counts: sp.csr_array
    y: NDArray[np.int64]

    def take(self, rows: NDArray[np.int64]) -> Task:
        """Keep some documents."""
        return Task(self.name, self.counts[rows], self.y[rows])


def task_names() -> list[str]:
    """Names of all tasks; newsgroups with and without their headers."""
    bodies = [name + BODY for name in NEWSGROUPS]
    return [*NEWSGROUPS, *bodies, *DOMAINS, *(f"Reuters {k + 1}" for k in range(N_REUTERS))]


def read_task(name: str, data: Path) -> Task:
    """Read a task. Which topics of Reuters it is of is told on the error stream."""
    if name in DOMAINS:
        # words and pairs of words, as the paper has it; texts come as tokens
        return _counted(name, *_reviews(data, DOMAINS[name]), CountVectorizer(ngram_range=(1, 2), dtype=np.float64))
    if name.startswith("Reuters"):
        topics, cosine, texts, y = alike_news(data)[int(name.split()[1]) - 1]
        print(f"{name}: {topics[0]} or {topics[1]}, cosine of centroids {cosine:.2f}", file=sys.stderr)
        return _counted(name, texts, y, CountVectorizer(dtype=np.float64))
    pair = NEWSGROUPS[name.removesuffix(BODY)]
    texts, y = _messages(data, pair, headers=not name.endswith(BODY))
    return _counted(name, texts, y, CountVectorizer(dtype=np.float64))


def _counted(name: str, texts: list[str], y: list[int], vectorizer: CountVectorizer) -> Task:
    return Task(name, sp.csr_array(vectorizer.fit_transform(texts)), np.array(y))


def _messages(data: Path, pair: tuple[str, str], headers: bool) -> tuple[list[str], list[int]]:
    """Messages of two groups: without the lines that name the group, or without any header."""
    texts, y = [], []
    with zipfile.ZipFile(data / "newsgroups_3pairs" / "newsgroups_3pairs.zip") as archive:
        for member in sorted(archive.namelist()):
            group = member.split("/")[1]
            if not member.endswith(".txt") or group not in pair:
                continue
            head, _, body = archive.read(member).decode("latin-1").partition("\n\n")
            kept = [line for line in head.splitlines() if headers and not _TELLING_LINES.match(line)]
            texts.append("\n".join([*kept, "", body]))
            y.append(pair.index(group))
    return texts, y


def _reviews(data: Path, domain: str) -> tuple[list[str], list[int]]:
    """All reviews of a domain, positive (1) or not (0)."""
    texts, y = [], []
    with zipfile.ZipFile(data / "amazon7" / "amazon7.zip") as archive:
        for part in ("train", "test"):
            with io.TextIOWrapper(archive.open(f"{part}/{domain}.tsv"), encoding="utf-8", newline="\n") as lines:
                for line in lines:
                    label, text = line.split("\t", 1)
                    texts.append(text)
                    y.append(int(label))
    return texts, y


@cache  # choosing takes longer than all else
def alike_news(data: Path) -> list[tuple[tuple[str, str], float, list[str], list[int]]]:
    """The pairs of topics that are most alike, of which none shares a topic with another.

    For each two topics with enough documents, those with exactly one of the two are taken. Where enough are left on
    both sides, the pair's likeness is the cosine of the mean TF-IDF rows of the sides. Pairs are taken by likeness,
    sides cut at random to the same size. (Topics such as wheat and grain mostly come together, so too few are left.)
    """
    with zipfile.ZipFile(data / "reuters21578" / "reuters21578.zip") as archive:
        lines = archive.read("reuters21578.jsonl").decode().splitlines()
    documents = [document for document in map(json.loads, lines) if document["topics"] and document["body"]]
    texts = [f"{document['title']}\n{document['body']}" for document in documents]
    X = sp.csr_array(TfidfVectorizer(min_df=5, sublinear_tf=True).fit_transform(texts))
    sizes = Counter(topic for document in documents for topic in document["topics"])
    topics = sorted(topic for topic, size in sizes.items() if size >= _FEWEST)
    has = {topic: np.array([topic in document["topics"] for document in documents]) for topic in topics}
    found = []
    for pair in combinations(topics, 2):
        sides = [np.flatnonzero(has[a] & ~has[b]) for a, b in (pair, pair[::-1])]
        if min(map(len, sides)) >= _FEWEST:
            centroids = [np.asarray(X[side].mean(axis=0)).ravel() for side in sides]
            cosine = centroids[0] @ centroids[1] / np.prod([np.linalg.norm(one) for one in centroids])
            found.append((float(cosine), pair, sides))
    found.sort(key=lambda one: (-one[0], one[1]))
    chosen, taken = [], set()
    for cosine, pair, sides in found:
        if taken.isdisjoint(pair) and len(chosen) < N_REUTERS:
            taken.update(pair)
            rng = np.random.default_rng(0)
            size = min(*map(len, sides), _MOST)
            rows = [int(row) for side in sides for row in np.sort(rng.permutation(side)[:size])]
            chosen.append((pair, cosine, [texts[row] for row in rows], [0] * size + [1] * size))
    return chosen
