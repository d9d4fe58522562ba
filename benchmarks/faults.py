"""What is lost when processes are killed, disks are full, folders read-only, and two write at once: nothing finished.

    python benchmarks/faults.py [--kills 200] [--seed 0] [--only JOB ...]

Five jobs: `bagwise fit`, `bagwise index`, saving models over each other, a cache of descriptors, and an experiment with
two workers. Each is killed (kill -9) while it works, at moments drawn over the time that it takes undisturbed; then

- every file that is found is looked at: it must be, byte by byte, the one from before or that of an undisturbed run;
- what was finished before, and what the job itself had finished, must be there;
- the job is run again: it must end with the files of an undisturbed run, without what the killed one left unfinished
  (`.part`), and must not do again what was finished (cache, experiment);
- no process may outlive the one that was killed.

Then the same on disks that are full at different moments, in a read-only folder, over a read-only file, and with two
processes that do the same job at once while a third looks at the files. Linux; disks are small tmpfs, which only root
can mount. For others files are limited in size instead (RLIMIT_FSIZE), and folders are read-only by their rights.
"""
# ruff: noqa: D102 (what the methods of jobs do is said in `Job`)

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness import machine, print_table

ROOT = Path(__file__).resolve().parent.parent
N_CELLS = 10
# What is said of folders that cannot be written.
REASONS = ("Read-only file system", "Permission denied", "no permission to write")
CELLS = f"""
import os
from pathlib import Path
from experiments.running import Cell

PAPER, TITLE = "none", "cells"

def cells(options):
    return [Cell(f"cell/{{k:02}}", work, {{"k": k, "folder": str(options.out)}}) for k in range({N_CELLS})]

def work(k, folder):
    with open(Path(folder).parent / "log", "a") as log:
        print(k, file=log)
    return {{"sum": sum(i * i % (k + 2) for i in range(300_000))}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="live kills, of all jobs together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=sorted(JOBS), default=sorted(JOBS), metavar="JOB")
    given = parser.parse_args()
    print(json.dumps(machine()))
    random = np.random.default_rng(given.seed)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(given.only):
            started = time.perf_counter()
            job = JOBS[name](Path(folder, name))
            n_kills = (number + 1) * given.kills // len(given.only) - number * given.kills // len(given.only)
            rows += [kills(job, n_kills, random), full_disk(job), read_only(job), two_writers(job)]
            if name != "experiments":  # its file is never opened for writing, as all others; one is enough of each kind
                rows.append(read_only_file(job))
            print(f"{name}: {time.perf_counter() - started:.0f} s, {job.seconds:.2f} s undisturbed", flush=True)
    print(f"\nDisk full by {'a small tmpfs (ENOSPC)' if can_mount() else 'RLIMIT_FSIZE (EFBIG)'}, read-only by "
          f"{'a tmpfs mounted so' if can_mount() else 'the rights of the folder'}.\n")  # fmt: skip
    columns = {"job": "job", "fault": "fault", "times": "times", "looked_at": "files looked at", "damaged": "damaged"}
    columns |= {"lost": "finished lost", "again": "done again", "differs": "rerun differs", "parts": "`.part` left"}
    columns |= {"outlived": "processes left", "note": "note"}
    print_table([vars(row) for row in rows], columns)
    bad = sum(row.damaged + row.lost + row.again + row.differs + row.parts + row.outlived for row in rows)
    live = sum(row.times for row in rows if row.fault == "kill -9")
    print(f"{live} live kills, {sum(row.times for row in rows)} faults: {bad} losses.")
    sys.exit(bad > 0)


@dataclass
class Row:
    """What came of one fault in one job."""

    job: str
    fault: str
    times: int = 0
    looked_at: int = 0
    damaged: int = 0
    lost: int = 0
    again: int = 0
    differs: int = 0
    parts: int = 0
    outlived: int = 0
    note: str = ""


class Job:
    """Something that writes files into a folder, again and again the same ones."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, folder / "place"
        folder.mkdir(parents=True)
        self.prepare()
        self.old = self.snapshot(self.work_before)
        self.before = folder / "before"
        shutil.copytree(self.place, self.before)
        self.new = self.snapshot(self.work)  # over the old files, as in all that follows
        assert self.outputs() != self.old
        times = []
        for _ in range(3):
            self.reset()
            started = time.perf_counter()
            assert Process(self).wait() == 0, "an undisturbed run failed"
            times.append(time.perf_counter() - started)
            assert self.outputs() == self.new, "two undisturbed runs differ"
        self.seconds = sorted(times)[1]

    def snapshot(self, work: Callable[[], object]) -> dict[str, Any]:
        """Work in this process, so that its copies find everything imported and compiled."""
        self.place.mkdir(exist_ok=True)
        work()
        return self.outputs()

    def reset(self) -> None:
        """Put the files from before in place."""
        for path in list(self.place.iterdir()) if self.place.exists() else []:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(self.before, self.place, dirs_exist_ok=True)

    def prepare(self) -> None:
        """Make what the job reads."""

    def work_before(self) -> None:
        """Write the files from before."""

    def work(self) -> None:
        """Do the job, in a process of its own."""
        raise NotImplementedError

    def outputs(self) -> dict[str, Any]:
        """Return all finished files by their names, in a form that can be compared."""
        found = sorted(path for path in self.place.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {str(path.relative_to(self.place)): self.content(path) for path in found}

    def content(self, path: Path) -> Any:
        return path.read_bytes()

    def done_again(self, finished: dict[str, Any]) -> int:
        """Count what was finished before the kill and was done again by the rerun."""
        return 0


class Command(Job):
    """A command of bagwise, in a process that has imported everything already."""

    def run(self, *arguments: str) -> None:
        from bagwise.app.cli.app import app

        try:
            with contextlib.redirect_stdout(io.StringIO()):
                app([*arguments, "--force", "--quiet"], prog_name="bagwise")
        except SystemExit as ended:
            if ended.code:
                raise

    def content(self, path: Path) -> Any:
        if path.suffix != ".html":
            return path.read_bytes()
        text = path.read_text(encoding="utf-8")  # has times in it
        return "whole" if text.startswith("<!") and text.rstrip().endswith("</html>") else "half"

    def prepare(self) -> None:
        for name, n_each in (("texts", 12), ("fewer", 8)):
            write_texts(self.folder / name, n_each)


class Fit(Command):
    """`bagwise fit`: a model, an index and a report."""

    name = "fit"

    def work_before(self) -> None:
        self.fit("fewer")

    def work(self) -> None:
        self.fit("texts")

    def fit(self, source: str) -> None:
        self.run("fit", str(self.folder / source), "--out", str(self.place / "some.bagwise"), "--jobs", "1")


class Index(Command):
    """`bagwise index`."""

    name = "index"

    def prepare(self) -> None:
        super().prepare()
        self.model = self.folder / "model.bagwise"
        self.run("fit", str(self.folder / "texts"), "--out", str(self.model), "--no-index", "--no-page", "--jobs", "1")

    def work_before(self) -> None:
        self.index("fewer")

    def work(self) -> None:
        self.index("texts")

    def index(self, source: str) -> None:
        out = str(self.place / "some.index")
        self.run("index", str(self.model), str(self.folder / source), "--out", out, "--jobs", "1")


class Save(Index):
    """Two models, saved over each other forty times."""

    name = "save"

    def prepare(self) -> None:
        from bagwise import Model

        super().prepare()
        self.models = [Model.load(self.model)] * 2
        self.models[0] = self.models[1].cut(3)

    def work_before(self) -> None:
        self.models[0].save(self.place / "some.bagwise")

    def work(self) -> None:
        for k in range(40):
            self.models[k % 2].save(self.place / "some.bagwise")


class Cache(Job):
    """Descriptors of eighty images, of which five are in the cache already."""

    name = "cache"

    def prepare(self) -> None:
        random = np.random.default_rng(0)
        coarse = random.integers(0, 256, (80, 12, 12), np.uint8)
        self.images = [np.kron(image, np.ones((8, 8), np.uint8)) for image in coarse]
        self.finished: dict[Path, int] = {}

    def work_before(self) -> None:
        self.describe(self.images[:5])

    def work(self) -> None:
        self.describe(self.images)

    def describe(self, images: list[Any]) -> None:
        from bagwise.descriptors import DenseSIFT

        DenseSIFT(step=4, cache=self.place / "cache").transform(images)

    def outputs(self) -> dict[str, Any]:
        self.finished = {path: path.stat().st_ino for path in self.place.rglob("*.arrays")}
        return super().outputs()

    def done_again(self, finished: dict[str, Any]) -> int:
        return sum((self.place / name).stat().st_ino != inode for name, inode in finished.items())


class Experiments(Job):
    """Ten cells of `python -m experiments`, by two workers."""

    name = "experiments"

    def prepare(self) -> None:
        (self.folder / "fault_cells.py").write_text(CELLS)
        sys.path[:0] = [str(self.folder), str(ROOT)]

    def work(self) -> None:
        import fault_cells  # type: ignore[import-not-found]
        from experiments.running import Options, run

        run("cells", fault_cells, Options(self.folder, self.place / "out", jobs=2))

    def snapshot(self, work: Callable[[], object]) -> dict[str, Any]:
        self.place.mkdir(exist_ok=True)
        if work == self.work:
            assert Process(self).wait() == 0  # it starts processes of its own, which end with their parent
        return self.outputs()

    def outputs(self) -> dict[str, Any]:
        path = self.place / "out" / "cells.json"
        if not path.exists():
            return {}
        return {key: cell["result"] for key, cell in json.loads(path.read_text())["cells"].items()}

    def done_again(self, finished: dict[str, Any]) -> int:
        log = (self.place / "log").read_text().split()
        return sum(log.count(str(int(key.split("/")[1]))) != 1 for key in finished)


JOBS: dict[str, type[Job]] = {job.name: job for job in (Fit, Index, Save, Cache, Experiments)}


@dataclass
class Process:
    """A job in a copy of this process, the leader of a session of its own."""

    job: Job
    limit: int | None = None
    number: int = field(init=False)

    def __post_init__(self) -> None:
        self.errors = self.job.folder / f"errors{time.monotonic_ns()}"
        self.number = os.fork()
        if self.number:
            return
        code = 1
        try:
            os.setsid()
            out = os.open(self.errors, os.O_WRONLY | os.O_CREAT)
            os.dup2(out, 1)
            os.dup2(out, 2)
            if self.limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.limit, resource.RLIM_INFINITY))
            self.job.work()
            code = 0
        except SystemExit as ended:
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            sys.stderr.flush()
            os._exit(code)

    def wait(self) -> int:
        """Return the exit code; negative: of the signal that ended it."""
        return os.waitstatus_to_exitcode(os.waitpid(self.number, 0)[1])

    def said(self) -> str:
        """What it wrote to its standard output and error."""
        text = self.errors.read_text(errors="replace") if self.errors.exists() else ""
        self.errors.unlink(missing_ok=True)
        return text.strip()

    def survivors(self, seconds: float = 10.0) -> int:
        """Count processes that it started and that are there after some time."""
        patience = time.monotonic() + seconds
        while left := self._session():
            if time.monotonic() > patience:
                break
            time.sleep(0.02)
        return left

    def _session(self) -> int:
        found = 0
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError, IndexError):
                state, _, _, session = (entry / "stat").read_text().rsplit(")", 1)[1].split()[:4]
                found += int(session) == self.number and state not in "ZX"
        return found


