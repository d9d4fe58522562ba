"""From a source to histograms of words and classes: all of a fit that comes before merging."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.memory import readable_size
from bagwise._utils.text import agree, how_many
from bagwise.app.modalities import MODALITIES
from bagwise.app.modalities.steps import StepCache
from bagwise.app.modalities.vectorizers import Vectorizer, WordSample
from bagwise.app.options import FitOptions
from bagwise.app.training.few_labels import helps_unlabelled
from bagwise.app.training.items import first_labels, open_source, step_cache
from bagwise.app.training.known_items import KnownItems
from bagwise.app.training.parts import count_parts
from bagwise.app.training.relabelling import read_relabelling, relabelled
from bagwise.app.training.rows import PartedRows, exceeds, sample_items
from bagwise.app.training.seen import item_hashes
from bagwise.codebooks.pyramids import WordLayout
from bagwise.distributed.executors import Executor
from bagwise.errors import BagwiseError, argument, parameter_name
from bagwise.merging.criteria import NAMED_CRITERIA, resolve_criterion
from bagwise.sources.collection import Collection
from bagwise.sources.items import Skipped
from bagwise.sources.limits import as_limits

__all__ = [
    "FitLog",
    "Opened",
    "Prepared",
    "WordData",
    "class_names",
    "enough_for_folds",
    "open_training",
    "prepare",
    "split_source",
    "vectorize",
]

# Items that cannot be read stop a fit if they are at least so many, and more than this part of all.
_MANY, _PART = 5, 0.2
# Numbers that may be labels, however they are; items of each in the mean where they are more, and whole.
_MOST_NUMBERS, _TIMES = 20, 10


@dataclass(frozen=True)
class WordData:
    """Items as histograms over the full vocabulary, with the fitted vectorizer.

    `collection` has the items that could be read, in the order of the rows of `histograms`, a CSR array or ndarray of
    shape (n_items, n_columns). The other fields are those of `bagwise.app.modalities.vectorizers.Histograms`.
    """

    collection: Collection
    histograms: Any
    vectorizer: Vectorizer
    skipped: tuple[Skipped, ...] = ()
    samples: Mapping[int, WordSample] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    rows: PartedRows | None = None  # histograms of all items, if those here are a sample of them
    n_learned_from: int | None = None  # items that words were learned from, if not all
    pooled: NDArray[np.float32] | None = None  # what a network averages over each image, for a baseline
    known_hashes: tuple[NDArray[np.int64], int] | None = None  # see `AddedWords`

    @property
    def n_words(self) -> int:
        """Size of the vocabulary."""
        return self.vectorizer.n_words

    def first(self, n: int) -> WordData:
        """Return the first items alone."""
        if n == len(self.collection):
            return self
        samples = {item: one for item, one in self.samples.items() if item < n}
        pooled = None if self.pooled is None else self.pooled[:n]
        collection = self.collection[np.arange(n)]
        return replace(self, collection=collection, histograms=self.histograms[:n], samples=samples, pooled=pooled)

    @property
    def layout(self) -> WordLayout:
        """The columns of histograms."""
        return self.vectorizer.layout

    @cached_property
    def item_hashes(self) -> NDArray[np.int64]:
        """Hashes of the words of each item, see `item_hashes`."""
        return item_hashes(self.histograms)

    def whole(self) -> Any:
        """Return histograms of whole items, see `WordLayout.whole`."""
        return self.layout.whole(self.histograms)


@dataclass
class FitLog:
    """Times and notes of a fit."""

    timings: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the seconds of a ``with`` block to those of a stage."""
        started = time.perf_counter()
        yield
        self.timings[stage] = self.timings.get(stage, 0.0) + time.perf_counter() - started


@dataclass(frozen=True)
class Prepared:
    """Items as histograms of words, and their classes."""

    data: WordData
    classes: tuple[str, ...]
    codes: NDArray[np.int64] | None
    test: Collection | None
    log: FitLog
    options: FitOptions  # with the descriptor of the images
    notes: tuple[str, ...]  # on what the descriptor was chosen by
    steps: StepCache | None = None  # results of earlier runs

    def enough_for_folds(self, options: FitOptions) -> bool:
        """Whether every class has items to train on and to test on; adds notes on small classes."""
        return self.codes is not None and enough_for_folds(self.codes, self.classes, options, self.log)


