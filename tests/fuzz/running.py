"""Run the fuzzer: each target in a process of its own, which is watched and replaced if it crashes or hangs.

    PYTHONPATH=tests python -m fuzz.running --inputs 1000000 --state fuzz.json

Inputs are spread over the targets and numbered, so that a run that was interrupted goes on where it was. A finding is
shown as ``target:number``; ``--show target:number`` makes the input again and loads it without a net.
"""

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

import guards
from bagwise.errors import BagwiseError
from bagwise.runtime import ModelFileError
from bagwise.sources import guarded
from fuzz.mutations import mutated
from fuzz.targets import TARGETS

SECONDS = 10.0  # that an input may take
_START = 300.0  # seconds until the first input of a target
MEMORY = 1 << 30  # bytes that a process may take beside what it has when it begins
_ENDING = 10.0  # seconds until a process that died is found to have ended
_AT_ONCE = 500  # inputs between two notes of the state
_MOST_NOTED = 20  # findings of a kind that are listed


@dataclass
class Tally:
    """What came of the inputs of a target."""

    tried: int = 0
    accepted: int = 0
    refused: int = 0
    foreign: dict[str, list[int]] = field(default_factory=dict)  # numbers of inputs by the exception
    crashes: list[int] = field(default_factory=list)
    hangs: list[int] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)  # inputs that started a program
    sockets: list[int] = field(default_factory=list)  # inputs that opened a socket, or a program in the guarded process
    slowest: float = 0.0
    slowest_input: int = -1
    growth: int = 0  # of the process by one input, bytes
    growth_input: int = -1

    @property
    def n_foreign(self) -> int:
        """Number of inputs with an exception that is none of the library."""
        return sum(map(len, self.foreign.values()))

    @property
    def sound(self) -> bool:
        """Whether all inputs were accepted or refused."""
        return not (self.foreign or self.crashes or self.hangs or self.processes or self.sockets)


def corpus_of(name, folder):
    """Make the files that inputs of a target are mutations of."""
    folder.mkdir(parents=True, exist_ok=True)
    return [path.read_bytes() for path in TARGETS[name].corpus(folder)]


def input_of(name, corpus, number):
    """Make the input of a number; the first ones are the files of the corpus."""
    if number < len(corpus):
        return corpus[number]
    return mutated(TARGETS[name].form, corpus, f"{name}:{number}")


def _work(jobs, folder, said):
    """Load inputs, one after the other, and say what came of each by `said`; the process may die at any moment.

    `jobs` are names of targets, each with the first and the last number. An input that opens a socket ends the process,
    and so does one that starts a program, unless the loader has a process of its own: then it is noted.
    """
    warnings.simplefilter("ignore")
    os.setpgrp()
    watched = alone = False
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, first, last in jobs:
        target, corpus = TARGETS[name], corpus_of(name, folder / name)
        for content in corpus[:3]:  # compiles and imports what loading needs
            _use(target, folder, content, (Exception,))
        if not watched:
            guarded._end_all()  # that of these files has no guards
            guards.forbid_processes()
            if guards.CAN_FORBID:
                guards.forbid_sockets()
            watched = True
        if guards.CAN_FORBID and not target.helped and not alone:
            guards.forbid_programs()
            alone = True
        resource.setrlimit(resource.RLIMIT_DATA, (memory_taken() + MEMORY, resource.RLIM_INFINITY))
        for number in range(first, last):
            said.send(("begin", name, number))
            content = input_of(name, corpus, number)
            before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
            came = _use(target, folder, content, (BagwiseError, ModelFileError))
            seconds = time.perf_counter() - started
            growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
            said.send(("end", name, number, came, seconds, growth))
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY,) * 2)
    said.send(("done",))


def _use(target, folder, content, expected):
    """Load an input; say "accepted", "refused", or the exception that nobody expects."""
    place = folder / "input"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    path = place / f"input{target.ending}"
    path.write_bytes(content)
    try:
        target.use(path)
    except expected as error:
        # the process that reads for this one was killed as it opened a socket, or started a program
        return "socket" if "SIGSYS" in str(error) else "refused"
    except guards.ProcessStartedError:
        return "process"
    except Exception as error:
        return f"{type(error).__name__} at {_where(error)}"
    return "accepted"


def _where(error):
    """Name the last line of the library in the traceback."""
    last, trace = "no line of the library", error.__traceback__
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if f"{os.sep}bagwise{os.sep}" in path:
            last = f"{Path(path).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return last


def memory_taken():
    """The bytes that this process may write to, as RLIMIT_DATA counts them.

    RLIMIT_AS also counts the code of libraries that are imported later, and 64 MiB that each thread may never use.
    """
    with open("/proc/self/status") as file:
        return 1024 * int(next(line.split()[1] for line in file if line.startswith("VmData")))


def run(tallies, n_each, report=lambda name: None):
    """Bring all targets of the tallies to this number of inputs, or their share of it.

    `report` is called with a target now and then.
    """
    context = multiprocessing.get_context("spawn")
    wanted = {name: math.ceil(n_each * TARGETS[name].share) for name in tallies}
    # first those whose loaders start the process that reads for them, which is forbidden from the others on
    order = sorted(tallies, key=lambda name: not TARGETS[name].helped)
    while jobs := [(name, tallies[name].tried, wanted[name]) for name in order if tallies[name].tried < wanted[name]]:
        folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(jobs, folder, sender), daemon=True)
        process.start()
        sender.close()
        try:
            died = _watch(receiver, tallies, report)
            if died:
                process.join(_ENDING)
            if died and process.exitcode == -signal.SIGSYS:  # only the kernel does that, at a call that is forbidden
                one = tallies[died]
                (one.sockets if TARGETS[died].helped else one.processes).append(one.crashes.pop())
        finally:
            process.kill()
            process.join()
            shutil.rmtree(folder, ignore_errors=True)
    return tallies


