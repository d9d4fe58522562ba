"""Two methods compared on the same tasks or splits: by how much one is lower, and whether that can be told.

A verdict needs a Student interval of 99 %: many pairs of methods are compared on a page, and at 95 % one in twenty that
do not differ would seem to. Two or three splits tell apart only what is far apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

__all__ = ["Difference", "always", "difference", "paired"]

LEVEL = 0.99


@dataclass(frozen=True)
class Difference:
    """Mean difference of two errors over tasks, in points, with its standard error."""

    mean: float
    error: float
    n: int

    @property
    def margin(self) -> float:
        """Half the width of the interval around the mean; infinite with one task."""
        return self.error * float(student.ppf((1 + LEVEL) / 2, self.n - 1)) if self.n > 1 else np.inf

    @property
    def below(self) -> bool | None:
        """Whether the first is lower; None if the difference is not significant."""
        return self.less_than(0)

    @property
    def above(self) -> bool | None:
        """Whether the first is higher; None if the difference is not significant."""
        return self.more_than(0)

    def less_than(self, points: float) -> bool | None:
        """Whether the first less the second is below so many points; None if that cannot be told."""
        if abs(self.mean - points) <= self.margin:
            return None
        return self.mean < points

    def more_than(self, points: float) -> bool | None:
        """Whether the first less the second is above so many points; None if that cannot be told."""
        less = self.less_than(points)
        return None if less is None else not less

    def within(self, points: float) -> bool | None:
        """Whether the two are no more than so many points apart, whichever is lower."""
        if abs(self.mean) + self.margin <= points:
            return True
        return False if abs(self.mean) - self.margin > points else None

    def __str__(self) -> str:
        spread = f" ± {self.error:.2f}" if np.isfinite(self.error) else ""  # one task or split has none
        return f"{self.mean:+.2f}{spread}"


def difference(gaps: ArrayLike) -> Difference:
    """The mean of differences over tasks, with its standard error."""
    values = np.asarray(gaps, dtype=np.float64)
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    return Difference(float(values.mean()), float(error), len(values))


def paired(first: Mapping[Any, float], second: Mapping[Any, float]) -> Difference | None:
    """Compare values by task, on the tasks that both have."""
    common = sorted(first.keys() & second.keys())
    return difference([first[task] - second[task] for task in common]) if common else None


def always(answers: Iterable[bool | None]) -> bool | None:
    """True if all are, False if one is, None otherwise."""
    given = list(answers)
    if False in given:
        return False
    return True if given and all(given) else None
