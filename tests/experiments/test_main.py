"""The command line of the experiments, and where and when results say they were made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from experiments.__main__ import EXPERIMENTS, footer, load, main, parse, show
from experiments.running import Options, Results, run

ROOT = Path(__file__).resolve().parents[2]
MACHINE = {"date": "2026-01-01", "commit": "abc", "cpu": "one", "cores": 2}


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


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "merging_times"])  # that draws its own data
def test_an_experiment_without_its_data_says_which_it_needs(name, tmp_path):
    experiment = load(name)
    for one in experiment.DATA[:-1]:
        (tmp_path / one).mkdir()
        (tmp_path / one / f"{one}.zip").touch()
    last = experiment.DATA[-1]
    with pytest.raises(SystemExit, match=f"{name} reads the data set {last}, and .* has no file {last}/{last}"):
        run(name, experiment, Options(tmp_path, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


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
            results.keep(str(k), {}, value, MACHINE)
        again = Results(results.path)
        assert again.seconds == sum(value for value in seconds if value is not None)
        assert again.n_untimed == seconds.count(None)
        return footer("some", again)

    where = "2026-01-01, commit abc, one, 2 cores.*"
    assert told(90.0, 30.0) == f"*`python -m experiments some`: 2 cells, 2 min of processor time, {where}"
    assert told(None) == f"*`python -m experiments some`: 1 cell, time not kept, {where}"
    assert "3 cells, 2 min of processor time (without 1 whose time was not kept)" in told(90.0, None, 30.0)


def test_what_came_out_is_printed_and_written_with_its_plots(tmp_path, capsys):
    results = Results(tmp_path / "wide_scene15.quick.json")
    for draw in range(2):
        for method, accuracy in (("bsc", 70.0), ("hashing", 50.0)):
            for size in (50, 100):
                results.keep(
                    f"{draw:02d}/{method}/{size:04d}", {"accuracy": accuracy + draw + size / 100}, 1.0, MACHINE
                )
    show("wide_scene15", load("wide_scene15"), results)
    page = (tmp_path / "wide_scene15.quick.md").read_text()
    assert capsys.readouterr().out == page + "\n"
    assert "| BSC | 71.50 ± 0.71 |" in page
    assert "python -m experiments wide_scene15`: 8 cells" in page
    (plot,) = (tmp_path / "plots").iterdir()
    assert f"(plots/{plot.name})" in page
