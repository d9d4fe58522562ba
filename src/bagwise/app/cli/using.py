"""Commands that apply a model to items: transform, evaluate."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._io.storage import Url
from bagwise._utils.memory import readable_size
from bagwise._utils.text import agree, how_many, percent
from bagwise.app.cli.options import (
    PARTED_OPTIONS,
    USE,
    Force,
    ModelPlace,
    Network,
    Page,
    Raw,
    Scheduler,
    SourcePath,
    Workers,
    command,
    fit_options,
    source_path,
)
from bagwise.app.cli.outputs import (
    check_feature_file,
    check_outputs,
    check_page,
    name_of_source,
    write_features,
)
from bagwise.app.cli.printing import command_line, printable
from bagwise.app.cli.session import Session
from bagwise.errors import BagwiseError, unknown_name
from bagwise.sources.encodings import decode_text
from bagwise.sources.limits import as_limits

__all__ = ["a_kind", "check_items", "check_map_method", "check_order", "counted", "evaluate", "held_by", "load_model"]
__all__ += ["STANDARD_STREAM", "tell_of", "transform", "with_map", "with_standard_input"]

STANDARD_STREAM = Path("-")


@command(USE, PARTED_OPTIONS)
def transform(
    session: Session,
    model: ModelPlace,
    source: SourcePath,
    out: Annotated[
        str, typer.Option(help="Feature file: .npz, .csv or .parquet; or a folder/ of parts. Parquet: also a URL.")
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
    """Write the features of items as a table.

    It has ids, labels and a named column for each group.
    """
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
    loaded, chosen = load_model(model, network, [source]), fit_options(options)
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
    """Write features while items are read."""
    from bagwise.app import open_items
    from bagwise.app.model.feature_sets import write_features as write_while_reading
    from bagwise.distributed.executors import executor_of

    executor = None if client is None else executor_of(client, session.progress)
    collection = open_items(model, source, options, executor)
    extra: dict[str, Any] = {"n_jobs": options.n_jobs, "cache": options.cache, "on_error": options.on_error or "skip"}
    if options.partition is not None:
        extra["rows_per_part"] = options.partition
    extra |= dict(zip(("histograms", "force"), how, strict=True))
    written = write_while_reading(model, collection, out, **extra, client=client, progress=session.progress)
    tell_of(session, collection, written.skipped)
    return written


@command(USE, PARTED_OPTIONS)
def evaluate(
    session: Session,
    model: ModelPlace,
    source: SourcePath,
    page: Page = None,
    force: Force = False,
    network: Network = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    **options: Any,
) -> None:
    """Measure the error of a model on labelled items.

    Prints the error at each number of groups, the confusion matrix, and precision, recall and F1 of each class.
    """
    from bagwise.app import evaluate_model, evaluation_report_data
    from bagwise.app.cli.measuring import measures_of, say_confusion, say_measures
    from bagwise.app.report.data import ConfusionMatrix
    from bagwise.distributed import connected

    if page is not None:
        check_page(page, force)
    loaded, chosen = load_model(model, network, [source]), fit_options(options)
    with connected(scheduler, workers) as client:
        evaluation = evaluate_model(loaded, source, client=client, progress=session.progress, **chosen.to_dict())
    tell_of(session, evaluation.collection, evaluation.skipped, len(evaluation.collection) + evaluation.n_skipped)
    if evaluation.n_skipped > len(evaluation.skipped):
        n = evaluation.n_skipped - len(evaluation.skipped)
        session.note(f"{how_many(n, 'items')} without a label {agree(n, 'was', 'were')} not used.")
    about = evaluation.about_seen(loaded)
    if about is not None:
        session.say(printable(about))
        session.say()
    session.answer(training_items=None if evaluation.seen is None else evaluation.seen.to_dict())
    session.say(f"{how_many(len(evaluation.collection), loaded.modality)} of {len(evaluation.classes)} classes")
    here = ["<- this model" if size == loaded.n_groups else "" for size in evaluation.sizes]
    session.table(["groups", "error", ""], zip(evaluation.sizes, map(percent, evaluation.errors), here, strict=True))
    session.answer(
        n_items=len(evaluation.collection),
        n_skipped=evaluation.n_skipped,
        classes=list(evaluation.classes),
        sizes=list(evaluation.sizes),
        errors=list(evaluation.errors),
    )
    if loaded.n_groups in evaluation.sizes:
        matrix = ConfusionMatrix(evaluation.classes, evaluation.confusion(loaded.n_groups))
        session.answer(confusion=matrix.counts.tolist(), by_class=measures_of(matrix, loaded.n_groups))
        session.say()
        say_confusion(session, matrix, loaded.n_groups)
        session.say()
        say_measures(session, matrix)
    if page is not None:
        from bagwise.app.report import write_report

        data = evaluation_report_data(loaded, evaluation, title=f"{name_of_source(model)} on {name_of_source(source)}")
        session.wrote(write_report(data, page), "report")


def load_model(path: Path, network: Path | None = None, sources: Sequence[Any] = ()) -> Any:
    """Load a model, or that of an index, with the network that it names; raise if the path does not exist.

    `sources` are the arguments behind it: an error says if it is among them.
    """
    from bagwise.app.model import Model

    if isinstance(path, Url):
        return Model.load(path, network=network)
    if not path.exists():
        raise BagwiseError(f"{path} does not exist. Create a model with: bagwise fit SOURCE")
    if held_by(path) == "index":
        from bagwise.app import ItemIndex

        return ItemIndex.load(path, network=network).model
    check_order(path, sources, ("model", "index"))
    return Model.load(path, network=network)


def held_by(path: Any) -> str | None:
    """Return "model" or "index" if a place holds one, by what is in it; for an address, by its ending."""
    from bagwise._io.tensors import kind_of
    from bagwise.app.model.files import is_item_index
    from bagwise.runtime import KIND

    if isinstance(path, Url):
        return "model" if str(path).endswith(".bagwise") else None
    if kind_of(path) == KIND:
        return "model"
    return "index" if is_item_index(path) else None


def a_kind(kind: str) -> str:
    """Return "a model" or "an index"."""
    return {"model": "a model", "index": "an index"}[kind]


def check_order(first: Path, others: Sequence[Any], accepted: Sequence[str]) -> None:
    """Raise an error if what is accepted as the first argument is another one, which is rather there by mistake."""
    swapped = next((other for other in others if held_by(other) in accepted), None)
    if held_by(first) is None and swapped is not None:
        raise BagwiseError(
            f"{first} is no {' or '.join(accepted)}, but {swapped} is one. Were the arguments swapped? {swapped} comes "
            f"first, then {first}."
        )


def check_items(source: Any) -> None:
    """Raise an error if a source of items is a model or an index."""
    kind = held_by(source)
    if kind is not None:
        use = command_line("predict", source, "SOURCE")
        raise BagwiseError(
            f"{source} is {a_kind(kind)}, from which nothing is learned. Give the folder or the file of the items. To "
            f"use the model: {use}"
        )


def with_standard_input(
    model: Any, paths: Sequence[Path], texts: Sequence[str], lines: bool, options: Any
) -> tuple[list[Path], list[str]]:
    """Return sources but ``-``, and texts with what standard input has: one text, or one in each of its lines."""
    from bagwise.app.modalities import MODALITIES

    others = [path for path in paths if path != STANDARD_STREAM]
    if len(others) == len(paths):
        if lines:
            raise BagwiseError("--lines is for standard input. Give - as the source, or leave out --lines.")
        return others, list(texts)
    if not MODALITIES[model.modality].readable:
        raise BagwiseError(f"- reads a text from standard input, but this model takes {model.modality}. Give a file.")
    limits = as_limits(options.limits)
    content = sys.stdin.buffer.read(limits.text_bytes + 1)
    limits.check("text_bytes", len(content), f"standard input has more than {readable_size(limits.text_bytes)}")
    try:
        read = decode_text(content, options.encoding or model.options.get("encoding"))
    except BagwiseError as error:
        raise BagwiseError(f"Standard input cannot be read: {error}") from error
    if not read.strip():
        raise BagwiseError("Standard input has no text.")
    # as other programs count lines, so that there is an answer for each
    added = [line.removesuffix("\r") for line in read.removesuffix("\n").split("\n")] if lines else [read.strip("\r\n")]
    return others, [*texts, *added]


def counted(session: Session, model: Any, source: Any, options: Any, client: Any = None) -> tuple[Any, Any]:
    """Open a source and return its items and histograms; note how many items could not be read."""
    from bagwise.app import count_words, open_items
    from bagwise.distributed.executors import executor_of

    executor = None if client is None else executor_of(client, session.progress)
    collection = open_items(model, source, options, executor)
    counts = count_words(model, collection, options, progress=session.progress, client=client)
    tell_of(session, collection, counts.skipped)
    if counts.skipped:
        collection = collection[counts.kept]
    session.progress.clear()
    return collection, counts.matrix


def check_map_method(method: str) -> None:
    """Raise an error unless `with_map` accepts the method."""
    from bagwise.app.index.item_map import MAP_METHODS

    if method not in (*MAP_METHODS, "none"):
        raise unknown_name("--map", method, (*MAP_METHODS, "none"))


def with_map(session: Session, index: Any, method: str) -> Any:
    """Return an index with a map of its items, unless the method is none."""
    made = index if method == "none" else index.with_map(method, progress=session.progress)
    session.progress.clear()
    return made


def tell_of(session: Session, collection: Any, skipped: Any = (), n_items: int | None = None) -> None:
    """Print what is to be said about a source: its notes, and items that could not be listed or, `skipped`, be read.

    `n_items` is the number of all items, if the collection has only those that could be read.
    """
    session.progress.clear()
    for note in collection.notes:
        session.note(note)
    if n_items is None:
        skipped, n_items = (*collection.skipped, *skipped), len(collection) + len(collection.skipped)
    session.skipped(skipped, n_items)