def enough_for_folds(codes: NDArray[np.int64], classes: tuple[str, ...], options: FitOptions, log: FitLog) -> bool:
    """Whether every class has items to train on and to test on; adds notes on small classes to the log."""
    if options.folds == 0:
        return False
    counts = np.bincount(codes, minlength=len(classes))
    small = int(np.argmin(counts))
    has = f"The class {classes[small]!r} has {counts[small]} item{'s' if counts[small] > 1 else ''}"
    if counts[small] < 2:
        log.notes.append(f"{has}, so errors were not estimated by cross-validation. Add items, or leave it out.")
    elif counts[small] < options.folds:
        log.notes.append(f"{has}, fewer than there are folds: its errors are rough estimates.")
    return bool(counts[small] >= 2)


@dataclass(frozen=True)
class Opened:
    """The items of a fit, before they are read."""

    collection: Collection  # to learn from
    test: Collection | None
    options: FitOptions  # with the descriptor of the images
    log: FitLog
    notes: tuple[str, ...]  # on what the descriptor was chosen by


def open_training(
    source: Any,
    options: FitOptions,
    executor: Executor | None = None,
    use_classes: bool = True,
    unlabelled: bool = False,
    known: KnownItems | None = None,
) -> Opened:
    """Open a source and find what to learn from and what to test with; no item is read but a few for their colours.

    Without `use_classes`, that is all items, whatever their labels and splits. With `unlabelled`, items without a label
    come behind those that have one, where they help; see `helps_unlabelled`. With `known` items, of which the source
    may have some, these are learned from as well.
    """
    log = FitLog()
    options = options if known is None else known.options_for(options)
    opened = open_source(source, options, executor) if known is None else known.open(source, options, executor)
    log.notes.extend(opened.notes)
    if options.relabel is not None:
        corrected = read_relabelling(options.relabel, as_limits(options.limits))
        opened, note = relabelled(opened, corrected, options.relabel)
        log.notes.append(f"{note}.")
    if not use_classes:
        class_names(opened, options, use_classes)
        options, collection, notes = MODALITIES[opened.modality].resolve(options, opened)
        return Opened(collection, None, options, log, notes)
    collection, test = split_source(opened)
    n_left = len(opened) - len(collection) - (0 if test is None else len(test))
    if n_left:
        is_left, was = agree(n_left, "is", "are"), agree(n_left, "was", "were")
        left = f"{how_many(n_left, 'items')} {is_left} neither in the split train nor in the split test"
        log.notes.append(f"{left} and {was} not used.")
    collection = _labelled(collection, log, options if unlabelled else None)
    # errors come before long work begins
    test = _test_split(test, class_names(collection, options), log)
    if known is not None:
        return Opened(collection, test, options, log, ())
    options, collection, notes = MODALITIES[collection.modality].resolve(options, collection)
    return Opened(collection, test, options, log, notes)


