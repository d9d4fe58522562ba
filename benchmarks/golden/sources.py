"""What collections say of about 50 sources: ids, labels, splits, notes, what was ignored and skipped, and contents."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from content import flattened
from library import BagwiseError, as_json, items_of
from made import counts, encoded, measurements, pictures, tarred, texts, write, write_rows, write_videos, zipped
from PIL import Image
from sklearn.datasets import dump_svmlight_file


def entries() -> Iterator[tuple[str, Any]]:
    """Yield the entries of all sources."""
    for name, (source, options) in _made().items():
        try:
            found = items_of(source, **options)
        except BagwiseError as error:
            found = {"refused": f"{type(error).__name__}: {error}"}
        yield from flattened(found, f"sources/{name}")
        if isinstance(source, str) and not options and not name.startswith("wrong"):
            yield from flattened(as_json("list", source), f"sources/{name}/list")
    for ending in ("csv", "tsv", "jsonl", "parquet"):
        yield from flattened(
            as_json("list", "train-test", "--out", f"made.{ending}"), f"sources/manifest {ending}/list"
        )
        if ending != "parquet":
            yield from flattened(Path(f"made.{ending}").read_text(), f"sources/manifest {ending}/file")
        yield from flattened(items_of(f"made.{ending}"), f"sources/manifest {ending}")


def _members() -> dict[str, bytes]:
    return {f"{label}/{k:02}.txt": text.encode() for k, (text, label) in enumerate(texts(2))}


def _made() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Make all sources and return them by name, with options of `open_collection`."""
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    for make in (_folders, _archives, _images, _records, _tables, _others, _wrong):
        found |= {name: one if isinstance(one, tuple) else (one, {}) for name, one in make().items()}
    return found


def _folders() -> dict[str, Any]:
    members = _members()
    for name, content in members.items():
        label, file = name.split("/")
        write(f"classes/{name}", content)
        write(f"flat/{label}-{file}", content)
        write(f"{'train-test/train' if int(file[:2]) % 2 else 'train-test/test'}/{name}", content)
        write(f"nested/{label}/{file[:2]}/part/{file}", content)
        write(f"endings/{label}/{file[:-4]}.{'log' if int(file[:2]) % 2 else 'text'}", content)
        write(f"untidy/{name}", content)
    for name in ("README.md", ".DS_Store", "birds/.hidden.txt", "birds/Thumbs.db", "notes.pdf", "__MACOSX/._00.txt"):
        write(f"untidy/{name}", b"nothing")
    write("untidy/fruit/empty.txt", b"")
    write("untidy/fruit/latin.txt", "café".encode("latin-1"))
    flat = sorted(os.listdir("flat"))
    write_rows(
        "labels.csv",
        [["filename", "label", "split"], *[[n, n[:5], "train" if k % 2 else "test"] for k, n in enumerate(flat)]],
    )
    write_rows("several.tsv", [["id", "label"], *[[n, label] for n in flat for label in ("all", n[:5])]], "\t")
    write_rows("partial.csv", [["id", "kind"], *[[n, n[0]] for n in flat[1:]]])
    for folder, links in {
        "linked": {"a": "../classes/birds", "b": "../classes/fruit"},
        "looped": {"birds": "../classes/birds", "again": "..", "twice": "../classes/birds", "nowhere": "../absent"},
    }.items():
        Path(folder).mkdir()
        for link, target in links.items():
            Path(folder, link).symlink_to(target, target_is_directory=True)
    return {
        "class folders": "classes",
        "class folders by url": f"file://{os.getcwd()}/classes",
        "flat folder": "flat",
        "folders train and test": "train-test",
        "nested folders": "nested",
        "other endings": ("endings", {"extensions": ".log,.text"}),
        "untidy folder": "untidy",
        "untidy folder, latin-1": ("untidy", {"encoding": "latin-1"}),
        "label file": ("flat", {"labels": "labels.csv"}),
        "label file, several labels": ("flat", {"labels": "several.tsv"}),
        "label file, other column, not all": ("flat", {"labels": "partial.csv", "label": "kind"}),
        "links to class folders": "linked",
        "links in a circle": "looped",
        "one text": "flat/" + flat[0],
    }


