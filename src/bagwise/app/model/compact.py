"""Small models: without other cuts, with hashes in place of words, with numbers of one byte."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bagwise.app.modalities import MODALITIES
from bagwise.app.model.cutting import trim_parameters
from bagwise.app.model.parts import Head
from bagwise.errors import BagwiseError
from bagwise.merging.hierarchy import Hierarchy
from bagwise.runtime import MOST_STEP, N_WEIGHTS, SCALES, decoded_rows, decoded_weights, hash_words, merges_of

if TYPE_CHECKING:
    from bagwise.app.model.model import Model

__all__ = ["SmallForms", "encoded_rows", "encoded_weights", "groups_of"]

_M = TypeVar("_M", bound="Any")

# Most groups whose numbers take two bytes.
MOST_GROUPS = 1 << 16
# Significant bits of scales: with the 7 of an integer, products are exact in float32.
_SCALE_BITS = 17
# Of the options and the provenance of a fit: what is needed to read other files like those of the fit, and its origin.
_OPTIONS, _PROVENANCE = ("C", "text", "label", "encoding"), ("source", "n_items", "created")


class SmallForms:
    """The methods of `Model` that return forms of it with small files."""

    def trim(self: _M) -> _M:
        """Return the model without what its number of groups does not need, so that its file is small.

        Merges that lead to more groups become a table from words to groups, and classifiers for more groups are left
        out; it can still be cut at fewer groups. Features and scores stay as they are, and so do names that people gave
        to groups; others are named by their frequent words, since larger classifiers tell which words speak for a
        class. Edits are part of the groups and can no longer be undone: ``provenance["n_edits"]`` has their number.

        Examples
        --------
        >>> from bagwise import Hierarchy, Model
        >>> model = Model(modality="table", hierarchy=Hierarchy(4, [[1, 2], [1, 3], [0, 1]], [3, 2, 1]), n_groups=2)
        >>> small = model.trim()
        >>> small.lookup, small.cut(1).lookup, small.flattened
        (array([0, 1, 1, 1]), array([0, 0, 0, 0]), 2)
        """
        return type(self)(**trim_parameters(self))

    def compact(self: _M) -> _M:
        """Return the model as it is cut, in a form whose file is small: about four bytes per word for texts.

        The hierarchy has this cut alone, there is one head, and of the fit only the source is known. For texts, words
        become hashes of 24 bits, so that groups have no names, and weights of words are rounded to 255 values in equal
        ratios. Of several words with one hash the most important is kept, and counts for all of them. Words outside of
        the vocabulary that happen to have one of its hashes are counted too: one of 800 if there are 20,000 words.
        ``provenance["compact"]`` has the number of words that were lost and the largest relative error of a weight.

        Examples
        --------
        >>> from bagwise import Hierarchy, Model
        >>> model = Model(
        ...     modality="texts",
        ...     hierarchy=Hierarchy(3, [[0, 2], [0, 1]], [0.5, 0.1]),
        ...     n_groups=2,
        ...     word_names=["cat", "dog", "kitten"],
        ... )
        >>> small = model.compact()
        >>> small, small.word_names, small.provenance
        (<Model: texts, 3 words merged into 2 groups>, None, {'compact': {'n_words_lost': 0, 'weight_error': 0.0}})
        >>> model.histograms(["a dog, a cat and its kitten"]).toarray(), model.lookup
        (array([[1., 1., 1.]], dtype=float32), array([0, 1, 0]))
        >>> small.histograms(["a dog, a cat and its kitten"]).toarray(), small.lookup  # by hashes: dog comes first
        (array([[1., 1., 1.]], dtype=float32), array([0, 1, 1]))
        """
        return type(self)(**compact_parameters(self))

    def quantize(self: _M) -> _M:
        """Return the model with words and classifiers rounded to 8-bit integers, for a file of about a quarter.

        Each word of a codebook, and each row of weights of a classifier, becomes integers from -127 to 127 times a
        scale of its own; intercepts stay. Other parts of the model stay too, so `trim` or `compact` it first. What it
        costs is to be measured on labelled items: ``bagwise export MODEL --int8 --evaluate SOURCE`` does.
        ``provenance["int8"]`` has how far a word moved, and a weight: the largest distance of a word from what it was,
        divided by its length, and the largest difference of a weight, divided by the largest of its class.

        Examples
        --------
        >>> from bagwise import Hierarchy, Model
        >>> model = Model(
        ...     modality="images", hierarchy=Hierarchy(2, [[0, 1]], [0.5]), n_groups=2, codebook=[[3, 1], [0, 0.5]]
        ... )
        >>> small = model.quantize()
        >>> small.codebook.round(3), small.provenance
        (array([[3.   , 0.992], [0.   , 0.5  ]], dtype=float32), {'int8': {'word_error': 0.00249, 'weight_error': 0.0}})
        """
        return type(self)(**quantized_parameters(self))


def compact_parameters(model: Model) -> dict[str, Any]:
    """Return the parameters of the compact form of a model; see `Model.compact`."""
    if model.n_groups > MOST_GROUPS:
        raise BagwiseError(
            f"A compact model has at most {MOST_GROUPS} groups, this one has {model.n_groups}. Cut it first."
        )
    words, hashes = _words_with_hashes(model)
    old, first, inverse = np.unique(model.lookup[words], return_index=True, return_inverse=True)
    order = np.argsort(first)  # groups are numbered by their first words, of which there are others now
    groups, kept = np.argsort(order)[inverse], old[order]
    n = len(kept)
    heads = {}
    if model.n_groups in model.heads:
        coef = model.layout.by_cell(model.head.coef)[:, :, kept]
        heads = {n: Head(coef.reshape(len(model.classes), -1), model.head.intercept)}
    weights, error = None, 0.0
    if model.word_weights is not None:
        exact = model.word_weights[words]
        # scales of measurements are left as they are
        weights = decoded_weights(*encoded_weights(exact)) if MODALITIES[model.modality].hashes_words else exact
        error = float(np.max(np.abs(weights - exact) / np.where(exact > 0, exact, 1), initial=0))
    path = model.path
    if path is not None:
        only = path.only({model.n_groups})
        path = None if only is None else replace(only, sizes=(n,), paired_errors=())
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
    return model.parameters() | changes


def _words_with_hashes(model: Model) -> tuple[NDArray[np.intp], NDArray[np.uint32] | None]:
    """Return the words that are kept, and for texts their hashes, in ascending order.

    Of several words with one hash the one with the largest product of frequency and weight is kept, of equal ones the
    first.
    """
    d = model.hierarchy.n_words
    if not MODALITIES[model.modality].hashes_words or model.word_names is None:
        return np.arange(d), model.word_hashes
    hashes = hash_words(model.word_names)
    importance = np.ones(d) if model.word_totals is None else np.array(model.word_totals)
    importance *= 1 if model.word_weights is None else model.word_weights
    order = np.lexsort((-importance, hashes))
    distinct, first = np.unique(hashes[order], return_index=True)
    return order[first], distinct


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
    exact = np.asarray(weights, np.float64)
    positive = exact > 0
    if not positive.any():
        return np.zeros(len(exact), np.uint8), [1.0, 1.0]
    low, high = float(exact[positive].min()), float(exact.max())
    codes = np.zeros(len(exact), np.uint8)
    steps = np.log(exact[positive] / low) / np.log(high / low) if high > low else np.zeros(positive.sum())
    codes[positive] = 1 + np.rint((N_WEIGHTS - 2) * steps).astype(np.uint8)
    return codes, [low, high]


def quantized_parameters(model: Model) -> dict[str, Any]:
    """Return the parameters of a model with words and heads of 8 bits; see `SmallForms.quantize`."""
    codebooks = [_rounded(codebook, "words") for codebook in model.codebooks]
    coefs = {n: _rounded(head.coef, f"classifier for {n} groups") for n, head in model.heads.items()}
    word_error = [
        np.linalg.norm(new - old, axis=1) / np.maximum(np.linalg.norm(old, axis=1), SCALES[0])
        for new, old in zip(codebooks, model.codebooks, strict=True)
    ]
    weight_error = [
        np.abs(coef - model.heads[n].coef).max(axis=1) / np.maximum(np.abs(model.heads[n].coef).max(axis=1), SCALES[0])
        for n, coef in coefs.items()
    ]
    moved = {
        name: round(float(max((one.max() for one in errors), default=0)), 5)
        for name, errors in (("word_error", word_error), ("weight_error", weight_error))
    }
    changes = {
        "codebook": codebooks or None,
        "heads": {n: Head(coef, model.heads[n].intercept) for n, coef in coefs.items()},
        "quantized": True,
        "provenance": {**model.provenance} if model.quantized else {**model.provenance, "int8": moved},
    }
    return model.parameters() | changes


def _rounded(matrix: NDArray[np.float32], what: str) -> NDArray[np.float32]:
    """Return a matrix after rounding to 8 bits."""
    largest = float(np.abs(matrix).max(initial=0))
    if largest > MOST_STEP * SCALES[1]:
        accepted = f"up to {MOST_STEP * SCALES[1]:g}"
        raise BagwiseError(f"The {what} have numbers of {largest:g}; {accepted} they can be rounded to 8 bits.")
    return decoded_rows(*encoded_rows(matrix))


def encoded_rows(matrix: NDArray[Any]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return rows as integers from -127 to 127 and a scale for each row; see `decoded_rows`.

    The largest number of a row becomes 127 or -127. Scales have 17 significant bits, so that numbers that were rounded
    once are the same after rounding them again. Rows of zeros have the scale 1.

    >>> integers, scales = encoded_rows(np.float32([[2, -1, 0.5], [0, 0, 0]]))
    >>> integers, scales.round(4)
    (array([[127, -64,  32],
           [  0,   0,   0]], dtype=int8), array([0.0157, 1.    ], dtype=float32))
    """
    exact = np.asarray(matrix, np.float64)
    fractions, exponents = np.frexp(np.abs(exact).max(axis=1) / MOST_STEP)
    scales = np.ldexp(np.rint(np.ldexp(fractions, _SCALE_BITS)), exponents - _SCALE_BITS)
    scales = np.where(scales < SCALES[0], 1.0, np.minimum(scales, SCALES[1]))
    integers = np.clip(np.rint(exact / scales[:, np.newaxis]), -MOST_STEP, MOST_STEP)
    return integers.astype(np.int8), scales.astype(np.float32)
