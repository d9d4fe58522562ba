"""`KnownItems`: items of an index, to which a fit adds others without describing them and learning words again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._io.storage import Url, as_place
from bagwise._utils.text import agree, how_many, quoted
from bagwise.app.modalities.vectorizers import Histograms
from bagwise.app.model.model import Model
from bagwise.app.options import FitOptions
from bagwise.app.training.items import open_items
from bagwise.app.training.parts import count_with
from bagwise.app.training.seen import distinct_hashes, item_hashes
from bagwise.codebooks.normalizing import WordWeighting
from bagwise.distributed.executors import Executor
from bagwise.errors import BagwiseError, OptionError, parameter_name
from bagwise.sources.collection import Collection
from bagwise.sources.items import Item

__all__ = ["AddedWords", "KnownItems"]


@dataclass(frozen=True)
class AddedWords:
    """The words of known and of new items, and what is said about them."""

    counted: Histograms
    note: str
    hashes: tuple[NDArray[np.int64], int] | None  # of all items, and how many these have; None: those of the words


@dataclass(frozen=True, eq=False)
class KnownItems:
    """Items of an index, see `ItemIndex.known_items`.

    Attributes
    ----------
    model : Model
        Whose words are kept.
    labels : dict
        Labels of the items by their ids; None for items without one.
    frequencies : CSR array or None
        Relative frequencies of the words of each item, in the order of `labels`. None: they are counted again.
    source : str
        Where the items are.
    reading : mapping
        Options by which they were read.
    """

    model: Model
    labels: Mapping[str, str | None]
    frequencies: Any
    source: str
    reading: Mapping[str, Any]

    def options_for(self, options: FitOptions) -> FitOptions:
        """Return the options of a fit with those of the words that are kept; raise an error if they differ."""
        if options.memory_limit is not None:
            message = f"memory_limit is not for a fit with {parameter_name('add')}. Remove memory_limit."
            raise OptionError("memory_limit", message)
        fitted = {name: self.model.options.get(name) for name in options.of_stage("words")}
        for name, value in options.of_stage("words").items():
            default = getattr(FitOptions, name)
            if value not in (default, fitted[name]):
                message = f"{name} is about words, but {parameter_name('add')} keeps those of a model. Remove {name}."
                raise OptionError(name, message)
            fitted[name] = default if fitted[name] is None else fitted[name]
        return options.with_changes(**fitted)

    def open(self, source: Any, options: FitOptions, executor: Executor | None) -> Collection:
        """Open the items of a fit: all of the source, if the known ones are there as well, otherwise both.

        Items without a label have that of the index.
        """
        new = open_items(self.model, source, options, executor)
        if self._are_in(source):
            return _with(new, labels=self.labels)
        twice = [id for id in new.ids if id in self.labels]
        if twice:
            raise BagwiseError(
                f"{how_many(len(twice), 'items')} of {new.source} {agree(len(twice), 'has', 'have')} the id of an item "
                f"of the index: {quoted(twice)}. Rename them, or add to the source of the index, {self.source}, and "
                "fit that."
            )
        location = as_place(self.source)
        if not self.source or not (isinstance(location, Url) or os.path.exists(location)):
            raise BagwiseError(
                f"The items of the index were in {self.source or 'an unknown place'}, which does not exist any more, "
                "but all are learned from again. Put them back, or fit all items anew."
            )
        known = open_items(self.model, location, FitOptions.from_mapping(self.reading), executor)
        known = _with(known[np.array([id in self.labels for id in known.ids], np.bool_)], labels=self.labels)
        if len(known) < len(self.labels):
            n = len(self.labels) - len(known)
            raise BagwiseError(
                f"{how_many(n, 'items')} of the index {agree(n, 'is', 'are')} not in {self.source}. Put all items into "
                "one folder, and fit that."
            )
        if any(known.splits) or any(new.splits):  # items that were not split are learned from
            known, new = (_with(one, split="train") for one in (known, new))
        note = (
            f"Pages show the items of {new.source}; those of {self.source} are listed without their content. To see "
            "all, put them into one folder, and fit that."
        )
        notes, skipped = (*known.notes, *new.notes, note), (*known.skipped, *new.skipped)
        about: dict[str, Any] = {"notes": notes, "skipped": skipped, "limits": new.limits}
        return Collection.of([*known, *new], new.modality, new.source, **about)

    def count(self, collection: Collection, options: FitOptions, executor: Executor, n_samples: int) -> AddedWords:
        """Return the words of items: of known ones as the index has them, of others by the words that are kept."""
        rows, ids = {id: row for row, id in enumerate(self.labels)}, collection.ids
        row_of = np.array([rows.get(id, -1) for id in ids], np.intp)
        n_known = int((row_of >= 0).sum())
        if self.frequencies is None:
            note = f"words of all {how_many(len(ids), collection.modality)} were counted, which the index does not hold"
            words = count_with(self.model.vectorizer, collection, options, executor, n_samples)
            return AddedWords(words, self._note(note, n_known), None)
        known, new = np.flatnonzero(row_of >= 0), np.flatnonzero(row_of < 0)
        parts = [(known, Histograms(self._of_mean_size(self.frequencies[row_of[known]]), np.arange(len(known))))]
        hashes = self._hashes
        if len(new):
            words = count_with(self.model.vectorizer, collection[new], options, executor, n_samples)
            plain = WordWeighting("count", None, "l1", self.model.layout.vocabularies)
            frequencies = plain.apply(words.matrix)
            parts.append((new, replace(words, matrix=self._of_mean_size(frequencies))))
            hashes = _joined(hashes, distinct_hashes(item_hashes(words.matrix))[0])
        note = f"words of {how_many(n_known, collection.modality)}; {len(new):,} more were described"
        counted = Histograms.in_order([part for part in parts if len(part[0])])
        return AddedWords(counted, self._note(note, n_known), hashes)

    def _are_in(self, source: Any) -> bool:
        if isinstance(source, Collection) or not self.source:
            return False
        location, known = as_place(source), as_place(self.source)
        if isinstance(location, Url) or isinstance(known, Url):
            return str(location) == str(known)
        return os.path.realpath(location) == os.path.realpath(known)

    def _note(self, words: str, n_known: int) -> str:
        model = self.model
        gone = len(self.labels) - n_known
        parts = [f"Kept: {model.hierarchy.n_words:,} words, and {words}. Groups and classifiers are learned anew"]
        if model.edits or model.given_names:
            parts.append("edits and names of groups are not kept")
        if gone:
            parts.append(f"{how_many(gone, 'items')} of the index {agree(gone, 'is', 'are')} not used")
        return f"{'; '.join(parts)}."

    @cached_property
    def _hashes(self) -> tuple[NDArray[np.int64], int] | None:
        hashes = self.model.item_hashes
        return None if hashes is None else (hashes, int(self.model.provenance.get("n_hashed", len(hashes))))

    def _of_mean_size(self, frequencies: Any) -> Any:
        """Return rows as if all items had as many words as the items of the model have in the mean."""
        totals, n_items = self.model.word_totals, self.model.provenance.get("n_items", 0)
        size = 1.0 if totals is None or not n_items else totals.sum() / n_items / len(self.model.layout.vocabularies)
        return (frequencies * size).astype(np.float32)


def _joined(known: tuple[NDArray[np.int64], int] | None, new: NDArray[np.int64]) -> Any:
    """Add hashes to those of a model, which may be the smallest ones alone."""
    if known is None:
        return None
    hashes, n = known
    n_new = len(np.setdiff1d(new, hashes))
    both = np.union1d(hashes, new)
    return (both if n == len(hashes) else both[both <= hashes.max(initial=0)]), n + n_new


def _with(
    collection: Collection, labels: Mapping[str, str | None] | None = None, split: str | None = None
) -> Collection:
    """Return items with labels and a split where they have none."""

    def changed(item: Item) -> Item:
        label = None if labels is None else labels.get(item.id)
        labels_of_item = item.labels or (() if label is None else (label,))
        return replace(item, labels=labels_of_item, split=item.split or split)

    about: dict[str, Any] = {name: getattr(collection, name) for name in ("notes", "skipped", "ignored", "limits")}
    return Collection.of(map(changed, collection), collection.modality, collection.source, **about)
