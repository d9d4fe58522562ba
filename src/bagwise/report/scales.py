"""Axes of charts: where values lie, which ticks to write, and which of too many points to draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bagwise.report.texts import count

__all__ = ["Axis", "linear_axis", "log_axis", "thinned"]


_TINY = 1e-200


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` to pixels from `start` to `end`, evenly or by logarithms."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Place of a value in pixels; of the middle if the axis has only one value."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log(low), math.log(high), math.log(value)
        part = (value - low) / (high - low) if high > low else 0.5
        return self.start + part * (self.end - self.start)


def log_axis(values: Sequence[float], start: float, end: float) -> Axis:
    """Make an axis of positive numbers by logarithms, with ticks at 1, 2 and 5 times powers of ten.

    Ticks are far enough apart for their numbers to be read: if all do not fit, powers of ten come first.
    """
    low, high = min(values), max(values)
    axis = Axis(low, high, start, end, (), logarithmic=True)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for factor in (1, 2, 5):
        for tick in (factor * 10.0**power for power in powers):
            if low <= tick <= high and all(abs(axis(tick) - axis(other)) >= _room(tick, other) for other in ticks):
                ticks.append(tick)
    return Axis(low, high, start, end, tuple(sorted(ticks)) or (low,), logarithmic=True)


def _room(*ticks: float) -> float:
    """Pixels that two numbers beside each other take, half of each and some space between."""
    return max(44.0, 4.5 * sum(len(count(round(tick))) for tick in ticks) + 8)


def linear_axis(values: Sequence[float], start: float, end: float, n_ticks: int = 5, zero: bool = False) -> Axis:
    """Make an even axis from one tick to another, with about `n_ticks` of them.

    With `zero` it begins at zero, unless all values lie so far above that half of it would be empty.
    """
    low, high = min(values), max(values)
    if zero and 0 <= low <= 0.6 * high:
        low = 0.0
    size = max(abs(low), abs(high))
    if high - low <= max(1e-9 * size, _TINY):  # as good as one value
        margin = 0.1 * size if size > _TINY else 0.5
        low, high = low - margin if low < 0 or not zero else max(0.0, low - margin), high + margin
    step = _round_step((high - low) / n_ticks)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(i * step, 12 - math.floor(math.log10(step))) for i in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9))


def thinned(places: Sequence[float], values: Sequence[float], limit: int = 400) -> list[int]:
    """Choose which points of a curve to draw so that it looks the same.

    Up to `limit` points are all drawn. Of more, each of `limit` / 4 equal columns keeps its first and last point, its
    lowest and its highest, so that no peak is lost and no value is made up.

    Parameters
    ----------
    places : sequence of float
        Increasing places in pixels.
    values : sequence of float
    limit : int, default=400

    Returns
    -------
    indices : list of int
        Increasing.

    Examples
    --------
    >>> from bagwise.report.scales import thinned
    >>> values = [0.0] * 1000
    >>> values[617] = 1.0
    >>> kept = thinned(range(1000), values, limit=40)
    >>> len(kept) <= 40, 617 in kept
    (True, True)
    """
    if len(places) <= limit:
        return list(range(len(places)))
    width = (places[-1] - places[0]) / (limit // 4)
    columns: dict[int, list[int]] = {}
    for i, place in enumerate(places):
        columns.setdefault(min(int((place - places[0]) / width), limit // 4 - 1), []).append(i)
    kept = set()
    for inside in columns.values():
        kept |= {inside[0], inside[-1], min(inside, key=values.__getitem__), max(inside, key=values.__getitem__)}
    return sorted(kept)
