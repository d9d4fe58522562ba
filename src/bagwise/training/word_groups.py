"""What groups of words are about: their words or patches, and the classes they speak for."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.codebooks.distances import WordDistances, nearest_words
from bagwise.model import Model
from bagwise.report.data import WordGroup
from bagwise.report.html import LIMITS
from bagwise.report.pictures import thumbnail
from bagwise.sources.collection import Collection
from bagwise.sources.items import ItemError

__all__ = ["described_groups", "over_cells"]

N_NAMES = 12
# Groups of images that are shown by patches, patches of one, and of all of them, so that pages stay small.
N_PATCH_GROUPS = LIMITS.groups
N_PATCHES = 16
N_ALL_PATCHES = 384
N_CLASSES_SHOWN = 3
# Items whose patches are looked through.
N_PATCH_ITEMS = 80
PATCH_SIDE = 48


def described_groups(
    model: Model, collection: Collection, histograms: Any, codes: NDArray[np.int64] | None
) -> tuple[WordGroup, ...]:
    """All groups, those that occur most first, with their words or patches and the classes they speak for.

    Parameters
    ----------
    model : Model
    collection : Collection
        Items that show the groups.
    histograms : CSR array or ndarray of shape (n_items, n_cells * d)
        Their words.
    codes : ndarray of shape (n_items,), or None
        Their classes, as numbers into ``model.classes``.

    Returns
    -------
    groups : tuple of WordGroup
        Patches are those of the largest groups, which a page shows.
    """
    lookup, n_words = model.lookup, model.hierarchy.n_words
    rows, columns = model.pyramid[0]
    whole = np.asarray(histograms[:, : rows * columns * n_words].sum(axis=0), dtype=np.float64)
    occurrences = whole.reshape(-1, n_words).sum(axis=0)
    totals = np.bincount(lookup, weights=occurrences, minlength=model.n_words)
    by_size = np.argsort(-totals, kind="stable")
    has_head = codes is not None and model.n_words in model.heads
    weights = class_weights(model, model.group(histograms), codes) if has_head else None
    patches = _patches(model, collection, by_size[:N_PATCH_GROUPS]) if model.items == "images" else {}
    all_members = model.hierarchy.groups(model.n_words)
    groups = []
    for group in by_size.tolist():
        members = all_members[group]
        names: Iterable[str] = ()
        if model.word_names is not None:
            frequent = members[np.argsort(-occurrences[members], kind="stable")][:N_NAMES]
            names = [model.word_names[word] for word in frequent]
        speaks: list[tuple[str, float]] = []
        if weights is not None:
            strongest = np.argsort(-np.abs(weights[:, group]), kind="stable")[:N_CLASSES_SHOWN]
            speaks = [(model.classes[c], float(weights[c, group])) for c in strongest]
        share = float(totals[group] / max(totals.sum(), 1e-300))
        groups.append(WordGroup(group, len(members), share, tuple(names), tuple(patches.get(group, ())), tuple(speaks)))
    return tuple(groups)


def class_weights(model: Model, features: Any, codes: Any) -> NDArray[np.float64]:
    """How much more a group adds to the score of a class for items of that class than for all: (classes, groups)."""
    coef = model.head.coef
    n_classes = len(model.classes)
    members = sp.csr_array((np.ones(len(codes)), (codes, np.arange(len(codes)))), shape=(n_classes, len(codes)))
    sums = members @ features
    counts = np.bincount(codes, minlength=n_classes)[:, None]
    means = (sums.toarray() if sp.issparse(sums) else np.asarray(sums)) / np.maximum(counts, 1)
    overall = np.asarray(features.mean(axis=0)).ravel()
    return over_cells(np.where(counts, coef * (means - overall), 0), model.n_words)  # a test may lack a class


def over_cells(contributions: NDArray[Any], n_groups: int) -> NDArray[np.float64]:
    """Add up what a group contributes in all cells of the pyramid."""
    return contributions.reshape(len(contributions), -1, n_groups).sum(axis=1, dtype=np.float64)


def _patches(model: Model, collection: Collection, groups: NDArray[np.int64]) -> dict[int, list[bytes]]:
    """Squares of images around the descriptors that are closest to words of each group, at most one an image."""
    wanted = set(groups.tolist())
    codebook = model.codebook
    if codebook is None:
        return {}
    table = WordDistances(codebook)
    found: dict[int, list[tuple[float, int, NDArray[Any]]]] = {group: [] for group in wanted}
    for number in np.unique(np.linspace(0, len(collection) - 1, N_PATCH_ITEMS).astype(int)).tolist():
        try:
            image = collection[number].load()
        except ItemError:  # gone since it was counted
            continue
        values, positions = model.descriptor.describe(image)
        if not len(values):
            continue
        words = nearest_words(values, table, 1)
        distances = np.linalg.norm(values - codebook[words], axis=1)
        seen = model.lookup[words]
        for group in wanted.intersection(seen.tolist()):
            own = np.flatnonzero(seen == group)
            best = own[np.argmin(distances[own])]
            square = _square(image, positions[best], _side(model.descriptor))
            found[group].append((float(distances[best]), number, square.copy()))
    n_each = min(N_PATCHES, N_ALL_PATCHES // len(wanted))
    nearest = {group: sorted(some, key=itemgetter(0, 1))[:n_each] for group, some in found.items()}
    return {group: [thumbnail(square, PATCH_SIDE) for *_, square in some] for group, some in nearest.items()}


def _side(descriptor: Any) -> int:
    """Pixels along the side of what one descriptor sees."""
    parameters = descriptor.get_params(deep=False)
    return int(parameters.get("patch", 3 * parameters.get("cell", 8)))


def _square(image: NDArray[Any], position: NDArray[Any], side: int) -> NDArray[Any]:
    """Cut a square out of an image, moved inwards at borders."""
    height, width = image.shape[:2]
    top = int(np.clip(round(position[1] * height - side / 2), 0, max(height - side, 0)))
    left = int(np.clip(round(position[0] * width - side / 2), 0, max(width - side, 0)))
    return image[top : top + side, left : left + side]
