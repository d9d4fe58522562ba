"""Methods of ``benchmarks/main_job.py``: the defaults of this library, and what people would write instead.

A method reads the file of a split, fits to its training part, and gives a row for each of its sizes: the error on the
test part in %, seconds of the fit from items to the classifier, bytes of the model (our file; what pickle makes of the
others), and peak memory of the process until then. `measure` is called in a process of its own for each method.
"""

from __future__ import annotations

import json
import pickle
import random
import re
import subprocess
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, chi2
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, normalize
from sklearn.svm import LinearSVC, l1_min_c

from harness import peak_memory, timed

SIZES = (10, 20, 50, 100, 200)
TABLE_SIZES = (2, 5, 10, 20, 50)
COMPACT_SIZES = (20, 50, 200)
ALL, AUTO = "all", "auto"  # sizes: all words; what the default chose
# names of methods, as rows have them
OURS, COMPACT, PCA_OF_OURS = "bagwise", "bagwise, compact file", "PCA of bagwise's words"
TFIDF, NB, NBSVM_ = "TF-IDF + LinearSVC", "multinomial NB", "NBSVM"
TFIDF_PAIRS = "TF-IDF of words and pairs + LinearSVC"
CHI2, MRMR, L1, SVD = "chi²", "mRMR", "L1", "SVD"
FASTTEXT, QUANTISED = "fastText", "fastText, quantised"
SIFT, SIFT_PLAIN, COLOUR = "SIFT words + LinearSVC", "SIFT words + LinearSVC, L2", "HSV histogram + forest"
POOLED, POOLED_PCA = "pooled network features + logistic regression", "PCA of pooled network features + SVM"
SCALED, SCALED_PCA = "StandardScaler + LinearSVC", "StandardScaler + PCA + LinearSVC"
# what differences are to, by modality
REFERENCE = {"texts": TFIDF, "images": POOLED, "table": SCALED}
PREFILTERED = 2000  # words that mRMR selects from, by chi²
PAIRS = {"ngram_range": (1, 2), "min_df": 2, "max_features": 50_000}  # of words, as this library has them
MOST_C = 100.0  # of an SVM with an L1 penalty
N_WORDS, STEP, SAMPLED = 1000, 8, 100_000  # of the SIFT words a person would write
TOKEN = r"\b\w\w+\b"  # as scikit-learn and this library have it
CUTOFFS = (10_000, 1000)  # words that a quantised fastText model keeps

Row = dict[str, Any]


def _row(method: str, size: Any, error: float, seconds: float, n_bytes: int, **more: Any) -> Row:
    return {
        "method": method, "size": size, "error": error, "seconds": seconds, "bytes": n_bytes, "memory": peak_memory(),
        **more,
    }  # fmt: skip


def _error(predicted: Any, y: Any) -> float:
    return 100 * float(np.mean(np.asarray(predicted) != np.asarray(y)))


def _svm() -> LinearSVC:
    return LinearSVC(random_state=0)


def ours(path: Path) -> Iterator[Row]:
    """`fit_model` with all its defaults; all sizes are those of the one model, whose file holds them all.

    For texts, also compact files of some sizes, read again; for images, PCA of its features of all words, with a linear
    SVM.
    """
    from bagwise import Model, fit_model

    seconds, model = timed(lambda: fit_model(path))
    with tempfile.TemporaryDirectory() as folder:
        n_bytes = model.save(Path(folder, "model.bagwise")).stat().st_size
    memory = peak_memory()
    test = model.fit_.test
    histograms, y = model.histograms(test), test.labels
    n_words = model.hierarchy.n_words
    sizes = [size for size in sorted({*SIZES, *TABLE_SIZES}) if size in model.heads and size < n_words]
    for size, n in [(AUTO, model.n_groups), *((n, n) for n in sizes), (ALL, n_words)]:
        error = _error(model.cut(n).predict(histograms), y)
        yield _row(OURS, size, error, seconds, n_bytes, n_groups=n, n_words=n_words) | {"memory": memory}
    if model.modality == "texts":
        for size, n in [(AUTO, model.n_groups), *((n, n) for n in COMPACT_SIZES if n in sizes)]:
            with tempfile.TemporaryDirectory() as folder:
                path = model.cut(n).compact().save(Path(folder, "model.bagwise"))
                small, n_bytes = Model.load(path), path.stat().st_size
            yield _row(COMPACT, size, _error(small.predict(test), y), seconds, n_bytes, n_groups=n) | {"memory": memory}
    if model.modality == "images":
        data, whole = model.fit_.data, model.cut(n_words)
        train, held = (np.asarray(one.toarray()) for one in map(whole.group, (data.histograms, histograms)))
        yield from _pca(PCA_OF_OURS, SIZES, train, data.collection.labels, held, y, sum(data.seconds.values()))


