"""Groups of words for people: their names, words, weights, and the classes they speak for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.app.modalities import MODALITIES
from bagwise.errors import BagwiseError
from bagwise.merging.naming import WORDS_IN_NAME, listed_name, name_group, name_groups

if TYPE_CHECKING:
    from bagwise.app.model.model import Model

__all__ = [
    "BALANCE",
    "Group",
    "checked_group_names",
    "describe_groups",
    "lifts",
    "like_names",
    "moved_names",
    "name_model_group",
    "name_model_groups",
    "names_differ",
    "passed_names",
    "same_names",
    "title_model_group",
    "typicality",
    "word_shares",
]

_LONGEST_NAME = 200
BALANCE = 0.6  # of frequency and lift in names
_LEAST_LIFT = 1e-6


@dataclass(frozen=True)
class Group:
    """A group of words, see `Model.describe_groups`.

    Attributes
    ----------
    number : int
    name : str
        As `Model.group_names` gives it.
    is_named : bool
        Whether someone gave the name.
    words : tuple of str
        The most typical first, see `typicality`; ``x7`` is word 7 of a vocabulary without names.
    occurrences : tuple of float, or None
        How often each word occurred where the model was learned, if the model knows.
    weights : tuple of float, or None
        The factor of each word, if there is one.
    class_name : str or None
        The class whose weight of the group is furthest above the mean of all classes, if there is a classifier.
    class_weight : float or None
        By how much; with a pyramid, the mean over its cells.
    """

    number: int
    name: str
    is_named: bool
    words: tuple[str, ...]
    occurrences: tuple[float, ...] | None
    weights: tuple[float, ...] | None
    class_name: str | None
    class_weight: float | None

    @property
    def title(self) -> str:
        """Its name for people, without its size: the first words as a list, unless it has a name of another kind."""
        return listed_name(self.name, list(self.words[:WORDS_IN_NAME]), len(self.words))

    @property
    def total(self) -> float | None:
        """Occurrences of all its words."""
        return None if self.occurrences is None else float(sum(self.occurrences))


def describe_groups(model: Model) -> list[Group]:
    """Return all groups of a model; see `Model.describe_groups`."""
    names, typical = model.group_names(), typicality(model)
    words = model.word_names or tuple(f"x{k}" for k in range(model.hierarchy.n_words))
    spoken: list[tuple[str | None, float | None]] = [(None, None)] * model.n_groups
    if model.n_groups in model.heads:
        coef = model.layout.by_cell(model.head.coef.astype(np.float64)).mean(axis=1)
        above = coef - coef.mean(axis=0)
        best = above.argmax(axis=0)
        spoken = [(model.classes[k], float(above[k, number])) for number, k in enumerate(best.tolist())]
    groups = []
    for number, members in enumerate(model.groups()):
        order = members[np.argsort(-typical[members], kind="stable")]
        occurrences = None if model.word_totals is None else tuple(model.word_totals[order].tolist())
        weights = None if model.word_weights is None else tuple(model.word_weights[order].tolist())
        group_words = tuple(words[word] for word in order.tolist())
        is_named = number in model.given_names
        groups.append(Group(number, str(names[number]), is_named, group_words, occurrences, weights, *spoken[number]))
    return groups


def typicality(
    model: Model, occurrences: NDArray[np.float64] | None = None, balance: float = BALANCE
) -> NDArray[np.float64]:
    r"""Return a number by which the words of a group are sorted and the first of them name it.

    It is :math:`f^\lambda l^{1 - \lambda}`, with the frequency f of a word and what it says about classes l (`lifts`),
    as far as the model knows that. Frequency alone would name groups by words that are in all classes.

    For texts with TF-IDF weights w, the frequency is :math:`w^2 e^{-w/2}`, the squared weight times the square root of
    the part of texts that have the word: it is largest for words in 5 % of all texts. Words such as "the", which occur
    everywhere, would name most groups otherwise, or words that one text repeats. For others it is the number of
    occurrences times the weight. Words and n-grams that share a word with a more typical one of their group come after
    the three that name it.

    Parameters
    ----------
    model : Model
    occurrences : ndarray of shape (d,), default=None
        None: those where the model was learned, all equal if it does not know them. Of words that are in as many texts,
        the more frequent comes first.
    balance : float, default=0.6
        The exponent :math:`\lambda` of the frequency, from 0 to 1.

    References
    ----------
    C. Sievert, K. Shirley, "LDAvis: A method for visualizing and interpreting topics", ILLVI 2014 (relevance).

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> model = Model(
    ...     modality="texts",
    ...     hierarchy=Hierarchy(3, [[0, 1], [0, 2]], [2, 1]),
    ...     n_groups=1,
    ...     term="log",
    ...     norm="l2",
    ...     word_names=["the", "cat", "purr"],
    ...     word_weights=[1, 4, 6],
    ...     word_totals=[1000, 16, 400],
    ... )
    >>> typicality(model).round(2)
    array([0.61, 2.17, 1.79])
    >>> model.feature_names()
    array(['cat+purr+the'], dtype=object)
    """
    frequency = _frequency(model, occurrences)
    lift = None if balance == 1 else lifts(model, frequency)
    return _repeats_last(model, frequency if lift is None else frequency**balance * lift ** (1 - balance))


def _frequency(model: Model, occurrences: NDArray[np.float64] | None) -> NDArray[np.float64]:
    if occurrences is None:
        occurrences = np.ones(model.hierarchy.n_words) if model.word_totals is None else model.word_totals
    occurrences = np.maximum(occurrences, 0.0)  # sums of measurements may be negative
    if model.word_weights is None:
        return occurrences
    weights = model.word_weights.astype(np.float64)
    if not MODALITIES[model.modality].tfidf or (model.term, model.norm) != ("log", "l2"):
        return occurrences * weights
    return weights**2 * np.exp(-weights / 2) * (1 + 1e-9 * occurrences / max(occurrences.max(initial=0.0), 1.0))


def _repeats_last(model: Model, typical: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lower the values of n-grams that share a word with one before them, so that others name the group."""
    tokenizer: Mapping[str, Any] = model.tokenizer or {}
    longest = tokenizer.get("ngram_range", (1, 1))[1]
    if model.word_names is None or longest == 1 or tokenizer.get("analyzer", "word") != "word":
        return typical
    lowered = typical.copy()
    for members in model.groups():
        named, said, repeats = list[int](), set[str](), list[int]()
        for word in members[np.argsort(-typical[members], kind="stable")].tolist():
            parts = model.word_names[word].split(" ")
            if said.isdisjoint(parts):
                named.append(word)
                said.update(parts)
            else:
                repeats.append(word)
            if len(named) == WORDS_IN_NAME:
                break
        lowered[repeats] = np.minimum(typical[repeats], (1 - 1e-9) * typical[named[-1]])
    return lowered


