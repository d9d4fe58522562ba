"""Steering: edits of the groups, what they do to the error, undo and redo, and where they are saved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.datastructures import QueryParams
from starlette.routing import BaseRoute, Route

from bagwise.app.explorer.editor import Editor, Shown, Step, described
from bagwise.app.explorer.requests import changing, reading, size_of
from bagwise.app.explorer.workspace import Workspace
from bagwise.app.index.cluster_edits import ClusterMeasured, described_edit
from bagwise.app.model.editing import linked_words
from bagwise.app.training.item_answers import Measured
from bagwise.display.texts import clean
from bagwise.errors import BagwiseError

__all__ = ["measured", "python_lines", "routes", "steer"]

_MOST_EDITS = 200  # that are listed


def routes(space: Workspace) -> list[BaseRoute]:
    """Return the addresses of the page."""
    editor = space.editor
    assert editor is not None

    def opened(query: QueryParams, path: dict[str, Any]) -> Any:
        editor.start()
        return steer(editor, size_of(query))

    changes: dict[str, Callable[[dict[str, Any]], None]] = {
        "edit": lambda content: editor.edit(_edit(content, space), _revision(content)),
        "cluster": lambda content: editor.cluster(_n_clusters(content), _revision(content)),
        "undo": lambda content: editor.undo(_revision(content)),
        "redo": lambda content: editor.redo(_revision(content)),
        "save": lambda content: editor.save(),
    }
    return [
        Route("/api/steer", reading(opened)),
        *(
            Route(f"/api/steer/{name}", changing(change, lambda: steer(editor, None)), methods=["POST"])
            for name, change in changes.items()
        ),
    ]


def _revision(content: dict[str, Any]) -> int:
    if type(content.get("revision")) is not int:
        raise BagwiseError(f"A change must have the revision that it is based on, got {content.get('revision')!r:.40}.")
    return int(content["revision"])


def _edit(content: dict[str, Any], space: Workspace) -> dict[str, Any]:
    edit: Any = content.get("edit")
    if not isinstance(edit, dict):
        raise BagwiseError(f"An edit must be a JSON object, got {edit!r:.100}.")
    if edit.get("edit") != "move_items" or "numbers" not in edit:
        return edit
    numbers = edit["numbers"]  # pages know items by their numbers
    if not isinstance(numbers, list) or not all(type(k) is int and 0 <= k < len(space.ids) for k in numbers):
        raise BagwiseError(f"numbers must be a list of items, numbered from 0 to {len(space.ids) - 1}.")
    return {name: value for name, value in edit.items() if name != "numbers"} | {
        "items": [space.ids[k] for k in numbers]
    }


def _n_clusters(content: dict[str, Any]) -> int | None:
    n = content.get("n_clusters")
    if n is not None and (type(n) is not int or n < 1):
        raise BagwiseError(f"The number of clusters must be a whole number from 1, or null; got {n!r:.40}.")
    return n


def steer(editor: Editor, n: int | None) -> dict[str, Any]:
    """Return the edits with the errors before and after each, what is locked and required, and where it is saved."""
    shown = editor.shown
    space = shown.space
    cut, error = space.cut(n), shown.steps[-1].measured
    return {
        "revision": space.revision,
        "n_groups": space.model.n_groups,
        "read_only": editor.read_only,
        "why_not": editor.why_not,
        "now": measured(error),
        "edits": _edits(shown),
        "n_edits": len(space.model.edits) + (0 if space.clusters is None else len(space.clusters.edits)),
        "undone": [clean(_text(step)) for step in shown.undone if step.edit is not None],
        "locked": [{"group": number, "name": clean(cut.title(number))} for number in sorted(cut.locked)],
        "links": _links(space),
        "saved": {
            "path": None if editor.path is None else clean(str(editor.path)),
            "changed": bool(space.revision),
            "problem": None if shown.problem is None else clean(shown.problem),
        },
        "python": python_lines(editor, shown),
    }


def _links(space: Workspace) -> list[dict[str, Any]]:
    """Return the words that must be together, and those that must not."""
    names = space.model.word_names
    return [
        {
            "together": kind == "must_link",
            "words": words,
            "names": [f"word {word}" if names is None else clean(names[word]) for word in words],
        }
        for kind, links in linked_words(space.model).items()
        for words in links
    ]


def _edits(shown: Shown) -> list[dict[str, Any]]:
    """Return the edits, the last one first."""
    steps = [step for step in shown.steps if step.edit is not None]
    earlier = _earlier(shown.space, steps)
    told = [_edit_told(len(earlier) + k, step) for k, step in enumerate(steps)]
    return [*({"number": k, "text": clean(text)} for k, text in enumerate(earlier)), *told][::-1][:_MOST_EDITS]


def _earlier(space: Workspace, steps: list[Step]) -> list[str]:
    """Return the edits of earlier sessions in words, those of groups and of clusters in their order."""
    of_groups = space.model.edits[: len(space.model.edits) - sum(not step.of_clusters for step in steps)]
    clusters, n = space.clusters, sum(step.of_clusters for step in steps)
    remade = any(step.edit is not None and step.edit["edit"] == "cluster_items" for step in steps)
    of_clusters = () if clusters is None or remade else clusters.edits[: len(clusters.edits) - n]
    told, after = list[str](), 0
    for one in of_clusters:
        told += [described(edit) for edit in of_groups[after : one.after]]
        after = max(after, min(one.after, len(of_groups)))
        told.append(described_edit(one.edit))
    return [*told, *(described(edit) for edit in of_groups[after:])]


def _text(step: Step) -> str:
    assert step.edit is not None
    return step.text or described(step.edit)


def _edit_told(number: int, step: Step) -> dict[str, Any]:
    assert step.edit is not None
    told = {
        "number": number,
        "text": clean(_text(step)),
        "when": None if step.when is None else step.when.isoformat(timespec="seconds"),
    }
    if step.of_clusters:
        before, after = measured(step.clusters_before), measured(step.clusters_found)
        return told | {"of_clusters": True, "from": None, "to": None, "before": before, "after": after}
    return told | {
        "from": None if step.before is None else step.before.n_groups,
        "to": step.model.n_groups,
        "before": measured(step.found_before),
        "after": measured(step.measured),
    }


def measured(error: Measured | None) -> dict[str, Any] | None:
    """Return an error with how it was found; of clusters with their number, cohesion and agreement with labels."""
    if error is None:
        return None
    told: dict[str, Any] = {"error": error.error, "standard_error": error.standard_error, "protocol": error.protocol}
    if isinstance(error, ClusterMeasured):
        told |= {"n_clusters": error.n_clusters, "cohesion": error.cohesion}
        told["nmi"] = None if error.agreement is None else error.agreement.nmi
    return told


def python_lines(editor: Editor, shown: Shown) -> str:
    """Return the lines of Python that make the same edits."""
    edits = "".join(f"    {edit!r},\n" for edit in shown.space.model.edits)
    path = "model.bagwise" if editor.path is None else str(editor.path)
    load, imported = f"Model.load({path!r})", "from bagwise import Model"
    if editor.of_index:
        load, imported = f"ItemIndex.load({path!r}).model", "from bagwise.app import ItemIndex"
    undone = f".undo({editor.n_saved})  # of the edits in the file" if editor.n_saved else ""
    target = Path(path).stem + ".edited.bagwise"
    listed = f"edits = [\n{edits}]\n" if edits else "edits = []\n"
    return f"{imported}\n\n{listed}model = {load}{undone}\nmodel.apply(edits).save({target!r})\n"
