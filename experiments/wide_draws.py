"""Draws of training images, the same for all experiments on wide features, and accuracies over them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.atomic import write_atomically
from experiments.caching import kept
from experiments.classifying import chosen_penalty
from experiments.differences import Difference, paired
from experiments.pages import mean_and_sd
from experiments.running import Options

__all__ = ["Accuracies", "drawn", "gap", "kept_penalty", "shown"]

N_TRAIN = 100  # images of each class

Accuracies = dict[str, float]  # by draw


def drawn(y: NDArray[np.int64], fixed: NDArray[np.bool_], draw: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows for training and for test: the fixed part as draw 0, others at random, as many of each class."""
    if draw == 0:
        return np.flatnonzero(fixed), np.flatnonzero(~fixed)
    rng = np.random.default_rng(draw)
    train = np.zeros(len(y), np.bool_)
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        train[rng.permutation(members)[: min(N_TRAIN, len(members) // 2)]] = True
    return np.flatnonzero(train), np.flatnonzero(~train)


def kept_penalty(
    options: Options, name: str, Z: Any, y: NDArray[np.int64], train: NDArray[Any], penalties: Sequence[float]
) -> float:
    """The best C of a linear SVM on these training samples; once chosen, it is kept for the other draws."""
    choices = "-".join(f"{C:g}" for C in penalties)
    path = kept(
        options,
        f"penalty-{name}-of-{choices}.json",
        lambda path: write_atomically(path, json.dumps(chosen_penalty(Z[train], y[train], penalties)).encode()),
        tell=False,
    )
    return float(json.loads(path.read_text(encoding="utf-8")))


def shown(values: Accuracies | None) -> str | None:
    """Mean and standard deviation over draws, or the only value."""
    return mean_and_sd((values or {}).values())


def gap(first: Sequence[Accuracies], second: Sequence[Accuracies]) -> Difference | None:
    """By how much the first are more accurate, in the mean over sizes, on draws that have all."""
    common = set.intersection(*(set(values) for values in (*first, *second)))
    a, b = ({draw: float(np.mean([values[draw] for values in line])) for draw in common} for line in (first, second))
    return paired(a, b)
