"""Speed of the application: stages of `bagwise fit`, single items, the demo, the help, loading a model.

    python benchmarks/application.py --data DIR [--before CHECKOUT]    # everything; or BAGWISE_DATA=DIR
    python benchmarks/application.py --data DIR --per-class 20         # a part of Scene-15, 600 images
    python benchmarks/application.py                                   # without data, a few minutes on 2 cores
    python benchmarks/application.py --quick                           # without the demo, few repetitions

- `bagwise fit --dry-run` and then `bagwise fit` run in fresh processes on three data sets: Scene-15 (images), six
  groups of 20 newsgroups (texts), and 3000 digits of MNIST as a table of 784 columns, with report and index. Seconds
  per stage are those that the commands print with ``--json``. Peak memory is that of the process. With
  ``--before``, the fit of another checkout on Scene-15.
- Starting: `bagwise info`, and `search` and `predict` of one text or image, with the models of these fits; the best of
  several fresh processes.
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

# Runs the command line, and writes the peak of resident memory (MB) to the file named first.
MEASURED = """
import resource, sys
result = sys.argv.pop(1)
from bagwise.app.cli import main
try:
    main()
finally:
    with open(result, "w") as file:
        file.write(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""
N_ROWS = 3000  # of MNIST


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


def digits_table(data: Path, target: Path) -> Path:
    """Write a part of MNIST as a table with a column per pixel."""
    digits = np.load(data / "mnist" / "mnist.npz")
    chosen = np.sort(np.random.default_rng(0).choice(len(digits["y_train"]), N_ROWS, replace=False))
    pixels, labels = digits["x_train"][chosen].reshape(N_ROWS, -1), digits["y_train"][chosen]
    heads = ",".join(["label", *(f"pixel{k}" for k in range(pixels.shape[1]))])
    rows = [",".join([f"digit {label}", *map(str, row)]) for label, row in zip(labels, pixels.tolist(), strict=True)]
    target.write_text("\n".join([heads, *rows]))
    return target


def run_json(checkout: Path, *arguments: object) -> tuple[dict[str, Any], float, float]:
    """What a command of a checkout prints with ``--json``, its seconds by the clock, and its peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        memory = Path(folder, "memory")
        command = [sys.executable, "-c", MEASURED, str(memory), *map(str, arguments), "--json"]
        environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
        started = time.perf_counter()
        printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=folder)
        wall = time.perf_counter() - started
        return json.loads(printed.stdout), wall, float(memory.read_text())


def fit_and_plan(name: str, source: Path, model: Path, *options: str) -> dict[str, Any]:
    """Print what the stages of a fit took, and its memory beside what a dry run says."""
    command = ("fit", source, "--out", model, *options)
    plan, planning, _ = run_json(ROOT, *command, "--dry-run")
    found, wall, memory = run_json(ROOT, *command)
    stages = {**found["seconds"], "all, by the clock": wall, "the dry run, by the clock": planning}
    stages |= {"peak memory (MB)": memory, "memory by the dry run (MB)": plan["plan"]["memory"] / 2**20}
    rows = [{"what": stage, "taken": taken} for stage, taken in stages.items()]
    print_table(rows, {"what": f"bagwise fit, {name} (seconds)", "taken": "taken"})
    return {"plan": plan["plan"], "seconds": found["seconds"], "wall": wall, "dry run": planning, "memory": memory}


def print_fits(data: Path, per_class: int | None, before: Path | None, models: Path) -> dict[str, Any]:
    """Measure and print fits of the three data sets, and of another checkout on Scene-15."""
    archive = data / "scene15" / "scene15.zip"
    if not archive.exists():
        sys.exit(f"There is no {archive}.")
    source = archive if per_class is None else some_of(archive, per_class, models / "scene15.zip")
    warm = some_of(archive, 2, models / "warm.zip")
    run_json(ROOT, "fit", warm, "--out", models / "warm.bagwise")  # compiles
    posts = data / "newsgroups_3pairs" / "newsgroups_3pairs.zip"
    fits = {
        "Scene-15": fit_and_plan("Scene-15", source, models / "scenes.bagwise"),
        "newsgroups": fit_and_plan("six newsgroups", posts, models / "posts.bagwise", "--encoding", "latin-1"),
        "MNIST": fit_and_plan("MNIST as a table", digits_table(data, models / "mnist.csv"), models / "mnist.bagwise"),
    }
    targets = [
        (f"dry run of {name}, seconds", fit["dry run"], "<=", max(20.0, 0.1 * fit["wall"]))
        for name, fit in fits.items()
    ]
    if before is not None:
        run_json(before, "fit", warm, "--out", models / "before.bagwise")
        found, wall, memory = run_json(before, "fit", source, "--out", models / "before.bagwise", "--force")
        now = fits["Scene-15"]
        stages = {**found["seconds"], "all, by the clock": wall, "peak memory (MB)": memory}
        mine = {**now["seconds"], "all, by the clock": now["wall"], "peak memory (MB)": now["memory"]}
        rows = [{"what": what, "before": stages.get(what, ""), "now": mine[what]} for what in mine]
        print_table(rows, {"what": "bagwise fit, Scene-15 (seconds)", "before": "before", "now": "now"})
        targets.append(("peak memory, now / before", now["memory"] / memory, "<=", 1.0))
        fits["before"] = {"seconds": found["seconds"], "wall": wall, "memory": memory}
    print_targets(targets)
    return fits


def starting_times(models: Path, scene: Path, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds of commands on one text or image, in fresh processes; commands that do not exist are left out."""
    text = "The hospital tested the new drug on patients with a chronic disease."
    commands = {
        "bagwise info, texts": ("info", models / "posts.bagwise"),
        "bagwise info, images": ("info", models / "scenes.bagwise"),
        "bagwise search, one text": ("search", models / "posts.index", "--query-text", text),
        "bagwise search, one image": ("search", models / "scenes.index", scene),
        "bagwise predict, one text": ("predict", models / "posts.bagwise", "--query-text", text),
        "bagwise predict, one image": ("predict", models / "scenes.bagwise", scene),
    }
    known = subprocess.run(
        [sys.executable, "-m", "bagwise", "--help"], check=True, capture_output=True, text=True
    ).stdout
    found = {}
    for what, (command, *rest) in commands.items():
        if re.search(rf"\b{command}\b", known):
            run = ("-m", "bagwise", command, *map(str, rest))
            in_process(*run)  # reads files from the disk
            found[what] = best([in_process(*run) for _ in range(repeats)])
    return found


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
    from bagwise.app.model import Head
    from bagwise.codebooks import learn_codebook
    from bagwise.descriptors import DenseSIFT

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
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("BAGWISE_DATA"),
        help="folder with scene15/, newsgroups_3pairs/ and mnist/",
    )
    parser.add_argument("--before", type=Path, help="another checkout, whose `bagwise fit` is measured as well")
    parser.add_argument("--per-class", type=int, help="images of each class and split of Scene-15; default: all")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    chosen = parser.parse_args()
    repeats, calls = (2, 50) if chosen.quick else (7, 500)
    print(json.dumps(machine()), f"\nload of the machine: {os.getloadavg()[0]:.1f}\n")
    fits: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        programs = {"bagwise --help": best([in_process("-m", "bagwise", "--help") for _ in range(repeats)])}
        if chosen.data is not None:
            data, models = Path(chosen.data), Path(folder)
            fits = print_fits(data, chosen.per_class, chosen.before and chosen.before.resolve(), models)
            with zipfile.ZipFile(data / "scene15" / "scene15.zip") as archive:
                scene = next(name for name in archive.namelist() if name.startswith("test/") and name.endswith(".jpg"))
                programs |= starting_times(models, Path(archive.extract(scene, models)), repeats)
        path = Path(folder, "model.bagwise")
        images = make_model(path)
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
    goals |= {what: 0.8 for what in programs if what.startswith(("bagwise info", "bagwise search", "bagwise predict"))}
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
