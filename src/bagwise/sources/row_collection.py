"""Collections of rows of a file: what is known of items is in columns that take little memory for many rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection, as_label_array
from bagwise.sources.items import several_labels
from bagwise.sources.limits import Limits
from bagwise.sources.row_lists import Coded, LazyList

__all__ = ["RowCollection"]


class RowCollection(Collection):
    """A collection whose items are made when they are asked for; subclasses set `_items`."""

    def __init__(
        self,
        n: int,
        ids: Sequence[str],
        label_sets: Sequence[tuple[str, ...]],
        splits: Sequence[str | None] | None,
        modality: str,
        source: str,
        notes: Iterable[str] = (),
        limits: Limits | None = None,
    ) -> None:
        super().__init__((), modality, source, notes=notes, limits=limits)
        self._ids = ids if isinstance(ids, LazyList) else list(ids)
        self._label_sets = Coded.of(label_sets)
        self._splits: Coded[str | None] = Coded.same(None, n) if splits is None else Coded.of(splits)
        for what, values in (("ids", self._ids), ("label_sets", self._label_sets), ("splits", self._splits)):
            if len(values) != n:
                raise BagwiseError(f"{source} has {n} rows but {len(values)} {what}.")
        self._check((), self._label_sets.used())

    @property
    def ids(self) -> Sequence[str]:
        """The id of each row. Numbers and bytes of a file become strings when they are asked for."""
        return self._ids

    @property
    def labels(self) -> NDArray[Any]:
        """The label of each row, see `Collection.labels`."""
        used, codes = np.unique(self._label_sets.codes, return_inverse=True)
        several = next((k for k in used.tolist() if len(self._label_sets.values[k]) > 1), None)
        if several is not None:
            first = int(np.flatnonzero(self._label_sets.codes == several)[0])
            raise several_labels(self._ids[first], self._label_sets.values[several])
        labels = [next(iter(self._label_sets.values[k]), None) for k in used.tolist()]
        return as_label_array(labels, len(codes))[codes]

    @property
    def label_sets(self) -> Sequence[tuple[str, ...]]:
        """All labels of each row."""
        return self._label_sets

    @property
    def splits(self) -> Sequence[str | None]:
        """The split of each row, such as ``"train"``, or None."""
        return self._splits

    def _columns(self, numbers: NDArray[np.int64]) -> tuple[Any, ...]:
        ids = self._ids.chosen(numbers) if isinstance(self._ids, LazyList) else [self._ids[i] for i in numbers.tolist()]
        return ids, self._label_sets.chosen(numbers), self._splits.chosen(numbers)
