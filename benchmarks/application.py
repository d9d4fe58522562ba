"""Speed of the application: stages of `bagwise fit` on Scene-15, the demo, the help, loading a model, single images.

    python benchmarks/application.py --data DIR [--before CHECKOUT]    # everything; or BAGWISE_DATA=DIR
    python benchmarks/application.py --data DIR --per-class 10         # a part of Scene-15
    python benchmarks/application.py                                   # without Scene-15, a few minutes on 2 cores
    python benchmarks/application.py --quick                           # without the demo, few repetitions

- `bagwise fit scene15.zip --groups 50` runs in a fresh process, with report and index. Seconds per stage are those of
  its log; processor seconds of describing (reading, decoding, descriptors) and the images described are counted in the
  process; peak memory is that of the process. With ``--before``, the same for another checkout, in the same run.
- The demo and the help are timed by the clock in fresh processes, the best of several for the help. The first run of
  the demo on a machine compiles; it is run once before it is timed.
- A model of 1000 words of 128 numbers (dense SIFT) merged to 50 is learned from two photographs that come with
  scikit-learn. Loading is timed in fresh processes in which NumPy is imported already.
- Single images are scaled to 300 pixels; times of one call after another, on one thread. The runtime begins with
  descriptors, so the time of describing is given apart.

Building an index, and searching it, is timed by ``benchmarks/retrieval.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from harness import ROOT, machine, print_table, print_targets

SIZE = 300
N_WORDS, TO = 1000, 50

# Runs the command line, and writes what it costs to the file named first: processor seconds of describing and images
# described, by split, and the peak of resident memory.
MEASURED_FIT = """
import json, resource, sys, threading, time
from collections import Counter
from bagwise.descriptors import DenseSIFT
from bagwise.sources.items import Item
described, seconds, here = Counter(), Counter(), threading.local()
load, describe = Item.load, DenseSIFT._describe
def timed_load(self):
    started = time.thread_time()
    content = load(self)
    here.split, here.seconds = self.split or "train", time.thread_time() - started
    return content
def timed_describe(self, content):
    started = time.thread_time()
    found = describe(self, content)
    described[here.split] += 1
    seconds[here.split] += here.seconds + time.thread_time() - started
    return found
Item.load, DenseSIFT._describe = timed_load, timed_describe
result = sys.argv.pop(1)
from bagwise.cli import main
try:
    main()
finally:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with open(result, "w") as file:
        json.dump({"described": described, "seconds": seconds, "memory": memory}, file)
