"""Numbers of groups along the merging path, and the choice of one by its scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bagwise.errors import unknown_name

__all__ = ["RULES", "choose_size", "path_sizes"]

RULES = ("best", "1se")


def path_sizes(n_words: int, *also: int) -> tuple[int, ...]:
    """Sizes along the path: 2, 5, 10, 20, 50 and so on, all words, and those given.

    >>> path_sizes(64, 30)
    (2, 5, 10, 20, 30, 50, 64)
    """
    steps = (step * 10**power for power in range(len(str(n_words))) for step in (1, 2, 5))
    return tuple(sorted({size for size in steps if 1 < size < n_words} | {n_words, *also}))


def choose_size(means: ArrayLike, standard_errors: ArrayLike, rule: str = "best") -> int:
    """Index of the size with the highest mean score, or of the smallest within one standard error of it ("1se").

    Sizes are in ascending order; ties go to the smallest.

    >>> choose_size([0.6, 0.88, 0.9, 0.9], [0.02] * 4, "best"), choose_size([0.6, 0.88, 0.9, 0.9], [0.02] * 4, "1se")
    (2, 1)
    """
    if rule not in RULES:
        raise unknown_name("rule", rule, RULES)
    scores, errors = np.asarray(means, dtype=np.float64), np.asarray(standard_errors, dtype=np.float64)
    best = int(np.argmax(scores))
    return best if rule == "best" else int(np.argmax(scores >= scores[best] - errors[best]))
