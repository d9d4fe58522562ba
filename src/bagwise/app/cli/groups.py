"""The command that lists and names groups of words: groups."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._io.locks import EditedFile
from bagwise._io.storage import Url
from bagwise._utils.json_text import parse_json
from bagwise._utils.text import encodable, how_many, shortened, unquote_formula
from bagwise.app.cli.options import LOOK, Force, ModelPath, Raw, command
from bagwise.app.cli.outputs import check_outputs, csv_lines
from bagwise.app.cli.printing import printable
from bagwise.app.cli.session import Session
from bagwise.app.cli.using import load_model
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["groups"]

_SORTS = ("number", "by-class", "size", "weight")
_COLUMNS = ("group", "name", "word", "occurrences", "weight", "class", "class_weight")
# Words of a group, and characters of them and of names, in the overview.
_FIRST_WORDS, _WIDTH, _NAME_WIDTH = 8, 32, 24
# Rows of a table of words; more are for a file.
_MOST_ROWS = 2000


@command(LOOK)
def groups(
    session: Session,
    model: ModelPath,
    group: Annotated[
        list[int] | None, typer.Option("--group", min=0, help="List all words of this group; repeatable.")
    ] = None,
    sort: Annotated[
        str, typer.Option(help="Order of groups: by-class, size (number of words), weight (for their class), number.")
    ] = "number",
    n_groups: Annotated[int | None, typer.Option("--groups", min=1, help="Groups of another cut of the model.")] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option(
            help="New name of a group, such as 3='space flight', or a CSV or JSON file with numbers and names. Writes "
            "the model with these names, or the index that holds it.",
            metavar="N=NAME|FILE",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV or JSON file with all words of all groups; with --rename, the new model.")
    ] = None,
    raw: Raw = False,
    force: Force = False,
) -> None:
    """List the groups of a model, or give them names.

    Lists words, occurrences and weights.
    """
    from bagwise.app.model.editing import rename_edits

    if sort not in _SORTS:
        raise unknown_name("--sort", sort, _SORTS)
    if rename:
        target = model if out is None else out
        check_outputs([target], force)
    elif out is not None:
        if out.suffix.lower() not in (".csv", ".json"):
            raise BagwiseError(f"The name of the list must end in .csv or .json; got {out}.")
        check_outputs([out], force)
    with EditedFile.changing(model) if rename and out is None else nullcontext() as file:
        loaded = load_model(model)
        if n_groups is not None:
            if file is not None and n_groups != loaded.n_groups:
                what = f"The model with names would have {n_groups} groups in place of {loaded.n_groups}"
                raise BagwiseError(f"{what}. Name a new model with --out.")
            loaded = loaded.cut(n_groups)
        index = None if file is None else _index_of(model)
        if index is not None:
            index = index.apply(rename_edits(loaded, _names(rename or (), loaded)))
            loaded = index.model
        elif rename:
            loaded = loaded.rename_groups(_names(rename, loaded))
        described = _sorted(loaded.describe_groups(), sort)
        chosen = described if not group else [described[_place(described, number)] for number in group]
        session.answer(n_groups=loaded.n_groups, groups=[_as_dict(one) for one in chosen])
        if group:
            _print_words(session, chosen)
        else:
            _print_overview(session, chosen, loaded)
        if file is not None:
            file.save(loaded if index is None else index)
            session.wrote(model, "model" if index is None else "index")
        elif rename:
            session.wrote(loaded.save(target), "model")
        elif out is not None:
            _write(out, chosen, raw)
            session.wrote(out, "words")


def _sorted(described: list[Any], sort: str) -> list[Any]:
    """Sort groups; equal ones stay in the order of their numbers."""
    if sort == "size":
        return sorted(described, key=lambda one: -len(one.words))
    if sort == "weight":
        return sorted(described, key=_strength)
    if sort == "by-class":
        return sorted(described, key=lambda one: (one.class_name or "", _strength(one)))
    return described


def _strength(one: Any) -> float:
    """The weight for a class, or else occurrences; the larger come first."""
    return -(one.class_weight if one.class_weight is not None else one.total or 0.0)


def _place(described: list[Any], number: int) -> int:
    numbers = [one.number for one in described]
    if number not in numbers:
        raise BagwiseError(f"--group must be from 0 to {len(described) - 1}, the groups of this model; got {number}.")
    return numbers.index(number)


def _print_overview(session: Session, described: list[Any], model: Any) -> None:
    """Print a line per group."""
    has_classes, has_totals = described[0].class_name is not None, described[0].total is not None
    named = model.word_names is not None
    heads = ["group", "name", "words", *(["occurrences"] if has_totals else [])]
    heads += ["class", "weight"] if has_classes else []
    rows = []
    for one in described:
        name = one.name if one.is_named or not named else shortened(", ".join(one.words[:_FIRST_WORDS]), _WIDTH)
        row: list[object] = [one.number, shortened(name, _WIDTH), f"{len(one.words):,}"]
        row += [f"{one.total:,.0f}"] if has_totals else []
        row += [shortened(one.class_name, _NAME_WIDTH), f"{one.class_weight:.2f}"] if has_classes else []
        rows.append(row)
    session.table(heads, rows)
    n_words = sum(len(one.words) for one in described)
    counted = f"{how_many(n_words, 'words')} in {how_many(len(described), 'groups')}"
    session.say(f"{counted}. All of a group: --group N; of all groups: --out FILE.csv")


def _print_words(session: Session, described: list[Any]) -> None:
    """Print a line per word."""
    for one in described:
        about = (
            f"group {one.number}, {printable(one.name)}: {len(one.words):,} word{'' if len(one.words) == 1 else 's'}"
        )
        if one.class_name is not None:
            about += f", speaks for {printable(one.class_name)} by {one.class_weight:.2f}"
        session.say(about)
        columns = [("word", one.words)]
        if one.occurrences is not None:
            columns.append(("occurrences", [f"{value:,.6g}" for value in one.occurrences]))
        if one.weights is not None:
            columns.append(("weight", [f"{value:.4g}" for value in one.weights]))
        rows = list(zip(*(values[:_MOST_ROWS] for _, values in columns), strict=True))
        session.table([name for name, _ in columns], rows)
        if len(one.words) > _MOST_ROWS:
            session.say(f"and {len(one.words) - _MOST_ROWS:,} more: --out FILE.csv")
        session.say()


def _rows(described: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield a row of `_COLUMNS` for each word."""
    for one in described:
        nothing = [None] * len(one.words)
        for word, n, weight in zip(one.words, one.occurrences or nothing, one.weights or nothing, strict=True):
            yield [one.number, one.name, word, n, weight, one.class_name, one.class_weight]


