"""The command that writes where the items of a source are: list."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from bagwise._io.storage import Url
from bagwise._utils.text import how_many, shortened
from bagwise.app.cli.options import (
    OTHERS,
    READ_OPTIONS,
    Force,
    Raw,
    Scheduler,
    SourcePath,
    Workers,
    command,
    fit_options,
    source_path,
)
from bagwise.app.cli.outputs import check_outputs
from bagwise.app.cli.printing import printable
from bagwise.app.cli.session import Session
from bagwise.app.cli.using import tell_of

__all__ = ["list"]

_MOST_CLASSES = 20


@command(OTHERS, READ_OPTIONS)
def list(
    session: Session,
    source: SourcePath,
    out: Annotated[
        str | None, typer.Option(help="Manifest: .csv, .tsv, .jsonl or .parquet; a file or a URL.", metavar="FILE")
    ] = None,
    raw: Raw = False,
    force: Force = False,
    scheduler: Scheduler = None,
    workers: Workers = None,
    **options: Any,
) -> None:
    """List the items of a source, or write a manifest.

    A manifest is a source that need not be listed again.
    """
    from bagwise.app.training.items import open_source
    from bagwise.distributed import connected
    from bagwise.distributed.executors import executor_of
    from bagwise.sources import write_manifest

    target = None if out is None else source_path(out)
    if target is not None and not isinstance(target, Url):
        check_outputs([target], force)
    with connected(scheduler, workers) as client:
        executor = None if client is None else executor_of(client, session.progress)
        collection = open_source(source, fit_options(options), executor)
    tell_of(session, collection)
    by_class = Counter(collection.label_sets)
    splits = sorted({split for split in collection.splits if split is not None})
    counts = Counter(zip(collection.label_sets, collection.splits, strict=True))
    rows = []
    for labels, n in by_class.most_common(_MOST_CLASSES):
        name = shortened(printable(", ".join(labels)), 40) or "(no label)"
        rows.append([name, n, *(counts[labels, split] for split in splits)])
    classes = f" of {how_many(len(by_class), 'classes')}" if any(by_class) else ""
    session.say(f"{how_many(len(collection), collection.modality)}{classes}")
    session.table(["class", "items", *splits], rows)
    if len(by_class) > _MOST_CLASSES:
        session.say(f"… and {len(by_class) - _MOST_CLASSES:,} other classes")
    told = {", ".join(labels): n for labels, n in by_class.items()}
    session.answer(n_items=len(collection), modality=collection.modality, classes=told, splits=splits)
    if target is not None:
        write_manifest(collection, target, raw=raw)
        session.wrote(target, "manifest")
