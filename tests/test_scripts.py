"""The scripts people run."""

import importlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from bagwise.app.explorer.pages import PAGES

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


def test_the_quick_benchmark_of_encoders_runs(monkeypatch, capsys):
    """One of its parts in a process of its own, as all are otherwise; importing takes longer than anything else."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("encoding")
    fresh = script.in_fresh_process

    def called(path, function, **given):
        here = given.get("filled") != 1.0
        return getattr(script, function)(**given) if here else fresh(path, function, **given)

    monkeypatch.setattr(script, "in_fresh_process", called)
    monkeypatch.setattr(sys, "argv", ["encoding", "--quick"])
    script.main()
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if "NumPy" in line and "|" in line]
    nearest = [row for row in rows if "scikit-learn" not in row[0]]
    assert {int(row[1]) for row in nearest} == {1, 2}
    assert all(float(row[-1]) > 99 for row in nearest)  # finds the same words as we do, but for ties in rounding
    normalizing = [row for row in rows if "scikit-learn" in row[0]]
    assert [float(row[1]) for row in normalizing] == [1.0, 0.02]


@pytest.mark.parametrize(
    ("name", "archive"),
    [
        ("smoothing", "newsgroups_3pairs.zip"),
        ("compact", "newsgroups_3pairs"),
        ("scene15", "scene15.zip"),
        ("main_job", "newsgroups_3pairs"),
        ("seed_methods", "nowhere"),
    ],
)
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


@pytest.fixture
def main_job(monkeypatch):
    """The benchmark of the main job, which runs methods in this process."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("main_job")
    monkeypatch.setattr(
        script, "in_fresh_process", lambda _, function, **given: getattr(script.methods, function)(**given)
    )
    return script


def some_results(main_job, errors):
    """Results of one data set of texts: `errors` maps methods and sizes to errors, by task and split."""
    results = main_job.Results("newsgroups", "texts")
    for (method, size), values in errors.items():
        for (task, split), error in values.items():
            results.cells[f"{task}/{split}/{method} {size}"] = [{"method": method, "size": size, "error": error}]
    return results


def test_methods_of_texts_learn_what_one_word_tells(main_job, tmp_path):
    data = importlib.import_module("main_job_data")
    rng = np.random.default_rng(0)
    words = np.array([f"word{k}" for k in range(30)])
    labels = np.array(["cat", "dog"] * 30)
    texts = [f"{' '.join(rng.choice(words, 8))} {label} {label}" for label in labels]
    path = data.write_split(data.Items(texts, labels), np.arange(60) < 40, "texts", tmp_path)
    methods = main_job.methods
    for method in methods.METHODS["texts"].keys() - {methods.FASTTEXT}:
        rows = methods.measure(method, "texts", str(path))
        own = [row for row in rows if row["method"] == method and row["size"] in (10, 20, "auto", "all")]
        n_rows = dict.fromkeys((methods.TFIDF, methods.TFIDF_PAIRS, methods.NB, methods.NBSVM_), 1) | {methods.OURS: 4}
        assert [row["error"] for row in own] == [0] * n_rows.get(method, 2), method
        if method == methods.OURS:
            small = [row for row in rows if row["method"] == methods.COMPACT]
            assert [(row["size"], row["error"]) for row in small] == [("auto", 0), (20, 0), (50, 0)]
            assert max(row["bytes"] for row in small) < own[0]["bytes"]
        assert all(row["seconds"] > 0 and row["bytes"] > 0 for row in rows)


def test_the_main_job_goes_on_from_what_it_kept(main_job, tmp_path, capsys, monkeypatch):
    arguments = ["--only", "wine", "--quick", "--json", str(tmp_path)]
    main_job.main(arguments)
    first = capsys.readouterr().out
    lines = [line for line in first.splitlines() if line.startswith("|") and "all" in line]
    assert [line.split("|")[1].strip() for line in lines] == ["bagwise", "StandardScaler + LinearSVC"]
    assert first.count("wine: no loss against") == 2
    monkeypatch.delattr(main_job, "in_fresh_process")
    main_job.main(arguments)
    assert capsys.readouterr().out == first


