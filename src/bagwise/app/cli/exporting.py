"""The command that writes models for other programs and devices: export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._utils.memory import readable_size
from bagwise._utils.text import how_many, percent
from bagwise.app.cli.models import compacted, size_of
from bagwise.app.cli.options import READ_OPTIONS, USE, Force, Network, command, fit_options
from bagwise.app.cli.outputs import check_outputs
from bagwise.app.cli.printing import printable
from bagwise.app.cli.session import Session
from bagwise.app.cli.using import load_model
from bagwise.errors import BagwiseError

__all__ = ["export"]


@command(USE, READ_OPTIONS)
def export(
    session: Session,
    model: Annotated[Path, typer.Argument(metavar="MODEL|INDEX", help="Model file; with --atlas, an index.")],
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX file: from descriptors or counts to class.")] = None,
    atlas: Annotated[
        Path | None,
        typer.Option(help="Write a Parquet file for Embedding Atlas: items with x, y, label, prediction and text."),
    ] = None,
    texts: Annotated[bool, typer.Option(help="Texts into the file of --atlas.")] = True,
    out: Annotated[
        Path | None, typer.Option(help="Write a model file. Default with --int8 alone: NAME-int8.bagwise.")
    ] = None,
    cpp: Annotated[
        Path | None, typer.Option(help="Write a folder with a C++ program, its model, and how to build it.")
    ] = None,
    embed: Annotated[bool, typer.Option("--embed", help="--cpp: the model as an array instead of a file.")] = False,
    int8: Annotated[bool, typer.Option("--int8", help="Round words and classifiers to 8-bit integers.")] = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="This cut only, hashes instead of words: the smallest file.")
    ] = False,
    embed_network: Annotated[
        bool, typer.Option("--embed-network", help="--out: with a copy of the network that describes images, 5.9 MB.")
    ] = False,
    network: Network = None,
    evaluate: Annotated[
        Path | None,
        typer.Option(help="Labelled items on which to measure what --int8 and --compact lose.", metavar="SOURCE"),
    ] = None,
    force: Force = False,
    **options: Any,
) -> None:
    """Write a model for other programs and devices.

    As an ONNX graph, a C++ program, or a file with 8-bit numbers; an index as a map.
    """
    from bagwise.app.modalities import MODALITIES

    if atlas is not None:
        if not (onnx is out is cpp is evaluate is None) or int8 or compact or embed:
            raise BagwiseError("--atlas writes the map of an index, and no model: give it alone.")
        _write_atlas(session, model, atlas, texts, force)
        return
    if int8 and out is cpp is onnx is None:
        out = model.with_name(f"{model.name.removesuffix('.bagwise')}-int8.bagwise")
    _check_options(onnx, out, cpp, embed=embed, smaller=int8 or compact, evaluate=evaluate)
    if embed_network and out is None:
        raise BagwiseError("--embed-network is for a model file: give its name by --out FILE.")
    check_outputs([onnx], force, "--onnx")
    check_outputs([out], force)
    if cpp is not None:
        from bagwise._io.atomic import check_folder

        check_folder(cpp, force)
    if onnx is not None:
        from bagwise._utils.extras import require

        require("onnx", "network", "Exporting")
    loaded = load_model(model, network)
    if embed_network:
        loaded = loaded.embed_network()
    written = loaded
    if out is not None or cpp is not None:
        if cpp is not None:
            from bagwise.app.model.edge import for_devices

            for_devices(loaded)
        written = compacted(session, loaded) if compact else loaded.trim()
        written = written.quantize() if int8 else written
        if int8 or (compact and MODALITIES[loaded.modality].hashes_words):  # the others are as they were
            _tell_loss(session, loaded, written, evaluate, options)
    if onnx is not None:
        from bagwise.app.model.onnx import export_onnx

        export_onnx(loaded, onnx)
        session.wrote(onnx, "onnx")
    if out is not None:
        before = size_of(model)  # which `out` may replace
        written.save(out)
        session.say(f"{readable_size(before)} before, {readable_size(size_of(out))} now")
        session.answer(bytes_before=before, bytes_after=size_of(out))
        session.wrote(out, "model")
    if cpp is not None:
        from bagwise.app.model.edge import export_cpp

        session.wrote(export_cpp(written, cpp, embed=embed, force=force), "cpp")


def _write_atlas(session: Session, index: Path, path: Path, texts: bool, force: bool) -> None:
    """Write the map of an index."""
    from bagwise.app.index.atlas import write_atlas
    from bagwise.app.index.item_index import ItemIndex

    check_outputs([path], force, "--atlas")
    write_atlas(ItemIndex.load(index), path, texts=texts)
    session.wrote(path, "atlas")


def _check_options(
    onnx: Path | None,
    out: Path | None,
    cpp: Path | None,
    *,
    embed: bool,
    smaller: bool,
    evaluate: Path | None,
) -> None:
    """Raise an error for options that do not go together."""
    if onnx is out is cpp is None:
        raise BagwiseError("Say what to write: --onnx, --out, --cpp or --int8 of a model, --atlas of an index.")
    if onnx is not None and out is cpp is None and smaller:
        raise BagwiseError("--int8 and --compact are for --out and --cpp; ONNX graphs have all numbers in float32.")
    if embed and cpp is None:
        raise BagwiseError("--embed is for --cpp: give a folder by --cpp DIR.")
    if evaluate is not None and not smaller:
        raise BagwiseError(
            "--evaluate measures what --int8 or --compact lose; give one of them. The error of a model as it is: "
            "bagwise evaluate MODEL SOURCE"
        )


def _tell_loss(session: Session, before: Any, after: Any, source: Path | None, options: dict[str, Any]) -> None:
    """Measure and print what rounding loses on labelled items; without items, say that it was not measured."""
    moved = after.provenance.get("int8", {}) if after.quantized else {}
    session.answer(**({"int8": moved} if moved else {}))
    if moved and after.codebooks:
        session.say(f"int8: words moved by up to {100 * moved['word_error']:.2g} % of their length.")
    if source is None:
        session.say("The loss of accuracy was not measured. Give labelled items by --evaluate SOURCE.")
        session.answer(loss=None)
        return
    if before.n_groups not in before.heads:
        raise BagwiseError(
            f"--evaluate needs a classifier for {before.n_groups} groups, which this model does not have. Cut it where "
            "it has one, or leave --evaluate out."
        )
    import numpy as np

    from bagwise.app import evaluate_model

    chosen = fit_options(options).to_dict()
    whole = evaluate_model(before, source, progress=session.progress, **chosen)
    small = evaluate_model(after, source, progress=session.progress, **chosen)
    wrong, now = (one.at(m.n_groups) != one.codes for one, m in ((whole, before), (small, after)))
    changed = int((whole.at(before.n_groups) != small.at(after.n_groups)).sum())
    loss = np.subtract(now, wrong, dtype=np.int64)
    points, deviation = 100 * loss.mean(), 100 * loss.std() / np.sqrt(len(loss))
    about = whole.about_seen(before)
    if about is not None:
        session.say(printable(about))
    session.say(
        f"Error on {how_many(len(loss), before.modality)}: {percent(wrong.mean())} before, {percent(now.mean())} now: "
        f"{points:+.2f} points (standard error {deviation:.2f}), {changed:,} predictions differ."
    )
    told = {"n_items": len(loss), "error_before": float(wrong.mean()), "error_after": float(now.mean())}
    session.answer(loss={**told, "points": points, "standard_error": deviation, "n_changed": changed})
