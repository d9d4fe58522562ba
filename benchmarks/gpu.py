"""Speed on a CUDA device, beside one-liners of PyTorch and CuPy and our own code on the CPU of the same machine.

    python benchmarks/gpu.py                       # everything, a minute or two on one H200
    python benchmarks/gpu.py kmeans gram           # some of it
    python benchmarks/gpu.py --quick               # small sizes, to see that it works
    python benchmarks/gpu.py --data DIR            # with the images of Scene-15, or BAGWISE_DATA=DIR

Needs CuPy and a device (`pip install "bagwise[gpu]"`); PyTorch is compared if it is installed. Seconds are the median
of several calls, after one that compiles; data are on the device unless a row says otherwise. The CPU is given a part
of the work where all of it would take minutes, and its time is scaled up; such rows say so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import LatentDirichletAllocation
from threadpoolctl import threadpool_limits

from bagwise import BagIndex, merge_words, open_collection
from bagwise.codebooks import assign_words, encode_bags, encode_images, kmeans_words
from bagwise.criteria import ClassSeparability, InformationLoss
from bagwise.descriptors import DenseSIFT
from bagwise.kernels import additive_kernel
from bagwise.merging.rows import DenseRows
from bagwise.topics.inference import Corpus, to_counts
from encoding import sift_like
from harness import machine, print_table, print_targets

DATA = Path(os.environ.get("BAGWISE_DATA", "data"))
COLUMNS = {"who": "who", "seconds": "seconds", "ratio": "times ours", "note": "note"}


def seconds_of(function: Callable[[], Any], repeats: int = 3) -> float:
    """Median seconds of calls, until the device is done; after one call that compiles."""
    import cupy

    function()
    times = []
    for _ in range(repeats):
        cupy.cuda.Device().synchronize()
        started = time.perf_counter()
        function()
        cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def once(function: Callable[[], Any]) -> float:
    """Seconds of one call on the CPU."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def once_on_device(function: Callable[[], Any]) -> float:
    """Seconds of the second of two calls, until the device is done."""
    return seconds_of(function, 1)


def table(title: str, rows: list[tuple[str, float, str]]) -> list[dict[str, Any]]:
    """Print who took how long; the first row is ours."""
    found = [{"who": who, "seconds": took, "ratio": took / rows[0][1], "note": note} for who, took, note in rows]
    print(title + "\n")
    print_table(found, COLUMNS)
    return found


def on_device(n: int, seed: int) -> Any:
    """Vectors like SIFT on the device, a few of them made on the host and disturbed there."""
    import cupy

    few = cupy.asarray(sift_like(min(n, 100_000), seed))
    random = cupy.random.default_rng(seed)
    values = few[random.integers(0, len(few), n)]
    for start in range(0, n, 1 << 18):
        part = values[start : start + (1 << 18)]
        part *= 0.75 + 0.5 * random.random(part.shape, dtype=np.float32)
        part /= cupy.linalg.norm(part, axis=1, keepdims=True)
    return values


def torch_nearest(values: Any, words: Any, block: int = 1 << 16) -> Any:
    """The one-liner of PyTorch, a block of vectors at a time."""
    import torch

    norms = (words * words).sum(1)
    return torch.cat([torch.addmm(norms, part, words.T, alpha=-2).argmin(1) for part in values.split(block)])


