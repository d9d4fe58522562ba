"""Commands of search: index, search."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._utils.text import how_many
from bagwise.cli.options import READ_OPTIONS, command, fit_options
from bagwise.cli.outputs import check_outputs, check_report, name_of_source
from bagwise.cli.printing import printable, shortened
from bagwise.cli.session import Session
from bagwise.cli.using import Force, ModelPath, SourcePath, counted, load_model
from bagwise.errors import BagwiseError

__all__ = ["index", "search"]

_PANEL = "Search"
_SHOWN_QUERY = 60


@command(_PANEL, READ_OPTIONS)
def index(
    session: Session,
    model: ModelPath,
    source: SourcePath,
    out: Annotated[Path | None, typer.Option(help="File of the index. Default: NAME.index.")] = None,
    metric: Annotated[str, typer.Option(help="hellinger, chi2, intersection, euclidean or inner.")] = "hellinger",
    force: Force = False,
    **options: Any,
) -> None:
    """Make an index of items, in which bagwise search finds those that are like another one."""
    from bagwise.training.item_index import ItemIndex

    target = Path(f"{name_of_source(source)}.index") if out is None else out
    check_outputs([target], force)
    chosen = fit_options(options)
    loaded = load_model(model)
    collection, histograms = counted(session, loaded, source, chosen)
    made = ItemIndex.build(
        loaded, collection, histograms, source=os.path.abspath(source), options=chosen, metric=metric
    )
    made.save(target)
    session.say(f"{how_many(len(made), loaded.modality)}, {loaded.n_groups} words, compared by {metric}")
    session.answer(n_items=len(made), modality=loaded.modality, metric=metric)
    session.wrote(target, "index")


@command(_PANEL, READ_OPTIONS)
def search(
    session: Session,
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="What bagwise fit or bagwise index wrote.")],
    query: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[QUERY]...", help="Image, text or table; of folders and tables every item is a query."),
    ] = None,
    query_text: Annotated[
        list[str] | None, typer.Option("--query-text", "-t", help="Text to search for; may be given several times.")
    ] = None,
    row: Annotated[int | None, typer.Option(min=0, help="Of a table, only this row, counted from 0.")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many items to find.")] = 10,
    page: Annotated[Path | None, typer.Option(help="Write a page that shows what was found.", metavar="PAGE")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    source: Annotated[
        Path | None, typer.Option(help="Where the items are now, for their pictures, if they were moved.")
    ] = None,
    force: Force = False,
    **options: Any,
) -> None:
    """Find the items that are most like an image, a text or a row."""
    from bagwise.training import ItemIndex

    if not query and not query_text:
        raise BagwiseError("There is nothing to search for. Give a file, or --query-text for texts.")
    if page is not None or open_page:
        check_report()
        check_outputs([page] if page is not None else [], force)
    opened = ItemIndex.load(index)
    answers = []
    for name, shown, histograms in _queries(session, opened, query or [], query_text or [], row, fit_options(options)):
        known = abs(histograms).sum() > 0
        hits = opened.search(histograms, k)[0] if known else []  # to nothing, all items are equally near
        if not known:
            session.note(f"{shortened(name, _SHOWN_QUERY)} has none of the words of this index, so nothing is like it.")
        answers.append((name, shown, hits))
        session.say(f"{printable(shortened(name, _SHOWN_QUERY))}:")
        labelled = any(hit.label is not None for hit in hits)
        rows = [[f"{hit.score:.4f}", *([hit.label or ""] if labelled else []), hit.id] for hit in hits]
        session.table(["score", *(["class"] if labelled else []), "item"], rows)
    session.answer(
        index=str(index),
        metric=opened.index.metric,
        queries=[{"query": name, "hits": [hit._asdict() for hit in hits]} for name, _, hits in answers],
    )
    if page is not None or open_page:
        _write_pages(session, opened, index, answers, page, open_page, source)


def _queries(
    session: Session, opened: Any, paths: list[Path], texts: list[str], row: int | None, options: Any
) -> Iterator[tuple[str, Any, Any]]:
    """Queries one by one: what they are called, the item to show (a str for texts), and their words."""
    model = opened.model
    if texts and model.modality != "texts":
        raise BagwiseError(
            f"The index holds {model.modality}, but --query-text searches texts. Give a file of {model.modality}."
        )
    for text in texts:
        yield text, text, model.histograms([text])
    for path in paths:
        collection, histograms = counted(session, model, path, options)
        if row is not None:
            if collection.modality != "table":
                raise BagwiseError(f"--row chooses a row of a table, but {path} holds {collection.modality}.")
            if row >= len(collection):
                raise BagwiseError(f"{path} has rows from 0 to {len(collection) - 1}, but not {row}.")
            collection, histograms = collection[[row]], histograms[[row]]
        for number, item in enumerate(collection):
            alone = len(collection) == 1 and collection.modality != "table"
            yield str(path) if alone else f"{path}: {item.id}", item, histograms[[number]]


def _write_pages(
    session: Session, opened: Any, index: Path, answers: list[Any], page: Path | None, show: bool, source: Path | None
) -> None:
    """Write a page for each query; further ones have numbers in their names."""
    from bagwise.report import Hit, SearchResults, write_results

    kind, items = opened.model.modality, _items_of(session, opened, source)
    facts = {"Index": index.name, "Items": f"{len(opened):,} {kind}"}
    if page is None:
        page = Path(tempfile.mkdtemp(prefix="bagwise-")) / "results.html"
    for number, (name, shown, hits) in enumerate(answers, 1):
        found = [Hit(hit.id, hit.score, hit.label, *_seen(items.get(hit.id), kind)) for hit in hits]
        results = SearchResults(name, found, *_seen(shown, kind), score_name=opened.index.metric, facts=facts)
        target = page if number == 1 else page.with_stem(f"{page.stem}-{number}")
        session.wrote(write_results(results, target), "page")
        if show:
            import webbrowser

            webbrowser.open(target.resolve().as_uri())


def _seen(item: Any, kind: str) -> tuple[bytes | None, str | None]:
    """A picture or an excerpt of an item or of a text; nothing where it cannot be read any more."""
    from bagwise.sources import ItemError
    from bagwise.training.report_data import excerpt_of, preview

    if isinstance(item, str):
        return None, excerpt_of(item)
    try:
        return (None, None) if item is None else preview(item, kind)
    except ItemError:
        return None, None


def _items_of(session: Session, opened: Any, source: Path | None) -> dict[str, Any]:
    """The items of the index by their ids, where they are still there."""
    from bagwise.training import FitOptions, open_items

    place = source or (Path(opened.source) if opened.source else None)
    if place is None or opened.model.modality == "table":
        return {}
    if not place.exists():
        session.note(f"{place} is no longer there, so the page has no pictures. Say where it is by --source.")
        return {}
    collection = open_items(opened.model, place, FitOptions.from_mapping(opened.reading))
    return {item.id: item for item in collection}