def _archives() -> dict[str, Any]:
    members = _members()
    zipped("texts.zip", members | {"__MACOSX/birds/._00.txt": b"x", "birds/": b""})
    zipped("below.zip", {f"below/train/{name}": content for name, content in members.items()})
    for ending in ("", ".gz", ".bz2", ".xz"):
        tarred(f"texts.tar{ending}", members, f"w:{ending[1:]}")
    zipped("records.zip", {"a.csv": b"text,label\none,x\ntwo,y\n", "b/c.csv": b"text,label\nthree,x\n"})
    shards = [(encoded(pixels), label) for pixels, label in pictures(2)]
    for number in range(2):
        held = {}
        for k, (content, label) in enumerate(shards[number::2]):
            held |= {f"{k:03}.png": content, f"{k:03}.cls": label.encode(), f"{k:03}.txt": b"words"}
        tarred(f"shards/part-{number:03}.tar", held)
    names = [f"texts{end}" for end in (".zip", ".tar", ".tar.gz", ".tar.bz2", ".tar.xz")]
    return {name: name for name in (*names, "below.zip", "records.zip")} | {
        "shards": "shards/part-{000..001}.tar",
        "shards, labels of a member": ("shards/part-*.tar", {"label": "txt"}),
    }


def _images() -> dict[str, Any]:
    pixels = pictures(1)[0][0]
    grey = pixels[..., 0]
    wide = (np.arange(240).reshape(12, 20) * 271).astype(np.uint16)
    exif = Image.Exif()
    exif[0x0112] = 6
    files = {kind: encoded(pixels, kind) for kind in ("PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")}
    files |= {"JPEG": encoded(pixels, "JPEG", quality=90), "turned.PNG": encoded(grey, exif=exif)}
    files |= {"grey.PNG": encoded(grey), "wide.PNG": encoded(wide), "bits.PNG": encoded(grey > 99)}
    files |= {"clear.PNG": encoded(np.dstack([pixels, grey])), "cut.png": encoded(pixels)[:90], "text.jpg": b"no image"}
    palette = io.BytesIO()
    Image.fromarray(pixels).quantize(16).save(palette, "PNG")
    files["palette.PNG"] = palette.getvalue()
    for name, content in files.items():
        write(f"images/{'a' if len(name) > 4 else 'b'}/{name if '.' in name else f'one.{name.lower()}'}", content)
    write("images/README.txt", "about")
    zipped("images.zip", {f"a/{name}": content for name, content in files.items() if name.endswith(".PNG")})
    frames = {"image": [Image.fromarray(one) for one, _ in pictures(1)], "label": [label for _, label in pictures(1)]}
    return {
        "images": "images",
        "images in colour": ("images", {"mode": "rgb"}),
        "images.zip": ("images.zip", {"mode": "rgb"}),
        "dict of images": (frames, {"image": "image"}),
    }


def _records() -> dict[str, Any]:
    rows = [
        [f"r{k}", f'"{text}, and"', label, "train" if k % 3 else "test"] for k, (text, label) in enumerate(texts(2))
    ]
    write_rows("records.csv", [["id", "text", "label", "split"], *rows])
    write_rows("columns.csv", [["Nr", "Body", "Species", "fold"], *rows])
    write_rows("records.tsv", [["text", "label"], *[[row[1].strip('"'), row[2]] for row in rows]], "\t")
    write("semicolon.csv", "text;label\ncafé;a\nthé;b\n".encode("latin-1"))
    write("headless.csv", "one two,a\nthree four,b\n")
    write("lines.csv", 'text,label\n"two\nlines",a\n"a ""quoted"" word",b\nplain,\n')
    write("bad.csv", b"text,label\ncaf\xe9,x\n\nfine,y\ntoo,many,fields\n")
    objects = [{"text": row[1], "label": [row[2], "all"] if k == 1 else row[2], "n": k} for k, row in enumerate(rows)]
    write("records.jsonl", "".join(json.dumps(one) + "\n" for one in objects))
    write("bad.jsonl", '{"text": "a", "label": "x"}\n{"text": 3\n{"label": "y"}\n{"text": "b", "label": null}\n')
    write("folder of records/a.jsonl", '{"text": "a"}\n{"text": "b"}\n')
    write("folder of records/b.csv", "text\nc\n")
    write("records.csv.gz", gzip.compress(Path("records.csv").read_bytes(), mtime=0))
    columns = {name: [row[k] for row in rows] for k, name in enumerate(("id", "text", "label", "split"))}
    found: dict[str, Any] = {name: name for name in ("records.csv", "records.tsv", "records.jsonl", "lines.csv")}
    found |= {name: name for name in ("folder of records", "records.csv.gz", "headless.csv")}
    found |= {
        "columns.csv": ("columns.csv", {"text": "Body", "label": "species", "id": "nr", "split": "fold"}),
        "columns.csv, found": "columns.csv",
        "semicolon.csv": ("semicolon.csv", {"encoding": "latin-1"}),
        "headless.csv, named": ("headless.csv", {"modality": "records", "header": False, "text": "1", "label": "2"}),
        "bad.csv, skipped": ("bad.csv", {"on_error": "skip"}),
        "bad.csv": ("bad.csv", {"on_error": "raise"}),
        "bad.jsonl, skipped": ("bad.jsonl", {"on_error": "skip"}),
        "dict of texts": (columns, {}),
    }
    return found | _frames(columns, "records")


