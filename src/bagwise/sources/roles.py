"""Which columns of a table hold texts, labels, ids and the like: the one matcher of names of columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bagwise.errors import BagwiseError, argument, in_python

__all__ = [
    "SPLIT_FOLDERS",
    "USUAL",
    "Roles",
    "assign_roles",
    "column_of",
    "columns_of",
    "cut_name",
    "few_values",
    "is_missing",
]
__all__ += ["like_labels", "likely_note", "named_like_labels", "numbers_rows", "shortened", "split_name"]
__all__ += ["taken_note", "unused_note"]

# Folders that divide a collection rather than name a class.
SPLIT_FOLDERS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLIT_FOLDERS |= dict.fromkeys(("val", "valid", "validation", "dev"), "validation")

# Names of the columns of each role, in lower case: the first that is there is taken.
USUAL: dict[str, tuple[str, ...]] = {
    "text": ("text", "body", "content", "document"),
    "image": ("image", "img"),
    "label": ("label", "labels", "class", "category", "target"),
    "id": ("id",),
    "split": ("split",),
    "url": ("url", "uri"),
    "offset": ("offset",),
    "size": ("size",),
}
# Names of columns that may hold labels, and of those that number or name the rows.
_LIKE_LABEL = re.compile(
    r"(.*[_ .-])?(labels?|class(es)?|category|target|digit|group|species|type|kind|outcome|diagnosis|response|result|"
    r"sentiment|emotion|polarity|intent|topic|genre|ratings?|stars?|score|grade|quality|y)"
)
_ROW_NUMBER = re.compile(r"|unnamed: \d+|index|ids?|row|row[_ ]?(id|names?|number)|__index_level_\d+__")
# A column of labels has at most so many values, each of them so often in the mean; a longer value is a text.
_MOST_VALUES, _TIMES, _LONGEST = 50, 2, 100
# Values that are looked at for long strings; their length in the mean, and spaces in each.
_SAMPLE, _LONG, _SPACES = 1000, 20, 2
_NOTHING: Mapping[str, str] = {}
# Characters of a name in a message, names in a list, and in a choice.
_SHOWN, _LISTED, _NAMED = 40, 20, 5


@dataclass(frozen=True)
class Roles:
    """The columns of each role that was asked for (none, one, or several of texts), and those without a role.

    `notes` say which columns were taken by their values, or may hold the labels.
    """

    columns: dict[str, tuple[str, ...]]
    unused: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, role: str) -> str | None:
        """Return the column of a role, the first one of several; None if there is none."""
        return next(iter(self.columns[role]), None)


def assign_roles(
    names: Sequence[str],
    chosen: Mapping[str, str | Sequence[str] | None],
    *,
    usual: Mapping[str, Sequence[str]] = USUAL,
    values: Callable[[str], Iterable[Any]] | None = None,
    words: Collection[str] = (),
    labelled: bool = False,
    unread: Mapping[str, str] = _NOTHING,
) -> Roles:
    """Find the columns of texts, labels, ids and other roles in a table, a manifest or a file of labels.

    1. Columns that were chosen by name: exactly, otherwise the only one whose name differs in case and in spaces
       around it. Tables without a line of names have the names 1, 2, 3, … which choose columns by number.
    2. For other roles the columns of usual names, likewise in any case, unless they are `words`.
    3. With `values`, which gives those of a column by its name: the only column of long strings is the text. Unless
       there is no text, or items are `labelled` from elsewhere, the only other column of few values (at most 50, each
       twice in the mean) is the label; `notes` say so. If several have few values, `notes` name them.

    A column has one role at most. An error, the second half of a sentence, if there is no column of a chosen name, or
    if it, or the only one of a usual name, is `unread`: such as nested ones, by what they hold.

    >>> roles = assign_roles(["Message", "Label", "n"], {"text": "message", "label": None, "id": None})
    >>> roles["text"], roles["label"], roles["id"], roles.unused
    ('Message', 'Label', None, ('n',))
    """
    columns: dict[str, tuple[str, ...]] = {}
    for role, wanted in chosen.items():
        several = () if wanted is None else (wanted,) if isinstance(wanted, (str, int)) else tuple(wanted)
        _refuse_unread(role, (column_of(str(name), unread) for name in several if str(name) not in names), unread)
        columns[role] = tuple(_chosen_column(str(name), names) for name in several)
    taken = {name for some in columns.values() for name in some} | set(words)
    for role in chosen:
        name = None if columns[role] else _usual_column(usual.get(role, ()), names, taken)
        if name is not None:
            columns[role] = (name,)
            taken.add(name)
    notes: list[str] = []
    left = [name for name in names if name not in taken]
    if values is not None:
        if not columns.get("text", ("",)):
            columns["text"] = _long_column(left, values, notes)
            left = [name for name in left if name not in columns["text"]]
        if columns.get("text", ("",)) and chosen.get("label", "") is None and not labelled:
            columns["label"] = _label_column(columns["label"], left, values, notes)
    for role in chosen:
        if not columns[role] and not (role == "label" and labelled):
            _refuse_unread(role, (_usual_column(usual.get(role, ()), unread, ()),), unread)
    taken = {name for some in columns.values() for name in some}
    return Roles(columns, tuple(name for name in names if name not in taken and name not in words), tuple(notes))


def _refuse_unread(role: str, names: Iterable[str | None], unread: Mapping[str, str]) -> None:
    for name in filter(None, names):
        what = f"column {cut_name(name)!r} holds {unread[name]}, which are not read"
        raise BagwiseError(f"{what}. Choose another one by {argument(role)}, or remove it")


def _chosen_column(wanted: str, names: Sequence[str]) -> str:
    name = column_of(wanted, names)
    if name is None:
        numbered = bool(names) and list(names) == [str(k + 1) for k in range(len(names))]
        how = f", numbers; {in_python('header=True', '--header')} takes the first line for names" if numbered else ""
        raise BagwiseError(f"there is no column {cut_name(wanted)!r}; there are {shortened(names)}{how}")
    return name


def column_of(wanted: str, names: Collection[str]) -> str | None:
    """Return the column of this name, or the only one whose name differs in case and spaces around it.

    >>> column_of("message", ["Message", "Label"]), column_of("a", ["A", "a "])
    ('Message', None)
    """
    if wanted in names:
        return wanted
    alike = [name for name in names if _plain(name) == _plain(wanted)]
    return alike[0] if len(alike) == 1 else None


def columns_of(wanted: str, names: Collection[str]) -> tuple[str, ...] | None:
    """Return the column of this name, or all columns of several names with commas between them; None if one is missing.

    >>> columns_of("title, body", ["Title", "body"]), columns_of("a,b", ["a,b"]), columns_of("a,c", ["a"])
    (('Title', 'body'), ('a,b',), None)
    """
    whole = column_of(wanted, names)
    matches = [whole] if whole is not None else [column_of(one.strip(), names) for one in wanted.split(",")]
    known = [name for name in matches if name is not None]
    return tuple(known) if len(known) == len(matches) else None


def _usual_column(known: Iterable[str], names: Iterable[str], others: Collection[str]) -> str | None:
    """Return the column with the first of the known names, in any case; of several alike the exact name first."""
    left = [name for name in names if name not in others]
    for usual in known:
        alike = [name for name in left if _plain(name) == usual]
        if alike:
            return usual if usual in alike else alike[0]
    return None


def _plain(name: str) -> str:
    return name.strip().casefold()


def _long_column(names: Sequence[str], values: Callable[[str], Iterable[Any]], notes: list[str]) -> tuple[str, ...]:
    """Return the only column of long strings, if there is one, and say so."""
    long = list(islice((name for name in names if _are_long(values(name))), 2))
    if len(long) != 1:
        return ()
    other = f"; {argument('text')} chooses another one" if len(names) > 1 else ""
    notes.append(f"Texts are in the column {cut_name(long[0])!r}, the only one with long strings{other}.")
    return (long[0],)


def _are_long(values: Iterable[Any]) -> bool:
    """Whether values are long strings: most differ, and most have several words, or letters beyond ASCII."""
    some: list[str] = []
    for value in islice(values, _SAMPLE):
        if isinstance(value, str):
            some.append(value.strip())
        elif not is_missing(value):
            return False
    some = [text for text in some if text]
    if not some or 2 * len(set(some)) <= len(some) or sum(map(len, some)) < _LONG * len(some):
        return False
    worded = sum(text.count(" ") >= _SPACES or (" " not in text and not text.isascii()) for text in some)
    return 2 * worded > len(some)


def _label_column(
    named: tuple[str, ...], names: Sequence[str], values: Callable[[str], Iterable[Any]], notes: list[str]
) -> tuple[str, ...]:
    """Return the column of labels beside texts: the one of a usual name, or the only one of few values; say so."""
    if named and len(_different(values(named[0]), 2)) > 1:
        notes += taken_note(named[0], [*named, *names], None)
        return named
    likely = like_labels(names, values)
    if named:
        notes += likely_note(likely, "All items have the same label. ")
    elif len(likely) == 1:
        notes.append(
            f"Labels are in the column {cut_name(likely[0])!r}, the only other one with few values; "
            f"{argument('label')} chooses another one."
        )
        return (likely[0],)
    else:
        notes += likely_note(likely)
    return named


def _different(values: Iterable[Any], most: int) -> set[str]:
    """Return the different values that are there, until there are so many."""
    different: set[str] = set()
    for value in _single(values):
        different.add(str(value))
        if len(different) >= most:
            break
    return different


def _single(values: Iterable[Any]) -> Iterator[Any]:
    """Yield the values that are there, and those of lists one by one."""
    for value in values:
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if not is_missing(one) and one != "":
                yield one


def like_labels(names: Iterable[str], values: Callable[[str], Iterable[Any]]) -> list[str]:
    """Return the columns beside texts or images that may hold the labels: of few values, of which none is long.

    Those with names like labels are first, then those with the fewest values.
    """
    sizes = {name: _n_classes(values(name)) for name in names if not numbers_rows(name)}
    few = [name for name, n in sizes.items() if n]
    return sorted(few, key=lambda name: (not _LIKE_LABEL.fullmatch(_plain(name)), sizes[name]))


def _n_classes(values: Iterable[Any]) -> int:
    """Return how many values a column has that may hold the labels; 0 if it does not."""
    known: set[str] = set()
    n_filled = 0
    for value in _single(values):
        n_filled += 1
        if isinstance(value, (dict, list, bytes)) or len(shown := str(value)) > _LONGEST:
            return 0
        known.add(shown)
        if len(known) > _MOST_VALUES:
            return 0
    return len(known) if len(known) >= 2 and len(known) * _TIMES <= n_filled else 0


def is_missing(value: Any) -> bool:
    """Whether a value of a table is none: None, NaN, or what pandas has for them."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def split_name(name: str) -> str:
    """Return the name of a split: that of the folder of this name, in upper or lower case, or as it is.

    >>> split_name("Train"), split_name("val"), split_name("fold 3")
    ('train', 'validation', 'fold 3')
    """
    return SPLIT_FOLDERS.get(name.lower(), name)


