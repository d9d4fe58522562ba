"""Histograms of items over the full vocabulary, and matrices that are taken for such."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.app.modalities.steps import from_json, pack_matrix, to_json, unpack_matrix
from bagwise.errors import BagwiseError
from bagwise.sources.collection import Collection
from bagwise.sources.items import Skipped

__all__ = ["Histograms", "WordSample", "as_histograms"]


class WordSample(NamedTuple):
    """The descriptors of one item: their words, distances to the nearest, and positions in the unit square.

    Words and their weights have shape (n, k), the nearest word first; where descriptors are assigned to fewer than k
    words, the others have no weight. With several vocabularies, descriptors of the first come first.
    """

    words: NDArray[np.intp]
    weights: NDArray[np.float32]
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
    n_learned_from: int | None = None  # items that words were learned from in a fit, if not all
    pooled: NDArray[np.float32] | None = None  # of each row, what a network averages over an image, on demand

    @classmethod
    def in_order(cls, parts: Sequence[tuple[NDArray[np.intp], Histograms]]) -> Histograms:
        """Join histograms of parts of some items; of each, the numbers of its items are given, ascending.

        >>> one, two = (Histograms(np.array([[k]]), np.array([0])) for k in (1, 2))
        >>> Histograms.in_order([(np.array([3]), one), (np.array([0]), two)]).matrix.tolist()
        [[2], [1]]
        """
        import scipy.sparse as sp

        kept = np.concatenate([numbers[counted.kept] for numbers, counted in parts])
        order = np.argsort(kept)
        matrices = [counted.matrix for _, counted in parts]
        rows = sp.vstack(matrices, format="csr") if sp.issparse(matrices[0]) else np.concatenate(matrices)
        skipped: dict[int, Skipped] = {}
        for numbers, counted in parts:
            skipped |= dict(zip(np.delete(numbers, counted.kept).tolist(), counted.skipped, strict=True))
        starts = np.cumsum([0, *(len(counted.kept) for _, counted in parts)]).tolist()
        samples = {
            start + row: one
            for start, (_, counted) in zip(starts, parts, strict=False)
            for row, one in counted.samples.items()
        }
        row_of = np.argsort(order)
        by_row = {int(row_of[row]): samples[row] for row in sorted(samples, key=lambda row: row_of[row])}
        averages = [counted.pooled for _, counted in parts if counted.pooled is not None]
        pooled = np.concatenate(averages)[order] if averages else None
        return cls(rows[order], kept[order], tuple(skipped[k] for k in sorted(skipped)), by_row, pooled=pooled)

    def pack(self, items: Collection) -> dict[str, NDArray[Any]]:
        """Return arrays that `unpack` restores the histograms of `items` from."""
        left = sorted(set(range(len(items))) - set(self.kept.tolist()))
        skipped = [(k, one.reason) for k, one in zip(left, self.skipped, strict=True)]
        arrays: dict[str, NDArray[Any]] = {"kept": self.kept, "skipped": to_json(skipped)}
        for row, sample in self.samples.items():
            named = zip(WordSample._fields, sample, strict=True)
            arrays |= {f"sample {row} {name}": array for name, array in named if array is not None}
        if self.n_learned_from is not None:
            arrays["n_learned_from"] = np.array([self.n_learned_from])
        if self.pooled is not None:
            arrays["pooled"] = self.pooled
        return pack_matrix(self.matrix) | arrays

    @classmethod
    def unpack(cls, arrays: Mapping[str, NDArray[Any]], items: Collection) -> Histograms:
        """Return the histograms of `pack`."""
        skipped = tuple(Skipped(items[k].id, reason) for k, reason in from_json(arrays["skipped"]))
        rows = sorted({int(name.split()[1]) for name in arrays if name.startswith("sample ")})
        samples = {
            row: WordSample._make(arrays.get(f"sample {row} {name}") for name in WordSample._fields) for row in rows
        }
        n_learned_from = int(arrays["n_learned_from"][0]) if "n_learned_from" in arrays else None
        about: dict[str, Any] = {"n_learned_from": n_learned_from, "pooled": arrays.get("pooled")}
        return cls(unpack_matrix(arrays), arrays["kept"], skipped, samples, **about)


def as_histograms(X: Any, n_columns: int, names: tuple[str, ...] | None = None, items: str = "") -> Any:
    """Return a matrix of finite numbers, dense or CSR, of float32 if X is, otherwise of float64.

    X is a matrix, a table or a data frame. If its columns have names, they must be `names`.
    """
    import scipy.sparse as sp

    from bagwise._utils.matrices import as_format, first_not_finite

    columns = getattr(X, "columns", getattr(X, "feature_names", None))
    if names is not None and columns is not None and tuple(map(str, columns)) != names:
        missing = next((name for name in names if name not in set(map(str, columns))), None)
        surplus = next((name for name in map(str, columns) if name not in set(names)), None)
        what = "their order differs"
        if missing is not None or surplus is not None:
            what = f"{missing!r} is missing" if missing is not None else f"{surplus!r} is none of them"
        raise BagwiseError(f"The columns of X are not those the model was fitted to: {what}.")
    if isinstance(X, Collection):
        X = X.X
    matrix: Any = sp.csr_array(as_format(X, "csr")) if sp.issparse(X) else np.asarray(X)
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiub":
        raise BagwiseError(
            f"X must be a matrix of real numbers with {n_columns} columns, one per word; "
            f"got {type(X).__name__} of shape {matrix.shape} and type {matrix.dtype}."
        )
    if matrix.shape[1] != n_columns:
        hint = f" For one of the {items} itself pass a list: [it]." if items else ""
        raise BagwiseError(f"X has {matrix.shape[1]} columns, but the histograms of this model {n_columns}.{hint}")
    matrix = matrix.astype(np.float32 if matrix.dtype == np.float32 else np.float64, copy=False)
    if not sp.issparse(matrix):
        matrix = np.ascontiguousarray(matrix)
    refused = first_not_finite(matrix)
    if refused is not None:
        row, column, value = refused
        raise BagwiseError(f"X must hold finite numbers, but row {row}, column {column} is {value}.")
    return matrix
