"""Commands that train models: demo, fit, compare."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._utils.extras import require
from bagwise._utils.text import duration, how_many, percent
from bagwise.app.cli.options import (
    FIT_OPTIONS,
    LOOK,
    MAKE,
    OTHERS,
    Force,
    MapMethod,
    NoIndex,
    NoPage,
    Page,
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
    check_page,
    name_of_source,
    output_file,
    prepare_folder,
)
from bagwise.app.cli.printing import command_line, printable
from bagwise.app.cli.session import Session
from bagwise.app.cli.using import check_items, check_map_method, held_by, with_map
from bagwise.app.declaring import MODEL, OUTPUT
from bagwise.descriptors.registry import split_names
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["compare", "demo", "fit", "run_fit", "say_fit"]

_PAIRS = 5  # of classes that are confused, of a fit
_MOST_COLUMNS = 6  # of a table of methods; more are its rows

Source = Annotated[
    Path,
    typer.Argument(metavar="SOURCE", help="Folder, archive, file of records, or table.", parser=source_path),
]


@command(OTHERS)
def demo(
    session: Session,
    out: Annotated[Path, typer.Option("--out", help="Output folder.")] = Path("bagwise-demo"),
) -> None:
    """Learn handwritten digits, from images to the explorer."""
    from bagwise.app import FitOptions
    from bagwise.datasets import load_digit_images, write_dataset

    prepare_folder(out)
    source = write_dataset(load_digit_images(), out / "digits.zip")
    options = FitOptions(descriptor="patches", pyramid=5, n_words=200, n_groups=20)
    shown = "--descriptor patches --pyramid 5 --words 200 --groups 20"
    session.say(f"$ bagwise fit {printable(source)} {shown} --out {printable(out / 'digits.bagwise')}")
    outputs = FitOutputs(out / "digits.bagwise")
    run_fit(session, source, options, outputs)
    session.say()
    session.say(f"Open the report: {printable((out / 'digits.report.html').resolve())}")
    explore = command_line("explore", out / "digits.index")
    session.say(f"Explore it in the browser: {printable(explore)}")
    session.answer(report=str((out / "digits.report.html").resolve()), explore=explore)


@command(MAKE, FIT_OPTIONS)
def fit(
    session: Session,
    source: Source,
    out: Annotated[
        Path | None,
        typer.Option(help="Model file, or a folder for it. Default: NAME.bagwise with the name of the source."),
    ] = None,
    page: Report = None,
    no_page: NoPage = False,
    no_index: NoIndex = False,
    map_method: MapMethod = "spectral",
    markdown: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=OUTPUT,
            metavar="DIR",
            help="Also write the report as Markdown with pictures into this folder.",
        ),
    ] = None,
    compact: Annotated[
        bool,
        typer.Option(
            "--compact", rich_help_panel=OUTPUT, help="Write a small model: one cut, hashes instead of words."
        ),
    ] = False,
    embed_network: Annotated[
        bool,
        typer.Option(
            "--embed-network",
            rich_help_panel=OUTPUT,
            help="Copy the network that describes images into the model, 5.9 MB: it needs no package then.",
        ),
    ] = False,
    add: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=MODEL,
            metavar="INDEX",
            help="Keep the words of this index, or of that beside this model, and its items: only new items of SOURCE "
            "are described; groups and classifiers are learned from all.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print items, method, memory and outputs; write nothing.")
    ] = False,
    force: Force = False,
    scheduler: Scheduler = None,
    workers: Workers = None,
    **options: Any,
) -> None:
    """Learn a model; write it, an index and a report.

    The source is a folder, an archive, a file of records or a table.
    """
    chosen = fit_options(options)
    check_items(source)
    if embed_network:
        _check_embedding(chosen.descriptor)
    check_map_method(map_method)
    session.resumes = chosen.cache is not None
    model_path = output_file(out, Path(f"{name_of_source(source)}.bagwise"))
    outputs = FitOutputs(model_path, page, no_page=no_page, no_index=no_index, markdown=markdown)
    if dry_run:
        if add is not None:
            raise BagwiseError("--dry-run plans a fit from the beginning. Leave out --add, or --dry-run.")
        _print_plan(session, source, chosen, outputs, force)
        return
    check_outputs([outputs.model, outputs.index], force)
    check_outputs([outputs.report], force, "--page" if page is not None else "--out")
    check_outputs([markdown], force, "--markdown", folder_allowed=True)
    from bagwise.distributed import connected

    known = None if add is None else _known_items(add)
    with connected(scheduler, workers) as client:
        run_fit(session, source, chosen, outputs, compact, map_method, client, embed_network, known)


@command(LOOK, {name: option for name, option in FIT_OPTIONS.items() if name not in ("criterion", "n_groups")})
def compare(
    session: Session,
    source: Source,
    criteria: Annotated[
        str | None, typer.Option(help="Names of criteria, separated by commas. Default: those advised for such data.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Numbers of groups, separated by commas. Default: 2,5,10,20,50, …")
    ] = None,
    page: Page = None,
    references: Annotated[
        bool | None,
        typer.Option(
            "--references/--no-references",
            help="Compare with all words, singular vectors and selected words too. Default: without --criteria.",
        ),
    ] = None,
    force: Force = False,
    **options: Any,
) -> None:
    """Compare criteria, all words, SVD and selected words.

    Their errors are measured on the same words and the same folds of cross-validation.
    """
    from bagwise.app import compare_criteria
    from bagwise.merging.criteria import NAMED_CRITERIA

    names = None if criteria is None else [name.strip() for name in criteria.split(",") if name.strip()]
    for name in names or ():
        if name not in NAMED_CRITERIA:
            raise unknown_name("--criteria", name, NAMED_CRITERIA)
    if page is not None:
        check_page(page, force)
    chosen = fit_options(options)
    check_items(source)
    session.resumes = chosen.cache is not None
    compared = compare_criteria(
        source,
        names,
        sizes=_sizes(sizes),
        references=references,
        progress=session.progress,
        **chosen.to_dict(),
    )
    path = compared[0].path
    session.say(f"Errors, {path.protocol}")
    if len(compared) <= _MOST_COLUMNS:
        rows = [[size, *(percent(one.path.errors[k]) for one in compared)] for k, size in enumerate(path.sizes)]
        session.table(["groups", *(one.name for one in compared)], rows)
        session.say(f"time   {'  '.join(f'{one.name} {duration(one.seconds)}' for one in compared)}")
    else:
        lines = [[one.name, *map(percent, one.path.errors), duration(one.seconds)] for one in compared]
        session.table(["groups", *map(str, path.sizes), "time"], lines)
    answers = {
        key: [
            {
                "name": one.name,
                "errors": list(one.path.errors),
                "standard_errors": list(one.path.standard_errors),
                "auto": one.path.auto,
                "seconds": one.seconds,
            }
            for one in compared
            if one.reference == of_references
        ]
        for key, of_references in (("criteria", False), ("references", True))
    }
    if compared.left_out:
        session.say(f"Left out: {_left_out(compared.left_out)}. Criteria are added by --criteria.")
    session.answer(protocol=path.protocol, sizes=list(path.sizes), **answers, left_out=compared.left_out)
    if page is not None:
        from bagwise.app.report import Comparison, CriterionResult, write_comparison

        shown = [
            CriterionResult(one.name, one.path.errors, one.path.standard_errors, one.seconds, one.reference)
            for one in compared
        ]
        comparison = Comparison(name_of_source(source), path.sizes, shown, path.protocol)
        session.wrote(write_comparison(comparison, page), "page")


def _known_items(path: Path) -> Any:
    """Return the items of an index, or of the one beside a model."""
    from bagwise.app import ItemIndex

    index = path.with_suffix(".index") if held_by(path) == "model" else path
    if not index.exists():
        beside = "" if index == path else f" beside the model {path}"
        raise BagwiseError(
            f"There is no {index}{beside}. --add needs the index of the items that the model was learned from, as "
            "bagwise fit writes it."
        )
    return ItemIndex.load(index).known_items()


def _left_out(reasons: dict[str, str]) -> str:
    """Name what is left out, together where the reason is the same."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())


