"""From partitions of a collection to histograms of words, on any executor: what a fit does before merging.

1. Each partition is read once: texts are split into words, images are described, of many images only those that words
   are learned from. What was read stays where it is.
2. Partitions give sums (occurrences of words) or samples (of descriptors), which are joined in a tree.
3. Words are learned from these in this process.
4. Each partition counts its words, from what was read in the first step. Images that were not described before are
   described now, and their descriptors are not kept.

Images to learn from are chosen by hashes of their ids. A sample of descriptors is the one of all these images read one
after the other: each descriptor has the random number of its place, which a partition finds by skipping as many numbers
as there are descriptors before it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.app.modalities import MODALITIES
from bagwise.app.model.histograms import Histograms
from bagwise.app.model.steps import StepCache, from_json, pack_matrix, to_json, unpack_matrix
from bagwise.app.model.vectorizers import Part, Progress, Run, TextVectorizer, Vectorizer, no_progress
from bagwise.app.model.visual import N_SAMPLED_VECTORS, sampled_items
from bagwise.app.options import FitOptions
from bagwise.app.training.provenance import versions
from bagwise.distributed.executors import Executor
from bagwise.sources.collection import Collection
from bagwise.sources.items import NothingReadError, Skipped
from bagwise.sources.partitions import Partition

__all__ = ["CountedParts", "Reading", "count_parts", "partitions_of", "stacked", "transform_parts"]
__all__ += ["transform_rows"]

_SLACK = 6.0  # standard deviations by which more descriptors are sampled than are needed


def partitions_of(collection: Collection, n_items: int | None = None) -> list[Partition]:
    """Split a collection into consecutive partitions, which do not depend on the number of workers."""
    return collection.partitions(items_per_partition=n_items or MODALITIES[collection.modality].partition_rows)


@dataclass(frozen=True)
class Reading:
    """How the items of a partition are read; what of it was finished is kept in `cache`."""

    on_error: str
    cache: Any
    versions: dict[str, str]
    pooled: bool = False

    @classmethod
    def of(cls, options: FitOptions, pooled: bool = False) -> Reading:
        """Take what applies of the options of a fit; `pooled` is that of `Run`."""
        return cls(options.on_error or "skip", options.cache, versions(), pooled)

    def run(self) -> Run:
        """Return how one thread reads; partitions are read by several workers at a time."""
        return Run(on_error=self.on_error, n_jobs=1, pooled=self.pooled)

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
    seconds: dict[str, float]
    n_learned_from: int | None = None


def count_parts(
    vectorizer: Vectorizer,
    collection: Collection,
    options: FitOptions,
    executor: Executor,
    *,
    n_samples: int = 0,
    pooled: bool = False,
    progress: Progress = no_progress,
    steps: StepCache | None = None,
) -> CountedParts:
    """Learn the words of a collection and count them, partition by partition; sets the vocabulary of `vectorizer`."""
    partitions = partitions_of(collection, options.partition)
    sizes = [int(one.n_items or 0) for one in partitions]
    reading, keep = Reading.of(options, pooled), type(executor).keep
    n = len(partitions)
    times = [time.perf_counter()]
    texts = isinstance(vectorizer, TextVectorizer)
    shared = executor.share((vectorizer, reading, keep))
    step = "Reading" if not len(getattr(vectorizer, "vocabularies", ())) else "Describing"
    learned_from = vectorizer.items_to_learn_from(collection)
    read, vectors = _read_all(executor, shared, partitions, learned_from, step, collection)
    if learned_from is not None and vectors.sum(axis=0)[:, 1].min() < N_SAMPLED_VECTORS:
        learned_from = None  # too few descriptors: words are learned from all items
        read, vectors = _read_all(executor, shared, partitions, None, step, collection)
    times.append(time.perf_counter())
    summary = _summary_of_all(vectorizer, executor, shared, list(read.values()), vectors)
    run = Run(on_error=options.on_error or "skip", n_jobs=options.n_jobs, progress=progress, steps=steps)
    vectorizer.learn(summary, run, collection.source, vectors.sum(axis=0))
    times.append(time.perf_counter())
    shared = executor.share((vectorizer, reading, keep))
    wanted = _wanted(partitions, len(collection), n_samples)
    unread = Part((), np.empty(0, np.intp), chosen=np.empty(0, np.intp))
    ordered = [read.get(k, unread) for k in range(n)]
    del read
    rows = executor.map(_count, [shared] * n, partitions, ordered, wanted, step="Counting words", sizes=sizes)
    del ordered
    counted = executor.gather(executor.map(_size, rows))
    times.append(time.perf_counter())
    names = ("counting words",) * 3 if texts else ("describing", "learning words", "counting words")
    seconds: dict[str, float] = {}
    for name, spent in zip(names, np.diff(times).tolist(), strict=True):
        seconds[name] = seconds.get(name, 0.0) + spent
    n_rows, n_bytes = [one.n_rows for one in counted], [one.n_bytes for one in counted]
    kept, skipped = _numbered([(one.kept, one.skipped) for one in counted], partitions)
    n_learned_from = None if learned_from is None else len(learned_from)
    return CountedParts(rows, n_rows, n_bytes, kept, skipped, _samples(counted), seconds, n_learned_from)


def _read_all(
    executor: Executor, shared: Any, partitions: Sequence[Any], items: Any, step: str, collection: Collection
) -> tuple[dict[int, Any], NDArray[np.int64]]:
    """Read chosen items, or all, of the partitions that have some.

    Returns handles by the numbers of partitions, and how many vectors each of them has of each vocabulary, and how many
    that are not zero.
    """
    chosen: list[Any] = [None] * len(partitions) if items is None else _inside(items, partitions)
    to_read = [k for k, some in enumerate(chosen) if some is None or len(some)]
    sizes = [partitions[k].n_items if chosen[k] is None else len(chosen[k]) for k in to_read]
    given = ([shared] * len(to_read), [partitions[k] for k in to_read], [chosen[k] for k in to_read])
    read = executor.map(_read, *given, step=f"{step} {collection.modality}", sizes=sizes)
    heads = executor.gather(executor.map(_head, read))
    if items is None and not any(len(head[0]) for head in heads):
        raise NothingReadError([one for head in heads for one in head[1]], collection.source)
    vectors = np.array([head[2] for head in heads], np.int64).reshape(len(heads), -1, 2)
    return dict(zip(to_read, read, strict=True)), vectors


def transform_parts(
    vectorizer: Vectorizer, collection: Collection, options: FitOptions, executor: Executor, n_samples: int = 0
) -> Histograms:
    """Count the words of a collection with the vocabulary that there is, as `Vectorizer.transform` does."""
    partitions = partitions_of(collection, options.partition)
    wanted = _wanted(partitions, len(collection), n_samples)
    rows, heads = transform_rows(vectorizer, partitions, Reading.of(options), executor, wanted)
    kept, skipped = _numbered(heads, partitions)
    if not len(kept):
        raise NothingReadError(skipped, collection.source)
    counted = executor.gather(executor.map(_size, rows))
    return Histograms(stacked(executor, rows), kept, skipped, _samples(counted))


def transform_rows(
    vectorizer: Vectorizer,
    partitions: Sequence[Any],
    reading: Reading,
    executor: Executor,
    wanted: Sequence[list[int]] | None = None,
) -> tuple[list[Any], list[Any]]:
    """Return handles of the histograms of partitions, and for each the items that could be read and those that not."""
    n, sizes = len(partitions), [int(one.n_items or 0) for one in partitions]
    shared = executor.share((vectorizer, reading, type(executor).keep))
    given = [[]] * n if wanted is None else wanted
    rows = executor.map(_transform, [shared] * n, partitions, given, step="Counting words", sizes=sizes)
    return rows, executor.gather(executor.map(_head, rows))


def _samples(counted: Sequence[_Size]) -> dict[int, Any]:
    """Number the samples of items by rows of all partitions."""
    starts = np.concatenate([[0], np.cumsum([found.n_rows for found in counted])]).tolist()
    return {start + row: one for start, found in zip(starts, counted, strict=False) for row, one in found.samples}


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


def pooled_features(executor: Executor, counted: CountedParts) -> NDArray[np.float32] | None:
    """Bring the pooled features of all items into this process, if there are some."""
    found = [one for one in executor.gather(executor.map(_pooled, counted.rows)) if one is not None]
    return np.concatenate(found) if found else None


def _pooled(part: Part) -> NDArray[np.float32] | None:
    return part.pooled


def _wanted(partitions: Sequence[Any], n_items: int, n_samples: int) -> list[list[int]]:
    """Return the items of each partition that samples are wanted of."""
    chosen = np.array(sorted(sampled_items(n_items, n_samples)), np.intp)
    return [some.tolist() for some in _inside(chosen, partitions)]


def _inside(items: NDArray[np.intp], partitions: Sequence[Any]) -> list[Any]:
    """Return those of some items, ascending, that are in each partition, by their numbers there."""
    starts = [one.start for one in partitions]
    parts = np.split(items, np.searchsorted(items, starts[1:]))
    return [own - start for own, start in zip(parts, starts, strict=True)]


def _numbered(heads: Sequence[Any], partitions: Sequence[Any]) -> tuple[NDArray[np.intp], tuple[Skipped, ...]]:
    """Return the items that could be read, by their numbers in the whole collection, and those that could not."""
    kept = np.concatenate([head[0] + one.start for head, one in zip(heads, partitions, strict=True)])
    return kept.astype(np.intp), tuple(one for head in heads for one in head[1])


def _summary_of_all(vectorizer: Vectorizer, executor: Executor, shared: Any, parts: Any, vectors: Any) -> Any:
    """Join the summaries of partitions; those of descriptors hold few more than are needed."""
    n, totals = len(parts), vectors.sum(axis=0)
    before = np.concatenate([np.zeros_like(vectors[:1]), np.cumsum(vectors, axis=0)[:-1]])[:, :, 0].tolist()
    needed = np.minimum(totals[:, 1], N_SAMPLED_VECTORS)
    limits = np.minimum(1.0, (needed + _SLACK * np.sqrt(needed) + _SLACK) / np.maximum(totals[:, 1], 1))
    while True:
        found = executor.map_reduce(
            _summary, vectorizer.join, [shared] * n, parts, before, [limits.tolist()] * n, step="Sampling words"
        )
        short = [len(found[k][0]) < needed[k] for k in range(len(needed))]
        if not any(short):
            return found
        limits = np.where(short, 1.0, limits)


def _read(shared: Any, partition: Any, chosen: NDArray[np.intp] | None) -> Part:
    vectorizer, reading, keep = shared
    items, steps = partition.open(), reading.steps()
    if chosen is not None:  # others are read when words are counted: then items are hashed
        return dataclasses.replace(vectorizer.read_part(items[chosen], reading.run(), keep), chosen=chosen)
    if steps is None or vectorizer._settings() is None:
        return vectorizer.read_part(items, reading.run(), keep)
    fingerprint = steps.fingerprint(items)  # while they are read anyway: counting finds earlier results by it
    if not isinstance(vectorizer, TextVectorizer):  # descriptors have a cache of their own
        return dataclasses.replace(vectorizer.read_part(items, reading.run(), keep), fingerprint=fingerprint)
    settings = {"tokenizer": vectorizer.tokenizer, "on_error": reading.on_error}
    held = steps.load("read", items, settings, "words")
    if held is not None:
        skipped = tuple(Skipped(items[k].id, reason) for k, reason in from_json(held["skipped"]))
        content = keep([(from_json(held["words"]), unpack_matrix(held))])
        return Part(content, held["kept"], skipped, fingerprint=fingerprint)
    part = vectorizer.read_part(items, reading.run(), list)
    ((words, counts),) = part.content
    left = sorted(set(range(len(items))) - set(part.kept.tolist()))
    reasons = [(k, one.reason) for k, one in zip(left, part.skipped, strict=True)]
    arrays = pack_matrix(sp.csr_array(counts)) | {"words": to_json(words), "skipped": to_json(reasons)}
    steps.save("read", items, settings, arrays | {"kept": part.kept})
    return dataclasses.replace(part, content=keep(part.content), fingerprint=fingerprint)


def _head(part: Part) -> tuple[Any, ...]:
    return part.kept, part.skipped, part.sizes


def _summary(shared: Any, part: Part, before: Any, limits: Any) -> Any:
    return shared[0].summary(part, before, limits)


def _count(shared: Any, partition: Any, part: Part, wanted: list[int]) -> Part:
    """Count the words of a partition, unless an earlier run has done so."""
    vectorizer, reading, keep = shared
    steps, settings = reading.steps(), vectorizer._settings()
    cached = steps is not None and settings is not None
    items: Any = partition.open() if cached or part.chosen is not None else None
    if not cached:
        found = vectorizer.count_part(part, reading.run(), wanted, items)
    else:
        if part.fingerprint is not None:
            steps.remember(items, part.fingerprint)
        settings |= {"on_error": reading.on_error, "wanted": wanted, "learned": vectorizer.fingerprint()}
        settings["pooled"] = reading.pooled
        held = steps.load("part", items, settings, "histograms")
        if held is None:
            found = vectorizer.count_part(part, reading.run(), wanted, items)
            steps.save("part", items, settings, found.pack(items))
        else:
            found = Histograms.unpack(held, items)
    return _kept(found, keep)


def _transform(shared: Any, partition: Any, wanted: list[int]) -> Part:
    vectorizer, reading, keep = shared
    steps = reading.steps()
    run = dataclasses.replace(reading.run(), steps=steps, cache=reading.cache)
    try:
        if wanted:  # samples are of some of all items, not of some of each partition
            part = vectorizer.read_part(partition.open(), run)
            return _kept(vectorizer.count_part(part, run, wanted), keep)
        return _kept(vectorizer.transform(partition.open(), **{f.name: getattr(run, f.name) for f in _RUN}), keep)
    except NothingReadError as error:
        return Part(keep([(sp.csr_array((0, 0)), [])]), np.empty(0, np.intp), error.skipped)


_RUN = dataclasses.fields(Run)


def _kept(found: Histograms, keep: Any) -> Part:
    return Part(keep([(found.matrix, list(found.samples.items()))]), found.kept, found.skipped, pooled=found.pooled)


class _Size(NamedTuple):
    """What this process has to know of the histograms of a partition."""

    n_rows: int
    n_bytes: int
    samples: list[Any]
    kept: NDArray[np.intp]
    skipped: tuple[Skipped, ...]


def _size(part: Part) -> _Size:
    ((matrix, samples),) = part.content
    # without the first of `indptr`, so that the sum of all partitions does not depend on their number
    arrays = (matrix.data, matrix.indices, matrix.indptr[1:]) if sp.issparse(matrix) else (matrix,)
    return _Size(matrix.shape[0], sum(array.nbytes for array in arrays), samples, part.kept, part.skipped)
