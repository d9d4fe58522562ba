"""Columns of files: which of them are labels, ids, splits, texts and words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError, argument
from bagwise.sources.limits import Limits
from bagwise.sources.row_lists import Coded

__all__ = ["RawTable", "Reading", "TableColumns", "few_values", "numbers_rows", "optional_columns", "shortened"]
__all__ += ["split_name"]

# Folders that divide a collection rather than name a class.
SPLIT_FOLDERS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
SPLIT_FOLDERS |= dict.fromkeys(("val", "valid", "validation", "dev"), "validation")

# Names of columns, in lower case: texts and labels that are taken; labels that are proposed; numbers and names of rows.
USUAL_TEXT = ("text", "body", "content", "document")
USUAL_LABEL = ("label", "labels", "class", "category", "target")
_LIKELY_LABEL = re.compile(
    r"(.*[_ .-])?(labels?|class(es)?|category|target|digit|group|species|type|kind|outcome|diagnosis|response|result|"
    r"sentiment|topic|genre|y)"
)
_ROW_NUMBER = re.compile(r"|unnamed: \d+|index|ids?|row|row[_ ]?(id|names?|number)|__index_level_\d+__")
# A proposed label has at most this many values, and each of them this many times in the mean.
_MOST_VALUES, _TIMES = 50, 5
_LOOKED_AT = 200  # rows that are compared before others


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


class TableColumns:
    """Which columns of a file are labels, ids, splits, numbers of its rows, and words."""

    def __init__(self, names: Sequence[str], reading: Reading) -> None:
        self.names = list(names)
        self._shown = [name or f"Unnamed: {i}" for i, name in enumerate(names)]  # as pandas calls them
        for name in reading.keep:
            if name not in (*self.names, *self._shown):
                raise BagwiseError(f"there is no column {name!r} to keep; there are {shortened(self._shown)}.")
        self._words = reading.words
        self._keep = {*reading.keep, *(reading.words or ())}
        self._special = _special_columns(names, reading, self._keep)
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
            found, columns = "labels" in others and not self._by_text, list(zip(names, X.T, strict=True))
            likely = [] if found else [name for name, values in columns if _may_label(name, values)]
            if likely:
                which = " or ".join(filter(None, (", ".join(map(repr, likely[:-1])), repr(likely[-1]))))
                usual = f"No column is named {', '.join(USUAL_LABEL[:-1])} or {USUAL_LABEL[-1]}. "
                choice = argument("label", likely[0]) if len(likely) == 1 else f"choose it by {argument('label')}"
                self._notes.append(f"{'' if self._by_text else usual}If {which} holds the labels: {choice}")
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
    return _ROW_NUMBER.fullmatch(name.lower()) is not None


def _may_label(name: str, values: NDArray[np.float64]) -> bool:
    if not _LIKELY_LABEL.fullmatch(name.lower()):
        return False
    return few_values(len(np.unique(values)), len(values)) and bool((values == np.rint(values)).all())


def _telling(names: Sequence[str], X: NDArray[np.float64], labels: Sequence[str]) -> list[str]:
    """Return the names of columns with one value for each label, and a different one for each."""
    coded = Coded.of(labels)  # an array of strings would be as wide as the longest
    rows = np.flatnonzero(coded.codes != (coded.values.index("") if "" in coded.values else -1))
    classes, codes = np.unique(coded.codes[rows], return_inverse=True)
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
    """Find the columns that are not numbers of the matrix; names of labels in any case, but the exact one first."""
    labels = [*USUAL_LABEL, *(name for usual in USUAL_LABEL for name in names if name.lower() == usual)]
    found = {}
    for what, wanted, usual in (
        ("labels", reading.label, labels),
        ("ids", reading.id, ["id"]),
        ("splits", reading.split, ["split"]),
    ):
        if wanted is not None and wanted not in names:
            raise BagwiseError(f"there is no column {wanted!r}; there are {shortened(names)}.")
        name = wanted or next((name for name in usual if name in names and name not in keep), None)
        if name is not None:
            found[what] = list(names).index(name)
    return found


def optional_columns(others: dict[str, list[str]]) -> dict[str, Any]:
    """Return labels, ids and splits as `RawTable` takes them: an empty split is none."""
    if "splits" in others:
        return {**others, "splits": [split_name(part) if part else None for part in others["splits"]]}
    return dict(others)
