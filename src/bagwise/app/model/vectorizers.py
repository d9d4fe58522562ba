"""From items to histograms over the full vocabulary, and from histograms to features of groups.

There is one vectorizer per modality: `VisualVectorizer` for images and videos, `TextVectorizer`, `TableVectorizer`. A
model holds one (`Model.vectorizer`), and training, evaluation, transformation, indexing and reports all use it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.text import english_stop_words
from bagwise.app.model.histograms import Histograms, WordSample, as_histograms
from bagwise.app.model.steps import StepCache, from_json, to_json
from bagwise.codebooks.normalizing import WordWeighting, normalize_rows
from bagwise.errors import BagwiseError
from bagwise.merging.pooling import pool
from bagwise.runtime import hash_words, split_text
from bagwise.sources.collection import Collection, load_texts
from bagwise.sources.items import ItemIterator, NothingReadError, Skipped

__all__ = [
    "Histograms",
    "Part",
    "Progress",
    "Run",
    "TableVectorizer",
    "TextVectorizer",
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

_BATCH_SIZE = 32
_MOST_VALUES = 1 << 22  # of sparse histograms that are dense at a time


def no_progress(step: str, done: int, total: int) -> None:
    """Report nothing."""


def group_features(
    histograms: Any,
    labels: NDArray[np.int64],
    n_groups: int,
    n_cells: int,
    normalize: Any,
    weighting: WordWeighting | None = None,
) -> Any:
    """Weight words, sum those of each group, cell by cell, and normalise the rows by steps of `BagNormalizer`.

    From a dense or CSR array of shape (n_items, n_cells * n_words) to one of float32 and shape (n_items, n_cells *
    n_groups); `labels` has the group of each word.

    >>> group_features(np.array([[2.0, 1.0, 1.0]]), np.array([0, 1, 1]), 2, 1, ("l1",))
    array([[0.5, 0.5]], dtype=float32)
    """
    if weighting is not None and weighting.shift is not None and sp.issparse(histograms):
        n, d = histograms.shape  # shifted zeros are none: the words of a few items at a time are dense
        batches = [slice(start, start + max(1, _MOST_VALUES // d)) for start in range(0, n, max(1, _MOST_VALUES // d))]
        parts = [
            group_features(histograms[batch].toarray(), labels, n_groups, n_cells, normalize, weighting)
            for batch in batches
        ]
        return sp.vstack([sp.csr_array((0, n_cells * n_groups), dtype=np.float32), *map(sp.csr_array, parts)], "csr")
    weighted = histograms if weighting is None else weighting.apply(histograms, n_cells)
    return normalize_features(pool(weighted, labels, n_groups, n_cells=n_cells), normalize)


def normalize_features(grouped: Any, normalize: Any) -> Any:
    """Normalise the rows of histograms of groups in float64, and return float32; see `group_features`."""
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


@dataclass(frozen=True)
class WordTotals:
    """Words of texts in ascending order, how often each occurs, and in how many texts."""

    words: list[str]
    occurrences: NDArray[np.int64]
    n_texts: NDArray[np.int64]
    n_kept: int  # texts that could be read
    n_items: int


class TextVectorizer(Vectorizer):
    """Count the words of texts.

    `tokenizer` has options of `WordCounts`; `word_names` is the vocabulary, or `word_hashes` are its hashes, ascending.
    `fit_transform` learns up to `n_words` words, the most frequent of those that occur in at least `min_count` texts.
    """

    modality = "texts"

    def __init__(
        self,
        tokenizer: Mapping[str, Any],
        word_names: Sequence[str] | None = None,
        word_hashes: NDArray[np.uint32] | None = None,
        *,
        n_words: int = 30_000,
        min_count: int = 1,
    ) -> None:
        self.tokenizer = dict(tokenizer)
        self.word_names = None if word_names is None else tuple(word_names)
        self.word_hashes = word_hashes
        self.n_words = len(self.word_names or ()) if word_hashes is None else len(word_hashes)
        self.max_words = n_words
        self.min_count = min_count

    def _settings(self) -> dict[str, Any] | None:
        return {"tokenizer": self.tokenizer, "n_words": self.max_words, "min_count": self.min_count}

    def _learned(self) -> dict[str, NDArray[Any]]:
        hashes = {} if self.word_hashes is None else {"word_hashes": np.asarray(self.word_hashes)}
        return {"word_names": to_json(self.word_names)} | hashes

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.word_names = tuple(from_json(arrays["word_names"]))
        self.n_words = len(self.word_names)
        self.__dict__.pop("_vocabulary", None)

    def _counter(self, **options: Any) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        tokenizer = {name: tuple(value) if name == "ngram_range" else value for name, value in self.tokenizer.items()}
        return CountVectorizer(**tokenizer, **options)

    def _split(self) -> Callable[[str], list[str]]:
        """Return the function that splits a text into words and n-grams, as `CountVectorizer` does."""
        options = self.tokenizer
        if options.get("analyzer") == "char_wb" or options.get("strip_accents"):
            return self._counter().build_analyzer()
        if options.get("stop_words") == "english":
            options = options | {"stop_words": english_stop_words()}
        return partial(split_text, options=options)

    @cached_property
    def _vocabulary(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.word_names or ())}

    def _numbers(self, words: list[str]) -> NDArray[np.intp]:
        """Return the numbers of words that are in the vocabulary."""
        if self.word_hashes is None:
            known = map(self._vocabulary.get, words)
            return np.array([number for number in known if number is not None], np.intp)
        found = hash_words(words)
        at = np.minimum(np.searchsorted(self.word_hashes, found), self.n_words - 1)
        return at[self.word_hashes[at] == found]

    def read_part(self, X: Any, run: Run, keep: Callable[[Iterable[Any]], Iterable[Any]] = list) -> Part:
        """Count all words of the texts: pairs of words, in their order, and counts."""
        texts, counter = self._texts(X, run.on_error), self._counter()
        words: list[str] = []
        try:
            counts = counter.fit_transform(_with_progress(texts, run.progress))
            words = counter.get_feature_names_out().tolist()
        except NothingReadError as error:
            return Part(keep([(words, sp.csr_array((0, 0), dtype=np.int64))]), np.empty(0, np.intp), error.skipped)
        except BagwiseError:
            raise
        except ValueError:  # scikit-learn's about an empty vocabulary
            counts = sp.csr_array((len(texts.kept), 0), dtype=np.int64)
        return Part(keep([(words, counts)]), np.array(texts.kept, np.intp), tuple(texts.skipped))

    def summary(self, part: Part, limits: Any = None) -> WordTotals:
        """Return how often each word occurs, and in how many texts."""
        ((words, counts),) = part.content
        n_texts = np.bincount(counts.indices, minlength=len(words))
        occurrences = np.asarray(counts.sum(axis=0), dtype=np.int64).ravel()
        return WordTotals(words, occurrences, n_texts, len(part.kept), len(part.kept) + len(part.skipped))

    def join(self, one: WordTotals, other: WordTotals) -> WordTotals:
        """Add up the occurrences of words."""
        words = sorted({*one.words, *other.words})
        place = {word: number for number, word in enumerate(words)}
        sums = np.zeros((2, len(words)), np.int64)
        for totals in (one, other):
            own = np.fromiter(map(place.__getitem__, totals.words), np.intp, len(totals.words))
            sums[0, own] += totals.occurrences
            sums[1, own] += totals.n_texts
        return WordTotals(words, sums[0], sums[1], one.n_kept + other.n_kept, one.n_items + other.n_items)

    def learn(self, summary: WordTotals, run: Run, source: str = "the source") -> None:
        """Take the most frequent of the words that occur in enough texts, as `CountVectorizer` does."""
        enough = np.flatnonzero(summary.n_texts >= min(self.min_count, summary.n_items))
        if len(enough) > self.max_words:
            enough = np.sort(enough[(-summary.occurrences[enough]).argsort()[: self.max_words]])
        if not len(enough):
            rare = f" that occurs in {self.min_count} of them. Add texts, or lower min_count"
            raise BagwiseError(
                f"The {summary.n_kept} texts of {source} have no word{rare if self.min_count > 1 else ''}."
            )
        self.word_names = tuple(summary.words[number] for number in enough.tolist())
        self.n_words = len(self.word_names)
        self.__dict__.pop("_vocabulary", None)

    def count_part(self, part: Part, run: Run, wanted: Iterable[int] = (), X: Any = None) -> Histograms:
        """Keep the counts of the words that were learned."""
        ((words, counts),) = part.content
        column = np.array([self._vocabulary.get(word, -1) for word in words], np.int32)[counts.indices]
        known = column >= 0
        starts = np.concatenate([[0], np.cumsum(known)])[counts.indptr].astype(np.int32 if known.size < 2**31 else None)
        rows = (counts.data[known].astype(np.float32), column[known].astype(starts.dtype), starts)
        return Histograms(sp.csr_array(rows, shape=(counts.shape[0], self.n_words)), part.kept, part.skipped)

    def count(self, X: Any, run: Run, wanted: Iterable[int] | None = None) -> Histograms:
        """Count the words of texts."""
        texts = self._texts(X, run.on_error)
        read = _with_progress(texts, run.progress)
        return Histograms(self._counted(read), np.array(texts.kept), tuple(texts.skipped))

    def _counted(self, texts: Iterable[str]) -> sp.csr_array:
        """Count the words of texts, as `RuntimeModel.transform_texts` does."""
        split = self._split()
        columns, counts, lengths = [], [], [0]
        for text in texts:
            words, n = np.unique(self._numbers(split(text)), return_counts=True)
            columns.append(words)
            counts.append(np.ones_like(n) if self.tokenizer.get("binary") else n)
            lengths.append(len(words))
        data = np.concatenate([np.empty(0, np.float32), *counts]).astype(np.float32)
        indices, starts = np.concatenate([np.empty(0, np.intp), *columns]), np.cumsum(lengths)
        dtype = np.int32 if len(indices) <= np.iinfo(np.int32).max else np.int64  # most of scikit-learn takes 32 bits
        shape = (len(lengths) - 1, self.n_words)
        return sp.csr_array((data, indices.astype(dtype), starts.astype(dtype)), shape=shape)

    @staticmethod
    def _texts(X: Any, on_error: str) -> ItemIterator:
        texts = load_texts(X, on_error)
        texts.warn = False
        return texts

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `Model` that describe the fitted vectorizer."""
        return {"tokenizer": self.tokenizer, "word_names": self.word_names}


