"""Hashes of assignments that are random but the same everywhere: by number (SplitMix64), or by name (BLAKE2b)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

__all__ = ["FOR_SIGNS", "PER_HASH", "PER_SEED", "STEP", "hash_names", "hashes"]

# Odd numbers without structure: SplitMix64's own, from the golden ratio; bits of √2, π and e keep streams apart.
STEP = 0x9E3779B97F4A7C15
PER_SEED = 0x6A09E667F3BCC909
FOR_SIGNS = 0x243F6A8885A308D3
PER_HASH = 0xB7E151628AED2A6B


def hashes(n: int, first: int) -> NDArray[np.uint64]:
    """Return SplitMix64's output for the states first, first + 1, … (modulo 2⁶⁴), to each of which it adds its step."""
    z = np.arange(n, dtype=np.uint64) + np.uint64((first + STEP) % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hash_names(names: Iterable[str], seed: int) -> NDArray[np.uint64]:
    """Return 64-bit hashes of names, keyed by a seed.

    >>> hash_names(["a", "b"], 0) == hash_names(["a", "c"], 0)
    array([ True, False])
    """
    key = seed.to_bytes(8, "little")
    digests = (
        hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest() for name in names
    )
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
