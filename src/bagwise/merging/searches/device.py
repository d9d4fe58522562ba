"""The bound search and the search for additive scores on a CUDA device; their kernels are in `device*.cu`.

One launch merges many levels: blocks of threads stay on the device and exchange what they found, so that a level costs
a few microseconds whatever the number of words. The merges are those of the searches on the CPU, unless pairs are
equally good up to rounding.
"""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.devices import check_device_memory, device_module, to_device
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError
from bagwise.merging.criteria import NAMED_CRITERIA, Criterion
from bagwise.merging.scoring import Information, KeptInformation, Scoring
from bagwise.merging.searches._kernels import TINY
from bagwise.merging.searches.base import Search
from bagwise.merging.stores.device import DeviceStore

__all__ = ["DeviceBoundSearch", "DevicePartnerSearch", "check_runs_on_device"]

_THREADS = 512
# Slots and numbers of states that a block has at least: with fewer, exchanges between blocks cost more than they save.
_LEAST_SHARE = 256
_LEAST_STATES = 5000
_SCAN_THREADS = 256
# What the kernels define.
_BYTES_A_ROW, _BYTES_A_SUM, _BYTES_A_RECORD = 68, 36, 144
_ROWS_COMPARED = 4


# What the options of trace ratios may be.
_OPTIONS = {"kernel": ("linear",), "search": ("bound",), "store": ("auto", "dense")}


def check_runs_on_device(criterion: Criterion, **options: str) -> None:
    """Raise if a criterion does not run on a device with these options."""
    for name, value in options.items():
        if value not in _OPTIONS[name]:
            raise BagwiseError(
                f"{name}={value!r} does not run on a CUDA device, which has {name}="
                f"{' or '.join(map(repr, _OPTIONS[name]))}. Use that, or device='cpu'."
            )
    if not criterion.runs_on_device:
        names = ", ".join(repr(name) for name, known in NAMED_CRITERIA.items() if known.runs_on_device)
        raise BagwiseError(
            f"The criterion {criterion.name!r} does not run on a CUDA device; {names} do. Use one of these, or "
            "device='cpu'."
        )


def _source() -> str:
    folder = resources.files("bagwise.merging.searches")
    names = ("device.cu", "device_ratios.cu", "device_sums.cu")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


@functools.cache
def _module() -> Any:
    """The compiled kernels; CuPy keeps them in its cache on disk."""
    return device_module("cuda").RawModule(code=_source(), options=("--std=c++17",), enable_cooperative_groups=True)


class _DeviceSearch(Search):
    """What both searches share: the division of words among blocks, records, and launches."""

    def __init__(self, n_words: int, least_share: int = _LEAST_SHARE) -> None:
        super().__init__(n_words)
        self._xp = xp = device_module("cuda")
        self._n_units = int(xp.cuda.Device().attributes["MultiProcessorCount"])
        self._share = max(-(-n_words // self._n_units), least_share)
        self._n_blocks = -(-n_words // self._share)
        self._records = xp.zeros(2 * self._n_blocks * _BYTES_A_RECORD, dtype=xp.uint8)
        self._arrived = xp.zeros(1, dtype=xp.int32)
        self._counts = xp.zeros(2, dtype=xp.int32)

    def _launch(self, name: str, n_blocks: int, n_threads: int, arguments: tuple[Any, ...], shared: int = 0) -> None:
        kernel = _module().get_function(name)
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
        self, name: str, before: tuple[Any, ...], shared: int, pairs: NDArray[np.int64], scores: NDArray[np.float64]
    ) -> None:
        """Launch a kernel that merges ``len(pairs)`` times."""
        xp, n = self._xp, len(pairs)
        found, values = xp.empty((n, 2), dtype=xp.int64), xp.empty(n)
        self._arrived.fill(0)
        arguments = (*before, self._counts, self._records, self._arrived, n, found, values)
        self._launch(name, self._n_blocks, _THREADS, arguments, shared)
        pairs[:] = found.get()
        scores[:] = values.get()

    @property
    def work(self) -> dict[str, int]:
        """Rows scanned again after the first scan of each; the row of a merged word is scanned as it is formed."""
        return {"row_scans": int(self._counts[1])}


class DeviceBoundSearch(_DeviceSearch):
    """`BoundSearch` on a device: the same bounds; the blocks scan rows that reach the best pair at the same time.

    Overwrites the matrix of the store.
    """

    def __init__(self, store: DeviceStore) -> None:
        super().__init__(store.n_words)
        xp, d = self._xp, self.n_words
        self._matrix = store.matrix
        own_a, own_b = store.diagonals()
        a, b = float(own_a.sum()), float(own_b.sum())
        floors = TINY * abs(a), TINY * abs(b)
        defined = b > floors[1]
        self.start_score = a / b if defined else np.inf if a > floors[0] else np.nan
        self._traces = xp.asarray([a, b, *floors])
        self._memory = xp.zeros(d * _BYTES_A_ROW, dtype=xp.uint8)
        orders = self._memory[d * 56 : d * 60].view(xp.int32)
        orders[:] = xp.arange(d, 0, -1, dtype=xp.int32)
        self._launch("first_ratio_scan", 2 * self._n_units, _THREADS, (self._matrix, d, self._traces, self._memory))

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        before = (self._matrix, self.n_words, self._share, self._memory, self._traces)
        self._advance("merge_ratios", before, self._share * _BYTES_A_ROW, pairs, scores)


class DevicePartnerSearch(_DeviceSearch):
    """`PartnerSearch` for mutual information on a device, without cached partners beside the best one.

    Rows that have lost their best partner and may soon lead are compared with all words again together with the word
    merged last.
    """

    def __init__(self, scoring: Scoring) -> None:
        if type(scoring) not in (Information, KeptInformation):  # a user's criterion may have any
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
        self._launch("describe_words", self._n_units, _SCAN_THREADS, (self._nodes, d, n_classes, self._memory))
        terms = self._memory[d * 8 : d * 16].view(xp.float64)
        self.start_score = float(offset + terms.sum())
        self._score = xp.asarray([self.start_score, offset])
        shared = 8 * _ROWS_COMPARED * n_classes
        arguments = (self._states, self._nodes, d, n_classes, self._memory)
        per_unit = 2 if shared <= 2**15 else 1
        self._launch("first_sum_scan", per_unit * self._n_units, _SCAN_THREADS, arguments, shared)

    def advance(self, pairs: NDArray[np.int64], scores: NDArray[np.float64]) -> None:  # noqa: D102
        before = (self._states, self._nodes, self.n_words, self._n_classes, self._share, self._memory, self._score)
        shared = 8 * _ROWS_COMPARED * self._n_classes + self._share * _BYTES_A_SUM
        self._advance("merge_sums", before, shared, pairs, scores)
