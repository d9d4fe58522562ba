"""Speed of the criteria beside class separability, of merging in kernel space, and of kernel matrices.

    python benchmarks/criteria.py           # about 10 minutes on 2 cores
    python benchmarks/criteria.py --quick   # small sizes, to see that it works
    python benchmarks/criteria.py --sums    # only the search for sums over words

Goals and published times are printed beside; the latter were measured on machines of their time.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import scipy.sparse as sp

import bagwise
from bagwise import merge_words
from bagwise.criteria import ClassPosterior, InformationLoss
from bagwise.kernels import additive_kernel
from bagwise.merging.engine import Engine
from bagwise.merging.kernel_rows import KernelTraces
from bagwise.merging.neighbors import ApproximateNeighbors, ExactNeighbors
from bagwise.merging.scoring import WeightLoss
from bagwise.merging.searches.base import Search
from bagwise.merging.searches.partners import PartnerSearch
from bagwise.merging.searches.sums import SumSearch
from harness import PeakMemory, in_fresh_process, machine, peak_memory, print_table, print_targets, timed


def class_data(n_words: int, n_classes: int, per_class: int = 10) -> tuple[Any, Any]:
    """Counts whose means differ by class, all different: no ties."""
    rng = np.random.default_rng(0)
    means = rng.gamma(1.0, 3.0, (n_classes, n_words))
    y = np.repeat(np.arange(n_classes), per_class)
    return rng.poisson(means[y]).astype(np.float64), y


def text_data(n_words: int, n_classes: int, n_samples: int = 10_000, length: int = 100) -> tuple[Any, Any]:
    """Texts with words by Zipf's law and topics by class: most words are rare, so many have equal counts."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n_samples)
    zipf = 1.0 / np.arange(1, n_words + 1)
    tilt = rng.gamma(0.5, 2.0, (n_classes, n_words))
    rows, columns = [], []
    for c in range(n_classes):
        own = np.flatnonzero(y == c)
        p = zipf * tilt[c]
        rows.append(np.repeat(own, length))
        columns.append(rng.choice(n_words, size=len(own) * length, p=p / p.sum()))
    entries = (np.ones(n_samples * length), (np.concatenate(rows), np.concatenate(columns)))
    return sp.csr_array(sp.coo_array(entries, shape=(n_samples, n_words))), y


