"""The C++ runtime against `Model.predict`: same classes, time, memory, sizes, what int8 loses; OpenCV in the same run.

    python benchmarks/edge.py --data DIR             # or BAGWISE_DATA=DIR
    python benchmarks/edge.py --data DIR --quick     # fewer items and words, to see that it works
    python benchmarks/edge.py --data DIR --programs  # only times, memory and sizes
    python benchmarks/edge.py --data DIR --scales    # only: how many descriptors change their word by kind of scale

Models: Scene-15 (1,000 words of SIFT, 200 groups), Corel-1k (SIFT and colours), three pairs of newsgroups, MNIST as a
table of counts; all from ``--work``, if they are there, otherwise fitted. Scores of C++ come by its C interface from
the same pixels, texts and rows. Milliseconds are processor time of one core, medians, of the program that `bagwise
export --cpp` writes, for a test image of Scene-15 enlarged to 640 x 480. Needs g++, and for the
peer OpenCV's headers (Debian: libopencv-dev).
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from bagwise import Model, fit_model, open_collection
from bagwise.app.model import export_cpp
from bagwise.sources import Collection
from harness import ROOT, machine, print_table, print_targets

sys.path.insert(0, str(ROOT / "tests"))
from runtime_cpp import binding

SIZE = 640, 480
# The first is what the exported CMakeLists.txt does.
FAST = ("-O3", "-ffunction-sections", "-Wl,--gc-sections")
BUILDS = {
    "g++ -O3 -march=native": ("g++", *FAST, "-march=native"),
    "g++ -O3": ("g++", *FAST),
    "g++ -Os": ("g++", "-Os", *FAST[1:]),
    "clang++ -O3 -march=native": ("clang++", *FAST, "-march=native"),
}
GOALS = {
    "scores differ by at most": 1e-4,
    "float, milliseconds": 60,
    "int8, milliseconds": 30,
    "memory beside the image, MB": 8,
    "start, milliseconds": 5,
    "stripped program, KB": 300,
    "model of Scene-15 with 200 groups, KB": 600,
    "the same in int8, KB": 160,
    "int8 loses, points": 0.5,
}


def fitted(options: argparse.Namespace, name: str, source: Any, **parameters: Any) -> Model:
    path = options.work / f"{name}.bagwise"
    if not path.exists():
        print(f"fitting {name} …", file=sys.stderr, flush=True)
        fit_model(source, folds=0, n_jobs=-1, **parameters).save(path)
    return Model.load(path)


def scene_model(options: argparse.Namespace, train: Any) -> Model:
    if options.quick:
        return fitted(options, "scene15", train[::10], n_words=100, n_groups=20)
    return fitted(options, "scene15", train, n_words=1000, n_groups=200)


def data_sets(options: argparse.Namespace) -> dict[str, tuple[Model, list[Any], list[str]]]:
    """Models with items to classify, and their labels."""
    words = 100 if options.quick else 1000
    found: dict[str, tuple[Model, list[Any], list[str]]] = {}

    def held_out(path: str, n: int, **reading: Any) -> tuple[Any, Any]:
        train, test = open_collection(options.data / path, **reading).split()
        return train[:: 10 if options.quick else 1], test[np.linspace(0, len(test) - 1, min(n, len(test))).astype(int)]

    _, test = held_out("scene15/scene15.zip", options.n_items)
    scenes = scene_model(options, open_collection(options.data / "scene15/scene15.zip").split()[0])
    found["Scene-15"] = scenes, [item.load() for item in test], list(test.labels)
    corel = open_collection(options.data / "corel1k/corel1k.zip")
    half = np.arange(len(corel)) % 2 == 0
    pictures = fitted(options, "corel1k", corel[half][:: 10 if options.quick else 1], n_words=words, n_groups=50)
    colored = corel[~half][: options.n_items]
    from bagwise.sources.media import images_in_mode

    found["Corel-1k"] = pictures, [item.load() for item in images_in_mode(colored, "rgb")], list(colored.labels)
    train, test = held_out("newsgroups_3pairs/newsgroups_3pairs.zip", options.n_items, encoding="latin-1")
    texts = fitted(options, "newsgroups", train, n_groups=50)
    found["newsgroups"] = texts, [item.load() for item in test], list(test.labels)
    digits = np.load(options.data / "mnist/mnist.npz")
    X, y, X_test, y_test = (digits[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    n = 500 if options.quick else 5000
    table = Collection.from_matrix(
        X[:n].reshape(n, -1).astype(float), list(map(str, range(n))), [(str(k),) for k in y[:n]]
    )
    rows = fitted(options, "mnist", table, n_groups=50)
    found["MNIST"] = rows, list(X_test[: options.n_items].reshape(-1, X[0].size).astype(float)), list(map(str, y_test))
    return found


def scores_in_python(models: list[Model], items: list[Any]) -> list[np.ndarray]:
    """Scores of `Model.decision_function`; images are described once, for all models."""
    first = models[0]
    if first.modality == "images":
        batches = list(first.vectorizer.describe(items, n_jobs=-1))
        items = [batch if len(batch) > 1 else batch[0] for batch in batches]
    return [one.decision_function(np.array(items) if first.modality == "table" else items) for one in models]


def scores_in_cpp(model: Model, options: argparse.Namespace, runtime: Any, items: list[Any]) -> np.ndarray:
    """Scores by the C interface, from a file of the model; two threads work on different items."""
    path = model.save(options.work / "scored.bagwise")
    halves = np.array_split(np.arange(len(items)), 2)

    def scored(numbers: np.ndarray) -> list[np.ndarray]:
        loaded = runtime.model(path)
        return [loaded.scores(items[k]) for k in numbers]

    with ThreadPoolExecutor(2) as pool:
        return np.concatenate(list(pool.map(scored, halves)))


def nearest_tie(model: Model, item: Any) -> str:
    """Say how near to a tie between two words a descriptor of an image comes."""
    if model.modality != "images":
        return "no image, so no tie"
    gaps = []
    for bags, codebook in zip(next(iter(model.vectorizer.describe([item]))), model.codebooks, strict=True):
        values, words = bags.values.astype(np.float64), codebook.astype(np.float64)
        distances = (words * words).sum(axis=1) - 2 * values @ words.T + (values * values).sum(axis=1)[:, np.newaxis]
        two = np.partition(distances, 1, axis=1)
        gaps.append(((two[:, 1] - two[:, 0]) / np.maximum((values * values).sum(axis=1), 1e-30)).min())
    return f"two words are equally near to a descriptor up to {min(gaps):.1g} of its squared length"


def agreement(name: str, model: Model, items: list[Any], expected: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    """Compare the scores of C++ with those of `Model.decision_function`; print items with another class."""
    ours, theirs = expected.argmax(axis=1), scores.argmax(axis=1)
    for k in np.flatnonzero(ours != theirs):
        margin = expected[k, ours[k]] - expected[k, theirs[k]]
        classes = f"{model.classes[ours[k]]} in Python, {model.classes[theirs[k]]} in C++"
        print(f"  {name}, item {k}: {classes}, scores {margin:.2g} apart in Python")
    for k in np.flatnonzero(np.abs(scores - expected).max(axis=1) > GOALS["scores differ by at most"]):
        difference = np.abs(scores[k] - expected[k]).max()
        print(f"  {name}, item {k}: scores differ by {difference:.2g}; {nearest_tie(model, items[k])}")
    return {
        "data": name,
        "items": len(scores),
        "words": model.hierarchy.n_words,
        "same": int((ours == theirs).sum()),
        "difference": float(np.abs(scores - expected).max()),
        "beyond": int((np.abs(scores - expected).max(axis=1) > GOALS["scores differ by at most"]).sum()),
    }


def large_image(options: argparse.Namespace, items: list[Any]) -> tuple[Path, np.ndarray]:
    import cv2

    image = cv2.resize(np.asarray(items[len(items) // 2]), SIZE, interpolation=cv2.INTER_CUBIC)
    path = options.work / "image.pgm"
    path.write_bytes(f"P5\n{SIZE[0]} {SIZE[1]}\n255\n".encode() + image.tobytes())
    return path, image


def built(options: argparse.Namespace, folder: Path, name: str) -> Path | None:
    """Build the exported program as its README says, with another compiler or other options."""
    compiler, *flags = BUILDS[name]
    if shutil.which(compiler) is None:
        print(f"  {compiler} is not there: not built with it")
        return None
    target = folder / name.replace(" ", "")
    command = [compiler, "-std=c++17", *flags, "-pthread", "main.cpp", "-o", str(target)]
    subprocess.run(command, cwd=folder, check=True)
    return target


def timing(program: Path, model: Path, image: Path, repeats: int) -> dict[str, float]:
    command = [program, "--model", model, "--time", str(repeats), image]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return {name: float(value) for name, value in map(str.split, run.stderr.splitlines())}


def start_time(program: Path, model: Path, repeats: int) -> tuple[float, float]:
    """Milliseconds until the program has loaded its model and finds no image: processor time (median), wall (least)."""
    used, wall = [], []
    for _ in range(repeats):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([program, "--model", model], stdin=subprocess.DEVNULL, capture_output=True)
        wall.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * float(np.median(used)), 1000 * min(wall)


def program_rows(options: argparse.Namespace, models: dict[str, Path], image: Path) -> list[dict[str, Any]]:
    rows = []
    for name in BUILDS:
        program = built(options, models["float"].parent, name)
        if program is None:
            continue
        stripped = program.with_suffix(".stripped")
        subprocess.run(["strip", str(program), "-o", str(stripped)], check=True)
        told = {kind: timing(stripped, path, image, 3 if options.quick else 31) for kind, path in models.items()}
        pixels = SIZE[0] * SIZE[1]
        starts = {kind: start_time(stripped, path, 5 if options.quick else 41) for kind, path in models.items()}
        rows.append(
            {
                "build": name,
                "float": told["float"]["item_cpu_ms"],
                "float wall": told["float"]["item_ms"],
                "int8": told["int8"]["item_cpu_ms"],
                "int8 wall": told["int8"]["item_ms"],
                "memory": (1024 * told["float"]["peak_kb"] - pixels) / 1e6,
                "memory int8": (1024 * told["int8"]["peak_kb"] - pixels) / 1e6,
                "load": told["float"]["load_ms"],
                "start": starts["float"][0],
                "start wall": starts["float"][1],
                "start int8": starts["int8"][0],
                "size": stripped.stat().st_size / 1e3,
            }
        )
    return rows


def opencv_row(options: argparse.Namespace, model: Model, image: Path, pixels: np.ndarray) -> dict[str, Any] | None:
    """OpenCV's SIFT at the same places and FLANN with the same words, compiled; None if its headers are not there."""
    include = Path("/usr/include/opencv4")
    if not (include / "opencv2" / "features2d.hpp").is_file():
        print("  OpenCV's headers are not there (apt-get install libopencv-dev): no peer")
        return None
    from bagwise.descriptors.images import shrink  # as the runtime does

    target, words, small = options.work / "edge_peer", options.work / "words.f32", options.work / "small.pgm"
    libraries = [f"-lopencv_{name}" for name in ("features2d", "flann", "imgproc", "core")]
    command = ["g++", "-O3", "-march=native", f"-I{include}", str(ROOT / "benchmarks/edge_peer.cpp"), *libraries]
    subprocess.run([*command, "-o", str(target)], check=True)
    model.codebooks[0].astype("<f4").tofile(words)
    shrunk = shrink(pixels, model.descriptor.max_side)
    small.write_bytes(f"P5\n{shrunk.shape[1]} {shrunk.shape[0]}\n255\n".encode() + shrunk.tobytes())
    places = _keypoints(model, shrunk)
    run = subprocess.run(
        [target, small, words, str(len(model.codebooks[0])), "3" if options.quick else "11"],
        input="\n".join(" ".join(map(str, place)) for place in places),
        capture_output=True,
        text=True,
        check=True,
    )
    dense, matching, sparse, n_sparse = map(float, run.stdout.split())
    return {"patches": len(places), "dense": dense, "matching": matching, "sparse": sparse, "keypoints": int(n_sparse)}


