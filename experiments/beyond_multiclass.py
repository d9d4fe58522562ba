"""Merging words for all 15 scenes at once: what ratios of distances do there, why, and what helps them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import merge_words
from bagwise.baselines import DivisiveMerger
from bagwise.criteria import ClassPosterior, GaussianLikelihood
from bagwise.merging.pooling import pool
from experiments import sets
from experiments.classifying import linear_error
from experiments.differences import Difference, always, difference
from experiments.pages import Claim, Curves, Section, Table, mean_and_sd
from experiments.reducing import Task
from experiments.running import Cell, Options, Results
from experiments.wide_draws import drawn

PAPER = "beyond"
TITLE = "15 scenes at once"
DATA = ("scene15",)

SIZES = (10, 20, 50, 100, 200)
SHOWN = 50  # words, for what groups look like
PENALTIES = (1.0, 10.0, 100.0)
FAR = 5  # points
REPEATS = 5
LABELS = {
    "all": "all words",
    "aib": "AIB",
    "mlt": "MLT",
    "ditc": "DITC",
    "uvd": "UVD (evidence)",
    "gml": "GML",
    "mmi": "MMI, no labels",
    "linkage": "linkage, no labels",
    "lpp": "LPP, no labels",
    "csm": "CSM",
    "nda": "NDA, k = 10",
    "csm_shares": "CSM, L1",
    "csm_hellinger": "CSM by the Hellinger kernel",
    "csm_intersection": "CSM by the intersection kernel",
    "csm_standard": "CSM, words of the same variance",
    "csm_scaled": "CSM, sums over the root of their number",
    "csm_both": "CSM, the last two together",
}
RATIOS = ("csm", "nda", "lpp")
MENDED = ("csm_shares", "csm_standard", "csm_hellinger", "csm_intersection", "csm_scaled", "csm_both")
PER_WORD = ("aib", "mlt", "uvd", "gml")

Values = dict[tuple[str, int], dict[str, dict[str, float]]]


def cells(options: Options) -> list[Cell]:
    return [
        Cell(f"{draw:02d}/{method}", measure, {"options": options, "method": method, "draw": draw})
        for draw in range(options.repeats or (1 if options.quick else REPEATS))
        for method in LABELS
    ]


def prepare(options: Options) -> None:
    sets.scene15(options)


@lru_cache(maxsize=1)
def task_of(options: Options, draw: int) -> Task:
    words = sets.scene15(options)
    return Task.of(words, *drawn(words.y, words.train, draw), seed=draw)


def measure(options: Options, method: str, draw: int) -> dict[str, Any]:
    """Measure errors at all sizes on square roots of summed relative frequencies, and describe the groups."""
    task = task_of(options, draw)
    if method == "all":
        return {str(task.counts.shape[1]): {"error": _error(task, *task.roots)}}
    sizes = [size for size in SIZES if size < task.counts.shape[1]]
    found = {}
    for size, labels in groups(task, method, sizes):
        Z, Z_test = (np.sqrt(pool(X, labels, size)) for X in task.shares)
        found[str(size)] = {
            "error": _error(task, Z, Z_test),
            **shape(pool(task.roots[0], labels, size), task.y, labels),
        }
    return found


def _error(task: Task, Z: Any, Z_test: Any) -> float:
    return round(100 * linear_error(Z, task.y, Z_test, task.y_test, penalties=PENALTIES), 3)


def groups(task: Task, method: str, sizes: Sequence[int]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Groups of words at each size."""
    if method == "ditc":
        for size in sizes:
            yield size, DivisiveMerger(size).fit(task.counts, task.y).labels_
        return
    roots = task.roots[0]
    spread = roots.std(axis=0)
    standard = roots / np.where(spread > 0, spread, 1.0)
    if method in ("csm_scaled", "csm_both"):
        yield from scaled_ratio(standard if method == "csm_both" else roots, task.y, sizes)
        return
    name, _, way = method.partition("_")
    criterion: Any = {"uvd": ClassPosterior("evidence"), "gml": GaussianLikelihood()}.get(name, name)
    kernel = way if way in ("hellinger", "intersection") else "linear"
    if name in ("aib", "mlt", "mmi"):
        seen = task.counts
    elif way == "standard":
        seen = standard
    else:
        seen = task.shares[0] if way else roots
    hierarchy = merge_words(seen, task.y, criterion=criterion, kernel=kernel, n_groups=min(sizes), n_jobs=1)
    for size in sizes:
        yield size, hierarchy.cut(size)


