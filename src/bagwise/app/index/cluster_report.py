"""What a report shows of the clusters of an index: cards, the map, the table of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from bagwise.app.index.clustering import cluster_data
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.modalities import MODALITIES
from bagwise.app.report.clusters import (
    MOST_CARDS,
    MOST_COLUMNS,
    ClusterCard,
    ClusterSummary,
    ClusterTermTable,
    ShownItem,
)
from bagwise.app.report.data import ReportData, WordGroup
from bagwise.app.training.fit import Fit
from bagwise.app.training.report_data import fit_report_data
from bagwise.sources.collection import Collection
from bagwise.sources.items import Item, ItemError

__all__ = ["cluster_summary", "clustered_report_data"]

# points of the map, rows of the table of words, regions, and groups that these are of
N_POINTS, N_TABLE_TERMS, N_REGIONS, N_REGION_GROUPS = 4000, 60, 16, 4
THUMBNAIL_SIDE = 120


def clustered_report_data(fit: Fit, index: ItemIndex) -> ReportData:
    """Collect the data of the report of a fit, which opens with the clusters of an index of its items."""
    data = fit_report_data(fit)
    clusters = cluster_summary(index, fit.data.collection, data.groups, fit.data.histograms)
    return replace(data, clusters=clusters)


def cluster_summary(
    index: ItemIndex, collection: Collection, groups: Sequence[WordGroup], histograms: Any = None
) -> ClusterSummary | None:
    """Collect what a report shows of the clusters of an index; None without clusters.

    Parameters
    ----------
    index : ItemIndex
    collection : Collection
        Its items, in their order.
    groups : sequence of WordGroup
        Whose patches show what is frequent in clusters of images.
    histograms : CSR array or ndarray, default=None
        As in `ItemIndex.with_clusters`.
    """
    clusters, model = index.clusters, index.model
    if clusters is None:
        return None
    described, patches = clusters.describe(model), {group.number: list(group.patches) for group in groups}
    shown = described[:MOST_CARDS]
    cards = []
    for one in described:
        of_groups = [patches.get(term.number, []) for term in one.terms] if clusters.terms_of == "groups" else []
        turns = [patch for turn in zip_longest(*of_groups[:N_REGION_GROUPS]) for patch in turn if patch is not None]
        items = [one.central, *one.typical, one.outermost] if one in shown and one.size else []
        seen = [_shown_item(collection[k], model.modality) for k in items]
        # words of pictures have no names: their regions speak
        named = () if clusters.terms_of == "groups" and turns else one.terms
        cards.append(
            ClusterCard(
                one.number,
                one.name,
                one.size,
                one.cohesion,
                one.certainty,
                [(term.name, term.inside, term.outside) for term in named],
                turns[:N_REGIONS],
                seen[0] if seen else None,
                seen[1:-1],
                seen[-1] if len(seen) > 1 else None,
            )
        )
    points, of_points = np.zeros((0, 2), np.float32), np.zeros(0, np.int32)
    if index.map is not None:
        on_map = np.flatnonzero((index.map.clusters >= 0) & (clusters.labels >= 0))
        on_map = np.sort(np.random.default_rng(0).permutation(on_map)[:N_POINTS])
        points, of_points = index.map.points[on_map], clusters.labels[on_map]
    shares_of = clusters.terms_of
    if shares_of == "words" and not MODALITIES[model.modality].terms_by_presence:
        shares_of = "frequencies"
    return ClusterSummary(
        cards=cards,
        method=clusters.method,
        shares_of=shares_of,
        n_items=len(index),
        n_unknown=int((clusters.labels < 0).sum()),
        numbers=clusters.numbers,
        agreement=clusters.agreement,
        points=points,
        point_clusters=of_points,
        table=_term_table(index, histograms, patches),
    )


def _shown_item(item: Item, modality: str) -> ShownItem:
    try:
        picture, excerpt = MODALITIES[modality].preview(item, THUMBNAIL_SIDE)
    except ItemError:  # deleted or changed since it was read
        return ShownItem(item.id)
    return ShownItem(item.id, picture, excerpt)


def _term_table(index: ItemIndex, histograms: Any, patches: dict[int, list[bytes]]) -> ClusterTermTable | None:
    """Return how frequent the strongest terms of the largest clusters are in each of these."""
    clusters = index.clusters
    assert clusters is not None
    n = min(len(clusters), MOST_COLUMNS)
    if n < 2:
        return None
    each = max(1, min(3, N_TABLE_TERMS // n))
    terms = list(dict.fromkeys(term for row in clusters.terms[:n, :each].tolist() for term in row if term >= 0))
    data = cluster_data(index, histograms)
    shares = clusters.shares_of(index.model, data.features, data.words, terms)[:n].T
    names = clusters.term_names(index.model)
    regions = [patches.get(term, []) for term in terms] if clusters.terms_of == "groups" else []
    return ClusterTermTable([names[term] for term in terms], list(range(n)), shares, regions) if terms else None