def look(job: Job, row: Row) -> dict[str, Any]:
    """Look at all files: each must be that from before or the new one, and those from before must be there."""
    found = job.outputs()
    row.looked_at += len(found)
    row.damaged += sum(value not in (job.old.get(name), job.new.get(name)) for name, value in found.items())
    row.lost += sum(name not in found for name in job.old)
    return found


def unfinished(job: Job) -> int:
    return sum(1 for _ in job.place.rglob(".*.part"))


def rerun(job: Job, row: Row, finished: dict[str, Any]) -> None:
    """Run the job again, as a day later: nothing finished is done again, and the end is that of an undisturbed run."""
    for part in job.place.rglob(".*.part"):
        os.utime(part, (1e9, 1e9))
    process = Process(job)
    if process.wait():
        print(f"{job.name} after {row.fault}: {process.said()}", file=sys.stderr)
    row.differs += job.outputs() != job.new
    row.lost += sum(name not in job.outputs() for name in finished)
    row.again += job.done_again(finished)
    row.parts += unfinished(job)
    process.said()


def state(job: Job, found: dict[str, Any]) -> dict[str, Any]:
    """What `done_again` needs to know of finished files: their numbers in the file system for a cache."""
    if isinstance(job, Cache):
        return {str(path.relative_to(job.place)): inode for path, inode in job.finished.items()}
    return found


