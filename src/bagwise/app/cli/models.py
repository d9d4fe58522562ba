"""Commands for model files and the installation: info, cut, warmup."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._utils.memory import readable_size
from bagwise._utils.text import agree, duration, how_many, percent, ranges
from bagwise.app.cli.options import LOOK, OTHERS, Force, ModelPath, command
from bagwise.app.cli.outputs import check_outputs, output_file
from bagwise.app.cli.printing import printable
from bagwise.app.cli.session import Session
from bagwise.app.cli.using import load_model
from bagwise.app.cli.verifying import describe_cache, describe_file, is_other_file, verify_file
from bagwise.errors import BagwiseError

__all__ = ["compacted", "cut", "info", "size_of", "warmup"]

_MOST_CLASSES = 8


@command(LOOK)
def info(
    session: Session,
    path: Annotated[Path | None, typer.Argument(help="A model, an index, or another file of the library.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the whole file and check every number and checksum.")
    ] = False,
    cache: Annotated[
        Path | None, typer.Option(help="Folder of --cache: how large it is, and how to clear it.", metavar="DIR")
    ] = None,
) -> None:
    """Show what a model, an index, a file or a cache holds."""
    from bagwise.app.model.files import is_item_index

    if (path is None) == (cache is None):
        raise BagwiseError("Give one: a FILE, or a folder of a cache by --cache DIR.")
    if cache is not None:
        describe_cache(session, cache)
        return
    assert path is not None
    if verify:
        verify_file(session, path)
    if is_other_file(path):
        describe_file(session, path)
        return
    if not is_item_index(path):
        _print_model(session, load_model(path))
        return
    from bagwise.app import ItemIndex

    opened = ItemIndex.load(path)
    session.say(f"index of {how_many(len(opened), opened.model.modality)}, compared by {opened.described}")
    session.say(f"source: {printable(opened.source)}")
    method = None if opened.map is None else opened.map.method
    session.say(f"map: {method or 'none'}")
    session.say()
    told = {"n_items": len(opened), "by": opened.by, "metric": opened.metric, "source": opened.source}
    told["map"] = method
    session.answer(index=told)
    _print_model(session, opened.model)


@command(OTHERS)
def cut(
    session: Session,
    model: ModelPath,
    groups: Annotated[int, typer.Option("--groups", min=1, help="Number of groups.")],
    out: Annotated[Path | None, typer.Option(help="New model file. Default: NAME-N.bagwise.")] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Write a small model: this cut only, hashes instead of words.")
    ] = False,
    force: Force = False,
) -> None:
    """Write a smaller model, with fewer groups."""
    target = output_file(out, model.with_name(f"{model.name.removesuffix('.bagwise')}-{groups}.bagwise"))
    check_outputs([target], force)
    whole = load_model(model)
    smaller = whole.cut(groups)
    counted = how_many(groups, "groups")
    session.say(f"{smaller.hierarchy.n_words:,} words, merged into {counted}")
    if whole.heads and groups not in smaller.heads:
        sizes = ranges(whole.heads)
        session.note(f"There is no classifier for {counted}, so the new model cannot predict; sizes with one: {sizes}.")
    _say_derived(session, smaller)
    session.answer(n_groups=groups)
    n_before = size_of(model)
    written = (compacted(session, smaller) if compact else smaller.trim()).save(target)
    session.answer(bytes_before=n_before, bytes_after=size_of(written))
    session.say(f"{readable_size(n_before)} before, {readable_size(size_of(written))} now")
    session.wrote(written, "model")


def size_of(path: Path) -> int:
    """Bytes of the file of a model."""
    return path.stat().st_size


def _say_derived(session: Session, model: Any) -> None:
    """Say where a classifier was derived, and what is known about errors nearby."""
    derived = model.provenance.get("derived_head")
    if not isinstance(derived, dict) or derived.get("n_groups") != model.n_groups:
        return
    session.answer(derived_from=derived["from"])
    counted = f"{model.n_groups} group{'' if model.n_groups == 1 else 's'}"
    about = f"The classifier for {counted} is derived from {_source(derived)}, not trained"
    if model.path is not None:
        below = [size for size in model.path.sizes if size < model.n_groups][-1:]
        near = [*below, *[size for size in model.path.sizes if size > model.n_groups][:1]]
        errors = dict(zip(model.path.sizes, model.path.errors, strict=True))
        known = ", ".join(f"{percent(errors[size])} with {size} groups" for size in near)
        about += f". Errors were estimated at other sizes: {known}"
    session.say(f"{about}.")


def _source(derived: dict[str, Any]) -> str:
    """Name the classifier that another one was derived from; groups of as many were edited."""
    edited = " before the edits" if derived["from"] == derived["n_groups"] else ""
    return f"that for {derived['from']}{edited}"


def compacted(session: Session, model: Any, items: Any = None) -> Any:
    """Return the compact form of a model, and say what it loses; `items` are predicted by both if they are texts."""
    from bagwise.app.modalities import MODALITIES

    small = model.compact()
    lost = small.provenance["compact"]
    what = f"Compact: {lost['n_words_lost']:,} of {model.hierarchy.n_words:,} words have the hash of another"
    if small.word_hashes is None:
        what = "Compact"
    if small.word_hashes is not None and small.word_weights is not None:
        what += f", weights are rounded by at most {percent(lost['weight_error'])}"
    if items is not None and MODALITIES[model.modality].hashes_words and small.heads:
        n_changed = int((small.predict(items) != model.predict(items)).sum())
        lost = {**lost, "n_items": len(items), "n_changed": n_changed}
        what += f", {n_changed:,} of {len(items):,} predictions differ"
    session.say(f"{what}.")
    session.answer(compact=lost)
    return small


@command(OTHERS)
def warmup(session: Session) -> None:
    """Compile all functions, once after installing."""
    import time

    import bagwise

    started = time.perf_counter()
    session.progress("Compiling", 0, 0)
    bagwise.warmup()
    seconds = time.perf_counter() - started
    session.say(f"Compiled in {duration(seconds)}.")
    session.answer(seconds=seconds)


def _print_model(session: Session, model: Any) -> None:
    from bagwise.app.modalities import MODALITIES
    from bagwise.runtime import PATTERN

    told = model.info()
    made = model.provenance
    session.answer(model=told)
    lines: list[tuple[str, str]] = [("modality", model.modality)]
    if "source" in made:
        items = f", {how_many(made['n_items'], 'items')}" if "n_items" in made else ""
        lines.append(("trained on", f"{made['source']}{items}"))
    made_by = (f"{made['created']} by " if "created" in made else "") + str(told["library"])
    lines.append(("made", made_by))
    groups = how_many(model.n_groups, "groups")
    lines.append(("words", f"{model.hierarchy.n_words:,} merged into {groups} by {model.hierarchy.criterion}"))
    for one in model.descriptors:
        lines.append(("descriptor", f"{one.name}({', '.join(f'{k}={v}' for k, v in one.parameters.items())})"))
    if MODALITIES[model.modality].readable and model.tokenizer.get("analyzer", "word") == "word":
        pattern = model.tokenizer.get("token_pattern", PATTERN)
        lines.append(("tokens", f"{pattern} (found in time proportional to the length of a text)"))
    if model.layout.n_cells > 1:
        lines.append(("cells", str(model.layout.n_cells)))
    lines.append(("features", f"{model.layout.width(model.n_groups):,}"))
    if model.classes:
        some = ", ".join(model.classes[:_MOST_CLASSES]) + (", …" if len(model.classes) > _MOST_CLASSES else "")
        lines.append(("classes", f"{len(model.classes)}: {some}"))
    if model.given_names:
        names = ", ".join(f"{number} {name}" for number, name in model.given_names.items())
        lines.append(("named groups", names))
    if model.edits:
        kinds = Counter(one["edit"] for one in model.edits)
        lines.append(("edits", ", ".join(f"{count} {kind}" for kind, count in kinds.items())))
    if model.heads:
        lines.append(("classifiers", f"for {ranges(model.heads)} {agree(max(model.heads), 'group', 'groups')}"))
    derived = made.get("derived_head")
    if isinstance(derived, dict) and derived.get("n_groups") == model.n_groups:
        lines.append(("derived", f"the classifier for {groups}, from {_source(derived)}"))
    if model.path is not None and model.n_groups in model.path.sizes:
        error = model.path.errors[model.path.sizes.index(model.n_groups)]
        lines.append(("error", f"{percent(error)} with {groups}, {model.path.protocol}"))
    if model.word_hashes is not None:
        lost = model.compact().provenance["compact"]["n_words_lost"]
        lines.append(("compact", f"words have no names; {lost:,} words lost to equal hashes"))
    if model.quantized:
        moved = made.get("int8")
        known = isinstance(moved, dict) and isinstance(moved.get("word_error"), float)
        by = f"; words moved by up to {100 * moved['word_error']:.2g} % of their length" if known and moved else ""
        lines.append(("int8", f"words and classifiers have 8 bits{by}"))
    if made.get("content_hash"):
        lines.append(("content hash", str(made["content_hash"])))
    for name, value in lines:
        session.say(f"{name:<13} {printable(value)}")
