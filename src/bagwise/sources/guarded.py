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
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pkgutil import walk_packages
from typing import IO, Any

import numpy as np

from bagwise._utils.json_text import parse_json
from bagwise._utils.memory import readable_size
from bagwise.errors import BagwiseError, in_python, named_by, parameter_name
from bagwise.sources.items import Content
from bagwise.sources.limits import Deadline, Limits, timed

__all__ = ["call_guarded"]

# What is called: it reads a file, as its arguments say, and yields names with arrays, with datasets of HDF5, which are
# read and sent piece by piece, or with values that JSON can hold.
Task = Callable[..., Iterable[tuple[str, Any]]]

# Parameters that messages name, as they are named where the process was started.
_NAMES = ("id", "label", "layer", "limits", "split")
_PROGRAM = "from bagwise.sources.guarded import serve; serve()"  # that of the process
_BLOCK = 1 << 18  # bytes that the process asks for at a time
_MOST_ASKED = 1 << 24
_PIECE = 1 << 24  # bytes of an array that are sent at a time
_ENDING = 10.0  # seconds from the last message to the end of the process
_REUSED = 100  # files that a process reads at most


def call_guarded(
    task: str,
    content: Content,
    arguments: Mapping[str, Any],
    limits: Limits,
    *,
    library: str,
    packages: Sequence[str],
    memory: int,
    keep: bool = True,
) -> dict[str, Any]:
    """Call a function ``module:name`` that reads a file, in a process of its own; return what it yields, by name.

    It gets the file, the limits (`seconds` is obeyed here), and arguments that JSON can hold. `library` is what fails
    if the process ends too early, `packages` what the task imports beside its module, `memory` the bytes that it may
    take beside what these take. With `keep`, the process is kept for other files with the same memory.
    """
    with content.open() as opened, _helper(tuple(packages), memory) as helper:
        size = opened.seek(0, os.SEEK_END)
        # messages name parameters as they do here
        names = in_python("", "options") and {name: parameter_name(name) for name in _NAMES}
        asked = {"task": task, "arguments": dict(arguments), "limits": limits.changed(), "size": size, "names": names}
        deadline = Deadline(limits)
        file = timed(opened, deadline)
        watch = threading.Timer(min(limits.seconds, threading.TIMEOUT_MAX), helper.process.kill)
        watch.daemon = True
        watch.start()

        def read(offset: int, n_bytes: int) -> bytes:
            file.seek(offset)
            return file.read(min(n_bytes, _MOST_ASKED))

        try:
            helper.send(asked)
            values, message = helper.receive(read, memory)
        except BagwiseError:
            raise
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):  # what is no message of ours
            values, message = {}, None
        finally:
            watch.cancel()
        if message is None:
            deadline.check()
            raise _failed(library, helper.ending())
        helper.reusable = keep and "failure" not in message
        if "error" in message:
            raise BagwiseError(message["error"])
        if "failure" in message:
            raise _failed(library, message["failure"])
        return values


def _failed(library: str, how: str) -> BagwiseError:
    return BagwiseError(f"it is damaged: {library} failed to read it ({how}).")


class _Helper:
    """A process that reads files, one after the other."""

    def __init__(self, packages: tuple[str, ...], memory: int) -> None:
        folders = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
        environment = os.environ | {"PYTHONPATH": folders, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
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

    def receive(self, read: Callable[[int, int], bytes], most: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Receive values by name, while the process reads the file, and its last message.

        That is None if the process has ended, sends more bytes than `most`, or sends what it never would.
        """
        pipe: Any = self.process.stdout
        values: dict[str, Any] = {}
        rest = np.empty(0, np.uint8)  # of the last array
        while True:
            header, _ = _read(pipe, most)
            if header is None or {"end", "error", "failure"} & set(header):
                return values, header
            if "read" in header:
                self.send({}, read(*header["read"]))
            elif "value" in header:
                values[header["name"]] = header["value"]
            elif "array" in header:
                kind, shape = np.dtype(header["array"]), tuple(header["shape"])
                most -= math.prod(shape) * kind.itemsize
                if kind.hasobject or min(shape, default=0) < 0 or most < 0:
                    return values, None
                values[header["name"]] = np.empty(shape, kind)
                rest = values[header["name"]].reshape(-1).view(np.uint8)
            else:
                n_bytes = header["piece"]
                if not 0 < n_bytes <= len(rest) or pipe.readinto(rest[:n_bytes].data) < n_bytes:
                    return values, None
                rest = rest[n_bytes:]

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


# Processes that wait for the next file, by what they import and the memory they may take.
_idle: dict[tuple[tuple[str, ...], int], list[_Helper]] = {}
_lock = threading.Lock()


@contextmanager
def _helper(packages: tuple[str, ...], memory: int) -> Iterator[_Helper]:
    """Lend a process, which is kept for the next file if it reads this one to its end."""
    with _lock:
        waiting = _idle.setdefault((packages, memory), [])
        while waiting and waiting[-1].process.poll() is not None:
            waiting.pop().end()
        helper = waiting.pop() if waiting else None
    helper = helper or _Helper(packages, memory)
    helper.n_read, helper.reusable = helper.n_read + 1, False
    try:
        yield helper
    finally:
        if helper.reusable and helper.n_read < _REUSED:
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


def _write_value(pipe: IO[bytes], name: str, value: Any) -> None:
    if not hasattr(value, "dtype"):
        _write(pipe, {"name": name, "value": value})
        return
    kind = value.dtype.newbyteorder("=")
    _write(pipe, {"name": name, "array": kind.str, "shape": value.shape})
    if value.ndim == 0:
        value = np.asarray(value).reshape(1)
    row_bytes = max(1, math.prod(value.shape[1:]) * kind.itemsize)
    chunk = (getattr(value, "chunks", None) or (1,))[0]  # is decompressed as a whole
    n_rows = -(-max(1, _PIECE // row_bytes) // chunk) * chunk
    for start in range(0, value.shape[0], n_rows):
        piece = np.ascontiguousarray(value[start : start + n_rows], kind)
        if piece.size:
            _write(pipe, {"piece": piece.nbytes})
            pipe.write(piece.reshape(-1).view(np.uint8).data)
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
        self._size, self._ask, self._position = size, ask, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._position = max(0, offset + (0, self._position, self._size)[whence])
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        wanted = min(len(buffer), _MOST_ASKED, self._size - self._position)
        part = self._ask(self._position, wanted) if wanted > 0 else b""
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)


def serve() -> None:
    """Read files in this process, as messages in the standard input say, and send what is in them."""
    requests = sys.stdin.buffer
    # what libraries print goes elsewhere
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def ask(offset: int, n_bytes: int) -> bytes:
        _write(answers, {"read": [offset, n_bytes]})
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
                    for name, value in tasks[asked["task"]](file, limits, **asked["arguments"]):
                        _write_value(answers, name, value)
                _write(answers, {"end": True})
            except BagwiseError as error:
                _write(answers, {"error": str(error)})
            except MemoryError:
                _write(answers, {"error": f"it takes more than {readable_size(first['memory'])} of memory to read"})
            except Exception as error:
                _write(answers, {"failure": f"{type(error).__name__}: {error}"[:300]})


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
