"""Draws of training images, the same for all experiments on wide features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["drawn"]

N_TRAIN = 100  # images of each class


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
