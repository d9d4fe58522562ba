"""The bound search and the search for additive scores on a CUDA device (cu/merging.cu), and A and B there.

One launch merges many levels: blocks of threads stay on the device and exchange what they found, so that a level costs
a few microseconds whatever the number of words. The merges are those of the searches on the host, unless pairs are
equally good up to rounding. Searches here have what `bagwise.merging.searches.base.Search` has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, device_module, is_on_device, to_device, to_host
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError
from bagwise.gpu.compiling import Source

__all__ = ["DeviceBoundSearch", "DevicePartnerSearch", "DeviceRows"]
__all__ += ["ratio_search", "rows_of_matrices", "rows_of_samples", "sum_search"]

ON_DEVICE = True
_SOURCE = Source("merging", cooperative=True)
_THREADS = 512
# Slots and numbers of states that a block has at least: with fewer, exchanges between blocks cost more than they save.
_LEAST_SHARE = 256
_LEAST_STATES = 5000
_SCAN_THREADS = 256
# What the kernels define.
_BYTES_A_ROW, _BYTES_A_SUM, _BYTES_A_RECORD = 68, 36, 144
_ROWS_COMPARED = 4
_TINY = 1e-12
# The kind of scoring that is merged here, as `bagwise.merging.scoring` numbers them.
INFORMATION = 0
# Rows are formed in blocks of this many bytes.
_BLOCK_BYTES = 2**28
Values = NDArray[np.float64]


def rows_of_samples(
    X: Any, structures: Sequence[Any], store: str, memory_limit: Any, n_threads: int, who: str | None
) -> DeviceRows:
    """Form A and B of data, see `DeviceRows.of`."""
    return DeviceRows.of(X, *structures, xp=device_module("cuda"), who=who)


def rows_of_matrices(A: Values, B: Values) -> DeviceRows:
    """Copy A and B of a criterion to the device."""
    return DeviceRows.of_matrices(A, B, xp=device_module("cuda"))


def ratio_search(rows: Any, name: str, n_threads: int, show_progress: bool) -> DeviceBoundSearch:
    """Start the search for trace ratios."""
    return DeviceBoundSearch(rows)


def sum_search(scoring: Any, n_threads: int = 1, show_progress: bool = False) -> DevicePartnerSearch:
    """Start the search for mutual information."""
    return DevicePartnerSearch(scoring)


class DeviceRows:
    """A = Xᵀ L_P X and B = Xᵀ L_U X side by side: ``matrix[i, j]`` is (A_ij, B_ij), for j >= i.

    A search may write to it. Both numbers of a pair are read at once, and what is below the diagonal is never read
    before it is written.
    """

    store = "dense"
    rounding = 8.0  # see `bagwise.merging.rows.RatioRows`

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        self.size = len(matrix)

    @classmethod
    def of(cls, X: Any, preferred: Any, undesired: Any, *, xp: Any, who: str | None = None) -> DeviceRows:
        """Compute A and B from the data (samples x words) with an array module, that of a device.

        Sparse data are copied to the device as a dense array, if it fits. `who` is the name of a criterion whose
        matrices may hold numbers that are not finite, which is an error.
        """
        n, d = X.shape
        n_rows = preferred.n_factor_rows() + undesired.n_factor_rows()
        cls._check_fits(xp, d, 8 * n_rows * d + (0 if is_on_device(X) else 8 * n * d))
        X = _dense_on_device(X, xp) if sp.issparse(X) else to_device(X, xp, np.float64)
        factors = [structure.scatter_factors(X) for structure in (preferred, undesired)]
        store = cls(xp.empty((d, d, 2)))
        for rows, columns in store._blocks():
            for which, parts in enumerate(factors):
                out = store.matrix[rows, columns, which]
                out[...] = 0.0
                for part in parts:
                    out += part.weight * (part.left[:, rows].T @ part.right[:, columns])
                if who is not None and not bool(xp.isfinite(out).all()):
                    raise BagwiseError(
                        f"The {'undesired' if which else 'preferred'} matrix of {who} holds numbers that are not "
                        "finite. Check the weights of graphs that it is made of."
                    )
        return store

    @classmethod
    def of_matrices(cls, A: NDArray[np.float64], B: NDArray[np.float64], *, xp: Any) -> DeviceRows:
        """Copy matrices to the device of an array module."""
        cls._check_fits(xp, len(A))
        store = cls(xp.empty((len(A), len(A), 2)))
        for rows, columns in store._blocks():
            for which, matrix in enumerate((A, B)):
                store.matrix[rows, columns, which] = xp.asarray(matrix[rows, columns])
        return store

    @staticmethod
    def _check_fits(xp: Any, d: int, more: int = 0) -> None:
        if xp is not np:
            check_device_memory(
                16 * d**2 + 2 * min(_BLOCK_BYTES, 8 * d**2) + more,
                f"Merging {d} words: two matrices of {d} x {d} and what they are formed from",
                "merge fewer words, for example after dropping the rarest ones, or use device='cpu', which keeps A and "
                "B in other ways if they do not fit",
            )

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """Blocks of rows, with the columns from their diagonal on."""
        step = max(_BLOCK_BYTES // (8 * max(self.size, 1)), 1)
        for start in range(0, self.size, step):
            yield slice(start, min(start + step, self.size)), slice(start, None)

    def diagonals(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the diagonals of A and B, on the host."""
        xp = device_module(None, self.matrix)
        both = to_host(xp.ascontiguousarray(xp.diagonal(self.matrix, axis1=0, axis2=1)))
        return both[0], both[1]

    def blocks(self, n_threads: int = 1) -> Iterator[tuple[tuple[Any, Any], int, int]]:
        """All rows of A and B, right of the diagonal."""
        yield (self.matrix[..., 0], self.matrix[..., 1]), 0, self.size