def _pca(method: str, sizes: Any, X: Any, y: Any, X_test: Any, y_test: Any, before: float) -> Iterator[Row]:
    """PCA of the largest size, once; then its first components at each size."""
    sizes = [size for size in sizes if size < X.shape[1]]
    learning, pca = timed(lambda: PCA(min(max(sizes), len(X)), svd_solver="full").fit(X))
    Z, Z_test = pca.transform(X), pca.transform(X_test)
    for size in sizes:
        seconds, svm = timed(lambda size=size: _svm().fit(Z[:, :size], y))
        n_bytes = len(pickle.dumps((pca.mean_, pca.components_[:size], svm)))
        yield _row(method, size, _error(svm.predict(Z_test[:, :size]), y_test), before + learning + seconds, n_bytes)


# Texts


@dataclass(frozen=True)
class Texts:
    """Training and test texts of a split."""

    texts: list[str]
    y: list[str]
    texts_test: list[str]
    y_test: list[str]

    @classmethod
    def read(cls, path: Path) -> Texts:
        """Read the file of a split."""
        parts: dict[str, tuple[list[str], list[str]]] = {"train": ([], []), "test": ([], [])}
        with path.open(encoding="utf-8") as lines:
            for record in map(json.loads, lines):
                for place, name in zip(parts[record["split"]], ("text", "label"), strict=True):
                    place.append(record[name])
        return cls(*parts["train"], *parts["test"])


class NBSVM(LinearSVC):
    """Linear SVM on log-count ratios of two classes, interpolated (Wang and Manning, 2012)."""

    def fit(self, X: Any, y: Any) -> NBSVM:
        """Fit to words that occur or not, and classes 0 and 1."""
        p, q = (1 + np.asarray(X[y == c].sum(axis=0)).ravel() for c in (1, 0))
        self.ratio_ = np.log(p / p.sum()) - np.log(q / q.sum())
        super().fit(X.multiply(self.ratio_).tocsr(), y)
        self.coef_ = 0.75 * np.abs(self.coef_).mean() + 0.25 * self.coef_
        return self

    def decision_function(self, X: Any) -> Any:
        """Scores of class 1."""
        return super().decision_function(X.multiply(self.ratio_).tocsr())


def _whole(method: str, model: Any) -> Callable[[Path], Iterator[Row]]:
    """A pipeline that takes texts, on all words."""

    def run(path: Path) -> Iterator[Row]:
        split = Texts.read(path)
        pipeline = clone(model)
        seconds, _ = timed(lambda: pipeline.fit(split.texts, split.y))
        n_bytes = len(pickle.dumps(pipeline))
        yield _row(method, ALL, _error(pipeline.predict(split.texts_test), split.y_test), seconds, n_bytes)

    return run


def _take_columns(X: Any, columns: Any) -> Any:
    return X[:, columns]


