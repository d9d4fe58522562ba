"""`WindowCodes`: local features of high dimension, from codes of descriptors pooled inside windows."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from bagwise._compat import N_JOBS, HasMethods, Interval
from bagwise.bags.bags import offsets_of
from bagwise.codebooks import _kernels as kernels
from bagwise.codebooks.encoders import localized_codes
from bagwise.codebooks.kmeans import learn_codebook
from bagwise.codebooks.pyramids import cell_numbers, n_cells, resolve_pyramid
from bagwise.descriptors.base import ItemTransformer
from bagwise.descriptors.describing import Arrays
from bagwise.descriptors.images import starts_of
from bagwise.descriptors.sift import ColorSIFT
from bagwise.descriptors.sparse_bags import SparseBags
from bagwise.sources.items import ItemIterator

__all__ = ["WindowCodes"]


class WindowCodes(ItemTransformer):
    """Describe windows of an image by the words in their parts: sparse local features of high dimension (HDLF-I).

    1. Descriptors of the image are assigned to their nearest words (localized soft assignment).
    2. In windows on a regular grid, codes are max-pooled over each cell of a small pyramid.

    With 1000 words and the pyramid of five cells a window has 5000 numbers, most of them zero. They are meant to be
    reduced, by `SketchMerger` for instance, and encoded again.

    Parameters
    ----------
    descriptor : Descriptor, default=None
        Gives values and positions of an image. None: `ColorSIFT` with its defaults.
    n_words : int, default=1000
    window : int, default=40
        Side of a window in pixels.
    step : int, default=16
        Pixels between neighbouring windows. The grid is centred in the image.
    pyramid : None, 5, 8, 21 or list of (rows, columns), default=5
        Cells of a window, as in `BagOfFeatures`.
    n_neighbors : int, default=5
        Number of words a descriptor is assigned to.
    sharpness : float, default=10.0
        Codes are ``exp(-sharpness |x - word|²)``, divided by their sum.
    n_samples : int, default=100_000
        Descriptors that words are learned from.
    n_init : int, default=1
        Starts of k-means.
    random_state : int, Generator, RandomState or None, default=None
    n_jobs, verbose
        As in `DenseSIFT`.

    Attributes
    ----------
    codebook_ : ndarray of shape (n_words, D)

    See Also
    --------
    LBPD5 : With ``per="patch"``, the sparse local features of HDLF-II.

    Notes
    -----
    A descriptor belongs to a window if its centre does. An image smaller than a window gives an empty bag.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.codebooks import WindowCodes
    >>> from bagwise.descriptors import DenseSIFT
    >>> images = [np.random.default_rng(i).integers(0, 256, (64, 80), dtype=np.uint8) for i in range(3)]
    >>> bags = WindowCodes(DenseSIFT(), n_words=20, random_state=0).fit_transform(images)
    >>> len(bags), bags.n_rows, bags.n_features
    (3, 18, 100)
    """

    _parameter_constraints: ClassVar[dict] = {
        "descriptor": [HasMethods(["describe", "iter_transform"]), None],
        "n_words": [Interval(Integral, 1, None, closed="left")],
        "window": [Interval(Integral, 1, None, closed="left")],
        "step": [Interval(Integral, 1, None, closed="left")],
        "pyramid": [Interval(Integral, 1, None, closed="left"), "array-like", None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "sharpness": [Interval(Real, 0, None, closed="neither")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "n_jobs": list(N_JOBS),
        "verbose": ["verbose"],
    }
    cache = None  # descriptors may have one of their own

    def __init__(
        self,
        descriptor: Any = None,
        n_words: int = 1000,
        *,
        window: int = 40,
        step: int = 16,
        pyramid: Any = 5,
        n_neighbors: int = 5,
        sharpness: float = 10.0,
        n_samples: int = 100_000,
        n_init: int = 1,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.descriptor = descriptor
        self.n_words = n_words
        self.window = window
        self.step = step
        self.pyramid = pyramid
        self.n_neighbors = n_neighbors
        self.sharpness = sharpness
        self.n_samples = n_samples
        self.n_init = n_init
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _descriptor(self) -> Any:
        return ColorSIFT() if self.descriptor is None else self.descriptor

    def fit(self, X: Any, y: Any = None, on_error: str = "raise") -> Self:  # type: ignore[override]
        """Learn the words.

        Parameters
        ----------
        X : Collection, or iterable of arrays
            Images, at least one.
        y : ignored
        on_error : {"raise", "skip"}, default="raise"
            What to do when an image cannot be read.

        Returns
        -------
        self : WindowCodes
        """
        self._check_parameters()
        resolve_pyramid(self.pyramid)
        self.codebook_ = learn_codebook(
            self._descriptor().iter_transform(X, on_error=on_error),
            self.n_words,
            n_samples=self.n_samples,
            n_init=self.n_init,
            random_state=self.random_state,
            n_jobs=self.n_jobs,
        )
        return self

    def _iterate(self, X: Any, on_error: str, **batches: Any) -> ItemIterator:
        check_is_fitted(self, "codebook_")
        return super()._iterate(X, on_error, **batches)

    def _compute(self, content: Any) -> Arrays:
        height, width = np.shape(content)[:2]
        values, positions = self._descriptor().describe(content)
        codes = localized_codes(values, self.codebook_, self.n_neighbors, self.sharpness)
        centres = np.asarray(positions) * (width, height)
        corners = [
            (x, y) for y in starts_of(height, self.window, self.step) for x in starts_of(width, self.window, self.step)
        ]
        places = np.array(corners, dtype=np.float64).reshape(-1, 2)
        grids = resolve_pyramid(self.pyramid)
        largest = np.empty((n_cells(grids), codes.shape[1]))  # code of each word in each cell of a window
        columns, values = [], []
        for corner in places:
            inside = np.flatnonzero(np.all((centres >= corner) & (centres < corner + self.window), axis=1))
            cells, some = cell_numbers((centres[inside] - corner) / self.window, len(inside), grids), codes[inside]
            largest[:] = 0
            kernels.pool_sparse(some.indptr, some.indices, some.data, cells, True, largest)
            columns.append(np.flatnonzero(largest))
            values.append(largest.ravel()[columns[-1]])
        return {
            "starts": offsets_of([len(found) for found in columns]),
            "columns": np.concatenate([np.empty(0, np.int64), *columns]),
            "values": np.concatenate([np.empty(0), *values]).astype(np.float32),
            "positions": ((places + 0.5 * self.window) / (width, height)).astype(np.float32),
        }

    def _join(self, items: Iterable[Arrays]) -> SparseBags:
        items = list(items)
        lengths = [len(item["starts"]) - 1 for item in items]
        counts = np.concatenate([np.diff(item["starts"]) for item in items])
        data, columns = (np.concatenate([item[name] for item in items]) for name in ("values", "columns"))
        width = n_cells(resolve_pyramid(self.pyramid)) * len(self.codebook_)
        rows = sp.csr_array((data, columns, offsets_of(counts)), shape=(len(counts), width))
        return SparseBags(rows, offsets_of(lengths), np.concatenate([item["positions"] for item in items]))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "codebook_")
