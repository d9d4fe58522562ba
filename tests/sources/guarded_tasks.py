"""What guarded processes are asked to do in tests."""

import contextlib
import os
import socket
import subprocess
import sys


def tries(file, request, limits, send):
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
    send({"came": came, "program": ended, "process": os.getpid()}, file.read())


def endless(file, request, limits, send):
    """Never end."""
    while True:
        with contextlib.suppress(Exception):
            pass


def takes_memory(file, request, limits, send):
    """Take as much memory as the request says."""
    bytearray(request["n_bytes"])


def dies(file, request, limits, send):
    """End as C code does when it fails."""
    print("libraries may print")
    os.abort()


def floods(file, request, limits, send):
    """Send more than there is memory for."""
    send({}, bytes(request["n_bytes"]))


def raises(file, request, limits, send):
    """Fail as a library may."""
    return 1 / 0
