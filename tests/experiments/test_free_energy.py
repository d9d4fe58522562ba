"""Free-energy kernels: on small made-up texts and images, and what is said of finished or unfinished results."""

import json
import zipfile

import numpy as np
import pytest
from experiments.running import Options, Results, run
from experiments.text_methods import METHODS
from experiments.text_tasks import NEWSGROUPS, _messages, read_task, task_names

from experiments import free_energy_retrieval, free_energy_text
from result_pages import page_of

MACHINE = {"date": "2026-01-01", "commit": "abc", "cpu": "one", "cores": 2}


def sentence(rng, topic):
    """Forty words, of which half belong to the topic."""
    words = [f"{topic}{k}" for k in rng.integers(0, 15, 20)] + [f"common{k}" for k in rng.integers(0, 30, 20)]
    return " ".join(words)


@pytest.fixture
def texts(tmp_path):
    """A folder with small archives in the form of the data sets of texts."""
    folder = tmp_path / "data"
    rng = np.random.default_rng(0)
    for name in ("newsgroups_3pairs", "amazon7", "reuters21578"):
        (folder / name).mkdir(parents=True)
    with zipfile.ZipFile(folder / "newsgroups_3pairs" / "newsgroups_3pairs.zip", "w") as archive:
        for group in NEWSGROUPS["Comp"]:
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
    return folder


def test_texts_go_on_where_they_stopped(texts, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(free_energy_text, "QUICK_TASKS", ("Comp", "Reuters 1"))
    first = run("text", free_energy_text, Options(texts, tmp_path / "out", quick=True, repeats=1))
    assert "Reuters 1: tin or zinc" in capfd.readouterr().err
    done = ["Comp/00", "Comp/00/default", "Reuters 1/00", "Reuters 1/00/default"]
    assert [key for key, _ in first.items()] == done
    for key, found in first.items():
        ours = free_energy_text.DEFAULTS
        assert list(found) == (
            list(ours) if key.endswith("default") else [name for name in METHODS if name not in ours]
        )
        assert all(0 <= one["error"] < 0.3 for one in found.values())  # the classes have words of their own
        if key.endswith("default"):
            continue
        learned = found["LDA-FEK"]["chosen"]
        assert found["TF-IDF + FEK"]["chosen"] == learned | {"C": found["TF-IDF + FEK"]["chosen"]["C"]}

    before = json.loads(first.path.read_text())["cells"]
    monkeypatch.setattr(free_energy_text, "QUICK_TASKS", ("Comp",))
    run("text", free_energy_text, Options(texts, tmp_path / "out", quick=True, repeats=2))
    after = json.loads(first.path.read_text())["cells"]
    assert before.items() <= after.items()  # also the seconds: nothing was done again
    assert after.keys() - before.keys() == {"Comp/01", "Comp/01/default"}


def test_headers_are_left_out_where_they_should_be(texts):
    for headers in (True, False):
        messages, y = _messages(texts, NEWSGROUPS["Comp"], headers)
        assert np.bincount(y).tolist() == [20, 20]
        assert all(("sender" in message) == headers for message in messages)
        assert all("Newsgroups" not in message and "last" in message for message in messages)


def test_ten_folds_hold_each_document_once_and_ten_more_are_others(texts):
    task = read_task("Kitchen", texts)
    divisions = []
    for first in (0, 10):
        parts = [free_energy_text.split_of(task, fold) for fold in range(first, first + 10)]
        tests = [test for _, test in parts]
        np.testing.assert_array_equal(np.sort(np.concatenate(tests)), np.arange(40))
        assert all(len(np.intersect1d(train, test)) == 0 and len(train) + len(test) == 40 for train, test in parts)
        divisions.append({tuple(test) for test in tests})
    assert divisions[0] != divisions[1]


def test_cells_of_texts_are_folds_of_tasks(tmp_path):
    keys = {cell.key for cell in free_energy_text.cells(Options(tmp_path, tmp_path))}
    endings = ("", "/default")
    assert keys == {f"{name}/{fold:02d}{ending}" for name in task_names() for fold in range(10) for ending in endings}
    assert len(free_energy_text.cells(Options(tmp_path, tmp_path, repeats=12))) == 2 * 12 * len(task_names())


@pytest.fixture
def images(tmp_path):
    """A folder with a small archive in the form of Corel-1k."""
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    (tmp_path / "data" / "corel1k").mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "data" / "corel1k" / "corel1k.zip", "w") as archive:
        for name, period in (("fine", 4), ("coarse", 12)):
            for k in range(25):
                stripes = 120 + 100 * np.sin(2 * np.pi * (np.arange(48) + rng.integers(period)) / period)
                pixels = np.clip(stripes[:, None, None] + rng.normal(0, 10, (48, 48, 3)), 0, 255).astype(np.uint8)
                with archive.open(f"{name}/{k}.png", "w") as file:
                    image.fromarray(pixels).save(file, "png")
    return tmp_path / "data"


