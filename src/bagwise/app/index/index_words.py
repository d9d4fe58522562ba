"""Words of the items of an index: read from the features by which it compares items, or counted from their source."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.matrices import with_short_indices
from bagwise._utils.text import sources
from bagwise._utils.threads import map_in_order, number_of_threads
from bagwise.app.index.index_features import above_shift
from bagwise.app.index.item_index import ItemIndex
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.vectorizers import group_features, normalize_features
from bagwise.app.model.model import Model
from bagwise.app.training.group_data import spread
from bagwise.errors import BagwiseError, argument
from bagwise.retrieval.blocks import InvertedBlock
from bagwise.retrieval.histograms import BLOCK_ITEMS

if TYPE_CHECKING:
    from bagwise.app.training.known_items import KnownItems

__all__ = ["CountedWords", "IndexedWords"]

# Steps that normalise groups by a factor that does not depend on how words are grouped.
_FREE_STEPS = ((), ("l1",), ("power",), ("l1", "power"))


@dataclass(frozen=True, eq=False)
class IndexedWords:
    """The weighted words of the items of an index, up to a factor where groups are normalised.

    Attributes
    ----------
    index : ItemIndex
        Compared by words, or words and classes, with the metric "inner".
    squared : bool
        Whether its features are square roots of the words.
    factor : float
        Of the words.
    """

    index: ItemIndex
    squared: bool
    factor: float

    @classmethod
    def of(cls, index: ItemIndex) -> IndexedWords | None:
        """Return the words of an index; None if its features do not give them."""
        model = index.model
        n_vocabularies = len(model.layout.vocabularies)
        if index.by not in ("words", "both") or index.index.metric != "inner":
            return None
        if model.norm == "l2":
            return cls(index, False, float(np.sqrt(n_vocabularies)))
        # roots of relative frequencies, the same sum in each vocabulary
        fixed = model.norm == "l1" or (n_vocabularies == 1 and model.norm is None and model.normalize[:1] == ("l1",))
        return cls(index, True, float(n_vocabularies)) if model.term == "count" and fixed else None

    def of_model(self, index: ItemIndex) -> IndexedWords:
        """Return the same words for the same items, of an index whose model has other groups."""
        other = copy.copy(self)
        object.__setattr__(other, "index", index)
        return other

    @property
    def n_columns(self) -> int:
        """Number of words in all cells."""
        return self.index.model.layout.n_columns

    def items_with(self, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which items have at least one of these words, in any cell."""
        model = self.index.model
        columns = model.layout.over_cells(words, model.hierarchy.n_words)
        parts = [block.items_with(columns) for block in self.index.index.blocks()]
        return np.concatenate(parts) if parts else np.zeros(0, np.bool_)

    @cached_property
    def _row_sums(self) -> NDArray[np.float64]:
        """Sums of the words of each item."""
        n = self.n_columns
        parts = [
            np.asarray(self._undone(block.rows()[:, :n]).sum(axis=1)).ravel() for block in self.index.index.blocks()
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _undone(self, rows: Any) -> Any:
        rows = rows.astype(np.float64)
        if self.squared:
            rows = rows.power(2) if sp.issparse(rows) else rows**2
        return rows * self.factor

    def words(self, chosen: NDArray[np.bool_]) -> sp.csr_array:
        """Return the words of some items, shape (n_chosen, n_cells * d)."""
        parts, first = [sp.csr_array((0, self.n_columns))], 0
        for block in self.index.index.blocks():
            of_block = np.flatnonzero(chosen[first : first + len(block)])
            parts.append(sp.csr_array(self._undone(block.rows()[of_block, : self.n_columns])))
            first += len(block)
        return sp.csr_array(sp.vstack(parts, format="csr"))

    def spread(self, model: Model) -> NDArray[np.float64]:
        """Return the standard deviation of each feature of a cut of the model. O(entries of the index)."""
        if model.layout.n_cells > 1 or model.normalize not in _FREE_STEPS:
            return spread(self.features(model))
        members, ends = groups_in_order(model)
        n_items = len(self.index)
        scale = np.full(n_items, self.factor)
        if "l1" in model.normalize:
            totals = self._row_sums / self.factor
            scale = np.divide(1.0, totals, out=np.zeros(n_items), where=totals > 0)
        blocks = self.index.index.blocks()
        firsts = np.cumsum([0, *map(len, blocks)]).tolist()

        def moments(number: int) -> NDArray[np.float64]:
            padded, both = np.ones(BLOCK_ITEMS), np.zeros((2, model.n_groups))
            padded[: len(blocks[number])] = scale[firsts[number] : firsts[number + 1]]
            blocks[number].add_group_moments(
                members, ends, self.squared, padded, "power" in model.normalize, both[0], both[1]
            )
            return both

        threads = number_of_threads(None if len(blocks) == 1 else -1)
        sums, squares = sum(map_in_order(moments, range(len(blocks)), threads), start=np.zeros((2, model.n_groups)))
        return np.sqrt(np.maximum(squares / n_items - (sums / n_items) ** 2, 0))

    def features(self, model: Model, normalize: Sequence[str] | None = None) -> Any:
        """Return the features of all items for a cut of the model, as `Model.group` gives them."""
        steps, parts = model.normalize if normalize is None else normalize, []
        members, ends = groups_in_order(model)
        membership = sp.csc_array((np.ones(len(members)), members, np.concatenate([[0], ends])))
        for block in self.index.index.blocks():
            if model.layout.n_cells == 1 and isinstance(block, InvertedBlock):  # faster than by rows
                sums = self._undone(block.columns()[:, : self.n_columns]) @ membership
                parts.append(normalize_features(sp.csr_array(sums), steps))
            else:
                words = self._undone(block.rows()[:, : self.n_columns])
                parts.append(group_features(words, model.lookup, model.n_groups, model.layout, steps))
        if all(isinstance(part, np.ndarray) for part in parts):
            return np.concatenate([np.zeros((0, model.layout.width(model.n_groups)), np.float32), *parts])
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts]))


