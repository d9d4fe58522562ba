"""Groups of a model as reports show them: what they decide, their words, their patches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.app.modalities.vectorizers import WordSample, group_features
from bagwise.app.model import Model
from bagwise.app.model.compact import groups_of
from bagwise.app.model.explanation import sum_cells
from bagwise.app.model.groups import typicality, word_shares
from bagwise.app.report.data import WordGroup
from bagwise.app.report.views import LIMITS
from bagwise.descriptors.base import DEFAULT_SIDE
from bagwise.display.icicle import Tree, TreeRow
from bagwise.display.pictures import photograph, thumbnail
from bagwise.merging.pooling import pool
from bagwise.merging.sizes import path_sizes
from bagwise.sources.collection import Collection
from bagwise.sources.items import ItemError
from bagwise.sources.media import in_color

__all__ = [
    "class_weights",
    "class_weights_of_spread",
    "contributions",
    "deciding",
    "hierarchy_tree",
    "spread",
    "typical_patches",
    "word_groups",
]

N_CLASSES_SHOWN = 3
# Limits on the patches of a report: patches per group, patches in total, pixels of a side.
N_PATCHES = 16
N_ALL_PATCHES = 384
PATCH_SIDE, REGION_SIDE = 48, 80
_TREE_GROUPS = 100  # of the largest cut in the hierarchy of a report
_BATCH = 1024  # items whose contributions are in memory at a time


def word_groups(
    model: Model,
    collection: Collection,
    histograms: Any,
    samples: Mapping[int, WordSample],
) -> tuple[WordGroup, ...]:
    """Return all groups, those that decide most first; only groups that a page shows as cards have patches.

    Words of a group are sorted by how typical they are, see `bagwise.app.model.groups.typicality`.
    """
    n_words = model.hierarchy.n_words
    rows, columns = model.pyramid[0]
    whole = np.asarray(histograms[:, : rows * columns * n_words].sum(axis=0), dtype=np.float64)
    occurrences = whole.reshape(-1, n_words).sum(axis=0)
    importance = typicality(model, occurrences)
    measured = model.column_shift is not None
    if measured:  # measurements do not occur: their scaled sums take the place of counts
        sums = np.maximum(occurrences - histograms.shape[0] * model.column_shift, 0.0)
        importance = occurrences = sums if model.word_weights is None else sums * model.word_weights
    members_of = model.groups()
    totals = np.array([occurrences[members].sum() for members in members_of])
    grouped = model.group(histograms)
    measure = deciding(model, grouped)
    order = np.lexsort((np.arange(len(totals)), -totals, -measure))
    weights = class_weights(model, grouped) if model.n_groups in model.heads else None
    patches = typical_patches(model, collection, samples, order[: LIMITS.groups])
    called = model.group_names()
    regions = any(one.regions for one in model.descriptors)
    groups = []
    for group in order.tolist():
        members = members_of[group]
        names: Sequence[str] = ()
        if model.word_names is not None:
            frequent = members[np.argsort(-importance[members], kind="stable")]
            names = tuple(model.word_names[word] for word in frequent)
        classes: list[tuple[str, float]] = []
        if weights is not None:
            strongest = np.argsort(-np.abs(weights[:, group]), kind="stable")[:N_CLASSES_SHOWN]
            classes = [(model.classes[c], float(weights[c, group])) for c in strongest]
        groups.append(
            WordGroup(
                group,
                len(members),
                0.0 if measured else float(totals[group] / max(occurrences.sum(), 1e-300)),
                names,
                tuple(patches.get(group, ())),
                classes,
                _vocabulary(model, members),
                "" if names and group not in model.given_names else str(called[group]),
                float(measure[group]),
                regions,
            )
        )
    return tuple(groups)


def hierarchy_tree(model: Model) -> Tree | None:
    """Return cuts of the hierarchy for a report, of at most 100 groups, and that of the model if it is not much larger.

    None for models with a single cut.
    """
    hierarchy = model.hierarchy
    if groups_of(hierarchy) is not None:
        return None
    least, most = hierarchy.min_groups, model.flattened or hierarchy.n_words
    sizes = {1, *path_sizes(min(most, _TREE_GROUPS)), *([model.n_groups] if model.n_groups <= 3 * _TREE_GROUPS else [])}
    order = hierarchy.leaf_order()
    shares, of = word_shares(model)
    rows = []
    for size in sorted(size for size in sizes if least <= size <= most):
        cut = model.cut(size)
        titles = [one.title for one in cut.describe_groups()]
        strongest = sum_cells(cut.head.coef, size).argmax(axis=0) if size in cut.heads else None
        rows.append(TreeRow.of(hierarchy.cut(size)[order], shares[order], strongest, titles.__getitem__))
    return Tree(rows, hierarchy.n_words, model.classes, model.n_groups, of) if rows else None


def deciding(model: Model, features: Any) -> NDArray[np.float64]:
    """Return how much each group decides: how far it moves scores of a class.

    That is the standard deviation, over items, of its contribution to the score of a class (weight times feature,
    summed over the cells of a pyramid), for the class where that is largest. Without a classifier, it is that of the
    feature itself.

    Parameters
    ----------
    model : Model
    features : ndarray or CSR array of shape (n_items, n_cells * n_groups)
        See `Model.group`.

    Returns
    -------
    measure : ndarray of shape (n_groups,)

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> from bagwise.app.model import Head
    >>> heads = {2: Head([[1, -3], [-1, 3]], [0, 0])}
    >>> model = Model(modality="table", hierarchy=Hierarchy(2, [], []), n_groups=2, classes=["a", "b"], heads=heads)
    >>> deciding(model, np.array([[0.0, 1], [2, 1.5]]))
    array([1.  , 0.75])
    """
    weights = model.head.coef.astype(np.float64) if model.n_groups in model.heads else np.ones((1, features.shape[1]))
    n_items, n = features.shape[0], model.n_groups
    if model.layout.n_cells == 1:
        return np.abs(weights).max(axis=0) * spread(features)
    sums, squares = np.zeros((2, len(weights), n))
    for first in range(0, n_items, _BATCH):
        part = features[first : first + _BATCH]
        dense = part.toarray() if sp.issparse(part) else np.asarray(part)
        for c, row in enumerate(weights):
            added = sum_cells(dense * row, n)
            sums[c] += added.sum(axis=0)
            squares[c] += (added**2).sum(axis=0)
    return np.sqrt(np.maximum(squares / n_items - (sums / n_items) ** 2, 0)).max(axis=0)


def _vocabulary(model: Model, words: NDArray[np.int64]) -> str:
    """Return the descriptor of some words if there are several; "" for words of more than one."""
    numbers = set(np.searchsorted(np.cumsum(model.layout.vocabularies), words, side="right").tolist())
    if len(model.descriptors) < 2 or len(numbers) > 1:
        return ""
    return model.descriptors[numbers.pop()].name


def class_weights(model: Model, features: Any) -> NDArray[np.float64]:
    """Return how far the score of each class moves when the features of a group rise by one standard deviation each.

    Shape (n_classes, n_groups). Without a pyramid, the largest absolute value of a group is what it decides.
    """
    return class_weights_of_spread(model, spread(features))


def class_weights_of_spread(model: Model, deviations: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what `class_weights` does, for the standard deviation of each feature."""
    return sum_cells(model.head.coef.astype(np.float64) * deviations, model.n_groups)