def _frames(columns: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the columns as frames of other libraries and their files, those that are installed."""
    import openpyxl
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), f"{name}.parquet")
    book = openpyxl.Workbook()
    book.active.append(list(columns))
    for row in zip(*columns.values(), strict=True):
        book.active.append(list(row))
    book.save(f"{name}.xlsx")
    label = {"label": "label"}
    return {
        f"{name}.parquet": f"{name}.parquet",
        f"{name}.xlsx": f"{name}.xlsx",
        f"pandas of {name}": (pd.DataFrame(columns), label),
        f"polars of {name}": (pl.DataFrame(columns), label),
        f"arrow of {name}": (pa.table(columns), label),
    }


def _tables() -> dict[str, Any]:
    X, y = counts(2, 6)
    M, z = measurements(2, 5)
    header = [f"w{k}" for k in range(X.shape[1])]
    rows = [[label, *(f"{value:g}" for value in row)] for label, row in zip(y, X, strict=True)]
    write_rows("table.csv", [["label", *header], *rows])
    write_rows("table.tsv", [["label", *header], *rows], "\t")
    write_rows("numbers.csv", [[f"{value:g}" for value in row] for row in X])
    numbered = [[k, 100 + k, "train" if k % 2 else "test", *row] for k, row in enumerate(rows)]
    write_rows("numbered.csv", [["", "row_id", "part", "Class", *header], *numbered])
    np.savez("dense.npz", X=M, y=z)
    np.savez("halves.npz", x_train=X[:4], y_train=y[:4], x_test=X[4:], y_test=y[4:])
    sp.save_npz("sparse.npz", sp.csc_array(X))
    scipy.io.mmwrite("matrix.mtx", sp.coo_array(X))
    dump_svmlight_file(X, np.arange(len(y)) % 2, "table.svmlight", zero_based=False)
    found: dict[str, Any] = {
        name: name for name in ("table.csv", "table.tsv", "numbers.csv", "dense.npz", "numbered.csv")
    }
    found |= {name: name for name in ("halves.npz", "sparse.npz", "matrix.mtx", "table.svmlight")}
    found["numbered.csv, chosen"] = ("numbered.csv", {"label": "class", "id": "row_id", "split": "part"})
    found["numbered.csv, kept"] = ("numbered.csv", {"keep": "row_id"})
    columns = {"label": y.tolist()} | {name: X[:, k] for k, name in enumerate(header)}
    return found | {"dict of numbers": (columns, {"label": "label"})} | _frames(columns, "table")


def _others() -> dict[str, Any]:
    write_videos("videos", 1, 5)
    found: dict[str, Any] = {"videos": "videos", "videos, some frames": ("videos", {"every": 2, "mode": "rgb"})}
    try:
        import h5py
    except ImportError:
        return found
    X, y = counts(2, 4)
    with h5py.File("cells.h5ad", "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", X.shape
        for name in ("data", "indices", "indptr"):
            group.create_dataset(name, data=getattr(sp.csr_array(X), name))
        file["layers/logs"] = np.log1p(X)
        for place, n in (("obs", len(X)), ("var", 4)):
            part = file.create_group(place)
            part.attrs["_index"] = "names"
            part.create_dataset("names", data=[f"{place}{k}" for k in range(n)], dtype=h5py.string_dtype())
        kinds = file["obs"].create_group("kind")
        kinds["codes"] = np.unique(y, return_inverse=True)[1].astype(np.int8)
        kinds.create_dataset("categories", data=["T", "B", "NK"], dtype=h5py.string_dtype())
    return found | {"cells.h5ad": "cells.h5ad", "cells.h5ad, layer": ("cells.h5ad", {"layer": "logs", "label": "kind"})}


def _wrong() -> dict[str, Any]:
    Path("empty").mkdir()
    members = _members()
    for name, content in (members | {"a/one.png": encoded(pictures(1)[0][0]), "b/two.png": b"x"}).items():
        write(f"mixed/{name}", content)
    write("cut.zip", Path("texts.zip").read_bytes()[:200])
    zipped("out.zip", {"../escape.txt": b"x", "a/b.txt": b"y"})
    write("open.csv", 'text,label\n"never closed,a\n')
    write("double.csv", "id,text\n1,a\n1,b\n")
    np.savez("pickled.npz", X=np.array([[1, "a"], [None, 2]], dtype=object))
    write("bomb.gz", gzip.compress(bytes(10_000), mtime=0))
    names = ("absent", "empty", "mixed", "cut.zip", "out.zip", "open.csv", "double.csv", "pickled.npz", "bomb.gz")
    return {f"wrong: {name}": name for name in names}
