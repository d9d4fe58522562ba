"""Classifiers of documents, and the choice of their settings on training documents only."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import MultinomialNB
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from bagwise import (
    ConfidenceWeightedClassifier,
    DiagonalKernelLearner,
    FreeEnergyScore,
    LatentDirichlet,
    LatentDirichletNB,
)
from text_tasks import Task

# A word that one training document has says nothing of others.
_FEWEST_DOCUMENTS = 2
N_INNER = 3
PENALTIES = (0.1, 1.0, 10.0)
MODELS = ((10, 0.01), (10, 0.1), (30, 0.01))  # topics and smoothing
LEARNERS = ("ball", "prox 10", "prox 30", "prox 100")  # objective, and its step
Setting = dict[str, Any]
Features = tuple[Any, Any]


@dataclass(frozen=True)
class Fold:
    """Training and test documents, with the words of the training documents; and what was computed of them."""

    train: sp.csr_array
    y: NDArray[np.int64]
    test: sp.csr_array
    y_test: NDArray[np.int64]
    _remembered: dict[Hashable, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, train: NDArray[np.int64], test: NDArray[np.int64]) -> Fold:
        """Keep the words that enough training documents have."""
        rows = task.counts[train]
        words = np.bincount(rows.indices, minlength=rows.shape[1]) >= _FEWEST_DOCUMENTS
        return cls(rows[:, words], task.y[train], task.counts[test][:, words], task.y[test])

    def remember(self, key: Hashable, compute: Callable[[], Features]) -> Features:
        """Features that several methods or settings use, computed once."""
        if key not in self._remembered:
            self._remembered[key] = compute()
        return self._remembered[key]


def counts_of(fold: Fold, setting: Setting) -> Features:
    return fold.train, fold.test


def tfidf_of(fold: Fold, setting: Setting) -> Features:
    """TF-IDF with 1 + log of counts, rows of length 1."""

    def compute() -> Features:
        weights = TfidfTransformer(sublinear_tf=True).fit(fold.train)
        return weights.transform(fold.train), weights.transform(fold.test)

    return fold.remember("tfidf", compute)


def scores_of(fold: Fold, setting: Setting) -> Features:
    """Free-energy scores per word, standardised, of documents whose counts n are damped to 1 + log n.

    Repeated words say little about a class; TF-IDF damps them as well.
    """

    def compute() -> Features:
        train, test = damped(fold.train), damped(fold.test)
        model = FrozenEstimator(topic_model(setting).fit(train))
        score = FreeEnergyScore(model, word_block="word", standardize=True).fit(train)
        return score.transform(train), score.transform(test)

    return fold.remember(("scores", setting["topics"], setting["eta"]), compute)


def fess_of(fold: Fold, setting: Setting) -> Features:
    """The scores, rows of length 1: the kernel is a cosine."""
    train, test = scores_of(fold, setting)
    return normalize(train), normalize(test)


def fek_of(fold: Fold, setting: Setting) -> Features:
    """The scores with the weights that the labels give them, rows of length 1."""

    def compute() -> Features:
        train, test = scores_of(fold, setting)
        objective, _, step = setting["learner"].partition(" ")
        learner = DiagonalKernelLearner(objective, step=float(step or 1)).fit(train, fold.y)
        return normalize(learner.transform(train)), normalize(learner.transform(test))

    return fold.remember(("fek", setting["topics"], setting["eta"], setting["learner"]), compute)


def tfidf_and_fek_of(fold: Fold, setting: Setting) -> Features:
    tfidf, fek = tfidf_of(fold, setting), fek_of(fold, setting)
    return sp.hstack([tfidf[0], fek[0]], format="csr"), sp.hstack([tfidf[1], fek[1]], format="csr")


def damped(counts: sp.csr_array) -> sp.csr_array:
    """1 + log n for each count n."""
    return sp.csr_array((1 + np.log(counts.data), counts.indices, counts.indptr), shape=counts.shape)


def topic_model(setting: Setting) -> LatentDirichlet:
    return LatentDirichlet(setting["topics"], eta=setting["eta"], max_iter=30, restarts=3, random_state=0)


def svm(setting: Setting) -> LinearSVC:
    return LinearSVC(C=setting["C"], tol=1e-3, max_iter=50_000, random_state=0)


@dataclass(frozen=True)
class Method:
    """Features, a classifier of them, and the settings to choose from; of equally good ones the first is taken."""

    features: Callable[[Fold, Setting], Features]
    classifier: Callable[[Setting], Any]
    settings: tuple[Setting, ...]
    follows: str | None = None  # a method whose chosen setting is kept, only the others are chosen

    def error(self, fold: Fold, setting: Setting) -> float:
        """Share of the test documents that is put into the wrong class."""
        train, test = self.features(fold, setting)
        predicted = self.classifier(setting).fit(train, fold.y).predict(test)
        return float(np.mean(predicted != fold.y_test))


def grid(**values: Iterable[Any]) -> tuple[Setting, ...]:
    """All combinations, of which "model" is split into topics and smoothing."""
    settings = [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]
    for setting in settings:
        if "model" in setting:
            setting["topics"], setting["eta"] = setting.pop("model")
    return tuple(settings)


METHODS = {
    "SVM": Method(counts_of, svm, grid(C=(0.001, 0.01, 0.1))),
    "CW": Method(
        counts_of,
        lambda setting: ConfidenceWeightedClassifier(setting["confidence"], random_state=0),
        grid(confidence=(0.6, 0.75, 0.9)),
    ),
    "LDA-NB": Method(
        counts_of,
        lambda setting: LatentDirichletNB(topic_model(setting)),
        grid(model=((5, 0.1), (10, 0.1), (10, 0.01))),
    ),
    "LDA-FESS": Method(fess_of, svm, grid(C=PENALTIES, model=MODELS)),
    "LDA-FEK": Method(fek_of, svm, grid(C=PENALTIES, model=MODELS, learner=LEARNERS)),
    "TF-IDF SVM": Method(tfidf_of, svm, grid(C=PENALTIES)),
    "naive Bayes": Method(
        counts_of, lambda setting: MultinomialNB(alpha=setting["alpha"]), grid(alpha=(0.03, 0.1, 0.3, 1.0))
    ),
    "TF-IDF + FEK": Method(tfidf_and_fek_of, svm, grid(C=PENALTIES), follows="LDA-FEK"),
}


def measure(
    task: Task, train: NDArray[np.int64], test: NDArray[np.int64], seed: int, known: dict[str, Setting]
) -> dict[str, dict[str, Any]]:
    """Error of each method on a fold, with the setting that had the smallest error in folds of its training documents.

    Methods of which `known` has a setting were measured earlier.
    """
    inner = StratifiedKFold(N_INNER, shuffle=True, random_state=seed).split(train, task.y[train])
    inner_folds = [Fold.of(task, train[a], train[b]) for a, b in inner]
    outer = Fold.of(task, train, test)
    chosen, results = dict(known), {}
    for name, method in METHODS.items():
        if name in known:
            continue
        started = time.process_time()
        kept = chosen[method.follows] if method.follows else {}
        settings = [kept | setting for setting in method.settings]
        errors = [float(np.mean([method.error(fold, setting) for fold in inner_folds])) for setting in settings]
        best = int(np.argmin(errors))
        chosen[name] = settings[best]
        results[name] = {
            "error": method.error(outer, settings[best]),
            "inner_error": errors[best],
            "chosen": settings[best],
            "seconds": round(time.process_time() - started, 2),
        }
    return results
