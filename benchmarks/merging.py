"""Speed and memory of merging: forming A and B, the three searches, and scikit-learn's FeatureAgglomeration.

    python benchmarks/merging.py            # everything, about 5 minutes on 2 cores
    python benchmarks/merging.py --quick    # small sizes, to see that it works

Two kinds of data: counts uniform in 0..99 for 100 samples of 2 classes (the setting of the 2008 paper, dense), and
counts drawn from topics (sparse, 2000 samples). Each size runs in a process of its own, after compiling. Times are the
best of five in that process: memory that the system hands out for the first time can cost seconds, which would flatter
the search beside the forming of A and B; the first time is shown apart. The exhaustive search is measured whole up to
2000 words, extrapolated from its first levels at 4000 (marked ~) and left out beyond.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import PeakMemory, in_fresh_process, machine, median_time, print_table, print_targets, timed

SIZES = (1000, 2000, 4000, 10_000)
QUICK_SIZES = (300, 600)
WHOLE_EXHAUSTIVE = 2000
MOST_EXHAUSTIVE = 4000
MOST_AGGLOMERATION = 10_000


def make_data(kind: str, d: int) -> tuple[Any, Any]:
    """Make (X, y)."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    if kind == "uniform":
        return rng.integers(0, 100, (100, d)).astype(np.float64), np.arange(100) % 2
    n_samples, n_topics = 2000, 20
    topics = rng.dirichlet(np.full(d, 50 / d), size=n_topics)
    mixtures = rng.dirichlet(np.full(n_topics, 0.1), size=n_samples)
    rows = []
    for mixture in mixtures:
        words = rng.choice(d, size=200, p=mixture @ topics)
        rows.append(sp.csr_array(np.bincount(words, minlength=d)[np.newaxis].astype(np.float64)))
    X = sp.lil_array(sp.vstack(rows))
    for word in np.flatnonzero(X.sum(axis=0) == 0):  # a vocabulary has only words that occur
        X[rng.integers(n_samples), word] = 1.0
    return sp.csr_array(X), (mixtures[:, : n_topics // 2].sum(axis=1) > 0.5).astype(int)


def measure_search(kind: str, d: int, search: str, repeats: int, levels: int | None, n_jobs: int) -> dict[str, Any]:
    """Form A and B and merge to two words: best seconds of both, row scans, and peak memory."""
    import numpy as np

    import bagwise
    from bagwise.merging.criteria import ClassSeparability
    from bagwise.merging.rows import DenseRows
    from bagwise.merging.searches.ratios import SEARCHES

    bagwise.warmup()
    X, y = make_data(kind, d)
    n_merges = d - 2 if levels is None else levels
    forming, searching, work = [], [], {}
    growth = []
    for _ in range(repeats):
        with PeakMemory() as memory:
            seconds, store = timed(lambda: DenseRows.of(X, *ClassSeparability().structures(X, y), n_threads=n_jobs))
            forming.append(seconds)

            def merge(store=store):
                running = SEARCHES[search](store, n_jobs)
                running.advance(np.empty((n_merges, 2), dtype=np.int64), np.empty(n_merges))
                return running.work

            seconds, work = timed(merge)
            searching.append(seconds)
        growth.append(memory.growth)
        del store, merge
    return {
        "form": min(forming),
        "form_first": forming[0],
        "search": min(searching),
        "work": work,
        "memory": max(growth),
    }


def measure_whole(d: int, repeats: int) -> float:
    """`merge_words` from data to hierarchy, as a user calls it."""
    import bagwise

    bagwise.warmup()
    X, y = make_data("uniform", d)
    return median_time(lambda: bagwise.merge_words(X, y, criterion="csm", n_groups=2), repeats)


def measure_agglomeration(kind: str, d: int) -> dict[str, Any]:
    """scikit-learn's unsupervised merging of columns (Ward), to two groups."""
    import scipy.sparse as sp
    from sklearn.cluster import FeatureAgglomeration

    X, _ = make_data(kind, d)
    X = X.toarray() if sp.issparse(X) else X
    with PeakMemory() as memory:
        seconds, _ = timed(lambda: FeatureAgglomeration(n_clusters=2).fit(X))
    return {"search": seconds, "memory": memory.growth}


def measure_transform(n: int, d: int, sizes: list[int], repeats: int) -> list[dict[str, Any]]:
    """`WordMerger.transform` of a sparse matrix, 1 % filled, beside one copy of it and a sparse product."""
    import numpy as np
    import scipy.sparse as sp

    from bagwise import WordMerger

    rng = np.random.default_rng(0)
    X = sp.random_array((n, d), density=0.01, format="csr", rng=rng)
    other_data = np.zeros(2**24)  # 128 MiB: going through it empties the caches
    rows = []
    merger = WordMerger().fit(X[:200], np.arange(200) % 2)
    for n_groups in sizes:
        merger.set_params(n_groups=n_groups)
        indicator = sp.csr_array((np.ones(d), (np.arange(d), merger.labels_)), shape=(d, n_groups))
        merger.transform(X)
        for cache in ("warm", "cold"):
            before = (lambda: None) if cache == "warm" else (lambda: other_data.__iadd__(1))
            rows.append({
                "n_groups": n_groups,
                "cache": cache,
                "transform": median_time(lambda: merger.transform(X), repeats, before),
                "copy": median_time(X.copy, repeats, before),
                "product": median_time(lambda: X @ indicator, repeats, before),  # noqa: B023
            })  # fmt: skip
    return rows


def measure_first_call() -> dict[str, float]:
    """Seconds of a first small merge in a fresh process, compiling and with compiled code cached; and of imports."""
    merge = (
        "import numpy as np, bagwise; bagwise.merge_words(np.random.rand(20, 30), np.arange(20) % 2, criterion='csm')"
    )
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}

        def run(code: str) -> float:
            return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True, env=environment))[0]

        nothing = statistics.median(run("pass") for _ in range(5))
        return {
            "import": statistics.median(run("import bagwise") for _ in range(5)) - nothing,
            "compiling": run(merge) - nothing,
            "cached": statistics.median(run(merge) for _ in range(3)) - nothing,
            "libraries": statistics.median(run("import sklearn.utils, scipy.sparse, numba") for _ in range(3))
            - nothing,
        }