def _as_dict(one: Any) -> dict[str, Any]:
    """Return a group as JSON values."""
    words = [dict(zip(_COLUMNS[2:5], row[2:5], strict=True)) for row in _rows([one])]
    return {
        "group": one.number,
        "name": one.name,
        "class": one.class_name,
        "class_weight": one.class_weight,
        "words": words,
    }


def _write(path: Path, described: Sequence[Any], raw: bool) -> None:
    from bagwise._io.atomic import write_atomically

    if path.suffix.lower() == ".json":
        write_atomically(path, json.dumps([_as_dict(one) for one in described], indent=1).encode())
        return
    write_atomically(path, csv_lines([_COLUMNS, *_rows(described)], raw))


def _index_of(path: Path) -> Any:
    """Open the index that holds a model; None for the file of a model."""
    from bagwise.app import ItemIndex
    from bagwise.app.model.files import is_item_index

    return ItemIndex.load(path) if not isinstance(path, Url) and is_item_index(path) else None


def _names(renames: Sequence[str], model: Any) -> dict[int, str]:
    """Read new names of groups from options and files; names that a group has already change nothing."""
    names: dict[int, str] = {}
    for one in renames:
        number, sign, name = one.partition("=")
        if sign and number.strip().isdecimal():
            pairs = [(number.strip(), name)]
        elif Path(one).is_file():
            entries = _entries_of(Path(one))
            pairs = [(str(entry["group"]), entry["name"]) for entry in entries]
            _check_words(Path(one), entries, model)
        else:
            raise BagwiseError(f"--rename takes a number and a name, such as 3=NAME, or an existing file; got {one!r}.")
        for key, label in pairs:
            if not key.isdecimal() or len(key) > 9:
                raise BagwiseError(f"Groups in {one:.200} must be numbers from 0, got {key!r:.50}.")
            if names.setdefault(int(key), label) != label:
                raise BagwiseError(f"--rename gives group {key} two names: {names[int(key)]!r} and {label!r}.")
    known = model.group_names()
    return {k: name for k, name in names.items() if not (k < len(known) and known[k] == name)}


def _entries_of(path: Path) -> list[dict[str, Any]]:
    """Read entries with the number and the name of a group: of a JSON object, or of the lists that --out writes."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BagwiseError(f"{path} is not UTF-8: byte {error.start} cannot be read. Save it as UTF-8.") from error
    if path.suffix.lower() == ".json":
        try:
            parsed = parse_json(text)
        except (ValueError, RecursionError) as error:
            raise BagwiseError(f"{path} is no JSON: {error}.") from error
        entries = [{"group": k, "name": v} for k, v in parsed.items()] if isinstance(parsed, dict) else parsed
    else:
        try:
            rows = list(csv.DictReader(io.StringIO(text, newline="")))
        except csv.Error as error:
            raise BagwiseError(f"{path} cannot be read as CSV: {error}.") from error
        entries = [{k: unquote_formula(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows]
    for entry in entries if isinstance(entries, list) else [None]:
        if not isinstance(entry, dict) or entry.get("group") is None or not isinstance(entry.get("name"), str):
            raise BagwiseError(f"{path} must have columns group and name, as the lists of --out, or be a JSON object.")
    return entries


def _check_words(path: Path, entries: list[dict[str, Any]], model: Any) -> None:
    """Raise an error if a list has words of other groups: of another cut, or of another model.

    Most words of a group are enough, since programs for tables change some, such as ``true`` and ``007``.
    """
    listed: dict[str, list[str]] = {}
    for entry in entries:
        rows = entry.get("words")
        some = [row.get("word") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        of_group = listed.setdefault(str(entry["group"]), [])
        of_group.extend(word for word in (entry.get("word"), *some) if isinstance(word, str))
    groups = {str(one.number): set(map(encodable, one.words)) for one in model.describe_groups()}
    for number, words in listed.items():
        n_own = sum(encodable(word) in groups.get(number, ()) for word in words)
        if 2 * n_own < len(words):
            raise BagwiseError(
                f"{path} lists other words for group {number} than this model with {model.n_groups} groups has. Give "
                "the --groups of the list."
            )
