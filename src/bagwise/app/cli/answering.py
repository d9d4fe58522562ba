"""Commands for the classes of items: predict."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._io.atomic import open_atomically
from bagwise._utils.extras import require
from bagwise._utils.text import encodable, how_many, percent, ranges, shortened
from bagwise.app.cli.options import (
    READ_OPTIONS,
    USE,
    Force,
    Lines,
    Network,
    QueryText,
    Raw,
    Row,
    command,
    fit_options,
    source_path,
)
from bagwise.app.cli.outputs import check_outputs, csv_lines
from bagwise.app.cli.printing import fit_last
from bagwise.app.cli.session import Session
from bagwise.app.cli.using import STANDARD_STREAM, load_model, tell_of, with_standard_input
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["AnyModelPath", "predict"]

AnyModelPath = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="Model file or its URL, or an index, which holds one.", parser=source_path),
]
Groups = Annotated[int | None, typer.Option("--groups", min=1, help="Another number of groups.")]

_FORMATS = ("table", "csv", "jsonl", "parquet")
_ENDINGS = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet"}
_NUMBERS = ("score", "margin", "probability")  # columns
_NAMED = 3  # items in a note
_SHOWN = 60  # characters of an id on the terminal


@command(USE, READ_OPTIONS)
def predict(
    session: Session,
    model: AnyModelPath,
    source: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="SOURCE",
            help="Folder, archive, file of records, table, or single items. -: a text from standard input.",
            parser=source_path,
        ),
    ] = None,
    query_text: QueryText = None,
    lines: Lines = False,
    row: Row = None,
    out: Annotated[
        Path | None, typer.Option(help="File of answers: .csv, .jsonl or .parquet; - for standard output.")
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="On standard output: table, csv or jsonl. Default: table; csv in a pipe with -.")
    ] = None,
    raw: Raw = False,
    groups: Groups = None,
    min_probability: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Give no class where its probability is below this.", metavar="P"),
    ] = None,
    show: Annotated[str | None, typer.Option(help="text: show the text of each item, too.", metavar="text")] = None,
    network: Network = None,
    force: Force = False,
    **options: Any,
) -> None:
    """Predict the classes of items.

    Prints scores, runners-up and, after cross-validation, probabilities.
    """
    from bagwise.app.training.answers import with_classifier

    kind = _format_of(out, format, as_json=session.as_json)
    if not source and not query_text:
        raise BagwiseError("There is nothing to predict. Give a source or an item, or --query-text for a text.")
    if row is not None and not source:
        raise BagwiseError("--row chooses a row of a table, but there is none. Give the table as SOURCE.")
    to_file = out is not None and out != STANDARD_STREAM
    if to_file:
        check_outputs([out], force)
    chosen, reading = with_classifier(load_model(model, network, source or []), groups), fit_options(options)
    paths, texts = with_standard_input(chosen, source or [], query_text or [], lines, reading)
    shown = _Shown.of(chosen, show, min_probability)
    counts: Counter[str] = Counter()
    n_items = 0
    kept: list[dict[str, Any]] = []  # for one JSON object
    with _writing(kind, out if to_file else None, shown, session, raw) as write:
        for batch in _answers(session, chosen, paths, texts, row, reading, shown.text):
            n_items += len(batch)
            counts.update(answer.predicted for answer in batch if not shown.abstains(answer))
            if session.as_json and not to_file:
                kept += map(shown.record, batch)
            else:
                write(batch)
    session.progress.clear()
    session.answer(n_items=n_items, n_groups=chosen.n_groups, classes=dict(counts.most_common()))
    if not to_file:
        session.answer(answers=kept)
    else:
        session.say(f"{how_many(n_items, chosen.modality)} of {how_many(len(counts), 'predicted classes')}")
        session.table(["items", "class"], [(n, name) for name, n in counts.most_common()])
    if min_probability is not None:
        n_abstained = n_items - sum(counts.values())
        session.answer(n_abstained=n_abstained)
        session.say(
            f"{how_many(n_abstained, chosen.modality)} of {n_items:,} without a class: its probability is below "
            f"{percent(min_probability)}"
        )
    if to_file and out is not None:
        session.wrote(out, "answers")


def _format_of(out: Path | None, wanted: str | None, *, as_json: bool) -> str:
    """Return the format of the answers: as given, or by the ending of the file."""
    if wanted is not None and wanted not in _FORMATS[:3]:
        raise unknown_name("--format", wanted, _FORMATS[:3])
    if out is not None and out != STANDARD_STREAM:
        kind = _ENDINGS.get(out.suffix.lower())
        if kind is None:
            raise BagwiseError(f"The name of the file of answers must end in {', '.join(_ENDINGS)}; got --out {out}.")
        if wanted not in (None, kind):
            raise BagwiseError(f"--out {out} says {kind}, but --format {wanted}. Give one of them.")
        if kind == "parquet":
            require("pyarrow.parquet", "app", "Writing Parquet files")
        return kind
    if as_json and (wanted is not None or out is not None):
        raise BagwiseError("--json prints one object with all answers. Leave out --format and --out -.")
    if wanted is not None:
        return wanted
    return "csv" if out is not None and not sys.stdout.isatty() else "table"


def _answers(
    session: Session,
    model: Any,
    paths: Sequence[Path],
    texts: Sequence[str],
    row: int | None,
    options: Any,
    with_text: bool,
) -> Iterator[list[Any]]:
    """Yield the answers of texts and of the items of sources in batches, and note what could not be read."""
    from bagwise.app.training.answers import Answers, answers_of
    from bagwise.app.training.items import open_items

    without: list[str] = []
    n_skipped = n_seen = n_compared = 0
    if texts:
        check_texts(model, texts)
        histograms = model.histograms(list(texts))
        without += [texts[k] for k in (abs(histograms).sum(axis=1) == 0).nonzero()[0]]
        yield [answer._replace(text=answer.id) for answer in answers_of(model, list(texts), histograms)]
    for path in paths:
        collection = open_items(model, path, options)
        if row is not None:
            collection = row_of(collection, row, path)
        answers = Answers(model, collection, options, session.progress, with_text)
        named = _names_of(path, collection, alone=len(paths) == 1)
        for batch in answers:
            yield [answer._replace(id=named(answer.id)) for answer in batch]
        n_skipped += len(collection.skipped) + len(answers.skipped)
        tell_of(session, collection, answers.skipped)
        n_seen, n_compared = n_seen + answers.n_seen, n_compared + answers.n_compared
        without += map(named, answers.without_words)
    if without:
        more = ", …" if len(without) > _NAMED else ""
        some = ", ".join(repr(shortened(id, 60)) for id in without[:_NAMED])
        items = "1 item" if len(without) == 1 else f"{len(without)} items"
        session.note(f"{items} without any word of the vocabulary, predicted by the intercept alone: {some}{more}.")
    if n_seen:
        items = "1 item" if n_compared == 1 else f"{n_compared:,} items"
        about = f"Exactly in the training data: {n_seen:,} of {items} that can be compared."
        session.note(f"{about} Answers for new items are less certain.")
    seen = {"n_training_items": n_seen, "n_compared": n_compared}
    session.answer(n_skipped=n_skipped, n_without_words=len(without), **seen)


def _names_of(path: Path, collection: Any, *, alone: bool) -> Callable[[str], str]:
    """Return how the items of one of several sources are named."""
    from bagwise.app.modalities import MODALITIES

    if alone:
        return lambda id: id
    return lambda id: (
        str(path) if len(collection) == 1 and not MODALITIES[collection.modality].rows else f"{path}: {id}"
    )


def check_texts(model: Any, texts: Sequence[str]) -> None:
    """Raise an error for texts on the command line if the model takes other items."""
    from bagwise.app.modalities import MODALITIES

    if texts and not MODALITIES[model.modality].readable:
        raise BagwiseError(f"--query-text is for models of texts, but this one takes {model.modality}. Give a file.")


def row_of(collection: Any, row: int, path: Path) -> Any:
    """Return a collection of one row of a table."""
    from bagwise.app.modalities import MODALITIES

    if not MODALITIES[collection.modality].rows:
        raise BagwiseError(f"--row is for tables, but {path} holds {collection.modality}.")
    if row >= len(collection):
        raise BagwiseError(f"--row must be from 0 to {len(collection) - 1} for {path}, got {row}.")
    return collection[[row]]


@dataclass(frozen=True)
class _Shown:
    """What answers are shown with: a probability if the model has one, `text`, and a class if that is probable."""

    probability: bool
    text: bool
    least: float | None  # probability

    @classmethod
    def of(cls, model: Any, show: str | None, least: float | None) -> _Shown:
        """Check what is asked for."""
        from bagwise.app.modalities import MODALITIES

        if show not in (None, "text"):
            raise unknown_name("--show", show, ("text",))
        if show is not None and not MODALITIES[model.modality].readable:
            raise BagwiseError(f"--show text is for texts, but this model takes {model.modality}. Leave it out.")
        calibrated = model.n_groups in model.calibration
        if least is not None and not calibrated:
            sizes = f"It has some for {ranges(model.calibration)} groups, see --groups." if model.calibration else ""
            raise BagwiseError(
                "--min-probability needs probabilities, which come from cross-validation, but this model has none with "
                f"{model.n_groups} groups. {sizes or 'Fit it with --folds 5, or leave --min-probability out.'}"
            )
        return cls(calibrated, show is not None, least)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of columns."""
        likely = ("most_likely",) if self.least is not None else ()
        others = (*(["probability"] if self.probability else []), *(["text"] if self.text else []))
        return ("id", "class", *likely, "score", "runner_up", "margin", *others)

    def abstains(self, answer: Any) -> bool:
        """Whether no class is given, because its probability is too low."""
        return self.least is not None and answer.probability < self.least

    def record(self, answer: Any) -> dict[str, Any]:
        """Return an answer by the names of columns."""
        values = answer._asdict()
        values["class"] = None if self.abstains(answer) else answer.predicted
        values["most_likely"] = answer.predicted
        return {name: values[name] for name in self.names}

    def cells(self, answer: Any) -> list[str]:
        """Return an answer as cells of a table on the terminal."""
        cells = self.record(answer)
        cells |= {name: f"{cells[name]:.3f}" for name in ("score", "margin")}
        cells |= {"id": shortened(answer.id, _SHOWN)} | ({"text": " ".join(answer.text.split())} if self.text else {})
        cells |= {"class": "–"} if self.abstains(answer) else {}
        cells |= {"probability": percent(answer.probability)} if self.probability else {}
        return list(cells.values())


