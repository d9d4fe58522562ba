"""What a page shows, as plain data: whoever fits, evaluates or searches fills these in; the report only draws them.

All are frozen. Sequences may come as lists, tuples or arrays and are kept as tuples; what cannot be shown is refused
when the object is made, with a sentence that names the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise._utils.checks import check_integer
from bagwise.errors import BagwiseError
from bagwise.report import _fields
from bagwise.report._fields import Frozen, Pairs

__all__ = [
    "ClassCount",
    "Confusion",
    "Example",
    "MergingCurve",
    "ReportData",
    "WordGroup",
]


@dataclass(frozen=True)
class ClassCount(Frozen):
    """How many items of a class were learned from and tested on.

    Parameters
    ----------
    name : str
        The class.
    n_learned : int
        Items the model was learned from.
    n_tested : int or None, default=None
        Items held out for testing; None if there were none.

    Examples
    --------
    >>> from bagwise.report import ClassCount
    >>> ClassCount("cat", 120)
    ClassCount(name='cat', n_learned=120, n_tested=None)
    """

    name: str
    n_learned: int
    n_tested: int | None = None

    def __post_init__(self) -> None:
        tested = None if self.n_tested is None else check_integer(self.n_tested, "n_tested", 0)
        self._keep(
            name=_fields.text(self.name, "name"),
            n_learned=check_integer(self.n_learned, "n_learned", 0),
            n_tested=tested,
        )


@dataclass(frozen=True)
class MergingCurve(Frozen):
    """Error of classification, and the criterion of merging, against the number of words.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of words, increasing.
    errors : sequence of float
        Share of wrong answers at each size, from 0 to 1.
    standard_errors : sequence of float, default=()
        Standard error of each; empty if it is not known.
    protocol : str, default=""
        How the errors were measured: ``"5-fold cross-validation"``.
    chosen : int or None, default=None
        Number of words of the model.
    one_se : int or None, default=None
        The smallest of `sizes` whose error is within one standard error of the lowest.
    criterion_name : str, default=""
        The criterion of merging, for people.
    criterion_sizes, criterion_values : sequences, default=()
        The criterion along the hierarchy. May have thousands of points; sizes increase.
    n_before : int or None, default=None
        Number of words before merging; None: the largest of `sizes`, if there are any.

    Examples
    --------
    >>> from bagwise.report import MergingCurve
    >>> curve = MergingCurve([10, 50, 1000], [0.3, 0.182, 0.176], [0.01, 0.008, 0.008], one_se=50)
    >>> curve.best, curve.error_at(50)
    (1000, 0.182)
    """

    sizes: Sequence[int]
    errors: Sequence[float]
    standard_errors: Sequence[float] = ()
    protocol: str = ""
    chosen: int | None = None
    one_se: int | None = None
    criterion_name: str = ""
    criterion_sizes: Sequence[int] = ()
    criterion_values: Sequence[float] = ()
    n_before: int | None = None

    def __post_init__(self) -> None:
        sizes = _fields.increasing(self.sizes, "sizes")
        errors, spread = _fields.errors_at(sizes, self.errors, self.standard_errors)
        chosen = None if self.chosen is None else check_integer(self.chosen, "chosen", 1)
        one_se = None if self.one_se is None else check_integer(self.one_se, "one_se", 1)
        if one_se is not None and one_se not in sizes:
            raise BagwiseError(f"one_se must be one of the {len(sizes)} sizes; got {one_se}.")
        criterion_sizes = _fields.increasing(self.criterion_sizes, "criterion_sizes")
        values = _fields.numbers(self.criterion_values, "criterion_values", len(criterion_sizes))
        if not sizes and not criterion_sizes:
            raise BagwiseError("A MergingCurve needs sizes or criterion_sizes; got neither. Pass curve=None instead.")
        self._keep(
            sizes=sizes,
            errors=errors,
            standard_errors=spread,
            protocol=_fields.text(self.protocol, "protocol"),
            chosen=chosen,
            one_se=one_se,
            criterion_name=_fields.text(self.criterion_name, "criterion_name"),
            criterion_sizes=criterion_sizes,
            criterion_values=values,
            n_before=max(sizes, default=None) if self.n_before is None else check_integer(self.n_before, "n_before", 1),
        )

    @property
    def best(self) -> int | None:
        """The size of the lowest error, the smallest such; None without errors."""
        if not self.sizes:
            return None
        return self.sizes[min(range(len(self.sizes)), key=self.errors.__getitem__)]

    def error_at(self, size: int | None) -> float | None:
        """The error at a size; None where it was not measured."""
        return self.errors[self.sizes.index(size)] if size in self.sizes else None

    def standard_error_at(self, size: int | None) -> float | None:
        """The standard error at a size; None where it is not known."""
        return self.standard_errors[self.sizes.index(size)] if size in self.sizes and self.standard_errors else None


@dataclass(frozen=True, eq=False)
class Confusion(Frozen):
    """Which classes were taken for which.

    Parameters
    ----------
    classes : sequence of str
        Names, in the order of rows and columns.
    matrix : array-like of shape (n_classes, n_classes)
        Counts: rows are true classes, columns answers.
    protocol : str, default=""
        How it was measured.

    Examples
    --------
    >>> from bagwise.report import Confusion
    >>> confusion = Confusion(["cat", "dog"], [[8, 2], [1, 9]])
    >>> confusion.n_items, confusion.n_wrong
    (20, 3)
    """

    classes: Sequence[str]
    matrix: ArrayLike
    protocol: str = ""

    def __post_init__(self) -> None:
        classes = _fields.names(self.classes, "classes")
        if not classes:
            raise BagwiseError("A Confusion needs at least one class, got none. Pass confusion=None instead.")
        counts = np.asarray(self.matrix)
        if counts.shape != (len(classes), len(classes)):
            raise BagwiseError(
                f"matrix must have a row and a column for each of the {len(classes)} classes, got shape {counts.shape}."
            )
        if counts.dtype.kind not in "iu" or counts.min() < 0:
            raise BagwiseError(
                f"matrix must hold counts, whole numbers from 0 on; got {counts.dtype} from {counts.min()}. Do not "
                "normalise it: the page shows shares of rows itself."
            )
        counts = counts.astype(np.int64)  # a copy, so that nobody changes it
        counts.flags.writeable = False
        self._keep(classes=classes, matrix=counts, protocol=_fields.text(self.protocol, "protocol"))

    @property
    def counts(self) -> NDArray[np.int64]:
        """The matrix as an array that cannot be written to."""
        return np.asarray(self.matrix)

    @property
    def n_items(self) -> int:
        """Number of items tested."""
        return int(self.counts.sum())

    @property
    def n_wrong(self) -> int:
        """Number of wrong answers."""
        return self.n_items - int(np.trace(self.counts))


@dataclass(frozen=True)
class WordGroup(Frozen):
    """A group of merged words.

    Parameters
    ----------
    number : int
        Its number in the cut, from 0.
    n_words : int
        How many words were merged into it.
    share : float
        Its share of all occurrences of words, from 0 to 1.
    names : sequence of str, default=()
        Its words, the most frequent first, if words have names. Need not be all of them.
    patches : sequence of bytes, default=()
        PNG or JPEG files that show its words, if words are seen.
    classes : sequence of (class, weight), default=()
        The classes it speaks for (positive weights) and against (negative ones), most important first.

    Examples
    --------
    >>> from bagwise.report import WordGroup
    >>> WordGroup(0, n_words=3, share=0.02, names=["goal", "match", "team"], classes=[("sport", 1.7)]).names
    ('goal', 'match', 'team')
    """

    number: int
    n_words: int
    share: float
    names: Sequence[str] = ()
    patches: Sequence[bytes] = ()
    classes: Sequence[tuple[str, float]] = ()

    def __post_init__(self) -> None:
        n_words = check_integer(self.n_words, "n_words", 1)
        names = _fields.texts(self.names, "names")
        if len(names) > n_words:
            raise BagwiseError(f"A group of {n_words} words can have at most as many names, got {len(names)}.")
        self._keep(
            number=check_integer(self.number, "number", 0),
            n_words=n_words,
            share=_fields.fraction(self.share, "share"),
            names=names,
            patches=_fields.pictures(self.patches, "patches"),
            classes=_fields.pairs_of_numbers(self.classes, "classes", ("class", "weight")),
        )


@dataclass(frozen=True)
class Example(Frozen):
    """One item, the answer, and the groups of words that decided.

    Parameters
    ----------
    id : str
        The item.
    label : str or None, default=None
        Its true class, if that is known.
    predicted : str or None, default=None
        The answer.
    picture : bytes or None, default=None
        A small PNG or JPEG file.
    excerpt : str or None, default=None
        Some of its text.
    evidence : sequence of (group number, contribution), default=()
        What groups of words added to the score of the answer, most important first.

    Examples
    --------
    >>> from bagwise.report import Example
    >>> Example("a.txt", label="sport", predicted="sport", evidence=[(0, 1.5), (7, -0.2)]).correct
    True
    """

    id: str
    label: str | None = None
    predicted: str | None = None
    picture: bytes | None = None
    excerpt: str | None = None
    evidence: Sequence[tuple[int, float]] = ()

    def __post_init__(self) -> None:
        evidence = tuple(
            (check_integer(group, f"evidence[{i}][0]", 0), _fields.finite(value, f"evidence[{i}][1]"))
            for i, (group, value) in enumerate(_fields.entries(self.evidence, "evidence", ("group number", "value")))
        )
        self._keep(
            id=_fields.text(self.id, "id"),
            label=_fields.optional_text(self.label, "label"),
            predicted=_fields.optional_text(self.predicted, "predicted"),
            picture=None if self.picture is None else _fields.picture(self.picture, "picture"),
            excerpt=_fields.optional_text(self.excerpt, "excerpt"),
            evidence=evidence,
        )

    @property
    def correct(self) -> bool | None:
        """Whether the answer is the true class; None if one of them is missing."""
        return None if self.label is None or self.predicted is None else self.label == self.predicted


@dataclass(frozen=True)
class ReportData(Frozen):
    """All that a report of a fitted model shows. Sections without data are left out.

    Parameters
    ----------
    title : str
        Heading of the page.
    facts : mapping or sequence of (name, value), default=()
        What was done: data and options. Values are texts or numbers.
    classes : sequence of ClassCount, default=()
    curve : MergingCurve or None, default=None
    confusion : Confusion or None, default=None
    groups : sequence of WordGroup, default=()
        The groups of the cut. The page shows the largest, and takes names of evidence from all.
    examples : sequence of Example, default=()
    timings : mapping or sequence of (step, seconds), default=()
    versions : mapping or sequence of (name, version), default=()
    notes : sequence of str, default=()
        Sentences a reader should know, such as files that were skipped.

    Examples
    --------
    >>> from bagwise.report import ReportData
    >>> ReportData("Photos", facts={"items": 200}, timings={"merging": 1.5}).timings
    (('merging', 1.5),)
    """

    title: str
    facts: Pairs = ()
    classes: Sequence[ClassCount] = ()
    curve: MergingCurve | None = None
    confusion: Confusion | None = None
    groups: Sequence[WordGroup] = ()
    examples: Sequence[Example] = ()
    timings: Pairs = ()
    versions: Pairs = ()
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name, kind in (("curve", MergingCurve), ("confusion", Confusion)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise BagwiseError(f"{name} must be a {kind.__name__} or None, got {type(value).__name__}.")
        groups = _fields.objects(self.groups, "groups", WordGroup)
        _fields.names([group.number for group in groups], "groups")
        classes = _fields.objects(self.classes, "classes", ClassCount)
        _fields.names([count.name for count in classes], "classes")
        self._keep(
            title=_fields.text(self.title, "title"),
            facts=_fields.facts(self.facts),
            classes=classes,
            groups=groups,
            examples=_fields.objects(self.examples, "examples", Example),
            timings=_fields.pairs_of_numbers(self.timings, "timings", ("step", "seconds"), lowest=0),
            versions=_fields.pairs_of_texts(self.versions, "versions"),
            notes=_fields.texts(self.notes, "notes"),
        )
