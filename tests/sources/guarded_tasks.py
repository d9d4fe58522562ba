"""What guarded processes are asked to do in tests."""

import contextlib
import os
import socket
import subprocess
import sys
import time

import numpy as np


def tries(file, limits):
    """Try to get at something else than the file."""
    came = {}
    for name, use in {
        "file": lambda: os.open(__file__, os.O_RDONLY),
        "socket": socket.socket,
        "process": lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        "pipe": os.pipe,
    }.items():
        try:
            use()
            came[name] = "worked"
        except OSError as error:
            came[name] = type(error).__name__
    # without a pipe: the program is there, but opens nothing, not even its libraries
    ended = os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}), 0)[1])
    content = np.frombuffer(file.read(), np.uint8)
    yield from {"came": came, "program": ended, "process": os.getpid(), "content": content}.items()


def endless(file, limits):
    """Never end."""
    while True:
        with contextlib.suppress(Exception):
            pass


def waits(file, limits):
    """Never end, without work for a processor."""
    time.sleep(1e6)


def takes_memory(file, limits, n_bytes):
    """Take as much memory as is said."""
    bytearray(n_bytes)
    return ()


def dies(file, limits):
    """End as C code does when it fails."""
    print("libraries may print")
    os.abort()


def floods(file, limits, n_bytes):
    """Yield more than there is memory for."""
    yield "values", np.zeros(n_bytes, np.uint8)


def values(file, limits):
    """Yield arrays of several types and shapes, and values that JSON can hold."""
    arrays = {"none": np.empty((0, 3)), "one": np.array(2, np.float32), "some": np.arange(6).reshape(2, 3).T}
    yield from {**arrays, "large": np.arange(9 << 20, dtype=">i4"), "name": "é", "list": [1, None]}.items()


def fails_late(file, limits):
    """Yield an array, and fail."""
    yield "some", np.arange(3)
    raise OSError("the next one is damaged")


def raises(file, limits):
    """Fail as a library may."""
    return 1 / 0
