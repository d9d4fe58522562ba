"""Speed of what people run: the demo, the help, loading a model, and one image after the other.

    python benchmarks/application.py            # everything, a few minutes on 2 cores
    python benchmarks/application.py --quick    # without the demo, few repetitions

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
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from harness import machine, print_table, print_targets

SIZE = 300
N_WORDS, TO = 1000, 50


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
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    chosen = parser.parse_args()
    repeats, calls = (2, 50) if chosen.quick else (7, 500)
    print(json.dumps(machine()), f"\nload of the machine: {os.getloadavg()[0]:.1f}\n")
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
        chosen.json.write_text(json.dumps({"machine": machine(), "programs": programs, "images": single}, indent=1))


if __name__ == "__main__":
    main()
