"""`plan_fit`: what a fit would do, and the memory it needs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bagwise._utils.memory import free_memory
from bagwise._utils.text import how_many
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.visual_words import N_SAMPLED_VECTORS
from bagwise.app.options import FitOptions, check_options
from bagwise.app.training.few_labels import few_labels_notes
from bagwise.app.training.fit import DEFAULT_GROUPS, check_groups
from bagwise.app.training.method import adapt_to_table, choose_method, folds_of, sizes_of
from bagwise.app.training.preparing import class_names, enough_for_folds, open_training
from bagwise.codebooks.pyramids import n_cells, resolve_pyramid
from bagwise.errors import BagwiseError
from bagwise.merging.criteria import resolve_criterion
from bagwise.merging.criteria.base import AdditiveScore

__all__ = ["FitPlan", "plan_fit"]

_BASE_MEMORY = 500 * 2**20  # Python, the libraries and compiled code
_LARGEST_DENSE = 20_000  # words up to which merging holds two dense matrices
_SPOOLED = 64  # items whose descriptors are held at a time


@dataclass(frozen=True)
class FitPlan:
    """The plan of a fit.

    Attributes
    ----------
    source, modality : str
        Origin and modality of the items.
    n_items : int
        Training items.
    n_test : int
        Items of the test split.
    n_words : int
        Size of the vocabulary; of more than 2000 texts, which are not all read, the most that it can have.
    n_features : int
        Features per item.
    classes : tuple of str
    descriptors : tuple of str
        What describes images and videos.
    criterion : str
        What words are merged by.
    reason : str
        Why by this criterion.
    n_groups : int, "auto" or "best"
    sizes : tuple of int
        Numbers of groups at which errors are estimated.
    n_folds : int
        Folds of cross-validation; 0: there is none.
    memory : int
        Estimated peak memory in bytes.
    free : int or None
        Free memory in bytes, if the system tells.
    notes : tuple of str
        What the fit would tell as far as it is known before items are read.
    """

    source: str
    modality: str
    n_items: int
    n_test: int
    n_words: int
    n_features: int
    classes: tuple[str, ...]
    descriptors: tuple[str, ...]
    criterion: str
    reason: str
    n_groups: int | str
    sizes: tuple[int, ...]
    n_folds: int
    memory: int
    free: int | None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as numbers, strings and lists."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


def plan_fit(source: Any, **options: Any) -> FitPlan:
    """Plan what `fit_model` would do; nothing is written, and a cache is not looked at.

    A few items are read: 2000 texts, 8 images or videos. Memory is a rough estimate.

    Parameters
    ----------
    source : Collection or path
    **options
        Parameters of `FitOptions`.

    Returns
    -------
    plan : FitPlan

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.sources import Collection
    >>> from bagwise.app import plan_fit
    >>> rows = Collection.from_matrix(np.array([[4, 1, 0], [1, 0, 5]] * 3), list("abcdef"), [("cat",), ("dog",)] * 3)
    >>> plan = plan_fit(rows, n_groups=2, folds=3)
    >>> plan.n_items, plan.n_words, plan.criterion, plan.sizes, plan.n_folds
    (6, 3, 'classifier', (2, 3), 3)
    """
    opened = open_training(source, FitOptions(**options), unlabelled=True)
    collection, chosen, log = opened.collection, opened.options.with_changes(cache=None), opened.log
    if not len(collection):
        raise BagwiseError(f"{collection.source} has no items to learn from.")
    check_options(chosen, collection.modality)
    n, modality, classes = len(collection), collection.modality, class_names(collection, chosen)
    codes = collection.codes_in(classes) if classes else None
    codes = None if codes is None else codes[codes >= 0]
    pyramid = resolve_pyramid(chosen.pyramid)
    words = MODALITIES[modality].planned_words(collection, chosen, len(classes))
    n_words = sum(words.vocabularies)
    if n_words < 2:
        raise BagwiseError(f"{collection.source} has {how_many(n_words, 'words')}; merging needs at least 2.")
    check_groups(chosen, n_words)
    if not classes and collection.classes:
        log.notes.append("All labels are of one class, so words were merged without using classes.")
    validated = codes is not None and enough_for_folds(codes, classes, chosen, log)
    method = choose_method(chosen, modality, len(classes), words.vocabularies)
    if MODALITIES[modality].rows:
        method = adapt_to_table(method, collection.X, modality, chosen)
    if method.scaling is not None:
        log.notes.append(f"The {method.scaling}.")
    if codes is not None and len(codes) < n:
        log.notes += few_labels_notes(codes, classes, n)
    n_groups = chosen.n_groups
    if chosen.asked_groups is None and not validated:
        n_groups = min(max(DEFAULT_GROUPS, len(classes)), n_words)
        log.notes.append(f"There are {n_groups} groups by default; only cross-validation can choose their number.")
    reading = 4 * words.width * (3 * min(N_SAMPLED_VECTORS, words.n_vectors * n) + _SPOOLED * words.n_vectors)
    merging = _memory_of_merging(method.criterion, n, n_words, words.per_item, len(classes))
    return FitPlan(
        source=collection.source,
        modality=modality,
        n_items=n,
        n_test=0 if opened.test is None else len(opened.test),
        n_words=n_words,
        n_features=n_cells(pyramid) * (n_words if isinstance(n_groups, str) else n_groups),
        classes=classes,
        descriptors=words.descriptors,
        criterion=method.criterion,
        reason=method.reason,
        n_groups=n_groups,
        sizes=sizes_of(n_words, chosen, method, len(classes)) if classes else (),
        n_folds=len(folds_of(codes, chosen)) if validated and codes is not None else 0,
        memory=int(_BASE_MEMORY + max(reading, merging) + 8 * words.per_item * n),
        free=free_memory(),
        notes=(*opened.notes, *log.notes),
    )


def _memory_of_merging(criterion: str, n_items: int, n_words: int, per_item: float, n_classes: int) -> float:
    """Estimate the bytes that merging takes."""
    chosen, d = resolve_criterion(criterion), float(n_words)
    if isinstance(chosen, AdditiveScore):  # one row per word, one column per class or item
        return 24 * d * (n_classes if chosen.supervised else n_items)
    return 2.2 * 8 * d**2 if d <= _LARGEST_DENSE else 24 * per_item * n_items
