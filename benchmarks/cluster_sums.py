"""Statistics over Dask collections: one and two worker processes on this machine beside the same sums in memory.

    python benchmarks/cluster_sums.py            # about 2 minutes on 2 cores
    python benchmarks/cluster_sums.py --quick    # small sizes, to see that it works

Chunks lie in the memory of the workers before the clock starts, so that the time is that of summing up, moving results
and adding them. Workers run one thread each, also in BLAS; in memory the same with one thread and with as many as there
are cores. The best of three. "Between workers" is what workers received from each other, from their own logs.
Both worker processes share the machine with the scheduler and with each other's memory traffic.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from harness import machine, print_table, timed

# kind: rows in a chunk, words, classes
KINDS = {
    "dense, gram": (2000, 1000, 10),
    "dense, class sums": (2000, 1000, 10),
    "sparse, gram": (2000, 2000, 20),
    "sparse, class sums": (10_000, 20_000, 20),
}
N_CHUNKS = 16
PER_ROW = 60  # words that occur in a sparse sample
REPEATS = 3


def make_chunk(kind: str, number: int, shrink: int) -> Any:
    """Make a chunk of counts; the same one in every process."""
    import numpy as np
    import scipy.sparse as sp

    rows, words, _ = KINDS[kind]
    rows, words = rows // shrink, words // shrink
    rng = np.random.default_rng(number)
    if kind.startswith("dense"):
        return rng.integers(0, 100, (rows, words)).astype(np.float64)
    # frequent words come first, as in texts
    columns = (words * rng.random((rows, PER_ROW)) ** 3).astype(np.int32)
    chunk = sp.csr_array(
        (np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, PER_ROW)), shape=(rows, words)
    )
    chunk.sum_duplicates()
    return chunk


def make_labels(kind: str, shrink: int) -> Any:
    import numpy as np

    rows, _, classes = KINDS[kind]
    return np.arange(N_CHUNKS * (rows // shrink)) % classes


def measure_in_memory(kind: str, shrink: int, n_threads: int) -> dict[str, Any]:
    """Chunks one after the other in this process."""
    from functools import reduce
    from operator import add

    import numpy as np
    from threadpoolctl import threadpool_limits

    from bagwise.merging import Statistics

    chunks = [make_chunk(kind, number, shrink) for number in range(N_CHUNKS)]
    labels = np.split(make_labels(kind, shrink), N_CHUNKS)
    classes, gram = KINDS[kind][2], kind.endswith("gram")

    def add_up() -> Any:
        return reduce(add, (Statistics.of(X, codes, classes, gram) for X, codes in zip(chunks, labels, strict=True)))

    with threadpool_limits(n_threads):
        add_up()  # compiles
        seconds = min(timed(add_up)[0] for _ in range(REPEATS))
    return row(kind, shrink, f"in memory, {n_threads} thread{'s' * (n_threads > 1)}", seconds)


def measure_cluster(kind: str, shrink: int, n_workers: int) -> dict[str, Any]:
    """The same on a cluster."""
    import dask
    from distributed import Client, LocalCluster, wait

    from bagwise import distributed

    rows, words = (size // shrink for size in KINDS[kind][:2])
    labels = make_labels(kind, shrink)
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            dashboard_address=":0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        import dask.array as da
        import numpy as np
        import scipy.sparse as sp

        meta = np.empty((0, 0)) if kind.startswith("dense") else sp.csr_array((0, 0))
        make = dask.delayed(make_chunk)
        X = da.concatenate(
            [da.from_delayed(make(kind, number, shrink), shape=(rows, words), meta=meta) for number in range(N_CHUNKS)]
        ).persist()
        wait(X)

        def add_up() -> Any:
            return distributed.statistics(X, labels, gram=kind.endswith("gram")).compute()

        add_up()  # compiles
        before = sum(client.run(received).values())
        seconds = min(timed(add_up)[0] for _ in range(REPEATS))
        moved = (sum(client.run(received).values()) - before) / REPEATS
        result = row(kind, shrink, f"{n_workers} worker{'s' * (n_workers > 1)}", seconds)
        statistics = add_up()
        gram = statistics.gram
        gram_bytes = 0 if gram is None else gram.nbytes if isinstance(gram, np.ndarray) else gram.nnz * 12
    return result | {"moved": moved / 1e6, "result": (statistics.class_sums.nbytes + gram_bytes) / 1e6}


def received(dask_worker: Any) -> int:
    """Bytes that a worker has got from others."""
    return sum(transfer["total"] for transfer in dask_worker.transfer_incoming_log)


def row(kind: str, shrink: int, where: str, seconds: float) -> dict[str, Any]:
    n = N_CHUNKS * (KINDS[kind][0] // shrink)
    return {
        "kind": kind,
        "shape": f"{n:,} x {KINDS[kind][1] // shrink:,}",
        "where": where,
        "seconds": seconds,
        "rate": n / seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()
    shrink = 10 if arguments.quick else 1
    print(" ".join(f"{key}={value}" for key, value in machine().items()), end="\n\n")
    rows = []
    for kind in KINDS:
        for n in sorted({1, os.cpu_count() or 1}):
            rows.append(measure_in_memory(kind, shrink, n))
        for n in (1, 2):
            rows.append(measure_cluster(kind, shrink, n))
        print(f"measured: {kind}", file=sys.stderr, flush=True)
    columns = {
        "kind": "sums",
        "shape": f"samples x words, {N_CHUNKS} chunks",
        "where": "where",
        "seconds": "seconds",
        "rate": "samples/s",
        "moved": "MB between workers",
        "result": "MB of result",
    }
    print_table(rows, columns)
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
