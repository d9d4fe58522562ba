"""Matrix products on the thread that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]


class _OneThread:
    """Limits the threads of BLAS, for the whole process, while anyone is inside."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._n_inside = 0
        self._controller: ThreadpoolController | None = None  # looking for libraries takes a while: once is enough
        self._limiter: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._n_inside == 0:
                self._controller = self._controller or ThreadpoolController()
                self._limiter = self._controller.limit(limits=1, user_api="blas")
            self._n_inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_inside -= 1
                if self._n_inside == 0:  # the last one out, or a limit of 1 set by another would be restored
                    self._limiter.restore_original_limits()


# Keeps matrix products on the thread that asks for them. Threads of our own work on different blocks: then results do
# not depend on the number of threads, and threads of the library do not wait for each other on a busy machine.
one_blas_thread = _OneThread()
