"""Items that a model was learned from: hashes of their words, and what they say about an evaluation.

A model has an 8-byte hash of the words of each training item, as the model counts them. Its file keeps the smallest
ones, so many that they take at most 1 % of it. Hashes are as good as random numbers, so that those of other items below
the largest one that is kept are a random sample of these items (a bottom-k sketch): which of them are training items is
known exactly, and how many of all items are is estimated by their fraction.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.text import agree, how_many, percent
from bagwise.app.model.model import Model
from bagwise.sources.collection import Collection

__all__ = ["SeenItems", "compare_hashes", "content_hash", "distinct_hashes", "item_hashes", "notes_on_copies"]
__all__ += ["seen_items"]

_NAMED = 3  # items that a sentence names
_FEWEST = 20  # items of a sample that an error is given for


def item_hashes(histograms: Any) -> NDArray[np.int64]:
    """Hash the words of each item with their counts; 0 for items without words.

    Examples
    --------
    >>> one, other, none, same = item_hashes(np.array([[1, 0, 2], [1, 2, 0], [0, 0, 0], [1, 0, 2]]))
    >>> bool(one == same), bool(one == other), int(none)
    (True, False, 0)
    """
    rows = sp.csr_array(histograms)
    rows = rows if rows.has_sorted_indices else rows.sorted_indices()
    columns, values = rows.indices.astype("<i8"), rows.data.astype("<f4")
    hashes = np.zeros(rows.shape[0], np.int64)
    for k, (start, end) in enumerate(zip(rows.indptr[:-1].tolist(), rows.indptr[1:].tolist(), strict=True)):
        present = values[start:end] != 0
        if present.any():
            digest = hashlib.blake2b(columns[start:end][present].tobytes(), digest_size=8)
            digest.update(values[start:end][present].tobytes())
            hashes[k] = int.from_bytes(digest.digest(), "little", signed=True) or 1
    return hashes


def distinct_hashes(hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], int, int]:
    """Return the hashes of items with words, each once, in ascending order; how many are copies, or have no words."""
    distinct = np.unique(hashes[hashes != 0])
    n_empty = int((hashes == 0).sum())
    return distinct, len(hashes) - n_empty - len(distinct), n_empty


def notes_on_copies(n_copies: int, n_empty: int, n_items: int, modality: str, validated: bool) -> list[str]:
    """Say how many training items are copies of others, and how many have no words.

    `validated` is whether errors are measured by cross-validation.
    """
    of_all, notes = f"of {how_many(n_items, modality)}", []
    if n_empty:
        notes.append(f"{n_empty:,} {of_all} {agree(n_empty, 'has', 'have')} no word of the vocabulary.")
    if n_copies:
        low = ": errors in cross-validation are too low by that" if validated else ""
        are = agree(n_copies, "is a copy of another one", "are copies of others")
        notes.append(f"{n_copies:,} {of_all} {are}, with the same words{low}.")
    return notes


def content_hash(collection: Collection, hashes: NDArray[np.int64]) -> str:
    """Hash ids, labels and words of items; `hashes` are those of `item_hashes`."""
    digest = hashlib.blake2b(digest_size=16)
    for one in zip(collection.ids, collection.label_sets, strict=True):
        digest.update(repr(one).encode("utf-8", "surrogatepass"))
    digest.update(hashes.astype("<i8").tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class SeenItems:
    """Which items are exactly those that a model was learned from: the same words, equally often.

    Attributes
    ----------
    ids : sequence of str
    seen : ndarray of bool, shape (n_items,)
        Items that are known to be training items.
    compared : ndarray of bool, shape (n_items,)
        Items for which it is known whether they are; all with words, if the model has the hashes of all its items.
    exact : bool
        Whether the model has the hashes of all its training items.
    all_of_them : bool
        Whether they are the training items, all of them in the same order, with the same ids and labels.
    """

    ids: Sequence[str] = field(repr=False)
    seen: NDArray[np.bool_]
    compared: NDArray[np.bool_]
    exact: bool
    all_of_them: bool = False

    @classmethod
    def training(cls, ids: Sequence[str]) -> SeenItems:
        """Return those of the items that a model was learned from."""
        every = np.ones(len(ids), np.bool_)
        return cls(ids, every, every, exact=True, all_of_them=True)

    def joined(self, other: SeenItems) -> SeenItems:
        """Return the same of the items of both."""
        seen, compared = (np.concatenate(pair) for pair in ((self.seen, other.seen), (self.compared, other.compared)))
        return SeenItems([*self.ids, *other.ids], seen, compared, self.exact and other.exact)

    @property
    def n_seen(self) -> int:
        """Number of items that are known to be training items."""
        return int(self.seen.sum())

    @property
    def new(self) -> NDArray[np.bool_]:
        """Items that the model was not learned from: all others if it has all hashes, otherwise those known to be."""
        return ~self.seen if self.exact else self.compared & ~self.seen

    @property
    def n_compared(self) -> int:
        """Number of items for which it is known whether they are."""
        return int(self.compared.sum())

    @property
    def estimate(self) -> float:
        """Number of training items among all items: known, or estimated from the items that were compared."""
        if self.exact or not self.n_compared:
            return float(self.n_seen)
        return len(self.seen) * self.n_seen / self.n_compared

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as JSON values, with the ids of the training items."""
        return {
            "n_items": len(self.seen),
            "n_seen": self.n_seen,
            "n_compared": self.n_compared,
            "exact": self.exact,
            "estimate": self.estimate,
            "all": self.all_of_them,
            "ids": [id for id, seen in zip(self.ids, self.seen.tolist(), strict=True) if seen],
        }

    def sentence(self, wrong: NDArray[np.bool_] | None = None, validated: str = "", where: str = "") -> str | None:
        """Say how many items are training items; None if there are none.

        Parameters
        ----------
        wrong : ndarray of bool, shape (n_items,), default=None
            Items that are classified wrongly.
        validated : str, default=""
            The error that cross-validation gave, in words.
        where : str, default=""
            What items these are, such as " of the split test".
        """
        if not self.n_seen:
            return None
        n, some = len(self.seen), self.to_dict()["ids"]
        names = ", ".join(some[:_NAMED]) + (", …" if len(some) > _NAMED else ".")
        if self.n_seen == n:
            those = "those the model was learned from" if self.all_of_them else "exactly in the training data"
            return f"All {n:,} items{where} are {those}: this is training error, not that of new items.{validated}"
        exactly, without = f"items{where} {'is' if self.n_seen == 1 else 'are'} exactly in the training data", ""
        others = self.new
        if wrong is not None and (self.exact or others.sum() >= _FEWEST):
            without = f" Error without {'it' if self.n_seen == 1 else 'them'}: {percent(wrong[others].mean())}."
        if self.exact:
            return f"{self.n_seen:,} of {n:,} {exactly}: {names}{without}"
        if self.n_compared < _FEWEST:
            return f"At least {self.n_seen:,} of {n:,} {exactly}: {names} Only {self.n_compared:,} can be compared."
        if self.n_seen == self.n_compared:
            whole = f"All {self.n_seen:,} of {n:,} items{where} that can be compared are exactly in the training data"
            return f"{whole}: this is training error, not that of new items.{validated}"
        about = f"About {self.estimate:,.0f} of {n:,} items{where} are exactly in the training data"
        return f"{about}; {self.n_seen:,} of {self.n_compared:,} that can be compared are: {names}{without}"


