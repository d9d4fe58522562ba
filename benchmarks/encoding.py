"""Speed of codebooks: nearest words beside plain NumPy and faiss, the other encoders, normalising, and k-means.

    python benchmarks/encoding.py            # everything, a few minutes on 2 cores
    python benchmarks/encoding.py --quick    # small sizes, to see that it works

Vectors are like SIFT: 128 non-negative numbers, cut at 0.2, of length 1. Rates are vectors per second, the best of
several calls in turn: by the clock, and by the time the processor worked (on all threads), which does not suffer from
others on the machine. faiss is compared if it is installed (`pip install "bagwise[ann]"`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise import Bags
from bagwise.codebooks import assign_words, encode_bags, kmeans_words
from bagwise.codebooks.normalizing import normalize_rows
from harness import PeakMemory, in_fresh_process, machine, print_table

ASSIGNMENTS = ("hard", "soft", "localized", "vlad", "sparse")
# Sparse codes take so much longer that fewer vectors are enough.
SLOW_SHARE = {"sparse": 0.02}


def sift_like(n: int, seed: int) -> np.ndarray:
    """Vectors around a few hundred prototypes, since patches of images are not all different."""
    rng = np.random.default_rng(seed)
    prototypes = np.random.default_rng(0).gamma(0.4, size=(300, 128))
    values = (prototypes[rng.integers(0, 300, n)] * rng.gamma(3.0, size=(n, 128))).astype(np.float32)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    np.minimum(values, 0.2, out=values)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def plain_argmin(values: np.ndarray, codebook: np.ndarray, block: int = 4096) -> np.ndarray:
    """What one writes first: a block of distances by a matrix product, and argmin."""
    norms = (codebook**2).sum(axis=1)
    parts = [
        (norms - 2 * values[start : start + block] @ codebook.T).argmin(axis=1)
        for start in range(0, len(values), block)
    ]
    return np.concatenate(parts)


def best_of(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, float]]:
    """Least seconds, by the clock and of the processor, of functions called in turn, after one call of each."""
    best = {name: {"wall": np.inf, "processor": np.inf} for name in functions}
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            wall, processor = time.perf_counter(), time.process_time()
            function()
            best[name]["wall"] = min(best[name]["wall"], time.perf_counter() - wall)
            best[name]["processor"] = min(best[name]["processor"], time.process_time() - processor)
    return best


def measure_hard(n: int, n_words: int, n_threads: int, repeats: int) -> list[dict[str, Any]]:
    """Nearest words of n vectors, by us and by peers, all on as many threads."""
    from threadpoolctl import threadpool_limits

    values, codebook = sift_like(n, 1), sift_like(n_words, 2)
    functions: dict[str, Callable[[], Any]] = {
        "assign_words": lambda: assign_words(values, codebook, n_jobs=n_threads),
        "NumPy, blocks of 4096": lambda: plain_argmin(values, codebook),
    }
    if importlib.util.find_spec("faiss"):
        import faiss

        faiss.omp_set_num_threads(n_threads)
        index = faiss.IndexFlatL2(values.shape[1])
        index.add(codebook)
        functions["faiss IndexFlatL2"] = lambda: index.search(values, 1)[1].ravel()
    with threadpool_limits(n_threads):
        ours = functions["assign_words"]()
        same = {name: float(np.mean(function() == ours)) for name, function in functions.items()}
        best = best_of(functions, repeats)
    return [
        {
            "who": name,
            "threads": n_threads,
            "rate": n / seconds["wall"],
            "processor_rate": n / seconds["processor"],
            "same": 100 * same[name],
        }
        for name, seconds in best.items()
    ]


def measure_encoder(assignment: str, n: int, n_words: int, n_threads: int, repeats: int) -> dict[str, Any]:
    """Whole histograms of bags of 1000 vectors, with the 21-cell pyramid but for VLAD."""
    n = max(1000, int(n * SLOW_SHARE.get(assignment, 1.0)) // 1000 * 1000)
    bags = Bags(sift_like(n, 1), np.arange(0, n + 1, 1000), np.random.default_rng(3).random((n, 2)))
    options = {"assignment": assignment, "pyramid": None if assignment == "vlad" else 21, "n_jobs": n_threads}
    encode = partial(encode_bags, bags, sift_like(n_words, 2), sparse_output=True, **options)
    encode_bags(bags[:1], sift_like(10, 2), sparse_output=True, **options)  # compile
    with PeakMemory() as memory:
        encode()
    seconds = best_of({assignment: encode}, repeats)[assignment]
    rates = {"rate": n / seconds["wall"], "processor_rate": n / seconds["processor"]}
    return {"assignment": assignment, "vectors": n, **rates, "memory": memory.growth / 1e6}


def measure_sparse_peers(n: int, n_words: int, n_threads: int) -> list[dict[str, Any]]:
    """Sparse codes by scikit-learn's two algorithms, not pooled, with the same penalty."""
    from sklearn.decomposition import sparse_encode
    from threadpoolctl import threadpool_limits

    n = max(200, int(n * SLOW_SHARE["sparse"]) // 5)
    values, atoms = sift_like(n, 1).astype(np.float64), sift_like(n_words, 2).astype(np.float64)
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    peers = {
        name: partial(sparse_encode, values, atoms, algorithm=name, alpha=0.15 / 2)
        for name in ("lasso_lars", "lasso_cd")
    }
    with threadpool_limits(n_threads):
        best = best_of(peers, 1)
    return [
        {
            "assignment": f"sparse_encode, {name}",
            "vectors": n,
            "rate": n / seconds["wall"],
            "processor_rate": n / seconds["processor"],
        }
        for name, seconds in best.items()
    ]


def measure_normalizing(n: int, n_columns: int, filled: float) -> list[dict[str, Any]]:
    """Square roots and length 1 of float32 rows, beside NumPy and scikit-learn; sparse rows if few are `filled`."""
    from sklearn.preprocessing import normalize

    X: Any = np.random.default_rng(5).gamma(0.4, size=(n, n_columns)).astype(np.float32)
    if filled < 1:
        X = sp.csr_array(X * (np.random.default_rng(6).random(X.shape) < filled))

    def plain() -> Any:
        Z = X.copy()
        values = Z.data if sp.issparse(Z) else Z
        values[:] = np.sign(values) * np.sqrt(np.abs(values))
        return normalize(Z, copy=False)

    functions = {"bagwise": partial(normalize_rows, X, ("power", "l2")), "NumPy and scikit-learn": plain}
    rows = []
    for who, function in functions.items():
        with PeakMemory() as memory:
            function()
        rows.append({"who": who, "filled": filled, "memory": memory.growth / 1e6})
    best = best_of(functions, 3)
    return [row | {"processor": best[row["who"]]["processor"]} for row in rows]


def measure_kmeans(n: int, n_words: int, n_threads: int, n_iter: int) -> list[dict[str, Any]]:
    """Seconds of seeding and `n_iter` iterations, by us and by peers, and the sum of squares they end with."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    values = sift_like(n, 4)
    ours = partial(kmeans_words, n_init=1, tol=0, random_state=0, n_jobs=n_threads)
    ours(values[:200], 10, max_iter=1)  # compile

    def scikit_learn() -> Any:
        model = KMeans(n_words, n_init=1, max_iter=n_iter, tol=0, random_state=0).fit(values)
        return model.n_iter_, model.inertia_

    def by_faiss() -> Any:
        import faiss

        model = faiss.Kmeans(128, n_words, niter=n_iter, max_points_per_centroid=n, min_points_per_centroid=1)
        return n_iter, model.train(values)

    def own() -> Any:
        found = ours(values, n_words, max_iter=n_iter)
        return found.n_iter, found.inertia

    peers = {"kmeans_words": own, "scikit-learn": scikit_learn}
    if importlib.util.find_spec("faiss"):
        peers["faiss, random seeds"] = by_faiss
    rows = []
    for who, function in peers.items():
        with threadpool_limits(n_threads):
            wall, processor = time.perf_counter(), time.process_time()
            iterations, inertia = function()
        rows.append({
            "who": who, "iterations": iterations, "wall": time.perf_counter() - wall,
            "processor": time.process_time() - processor, "inertia": inertia,
        })  # fmt: skip
    return rows


def measure(quick: bool = False, n_threads: int = 2) -> dict[str, Any]:
    """All of it, printed and returned; `benchmarks/front_end.py` may call this."""
    n, n_words, repeats, n_iter = (5000, 100, 2, 3) if quick else (100_000, 1000, 5, 10)
    results: dict[str, Any] = {"n": n, "n_words": n_words}
    results["hard"] = [row for threads in {1, n_threads} for row in measure_hard(n, n_words, threads, repeats)]
    print(f"Nearest of {n_words} words, 128 numbers, {n} vectors: vectors per second\n")
    print_table(results["hard"], {
        "who": "who", "threads": "threads", "rate": "by the clock", "processor_rate": "per second of processor",
        "same": "same words, %",
    })  # fmt: skip
    sizes = {"n": n, "n_words": n_words, "n_threads": n_threads}
    results["encoders"] = [
        in_fresh_process(__file__, "measure_encoder", assignment=name, repeats=max(1, repeats // 2), **sizes)
        for name in ASSIGNMENTS
    ]
    results["encoders"] += measure_sparse_peers(**sizes)
    print(f"Histograms of {n_words} words in 21 cells (VLAD: in one), {n_threads} threads: vectors per second\n")
    print_table(results["encoders"], {
        "assignment": "assignment", "vectors": "vectors", "rate": "by the clock",
        "processor_rate": "per second of processor", "memory": "memory, MB",
    })  # fmt: skip
    rows, columns = (n // 10, 128) if quick else (n, 512)
    results["normalizing"] = [
        row for filled in (1.0, 0.02) for row in in_fresh_process(__file__, "measure_normalizing", n=rows,
                                                                   n_columns=columns, filled=filled)
    ]  # fmt: skip
    print(f"Roots and length 1 of {rows} rows of {columns} numbers\n")
    print_table(results["normalizing"], {
        "who": "who", "filled": "share of non-zeros", "processor": "seconds of processor", "memory": "memory, MB",
    })  # fmt: skip
    results["kmeans"] = measure_kmeans(n, n_words, n_threads, n_iter)
    print(f"k-means, {n_words} words, {n} vectors, seeding and {n_iter} iterations, {n_threads} threads: seconds\n")
    print_table(results["kmeans"], {
        "who": "who", "iterations": "iterations", "wall": "by the clock", "processor": "of processor",
        "inertia": "sum of squares",
    })  # fmt: skip
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    print(" · ".join(f"{key} {value}" for key, value in machine().items()), "\n")
    results = {**machine(), **measure(options.quick, options.threads)}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