def kills(job: Job, n_kills: int, random: np.random.Generator) -> Row:
    """Kill a job at moments spread over its duration, one in each of `n_kills` parts of it."""
    row = Row(job.name, "kill -9")
    left = late = with_new = 0
    while row.times < n_kills:
        moment = job.seconds * (row.times + random.random()) / n_kills * 0.8**late
        job.reset()
        process = Process(job)
        time.sleep(moment)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.number, signal.SIGKILL)
        if process.wait() != -signal.SIGKILL:
            late += 1  # it was done: not a live kill. Once more, earlier
            process.said()
            continue
        process.said()
        late = 0
        row.times += 1
        row.outlived += process.survivors()
        left += unfinished(job) > 0
        found = look(job, row)
        with_new += any(value != job.old.get(name) for name, value in found.items())
        rerun(job, row, state(job, found))
    row.note = f"{with_new} with new files, {left} with a `.part`"
    return row


@contextlib.contextmanager
def disk(job: Job, size: int) -> Iterator[None]:
    """Mount a tmpfs of some bytes at the place of a job."""
    shutil.rmtree(job.place, ignore_errors=True)
    job.place.mkdir()
    mount("-t", "tmpfs", "-o", f"size={max(size, 4096)}", "tmpfs", str(job.place))
    try:
        yield
    finally:
        subprocess.run(["umount", str(job.place)], check=True)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True)