def _dense_on_device(X: sp.csr_array, xp: Any) -> Any:
    """Copy a sparse matrix to a device as a dense array, without a dense copy on the host."""
    if xp is np:
        return X.toarray()
    dense = xp.zeros(X.shape)
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    dense[xp.asarray(rows), xp.asarray(X.indices)] = xp.asarray(X.data)
    return dense


class _DeviceSearch:
    """What both searches share: the division of words among blocks, records, and launches."""

    def __init__(self, n_words: int, least_share: int = _LEAST_SHARE) -> None:
        self.n_words = n_words
        self.start_score = float("nan")
        self._xp = xp = device_module("cuda")
        self._n_units = int(xp.cuda.Device().attributes["MultiProcessorCount"])
        self._share = max(-(-n_words // self._n_units), least_share)
        self._n_blocks = -(-n_words // self._share)
        self._records = xp.zeros(2 * self._n_blocks * _BYTES_A_RECORD, dtype=xp.uint8)
        self._arrived = xp.zeros(1, dtype=xp.int32)
        self._counts = xp.zeros(2, dtype=xp.int32)

    def _launch(self, kernel: Any, n_blocks: int, n_threads: int, arguments: tuple[Any, ...], shared: int = 0) -> None:
        most = int(self._xp.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]) - kernel.shared_size_bytes
        if shared > most:
            raise BagwiseError(
                f"Merging {self.n_words} words needs {readable_size(shared)} in each of the {self._n_units} "
                f"multiprocessors of the device, which have {readable_size(most)}. Use device='cpu'."
            )
        if shared > kernel.max_dynamic_shared_size_bytes:
            kernel.max_dynamic_shared_size_bytes = shared
        arguments = tuple(np.int32(value) if isinstance(value, int) else value for value in arguments)
        kernel((n_blocks,), (n_threads,), arguments, shared_mem=shared)

    def _advance(
        self, kernel: Any, before: tuple[Any, ...], shared: int, pairs: NDArray[np.int64], scores: NDArray[np.float64]
    ) -> None:
        """Launch a kernel that merges ``len(pairs)`` times."""
        xp, n = self._xp, len(pairs)
        merged, values = xp.empty((n, 2), dtype=xp.int64), xp.empty(n)
        self._arrived.fill(0)
        arguments = (*before, self._counts, self._records, self._arrived, n, merged, values)
        self._launch(kernel, self._n_blocks, _THREADS, arguments, shared)
        pairs[:] = merged.get()
        scores[:] = values.get()

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first scan of each; the row of a merged word is scanned as it is formed."""
        return {"row_scans": int(self._counts[1])}


class DeviceBoundSearch(_DeviceSearch):
    """`BoundSearch` on a device: the same bounds; the blocks scan rows that reach the best pair at the same time.

    Overwrites the matrix of the rows.
    """

    def __init__(self, rows: DeviceRows) -> None:
        super().__init__(rows.size)
        xp, d = self._xp, self.n_words
        self._matrix = rows.matrix
        own_a, own_b = rows.diagonals()
        a, b = float(own_a.sum()), float(own_b.sum())
        floors = _TINY * abs(a), _TINY * abs(b)
        defined = b > floors[1]
        self.start_score = a / b if defined else np.inf if a > floors[0] else np.nan
        self._traces = xp.asarray([a, b, *floors])
        self._memory = xp.zeros(d * _BYTES_A_ROW, dtype=xp.uint8)
        orders = self._memory[d * 56 : d * 60].view(xp.int32)
        orders[:] = xp.arange(d, 0, -1, dtype=xp.int32)
        self._launch(
            _SOURCE.function("first_ratio_scan"),
            2 * self._n_units,
            _THREADS,
            (self._matrix, d, self._traces, self._memory),
        )

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        before = (self._matrix, self.n_words, self._share, self._memory, self._traces)
        self._advance(_SOURCE.function("merge_ratios"), before, self._share * _BYTES_A_ROW, pairs, scores)


class DevicePartnerSearch(_DeviceSearch):
    """`PartnerSearch` for mutual information on a device, without cached partners beside the best one.

    Rows that have lost their best partner and may soon lead are compared with all words again together with the word
    merged last.
    """

    def __init__(self, scoring: Any) -> None:
        if scoring.kind != INFORMATION:  # a user's criterion may have any
            raise BagwiseError(
                f"{type(scoring).__name__} does not run on a CUDA device; Information does. Use device='cpu'."
            )
        states, offset = scoring.states, scoring.offset
        d, n_classes = states.shape
        super().__init__(d, max(min(_LEAST_STATES // n_classes, _LEAST_SHARE), 32))
        xp = self._xp
        self._n_classes = n_classes
        check_device_memory(8 * 3 * d * n_classes, f"Merging {d} words of {n_classes} classes")
        self._nodes = xp.empty((2 * d - 1, n_classes))
        self._nodes[:d] = to_device(states, xp)
        self._states = xp.ascontiguousarray(self._nodes[:d].T)
        self._memory = xp.zeros(d * _BYTES_A_SUM, dtype=xp.uint8)
        orders = self._memory[d * 24 : d * 28].view(xp.int32)
        orders[:] = xp.arange(d, 0, -1, dtype=xp.int32)
        self._launch(
            _SOURCE.function("describe_words"), self._n_units, _SCAN_THREADS, (self._nodes, d, n_classes, self._memory)
        )
        terms = self._memory[d * 8 : d * 16].view(xp.float64)
        self.start_score = float(offset + terms.sum())
        self._score = xp.asarray([self.start_score, offset])
        shared = 8 * _ROWS_COMPARED * n_classes
        arguments = (self._states, self._nodes, d, n_classes, self._memory)
        per_unit = 2 if shared <= 2**15 else 1
        self._launch(_SOURCE.function("first_sum_scan"), per_unit * self._n_units, _SCAN_THREADS, arguments, shared)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        before = (self._states, self._nodes, self.n_words, self._n_classes, self._share, self._memory, self._score)
        shared = 8 * _ROWS_COMPARED * self._n_classes + self._share * _BYTES_A_SUM
        self._advance(_SOURCE.function("merge_sums"), before, shared, pairs, scores)
