"""Checks of the parameters of `Model`: words of a modality, codebooks, hashes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise._utils.checks import as_values
from bagwise.app.model.parts import checked_assignments, checked_names, checked_tokenizer, frozen
from bagwise.codebooks.pyramids import n_cells, resolve_pyramid
from bagwise.errors import BagwiseError
from bagwise.runtime import HASH_BITS, MOST_TABLE, MOST_VOCABULARIES

if TYPE_CHECKING:
    from bagwise.app.model.model import Model

__all__ = ["check_words", "checked_item_hashes", "checked_pyramid"]


def check_words(model: Model) -> None:
    """Check that the parameters of words suit the modality and the size of the vocabulary."""
    n, descriptors, seen = model.hierarchy.n_words, model.descriptors, model.modality in ("images", "videos")
    for one in descriptors:
        if one.modality != model.modality:
            raise BagwiseError(f"{one.name} describes {one.modality}, but the model takes {model.modality}.")
    _check_codebooks(model, seen)
    if not seen and model.pyramid != ((1, 1),):
        raise BagwiseError(f"{model.modality} have no positions, so there is no pyramid; got {model.pyramid}.")
    if model.modality == "texts" and (model.word_names is None) == (model.word_hashes is None):
        raise BagwiseError("A model of texts needs word_names, its vocabulary, or word_hashes, but not both.")
    if model.word_hashes is not None:
        _check_hashes(model)
    if model.word_names is not None:
        if seen:
            raise BagwiseError(f"Words of {model.modality} have no names, but word_names were given.")
        model._set(word_names=checked_names(model.word_names, "word_names", unique=model.modality == "texts"))
    for name, dtype in (("word_totals", np.float64), ("word_weights", np.float32), ("column_shift", np.float64)):
        if getattr(model, name) is not None:
            numbers = as_values(np.asarray(getattr(model, name)).reshape(-1, 1), dtype, name)
            model._set(**{name: frozen(numbers.ravel())})
    if model.word_weights is not None and len(model.word_weights) and model.word_weights.min() < 0:
        raise BagwiseError(f"word_weights must not be negative; the smallest is {model.word_weights.min():g}.")
    if model.column_shift is not None and model.modality != "table":
        raise BagwiseError(f"Only the columns of a table are shifted, but the model takes {model.modality}.")
    for name in ("word_names", "word_hashes", "word_totals", "word_weights", "column_shift"):
        held = getattr(model, name)
        if held is not None and len(held) != n:
            raise BagwiseError(f"{name} must have one entry per word of the hierarchy, {n}; got {len(held)}.")
    model._set(tokenizer=checked_tokenizer(model.tokenizer))
    if model.tokenizer and model.modality != "texts":
        raise BagwiseError(f"Only texts have a tokenizer, but the model takes {model.modality}.")


def checked_pyramid(model: Model) -> tuple[tuple[int, int], ...]:
    """Return the grids of a pyramid; raise an error if there are too many cells."""
    grids = resolve_pyramid(model.pyramid)
    n_columns = n_cells(grids) * model.hierarchy.n_words
    if n_cells(grids) > 1 and n_columns > MOST_TABLE:
        raise BagwiseError(
            f"{n_cells(grids)} cells of {model.hierarchy.n_words} words make {n_columns} columns; a model has at "
            f"most {MOST_TABLE}. Take fewer words, or no pyramid."
        )
    return grids


def checked_item_hashes(given: ArrayLike) -> NDArray[np.int64]:
    """Check hashes of items: int64, ascending."""
    hashes = np.asarray(given)
    if hashes.ndim != 1 or hashes.dtype != np.int64 or not (hashes[1:] > hashes[:-1]).all():
        raise BagwiseError(f"item_hashes must be int64, all different and ascending; got {hashes!r:.100}.")
    return frozen(hashes)


def _check_hashes(model: Model) -> None:
    hashes = np.asarray(model.word_hashes)
    integers = hashes.ndim == 1 and hashes.dtype.kind in "iu"
    rise = integers and (np.diff(hashes.astype(np.int64)) > 0).all()
    if model.modality != "texts" or not rise or (len(hashes) and not 0 <= hashes[0] <= hashes[-1] < 1 << HASH_BITS):
        raise BagwiseError(
            f"word_hashes are ascending integers of {HASH_BITS} bits, and only for texts; got {hashes!r:.100}."
        )
    model._set(word_hashes=frozen(hashes.astype(np.uint32)))


def _check_codebooks(model: Model, seen: bool) -> None:
    """Check that there is a codebook for each descriptor that needs one, and that they have all words together."""
    n, descriptors, given = model.hierarchy.n_words, model.descriptors, model.codebook
    several = isinstance(given, (list, tuple)) and len(given) > 0 and np.ndim(given[0]) == 2
    codebooks = [] if given is None else list(given) if several else [given]
    names = " and ".join(one.name for one in descriptors)
    by = f" by {names}" if descriptors else ""
    counting = [one for one in descriptors if one.n_words is not None]
    if counting and len(descriptors) > 1:
        raise BagwiseError(
            f"{counting[0].name} counts words itself and has no other descriptors beside it; got {names}."
        )
    if bool(codebooks) != (seen and not counting):
        needs = "has no" if codebooks else "needs a"
        raise BagwiseError(f"A model of {model.modality}{by} {needs} codebook.")
    if counting and (n != counting[0].n_words or model.pyramid != ((1, 1),)):
        counted = counting[0].n_words
        raise BagwiseError(f"A model{by} has {counted} words and no pyramid; got {n} words.")
    if codebooks and descriptors and len(descriptors) != len(codebooks):
        raise BagwiseError(f"{len(descriptors)} descriptors need as many codebooks; got {len(codebooks)}.")
    if len(codebooks) > MOST_VOCABULARIES:
        raise BagwiseError(f"A model has at most {MOST_VOCABULARIES} codebooks, got {len(codebooks)}.")
    held = tuple(frozen(as_values(codebook, np.float32, "codebook")) for codebook in codebooks)
    if held and (0 in map(len, held) or sum(map(len, held)) != n):
        sizes = " + ".join(str(len(codebook)) for codebook in held)
        raise BagwiseError(f"codebook must have one entry per word of the hierarchy, {n}; got {sizes}.")
    if any(codebook.shape[1] < 1 for codebook in held):
        raise BagwiseError("Words of a codebook need at least one feature, got 0.")
    model._set(codebook=held if len(held) > 1 else held[0] if held else None)
    model._set(assignment=checked_assignments(model.assignment, len(held)))