_mountable: bool | None = None


def can_mount() -> bool:
    """Whether this process may mount a tmpfs."""
    global _mountable
    if _mountable is None:
        with tempfile.TemporaryDirectory() as folder:
            try:
                mount("-t", "tmpfs", "-o", "size=4096", "tmpfs", folder)
                subprocess.run(["umount", folder], check=True)
                _mountable = True
            except (OSError, subprocess.CalledProcessError):
                _mountable = False
    return _mountable


def used(folder: Path) -> int:
    """Bytes of all files of a folder, in whole pages; a folder takes one as well."""
    return sum(4096 * (1 + path.stat().st_size // 4096) for path in folder.rglob("*"))


def full_disk(job: Job, n_sizes: int = 8) -> Row:
    """Run a job on disks with room for the files from before, and for a part of what it writes."""
    row, told = Row(job.name, "disk full"), 0
    job.reset()
    assert Process(job).wait() == 0
    largest = max(path.stat().st_size for path in job.place.rglob("*") if path.is_file())
    # the largest file is there twice for a moment
    start, stop = used(job.before), used(job.place) + largest
    for k in range(n_sizes):
        fraction = (k + 0.5) / n_sizes
        with disk(job, int(start + fraction * (stop - start))) if can_mount() else contextlib.nullcontext():
            job.reset()
            process = Process(job, limit=None if can_mount() else max(1, int(fraction * largest)))
            code, said = process.wait(), process.said()
            row.times += 1
            row.outlived += process.survivors()
            row.parts += unfinished(job)
            told += code == 1 and ("No space left" in said or "File too large" in said)
            row.lost += code not in (0, 1)
            found = look(job, row)
            if can_mount():
                mount("-o", f"remount,size={4 * stop + (1 << 20)}", str(job.place))
            rerun(job, row, state(job, found))
    row.note = f"{told} said that the disk is full, {row.times - told} ended before it was"
    return row


def read_only(job: Job) -> Row:
    """Run a job in a folder that cannot be written."""
    row = Row(job.name, "read-only folder", times=1)
    with disk(job, 1 << 26) if can_mount() else contextlib.nullcontext():
        job.reset()
        folders = [job.place, *(path for path in job.place.rglob("*") if path.is_dir())]
        if can_mount():
            mount("-o", "remount,ro", str(job.place))
        else:
            for folder in folders:
                folder.chmod(0o555)
        process = Process(job)
        code, said = process.wait(), process.said()
        row.lost += code != 1
        found = look(job, row)
        row.differs += found != job.old
        if can_mount():
            mount("-o", "remount,rw", str(job.place))
        else:
            for folder in folders:
                folder.chmod(0o755)
        rerun(job, row, state(job, found))
    told = next((reason for reason in REASONS if reason in said), "NOTHING")
    row.note, row.lost = f"refused, said: {told}", row.lost + (told == "NOTHING")
    return row


def read_only_file(job: Job) -> Row:
    """Run a job whose files of before are read-only, in a folder that can be written: they are replaced."""
    row = Row(job.name, "read-only file", times=1)
    job.reset()
    paths = [path for path in job.place.rglob("*") if path.is_file()]
    for path in paths:
        path.chmod(0o444)
    row.lost += Process(job).wait() != 0
    row.differs += job.outputs() != job.new
    row.looked_at += len(job.new)
    kept = sum(path.stat().st_mode & 0o777 == 0o444 for path in paths)
    row.note = f"replaced or kept, {kept} of {len(paths)} still read-only"
    row.lost += len(paths) - kept
    return row


def two_writers(job: Job, n_times: int = 5) -> Row:
    """Run a job twice at the same time, and look at its files meanwhile."""
    row, refused, looks = Row(job.name, "two writers"), 0, 0
    for _ in range(n_times):
        job.reset()
        processes = [Process(job), Process(job)]
        running = list(processes)
        codes = []
        while running:
            look(job, row)
            looks += 1
            for process in list(running):
                number, status = os.waitpid(process.number, os.WNOHANG)
                if number:
                    running.remove(process)
                    codes.append(os.waitstatus_to_exitcode(status))
            time.sleep(0.002)
        said = [process.said() for process in processes]
        refusals = sum("is being run by another process" in text for text in said)
        refused += refusals
        row.times += 1
        row.lost += sum(code != 0 for code in codes) - refusals  # any other end is a failure
        found = look(job, row)
        row.differs += found != job.new
        row.parts += unfinished(job)
    row.note = f"{looks} looks" + (f", the second refused {refused} times" if refused else "")
    return row


def write_texts(folder: Path, n_each: int) -> None:
    """Write short texts of three classes, each with words of its own."""
    random = np.random.default_rng(0)
    for label in ("fruit", "tools", "birds"):
        (folder / label).mkdir(parents=True)
        for k in range(n_each):
            own, common = random.integers(40, size=8), random.integers(60, size=8)
            words = [f"{label}{number}" for number in own] + [f"word{number}" for number in common]
            (folder / label / f"{k:03}.txt").write_text(" ".join(words))


if __name__ == "__main__":
    main()
