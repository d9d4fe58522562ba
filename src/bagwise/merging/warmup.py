"""Compiling ahead of time."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from bagwise.merging.merge import merge_words
from bagwise.merging.searches import SEARCHES
from bagwise.merging.sketching.sketch_merger import SketchMerger
from bagwise.merging.word_merger import WordMerger


def warmup() -> None:
    """Compile (or load from the cache) the machine code of merging, by running it on a few numbers.

    The compiled code is kept beside the package, or in the user's cache folder where that cannot be written. Run
    this once after installing, for example when building a container image.

    Examples
    --------
    >>> import bagwise
    >>> bagwise.warmup()
    """
    X = np.random.default_rng(0).integers(0, 9, size=(8, 12)).astype(np.float64)
    y = np.arange(8) % 2
    for search in SEARCHES:
        merge_words(X, y, search=search)
    for data in (X, sp.csr_array(X)):
        merge_words(data, y, criterion="nda")
        WordMerger(n_words=3).fit(data, y).transform(data)
        SketchMerger(n_words=3).fit(data).transform(data)
    for store in ("factored", "sparse"):
        merge_words(X, y, store=store)
    merge_words(X, y, criterion="mme")
    merge_words(X, y, kernel="chi2")
