"""Writing features with their ids, labels and names: .npz, .csv and .parquet, as `open_collection` reads them."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bagwise.errors import BagwiseError

__all__ = ["check_feature_file", "write_features"]

# Columns that are not features.
_OTHERS = ("id", "label", "split")
_CSV_ROWS = 256


def check_feature_file(path: Path) -> None:
    """Say before any work that a format is not known, or needs a library."""
    if path.suffix.lower() not in _WRITERS:
        raise BagwiseError(f"{path} must end in {', '.join(_WRITERS)}, which says the format.")
    if path.suffix.lower() == ".parquet":
        from bagwise._utils.extras import require

        require("pyarrow", "io", "Writing Parquet files")


def write_features(path: Path, features: Any, collection: Any, names: Sequence[str]) -> Path:
    """Write a matrix of features, sparse or dense, with ids, labels and parts of items.

    Parameters
    ----------
    path : Path
        Its ending says the format. ``.npz`` keeps sparse features sparse.
    features : CSR array or ndarray of shape (n_items, n_features)
    collection : Collection
    names : sequence of str
        Names of the features.

    Returns
    -------
    path : Path
    """
    _WRITERS[path.suffix.lower()](path, features, collection, _column_names(names))
    return path


def _column_names(names: Sequence[str]) -> list[str]:
    """Names that differ from one another and from those of the other columns."""
    taken = set(_OTHERS)
    unique = []
    for name in map(str, names):
        while name in taken:
            name += "_"
        taken.add(name)
        unique.append(name)
    return unique


def _write_npz(path: Path, features: Any, collection: Any, names: list[str]) -> None:
    import numpy as np
    import scipy.sparse as sp

    from bagwise._io.atomic import write_atomically

    arrays: dict[str, Any] = {"ids": np.array(collection.ids), "feature_names": np.array(names)}
    if any(item.labels for item in collection):
        arrays["labels"] = np.array([_label(item) for item in collection])
    if any(split is not None for split in collection.splits):
        arrays["splits"] = np.array([split or "" for split in collection.splits])
    if sp.issparse(features):  # as SciPy's save_npz names them, so that load_npz reads the matrix
        rows = sp.csr_array(features)
        arrays |= {"format": np.array(b"csr"), "shape": np.array(rows.shape), "data": rows.data}
        arrays |= {"indices": rows.indices, "indptr": rows.indptr, "_is_array": np.array(True)}
    else:
        arrays["X"] = np.asarray(features)
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_atomically(path, content.getvalue())


def _write_csv(path: Path, features: Any, collection: Any, names: list[str]) -> None:
    from bagwise._io.atomic import open_atomically

    others = _other_columns(collection)
    with open_atomically(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        writer = csv.writer(text)
        writer.writerow([*others, *names])
        for start in range(0, len(collection), _CSV_ROWS):
            rows = _dense(features[start : start + _CSV_ROWS]).tolist()
            for k, row in enumerate(rows):
                writer.writerow([*(values[start + k] for values in others.values()), *(f"{x:.9g}" for x in row)])
        text.detach()


def _write_parquet(path: Path, features: Any, collection: Any, names: list[str]) -> None:
    from bagwise._io.atomic import open_atomically
    from bagwise._utils.extras import require

    arrow = require("pyarrow", "io", "Writing Parquet files")
    parquet = require("pyarrow.parquet", "io", "Writing Parquet files")
    dense = _dense(features)
    columns = {**_other_columns(collection), **{name: dense[:, k] for k, name in enumerate(names)}}
    with open_atomically(path) as file:
        parquet.write_table(arrow.table(columns), file)


def _other_columns(collection: Any) -> dict[str, list[str]]:
    """Ids, labels and parts; bytes that are not UTF-8 as escapes, since these formats hold UTF-8 alone."""
    columns = {"id": list(collection.ids), "label": [_label(item) for item in collection]}
    if any(split is not None for split in collection.splits):
        columns["split"] = [split or "" for split in collection.splits]
    return {
        name: [value.encode("utf-8", "backslashreplace").decode("utf-8") for value in values]
        for name, values in columns.items()
    }


def _label(item: Any) -> str:
    if len(item.labels) > 1:
        raise BagwiseError(
            f"Item {item.id!r} has {len(item.labels)} labels; a table of features has one column of labels."
        )
    return item.labels[0] if item.labels else ""


def _dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows


_WRITERS: dict[str, Callable[[Path, Any, Any, list[str]], None]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
