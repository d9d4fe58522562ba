"""Running compiled functions that release the interpreter lock over ranges, on several threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def run_over_ranges(function: Callable[[int, int], object], total: int, n_threads: int, size: int = 256) -> None:
    """Call ``function(start, stop)`` for consecutive ranges that cover ``0..total``."""
    if n_threads <= 1 or total <= size:
        function(0, total)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        jobs = [pool.submit(function, start, min(start + size, total)) for start in range(0, total, size)]
        for job in jobs:
            job.result()