def _selecting(method: str, choose: Callable[[Any, Any, int], Any]) -> Callable[[Path], Iterator[Row]]:
    """TF-IDF of all words, then the columns of a size that `choose` gives, then a linear SVM."""

    def run(path: Path) -> Iterator[Row]:
        split = Texts.read(path)
        tfidf = TfidfVectorizer(sublinear_tf=True)
        before, X = timed(lambda: tfidf.fit_transform(split.texts))
        X_test, y = tfidf.transform(split.texts_test), np.array(split.y)
        for size in SIZES:
            choosing, columns = timed(lambda size=size: choose(X, y, size))
            learning, svm = timed(lambda columns=columns: _svm().fit(X[:, columns], y))
            model = make_pipeline(tfidf, FunctionTransformer(_take_columns, kw_args={"columns": columns}), svm)
            error = _error(svm.predict(X_test[:, columns]), split.y_test)
            yield _row(method, size, error, before + choosing + learning, len(pickle.dumps(model)))

    return run


def _by_chi2(X: Any, y: Any, size: int) -> Any:
    return SelectKBest(chi2, k=min(size, X.shape[1])).fit(X, y).get_support(indices=True)


def _by_mrmr(X: Any, y: Any, size: int) -> Any:
    """Select among the words that chi² puts first, by the texts that they occur in."""
    from bagwise.baselines import MinRedundancyMaxRelevance

    first = _by_chi2(X, y, PREFILTERED)
    occurs = X[:, first].sign().astype(np.int64)
    return first[MinRedundancyMaxRelevance(size, discretize=False).fit(occurs, y).ranking_]


def _by_l1(X: Any, y: Any, size: int) -> Any:
    """Words with weights in a linear SVM with an L1 penalty: as many as the size allows, by growing C."""
    C, chosen = l1_min_c(X, y), np.arange(1)
    while C < MOST_C:
        C *= 1.3
        svm = LinearSVC(penalty="l1", dual=False, C=C, random_state=0).fit(X, y)
        columns = np.flatnonzero(np.abs(svm.coef_).sum(axis=0))
        if len(columns) > size:
            break
        chosen = columns if len(columns) else chosen
    return chosen


def svd(path: Path) -> Iterator[Row]:
    """TF-IDF, truncated SVD of the largest size once, its first components at each size, then a linear SVM."""
    split = Texts.read(path)
    tfidf = TfidfVectorizer(sublinear_tf=True)
    before, X = timed(lambda: tfidf.fit_transform(split.texts))
    X_test = tfidf.transform(split.texts_test)
    learning, model = timed(lambda: TruncatedSVD(min(max(SIZES), min(X.shape) - 1), random_state=0).fit(X))
    Z, Z_test = model.transform(X), model.transform(X_test)
    for size in SIZES:  # few texts have fewer components than the largest size
        seconds, svm = timed(lambda size=size: _svm().fit(Z[:, :size], split.y))
        n_bytes = len(pickle.dumps((tfidf, model.components_[:size], svm)))
        error = _error(svm.predict(Z_test[:, :size]), split.y_test)
        yield _row(SVD, size, error, before + learning + seconds, n_bytes)


# Runs where the package fasttext is: training and test file, folder for models, sizes of quantised models; prints JSON.
FASTTEXT_SCRIPT = r"""
import json, os, re, sys, time
import fasttext
train, test, folder, *cutoffs = sys.argv[1:]
found = []
def tell(name, size, model, seconds):
    path = os.path.join(folder, "model")
    model.save_model(path)
    model = fasttext.load_model(path)
    lines = [line.rstrip("\n").partition(" ") for line in open(test, encoding="utf-8")]
    wrong = sum(model.predict(text)[0][0] != label for label, _, text in lines)
    peak = re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())
    found.append({"method": name, "size": size, "error": 100 * wrong / len(lines), "seconds": seconds,
                  "bytes": os.path.getsize(path), "memory": int(peak[1]) * 1024 if peak else None})
def learn():
    return fasttext.train_supervised(input=train, lr=0.5, epoch=25, dim=100, thread=1, verbose=0)
started = time.perf_counter()
model = learn()
full = time.perf_counter() - started
tell("fastText", "all", model, full)
for cutoff in map(int, cutoffs):
    model = learn()
    started = time.perf_counter()
    model.quantize(input=train, qnorm=True, retrain=True, cutoff=cutoff, thread=1, verbose=0)
    tell("fastText, quantised", cutoff, model, full + time.perf_counter() - started)
print("@@" + json.dumps(found))
"""


