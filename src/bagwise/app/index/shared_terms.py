"""What items that a search found share with the query: terms that add up to their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.checks import check_integer
from bagwise.errors import BagwiseError
from bagwise.retrieval.blends import GroupBlend

if TYPE_CHECKING:
    from bagwise.app.index.item_index import Found, ItemIndex
    from bagwise.app.model import Model

__all__ = ["Shared", "search_shared", "shared_terms"]


class Shared(NamedTuple):
    """What two items share: a word, a group or a class, and how much it adds to their score."""

    kind: str  # "word", "group" or "class"
    number: int
    name: str
    contribution: float


def shared_terms(
    index: ItemIndex,
    query: Any,
    numbers: Sequence[int],
    by: str,
    cut: Model | None = None,
    weights: NDArray[np.float64] | None = None,
) -> list[list[Shared]]:
    """Return what items share with a query; see `ItemIndex.shared`. `weights` are those of classes, if known."""
    numbers = [check_integer(number, "number", 0, len(index) - 1) for number in numbers]
    is_item = isinstance(query, int | np.integer)
    if not is_item and np.shape(query)[0] != 1:
        raise BagwiseError(f"One query is compared with items, got {np.shape(query)[0]}.")
    if cut is not None and index.by == "groups":
        cut = None  # these are groups already
    elif cut is not None and isinstance(index.blend, GroupBlend):
        cut = index.model  # whose groups are compared as well
    names: Any = index.model.group_names() if index.by == "groups" else index.model.word_names
    if cut is not None:
        names = cut.group_names()
    if index.by != "both" or index.blend is None:
        row = index.held(int(query))[0] if is_item else index.plain_rows(query)
        return _terms(index, cut, names, index.index.contributions(row, numbers))
    words, scores = index.held(int(query)) if is_item else index.blended_parts(query)
    blend = index.blend
    if isinstance(blend, GroupBlend):
        return _terms(index, cut, names, index.index.contributions(blend.query_rows(words, scores, by), numbers))
    if by != "both":
        return _terms(index, cut, names, index.index.contributions(blend.rows_alone(words, scores, by), numbers))
    weights = blend.class_weights(index.index, words, scores) if weights is None else weights
    row = blend.rows(words, scores, weights)
    shared = _terms(index, cut, names, index.index.contributions(row, numbers))
    by_words = index.index.contributions(blend.rows_alone(words, scores, "words"), numbers)
    equal = np.flatnonzero(blend.are_equal(np.asarray(by_words.sum(axis=1))))  # their scores are 1
    for hit, terms in zip(equal.tolist(), _terms(index, cut, names, by_words[equal]), strict=True):
        shared[hit] = terms
    return shared


def search_shared(
    index: ItemIndex, query: Any, k: int, by: str | None = None, cut: Model | None = None
) -> tuple[list[Found], list[list[Shared]]]:
    """Search for one query, and return what the items share with it; faster than both on their own.

    Parameters
    ----------
    index : ItemIndex
    query : int, or CSR array or ndarray of shape (1, n_cells * d)
        The number of an item, see `ItemIndex.similar`, or counts of the words of another one, see `ItemIndex.search`.
    k, by, cut
        As in `ItemIndex.search` and `ItemIndex.shared`.

    Returns
    -------
    found : list of Found
    shared : list of lists of Shared
    """
    wanted, is_item, weights = index.wanted(by), isinstance(query, int | np.integer), None
    k = min(check_integer(k, "k", 1), len(index))
    if is_item and not index.index.row(check_integer(query, "number", 0, len(index) - 1)).nnz:
        return [], []
    if index.by != "both" or index.blend is None:
        row = index.held(int(query))[0] if is_item else index.plain_rows(query)
        scored, places = index.index.search(row, k)
    else:
        words, scores = index.held(int(query)) if is_item else index.blended_parts(query)
        if isinstance(index.blend, GroupBlend):
            scored, places = index.blend.search(index.index, words, scores, k, wanted)
        elif wanted == "both":
            scored, places, weights = index.blend.weighed_search(index.index, words, scores, k)
        else:
            scored, places = index.index.search(index.blend.rows_alone(words, scores, wanted), k)
    numbers = np.asarray(places)[0].tolist()
    return index.named(scored, places)[0], shared_terms(index, query, numbers, wanted, cut, weights)


def _terms(index: ItemIndex, cut: Model | None, names: Any, rows: sp.csr_array) -> list[list[Shared]]:
    """Name the terms of scores; those of a word in all cells, and those of a class, are added up."""
    return [_named(index, cut, names, rows[[k]]) for k in range(rows.shape[0])]


def _named(index: ItemIndex, cut: Model | None, names: Any, row: sp.csr_array) -> list[Shared]:
    model, by_group, beside = index.model, index.by == "groups", isinstance(index.blend, GroupBlend)
    width = model.n_groups if by_group else model.hierarchy.n_words
    n_columns = 0 if index.by == "classes" else model.layout.width(width)
    seconds = model.group_names().tolist() if beside else model.classes  # beside words
    columns = row.indices.astype(np.int64)
    words = columns % width if cut is None else cut.lookup[columns % width]
    others = (columns - n_columns) % max(len(seconds), 1) + (0 if beside and cut is not None else width)
    numbers, inverse = np.unique(np.where(columns >= n_columns, others, words), return_inverse=True)
    sums = np.bincount(inverse, row.data, len(numbers))
    order = [k for k in np.argsort(-sums, kind="stable").tolist() if sums[k]]
    named = []
    for number, added in zip(numbers[order].tolist(), sums[order].tolist(), strict=True):
        if number >= width:
            named.append(Shared("group" if beside else "class", number - width, seconds[number - width], added))
        else:
            name = f"word {number}" if names is None else str(names[number])
            named.append(Shared("group" if by_group or cut is not None else "word", number, name, added))
    return named
