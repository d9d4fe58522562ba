"""Classes of very few items beside large ones."""

import pytest

from bagwise import Model
from commands import as_json, bagwise
from small_sources import texts


def records(path, sizes):
    """Texts of up to three classes, so many of each."""
    classes = ("fruit", "tools", "birds")[: len(sizes)]
    rows = [row for name, n in zip(classes, sizes, strict=True) for row in texts(n_each=n, classes=(name,), seed=n)]
    path.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return path


@pytest.mark.parametrize("sizes", [(20, 20, 4), (20, 20, 2), (3, 3)])
def test_small_classes_have_errors_too(sizes, tmp_path):
    path = records(tmp_path / "a.csv", sizes)
    told = as_json("fit", path, "--out", tmp_path / "a.bagwise")
    model = Model.load(tmp_path / "a.bagwise")
    assert model.path.protocol == f"{min(5, max(sizes))}-fold cross-validation"
    assert any(f"has {min(sizes)} items, fewer than there are folds" in note for note in told["notes"])
    assert "aib" in bagwise("compare", path, "--criteria", "aib,csm", "--no-references")


def test_a_class_of_one_item_is_named(tmp_path):
    told = as_json("fit", records(tmp_path / "a.csv", (20, 20, 1)), "--out", tmp_path / "a.bagwise")
    assert Model.load(tmp_path / "a.bagwise").path is None
    assert any("has 1 item, so errors were not estimated by cross-validation" in note for note in told["notes"])
