"""Speed of the front end on Scene-15: descriptors of images, with OpenCV's SIFT on the same grid beside ours.

    python benchmarks/front_end.py --data DIR            # or BAGWISE_DATA=DIR; about 2 minutes on 2 cores
    python benchmarks/front_end.py --data DIR --quick    # few images, to see that it works

Reads DIR/scene15/scene15.zip. Milliseconds per image are on one thread, without reading: the best of three for each
image, then the mean over images. For dense SIFT images are cut or mirrored to 300 x 220 pixels, so that the figure
means the same everywhere; all else takes images as they are. OpenCV gets one thread and keypoints at the same points,
whose cells have the same size, and the similarity is the cosine between our descriptor and its. Then the whole
collection is described, from the archive to bags, with reading and decoding. `encoding.py` goes on from there: words
and histograms; `scene15.py` has the whole way from images to accuracy.

    python benchmarks/front_end.py --photos              # photos of 12 megapixels alone; needs no data

Photos are synthetic (noise at all scales, JPEG of quality 90). Describing them, with the default `max_side`, and a
whole fit stand beside bare decoding by Pillow in the same run, with the growth of memory, for some photos and for twice
as many.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise import fit_model, open_collection
from bagwise.app import FitOptions
from bagwise.app.modalities.images import ImageModality
from bagwise.descriptors import LBPD5, ColorSIFT, DenseSIFT, HogLbp, KeypointSIFT, LocalBinaryPatterns, Patches
from bagwise.descriptors.base import describe_items
from bagwise.sources import Collection
from harness import PeakMemory, in_fresh_process, machine, print_table, print_targets, timed

HEIGHT, WIDTH = 220, 300
REPEATS = 3
# OpenCV's cells are 1.5 times the size of a keypoint; cells of a 16-pixel patch have 4 pixels.
KEYPOINT_SIZE = 4 / 1.5


def open_scenes(data: Any, mode: str) -> Collection:
    """Open the archive, or say what is missing."""
    if data is None:
        sys.exit("Say where the data sets are: --data DIR or BAGWISE_DATA=DIR.")
    path = Path(data) / "scene15" / "scene15.zip"
    if not path.exists():
        sys.exit(f"{path} does not exist.")
    return open_collection(path, mode=mode)


def some_images(collection: Collection, n: int) -> list[NDArray[np.uint8]]:
    """Load n images, evenly spread over the classes."""
    numbers = np.linspace(0, len(collection) - 1, n).astype(int)
    return [image for _, image in collection[numbers].load()]


def of_standard_size(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Cut an image, or mirror it at its right and lower border."""
    height, width = image.shape
    missing = ((0, max(0, HEIGHT - height)), (0, max(0, WIDTH - width)))
    return np.ascontiguousarray(np.pad(image, missing, mode="symmetric")[:HEIGHT, :WIDTH])


def milliseconds(function: Callable[[Any], Any], images: list[Any]) -> float:
    """Mean over images of the best of some calls, after one to warm up."""
    function(images[0])
    return 1000 * float(np.mean([min(timed(lambda: function(image))[0] for _ in range(REPEATS)) for image in images]))  # noqa: B023


def measure_sift(images: list[NDArray[np.uint8]]) -> list[dict[str, Any]]:
    """Time dense SIFT and OpenCV's at the same points and compare what they give, for several blurs of both.

    OpenCV's sigma is the blur that an image with one of half a pixel has afterwards; 0.5 is as good as none.
    """
    return [measure_blur(images, smoothing, sigma) for smoothing, sigma in ((0.0, 0.5), (1.52, 1.6), (0.0, 1.6))]


def measure_blur(images: list[NDArray[np.uint8]], smoothing: float, sigma: float) -> dict[str, Any]:
    import cv2

    cv2.setNumThreads(1)
    ours, theirs = DenseSIFT(step=8, patch=16, smoothing=smoothing), cv2.SIFT_create(sigma=sigma)
    images = [of_standard_size(image) for image in images]
    at = ours.describe(images[0])[1] * (WIDTH, HEIGHT) - 0.5
    points = [cv2.KeyPoint(float(x), float(y), KEYPOINT_SIZE, 0.0) for x, y in at.round()]
    cosines = []
    for image in images:
        ours_here, (_, theirs_here) = ours.describe(image)[0], theirs.compute(image, points)
        lengths = np.linalg.norm(theirs_here, axis=1) * np.linalg.norm(ours_here, axis=1)
        filled = lengths > 0  # flat patches have no direction to compare
        cosines.append((ours_here * theirs_here).sum(axis=1)[filled] / lengths[filled])
    return {
        "smoothing": smoothing,
        "sigma": sigma,
        "images": len(images),
        "points": len(points),
        "ours": milliseconds(ours.describe, images),
        "opencv": milliseconds(lambda image: theirs.compute(image, points), images),
        "cosine": float(np.concatenate(cosines).mean()),
        "cosine_worst_image": float(min(part.mean() for part in cosines)),
    }