def additive_rows(quick: bool) -> list[dict[str, Any]]:
    scale = 10 if quick else 1
    cases = [
        ("AIB", 4000 // scale, "10 classes, dense", InformationLoss(0), class_data(4000 // scale, 10), 0.4,
         "VLFeat's AIB: 23 s on this problem"),
        ("AIB", 1000 // scale, "10 classes, dense", InformationLoss(0), class_data(1000 // scale, 10), None,
         "VLFeat's AIB: 0.75-1.0 s"),
        ("AIB", 20_000 // scale, "20 classes, text with ties", "aib", text_data(20_000 // scale, 20), 6.0, ""),
        ("MMI", 2000 // scale, "1000 sparse samples", "mmi", text_data(2000 // scale, 2, 1000, 40), 1.0, ""),
        ("MLT", 2000 // scale, "2 classes", "mlt", class_data(2000 // scale, 2, 50), None, ""),
        ("UVD", 300 // scale, "posterior, 100 samples, 2 classes", "uvd", class_data(300 // scale, 2, 50), None,
         "published: 1624 s for 1000 words"),
        ("UVD", 1000 // scale, "evidence, 100 samples, 2 classes", ClassPosterior("evidence"),
         class_data(1000 // scale, 2, 50), None, "published: 1624 s for 1000 words"),
        ("MME", 500 // scale, "100 samples, 2 classes", "mme", class_data(500 // scale, 2, 50), None,
         "published: 9891 s for 4000 words"),
    ]  # fmt: skip
    rows = []
    for name, words, kind, criterion, (X, y), goal, note in cases:
        repeats = 3 if goal else 1  # other programs may have used the machine
        seconds = min(timed(lambda: merge_words(X, y, criterion=criterion, n_jobs=2))[0] for _ in range(repeats))  # noqa: B023
        rows.append({"criterion": name, "words": words, "data": kind, "seconds": seconds, "goal": goal, "note": note})
    return rows


def word_weights(n_words: int, n_classes: int, of_text: bool) -> WeightLoss:
    """Weights as a classifier of texts has them, log ratios of counts; or at random."""
    rng = np.random.default_rng(0)
    if not of_text:
        return WeightLoss(rng.gamma(0.3, size=n_words) + 1e-3, rng.normal(size=(n_words, n_classes)))
    rates = 10 * n_words / np.arange(2, n_words + 2)[:, np.newaxis] * rng.dirichlet(np.full(n_classes, 0.5), n_words)
    logs = np.log(rng.poisson(rates) + 0.5)
    return WeightLoss(rates.sum(axis=1).round() + 1, logs - logs.mean(axis=1, keepdims=True))


def merge_all(search: Search) -> None:
    n_merges = search.n_words - 1
    search.advance(np.empty((n_merges, 2), dtype=np.int64), np.empty(n_merges))


def sum_row(name: str, n_words: int, n_classes: int, peer: bool = False, repeats: int = 1) -> dict[str, Any]:
    """The search for sums alone, on two threads, beside the one that takes any scoring, and Ward's linkage of SciPy."""
    from scipy.cluster.hierarchy import linkage

    merge_words(np.eye(8) + 1, np.arange(8) % 2, criterion="aib")  # loads what is compiled

    def scoring() -> Any:
        if name.startswith("classifier"):
            return word_weights(n_words, n_classes, of_text=name.endswith("text"))
        ties = name.endswith("ties")
        X, y = text_data(n_words, n_classes) if ties else class_data(n_words, n_classes)
        criterion = "mlt" if name.startswith("MLT") else InformationLoss(0.5 if ties else 0)
        return Engine(criterion).load(X, y).data.scoring()

    ready, times = scoring(), list[tuple[float, float]]()
    numbers = np.unique(ready.ties(), return_inverse=True)[1].reshape(-1)
    states = np.zeros((numbers.max() + 1, ready.states.shape[1]))
    np.add.at(states, numbers, ready.states)
    for _ in range(repeats):
        ready.states, started = states.copy(), time.process_time()
        seconds, search = timed(lambda: SumSearch(ready, 2))
        seconds += timed(lambda: merge_all(search))[0]  # noqa: B023
        times.append((seconds, time.process_time() - started))
    row = {
        "criterion": name, "words": n_words, "classes": n_classes, "distinct": len(states),
        "seconds": min(seconds for seconds, _ in times), "processor": min(processor for _, processor in times),
        "costs": search.work["pairs_evaluated"] / len(states), "memory": (peak_memory() or np.nan) / 2**20,
    }  # fmt: skip
    if peer:
        ready.states = states.copy()
        row["peer"] = timed(lambda: merge_all(PartnerSearch(ready)))[0]
        row["ratio"] = row["peer"] / row["seconds"]
        if name.startswith("classifier"):
            row["scipy"] = timed(lambda: linkage(states[:, 1:] / states[:, :1], "ward"))[0] / row["seconds"]
    return row


def sum_rows(quick: bool) -> list[dict[str, Any]]:
    scale = 10 if quick else 1
    cases = [("AIB", d // scale, 10, d <= 4000, 3) for d in (1000, 2000, 4000, 8000, 16_000)]
    cases += [("MLT", 4000 // scale, 10, True, 3), ("MLT, text with ties", 4000 // scale, 20, False, 1)]
    cases += [("AIB, text with ties", d // scale, 20, False, 1) for d in (20_000, 100_000)]
    cases += [("classifier", 4000 // scale, 20, True, 3), ("classifier", 20_000 // scale, 20, False, 1)]
    cases += [(name, 100_000 // scale, 20, False, 1) for name in ("classifier of text", "classifier")]
    return [
        in_fresh_process(__file__, "sum_row", name=name, n_words=d, n_classes=C, peer=peer, repeats=repeats)
        for name, d, C, peer, repeats in cases
    ]


def kernel_rows(n_words: int, kernels: tuple[str, ...]) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 100, (200, n_words)).astype(np.float64), np.arange(200) % 2
    linear, _ = timed(lambda: merge_words(X, y, criterion="csm"))
    rows = [{"kernel": "linear", "words": n_words, "seconds": linear}]
    original = KernelTraces.trace
    for kernel in kernels:
        spent = 0.0
        depth = 0

        def counting(self, structure, values):
            nonlocal spent, depth
            depth += 1
            seconds, result = timed(lambda: original(self, structure, values))
            depth -= 1
            spent += seconds if depth == 0 else 0.0
            return result

        KernelTraces.trace = counting  # type: ignore[method-assign]
        try:
            seconds, _ = timed(lambda: merge_words(X, y, kernel=kernel))  # noqa: B023
        finally:
            KernelTraces.trace = original  # type: ignore[method-assign]
        rows.append({"kernel": kernel, "words": n_words, "seconds": seconds, "traces": f"{spent / seconds:.0%}"})
    return rows


def gram_row(n: int, d: int) -> dict[str, Any]:
    X = sp.random_array((n, d), density=0.01, format="csr", rng=np.random.default_rng(0))
    additive_kernel(X[:10])
    with PeakMemory() as memory:
        ours, K = timed(lambda: additive_kernel(X))
    some = 20

    def blocks_of_numpy() -> Any:
        dense = X.toarray()
        return np.array([np.minimum(dense[i], dense).sum(axis=1) for i in range(some)])

    plain, part = timed(blocks_of_numpy)
    np.testing.assert_allclose(K[:some], part, atol=1e-9)
    return {
        "samples": n, "words": d, "ours": ours, "numpy": plain / some * n, "ratio": plain / some * n / ours,
        "memory": memory.growth / K.nbytes,
    }  # fmt: skip


def neighbor_rows(n: int, d: int, k: int = 40) -> list[dict[str, Any]]:
    """Find neighbours exactly and by faiss: counts around 10 centres, which are the classes: the hardest case."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, n)
    centres = rng.dirichlet(np.full(d, 0.3), 10)
    rates = rng.gamma(20 * centres[y] + 0.01)
    X = rng.poisson(rng.lognormal(5.0, 0.8, (n, 1)) * rates / rates.sum(axis=1, keepdims=True)) + 0.0
    rows = []
    for metric in ("euclidean", "intersection"):
        for who in ("all", "other"):
            exact, right = timed(lambda: ExactNeighbors(X, metric).graph(k, y, who))  # noqa: B023
            ours, found = timed(lambda: ApproximateNeighbors(X, metric).graph(k, y, who))  # noqa: B023
            rows.append({
                "samples": n, "words": d, "metric": metric, "who": who, "exact": exact, "faiss": ours,
                "ratio": exact / ours, "recall": right.multiply(found).nnz / right.nnz,
            })  # fmt: skip
    return rows


def selection_row(d: int, n: int, k: int) -> dict[str, Any]:
    """Measure mRMR beside the package mrmr-selection, where that is installed (pip install mrmr-selection)."""
    from bagwise.baselines import MinRedundancyMaxRelevance

    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, d)) + (rng.random(d) < 0.05) * y[:, None]
    MinRedundancyMaxRelevance(2).fit(X[:, :5], y)
    ours, _ = timed(lambda: MinRedundancyMaxRelevance(k).fit(X, y))
    row: dict[str, Any] = {"features": d, "samples": n, "chosen": k, "ours": ours, "peer": None}
    try:
        import pandas as pd
        from mrmr import mrmr_classif
    except ImportError:
        return row | {"note": "mrmr-selection is not installed"}
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(d)])
    row["peer"], _ = timed(lambda: mrmr_classif(X=frame, y=pd.Series(y), K=k, show_progress=False, n_jobs=1))
    return row | {"ratio": row["peer"] / ours, "note": "the peer ranks by F and correlation, not mutual information"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--sums", action="store_true", help="only the search for sums over words")
    options = parser.parse_args()
    started = time.perf_counter()
    print(" · ".join(f"{key} {value}" for key, value in machine().items()), "\n")
    sums = sum_rows(options.quick)
    print(
        "The search for sums over words, two threads, beside the search for any scoring (and Ward's linkage of SciPy)\n"
    )
    print_table(sums, {"criterion": "criterion", "words": "words", "classes": "classes", "distinct": "distinct",
                       "seconds": "seconds", "processor": "processor, s", "costs": "costs a word",
                       "memory": "process, MiB",
                       "peer": "any scoring", "ratio": "ratio", "scipy": "SciPy / ours"})  # fmt: skip
    of_aib = [row for row in sums if row["criterion"] == "AIB"]
    slope = np.polyfit(np.log([r["words"] for r in of_aib]), np.log([r["seconds"] for r in of_aib]), 1)[0]
    by_name = {(row["criterion"], row["words"]): row["seconds"] for row in sums}
    of_mlt = next(row for row in sums if row["criterion"] == "MLT")
    print(f"AIB: time grows as words to the power {slope:.2f}")
    print(f"MLT / AIB, {of_mlt['words']} words: {of_mlt['seconds'] / by_name['AIB', of_mlt['words']]:.1f}\n")
    if not options.quick:
        print("Goals")
        print_targets([
            ("AIB 100,000 words, text with ties", by_name["AIB, text with ties", 100_000], "<=", 120.0),
            ("MLT / AIB, 4000 words", by_name["MLT", 4000] / by_name["AIB", 4000], "<=", 4.0),
            ("classifier 100,000 words, text", by_name["classifier of text", 100_000], "<=", 60.0),
            ("classifier 100,000 words, random", by_name["classifier", 100_000], "<=", 60.0),
        ])  # fmt: skip
    if options.sums:
        return

    bagwise.warmup()
    rows = additive_rows(options.quick)
    print_table(rows, {"criterion": "criterion", "words": "words", "data": "data", "seconds": "seconds",
                       "goal": "goal", "note": "elsewhere"})  # fmt: skip
    small, large = (60, 100) if options.quick else (300, 1000)
    kernels = kernel_rows(large, ("intersection", "hellinger"))
    print("Class separability in the space of a kernel, 200 samples of 2 classes\n")
    everything = kernels + kernel_rows(small, ("intersection", "hellinger", "chi2", "jensen_shannon"))
    print_table(everything, {"kernel": "kernel", "words": "words", "seconds": "seconds", "traces": "share in traces"})
    n, d = (200, 2000) if options.quick else (2000, 20_000)
    gram = in_fresh_process(__file__, "gram_row", n=n, d=d)
    print("Intersection kernel matrix, CSR, 1 % filled (NumPy: made dense, row by row; extrapolated from 20 rows)\n")
    print_table([gram], {"samples": "samples", "words": "words", "ours": "seconds", "numpy": "NumPy", "ratio": "ratio",
                         "memory": "peak memory / result"})  # fmt: skip
    print("Neighbours, exact and by faiss (approximate=True), one thread\n")
    print_table(neighbor_rows(*((1000, 50) if options.quick else (20_000, 200))),
                {"samples": "samples", "words": "words", "metric": "metric", "who": "classes", "exact": "exact, s",
                 "faiss": "faiss, s", "ratio": "ratio", "recall": "recall"})  # fmt: skip
    selection = selection_row(*((300, 200, 20) if options.quick else (5000, 1000, 200)))
    print("mRMR\n")
    print_table([selection], {"features": "features", "samples": "samples", "chosen": "chosen", "ours": "seconds",
                              "peer": "mrmr-selection", "ratio": "ratio", "note": "note"})  # fmt: skip

    if not options.quick:
        print("Goals")
        targets = [
            (f"{r['criterion']} {r['words']} words, {r['data']}", r["seconds"], "<=", r["goal"])
            for r in rows
            if r["goal"]
        ]
        targets += [
            (
                "intersection, 1000 words: seconds - 15 x linear",
                kernels[1]["seconds"] - 15 * kernels[0]["seconds"],
                "<=",
                5.0,
            ),
            ("intersection Gram: NumPy / ours", gram["ratio"], ">=", 10.0),
            ("intersection Gram: memory / result", gram["memory"], "<=", 4.0),
        ]
        if "ratio" in selection:
            targets.append(("mRMR: mrmr-selection / ours", selection["ratio"], ">=", 5.0))
        print_targets(targets)
    print(f"({time.perf_counter() - started:.0f} s in all)")


if __name__ == "__main__":
    main()
