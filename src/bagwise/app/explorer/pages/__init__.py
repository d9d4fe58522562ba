"""The pages of the explorer, each with what it shows, as JSON values, and the addresses that give it."""

from __future__ import annotations

from bagwise.app.explorer.pages import between, clusters, compare, groups, items, labels, map, overview, search, steer

__all__ = ["PAGES"]

# By the path of their address; each has `routes(space)`.
PAGES = {
    "": overview,
    "clusters": clusters,
    "groups": groups,
    "items": items,
    "between": between,
    "labels": labels,
    "map": map,
    "search": search,
    "steer": steer,
    "compare": compare,
}