def contributions(
    model: Model, words: Any, first: int, second: int, groups: NDArray[np.int64] | None = None
) -> NDArray[np.float64]:
    """Return what groups of words add to the score of one class less that of another one, item by item.

    What a group of the model adds is divided among its words, in proportion to their weights in the item.

    Parameters
    ----------
    model : Model
    words : CSR array or ndarray of shape (n_items, n_cells * d)
        Weighted words (``model.weighting.apply``), up to a factor of each item where features are normalised.
    first, second : int
        Classes.
    groups : ndarray of shape (d,), default=None
        Groups that words are summed by. None: those of the model.

    Returns
    -------
    contributions : ndarray of shape (n_items, n_groups)

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> from bagwise.app.model import Head
    >>> heads = {2: Head([[1, -3], [-1, 3]], [0, 0])}
    >>> hierarchy = Hierarchy(3, [[1, 2]], [0.5])
    >>> model = Model(modality="table", hierarchy=hierarchy, n_groups=2, classes=["a", "b"], heads=heads, normalize=())
    >>> words = np.array([[1.0, 2, 1]])
    >>> contributions(model, words, 0, 1), contributions(model, words, 0, 1, np.array([0, 0, 1]))
    (array([[  2., -18.]]), array([[-10.,  -6.]]))
    """
    layout, n = model.layout, model.n_groups
    wanted = model.lookup if groups is None else groups
    weights = model.head.coef[first].astype(np.float64) - model.head.coef[second].astype(np.float64)
    pairs, joint = np.unique(np.stack([model.lookup, wanted]), axis=1, return_inverse=True)
    n_pairs, n_wanted = pairs.shape[1], int(wanted.max()) + 1
    added = np.zeros((words.shape[0], n_wanted))
    for start in range(0, words.shape[0], _BATCH):
        rows = words[start : start + _BATCH]
        features = group_features(rows, model.lookup, n, layout, model.normalize)
        sums = pool(rows, layout.over_cells(model.lookup, n), layout.width(n))
        features, sums = (values.toarray() if sp.issparse(values) else values for values in (features, sums))
        rates = np.divide(features * weights, sums, out=np.zeros(sums.shape), where=sums != 0)
        parts = sp.coo_array(pool(rows, layout.over_cells(joint.ravel(), n_pairs), layout.width(n_pairs)))
        cells, columns = np.divmod(parts.col, n_pairs)
        values = parts.data * rates[parts.row, cells * n + pairs[0, columns]]
        counted = np.bincount(parts.row * n_wanted + pairs[1, columns], values, rows.shape[0] * n_wanted)
        added[start : start + _BATCH] = counted.reshape(-1, n_wanted)
    return added


