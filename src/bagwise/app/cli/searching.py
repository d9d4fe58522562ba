"""Commands for similarity search: index, which makes and changes indexes, and search."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from bagwise._io.atomic import check_writable
from bagwise._io.storage import Url, absolute
from bagwise._utils.text import how_many, shortened
from bagwise.app.cli.answering import row_of
from bagwise.app.cli.options import (
    MAKE,
    PARTED_OPTIONS,
    READ_OPTIONS,
    USE,
    Force,
    Lines,
    Network,
    Page,
    QueryText,
    Row,
    Scheduler,
    Workers,
    command,
    fit_options,
    source_path,
)
from bagwise.app.cli.outputs import check_outputs, check_page, name_of_source, output_file
from bagwise.app.cli.printing import fit_last, printable
from bagwise.app.cli.session import Session
from bagwise.app.cli.using import (
    check_map_method,
    check_order,
    counted,
    load_model,
    tell_of,
    with_map,
    with_standard_input,
)
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["index", "search"]

_SHOWN_QUERY = 60
_SPARE = 8  # results beyond those asked for, in place of the query and its copies
_QUERIES = 256  # that are searched for at a time


@command(MAKE, PARTED_OPTIONS)
def index(
    session: Session,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL|INDEX", help="Model file, from bagwise fit; or an index to change.")
    ],
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="SOURCE", help="Folder, archive, file of records, or table; not for changes.", parser=source_path
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="File of the index. Default: NAME.index; with changes, the index itself.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            help="What items are compared by: words, groups, classes, or both (default): words and classes, or words "
            "and groups without a classifier."
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="With words or groups: hellinger, chi2, intersection, euclidean or inner.")
    ] = None,
    map_method: Annotated[
        str | None,
        typer.Option(
            "--map",
            help="Map of the items, for bagwise explore: spectral (default), tsne or none (default on a cluster). With "
            "changes: arrange all items anew; default: place those that are added by their neighbours.",
        ),
    ] = None,
    add: Annotated[
        Path | None,
        typer.Option("--add", help="Add the items of this source to the index.", metavar="SOURCE", parser=source_path),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            "--remove",
            help="Remove this item from the index; may be given several times. @FILE: a file with an id in each line.",
            metavar="ID|@FILE",
        ),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="With --add: replace items with the same ids.")] = False,
    force: Force = False,
    network: Network = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    **options: Any,
) -> None:
    """Index items for search and explore, or change an index.

    A model and a source give a new index; --add and --remove change one.
    """
    from bagwise.app.index.item_index import SIMILARITIES, ItemIndex
    from bagwise.retrieval.histograms import METRICS

    if map_method is not None:
        check_map_method(map_method)
    on_cluster = scheduler is not None or workers is not None
    if add is not None or remove:
        new = {"SOURCE": source, "--by": by, "--metric": metric, "--scheduler": scheduler, "--workers": workers}
        for name, value in new.items():
            if value is not None:
                raise BagwiseError(f"{name} is for new indexes; an index to change is given alone. Remove {value}.")
        _change(session, model, add, remove or [], replace, out, force, map_method, network, fit_options(options))
        return
    if source is None:
        raise BagwiseError("There is nothing to index. Give a SOURCE, or change an index by --add or --remove.")
    if replace:
        raise BagwiseError("--replace is for --add. To replace a whole index, use --force.")
    by = "auto" if by is None else by
    if metric is not None and metric not in METRICS:
        raise unknown_name("--metric", metric, METRICS)
    if by not in ("auto", *SIMILARITIES):
        raise unknown_name("--by", by, ("auto", *SIMILARITIES))
    target = output_file(out, Path(f"{name_of_source(source)}.index"))
    check_outputs([target], force)
    chosen = fit_options(options)
    loaded = load_model(model, network, [source])
    if on_cluster:
        made = _built_by_workers(session, loaded, source, target, by, metric, chosen, (scheduler, workers))
        if map_method not in (None, "none"):
            made = with_map(session, made, map_method)
            made.save(target)
    else:
        collection, histograms = counted(session, loaded, source, chosen)
        made = ItemIndex.build(
            loaded, collection, histograms, source=absolute(source), options=chosen, by=by, metric=metric
        )
        made = with_map(session, made, map_method or "spectral")
        made.save(target)
    session.say(
        f"{how_many(len(made), loaded.modality)}, {how_many(loaded.n_groups, 'groups')}, compared by {made.described}"
    )
    session.answer(n_items=len(made), modality=loaded.modality, by=made.by, metric=made.metric)
    session.wrote(target, "index")


def _built_by_workers(
    session: Session,
    model: Any,
    source: Path,
    target: Path,
    by: str,
    metric: str | None,
    options: Any,
    cluster: tuple[str | None, int | None],
) -> Any:
    """Write an index of items that the workers of a cluster read, and return it."""
    from bagwise.app import build_index, open_items
    from bagwise.distributed import connected
    from bagwise.distributed.executors import executor_of

    with connected(*cluster) as client:
        collection = open_items(model, source, options, executor_of(client, session.progress))
        tell_of(session, collection)
        how: dict[str, Any] = {"client": client, "progress": session.progress, **options.to_dict()}
        made = build_index(model, collection, target, by=by, metric=metric, **how)
    session.progress.clear()
    return made


def _change(
    session: Session,
    path: Path,
    add: Path | None,
    remove: list[str],
    replace: bool,
    out: Path | None,
    force: bool,
    map_method: str | None,
    network: Path | None,
    options: Any,
) -> None:
    """Remove items from an index and add others; items are read before the file is locked."""
    from bagwise.app import ItemIndex, change_index, open_items
    from bagwise.app.index.index_changes import known_ids
    from bagwise.app.model.files import model_bytes

    if out is not None:
        check_outputs([out], force)
    if replace and add is None:
        raise BagwiseError("--replace is for --add, which names the new items.")
    opened, gone = ItemIndex.load(path, network=network), _ids(remove)
    check_writable(out or path)
    left = opened.remove(gone)  # what is wrong is told before items are described
    collection, histograms, n_replaced = None, None, 0
    if add is not None:
        options = _as_indexed(opened, add, options)
        collection = open_items(opened.model, add, options)
        known_ids(left, collection.ids, replace)
        collection, histograms = counted(session, opened.model, collection, options)
    model = model_bytes(opened.model)

    def change(now: Any) -> Any:
        nonlocal n_replaced
        if now is not opened and model_bytes(now.model) != model:
            raise BagwiseError(f"The model in {path} was changed by another program meanwhile. Run the command again.")
        changed = now.remove(gone)
        if map_method is not None:
            changed = dataclasses.replace(changed, map=None)
        if collection is not None:
            session.progress("adding items", 0, 0)
            n_replaced = len(known_ids(changed, collection.ids, replace))
            changed = changed.add(collection, histograms, replace=replace)
        all_new = len(changed) and now.map is not None and changed.map is None  # nothing to place items by
        if map_method is not None or all_new:
            changed = with_map(session, changed, map_method or now.map.method)
        session.progress("writing", 0, 0)
        return changed

    if out is None:

        def waiting() -> None:
            session.note(f"Another program is changing {path}; waiting until it is done.")

        changed = change_index(path, change, waiting=waiting)
    else:
        changed = change(opened)
        changed.save(out)
    session.progress.clear()
    n_added = 0 if collection is None else len(collection)
    _tell_of_change(session, opened, changed, add, len(gone), n_added, n_replaced, map_method)
    session.wrote(path if out is None else out, "index")


def _tell_of_change(
    session: Session,
    opened: Any,
    changed: Any,
    add: Path | None,
    n_removed: int,
    n_added: int,
    n_replaced: int,
    map_method: str | None,
) -> None:
    """Say what has changed, what became of the map, and which items cannot be shown."""
    modality = changed.model.modality
    replaced = f" ({n_replaced:,} of them replaced)" if n_replaced else ""
    said = f"{n_added:,} added{replaced}, {n_removed:,} removed; the index has {how_many(len(changed), modality)} now"
    session.say(said)
    n_placed = 0
    if n_added and map_method is None and opened.map is not None and changed.map is not None:
        if n_added == len(changed):
            session.note("No item was left on the map, so new ones were arranged anew.")
        else:
            n_placed = int((changed.map.clusters[-n_added:] >= 0).sum())
            session.note(
                f"On the map, {n_placed:,} new items lie by their neighbours; --map spectral arranges all anew."
            )
    if add is not None and changed.source and os.path.realpath(add) != os.path.realpath(changed.source):
        session.note(
            f"Pages show the items of {changed.source}; those of {add} are found and listed, but shown without their "
            "content unless they are there too."
        )
    session.answer(
        n_items=len(changed),
        n_added=n_added,
        n_replaced=n_replaced,
        n_removed=n_removed,
        modality=modality,
        by=changed.by,
        metric=changed.metric,
        map={"method": None if changed.map is None else changed.map.method, "n_placed": n_placed},
    )


def _ids(listed: list[str]) -> list[str]:
    """Return ids of the command line, and those of files that it names; each once."""
    ids: dict[str, None] = {}
    for one in listed:
        if not one.startswith("@"):
            ids[one] = None
            continue
        try:
            lines = Path(one[1:]).read_text(encoding="utf-8-sig", errors="surrogateescape").split("\n")
        except OSError as error:
            raise BagwiseError(
                f"The file of ids {one[1:]} cannot be read: {error.strerror}. After @ there must be the name of a file "
                "with an id in each line."
            ) from error
        ids |= dict.fromkeys(line.removesuffix("\r") for line in lines if line.strip())
    return list(ids)


def _as_indexed(opened: Any, source: Path, options: Any) -> Any:
    """Return how items are read: as those of the index were, where the options do not say, if it is their source."""
    if not opened.source or os.path.realpath(source) != os.path.realpath(opened.source):
        return options
    fresh = type(options)()
    said = {name: value for name, value in opened.reading.items() if getattr(options, name) == getattr(fresh, name)}
    return options.with_changes(**said)


@command(USE, READ_OPTIONS)
def search(
    session: Session,
    index: Annotated[
        Path,
        typer.Argument(metavar="INDEX", help="Index, from bagwise fit or bagwise index."),
    ],
    query: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="QUERY",
            help="Image, text or table; each item of a folder or table is a query. -: a text from standard input.",
            parser=source_path,
        ),
    ] = None,
    query_text: QueryText = None,
    lines: Lines = False,
    row: Row = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Number of results.")] = 10,
    by: Annotated[
        str | None,
        typer.Option(help="What to compare by: words, classes, groups or both, as the index has. Default: as indexed."),
    ] = None,
    page: Page = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    source: Annotated[
        Path | None, typer.Option(help="Location of the items, for the page, if they were moved.", parser=source_path)
    ] = None,
    keep_query: Annotated[
        bool, typer.Option("--keep-query", help="Show the query, too, where it is in the index itself.")
    ] = False,
    force: Force = False,
    network: Network = None,
    scheduler: Scheduler = None,
    workers: Workers = None,
    **options: Any,
) -> None:
    """Find items that are similar to an image, a text or a row."""
    from bagwise.app import ItemIndex
    from bagwise.app.index.results_data import IndexedItems
    from bagwise.distributed import connected

    if not query and not query_text:
        raise BagwiseError("There is no query. Give a file, or --query-text for texts.")
    if page is not None or open_page:
        check_page(page, force)
    check_order(index, query or [], ("index",))
    opened = ItemIndex.load(index, network=network)
    opened.wanted(by)
    chosen = fit_options(options)
    paths, texts = with_standard_input(opened.model, query or [], query_text or [], lines, chosen)
    items, answers = IndexedItems(opened, source), list[_Answer]()
    words: Sequence[float | None] | None
    snippets = _Snippets(session, items)
    with connected(scheduler, workers) as client:
        searched = opened if client is None else opened.searched_by(client, index, session.progress)
        asked = _queries(session, opened, paths, texts, row, chosen)
        for name, shown, histogram, hits, weight in _found(asked, searched, k + _SPARE, by):
            itself = [] if isinstance(shown, str) else items.of_query(shown, hits)
            hits = [hit for hit in hits if keep_query or hit.id not in itself][:k]
            words = opened.similarity_by_words(histogram, hits, by=by) if hits else ()
            words = [None] * len(hits) if words is None else words
            answers.append(_Answer(name, shown, hits, weight, itself, words, snippets(hits)))
            _tell(session, answers[-1], _how(opened, by, weight), keep_query, by_words=opened.wanted(by) != "words")
    session.answer(
        index=str(index),
        by=by or opened.by,
        metric=opened.metric,
        queries=[
            {
                "query": one.name,
                "class_weight": one.weight,
                "in_index": one.itself,
                "hits": [
                    hit._asdict() | {"similarity_by_words": words, "snippet": snippet}
                    for hit, words, snippet in zip(one.hits, one.words, one.snippets, strict=True)
                ],
            }
            for one in answers
        ],
    )
    if page is not None or open_page:
        shown = [one._replace(itself=[]) for one in answers] if keep_query else answers
        _write_pages(session, items, index, shown, _page_names(page, len(shown), force), open_page, by)


def _found(
    queries: Iterator[tuple[list[str], list[Any], Any]], opened: Any, k: int, by: str | None
) -> Iterator[tuple[str, Any, Any, list[Any], float | None]]:
    """Yield the name of each query, the item, its words, what was found, and the weight of classes; None without words.

    All items are equally similar to an empty histogram.
    """
    import numpy as np

    for names, shown, histograms in queries:
        known = np.flatnonzero(np.asarray(abs(histograms).sum(axis=1)).ravel())
        hits: list[Any] = [[]] * len(names)
        weights: list[float | None] = [None] * len(names)
        if len(known):
            rows = histograms[known]
            for number, hit, weight in zip(
                known, opened.search(rows, k, by=by), opened.class_weights(rows, by=by).tolist(), strict=True
            ):
                hits[number], weights[number] = hit, weight
        each = [histograms[[number]] for number in range(len(names))]
        yield from zip(names, shown, each, hits, weights, strict=True)


def _tell(session: Session, answer: _Answer, how: str, keep_query: bool, by_words: bool) -> None:
    """Print what was found for a query; `by_words`: with the similarity by words beside the score."""
    name, hits = shortened(answer.name, _SHOWN_QUERY), answer.hits
    if answer.weight is None:
        session.note(f"{name} has no words of the vocabulary, so there are no results.")
    session.say(f"{printable(name)}, compared by {how}:")
    columns = {"score": [f"{hit.score:.4f}" for hit in hits]}
    if by_words:
        columns["by words"] = ["" if one is None else f"{one:.4f}" for one in answer.words]
    columns |= {"class": [hit.label or "" for hit in hits], "item": [hit.id for hit in hits]}
    columns["beginning"] = [one or "" for one in answer.snippets]
    filled = {head: cells for head, cells in columns.items() if any(cells) or head in ("score", "item")}
    rows = list(zip(*filled.values(), strict=True))
    session.table(list(filled), fit_last(list(filled), rows) if "beginning" in filled else rows)
    if answer.itself:
        ids = ", ".join(printable(shortened(id, _SHOWN_QUERY)) for id in answer.itself)
        left_out = "" if keep_query else "; it is left out (--keep-query shows it)"
        session.say(f"The query itself is in the index, as {ids}{left_out}.")


class _Answer(NamedTuple):
    """The name of a query, the item or text itself, what was found, and the ids that the query has in the index.

    `words` and `snippets` have the similarity by words and the beginning of each item that was found, if known.
    """

    name: str
    query: Any
    hits: list[Any]
    weight: float | None
    itself: list[str]
    words: Sequence[float | None]
    snippets: list[str | None]


class _Snippets:
    """Returns the beginnings of items that were found; where they cannot be read, a note says so once."""

    def __init__(self, session: Session, items: Any) -> None:
        self._session, self._items = session, items
        self._readable = items.exist and items.shows_more
        if items.shows_more and items.path is not None and not items.exist and not isinstance(items.path, Url):
            session.note(f"{items.path} does not exist any more; --source says where the items are now.")

    def __call__(self, hits: list[Any]) -> list[str | None]:
        try:
            if self._readable:
                return self._items.snippets([hit.id for hit in hits])
        except BagwiseError as error:
            self._readable = False
            self._session.note(f"Results are shown without their beginnings: {error}")
        return [None] * len(hits)


def _how(opened: Any, by: str | None, weight: float | None) -> str:
    """Say what a query was compared by, in words."""
    if by is not None and by != "both":
        return by
    if weight is None or opened.described != "words and classes":
        return opened.described
    return "words, because no class fits" if weight < 0.5 else "classes, then words"


def _queries(
    session: Session, opened: Any, paths: list[Path], texts: list[str], row: int | None, options: Any
) -> Iterator[tuple[list[str], list[Any], Any]]:
    """Yield names, items (str for texts) and histograms of some queries at a time."""
    from bagwise.app.modalities import MODALITIES

    model = opened.model
    if texts and not MODALITIES[model.modality].readable:
        raise BagwiseError(
            f"--query-text needs an index of texts, but this index holds {model.modality}. Give a file instead."
        )
    if texts:
        yield texts, texts, model.histograms(texts)
    for path in paths:
        collection, histograms = counted(session, model, path, options)
        if row is not None:
            collection, histograms = row_of(collection, row, path), histograms[[row]]
        alone = len(collection) == 1 and not MODALITIES[collection.modality].rows
        for first in range(0, len(collection), _QUERIES):
            some = list(collection[first : first + _QUERIES])
            names = [str(path) if alone else f"{path}: {item.id}" for item in some]
            yield names, some, histograms[first : first + _QUERIES]


def _page_names(page: Path | None, n: int, force: bool) -> list[Path]:
    """Return the pages of n queries; names of further pages are numbered. Raise if one exists, unless `force`."""
    if page is None:
        page = Path(tempfile.mkdtemp(prefix="bagwise-")) / "results.html"
    pages = [page if number == 1 else page.with_stem(f"{page.stem}-{number}") for number in range(1, n + 1)]
    check_outputs(pages, force, "--page")
    return pages


def _write_pages(
    session: Session,
    items: Any,
    index: Path,
    answers: list[_Answer],
    pages: list[Path],
    show: bool,
    by: str | None,
) -> None:
    """Write a page for each query."""
    from bagwise.app.index.results_data import results_data
    from bagwise.app.report import write_results

    opened = items.index
    if items.path is not None and not items.exist:
        reason = f"{items.path} does not exist any more, so the page has no items. Give their place by --source."
        if isinstance(items.path, Url):
            reason = f"The page has no items, since listing a URL may take long. Show them by --source {items.path}"
        session.note(reason)
    facts = {"Index": index.name, "Items": how_many(len(opened), opened.model.modality)}
    for target, one in zip(pages, answers, strict=True):
        told = facts | {"Compared by": _how(opened, by, one.weight)}
        results = results_data(items, one.name, one.query, one.hits, target, itself=one.itself, facts=told)
        session.wrote(write_results(results, target), "page")
        if show:
            import webbrowser

            webbrowser.open(target.resolve().as_uri())
