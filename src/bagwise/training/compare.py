"""`compare_criteria`: several ways to merge the same words, by their errors and times."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bagwise.errors import BagwiseError
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion
from bagwise.model import PathErrors
from bagwise.sources.items import SkippedItemsWarning
from bagwise.training.fit import prepare
from bagwise.training.options import FitOptions
from bagwise.training.path import cross_validate, path_sizes
from bagwise.training.words import Progress, no_progress

__all__ = ["ComparedCriterion", "compare_criteria"]


@dataclass(frozen=True)
class ComparedCriterion:
    """Errors of one criterion along its path, and how long its cross-validation took.

    Attributes
    ----------
    name : str
    path : PathErrors
    seconds : float
        Merging and learning classifiers, in all folds.
    """

    name: str
    path: PathErrors
    seconds: float


def compare_criteria(
    source: Any,
    criteria: Sequence[str],
    options: FitOptions | None = None,
    *,
    sizes: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> list[ComparedCriterion]:
    """Cross-validate several criteria on the same words and the same folds.

    Parameters
    ----------
    source : Collection or path
        With labels.
    criteria : sequence of str
        Names from `bagwise.criteria`.
    options : FitOptions, default=None
        Its `criterion` is not used.
    sizes : sequence of int, default=None
        Numbers of words to look at; None: 2, 5, 10, 20 and so on up to all words.
    progress : callable, default=None
        See `fit_model`.

    Returns
    -------
    compared : list of ComparedCriterion
        In the order of `criteria`.

    Warns
    -----
    SkippedItemsWarning
        If items could not be read, or have no label.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.sources import TableCollection
    >>> X = np.array([[4, 1, 0], [5, 0, 1], [3, 2, 0], [0, 1, 5], [1, 0, 4], [0, 2, 3]])
    >>> rows = TableCollection(X, list("abcdef"), [("cat",)] * 3 + [("dog",)] * 3)
    >>> from bagwise.training import FitOptions, compare_criteria
    >>> [(one.name, one.path.errors) for one in compare_criteria(rows, ["csm", "aib"], FitOptions(folds=3), sizes=[2])]
    [('csm', (0.0,)), ('aib', (0.0,))]
    """
    options = FitOptions() if options is None else options
    if not criteria:
        raise BagwiseError(f"There are no criteria to compare. Give some of {', '.join(sorted(NAMED_CRITERIA))}.")
    for name in criteria:
        resolve_criterion(name)
    if options.folds < 2:
        raise BagwiseError(f"Comparing needs cross-validation with at least 2 folds, got folds={options.folds}.")
    report = progress or no_progress
    prepared = prepare(source, options, report)
    if prepared.codes is None or not prepared.enough_for_folds(options):
        raise BagwiseError(
            f"Comparing needs at least two classes with {options.folds} items each. " + " ".join(prepared.log.notes)
        )
    chosen = path_sizes(prepared.data.n_words) if sizes is None else _checked(sizes, prepared.data.n_words)
    compared = []
    for note in prepared.log.notes:
        warnings.warn(note, SkippedItemsWarning, stacklevel=2)
    for name in criteria:
        started = time.perf_counter()
        path, _ = cross_validate(prepared.data, prepared.codes, chosen, name, options, report)
        compared.append(ComparedCriterion(name, path, time.perf_counter() - started))
    return compared


def _checked(sizes: Sequence[int], n_words: int) -> tuple[int, ...]:
    wrong = [size for size in sizes if not 1 <= size <= n_words]
    if wrong or not sizes:
        raise BagwiseError(f"Sizes must be from 1 to {n_words}, the number of words; got {list(sizes)}.")
    return tuple(sorted(set(sizes)))
