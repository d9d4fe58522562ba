"""Parts of `Model`: linear heads, errors along the merging path, assignments, and checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import as_values, check_integer, frozen
from bagwise.errors import BagwiseError
from bagwise.merging.sizes import choose_size
from bagwise.runtime import LARGEST

__all__ = [
    "Head",
    "PathErrors",
    "checked_calibration",
]


# Standard errors of a difference from which on it is said to be measurable.
_MEASURABLE = 2.0
_LONGEST_PATTERN = 1000
_MOST_STOP_WORDS = 100_000
_LONGEST_NGRAM = 20


@dataclass(frozen=True, eq=False)
class Head:
    """A linear classifier: scores are ``features @ coef.T + intercept``, one for each class.

    Parameters
    ----------
    coef : array-like of shape (n_classes, n_features)
        Finite numbers, stored as float32.
    intercept : array-like of shape (n_classes,)

    Examples
    --------
    >>> from bagwise.app.model import Head
    >>> Head([[1, 0], [0, 1]], [0, 0.5]).scores([[2, 3]])
    array([[2. , 3.5]])
    """

    coef: NDArray[np.float32]
    intercept: NDArray[np.float32]

    def __post_init__(self) -> None:
        coef = as_values(self.coef, np.float32, "coef")
        intercept = as_values(np.asarray(self.intercept).reshape(-1, 1), np.float32, "intercept").ravel()
        if len(intercept) != len(coef):
            raise BagwiseError(f"A head has one intercept per class; got {len(intercept)} for {len(coef)} classes.")
        object.__setattr__(self, "coef", frozen(coef))
        object.__setattr__(self, "intercept", frozen(intercept))

    def scores(self, features: Any) -> NDArray[np.float64]:
        """Return scores of shape (n, n_classes) for dense or sparse features of shape (n, n_features)."""
        matrix = features if hasattr(features, "toarray") else np.asarray(features)
        return np.asarray(matrix.astype(np.float64) @ self.coef.astype(np.float64).T + self.intercept)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Head):
            return NotImplemented
        return np.array_equal(self.coef, other.coef) and np.array_equal(self.intercept, other.intercept)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class PathErrors:
    """Errors of classification along the merging path.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of groups, all different; stored in ascending order.
    errors, standard_errors : sequence of float
        Fraction of wrongly classified items at each size, and its standard error.
    protocol : str, default=""
        How they were estimated, in words.
    paired_errors : sequence of float, default=()
        Standard errors of the differences to the error at `best`, which are of the same items; () if unknown.

    Examples
    --------
    >>> from bagwise.app.model import PathErrors
    >>> PathErrors([2, 5, 10, 50], [0.4, 0.22, 0.21, 0.2], [0.02] * 4, "5 folds", [0.03, 0.03, 0.02, 0]).auto
    10
    """

    sizes: tuple[int, ...]
    errors: tuple[float, ...]
    standard_errors: tuple[float, ...]
    protocol: str = ""
    paired_errors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        columns = [self._column(name) for name in ("sizes", "errors", "standard_errors", "paired_errors")]
        n = len(columns[0])
        if not columns[3]:
            columns.pop()
        if n == 0 or any(len(column) != n for column in columns):
            raise BagwiseError(
                "A path needs as many errors and standard errors as sizes, at least one; "
                f"got {', '.join(str(len(column)) for column in columns)}."
            )
        sizes = [check_integer(size, "A size of the path", 1) for size in columns[0]]
        if len(set(sizes)) < n:
            raise BagwiseError(f"Sizes of a path must differ, got {sizes}.")
        order = sorted(range(n), key=sizes.__getitem__)
        object.__setattr__(self, "sizes", tuple(sizes[k] for k in order))
        for name, column in zip(("errors", "standard_errors", "paired_errors"), columns[1:], strict=False):
            numbers = [_fraction(value, name) for value in column]
            object.__setattr__(self, name, tuple(numbers[k] for k in order))
        if not isinstance(self.protocol, str):
            raise BagwiseError(f"protocol must be a str, got {self.protocol!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "sizes": list(self.sizes),
            "errors": list(self.errors),
            "standard_errors": list(self.standard_errors),
            "protocol": self.protocol,
            "paired_errors": list(self.paired_errors),
        }

    def only(self, sizes: Collection[int]) -> PathErrors | None:
        """Return the errors at those of its sizes that are among others; None if there are none.

        Without the best of its sizes, differences to that are unknown.
        """
        kept = [k for k, size in enumerate(self.sizes) if size in sizes]
        if not kept:
            return None
        paired = self.paired_errors if self.best in sizes else ()
        columns = (self.errors, self.standard_errors, paired)
        errors, deviations, differences = (tuple(column[k] for k in kept if column) for column in columns)
        return PathErrors(tuple(self.sizes[k] for k in kept), errors, deviations, self.protocol, differences)

    def _column(self, name: str) -> list[Any]:
        values = getattr(self, name)
        try:
            return list(values)
        except TypeError as error:
            raise BagwiseError(f"{name} must be a list with one number per size, got {values!r}.") from error

    @property
    def best(self) -> int:
        """The size with the smallest error; the smallest of equally good ones."""
        return self.sizes[self.errors.index(min(self.errors))]

    @property
    def protocol_of_answers(self) -> str:
        """How held-out answers came about: of errors that are means over several divisions, those of the first."""
        return self.protocol.partition(", ")[0]

    @property
    def auto(self) -> int:
        """The size that ``n_groups="auto"`` chooses: the smallest that is about as good as the best.

        That is by the rule "paired" of `bagwise.WordMergerCV`, or "1se" where differences are unknown.
        """
        rule = "paired" if self.paired_errors else "1se"
        known = {"standard_errors": self.standard_errors, "paired": self.paired_errors}
        return self.sizes[choose_size([-error for error in self.errors], rule, **known)]

    def better_than(self, size: int) -> int | None:
        """Return the size to take instead of one of the sizes: `auto`, if the best one errs measurably less.

        That is by more than two standard errors of the difference; None otherwise, or where that is unknown.
        """
        if size not in self.sizes or not self.paired_errors:
            return None
        k, auto = self.sizes.index(size), self.sizes.index(self.auto)
        measurable = self.errors[k] - min(self.errors) > _MEASURABLE * self.paired_errors[k]
        return self.auto if measurable and self.errors[auto] < self.errors[k] else None


def checked_calibration(calibration: Any, heads: Mapping[int, Head]) -> dict[int, float]:
    """Check a mapping from numbers of groups of heads to positive numbers."""
    if not isinstance(calibration, Mapping):
        raise BagwiseError(
            f"calibration must be a mapping from numbers of groups to numbers, got {calibration!r:.100}."
        )
    for size, sharpness in calibration.items():
        number = isinstance(sharpness, (int, float)) and not isinstance(sharpness, bool)
        if size not in heads or not number or not 0 < sharpness < LARGEST:
            raise BagwiseError(
                f"calibration has a number from 0 to {LARGEST:g} for sizes of heads ({', '.join(map(str, heads))}); "
                f"got {sharpness!r:.50} for {size!r:.50}."
            )
    return {int(size): float(sharpness) for size, sharpness in sorted(calibration.items())}


def _fraction(value: Any, name: str) -> float:
    if not isinstance(value, (int, float, np.number)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise BagwiseError(f"{name} of a path must be numbers from 0 to 1, got {value!r:.100}.")
    return float(value)
