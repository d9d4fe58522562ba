"""Additions and removals of single items: time of each, blocks, and searches meanwhile, beside faiss and rebuilding.

    python benchmarks/index_updates.py            # some minutes on one core
    python benchmarks/index_updates.py --quick    # small sizes, to see that it works

An index of 100,000 synthetic histograms of 1000 words, those of `retrieval.py`; then 100,000 changes of one item each,
an addition and the removal of a random item by turns. After every thousandth change the index is searched, which writes
the blocks that were changed: the CPU seconds, of one thread, count that too. In the end results are compared with those
of an index that is built anew of the items left. faiss's flat index, of square roots, makes the first of these changes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import in_fresh_process, machine, median_time, print_table, print_targets, timed
from retrieval import make_histograms

FULL = {"n": 100_000, "n_words": 1000, "n_changes": 100_000, "every": 1000, "n_faiss": 40}
QUICK = {"n": 2000, "n_words": 100, "n_changes": 2000, "every": 100, "n_faiss": 40}
CASES = (("chi2", True), ("inner", True), ("hellinger", False))
K, N_QUERIES = 10, 20


def changes(sizes: dict[str, int]) -> list[tuple[str, int]]:
    """Give the changes: items that are added, numbered from n on, and random ones of those there that are removed."""
    import numpy as np

    random, there, made = np.random.default_rng(0), list(range(sizes["n"])), []
    for number in range(sizes["n_changes"]):
        if number % 2 == 0:
            there.append(sizes["n"] + number // 2)
            made.append(("add", there[-1]))
        else:
            chosen = int(random.integers(len(there)))
            there[chosen], there[-1] = there[-1], there[chosen]
            made.append(("remove", there.pop()))
    return made


def measure(metric: str, sparse: bool, sizes: dict[str, int]) -> dict[str, Any]:
    """Time single changes, and searches before, meanwhile and after."""
    import numpy as np

    from bagwise import BagIndex

    n, n_words = sizes["n"], sizes["n_words"]
    X = make_histograms(n + sizes["n_changes"] // 2, n_words, sparse, 1)
    Q = make_histograms(N_QUERIES, n_words, sparse, 2)
    BagIndex(metric, n_jobs=1).add(X[:100]).search(Q, K)  # compiles
    index = BagIndex(metric, n_jobs=1).add(X[:n])
    index.search(Q, K)
    before = median_time(lambda: index.search(Q, K), 5)
    seconds, cpu, meanwhile, blocks = [], 0.0, [], 0
    for number, (what, item) in enumerate(changes(sizes)):
        row = X[[item]] if what == "add" else None
        began, before_cpu = time.perf_counter(), time.process_time()
        if what == "add":
            index.add(row, [item])
        else:
            index.remove([item])
        seconds.append(time.perf_counter() - began)
        cpu += time.process_time() - before_cpu
        if number % sizes["every"] == sizes["every"] - 1:
            before_cpu = time.process_time()
            blocks = max(blocks, len(index.blocks()))  # writes those that were changed
            cpu += time.process_time() - before_cpu
            meanwhile.append(timed(lambda: index.search(Q, K))[0])
    after = median_time(lambda: index.search(Q, K), 5)
    found = index.search(Q, K)
    left = index.ids
    rebuild, fresh = timed(lambda: BagIndex(metric, n_jobs=1).add(X[left], left))
    rebuild += timed(lambda: fresh.search(Q[:1], K))[0]
    expected = fresh.search(Q, K)
    with tempfile.TemporaryDirectory() as folder:
        saving = timed(lambda: index.save(Path(folder) / "index"))[0]
    return {
        "metric": metric,
        "data": "sparse" if sparse else "dense",
        "seconds": sum(seconds),
        "cpu": cpu,
        "p50": 1000 * statistics.median(seconds),
        "p95": 1000 * float(np.percentile(seconds, 95)),
        "worst": 1000 * max(seconds),
        "blocks": blocks,
        "before": 1000 * before,
        "meanwhile": 1000 * statistics.median(meanwhile),
        "after": 1000 * after,
        "rebuild": rebuild,
        "ratio": rebuild / (sum(seconds) / len(seconds)),
        "save": saving,
        "faiss": 1000 * _faiss(X, sizes),
        "same": bool((found[1] == expected[1]).all() and found[0].tobytes() == expected[0].tobytes()),
    }


def _faiss(X: Any, sizes: dict[str, int]) -> float:
    """Seconds of one change of faiss's flat index, by the first changes."""
    import faiss
    import numpy as np

    def vectors(rows: Any) -> Any:
        return np.sqrt(rows.toarray() if hasattr(rows, "toarray") else rows)

    faiss.omp_set_num_threads(1)
    flat = faiss.IndexIDMap2(faiss.IndexFlat(sizes["n_words"], faiss.METRIC_L2))
    for first in range(0, sizes["n"], 10_000):
        part = slice(first, min(first + 10_000, sizes["n"]))
        flat.add_with_ids(vectors(X[part]), np.arange(part.start, part.stop))
    seconds = 0.0
    for what, item in changes(sizes)[: sizes["n_faiss"]]:
        row, number = vectors(X[[item]]), np.array([item])
        began = time.perf_counter()
        if what == "add":
            flat.add_with_ids(row, number)
        else:
            flat.remove_ids(number)
        seconds += time.perf_counter() - began
    return seconds / sizes["n_faiss"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    results: dict[str, Any] = {"machine": machine()}
    print(" · ".join(f"{key} {value}" for key, value in results["machine"].items()), "\n")
    results["updates"] = [
        in_fresh_process(__file__, "measure", metric=metric, sparse=sparse, sizes=sizes) for metric, sparse in CASES
    ]
    about = f"{sizes['n']:,} histograms of {sizes['n_words']} words, {sizes['n_changes']:,} changes of one item"
    print(f"{about}; searches for {N_QUERIES} queries\n")
    print_table(results["updates"], {
        "metric": "metric", "data": "data", "seconds": "changes, s", "cpu": "CPU s", "p50": "p50, ms", "p95": "p95, ms",
        "worst": "worst, ms", "blocks": "most blocks", "before": "search before, ms", "meanwhile": "meanwhile, ms",
        "after": "after, ms", "rebuild": "rebuild, s", "ratio": "rebuild / change", "save": "save, s",
        "faiss": "faiss, ms a change", "same": "as built anew",
    })  # fmt: skip
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))
    if not options.quick:  # goals are for full sizes
        slowest = max(row["cpu"] for row in results["updates"])
        print_targets([("all changes of the slowest, CPU seconds of one thread", slowest, "<=", 60)])
    if not all(row["same"] for row in results["updates"]):
        raise SystemExit("Results differ from those of an index that was built anew.")


if __name__ == "__main__":
    main()
