"""Commands that apply a model to items: transform, evaluate, cluster."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._io.storage import Url
from bagwise._utils.text import agree, how_many
from bagwise.cli.options import (
    PARTED_OPTIONS,
    READ_OPTIONS,
    Force,
    ModelPlace,
    Network,
    Raw,
    Scheduler,
    SourcePath,
    Workers,
    command,
    fit_options,
    source_path,
)
from bagwise.cli.outputs import (
    check_feature_file,
    check_outputs,
    check_page,
    name_of_source,
    write_clusters,
    write_features,
)
from bagwise.cli.printing import percent, printable, shortened
from bagwise.cli.session import Session
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["check_map_method", "cluster", "counted", "evaluate", "in_shards", "load_model", "tell_of", "transform"]
__all__ += ["with_map"]

_PANEL = "Use a model"
_MOST_CLASSES = 12
_MOST_PAIRS = 10
# Items up to which both ways to cluster are tried: spectral clustering takes time with the square of their number.
_MOST_HALVED = 2000
# Words of the median item from which on items are halved: halves of shorter ones are often empty, and clusters of items
# with an empty half would be found again whatever the items hold.
_FEWEST_HALVED = 8
_EXAMPLES = 3


@command(_PANEL, PARTED_OPTIONS)
def transform(
    session: Session,
    model: ModelPlace,
    source: SourcePath,
    out: Annotated[
        str,
        typer.Option(help="Feature file: .npz, .csv or .parquet; or a folder/ of parts. Parquet: also a URL."),
    ],
    histograms: Annotated[
        bool, typer.Option("--histograms", help="Parquet: sparse histograms of all words, not features of groups.")
    ] = False,
    raw: Raw = False,
    force: Force = False,
    network: Network = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    **options: Any,
) -> None:
    """Write the grouped features of items as a table with ids, labels and named columns."""
    from bagwise.distributed import connected

    target = source_path(out)
    check_feature_file(target, out)
    in_parts, parquet = out.endswith("/"), out.endswith(("/", ".parquet"))
    if histograms and not parquet:
        raise BagwiseError(f"--histograms are written as Parquet, to a .parquet file or a folder/; got {out}.")
    if out.endswith(".parquet") and (scheduler is not None or workers is not None):
        raise BagwiseError(
            f"Workers write a folder of parts, which is read as one table; got --out {out}. Give --out "
            f"{out.removesuffix('.parquet')}/"
        )
    if not isinstance(target, Url) and not in_parts:
        check_outputs([target], force)
    loaded, chosen = load_model(model, network), fit_options(options)
    with connected(scheduler, workers) as client:
        if parquet:
            written = _write_parquet(session, loaded, source, target, (histograms, force), chosen, client)
            n_items, n_features = written.n_items, written.n_features
        else:
            collection, counts = counted(session, loaded, source, chosen, client)
            features = loaded.group(counts)
            write_features(target, features, collection, loaded.feature_names().tolist(), raw)
            n_items, n_features = features.shape
    session.say(f"{how_many(n_items, 'items')}, {how_many(n_features, 'words' if histograms else 'features')}")
    session.answer(n_items=n_items, n_features=n_features)
    session.wrote(target, "features")


def _write_parquet(
    session: Session, model: Any, source: Any, out: Any, how: tuple[bool, bool], options: Any, client: Any
) -> Any:
    """Write features while items are read; parts of a folder that an interrupted run has written stay."""
    from bagwise.distributed.executors import executor_of
    from bagwise.model.feature_sets import write_features as write_while_reading
    from bagwise.training import open_items

    session.resumes = True if not os.fspath(out).endswith(".parquet") else None
    executor = None if client is None else executor_of(client, session.progress)
    collection = open_items(model, source, options, executor)
    given = {name: getattr(options, name) for name in ("on_error", "n_jobs", "cache")}
    if options.partition is not None:
        given["rows_per_part"] = options.partition
    given |= dict(zip(("histograms", "force"), how, strict=True))
    written = write_while_reading(model, collection, out, **given, client=client, progress=session.progress)
    skipped = (*collection.skipped, *written.skipped)
    tell_of(session, collection, skipped, len(collection) + len(collection.skipped))
    if written.n_resumed:
        session.note(f"Parts of an earlier run that were kept: {written.n_resumed:,}.")
    return written


@command(_PANEL, PARTED_OPTIONS)
def evaluate(
    session: Session,
    model: ModelPlace,
    source: SourcePath,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report.", metavar="PAGE")] = None,
    force: Force = False,
    network: Network = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    **options: Any,
) -> None:
    """Classify labelled items; print the error at each number of groups and the confusion matrix."""
    from bagwise.distributed import connected
    from bagwise.training import evaluate_model, evaluation_report_data

    if report is not None:
        check_page(report, force, "--report")
    loaded, chosen = load_model(model, network), fit_options(options)
    with connected(scheduler, workers) as client:
        found = evaluate_model(loaded, source, client=client, progress=session.progress, **chosen.to_dict())
    tell_of(session, found.collection, found.skipped, len(found.collection) + found.n_skipped)
    if found.n_skipped > len(found.skipped):
        n = found.n_skipped - len(found.skipped)
        session.note(f"{how_many(n, 'items')} without a label {agree(n, 'was', 'were')} not used.")
    about = found.about_seen(loaded)
    if about is not None:
        session.say(printable(about))
        session.say()
    session.answer(training_items=None if found.seen is None else found.seen.to_dict())
    session.say(f"{how_many(len(found.collection), loaded.modality)} of {len(found.classes)} classes")
    here = ["<- this model" if size == loaded.n_groups else "" for size in found.sizes]
    session.table(["groups", "error", ""], zip(found.sizes, map(percent, found.errors), here, strict=True))
    session.answer(
        n_items=len(found.collection),
        n_skipped=found.n_skipped,
        classes=list(found.classes),
        sizes=list(found.sizes),
        errors=list(found.errors),
    )
    if loaded.n_groups in found.sizes:
        matrix = found.confusion(loaded.n_groups)
        session.answer(confusion=matrix.tolist())
        _print_confusion(session, found.classes, matrix, loaded.n_groups)
    if report is not None:
        from bagwise.report import write_report

        data = evaluation_report_data(loaded, found, title=f"{name_of_source(model)} on {name_of_source(source)}")
        session.wrote(write_report(data, report), "report")


@command(_PANEL, READ_OPTIONS)
def cluster(
    session: Session,
    model: ModelPlace,
    source: SourcePath,
    clusters: Annotated[int, typer.Option("--clusters", "-c", min=1, help="Number of clusters.")],
    method: Annotated[str, typer.Option(help="kmeans, spectral, or auto.")] = "auto",
    out: Annotated[Path | None, typer.Option(help="CSV file with id, cluster and label.")] = None,
    raw: Raw = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")] = 0,
    network: Network = None,
    force: Force = False,
    **options: Any,
) -> None:
    """Cluster items by their features; with labels, print how well the clusters agree with them."""
    from bagwise.clustering import METHODS

    if method not in ("auto", *METHODS):
        raise unknown_name("--method", method, ("auto", *METHODS))
    check_outputs([out], force)
    loaded = load_model(model, network)
    collection, histograms = counted(session, loaded, source, fit_options(options))
    features = loaded.group(histograms)
    if clusters > features.shape[0]:
        raise BagwiseError(f"--clusters must be at most the number of items, {features.shape[0]}; got {clusters}.")
    makers = _clusterers(clusters, seed)
    if method == "auto":
        method = _steadier_method(loaded, histograms, makers, seed)
        session.say(f"Clusters by {method}.")
    session.answer(method=method)
    labels = _by_size(makers[method]().fit(features).labels_)
    ids, members = collection.ids, [(labels == k).nonzero()[0].tolist() for k in range(labels.max() + 1)]
    some = [", ".join(printable(ids[i]) for i in own[:_EXAMPLES]) for own in members]
    rows = [[k, len(own), shortened(some[k], 60)] for k, own in enumerate(members)]
    session.table(["cluster", "items", "examples"], rows)
    session.answer(clusters=[{"id": item.id, "cluster": int(k)} for item, k in zip(collection, labels, strict=True)])
    if all(len(item.labels) == 1 for item in collection):
        from bagwise.metrics import clustering_report

        scores = clustering_report(features, labels, collection.labels)
        known = {name: value for name, value in scores.items() if math.isfinite(value)}
        session.say(", ".join(f"{name} {value:.3g}" for name, value in known.items()))
        session.answer(scores=known)
    if out is not None:
        write_clusters(out, labels, collection, raw)
        session.wrote(out, "clusters")


def _clusterers(n_clusters: int, random_state: int) -> dict[str, Callable[[], Any]]:
    """Make clusterers of features, by name."""
    from sklearn.cluster import KMeans

    from bagwise.clustering import SpectralClusterer

    return {
        "kmeans": lambda: KMeans(n_clusters, n_init=10, random_state=random_state),
        "spectral": lambda: SpectralClusterer(n_clusters, random_state=random_state, n_jobs=-1),
    }


def _steadier_method(model: Any, histograms: Any, clusterers: dict[str, Callable[[], Any]], random_state: int) -> str:
    """The method whose clusters of one half of the words of each item tell more of those of the other half.

    k-means where words cannot be divided, because they are not counted in whole numbers or most items have only a few,
    and for many items.
    """
    import numpy as np
    import scipy.sparse as sp

    from bagwise.clustering import steadier

    counts = sp.csr_array(histograms)
    whole = counts.data.astype(np.int64)
    if counts.shape[0] > _MOST_HALVED or (counts.data != whole).any() or (whole < 0).any():
        return "kmeans"
    if np.median(counts.sum(axis=1)) < _FEWEST_HALVED:
        return "kmeans"

    def halves(random: np.random.RandomState) -> list[Any]:
        one = random.binomial(whole, 0.5)
        parts = [sp.csr_array((part, counts.indices, counts.indptr), shape=counts.shape) for part in (one, whole - one)]
        return [model.group(part) for part in parts]

    return steadier(halves, clusterers, random_state)


def _by_size(labels: Any) -> Any:
    """Number clusters from 0 on, the largest first."""
    import numpy as np

    order = np.argsort(-np.bincount(labels), kind="stable")
    return np.argsort(order)[labels]


def load_model(path: Path, network: Path | None = None) -> Any:
    """Load a model, or that of an index, with the network that it names; raise if the path does not exist."""
    from bagwise._io.tensors import kind_of
    from bagwise.model import Model
    from bagwise.runtime import KIND

    if isinstance(path, Url):
        return Model.load(path, network=network)
    if not path.exists():
        raise BagwiseError(f"{path} does not exist. Create a model with: bagwise fit SOURCE")
    if kind_of(path) != KIND:
        from bagwise.model.files import is_item_index, is_sharded

        if is_item_index(path) or is_sharded(path):
            from bagwise.training.shards import open_index

            return open_index(path, network=network).model
    return Model.load(path, network=network)


def in_shards(index: Any) -> str:
    """Say of how many files an index in shards is."""
    return "in 1 shard" if len(index.shards) == 1 else f"in {len(index.shards):,} shards"


def counted(session: Session, model: Any, source: Any, options: Any, client: Any = None) -> tuple[Any, Any]:
    """Open a source and return its items and histograms; note how many items could not be read."""
    from bagwise.distributed.executors import executor_of
    from bagwise.training import count_words, open_items

    executor = None if client is None else executor_of(client, session.progress)
    collection = open_items(model, source, options, executor)
    found = count_words(model, collection, options, progress=session.progress, client=client)
    skipped = (*collection.skipped, *found.skipped)
    tell_of(session, collection, skipped, len(collection) + len(collection.skipped))
    if found.skipped:
        collection = collection[found.kept]
    session.progress.clear()
    return collection, found.matrix


def check_map_method(method: str) -> None:
    """Raise an error unless `with_map` accepts the method."""
    from bagwise.training.item_map import MAP_METHODS

    if method not in (*MAP_METHODS, "none"):
        raise unknown_name("--map", method, (*MAP_METHODS, "none"))


def with_map(session: Session, index: Any, method: str) -> Any:
    """Return an index with a map of its items, unless the method is none."""
    made = index if method == "none" else index.with_map(method, progress=session.progress)
    session.progress.clear()
    return made


def tell_of(session: Session, collection: Any, skipped: Any, n_items: int) -> None:
    """Print what is to be said about items that were read, and tell of those that could not be."""
    session.progress.clear()
    for note in collection.notes:
        session.note(note)
    session.skipped(skipped, n_items)


def _print_confusion(session: Session, classes: tuple[str, ...], matrix: Any, size: int) -> None:
    session.say()
    if len(classes) <= _MOST_CLASSES:
        session.say(
            f"Confusion matrix with {how_many(size, 'groups')}: rows are true classes, columns predicted classes"
        )
        names = [shortened(printable(name), 12) for name in classes]
        session.table(["", *names], [[name, *row] for name, row in zip(names, matrix.tolist(), strict=True)])
        return
    from bagwise.report.data import ConfusionMatrix
    from bagwise.report.sentences import most_confused

    worst = most_confused(ConfusionMatrix(classes, matrix), _MOST_PAIRS)
    session.say(f"Most frequent confusions with {how_many(size, 'groups')}")
    rows = [[pair.times, pair.true, pair.predicted] for pair in worst]
    session.table(["items", "true class", "predicted class"], rows)