def prepare(
    source: Any,
    options: FitOptions,
    executor: Executor,
    use_classes: bool = True,
    n_components: int | None = None,
    unlabelled: bool = False,
    known: KnownItems | None = None,
) -> Prepared:
    """Open a source, count its words and read its classes: all that comes before merging.

    Items are read and counted in partitions, where the executor runs them. Without `use_classes`, labels and splits of
    items are left alone. With `n_components`, words are moved along a manifold, see `Modality.vectorizer`. With
    `unlabelled`, there may be items without a label behind those that `codes` are of. The words of `known` items are
    kept.
    """
    opened = open_training(source, options.for_source(source), executor, use_classes, unlabelled, known)
    collection, test, options, log = opened.collection, opened.test, opened.options, opened.log
    steps = step_cache(options, executor.progress)
    n_classes = len(class_names(collection, options, use_classes))
    if known is None:
        data = vectorize(collection, options, executor, steps, n_classes, n_components)
    else:
        with log.timed("counting words"):
            data = _added(known, collection, options, executor, log)
    data = replace(data, skipped=(*collection.skipped, *data.skipped))
    log.timings.update(data.seconds)
    if data.skipped:
        first, n_all = data.skipped[0], len(data.collection) + len(data.skipped)
        n = len(data.skipped)
        some = f"{n} of {n_all} items could not be read and {agree(n, 'was', 'were')} skipped"
        if options.on_error is None and n >= _MANY and n > _PART * n_all:
            raise BagwiseError(
                f"{n} of {n_all} items could not be read, more than a fifth; the first is {first.id}: "
                f"{first.reason.rstrip('.')}. Correct them, give the {argument('encoding')} of texts, or go on without "
                f"them by {argument('on_error', 'skip')}."
            )
        log.notes.append(f"{some}. {first.id}: {first.reason}")
    if data.n_learned_from is not None:
        log.notes.append(
            f"Words were learned from {data.n_learned_from:,} of {len(collection):,} {collection.modality}, chosen at "
            "random; they are counted in all."
        )
    if len(data.collection) < 2:
        about = "".join(f" {note}" for note in collection.notes)  # such as: the file was read as one text
        raise BagwiseError(f"{collection.source} has 1 item that can be read; learning needs at least 2.{about}")
    if data.n_words < 2:
        raise BagwiseError(f"{collection.source} has {how_many(data.n_words, 'words')}; merging needs at least 2.")
    classes, codes = class_names(data.collection, options, use_classes), None
    if classes:
        codes = data.collection.codes_in(classes)
        codes = codes[codes >= 0]  # others come last
        _check_classes(test, classes)  # all items of a class may have been skipped
    elif use_classes and data.collection.classes:
        log.notes.append("All labels are of one class, so words were merged without using classes.")
    if data.rows is not None:
        data, codes = _sampled(data, data.rows, codes, classes, options, log)
    return Prepared(data, classes, codes, test, log, options, opened.notes, steps)


def _sampled(
    data: WordData, rows: PartedRows, codes: Any, classes: tuple[str, ...], options: FitOptions, log: FitLog
) -> tuple[WordData, Any]:
    """Take a sample of the items for what needs items; the histograms of all stay where they are."""
    n, labels = len(data.collection), first_labels(data.collection)
    rows = rows.labelled(data.collection.ids, labels, codes, len(classes))
    chosen = sample_items(data.collection.ids, codes, rows.counted, options)
    log.notes.append(
        f"The histograms of {n:,} items take {readable_size(sum(rows.counted.n_bytes))}, more than this process may "
        f"hold ({parameter_name('memory_limit')}): words and classifiers are learned from sums over all items, and "
        f"errors and report are those of a sample of {len(chosen):,} items."
    )
    row_of = {int(item): row for row, item in enumerate(chosen)}
    samples = {row_of[row]: one for row, one in data.samples.items()}
    sample = replace(data, collection=data.collection[chosen], histograms=rows.sample(chosen), samples=samples)
    return replace(sample, rows=rows), None if codes is None else codes[chosen]


def _added(known: KnownItems, collection: Collection, options: FitOptions, executor: Executor, log: FitLog) -> WordData:
    """Return the words of known items and of others, by the vocabulary that there is."""
    added = known.count(collection, options, executor, MODALITIES[collection.modality].n_sampled)
    counted = added.counted
    log.notes.append(added.note)
    read = collection if len(counted.kept) == len(collection) else collection[counted.kept]
    about = (read, counted.matrix, known.model.vectorizer, counted.skipped, counted.samples)
    return WordData(*about, known_hashes=added.hashes)


def vectorize(
    collection: Collection,
    options: FitOptions,
    executor: Executor,
    steps: StepCache | None = None,
    n_classes: int = 0,
    n_components: int | None = None,
) -> WordData:
    """Fit a vectorizer to a collection; every item is read once."""
    if not len(collection):
        raise BagwiseError(f"{collection.source} has no items to learn from.")
    vectorizer = MODALITIES[collection.modality].vectorizer(options, n_classes=n_classes, n_components=n_components)
    pooled = n_classes > 0 and options.folds > 0  # for a baseline in cross-validation
    n_samples = MODALITIES[collection.modality].n_sampled
    how: dict[str, Any] = {"n_samples": n_samples, "pooled": pooled, "steps": steps}
    counted = count_parts(vectorizer, collection, options, executor, **how)
    read = collection if len(counted.kept) == len(collection) else collection[counted.kept]
    about = (read, None, vectorizer, counted.skipped, counted.samples, counted.seconds)
    data = WordData(*about, n_learned_from=counted.n_learned_from)
    if not exceeds(counted, options):
        histograms = counted.histograms(executor)
        return replace(data, histograms=histograms.matrix, pooled=histograms.pooled)
    return replace(data, rows=PartedRows(executor, counted, vectorizer.layout))