def test_intervals_of_the_main_job_are_those_of_paired_tests(main_job):
    rng = np.random.default_rng(0)
    first, second = rng.random((2, 3, 2))
    errors = {
        (name, "all"): {(f"task{t}", str(s)): values[t, s] for t in range(3) for s in range(2)}
        for name, values in (("a", first), ("b", second))
    }
    found = main_job.difference([some_results(main_job, errors)], "a", "all", "b")
    low, high = ttest_rel(first.mean(axis=1), second.mean(axis=1)).confidence_interval(0.95)
    np.testing.assert_allclose([found.mean - found.margin, found.mean + found.margin], [low, high])
    one = {
        name: {place: error for place, error in some.items() if place[0] == "task0"} for name, some in errors.items()
    }
    found = main_job.difference([some_results(main_job, one)], "a", "all", "b")  # over splits
    low, high = ttest_rel(first[0], second[0]).confidence_interval(0.95)
    np.testing.assert_allclose([found.mean - found.margin, found.mean + found.margin], [low, high])


@pytest.mark.parametrize(("at_20", "at_200", "verdicts"), [
    (0.2, 0.4, (True, True)), (0.4, 0.4, (False, True)), (0.2, 0.6, (True, False)),
])  # fmt: skip
def test_goals_of_the_main_job_are_judged_by_the_figures(main_job, at_20, at_200, verdicts):
    reference = main_job.REFERENCE["texts"]
    gaps = {(reference, "all"): 0.0, ("bagwise", 20): at_20, ("bagwise", 50): 0.1, ("bagwise", 200): at_200}
    errors = {kind: {(task, "0"): 5 + gap for task in "ab"} for kind, gap in gaps.items()}
    found = main_job.goals({"newsgroups": some_results(main_job, errors)})
    judged = {goal.what: goal.reached for goal in found}
    within, never = (next(what for what in judged if part in what) for part in ("within 0.3", "never more than 0.5"))
    assert (judged[within], judged[never]) == verdicts
    assert judged["six newsgroups, 20 groups: within 0.6 points"] is None


def test_the_benchmark_of_the_papers_methods_goes_on_from_finished_seeds(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = importlib.import_module("seed_methods")
    Row = script.Row
    measured = []

    def measure(data, seeds, quick):
        for seed in seeds:
            measured.append(seed)
            yield Row("texts", "peer", "plain", seed, {"error": 0.2 + 0.1 * seed}, 2.0)
            yield Row("texts", "ours", "default", seed, {"error": 0.1}, 1.0)

    monkeypatch.setitem(sys.modules, "seed_methods_topics", SimpleNamespace(measure=measure))
    script.run("topics", tmp_path, [0], False, tmp_path)
    rows = script.run("topics", tmp_path, [0, 1], False, tmp_path)
    assert measured == [0, 1]
    assert rows == script.read_rows(tmp_path, "topics")
    lines = script.table(rows)
    assert [(line["method"], line["seeds"]) for line in lines] == [("ours", 2), ("peer", 2)]  # defaults first
    assert [line["error"] for line in lines] == ["0.100 ± 0.000", "0.250 ± 0.071"]
    assert "topics, seed 1: texts, ours (default): error 0.1; 1.0 s" in capsys.readouterr().out


def test_pictures_of_the_docs_are_those_that_the_script_makes(monkeypatch):
    pytest.importorskip("playwright.sync_api")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    script = importlib.import_module("screenshots")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"images/([\w-]+)\.png", page.read_text("utf-8"))}
    files = list((ROOT / "docs" / "images").iterdir())
    assert shown == script.SHOWN == {file.stem for file in files}
    assert sum(file.stat().st_size for file in files) < 1_500_000
    names = [f"{data}-{page}" for data in script.DATA for page in (*script.ADDRESSES, "report")]
    assert {name.rsplit("-", 2)[0] for name in shown} <= set(names)
    assert {address.strip("/").partition("?")[0] for address in script.ADDRESSES.values()} == set(PAGES)
