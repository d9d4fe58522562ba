"""`LBPD5`: histograms of the 65,536 patterns of 16 neighbours, which are very sparse."""

from __future__ import annotations

from numbers import Integral
from os import PathLike
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from bagwise.bags.bags import offsets_of
from bagwise.descriptors.base import Arrays, Describing, ItemTransformer
from bagwise.descriptors.grids import centres_in_unit_square, starts_of
from bagwise.descriptors.patterns import as_comparable, pattern_codes
from bagwise.descriptors.sparse_bags import SparseBags
from bagwise.errors import unknown_name

__all__ = ["LBPD5"]

N_PATTERNS = 1 << 16
RADIUS = 2


class LBPD5(ItemTransformer):
    """Count local binary patterns of 5 x 5 pixels: 65,536 of them, as sparse histograms of images or of patches.

    Bit b of a pixel's pattern is 1 if neighbour b is at least as bright as the pixel; the neighbours are the 16 pixels
    on the border of the 5 x 5 window around it, from top left clockwise, the first one being the lowest bit.

    Parameters
    ----------
    per : {"image", "patch"}, default="image"
        One histogram per image, or one per square patch on a regular grid.
    patch : int, default=16
        Side of a patch in pixels. Patterns are counted whose 5 x 5 window is in the patch, ``(patch - 4)²`` of them.
    step : int, default=8
        Pixels between neighbouring patches. The grid is centred in the image.
    n_jobs, verbose, cache
        As in `DenseSIFT`.

    See Also
    --------
    PatternWords : Groups of patterns that look alike.
    LocalBinaryPatterns : 256 patterns of 8 neighbours.

    Notes
    -----
    Nothing changes if all grey values are changed by the same strictly increasing function. Colour images are converted
    to grey. An image smaller than 5 x 5 pixels has a histogram of zeros; smaller than a patch, an empty bag.

    Time O(H W) per image, plus O(patch² log patch) per patch. With 16 x 16 pixels a patch has at most 144 entries that
    are not zero, so its row takes about a kilobyte; the same row in dense form would take 256. Rows of patches are the
    local features that HDLF-II reduces to some hundred numbers and encodes by VLAD.

    References
    ----------
    T. Ojala, M. Pietikäinen, T. Mäenpää, "Multiresolution gray-scale and rotation invariant texture classification with
    local binary patterns", TPAMI 24(7), 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import LBPD5
    >>> image = np.random.default_rng(0).integers(0, 256, (24, 36), dtype=np.uint8)
    >>> X = LBPD5().transform([image, image[:20], np.ones((9, 9))])
    >>> X.shape, X.sum(axis=1)
    ((3, 65536), array([640, 512,  25]))
    >>> LBPD5(per="patch").transform([image])
    <SparseBags: 1 bags, 6 rows x 65536 features of int32, 736 stored, with positions>
    """

    _parameter_constraints: ClassVar[dict] = {
        **ItemTransformer._parameter_constraints,
        "per": [StrOptions({"image", "patch"})],
        "patch": [Interval(Integral, 2 * RADIUS + 1, None, closed="left")],
        "step": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        per: str = "image",
        *,
        patch: int = 16,
        step: int = 8,
        n_jobs: int | None = None,
        verbose: int = 0,
        cache: str | PathLike[str] | None = None,
    ) -> None:
        self.per = per
        self.patch = patch
        self.step = step
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.cache = cache

    def transform(self, X: Any, on_error: str = "raise") -> sp.csr_array | SparseBags:
        """Count the patterns of all images.

        Parameters
        ----------
        X : Collection, or iterable of arrays
            Images, at least one.
        on_error : {"raise", "skip"}, default="raise"
            What to do when an image cannot be read: stop with an `ItemError`, or leave it out and warn.

        Returns
        -------
        counts : CSR array of int32, shape (n_images, 65536), or SparseBags
            Per image, or, with ``per="patch"``, one bag of rows per image. In the order of the images.
        """
        return self._join(list(self._stream(X, on_error)))

    def iter_transform(self, X: Any, batch: int = 64, on_error: str = "raise") -> Describing:
        """Count patterns batch by batch, never holding more than one batch and a few images.

        Parameters
        ----------
        X : Collection, or iterable of arrays
            Images, at least one.
        batch : int, default=64
            Images in one result. The last one may have fewer.
        on_error : {"raise", "skip"}, default="raise"
            As in `transform`.

        Returns
        -------
        describing : Describing
            An iterator over what `transform` gives. Its ``kept`` and ``skipped`` tell which images there were.
        """
        return Describing(self._stream(X, on_error), batch, self._join)

    def _compute(self, content: Any) -> Arrays:
        image = as_comparable(content)
        codes = pattern_codes(image, RADIUS)
        if self.per == "image":
            counts = np.bincount(codes.ravel(), minlength=N_PATTERNS).astype(np.int32)
            patterns = np.flatnonzero(counts)
            starts = np.array([0, len(patterns)])
            return {"starts": starts, "patterns": patterns.astype(np.int32), "counts": counts[patterns]}
        if self.per != "patch":
            raise unknown_name("per", self.per, ("image", "patch"))
        return _count_patches(codes, int(self.patch), int(self.step), *image.shape)

    def _join(self, items: list[Arrays]) -> sp.csr_array | SparseBags:
        """Put the rows of all items below one another."""
        n_entries = np.concatenate([np.diff(arrays["starts"]) for arrays in items])
        rows = sp.csr_array(
            (
                np.concatenate([arrays["counts"] for arrays in items]),
                np.concatenate([arrays["patterns"] for arrays in items]),
                offsets_of(n_entries),
            ),
            shape=(len(n_entries), N_PATTERNS),
        )
        if self.per == "image":
            return rows
        offsets = offsets_of([len(arrays["starts"]) - 1 for arrays in items])
        return SparseBags(rows, offsets, np.concatenate([arrays["positions"] for arrays in items]))


def _count_patches(codes: NDArray[np.uint16], patch: int, step: int, height: int, width: int) -> Arrays:
    from bagwise.descriptors._pattern_kernels import count_in_patches

    rows, columns = starts_of(height, patch, step), starts_of(width, patch, step)
    n_patches, side = len(rows) * len(columns), patch - 2 * RADIUS
    starts = np.zeros(n_patches + 1, np.int64)
    patterns, counts = np.empty(n_patches * side**2, np.int32), np.empty(n_patches * side**2, np.int32)
    n_entries = 0
    if n_patches:
        n_entries = count_in_patches(codes, rows, columns, side, starts, patterns, counts)
    positions = centres_in_unit_square(rows + patch / 2, columns + patch / 2, height, width)
    return {
        "starts": starts,
        "patterns": patterns[:n_entries].copy(),
        "counts": counts[:n_entries].copy(),
        "positions": positions,
    }
