"""Reads files of formats whose C libraries may crash or not end (HDF5, video) in a process of its own.

The process opens nothing. It reads the file through the process that started it, and once its libraries are imported,
it may not have another descriptor: it reaches no other file and no network, whatever a file makes a library try, and
neither would a program that it started, which would not even find its libraries. Its memory and time are limited; if it
ends too early, that is an error like others. Windows limits the time only.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pkgutil import walk_packages
from typing import IO, Any, BinaryIO

from bagwise._utils.json_text import parse_json
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError, in_python, named_by, parameter_name
from bagwise.sources.items import Content
from bagwise.sources.limits import Deadline, Limits, timed

__all__ = ["Send", "read_guarded"]

Send = Callable[[dict[str, Any], Any], None]
# What a task is: it reads a file as the request says, and sends headers with bytes.
Task = Callable[[BinaryIO, dict[str, Any], Limits, Send], None]

# Parameters that messages name, as they are named where the process was started.
_NAMES = ("id", "label", "layer", "limits", "split")
_PROGRAM = "from bagwise.sources.guarded import serve; serve()"  # that of the process
_BLOCK = 1 << 18  # bytes that the process asks for at a time
_MOST_ASKED = 1 << 24
_ENDING = 10.0  # seconds from the last message to the end of the process
_REUSED = 100  # files that a process reads at most


def read_guarded(
    task: str,
    content: Content,
    request: Mapping[str, Any],
    limits: Limits,
    *,
    library: str,
    packages: Sequence[str],
    memory: int,
    many: bool = False,
) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield what a task sends while it reads a file in a process of its own.

    Parameters
    ----------
    task : str
        The function, as ``module:name``; see `Task`.
    content : Content
        The file.
    request : mapping
        What the task is to do, as JSON.
    limits : Limits
        The task obeys them; `seconds` is obeyed here.
    library : str
        What fails if the process ends too early, for the error.
    packages : sequence of str
        What the task imports beside its module.
    memory : int
        Bytes that the process may take beside what its libraries take.
    many : bool, default=False
        Whether the file holds many items: the time begins anew with each message, and the process ends with the file.
    """
    deadline = Deadline(limits)
    with content.open() as opened:
        size = opened.seek(0, os.SEEK_END)
        file = opened if many else timed(opened, deadline)
        # messages name parameters as they do here
        names = in_python("", "options") and {name: parameter_name(name) for name in _NAMES}
        asked = {"task": task, "request": dict(request), "limits": limits.changed(), "size": size, "names": names}
        with _helper(tuple(packages), memory, limits) as (helper, watch):
            helper.send(asked)
            while True:
                header, payload = helper.receive(memory)
                if watch.late:
                    raise limits.exceeded("seconds", f"it takes longer to read{' a part of it' * many}")
                if header is None:
                    raise _failed(library, helper.ending())
                if "read" in header:
                    offset, n_bytes = header["read"]
                    file.seek(offset)
                    helper.send({}, file.read(min(n_bytes, _MOST_ASKED)))
                    continue
                if many:
                    watch.renew()
                helper.reusable = not many and ("end" in header or "error" in header)
                if "error" in header:
                    raise BagwiseError(header["error"])
                if "failure" in header:
                    raise _failed(library, header["failure"])
                if "end" in header:
                    return
                yield header, payload


def _failed(library: str, how: str) -> BagwiseError:
    return BagwiseError(f"it is damaged: {library} failed to read it ({how}).")


class _Helper:
    """A process that reads files, one after the other."""

    def __init__(self, packages: tuple[str, ...], memory: int) -> None:
        places = os.pathsep.join(os.path.abspath(place) for place in sys.path)
        environment = os.environ | {"PYTHONPATH": places, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", _PROGRAM]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        # in a session of its own it gets no Ctrl-C: who started it ends it
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **pipes)
        self.n_read, self.reusable = 0, False
        self.send({"packages": packages, "memory": memory})

    def send(self, header: Mapping[str, Any], payload: bytes = b"") -> None:
        """Send a message; a process that has ended is noticed when its answer is received."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            _write(self.process.stdin, header, payload)

    def receive(self, most: int) -> tuple[dict[str, Any] | None, bytes]:
        """Receive a message; None if the process has ended, or sends what is none."""
        assert self.process.stdout is not None
        return _read(self.process.stdout, most)

    def ending(self) -> str:
        """Say how the process ended."""
        try:
            code = self.process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            return "it sent what was not expected"
        return signal.Signals(-code).name if -code in set(signal.Signals) else f"exit status {code}"

    def end(self) -> None:
        """End the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


class _Watch:
    """Kills a process if it is not done after some seconds."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._process, self._seconds, self.late = process, seconds, False
        self._changed, self._over = threading.Condition(), False
        self.renew()
        threading.Thread(target=self._run, name="bagwise watch", daemon=True).start()

    def renew(self) -> None:
        """Let the time begin anew."""
        self._end = time.monotonic() + self._seconds

    def stop(self) -> None:
        """Let the process live."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._over:
                left = self._end - time.monotonic()
                if left <= 0:
                    self.late = True
                    self._process.kill()
                    return
                self._changed.wait(min(left, threading.TIMEOUT_MAX))


# Processes that wait for the next file, by what they import and the memory they may take.
_idle: dict[tuple[tuple[str, ...], int], list[_Helper]] = {}
_lock = threading.Lock()


