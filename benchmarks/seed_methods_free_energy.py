"""Free-energy kernels on the ten tasks of their paper, beside TF-IDF, all in a linear SVM.

A seed is a fold of ten-fold cross-validation: ``--seeds 10`` measures all. Tasks, words and folds are those of the
experiment ``free_energy_text``: words in at least two training documents, the same for all methods. Nothing is chosen
here. That damped counts, one score per word and unit norm suit these tasks was known before; scaling, objective and
step were chosen on movie reviews and Reuters, which are not among the tasks.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import Normalizer
from sklearn.svm import LinearSVC

from bagwise import FreeEnergyKernel, LatentDirichlet
from bagwise.kernels import DiagonalKernelLearner
from harness import ROOT, Row, timed

sys.path.insert(0, str(ROOT))
from experiments.free_energy_text import PUBLISHED, QUICK_DOCUMENTS, split_of
from experiments.text_methods import Fold, published_kernel
from experiments.text_tasks import Task, read_task

QUICK_TASKS = ("Comp", "Kitchen")


def earlier() -> FreeEnergyKernel:
    """What was the default before: variational topics, a score for each topic, weights in the unit ball."""
    return FreeEnergyKernel(
        LatentDirichlet(10, solver="vb", prior="fixed", init="random", topic_word_prior=0.01, random_state=0),
        word_block="topic",
        standardize=True,
        damping=None,
        normalize=None,
        learner=DiagonalKernelLearner("ball"),
    )


def methods() -> dict[str, tuple[str, Any]]:
    """Role and features of each method."""
    tfidf = TfidfTransformer(sublinear_tf=True)
    return {
        "FEK": ("default", FreeEnergyKernel()),
        "TF-IDF + FEK": ("variant", make_pipeline(make_union(tfidf, FreeEnergyKernel()), Normalizer())),
        "FEK, Gibbs, topics and words, prox": ("published", published_kernel()),
        "FEK, earlier default": ("variant", earlier()),
        "TF-IDF": ("plain", tfidf),
    }


@lru_cache(maxsize=16)
def task_of(name: str, data: Path, quick: bool) -> Task:
    """A task of the paper, cut to few documents for quick runs."""
    task = read_task(name, data)
    return task.take(np.sort(np.random.default_rng(0).permutation(len(task.y))[:QUICK_DOCUMENTS])) if quick else task


def measure(data: Path, seeds: Sequence[int], quick: bool) -> Iterator[Row]:
    """Error in % of each method on one fold of each task, then the mean over tasks."""
    for seed in seeds:
        rows = []
        for name in QUICK_TASKS if quick else PUBLISHED:
            task = task_of(name, data, quick)
            fold = Fold.of(task, *split_of(task, seed))
            for method, (role, features) in methods().items():
                # with the features of the published form, which are not of unit norm, it does not always converge
                svm = LinearSVC(max_iter=10_000, random_state=0)
                seconds, fitted = timed(lambda: make_pipeline(features, svm).fit(fold.train, fold.y))  # noqa: B023
                error = 100 * float(np.mean(fitted.predict(fold.test) != fold.y_test))
                rows.append(Row(name, method, role, seed, {"error": error}, seconds))
                yield rows[-1]
        for method, (role, _) in methods().items():
            same = [row for row in rows if row.method == method]
            mean = statistics.mean(row.measures["error"] for row in same)
            yield Row(
                "mean of tasks", method, role, seed, {"error": mean}, statistics.mean(row.seconds for row in same)
            )
