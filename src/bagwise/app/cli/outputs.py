"""Output files of commands: their names, checks before any work, tables of features and clusters."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bagwise._io.atomic import check_writable, open_atomically, write_atomically
from bagwise._io.storage import Url
from bagwise._utils.extras import require
from bagwise._utils.text import encodable, quote_formula
from bagwise.errors import BagwiseError

__all__ = ["FitOutputs", "check_feature_file", "check_outputs", "check_page", "csv_lines"]
__all__ += ["name_of_source", "output_file", "prepare_folder", "write_cluster_labels", "write_clusters"]
__all__ += ["write_features"]

_ARCHIVE_ENDINGS = (".tar.gz", ".tar.bz2", ".tar.xz", ".tgz", ".tbz2", ".txz", ".tar", ".zip")
_CSV_ROWS = 256
_DEMO_NAME = "digits.zip"


def name_of_source(source: str | os.PathLike[str]) -> str:
    """Return the last part of a path, without the ending of a file.

    >>> name_of_source("data/photos.tar.gz"), name_of_source("data/photos/")
    ('photos', 'photos')
    """
    path = Path(source)
    name = path.name or path.resolve().name
    if name in ("", ".", ".."):
        name = path.resolve().name or "root"
    if path.is_dir():
        return name
    for end in _ARCHIVE_ENDINGS:
        if name.lower().endswith(end) and len(name) > len(end):
            return name[: -len(end)]
    return Path(name).stem


def output_file(out: Path | None, default: Path) -> Path:
    """Return the file to write: as given, the default name in a folder that was given, or the default.

    >>> output_file(Path("."), Path("data/photos.index")).name, output_file(None, Path("photos.index")).name
    ('photos.index', 'photos.index')
    """
    if out is None:
        return default
    return out / default.name if out.is_dir() else out


class FitOutputs:
    """Paths that a fit writes: a model, and beside it a report and an index."""

    def __init__(
        self,
        model: Path,
        page: Path | None = None,
        *,
        no_page: bool = False,
        no_index: bool = False,
        markdown: Path | None = None,
    ) -> None:
        if no_page and page is not None:
            raise BagwiseError("--page and --no-page exclude each other. Remove one.")
        base = model.with_suffix("") if model.suffix == ".bagwise" else model
        self.model = model
        self.report = None if no_page else page or base.with_name(f"{base.name}.report.html")
        self.index = None if no_index else base.with_name(f"{base.name}.index")
        self.markdown = markdown

    def all(self) -> list[Path]:
        """Return all paths."""
        return [path for path in (self.model, self.report, self.index, self.markdown) if path is not None]


def check_outputs(
    paths: Iterable[Path | None], force: bool, option: str = "--out", folder_allowed: bool = False
) -> None:
    """Raise if a path, given by `option`, exists already, unless `force`, or cannot be written."""
    for path in paths:
        if path is None:
            continue
        if os.path.lexists(path) and not force:
            raise BagwiseError(f"{path} exists already. Give --force to replace it, or another name with {option}.")
        if path.is_dir() and not folder_allowed:
            raise BagwiseError(f"{path} is a folder, which is not replaced. Give another name with {option}.")
        check_writable(path)


def check_page(path: Path | None, force: bool) -> None:
    """Raise if an HTML page cannot be written, or the libraries that it needs are missing."""
    require("jinja2", "app", "Writing a page (--page)")
    check_outputs([path], force, "--page")


def check_feature_file(path: Any, name: str) -> None:
    """Raise if the format of a feature file is unknown, or its library is missing."""
    end = os.path.splitext(os.fspath(path))[1].lower()
    if end in _WRITERS and not isinstance(path, Url):
        return
    if end != ".parquet" and not name.endswith("/"):
        raise BagwiseError(
            f"The name of the feature file must end in {', '.join(_WRITERS)} or .parquet, or in / for a folder of "
            f"parts; got {name}. To a URL, only Parquet is written."
        )
    require("pyarrow", "app", "Writing Parquet files")


def csv_lines(rows: Iterable[Iterable[Any]], raw: bool = False) -> bytes:
    """Return rows as CSV in which no text is a formula for programs for tables, unless `raw`; see `quote_formula`.

    Cells that are None are empty.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        writer.writerow(quote_formula(cell) if isinstance(cell, str) and not raw else cell for cell in row)
    return text.getvalue().encode("utf-8", "backslashreplace")