def measure_descriptors(grey: list[NDArray[np.uint8]], colour: list[NDArray[np.uint8]]) -> list[dict[str, Any]]:
    """Time every descriptor, one image at a time."""
    rows = []
    for descriptor, images in [
        (DenseSIFT(), grey),
        (DenseSIFT(step=4), grey),
        (DenseSIFT(scales=(1.0, 1.5, 2.0)), grey),
        (ColorSIFT("opponent"), colour),
        (ColorSIFT("rg"), colour),
        (KeypointSIFT(), grey),
        (Patches(), grey),
        (HogLbp(), grey),
        (LocalBinaryPatterns(), grey),
        (LocalBinaryPatterns(uniform=True, cell=16), grey),
        (LBPD5(), grey),
    ]:
        found = [descriptor.transform([image]) for image in images[:20]]
        rows.append({
            "descriptor": repr(descriptor).replace("\n", ""),
            "milliseconds": milliseconds(lambda image: descriptor.transform([image]), images),  # noqa: B023
            "rows": float(np.mean([part.shape[0] if hasattr(part, "nnz") else part.n_rows for part in found])),
            "features": found[0].shape[1] if hasattr(found[0], "nnz") else found[0].n_features,
        })  # fmt: skip
    return rows


def describe_collection(data: str, n_images: int, batch: int | None, parameters: dict[str, Any]) -> dict[str, float]:
    """Describe images by dense SIFT, from the archive on, batch by batch or all at once; in a process of its own."""
    scenes = open_scenes(data, "grey")
    part = scenes[np.linspace(0, len(scenes) - 1, n_images).astype(int)]
    descriptor = DenseSIFT(**parameters)
    descriptor.describe(part[0].load())  # compiled code is loaded before the clock starts
    with PeakMemory() as memory:
        if batch is None:
            seconds, size = timed(lambda: descriptor.transform(part).nbytes)
        else:
            seconds, size = timed(lambda: sum(bags.nbytes for bags in descriptor.iter_transform(part, batch)))
    return {"seconds": seconds, "size": size / 1e6, "memory": memory.growth / 1e6}


def measure_collection(data: str, n_images: int) -> list[dict[str, Any]]:
    """Describe many images: threads, batches, and the cache."""
    with tempfile.TemporaryDirectory() as folder:
        ways = [
            ("batches of 64", 64, {}),
            ("batches of 64, n_jobs=2", 64, {"n_jobs": 2}),
            ("all at once, n_jobs=2", None, {"n_jobs": 2}),
            ("batches of 64, n_jobs=2, empty cache", 64, {"n_jobs": 2, "cache": folder}),
            ("batches of 64, n_jobs=2, full cache", 64, {"n_jobs": 2, "cache": folder}),
        ]
        return [
            {"how": how}
            | in_fresh_process(
                __file__, "describe_collection", data=data, n_images=n_images, batch=batch, parameters=parameters
            )
            for how, batch, parameters in ways
        ]


