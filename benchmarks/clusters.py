"""A whole fit on a cluster: seconds, memory and traffic of each step, in memory and with one and two workers.

    python benchmarks/clusters.py                                   # 20,000 images, a million texts: an hour
    python benchmarks/clusters.py --images 800 --texts 40000        # smaller
    python benchmarks/clusters.py --quick                           # to see that it works
    python benchmarks/clusters.py --from results.json               # only the tables, from an earlier run
    python benchmarks/clusters.py --memory                          # what it costs to give freed memory back at once

Items are made when they are read (`cluster_data.py`): images of 120 x 160 pixels of ten classes, texts of 60 words.
Each row is a process of its own, with a `LocalCluster` of processes of one thread, that has fitted a small model before
the clock starts. Steps: "read" (describing images, splitting texts), "words" (sample and k-means, or occurrences),
"count", "merge" (sums, classifiers, merging), "validate" (cross-validation). "CPU" are processor seconds of all
processes, the scheduler and this monitor included, which other work on the machine changes less than seconds on the
clock. Peak memory is that of the resident set of the largest worker in each step, sampled every 20 ms; "before" is that
of a worker after the small model. "Sent" is what workers have sent to each other and to this process. "Parted"
rows have a small `memory_limit`, so that histograms stay on the workers: they show that the memory of a worker does not
grow with the number of items.

The second table is a model of the costs, per item, word and class, whose constants are those of the first, and of
describing and counting a few images in this process; the third applies it to three jobs that were not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from bagwise.app.modalities import MODALITIES
from cluster_data import N_CLASSES, N_TOKENS
from harness import machine, print_table

STAGES = ("read", "words", "count", "merge", "validate")
_FIRST_WORDS = {
    "read": ("Describing", "Reading"),
    "words": ("Sampling", "Learning"),
    "count": ("Counting",),
    "merge": ("Adding", "Weighting", "Training", "Merging"),
    "validate": ("Cross-validating",),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "images": {"descriptor": "sift", "n_words": 100, "n_groups": 30, "folds": 2},
    "texts": {"n_words": 5000, "n_groups": 30, "folds": 2},
}
N_WARM = {"images": 60, "texts": 500}
PARTED = "200kB"  # of histograms in this process


class Monitor:
    """Samples the memory of processes, and notes processor times when the stage changes."""

    def __init__(self, pids: list[int]) -> None:
        import psutil

        self.own, self.workers = psutil.Process(), [psutil.Process(pid) for pid in pids]
        self.stage, self.peaks = "", dict.fromkeys(STAGES, 0)
        self.before = max(one.memory_info().rss for one in self.workers or [self.own])
        self.wall, self.cpu = dict.fromkeys(STAGES, 0.0), dict.fromkeys(STAGES, 0.0)
        self._since = (time.perf_counter(), self._times())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _times(self) -> float:
        return sum(sum(one.cpu_times()[:2]) for one in (self.own, *self.workers))

    def _run(self) -> None:
        while not self._ended.wait(0.02):
            if self.stage:
                held = max(one.memory_info().rss for one in self.workers or [self.own])
                self.peaks[self.stage] = max(self.peaks[self.stage], held)

    def __call__(self, step: str, done: int, total: int) -> None:
        """Take the progress of a fit."""
        first = step.split()[0]
        stage = next((name for name, words in _FIRST_WORDS.items() if first in words), self.stage)
        if stage != self.stage:
            self.enter(stage)

    def enter(self, stage: str) -> None:
        """Add up the times of the stage before."""
        now = (time.perf_counter(), self._times())
        if self.stage:
            self.wall[self.stage] += now[0] - self._since[0]
            self.cpu[self.stage] += now[1] - self._since[1]
        self.stage, self._since = stage, now

    def close(self) -> None:
        """End the last stage."""
        self.enter("")
        self._ended.set()
        self._thread.join()


def measure(
    modality: str, n: int, workers: int | None, memory_limit: str | None, as_dask: bool = False
) -> dict[str, Any]:
    """One fit; `workers` None: in memory, 0: partitions in this process; `as_dask`: freed memory is given back."""
    from bagwise.app import FitOptions, run_fit
    from bagwise.distributed import connected
    from bagwise.distributed.executors import LocalExecutor
    from cluster_data import make_collection

    options = FitOptions(**OPTIONS[modality], n_jobs=1, memory_limit=memory_limit)
    if as_dask:  # the default of Dask, and that of the C library
        os.environ |= {"MALLOC_TRIM_THRESHOLD_": "65536", "MALLOC_MMAP_THRESHOLD_": "131072"}
    with connected(workers=workers or None) as client:
        where = LocalExecutor() if workers == 0 else client
        run_fit(make_collection(modality, N_WARM[modality]), options, client=where)
        pids, sent = [], 0
        if client is not None:
            pids, sent = list(client.run(os.getpid).values()), _sent(client)
        monitor = Monitor(pids)
        fit = run_fit(make_collection(modality, n), options, client=where, progress=monitor)
        monitor.close()
        moved = _sent(client) - sent if client is not None else 0
    rows = fit.data.rows
    nnz = fit.data.histograms.nnz / fit.data.histograms.shape[0]
    return {
        "modality": modality,
        "n": n,
        "workers": workers,
        "parted": rows is not None,
        "as_dask": as_dask,
        "wall": monitor.wall,
        "cpu": monitor.cpu,
        "peaks": monitor.peaks,
        "before": monitor.before,
        "moved": moved,
        "nnz": nnz,
        "n_words": fit.data.n_words,
        "error": fit.model.path.errors[-1],
        "hierarchy": hashlib.sha256(fit.model.hierarchy.merges.tobytes()).hexdigest()[:8],
    }


def _sent(client: Any) -> int:
    return sum(client.run(_sent_by).values())


def _sent_by(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)


def rows_to_measure(images: int, texts: int) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for modality, n in (("images", images), ("texts", texts)):
        rows += [(modality, n, workers, None) for workers in (None, 1, 2)]
        sizes = ((n, 0), (n // 2, 1), (n, 1), (n, 2)) if modality == "texts" else ((n // 2, 1), (n, 1))
        rows += [(modality, size, workers, PARTED) for size, workers in sizes]
    return rows


def table_of(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for one in results:
        where = {None: "in memory", 0: "in this process"}.get(one["workers"], f"{one['workers']} worker(s)")
        where += ", as Dask starts it" if one.get("as_dask") else ""
        base = next(
            (
                other
                for other in results
                if (other["modality"], other["n"], other["parted"]) == (one["modality"], one["n"], one["parted"])
                and other["workers"] in (None, 0)
                and one["workers"]
            ),
            None,
        )
        wall, cpu = (sum(one[what].values()) for what in ("wall", "cpu"))
        row = {
            "job": f"{one['n']:,} {one['modality']}",
            "where": where + (", parted" if one["parted"] else ""),
            "wall": wall,
            "cpu": cpu,
            "longer": "" if base is None else _more(wall, sum(base["wall"].values())),
            "more": "" if base is None else _more(cpu, sum(base["cpu"].values())),
            "sent": one["moved"] / 1e6,
            "before": one["before"] / 2**20,
            "hierarchy": one["hierarchy"],
            "commit": one["commit"],
        }
        for stage in STAGES:
            if one["wall"][stage]:
                row[stage] = f"{one['cpu'][stage]:.1f} / {one['peaks'][stage] / 2**20:.0f}"
        rows.append(row)
    return rows


def _more(spent: float, base: float) -> str:
    return f"{100 * (spent / base - 1):+.0f} %"


def constants(results: list[dict[str, Any]]) -> dict[str, float]:
    """Processor seconds and bytes per unit of work, from rows with one worker, sums from those in this process."""

    def of(modality: str, workers: int, parted: bool) -> dict[str, Any]:
        known = [one for one in results if (one["modality"], one["workers"]) == (modality, workers)]
        return max((one for one in known if one["parted"] == parted), key=lambda one: one["n"])

    images, texts, sums = of("images", 1, False), of("texts", 1, False), of("texts", 0, True)
    n_vectors, describe, assign = rates_of_images()
    grown = {stage: images["peaks"][stage] - images["before"] for stage in ("read", "words")}
    parted = of("texts", 1, True)
    of_texts = max(parted["peaks"][stage] for stage in ("read", "words", "count")) - parted["before"]
    return {
        "describe": describe,
        "assign": assign,
        "kmeans": images["cpu"]["words"] / images["n_words"],
        "split": (texts["cpu"]["read"] + texts["cpu"]["words"] + texts["cpu"]["count"]) / texts["n"] / N_TOKENS,
        "classify": sums["cpu"]["merge"] / sums["n"] / sums["nnz"] / N_CLASSES,
        "base": max(one["before"] for one in results if one["workers"]),
        "sample": grown["words"],
        "described": grown["read"] / (BATCH * n_vectors),
        "token": of_texts / (PARTITION * N_TOKENS),
    }


def rates_of_images() -> tuple[int, float, float]:
    """Descriptors of an image, and processor seconds of describing one, and of comparing one with one word."""
    from bagwise.app.modalities.visual_words import VisualVectorizer
    from bagwise.app.options import FitOptions
    from cluster_data import make_collection

    vectorizer: Any = MODALITIES["images"].vectorizer(FitOptions(**OPTIONS["images"]))
    seconds = []
    for n in (BATCH, 10 * BATCH):  # the first compiles
        started = time.process_time()
        batches = [bags for (bags,) in vectorizer.describe(make_collection("images", n), n_jobs=1)]
        seconds.append(time.process_time() - started)
        words = np.random.default_rng(0).permutation(batches[0].values)[:N_COMPARED]
        counter = VisualVectorizer("images", vectorizer.descriptors, [words])
        started = time.process_time()
        counter.transform(batches, n_jobs=1)
        seconds.append(time.process_time() - started)
    n_vectors = sum(len(bags.values) for bags in batches)
    return n_vectors // (10 * BATCH), seconds[2] / n_vectors, seconds[3] / n_vectors / N_COMPARED


# Jobs that were not run: items, cores, descriptors or tokens of an item, words, classes, words that an item has.
JOBS = {
    "100,000 photos, 1 laptop of 8 cores": ("images", 1e5, 8, 1, 5000, 1500, 20, 400),
    "10,000,000 photos, 20 nodes of 32 cores": ("images", 1e7, 640, 20, 5000, 1500, 100, 400),
    "1,000,000,000 texts, 200 nodes of 32 cores": ("texts", 1e9, 6400, 200, 300, 30_000, 20, 120),
}
BATCH = 32  # images that a worker has described at a time
PARTITION = 10_000  # texts
N_COMPARED = 1500  # words, where comparing is timed
SAMPLE = 100_000  # descriptors that words are learned from
PASSES = 80  # over the data, of a linear SVM; PARTS_OF_PASSES of them move a gradient of each block
BLOCK, MOST_BLOCKS = 32 << 20, 8192  # bytes of histograms that a task of a pass goes through


def predicted(known: dict[str, float]) -> list[dict[str, Any]]:
    rows = []
    for name, (modality, n, cores, nodes, length, d, classes, nnz) in JOBS.items():
        if modality == "images":
            read, count = n * length * known["describe"] / cores, n * length * d * known["assign"] / cores
            words = known["kmeans"] * d  # in one process
            disk = (
                min(n, MODALITIES["images"].most_learned_from) * length * (128 + 2) * 4
            )  # in files, until there are words
            memory = max(BATCH * length * known["described"], known["sample"])
        else:
            read, words, count = n * length * known["split"] / cores, 0.0, 0.0
            disk, memory = 12 * n * nnz, PARTITION * length * known["token"]
        rows_bytes = 8 * n * nnz
        classify = n * nnz * classes * known["classify"] / cores
        blocks = max(min(rows_bytes / BLOCK, MOST_BLOCKS), 1)
        result = 8 * classes * d
        moved = (SAMPLE * 128 * 4 if modality == "images" else 0) + PASSES * (blocks + nodes) * result
        hours = {"read": read, "words": words, "count": count, "classify": classify}
        rows.append(
            {
                "job": name,
                **{step: f"{seconds / 3600:.3g}" for step, seconds in hours.items()},
                "hours": f"{sum(hours.values()) / 3600:.3g}",
                "limit": max(hours, key=lambda step: hours[step]),
                "disk": f"{(rows_bytes + disk) / nodes / 1e9:.3g}",
                "memory": f"{(known['base'] + max(memory, 4 * result)) / 1e9:.2g}",
                "moved": f"{moved / 1e9:.3g}",
                "client": f"{n * 100 / 1e9:.3g}",
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="400 images and 4000 texts")
    parser.add_argument("--json", type=Path, help="also write the results here; rows that are there are not run again")
    parser.add_argument("--from", dest="earlier", type=Path, help="print the tables of such a file")
    parser.add_argument("--memory", action="store_true", help="images, workers with the settings of Dask and with ours")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(*json.loads(arguments.one))))
        return
    if arguments.earlier:
        found = json.loads(arguments.earlier.read_text())
        about, results = found["machine"], found["results"]
    else:
        about, results = machine(), []
        images, texts = (400, 4000) if arguments.quick else (arguments.images, arguments.texts)
        rows = rows_to_measure(images, texts)
        if arguments.memory:
            rows = [("images", images, workers, None, *other) for workers, *other in ((None,), (1,), (1, True))]
        known = {}
        if arguments.json and arguments.json.exists():  # goes on where it was
            known = {json.dumps(one["row"]): one for one in json.loads(arguments.json.read_text())["results"]}
        for row in rows:
            if json.dumps(row) in known:
                results.append(known[json.dumps(row)])
                continue
            command = [sys.executable, __file__, "--one", json.dumps(row)]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            results.append({"row": row, "commit": about["commit"]} | json.loads(ran.stdout.splitlines()[-1]))
            spent = sum(results[-1]["wall"].values())
            print(f"measured: {row}, {spent:.1f} s", file=sys.stderr, flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps({"machine": about, "results": results}, indent=1))
    print(" ".join(f"{key}={value}" for key, value in about.items()), end="\n\n")
    heads = {"job": "job", "where": "where", "wall": "s", "longer": "longer", "cpu": "CPU s", "more": "more CPU"}
    heads |= {"sent": "MB sent", "before": "MiB before"} | {stage: f"{stage}: CPU s / MiB" for stage in STAGES}
    heads |= {"hierarchy": "hash of the hierarchy", "commit": "commit"}
    print_table(table_of(results), heads)
    if arguments.memory:
        return
    known = constants(results)
    print()
    units = {
        "describe": "describing, CPU s per descriptor",
        "assign": "counting, CPU s per descriptor and word",
        "kmeans": "k-means, CPU s per word (sample of 100,000)",
        "split": "texts, CPU s per token",
        "classify": "classifiers and merging, CPU s per non-zero and class",
        "base": "memory of a worker before, bytes",
        "sample": "more for joining samples of descriptors, bytes",
        "described": "more for a batch of images, bytes per descriptor",
        "token": "more for a partition of texts, bytes per token",
    }
    print_table(
        [{"what": what, "value": f"{known[name]:.3g}"} for name, what in units.items()],
        {"what": "cost", "value": "value"},
    )
    print()
    steps = {step: f"h {step}" for step in ("read", "words", "count", "classify")}
    rest = {"hours": "h in all", "limit": "limit", "disk": "GB disk a node", "memory": "GB a core"}
    print_table(predicted(known), {"job": "job", **steps, **rest, "moved": "GB moved", "client": "GB client"})


if __name__ == "__main__":
    main()