def _watch(receiver, tallies, report):
    """Note what a process says, until it is done, dies or hangs; give the target in which it died, or None."""
    name, number = None, -1
    while True:
        try:
            message = receiver.recv() if receiver.poll(_START if name is None else SECONDS) else None
        except EOFError:
            message = "died"
        if message is None or message == "died":
            if name is None:
                raise RuntimeError("the process of the fuzzer ended or waits, but not in an input")
            (tallies[name].hangs if message is None else tallies[name].crashes).append(number)
            tallies[name].tried = number + 1
            report(name)
            return None if message is None else name
        if message[0] == "done":
            return None
        if message[0] == "begin":
            name, number = message[1:]
            continue
        _note(tallies[name], number, *message[3:])
        if tallies[name].tried % _AT_ONCE == 0:
            report(name)
        name = None


def _note(tally, number, came, seconds, growth):
    tally.tried = number + 1
    if came == "accepted":
        tally.accepted += 1
    elif came == "refused":
        tally.refused += 1
    elif came in ("process", "socket"):
        (tally.processes if came == "process" else tally.sockets).append(number)
    else:
        tally.foreign.setdefault(came, []).append(number)
    if seconds > tally.slowest:
        tally.slowest, tally.slowest_input = seconds, number
    if growth > tally.growth:
        tally.growth, tally.growth_input = growth, number


def table(tallies):
    """Write what came of all inputs as a table in Markdown."""
    lines = [
        "| loader | tried | accepted | refused | foreign | crashes | hangs | processes started | sockets | slowest "
        "| largest growth |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    total = Tally()
    for name, one in tallies.items():
        lines.append(_line(name, one))
        for part in ("tried", "accepted", "refused"):
            setattr(total, part, getattr(total, part) + getattr(one, part))
        total.foreign |= {f"{name} {kind}": numbers for kind, numbers in one.foreign.items()}
        total.crashes += one.crashes
        total.hangs += one.hangs
        total.processes += one.processes
        total.sockets += one.sockets
        total.slowest, total.growth = max(total.slowest, one.slowest), max(total.growth, one.growth)
    return "\n".join([*lines, _line("all", total)])


def _line(name, one):
    found = (one.crashes, one.hangs, one.processes, one.sockets)
    cells = (one.tried, one.accepted, one.refused, one.n_foreign, *map(len, found))
    numbers = " | ".join(f"{cell:,}" for cell in cells)
    return f"| {name} | {numbers} | {one.slowest:.2f} s | {one.growth / 2**20:.0f} MB |"


def findings(tallies):
    """Name the inputs that were neither accepted nor refused."""
    for name, one in tallies.items():
        named = {"crash": one.crashes, "hang": one.hangs, "process started": one.processes, "socket": one.sockets}
        for kind, numbers in (named | one.foreign).items():
            if numbers:
                yield f"{name}: {kind}: {len(numbers)} inputs, such as {numbers[:_MOST_NOTED]}"


def _show(which, out):
    """Make an input again and load it in this process, for a debugger."""
    name, number = which.rsplit(":", 1)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        content = input_of(name, corpus_of(name, place / "corpus"), int(number))
        if out is not None:
            Path(out).write_bytes(content)
        print(f"{len(content)} bytes, {hashlib.sha256(content).hexdigest()[:16]}: {content[:300]!r}", flush=True)
        path = place / f"input{TARGETS[name].ending}"
        path.write_bytes(content)
        TARGETS[name].use(path)


def main(arguments=None):
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=20_000, help="number of inputs over all targets")
    parser.add_argument("--targets", nargs="*", default=list(TARGETS), choices=list(TARGETS), metavar="TARGET")
    parser.add_argument("--state", type=Path, default=Path("fuzz.json"), help="file that a later run goes on from")
    parser.add_argument("--show", metavar="TARGET:NUMBER", help="load one input and end")
    parser.add_argument("--write", type=Path, help="with --show, where to write the input")
    given = parser.parse_args(arguments)
    if given.show:
        _show(given.show, given.write)
        return 0
    held = json.loads(given.state.read_text()) if given.state.exists() else {}
    tallies = {name: Tally(**held.get(name, {})) for name in TARGETS}
    each = math.ceil(given.inputs / sum(TARGETS[name].share for name in given.targets))

    def report(name):
        part = given.state.with_suffix(".part")
        part.write_text(json.dumps({key: asdict(one) for key, one in tallies.items()}))
        os.replace(part, given.state)
        if sys.stderr.isatty():
            print(f"\r{name} {tallies[name].tried:,} of {each:,}   ", end="", file=sys.stderr, flush=True)

    chosen = {name: tallies[name] for name in given.targets}
    run(chosen, each, report)
    report(given.targets[-1])
    print(table(chosen))
    tried = list(chosen.values())
    n_processes, n_sockets = sum(len(one.processes) for one in tried), sum(len(one.sockets) for one in tried)
    n_inputs = sum(one.tried for one in tried)
    print(f"{n_inputs:,} inputs: processes started: {n_processes}, sockets opened: {n_sockets}")
    for line in findings(chosen):
        print(line)
    return 0 if all(one.sound for one in chosen.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
