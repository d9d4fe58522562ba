"""Files, memory, progress, threads, errors."""

import io
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bagwise import BagwiseError, Hierarchy
from bagwise._io import atomic
from bagwise._io.atomic import write_atomically
from bagwise._io.locks import locked, take
from bagwise._io.tensors import file_parts
from bagwise._utils.memory import free_memory, parse_size, readable_size, resolve_limit
from bagwise._utils.progress import ProgressBar
from bagwise._utils.threads import cached_once, run_over_ranges
from bagwise.errors import unknown_name


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_written_files_have_ordinary_rights(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"x")
    other = tmp_path / "other"
    other.write_bytes(b"x")
    assert path.stat().st_mode == other.stat().st_mode


def test_a_file_keeps_its_rights_and_its_link(tmp_path):
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
@pytest.mark.parametrize("url", ["s3://bucket/words.safetensors", Path("memory://words.safetensors")])
def test_a_url_is_no_name_of_a_file_to_save_to(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.makedirs("s3:/bucket")
    os.makedirs("memory:")
    with pytest.raises(BagwiseError, match=r"A URL \((s3|memory)://…\) cannot be saved to here"):
        Hierarchy(3, [[0, 1]], [1.0]).save(url)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_pipes_are_neither_replaced_nor_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for use in (lambda path: write_atomically(path, b"new"), file_parts, Hierarchy(2, [[0, 1]], [0.5]).save):
        with pytest.raises(BagwiseError, match=r"pipe .*is a pipe or a device.* Give the name of a file"):
            use(tmp_path / "pipe")
    with pytest.raises(BagwiseError, match="pipe is a pipe or a device"):
        Hierarchy.load(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def left_by(host, name="file"):
    return f".{name}.{host}-{'0' * 16}.part"


def test_what_dead_processes_left_is_removed_by_the_next_writer(tmp_path):
    path, host = tmp_path / "file", atomic._host()
    lines = ["import os, sys", "from bagwise._io import atomic", "writer = atomic.open_atomically(sys.argv[1])"]
    code = "\n".join([*lines, "writer.__enter__()", "os._exit(0)"])
    subprocess.run([sys.executable, "-c", code, path], check=True)
    folder = tmp_path / left_by(host)
    folder.mkdir()
    (folder / "half").write_bytes(b"half")
    others = tmp_path / left_by("0" * 8 if host != "0" * 8 else "1" * 8)
    unlike = tmp_path / left_by(host, "file.csv")
    for part in (others, unlike):
        part.write_bytes(b"half")
    unlike.chmod(0o400)
    assert len(list(tmp_path.iterdir())) == 4
    write_atomically(path, b"whole")
    assert set(tmp_path.iterdir()) == {path, others, unlike}
    write_atomically(path, b"part of a cache", lasting=False)
    assert unlike.exists()
    atomic.sweep(tmp_path)  # as caches do, for all their files
    assert set(tmp_path.iterdir()) == {path, others}


@pytest.mark.skipif(os.name != "posix", reason="nothing is swept")
def test_a_living_writer_keeps_its_file_also_in_a_container_that_does_not_see_its_process(tmp_path, monkeypatch):
    """Containers that share a folder and the name of a host know nothing of each other's processes."""

    def unseen(*_):
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", unseen)
    path, folder = tmp_path / "file", tmp_path / "folder"
    with atomic.open_atomically(path) as file:
        file.write(b"slow")
        atomic.sweep(tmp_path)
        write_atomically(path, b"quick")
        monkeypatch.setattr(atomic, "_sync_folder", lambda place: atomic.sweep(tmp_path))
        atomic.write_folder(folder, {"a": b"1"})
    assert path.read_bytes() == b"slow"
    assert (folder / "a").read_bytes() == b"1"
    assert set(tmp_path.iterdir()) == {path, folder}
    with atomic.open_atomically(path) as other, locked(path):  # a writer that is done holds no lock
        other.write(b"again")
    with locked(path, waiting=pytest.fail):
        pass


@pytest.mark.skipif(os.name != "posix", reason="there are no locks")
def test_a_file_that_is_replaced_under_a_lock_stays_locked(tmp_path):
    """Otherwise another program could change what was just written, before its writer has looked at it."""
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def is_locked():
        with open(path, "rb") as file:
            return not take(file.fileno())

    with locked(path):
        for content in (b"new", b"newer"):
            with locked(path):
                write_atomically(path, content)
            assert is_locked()
        write_atomically(tmp_path / "other", b"")
    assert not is_locked()
    assert path.read_bytes() == b"newer"


@pytest.mark.skipif(os.name != "posix", reason="nothing is swept")
def test_what_is_swept_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    real, swept = atomic.take, []

    def late(descriptor, wait=False):
        if wait and len(swept) < 2:
            swept.append(descriptor)
            atomic.sweep(tmp_path)
            assert not list(tmp_path.glob(".*.part"))
        return real(descriptor, wait=wait)

    monkeypatch.setattr(atomic, "take", late)
    write_atomically(tmp_path / "file", b"whole")
    assert len(swept) == 2
    swept.clear()
    atomic.write_folder(tmp_path / "folder", {"a": b"1"})
    assert len(swept) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def test_where_there_are_no_locks_nothing_is_removed(tmp_path, monkeypatch):
    part = tmp_path / left_by(atomic._host())
    part.write_bytes(b"half")
    monkeypatch.setattr("bagwise._io.locks.fcntl", None)
    write_atomically(tmp_path / "file", b"whole")
    assert part.exists()


def test_the_error_of_a_writer_whose_file_is_gone_is_true(tmp_path):
    gone = pytest.raises(BagwiseError, match=r"x cannot be saved: its unfinished file in .* was removed")
    with gone as caught, atomic.open_atomically(tmp_path / "x"):
        next(tmp_path.glob(".x*.part")).unlink()
    assert "no folder" not in str(caught.value)


def test_private_files_are_for_their_user_and_a_file_that_exists_keeps_its_rights(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"x", private=True)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    write_atomically(path, b"y", private=True)
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_folder_is_tried_before_it_is_written_to(tmp_path, monkeypatch):
    for path in (tmp_path / "new", tmp_path):
        atomic.check_writable(path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(BagwiseError, match=r"x cannot be saved: there is no folder .*nowhere\. Create it first"):
        atomic.check_writable(tmp_path / "nowhere" / "x")

    def refuse(*_, **more):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(BagwiseError, match=r"x cannot be saved: Operation not permitted"):
        atomic.check_writable(tmp_path / "x")


def test_a_full_disk_names_the_folder_that_was_wanted(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BagwiseError, match=r"edge cannot be saved: No space left on device\. .* Free some") as caught:
        atomic.write_folder(tmp_path / "edge", {"main.cpp": b"x"})
    assert ".part" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_errors_of_writing_name_the_file_that_was_wanted(tmp_path):
    with pytest.raises(BagwiseError, match=r"nowhere/x cannot be saved: there is no folder .*nowhere. Create it first"):
        write_atomically(tmp_path / "nowhere" / "x", b"x")
    full = pytest.raises(OSError, match=r"/x cannot be saved: No space left on device. .* Free some space")
    with full as caught, atomic.open_atomically(tmp_path / "x"):
        raise OSError(28, "No space left on device")
    assert caught.value.errno == 28
    with pytest.raises(FileNotFoundError), atomic.open_atomically(tmp_path / "x"):  # of another file
        (tmp_path / "missing").read_bytes()
    write_atomically(tmp_path / ("x" * 250), b"a long name")
    assert [path.name for path in tmp_path.iterdir()] == ["x" * 250]


@pytest.mark.parametrize(
    ("size", "expected"),
    [(5, 5), (1e3, 1000), ("12", 12), ("2GB", 2 * 10**9), (" 1.5 mb ", 1_500_000), ("1KiB", 1024), ("3g", 3 * 10**9)],
)
def test_sizes_are_read(size, expected):
    assert parse_size(size) == expected


@pytest.mark.parametrize("size", ["", "GB", "-1", "2 parsecs", 0, -3, float("nan")])
def test_bad_sizes_are_refused(size):
    with pytest.raises(BagwiseError, match="memory_limit"):
        parse_size(size)


def test_free_memory_is_plausible():
    free = free_memory()
    assert free is None or 2**20 < free < 2**50
    assert resolve_limit("1MB") == 10**6
    assert free is None or 0 < resolve_limit(None) < 2**50
    assert readable_size(12) == "12 bytes"


def test_progress_is_drawn_only_when_enabled():
    stream = io.StringIO()
    with ProgressBar("work", 10, enabled=False, stream=stream) as bar:
        bar.update(10)
    assert stream.getvalue() == ""
    with ProgressBar("work", 10, enabled=True, stream=stream) as bar:
        bar.update(5)
        bar.update(10)
    assert "50%" in stream.getvalue()
    assert "100%" in stream.getvalue()
    assert stream.getvalue().endswith("\n")


@pytest.mark.parametrize("n_threads", [1, 3])
def test_ranges_cover_everything_once(n_threads):
    seen = []
    run_over_ranges(lambda start, stop: seen.extend(range(start, stop)), 100, n_threads, size=7)
    assert sorted(seen) == list(range(100))


def test_what_several_threads_ask_for_is_computed_once():
    computed = []

    @cached_once(maxsize=2)
    def slow(number):
        computed.append(number)
        time.sleep(0.01)
        return number * 10

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(slow, [1, 2] * 20)) == [10, 20] * 20
    assert sorted(computed) == [1, 2]
    assert slow(3) == 30
    assert slow.cached.cache_info().currsize == 2


def test_errors_in_threads_are_raised():
    def fail(start, stop):
        raise RuntimeError(f"at {start}")

    with pytest.raises(RuntimeError, match="at 0"):
        run_over_ranges(fail, 100, 2, size=10)


def test_unknown_names_suggest_the_nearest():
    assert "Did you mean 'bound'?" in str(unknown_name("search", "bond", ["bound", "polar"]))
    assert "Did you mean" not in str(unknown_name("search", "xyzzy", ["bound", "polar"]))
