"""Data of the pages: the fitted model, the comparison of criteria, the results of a search.

These classes only hold values; the pages clean and escape every text when they show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.app.report.clusters import ClusterSummary
from bagwise.display.icicle import Tree

__all__ = ["Baseline", "ClassCount", "ClassMeasures", "Comparison", "ConfusionMatrix", "CriterionResult", "Example"]
__all__ += ["Hit", "MergingCurve", "ReportData", "SearchResults", "WordGroup"]

WORDS_IN_TITLE = 3  # of a group without a name

Fact = str | int | float | bool


class ClassCount(NamedTuple):
    """Number of training and test items of a class; `n_test` is None without a test."""

    name: str
    n_train: int
    n_test: int | None = None


class Baseline(NamedTuple):
    """Error of a simple method, measured as that of the model; `n_features` and `test_error` are None if unknown."""

    name: str
    error: float
    standard_error: float | None = None
    n_features: int | None = None
    test_error: float | None = None


@dataclass(frozen=True)
class MergingCurve:
    """Classification errors and criterion of merging against the number of groups.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of groups, increasing. Empty without cross-validation.
    errors : sequence of float
        Error rate of cross-validation at each size, from 0 to 1.
    standard_errors : sequence of float, default=()
        Standard error of each error rate; empty if unknown.
    protocol : str, default=""
        How the errors were measured, such as ``"5-fold cross-validation"``.
    n_groups : int or None, default=None
        Number of groups of the model.
    auto : int or None, default=None
        The smallest of `sizes` that is about as good as the best, see `PathErrors`.
    criterion_name : str, default=""
        Name of the criterion of merging.
    criterion_sizes, criterion_values : sequences, default=()
        Criterion along the hierarchy, by increasing number of groups. May have thousands of points.
    n_words : int or None, default=None
        Size of the vocabulary, before merging.
    test_sizes : sequence of int, default=()
        Numbers of groups at which the model was tested, increasing.
    test_errors : sequence of float, default=()
        Error rate of the test at each of them.
    n_test : int, default=0
        Number of test items.
    test_seen : float or None, default=0.0
        Fraction of the test items that the model was learned from, or copies of such items. None: not known.

    Examples
    --------
    >>> from bagwise.app.report import MergingCurve
    >>> curve = MergingCurve([10, 50, 1000], [0.3, 0.182, 0.176], [0.01, 0.008, 0.008], auto=50)
    >>> curve.best, curve.error_at(50)
    (1000, 0.182)
    """

    sizes: Sequence[int]
    errors: Sequence[float]
    standard_errors: Sequence[float] = ()
    protocol: str = ""
    n_groups: int | None = None
    auto: int | None = None
    criterion_name: str = ""
    criterion_sizes: Sequence[int] = ()
    criterion_values: Sequence[float] = ()
    n_words: int | None = None
    test_sizes: Sequence[int] = ()
    test_errors: Sequence[float] = ()
    n_test: int = 0
    test_seen: float | None = 0.0

    @property
    def test_is_training(self) -> bool:
        """Whether the model was learned from so many of the test items that their error says nothing of new ones."""
        return self.test_seen is not None and self.test_seen >= 0.1

    @property
    def measured(self) -> bool:
        """Whether there are errors, of cross-validation or of a test."""
        return bool(self.sizes or self.test_sizes)

    @property
    def best(self) -> int | None:
        """The smallest size with the lowest error; None without errors."""
        if not self.sizes:
            return None
        return self.sizes[min(range(len(self.sizes)), key=self.errors.__getitem__)]

    def error_at(self, size: int | None) -> float | None:
        """Return the error of cross-validation at a size; None if it was not measured."""
        return self.errors[self.sizes.index(size)] if size in self.sizes else None

    def test_error_at(self, size: int | None) -> float | None:
        """Return the error of the test at a size; None if it was not measured."""
        return self.test_errors[self.test_sizes.index(size)] if size in self.test_sizes else None

    def standard_error_at(self, size: int | None) -> float | None:
        """Return the standard error at a size; None if it is unknown."""
        return self.standard_errors[self.sizes.index(size)] if size in self.sizes and self.standard_errors else None


class ClassMeasures(NamedTuple):
    """How well a class is told from the others; None where nothing is divided by.

    `precision` is the fraction of right answers among the items that are answered by the class, `recall` that among
    its own items, `f1` their harmonic mean. `name` is "" for a mean over classes.
    """

    name: str
    n_items: int
    n_predicted: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True, eq=False)
class ConfusionMatrix:
    """Counts of items by true and predicted class.

    Parameters
    ----------
    classes : sequence of str
        Names, in the order of rows and columns.
    counts : ndarray of shape (n_classes, n_classes)
        Rows are true classes, columns predicted classes.
    protocol : str, default=""
        How the predictions were made.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.app.report import ConfusionMatrix
    >>> confusion = ConfusionMatrix(["cat", "dog"], np.array([[8, 2], [1, 9]]))
    >>> confusion.n_items, confusion.n_wrong
    (20, 3)
    """

    classes: Sequence[str]
    counts: NDArray[np.int64]
    protocol: str = ""

    @property
    def n_items(self) -> int:
        """Number of classified items."""
        return int(self.counts.sum())

    @property
    def n_wrong(self) -> int:
        """Number of items with a wrong prediction."""
        return self.n_items - int(np.trace(self.counts))

    def by_class(self) -> list[ClassMeasures]:
        """Return precision, recall and F1 of each class that has items, or is an answer.

        >>> matrix = ConfusionMatrix("ab", np.array([[3, 1], [0, 4]]))
        >>> [(one.name, one.precision, one.recall) for one in matrix.by_class()]
        [('a', 1.0, 0.75), ('b', 0.8, 1.0)]
        """
        right, items, answers = np.diagonal(self.counts), self.counts.sum(axis=1), self.counts.sum(axis=0)
        return [
            ClassMeasures(name, n, m, _fraction(hits, m), _fraction(hits, n), _fraction(2 * hits, n + m))
            for name, hits, n, m in zip(self.classes, right.tolist(), items.tolist(), answers.tolist(), strict=True)
            if n + m
        ]

    def means(self) -> dict[str, ClassMeasures]:
        """Return the means over classes, "macro" and "weighted" by their items; what is None counts as 0."""
        classes, n_items = self.by_class(), self.n_items
        values = np.array([[one.precision or 0.0, one.recall or 0.0, one.f1 or 0.0] for one in classes]).reshape(-1, 3)
        weights = {"macro": np.ones(len(classes)), "weighted": np.array([one.n_items for one in classes], np.float64)}
        return {
            name: ClassMeasures("", n_items, n_items, *(weight @ values / max(weight.sum(), 1)).tolist())
            for name, weight in weights.items()
        }


def _fraction(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True)
class WordGroup:
    """A group of merged words.

    Parameters
    ----------
    number : int
        Index of the group in the cut.
    n_words : int
        Number of its words.
    frequency : float
        Relative frequency of its words among all occurrences, from 0 to 1; 0 for columns of measurements.
    names : sequence of str, default=()
        Names of its words, the most important first. Need not be complete.
    patches : sequence of bytes, default=()
        PNG or JPEG files of image patches assigned to its words.
    classes : sequence of (class, weight), default=()
        How far the scores of classes move with the group, the largest absolute value first.
    vocabulary : str, default=""
        The vocabulary of its words, if there are several.
    name : str, default=""
        "": groups are called by their first words, or else by their class and number.
    decides : float, default=0.0
        How much it decides, from 0: the standard deviation over items of its contribution to the score of the class
        where that is largest. Groups are sorted by it.
    regions : bool, default=False
        Whether `patches` are regions that a network sees, which are shown larger.
    """

    number: int
    n_words: int
    frequency: float
    names: Sequence[str] = ()
    patches: Sequence[bytes] = ()
    classes: Sequence[tuple[str, float]] = ()
    vocabulary: str = ""
    name: str = ""
    decides: float = 0.0
    regions: bool = False

    @property
    def title(self) -> str:
        """Its name; without one, its first words, or else the class that it adds most to with its number."""
        if self.name:
            return self.name
        if self.names:
            return ", ".join(self.names[:WORDS_IN_TITLE])
        best = max(self.classes, key=lambda one: one[1], default=("", 0.0))
        return f"{best[0]} #{self.number}" if best[1] > 0 else f"Group {self.number}"


@dataclass(frozen=True)
class Example:
    """One item, its predicted class, and the parts of its score.

    Parameters
    ----------
    id : str
        Id of the item.
    label : str or None, default=None
        Its true class, if known.
    predicted : str or None, default=None
        Its predicted class.
    picture : bytes or None, default=None
        Thumbnail, a PNG or JPEG file.
    excerpt : str or None, default=None
        Part of its text.
    contributions : sequence of (group number, contribution), default=()
        Terms of the score of the predicted class, the largest absolute value first.
    score : float or None, default=None
        Score of the predicted class: the sum of all contributions and the intercept.
    intercept : float, default=0.0
    rival : (str, float) or None, default=None
        The class with the highest score among the others, and that score.
    """

    id: str
    label: str | None = None
    predicted: str | None = None
    picture: bytes | None = None
    excerpt: str | None = None
    contributions: Sequence[tuple[int, float]] = ()
    score: float | None = None
    intercept: float = 0.0
    rival: tuple[str, float] | None = None

    @property
    def correct(self) -> bool | None:
        """Whether the predicted class is the true one; None if one of them is unknown."""
        return None if self.label is None or self.predicted is None else self.label == self.predicted


@dataclass(frozen=True)
class ReportData:
    """Data of the report of a model. Sections without data are left out.

    Parameters
    ----------
    title : str
        Heading of the page.
    facts : mapping of str to str, int, float or bool, default={}
        Data set and options.
    classes : sequence of ClassCount, default=()
    curve : MergingCurve or None, default=None
    confusion : ConfusionMatrix or None, default=None
    groups : sequence of WordGroup, default=()
        All groups of the model. The page shows those that decide most as cards, and lists the others.
    examples : sequence of Example, default=()
    timings : mapping of str to float, default={}
        Seconds of each step.
    versions : mapping of str to str, default={}
    notes : sequence of str, default=()
        Remarks, such as the number of files that were skipped.
    baselines : sequence of Baseline, default=()
        Errors of simple methods in the same cross-validation.
    tree : Tree or None, default=None
        Cuts of the hierarchy.
    clusters : ClusterSummary or None, default=None
        Clusters of the items, which the page opens with.
    """

    title: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    classes: Sequence[ClassCount] = ()
    curve: MergingCurve | None = None
    confusion: ConfusionMatrix | None = None
    groups: Sequence[WordGroup] = ()
    examples: Sequence[Example] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    baselines: Sequence[Baseline] = ()
    tree: Tree | None = None
    clusters: ClusterSummary | None = None

    def _repr_html_(self) -> str:
        from bagwise.app.report.html import render_report
        from bagwise.display.notebook import embedded

        return embedded(render_report(self))


class CriterionResult(NamedTuple):
    """Errors of one criterion at each size, their standard errors (may be empty), and the seconds it took.

    A `reference` is not merging, such as all words; its line is dotted.
    """

    name: str
    errors: Sequence[float]
    standard_errors: Sequence[float] = ()
    seconds: float = 0.0
    reference: bool = False


@dataclass(frozen=True)
class Comparison:
    """Errors of several criteria at the same numbers of groups.

    Parameters
    ----------
    title : str
        Heading of the page.
    sizes : sequence of int
        Numbers of groups, increasing, at least one.
    criteria : sequence of CriterionResult
        At least one.
    protocol : str, default=""
        How the errors were measured.
    facts : mapping of str to str, int, float or bool, default={}
        Data set and options.
    """

    title: str
    sizes: Sequence[int]
    criteria: Sequence[CriterionResult]
    protocol: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        from bagwise.app.report.html import render_comparison
        from bagwise.display.notebook import embedded

        return embedded(render_comparison(self))


@dataclass(frozen=True)
class Hit:
    """One result of a search.

    Parameters
    ----------
    id : str
        Id of the item.
    score : float
        Its similarity to the query, or distance from it.
    label : str or None, default=None
        Its class, if known.
    picture : bytes or None, default=None
        Thumbnail, a PNG or JPEG file.
    excerpt : str or None, default=None
        Part of its text.
    link : str, default=""
        Address of its file: relative to the page, or with the scheme ``file:``. "" if it has none.
    values : sequence of float, default=()
        Of a row of a table, in the columns of `SearchResults`; empty if it is not known.
    """

    id: str
    score: float
    label: str | None = None
    picture: bytes | None = None
    excerpt: str | None = None
    link: str = ""
    values: Sequence[float] = ()


@dataclass(frozen=True)
class SearchResults:
    """A query and the results of its search, best first.

    Parameters
    ----------
    query_name : str
        File or text of the query.
    hits : sequence of Hit, default=()
        Best first.
    query_picture : bytes or None, default=None
        Thumbnail, a PNG or JPEG file.
    query_excerpt : str or None, default=None
        Part of the text of the query.
    score_name : str, default="score"
        Name of the scores, such as ``"chi2"``.
    facts : mapping of str to str, int, float or bool, default={}
        Index and number of items.
    query_link : str, default=""
        Address of the file of the query.
    itself : sequence of str, default=()
        Ids of the query in the index, if it was left out of the results.
    columns : sequence of str, default=()
        Names of columns of a table whose values are shown.
    query_values : sequence of float, default=()
        Those of the query.
    source : (str, str) or None, default=None
        Name and address of the file that all items are in.
    """

    query_name: str
    hits: Sequence[Hit] = ()
    query_picture: bytes | None = None
    query_excerpt: str | None = None
    score_name: str = "score"
    facts: Mapping[str, Fact] = field(default_factory=dict)
    query_link: str = ""
    itself: Sequence[str] = ()
    columns: Sequence[str] = ()
    query_values: Sequence[float] = ()
    source: tuple[str, str] | None = None

    def _repr_html_(self) -> str:
        from bagwise.app.report.html import render_results
        from bagwise.display.notebook import embedded

        return embedded(render_results(self))