"""
STAGES = {
    "Describing": "describing training images",
    "Learning 1000 words": "learning words",
    "Counting": "counting words, and describing test images",
    "Merging": "merging",
    "Cross-validating": "cross-validation",
    "Learning classifiers": "classifiers",
    "Training classifiers": "classifiers",
}


def in_process(*arguments: str) -> dict[str, float]:
    """Seconds of a command by the clock, and of the processor."""
    before = os.times()
    started = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    wall = time.perf_counter() - started
    after = os.times()
    worked = after.children_user + after.children_system - before.children_user - before.children_system
    return {"wall": wall, "processor": worked}


def best(runs: list[dict[str, float]]) -> dict[str, float]:
    """The least of each."""
    return {name: min(run[name] for run in runs) for name in runs[0]}


def some_of(archive: Path, per_class: int, target: Path) -> Path:
    """Copy the first images of each class and split to another archive."""
    seen: dict[str, int] = {}
    with zipfile.ZipFile(archive) as whole, zipfile.ZipFile(target, "w") as part:
        for name in sorted(whole.namelist()):
            folder = name.rpartition("/")[0]
            seen[folder] = seen.get(folder, 0) + 1
            if not name.endswith("/") and seen[folder] <= per_class:
                part.writestr(name, whole.read(name))
    return target


def fit_stages(checkout: Path, source: Path) -> dict[str, float]:
    """Seconds per stage of `bagwise fit` as a checkout has it, and what it takes besides."""
    with tempfile.TemporaryDirectory() as folder:
        result, log = Path(folder, "result.json"), Path(folder, "log")
        command = [sys.executable, "-c", MEASURED_FIT, str(result), "fit", str(source), "--to", str(TO)]
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        started = time.perf_counter()
        subprocess.run(
            [*command, "--out", str(Path(folder, "scenes.bagwise")), "--log-file", str(log), "--quiet"],
            check=True, capture_output=True, env=environment, cwd=folder,
        )  # fmt: skip
        wall = time.perf_counter() - started
        found = json.loads(result.read_text())
        stages: dict[str, float] = dict.fromkeys(STAGES.values(), 0.0)
        for step, seconds in re.findall(r"INFO [^:]*: (.*): ([\d.]+) s$", log.read_text(), re.MULTILINE):
            name = next((stage for first, stage in STAGES.items() if step.startswith(first)), None)
            if name is not None:
                stages[name] += float(seconds)
    return {
        **stages,
        "all, by the clock": wall,
        "reading and describing training images, processor seconds": found["seconds"].get("train", 0.0),
        "training images described": found["described"].get("train", 0),
        "test images described": found["described"].get("test", 0),
        "peak memory (MB)": found["memory"],
    }


def print_fits(data: Path, per_class: int | None, before: Path | None) -> dict[str, dict[str, float]]:
    """Measure and print fits of this checkout, and of another one."""
    archive = data / "scene15" / "scene15.zip"
    if not archive.exists():
        sys.exit(f"There is no {archive}.")
    fits = {}
    with tempfile.TemporaryDirectory() as folder:
        source = archive if per_class is None else some_of(archive, per_class, Path(folder, "scene15.zip"))
        checkouts = {"now": ROOT} if before is None else {"before": before, "now": ROOT}
        for name, checkout in checkouts.items():
            fit_stages(checkout, some_of(archive, 2, Path(folder, "warm.zip")))  # compiles
            fits[name] = fit_stages(checkout, source)
    rows = [{"what": what, **{name: fits[name][what] for name in fits}} for what in fits["now"]]
    print_table(rows, {"what": "bagwise fit, Scene-15 (seconds)", **{name: name for name in fits}})
    if before is not None:
        seconds = "reading and describing training images, processor seconds"
        print_targets(
            [
                ("describing training images, now / before", fits["now"][seconds] / fits["before"][seconds], "<=", 0.5),
                ("peak memory, now / before", fits["now"]["peak memory (MB)"] / fits["before"]["peak memory (MB)"],
                 "<=", 1.0),
            ]
        )  # fmt: skip
    return fits


def photographs() -> list[np.ndarray]:
    """Two photographs, their halves and quarters, each with a longer side of `SIZE` pixels."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    found = []
    for whole in load_sample_images().images:
        width = whole.shape[1]
        for parts in (1, 2, 4):
            for k in range(parts):
                picture = Image.fromarray(whole[:, k * width // parts : (k + 1) * width // parts]).convert("L")
                picture.thumbnail((SIZE, SIZE))
                found.append(np.asarray(picture))
    return found


def make_model(path: Path) -> list[np.ndarray]:
    """Learn a model of the usual size and save it; gives the images."""
    from bagwise import Model, merge_words
    from bagwise.codebooks import learn_codebook
    from bagwise.descriptors import DenseSIFT
    from bagwise.model import Head

    images = photographs()
    descriptor = DenseSIFT(step=4)
    bags = descriptor.transform(images)
    codebook = learn_codebook(bags, N_WORDS, n_init=1, random_state=0)
    counts = np.random.default_rng(0).poisson(1.0, size=(60, N_WORDS)).astype(float)
    hierarchy = merge_words(counts, np.arange(60) % 10, criterion="aib")
    rng = np.random.default_rng(0)
    heads = {n: Head(rng.normal(size=(10, n)), rng.normal(size=10)) for n in (2, 5, 10, 20, TO, 100, 200, 500, N_WORDS)}
    names = [f"class {k}" for k in range(10)]
    model = Model(
        modality="images",
        hierarchy=hierarchy,
        n_groups=TO,
        descriptor=descriptor,
        codebook=codebook,
        classes=names,
        heads=heads,
    )
    model.save(path)
    return images


LOADING = """
import sys, time
import numpy
started, worked = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - started, time.process_time() - worked)
"""


def loading_time(what: str, path: Path, repeats: int) -> dict[str, float]:
    """Least seconds to import what is needed and load a model, in fresh processes."""
    code = {
        "library": "from bagwise import Model; Model.load(sys.argv[1])",
        "runtime": "from bagwise.runtime import load; load(sys.argv[1])",
    }[what]
    runs = []
    for _ in range(repeats):
        command = [sys.executable, "-c", LOADING.format(code), str(path)]
        wall, worked = map(float, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
        runs.append({"wall": wall, "processor": worked})
    return best(runs)


def latencies(function: Callable[[Any], Any], things: list[Any], repeats: int) -> dict[str, float]:
    """Milliseconds of one call after another: the median, and that which one in a hundred exceeds."""
    for thing in things[:3]:
        function(thing)
    times = []
    for k in range(repeats):
        started = time.perf_counter()
        function(things[k % len(things)])
        times.append(1e3 * (time.perf_counter() - started))
    return {"p50": float(np.percentile(times, 50)), "p99": float(np.percentile(times, 99))}


def single_images(path: Path, images: list[np.ndarray], repeats: int) -> list[dict[str, Any]]:
    """Times of one image: in the library, and of the runtime from descriptors on."""
    from bagwise import Model
    from bagwise.runtime import load

    model, runtime = Model.load(path), load(path)
    described = [model.descriptor.describe(image)[0] for image in images]
    rows = {
        "library: image to features": latencies(lambda image: model.transform([image]), images, repeats),
        "library: image to descriptors": latencies(lambda image: model.descriptor.describe(image), images, repeats),
        "runtime: descriptors to features": latencies(lambda values: runtime.transform(values), described, repeats),
    }
    whole, apart = model.transform(images), np.array([np.ravel(runtime.transform(values)) for values in described])
    np.testing.assert_allclose(apart, whole.toarray(), atol=1e-5)
    return [{"what": what, **times} for what, times in rows.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without the demo, few repetitions")
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder with scene15/")
    parser.add_argument("--before", type=Path, help="another checkout, whose `bagwise fit` is measured as well")
    parser.add_argument("--per-class", type=int, help="images of each class and split of Scene-15; default: all")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    chosen = parser.parse_args()
    repeats, calls = (2, 50) if chosen.quick else (7, 500)
    print(json.dumps(machine()), f"\nload of the machine: {os.getloadavg()[0]:.1f}\n")
    fits = {}
    if chosen.data is not None:
        fits = print_fits(Path(chosen.data), chosen.per_class, chosen.before and chosen.before.resolve())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.bagwise")
        images = make_model(path)
        programs = {"bagwise --help": best([in_process("-m", "bagwise", "--help") for _ in range(repeats)])}
        for what in ("library", "runtime"):
            programs[f"load a model: {what}"] = loading_time(what, path, repeats)
        if not chosen.quick:
            demo = ("-m", "bagwise", "demo", "--out", str(Path(folder, "demo")))
            in_process(*demo)
            programs["bagwise demo"] = in_process(*demo)
        rows = [{"what": what, **times} for what, times in programs.items()]
        print_table(rows, {"what": "what", "wall": "seconds", "processor": "processor seconds"})
        single = single_images(path, images, calls)
        print_table(single, {"what": f"one image of {SIZE} pixels", "p50": "p50 (ms)", "p99": "p99 (ms)"})
    goals = {"bagwise --help": 0.3, "load a model: library": 0.1, "bagwise demo": 120}
    targets = []
    for what, goal in goals.items():
        for clock, seconds in programs.get(what, {}).items():
            by = "by the clock" if clock == "wall" else "of the processor"
            targets.append((f"{what}, seconds {by}", seconds, "<=", goal))
    print_targets(targets)
    if chosen.json is not None:
        chosen.json.write_text(
            json.dumps({"machine": machine(), "fits": fits, "programs": programs, "images": single}, indent=1)
        )


if __name__ == "__main__":
    main()