def _check_embedding(descriptors: str) -> None:
    """Raise an error if descriptors are known not to be the network that can be embedded."""
    if descriptors not in ("auto",) and "network" not in split_names(descriptors):
        raise BagwiseError(
            f"--embed-network copies the network of --descriptor network, got --descriptor {descriptors}. Networks of "
            "ONNX files are never embedded: keep the file, and name it by --network."
        )


def run_fit(
    session: Session,
    source: Any,
    options: Any,
    outputs: FitOutputs,
    compact: bool = False,
    map_method: str = "spectral",
    client: Any = None,
    embed_network: bool = False,
    known: Any = None,
) -> None:
    """Fit, evaluate on the test split, print and write everything; with `compact`, the compact form of the model.

    `known` are items whose words are kept.
    """
    from bagwise.app import evaluate_model
    from bagwise.app import run_fit as fit

    if outputs.report is not None or outputs.markdown is not None:
        require("jinja2", "app", "Writing reports (--page, --markdown)")
    fitted = fit(source, options, add=known, progress=session.progress, client=client)
    if embed_network:
        if any(one.name == "NetworkFeatures" for one in fitted.model.descriptors):
            fitted = dataclasses.replace(fitted, model=fitted.model.embed_network())
        else:
            session.note("The model has no network to embed.")
    evaluation, started = None, time.perf_counter()
    if fitted.test is not None and fitted.model.heads:
        how: dict[str, Any] = {"progress": session.progress, "client": client}
        evaluation = evaluate_model(fitted.model, fitted.test, **how, **options.to_dict())
        fitted.timings["evaluation"] = time.perf_counter() - started
    session.progress.clear()
    say_fit(session, fitted, len(fitted.data.collection))
    _print_errors(session, fitted, evaluation)
    _print_classes(session, fitted, evaluation)
    started = time.perf_counter()
    about = None if evaluation is None else evaluation.about_seen(fitted.model, " of the split test")
    for note in (*fitted.notes, *([] if about is None else [about])):
        session.note(note)
    if not fitted.model.classes:
        session.note(f"Without classes, there are clusters with names by: {command_line('cluster', source)}")
    session.skipped(fitted.data.skipped)  # the first is in a note
    if evaluation is not None:
        session.skipped(evaluation.skipped, len(evaluation.collection) + evaluation.n_skipped)
    session.say()
    saved = fitted.model
    if compact:
        from bagwise.app.cli.models import compacted

        saved = compacted(session, saved, fitted.data.collection if evaluation is None else evaluation.collection)
    session.wrote(saved.save(outputs.model), "model")
    if outputs.index is not None:
        from bagwise.app.index.building import index_of_parted_fit
        from bagwise.app.index.item_index import index_of_fit
        from bagwise.app.training.folds import unkept_note

        if fitted.data.rows is not None:
            index_of_parted_fit(fitted, evaluation, outputs.index, options)
            if map_method != "none":
                session.note("The index has no map: for that, this process would hold the words of all items.")
        else:
            index = index_of_fit(fitted, evaluation, source, options)
            with_map(session, index, map_method).save(outputs.index)
        unkept = unkept_note(fitted.folds, fitted.model.path)
        if unkept is not None:
            session.note(unkept)
        session.wrote(outputs.index, "index")
    if outputs.report is not None or outputs.markdown is not None:
        from bagwise.app import fit_report_data
        from bagwise.app.report import write_markdown, write_report

        data = fit_report_data(fitted, evaluation)
        if outputs.report is not None:
            session.wrote(write_report(data, outputs.report), "report")
        if outputs.markdown is not None:
            session.wrote(write_markdown(data, outputs.markdown), "markdown")
    _print_better(session, saved, outputs.model)
    session.answer(seconds=fitted.timings | {"writing": time.perf_counter() - started})