def known_items(index: ItemIndex) -> KnownItems:
    """See `ItemIndex.known_items`."""
    from bagwise.app.training.known_items import KnownItems  # deferred: it reads items

    model, frequencies = index.model, None
    modality = MODALITIES[model.modality]
    if modality.rows:
        raise BagwiseError(
            f"{argument('add')} keeps words that take long to learn, but those of {sources(model.modality)} are "
            "columns. Put all rows into one table, and fit that."
        )
    if model.word_hashes is not None:
        raise BagwiseError(f"{argument('add')} needs the vocabulary, but a compact model has hashes of words.")
    if modality.learns_words:
        words = IndexedWords.of(index)
        if words is None:
            raise BagwiseError(
                f"This index compares items by {index.described} and does not hold their words, which "
                f"{argument('add')} keeps. Make one by: bagwise index MODEL SOURCE --by both"
            )
        rows = words.words(np.ones(len(index), np.bool_))
        frequencies = with_short_indices(rows if words.squared else rows.power(2))
    labels = dict(zip(index.ids, index.labels, strict=True))
    return KnownItems(model, labels, frequencies, index.source, index.reading)


def groups_in_order(model: Model) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the words of all groups, one after the other, and where each group ends.

    >>> from bagwise import Hierarchy, Model
    >>> groups_in_order(Model(modality="table", hierarchy=Hierarchy(3, [[0, 2]], [0.5]), n_groups=2))
    (array([0, 2, 1]), array([2, 3]))
    """
    return np.argsort(model.lookup, kind="stable"), np.cumsum(np.bincount(model.lookup, minlength=model.n_groups))


class CountedWords:
    """The words of the items of an index, counted from their source: what `IndexedWords` tells, for any index.

    Parameters
    ----------
    model : Model
        Which weights words.
    histograms : CSR array or ndarray of shape (n_items, n_cells * d)
        Counts of the words of all items.
    """

    def __init__(self, model: Model, histograms: Any) -> None:
        self.model, self.histograms = model, histograms
        self._last: tuple[Model, Any] | None = None  # a cut, and its features

    def of_model(self, index: ItemIndex) -> CountedWords:
        """Return the same words for the same items, of an index whose model has other groups."""
        return CountedWords(index.model, self.histograms)

    def items_with(self, words: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell which items have at least one of these words, in any cell."""
        columns = self.model.layout.over_cells(words, self.model.hierarchy.n_words)
        return np.asarray(abs(self.histograms[:, columns]).sum(axis=1)).ravel() > 0

    def words(self, chosen: NDArray[np.bool_]) -> Any:
        """Return the weighted words of some items, shape (n_chosen, n_cells * d)."""
        return self.model.weighting.apply(self.histograms[np.flatnonzero(chosen)])

    def spread(self, model: Model) -> NDArray[np.float64]:
        """Return the standard deviation of each feature of a cut of the model."""
        return spread(self.features(model))

    def features(self, model: Model, normalize: Sequence[str] | None = None) -> Any:
        """Return the features of all items for a cut of the model, as `Model.group` gives them."""
        if normalize is not None:
            return model.group(above_shift(model, self.histograms), normalize=tuple(normalize))
        last = self._last
        if last is None or last[0] is not model:
            self._last = last = model, model.group(self.histograms)
        return last[1]
