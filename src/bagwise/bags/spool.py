"""Bags that are computed once and read several times."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from bagwise._utils.memory import parse_size
from bagwise.bags.bags import Bags
from bagwise.errors import BagwiseError

__all__ = ["BagsSpool"]

DEFAULT_LIMIT = 32 * 2**20


class BagsSpool:
    """Hold batches of bags for several passes: in memory up to a limit, in a temporary file beyond.

    The file has no name, so that the system removes it with the process, however that ends. Batches are read back one
    at a time and are not mapped: memory stays below the limit and one batch.

    Parameters
    ----------
    memory_limit : int, float or str, default=None
        Bytes to hold in memory, such as ``"1GB"``. None: 32 MiB.

    Examples
    --------
    >>> from bagwise import Bags
    >>> from bagwise.bags.spool import BagsSpool
    >>> with BagsSpool(memory_limit=1) as spool:
    ...     spool.append(Bags.from_list([[[1.0, 2.0]], []]))
    ...     spool.append(Bags.from_list([[[3.0, 4.0], [5.0, 6.0]]]))
    ...     [[len(bag) for bag in batch] for batch in spool]
    [[1, 0], [2]]
    """

    def __init__(self, memory_limit: int | float | str | None = None) -> None:
        self._limit = DEFAULT_LIMIT if memory_limit is None else parse_size(memory_limit)
        self._held: list[Bags] = []
        self._n_bytes = 0
        self._file: BinaryIO | None = None
        self._batches: list[tuple[int, int]] = []  # where each begins in the file, and how many arrays it has

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = []
        if self._file is not None:
            self._file.close()

    @property
    def in_memory(self) -> bool:
        """Whether all bags are held in memory."""
        return self._file is None

    def append(self, bags: Bags) -> None:
        """Add a batch of bags."""
        self._held.append(bags)
        self._n_bytes += bags.nbytes
        if self._file is None and self._n_bytes <= self._limit:
            return
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="bagwise-")  # noqa: SIM115 - closed by __exit__
            for batch in self._held:
                arrays = [array for array in (batch.values, batch.offsets, batch.positions) if array is not None]
                self._batches.append((self._file.seek(0, os.SEEK_END), len(arrays)))
                for array in arrays:
                    np.save(self._file, array)
        except OSError as error:
            raise BagwiseError(
                f"Descriptors cannot be written to a temporary file in {tempfile.gettempdir()}: "
                f"{error.strerror or error}. Free disk space, set TMPDIR to another folder, or raise memory_limit."
            ) from error
        self._held = []

    def __iter__(self) -> Iterator[Bags]:
        if self._file is None:
            yield from self._held
            return
        for start, n_arrays in self._batches:
            self._file.seek(start)
            values, offsets, *positions = [np.load(self._file) for _ in range(n_arrays)]
            yield Bags._wrap(values, offsets, positions[0] if positions else None)