def nearest(quick: bool, threads: int) -> list[dict[str, Any]]:
    """Nearest of 4000 words for a million vectors."""
    import cupy

    n, n_words = (20_000, 200) if quick else (1_000_000, 4000)
    values, words = on_device(n, 1), on_device(n_words, 2)
    host, host_words = values.get(), words.get()
    part = slice(0, n // 10)

    def by_cupy() -> Any:
        norms = (words * words).sum(axis=1)
        parts = [(norms - 2 * values[i : i + 65536] @ words.T).argmin(axis=1) for i in range(0, n, 65536)]
        return cupy.concatenate(parts)

    ours = assign_words(values, words)
    rows = [
        ("assign_words", seconds_of(lambda: assign_words(values, words), 5), ""),
        ("assign_words", seconds_of(lambda: assign_words(host, host_words, device="cuda")), "vectors on the host"),
        (
            "CuPy, argmin of a product",
            seconds_of(by_cupy),
            f"same words: {100 * float((by_cupy() == ours).mean()):.4f} %",
        ),
    ]
    if importlib.util.find_spec("torch"):
        import torch

        given = torch.from_dlpack(values), torch.from_dlpack(words)
        same = float((cupy.from_dlpack(torch_nearest(*given)) == ours).mean())
        rows.append(
            (
                "PyTorch, argmin of a product",
                seconds_of(lambda: torch_nearest(*given)),
                f"same words: {100 * same:.4f} %",
            )
        )
    took = 10 * once(lambda: assign_words(host[part], host_words, n_jobs=threads))
    same = float((assign_words(host[part], host_words, n_jobs=threads) == ours[part].get()).mean())
    note = f"{threads} threads, scaled from a tenth; same words: {100 * same:.4f} %"
    rows.append(("assign_words on the CPU", took, note))
    return table(f"Nearest of {n_words} words for {n} vectors of 128 numbers, float32", rows)


def kmeans(quick: bool, threads: int) -> list[dict[str, Any]]:
    """k-means of 4 million vectors, 4000 words, 20 iterations."""
    import cupy

    n, n_words, n_iter = (50_000, 200, 5) if quick else (4_000_000, 4000, 20)
    values = on_device(n, 3)
    found: list[Any] = []

    def ours() -> None:
        found[:] = [kmeans_words(values, n_words, n_init=1, max_iter=n_iter, tol=0, random_state=0)]

    took = seconds_of(ours, 1)
    rows = [("kmeans_words", took, f"seeds and {found[0].n_iter} iterations, sum of squares {found[0].inertia:.6g}")]
    if importlib.util.find_spec("torch"):
        import torch

        vectors = torch.from_dlpack(values)

        def by_torch() -> float:
            words = vectors[torch.randperm(n, device="cuda")[:n_words]]
            for _ in range(n_iter):
                labels = torch_nearest(vectors, words)
                sums = torch.zeros_like(words, dtype=torch.float64).index_add_(0, labels, vectors.double())
                sizes = torch.bincount(labels, minlength=n_words)[:, None]
                words = torch.where(sizes > 0, sums / sizes, words).float()
            return float((vectors - words[torch_nearest(vectors, words)]).square().sum())

        rows.append(("PyTorch, a few lines", seconds_of(by_torch, 1), f"random seeds, sum of squares {by_torch():.6g}"))
    part = values[: n // 80].get()
    took = 80 * once(
        lambda: kmeans_words(part, n_words, n_init=1, max_iter=n_iter, tol=0, random_state=0, n_jobs=threads)
    )
    rows.append(("kmeans_words on the CPU", took, f"{threads} threads, scaled from {len(part)} vectors"))
    cupy.get_default_memory_pool().free_all_blocks()
    return table(f"k-means, {n} vectors of 128 numbers, {n_words} words, {n_iter} iterations, float32", rows)


def gram(quick: bool, threads: int) -> list[dict[str, Any]]:
    """Kernel matrices of 10,000 histograms of 1000 words."""
    import cupy

    n, d = (300, 100) if quick else (10_000, 1000)
    X = cupy.asarray(np.random.default_rng(4).gamma(0.3, size=(n, d)))
    few, host = X[: n // 50], X.get()
    rows, narrow = [], X.astype(np.float32)
    for kernel in ("intersection", "chi2", "jensen_shannon"):
        rows.append((f"{kernel}, float64", seconds_of(lambda kernel=kernel: additive_kernel(X, kernel=kernel)), ""))
        rows.append(
            (f"{kernel}, float32", seconds_of(lambda kernel=kernel: additive_kernel(narrow, kernel=kernel)), "")
        )
    took = seconds_of(lambda: additive_kernel(host, device="cuda"), 1)
    rows.append(("intersection, float64", took, "histograms and result on the host"))
    took = 50 * seconds_of(lambda: [cupy.minimum(x, X).sum(axis=1) for x in few])
    rows.append(("CuPy, minimum and sum", took, "scaled from a fiftieth"))
    if importlib.util.find_spec("torch"):
        import torch

        whole = torch.from_dlpack(X)
        took = 50 * seconds_of(lambda: [torch.minimum(x, whole).sum(1) for x in whole[: n // 50]])
        rows.append(("PyTorch, minimum and sum", took, "scaled from a fiftieth"))
        took = seconds_of(lambda: (whole.sum(1)[:, None] + whole.sum(1) - torch.cdist(whole, whole, p=1)) / 2)
        rows.append(("PyTorch, cdist(p=1)", took, "intersection as half of sums less distances"))
    took = 50 * once(lambda: additive_kernel(host[: n // 50], host, n_jobs=threads))
    rows.append(("additive_kernel on the CPU", took, f"intersection, {threads} threads, scaled from a fiftieth"))
    return table(f"Kernel matrices, {n} x {n} histograms of {d} words", rows)


def scenes(quick: bool, threads: int) -> list[dict[str, Any]]:
    """500 images of Scene-15 from decoded pixels to histograms: dense SIFT, 1000 words, 21 cells.

    Images are read from DATA/scene15/scene15.zip, or from DATA/scene15_grey.npz as `--grey` writes it.
    """
    images = scene_images(20 if quick else 500)
    sift = DenseSIFT(n_jobs=threads)
    sample = sift.transform(images[::10]).values
    words = kmeans_words(sample, 50 if quick else 1000, n_init=1, max_iter=10, random_state=0, device="cuda").words
    options = {"pyramid": 21, "sparse_output": True}
    ours = seconds_of(lambda: encode_images(images, words, device="cuda", **options))
    rows = [("encode_images", ours, f"{len(images) / ours:.0f} images a second, pixels and histograms on the host")]
    there = encode_images(images, words, device="cuda", **options)
    for n in sorted({2, threads}):
        encode_images(images[:4], words, n_jobs=n, **options)
        with threadpool_limits(n):
            took = once(lambda n=n: encode_images(images, words, n_jobs=n, **options))
        rows.append((f"encode_images on {n} threads of the CPU", took, f"{len(images) / took:.0f} images a second"))
    here = encode_images(images, words, n_jobs=threads, **options)
    moved = abs(here - there).sum() / 2 / here.sum()
    bags = sift.transform(images)
    took = seconds_of(lambda: encode_bags(bags, words, device="cuda", **options))
    rows.append(("encode_bags alone", took, "descriptors on the host"))
    print(f"{bags.n_rows} descriptors; {100 * moved:.4f} % of the counts go to another word than on the CPU\n")
    return table(f"{len(images)} images of Scene-15, from decoded pixels to histograms of {len(words)} words", rows)


def scene_images(n: int) -> list[np.ndarray]:
    """Every k-th image of Scene-15, decoded to grey."""
    held = DATA / "scene15_grey.npz"
    if held.exists():
        with np.load(held) as arrays:
            return [arrays[name] for name in list(arrays)[:n]]
    collection = open_collection(DATA / "scene15" / "scene15.zip", mode="grey")
    return [np.asarray(collection[i].load()) for i in np.linspace(0, len(collection) - 1, n).astype(int)]


def search(quick: bool, threads: int) -> list[dict[str, Any]]:
    """The 10 nearest of 100,000 dense histograms of 1000 words, for 1000 queries."""
    import cupy

    n, n_queries, d = (2000, 50, 100) if quick else (100_000, 1000, 1000)
    rng = np.random.default_rng(5)
    X, Q = rng.gamma(0.3, size=(n, d)).astype(np.float32), rng.gamma(0.3, size=(n_queries, d)).astype(np.float32)
    rows = []
    for metric in ("hellinger", "chi2"):
        index = BagIndex(metric, device="cuda", n_jobs=threads).add(X)
        rows.append((f"{metric}, BagIndex", seconds_of(lambda index=index: index.search(Q, 10)), ""))
        there = index.search(Q, 10)
        index.device = "cpu"
        index.search(Q[:10], 10)
        took = 10 * once(lambda index=index: index.search(Q[: n_queries // 10], 10))
        here = index.search(Q[: n_queries // 10], 10)
        same = all(np.array_equal(a[: n_queries // 10], b) for a, b in zip(there, here, strict=True))
        note = f"{threads} threads, scaled from a tenth; {'the same' if same else 'OTHER'} results"
        rows.append((f"{metric}, BagIndex on the CPU", took, note))
    rooted, queries = cupy.sqrt(cupy.asarray(X)), cupy.sqrt(cupy.asarray(Q))
    took = seconds_of(lambda: cupy.argsort(queries @ rooted.T, axis=1)[:, -10:])
    rows.append(("hellinger, CuPy, argsort of a product", took, "float32"))
    if importlib.util.find_spec("torch"):
        import torch

        given = torch.from_dlpack(queries), torch.from_dlpack(rooted)
        rows.append(
            ("hellinger, PyTorch, topk of a product", seconds_of(lambda: (given[0] @ given[1].T).topk(10)), "float32")
        )
    return table(f"The 10 nearest of {n} dense histograms of {d} words, {n_queries} queries", rows)


def counts(d: int) -> tuple[Any, Any]:
    """Counts uniform in 0..99 for 100 samples of 2 classes, on the device: the dense data of `merging.py`."""
    import cupy

    return cupy.asarray(np.random.default_rng(0).integers(0, 100, (100, d)).astype(np.float64)), np.arange(100) % 2


def all_pairs(module: Any, A: Any, B: Any, n_levels: int) -> None:
    """Merge the best of all pairs, level by level: a few lines of CuPy or PyTorch."""
    a, b = float(A.trace()), float(B.trace())
    dead = module.zeros_like(A[0])
    for _ in range(n_levels):
        ratios = (a + 2 * A) / (b + 2 * B) - dead - dead[:, None]
        ratios.ravel()[:: len(A) + 1] = -np.inf
        s, t = divmod(int(ratios.argmax()), len(A))
        a, b = a + 2 * float(A[s, t]), b + 2 * float(B[s, t])
        for M in (A, B):
            M[s] += M[t]
            M[:, s] += M[:, t]
        dead[t] = np.inf


def separability(quick: bool, threads: int, d: int) -> list[dict[str, Any]]:
    """CSM from data on the device to the hierarchy down to two groups."""
    import cupy

    d = d // 50 if quick else d
    X, y = counts(d)
    found: list[Any] = []

    def ours() -> None:
        found[:] = [merge_words(X, y, criterion="csm", n_groups=2)]

    rows = [("merge_words", seconds_of(ours), "")]
    if d <= 30_000:
        host = X.get()
        rows.append(
            (
                "merge_words",
                seconds_of(lambda: merge_words(host, y, criterion="csm", n_groups=2, device="cuda"), 1),
                "data on the host",
            )
        )
        merge_words(host[:, :500], y, criterion="csm")  # compiles
        started = time.perf_counter()
        expected = merge_words(host, y, criterion="csm", n_groups=2, n_jobs=threads)
        took = time.perf_counter() - started
        same = bool((found[0].merges == expected.merges).all())
        apart = float(np.abs(found[0].scores / expected.scores - 1).max())
        note = f"{threads} threads; {'the same merges' if same else 'OTHER MERGES'}, scores to {apart:.0e}"
        rows.append(("merge_words on the CPU", took, note))
        store = DenseRows.of(host, *ClassSeparability().structures(host, y), threads)
        n_levels = 20
        note = f"scaled from {n_levels} levels, as if rows were packed"
        matrices = cupy.asarray(store.A), cupy.asarray(store.B)
        rows.append(
            (
                "CuPy, all pairs at each level",
                d / 3 / n_levels * once_on_device(lambda: all_pairs(cupy, *matrices, n_levels)),
                note,
            )
        )
        if importlib.util.find_spec("torch"):
            import torch

            tensors = tuple(torch.from_dlpack(matrix) for matrix in matrices)
            rows.append(
                (
                    "PyTorch, all pairs at each level",
                    d / 3 / n_levels * once_on_device(lambda: all_pairs(torch, *tensors, n_levels)),
                    note,
                )
            )
            del tensors
        del matrices, store
    cupy.get_default_memory_pool().free_all_blocks()
    return table(f"CSM, {d} words, from data on the device to two groups, float64", rows)


def information(quick: bool, threads: int, d: int) -> list[dict[str, Any]]:
    """AIB of word counts in 20 classes, many of them rare."""
    import cupy

    d, n_classes = d // 50 if quick else d, 20
    rng = np.random.default_rng(0)
    means = rng.gamma(0.3, size=(n_classes, d)) * (3e5 / (np.arange(d) + 50))
    host, y = rng.poisson(means).astype(np.float64), np.arange(n_classes)
    X = cupy.asarray(host)
    found: list[Any] = []

    def ours() -> None:
        found[:] = [merge_words(X, y, criterion="aib")]

    rows = [("merge_words", seconds_of(ours, 1), "")]
    joint = cupy.asarray(InformationLoss().scoring(host, y).states)

    def one_row_a_level(n_levels: int = 100) -> None:
        """What any plain version does at least: compare the merged word with all others."""
        for level in range(n_levels):
            both = joint + joint[level]
            loss = (both * cupy.log(both)).sum(axis=1) - both.sum(axis=1) * cupy.log(both.sum(axis=1))
            int(loss.argmax())

    took = d / 2 / 100 * once_on_device(one_row_a_level)
    rows.append(("CuPy, one word against all a level", took, "a lower limit: no others are compared again; scaled"))
    if d <= 20_000:
        merge_words(host[:, :300], y, criterion="aib")  # compiles
        started = time.perf_counter()
        expected = merge_words(host, y, criterion="aib", n_jobs=threads)
        took = time.perf_counter() - started
        same = bool((found[0].merges == expected.merges).all())
        apart = float(np.abs(found[0].scores - expected.scores).max())
        note = f"{threads} threads; {'the same merges' if same else 'other merges'}, scores to {apart:.0e}"
        rows.append(("merge_words on the CPU", took, note))
    return table(f"AIB, {d} words x {n_classes} classes, from data on the device to one group", rows)


def topics(quick: bool, threads: int) -> list[dict[str, Any]]:
    """One E-step: posteriors of documents under given topics, and the sums over them that make the next topics."""
    n, n_words, n_topics = (500, 300, 10) if quick else (50_000, 20_000, 100)
    rng = np.random.default_rng(6)
    words = np.minimum(rng.zipf(1.3, (n, 80)), n_words) - 1
    X = to_counts(
        sp.csr_array((np.ones(words.size), words.ravel(), np.arange(0, words.size + 1, 80)), (n, n_words)), ""
    )
    weights, alpha = rng.dirichlet(np.full(n_words, 0.05), n_topics).T + 1e-9, np.full(n_topics, 0.1)

    def step(corpus: Corpus, limit: int) -> Any:
        found = corpus.infer(weights, alpha, None, limit, 1e-3, threads)
        return found.bounds, corpus.expected_counts(found.ratios, found.expected, weights, threads)

    there, here = Corpus(X, "cuda"), Corpus(X)
    rows = [("E-step", seconds_of(lambda: step(there, 100)), "documents on the device, topics and sums on the host")]
    step(Corpus(X[:50]), 2)
    took = once(lambda: step(here, 100))
    apart = abs(step(there, 100)[0] / step(here, 100)[0] - 1).max()
    rows.append(
        ("E-step on the CPU", took, f"{threads} threads; ELBO of a document within {apart:.1e} of the device's")
    )
    peer = LatentDirichletAllocation(n_topics, doc_topic_prior=0.1, max_doc_update_iter=100, n_jobs=threads, max_iter=1)
    peer.fit(X[:200])
    part = X[: n // 20]
    rows.append(
        ("scikit-learn, transform", 20 * once(lambda: peer.transform(part)), "scaled from a twentieth; no sums")
    )
    return table(f"{n} documents of {n_words} words, {X.nnz} counts, {n_topics} topics, float64", rows)


TASKS: dict[str, Callable[[bool, int], list[dict[str, Any]]]] = {
    "nearest": nearest,
    "kmeans": kmeans,
    "gram": gram,
    "search": search,
    "scenes": scenes,
    "csm10k": partial(separability, d=10_000),
    "csm30k": partial(separability, d=30_000),
    "csm65k": partial(separability, d=65_536),
    "aib20k": partial(information, d=20_000),
    "aib100k": partial(information, d=100_000),
    "topics": topics,
}
# The largest seconds of the first row of a task.
GOALS = {"kmeans": 4.0, "gram": 1.0, "csm10k": 0.12, "csm30k": 0.5, "csm65k": 2.0, "aib20k": 1.0, "aib100k": 15.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"out of {', '.join(TASKS)}; all if none is given")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--threads", type=int, default=min(os.cpu_count() or 1, 16), help="of the CPU")
    parser.add_argument("--data", type=Path, help="folder with scene15/scene15.zip; BAGWISE_DATA by default")
    parser.add_argument(
        "--grey", type=Path, metavar="FILE", help="only write decoded images of Scene-15, to carry them"
    )
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    global DATA
    DATA = options.data or DATA
    if options.grey:
        np.savez_compressed(options.grey, *scene_images(500))
        return
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    where = {**machine(), "device": name, "cupy": cupy.__version__}
    print(" · ".join(f"{key} {value}" for key, value in where.items()), "\n")
    results = {task: TASKS[task](options.quick, options.threads) for task in options.tasks or TASKS}
    if not options.quick:
        reached = {task: results[task][0]["seconds"] for task in results}
        targets = [(f"{task}, seconds", reached[task], "<=", GOALS[task]) for task in reached if task in GOALS]
        if "scenes" in results:
            targets.append(("scenes, times two threads of the CPU", results["scenes"][1]["ratio"], ">=", 8.0))
        print_targets(targets)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({**where, **results}, indent=1))


if __name__ == "__main__":
    main()
