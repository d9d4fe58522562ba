"""Calibration: probabilities of classes from the scores of held-out items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.arrays import softmax
from bagwise.app.training.item_answers import TopClasses

__all__ = ["HeldOutScores", "fit_sharpness"]

# Items that the one number of a size is fitted to. Ten times as many change it by 3 % for two classes, and 0.7 % for 20
# (standard deviations over normal scores two of them apart).
_MOST_ITEMS = 4000
_STEPS, _TOLERANCE = 100, 1e-9
_LEAST, _MOST = 1e-3, 1e3  # times one over the spread of scores


class HeldOutScores:
    """Scores of items at each size, by the folds of a cross-validation that did not train on them.

    Scores of at most 4,000 items are kept, evenly spaced, and the top classes of all (`top`). Called by folds with the
    number of a size, items, and their scores.

    Examples
    --------
    >>> held_out = HeldOutScores(np.array([0, 1, 1, 0]), 2, [10])
    >>> held_out(0, np.array([0, 3]), np.array([[1.0, -1.0], [2.0, 1.0]]))
    >>> held_out(0, np.array([1, 2]), np.array([-0.5, 3.0]))  # of two classes: the score of the second
    >>> held_out.scores[0].tolist()
    [[1.0, -1.0], [0.5, -0.5], [-3.0, 3.0], [2.0, 1.0]]
    """

    def __init__(self, codes: NDArray[np.int64], n_classes: int, sizes: Sequence[int]) -> None:
        chosen = np.unique(np.linspace(0, len(codes) - 1, min(len(codes), _MOST_ITEMS)).astype(np.intp))
        self.sizes, self.codes = tuple(sizes), codes[chosen]
        self._row_of = np.full(len(codes), -1)
        self._row_of[chosen] = np.arange(len(chosen))
        self.scores = np.full((len(self.sizes), len(chosen), n_classes), np.nan, np.float32)
        self.top = TopClasses.empty(len(self.sizes), len(codes), n_classes)

    def __call__(self, size: int, items: NDArray[np.intp], scores: NDArray[np.float64]) -> None:
        """Keep the scores of items at a size, by its place in `sizes`."""
        values = np.asarray(scores)
        if values.ndim == 1 or values.shape[1] == 1:
            values = np.stack([-values.ravel(), values.ravel()], axis=1)
        self.top.put(size, items, values)
        rows = self._row_of[items]
        self.scores[size, rows[rows >= 0]] = values[rows >= 0]

    @property
    def chosen(self) -> NDArray[np.bool_]:
        """Whether the scores of each item are kept."""
        return self._row_of >= 0

    def put(self, items: NDArray[np.intp], top: TopClasses, scores: NDArray[np.float32]) -> None:
        """Keep the top classes of items at all sizes, and the scores of those that are `chosen`."""
        self.scores[:, self._row_of[items[self.chosen[items]]]] = scores
        for target, values in zip(self.top.arrays, top.arrays, strict=True):
            target[:, items] = values

    def calibration(self) -> dict[int, float]:
        """Return the sharpness of each size."""
        return {size: fit_sharpness(scores, self.codes) for size, scores in zip(self.sizes, self.scores, strict=True)}


def fit_sharpness(scores: NDArray[np.floating], codes: NDArray[np.int64]) -> float:
    """Return the a > 0 for which softmax(a · scores) is the most likely for the true classes.

    The log-likelihood is concave in a. As in Platt's method each target is a little below 1, by 1 / (n + 2) with n
    items: otherwise a would be infinite where all items are classified correctly.

    Parameters
    ----------
    scores : ndarray of shape (n_items, n_classes)
        Of items that the classifier was not trained on.
    codes : ndarray of shape (n_items,)
        True classes.

    Returns
    -------
    sharpness : float

    References
    ----------
    C. Guo et al., "On Calibration of Modern Neural Networks", ICML 2017 (temperature 1 / a).

    Examples
    --------
    >>> scores = np.array([[1.0, 0.0]] * 4)  # three of four are right: their log-odds are log 3 with many items
    >>> round(fit_sharpness(np.repeat(scores, 1000, axis=0), np.repeat([0, 0, 0, 1], 1000)), 2)
    1.1
    """
    values = np.asarray(scores, np.float64)
    values = values - values.mean(axis=1, keepdims=True)
    n, n_classes = values.shape
    spread = float(values.std()) or 1.0
    target = np.full(values.shape, 1 / (n + 2) / (n_classes - 1))
    target[np.arange(n), codes] = 1 - 1 / (n + 2)
    wanted = (target * values).sum() / n
    low, high = _LEAST / spread, _MOST / spread
    sharpness = 1 / spread
    for _ in range(_STEPS):
        p = softmax(sharpness * values)
        means = (p * values).sum(axis=1)
        slope, curvature = means.mean() - wanted, ((p * values**2).sum(axis=1) - means**2).mean()
        low, high = (low, sharpness) if slope > 0 else (sharpness, high)
        step = sharpness - slope / curvature if curvature > 0 else low
        new = step if low < step < high else np.sqrt(low * high)
        if abs(new - sharpness) <= _TOLERANCE * sharpness:
            break
        sharpness = float(new)
    return sharpness
