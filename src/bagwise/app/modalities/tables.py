"""Tables: items are rows, and columns are words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.app.modalities.base import Located, Modality, PlannedWords, Terms
from bagwise.app.modalities.histograms import Histograms, as_histograms
from bagwise.app.modalities.vectorizers import Part, Run, Vectorizer
from bagwise.errors import BagwiseError, OptionError

if TYPE_CHECKING:
    from bagwise.app.model.model import Model
    from bagwise.app.options import FitOptions
    from bagwise.sources.collection import Collection
    from bagwise.sources.items import Item

__all__ = ["Column", "TableModality", "TableVectorizer"]

_SNIPPET = 8  # columns


class Column(NamedTuple):
    """A column of a table, its value, and its part of the score."""

    name: str
    value: float
    weight: float


class TableModality(Modality):
    """Tables of counts or measurements, such as ``.csv`` and ``.h5ad``, or matrices."""

    name = "table"
    reading = ("missing",)
    word_title = "Columns"
    clusters_by = "auto"
    rows = True

    def reader_options(self, model: Model) -> dict[str, Any]:
        """Return the columns of the model, which are found by their names."""
        return {"words": model.word_names} if model.word_names else {}

    def open_frame(self, frame: Any, model: Model, **options: Any) -> Collection:
        """Open a table in memory with the columns of the model, missing values filled as in its fit."""
        options["missing"] = options.get("missing") or model.options.get("missing")
        words = {} if model.word_names is None else {"words": model.word_names}
        return super().open_frame(frame, model, **options, **words)

    def columns(self, opened_as: str) -> tuple[str, ...]:
        """Return the options that name columns."""
        return ("label", "id", "split")

    def vectorizer(self, options: FitOptions, *, n_classes: int = 0, n_components: int | None = None) -> Vectorizer:
        """Return the vectorizer that takes columns for words."""
        from bagwise.app.options import check_options

        check_options(options, self.name)
        if n_components is not None:
            raise OptionError(
                "method",
                "method='manifold' moves words that are learned from images or videos, but the columns of a table are "
                "its words. Use 'kmeans'.",
            )
        return TableVectorizer()

    def restore(self, model: Model) -> Vectorizer:
        """Return the vectorizer of a model."""
        return TableVectorizer(model.hierarchy.n_words, model.word_names)

    def planned_words(self, collection: Collection, options: FitOptions, n_classes: int) -> PlannedWords:
        """Count columns, and values that are not zero where those are stored."""
        import scipy.sparse as sp

        X = self.vectorizer(options).fit_transform(collection).matrix
        return PlannedWords((X.shape[1],), (X.nnz if sp.issparse(X) else X.size) / len(collection))

    def scaling(self, X: Any, options: FitOptions) -> Any:
        """Find out whether columns are measurements, which are scaled (`find_scaling`), unless `root` is given."""
        from bagwise.merging.scaling import find_scaling

        return find_scaling(X) if options.root == "auto" else None

    def baseline_of_all(self, vectorizer: Vectorizer, scaled: bool) -> str:
        """Return the name of the method with all columns."""
        return "all columns, standardised, linear SVM" if scaled else super().baseline_of_all(vectorizer, scaled)

    def contents(self, model: Model, X: Any, n_jobs: int | None) -> tuple[Any, Sequence[Located]]:
        """Return the rows, whose places are columns."""
        table = model.histograms(X)
        return table, [_Row(model.word_names, table, k) for k in range(table.shape[0])]

    def collected(self, item: Item) -> Any:
        """Return a row as a matrix."""
        return values_of(item).reshape(1, -1)

    def same(self, one: Item, other: Item) -> bool:
        """Whether two rows have the same values."""
        return np.array_equal(values_of(one), values_of(other))

    def snippet(self, item: Item, names: Sequence[str] | None) -> str | None:
        """Return the values of the first columns."""
        values = values_of(item)
        some = [f"{f'x{k}' if names is None else names[k]} {value:g}" for k, value in enumerate(values[:_SNIPPET])]
        return ", ".join([*some, *(["…"] if len(values) > _SNIPPET else [])])

    def graph_facts(self, model: Model) -> dict[str, Any]:
        """Return the names of columns."""
        return {} if model.word_names is None else {"columns": list(model.word_names)}

    def device_feed(self, model: Model) -> tuple[str, str, str] | None:
        """Return what a C++ program reads."""
        return (
            f"rows of a table, lines of CSV with {model.hierarchy.n_words:,} numbers",
            "build/classify rows.csv",
            "A first line with names of columns says where those of the model are; others are left out.",
        )


class TableVectorizer(Vectorizer):
    """Take the columns of a table as words. `fit_transform` sets their number and names."""

    modality = "table"

    def __init__(self, n_words: int = 0, word_names: Sequence[str] | None = None) -> None:
        self.n_words = n_words
        self.word_names = None if word_names is None else tuple(word_names)

    def read_part(self, X: Any, run: Run, keep: Callable[[Iterable[Any]], Iterable[Any]] = list) -> Part:
        """Check that the rows hold finite numbers, and none below 0 if they are sparse."""
        import scipy.sparse as sp

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


def values_of(item: Item) -> NDArray[np.float64]:
    """Return the values of a row."""
    row = item.load()
    return np.asarray(row.toarray() if hasattr(row, "toarray") else row, dtype=np.float64).ravel()


@dataclass(frozen=True)
class _Row:
    names: Sequence[str] | None
    table: Any
    number: int

    def places(self, terms: Terms, contributions: NDArray[np.float64]) -> list[Column]:
        row = self.table[[self.number]]
        values = (row.toarray() if hasattr(row, "toarray") else np.asarray(row))[0]
        names = [f"x{k}" for k in range(len(values))] if self.names is None else self.names
        sums = np.bincount(terms.words, contributions, len(values))
        return [Column(str(names[k]), float(values[k]), float(sums[k])) for k in np.unique(terms.words)]
