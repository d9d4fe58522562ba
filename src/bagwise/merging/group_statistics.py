"""Statistics of the groups of a cut, from which they can be merged again without the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy

__all__ = ["GroupStatistics"]

# Groups whose statistics are kept, and numbers of each.
MOST_GROUPS, MOST_COLUMNS = 1000, 256


@dataclass(frozen=True, eq=False)
class GroupStatistics:
    """What is kept of the data for merging groups again; see `bagwise.merging.edits`.

    Parameters
    ----------
    criterion : str
    values : array-like
        By additive criteria the states of groups, shape (n_groups, m), see `Scoring`. By trace ratios the upper
        triangles of A and B row by row, shape (2, n_groups (n_groups + 1) / 2), unless there are two groups. Stored as
        float32.
    n_groups : int
        Number of groups; the hierarchy is cut there.

    Examples
    --------
    >>> from bagwise import Hierarchy
    >>> from bagwise.merging.group_statistics import GroupStatistics
    >>> hierarchy = Hierarchy(3, [[0, 2]], [0.5], "aib")
    >>> GroupStatistics.of_states(hierarchy, [[0.1, 0.2], [0.3, 0.1], [0.1, 0.2]]).of_pairs
    False
    """

    criterion: str
    values: NDArray[np.float32]
    n_groups: int

    def __post_init__(self) -> None:
        numbers = np.asarray(self.values)
        if numbers.ndim != 2 or numbers.dtype.kind not in "iuf" or not np.isfinite(numbers).all():
            raise BagwiseError(f"Statistics of groups must be finite numbers in two dimensions; got {numbers!r:.100}.")
        values = np.array(numbers, dtype=np.float32, order="C")
        values.setflags(write=False)
        object.__setattr__(self, "values", values)
        (n, m), n_groups = values.shape, self.n_groups
        if not 1 <= n_groups <= MOST_GROUPS or not (self.of_pairs or (n == n_groups and 1 < m <= MOST_COLUMNS)):
            raise BagwiseError(
                f"Statistics of n groups, at most {MOST_GROUPS}, must be of shape (n, 2 to {MOST_COLUMNS}) or "
                f"(2, n (n + 1) / 2); got {values.shape} for n={n_groups}."
            )
        if not self.of_pairs and values[:, 0].min() < 0:  # whatever follows it in a state
            raise BagwiseError(f"Masses and counts of groups must not be negative; got {values[:, 0].min():g}.")

    @classmethod
    def of(cls, hierarchy: Hierarchy, values: Any) -> Self:
        """Make the statistics of the groups of a hierarchy, at the cut where they are kept."""
        return cls(hierarchy.criterion, values, base_size(hierarchy))

    @classmethod
    def of_states(cls, hierarchy: Hierarchy, states: Any) -> Self | None:
        """Sum the states of words over the groups of a cut; None if they are too wide to be kept, or of one cluster."""
        labels, columns = base_groups(hierarchy), np.asarray(states).T
        if not 1 < len(columns) <= MOST_COLUMNS or hierarchy.min_groups > MOST_GROUPS:
            return None
        return cls.of(hierarchy, np.stack([np.bincount(labels, column) for column in columns], axis=1))

    @property
    def of_pairs(self) -> bool:
        """Whether there are matrices over pairs of groups, and not their states."""
        n = self.n_groups
        return n != 2 and self.values.shape == (2, n * (n + 1) // 2)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupStatistics):
            return NotImplemented
        same = (self.criterion, self.n_groups) == (other.criterion, other.n_groups)
        return same and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]


def base_size(hierarchy: Hierarchy) -> int:
    """Return the number of groups whose statistics are kept: 1,000, or as near as a hierarchy can be cut."""
    return max(min(hierarchy.n_words, MOST_GROUPS), hierarchy.min_groups)


def base_groups(hierarchy: Hierarchy) -> NDArray[np.int64]:
    """Cut a hierarchy where statistics are kept."""
    return hierarchy.cut(base_size(hierarchy))
