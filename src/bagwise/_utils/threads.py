"""Threads: one for BLAS, several for ranges and items, which compute what they share once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

__all__ = ["WhileAny", "cached_once", "map_in_order", "number_of_threads", "one_blas_thread", "run_over_ranges"]

T = TypeVar("T")
R = TypeVar("R")

# Results that may wait for their turn, per thread: enough to keep threads busy, few enough to keep memory small.
_AHEAD = 4
_N_LOCKS = 64  # calls that a cache computes at a time, at most


def number_of_threads(n_jobs: int | None) -> int:
    """Return the number of threads that `n_jobs` means: None is one, -1 one per core, -2 one less.

    `joblib.parallel_config` may say another number for None.

    >>> number_of_threads(None), number_of_threads(3)
    (1, 3)
    """
    from joblib import effective_n_jobs  # deferred: opening a model needs no joblib

    return effective_n_jobs(n_jobs)


class WhileAny:
    """A setting of the whole process that holds while any thread is inside of the block.

    `setting` returns a context. The first thread that comes enters it, the last one that goes leaves it: otherwise one
    would restore what another has set.

    >>> from contextlib import nullcontext
    >>> quiet = WhileAny(nullcontext)
    >>> with quiet(), quiet():
    ...     pass
    """

    def __init__(self, setting: Callable[[], AbstractContextManager[Any]]) -> None:
        self._setting, self._entered = setting, ExitStack()
        self._lock, self._n_inside = Lock(), 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._n_inside == 0:
                self._entered.enter_context(self._setting())
            self._n_inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_inside -= 1
                if self._n_inside == 0:
                    self._entered.close()


@lru_cache(1)  # looking for libraries takes a while
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


# Matrix products run on the calling thread, while our threads work on different blocks: results do not depend on the
# number of threads, and threads of BLAS do not wait for each other on a busy machine.
one_blas_thread = WhileAny(lambda: _libraries().limit(limits=1, user_api="blas"))


def run_over_ranges(function: Callable[[int, int], object], total: int, n_threads: int, size: int = 256) -> None:
    """Call ``function(start, stop)`` for consecutive ranges that cover ``0..total``."""
    if n_threads <= 1 or total <= size:
        function(0, total)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        jobs = [pool.submit(function, start, min(start + size, total)) for start in range(0, total, size)]
        for job in jobs:
            job.result()


def map_in_order(
    function: Callable[[T], R],
    things: Iterable[T],
    n_threads: int,
    size: Callable[[R], int] = lambda result: 0,
    most: int = 1 << 62,
) -> Generator[R]:
    """Yield ``function(thing)`` for each thing, in order; several threads compute a few things ahead.

    They are fewer, down to one per thread and one more, if that many times the largest `size` of a result so far
    exceeds `most`. Closing the generator, or an exception, cancels what was not begun and waits for the rest.
    """
    if n_threads <= 1:
        yield from map(function, things)
        return
    waiting: deque[Future[R]] = deque()
    pool = ThreadPoolExecutor(n_threads)
    largest, ahead = 1, n_threads + 1
    try:
        for thing in things:
            waiting.append(pool.submit(function, thing))
            while len(waiting) >= ahead:
                result = waiting.popleft().result()
                largest = max(largest, size(result))
                ahead = min(_AHEAD * n_threads, max(n_threads + 1, most // largest))
                yield result
                del result
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def cached_once(maxsize: int) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Keep the last results of a function as `functools.lru_cache` does; each is computed by one thread.

    Others that ask for it meanwhile wait. The function has `cache_clear` and `cache_info`, as those of `functools`.

    >>> @cached_once(maxsize=2)
    ... def square(number):
    ...     return number**2
    >>> square(3), square(3), square.cache_info().hits
    (9, 9, 1)
    """

    def decorated(function: Callable[..., R]) -> Callable[..., R]:
        cached, locks = lru_cache(maxsize)(function), [Lock() for _ in range(_N_LOCKS)]

        @wraps(function)
        def call(*arguments: Any) -> R:
            with locks[hash(arguments) % _N_LOCKS]:
                return cached(*arguments)

        vars(call).update(cache_clear=cached.cache_clear, cache_info=cached.cache_info)
        return call

    return decorated
