"""Links to folders are followed, and each folder is read once."""

import os

import pytest

from bagwise import fit_model, open_collection

CLASSES = {"cat": ["meow purr", "purr meow meow"], "dog": ["woof bark", "bark bark woof"]}


@pytest.fixture
def kept(tmp_path):
    """Class folders that are elsewhere."""
    for name, texts in CLASSES.items():
        for k, text in enumerate(texts):
            path = tmp_path / "kept" / name / f"{k}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return tmp_path / "kept"


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def link(path, target):
    path.symlink_to(target, target_is_directory=True)


def test_class_folders_that_are_links_are_those_folders(kept, source):
    for name in CLASSES:
        link(source / name, kept / name)
    found, direct = open_collection(source), open_collection(kept)
    assert (found.ids, found.labels.tolist(), found.notes) == (direct.ids, direct.labels.tolist(), ())
    assert [text for _, text in found.load()] == [text for _, text in direct.load()]
    assert fit_model(source, n_groups=2, folds=0).classes == tuple(CLASSES)


def test_links_below_links_and_links_to_a_whole_source(kept, source):
    link(source / "all", kept)
    assert open_collection(source).labels.tolist() == open_collection(kept).labels.tolist()
    for split in ("train", "test"):
        (source / split).mkdir()
    (source / "all").unlink()
    link(source / "train" / "cat", kept / "cat")
    link(source / "test" / "cat", kept / "dog")
    assert open_collection(source).splits == ["test", "test", "train", "train"]


@pytest.mark.parametrize("target", ["..", ".", "../..", "cat"])
def test_links_to_a_folder_above_or_one_that_is_read_are_left_out_and_told(kept, target):
    plain = open_collection(kept)
    link(kept / "again", target)
    found = open_collection(kept)
    assert (found.ids, found.ignored) == (plain.ids, ("again",))
    (note,) = found.notes
    assert note.startswith("Folders are read once")
    assert note.endswith("left out: again.")


def test_two_links_to_one_folder_are_read_once_by_the_first_name(kept, source):
    for name in ("b", "a"):
        link(source / name, kept / "cat")
    link(source / "c", kept)
    found = open_collection(source)
    assert found.ids == ["a/0.txt", "a/1.txt", "c/dog/0.txt", "c/dog/1.txt"]
    assert found.notes[0].endswith("left out: b, c/cat.")


def test_links_from_folder_to_folder_end(kept):
    link(kept / "cat" / "dogs", kept / "dog")
    link(kept / "dog" / "cats", kept / "cat")
    found = open_collection(kept)
    assert found.labels.tolist() == ["cat", "cat", "dog", "dog"]
    assert found.ignored == ("cat/dogs", "dog/cats")


def test_links_to_one_another_and_to_nowhere_are_told(kept):
    link(kept / "a", "b")
    link(kept / "b", "a")
    link(kept / "gone", "nowhere")
    found = open_collection(kept)
    assert found.notes == ("Links that lead nowhere were left out: a, b, gone.",)
    assert len(found) == 4


def test_folders_of_records_and_of_parquet(kept, source):
    (kept / "cat" / "0.txt").rename(kept / "cat" / "a.csv")
    (kept / "cat" / "a.csv").write_text("text\nmeow\npurr\n")
    os.remove(kept / "cat" / "1.txt")
    link(source / "cat", kept / "cat")
    link(source / "loop", source)
    found = open_collection(source)
    assert found.labels.tolist() == ["cat", "cat"]
    assert found.notes[0].endswith("left out: loop.")
