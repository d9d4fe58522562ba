"""Networks that describe digits by bags of features; for `manifold_mnist`, which alone needs PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bagwise.nn import SoftBagOfFeatures

__all__ = ["Extractor", "as_tensor", "encode", "features_of", "same_sums", "train_autoencoder"]

_BLOCK = 256  # digits at a time
_N_THREADS = 2


@contextmanager
def same_sums() -> Iterator[None]:
    """Let PyTorch have two threads, whatever the machine: sums are rounded otherwise with more or fewer of them.

    Clusters of few digits follow from that: with one thread, NMI of a repetition moved by as much as 0.05.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(_N_THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Extractor(torch.nn.Module):
    """Digits to 64 positions with 32 numbers each."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 5), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(16, 32, 5)
        )

    def forward(self, images: Any) -> Any:
        """Features: digits x positions x numbers."""
        return self.layers(images).flatten(2).transpose(1, 2)


def as_tensor(digits: NDArray[np.uint8]) -> torch.Tensor:
    """Digits with one channel, from 0 to 1."""
    return torch.tensor(digits[:, None] / np.float32(255))


def train_autoencoder(digits: torch.Tensor, n_batches: int, seed: int) -> Extractor:
    """An extractor from whose features digits can be drawn again."""
    torch.manual_seed(seed)
    extractor = Extractor()
    decoder = torch.nn.Sequential(
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(32, 16, 5),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(16, 1, 6, stride=2),
    )
    optimizer = torch.optim.Adam([*extractor.parameters(), *decoder.parameters()], lr=2e-3)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(n_batches):
        batch = digits[torch.randint(len(digits), (128,), generator=generator)]
        loss = torch.nn.functional.mse_loss(decoder(extractor.layers(batch)), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return extractor


def features_of(extractor: Extractor, digits: torch.Tensor) -> NDArray[np.float32]:
    """Features of digits: digits x positions x numbers."""
    with torch.no_grad():
        return torch.cat([extractor(part) for part in digits.split(_BLOCK)]).numpy()


def encode(extractor: Extractor, layer: SoftBagOfFeatures, digits: torch.Tensor) -> NDArray[np.float64]:
    """Histograms of digits."""
    with torch.no_grad():
        return torch.cat([layer(extractor(part)) for part in digits.split(_BLOCK)]).double().numpy()