def test_images_rank_each_other(images, tmp_path):
    options = Options(images, tmp_path / "out", quick=True)
    found = free_energy_retrieval.measure(options, 0)
    assert tuple(found) == free_energy_retrieval.CONDITIONS
    assert all(one["map"] > 0.6 for one in found["all labels"].values())
    for condition, methods in found.items():
        few = "%" in condition
        assert tuple(methods) == (free_energy_retrieval.LEARNERS if few else free_energy_retrieval.METHODS)
    assert free_energy_retrieval.measure(options, 0) == found


def made_up(module, rng):
    if module is free_energy_text:
        return {method: {"error": 0.2 * rng.random(), "chosen": {}, "seconds": 1.0} for method in METHODS}
    return {
        condition: {
            method: {"map": rng.random(), "chosen": {}}
            for method in (module.LEARNERS if "%" in condition else module.METHODS)
        }
        for condition in module.CONDITIONS
    }


@pytest.mark.parametrize("module", [free_energy_text, free_energy_retrieval])
@pytest.mark.parametrize("part", [1.0, 0.5, 0.005, 0.0])
def test_sections_can_be_written_from_any_part_of_the_cells(module, part, tmp_path):
    rng = np.random.default_rng(0)
    results = Results(tmp_path / "made_up.json")
    cells = module.cells(Options(tmp_path, tmp_path, repeats=3))
    for k in rng.permutation(len(cells))[: int(np.ceil(part * len(cells)))]:
        results.keep(cells[k].key, made_up(module, rng), 1.0, MACHINE)
    assert (len(results) > 0) == (part > 0)
    sections, _ = page_of(module, Results(results.path), tmp_path)
    if part == 1:
        assert all(section.claims and section.tables for section in sections)


def errors_of(tmp_path, tasks, kernel, scores, n_folds=4):
    """Sections of errors in % of LDA-FEK and LDA-FESS that hardly differ between folds; all others are at 10."""
    results = Results(tmp_path / f"{kernel}-{scores}-{n_folds}-{len(tasks)}.json")
    for name in tasks:
        for fold in range(n_folds):
            errors = dict.fromkeys(METHODS, 10.0) | {"LDA-FEK": kernel + 0.01 * fold, "LDA-FESS": scores}
            results.keep(f"{name}/{fold:02d}", {m: {"error": e / 100} for m, e in errors.items()}, 1.0, MACHINE)
    (section,) = free_energy_text.sections(results)
    return section


def test_claims_about_texts_follow_the_errors(tmp_path):
    def said(kernel, scores, n_folds=4, tasks=tuple(free_energy_text.PUBLISHED)):
        claims = errors_of(tmp_path, tasks, kernel, scores, n_folds).claims
        return [claim.supported for claim in claims if "at least 9" in claim.text]

    assert said(3.0, 4.0) == [True]
    assert said(4.0, 3.0) == [False]
    assert said(3.0, 3.01) == [None]  # folds differ by as much
    assert said(3.0, 4.0, n_folds=1) == [None]
    assert said(3.0, 4.0, tasks=("Comp", "Sci")) == [None]  # two tasks are not nine
    assert said(3.0, 4.0, tasks=("Reuters 1",)) == []


def test_levels_of_texts_are_those_published(tmp_path):
    for kernel, holds in ((1.0, [True, True, False]), (3.0, [True, False, False])):
        claims = errors_of(tmp_path, NEWSGROUPS, kernel, 5.0).claims
        assert [claim.supported for claim in claims if "at or below" in claim.text] == holds


def test_claims_about_images_need_draws_that_agree(tmp_path):
    def said(*gaps):
        results = Results(tmp_path / f"{gaps}.json")
        for draw, gap in enumerate(gaps):
            maps = dict.fromkeys(free_energy_retrieval.METHODS, 0.5) | {"FEK": 0.5 + gap}
            result = {"all labels": {method: {"map": value} for method, value in maps.items()}}
            results.keep(f"{draw:02d}", result, 1.0, MACHINE)
        return [claim.supported for claim in free_energy_retrieval.sections(results)[0].claims]

    assert said(0.10, 0.11, 0.12) == [True, True]
    assert said(-0.10, -0.11, -0.12) == [False, False]
    assert said(0.10, -0.11, 0.12) == [None, None]
    assert said(0.10) == [None, None]
