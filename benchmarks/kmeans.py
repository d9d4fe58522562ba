"""k-means for words: a step, whole fits, and what fewer starts and iterations do to errors.

    python benchmarks/kmeans.py                          # times beside faiss and scikit-learn, a few minutes
    python benchmarks/kmeans.py --quick                  # small sizes, to see that it works
    python benchmarks/kmeans.py --data DIR --photos      # 500 photos of Corel-1k: words as the application learns them
    python benchmarks/kmeans.py --data DIR --errors      # errors of classifiers by k-means to its end and by default

A step is the assignment of all vectors to centres that moved once, and their means. Vectors have the spectrum of SIFT
(128 numbers) or of activations of a network (320): a few directions hold most of the variance. Peers run in turn, with
as many threads; seconds are by the clock and of the processor (all threads), which suffers less from others on the
machine. DIR is a folder with Corel-1k, Scene-15, Caltech-101 (four classes) and MNIST as the experiments read them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from bagwise import BagOfFeatures, Bags, open_collection
from bagwise._utils.threads import one_blas_thread
from bagwise.codebooks import kmeans_words
from bagwise.codebooks.batches import sample_vectors
from bagwise.codebooks.kmeans import Problem
from bagwise.codebooks.normalizing import normalize_rows
from bagwise.descriptors import ColorCells, DenseSIFT, Patches
from harness import machine, print_table

TO_THE_END = {"n_init": 5, "max_iter": 100, "tol": 1e-5}
ONE_TO_THE_END = TO_THE_END | {"n_init": 1}
SETTINGS = {"5 x 100": TO_THE_END, "1 x 100": ONE_TO_THE_END, "default": {}}
WIDTHS = (128, 320)
# Images of each class, and vectors that words are learned from, where errors are compared.
N_OF_CLASS, N_SAMPLED = 25, 40_000


def vectors_like(n: int, width: int, seed: int) -> np.ndarray:
    """Vectors of length 1 around a few hundred places; a quarter of directions has most of the variance."""
    rng = np.random.default_rng(seed)
    spectrum = np.exp(-3.0 * np.arange(width) / width)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(width, width)))[0]
    places = np.random.default_rng(1).normal(size=(300, width))
    values = (places[rng.integers(0, 300, n)] + rng.normal(size=(n, width))) * spectrum @ turn
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)


def in_turn(functions: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, float]]:
    """Least seconds, by the clock and of the processor, of functions called in turn, after one call of each."""
    best = {name: {"wall": np.inf, "processor": np.inf} for name in functions}
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            wall, processor = time.perf_counter(), time.process_time()
            function()
            seconds = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
            if repeat:
                best[name] = {kind: min(best[name][kind], seconds[kind]) for kind in seconds}
    return best


def measure_step(values: np.ndarray, n_words: int, n_threads: int, repeats: int) -> Iterator[dict[str, Any]]:
    """One step from centres that moved once: ours, and faiss's search for nearest centres."""
    import faiss

    points = values - values.mean(axis=0)
    problem, ones = Problem(points, None, False, n_threads), np.ones(len(points))
    centres = points[np.random.default_rng(0).choice(len(points), n_words, replace=False)]
    with one_blas_thread():
        problem.expect_iterations(n_words)
        labels, signs = problem.assign(centres)
    sums, masses = Problem.sums(points, ones, labels, signs, n_words)
    centres = (sums / np.maximum(masses, 1)[:, np.newaxis]).astype(np.float32)

    def ours() -> None:
        with one_blas_thread():
            Problem.sums(points, ones, *problem.assign(centres, labels), n_words)

    def by_faiss() -> None:
        index = faiss.IndexFlatL2(points.shape[1])
        index.add(centres)
        index.search(points, 1)

    faiss.omp_set_num_threads(n_threads)
    with threadpool_limits(n_threads):
        best = in_turn({"bagwise": ours, "faiss, assignment alone": by_faiss}, repeats)
    for who, seconds in best.items():
        peer = best["faiss, assignment alone"]
        shares = {f"{kind}_share": seconds[kind] / peer[kind] for kind in seconds}
        yield {"who": who, "n": len(points), "width": points.shape[1], "threads": n_threads} | seconds | shares


def measure_fit(values: np.ndarray, n_words: int, n_threads: int) -> Iterator[dict[str, Any]]:
    """Whole fits: ours to the end and by default, and peers with as many iterations as our default took."""
    from sklearn.cluster import KMeans

    kmeans_words(values, n_words, max_iter=1, random_state=0)  # compiles
    found: dict[str, Any] = {}

    def ours(settings: dict[str, Any]) -> tuple[int, float]:
        words = kmeans_words(values, n_words, random_state=0, n_jobs=n_threads, **settings)
        return words.n_iter, words.inertia

    def by_faiss() -> tuple[int, float]:
        import faiss

        faiss.omp_set_num_threads(n_threads)
        n_iter = found["bagwise, default"][0]
        peer = faiss.Kmeans(
            values.shape[1], n_words, niter=n_iter, max_points_per_centroid=len(values), min_points_per_centroid=1
        )
        return n_iter, peer.train(values)

    def scikit_learn() -> tuple[int, float]:
        peer = KMeans(n_words, n_init=1, max_iter=found["bagwise, default"][0], tol=0, random_state=0).fit(values)
        return peer.n_iter_, peer.inertia_

    functions: dict[str, Callable[[], tuple[int, float]]] = {"bagwise, default": lambda: ours({})}
    if importlib.util.find_spec("faiss"):
        functions["faiss, random seeds"] = by_faiss
    functions["scikit-learn"] = scikit_learn
    functions["bagwise, 1 x 100"] = lambda: ours(ONE_TO_THE_END)
    for who, function in functions.items():
        with threadpool_limits(n_threads):
            wall, processor = time.perf_counter(), time.process_time()
            found[who] = n_iter, inertia = function()
        yield {
            "who": who, "n": len(values), "width": values.shape[1], "threads": n_threads, "iterations": n_iter,
            "wall": time.perf_counter() - wall, "processor": time.process_time() - processor,
            "inertia": inertia / found["bagwise, default"][1],
        }  # fmt: skip


