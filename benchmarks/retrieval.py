"""Search: building an index, queries a second and recall, beside faiss; and a million histograms, one query at a time.

    python benchmarks/retrieval.py            # some minutes on 2 cores
    python benchmarks/retrieval.py --quick    # small sizes, to see that it works

Synthetic histograms of sum 1: each mixes the frequent words of two clusters with those that all share. Sparse ones have
about 50 of 1000 words, dense ones all. Queries are drawn alike and are not in the index. faiss's flat index compares
all vectors: by L2, inner product and L1 for the same metrics, for chi² by the L2 distance of square roots, which it has
instead. Recall is the share of the 10 nearest, as exact search gives them, that is found. Every metric is a process of
its own, with as many threads for both; CPU seconds are those of all threads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import PeakMemory, in_fresh_process, machine, print_table, print_targets, timed

METRICS = ("chi2", "intersection", "hellinger", "euclidean", "inner")
THREADS = 2
K = 10
FULL = {"n": 100_000, "n_words": 1000, "n_queries": 200}
QUICK = {"n": 2000, "n_words": 100, "n_queries": 20}
LARGE = {"n": 1_000_000, "n_words": 1000, "n_queries": 30}
LARGE_QUICK = {"n": 20_000, "n_words": 100, "n_queries": 5}


def make_histograms(n: int, n_words: int, sparse: bool, seed: int) -> Any:
    """Make n histograms that mix two of 500 clusters, CSR or dense, float32 of sum 1."""
    import numpy as np
    import scipy.sparse as sp

    def cumulative(shares: Any) -> Any:
        return np.cumsum(shares / shares.sum())

    zipf = 1 / np.arange(1, n_words + 1) ** 0.7
    about = np.random.default_rng(0)
    orders = np.array([about.permutation(n_words) for _ in range(500)])
    rng = np.random.default_rng(seed)
    clusters, mixture = rng.integers(len(orders), size=(n, 2)), 0.2 + 0.6 * rng.random((n, 1))
    if not sparse:
        own = (zipf**2 / (zipf**2).sum()).astype(np.float32)[np.argsort(orders, axis=1)]
        X = np.empty((n, n_words), dtype=np.float32)
        for start in range(0, n, 10_000):  # in pieces, or what is mixed would take far more memory than X
            part = slice(start, start + 10_000)
            first, second = (own[clusters[part, side]] for side in (0, 1))
            X[part] = mixture[part] * first + (1 - mixture[part]) * second + zipf / zipf.sum()
            X[part] *= rng.gamma(2.0, size=X[part].shape)
            X[part] /= X[part].sum(axis=1, keepdims=True)
        return X
    draws = (n, 72)
    shared = np.searchsorted(cumulative(zipf), rng.random(draws))
    own = np.searchsorted(cumulative(zipf**2), rng.random(draws))
    cluster = np.where(rng.random(draws) < mixture, clusters[:, :1], clusters[:, 1:])
    words = np.where(rng.random(draws) < 0.5, shared, orders[cluster, np.minimum(own, n_words - 1)])
    weights = rng.gamma(2.0, size=draws).astype(np.float32)
    weights /= weights.sum(axis=1, keepdims=True)
    entries = np.minimum(words, n_words - 1).astype(np.int32).ravel()
    X = sp.csr_array((weights.ravel(), entries, np.arange(0, entries.size + 1, draws[1])), shape=(n, n_words))
    X.sum_duplicates()
    return X


def measured(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Seconds, CPU seconds and the result of a call."""
    before = time.process_time()
    seconds, result = timed(function)
    return seconds, time.process_time() - before, result


def recall(found: Any, expected: Any) -> float:
    """Share of the expected identifiers that were found."""
    pairs = zip(found.tolist(), expected.tolist(), strict=True)
    return sum(len(set(a) & set(b)) for a, b in pairs) / expected.size


def measure(metric: str, sparse: bool, sizes: dict[str, int], approximate: bool) -> list[dict[str, Any]]:
    """Build and search by exact search, by faiss's flat index and by approximate search."""
    import faiss
    import numpy as np

    from bagwise import BagIndex

    n, n_words, n_queries = sizes["n"], sizes["n_words"], sizes["n_queries"]
    X, Q = (make_histograms(m, n_words, sparse, seed) for m, seed in ((n, 1), (n_queries, 2)))
    about = {"metric": metric, "data": "sparse" if sparse else "dense"}

    def row(name: str, build: tuple[float, float, Any], search: tuple[float, float, Any], truth: Any) -> dict[str, Any]:
        return about | {
            "index": name, "build": build[0], "build_cpu": build[1], "queries": n_queries / search[0],
            "cpu": 1000 * search[1] / n_queries, "recall": recall(search[2], truth),
        }  # fmt: skip

    def build(**parameters: Any) -> BagIndex:
        index = BagIndex(metric, n_jobs=THREADS, **parameters).add(X)
        index.search(Q[:1])  # puts what is left into blocks, and builds what faiss needs
        return index

    warm = BagIndex(metric, n_jobs=THREADS).add(X[:100])
    warm.search(Q)  # compiles
    built = measured(build)
    exact = built[2]
    searched = measured(lambda: exact.search(Q, K)[1])
    truth = searched[2]
    rows = [row("exact", built, searched, truth)]

    faiss.omp_set_num_threads(THREADS)
    kind = {
        "intersection": faiss.METRIC_L1,
        "hellinger": faiss.METRIC_INNER_PRODUCT,
        "inner": faiss.METRIC_INNER_PRODUCT,
    }
    vectors, asked = (A.toarray() if sparse else A for A in (X, Q))
    if metric in ("chi2", "hellinger"):
        vectors, asked = np.sqrt(vectors), np.sqrt(asked)
    flat = faiss.IndexFlat(n_words, kind.get(metric, faiss.METRIC_L2))
    built = measured(lambda: flat.add(vectors))
    flat.search(asked[:1], K)
    rows.append(row("faiss flat", built, measured(lambda: flat.search(asked, K)[1]), truth))
    if approximate:
        built = measured(lambda: build(method="approximate"))
        rows.append(row("approximate", built, measured(lambda: built[2].search(Q, K)[1]), truth))
    for each in rows:
        each["ratio"] = rows[1]["cpu"] / each["cpu"]
    return rows


