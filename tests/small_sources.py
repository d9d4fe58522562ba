"""Small sources of every kind, for tests of what is learned from them."""

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "ripe", "sweet", "juice", "peel"],
    "tools": ["hammer", "saw", "drill", "nail", "steel", "heavy", "sharp", "handle"],
    "birds": ["wren", "robin", "finch", "nest", "feather", "sing", "wing", "egg"],
}
COMMON = ["the", "a", "of", "and", "with", "one"]


def texts(n_each=12, classes=("fruit", "tools", "birds"), seed=0):
    """Pairs of a text and its class."""
    rng = np.random.default_rng(seed)
    found = []
    for label in classes:
        for _ in range(n_each):
            words = [*rng.choice(WORDS[label], 6), *rng.choice(COMMON, 6)]
            found.append((" ".join(rng.permutation(words)), label))
    return found


def write_text_folder(folder, **options):
    for number, (text, label) in enumerate(texts(**options)):
        path = Path(folder, label, f"{number:03}.txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Path(folder)


def write_records(path, **options):
    rows = [f"{number},{text},{label}" for number, (text, label) in enumerate(texts(**options))]
    Path(path).write_text("\n".join(["id,text,label", *rows]))
    return Path(path)


def table(n_each=15, n_words=12, n_classes=3, seed=0):
    """Counts in which each class has words of its own, and the classes."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), n_each)
    rates = np.ones((n_classes, n_words)) + 6 * (np.arange(n_words) % n_classes == np.arange(n_classes)[:, None])
    return rng.poisson(rates[y]).astype(np.float64), np.array([f"class{k}" for k in y])


def write_table(path, **options):
    X, y = table(**options)
    names = [f"w{k}" for k in range(X.shape[1])]
    rows = [",".join([label, *(f"{value:g}" for value in row)]) for label, row in zip(y, X, strict=True)]
    Path(path).write_text("\n".join([",".join(["label", *names]), *rows]))
    return Path(path)


def images(n_each=6, side=24, seed=0, color=False):
    """Pairs of a picture with stripes along one direction or the other, in grey or orange, and its class."""
    rng = np.random.default_rng(seed)
    found = []
    for label in ("across", "down"):
        for _ in range(n_each):
            stripes = 127 + 100 * np.sin(np.arange(side) * rng.uniform(0.7, 1.1) + rng.uniform(0, 6))
            picture = np.broadcast_to(stripes[:, None], (side, side)) + rng.normal(0, 8, (side, side))
            pixels = np.clip(picture if label == "across" else picture.T, 0, 255).astype(np.uint8)
            found.append((np.stack([pixels, pixels // 2, 0 * pixels], axis=2) if color else pixels, label))
    return found


def png(pixels):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def write_image_folder(folder, parts=("",), **options):
    for seed, part in enumerate(parts):
        for number, (pixels, label) in enumerate(images(seed=seed, **options)):
            path = Path(folder, part, label, f"{number:02}.png")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(pixels))
    return Path(folder)


def zipped(folder, path):
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                archive.write(file, file.relative_to(folder))
    return Path(path)
