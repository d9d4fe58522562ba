"""Small data, the same on every machine: pictures, texts, tables and videos as arrays and files."""

from __future__ import annotations

import io
import tarfile
import zipfile
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WORDS = {
    "birds": ["wren", "robin", "finch", "nest", "feather", "sing", "wing", "egg", "Käuzchen", "flight"],
    "fruit": ["apple", "pear", "plum", "cherry", "ripe", "sweet", "juice", "peel", "crème", "sing"],
    "tools": ["hammer", "saw", "drill", "nail", "steel", "heavy", "sharp", "handle", "naïve", "flight"],
}
COMMON = ["the", "a", "of", "and", "with", "one", "not", "from", "small", "large", "red", "blue", "old", "new"]


def texts(n_each: int = 14, seed: int = 0) -> list[tuple[str, str]]:
    """Return pairs of a text and its class, class by class."""
    rng = np.random.default_rng(seed)
    pairs = []
    for label, words in WORDS.items():
        for _ in range(n_each):
            others = rng.choice(list(chain(*WORDS.values())), 3)
            chosen = [*rng.choice(words, 6), *rng.choice(COMMON, 7), *others]
            pairs.append((" ".join(rng.permutation(chosen)), label))
    return pairs


def pictures(n_each: int = 8, seed: int = 0, *, color: bool = True) -> list[tuple[np.ndarray, str]]:
    """Return pairs of a picture and its class: a texture in some colours, or in grey."""
    rng = np.random.default_rng(seed)
    pairs = []
    for k, label in enumerate(("bands", "checks", "dots")):
        for _ in range(n_each):
            rows, columns = np.mgrid[: rng.integers(56, 80), : rng.integers(56, 80)]
            period = int(rng.integers(6, 10))
            pattern = {
                "bands": (rows + columns // 3) % period < period // 2,
                "checks": ((rows // period) + (columns // period)) % 2 == 0,
                "dots": (rows % period - period // 2) ** 2 + (columns % period - period // 2) ** 2 < 6,
            }[label]
            noise = rng.integers(-12, 13, (*rows.shape, 3))
            tint = np.array([200, 120, 60])[(np.arange(3) + k * (rng.random() < 0.8)) % 3]
            pixels = np.clip(np.where(pattern[..., np.newaxis], tint, 255 - tint) + noise, 0, 255).astype(np.uint8)
            pairs.append((pixels if color else pixels[..., 0], label))
    return pairs


def counts(n_each: int = 20, n_words: int = 30, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return counts in which each of three classes has words of its own, and the classes."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), n_each)
    rates = rng.gamma(0.6, 1.5, n_words) + 3 * (rng.random((3, n_words)) < 0.25)
    return rng.poisson(rates[y]).astype(np.float64), np.array(["ash", "elm", "oak"])[y]


def measurements(n_each: int = 16, n_words: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return columns of different scales, some of them negative, rounded to 0.001; and the classes."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(3), n_each)
    scale = 10.0 ** rng.integers(-1, 3, n_words)
    centres = rng.normal(0, 1.5, (3, n_words))
    return np.round((centres[y] + rng.normal(size=(len(y), n_words))) * scale, 3), np.array(["x", "y", "z"])[y]


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: Any) -> bytes:
    """Return the bytes of an image file."""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind, **options)
    return content.getvalue()


def write(path: str | Path, content: bytes | str) -> Path:
    """Write a file, and the folders that it is in."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)
    return target


def write_texts(folder: str, n_each: int = 14, seed: int = 0, *, first: int = 0) -> None:
    """Write a folder per class."""
    for number, (text, label) in enumerate(texts(n_each, seed), first):
        write(f"{folder}/{label}/{number:03}.txt", text)


def write_pictures(folder: str, n_each: int = 8, seed: int = 0, *, first: int = 0, color: bool = True) -> None:
    """Write a folder per class."""
    for number, (pixels, label) in enumerate(pictures(n_each, seed, color=color), first):
        write(f"{folder}/{label}/{number:02}.png", encoded(pixels))


def write_rows(path: str, rows: list[list[Any]], comma: str = ",") -> None:
    """Write a CSV file."""
    write(path, "".join(comma.join(map(str, row)) + "\n" for row in rows))


def write_videos(folder: str, n_each: int = 4, n_frames: int = 24) -> None:
    """Write a folder per class with squares that go right or down."""
    import av

    rng = np.random.default_rng(5)
    ground = rng.integers(0, 60, (72, 96)).astype(np.uint8)
    for label in ("down", "right"):
        for number in range(n_each):
            path = write(f"{folder}/{label}/{number}.avi", b"")
            row, column = rng.integers(2, 12, 2)
            with av.open(str(path), "w") as container:
                stream = container.add_stream("mpeg4", rate=10)
                stream.width, stream.height, stream.pix_fmt, stream.thread_count = 96, 72, "yuv420p", 1
                for number_of_frame in range(n_frames):
                    step = min(number_of_frame % 12, 12 - number_of_frame % 12)  # there and back
                    frame = ground.copy()
                    top, left = (row + 2 * step, column) if label == "down" else (row, column + 2 * step)
                    frame[top : top + 14, left : left + 14] = 200 + 5 * number
                    picture = av.VideoFrame.from_ndarray(np.stack([frame] * 3, axis=-1), format="rgb24")
                    container.mux(stream.encode(picture))
                container.mux(stream.encode())


def zipped(path: str, members: dict[str, bytes]) -> None:
    """Write a zip file with fixed dates."""
    with zipfile.ZipFile(write(path, b""), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), content)


def tarred(path: str, members: dict[str, bytes], mode: str = "w") -> None:
    """Write a tar file."""
    with tarfile.open(write(path, b""), mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
