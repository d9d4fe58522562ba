"""`MapOfItems`: the map of the items that an explorer shows, made in the background, and selections of them."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.app.index.item_map import ItemMap
from bagwise.app.modalities.vectorizers import Progress
from bagwise.errors import BagwiseError

__all__ = ["MapOfItems", "Places"]

_HELD_SELECTIONS = 32


@dataclass(frozen=True, eq=False)
class Places:
    """A map, and its content as pages get it.

    Attributes
    ----------
    map : ItemMap
    codes : ndarray of shape (n_items,)
        Classes of the items; -1 for none.
    version : int
        Another one for each map.
    note : str
        Where it is kept.
    """

    map: ItemMap
    codes: NDArray[np.int64]
    version: int = 0
    note: str = ""

    @cached_property
    def content(self) -> bytes:
        """For n items: 2 n float32, places; n int32, classes; n int16, clusters; all little-endian."""
        parts = (self.map.points.astype("<f4"), self.codes.astype("<i4"), self.map.clusters.astype("<i2"))
        return b"".join(part.tobytes() for part in parts)


class MapOfItems:
    """The map of items, which several threads may ask for.

    Parameters
    ----------
    codes : ndarray of shape (n_items,)
        Classes of the items; -1 for none.

    Attributes
    ----------
    places : Places or None
    made : dict of str to ItemMap
        The last map by each method, so that one can go back to it.
    problem : str or None
        Why the last map could not be made.
    """

    def __init__(self, codes: NDArray[np.int64]) -> None:
        self.codes = codes
        self.places: Places | None = None
        self.made: dict[str, ItemMap] = {}
        self.problem: str | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._step, self._begun = ("", 0, 0), 0.0
        self._selections: OrderedDict[str, NDArray[np.int64]] = OrderedDict()

    def give(self, map: ItemMap) -> None:
        """Take the map of the index."""
        self.places, self.made[map.method] = Places(map, self.codes, note="It is kept in the index."), map

    @property
    def running(self) -> dict[str, Any] | None:
        """The step that is being done, or None."""
        with self._lock:
            if self._thread is None:
                return None
            step, done, total = self._step
            return {"step": step, "done": done, "total": total, "seconds": time.monotonic() - self._begun}

    def start(self, make: Callable[[Progress], ItemMap], keep: Callable[[ItemMap], str]) -> None:
        """Make a map in the background; `keep` says where it was kept."""

        def run() -> None:
            try:
                new_map = make(self._tell)
                note = keep(new_map)
                with self._lock:
                    self.made[new_map.method] = new_map
                    version = 1 if self.places is None else self.places.version + 1
                    self.places, self.problem = Places(new_map, self.codes, version, note), None
            except (BagwiseError, OSError, MemoryError) as error:
                with self._lock:
                    self.problem = str(error) or type(error).__name__
            finally:
                with self._lock:
                    self._thread = None

        with self._lock:
            if self._thread is not None:
                raise BagwiseError("A map is being made already.")
            self.problem, self._step, self._begun = None, ("reading words", 0, 0), time.monotonic()
            self._thread = threading.Thread(target=run, daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until no map is being made."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _tell(self, step: str, done: int, total: int) -> None:
        with self._lock:
            self._step = (step, done, total)

    def select(self, numbers: NDArray[np.int64]) -> str:
        """Keep a selection of items; return its name, which depends on the items alone."""
        numbers = np.unique(numbers)
        if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < len(self.codes):
            raise BagwiseError(f"Items are numbered from 0 to {len(self.codes) - 1}, got {numbers[[0, -1]].tolist()}.")
        name = hashlib.blake2b(numbers.astype("<i8").tobytes(), digest_size=8).hexdigest()
        with self._lock:
            self._selections[name] = numbers
            self._selections.move_to_end(name)
            while len(self._selections) > _HELD_SELECTIONS:
                self._selections.popitem(last=False)
        return name

    def selected(self, name: str) -> NDArray[np.int64]:
        """Return the items of a selection, ascending."""
        with self._lock:
            if name not in self._selections:
                raise BagwiseError("This selection is not known any more. Select items on the map again.")
            return self._selections[name]
