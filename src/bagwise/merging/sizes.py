"""Numbers of groups along the merging path, and the choice of one by its scores."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.errors import unknown_name

__all__ = ["RULES", "choose_size", "paired_errors", "path_sizes"]

RULES = ("best", "1se", "paired")
# Standard errors of a difference within which the rule "paired" takes a smaller size, see benchmarks/sizes.py.
_PAIRED = 0.5


def path_sizes(n_words: int, *also: int) -> tuple[int, ...]:
    """Sizes along the path: 2, 5, 10, 20, 50 and so on, all words, and those given.

    >>> path_sizes(64, 30)
    (2, 5, 10, 20, 30, 50, 64)
    """
    steps = (step * 10**power for power in range(len(str(n_words))) for step in (1, 2, 5))
    return tuple(sorted({size for size in steps if 1 < size < n_words} | {n_words, *also}))


def choose_size(
    means: ArrayLike, rule: str = "best", *, standard_errors: ArrayLike = 0.0, paired: ArrayLike = 0.0
) -> int:
    """Index of the size that a rule chooses by mean scores at sizes in ascending order.

    - "best": the highest score; the smallest of equals.
    - "1se": the smallest size within one standard error of it, of `standard_errors`, those of the scores.
    - "paired": the smallest size whose difference to it is within half a standard error of that difference, of
      `paired`. Scores at two sizes are of the same samples, so that differences are known better than scores.

    >>> choose_size([0.6, 0.88, 0.9, 0.9]), choose_size([0.6, 0.88, 0.9, 0.9], "1se", standard_errors=[0.03] * 4)
    (2, 1)
    >>> choose_size([0.6, 0.88, 0.9, 0.9], "paired", paired=[0.03, 0.05, 0, 0.01])
    1
    """
    if rule not in RULES:
        raise unknown_name("rule", rule, RULES)
    scores = np.asarray(means, dtype=np.float64)
    best = int(np.argmax(scores))
    margins = {
        "best": 0.0,
        "1se": np.broadcast_to(standard_errors, scores.shape)[best],
        "paired": _PAIRED * np.asarray(paired),
    }
    return int(np.argmax(scores >= scores[best] - margins[rule]))


def paired_errors(scores: ArrayLike, best: int) -> NDArray[np.float64]:
    """Standard errors of the differences of mean scores to that at the size number `best`; 0 for a single sample.

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_sizes)
        Scores of samples, or of folds, at each size. Samples that were not tested have NaN.
    best : int

    >>> paired_errors([[0.0, 1.0], [1.0, 1.0], [1.0, 1.0], [0.0, 1.0]], 1).round(3)
    array([0.289, 0.   ])
    """
    known = np.asarray(scores, dtype=np.float64)
    known = known[~np.isnan(known).any(axis=1)]
    if len(known) < 2:
        return np.zeros(known.shape[1])
    differences = known - known[:, [best]]
    return np.asarray(differences.std(axis=0, ddof=1) / np.sqrt(len(known)))
