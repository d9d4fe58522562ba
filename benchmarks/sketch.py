"""Speed, memory and quality of SketchMerger beside other ways to make wide data narrow.

    python benchmarks/sketch.py            # everything, about 10 minutes on 2 cores
    python benchmarks/sketch.py --quick    # small sizes, to see that it works

The data are sparse and wide like histograms of 16-bit local binary patterns (LBP-D5): 65,536 features of very uneven
popularity, 144 values that are not zero in each sample, which depend on one of 60 kinds of samples. Each part runs in
a process of its own, after compiling. Throughput and transforms are measured on one thread, the BLAS's included;
fitting uses what there is. For transforms everything is fitted to a fortieth of the samples, TruncatedSVD and PCA
with no power iterations: only their transform is compared, whose cost does not depend on that. Slow transforms
are given fewer rows. What is compared is measured in turn, several times, and medians are shown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

from harness import PeakMemory, in_fresh_process, machine, median_time, print_table, print_targets, timed

FULL = {"n": 100_000, "d": 65_536, "n_groups": 1024}
QUICK = {"n": 3000, "d": 4096, "n_groups": 128}
NON_ZEROS = 144


def make_data(n: int, d: int) -> Any:
    """Make sparse float32 counts: each sample mixes words that are popular with all and words of its kind."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    n_kinds = 60
    popularity = rng.permutation(1.0 / np.arange(1, d + 1) ** 0.8)
    everywhere = np.cumsum(popularity)
    tables = [np.cumsum(popularity * (rng.random(d) < 0.03)) for _ in range(n_kinds)]
    kinds = rng.integers(0, n_kinds, n)
    words = np.empty((n, NON_ZEROS), dtype=np.int32)
    room = 2 * NON_ZEROS
    for i, kind in enumerate(kinds):
        # more than needed, since some come twice
        common = np.searchsorted(everywhere, rng.random(room) * everywhere[-1])
        own = np.searchsorted(tables[kind], rng.random(room) * tables[kind][-1])
        drawn, first = np.unique(np.stack([common, own], axis=1).ravel(), return_index=True)
        chosen = drawn[np.argsort(first)[:NON_ZEROS]]
        if len(chosen) < NON_ZEROS:
            chosen = np.concatenate([chosen, np.setdiff1d(np.arange(d), chosen)[: NON_ZEROS - len(chosen)]])
        words[i] = np.sort(chosen)
    values = rng.integers(1, 6, n * NON_ZEROS).astype(np.float32)
    starts = np.arange(0, n * NON_ZEROS + 1, NON_ZEROS, dtype=np.int32)
    X = sp.csr_array((values, words.ravel(), starts), shape=(n, d))
    assert X.has_canonical_format
    return X


def measure_fit(n: int, d: int, n_groups: int) -> dict[str, Any]:
    """Fit with the default settings: seconds of the sketch and of clustering, and memory beyond the data."""
    import bagwise

    bagwise.warmup()
    X = make_data(n, d)
    merger = bagwise.SketchMerger(n_groups)
    with PeakMemory() as memory:
        sketching, _ = timed(lambda: merger.partial_fit(X))
        clustering, _ = timed(lambda: merger.labels_)
    sketch_bytes = 4 * d * merger.sketch_size
    more = {}
    for name, changes in {
        "bipolar": {"bipolar": True},
        "mini-batches of 8192": {"batch_size": 8192},
        "three starts": {"n_init": 3},
    }.items():
        other = bagwise.SketchMerger.from_sketch(merger.sketch_, n_groups, **changes)
        more[name] = {"seconds": timed(lambda other=other: other.labels_)[0], "inertia": other.inertia_,
                      "iterations": other.n_iter_}  # fmt: skip
    return {
        "sketching": sketching,
        "clustering": clustering,
        "iterations": merger.n_iter_,
        "inertia": merger.inertia_,
        "memory": memory.growth,
        "sketches": memory.growth / sketch_bytes,
        "more": more,
    }


def measure_throughput(n: int, d: int, repeats: int) -> dict[str, float]:
    """Millions of non-zeros times hashes that are added in a second, on one thread and two."""
    from bagwise.merging import Sketch

    X = make_data(n, d)
    sketch = Sketch(d).update(X)
    updates = X.nnz * sketch.n_hashes / 1e6
    return {str(t): updates / median_time(lambda t=t: sketch.update(X, n_threads=t), repeats) for t in (1, 2)}