@contextmanager
def _helper(packages: tuple[str, ...], memory: int, limits: Limits) -> Iterator[tuple[_Helper, _Watch]]:
    """Lend a process, which is kept for the next file if it reads this one to its end."""
    with _lock:
        waiting = _idle.setdefault((packages, memory), [])
        while waiting and waiting[-1].process.poll() is not None:
            waiting.pop().end()
        helper = waiting.pop() if waiting else None
    helper = helper or _Helper(packages, memory)
    helper.n_read, helper.reusable = helper.n_read + 1, False
    watch = _Watch(helper.process, limits.seconds)
    try:
        yield helper, watch
    finally:
        watch.stop()
        if helper.reusable and not watch.late and helper.n_read < _REUSED:
            with _lock:
                waiting.append(helper)
        else:
            helper.end()


@atexit.register
def _end_all() -> None:
    """End the processes that wait."""
    with _lock:
        for helper in [helper for waiting in _idle.values() for helper in waiting]:
            helper.end()
        _idle.clear()


def _begin_anew() -> None:
    """Forget the processes, which are those of the parent, and a lock that one of its threads may have had."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _write(pipe: IO[bytes], header: Mapping[str, Any], payload: Any = b"") -> None:
    content = json.dumps(header).encode()
    pipe.write(len(content).to_bytes(8, "little") + len(payload).to_bytes(8, "little") + content)
    pipe.write(payload)
    pipe.flush()


def _read(pipe: IO[bytes], most: float) -> tuple[dict[str, Any] | None, bytes]:
    sizes = pipe.read(16)
    n_header, n_payload = (int.from_bytes(sizes[start : start + 8], "little") for start in (0, 8))
    if len(sizes) < 16 or n_header + n_payload > most:
        return None, b""
    content, payload = pipe.read(n_header), pipe.read(n_payload)
    if len(content) < n_header or len(payload) < n_payload:
        return None, b""
    header = parse_json(content)
    return header, payload


class _ServedFile(io.RawIOBase):
    """A file that is read by the process that started this one."""

    def __init__(self, size: int, ask: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size, self._ask, self._place = size, ask, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._place = max(0, offset + (0, self._place, self._size)[whence])
        return self._place

    def tell(self) -> int:
        return self._place

    def readinto(self, buffer: Any, /) -> int:
        wanted = min(len(buffer), _MOST_ASKED, self._size - self._place)
        part = self._ask(self._place, wanted) if wanted > 0 else b""
        buffer[: len(part)] = part
        self._place += len(part)
        return len(part)


def serve() -> None:
    """Read files in this process, as messages in the standard input say, and send what is in them."""
    requests = sys.stdin.buffer
    # what libraries print goes elsewhere
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send(header: dict[str, Any], payload: Any = b"") -> None:
        _write(answers, header, payload)

    def ask(offset: int, n_bytes: int) -> bytes:
        send({"read": [offset, n_bytes]})
        header, part = _read(requests, float("inf"))
        if header is None:  # nobody waits for this process
            os._exit(1)
        return part

    first, _ = _read(requests, float("inf"))
    if first is None:
        return
    _import_all(first["packages"])
    tasks: dict[str, Task] = {}
    enclosed = False
    while (asked := _read(requests, float("inf"))[0]) is not None:
        if asked["task"] not in tasks:
            module, name = asked["task"].split(":")
            tasks[asked["task"]] = getattr(import_module(module), name)
        limits = Limits(**asked["limits"])
        if not enclosed:
            _enclose(first["memory"])
            enclosed = True
        _limit_time(limits)
        with named_by(asked["names"].get) if asked["names"] else nullcontext():
            try:
                with io.BufferedReader(_ServedFile(asked["size"], ask), _BLOCK) as file:
                    tasks[asked["task"]](file, asked["request"], limits, send)
                send({"end": True})
            except BagwiseError as error:
                send({"error": str(error)})
            except MemoryError:
                send({"error": f"it takes more than {readable_size(first['memory'])} of memory to read"})
            except Exception as error:
                send({"failure": f"{type(error).__name__}: {error}"[:300]})


def _import_all(packages: Sequence[str]) -> None:
    """Import packages with all that is in them: none can be imported later."""
    for package in packages:
        with suppress(ImportError):  # the task names the extra that it needs
            import_module(package)
        for module in walk_packages(
            getattr(sys.modules.get(package), "__path__", []), f"{package}.", onerror=lambda name: None
        ):
            if not {"tests", "__main__"} & set(module.name.split(".")):
                with suppress(ImportError):  # for other systems and other packages
                    import_module(module.name)


def _enclose(memory: int) -> None:
    """Take no descriptor more from now on, and only this memory, where the system can limit that."""
    try:
        import resource
    except ImportError:  # Windows
        return
    taken = 0
    with suppress(OSError), open("/proc/self/statm") as file:  # Linux has it
        taken = int(file.read().split()[0]) * resource.getpagesize()
    for what, most in (
        (resource.RLIMIT_AS, taken + memory),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        _, hard = resource.getrlimit(what)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))


def _limit_time(limits: Limits) -> None:
    """End this process if it takes the time of a file on all processors, even if nobody watches it any more."""
    try:
        import resource
    except ImportError:  # Windows
        return
    usage = resource.getrusage(resource.RUSAGE_SELF)
    most = usage.ru_utime + usage.ru_stime + (limits.seconds + 1) * (os.cpu_count() or 1) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    soft = int(min(most, 1 << 40))
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))