class TableVectorizer(Vectorizer):
    """Take the columns of a table as words. `fit_transform` sets their number and names."""

    modality = "table"

    def __init__(self, n_words: int = 0, word_names: Sequence[str] | None = None) -> None:
        self.n_words = n_words
        self.word_names = None if word_names is None else tuple(word_names)

    def read_part(self, X: Any, run: Run, keep: Callable[[Iterable[Any]], Iterable[Any]] = list) -> Part:
        """Check that the rows hold finite numbers, and none below 0 if they are sparse."""
        values = X.X.data if sp.issparse(X.X) else X.X
        if values.size and not np.isfinite(values).all():
            raise BagwiseError(f"{X.source} holds NaN or infinity; counts of words must be finite.")
        if sp.issparse(X.X) and values.size and values.min() < 0:
            raise BagwiseError(
                f"{X.source} is sparse and holds negative numbers (the smallest is {values.min():g}), but counts of "
                "words are never negative. Remove such columns, or give a dense table, which may hold measurements."
            )
        matrix = sp.csr_array(X.X, dtype=np.float32) if sp.issparse(X.X) else np.asarray(X.X, np.float32)
        names = None if X.feature_names is None else tuple(X.feature_names)
        return Part(keep([(matrix, names)]), np.arange(len(X)))

    def summary(self, part: Part, limits: Any = None) -> tuple[int, tuple[str, ...] | None]:
        """Return the number of columns and their names."""
        ((matrix, names),) = part.content
        return matrix.shape[1], names

    def join(self, one: Any, other: Any) -> Any:
        """Check that both have the same columns."""
        if one != other:
            raise BagwiseError(f"Parts of the table have other columns: {one[0]} and {other[0]}, or others by name.")
        return one

    def learn(self, summary: Any, run: Run, source: str = "the source") -> None:
        """Take the columns for words."""
        self.n_words, self.word_names = summary

    def count_part(self, part: Part, run: Run, wanted: Iterable[int] = (), X: Any = None) -> Histograms:
        """Return the rows."""
        ((matrix, _),) = part.content
        return Histograms(matrix, part.kept)

    def count(self, X: Any, run: Run, wanted: Iterable[int] | None = None) -> Histograms:
        """Check the shape and the names of the columns."""
        matrix = as_histograms(X, self.n_words, self.word_names)
        return Histograms(matrix, np.arange(matrix.shape[0]))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `Model` that describe the fitted vectorizer."""
        return {"word_names": self.word_names}


def _with_progress(texts: ItemIterator, progress: Progress) -> Iterator[str]:
    for text in texts:
        if texts.n_done % _BATCH_SIZE == 0 or texts.n_done == texts.n_items:
            progress("Counting words", texts.n_done, texts.n_items)
        yield text
