"""From partitions of a collection to histograms of words, on any executor: what a fit does before merging.

1. Each partition is read once: texts are split into words, images are described, of many images only those that words
   are learned from. What was read stays where it is.
2. Partitions give sums (occurrences of words) or samples (of descriptors), which are joined in a tree.
3. Words are learned from these in this process.
4. Each partition counts its words, from what was read in the first step. Images that were not described before are
   described now, and their descriptors are not kept.

Images to learn from are chosen by hashes of their ids, their descriptors by hashes of ids and numbers: the same for any
partitions. With a cache, words and the histograms of each partition are those of earlier runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.histograms import Histograms
from bagwise.app.modalities.steps import StepCache
from bagwise.app.modalities.vectorizers import Part, Progress, Run, Vectorizer, no_progress, sampled_items
from bagwise.app.modalities.visual_words import N_SAMPLED_VECTORS
from bagwise.app.options import FitOptions
from bagwise.app.training.provenance import versions
from bagwise.distributed.executors import Executor, LocalExecutor
from bagwise.sources.collection import Collection
from bagwise.sources.items import NothingReadError, Skipped
from bagwise.sources.partitions import Partition

__all__ = ["CountedParts", "PartReading", "count_parts", "count_with", "partitions_of", "stacked", "transform_rows"]

_SLACK = 6.0  # standard deviations by which more descriptors are drawn than are needed


def partitions_of(collection: Collection, options: FitOptions, executor: Executor) -> list[Partition]:
    """Split a collection into consecutive partitions, which do not depend on the number of workers."""
    modality = MODALITIES[collection.modality]
    n_items = options.partition or modality.partition_rows
    here = isinstance(executor, LocalExecutor) and options.memory_limit is None
    if options.partition is None and here and not modality.learns_words:
        n_items = max(len(collection), 1)
    return collection.partitions(items_per_partition=n_items)


@dataclass(frozen=True)
class PartReading:
    """How the items of a partition are read; what of it was finished is kept in `cache`."""

    on_error: str
    cache: Any
    versions: dict[str, str]
    pooled: bool = False
    n_jobs: int | None = 1  # partitions are read by several workers at a time
    progress: Progress = no_progress

    @classmethod
    def of(cls, options: FitOptions, executor: Executor, pooled: bool = False, alone: bool = False) -> PartReading:
        """Take what applies of the options of a fit; `pooled` is that of `Run`.

        The progress of a partition that is `alone` is that of its items.
        """
        here = isinstance(executor, LocalExecutor)
        n_jobs, progress = (options.n_jobs, executor.progress if alone else no_progress) if here else (1, no_progress)
        return cls(options.on_error or "skip", options.cache, versions(), pooled, n_jobs, progress)

    def run(self) -> Run:
        """Return how items are read."""
        return Run(self.on_error, self.n_jobs, self.cache, pooled=self.pooled, progress=self.progress)

    def steps(self) -> StepCache | None:
        """Return the results of earlier runs."""
        return None if self.cache is None else StepCache(self.cache, {"versions": self.versions}, no_progress)


@dataclass(frozen=True)
class CountedParts:
    """Histograms of partitions, which lie where they were computed.

    Attributes
    ----------
    rows : list
        Handles of an executor, of `Part` whose content is one matrix.
    n_rows, n_bytes : list of int
        Items that could be read in each partition, and bytes of their histograms.
    kept : ndarray
        Items that could be read, by their numbers in the whole collection.
    skipped : tuple of Skipped
    samples : mapping
        As those of `Histograms`, by rows of all partitions.
    cached : bool
        Whether all are those of an earlier run.
    seconds : dict
    n_learned_from : int or None
        Items that words were learned from, if not all.
    """

    rows: list[Any]
    n_rows: list[int]
    n_bytes: list[int]
    kept: NDArray[np.intp]
    skipped: tuple[Skipped, ...]
    samples: dict[int, Any]
    cached: bool
    seconds: dict[str, float]
    n_learned_from: int | None = None

    def histograms(self, executor: Executor) -> Histograms:
        """Bring the histograms of all items into this process."""
        pooled = [one for one in executor.gather(executor.map(_pooled, self.rows)) if one is not None]
        averages = np.concatenate(pooled) if pooled else None
        return Histograms(stacked(executor, self.rows), self.kept, self.skipped, self.samples, pooled=averages)


class _Step:
    """What all steps over the partitions of a collection need."""

    def __init__(
        self, collection: Collection, options: FitOptions, executor: Executor, n_samples: int, pooled: bool = False
    ) -> None:
        self.collection, self.options, self.executor, self.n_samples = collection, options, executor, n_samples
        self.partitions = partitions_of(collection, options, executor)
        self.sizes = [int(one.n_items or 0) for one in self.partitions]
        self.reading = PartReading.of(options, executor, pooled, len(self.partitions) == 1)
        # in this process, histograms are held unless the options say that they are too many
        alone = isinstance(executor, LocalExecutor) and options.memory_limit is None
        self.keep_rows = list if alone else executor.keep

    def fingerprints(self, vectorizer: Vectorizer) -> list[str | None]:
        """Hash the items of each partition, for results of earlier runs."""
        if self.options.cache is None or vectorizer._settings() is None:
            return [None] * len(self.partitions)
        shared = self.executor.share(self.reading)
        arguments = ([shared] * len(self.partitions), self.partitions)
        step = "Looking for items in the cache"
        return self.executor.gather(self.executor.map(_fingerprint, *arguments, step=step, sizes=self.sizes))

    def count(self, vectorizer: Vectorizer, prints: Sequence[Any], read: dict[int, Any] | None = None) -> CountedParts:
        """Count the words of each partition, of what was `read` if it was."""
        n, executor = len(self.partitions), self.executor
        chosen = np.array(sampled_items(len(self.collection), self.n_samples), np.intp)
        wanted = [some.tolist() for some in _inside(chosen, self.partitions)]
        # partitions without an item that words are learned from were not read
        parts = [None] * n if read is None else [read.pop(k, None) for k in range(n)]
        shared = executor.share((vectorizer, self.reading, self.keep_rows))
        arguments = ([shared] * n, self.partitions, parts, wanted, list(prints))
        rows = executor.map(_count, *arguments, step="Counting words", sizes=self.sizes)
        del parts, arguments
        counted = executor.gather(executor.map(_size, rows))
        starts = np.cumsum([0, *(one.n_rows for one in counted)]).tolist()
        samples = {start + row: one for start, part in zip(starts, counted, strict=False) for row, one in part.samples}
        kept = np.concatenate([one.kept + part.start for one, part in zip(counted, self.partitions, strict=True)])
        skipped = tuple(one for part in counted for one in part.skipped)
        if not len(kept):
            raise NothingReadError(skipped, self.collection.source)
        sizes = ([one.n_rows for one in counted], [one.n_bytes for one in counted])
        return CountedParts(
            rows, *sizes, kept.astype(np.intp), skipped, samples, all(one.cached for one in counted), {}
        )


def count_parts(
    vectorizer: Vectorizer,
    collection: Collection,
    options: FitOptions,
    executor: Executor,
    *,
    n_samples: int = 0,
    pooled: bool = False,
    steps: StepCache | None = None,
) -> CountedParts:
    """Learn the words of a collection and count them, partition by partition; sets the vocabulary of `vectorizer`."""
    step = _Step(collection, options, executor, n_samples, pooled)
    times = [perf_counter()]
    prints, learned_from = step.fingerprints(vectorizer), vectorizer.items_to_learn_from(collection)
    settings, content = vectorizer._settings(), hashlib.blake2b("".join(map(str, prints)).encode()).hexdigest()
    if steps is not None and settings is not None:
        # descriptors are drawn by the ids of items, which contents do not tell
        ids = hashlib.blake2b("\0".join(collection.ids).encode("utf-8", "surrogatepass")).hexdigest()
        settings |= {"on_error": options.on_error, "ids": ids}
        cached = steps.load("vocabulary", content, settings, f"words of {len(collection):,} {collection.modality}")
        if cached is not None:
            vectorizer._restore(cached)
            counted = step.count(vectorizer, prints)
            if counted.cached:
                steps.used.append(f"histograms of {len(collection):,} {collection.modality}")
            n_learned_from = int(cached["n_learned_from"][0]) if "n_learned_from" in cached else None
            seconds = {"reading the cache" if counted.cached else "counting words": perf_counter() - times[0]}
            return replace(counted, seconds=seconds, n_learned_from=n_learned_from)
    read, vectors = _read_all(step, vectorizer, learned_from)
    if learned_from is not None and vectors.min() < N_SAMPLED_VECTORS:
        learned_from = None  # too few descriptors: words are learned from all items
        read, vectors = _read_all(step, vectorizer, None)
    times.append(perf_counter())
    limits = np.minimum(1.0, (N_SAMPLED_VECTORS + _SLACK * np.sqrt(N_SAMPLED_VECTORS)) / np.maximum(vectors, 1))
    shared, parts = executor.share(vectorizer), list(read.values())
    given_each = ([shared] * len(parts), parts, [limits.tolist()] * len(parts))
    summary = executor.map_reduce(_summary, vectorizer.join, *given_each, step="Sampling words")
    del parts, given_each
    run = Run(options.on_error or "skip", options.n_jobs, steps=steps, progress=executor.progress)
    vectorizer.learn(summary, run, collection.source)
    times.append(perf_counter())
    n_learned_from = None if learned_from is None else len(learned_from)
    if steps is not None and settings is not None:
        of_some = {} if n_learned_from is None else {"n_learned_from": np.array([n_learned_from])}
        steps.save("vocabulary", content, settings, vectorizer._learned() | of_some)
    counted = step.count(vectorizer, prints, read)
    times.append(perf_counter())
    names = vectorizer.stages
    seconds = dict.fromkeys(names, 0.0)
    for name, spent in zip(names, np.diff(times).tolist(), strict=True):
        seconds[name] += spent
    return replace(counted, seconds=seconds, n_learned_from=n_learned_from)


def count_with(
    vectorizer: Vectorizer, collection: Collection, options: FitOptions, executor: Executor, n_samples: int = 0
) -> Histograms:
    """Count the words of a collection with the vocabulary that there is."""
    step = _Step(collection, options, executor, n_samples)
    return step.count(vectorizer, step.fingerprints(vectorizer)).histograms(executor)


def transform_rows(
    vectorizer: Vectorizer, collection: Collection, options: FitOptions, executor: Executor
) -> CountedParts:
    """Do the same where the histograms stay in partitions."""
    step = _Step(collection, options, executor, 0)
    return step.count(vectorizer, step.fingerprints(vectorizer))


def _read_all(step: _Step, vectorizer: Vectorizer, items: Any) -> tuple[dict[int, Any], NDArray[np.int64]]:
    """Read chosen items, or all, of the partitions that have some.

    Returns handles by the numbers of partitions, and how many vectors that are not zero there are of each vocabulary.
    """
    partitions, executor, collection = step.partitions, step.executor, step.collection
    chosen: list[Any] = [None] * len(partitions) if items is None else _inside(items, partitions)
    to_read = [k for k, some in enumerate(chosen) if some is None or len(some)]
    sizes = [step.sizes[k] if chosen[k] is None else len(chosen[k]) for k in to_read]
    shared = executor.share((vectorizer, step.reading, executor.keep))
    arguments = ([shared] * len(to_read), [partitions[k] for k in to_read], [chosen[k] for k in to_read])
    name = "Describing" if len(getattr(vectorizer, "vocabularies", ())) else "Reading"
    read = executor.map(_read, *arguments, step=f"{name} {collection.modality}", sizes=sizes)
    heads = executor.gather(executor.map(_head, read))
    if items is None and not any(len(head[0]) for head in heads):
        raise NothingReadError([one for head in heads for one in head[1]], collection.source)
    return dict(zip(to_read, read, strict=True)), np.sum([head[2] for head in heads], axis=0)


def stacked(executor: Executor, rows: Sequence[Any]) -> Any:
    """Bring the histograms of partitions into this process, as one matrix."""
    parts = []
    for part in executor.gather(rows):
        ((matrix, _),) = part.content
        parts.append(matrix)
    filled = [part for part in parts if part.shape[0]]
    if len(filled) == 1:
        return filled[0]
    return sp.csr_array(sp.vstack(filled, format="csr")) if sp.issparse(filled[0]) else np.concatenate(filled)


def _pooled(part: Part) -> NDArray[np.float32] | None:
    return part.pooled


def _inside(items: NDArray[np.intp], partitions: Sequence[Any]) -> list[Any]:
    """Return those of some items, ascending, that are in each partition, by their numbers there."""
    starts = [one.start for one in partitions]
    parts = np.split(items, np.searchsorted(items, starts[1:]))
    return [numbers - start for numbers, start in zip(parts, starts, strict=True)]


def _fingerprint(reading: PartReading, partition: Any) -> str:
    steps = reading.steps()
    assert steps is not None
    return steps.fingerprint(partition.open())


def _read(shared: Any, partition: Any, chosen: NDArray[np.intp] | None) -> Part:
    vectorizer, reading, keep = shared
    items = partition.open() if chosen is None else partition.open()[chosen]
    return replace(vectorizer.read_part(items, reading.run(), keep), chosen=chosen)


def _head(part: Part) -> tuple[Any, ...]:
    return part.kept, part.skipped, part.sizes


def _summary(vectorizer: Vectorizer, part: Part, limits: Any) -> Any:
    return vectorizer.summary(part, limits)


def _count(shared: Any, partition: Any, part: Part | None, wanted: list[int], fingerprint: str | None) -> Part:
    """Count the words of a partition, unless an earlier run has done so."""
    vectorizer, reading, keep = shared
    steps, settings = reading.steps(), vectorizer._settings()
    cached = fingerprint is not None and steps is not None and settings is not None
    items: Any = partition.open() if cached or part is None or part.chosen is not None else None
    if cached:
        settings |= {"on_error": reading.on_error, "wanted": wanted, "learned": vectorizer.fingerprint()}
        settings["pooled"] = reading.pooled
        stored = steps.load("histograms", fingerprint, settings, "histograms")
        if stored is not None:
            return replace(_kept(Histograms.unpack(stored, items), keep), cached=True)
    try:
        if part is None:
            counted = vectorizer.count(items, reading.run(), wanted)
        else:
            counted = vectorizer.count_part(part, reading.run(), wanted, items)
    except NothingReadError as error:
        return Part(keep([(sp.csr_array((0, 0)), [])]), np.empty(0, np.intp), error.skipped)
    if cached:
        steps.save("histograms", fingerprint, settings, counted.pack(items))
    return _kept(counted, keep)


def _kept(counted: Histograms, keep: Any) -> Part:
    content = keep([(counted.matrix, list(counted.samples.items()))])
    return Part(content, counted.kept, counted.skipped, pooled=counted.pooled)


class _Size(NamedTuple):
    """What this process has to know of the histograms of a partition."""

    n_rows: int
    n_bytes: int
    samples: list[Any]
    kept: NDArray[np.intp]
    skipped: tuple[Skipped, ...]
    cached: bool


def _size(part: Part) -> _Size:
    ((matrix, samples),) = part.content
    # without the first of `indptr`, so that the sum of all partitions does not depend on their number
    arrays = (matrix.data, matrix.indices, matrix.indptr[1:]) if sp.issparse(matrix) else (matrix,)
    n_bytes = sum(array.nbytes for array in arrays)
    return _Size(matrix.shape[0], n_bytes, samples, part.kept, part.skipped, part.cached)
