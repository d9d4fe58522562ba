"""The first page: facts of the model, errors along the path of merging, confusion matrix."""

from __future__ import annotations

import os
from typing import Any

from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute, Route

from bagwise._utils.memory import readable_size
from bagwise._utils.text import how_many
from bagwise.app.explorer.python_lines import overview_lines
from bagwise.app.explorer.requests import locked, size_of
from bagwise.app.explorer.workspace import Cut, Workspace
from bagwise.app.modalities import MODALITIES
from bagwise.app.training.baselines import baselines_of
from bagwise.app.training.seen import SeenItems
from bagwise.display.texts import clean

__all__ = ["overview", "python", "routes"]


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""

    def visit(query: QueryParams, path: dict[str, Any]) -> Any:
        told = overview(space, size_of(query))
        space.visited.set()
        return told

    return [
        Route("/api/overview", locked(space, visit)),
        Route("/api/python/overview", locked(space, lambda q, _: {"lines": python(space, q)})),
    ]


def python(space: Workspace, query: QueryParams) -> str:
    """Return the Python lines of the page."""
    return overview_lines(space, size_of(query))


def overview(space: Workspace, n: int | None) -> dict[str, Any]:
    """Return the facts of the model, its errors along the path of merging, and the confusion matrix of the items."""
    cut, model = space.cut(n), space.model
    path = model.path
    least, most = space.sizes
    return {
        "title": clean(space.title),
        "modality": model.modality,
        "n_words": model.hierarchy.n_words,
        "n_groups": cut.model.n_groups,
        "default_groups": model.n_groups,
        "least_groups": least,
        "most_groups": most,
        "classes": list(map(clean, model.classes)),
        "classifiers": list(model.heads),
        "facts": _facts(space),
        "baselines": [
            {"name": clean(one.name), "error": one.error, "standard_error": one.standard_error}
            for one in baselines_of(model)
        ],
        "path": None if path is None else {**path.to_dict(), "auto": path.auto},
        "items": None
        if space.items is None
        else {
            "n": len(space.items),
            "n_labelled": int((space.items.codes >= 0).sum()),
            "place": clean(space.items.place),
        },
        "error": cut.error,
        "answered_at": cut.answered_at,
        "held_out": _held_out(cut),
        "seen": None if space.items is None or space.items.seen is None else _seen(cut, space.items.seen),
        "confusion": None if cut.confusion is None else cut.confusion.tolist(),
        "searchable": space.items is not None,
        "search_by": _search_by(space),
        "confidence": cut.confidence_name,
        "comparable": space.other is not None,
        "steer": None
        if space.editor is None
        else {
            "revision": space.revision,
            "read_only": space.editor.read_only,
            "n_edits": len(model.edits) + (0 if space.clusters is None else len(space.clusters.edits)),
            "edited": bool(model.edits),
            "n_undone": len(space.editor.shown.undone),
            "kinds": [*space.editor.kinds, *space.editor.cluster_kinds],
        },
        "clusters": _clusters(space),
        "can_cluster": space.editor is not None and not space.editor.why_no_clusters,
    }


def _clusters(space: Workspace) -> list[dict[str, Any]] | None:
    """Return the names and numbers of the clusters of items; None if there are none."""
    item_clusters = space.clusters
    if item_clusters is None:
        return None
    sizes = item_clusters.sizes.tolist()
    return [{"number": k, "name": clean(item_clusters.name(k)), "size": size} for k, size in enumerate(sizes)]


def _search_by(space: Workspace) -> list[str]:
    """Return what items can be compared by in a search."""
    if space.items is None:
        return []
    if space.items.index.by != "both":
        return ["groups"]
    return ["words", "classes", "groups"] if space.model.heads else ["words", "groups"]


def _held_out(cut: Cut) -> dict[str, Any] | None:
    """Return how many items have answers of cross-validation, and the error of those."""
    if cut.items is None or cut.items.held_out is None or not cut.has_answers:
        return None
    chosen = cut.items.held_out
    return {"n": int(chosen.sum()), "error": cut.error_of(chosen), "protocol": clean(cut.items.protocol)}


def _seen(cut: Cut, seen: SeenItems) -> dict[str, Any]:
    """Return how many items the model was learned from, and the errors of those and of others."""
    new = seen.new
    return {
        "n_seen": seen.n_seen,
        "n_new": int(new.sum()),
        "exact": seen.exact,
        "error_seen": cut.error_of(seen.seen),
        "error_new": cut.error_of(new),
    }


def _facts(space: Workspace) -> list[tuple[str, str]]:
    model, made = space.model, space.model.provenance
    facts = [("Modality", model.modality)]
    if space.origin is not None and os.path.isfile(space.origin.path):
        what = "File of the index" if space.origin.is_index else "File of the model"
        facts.append((what, readable_size(os.path.getsize(space.origin.path))))
    if "source" in made:
        facts.append(("Learned from", f"{made['source']}, {how_many(made.get('n_items', 0), model.modality)}"))
    facts.append((MODALITIES[model.modality].word_title, f"{model.hierarchy.n_words:,}"))
    reason = made.get("criterion_reason")
    facts.append(("Merged by", str(model.hierarchy.criterion) + (f" ({reason})" if reason else "")))
    facts += [("Descriptor", one.name) for one in model.descriptors]
    if model.heads:
        facts.append(("Classifiers", f"at {', '.join(map(str, model.heads))} groups"))
    if made.get("created"):
        facts.append(("Created", str(made["created"])))
    versions = made.get("versions", {})
    if versions:
        facts.append(("Versions", ", ".join(f"{name} {number}" for name, number in versions.items())))
    return [(name, clean(value)) for name, value in facts]