def cut_name(name: str) -> str:
    """Cut a name of a column for a message: it may be a whole text, where the first line has no names.

    >>> cut_name("Go until jurong point, crazy.. Available only in bugis")
    'Go until jurong point, crazy.. Availa...'
    """
    return name if len(name) <= _SHOWN else name[: _SHOWN - 3] + "..."


def shortened(names: Sequence[str]) -> str:
    """List names of columns for a message, cut, and the first 20 of them."""
    listed = ", ".join(repr(cut_name(name)) for name in names[:_LISTED])
    return f"{listed} and {len(names) - _LISTED:,} more" if len(names) > _LISTED else listed


def numbers_rows(name: str) -> bool:
    """Whether a column is named as those that number or name the rows, such as the index of a data frame."""
    return _ROW_NUMBER.fullmatch(_plain(name)) is not None


def few_values(n_values: int, n_rows: int) -> bool:
    """Whether a column of a table of numbers may be labels: few values, each five times in the mean."""
    return 2 <= n_values <= min(_MOST_VALUES, n_rows // 5)


def named_like_labels(name: str) -> bool:
    """Whether a column is named like those that hold labels, such as species or rating."""
    return _LIKE_LABEL.fullmatch(_plain(name)) is not None


def taken_note(label: str | None, names: Iterable[str], chosen: str | None) -> list[str]:
    """Say which column holds the labels if it was not chosen, and is not plainly named so, or others are named so."""
    others = [name for name in names if name != label and _plain(name) in USUAL["label"]]
    if label is None or chosen is not None or (label in USUAL["label"][:2] and not others):
        return []
    beside = f", such as {shortened(others)}" if others else ""
    return [f"Labels are in the column {cut_name(label)!r}; {argument('label')} chooses another one{beside}."]


def likely_note(likely: Sequence[str], why: str | None = None, where: str = "column") -> list[str]:
    """Say which columns may hold the labels, if there are any, and how one is chosen.

    `why` says why there are no labels: None, because no column is named like them.
    """
    if not likely:
        return []
    known = USUAL["label"]
    if why is None:
        why = f"Items have no labels: no {where} is named {', '.join(known[:-1])} or {known[-1]}. "
    named = [*(repr(cut_name(name)) for name in likely[:_NAMED]), *(["another one"] if len(likely) > _NAMED else [])]
    which = " or ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    choice = ":" if len(likely) == 1 else ", choose it, as in"
    return [f"{why}If {which} holds the labels{choice} {argument('label', likely[0])}"]


def unused_note(names: Sequence[str]) -> list[str]:
    """Say which columns are not used, if there are any.

    >>> unused_note(["stars"])
    ["The column 'stars' is not used."]
    """
    if not names:
        return []
    what, verb = ("column", "is") if len(names) == 1 else ("columns", "are")
    return [f"The {what} {shortened(names)} {verb} not used."]
