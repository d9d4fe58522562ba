"""The command that finds clusters of items: cluster."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._io.storage import Url, absolute
from bagwise._utils.extras import require
from bagwise._utils.text import agree, how_many, shortened
from bagwise.app.cli.learning import say_fit
from bagwise.app.cli.options import (
    FIT_OPTIONS,
    MAKE,
    OPTION_NAMES,
    READ_OPTIONS,
    Force,
    MapMethod,
    Network,
    NoIndex,
    NoPage,
    Raw,
    Report,
    Scheduler,
    Workers,
    command,
    fit_options,
    source_path,
)
from bagwise.app.cli.outputs import (
    FitOutputs,
    check_outputs,
    name_of_source,
    output_file,
    write_cluster_labels,
    write_clusters,
)
from bagwise.app.cli.printing import command_line, printable
from bagwise.app.cli.session import Session
from bagwise.app.cli.using import a_kind, check_map_method, counted, held_by, load_model, with_map
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["cluster"]

_LONGEST_NAME, _LONGEST_ID = 44, 32
_MOST_OTHERS = 3  # other stable numbers of clusters that are named
_OPTIONS = {name: option for name, option in FIT_OPTIONS.items() if name not in ("C", "folds", "partition")}


@command(MAKE, _OPTIONS)
def cluster(
    session: Session,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE|MODEL|INDEX",
            help="Items to cluster; or a model, and then items; or an index.",
            parser=source_path,
        ),
    ],
    items: Annotated[
        Path | None, typer.Argument(metavar="SOURCE", help="Items to cluster by a model.", parser=source_path)
    ] = None,
    n_clusters: Annotated[
        int | None, typer.Option("--clusters", "-c", min=1, help="Number of clusters. Default: the most stable one.")
    ] = None,
    method: Annotated[str, typer.Option(help="kmeans, spectral, manifold, or auto.")] = "auto",
    min_certainty: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Leave less certain items out of --out and --labels-out.")
    ] = 0.0,
    out: Annotated[Path | None, typer.Option(help="CSV file with id, cluster, label, name and certainty.")] = None,
    labels_out: Annotated[
        Path | None, typer.Option(help="CSV file with names of clusters as labels, for bagwise fit --labels.")
    ] = None,
    model_out: Annotated[
        Path | None,
        typer.Option(
            help="Model file, or a folder for it; index and report are beside it. Default: NAME.bagwise with the name "
            "of the source."
        ),
    ] = None,
    assign: Annotated[
        Path | None, typer.Option(help="Give the items of SOURCE to the clusters of this index.", metavar="INDEX")
    ] = None,
    page: Report = None,
    no_page: NoPage = False,
    no_index: NoIndex = False,
    map_method: MapMethod = "spectral",
    network: Network = None,
    raw: Raw = False,
    force: Force = False,
    scheduler: Scheduler = None,
    workers: Workers = None,
    **options: Any,
) -> None:
    """Find clusters of items without labels, and name them.

    A source alone gives words, groups, clusters, an index and a report in one go; a model or an index has words
    already.
    """
    from bagwise.app.index.item_clusters import CLUSTER_METHODS

    if method not in ("auto", *CLUSTER_METHODS):
        raise unknown_name("--method", method, ("auto", *CLUSTER_METHODS))
    check_map_method(map_method)
    check_outputs([out], force)
    check_outputs([labels_out], force, "--labels-out")
    fitted = held_by(source)
    tables = (out, labels_out, min_certainty, raw)
    if assign is None and fitted is None:
        if items is not None:
            raise _wrong_order(source, items)
        if network is not None:
            raise BagwiseError(
                "--network is for a model that was fitted with it. To learn words of it: --descriptor "
                f"network:{network}"
            )
        chosen = fit_options(options)
        base = output_file(model_out, Path(f"{name_of_source(source)}.bagwise"))
        outputs = FitOutputs(base, page, no_page=no_page, no_index=no_index)
        from bagwise.distributed import connected

        with connected(scheduler, workers) as client:
            _cluster_source(session, source, chosen, outputs, n_clusters, method, map_method, tables, force, client)
        return
    if scheduler is not None or workers is not None:
        raise BagwiseError(
            f"{'--workers' if scheduler is None else '--scheduler'} is for learning words of a source; a model or an "
            "index has them already. Remove it."
        )
    if assign is not None:
        _check_assigned(n_clusters, method, options["random_state"])
    _check_fitted(source if assign is None else assign, items, assign, model_out, options)
    chosen = fit_options({name: value for name, value in options.items() if name in READ_OPTIONS})
    if assign is not None:
        _assign(session, assign, source, network, chosen, tables)
    elif items is None:
        _cluster_index(session, source, n_clusters, method, options["random_state"] or 0, map_method, tables, force)
    else:
        how = (n_clusters, method, options["random_state"] or 0)
        _cluster_by_model(session, load_model(source, network), items, chosen, how, tables)


def _wrong_order(source: Any, items: Any) -> BagwiseError:
    """Return the error for two arguments of which the first is neither a model nor an index."""
    kind = held_by(items)
    if not isinstance(source, Url) and not source.exists():
        return BagwiseError(f"{source} does not exist. Give a model, or the items alone.")
    if kind is not None:
        right = command_line("cluster", items, source) if kind == "model" else command_line("cluster", items)
        return BagwiseError(f"{items} is {a_kind(kind)}, which comes first: {right}")
    return BagwiseError(
        f"{source} and {items} are two sources. Cluster one at a time: {command_line('cluster', source)}; or both "
        "together, in one folder or file. To cluster items by a model, the model comes first: bagwise cluster MODEL "
        "SOURCE"
    )


def _check_assigned(n_clusters: int | None, method: str, seed: int | None) -> None:
    """Raise an error for arguments of how clusters are found, beside those that are there already."""
    asked = {"--clusters": n_clusters is not None, "--method": method != "auto", "--seed": seed is not None}
    wrong = [name for name, is_given in asked.items() if is_given]
    if wrong:
        raise BagwiseError(
            f"{wrong[0]} is for finding clusters, but --assign gives items to those that an index has. Remove one."
        )


def _check_fitted(path: Any, items: Any, assign: Any, model_out: Any, options: dict[str, Any]) -> None:
    """Raise an error for arguments that do not go with a model or an index."""
    kind = held_by(path)
    if assign is not None:
        if kind != "index":
            raise BagwiseError(
                f"--assign takes an index with clusters; {assign} is {a_kind(kind) if kind else 'none'}."
            )
        if items is not None:
            raise BagwiseError(f"With --assign, only new items are given; there are two sources. Remove {items}.")
    elif kind == "model" and items is None:
        raise BagwiseError(
            f"{path} is a model: it knows words, but no items. Give the items too: "
            f"{command_line('cluster', path, 'SOURCE')}"
        )
    elif kind == "index" and items is not None:
        raise BagwiseError(
            f"{path} is an index: it has items already, which bagwise cluster INDEX clusters. To give the new items of "
            f"{items} to its clusters: {command_line('cluster', '--assign', path, items)}"
        )
    wrong = [name for name in options if name not in (*READ_OPTIONS, "random_state") and options[name] is not None]
    named = [OPTION_NAMES[name] for name in wrong]
    named += ["--model-out"] if model_out is not None else []
    if named:
        raise BagwiseError(
            f"{named[0]} is for learning words, but {path} is {a_kind(kind or 'model')} already. Remove it."
        )


def _cluster_source(
    session: Session,
    source: Any,
    options: Any,
    outputs: FitOutputs,
    n_clusters: int | None,
    method: str,
    map_method: str,
    tables: tuple[Any, ...],
    force: bool,
    client: Any,
) -> None:
    """Learn from a source, cluster its items, and write everything."""
    if outputs.report is not None:
        require("jinja2", "app", "Writing reports (--page)")
    csv = tables[0] or outputs.model.with_name(f"{outputs.model.name.removesuffix('.bagwise')}.clusters.csv")
    check_outputs([outputs.model, outputs.report, outputs.index], force, "--model-out")
    check_outputs([csv], force)
    session.resumes = options.cache is not None
    from bagwise.app import cluster_source

    clustered = cluster_source(source, options, n_clusters, method=method, progress=session.progress, client=client)
    fit, made = clustered.fit, clustered.index
    session.progress.clear()
    model = fit.model
    say_fit(session, fit, len(made))
    for note in fit.notes:
        session.note(note)
    session.skipped(fit.data.skipped)
    _print_clusters(session, made)
    session.say()
    started = time.perf_counter()
    session.wrote(model.save(outputs.model), "model")
    if outputs.index is not None:
        made = with_map(session, made, map_method)
        session.wrote(made.save(outputs.index), "index")
    _write_some(session, made.clusters, made.ids, _all_labels(fit.data.collection), (csv, *tables[1:]))
    if outputs.report is not None:
        from bagwise.app import clustered_report_data
        from bagwise.app.report import write_report

        session.wrote(write_report(clustered_report_data(fit, made), outputs.report), "report")
    session.answer(seconds=fit.timings | {"writing": time.perf_counter() - started})
    if outputs.index is not None:
        session.say()
        session.say(f"Look at them in the browser: {printable(command_line('explore', outputs.index))}")


def _cluster_index(
    session: Session,
    path: Path,
    n_clusters: int | None,
    method: str,
    seed: int,
    map_method: str,
    tables: tuple[Any, ...],
    force: bool,
) -> None:
    """Cluster the items of an index by what it holds of them, and keep the clusters in it."""
    from bagwise.app import change_index

    def change(now: Any) -> Any:
        if now.clusters is not None and not force:
            raise BagwiseError(
                f"{path} has clusters already, with names that would be lost. Give --force to replace them; new items "
                f"are given to them by: {command_line('cluster', '--assign', path, 'SOURCE')}"
            )
        made = now.with_clusters(n_clusters, method=method, random_state=seed, n_jobs=-1, progress=session.progress)
        made = replace(made, clusters=made.clusters.compared_with(made.labels))
        if now.map is not None and map_method != "none":
            made = with_map(session, made, now.map.method)
        return made

    made = change_index(path, change)
    session.progress.clear()
    session.say(f"{how_many(len(made), made.model.modality)}, by {made.model.n_groups} groups of words")
    _print_clusters(session, made, "first labels")  # an index keeps no others
    session.say()
    session.wrote(path, "index")
    _write_some(session, made.clusters, made.ids, made.labels, tables)


def _cluster_by_model(
    session: Session,
    model: Any,
    source: Any,
    options: Any,
    how: tuple[int | None, str, int],
    tables: tuple[Any, ...],
) -> None:
    """Cluster the items of a source by the groups of a model."""
    from bagwise.app import ItemIndex
    from bagwise.app.index.clustering import compared_with_labels

    n_clusters, method, seed = how
    if method == "manifold":
        raise BagwiseError(
            "--method manifold learns words of its own, but the model has words already. Give the items alone: "
            f"{command_line('cluster', source, '--method', 'manifold', '-c', n_clusters or 'N')}"
        )
    collection, histograms = counted(session, model, source, options)
    origin = {"source": absolute(source), "options": options}
    made = ItemIndex.build(model, collection, histograms, by="groups", **origin)
    running: dict[str, Any] = {"random_state": seed, "n_jobs": -1, "progress": session.progress}
    made = made.with_clusters(n_clusters, method=method, histograms=histograms, **running)
    made = compared_with_labels(made, collection)
    session.progress.clear()
    session.say(f"{how_many(len(made), model.modality)}, by {model.n_groups} groups of words")
    _print_clusters(session, made)
    _write_some(session, made.clusters, made.ids, _all_labels(collection), tables)


def _assign(session: Session, path: Path, source: Any, network: Any, options: Any, tables: tuple[Any, ...]) -> None:
    """Give the items of a source to the clusters of an index."""
    from bagwise.app import ItemIndex
    from bagwise.app.index.clustering import assigned

    index = ItemIndex.load(path, network=network)
    if index.clusters is None:
        raise BagwiseError(f"{path} has no clusters. Make them by: {command_line('cluster', path)}")
    collection, histograms = counted(session, index.model, source, options)
    clusters = assigned(index, histograms)
    sizes = clusters.sizes.tolist()
    session.say(f"{how_many(len(collection), index.model.modality)} given to the {len(clusters)} clusters of {path}")
    rows = [
        [number, size, shortened(printable(clusters.name(number)), _LONGEST_NAME)]
        for number, size in enumerate(sizes)
        if size
    ]
    session.table(["cluster", "items", "name"], rows)
    _tell_of_unknown(session, clusters)
    ids = list(collection.ids)
    _answer_items(session, clusters, ids)
    _write_some(session, clusters, ids, _all_labels(collection), tables)


def _print_clusters(session: Session, index: Any, labels: str = "labels") -> None:
    """Print the clusters of an index, how their number was found, and their agreement with `labels`, as it is told."""
    clusters, model = index.clusters, index.model
    described = clusters.describe(model)
    session.say()
    for line in _about_number(clusters):
        session.say(line)
    rows = [
        [
            one.number,
            one.size,
            shortened(printable(one.name), _LONGEST_NAME),
            f"{one.cohesion:.2f}",
            f"{one.certainty:.2f}",
            shortened(printable(index.ids[one.central]), _LONGEST_ID) if one.central >= 0 else "",
        ]
        for one in described
    ]
    session.table(["cluster", "items", "name", "cohesion", "certainty", "most central item"], rows)
    _tell_of_unknown(session, clusters)
    if clusters.agreement is not None:
        from bagwise.app.report.clusters import agreement_line

        session.say(agreement_line(clusters.agreement, labels, used=bool(model.classes)))
    ids = index.ids
    session.answer(
        method=clusters.method,
        clusters=[
            {
                "number": one.number,
                "name": one.name,
                "size": one.size,
                "cohesion": one.cohesion,
                "certainty": one.certainty,
                "terms": [{"name": term.name, "inside": term.inside, "outside": term.outside} for term in one.terms],
                "central": ids[one.central] if one.central >= 0 else None,
                "typical": [ids[k] for k in one.typical],
                "outermost": ids[one.outermost] if one.outermost >= 0 else None,
            }
            for one in described
        ],
        agreement=None if clusters.agreement is None else clusters.agreement._asdict(),
    )
    if clusters.numbers is not None:
        numbers = clusters.numbers
        session.answer(
            numbers={
                "suggested": numbers.suggested,
                "others": list(numbers.others),
                "sizes": list(numbers.sizes),
                "stability": list(numbers.stability),
                "standard_errors": list(numbers.standard_errors),
            }
        )
    _answer_items(session, clusters, ids)


def _about_number(clusters: Any) -> list[str]:
    """Say how many clusters there are, and what speaks for that number."""
    from bagwise.app.report.clusters import about_number_of_clusters

    return about_number_of_clusters(len(clusters), clusters.method, clusters.numbers, "-c")


def _tell_of_unknown(session: Session, clusters: Any) -> None:
    n = int((clusters.labels < 0).sum())
    if n:
        session.note(
            f"{how_many(n, 'items')} {agree(n, 'has', 'have')} no words of the vocabulary and {agree(n, 'is', 'are')} "
            "in no cluster."
        )


def _answer_items(session: Session, clusters: Any, ids: Any) -> None:
    numbers = [None if k < 0 else k for k in clusters.labels.tolist()]
    certainty = clusters.certainty.tolist()
    session.answer(
        items=[
            {"id": id, "cluster": number, "certainty": sure}
            for id, number, sure in zip(ids, numbers, certainty, strict=True)
        ]
    )


def _all_labels(collection: Any) -> list[str]:
    """Return the labels of each item in one string, as they are in manifests."""
    return ["|".join(labels) for labels in collection.label_sets]


def _write_some(session: Session, clusters: Any, ids: Any, labels: Any, tables: tuple[Any, ...]) -> None:
    """Write the tables that are asked for, of items that are certain enough."""
    import numpy as np

    out, labels_out, least, raw = tables
    chosen = np.flatnonzero((clusters.labels >= 0) & (clusters.certainty >= least)).tolist()
    n_left = int((clusters.labels >= 0).sum()) - len(chosen)
    if n_left and (out is not None or labels_out is not None):
        session.note(
            f"{how_many(n_left, 'items')} of a certainty below {least:g} {agree(n_left, 'is', 'are')} left out."
        )
    if out is not None:
        write_clusters(out, clusters, ids, labels, chosen, raw)
        session.wrote(out, "clusters")
    if labels_out is not None:
        write_cluster_labels(labels_out, clusters, ids, chosen, raw)
        session.wrote(labels_out, "labels")
