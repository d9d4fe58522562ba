"""Guards for tests: a process that opens a socket is killed, also by C code; one that starts programs is found out."""

import ctypes
import os
import platform
import struct
import sys

# Number of the system call `socket`, and the name of the architecture in filters.
_SOCKET = {"x86_64": (41, 0xC000003E), "aarch64": (198, 0xC00000B7)}

CAN_FORBID = sys.platform == "linux" and platform.machine() in _SOCKET


def forbid_sockets():
    """Let the kernel kill this process, and all that it starts from now on, by SIGSYS when one opens a socket.

    A filter of seccomp sees C code as well, which audit hooks of Python do not.
    """
    number, architecture = _SOCKET[platform.machine()]
    load, jump, answer = 0x20, 0x15, 0x06
    allow, kill = 0x7FFF0000, 0x80000000
    filters = [
        (load, 0, 0, 4),  # the architecture
        (jump, 0, 3, architecture),
        (load, 0, 0, 0),  # the number of the call
        (jump, 0, 1, number),
        (answer, 0, 0, kill),
        (answer, 0, 0, allow),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in filters))
    program = struct.pack("HxxxxxxP", len(filters), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    set_seccomp, no_new_privileges = 22, 38
    for call in ((no_new_privileges, 1, 0, 0, 0), (set_seccomp, 2, ctypes.c_char_p(program), 0, 0)):
        if libc.prctl(*call):
            raise OSError(ctypes.get_errno(), "prctl")


_STARTS = (
    "subprocess.Popen",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.startfile",
    "os.system",
    "os.fork",
    "pty.spawn",
)
_OURS = "from bagwise.sources.guarded import serve"


class ProcessStartedError(BaseException):
    """Raised where a program is started: no handler of `Exception` takes it for a damaged file."""


def forbid_processes():
    """Raise an error when this process starts another, but for the guarded one that reads videos and HDF5."""

    def hook(event, arguments):
        if event in _STARTS and not (event == "subprocess.Popen" and any(_OURS in str(a) for a in arguments[1])):
            raise ProcessStartedError(f"{event}: {arguments[:2]!r:.200}")

    sys.addaudithook(hook)


def main(arguments):
    """Open items of collections under both guards and print what came of each: frames, or the error."""
    # what is imported only when it is needed may start programs, to find libraries
    import av  # noqa: F401
    import PIL.Image

    from bagwise import BagwiseError, open_collection

    PIL.Image.init()
    forbid_sockets()
    forbid_processes()
    for path in arguments:
        try:
            items = open_collection(path, limits={"seconds": 60})
            print(os.path.basename(path), "read", items[0].load().shape)
        except BagwiseError as error:
            print(os.path.basename(path), "refused:", " ".join(str(error).split()))


if __name__ == "__main__":
    main(sys.argv[1:])
