"""Collections of synthetic images and texts that are made when they are read: nothing is stored, any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bagwise.sources.collection import Collection
from bagwise.sources.items import Item

N_CLASSES = 10
SIDE = (120, 160)  # of images
N_TOKENS = 60  # of texts, on average
N_VOCABULARY = 50_000


@dataclass(frozen=True)
class Number:
    """Where an item comes from: its number."""

    number: int

    @property
    def source(self) -> str:
        """The number, for messages."""
        return f"number {self.number}"

    def open(self) -> Any:
        """Raise: there are no bytes."""
        raise NotImplementedError("made, not stored")


@dataclass(frozen=True)
class MakeImage:
    """Noise over waves of a direction and length that depend on the class."""

    def decode(self, content: Number, max_side: int | None = None) -> Any:
        """Make the image of a number."""
        rng = np.random.default_rng(content.number)
        waves = _waves(content.number % N_CLASSES)
        shift = rng.integers(0, 32, 2)
        return np.clip(np.roll(waves, shift, (0, 1)) + rng.normal(0, 25, SIDE), 0, 255).astype(np.uint8)


@lru_cache(maxsize=N_CLASSES)
def _waves(kind: int) -> Any:
    rows, columns = np.mgrid[: SIDE[0], : SIDE[1]]
    angle, length = np.pi * kind / N_CLASSES, 6 + 2 * (kind % 4)
    return 128 + 60 * np.sin(2 * np.pi * (np.cos(angle) * rows + np.sin(angle) * columns) / length)


@dataclass(frozen=True)
class MakeText:
    """Words by Zipf's law; one in ten is of the class."""

    def decode(self, content: Number) -> str:
        """Make the text of a number."""
        rng = np.random.default_rng(content.number)
        n = int(rng.integers(N_TOKENS // 2, 3 * N_TOKENS // 2))
        words = (N_VOCABULARY ** rng.random(n)).astype(int)
        own = rng.random(n) < 0.1
        words[own] = 1000 + 200 * (content.number % N_CLASSES) + words[own] % 200
        return " ".join(f"w{word}" for word in words.tolist())


MAKERS: dict[str, Any] = {"images": MakeImage(), "texts": MakeText()}


class MadeItems(Sequence):
    """The items of numbers."""

    def __init__(self, modality: str, numbers: Any) -> None:
        self.modality, self.numbers = modality, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, key: int) -> Item:  # type: ignore[override]
        number = int(self.numbers[key])
        label = f"class {number % N_CLASSES}"
        return Item(f"{number:09d}", Number(number), MAKERS[self.modality], (label,))


class Made(Collection):
    """A collection of made items."""

    def __init__(self, modality: str, numbers: Any) -> None:
        super().__init__((), modality, f"{len(numbers)} made {modality}")
        self._items = MadeItems(modality, numbers)

    def _chosen(self, numbers: Any) -> Made:
        return Made(self.modality, np.asarray(self._items.numbers)[numbers])

    def _reference(self, start: int, stop: int) -> MadePart:
        numbers = self._items.numbers
        return MadePart(self.modality, np.asarray(numbers)[start:stop])

    def _whole_files(self) -> Any:
        return np.ones(max(len(self) - 1, 0), dtype=bool)


@dataclass(frozen=True)
class MadePart:
    """Opens some of them on a worker."""

    modality: str
    numbers: Any

    def open(self) -> Made:
        """Return the items."""
        return Made(self.modality, self.numbers)

    def key(self) -> str:
        """Name the items."""
        return f"{self.modality} {self.numbers[0]} {len(self.numbers)}"


def make_collection(modality: str, n: int) -> Made:
    return Made(modality, np.arange(n))
