"""From a collection to histograms over the full vocabulary."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise.codebooks.bag_of_features import BagOfFeatures
from bagwise.codebooks.pyramids import resolve_pyramid
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection
from bagwise.sources.items import Skipped, SkippedItemsWarning
from bagwise.sources.opening import open_collection
from bagwise.sources.tables import TableCollection
from bagwise.training.options import FitOptions, make_descriptor

__all__ = ["Progress", "WordData", "check_options", "learn_words", "no_progress", "open_source"]

# Called with the name of a step, how much of it is done, and how much there is (0: not known).
Progress = Callable[[str, int, int], None]

IMAGE_WORDS = 1000
TEXT_WORDS = 20_000
_BATCH = 32
_SEEN, _READ = ("images", "videos"), ("texts",)
_ONLY_FOR = {
    "descriptor": _SEEN,
    "step": _SEEN,
    "patch": _SEEN,
    "min_count": _READ,
    "stop_words": _READ,
    "ngrams": _READ,
}
_TOKEN = r"(?u)\b\w\w+\b"


def no_progress(step: str, done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class WordData:
    """Items as histograms over the full vocabulary, and what made them.

    Attributes
    ----------
    collection : Collection
        The items that could be read, in the order of the rows.
    histograms : CSR array or ndarray of shape (n_items, n_cells * n_words)
    n_words : int
    descriptor, codebook, word_names, tokenizer, pyramid
        As in `Model`.
    skipped : tuple of Skipped
        Items that could not be read.
    """

    collection: Collection
    histograms: Any
    n_words: int
    descriptor: Any
    codebook: NDArray[np.float32] | None
    word_names: tuple[str, ...] | None
    tokenizer: dict[str, Any]
    pyramid: tuple[tuple[int, int], ...]
    skipped: tuple[Skipped, ...]

    def whole(self) -> Any:
        """Histograms of whole items: the cells of the first grid added up."""
        rows, columns = self.pyramid[0]
        cells = [self.histograms[:, k * self.n_words : (k + 1) * self.n_words] for k in range(rows * columns)]
        return sum(cells[1:], start=cells[0])


def open_source(source: Any, options: FitOptions) -> Collection:
    """Open what a fit is asked to learn from.

    Parameters
    ----------
    source : Collection or path
    options : FitOptions
        `kind`, `text`, `label`, `encoding` and `descriptor` say how to read it.

    Returns
    -------
    collection : Collection
    """
    if isinstance(source, Collection):
        return source
    asked = {name: getattr(options, name) for name in ("text", "label", "encoding")}
    given = {name: value for name, value in asked.items() if value is not None}
    if options.descriptor == "color-sift":
        given["mode"] = "rgb"
    return open_collection(source, options.kind, **given)


def check_options(options: FitOptions, items: str) -> None:
    """Say that an option would do nothing with such items."""
    if options.pyramid is not None and items != "images":
        raise BagwiseError(f"A pyramid is laid over images, but these are {items}. Leave pyramid out.")
    for name, kinds in _ONLY_FOR.items():
        if items not in kinds and getattr(options, name) != getattr(FitOptions, name):
            raise BagwiseError(f"{name} is for {' and '.join(kinds)}, but these are {items}. Leave {name} out.")


def learn_words(collection: Collection, options: FitOptions, progress: Progress) -> WordData:
    """Learn words, unless the items come with their own, and count them.

    Parameters
    ----------
    collection : Collection
    options : FitOptions
    progress : callable

    Returns
    -------
    data : WordData
    """
    if not len(collection):
        raise BagwiseError(f"{collection.source} has no items to learn from.")
    check_options(options, collection.modality)
    if isinstance(collection, TableCollection):
        return _table_words(collection, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedItemsWarning)  # told by `skipped`
        if collection.modality == "texts":
            return _text_words(collection, options, progress)
        return _visual_words(collection, options, progress)


def _visual_words(collection: Collection, options: FitOptions, progress: Progress) -> WordData:
    descriptor = make_descriptor(options, collection.modality)
    encoder = BagOfFeatures(
        options.words or IMAGE_WORDS,
        pyramid=options.pyramid,
        normalize=None,
        sparse_output=True,
        n_init=1,
        random_state=options.seed,
        n_jobs=options.jobs,
    )

    describing: Any = None
    describe = f"Describing {collection.modality}"

    def batches(step: str) -> Iterator[Any]:
        nonlocal describing
        describing = descriptor.iter_transform(collection, batch_size=_BATCH, on_error=options.on_error)
        for bags in describing:
            progress(step, len(describing.kept) + len(describing.skipped), len(collection))
            yield bags
        if step == describe:
            progress(f"Learning {encoder.n_words} words", 0, 0)

    encoder.fit(batches(describe))
    histograms = encoder.transform(batches("Counting words"))
    return WordData(
        collection=collection[np.array(describing.kept)],
        histograms=histograms,
        n_words=encoder.n_words,
        descriptor=descriptor,
        codebook=encoder.codebook_,
        word_names=None,
        tokenizer={},
        pyramid=resolve_pyramid(options.pyramid),
        skipped=tuple(describing.skipped),
    )


def _text_words(collection: Collection, options: FitOptions, progress: Progress) -> WordData:
    from bagwise.descriptors.words import WordCounts

    kept: list[int] = []
    number_of = {id: number for number, id in enumerate(collection.ids)}
    loading = collection.load(options.on_error)

    def texts() -> Iterator[str]:
        for item, text in loading:
            kept.append(number_of[item.id])
            if len(kept) % _BATCH == 0 or len(kept) == len(collection):
                progress("Counting words", len(kept), len(collection))
            yield text

    tokenizer = {
        "lowercase": True,
        "token_pattern": _TOKEN,
        "ngram_range": [1, options.ngrams],
        "stop_words": options.stop_words,  # n-grams reach over them, so that the model must leave them out as well
    }
    counter = WordCounts(
        **tokenizer | {"ngram_range": (1, options.ngrams)},
        min_df=min(options.min_count, len(collection)),
        max_features=options.words or TEXT_WORDS,
    )
    try:
        counts = counter.fit_transform(texts())
    except BagwiseError:
        raise
    except ValueError as error:  # what scikit-learn says of a vocabulary without words
        raise BagwiseError(
            f"The {len(kept)} texts of {collection.source} have no word that occurs in {options.min_count} of them. "
            "Give more texts, or a smaller min_count."
        ) from error
    names = tuple(map(str, counter.get_feature_names_out()))
    return WordData(
        collection=collection[np.array(kept)],
        histograms=sp.csr_array(counts, dtype=np.float32),
        n_words=len(names),
        descriptor=None,
        codebook=None,
        word_names=names,
        tokenizer=tokenizer,
        pyramid=((1, 1),),
        skipped=tuple(loading.skipped),
    )


def _table_words(collection: TableCollection, options: FitOptions) -> WordData:
    if options.words is not None:
        raise BagwiseError("The columns of a table are its words; words does not apply. Leave it out.")
    X = collection.X
    values = X.data if sp.issparse(X) else X
    if values.size and not np.isfinite(values).all():
        raise BagwiseError(f"{collection.source} holds NaN or infinity; words are counted by finite numbers.")
    if values.size and values.min() < 0:
        raise BagwiseError(
            f"{collection.source} holds negative numbers (the smallest is {values.min():g}), but counts of words are "
            "never negative. Leave such columns out, or use WordMerger from Python, which takes any numbers."
        )
    return WordData(
        collection=collection,
        histograms=sp.csr_array(X, dtype=np.float32) if sp.issparse(X) else np.asarray(X, np.float32),
        n_words=X.shape[1],
        descriptor=None,
        codebook=None,
        word_names=None if collection.feature_names is None else tuple(collection.feature_names),
        tokenizer={},
        pyramid=((1, 1),),
        skipped=(),
    )
