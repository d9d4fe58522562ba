"""Test errors of methods along sizes, over tasks: measured, compared in pairs, and shown.

The result of a cell is ``{method: {classifier: {size: error}}}``, under the key ``task/group of methods``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.classifying import CLASSIFIERS, errors
from experiments.differences import Difference, difference, paired
from experiments.pages import Claim, Curves, Table, mean_and_sd
from experiments.reducing import SIZES, Task, reduced
from experiments.running import Results
from experiments.sets import SIZES as TABLED

__all__ = ["CRITERIA", "LABELS", "OTHERS", "Errors", "claims", "measured"]

LABELS = {
    "all": "all words",
    "csm": "CSM",
    "nda": "NDA, k = 40",
    "nda_local": "NDA, local k",
    "mfa": "MFA",
    "lde": "LDE",
    "aib": "AIB",
    "mlt": "MLT",
    "uvd": "UVD (evidence)",
    "mme": "MME",
    "ditc": "DITC",
    "linkage": "linkage",
    "mrmr": "mRMR",
    "plsa": "pLSA",
    "kmeans": "k-means, fewer words",
    "pca": "PCA",
    "hashing": "hashing",
    "lpp": "LPP",
    "mmi": "MMI",
    "bsc": "BSC",
    "pka": "PKA",
    "csm_late": "CSM, roots of sums",
    "aib_late": "AIB, roots of sums",
    "mlt_late": "MLT, roots of sums",
    "csm_histograms": "CSM, L1",
    "kmeans_histograms": "k-means, L1",
    "all_histograms": "all words, L1",
    "csm_counts": "CSM of counts",
    "uvd_counts": "UVD of counts (evidence)",
    "kmeans_counts": "k-means, counts",
    "all_counts": "all words, counts",
    "every": "every word",
    "csm_intersection": "CSM by the intersection kernel",
    "csm_hellinger": "CSM by the Hellinger kernel",
    "csm_chi2": "CSM by the chi² kernel",
    "csm_jensen_shannon": "CSM by the Jensen-Shannon kernel",
    "nda_near": "NDA, k = 5",
    "chi2": "chi² selection",
    "svd": "SVD",
    "tfidf": "all words, tf-idf",
}
WHOLE = ("all", "all_histograms", "all_counts", "every", "tfidf")  # methods that leave words as they are
# For tables and plots: criteria of merging, and what they are compared with.
CRITERIA = ("all", "csm", "nda", "nda_local", "mfa", "lde", "aib", "mlt", "uvd", "mme", "ditc")
OTHERS = ("linkage", "mrmr", "plsa", "kmeans", "pca", "hashing", "csm_late", "aib_late", "mlt_late", "all_histograms",
          "csm_histograms", "kmeans_histograms", "every")  # fmt: skip


def measured(
    task: Task, methods: Iterable[str], sizes: Sequence[int] = SIZES, classifiers: Sequence[str] = tuple(CLASSIFIERS)
) -> dict[str, Any]:
    """Errors of methods on a task: ``{method: {classifier: {size: error}}}``."""
    found: dict[str, Any] = {}
    for method in methods:
        lines = found.setdefault(method, {})
        for size, Z, Z_test in reduced(task, method, sizes):
            for name, error in errors(Z, task.y, Z_test, task.y_test, classifiers).items():
                lines.setdefault(name, {})[str(size)] = error
    return found


class Errors:
    """Errors by task, method, classifier and size, in percent.

    Parameters
    ----------
    results : Results
    tasks : str
        Prefix of the keys to take.
    """

    def __init__(self, results: Results, tasks: str = "") -> None:
        self._values: dict[tuple[str, str, int], dict[str, float]] = {}
        for key, result in results.items(tasks):
            task = key.rsplit("/", 1)[0]
            for method, lines in result.items():
                for classifier, line in lines.items():
                    for size, error in line.items():
                        self._values.setdefault((method, classifier, int(size)), {})[task] = 100 * error
        self.methods = [name for name in LABELS if any(key[0] == name for key in self._values)]

    def sizes(self, method: str, classifier: str) -> list[int]:
        """Sizes at which a method was measured."""
        return sorted(size for name, how, size in self._values if (name, how) == (method, classifier))

    def n_tasks(self, method: str, classifier: str) -> int:
        """On how many tasks a method was measured."""
        return len(set().union(*(self._tasks(method, classifier, size) for size in self.sizes(method, classifier))))

    def line(self, method: str, classifier: str) -> dict[int, NDArray[np.float64]]:
        """Errors over tasks by size; without sizes that some of the tasks are too small for."""
        n = self.n_tasks(method, classifier)
        found = {size: self.values(method, classifier, size) for size in self.sizes(method, classifier)}
        return {size: values for size, values in found.items() if len(values) == n}

    def values(self, method: str, classifier: str, size: int | None = None) -> NDArray[np.float64]:
        """Errors over tasks, of a method that leaves words as they are if no size is given."""
        return np.array(list(self._tasks(method, classifier, size).values()))

    def mean(self, method: str, classifier: str, size: int | None = None) -> float | None:
        """Mean error over tasks."""
        values = self.values(method, classifier, size)
        return float(values.mean()) if len(values) else None

    def text(self, method: str, classifier: str, size: int | None = None) -> str | None:
        """Mean and standard deviation over tasks, or the error on the only one."""
        return mean_and_sd(self.values(method, classifier, size))

    def difference(self, first: tuple[str, str, int | None], second: tuple[str, str, int | None]) -> Difference | None:
        """Compare two (method, classifier, size) on the tasks that both have."""
        return paired(self._tasks(*first), self._tasks(*second))

    def rivals(
        self, method: str, others: Iterable[str], classifier: str, sizes: Iterable[int]
    ) -> list[tuple[str, int, Difference]]:
        """Differences between a method and others at sizes, where both were measured."""
        found = []
        for size in sizes:
            for other in others:
                gap = self.difference((method, classifier, size), (other, classifier, size))
                if gap is not None and other != method:
                    found.append((other, size, gap))
        return found

    def mean_lead(self, method: str, others: Iterable[str], classifier: str, size: int) -> dict[str, float]:
        """By task, the error of a method less the mean error of others; on tasks that have all."""
        mine, *theirs = (self._tasks(name, classifier, size) for name in (method, *others))
        common = mine.keys() & set.intersection(*(set(tasks) for tasks in theirs))
        return {task: mine[task] - float(np.mean([tasks[task] for tasks in theirs])) for task in common}

    def mean_difference(
        self, first: tuple[str, str], second: tuple[str, str], sizes: Iterable[int]
    ) -> Difference | None:
        """Compare two (method, classifier) in the mean over sizes, on the tasks that have both at all sizes."""
        lines = [[self._tasks(*which, size) for size in sizes] for which in (first, second)]
        common = sorted(set.intersection(*(set(tasks) for line in lines for tasks in line)))
        a, b = (np.array([[tasks[task] for task in common] for tasks in line]) for line in lines)
        return difference((a - b).mean(axis=0)) if common else None

    def tables(
        self, title: str, classifiers: dict[str, str], methods: Iterable[str], sizes: Sequence[int] = TABLED
    ) -> list[Table]:
        """Methods by sizes, means and standard deviations in percent; one table for each classifier."""
        found = []
        for classifier, label in classifiers.items():
            rows = []
            for method, name in self._labels(methods, classifier).items():
                line = {} if method in WHOLE else self.line(method, classifier)
                cells = [mean_and_sd(line.get(size, ())) for size in sizes]
                cells.append(self.text(method, classifier) if method in WHOLE else None)
                if any(cells):
                    rows.append([name, *cells])
            if rows:
                found.append(Table(f"{title}: {label}", ("error, %", *map(str, sizes), "all"), rows))
        return found

    def plots(self, title: str, classifiers: dict[str, str], methods: Iterable[str]) -> list[Curves]:
        """Means along sizes with their standard errors; one plot for each classifier."""
        found = []
        for classifier, label in classifiers.items():
            series = {}
            for method, name in self._labels(methods, classifier).items():
                line = self.line(method, classifier)
                if method in WHOLE or not line:
                    continue
                n = self.n_tasks(method, classifier)
                spread = None if n < 2 else [float(v.std(ddof=1) / np.sqrt(n)) for v in line.values()]
                series[name] = (list(line), [float(v.mean()) for v in line.values()], spread)
            if series:
                found.append(Curves(f"{title}: {label}", "words", "test error, %", series))
        return found

    def _labels(self, methods: Iterable[str], classifier: str) -> dict[str, str]:
        """Names of the methods that were measured; those on fewer tasks than others say so."""
        counts = {method: n for method in methods if (n := self.n_tasks(method, classifier))}
        most = max(counts.values(), default=0)
        return {method: LABELS[method] + (f" [{n} of {most}]" if n < most else "") for method, n in counts.items()}

    def _tasks(self, method: str, classifier: str, size: int | None) -> dict[str, float]:
        if size is None:
            only = self.sizes(method, classifier)
            found: dict[str, float] = {}
            for one in only:  # vocabularies of the same kind may differ in size from task to task
                found |= self._values[method, classifier, one]
            return found
        return self._values.get((method, classifier, size), {})


def claims(*given: Claim | None) -> list[Claim]:
    """Leave out what cannot be said yet."""
    return [claim for claim in given if claim is not None]
