"""Moving words by gradient steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.progress import ProgressBar
from bagwise.codebooks.manifold.objective import pair_objective
from bagwise.codebooks.manifold.soft import SoftHistograms

__all__ = ["Adam", "Learning", "learn_words"]


class Adam:
    """Adam's steps with bias correction, for one array."""

    def __init__(self, rate: float, shape: tuple[int, ...]) -> None:
        self._rate = rate
        self._mean = np.zeros(shape)
        self._square = np.zeros(shape)
        self._n = 0

    def step(self, gradient: NDArray[np.float64]) -> NDArray[np.float64]:
        """What to add to the array."""
        self._n += 1
        self._mean += 0.1 * (gradient - self._mean)
        self._square += 0.001 * (gradient**2 - self._square)
        mean = self._mean / (1 - 0.9**self._n)
        square = self._square / (1 - 0.999**self._n)
        return -self._rate * mean / (np.sqrt(square) + 1e-8)


@dataclass
class Learning:
    """How learning went.

    Attributes
    ----------
    words : ndarray of shape (n_words, n_features)
    objective, held_out : list of float
        Before the first step and after each; per pair. `held_out` is empty unless pairs are held out.
    n_iter : int
        Steps taken to get to `words`.
    """

    words: NDArray[np.float64]
    objective: list[float] = field(default_factory=list)
    held_out: list[float] = field(default_factory=list)
    n_iter: int = 0


def learn_words(
    soft: SoftHistograms,
    words: NDArray[np.float64],
    target: NDArray[np.float64],
    *,
    sigma: float,
    n_iter: int,
    learning_rate: float,
    held_out: float = 0.0,
    patience: int = 2,
    callback: Callable[[int, float], Any] | None = None,
    n_threads: int = 1,
    verbose: int = 0,
) -> Learning:
    """Move words so that the similarities of histograms come close to a target.

    With `held_out` pairs, learning ends once their error has not fallen for `patience` steps, and the words with the
    lowest error are kept. A callback gets the number of steps and the objective, and ends learning by returning True.
    """
    n = soft.n_bags
    n_pairs = n * (n - 1) / 2
    learning = Learning(words.copy())
    adam = Adam(learning_rate, words.shape)
    words = words.copy()
    waited = 0
    with ProgressBar("moving words", n_iter + 1, enabled=verbose > 0) as bar:
        for step in range(n_iter + 1):
            result = pair_objective(soft.histograms(words), target, sigma, held_out=held_out, n_threads=n_threads)
            learning.objective.append(result.value / (n_pairs * (1.0 - held_out)))
            improved = True
            if held_out > 0:
                error = result.held_out / (n_pairs * held_out)
                improved = error < min(learning.held_out, default=np.inf)
                learning.held_out.append(error)
            if improved:
                learning.words, learning.n_iter, waited = words.copy(), step, 0
            else:
                waited += 1
            bar.update(step + 1)
            answer = None if callback is None else callback(step, learning.objective[-1])
            if (isinstance(answer, (bool, np.bool_)) and answer) or waited >= patience or step == n_iter:
                break
            words += adam.step(soft.pull_back(words, result.gradient)[0])
    return learning
