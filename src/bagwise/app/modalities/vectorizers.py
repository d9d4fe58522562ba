"""From items to histograms over the full vocabulary, and from histograms to features of groups.

Each modality has a vectorizer. A model holds one (`Model.vectorizer`), and training, evaluation, transformation,
indexing and reports all use it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bagwise.app.modalities.histograms import Histograms, WordSample, as_histograms
from bagwise.app.modalities.steps import StepCache
from bagwise.codebooks.pyramids import WordLayout
from bagwise.sources.collection import Collection
from bagwise.sources.items import NothingReadError, Skipped

if TYPE_CHECKING:
    from bagwise.codebooks.normalizing import WordWeighting

__all__ = [
    "Histograms",
    "Part",
    "Progress",
    "Run",
    "Vectorizer",
    "WordSample",
    "as_histograms",
    "group_features",
    "no_progress",
    "normalize_features",
    "sampled_items",
]

# Called with the name of a step, the number of items done, and the number of all items (0: unknown).
Progress = Callable[[str, int, int], None]

_MOST_VALUES = 1 << 22  # of sparse histograms that are dense at a time


def no_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""


def group_features(
    histograms: Any,
    labels: NDArray[np.int64],
    n_groups: int,
    layout: WordLayout,
    normalize: Any,
    weighting: WordWeighting | None = None,
) -> Any:
    """Weight words, sum those of each group, cell by cell, and normalise the rows by steps of `BagNormalizer`.

    From a dense or CSR array of shape (n_items, n_columns) to one of float32 and shape (n_items, n_cells * n_groups);
    `labels` has the group of each word.

    >>> group_features(np.array([[2.0, 1.0, 1.0]]), np.array([0, 1, 1]), 2, WordLayout((3,)), ("l1",))
    array([[0.5, 0.5]], dtype=float32)
    """
    import scipy.sparse as sp

    from bagwise.merging.pooling import pool

    if weighting is not None and weighting.shift is not None and sp.issparse(histograms):
        n, d = histograms.shape  # shifted zeros are none: the words of a few items at a time are dense
        batches = [slice(start, start + max(1, _MOST_VALUES // d)) for start in range(0, n, max(1, _MOST_VALUES // d))]
        parts = [
            group_features(histograms[batch].toarray(), labels, n_groups, layout, normalize, weighting)
            for batch in batches
        ]
        return sp.vstack(
            [sp.csr_array((0, layout.width(n_groups)), dtype=np.float32), *map(sp.csr_array, parts)], "csr"
        )
    weighted = histograms if weighting is None else weighting.apply(histograms)
    pooled = pool(weighted, layout.over_cells(labels, n_groups), layout.width(n_groups))
    return normalize_features(pooled, normalize)


def normalize_features(grouped: Any, normalize: Any) -> Any:
    """Normalise the rows of histograms of groups in float64, and return float32; see `group_features`."""
    from bagwise.codebooks.normalizing import normalize_rows

    return normalize_rows(grouped.astype(np.float64), normalize).astype(np.float32)


def sampled_items(n_items: int, n_samples: int) -> list[int]:
    """Return the numbers of so many items, evenly spaced."""
    return np.unique(np.linspace(0, n_items - 1, n_samples).astype(int)).tolist()


@dataclass(frozen=True)
class Run:
    """How items are read: the keyword arguments of `Vectorizer.transform`."""

    on_error: str = "raise"  # or "skip": items that cannot be read
    n_jobs: int | None = None  # threads; None: one, or those of the descriptor
    cache: Any = None  # folder of cached descriptors
    steps: StepCache | None = None  # words of earlier runs
    n_samples: int = 0  # number of items to return a `WordSample` of, evenly spaced
    pooled: bool = False  # whether to return pooled features of networks as well, see `Histograms`
    progress: Progress = no_progress


@dataclass(frozen=True)
class Part:
    """Items of a part of a collection that were read once: a vocabulary is learned from them, and counted in them."""

    content: Iterable[Any]
    kept: NDArray[np.intp]  # items that could be read, by their numbers among those that were to be read
    skipped: tuple[Skipped, ...] = ()
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # vectors of each vocabulary
    chosen: NDArray[np.intp] | None = None  # numbers of the items to be read; others are read when words are counted
    keys: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))  # of ids of items, their hashes
    pooled: NDArray[np.float32] | None = None  # features of the items that could be read, see `Histograms`
    cached: bool = False  # whether histograms are those of an earlier run


class Vectorizer(ABC):
    """Turns items of one modality into histograms over the full vocabulary.

    The steps of a fit can be taken one by one, for parts of a collection that lie on several machines: `read_part` for
    each, `summary` of what was read, `join` for two summaries, `learn` from that of all, and `count_part` for each.
    """

    modality: str
    n_words: int  # size of the vocabulary
    stages: ClassVar[tuple[str, ...]] = ("describing", "learning words", "counting words")  # of a fit, in its timings

    @property
    def layout(self) -> WordLayout:
        """The columns of histograms."""
        return WordLayout((self.n_words,))

    def fit_transform(self, X: Any, **options: Any) -> Histograms:
        """Learn the vocabulary from all items of X, and count its words; see `Run` for options."""
        run = Run(**options)
        part, source = self.read_part(X, run), X.source if isinstance(X, Collection) else "the list"
        if not len(part.kept):
            raise NothingReadError(part.skipped, source)
        self.learn(self.summary(part), run, source)
        return self.count_part(part, run, sampled_items(len(part.kept) + len(part.skipped), run.n_samples))

    def transform(self, X: Any, **options: Any) -> Histograms:
        """Count the words of a collection or of any X that `Model.histograms` takes; see `Run` for options."""
        return self.count(X, Run(**options))

    def fingerprint(self) -> dict[str, str]:
        """Return hashes of the vocabulary."""
        return {name: sha256(array.tobytes()).hexdigest() for name, array in self._learned().items()}

    def _settings(self) -> dict[str, Any] | None:
        """Return all parameters that histograms depend on, as JSON values; None where there is nothing to cache."""
        return None

    def _learned(self) -> dict[str, NDArray[Any]]:
        """Return the vocabulary as arrays."""
        return {}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:  # noqa: B027 tables have nothing to restore
        """Set the vocabulary to that of `_learned`."""

    def items_to_learn_from(self, X: Any) -> NDArray[np.intp] | None:
        """Choose the items of a collection that the vocabulary is learned from, ascending; None: all."""
        return None

    @abstractmethod
    def read_part(self, X: Any, run: Run, keep: Callable[[Iterable[Any]], Iterable[Any]] = list) -> Part:
        """Read the items of a part. `keep` holds batches of what was read until they are counted."""

    @abstractmethod
    def summary(self, part: Part, limits: Any = None) -> Any:
        """Return what the vocabulary is learned from; `limits` are those of `VisualVectorizer`."""

    @abstractmethod
    def join(self, one: Any, other: Any) -> Any:
        """Return the summary of two parts."""

    @abstractmethod
    def learn(self, summary: Any, run: Run, source: str = "the source") -> None:
        """Learn the vocabulary."""

    @abstractmethod
    def count_part(self, part: Part, run: Run, wanted: Iterable[int] = (), X: Any = None) -> Histograms:
        """Count words; `wanted` are items of the part to return a `WordSample` of.

        X are the items of the part, if some of them were not read before.
        """

    @abstractmethod
    def count(self, X: Any, run: Run, wanted: Iterable[int] | None = None) -> Histograms:
        """Read items and count their words; `wanted` are those to return a `WordSample` of, None: as the run says."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `Model` that describe the fitted vectorizer."""