def fasttext(path: Path, python: str) -> Iterator[Row]:
    """fastText, unigrams, in an interpreter that has it; the full model and quantised ones."""
    split = Texts.read(path)
    classes = sorted(set(split.y))
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, texts, labels in (("train", split.texts, split.y), ("test", split.texts_test, split.y_test)):
            files.append(Path(folder, name))
            tokens = (" ".join(re.findall(TOKEN, text.lower())) for text in texts)
            lines = [f"__label__{classes.index(label)} {line}\n" for label, line in zip(labels, tokens, strict=True)]
            random.Random(0).shuffle(lines)  # it learns from lines in their order, and ours come class by class
            files[-1].write_text("".join(lines), encoding="utf-8")
        command = [python, "-c", FASTTEXT_SCRIPT, *map(str, files), folder, *map(str, CUTOFFS)]
        run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"fastText in {python} failed:\n{run.stderr}")
    yield from json.loads(run.stdout.rsplit("@@", 1)[1])


# Images


def _images(path: Path, part: str) -> Iterator[tuple[Any, str]]:
    """Images of a part in BGR, and their classes."""
    import cv2

    with zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            split, label, _ = name.split("/")
            if split == part:
                yield cv2.imdecode(np.frombuffer(archive.read(name), np.uint8), cv2.IMREAD_COLOR), label


def sift_words(path: Path) -> Iterator[Row]:
    """Dense SIFT by OpenCV, k-means by scikit-learn, counts of words, a linear SVM: as people write it."""
    import cv2
    from sklearn.cluster import MiniBatchKMeans

    sift = cv2.SIFT_create()

    def describe(image: Any) -> Any:
        grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
        places = [(x, y) for y in range(STEP, grey.shape[0], STEP) for x in range(STEP, grey.shape[1], STEP)]
        return sift.compute(grey, [cv2.KeyPoint(float(x), float(y), STEP) for x, y in places])[1]

    def count(bag: Any) -> Any:
        return np.bincount(words.predict(bag), minlength=words.n_clusters).astype(np.float64)

    started = time.perf_counter()
    bags, y = zip(*((describe(image), label) for image, label in _images(path, "train")), strict=True)
    rng = np.random.default_rng(0)
    sample = np.concatenate(bags)
    sample = sample[rng.permutation(len(sample))[:SAMPLED]]
    words = MiniBatchKMeans(min(N_WORDS, len(sample)), random_state=0, n_init=3).fit(sample)
    X = np.array([count(bag) for bag in bags])
    before = time.perf_counter() - started
    held = [(count(describe(image)), label) for image, label in _images(path, "test")]
    X_test, y_test = np.array([row for row, _ in held]), [label for _, label in held]
    scalings: dict[str, Callable[[Any], Any]] = {
        SIFT: lambda Z: np.sqrt(normalize(Z, "l1")),
        SIFT_PLAIN: lambda Z: normalize(Z, "l2"),
    }
    for method, scale in scalings.items():
        seconds, svm = timed(lambda scale=scale: _svm().fit(scale(X), y))
        error = _error(svm.predict(scale(X_test)), y_test)
        yield _row(method, ALL, error, before + seconds, len(pickle.dumps((words.cluster_centers_, svm))))


