"""Statistics of the groups of a cut, from which they can be merged again without the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy

__all__ = ["GroupStatistics"]

# Criteria whose groups have states that add up, and those that have A and B.
SUMS, PAIRS = ("aib", "classifier", "clusters", "mlt"), ("csm", "lde", "lpp", "mfa", "nda", "semi_supervised")
# Groups whose statistics are kept, and numbers of each.
MOST_GROUPS, MOST_COLUMNS = 1000, 256


@dataclass(frozen=True, eq=False)
class GroupStatistics:
    """What is kept of the data for merging groups again; see `bagwise.merging.edits`.

    Parameters
    ----------
    criterion : str
    values : array-like
        For "aib", "classifier", "clusters" and "mlt" the states of groups, shape (n_groups, m), see `Scoring`. For
        trace ratios the upper triangles of A and B row by row, shape (2, n_groups (n_groups + 1) / 2). Stored as
        float32.

    Examples
    --------
    >>> from bagwise import Hierarchy
    >>> from bagwise.merging.group_statistics import GroupStatistics
    >>> GroupStatistics.of_states("aib", [[0.1, 0.2], [0.3, 0.1], [0.1, 0.2]], Hierarchy(3, [[0, 2]], [0.5])).n_groups
    3
    """

    criterion: str
    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        if self.criterion not in (*SUMS, *PAIRS):
            names = ", ".join(sorted((*SUMS, *PAIRS)))
            raise BagwiseError(f"Statistics of groups are kept for the criteria {names}; got {self.criterion!r:.50}.")
        if values.ndim != 2 or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            raise BagwiseError(f"Statistics of groups must be finite numbers in two dimensions; got {values!r:.100}.")
        held = np.array(values, dtype=np.float32, order="C")
        held.setflags(write=False)
        object.__setattr__(self, "values", held)
        n, m = values.shape
        fits = n == 2 and self.n_groups * (self.n_groups + 1) // 2 == m if self.of_pairs else 1 < m <= MOST_COLUMNS
        if not fits or not 1 <= self.n_groups <= MOST_GROUPS:
            shape = "(2, n (n + 1) / 2)" if self.of_pairs else f"(n, 2 to {MOST_COLUMNS})"
            accepted = f"of shape {shape} for n from 1 to {MOST_GROUPS} groups"
            raise BagwiseError(f"Statistics of {self.criterion!r} must be {accepted}; got {values.shape}.")
        counts = held[:, :1] if self.criterion == "classifier" else held
        if not self.of_pairs and counts.min() < 0:
            raise BagwiseError(f"Masses and counts of groups must not be negative; got {counts.min():g}.")

    @classmethod
    def of_states(cls, criterion: str, states: Any, hierarchy: Hierarchy) -> Self | None:
        """Sum the states of words over the groups of a cut; None if they are too wide to be kept, or of one cluster."""
        labels, given = base_groups(hierarchy), np.asarray(states)
        if not 1 < given.shape[1] <= MOST_COLUMNS or hierarchy.min_groups > MOST_GROUPS:
            return None
        return cls(criterion, np.stack([np.bincount(labels, column) for column in given.T], axis=1))

    @property
    def of_pairs(self) -> bool:
        """Whether there are matrices over pairs of groups."""
        return self.criterion in PAIRS

    @property
    def n_groups(self) -> int:
        """Number of groups; the hierarchy is cut there."""
        m = self.values.shape[1]
        return int(np.sqrt(2 * m + 0.25) - 0.5) if self.of_pairs else len(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupStatistics):
            return NotImplemented
        return self.criterion == other.criterion and np.array_equal(self.values, other.values)

    __hash__ = None  # type: ignore[assignment]


def base_size(hierarchy: Hierarchy) -> int:
    """Return the number of groups whose statistics are kept: 1,000, or as near as a hierarchy can be cut."""
    return max(min(hierarchy.n_words, MOST_GROUPS), hierarchy.min_groups)


def base_groups(hierarchy: Hierarchy) -> NDArray[np.int64]:
    """Cut a hierarchy where statistics are kept."""
    return hierarchy.cut(base_size(hierarchy))