def seen_items(model: Model, collection: Collection, histograms: Any) -> SeenItems | None:
    """Find out which items a model was learned from; None if it cannot be known.

    Parameters
    ----------
    model : Model
    collection : Collection
    histograms : CSR array or ndarray of shape (n_items, n_cells * d)
        Of the items, over the full vocabulary.

    Returns
    -------
    seen : SeenItems or None
        None for compact models of texts, and models that were not fitted by `fit_model`.

    Examples
    --------
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import fit_model
    >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]] * 3), list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> model = fit_model(rows, n_groups=2, folds=0)
    >>> new = Collection.from_matrix(np.array([[4, 1, 0], [2, 0, 5]]), ["x", "y"], [("cat",), ("dog",)])
    >>> print(seen_items(model, new, new.X).sentence())
    1 of 2 items is exactly in the training data: x.
    """
    content = model.provenance.get("content_hash")
    if model.item_hashes is None and content is None:
        return None
    hashes = item_hashes(histograms)
    if content is not None and content == content_hash(collection, hashes):
        return SeenItems.training(collection.ids)
    return None if model.item_hashes is None else SeenItems(collection.ids, *compare_hashes(model, hashes))


def compare_hashes(model: Model, hashes: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.bool_], bool]:
    """Return `seen`, `compared` and `exact` of `SeenItems`, for a model with hashes of its training items.

    `hashes` are those of `item_hashes`, of other items.
    """
    known = model.item_hashes
    assert known is not None
    exact = len(known) == model.provenance.get("n_hashed", len(known))
    compared = hashes != 0
    if not exact:
        compared &= hashes <= known[-1]
    return np.isin(hashes, known) & compared, compared, exact
