r"""Collections without classes: clusters and search by groups of words, against what people would write instead.

    python benchmarks/unlabelled.py --data DIR                       # or BAGWISE_DATA=DIR; about an hour on 2 cores
    python benchmarks/unlabelled.py --data DIR --only corel1k wine   # some collections; `--list` names them
    python benchmarks/unlabelled.py --data DIR --json FOLDER         # a file per collection; what is there is kept
    python benchmarks/unlabelled.py --json FOLDER --page docs/results/unlabelled.md

Labels judge, and nothing else: the files that are fitted have none. Their number is given to all methods.

- Ours is ``fit_model(file)`` with nothing set: 50 groups. Features are those of the model, `Model.group`. "mmi" is the
  same with that criterion (and 3000 words of texts). SIFT words are ``descriptor="sift+color"``.
- Texts: the same words for all, ``\w\w+`` in lower case, the 20,000 most frequent, but for LDA, which leaves out
  English stop words. SVD of 50 and NMF begin with
  sublinear TF-IDF; NMF and LDA have a topic for each class, and are clustered as all others are. The sentence network
  is all-MiniLM-L6-v2, where ``sentence-transformers`` and its file are installed.
- Images: the average of the network of our default over each image, standardised; roots of relative frequencies of 1000
  SIFT words by OpenCV and MiniBatchKMeans. Tables: standardised columns, and PCA of them.
- Clusters are by k-means of rows of length 1, ten starts ("spectral": by `SpectralClusterer` of the same features).
  NMI and ARI are means of three seeds, with the range of NMI.
  mAP and P@10 (precision of the ten nearest) are by cosine, of at most 500 items drawn as queries, against all others.
- Every method runs in a process of its own: seconds of CPU time from the file to clusters by one seed, and the peak
  of the process's resident memory. "learning" is CPU time of what comes after counting words: weights, projection or
  groups, and clusters.
- "18,846 texts" are the posts of six newsgroups and reviews of products, for time and memory: as many as the posts of
  20 newsgroups, of which only six are there.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness import in_fresh_process, machine, peak_memory, print_table, print_targets

K_SEEDS, QUERIES, N_GROUPS, N_DIRECTIONS = 3, 500, 50, 50
TEXT_WORDS, SIFT_WORDS, STEP, SAMPLED = 20_000, 1000, 8, 100_000
N_TIMED = 18_846
OURS, MMI, SPECTRAL = "bagwise", "bagwise, mmi", "bagwise, spectral"
SIFT_OURS, SIFT_MMI = "bagwise, SIFT words", "bagwise, SIFT words, mmi"
SVD, TFIDF, NMF, LDA = "TF-IDF + SVD", "TF-IDF", "NMF", "LDA"
SENTENCES, POOLED, SIFT = "sentence network", "pooled network features", "SIFT words"
SCALED, PCA = "standardised columns", "standardised columns + PCA"
KEPT = Path(__file__).resolve().parent / "results" / "unlabelled"
Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A collection: how it is called in tables, its kind, and how its items and their classes are read."""

    title: str
    modality: str
    read: Callable[[Path], tuple[Any, Any]]
    judged: bool = True  # whether it counts in means
    of_time: bool = False  # whether it is for time and memory alone


@dataclass
class Results:
    """Rows by method, and the machines that they are from."""

    name: str
    cells: dict[str, list[Row]] = field(default_factory=dict)
    machines: list[dict[str, Any]] = field(default_factory=list)
    n_items: int = 0
    n_classes: int = 0

    def row(self, method: str) -> Row | None:
        """Return what was measured of a method."""
        return next((row for rows in self.cells.values() for row in rows if row["method"] == method), None)

    def write(self, folder: Path) -> None:
        """Keep what was measured."""
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{self.name}.part"
        part.write_text(json.dumps(self.__dict__, indent=1), encoding="utf-8")
        part.replace(folder / f"{self.name}.json")

    @classmethod
    def read(cls, folder: Path | None, name: str) -> Results:
        """Read what was kept, if anything was."""
        path = None if folder is None else folder / f"{name}.json"
        if path is None or not path.exists():
            return cls(name)
        return cls(**json.loads(path.read_text(encoding="utf-8")))


# Collections