def lifts(model: Model, frequency: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return how much each word speaks for the class that its group speaks for; None if the model does not know.

    That is the weight of the word for this class above the mean of all classes, in the classifier of the most groups
    that the model has, before edits; of all words most often. The class of a group is that for which its words, by
    their frequency, speak most. Words that speak against it have a millionth of the largest lift.
    """
    original = model if model.unedited is None else model.unedited
    size = max((n for n in original.heads if n >= original.hierarchy.min_groups), default=0)
    if size <= model.n_groups or _unnamed(model):
        return None
    labels, n = original.hierarchy.cut(size), model.n_groups
    coef = model.layout.by_cell(original.heads[size].coef.astype(np.float64)).mean(axis=1)
    above = coef - coef.mean(axis=0)
    most, lift = np.full(n, -np.inf), np.zeros(len(labels))
    for row in above:
        of_words = row[labels]
        sums = np.bincount(model.lookup, frequency * of_words, n)
        more = sums > most
        most[more] = sums[more]
        chosen = more[model.lookup]
        lift[chosen] = of_words[chosen]
    largest = float(lift.max(initial=0.0))
    return np.maximum(lift / largest, _LEAST_LIFT) if largest > 0 else None


def word_shares(model: Model) -> tuple[NDArray[np.float64], str]:
    """Return the part of each word in all occurrences, and what the parts are of.

    Columns of measurements do not occur, and some models do not know how often words did: these have equal parts of
    all columns or words.

    Returns
    -------
    shares : ndarray of shape (d,)
        Together 1.
    of : {"occurrences", "columns", "words"}

    Examples
    --------
    >>> from bagwise import Hierarchy, Model
    >>> model = Model(modality="table", hierarchy=Hierarchy(2, [], []), n_groups=2, word_totals=[30, 10])
    >>> word_shares(model)
    (array([0.75, 0.25]), 'occurrences')
    """
    measured, totals = model.column_shift is not None, model.word_totals
    if measured or totals is None or not (totals > 0).any():
        n_words = model.hierarchy.n_words
        return np.full(n_words, 1 / n_words), "columns" if measured else "words"
    positive = np.maximum(totals, 0.0)
    return positive / positive.sum(), "occurrences"


def names_differ(model: Model) -> bool:
    """Whether names of groups differ without numbers added to them, so that one can be named without the others."""
    if _unnamed(model) or model.word_names is None:
        return True
    plain = not any(sign in "\0".join(model.word_names) for sign in "+…#")
    return plain and len(set(model.word_names)) == len(model.word_names)


def name_model_group(model: Model, number: int, members: NDArray[np.int64]) -> str:
    """Name one group as `name_model_groups` does if `names_differ`; `members` are its words, typical ones first."""
    if number in model.given_names:
        return model.given_names[number]
    if model.n_groups == 1:
        return _name_of_all(model)
    name = _name_by_class(model, number) if _unnamed(model) else name_group(_first(model, members), len(members))
    return f"{name}#{number}" if name in model.given_names.values() else name


def title_model_group(model: Model, name: str, members: NDArray[np.int64]) -> str:
    """Return the `Group.title` of a group with this name; `members` are its words, typical ones first."""
    return listed_name(name, _first(model, members), len(members))


def _first(model: Model, members: NDArray[np.int64]) -> list[str]:
    """Return the words that name a group."""
    first, names = members[:WORDS_IN_NAME].tolist(), model.word_names
    return [f"x{word}" if names is None else names[word] for word in first]


def name_model_groups(model: Model, *, by_class: bool = True) -> NDArray[Any]:
    """Name the groups of a model; see `Model.group_names`. All names are different.

    Without `by_class`, groups of words without names are named by their numbers, whatever the classifier, and that of
    all words as others are: names that code relies on.
    """
    if model.n_groups == 1 and by_class:
        names = np.array([_name_of_all(model)], dtype=object)
    elif _unnamed(model):
        name = partial(_name_by_class, model) if by_class else "group{}".format
        names = np.array([name(number) for number in range(model.n_groups)], dtype=object)
    else:
        d = model.hierarchy.n_words
        words = [f"x{k}" for k in range(d)] if model.word_names is None else model.word_names
        names = name_groups(np.array(words, dtype=object), typicality(model), model.lookup, model.n_groups)
    taken = set(model.given_names.values())
    for number, name in enumerate(names.tolist()):
        names[number] = model.given_names.get(number, f"{name}#{number}" if name in taken else name)
    return names


def _name_of_all(model: Model) -> str:
    """Return the name of the one group that has all words."""
    return "all columns" if MODALITIES[model.modality].rows else "all words"


def _unnamed(model: Model) -> bool:
    """Whether words have no names, and are not columns either."""
    return MODALITIES[model.modality].learns_words or model.word_hashes is not None


def _name_by_class(model: Model, number: int) -> str:
    """Name a group of words without names by the class that it speaks for most, and its number."""
    if model.n_groups not in model.heads:
        return f"group{number}"
    weights = model.head.coef[:, number :: model.n_groups].astype(np.float64).mean(axis=1)
    return f"{model.classes[int(weights.argmax())]} #{number}"


def checked_group_names(names: Any, n_groups: int) -> dict[int, str]:
    """Check names that people gave to groups, by their numbers."""
    if not isinstance(names, Mapping):
        raise BagwiseError(f"given_names must be a mapping from numbers of groups to names, got {names!r:.100}.")
    checked: dict[int, str] = {}
    for number, name in names.items():
        if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or not 0 <= number < n_groups:
            raise BagwiseError(
                f"Groups are numbered from 0 to {n_groups - 1}; there is no group {number!r:.100} to name."
            )
        if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
            accepted = f"1 to {_LONGEST_NAME} printable characters"
            raise BagwiseError(f"The name of a group must have {accepted}; that of group {number} is {name!r:.100}.")
        checked[int(number)] = str(name)
    if len(set(checked.values())) < len(checked):
        repeated = next(name for name in checked.values() if list(checked.values()).count(name) > 1)
        raise BagwiseError(f"Names of groups must differ, but {repeated!r} is given twice.")
    return dict(sorted(checked.items()))


def moved_names(model: Model, n: int) -> dict[int, str]:
    """Return the names of those groups that are the same with n groups, by their numbers there."""
    if n == model.n_groups or not model.given_names:
        return dict(model.given_names)
    return same_names(model.given_names, model.lookup, model.hierarchy.cut(n))


def same_names(names: Mapping[int, str], before: NDArray[np.int64], after: NDArray[np.int64]) -> dict[int, str]:
    """Return the names of those groups that are the same in another cut of a hierarchy, by their numbers there."""
    sizes, others = np.bincount(before), np.bincount(after)
    first = np.unique(before, return_index=True)[1]  # cuts are nested: of groups that share a word, one holds the other
    pairs = [(int(after[first[number]]), number, name) for number, name in names.items()]
    return dict(sorted((new, name) for new, number, name in pairs if others[new] == sizes[number]))


def passed_names(
    names: Mapping[int, str], before: NDArray[np.int64], after: NDArray[np.int64], first: Sequence[int] = ()
) -> dict[int, str]:
    """Pass the name of each group on to the new one that has most of its words, of equal ones the first.

    If several do so to one, it has the name of that which comes first in `first`, or else has more words of it.

    Examples
    --------
    >>> names, before, after = {0: "cats", 1: "dogs"}, np.array([0, 1, 1, 0, 1]), np.array([0, 0, 0, 1, 2])
    >>> passed_names(names, before, after), passed_names(names, before, after, first=[0, 1])
    ({0: 'dogs'}, {0: 'cats'})
    """
    passed = []
    for number, name in names.items():
        counts = np.bincount(after[before == number])
        rank = first.index(number) if number in first else len(first)
        passed.append((int(counts.argmax()), rank, -int(counts.max()), number, name))
    return {new: name for new, *_, name in sorted(passed, reverse=True)}  # the first overwrites the others


def like_names(names: Mapping[int, str], before: NDArray[np.int64], after: NDArray[np.int64]) -> dict[int, str]:
    """Return the names of groups for those new ones that have more than half of the words of either in common."""
    passed = {}
    for number, name in names.items():
        counts = np.bincount(after[before == number])
        new = int(counts.argmax())
        if 2 * counts[new] > ((before == number) | (after == new)).sum():
            passed[new] = name
    return dict(sorted(passed.items()))
