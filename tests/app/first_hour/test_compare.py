"""`compare` tries what is advised for the data, and says what it leaves out and why."""

import re

import pytest

from bagwise.app.training import references
from commands import as_json, bagwise
from small_sources import texts, write_image_folder, write_records

FEW = ("--folds", "2", "--sizes", "2,5")


def test_the_advised_criteria_come_first_and_others_are_named(tmp_path, monkeypatch):
    source = write_records(tmp_path / "texts.csv", n_each=8)
    told = as_json("compare", source, *FEW)
    assert [one["name"] for one in told["criteria"]] == ["classifier", "aib", "mlt"]
    names = [one["name"] for one in told["references"]]
    assert names == ["all words, TF-IDF", "all words, Hellinger", "SVD", "chi2 selection", "mRMR selection"]
    assert {"csm", "nda", "lpp", "mmi", "linkage"} <= set(told["left_out"])
    assert not {*names, "classifier", "aib", "mlt"} & set(told["left_out"])
    monkeypatch.setattr(references, "_MOST_COMPONENTS", 3)
    monkeypatch.setattr(references, "_MOST_SELECTING", 3)
    told = as_json("compare", source, *FEW)
    assert [one["name"] for one in told["references"]] == [*names[:2], "chi2 selection"]
    assert re.match("24 items and .* columns; one of them must be at most 3", told["left_out"]["SVD"])
    assert "too long" in told["left_out"]["mRMR selection"]
    shown = bagwise("compare", source, *FEW)
    assert "SVD (24 items and " in shown
    assert "linkage, lpp, mmi (uses no labels)" in shown


def test_named_criteria_leave_nothing_out(tmp_path):
    told = as_json("compare", write_records(tmp_path / "texts.csv", n_each=8), *FEW, "--criteria", "csm,lpp")
    assert [one["name"] for one in told["criteria"]] == ["csm", "lpp"]
    assert told["references"] == []
    assert told["left_out"] == {}


def test_two_classes_of_images_are_for_csm_too(tmp_path):
    source = write_image_folder(tmp_path / "photos")
    told = as_json("compare", source, *FEW, "--words", "8", "--no-references")
    assert [one["name"] for one in told["criteria"]] == ["classifier", "aib", "mlt", "csm"]


def test_small_classes_are_compared_and_lone_items_left_out(tmp_path):
    rows = [row for label, n in (("fruit", 9), ("tools", 3), ("birds", 1)) for row in texts(n, (label,), seed=n)]
    path = tmp_path / "texts.csv"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    told = as_json("compare", path, "--criteria", "aib", "--sizes", "2")
    assert told["protocol"] == "5-fold cross-validation"
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows[:-1]))
    without = as_json("compare", path, "--criteria", "aib", "--sizes", "2", "--min-count", "1")
    assert len(without["criteria"]) == len(told["criteria"])


@pytest.mark.parametrize("labels", ["none", "lone"])
def test_without_labels_it_says_what_to_do(labels, tmp_path):
    path = tmp_path / "texts.csv"
    label = {"none": lambda k: "", "lone": lambda k: ["a", "b"][k > 0] if k < 2 else ""}[labels]
    path.write_text("text,label\n" + "".join(f"{text},{label(k)}\n" for k, (text, _) in enumerate(texts(4))))
    told = bagwise("compare", path, *FEW, code=1)
    assert "at least two classes of two items or more" in told
    assert "one folder per class" in told
    assert "mmi" in told
