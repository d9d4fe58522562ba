"""`ClusterEdit`: what was done to the clusters of items, so that it can be undone; kept in the file of an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.tensors import tensor
from bagwise.errors import BagwiseError

__all__ = ["CLUSTER_EDITS", "HISTORY_TENSORS", "ClusterEdit", "check_name", "history_of_parts", "history_to_parts"]
__all__ += ["numbers_after_join"]

# Members of each kind of edit, beside "edit".
CLUSTER_EDITS: dict[str, tuple[str, ...]] = {
    "rename_cluster": ("cluster", "name"),
    "join_clusters": ("clusters",),
    "split_cluster": ("cluster",),
    "move_items": ("items", "to"),
}
HISTORY_TENSORS = {"cluster_moved": tensor("int32", "n_moved", 2, low=0, optional=True)}
_MEMBERS = ("after", "edit", "given_names", "n_moved")
_MOST_EDITS = 10_000
_LONGEST_NAME = 200


@dataclass(frozen=True, eq=False)
class ClusterEdit:
    """An edit of clusters, with what is needed to undo it.

    Attributes
    ----------
    edit : mapping
        As it was made, see `ItemIndex.apply`; without the items that were moved, which `moved` has.
    given_names : mapping of int to str
        The names that people had given to clusters before.
    moved : ndarray of int32, shape (n_moved, 2)
        Items whose cluster was replaced by another one, and the clusters they were in.
    after : int
        The number of edits of the model's groups that had been made before.
    """

    edit: Mapping[str, Any]
    given_names: Mapping[int, str]
    moved: NDArray[np.int32]
    after: int

    def n_before(self, n: int) -> int:
        """Return the number of clusters before the edit, for that after it."""
        kind = self.edit["edit"]
        if kind == "join_clusters":
            return n + len(self.edit["clusters"]) - 1
        return n - 1 if kind == "split_cluster" or (kind == "move_items" and self.edit["to"] is None) else n

    def taken(self, places: NDArray[np.int64]) -> ClusterEdit:
        """Return the edit for some of the items; `places` has the new number of each item, -1 for those that go."""
        items = places[self.moved[:, 0]]
        kept = items >= 0
        return replace(self, moved=np.stack([items[kept], self.moved[kept, 1]], axis=1).astype(np.int32))

    def whole(self, ids: Sequence[str]) -> dict[str, Any]:
        """Return the edit with the ids of the items that were moved."""
        if self.edit["edit"] != "move_items":
            return dict(self.edit)
        return {"edit": "move_items", "items": [ids[k] for k in self.moved[:, 0].tolist()], "to": self.edit["to"]}


def numbers_after_join(n: int, joined: Sequence[int]) -> NDArray[np.int32]:
    """Return the numbers that clusters have when some are joined: the least of these, and others in their order.

    >>> numbers_after_join(6, [1, 4]).tolist()
    [0, 1, 2, 3, 1, 4]
    """
    gone = np.isin(np.arange(n), joined[1:])
    numbers = np.cumsum(~gone) - 1
    numbers[gone] = numbers[joined[0]]
    return numbers.astype(np.int32)


def history_to_parts(edits: Sequence[ClusterEdit]) -> tuple[list[dict[str, Any]], dict[str, NDArray[Any]]]:
    """Give the members of a header and the tensors of a file."""
    header = [
        {
            "edit": dict(one.edit),
            "given_names": {str(number): name for number, name in one.given_names.items()},
            "n_moved": len(one.moved),
            "after": one.after,
        }
        for one in edits
    ]
    return header, {"cluster_moved": np.concatenate([one.moved for one in edits])} if edits else {}


def history_of_parts(
    header: Any, tensors: Mapping[str, NDArray[Any]], n_clusters: int, n_items: int
) -> tuple[ClusterEdit, ...]:
    """Undo `history_to_parts`, and check that all edits can be undone. Errors begin with "its"."""
    moved = tensors.get("cluster_moved", np.zeros((0, 2), np.int32))
    if not isinstance(header, list) or len(header) > _MOST_EDITS:
        raise BagwiseError(f"its clusters have the edits {header!r:.100}; expected a list of at most {_MOST_EDITS:,}.")
    edits: list[ClusterEdit] = []
    first = 0
    for one in header:
        if not isinstance(one, Mapping) or sorted(one) != sorted(_MEMBERS) or not isinstance(one["edit"], Mapping):
            raise BagwiseError(f"its clusters have the edit {one!r:.100}; expected {', '.join(_MEMBERS)}.")
        if not all(type(one[name]) is int and one[name] >= 0 for name in ("n_moved", "after")):
            raise BagwiseError(f"its clusters have the edit {one!r:.100}; expected numbers from 0.")
        own_moves = moved[first : first + one["n_moved"]]
        first += one["n_moved"]
        if not isinstance(one["given_names"], Mapping):
            raise BagwiseError(f"its clusters have the given names {one['given_names']!r:.100}.")
        given_names = {_cluster(number): name for number, name in one["given_names"].items()}
        edits.append(ClusterEdit(one["edit"], given_names, own_moves, one["after"]))
    if first != len(moved):
        raise BagwiseError(f"its clusters have {len(moved)} moved items; its edits name {first}.")
    n = n_clusters
    for edit in reversed(edits):
        n = _checked(edit, n, n_items)
    return tuple(edits)


def check_name(name: Any, whose: str) -> None:
    """Raise an error unless a name of a cluster is a short printable text."""
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise BagwiseError(f"{whose} has the name {name!r:.100}; expected 1 to {_LONGEST_NAME} printable characters.")


def _cluster(number: Any) -> int:
    """Read the number of a cluster that is the name of a member."""
    if not (isinstance(number, str) and number.isascii() and number.isdecimal() and str(int(number[:9])) == number):
        raise BagwiseError(f"its clusters have a name for {number!r:.50}; expected the number of a cluster.")
    return int(number)


def _checked(one: ClusterEdit, n: int, n_items: int) -> int:
    """Check an edit of a file, for the number of clusters after it; return that before it."""
    edit, kind = one.edit, one.edit.get("edit")
    wanted = {"edit", *CLUSTER_EDITS.get(kind, ())} - {"items"} if isinstance(kind, str) else set()
    sound = isinstance(kind, str) and kind in CLUSTER_EDITS and edit.keys() == wanted
    if sound and kind == "join_clusters":
        numbers = edit["clusters"]
        sound = isinstance(numbers, list) and len(numbers) > 1 and all(type(k) is int and k >= 0 for k in numbers)
        sound = sound and numbers == sorted(set(numbers)) and numbers[-1] < n + len(numbers) - 1
    elif sound and kind == "move_items":
        sound = edit["to"] is None or (type(edit["to"]) is int and 0 <= edit["to"] < n)
    elif sound:
        sound = type(edit["cluster"]) is int and 0 <= edit["cluster"] < one.n_before(n)
    if sound and kind == "rename_cluster" and edit["name"] is not None:
        check_name(edit["name"], "its clusters")
    before = one.n_before(n) if sound else 0
    items, clusters = one.moved[:, 0], one.moved[:, 1]
    sound = sound and before >= 1 and items.max(initial=-1) < n_items and clusters.max(initial=-1) < before
    if not sound or not all(0 <= number < before for number in one.given_names):
        raise BagwiseError(f"its clusters have the edit {dict(edit)!r:.200}, which cannot lead to {n} clusters.")
    for name in one.given_names.values():
        check_name(name, "its clusters")
    return before