def pooled_network(path: Path) -> Iterator[Row]:
    """Average a pretrained network over each image, standardise, and fit a logistic regression; then PCA of it.

    The network is that of our default, its last layer, an image at a time in as many threads as there are cores. The
    error of five-fold cross-validation is part of the time, as it is of ours.
    """
    import os
    from concurrent.futures import ThreadPoolExecutor

    import cv2
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    from bagwise.descriptors import NetworkFeatures

    network = NetworkFeatures().pooling()

    def describe(image: Any) -> Any:
        return network.describe_pooled(cv2.cvtColor(image, cv2.COLOR_BGR2RGB))[2]

    def described(part: str) -> tuple[Any, list[str]]:
        images, labels = zip(*_images(path, part), strict=True)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            return np.array(list(threads.map(describe, images))), list(labels)

    started = time.perf_counter()
    X, y = described("train")
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    cross_val_score(model, X, y, cv=min(5, min(np.unique(y, return_counts=True)[1])))
    model.fit(X, y)
    seconds = time.perf_counter() - started
    X_test, y_test = described("test")
    yield _row(POOLED, ALL, _error(model.predict(X_test), y_test), seconds, len(pickle.dumps(model)))
    scaler = model[0]
    yield from _pca(POOLED_PCA, SIZES, scaler.transform(X), y, scaler.transform(X_test), y_test, seconds)


def colour_forest(path: Path) -> Iterator[Row]:
    """Histogram of 8 x 8 x 8 colours in HSV, and a random forest."""
    import cv2

    def describe(image: Any) -> Any:
        hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
        counts = cv2.calcHist([hsv], [0, 1, 2], None, [8, 8, 8], [0, 180, 0, 256, 0, 256]).ravel()
        return counts / counts.sum()

    started = time.perf_counter()
    X, y = zip(*((describe(image), label) for image, label in _images(path, "train")), strict=True)
    forest = RandomForestClassifier(500, n_jobs=-1, random_state=0).fit(np.array(X), y)
    seconds = time.perf_counter() - started
    n_bytes = len(pickle.dumps(forest))
    held = [(describe(image), label) for image, label in _images(path, "test")]
    error = _error(forest.predict(np.array([row for row, _ in held])), [label for _, label in held])
    yield _row(COLOUR, ALL, error, seconds, n_bytes)


# Tables


def scaled(path: Path) -> Iterator[Row]:
    """Standardised columns and a linear SVM; then PCA between the two."""
    with np.load(path, allow_pickle=False) as file:
        X, y, train = file["X"], file["y"], file["splits"] == "train"
    started = time.perf_counter()
    scaler = StandardScaler().fit(X[train])
    Z, Z_test = scaler.transform(X[train]), scaler.transform(X[~train])
    svm = _svm().fit(Z, y[train])
    seconds = time.perf_counter() - started
    yield _row(SCALED, ALL, _error(svm.predict(Z_test), y[~train]), seconds, len(pickle.dumps((scaler, svm))))
    yield from _pca(SCALED_PCA, TABLE_SIZES, Z, y[train], Z_test, y[~train], 0.0)


METHODS: dict[str, dict[str, Callable[..., Iterator[Row]]]] = {
    "texts": {
        OURS: ours,
        TFIDF: _whole(TFIDF, make_pipeline(TfidfVectorizer(sublinear_tf=True), _svm())),
        TFIDF_PAIRS: _whole(TFIDF_PAIRS, make_pipeline(TfidfVectorizer(**PAIRS, sublinear_tf=True), _svm())),
        NB: _whole(NB, make_pipeline(CountVectorizer(), MultinomialNB())),
        NBSVM_: _whole(NBSVM_, make_pipeline(CountVectorizer(binary=True), OneVsRestClassifier(NBSVM(random_state=0)))),
        CHI2: _selecting(CHI2, _by_chi2),
        MRMR: _selecting(MRMR, _by_mrmr),
        L1: _selecting(L1, _by_l1),
        SVD: svd,
        FASTTEXT: fasttext,
    },
    "images": {OURS: ours, POOLED: pooled_network, SIFT: sift_words, COLOUR: colour_forest},
    "table": {OURS: ours, SCALED: scaled},
}


def measure(method: str, modality: str, path: str, **options: Any) -> list[Row]:
    """Fit a method to the file of a split, and give its rows."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    return list(METHODS[modality][method](Path(path), **options))
