"""From items to histograms over the full vocabulary, and from histograms to features of groups.

There is one vectorizer per modality: `VisualVectorizer` for images and videos, `TextVectorizer`, `TableVectorizer`. A
model holds one (`Model.vectorizer`), and training, evaluation, transformation, indexing and reports all use it.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone

from bagwise._utils.matrices import first_not_finite
from bagwise.bags import Bags
from bagwise.bags.files import BagsSpool
from bagwise.codebooks.bag_of_features import BagOfFeatures
from bagwise.codebooks.batches import batches_of_width
from bagwise.codebooks.distances import WordDistances, assign
from bagwise.codebooks.encoders import HardEncoder
from bagwise.codebooks.encoding import pooled
from bagwise.codebooks.normalizing import WordWeighting, normalize_rows
from bagwise.errors import BagwiseError
from bagwise.merging.pooling import pool
from bagwise.model.parts import LazyDescriptor
from bagwise.sources.collection import Collection
from bagwise.sources.items import ItemIterator, Skipped

__all__ = [
    "Histograms",
    "Progress",
    "TableVectorizer",
    "TextVectorizer",
    "Vectorizer",
    "VisualVectorizer",
    "WordSample",
    "as_histograms",
    "group_features",
    "no_progress",
    "normalize_features",
]

# Called with the name of a step, the number of items done, and the number of all items (0: unknown).
Progress = Callable[[str, int, int], None]

_BATCH_SIZE = 32


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
    weighted = histograms if weighting is None else weighting.apply(histograms, n_cells)
    return normalize_features(pool(weighted, labels, n_groups, n_cells=n_cells), normalize)


def normalize_features(grouped: Any, normalize: Any) -> Any:
    """Normalise the rows of histograms of groups in float64, and return float32; see `group_features`."""
    return normalize_rows(grouped.astype(np.float64), normalize).astype(np.float32)


class WordSample(NamedTuple):
    """The descriptors of one item: nearest words, distances to them, and positions in the unit square."""

    words: NDArray[np.intp]
    distances: NDArray[np.float32]
    positions: NDArray[np.float32] | None


@dataclass(frozen=True)
class Histograms:
    """Histograms of the items that could be read."""

    matrix: Any  # CSR array or ndarray of shape (n_kept, n_cells * n_words)
    kept: NDArray[np.intp]  # index of the item of each row
    skipped: tuple[Skipped, ...] = ()  # items that could not be read
    samples: Mapping[int, WordSample] = field(default_factory=dict)  # of some rows, on demand, for images and videos
    seconds: Mapping[str, float] = field(default_factory=dict)  # time of each stage of a fit


@dataclass(frozen=True)
class _Run:
    """How items are read: the keyword arguments of `Vectorizer.transform`."""

    on_error: str = "raise"  # or "skip": items that cannot be read
    n_jobs: int | None = None  # threads; None: one, or those of the descriptor
    cache: Any = None  # folder of cached descriptors
    n_samples: int = 0  # number of items to return a `WordSample` of, evenly spaced
    progress: Progress = no_progress


class Vectorizer(ABC):
    """Turns items of one modality into histograms over the full vocabulary."""

    modality: str
    n_words: int  # size of the vocabulary

    def fit(self, X: Any, **options: Any) -> Self:
        """Learn the vocabulary. Parameters as in `transform`."""
        self.fit_transform(X, **options)
        return self

    def fit_transform(self, X: Any, **options: Any) -> Histograms:
        """Learn the vocabulary and count its words; items are read once. Parameters as in `transform`."""
        return self._fit_transform(X, _Run(**options))

    def transform(self, X: Any, **options: Any) -> Histograms:
        """Count the words of a collection or of any X that `Model.histograms` takes; see `_Run` for options."""
        return self._transform(X, _Run(**options))

    @abstractmethod
    def _fit_transform(self, X: Any, run: _Run) -> Histograms: ...

    @abstractmethod
    def _transform(self, X: Any, run: _Run) -> Histograms: ...

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `Model` that describe the fitted vectorizer."""