def scaled_ratio(X: NDArray[Any], y: NDArray[Any], sizes: Sequence[int]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Merge by the ratio of traces of CSM where sums over a group are divided by the root of its number of words.

    Searches all pairs at all levels; sizes from the largest to the smallest.
    """
    centred = X - X.mean(axis=0)
    classes = np.array([np.sqrt(np.sum(y == c)) * centred[y == c].mean(axis=0) for c in np.unique(y)])
    traces = [classes.T @ classes, centred.T @ centred]
    n = np.ones(X.shape[1])
    labels = np.arange(X.shape[1])
    alive = labels.copy()
    for size in sorted(sizes, reverse=True):
        while len(alive) > size:
            both = n[:, np.newaxis] + n
            values = []
            for M in traces:
                own = np.diag(M)
                shares = own / n
                merged = (own[:, np.newaxis] + own + 2 * M) / both
                values.append(shares.sum() - shares[:, np.newaxis] - shares + merged)
            ratio = values[0] / values[1]
            np.fill_diagonal(ratio, -np.inf)
            s, t = sorted(divmod(int(np.argmax(ratio)), len(alive)))
            labels[labels == alive[t]] = alive[s]
            n[s] += n[t]
            left = np.delete(np.arange(len(alive)), t)
            for M in traces:
                M[s] += M[t]
                M[:, s] += M[:, t]
            traces = [M[np.ix_(left, left)] for M in traces]
            n, alive = n[left], alive[left]
        yield size, np.unique(labels, return_inverse=True)[1].astype(np.int64)


def shape(Z: NDArray[Any], y: NDArray[Any], labels: NDArray[Any]) -> dict[str, float]:
    """What merged words look like to a ratio of traces.

    ``largest``: words in the largest group. ``scatter``: share of all scatter that one word has. ``ratio``: scatter
    between classes over all scatter, what CSM maximises. ``directions``: in how many directions class means differ,
    ``(Σ e)² / Σ e²`` of the eigenvalues of the scatter between classes; from 1 to the number of classes less one.
    """
    scatter = Z.var(axis=0)
    means = np.array([Z[y == c].mean(axis=0) for c in np.unique(y)])
    weights = np.bincount(y, minlength=len(means))[np.unique(y)] / len(y)
    means = np.sqrt(weights)[:, np.newaxis] * (means - weights @ means)
    gram = means @ means.T
    return {
        "largest": int(np.bincount(labels).max()),
        "scatter": round(float(scatter.max() / scatter.sum()), 4),
        "ratio": round(float(np.trace(gram) / scatter.sum()), 4),
        "directions": round(float(np.trace(gram) ** 2 / np.sum(gram**2)), 3),
    }


def sections(results: Results) -> list[Section]:
    found: Values = {}
    for key, result in results.items():
        draw, method = key.split("/")
        for size, values in result.items():
            found.setdefault((method, 0 if method == "all" else int(size)), {})[draw] = values
    if not found:
        return []
    rows = []
    for method, label in LABELS.items():
        line = [_text(found, method, size) for size in SIZES]
        end = _text(found, method, 0)
        if end or any(line):
            rows.append([label, *line, end])
    tables = [Table("Error, %", ("words", *map(str, SIZES), "all"), rows)]
    looks = [
        [LABELS[method], *(_mean(found, method, SHOWN, name) for name in ("largest", "scatter", "ratio", "directions"))]
        for method in LABELS if (method, SHOWN) in found
    ]  # fmt: skip
    if looks:
        tables.append(Table(f"{SHOWN} words", ("", "words in the largest group", "its share of all scatter at most",
                                               "between classes over all scatter", "directions of class means"),
                            looks))  # fmt: skip
    series: dict[str, Any] = {}
    for method, label in LABELS.items():
        sizes = [size for size in SIZES if (method, size) in found]
        if sizes:
            series[label] = (sizes, [_mean(found, method, size, "error") for size in sizes], None)
    plots = [Curves("15 scenes at once, linear SVM", "words", "test error, %", series)] if series else []
    text = """
All 15 classes of Scene-15 at once: 100 training images a class, the others to test; the fixed draw, then random ones.
Groups are found by each criterion, AIB, MLT, DITC and MMI from counts, the others from Hellinger-normalised
histograms unless said otherwise; then all are treated alike: relative frequencies of a group are summed, and a linear
SVM gets square roots of the sums. A trace ratio adds up over words before it divides. One word with a large variance
between classes makes it large, and one direction does not separate 15 classes; for two classes, one direction is
enough. Directions are
(Σ e)² / Σ e² of the eigenvalues e of the scatter between classes, 14 at most."""
    return [Section("15 scenes at once", text, _claims(found), tables, plots)]


def _mean(found: Values, method: str, size: int, name: str) -> float | None:
    values = [one[name] for one in found.get((method, size), {}).values() if name in one]
    return float(np.mean(values)) if values else None


def _text(found: Values, method: str, size: int) -> str | None:
    return mean_and_sd(one["error"] for one in found.get((method, size), {}).values())


def _gap(found: Values, first: str, second: str, size: int) -> Difference | None:
    a, b = (found.get((method, size), {}) for method in (first, second))
    common = sorted(a.keys() & b.keys())
    return difference(np.array([a[k]["error"] - b[k]["error"] for k in common])) if common else None


def _claims(found: Values) -> list[Claim]:
    def told(method: str, name: str) -> str:
        value = _mean(found, method, SHOWN, name)
        return "?" if value is None else f"{value:.2f}"

    made = []
    for method in RATIOS:
        gap = _gap(found, method, "aib", SHOWN)
        turns, turns_aib = (_mean(found, name, SHOWN, "directions") for name in (method, "aib"))
        if gap is None or turns is None or turns_aib is None:
            continue
        made.append(Claim(
            f"{LABELS[method]} gives up directions of class means at {SHOWN} words; its error is far above that of AIB",
            always((gap.more_than(FAR), turns < turns_aib)),
            f"{gap} points. Class means differ in {turns:.2f} directions, with AIB in {turns_aib:.2f}; "
            f"scatter between classes is {told(method, 'ratio')} of all, with AIB {told('aib', 'ratio')}.",
        ))  # fmt: skip
    for method in MENDED:
        gap, left = _gap(found, method, "csm", SHOWN), _gap(found, method, "aib", SHOWN)
        if gap is not None and left is not None:
            made.append(Claim(
                f"{LABELS[method]}: better than CSM at {SHOWN} words",
                gap.below,
                f"{gap} points against CSM, {left} against AIB; {told(method, 'directions')} directions.",
            ))  # fmt: skip
    sums = {method: gap for method in PER_WORD if (gap := _gap(found, method, "csm", SHOWN)) is not None}
    if sums:
        shown = ", ".join(f"{LABELS[method]} {gap}" for method, gap in sums.items())
        made.append(Claim("Criteria that give each word a score of its own, and add up the scores, are better than CSM",
                          always(gap.below for gap in sums.values()), f"Points against CSM: {shown}."))  # fmt: skip
    return made