@contextmanager
def _writing(
    kind: str, path: Path | None, shown: _Shown, session: Session, raw: bool
) -> Iterator[Callable[[Any], Any]]:
    """Yield a function that takes batches of answers, for a file or for standard output; `raw` as in `csv_lines`."""
    if path is not None:
        with open_atomically(path, private=True) as file:
            if kind == "parquet":
                with _ParquetRows(file, shown) as write:
                    yield write
            else:
                yield _AnswerLines(kind, shown, file.write, raw)
    elif kind == "table":
        rows: list[list[str]] = []
        yield lambda batch: rows.extend(map(shown.cells, batch))
        heads = ["item", *(name.replace("_", "-") for name in shown.names[1:])]
        session.table(heads, fit_last(heads, rows) if shown.text else rows)
    else:
        yield _AnswerLines(kind, shown, partial(typer.echo, nl=False), raw)


class _AnswerLines:
    """Writes answers as lines of CSV or JSON."""

    def __init__(self, kind: str, shown: _Shown, write: Callable[[bytes], Any], raw: bool) -> None:
        self._kind, self._shown, self._write, self._raw = kind, shown, write, raw
        if kind == "csv":
            write(csv_lines([shown.names]))

    def __call__(self, batch: list[Any]) -> None:
        records = map(self._shown.record, batch)
        if self._kind == "jsonl":
            self._write("".join(f"{json.dumps(record)}\n" for record in records).encode())
            return
        told = ([f"{v:.9g}" if isinstance(v, float) else v for v in record.values()] for record in records)
        self._write(csv_lines(told, self._raw))


class _ParquetRows:
    """Writes batches of answers as row groups of a Parquet file."""

    def __init__(self, file: Any, shown: _Shown) -> None:
        self._arrow = require("pyarrow", "app", "Writing Parquet files")
        parquet = require("pyarrow.parquet", "app", "Writing Parquet files")
        text, number = self._arrow.string(), self._arrow.float64()
        kinds = {name: number if name in _NUMBERS else text for name in shown.names}
        self._record, self._schema = shown.record, self._arrow.schema(list(kinds.items()))
        self._writer = parquet.ParquetWriter(file, self._schema)

    def __enter__(self) -> _ParquetRows:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def __call__(self, batch: list[Any]) -> None:
        columns = zip(*(self._record(answer).values() for answer in batch), strict=True)
        encoded = [[encodable(value) if isinstance(value, str) else value for value in column] for column in columns]
        self._writer.write_table(self._arrow.table(encoded, schema=self._schema))