def photo_vectors(data: Path) -> np.ndarray:
    """SIFT of the first 50 photos of each class of Corel-1k: those that words are learned from."""
    photos = open_collection(data / "corel1k" / "corel1k.zip")
    some = photos[first_of_each(np.array(photos.labels), 50)]
    return sample_vectors(DenseSIFT().iter_transform(some), 100_000, np.random.default_rng(0))[0]


def first_of_each(labels: np.ndarray, n: int) -> np.ndarray:
    """Numbers of the first n items of each class."""
    return np.sort(np.concatenate([np.flatnonzero(labels == label)[:n] for label in np.unique(labels)]))


def sets(data: Path) -> Iterator[tuple[str, int, Bags, np.ndarray]]:
    """Six data sets of images: name, number of words, bags of vectors and classes; training parts, or a sample."""
    for name, path, descriptor, n_words in (
        ("Corel-1k, SIFT", "corel1k/corel1k.zip", DenseSIFT(), 1000),
        ("Corel-1k, colours", "corel1k/corel1k.zip", ColorCells(), 500),
        ("Scene-15, SIFT", "scene15/scene15.zip", DenseSIFT(), 1000),
        ("Caltech-101, four classes, SIFT", "caltech101_4/caltech101_4.zip", DenseSIFT(), 500),
    ):
        images = open_collection(data / path)
        if "train" in (images.splits or ()):
            images = images[np.flatnonzero(np.array(images.splits) == "train")]
        labels = np.array(images.labels)
        chosen = first_of_each(labels, N_OF_CLASS)
        yield name, n_words, descriptor.transform(images[chosen]), labels[chosen]
    with np.load(data / "mnist" / "mnist.npz") as digits:
        images, labels = digits["x_train"][:1000], digits["y_train"][:1000]
    yield "MNIST, patches", 200, Patches(patch=7, step=3).transform(list(images)), labels
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 8, 8) * 15.9).astype(np.uint8)
    yield "digits of 8 x 8, patches", 100, Patches(patch=4, step=1).transform(list(images)), labels


def measure_errors(data: Path, seeds: range, settings: list[str], quick: bool) -> Iterator[dict[str, Any]]:
    """Errors in %, cross-validated in five folds: words from all bags without labels, roots of shares, linear SVM."""
    for name, n_words, bags, labels in sets(data):
        row: dict[str, Any] = {"data": name, "bags": len(bags), "words": n_words}
        for setting, given in ((name, SETTINGS[name]) for name in settings):
            errors, processor = [], 0.0
            for seed in seeds:
                started = time.process_time()
                model = BagOfFeatures(20 if quick else n_words, n_samples=N_SAMPLED, sparse_output=False,
                                      random_state=seed, **given)  # fmt: skip
                model.fit(bags)
                processor += time.process_time() - started
                X = normalize_rows(model.transform(bags), ("l1", "power"))
                folds = StratifiedKFold(5, shuffle=True, random_state=seed)
                errors.append(100 - 100 * cross_val_score(LinearSVC(random_state=0), X, labels, cv=folds).mean())
            row |= {
                setting: f"{np.mean(errors):.2f} ± {np.std(errors):.2f}", f"{setting} s": processor / len(seeds),
                f"{setting} errors": errors,
            }  # fmt: skip
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--photos", action="store_true", help="words of 500 photos instead of times of made vectors")
    parser.add_argument("--errors", action="store_true", help="errors instead of times")
    parser.add_argument("--seeds", type=int, default=3, help="for errors")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="for errors")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    if (options.photos or options.errors) and options.data is None:
        parser.error("--photos and --errors need --data")
    print(" · ".join(f"{key} {value}" for key, value in machine().items()), "\n")
    results: dict[str, Any] = dict(machine())
    times = {"who": "who", "n": "vectors", "width": "numbers", "threads": "threads"}
    seconds = {"wall": "by the clock, s", "processor": "of processor, s"}
    if options.errors:
        results["errors"] = list(measure_errors(options.data, range(options.seeds), options.settings, options.quick))
        columns = {name: f"{name}, %" for name in options.settings}
        columns |= {f"{name} s": f"{name}, CPU s" for name in options.settings}
        print_table(results["errors"], {"data": "data", "bags": "bags", "words": "words"} | columns)
    else:
        n_words = 70 if options.quick else 1000
        made = [photo_vectors(options.data)] if options.photos else [
            vectors_like(n, width, 2) for width in WIDTHS for n in ((70_000,) if options.quick else (50_000, 100_000))
        ]  # fmt: skip
        results["steps"] = [
            row
            for values in made
            for threads in (1, 2)
            for row in measure_step(values, n_words, threads, 1 if options.quick else 5)
        ]
        print(f"A step, {n_words} words; shares of faiss's seconds\n")
        shares = {"wall_share": "share", "processor_share": "share of processor"}
        print_table(results["steps"], times | seconds | shares)
        results["fits"] = [row for values in made if len(values) > 50_000 for row in measure_fit(values, n_words, 2)]
        print(f"Whole fits, {n_words} words\n")
        print_table(results["fits"], times | {"iterations": "iterations"} | seconds | {"inertia": "sum of squares"})
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
