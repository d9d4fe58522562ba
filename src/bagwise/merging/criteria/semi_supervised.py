"""A supervised and an unsupervised criterion together, for partly labelled data."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._missing import is_pandas_na, is_scalar_nan
from sklearn.utils._param_validation import Interval

from bagwise.errors import BagwiseError
from bagwise.merging.criteria.base import TraceRatio
from bagwise.merging.criteria.locality import LocalityPreserving
from bagwise.merging.structures import Combination, Structure

__all__ = ["SemiSupervised"]


class SemiSupervised(TraceRatio):
    """A supervised criterion on the labelled samples plus an unsupervised one on all of them.

    Each of the four structures is divided by its trace on the unmerged data, then the unsupervised ones are added with
    the weight `gamma`.

    Parameters
    ----------
    criterion : str or TraceRatio, default="csm"
        Supervised criterion for the labelled samples.
    unsupervised : TraceRatio or None, default=None
        Criterion for all samples; None is ``LocalityPreserving()``.
    gamma : float, default=0.1
        Weight of the unsupervised part. 0 gives the supervised criterion on the labelled samples alone.

    Notes
    -----
    The label -1, None or NaN marks a sample without a label. Without any label the result is that of the unsupervised
    criterion.

    Examples
    --------
    >>> from bagwise import merge_words
    >>> X, y = [[4, 3, 0, 1], [5, 4, 1, 0], [0, 1, 4, 5], [1, 0, 5, 4]], [0, -1, 1, -1]
    >>> merge_words(X, y, criterion="semi_supervised").groups(2)
    [array([0, 1]), array([2, 3])]
    """

    name = "semi_supervised"
    takes_missing_labels = True
    _parameter_constraints: ClassVar[dict] = {
        "criterion": [str, TraceRatio],
        "unsupervised": [TraceRatio, None],
        "gamma": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self, criterion: str | TraceRatio = "csm", unsupervised: TraceRatio | None = None, *, gamma: float = 0.1
    ) -> None:
        self.criterion = criterion
        self.unsupervised = unsupervised
        self.gamma = gamma

    @property
    def may_be_indefinite(self) -> bool:  # noqa: D102
        parts = (self.criterion, self.unsupervised)
        return any(isinstance(part, TraceRatio) and part.may_be_indefinite for part in parts)

    def structures(self, X: Any, y: NDArray[Any] | None, n_threads: int = 1) -> tuple[Structure, Structure]:  # noqa: D102
        from bagwise.merging.criteria import resolve_criterion

        self._validate_params()
        labelled = np.flatnonzero(is_labelled(y))
        if len(labelled) == 0 and self.gamma == 0:
            raise BagwiseError("The criterion 'semi_supervised' has no labelled sample and gamma=0: nothing is left.")
        parts: list[tuple[float, tuple[Structure, Structure], NDArray[np.intp] | None]] = []
        if len(labelled):
            supervised = resolve_criterion(self.criterion)
            if not isinstance(supervised, TraceRatio):
                raise BagwiseError(
                    f"The criterion 'semi_supervised' combines trace ratios, and {supervised.name!r} is none. "
                    "Use 'csm', 'nda', 'mfa' or 'lde'."
                )
            labels = np.array(np.asarray(y)[labelled].tolist())  # of the type the known labels have
            parts.append((1.0, supervised.structures(X[labelled], labels, n_threads), labelled))
        if self.gamma > 0:
            unsupervised = LocalityPreserving() if self.unsupervised is None else self.unsupervised
            parts.append((float(self.gamma), unsupervised.structures(X, None, n_threads), None))
        return self._combine(X, parts, 0), self._combine(X, parts, 1)

    @staticmethod
    def _combine(X: Any, parts: list, which: int) -> Structure:
        terms = []
        for weight, structures, samples in parts:
            trace = structures[which].trace(X if samples is None else X[samples])
            if trace > 0:  # a structure without scatter adds nothing
                terms.append((weight / trace, structures[which], samples))
        return Combination(terms, X.shape[0])


def is_labelled(y: NDArray[Any] | None) -> NDArray[np.bool_]:
    """Mark the samples whose label is known: neither -1 nor missing."""
    if y is None:
        raise BagwiseError("The criterion 'semi_supervised' needs y, with -1 for the samples without a label.")
    labels = np.asarray(y)
    if labels.dtype.kind in "OUS":
        return np.array([not _is_missing(label) for label in labels.tolist()], dtype=bool)
    return (labels != -1) & ~np.isnan(labels)


def _is_missing(label: Any) -> bool:
    return label is None or is_pandas_na(label) or is_scalar_nan(label) or str(label) == "-1"
