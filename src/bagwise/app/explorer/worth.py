"""`GroupWorth`: whether the words of a group belong together, and what the error becomes without it."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.explorer.workspace import Cut

__all__ = ["GroupWorth"]

_MOST_ITEMS, _MOST_WORDS = 5000, 12  # that coherence is measured with: items, and words of a group
_MOST_GROUPS = 200  # whose costs are measured


class GroupWorth:
    """What the groups of a cut are worth, measured when it is asked for.

    Parameters
    ----------
    cut : Cut
        With items.
    """

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._costs: dict[int, float] = {}
        self._thread: threading.Thread | None = None
        self._problem: BagwiseError | None = None
        self._lock = threading.Lock()

    @cached_property
    def coherence(self) -> NDArray[np.float64]:
        """How much words of a group occur in the same items: the mean cosine of the most typical ones; one word: 1."""
        cut, items = self._cut, self._cut.items
        assert items is not None
        chosen = np.zeros(len(items), np.bool_)
        chosen[np.linspace(0, len(items) - 1, min(len(items), _MOST_ITEMS)).astype(np.intp)] = True
        d, n_cells = cut.model.hierarchy.n_words, cut.model.layout.n_cells
        rows = sp.csc_array(items.words.words(chosen))
        whole = sum((rows[:, k * d : (k + 1) * d] for k in range(1, n_cells)), start=rows[:, :d])
        coherence = np.ones(cut.model.n_groups)
        for group in range(cut.model.n_groups):
            words = whole[:, cut.words(group)[:_MOST_WORDS]]
            lengths = np.sqrt(np.asarray((words * words).sum(axis=0)).ravel())
            there = np.flatnonzero(lengths > 0)
            if len(there) > 1:
                columns = words[:, there].toarray() / lengths[there]
                sums = float((columns.sum(axis=1) ** 2).sum())
                coherence[group] = (sums - len(there)) / (len(there) * (len(there) - 1))
        return coherence

    @property
    def suspicious(self) -> NDArray[np.float64]:
        """How much a group decides although its words do not belong together."""
        return np.asarray(self._cut.deciding * (1 - np.clip(self.coherence, 0, 1)))

    @property
    def progress(self) -> float:
        """The part of the groups whose costs are measured."""
        return len(self._costs) / self._cut.model.n_groups

    def cost(self, group: int) -> float | None:
        """Return how much the error rises without a group, by classifiers of the others; None: not measured yet."""
        return self._costs.get(group)

    def measure_costs(self) -> None:
        """Begin to measure the costs of all groups, unless that was done."""
        n, items = self._cut.model.n_groups, self._cut.items
        if items is None or not (items.codes >= 0).any() or not self._cut.has_answers:
            raise BagwiseError("Costs are measured with items that have labels and answers, and there are none.")
        if n > _MOST_GROUPS:
            raise BagwiseError(f"Costs are measured for at most {_MOST_GROUPS} groups, not for {n:,}.")
        with self._lock:
            if self._problem is not None:
                raise self._problem
            if self._thread is None:
                self._thread = threading.Thread(target=self._measure, daemon=True)
                self._thread.start()

    def _measure(self) -> None:
        model, items = self._cut.model, self._cut.items
        assert items is not None
        try:
            before = items.scores(model).measured
            for group in range(model.n_groups):
                after = items.scores(model, np.flatnonzero(model.lookup == group).tolist()).measured
                assert before is not None
                assert after is not None
                self._costs[group] = after.error - before.error
        except BagwiseError as error:
            self._problem = error
