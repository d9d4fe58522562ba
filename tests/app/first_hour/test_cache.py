"""`--cache` keeps words and histograms, so that an interrupted fit goes on and a second one is quick."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import bagwise.app.modalities.visual_words as visual
import bagwise.app.training.learning as fitting
import bagwise.app.training.validating as validating
import bagwise.codebooks.kmeans as clustering
from bagwise import Model
from bagwise.descriptors import ColorCells, DenseSIFT
from commands import as_json, bagwise
from small_sources import write_image_folder, write_records

PHOTOS = ("--descriptor", "sift+color", "--words", "8", "--jobs", "1", "--folds", "2", "--no-page", "--force")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return write_image_folder(tmp_path_factory.mktemp("photos"), parts=("train", "test"), color=True)


@contextmanager
def counted(monkeypatch, fail_at=None):
    """Count how often items are described and words learned; one of these may be interrupted, at its n-th call."""
    calls = {"describe": 0, "learn": 0, "count": 0, "merge": 0, "validate": 0}

    def counting(name, function):
        def call(*arguments, **options):
            calls[name] += 1
            if (name, calls[name]) == fail_at:
                raise KeyboardInterrupt
            return function(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for descriptor in (DenseSIFT, ColorCells):
            patch.setattr(descriptor, "_describe", counting("describe", descriptor._describe))
        patch.setattr(clustering, "kmeans_words", counting("learn", clustering.kmeans_words))
        patch.setattr(visual._Counting, "add", counting("count", visual._Counting.add))
        patch.setattr(fitting, "learn_rows", counting("merge", fitting.learn_rows))
        patch.setattr(validating, "_run_fold", counting("validate", validating._run_fold))
        yield calls


def content(path):
    """The bytes of a model and of its index, if there is one."""
    index = path.with_suffix(".index")
    return path.read_bytes(), index.read_bytes() if index.exists() else None


def test_a_second_fit_neither_describes_nor_learns_nor_counts(photos, tmp_path, monkeypatch):
    cache = ("--cache", tmp_path / "cache")
    bagwise("fit", photos, "--out", tmp_path / "plain.bagwise", *PHOTOS)
    with counted(monkeypatch) as calls:
        first = as_json("fit", photos, "--out", tmp_path / "first.bagwise", *PHOTOS, *cache)
    assert calls["describe"] == 48
    assert calls["learn"] == 2
    assert first["from_cache"] == []
    with counted(monkeypatch) as calls:
        second = as_json("fit", photos, "--out", tmp_path / "second.bagwise", *PHOTOS, *cache)
    assert set(calls.values()) == {0}
    words = ["words of 12 images", "histograms of 12 images"]
    assert second["from_cache"] == [*words, "groups by classifier", "errors of classifier"]
    with counted(monkeypatch) as calls:
        third = as_json("fit", photos, "--out", tmp_path / "third.bagwise", *PHOTOS, *cache, "--criterion", "aib")
    assert calls == {"describe": 0, "learn": 0, "count": 0, "merge": 1, "validate": 2}
    assert third["from_cache"] == words
    assert content(tmp_path / "plain.bagwise") == content(tmp_path / "first.bagwise")
    assert content(tmp_path / "plain.bagwise") == content(tmp_path / "second.bagwise")
    assert second["test"] == first["test"]
    bagwise("fit", photos, "--out", tmp_path / "plain.bagwise", *PHOTOS, "--criterion", "aib")
    assert content(tmp_path / "plain.bagwise") == content(tmp_path / "third.bagwise")
    with counted(monkeypatch) as calls:
        bagwise("fit", photos, "--out", tmp_path / "other.bagwise", *PHOTOS, *cache, "--seed", "1")
    assert (calls["describe"], calls["learn"]) == (0, 2)


@pytest.mark.parametrize(
    "step", [("describe", 7), ("learn", 1), ("learn", 2), ("count", 1), ("merge", 1), ("validate", 1)]
)
def test_an_interrupted_fit_goes_on(step, photos, tmp_path, monkeypatch):
    cache = ("--cache", tmp_path / "cache")
    bagwise("fit", photos, "--out", tmp_path / "plain.bagwise", *PHOTOS)
    with counted(monkeypatch, step) as before:
        told = bagwise("fit", photos, "--out", tmp_path / "a.bagwise", *PHOTOS, *cache, code=130)
    assert "Run the same command again to go on" in told
    assert not (tmp_path / "a.bagwise").exists()
    with counted(monkeypatch) as calls:
        bagwise("fit", photos, "--out", tmp_path / "a.bagwise", *PHOTOS, *cache)
    n_described = 6 if step[0] == "describe" else 24
    assert calls["describe"] == 48 - n_described
    assert calls["learn"] == 2 - before["learn"] + (step[0] == "learn")
    assert calls["merge"] == (step[0] != "validate")
    assert calls["validate"] == 2
    assert content(tmp_path / "plain.bagwise") == content(tmp_path / "a.bagwise")


def test_without_a_cache_the_option_is_proposed(photos, tmp_path, monkeypatch):
    with counted(monkeypatch, ("learn", 1)):
        told = bagwise("fit", photos, "--out", tmp_path / "a.bagwise", *PHOTOS, code=130)
    assert "--cache" in told


def test_changed_items_and_damaged_files_are_computed_again(photos, tmp_path, monkeypatch):
    source, cache = shutil.copytree(photos, tmp_path / "photos"), tmp_path / "cache"
    run = ("fit", source, "--out", tmp_path / "a.bagwise", *PHOTOS, "--cache", cache)
    bagwise(*run)
    before = content(tmp_path / "a.bagwise")
    for path in (cache / "histograms").rglob("*.arrays"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with counted(monkeypatch) as calls:
        told = as_json(*run)
    assert calls["learn"] == 0  # words are in a file of their own
    assert calls["count"] > 0
    assert not any("histograms" in what for what in told["from_cache"])
    assert content(tmp_path / "a.bagwise") == before
    first = next(path for path in sorted(source.rglob("*.png")) if "train" in str(path))
    other = next(path for path in sorted(source.rglob("*.png")) if "test" in str(path))
    first.write_bytes(other.read_bytes())
    with counted(monkeypatch) as calls:
        bagwise(*run)
    assert calls["learn"] == 2
    assert content(tmp_path / "a.bagwise") != before


def test_items_that_cannot_be_read_are_told_again(photos, tmp_path):
    source = shutil.copytree(photos, tmp_path / "photos")
    Path(source, "train", "down", "00.png").write_bytes(b"no picture")
    run = ("fit", source, "--out", tmp_path / "a.bagwise", *PHOTOS, "--cache", tmp_path / "cache")
    first, second = as_json(*run), as_json(*run)
    assert second["from_cache"]
    assert first["notes"] == second["notes"]
    assert any("could not be read" in note for note in second["notes"])


def test_texts_are_counted_once(tmp_path, monkeypatch):
    from sklearn.feature_extraction.text import CountVectorizer

    source = write_records(tmp_path / "a.csv", n_each=6)
    run = ("fit", source, "--folds", "2", "--cache", tmp_path / "cache", "--force", "--no-page", "--no-index")
    bagwise(*run, "--out", tmp_path / "a.bagwise")
    monkeypatch.setattr(CountVectorizer, "fit_transform", None)
    told = as_json(*run, "--out", tmp_path / "b.bagwise")
    assert "histograms of 18 texts" in told["from_cache"]
    assert content(tmp_path / "a.bagwise") == content(tmp_path / "b.bagwise")
    words = Model.load(tmp_path / "b.bagwise").word_names
    assert len(words) == len(set(words)) == len(np.unique(words))
