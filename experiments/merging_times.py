"""How long merging takes: the sizes of the papers' tables, with our search, the papers' and the exhaustive one."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise import merge_words
from bagwise.merging.criteria import ClassSeparability
from bagwise.merging.rows import DenseRows
from bagwise.merging.searches.ratios import SEARCHES
from experiments.pages import Claim, Section, Table
from experiments.running import Cell, Options, Results

PAPER = "GE17"
TITLE = "merging times"

# name: samples of both classes, words, and the published seconds (fast, exhaustive)
TABLE_IV = {
    "Caltech-256": ((30, 30), 1024, (0.5, 3.7)),
    "VOC 2007": ((500, 4500), 4000, (6.3, 192.3)),
    "VOC 2012": ((1000, 5200), 4000, (6.7, 197.4)),
    "Scene-15": ((100, 200), 1000, (0.5, 2.7)),
}
GROWTH = (1000, 2000, 4000, 10_000)
EXHAUSTIVE_UP_TO = 4000  # beyond, its time is taken from the growth with the cube of words
REPEATS = 3


def cells(options: Options) -> list[Cell]:
    repeats = options.repeats or (1 if options.quick else REPEATS)
    sizes = (200, 400) if options.quick else GROWTH
    found = [
        Cell(f"growth/{n_words:05d}/{search}", measure,
             {"counts": (50, 50), "n_words": n_words, "search": search, "repeats": repeats, "uniform": True})
        for n_words in sizes for search in SEARCHES if search != "exhaustive" or n_words <= EXHAUSTIVE_UP_TO
    ]  # fmt: skip
    for name, (counts, n_words, _) in TABLE_IV.items():
        if options.quick and n_words > 1024:
            continue
        found += [
            Cell(f"table/{name}/{search}", measure,
                 {"counts": counts, "n_words": n_words, "search": search, "repeats": repeats, "uniform": False})
            for search in SEARCHES
        ]  # fmt: skip
    return found


def measure(counts: tuple[int, int], n_words: int, search: str, repeats: int, uniform: bool) -> dict[str, float]:
    """Seconds from histograms to a hierarchy down to two words, by CSM, and its memory; for Table IV also of its steps.

    These are forming A and B, which is the same whatever the search, and the search. The best of several runs.
    """
    from harness import PeakMemory, timed

    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], counts)
    if uniform:
        X = rng.integers(0, 100, (len(y), n_words)).astype(float)
    else:  # a thousand patches an image, words of very different frequency that lean to one class or the other
        rates = rng.gamma(0.5, size=n_words) * np.exp(0.4 * rng.standard_normal((2, n_words)))
        X = rng.poisson(1000 * (rates / rates.sum(axis=1, keepdims=True))[y]).astype(float)
    merge_words(X[:, :50], y, criterion="csm", search=search, n_groups=2, n_jobs=1)  # compiles
    times, forming, searching, memory = [], [], [], 0.0
    for _ in range(1 if search == "exhaustive" and n_words > 2000 else repeats):
        with PeakMemory() as peak:
            seconds, _ = timed(lambda: merge_words(X, y, criterion="csm", search=search, n_groups=2, n_jobs=1))
            times.append(seconds)
        memory = max(memory, peak.growth)
        if uniform:
            continue
        seconds, store = timed(lambda: DenseRows.of(X, *ClassSeparability().structures(X, y)))
        forming.append(seconds)
        seconds, _ = timed(lambda store=store: _merge(store, search, n_words - 2))
        searching.append(seconds)
    found = {"seconds": min(times), "memory": memory}
    return found if uniform else found | {"forming": min(forming), "searching": min(searching)}


def _merge(store: DenseRows, search: str, n_merges: int) -> None:
    SEARCHES[search](store, 1).advance(np.empty((n_merges, 2), dtype=np.int64), np.empty(n_merges))


def sections(results: Results) -> list[Section]:
    growth: dict[int, dict[str, Any]] = {}
    for key, result in results.items("growth/"):
        _, n_words, search = key.split("/")
        growth.setdefault(int(n_words), {})[search] = result
    rows = []
    for n_words, found in sorted(growth.items()):
        exhaustive = found.get("exhaustive")
        largest = max((n for n in growth if "exhaustive" in growth[n]), default=None)
        if exhaustive is not None:
            slow: Any = f"{exhaustive['seconds']:.3g}"
        elif largest is not None:
            slow = f"about {growth[largest]['exhaustive']['seconds'] * (n_words / largest) ** 3:.0f}"
        else:
            slow = None
        bound = found.get("bound")
        published = {1000: "exhaustive 9", 10_000: "fast 93, exhaustive 8466; 1.45 GB"}.get(n_words)
        rows.append([
            f"{n_words:,}", bound and f"{bound['seconds']:.3g}", bound and f"{bound['memory'] / 1e9:.2f} GB",
            found["polar"]["seconds"] if "polar" in found else None, slow, published,
        ])  # fmt: skip
    synthetic = Table(
        "100 samples, counts uniform in 0..99, down to 2 words (seconds)",
        ("words", "bound (ours)", "its memory", "polar (the papers' index)", "exhaustive", "published (2008)"),
        rows,
    )
    table = []
    claims = []
    for name, (counts, n_words, (fast, slow)) in TABLE_IV.items():
        found = {
            search: results[f"table/{name}/{search}"] for search in SEARCHES if f"table/{name}/{search}" in results
        }
        if len(found) < len(SEARCHES):
            continue
        seconds = {search: one["searching"] for search, one in found.items()}
        table.append([f"{name}, {n_words} words, {counts[0]} + {counts[1]} samples", found["bound"]["forming"],
                      *(seconds[s] for s in SEARCHES), found["bound"]["seconds"],
                      f"fast {fast}, exhaustive {slow}"])  # fmt: skip
        gains = {search: seconds["exhaustive"] / seconds[search] for search in ("polar", "bound")}
        told = f"as much over the exhaustive search as published ({slow / fast:.1f} times)"
        claims += [
            Claim(
                f"{name}: the papers' index gains at least {told}",
                gains["polar"] >= slow / fast,
                f"Here {gains['polar']:.1f} times (the bound search, ours: {gains['bound']:.0f} times).",
            ),
            Claim(
                f"{name}: the bound search, ours, gains at least {told} for the papers' index",
                gains["bound"] >= slow / fast,
                f"{gains['bound']:.0f} times.",
            ),
        ]
    text = """
One thread, CSM, the best of three (exhaustive above 2000 words: one run). Uniform counts: whole runs from histograms to
hierarchy. Table IV: forming the distances of both graphs, which is the same for all searches, and searching apart. Data
are drawn at random in the sizes of the tables: uniform counts as in 2008, images of a thousand patches for Table IV,
since VOC and Caltech-256 are not among our data sets. Exhaustive times above 4000 words are extrapolated by the cube.
Published times are from the machines of their day: compare ratios."""
    given = Table(
        "Table IV of GE17 (seconds)",
        ("sizes", "forming", "bound (ours)", "polar (the papers' index)", "exhaustive", "whole run", "published"),
        table,
    )  # fmt: skip
    return [Section("Merging times", text, claims, [one for one in (synthetic, given) if one.rows])]
