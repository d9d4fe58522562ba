"""Clusters of items in reports: data, sentences, the map, the table of words, and what pages show of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.text import how_many
from bagwise.display.icicle import N_TONES
from bagwise.display.svg import N_LEVELS, element, text
from bagwise.display.texts import fixed, percent

if TYPE_CHECKING:
    from bagwise.clustering import ClusterNumbers

__all__ = [
    "MOST_CARDS",
    "MOST_COLUMNS",
    "TABLE_TITLES",
    "ClusterCard",
    "ClusterSummary",
    "ClusterTermTable",
    "ShownItem",
    "about_clusters",
]
__all__ += ["about_number_of_clusters", "agreement_line", "clusters_view", "map_chart"]

_MOST_OTHERS = 3  # other stable numbers that a sentence names
MOST_CARDS, _MOST_TERMS = 60, 6
MOST_COLUMNS = 40  # clusters in the table of words
_LEGEND = 12
_UNSTABLE = 0.5  # agreement of halves below which clusters may be none
_WIDTH, _HEIGHT, _MARGIN = 760.0, 480.0, 14.0
_FARTHEST = 3.0  # standard deviations; the few points beyond lie on the border
# Titles of the table, and what the shares of terms are.
TABLE_TITLES = {
    "words": "Words by cluster",
    "frequencies": "Words by cluster",
    "groups": "Groups of words by cluster",
    "columns": "Columns by cluster",
}
_SHARES = {
    "words": "the part of the items that have the word",
    "frequencies": "the mean relative frequency of the word",
    "groups": "the mean relative frequency of the group of words",
    "columns": "the mean, in standard deviations from that of all items",
}


class ShownItem(NamedTuple):
    """An item: its id, a thumbnail (a PNG or JPEG file) and part of its text, where there is one."""

    id: str
    picture: bytes | None = None
    excerpt: str | None = None


@dataclass(frozen=True)
class ClusterCard:
    """A cluster of items; `cohesion` and `certainty` are those of `bagwise.app.index.item_clusters.Cluster`."""

    number: int
    name: str
    size: int
    cohesion: float
    certainty: float
    terms: Sequence[tuple[str, float, float]] = ()  # what tells it from the others, inside and outside of it
    patches: Sequence[bytes] = ()  # regions of images in its strongest groups of words, PNG or JPEG files
    central: ShownItem | None = None
    typical: Sequence[ShownItem] = ()
    outermost: ShownItem | None = None


@dataclass(frozen=True, eq=False)
class ClusterTermTable:
    """How frequent the strongest terms are in each cluster."""

    terms: Sequence[str]
    clusters: Sequence[int]  # numbers of the clusters of the columns
    shares: NDArray[np.float64]  # terms x clusters
    patches: Sequence[Sequence[bytes]] = ()  # regions of images for each term, PNG or JPEG files


@dataclass(frozen=True, eq=False)
class ClusterSummary:
    """Clusters of a collection, for its report.

    >>> from bagwise.app.report.clusters import ClusterCard, ClusterSummary, about_clusters
    >>> summary = ClusterSummary([ClusterCard(0, "key, chip", 7, 0.5, 0.9)], "kmeans", "words", 7)
    >>> "".join(about_clusters(summary)[0])
    '7 items in 1 cluster, found without labels.'
    """

    cards: Sequence[ClusterCard]  # all clusters, by their numbers
    method: str
    shares_of: str  # what the numbers beside terms are: "words", "frequencies", "groups" or "columns"
    n_items: int
    n_unknown: int = 0  # items without words, which are in no cluster
    numbers: ClusterNumbers | None = None  # evidence for their number, if it was suggested
    # with labels that were not used: normalised mutual information, adjusted Rand index, items, classes
    agreement: tuple[float, float, int, int] | None = None
    # some items on the map, about 1 from their mean
    points: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 2), np.float32))
    point_clusters: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    table: ClusterTermTable | None = None


def about_number_of_clusters(n: int, method: str, numbers: ClusterNumbers | None, how: str) -> list[str]:
    """Say how the number of clusters was found, with the other stable ones; `how` names what chooses another one.

    >>> from bagwise.clustering import ClusterNumbers
    >>> for line in about_number_of_clusters(3, "kmeans", ClusterNumbers((2, 3), (0.9, 0.95), (0.01, 0.01)), "-c"):
    ...     print(line)
    3 clusters by kmeans.
    3 is a suggestion: the number at which halves of the items agree most about clusters (0.95 of 1).
    Choose another one by -c.
    """
    said = [f"{how_many(n, 'clusters')} by {method}."]
    if numbers is None:
        return said
    stable = f"{numbers.stability_of(numbers.suggested) or 0:.2f} of 1"
    said.append(f"{n} is a suggestion: the number at which halves of the items agree most about clusters ({stable}).")
    if max(numbers.stability) < _UNSTABLE:
        said.append("That is little: there may be no clusters.")
    others = [f"{size} ({numbers.stability_of(size) or 0:.2f})" for size in numbers.others[:_MOST_OTHERS]]
    if not others:
        return [*said, f"Choose another one by {how}."]
    listed = others[0] if len(others) == 1 else f"{', '.join(others[:-1])} and {others[-1]}"
    said.append(f"Next best, more stable than their neighbours: {listed}. Choose by {how}.")
    return said


def agreement_line(agreement: tuple[float, float, int, int], labels: str = "labels", used: bool = False) -> str:
    """Say how clusters agree with labels, which the model may have used.

    >>> agreement_line((0.634, 0.5, 120, 6))
    'Agreement with the labels of 120 items, 6 classes, which were not used: NMI 0.63, adjusted Rand index 0.50.'
    """
    nmi, ari, n_items, n_classes = agreement
    of_items = f"{how_many(n_items, 'items')}, {how_many(n_classes, 'classes')}"
    return (
        f"Agreement with the {labels} of {of_items}{'' if used else ', which were not used'}: NMI {nmi:.2f}, adjusted "
        f"Rand index {ari:.2f}."
    )


def about_clusters(summary: ClusterSummary) -> list[tuple[str]]:
    """Say what was clustered, how many clusters there are and why, and the agreement with labels, in sentences."""
    n = len(summary.cards)
    said = [(f"{how_many(summary.n_items, 'items')} in {how_many(n, 'clusters')}, found without labels.",)]
    if summary.numbers is not None:
        why = about_number_of_clusters(n, summary.method, summary.numbers, "bagwise cluster -c N")
        said += [(line,) for line in why[1:]]
    if summary.n_unknown:
        said.append((f"{how_many(summary.n_unknown, 'items')} without words of the vocabulary: in no cluster.",))
    return said


def clusters_view(summary: ClusterSummary) -> dict[str, Any]:
    """Return the variables of the template for clusters."""
    shown = summary.cards[:MOST_CARDS]
    return {
        "cluster_cards": [_card_view(card, summary) for card in shown],
        "any_terms": any(card.terms for card in shown),
        "cluster_rows": summary.cards[MOST_CARDS:],
        "largest_cluster": max((card.size for card in summary.cards), default=0),
        "cluster_shares": _SHARES[summary.shares_of],
        "cluster_agreement": None if summary.agreement is None else agreement_line(summary.agreement),
        "cluster_legend": [card.name for card in summary.cards] if len(summary.cards) <= _LEGEND else [],
        "cluster_table": None if summary.table is None else _table_view(summary.table, summary),
    }


def _share(value: float, shares_of: str) -> str:
    return fixed(value, 1, sign=True) if shares_of == "columns" else percent(value)


def _card_view(card: ClusterCard, summary: ClusterSummary) -> dict[str, Any]:
    largest = max((abs(inside) for _, inside, _ in card.terms), default=0.0)
    terms = [
        {
            "name": name,
            "inside": _share(inside, summary.shares_of),
            "outside": _share(outside, summary.shares_of),
            "value": inside,
        }
        for name, inside, outside in card.terms[:_MOST_TERMS]
    ]
    return {"card": card, "terms": terms, "largest": largest, "signed": summary.shares_of == "columns"}


def _table_view(table: ClusterTermTable, summary: ClusterSummary) -> dict[str, Any]:
    names = {card.number: card.name for card in summary.cards}
    rows: list[dict[str, Any]] = []
    regions = table.patches or [()] * len(table.terms)
    for name, shares, patches in zip(table.terms, table.shares, regions, strict=True):
        largest, cells = float(np.abs(shares).max(initial=0)), []
        for value in shares.tolist():
            level = round(N_LEVELS * abs(value) / largest) if largest else 0
            kind = "" if not level else f"l{level}" if value > 0 else f"n{max(1, round(level / 2))}"
            cells.append({"kind": kind, "text": _cell(value, summary.shares_of) if level else ""})
        rows.append({"name": name, "cells": cells, "patches": patches})
    columns = [{"number": number, "name": names[number]} for number in table.clusters]
    return {"columns": columns, "rows": rows, "n_left": len(summary.cards) - len(table.clusters)}


def _cell(value: float, shares_of: str) -> str:
    if shares_of == "columns":
        return fixed(value, 1)
    return f"{100 * value:.0f}" if value >= 0.0095 else f"{100 * value:.1f}"


def map_chart(summary: ClusterSummary) -> str:
    """Draw items on their map as an ``svg`` element, coloured by cluster; numbers of clusters are at their medians."""
    points = np.clip(np.asarray(summary.points, np.float64), -_FARTHEST, _FARTHEST)
    low, high = points.min(axis=0), points.max(axis=0)
    size = np.array([_WIDTH, _HEIGHT]) - 2 * _MARGIN
    places = _MARGIN + (points - low) / np.where(high > low, high - low, 1) * size
    drawn, numbers = [], []
    for number in np.unique(summary.point_clusters).tolist():
        inside = places[summary.point_clusters == number]
        dots = "".join(f"M{x:.0f},{y:.0f}h0" for x, y in inside.tolist())
        drawn.append(element("path", d=dots, class_=f"dots dots-{number % N_TONES}"))
        x, y = np.median(inside, axis=0).tolist()
        numbers.append(text(str(number), x, y, "dot-number", "middle"))
    names = {card.number: card.name for card in summary.cards}
    label = f"Map of {how_many(len(points), 'items')} in {how_many(len(names), 'clusters')}"
    return element(
        "svg", *drawn, *numbers, class_="map", viewBox=f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}", role="img", aria_label=label
    )
