"""Guards for tests: a process that opens a socket is killed, also by C code; one that starts programs is found out."""

import ctypes
import os
import platform
import struct
import sys

# Numbers of system calls, and the name of the architecture in filters; fork and vfork are not everywhere.
_CALLS = {
    "x86_64": {"socket": 41, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "clone3": 435},
    "aarch64": {"socket": 198, "clone": 220, "execve": 221, "execveat": 281, "clone3": 435},
}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE_THREAD, _ENOSYS = 0x10000, 38

CAN_FORBID = sys.platform == "linux" and platform.machine() in _CALLS


def forbid_sockets():
    """Let the kernel kill this process, and all that it starts from now on, by SIGSYS when one opens a socket.

    A filter of seccomp sees C code as well, which audit hooks of Python do not.
    """
    _kill_at("socket")


def forbid_programs():
    """Let the kernel kill this process by SIGSYS when it starts another, by Python or by C; threads are fine."""
    # the flags of clone3 are out of sight: without it, threads are started by clone
    _kill_at("fork", "vfork", "execve", "execveat", "clone", "clone3")


def _kill_at(*names):
    calls, architecture = _CALLS[platform.machine()], _ARCHITECTURES[platform.machine()]
    load, equal, some_bits, answer = 0x20, 0x15, 0x45, 0x06
    allow, kill, refuse = (answer, 0, 0, 0x7FFF0000), (answer, 0, 0, 0x80000000), (answer, 0, 0, 0x00050000 | _ENOSYS)
    filters = [(load, 0, 0, 4), (equal, 1, 0, architecture), allow, (load, 0, 0, 0)]
    for name in names:
        if name == "clone":  # its flags are the first argument
            what = [(load, 0, 0, 16), (some_bits, 0, 1, _CLONE_THREAD), allow, kill]
        else:
            what = [refuse if name == "clone3" else kill]
        if name in calls:
            filters += [(equal, 0, len(what), calls[name]), *what]
    filters.append(allow)
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
_WATCHED = "import guards; guards.serve_watched()"


class ProcessStartedError(BaseException):
    """Raised where a program is started: no handler of `Exception` takes it for a damaged file."""


def forbid_processes():
    """Raise an error when this process starts another, but for the guarded one that reads videos and HDF5.

    That one is killed by the kernel if it starts a program while it reads: hooks of Python do not see what C does.
    """
    from bagwise.sources import guarded

    guarded._PROGRAM = _WATCHED if CAN_FORBID else guarded._PROGRAM

    def hook(event, arguments):
        if event in _STARTS and not (event == "subprocess.Popen" and guarded._PROGRAM in arguments[1]):
            raise ProcessStartedError(f"{event}: {arguments[:2]!r:.200}")

    sys.addaudithook(hook)


def serve_watched():
    """Be the guarded process, without the right to start programs once its libraries are imported."""
    from bagwise.sources import guarded

    enclose = guarded._enclose

    def watched(memory):
        forbid_programs()
        enclose(memory)

    guarded._enclose = watched
    guarded.serve()


def open_items(paths):
    """Open items of collections under the guards that the process of videos works with, and tell what came of each."""
    # what is imported only when it is needed may start programs, to find libraries
    import av  # noqa: F401
    import PIL.Image

    from bagwise import BagwiseError, open_collection

    PIL.Image.init()
    forbid_sockets()
    forbid_processes()
    for path in paths:
        try:
            items = open_collection(path, limits={"seconds": 60})
            print(os.path.basename(path), "read", items[0].load().shape)
        except BagwiseError as error:
            print(os.path.basename(path), "refused:", " ".join(str(error).split()))


def use_images(good, hostile):
    """Fit, predict, upload and show images of two folders, the second under all guards, and tell what came of it."""
    _use_folder(good)
    forbid_sockets()
    forbid_processes()
    forbid_programs()
    _use_folder(hostile)


def _use_folder(folder):
    import asyncio
    import json
    import warnings
    import zipfile
    from pathlib import Path

    from bagwise import BagwiseError, fit_model, open_collection
    from bagwise.app.explorer import workspace_of
    from bagwise.app.explorer.app import make_app
    from bagwise.app.explorer.pages.search import MOST_BYTES
    from bagwise.app.explorer.security import Guard
    from bagwise.display import thumbnail
    from explorer_requests import HOST, TOKEN, respond

    warnings.simplefilter("ignore")
    folder = Path(folder)
    tried = sorted(folder.glob("*.png"))
    model = fit_model(str(folder / "classes"), n_words=8, n_groups=2, folds=0, n_jobs=2, on_error="skip")
    print(folder.name, "fit", *(note.splitlines()[0] for note in model.fit_.notes if "could not be read" in note))
    app = Guard(make_app(workspace_of(model)), token=TOKEN, hosts=[HOST], most_bytes=MOST_BYTES)
    given = {"host": HOST, "cookie": f"bagwise-8000={TOKEN}", "origin": f"http://{HOST}"}

    def uploaded(path):
        status, _, body = asyncio.run(respond(app, "POST", "/api/search", given, path.read_bytes()))
        return json.loads(body)["error"] if status == 400 else status

    def member(path):
        with zipfile.ZipFile(path.with_suffix(".zip"), "w") as archive:
            archive.write(path, path.name)
        return open_collection(path.with_suffix(".zip"), modality="images")[0].load().shape

    for path in tried:
        for name, use in {
            "predict": lambda path: model.predict(open_collection(path, modality="images")),
            "member": member,
            "upload": uploaded,
            "thumbnail": lambda path: len(thumbnail(path.read_bytes())) > 0,
        }.items():
            try:
                came = str(use(path))
            except BagwiseError as error:
                came = str(error)
            print(folder.name, path.stem, name, " ".join(came.split()))


if __name__ == "__main__":
    {"open": lambda *paths: open_items(paths), "images": use_images}[sys.argv[1]](*sys.argv[2:])
