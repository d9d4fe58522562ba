"""Columns of files: which of them are labels, ids, splits, texts and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError, argument
from bagwise.sources.item_tables import codes_of, to_codes
from bagwise.sources.limits import Limits

__all__ = ["FewValues", "RawTable", "Reading", "TableColumns", "chosen_column", "few_values", "likely_note"]
__all__ += ["numbers_rows", "optional_columns", "shortened", "split_name", "taken_note", "usual_column"]

# Folders that divide a collection rather than name a class.
SPLIT_FOLDERS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLIT_FOLDERS |= dict.fromkeys(("val", "valid", "validation", "dev"), "validation")

# Names of columns, in lower case: texts and labels that are taken; labels that are proposed; numbers and names of rows.
USUAL_TEXT = ("text", "body", "content", "document")
USUAL_LABEL = ("label", "labels", "class", "category", "target")
_LIKELY_LABEL = re.compile(
    r"(.*[_ .-])?(labels?|class(es)?|category|target|digit|group|species|type|kind|outcome|diagnosis|response|result|"
    r"sentiment|emotion|polarity|intent|topic|genre|ratings?|stars?|score|grade|quality|y)"
)
_ROW_NUMBER = re.compile(r"|unnamed: \d+|index|ids?|row|row[_ ]?(id|names?|number)|__index_level_\d+__")
# A proposed label has at most this many values, and each of them this many times in the mean.
_MOST_VALUES, _TIMES = 50, 5
_LOOKED_AT = 200  # rows that are compared before others
# The same of columns beside texts, which are no words; a longer value is a text. Names in a note.
_MOST_BESIDE, _TIMES_BESIDE, _LONGEST = 200, 2, 100
_NAMED = 5
# Tables of more columns are words, not measurements.
_MOST_MEASURED = 100


@dataclass(frozen=True)
class Reading:
    """What all readers of tables are told; each takes what applies to its files. See `open_table`."""

    data: str | None = None
    label: str | None = None
    id: str | None = None
    split: str | None = None
    keep: Sequence[str] = ()
    words: Sequence[str] | None = None
    sep: str | None = None
    sheet: str | None = None
    encoding: str | None = None
    layer: str | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass
class RawTable:
    """Content of a file. `labels`, `ids` and `splits` have one string per row, if they are there.

    `notes` say what was not obvious about its columns.
    """

    X: Any
    labels: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    splits: Sequence[str | None] | None = None
    feature_names: list[str] | None = None
    notes: tuple[str, ...] = ()


def split_name(given: str) -> str:
    """Return the name of a split: that of the folder of this name, in upper or lower case, or as it is.

    >>> split_name("Train"), split_name("val"), split_name("fold 3")
    ('train', 'validation', 'fold 3')
    """
    return SPLIT_FOLDERS.get(given.lower(), given)


def shortened(names: Sequence[str]) -> str:
    """List names of columns, truncated: they are whole texts if the first line has no names."""
    return ", ".join(repr(name if len(name) <= 30 else name[:27] + "...") for name in names[:20])


def _plain(name: str) -> str:
    return name.strip().casefold()


def usual_column(known: Iterable[str], names: Collection[str], others: Collection[str] = ()) -> str | None:
    """Return the column with the first of the known names, in any case, also with spaces around it; None if none has.

    Of several that differ in case, the exact name goes first. `others` are columns that hold something else.

    >>> usual_column(["label", "class"], ["Class", "Label "]), usual_column(["id"], ["name"])
    ('Label ', None)
    """
    left = [name for name in names if name not in others]
    for usual in known:
        alike = [name for name in left if _plain(name) == usual]
        if alike:
            return usual if usual in alike else alike[0]
    return None


def chosen_column(wanted: str, names: Collection[str]) -> str | None:
    """Return the column of this name, or the only one whose name differs in case and spaces around it.

    >>> chosen_column("message", ["Message", "Label"]), chosen_column("a", ["A", "a "])
    ('Message', None)
    """
    if wanted in names:
        return wanted
    alike = [name for name in names if _plain(name) == _plain(wanted)]
    return alike[0] if len(alike) == 1 else None


def taken_note(label: str | None, names: Iterable[str], given: str | None) -> list[str]:
    """Say which column holds the labels if it was not chosen, and is not plainly named so, or others are named so."""
    others = [name for name in names if name != label and _plain(name) in USUAL_LABEL]
    if label is None or given is not None or (label in USUAL_LABEL[:2] and not others):
        return []
    beside = f", such as {shortened(others)}" if others else ""
    return [f"Labels are in the column {label!r}; {argument('label')} chooses another one{beside}."]


def likely_note(likely: Sequence[str], why: str | None = None, where: str = "column") -> list[str]:
    """Say which columns may hold the labels, if there are any, and how one is chosen.

    `why` says why there are no labels: None, because no column is named like them.
    """
    if not likely:
        return []
    if why is None:
        why = f"Items have no labels: no {where} is named {', '.join(USUAL_LABEL[:-1])} or {USUAL_LABEL[-1]}. "
    named = [*map(repr, likely[:_NAMED]), *(["another one"] if len(likely) > _NAMED else [])]
    which = " or ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    choice = ":" if len(likely) == 1 else ", choose it, as in"
    return [f"{why}If {which} holds the labels{choice} {argument('label', likely[0])}"]


class FewValues:
    """Counts the different values of columns beside texts and images: those with few may hold the labels."""

    def __init__(self) -> None:
        self._values: dict[str, set[str] | None] = {}  # None: not labels
        self._filled: dict[str, int] = {}

    def add(self, fields: Mapping[str, Any], others: Collection[str | None]) -> None:
        """Add the values of a row; `others` are columns that are something else."""
        for name, value in fields.items():
            if name not in others:
                self.add_value(name, value)

    def add_value(self, name: str, value: Any) -> bool:
        """Add a value, or a list of labels; returns whether the column may still hold the labels."""
        known = self._values.setdefault(name, None if numbers_rows(name) else set())
        if known is None:
            return False
        values = value if isinstance(value, (list, tuple)) else (value,)
        for one in values:
            if one is None or one == "" or one != one:
                continue
            if isinstance(one, (dict, list)) or len(shown := str(one)) > _LONGEST:
                self._values[name] = None
                return False
            known.add(shown)
            self._filled[name] = self._filled.get(name, 0) + 1
        if len(known) > _MOST_BESIDE:
            self._values[name] = None
        return self._values[name] is not None

    @property
    def likely(self) -> list[str]:
        """The columns that may hold the labels: those with usual names first, then those with the fewest values."""
        sizes = {name: len(values) for name, values in self._values.items() if values}
        few = [name for name, n in sizes.items() if n >= 2 and n * _TIMES_BESIDE <= self._filled[name]]
        return sorted(few, key=lambda name: (not _LIKELY_LABEL.fullmatch(_plain(name)), sizes[name]))


class TableColumns:
    """Which columns of a file are labels, ids, splits, numbers of its rows, and words."""

    def __init__(self, names: Sequence[str], reading: Reading, typed: str | None = None) -> None:
        """`typed` is the column whose type says that it holds the labels, which are there if no name says so."""
        self.names = list(names)
        self._label = reading.label
        self._shown = [name or f"Unnamed: {i}" for i, name in enumerate(names)]  # as pandas calls them
        for name in reading.keep:
            if name not in (*self.names, *self._shown):
                raise BagwiseError(f"there is no column {name!r} to keep; there are {shortened(self._shown)}.")
        self._words = reading.words
        self._keep = {*reading.keep, *(reading.words or ())}
        self._special = _special_columns(names, reading, self._keep)
        if typed is not None and typed not in self._keep:
            self._special.setdefault("labels", self.names.index(typed))
        self._id_chosen = reading.id is not None
        self._by_text = False  # labels were not named, but are the only column with text
        self._notes: list[str] = []
        self._left_out: list[int] = []

    @property
    def numbers(self) -> list[int]:
        """Columns of words."""
        return [i for i in range(len(self.names)) if i not in (*self._special.values(), *self._left_out)]

    def read(self, strings: Callable[[int], list[str]], texts: Sequence[int] = ()) -> dict[str, list[str]]:
        """Read labels, ids and splits, and leave out columns that number or name the rows.

        A column does so if it has no name, or such a name, and its values differ, or it is no word of the model. The
        first one whose values differ becomes the ids; a column id with equal values is left out as well. Without
        labels, the only column with text, one of `texts`, becomes the labels if it has few values.
        """
        others = {what: strings(i) for what, i in self._special.items()}
        if not self._id_chosen and len(set(others.get("ids", ()))) < len(others.get("ids", ())):
            del others["ids"]
            self._left_out.append(self._special.pop("ids"))
            if self._words is None:
                name = self.names[self._left_out[-1]]
                use = argument("keep", name)
                self._notes.append(
                    f"Column {name!r} has equal values, so rows are named by their numbers. It is not used as a word; "
                    f"{use} does that."
                )
        for i in self.numbers:
            name, shown = self.names[i], self._shown[i]
            if not numbers_rows(name) or {name, shown} & self._keep:
                continue
            values = strings(i)
            differ = len(set(values)) == len(values)
            if self._words is None and (len(values) < 2 or not differ):
                continue
            self._left_out.append(i)
            used = "only numbers the rows and"
            if differ and "ids" not in others:
                others["ids"], used = values, "is the id of rows and"
            if self._words is None:
                use = argument("keep", shown)
                self._notes.append(f"Column {shown!r} {used} is not used as a word; {use} does that.")
        left = [i for i in texts if i in self.numbers]
        if len(left) == 1 and "labels" not in others and self.names[left[0]]:
            values = strings(left[0])
            if few_values(len(set(values)), len(values)):
                self._special["labels"], others["labels"], self._by_text = left[0], values, True
                if self._words is None:
                    name, other = self.names[left[0]], argument("label")
                    self._notes.append(
                        f"Column {name!r}, the only one with text, has {len(set(values))} values, which are taken as "
                        f"the labels; {other} chooses others."
                    )
        return others

    def table(self, X: Any, others: dict[str, list[str]], has_names: bool) -> RawTable:
        """Put the table together; say which columns may hold the labels if none is named so, and which tell them."""
        names = [self.names[i] for i in self.numbers]
        if has_names and self._words is None:
            label = self.names[self._special["labels"]] if "labels" in self._special else None
            classes = set(others.get("labels", ())) - {""}
            likely, why = [], None
            if self._by_text:
                likely, why = _likely_labels(names, X, by_name=True), ""
            else:
                self._notes += taken_note(label, self.names, self._label)
            if self._label is None and len(classes) < 2:
                likely = _likely_labels(names, X)
                why = None if label is None else f"Column {label!r} has less than two classes. "
            self._notes += likely_note(likely, why)
            for name in _telling(names, X, others.get("labels", [])):
                self._notes.append(
                    f"Column {name!r} has another value for each label, so it tells the class. Remove it if new items "
                    "do not have it."
                )
        return RawTable(
            X, **optional_columns(others), feature_names=names if has_names else None, notes=tuple(self._notes)
        )


def numbers_rows(name: str) -> bool:
    """Whether a column is named as those that number or name the rows, such as the index of a data frame."""
    return _ROW_NUMBER.fullmatch(_plain(name)) is not None


def _likely_labels(names: Sequence[str], X: NDArray[np.float64], by_name: bool = False) -> list[str]:
    """Return the columns of few whole numbers that may be labels: by their names, or because most others have more."""
    likely = [i for i, name in enumerate(names) if _LIKELY_LABEL.fullmatch(_plain(name)) and _has_few(X[:, i])]
    if not by_name and len(names) <= _MOST_MEASURED:
        few = [i for i in range(len(names)) if i in likely or _has_few(X[:, i])]
        likely += [i for i in few if i not in likely and 2 * len(few) < len(names)]
    return [names[i] for i in likely]


def _has_few(values: NDArray[np.float64]) -> bool:
    some = values[:: max(1, len(values) // _LOOKED_AT)]
    if len(np.unique(some)) > _MOST_VALUES or (some != np.rint(some)).any():
        return False
    return few_values(len(np.unique(values)), len(values)) and bool((values == np.rint(values)).all())


def _telling(names: Sequence[str], X: NDArray[np.float64], labels: Sequence[str]) -> list[str]:
    """Return the names of columns with one value for each label, and a different one for each."""
    own, _ = codes_of(
        to_codes(label or None for label in labels)
    )  # an array of strings would be as wide as the longest
    rows = np.flatnonzero(own >= 0)
    classes, codes = np.unique(own[rows], return_inverse=True)
    if not few_values(len(classes), len(rows)):
        return []
    first = rows[np.unique(codes, return_index=True)[1]]
    likely = np.arange(X.shape[1])
    for some in (slice(0, None, max(1, len(rows) // _LOOKED_AT)), slice(None)):  # a few rows exclude most columns
        part = X[np.ix_(rows[some], likely)]
        likely = likely[(part == X[np.ix_(first[codes[some]], likely)]).all(axis=0)]
    return [names[i] for i in likely.tolist() if len(np.unique(X[first, i])) == len(classes)]


def few_values(n_values: int, n_rows: int) -> bool:
    """Whether a column with this number of values may be labels."""
    return 2 <= n_values <= min(_MOST_VALUES, n_rows // _TIMES)


def _special_columns(names: Sequence[str], reading: Reading, keep: set[str]) -> dict[str, int]:
    """Find the columns that are not numbers of the matrix."""
    kinds: tuple[tuple[str, str | None, tuple[str, ...]], ...] = (
        ("labels", reading.label, USUAL_LABEL),
        ("ids", reading.id, ("id",)),
        ("splits", reading.split, ("split",)),
    )
    found = {}
    for what, wanted, _ in kinds:
        if wanted is not None:
            name = chosen_column(wanted, names)
            if name is None:
                raise BagwiseError(f"there is no column {wanted!r}; there are {shortened(names)}.")
            found[what] = list(names).index(name)
    for what, wanted, usual in kinds:
        taken = {names[i] for i in found.values()}
        name = usual_column(usual, names, keep | taken) if wanted is None else None
        if name is not None:
            found[what] = list(names).index(name)
    return found


def optional_columns(others: dict[str, list[str]]) -> dict[str, Any]:
    """Return labels, ids and splits as `RawTable` takes them: an empty split is none."""
    if "splits" in others:
        return {**others, "splits": [split_name(part) if part else None for part in others["splits"]]}
    return dict(others)
