"""Views of hierarchies and mergers in notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.display import notebook
from bagwise.display.icicle import Tree, TreeRow, icicle_chart

if TYPE_CHECKING:
    from bagwise.merging.hierarchy import Hierarchy

__all__ = ["FittedView", "hierarchy_html"]

_SIZES = (1, 2, 5, 10, 20, 50)
_SHOWN = 12  # groups
_MAIN = 6  # groups that have a colour each


def hierarchy_html(hierarchy: Hierarchy, n_groups: int | None = None) -> str:
    """Return cuts of a hierarchy as a picture: a group is as wide as its part of the words."""
    n = hierarchy.n_words
    sizes = sorted({size for size in (*_SIZES, n_groups or 1) if hierarchy.min_groups <= size <= min(n, 200)})
    if not sizes or n < 2:
        return ""
    order = hierarchy.leaf_order()
    main = hierarchy.cut(min(max(_MAIN, hierarchy.min_groups), n))  # each of these has a colour
    rows = []
    for size in sizes:
        labels = hierarchy.cut(size)
        counts, tones = np.bincount(labels), np.full(size, -1)
        if size >= main.max() + 1:
            tones[labels] = main
        rows.append(TreeRow.of(labels[order], np.full(n, 1 / n), tones, _namer(counts)))
    return icicle_chart(Tree(rows, n, (), n_groups))


def _namer(counts: NDArray[np.int64]) -> Any:
    return lambda group: f"group {group}, {counts[group]:,} word{'' if counts[group] == 1 else 's'}"


def _groups_html(names: NDArray[Any], labels: NDArray[np.int64]) -> str:
    """Return the largest groups of a merger as a table."""
    counts = np.bincount(labels, minlength=len(names))
    order = np.argsort(-counts, kind="stable")[:_SHOWN].tolist()
    rows = [
        [
            notebook.name_cell(str(names[k])),
            notebook.number_cell(f"{counts[k]:,}"),
            notebook.bar_cell(counts[k], counts.max()),
        ]
        for k in order
    ]
    more = len(names) - len(order)
    left = notebook.line(f"and {more:,} smaller groups", quiet=True) if more > 0 else ""
    return notebook.table(["group", "words", ""], rows) + left


class FittedView:
    """Adds the groups of a fitted merger to the diagram that scikit-learn shows in notebooks."""

    def _fitted_html(self) -> str:
        merger: Any = self
        if not hasattr(merger, "n_features_in_") or not hasattr(merger, "labels_"):
            return ""
        names, hierarchy = merger.get_feature_names_out(), getattr(merger, "hierarchy_", None)
        about = f"{merger.n_features_in_:,} words merged into {len(names):,} group{'' if len(names) == 1 else 's'}"
        drawn = "" if hierarchy is None else hierarchy_html(hierarchy, len(names))
        return notebook.view(notebook.line(about), drawn, _groups_html(names, np.asarray(merger.labels_).ravel()))

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._fitted_html()  # type: ignore[misc]

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)  # type: ignore[misc]
        if "text/html" in bundle:
            bundle["text/html"] += self._fitted_html()
        return bundle
