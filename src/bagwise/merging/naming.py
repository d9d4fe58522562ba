"""Names of groups of words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["WORDS_IN_NAME", "listed_name", "name_group", "name_groups"]

WORDS_IN_NAME = 3


def name_groups(
    words: NDArray[Any], totals: NDArray[np.float64], labels: NDArray[np.int64], n_groups: int
) -> NDArray[Any]:
    """Name each group after its most frequent words, such as ``car+auto+truck…(17)``.

    `totals` are the frequencies of words; of equal ones the first column comes first. Names of groups of more than
    three words end with the number of words. Names that occur before get a number, so that all are different.

    >>> import numpy as np
    >>> name_groups(np.array(["a", "b", "a+b"]), np.array([2.0, 1.0, 1.0]), np.array([0, 0, 1]), 2)
    array(['a+b', 'a+b#2'], dtype=object)
    """
    order = np.lexsort((-totals, labels))  # stable: by group, then by weight, then by column
    sizes = np.bincount(labels, minlength=n_groups).tolist()
    ordered = [str(word) for word in words[order].tolist()]
    names: dict[str, None] = {}
    start = 0
    for size in sizes:
        name = stem = name_group(ordered[start : start + min(size, WORDS_IN_NAME)], size)
        start += size
        count = 1
        while name in names:
            count += 1
            name = f"{stem}#{count}"
        names[name] = None
    return np.array(list(names), dtype=object)


def name_group(words: list[str], size: int) -> str:
    """Name a group of `size` words by its first words.

    >>> name_group(["car", "auto", "truck", "bus"], 17)
    'car+auto+truck…(17)'
    """
    first = "+".join(words[:WORDS_IN_NAME])
    return first if size <= WORDS_IN_NAME else f"{first}…({size})"


def listed_name(name: str, words: list[str], size: int) -> str:
    """Write a name that begins as `name_group` names the group as a list of its words; another one stays as it is.

    >>> listed_name("car+auto+truck…(17)", ["car", "auto", "truck", "bus"], 17), listed_name("vehicles", ["car"], 1)
    ('car, auto, truck', 'vehicles')
    """
    usual = name_group(words, size)
    return ", ".join(words[:WORDS_IN_NAME]) + name[len(usual) :] if name.startswith(usual) else name