def measure_large(metric: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Latency of single queries, memory, and opening a file of very many sparse histograms."""
    from bagwise import BagIndex

    X = make_histograms(sizes["n"], sizes["n_words"], True, 1)
    Q = make_histograms(sizes["n_queries"], sizes["n_words"], True, 2)
    BagIndex(metric, n_jobs=THREADS).add(X[:100]).search(Q)  # compiles
    index = BagIndex(metric, n_jobs=THREADS)
    with PeakMemory() as memory:
        build, build_cpu, _ = measured(lambda: index.add(X).search(Q[:1]))
    searches = [measured(lambda: index.search(Q[i : i + 1], K)) for i in range(Q.shape[0])]  # noqa: B023
    with tempfile.TemporaryDirectory() as folder:
        path = index.save(Path(folder) / "index")
        opening, loaded = timed(lambda: BagIndex.load(path, n_jobs=THREADS))
        first = timed(lambda: loaded.search(Q[:1], K))[0]
    latencies = sorted(1000 * seconds for seconds, _, _ in searches)
    return {
        "metric": metric,
        "nonzeros": X.nnz / X.shape[0],
        "build": build,
        "build_cpu": build_cpu,
        "p50": statistics.median(latencies),
        "worst": latencies[-1],
        "cpu": 1000 * statistics.median(cpu for _, cpu, _ in searches),
        "size": index.nbytes / 1e6,
        "over_lists": index.nbytes / (8 * X.nnz),
        "peak": memory.growth / 1e6,
        "open": 1000 * opening,
        "first": 1000 * first,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    options = parser.parse_args()
    sizes, large = (QUICK, LARGE_QUICK) if options.quick else (FULL, LARGE)
    results: dict[str, Any] = {"machine": machine()}
    print(" · ".join(f"{key} {value}" for key, value in results["machine"].items()), "\n")

    results["search"] = [
        row
        for sparse, metric, approximate in [
            *((True, metric, True) for metric in METRICS),
            *((False, metric, metric == "chi2") for metric in METRICS),
        ]
        for row in in_fresh_process(
            __file__, "measure", metric=metric, sparse=sparse, sizes=sizes, approximate=approximate
        )
    ]
    counts = f"{sizes['n']} histograms of {sizes['n_words']} words, {sizes['n_queries']} queries at once"
    print(f"{counts}, {THREADS} threads\n")
    print_table(results["search"], {
        "data": "data", "metric": "metric", "index": "index", "build": "build, s", "build_cpu": "build, CPU s",
        "queries": "queries/s", "cpu": "CPU ms/query", "ratio": "times faiss flat, CPU", "recall": "recall@10",
    })  # fmt: skip

    results["large"] = [in_fresh_process(__file__, "measure_large", metric=m, sizes=large) for m in METRICS]
    print(f"{large['n']} sparse histograms, one query at a time, {THREADS} threads\n")
    print_table(results["large"], {
        "metric": "metric", "nonzeros": "non-zeros a row", "build": "build, s", "build_cpu": "build, CPU s",
        "p50": "p50, ms", "worst": "worst, ms", "cpu": "CPU ms", "size": "index, MB",
        "over_lists": "of 8 bytes a non-zero", "peak": "peak growth, MB", "open": "open file, ms",
        "first": "first query there, ms",
    })  # fmt: skip

    def least(index: str, data: str, key: str, metrics: tuple[str, ...] = METRICS) -> float:
        found = [row for row in results["search"] if (row["index"], row["data"]) == (index, data)]
        return min(row[key] for row in found if row["metric"] in metrics)

    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))
    if options.quick:  # goals are for full sizes
        return
    gain = least("approximate", "dense", "ratio") / least("exact", "dense", "ratio", ("chi2",))
    print_targets([
        ("one query of a million, slowest metric, p50 in ms", max(r["p50"] for r in results["large"]), "<=", 100),
        ("index over 8 bytes a non-zero", max(r["over_lists"] for r in results["large"]), "<=", 1.0),
        ("exact, sparse: times as fast as faiss flat, least, CPU", least("exact", "sparse", "ratio"), ">=", 1),
        ("exact, dense: the same", least("exact", "dense", "ratio", METRICS[1:]), ">=", 0.8),
        ("exact chi², dense: the same, faiss by roots", least("exact", "dense", "ratio", ("chi2",)), ">=", 1),
        ("approximate, least recall@10", least("approximate", "sparse", "recall"), ">=", 0.9),
        ("approximate chi² over exact, dense, CPU", gain, ">=", 3),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
