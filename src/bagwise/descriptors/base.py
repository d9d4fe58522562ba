"""Base classes of descriptors: parameters, caching, and putting vectors of items together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from os import PathLike
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from bagwise.bags.bags import Bags
from bagwise.descriptors.cache import ArrayCache
from bagwise.descriptors.describing import Arrays, arrays_of, compute_each, join_bags, n_bytes
from bagwise.descriptors.images import shrink
from bagwise.descriptors.registry import EXECUTION, parameter_constraints
from bagwise.errors import BagwiseError
from bagwise.sources.collection import as_items
from bagwise.sources.items import ItemIterator

__all__ = ["Descriptor", "ItemTransformer"]


class ItemTransformer(TransformerMixin, BaseEstimator, ABC, auto_wrap_output_keys=None):  # type: ignore[call-arg]
    """Base of transformers that compute arrays from each item of a collection or a list.

    A subclass has the parameters `n_jobs`, `verbose` and `cache`, and a method ``_compute(content)`` that returns the
    arrays of an item by name. The arrays depend only on the item and the other parameters. `_compute` runs in threads.
    With a parameter `max_side`, larger images are shrunk before.
    """

    modality: ClassVar[str] = "images"
    _parameter_constraints: ClassVar[dict] = parameter_constraints()

    n_jobs: int | None
    verbose: int
    cache: str | PathLike[str] | None
    max_side: int | None = None

    @abstractmethod
    def _compute(self, content: Any) -> Arrays:
        """Compute the arrays of one item, by name."""

    @property
    def _image_side(self) -> int | None:
        """The side that images are shrunk to. Videos are shrunk frame by frame."""
        return self.max_side if self.modality == "images" else None

    def _arrays(self, content: Any) -> Arrays:
        """Compute the arrays of one item at the size it is described at."""
        return self._compute(content if self._image_side is None else shrink(content, self._image_side))

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Check the parameters; nothing is learned.

        Parameters
        ----------
        X : ignored
        y : ignored

        Returns
        -------
        self
        """
        self._check_parameters()
        return self

    def _check_parameters(self) -> None:
        """Check the parameters, once before any item is read."""
        self._validate_params()

    def _settings(self) -> dict[str, Any]:
        """Return the parameters that results depend on, by name, as caches and model files write them down."""
        return {name: value for name, value in self.get_params(deep=False).items() if name not in EXECUTION}

    @abstractmethod
    def _join(self, items: Iterable[Arrays]) -> Any:
        """Join the arrays of several items into one result."""

    def transform(self, X: Any, on_error: str = "raise") -> Any:
        """Describe all items.

        Parameters
        ----------
        X : Collection, or iterable of arrays
            Items to describe, at least one.
        on_error : {"raise", "skip"}, default="raise"
            Whether an item that cannot be read or described raises an `ItemError`, or is skipped with a warning. Use
            `iter_transform` to know which items were kept.

        Returns
        -------
        described : Bags or CSR array
            One bag or row per item, in the order of the items. An image too small for any descriptor is an empty bag.
        """
        return self._join(self._iterate(X, on_error))

    def iter_transform(self, X: Any, batch_size: int = 64, on_error: str = "raise") -> ItemIterator:
        """Describe items batch by batch, with one batch and a few items in memory.

        Parameters
        ----------
        X : Collection, or iterable of arrays
            Items to describe, at least one.
        batch_size : int, default=64
            Number of items in a batch. The last one may have fewer, and so may those of more than 64 MiB.
        on_error : {"raise", "skip"}, default="raise"
            As in `transform`.

        Returns
        -------
        iterator : ItemIterator
            Yields what `transform` returns. Its ``kept`` and ``skipped`` list the items: ``collection[iterator.kept]``.
        """
        return self._iterate(X, on_error, batch_size=batch_size, join=self._join)

    def _iterate(self, X: Any, on_error: str, **batches: Any) -> ItemIterator:
        """Iterate over the arrays of items."""
        self._check_parameters()
        items, source = as_items(X, self.modality)
        caches = [self._cache()]

        def compute(item: Any) -> Arrays:
            return compute_each([self], caches, item)[0]

        task = type(self).__name__ if self.verbose else None
        return ItemIterator(
            items, compute, source, on_error=on_error, n_jobs=self.n_jobs, size=n_bytes, task=task, **batches
        )

    def _cache(self) -> ArrayCache | None:
        if self.cache is None:
            return None
        return ArrayCache(self.cache, settings_of(self))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True  # X is not a matrix
        return tags


def settings_of(descriptor: ItemTransformer) -> dict[str, Any]:
    """Return name and parameters of a descriptor: all that its results depend on beside the item."""
    return {"name": f"{type(descriptor).__module__}.{type(descriptor).__qualname__}", **descriptor._settings()}


class Descriptor(ItemTransformer):
    """Base of transformers from items to bags of vectors: local descriptors of images, videos, texts.

    A subclass assigns its parameters in ``__init__`` (`n_jobs`, `verbose` and `cache` among them), lists them in
    ``_parameter_constraints``, and has a method ``_describe(content)``. It returns values of shape (n, D), and
    positions of shape (n, 2) in the unit square or None. n may be 0; D must not depend on the item. It raises
    `BagwiseError` for an item that cannot be described. ``modality`` is the modality of the collections it takes.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.descriptors import Descriptor
    >>> class Brightness(Descriptor):
    ...     def __init__(self, *, n_jobs=None, verbose=0, cache=None):
    ...         self.n_jobs, self.verbose, self.cache = n_jobs, verbose, cache
    ...
    ...     def _describe(self, content):
    ...         return np.array([[content.mean(), content.std()]]), np.array([[0.5, 0.5]])
    >>> Brightness().transform([np.zeros((4, 4)), np.ones((2, 3))]).values
    array([[0., 0.],
           [1., 0.]], dtype=float32)
    """

    @abstractmethod
    def _describe(self, content: Any) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Compute values and positions of one item."""

    def describe(self, content: Any) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
        """Describe one image (or video, or text).

        Parameters
        ----------
        content : array of shape (height, width) or (height, width, 3)
            Grey or RGB image of any numeric type. Descriptors of videos and texts take these instead.

        Returns
        -------
        values : ndarray of float32, shape (n, D)
        positions : ndarray of float32, shape (n, 2), or None
            x and y of each descriptor in the unit square.
        """
        arrays = self._arrays_of_one(content)
        return arrays["values"], arrays.get("positions")

    def _arrays_of_one(self, content: Any) -> Arrays:
        self._check_parameters()
        try:
            return self._arrays(content)
        except BagwiseError as error:
            raise BagwiseError(f"{type(self).__name__} cannot describe this: {error}.") from error

    def _compute(self, content: Any) -> Arrays:
        return arrays_of(*self._describe(content))

    def _join(self, items: Iterable[Arrays]) -> Bags:
        """Concatenate the arrays of items, one bag per item."""
        return join_bags(items)
