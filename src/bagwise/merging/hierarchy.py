"""The result of merging: an ordered list of merges that can be cut at any number of groups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise._io.tensors import FileKind, header_field, tensor
from bagwise._utils.checks import check_integer
from bagwise.errors import BagwiseError

__all__ = ["Hierarchy"]

_MOST_WORDS = 1 << 26  # of a file: a few merges may be those of any number of words
_FILE = FileKind(
    "bagwise.Hierarchy",
    {"n_words": header_field("integer", low=0, high=_MOST_WORDS), "criterion": header_field("string")},
    {"merges": tensor("int64", "n_merges", 2), "scores": tensor("float64", "n_merges")},
)


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """An ordered list of merges of words into groups, as `merge_words` returns it.

    A group is named by its smallest word. Merge k joins the groups ``s, t = merges[k]``, ``s < t``, and the result
    is named s. Cutting at n groups applies the first ``n_words - n`` merges, so that cuts are nested.

    Parameters
    ----------
    n_words : int
        Size of the vocabulary.
    merges : array-like of shape (m, 2)
        The merges in order, at most ``n_words - 1``.
    scores : array-like of shape (m,)
        Value of the criterion after each merge; NaN where it is not defined.
    criterion : str, default=""
        Name of the criterion that found the merges.

    Examples
    --------
    >>> from bagwise import Hierarchy
    >>> hierarchy = Hierarchy(4, [[1, 3], [0, 1]], [0.5, 0.25])
    >>> hierarchy.cut(3)
    array([0, 1, 2, 1])
    >>> hierarchy.groups(2)
    [array([0, 1, 3]), array([2])]
    """

    n_words: int
    merges: NDArray[np.int64]
    scores: NDArray[np.float64]
    criterion: str = field(default="")

    def __post_init__(self) -> None:
        n_words = check_integer(self.n_words, "n_words", 0)
        merges = _frozen_copy(self.merges, np.int64, "merges")
        scores = _frozen_copy(self.scores, np.float64, "scores")
        if merges.size == 0:
            merges = merges.reshape(0, 2)
        if merges.ndim != 2 or merges.shape[1] != 2:
            raise BagwiseError(f"merges must have shape (m, 2), one pair of words a row; got shape {merges.shape}.")
        if scores.shape != (len(merges),):
            raise BagwiseError(
                f"scores must have one value per merge, shape ({len(merges)},); got shape {scores.shape}."
            )
        _check_merges(n_words, merges)
        if not isinstance(self.criterion, str):
            raise BagwiseError(f"criterion is a label, a string; got {self.criterion!r}.")
        object.__setattr__(self, "n_words", n_words)
        object.__setattr__(self, "merges", merges)
        object.__setattr__(self, "scores", scores)

    @property
    def min_groups(self) -> int:
        """The smallest number of groups it can be cut at."""
        return self.n_words - len(self.merges)

    def cut(self, n: int) -> NDArray[np.int64]:
        """Assign every word to one of n groups.

        Parameters
        ----------
        n : int
            Number of groups, from `min_groups` to `n_words`.

        Returns
        -------
        labels : ndarray of shape (n_words,)
            Groups are numbered 0 to n - 1 in the order of their first words.
        """
        n = check_integer(n, "n, the number of groups of this hierarchy,", self.min_groups, self.n_words)
        root = np.arange(self.n_words)
        done = self.merges[: self.n_words - n]
        root[done[:, 1]] = done[:, 0]
        # Parents have lower indices than children, so pointer jumping ends at the roots, in O(log) rounds.
        while True:
            further = root[root]
            if np.array_equal(further, root):
                break
            root = further
        is_root = root == np.arange(self.n_words)
        return (np.cumsum(is_root) - 1)[root]

    def groups(self, n: int) -> list[NDArray[np.int64]]:
        """List the words of each of n groups, in the order of the labels of `cut`."""
        labels = self.cut(n)
        members = np.argsort(labels, kind="stable")
        ends = np.cumsum(np.bincount(labels, minlength=n))
        return np.split(members, ends[:-1]) if n > 0 else []

    def push(self, words: ArrayLike, n: int) -> NDArray[np.int64]:
        """Map word indices to the labels of n groups.

        The histogram of the result is the merged histogram of the words.

        Parameters
        ----------
        words : array-like of int, any shape
            Word indices, such as the assignments of descriptors to a codebook.
        n : int
            Number of groups.

        Returns
        -------
        groups : ndarray of int, same shape
        """
        numbers = np.asarray(words)
        if numbers.size and not np.issubdtype(numbers.dtype, np.integer):
            raise BagwiseError(f"push takes word indices, integers from 0 to {self.n_words - 1}; got {numbers.dtype}.")
        if numbers.size and (numbers.min() < 0 or numbers.max() >= self.n_words):
            wrong = numbers[(numbers < 0) | (numbers >= self.n_words)].flat[0]
            raise BagwiseError(f"Word {wrong} does not exist: words are numbered from 0 to {self.n_words - 1}.")
        return self.cut(n)[numbers.astype(np.int64)]

    def leaf_order(self) -> NDArray[np.int64]:
        """Order the words so that every group of every cut is a run of neighbours, as in a dendrogram.

        Returns
        -------
        words : ndarray of shape (n_words,)

        Examples
        --------
        >>> from bagwise import Hierarchy
        >>> Hierarchy(4, [[1, 3], [0, 1]], [0.5, 0.25]).leaf_order()
        array([0, 1, 3, 2])
        """
        after, last, order = [-1] * self.n_words, list(range(self.n_words)), []
        for left, right in zip(*self.merges.T.tolist(), strict=True):
            after[last[left]] = right
            last[left] = last[right]
        for word in np.setdiff1d(np.arange(self.n_words), self.merges[:, 1]).tolist():  # those that no other absorbs
            while word >= 0:
                order.append(word)
                word = after[word]
        return np.array(order, dtype=np.int64)

    def joined_at(self, first: int, second: int) -> int | None:
        """Return the largest number of groups at which two words are in the same group; None if they never are.

        Examples
        --------
        >>> from bagwise import Hierarchy
        >>> hierarchy = Hierarchy(4, [[1, 3], [0, 1]], [0.5, 0.25])
        >>> hierarchy.joined_at(1, 3), hierarchy.joined_at(0, 3), hierarchy.joined_at(0, 2)
        (3, 2, None)
        """
        one = check_integer(first, "first", 0, self.n_words - 1)
        other = check_integer(second, "second", 0, self.n_words - 1)
        n_groups = self.n_words
        parent, level = np.full(self.n_words, -1), np.zeros(self.n_words, dtype=np.int64)
        parent[self.merges[:, 1]] = self.merges[:, 0]
        level[self.merges[:, 1]] = self.n_words - 1 - np.arange(len(self.merges))
        while one != other:
            # of two different groups, the one that is merged earlier goes up
            if parent[one] < 0 or (parent[other] >= 0 and level[other] > level[one]):
                one, other = other, one
            if parent[one] < 0:
                return None
            one, n_groups = int(parent[one]), int(level[one])
        return n_groups

    def to_linkage(self) -> NDArray[np.float64]:
        """Write the hierarchy as a SciPy linkage matrix, for dendrograms and `scipy.cluster.hierarchy`.

        Scores need not be monotone, so the height of a merge is its position in the list (1, 2, …).

        Returns
        -------
        linkage : ndarray of shape (n_words - 1, 4)
        """
        if self.min_groups > 1:
            raise BagwiseError(
                f"A linkage matrix describes a whole tree, but this hierarchy stops at {self.min_groups} groups. "
                "Merge down to one group (n_groups=1) first."
            )
        node = list(range(self.n_words))
        size = [1] * self.n_words
        linkage = np.empty((len(self.merges), 4))
        for k, (s, t) in enumerate(self.merges.tolist()):
            size[s] += size[t]
            linkage[k] = (min(node[s], node[t]), max(node[s], node[t]), k + 1, size[s])
            node[s] = self.n_words + k
        return linkage

    @classmethod
    def from_linkage(cls, linkage: ArrayLike, criterion: str = "linkage") -> Hierarchy:
        """Read a SciPy linkage matrix: its rows become the merges, its heights the scores."""
        rows = np.asarray(linkage, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != 4:
            raise BagwiseError(f"A linkage matrix has shape (n - 1, 4); got {rows.shape}.")
        n_words = len(rows) + 1
        name = list(range(n_words))
        merges = np.empty((len(rows), 2), dtype=np.int64)
        for k, (left, right) in enumerate(rows[:, :2].tolist()):
            if not (left.is_integer() and right.is_integer() and 0 <= left < len(name) and 0 <= right < len(name)):
                raise BagwiseError(
                    f"Row {k} of the linkage joins {left:g} and {right:g}; "
                    f"at that point the clusters are numbered 0 to {len(name) - 1}."
                )
            pair = sorted((name[int(left)], name[int(right)]))
            if -1 in pair or left == right:
                raise BagwiseError(
                    f"Row {k} of the linkage joins {left:g} and {right:g}; one of them is merged already."
                )
            merges[k] = pair
            name[int(left)] = name[int(right)] = -1
            name.append(pair[0])
        return cls(n_words, merges, rows[:, 2], criterion)

    @classmethod
    def interleave(cls, hierarchies: Sequence[Hierarchy], shares: ArrayLike | None = None) -> Hierarchy:
        """Join the hierarchies of several vocabularies into one, in which each keeps its share of the groups.

        The words of the second vocabulary are numbered after those of the first, and so on. The next merge is always
        that of the vocabulary with the most groups for its share; merges of a vocabulary keep their order. So every
        cut, restricted to a vocabulary, is a cut of its own hierarchy. Groups of different vocabularies are merged at
        the very end: when all but the first are down to one group, which tells nothing of relative frequencies, these
        join a group of the first, and last of all its own two are merged.

        Parameters
        ----------
        hierarchies : sequence of Hierarchy
        shares : array-like of shape (n_vocabularies,), default=None
            Positive numbers, to which the numbers of groups are kept proportional as long as all vocabularies have
            words and merges left. None: all equal, so that a large vocabulary is merged down to the size of the others
            first.

        Returns
        -------
        hierarchy : Hierarchy
            Its scores are sums over vocabularies of the scores of their last merges (or first, if they had none yet);
            NaN for merges across vocabularies.

        Examples
        --------
        >>> from bagwise import Hierarchy
        >>> first = Hierarchy(4, [[1, 3], [0, 1], [0, 2]], [3.0, 2.0, 1.0])
        >>> both = Hierarchy.interleave([first, Hierarchy(2, [[0, 1]], [0.5])])
        >>> both.merges.tolist(), both.scores.tolist()
        ([[1, 3], [0, 1], [4, 5], [0, 4], [0, 2]], [3.5, 2.5, 2.5, nan, 1.5])
        """
        if not len(hierarchies) or not all(isinstance(one, Hierarchy) for one in hierarchies):
            raise BagwiseError(f"interleave takes a list of at least one Hierarchy, got {hierarchies!r:.100}.")
        sizes = np.array([one.n_words for one in hierarchies])
        wanted = np.ones(len(sizes)) if shares is None else np.asarray(shares, dtype=np.float64)
        if wanted.shape != sizes.shape or not np.all((wanted > 0) & np.isfinite(wanted)):
            raise BagwiseError(
                f"shares must be {len(sizes)} positive numbers, one per hierarchy; got {wanted.tolist()!r:.100}."
            )
        # Merge k of a vocabulary of n words is due when n - k groups are the most for their share of all vocabularies;
        # ties go to the first vocabulary. Within a vocabulary the number falls, so that its merges keep their order.
        due = np.concatenate(
            [(one.n_words - np.arange(len(one.merges))) / w for one, w in zip(hierarchies, wanted, strict=True)]
        )
        ends_in_one = all(one.min_groups == 1 for one in hierarchies)
        n_held = int(ends_in_one and len(sizes) > 1 and sizes[0] > 1)
        due[: len(hierarchies[0].merges)][-n_held:] *= 1 - n_held
        order = np.argsort(-due, kind="stable")
        firsts = np.cumsum([0, *sizes[:-1]])
        merges = np.concatenate([one.merges + first for one, first in zip(hierarchies, firsts, strict=True)])[order]
        last = np.empty((len(order), len(sizes)))
        vocabulary = np.repeat(np.arange(len(sizes)), [len(one.merges) for one in hierarchies])[order]
        for v, one in enumerate(hierarchies):
            done = np.cumsum(vocabulary == v)
            last[:, v] = one.scores[np.maximum(done - 1, 0)] if len(one.scores) else 0.0
        scores = last.sum(axis=1)
        if ends_in_one and len(sizes) > 1:
            position = len(merges) - n_held
            merges = np.insert(merges, position, [(0, first) for first in firsts[1:]], axis=0)
            scores = np.insert(scores, position, np.full(len(sizes) - 1, np.nan))
        criteria = dict.fromkeys(one.criterion for one in hierarchies)
        return cls(int(sizes.sum()), merges, scores, "+".join(criteria))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the hierarchy to a safetensors file, atomically. Loading it runs no code."""
        header = {"n_words": self.n_words, "criterion": self.criterion}
        return _FILE.save(path, header, {"merges": self.merges, "scores": self.scores})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Hierarchy:
        """Read a hierarchy that `save` wrote."""
        return _FILE.load(path, lambda header, tensors: cls(**header, **tensors))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Hierarchy):
            return NotImplemented
        return (
            self.n_words == other.n_words
            and self.criterion == other.criterion
            and np.array_equal(self.merges, other.merges)
            and np.array_equal(self.scores, other.scores, equal_nan=True)
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        # copies, also those made in other processes, go through the constructor and are frozen as well
        return Hierarchy, (self.n_words, np.array(self.merges), np.array(self.scores), self.criterion)

    def __repr__(self) -> str:
        by = f" by {self.criterion}" if self.criterion else ""
        groups = f"{self.min_groups} group{'' if self.min_groups == 1 else 's'}"
        return f"<Hierarchy: {self.n_words} words merged into {groups}{by}>"

    def _repr_html_(self) -> str:
        from bagwise.display import notebook
        from bagwise.merging.display import hierarchy_html  # deferred: only notebooks need it

        return notebook.view(notebook.line(repr(self)[1:-1]), hierarchy_html(self))


def _frozen_copy(values: ArrayLike, dtype: type, name: str) -> NDArray[Any]:
    """Copy into an array that cannot be written to."""
    numbers = np.asarray(values)
    if numbers.size and not np.can_cast(numbers.dtype, dtype, "same_kind"):
        raise BagwiseError(f"{name} must be {np.dtype(dtype)}, got {numbers.dtype}.")
    array: NDArray[Any] = np.array(numbers, dtype=dtype, order="C")
    array.setflags(write=False)
    return array


def _check_merges(n_words: int, merges: NDArray[np.int64]) -> None:
    if len(merges) > max(n_words - 1, 0):
        raise BagwiseError(f"{n_words} words allow at most {max(n_words - 1, 0)} merges, got {len(merges)}.")
    if len(merges) == 0:
        return
    s, t = merges[:, 0], merges[:, 1]
    bad = (s < 0) | (s >= t) | (t >= n_words)
    if bad.any():
        k = int(np.argmax(bad))
        raise BagwiseError(f"Merge {k} is ({s[k]}, {t[k]}); it must be (s, t) with 0 <= s < t < {n_words}.")
    # No array of n_words here: a damaged file can claim any number of words.
    order = np.argsort(t, kind="stable")
    level = np.arange(len(merges))
    for words, first_level in ((t, level), (s, level + 1)):
        position = np.searchsorted(t[order], words)
        earlier = order[np.minimum(position, len(t) - 1)]
        bad = (t[earlier] == words) & (earlier < first_level)
        if bad.any():
            k = int(np.argmax(bad))
            raise BagwiseError(f"Merge {k} joins ({s[k]}, {t[k]}), but {words[k]} was already absorbed.")