def say_fit(session: Session, fitted: Any, n_items: int) -> None:
    """Print what was learned from how many items, and how long it took."""
    model = fitted.model
    items = how_many(n_items, model.modality)
    classes = f" of {how_many(len(model.classes), 'classes')}" if model.classes else ""
    words, groups = how_many(fitted.data.n_words, "words"), how_many(model.n_groups, "groups")
    merged = f"{words} merged into {groups} by {model.hierarchy.criterion}"
    session.say(f"{items}{classes}: {merged}, in {duration(sum(fitted.timings.values()))}")
    if fitted.cached:
        session.say(f"From the cache: {', '.join(fitted.cached)}")
    session.answer(model=model.info(), notes=list(fitted.notes), from_cache=list(fitted.cached))


def _print_errors(session: Session, fitted: Any, evaluation: Any) -> None:
    """Print the errors at each number of groups."""
    from bagwise.app.cli.measuring import measures_of
    from bagwise.app.report.data import ConfusionMatrix

    model, path = fitted.model, fitted.model.path
    heads, columns_of = ["groups"], []
    if path is not None:
        heads += [f"error, {path.protocol}"]
        spread = zip(path.errors, path.standard_errors, strict=True)
        columns_of.append([f"{percent(error)} ± {100 * deviation:.1f}" for error, deviation in spread])
    if evaluation is not None:
        heads += [f"error, {len(evaluation.collection):,} test items"]
        columns_of.append([percent(error) for error in evaluation.errors])
        tested: dict[str, Any] = {"sizes": list(evaluation.sizes), "errors": list(evaluation.errors)}
        if model.n_groups in evaluation.sizes:
            matrix = ConfusionMatrix(model.classes, evaluation.confusion(model.n_groups))
            tested["by_class"] = measures_of(matrix, model.n_groups)
        seen = None if evaluation.seen is None else evaluation.seen.to_dict()
        session.answer(test={"n_items": len(evaluation.collection), **tested, "training_items": seen})
    if not columns_of:
        return
    sizes = path.sizes if path is not None else evaluation.sizes
    marks = [_mark(size, model) for size in sizes]
    session.table([*heads, ""], zip(sizes, *columns_of, marks, strict=True))