class VisualVectorizer(Vectorizer):
    """Count visual words: describe images or videos, and find the nearest words of the descriptors.

    Without a `descriptor`, only `Bags` are accepted. The `codebook` is None before `fit_transform`, and for
    descriptors that count words themselves, such as `LBPD5`. Descriptors of a fit beyond `memory_limit` go to a
    temporary file, see `BagsSpool`.
    """

    descriptor = LazyDescriptor()

    def __init__(
        self,
        modality: str,
        descriptor: Any,
        codebook: NDArray[np.float32] | None = None,
        pyramid: tuple[tuple[int, int], ...] = ((1, 1),),
        *,
        n_words: int = 1000,
        random_state: Any = 0,
        memory_limit: int | float | str | None = None,
    ) -> None:
        self.modality = modality
        self.descriptor = descriptor
        self.codebook = codebook
        self.pyramid = pyramid
        self.n_words = n_words
        self.random_state = random_state
        self.memory_limit = memory_limit

    @cached_property
    def _encoder(self) -> HardEncoder:
        return HardEncoder(np.asarray(self.codebook))

    def _fit_transform(self, X: Any, run: _Run) -> Histograms:
        """Describe all items once, learn words by k-means from a sample of descriptors, and count them."""
        learner = BagOfFeatures(self.n_words, n_init=1, random_state=self.random_state, n_jobs=run.n_jobs)
        describing = self._describe(X, run)
        step, n_items = f"Describing {self.modality}", describing.n_items
        times = [time.perf_counter()]
        with BagsSpool(self.memory_limit) as spool:

            def batches() -> Iterator[Bags]:
                for bags in describing:
                    spool.append(bags)
                    run.progress(step, describing.n_done, n_items)
                    yield bags
                times.append(time.perf_counter())
                run.progress(f"Learning {self.n_words} words", 0, 0)

            learner.fit(batches())
            times.append(time.perf_counter())
            self.codebook = learner.codebook_
            self.__dict__.pop("_encoder", None)
            counting = _Counting(self, run, describing.kept, n_items)
            for bags in self._checked(spool):
                counting.add(bags)
                run.progress("Counting words", counting.n_rows, len(describing.kept))
        times.append(time.perf_counter())
        stages = zip(("describing", "learning words", "counting words"), np.diff(times).tolist(), strict=True)
        return dataclasses.replace(counting.histograms(describing.skipped), seconds=dict(stages))

    def _transform(self, X: Any, run: _Run) -> Histograms:
        """Count the words of items, of `Bags`, or of an iterable of them."""
        first = None
        if isinstance(X, (list, tuple)) and len(X):
            first = X[0]
        elif isinstance(X, Iterator):
            first = next(X, None)
            X = [] if first is None else itertools.chain([first], X)
        if isinstance(X, Bags) or isinstance(first, Bags) or sp.issparse(first):
            if self.codebook is None and not sp.issparse(first):
                raise BagwiseError("This model has no codebook: it takes images or counts of patterns, got Bags.")
            counting = _Counting(self, run, None, 0)
            for batch in self._checked(X):
                counting.add(batch)
            return counting.histograms(())
        describing = self._describe(X, run)
        counting = _Counting(self, run, describing.kept, describing.n_items)
        for batch in self._checked(describing):
            counting.add(batch)
            run.progress("Counting words", describing.n_done, describing.n_items)
        return counting.histograms(describing.skipped)

    def _checked(self, batches: Any) -> Iterator[Any]:
        """Check the width of descriptors, batch by batch."""
        if self.codebook is None:
            return iter(batches)
        return batches_of_width(batches, self.codebook.shape[1], self.codebook.dtype, "this model")

    def _describe(self, X: Any, run: _Run) -> ItemIterator:
        if self.descriptor is None:
            raise BagwiseError(
                f"This model has no descriptor: it takes Bags of the descriptors of {self.modality}, got "
                f"{type(X).__name__}. Describe the items first, as for its codebook."
            )
        changes = {name: value for name, value in (("n_jobs", run.n_jobs), ("cache", run.cache)) if value is not None}
        descriptor = clone(self.descriptor).set_params(**changes) if changes else self.descriptor
        describing = descriptor.iter_transform(X, batch_size=_BATCH_SIZE, on_error=run.on_error)
        describing.warn = False
        return describing

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of `Model` that describe the fitted vectorizer."""
        return {"descriptor": self.descriptor, "codebook": self.codebook, "pyramid": self.pyramid}


class _Counting:
    """Histograms of one batch of bags after the other, and samples of some of their items."""

    def __init__(self, vectorizer: VisualVectorizer, run: _Run, kept: list[int] | None, n_items: int) -> None:
        self._vectorizer = vectorizer
        self._n_threads = effective_n_jobs(run.n_jobs)
        self._kept = kept  # grows while items are described
        n_samples = run.n_samples if vectorizer.codebook is not None else 0
        self._wanted = set(np.linspace(0, n_items - 1, n_samples).astype(int).tolist())
        self._table = WordDistances(np.asarray(vectorizer.codebook)) if self._wanted else None
        self._samples: dict[int, WordSample] = {}
        self._parts: list[Any] = []
        self.n_rows = 0

    def add(self, batch: Any) -> None:
        """Count the words of a batch."""
        if self._vectorizer.codebook is None:
            part = as_histograms(batch, self._vectorizer.n_words)
        else:
            encoder, pyramid = self._vectorizer._encoder, self._vectorizer.pyramid
            part = pooled(batch, encoder, "sum", pyramid, True, self._n_threads)
            for k in range(len(batch)) if self._wanted else ():
                if self._kept is not None and self._kept[self.n_rows + k] in self._wanted:
                    self._sample(batch, k)
        self._parts.append(part)
        self.n_rows += part.shape[0]

    def _sample(self, bags: Bags, k: int) -> None:
        words, _ = assign(bags[k], self._table, 1)  # type: ignore[arg-type]
        distances = np.linalg.norm(bags[k] - self._vectorizer.codebook[words], axis=1)  # type: ignore[index]
        positions = None if bags.positions is None else np.array(bags.positions_of(k))
        self._samples[self.n_rows + k] = WordSample(words, distances, positions)

    def histograms(self, skipped: Sequence[Skipped]) -> Histograms:
        """Return the histograms of all batches."""
        matrix = sp.csr_array(sp.vstack(self._parts, format="csr"))
        kept = np.arange(matrix.shape[0]) if self._kept is None else np.array(self._kept)
        return Histograms(matrix, kept, tuple(skipped), self._samples)


class TextVectorizer(Vectorizer):
    """Count the words of texts.

    `tokenizer` has options of `WordCounts`; `word_names` is the vocabulary. `fit_transform` learns up to `n_words`
    words, the most frequent of those that occur in at least `min_count` texts.
    """

    modality = "texts"

    def __init__(
        self,
        tokenizer: Mapping[str, Any],
        word_names: Sequence[str] | None = None,
        *,
        n_words: int = 20_000,
        min_count: int = 2,
    ) -> None:
        self.tokenizer = dict(tokenizer)
        self.word_names = None if word_names is None else tuple(word_names)
        self.n_words = len(self.word_names or ())
        self.max_words = n_words
        self.min_count = min_count

    def _counter(self, **options: Any) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        tokenizer = {name: tuple(value) if name == "ngram_range" else value for name, value in self.tokenizer.items()}
        return CountVectorizer(**tokenizer, **options)

    @cached_property
    def _fitted_counter(self) -> Any:
        return self._counter(vocabulary=list(self.word_names or ()))

    def _fit_transform(self, X: Any, run: _Run) -> Histograms:
        """Learn the most frequent words and count them."""
        started, texts = time.perf_counter(), self._texts(X, run.on_error)
        counter = self._counter(min_df=min(self.min_count, texts.n_items), max_features=self.max_words)
        try:
            counts = counter.fit_transform(_with_progress(texts, run.progress))
        except BagwiseError:
            raise
        except ValueError as error:  # scikit-learn's message about an empty vocabulary
            raise BagwiseError(
                f"The {len(texts.kept)} texts of {texts.source} have no word that occurs in {self.min_count} of them. "
                "Add texts, or lower min_count."
            ) from error
        self.word_names = tuple(map(str, counter.get_feature_names_out()))
        self.n_words = len(self.word_names)
        self.__dict__.pop("_fitted_counter", None)
        matrix = sp.csr_array(counts, dtype=np.float32)
        seconds = {"counting words": time.perf_counter() - started}
        return Histograms(matrix, np.array(texts.kept), tuple(texts.skipped), seconds=seconds)

    def _transform(self, X: Any, run: _Run) -> Histograms:
        """Count the words of texts."""
        texts = self._texts(X, run.on_error)
        counts = self._fitted_counter.transform(_with_progress(texts, run.progress))
        return Histograms(sp.csr_array(counts, dtype=np.float32), np.array(texts.kept), tuple(texts.skipped))

    @staticmethod
    def _texts(X: Any, on_error: str) -> ItemIterator:
        from bagwise.descriptors.texts import load_texts

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

    def _fit_transform(self, X: Any, run: _Run) -> Histograms:
        """Check that the table holds finite numbers of at least 0."""
        values = X.X.data if sp.issparse(X.X) else X.X
        if values.size and not np.isfinite(values).all():
            raise BagwiseError(f"{X.source} holds NaN or infinity; counts of words must be finite.")
        if values.size and values.min() < 0:
            raise BagwiseError(
                f"{X.source} holds negative numbers (the smallest is {values.min():g}), but counts of words are never "
                "negative. Remove such columns, or use WordMerger from Python, which takes any numbers."
            )
        self.n_words = X.X.shape[1]
        self.word_names = None if X.feature_names is None else tuple(X.feature_names)
        matrix = sp.csr_array(X.X, dtype=np.float32) if sp.issparse(X.X) else np.asarray(X.X, np.float32)
        return Histograms(matrix, np.arange(len(X)))

    def _transform(self, X: Any, run: _Run) -> Histograms:
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


def as_histograms(X: Any, n_columns: int, names: tuple[str, ...] | None = None, modality: str = "table") -> Any:
    """Return a matrix of finite numbers, dense or CSR, of float32 if X is, otherwise of float64.

    X is a matrix, a table or a data frame. If its columns have names, they must be `names`.
    """
    columns = getattr(X, "columns", getattr(X, "feature_names", None))
    if names is not None and columns is not None and tuple(map(str, columns)) != names:
        missing = next((name for name in names if name not in set(map(str, columns))), None)
        what = f"{missing!r} is missing" if missing is not None else "their order or number differs"
        raise BagwiseError(f"The columns of X are not those the model was fitted to: {what}.")
    if isinstance(X, Collection):
        X = X.X  # type: ignore[attr-defined]
    matrix: Any = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise BagwiseError(
            f"X must be a matrix of real numbers with {n_columns} columns, one per word; "
            f"got {type(X).__name__} of shape {matrix.shape} and type {matrix.dtype}."
        )
    if matrix.shape[1] != n_columns:
        hint = "" if modality == "table" else f" For one of the {modality} itself pass a list: [it]."
        raise BagwiseError(f"X has {matrix.shape[1]} columns, but the histograms of this model {n_columns}.{hint}")
    matrix = matrix.astype(np.float32 if matrix.dtype == np.float32 else np.float64, copy=False)
    if not sp.issparse(matrix):
        matrix = np.ascontiguousarray(matrix)
    found = first_not_finite(matrix)
    if found is not None:
        row, column, value = found
        raise BagwiseError(f"X must hold finite numbers, but row {row}, column {column} is {value}.")
    return matrix