def write_features(path: Path, features: Any, collection: Any, names: Sequence[str], raw: bool = False) -> None:
    """Write a feature matrix with ids, labels and splits of items, in a format that `open_collection` reads.

    The ending of the path, ``.npz`` or ``.csv``, gives the format; Parquet is written while items are read, see
    `bagwise.app.model.write_features`. ``.npz`` keeps sparse features sparse.
    `raw` is for CSV, see `csv_lines`.
    """
    from bagwise.app.model.feature_sets import unique_names

    unique = unique_names(names)
    if path.suffix.lower() == ".csv":
        _write_csv(path, features, collection, unique, raw)
    else:
        _WRITERS[path.suffix.lower()](path, features, collection, unique)


def _write_npz(path: Path, features: Any, collection: Any, names: list[str]) -> None:
    from bagwise.app.model.feature_sets import single_labels
    from bagwise.datasets.writing import write_npz

    labels = single_labels(collection) if collection.classes else None
    splits = [split or "" for split in collection.splits] if any(collection.splits) else None
    write_npz(path, features, ids=collection.ids, feature_names=names, labels=labels, splits=splits)


def _write_csv(path: Path, features: Any, collection: Any, names: list[str], raw: bool = False) -> None:
    others = _other_columns(collection)
    with open_atomically(path) as file:
        file.write(csv_lines([[*others, *names]], raw))
        for start in range(0, len(collection), _CSV_ROWS):
            some = slice(start, start + _CSV_ROWS)
            about = zip(*(values[some] for values in others.values()), strict=True)
            numbers = ([f"{x:.9g}" for x in row] for row in _dense(features[some]).tolist())
            file.write(csv_lines(([*first, *row] for first, row in zip(about, numbers, strict=True)), raw))


def _other_columns(collection: Any) -> dict[str, list[str]]:
    """Return ids, labels and splits, with bytes that are not UTF-8 escaped."""
    from bagwise.app.model.feature_sets import single_labels

    columns = {"id": collection.ids, "label": single_labels(collection)}
    if any(split is not None for split in collection.splits):
        columns["split"] = [split or "" for split in collection.splits]
    return {name: list(map(encodable, values)) for name, values in columns.items()}


def _dense(rows: Any) -> Any:
    return rows.toarray() if hasattr(rows, "toarray") else rows


_WRITERS: dict[str, Callable[[Path, Any, Any, list[str]], None]] = {
    ".npz": _write_npz,
    ".csv": _write_csv,
}


def write_clusters(path: Path, clusters: Any, ids: Sequence[str], labels: Any, chosen: Any, raw: bool = False) -> None:
    """Write a CSV file with id, cluster, label, name of the cluster and certainty of chosen items.

    `chosen` are numbers of items; `labels` their labels, None for none; `raw` as in `csv_lines`.
    """
    rows = (
        [
            ids[i],
            int(clusters.labels[i]),
            labels[i] or "",
            clusters.name(int(clusters.labels[i])),
            f"{clusters.certainty[i]:.4f}",
        ]
        for i in chosen
    )
    write_atomically(path, csv_lines([["id", "cluster", "label", "name", "certainty"], *rows], raw))


def write_cluster_labels(path: Path, clusters: Any, ids: Sequence[str], chosen: Any, raw: bool = False) -> None:
    """Write the names of the clusters of chosen items as labels, in the form that ``--labels`` takes."""
    rows = ([ids[i], clusters.name(int(clusters.labels[i]))] for i in chosen)
    write_atomically(path, csv_lines([["filename", "label"], *rows], raw))


def prepare_folder(folder: Path) -> None:
    """Create the folder of the demo; raise if it has other files in it."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / _DEMO_NAME).exists())):
        raise BagwiseError(f"{folder} exists and is not from an earlier demo. Give another folder with --out.")
    folder.mkdir(parents=True, exist_ok=True)
