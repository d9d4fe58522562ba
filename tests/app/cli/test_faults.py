import json
import os
import pkgutil
import signal
import struct

import numpy as np
import pytest

from bagwise import Model, open_collection
from bagwise.app import ItemIndex, plan_fit
from commands import WAIT_IN_MERGING, a_day_later, as_json, bagwise, leftovers, process
from small_sources import png, texts, write_image_folder, write_records, write_text_folder
from waiting import PATIENCE, read_until

SMALL = ("--groups", 4, "--folds", 0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with texts.csv and the model and index made of it."""
    folder = tmp_path_factory.mktemp("made")
    bagwise("fit", write_records(folder / "texts.csv"), *SMALL, "--no-page", "--out", folder / "texts.bagwise")
    return folder


def test_a_missing_source(tmp_path):
    assert "nowhere does not exist" in bagwise("fit", tmp_path / "nowhere", code=1)
    assert "nowhere.bagwise does not exist" in bagwise("info", tmp_path / "nowhere.bagwise", code=1)
    assert "nowhere.index does not exist" in bagwise("search", tmp_path / "nowhere.index", "x", code=1)


def test_an_unreadable_source(tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir()

    def refuse(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))

    monkeypatch.setattr(os, "scandir", refuse)
    assert "Permission denied: " in bagwise("fit", tmp_path / "locked", code=1)


def test_an_empty_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "it is empty" in bagwise("fit", tmp_path / "empty", code=1)


def test_mixed_types_are_asked_about(tmp_path):
    source = write_text_folder(tmp_path / "mixed")
    write_image_folder(source)
    assert "--modality" in bagwise("fit", source, code=1)
    bagwise("fit", source, "--modality", "texts", *SMALL, "--no-page", "--out", tmp_path / "texts.bagwise")
    # afterwards the model says which
    found = as_json("transform", tmp_path / "texts.bagwise", source, "--modality", "texts", "--out", tmp_path / "f.csv")
    assert found["n_items"] == 36


def test_one_class_is_a_note_or_an_error(tmp_path):
    source = write_text_folder(tmp_path / "one", classes=["fruit"])
    fit = ("fit", source, *SMALL, "--no-page", "--no-index", "--out", tmp_path / "one.bagwise")
    assert "needs at least two" in bagwise(*fit, "--criterion", "nda", code=1)
    assert "one class" in as_json(*fit)["notes"][0]
    assert "no classifier" in bagwise("evaluate", tmp_path / "one.bagwise", source, code=1)


def test_existing_outputs_are_refused_before_any_work(made, monkeypatch):
    def fail(*args, **options):
        raise AssertionError("worked")

    monkeypatch.setattr("bagwise.app.training.fit.run_fit", fail)
    fit = ("fit", made / "texts.csv", *SMALL, "--out", made / "texts.bagwise")
    assert "exists already. Give --force to replace it" in bagwise(*fit, code=1)
    out = ("--out", made / "other" / "texts.bagwise")
    assert "there is no folder" in bagwise("fit", made / "texts.csv", *out, code=1)
    evaluate = ("evaluate", made / "texts.bagwise", made / "texts.csv", "--page", made / "texts.csv")
    assert "or another name with --page." in bagwise(*evaluate, code=1)
    transform = ("transform", made / "texts.bagwise", made / "texts.csv", "--out")
    assert "must end in .npz, .csv or .parquet" in bagwise(*transform, made / "f.txt", code=1)
    assert "exists already" in bagwise(
        "cut", made / "texts.bagwise", "--groups", 2, "--out", made / "texts.csv", code=1
    )


def test_force_replaces_all_outputs(tmp_path):
    source = write_records(tmp_path / "texts.csv")
    fit = ("fit", source, "--folds", 0, "--no-page", "--out", tmp_path / "texts.bagwise")
    bagwise(*fit, "--groups", 4)
    bagwise(*fit, "--groups", 3, "--force")
    assert Model.load(tmp_path / "texts.bagwise").n_groups == 3
    assert ItemIndex.load(tmp_path / "texts.index").model.n_groups == 3
    assert leftovers(tmp_path) == []
    taken = tmp_path / "folder" / "texts.index"  # the name of the index in the folder
    taken.mkdir(parents=True)
    (taken / "precious").write_text("mine")
    index = ("index", tmp_path / "texts.bagwise", source, "--out", tmp_path / "folder", "--force")
    assert "is a folder, which is not replaced" in bagwise(*index, code=1)
    assert (taken / "precious").read_text() == "mine"


@pytest.mark.parametrize("command", ["fit", "transform", "index", "evaluate"])
def test_a_full_disk_leaves_nothing_half_written(made, tmp_path, monkeypatch, command):
    def full(number):
        raise OSError(28, "No space left on device")

    model, source = made / "texts.bagwise", made / "texts.csv"
    arguments = {
        "fit": ["fit", source, *SMALL, "--out", tmp_path / "new.bagwise"],
        "transform": ["transform", model, source, "--out", tmp_path / "features.npz"],
        "index": ["index", model, source, "--out", tmp_path / "new.index"],
        "evaluate": ["evaluate", model, source, "--page", tmp_path / "page.html"],
    }[command]
    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in bagwise(*arguments, code=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "place", ["bagwise.app.training.learning.FollowedPath.of", "os.fsync"], ids=["merging", "saving"]
)
def test_of_two_runs_with_the_same_output_the_last_that_ends_wins(tmp_path, monkeypatch, place):
    """The second one runs as a whole while the first one merges words, or has written a part of its model."""
    source = write_records(tmp_path / "texts.csv")
    fit = ("fit", source, "--folds", 0, "--no-page", "--out", tmp_path / "texts.bagwise", "--groups")
    real, seen = pkgutil.resolve_name(place), []

    def overtaken(*given, **options):
        if not seen:
            seen.append(leftovers(tmp_path))
            bagwise(*fit, 4)
            assert Model.load(tmp_path / "texts.bagwise").n_groups == 4
            assert leftovers(tmp_path) == seen[0]  # what the first one has begun is not touched
        return real(*given, **options)

    monkeypatch.setattr(place, overtaken)
    bagwise(*fit, 3)
    assert len(seen[0]) == (place == "os.fsync")
    assert Model.load(tmp_path / "texts.bagwise").n_groups == 3
    assert ItemIndex.load(tmp_path / "texts.index").model.n_groups == 3
    assert leftovers(tmp_path) == []


@pytest.mark.stress
def test_two_runs_with_the_same_output(tmp_path):
    source = write_records(tmp_path / "texts.csv")
    fit = ("fit", source, "--folds", 0, "--no-page", "--out", tmp_path / "texts.bagwise", "--groups")
    runs = [process(*fit, n) for n in (3, 4)]
    errors = [run.communicate(timeout=PATIENCE)[1] for run in runs]
    assert 0 in [run.returncode for run in runs], errors
    assert all(run.returncode == 0 or "exists already" in error for run, error in zip(runs, errors, strict=True))
    assert Model.load(tmp_path / "texts.bagwise").n_groups in (3, 4)
    assert ItemIndex.load(tmp_path / "texts.index").model.n_groups in (3, 4)
    assert leftovers(tmp_path) == []


WAIT_IN_SAVING = """
import os, time
def wait(number):
    print("saving", flush=True)
    while True:
        time.sleep(0.05)
os.fsync = wait
"""


@pytest.mark.parametrize("script", [WAIT_IN_MERGING, WAIT_IN_SAVING], ids=["fit", "save"])
def test_a_killed_fit_leaves_nothing_under_the_final_name(tmp_path, script):
    source = write_records(tmp_path / "texts.csv")
    fit = ("fit", source, *SMALL, "--no-page", "--out", tmp_path / "texts.bagwise")
    running = process(*fit, script=script)
    read_until(running, "merging", "saving")
    running.kill()
    running.communicate(timeout=PATIENCE)
    assert running.returncode == -signal.SIGKILL
    assert not (tmp_path / "texts.bagwise").exists()
    assert len(leftovers(tmp_path)) == (script is WAIT_IN_SAVING)
    a_day_later(tmp_path)
    bagwise(*fit)
    assert Model.load(tmp_path / "texts.bagwise").n_groups == 4
    assert len(ItemIndex.load(tmp_path / "texts.index")) == 36


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_an_index_whose_change_was_ended_is_as_it_was(made, tmp_path, number, code):
    index = tmp_path / "texts.index"
    before = (made / "texts.index").read_bytes()
    index.write_bytes(before)
    gone = ItemIndex.load(index).ids[0]
    (tmp_path / "more.csv").write_text("text\na red apple\na green pear\n")
    change = ("index", index, "--add", tmp_path / "more.csv", "--remove", gone)
    running = process(*change, script=WAIT_IN_SAVING)
    read_until(running, "saving")
    running.send_signal(number)
    running.communicate(timeout=PATIENCE)
    assert running.returncode == code
    assert index.read_bytes() == before
    assert len(leftovers(tmp_path)) == (number == signal.SIGKILL)
    a_day_later(tmp_path)
    bagwise(*change)  # nobody holds the lock, and what was left unfinished is removed
    assert len(ItemIndex.load(index)) == 36 - 1 + 2
    assert leftovers(tmp_path) == []


def from_the_future(path):
    """Give a model file a newer schema."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    inner = json.loads(header["__metadata__"]["bagwise"])
    header["__metadata__"]["bagwise"] = json.dumps(inner | {"schema": inner["schema"] + 10})
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def test_models_and_indexes_from_the_future(made, tmp_path):
    import shutil

    shutil.copy(made / "texts.bagwise", tmp_path / "new.bagwise")
    from_the_future(tmp_path / "new.bagwise")
    for arguments in (["info"], ["evaluate"], ["cut", "--groups", 2]):
        name, *rest = arguments
        source = [made / "texts.csv"] if name == "evaluate" else []
        assert "another version of bagwise" in bagwise(name, tmp_path / "new.bagwise", *source, *rest, code=1)
    shutil.copy(made / "texts.index", tmp_path / "new.index")
    from_the_future(tmp_path / "new.index")
    assert "another version of bagwise" in bagwise("search", tmp_path / "new.index", "-t", "x", code=1)
    content = (made / "texts.index").read_bytes()
    (tmp_path / "new.index").write_bytes(content[:-20])
    assert "cut short" in bagwise("info", tmp_path / "new.index", code=1)


def test_a_query_or_source_of_another_kind(made, tmp_path):
    picture = tmp_path / "picture.png"
    picture.write_bytes(png(np.zeros((20, 20), np.uint8)))
    said = bagwise("search", made / "texts.index", picture, code=1)
    assert "The model takes texts" in said
    assert "holds images" in said
    assert len(said.splitlines()) == 1
    assert "holds images" in bagwise("transform", made / "texts.bagwise", picture, "--out", tmp_path / "f.csv", code=1)
    assert "There is no query" in bagwise("search", made / "texts.index", code=1)


STRANGE = ["with space.txt", "two\nlines.txt", b"not utf-8 \xff.txt", "quote'\".txt", "[bold]markup.txt"]


def test_strange_names_print_safely_and_round_trip(tmp_path):
    source = tmp_path / "a folder\nwith lines"
    for number, (text, label) in enumerate(texts(n_each=5)):
        folder = source / label
        folder.mkdir(parents=True, exist_ok=True)
        name = os.fsdecode(STRANGE[number % len(STRANGE)])
        (folder / name).write_text(text)
    ids = open_collection(source).ids
    out = tmp_path / "sp ace.bagwise"
    output = bagwise("fit", source, "--groups", 4, "--folds", 2, "--min-count", 1, "--out", out)
    assert str(out) in output
    assert all(line.isprintable() for line in output.splitlines())
    index = ItemIndex.load(tmp_path / "sp ace.index")
    assert sorted(index.ids) == ids
    output = bagwise("search", tmp_path / "sp ace.index", "-t", "apple pear", "-k", 15)
    assert "two\\nlines.txt" in output
    assert "not utf-8 \\xff.txt" in output
    assert "[bold]markup.txt" in output
    hits = as_json("search", tmp_path / "sp ace.index", "-t", "apple", "-k", 15)["queries"][0]["hits"]
    assert sorted(hit["id"] for hit in hits) == ids
    bagwise("search", tmp_path / "sp ace.index", source, "--page", tmp_path / "page.html")
    for ending in ("npz", "csv", "parquet"):
        features = tmp_path / f"features.{ending}"
        bagwise("transform", out, source, "--out", features)
        read = open_collection(features, "table").ids
        kept = ids if ending == "npz" else [id.encode("utf-8", "backslashreplace").decode() for id in ids]
        assert read == kept
    bagwise("cluster", out, source, "-c", 2, "--out", tmp_path / "clusters.csv")


def test_links_that_go_in_circles(tmp_path):
    source = write_text_folder(tmp_path / "texts")
    (source / "fruit" / "again").symlink_to(source, target_is_directory=True)
    (source / "fruit" / "a.txt").symlink_to("b.txt")
    (source / "fruit" / "b.txt").symlink_to("a.txt")
    (source / "fruit" / "gone.txt").symlink_to("nowhere.txt")
    found = as_json("fit", source, *SMALL, "--no-page", "--no-index", "--out", tmp_path / "texts.bagwise")
    assert found["model"]["provenance"]["n_items"] == 36


def test_very_many_files_are_planned(tmp_path):
    """The same code serves 100,000 files; 10,000 keep the tests quick."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for number in range(5_000):
            (tmp_path / folder / f"{number}.txt").touch()
    for folder in ("a", "b"):
        (tmp_path / folder / "0.txt").write_text("some words")
    plan = plan_fit(tmp_path, n_groups=2)
    assert plan.n_items == 10_000
    assert plan.classes == ("a", "b")


def test_broken_items_are_counted(tmp_path):
    source = write_image_folder(tmp_path / "stripes")
    (source / "down" / "06.png").write_bytes(b"")
    options = ("--descriptor", "patches", "--words", 12, *SMALL, "--no-page", "--out", tmp_path / "m.bagwise")
    assert "1 of 12 items could not be read" in as_json("fit", source, *options)["notes"][0]
    model = tmp_path / "m.bagwise"
    found = as_json("transform", model, source, "--out", tmp_path / "features.npz")
    assert found["n_items"] == 11
    strict = ("transform", model, source, "--out", tmp_path / "f.npz", "--on-error", "raise")
    assert "Cannot read 'down/06.png'" in bagwise(*strict, code=1)
