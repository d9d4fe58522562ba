"""The command that says why an item gets its class: explain."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from bagwise._io.storage import Url
from bagwise._utils.text import how_many, percent, shortened
from bagwise.app.cli.answering import AnyModelPath, Groups, check_texts, row_of
from bagwise.app.cli.options import READ_OPTIONS, USE, Force, Network, Page, Row, command, fit_options, source_path
from bagwise.app.cli.outputs import check_page
from bagwise.app.cli.printing import printable
from bagwise.app.cli.session import Session
from bagwise.app.cli.using import load_model
from bagwise.errors import BagwiseError, unknown_name

__all__ = ["explain"]

_SHOWN_TEXT, _SHOWN_NAME, _SHOWN_TITLE, _SHOWN_GROUP = 2000, 60, 40, 40
_SHOWN_CHANGES = 8
_UNSEEN = "a model that has not seen this item"
# Styles of marks from 1 to 4, for a class and against it.
_FOR = ("", "green", "bold green", "black on green", "bold black on bright_green")
_AGAINST = ("", "red", "bold red", "white on red", "bold white on bright_red")


@command(USE, READ_OPTIONS)
def explain(
    session: Session,
    model: AnyModelPath,
    source: Annotated[
        Path | None,
        typer.Argument(metavar="ITEM", help="An item, or a source of items with --item or --row.", parser=source_path),
    ] = None,
    item: Annotated[str | None, typer.Option("--item", help="Id of an item of the source.", metavar="ID")] = None,
    query_text: Annotated[str | None, typer.Option("--query-text", "-t", help="A text.", metavar="TEXT")] = None,
    row: Row = None,
    class_name: Annotated[
        str | None, typer.Option("--class", help="Explain the score of this class. Default: the predicted one.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Groups, and words or columns, that are listed.")] = 10,
    groups: Groups = None,
    network: Network = None,
    page: Page = None,
    force: Force = False,
    **options: Any,
) -> None:
    """Explain why an item gets its class.

    Prints the words, patches or columns that decide, and what adds up to the score. An item of an index is explained by
    the model that has answered for it, without having seen it; a wrong answer against the true class.
    """
    from bagwise.app import FitOptions
    from bagwise.app.modalities import MODALITIES
    from bagwise.app.training.answers import with_classifier

    if page is not None:
        check_page(page, force)
    loaded, index = _opened(model, network)
    chosen = fit_options(options)
    if index is not None and source is None and item is not None and index.source:
        source, chosen = source_path(index.source), FitOptions.from_mapping(index.reading)
    if (source is None) == (query_text is None):
        raise BagwiseError("Give one item: a file, a source with --item or --row, or --query-text for a text.")
    if query_text is not None and (item is not None or row is not None):
        raise BagwiseError("--query-text is an item by itself. Leave out --item and --row.")
    loaded = with_classifier(loaded, groups)
    if class_name is not None and class_name not in loaded.classes:
        raise unknown_name("--class", class_name, loaded.classes)
    title: str
    label: str | None = None
    target: Any = query_text
    content: Any = query_text
    if query_text is not None:
        check_texts(loaded, [query_text])
        title = shortened(query_text, _SHOWN_NAME) or "empty text"
    else:
        assert source is not None
        target = _chosen(loaded, source, item, row, chosen)
        title = f"{source.name}: {target.id}" if MODALITIES[loaded.modality].rows else target.id
        label = target.labels[0] if target.labels else None
        content = MODALITIES[loaded.modality].shown(target)
    fold = None
    if index is not None and query_text is None and target.id in index.ids:
        fold = index.answered_by(index.ids.index(target.id), groups)
    loaded = loaded if fold is None else fold
    explanation = loaded.explain(target)
    wrong = class_name is None and label in loaded.classes and label != explanation.predicted
    against = label if wrong else None
    if not explanation.terms.words.size:
        session.note("The item has no word of the vocabulary: its scores are the intercepts.")
    session.answer(**explanation.to_dict(), held_out=fold is not None)
    if class_name is not None or against is not None:
        session.answer(explained=explanation.to_dict(class_name or explanation.predicted, against))
    shown = class_name or explanation.predicted
    _print(session, explanation, title, label, content, shown, against, top, fold is not None)
    if page is None and MODALITIES[loaded.modality].pictured and content is not None:
        session.say("--page FILE draws all of them over the image.")
    if page is not None:
        from bagwise.app.report import write_explanation

        facts = {"Model": model.name, "Groups": str(loaded.n_groups), "Classes": str(len(loaded.classes))}
        facts |= {} if fold is None else {"Explained by": _UNSEEN}
        shown_as: dict[str, Any] = {"content": content, "label": label, "class_name": class_name, "against": against}
        written = write_explanation(explanation, page, title=title, facts=facts, **shown_as)
        session.wrote(written, "page")


def _opened(path: Path, network: Path | None) -> tuple[Any, Any]:
    """Return a model, and the index that holds it, if there is one."""
    from bagwise.app import ItemIndex
    from bagwise.app.model.files import is_item_index

    if isinstance(path, Url) or not path.exists() or not is_item_index(path):
        return load_model(path, network), None
    index = ItemIndex.load(path, network=network)
    return index.model, index


def _chosen(model: Any, path: Path, id: str | None, row: int | None, options: Any) -> Any:
    """Return the one item that is meant."""
    from bagwise.app.modalities import MODALITIES
    from bagwise.app.training.items import open_items

    collection = open_items(model, path, options)
    if id is not None and row is not None:
        raise BagwiseError("Give --item or --row, not both.")
    if id is not None:
        ids = collection.ids
        if id not in ids:
            near = get_close_matches(id, ids, 3) or ids[:3]
            raise BagwiseError(f"{path} has no item {id!r}. Some of its {len(ids)} ids: {', '.join(map(repr, near))}.")
        return collection[ids.index(id)]
    if row is not None:
        return row_of(collection, row, path)[0]
    if len(collection) == 1:
        return collection[0]
    also = " or --row" if MODALITIES[collection.modality].rows else ""
    some = ", ".join(map(repr, collection.ids[:3]))
    raise BagwiseError(f"{path} holds {len(collection)} items. Choose one by --item{also}; ids are {some}, …")


def _print(
    session: Session,
    explanation: Any,
    title: str,
    label: str | None,
    content: Any,
    shown: str,
    against: str | None,
    top: int,
    held_out: bool,
) -> None:
    from bagwise.display.texts import rounded_sums

    sure = "" if explanation.probability is None else f", probability {percent(explanation.probability)}"
    session.say(f"{printable(shortened(title, _SHOWN_TITLE))}: {printable(explanation.predicted)}{sure}")
    then = f"{explanation.score:.3f} against {explanation.runner_up_score:.3f} of {printable(explanation.runner_up)}"
    session.say(f"score {then}, margin {explanation.margin:.3f}")
    if label is not None:
        session.say(f"true class: {printable(label)}")
    if held_out:
        session.say(f"answered and explained by {_UNSEEN}, at {how_many(explanation.model.n_groups, 'groups')}")
    for line in _changes(explanation):
        session.say(line)
    session.say()
    places = explanation.places(shown, against)
    marks = shown if against is None else f"{shown} less {against}"
    if isinstance(content, str) and content:
        session.show(_marked(content, places))
        session.say()
    other = against or (explanation.runner_up if shown == explanation.predicted else explanation.predicted)
    rows = [
        *rounded_sums(explanation, top, shown, against),
        ("score", explanation.score_of(shown), explanation.score_of(other)),
    ]
    session.table(
        ["adds to the score", shown, other],
        [[shortened(name, _SHOWN_GROUP), *(f"{value:+.3f}" for value in values)] for name, *values in rows],
    )
    session.say()
    if places and hasattr(places[0], "value"):
        best = sorted(places, key=lambda column: -abs(column.weight))[:top]
        session.table(["column", "value", marks], [[p.name, f"{p.value:g}", f"{p.weight:+.3f}"] for p in best])
    elif isinstance(content, str) and places:
        words = _words(content, explanation, shown, against, places)
        session.table(["word", marks], [[name, f"{weight:+.3f}"] for name, weight in words[:top]])
    elif places:
        best = sorted(places, key=lambda patch: -abs(patch.weight))[:top]
        numbers = [[f"{p.x:.0f}", f"{p.y:.0f}", f"{p.side:.0f}", f"{p.weight:+.4f}"] for p in best]
        networks = any(one.regions for one in explanation.model.descriptors)
        session.table([f"{'region' if networks else 'patch'} at x", "y", "side", marks], numbers)


def _changes(explanation: Any) -> list[str]:
    """Say what would change the answer: words to leave out, or columns to move."""
    from bagwise.app.modalities import MODALITIES

    moves = explanation.moves()
    if moves:
        return [
            f"would be {printable(move.becomes)} if {printable(shortened(move.name, _SHOWN_NAME))} were {move.to:.6g}, "
            f"not {move.value:.6g}"
            for move in moves
        ]
    change = explanation.changes()
    if change is None:
        return []
    if explanation.word_names is None:
        return [f"would be {printable(change.becomes)} without {len(change.removed)} of its words"]
    names = [printable(shortened(one.name, _SHOWN_NAME)) for one in change.removed]
    rest = len(names) - _SHOWN_CHANGES
    more = f" and {rest} more words" if rest > 0 else ""
    if MODALITIES[explanation.model.modality].rows:
        return [f"would be {printable(change.becomes)} with {', '.join(names[:_SHOWN_CHANGES])}{more} at their least"]
    return [f"would be {printable(change.becomes)} without {', '.join(names[:_SHOWN_CHANGES])}{more}"]


def _words(text: str, explanation: Any, shown: str, against: str | None, places: Any) -> list[tuple[str, float]]:
    """Return words with their contributions; those of compact models, which have no names, as they are written."""
    sums: dict[str, float] = {}
    if explanation.word_names is not None:
        terms = [(term.name, term.contribution) for term in explanation.words(shown, against)]
    else:
        terms = [(text[start:end].lower(), weight) for start, end, weight in places]
    for name, weight in terms:
        sums[name] = sums.get(name, 0.0) + weight
    return sorted(sums.items(), key=lambda one: -abs(one[1]))


def _marked(text: str, spans: Any) -> Any:
    """Return a text with colours, shortened if it is long."""
    from rich.text import Text

    from bagwise.app.report.explained import marked_text

    marked = Text()
    for piece, mark in marked_text(text, spans):
        rest = _SHOWN_TEXT - len(marked)
        if rest <= 0:
            break
        shown = piece[:rest].replace("\r\n", "\n").expandtabs(4)
        lines = "\n".join(printable(line) for line in shown.split("\n"))
        marked.append(lines, _FOR[mark] if mark >= 0 else _AGAINST[-mark])
    if len(text) > _SHOWN_TEXT:
        marked.append(" … (--page FILE shows all)")
    return marked