def measure_assignment(d: int, n_groups: int, repeats: int) -> list[dict[str, Any]]:
    """Find the nearest of `n_groups` centres in 256 dimensions for d points: ours and faiss, on one thread and two."""
    import numpy as np
    from threadpoolctl import threadpool_limits

    from bagwise.codebooks.distances import WordDistances, assign

    points = np.random.default_rng(0).normal(size=(d, 256)).astype(np.float32)
    centres = points[:n_groups] + np.float32(0.1)
    rows = []
    for n_threads in (1, 2):
        finders = {
            "ours": lambda t=n_threads: assign(points, WordDistances(centres), t),
            "ours, bipolar": lambda t=n_threads: assign(points, WordDistances(centres, bipolar=True), t),
        }
        try:
            import faiss
        except ImportError:
            pass
        else:
            index = faiss.IndexFlatL2(256)
            index.add(centres)
            finders["faiss"] = lambda index=index: index.search(points, 1)
        times: dict[str, list[float]] = {}
        with threadpool_limits(n_threads):
            for _, (name, find) in product(range(repeats + 1), finders.items()):  # in turn
                times.setdefault(name, []).append(timed(find)[0])
        rows.append({"threads": n_threads} | {key: statistics.median(seconds[1:]) for key, seconds in times.items()})
    return rows


