"""What the items of an index are compared by: words, groups or scores of classes of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.app.modalities.vectorizers import as_histograms
from bagwise.app.model.model import Model
from bagwise.codebooks.normalizing import WordWeighting, normalize_rows
from bagwise.errors import BagwiseError, argument, in_python, parameter_name, unknown_name
from bagwise.retrieval.bag_index import BagIndex
from bagwise.retrieval.blends import ClassBlend, GroupBlend

__all__ = [
    "SIMILARITIES",
    "above_shift",
    "add_rows",
    "chosen_by",
    "class_scores",
    "features",
    "second_features",
    "weighted_words",
]
__all__ += ["word_frequencies"]

SIMILARITIES = ("words", "groups", "classes", "both")
_BATCH = 4096  # items whose features are computed at a time


def chosen_by(model: Model, by: str, metric: str | None) -> str:
    """Return what items are compared by; raise an error if the model or the metric does not allow it."""
    if by == "auto":
        return "both" if metric is None else "words"
    if by not in SIMILARITIES:
        raise unknown_name(parameter_name("by"), by, ("auto", *SIMILARITIES))
    if by == "classes" and not model.heads:
        what = f"{argument('by', by)} needs a model with a classifier, but {in_python(repr(model), 'this one')}"
        raise BagwiseError(f"{what} has none. Use {argument('by', 'both')}, words and groups, or one of these.")
    if by in ("classes", "both") and metric not in (None, "inner"):
        others = f"{argument('by', 'words')} and {argument('by', 'groups')}, not for {argument('by', by)}"
        raise BagwiseError(f"{argument('metric', metric)} is for {others}. Remove one.")
    return by


def add_rows(
    index: BagIndex,
    model: Model,
    histograms: Any,
    by: str,
    blend: ClassBlend | GroupBlend | None,
    scores: NDArray[np.float64] | None,
) -> None:
    """Add items to an index; `scores` are their scores of classes, if these are compared."""
    for first in range(0, max(np.shape(histograms)[0], 1), _BATCH):
        part = slice(first, first + _BATCH)
        if isinstance(blend, GroupBlend):
            words = weighted_words(model, histograms[part])
            index.add(blend.rows(words, second_features(model, histograms[part], blend)))
        elif blend is None or scores is None:
            index.add(features(model, histograms[part], by, index.metric))
        elif by == "classes":
            index.add(blend.probabilities(scores[part]))
        else:
            index.add(blend.rows(weighted_words(model, histograms[part]), scores[part]))


def second_features(model: Model, histograms: Any, blend: ClassBlend | GroupBlend) -> Any:
    """Return what a blend compares items by beside words: scores of classes, or groups with unit norm."""
    if isinstance(blend, ClassBlend):
        return class_scores(model, histograms)
    return model.group(above_shift(model, histograms), normalize=("l1", "power"))


def features(model: Model, histograms: Any, by: str, metric: str) -> Any:
    """Return what items are compared by, where that is words or groups."""
    if by == "groups":
        return model.group(above_shift(model, histograms), normalize=("l1",))
    return weighted_words(model, histograms) if metric == "inner" else word_frequencies(model, histograms)


def weighted_words(model: Model, histograms: Any) -> Any:
    """Return weighted words, with unit norm over all vocabularies that an item has words of."""
    counts = as_histograms(above_shift(model, histograms), model.layout.n_columns)
    if model.norm == "l2":
        return model.weighting.apply(counts) / np.sqrt(len(model.layout.vocabularies))
    return normalize_rows(word_frequencies(model, counts), "power")


def word_frequencies(model: Model, histograms: Any) -> Any:
    """Return relative frequencies of words, the same sum in each vocabulary; measurements are scaled before."""
    counts = as_histograms(above_shift(model, histograms), model.layout.n_columns)
    weights = model.weighting.weights if model.term == "count" else None
    plain = WordWeighting("count", weights, "l1", model.layout.vocabularies, model.column_shift)
    return plain.apply(counts) / len(model.layout.vocabularies)


def class_scores(model: Model, histograms: Any) -> NDArray[np.float64]:
    """Return scores of classes, by the classifier of the most groups that the model has: usually one on all words."""
    size = max(model.heads)
    return model.heads[size].scores(model.group(above_shift(model, histograms), size))


def above_shift(model: Model, histograms: Any) -> Any:
    """Return histograms; measurements below what the model was fitted to count as the least."""
    if model.column_shift is None:
        return histograms
    dense = histograms.toarray() if hasattr(histograms, "toarray") else histograms
    return np.maximum(dense, model.column_shift)
