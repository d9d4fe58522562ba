"""The process that reads files for which no library is trusted: what it cannot do, and how it ends."""

import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import guards
import hostile_media
from bagwise import BagwiseError, open_collection
from bagwise.sources import Limits, guarded
from bagwise.sources.contents import FileContent
from small_sources import write_image_folder
from sources import guarded_tasks
from sources.test_videos import write_video

MEMORY = 1 << 28
# A frame of one pixel.
GIF_FRAME = b"\1\0\1\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let the process find the tasks of tests."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def content(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return FileContent(str(path))


def call(task, content, seconds=300.0, memory=MEMORY, **arguments):
    limits, task = Limits(seconds=seconds), f"guarded_tasks:{task}"
    return guarded.call_guarded(
        task, content, arguments, limits, library="the library", packages=("email",), memory=memory
    )


def test_arrays_and_values_come_back(content):
    came, expected = call("values", content), dict(guarded_tasks.values(None, None))
    assert set(came) == set(expected)
    for name, value in expected.items():
        if isinstance(value, np.ndarray):
            assert (came[name].dtype, came[name].shape) == (value.dtype.newbyteorder("="), value.shape)
            np.testing.assert_array_equal(came[name], value)
        else:
            assert came[name] == value


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_it_reaches_nothing_but_the_file(content):
    came = call("tries", content)
    assert came["content"].tobytes() == b"content"
    assert came["came"] == dict.fromkeys(("file", "socket", "process", "pipe"), "OSError")
    assert came["program"] != 0


def test_it_is_used_again_until_it_fails(content):
    first = call("tries", content)["process"]
    assert call("tries", content)["process"] == first != os.getpid()
    with pytest.raises(BagwiseError, match="SIGABRT"):
        call("dies", content)
    assert call("tries", content)["process"] != first


@pytest.mark.parametrize("task", ["endless", "waits"])
def test_the_time_binds_whatever_it_does(task, content):
    with pytest.raises(BagwiseError, match=r"it takes longer to read, the limit seconds is 0.5"):
        call(task, content, seconds=0.5)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
def test_the_memory_binds(content):
    assert call("takes_memory", content, n_bytes=1000) == {}
    with pytest.raises(BagwiseError, match=r"it takes more than 268.44 MB of memory to read"):
        call("takes_memory", content, n_bytes=1 << 30)


def test_an_answer_larger_than_the_memory_is_not_received(content, monkeypatch):
    monkeypatch.setattr(guarded, "_ENDING", 0.01)
    helper = guarded._Helper(("email",), 1 << 40)
    try:
        asked = {"task": "guarded_tasks:floods", "arguments": {"n_bytes": 1 << 20}, "limits": {}, "names": ""}
        helper.send(asked | {"size": 0})
        assert helper.receive(None, 1 << 19) == ({}, None)
        assert helper.ending() == "it sent what was not expected"
    finally:
        helper.end()


@pytest.mark.parametrize(
    ("dtype", "shape", "piece"),
    [("O", [1], 8), ("<f8", [-1], 8), ("<f8", [1 << 60], 8), ("<f8", [1], 16), ("<f8", [1], -8), ("<f8", [1], 0)],
)
def test_arrays_that_could_not_have_been_sent_are_not_received(dtype, shape, piece):
    """A process in which a library has been taken over may send anything."""
    helper = guarded._Helper(("email",), MEMORY)
    try:
        pipe = io.BytesIO()
        guarded._write(pipe, {"name": "values", "array": dtype, "shape": shape})
        guarded._write(pipe, {"piece": piece})
        helper.process.stdout.close()
        helper.process.stdout = io.BytesIO(pipe.getvalue() + bytes(32))
        assert helper.receive(None, MEMORY)[1] is None
    finally:
        helper.end()


@pytest.mark.parametrize(
    "message",
    [{}, [1], [[1]], {"read": [1]}, {"piece": "x"}, {"value": 1}, {"name": "x", "array": "garbage", "shape": [1]}],
)
def test_messages_that_no_task_sends_are_an_error(message, content, monkeypatch):
    text = json.dumps(message).encode()
    sent = len(text).to_bytes(8, "little") + bytes(8) + text
    monkeypatch.setattr(guarded, "_PROGRAM", f"import os, sys; os.write(1, {sent!r}); sys.stdin.buffer.read()")
    monkeypatch.setattr(guarded, "_ENDING", 0.01)
    with pytest.raises(BagwiseError, match=r"the library failed to read it \(it sent what was not expected\)"):
        call("values", content, memory=MEMORY + 1)  # no process waits for that


def test_what_fails_after_values_came_is_an_error(content):
    with pytest.raises(BagwiseError, match=r"the library failed to read it \(OSError: the next one is damaged\)"):
        call("fails_late", content)
    assert call("values", content)["name"] == "é"


def test_a_process_that_dies_is_an_error(content):
    with pytest.raises(BagwiseError, match=r"it is damaged: the library failed to read it \(SIGABRT\)"):
        call("dies", content)


def test_what_a_library_raises_is_an_error(content):
    with pytest.raises(BagwiseError, match=r"the library failed to read it \(ZeroDivisionError: "):
        call("raises", content)


@pytest.mark.skipif(not guards.CAN_FORBID, reason="needs seccomp of Linux")
def test_no_file_starts_a_program_opens_a_socket_or_reads_another_file(tmp_path):
    """Each is opened by its class of files in a process that is killed by the kernel if it opens a socket."""
    good = write_video(tmp_path / "good.avi", 2)
    named = {
        **{f"{name}.png": content for name, content in hostile_media.IMAGES.items()},
        **{f"{name}.avi": content for name, content in hostile_media.VIDEOS.items()},
        "list.avi": hostile_media.ffconcat(good),
        "relative.avi": hostile_media.ffconcat("good.avi"),
        "playlist.mp4": hostile_media.playlist(good),
    }
    for name, content in named.items():
        (tmp_path / name).write_bytes(content)
    paths = [tmp_path / name for name in (*named, good.name)]
    lines = under_guards("open", *paths)
    assert [line.split()[0] for line in lines] == [path.name for path in paths]
    assert lines.pop().startswith("good.avi read (2, 32, 48)")
    assert all(" refused: " in line and "SIGSYS" not in line for line in lines), lines


def under_guards(*arguments):
    """Give the lines that `guards` writes in a process of its own."""
    places = os.pathsep.join([str(Path(guards.__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, guards.__file__, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": places},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not guards.CAN_FORBID, reason="needs seccomp of Linux")
def test_no_image_starts_a_program_from_fit_predict_an_archive_or_an_upload(tmp_path):
    """The kernel kills the process that uses them when it starts another, or opens a socket."""
    for name in ("good", "hostile"):
        write_image_folder(tmp_path / name / "classes", n_each=3)
        (tmp_path / name / "fine.png").write_bytes((tmp_path / name / "classes/across/00.png").read_bytes())
    for name, content in hostile_media.IMAGES.items():
        (tmp_path / "hostile" / f"{name}.png").write_bytes(content)
        (tmp_path / "hostile" / "classes" / "across" / f"{name}.png").write_bytes(content)
    lines = under_guards("images", tmp_path / "good", tmp_path / "hostile")
    good, hostile = (line for line in lines if line.split()[1] == "fit")
    assert good == "good fit"
    assert f"{len(hostile_media.IMAGES)} of {6 + len(hostile_media.IMAGES)} items" in hostile
    for line in lines:
        name, kind, way, came = (*line.split(" ", 3), "", "")[:4]
        if kind == "fit":
            continue
        if kind == "fine" or name == "good":
            assert "Cannot" not in came
        else:
            assert "which is not read" in came, (way, line)
            assert kind.upper() in came or kind == "binary"
    assert len([line for line in lines if line.startswith("hostile ")]) == 1 + 4 * (1 + len(hostile_media.IMAGES))


@pytest.mark.skipif(not guards.CAN_FORBID, reason="needs seccomp of Linux")
@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("guards.forbid_sockets(); socket.socket()", -31),
        ("guards.forbid_sockets(); subprocess.run(['true'])", 0),
        ("guards.forbid_programs(); subprocess.run(['true'])", -31),
        ("guards.forbid_programs(); os.system('true')", -31),
        ("guards.forbid_programs(); os.execvp('true', ['true'])", -31),
        ("guards.forbid_programs(); ctypes.CDLL(None).system(b'true')", -31),
        ("guards.forbid_programs(); socket.socket()", 0),
        ("guards.forbid_programs(); ran = threading.Thread(target=print); ran.start(); ran.join()", 0),
    ],
)
def test_the_guards_by_the_kernel_work(code, ending):
    code = f"import ctypes, guards, os, socket, subprocess, threading; {code}"
    environment = os.environ | {"PYTHONPATH": str(Path(guards.__file__).parent)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == ending


def test_the_guard_of_processes_works():
    code = "import guards, subprocess; guards.forbid_processes(); subprocess.run(['true'])"
    environment = os.environ | {"PYTHONPATH": str(Path(guards.__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "ProcessStartedError: subprocess.Popen" in done.stderr


@pytest.mark.parametrize("content", [hostile_media.SDP, b"GIF89a" + GIF_FRAME], ids=["sdp", "gif"])
def test_what_is_no_container_of_frames_says_which_are(content, tmp_path):
    """FFmpeg reads hundreds of formats, such as images."""
    (tmp_path / "v.avi").write_bytes(content)
    with pytest.raises(BagwiseError, match=r"not a video: .*Containers that are read: AVI, Matroska, WebM, MP4"):
        open_collection(tmp_path / "v.avi")[0].load()


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="there is no fork")
def test_a_child_begins_without_processes_and_locks_of_its_parent(monkeypatch):
    held = threading.Lock()
    monkeypatch.setattr(guarded, "_lock", held)
    monkeypatch.setattr(guarded, "_idle", {(("av",), MEMORY): ["a process of the parent"]})
    with held:  # as by another thread when the process is forked
        guarded._begin_anew()
        assert guarded._lock.acquire(blocking=False)
    assert not guarded._idle
