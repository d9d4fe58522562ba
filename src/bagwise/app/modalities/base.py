"""`Modality`: what differs between images, videos, texts and tables, asked of one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.checks import as_values, checked_names, frozen
from bagwise.errors import BagwiseError

if TYPE_CHECKING:
    from bagwise.app.modalities.vectorizers import Vectorizer
    from bagwise.app.model.model import Model
    from bagwise.app.options import FitOptions
    from bagwise.sources.collection import Collection
    from bagwise.sources.items import Item

__all__ = ["Located", "Modality", "PlannedWords", "Terms", "spaced"]


class Terms(NamedTuple):
    """Words of an item, once for each cell they count in: with their cell, feature, and share of it."""

    words: NDArray[np.intp]
    cells: NDArray[np.intp]
    features: NDArray[np.intp]
    shares: NDArray[np.float64]


class Located(Protocol):
    """What is needed to find the places of words in an item."""

    def places(self, terms: Terms, contributions: NDArray[np.float64]) -> Any:
        """Divide the contributions of terms among places."""


class PlannedWords(NamedTuple):
    """What the words of some items tell of those of all."""

    vocabularies: tuple[int, ...]  # numbers of words
    per_item: float  # different words of an item, in all cells
    descriptors: tuple[str, ...] = ()
    n_vectors: float = 0.0  # of an item
    width: int = 0  # of a vector


class Modality:
    """What an item is: how it is read, its words found, weighted and checked, and how it is shown.

    There is one object for each name in `MODALITIES`. Nobody else compares names of modalities.
    """

    name: ClassVar[str]
    # items of a partition, unless `FitOptions.partition` says otherwise: some 100 MB of descriptors, or of texts
    partition_rows: ClassVar[int] = 10_000
    # a file may hold many items: what it is opened as then
    records: ClassVar[str | None] = None
    # options of reading that later sources have from the fit
    reading: ClassVar[tuple[str, ...]] = ()

    learns_words: ClassVar[bool] = False  # from descriptors, so that they have no names
    hashes_words: ClassVar[bool] = False  # names of words can be replaced by hashes
    word_title: ClassVar[str] = "Words"
    terms_by_presence: ClassVar[bool] = False  # words that tell clusters apart: by how many items have them
    clusters_by: ClassVar[str] = "hellinger"  # how words are weighted where items are clustered, see `Clusters`
    two_classes_by: ClassVar[str | None] = None  # the criterion for few groups and two classes
    tfidf: ClassVar[bool] = False  # words have TF-IDF weights; otherwise roots of relative frequencies are taken

    readable: ClassVar[bool] = False  # items are texts: they can be typed as a query, and quoted
    pictured: ClassVar[bool] = False  # items are shown as pictures
    has_files: ClassVar[bool] = False  # each item has a file
    rows: ClassVar[bool] = False  # items are rows of a table, whose values can be shown
    # items that words are learned from, of a large collection; the others are described when their words are counted
    most_learned_from: ClassVar[int] = 0
    n_sampled: ClassVar[int] = 0  # items whose descriptors are kept, for the patches of a report

    # Reading

    def decoder(self, model: Model) -> Any:
        """Return what decodes the bytes of one item that is not in a collection; see `query`."""
        raise BagwiseError(f"Items of this model are {self.name}: pick one of them as query.")

    def query(self, model: Model, content: Any, n_bytes: int) -> Item:
        """Return the item of a query from its bytes."""
        from bagwise.sources.items import Item

        return Item("query", content, self.decoder(model))

    def reader_options(self, model: Model) -> dict[str, Any]:
        """Return what `open_collection` has to know of a model."""
        return {}

    def open_frame(self, frame: Any, model: Model, **options: Any) -> Collection:
        """Open a table in memory for a model: columns that are not given are those of its fit, if they are there."""
        from bagwise.sources.frames import frame_columns, open_frame

        there, fitted = frame_columns(frame), model.options
        for name in ("image", "text", "label", "id", "split"):
            if options.get(name) is None and fitted.get(name) in there:
                options[name] = fitted[name]
        if options.get("layer") is None and fitted.get("layer") in getattr(frame, "layers", ()):
            options["layer"] = fitted["layer"]
        return open_frame(frame, self.name, **options)

    def columns(self, opened_as: str) -> tuple[str, ...]:
        """Return the options that name columns of a file."""
        return ()

    def resolve(self, options: FitOptions, collection: Collection) -> tuple[FitOptions, Collection, tuple[str, ...]]:
        """Choose what the options leave open by looking at some items; with notes on what was chosen and why."""
        return options, collection, ()

    # Words

    def vectorizer(self, options: FitOptions, *, n_classes: int = 0, n_components: int | None = None) -> Vectorizer:
        """Return the vectorizer that the options of a fit ask for.

        With `n_components`, words of images and videos are moved along a manifold of so many dimensions.
        """
        raise NotImplementedError

    def restore(self, model: Model) -> Vectorizer:
        """Return the vectorizer of a model."""
        raise NotImplementedError

    def planned_words(self, collection: Collection, options: FitOptions, n_classes: int) -> PlannedWords:
        """Read some items, and return what their words tell of those of all items."""
        raise NotImplementedError

    def check(self, model: Model) -> None:
        """Raise an error unless the parameters of words suit the modality and the size of the vocabulary."""
        from bagwise.app.modalities.texts import checked_tokenizer  # which imports this

        n = model.hierarchy.n_words
        for one in model.descriptors:
            if one.modality != self.name:
                raise BagwiseError(f"{one.name} describes {one.modality}, but the model takes {self.name}.")
        self._check_words(model)
        if model.word_hashes is not None and not self.hashes_words:
            raise BagwiseError(f"word_hashes are only for texts, but the model takes {self.name}.")
        for name, dtype in (("word_totals", np.float64), ("word_weights", np.float32), ("column_shift", np.float64)):
            if getattr(model, name) is not None:
                numbers = as_values(np.asarray(getattr(model, name)).reshape(-1, 1), dtype, name)
                model._set(**{name: frozen(numbers.ravel())})
        if model.word_weights is not None and len(model.word_weights) and model.word_weights.min() < 0:
            raise BagwiseError(f"word_weights must not be negative; the smallest is {model.word_weights.min():g}.")
        if model.column_shift is not None and not self.rows:
            raise BagwiseError(f"Only the columns of a table are shifted, but the model takes {self.name}.")
        for name in ("word_names", "word_hashes", "word_totals", "word_weights", "column_shift"):
            values = getattr(model, name)
            if values is not None and len(values) != n:
                raise BagwiseError(f"{name} must have one entry per word of the hierarchy, {n}; got {len(values)}.")
        model._set(tokenizer=checked_tokenizer(model.tokenizer))
        if model.tokenizer and not self.readable:
            raise BagwiseError(f"Only texts have a tokenizer, but the model takes {self.name}.")

    def _check_words(self, model: Model) -> None:
        """Check the words of items that are not described: there are no codebooks and no cells."""
        if model.codebook is not None:
            raise BagwiseError(f"A model of {self.name} has no codebook.")
        if model.pyramid != ((1, 1),):
            raise BagwiseError(f"{self.name} have no positions, so there is no pyramid; got {model.pyramid}.")
        if model.assignment:
            raise BagwiseError(f"Words of {self.name} are not assigned; got {model.assignment!r:.100}.")
        model._set(assignment=())
        if model.word_names is not None:
            model._set(word_names=checked_names(model.word_names, "word_names", unique=self.hashes_words))

    # Method

    def root(self, asked: str, criterion: str, n_classes: int) -> str | None:
        """Return whether square roots are taken before or after words are summed; None: words have TF-IDF weights."""
        before = criterion == "classifier" or (criterion == "csm" and n_classes == 2)
        return ("before" if before else "after") if asked == "auto" else asked

    def scaling(self, X: Any, options: FitOptions) -> Any:
        """Return how columns of measurements are brought to a common scale; None for words that are counted."""
        return None

    def baseline_of_all(self, vectorizer: Vectorizer, scaled: bool) -> str:
        """Return the name of the method with all words."""
        return "all words, Hellinger, linear SVM"

    # Answers

    def contents(self, model: Model, X: Any, n_jobs: int | None) -> tuple[Any, Sequence[Located]]:
        """Return the histograms of items, and what is needed for the places of their words, if it is known.

        X is as in `Model.histograms`, or a matrix.
        """
        return model.histograms(X, n_jobs=n_jobs), ()

    def collected(self, item: Item) -> Any:
        """Return what `Model.histograms` takes for one item."""
        from bagwise.sources.collection import Collection

        return Collection.of([item], self.name, "")

    def same(self, one: Item, other: Item) -> bool:
        """Whether two items have the same content."""
        return one.fingerprint() == other.fingerprint()

    def shown(self, item: Item) -> Any:
        """Return the content of an item that an explanation shows; None where there is nothing to see."""
        return None

    def preview(self, item: Item, side: int) -> tuple[bytes | None, str | None]:
        """Return a picture, in colour, as a JPEG file or None, and the excerpt of a text or None."""
        return None, None

    def snippet(self, item: Item, names: Sequence[str] | None) -> str | None:
        """Return the beginning of what an item holds, in a line; None where its name is all that a line can show.

        `names` are those of words.
        """
        return None

    # Files

    def graph_facts(self, model: Model) -> dict[str, Any]:
        """Return what an ONNX graph of a model does not compute, as JSON values."""
        return {}

    def device_feed(self, model: Model) -> tuple[str, str, str] | None:
        """Return what a C++ program reads, how it is called, and a remark; None if it cannot read such items."""
        return None


def spaced(collection: Collection, n: int) -> Collection:
    """Return some items, evenly spaced."""
    return collection[np.unique(np.linspace(0, len(collection) - 1, n).astype(np.intp))]