def _keypoints(model: Model, image: np.ndarray) -> list[tuple[float, float, float]]:
    """Centres and sizes of the patches of the model; a patch of SIFT in OpenCV has 4 cells of 1.5 times the size."""
    bags = model.descriptor.transform([image])
    x, y = (bags.positions_of(0) * [image.shape[1], image.shape[0]]).T
    scales, per = model.descriptor.scales, model.descriptor.patch / 6
    at_each = (clone(model.descriptor).set_params(scales=(scale,)).transform([image]) for scale in scales)
    sizes = np.repeat([per * scale for scale in scales], [len(bags.values) for bags in at_each])
    return list(zip(x.tolist(), y.tolist(), sizes.tolist(), strict=True))


def scale_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Descriptors of every fourth training image of Scene-15 whose nearest word changes with the words' rounding."""
    train, _ = open_collection(options.data / "scene15/scene15.zip").split()
    model = scene_model(options, train)
    some = train[:: 40 if options.quick else 4]
    values = np.concatenate([bags.values for (bags,) in model.vectorizer.describe(some, n_jobs=-1)])
    words = model.codebook

    def nearest(vectors: np.ndarray, codebook: np.ndarray) -> np.ndarray:
        norms = (codebook * codebook).sum(axis=1)
        blocks = np.array_split(vectors, max(1, len(vectors) // 4096))
        return np.concatenate([np.argmin(norms - 2 * block @ codebook.T, axis=1) for block in blocks])

    rows, before = [], nearest(values, words)
    for name, axis in {"per word": 1, "per dimension": 0, "one for all": None}.items():
        scales = np.abs(words).max(axis=axis, keepdims=True) / 127
        after = nearest(values, (np.rint(words / scales) * scales).astype(np.float32))
        rows.append({"scales": name, "descriptors": len(values), "changed": 100 * float((after != before).mean())})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder of the data sets")
    parser.add_argument("--work", type=Path, help="folder that keeps the models for the next run")
    parser.add_argument("--quick", action="store_true", help="few items and words")
    parser.add_argument("--scores", action="store_true", help="only classes, scores and errors, no times")
    parser.add_argument("--programs", action="store_true", help="only times and sizes, no scores of thousands of items")
    parser.add_argument("--scales", action="store_true", help="only compare kinds of scales")
    options = parser.parse_args()
    if options.data is None:
        parser.error("give --data DIR, or BAGWISE_DATA=DIR")
    options.data, options.n_items = Path(options.data), 60 if options.quick else 2000
    print({**machine(), "quick": options.quick})
    with tempfile.TemporaryDirectory() as place:
        options.work = options.work or Path(place)
        options.work.mkdir(parents=True, exist_ok=True)
        if options.scales:
            print_table(
                scale_rows(options), {"scales": "scales", "descriptors": "descriptors", "changed": "other word, %"}
            )
            return
        values = {} if options.programs else measure_scores(options)
        values |= {} if options.scores else measure_programs(options)
    print(f"Goals; times and sizes of {next(iter(BUILDS))}")
    print_targets([(name, values[name], "<=", goal) for name, goal in GOALS.items() if name in values])


def measure_scores(options: argparse.Namespace) -> dict[str, float]:
    """Compare classes and scores of C++ and Python, and errors of int8."""
    runtime = binding.Runtime(binding.build(options.work / "bagwise.so", *FAST, "-march=native"))
    print("Classes and scores, C++ and Model.decision_function, from the same items")
    rows, errors = [], {}
    for name, (model, items, labels) in data_sets(options).items():
        rounding = name == "Scene-15"
        small = model.compact() if rounding else model.trim()
        forms = {"float32": small} | ({"int8": small.quantize()} if rounding else {})
        in_python = scores_in_python(list(forms.values()), items)
        in_cpp = [scores_in_cpp(one, options, runtime, items) for one in forms.values()]
        rows.append(agreement(name, small, items, in_python[0], in_cpp[0]))
        truth, names = np.array(labels[: len(items)]), np.array(model.classes)
        for form, *both in zip(forms, in_python, in_cpp, strict=True) if rounding else ():
            wrong = [100 * float((names[scores.argmax(axis=1)] != truth).mean()) for scores in both]
            errors[form] = {"form": form, "items": len(items), "python": wrong[0], "cpp": wrong[1]}
    heads = {"data": "data", "items": "items", "words": "words", "same": "same class"}
    print_table(rows, heads | {"difference": "largest difference of scores", "beyond": "items above 1e-4"})
    print("Scene-15: errors on these test images")
    heads = {"form": "words and heads", "items": "images", "python": "error in Python, %", "cpp": "error in C++, %"}
    print_table(list(errors.values()), heads)
    return {
        "scores differ by at most": max(row["difference"] for row in rows),
        "int8 loses, points": errors["int8"]["cpp"] - errors["float32"]["python"],
    }


def measure_programs(options: argparse.Namespace) -> dict[str, float]:
    """Measure files and programs: sizes, times, memory; those of OpenCV, and of the page."""
    train, test = open_collection(options.data / "scene15/scene15.zip").split()
    model = scene_model(options, train)
    forms = {"as fitted": model, "trimmed": model.trim(), "compact": model.compact()}
    forms["compact, int8"] = model.compact().quantize()
    sizes = {form: one.save(options.work / f"{form}.bagwise").stat().st_size / 1e3 for form, one in forms.items()}
    print(f"Scene-15, {model.n_groups} groups: model files")
    print_table([{"form": form, "size": size} for form, size in sizes.items()], {"form": "form", "size": "KB"})
    items = [item.load() for item in test[:: len(test) // 20]]
    image, pixels = large_image(options, items)
    folders = {}
    for kind, form in (("float", "compact"), ("int8", "compact, int8")):
        folders[kind] = export_cpp(forms[form], options.work / f"cpp-{kind}", force=True) / "model.bagwise"
    programs = program_rows(options, folders, image)
    print(f"{SIZE[0]} x {SIZE[1]} grey image to class, {model.hierarchy.n_words} words, one thread, milliseconds")
    names = ("float", "float wall", "int8", "int8 wall", "start", "start wall", "start int8")
    columns = {"build": "build", **{name: name for name in names}}
    print_table(programs, columns | {"memory": "MB", "memory int8": "MB int8", "size": "stripped KB"})
    peer = opencv_row(options, model, image, pixels)
    if peer is not None:
        print(f"OpenCV in C++, one thread, milliseconds: SIFT and FLANN at the same {peer['patches']} patches; its own")
        heads = {"dense": "SIFT + FLANN", "matching": "FLANN alone", "sparse": "own keypoints", "keypoints": "number"}
        print_table([peer], heads)
        ratios = [programs[0][kind] / peer["dense"] for kind in ("float", "int8")]
        print(f"  ours takes {ratios[0]:.2f} of its time, int8 {ratios[1]:.2f}")
    best = programs[0]
    return {
        "float, milliseconds": best["float"],
        "int8, milliseconds": best["int8"],
        "memory beside the image, MB": best["memory"],
        "start, milliseconds": best["start"],
        "stripped program, KB": best["size"],
        "model of Scene-15 with 200 groups, KB": sizes["compact"],
        "the same in int8, KB": sizes["compact, int8"],
    }


if __name__ == "__main__":
    main()
