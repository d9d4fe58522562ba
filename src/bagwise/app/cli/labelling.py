"""The command that says which items to label next: suggest."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._io.atomic import write_atomically
from bagwise._utils.text import how_many
from bagwise.app.cli.options import USE, Force, Network, Raw, command, source_path
from bagwise.app.cli.outputs import check_outputs, csv_lines
from bagwise.app.cli.printing import printable
from bagwise.app.cli.session import Session
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["suggest"]

_LABELLED = ("csv", "label-studio", "prodigy")


@command(USE)
def suggest(
    session: Session,
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="Index, from bagwise fit, cluster or index.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Number of items.")] = 20,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="File of the labels so far, with columns id and label. Default: those that the items had when they "
            "were indexed.",
            metavar="FILE",
            parser=source_path,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the items to a file, for a tool to label them with.", metavar="FILE"),
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            "--format", help="Of the file: csv (id and an empty label), label-studio (JSON) or prodigy (JSON lines)."
        ),
    ] = "csv",
    source: Annotated[
        Path | None, typer.Option(help="Location of the items, for the file, if they were moved.", parser=source_path)
    ] = None,
    raw: Raw = False,
    force: Force = False,
    network: Network = None,
) -> None:
    """Name the items whose labels would help most.

    First the centre of each cluster, then items that are uncertain; the labels go into a file for --labels.
    """
    from bagwise.app import ItemIndex
    from bagwise.app.index.results_data import IndexedItems
    from bagwise.sources.annotations import annotations_of
    from bagwise.sources.limits import Limits

    if layout not in _LABELLED:
        raise unknown_name("--format", layout, _LABELLED)
    if out is not None:
        check_outputs([out], force)
    elif layout != "csv":
        raise BagwiseError(f"--format {layout} is for a file. Name it by --out FILE, or leave --format out.")
    opened = ItemIndex.load(index, network=network)
    known = None
    if labels is not None:
        read = annotations_of(labels, "label", opened.ids, str(index), Limits())
        for note in read.notes:
            session.note(note)
        known = {id: names[0] for id, names in (read.labels or {}).items() if names}
    suggested = opened.suggest(n, known)
    so_far = sum(label is not None for label in opened.labels) if known is None else len(known)
    session.say(
        f"{how_many(len(suggested), 'items')} to label; {how_many(so_far, 'items')} of {len(opened):,} have a label."
    )
    session.table(
        ["item", "may be", "or"],
        [[printable(one.id), printable(one.predicted or ""), printable(one.runner_up or "")] for one in suggested],
    )
    session.answer(index=str(index), n_labelled=so_far, suggestions=[one._asdict() for one in suggested])
    if out is not None:
        if layout == "csv":
            lines = csv_lines([["id", "label"], *([one.id, None] for one in suggested)], raw)
        else:
            content = _contents(IndexedItems(opened, source), layout)
            tasks = [json.dumps(content(one)) for one in suggested]
            # Label Studio imports an array, and takes JSON lines for a single item
            array = "[" + ",\n".join(tasks) + "]\n"
            lines = (array if layout == "label-studio" else "".join(f"{task}\n" for task in tasks)).encode()
        write_atomically(out, lines)
        session.wrote(out, "items to label")


def _contents(items: Any, layout: str) -> Callable[[Any], dict[str, Any]]:
    """Return a function from a suggestion to the object that a tool takes for the item."""
    from bagwise.app.modalities import MODALITIES

    modality = MODALITIES[items.index.model.modality]
    if not modality.readable and not modality.has_files:
        raise BagwiseError(f"Items of this index are {modality.name}, which other tools do not take: use --format csv.")

    def content(one: Any) -> dict[str, Any]:
        item = items.by_id.get(one.id)
        if item is None:
            raise BagwiseError(
                f"The item {one.id!r} is not where it was indexed ({items.path}). Say where the items are by --source, "
                "or write ids alone by --format csv."
            )
        shown = {"text": item.load()} if modality.readable else {"image": item.source}
        if layout == "prodigy":
            return shown | {"meta": {"id": one.id, "suggested": one.predicted}}
        return {"data": shown | {"id": one.id}}

    return content
