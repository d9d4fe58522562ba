"""Fits on photographs beside what everybody writes: pooled features of the same network and a logistic regression.

    python benchmarks/photographs.py --data DIR            # 500 photographs of Corel-1k, three runs in turn
    python benchmarks/photographs.py --data DIR --large    # peak memory on 5,000 of Scene-15 and Caltech-101, too
    python benchmarks/photographs.py --data DIR --quick    # 60 photographs and one run, to see that it works

Methods run in turn, each in a fresh process with the same network and as many threads, from JPEG files in folders:

- pooled: averages of the network's last layer over each image, standardised, a logistic regression with its five-fold
  cross-validation. The images are decoded by OpenCV.
- fit: ``fit_model`` with nothing set, which cross-validates ten sizes and the pooled baseline as well.
- fit, index and report: ``bagwise fit``, and what it writes.

Seconds are by the clock and of the processor (all threads), from the first image on: imports, and the compilation of
kernels for one fit of 20 images, are left out. Ratios are of medians. An image from JPEG to histogram is timed by
`Model.histograms` in one thread, in processor time. The targets are those of the project.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

from harness import in_fresh_process, machine, peak_memory, print_table, print_targets

METHODS = ("pooled", "fit", "fit, index and report")


def unpack(data: Path, names: list[str], most: int, folder: Path) -> Path:
    """Write the first photographs of each class of data sets, equally many as far as there are, into folders."""
    members: dict[str, list[tuple[Path, str]]] = {}
    for name in names:
        archive = data / name / f"{name}.zip"
        with zipfile.ZipFile(archive) as held:
            for member in sorted(held.namelist()):
                if member.lower().endswith(".jpg"):
                    members.setdefault(member.split("/")[-2], []).append((archive, member))
    ranked = sorted((rank, label, *one) for label, some in members.items() for rank, one in enumerate(some))[:most]
    for rank, label, archive, member in ranked:
        path = folder / label / f"{rank}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive) as held:
            path.write_bytes(held.read(member))
    return folder


def _warm(folder: str, run: Any) -> None:
    """Run on two photographs of each class, so that imports and compilation are done."""
    with tempfile.TemporaryDirectory() as few:
        for place in sorted(Path(folder).iterdir()):
            (Path(few) / place.name).mkdir()
            for path in sorted(place.iterdir())[:2]:
                (Path(few) / place.name / path.name).write_bytes(path.read_bytes())
        run(few)


def measure(method: str, folder: str) -> dict[str, Any]:
    """Run a method; gives seconds, seconds of the processor, and peak memory of the process."""
    run = {"pooled": pooled, "fit": fit, "fit, index and report": fit_and_write}[method]
    _warm(folder, run)
    started, cpu = time.perf_counter(), time.process_time()
    about = run(folder)
    return {
        "seconds": time.perf_counter() - started,
        "cpu": time.process_time() - cpu,
        "memory": peak_memory(),
        **about,
    }


def pooled(folder: str) -> dict[str, Any]:
    """What people write."""
    from concurrent.futures import ThreadPoolExecutor

    import cv2
    import numpy as np
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from bagwise.descriptors import NetworkFeatures

    network = NetworkFeatures().pooling()
    paths = sorted(Path(folder).glob("*/*.jpg"))

    def describe(path: Path) -> Any:
        return network.describe_pooled(cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB))[2]

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        X, y = np.array(list(threads.map(describe, paths))), [path.parent.name for path in paths]
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    found = cross_val_score(model, X, y, cv=min(5, min(y.count(one) for one in set(y))))
    model.fit(X, y)
    return {"error": 100 * (1 - float(found.mean()))}


def fit(folder: str) -> dict[str, Any]:
    """Fit with nothing set."""
    from bagwise import fit_model

    model = fit_model(folder)
    stages = {name: round(seconds, 2) for name, seconds in model.fit_.timings.items()}
    error = None if model.path is None else 100 * min(model.path.errors)
    return {"error": error, "stages": stages}


def fit_and_write(folder: str) -> dict[str, Any]:
    """Fit by the command line, with an index and a report."""
    from typer.testing import CliRunner

    from bagwise.app.cli.app import app

    with tempfile.TemporaryDirectory() as out:
        done = CliRunner().invoke(app, ["fit", folder, "--out", f"{out}/m.bagwise", "--quiet"])
    if done.exit_code:
        raise RuntimeError(done.output)
    return {"error": None}


def measure_image(folder: str, n: int = 100) -> dict[str, float]:
    """Time photographs from JPEG to histogram, in one thread: milliseconds of the processor an image."""
    from bagwise import fit_model, open_collection

    collection = open_collection(folder, mode="rgb")
    model = fit_model(collection, folds=0, n_groups=20)
    some = collection[list(range(0, len(collection), max(1, len(collection) // n)))]
    model.histograms(some[:5], n_jobs=1)
    cpu = time.process_time()
    model.histograms(some, n_jobs=1)
    return {"ms": 1000 * (time.process_time() - cpu) / len(some)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required="BAGWISE_DATA" not in os.environ, help="folder of data sets")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="also the peak memory of a fit to 5,000 photographs")
    parser.add_argument("--quick", action="store_true", help="60 photographs, one run")
    options = parser.parse_args()
    data = options.data or Path(os.environ["BAGWISE_DATA"])
    print(" · ".join(f"{key} {value}" for key, value in machine().items()) + "\n", flush=True)
    n, runs = (60, 1) if options.quick else (500, options.runs)
    with tempfile.TemporaryDirectory() as place:
        folder = unpack(data, ["corel1k"], n, Path(place, "photographs"))
        found: dict[str, list[dict[str, Any]]] = {method: [] for method in METHODS}
        for _ in range(runs):
            for method in METHODS:
                found[method].append(in_fresh_process(__file__, "measure", method=method, folder=str(folder)))
                print(method, found[method][-1], flush=True)
        image = in_fresh_process(__file__, "measure_image", folder=str(folder))
        print()
        middle = {
            method: {key: statistics.median(one[key] for one in some) for key in ("seconds", "cpu", "memory")}
            for method, some in found.items()
        }
        rows = [{"method": method, **one, "memory": f"{one['memory'] / 1e6:.0f} MB"} for method, one in middle.items()]
        print_table(rows, {"method": "method", "seconds": "s", "cpu": "processor, s", "memory": "peak memory"})
        base, ours, written = (middle[method] for method in METHODS)
        targets = [
            ("fit / pooled, by the clock", ours["seconds"] / base["seconds"], "<=", 1.5),
            ("fit / pooled, of the processor", ours["cpu"] / base["cpu"], "<=", 1.5),
            ("with index and report / pooled, by the clock", written["seconds"] / base["seconds"], "<=", 2.0),
            ("with index and report / pooled, of the processor", written["cpu"] / base["cpu"], "<=", 2.0),
            ("an image from JPEG to histogram, ms of the processor in one thread", image["ms"], "<=", 10.0),
        ]
        words = [one["stages"].get("learning words", 0.0) for one in found["fit"]]
        targets.append(("words by k-means, s", statistics.median(words), "<=", 3.0))
        if options.large:
            large = unpack(data, ["scene15", "caltech101_4"], 5000, Path(place, "large"))
            one = in_fresh_process(__file__, "measure", method="fit", folder=str(large))
            print("5,000 photographs:", one, "\n")
            targets.append(("peak memory of a fit to 5,000 photographs, GB", one["memory"] / 1e9, "<=", 1.0))
        print_targets(targets)


if __name__ == "__main__":
    main()