def write_photos(folder: Path, n_photos: int, height: int, width: int) -> None:
    """Write JPEG files of two classes; there are eight different photos, with other names each time."""
    import cv2
    from PIL import Image

    contents = []
    for seed in range(min(8, n_photos)):
        random = np.random.default_rng(seed)
        photo = random.normal(0, 3, (height, width, 3))
        for cells in (4, 8, 16, 32, 64, 128, 256, 512):
            coarse = random.normal(0, 60 / cells**0.4, (cells, cells, 3)).astype(np.float32)
            photo += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
        file = io.BytesIO()
        Image.fromarray(np.clip(photo + 128, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        contents.append(file.getvalue())
    for number in range(n_photos):
        path = folder / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[number % len(contents)])


def use_photos(folder: str, n_photos: int, way: str, n_jobs: int) -> dict[str, float]:
    """Decode, describe, or fit a model to some photos; in a process of its own."""
    photos = open_collection(folder, mode="rgb")[:n_photos]
    side = FitOptions().max_side
    descriptors = ImageModality().descriptors(FitOptions(descriptor="sift+color", n_jobs=n_jobs))  # those of a fit
    for descriptor in descriptors:
        descriptor.describe(photos[0].load(side))  # compiled code is loaded before the clock starts
    ways: dict[str, Callable[[], Any]] = {
        "decode": lambda: [item.load().shape for item in photos],
        "decode at a reduced scale": lambda: [item.load(side).shape for item in photos],
        "describe": lambda: [len(batch) for batch in describe_items(descriptors, photos, batch_size=32)],
        "fit": lambda: fit_model(photos, n_groups=20, folds=0, n_jobs=n_jobs).fit_.timings,
    }
    with PeakMemory() as memory:
        seconds, found = timed(ways[way])
    if way == "fit":  # learning words takes the same time however many photos there are
        seconds = found["describing"] + found["counting words"]
    return {"speed": n_photos / seconds, "memory": memory.growth / 1e6}


def report_photos(quick: bool) -> list[dict[str, Any]]:
    """Measure and print how large photos are described."""
    n_photos, (height, width) = (8, (1500, 2000)) if quick else (24, (3000, 4000))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write_photos(Path(folder), 2 * n_photos, height, width)
        for way, n_jobs in [
            ("decode", 1),
            ("decode at a reduced scale", 1),
            ("describe", 1),
            ("describe", 2),
            ("fit", 2),
        ]:
            few, many = (
                in_fresh_process(__file__, "use_photos", folder=folder, n_photos=n, way=way, n_jobs=n_jobs)
                for n in (n_photos, 2 * n_photos)
            )
            rows.append({"way": way, "threads": n_jobs, **many, "half": few["memory"]})
            rows[-1]["ratio"] = rows[-1]["speed"] / rows[0]["speed"]
    side = FitOptions().max_side
    print(f"{2 * n_photos} photos of {width} x {height} pixels, max_side {side}; fit: time without learning words\n")
    print_table(rows, {
        "way": "what", "threads": "threads", "speed": "images/s", "ratio": "to bare decoding",
        "memory": "growth of memory, MB", "half": "with half the photos",
    })  # fmt: skip
    if not quick:
        print_targets([
            ("describing photos to bare decoding, one thread each", rows[2]["ratio"], ">=", 0.9),
            ("growth of memory of a fit to photos, MB", rows[4]["memory"], "<=", 2000),
        ])  # fmt: skip
    return rows


def report_descriptors(data: Any, quick: bool) -> dict[str, Any]:
    """Measure and print all that is about descriptors."""
    scenes = open_scenes(data, "grey")
    n_images = 12 if quick else 150
    images, colour = some_images(scenes, n_images), some_images(open_scenes(data, "rgb"), n_images)
    results: dict[str, Any] = {"sift": measure_sift(images)}
    print(f"Dense SIFT, {WIDTH} x {HEIGHT} pixels, step 8, patches of 16, one thread: milliseconds per image\n")
    shown = [
        {key: f"{value:.4f}" if key.startswith("cosine") else value for key, value in row.items()}
        for row in results["sift"]
    ]
    print_table(shown, {
        "smoothing": "smoothing", "sigma": "OpenCV's sigma", "images": "images", "points": "points each",
        "ours": "DenseSIFT", "opencv": "OpenCV's SIFT", "cosine": "mean cosine",
        "cosine_worst_image": "of the worst image",
    })  # fmt: skip

    results["descriptors"] = measure_descriptors(images, colour)
    pixels = np.mean([image.size for image in images])
    print(f"All descriptors, images as they are ({pixels:.0f} pixels on average), one thread\n")
    print_table(results["descriptors"], {
        "descriptor": "descriptor", "milliseconds": "ms per image", "rows": "rows per image", "features": "features",
    })  # fmt: skip

    n_images = 40 if quick else len(scenes) // 4
    results["collection"] = measure_collection(str(data), n_images)
    print(f"Dense SIFT of {n_images} images, from the archive to bags, with decoding\n")
    print_table(results["collection"], {
        "how": "how", "seconds": "seconds", "size": "MB of bags", "memory": "growth of memory, MB",
    })  # fmt: skip
    if not quick:
        print_targets([
            ("DenseSIFT, ms per image of 300 x 220", results["sift"][0]["ours"], "<=", 6.0),
            ("mean cosine to OpenCV's SIFT, neither blurred", results["sift"][0]["cosine"], ">=", 0.95),
            ("mean cosine to OpenCV's SIFT, its default blur for both", results["sift"][1]["cosine"], ">=", 0.95),
        ])  # fmt: skip
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("BAGWISE_DATA"), help="folder of data sets")
    parser.add_argument("--quick", action="store_true", help="few images")
    parser.add_argument("--photos", action="store_true", help="large photos only")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    started = time.perf_counter()
    if not options.photos:
        open_scenes(options.data, "grey")
    results: dict[str, Any] = {"machine": machine()}
    print(" · ".join(f"{key} {value}" for key, value in results["machine"].items()), "\n")
    if not options.photos:
        results["descriptors"] = report_descriptors(options.data, options.quick)
    results["photos"] = report_photos(options.quick)
    print(f"({time.perf_counter() - started:.0f} s in all)")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
