"""`fit_model`: from a folder, an archive or a table to a model."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.errors import BagwiseError
from bagwise.merging.criteria import resolve_criterion
from bagwise.model import Head, Model
from bagwise.sources.collection import Collection
from bagwise.training.options import FitOptions
from bagwise.training.path import NORMALIZE, cross_validate, fit_head, group_words, learn_hierarchy, path_sizes
from bagwise.training.provenance import now, versions
from bagwise.training.words import Progress, WordData, learn_words, no_progress, open_source

__all__ = ["Fit", "fit_model"]

# What leaves the fewest errors at small sizes on images and texts alike, and takes the least time.
_SUPERVISED = "aib"
# Information about items is the better guide, but takes time with the square of the words.
_UNSUPERVISED = {"images": "mmi", "videos": "mmi", "table": "lpp", "texts": "lpp"}


@dataclass(frozen=True)
class Fit:
    """A model, and what is worth telling about how it was learned.

    Attributes
    ----------
    model : Model
    data : WordData
        The items it was learned from, as histograms over the full vocabulary.
    codes : ndarray of shape (n_items,), or None
        Their classes, as numbers into ``model.classes``; None if there are no classes.
    held_out : ndarray of shape (n_sizes, n_items), or None
        The class that each item was given at each size of ``model.path`` when it was held out.
    test : Collection or None
        Items kept apart: the part named test, if the source has parts; where there are classes, those with a label.
    timings : dict
        Seconds by step.
    notes : tuple of str
        What people should know: items that were left out, classes without enough items.
    """

    model: Model
    data: WordData
    codes: NDArray[np.int64] | None
    held_out: NDArray[np.int64] | None
    test: Collection | None
    timings: dict[str, float]
    notes: tuple[str, ...]


@dataclass
class _Log:
    """Times and notes, as a fit goes along."""

    timings: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.timings[step] = time.perf_counter() - started


def fit_model(source: Any, options: FitOptions | None = None, *, progress: Progress | None = None) -> Fit:
    r"""Learn words, merge them, and learn to tell classes by what is left.

    1. Words are learned by k-means from descriptors of images or videos, or are the words of texts, or the columns of
       a table. A source with parts train and test is learned from its part train.
    2. They are merged level by level; see `merge_words`.
    3. Where there are classes, linear classifiers are learned at several sizes along the path, and the errors of all
       sizes are found by cross-validation, with a hierarchy of its own in each fold. (Words of images are learned
       once, without looking at classes.)

    Parameters
    ----------
    source : Collection or path
        See `open_collection`.
    options : FitOptions, default=None
    progress : callable, default=None
        Called with the name of a step, how much of it is done, and how much there is (0 if that is not known).

    Returns
    -------
    fit : Fit

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from bagwise.training import FitOptions, fit_model
    >>> texts = {"fruit": ["ripe apple", "ripe pear", "sweet pear", "sweet apple"],
    ...          "tools": ["steel hammer", "steel saw", "sharp saw", "heavy hammer"]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "things.csv")
    ...     rows = [f"{text},{label}" for label, some in texts.items() for text in some]
    ...     _ = path.write_text("text,label\n" + "\n".join(rows))
    ...     fit = fit_model(path, FitOptions(to=2, folds=2, min_count=1))
    >>> fit.model.predict(["sweet ripe pear", "sharp steel"]).tolist()
    ['fruit', 'tools']
    """
    options = FitOptions() if options is None else options
    report = progress or no_progress
    prepared = prepare(source, options, report)
    data, classes, codes, log = prepared.data, prepared.classes, prepared.codes, prepared.log
    if options.to != "auto" and int(options.to) > data.n_words:
        raise BagwiseError(f"to={options.to}, but there are only {data.n_words} words. Give at most {data.n_words}.")
    validated = codes is not None and prepared.enough_for_folds(options)
    if options.to == "auto" and not validated:
        why = "folds=0 asks for none" if options.folds == 0 else f"that needs two classes of {options.folds} items each"
        raise BagwiseError(
            f'to="auto" chooses the number of words by cross-validation, but {why}. Give the number of words, such as '
            "to=50, or other folds."
        )
    criterion = choose_criterion(options, data.collection.modality, bool(classes))
    with log.timed("merging"):
        hierarchy = learn_hierarchy(data.whole(), codes, criterion, options.jobs, report)
    sizes = path_sizes(data.n_words, *(() if options.to == "auto" else (int(options.to),)))
    path, held_out = None, None
    if codes is not None and validated:
        with log.timed("cross-validation"):
            path, held_out = cross_validate(data, codes, sizes, criterion, options, report)
    n_groups = path.one_se if path is not None and options.to == "auto" else int(options.to)
    heads: dict[int, Head] = {}
    if codes is not None:
        with log.timed("classifiers"):
            heads = _heads(data, codes, len(classes), hierarchy, sizes, options, report)
    model = Model(
        modality=data.collection.modality,
        hierarchy=hierarchy,
        n_groups=n_groups,
        descriptor=data.descriptor,
        codebook=data.codebook,
        word_names=data.word_names,
        word_totals=np.asarray(data.whole().sum(axis=0), dtype=np.float64).ravel(),
        tokenizer=data.tokenizer,
        pyramid=data.pyramid,
        normalize=NORMALIZE,
        classes=classes,
        heads=heads,
        path=path,
        options=options.to_dict() | {"criterion": criterion, "cache": None},
        provenance=_provenance(data, codes, classes, log),
    )
    return Fit(model, data, codes, held_out, prepared.test, dict(log.timings), tuple(log.notes))


@dataclass(frozen=True)
class Prepared:
    """Items as histograms of words, and their classes."""

    data: WordData
    classes: tuple[str, ...]
    codes: NDArray[np.int64] | None
    test: Collection | None
    log: _Log

    def enough_for_folds(self, options: FitOptions) -> bool:
        """Whether every class has an item for each fold; what is missing is noted."""
        if options.folds == 0 or self.codes is None:
            return False
        counts = np.bincount(self.codes)
        if counts.min() >= options.folds:
            return True
        small = int(np.argmin(counts))
        self.log.notes.append(
            f"The class {self.classes[small]!r} has only {counts[small]} items, too few for {options.folds} folds: "
            "errors were not estimated by cross-validation."
        )
        return False


def prepare(source: Any, options: FitOptions, progress: Progress) -> Prepared:
    """Open a source, count its words and read its classes: what comes before merging."""
    log = _Log()
    opened = open_source(source, options)
    collection, test = parts_of(opened)
    n_left = len(opened) - len(collection) - (0 if test is None else len(test))
    if n_left:
        log.notes.append(f"{n_left} items are neither in the part train nor in the part test and were left out.")
    collection = _labelled_part(collection, log)
    # what is wrong is said before long work begins
    test = _test_part(test, class_names(collection, options), log)
    with log.timed("words"):
        data = learn_words(collection, options, progress)
    if data.skipped:
        first = data.skipped[0]
        log.notes.append(f"{len(data.skipped)} items could not be read, the first {first.id}: {first.reason}")
    if data.n_words < 2:
        raise BagwiseError(f"{collection.source} has {data.n_words} words; merging needs at least 2.")
    classes, codes = class_names(data.collection, options), None
    if classes:
        number = {name: k for k, name in enumerate(classes)}
        codes = np.array([number[str(item.label)] for item in data.collection], dtype=np.int64)
        _check_classes(test, classes)  # a class of which no item could be read is gone
    elif any(item.labels for item in data.collection):
        log.notes.append("All items are of one class, so words were merged without looking at classes.")
    return Prepared(data, classes, codes, test, log)


def parts_of(collection: Collection) -> tuple[Collection, Collection | None]:
    """Learn from the part train, if there is one, and keep the part test for later."""
    parts = set(collection.splits)
    if "train" not in parts:
        return collection, None
    test = collection.split("test")[0] if "test" in parts else None
    return collection.split("train")[0], test


def _test_part(test: Collection | None, classes: tuple[str, ...], log: _Log) -> Collection | None:
    """What can be tested on: items with a class; nothing, which is noted, if there are none."""
    if test is None or not classes:
        return test
    if not any(item.labels for item in test):
        log.notes.append(f"The {len(test)} items of the part test have no labels, so nothing was tested on them.")
        return None
    test = _labelled_part(test, log, " of the part test")
    _check_classes(test, classes)
    return test


def _check_classes(test: Collection | None, classes: tuple[str, ...]) -> None:
    unknown = sorted({str(item.label) for item in test or ()} - set(classes))
    if unknown:
        raise BagwiseError(
            f"The part test has items labelled {', '.join(map(repr, unknown[:3]))}, but there is nothing to learn such "
            "classes from in the part train. Put some of them there, or take them out of the part test."
        )


def _labelled_part(collection: Collection, log: _Log, where: str = "") -> Collection:
    """Leave out items without a label, if others have one; items with several are an error."""
    several = next((item for item in collection if len(item.labels) > 1), None)
    if several is not None:
        raise BagwiseError(
            f"Item {several.id!r} has {len(several.labels)} labels ({', '.join(several.labels[:3])}); a model tells "
            "items apart that have one. Give one label an item, for instance by Collection.with_labels."
        )
    has = np.array([bool(item.labels) for item in collection], dtype=np.bool_)
    if has.all() or not has.any():
        return collection
    log.notes.append(f"{int((~has).sum())} of {len(has)} items{where} have no label and were left out.")
    return collection[has]


def class_names(collection: Collection, options: FitOptions) -> tuple[str, ...]:
    """Names of the classes in order; none if there are fewer than two, an error if the criterion needs them."""
    names = tuple(sorted({item.label for item in collection if item.label is not None}))
    if len(names) >= 2:
        return names
    if options.criterion != "auto" and resolve_criterion(options.criterion).supervised:
        found = f"all {len(collection)} items are of the class {names[0]!r}" if names else "the items have no labels"
        raise BagwiseError(
            f"The criterion {options.criterion!r} keeps classes apart and needs at least two, but {found}. Put items "
            'into one folder per class, or take a criterion that needs none: "lpp", "mmi", "linkage".'
        )
    return ()


def choose_criterion(options: FitOptions, modality: str, has_classes: bool) -> str:
    if options.criterion != "auto":
        return options.criterion
    return _SUPERVISED if has_classes else _UNSUPERVISED[modality]


def _heads(
    data: WordData, codes: NDArray[np.int64], n_classes: int, hierarchy: Any, sizes: tuple[int, ...],
    options: FitOptions, report: Progress,
) -> dict[int, Head]:  # fmt: skip
    """Classifiers at every size, learned from all items."""
    heads = {}
    cells = data.histograms.shape[1] // data.n_words
    for k, size in enumerate(sizes):
        features = group_words(data.histograms, hierarchy.cut(size), size, cells)
        heads[size] = fit_head(features, codes, n_classes, options.penalty, options.seed)
        report("Learning classifiers", k + 1, len(sizes))
    return heads


def _provenance(data: WordData, codes: NDArray[np.int64] | None, classes: tuple[str, ...], log: _Log) -> dict[str, Any]:
    counts = {} if codes is None else {classes[k]: n for k, n in sorted(Counter(codes.tolist()).items())}
    return {
        "source": data.collection.source.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1],
        "n_items": len(data.collection),
        "n_skipped": len(data.skipped),
        "class_counts": counts,
        "content_hash": _content_hash(data),
        "created": now(),
        "versions": versions(),
        "seconds": {step: round(seconds, 3) for step, seconds in log.timings.items()},
    }


def _content_hash(data: WordData) -> str:
    """Hash ids, labels and histograms: what the model was learned from."""
    digest = hashlib.blake2b(digest_size=16)
    for item in data.collection:
        digest.update(repr((item.id, item.labels)).encode("utf-8", "surrogatepass"))
    rows = sp.csr_array(data.histograms)
    for array in (rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data.astype(np.float32)):
        digest.update(array.tobytes())
    return digest.hexdigest()
