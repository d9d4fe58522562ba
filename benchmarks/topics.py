"""Topic models: time per pass, bound and held-out perplexity, scikit-learn and tomotopy in the same run.

    python benchmarks/topics.py            # several minutes, most of them in scikit-learn
    python benchmarks/topics.py --quick    # small sizes, to see that it works

Documents are drawn from topics that are known: shares from Dir(0.05), topics from Dir(0.05), and 10 % more documents
for perplexity. All models have the same priors, α = 1/K and η = 0.01. Every fit runs in a process of its own, BLAS on
one thread, after a small fit that compiles. The bound is that of the training documents with that of the topics, per
token, as each library has it. Perplexity predicts half of the tokens of unseen documents from the other half, with the
topics of each model and the same inference for all. Seconds per pass are those of the whole fit over its passes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

from harness import PeakMemory, in_fresh_process, machine, print_table, print_targets, timed

FULL = {"n_documents": 5000, "n_words": 5000, "n_topics": 100, "length": 150}
QUICK = {"n_documents": 300, "n_words": 300, "n_topics": 10, "length": 50}
PASSES = {"vb": (5, 20), "online": (2, 5), "gibbs": (200,)}
# who, solver, threads
RUNS = [
    ("bagwise", "vb", 1),
    ("bagwise", "vb", 2),
    ("scikit-learn", "vb", 1),
    ("bagwise", "online", 1),
    ("scikit-learn", "online", 1),
    ("tomotopy", "gibbs", 1),
]


def make_documents(n_documents: int, n_words: int, n_topics: int, length: int) -> tuple[Any, Any]:
    """Training documents and unseen ones; the same in every process."""
    import numpy as np
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(n_words, 0.05), n_topics)
    n_all = n_documents + n_documents // 10
    shares = rng.dirichlet(np.full(n_topics, 0.05), n_all)
    rows = [sp.csr_array(rng.multinomial(length, share @ topics)[None].astype(np.float64)) for share in shares]
    X = sp.vstack(rows, format="csr")
    return X[:n_documents], X[n_documents:]


def make_model(who: str, solver: str, n_topics: int, n_threads: int, n_passes: int) -> Any:
    """A model that is not fitted."""
    if who == "scikit-learn":
        from sklearn.decomposition import LatentDirichletAllocation

        how = {"vb": {"learning_method": "batch"}, "online": {"learning_method": "online", "batch_size": 256}}[solver]
        return LatentDirichletAllocation(
            n_topics, topic_word_prior=0.01, max_iter=n_passes, n_jobs=n_threads, random_state=0, **how
        )
    from bagwise import LatentDirichlet

    return LatentDirichlet(
        n_topics,
        solver=solver,
        alpha=1 / n_topics,
        max_iter=n_passes,
        tol=0,
        n_jobs=n_threads,
        random_state=0,
    )


def measure(who: str, solver: str, n_threads: int, n_passes: int, sizes: dict[str, int]) -> dict[str, Any]:
    """Fit one model."""
    from threadpoolctl import threadpool_limits

    from bagwise import LatentDirichlet

    X, unseen = make_documents(**sizes)
    n_topics = sizes["n_topics"]
    with threadpool_limits(1):
        make_model(who, solver, n_topics, n_threads, 1).fit(X[:128])  # compiles
        model = make_model(who, solver, n_topics, n_threads, n_passes)
        with PeakMemory() as memory:
            before = time.process_time()
            seconds, _ = timed(lambda: model.fit(X))
            cpu = time.process_time() - before
        bound = None
        if who == "scikit-learn":
            bound = model.score(X) / X.sum()
            model = LatentDirichlet.from_fitted(model)
        elif solver == "vb":
            bound = model.bounds_[-1] / X.sum()
        return {
            "model": f"{who}, {solver}",
            "threads": n_threads,
            "passes": n_passes,
            "seconds": seconds,
            "per_pass": seconds / n_passes,
            "cpu": cpu / n_passes,
            "tokens": n_passes * X.sum() / seconds / 1e6,
            "bound": bound,
            "perplexity": model.perplexity(unseen),
            "memory": memory.growth / 1e6,
        }


def measure_scores(word_block: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Free-energy scores of all documents, with the model at hand."""
    from sklearn.frozen import FrozenEstimator

    from bagwise import FreeEnergyScore

    X, _ = make_documents(**sizes)
    lda = make_model("bagwise", "vb", sizes["n_topics"], 1, 5).fit(X)
    scores = FreeEnergyScore(FrozenEstimator(lda), word_block=word_block).fit(X[:16])
    scores.transform(X[:16])  # compiles
    seconds, Z = timed(lambda: scores.transform(X))
    return {"block": word_block, "features": Z.shape[1], "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--json", type=Path, help="write the figures to a file as well")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else FULL
    about = machine()
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(", ".join(f"{key} {value}" for key, value in sizes.items()), "\n")

    rows = []
    for who, solver, n_threads in RUNS:
        if who == "tomotopy" and importlib.util.find_spec("tomotopy") is None:
            print("tomotopy is not installed: left out", file=sys.stderr)
            continue
        for n_passes in PASSES[solver]:
            arguments_of_run = {"who": who, "solver": solver, "n_threads": n_threads, "n_passes": n_passes}
            rows.append(in_fresh_process(__file__, "measure", sizes=sizes, **arguments_of_run))
            print(f"  {rows[-1]['model']}, {n_threads} threads: {rows[-1]['seconds']:.1f} s", file=sys.stderr)
    print_table(
        rows,
        {
            "model": "model",
            "threads": "threads",
            "passes": "passes",
            "seconds": "seconds",
            "per_pass": "s per pass",
            "cpu": "CPU s per pass",
            "tokens": "M tokens/s",
            "bound": "bound per token",
            "perplexity": "held-out perplexity",
            "memory": "peak memory, MB",
        },
    )
    scores = [
        in_fresh_process(__file__, "measure_scores", word_block=b, sizes=sizes) for b in ("topic", "word", "full")
    ]
    print_table(scores, {"block": "free-energy scores", "features": "features", "seconds": "seconds"})

    longest = {(row["model"], row["threads"]): row for row in rows}
    ours, two, theirs = longest["bagwise, vb", 1], longest["bagwise, vb", 2], longest["scikit-learn, vb", 1]
    print_targets(
        [
            ("VB passes, times as fast as scikit-learn's on one core", theirs["per_pass"] / ours["per_pass"], ">=", 5),
            (
                "the same in CPU time, which other work on the machine disturbs less",
                theirs["cpu"] / ours["cpu"],
                ">=",
                5,
            ),
            ("2 threads over 1", ours["per_pass"] / two["per_pass"], ">=", 1.6),
            ("bound per token above scikit-learn's, %", 100 * (1 - ours["bound"] / theirs["bound"]), ">=", -0.5),
            ("free-energy scores per topic, s", scores[0]["seconds"], "<=", 5),
        ]
    )
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": about, "fits": rows, "scores": scores}, indent=1))


if __name__ == "__main__":
    main()