def exhaustive_time(kind: str, d: int) -> tuple[float, bool]:
    """Seconds of the exhaustive search, and whether they are extrapolated from its first levels."""
    if d <= WHOLE_EXHAUSTIVE:
        return in_fresh_process(__file__, "measure_search", kind=kind, d=d, search="exhaustive", repeats=1,
                                levels=None, n_jobs=1)["search"], False  # fmt: skip
    part = in_fresh_process(__file__, "measure_search", kind=kind, d=d, search="exhaustive", repeats=1, levels=20,
                            n_jobs=1)  # fmt: skip
    all_pairs = sum(level * (level - 1) // 2 for level in range(3, d + 1))
    return part["search"] * all_pairs / part["work"]["pairs_evaluated"], True


def measure_size(kind: str, d: int) -> dict[str, Any]:
    """One row of the table."""
    repeats = 5
    common = {"kind": kind, "d": d, "levels": None}
    bound = in_fresh_process(__file__, "measure_search", search="bound", repeats=repeats, n_jobs=1, **common)
    threaded = in_fresh_process(__file__, "measure_search", search="bound", repeats=repeats, n_jobs=2, **common)
    polar = in_fresh_process(__file__, "measure_search", search="polar", repeats=1, n_jobs=1, **common)
    row = {
        "data": kind,
        "words": d,
        "form": bound["form"],
        "form_first": bound["form_first"],
        "form_2": threaded["form"],
        "bound": bound["search"],
        "bound_2": threaded["search"],
        "scans": bound["work"]["row_scans"] / (d - 2),
        "polar": polar["search"],
        "polar_share": polar["work"]["pairs_evaluated"] / sum(n * (n - 1) // 2 for n in range(3, d + 1)),
        "memory_bound": bound["memory"] / (8 * d**2),
        "memory_polar": polar["memory"] / (8 * d**2),
        "bound_to_form": bound["search"] / bound["form"],
        "polar_to_bound": polar["search"] / bound["search"],
    }
    if d <= MOST_EXHAUSTIVE:
        seconds, extrapolated = exhaustive_time(kind, d)
        row |= {"exhaustive": seconds, "exhaustive_shown": f"{'~' if extrapolated else ''}{seconds:.3g}",
                "exhaustive_to_bound": seconds / bound["search"]}  # fmt: skip
    if d <= MOST_AGGLOMERATION:
        other = in_fresh_process(__file__, "measure_agglomeration", kind=kind, d=d)
        row |= {"agglomeration": other["search"], "memory_agglomeration": other["memory"] / (8 * d**2)}
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    options = parser.parse_args()
    started = time.perf_counter()
    results: dict[str, Any] = {"machine": machine()}
    print(" · ".join(f"{key} {value}" for key, value in results["machine"].items()), "\n")

    sizes = QUICK_SIZES if options.quick else SIZES
    rows = [measure_size(kind, d) for kind in ("uniform", "topics") for d in sizes]
    results["merging"] = rows
    print("Seconds to merge to two words by class separability (one thread; BLAS uses all cores)\n")
    print_table(rows, {
        "data": "data", "words": "words", "form": "form A, B", "form_first": "(first time)", "bound": "bound",
        "polar": "polar", "exhaustive_shown": "exhaustive", "agglomeration": "FeatureAgglomeration",
        "scans": "row scans/level", "polar_share": "polar: share of pairs",
    })  # fmt: skip
    print("Ratios, and peak memory in units of one d x d matrix of float64\n")
    print_table(rows, {
        "data": "data", "words": "words", "bound_to_form": "bound / form", "polar_to_bound": "polar / bound",
        "exhaustive_to_bound": "exhaustive / bound", "memory_bound": "memory bound", "memory_polar": "memory polar",
        "memory_agglomeration": "memory FeatureAgglomeration", "form_2": "form, n_jobs=2", "bound_2": "bound, n_jobs=2",
    })  # fmt: skip

    n, d = (1000, 1000) if options.quick else (10_000, 10_000)
    results["transform"] = in_fresh_process(__file__, "measure_transform", n=n, d=d, sizes=[50, 200, 500], repeats=15)
    for row in results["transform"]:
        row["ratio"] = row["transform"] / row["copy"]
    print(f"Seconds to transform {n} x {d}, CSR, 1 % filled\n")
    print_table(results["transform"], {
        "n_groups": "to words", "cache": "caches", "transform": "WordMerger.transform", "copy": "X.copy()",
        "ratio": "ratio", "product": "X @ indicator",
    })  # fmt: skip

    results["whole"] = in_fresh_process(__file__, "measure_whole", d=sizes[-1], repeats=3)
    print(f"merge_words, {sizes[-1]} words to 2, from data to hierarchy: {results['whole']:.2f} s\n")
    results["first_call"] = measure_first_call()
    print("A first small merge in a fresh process: {compiling:.1f} s when it compiles, {cached:.2f} s from the cache "
          "(importing NumPy, SciPy, scikit-learn and numba takes {libraries:.2f} s of each); "
          "`import bagwise` {import:.3f} s\n".format(**results["first_call"]))  # fmt: skip

    if not options.quick:
        print_goals(rows, results)
    print(f"({time.perf_counter() - started:.0f} s in all)")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


def print_goals(rows: list[dict[str, Any]], results: dict[str, Any]) -> None:
    last = {row["data"]: row for row in rows if row["words"] == SIZES[-1]}
    compared = {row["data"]: row for row in rows if "exhaustive" in row}
    print("Goals")
    targets = []
    for kind, row in last.items():
        targets += [
            (f"{kind}: bound / forming A and B, {row['words']} words", row["bound_to_form"], "<=", 1.0),
            (f"{kind}: row scans per level", row["scans"], "<=", 3.0),
            (f"{kind}: peak memory / (8 d^2)", row["memory_bound"], "<=", 2.2),
            (
                f"{kind}: exhaustive / bound, {compared[kind]['words']} words",
                compared[kind]["exhaustive_to_bound"],
                ">=",
                50,
            ),
            (f"{kind}: polar / bound, {compared[kind]['words']} words", compared[kind]["polar_to_bound"], ">=", 3),
        ]
    targets += [
        (f"transform to {row['n_groups']} / copy, caches {row['cache']}", row["ratio"], "<=", 2.0)
        for row in results["transform"]
    ]
    targets.append(("import bagwise, seconds", results["first_call"]["import"], "<=", 0.3))
    print_targets(targets)


if __name__ == "__main__":
    main()