def _bodies(data: Path, groups: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Bodies of posts, without headers."""
    texts, labels = [], []
    with zipfile.ZipFile(data / "newsgroups_3pairs" / "newsgroups_3pairs.zip") as archive:
        for name in sorted(archive.namelist()):
            group = name.split("/")[1] if name.endswith(".txt") else ""
            if group in groups:
                texts.append(archive.read(name).decode("latin-1").partition("\n\n")[2])
                labels.append(group)
    return texts, labels


def _timed(data: Path, groups: tuple[str, ...]) -> tuple[list[str], list[str]]:
    from main_job_data import _domains

    texts, labels = _bodies(data, groups)
    reviews = _domains(data)
    n = N_TIMED - len(texts)
    rows = np.sort(np.random.default_rng(0).choice(len(reviews.contents), n, replace=False))
    return texts + [reviews.contents[row] for row in rows], labels + reviews.labels[rows].tolist()


def _reuters(data: Path) -> tuple[list[str], list[str]]:
    """Documents of the ten largest topics that have exactly one of them."""
    from main_job_data import sets

    found = [(text, set(topics) & set(sets.TOPICS)) for text, topics, _ in sets.reuters_documents(data) if text.strip()]
    return [text for text, own in found if len(own) == 1], [next(iter(own)) for _, own in found if len(own) == 1]


def _of_main_job(data: Path, reader: str, *given: Any) -> tuple[Any, Any]:
    import main_job_data

    items = getattr(main_job_data, reader)(data, *given)
    return items.contents, items.labels.tolist()


def _four_domains(data: Path) -> tuple[list[str], list[str]]:
    texts, labels = [], []
    for domain in ("books", "dvd", "electronics", "kitchen"):
        own, _ = _of_main_job(data, "_blitzer", domain)
        texts, labels = texts + own, labels + [domain] * len(own)
    return texts, labels


PAIRS = {
    "hardware": ("comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
    "sciences": ("sci.electronics", "sci.med"),
    "politics": ("talk.politics.guns", "talk.politics.mideast"),
}
SIX = tuple(group for pair in PAIRS.values() for group in pair)
TASKS = {
    "six_newsgroups": Task("six newsgroups", "texts", partial(_bodies, groups=SIX)),
    **{name: Task(f"two newsgroups, {name}", "texts", partial(_bodies, groups=of)) for name, of in PAIRS.items()},
    "domains": Task("reviews of seven domains", "texts", lambda data: _of_main_job(data, "_domains")),
    "four_domains": Task("reviews of four domains", "texts", _four_domains),
    "reuters": Task("Reuters, ten topics", "texts", _reuters),
    "movies": Task("movie reviews, sentiment", "texts", lambda data: _of_main_job(data, "_movies"), judged=False),
    "timed": Task(f"{N_TIMED:,} texts", "texts", partial(_timed, groups=SIX), judged=False, of_time=True),
    "corel1k": Task("Corel-1k", "images", lambda data: _of_main_job(data, "_images", "corel1k")),
    "caltech101_4": Task("Caltech-101", "images", lambda data: _of_main_job(data, "_images", "caltech101_4")),
    "scene15": Task("Scene-15", "images", lambda data: _of_main_job(data, "_images", "scene15")),
    "digits": Task("digits, 8 x 8 pixels", "table", lambda data: _of_main_job(data, "_table", "digits")),
    "wine": Task("wine", "table", lambda data: _of_main_job(data, "_table", "wine")),
    "breast_cancer": Task("breast cancer", "table", lambda data: _of_main_job(data, "_table", "breast_cancer")),
}  # fmt: skip


def write_items(contents: Any, modality: str, folder: Path) -> Path:
    """Write items without labels."""
    if modality == "table":
        path = folder / "table.npz"
        np.savez(path, X=contents)
    elif modality == "texts":
        path = folder / "texts.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in contents)
    else:
        path = folder / "images.zip"
        with zipfile.ZipFile(path, "w") as archive:
            for number, (name, content) in enumerate(contents):
                archive.writestr(f"all/{number:06}{Path(name).suffix}", content)
    return path


# Judging


def judge(features: Any, labels: NDArray[Any], *, clustered: bool = True, spectral: bool = False) -> dict[str, float]:
    """Measure clusters by k-means or by `SpectralClusterer`, and search by cosine."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
    from sklearn.preprocessing import normalize

    from bagwise import SpectralClusterer

    rows, found = normalize(features), {}
    if clustered:
        k = len(np.unique(labels))
        makers = [
            SpectralClusterer(k, metric="cosine", random_state=seed)
            if spectral
            else KMeans(k, n_init=10, random_state=seed)
            for seed in range(K_SEEDS)
        ]
        runs = [maker.fit_predict(rows) for maker in makers]
        nmi = [float(normalized_mutual_info_score(labels, run)) for run in runs]
        found["nmi"], found["nmi_range"] = statistics.mean(nmi), max(nmi) - min(nmi)
        found["ari"] = statistics.mean(float(adjusted_rand_score(labels, run)) for run in runs)
    n = len(labels)
    queries = np.sort(np.random.default_rng(0).choice(n, min(n, QUERIES), replace=False))
    precision, first = [], []
    for query in queries.tolist():
        scores = np.asarray(
            (rows @ rows[[query]].T).toarray() if hasattr(rows, "toarray") else rows @ rows[query]
        ).ravel()
        scores[query] = -np.inf
        hits = (labels == labels[query])[np.argsort(-scores, kind="stable")[: n - 1]]
        precision.append(float((np.cumsum(hits) / np.arange(1, n))[hits].mean()))
        first.append(float(hits[:10].mean()))
    return found | {"map": statistics.mean(precision), "p10": statistics.mean(first)}


def _clusters(features: Any, k: int) -> Any:
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import normalize

    return KMeans(k, n_init=10, random_state=0).fit_predict(normalize(features))


# Methods: each gives (name, features, how, more) for its rows; CPU time and memory are taken by `measure`.


def _model(path: Path, method: str, k: int, before: float, **options: Any) -> Iterator[Any]:
    from sklearn.preprocessing import normalize

    from bagwise import WordMerger, fit_model

    model = fit_model(path, **options)
    features = model.group(model.fit_.data.histograms)
    features = features.toarray() if hasattr(features, "toarray") else features
    _clusters(features, k)
    spent, memory, more = time.process_time() - before, peak_memory(), {"n_groups": model.n_groups}
    if model.modality == "texts" and model.hierarchy.criterion == "clusters":
        X, started = model.fit_.data.whole(), time.process_time()
        sums = WordMerger(N_GROUPS, criterion="clusters").fit(X).transform(X)
        _clusters(np.sqrt(normalize(sums, "l1").toarray()), k)
        more["learning"] = time.process_time() - started
    yield method, features, {"cpu": spent, "memory": memory} | more
    if method == OURS:
        yield SPECTRAL, features, {"cpu": None, "memory": None, "spectral": True}


def ours(path: Path, k: int, before: float) -> Iterator[Any]:
    """Nothing set."""
    yield from _model(path, OURS, k, before)


def mmi(path: Path, k: int, before: float, modality: str) -> Iterator[Any]:
    """The default of earlier versions."""
    words = {"n_words": 3000} if modality == "texts" else {}
    yield from _model(path, MMI, k, before, criterion="mmi", **words)


def sift_ours(path: Path, k: int, before: float) -> Iterator[Any]:
    """Words of SIFT and colours, merged by clusters."""
    yield from _model(path, SIFT_OURS, k, before, descriptor="sift+color")


def sift_mmi(path: Path, k: int, before: float) -> Iterator[Any]:
    """The same, merged by MMI."""
    yield from _model(path, SIFT_MMI, k, before, descriptor="sift+color", criterion="mmi")


def _counts(path: Path, **options: Any) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
    return CountVectorizer(max_features=TEXT_WORDS, **options).fit_transform(texts)


def _tfidf(X: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfTransformer

    return TfidfTransformer(sublinear_tf=True).fit_transform(X)


def svd(path: Path, k: int, before: float) -> Iterator[Any]:
    """TF-IDF of all words, and its projection."""
    from sklearn.decomposition import TruncatedSVD

    X = _counts(path)
    started = time.process_time()
    weighted = _tfidf(X)
    features = TruncatedSVD(N_DIRECTIONS, random_state=0).fit_transform(weighted)
    _clusters(features, k)
    now = time.process_time()
    own = {"cpu": now - before, "memory": peak_memory(), "learning": now - started}
    yield SVD, features, own
    yield TFIDF, weighted, {"cpu": None, "memory": None, "search only": True}


def nmf(path: Path, k: int, before: float) -> Iterator[Any]:
    """Non-negative factors of TF-IDF."""
    from sklearn import decomposition

    features = decomposition.NMF(k, init="nndsvd", random_state=0).fit_transform(_tfidf(_counts(path)))
    _clusters(features, k)
    yield NMF, features, {"cpu": time.process_time() - before, "memory": peak_memory()}


def lda(path: Path, k: int, before: float) -> Iterator[Any]:
    """Topics, without stop words."""
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(k, learning_method="online", random_state=0)
    features = model.fit_transform(_counts(path, stop_words="english"))
    _clusters(features, k)
    yield LDA, features, {"cpu": time.process_time() - before, "memory": peak_memory()}


def sentences(path: Path, k: int, before: float) -> Iterator[Any]:
    """Vectors of a sentence network."""
    from sentence_transformers import SentenceTransformer

    texts = [json.loads(line)["text"] for line in path.read_text(encoding="utf-8").splitlines()]
    features = SentenceTransformer("all-MiniLM-L6-v2", local_files_only=True).encode(texts)
    _clusters(features, k)
    yield SENTENCES, features, {"cpu": time.process_time() - before, "memory": peak_memory()}


def _images(path: Path) -> Iterator[Any]:
    import cv2

    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            yield cv2.imdecode(np.frombuffer(archive.read(name), np.uint8), cv2.IMREAD_COLOR)


def pooled(path: Path, k: int, before: float) -> Iterator[Any]:
    """Averages of a network over each image."""
    from sklearn.preprocessing import StandardScaler

    from bagwise.descriptors import NetworkFeatures

    network = NetworkFeatures()
    vectors = np.array([network.describe_pooled(image[:, :, ::-1])[2] for image in _images(path)])
    features = StandardScaler().fit_transform(vectors)
    _clusters(features, k)
    yield POOLED, features, {"cpu": time.process_time() - before, "memory": peak_memory()}


def sift(path: Path, k: int, before: float) -> Iterator[Any]:
    """Words of SIFT at a grid, by OpenCV."""
    import cv2
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.preprocessing import normalize

    extractor, found = cv2.SIFT_create(), []
    for image in _images(path):
        gray = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
        ys, xs = np.mgrid[STEP : gray.shape[0] - STEP : STEP, STEP : gray.shape[1] - STEP : STEP]
        points = [cv2.KeyPoint(float(x), float(y), 2 * STEP) for y, x in zip(ys.ravel(), xs.ravel(), strict=True)]
        found.append(extractor.compute(gray, points)[1])
    vectors = np.concatenate(found)
    rows = np.random.default_rng(0).choice(len(vectors), min(len(vectors), SAMPLED), replace=False)
    words = MiniBatchKMeans(SIFT_WORDS, n_init=1, random_state=0).fit(vectors[rows])
    counts = np.array([np.bincount(words.predict(own), minlength=SIFT_WORDS) for own in found])
    features = np.sqrt(normalize(counts.astype(float), norm="l1"))
    _clusters(features, k)
    yield SIFT, features, {"cpu": time.process_time() - before, "memory": peak_memory()}


def columns(path: Path, k: int, before: float) -> Iterator[Any]:
    """Columns, and PCA of them."""
    from sklearn import decomposition
    from sklearn.preprocessing import StandardScaler

    X = StandardScaler().fit_transform(np.load(path)["X"])
    _clusters(X, k)
    yield SCALED, X, {"cpu": time.process_time() - before, "memory": peak_memory()}
    Z = decomposition.PCA(min(10, X.shape[1] - 1), random_state=0).fit_transform(X)
    yield PCA, Z, {"cpu": None, "memory": None}


METHODS: dict[str, dict[str, Callable[..., Iterator[Any]]]] = {
    "texts": {OURS: ours, MMI: partial(mmi, modality="texts"), SVD: svd, NMF: nmf, LDA: lda, SENTENCES: sentences},
    "images": {
        OURS: ours,
        MMI: partial(mmi, modality="images"),
        POOLED: pooled,
        SIFT_OURS: sift_ours,
        SIFT_MMI: sift_mmi,
        SIFT: sift,
    },
    "table": {OURS: ours, MMI: partial(mmi, modality="table"), SCALED: columns},
}
ROWS = {
    "texts": (OURS, SPECTRAL, MMI, SVD, TFIDF, NMF, LDA, SENTENCES),
    "images": (OURS, SPECTRAL, MMI, POOLED, SIFT_OURS, SIFT_MMI, SIFT),
    "table": (OURS, SPECTRAL, MMI, SCALED, PCA),
}


def measure(method: str, modality: str, path: str, labels: str, of_time: bool) -> list[Row]:
    """Run a method on the file of a collection, and judge what it gives by the labels in another file."""
    warnings.simplefilter("ignore")
    classes = np.array(json.loads(Path(labels).read_text(encoding="utf-8")))
    rows = []
    for name, features, own in METHODS[modality][method](Path(path), len(np.unique(classes)), time.process_time()):
        searched, spectral = own.pop("search only", False), own.pop("spectral", False)
        scores = {} if of_time else judge(features, classes, clustered=not searched, spectral=spectral)
        rows.append({"method": name} | own | scores)
    return rows


def missing_of(task: Task, results: Results) -> list[str]:
    """Methods that are not measured yet, and can be."""
    found = [method for method in METHODS[task.modality] if method not in results.cells]
    if importlib.util.find_spec("sentence_transformers") is None:
        found = [method for method in found if method != SENTENCES]
    if task.of_time:
        found = [method for method in found if method in (OURS, SVD)]
    elif task.modality == "texts" and not task.judged:
        found = [method for method in found if method != MMI]
    return found


def run_task(name: str, options: argparse.Namespace) -> Results:
    """Measure what is not kept yet."""
    task, results = TASKS[name], Results.read(options.json, name)
    missing = missing_of(task, results) if options.data is not None else []
    if not missing:
        return results
    contents, labels = task.read(options.data)
    results.n_items, results.n_classes = len(labels), len(set(labels))
    here = machine()
    with tempfile.TemporaryDirectory() as folder:
        path, truth = write_items(contents, task.modality, Path(folder)), Path(folder, "labels.json")
        truth.write_text(json.dumps(list(labels)), encoding="utf-8")
        for method in missing:
            print(f"{name}: {method}", file=sys.stderr, flush=True)
            results.cells[method] = in_fresh_process(
                __file__, "measure", method=method, modality=task.modality, path=str(path), labels=str(truth),
                of_time=task.of_time,
            )  # fmt: skip
            if here not in results.machines:
                results.machines.append(here)
            if options.json is not None:
                results.write(options.json)
    return results


def mean_over(all_results: dict[str, Results], modality: str, method: str, what: str) -> float | None:
    """Mean of a measure over the collections of a kind, if all of them have it."""
    names = [name for name, task in TASKS.items() if task.modality == modality and task.judged and name in all_results]
    rows = [all_results[name].row(method) for name in names]
    values = [row[what] for row in rows if row is not None and row.get(what) is not None]
    return statistics.mean(values) if names and len(values) == len(names) else None


def print_results(all_results: dict[str, Results]) -> None:
    """Print a table per collection, then means over those of a kind, then what was to be reached."""
    heads = {"method": "method", "nmi": "NMI", "spread": "range of seeds", "ari": "ARI", "map": "mAP", "p10": "P@10"}
    cost = {"cpu": "CPU, s", "learning": "learning, s", "memory": "peak memory, MB"}
    for name, results in all_results.items():
        task = TASKS[name]
        print(f"## {task.title}: {results.n_items:,} items, {results.n_classes} classes\n")
        rows = []
        for method in ROWS[task.modality]:
            row = results.row(method)
            if row is None:
                if method == SENTENCES and not task.of_time:
                    rows.append({"method": f"{method}: not installed"})
                continue
            memory = row.get("memory")
            rows.append(row | {"memory": None if memory is None else memory / 1e6, "spread": row.get("nmi_range")})
        print_table(rows, {"method": "method", **cost} if task.of_time else heads | cost)
    for modality in ROWS:
        rows = [
            {
                "method": method,
                **{what: mean_over(all_results, modality, method, what) for what in ("nmi", "ari", "map", "p10")},
            }
            for method in ROWS[modality]
        ]  # fmt: skip
        rows = [row for row in rows if row["map"] is not None]
        if rows:
            judged = [
                TASKS[name].title for name in all_results if TASKS[name].modality == modality and TASKS[name].judged
            ]
            print(f"## Means over {len(judged)} collections of {modality}: {', '.join(judged)}\n")
            print_table(rows, {key: head for key, head in heads.items() if key != "spread"})
    print("## To be reached\n")
    print_targets(targets(all_results))


def targets(all_results: dict[str, Results]) -> list[tuple[str, float, str, float]]:
    """Compare with what is to be reached."""
    mean = partial(mean_over, all_results)
    wanted: list[tuple[str, float | None, str, float | None]] = []

    def above(other: float | None, margin: float) -> float | None:
        return None if other is None else round(other + margin, 3)

    wanted += [
        ("texts, NMI", mean("texts", OURS, "nmi"), ">=", above(mean("texts", SVD, "nmi"), 0.05)),
        ("texts, mAP", mean("texts", OURS, "map"), ">=", above(mean("texts", TFIDF, "map"), 0.08)),
        ("photographs, NMI", mean("images", OURS, "nmi"), ">=", above(mean("images", POOLED, "nmi"), 0)),
        ("photographs, mAP", mean("images", OURS, "map"), ">=", above(mean("images", POOLED, "map"), 0)),
        ("SIFT words, NMI", mean("images", SIFT_OURS, "nmi"), ">=", above(mean("images", SIFT_MMI, "nmi"), 0)),
        ("tables, NMI", mean("table", OURS, "nmi"), ">=", above(mean("table", MMI, "nmi"), 0)),
    ]
    timed = all_results.get("timed")
    one, other = (None, None) if timed is None else (timed.row(OURS), timed.row(SVD))
    if one is not None and other is not None:
        wanted += [
            (f"{N_TIMED:,} texts, CPU seconds from the file to clusters", one["cpu"], "<=", 12.0),
            (f"{N_TIMED:,} texts, GB", one["memory"] / 1e9, "<=", 1.0),
            ("learning, times SVD + k-means", one["learning"] / other["learning"], "<=", 2.0),
        ]
    return [
        (what, round(value, 3), how, goal)
        for what, value, how, goal in wanted
        if value is not None and goal is not None
    ]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given = os.environ.get("BAGWISE_DATA")
    parser.add_argument("--data", type=Path, default=None if given is None else Path(given))
    parser.add_argument("--only", nargs="+", choices=sorted(TASKS), metavar="NAME", help="some collections")
    parser.add_argument("--json", type=Path, default=KEPT, help="folder of results; what is there is not run again")
    parser.add_argument("--page", type=Path, help="print to this page of the documentation, from results alone")
    parser.add_argument("--list", action="store_true", help="name the collections")
    options = parser.parse_args()
    if options.list:
        for name, task in TASKS.items():
            print(f"{name:16} {task.modality:7} {task.title}")
        return
    if options.page is not None:
        write_page(options.page, options.json)
        return
    if options.data is None:
        parser.error("say where the data are: --data DIR")
    names = options.only or list(TASKS)
    print_results({name: run_task(name, options) for name in names})


def write_page(path: Path, folder: Path) -> None:
    """Write the page of the documentation from what was kept."""
    import contextlib
    import io

    kept = {name: Results.read(folder, name) for name in TASKS if (folder / f"{name}.json").exists()}
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        print_results(kept)
    about = (__doc__ or "").split("\n\n", 2)[2].strip()
    places = sorted({f"{one['date']}, commit {one['commit']}" for results in kept.values() for one in results.machines})
    text = "\n\n".join(
        [
            "# Collections without classes",
            "Clusters and search by 50 groups of words, learned without labels, against what people would write "
            "instead (`benchmarks/unlabelled.py`, whose results are in `benchmarks/results/unlabelled`).",
            about,
            said.getvalue().replace("  reached ", "- reached: ").replace("  MISSED  ", "- MISSED: ").strip(),
            f"Runs: {'; '.join(places)}.",
        ]
    )
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
