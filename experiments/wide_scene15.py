"""21,000 columns of pyramid histograms reduced to some hundred or thousand: the first application of BSC13."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise.codebooks.normalizing import normalize_rows
from experiments import sets
from experiments.classifying import fixed_linear_error
from experiments.differences import always
from experiments.pages import Claim, Curves, Section, Table
from experiments.running import Cell, Options, Results
from experiments.wide_draws import Accuracies, drawn, gap, kept_penalty, shown
from experiments.wide_reducing import LABELS, reductions

PAPER = "BSC13"
TITLE = "pyramid histograms of 21,000 columns"
DATA = ("scene15",)

SIZES = (200, 500, 1000, 2000, 4000)
METHODS = ("pca", "hashing", "columns", "bsc", "pka", "bscb", "pkab")
MERGING = ("bsc", "pka", "bscb", "pkab")
UP_TO = {"pca": 1000}  # 1500 training images have no more than 1499 components
PENALTIES = (0.3, 1.0, 3.0, 10.0)
REPEATS = 5
STACKED = {"bsc": 70.8, "bscb": 72.49}  # published accuracies of [x, -x] at 50 columns
N_STACKED = 50
MOST_STORED = 100_000  # bytes, as the paper states it for merging

Found = dict[tuple[str, int], Accuracies]  # by method and size


def cells(options: Options) -> list[Cell]:
    repeats = options.repeats or (1 if options.quick else REPEATS)
    sizes = (50, 100) if options.quick else SIZES
    found = []
    for draw in range(repeats):
        tasks = [(method, size) for size in sizes for method in METHODS if size <= UP_TO.get(method, max(sizes))]
        tasks += [("all", 0)]
        tasks += [(f"{kind}{method}", N_STACKED) for method in STACKED for kind in ("", "stacked-")]
        found += [
            Cell(f"{draw:02d}/{method}/{size:04d}", measure,
                 {"options": options, "method": method, "size": size, "draw": draw})
            for method, size in tasks
        ]  # fmt: skip
    return found


def prepare(options: Options) -> None:
    sets.scene15(options, pyramid=True)


@lru_cache(maxsize=1)
def features(options: Options) -> tuple[sp.csr_array, sets.Words]:
    """Hellinger-normalised histograms of all 21 cells together."""
    words = sets.scene15(options, pyramid=True)
    return normalize_rows(words.X.astype(np.float32), ("l1", "power")), words


def measure(options: Options, method: str, size: int, draw: int) -> dict[str, float]:
    """Accuracy on one draw, the reduction being learned from its training images; and what the reduction costs."""
    X, words = features(options)
    y = words.y
    train, test = drawn(y, words.train, draw)
    place = f"pyramid-{method}-{size}"
    found: dict[str, float] = {}
    if method == "all":
        Z = X
    else:
        if method.startswith("stacked-"):
            X, method = sp.csr_array(sp.hstack([X, -X])), method.removeprefix("stacked-")
        reduction = reductions(method, X[train], [size])[size]
        reduction.apply(X[:2])  # compiles
        started = time.process_time()
        Z = reduction.apply(X).astype(np.float64)
        per_image = 1000 * (time.process_time() - started) / X.shape[0]
        found = {"fit": round(reduction.seconds, 2), "per_image": round(per_image, 4), "bytes": reduction.n_bytes}
    best = kept_penalty(options, place, Z, y, train, PENALTIES)
    error = fixed_linear_error(Z[train], y[train], Z[test], y[test], best)
    return {"accuracy": round(100 * (1 - error), 3), **found}


def sections(results: Results) -> list[Section]:
    found: Found = {}
    costs: dict[tuple[str, int], dict[str, float]] = {}
    for key, result in results.items():
        draw, method, size = key.split("/")
        found.setdefault((method, int(size)), {})[draw] = result["accuracy"]
        if "fit" in result:
            costs.setdefault((method, int(size)), result)
    if not found:
        return []
    sizes = sorted({size for method, size in found if method in METHODS and size != N_STACKED})
    rows = [[LABELS[method], *(shown(found.get((method, size))) for size in sizes)]
            for method in METHODS if any((method, size) in found for size in sizes)]  # fmt: skip
    tables = [Table("Accuracy, %", ("columns", *map(str, sizes)), rows)] if rows else []
    for title, name, form in (
        ("Learned in seconds", "fit", ".3g"),
        ("Applied in milliseconds an image", "per_image", ".3g"),
        ("Bytes", "bytes", ",.0f"),
    ):
        rows = [[LABELS[m], *(format(costs[m, s][name], form) if (m, s) in costs else None for s in sizes)]
                for m in METHODS if any((m, s) in costs for s in sizes)]  # fmt: skip
        if rows:
            tables.append(Table(title, ("columns", *map(str, sizes)), rows))
    stacked = [[LABELS[m], shown(found.get((f"stacked-{m}", N_STACKED))), f"{STACKED[m]}",
                shown(found.get((m, N_STACKED)))]
               for m in STACKED if (f"stacked-{m}", N_STACKED) in found]  # fmt: skip
    if stacked:
        tables.append(Table(f"Columns beside their negatives, to {N_STACKED}: accuracy, %",
                            ("method", "ours", "published", "ours without negatives"), stacked))  # fmt: skip
    whole = shown(found.get(("all", 0)))
    text = f"""
