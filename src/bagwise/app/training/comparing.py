"""Two models on the same items: which is better, and how their groups differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.app.model.model import Model
from bagwise.errors import BagwiseError

__all__ = ["GroupOverlap", "PairedErrors", "compare_answers", "overlap_of_groups", "same_vocabulary", "same_weighting"]

_Z = 1.959963984540054  # of a two-sided interval of 95 %


@dataclass(frozen=True)
class PairedErrors:
    """How often two models are wrong on the same items.

    Attributes
    ----------
    both_right, first_wrong, second_wrong, both_wrong : int
        Items; `first_wrong` and `second_wrong` are those that only this model gets wrong.

    Examples
    --------
    >>> paired = PairedErrors(both_right=80, first_wrong=12, second_wrong=3, both_wrong=5)
    >>> paired.errors, round(paired.difference, 2), round(paired.p_value, 3)
    ((0.17, 0.08), -0.09, 0.035)
    >>> low, high = paired.interval
    >>> round(low, 3), round(high, 3)
    (-0.163, -0.013)
    """

    both_right: int
    first_wrong: int
    second_wrong: int
    both_wrong: int

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.both_right + self.first_wrong + self.second_wrong + self.both_wrong

    @property
    def errors(self) -> tuple[float, float]:
        """Fraction of items that the first, and that the second model gets wrong; NaN without items."""
        n = self.n_items or np.nan
        return (self.first_wrong + self.both_wrong) / n, (self.second_wrong + self.both_wrong) / n

    @property
    def difference(self) -> float:
        """The error of the second model less that of the first."""
        return (self.second_wrong - self.first_wrong) / (self.n_items or np.nan)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the difference: Wald's for pairs with half an item added to each cell.

        References
        ----------
        A. Agresti, Y. Min, "Simple improved confidence intervals for comparing matched proportions", Statistics in
        Medicine 24 (2005).
        """
        n, first, second = self.n_items + 2, self.first_wrong + 0.5, self.second_wrong + 0.5
        middle = (second - first) / n
        half = _Z * np.sqrt(first + second - (second - first) ** 2 / n) / n
        return max(float(middle - half), -1.0), min(float(middle + half), 1.0)

    @property
    def p_value(self) -> float:
        """McNemar's exact test: how likely such a difference or a larger one is if both models are equally good."""
        from scipy.special import bdtr

        few, n = min(self.first_wrong, self.second_wrong), self.first_wrong + self.second_wrong
        return min(1.0, 2 * float(bdtr(few, n, 0.5))) if n else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as JSON values."""
        return {
            "n_items": self.n_items,
            "both_right": self.both_right,
            "first_wrong": self.first_wrong,
            "second_wrong": self.second_wrong,
            "both_wrong": self.both_wrong,
            "errors": list(self.errors),
            "difference": self.difference,
            "interval": list(self.interval),
            "p_value": self.p_value,
        }


def compare_answers(codes: ArrayLike, first: ArrayLike, second: ArrayLike) -> PairedErrors:
    """Compare the answers of two models for the same items.

    Parameters
    ----------
    codes : array-like of shape (n_items,)
        True classes.
    first, second : array-like of shape (n_items,)
        Predicted classes.

    Returns
    -------
    paired : PairedErrors

    Examples
    --------
    >>> compare_answers(["a", "a", "b"], ["a", "b", "b"], ["b", "b", "b"])
    PairedErrors(both_right=1, first_wrong=0, second_wrong=1, both_wrong=1)
    """
    true, one, other = (np.asarray(some) for some in (codes, first, second))
    if not true.shape == one.shape == other.shape or true.ndim != 1:
        shapes = ", ".join(str(some.shape) for some in (true, one, other))
        raise BagwiseError(f"Classes and answers must be lists of the same length, got arrays of shapes {shapes}.")
    wrong, others = one != true, other != true
    counts = np.bincount(2 * wrong.astype(np.int64) + others, minlength=4).tolist()
    return PairedErrors(counts[0], counts[2], counts[1], counts[3])


@dataclass(frozen=True, eq=False)
class GroupOverlap:
    """Groups of one model against groups of another, by the words that both have.

    Each group is matched with at most one group of the other model: pairs that share most occurrences of words first.
    A word has moved if its group in the second model is not the one that its group in the first is matched with.

    Attributes
    ----------
    words : ndarray of shape (n_common, 2)
        Words that both models have, by their numbers in each; those that occur most first.
    groups : ndarray of shape (n_common, 2)
        Their groups in each.
    pairs : ndarray of shape (n_pairs, 2)
        Groups that share words, those that share most occurrences first.
    n_shared : ndarray of int, shape (n_pairs,)
        Number of words that they share.
    shares : ndarray of shape (n_pairs,)
        Their part of the occurrences of all common words.
    matches : ndarray of int, shape (n_groups of the first,)
        The group of the second model that each is matched with; -1: none.
    moved : ndarray of bool, shape (n_common,)
    n_only_first, n_only_second : int
        Words that only one of the models has.
    adjusted_rand : float
        The adjusted Rand index of both groupings of the common words: 1 if they are the same, about 0 by chance.
    """

    words: NDArray[np.int64]
    groups: NDArray[np.int64]
    pairs: NDArray[np.int64]
    n_shared: NDArray[np.int64]
    shares: NDArray[np.float64]
    matches: NDArray[np.int64]
    moved: NDArray[np.bool_]
    n_only_first: int
    n_only_second: int
    adjusted_rand: float


def overlap_of_groups(first: Model, second: Model) -> GroupOverlap:
    """Compare the groups of two models by their words.

    Words of texts and columns of tables are the same if their names are, words of images if their codebooks are.

    Parameters
    ----------
    first, second : Model
        Each cut at its number of groups.

    Returns
    -------
    overlap : GroupOverlap

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> names = {"modality": "texts", "word_names": ["cat", "dog", "kitten"]}
    >>> first = Model(hierarchy=Hierarchy(3, [[0, 2]], [0.5]), n_groups=2, **names)
    >>> second = Model(hierarchy=Hierarchy(3, [[0, 1]], [0.5]), n_groups=2, **names)
    >>> overlap = overlap_of_groups(first, second)
    >>> overlap.matches, [first.word_names[k] for k in overlap.words[overlap.moved, 0]]
    (array([ 0, -1]), ['dog', 'kitten'])
    """
    words = _common_words(first, second)
    totals = np.ones(first.hierarchy.n_words) if first.word_totals is None else np.maximum(first.word_totals, 0.0)
    words = words[np.argsort(-totals[words[:, 0]], kind="stable")]
    mass = totals[words[:, 0]]
    groups = np.stack([first.lookup[words[:, 0]], second.lookup[words[:, 1]]], axis=1)
    keys, inverse, n_shared = np.unique(
        groups[:, 0] * second.n_groups + groups[:, 1], return_inverse=True, return_counts=True
    )
    shares = np.bincount(inverse, mass, len(keys)) / max(float(mass.sum()), 1e-300)
    order = np.lexsort((keys, -n_shared, -shares))
    pairs = np.stack(np.divmod(keys[order], second.n_groups), axis=1)
    matches = np.full(first.n_groups, -1)
    taken = np.zeros(second.n_groups, dtype=np.bool_)
    for one, other in pairs.tolist():
        if matches[one] < 0 and not taken[other]:
            matches[one], taken[other] = other, True
    return GroupOverlap(
        words=words,
        groups=groups,
        pairs=pairs,
        n_shared=n_shared[order],
        shares=shares[order],
        matches=matches,
        moved=matches[groups[:, 0]] != groups[:, 1],
        n_only_first=first.hierarchy.n_words - len(words),
        n_only_second=second.hierarchy.n_words - len(words),
        adjusted_rand=_adjusted_rand(groups, n_shared),
    )


def _adjusted_rand(groups: NDArray[np.int64], shared: NDArray[np.int64]) -> float:
    """Return what `sklearn.metrics.adjusted_rand_score` does, from the sizes of all overlaps."""

    def pairs(counts: NDArray[np.int64]) -> float:
        sizes = counts.astype(np.float64)
        return float((sizes * (sizes - 1) / 2).sum())

    both, one, other = pairs(shared), *(pairs(np.bincount(column)) for column in groups.T)
    n = len(groups)
    expected = one * other / max(n * (n - 1) / 2, 1)
    most = (one + other) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def _common_words(first: Model, second: Model) -> NDArray[np.int64]:
    """Return the numbers of the words that both models have."""
    if first.modality != second.modality:
        raise BagwiseError(f"The models have no words in common: one is of {first.modality}, one of {second.modality}.")
    if first.word_names is not None and second.word_names is not None:
        numbers = {name: k for k, name in enumerate(second.word_names)}
        pairs = [(k, numbers[name]) for k, name in enumerate(first.word_names) if name in numbers]
        common = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    elif first.word_hashes is not None and second.word_hashes is not None:
        _, *places = np.intersect1d(first.word_hashes, second.word_hashes, assume_unique=True, return_indices=True)
        common = np.stack(places, axis=1).astype(np.int64)
    elif same_vocabulary(first, second):
        common = np.repeat(np.arange(first.hierarchy.n_words)[:, np.newaxis], 2, axis=1)
    else:
        raise BagwiseError(
            "The models have different words without names, such as two codebooks of images, so that their groups "
            "cannot be compared."
        )
    if not len(common):
        raise BagwiseError("The models have no words in common, so that their groups cannot be compared.")
    return common


def same_vocabulary(first: Model, second: Model) -> bool:
    """Whether both models count the same words in the same way, so that histograms of one serve the other."""
    plain = ("modality", "tokenizer", "pyramid", "word_names")
    if any(getattr(first, name) != getattr(second, name) for name in plain):
        return False
    described, others = ([(one.name, one.parameters) for one in model.descriptors] for model in (first, second))
    if described != others:
        return False
    if first.hierarchy.n_words != second.hierarchy.n_words or len(first.codebooks) != len(second.codebooks):
        return False
    arrays = [(first.word_hashes, second.word_hashes), *zip(first.codebooks, second.codebooks, strict=True)]
    return all(_equal(one, other) for one, other in arrays)


def same_weighting(first: Model, second: Model) -> bool:
    """Whether both models weight words in the same way before they are grouped."""
    return (first.term, first.norm) == (second.term, second.norm) and all(
        _equal(getattr(first, name), getattr(second, name)) for name in ("word_weights", "column_shift")
    )


def _equal(first: Any, second: Any) -> bool:
    return first is second or (first is not None and second is not None and np.array_equal(first, second))