def split_source(collection: Collection) -> tuple[Collection, Collection | None]:
    """Return the splits train and test, or the whole collection and None if it has no split train."""
    names = set(collection.splits)
    if "train" not in names:
        return collection, None
    return collection.split("train")[0], collection.split("test")[0] if "test" in names else None


def _test_split(test: Collection | None, classes: tuple[str, ...], log: FitLog) -> Collection | None:
    """Return the labelled items of the test split; None, with a note, if there are none."""
    if test is None or not classes:
        return test
    if not test.classes:
        n = len(test)
        log.notes.append(
            f"The split test has no labels: {how_many(n, 'items')} of it {agree(n, 'was', 'were')} not used."
        )
        return None
    test = _labelled(test, log, None, " of the split test")
    _check_classes(test, classes)
    return test


def _check_classes(test: Collection | None, classes: tuple[str, ...]) -> None:
    unknown = [] if test is None else sorted(set(test.labels.tolist()) - set(classes))
    if unknown:
        raise BagwiseError(
            f"The split test has items labelled {', '.join(map(repr, unknown[:3]))}, but the split train has none. "
            "Add some to the split train, or remove them from the split test."
        )


def _labelled(collection: Collection, log: FitLog, options: FitOptions | None, where: str = "") -> Collection:
    """Put items without a label last if `options` say that they help, else leave them out; refuse several labels."""
    several = collection.several()
    if several is not None:
        raise BagwiseError(
            f"Item {several.id!r} has {len(several.labels)} labels ({', '.join(several.labels[:3])}), but a model "
            "predicts one. Fit a model for each label, with a file that says for each item whether it has it: "
            f"{argument('labels', 'LABEL.csv')}, with columns filename and label."
        )
    has = collection.n_labels > 0
    if has.all() or not has.any():
        return collection
    if options is not None and len(collection.classes) == 1:  # nothing is learned from classes
        return collection
    if options is not None and helps_unlabelled(collection, options):
        return collection[np.concatenate([np.flatnonzero(has), np.flatnonzero(~has)])]
    n, left = int((~has).sum()), f"of {how_many(len(has), 'items')}{where}"
    log.notes.append(f"{n} {left} {agree(n, 'has no label and was', 'have no label and were')} not used.")
    return collection[has]


def _check_numbers(names: tuple[str, ...], collection: Collection) -> None:
    """Raise an error if labels are rather measurements: many numbers, with fractions or of few items each.

    Whole numbers that count from 0 or 1 are numbers of classes.
    """
    n = len(names)
    if n <= _MOST_NUMBERS:
        return
    try:
        values = sorted(map(float, names))
    except ValueError:
        return
    whole = all(value.is_integer() for value in values)
    counted = whole and values[0] in (0, 1) and values[-1] - values[0] == n - 1
    if counted or (whole and len(collection) >= _TIMES * n):
        return
    raise BagwiseError(
        f"The labels are {n} different numbers, from {values[0]:g} to {values[-1]:g}: measurements, not classes. Make "
        "a few classes of them, such as low, middle and high, use a regression for the numbers themselves, or choose "
        f"another column by {argument('label')}. If they are names of classes, write them as such, as in c17."
    )


def class_names(collection: Collection, options: FitOptions, use_classes: bool = True) -> tuple[str, ...]:
    """Return the sorted names of at least two classes, or (); raise an error if the criterion needs classes."""
    names = collection.classes if use_classes else ()
    _check_numbers(names, collection)
    if len(names) >= 2:
        return names
    if options.criterion != "auto" and resolve_criterion(options.criterion).supervised:
        why = f"all {len(collection)} items are of the class {names[0]!r}" if names else "the items have no labels"
        why = why if use_classes else "labels are not used here"
        unsupervised = ", ".join(f'"{name}"' for name, known in NAMED_CRITERIA.items() if not known.supervised)
        raise BagwiseError(
            f"The criterion {options.criterion!r} needs at least two classes, but {why}. Put items into one folder "
            f"per class, or use an unsupervised criterion: {unsupervised}."
        )
    return ()
