"""`--dry-run` says what a run would do, and what it would note."""

from pathlib import Path

import numpy as np
import pytest

from bagwise import Model, fit_model
from bagwise.app import plan_fit
from bagwise.app.modalities import texts as text_modality
from commands import as_json, bagwise
from small_sources import texts, write_image_folder, write_records, write_table

SMALL = ("--no-page", "--no-index")


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
    if kind == "few labels":
        rows = [f"{text},{label if k % 9 < 3 else ''}\n" for k, (text, label) in enumerate(texts(n_each=9))]
        path = folder / "texts.csv"
        path.write_text("text,label\n" + "".join(rows))
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


@pytest.mark.parametrize("kind", ["images", "texts", "few labels", "unlabelled", "table"])
def test_a_plan_has_the_words_the_method_and_the_notes_of_the_run(kind, tmp_path):
    source, options = sources(kind, tmp_path)
    told = as_json("fit", source, *options, "--out", tmp_path / "a.bagwise", "--dry-run")
    plan = told["plan"]
    assert not list(tmp_path.glob("a.*"))
    assert {Path(name).name for name in told["would_write"]} == {"a.bagwise", "a.index", "a.report.html"}
    run = as_json("fit", source, *options, "--out", tmp_path / "a.bagwise", *SMALL)
    model = Model.load(tmp_path / "a.bagwise")
    assert plan["notes"] == [note for note in run["notes"] if "cop" not in note]  # of so few words, some are equal
    assert plan["notes"] or kind == "images"
    assert (plan["n_test"] > 0) == ("test" in run)
    assert plan["n_items"] == model.provenance["n_items"]
    assert plan["n_words"] == model.hierarchy.n_words
    assert plan["descriptors"] == [record.name for record in model.descriptors]
    assert (plan["criterion"], plan["reason"]) == (model.hierarchy.criterion, model.provenance["criterion_reason"])
    assert (plan["n_folds"] > 0) == (model.path is not None)
    if model.path is not None:
        assert plan["sizes"] == list(model.path.sizes)
    assert plan["memory"] > 0


def test_a_plan_is_printed(tmp_path):
    source, _ = sources("table", tmp_path)
    shown = bagwise("fit", source, "--out", tmp_path / "a.bagwise", "--dry-run")
    for line in (
        "table.csv: 30 rows, 2 classes",
        "Words: 3.",
        "Method: merged by aib (columns are measurements).",
        "Groups: chosen by cross-validation.",
        "Errors: at 2 numbers of groups, by 5 folds of cross-validation.",
        "Memory: about ",
    ):
        assert line in shown
    assert not list(tmp_path.glob("a.*"))


def test_a_plan_without_cross_validation_chooses_no_groups_by_it(tmp_path):
    source, options = sources("unlabelled", tmp_path)
    shown = bagwise("fit", source, *options, "--out", tmp_path / "a.bagwise", "--dry-run")
    assert f"Groups: {min(50, plan_fit(source).n_words)}." in shown
    assert "Errors" not in shown


@pytest.mark.parametrize("options", [{"n_groups": 3}, {"criterion": "csm"}, {"folds": 0}])
def test_plans_of_other_options(options, tmp_path):
    source = write_records(tmp_path / "texts.csv")
    plan = plan_fit(source, **options)
    fitted = fit_model(source, **options).fit_
    assert plan.notes == fitted.notes
    assert plan.criterion == fitted.model.hierarchy.criterion
    assert plan.n_groups in ("auto", fitted.model.n_groups)
    assert fitted.model.path is None or fitted.model.path.sizes == plan.sizes


def test_pyramids_have_features_in_every_cell(tmp_path):
    assert plan_fit(write_image_folder(tmp_path / "photos"), n_words=10, pyramid=5, n_groups=4).n_features == 20


def test_of_many_texts_some_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(text_modality, "_PLANNED", 6)
    source = write_records(tmp_path / "texts.csv")
    assert plan_fit(source).n_words == 50_000
    assert plan_fit(source, ngrams=1).n_words == 30_000
    assert plan_fit(source, n_words=50).n_words == 50


def test_a_plan_looks_at_no_cache_and_writes_none(tmp_path):
    source = write_table(tmp_path / "table.csv")
    bagwise("fit", source, "--dry-run", "--cache", tmp_path / "cache", "--out", tmp_path / "a.bagwise")
    assert not (tmp_path / "cache").exists()
