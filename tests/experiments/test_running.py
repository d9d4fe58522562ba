"""The runner and its command line: finished cells and shared files are kept, whatever happens to the others."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from experiments.__main__ import EXPERIMENTS, footer, main, parse
from experiments.caching import kept
from experiments.running import Options, Results, run

from waiting import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
    import os, time
    from pathlib import Path
    from experiments.running import Cell

    def cells(options):
        return [Cell(f"cell/{k}", work, {"k": k, "folder": str(options.data)}) for k in range(4)]

    def work(k, folder):
        with open(Path(folder) / "log", "a") as log:
            print(k, file=log)
        if (Path(folder) / f"fails{k}").exists():
            raise RuntimeError("as told")
        if (Path(folder) / f"hangs{k}").exists():
            (Path(folder) / f"hangs{k}").write_text(str(os.getpid()))
            while True:
                time.sleep(0.05)
        return {"square": k * k}
"""


@pytest.fixture
def experiment(tmp_path, monkeypatch):
    (tmp_path / "four_cells.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("four_cells", None)
    import four_cells

    yield four_cells
    del sys.modules["four_cells"]


def worked(folder):
    log = folder / "log"
    return sorted(map(int, log.read_text().split())) if log.exists() else []


def test_finished_cells_are_kept_and_not_run_again(experiment, tmp_path):
    options = Options(tmp_path, tmp_path / "out", jobs=2)
    results = run("four", experiment, options)
    assert [result["square"] for _, result in results.items("cell/")] == [0, 1, 4, 9]
    assert worked(tmp_path) == [0, 1, 2, 3]
    again = run("four", experiment, options)
    assert worked(tmp_path) == [0, 1, 2, 3]
    assert dict(again.items()) == dict(results.items())


def test_a_cell_that_fails_does_not_stop_the_others(experiment, tmp_path, capfd):
    (tmp_path / "fails1").touch()
    options = Options(tmp_path, tmp_path / "out")
    with pytest.raises(SystemExit, match="1 of 4 cells of four failed"):
        run("four", experiment, options)
    assert "cell/1 failed: RuntimeError: as told" in capfd.readouterr().err
    assert "cell/1" not in Results(tmp_path / "out" / "four.json")
    (tmp_path / "fails1").unlink()
    assert len(run("four", experiment, options)) == 4
    assert worked(tmp_path) == [0, 1, 1, 2, 3]


def start(tmp_path):
    """Run the experiment in a process of its own, and wait until it hangs at its third cell."""
    (tmp_path / "hangs2").touch()
    code = (
        "from pathlib import Path; import signal; import four_cells; from experiments import running\n"
        "from experiments.running import Options, run\n"
        "running.machine = dict\n"  # finding out about it takes longer than all cells
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        f"if __name__ == '__main__': run('four', four_cells, Options(Path({str(tmp_path)!r}), Path({str(tmp_path)!r})))"
    )
    script = tmp_path / "go.py"
    script.write_text(code)
    path = os.pathsep.join([str(tmp_path), str(ROOT), str(ROOT / "src")])
    process = subprocess.Popen(
        [sys.executable, str(script)], env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE, text=True
    )
    file = tmp_path / "four.json"
    until(lambda: file.exists() and len(Results(file)) == 2 and (tmp_path / "hangs2").read_text())
    return process, file


def runs(process):
    """Whether a process is there, and more than an entry that nobody has asked for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_interrupt_keeps_what_is_finished(experiment, tmp_path):
    process, file = start(tmp_path)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in told
    assert sorted(key for key, _ in Results(file).items()) == ["cell/0", "cell/1"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_run_takes_its_workers_with_it_and_can_go_on(experiment, tmp_path):
    process, file = start(tmp_path)
    options = Options(tmp_path, tmp_path)
    with pytest.raises(SystemExit, match=f"another process .process {process.pid}., which writes .*four.json"):
        run("four", experiment, options)
    assert len(Results(file)) == 2
    worker = int((tmp_path / "hangs2").read_text())
    assert runs(worker)
    process.kill()
    process.communicate(timeout=PATIENCE)
    until(lambda: not runs(worker))
    (tmp_path / "hangs2").unlink()
    assert len(run("four", experiment, options)) == 4
    assert worked(tmp_path) == [0, 1, 2, 2, 3]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_file_has_a_line_for_each_cell(tmp_path):
    results = Results(tmp_path / "some.json")
    for name in ("b", "a"):
        results.keep(name, {"x": 1.5}, 0.123, {"commit": name})
    lines = results.path.read_text().splitlines()
    assert [line[:3] for line in lines[1:-1]] == ['"a"', '"b"']
    assert json.loads(results.path.read_text())["cells"]["a"]["seconds"] == 0.12
    again = Results(results.path)
    assert (len(again), again["b"], again.seconds) == (2, {"x": 1.5}, 0.24)
    assert again.machines == [{"commit": "a"}, {"commit": "b"}]


@pytest.mark.parametrize("quick", [False, True])
def test_a_file_is_written_once(tmp_path, quick):
    options = Options(tmp_path, tmp_path / "out", quick=quick)
    calls = []

    def write(path):
        calls.append(path)
        path.write_text("made")

    first, second = (kept(options, "some-1.5.txt", write) for _ in range(2))
    assert first == second == calls[0]
    assert len(calls) == 1
    assert first.name == ("some-1.5.quick.txt" if quick else "some-1.5.txt")
    assert first.read_text() == "made"


def test_what_failed_is_tried_again(tmp_path):
    options = Options(tmp_path, tmp_path / "out")

    def fail(path):
        raise RuntimeError("broken off")

    with pytest.raises(RuntimeError, match="broken off"):
        kept(options, "some.txt", fail)
    assert kept(options, "some.txt", lambda path: path.write_text("made")).read_text() == "made"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["manifold_scene15", "--data", "nowhere"], "--data DIR or BAGWISE_DATA=DIR; got nowhere"),
        (["free_energy_text"], "--data DIR or BAGWISE_DATA=DIR; got None"),
        (
            ["weather"],
            "Unknown experiment 'weather'. Accepted: merging_times, .*free_energy_retrieval.*; all, list, page",
        ),
        (["list", "manifold_mnist"], "list and page stand alone"),
        (["manifold_mnist", "--data", ".", "--repeats", "0"], "--repeats must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_run_is_told(arguments, message, monkeypatch):
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    with pytest.raises(SystemExit, match=message):
        parse(arguments)


def test_an_interrupt_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(name, experiment, options):
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.__main__.run", interrupted)
    monkeypatch.setattr("signal.signal", lambda *_: None)  # that of the test's own process
    monkeypatch.setattr(sys, "argv", ["experiments", "wide_lbp", "--data", str(tmp_path), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"wide_lbp was interrupted; its finished cells are kept in .*Run it again"):
        main()


def test_all_are_run_by_one_name(tmp_path):
    options, names = parse(["all", "--quick", "--data", str(tmp_path), "--jobs", "3"])
    assert names == list(EXPERIMENTS)
    assert (options.data, options.quick, options.repeats, options.jobs) == (tmp_path, True, None, 3)


def test_experiments_are_listed_without_torch():
    code = """if True:
        import sys

        class NoTorch:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "torch":
                    raise ModuleNotFoundError("No module named 'torch'", name=name)

        sys.meta_path.insert(0, NoTorch())
        sys.argv = ["experiments", "list"]
        from experiments.__main__ import main
        main()
    """
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    listed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}
    )
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(EXPERIMENTS)


def test_times_that_nobody_took_are_left_out_and_told(tmp_path):
    def told(*seconds):
        results = Results(tmp_path / f"{seconds}.json")
        for k, value in enumerate(seconds):
            results.keep(str(k), {}, value, {"date": "2026-01-01", "commit": "abc", "cpu": "one", "cores": 2})
        again = Results(results.path)
        assert again.seconds == sum(value for value in seconds if value is not None)
        assert again.n_untimed == seconds.count(None)
        return footer("some", again)

    where = "2026-01-01, commit abc, one, 2 cores.*"
    assert told(90.0, 30.0) == f"*`python -m experiments some`: 2 cells, 2 min of processor time, {where}"
    assert told(None) == f"*`python -m experiments some`: 1 cell, time not kept, {where}"
    assert "3 cells, 2 min of processor time (without 1 whose time was not kept)" in told(90.0, None, 30.0)
