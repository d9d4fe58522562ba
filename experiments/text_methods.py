"""Classifiers of documents, and the choice of their settings on training documents only.

What knows no labels (vocabulary, inverse document frequencies, topics, scales of scores) is learned once from the
training documents of a fold; what does (weights of scores, classifiers) is learned anew in each inner fold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC

from bagwise import FreeEnergyKernel, LatentDirichlet
from bagwise.baselines import ConfidenceWeightedClassifier
from bagwise.kernels import DiagonalKernelLearner
from bagwise.topics import FreeEnergyScore, LatentDirichletNB
from experiments.text_tasks import Task

# A word that one training document has says nothing of others.
_FEWEST_DOCUMENTS = 2
N_INNER = 3
N_PASSES = 20
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
    _remembered: dict[Hashable, Features] = field(default_factory=dict)

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

    return fold.remember((setting["topics"], setting["eta"]), compute)


def tfidf_and_scores_of(fold: Fold, setting: Setting) -> Features:
    (tfidf, tfidf_test), (scores, scores_test) = tfidf_of(fold, setting), scores_of(fold, setting)
    return sp.hstack([tfidf, scores], format="csr"), sp.hstack([tfidf_test, scores_test], format="csr")


def damped(counts: sp.csr_array) -> sp.csr_array:
    """1 + log n for each count n."""
    return sp.csr_array((1 + np.log(counts.data), counts.indices, counts.indptr), shape=counts.shape)


def topic_model(setting: Setting) -> LatentDirichlet:
    return LatentDirichlet(
        setting["topics"],
        solver="vb",
        prior="fixed",
        init="random",
        topic_word_prior=setting["eta"],
        max_iter=N_PASSES,
        restarts=3,
        random_state=0,
    )


def svm(setting: Setting) -> Any:
    return LinearSVC(C=setting["C"], tol=1e-3, max_iter=50_000, random_state=0)


def cosine_svm(setting: Setting) -> Any:
    return make_pipeline(Normalizer(), svm(setting))


def default_svm(setting: Setting) -> Any:
    """`FreeEnergyKernel` with nothing set, on raw counts."""
    return make_pipeline(FreeEnergyKernel(), LinearSVC(random_state=0))


def published_kernel() -> FreeEnergyKernel:
    """The form of the paper, to the letter: see the notes of `FreeEnergyKernel`."""
    return FreeEnergyKernel(
        LatentDirichlet(10, solver="gibbs", prior="fixed", topic_word_prior=0.01),
        inference="gibbs",
        word_block="full",
        standardize=False,
        damping=None,
        normalize=None,
        learner=DiagonalKernelLearner("prox"),
        random_state=0,
    )


def published_svm(setting: Setting) -> Any:
    """That on raw counts; its features are not of unit norm, so that the solver needs more iterations."""
    return make_pipeline(published_kernel(), LinearSVC(max_iter=10_000, random_state=0))


def default_with_tfidf_svm(setting: Setting) -> Any:
    """The same with TF-IDF beside it, as its documentation shows."""
    both = make_union(TfidfTransformer(sublinear_tf=True), FreeEnergyKernel())
    return make_pipeline(both, Normalizer(), LinearSVC(random_state=0))


def learner_of(setting: Setting) -> DiagonalKernelLearner:
    objective, _, step = setting["learner"].partition(" ")
    return DiagonalKernelLearner(objective, step=float(step or 1))


def learned_svm(setting: Setting) -> Any:
    """Weights of scores learned from labels, rows of length 1, SVM."""
    return make_pipeline(learner_of(setting), Normalizer(), svm(setting))


def tfidf_and_learned_svm(setting: Setting) -> Any:
    """The same with TF-IDF, whose rows have length 1, in front."""

    def n_words(X: Any) -> int:
        return (X.shape[1] - 1 - 3 * setting["topics"]) // 2  # there are as many scores, and those of topics

    learned = make_pipeline(learner_of(setting), Normalizer())
    columns = ColumnTransformer(
        [
            ("tfidf", "passthrough", lambda X: slice(0, n_words(X))),
            ("learned", learned, lambda X: slice(n_words(X), None)),
        ],
        sparse_threshold=1.0,
    )
    return make_pipeline(columns, svm(setting))


@dataclass(frozen=True)
class Method:
    """Features that know no labels, a classifier, and settings to choose from; of equally good ones the first."""

    features: Callable[[Fold, Setting], Features]
    classifier: Callable[[Setting], Any]
    settings: tuple[Setting, ...]
    follows: str | None = None  # a method whose chosen setting is kept, only what it lacks is chosen

    def inner_error(self, fold: Fold, setting: Setting, folds: list[tuple[Any, Any]]) -> float:
        """Mean share of training documents put into the wrong class by what was learned from others of them."""
        X, _ = self.features(fold, setting)
        return float(np.mean([self._error(setting, X[a], fold.y[a], X[b], fold.y[b]) for a, b in folds]))

    def error(self, fold: Fold, setting: Setting) -> float:
        """Share of the test documents that is put into the wrong class."""
        train, test = self.features(fold, setting)
        return self._error(setting, train, fold.y, test, fold.y_test)

    def _error(self, setting: Setting, X: Any, y: Any, X_test: Any, y_test: Any) -> float:
        return float(np.mean(self.classifier(setting).fit(X, y).predict(X_test) != y_test))


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
    "LDA-FESS": Method(scores_of, cosine_svm, grid(C=PENALTIES, model=MODELS)),
    "LDA-FEK": Method(scores_of, learned_svm, grid(C=PENALTIES, model=MODELS, learner=LEARNERS)),
    "TF-IDF SVM": Method(tfidf_of, svm, grid(C=PENALTIES)),
    "naive Bayes": Method(
        counts_of, lambda setting: MultinomialNB(alpha=setting["alpha"]), grid(alpha=(0.03, 0.1, 0.3, 1.0))
    ),
    "TF-IDF + FEK": Method(tfidf_and_scores_of, tfidf_and_learned_svm, grid(C=PENALTIES), follows="LDA-FEK"),
    "FEK default": Method(counts_of, default_svm, ({},)),
    "TF-IDF + FEK default": Method(counts_of, default_with_tfidf_svm, ({},)),
    "FEK as published": Method(counts_of, published_svm, ({},)),
}


def measure(
    task: Task, train: NDArray[np.int64], test: NDArray[np.int64], seed: int, names: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """Error of methods on a fold, with the setting that had the smallest error in folds of its training documents.

    One that follows another comes after it.
    """
    fold = Fold.of(task, train, test)
    inner = list(StratifiedKFold(N_INNER, shuffle=True, random_state=seed).split(train, fold.y))
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        method, started = METHODS[name], time.process_time()
        kept = results[method.follows]["chosen"] if method.follows else {}
        settings = [kept | setting for setting in method.settings]
        best, inner_error = settings[0], None
        if len(settings) > 1:
            errors = [method.inner_error(fold, setting, inner) for setting in settings]
            best, inner_error = settings[int(np.argmin(errors))], min(errors)
        results[name] = {
            "error": method.error(fold, best),
            "inner_error": inner_error,
            "chosen": best,
            "seconds": round(time.process_time() - started, 2),
        }
    return results
