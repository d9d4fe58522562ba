"""What the pages of a search and of a comparison show, as plain data; as in `bagwise.report.data`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bagwise.errors import BagwiseError
from bagwise.report import _fields
from bagwise.report._fields import Frozen, Pairs

__all__ = ["Comparison", "CriterionResult", "Hit", "SearchResults"]


@dataclass(frozen=True)
class Hit(Frozen):
    """One item that a search found.

    Parameters
    ----------
    id : str
        The item.
    score : float
        Its distance or similarity.
    label : str or None, default=None
        Its class, if that is known.
    picture : bytes or None, default=None
        A small PNG or JPEG file.
    excerpt : str or None, default=None
        Some of its text.

    Examples
    --------
    >>> from bagwise.report import Hit
    >>> Hit("beach/3.jpg", 0.91).score
    0.91
    """

    id: str
    score: float
    label: str | None = None
    picture: bytes | None = None
    excerpt: str | None = None

    def __post_init__(self) -> None:
        self._keep(
            id=_fields.text(self.id, "id"),
            score=_fields.finite(self.score, "score"),
            label=_fields.optional_text(self.label, "label"),
            picture=None if self.picture is None else _fields.picture(self.picture, "picture"),
            excerpt=_fields.optional_text(self.excerpt, "excerpt"),
        )


@dataclass(frozen=True)
class SearchResults(Frozen):
    """A query and what a search found, best first.

    Parameters
    ----------
    query_name : str
        File or text that was searched for.
    hits : sequence of Hit, default=()
        Best first.
    query_picture : bytes or None, default=None
        A small PNG or JPEG file.
    query_excerpt : str or None, default=None
        Some of the query's text.
    score_name : str, default="score"
        What the scores are, such as ``"chi² distance"``.
    facts : mapping or sequence of (name, value), default=()
        What was searched: the index, its number of items.

    Examples
    --------
    >>> from bagwise.report import Hit, SearchResults
    >>> len(SearchResults("beach.jpg", [Hit("a.jpg", 0.1), Hit("b.jpg", 0.4)], score_name="chi² distance").hits)
    2
    """

    query_name: str
    hits: Sequence[Hit] = ()
    query_picture: bytes | None = None
    query_excerpt: str | None = None
    score_name: str = "score"
    facts: Pairs = ()

    def __post_init__(self) -> None:
        picture = self.query_picture
        self._keep(
            query_name=_fields.text(self.query_name, "query_name"),
            hits=_fields.objects(self.hits, "hits", Hit),
            query_picture=None if picture is None else _fields.picture(picture, "query_picture"),
            query_excerpt=_fields.optional_text(self.query_excerpt, "query_excerpt"),
            score_name=_fields.text(self.score_name, "score_name"),
            facts=_fields.facts(self.facts),
        )


class CriterionResult(NamedTuple):
    """Errors of one criterion at each size, their standard errors (may be empty), and the seconds it took.

    Examples
    --------
    >>> from bagwise.report import CriterionResult
    >>> CriterionResult("csm", errors=(0.2, 0.1), standard_errors=(), seconds=1.5).seconds
    1.5
    """

    name: str
    errors: tuple[float, ...]
    standard_errors: tuple[float, ...]
    seconds: float


@dataclass(frozen=True)
class Comparison(Frozen):
    """Errors of several criteria at the same numbers of words.

    Parameters
    ----------
    title : str
        Heading of the page.
    sizes : sequence of int
        Numbers of words, increasing.
    criteria : sequence of CriterionResult, or of (name, errors, standard errors, seconds)
        One for each criterion. Standard errors may be empty.
    protocol : str, default=""
        How the errors were measured.
    facts : mapping or sequence of (name, value), default=()
        What was compared on: data and options.

    Examples
    --------
    >>> from bagwise.report import Comparison
    >>> comparison = Comparison("Digits", [10, 50], [("csm", [0.2, 0.1], [], 1.5), ("aib", [0.3, 0.1], [], 0.5)])
    >>> comparison.criteria[0].errors
    (0.2, 0.1)
    """

    title: str
    sizes: Sequence[int]
    criteria: Sequence[CriterionResult]
    protocol: str = ""
    facts: Pairs = ()

    def __post_init__(self) -> None:
        sizes = _fields.increasing(self.sizes, "sizes")
        if not sizes:
            raise BagwiseError("sizes must have at least one number of words, got none.")
        results = []
        kinds = ("name", "errors", "standard_errors", "seconds")
        for i, (name, errors, spread, seconds) in enumerate(_fields.entries(self.criteria, "criteria", kinds)):
            place = f"criteria[{i}]"
            shares, spreads = _fields.errors_at(sizes, errors, spread, f"{place}.")
            time = _fields.finite(seconds, f"{place}.seconds", lowest=0)
            results.append(CriterionResult(_fields.text(name, f"{place}.name"), shares, spreads, time))
        _fields.names([result.name for result in results], "criteria")
        if not results:
            raise BagwiseError("criteria must have at least one entry, got none.")
        self._keep(
            title=_fields.text(self.title, "title"),
            sizes=sizes,
            criteria=tuple(results),
            protocol=_fields.text(self.protocol, "protocol"),
            facts=_fields.facts(self.facts),
        )
