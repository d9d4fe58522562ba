"""Compact models: one cut, hashes in place of words, weights of one byte."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy
from bagwise.model.parts import Head, PathErrors
from bagwise.runtime import N_WEIGHTS, decoded_weights, hash_words, merges_of

if TYPE_CHECKING:
    from bagwise.model.model import Model

__all__ = ["compact_parameters", "encoded_weights", "groups_of"]

# Most groups whose numbers take two bytes.
MOST_GROUPS = 1 << 16
# Of the options and the provenance of a fit: what is needed to read other files like those of the fit, and its origin.
_OPTIONS, _PROVENANCE = ("C", "text", "label", "encoding"), ("source", "n_items", "created")


def compact_parameters(model: Model) -> dict[str, Any]:
    """Return the parameters of the compact form of a model; see `Model.compact`."""
    if model.n_groups > MOST_GROUPS:
        raise BagwiseError(
            f"A compact model has at most {MOST_GROUPS} groups, this one has {model.n_groups}. Cut it first."
        )
    words, hashes = _words_with_hashes(model)
    if model.tables is None:
        old, first, inverse = np.unique(model.lookup[words], return_index=True, return_inverse=True)
        order = np.argsort(first)  # groups are numbered by their first words, of which there are others now
        groups, kept = np.argsort(order)[inverse], old[order]
    else:  # groups of tables keep their numbers; the cut is not used
        kept = np.arange(model.n_groups)
        groups = np.minimum(np.arange(len(words)), model.n_groups - 1)
    n = len(kept)
    heads = {}
    if model.n_groups in model.heads:
        coef = model.head.coef.reshape(len(model.classes), model.n_cells, -1)[:, :, kept]
        heads = {n: Head(coef.reshape(len(model.classes), -1), model.head.intercept)}
    weights, error = None, 0.0
    if model.word_weights is not None:
        given = model.word_weights[words]
        # scales of measurements are left as they are
        weights = decoded_weights(*encoded_weights(given)) if model.modality == "texts" else given
        error = float(np.max(np.abs(weights - given) / np.where(given > 0, given, 1), initial=0))
    path = model.path
    if path is not None:
        at = path.sizes.index(model.n_groups) if model.n_groups in path.sizes else None
        path = None if at is None else PathErrors((n,), (path.errors[at],), (path.standard_errors[at],), path.protocol)
    lost = {"n_words_lost": model.hierarchy.n_words - len(words), "weight_error": round(error, 5)}
    before = model.provenance.get("compact")  # of a model that was compact already
    if isinstance(before, dict) and before.keys() == lost.keys() and set(map(type, before.values())) <= {int, float}:
        lost = before
    known = _PROVENANCE if hashes is not None else (*_PROVENANCE, "content_hash", "n_hashed")
    changes = {
        "hierarchy": _flat_hierarchy(groups, model.hierarchy.criterion),
        "n_groups": n,
        "word_names": None if hashes is not None else model.word_names,
        "word_hashes": hashes,
        "word_totals": None,
        "word_weights": weights,
        "given_names": {
            new: model.given_names[old] for new, old in enumerate(kept.tolist()) if old in model.given_names
        },
        "flattened": None,
        "tables": None if model.tables is None else model.tables[:, words],
        "heads": heads,
        "calibration": {n: model.calibration[model.n_groups]} if model.n_groups in model.calibration else {},
        "path": path,
        "item_hashes": None if hashes is not None else model.item_hashes,  # with others words are counted otherwise
        "options": {name: value for name, value in model.options.items() if name in _OPTIONS and value is not None},
        "provenance": {name: value for name, value in model.provenance.items() if name in known} | {"compact": lost},
        "edits": (),
        "unedited": None,
        "group_statistics": None,
    }
    return {one.name: getattr(model, one.name) for one in dataclasses.fields(model) if one.init} | changes


def _words_with_hashes(model: Model) -> tuple[NDArray[np.intp], NDArray[np.uint32] | None]:
    """Return the words that are kept, and for texts their hashes, in ascending order.

    Of several words with one hash the one with the largest product of frequency and weight is kept, of equal ones the
    first.
    """
    d = model.hierarchy.n_words
    if model.modality != "texts" or model.word_names is None:
        return np.arange(d), model.word_hashes
    hashes = hash_words(model.word_names)
    importance = np.ones(d) if model.word_totals is None else np.array(model.word_totals)
    importance *= 1 if model.word_weights is None else model.word_weights
    order = np.lexsort((-importance, hashes))
    found, first = np.unique(hashes[order], return_index=True)
    return order[first], found


def _flat_hierarchy(groups: NDArray[np.int64], criterion: str) -> Hierarchy:
    """Return the hierarchy of one cut: the first word of each group absorbs the others, in their order."""
    merges = merges_of(groups)
    return Hierarchy(len(groups), merges, np.full(len(merges), np.nan), criterion)


def groups_of(hierarchy: Hierarchy) -> NDArray[np.int64] | None:
    """Return the group of each word if a hierarchy says nothing but its last cut, otherwise None."""
    merges = hierarchy.merges
    if not len(merges) or hierarchy.min_groups > MOST_GROUPS or not np.isnan(hierarchy.scores).all():
        return None
    groups = hierarchy.cut(hierarchy.min_groups)
    return groups if np.array_equal(merges_of(groups), merges) else None


def encoded_weights(weights: NDArray[Any]) -> tuple[NDArray[np.uint8], list[float]]:
    """Return one byte per weight, and the smallest and the largest weight that is not 0; see `decoded_weights`.

    >>> codes, span = encoded_weights(np.float32([0, 1, 2, 4]))
    >>> codes, span, decoded_weights(codes, span).round(3)
    (array([  0,   1, 128, 255], dtype=uint8), [1.0, 4.0], array([0., 1., 2., 4.], dtype=float32))
    """
    given = np.asarray(weights, np.float64)
    positive = given > 0
    if not positive.any():
        return np.zeros(len(given), np.uint8), [1.0, 1.0]
    low, high = float(given[positive].min()), float(given.max())
    codes = np.zeros(len(given), np.uint8)
    steps = np.log(given[positive] / low) / np.log(high / low) if high > low else np.zeros(positive.sum())
    codes[positive] = 1 + np.rint((N_WEIGHTS - 2) * steps).astype(np.uint8)
    return codes, [low, high]
