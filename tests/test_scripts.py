"""The scripts people run."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
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
    assert {int(row[1]) for row in rows} == {1, 2}
    assert all(float(row[-1]) > 99 for row in rows)  # finds the same words as we do, but for ties in rounding


def test_a_benchmark_without_its_data_says_what_it_needs():
    result = run("benchmarks/smoothing.py")
    assert result.returncode == 1
    assert "--data DIR or BAGWISE_DATA=DIR" in result.stderr
    result = run("benchmarks/smoothing.py", "--data", "nowhere")
    assert "newsgroups_3pairs.zip does not exist" in result.stderr
    for name in ("front_end", "scene15"):
        result = run(f"benchmarks/{name}.py")
        assert result.returncode == 1
        assert "--data DIR or BAGWISE_DATA=DIR" in result.stderr
        result = run(f"benchmarks/{name}.py", "--data", "nowhere")
        assert "scene15.zip does not exist" in result.stderr


def test_experiments_on_the_manifold_say_so_as_well():
    for name in ("scene15", "corel1k", "rt2k", "mnist"):
        result = run(f"experiments/manifold_{name}.py", "--data", "nowhere")
        assert result.returncode == 1
        assert "--data DIR or BAGWISE_DATA=DIR; got nowhere" in result.stderr


def sentence(rng, topic):
    """Forty words, of which half belong to the topic."""
    words = [f"{topic}{k}" for k in rng.integers(0, 15, 20)] + [f"common{k}" for k in rng.integers(0, 30, 20)]
    return " ".join(words)


def write_texts(folder):
    """Small archives in the shape of the data sets of texts."""
    rng = np.random.default_rng(0)
    for name in ("newsgroups_3pairs", "amazon7", "reuters21578"):
        (folder / name).mkdir()
    with zipfile.ZipFile(folder / "newsgroups_3pairs" / "newsgroups_3pairs.zip", "w") as archive:
        for group in ("comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"):
            for k in range(20):
                topic = group.split(".")[2]
                message = f"From: {topic}sender\nNewsgroups: {group}\n\n{sentence(rng, topic)}\n\n{topic}last"
                archive.writestr(f"train/{group}/{k}.txt", message)
    with zipfile.ZipFile(folder / "amazon7" / "amazon7.zip", "w") as archive:
        for part in ("train", "test"):
            lines = [f"{k % 2}\t{sentence(rng, ['bad', 'good'][k % 2])}\n" for k in range(20)]
            archive.writestr(f"{part}/kitchen_housewares.tsv", "".join(lines))
    with zipfile.ZipFile(folder / "reuters21578" / "reuters21578.zip", "w") as archive:
        topics = [["tin"], ["zinc"], ["tin", "zinc"], []]
        documents = [
            {"topics": one, "title": "news", "body": sentence(rng, "-".join(one))} for one in topics for _ in range(100)
        ]
        archive.writestr("reuters21578.jsonl", "\n".join(map(json.dumps, documents)))


def table_rows(output):
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in output.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in reversed(rows)}  # of the first table, where names come again


def test_experiments_with_free_energies_say_what_they_need():
    for name, file in (("text", "newsgroups_3pairs.zip"), ("retrieval", "corel1k.zip")):
        result = run(f"experiments/free_energy_{name}.py", "--data", "nowhere")
        assert result.returncode == 1
        assert file in result.stderr
        assert "--data DIR or BAGWISE_DATA=DIR; got nowhere" in result.stderr


def test_free_energies_of_texts_go_on_where_they_stopped(tmp_path):
    write_texts(tmp_path)
    out = tmp_path / "out" / "text.json"
    script = ["experiments/free_energy_text.py", "--data", str(tmp_path), "--n-jobs", "1", "--out", str(out), "--quick"]
    first = run(*script, "--tasks", "Comp", "Reuters 1", "--folds", "1", "--headers", "with")
    assert first.returncode == 0, first.stderr
    assert "Reuters 1: tin or zinc" in first.stderr
    found = json.loads(out.read_text())["cells"]
    assert {key.split("|")[0] for key in found} == {"Comp", "Reuters 1"}
    assert all(0 <= cell["error"] < 0.3 for cell in found.values())  # the classes have words of their own

    more = run(*script, "--tasks", "Comp", "Kitchen", "--folds", "2", "--headers", "with")
    assert more.returncode == 0, more.stderr
    later = json.loads(out.read_text())["cells"]
    assert found.items() <= later.items()  # also the seconds: nothing was done again
    assert "Comp, fold 1:" not in more.stderr
    assert {"Comp", "Kitchen"} <= table_rows(more.stdout).keys()

    other = run(*script[:-1], "--tasks", "Comp")
    assert other.returncode == 1
    assert "other settings" in other.stderr
    unknown = run(*script, "--tasks", "Weather")
    assert unknown.returncode == 1
    assert "no task 'Weather'" in unknown.stderr


def test_headers_are_left_out_where_they_should_be(tmp_path, monkeypatch):
    write_texts(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    from text_tasks import NEWSGROUPS, _messages

    for headers in (True, False):
        texts, y = _messages(tmp_path, NEWSGROUPS["Comp"], headers)
        assert np.bincount(y).tolist() == [20, 20]
        assert all(("sender" in text) == headers for text in texts)
        assert all("Newsgroups" not in text and "last" in text for text in texts)


def test_free_energies_of_images_rank_each_other(tmp_path):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    (tmp_path / "corel1k").mkdir()
    with zipfile.ZipFile(tmp_path / "corel1k" / "corel1k.zip", "w") as archive:
        for name, period in (("fine", 4), ("coarse", 12)):
            for k in range(25):
                stripes = 120 + 100 * np.sin(2 * np.pi * (np.arange(48) + rng.integers(period)) / period)
                pixels = np.clip(stripes[:, None, None] + rng.normal(0, 10, (48, 48, 3)), 0, 255).astype(np.uint8)
                with archive.open(f"{name}/{k}.png", "w") as file:
                    image.fromarray(pixels).save(file, "png")
    out = tmp_path / "images.json"
    script = ("experiments/free_energy_retrieval.py", "--data", str(tmp_path), "--quick", "--n-jobs", "1")
    result = run(*script, "--out", str(out))
    assert result.returncode == 0, result.stderr
    rows = table_rows(result.stdout)
    assert all(float(cell.split()[0]) > 0.6 for cell in rows["all labels"])
    assert rows["20 % of labels"][0] == "-"
    again = run(*script, "--out", str(out))
    assert table_rows(again.stdout) == rows
    assert "repetition" not in again.stderr  # nothing was described again
