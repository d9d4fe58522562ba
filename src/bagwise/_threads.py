"""Running functions that release the interpreter lock on several threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

# Results that may wait for their turn, per thread: enough to keep threads busy, few enough to keep memory small.
_AHEAD = 4


def run_over_ranges(function: Callable[[int, int], object], total: int, n_threads: int, size: int = 256) -> None:
    """Call ``function(start, stop)`` for consecutive ranges that cover ``0..total``."""
    if n_threads <= 1 or total <= size:
        function(0, total)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        jobs = [pool.submit(function, start, min(start + size, total)) for start in range(0, total, size)]
        for job in jobs:
            job.result()


def map_in_order(function: Callable[[T], R], things: Iterable[T], n_threads: int) -> Iterator[R]:
    """Give ``function(thing)`` for one thing after the other, computed by several threads a few things ahead.

    Whoever stops early, or an exception, cancels what was not begun and waits for what was.
    """
    if n_threads <= 1:
        yield from map(function, things)
        return
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(n_threads)
    try:
        for thing in things:
            waiting.append(pool.submit(function, thing))
            if len(waiting) >= _AHEAD * n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
