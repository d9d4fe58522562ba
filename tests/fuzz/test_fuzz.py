"""Whatever is in a file, it is accepted or refused: see ``make fuzz`` for many more inputs."""

import json
import math
import signal
from types import SimpleNamespace

import pytest

from fuzz import running
from fuzz.targets import TARGETS
from waiting import PATIENCE

N_INPUTS = 2000


def test_two_thousand_inputs_are_accepted_or_refused(monkeypatch):
    monkeypatch.setattr(running, "SECONDS", PATIENCE)  # only what hangs takes as long on a busy machine
    quick = [name for name, target in TARGETS.items() if target.share == 1]
    tallies = running.run({name: running.Tally() for name in quick}, math.ceil(N_INPUTS / len(quick)))
    assert not list(running.findings(tallies))
    for name, one in tallies.items():
        assert one.accepted, f"no input of {name} was accepted, not even the files that inputs are made from"
        assert one.refused or name == "cache", name  # a damaged file of a cache is computed again


def test_the_inputs_of_a_number_are_always_the_same(tmp_path):
    corpora = [running.corpus_of("csv", tmp_path / name) for name in "ab"]
    for number in range(40):
        one, other = (running.input_of("csv", corpus, number) for corpus in corpora)
        assert one == other


class _Process:
    """What a process says, and whether it hangs or dies after that."""

    def __init__(self, messages, hangs):
        self.messages, self.hangs = iter(messages), hangs

    def poll(self, seconds):
        self.next = next(self.messages, None)
        return self.next is not None or not self.hangs

    def recv(self):
        if self.next is None:
            raise EOFError
        return self.next


@pytest.mark.parametrize("hangs", [True, False])
def test_inputs_that_end_the_process_are_noted_and_left_behind(hangs):
    said = [
        ("begin", "csv", 0),
        ("end", "csv", 0, "accepted", 0.5, 7),
        ("begin", "csv", 1),
        ("end", "csv", 1, "KeyError at a.py:3", 0.1, 9),
        ("begin", "csv", 2),
    ]
    tallies, told = {"csv": running.Tally()}, []
    running._watch(_Process(said, hangs), tallies, told.append)
    one = tallies["csv"]
    assert (one.tried, one.accepted, one.refused, one.foreign) == (3, 1, 0, {"KeyError at a.py:3": [1]})
    assert (one.hangs, one.crashes) == (([2], []) if hangs else ([], [2]))
    assert (one.slowest_input, one.growth_input, told) == (0, 1, ["csv"])
    assert len(list(running.findings(tallies))) == 2


class _Context:
    """Instead of another process: one that accepts all inputs, and notes its jobs."""

    def __init__(self):
        self.jobs = []

    def Pipe(self, duplex):
        said = []
        return _Process(said, hangs=False), SimpleNamespace(send=said.append, close=lambda: None)

    def Process(self, target, args, daemon):
        assert target is running._work
        jobs, folder, sender = args
        self.jobs.append(jobs)
        assert folder.is_dir()
        for name, first, last in jobs:
            for number in range(first, last):
                sender.send(("begin", name, number))
                sender.send(("end", name, number, "accepted", 0.1, 0))
        sender.send(("done",))
        return SimpleNamespace(start=lambda: None, kill=lambda: None, join=lambda: None)


def test_a_run_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    state, context = tmp_path / "state.json", _Context()
    monkeypatch.setattr(running.multiprocessing, "get_context", lambda kind: context)
    for n in (3, 5):
        assert running.main(["--inputs", str(n), "--targets", "tsv", "--state", str(state)]) == 0
        assert json.loads(state.read_text())["tsv"]["tried"] == n
    assert context.jobs == [[("tsv", 0, 3)], [("tsv", 3, 5)]]
    assert "| all | 5 | 5 |" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "what"), [("tsv", "processes"), ("videos", "sockets")])
def test_an_input_that_the_kernel_stops_is_counted(name, what, monkeypatch, capsys, tmp_path):
    """Loaders with a process of their own may start it: they are killed for sockets, others for programs."""

    class Killed(_Context):
        def Process(self, target, args, daemon):
            jobs, _, sender = args
            sender.send(("begin", name, jobs[0][1]))
            ended = {"start": lambda: None, "kill": lambda: None, "join": lambda seconds=None: None}
            return SimpleNamespace(exitcode=-signal.SIGSYS, **ended)

    monkeypatch.setattr(running.multiprocessing, "get_context", lambda kind: Killed())
    state = tmp_path / "state.json"
    assert running.main(["--inputs", "2", "--targets", name, "--state", str(state)]) == 1
    tally = running.Tally(**json.loads(state.read_text())[name])
    assert (getattr(tally, what), tally.tried, tally.crashes) == ([0, 1], 2, [])
    counts = [2 * (what == one) for one in ("processes", "sockets")]
    assert "2 inputs: processes started: {}, sockets opened: {}\n".format(*counts) in capsys.readouterr().out


def test_loaders_that_start_a_process_come_first(monkeypatch):
    """From the first of the others on, no process may be started."""
    context = _Context()
    monkeypatch.setattr(running.multiprocessing, "get_context", lambda kind: context)
    running.run({name: running.Tally() for name in ("tsv", "videos", "csv", "h5ad")}, 1)
    assert [name for name, *_ in context.jobs[0]] == ["videos", "h5ad", "tsv", "csv"]
