"""Clusters of items: names, sizes, what tells them apart, typical items, and the labels that they give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bagwise.app.explorer.pages.items import rows_of
from bagwise.app.explorer.pages.steer import measured
from bagwise.app.explorer.python_lines import cluster_lines
from bagwise.app.explorer.requests import reading, safe, size_of
from bagwise.app.explorer.workspace import Workspace
from bagwise.app.index.item_clusters import Cluster, ItemClusters
from bagwise.app.modalities import MODALITIES
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.clustering import ClusterNumbers

__all__ = ["cluster", "clusters", "labels", "routes"]


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""

    def of_items(request: Request) -> Response:
        return Response(clusters_shown(space).labels.astype("<i4").tobytes(), media_type="application/octet-stream")

    def number(path: dict[str, Any]) -> int:
        return int(path["number"])

    return [
        Route("/api/clusters", reading(lambda q, _: clusters(space, size_of(q)))),
        Route("/api/clusters/measured", reading(lambda q, _: measures(space))),
        Route("/api/clusters/labels", reading(lambda q, _: labels(space, _least(q)))),
        Route("/api/clusters/items", safe(of_items)),
        Route("/api/clusters/{number:int}", reading(lambda q, p: cluster(space, size_of(q), number(p)))),
        Route("/api/python/clusters", reading(lambda q, _: {"lines": cluster_lines(space)})),
    ]


def clusters_shown(space: Workspace) -> ItemClusters:
    """Return the clusters; raise an error if there are none."""
    if space.clusters is None:
        raise BagwiseError("These items have no clusters. Make them by: bagwise cluster INDEX")
    return space.clusters


def _described(space: Workspace) -> list[Cluster]:
    return space.once("clusters", lambda: clusters_shown(space).describe(space.model))


def clusters(space: Workspace, n: int | None) -> dict[str, Any]:
    """Return all clusters, the largest first, with their most central items; how they were made, and their number."""
    editor = space.editor
    assert editor is not None
    told: dict[str, Any] = {"why_not": editor.why_no_clusters, "clusters": None}
    if space.clusters is None:
        return told
    item_clusters, made = space.clusters, _described(space)
    shown = sorted((one for one in made if one.size), key=lambda one: (-one.size, one.number))
    pictures = MODALITIES[space.model.modality].pictured  # of which more fit on a card
    numbers = [[one.central, *(one.typical if pictures else ())] for one in shown]
    rows, opening = rows_of(space, n, [k for of_cluster in numbers for k in of_cluster])
    each = iter(rows)
    return told | {
        "clusters": [
            _told(space, one) | {"items": [next(each) for _ in of_cluster]}
            for one, of_cluster in zip(shown, numbers, strict=True)
        ],
        "opening": opening,
        "method": item_clusters.method,
        "terms_of": item_clusters.terms_of,
        "n_items": len(item_clusters.labels),
        "n_without": int((item_clusters.labels < 0).sum()),
        "numbers": None if item_clusters.numbers is None else _numbers(item_clusters.numbers),
        "agreement": None if item_clusters.agreement is None else item_clusters.agreement._asdict(),
        "n_edits": len(item_clusters.edits),
    }


def _numbers(numbers: ClusterNumbers) -> dict[str, Any]:
    return {
        "sizes": list(numbers.sizes),
        "stability": list(numbers.stability),
        "standard_errors": list(numbers.standard_errors),
        "suggested": numbers.suggested,
        "others": list(numbers.others),
    }


def _told(space: Workspace, one: Cluster) -> dict[str, Any]:
    assert space.clusters is not None
    return {
        "number": one.number,
        "name": clean(one.name),
        "given": one.is_named,
        "made": clean(space.clusters.names[one.number]),
        "size": one.size,
        "cohesion": one.cohesion,
        "certainty": one.certainty,
        "terms": [
            {"name": clean(term.name), "number": term.number, "inside": term.inside, "outside": term.outside}
            for term in one.terms
        ],
    }


def cluster(space: Workspace, n: int | None, number: int) -> dict[str, Any]:
    """Return one cluster with its most central item, typical ones and the outermost."""
    item_clusters = clusters_shown(space)
    if number >= len(item_clusters):
        raise BagwiseError(f"There is no cluster {number}: there are {len(item_clusters)}, numbered from 0.")
    one = _described(space)[number]
    if not one.size:
        raise BagwiseError(f"Cluster {number} has no items any more.")
    numbers = [one.central, *one.typical, one.outermost]
    rows, opening = rows_of(space, n, numbers)
    told = _told(space, one)
    if item_clusters.terms_of == "groups":
        pictured = _pictured(space)
        told["terms"] = [term | {"patches": term["number"] in pictured} for term in told["terms"]]
    return told | {
        "terms_of": item_clusters.terms_of,
        "central": rows[0],
        "typical": rows[1:-1],
        "outermost": rows[-1],
        "opening": opening,
    }


def _pictured(space: Workspace) -> set[int]:
    """Return the groups of the model that have pictures of typical patches."""
    cut = space.cut(None)
    with cut.lock:
        return set(cut.shown_first.tolist()) if space.items is not None and space.items.has_samples else set()


def measures(space: Workspace) -> dict[str, Any]:
    """Return how well the clusters can be told from words."""
    editor = space.editor
    assert editor is not None
    clusters_shown(space)
    return {"measured": measured(editor.clusters_measured())}


def _least(query: QueryParams) -> float:
    text = query.get("at_least", "") or "0"
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not 0 <= value <= 1:
        raise BagwiseError(f"at_least must be a number from 0 to 1, got {text!r:.40}.")
    return value


def labels(space: Workspace, at_least: float = 0.0) -> dict[str, Any]:
    """Return what ``bagwise fit --labels`` takes: the items that are so certain, and the names of their clusters."""
    item_clusters = clusters_shown(space)
    chosen = np.flatnonzero((item_clusters.labels >= 0) & (item_clusters.certainty >= at_least)).tolist()
    names = [item_clusters.name(number) for number in range(len(item_clusters))]
    return {
        "rows": [[space.ids[k], names[item_clusters.labels[k]]] for k in chosen],
        "n_left": len(item_clusters.labels) - len(chosen),
    }
