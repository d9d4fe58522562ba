"""`Sketch`: a small signature of each feature of a stream of samples."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from bagwise._io.tensors import FileKind, header_field, tensor
from bagwise._utils.checks import check_integer
from bagwise._utils.hashing import PER_SEED
from bagwise._utils.matrices import as_format, canonical, first_not_finite
from bagwise._utils.memory import readable_size, resolve_limit
from bagwise._utils.threads import run_over_ranges
from bagwise.errors import BagwiseError
from bagwise.merging.neighbors import ExactNeighbors

__all__ = ["Sketch", "reverse_neighbors"]

MOST_HASHES = 1 << 16
_FILE = FileKind(
    "bagwise.Sketch",
    {
        "n_features": header_field("integer"),
        "size": header_field("integer"),
        "n_hashes": header_field("integer"),
        "seed": header_field("integer"),
        "dtype": header_field("string"),
        "first_sample": header_field("integer"),
        "n_samples": header_field("integer", low=0, high=2**53),
        "from_neighbors": header_field("boolean"),
    },
    {
        "sums": tensor("float32 float64", "n_features", "size", finite=True),
        "coefficient_sums": tensor("int64", "size"),
        "totals": tensor("float64", "n_features", finite=True),
        "n_active": tensor("int64", "n_features", low=0),
        "smallest": tensor("float64", "n_features"),
        "largest": tensor("float64", "n_features"),
    },
)
# Samples are added in blocks whose coefficients take this much: a larger block reads rows of features less often, a
# smaller one fits the cache.
_BLOCK_BYTES = 4 * 2**20
# Features per task of a thread.
_FEATURES = 2048


class Sketch:
    """A signature of `size` numbers for each feature of a stream of samples, for comparing and clustering features.

    Sample i is added with a random sign to some of the `size` columns: ``S[f, row_m(i)] += sign_m(i) X[i, f]`` for each
    of the hashes m. The expectation over seeds of the inner product of two rows of the signature is `n_hashes` times
    that of the centred columns of X. Samples are read once and not kept.

    Parameters
    ----------
    n_features : int
        Number of columns of the data.
    size : int, default=256
        Length of the signature of a feature. The error of inner products is proportional to ``1/√size``.
    n_hashes : int, default=30
        Number of columns that each sample is added to; signs are added where hashes collide.
    seed : int, default=0
        Seed of the hashes, below 2³².
    first_sample : int, default=0
        Index in the stream of the first sample, for sketches of parts of a stream.
    dtype : {"float32", "float64"}, default="float32"
        Type of the ``n_features * size`` numbers of the signature. See the notes for data with a large offset.

    Attributes
    ----------
    n_samples : int
        Number of samples added so far.
    totals : ndarray of shape (n_features,)
        Sum of each feature.
    n_active : ndarray of shape (n_features,)
        Number of samples in which each feature is not zero.
    from_neighbors : bool
        Whether it holds sums over neighbours or classes of samples, as `SketchMerger` forms them, instead of samples.

    Notes
    -----
    For sample i, counted from the beginning of the stream, and hash m, with SplitMix64's output function ``mix`` and
    all in 64-bit integers, the column is ``mix(z) mod size`` and the sign is the highest bit (0 for 1, 1 for -1) of
    ``mix(z + 0x243F6A8885A308D3)``, where ``z = i + 0x6A09E667F3BCC909 seed + 0xB7E151628AED2A6B m``. So results
    depend neither on the platform nor on how the stream is split into chunks, to the last bit. Sums of sketches
    (``a + b``) add parts in another order: they are identical for integers, and equal up to rounding otherwise.

    Adding samples costs O(size) for each non-zero value: all columns are updated in one vectorised step, which is
    faster than updating a few of them.

    Features are centred after summing, so that an offset which is large compared with the standard deviation costs
    precision. In float32, for 4000 samples, the signature of a feature whose mean is 10³ times its standard deviation
    has a relative error of 4·10⁻⁴, at 10⁵ times of 4 %, and at 10⁷ times it is noise. Use ``dtype="float64"`` then
    (2·10⁻¹⁰ at 10⁵), or subtract the offset. `totals` and `constant` are computed from the values as given, whatever
    the dtype.

    References
    ----------
    L. Liu, L. Wang, "A scalable unsupervised feature merging approach to efficient dimensionality reduction of
    high-dimensional visual data", ICCV 2013. K. Weinberger et al., "Feature hashing for large scale multitask
    learning", ICML 2009.

    Examples
    --------
    >>> import numpy as np
    >>> from bagwise.merging import Sketch
    >>> X = np.random.default_rng(0).integers(0, 5, (100, 8)).astype(float)
    >>> whole = Sketch(8, size=16).update(X)
    >>> early, late = Sketch(8, size=16).update(X[:60]), Sketch(8, size=16, first_sample=60).update(X[60:])
    >>> early + late == whole            # many parts, in their order: sum(parts)
    True
    >>> whole.signature().shape
    (8, 16)
    """

    def __init__(
        self,
        n_features: int,
        size: int = 256,
        n_hashes: int = 30,
        *,
        seed: int = 0,
        first_sample: int = 0,
        dtype: DTypeLike = "float32",
    ) -> None:
        self.n_features = check_integer(n_features, "n_features", 1)
        self.size = check_integer(size, "size", 1)
        self.n_hashes = check_integer(n_hashes, "n_hashes", 1, MOST_HASHES)
        self.seed = check_integer(seed, "seed", 0, 2**32 - 1)
        self.first_sample = check_integer(first_sample, "first_sample", 0, 2**62)
        self.dtype = _float_type(dtype)
        self.n_samples = 0
        self.from_neighbors = False
        self._whole = True  # False while samples are being added, and for good if that is interrupted
        needed, limit = self.n_features * self.size * self.dtype.itemsize, resolve_limit(None)
        if limit is not None and needed > limit:
            raise BagwiseError(
                f"A sketch of {self.n_features} features x {self.size} takes {readable_size(needed)}, but only "
                f"{readable_size(limit)} of memory may be used. Choose a smaller size or dtype='float32'."
            )
        self._sums = np.zeros((self.n_features, self.size), dtype=self.dtype)
        self._coefficient_sums = np.zeros(self.size, dtype=np.int64)
        self.totals = np.zeros(self.n_features)
        self.n_active = np.zeros(self.n_features, dtype=np.int64)
        # of the non-zero values
        self._smallest = np.full(self.n_features, np.inf)
        self._largest = np.full(self.n_features, -np.inf)

    def update(self, X: Any, *, n_threads: int = 1) -> Sketch:
        """Add the next samples of the stream.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, n_features)
            Any number of samples. CSC is converted to CSR first.
        n_threads : int, default=1

        Returns
        -------
        self : Sketch
        """
        self._check_takes_samples()
        from bagwise.merging.sketching._kernels import hashed_coefficients

        def fill(out: NDArray[Any]) -> None:
            hashed_coefficients(self._state(self.first_sample + self.n_samples), self.n_hashes, out)

        self._add(self._checked(X), fill, n_threads)
        return self

    def _update_neighbors(self, X: Any, reverse: sp.csr_array, n_threads: int = 1) -> None:
        """Add the sums of each of the next samples and its neighbours, without forming these sums.

        Each sample is added with the coefficients of its reverse nearest neighbours; see `reverse_neighbors`.
        """
        from bagwise.merging.sketching._kernels import neighbor_coefficients

        self.from_neighbors = True
        X = self._checked(X)
        last = self.n_samples + X.shape[0]
        if last > reverse.shape[0]:
            raise BagwiseError(f"Neighbours are known for {reverse.shape[0]} samples, but {last} came.")

        def fill(out: NDArray[Any]) -> None:
            state = self._state(self.first_sample)
            neighbor_coefficients(state, self.n_hashes, reverse.indptr, reverse.indices, self.n_samples, out)

        self._add(X, fill, n_threads)

    @classmethod
    def _of_classes(cls, X: Any, codes: NDArray[np.intp], *, seed: int, dtype: Any, n_threads: int = 1) -> Sketch:
        """Sum up the samples of each class: column c of the signature is exactly that of the class with code c."""
        sketch = cls(X.shape[1], int(codes.max()) + 1, 1, seed=seed, dtype=dtype)
        sketch.from_neighbors = True

        def fill(out: NDArray[Any]) -> None:
            out[:] = 0
            out[np.arange(len(out)), codes[sketch.n_samples : sketch.n_samples + len(out)]] = 1

        sketch._add(sketch._checked(X), fill, n_threads)
        return sketch

    def _add(self, X: Any, fill: Callable[[NDArray[Any]], None], n_threads: int) -> None:
        """Add checked samples, block by block; ``fill(out)`` writes the coefficients of a block."""
        from bagwise.merging.sketching._kernels import add_dense, add_sorted, sort_by_feature

        n_block = max(_BLOCK_BYTES // (self.size * self.dtype.itemsize), 1)
        buffer = np.empty((min(n_block, X.shape[0]), self.size), dtype=self.dtype)
        statistics = (self._sums, self.totals, self.n_active, self._smallest, self._largest)
        ends = np.empty(self.n_features, dtype=np.int64)
        add: Callable[..., None]
        for first in range(0, X.shape[0], n_block):
            last = min(first + n_block, X.shape[0])
            coefficients = buffer[: last - first]
            fill(coefficients)
            if sp.issparse(X):
                n_entries = int(X.indptr[last] - X.indptr[first])
                samples, values = np.empty(n_entries, dtype=np.int32), np.empty(n_entries, dtype=X.dtype)
                sort_by_feature(X.indptr, X.indices, X.data, first, last, ends, samples, values)
                add = partial(add_sorted, ends, samples, values, coefficients, *statistics)
            else:
                add = partial(add_dense, X[first:last], coefficients, *statistics)
            self._whole = False
            run_over_ranges(add, self.n_features, n_threads, size=_FEATURES)
            # small integers, so that adding them is exact
            self._coefficient_sums += coefficients.sum(axis=0, dtype=np.float64).astype(np.int64)
            self.n_samples += last - first
            self._whole = True

    def _check_takes_samples(self) -> None:
        self._check_whole()
        if self.from_neighbors:
            raise BagwiseError(
                "This sketch holds sums over neighbours or classes, to which samples cannot be added. "
                "Fit SketchMerger again with all samples."
            )

    def _check_whole(self) -> None:
        if not self._whole:
            raise BagwiseError(
                "Adding samples to this sketch was interrupted, so it is incomplete. "
                "Start a new one, or load one that was saved before."
            )

    def _state(self, sample: int) -> np.uint64:
        """First state of the hashes of a sample."""
        return np.uint64((sample + PER_SEED * self.seed) % 2**64)

    def _checked(self, X: Any) -> Any:
        """Convert data for the kernels, or raise."""
        self._check_whole()
        try:
            X = sp.csr_array(as_format(X, "csr")) if sp.issparse(X) else np.asarray(X)
        except ValueError as error:  # rows of different lengths
            raise BagwiseError(f"X cannot be read as a matrix of (n, {self.n_features}) numbers: {error}") from error
        if X.ndim != 2 or X.shape[1] != self.n_features:
            raise BagwiseError(f"X has shape {X.shape}, expected (n, {self.n_features}): one column for each feature.")
        if X.dtype not in (np.float32, np.float64):
            if X.dtype.kind not in "biuf":
                raise BagwiseError(f"X holds {X.dtype}, expected real numbers.")
            X = X.astype(np.float64)
        if sp.issparse(X):
            X = canonical(X)  # an entry given in two parts is one value
        values = X.data if sp.issparse(X) else X
        if values.size == 0:
            return X
        if (wrong := first_not_finite(X)) is not None:
            row, feature, value = wrong
            sample = self.first_sample + self.n_samples + row
            raise BagwiseError(
                f"Row {row} of X (sample {sample} of the stream) is {value} (NaN or infinity) at feature {feature}. "
                "Only finite numbers can be added: replace it, or drop the row."
            )
        self._check_range(
            max(-float(values.min()), float(values.max()), self._largest_magnitude()), self.n_samples + X.shape[0]
        )
        return X

    def _largest_magnitude(self) -> float:
        """Largest absolute value so far; not above 0 if all were zero."""
        return max(-float(self._smallest.min()), float(self._largest.max()))

    def _check_range(self, largest: float, n_samples: int) -> None:
        """Raise where sums over `n_samples` samples with values up to `largest` may overflow or underflow."""
        limits = np.finfo(self.dtype)
        if largest * self.n_hashes * n_samples > float(limits.max) or 0 < largest < float(limits.tiny):
            raise BagwiseError(
                f"Values reach {largest:g}, too {'large' if largest > 1 else 'small'} for sums in {self.dtype}. "
                "Scale X, or use dtype='float64'."
            )

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Which features had the same value in all samples; their rows of the signature are exactly zero."""
        always = (self.n_active == self.n_samples) & (self._smallest == self._largest)
        return (self.n_active == 0) | always

    def signature(self) -> NDArray[Any]:
        """Compute the signature of the centred data: features x size, in the type of the sketch.

        It is ``S[f] - mean(f) c``, where c sums the coefficients of all samples, so that means need not be known
        beforehand. Computed in float64, then rounded.
        """
        from bagwise.merging.sketching._kernels import centre_rows

        self._check_whole()
        if self.n_samples == 0:
            raise BagwiseError("The sketch has no samples yet. Add some by update(X).")
        signature = np.empty_like(self._sums)
        centre_rows(self._sums, self._coefficient_sums, self.totals / self.n_samples, self.constant, signature)
        left, whole = (float(np.linalg.norm(matrix)) for matrix in (signature, self._sums))
        if 0 < left < np.sqrt(self.n_samples) * np.finfo(self.dtype).eps * whole:
            more = "" if self.dtype == np.float64 else ", or use dtype='float64'"
            raise BagwiseError(
                f"Without the mean of each feature, {left / whole:.1g} of the sums in this sketch is left: no more "
                f"than rounding of {self.dtype}, by which no groups can be found. Subtract a typical sample from "
                f"X{more}."
            )
        return signature

    def __add__(self, other: object) -> Sketch:
        if not isinstance(other, Sketch):
            return NotImplemented
        self._check_whole()
        other._check_whole()
        ours, theirs = self._settings(), other._settings()
        if differing := [f"{key} {ours[key]} and {theirs[key]}" for key in ours if ours[key] != theirs[key]]:
            raise BagwiseError(
                f"Only sketches with the same settings can be added, but these differ: {'; '.join(differing)}"
            )
        if self.from_neighbors or other.from_neighbors:
            raise BagwiseError("Sketches of sums over neighbours or classes cannot be added: they need all samples.")
        early, late = (self, other) if self.first_sample + self.n_samples == other.first_sample else (other, self)
        if early.first_sample + early.n_samples != late.first_sample:
            raise BagwiseError(
                f"These sketches hold the samples {_range(self)} and {_range(other)} of the stream. Ranges must "
                "follow each other, in either order: set first_sample of the later one to the end of the earlier."
            )
        n_samples = early.n_samples + late.n_samples
        self._check_range(max(early._largest_magnitude(), late._largest_magnitude()), n_samples)
        both = Sketch(**self._settings(), first_sample=early.first_sample)
        both.n_samples = n_samples
        np.add(early._sums, late._sums, out=both._sums)
        both._coefficient_sums += early._coefficient_sums + late._coefficient_sums
        both.totals += early.totals + late.totals
        both.n_active += early.n_active + late.n_active
        both._smallest = np.minimum(early._smallest, late._smallest)
        both._largest = np.maximum(early._largest, late._largest)
        return both

    def __radd__(self, other: object) -> Sketch:
        # sum(parts) begins with 0; not a copy, which may not fit in memory
        return self if type(other) is int and other == 0 else NotImplemented

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the sketch to a safetensors file, atomically. `load` reads it back, without running code."""
        self._check_whole()
        header = self._settings() | {
            "dtype": self.dtype.name,
            "first_sample": self.first_sample,
            "n_samples": self.n_samples,
            "from_neighbors": self.from_neighbors,
        }
        return _FILE.save(path, header, self._arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Sketch:
        """Read a sketch that `save` wrote."""

        def make(header: dict[str, Any], tensors: dict[str, NDArray[Any]]) -> Sketch:
            n_samples, from_neighbors = header.pop("n_samples"), header.pop("from_neighbors")
            sketch = cls(**header)
            if tensors["sums"].dtype != sketch.dtype:
                raise BagwiseError(f"its sums are {tensors['sums'].dtype}, but its header says {sketch.dtype}")
            sketch.n_samples, sketch.from_neighbors = n_samples, from_neighbors
            for name, array in sketch._arrays().items():
                array[...] = tensors[name]
            return sketch

        return _FILE.load(path, make)

    def _settings(self) -> dict[str, Any]:
        """Settings that two sketches must have in common to be added."""
        return {key: getattr(self, key) for key in ("n_features", "size", "n_hashes", "seed", "dtype")}

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays = (self._sums, self._coefficient_sums, self.totals, self.n_active, self._smallest, self._largest)
        return dict(zip(_FILE.tensors or (), arrays, strict=True))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sketch):
            return NotImplemented
        return (
            self._settings() == other._settings()
            and (self.first_sample, self.n_samples) == (other.first_sample, other.n_samples)
            and self.from_neighbors == other.from_neighbors
            and all(np.array_equal(array, other._arrays()[name]) for name, array in self._arrays().items())
        )

    __hash__ = None  # type: ignore[assignment]

    def __sizeof__(self) -> int:
        # for schedulers that move sketches between machines
        return super().__sizeof__() + sum(array.nbytes for array in self._arrays().values())

    def __repr__(self) -> str:
        return f"<Sketch: {self.n_features} features x {self.size}, samples {_range(self)}>"


def _range(sketch: Sketch) -> str:
    return f"{sketch.first_sample} to {sketch.first_sample + sketch.n_samples} (exclusive)"


def _float_type(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        resolved = np.dtype(dtype)
    except (TypeError, ValueError):
        resolved = None
    if resolved not in (np.float32, np.float64):
        raise BagwiseError(f"dtype must be 'float32' or 'float64', got {dtype!r}.")
    return resolved


def reverse_neighbors(parts: list[Any], n_neighbors: int, n_threads: int = 1) -> sp.csr_array:
    """Graph whose row j has a 1 for j and its reverse nearest neighbours, the samples that have j among their nearest.

    The sum over sample i and its neighbours is ``z_i = Σ_{j in N(i)} x_j``. Sample j contributes to the sums of its
    reverse neighbours ``{i : j in N(i)}``, so that the sums need not be formed. The samples come in `parts`, with few
    columns. Distances are Euclidean, ties go to the lowest index. O(n_samples²) time per column, in blocks.
    """
    samples = sp.vstack(parts, format="csr") if any(map(sp.issparse, parts)) else np.vstack(parts)
    graph = ExactNeighbors(samples, "euclidean", n_threads).graph(n_neighbors)
    reverse = sp.csr_array((graph + sp.eye_array(samples.shape[0])).T)
    reverse.sort_indices()
    return reverse
