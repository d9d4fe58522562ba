"""The items of an index on their map, as a Parquet file for Embedding Atlas and other programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bagwise._io.atomic import open_atomically
from bagwise._utils.extras import require
from bagwise._utils.text import encodable
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.modalities import MODALITIES
from bagwise.app.options import FitOptions
from bagwise.app.training.items import open_items
from bagwise.errors import BagwiseError, argument
from bagwise.sources.archives import is_archive

__all__ = ["write_atlas"]


def write_atlas(index: ItemIndex, path: str | os.PathLike[str], *, source: Any = None, texts: bool = True) -> Path:
    """Write the items of an index with their places on its map. Needs ``bagwise[app]``.

    Columns: ``id``; ``x`` and ``y``, not given for items without words; ``cluster``; ``label``; ``prediction``, if the
    model has a classifier; ``text`` of texts, ``path`` of images and videos. Show it by
    ``embedding-atlas FILE --x x --y y --text text``.

    Parameters
    ----------
    index : ItemIndex
        With a map, see `ItemIndex.with_map`.
    path : path
        Of the file, which ends in ``.parquet``.
    source : Collection, path or table in memory, default=None
        Where the texts are; None: where they were when they were indexed.
    texts : bool, default=True
        False: leave the texts out; their source is not opened.

    Returns
    -------
    path : Path
    """
    if Path(path).suffix.lower() != ".parquet":
        raise BagwiseError(f"The name of the file must end in .parquet; got {os.fspath(path)}.")
    if index.map is None:
        raise BagwiseError("The index has no map. Make one: index.with_map(), or bagwise index --map spectral.")
    arrow, parquet = (require(name, "app", "Writing Parquet files") for name in ("pyarrow", "pyarrow.parquet"))
    on_map = index.map.clusters >= 0
    columns: dict[str, Any] = {"id": arrow.array(map(encodable, index.ids), arrow.string())}
    for k, name in enumerate(("x", "y")):
        columns[name] = arrow.array(index.map.points[:, k], arrow.float32(), mask=~on_map)
    columns["cluster"] = arrow.array(index.map.clusters, arrow.int16(), mask=~on_map)
    columns["label"] = arrow.array(index.labels, arrow.string())
    answers = index.answers
    size = None if answers is None else answers.nearest(index.model.n_groups)
    if answers is not None and size is not None:
        classes = index.model.classes
        predicted = [classes[k] for k in answers.top.at(size).predicted.tolist()]
        columns["prediction"] = arrow.array(predicted, arrow.string())
    if MODALITIES[index.model.modality].readable and texts:
        columns["text"] = arrow.array(_texts(index, source), arrow.string())
    elif MODALITIES[index.model.modality].has_files and index.source:
        whole = f"{index.source}!" if is_archive(index.source) else f"{index.source.rstrip('/')}/"
        columns["path"] = arrow.array([encodable(f"{whole}{id}") for id in index.ids], arrow.string())
    with open_atomically(path, private=True) as file:
        parquet.write_table(arrow.table(columns), file)
    return Path(path)


def _texts(index: ItemIndex, source: Any) -> list[str]:
    """Read the texts of the items, where they are or were."""
    source = index.source if source is None else source
    advice = f"Say where they are by {argument('source')}, or leave them out by {argument('texts', False)}."
    if isinstance(source, str) and not source:
        raise BagwiseError(f"The index does not know where its texts are. {advice}")
    try:
        items = {item.id: item for item in open_items(index.model, source, FitOptions.from_mapping(index.reading))}
    except BagwiseError as error:
        raise BagwiseError(f"The texts of the index cannot be read: {str(error).rstrip('.')}. {advice}") from error
    missing = next((id for id in index.ids if id not in items), None)
    if missing is not None:
        raise BagwiseError(f"{missing!r} of the index is not among the texts of {source}. {advice}")
    return [encodable(items[id].load()) for id in index.ids]