def spread(features: Any) -> NDArray[np.float64]:
    """Return the standard deviation of each feature over items."""
    mean = np.asarray(features.mean(axis=0, dtype=np.float64)).ravel()
    squares = features.multiply(features) if sp.issparse(features) else np.square(features, dtype=np.float64)
    variance = np.asarray(squares.mean(axis=0, dtype=np.float64)).ravel() - mean**2
    return np.sqrt(np.maximum(variance, 0))


def typical_patches(
    model: Model, collection: Collection, samples: Mapping[int, WordSample], groups: NDArray[np.int64]
) -> dict[int, list[bytes]]:
    """Cut out the patches whose descriptors are nearest to words of each group, at most one per image and vocabulary.

    Where descriptors count by their length for several words, as regions of a network do, those that add most to it.
    A group of words of several vocabularies, whose distances cannot be compared, shows patches of each in turn.
    """
    wanted = set(groups.tolist())
    described = [one.parameters for one in model.descriptors]
    sides = [one.patch_side for one in model.descriptors] or [DEFAULT_SIDE] * len(model.layout.vocabularies)
    networks = [one.regions for one in model.descriptors] or [False] * len(sides)
    weighted = [one.by_length for one in model.assignment or ()] or [False] * len(sides)
    vocabulary_of = np.repeat(np.arange(len(sides)), model.layout.vocabularies)
    candidates: dict[int, list[list[tuple[float, int, NDArray[Any]]]]] = {
        group: [[] for _ in sides] for group in wanted
    }
    for number, sample in samples.items():
        words, distances, positions = sample.words[:, 0], sample.distances, sample.positions
        if positions is None or not len(words):
            continue
        try:
            # at the size it was described at
            image = in_color(collection[number]).load(described[0].get("max_side") if described else None)
        except ItemError:  # deleted or changed since the fit
            continue
        groups_of = model.lookup[words]
        n_of = np.bincount(vocabulary_of[words], minlength=len(sides))
        for group in wanted.intersection(groups_of.tolist()):
            members = np.flatnonzero(groups_of == group)
            added = np.where(model.lookup[sample.words] == group, sample.weights, 0.0).sum(axis=1)
            for vocabulary in np.unique(vocabulary_of[words[members]]).tolist():
                mine = members[vocabulary_of[words[members]] == vocabulary]
                far = -added if weighted[vocabulary] else distances
                best = mine[np.argmin(far[mine])]
                side = sides[vocabulary]
                if networks[vocabulary]:
                    height, width = image.shape[:2]
                    side = int(model.descriptors[vocabulary].sides(height, width, int(n_of[vocabulary]))[0])
                patch = _cut_out(image, positions[best], side)
                candidates[group][vocabulary].append((float(far[best]), number, patch.copy()))
    n_each = min(N_PATCHES, N_ALL_PATCHES // len(wanted))
    shown = {}
    for group, by_vocabulary in candidates.items():
        nearest = [
            [(network, patch) for *_, patch in sorted(some, key=itemgetter(0, 1))]
            for network, some in zip(networks, by_vocabulary, strict=True)
        ]
        turns = [entry for turn in zip_longest(*nearest) for entry in turn if entry is not None]
        shown[group] = [
            photograph(patch, REGION_SIDE) if network else thumbnail(patch, PATCH_SIDE)
            for network, patch in turns[:n_each]
        ]
    return shown


def _cut_out(image: NDArray[Any], position: NDArray[Any], side: int) -> NDArray[Any]:
    """Cut a square out of an image, shifted inwards at the borders."""
    height, width = image.shape[:2]
    top = int(np.clip(round(position[1] * height - side / 2), 0, max(height - side, 0)))
    left = int(np.clip(round(position[0] * width - side / 2), 0, max(width - side, 0)))
    return image[top : top + side, left : left + side]
