"""Files, memory, progress, threads, errors."""

import io
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bagwise import BagwiseError, Hierarchy
from bagwise._io import atomic
from bagwise._io.atomic import write_atomically
from bagwise._io.locks import locked
from bagwise._io.tensors import file_parts
from bagwise._utils.memory import free_memory, parse_size, readable_size, resolve_limit
from bagwise._utils.progress import ProgressBar
from bagwise._utils.threads import cached_once, run_over_ranges
from bagwise.errors import unknown_name
from waiting import PATIENCE


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


def test_what_dead_processes_left_is_removed_by_a_writer_a_day_later(tmp_path):
    path = tmp_path / "file"
    lines = ["import os, sys", "from bagwise._io import atomic", "writer = atomic.open_atomically(sys.argv[1])"]
    code = "\n".join([*lines, "writer.__enter__()", "os._exit(0)"])
    subprocess.run([sys.executable, "-c", code, path], check=True)
    (left,) = tmp_path.iterdir()
    folder, unlike, young = (tmp_path / f".{name}.{k:016x}.part" for k, name in enumerate(("file", "file.csv", "file")))
    folder.mkdir()
    (folder / "half").write_bytes(b"half")
    unlike.write_bytes(b"half")
    young.write_bytes(b"half")
    for part in (left, folder, unlike):
        os.utime(part, (1e9, 1e9))
    write_atomically(path, b"part of a cache", lasting=False)
    assert left.exists()
    write_atomically(path, b"whole")
    assert set(tmp_path.iterdir()) == {path, unlike, young}
    atomic.sweep(tmp_path)  # as caches do, for all their files
    assert set(tmp_path.iterdir()) == {path, young}


def test_a_writer_keeps_its_file_while_others_write(tmp_path):
    path = tmp_path / "file"
    with atomic.open_atomically(path) as file:
        file.write(b"slow")
        atomic.sweep(tmp_path)
        write_atomically(path, b"quick")
        atomic.write_folder(tmp_path / "folder", {"a": b"1"})
    assert path.read_bytes() == b"slow"
    assert (tmp_path / "folder" / "a").read_bytes() == b"1"
    assert len(list(tmp_path.iterdir())) == 2


def test_a_lock_keeps_other_threads_out_also_when_the_file_is_replaced(tmp_path):
    path, order, waits = tmp_path / "file", [], threading.Event()
    path.write_bytes(b"old")

    def other():
        with locked(path, waiting=waits.set):
            order.append(path.read_bytes())

    with locked(path, waiting=pytest.fail):
        with locked(path, waiting=pytest.fail):
            write_atomically(path, b"new")
        thread = threading.Thread(target=other)
        thread.start()
        assert waits.wait(PATIENCE)
        write_atomically(path, b"newer")
        order.append("first")
    thread.join()
    assert order == ["first", b"newer"]


def test_a_file_with_the_longest_name_is_locked(tmp_path):
    path = tmp_path / ("x" * 255)
    with locked(path):  # it does not exist
        assert not list(tmp_path.iterdir())
    path.touch()
    with locked(path):
        assert len(list(tmp_path.iterdir())) == 2


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
    assert slow.cache_info().currsize == 2


def test_errors_in_threads_are_raised():
    def fail(start, stop):
        raise RuntimeError(f"at {start}")

    with pytest.raises(RuntimeError, match="at 0"):
        run_over_ranges(fail, 100, 2, size=10)


def test_unknown_names_suggest_the_nearest():
    assert "Did you mean 'bound'?" in str(unknown_name("search", "bond", ["bound", "polar"]))
    assert "Did you mean" not in str(unknown_name("search", "xyzzy", ["bound", "polar"]))
