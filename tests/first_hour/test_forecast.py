"""`--dry-run` says what a run would do, how long it takes, and what it would note."""

import numpy as np
import pytest

from bagwise import Model, fit_model
from bagwise.training import plan_fit
from bagwise.training.forecast import _continued, _Measured
from commands import as_json, bagwise
from small_sources import texts, write_image_folder, write_records, write_table

SMALL = ("--no-report", "--no-index")


def sources(kind, folder):
    """A source of each kind, and its options."""
    if kind == "images":
        source = write_image_folder(folder / "photos", parts=("train", "test"), color=True)
        return source, ["--words", "8", "--descriptor", "sift+color"]
    if kind == "texts":
        rows = [*texts(n_each=9), *texts(n_each=3, classes=("birds",), seed=1)][:-9]  # a small class
        path = folder / "texts.csv"
        path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
        return path, []
    if kind == "unlabelled":
        path = folder / "texts.txt.csv"
        path.write_text("text\n" + "".join(f"{text}\n" for text, _ in texts()))
        return path, ["--text", "text"]
    rng = np.random.default_rng(0)
    rows = [f"{k},{rng.normal():.3f},{rng.normal(9, 4):.3f},{rng.normal():.3f},{'ab'[k % 2]}" for k in range(30)]
    path = folder / "table.csv"
    path.write_text("\n".join(["Unnamed: 0,depth,mass,heat,label", *rows]))
    return path, []


@pytest.mark.parametrize("kind", ["images", "texts", "unlabelled", "table"])
def test_a_plan_has_the_stages_and_notes_of_the_run(kind, tmp_path):
    source, options = sources(kind, tmp_path)
    plan = as_json("fit", source, *options, "--out", tmp_path / "a.bagwise", "--dry-run")["plan"]
    assert not (tmp_path / "a.bagwise").exists()
    told = as_json("fit", source, *options, "--out", tmp_path / "a.bagwise", *SMALL)
    stages = {step["stage"] for step in plan["steps"]}
    assert stages | {"writing"} == set(told["seconds"])
    assert ("evaluation" in stages) == ("test" in told)
    assert plan["notes"] == told["notes"]
    assert plan["n_words"] == Model.load(tmp_path / "a.bagwise").hierarchy.n_words
    for step in [*plan["steps"], plan]:
        assert 0 <= step["low"] <= step["seconds"] <= step["high"]
    assert plan["seconds"] == pytest.approx(sum(step["seconds"] for step in plan["steps"]))
    assert plan["notes"] or kind == "images"


def test_a_plan_shows_ranges_and_notes(tmp_path):
    source, _ = sources("table", tmp_path)
    shown = bagwise("fit", source, "--out", tmp_path / "a.bagwise", "--dry-run")
    assert "merge 3 words by aib, about " in shown
    assert " s to " in shown
    assert "exists already" not in shown
    assert not list(tmp_path.glob("a.*"))


def test_a_plan_without_cross_validation_chooses_no_groups_by_it(tmp_path):
    source, options = sources("unlabelled", tmp_path)
    shown = bagwise("fit", source, *options, "--out", tmp_path / "a.bagwise", "--dry-run")
    n_words = plan_fit(source).n_words
    assert f"Groups: {min(50, n_words)} by default." in shown
    source, _ = sources("table", tmp_path)
    shown = bagwise("fit", source, "--out", tmp_path / "a.bagwise", "--dry-run")
    assert "Groups: chosen by cross-validation." in shown


@pytest.mark.parametrize("options", [{"n_groups": 3}, {"criterion": "csm"}, {"folds": 0}])
def test_plans_of_other_options(options, tmp_path):
    source = write_records(tmp_path / "texts.csv")
    plan = plan_fit(source, **options)
    fitted = fit_model(source, **options).result
    assert {step.stage for step in plan.steps} == set(fitted.timings)
    assert plan.notes == fitted.notes
    assert plan.criterion == fitted.model.hierarchy.criterion


def test_pyramids_and_videos_like_images(tmp_path):
    source = write_image_folder(tmp_path / "photos")
    plan = plan_fit(source, n_words=10, pyramid=5, n_groups=4)
    assert plan.n_features == 20
    assert [step.stage for step in plan.steps][:3] == ["describing", "learning words", "counting words"]


def test_a_plan_looks_at_no_cache_and_writes_none(tmp_path):
    source = write_table(tmp_path / "table.csv")
    bagwise("fit", source, "--dry-run", "--cache", tmp_path / "cache", "--out", tmp_path / "a.bagwise")
    assert not (tmp_path / "cache").exists()


def test_times_are_continued_by_their_powers():
    def seconds(n, d):
        return {"Merging words": 1e-7 * d**2, "Training a classifier on all words": 1e-5 * n * d**0.5}

    measured = [_Measured(n, d, seconds(n, d)) for n, d in ((200, 1000), (200, 2000), (400, 2000), (400, 4000))]
    for step, wanted in seconds(4000, 30_000).items():
        found = _continued(measured, step, 4000, 30_000)
        assert wanted / 2 < found < 2 * wanted
    assert _continued(measured, "Merging words", 400, 4000) == measured[-1].seconds["Merging words"]
