"""The hierarchy as an icicle: rows of nested cuts, drawn by the script of the explorer, or as SVG without a script."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.text import count, how_many
from bagwise.display.svg import LIGHT, element, text
from bagwise.display.texts import clean, one_line, percent, shortened

__all__ = ["N_TONES", "Tree", "TreeRow", "icicle_chart", "script_data", "tree_script"]

N_TONES = sum(name.startswith("series-") for name in LIGHT)  # colours of classes
_ROW, _HEAD, _WIDTH = 22.0, 64.0, 760.0
_LETTER = 6.4  # pixels of a letter
_NARROW = 0.4  # pixels; narrower groups are not drawn


@dataclass(frozen=True)
class TreeRow:
    """One cut of a hierarchy: its groups in the order of their words, which is the same in all cuts.

    Parameters
    ----------
    n_groups : int
    groups : sequence of int
        Numbers of the groups.
    shares : sequence of float
        Their parts of all occurrences; together 1.
    classes : sequence of int
        The class that each speaks for most, by its number; -1: none.
    names : sequence of str
    """

    n_groups: int
    groups: Sequence[int]
    shares: Sequence[float]
    classes: Sequence[int]
    names: Sequence[str]

    @classmethod
    def of(
        cls,
        labels: NDArray[np.int64],
        totals: NDArray[np.float64],
        strongest: NDArray[np.int64] | None,
        name: Callable[[int], str],
    ) -> TreeRow:
        """Make the row of a cut.

        Parameters
        ----------
        labels, totals : ndarray of shape (n_words,)
            The group of each word and its part of all occurrences, in the order of `Hierarchy.leaf_order`.
        strongest : ndarray of shape (n_groups,), or None
            The class of each group.
        name : callable
            Gives the name of a group.

        Examples
        --------
        >>> row = TreeRow.of(np.array([1, 1, 0]), np.array([0.5, 0.25, 0.25]), None, "group {}".format)
        >>> row.groups, row.shares, row.names
        ([1, 0], [0.75, 0.25], ['group 1', 'group 0'])
        """
        starts = np.flatnonzero(np.concatenate([[True], labels[1:] != labels[:-1]]))
        numbers, shares = labels[starts].tolist(), np.add.reduceat(totals, starts).tolist()
        classes = [-1] * len(numbers) if strongest is None else strongest[numbers].tolist()
        shown = [float(f"{share:.6g}") for share in shares]
        return cls(len(numbers), numbers, shown, classes, [clean(name(k)) for k in numbers])

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON values, for the script."""
        columns = ("groups", "shares", "classes", "names")
        return {"n_groups": self.n_groups} | {name: list(getattr(self, name)) for name in columns}


@dataclass(frozen=True)
class Tree:
    """Cuts of a hierarchy, from few groups to many.

    Parameters
    ----------
    rows : sequence of TreeRow
        By increasing number of groups, at least one.
    n_words : int
    classes : sequence of str, default=()
        Without names, classes are only colours.
    n_groups : int or None, default=None
        The number of groups of the model.
    of : str, default="occurrences"
        What shares are parts of.
    """

    rows: Sequence[TreeRow]
    n_words: int
    classes: Sequence[str] = ()
    n_groups: int | None = None
    of: str = "occurrences"

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as JSON values, for the script."""
        rows = [row.to_dict() | {"names": [one_line(name) for name in row.names]} for row in self.rows]
        classes = [one_line(name) for name in self.classes]
        return {"rows": rows, "n_words": self.n_words, "classes": classes, "n_groups": self.n_groups, "of": self.of}


def icicle_chart(tree: Tree) -> str:
    """Draw a tree as an ``svg`` element; colours are the classes ``tone-0`` to ``tone-5`` of the style sheet."""
    parts = []
    width = _WIDTH - _HEAD
    for r, row in enumerate(tree.rows):
        top, start = _ROW * r, 0.0
        kind = "tick chosen-row" if row.n_groups == tree.n_groups else "tick"
        parts.append(text(count(row.n_groups), _HEAD - 8, top + 15, kind, "end"))
        for k, share in enumerate(row.shares):
            wide = share * width
            if wide >= _NARROW:
                parts.append(_segment(tree, row, k, _HEAD + start, top, wide))
            start += wide
    label = f"Hierarchy of {how_many(tree.n_words, 'words')}: each row is a cut, a group lies above its parts"
    box = f"0 0 {_WIDTH:g} {_ROW * len(tree.rows):g}"
    return element("svg", *parts, class_="icicle", viewBox=box, role="img", aria_label=label)


def _segment(tree: Tree, row: TreeRow, k: int, left: float, top: float, wide: float) -> str:
    speaks = row.classes[k]
    tone = "tone" if speaks < 0 else f"tone-{speaks % N_TONES}"
    of = "" if speaks < 0 or not tree.classes else f", speaks for {one_line(tree.classes[speaks])}"
    about = f"{one_line(row.names[k])}: {percent(row.shares[k])} of all {tree.of}{of}"
    gap = 1.0 if wide > 4 else 0.0
    drawn = element("title", escape(about))
    drawn += element("rect", x=left, y=top + 1, width=max(wide - gap, 0.5), height=_ROW - 2, class_=tone)
    letters = int((wide - 10) / _LETTER)
    if letters >= 4:
        shown = shortened(row.names[k], letters)
        drawn += text(shown, left + 5, top + 15, "on-tone" if speaks >= 0 else "on-track")
    return element("g", drawn)


def script_data(tree: Tree) -> str:
    r"""Return a tree as JSON that may stand inside a ``script`` element: no text in it can end the element.

    >>> row = TreeRow(1, [0], [1.0], [-1], ["</script>"])
    >>> "</" in script_data(Tree([row], 1)), json.loads(script_data(Tree([row], 1)))["rows"][0]["names"]
    (False, ['</script>'])
    """
    whole = json.dumps(tree.to_dict(), separators=(",", ":"))  # in ASCII
    return whole.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@lru_cache(maxsize=1)
def tree_script() -> str:
    """Return the modules of the explorer that draw an icicle as one script, which draws the tree of a page.

    Pages that are opened as files cannot import modules, so these stand in the page itself.
    """
    parts = [resources.files(__package__).joinpath(f"static/{name}").read_text("utf-8") for name in _SCRIPTS]
    modules = re.sub(r"^import .*;\n", "", "\n".join(parts), flags=re.M)
    modules = re.sub(r"^export (?=function|async|const)", "", modules, flags=re.M)
    return f'"use strict";\n(() => {{\n{modules}}})();\n'


_SCRIPTS = ("dom.js", "icicle.js", "page.js")
