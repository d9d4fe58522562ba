"""The scripts people run."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={key: value for key, value in os.environ.items() if key != "BAGWISE_DATA"},
    )


def test_the_demo_prints_its_table():
    result = run("examples/digits.py")
    assert result.returncode == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if line[:10].strip().isdigit()]
    assert [int(row[0]) for row in rows][:2] == [64, 50]
    assert all(0 < float(row[1]) < 1 for row in rows)
    assert all(row[2].endswith("%") and row[3].endswith("%") for row in rows)


def test_the_quick_benchmark_of_encoders_runs():
    result = run("benchmarks/encoding.py", "--quick")
    assert result.returncode == 0, result.stderr
    rows = [line.split("|")[1:-1] for line in result.stdout.splitlines() if "NumPy" in line and "|" in line]
    nearest = [row for row in rows if "scikit-learn" not in row[0]]
    assert {int(row[1]) for row in nearest} == {1, 2}
    assert all(float(row[-1]) > 99 for row in nearest)  # finds the same words as we do, but for ties in rounding
    normalizing = [row for row in rows if "scikit-learn" in row[0]]
    assert [float(row[1]) for row in normalizing] == [1.0, 0.02]


@pytest.mark.parametrize(("name", "archive"), [("smoothing", "newsgroups_3pairs.zip"), ("scene15", "scene15.zip")])
def test_a_benchmark_without_its_data_says_what_it_needs(name, archive, monkeypatch):
    """In this process, since importing takes longer than anything else here."""
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    for arguments, message in (([], "--data DIR or BAGWISE_DATA=DIR"), (["--data", "nowhere"], archive)):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"), run_name="__main__")
        assert message in ended.value.code


def test_a_benchmark_without_its_data_ends_with_an_error():
    result = run("benchmarks/front_end.py")
    assert result.returncode == 1
    assert "--data DIR or BAGWISE_DATA=DIR" in result.stderr
    assert "Traceback" not in result.stderr