def measure_transforms(n: int, d: int, n_groups: int, repeats: int) -> list[dict[str, Any]]:
    """Rows a second of transforms to `n_groups` columns, one thread, all on the same data."""
    import numpy as np
    import scipy.sparse as sp
    from sklearn.decomposition import PCA, TruncatedSVD
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.random_projection import SparseRandomProjection
    from threadpoolctl import threadpool_limits

    from bagwise import SketchMerger
    from bagwise.baselines import HashMerger

    X = make_data(n, d)
    few = X[: max(n // 40, n_groups + 100)]
    merger = SketchMerger(n_groups, tol=0.01).fit(few)
    bipolar = SketchMerger(n_groups, tol=0.01, bipolar=True).fit(few)
    indicator = sp.csr_array((np.ones(d, dtype=np.float32), (np.arange(d), merger.labels_)), shape=(d, n_groups))
    svd = TruncatedSVD(n_groups, n_iter=0, random_state=0).fit(few)
    projection = SparseRandomProjection(n_groups, random_state=0).fit(few)
    hasher = FeatureHasher(n_groups, input_type="pair")
    hashed = HashMerger(n_groups).fit(few)
    pca = PCA(n_groups, svd_solver="randomized", iterated_power=0, random_state=0).fit(few.toarray())
    n_dense = min(n, 500)
    dense = X[:n_dense].toarray()
    names = [f"w{k}" for k in range(d)]
    n_hasher = min(n, 2000)
    spans = [slice(*X.indptr[i : i + 2]) for i in range(n_hasher)]
    pairs = [[(names[k], v) for k, v in zip(X.indices[s], X.data[s].tolist(), strict=True)] for s in spans]
    n_slow = min(n, 4000)
    part = X[:n_slow]
    cases = {
        "SketchMerger": (lambda: merger.transform(X), n),
        "SketchMerger, bipolar": (lambda: bipolar.transform(X), n),
        "SciPy: X @ 0/1 indicator": (lambda: X @ indicator, n),
        "HashMerger": (lambda: hashed.transform(X), n),
        "FeatureHasher, pairs given": (lambda: hasher.transform(pairs), n_hasher),
        "SparseRandomProjection": (lambda: projection.transform(part), n_slow),
        "TruncatedSVD": (lambda: svd.transform(part), n_slow),
        "PCA, dense rows": (lambda: pca.transform(dense), n_dense),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    with threadpool_limits(1):
        for _ in range(repeats + 1):  # in turn, so that a busy machine slows all of them alike
            for name, (transform, _) in cases.items():
                times[name].append(timed(transform)[0])
    rows = [
        {"transform": name, "rows measured": n_rows, "rate": n_rows / statistics.median(times[name][1:])}
        for name, (_, n_rows) in cases.items()
    ]
    for row in rows:
        row["ratio"] = rows[0]["rate"] / row["rate"]
    return rows


def measure_quality(d: int, sizes: list[int]) -> list[dict[str, Any]]:
    """Share of the centred scatter that is kept, on counts drawn from topics, few enough for all."""
    import numpy as np
    from sklearn.decomposition import PCA
    from sklearn.random_projection import GaussianRandomProjection

    from bagwise import SketchMerger, WordMerger
    from bagwise.baselines import HashMerger
    from merging import make_data as make_texts

    X = make_texts("topics", d)[0].toarray()
    total = ((X - X.mean(axis=0)) ** 2).sum()

    def of_groups(labels: Any, signs: Any) -> float:
        sums = np.zeros((len(X), labels.max() + 1))
        for k, (label, sign) in enumerate(zip(labels, signs, strict=True)):
            sums[:, label] += sign * (X[:, k] - X[:, k].mean())
        return float((sums**2 / np.maximum(np.bincount(labels), 1)).sum() / total)

    def of_projection(components: Any) -> float:
        basis, _ = np.linalg.qr(components.T)  # as every other one, without stretching
        return float((((X - X.mean(axis=0)) @ basis) ** 2).sum() / total)

    plain = np.ones(X.shape[1])
    mmi = WordMerger(criterion="mmi").fit(X)
    pca = PCA(max(sizes)).fit(X)
    rows = []
    for size in sizes:
        row: dict[str, Any] = {"words": size, "PCA": float(pca.explained_variance_ratio_[:size].sum())}
        for name, settings in {
            "BSC": {},
            "BSCB": {"bipolar": True},
            "BSC, three starts": {"n_init": 3},
            "BSC, sketch 1024": {"sketch_size": 1024},
        }.items():
            merger = SketchMerger(size, **settings).fit(X)
            row[name] = of_groups(merger.labels_, merger.signs_)
        row["MMI"] = of_groups(mmi.set_params(n_groups=size).labels_, plain)
        hashed = HashMerger(size).fit(X)
        row["hashing"] = of_groups(hashed.labels_, hashed.signs_)
        row["projection"] = of_projection(GaussianRandomProjection(size, random_state=0).fit(X).components_)
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    options = parser.parse_args()
    started = time.perf_counter()
    size = QUICK if options.quick else FULL
    n, d, n_groups = size["n"], size["d"], size["n_groups"]
    results: dict[str, Any] = {"machine": machine()}
    print(" · ".join(f"{key} {value}" for key, value in results["machine"].items()), "\n")
    print(f"{n} samples of {d} features, {NON_ZEROS} non-zeros each, to {n_groups} words\n")

    results["throughput"] = in_fresh_process(__file__, "measure_throughput", n=n // 2, d=d, repeats=5)
    print("Sketch: {1:.0f} million non-zeros x hashes a second on one thread, {2:.0f} on two\n".format(
        *[None, *results["throughput"].values()]))  # fmt: skip

    results["fit"] = fit = in_fresh_process(__file__, "measure_fit", **size)
    print(f"Fit: sketch {fit['sketching']:.1f} s, clustering {fit['clustering']:.1f} s "
          f"({fit['iterations']} iterations), peak memory beyond the data {fit['memory'] / 1e6:.0f} MB = "
          f"{fit['sketches']:.2f} sketches")  # fmt: skip
    for name, other in fit["more"].items():
        print(f"  clustering, {name}: {other['seconds']:.1f} s ({other['iterations']} iterations), cost "
              f"{other['inertia'] / fit['inertia']:.4f} of the first")  # fmt: skip
    print()

    results["assignment"] = in_fresh_process(__file__, "measure_assignment", d=d, n_groups=n_groups, repeats=5)
    print(f"Seconds to find the nearest of {n_groups} centres for {d} signatures\n")
    print_table(results["assignment"], {
        "threads": "threads", "ours": "ours", "faiss": "faiss", "ours, bipolar": "ours, bipolar",
    })  # fmt: skip

    results["transforms"] = rows = in_fresh_process(__file__, "measure_transforms", repeats=5, **size)
    print(f"Transforms to {n_groups} columns on one thread\n")
    print_table(rows, {"transform": "transform", "rows measured": "rows measured", "rate": "rows a second",
                       "ratio": "SketchMerger is faster by"})  # fmt: skip

    small, sizes = (500, [10, 40]) if options.quick else (1500, [20, 100, 400])
    results["quality"] = in_fresh_process(__file__, "measure_quality", d=small, sizes=sizes)
    print(f"Share of the scatter kept, {small} words of 2000 texts of 20 topics (no linear map keeps more than PCA)\n")
    columns = ("words", "PCA", "BSC", "BSCB", "BSC, three starts", "BSC, sketch 1024", "MMI", "hashing", "projection")
    print_table(results["quality"], {name: name for name in columns})

    if not options.quick:
        by_name = {row["transform"]: row["ratio"] for row in rows}
        print("Goals")
        print_targets([
            ("million updates a second, one thread", results["throughput"]["1"], ">=", 50),
            ("peak memory of fitting / sketch", fit["sketches"], "<=", 4),
            ("transform, times TruncatedSVD's speed", by_name["TruncatedSVD"], ">=", 20),
            ("transform, times the speed of SciPy's product", by_name["SciPy: X @ 0/1 indicator"], ">=", 1),
        ])  # fmt: skip
    print(f"({time.perf_counter() - started:.0f} s in all)")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
