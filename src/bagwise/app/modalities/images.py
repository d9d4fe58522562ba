"""Images: words are learned from descriptors of places, and shown on the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.app.modalities.base import Located, Terms
from bagwise.app.modalities.visual import VisualModality

if TYPE_CHECKING:
    from bagwise.app.modalities.histograms import WordSample
    from bagwise.app.model.model import Model
    from bagwise.app.options import FitOptions
    from bagwise.sources.collection import Collection
    from bagwise.sources.items import Item

__all__ = ["ImageModality", "Patch"]


class Patch(NamedTuple):
    """A square of an image in pixels, x and y of its upper left corner, and its part of the score."""

    x: float
    y: float
    side: float
    weight: float


class ImageModality(VisualModality):
    """Files of images, or arrays."""

    name = "images"
    partition_rows = 64
    most_learned_from = 5000
    default_descriptor = "sift"
    pictured = True
    n_sampled = 80

    def decoder(self, model: Model) -> Any:
        """Return what decodes an image, in colour if a descriptor needs that."""
        from bagwise.sources.media import ImageDecoder

        return ImageDecoder("rgb" if any(one.color for one in model.descriptors) else "grey")

    def resolve(self, options: FitOptions, collection: Collection) -> tuple[FitOptions, Collection, tuple[str, ...]]:
        """Choose the descriptor, and read images in colour if it needs that; see `choose_descriptor`."""
        from bagwise.app.training.choosing import choose_descriptor

        return choose_descriptor(options, collection)

    def _sizes(self, descriptor: Any, options: FitOptions) -> dict[str, Any]:
        return {"max_side": options.max_side or None}

    def contents(self, model: Model, X: Any, n_jobs: int | None) -> tuple[Any, Sequence[Located]]:
        """Return the histograms of images, and their descriptors, whose places are patches; bags have none."""
        from bagwise.sources.collection import Collection

        if isinstance(X, list) and X and np.ndim(X[0]) in (2, 3) and isinstance(X[0], np.ndarray):
            sizes = [image.shape[:2] for image in X]
        else:
            sizes = [item.load().shape[:2] for item in X] if isinstance(X, Collection) else []
        if not model.codebooks or not sizes:
            return super().contents(model, X, n_jobs)
        counted = model.vectorizer.transform(X, n_jobs=n_jobs, n_samples=len(sizes))
        return counted.matrix, [_Image(model, counted.samples[k], size) for k, size in enumerate(sizes)]

    def shown(self, item: Item) -> Any:
        """Return the image, in colour."""
        from bagwise.sources.media import in_color

        return in_color(item).load()

    def preview(self, item: Item, side: int) -> tuple[bytes | None, str | None]:
        """Return the image as a JPEG file."""
        from bagwise.display.pictures import photograph

        return photograph(self.shown(item), side), None

    def device_feed(self, model: Model) -> tuple[str, str, str] | None:
        """Return what a C++ program reads."""
        return (
            "images in PNM files of bytes (P5 grey, P6 colour)",
            "convert photo.jpg photo.ppm && build/classify photo.ppm",
            "Larger images are shrunk to the size that the model was fitted with. Python decodes large JPEG files at a "
            "smaller size at once, so that pixels, and now and then an answer, differ from those of a file that was "
            "converted first.",
        )


@dataclass(frozen=True)
class _Image:
    model: Model
    sample: WordSample
    size: tuple[int, int]  # height and width in pixels

    def places(self, terms: Terms, contributions: NDArray[np.float64]) -> list[Patch]:
        from bagwise.codebooks.pyramids import cell_numbers

        words, shares, _, positions = self.sample
        if positions is None:
            return []
        model, (height, width) = self.model, self.size
        d = model.hierarchy.n_words
        cells = cell_numbers(positions, len(words), model.pyramid)
        # of each descriptor, grid, and word
        columns = cells[:, :, np.newaxis] * d + words[:, np.newaxis]
        parts = np.broadcast_to(shares[:, np.newaxis], columns.shape).astype(np.float64)
        sums = np.bincount(terms.cells * d + terms.words, contributions, model.layout.n_columns)
        counts = np.bincount(columns.ravel(), parts.ravel(), len(sums))
        per_count = np.divide(sums, counts, out=np.zeros(len(sums)), where=counts > 0)
        weights = (per_count[columns] * parts).sum(axis=(1, 2))
        vocabulary_of = model.layout.vocabulary_of[words[:, 0]]
        of_each = np.bincount(vocabulary_of, minlength=len(model.layout.vocabularies))
        sides = sides_of(model, of_each, height, width)
        corners = positions * (width, height) - sides[:, np.newaxis] / 2
        return [
            Patch(float(x), float(y), float(side), float(weight))
            for (x, y), side, weight in zip(corners, sides, weights, strict=True)
        ]


def sides_of(model: Model, counts: NDArray[np.intp], height: int, width: int) -> NDArray[np.float64]:
    """Return the sides of all patches of an image of this size, which may have been shrunk to be described.

    `counts` has the number of patches of each vocabulary. Descriptors of several scales describe a grid for each.
    """
    from bagwise.descriptors.base import DEFAULT_SIDE

    if not model.descriptors:
        return np.full(counts.sum(), float(DEFAULT_SIDE))
    each = zip(model.descriptors, counts.tolist(), strict=True)
    return np.concatenate([one.sides(height, width, n) for one, n in each])
