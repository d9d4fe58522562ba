"""Merging wide vocabularies with labels, exactly: time and memory of the sparse store.

    python benchmarks/wide.py            # everything, about 15 minutes on 2 cores
    python benchmarks/wide.py --quick    # small sizes, to see that it works

Text-like data: 20,000 documents of 20 classes, words by Zipf's law but for each class, 8 million non-zeros
at 100,000 words; with fewer words the texts stay as long. LBP-like data: 1000 images with about 60,000 patterns each
out of 65,536, given as a dense array. Every run is a process of its own; memory is the peak of that whole process, data
and libraries included. Two matrices of 100,000 x 100,000, which the dense store or any method on a table of distances
would need, take 160 GB.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from harness import in_fresh_process, machine, print_table, print_targets, timed

SIZES = (12_500, 25_000, 50_000, 100_000)
QUICK_SIZES = (1000, 2000)


def make_texts(n: int, d: int, length: int, n_classes: int = 20) -> tuple[Any, Any]:
    """Draw (X, y): counts of words whose frequencies fall as 1 / rank and differ between classes."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    place = rng.permutation(d).astype(np.int32)  # common words stand anywhere
    documents, words = [], []
    for c in range(n_classes):
        members = np.flatnonzero(y == c)
        lengths = 1 + rng.poisson(length * rng.lognormal(0, 0.5, len(members)))
        reached = np.cumsum(np.exp(rng.normal(size=d)) / np.arange(1, d + 1))
        drawn = np.searchsorted(reached, rng.random(lengths.sum()) * reached[-1])
        words.append(place[drawn])
        documents.append(np.repeat(members, lengths).astype(np.int32))
    ones = np.ones(sum(map(len, words)))
    return sp.csr_array((ones, (np.concatenate(documents), np.concatenate(words))), shape=(n, d)), y


def make_patterns(n: int, d: int, length: int, n_classes: int = 10) -> tuple[Any, Any]:
    """Draw (X, y), X dense: histograms of patterns, a few common and most of them rare."""
    import numpy as np

    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    place = rng.permutation(d)
    frequencies = np.exp(rng.normal(size=(n_classes, d))) / np.arange(1, d + 1)
    reached = np.cumsum(frequencies, axis=1)
    X = np.empty((n, d))
    for i, c in enumerate(y):
        drawn = np.searchsorted(reached[c], rng.random(length) * reached[c, -1])
        X[i, place] = np.bincount(drawn, minlength=d)
    return X, y


def peak_memory() -> float:
    """Most memory that this process has held so far, in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(kind: str, n: int, d: int, length: int, store: str, limit: str | None) -> dict[str, Any]:
    """Merge to one word, after compiling."""
    import numpy as np

    import bagwise

    bagwise.warmup()
    X, y = make_texts(n, d, length) if kind == "texts" else make_patterns(n, d, length)
    data = peak_memory()
    merger = bagwise.WordMerger(criterion="csm", store=store, memory_limit=limit, n_jobs=2)
    seconds, _ = timed(lambda: merger.fit(X, y))
    return {
        "data": kind,
        "samples": n,
        "words": d,
        "millions": (X.nnz if kind == "texts" else np.count_nonzero(X)) / 1e6,
        "store": merger.store_,
        "seconds": seconds,
        "data_gb": data / 1e9,
        "peak_gb": peak_memory() / 1e9,
    }


def compare(n: int, d: int, length: int) -> list[dict[str, Any]]:
    """Merge the same texts with all stores: times, and whether they agree."""
    import numpy as np

    import bagwise

    bagwise.warmup()
    X, y = make_texts(n, d, length)
    rows = []
    for store in ("dense", "sparse"):
        seconds, hierarchy = timed(
            lambda store=store: bagwise.merge_words(X, y, criterion="csm", store=store, n_jobs=2)
        )
        if store == "dense":
            expected = hierarchy
        defined = np.isfinite(expected.scores)
        difference = np.abs(hierarchy.scores[defined] / expected.scores[defined] - 1).max()
        rows.append({
            "words": d, "store": store, "seconds": seconds, "difference": float(difference),
            "same": int(np.sum((hierarchy.merges == expected.merges).all(axis=1))), "merges": d - 1,
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    options = parser.parse_args()
    started = time.perf_counter()
    results: dict[str, Any] = {"machine": machine()}
    print(" · ".join(f"{key} {value}" for key, value in results["machine"].items()), "\n")

    n, length, few = (500, 100, 300) if options.quick else (20_000, 570, 5000)
    results["agreement"] = in_fresh_process(__file__, "compare", n=n // 10, d=few, length=length)
    print(f"The same {n // 10} texts with every store; scores beside those of the dense one\n")
    print_table(results["agreement"], {
        "words": "words", "store": "store", "seconds": "s", "same": "same merges", "merges": "of",
        "difference": "largest relative difference of scores",
    })  # fmt: skip

    texts = [
        in_fresh_process(__file__, "measure", kind="texts", n=n, d=d, length=length, store="sparse", limit=None)
        for d in (QUICK_SIZES if options.quick else SIZES)
    ]
    results["texts"] = texts
    n, d, length, store = (50, 500, 400, "sparse") if options.quick else (1000, 65_536, 60_000, "auto")
    patterns = in_fresh_process(
        __file__, "measure", kind="patterns", n=n, d=d, length=length, store=store, limit="2GB"
    )  # fmt: skip
    results["patterns"] = patterns
    print("Full hierarchies by class separability, two threads\n")
    print_table([*texts, patterns], {
        "data": "data", "samples": "samples", "words": "words", "millions": "non-zeros (M)", "store": "store",
        "seconds": "s", "data_gb": "GB before merging", "peak_gb": "GB at the peak",
    })  # fmt: skip
    import numpy as np

    log_words, log_seconds = (np.log([row[key] for row in texts]) for key in ("words", "seconds"))
    results["exponent"] = float(np.polyfit(log_words, log_seconds, 1)[0])
    print(f"Time grows as words ^ {results['exponent']:.2f} over these sizes\n")
    if not options.quick:
        wide = {row["words"]: row for row in texts}
        print("Goals")
        print_targets([
            ("100,000 words, minutes", wide[100_000]["seconds"] / 60, "<=", 10),
            ("100,000 words, GB", wide[100_000]["peak_gb"], "<=", 3),
            ("50,000 words, minutes", wide[50_000]["seconds"] / 60, "<=", 3),
            ("patterns, GB", patterns["peak_gb"], "<=", 3),
            ("5000 words: largest difference of scores, 1e-9", results["agreement"][1]["difference"] / 1e-9, "<=", 1),
        ])  # fmt: skip
    print(f"({time.perf_counter() - started:.0f} s in all)")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