1000 words from dense SIFT, counted in the 21 cells of the pyramid; Hellinger-normalised over all cells together.
Reductions
are learned from the training images (100 a class; the fixed draw, then random ones), and a linear SVM is taught on
what they give, with C by 5 folds of the training images of the draw run first. All 21,000 columns:
{whole or "not measured yet"} %. PCA has no more components than training images.
PCA is above BSC without roots as well: 74.0 and 76.1 % with 200 and 1000 columns, BSC 69.5 and 73.9 % (a trial with
the fixed draw, roots taken of sums for BSC, C = 3).

"k-means of columns" is what BSC would do without a sketch. The paper shows curves only, but for the check with
negatives: there BSCB has twice the columns to merge that say the same, and must give what it gives without them; BSC
has to tell them apart. Times are of one processor that was shared with other work."""
    return [Section("Pyramid histograms of Scene-15", text, _claims(found, costs), tables, _plots(found))]


def _plots(found: Found) -> list[Curves]:
    series: dict[str, Any] = {}
    for method in METHODS:
        sizes = sorted(size for name, size in found if name == method)
        if sizes:
            series[LABELS[method]] = (
                sizes,
                [float(np.mean(list(found[method, size].values()))) for size in sizes],
                None,
            )
    return [Curves("Pyramid histograms of Scene-15", "columns", "accuracy, %", series)] if series else []


def _claims(found: Found, costs: dict[tuple[str, int], dict[str, float]]) -> list[Claim]:
    claims = []
    for first, second, text in (
        ("bsc", "hashing", "BSC is far above hashing"),
        ("pka", "bsc", "PKA is above BSC"),
        ("pkab", "bscb", "PKAB is above BSCB"),
        ("pca", "bsc", "PCA is slightly above BSC with few columns, BSC is above with many"),
        ("bsc", "columns", "A sketch costs BSC less than a point"),
    ):
        sizes = [size for size in SIZES if {(first, size), (second, size)} <= found.keys()]
        lines = [[found[method, size] for size in sizes] for method in (first, second)]
        each = {size: one for size, a, b in zip(sizes, *lines, strict=True) if (one := gap([a], [b])) is not None}
        mean = gap(*lines) if sizes else None
        if mean is None or not each:
            continue
        if first == "pca":
            few, many = each[min(each)], each[max(each)]
            holds = always((few.above, many.below)) if len(each) > 1 else None
        else:
            holds = mean.more_than(-1 if second == "columns" else 0)
        told = ", ".join(f"{one} at {size}" for size, one in each.items())
        claims.append(Claim(text, holds, f"{LABELS[first]} less {LABELS[second]}, points: {told}; {mean} in the mean."))
    stored = [cost["bytes"] for (method, _), cost in costs.items() if method in MERGING]
    projected = [cost["bytes"] for (method, _), cost in costs.items() if method == "pca"]
    if stored and projected:
        claims.append(Claim("Merging stores less than 100 kB", max(stored) < MOST_STORED,
                            f"{max(stored):,.0f} bytes at most; PCA {max(projected):,.0f}."))  # fmt: skip
    bipolar, plain = (found.get((f"stacked-{method}", N_STACKED)) for method in ("bscb", "bsc"))
    if bipolar and plain and (ahead := gap([bipolar], [plain])) is not None:
        claims.append(Claim("With columns beside their negatives BSCB is above BSC", ahead.above,
                            f"{shown(bipolar)} % and {shown(plain)} %, {ahead} points; published 72.49 and "
                            "70.8."))  # fmt: skip
    return claims