def _print_classes(session: Session, fitted: Any, evaluation: Any) -> None:
    """Print how well the model tells classes apart: held-out items, or those of the test without cross-validation."""
    from bagwise.app.cli.measuring import measures_of, say_measures, say_pairs
    from bagwise.app.report.data import ConfusionMatrix

    model = fitted.model
    if fitted.held_out is not None:
        matrix = ConfusionMatrix(model.classes, fitted.confusion(model.n_groups), model.path.protocol_of_answers)
        session.answer(by_class=measures_of(matrix, model.n_groups))
    elif evaluation is not None and model.n_groups in evaluation.sizes:
        matrix = ConfusionMatrix(model.classes, evaluation.confusion(model.n_groups), "test")
    else:
        return
    session.say()
    session.say(f"Classes with {how_many(model.n_groups, 'groups')}, held-out items, {matrix.protocol}")
    say_measures(session, matrix, errors=True)
    if matrix.n_wrong:
        session.say()
        say_pairs(session, matrix, "Most often confused", _PAIRS)


def _print_better(session: Session, model: Any, path: Path) -> None:
    """Print how to answer with a number of groups that errs measurably less, if there is one."""
    measured = model.path
    better = None if measured is None else measured.better_than(model.n_groups)
    if better is None:
        return
    errors = dict(zip(measured.sizes, map(percent, measured.errors), strict=True))
    line = f"{command_line('predict', path)} ITEMS --groups {better}"
    session.say(f"Without fitting again: {line}: error {errors[better]} instead of {errors[model.n_groups]}")
    session.answer(better_groups=better)


def _mark(size: int, model: Any) -> str:
    marks = ["this model"] if size == model.n_groups else []
    if model.path is not None and size == model.path.auto:
        marks.append("smallest that is about as good as the best")
    return "<- " + "; ".join(marks) if marks else ""


def _print_plan(session: Session, source: Path, options: Any, outputs: FitOutputs, force: bool) -> None:
    from bagwise._utils.memory import readable_size
    from bagwise.app import plan_fit
    from bagwise.app.modalities import MODALITIES

    plan = plan_fit(source, **options.to_dict())
    session.answer(plan=plan.to_dict(), would_write=[str(path) for path in outputs.all()])
    classes = f", {how_many(len(plan.classes), 'classes')}" if plan.classes else ", no classes"
    apart = f"; {plan.n_test:,} more in the test split" if plan.n_test else ""
    session.say(f"{printable(plan.source)}: {how_many(plan.n_items, plan.modality)}{classes}{apart}")
    by = f", of {' and '.join(plan.descriptors)}" if plan.descriptors else ""
    session.say(f"Words: {'at most ' if MODALITIES[plan.modality].readable else ''}{plan.n_words:,}{by}.")
    session.say(f"Method: merged by {plan.criterion} ({plan.reason}).")
    session.say(f"Groups: {'chosen by cross-validation' if isinstance(plan.n_groups, str) else plan.n_groups}.")
    if plan.n_folds:
        sizes = how_many(len(plan.sizes), "numbers")
        session.say(f"Errors: at {sizes} of groups, by {plan.n_folds} folds of cross-validation.")
    free = "" if plan.free is None else f" of {readable_size(plan.free)} available"
    session.say(f"Memory: about {readable_size(plan.memory)}{free}.")
    if plan.free is not None and plan.memory > plan.free:
        session.note("This is more memory than available. Use a smaller vocabulary (--words), or another machine.")
    session.say(f"Outputs: {', '.join(printable(path) for path in outputs.all())}. Dry run: nothing was written.")
    for note in plan.notes:
        session.note(note)
    existing = [path for path in outputs.all() if path.exists()]
    if existing and not force:
        session.note(f"{existing[0]} exists already; give --force to replace it.")


def _sizes(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(size) for size in text.split(",")]
    except ValueError as error:
        raise BagwiseError(f"--sizes must be integers separated by commas, got {text!r}.") from error
