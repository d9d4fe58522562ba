"""Where the parts of a job run: in this process, or on the workers of a Dask cluster.

A step of a job is a function that is mapped over parts, and perhaps a tree of sums over what it gives. Both executors
run the same functions in the same order of sums, so that results do not depend on where they were computed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise._utils.extras import require
from bagwise._utils.memory import parse_size
from bagwise._utils.threads import map_in_order
from bagwise.errors import BagwiseError, argument

__all__ = ["DaskExecutor", "Executor", "LocalExecutor", "Spilled", "executor_of", "new_file", "remove_file"]

Progress = Callable[[str, int, int], None]

# Seconds between two looks at the workers, and without any worker until a job fails.
_LOOK = 1.0
_WITHOUT_WORKERS = 300.0
_IN_MEMORY = 32 << 20  # bytes of batches that this process keeps, by default


class Executor(ABC):
    """Runs functions over parts. What `map`, `reduce` and `share` return are handles, which `gather` makes values.

    `keep` holds batches until they are read again; it is called where a part is computed.
    """

    keep: Callable[[Iterable[Any]], Iterable[Any]]

    def __init__(self, progress: Progress | None = None) -> None:
        self.progress: Progress = progress or (lambda step, done, total: None)

    @abstractmethod
    def map(
        self,
        function: Callable[..., Any],
        *parts: Sequence[Any],
        step: str = "",
        sizes: Sequence[int] | None = None,
        fixed: bool = False,
        n_threads: int = 1,
    ) -> list[Any]:
        """Call a function with each part, or with one of each of several sequences; return when all are done.

        `step` is the name of the step for progress, and `sizes` what each part counts. Parts may be handles. If
        `fixed`, a part goes to the worker that had it in the last call, which may still hold what it has read, unless
        workers have come or gone or are busy. `n_threads` parts run at a time where this process runs them.
        """

    @abstractmethod
    def gather(self, handles: Sequence[Any]) -> list[Any]:
        """Return the values of handles, in this process."""

    @abstractmethod
    def share(self, value: Any) -> Any:
        """Return a handle of a value that all parts need."""

    def mapping(self, step: str) -> Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]:
        """Return a function like the built-in `map`, for packages that know nothing of executors.

        What each part counts is its length.
        """

        def mapped(function: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
            return self.gather(self.map(function, parts, step=step, sizes=[len(part) for part in parts]))

        return mapped

    def reduce(self, join: Callable[[Any, Any], Any], parts: Sequence[Any], step: str = "") -> Any:
        """Join neighbours in pairs, these again, and so on: a tree in the order of the parts. Returns a handle."""
        left = list(parts)
        while len(left) > 1:
            pairs = len(left) // 2
            joined = self.map(join, left[: 2 * pairs : 2], left[1 : 2 * pairs : 2], step=step)
            left = joined + left[2 * pairs :]
        return left[0]

    def map_reduce(
        self,
        function: Callable[..., Any],
        join: Callable[[Any, Any], Any],
        *parts: Sequence[Any],
        step: str = "",
        sizes: Sequence[int] | None = None,
    ) -> Any:
        """Map and reduce, and return the value."""
        return self.gather([self.reduce(join, self.map(function, *parts, step=step, sizes=sizes))])[0]


class LocalExecutor(Executor):
    """Runs parts in this process, one after the other or in threads. Handles are the values themselves.

    Batches that are kept beyond `memory_limit`, 32 MiB by default, go to temporary files.
    """

    def __init__(self, progress: Progress | None = None, memory_limit: int | float | str | None = None) -> None:
        super().__init__(progress)
        self.keep = _InMemory(_IN_MEMORY if memory_limit is None else parse_size(memory_limit))

    def __reduce__(self) -> Any:
        return LocalExecutor, ()  # of another process, with its own memory

    def map(
        self,
        function: Callable[..., Any],
        *parts: Sequence[Any],
        step: str = "",
        sizes: Sequence[int] | None = None,
        fixed: bool = False,
        n_threads: int = 1,
    ) -> list[Any]:
        """Call a function with each part."""
        counts = [1] * len(parts[0]) if sizes is None else sizes
        done, total, results = 0, sum(counts), []
        if step:
            self.progress(step, 0, total)
        calls = map_in_order(lambda arguments: function(*arguments), zip(*parts, strict=True), n_threads)
        for count, result in zip(counts, calls, strict=True):
            results.append(result)
            done += count
            if step:
                self.progress(step, done, total)
        return results

    def map_reduce(
        self,
        function: Callable[..., Any],
        join: Callable[[Any, Any], Any],
        *parts: Sequence[Any],
        step: str = "",
        sizes: Sequence[int] | None = None,
    ) -> Any:
        """Map and reduce, and return the value. Neighbours are joined as soon as there are two: few are held."""
        joined: list[tuple[int, Any]] = []  # how many parts each is of, powers of two

        def add(*arguments: Any) -> None:
            joined.append((1, function(*arguments)))
            while len(joined) > 1 and joined[-1][0] == joined[-2][0]:
                (count, one), (_, other) = joined[-2:]
                joined[-2:] = [(2 * count, join(one, other))]

        self.map(add, *parts, step=step, sizes=sizes)
        while len(joined) > 1:
            (_, one), (_, other) = joined[-2:]
            joined[-2:] = [(0, join(one, other))]
        return joined[0][1]

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        """Return the values."""
        return list(handles)

    def share(self, value: Any) -> Any:
        """Return the value."""
        return value


class _Held(list[Any]):
    """A list that tells when it is let go."""


class _InMemory:
    """Keeps batches of parts in memory, up to a number of bytes together; parts beyond in temporary files."""

    def __init__(self, limit: int) -> None:
        self._limit, self._n_bytes, self._lock = limit, 0, Lock()

    def __call__(self, batches: Iterable[Any]) -> Iterable[Any]:
        kept, n_bytes, rest = _Held(), 0, iter(batches)
        for batch in rest:
            kept.append(batch)
            n_bytes += _size_of(batch)
            if self._n_bytes + n_bytes > self._limit:
                return Spilled(chain(kept, rest))
        self._add(n_bytes)
        weakref.finalize(kept, self._add, -n_bytes)
        return kept

    def _add(self, n_bytes: int) -> None:
        with self._lock:
            self._n_bytes += n_bytes


def _size_of(value: Any) -> int:
    """Return the bytes of arrays, CSR arrays and bags, and of tuples and lists of them."""
    if isinstance(value, (tuple, list)):
        return sum(map(_size_of, value))
    if hasattr(value, "indptr"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    return int(getattr(value, "nbytes", 0))


class DaskExecutor(Executor):
    """Runs parts on the workers of a `distributed.Client`. Handles are futures.

    A function that raises an error ends the step, and so does Ctrl-C: what is not finished is cancelled.
    """

    def __init__(self, client: Any, progress: Progress | None = None) -> None:
        super().__init__(progress)
        self.client = client
        self._address = str(getattr(client.scheduler, "address", "of the client"))  # is forgotten when it is lost
        self._distributed = require("distributed", "dask", "A cluster")

    def map(
        self,
        function: Callable[..., Any],
        *parts: Sequence[Any],
        step: str = "",
        sizes: Sequence[int] | None = None,
        fixed: bool = False,
        n_threads: int = 1,
    ) -> list[Any]:
        """Call a function with each part, on workers."""
        if not parts[0]:
            return []
        with self._connected(), _large_graphs():
            futures = self._fixed(function, parts) if fixed else self.client.map(function, *parts, pure=False)
            self._wait(futures, step, [1] * len(futures) if sizes is None else list(sizes), futures)
        return futures

    def _fixed(self, function: Callable[..., Any], parts: Sequence[Sequence[Any]]) -> list[Any]:
        """Submit parts to workers in turn; another one may take a part."""
        workers = sorted(self.client.nthreads())
        if not workers:  # they may come yet
            return self.client.map(function, *parts, pure=False)
        return [
            self.client.submit(
                function, *arguments, pure=False, workers=workers[k % len(workers)], allow_other_workers=True
            )
            for k, arguments in enumerate(zip(*parts, strict=True))
        ]

    def map_reduce(
        self,
        function: Callable[..., Any],
        join: Callable[[Any, Any], Any],
        *parts: Sequence[Any],
        step: str = "",
        sizes: Sequence[int] | None = None,
    ) -> Any:
        """Map and reduce, and return the value. Sums begin as soon as two neighbours are there."""
        with self._connected(), _large_graphs():
            left = futures = self.client.map(function, *parts, pure=False)
            while len(left) > 1:
                pairs = len(left) // 2
                # before parts that wait, so that results do not pile up
                joined = self.client.map(join, left[: 2 * pairs : 2], left[1 : 2 * pairs : 2], pure=False, priority=1)
                left = joined + left[2 * pairs :]
            counts = [1] * len(futures) if sizes is None else list(sizes)
            waiting = iter(futures)
            del futures  # a result that was joined is not held any longer
            if step:
                self._wait(waiting, step, counts, left)
            del waiting
        return self.gather(left)[0]

    def _wait(self, futures: Iterable[Any], step: str, sizes: list[int], wanted: Sequence[Any] = ()) -> None:
        """Wait for futures, and hold none that is done; after an error cancel those `wanted`, which depend on them."""
        waiting = {future.key: future for future in futures}
        size_of = dict(zip(waiting, sizes, strict=True))
        done, total = 0, sum(sizes)
        if step:
            self.progress(step, 0, total)
        try:
            completed = self._distributed.as_completed(list(waiting.values()), loop=self.client.loop)
            watch = _Watch(self.client, self._address, self.progress)
            while completed.count():
                with completed.thread_condition:
                    if not completed.has_ready():
                        completed.thread_condition.wait(_LOOK)
                if not completed.has_ready():
                    watch.look()
                    continue
                future = next(completed)
                status = future.status
                if status == "error":
                    raise future.exception()
                if status in ("lost", "pending"):  # it was finished, but its worker is gone: it is computed again
                    completed.add(future)
                    continue
                if status != "finished":
                    raise self._distributed.client.FutureCancelledError(future.key, status)
                del waiting[future.key]
                done += size_of[future.key]
                if step:
                    self.progress(step, done, total)
        except BaseException:
            self._cancel(wanted)
            for future in waiting.values():  # cancelling would ask for tasks between, which nobody holds
                future.release()
            raise

    def _cancel(self, futures: Sequence[Any]) -> None:
        with contextlib.suppress(Exception):  # the first error is what counts; the scheduler may be gone
            self.client.cancel(list(futures), force=True)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        """Turn errors of the cluster itself into errors that say what to do."""
        known = self._distributed
        again = f"With a cache ({argument('cache')}) the same call goes on from the parts that were finished."
        try:
            yield
        except BagwiseError:
            raise
        except known.scheduler.KilledWorker as error:
            raise BagwiseError(
                f"Workers were lost again and again while they computed the same part ({error.task}), most likely for "
                f"want of memory. Give workers more memory, or make parts smaller. {again}"
            ) from error
        except (
            known.client.FutureCancelledError,
            known.comm.CommClosedError,
            known.client.FuturesCancelledError,
            TimeoutError,
            OSError,
        ) as error:
            if isinstance(error, OSError) and self.client.status == "running" and not _of_connection(error):
                raise
            raise BagwiseError(
                f"The connection to the scheduler {self._address} was lost, or the job was cancelled there "
                f"({type(error).__name__}). Start a scheduler and workers, and run it again. {again}"
            ) from error

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        """Fetch the values of futures."""
        with self._connected():
            watch = _Watch(self.client, self._address, self.progress)
            values = asyncio.run_coroutine_threadsafe(
                self.client.gather(list(handles), asynchronous=True), self.client.loop.asyncio_loop
            )
            try:
                while not wait([values], _LOOK).done:
                    watch.look()
                return values.result()
            except BaseException:
                values.cancel()
                self._cancel(handles)
                raise

    def share(self, value: Any) -> Any:
        """Put a value on a worker; others fetch it there. It is part of the job, so that lost workers do no harm."""
        with self._connected(), _large_graphs():
            return self.client.submit(_same, value, pure=False)


class _Watch:
    """Looks whether a cluster has workers, and raises an error when it has had none for too long.

    Dask itself waits for ever, since workers may come.
    """

    def __init__(self, client: Any, address: str, progress: Progress) -> None:
        self._client, self._address, self._progress = client, address, progress
        self._since: float | None = None

    def look(self) -> None:
        """Ask the scheduler for its workers."""
        if self._client.status != "running" or self._client.nthreads():
            self._since = None
            return
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        self._progress("Waiting for workers", 0, 0)
        if now - self._since >= _WITHOUT_WORKERS:
            raise BagwiseError(
                f"The scheduler {self._address} has had no worker for {_WITHOUT_WORKERS:g} seconds: all were lost, "
                "most likely for want of memory, and none came back. Give workers more memory, or make parts smaller "
                f"({argument('partition')}), and start workers again. With a cache ({argument('cache')}) the same call "
                "goes on from the parts that were finished."
            )


def executor_of(
    client: Any, progress: Progress | None = None, memory_limit: int | float | str | None = None
) -> Executor:
    """Return the executor of a `distributed.Client`; an executor is returned as it is, for None one of this process.

    That has a `memory_limit`, see `LocalExecutor`.

    >>> type(executor_of(None)).__name__
    'LocalExecutor'
    """
    if client is None:
        return LocalExecutor(progress, memory_limit)
    if isinstance(client, Executor):
        client.progress = progress or client.progress
        return client
    known = require("distributed", "dask", "A cluster")
    if not isinstance(client, known.Client) or client.asynchronous:
        got = "an asynchronous Client" if isinstance(client, known.Client) else type(client).__name__
        raise BagwiseError(
            f"client must be a distributed.Client that is not asynchronous; got {got}. Make one by "
            'Client("tcp://scheduler:8786"), or Client(n_workers=4, threads_per_worker=1) for this machine.'
        )
    return DaskExecutor(client, progress)


def _same(value: Any) -> Any:
    return value


def _of_connection(error: OSError) -> bool:
    return isinstance(error, (ConnectionError, TimeoutError))


def _large_graphs() -> Any:
    """Let rows of tables that are in memory travel with the tasks without a warning."""
    return require("dask", "dask", "A cluster").config.set({"distributed.admin.large-graph-warning-threshold": "1TB"})


class Spilled:
    """Batches in a temporary file of this process: what a worker holds of a part takes no memory.

    Iterating reads one batch at a time. A pickle has the content of the file, so that it may move to another worker,
    which then has a file of its own. The file is removed with the object.

    Parameters
    ----------
    batches : iterable
        Objects that can be pickled.

    Examples
    --------
    >>> import pickle
    >>> held = Spilled(iter([[1, 2], [3]]))
    >>> list(held), list(pickle.loads(pickle.dumps(held)))
    ([[1, 2], [3]], [[1, 2], [3]])
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self.path, file = new_file()
        self._remove = weakref.finalize(self, remove_file, self.path)
        self.n_batches = 0
        with file:
            for batch in batches:
                try:
                    pickle.dump(batch, file, protocol=pickle.HIGHEST_PROTOCOL)
                except OSError as error:
                    raise _cannot_write(self.path.parent, error) from error
                self.n_batches += 1

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size

    def __iter__(self) -> Iterator[Any]:
        with open(self.path, "rb") as file:
            for _ in range(self.n_batches):
                yield pickle.load(file)

    def __reduce__(self) -> Any:
        return _received, (self.n_batches, np.fromfile(self.path, np.uint8))


def _received(n_batches: int, content: NDArray[np.uint8]) -> Spilled:
    spilled = Spilled(())
    spilled.n_batches = n_batches
    content.tofile(spilled.path)
    return spilled


def new_file() -> tuple[Path, Any]:
    """Open a new file in the folder of the worker, which Dask removes with it, or in that of temporary files."""
    folder = None
    with contextlib.suppress(ImportError, ValueError):
        from distributed import get_worker

        folder = get_worker().local_directory
    try:
        number, name = tempfile.mkstemp(prefix="bagwise-", suffix=".part", dir=folder)
    except OSError as error:
        raise _cannot_write(folder or tempfile.gettempdir(), error) from error
    return Path(name), os.fdopen(number, "wb")


def _cannot_write(folder: Any, error: OSError) -> BagwiseError:
    return BagwiseError(
        f"What was read cannot be written to a temporary file in {folder}: {error.strerror or error}. Free disk "
        f"space, set TMPDIR to another folder, or raise {argument('memory_limit')}."
    )


def remove_file(path: Path) -> None:
    """Remove a file, if it is still there."""
    path.unlink(missing_ok=True)


DaskExecutor.keep = Spilled
