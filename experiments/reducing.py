"""Ways to make few columns of many words: merging by every criterion, selection, topics, projections.

A reducer learns from the training part of a `Task` and gives, for each size asked for, the features of both parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold

from bagwise import SketchMerger, merge_words
from bagwise.baselines import DivisiveMerger, HashMerger, MinRedundancyMaxRelevance
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.criteria import ClassPosterior, Criterion, NonparametricDiscriminant
from bagwise.merging.pooling import pool
from bagwise.topics import PLSA
from experiments import sets
from experiments.classifying import fixed_linear_error, neighbors_error

__all__ = ["METHODS", "SIZES", "Task", "local_neighbors", "reduced"]

# Those of the tables, and one at which the papers saw errors rise before they fall.
SIZES = (*sets.SIZES, 800)
# Neighbours to choose from where NDA is to be local, and the sizes at which they are compared.
LOCAL = (3, 5, 10, 20, 40)
COMPARED = (5, 20, 100)
MOST_TOPICS = 200  # beyond, topics take more time than all other methods together
ROOTED = ("l1", "power")

Reduced = Iterator[tuple[int, Any, Any]]
Reducer = Callable[["Task", Sequence[int]], Reduced]


@dataclass(frozen=True)
class Task:
    """Counts of words in training and test samples.

    Attributes
    ----------
    counts, counts_test : ndarray or CSR array of shape (n, d)
    y, y_test : ndarray of shape (n,)
    fewer : dict
        Training and test counts of vocabularies with fewer words.
    seed : int
        For what is random in a method.
    """

    counts: Any
    y: NDArray[np.int64]
    counts_test: Any
    y_test: NDArray[np.int64]
    fewer: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    seed: int = 0

    @classmethod
    def of(
        cls, words: sets.Words, train: NDArray[np.intp], test: NDArray[np.intp], seed: int = 0, sparse: bool = False
    ) -> Task:
        """Take training and test rows of a data set."""

        def rows(X: sp.csr_array, chosen: NDArray[np.intp]) -> Any:
            part = X[chosen].astype(np.float64)
            return part if sparse else part.toarray()

        fewer = {size: (rows(X, train), rows(X, test)) for size, X in words.fewer.items()}
        return cls(rows(words.X, train), words.y[train], rows(words.X, test), words.y[test], fewer, seed)

    @cached_property
    def shares(self) -> tuple[Any, Any]:
        """Histograms that sum to 1."""
        return normalize_rows(self.counts, "l1"), normalize_rows(self.counts_test, "l1")

    @cached_property
    def roots(self) -> tuple[Any, Any]:
        """Hellinger normalisation: L1, then square root."""
        return normalize_rows(self.counts, ROOTED), normalize_rows(self.counts_test, ROOTED)

    def view(self, name: str) -> tuple[Any, Any]:
        """Counts, relative frequencies or Hellinger-normalised rows, of training and of test samples."""
        return (self.counts, self.counts_test) if name == "counts" else getattr(self, name)

    def part(self, rows: NDArray[np.intp], held: NDArray[np.intp]) -> Task:
        """A task within the training samples."""
        return Task(self.counts[rows], self.y[rows], self.counts[held], self.y[held], seed=self.seed)


def reduced(task: Task, method: str, sizes: Sequence[int]) -> Reduced:
    """Sizes and features, training and test, of a method by its name in `METHODS`."""
    usable = [size for size in sizes if size < task.counts.shape[1]]
    yield from METHODS[method](task, usable)


def _merged(task: Task, labels: NDArray[np.int64], size: int, features: str) -> tuple[int, Any, Any]:
    """Sum words of a group, in one of the normalisations; "late roots": square roots are taken of the sums."""
    summed = [pool(X, labels, size) for X in task.view("shares" if features == "late roots" else features)]
    return (size, *(np.sqrt(Z) if features == "late roots" else Z for Z in summed))


def _merging(
    criterion: str | Criterion | Callable[[Task], Criterion],
    on: str = "roots",
    features: str = "roots",
    kernel: str = "linear",
) -> Reducer:
    """Merge by a criterion that looks at counts, relative frequencies or Hellinger-normalised rows."""

    def reduce(task: Task, sizes: Sequence[int]) -> Reduced:
        if not sizes:
            return
        rule = criterion(task) if callable(criterion) else criterion
        hierarchy = merge_words(task.view(on)[0], task.y, criterion=rule, kernel=kernel, n_groups=min(sizes), n_jobs=1)
        for size in sizes:
            yield _merged(task, hierarchy.cut(size), size, features)

    return reduce


def local_neighbors(task: Task) -> int:
    """The number of neighbours for NDA, chosen on training samples alone: 5 folds, linear SVM and 5-NN together."""
    folds = StratifiedKFold(5, shuffle=True, random_state=task.seed)
    wrong = np.zeros(len(LOCAL))
    for rows, held in folds.split(task.y, task.y):
        part = task.part(rows, held)
        for k, n_neighbors in enumerate(LOCAL):
            nda = _merging(NonparametricDiscriminant(n_neighbors, n_neighbors))
            for _, Z, Z_held in nda(part, [size for size in COMPARED if size < task.counts.shape[1]]):
                wrong[k] += fixed_linear_error(Z, part.y, Z_held, part.y_test)
                wrong[k] += neighbors_error(Z, part.y, Z_held, part.y_test)
    return LOCAL[int(np.argmin(wrong))]


def _local_nda(task: Task) -> Criterion:
    n_neighbors = local_neighbors(task)
    return NonparametricDiscriminant(n_neighbors, n_neighbors)


def _divisive(task: Task, sizes: Sequence[int]) -> Reduced:
    for size in sizes:
        yield _merged(task, DivisiveMerger(size).fit(task.counts, task.y).labels_, size, "roots")


def _selection(task: Task, sizes: Sequence[int]) -> Reduced:
    if not sizes:
        return
    X, X_test = task.roots
    ranking = MinRedundancyMaxRelevance(max(sizes)).fit(X, task.y).ranking_
    for size in sizes:
        yield size, X[:, ranking[:size]], X_test[:, ranking[:size]]


def _topics(task: Task, sizes: Sequence[int]) -> Reduced:
    for size in sizes:
        if size > MOST_TOPICS:
            continue
        model = PLSA(size, n_jobs=1, random_state=task.seed).fit(task.counts)
        yield size, np.sqrt(model.transform(task.counts)), np.sqrt(model.transform(task.counts_test))


def _fewer_words(features: str) -> Reducer:
    """Vocabularies learned with fewer words from the start."""

    def reduce(task: Task, sizes: Sequence[int]) -> Reduced:
        for size in sizes:
            if size in task.fewer:
                train, test = task.fewer[size]
                yield size, *Task(train, task.y, test, task.y_test).view(features)

    return reduce


def _components(task: Task, sizes: Sequence[int]) -> Reduced:
    """Principal components, as many as the training samples have."""
    X, X_test = (X.toarray() if sp.issparse(X) else X for X in task.roots)
    sizes = [size for size in sizes if size < min(X.shape)]
    if sizes:
        model = PCA(max(sizes), svd_solver="full").fit(X)
        Z, Z_test = model.transform(X), model.transform(X_test)
        for size in sizes:
            yield size, Z[:, :size], Z_test[:, :size]


def _hashing(task: Task, sizes: Sequence[int]) -> Reduced:
    X, X_test = task.roots
    for size in sizes:
        hashed = HashMerger(size, random_state=task.seed).fit(X)
        yield size, hashed.transform(X), hashed.transform(X_test)


def _sketching(n_neighbors: int) -> Reducer:
    def reduce(task: Task, sizes: Sequence[int]) -> Reduced:
        X, X_test = task.roots
        if not sizes:
            return
        merger = SketchMerger(max(sizes), n_neighbors=n_neighbors, n_init=3, random_state=task.seed, n_jobs=1).fit(X)
        for size in sizes:
            merger.set_params(n_groups=size)
            yield size, merger.transform(X), merger.transform(X_test)

    return reduce


def _as_they_are(features: str) -> Reducer:
    def reduce(task: Task, sizes: Sequence[int]) -> Reduced:
        yield task.counts.shape[1], *task.view(features)

    return reduce


# Trace ratio criteria see the features themselves, Hellinger-normalised; criteria of probabilities see counts. Then all
# are treated alike: Hellinger-normalised words are summed. "late": relative frequencies are summed, square roots are
# taken of the sums. "histograms": L1 alone, before and after. "counts": not even divided by their sum.
METHODS: dict[str, Reducer] = {
    "all": _as_they_are("roots"),
    "csm": _merging("csm"),
    "nda": _merging(NonparametricDiscriminant(40, 40)),
    "nda_local": _merging(_local_nda),
    "mfa": _merging("mfa"),
    "lde": _merging("lde"),
    "aib": _merging("aib", on="counts"),
    "mlt": _merging("mlt", on="counts"),
    "uvd": _merging(ClassPosterior("evidence")),
    "mme": _merging("mme"),
    "ditc": _divisive,
    "linkage": _merging("linkage"),
    "mrmr": _selection,
    "plsa": _topics,
    "kmeans": _fewer_words("roots"),
    "pca": _components,
    "hashing": _hashing,
    "lpp": _merging("lpp"),
    "mmi": _merging("mmi", on="counts"),
    "bsc": _sketching(0),
    "pka": _sketching(10),
    "csm_late": _merging("csm", on="shares", features="late roots"),
    "aib_late": _merging("aib", on="counts", features="late roots"),
    "mlt_late": _merging("mlt", on="counts", features="late roots"),
    "all_histograms": _as_they_are("shares"),
    "csm_histograms": _merging("csm", on="shares", features="shares"),
    "kmeans_histograms": _fewer_words("shares"),
    "all_counts": _as_they_are("counts"),
    "csm_counts": _merging("csm", on="counts", features="counts"),
    "uvd_counts": _merging(ClassPosterior("evidence"), on="counts", features="counts"),
    "kmeans_counts": _fewer_words("counts"),
} | {
    f"csm_{kernel}": _merging("csm", on="shares", features="shares", kernel=kernel)
    for kernel in ("intersection", "hellinger", "chi2", "jensen_shannon")
}
