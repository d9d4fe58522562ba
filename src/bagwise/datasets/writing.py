"""Data sets as files that `open_collection` and ``bagwise fit`` read."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from bagwise._io.atomic import open_atomically, write_atomically
from bagwise._utils.extras import require
from bagwise.errors import BagwiseError

__all__ = ["write_dataset", "write_npz"]

# The earliest date of zip files: equal data give equal bytes.
_DATE = (1980, 1, 1, 0, 0, 0)


def write_dataset(dataset: Any, path: str | os.PathLike[str]) -> Path:
    """Write a data set of this module as files.

    Parameters
    ----------
    dataset : Bunch
        What `make_photos`, `make_corpus`, `make_cells`, `load_digit_images` and the fetchers return.
    path : path
        - A folder, or a file that ends in ``.zip``: images as PNG files (needs ``bagwise[app]``) or texts as files,
          in a folder for each class, below one for each split where there are splits. The folder must not exist, or
          be empty.
        - ``.csv``: texts, with columns id, text and label.
        - ``.npz``: a table of numbers. ``.h5ad``: one for AnnData (needs ``bagwise[anndata]``), with labels in
          ``obs["label"]``.

    Returns
    -------
    path : Path
        As given.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise import open_collection
    >>> from bagwise.datasets import make_corpus, write_dataset
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     open_collection(write_dataset(make_corpus(30), f"{folder}/corpus"))
    <Collection: 30 texts, 6 classes, from ...corpus>
    """
    path = Path(path)
    end = path.suffix.lower()
    data = dataset.get("images", dataset.get("data"))
    if "target" not in dataset or data is None:
        raise BagwiseError("dataset must be a Bunch with images or data, and target, as bagwise.datasets gives them.")
    images = "images" in dataset
    texts = not images and isinstance(data, (list, tuple))
    accepted = ["", ".zip"] if images else ["", ".zip", ".csv"] if texts else [".npz", ".h5ad"]
    if end not in accepted:
        what = "Images are" if images else "Texts are" if texts else "A table is"
        listed = ", ".join(end or "a folder" for end in accepted)
        raise BagwiseError(f"{what} written to {listed}; got {path}.")
    labels = _labels(dataset)
    if end == ".csv":
        _write_records(path, data, labels)
    elif end == ".npz":
        names = dataset.get("feature_names")
        write_npz(path, data, labels=labels, feature_names=names)
    elif end == ".h5ad":
        _write_h5ad(path, data, labels, dataset.get("feature_names"))
    elif end == ".zip":
        with open_atomically(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, content in _files(dataset, data, labels, images):
                archive.writestr(zipfile.ZipInfo(name, _DATE), content)
    else:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BagwiseError(f"{path} exists and is not an empty folder. Give another name.")
        for name, content in _files(dataset, data, labels, images):
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
    return path


def _labels(dataset: Any) -> list[str]:
    """Return the name of the class of each item; targets that are no numbers of names are names."""
    target, names = np.asarray(dataset["target"]), dataset.get("target_names")
    if target.dtype.kind in "iu" and names is not None:
        return [str(names[k]) for k in target.tolist()]
    return list(map(str, target.tolist()))


def _files(dataset: Any, data: Any, labels: list[str], images: bool) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each file."""
    pillow = require("PIL.Image", "app", "Writing images") if images else None
    splits = dataset.get("splits")
    digits = max(4, len(str(len(labels))))
    for number, (one, label) in enumerate(zip(data, labels, strict=True)):
        folder = label if splits is None else f"{splits[number]}/{label}"
        if pillow is None:
            yield f"{folder}/{number:0{digits}}.txt", one.encode("utf-8")
        else:
            png = io.BytesIO()
            pillow.fromarray(one).save(png, "PNG")
            yield f"{folder}/{number:0{digits}}.png", png.getvalue()


def _write_records(path: Path, texts: list[str], labels: list[str]) -> None:
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["id", "text", "label"])
    writer.writerows(zip(range(len(texts)), texts, labels, strict=True))
    write_atomically(path, file.getvalue().encode("utf-8"))


def _write_h5ad(path: Path, X: Any, labels: list[str], names: list[str] | None) -> None:
    """Write a file as anndata 0.10 and later do."""
    h5py = require("h5py", "anndata", "Writing .h5ad files")
    text = h5py.string_dtype()
    known, codes = np.unique(labels, return_inverse=True)
    rows = sp.csr_array(X)
    content = io.BytesIO()

    def kind(node: Any, name: str, version: str = "0.2.0") -> Any:
        node.attrs["encoding-type"], node.attrs["encoding-version"] = name, version
        return node

    def strings(group: Any, name: str, values: list[str]) -> None:
        kind(group.create_dataset(name, data=values, dtype=text), "string-array")

    with h5py.File(content, "w") as file:
        kind(file, "anndata", "0.1.0")
        matrix = kind(file.create_group("X"), "csr_matrix", "0.1.0")
        matrix.attrs["shape"] = rows.shape
        for name in ("data", "indices", "indptr"):
            kind(matrix.create_dataset(name, data=getattr(rows, name), compression="gzip"), "array")
        for name, n, columns in (("obs", rows.shape[0], ["label"]), ("var", rows.shape[1], [])):
            frame = kind(file.create_group(name), "dataframe")
            frame.attrs["_index"] = "_index"
            frame.attrs.create("column-order", columns, dtype=text)
            index = names if name == "var" and names is not None else list(map(str, range(n)))
            strings(frame, "_index", index)
        column = kind(file["obs"].create_group("label"), "categorical")
        column.attrs["ordered"] = False
        kind(column.create_dataset("codes", data=codes.astype(np.int16)), "array")
        strings(column, "categories", known.tolist())
        for name in ("layers", "obsm", "obsp", "uns", "varm", "varp"):
            kind(file.create_group(name), "dict", "0.1.0")
    write_atomically(path, content.getvalue())


def write_npz(path: str | os.PathLike[str], X: Any, **columns: Any) -> None:
    """Write a matrix, which stays sparse, and lists of strings such as labels and feature_names; None is left out.

    `open_collection` reads the file; SciPy's `load_npz` reads a sparse matrix from it.
    """
    arrays = {name: np.array(values) for name, values in columns.items() if values is not None}
    if sp.issparse(X):  # the names of scipy.sparse.save_npz
        rows = sp.csr_array(X)
        arrays |= {"format": np.array(b"csr"), "shape": np.array(rows.shape), "data": rows.data}
        arrays |= {"indices": rows.indices, "indptr": rows.indptr, "_is_array": np.array(True)}
    else:
        arrays["X"] = np.asarray(X)
    content = io.BytesIO()
    np.savez_compressed(content, allow_pickle=False, **arrays)
    write_atomically(path, content.getvalue())
