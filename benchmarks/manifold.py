"""Learning words for clustering: time and memory, beside the same objective by automatic differentiation.

    python benchmarks/manifold.py            # everything, about 10 minutes on 2 cores
    python benchmarks/manifold.py --quick    # small sizes, to see that it works

3000 objects with 200 features of 89 numbers each, drawn from 15 clusters; 128 words, 10 steps. The peer is a plain
PyTorch version of the same objective: the same histograms and pairs, blocked so that it fits, its gradient by
`backward()`. Both begin with the same words and take the same target; k-means is timed apart. Every run is a process
of its own; memory is the growth of that process beyond the data.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from harness import PeakMemory, in_fresh_process, machine, print_table, print_targets, timed


def make_problem(n: int, length: int, d: int, n_words: int) -> tuple[Any, Any, Any, Any]:
    """Draw (values, offsets, words, target)."""
    import numpy as np

    rng = np.random.default_rng(0)
    parts = rng.normal(size=(15, 8, d))
    kinds = rng.integers(0, 15, n)
    chosen = rng.integers(0, 8, (n, length))
    values = (parts[kinds[:, np.newaxis], chosen] + 0.7 * rng.normal(size=(n, length, d))).astype(np.float32)
    values = values.reshape(-1, d) / np.float32(np.sqrt(2 * d))
    words = values[rng.choice(len(values), n_words, replace=False)].astype(np.float64)
    target = np.where(kinds[:, np.newaxis] == kinds, 0.9, 0.2)
    np.fill_diagonal(target, 1.0)
    return values, np.arange(0, n * length + 1, length), words, target


def ours(n: int, length: int, d: int, n_words: int, n_iter: int) -> dict[str, float]:
    from bagwise.codebooks.manifold.learning import SoftHistograms, learn_words

    values, offsets, words, target = make_problem(n, length, d, n_words)
    few = SoftHistograms(values[: 4 * length], offsets[:5], 0.05, 2)
    learn_words(few, words[:8], target[:4, :4], sigma=10.0, max_iter=1, learning_rate=0.01)  # compiles
    with PeakMemory() as memory:
        soft = SoftHistograms(values, offsets, 0.05, 2)
        seconds, learning = timed(
            lambda: learn_words(soft, words, target, sigma=1.0, max_iter=n_iter, learning_rate=0.01, n_threads=2)
        )
    return {"seconds": seconds, "memory": memory.growth, "objective": learning.objective[-1]}


def autograd(n: int, length: int, d: int, n_words: int, n_iter: int) -> dict[str, float]:
    """The objective as one would write it first, with blocks of objects and of pairs."""
    import torch

    torch.set_num_threads(2)
    values, _, words, target = make_problem(n, length, d, n_words)
    x = torch.tensor(values.reshape(n, length, d))
    goal = torch.tensor(target, dtype=torch.float32)
    V = torch.nn.Parameter(torch.tensor(words, dtype=torch.float32))
    optimizer = torch.optim.Adam([V], lr=0.01)
    rows = max(2**24 // (n * n_words), 1)
    value = 0.0

    def histograms() -> Any:
        blocks = []
        for start in range(0, n, 100):
            distances = torch.cdist(x[start : start + 100], V)
            blocks.append(torch.softmax(-distances / 0.05, dim=2).mean(dim=1))
        return torch.cat(blocks)

    def run() -> None:
        nonlocal value
        for step in range(n_iter + 1):
            optimizer.zero_grad()
            T = histograms()
            leaf = T.detach().requires_grad_(True)  # pairs block by block, or they would not fit
            value = 0.0
            for start in range(0, n, rows):
                a, b = leaf[start : start + rows, None], leaf[None]
                chi2 = 0.5 * ((a - b) ** 2 / (a + b).clamp(min=1e-30)).sum(dim=2)
                loss = 0.5 * ((torch.exp(-chi2) - goal[start : start + rows]) ** 2).sum()
                loss.backward()
                value += loss.item()
            if step < n_iter:
                T.backward(leaf.grad)
                optimizer.step()

    with PeakMemory() as memory:
        seconds, _ = timed(run)
    return {"seconds": seconds, "memory": memory.growth, "objective": 2 * value / (n * (n - 1))}


def whole(n: int, length: int, d: int, n_words: int) -> dict[str, float]:
    """`ManifoldBagOfFeatures` from bags to words, k-means and target included."""
    from bagwise import Bags, ManifoldBagOfFeatures

    values, offsets, _, _ = make_problem(n, length, d, n_words)
    bags = Bags(values, offsets)
    model = ManifoldBagOfFeatures(n_words, n_components=15, random_state=0, n_jobs=2)
    model.set_params(max_iter=1, n_init=1).fit(bags[:20])  # compiles
    model.set_params(max_iter=10, n_init=5)
    with PeakMemory() as memory:
        seconds, _ = timed(lambda: model.fit(bags))
    return {"seconds": seconds, "memory": memory.growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--out", type=Path, help="also write the figures to this JSON file")
    options = parser.parse_args()
    started = time.perf_counter()
    results: dict[str, Any] = {"machine": machine()}
    print(" · ".join(f"{key} {value}" for key, value in results["machine"].items()), "\n")
    n, length, d, n_words, n_iter = (100, 20, 10, 16, 3) if options.quick else (3000, 200, 89, 128, 10)
    rows = []
    for objects, words in ((n // 4, n_words), (n // 2, n_words), (n, n_words // 4), (n, n_words // 2), (n, n_words)):
        size = {"n": objects, "length": length, "d": d, "n_words": words, "n_iter": n_iter}
        rows.append({"objects": objects, "words": words, **in_fresh_process(__file__, "ours", **size)})
        if (objects, words) == (n, n_words):
            peer = in_fresh_process(__file__, "autograd", **size)
            rows[-1] |= {"peer": peer["seconds"], "peer_memory": peer["memory"], "peer_objective": peer["objective"]}
        rows[-1]["mb"] = rows[-1]["memory"] / 1e6
        rows[-1]["peer_mb"] = rows[-1].get("peer_memory", float("nan")) / 1e6
    results["steps"] = rows
    print(f"{n_iter} steps, {length} features of {d} numbers an object; two threads\n")
    print_table(rows, {
        "objects": "objects", "words": "words", "seconds": "s", "mb": "MB", "objective": "objective",
        "peer": "autograd, s", "peer_mb": "autograd, MB", "peer_objective": "autograd, objective",
    })  # fmt: skip
    results["whole"] = in_fresh_process(__file__, "whole", n=n, length=length, d=d, n_words=n_words)
    print("ManifoldBagOfFeatures.fit, with k-means (5 starts) and the target: "
          f"{results['whole']['seconds']:.1f} s, {results['whole']['memory'] / 1e9:.2f} GB\n")  # fmt: skip
    if not options.quick:
        last = rows[-1]
        faster, smaller = last["peer"] / last["seconds"], last["memory"] / last["peer_memory"]
        print("Goals")
        print_targets([
            ("10 steps, seconds", last["seconds"], "<=", 60),
            ("fit, peak memory, GB", results["whole"]["memory"] / 1e9, "<=", 2),
            ("times faster than autograd", faster, ">=", 3),
            ("share of autograd's memory", smaller, "<=", 1 / 3),
        ])  # fmt: skip
        print(f"  autograd / ours: {faster:.1f} in time; ours / autograd: {smaller:.2f} in memory\n")
    print(f"({time.perf_counter() - started:.0f} s in all)")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
