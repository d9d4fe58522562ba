"""An index whose items are read by the workers of a cluster: they build parts of it, and this process joins them.

Each part has the features of the items of a partition, their ids, labels and answers. Blocks that are full are mapped
from temporary files until the index is written, so that this process holds few of them at a time.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bagwise._io.storage import Url, absolute, as_place
from bagwise._utils.text import agree
from bagwise.app.index.index_changes import likely_classes
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.modalities.vectorizers import Part, Progress
from bagwise.app.model.model import Model
from bagwise.app.options import FitOptions
from bagwise.app.training.folds import FoldModels
from bagwise.app.training.item_answers import ItemAnswers
from bagwise.app.training.items import first_labels, open_items, reading_of, with_sheet
from bagwise.app.training.parts import transform_rows
from bagwise.app.training.seen import SeenItems
from bagwise.distributed.executors import Executor, executor_of
from bagwise.retrieval.bag_index import BagIndex
from bagwise.retrieval.blends import ClassBlend
from bagwise.sources.collection import Collection
from bagwise.sources.items import SkippedItemsWarning

if TYPE_CHECKING:
    from bagwise.app.training.evaluate import Evaluation
    from bagwise.app.training.fit import Fit

__all__ = ["build_index", "index_of_parted_fit"]


def build_index(
    model: Model,
    source: Any,
    path: str | os.PathLike[str],
    *,
    by: str = "auto",
    metric: str | None = None,
    client: Any = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> ItemIndex:
    """Index a collection partition by partition, and write the index to a file.

    Parameters
    ----------
    model : Model
    source : Collection or path
    path : path
        Where to write; a file that is there is replaced.
    by, metric
        See `ItemIndex.build`.
    client : distributed.Client, default=None
        Whose workers read the items and compute what they are compared by.
    progress : callable, default=None
        See `fit_model`.
    storage_options : mapping, default=None
        For URLs, see `bagwise.open_collection`.
    **options
        Parameters of `FitOptions`: those that say how a source is read, `on_error`, `cache` and `partition` are used.

    Returns
    -------
    index : ItemIndex
        As loaded from the file. It is the same for any partition: that of `ItemIndex.build`.

    Warns
    -----
    SkippedItemsWarning
        If items could not be read.

    Examples
    --------
    >>> import tempfile
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import build_index, fit_model
    >>> X = np.array([[4, 1, 0], [1, 0, 5], [0, 1, 6]])
    >>> rows = Collection.from_matrix(X, list("abc"), [("x",), ("y",), ("y",)])
    >>> model = fit_model(rows, n_groups=2, folds=0)
    >>> index = build_index(model, rows, tempfile.mkdtemp() + "/rows.index", partition=2)
    >>> index.ids, index.search([[0, 1, 6]], k=1)[0][0].id
    (('a', 'b', 'c'), 'c')
    """
    source, chosen = with_sheet(source, FitOptions(**options, storage_options=storage_options).for_source(source))
    executor = executor_of(client, progress)
    collection = open_items(model, source, chosen, executor)
    counted = transform_rows(model.vectorizer, collection, chosen, executor)
    skipped = [*counted.skipped, *([] if isinstance(source, Collection) else collection.skipped)]
    kept, ends = collection[counted.kept], np.cumsum(counted.n_rows)[:-1]
    ids, labels = (np.split(np.array(some, dtype=object), ends) for some in (kept.ids, first_labels(kept)))
    names = [(some.tolist(), named.tolist()) for some, named in zip(ids, labels, strict=True)]
    with tempfile.TemporaryDirectory(prefix="bagwise-") as folder:
        parts = _parts(model, executor, counted.rows, names, by, metric)
        _joined(model, parts, Path(folder), collection, chosen).save(path)
    if skipped:
        n_items = len(collection) + len(collection.skipped)
        told = f"{len(skipped)} of {n_items} items could not be read and "
        told += f"{agree(len(skipped), 'was', 'were')} skipped. {skipped[0].id}: "
        warnings.warn(SkippedItemsWarning(f"{told}{skipped[0].reason}", skipped), stacklevel=2)
    return ItemIndex.load(path)


def index_of_parted_fit(
    fit: Fit, evaluation: Evaluation | None, path: str | os.PathLike[str], options: FitOptions
) -> ItemIndex:
    """Write the index of all items of a fit whose histograms did not fit into one process, and of those evaluated.

    Answers of cross-validation are those of the sample that it was made on.
    """
    rows, model = fit.data.rows, fit.model
    assert rows is not None
    ends = np.cumsum(rows.counted.n_rows)[:-1]
    ids, labels = (np.split(np.array(some, dtype=object), ends) for some in (rows.ids, rows.labels))
    names = [(some.tolist(), named.tolist()) for some, named in zip(ids, labels, strict=True)]
    parts = _parts(model, rows.executor, rows.counted.rows, names, "auto", None, training=True)
    if evaluation is not None:
        tested = ItemIndex.build(model, evaluation.collection, evaluation.histograms, seen=evaluation.seen)
        parts = chain(parts, [tested])
    with tempfile.TemporaryDirectory(prefix="bagwise-") as folder:
        index = _joined(model, parts, Path(folder), fit.data.collection, options)
        if fit.held_out_top is not None and index.answers is not None:
            number = {id: k for k, id in enumerate(rows.ids)}
            sampled = np.array([number[id] for id in fit.data.collection.ids], np.intp)
            folds = FoldModels.of([replace(one, test=sampled[one.test]) for one in fit.folds], len(index))
            answers = index.answers.with_held_out(sampled, fit.held_out_top, model)
            index = replace(index, answers=answers, folds=folds)
        index.save(path)
    return ItemIndex.load(path)


def _parts(
    model: Model,
    executor: Executor,
    rows: Sequence[Any],
    names: Sequence[tuple[list[str], list[str | None]]],
    by: str,
    metric: str | None,
    training: bool = False,
) -> Iterator[ItemIndex]:
    """Build an index of each partition where its histograms are, and yield one after the other.

    `names` are the ids and the labels of the items of each; `training`: whether the model was learned from them.
    """
    n, sizes = len(rows), [len(ids) for ids, _ in names]
    build, shared = partial(_build, by, metric, training, executor.keep), executor.share(model)
    built = executor.map(build, [shared] * n, rows, names, step="Building the index", sizes=sizes)
    for handle in built:
        for part in executor.gather([handle])[0]:
            yield replace(part, model=model)


def _build(
    by: str, metric: str | None, training: bool, keep: Any, model: Model, part: Part, names: tuple[list[str], list[Any]]
) -> Any:
    """Index a partition; the model is left out of what is returned."""
    ids, labels = names
    if not ids:
        return keep([])
    ((matrix, _),) = part.content
    collection = Collection.from_matrix(matrix, ids, [() if label is None else (label,) for label in labels])
    seen = SeenItems.training(ids) if training else None
    index: Any = ItemIndex.build(model, collection, matrix, by=by, metric=metric, seen=seen)
    return keep([replace(index, model=None)])


def _joined(
    model: Model, parts: Iterator[ItemIndex], folder: Path, collection: Collection, options: FitOptions
) -> ItemIndex:
    """Join the indexes of partitions; blocks that are full are moved to files of `folder`."""
    features, without_features, classes = None, [], []
    for part in parts:
        features = BagIndex(part.metric) if features is None else features
        features.append(part.index)
        features.spill(folder)
        classes += [likely_classes(part)] if isinstance(part.blend, ClassBlend) else []
        without_features.append(replace(part, index=BagIndex(part.metric)))
    assert features is not None
    first = without_features[0]
    blend, answers = first.blend, [one.answers for one in without_features if one.answers is not None]
    if isinstance(blend, ClassBlend):
        certainty = np.concatenate(
            [one.blend.certainty for one in without_features if isinstance(one.blend, ClassBlend)]
        )
        blend = ClassBlend.from_items(certainty, np.concatenate(classes), len(model.classes), blend.settings)
    location = as_place(collection.source)
    there = isinstance(location, Url) or os.path.exists(location)
    return replace(
        first,
        index=features,
        ids=tuple(chain.from_iterable(one.ids for one in without_features)),
        labels=tuple(chain.from_iterable(one.labels for one in without_features)),
        source=absolute(location) if there else "",
        reading=reading_of(options),
        blend=blend,
        answers=ItemAnswers.joined(answers) if answers else None,
    )
